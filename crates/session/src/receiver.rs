mod succession;

pub use succession::Waiting;

use crate::audio::{AudioReceiver, ClockReference, video_timestamp};
use crate::batchable::Batchable;
use crate::feedback::{Reporter, TRANSPORT_NUMBER_ID};
use crate::participant::{Farewell, Participant, Standing};
use crate::repair::{Group, NackRequester, Need, ParityRequester, Solver};
use crate::sender::{CLOCK_RATE, app};
use crate::simulcast::PresenceTimer;
use crate::{
    Identity, Output, ParitySettings, Protection, Recovered, RepairSettings, Requests, RtcpSettings, UnusedReason,
};
use steadycast_control::promise::REPAIR_NOT_COUNTED;
use steadycast_control::{
    Announcement, Arrival, Body, BufferLevel, Check, Due, ExtraArrival, FeedbackFormat, FrameEdge, Overheard,
    ReceiverHalf, ReceiverId, Reply, Slot, Stream as Kind, View, Wake, simulcast,
};
use steadycast_rtcp::{Arrived, Expiry, Origin, Reception, SourceStatus};
use steadycast_units::{Bytes, Chance, Ecn, PeerTime, Rate, Span, Time, sums};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::ntp::NtpEpoch;
use steadycast_wire::rtcp::{Compound, KeyFrameRequest, Nack, Packet, ParityRequest, ParityUse, ReportBlock};
use steadycast_wire::rtp::{PayloadTypes, RtpHeader, TransportNumber};
use steadycast_wire::rtx;
use succession::OtherSource;

/// What a datagram from the RTP port contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet that had not arrived before. The value is its extended sequence number.
    New(u64),
    /// A retransmission of a lost packet. The value is the extended sequence number of the original.
    Repaired(u64),
    /// A new audio packet. The value is its extended sequence number.
    Audio(u64),
    /// A packet that had already arrived.
    Duplicate,
    /// A packet that does not belong to the stream or cannot be used.
    Unused(UnusedReason),
}

/// A parsed RTP packet.
#[derive(Clone, Copy, Debug)]
pub struct MediaPacket<'a> {
    /// The RTP header.
    pub header: &'a RtpHeader,
    /// The content of the controller's header extension. It is empty if the packet does not contain this extension.
    pub notice: &'a [u8],
    /// The transport-wide sequence number, if the packet contains one.
    pub transport: Option<u16>,
    /// For a retransmission, the sequence number of the original packet. For media packets this is `None`.
    pub repairs: Option<u16>,
    /// The IP size of the packet.
    pub size: Bytes,
    /// The ECN field with which the packet arrived.
    pub ecn: Ecn,
    /// The fill level of the play-out buffer, if there is a play-out buffer.
    pub buffer: Option<BufferLevel>,
}

/// Numbers of packets since the beginning of the session.
#[derive(Clone, Copy, Default)]
struct Totals {
    expected: u64,
    /// Number of packets that have arrived, including duplicates.
    received: u64,
    duplicates: u64,
}

impl Totals {
    fn of(reception: &Reception) -> Self {
        let (expected, received) = (reception.expected(), reception.received());
        Self { expected, received, duplicates: reception.duplicates() }
    }
}

sums!(Totals { expected, received, duplicates });

/// The receiving side of a session.
pub struct Receiver {
    half: Box<dyn ReceiverHalf>,
    participant: Participant,
    app: [u8; 4],
    stream: Option<Stream>,
    /// Another source, which may replace the followed source.
    other: Option<OtherSource>,
    /// The index and the first sequence number of the present run ([`Receiver::run`]). A run is the packets from a
    /// change or restart of the source to the next one.
    run: (u32, u64),
    payload_types: Option<PayloadTypes>,
    /// The SSRC of the media in the session description.
    named: Option<u32>,
    /// When the driver's clock last started again after it had stood still.
    resumed: Time,
    /// Numbers of packets, summed over all streams before the present stream.
    past: Totals,
    /// Numbers of packets at the last regular report. The next report covers the packets since then.
    prior: Totals,
    unreadable: u64,
    /// The timer of the reports with which the receiver announces its presence in a simulcast.
    presence: Option<PresenceTimer>,
    /// The rates of the simulcast's groups, in ascending order.
    siblings: Vec<Rate>,
    /// Whether reports are sent that the controller does not schedule ([`Receiver::answering`]).
    sends_unscheduled: bool,
    last_report: Option<Time>,
    reporter: Option<Box<Reporter>>,
    repair: Option<Box<RetransmissionReceiver>>,
    pending_key_frame: Option<PendingKeyFrameRequest>,
    /// The sequence number of the last full intra request (RFC 5104, section 4.3.1.1).
    intra: u8,
    parity: Option<Box<ParityReceiver>>,
    audio: Option<Box<AudioReceiver>>,
}

struct ParityReceiver {
    settings: ParitySettings,
    /// Whether the SSRC of the stream is learned from a packet, because it is not signalled.
    any_ssrc: bool,
    /// Whether the SSRC of the stream has been signalled or learned.
    associated: bool,
    solver: Solver,
    requester: ParityRequester,
    /// Whether a request will be sent when RTCP's timer expires.
    scheduled: bool,
    not_before: Time,
    counts: Requests,
    announces_playout: bool,
    announced: Option<Time>,
    reception: Reception,
    /// The send time of the newest packet. Send times wrap, so `Stamp::peer` needs it to read the next one.
    sent: Option<PeerTime>,
}

impl ParityReceiver {
    fn new(settings: ParitySettings, chance: Chance) -> Self {
        Self {
            settings,
            any_ssrc: false,
            associated: true,
            solver: Solver::new(),
            requester: ParityRequester::new(chance),
            scheduled: false,
            not_before: Time::ZERO,
            counts: Requests::default(),
            announces_playout: false,
            announced: None,
            reception: Reception::new(settings.ssrc, CLOCK_RATE),
            sent: None,
        }
    }

    fn restart(&mut self) {
        self.solver.restart();
        self.requester.clear();
        self.announced = None;
    }
}

#[derive(Clone, Copy, Debug)]
struct PendingKeyFrameRequest {
    /// Whether no frame has been decoded yet. The request is then a FIR, otherwise a PLI.
    joins: bool,
    at: Time,
    /// Whether the request will be sent when RTCP's timer expires.
    scheduled: bool,
}

/// A request is repeated after this time, because it or its answer may be lost.
const KEY_FRAME_RETRY_INTERVAL: Span = Span::millis(700);
/// Maximum delay of an early RTCP packet that contains a key-frame request.
const KEY_FRAME_REQUEST_USEFUL: Span = Span::secs(1);
const PLAYOUT_REPORT_INTERVAL: Span = Span::secs(1);

struct RetransmissionReceiver {
    settings: RepairSettings,
    /// Whether the SSRC of the stream is learned from a packet, because it is not signalled.
    any_ssrc: bool,
    /// Whether the SSRC of the stream has been signalled or learned.
    associated: bool,
    /// The SSRC of the stream in the sender's session description.
    announced: Option<u32>,
    requester: NackRequester,
    reception: Reception,
    /// The send time of the newest packet. Send times wrap, so `Stamp::peer` needs it to read the next one.
    sent: Option<PeerTime>,
    /// Whether a request will be sent when RTCP's timer expires.
    scheduled: bool,
    not_before: Time,
    /// Number of received media packets. Stray packets are included once the stream has accepted their numbers.
    checked_packets: u64,
    check: Check,
}

impl RetransmissionReceiver {
    fn new(settings: RepairSettings) -> Self {
        Self {
            settings,
            any_ssrc: false,
            associated: true,
            announced: None,
            requester: NackRequester::new(settings),
            reception: Reception::new(settings.ssrc, CLOCK_RATE),
            sent: None,
            scheduled: false,
            not_before: Time::ZERO,
            checked_packets: 0,
            check: Check::new(&REPAIR_NOT_COUNTED),
        }
    }
}

/// A report is sent if no packet has arrived for this time.
const KEEPALIVE_DELAY: Span = Span::millis(500);
/// The subtype of an empty APP packet. The packet shows that the receiver supports the controller.
const PRESENCE_SUBTYPE: u8 = 31;

/// The LSRs that the reports to a sender have repeated.
#[derive(Clone, Copy, Debug, Default)]
enum RepeatedLsrs {
    #[default]
    None,
    One(u32),
    Two,
}

impl RepeatedLsrs {
    fn add(&mut self, lsr: u32) {
        *self = match *self {
            _ if !self.lacks(lsr) => return,
            Self::None => Self::One(lsr),
            Self::One(_) | Self::Two => Self::Two,
        };
    }

    /// Returns whether fewer than two LSRs have been repeated, and not this one.
    fn lacks(self, lsr: u32) -> bool {
        match self {
            Self::None => lsr != 0,
            Self::One(first) => lsr != 0 && lsr != first,
            Self::Two => false,
        }
    }
}

struct Stream {
    ssrc: u32,
    reception: Reception,
    repeated: RepeatedLsrs,
    /// The number that is added to sequence numbers of the source. With it, the session's sequence numbers continue
    /// after a change of the SSRC.
    ahead: i64,
    /// The time at which the last media packet arrived.
    heard: Time,
    /// The time at which the last media or RTCP packet arrived.
    spoke: Time,
    from: Origin,
    /// Whether the source has sent a BYE.
    ended: bool,
    /// The SSRC with which the source continues after its BYE.
    successor: Option<u32>,
    /// The send time of the latest media packet. It comes from the header extension, or else from the RTP timestamp.
    sent: Option<PeerTime>,
    /// The RTP timestamp and the NTP time in the last sender report.
    clock: Option<ClockReference>,
    /// The RTP timestamp of the newest frame, and the time at which its first packet arrived.
    frame: (u32, Time),
    /// The maximum interval between frames. It decays by an eighth per frame.
    pace: Option<Span>,
    /// The RTP timestamp of the newest frame.
    timestamp: u32,
    /// The time on the media clock at `timestamp`, in ticks since the first packet.
    ticks: i64,
    /// Whether the next packet begins a frame.
    after_marker: bool,
    /// Whether any packet had the RTP marker bit. Without markers, a frame begins when the timestamp changes.
    marks: bool,
}

impl Receiver {
    /// Creates a receiver that joins the session at `now`. `chance` provides the random part of RTCP intervals.
    pub fn new(
        identity: Identity,
        rtcp: RtcpSettings,
        app: [u8; 4],
        half: Box<dyn ReceiverHalf>,
        chance: Chance,
        now: Time,
    ) -> Self {
        let participant = Participant::new(identity, rtcp, false, chance, now);
        let (stream, past, prior) = (None, Totals::default(), Totals::default());
        let (presence, siblings, sends_unscheduled, last_report) = (None, Vec::new(), false, None);
        Self {
            half,
            participant,
            app,
            stream,
            other: None,
            run: (0, 0),
            payload_types: None,
            named: None,
            resumed: Time::ZERO,
            past,
            prior,
            unreadable: 0,
            presence,
            siblings,
            sends_unscheduled,
            last_report,
            reporter: None,
            repair: None,
            pending_key_frame: None,
            intra: 0,
            parity: None,
            audio: None,
        }
    }

    /// Makes the receiver send reports that its controller does not schedule: during a pause of the media, because some
    /// senders stop until they get a report, and at the start of a session with a group ([`Self::proof_wake`]).
    #[must_use]
    pub fn answering(self) -> Self {
        Self { sends_unscheduled: true, ..self }
    }

    /// Makes the receiver accept only the payload types of a session description. `named` is the SSRC in that
    /// description.
    ///
    /// A source with this SSRC replaces the followed source immediately. After another source has replaced it, this
    /// SSRC is forgotten, because the sender may have restarted with another SSRC.
    #[must_use]
    pub fn described(self, payload_types: Option<PayloadTypes>, named: Option<u32>) -> Self {
        Self { payload_types, named, ..self }
    }

    /// Records that the driver's clock stood still until `now`, for example because the machine was suspended. This
    /// time is not a silence of the source.
    pub fn on_clock_gap(&mut self, now: Time) {
        self.resumed = self.resumed.max(now);
    }

    /// Makes the receiver announce its presence, because a simulcast sends only to groups that have a member.
    #[must_use]
    pub fn in_simulcast(self, now: Time) -> Self {
        Self { presence: Some(PresenceTimer::new(now)), ..self }
    }

    /// Returns the rates of the simulcast's groups, in ascending order, as last announced. The list is empty before an
    /// announcement.
    pub fn siblings(&self) -> &[Rate] {
        &self.siblings
    }

    /// Enables per-packet feedback. It uses at most 5 % of the session `bandwidth`, or of the arriving bytes. It can
    /// use more if the maximum interval of 200 ms requires it.
    #[must_use]
    pub fn with_feedback(self, format: FeedbackFormat, bandwidth: Rate) -> Self {
        // Authenticated peers are WebRTC peers, because only these are authenticated (by DTLS).
        let webrtc = self.participant.is_authenticated();
        Self { reporter: Reporter::new(format, bandwidth, webrtc).map(Box::new), ..self }
    }

    /// Enables NACKs and a retransmission stream (RFC 4588). This works only in sessions of two members with
    /// [`crate::Profile::Avpf`].
    #[must_use]
    pub fn with_repair(self, settings: RepairSettings) -> Self {
        Self { repair: Some(Box::new(RetransmissionReceiver::new(settings))), ..self }
    }

    /// Like [`Receiver::with_repair`], but the SSRC of the stream is learned for each media source. It is learned from
    /// the first retransmission that was requested (RFC 4588, section 5.3). An SSRC in `settings` that is not 0 is
    /// accepted from the start.
    #[must_use]
    pub fn with_repair_of_any_source(self, settings: RepairSettings) -> Self {
        let announced = Some(settings.ssrc).filter(|ssrc| *ssrc != 0);
        let repair = RetransmissionReceiver {
            any_ssrc: true,
            associated: false,
            announced,
            ..RetransmissionReceiver::new(settings)
        };
        Self { repair: Some(Box::new(repair)), ..self }
    }

    /// Requests a key frame, and repeats the request until [`Receiver::has_key_frame`] is called. Poll afterwards.
    ///
    /// The request is a FIR (RFC 5104) if `joins` is true, otherwise a PLI (RFC 4585). It is sent only with
    /// [`crate::Profile::Avpf`].
    pub fn needs_key_frame(&mut self, now: Time, joins: bool) {
        if self.pending_key_frame.is_none_or(|pending_key_frame| pending_key_frame.joins != joins) {
            // Use a new sequence number for a new FIR, but not for its repetitions (RFC 5104, section 4.3.1.1).
            self.intra = self.intra.wrapping_add(u8::from(joins));
            self.pending_key_frame = Some(PendingKeyFrameRequest { joins, at: now, scheduled: false });
        }
    }

    /// Stops requesting a key frame.
    pub fn has_key_frame(&mut self) {
        self.pending_key_frame = None;
    }

    /// Enables recovery from parity. In a small group, the receiver also requests more parity. `chance` provides the
    /// random delays of these requests.
    #[must_use]
    pub fn with_parity(self, settings: ParitySettings, chance: Chance) -> Self {
        Self { parity: Some(Box::new(ParityReceiver::new(settings, chance))), ..self }
    }

    /// Like [`Receiver::with_parity`], but the SSRC of the parity stream is learned for each media source. It is
    /// learned from the first packet with the parity payload type.
    #[must_use]
    pub fn with_parity_of_any_source(self, settings: ParitySettings, chance: Chance) -> Self {
        let parity = ParityReceiver { any_ssrc: true, associated: false, ..ParityReceiver::new(settings, chance) };
        Self { parity: Some(Box::new(parity)), ..self }
    }

    /// Makes the receiver announce once a second that it uses parity, and its play-out delay
    /// ([`crate::SenderSettings::parity_on_word`]). This has no effect if [`Receiver::with_parity`] was not called, or
    /// if the play-out delay is zero.
    #[must_use]
    pub fn telling_playout(mut self) -> Self {
        if let Some(parity) = &mut self.parity {
            parity.announces_playout = true;
        }
        self
    }

    /// Enables an audio stream with this payload type. Its SSRC is learned for each video source, from the first audio
    /// packet.
    #[must_use]
    pub fn with_audio(self, payload_type: u8) -> Self {
        Self { audio: Some(Box::new(AudioReceiver::new(payload_type))), ..self }
    }

    /// Converts an RTP timestamp of the audio to an RTP timestamp of the video. Returns `None` until both streams have
    /// sent a sender report.
    pub fn video_timestamp(&self, audio: u32) -> Option<u32> {
        let video = self.stream.as_ref()?.clock?;
        Some(video_timestamp(self.audio.as_ref()?.clock?, video, audio))
    }

    /// Adds a packet without media, such as padding, to the feedback. The packet must be authenticated. Poll
    /// afterwards.
    pub fn on_padding(&mut self, now: Time, packet: &MediaPacket<'_>) {
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, false);
        }
    }

    /// Processes an audio packet. The loss of audio packets does not affect the controller.
    fn on_audio(&mut self, now: Time, from: Origin, packet: &MediaPacket<'_>) -> Received {
        let MediaPacket { header, size, ecn, .. } = *packet;
        if self.stream.as_ref().is_some_and(|stream| stream.ended) {
            return Received::Unused(UnusedReason::Outside);
        }
        if self.stream.as_ref().is_some_and(|stream| stream.from != from) {
            return Received::Unused(UnusedReason::OtherAddress);
        }
        let Some(audio) = &mut self.audio else { return Received::Unused(UnusedReason::Outside) };
        let Some(reception) = audio.follow(header.ssrc) else { return Received::Unused(UnusedReason::OtherSource) };
        let before = reception.highest();
        let (seq, missing) = match reception.on_rtp(now, header.seq, header.timestamp) {
            Arrived::New(seq) => (seq, before.map_or(0, |before| (seq - before - 1).max(0).unsigned_abs())),
            Arrived::Restarted(seq) => (seq, 0),
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        if let Some(reporter) = &mut self.reporter {
            // An audio packet does not make a report due early. Only the end of a video frame does.
            reporter.on_packet(now, packet, false);
        }
        let video = self.stream.as_mut();
        let sent = header.send_time.map(|stamp| stamp.peer(audio.sent));
        audio.sent = sent.or(audio.sent);
        let sent = sent.or(video.as_ref().and_then(|stream| stream.sent)).unwrap_or_default();
        if let Some(stream) = video {
            stream.spoke = now;
        }
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Audio, size, sent, ecn, missing });
        Received::Audio(u64::try_from(seq).unwrap_or(0))
    }

    /// Processes a parity packet. `protection` contains the packets that it protects. For the controller, packets that
    /// are recovered still count as lost. Poll afterwards.
    pub fn on_parity(
        &mut self,
        now: Time,
        from: Origin,
        packet: &MediaPacket<'_>,
        protection: &Protection,
    ) -> Received {
        let MediaPacket { header, size, ecn, .. } = *packet;
        let gone = self.participant.farewell != Farewell::Stays;
        let (Some(parity), Some(stream)) = (&mut self.parity, &mut self.stream) else {
            return Received::Unused(UnusedReason::Outside);
        };
        if gone || stream.ended {
            return Received::Unused(UnusedReason::Outside);
        }
        if stream.from != from {
            return Received::Unused(UnusedReason::OtherSource);
        }
        if header.payload_type != parity.settings.payload_type {
            return Received::Unused(UnusedReason::UnknownPayloadType);
        }
        // Learn the SSRC from the first packet with this payload type if the SSRC was not signalled.
        if !parity.associated && header.ssrc != stream.ssrc {
            parity.settings.ssrc = header.ssrc;
            (parity.reception, parity.associated) = (Reception::new(header.ssrc, CLOCK_RATE), true);
        }
        if header.ssrc != parity.settings.ssrc {
            return Received::Unused(UnusedReason::OtherSource);
        }
        let before = parity.reception.highest();
        let (seq, missing) = match parity.reception.on_rtp(now, header.seq, header.timestamp) {
            Arrived::New(seq) => (seq, before.map_or(0, |before| (seq - before - 1).max(0).unsigned_abs())),
            Arrived::Restarted(seq) => (seq, 0),
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, false);
        }
        let sent = header.send_time.map(|stamp| stamp.peer(parity.sent.or(stream.sent)));
        parity.sent = sent.or(parity.sent);
        let sent = sent.or(stream.sent).unwrap_or_default();
        // Packets that are recovered here are returned by `take_recovered`.
        let need = parity.solver.on_parity(protection);
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Parity, size, sent, ecn, missing });
        self.on_need(now, need);
        Received::New(u64::try_from(seq).unwrap_or(0))
    }

    /// Updates the parity requests for the new state of a block. A receiver that sends NACKs does not request parity.
    fn on_need(&mut self, now: Time, need: Option<Need>) {
        let idle = self.parity.as_ref().is_none_or(|parity| parity.requester.is_idle());
        // Ignore a complete block if no request is pending, because it can only cancel a request.
        let Some(need) = need.filter(|need| self.repair.is_none() && !(idle && need.lacks == 0)) else { return };
        let group = self.group();
        if let Some(parity) = &mut self.parity {
            parity.requester.on_need(now, &need, &parity.settings, group);
        }
    }

    fn group(&self) -> Group {
        Group { members: self.participant.census().members, round_trip: self.half.view().rtt }
    }

    /// Takes the packets that have been recovered from parity since the last call.
    pub fn take_recovered(&mut self) -> Vec<Recovered> {
        let (Some(parity), Some(stream)) = (&mut self.parity, &self.stream) else { return Vec::new() };
        let recovered = parity.solver.take();
        if let Some(repair) = &mut self.repair {
            recovered.iter().for_each(|(seq, _)| repair.requester.on_recovered(*seq));
        }
        let renumber = |(seq, packet)| Recovered { number: seq as u16, seq: stream.session_seq(seq), packet };
        recovered.into_iter().map(renumber).collect()
    }

    /// Returns whether recovery from parity is enabled.
    pub fn has_parity(&self) -> bool {
        self.parity.is_some()
    }

    /// Returns the SSRC of the followed source.
    pub fn source(&self) -> Option<u32> {
        Some(self.stream.as_ref()?.ssrc)
    }

    /// Returns whether the source with this SSRC and address is the followed source. Returns `None` if no source is
    /// followed.
    pub fn is_source(&self, ssrc: u32, from: Origin) -> Option<bool> {
        self.stream.as_ref().map(|stream| (stream.ssrc, stream.from) == (ssrc, from))
    }

    /// Returns the numbers of requests and of repaired packets.
    pub fn requests(&self) -> Requests {
        let packets = self.repair.as_ref().map(|repair| repair.requester.counts).unwrap_or_default();
        packets + self.parity.as_ref().map(|parity| parity.counts).unwrap_or_default()
    }

    /// Sets the play-out delay: the time from a frame's readiness at the sender to its display. Packets that would
    /// arrive after the display are not requested.
    pub fn set_playout(&mut self, delay: Span) {
        if let Some(repair) = &mut self.repair {
            repair.requester.set_playout(delay);
        }
        if let Some(parity) = &mut self.parity {
            parity.settings.playout = Some(delay);
        }
    }

    /// Returns the time from the expected arrival of a lost packet to the arrival of its repair. Returns zero if repair
    /// is not enabled.
    pub fn repair_time(&self, now: Time) -> Span {
        match (&self.repair, &self.parity) {
            (Some(repair), _) => repair.requester.repair_time(now),
            (None, Some(parity)) => parity.settings.block(),
            (None, None) => Span::ZERO,
        }
    }

    /// Returns the result of the check that repaired packets still count as lost for the controller.
    pub fn repair_check(&self) -> Option<Check> {
        Some(self.repair.as_ref()?.check)
    }

    /// Returns the rate of the path, as estimated by the receiver part of the controller.
    pub fn acceptable(&self) -> Option<Rate> {
        self.half.acceptable()
    }

    /// Returns the result of the check that no datagram is larger than the path's MTU.
    pub fn mtu_check(&self) -> Check {
        self.participant.mtu_check()
    }

    /// Returns the number of arrivals that were not reported because reports may use only 5 % of the session bandwidth.
    /// The second number is the number of RTCP packets that were too large for a datagram.
    pub fn untold(&self) -> (u64, u64) {
        (self.reporter.as_ref().map_or(0, |reporter| reporter.untold()), self.participant.refused())
    }

    /// Returns this receiver's SSRC. It changes after a collision.
    pub fn ssrc(&self) -> u32 {
        self.participant.identity.ssrc
    }

    /// Returns the internal state of the controller's receiver part, for the record of a run.
    pub fn view(&self) -> View {
        self.half.view()
    }

    /// Returns the run-time checks of the controller's receiver part.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns the interarrival jitter (RFC 3550, appendix A.8). It is `None` until two packets of the stream have
    /// arrived.
    pub fn jitter(&self) -> Option<Span> {
        let reception = self.stream.as_ref().map(|s| &s.reception)?;
        (reception.received() - reception.duplicates() > 1).then(|| reception.jitter())
    }

    /// Returns the number of packets from the first that arrived to the newest, including lost packets.
    pub fn expected(&self) -> u64 {
        self.past.expected + self.stream.as_ref().map_or(0, |s| s.reception.expected())
    }

    /// Returns the number of packets that arrived, without duplicates.
    pub fn received(&self) -> u64 {
        let duplicates = self.past.duplicates + self.stream.as_ref().map_or(0, |s| s.reception.duplicates());
        self.arrived().saturating_sub(duplicates)
    }

    /// Returns the number of packets that arrived, including duplicates.
    fn arrived(&self) -> u64 {
        self.past.received + self.stream.as_ref().map_or(0, |s| s.reception.received())
    }

    /// Returns whether the followed source has left and does not continue with another SSRC.
    pub fn source_ended(&self) -> bool {
        let goes_on = |successor: u32| self.participant.members.contains(successor);
        self.stream.as_ref().is_some_and(|s| s.ended && !s.successor.is_some_and(goes_on))
    }

    /// Returns the number of datagrams that could not be parsed.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Processes a datagram from the RTP port. Returns `None` if it is not RTP. Poll afterwards.
    pub fn on_rtp<'a>(
        &mut self,
        now: Time,
        from: Origin,
        datagram: &'a [u8],
        ecn: Ecn,
        buffer: Option<BufferLevel>,
    ) -> Option<(Received, RtpHeader, &'a [u8])> {
        // Check for RTCP first, because RTCP can share the port (RFC 5761) and would be parsed as RTP.
        let parsed = if steadycast_wire::is_rtcp(datagram) { None } else { RtpHeader::parse(datagram).ok() };
        let Some((header, extensions, payload)) = parsed else {
            self.unreadable += 1;
            return None;
        };
        let size = Bytes::new((datagram.len() + IP_UDP_OVERHEAD) as u64);
        let (mut notice, mut transport) = (None, None);
        for (id, bytes) in extensions {
            match TransportNumber::read(bytes).filter(|_| id == TRANSPORT_NUMBER_ID) {
                Some(number) => transport = Some(number.seq),
                // Take any other element as the controller's header extension. The receiver part of the controller
                // checks its content.
                None => notice = notice.or(Some(bytes)),
            }
        }
        // A retransmission's payload begins with the original sequence number (RFC 4588, section 4).
        let again = self.is_repair(&header).then(|| payload.split_first_chunk::<{ rtx::OSN }>()).flatten();
        let repairs = again.map(|(original, _)| u16::from_be_bytes(*original));
        let notice = notice.unwrap_or_default();
        let packet = MediaPacket { header: &header, notice, transport, repairs, size, ecn, buffer };
        let received = self.on_media(now, from, &packet);
        let (Some((_, behind)), Some(number)) = (again, repairs) else { return Some((received, header, payload)) };
        // Return the original's header, because the depacketizer needs it. Its send time is not known.
        let ssrc = self.stream.as_ref().map_or(header.ssrc, |s| s.ssrc);
        let payload_len = behind.len() as u16;
        Some((received, RtpHeader { seq: number, ssrc, payload_len, send_time: None, ..header }, behind))
    }

    fn is_repair(&self, header: &RtpHeader) -> bool {
        self.repair.as_ref().is_some_and(|repair| {
            let RepairSettings { ssrc, payload_type, .. } = repair.settings;
            header.payload_type == payload_type && (header.ssrc == ssrc || !repair.associated)
        })
    }

    /// Processes a retransmission. For the controller, the original still counts as lost.
    fn on_repair(&mut self, now: Time, from: Origin, packet: &MediaPacket<'_>) -> Received {
        let MediaPacket { header, size, ecn, .. } = *packet;
        let (Some(repair), Some(stream)) = (&mut self.repair, &mut self.stream) else {
            return Received::Unused(UnusedReason::Outside);
        };
        if stream.ended {
            return Received::Unused(UnusedReason::Outside);
        }
        if stream.from != from {
            return Received::Unused(UnusedReason::OtherSource);
        }
        if !repair.associated {
            // Learn the SSRC of the stream from the first retransmission that was requested (RFC 4588, section 5.3).
            let awaited = packet.repairs.is_some_and(|number| repair.requester.awaits(number));
            if !awaited && repair.announced != Some(header.ssrc) {
                return Received::Unused(UnusedReason::UnaskedRepair);
            }
            repair.settings.ssrc = header.ssrc;
            (repair.reception, repair.associated) = (Reception::new(header.ssrc, CLOCK_RATE), true);
        }
        let before = repair.reception.highest();
        let arrived = repair.reception.on_rtp(now, header.seq, header.timestamp);
        // Report duplicates as well, because a CE mark on any copy of a packet counts (RFC 8888, section 3.1).
        if let Some(reporter) = self.reporter.as_mut().filter(|_| arrived != Arrived::Stray) {
            reporter.on_packet(now, packet, false);
        }
        let missing = match arrived {
            Arrived::New(seq) => before.map_or(0, |before| (seq - before - 1).max(0).unsigned_abs()),
            Arrived::Restarted(_) => 0,
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        let sent = header.send_time.map(|stamp| stamp.peer(repair.sent.or(stream.sent)));
        repair.sent = sent.or(repair.sent);
        let sent = sent.or(stream.sent).unwrap_or_default();
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Repair, size, sent, ecn, missing });
        // Only a packet that was still missing is repaired.
        let original = packet.repairs.and_then(|number| repair.requester.on_repair(now, number, header.marker));
        let Some(original) = original else { return Received::Duplicate };
        let seq = stream.session_seq(original);
        if let Some(parity) = &mut self.parity {
            parity.solver.on_packet(original);
        }
        Received::Repaired(seq)
    }

    /// Processes a parsed RTP packet. Poll afterwards.
    pub fn on_media(&mut self, now: Time, from: Origin, packet: &MediaPacket<'_>) -> Received {
        let MediaPacket { header, notice, size, ecn, buffer, .. } = *packet;
        if self.participant.farewell != Farewell::Stays {
            return Received::Unused(UnusedReason::Outside);
        }
        if self.is_repair(header) {
            return self.on_repair(now, from, packet);
        }
        if self.audio.as_ref().is_some_and(|audio| audio.owns(header)) {
            return self.on_audio(now, from, packet);
        }
        if header.ssrc == self.participant.identity.ssrc {
            // Another participant uses the SSRC of this receiver (RFC 3550, section 8.2).
            self.check_media_address(now, header.ssrc, from);
            return Received::Unused(UnusedReason::OwnSource);
        }
        // Check for a new source before checking the address, because a source that has restarted may have a new
        // address.
        if !self.goes_on(now, header) && !self.follow(now, from, header) {
            return Received::Unused(self.why_not_followed(from, header));
        }
        if !self.check_media_address(now, header.ssrc, from) {
            return Received::Unused(UnusedReason::OtherAddress);
        }
        let Some(stream) = &mut self.stream else { return Received::Unused(UnusedReason::OtherSource) };
        let before = stream.reception.received();
        let seq = match stream.reception.on_rtp(now, header.seq, header.timestamp) {
            Arrived::New(seq) => seq,
            Arrived::Duplicate(_) => {
                // Report duplicates as well, because a CE mark on any copy of a packet counts (RFC 8888, section 3.1).
                if let Some(reporter) = &mut self.reporter {
                    reporter.on_packet(now, packet, false);
                }
                return Received::Duplicate;
            }
            Arrived::Stray | Arrived::Restarted(_) => return Received::Unused(UnusedReason::FarNumber),
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, header.marker);
        }
        stream.keep_pace(now, header.timestamp);
        (stream.heard, stream.spoke, stream.from) = (now, now, from);
        // NACKs need the source's sequence number (`number`). The session has continuous sequence numbers (`seq`).
        let (number, seq) = (u64::try_from(seq).unwrap_or(0), u64::try_from(seq + stream.ahead).unwrap_or(0));
        // Use the media clock if there is no header extension with a send time.
        let anew = !stream.marks && header.timestamp != stream.timestamp;
        let sampled = stream.sampled(header.timestamp);
        let sent = header.send_time.map_or(sampled, |stamp| stamp.peer(stream.sent));
        stream.sent = Some(sent);
        let edge = FrameEdge { first: stream.after_marker || anew, last: header.marker };
        stream.after_marker = header.marker;
        stream.marks |= header.marker;
        self.half.on_arrival(&Arrival { at: now, seq, size, sent, sampled, edge, ecn, notice, buffer });
        // This packet may complete a block, because the block's parity may have arrived before it.
        let need = self.parity.as_mut().and_then(|parity| parity.solver.on_packet(number));
        if let Some(repair) = &mut self.repair {
            match header.send_time {
                Some(_) => repair.requester.on_original(now, number, sent, header.marker),
                None => repair.requester.on_unstamped(now, number, sent, header.marker),
            }
            // Add the difference, because stray packets before this packet may count as received now.
            repair.checked_packets += stream.reception.received() - before;
            // Check that retransmissions have not changed the counters of the report block.
            let duplicates = self.past.duplicates + stream.reception.duplicates();
            repair.check.see(
                repair.checked_packets == (self.past.received + stream.reception.received()).saturating_sub(duplicates),
            );
        }
        self.on_need(now, need);
        Received::New(seq)
    }

    /// Returns whether media from this address can be used. A source keeps its first address (RFC 3550, section 8.2).
    fn check_media_address(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
        let heard = self.participant.members.on_rtp(now, ssrc, from);
        if Standing::of(heard) == Standing::Collision {
            self.take_new_ssrc();
        }
        !matches!(heard, SourceStatus::Conflict(_))
    }

    fn take_new_ssrc(&mut self) {
        self.participant.renew();
        self.half.on_renamed(ReceiverId(self.participant.identity.ssrc));
    }

    /// Processes a datagram from the RTCP port. Poll afterwards.
    pub fn on_rtcp(&mut self, now: Time, from: Origin, datagram: &[u8]) {
        match Compound::parse(datagram) {
            Ok(compound) => self.on_compound(now, from, &compound, datagram.len()),
            Err(_) => self.unreadable += 1,
        }
    }

    /// Returns whether RTCP from this address is ignored. In unicast, only the address of the media is accepted. Other
    /// addresses could add members, which would delay reports (RFC 3550, section 6.3.1).
    pub fn ignores_rtcp(&self, from: Origin) -> bool {
        !self.participant.is_group() && self.stream.as_ref().is_none_or(|stream| stream.from != from)
    }

    /// Processes a parsed compound of `len` bytes.
    pub fn on_compound(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) {
        if self.gone() || self.ignores_rtcp(from) {
            return;
        }
        if self.on_audio_compound(now, compound) {
            return;
        }
        match self.participant.learn(now, from, compound, len) {
            Standing::Good => {}
            Standing::Ignored => return,
            Standing::Collision => return self.take_new_ssrc(),
        }
        let speaker = compound.sender().filter(|ssrc| self.participant.members.speaks_from(*ssrc, from));
        if let Some(stream) = self.stream.as_mut().filter(|s| Some(s.ssrc) == speaker) {
            stream.spoke = now;
        }
        for packet in &compound.packets {
            match packet {
                Packet::SenderReport { ssrc, ntp, rtp, .. } => {
                    if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == *ssrc) {
                        stream.reception.on_sr(now, *ntp);
                        stream.clock = Some(ClockReference { ntp: *ntp, rtp: *rtp });
                        self.half.on_sender_report(now);
                    }
                }
                Packet::Summary { ssrc, group: Some(group), .. }
                    if self.participant.summary() && self.stream.as_ref().is_none_or(|s| s.ssrc == *ssrc) =>
                {
                    self.participant.on_group_size(now, *ssrc, from, *group);
                }
                Packet::App { ssrc, subtype, name, data } if *name == self.app => {
                    let body = Body { subtype: *subtype, bytes: data.clone() };
                    if self.stream.as_ref().is_some_and(|s| s.ssrc == *ssrc) {
                        self.half.on_announce(&Announcement { at: now, body: &body });
                    // Pass on the feedback of another receiver, because it can make feedback of this receiver
                    // unnecessary.
                    } else if *ssrc != self.participant.identity.ssrc {
                        self.half.on_overheard(&Overheard { at: now, from: ReceiverId(*ssrc), body: &body });
                    }
                }
                Packet::App { ssrc, name: simulcast::APP, data, .. }
                    if self.stream.as_ref().is_some_and(|s| s.ssrc == *ssrc) =>
                {
                    self.siblings = simulcast::read_rates(data).unwrap_or_default();
                }
                Packet::App { .. } => self.on_parity_request(now, packet),
                _ => {}
            }
        }
        for ssrc in self.participant.read_byes(now, from, compound, len) {
            // Compare with the address of the media, because the source may not have sent RTCP before.
            if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == ssrc && s.from == from) {
                stream.ended = true;
                stream.successor = successor(compound, ssrc);
                self.participant.on_source(now, stream.successor.is_some());
            }
        }
    }

    /// Processes the sender reports of the audio stream. Returns whether the compound comes from the audio stream. The
    /// caller then ignores it, because the SSRC of the audio stream must not become a member.
    fn on_audio_compound(&mut self, now: Time, compound: &Compound) -> bool {
        let Some(audio) = &mut self.audio else { return false };
        for packet in &compound.packets {
            if let Packet::SenderReport { ssrc, ntp, rtp, .. } = packet {
                audio.on_sender_report(now, *ssrc, ClockReference { ntp: *ntp, rtp: *rtp });
            }
        }
        audio.ssrc().is_some() && audio.ssrc() == compound.sender()
    }

    /// Processes another member's parity request. It can suppress this receiver's own request.
    fn on_parity_request(&mut self, now: Time, packet: &Packet) {
        let (Some(stream), Ok(Some(asked))) = (&self.stream, ParityRequest::from_packet(packet)) else { return };
        if asked.media != stream.ssrc || asked.sender == self.participant.identity.ssrc {
            return;
        }
        let group = self.group();
        let Some(parity) = &mut self.parity else { return };
        for request in &asked.blocks {
            if let Some(base) = parity.solver.extended(request.base) {
                parity.requester.on_overheard(now, base, request, group);
            }
        }
    }

    /// Sets the fill level of the play-out buffer. Call this method before each poll.
    pub fn on_buffer(&mut self, now: Time, level: BufferLevel) {
        self.half.on_buffer(now, level);
    }

    /// Returns which packets can be delivered as a batch, or `None` if every packet has to be delivered immediately.
    pub fn batchable(&self) -> Option<Batchable> {
        // Do not batch with repair, parity, audio or a key-frame request, because they react to single packets.
        let asks = self.repair.is_some() || self.parity.is_some() || self.pending_key_frame.is_some();
        let asks = asks || self.audio.is_some();
        let speaks = self.presence.is_some() || self.sends_unscheduled || self.reporter.is_some();
        let stays = self.participant.farewell == Farewell::Stays;
        let stream = self.stream.as_ref().filter(|stream| !stream.ended && stream.ssrc != self.ssrc())?;
        let receivers = self.participant.members.reported_receivers().unwrap_or(0);
        (stays && !asks && !speaks && self.half.is_patient()).then_some(Batchable { source: stream.ssrc, receivers })
    }

    /// Leaves the session. One of the next polls returns the BYE. Poll afterwards.
    pub fn leave(&mut self) {
        self.participant.leave();
    }

    /// Returns whether the receiver is leaving but has not sent its BYE.
    pub fn leaving(&self) -> bool {
        matches!(self.participant.farewell, Farewell::Wanted | Farewell::Waits)
    }

    /// Returns whether the receiver has left.
    pub fn gone(&self) -> bool {
        self.participant.farewell == Farewell::Gone
    }

    /// Returns what the driver has to do now. Call this method after each call of another method, and at the time of
    /// the last [`Output::Wait`]. Repeat the call until the result is [`Output::Wait`].
    pub fn poll(&mut self, now: Time) -> Output {
        if let Some(bytes) = self.participant.pending_datagram(now) {
            return Output::Rtcp(bytes);
        }
        if self.participant.farewell != Farewell::Stays {
            if self.participant.farewell_due(now, false) {
                return Output::Rtcp(self.last_words(now));
            }
            return Output::Wait(self.participant.farewell_wake(now));
        }
        if self.presence_wake().is_some_and(|wake| wake.at <= now) {
            return Output::Rtcp(self.encode_presence_report(now));
        }
        if let Some(wake) = self.half.wake()
            && wake.at <= now
        {
            self.half.on_timer(now);
        }
        if self.feedback_due().is_some_and(|wake| wake.at <= now) {
            return Output::Rtcp(self.feedback(now));
        }
        // Schedule requests first, so that a report that is due can contain them.
        self.schedule_nack(now);
        self.schedule_parity_request(now);
        self.schedule_key_frame_request(now);
        // Send reports by RTCP's timer only if the controller does not schedule its reports itself.
        match self.half.due() {
            Due::At(wake) if wake.at <= now => {
                if let Some(bytes) = self.report(now) {
                    return Output::Rtcp(bytes);
                }
            }
            Due::Rtcp => match self.participant.expiry(now) {
                Some(Expiry::SendFeedback)
                    if self.repair.is_some() || self.pending_key_frame.is_some() || self.asks_parity() =>
                {
                    if let Some(bytes) = self.encode_request(now) {
                        return Output::Rtcp(bytes);
                    }
                }
                Some(_) => {
                    // Send the requests even if the controller suppresses its report.
                    if let Some(bytes) = self.report(now).or_else(|| self.encode_request(now)) {
                        return Output::Rtcp(bytes);
                    }
                }
                None => {}
            },
            _ => {}
        }
        // Send requests when RTCP's timer expires, even if the controller schedules its reports itself.
        if self.wants_to_ask()
            && self.half.due() != Due::Rtcp
            && self.participant.rtcp_due(now)
            && let Some(bytes) = self.encode_request(now)
        {
            return Output::Rtcp(bytes);
        }
        if self.keepalive_wake().is_some_and(|wake| wake.at <= now) && self.participant.rtcp_due(now) {
            return Output::Rtcp(self.encode_keepalive(now));
        }
        if self.proof_wake().is_some_and(|wake| wake.at <= now) && self.participant.rtcp_due(now) {
            return Output::Rtcp(self.encode_plain_report(now));
        }
        self.wait_until_due(now)
    }

    fn wait_until_due(&self, now: Time) -> Output {
        let due = match self.half.due() {
            Due::Rtcp => Some(self.participant.wake()),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        let asks = self.asks_at().map(|at| Wake { at, why: "packets are missing" });
        let quiet = [self.presence_wake(), self.keepalive_wake(), self.proof_wake()];
        let soonest =
            [due, self.half.wake(), self.feedback_due(), asks].into_iter().chain(quiet).flatten().min_by_key(|w| w.at);
        // Always wait for at least 1 ns. With a time in the past, the driver would poll without end.
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    fn report(&mut self, now: Time) -> Option<Vec<u8>> {
        let (expected, received) = (self.expected(), self.arrived());
        let slot = Slot {
            now,
            expected: expected - self.prior.expected.min(expected),
            // Use a signed number, because duplicates can make the loss negative (RFC 3550, section 6.4.1).
            lost: (expected as i64 - self.prior.expected as i64) - (received as i64 - self.prior.received as i64),
            members: self.participant.census().members,
            interval: self.participant.interval(),
            rtcp_share: self.participant.share(now),
        };
        let reply = self.half.report(&slot);
        if reply == Reply::Suppress {
            return None;
        }
        // Store the totals from which the next report counts. A report that is suppressed does not reach this line, so
        // the next report counts its packets as well.
        self.prior = Totals { expected, received, ..self.prior };
        self.last_report = Some(now);
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.receiver_report(now), self.participant.sdes()];
        if let Reply::Body(body) = reply {
            packets.push(app(ssrc, self.app, body));
        }
        packets.extend(self.packet_reports(now));
        packets.extend(self.parity_use(now));
        packets.extend(self.nack_packet(now));
        packets.extend(self.parity_request(now));
        packets.extend(self.key_frame_request(now));
        Some(self.encode(now, packets))
    }

    fn wants_to_ask(&self) -> bool {
        let asks = self.repair.as_ref().is_some_and(|repair| repair.scheduled) || self.asks_parity();
        asks || self.pending_key_frame.is_some_and(|pending_key_frame| pending_key_frame.scheduled)
    }

    fn asks_parity(&self) -> bool {
        self.parity.as_ref().is_some_and(|parity| parity.scheduled)
    }

    fn schedule_parity_request(&mut self, now: Time) {
        let Some(parity) = &self.parity else { return };
        if parity.scheduled || now < parity.not_before || parity.requester.wake().is_none_or(|at| at > now) {
            return;
        }
        let group = self.group();
        let Some(parity) = &mut self.parity else { return };
        if !parity.requester.wants(now, group) {
            return;
        }
        // The requester has already delayed the request at random, so RTCP's timer must not delay it at random again.
        parity.scheduled = self.participant.timer.request_dithered(now, parity.requester.useful(now, group));
        if !parity.scheduled {
            parity.not_before = self.participant.timer.next();
        }
    }

    /// Returns the parity request, if it is still needed.
    fn parity_request(&mut self, now: Time) -> Option<Packet> {
        let (media, group) = (self.stream.as_ref().filter(|s| !s.ended)?.ssrc, self.group());
        let parity = self.parity.as_mut()?;
        // Cancel the early packet, unless a key-frame request still needs it.
        if std::mem::take(&mut parity.scheduled)
            && !self.pending_key_frame.is_some_and(|pending_key_frame| pending_key_frame.scheduled)
        {
            self.participant.timer.cancel_early();
        }
        let blocks = parity.requester.take(now, group);
        if blocks.is_empty() {
            return None;
        }
        parity.counts.nacks += 1;
        parity.counts.asked += blocks.len() as u64;
        Some(ParityRequest { sender: self.participant.identity.ssrc, media, blocks }.to_packet())
    }

    fn parity_use(&mut self, now: Time) -> Option<Packet> {
        let media = self.stream.as_ref().filter(|s| !s.ended)?.ssrc;
        let due = |last: Option<Time>| last.is_none_or(|last| now.since(last) >= PLAYOUT_REPORT_INTERVAL);
        let parity = self.parity.as_mut().filter(|parity| parity.announces_playout && due(parity.announced))?;
        let playout = parity.settings.playout.filter(|playout| *playout > Span::ZERO)?;
        parity.announced = Some(now);
        Some(ParityUse { sender: self.participant.identity.ssrc, media, playout }.to_packet())
    }

    fn schedule_key_frame_request(&mut self, now: Time) {
        let Some(pending_key_frame) = self
            .pending_key_frame
            .as_mut()
            .filter(|pending_key_frame| !pending_key_frame.scheduled && pending_key_frame.at <= now)
        else {
            return;
        };
        pending_key_frame.scheduled = self.participant.timer.request_early(now, KEY_FRAME_REQUEST_USEFUL);
        if !pending_key_frame.scheduled {
            pending_key_frame.at = self.participant.timer.next().max(now);
        }
    }

    fn key_frame_request(&mut self, now: Time) -> Option<Packet> {
        let media = self.stream.as_ref().filter(|s| !s.ended)?.ssrc;
        let (sender, number) = (self.participant.identity.ssrc, self.intra);
        let pending_key_frame = self
            .pending_key_frame
            .as_mut()
            .filter(|pending_key_frame| pending_key_frame.scheduled || pending_key_frame.at <= now)?;
        (pending_key_frame.scheduled, pending_key_frame.at) = (false, now + KEY_FRAME_RETRY_INTERVAL);
        Some(match pending_key_frame.joins {
            true => KeyFrameRequest::FullIntra { sender, media, number }.to_packet(),
            false => KeyFrameRequest::PictureLoss { sender, media }.to_packet(),
        })
    }

    fn schedule_nack(&mut self, now: Time) {
        let Some(repair) = &mut self.repair else { return };
        if repair.scheduled || now < repair.not_before || repair.requester.wake().is_none_or(|at| at > now) {
            return;
        }
        // Use the controller's RTT until the first request is answered, because it is better than the default.
        if let Some(rtt) = self.half.view().rtt {
            repair.requester.on_round_trip(rtt);
        }
        if !repair.requester.wants(now) {
            return;
        }
        // If early feedback is not possible, the request waits for the next regular report.
        repair.scheduled = self.participant.timer.request_early(now, repair.requester.useful(now));
        if !repair.scheduled {
            repair.not_before = self.participant.timer.next();
        }
    }

    fn asks_at(&self) -> Option<Time> {
        let pending_key_frame = self.pending_key_frame.map(|pending_key_frame| {
            if pending_key_frame.scheduled { self.participant.timer.next() } else { pending_key_frame.at }
        });
        self.asks_for_packets_at().into_iter().chain(self.asks_for_parity_at()).chain(pending_key_frame).min()
    }

    fn asks_for_parity_at(&self) -> Option<Time> {
        let parity = self.parity.as_ref()?;
        if parity.scheduled {
            return Some(self.participant.timer.next());
        }
        Some(parity.requester.wake()?.max(parity.not_before))
    }

    fn asks_for_packets_at(&self) -> Option<Time> {
        let repair = self.repair.as_ref()?;
        if repair.scheduled {
            return Some(self.participant.timer.next());
        }
        Some(repair.requester.wake()?.max(repair.not_before))
    }

    fn nack_packet(&mut self, now: Time) -> Option<Packet> {
        let media = self.stream.as_ref().filter(|s| !s.ended)?.ssrc;
        let repair = self.repair.as_mut()?;
        // Cancel the early packet that was scheduled for the NACK, because the present packet contains the NACK.
        if std::mem::take(&mut repair.scheduled) {
            self.participant.timer.cancel_early();
        }
        let missing = repair.requester.take(now);
        let sender = self.participant.identity.ssrc;
        (!missing.is_empty()).then(|| Nack { sender, media, missing }.to_packet())
    }

    /// Encodes the requests that are due, without other reports (RFC 4585, section 3.1). The receiver report contains
    /// no block, so that requests do not change the input of the controller.
    fn encode_request(&mut self, now: Time) -> Option<Vec<u8>> {
        let requests = [self.nack_packet(now), self.parity_request(now), self.key_frame_request(now)];
        let asked: Vec<_> = requests.into_iter().flatten().collect();
        if asked.is_empty() {
            return None;
        }
        let report = Packet::ReceiverReport { ssrc: self.participant.identity.ssrc, blocks: Vec::new() };
        let packets = [report, self.participant.sdes()].into_iter().chain(asked).collect();
        Some(self.encode(now, packets))
    }

    fn feedback_due(&self) -> Option<Wake> {
        self.reporter.as_ref()?.due()
    }

    fn feedback(&mut self, now: Time) -> Vec<u8> {
        let mut packets = vec![self.receiver_report(now), self.participant.sdes()];
        packets.extend(self.packet_reports(now));
        packets.extend(self.parity_use(now));
        self.encode(now, packets)
    }

    fn packet_reports(&mut self, now: Time) -> Vec<Packet> {
        let ssrc = self.participant.identity.ssrc;
        // The default epoch is sufficient, because the sender uses only differences of these times.
        let ntp = NtpEpoch::default().middle(now);
        // Limit the feedback to the room that the report leaves in the datagram.
        let room = self.participant.room();
        self.reporter.as_mut().map_or_else(Vec::new, |reporter| reporter.write(now, ntp, ssrc, room))
    }

    fn encode(&mut self, now: Time, packets: Vec<Packet>) -> Vec<u8> {
        let bytes = self.participant.encode(now, packets);
        if let Some(reporter) = &mut self.reporter {
            reporter.sent(Bytes::new((bytes.len() + IP_UDP_OVERHEAD) as u64) + self.participant.waiting());
        }
        bytes
    }

    fn presence_wake(&self) -> Option<Wake> {
        Some(self.presence?.wake(self.stream.as_ref().map(|s| s.heard)))
    }

    fn encode_presence_report(&mut self, now: Time) -> Vec<u8> {
        if let Some(presence) = &mut self.presence {
            presence.on_report_sent(now);
        }
        self.encode_plain_report(now)
    }

    fn encode_plain_report(&mut self, now: Time) -> Vec<u8> {
        let packets = vec![self.receiver_report(now), self.participant.sdes()];
        self.participant.encode(now, packets)
    }

    /// Returns when a report without feedback is due in a group.
    ///
    /// A sender uses a member's reports only after two of them have repeated the LSRs of different sender reports. A
    /// controller that schedules its own reports may need many seconds for two reports, in which the sender's
    /// controller has no feedback.
    fn proof_wake(&self) -> Option<Wake> {
        let proves = self.sends_unscheduled && self.participant.is_group();
        let stream = self.stream.as_ref().filter(|s| proves && !s.ended)?;
        let lacks = stream.reception.lsr().is_some_and(|lsr| stream.repeated.lacks(lsr));
        lacks.then(|| Wake { at: self.participant.timer.next(), why: "first reports" })
    }

    /// Returns when the report for a pause of the media is due. It is due some time after the last packet, if no report
    /// has been sent since that packet.
    fn keepalive_wake(&self) -> Option<Wake> {
        let heard = self.stream.as_ref().filter(|s| self.sends_unscheduled && !s.ended)?.heard;
        let at = (heard + KEEPALIVE_DELAY).max(self.participant.timer.next());
        self.last_report.is_none_or(|reported| reported < heard).then_some(Wake { at, why: "media pauses" })
    }

    fn encode_keepalive(&mut self, now: Time) -> Vec<u8> {
        self.last_report = Some(now);
        let present =
            app(self.participant.identity.ssrc, self.app, Body { subtype: PRESENCE_SUBTYPE, bytes: Vec::new() });
        let packets = vec![self.receiver_report(now), self.participant.sdes(), present];
        self.participant.encode(now, packets)
    }

    fn receiver_report(&mut self, now: Time) -> Packet {
        let block = self.stream.as_mut().filter(|s| !s.ended).and_then(|s| s.report_block(now));
        // Add a block for the audio stream.
        let audio = self.audio.as_mut().filter(|_| block.is_some()).and_then(|audio| audio.report_block(now));
        let blocks = block.into_iter().chain(audio).collect();
        Packet::ReceiverReport { ssrc: self.participant.identity.ssrc, blocks }
    }

    fn last_words(&mut self, now: Time) -> Vec<u8> {
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.receiver_report(now), self.participant.sdes()];
        if let Some(body) = self.half.leave(now) {
            packets.push(app(ssrc, self.app, body));
        }
        packets.push(Packet::Bye { ssrcs: vec![ssrc], reason: String::new() });
        self.participant.encode(now, packets)
    }
}

/// Returns the SSRC with which a source continues after its BYE. The compound contains the same CNAME for both SSRCs.
fn successor(compound: &Compound, ssrc: u32) -> Option<u32> {
    let named =
        || compound.packets.iter().flat_map(|p| if let Packet::Sdes { chunks } = p { &chunks[..] } else { &[] });
    let (_, name) = named().find(|(of, _)| *of == ssrc)?;
    named().find(|(of, other)| *of != ssrc && other == name).map(|(of, _)| *of)
}

impl Stream {
    fn new(now: Time, from: Origin, header: &RtpHeader, ahead: i64) -> Self {
        Self {
            ssrc: header.ssrc,
            reception: Reception::new(header.ssrc, CLOCK_RATE),
            repeated: RepeatedLsrs::default(),
            ahead,
            heard: now,
            spoke: now,
            from,
            ended: false,
            successor: None,
            sent: None,
            clock: None,
            frame: (header.timestamp, now),
            pace: None,
            timestamp: header.timestamp,
            ticks: 0,
            // The first packet is assumed to start a frame.
            after_marker: true,
            marks: false,
        }
    }

    fn report_block(&mut self, now: Time) -> Option<ReportBlock> {
        let block = self.reception.report_block(now)?;
        self.repeated.add(block.lsr);
        Some(block)
    }

    /// Updates the maximum interval between frames. The maximum decays by an eighth per frame.
    fn keep_pace(&mut self, now: Time, timestamp: u32) {
        let (frame, began) = self.frame;
        if frame != timestamp {
            let step = now.since(began);
            // Ignore frames that arrived at the same time, because the time between them is not the frame interval.
            if !step.is_zero() {
                self.pace = Some(self.pace.map_or(step, |pace| step.max(pace * 7 / 8)));
            }
            self.frame = (timestamp, now);
        }
    }

    /// Returns the sequence number of the next packet in the session.
    fn next(&self) -> i64 {
        self.reception.highest().map_or(self.ahead, |highest| highest + self.ahead + 1)
    }

    /// Converts an extended sequence number of the source to a sequence number of the session.
    fn session_seq(&self, number: u64) -> u64 {
        number.saturating_add_signed(self.ahead)
    }

    /// Returns the time on the media clock, which is zero at the first packet.
    fn sampled(&mut self, timestamp: u32) -> PeerTime {
        let ahead = timestamp.wrapping_sub(self.timestamp) as i32;
        let ticks = self.ticks.saturating_add(i64::from(ahead));
        // Do not replace newer values if the packet is out of order.
        if ahead > 0 {
            (self.timestamp, self.ticks) = (timestamp, ticks);
        }
        // Use 128 bits, because the product exceeds 64 bits after 28 hours of media, or after five large jumps of the
        // timestamp.
        let nanos = i128::from(ticks) * 1_000_000_000 / i128::from(CLOCK_RATE);
        PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}
