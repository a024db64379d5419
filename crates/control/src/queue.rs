//! Detection of a standing queue, which ends a start phase before packets are lost.

use steadycast_units::{OneWay, Span, Time};

/// The minimum delay is taken over this and the previous period. Clocks that differ by 200 ppm drift by 4 ms in two
/// periods.
const PERIOD: Span = Span::secs(10);
/// The minimum number of delayed packets in a row; a radio link may delay a single one.
const IN_A_ROW: u32 = 4;
/// The minimum duration of the delay, in round trips. A competing slow start's burst has drained by then.
const PART: f64 = 0.5;

/// Detects a standing queue from one-way delays. The clocks need not be synchronized.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    limit: Span,
    least: Option<OneWay>,
    before: Option<OneWay>,
    until: Time,
    /// The number of consecutive delayed packets.
    waited: u32,
    /// The arrival of the first of these packets.
    since: Time,
}

impl Queue {
    /// Creates a detector with the threshold `limit`; zero disables it.
    pub(crate) fn new(limit: Span) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds a packet that arrived at `at` with the one-way delay `way`. Returns whether there is a queue.
    ///
    /// The threshold is at least `short`.
    pub(crate) fn on_packet(&mut self, way: OneWay, at: Time, rtt: Span, short: Span) -> bool {
        // The minimum expires, so that a longer route does not look like a queue forever.
        if at >= self.until {
            (self.before, self.least) = (self.least.take(), None);
            self.until = at + PERIOD;
        }
        let shorter = |a: OneWay, b: OneWay| if b.variation_since(a).as_secs_f64() < 0.0 { b } else { a };
        let least = self.least.map_or(way, |known| shorter(known, way));
        self.least = Some(least);
        let least = self.before.map_or(least, |known| shorter(known, least));
        let limit = self.limit.max(short);
        let waits = !self.limit.is_zero() && way.variation_since(least).as_secs_f64() >= limit.as_secs_f64();
        if self.waited == 0 {
            self.since = at;
        }
        self.waited = if waits { self.waited.saturating_add(1) } else { 0 };
        self.waited >= IN_A_ROW && at.since(self.since) >= rtt.scale(PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::PeerTime;

    /// Sends a packet every 10 ms, and returns the index of the first one at which a queue is detected. `delay` maps
    /// the time in seconds to the delay in ms.
    fn first(limit: u64, seconds: u64, delay: impl Fn(f64) -> f64) -> Option<u64> {
        first_at(limit, seconds, 0, delay)
    }

    fn first_at(limit: u64, seconds: u64, rtt: u64, delay: impl Fn(f64) -> f64) -> Option<u64> {
        let mut queue = Queue::new(Span::millis(limit));
        (0..seconds * 100).find(|n| {
            let sent = *n as f64 / 100.0;
            let at = Time::ZERO + Span::from_secs_f64(100.0 + sent + delay(sent) / 1e3);
            queue.on_packet(
                OneWay::between(PeerTime::from_nanos((sent * 1e9) as i64), at),
                at,
                Span::millis(rtt),
                Span::ZERO,
            )
        })
    }

    #[test]
    fn a_queue_is_seen_at_the_fourth_packet_that_waits() {
        assert_eq!(first(20, 5, |t| if t < 0.995 { 30.0 } else { 50.0 }), Some(103));
        assert_eq!(first(20, 5, |t| if t < 0.995 { 30.0 } else { 49.9 }), None);
        assert_eq!(first(0, 5, |t| 300.0 * t), None);
    }

    #[test]
    fn one_that_is_shorter_than_told_is_none() {
        let at = |n: u64| Time::ZERO + Span::secs(100) + Span::millis(10 * n);
        let first = |short: u64| {
            let mut queue = Queue::new(Span::millis(20));
            (0..500).find(|n| {
                let late = if *n < 100 { 30 } else { 70 };
                let sent = PeerTime::from_nanos((at(*n).as_nanos() - late * 1_000_000) as i64);
                queue.on_packet(OneWay::between(sent, at(*n)), at(*n), Span::ZERO, Span::millis(short))
            })
        };
        assert_eq!([first(0), first(40), first(41)], [Some(103), Some(103), None]);
    }

    #[test]
    fn it_has_to_last_half_a_round_trip() {
        let burst = |length: f64| move |t: f64| if (0.995..0.995 + length).contains(&t) { 50.0 } else { 30.0 };
        assert_eq!(first_at(20, 5, 120, burst(0.055)), None);
        assert_eq!(first_at(20, 5, 120, burst(1.0)), Some(106));
    }

    #[test]
    fn single_late_packets_and_drifting_clocks_are_no_queue() {
        assert_eq!(first(20, 60, |t| if ((t * 100.0) as u64).is_multiple_of(4) { 90.0 } else { 30.0 }), None);
        for ppm in [-200.0, 200.0] {
            assert_eq!(first(20, 600, |t| 30.0 + t * ppm / 1e3), None);
        }
    }

    #[test]
    fn a_route_that_became_longer_is_the_measure_after_twenty_seconds() {
        let delay = |t: f64| {
            if t < 5.0 {
                30.0
            } else if t < 26.0 {
                45.0
            } else {
                65.1
            }
        };
        assert_eq!(first(20, 30, delay), Some(2603));
    }
}
