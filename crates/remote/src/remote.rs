use crate::clock_offset::ClockOffset;
use crate::{History, Joined, Replayed};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Given, ParamError, ParamErrorKind, check_needs};
use steadycast_control::{
    Check, Decision, Departing, Due, ExtraSent, FrameEdge, MediaQueue, Mode, Need, PacketArrival, PacketReport, Probe,
    ReceiverId, Report, SenderHalf, Sent, Setup, Stream, Wake,
};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};

/// The limits of a controller, and the features that the product offers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The lower limit of the rate.
    pub floor: Rate,
    /// The upper limit of the rate.
    pub cap: Rate,
    /// The nominal size of a full packet, including IP and UDP headers.
    pub packet: Bytes,
    /// The ECN field with which packets are sent.
    pub ecn: Ecn,
    /// The features that the product offers in addition to per-packet feedback: [`Need::Probes`] if it sends the probes
    /// of [`Remote::probe`].
    pub offers: Vec<Need>,
    /// The seed of the halves' random numbers.
    pub seed: Seed,
    /// The properties of the product's feedback.
    pub feedback: Feedback,
}

/// The properties of a product's feedback that exclude certain controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feedback {
    /// Whether the product calls [`Remote::sent`] for a packet only when feedback about it arrives, instead of when it
    /// is sent. The bytes in flight are then unknown. A controller with a window ([`Decision::window`]), which has to
    /// be read after each packet, is rejected.
    pub late: bool,
    /// Whether all packets of a feedback message have one arrival time: the time at which the message was written or
    /// arrived, as with QUIC's acknowledgements. A controller that measures the time between two arrivals is rejected.
    pub acknowledged: bool,
    /// The longest interval between two feedback messages; zero if it is unknown. Above 100 ms a controller whose
    /// packet window is clocked by acknowledgements is rejected.
    pub interval: Span,
}

impl Bounds {
    /// Creates bounds from `floor` to `cap`, with packets of 1,200 bytes and without ECN.
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

/// A media packet that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The size on the wire, including IP and UDP headers.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
    /// Whether the queue is empty after this packet, so that the encoder limits the rate instead of the controller.
    pub data_limited: bool,
}

/// The feedback about one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketResult {
    /// The number that [`Remote::sent`] or [`Remote::sent_extra`] returned for the packet.
    pub number: u64,
    /// The arrival; `None` if the packet had not arrived when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

impl PacketResult {
    /// Creates the result of a packet that arrived at the time `at` of the receiver's clock, without an ECN field.
    pub const fn at(number: u64, at: PeerTime) -> Self {
        Self { number, arrived: Some(PacketArrival { at: Some(at), ecn: None }) }
    }
    /// Creates the result of a packet that had not arrived when the feedback was written.
    pub const fn missing(number: u64) -> Self {
        Self { number, arrived: None }
    }
}

/// The identifier of the receiver half.
const RECEIVER: ReceiverId = ReceiverId(2);
/// The identifier of the sender half.
const SENDER: ReceiverId = ReceiverId(1);
/// The interval of the reports that the receiver half sends to the sender half in place of RTCP reports, unless the
/// half sets its own report times. The value is the default of RFC 4585.
const REPORT_INTERVAL: Span = Span::secs(1);
/// The maximum valid time of either clock.
const CENTURY: Span = Span::secs(100 * 365 * 24 * 3_600);

/// The maximum number of buffered packets that feedback does not cover. If there are more, the oldest are dropped and
/// never passed to the half.
const MOST_UNCOVERED: usize = 1_024;

/// The minimum interval between assumed packets ([`Remote::assume_packet`]). It is used as well if the product's
/// feedback interval is unknown.
const ASSUMED_INTERVAL: Span = Span::millis(100);

/// Runs both halves of a controller at the sender.
///
/// A product calls [`Remote::sent`] for each packet that it sends and [`Remote::feedback`] for each report that
/// arrives. It reads [`Remote::decision`] after each call, and calls [`Remote::timer`] at the time of [`Remote::wake`].
/// A packet is lost if feedback reports it as missing ([`PacketResult::missing`]). If feedback covers later packets but
/// not this one, its fate is unknown: it is not lost, and no longer in flight.
///
/// All times are on one clock of the product, which may start at any value. A time that is earlier than that of the
/// previous call is replaced by the time of the previous call. Send times are exempt.
pub struct Remote {
    half: Box<dyn SenderHalf>,
    history: History,
    joined: Joined,
    now: Time,
    /// The packets whose fates were found to be unknown. The buffer is reused to avoid allocations.
    unknown: Vec<PacketReport>,
    /// The packets that feedback does not cover and that have not been passed to the half yet: number, send time,
    /// stream and size.
    uncovered: VecDeque<(u64, Time, Stream, Bytes)>,
    /// The number of packets sent, and of media packets among them.
    numbers: u64,
    media: u64,
    last_report: Time,
    /// The difference between the product's and the receiver's clock.
    offset: ClockOffset,
    /// The time of the last feedback about an arrival.
    last_feedback: Option<Time>,
    /// The interval of assumed packets, and the time of the next one; `None` if packets are recorded when they are
    /// sent.
    assumes: Option<(Span, Time)>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sent, decision) = (self.now, self.numbers, self.decision());
        f.debug_struct("Remote").field("now", &now).field("sent", &sent).field("decision", &decision).finish()
    }
}

impl Remote {
    /// Creates a controller from the registry, with `params` over its defaults.
    ///
    /// # Errors
    /// An unknown name or parameter, a value out of range, a need that `bounds` does not offer, a floor above the cap,
    /// or a controller that can't work with the feedback.
    ///
    /// ```
    /// use steadycast_remote::{Bounds, ParamErrorKind, Rate, Remote};
    ///
    /// let bounds = Bounds::new(Rate::kbps(100), Rate::mbps(4));
    /// let error = Remote::new("tfcr", &[], &bounds).unwrap_err();
    /// assert_eq!(error.kind, ParamErrorKind::UnknownController);
    /// assert_eq!(error.to_string(), "tfcr: no such controller; did you mean \"tfrc\"?");
    /// ```
    pub fn new(controller: &str, params: &[(String, Given)], bounds: &Bounds) -> Result<Self, ParamError> {
        let chosen = Chosen::new(controller, Mode::Repaired, params)?;
        let times = (!bounds.feedback.acknowledged).then_some(Need::ArrivalTimes);
        let own = [Need::PacketReports].into_iter().chain(times);
        let offered: Vec<_> = own.chain(bounds.offers.iter().copied()).collect();
        check_needs(controller, chosen.terms().needs, &offered)?;
        let slowest = chosen.terms().slowest_feedback;
        let remote = Self::around(Arc::new(chosen), bounds)?;
        let window = remote.decision().window;
        let refuse = |problem: String, remedy: &str| {
            Err(ParamError::new(ParamErrorKind::UnmetNeed, controller, problem, remedy))
        };
        // The bytes in flight are unknown if the product reports packets only together with their feedback, so a window
        // can't be applied.
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

    /// Creates an instance for a controller of the product itself.
    ///
    /// # Errors
    /// A floor above the cap, or packets without a size.
    pub fn around(controller: Arc<dyn Factory>, bounds: &Bounds) -> Result<Self, ParamError> {
        let wrong = |name: &str, problem: String, remedy: &str| {
            Err(ParamError::new(ParamErrorKind::InvalidValue, name, problem, remedy))
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
            probes: bounds.offers.contains(&Need::Probes),
            chance: bounds.seed.part("remote"),
        }
        .alive();
        // If a controller does not read per-packet feedback itself, its receiver half runs here, on the arrivals in the
        // feedback.
        let reads_packets = controller.terms().needs.contains(&Need::PacketReports);
        let factory = if reads_packets { controller } else { Replayed::around(controller, REPORT_INTERVAL) };
        Ok(Self {
            half: factory.sender(&setup),
            history: History::default(),
            joined: Joined::default(),
            unknown: Vec::new(),
            uncovered: VecDeque::new(),
            now: Time::ZERO,
            numbers: 0,
            media: 0,
            last_report: Time::ZERO,
            offset: ClockOffset::default(),
            last_feedback: None,
            assumes: bounds.feedback.late.then_some((bounds.feedback.interval.max(ASSUMED_INTERVAL), Time::ZERO)),
        })
    }

    /// Advances the product's time, which never decreases.
    fn advance(&mut self, at: Time) -> Time {
        if self.numbers == 0 && self.now == Time::ZERO {
            self.last_report = at;
        }
        // A wrong time that is far in the future must not block the controller for good.
        self.now = at.min(Time::ZERO + CENTURY).max(self.now);
        self.now
    }

    /// Records a media packet that is sent, or was sent. Returns its number; packets of all streams are numbered
    /// together, from 0.
    ///
    /// A product that learns a packet's send time only from its feedback ([`Feedback::late`]) calls this right before
    /// [`Remote::feedback`]. While no feedback arrives, the product is assumed to continue sending, so that the rate
    /// falls. `at` may be earlier than the time of the previous call. Delays and rates are computed from `at`.
    pub fn sent(&mut self, at: Time, packet: &Packet) -> u64 {
        let Packet { size, edge, data_limited } = *packet;
        let (number, at, left) = self.number_packet(at, Stream::Media, size);
        self.flush_uncovered();
        let seq = self.media;
        // Both halves run here. The header extension is therefore stored with the packet instead of being sent.
        self.half.notice(&Departing { at: left, seq, size, edge });
        self.half.on_sent(&Sent { at, left, number, seq, size, data_limited });
        self.media += 1;
        number
    }

    /// Does the same as [`Remote::sent`] for a packet of another stream: a retransmission, parity or padding.
    pub fn sent_extra(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        if stream == Stream::Media {
            let edge = FrameEdge::default();
            return self.sent(at, &Packet { size, edge, data_limited: false });
        }
        let (number, at, left) = self.number_packet(at, stream, size);
        self.flush_uncovered();
        self.half.on_extra_sent(&ExtraSent { at, left, number, stream, size });
        number
    }

    /// Does the same as [`Remote::sent_extra`] for a packet that feedback does not cover. Examples are a retransmission
    /// that receivers leave out of transport-wide feedback, and a QUIC packet that is never acknowledged. The packet
    /// counts in the rate, but no feedback about it is expected. It is never lost, even if feedback reports it as
    /// missing. Media without feedback counts as padding.
    pub fn sent_uncovered(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        let stream = if stream == Stream::Media { Stream::Padding } else { stream };
        let (number, _, left) = self.number_packet(at, stream, size);
        self.history.leave_out(number);
        // Only a covered packet or feedback empties the list, so its length is limited here.
        if self.uncovered.len() == MOST_UNCOVERED {
            self.uncovered.pop_front();
        }
        self.uncovered.push_back((number, left, stream, size));
        number
    }

    /// Declares that no feedback will cover packet `number`. The packet is then no longer in flight, and not lost. If
    /// its fate is reported nevertheless, that report counts. There is no need to call this for packets that feedback
    /// has skipped.
    pub fn forget(&mut self, number: u64) {
        // An uncovered packet is passed to the half with the next packet, so there is nothing to do here.
        if self.uncovered.iter().all(|(uncovered, ..)| *uncovered != number) {
            self.history.settle(number, &mut self.unknown);
            self.flush_unknown();
        }
    }

    /// Records an assumed packet if the product only records packets with their feedback, and no feedback arrives.
    /// Otherwise the half's no-feedback timer would have no packet to wait for. The assumed packet has size zero and is
    /// never in flight.
    fn assume_packet(&mut self, now: Time) {
        let Some((interval, _)) = self.assumes.filter(|(_, at)| *at <= now) else { return };
        // The packet counts as media, because a sender that sends only other packets is idle (RFC 5348, section 4.4).
        let number = self.sent(now, &Packet { size: Bytes::ZERO, edge: FrameEdge::default(), data_limited: false });
        self.history.settle(number, &mut self.unknown);
        self.flush_unknown();
        self.assumes = Some((interval, now + interval));
    }

    /// Numbers a packet that is sent. Returns the number, the current time and the send time.
    fn number_packet(&mut self, at: Time, stream: Stream, size: Bytes) -> (u64, Time, Time) {
        let (number, now) = (self.numbers, self.advance(at));
        let seq = if stream == Stream::Media { self.media } else { number };
        let left = at.min(now);
        self.history.on_sent(number, left, size, stream, seq as u16);
        self.numbers += 1;
        (number, now, left)
    }

    /// Passes the uncovered packets to the half, right before a covered packet or feedback. If they were passed alone,
    /// a half that starts a feedback timer for each packet would wait in vain.
    fn flush_uncovered(&mut self) {
        let at = self.now;
        for (number, left, stream, size) in self.uncovered.drain(..) {
            self.half.on_extra_sent(&ExtraSent { at, left, number, stream, size });
            self.history.settle(number, &mut self.unknown);
        }
        self.flush_unknown();
    }

    fn flush_unknown(&mut self) {
        if !self.unknown.is_empty() {
            self.half.on_unknown(&self.unknown);
            self.unknown.clear();
        }
    }

    /// Returns the number of the newest packet with these low 16 bits, for feedback that refers to packets in this way;
    /// `None` if it is not in the history.
    pub fn number(&self, low: u16) -> Option<u64> {
        self.history.by_low_bits(low)
    }

    /// Reports a change of the pacer's queue, for controllers that use it.
    pub fn queued(&mut self, queue: &MediaQueue) {
        let at = self.advance(queue.at);
        self.half.on_queue(&MediaQueue { at, ..*queue });
    }

    /// Processes feedback. Packets may be in any order and may be repeated. Results of packets that were never sent,
    /// and invalid results, are ignored. Missing packets have to be included, as [`PacketResult::missing`].
    ///
    /// If all packets have the same arrival time, it is the time when the feedback was written or arrived. It is then
    /// valid for the newest packet only (RFC 9002, section 5.1), and the other packets are assumed to have the same
    /// delay.
    ///
    /// Returns the round-trip time that the feedback shows.
    pub fn feedback(&mut self, at: Time, fates: impl IntoIterator<Item = PacketResult>) -> Option<Span> {
        let (mut offset, last_feedback) = (self.offset, self.last_feedback);
        let rtt = self.join(at, |at, history, joined| {
            for PacketResult { number, arrived } in fates {
                let known = |at: &PeerTime| at.as_nanos().unsigned_abs() <= CENTURY.as_nanos();
                let arrived = arrived.map(|arrived| PacketArrival { at: arrived.at.filter(known), ..arrived });
                history.join(number, arrived, joined);
            }
            joined.sort();
            joined.spread();
            let newest = joined.packets.iter().filter_map(|packet| packet.arrived?.at).max();
            if let Some(newest) = newest {
                // Transport-wide feedback does not carry the time at which it was written. The hold time of the newest
                // packet is estimated from its arrival, and is at most the time since the previous feedback.
                offset.learn(at, newest);
                let held = at.since(offset.local(newest)).min(last_feedback.map_or(Span::ZERO, |last| at.since(last)));
                let held = i64::try_from(held.as_nanos()).unwrap_or(i64::MAX);
                joined.measure(at, PeerTime::from_nanos(newest.as_nanos().saturating_add(held)));
            }
        });
        self.offset = offset;
        self.last_feedback = rtt.map(|_| self.now).or(last_feedback);
        rtt
    }

    /// Processes feedback for callers that parse it themselves: `read` joins it with the history of sent packets.
    /// Returns the round-trip time that the feedback shows.
    pub fn join(&mut self, at: Time, read: impl FnOnce(Time, &mut History, &mut Joined)) -> Option<Span> {
        let at = self.advance(at);
        self.flush_uncovered();
        let Self { half, history, joined, unknown, assumes, .. } = self;
        joined.packets.clear();
        joined.rtt = None;
        read(at, history, joined);
        // Feedback that only repeats known fates must not restart timers.
        if joined.packets.is_empty() {
            return None;
        }
        if let Some((interval, next)) = assumes {
            *next = at + *interval;
        }
        history.overtaken(joined, unknown);
        if !unknown.is_empty() {
            half.on_unknown(unknown);
            unknown.clear();
        }
        let (rtt, packets) = (joined.rtt, &joined.packets[..]);
        half.on_report(&Report { at, from: RECEIVER, rtt, reception: None, body: None, packets, members: 2 });
        rtt
    }

    /// Returns the current decision.
    pub fn decision(&self) -> Decision {
        self.half.decision()
    }

    /// Returns the probe that the controller requests, if there is one. A probe is a burst at its own rate, of queued
    /// media and then padding. Each `id` is sent once.
    pub fn probe(&self) -> Option<Probe> {
        self.half.probe()
    }

    /// Returns the results of the promises that the controller checks. A promise is a property that the controller
    /// guarantees.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns the time of the next call of [`Remote::timer`].
    pub fn wake(&self) -> Option<Wake> {
        let report = match self.half.due() {
            Due::Rtcp => Some(Wake { at: self.last_report + REPORT_INTERVAL, why: "sender report" }),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        // Reports and receiver timeouts only start with the first packet.
        let assumed = self.assumes.map(|(_, at)| Wake { at, why: "no feedback" });
        self.half.wake().into_iter().chain(report.filter(|_| self.media > 0)).chain(assumed).min_by_key(|wake| wake.at)
    }

    /// Handles timers. A call before the time of [`Remote::wake`] does nothing.
    pub fn timer(&mut self, now: Time) {
        let now = self.advance(now);
        self.assume_packet(now);
        if self.half.wake().is_some_and(|wake| wake.at <= now) {
            self.half.on_timer(now);
        }
        let due = match self.half.due() {
            Due::Rtcp => self.last_report + REPORT_INTERVAL <= now,
            Due::At(wake) => wake.at <= now,
            Due::Hold => false,
        };
        if due && self.media > 0 {
            // This call also passes the announcement to the receiver halves that run here, so it need not be sent.
            self.half.announce(now);
            self.last_report = now;
        }
    }
}
