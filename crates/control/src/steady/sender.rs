use super::Config;
use super::compete::{After, Compete, OWN_QUEUE};
use super::delay::{Delay, Step, Turn};
use super::scalable::Scalable;
use super::signals::{Burst, News, Signals};
use super::verdict::{Backoff, Chance};
use crate::entry::Setup;
use crate::silence::Silence;
use crate::{Check, Decision, ExtraSent, Limit, MediaQueue, ReceiverId, Report, SenderHalf, Sent, Wake, Why};
use std::borrow::Cow;
use steadycast_units::{Rate, Span, Time};

/// The longest time, in seconds, for which a law grows at one report.
const MOST_STEP: f64 = 0.5;
/// Silence lasts this many round trips at least.
const SILENT_ROUNDS: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Start,
    Delay,
    Compete,
}

/// The sending half.
pub(super) struct Sender {
    config: Config,
    floor: f64,
    cap: f64,
    signals: Signals,
    mode: Mode,
    rate: f64,
    delay: Delay,
    compete: Compete,
    scalable: Scalable,
    chance: Chance,
    backoff: Backoff,
    silence: Silence,
    /// When the last report came.
    heard: Option<f64>,
    /// When a loss and a mark were answered last: what left before belongs to them.
    loss_at: Option<f64>,
    mark_at: Option<f64>,
    /// The source has frames, which are to leave sooner than at their mean rate.
    frames: bool,
    rule: &'static str,
    by: Option<ReceiverId>,
    checks: [Check; 2],
}

impl Sender {
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
            chance: Chance::new(),
            backoff: Backoff::new(),
            silence: Silence::default(),
            heard: None,
            loss_at: None,
            mark_at: None,
            frames: false,
            rule: "start: first packets",
            by: None,
            checks: [Check::new("INV-1"), Check::new("INV-2")],
            config,
        }
    }

    fn sent(&mut self, at: Time, number: u64, size: u64) {
        let Config { pacing, burst_most: most, .. } = self.config;
        let burst = self.frames.then_some(Burst { rate: self.rate.max(1.0), pacing, most });
        self.signals.on_sent(at, number, size, burst);
        let patience = self.config.silence.max(SILENT_ROUNDS * self.signals.rtt());
        self.silence.on_sent(at, Span::from_secs_f64(patience));
    }

    fn start(&mut self, step: &Step<'_>) {
        let Step { now, dt, rtt, .. } = *step;
        let config = &self.config;
        let Some(received) = step.signals.received((0.6 * rtt).max(0.06)) else { return };
        if let Some(loss) = &step.loss {
            let queued = self.chance.see(now, loss, 0.0, config) || loss.q > config.drain_above;
            let (arrived, share) = step.signals.lossy(now, 1.0);
            if queued || (share > config.policer && f64::from(arrived) > config.policer_packets) {
                self.enter_compete(step, 0.7 * received, "compete: loss in the start");
                return;
            }
        }
        let target = self.delay.target(self.rate, config);
        let grows = step.signals.slope((0.5 * rtt).max(0.03)).is_some_and(|slope| slope > config.start_slope);
        let low = step.signals.low(0.03);
        if low > (0.7 * target).max(0.004) || step.mark || (grows && low > 0.002) {
            self.rate = config.start_to * received;
            self.delay.begin(now, received);
            (self.delay.started, self.delay.refill) = (now, true);
            (self.mode, self.rule) = (Mode::Delay, "delay: the start found a queue");
            return;
        }
        let most = config.start_most * received.max(step.signals.received(0.5).unwrap_or(0.0));
        if self.rate < most {
            self.rate = (self.rate * libm::pow(config.start_up, dt / rtt.max(0.05))).min(most);
        }
        self.rule = "start: up";
    }

    fn enter_compete(&mut self, step: &Step<'_>, rate: f64, rule: &'static str) {
        let again = self.backoff.again(step.now, step.rtt, &self.config);
        let first = self.backoff.left.is_none();
        self.backoff.enter(step.now, step.rtt, &self.config);
        self.compete.begin(step.now, rate, step.rtt, (again, first), &self.config);
        (self.mode, self.rule) = (Mode::Compete, rule);
    }

    fn leave_compete(&mut self, step: &Step<'_>, rate: f64, rule: &'static str, proven: bool) {
        let received = step.signals.carries(step.rtt.max(self.config.received_span), step.rate).unwrap_or(rate);
        self.backoff.left = Some(step.now);
        let waits = step.signals.q > self.delay.target(self.rate, &self.config);
        if proven {
            self.backoff.clear();
            self.rate = rate;
            self.delay.begin(step.now, rate / 0.85);
            if rule == OWN_QUEUE {
                self.delay.own_until = step.now + self.config.own_kept;
            }
        } else {
            self.rate = if waits { 0.85 * received } else { rate.min(received) };
            self.delay.begin(step.now, received);
        }
        (self.mode, self.rule) = (Mode::Delay, rule);
    }

    fn law(&mut self, step: &Step<'_>) {
        if self.scalable.rules(step, &self.config) {
            let Turn::Rate(rate, rule) = self.scalable.step(step, &self.config) else { return };
            (self.rate, self.rule, self.mode) = (rate, rule, Mode::Delay);
            self.delay.begin(step.now, rate);
            return;
        }
        match self.mode {
            Mode::Start => self.start(step),
            Mode::Delay => {
                let window = self.compete.would_carry(step.now, step.rtt, &self.config);
                match self.delay.step(step, &mut self.chance, &self.backoff, window, &self.config) {
                    Turn::Rate(rate, rule) => (self.rate, self.rule) = (rate, rule),
                    Turn::Go(rate, rule) => self.enter_compete(step, rate, rule),
                }
            }
            Mode::Compete => {
                let target = self.delay.target(self.rate, &self.config);
                match self.compete.step(step, &mut self.chance, &self.backoff, target, &self.config) {
                    After::Stay(Turn::Rate(rate, rule) | Turn::Go(rate, rule)) => (self.rate, self.rule) = (rate, rule),
                    After::Leave { rate, rule, proven } => self.leave_compete(step, rate, rule, proven),
                }
            }
        }
    }

    /// Looks at its promises.
    fn look(&mut self, now: f64, (mode, rate): (Mode, f64)) {
        if self.mode != mode {
            return;
        }
        match mode {
            Mode::Delay if self.signals.low(self.config.low_span) > 2.0 * self.delay.target(rate, &self.config) => {
                self.checks[0].see(self.rate <= rate.max(self.floor).max(self.config.least));
            }
            Mode::Compete if !self.signals.is_idle(now, self.config.idle) => {
                let rtt = self.signals.rtt();
                let Some(received) = self.signals.received((2.0 * rtt).max(0.5)) else { return };
                let most = (2.0 * received).max(self.compete.restore) + 4.0 * self.config.bits / rtt;
                self.checks[1].see(self.rate <= most.max(self.floor).max(self.config.least));
            }
            _ => {}
        }
    }

    fn clamp(&mut self) {
        let rate = if self.rate.is_finite() { self.rate } else { self.floor };
        self.rate = rate.max(self.config.least).clamp(self.floor, self.cap);
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent(sent.at, sent.number, sent.size.get());
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.sent(sent.at, sent.number, sent.size.get());
    }

    fn on_queue(&mut self, _: &MediaQueue) {
        self.frames = true;
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let keep = match self.mode {
            Mode::Compete => self.config.base_kept_competing,
            Mode::Start | Mode::Delay => self.config.base_kept,
        };
        let news: News = self.signals.hear(report.at, report.rtt, report.packets, (self.rate, keep as u64));
        if news.arrived == 0 && news.lost == 0 {
            return;
        }
        self.silence.on_heard();
        self.by = Some(report.from);
        let now = report.at.as_secs_f64();
        let dt = self.heard.map_or(0.0, |heard| (now - heard).clamp(0.0, MOST_STEP));
        self.heard = Some(now);
        self.compete.watch(self.signals.q, dt);
        let loss = news.loss.filter(|loss| self.loss_at.is_none_or(|at| loss.sent > at));
        let mark = news.latest_marked.is_some_and(|sent| self.mark_at.is_none_or(|at| sent > at));
        if loss.is_some() {
            self.loss_at = Some(now);
        }
        if mark || loss.is_some() {
            self.mark_at = Some(now);
        }
        let signals = std::mem::take(&mut self.signals);
        let step = Step { now, dt, rate: self.rate, rtt: signals.rtt(), signals: &signals, news: &news, loss, mark };
        let before = (self.mode, self.rate);
        self.law(&step);
        self.signals = signals;
        self.clamp();
        self.look(now, before);
    }

    fn on_timer(&mut self, now: Time) {
        if self.silence.is_over(now) {
            self.rate = (self.rate / 2.0).max(self.floor);
            self.rule = "no feedback: halved";
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.silence.wake()
    }

    fn decision(&self) -> Decision {
        let limit = if self.rate >= self.cap {
            Limit::Cap
        } else if self.mode == Mode::Start {
            Limit::Start
        } else if self.rate <= self.floor {
            Limit::Floor
        } else {
            Limit::Network
        };
        let pacing = if self.frames { self.config.pacing * self.rate } else { self.rate };
        let heard = self.heard.unwrap_or(0.0);
        Decision {
            target: Rate::from_bps_f64(self.rate),
            pacing: Rate::from_bps_f64(pacing),
            window: None,
            limit,
            why: Why {
                rule: Cow::Borrowed(self.rule),
                loss: self.heard.map(|_| self.signals.lossy(heard, 1.0).1),
                rtt: self.heard.map(|_| Span::from_secs_f64(self.signals.rtt())),
                by: self.by,
            },
        }
    }

    fn checks(&self) -> &[Check] {
        &self.checks
    }
}
