use std::collections::VecDeque;
use steadycast_units::{OneWay, Span, Time};

/// The base delay of a path. This is the minimum one-way delay in a sliding window, which consists of time slots
/// (LEDBAT, RFC 6817, section 3.4.2).
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseDelay {
    slot: Span,
    slots: usize,
    /// Minimum delay in each slot, oldest slot first. The newest slot began at `since`.
    minima: VecDeque<OneWay>,
    since: Time,
}

impl BaseDelay {
    /// Creates a window of `slots` slots, but at least one. Each slot lasts `slot`.
    pub(crate) fn new(slot: Span, slots: usize) -> Self {
        Self { slot, slots: slots.max(1), ..Self::default() }
    }

    /// Adds a one-way delay. Returns by how much it exceeds the base delay. This is the queueing delay.
    pub(crate) fn queueing(&mut self, now: Time, delay: OneWay) -> Span {
        match self.minima.back_mut() {
            Some(last) if now.since(self.since) < self.slot => *last = (*last).min(delay),
            _ => {
                self.minima.push_back(delay);
                self.since = now;
            }
        }
        // Drop expired slots. If the route has become longer, its delay thus becomes the base delay.
        while self.minima.len() > self.slots {
            self.minima.pop_front();
        }
        let base = self.minima.iter().min().copied().unwrap_or(delay);
        delay.variation_since(base).later()
    }

    pub(crate) fn reset(&mut self) {
        self.minima.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::PeerTime;

    #[test]
    fn a_longer_way_is_the_base_once_the_shorter_one_is_forgotten() {
        let mut base = BaseDelay::new(Span::secs(60), 10);
        let mut at = |secs: u64, ms: i64| {
            let now = Time::ZERO + Span::secs(secs);
            // The remote clock is behind the local clock by an hour.
            let arrived = PeerTime::from_nanos(now.as_nanos() as i64 + (ms - 3_600_000) * 1_000_000);
            base.queueing(now, OneWay::to_peer(now, arrived))
        };
        assert_eq!([at(0, 30), at(1, 50), at(2, 20), at(59, 45)], [0, 20, 0, 25].map(Span::millis));
        // From here on, the route is 40 ms longer. Ten slots later, the longer delay is the base delay.
        for minute in 1..10 {
            assert_eq!(at(60 * minute, 60), Span::millis(40));
        }
        assert_eq!(at(600, 61), Span::millis(1));
    }
}
