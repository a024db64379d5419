use steadycast_units::{Span, Time};

/// Multiplicative decrease (RFC 9438, section 4.6).
pub(crate) const BETA: f64 = 0.7;
/// Aggressiveness, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// Growth of the Reno-friendly window per round trip while it is below the window before the loss (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Linux: Reno's growth while below is one segment for so many windows, 1/[`ALPHA`] nearly.
const FRIENDLY: f64 = 15.0 / 8.0;
/// Linux: where the curve asks for no growth, one segment for so many windows; and one for so many segments at most as
/// long as no loss has told where the plateau is.
const FLAT: f64 = 100.0;
const UNKNOWN: f64 = 20.0;

/// The window law of RFC 9438:
///
/// ```text
/// W(t) = C (t − K)³ + W_max        K = cbrt((W_max − cwnd_epoch) / C)
/// ```
///
/// with t in seconds since congestion avoidance began, windows in segments. [`Cubic::grow`] is the RFC's,
/// [`Cubic::price`] Linux's.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    fast_convergence: bool,
    /// The window before the last reduction, or less when it converges fast; 0 where it is not known.
    w_max: f64,
    /// Where the curve is flat: `w_max`, or the window that it began with if that is larger.
    origin: f64,
    k: f64,
    epoch: Option<Time>,
    /// The window that Reno would have (W_est).
    friendly: f64,
    /// Linux: acknowledged segments that W_est has not grown by yet.
    unspent: f64,
    /// The window at the last reduction (cwnd_prior): from there on Reno's growth is 1.
    prior: f64,
}

impl Cubic {
    pub(crate) fn new(fast_convergence: bool) -> Self {
        Self { fast_convergence, w_max: 0.0, origin: 0.0, k: 0.0, epoch: None, friendly: 0.0, unspent: 0.0, prior: 0.0 }
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
        let t = self.since_epoch(now, cwnd).as_secs_f64();
        let alpha = if self.friendly < self.prior { ALPHA } else { 1.0 };
        self.friendly += alpha * acked / cwnd;
        if self.origin + self.beyond(t) < self.friendly {
            return cwnd.max(self.friendly);
        }
        let target = (self.origin + self.beyond(t + srtt.as_secs_f64())).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd * acked
    }

    /// After how many acknowledged segments the window grows by one, in whole numbers and with the curve one least
    /// round trip ahead (Linux's `bictcp_update`).
    pub(crate) fn price(&mut self, now: Time, cwnd: f64, acked: f64, least_rtt: Span) -> f64 {
        let cwnd = cwnd.trunc();
        let t = (self.since_epoch(now, cwnd) + least_rtt).as_secs_f64();
        let target = self.origin + self.beyond(t).trunc();
        let mut price = if target > cwnd { (cwnd / (target - cwnd)).trunc() } else { FLAT * cwnd };
        if self.w_max == 0.0 {
            price = price.min(UNKNOWN);
        }
        let step = (cwnd * FRIENDLY).trunc();
        self.unspent += acked;
        while self.unspent > step {
            self.unspent -= step;
            self.friendly += 1.0;
        }
        if self.friendly > cwnd {
            price = price.min((cwnd / (self.friendly - cwnd)).trunc());
        }
        price.max(2.0)
    }

    /// For `time` up to `now` the window was not used: that is no part of t (section 5.8).
    pub(crate) fn pause(&mut self, now: Time, time: Span) {
        self.epoch = self.epoch.map(|epoch| (epoch + time).min(now));
    }

    /// How long this stretch of congestion avoidance has lasted; the first call begins it.
    fn since_epoch(&mut self, now: Time, cwnd: f64) -> Span {
        let epoch = *self.epoch.get_or_insert_with(|| {
            // Without a loss before (slow start left early, or after a time-out) the plateau is here, and K is 0.
            self.origin = self.w_max.max(cwnd);
            self.k = libm::cbrt((self.origin - cwnd) / C);
            self.friendly = cwnd;
            self.unspent = 0.0;
            now
        });
        now.since(epoch)
    }

    /// How far the curve is above its flat part.
    fn beyond(&self, t: f64) -> f64 {
        C * (t - self.k) * (t - self.k) * (t - self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linuxs_price_is_low_far_from_the_plateau_and_high_on_it() {
        let mut cubic = Cubic::new(true);
        let at = |seconds: f64| Time::ZERO + Span::millis((seconds * 1e3) as u64);
        let least = Span::millis(40);
        // Nothing is known: 5 % per round trip.
        assert_eq!(cubic.price(at(0.0), 100.0, 1.0, least), UNKNOWN);
        assert_eq!(cubic.on_congestion(100.0), 70.0);
        // K = ∛(30/0.4) = 4.2 s; the curve is at 70.8 after the least round trip, in whole segments 71.
        assert_eq!(cubic.price(at(10.0), 70.0, 1.0, least), 70.0);
        // Two seconds before K it is 3.2 below 100: 97.
        assert_eq!(cubic.price(at(10.0 + 4.217 - 2.04), 90.0, 1.0, least), 12.0);
        assert_eq!(cubic.price(at(14.2), 100.0, 1.0, least), FLAT * 100.0);
        // As far behind the plateau as it began before it: 129.
        assert_eq!(cubic.price(at(18.4), 100.0, 1.0, least), 3.0);
    }
}
