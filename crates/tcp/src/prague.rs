use steadycast_units::{Span, Time};

/// The gain with which alpha is updated (draft-briscoe-iccrg-prague-congestion-control, section 2.4.2).
const ALPHA_GAIN: f64 = 1.0 / 16.0;
/// RTT_VIRT of the draft: a flow whose RTT is shorter grows as if it had this RTT.
const RTT_VIRT: Span = Span::millis(25);
/// Number of round trips after slow start before growth becomes independent of the RTT.
const RTT_INDEPENDENCE_DELAY: u32 = 500;
/// The minimum window, in segments.
const MIN_WINDOW: f64 = 2.0;
/// The largest burst contains the data that is paced in this time, in seconds (2⁻¹²).
const BURST_DURATION: f64 = 1.0 / 4096.0;

#[derive(Clone, Debug, Default)]
pub(crate) struct Prague {
    pub(crate) alpha: f64,
    /// Whether a mark has been received. Until then, alpha stays 1.
    seen: bool,
    /// The target window. After a reduction, the usable window falls to the target by one segment per acknowledgment.
    window: f64,
    acked: u32,
    marked: u32,
    round_end: u32,
    /// Number of rounds since slow start.
    rounds: u32,
    updated: Time,
    cut_end: u32,
    cut: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    pub(crate) now: Time,
    pub(crate) una: u32,
    pub(crate) max: u32,
    pub(crate) fresh: u32,
    pub(crate) marked: u32,
    pub(crate) srtt: Span,
    /// Whether the window may grow. It may grow if the sender is not in recovery and only the window limits the sender.
    pub(crate) may_grow: bool,
    pub(crate) repairing: bool,
}

impl Prague {
    pub(crate) fn new() -> Self {
        Self { alpha: 1.0, ..Self::default() }
    }

    /// Sets the target window at the start, after a loss or after a pause.
    pub(crate) fn set(&mut self, window: f64) {
        self.window = window;
    }

    /// Returns the minimum time between two updates of alpha, and between two window reductions. It is the RTT. With
    /// RTT independence, it is at least the virtual RTT.
    fn period(&self, srtt: Span) -> Span {
        if self.is_rtt_independent() { srtt.max(RTT_VIRT) } else { srtt }
    }

    fn is_rtt_independent(&self) -> bool {
        self.rounds >= RTT_INDEPENDENCE_DELAY
    }

    /// Returns the usable window, the slow-start threshold, and whether the window was reduced.
    pub(crate) fn on_ack(&mut self, sample: &AckSample, cwnd: f64, ssthresh: f64, most: f64) -> (f64, f64, bool) {
        let AckSample { now, una, max, fresh, srtt, .. } = *sample;
        let marked = sample.marked.min(fresh);
        self.seen |= marked > 0;
        (self.acked, self.marked) = (self.acked + fresh, self.marked + marked);
        let period = self.period(srtt);
        // Update alpha once per round trip. With RTT independence, do so at most once per virtual RTT.
        if una > self.round_end {
            self.round_end = max;
            self.rounds = if self.window < ssthresh { 0 } else { self.rounds.saturating_add(1) };
            if !self.is_rtt_independent() || now.since(self.updated) >= period {
                if self.seen && self.acked > 0 {
                    self.alpha += ALPHA_GAIN * (f64::from(self.marked) / f64::from(self.acked) - self.alpha);
                }
                (self.acked, self.marked, self.updated) = (0, 0, now);
            }
        }
        let mut threshold = ssthresh;
        // The window grows with the segments that are not marked.
        if sample.may_grow {
            let counted = f64::from(fresh - marked);
            self.window = if self.window < ssthresh {
                self.window + counted
            } else {
                self.window + counted * self.additive_increase(srtt) / self.window
            }
            .min(most);
        }
        // Reduce the window at most once per round trip. With RTT independence, also at most once per virtual RTT.
        let again =
            una > self.cut_end && self.cut.is_none_or(|cut| !self.is_rtt_independent() || now.since(cut) >= period);
        let cut = marked > 0 && again && !sample.repairing;
        if cut {
            self.window = (self.window * (1.0 - self.alpha / 2.0)).max(MIN_WINDOW);
            threshold = self.window;
            (self.cut_end, self.cut) = (max, Some(now));
        }
        // Lower the usable window by only one segment, so that sending does not stop completely.
        let may_send = if cwnd > self.window { (cwnd - 1.0).max(self.window) } else { self.window };
        (may_send, threshold, cut)
    }

    /// Returns the number of segments by which the window grows per round trip. Without RTT independence, the number is
    /// 1. With RTT independence, it is (`srtt` / [`RTT_VIRT`])², but at most 1.
    fn additive_increase(&self, srtt: Span) -> f64 {
        let part = srtt.as_secs_f64() / RTT_VIRT.as_secs_f64();
        if self.is_rtt_independent() { (part * part).min(1.0) } else { 1.0 }
    }

    /// Returns the pacing rate in segments per second and the largest burst in segments.
    pub(crate) fn pacing(&self, cwnd: f64, ssthresh: f64, srtt: Option<Span>) -> (f64, u32) {
        let srtt = srtt.unwrap_or(Span::millis(1)).as_secs_f64().max(1e-6);
        // Pace twice as fast in slow start, because the window doubles in each round trip.
        let factor = if cwnd < ssthresh / 2.0 { 2.0 } else { 1.0 };
        let rate = factor * cwnd / srtt;
        (rate, (rate * BURST_DURATION) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rtt: Span, round: u32, marked: u32) -> AckSample {
        let (una, max) = (round * 100 + 1, round * 100 + 51);
        let now = Time::ZERO + rtt * u64::from(round);
        AckSample { now, una, max, fresh: 100, marked, srtt: rtt, may_grow: true, repairing: false }
    }

    /// Returns how much a window of 100 segments grows in one round without marks. Slow start ended 600 rounds earlier.
    fn growth(rtt: Span) -> f64 {
        let mut prague = Prague::new();
        for round in 1..=600 {
            prague.set(100.0);
            prague.on_ack(&sample(rtt, round, 0), 100.0, 50.0, 1e6);
        }
        prague.set(100.0);
        prague.on_ack(&sample(rtt, 601, 0), 100.0, 50.0, 1e6).0 - 100.0
    }

    #[test]
    fn short_round_trips_grow_as_one_of_25_ms_does_and_long_ones_as_reno() {
        assert!((growth(Span::millis(5)) - 1.0 / 25.0).abs() < 1e-9);
        assert!((growth(Span::millis(25)) - 1.0).abs() < 1e-9);
        assert!((growth(Span::millis(80)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn alpha_stays_one_until_the_first_mark_and_then_follows_the_marked_part() {
        let rtt = Span::millis(30);
        let mut prague = Prague::new();
        prague.set(100.0);
        for round in 1..=9 {
            prague.on_ack(&sample(rtt, round, 0), 100.0, 50.0, 100.0);
        }
        assert_eq!(prague.alpha, 1.0);
        let (_, threshold, cut) = prague.on_ack(&sample(rtt, 10, 10), 100.0, 50.0, 100.0);
        assert!(cut);
        assert!((prague.alpha - (1.0 - 0.9 / 16.0)).abs() < 1e-12);
        assert!((threshold - 100.0 * (1.0 - prague.alpha / 2.0)).abs() < 1e-9);
    }
}
