//! `tfrc`: TCP-friendly rate control for one receiver (RFC 5348).
//!
//! The receiver measures the loss event rate p and the rate X_recv at which packets arrive, and reports both once per round trip.
//! The sender measures the round-trip time R by an echoed stamp, and sends at what TCP would get at that p and R, but at most at
//! twice what arrived.

use crate::equation::{self, LossRate};
use crate::loss::{Change, Heard, LossHistory, LossSettings};
use crate::queue::Queue;
use crate::registry::{Cast, Controller, Feedback, Param, Setup, Values};
use crate::{
    Arrival, Body, Check, Decision, Departing, Due, Limit, Notice, ReceiverHalf, ReceiverId, Reply, Report, SenderHalf,
    Sent, Slot, View, Wake, Why,
};
use std::borrow::Cow;
use std::collections::VecDeque;
use steadycast_units::{Bytes, OneWay, PeerTime, Rate, Span, Stamp, Time};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "tfrc",
    about: "TCP-friendly rate control for one receiver: TCP's throughput equation at the measured loss event rate",
    source: "RFC 5348",
    cast: Cast::Unicast,
    feedback: Feedback::Clocked,
    standard_reports: false,
    own_rate: false,
    extension: EXTENSION,
    app: *b"TFRC",
    colour: "#1f77b4",
    dashes: &[],
    params: PARAMS,
    sender: |setup, values| Box::new(Sender::new(setup, &Settings::read(values))),
    receiver: |setup, values| Box::new(Receiver::new(setup, &Settings::read(values), Among::All)),
};

/// Its parameters, which controllers that are made of it have as well.
pub(crate) const PARAMS: &[Param; 10] = &[
    Param::choice(
        "profile",
        "ns2: every parameter below that stands at RFC 5348's value takes ns-2's instead, and the rate rises by \
                at most one packet per round trip once there was a loss",
        "RFC 5348; ns-2.35 defaults",
        ["rfc5348", "rfc5348"],
        &["rfc5348", "ns2"],
    ),
    Param::number(
        "discount_threshold",
        "least discount factor of older loss intervals while the open one is long; 1: no discounting (ns2: 0.5)",
        "own; RFC 5348, 5.5: 0.25; its predecessor and ns-2: 0.5",
        [RFC.discount, NS2.discount],
        [0.05, 1.0],
    ),
    Param::number(
        "ndupack",
        "later packets that make a missing one count as lost (ns2: 1)",
        "RFC 5348, 5.1: NDUPACK",
        [RFC.ndupack, RFC.ndupack],
        [1.0, 64.0],
    ),
    Param::number(
        "q_rtt",
        "weight of the past in the round-trip time and, with damping, in the mean of its square root (ns2: 0.95)",
        "RFC 5348, 4.3: q, 4.5: q2",
        [RFC.q, RFC.q],
        [0.0, 0.999],
    ),
    Param::switch(
        "damping",
        "send less while the round-trip time is above its mean: X · mean √R / √R (oscillation damping)",
        "RFC 5348, 4.5",
        [true, true],
    ),
    Param::span(
        "t_mbi",
        "longest time between two packets: the rate never falls below one packet in it",
        "RFC 5348, 4.3: t_mbi",
        [Span::secs(64), Span::secs(64)],
        [Span::millis(100), Span::secs(600)],
    ),
    Param::number(
        "nofeedback",
        "round trips without a report after which the rate is halved (ns2: 2)",
        "RFC 5348, 4.3 step 3",
        [RFC.nofeedback, RFC.nofeedback],
        [1.0, 64.0],
    ),
    Param::number(
        "report_every",
        "round trips after which the receiver's feedback timer expires; a packet that arrives a round trip after the \
                last report calls one too (ns2: 1.5)",
        "RFC 5348, 6.2",
        [RFC.report, RFC.report],
        [1.0, 16.0],
    ),
    Param::choice(
        "t_rto",
        "TCP's retransmission time-out in the equation: four round trips, or TCP's own estimator with ticks of 0.1 s in \
                the full equation (ns2: tcp)",
        "RFC 5348, 3.1; ns-2.35",
        ["4R", "4R"],
        &["4R", "tcp"],
    ),
    Param::span(
        "start_delay",
        "queueing delay that ends slow start as a loss event would; 0: only a loss ends it (ns2: 0)",
        "own; RFC 9406 has 4 to 16 ms",
        [START_DELAY, Span::ZERO],
        [Span::ZERO, Span::secs(10)],
    ),
];

/// Of the repaired mode: a sixth of the queue of a home router, and more than a burst of TCP's first ten packets takes on 6 Mb/s.
const START_DELAY: Span = Span::millis(20);

/// What a profile sets.
struct Profile {
    discount: f64,
    ndupack: f64,
    q: f64,
    nofeedback: f64,
    report: f64,
}

/// Discounting is off: with it a smooth stream beside one TCP takes more than twice its rate at a drop-tail queue.
const RFC: Profile = Profile { discount: 1.0, ndupack: 3.0, q: 0.9, nofeedback: 4.0, report: 1.0 };
const NS2: Profile = Profile { discount: 0.5, ndupack: 1.0, q: 0.95, nofeedback: 2.0, report: 1.5 };

/// What the parameters say, looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    loss: LossSettings,
    q: f64,
    damping: bool,
    t_mbi: Span,
    nofeedback: f64,
    report: f64,
    tcp_rto: bool,
    start_delay: Span,
    /// ns-2's congestion avoidance: rises are limited, and only the latest X_recv counts.
    gentle: bool,
}

impl Settings {
    pub(crate) fn read(values: &Values) -> Self {
        let ns2 = values.choice("profile") == "ns2";
        let number = |name: &str, rfc: f64, other: f64| {
            let given = values.number(name);
            if ns2 && given == rfc { other } else { given }
        };
        Self {
            loss: LossSettings {
                discount: number("discount_threshold", RFC.discount, NS2.discount),
                ndupack: number("ndupack", RFC.ndupack, NS2.ndupack) as u32,
            },
            q: number("q_rtt", RFC.q, NS2.q),
            damping: values.switch("damping"),
            t_mbi: values.span("t_mbi"),
            nofeedback: number("nofeedback", RFC.nofeedback, NS2.nofeedback),
            report: number("report_every", RFC.report, NS2.report),
            tcp_rto: ns2 || values.choice("t_rto") == "tcp",
            start_delay: Some(values.span("start_delay")).filter(|d| !ns2 || *d != START_DELAY).unwrap_or_default(),
            gentle: ns2,
        }
    }
}

/// RTP header extension element: R in 24 bits, units of 10 µs, 0 for none.
const EXTENSION: u8 = 2;
const RTT_UNIT: Span = Span::micros(10);
/// APP subtype of the report.
const REPORT: u8 = 1;
/// Length of a report.
pub(crate) const REPORT_BYTES: usize = 20;
/// More than any network carries (10 Tb/s): such an X_recv is not a measurement.
const ABSURD_BYTES_PER_S: f32 = 1.25e12;
/// A round trip longer than this is not a measurement.
const ABSURD_RTT: Span = Span::secs(60);
/// As long as no round-trip time is known.
const FIRST_TIMER: Span = Span::secs(2);
/// Runs of packets without data-limitation that are kept: those of two round trips or so.
const RUNS: usize = 64;
/// Entries of X_recv_set (RFC 5348, 8.2.2).
const RECEIVED_ENTRIES: usize = 3;

/// R as it goes forward with each packet.
pub(crate) fn rtt_notice(rtt: Option<Span>) -> [u8; 3] {
    let units = rtt.map_or(0, |r| {
        let rounded = (r.as_nanos() + RTT_UNIT.as_nanos() / 2) / RTT_UNIT.as_nanos();
        rounded.clamp(1, 0xff_ffff)
    });
    [(units >> 16) as u8, (units >> 8) as u8, units as u8]
}

pub(crate) fn read_rtt_notice(bytes: &[u8]) -> Option<Span> {
    let [a, b, c] = *bytes else { return None };
    let units = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
    (units > 0).then(|| RTT_UNIT * units)
}

/// The stamp that a packet carried, from its time on the sender's clock, which is a stamp rounded to nanoseconds.
pub(crate) fn echo(sent: PeerTime) -> Stamp {
    Stamp(((i128::from(sent.as_nanos()) << 18) + 500_000_000).div_euclid(1_000_000_000) as u32)
}

/// What the receiver tells the sender: 20 bytes, big-endian.
///
/// ```text
///   0        4          8         12      16       20
///   ├────────┼──────────┼─────────┼───────┼────────┤
///   │ echo   │ t_delay  │ X_recv  │ p     │ p_all  │
///   │ stamp  │ u32 µs   │ f32 B/s │ f32   │ f32    │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Send time of the packet with the highest sequence number.
    echo: Stamp,
    /// From its arrival to this report.
    delay: Span,
    /// Receive rate; zero when it was not measured.
    received: Rate,
    /// Loss event rate.
    loss: Option<LossRate>,
    /// Share of packets missing since the last report; for the record only.
    missing: f32,
}

impl Finding {
    fn write(&self) -> Body {
        let mut bytes = Vec::with_capacity(REPORT_BYTES);
        let micros = u32::try_from(self.delay.as_nanos() / 1_000).unwrap_or(u32::MAX);
        bytes.extend(self.echo.0.to_be_bytes());
        bytes.extend(micros.to_be_bytes());
        bytes.extend((self.received.as_bytes_per_s() as f32).min(ABSURD_BYTES_PER_S).to_be_bytes());
        bytes.extend(self.loss.map_or(0.0, |p| p.get() as f32).to_be_bytes());
        bytes.extend(self.missing.to_be_bytes());
        Body { subtype: REPORT, bytes }
    }

    /// `None` for what is not such a report, or can't be true.
    pub(crate) fn read(body: &Body) -> Option<Self> {
        (body.subtype == REPORT).then(|| Self::parse(&body.bytes)).flatten()
    }

    /// The same from its bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REPORT_BYTES {
            return None;
        }
        let word = |i: usize| bytes.get(4 * i..4 * i + 4)?.try_into().ok();
        let real = |i: usize, most: f32| word(i).map(f32::from_be_bytes).filter(|v| (0.0..=most).contains(v));
        Some(Self {
            echo: Stamp(u32::from_be_bytes(word(0)?)),
            delay: Span::micros(u64::from(u32::from_be_bytes(word(1)?))),
            received: Rate::from_bytes_per_s(f64::from(real(2, ABSURD_BYTES_PER_S)?)),
            loss: LossRate::new(f64::from(real(3, 1.0)?)),
            missing: real(4, 1.0)?,
        })
    }
}

/// TCP's retransmission time-out as ns-2's TFRC estimates it: in whole ticks of 0.1 s, without a minimum of its own.
#[derive(Clone, Copy, Debug, Default)]
struct TcpRto {
    /// Smoothed round-trip time in eighths of a tick, its mean deviation in quarters.
    smoothed: i64,
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

/// The round-trip time as the sender knows it.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    /// R, smoothed.
    smoothed: Span,
    latest: Span,
    /// Mean of the square roots of all samples, R_sqmean.
    root_mean: f64,
}

/// The sending half: one TFRC connection.
pub(crate) struct Sender {
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    settings: Settings,
    /// So many connections' worth: what the equation gives is multiplied by it.
    worth: f64,
    /// X: the rate that the network allows, before floor and cap.
    allowed: Rate,
    rtt: Option<RoundTrip>,
    rto: TcpRto,
    loss: Option<LossRate>,
    /// X_recv_set, oldest first. Never empty; at first it holds "no limit".
    received: Vec<(Rate, Time)>,
    doubled: Time,
    changed: Time,
    /// The equation has set the rate before.
    lossy: bool,
    first_sent: Option<Time>,
    nofeedback: Option<Time>,
    /// Nothing was sent since the no-feedback timer was set.
    idle: bool,
    /// Runs of packets during which the sender was not data-limited, first and last, oldest first; and whether the latest
    /// still goes on.
    not_limited: VecDeque<(Time, Time)>,
    unlimited: bool,
    covered_to: Option<Time>,
    rule: &'static str,
    by: Option<ReceiverId>,
    /// With losses the rate is at most twice what arrives, once X_recv_set no longer holds "no limit", above the least rate.
    twice: Check,
}

impl Sender {
    pub(crate) fn new(setup: &Setup, settings: &Settings) -> Self {
        Self {
            packet: setup.packet,
            floor: setup.floor.min(setup.cap),
            cap: setup.cap,
            settings: *settings,
            worth: 1.0,
            allowed: setup.packet.per(Span::secs(1)),
            rtt: None,
            rto: TcpRto::default(),
            loss: None,
            received: vec![(Rate::MAX, Time::ZERO)],
            doubled: Time::ZERO,
            changed: Time::ZERO,
            lossy: false,
            first_sent: None,
            nofeedback: None,
            idle: true,
            not_limited: VecDeque::new(),
            unlimited: false,
            covered_to: None,
            rule: "one packet per second until the first report",
            by: None,
            twice: Check::new("INV-6"),
        }
    }

    fn least(&self) -> Rate {
        self.packet.per(self.settings.t_mbi)
    }

    /// W_init / R, W_init = min(4 s, max(2 s, 4380 bytes)) (RFC 5348, 4.2).
    fn initial_rate(&self, rtt: Span) -> Rate {
        let packet = self.packet.get();
        Bytes::new((4 * packet).min((2 * packet).max(4_380))).per(rtt)
    }

    fn bounded(&self, rate: Rate) -> Rate {
        rate.max(self.floor).min(self.cap)
    }

    /// From the next report on, the rate is `n` times what the equation gives for the reported loss.
    pub(crate) fn set_worth(&mut self, n: f64) {
        self.worth = n;
    }

    /// R.
    pub(crate) fn round_trip(&self) -> Option<Span> {
        self.rtt.map(|r| r.smoothed)
    }

    fn equation(&self, rtt: Span, loss: LossRate) -> Rate {
        let one = if self.settings.tcp_rto {
            equation::throughput_full(self.packet, rtt, loss, self.rto.value(), 1.0)
        } else {
            equation::throughput(self.packet, rtt, loss)
        };
        one.scale(self.worth)
    }

    fn measured(&mut self, sample: Span) -> RoundTrip {
        let root = sample.as_secs_f64().sqrt();
        let q = self.settings.q;
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
        let keep = if self.settings.gentle { 1 } else { RECEIVED_ENTRIES };
        let surplus = self.received.len().saturating_sub(keep);
        self.received.drain(..surplus);
    }

    fn maximize_received(&mut self, rate: Rate, now: Time) {
        self.received.push((rate, now));
        self.received.retain(|(rate, _)| *rate != Rate::MAX);
        self.received = vec![(self.most_received(), now)];
    }

    /// Whether the application, and not the rate, limited the sender throughout the interval that a report covers, which ends
    /// with the packet sent at `to` (RFC 5348, 8.2.1).
    ///
    /// The RFC keeps two times at which it was not, and so takes a sender that always has data for a data-limited one when two
    /// reports come within a round trip: both times lie after the first. Here all such times are kept, as runs.
    fn was_data_limited(&mut self, to: Time, rtt: Span) -> bool {
        let from = to.before(rtt);
        // What ended before is not asked for again, since reports come in order.
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

    /// Step 4 of RFC 5348, 4.3, with `limit` for recv_limit, and what to call it when it binds.
    fn allow(&mut self, now: Time, rtt: Span, limit: Rate, name: &'static str) {
        if let Some(loss) = self.loss {
            let fair = self.equation(rtt, loss);
            let mut rate = fair.min(limit);
            self.rule = if fair <= limit { "throughput equation" } else { name };
            if self.settings.gentle && self.lossy && rate > self.allowed {
                let round_trips = now.since(self.changed).ratio(rtt).min(2.0);
                rate = rate.min(self.allowed + self.packet.per(rtt).scale(round_trips * self.worth));
            }
            if rate < self.least() {
                rate = self.least();
                self.rule = "least rate";
            }
            self.allowed = rate;
            self.changed = now;
            self.lossy = true;
        } else if now.since(self.doubled) + RTT_UNIT >= rtt {
            // The unit, because reports that come every R as the receiver knows it must not miss R by its rounding.
            let twice = self.allowed.scale(2.0);
            self.rule = if twice <= limit { "slow start" } else { "slow start: twice the received rate" };
            self.allowed = twice.min(limit).max(self.initial_rate(rtt));
            (self.doubled, self.changed) = (now, now);
        }
    }

    fn set_timer(&mut self, now: Time) {
        let round_trips = self.rtt.map_or(Span::ZERO, |r| r.smoothed.scale(self.settings.nofeedback));
        let packets = (self.packet + self.packet).at(self.bounded(self.allowed));
        self.nofeedback = Some(now + round_trips.max(packets));
        self.idle = true;
    }

    fn first_report(&mut self, now: Time, rtt: Span) {
        self.allowed = self.initial_rate(rtt);
        self.rule = "initial window";
        (self.doubled, self.changed) = (now, now);
        // "No limit" holds for two round trips from here.
        self.received = vec![(Rate::MAX, now)];
        if let Some(loss) = self.loss {
            let fair = self.equation(rtt, loss);
            if fair < self.allowed {
                self.allowed = fair.max(self.least());
                self.rule = "throughput equation";
            }
        }
    }

    /// RFC 5348, 4.4. True when the rate was cut.
    fn halve(&mut self, now: Time) -> bool {
        let half = self.allowed.scale(0.5).max(self.least());
        let Some(rtt) = self.rtt.map(|r| r.smoothed) else {
            if !self.idle {
                self.allowed = half;
            }
            return !self.idle;
        };
        let recover = self.initial_rate(rtt);
        let received = self.most_received();
        match self.loss {
            Some(_) if self.idle && received < recover => false,
            None if self.idle && self.allowed < recover.scale(2.0) => false,
            None => {
                self.allowed = half;
                true
            }
            Some(_) if self.settings.gentle => {
                self.allowed = half;
                self.changed = now;
                true
            }
            Some(loss) => {
                let fair = self.equation(rtt, loss);
                let limit = if fair > received.scale(2.0) { received } else { fair.scale(0.5) };
                let limit = limit.max(self.least());
                self.received = vec![(limit.scale(0.5), now)];
                // The letter would let the rate rise here where the equation was never the limit, before a second report.
                self.allow(now, rtt, limit.min(self.allowed), "no report: halved");
                true
            }
        }
    }

    /// A report has arrived. Returns the round-trip time that it shows; `None` when it can't be true, or comes too late, and
    /// changes nothing.
    pub(crate) fn hear(&mut self, feedback: &Finding, now: Time, from: ReceiverId) -> Option<Span> {
        let sent = feedback.echo.own(now);
        // The stamp is rounded down to its unit: the packet left until then at the latest.
        let left = sent + Stamp::UNIT;
        // Overtaken by a later report, or older than anything we sent.
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
        let data_limited = self.was_data_limited(left, rtt) && received > Rate::ZERO;
        if is_first {
            self.first_report(now, rtt);
        } else if data_limited && worse {
            for (rate, _) in self.received.iter_mut().filter(|(rate, _)| *rate != Rate::MAX) {
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
            Some((_, last)) if self.unlimited && !sent.data_limited => *last = sent.at,
            _ if !sent.data_limited => {
                if self.not_limited.len() == RUNS {
                    self.not_limited.pop_front();
                }
                self.not_limited.push_back((sent.at, sent.at));
            }
            _ => {}
        }
        self.unlimited = !sent.data_limited;
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if let Some(feedback) = report.body.and_then(Finding::read) {
            self.hear(&feedback, report.at, report.from);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.nofeedback.is_some_and(|at| at <= now) {
            if self.halve(now) {
                self.rule = "no report: halved";
                self.set_timer(now);
            } else {
                // Idle: however often the timer expired, nothing would change before the next packet, which sets it again.
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
                rule: Cow::Borrowed(self.rule),
                loss: self.loss.map(LossRate::get),
                rtt: self.rtt.map(|r| r.smoothed),
                by: self.by,
            },
        }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        Notice::new(EXTENSION, &rtt_notice(self.rtt.map(|r| r.smoothed)))
    }
}

/// Expiries of the feedback timer that are kept, so that X_recv can reach back a round trip.
const MARKS: usize = 16;
/// Until a data packet carries a round-trip time, losses are told apart with this one.
const UNKNOWN_RTT: Span = Span::millis(500);

/// Which packets a receiver counts losses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// All.
    All,
    /// The marked ones, numbered by themselves ([`Mark`]).
    Marked,
}

/// What goes forward beside R where only some packets count: 5 bytes, big-endian.
///
/// ```text
///   0       1        3        5
///   ├───────┼────────┼────────┤
///   │ flags │ vseq   │ n      │     flags: bit 0, marked
///   │ u8    │ u16    │ u8.u8  │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    /// This packet counts.
    pub(crate) marked: bool,
    /// Its number among the marked ones; without a mark the number of the last marked one before it.
    pub(crate) vseq: u16,
    /// How many connections' worth the stream is.
    pub(crate) worth: f64,
}

impl Mark {
    /// Its bytes.
    pub(crate) fn write(&self) -> [u8; 5] {
        let [v, w] = self.vseq.to_be_bytes();
        let [n, m] = ((self.worth * 256.0).clamp(256.0, 65_535.0) as u16).to_be_bytes();
        [u8::from(self.marked), v, w, n, m]
    }

    /// `None` unless it has the right length and is worth at least one connection.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [flags, v, w, n, m] = *bytes else { return None };
        let worth = f64::from(u16::from_be_bytes([n, m])) / 256.0;
        (worth >= 1.0).then_some(Self { marked: flags & 1 != 0, vseq: u16::from_be_bytes([v, w]), worth })
    }
}

/// The receiving half: one TFRC connection.
pub(crate) struct Receiver {
    packet: Bytes,
    settings: Settings,
    among: Among,
    /// The newest number among the marked packets, extended.
    vseq: Option<u64>,
    history: LossHistory,
    queue: Queue,
    /// The least R that a packet has carried.
    least_rtt: Option<Span>,
    /// R as the packet with the highest sequence number carried it.
    rtt: Option<Span>,
    /// Sequence number, stamp and arrival of the packet with the highest sequence number.
    latest: Option<(u64, Stamp, Time)>,
    /// All bytes that have arrived.
    total: Bytes,
    /// When the feedback timer expired, and what had arrived until then.
    marks: VecDeque<(Time, Bytes)>,
    timer: Option<Time>,
    reported: Option<Time>,
    /// Data has arrived since the last report.
    fresh: bool,
    urgent: Option<Wake>,
    received: Option<Rate>,
    /// The largest X_recv before the first loss.
    best: Rate,
}

impl Receiver {
    pub(crate) fn new(setup: &Setup, settings: &Settings, among: Among) -> Self {
        Self {
            packet: setup.packet,
            settings: *settings,
            among,
            vseq: None,
            history: LossHistory::new(settings.loss),
            queue: Queue::new(settings.start_delay),
            least_rtt: None,
            rtt: None,
            latest: None,
            total: Bytes::ZERO,
            marks: VecDeque::new(),
            timer: None,
            reported: None,
            fresh: false,
            urgent: None,
            received: None,
            best: Rate::ZERO,
        }
    }

    /// X_recv: over the time since the latest expiry of the timer that is at least a round trip ago (RFC 5348, 6.2), at least
    /// one packet per round trip.
    fn measure(&self, now: Time) -> Option<Rate> {
        let rtt = self.rtt?;
        let mark = self.marks.iter().rev().find(|(at, _)| now.since(*at) >= rtt).or(self.marks.front())?;
        let rate = self.total.saturating_sub(mark.1).per(now.since(mark.0).max(rtt));
        Some(rate.max(self.packet.per(rtt)))
    }

    fn mark(&mut self, at: Time, total: Bytes) {
        self.marks.push_back((at, total));
        let rtt = self.rtt.unwrap_or_default();
        // One mark that is a round trip old is enough.
        while self.marks.len() > MARKS || self.marks.get(1).is_some_and(|(old, _)| at.since(*old) >= rtt) {
            self.marks.pop_front();
        }
    }

    fn interval(&self, rtt: Span) -> Span {
        rtt.scale(self.settings.report)
    }

    /// The number nearest to the newest one whose low 16 bits are `low`.
    fn extended(&mut self, low: u16) -> u64 {
        // From the middle of the range, so that what comes before the first one that is heard has a number as well.
        let near = self.vseq.unwrap_or((1 << 32) | u64::from(low));
        let seq = near.saturating_add_signed(i64::from(low.wrapping_sub(near as u16) as i16));
        self.vseq = Some(near.max(seq));
        seq
    }

    /// The timer went on expiring while nothing arrived, and sent nothing: what it left behind, up to `now`. True when it
    /// expired at least once.
    fn expired_in_silence(&mut self, now: Time) -> bool {
        let (Some(timer), Some(rtt), false) = (self.timer, self.rtt, self.fresh) else { return false };
        if now < timer {
            return false;
        }
        let interval = self.interval(rtt).max(RTT_UNIT);
        let more = now.since(timer).as_nanos() / interval.as_nanos();
        if more > 0 {
            self.mark(timer + interval * (more - 1), self.total);
        }
        self.mark(timer + interval * more, self.total);
        self.timer = Some(timer + interval * (more + 1));
        true
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let now = arrival.at;
        let (round_trip, rest) = arrival.notice.split_at(arrival.notice.len().min(3));
        let silence = self.expired_in_silence(now);
        let before = self.total;
        self.total += arrival.size;
        if self.latest.is_none_or(|(seq, ..)| arrival.seq > seq) {
            self.latest = Some((arrival.seq, echo(arrival.sent), now));
            self.rtt = read_rtt_notice(round_trip).or(self.rtt);
            self.least_rtt = [self.least_rtt, self.rtt].into_iter().flatten().min();
        }
        if let (Some(rtt), None) = (self.rtt, self.timer) {
            self.mark(now, before);
            self.timer = Some(now + self.interval(rtt));
        }

        let rtt = self.rtt.unwrap_or(UNKNOWN_RTT);
        let best = self.best.max(self.measure(now).filter(|_| self.reported.is_some()).unwrap_or_default());
        let half = self.packet.per(rtt * 2);
        let packet = self.packet;
        let previous = self.history.rate();
        let mark = Mark::read(rest);
        let worth = mark.map_or(1.0, |m| m.worth);
        // A queue that grows before the first loss says what a mark would. What came through has filled it: with the round trip
        // through it, more would be credited once it is gone.
        let way = OneWay::between(arrival.sent, now);
        let queued = self.queue.on_packet(way, now, rtt, Span::ZERO) && self.history.events() == 0;
        let first_rtt = self.least_rtt.filter(|_| queued).unwrap_or(rtt);
        // What one of the connections that this one stands for would have got.
        let first = || 1.0 / equation::loss_for(best.scale(1.0 / worth).max(half), packet, first_rtt).get();
        let heard = |seq| Heard { seq, at: now, ce: arrival.ecn.is_ce() || queued, rtt };
        let change = match (self.among, mark) {
            (Among::All, _) => self.history.on_packet(&heard(arrival.seq), first),
            (Among::Marked, Some(mark)) => {
                let vseq = self.extended(mark.vseq);
                if mark.marked {
                    self.history.on_packet(&heard(vseq), first)
                } else {
                    self.history.on_other(&heard(vseq), first)
                }
            }
            (Among::Marked, None) => Change::default(),
        };

        self.fresh = true;
        let why = if change.new_loss_event && self.history.rate() > previous {
            Some("loss event")
        } else if change.removed_loss_event {
            Some("loss event taken back")
        } else if self.rtt.is_none() {
            Some("no round-trip time yet")
        } else if silence {
            Some("data after silence")
        } else if self.settings.report > 1.0 && self.reported.is_some_and(|at| now.since(at) >= rtt) {
            Some("a round trip since the last")
        } else if self.reported.is_none() {
            Some("first packet")
        } else {
            None
        };
        if let (Some(why), None) = (why, self.urgent) {
            self.urgent = Some(Wake { at: now, why });
        }
    }

    fn due(&self) -> Due {
        match (self.urgent, self.timer) {
            (Some(wake), _) => Due::At(wake),
            (None, Some(at)) if self.fresh => Due::At(Wake { at, why: "feedback timer" }),
            _ => Due::Hold,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let Some((_, echo, arrived)) = self.latest.filter(|_| self.fresh) else { return Reply::Suppress };
        let now = slot.now;
        // The very first report says zero, as long as there is no round trip to measure over.
        let received = self.measure(now).filter(|_| self.reported.is_some());
        let loss = self.history.rate();
        if let Some(rate) = received {
            self.received = Some(rate);
            if loss.is_none() {
                self.best = self.best.max(rate);
            }
        }
        self.mark(now, self.total);
        self.timer = self.rtt.map(|rtt| now + self.interval(rtt));
        self.reported = Some(now);
        (self.fresh, self.urgent) = (false, None);
        let missing = if slot.expected == 0 { 0.0 } else { slot.lost.max(0) as f64 / slot.expected as f64 };
        let feedback = Finding {
            echo,
            delay: now.since(arrived),
            received: received.unwrap_or_default(),
            loss,
            missing: missing.min(1.0) as f32,
        };
        Reply::Body(feedback.write())
    }

    fn view(&self) -> View {
        View {
            rate: self.received,
            loss: self.history.rate().map(LossRate::get),
            rtt: self.rtt,
            state: Some(if self.history.events() == 0 { "slow start" } else { "congestion avoidance" }),
        }
    }
}
