use steadycast_units::{Span, Time};

/// The part of the retransmission time-out to which the configured minimum applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The time-out before it is backed off (RFC 6298, section 2.4).
    Whole,
    /// The term of the time-out that contains the RTT variance, as in Linux.
    Variance,
}

/// Estimates the RTT and the retransmission time-out (RFC 6298). The unit is a clock tick, as in BSD and ns-2.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    tick: u64,
    /// 2⁶⁴ divided by `tick`, rounded down. It replaces divisions by `tick`.
    inverse: u64,
    phase: u64,
    /// 8 · SRTT in ticks. It is 0 before the first sample and after four back-offs.
    srtt8: i64,
    /// 4 · RTTVAR in ticks.
    var4: i64,
    /// The time-out before it is clamped and backed off.
    base: Span,
    smoothed: Span,
    /// The minimum RTT. It is [`Span::MAX`] before the first sample.
    pub(crate) min_rtt: Span,
    backoff: u32,
    min: Span,
    max: Span,
    floor: RtoFloor,
}

impl RttEstimator {
    pub(crate) fn new(tick: Span, phase: Span, initial: Span, min: Span, max: Span, floor: RtoFloor) -> Self {
        // A tick of zero means an exact clock. Use a tick of one nanosecond.
        let tick = tick.clamp(Span::nanos(1), Span::secs(60)).as_nanos();
        Self {
            tick,
            inverse: (u64::MAX / tick),
            phase: phase.as_nanos() % tick,
            srtt8: 0,
            var4: 0,
            base: initial,
            smoothed: Span::ZERO,
            min_rtt: Span::MAX,
            backoff: 1,
            min,
            max: max.max(Span::millis(1)),
            floor,
        }
    }

    /// Adds an RTT sample. The RTT is the number of clock ticks between `sent` and `now`.
    #[inline]
    pub(crate) fn sample(&mut self, sent: Time, now: Time) {
        self.min_rtt = self.min_rtt.min(now.since(sent));
        let rtt = now.since(sent).as_nanos();
        let into_tick = match self.parts(sent.as_nanos()).1 + self.phase {
            next if next >= self.tick => next - self.tick,
            same => same,
        };
        let ticks = self.parts(rtt.saturating_add(into_tick)).0.clamp(1, 1 << 50) as i64;
        // Update SRTT and RTTVAR (RFC 6298, section 2) in fixed point. The gains are 1/8 and 1/4 (Jacobson 1988).
        if self.srtt8 == 0 {
            self.srtt8 = ticks << 3;
            self.var4 = ticks << 1;
        } else {
            let delta = ticks - (self.srtt8 >> 3);
            self.srtt8 = (self.srtt8 + delta).max(1);
            self.var4 = (self.var4 + delta.abs() - (self.var4 >> 2)).max(1);
        }
        let tick = self.tick;
        let ticks_to_span = move |ticks: i64| Span::nanos((ticks as u64).saturating_mul(tick));
        self.smoothed = Span::nanos((self.srtt8 as u64).saturating_mul(tick) >> 3);
        self.base = match self.floor {
            RtoFloor::Whole => ticks_to_span(((self.var4 << 3) + self.srtt8) >> 3),
            RtoFloor::Variance => self.smoothed + ticks_to_span(self.var4).max(self.min),
        };
    }

    /// Returns the quotient and the remainder of `ns` divided by the tick. The result is exact, but needs no division.
    #[inline]
    fn parts(&self, ns: u64) -> (u64, u64) {
        // The approximation is at most one too small, because ns/tick − 1 < ns·inverse/2⁶⁴ ≤ ns/tick.
        let ticks = ((u128::from(ns) * u128::from(self.inverse)) >> 64) as u64;
        let left = ns - ticks * self.tick;
        if left >= self.tick { (ticks + 1, left - self.tick) } else { (ticks, left) }
    }

    pub(crate) fn srtt(&self) -> Option<Span> {
        (!self.smoothed.is_zero()).then_some(self.smoothed)
    }

    #[inline]
    pub(crate) fn rto(&self) -> Span {
        // Use at least two ticks, because a shorter time-out could expire at the next tick.
        let least = self.min.max(Span::nanos(self.tick) * 2);
        (self.base.max(least) * u64::from(self.backoff)).min(self.max)
    }

    pub(crate) fn back_off(&mut self) {
        if self.rto() < self.max {
            self.backoff = self.backoff.saturating_mul(2);
        }
        // Discard the SRTT, because the path may have changed (RFC 6298, section 5, last paragraph).
        if self.backoff > 8 {
            self.srtt8 = 0;
        }
    }

    pub(crate) fn end_backoff(&mut self) {
        self.backoff = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_and_what_is_left_are_those_of_a_division(
            ns in any::<u64>(), tick in 1u64..100_000_000_000, few in 0u64..5,
        ) {
            let none = Span::ZERO;
            let of = |tick| RttEstimator::new(Span::nanos(tick), none, none, none, none, RtoFloor::Whole);
            let tick = tick.min(60_000_000_000);
            for ns in [ns, ns >> 30, few, tick * few, tick * few + tick - 1, u64::MAX - few] {
                prop_assert_eq!(of(tick).parts(ns), (ns / tick, ns % tick));
                prop_assert_eq!(of(1).parts(ns), (ns, 0));
            }
        }
    }
}
