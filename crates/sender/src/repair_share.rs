use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

const STEP: Span = Span::millis(100);
/// The steps of the short mean: one second.
const STEPS: usize = 10;
/// The long mean's time constant, in seconds.
const LONG_TIME_CONSTANT: f64 = 5.0;
/// The maximum share of the rate for repair.
const MAX_REPAIR_SHARE: f64 = 1.0 / 3.0;

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    all: f64,
    repair: f64,
}

/// Measures repair's share of the sent bytes.
#[derive(Debug, Default)]
pub struct RepairShare {
    /// The last second, newest last.
    steps: VecDeque<Step>,
    began: Time,
    long: f64,
}

impl RepairShare {
    /// Counts a sent packet.
    pub fn on_sent(&mut self, now: Time, size: Bytes, repair: bool) {
        self.pass(now);
        if let Some(step) = self.steps.back_mut() {
            step.all += size.as_f64();
            step.repair += if repair { size.as_f64() } else { 0.0 };
        }
    }

    /// Returns the part of `rate` for media. Repair's share is the larger of two means, at most a third.
    pub fn left(&mut self, now: Time, rate: Rate) -> Rate {
        self.pass(now);
        // The short mean follows a burst of repairs, and the long one falls slowly after it.
        let share = self.long.max(self.short()).min(MAX_REPAIR_SHARE);
        if share > 0.0 { rate.scale(1.0 - share) } else { rate }
    }

    fn short(&self) -> f64 {
        let (all, repair) = self.steps.iter().fold((0.0, 0.0), |(all, r), step| (all + step.all, r + step.repair));
        if all > 0.0 { repair / all } else { 0.0 }
    }

    fn pass(&mut self, now: Time) {
        if self.steps.is_empty() {
            self.began = now;
            self.steps.push_back(Step::default());
        }
        while now.since(self.began) >= STEP {
            if let Some(step) = self.steps.back().filter(|step| step.all > 0.0) {
                self.long += (step.repair / step.all - self.long) * STEP.as_secs_f64() / LONG_TIME_CONSTANT;
            }
            if now.since(self.began) > STEP * (2 * STEPS as u64) {
                // Steps before a pause say nothing.
                self.steps.clear();
                self.began = now;
            } else {
                self.began += STEP;
            }
            self.steps.push_back(Step::default());
            if self.steps.len() > STEPS {
                self.steps.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_media_gets_what_repair_leaves_and_two_thirds_at_least() {
        let ms = |n: u64| Time::ZERO + Span::millis(n);
        let (mut share, size, rate) = (RepairShare::default(), Bytes::new(1_000), Rate::mbps(1));
        (0..200).for_each(|n| share.on_sent(ms(10 * n), size, false));
        assert_eq!(share.left(ms(2_000), rate), rate);
        (200..300).for_each(|n| share.on_sent(ms(10 * n), size, n % 10 == 0));
        assert_eq!(share.left(ms(2_999), rate), Rate::kbps(900));
        // A second later, only the long mean contains the repair. The repair was a tenth of the rate for one of the
        // mean's five seconds.
        (300..400).for_each(|n| share.on_sent(ms(10 * n), size, false));
        let left = share.left(ms(3_999), rate);
        assert!(left > Rate::kbps(983) && left < Rate::kbps(988), "{left}");
        (400..500).for_each(|n| share.on_sent(ms(10 * n), size, true));
        assert_eq!(share.left(ms(4_999), rate), rate.scale(2.0 / 3.0));
    }
}
