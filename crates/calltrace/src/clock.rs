//! The quality of a recording's clock: its resolution and its steps.

use steadycast_units::{Span, Time};

/// The coarsest resolution with which times still show delays.
pub(crate) const COARSEST: Span = Span::millis(5);
/// The minimum size of a step that [`long_steps`] finds, in nanoseconds.
const LEAST_LONG_STEP_NS: i64 = 1_000_000_000;
/// The largest plausible change of a queueing delay between two packets, in nanoseconds.
const QUEUE_CHANGE_NS: i64 = 40_000_000;
/// The recording continues for at least this long on either side of a step.
const LEAST_SIDE_NS: i64 = 2_000_000_000;
/// The least length of a gap in which the recording may have been interrupted.
pub(crate) const LEAST_SILENCE: Span = Span::millis(500);
/// The least length of this gap in median packet intervals. A gap has to reach both limits.
pub(crate) const SILENCE_INTERVALS: u64 = 20;
/// If more than this share of successive times is equal, the clock is coarser than the intervals between packets.
const EQUAL_SHARE: f64 = 0.1;

/// Returns the resolution of times, at least a nanosecond; `None` if all are equal.
///
/// A resolution up to 1 ms is found from the decimals of the times. A coarser resolution is found only if packets share
/// a time, because intervals of 10 ms may also be the sender's.
pub(crate) fn resolution(times: &[Time]) -> Option<Span> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let gaps: Vec<u64> = sorted.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos()).collect();
    let shortest = gaps.iter().copied().filter(|gap| *gap > 0).min()?;
    let equal = gaps.iter().filter(|gap| **gap == 0).count() as f64;
    if shortest > 1_000_000 && equal > EQUAL_SHARE * gaps.len() as f64 {
        return Some(Span::nanos(shortest));
    }
    let decimal = (0..=6).rev().map(|power| 10_u64.pow(power)).find(|step| gaps.iter().all(|gap| gap % step == 0));
    Some(Span::nanos(decimal.unwrap_or(1)))
}

/// A step of a clock, which is ahead by `nanos` from `place` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) place: usize,
    pub(crate) nanos: i64,
}

pub(crate) fn set_note(nanos: i64) -> String {
    let by = nanos as f64 * 1e-9;
    format!(
        "the record's clock was set by {by:+.3} s during the call, or the route changed by as much: this is taken out"
    )
}

/// Finds where a recording's clock was set by at least a second; `delay_steps` finds shorter steps.
///
/// `points` are the recording's times and delays (against another clock) in nanoseconds, in the order of the records.
///
/// A step changes the delays of all later packets. A queue changes delays only until it drains, and a late packet
/// changes only its own delay.
pub(crate) fn long_steps(points: &[(i64, i64)]) -> Vec<Step> {
    let jumps: Vec<usize> = (1..points.len())
        .filter(|&k| {
            let (before, after) = (points[k - 1], points[k]);
            // Two records that are out of order are no jump.
            let advances = after.0 - after.1 >= before.0 - before.1;
            advances && (after.1 - before.1).abs() >= LEAST_LONG_STEP_NS
        })
        .collect();
    let mut found: Vec<Step> = Vec::new();
    let mut begin = 0;
    for (i, &k) in jumps.iter().enumerate() {
        let jump = points[k].1 - points[k - 1].1;
        let (before, after) = (&points[begin..k], &points[k..]);
        // `after` ends at the next jump that is at least `LEAST_SIDE_NS` later. Earlier jumps are late packets.
        let end = jumps[i + 1..].iter().copied().find(|&next| lasts(&points[k..next])).unwrap_or(points.len());
        let after = &after[..end - k];
        if !(lasts(before) || is_level(before, jump)) || !(lasts(after) || is_level(after, jump)) {
            continue;
        }
        // The least delays have to change by nearly the jump. Queues before and after the jump may differ.
        let moved = least(after).zip(least(before)).map(|(after, before)| after - before);
        let Some(moved) = moved.filter(|moved| (moved - jump).abs() <= jump.abs() / 4) else {
            continue;
        };
        // `jump` includes a change of the queue. `moved` does not, if the queue was empty at times before and after.
        let nanos = if (moved - jump).abs() <= QUEUE_CHANGE_NS { moved } else { jump };
        found.push(Step { place: k, nanos });
        begin = k;
    }
    found
}

/// Whether the delays before or after a jump vary by at most a quarter of the jump. After a stall, the delays of a
/// draining queue vary more.
fn is_level(part: &[(i64, i64)], jump: i64) -> bool {
    const LEAST_NS: i64 = 300_000_000;
    const LEAST_PACKETS: usize = 10;
    let delays = part.iter().map(|point| point.1);
    let range = delays.clone().max().zip(delays.min()).map_or(0, |(most, least)| most - least);
    let passed = part.last().zip(part.first()).map_or(0, |(last, first)| last.0 - first.0);
    part.len() >= LEAST_PACKETS && range <= jump.abs() / 4 && passed >= LEAST_NS
}

/// Returns the error in the size of a step, from the least delays in the ten seconds before and after.
pub(crate) fn rest_of_step(points: &[(i64, i64)], place: usize) -> Option<i64> {
    const SIDE_NS: i64 = 10_000_000_000;
    let at = points.get(place)?.0;
    let index = |at: i64| points.partition_point(|point| point.0 < at);
    // Packets near the step may be on the wrong side of it.
    let before = points.get(index(at - SIDE_NS)..index(at - 2 * QUEUE_CHANGE_NS))?;
    let after = points.get(index(at + 2 * QUEUE_CHANGE_NS)..index(at + SIDE_NS))?;
    let rest = least(after)? - least(before)?;
    (lasts(before) && lasts(after) && rest.abs() <= QUEUE_CHANGE_NS).then_some(rest)
}

fn least(part: &[(i64, i64)]) -> Option<i64> {
    part.iter().map(|point| point.1).min()
}

fn lasts(part: &[(i64, i64)]) -> bool {
    part.first().zip(part.last()).is_some_and(|(first, last)| last.0 - first.0 >= LEAST_SIDE_NS)
}

/// Returns the largest difference of the 5th and 95th percentile of the delays within five seconds, in nanoseconds;
/// `None` if no five seconds have enough packets.
pub(crate) fn spread(points: &[(i64, i64)]) -> Option<i64> {
    const WINDOW_NS: i64 = 5_000_000_000;
    const LEAST_PACKETS: usize = 20;
    let mut sorted = points.to_vec();
    sorted.sort_by_key(|point| point.0);
    let begin = sorted.first().map_or(0, |point| point.0);
    let windows = sorted.chunk_by(|a, b| (a.0 - begin) / WINDOW_NS == (b.0 - begin) / WINDOW_NS);
    let widths = windows.filter(|window| window.len() >= LEAST_PACKETS).map(|window| {
        let mut delays: Vec<i64> = window.iter().map(|point| point.1).collect();
        delays.sort_unstable();
        // These percentiles leave out single late packets.
        delays[delays.len() * 95 / 100] - delays[delays.len() * 5 / 100]
    });
    widths.max()
}

/// Returns the spans in which nothing was recorded for at least `least`, and for at least `intervals` median intervals.
pub(crate) fn silences(times: &[Time], least: Span, intervals: u64) -> Vec<(Time, Time)> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let mut gaps: Vec<Span> = sorted.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    gaps.sort_unstable();
    let usual = gaps.get(gaps.len() / 2).map_or(0, |gap| gap.as_nanos());
    let silence = least.max(Span::nanos(usual.saturating_mul(intervals)));
    sorted.windows(2).filter(|pair| pair[1].since(pair[0]) >= silence).map(|pair| (pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_is_told_from_packets_that_leave_by_a_clock() {
        let times = |step: u64, tick: u64| -> Vec<Time> {
            (0..400).map(|k| Time::from_nanos(k * step / tick * tick)).collect()
        };
        assert_eq!(resolution(&times(3_141_592, 15_625_000)), Some(Span::nanos(15_625_000)));
        assert_eq!(resolution(&times(3_141_592, 1_000_000)), Some(Span::millis(1)));
        assert_eq!(resolution(&times(10_000_000, 1000)), Some(Span::millis(1)), "each 10 ms, and by no coarse clock");
        assert_eq!(resolution(&times(3_141_592, 1)), Some(Span::nanos(1)));
        assert_eq!(resolution(&[Time::ZERO; 9]), None);
    }

    #[test]
    fn the_spread_of_delays_is_unknown_where_packets_are_few() {
        let mut chance = 1_u64;
        for every_ms in [0, 10, 100, 263, 264, 1_000] {
            for packets in [0, 1, 19, 20, 200] {
                let points: Vec<(i64, i64)> = (0..packets)
                    .map(|k| {
                        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (k * every_ms * 1_000_000, (chance >> 40) as i64)
                    })
                    .collect();
                // The last of 20 packets is sent 19 intervals after the first. These fit into five seconds if an
                // interval is at most 263 ms.
                let known = packets >= 20 && 19 * every_ms < 5_000;
                assert_eq!(spread(&points).is_some(), known, "{packets} packets, one each {every_ms} ms");
            }
        }
    }

    #[test]
    fn a_set_clock_is_found_and_a_queue_a_stall_and_a_late_packet_are_none() {
        // A packet each 10 ms for 20 s. The delay grows to 150 ms and drains again, every 4 s.
        let queue = |k: i64| (k % 400 - 200).abs().min(150) * 1_000_000;
        let record = |set: &dyn Fn(i64) -> i64| -> Vec<(i64, i64)> {
            let delay = |k: i64| queue(k) + set(k);
            (0..2000).map(|k| (k * 10_000_000 + delay(k), delay(k))).collect()
        };
        for by in [-2_000_000_000, 1_500_000_000, 3_600_000_000_000_i64] {
            let found = long_steps(&record(&|k| if k >= 900 { by } else { 0 }));
            assert_eq!(found.len(), 1, "{by}: {found:?}");
            assert_eq!(found[0].place, 900);
            assert!((found[0].nanos - by).abs() <= 1_000_000, "{found:?}");
        }
        let stall = |k: i64| if (900..940).contains(&k) { (940 - k) * 10_000_000 } else { 0 };
        assert_eq!(long_steps(&record(&stall)), Vec::new());
        assert_eq!(long_steps(&record(&|k| if k % 500 == 0 { 300_000_000 } else { 0 })), Vec::new());
        assert_eq!(long_steps(&record(&|_| 0)), Vec::new());
        let mut late = record(&|_| 0);
        late.chunks_mut(40).for_each(<[_]>::reverse);
        assert_eq!(long_steps(&late), Vec::new(), "records out of order");
    }
}
