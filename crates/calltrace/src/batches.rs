//! Batches of records. Packets of a batch were sent one after the other, but were recorded at nearly the same time.
//! Such times do not show delays.
//!
//! Batches occur in both directions of a call if the capture's clock is coarse, or if the host reads packets from its
//! interface at intervals. Batches occur in one direction only if a link sends at intervals, as Wi-Fi and mobile
//! networks do.

use crate::clock;
use steadycast_units::{Span, Time};

/// The maximum time between successive records of one batch, in nanoseconds.
const TOGETHER_NS: i64 = 500_000;
/// The maximum time between successive records of one batch if the departures are known, in nanoseconds.
const HELD_TOGETHER_NS: i64 = 100_000;
/// The minimum time for which a batch holds packets, in nanoseconds.
const LEAST_HELD_NS: i64 = 2_000_000;
/// If at least this share of the packets is in batches, the recording is batched.
const BATCHED_SHARE: f64 = 0.3;
/// The minimum share of packets in batches. With a smaller share, [`find`] returns `None`.
const COARSE_SHARE: f64 = 0.1;
/// Percentile of the intervals between batches. It is taken as the interval of the capture's clock.
const SHORTER_PERCENT: usize = 5;
/// Minimum score at which the capture's clock is the cause of the batches. [`cause`] measures which share of the other
/// direction's records falls into batches. The score is 0 if this share is as large as by chance, and 1 if it is as
/// large as with a coarse clock.
const OF_CLOCK: f64 = 0.6;
/// Maximum score at which a link is the cause of the batches.
const OF_LINK: f64 = 0.3;
/// Minimum difference between `by_clock` and `by_chance` in [`cause`]. With a smaller difference, the cause is unknown.
const LEAST_DIFFERENCE: f64 = 0.3;
/// Minimum number of records of the other direction that [`cause`] needs. With fewer records, the cause is unknown.
const LEAST_OTHERS: usize = 10;

/// What causes batches: the clock of the capture, or a link that sends at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Clock,
    Link,
    Unknown,
}

/// How a capture collects packets into batches. All packets of a batch have nearly the same recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batches {
    /// Time over which packets are collected into a batch.
    pub(crate) interval: Span,
    pub(crate) cause: Cause,
}

/// Finds batches of packets whose departures are known. Returns `None` if fewer than [`COARSE_SHARE`] of the packets
/// are in batches.
///
/// Each of `points` is the recorded time and the departure of a packet, in nanoseconds. `others` are the recorded times
/// of the other direction.
pub(crate) fn find(points: &[(i64, i64)], others: &[Time]) -> Option<Batches> {
    let (longest, share) = longest(points)?;
    if share < COARSE_SHARE {
        return None;
    }
    let most = if share < BATCHED_SHARE { clock::COARSEST.as_nanos() as i64 } else { i64::MAX };
    let times = points.iter().map(|point| point.0).collect();
    Some(Batches { interval: Span::nanos(longest.min(most) as u64), cause: cause(times, longest, others) })
}

/// Finds batches that are caused by the capture's clock. This function does not need the packets' departures.
pub(crate) fn find_by_times(times: &[Time], others: &[Time]) -> Option<Batches> {
    let times: Vec<i64> = times.iter().map(|at| at.as_nanos() as i64).collect();
    let groups = groups(times.clone());
    let mut intervals: Vec<i64> = groups.windows(2).map(|two| two[1].0 - two[0].0).collect();
    intervals.sort_unstable();
    let shortest = *intervals.get(intervals.len() * SHORTER_PERCENT / 100)?;
    // Without batches, most packets are alone in their group.
    let is_batched = groups.len() as f64 <= (1.0 - BATCHED_SHARE) * times.len() as f64;
    let is_clock = is_batched && cause(times, shortest, others) == Cause::Clock;
    (shortest >= LEAST_HELD_NS && is_clock)
        .then_some(Batches { interval: Span::nanos(shortest as u64), cause: Cause::Clock })
}

/// Returns the time for which batches hold packets, in nanoseconds. This is the 90th percentile of all batches. Returns
/// `None` if fewer than [`BATCHED_SHARE`] of the packets are in batches.
pub(crate) fn held(points: &[(i64, i64)]) -> Option<i64> {
    longest(points).filter(|(_, share)| *share >= BATCHED_SHARE).map(|one| one.0)
}

/// Returns the time for which batches hold packets (90th percentile, in nanoseconds), and the share of packets in
/// batches. Returns `None` only if there is no batch.
fn longest(points: &[(i64, i64)]) -> Option<(i64, f64)> {
    let mut sorted = points.to_vec();
    sorted.sort_unstable();
    let (mut batches, mut packets): (Vec<i64>, usize) = (Vec::new(), 0);
    for batch in sorted.chunk_by(|a, b| b.0 - a.0 <= HELD_TOGETHER_NS) {
        let left = || batch.iter().map(|point| point.1);
        let apart = left().max().zip(left().min()).map_or(0, |(last, first)| last - first);
        let lasts = batch[batch.len() - 1].0 - batch[0].0;
        // If the departures are farther apart than the records, the packets were held back and delivered together.
        if apart - lasts >= LEAST_HELD_NS {
            batches.push(apart - lasts);
            packets += batch.len();
        }
    }
    batches.sort_unstable();
    // The 90th percentile ignores single long stalls.
    let longest = batches.get(batches.len() * 9 / 10)?;
    Some((*longest, packets as f64 / points.len() as f64))
}

/// Groups times that are at most [`TOGETHER_NS`] apart. Returns the first and the last time of each group.
fn groups(mut times: Vec<i64>) -> Vec<(i64, i64)> {
    times.sort_unstable();
    times.chunk_by(|a, b| b - a <= TOGETHER_NS).map(|group| (group[0], group[group.len() - 1])).collect()
}

/// Finds the cause of batches from the records of the other direction. Measures which share of these records falls into
/// batches. The score compares this share with the shares that chance and a coarse clock would cause.
fn cause(times: Vec<i64>, interval: i64, others: &[Time]) -> Cause {
    let groups = groups(times);
    let is_within = |at: &&i64| {
        let next = groups.partition_point(|group| group.1 + TOGETHER_NS < **at);
        groups.get(next).is_some_and(|group| group.0 - TOGETHER_NS <= **at)
    };
    let Some((first, last)) = groups.first().zip(groups.last()) else { return Cause::Unknown };
    let all: Vec<i64> =
        others.iter().map(|at| at.as_nanos() as i64).filter(|at| (first.0..=last.1).contains(at)).collect();
    let lasts = (last.1 - first.0).max(1) as f64;
    let covered: i64 = groups.iter().map(|group| group.1 - group.0 + 2 * TOGETHER_NS).sum();
    let by_chance = covered as f64 / lasts;
    // A coarse clock causes one group per interval. This group contains all records of the interval.
    let by_clock = (groups.len() as f64 * interval as f64 / lasts).min(1.0);
    if all.len() < LEAST_OTHERS || by_clock - by_chance < LEAST_DIFFERENCE {
        return Cause::Unknown;
    }
    let share = all.iter().filter(is_within).count() as f64 / all.len() as f64;
    match (share - by_chance) / (by_clock - by_chance) {
        of if of >= OF_CLOCK => Cause::Clock,
        of if of <= OF_LINK => Cause::Link,
        _ => Cause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chance(k: i64) -> i64 {
        (k.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20) & 0xf_ffff
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn batches_are_found_with_what_makes_them(
            interval_ms in 6..100_i64,
            every_us in 1_500..9_000_i64,
            within_ns in 0..20_000_i64,
            by_clock: bool,
        ) {
            let (interval, every) = (interval_ms * 1_000_000, every_us * 1000);
            prop_assume!(interval >= 2 * every);
            let into_batch = |at: i64| (at / interval + 1) * interval + at % interval * within_ns / interval;
            let left = |k: i64| k * every + chance(k) / 2;
            let points: Vec<(i64, i64)> = (0..4000).map(|k| (into_batch(left(k) + 20_000_000), left(k))).collect();
            let back = |k: i64| k * 50_000_000 + chance(k) * 40;
            let others: Vec<Time> = (1..4000 * every / 50_000_000)
                .map(|k| Time::from_nanos(if by_clock { into_batch(back(k)) } else { back(k) } as u64))
                .collect();
            let found = find(&points, &others).unwrap();
            let known = others.len() > 10 && interval > 6_000_000;
            if known {
                prop_assert_eq!(found.cause, if by_clock { Cause::Clock } else { Cause::Link });
            }
            let most = (interval + every) as u64;
            prop_assert!((interval as u64 / 3..=most).contains(&found.interval.as_nanos()), "{:?}", found);
            let times: Vec<Time> = points.iter().map(|point| Time::from_nanos(point.0 as u64)).collect();
            let by_times = find_by_times(&times, &others);
            prop_assert!(by_times.is_none() || by_clock);
            prop_assert!(by_times.is_some() || !known || !by_clock);
        }

        #[test]
        fn frames_that_are_sent_together_and_queues_are_no_batches(
            packets in 1..12_i64,
            byte_ns in 50..8_000_i64,
        ) {
            let mut free = 0;
            let points: Vec<(i64, i64)> = (0..3000)
                .map(|k| {
                    let left = k / packets * 33_333_333 + chance(k / packets) + k % packets * 10_000;
                    free = left.max(free) + 1200 * byte_ns;
                    (free + 20_000_000, left)
                })
                .collect();
            prop_assert_eq!(held(&points), None);
        }
    }
}
