//! The clock of a receiver, which may differ from the network's clock.

use steadycast_units::{Offset, Span, Time};

/// Period after which send-time stamps wrap. A clock offset of exactly this period does not change the stamps.
const STAMP_RANGE: Span = Span::secs(1 << 14);

const PARTS_PER_BILLION: u128 = 1_000_000_000;

/// The offset and drift of a clock, relative to the network's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    ahead: Span,
    /// Drift in parts per billion. It is positive if the clock is fast.
    drift: i64,
}

impl Skew {
    /// Creates the skew of a clock. The clock is `ahead` of the network's clock at time zero, and runs fast by `ppm`.
    pub fn new(ahead: Offset, ppm: f64) -> Self {
        // A clock can't start before zero. Add a wrap period to a negative offset, which does not change the stamps.
        let ahead = if ahead < Offset::ZERO { STAMP_RANGE.saturating_sub(ahead.abs()) } else { ahead.later() };
        Self { ahead, drift: (ppm * 1_000.0) as i64 }
    }

    /// Returns what this clock shows at the time `at` of the network's clock.
    pub fn own(self, at: Time) -> Time {
        if self == Self::default() || at == Time::NEVER {
            return at;
        }
        let passed = u128::from(at.as_nanos()) * self.pace() / PARTS_PER_BILLION;
        Time::from_nanos(passed as u64) + self.ahead
    }

    /// Returns the earliest time on the network's clock at which this clock shows `own`.
    pub fn network(self, own: Time) -> Time {
        if self == Self::default() || own == Time::NEVER {
            return own;
        }
        let passed = u128::from(own.before(self.ahead).as_nanos());
        Time::from_nanos((passed * PARTS_PER_BILLION).div_ceil(self.pace()) as u64)
    }

    /// Returns the nanoseconds by which this clock advances in one second of the network's clock.
    const fn pace(self) -> u128 {
        (1_000_000_000 + self.drift) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Stamp;

    #[test]
    fn it_shows_what_it_is_asked_to_be_woken_at() {
        for (ahead, ppm) in [(3_600.0, 100.0), (-3_600.0, -100.0), (0.0, 0.001), (1.0, -10_000.0)] {
            let skew = Skew::new(Offset::from_secs_f64(ahead), ppm);
            for nanos in [0, 1, 999, 123_456_789, 86_400_000_000_007] {
                let at = Time::from_nanos(nanos);
                let own = skew.own(at);
                assert!(skew.network(own) <= at && skew.own(skew.network(own)) >= own, "{skew:?} at {at}");
                let later = Time::from_nanos(own.as_nanos() + 1);
                assert!(skew.own(skew.network(later)) >= later, "{skew:?} at {at}");
            }
        }
    }

    #[test]
    fn a_second_lasts_as_long_as_the_drift_says() {
        let skew = Skew::new(Offset::ZERO, 100.0);
        let span = skew.own(Time::ZERO + Span::secs(1_000)).since(skew.own(Time::ZERO));
        assert_eq!(span, Span::secs(1_000) + Span::millis(100));
        assert_eq!(Skew::default().own(Time::from_nanos(77)), Time::from_nanos(77));
    }

    #[test]
    fn by_the_stamps_in_packets_a_clock_can_be_behind() {
        let (at, hour) = (Time::ZERO + Span::secs(100), Span::secs(3_600));
        let behind = Skew::new(Offset::ZERO - hour.as_offset(), 0.0);
        assert_eq!(Stamp::of(behind.own(at + hour)), Stamp::of(at));
    }
}
