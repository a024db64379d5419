//! A small deterministic world for controllers of today: video flows with per-packet feedback over one bottleneck.
//!
//! ```text
//!  frames ─▶ queue, window, pacer ─▶ [FIFO bottleneck: limit, marking, random loss] ─▶ delay ─▶ receiver
//!                     ▲                        ▲ constant-rate traffic                             │
//!                     └── Report { packets } ──┴────────────── delay back, loss back ◀─────────────┘
//! ```
//!
//! Every flow has its own halves; all flows share the bottleneck. A report joins the receiver half's report with the
//! per-packet feedback since the last one (RFC 8888). Public fields may be changed between two calls of
//! [`Bench::run_until`], and the link's rate by [`Bench::set_rate`].

use super::{Decided, Plan};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use steadycast_control::registry::{Chosen, Factory};
use steadycast_control::{
    Arrival, Body, Departing, Due, ExtraArrival, ExtraSent, FrameEdge, MediaQueue, Notice, PacketArrival, PacketReport,
    Probe, ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Slot, Stream,
};
use steadycast_units::{Bytes, Chance, Ecn, PeerTime, Rate, Span, Stamp, Time};

/// The age of the oldest queued packet above which a frame is skipped.
const SKIP_AGE: Span = Span::millis(400);
/// The packet size of the constant-rate traffic.
const CROSS: Bytes = Bytes::new(1_000);

/// The rule by which the bottleneck marks ECN-capable packets, based on their queueing time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marking {
    Never,
    /// Marks each packet that has waited longer.
    Step(Span),
    /// Marks with a probability that rises from 0 to 1 between the two times.
    Ramp(Span, Span),
    /// Marks each packet with this probability.
    Random(f64),
}

/// The path to the receivers and back.
#[derive(Clone, Debug)]
pub struct Link {
    rate: Rate,
    pub delay: Span,
    pub back: Span,
    /// The capacity of the queue, including the packet in service.
    pub limit: Bytes,
    pub marking: Marking,
    /// The loss probability of a packet before the queue.
    pub loss: f64,
    /// The loss probability of a report.
    pub back_loss: f64,
    /// Constant-rate traffic that shares the queue.
    pub cross: Rate,
}

impl Link {
    /// Creates a path with half of the round trip in each direction and a queue of 300 ms, without marks, random loss
    /// or other traffic.
    pub fn new(rate: Rate, rtt: Span) -> Self {
        Self {
            rate,
            delay: rtt / 2,
            back: rtt / 2,
            limit: rate.over(Span::millis(300)),
            marking: Marking::Never,
            loss: 0.0,
            back_loss: 0.0,
            cross: Rate::ZERO,
        }
    }
    pub fn limit(self, limit: Bytes) -> Self {
        Self { limit, ..self }
    }
    pub fn marking(self, marking: Marking) -> Self {
        Self { marking, ..self }
    }
    pub fn losing(self, loss: f64) -> Self {
        Self { loss, ..self }
    }
    pub fn cross(self, cross: Rate) -> Self {
        Self { cross, ..self }
    }
}

/// The event that clocks the reports.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The receiver half.
    Half,
    /// A timer, from the first packet on.
    Every(Span),
    /// A number of packets, a frame's last packet if `marker` is set, or a timer.
    Counted { packets: u64, marker: bool, after: Span },
}

/// The fate of a flow's packet at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The send time and the arrival time.
    pub sent: Time,
    pub at: Option<Time>,
    pub size: Bytes,
    pub stream: Stream,
    /// The time in the queue, without the packet's own service time.
    pub queue: Span,
    pub marked: bool,
}

struct Waiting {
    size: Bytes,
    edge: FrameEdge,
    since: Time,
}

/// A pair of halves with its source and its record.
pub struct Flow {
    pub sender: Box<dyn SenderHalf>,
    pub receiver: Box<dyn ReceiverHalf>,
    pub clock: Clock,
    /// The number of already reported packets that each report lists again.
    pub overlap: u64,
    pub fps: u64,
    /// The upper limit of the frame size, as a rate.
    pub most: Rate,
    /// The range of the random frame size, as a share of the nominal size.
    pub noise: f64,
    /// Whether the source has no frames.
    pub idle: bool,
    /// Whether reports contain no per-packet feedback.
    pub mute: bool,
    pub decisions: Vec<Decided>,
    /// All packets by their number.
    pub packets: Vec<Outcome>,
    pub skipped: u64,
    /// The send times of the reports, and the number of packets that each covers.
    pub reports: Vec<(Time, usize)>,
    /// The last report of the receiver half.
    pub body: Option<Body>,
    id: ReceiverId,
    packet: Bytes,
    ecn: Ecn,
    sender_ahead: Span,
    /// The offset of the receiver's clock to the world's.
    pub receiver_ahead: Span,
    waiting: VecDeque<Waiting>,
    next_frame: Time,
    last_sent: Option<(Time, Bytes)>,
    seq: u64,
    probe: Option<(Probe, u32, Bytes)>,
    probed: Option<u32>,
    /// The packets whose arrival was reported to the sender half.
    told: BTreeSet<u64>,
    // At the receiver.
    arrived: BTreeMap<u64, PacketArrival>,
    reported: u64,
    since_report: u64,
    marker: bool,
    last_report: Option<Time>,
    near: Option<PeerTime>,
    highest: Option<u64>,
    got: u64,
    counted: (u64, u64),
    last_data: Option<(Time, Time)>,
    chance: Chance,
}

struct Packet {
    /// The flow; `None` for constant-rate traffic.
    flow: Option<usize>,
    number: u64,
    seq: u64,
    size: Bytes,
    stream: Stream,
    sent: Time,
    stamp: Stamp,
    notice: Notice,
    edge: FrameEdge,
    ecn: Ecn,
    queued: Time,
}

enum Event {
    Data(usize, Packet),
    Report(usize, Option<Body>, Reception, Option<(Time, Span)>, Vec<PacketReport>),
}

/// Flows over one bottleneck.
pub struct Bench {
    pub now: Time,
    pub link: Link,
    pub flows: Vec<Flow>,
    events: BTreeMap<(Time, u64), Event>,
    order: u64,
    queue: VecDeque<Packet>,
    queued: Bytes,
    serving: Option<Time>,
    next_cross: Time,
    chance: Chance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Event,
    Served,
    Cross,
    SenderTimer(usize),
    ReceiverTimer(usize),
    Report(usize),
    Frame(usize),
    Send(usize),
}

impl Bench {
    /// Creates one flow per plan. The plan's path, source and number of receivers are not used.
    pub fn new(link: Link, plans: &[Plan]) -> Self {
        let mut bench = Self {
            now: Time::ZERO,
            link,
            flows: Vec::new(),
            events: BTreeMap::new(),
            order: 0,
            queue: VecDeque::new(),
            queued: Bytes::ZERO,
            serving: None,
            next_cross: Time::ZERO,
            chance: plans.first().unwrap().seed.part("bench"),
        };
        plans.iter().for_each(|plan| bench.join(plan));
        bench
    }

    /// Adds a flow that starts now.
    pub fn join(&mut self, plan: &Plan) {
        let factory = Chosen::shared(plan.controller, plan.mode, &plan.params).unwrap();
        self.join_with(plan, &*factory);
    }

    pub fn join_with(&mut self, plan: &Plan, factory: &dyn Factory) {
        let i = self.flows.len();
        let id = ReceiverId(100 + u32::try_from(i).unwrap());
        let mut chance = plan.seed.part(&format!("flow.{i}.bench"));
        let fps = 30;
        let first = self.now + (Span::secs(1) / fps).scale(chance.unit());
        self.flows.push(Flow {
            sender: factory.sender(&plan.setup(ReceiverId(1), &format!("flow.{i}.sender"))),
            receiver: factory.receiver(&plan.setup(id, &format!("flow.{i}.receiver"))),
            clock: Clock::Half,
            overlap: 32,
            fps,
            most: Rate::MAX,
            noise: 0.0,
            idle: false,
            mute: false,
            decisions: Vec::new(),
            packets: Vec::new(),
            skipped: 0,
            reports: Vec::new(),
            body: None,
            id,
            packet: plan.packet,
            ecn: plan.ecn,
            sender_ahead: plan.sender_ahead,
            receiver_ahead: plan.receivers_ahead,
            waiting: VecDeque::new(),
            next_frame: first,
            last_sent: None,
            seq: 0,
            probe: None,
            probed: None,
            told: BTreeSet::new(),
            arrived: BTreeMap::new(),
            reported: 0,
            since_report: 0,
            marker: false,
            last_report: None,
            near: None,
            highest: None,
            got: 0,
            counted: (0, 0),
            last_data: None,
            chance,
        });
        self.flows[i].note(self.now);
    }

    /// Sets the link's rate. The packet in service starts again.
    pub fn set_rate(&mut self, rate: Rate) {
        self.link.rate = rate;
        self.serving = self.queue.front().map(|head| self.now + head.size.at(rate));
    }

    /// Runs to `end` (world time).
    pub fn run_until(&mut self, end: Time) {
        let mut still = 0;
        loop {
            let (at, next) = self.next();
            if at > end {
                break;
            }
            still = if at == self.now { still + 1 } else { 0 };
            assert!(still < 20_000, "stuck at {at} in {next:?}");
            self.now = at;
            self.step(next);
        }
        self.now = end;
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    fn next(&self) -> (Time, Next) {
        let mut all = vec![(Time::NEVER, Next::Event)];
        all.extend(self.events.keys().next().map(|(at, _)| (*at, Next::Event)));
        all.extend(self.serving.map(|at| (at, Next::Served)));
        if self.link.cross > Rate::ZERO {
            all.push((self.next_cross, Next::Cross));
        }
        for (i, flow) in self.flows.iter().enumerate() {
            all.extend(flow.sender.wake().map(|w| (w.at.before(flow.sender_ahead), Next::SenderTimer(i))));
            all.extend(flow.receiver.wake().map(|w| (w.at.before(flow.receiver_ahead), Next::ReceiverTimer(i))));
            all.extend(flow.report_due().map(|at| (at, Next::Report(i))));
            all.push((flow.next_frame, Next::Frame(i)));
            all.extend(flow.send_at().map(|at| (at, Next::Send(i))));
        }
        all.into_iter().map(|(at, next)| (at.max(self.now), next)).min().unwrap()
    }

    fn step(&mut self, next: Next) {
        let now = self.now;
        match next {
            Next::Event => self.deliver(),
            Next::Served => self.served(),
            Next::Cross => {
                self.next_cross = now.max(self.next_cross) + CROSS.at(self.link.cross);
                self.enqueue(Packet {
                    flow: None,
                    number: 0,
                    seq: 0,
                    size: CROSS,
                    stream: Stream::Media,
                    sent: now,
                    stamp: Stamp(0),
                    notice: Notice::NONE,
                    edge: FrameEdge::default(),
                    ecn: Ecn::NotEct,
                    queued: now,
                });
            }
            Next::SenderTimer(i) => {
                let flow = &mut self.flows[i];
                flow.sender.on_timer(now + flow.sender_ahead);
                flow.note(now);
            }
            Next::ReceiverTimer(i) => {
                let flow = &mut self.flows[i];
                flow.receiver.on_timer(now + flow.receiver_ahead);
            }
            Next::Report(i) => self.report(i),
            Next::Frame(i) => self.flows[i].frame(now),
            Next::Send(i) => {
                let packet = self.flows[i].send(now, i);
                self.enqueue(packet);
            }
        }
    }

    fn later(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn enqueue(&mut self, packet: Packet) {
        let lost = packet.flow.is_some() && self.chance.happens(self.link.loss);
        if lost || self.queued + packet.size > self.link.limit {
            return;
        }
        self.queued += packet.size;
        if self.queue.is_empty() {
            self.serving = Some(self.now + packet.size.at(self.link.rate));
        }
        self.queue.push_back(packet);
    }

    fn served(&mut self) {
        let mut packet = self.queue.pop_front().unwrap();
        self.queued = self.queued.saturating_sub(packet.size);
        self.serving = self.queue.front().map(|head| self.now + head.size.at(self.link.rate));
        let Some(flow) = packet.flow else { return };
        let waited = self.now.since(packet.queued).saturating_sub(packet.size.at(self.link.rate));
        let marks = match self.link.marking {
            Marking::Never => false,
            Marking::Step(at) => waited > at,
            Marking::Ramp(from, to) => {
                let p = waited.saturating_sub(from).ratio(to.saturating_sub(from));
                self.chance.happens(p)
            }
            Marking::Random(p) => self.chance.happens(p),
        };
        if marks && packet.ecn.is_capable() {
            packet.ecn = Ecn::Ce;
        }
        let outcome = &mut self.flows[flow].packets[packet.number as usize];
        (outcome.queue, outcome.marked) = (waited, packet.ecn.is_ce());
        self.later(self.now + self.link.delay, Event::Data(flow, packet));
    }

    fn deliver(&mut self) {
        let Some((_, event)) = self.events.pop_first() else { return };
        match event {
            Event::Data(i, packet) => self.flows[i].arrive(self.now, &packet),
            Event::Report(i, body, reception, probe, mut packets) => {
                let flow = &mut self.flows[i];
                // As in a session, an arrival is reported to the half only once.
                packets.retain(|packet| packet.arrived.is_none() || flow.told.insert(packet.number));
                let rtt = probe.map(|(sent, held)| self.now.since(sent).saturating_sub(held));
                flow.sender.on_report(&Report {
                    at: self.now + flow.sender_ahead,
                    from: flow.id,
                    rtt,
                    reception: Some(reception),
                    body: body.as_ref(),
                    packets: &packets,
                    members: 2,
                });
                flow.note(self.now);
            }
        }
    }

    fn report(&mut self, i: usize) {
        let now = self.now;
        let Some((body, reception, probe, packets)) = self.flows[i].report(now) else { return };
        if !self.chance.happens(self.link.back_loss) {
            self.later(now + self.link.back, Event::Report(i, body, reception, probe, packets));
        }
    }

    /// Returns the share of the link that flow `i` had between two times.
    pub fn used(&self, i: usize, from: Time, to: Time) -> f64 {
        self.received_rate(i, from, to).ratio(self.link.rate)
    }

    /// Returns the receive rate of flow `i` between two times.
    pub fn received_rate(&self, i: usize, from: Time, to: Time) -> Rate {
        let got = self.flows[i].packets.iter().filter(|p| p.at.is_some_and(|at| (from..to).contains(&at)));
        got.map(|p| p.size).sum::<Bytes>().per(to.since(from))
    }

    /// Returns a quantile of the queueing time of the packets of flow `i` sent between two times.
    pub fn queue_delay(&self, i: usize, quantile: f64, from: Time, to: Time) -> Span {
        let mut all: Vec<Span> = self.sent(i, from, to).filter(|p| p.at.is_some()).map(|packet| packet.queue).collect();
        all.sort_unstable();
        let place = (all.len() as f64 * quantile) as usize;
        all.get(place.min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Returns the loss rate of the packets of flow `i` sent between two times.
    pub fn loss(&self, i: usize, from: Time, to: Time) -> f64 {
        let (lost, all) = self.sent(i, from, to).fold((0, 0), |(l, n), p| (l + u64::from(p.at.is_none()), n + 1));
        lost as f64 / f64::from(all).max(1.0)
    }

    /// Returns the share of marked packets of flow `i` sent between two times.
    pub fn marked(&self, i: usize, from: Time, to: Time) -> f64 {
        let (marked, all) = self.sent(i, from, to).fold((0, 0), |(m, n), p| (m + u64::from(p.marked), n + 1));
        marked as f64 / f64::from(all).max(1.0)
    }

    fn sent(&self, i: usize, from: Time, to: Time) -> impl Iterator<Item = &Outcome> {
        self.flows[i].packets.iter().filter(move |p| (from..to).contains(&p.sent))
    }

    /// Returns the mean target of flow `i` between two times, weighted by the duration of each decision.
    pub fn mean_target(&self, i: usize, from: Time, to: Time) -> Rate {
        let decisions = &self.flows[i].decisions;
        let mut bits = 0.0;
        for (n, d) in decisions.iter().enumerate() {
            let end = decisions.get(n + 1).map_or(to, |next| next.at).min(to);
            bits += d.decision.target.as_bps_f64() * end.since(d.at.max(from)).as_secs_f64();
        }
        Rate::from_bps_f64(bits / to.since(from).as_secs_f64())
    }
}

impl Flow {
    /// Returns the current target.
    pub fn target(&self) -> Rate {
        self.sender.decision().target
    }

    fn note(&mut self, now: Time) {
        let decision = self.sender.decision();
        if self.decisions.last().is_none_or(|d| d.decision != decision) {
            self.decisions.push(Decided { at: now, decision });
        }
    }

    /// Queues a frame of the encoder, as equal packets for its share of the target.
    fn frame(&mut self, now: Time) {
        let period = Span::secs(1) / self.fps;
        self.next_frame = now.max(self.next_frame) + period;
        if self.idle {
            return;
        }
        if self.waiting.front().is_some_and(|head| now.since(head.since) > SKIP_AGE) {
            self.skipped += 1;
            return;
        }
        let rate = self.target().min(self.most).scale(1.0 + self.chance.between(-self.noise, self.noise));
        let bytes = rate.over(period).get().max(100);
        let parts = bytes.div_ceil(self.packet.get());
        for part in 0..parts {
            let size = Bytes::new(bytes * (part + 1) / parts - bytes * part / parts);
            let edge = FrameEdge { first: part == 0, last: part + 1 == parts };
            self.waiting.push_back(Waiting { size, edge, since: now });
        }
        self.tell_queue(now, Some(Bytes::new(bytes)));
        self.note(now);
    }

    fn tell_queue(&mut self, now: Time, frame: Option<Bytes>) {
        let waiting = self.waiting.iter().map(|w| w.size).sum();
        let age = self.waiting.front().map_or(Span::ZERO, |head| now.since(head.since));
        self.sender.on_queue(&MediaQueue { at: now + self.sender_ahead, waiting, age, frame });
    }

    /// Returns the probe that is in progress or starts now.
    fn probe(&self) -> Option<(Probe, u32, Bytes)> {
        self.probe.or_else(|| {
            let wanted = self.sender.probe().filter(|probe| Some(probe.id) != self.probed)?;
            Some((wanted, 0, Bytes::ZERO))
        })
    }

    fn send_at(&self) -> Option<Time> {
        let decision = self.sender.decision();
        let probe = self.probe();
        if (self.waiting.is_empty() && probe.is_none()) || decision.window.is_some_and(|w| w.is_closed()) {
            return None;
        }
        let pace = probe.map_or(decision.pacing, |(probe, ..)| probe.rate);
        Some(self.last_sent.map_or(Time::ZERO, |(at, size)| at + size.at(pace)))
    }

    fn send(&mut self, now: Time, flow: usize) -> Packet {
        let at = now + self.sender_ahead;
        let number = self.packets.len() as u64;
        let probe = self.probe();
        let (size, edge, stream) = match self.waiting.pop_front() {
            Some(head) => (head.size, head.edge, Stream::Media),
            None => (self.packet, FrameEdge::default(), Stream::Padding),
        };
        let (mut notice, mut seq) = (Notice::NONE, 0);
        if stream == Stream::Media {
            (seq, self.seq) = (self.seq, self.seq + 1);
            notice = self.sender.notice(&Departing { at, seq, size, edge });
            let data_limited = self.waiting.is_empty();
            self.sender.on_sent(&Sent { at, left: at, number, seq, size, data_limited });
        } else {
            self.sender.on_extra_sent(&ExtraSent { at, left: at, number, stream, size });
        }
        self.last_sent = Some((now, size));
        self.probe = probe.and_then(|(probe, packets, bytes)| {
            self.probed = Some(probe.id);
            let (packets, bytes) = (packets + 1, bytes + size);
            (packets < probe.packets || bytes < probe.bytes).then_some((probe, packets, bytes))
        });
        self.packets.push(Outcome { sent: now, at: None, size, stream, queue: Span::ZERO, marked: false });
        self.tell_queue(now, None);
        self.note(now);
        let (stamp, ecn) = (Stamp::of(at), self.ecn);
        Packet { flow: Some(flow), number, seq, size, stream, sent: now, stamp, notice, edge, ecn, queued: now }
    }

    fn arrive(&mut self, now: Time, packet: &Packet) {
        let at = now + self.receiver_ahead;
        self.packets[packet.number as usize].at = Some(now);
        let sent = packet.stamp.peer(self.near);
        self.near = Some(sent);
        let here = PeerTime::from_nanos(at.as_nanos() as i64);
        self.arrived.insert(packet.number, PacketArrival { at: Some(here), ecn: Some(packet.ecn) });
        self.since_report += 1;
        self.marker |= packet.edge.last;
        self.last_report.get_or_insert(now);
        self.last_data = Some((packet.sent, now));
        let (size, ecn, stream) = (packet.size, packet.ecn, packet.stream);
        if stream == Stream::Media {
            self.got += 1;
            self.highest = self.highest.max(Some(packet.seq));
            let (seq, edge, notice) = (packet.seq, packet.edge, packet.notice.bytes());
            self.receiver.on_arrival(&Arrival { at, seq, size, sent, sampled: sent, edge, ecn, notice, buffer: None });
        } else {
            self.receiver.on_extra(&ExtraArrival { at, stream, size, sent, ecn, missing: 0 });
        }
    }

    fn report_due(&self) -> Option<Time> {
        let last = self.last_report;
        match self.clock {
            Clock::Half => match self.receiver.due() {
                Due::At(wake) => Some(wake.at.before(self.receiver_ahead)),
                Due::Rtcp => last.map(|at| at + Span::secs(1)),
                Due::Hold => None,
            },
            Clock::Every(span) => last.map(|at| at + span),
            Clock::Counted { packets, marker, after } => {
                let now = self.since_report >= packets || (marker && self.marker);
                if now { Some(Time::ZERO) } else { last.filter(|_| self.since_report > 0).map(|at| at + after) }
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "taken apart where it is called")]
    fn report(&mut self, now: Time) -> Option<(Option<Body>, Reception, Option<(Time, Span)>, Vec<PacketReport>)> {
        let up_to = self.highest.map_or(0, |h| h + 1);
        let (expected, got) = (up_to - self.counted.0, self.got - self.counted.1);
        let lost = expected as i64 - got as i64;
        let interval = Span::secs(1);
        let slot = Slot { now: now + self.receiver_ahead, expected, lost, members: 2, interval, rtcp_share: 0.05 };
        let reply = self.receiver.report(&slot);
        (self.since_report, self.marker, self.last_report) = (0, false, Some(now));
        let body = match reply {
            Reply::Body(body) => Some(body),
            Reply::Plain => None,
            Reply::Suppress => return None,
        };
        self.counted = (up_to, self.got);
        let fraction = if expected == 0 { 0.0 } else { (lost.max(0) as f64 / expected as f64 * 256.0).floor() / 256.0 };
        let reception = Reception { expected, lost, fraction, highest: up_to.saturating_sub(1), jitter: Span::ZERO };
        let end = self.arrived.keys().next_back().map_or(0, |last| last + 1);
        let begin = self.reported.saturating_sub(self.overlap);
        let told = if self.mute { begin..begin } else { begin..end };
        let packets: Vec<PacketReport> = told
            .map(|number| {
                let Outcome { sent, size, stream, .. } = self.packets[number as usize];
                let arrived = self.arrived.get(&number).copied();
                PacketReport { number, sent: sent + self.sender_ahead, size, stream, arrived }
            })
            .collect();
        self.reported = self.reported.max(end);
        self.arrived = self.arrived.split_off(&self.reported.saturating_sub(self.overlap));
        self.reports.push((now, packets.len()));
        self.body.clone_from(&body);
        let probe = self.last_data.map(|(sent, got)| (sent, now.since(got)));
        Some((body, reception, probe, packets))
    }
}
