//! The laws and which of them rules, told what became of packets: at the sender, or at a receiver that hears them
//! itself.

use super::Config;
use super::compete::{Compete, OWN_QUEUE};
use super::constants::*;
use super::delay::{Delay, Step, Turn};
use super::scalable::Scalable;
use super::signals::{Burst, News, Round, Signals};
use super::trains::Timetable;
use super::verdict::Chance;
use crate::entry::Setup;
use crate::{Check, Limit, PacketReport};
use steadycast_units::{Span, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Start,
    Delay,
    Compete,
}

/// How the rate that a law asks for stands to what is sent. Towards one receiver both hold always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What is sent is no more than the law asks for, so that a yield is one.
    pub(super) obeyed: bool,
    /// What is sent is what the law asks for.
    pub(super) limits: bool,
}

impl Place {
    pub(super) const ALONE: Self = Self { obeyed: true, limits: true };
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
    pub(super) delay: Delay,
    compete: Compete,
    scalable: Scalable,
    /// The scalable rule made the last decision: the promises are those of the other laws.
    marks_rule: bool,
    pub(super) chance: Chance,
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
    timetable: Timetable,
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
            delay: Delay::new(),
            compete: Compete::new(),
            scalable: Scalable::default(),
            marks_rule: false,
            chance: Chance::new(),
            heard: None,
            loss_at: None,
            mark_at: None,
            policed_at: None,
            trial: None,
            by_chance: BY_CHANCE,
            halvings: 0,
            timetable: Timetable::default(),
            rule: "start: first packets",
            checks: [Check::new(&super::DELAY), Check::new(&super::TWICE)],
            config,
        }
    }

    /// The source has frames.
    pub(super) fn has_frames(&mut self) {
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
    fn see_trains(&mut self, now: f64, news: &News) {
        let signals = &mut self.signals;
        for train in &news.trains {
            signals.trains.note(now, train);
        }
        match self.mode {
            Mode::Start => {}
            Mode::Delay => {
                let doubts = self.delay.doubts(now, self.rate) || self.delay.wonders();
                self.timetable.delay(now, doubts);
            }
            Mode::Compete => {
                let room = signals.q < BETA * self.compete.high;
                self.timetable.compete(now, room, signals.trains.show_own(1));
            }
        }
    }

    /// Whether trains show in DELAY that the queue which has lost a packet is the flow's own. Without that doubt what
    /// they show is not counted.
    fn see_own(&mut self, now: f64) {
        let doubts = self.mode == Mode::Delay && self.delay.doubts(now, self.rate);
        if doubts && self.signals.trains.show_own(2) {
            self.delay.owns(now, self.rate);
        } else if !doubts && self.mode != Mode::Compete {
            self.signals.trains.forget_own();
        }
    }

    /// Takes the queue for its own.
    #[cfg(test)]
    pub(super) fn take_as_own(&mut self, now: f64) {
        self.delay.owns(now, self.rate);
    }

    fn start(&mut self, step: &Step<'_>) {
        let Step { now, dt, rtt, .. } = *step;
        let config = &self.config;
        // A start that silence has made slow sends a packet each 150 ms.
        let soon = step.signals.received((GONE * rtt).max(LOW_SPAN));
        let Some(received) = soon.or_else(|| step.signals.received(0.5 * A_WHILE)) else { return };
        if let Some(loss) = &step.loss {
            let queued = self.chance.see(now, loss, 0.0) || loss.q > DRAIN_ABOVE;
            if queued {
                self.enter_compete(step, BETA * received, "compete: loss in the start");
                return;
            }
        }
        let target = self.delay.target(self.rate, config);
        let low = step.signals.low(0.5 * LOW_SPAN);
        if low > (BETA * target).max(0.5 * STANDING) || step.mark {
            self.rate = BETA * received;
            self.delay.begin(now, received);
            (self.delay.started, self.delay.refill) = (now, true);
            (self.mode, self.rule) = (Mode::Delay, "delay: the start found a queue");
            return;
        }
        let most = 2.0 * received.max(step.signals.received(SILENCE).unwrap_or(0.0));
        if self.rate < most {
            self.rate = (self.rate * libm::pow(START_UP, dt / rtt.max(2.0 * config.report_every))).min(most);
        }
        if !step.place.limits {
            self.rate = self.rate.max(received);
        }
        self.rule = "start: up";
    }

    fn enter_compete(&mut self, step: &Step<'_>, rate: f64, rule: &'static str) {
        self.timetable.begin(step.now);
        self.compete.begin(step.now, rate, step.rtt);
        (self.mode, self.rule) = (Mode::Compete, rule);
    }

    fn leave_compete(&mut self, now: f64, received: f64, rule: &'static str) {
        self.compete.left = true;
        self.rate = NEARLY * received;
        self.delay.begin(now, received);
        if rule == OWN_QUEUE {
            self.delay.owns(now, self.rate);
        }
        (self.mode, self.rule) = (Mode::Delay, rule);
    }

    /// More is lost than chance explains, and nothing waits: at most 0.85 of what arrives is sent, whichever law ruled,
    /// and DELAY goes on from there. Whether losses end then tells a policer's from chance's: those come whatever is
    /// sent.
    fn polices(&mut self, step: &Step<'_>) -> bool {
        let Step { now, rtt, signals, .. } = *step;
        let (told, share, runs) = signals.lossy(now, self.policed_at.map_or(f64::MAX, |at| now - at - rtt));
        let Some(received) = signals.received(rtt.max(SILENCE)) else { return false };
        self.trial = self.trial.take().filter(|_| self.mode == Mode::Delay).and_then(|trial| self.tries(step, trial));
        if step.loss.is_none_or(|loss| loss.q > DRAIN_ABOVE) {
            return false;
        }
        self.chance.refutes(received);
        let policed = self.chance.is_policed(now);
        let competes = self.mode == Mode::Compete;
        let tries = Chance::is_more(told, runs, self.by_chance);
        let more = if competes && !policed { Chance::is_more(told, share, LITTLE) } else { policed || tries };
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
    fn tries(&mut self, step: &Step<'_>, trial: Trial) -> Option<Trial> {
        let News { arrived, lost, runs, late, .. } = *step.news;
        if step.now < trial.at + step.rtt + self.config.report_most {
            return Some(trial);
        }
        let told = trial.told + (arrived + lost).saturating_sub(late);
        let trial = Trial { told, lost: (trial.lost + runs).saturating_sub(late), ..trial };
        let share = f64::from(trial.lost) / f64::from(trial.told.max(1));
        if Chance::is_less(trial.told, share, trial.share) {
            self.chance.polices(step.now, trial.received);
        } else if f64::from(trial.told) * trial.share > TRIAL_LOST {
            self.by_chance = (MORE * share.max(trial.share)).min(2.0 * LITTLE);
        } else {
            return Some(trial);
        }
        None
    }

    fn law(&mut self, step: &Step<'_>) {
        if self.polices(step) {
            return;
        }
        self.marks_rule = self.scalable.rules(step, &self.config);
        if self.marks_rule {
            let Turn::Rate(rate, rule) = self.scalable.step(step, &self.config) else { return };
            (self.rate, self.rule, self.mode) = (rate, rule, Mode::Delay);
            self.delay.begin(step.now, rate);
            return;
        }
        match self.mode {
            Mode::Start => self.start(step),
            Mode::Delay => match self.delay.step(step, &mut self.chance, !self.compete.left, &self.config) {
                Turn::Rate(rate, rule) => (self.rate, self.rule) = (rate, rule),
                Turn::Go(rate, rule) => self.enter_compete(step, rate, rule),
            },
            Mode::Compete => {
                let target = self.delay.target(self.rate, &self.config);
                match self.compete.step(step, &mut self.chance, target, &self.config) {
                    Turn::Rate(rate, rule) => (self.rate, self.rule) = (rate, rule),
                    Turn::Go(received, rule) => self.leave_compete(step.now, received, rule),
                }
            }
        }
    }

    /// Looks at its promises.
    pub(super) fn look(&mut self, now: f64, (mode, rate): (Mode, f64), place: Place) {
        if self.mode != mode || self.marks_rule || !place.limits {
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
    pub(super) fn hear(&mut self, at: Time, round: Round, packets: &[PacketReport], place: Place) -> bool {
        let keep = match self.mode {
            Mode::Compete => PATH_KEPT,
            Mode::Start | Mode::Delay => KEPT as u64,
        };
        let news: News = self.signals.hear(at, round, packets, (self.rate, keep));
        if news.arrived == 0 && news.lost == 0 {
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
        let loss = news.loss.filter(|loss| self.loss_at.is_none_or(|at| loss.sent > at));
        let mark = news.latest_marked.is_some_and(|sent| self.mark_at.is_none_or(|at| sent > at));
        if loss.is_some() {
            self.loss_at = Some(now);
        }
        if mark || loss.is_some() {
            self.mark_at = Some(now);
        }
        let mut share = None;
        if self.has_trains() {
            self.see_trains(now, &news);
            share = self.signals.trains.share(now);
        }
        let signals = std::mem::take(&mut self.signals);
        let (rate, rtt) = (self.rate, signals.rtt());
        let step = Step { now, dt, rate, rtt, signals: &signals, news: &news, loss, mark, share, place };
        let before = (self.mode, self.rate);
        self.law(&step);
        self.signals = signals;
        if let Some(span) = self.delay.new_path.take() {
            self.signals.learn_path(now, span);
        }
        self.see_own(now);
        self.clamp();
        self.look(now, before, place);
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
        self.heard.map(|heard| self.signals.lossy(heard, 1.0).1)
    }

    pub(super) fn rtt(&self) -> Option<Span> {
        self.heard.map(|_| Span::from_secs_f64(self.signals.rtt()))
    }

    /// Nothing was heard for too long.
    pub(super) fn halve(&mut self) {
        self.halvings = self.halvings.saturating_add(1);
        self.rate = (self.rate / 2.0).max(self.floor);
        self.rule = "no feedback: halved";
    }
}
