use super::Config;
use super::constants::{BETA_S, BETA_V, D_FILT, FPS, GAMMA_MAX, LEAST_TIMEOUT, MOST_INTERVALS, MOST_SHAPING, Q_BOUND};
use super::message::Message;
use crate::fields::ABSURD_RTT;
use crate::no_feedback_timer::NoFeedbackTimer;
use crate::{Decision, ExtraSent, Limit, MediaQueue, ReceiverId, Report, SenderHalf, Sent, Wake, Why};
use std::collections::VecDeque;
use steadycast_units::{Rate, Span, Time};

/// Number of reports over which the minimum round-trip time is taken (ns3-rmcat).
const RTTS: usize = 15;
/// Computes the reference rate r (RFC 8698, section 4.3).
///
/// ```text
///  rmode 0:  γ = min( 0.5, QBOUND / (rtt + DELTA + DFILT) ),   r ← max( r, (1 + γ) r_recv )
///
///                 ⎛       δ   x − PRIO XREF RMAX/r         x − x_prev  ⎞
///  rmode 1:  r ← r⎜1 − κ ─── ────────────────────── − κ η  ─────────── ⎟
///                 ⎝       τ            τ                        τ      ⎠
/// ```
///
/// The equation is multiplied by the rate to avoid a division by the rate. If the signal is at its maximum, the receive
/// rate also limits the result. The RFC does not have this rule.
#[derive(Clone, Debug, Default)]
struct Law {
    config: Config,
    rate: f64,
    x_prev: f64,
}

impl Law {
    fn gamma(&self, rtt: f64) -> f64 {
        let config = &self.config;
        (Q_BOUND.as_secs_f64() / (rtt + config.delta.as_secs_f64() + D_FILT.as_secs_f64())).min(GAMMA_MAX)
    }

    fn update(&mut self, message: &Message, rtt: f64, delta: Span) {
        let config = &self.config;
        // Limit x to the maximum that our own receiver sends, so that a higher value does not reduce the rate further.
        let x = message.x.as_secs_f64().min(config.x_max);
        if message.gradual {
            // These terms are multiplied by the rate, to avoid a division by the rate (RFC 8698, section 4.3).
            let offset = self.rate * x - config.prio * config.x_ref * config.r_max;
            let change = self.rate * (x - self.x_prev);
            let by = delta.as_secs_f64() / config.tau * offset / config.tau + config.eta * change / config.tau;
            self.rate -= config.kappa * by;
            if config.own_rules && x >= config.x_max {
                self.rate = self.rate.min(message.received.as_bps_f64());
            }
        } else {
            // Take the maximum, because a ramp-up does not lower the rate (RFC 8698, section 4.3).
            self.rate = self.rate.max((1.0 + self.gamma(rtt)) * message.received.as_bps_f64());
        }
        self.set(self.rate);
        self.x_prev = x;
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(self.config.r_min, self.config.r_max);
    }

    /// Returns the rate of the encoder and the rate at which the sender sends, if `waiting` bytes are queued (RFC 8698,
    /// section 5.2.2).
    fn shaped(&self, waiting: f64) -> (f64, f64) {
        let config = &self.config;
        // Limit the change, so that a large frame does not change the rates much.
        let by = |beta: f64| (beta * 8.0 * waiting * FPS).min(MOST_SHAPING * self.rate);
        ((self.rate - by(BETA_V)).max(config.r_min.min(self.rate)), (self.rate + by(BETA_S)).min(config.r_max))
    }
}

#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    law: Law,
    no_feedback: NoFeedbackTimer,
    rtts: VecDeque<Span>,
    /// When the rate was last updated. Before the first update: when the first packet was sent.
    updated: Option<Time>,
    waiting: f64,
    loss: Option<f64>,
    rule: &'static str,
    starting: bool,
    by: Option<ReceiverId>,
}

impl Sender {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            law: Law { config: *config, rate: config.r_min, x_prev: 0.0 },
            rule: "least rate until the first report",
            starting: true,
            config: *config,
            ..Self::default()
        }
    }

    fn rtt(&self) -> Option<Span> {
        self.rtts.iter().min().copied()
    }

    fn timeout(&self) -> Span {
        LEAST_TIMEOUT.max(self.config.delta * 2 + self.rtt().unwrap_or_default())
    }

    fn sent(&mut self, at: Time) {
        self.updated.get_or_insert(at);
        self.no_feedback.on_sent(at, self.timeout());
    }

    fn measure(&mut self, rtt: Option<Span>) {
        // Ignore implausible values from the network.
        let Some(rtt) = rtt.filter(|rtt| *rtt < ABSURD_RTT) else { return };
        self.rtts.push_back(rtt);
        while self.rtts.len() > RTTS {
            self.rtts.pop_front();
        }
    }

    fn update(&mut self, now: Time, message: &Message) {
        let since = self.updated.map_or(self.config.delta, |at| now.since(at));
        // Limit the time, so that missing reports do not lead to a large step.
        let delta = since.min(self.config.delta * MOST_INTERVALS);
        self.updated = Some(now);
        self.law.update(message, self.rtt().unwrap_or_default().as_secs_f64(), delta);
        self.rule = if message.gradual { "gradual update" } else { "accelerated ramp-up" };
        self.starting &= !message.gradual;
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent(sent.at);
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.sent(sent.at);
    }

    fn on_queue(&mut self, queue: &MediaQueue) {
        self.waiting = queue.waiting.as_f64();
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let now = report.at;
        let Some(message) = report.body.and_then(Message::read) else { return };
        self.measure(report.rtt);
        self.no_feedback.on_feedback(now);
        self.by = Some(report.from);
        self.loss = report.reception.map(|r| r.fraction.clamp(0.0, 1.0));
        self.update(now, &message);
    }

    fn on_timer(&mut self, now: Time) {
        if self.no_feedback.has_expired(now) {
            self.law.rate = (self.law.rate / 2.0).max(self.config.floor);
            self.rule = "no feedback: halved";
            self.starting = false;
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.no_feedback.wake()
    }

    fn decision(&self) -> Decision {
        let (target, pacing) = self.law.shaped(self.waiting);
        Decision {
            target: Rate::from_bps_f64(target),
            pacing: Rate::from_bps_f64(pacing),
            window: None,
            limit: Limit::between(self.law.rate, self.config.r_min, self.config.r_max, self.starting),
            why: Why { loss: self.loss, rtt: self.rtt(), by: self.by, ..Why::rule(self.rule) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::printed;
    use super::*;

    fn near(got: f64, want: f64, by: f64) {
        assert!((got - want).abs() <= by, "{got} is not {want}");
    }

    fn law(rate: f64, x_prev_ms: f64) -> Law {
        Law { config: printed(), rate, x_prev: x_prev_ms / 1e3 }
    }

    fn gradual(x_ms: f64) -> Message {
        Message { gradual: true, x: Span::from_secs_f64(x_ms / 1e3), received: Rate::ZERO }
    }

    #[test]
    fn the_ramp_up_is_slower_the_longer_the_round_trip() {
        for (rtt, want) in [(0.0, 0.2273), (0.05, 0.1852), (0.1, 0.156_25), (0.2, 0.1190), (0.3, 0.0962)] {
            near(law(1e6, 0.0).gamma(rtt), want, 5e-5);
        }
        let mut law = law(300e3, 0.0);
        let message = |kbps| Message { gradual: false, x: Span::millis(4), received: Rate::kbps(kbps) };
        law.update(&message(400), 0.1, Span::millis(100));
        near(law.rate, 400e3 * 1.156_25, 1.0);
        // The ramp-up does not lower the rate, but it stores the signal.
        law.update(&message(100), 0.1, Span::millis(100));
        near(law.rate, 400e3 * 1.156_25, 1.0);
        near(law.x_prev, 0.004, 1e-9);
    }

    #[test]
    fn the_gradual_update_has_its_derived_values() {
        let cases = [
            (1e6, 15.0, 15.0, 1e6),
            (1e6, 20.0, 15.0, 989e3),
            (1e6, 20.0, 20.0, 999e3),
            (500e3, 0.0, 0.0, 503e3),
            (1.5e6, 30.0, 10.0, 1_434e3),
        ];
        for (rate, x, x_prev, want) in cases {
            let mut law = law(rate, x_prev);
            law.update(&gradual(x), 0.1, Span::millis(100));
            near(law.rate, want, 1.0);
            near(law.x_prev, x / 1e3, 1e-9);
        }
    }

    #[test]
    fn the_rate_rests_where_the_signal_is_in_inverse_proportion_to_it() {
        // The rate does not change if the signal is x* = 10 ms · 1.5 Mb/s / r. The last two columns are the loss rate,
        // and the share of marked packets. Each of the two alone causes this signal.
        for (rate, x, loss, marks) in
            [(1e6, 15.0, 0.0122, 0.0274), (500e3, 30.0, 0.0173, 0.0387), (150e3, 100.0, 0.0316, 0.0707)]
        {
            let mut law = law(rate, x);
            law.update(&gradual(x), 0.1, Span::millis(100));
            near(law.rate, rate, 1.0);
            near((x / 10.0f64).sqrt() / 100.0, loss, 1e-4);
            near((x / 2.0f64).sqrt() / 100.0, marks, 1e-4);
        }
    }

    #[test]
    fn a_signal_that_falls_from_300_to_4_ms_multiplies_the_rate_once_by_1_59_and_no_more_than_to_its_limit() {
        let mut law = Law { rate: 500e3, ..law(0.0, 300.0) };
        law.update(&gradual(4.0), 0.1, Span::millis(100));
        near(law.rate / 500e3, 1.592 + 0.1 * 0.052, 0.001);
        (law.rate, law.x_prev) = (1.4e6, 0.3);
        law.update(&gradual(4.0), 0.1, Span::millis(100));
        near(law.rate, 1.5e6, 1e-6);
        law.update(&gradual(3_000.0), 0.1, Span::millis(200));
        near(law.rate, 150e3, 1e-6);
    }

    #[test]
    fn a_rate_of_zero_comes_back_and_whatever_the_signal_does_no_rate_is_not_a_number() {
        let config = Config { r_min: 0.0, floor: 0.0, ..printed() };
        let mut law = Law { config, ..law(500e3, 0.0) };
        // x jumps from 0 to 3 s. So the factor of the rate is negative.
        law.update(&gradual(3_000.0), 0.1, Span::millis(200));
        assert_eq!(law.rate, 0.0);
        // Only the term that does not depend on the rate is left: 0.5 · 0.1 s · 10 ms · 1.5 Mb/s / (0.5 s)².
        law.update(&gradual(0.0), 0.1, Span::millis(100));
        near(law.rate, 3_000.0, 1e-6);
    }

    #[test]
    fn at_the_greatest_signal_no_more_is_sent_than_arrives_but_as_printed() {
        // The rate falls by 0.5 · 0.1 s · (3.2767 s · 500 kb/s − 10 ms · 1.5 Mb/s) / (0.5 s)². So it falls to 175 kb/s.
        for (own_rules, want) in [(true, 160e3), (false, 175_330.0)] {
            let mut law = Law { config: Config { own_rules, ..printed() }, ..law(500e3, 3_276.7) };
            let message = Message { gradual: true, x: Span::micros(3_276_700), received: Rate::kbps(160) };
            law.update(&message, 0.1, Span::millis(100));
            near(law.rate, want, 1.0);
        }
    }

    #[test]
    fn two_thousand_waiting_bytes_move_both_rates_by_48_kb_s_and_many_by_a_twentieth() {
        let law = law(1e6, 0.0);
        assert_eq!(law.shaped(0.0), (1e6, 1e6));
        assert_eq!(law.shaped(2_000.0), (952e3, 1_048e3));
        assert_eq!(law.shaped(20_000.0), (950e3, 1_050e3));
        assert_eq!(Law { rate: 1.49e6, ..law.clone() }.shaped(20_000.0).1, 1.5e6);
        assert_eq!(Law { rate: 151e3, ..law }.shaped(20_000.0).0, 150e3);
    }
}
