use steadycast_units::{Span, Time};

/// β_cubic (RFC 9438, section 4.6).
pub(crate) const BETA: f64 = 0.7;
/// C, in segments per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;
/// α_cubic: the Reno-friendly increase in segments per round trip while the window is below cwnd_prior (RFC 9438,
/// section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Number of round trips in which the Reno-friendly window grows by one segment. It is about 1/[`ALPHA`] (Linux).
const RENO_FRIENDLY_WINDOWS: f64 = 15.0 / 8.0;
/// Number of round trips in which the window grows by one segment where the curve is flat (Linux, `bictcp_update`).
const PLATEAU_WINDOWS: f64 = 100.0;
/// While W_max is unknown, the window grows by one segment at the latest when this number of segments is acknowledged
/// (Linux). W_max is unknown before the first loss and after a time-out.
const NO_LOSS_MAX_ACKS: f64 = 20.0;

/// The window of RFC 9438 in congestion avoidance:
///
/// ```text
/// W(t) = C (t − K)³ + W_max        K = cbrt((W_max − cwnd_epoch) / C)
/// ```
///
/// t is the time in seconds since congestion avoidance began. Windows are in segments. [`Cubic::grow`] follows the RFC.
/// [`Cubic::acks_per_segment`] follows Linux.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    /// W_max: the window before the last reduction. Fast convergence may make this value smaller. It is 0 if W_max is
    /// unknown.
    w_max: f64,
    /// The window at the curve's plateau. It is `w_max`, or the first window of the epoch if that is larger.
    origin: f64,
    k: f64,
    epoch: Option<Time>,
    /// W_est, the Reno-friendly window.
    w_est: f64,
    /// Number of acknowledged segments that W_est does not include yet (Linux).
    w_est_acked: f64,
    /// cwnd_prior: the window at the last reduction.
    cwnd_prior: f64,
}

impl Cubic {
    /// Records a window reduction. Returns the new slow-start threshold, to which the caller applies a lower bound.
    pub(crate) fn on_congestion(&mut self, cwnd: f64) -> f64 {
        // Fast convergence: lower W_max to release bandwidth for newer flows (RFC 9438, section 4.7).
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        cwnd * BETA
    }

    /// Forgets W_max (RFC 9438, section 4.8). Returns the new slow-start threshold.
    pub(crate) fn on_timeout(&mut self, cwnd: f64) -> f64 {
        let threshold = self.on_congestion(cwnd);
        self.w_max = 0.0;
        threshold
    }

    /// Returns the window in congestion avoidance after `acked` more segments were acknowledged.
    pub(crate) fn grow(&mut self, now: Time, cwnd: f64, acked: f64, srtt: Span) -> f64 {
        let t = self.time_in_epoch(now, cwnd).as_secs_f64();
        let alpha = if self.w_est < self.cwnd_prior { ALPHA } else { 1.0 };
        self.w_est += alpha * acked / cwnd;
        // In the Reno-friendly region, use the window of a Reno flow (RFC 9438, section 4.3).
        if self.origin + self.above_plateau(t) < self.w_est {
            return cwnd.max(self.w_est);
        }
        // Aim for the value of the curve one RTT later (RFC 9438, section 4.2).
        let target = (self.origin + self.above_plateau(t + srtt.as_secs_f64())).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd * acked
    }

    /// Returns how many acknowledged segments increase the window by one segment. The target is the curve one minimum
    /// RTT later (Linux's `bictcp_update`).
    pub(crate) fn acks_per_segment(&mut self, now: Time, cwnd: f64, acked: f64, min_rtt: Span) -> f64 {
        let cwnd = cwnd.trunc();
        let t = (self.time_in_epoch(now, cwnd) + min_rtt).as_secs_f64();
        let target = self.origin + self.above_plateau(t).trunc();
        let mut acks = if target > cwnd { (cwnd / (target - cwnd)).trunc() } else { PLATEAU_WINDOWS * cwnd };
        // If W_max is unknown, grow by at least 5 % per round trip.
        if self.w_max == 0.0 {
            acks = acks.min(NO_LOSS_MAX_ACKS);
        }
        let step = (cwnd * RENO_FRIENDLY_WINDOWS).trunc();
        self.w_est_acked += acked;
        while self.w_est_acked > step {
            self.w_est_acked -= step;
            self.w_est += 1.0;
        }
        if self.w_est > cwnd {
            acks = acks.min((cwnd / (self.w_est - cwnd)).trunc());
        }
        // Grow by at most one segment for every two acknowledged segments (Linux).
        acks.max(2.0)
    }

    /// Shifts the epoch by the idle time `time`, so that the idle time has no effect (RFC 9438, section 5.8).
    pub(crate) fn pause(&mut self, now: Time, time: Span) {
        self.epoch = self.epoch.map(|epoch| (epoch + time).min(now));
    }

    /// Returns how long this epoch has lasted. The first call starts the epoch.
    fn time_in_epoch(&mut self, now: Time, cwnd: f64) -> Span {
        let epoch = *self.epoch.get_or_insert_with(|| {
            // After a time-out, or if HyStart ended slow start, the plateau is the current window.
            self.origin = self.w_max.max(cwnd);
            self.k = libm::cbrt((self.origin - cwnd) / C);
            self.w_est = cwnd;
            self.w_est_acked = 0.0;
            now
        });
        now.since(epoch)
    }

    /// Returns how far the curve is above the plateau after `t` seconds, in segments. It is negative below the plateau.
    fn above_plateau(&self, t: f64) -> f64 {
        C * (t - self.k) * (t - self.k) * (t - self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_grows_fast_far_from_the_plateau_and_slowly_on_it() {
        let mut cubic = Cubic::default();
        let at = |seconds: f64| Time::ZERO + Span::millis((seconds * 1e3) as u64);
        let least = Span::millis(40);
        // Before the first loss, the window grows by 5 % per round trip.
        assert_eq!(cubic.acks_per_segment(at(0.0), 100.0, 1.0, least), NO_LOSS_MAX_ACKS);
        assert_eq!(cubic.on_congestion(100.0), 70.0);
        // K = ∛(30/0.4) = 4.2 s. One minimum round trip ahead, the curve is at 70.8, which is 71 in whole segments.
        assert_eq!(cubic.acks_per_segment(at(10.0), 70.0, 1.0, least), 70.0);
        // Two seconds before the time K, the curve is 3.2 below 100, which is 97.
        assert_eq!(cubic.acks_per_segment(at(10.0 + 4.217 - 2.04), 90.0, 1.0, least), 12.0);
        assert_eq!(cubic.acks_per_segment(at(14.2), 100.0, 1.0, least), PLATEAU_WINDOWS * 100.0);
        // The time after the plateau now equals the time from the reduction to the plateau. The curve is at 129.
        assert_eq!(cubic.acks_per_segment(at(18.4), 100.0, 1.0, least), 3.0);
    }
}
