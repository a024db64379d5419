use steadycast_units::{Span, Time};

/// Multiplicative decrease (RFC 9438, section 4.6).
pub(crate) const BETA: f64 = 0.7;
/// Aggressiveness, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// Growth of the Reno-friendly window per round trip while it is below the window before the loss (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The window law of RFC 9438:
///
/// ```text
/// W(t) = C (t − K)³ + W_max        K = cbrt((W_max − cwnd_epoch) / C)
/// ```
///
/// with t in seconds since congestion avoidance began, windows in segments.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    fast_convergence: bool,
    w_max: f64,
    k: f64,
    epoch: Option<Time>,
    /// The window that Reno would have (W_est).
    friendly: f64,
    /// The window at the last reduction (cwnd_prior): from there on Reno's growth is 1.
    prior: f64,
}

impl Cubic {
    pub(crate) fn new(fast_convergence: bool) -> Self {
        Self { fast_convergence, w_max: 0.0, k: 0.0, epoch: None, friendly: 0.0, prior: 0.0 }
    }

    /// The network is congested; the new threshold, before its lower bound.
    pub(crate) fn on_congestion(&mut self, cwnd: f64) -> f64 {
        let released = self.fast_convergence && cwnd < self.w_max;
        self.w_max = if released { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.epoch = None;
        cwnd * BETA
    }

    /// A time-out: what was learnt about the path is not used again (section 4.8).
    pub(crate) fn on_timeout(&mut self, cwnd: f64) -> f64 {
        let threshold = self.on_congestion(cwnd);
        self.w_max = 0.0;
        threshold
    }

    /// The window after `acked` segments were acknowledged in congestion avoidance.
    pub(crate) fn grow(&mut self, now: Time, cwnd: f64, acked: f64, srtt: Span) -> f64 {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                // Without a loss before (slow start left early, or after a time-out) the plateau is here, and K is 0.
                self.w_max = self.w_max.max(cwnd);
                self.k = libm::cbrt((self.w_max - cwnd) / C);
                self.friendly = cwnd;
                self.epoch = Some(now);
                now
            }
        };
        let t = now.since(epoch).as_secs_f64();
        let window_at = |t: f64| C * (t - self.k) * (t - self.k) * (t - self.k) + self.w_max;
        let alpha = if self.friendly < self.prior { ALPHA } else { 1.0 };
        self.friendly += alpha * acked / cwnd;
        if window_at(t) < self.friendly {
            return cwnd.max(self.friendly);
        }
        let target = window_at(t + srtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd * acked
    }
}
