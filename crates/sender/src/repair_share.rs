use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Time};

const STEP: Span = Span::millis(100);
/// Number of steps in the short mean, which covers one second.
const STEPS: usize = 10;
/// Time constant of the long mean, in seconds.
const LONG_TIME_CONSTANT: f64 = 5.0;
/// Maximum share of the rate that repair can use.
const MAX_REPAIR_SHARE: f64 = 1.0 / 3.0;

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    all: f64,
    repair: f64,
}

/// Measures which share of the sent bytes is repair.
#[derive(Debug, Default)]
pub struct RepairShare {
    /// The sent bytes of the last second in steps of 100 ms. The newest step is the last element.
    steps: VecDeque<Step>,
    began: Time,
    long: f64,
}

impl RepairShare {
    /// Adds a sent packet.
    pub fn on_sent(&mut self, now: Time, size: Bytes, repair: bool) {
        self.pass(now);
        if let Some(step) = self.steps.back_mut() {
            step.all += size.as_f64();
            step.repair += if repair { size.as_f64() } else { 0.0 };
        }
    }

    /// Returns the part of `rate` that is left for media. Repair's share is the larger of a short and a long mean, but
    /// at most a third.
    pub fn left(&mut self, now: Time, rate: Rate) -> Rate {
        self.pass(now);
        // The short mean rises quickly with a burst of repairs. The long mean falls slowly after the burst.
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
                // Discard the steps before a pause, because they are out of date.
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
        // One second later, only the long mean contains the repair. Repair was a tenth of the rate during one second of
        // the five seconds in that mean.
        (300..400).for_each(|n| share.on_sent(ms(10 * n), size, false));
        let left = share.left(ms(3_999), rate);
        assert!(left > Rate::kbps(983) && left < Rate::kbps(988), "{left}");
        (400..500).for_each(|n| share.on_sent(ms(10 * n), size, true));
        assert_eq!(share.left(ms(4_999), rate), rate.scale(2.0 / 3.0));
    }
}
