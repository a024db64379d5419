//! Extends the 16-bit sequence numbers of one RTP stream, so that they continue after a wrap and after a restart of the
//! sender.
//!
//! RFC 3550, appendix A.1, distinguishes late packets from a restart by the size of the step. A whole recording shows
//! more. A late packet fills a gap or repeats a packet, but a restart does neither.

use std::collections::BTreeMap;
use steadycast_units::{Span, Time};

/// Maximum number of successive missing numbers that count as a gap (`MAX_DROPOUT` of RFC 3550, appendix A.1).
pub(crate) const LONGEST_GAP: i64 = 3000;
/// The number of a late packet may be lower than the stream's first number by at most this difference (`MAX_MISORDER`
/// of RFC 3550, appendix A.1).
const LONGEST_LATENESS: i64 = 100;
/// Number of packets after a possible restart that are examined. One of them has to continue the new numbers.
const CONFIRMING_PACKETS: usize = 5;
/// A later packet confirms a restart if its number exceeds the first number after the restart by at most this
/// difference.
const CONFIRMING_STEP: u16 = 10;
/// Minimum length of a gap that may be a restart.
const SHORTEST_JUMP: i64 = 100;
/// A gap may be a restart if its missing packets would need more than this multiple of the mean packet rate. A key
/// frame needs less than that, because it is only about 20 times as large as the mean frame.
const JUMP_RATE: f64 = 40.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    /// When the packet left. If this is unknown, it is when the packet was recorded.
    pub(crate) at: Time,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of restarts before this packet.
    pub(crate) run: u32,
    /// Extended sequence number. Numbers after a restart are larger than all numbers before it.
    pub(crate) number: i64,
}

/// Extends the sequence numbers of one stream. `packets` are in the order of their times.
pub(crate) fn extend(packets: &[Numbered]) -> Vec<Position> {
    let Some((first, last)) = packets.first().zip(packets.last()) else { return Vec::new() };
    let mean_interval = last.at.since(first.at).as_secs_f64() / packets.len() as f64;
    let mut last_with = vec![None; 1 << 16];
    let (mut run, mut begin, mut highest, mut highest_at) = (0, i64::from(first.seq), i64::from(first.seq), first.at);
    let mut positions = Vec::with_capacity(packets.len());
    for (i, packet) in packets.iter().enumerate() {
        let step = i64::from(packet.seq.wrapping_sub(highest as u16) as i16);
        let mut number = highest + step;
        let known: Option<(i64, u32)> = last_with[usize::from(packet.seq)];
        let is_expected = if step > 0 {
            step <= LONGEST_GAP && !is_jump(step, packet.at.since(highest_at), mean_interval)
        } else {
            match known.filter(|known| known.0 == number) {
                Some((_, timestamp)) => timestamp == packet.timestamp,
                None => number + LONGEST_LATENESS >= begin,
            }
        };
        let is_restart = i > 0 && !is_expected && is_confirmed(packet, &packets[i + 1..]);
        if is_restart {
            run += 1;
            // Skip a cycle of 65536 numbers. Then the numbers of different runs do not overlap, even if late packets
            // follow.
            number = ((highest >> 16) + 2) << 16 | i64::from(packet.seq);
            begin = number;
        }
        if number > highest && (is_expected || is_restart) {
            (highest, highest_at) = (number, packet.at);
        }
        last_with[usize::from(packet.seq)] = Some((number, packet.timestamp));
        positions.push(Position { run, number });
    }
    positions
}

/// Returns for each packet how often its stream restarted before it. `packets` has the SSRC of each packet, and is in
/// the order of the file.
///
/// Restarts are searched both in the order of the file and in the order of times. The file's order is right if a clock
/// was set, and the order of times is right if records are out of order. The order with fewer restarts is used.
pub(crate) fn restarts(packets: &[(u32, Numbered)]) -> Vec<u32> {
    let mut streams: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, (ssrc, _)) in packets.iter().enumerate() {
        streams.entry(*ssrc).or_default().push(i);
    }
    let mut runs = vec![0; packets.len()];
    for in_file in streams.into_values() {
        let mut by_time = in_file.clone();
        by_time.sort_by_key(|i| packets[*i].1.at);
        let in_order = |order: Vec<usize>| -> Vec<(usize, u32)> {
            let positions = extend(&order.iter().map(|i| packets[*i].1).collect::<Vec<_>>());
            order.into_iter().zip(positions.into_iter().map(|position| position.run)).collect()
        };
        let last = |runs: &[(usize, u32)]| runs.last().map_or(0, |run| run.1);
        let (one, other) = (in_order(in_file), in_order(by_time));
        for (i, run) in if last(&one) <= last(&other) { one } else { other } {
            runs[i] = run;
        }
    }
    runs
}

/// Whether more packets are missing than the sender can have sent in the time `passed`.
fn is_jump(step: i64, passed: Span, mean_interval: f64) -> bool {
    step >= SHORTEST_JUMP && step as f64 * mean_interval > JUMP_RATE * passed.as_secs_f64()
}

fn is_confirmed(packet: &Numbered, after: &[Numbered]) -> bool {
    let follows = |other: &Numbered| (1..=CONFIRMING_STEP).contains(&other.seq.wrapping_sub(packet.seq));
    after.iter().take(CONFIRMING_PACKETS).any(follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(numbers: impl Iterator<Item = (u64, u16)>) -> Vec<Numbered> {
        numbers
            .map(|(k, seq)| Numbered { at: Time::from_nanos(k * 5_000_000), seq, timestamp: k as u32 * 450 })
            .collect()
    }

    proptest! {
        #[test]
        fn losses_late_packets_and_copies_are_no_restart(
            begin: u16,
            lost in prop::collection::vec(0..2000_u64, 0..300),
            late in prop::collection::vec((0..1900_usize, 1..60_usize), 0..20),
        ) {
            let sent = (0..2000).filter(|k| !lost.contains(k));
            let mut packets = stream(sent.map(|k| (k, begin.wrapping_add(k as u16))));
            for (from, by) in late {
                let from = from.min(packets.len() - 61);
                let packet = packets.remove(from);
                packets.insert(from + by, packet);
                packets.insert(from + by, packet);
            }
            let first = packets[0].timestamp / 450;
            for (packet, position) in packets.iter().zip(extend(&packets)) {
                prop_assert_eq!(position.run, 0);
                let ahead = i64::from(packet.timestamp / 450) - i64::from(first);
                prop_assert_eq!(position.number, i64::from(packets[0].seq) + ahead);
            }
        }

        #[test]
        fn a_restart_begins_a_new_run_wherever_the_numbers_go_on(
            begin: u16,
            jump in prop_oneof![101..30_000_i32, -30_000..0_i32],
            at in 20..900_u64,
        ) {
            let seq = |k: u64| begin.wrapping_add(k as u16).wrapping_add(if k >= at { jump as u16 } else { 0 });
            let packets = stream((0..1000).map(|k| (k, seq(k))));
            let found = extend(&packets);
            // Exclude numbers that step back to just before the stream's first number. No number is repeated there, so
            // the packets look like late packets.
            prop_assume!(jump > 0 || -jump < at as i32 || -jump > at as i32 + 100);
            for (k, position) in found.iter().enumerate() {
                prop_assert_eq!(position.run, u32::from(k as u64 >= at), "packet {}", k);
            }
            prop_assert!(found.windows(2).all(|two| two[0].number < two[1].number));
        }
    }
}
