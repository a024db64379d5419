use steadycast_units::{Span, Time};

/// In segments per second: one in ten seconds.
const MIN_RATE: f64 = 0.1;
/// In segments per second: a gap of a nanosecond, so that time advances.
const MAX_RATE: f64 = 1e9;

/// Sends bursts of `quantum` segments at the mean rate `rate`.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: f64,
    quantum: u32,
    /// The earliest start of the next burst.
    next: Time,
    /// The send time of the current burst, and its remaining segments.
    burst: (Time, u32),
}

impl Pacer {
    pub(crate) fn new() -> Self {
        Self { rate: MAX_RATE, quantum: 1, next: Time::ZERO, burst: (Time::ZERO, 0) }
    }

    /// Sets the rate in segments per second, and the burst size.
    pub(crate) fn set(&mut self, rate: f64, quantum: u32) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
        self.quantum = quantum.max(1);
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the time until which no segment may leave, if after `now`.
    pub(crate) fn held_until(&self, now: Time) -> Option<Time> {
        let (began, left) = self.burst;
        (self.next > now && !(began == now && left > 0)).then_some(self.next)
    }

    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.burst.0 != now || self.burst.1 == 0 {
            self.burst = (now, self.quantum);
            // A pause does not make a burst larger.
            self.next = self.next.max(now);
        }
        self.burst.1 -= 1;
        self.next += Span::from_secs_f64(1.0 / self.rate).max(Span::nanos(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_so_far_apart_that_the_rate_results_and_lost_time_is_not_made_up() {
        let mut pacer = Pacer::new();
        pacer.set(1000.0, 2);
        let mut now = Time::ZERO + Span::secs(1);
        let mut left = vec![];
        while left.len() < 6 {
            match pacer.held_until(now) {
                Some(next) => now = next,
                None => {
                    pacer.on_sent(now);
                    left.push(now.since(Time::ZERO + Span::secs(1)).as_nanos() / 1_000_000);
                }
            }
        }
        assert_eq!(left, [0, 0, 2, 2, 4, 4]);
        now += Span::secs(1);
        for _ in 0..2 {
            assert_eq!(pacer.held_until(now), None);
            pacer.on_sent(now);
        }
        assert_eq!(pacer.held_until(now), Some(now + Span::millis(2)));
    }
}
