//! COMPETE: the control law of a flow that shares a queue with an elastic flow, such as a TCP. It paces CUBIC's window
//! (RFC 9438). When tests show that no other flow shares the queue, the law DELAY ([`super::delay`]) begins.
//!
//! The rules of [`CompeteLaw::update`], in order:
//!
//! 1. DELAY begins if a scheduler serves this flow's queue separately. [`RateResponse`] or two packet trains
//!    ([`super::trains`]) show this.
//! 2. A loss or a mark cuts the window. A drain may follow ([`CompeteLaw::may_drain`]): less is sent for a moment, to
//!    see whether the queue empties.
//! 3. Without a loss or a mark, the window grows as CUBIC's does, up to the session's cap and what the source uses.
//! 4. In CUBIC's Reno-friendly region, TCP's throughput equation limits the window ([`CompeteLaw::equation_window`]).
//! 5. The receive rate limits the rate ([`rate_limit`]).
//! 6. If a drain has emptied the queue and no other flow refills it, DELAY begins.
//! 7. If the queue has stayed empty without a loss, DELAY begins ([`CompeteLaw::is_over`]).

use super::Config;
use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::signals::RECEIVED_SPAN_MIN;
use super::verdict::{CERTAIN_CONGESTION_QUEUE, LossClassifier, RateResponse};
use crate::equation::{LossRate, time_per_packet};

/// The name of the rule that ends COMPETE because no other flow shares the queue.
pub(super) const OWN_QUEUE: &str = "delay: a queue of its own";

// CUBIC (RFC 9438).

/// CUBIC's constant C in segments per cubic second (section 5).
const CUBIC_C: f64 = 0.4;
/// The factor by which a loss multiplies the window (section 4.6).
pub(super) const CUBIC_BETA: f64 = 0.7;
/// The factor by which a mark multiplies the window (RFC 8511).
const ECN_BETA: f64 = 0.85;
/// The additive increase of the Reno-friendly window, in segments per round trip. Because CUBIC's cut is smaller than
/// Reno's, this increase gives Reno's mean window (section 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// The window grows to at most this many times its size in a round trip (section 4.2).
const ROUND_GROWTH_MAX: f64 = 1.5;
/// The least window, in segments.
pub(super) const WINDOW_MIN: f64 = 2.0;
/// Before the first loss, a window starts at this share of W_max, the plateau of CUBIC's curve.
const PLATEAU_SHARE: f64 = 0.85;
/// The factor by which the window grows per round trip until the first loss. Growth is exponential because a TCP that
/// began at the same time is in slow start, too.
const SLOW_START_GROWTH: f64 = 1.35;

// Limits of the window and of the rate.

/// The rate is at most this many times the receive rate, plus two packets per round trip ([`rate_limit`]).
const RECEIVED_RATE_MULTIPLE_MAX: f64 = 1.2;
/// A source of frames is allowed at most this many times the window's rate.
const GRANT_MULTIPLE_MAX: f64 = 1.2;
/// The span over which the usage of a source of frames is measured, in seconds. An encoder that uses less than its rate
/// is allowed more, so that it sends what a TCP would send.
const GRANT_SPAN: f64 = 2.0;
/// If the flow has more than this share of the queue, it has more than its fair share.
const FAIR_SHARE_MAX: f64 = 0.5;
/// The time constant of the loss rate of TCP's equation, in seconds.
const LOSS_RATE_MEMORY: f64 = 20.0;
/// Of packets lost in a row, at most this many are counted in the loss rate of TCP's equation. A full queue drops a few
/// packets in a row. A silence of the path drops all packets that were sent in it, but a TCP responds to that once only
/// (RFC 5348, 5.2: one loss event per round trip). Set by `crates/sim/tests/all/handover.rs`.
const LOSS_RUN_PACKETS_MAX: f64 = 3.0;
/// Behind a policer, a TCP's loss rate is assumed to be this many times this flow's loss rate, because a policer drops
/// the end of a TCP's burst, but few paced packets.
///
/// In eight random networks of 0.7 to 6 Mb/s, a CUBIC flow in this flow's place had 2.2 to 4 times the loss rate. With
/// factors of 2.2 and 5, more random networks exceeded a bound of `steadycast experiment networks --draw`.
const POLICED_LOSS_MULTIPLE: f64 = 3.0;
/// The retransmission timeout of TCP's equation, in round trips (RFC 5348, 3.1).
const TIMEOUT_RTTS: f64 = 4.0;
/// The least retransmission timeout, in seconds (Linux).
const TIMEOUT_MIN: f64 = 0.2;

// The tests for the absence of other flows.

/// The queue counts as unshared if this number of trains in a row have shown that.
pub(super) const OWN_QUEUE_TRAINS: u32 = 2;
/// A drain is made only if the queueing delay is above this, in seconds. In a shorter queue, the effect of a drain
/// would not be visible.
const DRAIN_QUEUE_MIN: f64 = 0.020;
/// The longest drain in addition to a round trip, in seconds.
const DRAIN_TIME_MAX: f64 = 0.3;
/// After a cut, the rate may jump back to this share of the receive rate before the cut.
const RESTORED_SHARE: f64 = 0.7;
/// The span over which the queueing delay is measured in a drain, in seconds.
const DRAIN_LOW_SPAN: f64 = 0.030;
/// A drain has emptied the queue if the queueing delay is below the target, and below this share of the delay at its
/// start.
const DRAINED_SHARE_MAX: f64 = 0.1;
/// A drain has also emptied the queue if the queueing delay is below this value, in seconds.
const DRAINED_DELAY_MAX: f64 = 0.003;
/// COMPETE lasts at least this long, in seconds.
const COMPETE_TIME_MIN: f64 = 1.0;
/// The half-life of the highest queueing delay, in seconds.
const HIGH_QUEUE_HALF_LIFE: f64 = 10.0;
/// The initial value of the highest queueing delay, in seconds.
const HIGH_QUEUE_INITIAL: f64 = 0.010;
/// If the highest queueing delay is above this, in seconds, the queue counts as empty below a share of that delay
/// ([`EMPTY_SHARE_MAX`]). Otherwise it counts as empty below half of the target.
const HIGH_QUEUE_MIN: f64 = 0.020;
/// The queue counts as empty below this share of the highest queueing delay.
const EMPTY_SHARE_MAX: f64 = 0.1;
/// The lower bound, in seconds, of the delay below which the queue counts as empty.
const EMPTY_DELAY_MIN: f64 = 0.003;
/// An empty queue ends COMPETE only if the last congestion loss was longer ago than this many times the gap between the
/// last two congestion losses.
const CALM_LOSS_GAPS: f64 = 1.5;
/// An empty queue ends COMPETE only after ten round trips without a congestion loss. This is the inverse of that
/// number.
const CALM_PER_RTT: f64 = 0.1;
/// An empty queue ends COMPETE only after this time without a congestion loss, in seconds.
const CALM_TIME_MIN: f64 = 1.0;
/// The assumed time between two congestion losses until two were observed, in seconds.
const LOSS_GAP_INITIAL: f64 = 1.0;
/// If COMPETE ended in an unshared queue and begins again soon, it continues with its old window. "Soon" is within this
/// time, in seconds, plus ten round trips.
const REUSED_WINDOW_TIME: f64 = 10.0;
/// The inverse of the ten round trips that are added to [`REUSED_WINDOW_TIME`]. The round-trip time is divided by it.
const REUSED_WINDOW_PER_RTT: f64 = 0.1;

/// CUBIC's window, in segments, with the names of RFC 9438.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    cwnd: f64,
    w_max: f64,
    w_est: f64,
    epoch_start: f64,
    k: f64,
    /// Whether the window grows exponentially: the session competes for the first time, and nothing was lost yet.
    slow_start: bool,
}

impl Cubic {
    /// Creates a window before its first loss. Its plateau lies above it, so that it grows from the beginning.
    fn new(now: f64, cwnd: f64) -> Self {
        let w_max = cwnd / PLATEAU_SHARE;
        let mut cubic = Self { cwnd, w_max, w_est: cwnd, epoch_start: now, k: 0.0, slow_start: false };
        cubic.set_k();
        cubic
    }

    /// Computes K: the time in seconds from the start of the epoch at which the cubic window reaches its plateau
    /// (equation 2).
    fn set_k(&mut self) {
        self.k = libm::cbrt((self.w_max - self.cwnd).max(0.0) / CUBIC_C);
    }

    /// Returns the cubic window at `t` seconds after the epoch's start (equation 1).
    fn w_cubic(&self, t: f64) -> f64 {
        let t = t - self.k;
        CUBIC_C * t * t * t + self.w_max
    }

    /// Cuts the window, with fast convergence (section 4.7).
    fn cut(&mut self, now: f64, beta: f64) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + beta) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * beta).max(WINDOW_MIN);
        self.w_est = self.cwnd;
        self.epoch_start = now;
        self.slow_start = false;
        self.set_k();
    }

    /// Grows the window over `dt` seconds (sections 4.2 to 4.5): to the cubic window, or to the Reno-friendly one if
    /// that is larger.
    fn grow(&mut self, now: f64, dt: f64, rtt: f64) {
        if self.slow_start {
            self.cwnd *= libm::pow(SLOW_START_GROWTH, dt / rtt);
            (self.w_max, self.w_est, self.epoch_start, self.k) = (self.cwnd, self.cwnd, now, 0.0);
            return;
        }
        let alpha = if self.w_est < self.w_max { RENO_ALPHA } else { 1.0 };
        self.w_est += alpha * dt / rtt;
        let goal = self.w_cubic(now - self.epoch_start + rtt).clamp(self.cwnd, ROUND_GROWTH_MAX * self.cwnd);
        self.cwnd = (self.cwnd + (goal - self.cwnd) * (dt / rtt).min(1.0)).max(self.w_est);
    }

    /// Whether the Reno-friendly window is the larger one (section 4.3).
    fn is_reno_friendly(&self, now: f64, rtt: f64) -> bool {
        !self.slow_start && self.w_est >= self.w_cubic(now - self.epoch_start + rtt)
    }

    fn limit(&mut self, most: f64) {
        self.cwnd = self.cwnd.min(most.max(WINDOW_MIN));
        self.w_est = self.w_est.min(self.cwnd);
    }

    fn raise(&mut self, least: f64) {
        self.cwnd = self.cwnd.max(least);
        self.w_est = self.w_est.max(self.cwnd.min(self.w_max));
    }
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    until: f64,
    /// The queueing delay at the beginning of the drain, in seconds.
    q: f64,
    /// The receive rate at the beginning of the drain, in bit/s.
    received: f64,
}

/// The window of a COMPETE phase that ended in an unshared queue. If two flows yield at the same time, each takes the
/// queue for an unshared one. COMPETE then begins again soon, with this window.
#[derive(Clone, Copy, Debug)]
struct EndedCompetition {
    at: f64,
    cubic: Cubic,
    /// The receive rate, in bit/s.
    path_rate: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CompeteLaw {
    cubic: Cubic,
    begun: f64,
    /// Whether the session has left COMPETE before.
    pub(super) left: bool,
    ended: Option<EndedCompetition>,
    congested_at: f64,
    /// The time between the last two congestion losses, in seconds.
    loss_gap: f64,
    drain: Option<Drain>,
    empty_since: Option<f64>,
    /// The highest queueing delay of the recent past, in seconds. It decays with [`HIGH_QUEUE_HALF_LIFE`].
    pub(super) high_queue: f64,
    /// The mean number of reported packets per report.
    packets: f64,
    /// The mean number of lost packets per report.
    lost: f64,
    response: RateResponse,
    /// The receive rate never limits the rate to less than this, in bit/s, because the path carried this rate before
    /// the last cut.
    pub(super) restore: f64,
}

impl CompeteLaw {
    pub(super) fn new() -> Self {
        Self { loss_gap: LOSS_GAP_INITIAL, high_queue: HIGH_QUEUE_INITIAL, ..Self::default() }
    }

    /// Updates the highest queueing delay. This is done in all modes, because COMPETE needs the value from its
    /// beginning.
    pub(super) fn update_high_queue(&mut self, q: f64, dt: f64) {
        self.high_queue = (self.high_queue * libm::exp2(-dt / HIGH_QUEUE_HALF_LIFE)).max(q);
    }

    pub(super) fn begin(&mut self, now: f64, rate: f64, rtt: f64) {
        let cwnd = (rate * rtt / SEGMENT_BITS).max(WINDOW_MIN);
        self.cubic = Cubic { slow_start: !self.left, ..Cubic::new(now, cwnd) };
        if let Some(EndedCompetition { at, cubic: mut kept, path_rate }) = self.ended.take()
            && now - at < REUSED_WINDOW_TIME + rtt / REUSED_WINDOW_PER_RTT
        {
            // The round-trip time may be shorter than before, so the old window may now be too large for the path rate
            // that it carried.
            let most = path_rate * rtt / SEGMENT_BITS;
            // COMPETE begins after a loss or in a standing queue, so the old window is cut as after a loss.
            kept.cwnd = kept.w_cubic(now - kept.epoch_start).clamp(0.0, kept.w_max);
            kept.cut(now, CUBIC_BETA);
            kept.limit(most);
            kept.w_max = kept.w_max.min(most / CUBIC_BETA);
            kept.set_k();
            kept.raise(cwnd);
            self.cubic = kept;
        }
        (self.begun, self.congested_at, self.drain, self.empty_since) = (now, now, None, None);
        self.response = RateResponse::default();
        self.restore = rate;
    }

    /// Ends COMPETE in an unshared queue, which carries `path_rate` in bit/s.
    pub(super) fn end_in_own_queue(&mut self, now: f64, path_rate: f64) {
        self.ended = Some(EndedCompetition { at: now, cubic: self.cubic, path_rate });
    }

    pub(super) fn update(
        &mut self,
        input: &LawInput<'_>,
        losses: &mut LossClassifier,
        target: f64,
        config: &Config,
    ) -> Transition {
        let LawInput { now, rtt, signals, .. } = *input;
        let received = signals.path_rate(rtt.max(RECEIVED_SPAN_MIN), input.rate);
        for (sent, received) in &input.feedback.rows {
            self.response.add(now, *sent, *received);
        }
        if self.shows_own_queue(input) {
            let path_rate = received.unwrap_or(input.rate);
            self.end_in_own_queue(now, path_rate);
            return Transition::Switch(path_rate, OWN_QUEUE);
        }
        let mut cubic = self.cubic;
        let mut rule = "compete: up";
        if input.loss.is_some() || input.mark {
            self.on_congestion(&mut cubic, input, losses, received, config);
            rule = "compete: loss";
        } else {
            self.grow(&mut cubic, input, config);
        }
        let losses_of_tcp = if losses.is_policed(now) { POLICED_LOSS_MULTIPLE } else { 1.0 };
        if let Some(most) = self.equation_window(input, cubic.is_reno_friendly(now, rtt), losses_of_tcp, config) {
            cubic.limit(most);
        }
        self.cubic = cubic;
        let window_rate = cubic.cwnd * SEGMENT_BITS / rtt;
        let mut rate = window_rate;
        if config.frames {
            // An encoder sends less than it is allowed, whereas a TCP fills its window. The encoder is therefore
            // allowed more.
            rate *= signals.rate_per_usage(now, GRANT_SPAN).clamp(1.0, GRANT_MULTIPLE_MAX);
        }
        let recent = if config.frames { signals.recent_path_rate(input.rate) } else { received };
        if let Some(received) = recent.filter(|_| !signals.is_idle(now)) {
            // The receive rate limits the rate, as acknowledgments limit a TCP. Without this limit the rate would jump
            // after a drain, because the round-trip time is short then and the window is still large.
            rate = rate.min(rate_limit(received, rtt, config).max(self.restore));
        }
        if let Some(drain) = self.drain.filter(|drain| now < drain.until) {
            rate = rate.min(config.yield_to * drain.received);
            rule = "compete: drain";
            if self.is_drained(input, &drain, target) {
                return Transition::Switch(received.unwrap_or(window_rate), "delay: drained");
            }
        }
        // Behind a policer the queue is always empty, so an empty queue is no evidence there.
        if self.is_over(input, target, config) && !losses.is_policed(now) {
            return Transition::Switch(received.unwrap_or(rate), "delay: queue is empty");
        }
        Transition::Stay(rate, rule)
    }

    /// Whether no other flow shares the queue. Packet trains ([`super::trains`]) show this, or a receive rate that does
    /// not follow the sent rate.
    ///
    /// The receive rate is ignored if trains show other flows ([`LawInput::is_shared`]).
    fn shows_own_queue(&self, input: &LawInput<'_>) -> bool {
        let by_response = !input.feedback.rows.is_empty() && self.response.shows_own_queue() && !input.is_shared();
        by_response || input.signals.trains.shows_own_queue(OWN_QUEUE_TRAINS)
    }

    /// Cuts the window. Begins a drain if the drain can show that no other flow is there.
    fn on_congestion(
        &mut self,
        cubic: &mut Cubic,
        input: &LawInput<'_>,
        losses: &mut LossClassifier,
        received: Option<f64>,
        config: &Config,
    ) {
        let LawInput { now, rtt, .. } = *input;
        let q = input.signals.q;
        let is_congestion = match &input.loss {
            Some(loss) => losses.on_loss(now, loss, config.bits / input.rate) || loss.q > CERTAIN_CONGESTION_QUEUE,
            None => true,
        };
        if is_congestion {
            (self.loss_gap, self.congested_at) = (now - self.congested_at, now);
        }
        // A random loss cuts the window as well, because a TCP in this flow's place would also respond to it.
        cubic.cut(now, if input.loss.is_some() { CUBIC_BETA } else { ECN_BETA });
        if let Some(received) = received.filter(|_| self.may_drain(input, config)) {
            let length = (q / (1.0 - config.yield_to)).min(DRAIN_TIME_MAX) + rtt;
            self.drain = Some(Drain { until: now + length, q, received });
        }
        self.restore = RESTORED_SHARE * received.unwrap_or(0.0);
    }

    /// Whether a drain may show that no other flow is there.
    fn may_drain(&self, input: &LawInput<'_>, config: &Config) -> bool {
        // A source of frames sends unevenly, and less than it may. Its drains therefore often empty the queue although
        // a TCP is there. For such a source, the response of the receive rate must confirm that the queue is not
        // shared.
        let is_reliable = !config.frames || self.response.is_shared(input.now) == Some(false);
        // If trains show a shared queue, an empty queue after a drain is no evidence, because BBR drains its queue,
        // too.
        is_reliable && !input.is_shared() && input.signals.q > DRAIN_QUEUE_MIN
    }

    fn grow(&self, cubic: &mut Cubic, input: &LawInput<'_>, config: &Config) {
        let LawInput { now, dt, rtt, signals, .. } = *input;
        let before = cubic.cwnd;
        if input.is_shared() && input.share.is_some_and(|share| share > FAIR_SHARE_MAX) {
            // The window of a flow with more than its fair share does not grow. The curve's epoch moves by the elapsed
            // time `dt`, so that the window does not jump afterwards.
            cubic.epoch_start += dt;
        } else {
            cubic.grow(now, dt, rtt);
        }
        // A window does not grow while the session's cap or the source leaves it unused (RFC 9438, 5.8).
        cubic.limit((config.cap * rtt / SEGMENT_BITS).max(before));
        cubic.limit((signals.usage_limit() * rtt / SEGMENT_BITS).max(before));
    }

    /// Returns the window in segments that TCP's equation gives at the loss rate, timeouts included (RFC 5348, 3.1);
    /// `None` outside the Reno-friendly region.
    ///
    /// The equation gets a TCP's loss rate, which is `losses_of_tcp` times this flow's loss rate. In a short queue, the
    /// bursts of a TCP lose more packets than paced packets do.
    fn equation_window(
        &mut self,
        input: &LawInput<'_>,
        is_reno_friendly: bool,
        losses_of_tcp: f64,
        config: &Config,
    ) -> Option<f64> {
        let LawInput { dt, rtt, feedback, .. } = *input;
        let gain = (dt / LOSS_RATE_MEMORY).min(1.0);
        self.packets += gain * (f64::from(feedback.arrived + feedback.lost) - self.packets);
        let lost = f64::from(feedback.lost).min(LOSS_RUN_PACKETS_MAX * f64::from(feedback.loss_runs));
        self.lost += gain * (lost - self.lost);
        let loss = LossRate::new(self.lost / self.packets).filter(|_| is_reno_friendly)?;
        let loss = LossRate::new(losses_of_tcp * loss.get()).unwrap_or(LossRate::ONE);
        let timeout = (TIMEOUT_RTTS * rtt).max(TIMEOUT_MIN);
        Some(config.equation * rtt / time_per_packet(loss, rtt, timeout, 1.0))
    }

    /// Whether COMPETE has lasted long enough to be left.
    fn may_leave(&self, now: f64) -> bool {
        now - self.begun > COMPETE_TIME_MIN
    }

    /// Whether the drain has emptied the queue and no other flow has refilled it.
    fn is_drained(&self, input: &LawInput<'_>, drain: &Drain, target: f64) -> bool {
        let empty = target.min(DRAINED_SHARE_MAX * drain.q).max(DRAINED_DELAY_MAX);
        input.signals.low(DRAIN_LOW_SPAN) < empty && !input.is_shared() && self.may_leave(input.now)
    }

    /// Whether the queue has stayed empty although the window grew and no congestion loss occurred. An elastic flow
    /// would have filled the queue.
    fn is_over(&mut self, input: &LawInput<'_>, target: f64, config: &Config) -> bool {
        let LawInput { now, rtt, signals, .. } = *input;
        let empty = if self.high_queue > HIGH_QUEUE_MIN {
            (EMPTY_SHARE_MAX * self.high_queue).max(EMPTY_DELAY_MIN)
        } else {
            0.5 * target
        };
        if signals.low(2.0 * config.report_every) < empty {
            self.empty_since.get_or_insert(now);
        } else {
            self.empty_since = None;
        }
        let calm = (CALM_LOSS_GAPS * self.loss_gap).max(rtt / CALM_PER_RTT).max(CALM_TIME_MIN);
        let is_calm = now - self.congested_at > calm;
        let is_empty = self.empty_since.is_some_and(|since| now - since > config.report_most) && !input.is_shared();
        is_empty && is_calm && self.response.is_shared(now) != Some(true) && self.may_leave(now)
    }
}

/// Returns the highest permitted rate, in bit/s, at a receive rate: a multiple of that rate, plus two packets per round
/// trip, so that a low rate can grow.
fn rate_limit(received: f64, rtt: f64, config: &Config) -> f64 {
    RECEIVED_RATE_MULTIPLE_MAX * received + 2.0 * config.bits / rtt
}
