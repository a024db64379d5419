//! A small world for group controllers: one sender half, receivers with their own paths, and RTCP's timers. Events are
//! ordered by time and insertion, and all random numbers have one seed.

#![allow(unreachable_pub, reason = "a module of test crates")]
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Given};
use steadycast_control::{
    Announcement, Arrival, Body, Departing, Due, FrameEdge, Leave, Mode, Notice, Overheard, ReceiverHalf, ReceiverId,
    Reception, Reply, Report, SenderHalf, Sent, Setup, Slot,
};
use steadycast_units::{Bytes, Chance, Ecn, PeerTime, Rate, Seed, Span, Time};

/// The time that every local clock shows at the start of the world, so that an offset of an hour leaves it above zero.
const CLOCKS: Span = Span::secs(20_000);

/// The path to some receivers: a link with a queue, and loss.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: Rate,
    pub delay: Span,
    pub back: Span,
    pub queue: u64,
    pub loss: f64,
}

impl Path {
    pub const fn ideal() -> Self {
        Self { rate: Rate::mbps(100), delay: Span::millis(20), back: Span::millis(20), queue: 50, loss: 0.0 }
    }
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = rate;
        self
    }
    pub const fn loss(mut self, loss: f64) -> Self {
        self.loss = loss;
        self
    }
    pub const fn delay(mut self, delay: Span) -> Self {
        self.delay = delay;
        self.back = delay;
        self
    }
    pub const fn queue(mut self, packets: u64) -> Self {
        self.queue = packets;
        self
    }
}

/// The clock of a receiver, relative to the world's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub offset_s: i64,
    pub ppm: f64,
}

impl Clock {
    fn local(self, at: Time) -> Time {
        let t = at.as_nanos() as f64 * self.ppm / 1e6;
        let ns = i128::from(at.as_nanos()) + i128::from(CLOCKS.as_nanos()) + i128::from(self.offset_s) * 1_000_000_000;
        Time::from_nanos((ns + t as i128) as u64)
    }
    fn world(self, local: Time) -> Time {
        let ns =
            i128::from(local.as_nanos()) - i128::from(CLOCKS.as_nanos()) - i128::from(self.offset_s) * 1_000_000_000;
        Time::from_nanos((ns.max(0) as f64 / (1.0 + self.ppm / 1e6)) as u64 + 1_000)
    }
}

struct Member {
    half: Box<dyn ReceiverHalf>,
    id: ReceiverId,
    clock: Clock,
    path: usize,
    alive: bool,
    /// The extended sequence numbers: the base of the report interval, the highest seen, and the number received.
    base: Option<u64>,
    highest: u64,
    received: u64,
    next_rtcp: Time,
    armed: Time,
    heard_sr: Option<Span>,
    reports: u64,
}

enum Event {
    Packet,
    Arrive { path: usize, packet: Packet },
    SenderReport,
    Announced { path: usize, body: Body, way: Span },
    Rtcp(usize),
    Wake(usize),
    SenderWake,
    Reported { from: usize, rtt: Option<Span>, reception: Reception, body: Option<Body> },
    Heard { from: usize, body: Body },
}

#[derive(Clone, Copy)]
struct Packet {
    seq: u64,
    sent: Time,
    notice: Notice,
}

/// The inputs of the sender half, with its decisions.
#[derive(Clone, Debug)]
pub struct Step {
    pub at: Time,
    pub from: usize,
    pub body: Option<Body>,
    pub rate: Rate,
    /// The receiver whose report limits the rate now.
    pub by: Option<ReceiverId>,
    /// The last notice that was sent.
    pub notice: Notice,
}

pub struct World {
    pub now: Time,
    pub sender: Box<dyn SenderHalf>,
    /// All reports that have reached the sender.
    pub steps: Vec<Step>,
    /// The number of packets sent.
    pub sent: u64,
    /// The rate of the source, which limits the pacer.
    pub source: Rate,
    /// Whether other receivers get overheard reports (any-source multicast).
    pub overhear: bool,
    /// RTCP's minimum interval, and the session bandwidth.
    pub least: Span,
    /// The interval of sender reports; the first one is sent after half of it.
    pub sr_every: Span,
    /// The loss probability of reports.
    pub back_loss: f64,
    /// The sampling interval of decisions.
    pub rates: Vec<(Time, Rate)>,
    setup: Setup,
    factory: Arc<dyn Factory>,
    paths: Vec<(Path, Time)>,
    members: Vec<Member>,
    events: BTreeMap<(Time, u64), Event>,
    order: u64,
    chance: Chance,
    sender_armed: Time,
    next_sample: Time,
    last_notice: Notice,
}

pub const PACKET: Bytes = Bytes::new(1000);

impl World {
    pub fn new(name: &str, mode: Mode, given: &[(&str, Given)], seed: u64) -> Self {
        let given: Vec<_> = given.iter().map(|(n, g)| ((*n).to_owned(), g.clone())).collect();
        let factory = Chosen::shared(name, mode, &given).unwrap();
        let setup = Setup {
            packet: PACKET,
            mode,
            session_bandwidth: Rate::mbps(2),
            group: true,
            ..Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(seed).part("sender"))
        };
        let mut world = Self {
            now: Time::ZERO,
            sender: factory.sender(&setup),
            steps: Vec::new(),
            sent: 0,
            source: Rate::mbps(100),
            overhear: false,
            least: Span::secs(1),
            sr_every: Span::secs(1),
            back_loss: 0.0,
            rates: Vec::new(),
            setup,
            factory,
            paths: Vec::new(),
            members: Vec::new(),
            events: BTreeMap::new(),
            order: 0,
            chance: Seed(seed).part("world"),
            sender_armed: Time::NEVER,
            next_sample: Time::ZERO,
            last_notice: Notice::NONE,
        };
        world.at(Time::ZERO, Event::Packet);
        world.at(Time::ZERO + Span::millis(300), Event::SenderReport);
        world
    }

    /// Rebuilds the sender with these limits, before the world runs.
    pub fn limits(mut self, floor: Rate, cap: Rate) -> Self {
        (self.setup.floor, self.setup.cap) = (floor, cap);
        self.sender = self.factory.sender(&self.setup);
        self
    }

    pub fn path(&mut self, path: Path) -> usize {
        self.paths.push((path, Time::ZERO));
        self.paths.len() - 1
    }

    pub fn join(&mut self, path: usize, clock: Clock) -> usize {
        let index = self.members.len();
        let id = ReceiverId(1_000 + index as u32);
        let chance = Seed(self.chance.bits64()).part("receiver");
        let half = self.factory.receiver(&Setup { id, chance, ..self.setup.clone() });
        let first = self.now + self.least.scale(self.chance.between(0.25, 0.75));
        self.members.push(Member {
            half,
            id,
            clock,
            path,
            alive: true,
            base: None,
            highest: 0,
            received: 0,
            next_rtcp: first,
            armed: Time::NEVER,
            heard_sr: None,
            reports: 0,
        });
        self.at(first, Event::Rtcp(index));
        index
    }

    pub fn join_many(&mut self, n: usize, path: usize) -> Vec<usize> {
        (0..n).map(|_| self.join(path, Clock::default())).collect()
    }

    /// Ends a receiver with its last report and a BYE.
    pub fn leave(&mut self, index: usize) {
        let local = self.members[index].clock.local(self.now);
        let body = self.members[index].half.leave(local);
        if body.is_some() {
            let reception = self.reception(index);
            self.report_to_sender(index, None, reception, body);
        }
        self.members[index].alive = false;
        let id = self.members[index].id;
        self.sender.on_leave(self.now, id, Leave::Bye);
        self.check_sender();
    }

    /// Ends a receiver without a BYE.
    pub fn die(&mut self, index: usize) {
        self.members[index].alive = false;
    }

    pub fn id(&self, index: usize) -> ReceiverId {
        self.members[index].id
    }
    pub fn reports(&self, index: usize) -> u64 {
        self.members[index].reports
    }

    pub fn rate(&self) -> Rate {
        self.sender.decision().target
    }

    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            while self.next_sample <= at {
                self.rates.push((self.next_sample, self.rate()));
                self.next_sample += Span::millis(100);
            }
            self.now = at;
            self.handle(event);
        }
        self.now = end;
    }

    /// Returns the mean rate between two times, in bit/s.
    pub fn mean(&self, from_s: u64, to_s: u64) -> f64 {
        let (from, to) = (Time::ZERO + Span::secs(from_s), Time::ZERO + Span::secs(to_s));
        let inside: Vec<_> = self.rates.iter().filter(|(at, _)| *at >= from && *at < to).collect();
        inside.iter().map(|(_, rate)| rate.as_bps_f64()).sum::<f64>() / inside.len() as f64
    }

    fn at(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn alive(&self) -> u32 {
        self.members.iter().filter(|m| m.alive).count() as u32
    }

    fn interval(&self) -> Span {
        let rtcp = self.setup.session_bandwidth.as_bytes_per_s() * 0.05 * 0.75;
        Span::from_secs_f64(f64::from(self.alive() + 1) * 112.0 / rtcp).max(self.least)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Packet => self.send(),
            Event::Arrive { path, packet } => {
                for index in 0..self.members.len() {
                    if self.members[index].path == path && self.members[index].alive {
                        self.arrive(index, packet);
                    }
                }
            }
            Event::SenderReport => {
                if let Some(body) = self.sender.announce(self.now) {
                    for path in 0..self.paths.len() {
                        let (link, free) = self.paths[path];
                        let way = link.delay + free.since(self.now);
                        self.at(self.now + way, Event::Announced { path, body: body.clone(), way });
                    }
                }
                let next = self.now + self.sr_every.scale(self.chance.between(0.5, 1.5));
                self.at(next, Event::SenderReport);
            }
            Event::Announced { path, body, way } => {
                for index in 0..self.members.len() {
                    let member = &mut self.members[index];
                    if member.path == path && member.alive {
                        member.heard_sr = Some(way);
                        let at = member.clock.local(self.now);
                        member.half.on_announce(&Announcement { at, body: &body });
                        self.check(index);
                    }
                }
            }
            Event::Rtcp(index) => {
                let member = &self.members[index];
                if member.alive && member.next_rtcp == self.now {
                    let regular = matches!(member.half.due(), Due::Rtcp);
                    let next = self.now + self.interval().scale(self.chance.between(0.5, 1.5));
                    self.members[index].next_rtcp = next;
                    self.at(next, Event::Rtcp(index));
                    if regular && self.members[index].base.is_some() {
                        self.report(index);
                    }
                }
            }
            Event::Wake(index) => {
                let member = &mut self.members[index];
                if !member.alive || member.armed != self.now {
                    return;
                }
                member.armed = Time::NEVER;
                let local = member.clock.local(self.now);
                if member.half.wake().is_some_and(|w| w.at <= local) {
                    member.half.on_timer(local);
                }
                if matches!(member.half.due(), Due::At(w) if w.at <= local) {
                    self.report(index);
                }
                self.check(index);
            }
            Event::SenderWake => {
                if self.sender_armed == self.now {
                    self.sender_armed = Time::NEVER;
                    if self.sender.wake().is_some_and(|w| w.at <= self.now) {
                        self.sender.on_timer(self.now);
                    }
                    self.check_sender();
                }
            }
            Event::Reported { from, rtt, reception, body } => {
                let report = Report {
                    at: self.now,
                    from: self.members[from].id,
                    rtt,
                    reception: Some(reception),
                    body: body.as_ref(),
                    members: self.alive(),
                    packets: &[],
                };
                self.sender.on_report(&report);
                let decision = self.sender.decision();
                let (rate, by, notice) = (decision.target, decision.why.by, self.last_notice);
                self.steps.push(Step { at: self.now, from, body, rate, by, notice });
                self.check_sender();
            }
            Event::Heard { from, body } => {
                let id = self.members[from].id;
                for index in 0..self.members.len() {
                    if index != from && self.members[index].alive {
                        let at = self.members[index].clock.local(self.now);
                        self.members[index].half.on_overheard(&Overheard { at, from: id, body: &body });
                        self.check(index);
                    }
                }
            }
        }
    }

    fn send(&mut self) {
        let rate = self.sender.decision().pacing.min(self.source);
        self.sent += 1;
        let edge = FrameEdge { first: true, last: true };
        let seq = self.sent;
        let notice = self.sender.notice(&Departing { at: self.now, seq, size: PACKET, edge });
        self.last_notice = notice;
        let data_limited = rate < self.sender.decision().pacing;
        self.sender.on_sent(&Sent { at: self.now, left: self.now, seq, size: PACKET, data_limited, number: 0 });
        let packet = Packet { seq, sent: self.now, notice };
        for path in 0..self.paths.len() {
            let (link, free) = self.paths[path];
            let tx = PACKET.at(link.rate);
            let waiting = free.since(self.now).ratio(tx);
            if self.chance.happens(link.loss) || waiting >= link.queue as f64 {
                continue;
            }
            let out = free.max(self.now) + tx;
            self.paths[path].1 = out;
            self.at(out + link.delay, Event::Arrive { path, packet });
        }
        // A little jitter keeps two clocks from locking to each other.
        let gap = PACKET.at(rate).scale(self.chance.between(0.95, 1.05));
        self.at(self.now + gap, Event::Packet);
        self.check_sender();
    }

    fn arrive(&mut self, index: usize, packet: Packet) {
        let member = &mut self.members[index];
        member.base.get_or_insert(packet.seq - 1);
        member.highest = member.highest.max(packet.seq);
        member.received += 1;
        let sent = PeerTime::from_nanos(packet.sent.as_nanos() as i64);
        member.half.on_arrival(&Arrival {
            at: member.clock.local(self.now),
            seq: packet.seq,
            size: PACKET,
            sent,
            sampled: sent,
            edge: FrameEdge { first: true, last: true },
            ecn: Ecn::NotEct,
            notice: packet.notice.bytes(),
            buffer: None,
        });
        self.check(index);
    }

    fn reception(&self, index: usize) -> Reception {
        let member = &self.members[index];
        let expected = member.highest.saturating_sub(member.base.unwrap_or(0));
        let lost = expected as i64 - member.received as i64;
        let fraction = if expected > 0 { lost as f64 / expected as f64 } else { 0.0 };
        Reception { expected, lost, fraction, highest: member.highest, jitter: Span::ZERO }
    }

    fn report(&mut self, index: usize) {
        let reception = self.reception(index);
        let (members, interval) = (self.alive() + 1, self.interval());
        let member = &mut self.members[index];
        let slot = Slot {
            now: member.clock.local(self.now),
            expected: reception.expected,
            lost: reception.lost,
            members,
            interval,
            rtcp_share: 0.0,
        };
        let body = match member.half.report(&slot) {
            Reply::Body(body) => Some(body),
            Reply::Plain => None,
            Reply::Suppress => return self.check(index),
        };
        (member.base, member.received) = (Some(member.highest), 0);
        member.reports += 1;
        let rtt = member.heard_sr.map(|way| way + self.paths[member.path].0.back);
        self.report_to_sender(index, rtt, reception, body);
        self.check(index);
    }

    fn report_to_sender(&mut self, from: usize, rtt: Option<Span>, reception: Reception, body: Option<Body>) {
        if self.chance.happens(self.back_loss) {
            return;
        }
        let back = self.paths[self.members[from].path].0.back;
        if let (true, Some(body)) = (self.overhear, body.clone()) {
            self.at(self.now + back * 2, Event::Heard { from, body });
        }
        self.at(self.now + back, Event::Reported { from, rtt, reception, body });
    }

    /// Schedules the member's next wake.
    fn check(&mut self, index: usize) {
        let member = &self.members[index];
        let mut next = member.half.wake().map_or(Time::NEVER, |w| w.at);
        if let (Due::At(wake), true) = (member.half.due(), member.base.is_some()) {
            next = next.min(wake.at);
        }
        let next = if next == Time::NEVER { next } else { member.clock.world(next).max(self.now) };
        if next != member.armed {
            self.members[index].armed = next;
            if next != Time::NEVER {
                self.at(next, Event::Wake(index));
            }
        }
    }

    fn check_sender(&mut self) {
        let next = self.sender.wake().map_or(Time::NEVER, |w| w.at.max(self.now));
        if next != self.sender_armed {
            self.sender_armed = next;
            if next != Time::NEVER {
                self.at(next, Event::SenderWake);
            }
        }
    }
}

/// Asserts `low ≤ value ≤ high`.
#[track_caller]
pub fn between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not within {low} … {high}");
}
