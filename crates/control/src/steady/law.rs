//! The control laws of `steady`, and the choice between them.

use super::compete::{CUBIC_BETA, CompeteLaw, OWN_QUEUE, OWN_QUEUE_TRAINS, WINDOW_MIN};
use super::delay::DelayLaw;
use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::scalable::ScalableLaw;
use super::signals::{BASE_RTT_WINDOW, Burst, FeedbackSummary, POLICER_QUEUE_MAX, Signals};
use super::trains::TrainSchedule;
use super::verdict::{CERTAIN_CONGESTION_QUEUE, LossClassifier, RandomLoss};
use super::{Config, RATE_MIN};
use crate::entry::Setup;
use crate::{Check, Limit, PacketReport};
use steadycast_units::{Span, Time};

// Constants of START.

/// In START, the rate is multiplied by this factor per round trip.
const START_GROWTH: f64 = 1.35;
/// Duration over which START measures the receive rate, in round trips. If it were a whole round trip, the measured
/// rate would lag behind the growth.
const START_RECEIVED_RTTS: f64 = 0.6;
/// Minimum duration over which START measures the receive rate, in seconds.
const START_RECEIVED_SPAN_MIN: f64 = 0.060;
/// Maximum duration over which START measures the receive rate, in seconds. If feedback is missing, START may slow down
/// to one packet per 150 ms. Several such packets fit into this duration.
const START_RECEIVED_SPAN_MAX: f64 = 1.0;
/// In START, the receive rate limits the growth. It is measured over [`START_RECEIVED_RTTS`] and over this number of
/// seconds, and the higher result is used. The shorter measurement may lie in a pause of the source.
const START_PAUSES_SPAN: f64 = 0.5;
/// In START, the rate does not grow while all packets of this time, in seconds, have met a queue.
const START_LOW_SPAN: f64 = 0.030;
/// START ends once at least this number of packets in a row have met a queue. Fewer may be late because of jitter.
const START_QUEUE_PACKETS: f64 = 4.0;
/// START ends when the queueing delay reaches this fraction of the target.
const START_QUEUE_TARGET_SHARE: f64 = 0.7;
/// START does not end at queueing delays up to this value, in seconds, because they may be noise.
const START_QUEUE_MIN: f64 = 0.004;
/// If START has built a queue, the rate falls to this fraction of the receive rate until the queue is gone.
const START_DRAIN_SHARE: f64 = 0.7;
/// If START ends with a loss, COMPETE begins with this fraction of the receive rate (RFC 9438, 4.6).
const START_LOSS_BETA: f64 = 0.7;
/// After this number of consecutive halvings because of missing feedback, START begins again.
const RESTART_HALVINGS: u32 = 3;

/// When COMPETE ends, DELAY begins with this fraction of the receive rate, so that a remaining queue drains.
const COMPETE_END_SHARE: f64 = 0.85;

// Constants for a policer, which drops packets although there is no queue.

/// Minimum duration over which the receive rate is measured behind a policer, in seconds.
const POLICED_RECEIVED_SPAN_MIN: f64 = 0.5;
/// The rate behind a policer, as a fraction of the receive rate.
const POLICED_RATE_SHARE: f64 = 0.85;
/// The highest loss rate that the window of a TCP causes by itself. In COMPETE, a loss rate up to this value is not
/// attributed to a policer.
const TCP_LOSS_MAX: f64 = 0.1;
/// A trial ends at the latest when this number of losses would have occurred at the loss rate from before the trial.
const TRIAL_EXPECTED_LOSSES: f64 = 20.0;

// Constants for bursts, pacing and trains.

/// The longest queueing delay that is attributed to the flow's own burst, in seconds.
const BURST_QUEUE_MAX: f64 = 0.25;
/// The ratio of the pacing rate to the rate while the law DELAY is in use. It is low because DELAY keeps the queue
/// empty.
const DELAY_PACING: f64 = 1.1;
/// Minimum duration of a train at the current rate, in seconds. It is not shorter because reports round arrival times
/// to a millisecond.
const TRAIN_DURATION_MIN: f64 = 0.005;
/// Maximum number of packets in a train.
const TRAIN_PACKETS_MAX: f64 = 16.0;
/// A train is sent only if the queueing delay is below this fraction of the highest queueing delay.
const TRAIN_ROOM_SHARE_MAX: f64 = 0.7;

// Constants for time spans.

/// The base delay in COMPETE is the minimum over this time, in seconds. The time is long because the queue may never be
/// empty in COMPETE.
const COMPETE_BASE_DELAY_WINDOW: u64 = BASE_RTT_WINDOW;
/// The base delay in START and DELAY is the minimum over this time, in seconds. The time is short so that a changed
/// path is detected soon.
const BASE_DELAY_WINDOW: u64 = 20;
/// A longer time between two reports is replaced by this time, in seconds, so that the rate does not jump.
const STEP_TIME_MAX: f64 = 0.5;
/// Duration over which the loss rate that users see is measured, in seconds.
const SHOWN_LOSS_SPAN: f64 = 1.0;

/// In COMPETE, the rate is at most twice the receive rate plus this number of packets per round trip
/// ([`super::TWICE`]). Without this margin, low rates could not grow.
const PROMISED_PACKETS: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Start,
    Delay,
    Compete,
}

/// A trial: the sender lowers its rate for a while, to see whether the losses end.
#[derive(Clone, Copy, Debug)]
struct PolicerTrial {
    at: f64,
    /// Fraction of packets that were lost before the trial. Consecutive losses count once.
    share: f64,
    /// The receive rate before the trial, in bit/s.
    received: f64,
    /// Number of packets reported since the trial began.
    packets: u32,
    /// Number of packets lost since the trial began. Consecutive losses count once.
    lost: u32,
    /// Whether losses in a short queue count, too.
    queued: bool,
}

/// The state of all control laws, and the rate that they set.
pub(super) struct Law {
    pub(super) config: Config,
    floor: f64,
    cap: f64,
    pub(super) signals: Signals,
    pub(super) mode: Mode,
    /// The sending rate, in bit/s.
    pub(super) rate: f64,
    pub(super) delay: DelayLaw,
    compete: CompeteLaw,
    scalable: ScalableLaw,
    /// The highest receive rate in START, in bit/s.
    start_carried: f64,
    /// Whether [`ScalableLaw`], the law for L4S marks, made the last decision. The promises in `checks` do not apply to
    /// the decisions of that law.
    marks_rule: bool,
    pub(super) losses: LossClassifier,
    /// The time of the last report, in seconds.
    pub(super) last_report_at: Option<f64>,
    /// When the sender last responded to a loss. A packet that was sent before this time causes no further response if
    /// it is lost.
    loss_at: Option<f64>,
    /// When the sender last responded to a mark. A packet that was sent before this time causes no further response if
    /// it is marked.
    mark_at: Option<f64>,
    /// When the rate was last cut because of losses without a queue, or of many losses in a short queue.
    policed_at: Option<f64>,
    trial: Option<PolicerTrial>,
    random_loss: RandomLoss,
    /// Number of consecutive halvings because of missing feedback.
    halvings: u32,
    train_schedule: TrainSchedule,
    /// The ratio of the rate for the source to `rate` ([`DelayLaw::variation`]).
    variation: f64,
    pub(super) rule: &'static str,
    pub(super) checks: [Check; 2],
}

impl Law {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        let (floor, cap) = setup.rate_limits();
        Self {
            floor,
            cap,
            signals: Signals::new(),
            mode: Mode::Start,
            rate: config.start.clamp(floor, cap),
            delay: DelayLaw::new(),
            compete: CompeteLaw::new(),
            scalable: ScalableLaw::default(),
            start_carried: 0.0,
            marks_rule: false,
            losses: LossClassifier::new(),
            last_report_at: None,
            loss_at: None,
            mark_at: None,
            policed_at: None,
            trial: None,
            random_loss: RandomLoss::default(),
            halvings: 0,
            train_schedule: TrainSchedule::default(),
            variation: 1.0,
            rule: "start: first packets",
            checks: [Check::new(&super::DELAY), Check::new(&super::TWICE)],
            config,
        }
    }

    /// Records that the source sends video frames.
    pub(super) fn set_frames(&mut self) {
        self.config.frames = true;
    }

    /// Records a sent packet. If the source sends frames, they leave at `pacing` times `rate`, where `rate` is in
    /// bit/s.
    pub(super) fn on_sent(&mut self, at: Time, number: u64, size: u64, pacing: Option<f64>, rate: f64) {
        // Subtract the delay of the flow's own bursts from the measured delay. Do not subtract it in an unshared queue.
        // The burst may cause that whole queue, which would then be hidden.
        let own = self.mode == Mode::Delay && self.delay.has_own_queue(at.as_secs_f64(), self.rate);
        let burst =
            pacing.filter(|_| !own).map(|pacing| Burst { rate: rate.max(1.0), pacing, max_queue: BURST_QUEUE_MAX });
        self.signals.on_sent(at, number, size, burst);
    }

    /// Returns the rate for the source, in bit/s.
    pub(super) fn source_rate(&self) -> f64 {
        (self.variation * self.rate).clamp(self.floor, self.cap)
    }

    /// Returns the ratio of the pacing rate to the rate.
    pub(super) fn pacing(&self) -> f64 {
        if self.mode == Mode::Delay { DELAY_PACING } else { self.config.pacing }
    }

    /// Returns whether the sender sends packet trains. A sender of frames sends none, because there are no packets for
    /// a train between two frames.
    fn has_trains(&self) -> bool {
        self.config.probes && !self.config.frames && self.config.train_packets >= 2.0
    }

    /// Returns an identifier of the last requested train, and how many packets this train has.
    pub(super) fn train(&self) -> Option<(u32, u32)> {
        if self.mode == Mode::Start || !self.has_trains() {
            return None;
        }
        let config = &self.config;
        let packets = libm::ceil(TRAIN_DURATION_MIN * self.rate / config.bits);
        let packets = packets.min(TRAIN_PACKETS_MAX).max(config.train_packets);
        self.train_schedule.last_request().map(|number| (number, packets as u32))
    }

    /// Processes the trains that have arrived, and requests the next train.
    fn on_trains(&mut self, now: f64, feedback: &FeedbackSummary) {
        let signals = &mut self.signals;
        for train in &feedback.trains {
            signals.trains.add(now, train);
        }
        match self.mode {
            Mode::Start => {}
            Mode::Delay => {
                let in_doubt = self.delay.is_queue_in_doubt(now, self.rate) || self.delay.takes_train_request();
                self.train_schedule.on_delay(now, in_doubt);
            }
            Mode::Compete => {
                let room = signals.q < TRAIN_ROOM_SHARE_MAX * self.compete.high_queue;
                self.train_schedule.on_compete(now, room, signals.trains.shows_own_queue(1));
            }
        }
    }

    /// Records that no other flow shares the queue, if trains show this. Only trains in DELAY count, and only for some
    /// time after a loss in a queue, while it is in doubt whether the queue is shared. Without such doubt, START and
    /// DELAY discard the result of trains. An uncongested path looks the same to trains as an unshared queue.
    fn check_own_queue(&mut self, now: f64) {
        let in_doubt = self.mode == Mode::Delay && self.delay.is_queue_in_doubt(now, self.rate);
        if in_doubt && self.signals.trains.shows_own_queue(OWN_QUEUE_TRAINS) {
            self.delay.set_own_queue(now, self.rate);
        } else if !in_doubt && self.mode != Mode::Compete {
            self.signals.trains.reset_own_queue();
        }
    }

    /// Records that no other flow shares the queue.
    #[cfg(test)]
    pub(super) fn set_own_queue(&mut self, now: f64) {
        self.delay.set_own_queue(now, self.rate);
    }

    /// Runs START: the rate grows exponentially until there is a loss or a queue.
    fn start(&mut self, input: &LawInput<'_>) {
        let LawInput { now, dt, rtt, .. } = *input;
        let config = &self.config;
        let soon = input.signals.received((START_RECEIVED_RTTS * rtt).max(START_RECEIVED_SPAN_MIN));
        let Some(received) = soon.or_else(|| input.signals.received(START_RECEIVED_SPAN_MAX)) else { return };
        if let Some(loss) = &input.loss {
            // A packet that is lost in a long queue, or while the queue is at its highest, was dropped by a full
            // buffer. A TCP fills a buffer in this way.
            let queued = self.losses.on_loss(now, loss, 0.0) || loss.q > CERTAIN_CONGESTION_QUEUE;
            if queued {
                self.enter_compete(input, START_LOSS_BETA * received, "compete: loss in the start");
                return;
            }
        }
        let target = self.delay.target(self.rate, config);
        let limit = (START_QUEUE_TARGET_SHARE * target).max(START_QUEUE_MIN);
        let packets_span = START_QUEUE_PACKETS * config.bits / received.max(1.0);
        let span = (START_LOW_SPAN + self.delay.jitter_span()).max(packets_span);
        self.start_carried = self.start_carried.max(received);
        if input.signals.low(span) > limit || input.mark {
            // While a source sends little, a single late packet looks like a queue, and the receive rate is not the
            // rate of the path. Use the highest receive rate of START instead, which the path has carried.
            let carried = if input.signals.is_idle(now) { self.start_carried } else { received };
            self.rate = START_DRAIN_SHARE * carried;
            self.delay.begin(now, carried);
            (self.delay.started, self.delay.refill) = (now, true);
            (self.mode, self.rule) = (Mode::Delay, "delay: the start found a queue");
            return;
        }
        let most = 2.0 * received.max(input.signals.received(START_PAUSES_SPAN).unwrap_or(0.0));
        if input.signals.low(START_LOW_SPAN) > limit {
            self.rule = "start: wait";
            return;
        }
        if self.rate < most {
            // Assume a round trip of at least two report intervals, because the effect of the growth is reported after
            // a report interval at the earliest.
            let round = rtt.max(2.0 * config.report_every);
            self.rate = (self.rate * libm::pow(START_GROWTH, dt / round)).min(most);
        }
        self.rule = "start: up";
    }

    fn enter_compete(&mut self, input: &LawInput<'_>, rate: f64, rule: &'static str) {
        self.train_schedule.begin_compete(input.now);
        self.compete.begin(input.now, rate, input.rtt);
        (self.mode, self.rule) = (Mode::Compete, rule);
    }

    fn leave_compete(&mut self, now: f64, received: f64, rule: &'static str) {
        self.compete.left = true;
        self.rate = COMPETE_END_SHARE * received;
        self.delay.begin(now, received);
        if rule == OWN_QUEUE {
            self.delay.set_own_queue(now, self.rate);
        }
        (self.mode, self.rule) = (Mode::Delay, rule);
    }

    /// Responds to losses without a queue in any mode, and to many losses in a short queue in DELAY. If more packets
    /// are lost than chance explains, the rate is set below the receive rate. The mode becomes DELAY.
    ///
    /// A trial then measures whether the losses end. Losses that a policer causes end, and random losses do not. Once a
    /// policer is known, COMPETE begins at the next loss. Behind a policer there is no queue that could show a TCP.
    ///
    /// Returns true if this rule has set the rate.
    fn respond_to_policer(&mut self, input: &LawInput<'_>) -> bool {
        let LawInput { now, rtt, signals, .. } = *input;
        // Count only packets that were sent after the last cut. Earlier losses do not show that the lower rate is too
        // high.
        let since_cut = self.policed_at.map_or(f64::MAX, |at| now - at - rtt);
        let all = signals.loss_shares(now, since_cut);
        let Some(received) = signals.received(rtt.max(POLICED_RECEIVED_SPAN_MIN)) else { return false };
        self.trial =
            self.trial.take().filter(|_| self.mode == Mode::Delay).and_then(|trial| self.evaluate_trial(input, trial));
        let Some(loss) = &input.loss else { return false };
        // A short queue that overflows may lose as many packets as a policer. In DELAY, such losses show that too much
        // is sent. START sends up to twice what the path carries, and COMPETE fills the queue, so losses in a queue
        // show nothing there, and the losses of packets that these two have sent do not count in DELAY.
        let in_queue = loss.q > POLICER_QUEUE_MAX;
        let queued = in_queue && self.mode == Mode::Delay && !self.losses.is_policed(now);
        if in_queue && !queued || loss.q > CERTAIN_CONGESTION_QUEUE {
            return false;
        }
        let (packets, share) = if queued {
            let since_begin = now - self.delay.begun - rtt - self.config.report_most;
            let in_delay = signals.loss_shares(now, since_cut.min(since_begin));
            (in_delay.packets, in_delay.runs)
        } else {
            (all.packets, all.unqueued)
        };
        // If the path reorders packets, the lost packets may only be late. Do not let COMPETE respond to them as a TCP
        // would.
        let congested = self.losses.is_policed(now) && !signals.is_reordering();
        if congested && self.mode == Mode::Compete {
            return false;
        }
        // Enter COMPETE only if the policer passes at least the rate of COMPETE's minimum window. Otherwise COMPETE
        // could not send slowly enough.
        if congested && received * rtt >= WINDOW_MIN * SEGMENT_BITS {
            self.enter_compete(input, CUBIC_BETA * received, "compete: policed");
            return true;
        }
        self.losses.refute_policer(received);
        let policed = self.losses.is_policed(now);
        let is_more = LossClassifier::is_more(packets, share, self.random_loss.at_most(now));
        let is_policer = if self.mode == Mode::Compete && !policed {
            // In COMPETE, loss rates up to this limit are not attributed to a policer. A TCP that shares a short queue
            // with this flow may cause them.
            LossClassifier::is_more(all.packets, all.lost, TCP_LOSS_MAX)
        } else {
            policed || is_more
        };
        if self.trial.is_some() || !is_policer {
            return false;
        }
        let trial = PolicerTrial { at: now, share, received, packets: 0, lost: 0, queued };
        self.trial = (is_more && !policed).then_some(trial);
        self.policed_at = Some(now);
        self.rate = self.rate.min(POLICED_RATE_SHARE * received);
        self.rule = if queued { "delay: losses in a short queue" } else { "delay: policed" };
        if self.mode != Mode::Delay {
            self.delay.begin(now, received);
            self.mode = Mode::Delay;
        }
        self.delay.set_policed(now, received);
        true
    }

    /// Evaluates a trial. Returns the trial if its result is still open, or `None` if it is complete. If the losses
    /// have ended, a policer or a short queue caused them. If they continue, they are random, and their rate is now
    /// known.
    fn evaluate_trial(&mut self, input: &LawInput<'_>, trial: PolicerTrial) -> Option<PolicerTrial> {
        let FeedbackSummary { arrived, lost, loss_runs, unqueued_loss_runs, spurious, .. } = *input.feedback;
        let runs = if trial.queued { loss_runs } else { unqueued_loss_runs };
        if input.now < trial.at + input.rtt + self.config.report_most {
            // Do not count this report, because its packets were sent before the cut.
            return Some(trial);
        }
        let packets = trial.packets + (arrived + lost).saturating_sub(spurious);
        let trial = PolicerTrial { packets, lost: (trial.lost + runs).saturating_sub(spurious), ..trial };
        let share = f64::from(trial.lost) / f64::from(trial.packets.max(1));
        if LossClassifier::is_less(trial.packets, share, trial.share) {
            if !trial.queued {
                self.losses.set_policed(input.now, trial.received);
            }
            self.random_loss = RandomLoss::default();
        } else if f64::from(trial.packets) * trial.share > TRIAL_EXPECTED_LOSSES {
            self.random_loss.find(input.now, share.max(trial.share));
        } else {
            return Some(trial);
        }
        None
    }

    /// Selects one of the control laws, which then decides on the rate.
    fn decide(&mut self, input: &LawInput<'_>) {
        if self.respond_to_policer(input) {
            return;
        }
        self.marks_rule = self.scalable.rules(input, self.losses.is_policed(input.now), &self.config);
        if self.marks_rule {
            let Transition::Stay(rate, rule) = self.scalable.update(input, &mut self.losses, &self.config) else {
                return;
            };
            (self.rate, self.rule, self.mode) = (rate, rule, Mode::Delay);
            self.delay.begin(input.now, rate);
            return;
        }
        match self.mode {
            Mode::Start => self.start(input),
            Mode::Delay => match self.delay.update(input, &mut self.losses, !self.compete.left, &self.config) {
                Transition::Stay(rate, rule) => (self.rate, self.rule) = (rate, rule),
                Transition::Switch(rate, rule) => self.enter_compete(input, rate, rule),
            },
            Mode::Compete => {
                let target = self.delay.target(self.rate, &self.config);
                match self.compete.update(input, &mut self.losses, target, &self.config) {
                    Transition::Stay(rate, rule) => (self.rate, self.rule) = (rate, rule),
                    Transition::Switch(received, rule) => self.leave_compete(input.now, received, rule),
                }
            }
        }
    }

    /// Checks the promises against the decision. `mode` and `rate` are the values from before the decision.
    pub(super) fn check_promises(&mut self, now: f64, (mode, rate): (Mode, f64)) {
        if self.mode != mode || self.marks_rule {
            return;
        }
        match mode {
            Mode::Delay
                if self.signals.low(self.delay.low_span) > 2.0 * self.delay.target_now(now, rate, &self.config) =>
            {
                self.checks[0].see(self.rate <= rate.max(self.floor).max(RATE_MIN));
            }
            Mode::Compete if !self.signals.is_idle(now) => {
                let rtt = self.signals.rtt();
                let Some(path_rate) = self.signals.recent_path_rate(rate) else { return };
                let most = (2.0 * path_rate).max(self.compete.restore) + PROMISED_PACKETS * self.config.bits / rtt;
                self.checks[1].see(self.rate <= most.max(self.floor).max(RATE_MIN));
            }
            _ => {}
        }
    }

    fn clamp(&mut self) {
        let rate = if self.rate.is_finite() { self.rate } else { self.floor };
        // Do not let the rate grow during a trial. Otherwise its losses could not be compared with the losses before
        // it.
        let rate = self.trial.map_or(rate, |trial| rate.min(POLICED_RATE_SHARE * trial.received));
        self.rate = rate.max(RATE_MIN).clamp(self.floor, self.cap);
    }

    /// Processes a report. Returns true if the report contains a packet that no earlier report contained. `rtt` is the
    /// measured round-trip time.
    pub(super) fn on_feedback(&mut self, at: Time, rtt: Option<Span>, packets: &[PacketReport]) -> bool {
        let keep = match self.mode {
            Mode::Compete => COMPETE_BASE_DELAY_WINDOW,
            Mode::Start | Mode::Delay => BASE_DELAY_WINDOW,
        };
        let feedback = self.signals.on_feedback(at, rtt, packets, (self.rate, keep));
        if feedback.arrived == 0 && feedback.lost == 0 {
            return false;
        }
        let now = at.as_secs_f64();
        let dt = self.last_report_at.map_or(0.0, |last| (now - last).clamp(0.0, STEP_TIME_MAX));
        self.last_report_at = Some(now);
        if std::mem::take(&mut self.halvings) >= RESTART_HALVINGS {
            (self.mode, self.start_carried) = (Mode::Start, 0.0);
        }
        self.compete.update_high_queue(self.signals.q, dt);
        self.delay.update_jitter(&self.signals, self.rate, dt, &self.config);
        // Respond to losses and marks only once per round trip. Ignore a packet that was sent before the last response.
        let loss = feedback.loss.filter(|loss| self.loss_at.is_none_or(|at| loss.sent > at));
        let mark = feedback.latest_marked.is_some_and(|sent| self.mark_at.is_none_or(|at| sent > at));
        if loss.is_some() {
            self.loss_at = Some(now);
        }
        if mark || loss.is_some() {
            self.mark_at = Some(now);
        }
        let mut share = None;
        // Skip this if the sender sends no trains. Other bursts would be mistaken for trains.
        if self.has_trains() {
            self.on_trains(now, &feedback);
            share = self.signals.trains.share(now);
        }
        let signals = std::mem::take(&mut self.signals);
        let (rate, rtt) = (self.rate, signals.rtt());
        let input = LawInput { now, dt, rate, rtt, signals: &signals, feedback: &feedback, loss, mark, share };
        let before = (self.mode, self.rate);
        self.decide(&input);
        self.signals = signals;
        if let Some(span) = self.delay.new_path.take() {
            self.signals.adopt_path(now, span);
        }
        self.check_own_queue(now);
        self.clamp();
        self.variation = if self.mode == Mode::Delay { self.delay.variation(now) } else { 1.0 };
        self.check_promises(now, before);
        true
    }

    /// Returns what limits the rate.
    pub(super) fn limit(&self) -> Limit {
        if self.rate >= self.cap {
            Limit::Cap
        } else if self.mode == Mode::Start && self.halvings == 0 {
            Limit::Start
        } else if self.rate <= self.floor.max(RATE_MIN) {
            Limit::Floor
        } else {
            Limit::Network
        }
    }

    /// Returns the fraction of packets that were lost in the last second. Returns `None` before the first report.
    pub(super) fn loss(&self) -> Option<f64> {
        self.last_report_at.map(|last| self.signals.loss_shares(last, SHOWN_LOSS_SPAN).lost)
    }

    /// Returns the round-trip time. Returns `None` before the first report.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.last_report_at.map(|_| Span::from_secs_f64(self.signals.rtt()))
    }

    /// Halves the rate, because feedback is missing (RFC 8083).
    pub(super) fn on_feedback_timeout(&mut self) {
        self.halvings = self.halvings.saturating_add(1);
        self.variation = 1.0;
        self.rate = (self.rate / 2.0).max(self.floor);
        self.rule = "no feedback: halved";
    }
}
