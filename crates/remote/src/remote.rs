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

/// The limits of a controller, and what the product offers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The lower limit of the rate.
    pub floor: Rate,
    /// The upper limit of the rate.
    pub cap: Rate,
    /// The nominal size of a full packet, with IP and UDP headers.
    pub packet: Bytes,
    /// The ECN field of sent packets.
    pub ecn: Ecn,
    /// The features beyond per-packet feedback, for example [`Need::Probes`] if the product sends [`Remote::probe`].
    pub offers: Vec<Need>,
    /// The seed of random numbers.
    pub seed: Seed,
    /// The product's feedback.
    pub feedback: Feedback,
}

/// The properties of feedback that exclude controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feedback {
    /// Whether [`Remote::sent`] is called only when the feedback about the packet arrives. A controller with a window
    /// ([`Decision::window`]) is then rejected, because the bytes in flight are unknown.
    pub late: bool,
    /// Whether all packets of a message have one arrival time, as with QUIC's acknowledgements. A controller that
    /// needs the time between arrivals is then rejected.
    pub acknowledged: bool,
    /// The longest interval between feedback messages; zero if unknown. Above 100 ms, a controller whose window is
    /// clocked by acknowledgements is rejected.
    pub interval: Span,
}

impl Bounds {
    /// Creates bounds with packets of 1,200 bytes and without ECN.
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

/// A media packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The size on the wire, with IP and UDP headers.
    pub size: Bytes,
    /// The position in the frame.
    pub edge: FrameEdge,
    /// Whether the queue is empty after this packet, so that the encoder limits the rate.
    pub data_limited: bool,
}

/// The feedback about one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketResult {
    /// The packet's number, from [`Remote::sent`] or [`Remote::sent_extra`].
    pub number: u64,
    /// The arrival; `None` if the packet had not arrived when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

impl PacketResult {
    /// Creates the result of a packet that arrived at `at` on the receiver's clock, without an ECN field.
    pub const fn at(number: u64, at: PeerTime) -> Self {
        Self { number, arrived: Some(PacketArrival { at: Some(at), ecn: None }) }
    }
    /// Creates the result of a packet that had not arrived.
    pub const fn missing(number: u64) -> Self {
        Self { number, arrived: None }
    }
}

const RECEIVER: ReceiverId = ReceiverId(2);
const SENDER: ReceiverId = ReceiverId(1);
/// The report interval of a half that sets no report times. The value is RFC 4585's default.
const REPORT_INTERVAL: Span = Span::secs(1);
/// The maximum valid time of both clocks, 250 years. NTP counts from 1900, so its times are below it; and a time in
/// nanoseconds still fits into 63 bits.
const TIME_MAX: Span = Span::secs(250 * 365 * 24 * 3_600);

/// The maximum number of buffered packets that feedback does not cover; older ones are dropped.
const MOST_UNCOVERED: usize = 1_024;

/// The minimum interval of assumed packets ([`Remote::assume_packet`]), also for an unknown feedback interval.
const ASSUMED_INTERVAL: Span = Span::millis(100);

/// A controller that runs at the sender alone, including its receiver half.
///
/// A product calls [`Remote::sent`] for each packet and [`Remote::feedback`] for each report, then reads
/// [`Remote::decision`]. It calls [`Remote::timer`] at [`Remote::wake`].
///
/// A packet is lost if feedback reports it as missing. A packet that feedback skips is neither lost nor in flight.
///
/// All times are on one clock, which may start at any value. A time before the previous call's time is replaced by the
/// previous call's time. Send times are not replaced.
pub struct Remote {
    half: Box<dyn SenderHalf>,
    history: History,
    joined: Joined,
    now: Time,
    /// Reused to avoid allocations.
    unknown: Vec<PacketReport>,
    /// The packets that feedback does not cover and that the half does not know yet: number, send time, stream and
    /// size.
    uncovered: VecDeque<(u64, Time, Stream, Bytes)>,
    /// The number of packets sent.
    numbers: u64,
    /// The number of media packets sent.
    media: u64,
    last_report: Time,
    offset: ClockOffset,
    /// The last feedback about an arrival.
    last_feedback: Option<Time>,
    /// If feedback is late, the interval of `assume_packet`, and the time of its next call.
    assumes: Option<(Span, Time)>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sent, decision) = (self.now, self.numbers, self.decision());
        f.debug_struct("Remote").field("now", &now).field("sent", &sent).field("decision", &decision).finish()
    }
}

impl Remote {
    /// Creates a controller of the registry, with `params` over its defaults.
    ///
    /// # Errors
    /// An unknown name or parameter, a value out of range, a need that `bounds` does not offer, a floor above the
    /// cap, or unsuitable feedback.
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
        // The bytes in flight are unknown, so a window can't be applied.
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

    /// Creates an instance for the product's own controller.
    ///
    /// # Errors
    /// A floor above the cap, or packets without a size.
    pub fn around(controller: Arc<dyn Factory>, bounds: &Bounds) -> Result<Self, ParamError> {
        let wrong = |name: &str, problem: String, remedy: &str| {
            Err(ParamError::new(ParamErrorKind::InvalidValue, name, problem, remedy))
        };
        let Bounds { floor, cap, packet, .. } = *bounds;
        if cap == Rate::ZERO {
            return wrong("cap", "it is 0".into(), "give the highest rate that the program can send");
        }
        if floor > cap {
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
        // If the controller does not read per-packet feedback, its receiver half runs here.
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

    /// The product's time never decreases. An invalid one does not count.
    fn advance(&mut self, at: Time) -> Time {
        // After a time in the far future, no valid time would count.
        if at <= Time::ZERO + TIME_MAX {
            if self.now == Time::ZERO {
                self.last_report = at;
            }
            self.now = at.max(self.now);
        }
        self.now
    }

    /// Records a media packet. Returns its number, counted from 0 over all streams.
    ///
    /// With [`Feedback::late`], call it right before [`Remote::feedback`]. `at` is the send time, and may be before the
    /// previous call.
    ///
    /// If feedback is late and none arrives, [`Remote::timer`] assumes that the product still sends. Otherwise the
    /// controller would keep the rate, as for an idle sender.
    pub fn sent(&mut self, at: Time, packet: &Packet) -> u64 {
        let Packet { size, edge, data_limited } = *packet;
        let (number, at, left) = self.number_packet(at, Stream::Media, size);
        self.flush_uncovered();
        let seq = self.media;
        // `notice` stores the RTP header extension for the receiver half, which runs here, too.
        self.half.notice(&Departing { at: left, seq, size, edge });
        self.half.on_sent(&Sent { at, left, number, seq, size, data_limited });
        self.media += 1;
        number
    }

    /// As [`Remote::sent`], for a packet of another stream.
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

    /// As [`Remote::sent_extra`], for a packet that feedback does not cover, such as a QUIC packet that is never
    /// acknowledged. It counts in the rate but is never lost. Media counts as padding.
    pub fn sent_uncovered(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        let stream = if stream == Stream::Media { Stream::Padding } else { stream };
        let (number, _, left) = self.number_packet(at, stream, size);
        self.history.leave_out(number);
        // Bounds the memory, because only a covered packet or feedback empties the list.
        if self.uncovered.len() == MOST_UNCOVERED {
            self.uncovered.pop_front();
        }
        self.uncovered.push_back((number, left, stream, size));
        number
    }

    /// Declares that no feedback will cover packet `number`: the packet is neither in flight nor lost. If a later
    /// report covers this packet, the report counts.
    ///
    /// If feedback covers later packets but not this packet, the call is not needed.
    pub fn forget(&mut self, number: u64) {
        // `flush_uncovered` settles the packets in `uncovered`.
        if self.uncovered.iter().all(|(uncovered, ..)| *uncovered != number) {
            self.history.settle(number, &mut self.unknown);
            self.flush_unknown();
        }
    }

    /// Records a packet of size zero if no feedback has arrived, so that the half's no-feedback timer runs.
    fn assume_packet(&mut self, now: Time) {
        let Some((interval, _)) = self.assumes.filter(|(_, at)| *at <= now) else { return };
        // The packet counts as media, because a sender without media is idle (RFC 5348, section 4.4).
        let number = self.sent(now, &Packet { size: Bytes::ZERO, edge: FrameEdge::default(), data_limited: false });
        self.history.settle(number, &mut self.unknown);
        self.flush_unknown();
        self.assumes = Some((interval, now + interval));
    }

    /// Returns the number, the current time and the send time.
    fn number_packet(&mut self, at: Time, stream: Stream, size: Bytes) -> (u64, Time, Time) {
        let (number, now) = (self.numbers, self.advance(at));
        let seq = if stream == Stream::Media { self.media } else { number };
        let left = at.min(now);
        self.history.on_sent(number, left, size, stream, seq as u16);
        self.numbers += 1;
        (number, now, left)
    }

    /// Passes the uncovered packets to the half with a covered packet or feedback. Alone, they would start a feedback
    /// timer in vain.
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

    /// Returns the number of the newest packet with these low 16 bits; `None` if it is not in the history.
    pub fn number(&self, low: u16) -> Option<u64> {
        self.history.by_low_bits(low)
    }

    /// Reports a change of the pacer's queue.
    pub fn queued(&mut self, queue: &MediaQueue) {
        let at = self.advance(queue.at);
        self.half.on_queue(&MediaQueue { at, ..*queue });
    }

    /// Processes feedback, in any order. Repeated and invalid results are ignored. Missing packets are included as
    /// [`PacketResult::missing`].
    ///
    /// If all packets have one arrival time, it is valid for the newest only (RFC 9002, section 5.1); the others get
    /// the same delay.
    ///
    /// Returns the round-trip time, if the feedback shows it.
    pub fn feedback(&mut self, at: Time, fates: impl IntoIterator<Item = PacketResult>) -> Option<Span> {
        let (mut offset, last_feedback) = (self.offset, self.last_feedback);
        let rtt = self.join(at, |at, history, joined| {
            for PacketResult { number, arrived } in fates {
                let known = |at: &PeerTime| at.as_nanos().unsigned_abs() <= TIME_MAX.as_nanos();
                let arrived = arrived.map(|arrived| PacketArrival { at: arrived.at.filter(known), ..arrived });
                history.join(number, arrived, joined);
            }
            joined.sort();
            joined.spread();
            let newest = joined.packets.iter().filter_map(|packet| packet.arrived?.at).max();
            if let Some(newest) = newest {
                // Transport-wide feedback does not say when it was written, so the hold time is estimated. It can't
                // exceed the time since the previous feedback.
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

    /// Processes feedback that `read` joins with the history. Returns the round-trip time, if there is one.
    pub fn join(&mut self, at: Time, read: impl FnOnce(Time, &mut History, &mut Joined)) -> Option<Span> {
        let at = self.advance(at);
        self.flush_uncovered();
        let Self { half, history, joined, unknown, assumes, .. } = self;
        joined.packets.clear();
        joined.rtt = None;
        read(at, history, joined);
        // Repeated fates must not restart timers.
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

    /// Returns the decision.
    pub fn decision(&self) -> Decision {
        self.half.decision()
    }

    /// Returns the requested probe, if there is one. Each `id` is sent once.
    pub fn probe(&self) -> Option<Probe> {
        self.half.probe()
    }

    /// Returns the results of the controller's checks at run time.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns the time of the next [`Remote::timer`].
    pub fn wake(&self) -> Option<Wake> {
        let report = match self.half.due() {
            Due::Rtcp => Some(Wake { at: self.last_report + REPORT_INTERVAL, why: "sender report" }),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        // Reports start with the first packet.
        let assumed = self.assumes.map(|(_, at)| Wake { at, why: "no feedback" });
        self.half.wake().into_iter().chain(report.filter(|_| self.media > 0)).chain(assumed).min_by_key(|wake| wake.at)
    }

    /// Handles timers; before [`Remote::wake`] it does nothing.
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
            // The receiver halves run here, so the announcement need not be sent.
            self.half.announce(now);
            self.last_report = now;
        }
    }
}
