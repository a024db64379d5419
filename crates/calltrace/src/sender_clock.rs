//! Groups streams by sender. Each sender has its own clock and path. A server may forward several senders between one
//! pair of addresses, and a sender may keep its SSRC when it restarts.

use crate::numbering::{self, Numbered};
use crate::send_time;
use std::collections::BTreeMap;
use steadycast_units::Time;

/// A packet counts as overtaken if its send time is earlier than the send time of the packet before it by more than
/// this, in nanoseconds. Smaller differences may occur if several threads of one sender write send times.
const OVERTAKEN_NS: i64 = 5_000_000;
/// Maximum share of overtaken packets in pairs of neighbouring packets from two streams of one sender. Twice the share
/// in pairs from a single stream is added to it.
const OVERTAKEN_SHARE: f64 = 0.1;
/// Minimum number of pairs of packets from two streams for which the share of overtaken packets is used. With fewer
/// pairs, the delays of the two packets that are nearest in time are compared instead.
const LEAST_PAIRS: usize = 10;
/// If one stream follows another, both are from one sender if their delays differ by at most this, in nanoseconds. The
/// limit allows for a queue.
const SEQUEL_DIFFERENCE_NS: i64 = 500_000_000;
/// Number of later packets that have to confirm that a sender's clock was set back.
const CONFIRMING_PACKETS: usize = 4;
/// Maximum difference between the sequence numbers of a confirming packet and the last packet before the clock was set
/// back.
const LONGEST_STEP: u16 = 16;
/// Maximum number of packets per stream that are compared.
const MOST_COMPARED: usize = 20_000;

/// The SSRC, and how often the sender has restarted or set its clock back since the recording began.
pub(crate) type Stream = (u32, u32);

/// Returns the stream of each packet. `packets` has the SSRC, sequence number and undecoded send time of each packet,
/// in the order of the file. `bits` is the number of bits in a send time.
pub(crate) fn streams(packets: &[(u32, Numbered, Option<u32>)], bits: u32) -> Vec<Stream> {
    let numbered: Vec<(u32, Numbered)> = packets.iter().map(|(ssrc, numbered, _)| (*ssrc, *numbered)).collect();
    let mut streams: Vec<Stream> = packets.iter().map(|one| one.0).zip(numbering::restarts(&numbered)).collect();
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, (ssrc, ..)) in packets.iter().enumerate() {
        places.entry(*ssrc).or_default().push(i);
    }
    for places in places.into_values() {
        let stamped: Vec<(usize, Numbered, u32)> =
            places.iter().filter_map(|i| Some((*i, packets[*i].1, packets[*i].2?))).collect();
        let set_back: Vec<usize> = stamped
            .windows(CONFIRMING_PACKETS + 1)
            .filter(|window| is_set_back(window, bits))
            .map(|window| window[1].0)
            .collect();
        for i in places {
            streams[i].1 += set_back.partition_point(|from| *from <= i) as u32;
        }
    }
    streams
}

/// Whether the sender's clock was set back after the first packet of `window`. If so, the sequence numbers of all later
/// packets continue, but their send times are earlier.
///
/// Send times that wrapped during a long pause also look earlier, but then the delay hardly grows. After the clock was
/// set back, the delay grows by more than the time that passed between the two arrivals.
fn is_set_back(window: &[(usize, Numbered, u32)], bits: u32) -> bool {
    let [(_, first, raw), others @ ..] = window else { return false };
    let is_later = |(_, other, other_raw): &(usize, Numbered, u32)| {
        let passed = other.at.as_nanos() as i64 - first.at.as_nanos() as i64;
        let advance = send_time::advance(*raw, *other_raw, bits);
        let growth = send_time::to_nearest_wrap(passed - advance, bits);
        (1..=LONGEST_STEP).contains(&other.seq.wrapping_sub(first.seq))
            && advance < -SEQUEL_DIFFERENCE_NS
            && growth - passed.max(0) > SEQUEL_DIFFERENCE_NS
    };
    others.iter().all(is_later)
}

/// A packet with a send time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    /// Position of the packet's record in the file.
    pub(crate) place: usize,
    pub(crate) seen: Time,
    pub(crate) stream: Stream,
    /// The undecoded send time.
    pub(crate) raw: u32,
    pub(crate) size: u64,
}

/// Returns the senders as groups of streams. The sender with the most bytes is first.
pub(crate) fn senders(packets: Vec<Stamped>, bits: u32) -> Vec<Vec<Stream>> {
    let mut streams: BTreeMap<Stream, (u64, Vec<Stamped>)> = BTreeMap::new();
    for packet in packets {
        let stream = streams.entry(packet.stream).or_default();
        stream.0 += packet.size;
        stream.1.push(packet);
    }
    let mut streams: Vec<(u64, Vec<Stamped>)> = streams.into_values().collect();
    streams.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (_, stream) in &mut streams {
        // Sort by position in the file, because this order is right even if a clock was set.
        stream.sort_by_key(|packet| packet.place);
        let every = stream.len().div_ceil(MOST_COMPARED);
        *stream = stream.iter().step_by(every).copied().collect();
    }
    let mut groups: Vec<(u64, Vec<usize>)> = Vec::new();
    for (i, (bytes, stream)) in streams.iter().enumerate() {
        let is_of =
            |group: &&mut (u64, Vec<usize>)| group.1.iter().any(|&j| is_one_sender(&streams[j].1, stream, bits));
        match groups.iter_mut().find(is_of) {
            Some(group) => {
                group.0 += bytes;
                group.1.push(i);
            }
            None => groups.push((*bytes, vec![i])),
        }
    }
    groups.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    groups.into_iter().map(|(_, members)| members.into_iter().map(|i| streams[i].1[0].stream).collect()).collect()
}

/// Whether the packets of two streams arrived in the order of departure, as if they were sent by one sender. This is
/// checked in the order of the file and in the order of times. The file's order is right if a clock was set, and the
/// order of times is right if records are out of order.
fn is_one_sender(one: &[Stamped], other: &[Stamped], bits: u32) -> bool {
    let mut both: Vec<&Stamped> = one.iter().chain(other).collect();
    both.sort_by_key(|packet| packet.place);
    let in_file = is_one_sender_in_order(&both, bits);
    both.sort_by_key(|packet| packet.seen);
    in_file || is_one_sender_in_order(&both, bits)
}

fn is_one_sender_in_order(packets: &[&Stamped], bits: u32) -> bool {
    let (mut pairs, mut overtaken) = ([0_usize; 2], [0_usize; 2]);
    let mut nearest: Option<(i64, i64)> = None;
    for two in packets.windows(2) {
        let [before, after] = two else { continue };
        let advance = send_time::advance(before.raw, after.raw, bits);
        let crosses = before.stream != after.stream;
        pairs[usize::from(crosses)] += 1;
        overtaken[usize::from(crosses)] += usize::from(advance < -OVERTAKEN_NS);
        let passed = after.seen.as_nanos() as i64 - before.seen.as_nanos() as i64;
        // If the streams do not overlap in time, compare the two packets that are nearest in time.
        if crosses && nearest.is_none_or(|least| passed.abs() < least.0) {
            nearest = Some((passed.abs(), send_time::to_nearest_wrap(passed - advance, bits)));
        }
    }
    let share = |kind: usize| overtaken[kind] as f64 / pairs[kind].max(1) as f64;
    if pairs[1] < LEAST_PAIRS {
        return nearest.is_none_or(|(_, difference)| difference.abs() <= SEQUEL_DIFFERENCE_NS);
    }
    share(1) <= OVERTAKEN_SHARE + 2.0 * share(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Creates the packets of a stream. The queue on the path delays a packet by `queue(t)` seconds. The sender's clock
    /// is ahead by `clock` seconds.
    fn stream(ssrc: u32, every_ms: u64, begin_s: f64, clock: f64, queue: impl Fn(f64) -> f64) -> Vec<Stamped> {
        let packets = (0..20_000 / every_ms).map(|k| {
            let left = begin_s + (k * every_ms) as f64 / 1000.0;
            let seen = Time::from_nanos(((left + 0.02 + queue(left)) * 1e9) as u64);
            let raw = (((left + clock) * 262_144.0) as u64 & 0xff_ffff) as u32;
            Stamped { place: seen.as_nanos() as usize, seen, stream: (ssrc, 0), raw, size: 1000 / every_ms }
        });
        packets.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn streams_of_one_sender_are_together_and_those_of_others_apart(
            clock in 0.1..63.9_f64,
            period in 1.0..9.0_f64,
            steepness in 0.0..0.9_f64,
            later in prop_oneof![Just(0.0), Just(25.0), Just(90.0)],
        ) {
            // Let the queue drain by `steepness` seconds per second. This is below 1, because a queue drains no faster
            // than time passes.
            let queue = |t: f64| ((t / period).fract() - 0.5).abs() * period * steepness;
            let mut packets = stream(1, 5, 0.0, 7.0, queue);
            packets.extend(stream(2, 20, 0.0071, 7.0, queue));
            packets.extend(stream(3, 7, later, 7.0 + clock, |_| 0.0));
            // If one stream follows another, their delays may differ by the whole queue.
            let most = 0.6 + period * steepness / 2.0;
            prop_assume!(later == 0.0 || (most..64.0 - most).contains(&clock));
            let found = senders(packets, 24);
            prop_assert_eq!(found, vec![vec![(1, 0), (2, 0)], vec![(3, 0)]]);
        }
    }

    #[test]
    fn one_clock_on_two_paths_is_two_senders() {
        let mut packets = stream(1, 5, 0.0, 7.0, |t| ((t / 5.0).fract() - 0.5).abs() * 0.6);
        packets.extend(stream(2, 7, 0.0, 7.0, |_| 0.001));
        assert_eq!(senders(packets, 24), vec![vec![(1, 0)], vec![(2, 0)]]);
    }
}
