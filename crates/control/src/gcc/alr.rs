//! Detects phases in which the application limits the rate (libwebrtc, `alr_detector.cc`, `interval_budget.cc`).

use steadycast_units::{Bytes, Rate, Span, Time};

/// The budget is at most the number of bytes by which it fills in this time. A negative budget is limited to the same
/// number of bytes.
const WINDOW: Span = Span::millis(500);
/// The budget fills at this share of the target rate.
const SHARE: f64 = 0.65;
/// An application-limited phase begins when the budget is filled by more than this share.
const BEGINS: f64 = 0.8;
/// An application-limited phase ends when the budget is filled by less than this share.
const ENDS: f64 = 0.5;

/// A budget in bytes. It fills as time passes, and sent packets use it up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AlrDetector {
    rate: Rate,
    /// Remaining budget in bytes. It is negative if more was sent than the budget had.
    left: f64,
    last: Option<Time>,
    pub(super) since: Option<Time>,
}

impl AlrDetector {
    pub(super) fn new(target: Rate) -> Self {
        Self { rate: target.scale(SHARE), ..Self::default() }
    }

    fn room(&self) -> f64 {
        self.rate.as_bytes_per_s() * WINDOW.as_secs_f64()
    }

    pub(super) fn set_target(&mut self, target: Rate) {
        self.rate = target.scale(SHARE);
        self.left = self.left.clamp(-self.room(), self.room());
    }

    pub(super) fn on_sent(&mut self, at: Time, size: Bytes) {
        let Some(last) = self.last.replace(at) else { return };
        let room = self.room();
        // Limit how far the budget can become negative. Otherwise, a burst would delay the detection for a long time.
        let spent = (self.left - size.as_f64()).max(-room);
        self.left = (spent + self.rate.as_bytes_per_s() * at.since(last).as_secs_f64()).min(room);
        let fill = if room > 0.0 { self.left / room } else { 0.0 };
        if fill > BEGINS {
            self.since.get_or_insert(at);
        } else if fill < ENDS {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_sends_less_than_65_percent_of_the_target_is_application_limited() {
        let mut alr = AlrDetector::new(Rate::kbps(1_000));
        let mut ms = 0;
        // Sends packets of 1000 bytes at an interval of `gap` ms. The rate is first 800 kb/s, then 400 kb/s.
        let mut feed = |alr: &mut AlrDetector, gap: u64, packets: usize| {
            for _ in 0..packets {
                ms += gap;
                alr.on_sent(Time::ZERO + Span::millis(ms), Bytes::new(1_000));
            }
            alr.since.is_some()
        };
        assert!(!feed(&mut alr, 10, 200));
        // 31 kB/s of the budget are not used. So the budget rises from −40 kB to 32 kB in 2.3 s.
        assert!(!feed(&mut alr, 20, 100));
        assert!(feed(&mut alr, 20, 40));
        // The phase ends when half of the budget is used up. 20 kB at 19 kB/s take about a second.
        assert!(feed(&mut alr, 10, 70));
        assert!(!feed(&mut alr, 10, 60));
    }
}
