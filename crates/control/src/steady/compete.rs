//! COMPETE: the control law of a flow that shares a queue with an elastic flow, such as a TCP. It paces CUBIC's window
//! (RFC 9438). When tests show that no other flow shares the queue, the law DELAY ([`super::delay`]) begins.
//!
//! [`CompeteLaw::update`] applies these rules in order:
//!
//! 1. DELAY begins if a scheduler serves this flow's queue separately. [`RateResponse`] shows this, or two packet
//!    trains ([`super::trains`]) do.
//! 2. A loss or a mark cuts the window. A drain may follow ([`CompeteLaw::may_drain`]): the flow sends less for a
//!    moment, to see whether the queue empties.
//! 3. If there is no loss or mark, the window grows as CUBIC's does. Its limits are the session's maximum rate and what
//!    the source uses.
//! 4. In CUBIC's Reno-friendly region, TCP's throughput equation limits the window ([`CompeteLaw::equation_window`]).
//! 5. The receive rate limits the rate ([`rate_limit`]).
//! 6. If a drain has emptied the queue and no other flow refills it, DELAY begins.
//! 7. If the queue has stayed empty without a loss, DELAY begins ([`CompeteLaw::is_over`]).

use super::Config;
use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::signals::RECEIVED_SPAN_MIN;
use super::verdict::{CERTAIN_CONGESTION_QUEUE, LossClassifier, RateResponse};
use crate::equation::{LossRate, time_per_packet};

/// Name of the rule that ends COMPETE because no other flow shares the queue.
pub(super) const OWN_QUEUE: &str = "delay: a queue of its own";

// Constants of CUBIC (RFC 9438).

/// CUBIC's constant C in segments per cubic second (section 5).
const CUBIC_C: f64 = 0.4;
/// A loss multiplies the window by this factor (section 4.6).
pub(super) const CUBIC_BETA: f64 = 0.7;
/// A mark multiplies the window by this factor (RFC 8511).
const ECN_BETA: f64 = 0.85;
/// The additive increase of the Reno-friendly window, in segments per round trip. Because CUBIC's cut is smaller than
/// Reno's, this increase gives Reno's mean window (section 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// In a round trip, the window grows to at most this multiple of its size (section 4.2).
const ROUND_GROWTH_MAX: f64 = 1.5;
/// Minimum window, in segments.
pub(super) const WINDOW_MIN: f64 = 2.0;
/// A new window starts at this fraction of W_max, the plateau of CUBIC's curve.
const PLATEAU_SHARE: f64 = 0.85;
/// Until the first loss, the window is multiplied by this factor per round trip. The growth is exponential because a
/// TCP that began at the same time is in slow start, too.
const SLOW_START_GROWTH: f64 = 1.35;

// Constants that limit the window and the rate.

/// The rate is at most this multiple of the receive rate, plus two packets per round trip ([`rate_limit`]).
const RECEIVED_RATE_MULTIPLE_MAX: f64 = 1.2;
/// If the source sends frames, its rate may exceed the window's rate by at most this factor.
const GRANT_MULTIPLE_MAX: f64 = 1.2;
/// Duration over which the usage of a source that sends frames is measured, in seconds. An encoder that uses less than
/// its rate is allowed a higher rate. It then sends as much as a TCP would.
const GRANT_SPAN: f64 = 2.0;
/// A flow that has more than this share of the queue has more than its fair share.
const FAIR_SHARE_MAX: f64 = 0.5;
/// Time constant with which the loss rate for TCP's equation is averaged, in seconds.
const LOSS_RATE_MEMORY: f64 = 20.0;
/// Maximum number of consecutive losses that count for the loss rate in TCP's equation. A full queue drops a few
/// packets in a row. A silence of the path drops all packets that were sent during it. A TCP responds to such a silence
/// only once (RFC 5348, 5.2: one loss event per round trip). The value was set with `crates/sim/tests/all/handover.rs`.
const LOSS_RUN_PACKETS_MAX: f64 = 3.0;
/// Behind a policer, a TCP is assumed to have this many times the loss rate of this flow. A policer drops the end of a
/// TCP's burst, but few paced packets.
///
/// In eight random networks of 0.7 to 6 Mb/s, a CUBIC flow in place of this flow had 2.2 to 4 times the loss rate. With
/// 2.2 or 5 instead of this value, more of the networks of `steadycast experiment networks --draw` exceeded one of its
/// bounds.
const POLICED_LOSS_MULTIPLE: f64 = 3.0;
/// Retransmission timeout in TCP's equation, in round trips (RFC 5348, 3.1).
const TIMEOUT_RTTS: f64 = 4.0;
/// Minimum retransmission timeout, in seconds (Linux).
const TIMEOUT_MIN: f64 = 0.2;

// Constants for the tests that show that no other flow shares the queue.

/// The queue counts as unshared once this number of consecutive trains have shown it.
pub(super) const OWN_QUEUE_TRAINS: u32 = 2;
/// A drain begins only if the queueing delay is above this value, in seconds. In a shorter queue, the effect of a drain
/// would not be visible.
const DRAIN_QUEUE_MIN: f64 = 0.020;
/// A drain lasts for a round trip plus at most this time, in seconds.
const DRAIN_TIME_MAX: f64 = 0.3;
/// After a cut, the rate may jump back to this fraction of the receive rate before the cut.
const RESTORED_SHARE: f64 = 0.7;
/// Duration over which the queueing delay is measured during a drain, in seconds.
const DRAIN_LOW_SPAN: f64 = 0.030;
/// A drain has emptied the queue if the queueing delay is below the target and below this fraction of its value at the
/// start of the drain.
const DRAINED_SHARE_MAX: f64 = 0.1;
/// At queueing delays below this value, in seconds, a drain has emptied the queue in any case.
const DRAINED_DELAY_MAX: f64 = 0.003;
/// Minimum duration of COMPETE, in seconds.
const COMPETE_TIME_MIN: f64 = 1.0;
/// Half-life of the highest queueing delay, in seconds.
const HIGH_QUEUE_HALF_LIFE: f64 = 10.0;
/// Initial value of the highest queueing delay, in seconds.
const HIGH_QUEUE_INITIAL: f64 = 0.010;
/// If the highest queueing delay is above this value, in seconds, the queue counts as empty below a fraction of that
/// delay ([`EMPTY_SHARE_MAX`]). Otherwise it counts as empty below half of the target.
const HIGH_QUEUE_MIN: f64 = 0.020;
/// The queue counts as empty below this fraction of the highest queueing delay.
const EMPTY_SHARE_MAX: f64 = 0.1;
/// Lower bound of [`EMPTY_SHARE_MAX`] times the highest queueing delay, in seconds.
const EMPTY_DELAY_MIN: f64 = 0.003;
/// An empty queue ends COMPETE only if no congestion loss has occurred for long enough. The required time is this
/// multiple of the gap between the last two congestion losses.
const CALM_LOSS_GAPS: f64 = 1.5;
/// An empty queue ends COMPETE only after ten round trips without a congestion loss. The round-trip time divided by
/// this constant is the duration of ten round trips.
const CALM_PER_RTT: f64 = 0.1;
/// An empty queue ends COMPETE only if no congestion loss has occurred for this time, in seconds.
const CALM_TIME_MIN: f64 = 1.0;
/// Until two congestion losses have occurred, this time between them is assumed, in seconds.
const LOSS_GAP_INITIAL: f64 = 1.0;
/// COMPETE may end in an unshared queue and begin again soon. It then continues with its old window. "Soon" means
/// within this time, in seconds, plus ten round trips.
const REUSED_WINDOW_TIME: f64 = 10.0;
/// Ten round trips are added to [`REUSED_WINDOW_TIME`]. The round-trip time divided by this constant is the duration of
/// ten round trips.
const REUSED_WINDOW_PER_RTT: f64 = 0.1;

/// CUBIC's window, in segments. The fields have the names of RFC 9438.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    cwnd: f64,
    w_max: f64,
    w_est: f64,
    epoch_start: f64,
    k: f64,
    /// Whether the window grows exponentially. True until the first loss, if the session is in COMPETE for the first
    /// time.
    slow_start: bool,
}

impl Cubic {
    /// Creates a window that had no loss yet. The plateau lies above the window, so that the window grows from the
    /// beginning.
    fn new(now: f64, cwnd: f64) -> Self {
        let w_max = cwnd / PLATEAU_SHARE;
        let mut cubic = Self { cwnd, w_max, w_est: cwnd, epoch_start: now, k: 0.0, slow_start: false };
        cubic.set_k();
        cubic
    }

    /// Computes K (equation 2). K is the time in seconds from the start of the epoch until the cubic window reaches its
    /// plateau.
    fn set_k(&mut self) {
        self.k = libm::cbrt((self.w_max - self.cwnd).max(0.0) / CUBIC_C);
    }

    /// Returns the cubic window at `t` seconds after the epoch's start (equation 1).
    fn w_cubic(&self, t: f64) -> f64 {
        let t = t - self.k;
        CUBIC_C * t * t * t + self.w_max
    }

    /// Cuts the window, and applies fast convergence (section 4.7).
    fn cut(&mut self, now: f64, beta: f64) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + beta) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * beta).max(WINDOW_MIN);
        self.w_est = self.cwnd;
        self.epoch_start = now;
        self.slow_start = false;
        self.set_k();
    }

    /// Grows the window over `dt` seconds (sections 4.2 to 4.5). The goal is the cubic window, or the Reno-friendly
    /// window if that is larger.
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

    /// Returns whether the Reno-friendly window is at least as large as the cubic window (section 4.3). Returns false
    /// while the window grows exponentially before the first loss.
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

/// The window of a COMPETE phase that ended because the queue seemed unshared. Two flows that lower their rates at the
/// same time each see an unshared queue. COMPETE then soon begins again, and continues with this window.
#[derive(Clone, Copy, Debug)]
struct EndedCompetition {
    at: f64,
    cubic: Cubic,
    /// The receive rate at the end of COMPETE, in bit/s.
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
    /// Lower bound of the limit that the receive rate sets ([`rate_limit`]), in bit/s. At the beginning of
    /// COMPETE, it is the initial rate. After a cut, it is a fraction ([`RESTORED_SHARE`]) of the receive rate before
    /// the cut.
    pub(super) restore: f64,
}

impl CompeteLaw {
    pub(super) fn new() -> Self {
        Self { loss_gap: LOSS_GAP_INITIAL, high_queue: HIGH_QUEUE_INITIAL, ..Self::default() }
    }

    /// Updates the highest queueing delay. Called in all modes, because COMPETE needs the value from its beginning.
    pub(super) fn update_high_queue(&mut self, q: f64, dt: f64) {
        self.high_queue = (self.high_queue * libm::exp2(-dt / HIGH_QUEUE_HALF_LIFE)).max(q);
    }

    pub(super) fn begin(&mut self, now: f64, rate: f64, rtt: f64) {
        let cwnd = (rate * rtt / SEGMENT_BITS).max(WINDOW_MIN);
        self.cubic = Cubic { slow_start: !self.left, ..Cubic::new(now, cwnd) };
        if let Some(EndedCompetition { at, cubic: mut kept, path_rate }) = self.ended.take()
            && now - at < REUSED_WINDOW_TIME + rtt / REUSED_WINDOW_PER_RTT
        {
            // Limit the old window to what the path carried. The round-trip time may be shorter now, so the old window
            // may be too large.
            let most = path_rate * rtt / SEGMENT_BITS;
            // Cut the old window as after a loss, because COMPETE begins after a loss or in a standing queue.
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

    /// Ends COMPETE because the queue is unshared. The queue carries `path_rate`, in bit/s.
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
            // Allow the encoder more than the window's rate. An encoder sends less than it is allowed, whereas a TCP
            // fills its window.
            rate *= signals.rate_per_usage(now, GRANT_SPAN).clamp(1.0, GRANT_MULTIPLE_MAX);
        }
        // A source of frames may have sent nothing in the last round trip, and after a silence of the path few packets
        // have arrived in it. So look back longer in both cases.
        let recent = received.filter(|_| !config.frames).or_else(|| signals.recent_path_rate(input.rate));
        if let Some(received) = recent.filter(|_| !signals.is_idle(now)) {
            // Limit the rate by the receive rate, as acknowledgments limit a TCP. Without this limit, the rate would
            // jump after a drain: the round-trip time is short then, but the window is still large.
            rate = rate.min(rate_limit(received, rtt, config).max(self.restore));
        }
        if let Some(drain) = self.drain.filter(|drain| now < drain.until) {
            rate = rate.min(config.yield_to * drain.received);
            rule = "compete: drain";
            if self.is_drained(input, &drain, target) {
                return Transition::Switch(received.unwrap_or(window_rate), "delay: drained");
            }
        }
        // Ignore an empty queue behind a policer, because it shows nothing: the queue is always empty there.
        if self.is_over(input, target, config) && !losses.is_policed(now) {
            return Transition::Switch(received.unwrap_or(rate), "delay: queue is empty");
        }
        Transition::Stay(rate, rule)
    }

    /// Returns whether no other flow shares the queue. Packet trains ([`super::trains`]) show this. A receive rate that
    /// does not follow the sent rate also shows it.
    ///
    /// The receive rate is ignored if trains show that other flows share the queue ([`LawInput::is_shared`]).
    fn shows_own_queue(&self, input: &LawInput<'_>) -> bool {
        let by_response = !input.feedback.rows.is_empty() && self.response.shows_own_queue() && !input.is_shared();
        by_response || input.signals.trains.shows_own_queue(OWN_QUEUE_TRAINS)
    }

    /// Cuts the window after a loss or a mark. Begins a drain if the drain can show that no other flow shares the
    /// queue.
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
        // Cut the window after a random loss as well, because a TCP in this flow's place would respond to the loss,
        // too.
        cubic.cut(now, if input.loss.is_some() { CUBIC_BETA } else { ECN_BETA });
        if let Some(received) = received.filter(|_| self.may_drain(input, config)) {
            let length = (q / (1.0 - config.yield_to)).min(DRAIN_TIME_MAX) + rtt;
            self.drain = Some(Drain { until: now + length, q, received });
        }
        self.restore = RESTORED_SHARE * received.unwrap_or(0.0);
    }

    /// Returns whether a drain could show that no other flow shares the queue.
    fn may_drain(&self, input: &LawInput<'_>, config: &Config) -> bool {
        // A source of frames sends unevenly, and less than it may. Its drains often empty the queue although a TCP
        // shares it. Drain only if the response of the receive rate confirms that the queue is not shared.
        let is_reliable = !config.frames || self.response.is_shared(input.now) == Some(false);
        // Do not drain if trains show a shared queue. The other flow may be a BBR, which drains the queue, too. An
        // empty queue would then not show that the queue is unshared.
        is_reliable && !input.is_shared() && input.signals.q > DRAIN_QUEUE_MIN
    }

    fn grow(&self, cubic: &mut Cubic, input: &LawInput<'_>, config: &Config) {
        let LawInput { now, dt, rtt, signals, .. } = *input;
        let before = cubic.cwnd;
        if input.is_shared() && input.share.is_some_and(|share| share > FAIR_SHARE_MAX) {
            // Do not grow the window, because this flow has more than its fair share. Move the epoch of the curve by
            // the elapsed time `dt`, so that the window does not jump afterwards.
            cubic.epoch_start += dt;
        } else {
            cubic.grow(now, dt, rtt);
        }
        // Do not grow a window that the session's maximum rate or the source leaves unused (RFC 9438, 5.8).
        cubic.limit((config.cap * rtt / SEGMENT_BITS).max(before));
        cubic.limit((signals.usage_limit() * rtt / SEGMENT_BITS).max(before));
    }

    /// Returns the window, in segments, that TCP's equation gives at the current loss rate (RFC 5348, 3.1). The
    /// equation includes timeouts. Returns `None` outside the Reno-friendly region.
    ///
    /// The equation needs the loss rate of a TCP. It is estimated as `losses_of_tcp` times this flow's loss rate. In a
    /// short queue, the bursts of a TCP lose more packets than paced packets do.
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

    /// Returns whether COMPETE has lasted long enough to end.
    fn may_leave(&self, now: f64) -> bool {
        now - self.begun > COMPETE_TIME_MIN
    }

    /// Returns whether the drain has emptied the queue and no other flow has refilled it.
    fn is_drained(&self, input: &LawInput<'_>, drain: &Drain, target: f64) -> bool {
        let empty = target.min(DRAINED_SHARE_MAX * drain.q).max(DRAINED_DELAY_MAX);
        input.signals.low(DRAIN_LOW_SPAN) < empty && !input.is_shared() && self.may_leave(input.now)
    }

    /// Returns whether the queue has stayed empty although the window grew and no congestion loss occurred. An elastic
    /// flow would have filled the queue.
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

/// Returns the highest permitted rate, in bit/s. It is a multiple of the receive rate `received`. Two packets per round
/// trip are added, so that a low rate can grow.
fn rate_limit(received: f64, rtt: f64, config: &Config) -> f64 {
    RECEIVED_RATE_MULTIPLE_MAX * received + 2.0 * config.bits / rtt
}
