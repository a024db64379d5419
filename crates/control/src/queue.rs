//! Detection of a standing queue. A controller uses it to end its start phase before packets are lost.

use steadycast_units::{OneWay, Span, Time};

/// Duration of a period. The minimum delay is taken over the current and the previous period. In two periods, clocks
/// that differ by 200 ppm drift apart by 4 ms.
const PERIOD: Span = Span::secs(10);
/// Minimum number of consecutive delayed packets. A radio link may delay a single packet without a queue.
const IN_A_ROW: u32 = 4;
/// How long packets must be delayed at least, as a multiple of the round-trip time. The burst of a competing slow start
/// has drained by then.
const PART: f64 = 0.5;

/// Detects a standing queue from one-way delays. The clocks need not be synchronized.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    limit: Span,
    least: Option<OneWay>,
    before: Option<OneWay>,
    until: Time,
    /// Number of consecutive delayed packets.
    waited: u32,
    /// When the first of these delayed packets arrived.
    since: Time,
}

impl Queue {
    /// Creates a detector whose threshold is `limit`. Zero disables the detector.
    pub(crate) fn new(limit: Span) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds a packet that arrived at `at` with the one-way delay `way`. Returns whether there is a standing queue.
    ///
    /// `short` is a lower bound of the threshold.
    pub(crate) fn on_packet(&mut self, way: OneWay, at: Time, rtt: Span, short: Span) -> bool {
        // Forget the minimum after a while. Otherwise a change to a longer route would look like a queue forever.
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

    /// Sends a packet every 10 ms. Returns the index of the first packet at which a queue is detected. `delay` returns
    /// the delay in ms for a time in seconds.
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
