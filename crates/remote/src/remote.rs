use crate::{History, Joined, Replayed};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Given, ParamError, check_needs};
use steadycast_control::{
    Check, Decision, Departing, Due, ExtraSent, FrameEdge, MediaQueue, Mode, Need, PacketArrival, PacketReport, Probe,
    ReceiverId, Report, SenderHalf, Sent, Setup, Stream, Wake,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};

/// What a controller is to keep to, and what the product offers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The rate never goes below this.
    pub floor: Rate,
    /// The rate never goes above this.
    pub cap: Rate,
    /// Nominal size of a full packet, IP and UDP headers included.
    pub packet: Bytes,
    /// The ECN field with which packets are sent.
    pub ecn: Ecn,
    /// What the product offers beside reports of single packets: [`Need::Probes`] where it sends what [`Remote::probe`]
    /// asks for.
    pub offers: Vec<Need>,
    /// The seed of the random numbers that the halves draw.
    pub seed: Seed,
    /// How the product learns of packets.
    pub feedback: Feedback,
}

/// How a product learns of packets, where that keeps a controller from its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feedback {
    /// [`Remote::sent`] is called with the feedback about a packet, and not when it leaves. What is in flight is then
    /// not known: a controller with a window ([`Decision::window`]), which is to be read after each packet, is refused.
    pub late: bool,
    /// The longest time between two feedbacks; zero where it is not known. A controller whose window of packets is
    /// clocked by acknowledgements is refused above 100 ms.
    pub interval: Span,
}

impl Bounds {
    /// Bounds from `floor` to `cap`, with packets of 1,200 bytes and without ECN.
    pub fn new(floor: Rate, cap: Rate) -> Self {
        Self {
            floor,
            cap,
            packet: Bytes::new(1_200),
            ecn: Ecn::NotEct,
            offers: Vec::new(),
            seed: Seed(0),
            feedback: Feedback::default(),
        }
    }
}

/// A packet of the media that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its size on the wire, IP and UDP headers included.
    pub size: Bytes,
    /// Where it stands in its frame.
    pub edge: FrameEdge,
    /// Nothing waits behind it: the encoder, not the controller, limits the rate.
    pub data_limited: bool,
}

/// What feedback tells of one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketResult {
    /// The number that [`Remote::sent`] or [`Remote::sent_extra`] gave to the packet.
    pub number: u64,
    /// How it arrived; `None` when it had not when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

impl PacketResult {
    /// A packet that arrived at the time `at` of the receiver's clock; the feedback does not tell its ECN field.
    pub const fn at(number: u64, at: PeerTime) -> Self {
        Self { number, arrived: Some(PacketArrival { at: Some(at), ecn: None }) }
    }
    /// A packet that had not arrived when the feedback was written.
    pub const fn missing(number: u64) -> Self {
        Self { number, arrived: None }
    }
}

/// The receiver half's id.
const RECEIVER: ReceiverId = ReceiverId(2);
/// The sender half's id.
const SENDER: ReceiverId = ReceiverId(1);
/// The interval at which each half tells the other what RTCP's reports would, unless it has times of its own: RFC
/// 4585's default.
const TOLD: Span = Span::secs(1);
/// Times beyond a century, of either clock, can't be true.
const CENTURY: Span = Span::secs(100 * 365 * 24 * 3_600);

/// Packets that feedback does not cover and that are kept for the half, at the most. Older ones it never learns of.
const MOST_UNCOVERED: usize = 1_024;

/// Both halves of a controller at the sender.
///
/// A product calls [`Remote::sent`] for each packet that leaves and [`Remote::feedback`] for each report that comes; it
/// reads [`Remote::decision`] after each call, and calls [`Remote::timer`] at the time that [`Remote::wake`] says.
/// A packet is lost when feedback says so ([`PacketResult::missing`]). The fate of a packet of which feedback says
/// nothing, though it tells of later ones, is unknown: it is no loss, and no longer in flight.
///
/// Times are of one clock of the product's own, from any start on. A time before the last one counts as the last one,
/// but for when a packet left.
pub struct Remote {
    half: Box<dyn SenderHalf>,
    history: History,
    joined: Joined,
    now: Time,
    /// Packets whose fates were found to be unknown; kept, so that this takes no new memory.
    unknown: Vec<PacketReport>,
    /// Packets that feedback does not cover and the half has not learned of: number, departure, stream and size.
    uncovered: VecDeque<(u64, Time, Stream, Bytes)>,
    /// Packets that have left, and those of the media.
    numbers: u64,
    media: u64,
    told: Time,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sent, decision) = (self.now, self.numbers, self.decision());
        f.debug_struct("Remote").field("now", &now).field("sent", &sent).field("decision", &decision).finish()
    }
}

impl Remote {
    /// The controller called `controller` in the registry, with `params` over its defaults.
    ///
    /// # Errors
    /// An unknown name or parameter, a value out of range, a need that `bounds` does not offer, a floor above the cap,
    /// or a controller that can't work with such feedback.
    ///
    /// ```
    /// use steadycast_remote::{Bounds, Rate, Remote};
    ///
    /// let bounds = Bounds::new(Rate::kbps(100), Rate::mbps(4));
    /// let error = Remote::new("tfcr", &[], &bounds).unwrap_err();
    /// assert_eq!(error.to_string(), "tfcr: no such controller; did you mean \"tfrc\"?");
    /// ```
    pub fn new(controller: &str, params: &[(String, Given)], bounds: &Bounds) -> Result<Self, ParamError> {
        let chosen = Chosen::new(controller, Mode::Repaired, params)?;
        let offered: Vec<_> = [Need::PacketReports].into_iter().chain(bounds.offers.iter().copied()).collect();
        check_needs(controller, chosen.terms().needs, &offered)?;
        let slowest = chosen.terms().slowest_feedback;
        let remote = Self::around(Arc::new(chosen), bounds)?;
        let window = remote.decision().window;
        let refuse =
            |problem: String, remedy: &str| Err(ParamError { name: controller.into(), problem, remedy: remedy.into() });
        if bounds.feedback.late && window.is_some() {
            return refuse(
                "its decision depends on each packet that leaves, and packets are told of with their feedback alone"
                    .into(),
                "tell of each packet when it leaves, or choose a controller without a window, for example steady",
            );
        }
        if bounds.feedback.interval > slowest {
            return refuse(
                format!("it needs feedback every {slowest}, and feedback comes every {}", bounds.feedback.interval),
                "have feedback come more often, or choose another controller, for example steady",
            );
        }
        Ok(remote)
    }

    /// A controller of the product's own.
    ///
    /// # Errors
    /// A floor above the cap, or packets without a size.
    pub fn around(controller: Arc<dyn Factory>, bounds: &Bounds) -> Result<Self, ParamError> {
        let wrong = |name: &str, problem: String, remedy: &str| {
            Err(ParamError { name: name.into(), problem, remedy: remedy.into() })
        };
        let Bounds { floor, cap, packet, .. } = *bounds;
        if floor > cap || cap == Rate::ZERO {
            return wrong("floor", format!("{floor} is above the cap, {cap}"), "give a floor up to the cap");
        }
        if packet == Bytes::ZERO {
            return wrong(
                "packet",
                "it has no size".into(),
                "give the size of a full IP packet, for example 1200 bytes",
            );
        }
        let setup = Setup {
            packet,
            mode: Mode::Repaired,
            floor,
            cap,
            pictures: None,
            session_bandwidth: cap,
            group: false,
            id: SENDER,
            ecn: bounds.ecn,
            chance: bounds.seed.part("remote"),
        }
        .alive();
        let reads_packets = controller.terms().needs.contains(&Need::PacketReports);
        let factory = if reads_packets { controller } else { Replayed::around(controller, TOLD) };
        Ok(Self {
            half: factory.sender(&setup),
            history: History::default(),
            joined: Joined::default(),
            unknown: Vec::new(),
            uncovered: VecDeque::new(),
            now: Time::ZERO,
            numbers: 0,
            media: 0,
            told: Time::ZERO,
        })
    }

    /// The product's time goes on, and never back.
    fn tell(&mut self, at: Time) -> Time {
        if self.numbers == 0 && self.now == Time::ZERO {
            self.told = at;
        }
        self.now = at.min(Time::ZERO + CENTURY).max(self.now);
        self.now
    }

    /// A packet of the media leaves, or has left. Returns its number: packets of all streams are counted together, from
    /// 0 on.
    ///
    /// A product that learns when a packet left with its feedback alone tells of it right before [`Remote::feedback`]:
    /// here `at` may lie before the last call, and delays and rates are counted from it.
    pub fn sent(&mut self, at: Time, packet: &Packet) -> u64 {
        let Packet { size, edge, data_limited } = *packet;
        let (number, at, left) = self.depart(at, Stream::Media, size);
        self.tell_uncovered();
        let seq = self.media;
        // What would ride in a header extension stays here, beside the packet.
        self.half.notice(&Departing { at: left, seq, size, edge });
        self.half.on_sent(&Sent { at, left, number, seq, size, data_limited });
        self.media += 1;
        number
    }

    /// As [`Remote::sent`], a packet of another stream than the media: a retransmission, parity or padding.
    pub fn sent_extra(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        if stream == Stream::Media {
            let edge = FrameEdge::default();
            return self.sent(at, &Packet { size, edge, data_limited: false });
        }
        let (number, at, left) = self.depart(at, stream, size);
        self.tell_uncovered();
        self.half.on_extra_sent(&ExtraSent { at, left, number, stream, size });
        number
    }

    /// As [`Remote::sent_extra`], a packet that feedback does not cover: a retransmission that receivers leave out of
    /// transport-wide feedback, or a QUIC packet that is never acknowledged. It is part of the rate; no feedback is
    /// awaited for it, and its silence is no loss. Media that feedback does not cover count as padding.
    pub fn sent_uncovered(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        let stream = if stream == Stream::Media { Stream::Padding } else { stream };
        let (number, _, left) = self.depart(at, stream, size);
        if self.uncovered.len() == MOST_UNCOVERED {
            self.uncovered.pop_front();
        }
        self.uncovered.push_back((number, left, stream, size));
        number
    }

    /// No feedback will tell of the packet called `number`: it is no longer in flight, and it is not lost. A fate that
    /// is told all the same counts. For packets of which feedback has told later ones nothing need be forgotten.
    pub fn forget(&mut self, number: u64) {
        // Of one that feedback does not cover the half learns with the next packet.
        if self.uncovered.iter().all(|(uncovered, ..)| *uncovered != number) {
            self.history.settle(number, &mut self.unknown);
            self.tell_unknown();
        }
    }

    /// Counts a packet that leaves: its number, now, and when it left.
    fn depart(&mut self, at: Time, stream: Stream, size: Bytes) -> (u64, Time, Time) {
        let (number, now) = (self.numbers, self.tell(at));
        let seq = if stream == Stream::Media { self.media } else { number };
        let left = at.min(now);
        self.history.on_sent(number, left, size, stream, seq as u16);
        self.numbers += 1;
        (number, now, left)
    }

    /// The half learns of packets that feedback does not cover right before a packet that it covers, or feedback: a
    /// half that waits for feedback from when a packet leaves would else wait for nothing.
    fn tell_uncovered(&mut self) {
        let at = self.now;
        for (number, left, stream, size) in self.uncovered.drain(..) {
            self.half.on_extra_sent(&ExtraSent { at, left, number, stream, size });
            self.history.settle(number, &mut self.unknown);
        }
        self.tell_unknown();
    }

    fn tell_unknown(&mut self) {
        if !self.unknown.is_empty() {
            self.half.on_unknown(&self.unknown);
            self.unknown.clear();
        }
    }

    /// The newest packet whose number ends in these 16 bits, for feedback that names packets so; `None` when none is
    /// remembered.
    pub fn number(&self, low: u16) -> Option<u64> {
        self.history.by_low_bits(low)
    }

    /// The pacer's queue has changed, for controllers that look at it.
    pub fn queued(&mut self, queue: &MediaQueue) {
        let at = self.tell(queue.at);
        self.half.on_queue(&MediaQueue { at, ..*queue });
    }

    /// Feedback has come. Its packets may be in any order, be told again, and be of none that was sent: what can't be
    /// true is ignored. Each packet that is missing has to be among them, as [`PacketResult::missing`].
    ///
    /// Where all packets of a feedback arrived at one time, that is when it was written or came: of these the newest
    /// alone has been timed (RFC 9002, section 5.1), and the others count as having taken as long.
    pub fn feedback(&mut self, at: Time, fates: impl IntoIterator<Item = PacketResult>) {
        let at = self.tell(at);
        self.tell_uncovered();
        let Self { half, history, joined, unknown, .. } = self;
        joined.packets.clear();
        for PacketResult { number, arrived } in fates {
            let known = |at: &PeerTime| at.as_nanos().unsigned_abs() <= CENTURY.as_nanos();
            let arrived = arrived.map(|arrived| PacketArrival { at: arrived.at.filter(known), ..arrived });
            history.join(number, arrived, joined);
        }
        joined.sort();
        joined.spread();
        joined.rtt = None;
        // Feedback by transport-wide numbers does not tell when it was written: the newest arrival stands for it.
        let newest = joined.packets.iter().filter_map(|packet| packet.arrived?.at).max();
        if let Some(newest) = newest {
            joined.measure(at, newest);
        }
        if joined.packets.is_empty() {
            return;
        }
        history.overtaken(joined, unknown);
        if !unknown.is_empty() {
            half.on_unknown(unknown);
            unknown.clear();
        }
        let (rtt, packets) = (joined.rtt, &joined.packets[..]);
        half.on_report(&Report { at, from: RECEIVER, rtt, reception: None, body: None, packets, members: 2 });
    }

    /// What the controller wants, and why.
    pub fn decision(&self) -> Decision {
        self.half.decision()
    }

    /// The probe that it wants sent: a burst at a rate of its own, once for each `id`, from what waits and then from
    /// padding.
    pub fn probe(&self) -> Option<Probe> {
        self.half.probe()
    }

    /// The promises that the controller has kept an eye on.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// When [`Remote::timer`] is to be called next.
    pub fn wake(&self) -> Option<Wake> {
        let report = match self.half.due() {
            Due::Rtcp => Some(Wake { at: self.told + TOLD, why: "sender report" }),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        // Nothing is reported, and nobody is gone, before the first packet.
        self.half.wake().into_iter().chain(report.filter(|_| self.media > 0)).min_by_key(|wake| wake.at)
    }

    /// Time has come to `now`. Calls before the time of [`Remote::wake`] do nothing.
    pub fn timer(&mut self, now: Time) {
        let now = self.tell(now);
        if self.half.wake().is_some_and(|wake| wake.at <= now) {
            self.half.on_timer(now);
        }
        let due = match self.half.due() {
            Due::Rtcp => self.told + TOLD <= now,
            Due::At(wake) => wake.at <= now,
            Due::Hold => false,
        };
        if due && self.media > 0 {
            // What it says to the group the halves that stand in for receivers have heard by this.
            self.half.announce(now);
            self.told = now;
        }
    }
}
