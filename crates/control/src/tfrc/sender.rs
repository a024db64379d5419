use super::message::{EXTENSION, FeedbackReport, RTT_UNIT, rtt_notice};
use super::{Settings, T_MBI};
use crate::entry::Setup;
use crate::equation::{self, LossRate};
use crate::fields::ABSURD_RTT;
use crate::{Check, Decision, Departing, Limit, Notice, ReceiverId, Report, SenderHalf, Sent, Wake, Why};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span, Stamp, Time};

/// No-feedback timeout before the first round-trip measurement (RFC 5348, section 4.2).
const FIRST_TIMER: Span = Span::secs(2);
/// Maximum number of entries in `not_limited`. This number suffices for about two round trips.
const MOST_RUNS: usize = 64;
/// Maximum number of entries in X_recv_set (RFC 5348, section 8.2.2).
const RECEIVED_ENTRIES: usize = 3;

/// TCP's retransmission timeout, computed as in the TFRC of ns-2: in whole ticks of 0.1 s and without a minimum.
#[derive(Clone, Copy, Debug, Default)]
struct TcpRto {
    /// The smoothed round-trip time, in eighths of a tick.
    smoothed: i64,
    /// The mean deviation of the round-trip time, in quarters of a tick.
    deviation: i64,
}

impl TcpRto {
    const TICK: Span = Span::millis(100);

    fn sample(&mut self, rtt: Span) {
        let ticks = ((rtt.ratio(Self::TICK) + 0.5) as i64).max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.deviation) = (ticks * 8, ticks * 2);
            return;
        }
        let off = ticks - self.smoothed / 8;
        self.smoothed = (self.smoothed + off).max(1);
        self.deviation = (self.deviation + off.abs() - self.deviation / 4).max(1);
    }

    fn value(&self) -> Span {
        let ticks = (self.smoothed + 8 * self.deviation) / 8;
        Self::TICK * u64::try_from(ticks).unwrap_or(1).max(1)
    }
}

#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Span,
    latest: Span,
    /// R_sqmean: mean of the square roots of all round-trip samples.
    root_mean: f64,
}

/// The part of one TFRC connection at the sender.
#[derive(Default)]
pub(crate) struct Sender {
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    settings: Settings,
    /// The number of TCP connections that the flow stands for. The equation's rate is multiplied by it.
    connections: f64,
    /// X: the rate that the network allows, before the session's minimum and maximum rates are applied.
    allowed: Rate,
    rtt: Option<RoundTrip>,
    rto: TcpRto,
    loss: Option<LossRate>,
    /// X_recv_set, oldest first. It is never empty, because it begins with the entry "no limit".
    received: Vec<(Rate, Time)>,
    doubled: Time,
    changed: Time,
    /// Whether the throughput equation has already set the rate once.
    lossy: bool,
    first_sent: Option<Time>,
    nofeedback: Option<Time>,
    /// The longest interval between two reports if no report is lost.
    apart: Span,
    /// Whether no packet was sent since the no-feedback timer was set.
    idle: bool,
    /// Runs of packets during which the sender was not data-limited. Each has its first and last send time, oldest
    /// first.
    not_limited: VecDeque<(Time, Time)>,
    unlimited: bool,
    covered_to: Option<Time>,
    rule: &'static str,
    by: Option<ReceiverId>,
    /// The run-time check that, after a loss, the rate is at most twice the receive rate.
    twice: Check,
}

impl Sender {
    pub(crate) fn new(setup: &Setup, settings: &Settings) -> Self {
        Self {
            packet: setup.packet,
            floor: setup.floor.min(setup.cap),
            cap: setup.cap,
            settings: *settings,
            connections: 1.0,
            allowed: setup.packet.per(Span::secs(1)),
            received: vec![(Rate::MAX, Time::ZERO)],
            idle: true,
            rule: "one packet per second until the first report",
            twice: Check::new(&super::TWICE),
            ..Self::default()
        }
    }

    fn least(&self) -> Rate {
        self.packet.per(T_MBI)
    }

    fn bounded(&self, rate: Rate) -> Rate {
        rate.max(self.floor).min(self.cap)
    }

    /// Sets the number of TCP connections that the flow stands for. It applies from the next report on.
    pub(crate) fn set_connections(&mut self, n: f64) {
        self.connections = n;
    }

    pub(crate) fn round_trip(&self) -> Option<Span> {
        self.rtt.map(|r| r.smoothed)
    }

    fn equation(&self, rtt: Span, loss: LossRate) -> Rate {
        let one = if self.settings.profile.tcp_rto {
            equation::throughput_full(self.packet, rtt, loss, self.rto.value(), 1.0)
        } else {
            equation::throughput(self.packet, rtt, loss)
        };
        one.scale(self.connections)
    }

    fn measured(&mut self, sample: Span) -> RoundTrip {
        let root = sample.as_secs_f64().sqrt();
        let q = self.settings.profile.q;
        let rtt = match self.rtt {
            None => RoundTrip { smoothed: sample, latest: sample, root_mean: root },
            Some(old) => RoundTrip {
                smoothed: old.smoothed.scale(q) + sample.scale(1.0 - q),
                latest: sample,
                root_mean: q * old.root_mean + (1.0 - q) * root,
            },
        };
        self.rtt = Some(rtt);
        self.rto.sample(sample);
        rtt
    }

    fn most_received(&self) -> Rate {
        self.received.iter().map(|(rate, _)| *rate).max().unwrap_or(Rate::MAX)
    }

    fn update_received(&mut self, rate: Rate, now: Time, rtt: Span) {
        self.received.push((rate, now));
        self.received.retain(|(_, at)| now.since(*at) <= rtt * 2);
        // Keep only the latest X_recv if the profile is ns-2's.
        let keep = if self.settings.profile.gentle { 1 } else { RECEIVED_ENTRIES };
        let surplus = self.received.len().saturating_sub(keep);
        self.received.drain(..surplus);
    }

    fn maximize_received(&mut self, rate: Rate, now: Time) {
        self.received.push((rate, now));
        self.received.retain(|(rate, _)| *rate != Rate::MAX);
        self.received = vec![(self.most_received(), now)];
    }

    /// Returns whether the sender was data-limited for the whole round trip that ends with the packet sent at `to` (RFC
    /// 5348, section 8.2.1).
    ///
    /// The RFC stores only two times at which the sender was not data-limited. If there are two reports in a round
    /// trip, a sender that always has data would then seem data-limited.
    fn was_data_limited(&mut self, to: Time, rtt: Span) -> bool {
        let from = to.before(rtt);
        // Discard the entries of `not_limited` that ended before this round trip. Later reports are about later
        // packets, so they do not need these entries.
        while self.not_limited.front().is_some_and(|(_, last)| *last <= from) {
            if self.not_limited.len() == 1 && self.unlimited {
                break;
            }
            self.not_limited.pop_front();
        }
        self.covered_to = Some(to);
        let going_on = |n: usize| self.unlimited && n + 1 == self.not_limited.len();
        !self.not_limited.iter().enumerate().any(|(n, (first, last))| *first <= to && (*last > from || going_on(n)))
    }

    /// Performs step 4 of RFC 5348, section 4.3. `limit` is the RFC's recv_limit. `name` becomes the rule if `limit`
    /// applies.
    fn allow(&mut self, now: Time, rtt: Span, limit: Rate, name: &'static str) {
        if let Some(loss) = self.loss {
            let fair = self.equation(rtt, loss);
            let mut rate = fair.min(limit);
            self.rule = if fair <= limit { "throughput equation" } else { name };
            if self.settings.profile.gentle && self.lossy && rate > self.allowed {
                let round_trips = now.since(self.changed).ratio(rtt).min(2.0);
                rate = rate.min(self.allowed + self.packet.per(rtt).scale(round_trips * self.connections));
            }
            if rate < self.least() {
                rate = self.least();
                self.rule = "least rate";
            }
            self.allowed = rate;
            self.changed = now;
            self.lossy = true;
        } else if now.since(self.doubled) + RTT_UNIT >= rtt {
            // Accept a report that arrives just before R has passed, because the receiver knows R only in whole units.
            let twice = self.allowed.scale(2.0);
            self.rule = if twice <= limit { "slow start" } else { "slow start: twice the received rate" };
            self.allowed = twice.min(limit).max(equation::initial_window(self.packet).per(rtt));
            (self.doubled, self.changed) = (now, now);
        }
    }

    fn set_timer(&mut self, now: Time) {
        // By default, the timeout is max(4 R, 2 s / X) as in RFC 5348, section 4.3, step 5. Here it is also at least
        // two report intervals.
        let round_trips = self.rtt.map_or(Span::ZERO, |r| r.smoothed.scale(self.settings.profile.nofeedback));
        let packets = (self.packet + self.packet).at(self.bounded(self.allowed));
        self.nofeedback = Some(now + round_trips.max(packets).max(self.apart * 2));
        self.idle = true;
    }

    fn first_report(&mut self, now: Time, rtt: Span) {
        self.allowed = equation::initial_window(self.packet).per(rtt);
        self.rule = "initial window";
        (self.doubled, self.changed) = (now, now);
        // The entry "no limit" is valid for two round trips from now.
        self.received = vec![(Rate::MAX, now)];
        if let Some(loss) = self.loss {
            // If the first report already has a loss, limit the initial window by the equation. The RFC does not.
            let fair = self.equation(rtt, loss);
            if fair < self.allowed {
                self.allowed = fair.max(self.least());
                self.rule = "throughput equation";
            }
        }
    }

    /// Handles the expiry of the no-feedback timer (RFC 5348, section 4.4). Returns whether the rate was cut.
    fn halve(&mut self, now: Time) -> bool {
        let half = self.allowed.scale(0.5).max(self.least());
        let Some(rtt) = self.rtt.map(|r| r.smoothed) else {
            if !self.idle {
                self.allowed = half;
            }
            return !self.idle;
        };
        let recover = equation::initial_window(self.packet).per(rtt);
        let received = self.most_received();
        match self.loss {
            // Do not cut the rate of an idle sender whose receive rate is below `recover`. It may send at `recover`
            // after the pause (RFC 5348, section 4.4).
            Some(_) if self.idle && received < recover => false,
            None if self.idle && self.allowed < recover.scale(2.0) => false,
            None => {
                self.allowed = half;
                true
            }
            Some(_) if self.settings.profile.gentle => {
                self.allowed = half;
                self.changed = now;
                true
            }
            Some(loss) => {
                let fair = self.equation(rtt, loss);
                let limit = if fair > received.scale(2.0) { received } else { fair.scale(0.5) };
                let limit = limit.max(self.least());
                self.received = vec![(limit.scale(0.5), now)];
                // Never raise the rate here. According to the RFC's text, an expiry before the second report could
                // raise it.
                self.allow(now, rtt, limit.min(self.allowed), "no report: halved");
                true
            }
        }
    }

    /// Processes a report. Returns its round-trip sample, or `None` if the report is invalid or was overtaken by a
    /// newer report.
    pub(crate) fn on_feedback(&mut self, feedback: &FeedbackReport, now: Time, from: ReceiverId) -> Option<Span> {
        let sent = feedback.echo.own(now);
        // The stamp is rounded down. `left` is the latest time at which the packet can have been sent.
        let left = sent + Stamp::UNIT;
        // Ignore a report that was overtaken by a newer report, or that echoes a time before the first packet.
        let first = self.first_sent?;
        if left < first || self.covered_to.is_some_and(|to| left < to) {
            return None;
        }
        let age = now.since(sent);
        if feedback.delay > age + Stamp::UNIT || age.saturating_sub(feedback.delay) > ABSURD_RTT {
            return None;
        }
        let sample = age.saturating_sub(feedback.delay).max(RTT_UNIT);
        let is_first = self.rtt.is_none();
        let rtt = self.measured(sample).smoothed;
        let worse = feedback.loss > self.loss;
        self.loss = feedback.loss;
        self.by = Some(from);
        let received = feedback.received;
        // Do not limit a data-limited sender by the receive rate. This rate is low only for lack of data (RFC 5348,
        // section 4.3, step 4).
        let data_limited = self.was_data_limited(left, rtt) && received > Rate::ZERO;
        if is_first {
            self.first_report(now, rtt);
        } else if data_limited && worse {
            for (rate, _) in self.received.iter_mut().filter(|(rate, _)| *rate != Rate::MAX) {
                // Halve the recorded rates, because the path does not carry them (RFC 5348, section 4.3).
                *rate = rate.scale(0.5);
            }
            self.maximize_received(received.scale(0.85), now);
            self.allow(now, rtt, self.most_received(), "loss while data-limited: the received rate");
        } else {
            if data_limited {
                self.maximize_received(received, now);
            } else {
                self.update_received(received, now, rtt);
            }
            self.allow(now, rtt, self.most_received().scale(2.0), "twice the received rate");
        }
        self.set_timer(now);
        let most = self.most_received();
        if self.loss.is_some() && most < Rate::MAX && self.allowed > self.least() {
            self.twice.see(self.allowed.as_bps_f64() <= 2.0 * most.as_bps_f64() + 8.0);
        }
        Some(sample)
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        if self.first_sent.is_none() {
            self.first_sent = Some(sent.at);
            self.nofeedback = Some(sent.at + FIRST_TIMER);
        } else if self.nofeedback.is_none() {
            self.set_timer(sent.at);
        }
        self.idle = false;
        match self.not_limited.back_mut() {
            Some((_, last)) if self.unlimited && !sent.data_limited => *last = sent.left,
            _ if !sent.data_limited => {
                if self.not_limited.len() == MOST_RUNS {
                    self.not_limited.pop_front();
                }
                self.not_limited.push_back((sent.left, sent.left));
            }
            _ => {}
        }
        self.unlimited = !sent.data_limited;
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if let Some(feedback) = report.body.and_then(FeedbackReport::read) {
            self.on_feedback(&feedback, report.at, report.from);
        }
    }

    fn on_feedback_interval(&mut self, interval: Span) {
        self.apart = interval;
    }

    fn on_timer(&mut self, now: Time) {
        if self.nofeedback.is_some_and(|at| at <= now) {
            if self.halve(now) {
                self.rule = "no report: halved";
                self.set_timer(now);
            } else {
                // Stop the timer, because further expiries change nothing while the sender is idle. The next packet
                // sets the timer.
                self.nofeedback = None;
            }
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.nofeedback.map(|at| Wake { at, why: "no report" })
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.twice)
    }

    fn decision(&self) -> Decision {
        // Pace packets more slowly after a long round-trip sample (RFC 5348, section 4.5).
        let instant = match self.rtt {
            Some(rtt) if self.settings.damping => {
                self.allowed.scale(rtt.root_mean / rtt.latest.as_secs_f64().sqrt()).max(self.least())
            }
            _ => self.allowed,
        };
        let limit = if self.rtt.is_none() {
            Limit::Start
        } else if self.allowed > self.cap {
            Limit::Cap
        } else if self.allowed < self.floor {
            Limit::Floor
        } else if self.loss.is_none() {
            Limit::Start
        } else {
            Limit::Network
        };
        Decision {
            target: self.bounded(self.allowed),
            pacing: self.bounded(instant),
            window: None,
            limit,
            why: Why {
                loss: self.loss.map(LossRate::get),
                rtt: self.rtt.map(|r| r.smoothed),
                by: self.by,
                ..Why::rule(self.rule)
            },
        }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        Notice::new(EXTENSION, &rtt_notice(self.rtt.map(|r| r.smoothed)))
    }
}
