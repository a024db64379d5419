//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00). Data is counted in segments. The allowance for ACK
//! aggregation follows Linux's tcp_bbr.c.

use crate::filter::{AckAggregation, MaxFilter};
use crate::model::{AckEvent, Decision};
use crate::rounds::{
    EXTRA_ACKED_ROUNDS, FULL_BW, MIN_PIPE_CWND, MIN_RTT_FILTER, PACING_MARGIN, PriorWindow, ProbeRttDuration, Rounds,
    quantum,
};
use steadycast_units::{Chance, Span, Time};

/// The gain of Startup, 2/ln 2. It is the smallest gain that doubles the rate in each round.
const HIGH_GAIN: f64 = 2.885;
/// The window gain of ProbeBW.
const CWND_GAIN: f64 = 2.0;
/// The pacing gains of the eight phases of ProbeBW.
const PACING_GAIN_CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Length of the bandwidth filter in rounds.
const MAX_BW_ROUNDS: u64 = 10;
/// The allowance for ACK aggregation is at most the data that the bandwidth delivers in this time, in seconds.
const EXTRA_ACKED_MAX: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBw(usize),
    ProbeRtt,
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr1 {
    chance: Chance,
    initial_cwnd: f64,
    state: State,
    pacing: f64,
    rounds: Rounds,
    max_bw: MaxFilter,
    min_rtt: Span,
    min_rtt_stamp: Time,
    aggregation: AckAggregation,
    full_bw: f64,
    full_bw_count: u32,
    full_bw_reached: bool,
    cycle_stamp: Time,
    probe_rtt_duration: ProbeRttDuration,
    prior: PriorWindow,
    idle_restart: bool,
}

impl Bbr1 {
    /// Creates the congestion control. `initial_cwnd` is the first window in segments.
    pub(crate) fn new(chance: Chance, initial_cwnd: f64) -> Self {
        Self {
            chance,
            initial_cwnd,
            state: State::Startup,
            // The draft assumes an RTT of 1 ms until an RTT is measured.
            pacing: HIGH_GAIN * initial_cwnd / 0.001,
            rounds: Rounds::default(),
            max_bw: MaxFilter::default(),
            min_rtt: Span::MAX,
            min_rtt_stamp: Time::ZERO,
            aggregation: AckAggregation::default(),
            full_bw: 0.0,
            full_bw_count: 0,
            full_bw_reached: false,
            cycle_stamp: Time::ZERO,
            probe_rtt_duration: ProbeRttDuration::default(),
            prior: PriorWindow::default(),
            idle_restart: false,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBw(_) => "probe-bw",
            State::ProbeRtt => "probe-rtt",
        }
    }

    /// Starts pacing. `rtt` is the round-trip time of the handshake.
    pub(crate) fn on_open(&mut self, now: Time, rtt: Option<Span>) {
        let took = rtt.unwrap_or(Span::millis(1)).max(Span::micros(1));
        self.pacing = HIGH_GAIN * self.initial_cwnd / took.as_secs_f64();
        self.min_rtt = rtt.unwrap_or(Span::MAX);
        self.min_rtt_stamp = now;
        self.aggregation.restart(now);
    }

    /// Handles the first transmission after the application was idle. Returns the new window if it changes.
    pub(crate) fn on_restart(&mut self, now: Time, cwnd: f64) -> Option<f64> {
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.state {
            State::ProbeBw(_) => {
                // Pace at the estimated bandwidth, without the gain of the phase (BBRHandleRestartFromIdle).
                self.pacing = PACING_MARGIN * self.bw();
                None
            }
            State::ProbeRtt => self.probe_rtt_duration.is_over(now).then(|| self.leave_probe_rtt(now, cwnd)),
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

    pub(crate) fn on_ack(&mut self, event: &AckEvent, losses: usize) -> Decision {
        let sample = &event.sample;
        if sample.fresh > 0 {
            self.rounds.on_ack(event);
            // An application-limited sample is only a lower bound of the bandwidth. Use it only if it reaches the
            // maximum.
            if sample.rate > 0.0 && (sample.rate >= self.bw() || !sample.app_limited) {
                self.max_bw.add(self.rounds.count, MAX_BW_ROUNDS, sample.rate);
            }
            self.aggregation.on_ack(
                event.now,
                self.bw(),
                sample.fresh,
                event.cwnd,
                self.rounds.count,
                EXTRA_ACKED_ROUNDS,
            );
            self.cycle(event, losses);
            self.check_full(event);
            self.check_drain(event);
        }
        let cwnd = self.probe_rtt(event);
        let rate = self.pacing_gain() * self.bw() * PACING_MARGIN;
        // Do not lower the rate in Startup, because early samples are limited by the small window.
        if rate > 0.0 && (self.full_bw_reached || rate > self.pacing) {
            self.pacing = rate;
        }
        let cwnd = self.window(event, cwnd.unwrap_or(event.cwnd));
        Decision {
            cwnd,
            pacing: self.pacing,
            quantum: quantum(self.pacing),
            is_self_limited: self.state == State::ProbeRtt,
        }
    }

    fn bw(&self) -> f64 {
        self.max_bw.get()
    }

    fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => HIGH_GAIN,
            State::Drain => 1.0 / HIGH_GAIN,
            State::ProbeBw(phase) => PACING_GAIN_CYCLE[phase],
            State::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.state {
            State::Startup | State::Drain => HIGH_GAIN,
            State::ProbeBw(_) => CWND_GAIN,
            State::ProbeRtt => 1.0,
        }
    }

    fn bdp(&self, gain: f64) -> f64 {
        if self.min_rtt == Span::MAX { self.initial_cwnd } else { gain * self.bw() * self.min_rtt.as_secs_f64() }
    }

    /// Adds room for bursts of the sender and of the receiver. The result is rounded up to an even number. While
    /// probing, two more segments are added.
    fn with_quantization_budget(&self, inflight: f64) -> f64 {
        let even = ((inflight.ceil() + 3.0 * f64::from(quantum(self.pacing))) / 2.0).ceil() * 2.0;
        even + if self.state == State::ProbeBw(0) { 2.0 } else { 0.0 }
    }

    fn check_full(&mut self, event: &AckEvent) {
        // Ignore application-limited rounds, because they do not show the path's capacity.
        if !self.full_bw_reached && self.rounds.begun && !event.sample.app_limited {
            if self.bw() >= self.full_bw * FULL_BW.0 {
                (self.full_bw, self.full_bw_count) = (self.bw(), 0);
            } else {
                self.full_bw_count += 1;
                self.full_bw_reached = self.full_bw_count >= FULL_BW.1;
            }
        }
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
        }
    }

    fn check_drain(&mut self, event: &AckEvent) {
        if self.state == State::Drain && f64::from(event.in_flight) <= self.with_quantization_budget(self.bdp(1.0)) {
            self.enter_probe_bw(event.now);
        }
    }

    /// Enters ProbeBW in a random phase, except the phase that drains the queue.
    fn enter_probe_bw(&mut self, now: Time) {
        // The phase is random so that flows at one bottleneck do not probe at the same time. Draining is useful only
        // after probing.
        let drawn = (self.chance.unit() * 7.0) as usize % 7;
        self.state = State::ProbeBw(if drawn == 0 { 0 } else { drawn + 1 });
        self.cycle_stamp = now;
    }

    fn cycle(&mut self, event: &AckEvent, losses: usize) {
        let State::ProbeBw(phase) = self.state else { return };
        let elapsed = event.now.since(self.cycle_stamp) > self.min_rtt;
        // Add the newly acknowledged segments, to get the number in flight before this acknowledgment.
        let in_flight = f64::from(event.in_flight + event.sample.fresh);
        let gain = PACING_GAIN_CYCLE[phase];
        // Each phase lasts one minimum RTT, with two exceptions. The probing phase lasts longer, until the pipe is full
        // or a segment is lost. The draining phase ends earlier if the queue is empty.
        let over = if gain > 1.0 {
            elapsed && (losses > 0 || in_flight >= self.with_quantization_budget(self.bdp(gain)))
        } else if gain < 1.0 {
            elapsed || in_flight <= self.with_quantization_budget(self.bdp(1.0))
        } else {
            elapsed
        };
        if over {
            self.state = State::ProbeBw((phase + 1) % PACING_GAIN_CYCLE.len());
            self.cycle_stamp = event.now;
        }
    }

    /// Updates the minimum RTT and enters or leaves ProbeRTT. Returns the restored window when ProbeRTT ends.
    fn probe_rtt(&mut self, event: &AckEvent) -> Option<f64> {
        let now = event.now;
        let expired = now > self.min_rtt_stamp + MIN_RTT_FILTER;
        if let Some(rtt) = event.sample.rtt
            && (rtt <= self.min_rtt || expired)
        {
            (self.min_rtt, self.min_rtt_stamp) = (rtt, now);
        }
        // Skip ProbeRTT after an idle time, because the queue is then empty.
        if expired && !self.idle_restart && self.state != State::ProbeRtt {
            self.prior.save(event.cwnd, false);
            self.state = State::ProbeRtt;
            self.probe_rtt_duration = ProbeRttDuration::default();
        }
        let over =
            self.state == State::ProbeRtt && self.probe_rtt_duration.on_ack(event, &mut self.rounds, MIN_PIPE_CWND);
        let cwnd = over.then(|| self.leave_probe_rtt(now, event.cwnd));
        if event.sample.fresh > 0 {
            self.idle_restart = false;
        }
        cwnd
    }

    fn leave_probe_rtt(&mut self, now: Time, cwnd: f64) -> f64 {
        self.min_rtt_stamp = now;
        if self.full_bw_reached {
            self.enter_probe_bw(now);
        } else {
            self.state = State::Startup;
        }
        self.prior.restored(cwnd)
    }

    fn window(&mut self, event: &AckEvent, cwnd: f64) -> f64 {
        // Add `extra` to the window. Because of ACK aggregation, segments that have left the path may still be
        // unacknowledged.
        let extra = if self.full_bw_reached { self.aggregation.extra().min(self.bw() * EXTRA_ACKED_MAX) } else { 0.0 };
        let most = self.with_quantization_budget(self.bdp(self.cwnd_gain()) + extra);
        let cwnd = self.prior.next_cwnd(event, cwnd, most, self.full_bw_reached, self.initial_cwnd);
        if self.state == State::ProbeRtt { cwnd.min(MIN_PIPE_CWND) } else { cwnd }.trunc()
    }
}
