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
use steadycast_wire::rtcp::{Compound, KeyFrameRequest, Nack, Packet, ParityRequest, ParityUse};
use steadycast_wire::rtp::{PayloadTypes, RtpHeader, TransportNumber};
use steadycast_wire::rtx;
use succession::OtherSource;

/// The result of processing a datagram from the RTP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet that had not arrived before, with its extended sequence number.
    New(u64),
    /// A retransmission of a lost packet, with the original's extended sequence number.
    Repaired(u64),
    /// A new audio packet, with its extended sequence number.
    Audio(u64),
    /// A packet that had arrived before.
    Duplicate,
    /// A packet that is not of the stream or cannot be used.
    Unused(UnusedReason),
}

/// A parsed RTP packet.
#[derive(Clone, Copy, Debug)]
pub struct MediaPacket<'a> {
    /// The RTP header.
    pub header: &'a RtpHeader,
    /// The content of the controller's header extension; empty if there is none.
    pub notice: &'a [u8],
    /// The transport-wide sequence number, if the packet carries one.
    pub transport: Option<u16>,
    /// The original's sequence number in a retransmission; `None` in media packets.
    pub repairs: Option<u16>,
    /// The IP size of the packet.
    pub size: Bytes,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The level of the play-out buffer, if there is one.
    pub buffer: Option<BufferLevel>,
}

/// Packet counts since the beginning of the session.
#[derive(Clone, Copy, Default)]
struct Totals {
    expected: u64,
    /// Received packets, duplicates included.
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
    /// Another source, which may replace the followed one.
    other: Option<OtherSource>,
    /// The value of [`Receiver::run`].
    run: (u32, u64),
    payload_types: Option<PayloadTypes>,
    /// The media's SSRC according to a session description.
    named: Option<u32>,
    /// When the driver's clock last resumed after a gap.
    resumed: Time,
    /// The counts of earlier streams.
    past: Totals,
    /// The counts at the last regular report. The next report has the difference from these counts.
    prior: Totals,
    unreadable: u64,
    /// The timer of reports that announce the receiver's presence in a simulcast.
    presence: Option<PresenceTimer>,
    /// The rates of the simulcast's groups, in ascending order.
    siblings: Vec<Rate>,
    /// Whether keep-alive reports are sent.
    sends_keepalives: bool,
    last_report: Option<Time>,
    reporter: Option<Box<Reporter>>,
    repair: Option<Box<RetransmissionReceiver>>,
    pending_key_frame: Option<PendingKeyFrameRequest>,
    /// Number of the last full intra request (RFC 5104, section 4.3.1.1).
    intra: u8,
    parity: Option<Box<ParityReceiver>>,
    audio: Option<Box<AudioReceiver>>,
}

struct ParityReceiver {
    settings: ParitySettings,
    /// Whether the SSRC is not signalled, but learned from a packet.
    any_ssrc: bool,
    /// Whether the SSRC has been signalled or learned.
    associated: bool,
    solver: Solver,
    requester: ParityRequester,
    /// Whether RTCP's timer has scheduled a request.
    scheduled: bool,
    not_before: Time,
    counts: Requests,
    announces_playout: bool,
    announced: Option<Time>,
    reception: Reception,
    /// The newest packet's send time. `Stamp::peer` needs it to read the next packet's send time, which wraps.
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
            reception: Reception::trusting(settings.ssrc, CLOCK_RATE),
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
    /// Whether nothing was decoded yet. The request is then a FIR, otherwise a PLI.
    joins: bool,
    at: Time,
    /// Whether RTCP's timer has scheduled this request.
    scheduled: bool,
}

/// The request or its answer may be lost.
const KEY_FRAME_RETRY_INTERVAL: Span = Span::millis(700);
/// Maximum delay of an early RTCP packet with a key-frame request.
const KEY_FRAME_REQUEST_USEFUL: Span = Span::secs(1);
const PLAYOUT_REPORT_INTERVAL: Span = Span::secs(1);

struct RetransmissionReceiver {
    settings: RepairSettings,
    /// Whether the SSRC is not signalled, but learned from a packet.
    any_ssrc: bool,
    /// Whether the SSRC has been signalled or learned.
    associated: bool,
    /// The SSRC in the sender's session description.
    announced: Option<u32>,
    requester: NackRequester,
    reception: Reception,
    /// The newest packet's send time. `Stamp::peer` needs it to read the next packet's send time, which wraps.
    sent: Option<PeerTime>,
    /// Whether RTCP's timer has scheduled a request.
    scheduled: bool,
    not_before: Time,
    /// The number of media packets counted as received. Those on probation count once confirmed.
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
            reception: Reception::trusting(settings.ssrc, CLOCK_RATE),
            sent: None,
            scheduled: false,
            not_before: Time::ZERO,
            checked_packets: 0,
            check: Check::new(&REPAIR_NOT_COUNTED),
        }
    }
}

/// Time without packets after which a keep-alive is sent.
const KEEPALIVE_DELAY: Span = Span::millis(500);
/// The subtype of an empty APP packet, which shows that the receiver supports the controller.
const PRESENCE_SUBTYPE: u8 = 31;

struct Stream {
    ssrc: u32,
    reception: Reception,
    /// This is added to sequence numbers, so that they continue after an SSRC change.
    ahead: i64,
    /// The last arrival of a media packet.
    heard: Time,
    /// The last arrival of media or RTCP.
    spoke: Time,
    from: Origin,
    /// Whether the source has sent BYE.
    ended: bool,
    /// The SSRC under which the source continues after its BYE.
    successor: Option<u32>,
    /// The send time of the latest media packet, from its header extension or else its RTP timestamp.
    sent: Option<PeerTime>,
    /// The RTP and NTP time of the last sender report.
    clock: Option<ClockReference>,
    /// The newest frame's RTP timestamp and first arrival.
    frame: (u32, Time),
    /// Maximum interval between frames; decays by an eighth per frame.
    pace: Option<Span>,
    /// The newest frame's RTP timestamp.
    timestamp: u32,
    /// The media clock at `timestamp`, in ticks since the first packet.
    ticks: i64,
    /// Whether the next packet begins a frame.
    after_marker: bool,
    /// Whether any packet had a marker. Without markers, a new timestamp begins a frame.
    marks: bool,
}

impl Receiver {
    /// Creates a receiver that joins at `now`. `chance` randomises the RTCP intervals.
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
        let (presence, siblings, sends_keepalives, last_report) = (None, Vec::new(), false, None);
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
            sends_keepalives,
            last_report,
            reporter: None,
            repair: None,
            pending_key_frame: None,
            intra: 0,
            parity: None,
            audio: None,
        }
    }

    /// Sends an empty report when no media arrives, because some senders stop until they get a report.
    #[must_use]
    pub fn answering(self) -> Self {
        Self { sends_keepalives: true, ..self }
    }

    /// Accepts only the payload types of a session description. `named` is the SSRC in the description.
    ///
    /// The source with the SSRC `named` replaces the followed source immediately. When another source replaces this
    /// source, `named` is cleared, because the sender may have restarted under another SSRC.
    #[must_use]
    pub fn described(self, payload_types: Option<PayloadTypes>, named: Option<u32>) -> Self {
        Self { payload_types, named, ..self }
    }

    /// Reports that the driver's clock stood still until `now`, for example in suspend. The gap does not count as
    /// silence.
    pub fn on_clock_gap(&mut self, now: Time) {
        self.resumed = self.resumed.max(now);
    }

    /// Announces the receiver, because a simulcast sends only to groups with a member.
    #[must_use]
    pub fn in_simulcast(self, now: Time) -> Self {
        Self { presence: Some(PresenceTimer::new(now)), ..self }
    }

    /// The rates of the simulcast's groups as last announced, in ascending order; empty without an announcement.
    pub fn siblings(&self) -> &[Rate] {
        &self.siblings
    }

    /// Sends per-packet feedback. It takes at most 5 % of the session `bandwidth`, unless the maximum interval of 200
    /// ms requires more.
    #[must_use]
    pub fn with_feedback(self, format: FeedbackFormat, bandwidth: Rate) -> Self {
        // Only WebRTC peers are authenticated, by DTLS.
        let webrtc = self.participant.is_authenticated();
        Self { reporter: Reporter::new(format, bandwidth, webrtc).map(Box::new), ..self }
    }

    /// Enables NACKs and a retransmission stream (RFC 4588), for two members under [`crate::Profile::Avpf`].
    #[must_use]
    pub fn with_repair(self, settings: RepairSettings) -> Self {
        Self { repair: Some(Box::new(RetransmissionReceiver::new(settings))), ..self }
    }

    /// Like [`Receiver::with_repair`], but learns the SSRC from each media source's first requested retransmission (RFC
    /// 4588, section 5.3). An SSRC other than 0 in `settings` is known from the start.
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

    /// Requests a key frame until [`Receiver::has_key_frame`] is called. Poll afterwards.
    ///
    /// The request is FIR (RFC 5104) if `joins`, otherwise PLI (RFC 4585). It is only sent under
    /// [`crate::Profile::Avpf`].
    pub fn needs_key_frame(&mut self, now: Time, joins: bool) {
        if self.pending_key_frame.is_none_or(|pending_key_frame| pending_key_frame.joins != joins) {
            // Only a new FIR has a new number, not a repetition of it (RFC 5104, section 4.3.1.1).
            self.intra = self.intra.wrapping_add(u8::from(joins));
            self.pending_key_frame = Some(PendingKeyFrameRequest { joins, at: now, scheduled: false });
        }
    }

    /// Ends the key-frame request.
    pub fn has_key_frame(&mut self) {
        self.pending_key_frame = None;
    }

    /// Enables parity. In a small group, the receiver also requests more parity, at random times from `chance`.
    #[must_use]
    pub fn with_parity(self, settings: ParitySettings, chance: Chance) -> Self {
        Self { parity: Some(Box::new(ParityReceiver::new(settings, chance))), ..self }
    }

    /// Like [`Receiver::with_parity`], but learns the SSRC from each media source's first packet of the parity payload
    /// type.
    #[must_use]
    pub fn with_parity_of_any_source(self, settings: ParitySettings, chance: Chance) -> Self {
        let parity = ParityReceiver { any_ssrc: true, associated: false, ..ParityReceiver::new(settings, chance) };
        Self { parity: Some(Box::new(parity)), ..self }
    }

    /// Announces the use of parity and the play-out delay once a second ([`crate::SenderSettings::parity_on_word`]).
    /// Requires [`Receiver::with_parity`] and a play-out delay above zero.
    #[must_use]
    pub fn telling_playout(mut self) -> Self {
        if let Some(parity) = &mut self.parity {
            parity.announces_playout = true;
        }
        self
    }

    /// Enables audio of this payload type. Each video source's first audio packet tells the SSRC.
    #[must_use]
    pub fn with_audio(self, payload_type: u8) -> Self {
        Self { audio: Some(Box::new(AudioReceiver::new(payload_type))), ..self }
    }

    /// Converts an audio RTP timestamp to the video's; `None` before both streams' sender reports.
    pub fn video_timestamp(&self, audio: u32) -> Option<u32> {
        let video = self.stream.as_ref()?.clock?;
        Some(video_timestamp(self.audio.as_ref()?.clock?, video, audio))
    }

    /// Adds an authenticated packet without media, for example padding, to the feedback. Poll afterwards.
    pub fn on_padding(&mut self, now: Time, packet: &MediaPacket<'_>) {
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, false);
        }
    }

    /// Processes an audio packet, whose loss does not affect the controller.
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
            Arrived::Probation | Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        if let Some(reporter) = &mut self.reporter {
            // Only the end of a video frame makes a report due early.
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

    /// Adds parity over the packets in `protection`. Recovered packets still count as lost for the controller. Poll
    /// afterwards.
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
        // The first packet of this type tells an SSRC that was not signalled.
        if !parity.associated && header.ssrc != stream.ssrc {
            parity.settings.ssrc = header.ssrc;
            (parity.reception, parity.associated) = (Reception::trusting(header.ssrc, CLOCK_RATE), true);
        }
        if header.ssrc != parity.settings.ssrc {
            return Received::Unused(UnusedReason::OtherSource);
        }
        let before = parity.reception.highest();
        let (seq, missing) = match parity.reception.on_rtp(now, header.seq, header.timestamp) {
            Arrived::New(seq) => (seq, before.map_or(0, |before| (seq - before - 1).max(0).unsigned_abs())),
            Arrived::Restarted(seq) => (seq, 0),
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Probation | Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, false);
        }
        let sent = header.send_time.map(|stamp| stamp.peer(parity.sent.or(stream.sent)));
        parity.sent = sent.or(parity.sent);
        let sent = sent.or(stream.sent).unwrap_or_default();
        // `take_recovered` returns the recovered packets.
        let need = parity.solver.on_parity(protection);
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Parity, size, sent, ecn, missing });
        self.on_need(now, need);
        Received::New(u64::try_from(seq).unwrap_or(0))
    }

    /// Updates the parity requests for a block's new state. A receiver with NACKs makes none.
    fn on_need(&mut self, now: Time, need: Option<Need>) {
        let idle = self.parity.as_ref().is_none_or(|parity| parity.requester.is_idle());
        // A complete block only matters if it cancels a pending request.
        let Some(need) = need.filter(|need| self.repair.is_none() && !(idle && need.lacks == 0)) else { return };
        let group = self.group();
        if let Some(parity) = &mut self.parity {
            parity.requester.on_need(now, &need, &parity.settings, group);
        }
    }

    fn group(&self) -> Group {
        Group { members: self.participant.census().members, round_trip: self.half.view().rtt }
    }

    /// Takes the packets recovered from parity since the last call.
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

    /// Returns whether `ssrc` at this address is the followed source; `None` without a source.
    pub fn is_source(&self, ssrc: u32, from: Origin) -> Option<bool> {
        self.stream.as_ref().map(|stream| (stream.ssrc, stream.from) == (ssrc, from))
    }

    /// Returns the counts of requests and repaired packets.
    pub fn requests(&self) -> Requests {
        let packets = self.repair.as_ref().map(|repair| repair.requester.counts).unwrap_or_default();
        packets + self.parity.as_ref().map(|parity| parity.counts).unwrap_or_default()
    }

    /// Sets the play-out delay: the time from a frame being ready to its display. Packets that would arrive after the
    /// display are not requested.
    pub fn set_playout(&mut self, delay: Span) {
        if let Some(repair) = &mut self.repair {
            repair.requester.set_playout(delay);
        }
        if let Some(parity) = &mut self.parity {
            parity.settings.playout = Some(delay);
        }
    }

    /// Returns the time from a lost packet's expected arrival to its repair's arrival; zero without repair.
    pub fn repair_time(&self, now: Time) -> Span {
        match (&self.repair, &self.parity) {
            (Some(repair), _) => repair.requester.repair_time(now),
            (None, Some(parity)) => parity.settings.block(),
            (None, None) => Span::ZERO,
        }
    }

    /// Returns the check that repaired packets still count as lost for the controller.
    pub fn repair_check(&self) -> Option<Check> {
        Some(self.repair.as_ref()?.check)
    }

    /// Returns the receiver half's estimate of the path's rate.
    pub fn acceptable(&self) -> Option<Rate> {
        self.half.acceptable()
    }

    /// Returns the check that no datagram exceeds the path's MTU.
    pub fn mtu_check(&self) -> Check {
        self.participant.mtu_check()
    }

    /// Arrivals that were not reported because of the 5 % limit, and RTCP packets too large for a datagram.
    pub fn untold(&self) -> (u64, u64) {
        (self.reporter.as_ref().map_or(0, |reporter| reporter.untold()), self.participant.refused())
    }

    /// Returns the SSRC, which changes after a collision.
    pub fn ssrc(&self) -> u32 {
        self.participant.identity.ssrc
    }

    /// Returns the receiver half's internal state for the record of a run.
    pub fn view(&self) -> View {
        self.half.view()
    }

    /// Returns the run-time checks of the receiver half.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns the interarrival jitter (RFC 3550, appendix A.8).
    pub fn jitter(&self) -> Span {
        self.stream.as_ref().map_or(Span::ZERO, |s| s.reception.jitter())
    }

    /// Packets from the first that arrived to the newest.
    pub fn expected(&self) -> u64 {
        self.past.expected + self.stream.as_ref().map_or(0, |s| s.reception.expected())
    }

    /// Returns the number of distinct packets that arrived.
    pub fn received(&self) -> u64 {
        let duplicates = self.past.duplicates + self.stream.as_ref().map_or(0, |s| s.reception.duplicates());
        self.arrived().saturating_sub(duplicates)
    }

    /// Returns the number of packets that arrived, duplicates included.
    fn arrived(&self) -> u64 {
        self.past.received + self.stream.as_ref().map_or(0, |s| s.reception.received())
    }

    /// Whether the followed source has left, and does not continue under another SSRC.
    pub fn source_ended(&self) -> bool {
        let goes_on = |successor: u32| self.participant.members.contains(successor);
        self.stream.as_ref().is_some_and(|s| s.ended && !s.successor.is_some_and(goes_on))
    }

    /// Returns the number of datagrams that could not be parsed.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Processes a datagram from the RTP port; `None` if it is not RTP. Poll afterwards.
    pub fn on_rtp<'a>(
        &mut self,
        now: Time,
        from: Origin,
        datagram: &'a [u8],
        ecn: Ecn,
        buffer: Option<BufferLevel>,
    ) -> Option<(Received, RtpHeader, &'a [u8])> {
        // RTCP may share the port (RFC 5761), and would parse as RTP.
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
                // Any other element is assumed to be the controller's header extension. The receiver half checks it.
                None => notice = notice.or(Some(bytes)),
            }
        }
        // RFC 4588, section 4.
        let again = self.is_repair(&header).then(|| payload.split_first_chunk::<{ rtx::OSN }>()).flatten();
        let repairs = again.map(|(original, _)| u16::from_be_bytes(*original));
        let notice = notice.unwrap_or_default();
        let packet = MediaPacket { header: &header, notice, transport, repairs, size, ecn, buffer };
        let received = self.on_media(now, from, &packet);
        let (Some((_, behind)), Some(number)) = (again, repairs) else { return Some((received, header, payload)) };
        // The depacketizer gets the original's header, whose send time is unknown.
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

    /// Processes a retransmission. The original still counts as lost for the controller.
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
            // The first requested retransmission shows the stream's SSRC (RFC 4588, section 5.3).
            let awaited = packet.repairs.is_some_and(|number| repair.requester.awaits(number));
            if !awaited && repair.announced != Some(header.ssrc) {
                return Received::Unused(UnusedReason::UnaskedRepair);
            }
            repair.settings.ssrc = header.ssrc;
            (repair.reception, repair.associated) = (Reception::trusting(header.ssrc, CLOCK_RATE), true);
        }
        let before = repair.reception.highest();
        let arrived = repair.reception.on_rtp(now, header.seq, header.timestamp);
        // Any copy's CE mark counts (RFC 8888, section 3.1).
        let fresh = !matches!(arrived, Arrived::Stray | Arrived::Probation);
        if let Some(reporter) = self.reporter.as_mut().filter(|_| fresh) {
            reporter.on_packet(now, packet, false);
        }
        let missing = match arrived {
            Arrived::New(seq) => before.map_or(0, |before| (seq - before - 1).max(0).unsigned_abs()),
            Arrived::Restarted(_) => 0,
            Arrived::Duplicate(_) => return Received::Duplicate,
            Arrived::Probation | Arrived::Stray => return Received::Unused(UnusedReason::FarNumber),
        };
        let sent = header.send_time.map(|stamp| stamp.peer(repair.sent.or(stream.sent)));
        repair.sent = sent.or(repair.sent);
        let sent = sent.or(stream.sent).unwrap_or_default();
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Repair, size, sent, ecn, missing });
        // Only a requested packet that is still missing counts as repaired.
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
            // Another participant uses this SSRC (RFC 3550, section 8.2).
            self.check_media_address(now, header.ssrc, from);
            return Received::Unused(UnusedReason::OwnSource);
        }
        // A restarted source may have a new address.
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
                // Any copy's CE mark counts (RFC 8888, section 3.1).
                if let Some(reporter) = &mut self.reporter {
                    reporter.on_packet(now, packet, false);
                }
                return Received::Duplicate;
            }
            Arrived::Probation | Arrived::Stray | Arrived::Restarted(_) => {
                return Received::Unused(UnusedReason::FarNumber);
            }
        };
        if let Some(reporter) = &mut self.reporter {
            reporter.on_packet(now, packet, header.marker);
        }
        stream.keep_pace(now, header.timestamp);
        (stream.heard, stream.spoke, stream.from) = (now, now, from);
        // NACKs use the source's sequence numbers (`number`). The session uses continuous numbers (`seq`).
        let (number, seq) = (u64::try_from(seq).unwrap_or(0), u64::try_from(seq + stream.ahead).unwrap_or(0));
        // Without a send-time extension, the media clock is the best substitute.
        let anew = !stream.marks && header.timestamp != stream.timestamp;
        let sampled = stream.sampled(header.timestamp);
        let sent = header.send_time.map_or(sampled, |stamp| stamp.peer(stream.sent));
        stream.sent = Some(sent);
        let edge = FrameEdge { first: stream.after_marker || anew, last: header.marker };
        stream.after_marker = header.marker;
        stream.marks |= header.marker;
        self.half.on_arrival(&Arrival { at: now, seq, size, sent, sampled, edge, ecn, notice, buffer });
        // Parity may have arrived before this packet.
        let need = self.parity.as_mut().and_then(|parity| parity.solver.on_packet(number));
        if let Some(repair) = &mut self.repair {
            match header.send_time {
                Some(_) => repair.requester.on_original(now, number, sent, header.marker),
                None => repair.requester.on_unstamped(now, number, sent, header.marker),
            }
            // The difference may include packets on probation that this packet has confirmed.
            repair.checked_packets += stream.reception.received() - before;
            // Retransmissions must not change the report block's counters.
            let duplicates = self.past.duplicates + stream.reception.duplicates();
            repair.check.see(
                repair.checked_packets == (self.past.received + stream.reception.received()).saturating_sub(duplicates),
            );
        }
        self.on_need(now, need);
        Received::New(seq)
    }

    /// Returns whether media from this address may be used. A source keeps its first address (RFC 3550, section 8.2).
    fn check_media_address(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
        let heard = self.participant.members.on_rtp(now, ssrc, from, true);
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

    /// Returns whether RTCP from this address is ignored. In unicast, other addresses than the media's could add
    /// members, and so delay reports (RFC 3550, section 6.3.1).
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
                    // This is another receiver's feedback. It can make this receiver's feedback unnecessary.
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
            // A source without earlier RTCP is identified by the media's address.
            if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == ssrc && s.from == from) {
                stream.ended = true;
                stream.successor = successor(compound, ssrc);
                self.participant.on_source(now, stream.successor.is_some());
            }
        }
    }

    /// Whether the compound is the audio stream's, whose SSRC is not a further member.
    fn on_audio_compound(&mut self, now: Time, compound: &Compound) -> bool {
        let Some(audio) = &mut self.audio else { return false };
        for packet in &compound.packets {
            if let Packet::SenderReport { ssrc, ntp, rtp, .. } = packet {
                audio.on_sender_report(now, *ssrc, ClockReference { ntp: *ntp, rtp: *rtp });
            }
        }
        audio.ssrc().is_some() && audio.ssrc() == compound.sender()
    }

    /// Processes another member's parity request, which can suppress this receiver's.
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

    /// Sets the play-out buffer's level, before each poll.
    pub fn on_buffer(&mut self, now: Time, level: BufferLevel) {
        self.half.on_buffer(now, level);
    }

    /// Returns which packets may be delivered in a batch; `None` if none may wait.
    pub fn batchable(&self) -> Option<Batchable> {
        // Requests, parity and audio react to single packets.
        let asks = self.repair.is_some() || self.parity.is_some() || self.pending_key_frame.is_some();
        let asks = asks || self.audio.is_some();
        let speaks = self.presence.is_some() || self.sends_keepalives || self.reporter.is_some();
        let stays = self.participant.farewell == Farewell::Stays;
        let stream = self.stream.as_ref().filter(|stream| !stream.ended && stream.ssrc != self.ssrc())?;
        let receivers = self.participant.members.reported_receivers().unwrap_or(0);
        (stays && !asks && !speaks && self.half.is_patient()).then_some(Batchable { source: stream.ssrc, receivers })
    }

    /// Leaves the session. A later poll returns the BYE. Poll afterwards.
    pub fn leave(&mut self) {
        self.participant.leave();
    }

    /// Whether the receiver is leaving, but has not sent its BYE.
    pub fn leaving(&self) -> bool {
        matches!(self.participant.farewell, Farewell::Wanted | Farewell::Waits)
    }

    /// Returns whether the receiver has left.
    pub fn gone(&self) -> bool {
        self.participant.farewell == Farewell::Gone
    }

    /// Returns what to do now. Call it after each call of another method, and at the time in the last [`Output::Wait`].
    /// Repeat the call until it returns [`Output::Wait`].
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
        // Requests are scheduled first, so that a due report can carry them.
        self.schedule_nack(now);
        self.schedule_parity_request(now);
        self.schedule_key_frame_request(now);
        // If the controller schedules its own reports, RTCP's timer is not used.
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
                    // A receiver half that suppresses its report must not hold back requests.
                    if let Some(bytes) = self.report(now).or_else(|| self.encode_request(now)) {
                        return Output::Rtcp(bytes);
                    }
                }
                None => {}
            },
            _ => {}
        }
        // Requests use RTCP's timer, even if the half has its own.
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
        self.wait_until_due(now)
    }

    fn wait_until_due(&self, now: Time) -> Output {
        let due = match self.half.due() {
            Due::Rtcp => Some(self.participant.wake()),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        let asks = self.asks_at().map(|at| Wake { at, why: "packets are missing" });
        let soonest = [due, self.half.wake(), self.presence_wake(), self.keepalive_wake(), self.feedback_due(), asks]
            .into_iter()
            .flatten()
            .min_by_key(|w| w.at);
        // A time in the past would let the driver poll forever.
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    fn report(&mut self, now: Time) -> Option<Vec<u8>> {
        let (expected, received) = (self.expected(), self.arrived());
        let slot = Slot {
            now,
            expected: expected - self.prior.expected.min(expected),
            // Duplicates can make the loss negative (RFC 3550, section 6.4.1).
            lost: (expected as i64 - self.prior.expected as i64) - (received as i64 - self.prior.received as i64),
            members: self.participant.census().members,
            interval: self.participant.interval(),
            rtcp_share: self.participant.share(now),
        };
        let reply = self.half.report(&slot);
        if reply == Reply::Suppress {
            return None;
        }
        // The counts start again only with a report that is sent, so the next report covers the packets of a suppressed
        // one.
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
        // The requester's delay is already random, so RTCP's timer adds none.
        parity.scheduled = self.participant.request_dithered(now, parity.requester.useful(now, group));
        if !parity.scheduled {
            parity.not_before = self.participant.timer.next();
        }
    }

    /// Returns a parity request, if still needed.
    fn parity_request(&mut self, now: Time) -> Option<Packet> {
        let (media, group) = (self.stream.as_ref().filter(|s| !s.ended)?.ssrc, self.group());
        let parity = self.parity.as_mut()?;
        // A key-frame request may still need the early packet.
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
        pending_key_frame.scheduled = self.participant.request_early(now, KEY_FRAME_REQUEST_USEFUL);
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
        // Before the first answer, the controller's RTT is better than the default.
        if let Some(rtt) = self.half.view().rtt {
            repair.requester.on_round_trip(rtt);
        }
        if !repair.requester.wants(now) {
            return;
        }
        // Without early feedback, the request waits for the next regular report.
        repair.scheduled = self.participant.request_early(now, repair.requester.useful(now));
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
        // The packet that is being built contains the NACK. The early packet that was scheduled for it is not needed.
        if std::mem::take(&mut repair.scheduled) {
            self.participant.timer.cancel_early();
        }
        let missing = repair.requester.take(now);
        let sender = self.participant.identity.ssrc;
        (!missing.is_empty()).then(|| Nack { sender, media, missing }.to_packet())
    }

    /// Encodes the due requests without other reports (RFC 4585, section 3.1). The receiver report has no block, so
    /// that requests do not change the input of the controller.
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
        // Only differences are used, so any epoch will do.
        let ntp = NtpEpoch::default().middle(now);
        // The feedback has to fit beside the report.
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
        let packets = vec![self.receiver_report(now), self.participant.sdes()];
        self.participant.encode(now, packets)
    }

    /// Returns when a keep-alive is due: some time after the last packet, if no report was sent since.
    fn keepalive_wake(&self) -> Option<Wake> {
        let heard = self.stream.as_ref().filter(|s| self.sends_keepalives && !s.ended)?.heard;
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
        let block = self.stream.as_mut().filter(|s| !s.ended).and_then(|s| s.reception.report_block(now));
        // The second block is for the audio stream.
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

/// Returns the SSRC under which a source continues: the compound has the same CNAME for both.
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
            reception: Reception::trusting(header.ssrc, CLOCK_RATE),
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
            // The first packet counts as the start of a frame.
            after_marker: true,
            marks: false,
        }
    }

    /// Updates the maximum frame interval, which decays by an eighth per frame.
    fn keep_pace(&mut self, now: Time, timestamp: u32) {
        let (frame, began) = self.frame;
        if frame != timestamp {
            let step = now.since(began);
            // Packets released from probation have the same arrival time.
            if !step.is_zero() {
                self.pace = Some(self.pace.map_or(step, |pace| step.max(pace * 7 / 8)));
            }
            self.frame = (timestamp, now);
        }
    }

    /// Returns the next sequence number in the session's numbering.
    fn next(&self) -> i64 {
        self.reception.highest().map_or(self.ahead, |highest| highest + self.ahead + 1)
    }

    /// Converts the source's extended sequence number to the session's.
    fn session_seq(&self, number: u64) -> u64 {
        number.saturating_add_signed(self.ahead)
    }

    /// Returns the media clock, which starts at zero with the first packet.
    fn sampled(&mut self, timestamp: u32) -> PeerTime {
        let ahead = timestamp.wrapping_sub(self.timestamp) as i32;
        let ticks = self.ticks.saturating_add(i64::from(ahead));
        // A reordered packet must not replace newer values.
        if ahead > 0 {
            (self.timestamp, self.ticks) = (timestamp, ticks);
        }
        // The product exceeds 64 bits after 28 hours of media, or after five large jumps of the timestamp.
        let nanos = i128::from(ticks) * 1_000_000_000 / i128::from(CLOCK_RATE);
        PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}
