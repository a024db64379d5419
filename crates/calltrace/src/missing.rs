//! Finds packets that are missing in a recording, although sequence numbers show that they were sent. Determines
//! whether these packets arrived.

use crate::call::{Direction, Fate, PacketRecord};
use crate::numbering::{self, Numbered};
use crate::reported::Arrivals;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time};
use steadycast_wire::rtcp::{Compound, Packet};

/// An unreadable record may be a packet that is missing in a gap. It has to be at most this time away from the gap.
const NEAR_GAP: Span = Span::millis(100);
/// Packets that the capturing program dropped are ignored if they are at most 2 % (one in 50) of the missing packets
/// whose fate is unknown.
const NEGLIGIBLE: u64 = 50;

/// A packet is a repetition if it leaves later than a packet with a higher sequence number by more than this time. If
/// the time is shorter, the packet is only reordered, because a repetition takes at least a round trip.
const LEAST_REPEAT: Span = Span::millis(1);
/// The capture is not trusted if reports show that more than this number of its missing packets arrived, and that more
/// of them arrived than were lost.
const LEAST_REPORTED: usize = 20;

/// A missing packet, and the transport-wide numbers of the packets before and after it in the stream.
type Missing = (PacketRecord, Option<(i64, i64)>);

impl Direction {
    /// Adds the packets that are missing according to the sequence numbers. Returns the streams whose sequence numbers
    /// restarted.
    ///
    /// Senders send in the order of sequence numbers. So a packet that left after a packet with a higher number is a
    /// repetition. Repetitions are marked as such. They fill no gap, because the packet was lost when it was first
    /// sent.
    ///
    /// Each added packet gets an unused transport-wide number between the numbers of its neighbours.
    pub(crate) fn add_missing(&mut self) -> BTreeSet<u32> {
        // Sort by departure if packets carry send times.
        self.packets.sort_by_key(|packet| packet.stamp.unwrap_or(packet.seen));
        let mut numbers: BTreeSet<i64> = BTreeSet::new();
        let mut number = 0;
        let mut streams: BTreeMap<u32, Vec<(usize, PacketRecord, Option<i64>)>> = BTreeMap::new();
        for (i, packet) in self.packets.iter().enumerate() {
            let counted = packet.transport.map(|wrapped| {
                number += i64::from(wrapped.wrapping_sub(number as u16) as i16);
                number
            });
            numbers.extend(counted);
            streams.entry(packet.ssrc).or_default().push((i, *packet, counted));
        }
        let mut missing: Vec<Missing> = Vec::new();
        let mut restarted = BTreeSet::new();
        for (ssrc, stream) in streams {
            let positions = numbering::extend(&numbered(stream.iter().map(|one| &one.1)));
            let mut known = BTreeSet::new();
            // Packets whose number is higher than all numbers before them, in the order of departures.
            let mut ahead: Vec<(i64, Time)> = Vec::new();
            let mut placed = Vec::new();
            for (position, one) in positions.iter().zip(&stream) {
                let stamp = one.1.stamp;
                let overtaken = ahead.get(ahead.partition_point(|one| one.0 <= position.number));
                let is_behind = overtaken.zip(stamp).is_some_and(|(one, stamp)| stamp.since(one.1) > LEAST_REPEAT);
                if is_behind || !known.insert(position.number) {
                    self.packets[one.0].is_repeat = true;
                    continue;
                }
                let leads = ahead.last().is_none_or(|one| position.number > one.0);
                ahead.extend(stamp.filter(|_| leads).map(|stamp| (position.number, stamp)));
                placed.push((position, one));
            }
            placed.sort_by_key(|(position, _)| position.number);
            if positions.iter().any(|position| position.run > 0) {
                restarted.insert(ssrc);
            }
            for two in placed.windows(2) {
                let [(from, (_, before, counted_before)), (to, (_, after, counted))] = two else { continue };
                let ahead = to.number - from.number;
                // After a restart, the numbers do not show how many packets are missing, so add none.
                if from.run != to.run || ahead > numbering::LONGEST_GAP {
                    continue;
                }
                for n in 1..ahead {
                    let between = |from: Time, to: Time| from + to.since(from).scale(n as f64 / ahead as f64);
                    let packet = PacketRecord {
                        // End at the later of the two times, because reordered packets may have been recorded in the
                        // reverse order.
                        seen: between(before.seen, after.seen.max(before.seen)),
                        stamp: before.stamp.zip(after.stamp).map(|(from, to)| between(from, to)),
                        seq: before.seq.wrapping_add(n as u16),
                        transport: None,
                        marker: false,
                        is_recorded: false,
                        is_repeat: false,
                        ..*after
                    };
                    missing.push((packet, counted_before.zip(*counted)));
                }
            }
        }
        // Give each missing packet a free transport-wide number between the numbers of its neighbours. Begin with the
        // packets that have the lowest upper bound (earliest deadline first). This gives a number to as many packets as
        // possible.
        missing.sort_by_key(|(packet, within)| (within.map(|within| within.1), packet.stamp, packet.seen));
        for (packet, within) in &mut missing {
            let free = within.and_then(|(from, to)| (from + 1..to).find(|number| !numbers.contains(number)));
            numbers.extend(free);
            packet.transport = free.map(|number| number as u16);
        }
        self.packets.extend(missing.into_iter().map(|one| one.0));
        self.packets.sort_by_key(|packet| packet.seen);
        restarted
    }

    /// Returns the fates of missing packets according to receiver reports. Two successive reports show how many of the
    /// packets between them were lost. The other packets arrived, and are missing only in the recording.
    ///
    /// Streams in `restarted` are skipped, because their loss counts restart too.
    pub(crate) fn by_receiver_reports(&self, arrivals: &Arrivals, restarted: &BTreeSet<u32>) -> BTreeMap<usize, Fate> {
        let mut counts: BTreeMap<u32, Vec<(u32, i32)>> = BTreeMap::new();
        for (_, bytes) in &self.reports {
            for packet in Compound::parse(bytes).map_or(Vec::new(), |compound| compound.packets) {
                if let Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } = packet {
                    for block in blocks.iter().filter(|block| !restarted.contains(&block.ssrc)) {
                        counts.entry(block.ssrc).or_default().push((block.highest_seq, block.cumulative_lost));
                    }
                }
            }
        }
        let mut fates = BTreeMap::new();
        for (ssrc, mut counts) in counts {
            counts.dedup_by_key(|count| count.0);
            let mine = || self.packets.iter().enumerate().filter(move |(_, packet)| packet.ssrc == ssrc);
            let Some((_, first)) = mine().next() else { continue };
            // Use only the lower 16 bits of the reported number, because the receiver counts cycles from another
            // origin.
            let base = i64::from(first.seq);
            let place = |high: u32| base + i64::from(high.wrapping_sub(u32::from(first.seq)) as u16);
            let mut last = base;
            let mut gaps: BTreeMap<i64, usize> = BTreeMap::new();
            for (i, packet) in mine() {
                last += i64::from(packet.seq.wrapping_sub(last as u16) as i16);
                if !packet.is_recorded && arrivals.reported[i].is_none() {
                    gaps.insert(last, i);
                }
            }
            let cycles: Vec<i64> = counts
                .iter()
                .scan((0_i64, None), |(cycle, before), count| {
                    let at = place(count.0);
                    if before.is_some_and(|before| at + 0x8000 < before) {
                        *cycle += 0x1_0000;
                    }
                    *before = Some(at);
                    Some(at + *cycle)
                })
                .collect();
            // The first count includes losses before the recording. So use it only if it is zero or negative.
            let begin = counts.first().filter(|count| count.1 <= 0).map(|_| (base - 1, 0));
            let known = begin.into_iter().chain(cycles.into_iter().zip(counts.iter().map(|count| count.1)));
            let known: Vec<(i64, i32)> = known.collect();
            for pair in known.windows(2) {
                let within: Vec<usize> =
                    gaps.range(pair[0].0 + 1..=pair[1].0.max(pair[0].0)).map(|(_, place)| *place).collect();
                let lost = usize::try_from(i64::from(pair[1].1) - i64::from(pair[0].1)).unwrap_or(0).min(within.len());
                // The reports do not show which packets were lost, so spread the losses evenly.
                for (k, place) in within.iter().enumerate() {
                    let is_lost = (k + 1) * lost / within.len() > k * lost / within.len();
                    fates.insert(*place, if is_lost { Fate::Lost } else { Fate::Arrived { is_reported: true } });
                }
            }
        }
        fates
    }

    /// Returns the missing packets that may have arrived, because the capture may have missed them. Their fate is
    /// unknown. They are near an unreadable record, or in a period in which nothing was recorded. `fates` has for each
    /// packet whether it arrived, or `None` if this is unknown.
    ///
    /// Returns `None` if the capture may have missed any packet. One possible reason is that it dropped packets at
    /// unknown times. The other is that more missing packets are known to have arrived than to be lost, and that more
    /// than [`LEAST_REPORTED`] of them are known to have arrived.
    pub(crate) fn may_be_unread(&self, fates: &[Option<bool>]) -> Option<BTreeSet<usize>> {
        let missing = || (0..self.packets.len()).filter(|&i| !self.packets[i].is_recorded);
        let open: Vec<usize> = missing().filter(|i| fates[*i].is_none()).collect();
        let is_untimed = |i: usize| self.unread.untimed.contains(&(self.packets[i].ssrc, self.packets[i].seq));
        let reported = |arrived: bool| missing().filter(|i| fates[*i] == Some(arrived) && !is_untimed(*i)).count();
        if self.unread.unplaced * NEGLIGIBLE > open.len() as u64 || reported(true) > reported(false).max(LEAST_REPORTED)
        {
            return None;
        }
        let bounds = self.gap_bounds();
        let mut unread: BTreeMap<Time, u32> = BTreeMap::new();
        for at in &self.unread.times {
            *unread.entry(*at).or_default() += 1;
        }
        let mut found = BTreeSet::new();
        for &i in &open {
            let seen = self.packets[i].seen;
            let after = self.unread.silences.partition_point(|silence| silence.1 <= seen);
            let is_silent = self.unread.silences.get(after).is_some_and(|silence| silence.0 < seen);
            let (from, to) = bounds.get(&i).copied().unwrap_or((seen, seen));
            let beside = unread.range(from.before(NEAR_GAP)..=to + NEAR_GAP).next().map(|one| *one.0);
            if is_silent {
                found.insert(i);
            } else if let Some(at) = beside {
                found.insert(i);
                // Remove one record at this time from `unread`, because an unreadable record can explain only one
                // missing packet.
                match unread.get_mut(&at) {
                    Some(count) if *count > 1 => *count -= 1,
                    _ => drop(unread.remove(&at)),
                }
            }
        }
        Some(found)
    }

    /// Returns for each missing packet the times of the recorded packets before and after it in its stream.
    fn gap_bounds(&self) -> BTreeMap<usize, (Time, Time)> {
        let mut bounds = BTreeMap::new();
        let mut open: BTreeMap<u32, (Time, Vec<usize>)> = BTreeMap::new();
        for (i, packet) in self.packets.iter().enumerate() {
            let (before, missing) = open.entry(packet.ssrc).or_insert((packet.seen, Vec::new()));
            if packet.is_recorded {
                bounds.extend(missing.drain(..).map(|place| (place, (*before, packet.seen))));
                *before = packet.seen;
            } else {
                missing.push(i);
            }
        }
        bounds
    }
}

fn numbered<'a>(packets: impl Iterator<Item = &'a PacketRecord>) -> Vec<Numbered> {
    packets
        .map(|packet| Numbered {
            at: packet.stamp.unwrap_or(packet.seen),
            seq: packet.seq,
            timestamp: packet.timestamp,
        })
        .collect()
}
