//! The laws and which of them rules, told what became of packets: at the sender, or at a receiver that hears them
//! itself.

use super::Config;
use super::compete::{CompeteLaw, OWN_QUEUE};
use super::constants::*;
use super::delay::DelayLaw;
use super::law_input::{LawInput, RateRelation, Transition};
use super::scalable::ScalableLaw;
use super::signals::{Burst, FeedbackSummary, RttSource, Signals};
use super::trains::TrainSchedule;
use super::verdict::LossClassifier;
use crate::entry::Setup;
use crate::{Check, Limit, PacketReport};
use steadycast_units::{Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Start,
    Delay,
    Compete,
}

/// Less is sent since a time, to see whether losses end.
#[derive(Clone, Copy, Debug)]
struct Trial {
    at: f64,
    /// The share of packets that was lost before, and what arrived, in bit/s.
    share: f64,
    received: f64,
    /// Packets told of since then, and those of them that are lost; several in a row count once.
    told: u32,
    lost: u32,
}

/// All that decides on a rate.
pub(super) struct Law {
    pub(super) config: Config,
    floor: f64,
    cap: f64,
    pub(super) signals: Signals,
    pub(super) mode: Mode,
    pub(super) rate: f64,
    pub(super) delay: DelayLaw,
    compete: CompeteLaw,
    scalable: ScalableLaw,
    /// The scalable rule made the last decision: the promises are those of the other laws.
    marks_rule: bool,
    pub(super) chance: LossClassifier,
    /// When the last report came.
    pub(super) heard: Option<f64>,
    /// When a loss and a mark were answered last: what left before belongs to them.
    loss_at: Option<f64>,
    mark_at: Option<f64>,
    /// When more was lost than by chance.
    policed_at: Option<f64>,
    /// Whether losses end where less is sent is being tried; the share of packets that is taken to be lost by chance.
    trial: Option<Trial>,
    by_chance: f64,
    /// Halvings in a row for silence.
    halvings: u32,
    timetable: TrainSchedule,
    pub(super) rule: &'static str,
    pub(super) checks: [Check; 2],
}

impl Law {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        let cap = setup.cap.as_bps_f64();
        let floor = setup.floor.as_bps_f64().min(cap);
        Self {
            floor,
            cap,
            signals: Signals::new(),
            mode: Mode::Start,
            rate: config.start.clamp(floor, cap),
            delay: DelayLaw::new(),
            compete: CompeteLaw::new(),
            scalable: ScalableLaw::default(),
            marks_rule: false,
            chance: LossClassifier::new(),
            heard: None,
            loss_at: None,
            mark_at: None,
            policed_at: None,
            trial: None,
            by_chance: BY_CHANCE,
            halvings: 0,
            timetable: TrainSchedule::default(),
            rule: "start: first packets",
            checks: [Check::new(&super::DELAY), Check::new(&super::TWICE)],
            config,
        }
    }

    /// The source has frames.
    pub(super) fn set_frames(&mut self) {
        self.config.frames = true;
    }

    /// A packet has left, of a source whose frames leave at `pacing` times the rate, while that was `rate`.
    pub(super) fn on_sent(&mut self, at: Time, number: u64, size: u64, pacing: Option<f64>, rate: f64) {
        let most = 0.5 * SILENCE;
        // In a queue of its own what a burst makes is a queue, too.
        let owned = self.mode == Mode::Delay && self.delay.owned(at.as_secs_f64(), self.rate);
        let burst = pacing.filter(|_| !owned).map(|pacing| Burst { rate: rate.max(1.0), pacing, most });
        self.signals.on_sent(at, number, size, burst);
    }

    /// At how many times the rate a frame's packets leave: hardly faster than that where the queue is kept empty.
    pub(super) fn pacing(&self) -> f64 {
        if self.mode == Mode::Delay { A_BIT_MORE } else { self.config.pacing }
    }

    /// Whether trains are sent: by a sender that decides, whose source has packets for them.
    fn has_trains(&self) -> bool {
        !self.config.frames && !self.config.receivers && self.config.train_packets >= 2.0
    }

    /// The train that is wanted: its number, and its packets.
    pub(super) fn train(&self) -> Option<(u32, u32)> {
        if self.mode == Mode::Start || !self.has_trains() {
            return None;
        }
        let config = &self.config;
        let packets = libm::ceil(TRAIN_TIME * self.rate / config.bits).min(2.0 * MANY).max(config.train_packets);
        self.timetable.wanted().map(|number| (number, packets as u32))
    }

    /// Learns from trains, and says when the next one is to leave.
    fn see_trains(&mut self, now: f64, feedback: &FeedbackSummary) {
        let signals = &mut self.signals;
        for train in &feedback.trains {
            signals.trains.note(now, train);
        }
        match self.mode {
            Mode::Start => {}
            Mode::Delay => {
                let doubts = self.delay.is_queue_in_doubt(now, self.rate) || self.delay.takes_train_request();
                self.timetable.delay(now, doubts);
            }
            Mode::Compete => {
                let room = signals.q < BETA * self.compete.high;
                self.timetable.compete(now, room, signals.trains.shows_own_queue(1));
            }
        }
    }

    /// Whether trains show in DELAY that the queue which has lost a packet is the flow's own. Without that doubt what
    /// they show is not counted.
    fn see_own(&mut self, now: f64) {
        let doubts = self.mode == Mode::Delay && self.delay.is_queue_in_doubt(now, self.rate);
        if doubts && self.signals.trains.shows_own_queue(2) {
            self.delay.set_own_queue(now, self.rate);
        } else if !doubts && self.mode != Mode::Compete {
            self.signals.trains.reset_own_queue();
        }
    }

    /// Takes the queue for its own.
    #[cfg(test)]
    pub(super) fn set_own_queue(&mut self, now: f64) {
        self.delay.set_own_queue(now, self.rate);
    }

    fn start(&mut self, input: &LawInput<'_>) {
        let LawInput { now, dt, rtt, .. } = *input;
        let config = &self.config;
        // A start that silence has made slow sends a packet each 150 ms.
        let soon = input.signals.received((GONE * rtt).max(LOW_SPAN));
        let Some(received) = soon.or_else(|| input.signals.received(0.5 * A_WHILE)) else { return };
        if let Some(loss) = &input.loss {
            let queued = self.chance.see(now, loss, 0.0) || loss.q > DRAIN_ABOVE;
            if queued {
                self.enter_compete(input, BETA * received, "compete: loss in the start");
                return;
            }
        }
        let target = self.delay.target(self.rate, config);
        let low = input.signals.low(0.5 * LOW_SPAN);
        if low > (BETA * target).max(0.5 * STANDING) || input.mark {
            self.rate = BETA * received;
            self.delay.begin(now, received);
            (self.delay.started, self.delay.refill) = (now, true);
            (self.mode, self.rule) = (Mode::Delay, "delay: the start found a queue");
            return;
        }
        let most = 2.0 * received.max(input.signals.received(SILENCE).unwrap_or(0.0));
        if self.rate < most {
            self.rate = (self.rate * libm::pow(START_UP, dt / rtt.max(2.0 * config.report_every))).min(most);
        }
        if !input.relation.is_limiting {
            self.rate = self.rate.max(received);
        }
        self.rule = "start: up";
    }

    fn enter_compete(&mut self, input: &LawInput<'_>, rate: f64, rule: &'static str) {
        self.timetable.begin(input.now);
        self.compete.begin(input.now, rate, input.rtt);
        (self.mode, self.rule) = (Mode::Compete, rule);
    }

    fn leave_compete(&mut self, now: f64, received: f64, rule: &'static str) {
        self.compete.left = true;
        self.rate = NEARLY * received;
        self.delay.begin(now, received);
        if rule == OWN_QUEUE {
            self.delay.set_own_queue(now, self.rate);
        }
        (self.mode, self.rule) = (Mode::Delay, rule);
    }

    /// More is lost than chance explains, and nothing waits: at most 0.85 of what arrives is sent, whichever law ruled,
    /// and DELAY goes on from there. Whether losses end then tells a policer's from chance's: those come whatever is
    /// sent.
    fn polices(&mut self, input: &LawInput<'_>) -> bool {
        let LawInput { now, rtt, signals, .. } = *input;
        let (told, share, runs) = signals.loss_shares(now, self.policed_at.map_or(f64::MAX, |at| now - at - rtt));
        let Some(received) = signals.received(rtt.max(SILENCE)) else { return false };
        self.trial = self.trial.take().filter(|_| self.mode == Mode::Delay).and_then(|trial| self.tries(input, trial));
        if input.loss.is_none_or(|loss| loss.q > DRAIN_ABOVE) {
            return false;
        }
        self.chance.refutes(received);
        let policed = self.chance.is_policed(now);
        let competes = self.mode == Mode::Compete;
        let tries = LossClassifier::is_more(told, runs, self.by_chance);
        let more = if competes && !policed { LossClassifier::is_more(told, share, LITTLE) } else { policed || tries };
        if self.trial.is_some() || !more {
            return false;
        }
        let trial = Trial { at: now, share: runs, received, told: 0, lost: 0 };
        self.trial = (tries && !policed).then_some(trial);
        self.policed_at = Some(now);
        (self.rate, self.rule) = (self.rate.min(NEARLY * received), "delay: policed");
        if self.mode != Mode::Delay {
            self.delay.begin(now, received);
            self.mode = Mode::Delay;
        }
        self.delay.polices(now, received);
        true
    }

    /// What came of sending less: nothing yet, or that losses end there, or that they come by chance, whose share is
    /// known then.
    fn tries(&mut self, input: &LawInput<'_>, trial: Trial) -> Option<Trial> {
        let FeedbackSummary { arrived, lost, runs, late, .. } = *input.feedback;
        if input.now < trial.at + input.rtt + self.config.report_most {
            return Some(trial);
        }
        let told = trial.told + (arrived + lost).saturating_sub(late);
        let trial = Trial { told, lost: (trial.lost + runs).saturating_sub(late), ..trial };
        let share = f64::from(trial.lost) / f64::from(trial.told.max(1));
        if LossClassifier::is_less(trial.told, share, trial.share) {
            self.chance.polices(input.now, trial.received);
        } else if f64::from(trial.told) * trial.share > TRIAL_LOST {
            self.by_chance = (MORE * share.max(trial.share)).min(2.0 * LITTLE);
        } else {
            return Some(trial);
        }
        None
    }

    fn law(&mut self, input: &LawInput<'_>) {
        if self.polices(input) {
            return;
        }
        self.marks_rule = self.scalable.rules(input, &self.config);
        if self.marks_rule {
            let Transition::Stay(rate, rule) = self.scalable.update(input, &self.config) else { return };
            (self.rate, self.rule, self.mode) = (rate, rule, Mode::Delay);
            self.delay.begin(input.now, rate);
            return;
        }
        match self.mode {
            Mode::Start => self.start(input),
            Mode::Delay => match self.delay.update(input, &mut self.chance, !self.compete.left, &self.config) {
                Transition::Stay(rate, rule) => (self.rate, self.rule) = (rate, rule),
                Transition::Switch(rate, rule) => self.enter_compete(input, rate, rule),
            },
            Mode::Compete => {
                let target = self.delay.target(self.rate, &self.config);
                match self.compete.update(input, &mut self.chance, target, &self.config) {
                    Transition::Stay(rate, rule) => (self.rate, self.rule) = (rate, rule),
                    Transition::Switch(received, rule) => self.leave_compete(input.now, received, rule),
                }
            }
        }
    }

    /// Looks at its promises.
    pub(super) fn check_promises(&mut self, now: f64, (mode, rate): (Mode, f64), relation: RateRelation) {
        if self.mode != mode || self.marks_rule || !relation.is_limiting {
            return;
        }
        match mode {
            Mode::Delay if self.signals.low(self.delay.span) > 2.0 * self.delay.target_now(now, rate, &self.config) => {
                self.checks[0].see(self.rate <= rate.max(self.floor).max(LEAST));
            }
            Mode::Compete if !self.signals.is_idle(now, NOT_ALL) => {
                let rtt = self.signals.rtt();
                let Some(carried) = self.signals.carries_lately(rate) else { return };
                let most = (2.0 * carried).max(self.compete.restore) + f64::from(SEVERAL) * self.config.bits / rtt;
                self.checks[1].see(self.rate <= most.max(self.floor).max(LEAST));
            }
            _ => {}
        }
    }

    fn clamp(&mut self) {
        let rate = if self.rate.is_finite() { self.rate } else { self.floor };
        let rate = self.trial.map_or(rate, |trial| rate.min(NEARLY * trial.received));
        self.rate = rate.max(LEAST).clamp(self.floor, self.cap);
    }

    /// Hears what became of packets; whether that was anything new.
    pub(super) fn on_feedback(
        &mut self,
        at: Time,
        round: RttSource,
        packets: &[PacketReport],
        relation: RateRelation,
    ) -> bool {
        let keep = match self.mode {
            Mode::Compete => PATH_KEPT,
            Mode::Start | Mode::Delay => KEPT as u64,
        };
        let feedback: FeedbackSummary = self.signals.on_feedback(at, round, packets, (self.rate, keep));
        if feedback.arrived == 0 && feedback.lost == 0 {
            return false;
        }
        let now = at.as_secs_f64();
        let dt = self.heard.map_or(0.0, |heard| (now - heard).clamp(0.0, SILENCE));
        self.heard = Some(now);
        if std::mem::take(&mut self.halvings) >= ENOUGH {
            self.mode = Mode::Start;
        }
        self.compete.watch(self.signals.q, dt);
        self.delay.see_jitter(&self.signals, self.rate, dt, &self.config);
        let loss = feedback.loss.filter(|loss| self.loss_at.is_none_or(|at| loss.sent > at));
        let mark = feedback.latest_marked.is_some_and(|sent| self.mark_at.is_none_or(|at| sent > at));
        if loss.is_some() {
            self.loss_at = Some(now);
        }
        if mark || loss.is_some() {
            self.mark_at = Some(now);
        }
        let mut share = None;
        if self.has_trains() {
            self.see_trains(now, &feedback);
            share = self.signals.trains.share(now);
        }
        let signals = std::mem::take(&mut self.signals);
        let (rate, rtt) = (self.rate, signals.rtt());
        let input =
            LawInput { now, dt, rate, rtt, signals: &signals, feedback: &feedback, loss, mark, share, relation };
        let before = (self.mode, self.rate);
        self.law(&input);
        self.signals = signals;
        if let Some(span) = self.delay.new_path.take() {
            self.signals.learn_path(now, span);
        }
        self.see_own(now);
        self.clamp();
        self.check_promises(now, before, relation);
        true
    }

    /// What limits the rate, and the share of packets that were lost in the last second, once something was heard.
    pub(super) fn limit(&self) -> Limit {
        if self.rate >= self.cap {
            Limit::Cap
        } else if self.mode == Mode::Start {
            Limit::Start
        } else if self.rate <= self.floor {
            Limit::Floor
        } else {
            Limit::Network
        }
    }

    pub(super) fn loss(&self) -> Option<f64> {
        self.heard.map(|heard| self.signals.loss_shares(heard, 1.0).1)
    }

    pub(super) fn rtt(&self) -> Option<Span> {
        self.heard.map(|_| Span::from_secs_f64(self.signals.rtt()))
    }

    /// Nothing was heard for too long.
    pub(super) fn on_feedback_timeout(&mut self) {
        self.halvings = self.halvings.saturating_add(1);
        self.rate = (self.rate / 2.0).max(self.floor);
        self.rule = "no feedback: halved";
    }
}
