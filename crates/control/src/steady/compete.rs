//! The law of a sender beside somebody elastic: CUBIC's window (RFC 9438), paced, and the drains by which it finds out
//! that it is alone.

use super::Config;
use super::constants::*;
use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::verdict::{LossClassifier, RateResponse};
use crate::equation::{LossRate, time_per_packet};

/// Why competing was left: what arrives does not follow what is sent.
pub(super) const OWN_QUEUE: &str = "delay: a queue of its own";

/// CUBIC's window, in segments (RFC 9438).
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    w: f64,
    w_max: f64,
    w_est: f64,
    epoch: f64,
    k: f64,
    /// Nothing was lost yet since the session first competes: the window grows by a share of itself.
    slow: bool,
}

impl Cubic {
    /// A window at which nothing was lost yet: its plateau lies ahead.
    fn new(now: f64, w: f64) -> Self {
        let mut cubic = Self { w, w_max: w / NEARLY, w_est: w, epoch: now, k: 0.0, slow: false };
        cubic.set_k();
        cubic
    }

    /// K of equation 2.
    fn set_k(&mut self) {
        self.k = libm::cbrt((self.w_max - self.w).max(0.0) / C);
    }

    fn curve(&self, t: f64) -> f64 {
        let t = t - self.k;
        C * t * t * t + self.w_max
    }

    /// A cut, with fast convergence (4.7).
    fn cut(&mut self, now: f64, beta: f64, least: f64) {
        self.w_max = if self.w < self.w_max { self.w * (1.0 + beta) / 2.0 } else { self.w };
        self.w = (self.w * beta).max(least);
        self.w_est = self.w;
        self.epoch = now;
        self.slow = false;
        self.set_k();
    }

    /// Growth over `dt` (4.2 to 4.5): the curve, or the Reno-friendly window where that is larger.
    fn grow(&mut self, now: f64, dt: f64, rtt: f64, up: f64) {
        if self.slow {
            self.w *= libm::pow(up, dt / rtt);
            (self.w_max, self.w_est, self.epoch, self.k) = (self.w, self.w, now, 0.0);
            return;
        }
        let alpha = if self.w_est < self.w_max { RENO_UP } else { 1.0 };
        self.w_est += alpha * dt / rtt;
        let goal = self.curve(now - self.epoch + rtt).clamp(self.w, MORE * self.w);
        self.w = (self.w + (goal - self.w) * (dt / rtt).min(1.0)).max(self.w_est);
    }

    /// Whether Reno's growth rules, not the curve's.
    fn friendly(&self, now: f64, rtt: f64) -> bool {
        !self.slow && self.w_est >= self.curve(now - self.epoch + rtt)
    }

    fn limit(&mut self, most: f64) {
        self.w = self.w.min(most.max(WINDOW_LEAST));
        self.w_est = self.w_est.min(self.w);
    }

    fn raise(&mut self, least: f64) {
        self.w = self.w.max(least);
        self.w_est = self.w_est.max(self.w.min(self.w_max));
    }
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    until: f64,
    /// The queueing delay and the received rate at the loss.
    q: f64,
    received: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CompeteLaw {
    cubic: Cubic,
    /// When it began, and whether it has ended before.
    begun: f64,
    pub(super) left: bool,
    /// When a queue of its own has ended it, its window then, and what arrived, in bit/s. Two flows that give way at
    /// once look the same, so it may be wanted again.
    ended: Option<(f64, Cubic, f64)>,
    congested_at: f64,
    loss_gap: f64,
    drain: Option<Drain>,
    empty_since: Option<f64>,
    /// The highest queueing delay lately.
    pub(super) high: f64,
    /// Packets told of at a report, and those of them that are lost, in the mean.
    told: f64,
    lost: f64,
    follows: RateResponse,
    /// What may be sent again at once after less was sent to find something out, in bit/s.
    pub(super) restore: f64,
}

impl CompeteLaw {
    pub(super) fn new() -> Self {
        Self { loss_gap: 1.0, high: 0.5 * DRAIN_ABOVE, ..Self::default() }
    }

    /// Keeps the highest queueing delay of the last while.
    pub(super) fn watch(&mut self, q: f64, dt: f64) {
        self.high = (self.high * libm::exp2(-dt / LATELY)).max(q);
    }

    pub(super) fn begin(&mut self, now: f64, rate: f64, rtt: f64) {
        let w = (rate * rtt / SEGMENT_BITS).max(WINDOW_LEAST);
        self.cubic = Cubic { slow: !self.left, ..Cubic::new(now, w) };
        if let Some((at, mut kept, carried)) = self.ended.take()
            && now - at < LATELY + rtt / GAIN_ROUND
        {
            // What shows that the verdict was wrong cuts the window that was kept. It carries no more than it did: the
            // round trip may be shorter now.
            let most = carried * rtt / SEGMENT_BITS;
            kept.w = kept.curve(now - kept.epoch).clamp(0.0, kept.w_max);
            kept.cut(now, BETA, WINDOW_LEAST);
            kept.limit(most);
            kept.w_max = kept.w_max.min(most / BETA);
            kept.set_k();
            kept.raise(w);
            self.cubic = kept;
        }
        (self.begun, self.congested_at, self.drain, self.empty_since) = (now, now, None, None);
        self.follows = RateResponse::default();
        self.restore = rate;
    }

    /// Ends a competition in a queue of its own, while so much arrives, in bit/s.
    pub(super) fn end_own(&mut self, now: f64, carried: f64) {
        self.ended = Some((now, self.cubic, carried));
    }

    pub(super) fn update(
        &mut self,
        input: &LawInput<'_>,
        chance: &mut LossClassifier,
        target: f64,
        config: &Config,
    ) -> Transition {
        let LawInput { now, dt, rtt, signals, .. } = *input;
        let q = signals.q;
        let received = signals.carries(rtt.max(RECEIVED_SPAN), input.rate);
        for (sent, came) in &input.feedback.rows {
            self.follows.see(now, *sent, *came);
        }
        let shared = input.is_shared();
        let follows_not = !input.feedback.rows.is_empty() && self.follows.is_near(0.0, FOLLOWS) && !shared;
        if follows_not || signals.trains.shows_own_queue(2) {
            let carried = received.unwrap_or(input.rate);
            self.end_own(now, carried);
            return Transition::Switch(carried, OWN_QUEUE);
        }
        let mut cubic = self.cubic;
        let mut rule = "compete: up";
        if input.loss.is_some() || input.mark {
            let congested = match &input.loss {
                Some(loss) => chance.see(now, loss, config.bits / input.rate) || loss.q > DRAIN_ABOVE,
                None => true,
            };
            if congested {
                (self.loss_gap, self.congested_at) = (now - self.congested_at, now);
            }
            cubic.cut(now, if input.loss.is_some() { BETA } else { NEARLY }, WINDOW_LEAST);
            // Where trains show that the queue is shared, a drain shows nothing: BBR, too, lets its queue go.
            // A source of frames sends less than it may, and unevenly. What receivers decide is sent a round trip
            // later. Beside a TCP both drains too often show nobody.
            let may = !(config.frames || config.receivers) || self.follows.shared(now) == Some(false);
            let drains = may && !shared && input.relation.is_limiting && q > DRAIN_ABOVE;
            if let Some(received) = received.filter(|_| drains) {
                let length = (q / (1.0 - config.yield_to)).min(A_MOMENT) + rtt;
                self.drain = Some(Drain { until: now + length, q, received });
            }
            self.restore = BETA * received.unwrap_or(0.0);
            rule = "compete: loss";
        } else {
            let before = cubic.w;
            if shared && input.share.is_some_and(|share| share > 0.5) {
                // Beside anybody more than half is not fair.
                cubic.epoch += dt;
            } else {
                cubic.grow(now, dt, rtt, START_UP);
            }
            // What the session's cap leaves unused does not grow (RFC 9438, 5.8).
            cubic.limit((config.cap * rtt / SEGMENT_BITS).max(before));
            cubic.limit((signals.usage_limit() * rtt / SEGMENT_BITS).max(before));
            if let Some(received) = received.filter(|_| !input.relation.is_limiting) {
                // A window that is not used does not grow (RFC 9438, 5.8), and one that is a little less than what
                // arrives without a loss, whoever asked for it, is so by chance.
                let most = (AHEAD * received + 2.0 * config.bits / rtt) * rtt / SEGMENT_BITS;
                cubic.limit(most.max(before));
                let used = received * rtt / SEGMENT_BITS;
                if self.drain.is_none_or(|drain| now > drain.until + rtt) && cubic.w > NOT_ALL * used {
                    cubic.raise(used);
                }
            }
        }
        if let Some(most) = self.equation(input, cubic.friendly(now, rtt), config) {
            cubic.limit(most);
        }
        self.cubic = cubic;
        let carries = cubic.w * SEGMENT_BITS / rtt;
        let mut rate = carries;
        if config.frames && input.relation.is_limiting {
            // Encoders use less than they are granted. A TCP fills its window.
            rate *= signals.spare(now, A_WHILE).clamp(1.0, AHEAD);
        }
        let lately = if config.frames { signals.carries_lately(input.rate) } else { received };
        if let Some(received) = lately.filter(|_| !signals.is_idle(now, NOT_ALL)) {
            // What acknowledgements do for TCP: without it the rate jumps after a drain, when rtt is small and w is
            // not. Up to what a drain or an experiment gave away it may jump.
            rate = rate.min((AHEAD * received + 2.0 * config.bits / rtt).max(self.restore));
        }
        if let Some(drain) = self.drain.filter(|drain| now < drain.until) {
            rate = rate.min(config.yield_to * drain.received);
            rule = "compete: drain";
            let emptied = signals.low(0.5 * LOW_SPAN) < target.min(LITTLE * drain.q).max(WAITS);
            if emptied && !shared && self.may_leave(now) {
                return Transition::Switch(received.unwrap_or(carries), "delay: drained");
            }
        }
        if self.is_over(input, target, config) && !chance.is_policed(now) {
            return Transition::Switch(received.unwrap_or(rate), "delay: queue is empty");
        }
        Transition::Stay(rate, rule)
    }

    /// The window in segments that TCP's equation gives at the share of lost packets, time-outs included (RFC 5348,
    /// 3.1), where Reno's growth rules: beside a short queue TCP's bursts lose more than paced packets do.
    fn equation(&mut self, input: &LawInput<'_>, friendly: bool, config: &Config) -> Option<f64> {
        let LawInput { dt, rtt, feedback, .. } = *input;
        let gain = (dt / KEPT).min(1.0);
        self.told += gain * (f64::from(feedback.arrived + feedback.lost) - self.told);
        self.lost += gain * (f64::from(feedback.lost) - self.lost);
        let loss = LossRate::new(self.lost / self.told).filter(|_| friendly)?;
        let timeout = (f64::from(SEVERAL) * rtt).max(CUT_SCALE);
        Some(config.equation * rtt / time_per_packet(loss, rtt, timeout, 1.0))
    }

    /// Whether it has lasted long enough to be left.
    fn may_leave(&self, now: f64) -> bool {
        now - self.begun > 0.5 * A_WHILE
    }

    /// Whether the queue is empty though nobody lost anything lately.
    fn is_over(&mut self, input: &LawInput<'_>, target: f64, config: &Config) -> bool {
        let LawInput { now, rtt, signals, .. } = *input;
        let near = if self.high > DRAIN_ABOVE { (LITTLE * self.high).max(WAITS) } else { 0.5 * target };
        if signals.low(2.0 * config.report_every) < near {
            self.empty_since.get_or_insert(now);
        } else {
            self.empty_since = None;
        }
        let calm = now - self.congested_at > (MORE * self.loss_gap).max(rtt / GAIN_ROUND).max(0.5 * A_WHILE);
        let empty = self.empty_since.is_some_and(|since| now - since > config.report_most) && !input.is_shared();
        empty && calm && self.follows.shared(now) != Some(true) && self.may_leave(now)
    }
}
