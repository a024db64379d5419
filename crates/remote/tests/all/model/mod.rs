//! A link with a queue, a greedy sender, and a controller on it: with its receiver half at the receiver, or by
//! [`Remote`].
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{
    Announcement, Arrival, Body, Departing, Due, FrameEdge, MediaQueue, Mode, PacketArrival, PacketReport,
    ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Slot, Stream,
};
use steadycast_remote::{
    Bounds, Bytes, Decision, Ecn, Given, Packet, PacketResult, PeerTime, Rate, Remote, Seed, Span, Time,
};

/// Where the receiver half runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Side {
    Native,
    Remote,
}

/// A link of this rate, with a queue of 100 ms and a propagation delay of half the round trip each way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    pub(crate) rtt: Span,
    /// Each packet is lost with this probability, behind the queue.
    pub(crate) loss: f64,
}

/// What came of it, without the first quarter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Of what arrived, in bits per second.
    pub(crate) rate: f64,
    /// The share of packets that did not.
    pub(crate) loss: f64,
}

const SIZE: Bytes = Bytes::new(1_000);
const LENGTH: Span = Span::secs(60);
const QUEUE: Span = Span::millis(100);
/// RTCP's interval, and that of per-packet feedback.
const RTCP: Span = Span::secs(1);
const FEEDBACK: Span = Span::millis(50);
/// The receiver's clock is so far ahead.
const AHEAD: Span = Span::secs(7);
/// Packets of a frame.
const FRAME: u64 = 4;

enum Event {
    Arrives(u64),
    Report(Option<Body>, Reception, Option<Span>, Vec<PacketReport>),
    Fates(Vec<PacketResult>),
}

/// The halves where they belong, and what a session would count for them.
struct Pair {
    sender: Box<dyn SenderHalf>,
    receiver: Box<dyn ReceiverHalf>,
    counted: (u64, u64),
    reported: Time,
    told: Time,
    /// Sender reports that left right before the packet of this number, and what they announce.
    under_way: VecDeque<(u64, Option<Body>)>,
    /// When the last one that has come left, and when it came.
    last: Option<(Time, Time)>,
}

#[allow(clippy::large_enum_variant, reason = "there is one")]
enum Driven {
    Pair(Pair),
    Remote(Remote, Time),
}

struct World {
    driven: Driven,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    order: u64,
    /// All packets: when sent, what rode along, and when it arrived.
    packets: Vec<(Time, Vec<u8>, Option<Time>)>,
    /// Up to which they were told of, and those that have arrived since.
    unsaid: VecDeque<u64>,
    expected: u64,
    arrived: u64,
    /// Arrivals that a session has told its half.
    told: BTreeSet<u64>,
}

pub(crate) fn run(controller: &str, side: Side, path: &Path, seed: u64) -> Outcome {
    let (floor, cap) = (Rate::kbps(50), Rate::mbps(4));
    // No probes are sent here.
    let params: &[_] = if controller == "gcc" { &[("probes".to_owned(), Given::Switch(false))] } else { &[] };
    let start = Time::ZERO + Span::secs(3);
    let driven = match side {
        Side::Native => {
            let chosen = Chosen::new(controller, Mode::Repaired, params).unwrap();
            let setup = |id, part| Setup {
                packet: SIZE,
                mode: Mode::Repaired,
                floor,
                cap,
                pictures: None,
                session_bandwidth: cap,
                group: false,
                id: ReceiverId(id),
                ecn: Ecn::NotEct,
                chance: Seed(seed).part(part),
            };
            let half = (chosen.controller.sender)(&setup(1, "sender"), &chosen.values);
            let receiver = (chosen.controller.receiver)(&setup(2, "receiver"), &chosen.values);
            let (counted, under_way) = ((0, 0), VecDeque::new());
            Driven::Pair(Pair { sender: half, receiver, counted, reported: start, told: start, under_way, last: None })
        }
        Side::Remote => {
            let mut bounds = Bounds::new(floor, cap);
            (bounds.packet, bounds.seed) = (SIZE, Seed(seed));
            Driven::Remote(Remote::new(controller, params, &bounds).unwrap(), start + FEEDBACK)
        }
    };
    let mut world = World {
        driven,
        now: start,
        events: BTreeMap::new(),
        order: 0,
        packets: Vec::new(),
        unsaid: VecDeque::new(),
        expected: 0,
        arrived: 0,
        told: BTreeSet::new(),
    };
    let mut chance = Seed(seed).part("link");
    let mut free = start;
    let mut next = start;
    let end = start + LENGTH;
    loop {
        let event = world.events.keys().next().map_or(Time::NEVER, |(at, _)| *at);
        let timer = world.timer().max(world.now);
        let decision = world.decision();
        let send = if decision.window.is_some_and(|w| w.is_closed()) { Time::NEVER } else { next.max(world.now) };
        world.now = event.min(timer).min(send);
        let now = world.now;
        if now >= end {
            break;
        }
        if now == event {
            world.happen();
        } else if now == timer {
            world.on_timer();
        } else {
            let number = world.send();
            next = now + SIZE.at(decision.pacing);
            if free.since(now) <= QUEUE {
                free = free.max(now) + SIZE.at(path.rate);
                if !chance.happens(path.loss) {
                    world.later(free + path.rtt / 2, Event::Arrives(number));
                }
            }
        }
        world.back(path.rtt / 2);
    }
    let from = start + LENGTH / 4;
    let counted: Vec<_> = world.packets.iter().filter(|(at, ..)| *at >= from && *at + Span::secs(1) < end).collect();
    let got = counted.iter().filter(|(.., arrived)| arrived.is_some()).count();
    let span = end.since(from).saturating_sub(Span::secs(1));
    Outcome {
        rate: Bytes::new(SIZE.get() * got as u64).per(span).as_bps_f64(),
        loss: 1.0 - got as f64 / counted.len().max(1) as f64,
    }
}

impl World {
    fn later(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn decision(&self) -> Decision {
        match &self.driven {
            Driven::Pair(pair) => pair.sender.decision(),
            Driven::Remote(remote, _) => remote.decision(),
        }
    }

    /// When something of the ends is due, reports on their way back apart.
    fn timer(&self) -> Time {
        match &self.driven {
            Driven::Pair(pair) => {
                let halves = pair
                    .sender
                    .wake()
                    .map(|w| w.at)
                    .into_iter()
                    .chain(pair.receiver.wake().map(|w| w.at.before(AHEAD)));
                halves.chain([pair.announces(), pair.reports()]).min().unwrap_or(Time::NEVER)
            }
            Driven::Remote(remote, report) => remote.wake().map_or(*report, |wake| wake.at.min(*report)),
        }
    }

    fn send(&mut self) -> u64 {
        let (at, seq) = (self.now, self.packets.len() as u64);
        let edge = FrameEdge { first: seq.is_multiple_of(FRAME), last: seq % FRAME == FRAME - 1 };
        let mut notice = Vec::new();
        let number = match &mut self.driven {
            Driven::Pair(pair) => {
                notice.extend_from_slice(pair.sender.notice(&Departing { at, seq, size: SIZE, edge }).bytes());
                pair.sender.on_sent(&Sent { at, number: seq, seq, size: SIZE, data_limited: false });
                pair.sender.on_queue(&MediaQueue { at, waiting: SIZE, age: Span::ZERO, frame: None });
                seq
            }
            Driven::Remote(remote, _) => {
                let number = remote.sent(at, &Packet { size: SIZE, edge, data_limited: false });
                remote.queued(&MediaQueue { at, waiting: SIZE, age: Span::ZERO, frame: None });
                number
            }
        };
        self.packets.push((at, notice, None));
        number
    }

    fn happen(&mut self) {
        let now = self.now;
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Arrives(number) => {
                let (sent, notice, arrived) = &mut self.packets[number as usize];
                *arrived = Some(now);
                self.unsaid.push_back(number);
                (self.expected, self.arrived) = (self.expected.max(number + 1), self.arrived + 1);
                let edge = FrameEdge { first: number.is_multiple_of(FRAME), last: number % FRAME == FRAME - 1 };
                let peer = PeerTime::from_nanos(sent.as_nanos() as i64);
                if let Driven::Pair(pair) = &mut self.driven {
                    while let Some((_, body)) = pair.under_way.pop_front_if(|(next, _)| *next <= number) {
                        pair.last = Some((*sent, now));
                        pair.receiver.on_sender_report(now + AHEAD);
                        if let Some(body) = &body {
                            pair.receiver.on_announce(&Announcement { at: now + AHEAD, body });
                        }
                    }
                    pair.receiver.on_arrival(&Arrival {
                        at: now + AHEAD,
                        seq: number,
                        size: SIZE,
                        sent: peer,
                        sampled: peer,
                        edge,
                        ecn: Ecn::NotEct,
                        notice,
                        buffer: None,
                    });
                }
            }
            Event::Report(body, reception, rtt, packets) => {
                let Driven::Pair(pair) = &mut self.driven else { return };
                let (from, reception, body) = (ReceiverId(2), Some(reception), body.as_ref());
                pair.sender.on_report(&Report { at: now, from, rtt, reception, body, packets: &packets, members: 2 });
            }
            Event::Fates(fates) => {
                let Driven::Remote(remote, _) = &mut self.driven else { return };
                remote.feedback(now, fates);
            }
        }
    }

    fn on_timer(&mut self) {
        let now = self.now;
        match &mut self.driven {
            Driven::Pair(pair) => {
                if pair.sender.wake().is_some_and(|w| w.at <= now) {
                    pair.sender.on_timer(now);
                }
                if pair.receiver.wake().is_some_and(|w| w.at <= now + AHEAD) {
                    pair.receiver.on_timer(now + AHEAD);
                }
            }
            Driven::Remote(remote, _) => remote.timer(now),
        }
    }

    /// What the ends have to tell goes its way.
    fn back(&mut self, way: Span) {
        let (now, expected, arrived) = (self.now, self.expected, self.arrived);
        match &mut self.driven {
            Driven::Pair(pair) => {
                if pair.announces() <= now {
                    let body = pair.sender.announce(now);
                    pair.told = now;
                    pair.under_way.push_back((self.packets.len() as u64, body));
                } else if pair.reports() <= now {
                    let since = (expected - pair.counted.0, arrived - pair.counted.1);
                    let lost = since.0 as i64 - since.1 as i64;
                    let slot = Slot {
                        now: now + AHEAD,
                        expected: since.0,
                        lost,
                        members: 2,
                        interval: RTCP,
                        rtcp_share: 0.05,
                    };
                    pair.reported = now;
                    let body = match pair.receiver.report(&slot) {
                        Reply::Suppress => return,
                        Reply::Plain => None,
                        Reply::Body(body) => Some(body),
                    };
                    pair.counted = (expected, arrived);
                    let fraction = (lost.max(0) as f64 / since.0.max(1) as f64 * 256.0).floor() / 256.0;
                    let highest = expected.saturating_sub(1);
                    let reception = Reception { expected: since.0, lost, fraction, highest, jitter: Span::ZERO };
                    let rtt = pair.last.map(|(sent, got)| (now + way).since(sent).saturating_sub(now.since(got)));
                    let fates = self.fates();
                    let news = fates.into_iter().filter(|f| f.arrived.is_none() || self.told.insert(f.number));
                    let packets = news.map(|fate| {
                        let sent = self.packets[fate.number as usize].0;
                        let arrived = fate.arrived;
                        PacketReport { number: fate.number, sent, size: SIZE, stream: Stream::Media, arrived }
                    });
                    let packets = packets.collect();
                    self.later(now + way, Event::Report(body, reception, rtt, packets));
                }
            }
            Driven::Remote(_, report) => {
                if *report <= now {
                    *report = now + FEEDBACK;
                    let fates = self.fates();
                    self.later(now + way, Event::Fates(fates));
                }
            }
        }
    }

    /// Of the packets since the last report, and those before that have come late.
    fn fates(&mut self) -> Vec<PacketResult> {
        let Some(newest) = self.unsaid.iter().max().copied() else { return Vec::new() };
        let oldest = self.unsaid.iter().min().copied().unwrap_or(newest);
        self.unsaid.clear();
        let told = |number: u64| {
            let at = self.packets[number as usize].2.map(|at| PeerTime::from_nanos((at + AHEAD).as_nanos() as i64));
            PacketResult { number, arrived: at.map(|at| PacketArrival { at: Some(at), ecn: None }) }
        };
        (oldest.saturating_sub(8)..=newest).map(told).collect()
    }
}

impl Pair {
    /// When it announces, and when it reports.
    fn announces(&self) -> Time {
        match self.sender.due() {
            Due::Rtcp => self.told + RTCP,
            Due::At(wake) => wake.at,
            Due::Hold => Time::NEVER,
        }
    }

    fn reports(&self) -> Time {
        match self.receiver.due() {
            Due::Rtcp => self.reported + RTCP,
            Due::At(wake) => wake.at.before(AHEAD),
            Due::Hold => Time::NEVER,
        }
    }
}
