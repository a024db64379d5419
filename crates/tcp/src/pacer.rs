use steadycast_units::{Span, Time};

/// Minimum rate in segments per second. It is one segment in ten seconds.
const MIN_RATE: f64 = 0.1;
/// Maximum rate in segments per second. The gap is then one nanosecond, so that time still advances.
const MAX_RATE: f64 = 1e9;

/// Sends bursts of `quantum` segments. The mean rate is `rate` segments per second.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: f64,
    quantum: u32,
    /// The earliest time at which the next burst may start.
    next: Time,
    /// When the current burst was sent, and how many of its segments remain.
    burst: (Time, u32),
}

impl Pacer {
    pub(crate) fn new() -> Self {
        Self { rate: MAX_RATE, quantum: 1, next: Time::ZERO, burst: (Time::ZERO, 0) }
    }

    /// Sets the rate in segments per second and the size of a burst in segments.
    pub(crate) fn set(&mut self, rate: f64, quantum: u32) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
        self.quantum = quantum.max(1);
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns when the next segment may leave. Returns `None` if it may leave at `now`.
    pub(crate) fn held_until(&self, now: Time) -> Option<Time> {
        let (began, left) = self.burst;
        (self.next > now && !(began == now && left > 0)).then_some(self.next)
    }

    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.burst.0 != now || self.burst.1 == 0 {
            self.burst = (now, self.quantum);
            // Do not let a pause make the next burst larger.
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
