//! Sorts the RTP packets of a capture into flows, each from one sender to one receiver.

use crate::Problem;
use crate::batches::{self, Batches};
use crate::call::PacketRecord;
use crate::capture_file::TimeSource;
use crate::clock;
use crate::decapsulation::Endpoint;
use crate::delay_steps::{Axis, lasting_steps};
use crate::numbering::Numbered;
use crate::send_time::{self, Elements, Kind, SendTimes};
use crate::sender_clock::{Stamped, Stream, senders, streams};
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Span, Time, counted};
use steadycast_wire::rtcp::{Compound, CongestionFeedback, Packet};

/// Minimum number of packets in sequence. A source with fewer packets in sequence does not count as RTP.
pub(crate) const IN_SEQUENCE: usize = 20;
/// Maximum difference between the sequence numbers of two successive packets that are in sequence.
const LONGEST_STEP: i16 = 64;
/// Maximum time between two copies of a packet, if the packet has a header extension.
const COPY_WITHIN: Span = Span::secs(2);
/// Maximum time between two copies of a packet without a header extension. A later packet may be a retransmission,
/// which looks like a copy.
const COPY_WITHIN_BARE: Span = Span::millis(5);
/// Maximum variation of the time between copies, in nanoseconds, if two interfaces or a mirror port cause the copies.
const LONGEST_COPY_SPREAD_NS: i64 = 10_000_000;
/// If a clock is set forward, the records have a gap. The gap is at least this share of the step.
const GAP_OF_STEP: f64 = 0.8;
/// Largest plausible change of a queueing delay between two packets, in nanoseconds. A larger change means that a clock
/// was set.
const LONGEST_QUEUE_CHANGE_NS: i64 = 2_000_000_000;

#[derive(Clone)]
pub(crate) struct CapturedPacket {
    /// Number of the record in the file, counted from 1.
    pub(crate) place: usize,
    pub(crate) record: PacketRecord,
    pub(crate) source: TimeSource,
    pub(crate) elements: Elements,
    pub(crate) is_cut: bool,
    pub(crate) is_outgoing: Option<bool>,
}

#[derive(Clone)]
pub(crate) struct CapturedRtcp {
    pub(crate) place: usize,
    pub(crate) at: Time,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_cut: bool,
}

/// RTP packets of one sender, between one or more pairs of endpoints.
#[derive(Default)]
pub(crate) struct Flow {
    pub(crate) endpoints: Vec<(Endpoint, Endpoint)>,
    /// The packets in the order of the file.
    pub(crate) packets: Vec<CapturedPacket>,
    /// Number of other senders whose packets use the same endpoints.
    pub(crate) other_senders: usize,
    /// Number of packets of which the capture has two copies.
    copies: usize,
    /// For each SSRC: which header extension has the send time.
    send_times: BTreeMap<u32, Kind>,
}

/// Sorts packets into flows. `named` is the id of abs-send-time, if the user or a session description specifies it.
///
/// # Errors
/// [`send_time::find`] fails, or the packets of a flow are from two captures.
pub(crate) fn flows(
    packets: BTreeMap<(Endpoint, Endpoint), Vec<CapturedPacket>>,
    named: Option<u8>,
) -> Result<Vec<Flow>, Problem> {
    let mut flows = merged(rtp_of(packets));
    let mut all = Vec::new();
    for mut flow in flows.drain(..) {
        // Check this first, because removing copies would mix the times of two captures.
        flow.check_captures()?;
        flow.drop_copies();
        flow.packets.sort_by_key(|one| one.place);
        let elements = flow.packets.iter().map(|one| (one.record.seen, one.record.ssrc, &one.elements));
        flow.send_times = send_time::find(elements, named)?;
        all.extend(flow.by_sender());
    }
    Ok(all)
}

/// Removes sources that are not RTP: their sequence numbers are in order neither in the file nor by time.
fn rtp_of(
    mut packets: BTreeMap<(Endpoint, Endpoint), Vec<CapturedPacket>>,
) -> BTreeMap<(Endpoint, Endpoint), Vec<CapturedPacket>> {
    let mut sources: BTreeMap<u32, Vec<(usize, Time, u16)>> = BTreeMap::new();
    for one in packets.values().flatten() {
        sources.entry(one.record.ssrc).or_default().push((one.place, one.record.seen, one.record.seq));
    }
    let does_follow = |packets: &[(usize, Time, u16)]| {
        let mut numbers: Vec<u16> = packets.iter().map(|packet| packet.2).collect();
        // Remove copies of a packet, so that they do not count as steps.
        numbers.dedup();
        let steps = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i16);
        let following = steps.filter(|step| (-LONGEST_STEP..=LONGEST_STEP).contains(step)).count();
        following >= IN_SEQUENCE && following * 2 >= numbers.len()
    };
    sources.retain(|_, packets| {
        packets.sort_unstable();
        let in_file = does_follow(packets);
        packets.sort_unstable_by_key(|packet| packet.1);
        in_file || does_follow(packets)
    });
    packets.retain(|_, packets| {
        packets.retain(|one| sources.contains_key(&one.record.ssrc));
        !packets.is_empty()
    });
    packets
}

/// Joins packets of one source that travelled between different endpoints. This occurs if a NAT was rebound, or if the
/// capture was made on both sides of a NAT. Echoes and relayed packets are not joined.
fn merged(packets: BTreeMap<(Endpoint, Endpoint), Vec<CapturedPacket>>) -> Vec<Flow> {
    let mut all: Vec<Flow> = Vec::new();
    for (endpoints, mut packets) in packets {
        let sources: BTreeSet<u32> = packets.iter().map(|one| one.record.ssrc).collect();
        let passes_on = |other: &Flow| {
            other.endpoints.iter().any(|(from, to)| {
                // On one host, only the ports distinguish the endpoints. Between hosts, compare only addresses, because
                // a relay may use any port.
                let same_host = from.0 == to.0;
                let meet = |a: &Endpoint, b: &Endpoint| if same_host { a == b } else { a.0 == b.0 };
                meet(to, &endpoints.0) || meet(from, &endpoints.1)
            })
        };
        let shares =
            |other: &&mut Flow| !passes_on(other) && other.packets.iter().any(|one| sources.contains(&one.record.ssrc));
        match all.iter_mut().find(shares) {
            Some(other) => {
                other.endpoints.push(endpoints);
                other.packets.append(&mut packets);
            }
            None => all.push(Flow { endpoints: vec![endpoints], packets, ..Flow::default() }),
        }
    }
    all
}

/// Whether an RTCP packet refers to one of `sources`. This is also true if its feedback refers to no source, or if it
/// can't be parsed.
pub(crate) fn names_source_of(bytes: &[u8], sources: &BTreeSet<u32>) -> bool {
    let Ok(compound) = Compound::parse(bytes) else { return true };
    compound.packets.iter().any(|packet| match packet {
        Packet::Feedback { media, .. } if packet.is_packet_feedback() => {
            let streams = CongestionFeedback::from_packet(packet).ok().flatten();
            sources.contains(media)
                || *media == 0
                || streams.is_some_and(|report| report.streams.iter().any(|one| sources.contains(&one.ssrc)))
        }
        Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } => {
            blocks.iter().any(|block| sources.contains(&block.ssrc))
        }
        _ => false,
    })
}

impl Flow {
    pub(crate) fn sources(&self) -> BTreeSet<u32> {
        self.packets.iter().map(|one| one.record.ssrc).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.packets.iter().map(|one| one.record.size.get()).sum()
    }

    pub(crate) fn span(&self) -> Option<(Time, Time)> {
        let times = || self.packets.iter().map(|one| one.record.seen);
        times().min().zip(times().max())
    }

    pub(crate) fn described(&self, bytes: u64) -> String {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for one in &self.packets {
            *counts.entry(one.record.ssrc).or_default() += 1;
        }
        let main = counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(ssrc, _)| *ssrc);
        let length = self.span().map_or(Span::ZERO, |(first, last)| last.since(first));
        format!("SSRC {main} ({main:#x}), {:.1} s, {} kB", length.as_secs_f64(), bytes / 1000)
    }

    pub(crate) fn note(&self, notes: &mut Vec<String>) {
        if self.endpoints.len() > 1 {
            let pairs = counted(self.endpoints.len() as u64, "pair");
            notes
                .push(format!("its streams went between {pairs} of addresses, as after a NAT rebinding: all are used"));
        }
        if self.copies > 0 {
            let all = self.packets.len();
            notes.push(if self.copies * 10 >= all * 9 {
                "each packet stands twice in the capture: one of each is used".to_owned()
            } else {
                format!("{} that stand twice in the capture are used once", counted(self.copies as u64, "packet"))
            });
        }
    }

    /// Checks that the time between two copies of a packet is short and nearly constant.
    ///
    /// # Errors
    /// Most packets have two copies, and the time between the copies is long or varies. Then the file contains two
    /// captures.
    fn check_captures(&self) -> Result<(), Problem> {
        let mut first: BTreeMap<(u32, u16, u32), (i64, &Elements)> = BTreeMap::new();
        let mut apart: Vec<i64> = Vec::new();
        for one in &self.packets {
            let at = one.record.seen.as_nanos() as i64;
            let key = (one.record.ssrc, one.record.seq, one.record.timestamp);
            match first.get(&key) {
                Some((before, elements)) if **elements == one.elements => apart.push((at - before).abs()),
                Some(_) => {}
                None => drop(first.insert(key, (at, &one.elements))),
            }
        }
        apart.sort_unstable();
        let at = |percent: usize| apart.get(apart.len() * percent / 100).copied().unwrap_or(0);
        // The time between two copies shows where they were recorded. Between two hosts, it varies because of the
        // network path. Between two interfaces of one host, it is nearly constant.
        let varies = at(95) - at(5) > LONGEST_COPY_SPREAD_NS || at(50) > COPY_WITHIN.as_nanos() as i64;
        if apart.len() * 2 > first.len() && varies {
            let what = format!(
                "{} of its {} stand twice, {:.0} to {:.0} ms apart: it holds two captures of the call",
                apart.len(),
                counted(first.len() as u64, "packet"),
                at(5) as f64 * 1e-6,
                at(95) as f64 * 1e-6
            );
            return Err(Problem::at(0, what, "give one of them, or the sender's and the receiver's by --other-end"));
        }
        Ok(())
    }

    /// Removes copies of packets, which several interfaces or a mirror port cause. Keeps the first time of each packet.
    /// If nearly all packets have copies and all have header extensions, keeps the later time, because it was recorded
    /// nearer to the receiver.
    fn drop_copies(&mut self) {
        self.packets.sort_by_key(|one| one.record.seen);
        let mut last: BTreeMap<(u32, u16), usize> = BTreeMap::new();
        let mut copies: Vec<(usize, usize)> = Vec::new();
        for (i, one) in self.packets.iter().enumerate() {
            let key = (one.record.ssrc, one.record.seq);
            if let Some(&first) = last.get(&key) {
                let before = &self.packets[first];
                let within = if one.elements.is_empty() { COPY_WITHIN_BARE } else { COPY_WITHIN };
                let is_near = one.record.seen.since(before.record.seen) <= within;
                if is_near && before.elements == one.elements && before.record.timestamp == one.record.timestamp {
                    copies.push((first, i));
                    continue;
                }
            }
            last.insert(key, i);
        }
        let left = self.packets.len() - copies.len();
        // Use the times of the later copies only if nearly all packets have a copy. Otherwise, packets with a copy
        // would seem to have a longer delay than packets without one.
        let later = copies.len() * 10 >= left * 9 && self.packets.iter().all(|one| !one.elements.is_empty());
        if later {
            for &(first, copy) in &copies {
                let (seen, place) = (self.packets[copy].record.seen, self.packets[copy].place);
                self.packets[first].record.seen = seen;
                self.packets[first].place = place;
            }
        }
        let dropped: BTreeSet<usize> = copies.iter().map(|copy| copy.1).collect();
        let mut i = 0;
        self.packets.retain(|_| {
            i += 1;
            !dropped.contains(&(i - 1))
        });
        self.copies = copies.len();
    }

    fn send_time(&self, one: &CapturedPacket) -> Option<u32> {
        let kind = self.send_times.get(&one.record.ssrc)?;
        one.elements.iter().find(|element| (element.0, element.1) == *kind).map(|element| element.2)
    }

    /// Returns the number of bits in a send time.
    fn bits(&self) -> u32 {
        self.send_times.values().next().map_or(24, |kind| send_time::bits(*kind))
    }

    /// Splits the flow by sender. If at most one sender has send times, the flow is not split.
    fn by_sender(self) -> Vec<Self> {
        let numbered = |one: &CapturedPacket| {
            let PacketRecord { ssrc, seen: at, seq, timestamp, .. } = one.record;
            (ssrc, Numbered { at, seq, timestamp }, self.send_time(one))
        };
        let streams = streams(&self.packets.iter().map(numbered).collect::<Vec<_>>(), self.bits());
        let stamped = self.packets.iter().zip(&streams).filter_map(|(one, stream)| {
            let (seen, size) = (one.record.seen, one.record.size.get());
            Some(Stamped { place: one.place, seen, stream: *stream, raw: self.send_time(one)?, size })
        });
        let senders = senders(stamped.collect(), self.bits());
        if senders.len() < 2 {
            return vec![self];
        }
        let sender_of = |stream: Stream| senders.iter().position(|streams| streams.contains(&stream));
        let mut of: BTreeMap<Option<usize>, Vec<CapturedPacket>> = BTreeMap::new();
        for (one, stream) in self.packets.into_iter().zip(streams) {
            of.entry(sender_of(stream)).or_default().push(one);
        }
        let other_senders = of.len() - 1;
        let flows = of.into_values().map(|packets| Self {
            endpoints: self.endpoints.clone(),
            packets,
            other_senders,
            copies: self.copies,
            send_times: self.send_times.clone(),
        });
        flows.collect()
    }

    /// Finds steps of the capture's clock by comparing it with send times. Without send times, finds only steps by
    /// which the clock was set back.
    ///
    /// `times` are the times of all records, in the order of the file.
    pub(crate) fn clock_steps(&self, times: &[Time]) -> Vec<clock::Step> {
        // Subtract from `place`, because record numbers are counted from one.
        let gap = |place: usize| {
            let pair = place.checked_sub(2).and_then(|before| Some((times.get(before)?, times.get(before + 1)?)));
            pair.map_or(0, |(before, after)| after.as_nanos() as i64 - before.as_nanos() as i64)
        };
        let mut gaps: Vec<i64> = (2..=times.len()).map(gap).collect();
        gaps.sort_unstable();
        let usual = gaps.get(gaps.len() / 2).copied().unwrap_or(0);
        let steps = if self.send_times.is_empty() { self.set_back() } else { self.steps_by_send_times(&gap) };
        // The clock was set between two packets of this flow, but the first record with the new clock may belong to
        // another flow. So search all records between these two packets. The clock was set at the largest gap, or at
        // the largest step back in time if the clock was set back.
        let first = |(before, step): (usize, clock::Step)| {
            let places = before + 1..=step.place;
            let place = places.max_by_key(|place| gap(*place) * step.nanos.signum()).unwrap_or(step.place);
            let nanos = if self.send_times.is_empty() { gap(place) - usual } else { step.nanos };
            clock::Step { place, nanos }
        };
        steps.into_iter().map(first).collect()
    }

    /// Returns the steps of the recording's clock. Each has the record number of the packet before it. `gap(place)`
    /// returns the time between the record `place` and the previous record, in nanoseconds.
    fn steps_by_send_times(&self, gap: &impl Fn(usize) -> i64) -> Vec<(usize, clock::Step)> {
        let bits = self.bits();
        let stamped: Vec<(&CapturedPacket, u32)> =
            self.packets.iter().filter_map(|one| Some((one, self.send_time(one)?))).collect();
        let mut points = Vec::with_capacity(stamped.len());
        let (mut delay, mut before): (i64, Option<(&CapturedPacket, u32)>) = (0, None);
        for &(one, raw) in &stamped {
            if let Some((last, last_raw)) = before {
                let passed = one.record.seen.as_nanos() as i64 - last.record.seen.as_nanos() as i64;
                let apart = passed - send_time::advance(last_raw, raw, bits);
                // If `apart` is near a multiple of the wrap, send times wrapped during a pause. Otherwise a clock was
                // set.
                let beyond_wraps = send_time::to_nearest_wrap(apart, bits);
                delay += if beyond_wraps.abs() <= LONGEST_QUEUE_CHANGE_NS { beyond_wraps } else { apart };
            }
            before = Some((one, raw));
            points.push((one.record.seen.as_nanos() as i64, delay));
        }
        let place = |i: usize| stamped[i].0.place;
        let long = clock::long_steps(&points);
        let mut steps: Vec<(usize, clock::Step)> = long
            .iter()
            .map(|step| (place(step.place - 1), clock::Step { place: place(step.place), ..*step }))
            .collect();
        let mut left: Vec<(i64, i64, usize)> =
            points.iter().enumerate().map(|(i, (seen, delay))| (seen - delay, *delay, i)).collect();
        for point in &mut left {
            point.1 -= long.iter().filter(|step| step.place <= point.2).map(|step| step.nanos).sum::<i64>();
        }
        left.sort_by_key(|point| point.0);
        let seconds = |nanos: i64| nanos as f64 * 1e-9;
        let by_departure: Vec<(f64, f64)> = left.iter().map(|point| (seconds(point.0), seconds(point.1))).collect();
        let times: Vec<Time> = stamped.iter().map(|one| one.0.record.seen).collect();
        let resolution = clock::resolution(&times).map_or(0.0, Span::as_secs_f64);
        for step in lasting_steps(&by_departure, Axis::Departures, resolution) {
            let (before, after) = (place(left[step.index - 1].2), place(left[step.index].2));
            let nanos = (step.seconds * 1e9) as i64;
            // If the clock was set forward, all records have a gap there. If it was set back, times are out of order.
            // Otherwise the delay of the path has changed, which is no step of the clock.
            let longest = (before + 1..=after).map(gap).max().unwrap_or(0);
            if before < after && (nanos < 0 || longest as f64 >= GAP_OF_STEP * nanos as f64) {
                steps.push((before, clock::Step { place: after, nanos }));
            }
        }
        steps.sort_by_key(|step| step.0);
        steps
    }

    /// Returns the resolution of the packets' times, which is at least a nanosecond. If interfaces differ, this is the
    /// coarsest resolution. Returns `None` if all times are equal.
    pub(crate) fn resolution(&self) -> Option<Span> {
        let mut times: BTreeMap<TimeSource, Vec<Time>> = BTreeMap::new();
        for one in &self.packets {
            times.entry(one.source).or_default().push(one.record.seen);
        }
        let all: Vec<Time> = times.values().flatten().copied().collect();
        let own = times.iter().map(|(source, times)| match clock::resolution(times) {
            // Use the measured resolution only if there are enough packets. The times of a few packets may be multiples
            // of a longer time by chance.
            Some(every) if times.len() >= IN_SEQUENCE => every.max(source.every),
            _ => source.every,
        });
        clock::resolution(&all).map(|every| own.fold(every, Span::max))
    }

    /// Finds packets that were recorded together (see [`crate::batches`]). `times` are the packets' recorded times, and
    /// `others` are the recorded times of the other direction.
    pub(crate) fn batches(&self, times: &[Time], others: &[Time]) -> Option<Batches> {
        if self.send_times.is_empty() {
            return batches::find_by_times(times, others);
        }
        let mut unwrapped = SendTimes::new(self.bits());
        let stamped = self.packets.iter().filter_map(|one| {
            let left = unwrapped.unwrap(self.send_time(one)?, one.record.seen);
            Some((one.record.seen.as_nanos() as i64, left.as_nanos() as i64))
        });
        batches::find(&stamped.collect::<Vec<_>>(), others)
    }

    /// Finds where the clock was set back, without the help of send times. There, sequence numbers continue, but times
    /// repeat.
    fn set_back(&self) -> Vec<(usize, clock::Step)> {
        const LEAST_NS: i64 = 100_000_000;
        const FOLLOWING: usize = 5;
        let mut streams: BTreeMap<u32, Vec<&CapturedPacket>> = BTreeMap::new();
        for one in &self.packets {
            streams.entry(one.record.ssrc).or_default().push(one);
        }
        // Use the stream with the most packets, because it shows the position of the step most exactly.
        let Some(stream) = streams.into_values().max_by_key(Vec::len) else { return Vec::new() };
        let nanos = |one: &CapturedPacket| one.record.seen.as_nanos() as i64;
        let is_step = |window: &&[&CapturedPacket]| {
            let ahead = window[1].record.seq.wrapping_sub(window[0].record.seq);
            let back = nanos(window[1]) - nanos(window[0]);
            (1..=8).contains(&ahead) && back <= -LEAST_NS && window[1..].iter().all(|one| nanos(one) < nanos(window[0]))
        };
        let steps = stream.windows(FOLLOWING + 1).filter(is_step);
        let step = |two: &[&CapturedPacket]| {
            (two[0].place, clock::Step { place: two[1].place, nanos: nanos(two[1]) - nanos(two[0]) })
        };
        steps.map(step).collect()
    }

    pub(crate) fn into_records(self) -> Vec<PacketRecord> {
        let of = |elements: &Elements, kind: Kind| elements.iter().find(|e| (e.0, e.1) == kind).map(|e| e.2);
        let stamps: BTreeSet<Kind> = self.send_times.values().copied().collect();
        let kinds: BTreeSet<Kind> =
            self.packets.iter().flat_map(|one| one.elements.iter().map(|(id, len, _)| (*id, *len))).collect();
        // The transport-wide sequence number has 16 bits. In version 2 of the extension, a 16-bit feedback request may
        // follow, so drop it.
        let number = |kind: Kind, value: u32| (if kind.1 == 4 { value >> 16 } else { value }) as u16;
        let counts = kinds.into_iter().filter(|kind| matches!(kind.1, 2 | 4) && !stamps.contains(kind)).find(|&kind| {
            let all = self.packets.iter().filter_map(|one| of(&one.elements, kind));
            does_count(&all.map(|value| number(kind, value)).collect::<Vec<_>>())
        });
        let mut unwrapped = SendTimes::new(self.bits());
        let found = self.packets.iter().map(|one| PacketRecord {
            transport: counts.and_then(|kind| Some(number(kind, of(&one.elements, kind)?))),
            stamp: self.send_time(one).map(|raw| unwrapped.unwrap(raw, one.record.seen)),
            ..one.record
        });
        found.collect()
    }
}

/// Whether at least nine of ten values are slightly larger than the value before.
fn does_count(values: &[u16]) -> bool {
    let next = values.windows(2).filter(|pair| (1..=LONGEST_STEP as u16).contains(&pair[1].wrapping_sub(pair[0])));
    values.len() >= IN_SEQUENCE && next.count() * 10 >= (values.len() - 1) * 9
}
