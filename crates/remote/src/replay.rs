//! Receivers that report single packets instead of what the controller's receiver half would say: the sender runs that
//! half itself, on the arrivals that they tell.
//!
//! A receiver's clock is mapped to the sender's by the least difference between a report's coming and the newest
//! arrival that it tells: the way back then counts as part of the way there. Delays keep their variation, and what a
//! half computes as the round trip is the round trip. Time goes on for such a half with the reports alone, so that
//! silence of a receiver is silence to the sender half, too.
//!
//! A sender report reaches the half with the first packet that left after it. The round trip beside what the half says
//! afterwards is that of this packet, as with RTCP it is the sender report's (RFC 3550, section 6.4.1): halves move it
//! on by the delay since then.

use crate::shadow::{Departures, Left, SHADOWS, Shadow};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use steadycast_control::registry::{Factory, FeedbackTiming, Terms};
use steadycast_control::{
    Announcement, Arrival, Body, Decision, Departing, Due, ExtraArrival, Leave, Notice, PacketArrival, PacketReport,
    ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Setup, Slot, Stream, around,
};
use steadycast_units::{Bytes, Ecn, Offset, OneWay, PeerTime, Span, Time};

/// Makes the halves of a controller whose receivers report single packets, in RFC 8888's format or by transport-wide
/// numbers.
pub struct Replayed {
    own: Arc<dyn Factory>,
    least: Span,
    /// The receiver halves are the controller's own.
    own_receivers: bool,
}

impl Replayed {
    /// Around a controller that does not itself read reports of single packets. A half that leaves its times to RTCP
    /// reports as often as RTCP's share of the session's bandwidth allows (RFC 3550, section 6.3.1), but no more often
    /// than each `least`.
    pub fn around(own: Arc<dyn Factory>, least: Span) -> Arc<dyn Factory> {
        Arc::new(Self { own, least, own_receivers: false })
    }

    /// As [`Replayed::around`], for a sender alone: the receiver halves that it makes are the controller's own, which
    /// stand in for receivers that report nothing but standard reports all the same.
    pub fn at_sender(own: Arc<dyn Factory>, least: Span) -> Arc<dyn Factory> {
        Arc::new(Self { own, least, own_receivers: true })
    }
}

impl Factory for Replayed {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        Box::new(Replay {
            half: self.own.sender(setup),
            make: Arc::clone(&self.own),
            setup: setup.clone(),
            least: self.least,
            receivers: BTreeMap::new(),
            left: Departures::new(REMEMBERED),
            arrivals: Vec::new(),
            said: Vec::new(),
            unknown: Unknown::default(),
            heard: None,
            gap: Span::ZERO,
        })
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        if self.own_receivers { self.own.receiver(setup) } else { Box::new(Counting) }
    }
    fn terms(&self) -> Terms {
        let own = self.own.terms();
        let repeats = self.own_receivers && own.repeats;
        Terms { feedback: FeedbackTiming::Clocked, repeats, needs: &[], ..own }
    }
}

/// The receiver half of a session whose receivers report single packets: the session itself writes these reports.
struct Counting;

impl ReceiverHalf for Counting {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}

    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Plain
    }
}

/// Packets that are remembered: as many as a sender's history holds.
const REMEMBERED: usize = 1 << 14;
/// Limit of the packets of unknown fate that are remembered.
const MOST_UNKNOWN: usize = REMEMBERED / 2;
/// The least difference of the clocks is that of the last two to three such spans, so that clocks may drift.
const OFFSETS: Span = Span::secs(10);

/// The mean size of a compound with a report block and a body, headers of IP and UDP included.
const COMPOUND: Bytes = Bytes::new(120);

/// The interval at which the sender and its receivers would report (RFC 3550, section 6.3.1), without a least one.
fn interval(setup: &Setup, receivers: u32) -> Span {
    COMPOUND.at(setup.session_bandwidth.scale(0.05)) * (u64::from(receivers) + 1)
}

struct Replay {
    half: Box<dyn SenderHalf>,
    make: Arc<dyn Factory>,
    setup: Setup,
    least: Span,
    receivers: BTreeMap<ReceiverId, Receiver>,
    left: Departures,
    /// The arrivals of the report that is played back; kept, so that a report takes no new memory.
    arrivals: Vec<(PeerTime, PacketReport)>,
    /// What the halves said to it; kept for the same reason.
    said: Vec<Said>,
    unknown: Unknown,
    /// When a report came last, and the longest time between two of late.
    heard: Option<Time>,
    gap: Span,
}

/// Reports that are farther apart than this say nothing of how far apart they come.
const RARE: Span = Span::secs(1);

/// Sender reports that are under way to a receiver at most.
const UNDER_WAY: usize = 16;

/// Packets whose fates are unknown.
///
/// Receiver halves see a packet that does not arrive as a gap in sequence numbers, which is a loss. So a packet of
/// unknown fate is played back as if it had arrived with the next one that did, after as long a delay. Where feedback
/// tells later that it is missing, the next packet of the media is left out in its place: losses and bytes are then
/// right in sum, and the loss comes when it became known.
#[derive(Default)]
struct Unknown {
    /// Those that no packet has arrived after, as far as is told.
    waiting: VecDeque<PacketReport>,
    /// Numbers of those that were played back, in order.
    played: VecDeque<u64>,
    /// Losses that are still to be played back.
    owed: usize,
}

impl Unknown {
    /// Looks for packets that were played back before and whose fates a report tells now.
    fn learn(&mut self, packets: &[PacketReport]) {
        for packet in packets {
            if let Ok(place) = self.played.binary_search(&packet.number)
                && packet.arrived.is_none()
            {
                self.played.remove(place);
                self.owed += usize::from(packet.stream == Stream::Media);
            }
        }
    }

    /// Adds to the arrivals of a report those packets that left before one of them: what is waiting, and what arrived
    /// at a time that is not told.
    fn play(&mut self, report: &[PacketReport], arrivals: &mut Vec<(PeerTime, PacketReport)>) {
        let timeless = |packet: &&PacketReport| packet.arrived.is_some_and(|arrived| arrived.at.is_none());
        let played = &self.played;
        let unplayed = |packet: &&PacketReport| played.binary_search(&packet.number).is_err();
        self.waiting.extend(report.iter().filter(timeless).filter(unplayed));
        self.waiting.make_contiguous().sort_unstable_by_key(|packet| packet.number);
        let mut known = report.iter().filter_map(|packet| Some((packet.arrived?.at?, packet)));
        let mut next = known.next();
        // No imputed packet overtakes the one before it: halves would take that for a gap.
        let mut earliest = PeerTime::from_nanos(i64::MIN);
        while let (Some(first), Some((at, after))) = (self.waiting.front().copied(), next) {
            if after.number < first.number {
                earliest = earliest.max(at);
                next = known.next();
                continue;
            }
            self.waiting.pop_front();
            let before = i64::try_from(after.sent.since(first.sent).as_nanos()).unwrap_or(0);
            let at = PeerTime::from_nanos(at.as_nanos().saturating_sub(before)).max(earliest.min(at));
            let ecn = first.arrived.and_then(|arrived| arrived.ecn);
            arrivals.push((at, PacketReport { arrived: Some(PacketArrival { at: Some(at), ecn }), ..first }));
            if let (None, Err(place)) = (first.arrived, self.played.binary_search(&first.number)) {
                // Room for all of them is made once: a report then takes no new memory.
                self.played.reserve_exact((2 * MOST_UNKNOWN).saturating_sub(self.played.len()));
                self.played.insert(place, first.number);
            }
        }
        self.waiting.drain(..self.waiting.len().saturating_sub(MOST_UNKNOWN));
        self.played.drain(..self.played.len().saturating_sub(MOST_UNKNOWN));
    }

    /// Whether a packet of the media is left out in place of one that is missing.
    fn owes(&mut self) -> bool {
        let owes = self.owed > 0;
        self.owed -= usize::from(owes);
        owes
    }
}

/// What a half that stands in for a receiver has reported.
struct Said {
    body: Option<Body>,
    /// The delay of the sender report that it answers.
    answers: Option<OneWay>,
    /// What the report block beside it would tell.
    reception: Reception,
}

/// A packet's delay on the two clocks, where its arrival is told.
fn one_way(packet: &PacketReport) -> Option<OneWay> {
    packet.arrived?.at.map(|at| OneWay::to_peer(packet.sent, at))
}

/// A receiver that reports single packets.
struct Receiver {
    shadow: Shadow,
    /// The least difference of the sender's clock to the receiver's in nanoseconds, of this span and the two before;
    /// and when this one began.
    offsets: ([Option<i64>; 3], Time),
    /// Sender reports that no later packet has overtaken yet: when each left, and what it announced.
    under_way: VecDeque<(Time, Option<Body>)>,
    /// The delay of the last one that has come, on both clocks.
    answers: Option<OneWay>,
    /// When its half reported last.
    said_at: Time,
}

impl Receiver {
    fn new(half: Box<dyn ReceiverHalf>, now: Time) -> Self {
        let shadow = Shadow::new(half);
        Self { shadow, offsets: ([None; 3], now), under_way: VecDeque::new(), answers: None, said_at: now }
    }

    /// A sender report has left.
    fn announce(&mut self, now: Time, body: Option<Body>) {
        if self.under_way.len() == UNDER_WAY {
            self.under_way.pop_front();
        }
        self.under_way.push_back((now, body));
    }

    /// Sender reports that left before this packet have come before it.
    fn hear(&mut self, at: Time, packet: &PacketReport) {
        while let Some((_, body)) = self.under_way.pop_front_if(|(left, _)| *left <= packet.sent) {
            self.shadow.half.on_sender_report(at);
            if let Some(body) = &body {
                self.shadow.half.on_announce(&Announcement { at, body });
            }
            self.answers = one_way(packet);
        }
    }

    /// Learns how the clocks stand from the newest arrival of a report.
    fn learn(&mut self, now: Time, newest: PeerTime) {
        let offset = (now.as_nanos() as i64).saturating_sub(newest.as_nanos());
        let (offsets, since) = &mut self.offsets;
        let least = offsets.iter().flatten().min();
        if least.is_some_and(|least| offset.saturating_sub(*least) > OFFSETS.as_nanos() as i64) {
            // No way back takes as long: the receiver's clock has been set back.
            *offsets = [None; 3];
        }
        if now.since(*since) > OFFSETS {
            offsets.rotate_right(1);
            (offsets[0], *since) = (None, now);
        }
        offsets[0] = Some(offsets[0].map_or(offset, |least| least.min(offset)));
    }

    /// The time on the sender's clock; not before the time that this half has come to.
    fn local(&self, now: Time, at: PeerTime) -> Time {
        let least = self.offsets.0.iter().flatten().min().copied().unwrap_or_default();
        let nanos = at.as_nanos().saturating_add(least).max(0);
        Time::from_nanos(nanos.unsigned_abs()).max(self.shadow.until).min(now)
    }

    /// Calls the half's timer, as often as it wants until `now`.
    fn timers(&mut self, now: Time) {
        // A half that never moves on would keep time from going on.
        for _ in 0..1_000 {
            let Some(wake) = self.shadow.half.wake().filter(|wake| wake.at <= now) else { break };
            self.shadow.until = wake.at.max(self.shadow.until);
            self.shadow.half.on_timer(self.shadow.until);
        }
        self.shadow.until = now.max(self.shadow.until);
    }

    fn arrive(&mut self, at: Time, packet: &PacketReport, left: &Left, ecn: Ecn) {
        self.timers(at);
        self.hear(at, packet);
        self.shadow.count(left.seq, true);
        self.shadow.arrive(at, &Left { at: packet.sent, size: packet.size, ..*left }, ecn);
    }

    fn arrive_extra(&mut self, at: Time, packet: &PacketReport, ecn: Ecn) {
        self.timers(at);
        self.hear(at, packet);
        let sent = PeerTime::from_nanos(packet.sent.as_nanos() as i64);
        let (stream, size) = (packet.stream, packet.size);
        self.shadow.half.on_extra(&ExtraArrival { at, stream, size, sent, ecn, missing: 0 });
    }

    /// What the half says now, if it is time; `interval` is RTCP's.
    fn report(&mut self, now: Time, members: u32, interval: Span, regular: bool) -> Option<Said> {
        let due = match self.shadow.half.due() {
            Due::Rtcp => regular && now.since(self.said_at) >= interval,
            Due::At(wake) => wake.at <= now,
            Due::Hold => false,
        };
        if !due {
            return None;
        }
        let (Slot { expected, lost, .. }, reply) = self.shadow.report(now, members, interval);
        let body = match reply {
            Reply::Suppress => return None,
            Reply::Plain => None,
            Reply::Body(body) => Some(body),
        };
        self.said_at = now;
        // In 1/256, as a report block has it (RFC 3550, 6.4.1).
        let share = (lost.max(0) as f64 / expected.max(1) as f64).min(1.0);
        let fraction = (share * 256.0).floor().min(255.0) / 256.0;
        let (highest, jitter) = (self.shadow.highest(), Span::ZERO);
        Some(Said { body, answers: self.answers, reception: Reception { expected, lost, fraction, highest, jitter } })
    }
}

impl Replay {
    fn replay(&mut self, report: &Report<'_>) {
        let Self { half, receivers, make, setup, least, left, arrivals, said, unknown, heard, gap } = self;
        if receivers.len() >= SHADOWS && !receivers.contains_key(&report.from) {
            return;
        }
        let now = report.at;
        // No half is to take the time between two reports for silence, however short the round trip is.
        let since = heard.replace(now).map_or(Span::ZERO, |heard| now.since(heard));
        *gap = since.max(gap.scale(0.875)).min(RARE);
        half.on_feedback_interval(*gap);
        let interval = interval(setup, report.members).max(*least);
        let receiver = receivers.entry(report.from).or_insert_with(|| {
            let setup = Setup { id: report.from, ..setup.clone() };
            Receiver::new(make.receiver(&setup), now)
        });
        let windowed = half.decision().window.is_some();
        unknown.learn(report.packets);
        // What was played back before has arrived already.
        let arrived = |packet: &PacketReport| {
            let at = packet.arrived?.at?;
            unknown.played.binary_search(&packet.number).is_err().then_some((at, *packet))
        };
        arrivals.clear();
        arrivals.extend(report.packets.iter().filter_map(arrived));
        unknown.play(report.packets, arrivals);
        arrivals.sort_unstable_by_key(|(at, packet)| (at.as_nanos(), packet.number));
        if let Some((newest, _)) = arrivals.last() {
            receiver.learn(now, *newest);
        }
        for (n, (at, packet)) in arrivals.iter().enumerate() {
            let (at, ecn) = (receiver.local(now, *at), packet.arrived.and_then(|a| a.ecn).unwrap_or_default());
            if packet.stream != Stream::Media {
                receiver.arrive_extra(at, packet, ecn);
            } else if unknown.owes() {
                continue;
            } else if let Some(left) = left.by_number(packet.number) {
                receiver.arrive(at, packet, left, ecn);
            }
            // A half that is due with each packet, and whose sender has a window, acknowledges them one by one. Any
            // other reports once the report is here: what it says of the time for which it held a packet is then right,
            // and with it the round trip.
            if windowed && n + 1 < arrivals.len() && receiver.shadow.news() <= 1 {
                said.extend(receiver.report(at, report.members, interval, false));
            }
        }
        receiver.timers(now);
        said.extend(receiver.report(now, report.members, interval, true));
        let newest = report.packets.iter().rev().find_map(one_way);
        let rtt = |answers: Option<OneWay>| {
            let since = answers.zip(newest).map_or(Offset::ZERO, |(answers, newest)| answers.variation_since(newest));
            report.rtt.map(|rtt| rtt.moved(since))
        };
        if said.is_empty() {
            half.on_report(&Report { rtt: rtt(receiver.answers), packets: &[], ..*report });
        }
        for Said { body, answers, reception } in said.drain(..) {
            // A report block that has come is the receiver's own count.
            let reception = report.reception.or(Some(reception));
            half.on_report(&Report { body: body.as_ref(), rtt: rtt(answers), reception, packets: &[], ..*report });
        }
    }
}

impl SenderHalf for Replay {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.left.sent(sent);
        self.half.on_sent(sent);
    }

    fn on_unknown(&mut self, packets: &[PacketReport]) {
        self.unknown.waiting.extend(packets);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if report.packets.is_empty() { self.half.on_report(report) } else { self.replay(report) }
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        self.receivers.remove(&receiver);
        self.half.on_leave(at, receiver, how);
    }

    fn decision(&self) -> Decision {
        self.half.decision()
    }

    fn notice(&mut self, packet: &Departing) -> Notice {
        let notice = self.half.notice(packet);
        self.left.noticed(packet, notice);
        notice
    }

    fn announce(&mut self, now: Time) -> Option<Body> {
        let body = self.half.announce(now);
        for receiver in self.receivers.values_mut() {
            receiver.announce(now, body.clone());
        }
        body
    }
}
