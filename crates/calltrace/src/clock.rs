//! The quality of a recording's clock: its resolution and its steps.

use steadycast_units::{Span, Time};

/// Coarsest resolution of a clock whose times still show delays.
pub(crate) const COARSEST: Span = Span::millis(5);
/// The minimum size of a step that [`long_steps`] finds, in nanoseconds.
const LEAST_LONG_STEP_NS: i64 = 1_000_000_000;
/// The largest plausible change of a queueing delay between two packets, in nanoseconds.
const QUEUE_CHANGE_NS: i64 = 40_000_000;
/// A smaller step of the delays may also be a burst of other traffic, in nanoseconds.
const LEAST_SURE_STEP_NS: i64 = 20_000_000;
/// Minimum time for which the recording has to continue on each side of a step, in nanoseconds. In [`long_steps`], a
/// shorter time is enough if the delays are level ([`is_level`]).
const LEAST_SIDE_NS: i64 = 2_000_000_000;
/// Minimum length of a gap that counts as an interruption of the recording.
pub(crate) const LEAST_SILENCE: Span = Span::millis(500);
/// Minimum length of such a gap in multiples of the median packet interval. A gap has to reach both limits.
pub(crate) const SILENCE_INTERVALS: u64 = 20;
/// If more than this share of successive times is equal, the clock's resolution is coarser than the packet intervals.
const EQUAL_SHARE: f64 = 0.1;

/// Returns the resolution of times, which is at least a nanosecond. Returns `None` if all times are equal.
///
/// A resolution up to 1 ms is found from the decimals of the times. A coarser resolution is assumed only if several
/// packets have the same time. Otherwise, intervals such as 10 ms may be due to the sender.
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

/// A step of a clock. From the point with the index `place` on, the clock is ahead by `nanos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) place: usize,
    pub(crate) nanos: i64,
}

/// Moves a time by a number of nanoseconds.
pub(crate) fn shift(at: &mut Time, nanos: i64) {
    *at = Time::from_nanos(at.as_nanos().saturating_add_signed(nanos));
}

/// Returns notes on removed steps, whose sizes are in nanoseconds. Small steps share one note.
pub(crate) fn step_notes(steps: &[i64]) -> Vec<String> {
    let seconds = |nanos: i64| nanos as f64 * 1e-9;
    let (small, sure): (Vec<i64>, Vec<i64>) = steps.iter().partition(|nanos| nanos.abs() < LEAST_SURE_STEP_NS);
    let mut notes: Vec<String> = sure
        .into_iter()
        .map(|nanos| {
            format!(
                "the record's clock was set by {:+.3} s during the call, or the route changed by as much: this is \
                 taken out",
                seconds(nanos)
            )
        })
        .collect();
    let sizes = small.iter().map(|nanos| nanos.abs());
    if let Some((least, most)) = sizes.clone().min().zip(sizes.max()) {
        let what = match small.len() {
            1 => format!("a step of {:.3} s in the delays is", seconds(most)),
            count => format!("{count} steps of {:.3} to {:.3} s in the delays are", seconds(least), seconds(most)),
        };
        notes.push(format!(
            "{what} taken out: a clock was set, the route changed, or other traffic came into the queue or left it"
        ));
    }
    notes
}

/// Finds the steps by which a recording's clock was set, if they are at least a second. `delay_steps` finds smaller
/// steps.
///
/// Each of `points` is a recorded time and the delay relative to another clock, in nanoseconds. The points are in the
/// order of the records.
///
/// A step changes the delays of all later packets. In contrast, a queue changes delays only until it drains, and a late
/// packet changes only its own delay.
pub(crate) fn long_steps(points: &[(i64, i64)]) -> Vec<Step> {
    let jumps: Vec<usize> = (1..points.len())
        .filter(|&k| {
            let (before, after) = (points[k - 1], points[k]);
            // Skip two records that are out of order, because they are no jump.
            let advances = after.0 - after.1 >= before.0 - before.1;
            advances && (after.1 - before.1).abs() >= LEAST_LONG_STEP_NS
        })
        .collect();
    let mut found: Vec<Step> = Vec::new();
    let mut begin = 0;
    for (i, &k) in jumps.iter().enumerate() {
        let jump = points[k].1 - points[k - 1].1;
        let (before, after) = (&points[begin..k], &points[k..]);
        // `after` ends at the first jump that is at least `LEAST_SIDE_NS` after this jump. Skip jumps before that,
        // because late packets cause them.
        let end = jumps[i + 1..].iter().copied().find(|&next| lasts(&points[k..next])).unwrap_or(points.len());
        let after = &after[..end - k];
        if !(lasts(before) || is_level(before, jump)) || !(lasts(after) || is_level(after, jump)) {
            continue;
        }
        // The minimum delay has to change by nearly the jump. Differences are allowed because of the queues before and
        // after the jump.
        let moved = least(after).zip(least(before)).map(|(after, before)| after - before);
        let Some(moved) = moved.filter(|moved| (moved - jump).abs() <= jump.abs() / 4) else {
            continue;
        };
        // Prefer `moved`, because `jump` also includes how much the queue changed between the two packets. `moved` does
        // not include it, if the queue was empty at some time before the jump and at some time after it.
        let nanos = if (moved - jump).abs() <= QUEUE_CHANGE_NS { moved } else { jump };
        found.push(Step { place: k, nanos });
        begin = k;
    }
    found
}

/// Whether the delays on one side of a jump vary by at most a quarter of the jump. If a stall caused the jump, a queue
/// drains after it and the delays vary more.
fn is_level(part: &[(i64, i64)], jump: i64) -> bool {
    const LEAST_NS: i64 = 300_000_000;
    const LEAST_PACKETS: usize = 10;
    let delays = part.iter().map(|point| point.1);
    let range = delays.clone().max().zip(delays.min()).map_or(0, |(most, least)| most - least);
    let passed = part.last().zip(part.first()).map_or(0, |(last, first)| last.0 - first.0);
    part.len() >= LEAST_PACKETS && range <= jump.abs() / 4 && passed >= LEAST_NS
}

/// Returns the error with which a step was removed. It compares the minimum delays in the ten seconds before and after
/// the step. Returns `None` if the recording is too short there, or if the error is implausibly large.
pub(crate) fn rest_of_step(points: &[(i64, i64)], place: usize) -> Option<i64> {
    const SIDE_NS: i64 = 10_000_000_000;
    let at = points.get(place)?.0;
    let index = |at: i64| points.partition_point(|point| point.0 < at);
    // Leave out packets near the step, because they may be on the wrong side of it.
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

/// Returns how much the delays vary within five seconds, in nanoseconds. This is the largest difference between the 5th
/// and the 95th percentile in any window of five seconds. Returns `None` if no window has enough packets.
///
/// A window may contain a step of a clock, which does not count as a variation. The largest change between two packets
/// may be this step. So the smaller value counts: the difference in the window, or in the parts before and after this
/// change.
pub(crate) fn spread(points: &[(i64, i64)]) -> Option<i64> {
    widest(points, |window| {
        let step = (1..window.len()).max_by_key(|&k| (window[k].1 - window[k - 1].1).abs()).unwrap_or_default();
        let (before, after) = window.split_at(step);
        width(window).min(width(before).max(width(after)))
    })
}

/// Returns how much the delays vary within five seconds, as [`spread`] does, but a step counts as a variation.
pub(crate) fn spread_with_steps(points: &[(i64, i64)]) -> Option<i64> {
    widest(points, width)
}

/// Returns the largest result of `width` for windows of five seconds. Returns `None` if no window has enough packets.
fn widest(points: &[(i64, i64)], width: impl Fn(&[(i64, i64)]) -> i64) -> Option<i64> {
    const WINDOW_NS: i64 = 5_000_000_000;
    const LEAST_PACKETS: usize = 20;
    let mut sorted = points.to_vec();
    sorted.sort_by_key(|point| point.0);
    let begin = sorted.first().map_or(0, |point| point.0);
    let windows = sorted.chunk_by(|a, b| (a.0 - begin) / WINDOW_NS == (b.0 - begin) / WINDOW_NS);
    windows.filter(|window| window.len() >= LEAST_PACKETS).map(width).max()
}

/// Returns the difference between the 5th and the 95th percentile of the delays, which ignore single late packets.
fn width(points: &[(i64, i64)]) -> i64 {
    let mut delays: Vec<i64> = points.iter().map(|point| point.1).collect();
    delays.sort_unstable();
    let at = |percent: usize| delays.get(delays.len() * percent / 100).copied().unwrap_or_default();
    at(95) - at(5)
}

/// Returns the periods in which nothing was recorded: beginning and end. Each is at least as long as `least`, and as
/// `intervals` median intervals.
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
    fn a_note_says_that_a_clock_was_set_only_if_no_burst_is_as_long() {
        for ms in 1..2_000 {
            for nanos in [ms * 1_000_000, -ms * 1_000_000] {
                let note = step_notes(&[nanos]).concat();
                assert_eq!(note.contains("clock was set by"), ms >= 20, "{note}");
                assert_eq!(note.contains("other traffic"), ms < 20, "{note}");
            }
        }
    }

    #[test]
    fn small_steps_share_one_note_with_their_number_and_range() {
        for (small, sure) in (0..6).flat_map(|small| (0..3).map(move |sure| (small, sure))) {
            let steps: Vec<i64> = (0..small)
                .map(|k: i64| (k + 3) * if k % 2 == 0 { 1_000_000 } else { -1_000_000 })
                .chain((0..sure).map(|k| 50_000_000 * (k + 1)))
                .collect();
            let notes = step_notes(&steps);
            assert_eq!(notes.len() as i64, sure + small.min(1), "{notes:?}");
            let range = format!("{small} steps of 0.003 to 0.{:03} s", small + 2);
            assert_eq!(notes.concat().contains(&range), small > 1, "{notes:?}");
        }
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
                // The last of 20 packets is sent 19 intervals after the first packet. The packets fit into five seconds
                // if an interval is at most 263 ms.
                let known = packets >= 20 && 19 * every_ms < 5_000;
                assert_eq!(spread(&points).is_some(), known, "{packets} packets, one each {every_ms} ms");
            }
        }
    }

    #[test]
    fn a_step_is_no_spread_and_a_queue_is_one_beside_it() {
        // Send one packet every 10 ms for 20 s.
        let record = |delay: &dyn Fn(i64) -> i64| -> Vec<(i64, i64)> {
            (0..2000).map(|k| (k * 10_000_000, delay(k) * 1_000_000)).collect()
        };
        for by in [-900, -30, 2, 30, 200] {
            for at in [100, 250, 499, 500, 600, 730, 800, 1_234] {
                let step = |k: i64| if k >= at { by } else { 0 };
                assert_eq!(spread(&record(&step)), Some(0), "{by} ms at {at}");
                // At 500, the step is between two windows, and no window contains it. At 499, it is the last packet of
                // a window, which is too few for a percentile.
                let is_within = !matches!(at, 499 | 500);
                let with_steps = spread_with_steps(&record(&step));
                assert_eq!(with_steps == Some(i64::abs(by) * 1_000_000), is_within, "{by} ms at {at}: {with_steps:?}");
                let burst = |k: i64| if (700..760).contains(&k) { 60 - (k - 700) } else { 0 };
                let queue = spread(&record(&|k| step(k) + burst(k)));
                assert!(queue >= Some(20_000_000), "{by} ms at {at}: {queue:?}");
            }
        }
    }

    #[test]
    fn a_set_clock_is_found_and_a_queue_a_stall_and_a_late_packet_are_none() {
        // Send one packet every 10 ms for 20 s. Every 4 s, the delay grows to 150 ms and falls again.
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
