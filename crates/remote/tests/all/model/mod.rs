//! A link with a queue, a greedy sender, and a controller on it. The receiver half runs at the receiver, or in a
//! [`Remote`] that is called in one of the ways open to a product. A CUBIC flow may share the link.
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
use steadycast_tcp::{Ack, Config, Congestion, Poll, Preset, Segment};
use steadycast_units::Chance;

/// The place where the receiver half runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Side {
    Native,
    Remote(Way),
}

/// The way in which a product calls a [`Remote`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    /// The interval between two feedback messages.
    pub(crate) feedback: Span,
    /// Whether packets are only reported with their feedback, not when they are sent.
    pub(crate) late: bool,
    /// Whether the arrival time of the feedback replaces the packets' arrival times.
    pub(crate) acknowledged: bool,
    /// The interval of uncovered packets: one in this many, of the media or of the retransmissions beside them.
    pub(crate) untold: Option<(u64, Stream)>,
    /// The interval of packets whose feedback has no arrival time: one in this many.
    pub(crate) untimed: Option<u64>,
    /// The delay of timers.
    pub(crate) lag: Span,
}

impl Way {
    pub(crate) const PLAIN: Self = Self {
        feedback: Span::millis(50),
        late: false,
        acknowledged: false,
        untold: None,
        untimed: None,
        lag: Span::ZERO,
    };
}

/// A link with this rate, a queue, and a propagation delay of half the round trip in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    pub(crate) rtt: Span,
    /// The loss probability of a packet behind the queue.
    pub(crate) loss: f64,
    pub(crate) queue: Span,
    /// The controller's cap.
    pub(crate) cap: Rate,
    /// The duration of a run.
    pub(crate) length: Span,
}

/// The results without the first quarter of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// The receive rate in bit/s.
    pub(crate) rate: f64,
    /// The loss rate.
    pub(crate) loss: f64,
    /// The 95th percentile of the queueing time in seconds.
    pub(crate) queue: f64,
    /// The receive rate of the CUBIC flow in bit/s.
    pub(crate) tcp: f64,
}

const SIZE: Bytes = Bytes::new(1_000);
/// RTCP's interval.
const RTCP: Span = Span::secs(1);
/// The offset of the receiver's clock.
const AHEAD: Span = Span::secs(7);
/// The time by which the CUBIC flow starts later than the controller, at most. Without it, and without random losses,
/// all seeds would be the same run.
const MOST_TCP_WAIT: Span = Span::secs(1);
/// The number of packets per frame.
const FRAME: u64 = 4;

enum Event {
    Arrives(u64),
    Report(Option<Body>, Reception, Option<Span>, Vec<PacketReport>),
    /// The feedback about packets, by their indices in the world's list.
    Fates(Vec<PacketResult>),
    Segment(Segment),
    Ack(Ack),
}

/// A link with its queue.
struct Link {
    path: Path,
    free: Time,
    chance: Chance,
}

impl Link {
    /// Returns the queueing time of a packet that is offered now, and its arrival time unless it is lost.
    fn offer(&mut self, now: Time, size: Bytes) -> (Span, Option<Time>) {
        let waits = self.free.since(now);
        if waits > self.path.queue {
            return (waits, None);
        }
        self.free = self.free.max(now) + size.at(self.path.rate);
        (waits, (!self.chance.happens(self.path.loss)).then_some(self.free + self.path.rtt / 2))
    }
}

/// A CUBIC flow that shares the link.
struct Tcp {
    sender: steadycast_tcp::Sender,
    receiver: steadycast_tcp::Receiver,
    /// The next time at which the sender has to be polled.
    until: Time,
    /// The segments that had arrived at the end of the first quarter.
    before: u32,
}

/// A packet that was sent.
struct Departed {
    at: Time,
    notice: Vec<u8>,
    arrived: Option<Time>,
    waited: Span,
    /// The packet's number at the [`Remote`], once it was reported to it.
    number: Option<u64>,
    /// Whether feedback covers the packet.
    covered: bool,
}

/// A sender half at the sender and a receiver half at the receiver, with the counters that a session has.
struct Pair {
    sender: Box<dyn SenderHalf>,
    receiver: Box<dyn ReceiverHalf>,
    counted: (u64, u64),
    reported: Time,
    told: Time,
    /// The sender reports that were sent right before the packet with this number, and their announcements.
    under_way: VecDeque<(u64, Option<Body>)>,
    /// The send time and the arrival time of the last sender report.
    last: Option<(Time, Time)>,
}

#[allow(clippy::large_enum_variant, reason = "there is one")]
enum Driven {
    Pair(Pair),
    Remote(Remote, Way, Time),
}

struct World {
    driven: Driven,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    order: u64,
    packets: Vec<Departed>,
    /// The packets that have arrived since the last report, and the first packet that no report covers.
    unsaid: VecDeque<u64>,
    unreported: u64,
    link: Link,
    /// The stream of the retransmission that is sent next.
    repair: Option<Stream>,
    tcp: Option<Tcp>,
    expected: u64,
    arrived: u64,
    /// The arrivals that were passed to the half.
    told: BTreeSet<u64>,
}

/// Runs the pair alone.
pub(crate) fn run(controller: &str, side: Side, path: &Path, seed: u64) -> Outcome {
    shared(controller, side, path, seed, false)
}

/// Runs the pair, beside a CUBIC flow if `beside` is set.
pub(crate) fn shared(controller: &str, side: Side, path: &Path, seed: u64, beside: bool) -> Outcome {
    let (floor, cap) = (Rate::kbps(50), path.cap);
    // This world sends no probes.
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
                capped: true,
                pictures: None,
                session_bandwidth: cap,
                group: false,
                id: ReceiverId(id),
                ecn: Ecn::NotEct,
                probes: true,
                chance: Seed(seed).part(part),
            };
            let half = (chosen.controller.sender)(&setup(1, "sender"), &chosen.values);
            let receiver = (chosen.controller.receiver)(&setup(2, "receiver"), &chosen.values);
            let (counted, under_way) = ((0, 0), VecDeque::new());
            Driven::Pair(Pair { sender: half, receiver, counted, reported: start, told: start, under_way, last: None })
        }
        Side::Remote(way) => {
            let mut bounds = Bounds::new(floor, cap);
            (bounds.packet, bounds.seed) = (SIZE, Seed(seed));
            let first = start + way.feedback.scale(Seed(seed).part("feedback").between(0.0, 1.0));
            Driven::Remote(Remote::new(controller, params, &bounds).unwrap(), way, first)
        }
    };
    let tcp = beside.then(|| {
        let config = Config::new(Preset::Linux, Congestion::Cubic);
        let (sender, receiver) = (steadycast_tcp::Sender::new(&config), steadycast_tcp::Receiver::new(&config));
        let until = start + MOST_TCP_WAIT.scale(Seed(seed).part("tcp").between(0.0, 1.0));
        Tcp { sender, receiver, until, before: 0 }
    });
    let mut world = World {
        driven,
        now: start,
        events: BTreeMap::new(),
        order: 0,
        packets: Vec::new(),
        unsaid: VecDeque::new(),
        unreported: 0,
        link: Link { path: *path, free: start, chance: Seed(seed).part("link") },
        repair: None,
        tcp,
        expected: 0,
        arrived: 0,
        told: BTreeSet::new(),
    };
    let mut next = start;
    // A pacer's intervals are never exact. Without jitter a full queue would drop the same packet of each frame again
    // and again (traffic phase effects: Floyd and Jacobson, 1992).
    let mut jitter = Seed(seed).part("pacer");
    let (from, end) = (start + path.length / 4, start + path.length);
    loop {
        let event = world.events.keys().next().map_or(Time::NEVER, |(at, _)| *at);
        let timer = world.timer().max(world.now);
        let tcp = world.tcp_timer().max(world.now);
        let decision = world.decision();
        let send = if decision.window.is_some_and(|w| w.is_closed()) { Time::NEVER } else { next.max(world.now) };
        let now = event.min(timer).min(send).min(tcp);
        if world.now < from && now >= from {
            world.tcp.iter_mut().for_each(|tcp| tcp.before = tcp.receiver.next());
        }
        world.now = now;
        if now >= end {
            break;
        }
        if now == event {
            world.happen();
        } else if now == timer {
            world.on_timer();
        } else if now == tcp {
            world.on_tcp_timer();
        } else {
            world.send();
            next = now + SIZE.at(decision.pacing).scale(jitter.between(0.5, 1.5));
        }
        world.back(path.rtt / 2);
    }
    let counted: Vec<_> = world.packets.iter().filter(|p| p.at >= from && p.at + Span::secs(1) < end).collect();
    let got = counted.iter().filter(|packet| packet.arrived.is_some()).count();
    let span = end.since(from).saturating_sub(Span::secs(1));
    let mut waits: Vec<_> = counted.iter().map(|packet| packet.waited).collect();
    waits.sort_unstable();
    let segments = world.tcp.map_or(0, |tcp| tcp.receiver.next() - tcp.before);
    Outcome {
        rate: Bytes::new(SIZE.get() * got as u64).per(span).as_bps_f64(),
        loss: 1.0 - got as f64 / counted.len().max(1) as f64,
        queue: waits.get(waits.len() * 95 / 100).map_or(0.0, |wait| wait.as_secs_f64()),
        tcp: Bytes::new(1_500 * u64::from(segments)).per(end.since(from)).as_bps_f64(),
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
            Driven::Remote(remote, ..) => remote.decision(),
        }
    }

    /// Returns the time of the ends' next event, except for reports in flight.
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
            Driven::Remote(remote, way, report) => {
                remote.wake().map_or(*report, |wake| (wake.at + way.lag).min(*report))
            }
        }
    }

    /// Sends the next packet: the retransmission that the last media packet made due, or a media packet.
    fn send(&mut self) {
        let (at, seq) = (self.now, self.packets.len() as u64);
        if let (Some(stream), Driven::Remote(remote, ..)) = (self.repair.take(), &mut self.driven) {
            let number = remote.sent_extra(at, stream, SIZE);
            return self.offer(Some(number), Vec::new(), false);
        }
        let edge = FrameEdge { first: seq.is_multiple_of(FRAME), last: seq % FRAME == FRAME - 1 };
        let (mut notice, mut covered) = (Vec::new(), true);
        let number = match &mut self.driven {
            Driven::Pair(pair) => {
                notice.extend_from_slice(pair.sender.notice(&Departing { at, seq, size: SIZE, edge }).bytes());
                pair.sender.on_sent(&Sent { at, left: at, number: seq, seq, size: SIZE, data_limited: false });
                pair.sender.on_queue(&MediaQueue { at, waiting: SIZE, age: Span::ZERO, frame: None });
                Some(seq)
            }
            Driven::Remote(remote, way, _) => {
                let untold = way.untold.filter(|(every, _)| seq % every == every - 1);
                covered = untold.is_none_or(|(_, stream)| stream != Stream::Media);
                let number = (!way.late).then(|| remote.sent(at, &Packet { size: SIZE, edge, data_limited: false }));
                self.repair = untold.filter(|_| covered).map(|(_, stream)| stream);
                remote.queued(&MediaQueue { at, waiting: SIZE, age: Span::ZERO, frame: None });
                number
            }
        };
        self.offer(number, notice, covered);
    }

    /// Offers a packet to the link.
    fn offer(&mut self, number: Option<u64>, notice: Vec<u8>, covered: bool) {
        let (at, place) = (self.now, self.packets.len() as u64);
        let (waited, arrives) = self.link.offer(at, SIZE);
        self.packets.push(Departed { at, notice, arrived: None, waited, number, covered });
        if let Some(arrives) = arrives {
            self.later(arrives, Event::Arrives(place));
        }
    }

    /// Returns the time of the CUBIC flow's next event.
    fn tcp_timer(&self) -> Time {
        let due = |tcp: &Tcp| tcp.receiver.wake().map_or(tcp.until, |wake| wake.min(tcp.until));
        self.tcp.as_ref().map_or(Time::NEVER, due)
    }

    fn on_tcp_timer(&mut self) {
        let (now, way) = (self.now, self.link.path.rtt / 2);
        let Some(tcp) = &mut self.tcp else { return };
        let ack = tcp.receiver.on_timer(now);
        if tcp.sender.wake().is_some_and(|wake| wake <= now) {
            tcp.sender.on_timer(now);
        }
        if let Some(ack) = ack {
            self.later(now + way, Event::Ack(ack));
        }
        self.poll_tcp();
    }

    fn poll_tcp(&mut self) {
        let now = self.now;
        while let Some(tcp) = &mut self.tcp {
            match tcp.sender.poll(now) {
                Poll::Send(segment) => {
                    if let (_, Some(at)) = self.link.offer(now, segment.len) {
                        self.later(at, Event::Segment(segment));
                    }
                }
                Poll::Wait { until, .. } => {
                    tcp.until = until.unwrap_or(Time::NEVER);
                    break;
                }
                Poll::Done => break,
            }
        }
    }

    fn happen(&mut self) {
        let now = self.now;
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Arrives(number) => {
                let Departed { at: sent, notice, arrived, .. } = &mut self.packets[number as usize];
                *arrived = Some(now);
                self.unsaid.push_back(number);
                (self.expected, self.arrived) = (self.expected.max(number + 1), self.arrived + 1);
                let edge = FrameEdge { first: number.is_multiple_of(FRAME), last: number % FRAME == FRAME - 1 };
                let peer = PeerTime::from_nanos(sent.as_nanos() as i64);
                if let Driven::Pair(pair) = &mut self.driven {
                    while pair.under_way.front().is_some_and(|(next, _)| *next <= number) {
                        let Some((_, body)) = pair.under_way.pop_front() else { break };
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
                let Driven::Remote(remote, way, _) = &mut self.driven else { return };
                let mut named = Vec::new();
                for PacketResult { number: place, arrived } in fates {
                    let edge = FrameEdge { first: place.is_multiple_of(FRAME), last: place % FRAME == FRAME - 1 };
                    let packet = &mut self.packets[place as usize];
                    let sent = || remote.sent(packet.at, &Packet { size: SIZE, edge, data_limited: false });
                    let number = *packet.number.get_or_insert_with(sent);
                    let here = PeerTime::from_nanos(now.as_nanos() as i64);
                    let timed = way.untimed.is_none_or(|every| place % every != every - 1);
                    let at = |at: Option<_>| if way.acknowledged { Some(here) } else { at.filter(|_| timed) };
                    let arrived = arrived.map(|arrived| PacketArrival { at: at(arrived.at), ..arrived });
                    named.push(PacketResult { number, arrived });
                }
                remote.feedback(now, named);
            }
            Event::Segment(segment) => {
                let way = self.link.path.rtt / 2;
                if let Some(ack) = self.tcp.as_mut().and_then(|tcp| tcp.receiver.on_segment(now, &segment)) {
                    self.later(now + way, Event::Ack(ack));
                }
            }
            Event::Ack(ack) => {
                self.tcp.iter_mut().for_each(|tcp| tcp.sender.on_ack(now, &ack));
                self.poll_tcp();
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
            Driven::Remote(remote, way, _) => {
                if remote.wake().is_some_and(|wake| wake.at + way.lag <= now) {
                    remote.timer(now);
                }
            }
        }
    }

    /// Sends the pending reports of the ends.
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
                        let sent = self.packets[fate.number as usize].at;
                        let arrived = fate.arrived;
                        PacketReport { number: fate.number, sent, size: SIZE, stream: Stream::Media, arrived }
                    });
                    let packets = packets.collect();
                    self.later(now + way, Event::Report(body, reception, rtt, packets));
                }
            }
            Driven::Remote(_, how, report) => {
                if *report <= now {
                    *report = now + how.feedback;
                    let fates = self.fates();
                    self.later(now + way, Event::Fates(fates));
                }
            }
        }
    }

    /// Counts the packets since the last report, including earlier ones that have arrived late.
    fn fates(&mut self) -> Vec<PacketResult> {
        let Some(newest) = self.unsaid.iter().max().copied() else { return Vec::new() };
        let oldest = self.unsaid.iter().min().copied().unwrap_or(newest).saturating_sub(8).min(self.unreported);
        self.unsaid.clear();
        self.unreported = self.unreported.max(newest + 1);
        let told = |place: u64| {
            let packet = &self.packets[place as usize];
            let at = packet.arrived.map(|at| PeerTime::from_nanos((at + AHEAD).as_nanos() as i64));
            let arrived = at.map(|at| PacketArrival { at: Some(at), ecn: None });
            packet.covered.then_some(PacketResult { number: place, arrived })
        };
        (oldest..=newest).filter_map(told).collect()
    }
}

impl Pair {
    /// Returns the times of the next announcement and of the next report.
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
