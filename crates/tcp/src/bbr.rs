//! BBR version 3 (draft-ietf-ccwg-bbr). Data is counted in segments. Names are those of the draft.

use crate::delivery::{Loss, Sample};
use crate::filter::AckAggregation;
use crate::model::{AckEvent, Decision};
use crate::rounds::{
    EXTRA_ACKED_ROUNDS, FULL_BW, MIN_PIPE_CWND, MIN_RTT_FILTER, PACING_MARGIN, PriorWindow, ProbeRttDuration, Rounds,
    quantum,
};
use steadycast_settings::words;
use steadycast_units::{Chance, Span, Time};

/// The pacing gain and the window gain of Startup.
const STARTUP_GAINS: (f64, f64) = (2.77, 2.0);
/// The pacing gain of Drain.
const DRAIN_PACING_GAIN: f64 = 0.5;
/// The pacing gain of ProbeBW_DOWN.
const DOWN_PACING_GAIN: f64 = 0.9;
/// The pacing gain and the window gain of ProbeBW_UP.
const UP_GAINS: (f64, f64) = (1.25, 2.25);
/// The window gain of Drain, ProbeBW_DOWN, ProbeBW_CRUISE and ProbeBW_REFILL (BBR.DefaultCwndGain).
const CWND_GAIN: f64 = 2.0;
/// The window gain of ProbeRTT.
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// The loss rate of a round above which the path is overloaded (BBR.LossThresh).
const LOSS_THRESH: f64 = 0.02;
/// The factor by which the model's bounds are multiplied after a loss (BBR.Beta).
const BETA: f64 = 0.7;
/// The fraction of inflight_longterm that is left to other flows (BBR.Headroom).
const HEADROOM: f64 = 0.15;
/// The interval between two ProbeRTT phases (BBR.ProbeRTTInterval).
const PROBE_RTT_INTERVAL: Span = Span::secs(5);
/// Minimum number of separate lost ranges in a round. With fewer ranges, a high loss rate does not end Startup
/// (BBR.StartupFullLossCnt).
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// The maximum number of rounds in Drain.
const MAX_DRAIN_ROUNDS: u64 = 3;
/// The maximum number of rounds between two probes. The limit lets Reno flows get their share.
const MAX_PROBE_ROUNDS: f64 = 63.0;
/// The minimum time between two probes.
const PROBE_WAIT: Span = Span::secs(2);
/// The maximum random time that is added to [`PROBE_WAIT`].
const PROBE_WAIT_RANDOM: Span = Span::secs(1);

words! {
    /// The state machine of BBR.
    pub(crate) enum State {
        Startup = "startup",
        Drain = "drain",
        Down = "probe-bw-down",
        Cruise = "probe-bw-cruise",
        Refill = "probe-bw-refill",
        Up = "probe-bw-up",
        ProbeRtt = "probe-rtt",
    }
}

/// BBR.ack_phase: when the acknowledged segments were sent, relative to a bandwidth probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    chance: Chance,
    initial_cwnd: f64,
    state: State,
    pacing_gain: f64,
    cwnd_gain: f64,
    pacing: f64,

    rounds: Rounds,

    /// The maximum delivery rates of the previous and of the current ProbeBW cycle.
    max_bw: [f64; 2],
    bw_shortterm: f64,
    min_rtt: Span,
    min_rtt_stamp: Time,
    probe_rtt_min: Span,
    probe_rtt_stamp: Time,
    /// The long-term limit of the segments in flight. It is a whole number or infinite. The window is rounded down, so
    /// it would never reach a limit of 10.5, and the limit would never grow.
    inflight_longterm: f64,
    inflight_shortterm: f64,
    aggregation: AckAggregation,

    bw_latest: f64,
    inflight_latest: f64,
    loss_round_end: u64,
    loss_round_start: bool,
    loss_in_round: bool,
    loss_ranges: u32,

    full_bw: f64,
    full_bw_count: u32,
    full_bw_now: bool,
    full_bw_reached: bool,

    drained_since: u64,
    cycle_stamp: Time,
    rounds_since_probe: u64,
    probe_wait: Span,
    ack_phase: AckPhase,
    /// BBR.bw_probe_samples: whether the samples show the effect of a bandwidth probe.
    bw_probe_samples: bool,
    probe_up_rounds: u32,
    probe_up_acks: f64,
    probe_up_count: f64,
    stopped_risky: bool,
    previous_too_high: bool,

    probe_rtt_duration: ProbeRttDuration,
    prior: PriorWindow,
    idle_restart: bool,
}

impl Bbr {
    /// Creates the congestion control. `initial_cwnd` is the first window in segments.
    pub(crate) fn new(chance: Chance, initial_cwnd: f64) -> Self {
        Self {
            chance,
            initial_cwnd,
            state: State::Startup,
            pacing_gain: STARTUP_GAINS.0,
            cwnd_gain: STARTUP_GAINS.1,
            // The draft assumes an RTT of 1 ms until an RTT is measured (BBRInitPacingRate).
            pacing: STARTUP_GAINS.0 * initial_cwnd / 0.001,
            rounds: Rounds::default(),
            max_bw: [0.0; 2],
            bw_shortterm: f64::INFINITY,
            min_rtt: Span::MAX,
            min_rtt_stamp: Time::ZERO,
            probe_rtt_min: Span::MAX,
            probe_rtt_stamp: Time::ZERO,
            inflight_longterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            aggregation: AckAggregation::default(),
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_end: 0,
            loss_round_start: false,
            loss_in_round: false,
            loss_ranges: 0,
            full_bw: 0.0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drained_since: 0,
            cycle_stamp: Time::ZERO,
            rounds_since_probe: 0,
            probe_wait: PROBE_WAIT,
            ack_phase: AckPhase::Init,
            bw_probe_samples: false,
            probe_up_rounds: 0,
            probe_up_acks: 0.0,
            probe_up_count: f64::INFINITY,
            stopped_risky: false,
            previous_too_high: false,
            probe_rtt_duration: ProbeRttDuration::default(),
            prior: PriorWindow::default(),
            idle_restart: false,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.state.word()
    }

    /// Starts pacing. `rtt` is the round-trip time of the handshake.
    pub(crate) fn on_open(&mut self, now: Time, rtt: Option<Span>) {
        let took = rtt.unwrap_or(Span::millis(1)).max(Span::micros(1));
        self.pacing = STARTUP_GAINS.0 * self.initial_cwnd / took.as_secs_f64();
        if let Some(rtt) = rtt {
            (self.min_rtt, self.probe_rtt_min) = (rtt, rtt);
        }
        (self.min_rtt_stamp, self.probe_rtt_stamp) = (now, now);
        self.aggregation.restart(now);
    }

    /// Handles the first transmission after the application was idle. Returns the new window if it changes.
    pub(crate) fn on_restart(&mut self, now: Time, cwnd: f64) -> Option<f64> {
        // The queue is empty after the idle time. The next RTT samples show the minimum RTT without a ProbeRTT phase.
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.state {
            State::Down | State::Cruise | State::Refill | State::Up => {
                // Pace at the estimated bandwidth, without the gain of the phase (BBRHandleRestartFromIdle).
                self.pacing = PACING_MARGIN * self.bw();
                None
            }
            State::ProbeRtt => self.probe_rtt_duration.is_over(now).then(|| self.leave_probe_rtt(now, 0, cwnd)),
            State::Startup | State::Drain => None,
        }
    }

    /// Starts a loss recovery. `cwnd` is the window before it. `timeout` indicates whether a time-out started the
    /// recovery.
    pub(crate) fn on_recovery(&mut self, cwnd: f64, delivered: u64, timeout: bool) {
        self.prior.on_recovery(cwnd, self.state == State::ProbeRtt, delivered, timeout);
    }

    pub(crate) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        self.prior.on_recovered(cwnd)
    }

    /// Processes an acknowledgment. `losses` are the losses that it reveals.
    pub(crate) fn on_ack(&mut self, event: &AckEvent, losses: &[Loss]) -> Decision {
        self.on_losses(event, losses);
        let sample = event.sample;
        if sample.fresh > 0 {
            self.update_latest_delivery_signals(event);
            self.update_congestion_signals(event);
            // In Startup, use the last round only, because the bandwidth still grows (BBRUpdateACKAggregation).
            let length = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
            self.aggregation.on_ack(event.now, self.bw(), sample.fresh, event.cwnd, self.rounds.count, length);
            self.check_full_bw(&sample);
            self.check_startup_done(event);
            self.check_drain_done(event);
            self.update_probe_bw_cycle(event);
        }
        let cwnd = self.probe_rtt(event);
        // Restart these signals only now, after all steps that read them (BBRAdvanceLatestDeliverySignals).
        if self.loss_round_start {
            (self.bw_latest, self.inflight_latest) = (sample.rate, sample.delivered as f64);
        }
        self.set_pacing();
        let cwnd = self.window(event, cwnd.unwrap_or(event.cwnd));
        Decision {
            cwnd,
            pacing: self.pacing,
            quantum: quantum(self.pacing),
            is_self_limited: self.state == State::ProbeRtt,
        }
    }

    // ---- the model

    fn max_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    fn bw(&self) -> f64 {
        self.max_bw().min(self.bw_shortterm)
    }

    fn bdp(&self, bw: f64, gain: f64) -> f64 {
        if self.min_rtt == Span::MAX { self.initial_cwnd } else { gain * bw * self.min_rtt.as_secs_f64() }
    }

    /// Adds the quantization budget: room for bursts at the sender, at the receiver and on the path.
    fn with_quantization_budget(&self, inflight: f64) -> f64 {
        let budget = 3.0 * f64::from(quantum(self.pacing));
        inflight.max(budget).max(MIN_PIPE_CWND) + if self.state == State::Up { 2.0 } else { 0.0 }
    }

    fn inflight(&self, gain: f64) -> f64 {
        self.with_quantization_budget(self.bdp(self.max_bw(), gain))
    }

    fn with_headroom(&self) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        // Leave at least one segment to other flows (BBRInflightWithHeadroom).
        (self.inflight_longterm - (HEADROOM * self.inflight_longterm).max(1.0)).max(MIN_PIPE_CWND)
    }

    /// Returns the target of segments in flight (BBRTargetInflight). It is at most the window.
    fn target(&self, cwnd: f64) -> f64 {
        self.bdp(self.bw(), 1.0).min(cwnd)
    }

    fn update_latest_delivery_signals(&mut self, event: &AckEvent) {
        let sample = &event.sample;
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered as f64);
        if sample.prior_delivered >= self.loss_round_end {
            (self.loss_round_end, self.loss_round_start) = (event.delivered, true);
        }
    }

    fn update_congestion_signals(&mut self, event: &AckEvent) {
        let sample = &event.sample;
        self.rounds.on_ack(event);
        self.rounds_since_probe += u64::from(self.rounds.begun);
        // An application-limited sample is only a lower bound of the bandwidth. Use it only if it reaches the maximum.
        if sample.rate > 0.0 && (sample.rate >= self.max_bw() || !sample.app_limited) {
            self.max_bw[1] = self.max_bw[1].max(sample.rate);
        }
        if !self.loss_round_start {
            return;
        }
        let probes = matches!(self.state, State::Startup | State::Refill | State::Up);
        // Outside a probe, a loss multiplies the short-term bounds by `BETA`. The bounds do not fall below what the
        // last round delivered.
        if self.loss_in_round && !probes {
            let (bw, inflight) = (self.bw_shortterm, self.inflight_shortterm);
            let (bw, inflight) = (
                if bw.is_infinite() { self.max_bw() } else { bw },
                if inflight.is_infinite() { event.cwnd } else { inflight },
            );
            self.bw_shortterm = self.bw_latest.max(BETA * bw);
            self.inflight_shortterm = self.inflight_latest.max(BETA * inflight);
        }
        self.check_startup_high_loss(event);
        self.loss_in_round = false;
        self.loss_ranges = 0;
    }

    fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (f64::INFINITY, f64::INFINITY);
    }

    fn start_round(&mut self, delivered: u64) {
        self.rounds.next = delivered;
    }

    // ---- Startup and Drain

    fn reset_full_bw(&mut self, bw: f64) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (bw, 0, false);
    }

    fn check_full_bw(&mut self, sample: &Sample) {
        // Ignore application-limited rounds, because they do not show the path's capacity.
        if self.full_bw_now || !self.rounds.begun || sample.app_limited || sample.rate == 0.0 {
            return;
        }
        if sample.rate >= self.full_bw * FULL_BW.0 {
            self.reset_full_bw(sample.rate);
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW.1;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// Ends Startup if the loss in the round was too high (BBRCheckStartupHighLoss).
    fn check_startup_high_loss(&mut self, event: &AckEvent) {
        let high_loss = exceeds_loss_thresh(event.sample.lost as f64, f64::from(event.sample.in_flight));
        let settled = event.recovering && !self.prior.is_conserving(event);
        if self.state == State::Startup && settled && high_loss && self.loss_ranges >= STARTUP_FULL_LOSS_COUNT {
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp(self.max_bw(), 1.0).max(self.inflight_latest).trunc();
        }
    }

    fn check_startup_done(&mut self, event: &AckEvent) {
        if self.state == State::Startup && self.full_bw_reached {
            self.enter(State::Drain, DRAIN_PACING_GAIN, CWND_GAIN);
            self.drained_since = self.rounds.count;
            self.start_round(event.delivered);
        }
    }

    fn check_drain_done(&mut self, event: &AckEvent) {
        let drained = f64::from(event.in_flight) <= self.inflight(1.0);
        if self.state == State::Drain && (drained || self.rounds.count > self.drained_since + MAX_DRAIN_ROUNDS) {
            self.start_probe_bw_down(event);
        }
    }

    fn enter(&mut self, state: State, pacing: f64, cwnd: f64) {
        (self.state, self.pacing_gain, self.cwnd_gain) = (state, pacing, cwnd);
    }

    // ---- ProbeBW

    fn start_probe_bw_down(&mut self, event: &AckEvent) {
        (self.loss_in_round, self.bw_latest, self.inflight_latest) = (false, 0.0, 0.0);
        self.probe_up_count = f64::INFINITY;
        // Start at a random point, so that flows that share a bottleneck do not probe at the same time.
        self.rounds_since_probe = u64::from(self.chance.bits32() & 1);
        self.probe_wait = PROBE_WAIT + self.chance.span_between(Span::ZERO, PROBE_WAIT_RANDOM);
        self.cycle_stamp = event.now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(event.delivered);
        self.enter(State::Down, DOWN_PACING_GAIN, CWND_GAIN);
    }

    fn start_probe_bw_refill(&mut self, event: &AckEvent) {
        self.reset_short_term_model();
        (self.probe_up_rounds, self.probe_up_acks, self.stopped_risky) = (0, 0.0, false);
        self.ack_phase = AckPhase::Refilling;
        self.start_round(event.delivered);
        self.enter(State::Refill, 1.0, CWND_GAIN);
    }

    fn start_probe_bw_up(&mut self, event: &AckEvent) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(event.delivered);
        self.reset_full_bw(event.sample.rate);
        self.raise_inflight_longterm_slope(event.cwnd);
        self.enter(State::Up, UP_GAINS.0, UP_GAINS.1);
    }

    fn update_probe_bw_cycle(&mut self, event: &AckEvent) {
        if !self.full_bw_reached || self.adapt_long_term_model(event) {
            return;
        }
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.time_to_probe(event) => self.start_probe_bw_refill(event),
            State::Down if self.time_to_cruise(event) => self.enter(State::Cruise, 1.0, CWND_GAIN),
            // Refill has filled the pipe for one round. Now probe beyond it.
            State::Refill if self.rounds.begun => {
                self.bw_probe_samples = true;
                self.start_probe_bw_up(event);
            }
            State::Up if self.time_to_go_down(event) => {
                self.previous_too_high = false;
                self.start_probe_bw_down(event);
            }
            _ => {}
        }
    }

    fn time_to_probe(&self, event: &AckEvent) -> bool {
        // A Reno flow needs this number of rounds to grow by the BDP.
        let reno = self.target(event.cwnd).min(MAX_PROBE_ROUNDS);
        event.now.since(self.cycle_stamp) > self.probe_wait || self.rounds_since_probe as f64 >= reno
    }

    fn time_to_cruise(&self, event: &AckEvent) -> bool {
        // Cruise once the queue is drained and there is headroom for other flows.
        f64::from(event.in_flight) <= self.inflight(1.0).min(self.with_headroom())
    }

    fn time_to_go_down(&mut self, event: &AckEvent) -> bool {
        // If the previous probe caused too much loss, stop this probe at `inflight_longterm`.
        if self.previous_too_high && f64::from(event.in_flight) >= self.inflight_longterm {
            self.stopped_risky = true;
            return true;
        }
        // If `inflight_longterm` limits the rate, restart the search for the point at which the rate stops growing
        // (BBRIsTimeToGoDown).
        if event.cwnd_limited && event.cwnd >= self.inflight_longterm {
            self.reset_full_bw(event.sample.rate);
            return false;
        }
        self.full_bw_now
    }

    /// Updates the long-term model (BBRAdaptLongTermModel). Returns whether it has started another probe.
    fn adapt_long_term_model(&mut self, event: &AckEvent) -> bool {
        let sample = &event.sample;
        let in_probe_bw = matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up);
        if self.ack_phase == AckPhase::ProbeStarting && self.rounds.begun {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.rounds.begun {
            (self.bw_probe_samples, self.ack_phase) = (false, AckPhase::Init);
            if in_probe_bw && !sample.app_limited && self.max_bw[1] > 0.0 {
                // Begin a new slot of the maximum filter, which spans two cycles.
                self.max_bw = [self.max_bw[1], 0.0];
            }
            // If the probe stopped at `inflight_longterm` without too much loss, start another probe.
            if in_probe_bw && self.stopped_risky && !self.previous_too_high {
                self.start_probe_bw_refill(event);
                return true;
            }
        }
        if self.inflight_longterm.is_infinite() || exceeds_loss_thresh(sample.lost as f64, f64::from(sample.in_flight))
        {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(f64::from(sample.in_flight));
        if self.state == State::Up {
            self.grow_inflight_longterm(event);
        }
        false
    }

    fn grow_inflight_longterm(&mut self, event: &AckEvent) {
        // Raise the limit only while the window is fully used.
        if !event.cwnd_limited || event.cwnd < self.inflight_longterm {
            return;
        }
        self.probe_up_acks += f64::from(event.sample.fresh);
        if self.probe_up_acks >= self.probe_up_count {
            let steps = (self.probe_up_acks / self.probe_up_count).trunc();
            self.probe_up_acks -= steps * self.probe_up_count;
            self.inflight_longterm += steps;
        }
        if self.rounds.begun {
            self.raise_inflight_longterm_slope(event.cwnd);
        }
    }

    fn raise_inflight_longterm_slope(&mut self, cwnd: f64) {
        // The limit grows by 1, 2, 4 … segments per round trip.
        let growth = f64::from(1u32 << self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_count = (cwnd / growth).max(1.0);
    }

    // ---- losses

    pub(crate) fn on_losses(&mut self, event: &AckEvent, losses: &[Loss]) {
        for loss in losses {
            self.on_loss(event, loss);
        }
    }

    fn on_loss(&mut self, event: &AckEvent, loss: &Loss) {
        if !self.loss_in_round {
            self.loss_round_end = event.delivered;
            self.loss_in_round = true;
        }
        self.loss_ranges += u32::from(loss.begins);
        let (lost, in_flight) = (loss.lost as f64, f64::from(loss.in_flight));
        // Consider a loss here only if it is feedback on a bandwidth probe and the loss rate is too high
        // (BBRHandleLostPacket).
        if !self.bw_probe_samples || !exceeds_loss_thresh(lost, in_flight) {
            return;
        }
        self.bw_probe_samples = false;
        self.previous_too_high = true;
        if !loss.app_limited {
            // Compute how many segments were in flight when the loss rate reached the threshold (BBRInflightAtLoss).
            let (inflight, lost) = (in_flight - 1.0, lost - 1.0);
            let prefix = ((LOSS_THRESH * inflight - lost) / (1.0 - LOSS_THRESH)).max(0.0);
            self.inflight_longterm = (inflight + prefix).max(self.target(event.cwnd) * BETA).trunc();
        }
        if self.state == State::Up {
            self.start_probe_bw_down(event);
        }
    }

    // ---- ProbeRTT

    /// Updates the minimum RTT and enters or leaves ProbeRTT. Returns the restored window when ProbeRTT ends.
    fn probe_rtt(&mut self, event: &AckEvent) -> Option<f64> {
        let now = event.now;
        let expired = now > self.probe_rtt_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = event.sample.rtt
            && (rtt < self.probe_rtt_min || expired)
        {
            (self.probe_rtt_min, self.probe_rtt_stamp) = (rtt, now);
        }
        // There are two minima. `probe_rtt_min` covers 5 s and schedules ProbeRTT. `min_rtt` covers 10 s and is the RTT
        // estimate.
        if self.probe_rtt_min < self.min_rtt || now > self.min_rtt_stamp + MIN_RTT_FILTER {
            (self.min_rtt, self.min_rtt_stamp) = (self.probe_rtt_min, self.probe_rtt_stamp);
        }
        if self.state != State::ProbeRtt && expired && !self.idle_restart {
            self.prior.save(event.cwnd, false);
            self.enter(State::ProbeRtt, 1.0, PROBE_RTT_CWND_GAIN);
            self.probe_rtt_duration = ProbeRttDuration::default();
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(event.delivered);
        }
        let few = self.probe_rtt_cwnd();
        let over = self.state == State::ProbeRtt && self.probe_rtt_duration.on_ack(event, &mut self.rounds, few);
        let cwnd = over.then(|| self.leave_probe_rtt(now, event.delivered, event.cwnd));
        if event.sample.fresh > 0 {
            self.idle_restart = false;
        }
        cwnd
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp(self.bw(), PROBE_RTT_CWND_GAIN).max(MIN_PIPE_CWND)
    }

    fn leave_probe_rtt(&mut self, now: Time, delivered: u64, cwnd: f64) -> f64 {
        self.probe_rtt_stamp = now;
        // Remove the short-term bounds, because ProbeRTT may have lowered them far.
        self.reset_short_term_model();
        if self.full_bw_reached {
            let event = AckEvent { now, delivered: delivered.max(self.rounds.next), ..AckEvent::default() };
            self.start_probe_bw_down(&event);
            // Skip ProbeBW_DOWN, because the queue is already drained (BBRExitProbeRTT).
            self.enter(State::Cruise, 1.0, CWND_GAIN);
        } else {
            self.enter(State::Startup, STARTUP_GAINS.0, STARTUP_GAINS.1);
        }
        self.prior.restored(cwnd)
    }

    // ---- pacing rate and window

    fn set_pacing(&mut self) {
        let rate = self.pacing_gain * self.bw() * PACING_MARGIN;
        // Do not lower the rate in Startup, because early samples are limited by the small window.
        if rate > 0.0 && (self.full_bw_reached || rate > self.pacing) {
            self.pacing = rate;
        }
    }

    fn window(&mut self, event: &AckEvent, cwnd: f64) -> f64 {
        let most = self.with_quantization_budget(self.bdp(self.bw(), self.cwnd_gain) + self.aggregation.extra()).ceil();
        let mut cwnd = self.prior.next_cwnd(event, cwnd, most, self.full_bw_reached, self.initial_cwnd);
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd());
        }
        // While the flow is not probing, leave headroom to other flows (BBRBoundCwndForModel).
        let cap = match self.state {
            State::Startup => f64::INFINITY,
            State::Cruise | State::ProbeRtt => self.with_headroom(),
            State::Drain | State::Down | State::Refill | State::Up => self.inflight_longterm,
        };
        let shortterm = if self.state == State::Startup { f64::INFINITY } else { self.inflight_shortterm };
        cwnd.min(cap.min(shortterm).max(MIN_PIPE_CWND)).trunc()
    }
}

fn exceeds_loss_thresh(lost: f64, in_flight: f64) -> bool {
    lost > in_flight * LOSS_THRESH
}
