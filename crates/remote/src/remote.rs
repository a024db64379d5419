use crate::clock_offset::ClockOffset;
use crate::history::UNTIMED_MESSAGES;
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

/// The limits of a controller, and the features that the application offers to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// The lower limit of the rate.
    pub floor: Rate,
    /// The upper limit of the rate.
    pub cap: Rate,
    /// The nominal size of a full packet in bytes, including IP and UDP headers.
    pub packet: Bytes,
    /// The ECN field of sent packets.
    pub ecn: Ecn,
    /// The features that the application offers beyond per-packet feedback. For example, [`Need::Probes`] means that it
    /// sends the probes that [`Remote::probe`] returns.
    pub offers: Vec<Need>,
    /// The seed of random numbers.
    pub seed: Seed,
    /// The properties of the application's feedback.
    pub feedback: Feedback,
}

/// Properties of feedback that make some controllers unusable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feedback {
    /// Whether [`Remote::sent`] is called only when the feedback about the packet arrives. A controller that has a
    /// window ([`Decision::window`]) is then rejected, because the bytes in flight are unknown.
    pub late: bool,
    /// Whether all packets of a feedback message have the same arrival time, as in QUIC's acknowledgements. A
    /// controller that needs the time between arrivals is then rejected.
    pub acknowledged: bool,
    /// The longest interval between two feedback messages. Zero if it is unknown. A controller that needs feedback more
    /// often is rejected. For example, PGMCC and TFMCC need feedback every 100 ms, and SCReAM every 250 ms.
    pub interval: Span,
}

impl Bounds {
    /// Creates bounds for packets of 1,200 bytes that are sent without ECN.
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
    /// The size on the wire in bytes, including IP and UDP headers.
    pub size: Bytes,
    /// The position of the packet in its frame.
    pub edge: FrameEdge,
    /// Whether no packet is waiting behind this packet. The encoder then limits the rate.
    pub data_limited: bool,
}

/// The feedback about one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketResult {
    /// The number of the packet, which [`Remote::sent`] or [`Remote::sent_extra`] returned.
    pub number: u64,
    /// The arrival of the packet. `None` if the packet had not arrived when the feedback was written.
    pub arrived: Option<PacketArrival>,
}

impl PacketResult {
    /// Creates the result for a packet that arrived at `at`, on the receiver's clock. The ECN field is unknown.
    pub const fn at(number: u64, at: PeerTime) -> Self {
        Self { number, arrived: Some(PacketArrival { at: Some(at), ecn: None }) }
    }
    /// Creates the result for a packet that had not arrived.
    pub const fn missing(number: u64) -> Self {
        Self { number, arrived: None }
    }
}

const RECEIVER: ReceiverId = ReceiverId(2);
const SENDER: ReceiverId = ReceiverId(1);
/// The interval between sender reports if the controller's sender part sets no report times. It is also the minimum
/// interval between reports of a receiver part that sets no report times. The value is the default of RFC 4585.
const REPORT_INTERVAL: Span = Span::secs(1);
/// The latest valid time on both clocks. It is 250 years, so that the times of NTP, which count from 1900, are valid. A
/// time in nanoseconds still fits into 63 bits.
const TIME_MAX: Span = Span::secs(250 * 365 * 24 * 3_600);

/// Maximum number of buffered packets that feedback does not cover. Older ones are dropped.
const MOST_UNCOVERED: usize = 1_024;

/// The minimum interval between assumed packets ([`Remote::assume_packet`]). It also applies if the feedback interval
/// is unknown.
const ASSUMED_INTERVAL: Span = Span::millis(100);

/// A controller that runs only at the sender. Its receiver part, which usually runs at a receiver, runs here as well.
///
/// An application calls [`Remote::sent`] for each packet and [`Remote::feedback`] for each feedback message. It then
/// reads [`Remote::decision`]. It calls [`Remote::timer`] at the time that [`Remote::wake`] returns.
///
/// A packet is lost if feedback reports it as missing. A packet that feedback leaves out is neither lost nor in flight.
///
/// All times are on one clock, which may start at any value. If a time is before the time of the previous call, it is
/// replaced by the time of the previous call. Send times are an exception and are not replaced.
pub struct Remote {
    half: Box<dyn SenderHalf>,
    history: History,
    joined: Joined,
    now: Time,
    /// A buffer that is reused to avoid allocations.
    unknown: Vec<PacketReport>,
    /// The packets that feedback does not cover and that were not passed to the controller yet. Each has a number, a
    /// send time, a stream and a size.
    uncovered: VecDeque<(u64, Time, Stream, Bytes)>,
    /// The number of packets sent so far.
    numbers: u64,
    /// The number of media packets sent so far.
    media: u64,
    last_report: Time,
    offset: ClockOffset,
    /// When the last feedback arrived that reported an arrival.
    last_feedback: Option<Time>,
    /// Set if feedback is late: the interval of `assume_packet`, and the time of its next call.
    assumes: Option<(Span, Time)>,
    /// The number of feedback messages that have reported arrivals, all without arrival times. `None` once a message
    /// has had an arrival time.
    untimed: Option<u32>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, sent, decision) = (self.now, self.numbers, self.decision());
        f.debug_struct("Remote").field("now", &now).field("sent", &sent).field("decision", &decision).finish()
    }
}

impl Remote {
    /// Creates a controller of the registry. `params` replace its default parameters.
    ///
    /// # Errors
    /// Returns an error in these cases: the name or a parameter is unknown, a value is out of range, the controller has
    /// a need that `bounds` does not offer, the cap or the packet size is zero, the floor is above the cap, or the
    /// feedback is not suitable for the controller.
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
        // Refuse a window if feedback is late, because the bytes in flight are unknown.
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

    /// Creates a `Remote` that runs the application's own controller.
    ///
    /// # Errors
    /// Returns an error if the cap or the packet size is zero, or if the floor is above the cap.
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
            capped: true,
            pictures: None,
            session_bandwidth: cap,
            group: false,
            id: SENDER,
            ecn: bounds.ecn,
            probes: bounds.offers.contains(&Need::Probes),
            chance: bounds.seed.part("remote"),
        }
        .alive();
        // If the controller does not read per-packet feedback, run its receiver part here.
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
            untimed: Some(0),
        })
    }

    /// Advances the current time to `at` and returns it. The time never decreases. An invalid time is ignored.
    fn advance(&mut self, at: Time) -> Time {
        // Ignore a time in the far future. After it, no valid time would advance the clock.
        if at <= Time::ZERO + TIME_MAX {
            if self.now == Time::ZERO {
                self.last_report = at;
            }
            self.now = at.max(self.now);
        }
        self.now
    }

    /// Records a sent media packet. Returns its number, counted from 0 over all streams.
    ///
    /// With [`Feedback::late`], call this method right before [`Remote::feedback`]. `at` is the send time, which may
    /// then be before the time of the previous call.
    ///
    /// If then no feedback arrives, no packet is recorded either. [`Remote::timer`] assumes that the application still
    /// sends, so that the controller does not treat it as an idle sender and keep its rate.
    pub fn sent(&mut self, at: Time, packet: &Packet) -> u64 {
        let Packet { size, edge, data_limited } = *packet;
        let (number, at, left) = self.number_packet(at, Stream::Media, size);
        self.flush_uncovered();
        let seq = self.media;
        // Let the controller write the header extension, because its receiver part runs here and reads it.
        self.half.notice(&Departing { at: left, seq, size, edge });
        self.half.on_sent(&Sent { at, left, number, seq, size, data_limited });
        self.media += 1;
        number
    }

    /// Records a sent packet of another stream. See [`Remote::sent`].
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

    /// Records a packet that feedback does not cover, such as a QUIC packet that is never acknowledged. See
    /// [`Remote::sent_extra`]. The packet counts in the rate, but is never lost. A media packet counts as padding.
    pub fn sent_uncovered(&mut self, at: Time, stream: Stream, size: Bytes) -> u64 {
        let stream = if stream == Stream::Media { Stream::Padding } else { stream };
        let (number, _, left) = self.number_packet(at, stream, size);
        self.history.leave_out(number);
        // Bound the memory, because only feedback or a packet that feedback covers empties the list.
        if self.uncovered.len() == MOST_UNCOVERED {
            self.uncovered.pop_front();
        }
        self.uncovered.push_back((number, left, stream, size));
        number
    }

    /// Declares that no feedback will cover packet `number`. The packet is then neither in flight nor lost. If feedback
    /// covers the packet nevertheless, this feedback counts.
    ///
    /// The call is not needed if feedback covers later packets but leaves this packet out.
    pub fn forget(&mut self, number: u64) {
        // Skip packets in `uncovered`, because `flush_uncovered` declares their fates unknown.
        if self.uncovered.iter().all(|(uncovered, ..)| *uncovered != number) {
            self.history.settle(number, &mut self.unknown);
            self.flush_unknown();
        }
    }

    /// If no feedback has arrived for the interval in `assumes`, records a packet of size zero. This makes the
    /// controller's no-feedback timer run.
    fn assume_packet(&mut self, now: Time) {
        let Some((interval, _)) = self.assumes.filter(|(_, at)| *at <= now) else { return };
        // Count the packet as media, because a sender that sends no media is idle (RFC 5348, section 4.4).
        let number = self.sent(now, &Packet { size: Bytes::ZERO, edge: FrameEdge::default(), data_limited: false });
        self.history.settle(number, &mut self.unknown);
        self.flush_unknown();
        self.assumes = Some((interval, now + interval));
    }

    /// Gives a number to a packet and adds it to the history. Returns the number, the current time and the send time.
    fn number_packet(&mut self, at: Time, stream: Stream, size: Bytes) -> (u64, Time, Time) {
        let (number, now) = (self.numbers, self.advance(at));
        let seq = if stream == Stream::Media { self.media } else { number };
        let left = at.min(now);
        self.history.on_sent(number, left, size, stream, seq as u16);
        self.numbers += 1;
        (number, now, left)
    }

    /// Passes the packets that feedback does not cover to the controller. They are passed only when feedback arrives or
    /// a covered packet is sent. Alone, they would start a feedback timer although no feedback will arrive.
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

    /// Returns the number of the newest packet whose number has these low 16 bits. Returns `None` if the packet is not
    /// in the history.
    pub fn number(&self, low: u16) -> Option<u64> {
        self.history.by_low_bits(low)
    }

    /// Informs the controller of a change in the pacer's queue.
    pub fn queued(&mut self, queue: &MediaQueue) {
        let at = self.advance(queue.at);
        self.half.on_queue(&MediaQueue { at, ..*queue });
    }

    /// Processes a feedback message. The packets may be in any order, and repeated or invalid results are ignored.
    /// Missing packets must be included, as [`PacketResult::missing`].
    ///
    /// If all packets have the same arrival time, it is valid only for the newest packet (RFC 9002, section 5.1). The
    /// other packets are then assumed to have had the same delay. If only some packets have no arrival time, their
    /// delays are interpolated ([`Joined::assume_times`]). If the first three messages that report arrivals have no
    /// arrival time at all, packets are assumed to arrive when their feedback does, from then on.
    ///
    /// Returns the round-trip time, if it can be measured from the feedback.
    pub fn feedback(&mut self, at: Time, fates: impl IntoIterator<Item = PacketResult>) -> Option<Span> {
        let (mut offset, last_feedback, mut untimed) = (self.offset, self.last_feedback, self.untimed);
        let rtt = self.join(at, |at, history, joined| {
            for PacketResult { number, arrived } in fates {
                let known = |at: &PeerTime| at.as_nanos().unsigned_abs() <= TIME_MAX.as_nanos();
                let arrived = arrived.map(|arrived| PacketArrival { at: arrived.at.filter(known), ..arrived });
                history.join(number, arrived, joined);
            }
            joined.sort();
            untimed = joined.count_untimed(untimed);
            if untimed == Some(UNTIMED_MESSAGES) {
                joined.arrive_at(PeerTime::from_nanos(at.as_nanos() as i64));
            }
            joined.spread();
            joined.assume_times();
            let newest = joined.packets.iter().filter_map(|packet| packet.arrived?.at).max();
            if let Some(newest) = newest {
                // Estimate how long the receiver held the feedback, because transport-wide feedback does not contain
                // the time at which it was written. The estimate is at most the time since the previous feedback.
                offset.learn(at, newest);
                let held = at.since(offset.local(newest)).min(last_feedback.map_or(Span::ZERO, |last| at.since(last)));
                let held = i64::try_from(held.as_nanos()).unwrap_or(i64::MAX);
                joined.measure(at, PeerTime::from_nanos(newest.as_nanos().saturating_add(held)));
            }
        });
        (self.offset, self.untimed) = (offset, untimed);
        self.last_feedback = rtt.map(|_| self.now).or(last_feedback);
        rtt
    }

    /// Processes feedback that `read` matches with the history. Returns the round-trip time, if there is one.
    pub fn join(&mut self, at: Time, read: impl FnOnce(Time, &mut History, &mut Joined)) -> Option<Span> {
        let at = self.advance(at);
        self.flush_uncovered();
        let Self { half, history, joined, unknown, assumes, .. } = self;
        joined.packets.clear();
        joined.rtt = None;
        read(at, history, joined);
        // Do not pass on feedback that contains nothing new, because it must not restart timers.
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

    /// Returns the controller's current decision.
    pub fn decision(&self) -> Decision {
        self.half.decision()
    }

    /// Returns the probe that the controller requests, if there is one. It must be sent only once per `id`.
    pub fn probe(&self) -> Option<Probe> {
        self.half.probe()
    }

    /// Returns the results of the checks that the controller makes at run time.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns when [`Remote::timer`] has to be called next, if at all.
    pub fn wake(&self) -> Option<Wake> {
        let report = match self.half.due() {
            Due::Rtcp => Some(Wake { at: self.last_report + REPORT_INTERVAL, why: "sender report" }),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        // Leave out reports before the first packet.
        let assumed = self.assumes.map(|(_, at)| Wake { at, why: "no feedback" });
        self.half.wake().into_iter().chain(report.filter(|_| self.media > 0)).chain(assumed).min_by_key(|wake| wake.at)
    }

    /// Handles the timers that have expired. Does nothing before the time that [`Remote::wake`] returns.
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
            // Ignore the announcement that is returned, because the receiver part runs here.
            self.half.announce(now);
            self.last_report = now;
        }
    }
}
