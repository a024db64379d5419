use steadycast_units::{Span, Time};

/// The multiplicative decrease factor β_cubic (RFC 9438, section 4.6).
pub(crate) const BETA: f64 = 0.7;
/// The constant C, in segments per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;
/// The increase α_cubic of the Reno-friendly window, in segments per round trip, while the window is below cwnd_prior
/// (RFC 9438, section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Linux: the Reno-friendly window grows by one segment whenever this number of windows has been acknowledged, which is
/// about 1/[`ALPHA`].
const RENO_FRIENDLY_WINDOWS: f64 = 15.0 / 8.0;
/// Linux (`bictcp_update`): where the curve is flat, the window grows by one segment whenever this number of windows
/// has been acknowledged.
const PLATEAU_WINDOWS: f64 = 100.0;
/// Linux: before the first loss, the window grows by one segment after at most this number of acknowledged segments.
const NO_LOSS_MAX_ACKS: f64 = 20.0;

/// The window of RFC 9438 in congestion avoidance:
///
/// ```text
/// W(t) = C (t − K)³ + W_max        K = cbrt((W_max − cwnd_epoch) / C)
/// ```
///
/// with t in seconds since congestion avoidance began, and windows in segments. [`Cubic::grow`] follows the RFC,
/// [`Cubic::acks_per_segment`] follows Linux.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    fast_convergence: bool,
    /// The window before the last reduction, or a lower value after fast convergence (W_max). It is 0 if unknown.
    w_max: f64,
    /// The plateau of the curve: `w_max`, or the window at the start of the epoch if that is larger.
    origin: f64,
    k: f64,
    epoch: Option<Time>,
    /// The Reno-friendly window (W_est).
    w_est: f64,
    /// Linux: acknowledged segments that have not yet increased W_est.
    w_est_acked: f64,
    /// The window at the last reduction (cwnd_prior). Above it W_est grows by one segment per round trip.
    cwnd_prior: f64,
}

impl Cubic {
    pub(crate) fn new(fast_convergence: bool) -> Self {
        Self {
            fast_convergence,
            w_max: 0.0,
            origin: 0.0,
            k: 0.0,
            epoch: None,
            w_est: 0.0,
            w_est_acked: 0.0,
            cwnd_prior: 0.0,
        }
    }

    /// Records a congestion event. Returns the new slow-start threshold before its lower bound is applied.
    pub(crate) fn on_congestion(&mut self, cwnd: f64) -> f64 {
        // The window is smaller than at the previous loss, so the flow releases bandwidth for newer flows (RFC 9438,
        // section 4.7).
        let released = self.fast_convergence && cwnd < self.w_max;
        self.w_max = if released { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        cwnd * BETA
    }

    /// Records a time-out, after which W_max is not used again (RFC 9438, section 4.8). Returns the threshold.
    pub(crate) fn on_timeout(&mut self, cwnd: f64) -> f64 {
        let threshold = self.on_congestion(cwnd);
        self.w_max = 0.0;
        threshold
    }

    /// Returns the window after `acked` segments were acknowledged in congestion avoidance.
    pub(crate) fn grow(&mut self, now: Time, cwnd: f64, acked: f64, srtt: Span) -> f64 {
        let t = self.time_in_epoch(now, cwnd).as_secs_f64();
        let alpha = if self.w_est < self.cwnd_prior { ALPHA } else { 1.0 };
        self.w_est += alpha * acked / cwnd;
        // Below W_est the flow is in the Reno-friendly region (RFC 9438, section 4.3).
        if self.origin + self.above_plateau(t) < self.w_est {
            return cwnd.max(self.w_est);
        }
        // RFC 9438, section 4.2: the target is the curve's value one RTT ahead, limited to the range from cwnd to 1.5
        // cwnd.
        let target = (self.origin + self.above_plateau(t + srtt.as_secs_f64())).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd * acked
    }

    /// Returns the number of acknowledged segments per window increase of one segment. This is Linux's `bictcp_update`,
    /// in whole numbers, with the curve's value one minimum RTT ahead.
    pub(crate) fn acks_per_segment(&mut self, now: Time, cwnd: f64, acked: f64, min_rtt: Span) -> f64 {
        let cwnd = cwnd.trunc();
        let t = (self.time_in_epoch(now, cwnd) + min_rtt).as_secs_f64();
        let target = self.origin + self.above_plateau(t).trunc();
        let mut acks = if target > cwnd { (cwnd / (target - cwnd)).trunc() } else { PLATEAU_WINDOWS * cwnd };
        // Before the first loss the plateau is unknown. The growth is then at least 5 % per round trip.
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
        // Linux never grows by more than one segment per two acknowledged segments.
        acks.max(2.0)
    }

    /// Shifts the epoch by an idle time up to `now`, in which the window was not used (RFC 9438, section 5.8).
    pub(crate) fn pause(&mut self, now: Time, time: Span) {
        self.epoch = self.epoch.map(|epoch| (epoch + time).min(now));
    }

    /// Returns the duration of the current epoch of congestion avoidance. The first call starts the epoch.
    fn time_in_epoch(&mut self, now: Time, cwnd: f64) -> Span {
        let epoch = *self.epoch.get_or_insert_with(|| {
            // There is no plateau if HyStart ended slow start before any loss, or after a time-out. In that case the
            // plateau is the current window, and K is 0.
            self.origin = self.w_max.max(cwnd);
            self.k = libm::cbrt((self.origin - cwnd) / C);
            self.w_est = cwnd;
            self.w_est_acked = 0.0;
            now
        });
        now.since(epoch)
    }

    /// Returns the curve's distance from the plateau.
    fn above_plateau(&self, t: f64) -> f64 {
        C * (t - self.k) * (t - self.k) * (t - self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_grows_fast_far_from_the_plateau_and_slowly_on_it() {
        let mut cubic = Cubic::new(true);
        let at = |seconds: f64| Time::ZERO + Span::millis((seconds * 1e3) as u64);
        let least = Span::millis(40);
        // Before the first loss, the window grows by 5 % per round trip.
        assert_eq!(cubic.acks_per_segment(at(0.0), 100.0, 1.0, least), NO_LOSS_MAX_ACKS);
        assert_eq!(cubic.on_congestion(100.0), 70.0);
        // K = ∛(30/0.4) = 4.2 s. One minimum round trip ahead, the curve is at 70.8, which is 71 in whole segments.
        assert_eq!(cubic.acks_per_segment(at(10.0), 70.0, 1.0, least), 70.0);
        // Two seconds before K, the curve is 3.2 below 100, which is 97.
        assert_eq!(cubic.acks_per_segment(at(10.0 + 4.217 - 2.04), 90.0, 1.0, least), 12.0);
        assert_eq!(cubic.acks_per_segment(at(14.2), 100.0, 1.0, least), PLATEAU_WINDOWS * 100.0);
        // As long after the plateau as it was reached after the reduction, the curve is at 129.
        assert_eq!(cubic.acks_per_segment(at(18.4), 100.0, 1.0, least), 3.0);
    }
}
