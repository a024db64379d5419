//! A small deterministic world for one sender half and its receiver halves: no RTP, no bytes, only time and packets.
//!
//! ```text
//!  source ─▶ pacer ─▶ [FIFO bottleneck] ─▶ delay ─▶ loss ─▶ receiver i ─▶ delay back ─▶ loss back ─▶ sender
//! ```
//!
//! Each end has its own clock, with an offset to the world's. [`World::run_until`] advances the world, and public
//! fields may be changed between two calls.
#![allow(unreachable_pub, reason = "a module of test crates")]
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

pub mod bench;
pub mod proof;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Given, Setup};
use steadycast_control::{
    Announcement, Arrival, Body, BufferLevel, Decision, Departing, Due, FrameEdge, Leave, Limit, Mode, Notice,
    Overheard, Pictures, ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Slot,
};
use steadycast_units::{Bytes, Chance, Ecn, PeerTime, Rate, Seed, Span, Stamp, Time};

/// The packets that are lost.
#[derive(Clone, Debug, Default)]
pub enum Loss {
    #[default]
    None,
    /// Each packet with this probability.
    Bernoulli(f64),
    /// Packets whose sequence number is a multiple of this.
    Every(u64),
    /// Packets with these sequence numbers.
    List(Vec<u64>),
    /// All packets.
    All,
}

impl Loss {
    fn takes(&self, seq: u64, chance: &mut Chance) -> bool {
        match self {
            Self::None => false,
            Self::Bernoulli(p) => chance.happens(*p),
            Self::Every(n) => seq > 0 && seq.is_multiple_of(*n),
            Self::List(list) => list.contains(&seq),
            Self::All => true,
        }
    }
}

/// A FIFO queue with a rate and a capacity in packets.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    pub rate: Rate,
    pub limit: usize,
}

/// The path to the receivers and back.
#[derive(Clone, Debug)]
pub struct Path {
    /// The one-way delay forward. Receiver i has the additional delay `more[i]`, if there is one, in both directions.
    pub delay: Span,
    pub back: Span,
    pub more: Vec<Span>,
    /// The bottleneck that all receivers share.
    pub bottleneck: Option<Bottleneck>,
    /// The forward loss per receiver; the last entry applies to all further receivers.
    pub loss: Vec<Loss>,
    /// The loss of reports.
    pub back_loss: Loss,
    /// The packets that are marked instead of dropped, in the form of `loss`.
    pub marks: Loss,
    /// The additional delay of packets whose sequence number is divisible by this.
    pub late: Option<(u64, Span)>,
    /// The delay after which receivers get each other's reports.
    pub overhear: Option<Span>,
}

impl Path {
    /// Creates a path without bottleneck and loss, with half the round trip in each direction.
    pub fn clean(rtt: Span) -> Self {
        Self {
            delay: rtt / 2,
            back: rtt / 2,
            more: Vec::new(),
            bottleneck: None,
            loss: Vec::new(),
            back_loss: Loss::None,
            marks: Loss::None,
            late: None,
            overhear: None,
        }
    }
    pub fn bottleneck(self, rate: Rate, limit: usize) -> Self {
        Self { bottleneck: Some(Bottleneck { rate, limit }), ..self }
    }
    pub fn losing(self, loss: Loss) -> Self {
        Self { loss: vec![loss], ..self }
    }
}

/// The data of the application.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Unlimited data.
    Greedy,
    /// Packets at this rate. At most one packet waits for the pacer.
    Rate(Rate),
    /// No data.
    Idle,
}

enum Event {
    Data(usize, Packet),
    Report(usize, Option<Body>, Reception, Option<Probe>),
    Overheard(usize, usize, Body),
    Announce(usize, Option<Body>),
}

/// The values for LSR and DLSR: the send time of the last packet before a report, and its hold time.
#[derive(Clone, Copy)]
struct Probe {
    sent: Time,
    held: Span,
}

#[derive(Clone)]
struct Packet {
    seq: u64,
    stamp: Stamp,
    left: Time,
    notice: Notice,
    edge: FrameEdge,
    ce: bool,
}

/// A receiver half with the state of its session.
pub struct Member {
    pub half: Box<dyn ReceiverHalf>,
    pub id: ReceiverId,
    pub gone: bool,
    /// The offset of its clock to the world's.
    pub ahead: Span,
    pub buffer: Option<BufferLevel>,
    near: Option<PeerTime>,
    highest: Option<u64>,
    /// The packets expected and received, at the last report and now.
    counted: (u64, u64),
    received: u64,
    next_rtcp: Time,
    last_data: Option<(Time, Time)>,
    chance: Chance,
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub at: Time,
    pub receiver: usize,
    pub seq: u64,
    /// The time in the bottleneck's queue and in service.
    pub queue: Span,
}

/// A decision and the time from which it was in force.
#[derive(Clone, Debug)]
pub struct Decided {
    pub at: Time,
    pub decision: Decision,
}

/// A sender, its receivers and the path between them.
pub struct World {
    pub now: Time,
    pub sender: Box<dyn SenderHalf>,
    pub members: Vec<Member>,
    pub path: Path,
    pub source: Source,
    pub packet: Bytes,
    /// The mean RTCP interval of members with RTCP-clocked feedback, and of sender reports.
    pub rtcp: Span,
    /// The offset of the sender's clock to the world's.
    pub ahead: Span,
    /// The number of packets per frame.
    pub frame: u64,
    pub sent: Vec<(Time, u64)>,
    pub delivered: Vec<Delivery>,
    pub decisions: Vec<Decided>,
    /// The reports sent by receivers: time, receiver and body.
    pub reports: Vec<(Time, usize, Option<Body>)>,
    pub dropped: u64,
    events: BTreeMap<(Time, u64), Event>,
    order: u64,
    departs: VecDeque<Time>,
    last_sent: Option<Time>,
    app_next: Time,
    backlog: u64,
    seq: u64,
    next_sr: Time,
    chance: Chance,
}

/// The configuration of a world.
pub struct Plan {
    pub controller: &'static str,
    pub mode: Mode,
    pub params: Vec<(String, Given)>,
    pub receivers: usize,
    pub path: Path,
    pub source: Source,
    pub packet: Bytes,
    pub floor: Rate,
    pub cap: Rate,
    pub pictures: Option<Arc<Pictures>>,
    pub ecn: Ecn,
    pub seed: Seed,
    pub sender_ahead: Span,
    pub receivers_ahead: Span,
}

impl Plan {
    /// Creates a plan with one receiver, packets of 1000 bytes, a greedy source, and rates from 1 kb/s to 100 Mb/s.
    pub fn new(controller: &'static str, path: Path) -> Self {
        Self {
            controller,
            mode: Mode::Repaired,
            params: Vec::new(),
            receivers: 1,
            path,
            source: Source::Greedy,
            packet: Bytes::new(1000),
            floor: Rate::kbps(1),
            cap: Rate::mbps(100),
            pictures: None,
            ecn: Ecn::NotEct,
            seed: Seed(1),
            sender_ahead: Span::ZERO,
            receivers_ahead: Span::ZERO,
        }
    }
    pub fn set(mut self, name: &str, value: Given) -> Self {
        self.params.push((name.to_owned(), value));
        self
    }
    pub fn setup(&self, id: ReceiverId, part: &str) -> Setup {
        Setup {
            packet: self.packet,
            mode: self.mode,
            floor: self.floor,
            cap: self.cap,
            capped: true,
            pictures: self.pictures.clone(),
            session_bandwidth: self.cap,
            group: self.receivers > 1,
            id,
            chance: self.seed.part(part),
            ecn: self.ecn,
            probes: true,
        }
    }
    pub fn build(self) -> World {
        let factory = Chosen::shared(self.controller, self.mode, &self.params).unwrap();
        self.build_with(&*factory)
    }
    pub fn build_with(self, factory: &dyn Factory) -> World {
        let member = |i: usize| {
            let id = ReceiverId(100 + u32::try_from(i).unwrap());
            let mut chance = self.seed.part(&format!("receiver.{i}.harness"));
            Member {
                half: factory.receiver(&self.setup(id, &format!("receiver.{i}"))),
                id,
                gone: false,
                ahead: self.receivers_ahead,
                buffer: None,
                near: None,
                highest: None,
                counted: (0, 0),
                received: 0,
                next_rtcp: Time::ZERO + Span::secs(1).scale(chance.between(0.25, 0.75)),
                last_data: None,
                chance,
            }
        };
        World {
            now: Time::ZERO,
            sender: factory.sender(&self.setup(ReceiverId(1), "sender")),
            members: (0..self.receivers).map(member).collect(),
            rtcp: Span::secs(1),
            ahead: self.sender_ahead,
            frame: 1,
            sent: Vec::new(),
            delivered: Vec::new(),
            decisions: Vec::new(),
            reports: Vec::new(),
            dropped: 0,
            events: BTreeMap::new(),
            order: 0,
            departs: VecDeque::new(),
            last_sent: None,
            app_next: Time::ZERO,
            backlog: 0,
            seq: 0,
            next_sr: Time::ZERO + Span::millis(500),
            chance: self.seed.part("harness"),
            path: self.path,
            source: self.source,
            packet: self.packet,
        }
    }
}

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Event,
    SenderTimer,
    ReceiverTimer(usize),
    Report(usize),
    App,
    Send,
    SenderReport,
}

impl World {
    /// Runs to `end` (world time).
    pub fn run_until(&mut self, end: Time) {
        let mut still = 0;
        loop {
            let (at, next) = self.next();
            let at = at.max(self.now);
            if at > end {
                break;
            }
            still = if at == self.now { still + 1 } else { 0 };
            assert!(still < 20_000, "stuck at {at} in {next:?}: {:?}", self.sender.wake());
            self.now = at;
            self.step(next);
            self.note();
        }
        self.now = end;
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    fn next(&self) -> (Time, Next) {
        let mut all = match self.sender.due() {
            Due::Rtcp => vec![(self.next_sr, Next::SenderReport)],
            Due::At(wake) => vec![(wake.at.before(self.ahead), Next::SenderReport)],
            Due::Hold => Vec::new(),
        };
        all.extend(self.events.keys().next().map(|(at, _)| (*at, Next::Event)));
        all.extend(self.sender.wake().map(|w| (w.at.before(self.ahead), Next::SenderTimer)));
        for (i, member) in self.members.iter().enumerate().filter(|(_, m)| !m.gone) {
            all.extend(member.half.wake().map(|w| (w.at.before(member.ahead), Next::ReceiverTimer(i))));
            match member.half.due() {
                Due::Rtcp => all.push((member.next_rtcp, Next::Report(i))),
                Due::At(wake) => all.push((wake.at.before(member.ahead), Next::Report(i))),
                Due::Hold => {}
            }
        }
        let ready = match self.source {
            Source::Greedy => true,
            Source::Rate(rate) => {
                if rate > Rate::ZERO {
                    all.push((self.app_next, Next::App));
                }
                self.backlog > 0
            }
            Source::Idle => false,
        };
        if ready {
            let decision = self.sender.decision();
            let free = decision.window.is_none_or(|w| !w.is_closed());
            let at = self.last_sent.map_or(self.now, |last| last + self.packet.at(decision.pacing));
            if free {
                all.push((at, Next::Send));
            }
        }
        all.into_iter().map(|(at, next)| (at.max(self.now), next)).min().unwrap()
    }

    fn step(&mut self, next: Next) {
        match next {
            Next::Event => self.deliver(),
            Next::SenderTimer => self.sender.on_timer(self.now + self.ahead),
            Next::ReceiverTimer(i) => {
                let member = &mut self.members[i];
                member.half.on_timer(self.now + member.ahead);
            }
            Next::Report(i) => self.report(i),
            Next::App => {
                if let Source::Rate(rate) = self.source {
                    self.backlog = 1;
                    self.app_next = self.now.max(self.app_next) + self.packet.at(rate);
                }
            }
            Next::Send => self.send(),
            Next::SenderReport => {
                self.next_sr = self.now + self.rtcp;
                let body = self.sender.announce(self.now + self.ahead);
                for i in 0..self.members.len() {
                    let at = self.now + self.path.delay + self.more(i);
                    self.later(at, Event::Announce(i, body.clone()));
                }
            }
        }
    }

    fn send(&mut self) {
        let at = self.now + self.ahead;
        let (seq, size) = (self.seq, self.packet);
        self.seq += 1;
        let edge = FrameEdge { first: seq.is_multiple_of(self.frame), last: (seq + 1).is_multiple_of(self.frame) };
        let notice = self.sender.notice(&Departing { at, seq, size, edge });
        let data_limited = match self.source {
            Source::Greedy => false,
            Source::Rate(_) | Source::Idle => {
                self.backlog = self.backlog.saturating_sub(1);
                // The next packet of the application arrives before the pacer would send it.
                let pacer = self.now + size.at(self.sender.decision().pacing);
                self.app_next > pacer
            }
        };
        self.sender.on_sent(&Sent { at, left: at, seq, size, data_limited, number: 0 });
        self.last_sent = Some(self.now);
        self.sent.push((self.now, seq));
        let mut leaves = self.now;
        if let Some(Bottleneck { rate, limit }) = self.path.bottleneck {
            while self.departs.front().is_some_and(|t| *t <= self.now) {
                self.departs.pop_front();
            }
            if self.departs.len() >= limit {
                self.dropped += 1;
                return;
            }
            leaves = self.departs.back().copied().unwrap_or(self.now).max(self.now) + size.at(rate);
            self.departs.push_back(leaves);
        }
        let ce = self.path.marks.takes(seq, &mut self.chance);
        let late = self.path.late.filter(|(n, _)| seq > 0 && seq.is_multiple_of(*n)).map_or(Span::ZERO, |(_, by)| by);
        for i in 0..self.members.len() {
            let loss = self.path.loss.get(i).or(self.path.loss.last()).cloned().unwrap_or_default();
            if !self.members[i].gone && !loss.takes(seq, &mut self.chance) {
                let packet = Packet { seq, stamp: Stamp::of(at), left: self.now, notice, edge, ce };
                self.later(leaves + self.path.delay + self.more(i) + late, Event::Data(i, packet));
            }
        }
    }

    fn more(&self, i: usize) -> Span {
        self.path.more.get(i).copied().unwrap_or_default()
    }

    fn later(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn deliver(&mut self) {
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Data(i, packet) => {
                let way = self.path.delay + self.more(i);
                let queue = Span::nanos(self.now.since(packet.left).as_nanos().saturating_sub(way.as_nanos()));
                let member = &mut self.members[i];
                if member.gone {
                    return;
                }
                let sent = packet.stamp.peer(member.near);
                member.near = Some(sent);
                member.received += 1;
                member.highest = member.highest.max(Some(packet.seq));
                member.last_data = Some((packet.left, self.now));
                member.half.on_arrival(&Arrival {
                    at: self.now + member.ahead,
                    seq: packet.seq,
                    size: self.packet,
                    sent,
                    sampled: sent,
                    edge: packet.edge,
                    ecn: if packet.ce { Ecn::Ce } else { Ecn::NotEct },
                    notice: packet.notice.bytes(),
                    buffer: member.buffer,
                });
                self.delivered.push(Delivery { at: self.now, receiver: i, seq: packet.seq, queue });
            }
            Event::Report(i, body, reception, probe) => {
                let member = &self.members[i];
                // The values of LSR and DLSR for a sender report sent with the last packet.
                let rtt = probe.map(|p| self.now.since(p.sent).saturating_sub(p.held));
                let members = u32::try_from(self.members.iter().filter(|m| !m.gone).count()).unwrap();
                let at = self.now + self.ahead;
                self.sender.on_report(&Report {
                    at,
                    from: member.id,
                    rtt,
                    reception: Some(reception),
                    body: body.as_ref(),
                    members,
                    packets: &[],
                });
            }
            Event::Overheard(to, from, body) => {
                let (from, at) = (self.members[from].id, self.now + self.members[to].ahead);
                self.members[to].half.on_overheard(&Overheard { at, from, body: &body });
            }
            Event::Announce(i, body) => {
                let member = &mut self.members[i];
                let at = self.now + member.ahead;
                member.half.on_sender_report(at);
                if let Some(body) = &body {
                    member.half.on_announce(&Announcement { at, body });
                }
            }
        }
    }

    fn report(&mut self, i: usize) {
        let members = u32::try_from(self.members.len()).unwrap() + 1;
        let (rtcp, now) = (self.rtcp, self.now);
        let member = &mut self.members[i];
        let up_to = member.highest.map_or(0, |h| h + 1);
        let (expected, received) = (up_to - member.counted.0, member.received - member.counted.1);
        let lost = i64::try_from(expected).unwrap() - i64::try_from(received).unwrap();
        if let Some(buffer) = member.buffer {
            member.half.on_buffer(now + member.ahead, buffer);
        }
        let reply = member.half.report(&Slot {
            now: now + member.ahead,
            expected,
            lost,
            members,
            interval: rtcp,
            rtcp_share: 0.05,
        });
        member.next_rtcp = now + rtcp.scale(member.chance.between(0.5, 1.5));
        let body = match reply {
            Reply::Body(body) => Some(body),
            Reply::Plain => None,
            Reply::Suppress => return,
        };
        member.counted = (up_to, member.received);
        let fraction = if expected == 0 { 0.0 } else { (lost.max(0) as f64 / expected as f64 * 256.0).floor() / 256.0 };
        let reception = Reception { expected, lost, fraction, highest: up_to.saturating_sub(1), jitter: Span::ZERO };
        self.reports.push((now, i, body.clone()));
        if let (Some(after), Some(body)) = (self.path.overhear, &body) {
            for to in (0..self.members.len()).filter(|to| *to != i) {
                self.later(now + after, Event::Overheard(to, i, body.clone()));
            }
        }
        let count = self.reports.len() as u64;
        if !self.path.back_loss.takes(count, &mut self.chance) {
            let probe = self.members[i].last_data.map(|(sent, got)| Probe { sent, held: now.since(got) });
            self.later(now + self.path.back + self.more(i), Event::Report(i, body, reception, probe));
        }
    }

    /// Ends receiver `i` with a BYE, or without one if `silently`.
    pub fn leave(&mut self, i: usize, silently: bool) {
        let now = self.now;
        let member = &mut self.members[i];
        member.gone = true;
        if silently {
            return;
        }
        let (id, body) = (member.id, member.half.leave(now + member.ahead));
        if let Some(body) = body {
            let at = now + self.ahead;
            let report = Report {
                at,
                from: id,
                rtt: None,
                reception: None,
                body: Some(&body),
                members: self.members.len() as u32,
                packets: &[],
            };
            self.sender.on_report(&report);
        }
        self.sender.on_leave(now + self.ahead, id, Leave::Bye);
    }

    fn note(&mut self) {
        let decision = self.sender.decision();
        if self.decisions.last().is_none_or(|d| d.decision != decision) {
            self.decisions.push(Decided { at: self.now, decision });
        }
    }

    /// Returns the decision in force at `at`.
    pub fn decided(&self, at: Time) -> &Decision {
        let after = self.decisions.partition_point(|d| d.at <= at);
        &self.decisions[after.saturating_sub(1)].decision
    }

    /// Returns the current target.
    pub fn target(&self) -> Rate {
        self.sender.decision().target
    }

    /// Returns the mean target between two times, weighted by the duration of each decision.
    pub fn mean_target(&self, from: Time, to: Time) -> Rate {
        let mut bits = 0.0;
        for (i, d) in self.decisions.iter().enumerate() {
            let end = self.decisions.get(i + 1).map_or(to, |n| n.at).min(to);
            bits += d.decision.target.as_bps_f64() * end.since(d.at.max(from)).as_secs_f64();
        }
        Rate::from_bps_f64(bits / to.since(from).as_secs_f64())
    }

    /// Returns the share of the time in which the decision had this limit.
    pub fn share_limited_by(&self, limit: Limit, from: Time, to: Time) -> f64 {
        let mut sum = 0.0;
        for (i, d) in self.decisions.iter().enumerate().filter(|(_, d)| d.decision.limit == limit) {
            let end = self.decisions.get(i + 1).map_or(to, |n| n.at).min(to);
            sum += end.since(d.at.max(from)).as_secs_f64();
        }
        sum / to.since(from).as_secs_f64()
    }

    /// Returns the send rate between two times.
    pub fn sent_rate(&self, from: Time, to: Time) -> Rate {
        let n = self.sent.iter().filter(|(at, _)| (from..to).contains(at)).count() as u64;
        Bytes::new(n * self.packet.get()).per(to.since(from))
    }

    /// Returns the receive rate of receiver `i` between two times.
    pub fn received_rate(&self, i: usize, from: Time, to: Time) -> Rate {
        let n = self.delivered.iter().filter(|d| d.receiver == i && (from..to).contains(&d.at)).count() as u64;
        Bytes::new(n * self.packet.get()).per(to.since(from))
    }

    /// Returns the loss rate at receiver `i` of the packets sent between two times.
    pub fn loss(&self, i: usize, from: Time, to: Time) -> f64 {
        let sent: Vec<u64> = self.sent.iter().filter(|(at, _)| (from..to).contains(at)).map(|s| s.1).collect();
        let (Some(first), Some(last)) = (sent.first(), sent.last()) else { return 0.0 };
        let got = self.delivered.iter().filter(|d| d.receiver == i && (*first..=*last).contains(&d.seq)).count();
        1.0 - got as f64 / sent.len() as f64
    }

    /// Returns a quantile of the time in the bottleneck, for arrivals at receiver `i` between two times.
    pub fn queue_delay(&self, i: usize, quantile: f64, from: Time, to: Time) -> Span {
        let mut all: Vec<Span> =
            self.delivered.iter().filter(|d| d.receiver == i && (from..to).contains(&d.at)).map(|d| d.queue).collect();
        all.sort_unstable();
        let place = (all.len() as f64 * quantile) as usize;
        all.get(place.min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Seconds of world time.
pub fn s(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// Asserts both bounds of a rate.
#[track_caller]
pub fn assert_between(rate: Rate, low: Rate, high: Rate) {
    assert!((low..=high).contains(&rate), "{rate} is not between {low} and {high}");
}

/// Asserts both bounds of a number.
#[track_caller]
pub fn assert_within(got: f64, want: f64, share: f64) {
    assert!((got - want).abs() <= want.abs() * share, "{got} is not {want} ± {:.1} %", share * 100.0);
}

/// Compares `text` with the file `name` beside the tests, or writes the file if UPDATE_SNAPSHOTS is set.
#[track_caller]
pub fn assert_snapshot(name: &str, text: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == text, "{} differs; UPDATE_SNAPSHOTS=1 rewrites it. Now:\n{text}\nKept:\n{kept}", file.display());
}
