use super::echo::Echoes;
use super::message::{ReceiverReport, SenderNotice};
use super::rtt::elapsed;
use super::{Config, GRANULARITY, Profile, R_MAX_DECAY, X_MIN};
use crate::entry::{Setup, Values};
use crate::equation::initial_window;
use crate::{Check, Decision, Departing, Leave, Limit, Notice, ReceiverId, Report, SenderHalf, Sent, Wake, Why};
use steadycast_units::{Bytes, Rate, Span, Time};

/// If the limiting receiver does not report for this number of round trips, the rate is halved.
const CLR_HALVE_RTTS: u64 = 4;
/// The limiting receiver is dropped if it does not report for this number of round trips (RFC 4654, section 3.3).
const CLR_TIMEOUT_RTTS: u64 = 10;
/// The rule that lowers the rate if no receiver reports.
const SILENCE: &str = "silence: halved";
/// Number of steps per R_max in which the rate rises in slow start.
const RAMP_STEPS: u64 = 8;
/// The longest R_max that a packet's notice can express.
const MOST_R_MAX: Span = Span::secs(65);

#[derive(Clone, Copy, Debug)]
struct Clr {
    id: ReceiverId,
    rtt: Span,
    chosen: Time,
    heard: Time,
    rate: Rate,
    loss: f64,
    leaving: bool,
    halved: bool,
}

/// Slow start: the rate rises by `step` at the time `next`, and then at regular intervals, until it is `target`.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    target: Rate,
    step: Rate,
    next: Time,
}

/// Half of the rate that the limiting receiver requested at the end of slow start. The path has carried this rate.
#[derive(Clone, Copy, Debug)]
struct ProvenRate {
    rate: Rate,
    by: ReceiverId,
    loss: f64,
}

/// The part of the controller at the sender (RFC 4654, section 3).
#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    packet: Bytes,
    least: Rate,
    cap: Rate,
    x: Rate,
    r_max: Span,
    /// R_max before [`Sender::stretch`] raises it to the packet interval. If there is no quick start, it equals
    /// `r_max`, as in the RFC.
    r_known: Span,
    r_peak: Span,
    raised: bool,
    assumed: bool,
    group: bool,
    fb_nr: u8,
    round_began: Option<Time>,
    round_heard: bool,
    x_supp: Rate,
    clr: Option<Clr>,
    /// The rate must not rise before this time, so that receivers with lower rates can report first.
    hold: Option<Time>,
    slow_start: bool,
    ramp: Option<Ramp>,
    /// Up to this rate, the rate may rise without a limit per round trip. A new loss event clears it.
    proven: Option<ProvenRate>,
    raised_at: Option<Time>,
    /// Number of bytes sent since this time. It shows whether the source is application-limited.
    sent: (Bytes, Time),
    uses: bool,
    halve_at: Option<Time>,
    rule: &'static str,
    echoes: Echoes,
    /// The run-time check that, outside slow start, the rate rises by at most one packet per R_max within one R_max.
    rises: Check,
    risen: Option<Time>,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let config = Config::new(values);
        let least = setup.packet.per(X_MIN).max(setup.floor).min(setup.cap);
        Self {
            packet: setup.packet,
            least,
            cap: setup.cap,
            x: if config.quick { initial_window(setup.packet) } else { setup.packet }
                .per(config.r_max)
                .clamp(least, setup.cap),
            r_max: config.r_max,
            r_known: config.r_max,
            assumed: config.quick,
            group: setup.group,
            x_supp: Rate::MAX,
            slow_start: true,
            uses: true,
            rule: "one packet per R_max",
            rises: Check::new(&super::RISE),
            config,
            ..Self::default()
        }
    }

    fn set(&mut self, x: Rate, rule: &'static str) {
        self.x = x.clamp(self.least, self.cap);
        self.rule = rule;
        self.stretch();
    }

    /// Sets R_max to the known maximum round-trip time, but at least to the interval between two packets.
    fn stretch(&mut self) {
        let gap = self.packet.at(self.x) + GRANULARITY;
        self.r_max = self.r_known.max(gap).min(MOST_R_MAX);
        if !self.config.quick {
            self.r_known = self.r_max;
        }
    }

    fn round(&self) -> Span {
        self.config.round(self.r_max, self.fb_nr == 0 && self.slow_start)
    }

    /// Replaces the assumed R_max by the first measured R_max. In a group, this function does nothing until the round
    /// has lasted for the assumed R_max, so that other receivers can report first.
    fn settle_r_max(&mut self, now: Time) {
        if !self.assumed || (self.group && self.round_began.is_none_or(|began| now < began + self.config.r_max)) {
            return;
        }
        self.assumed = false;
        self.r_known = self.r_peak.max(Span::millis(1));
        if self.slow_start {
            self.set(self.x.max(initial_window(self.packet).per(self.r_known)), "initial window");
        }
        self.stretch();
    }

    fn measure(&mut self, rtt: Span) {
        self.r_peak = self.r_peak.max(rtt);
        if rtt > self.r_known {
            let by = rtt.saturating_sub(self.r_known);
            self.r_known += if self.config.profile == Profile::Norm { by.scale(0.75) } else { by };
            self.raised = true;
            self.stretch();
        }
    }

    fn new_round(&mut self, now: Time) {
        // Lower R_max only after a round in which no round-trip time exceeded it (RFC 4654, section 3.2).
        if !self.raised && !self.assumed {
            self.r_known = self.r_known.scale(R_MAX_DECAY).max(self.r_peak).max(Span::millis(1));
            self.stretch();
        }
        (self.r_peak, self.raised) = (Span::ZERO, false);
        self.fb_nr = self.fb_nr.wrapping_add(1);
        (self.round_began, self.round_heard) = (Some(now), false);
        self.x_supp = Rate::MAX;
        self.echoes.new_round();
    }

    /// Returns when the round ends. It lasts twice as long if only the limiting receiver has reported.
    fn round_ends(&self) -> Option<Time> {
        let rounds = if self.round_heard { 1 } else { 2 };
        self.round_began.map(|began| began + self.round() * rounds)
    }

    fn elect(&mut self, id: ReceiverId, back: &ReceiverReport, rtt: Span, rate: Rate, now: Time) {
        self.echoes.set_clr(id, back.ts, now);
        self.clr = Some(Clr { id, rtt, chosen: now, heard: now, rate, loss: back.loss, leaving: false, halved: false });
    }

    fn drop_clr(&mut self, now: Time) {
        self.clr = None;
        self.echoes.clear_clr();
        self.ramp = None;
        self.hold = Some(now + self.round());
    }

    /// Increases the rate towards `target`, by at most one packet per R_max in each R_max (RFC 4654, section 3.3).
    /// Reports may come more often than that, so the step is proportional to the time since the last report.
    ///
    /// ```text
    ///                         8 s          ⎛    t − t_last ⎞
    ///  X := min( X_r,  X  +  ───── · min   ⎜1,  ────────── ⎟ )
    ///                        R_max         ⎝      R_max    ⎠
    /// ```
    ///
    /// In a quick start, the limit applies only above the receive rate that was reached at the end of slow start.
    fn rise(&mut self, target: Rate, now: Time) {
        // Do not count the time of a hold, so that the rate does not jump when the hold ends.
        let since = self.raised_at.replace(now).map_or(Span::ZERO, |at| now.since(at));
        if self.hold.is_some_and(|until| now < until) {
            self.rule = "held for a round";
            return;
        }
        self.hold = None;
        if !self.uses {
            self.rule = "not risen: the source sends less";
            return;
        }
        let allowance = self.packet.per(self.r_max).scale(since.ratio(self.r_max).min(1.0));
        let proven = self.proven.map_or(Rate::ZERO, |proven| proven.rate);
        self.set(target.min((self.x + allowance).max(proven)), "limiting receiver's rate");
        self.proven = self.proven.filter(|proven| self.x < proven.rate);
    }

    fn aim(&mut self, target: Rate, now: Time) {
        // The first packets underestimate the path. Send at least the initial window per round trip (RFC 5348, section
        // 4.3).
        let first = initial_window(self.packet).per(self.r_known);
        let target = if self.config.quick && !self.assumed { target.max(first) } else { target };
        if target <= self.x {
            self.ramp = None;
            self.set(target, "slow start: twice the least receive rate");
        } else {
            let step = target.saturating_sub(self.x).scale(1.0 / RAMP_STEPS as f64).max(Rate::bps(1));
            let next = self.ramp.map_or(now, |r| r.next).max(now);
            self.ramp = Some(Ramp { target, step, next });
        }
    }

    fn adjust(&mut self, id: ReceiverId, back: &ReceiverReport, rtt: Span, now: Time) {
        let mut rate = back.rate;
        if back.have_loss && !back.have_rtt {
            // The receiver has no round-trip time, so it has computed the rate with R_max. Correct the rate with the
            // round-trip time that the sender has measured by the echo.
            rate = rate.scale(self.r_max.ratio(rtt));
        }
        // Include the packet interval in the timeout, because a receiver can report only after a packet.
        let patience = rtt.max(back.rtt.min(MOST_R_MAX)).max(self.packet.at(self.x));
        self.proven = self.proven.filter(|proven| proven.by == id || self.clr.is_some_and(|clr| clr.id == proven.by));
        self.proven = self.proven.filter(|proven| proven.by != id || back.loss <= proven.loss);
        if back.have_loss && self.slow_start {
            let clr = self.clr.filter(|clr| clr.id == id && self.config.quick);
            // Halve the requested rate, because in slow start a receiver requests twice its receive rate.
            self.proven = clr.map(|clr| ProvenRate { rate: clr.rate.scale(0.5), by: id, loss: back.loss });
            self.slow_start = false;
            self.ramp = None;
            self.raised_at = Some(now);
        }
        let held = self.hold.is_some_and(|until| now < until);
        match self.clr {
            Some(clr) if clr.id == id => {
                let leaving = back.leave;
                self.clr =
                    Some(Clr { rtt: patience, heard: now, rate, loss: back.loss, leaving, halved: false, ..clr });
                // Do not let the last report of a receiver raise the rate.
                if leaving && rate >= self.x {
                    return;
                }
            }
            _ if back.leave => return,
            None => self.elect(id, back, patience, rate, now),
            Some(clr) if clr.leaving => {
                self.elect(id, back, patience, rate, now);
                self.hold = Some(now + self.round());
            }
            // During a hold or in slow start, the rate is below the rate of the limiting receiver. Compare the report
            // with that receiver's rate, too.
            Some(clr) if rate < self.x || ((held || self.slow_start) && rate < clr.rate) => {
                self.elect(id, back, patience, rate, now);
            }
            Some(_) => return,
        }
        if self.slow_start {
            self.aim(rate, now);
        } else if rate < self.x {
            self.raised_at = Some(now);
            self.set(rate, "limiting receiver's rate");
        } else {
            self.rise(rate, now);
        }
    }

    fn look(&mut self, before: Rate, r_max: Span, slow: bool, now: Time) {
        if slow {
            self.risen = Some(now);
            return;
        }
        let since = self.risen.map_or(Span::ZERO, |at| now.since(at));
        let most = self.packet.as_f64() * 8.0 / r_max.as_secs_f64() * since.ratio(r_max).min(1.0);
        self.rises.see(self.x.as_bps_f64() <= before.as_bps_f64() + most + 8.0);
        if self.x > before {
            self.risen = Some(now);
        }
    }

    fn clr_timer(&self) -> Option<Time> {
        let clr = self.clr?;
        let gone = clr.heard + clr.rtt * CLR_TIMEOUT_RTTS;
        let halve = (clr.heard + clr.rtt * CLR_HALVE_RTTS).max(clr.chosen + clr.rtt * CLR_TIMEOUT_RTTS);
        Some(if clr.halved { gone } else { halve.min(gone) })
    }

    fn check_clr(&mut self, now: Time) {
        while let (Some(at), Some(clr)) = (self.clr_timer(), self.clr) {
            if at > now {
                return;
            }
            if at >= clr.heard + clr.rtt * CLR_TIMEOUT_RTTS {
                self.drop_clr(now);
            } else {
                self.clr = Some(Clr { halved: true, ..clr });
                self.ramp = None;
                self.set(self.x.scale(0.5), "limiting receiver silent: halved");
            }
        }
    }

    fn check_silence(&mut self, now: Time) {
        if self.halve_at.is_some_and(|at| at <= now) {
            self.ramp = None;
            self.set(self.x.scale(0.5), SILENCE);
            self.halve_at = Some(now + self.r_max * CLR_TIMEOUT_RTTS);
        }
    }

    fn climb(&mut self, now: Time) {
        while let Some(ramp) = self.ramp {
            if ramp.next > now {
                return;
            }
            // If the timer is late, make up for missed steps, but only for those of the last R_max.
            let next = ramp.next.max(now.before(self.r_max)) + (self.r_max / RAMP_STEPS).max(Span::micros(100));
            self.ramp = (self.x + ramp.step < ramp.target).then_some(Ramp { next, ..ramp });
            self.set((self.x + ramp.step).min(ramp.target), "slow start: twice the least receive rate");
        }
    }

    fn watch_use(&mut self, sent: &Sent) {
        let (bytes, since) = self.sent;
        self.sent.0 = bytes + sent.size;
        let span = sent.at.since(since);
        if span >= self.r_max {
            // The source uses its rate if it sends at least half of it.
            self.uses = self.sent.0.per(span).scale(2.0) >= self.x;
            self.sent = (Bytes::ZERO, sent.at);
        }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        if self.round_began.is_none() {
            self.round_began = Some(sent.at);
            self.halve_at = Some(sent.at + self.r_max * CLR_TIMEOUT_RTTS);
            self.sent.1 = sent.at;
        }
        self.watch_use(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let now = report.at;
        let Some(back) = report.body.and_then(ReceiverReport::read) else { return };
        let Some(rtt) = elapsed(back.echo, now) else { return };
        self.round_began.get_or_insert(now);
        self.measure(rtt);
        self.settle_r_max(now);
        let is_clr = self.clr.is_some_and(|clr| clr.id == report.from);
        self.echoes.on_report(report.from, back.ts, now, back.have_rtt, back.fb_nr, back.rate);
        // Up to the proven rate, `adjust` may raise the rate in one step. So let `look` check only the rise above that
        // rate.
        let known = self.proven.map_or(Rate::ZERO, |proven| proven.rate);
        let (x, r_max, slow) = (self.x.max(known), self.r_max, self.slow_start);
        self.adjust(report.from, &back, rtt, now);
        self.look(x, r_max, slow, now);
        self.halve_at = Some(now + self.r_max * CLR_TIMEOUT_RTTS);
        if !is_clr && !back.leave {
            if back.fb_nr == self.fb_nr {
                self.round_heard = true;
                // From now on, a receiver reports only if its rate is lower than the rate of this report by at least
                // the fraction g (RFC 4654, section 3.4).
                if self.x_supp > back.rate {
                    self.x_supp = back.rate.scale(1.0 - self.config.g);
                }
            }
            if self.round_began.is_some_and(|began| now >= began + self.round()) {
                self.new_round(now);
            }
        }
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, _: Leave) {
        self.echoes.forget(receiver);
        if self.clr.is_some_and(|clr| clr.id == receiver) {
            self.drop_clr(at);
        }
    }

    fn on_timer(&mut self, now: Time) {
        self.climb(now);
        self.check_clr(now);
        self.check_silence(now);
        if self.round_ends().is_some_and(|at| at <= now) {
            self.new_round(now);
        }
    }

    fn wake(&self) -> Option<Wake> {
        let wake = |at: Option<Time>, why| at.map(|at| Wake { at, why });
        [
            wake(self.ramp.map(|r| r.next), "slow start"),
            wake(self.clr_timer(), "limiting receiver's silence"),
            wake(self.halve_at, "everybody's silence"),
            wake(self.round_ends(), "feedback round"),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|wake| wake.at)
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.rises)
    }

    fn decision(&self) -> Decision {
        // Without reports, the missing reports limit the rate, not the start phase.
        let limit = Limit::between(self.x, self.least, self.cap, self.slow_start && self.rule != SILENCE);
        let why = Why {
            loss: self.clr.map(|clr| clr.loss),
            rtt: self.clr.map(|clr| clr.rtt),
            by: self.clr.map(|clr| clr.id),
            ..Why::rule(self.rule)
        };
        Decision { target: self.x, pacing: self.x, window: None, limit, why }
    }

    fn notice(&mut self, packet: &Departing) -> Notice {
        // Echo the limiting receiver's stamp at the latest in the second half of each round.
        let late = self.round_began.is_some_and(|began| packet.at.since(began) > self.round() / 2);
        let echo = self.echoes.next(packet.at, self.fb_nr, late);
        let forward = SenderNotice {
            x_supp: self.x_supp,
            fb_nr: self.fb_nr,
            r_max: self.r_max,
            clr: self.clr.map(|clr| clr.id),
            echo,
            slow_start: self.slow_start,
            x: (self.config.profile != Profile::Rfc4654).then_some(self.x),
        };
        forward.notice()
    }
}
