//! Runs the receiver part of a controller ([`ReceiverHalf`]) at the sender, on the arrivals that per-packet feedback
//! reports.
//!
//! Arrival times are converted to the sender's clock by [`ClockOffset`]. The conversion adds a constant delay.
//!
//! The time of a receiver part advances only when feedback arrives. If no feedback arrives, the receiver part sends no
//! report. The controller thus detects that the receiver is silent.
//!
//! The receiver part receives a sender report together with the next packet. Its next report then has the round-trip
//! time of this packet (RFC 3550, section 6.4.1).

use crate::clock_offset::ClockOffset;
use crate::shadow::{Departures, SHADOWS, SentMedia, Shadow};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use steadycast_control::registry::{Factory, FeedbackTiming, Terms};
use steadycast_control::{
    Announcement, Arrival, Body, Decision, Departing, Due, ExtraArrival, FeedbackInterval, Leave, Notice,
    PacketArrival, PacketReport, ReceiverHalf, ReceiverId, Reception, Reply, Report, SenderHalf, Sent, Setup, Slot,
    Stream, around,
};
use steadycast_units::{Bytes, Ecn, Offset, OneWay, PeerTime, Span, Time};

/// A factory for a controller whose receiver part runs at the sender, because the receivers send per-packet feedback.
pub struct Replayed {
    own: Arc<dyn Factory>,
    least: Span,
    /// Whether the receivers themselves run the controller's receiver part.
    own_receivers: bool,
}

impl Replayed {
    /// Wraps a controller that does not read per-packet feedback. Its receiver part may set report times. Otherwise,
    /// the receiver part reports as often as RTCP's share of the bandwidth allows (RFC 3550, section 6.3.1), but at
    /// most once per `least`.
    pub fn around(own: Arc<dyn Factory>, least: Span) -> Arc<dyn Factory> {
        Arc::new(Self { own, least, own_receivers: false })
    }

    /// Wraps a controller as [`Replayed::around`] does, but the receivers run the controller's receiver part
    /// themselves. The sender runs a receiver part only for receivers that send standard reports.
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
            left: Departures::new(MOST_SENT),
            arrivals: Vec::new(),
            reports: Vec::new(),
            unknown: UnknownFates::default(),
            gap: FeedbackInterval::default(),
        })
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        if self.own_receivers { self.own.receiver(setup) } else { Box::new(PlainReceiver) }
    }
    fn terms(&self) -> Terms {
        let own = self.own.terms();
        let repeats = self.own_receivers && own.repeats;
        Terms { feedback: FeedbackTiming::Clocked, repeats, needs: &[], ..own }
    }
}

/// A receiver part that does nothing, because the session writes the feedback.
struct PlainReceiver;

impl ReceiverHalf for PlainReceiver {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}

    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Plain
    }
}

/// Maximum number of sent media packets that are remembered. A sender's history has the same number.
const MOST_SENT: usize = 1 << 14;
/// Maximum number of packets whose fate is unknown.
const MOST_UNKNOWN: usize = MOST_SENT / 2;
/// The mean size in bytes of an RTCP compound packet that has a report block and feedback, including IP and UDP
/// headers.
const COMPOUND: Bytes = Bytes::new(120);

/// Returns the interval between two reports (RFC 3550, section 6.3.1), without applying a minimum.
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
    /// A buffer that is reused to avoid allocations.
    arrivals: Vec<(PeerTime, PacketReport)>,
    /// A buffer that is reused to avoid allocations.
    reports: Vec<ReplayedReport>,
    unknown: UnknownFates,
    gap: FeedbackInterval,
}

/// Maximum number of sender reports that are in flight.
const MOST_SENDER_REPORTS: usize = 16;

/// The packets whose fate is unknown.
///
/// A receiver part would count a gap as a loss. These packets are therefore replayed as arrived, together with the next
/// packet that has arrived. If feedback later reports a replayed packet as missing, the receiver part has counted one
/// loss too few. The next media packet is then not replayed, so that the receiver part counts this packet as lost.
#[derive(Default)]
struct UnknownFates {
    /// The packets that are replayed once a later packet is known to have arrived.
    waiting: VecDeque<PacketReport>,
    /// The numbers of the replayed packets, in ascending order.
    played: VecDeque<u64>,
    /// The number of losses that are still to be replayed.
    pending_losses: usize,
}

impl UnknownFates {
    /// Counts the replayed packets that the report lists as missing.
    fn learn(&mut self, packets: &[PacketReport]) {
        for packet in packets {
            if let Ok(place) = self.played.binary_search(&packet.number)
                && packet.arrived.is_none()
            {
                self.played.remove(place);
                self.pending_losses += usize::from(packet.stream == Stream::Media);
            }
        }
    }

    /// Adds the waiting packets to `arrivals`, each with an estimated arrival time. The estimate is based on a packet
    /// that was sent later. If `report` contains no arrival time of such a packet, the waiting packet stays.
    fn play(&mut self, report: &[PacketReport], arrivals: &mut Vec<(PeerTime, PacketReport)>) {
        let timeless = |packet: &&PacketReport| packet.arrived.is_some_and(|arrived| arrived.at.is_none());
        let played = &self.played;
        let unplayed = |packet: &&PacketReport| played.binary_search(&packet.number).is_err();
        self.waiting.extend(report.iter().filter(timeless).filter(unplayed));
        self.waiting.make_contiguous().sort_unstable_by_key(|packet| packet.number);
        let mut known = report.iter().filter_map(|packet| Some((packet.arrived?.at?, packet)));
        let mut next = known.next();
        // The latest arrival of a packet that was sent before `first`. A replayed packet must not arrive before this
        // time, because the receiver part would otherwise count a gap.
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
                // Reserve the memory once, so that later reports allocate none.
                self.played.reserve_exact((2 * MOST_UNKNOWN).saturating_sub(self.played.len()));
                self.played.insert(place, first.number);
            }
        }
        // Bound the memory, because fates may stay unknown forever.
        self.waiting.drain(..self.waiting.len().saturating_sub(MOST_UNKNOWN));
        self.played.drain(..self.played.len().saturating_sub(MOST_UNKNOWN));
    }

    /// Returns whether the next media packet has to be left out, to replay a loss.
    fn takes_loss(&mut self) -> bool {
        let takes_loss = self.pending_losses > 0;
        self.pending_losses -= usize::from(takes_loss);
        takes_loss
    }
}

/// A report of a receiver part that runs at the sender.
struct ReplayedReport {
    body: Option<Body>,
    /// The one-way delay of the sender report that this report answers.
    answers: Option<OneWay>,
    /// The content of the report block that the receiver would send.
    reception: Reception,
}

/// Returns the one-way delay of a packet. Returns `None` if its arrival time is unknown.
fn one_way(packet: &PacketReport) -> Option<OneWay> {
    packet.arrived?.at.map(|at| OneWay::to_peer(packet.sent, at))
}

struct Receiver {
    shadow: Shadow,
    offset: ClockOffset,
    /// The sender reports that have not arrived yet. Each has a send time and an announcement.
    sender_reports: VecDeque<(Time, Option<Body>)>,
    /// The one-way delay of the last sender report that arrived.
    answers: Option<OneWay>,
    last_report: Time,
}

impl Receiver {
    fn new(half: Box<dyn ReceiverHalf>, now: Time) -> Self {
        let shadow = Shadow::new(half);
        let (offset, sender_reports) = (ClockOffset::default(), VecDeque::new());
        Self { shadow, offset, sender_reports, answers: None, last_report: now }
    }

    fn announce(&mut self, now: Time, body: Option<Body>) {
        // Bound the memory, because a receiver may never report arrivals.
        if self.sender_reports.len() == MOST_SENDER_REPORTS {
            self.sender_reports.pop_front();
        }
        self.sender_reports.push_back((now, body));
    }

    fn deliver_sender_reports(&mut self, at: Time, packet: &PacketReport) {
        while self.sender_reports.front().is_some_and(|(left, _)| *left <= packet.sent) {
            let Some((_, body)) = self.sender_reports.pop_front() else { break };
            self.shadow.half.on_sender_report(at);
            if let Some(body) = &body {
                self.shadow.half.on_announce(&Announcement { at, body });
            }
            self.answers = one_way(packet);
        }
    }

    /// Converts an arrival time to the sender's clock. The result is not before the receiver part's current time, and
    /// not after `now`.
    fn local(&self, now: Time, at: PeerTime) -> Time {
        self.offset.local(at).max(self.shadow.until).min(now)
    }

    fn timers(&mut self, now: Time) {
        // Bound the loop, because a timer of the receiver part may never advance.
        for _ in 0..1_000 {
            let Some(wake) = self.shadow.half.wake().filter(|wake| wake.at <= now) else { break };
            self.shadow.until = wake.at.max(self.shadow.until);
            self.shadow.half.on_timer(self.shadow.until);
        }
        self.shadow.until = now.max(self.shadow.until);
    }

    fn arrive(&mut self, at: Time, packet: &PacketReport, left: &SentMedia, ecn: Ecn) {
        self.timers(at);
        self.deliver_sender_reports(at, packet);
        self.shadow.count(left.seq, true);
        self.shadow.arrive(at, &SentMedia { at: packet.sent, size: packet.size, ..*left }, ecn);
    }

    fn arrive_extra(&mut self, at: Time, packet: &PacketReport, ecn: Ecn) {
        self.timers(at);
        self.deliver_sender_reports(at, packet);
        let sent = PeerTime::from_nanos(packet.sent.as_nanos() as i64);
        let (stream, size) = (packet.stream, packet.size);
        self.shadow.half.on_extra(&ExtraArrival { at, stream, size, sent, ecn, missing: 0 });
    }

    /// Returns the report of the receiver part if it is due. `interval` is the interval of RTCP reports. `regular`
    /// states whether a report may be sent at this interval.
    fn report(&mut self, now: Time, members: u32, interval: Span, regular: bool) -> Option<ReplayedReport> {
        let due = match self.shadow.half.due() {
            Due::Rtcp => regular && now.since(self.last_report) >= interval,
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
        self.last_report = now;
        // Round the fraction down to steps of 1/256, as in a report block (RFC 3550, section 6.4.1).
        let share = (lost.max(0) as f64 / expected.max(1) as f64).min(1.0);
        let fraction = (share * 256.0).floor().min(255.0) / 256.0;
        let (highest, jitter) = (self.shadow.highest(), Span::ZERO);
        Some(ReplayedReport {
            body,
            answers: self.answers,
            reception: Reception { expected, lost, fraction, highest, jitter },
        })
    }
}

impl Replay {
    fn replay(&mut self, report: &Report<'_>) {
        let Self { half, receivers, make, setup, least, left, arrivals, reports, unknown, gap } = self;
        // Bound the number of receivers, because the senders of reports are not authenticated.
        if receivers.len() >= SHADOWS && !receivers.contains_key(&report.from) {
            return;
        }
        let now = report.at;
        gap.on_feedback(now);
        half.on_feedback_interval(gap.get());
        let interval = interval(setup, report.members).max(*least);
        let receiver = receivers.entry(report.from).or_insert_with(|| {
            let setup = Setup { id: report.from, ..setup.clone() };
            Receiver::new(make.receiver(&setup), now)
        });
        let windowed = half.decision().window.is_some();
        unknown.learn(report.packets);
        // Skip packets that were replayed, because they already count as arrived.
        let arrived = |packet: &PacketReport| {
            let at = packet.arrived?.at?;
            unknown.played.binary_search(&packet.number).is_err().then_some((at, *packet))
        };
        arrivals.clear();
        arrivals.extend(report.packets.iter().filter_map(arrived));
        unknown.play(report.packets, arrivals);
        // Sort by arrival, because receiver parts expect this order.
        arrivals.sort_unstable_by_key(|(at, packet)| (at.as_nanos(), packet.number));
        if let Some((newest, _)) = arrivals.last() {
            receiver.offset.learn(now, *newest);
        }
        for (n, (at, packet)) in arrivals.iter().enumerate() {
            let (at, ecn) = (receiver.local(now, *at), packet.arrived.and_then(|a| a.ecn).unwrap_or_default());
            // Packets of other streams count only in the receive rate.
            if packet.stream != Stream::Media {
                receiver.arrive_extra(at, packet, ecn);
            } else if unknown.takes_loss() {
                continue;
            } else if let Some(left) = left.by_number(packet.number) {
                receiver.arrive(at, packet, left, ecn);
            }
            // A controller with a window needs the acknowledgement of each packet. So a receiver part that reports
            // after each packet reports here. All other receiver parts report after this loop, because the RTT belongs
            // to the newest packet of the report.
            if windowed && n + 1 < arrivals.len() && receiver.shadow.news() <= 1 {
                reports.extend(receiver.report(at, report.members, interval, false));
            }
        }
        receiver.timers(now);
        reports.extend(receiver.report(now, report.members, interval, true));
        let newest = report.packets.iter().rev().find_map(one_way);
        let rtt = |answers: Option<OneWay>| {
            let since = answers.zip(newest).map_or(Offset::ZERO, |(answers, newest)| answers.variation_since(newest));
            report.rtt.map(|rtt| rtt.moved(since))
        };
        if reports.is_empty() {
            half.on_report(&Report { rtt: rtt(receiver.answers), packets: &[], ..*report });
        }
        for ReplayedReport { body, answers, reception } in reports.drain(..) {
            // Prefer the report block that the receiver has sent, because it contains the receiver's own count.
            let reception = report.reception.or(Some(reception));
            half.on_report(&Report { body: body.as_ref(), rtt: rtt(answers), reception, packets: &[], ..*report });
        }
    }
}

impl SenderHalf for Replay {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.gap.on_sent(sent.at);
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
