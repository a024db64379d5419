mod succession;

pub use succession::Waiting;

use crate::batchable::Batchable;
use crate::feedback::{Reporter, TRANSPORT_NUMBER_ID};
use crate::participant::{Farewell, Participant, Standing};
use crate::repair::{Group, Need, ParityRequester, Requester, Solver};
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
use succession::Other;

/// What a datagram on the RTP port turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet that had not come before, with its extended sequence number.
    New(u64),
    /// A packet that was lost and has been sent again, with the extended sequence number of the original.
    Repaired(u64),
    /// A packet that had come before.
    Duplicate,
    /// A packet that is not of the stream, or can't be used.
    Unused(UnusedReason),
}

/// An RTP packet that has arrived, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct MediaPacket<'a> {
    /// Its header.
    pub header: &'a RtpHeader,
    /// What the sender half sent along; empty when nothing.
    pub notice: &'a [u8],
    /// Its transport-wide number, where it carries one.
    pub transport: Option<u16>,
    /// The number of the original that stands before the payload of a retransmission; `None` in the media.
    pub repairs: Option<u16>,
    /// Its IP size.
    pub size: Bytes,
    /// Its ECN field on arrival.
    pub ecn: Ecn,
    /// The play-out buffer, where the session has one.
    pub buffer: Option<BufferLevel>,
}

/// Packets since the beginning.
#[derive(Clone, Copy, Default)]
struct Totals {
    expected: u64,
    /// Duplicates included.
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

/// The receiving end of a session.
pub struct Receiver {
    half: Box<dyn ReceiverHalf>,
    participant: Participant,
    app: [u8; 4],
    stream: Option<Stream>,
    /// Another source that sends media.
    other: Option<Other>,
    /// See [`Receiver::run`].
    run: (u32, u64),
    /// The media's payload types and its source, where a description says so.
    payload_types: Option<PayloadTypes>,
    named: Option<u32>,
    /// When the driver's clock last went on after it had stood still.
    resumed: Time,
    /// What streams before the present one came to.
    past: Totals,
    /// What the last regular report was about: a half wants signed, full-precision losses.
    prior: Totals,
    unreadable: u64,
    /// In a simulcast.
    knock: Option<PresenceTimer>,
    siblings: Vec<Rate>,
    /// Whether it answers what little a sender sends that has nobody; and when it said anything last.
    answers: bool,
    said: Option<Time>,
    /// Writes per-packet feedback.
    reporter: Option<Box<Reporter>>,
    /// Asks for lost packets.
    repair: Option<Box<RetransmissionReceiver>>,
    /// Asks for a key frame.
    pending_key_frame: Option<PendingKeyFrameRequest>,
    /// The number of its last full intra request.
    intra: u8,
    /// Computes lost packets from parity.
    parity: Option<Box<ParityReceiver>>,
}

/// What a receiver needs to compute lost packets from parity.
struct ParityReceiver {
    settings: ParitySettings,
    /// Whether nobody has said under which SSRC parity comes, and whether it is known by now.
    any_ssrc: bool,
    associated: bool,
    solver: Solver,
    /// Asks for more of it.
    requester: ParityRequester,
    /// RTCP's timer knows that there is something to ask for.
    scheduled: bool,
    /// Nothing can be asked for before.
    not_before: Time,
    /// Requests, the blocks in them, and packets that parity gave back.
    counts: Requests,
    /// Whether it tells the sender its play-out delay, and when it did last.
    tells: bool,
    told: Option<Time>,
    /// The stream's own numbers.
    reception: Reception,
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
            tells: false,
            told: None,
            reception: Reception::trusting(settings.ssrc, CLOCK_RATE),
            sent: None,
        }
    }

    /// Another source, or the same one from another number on.
    fn restart(&mut self) {
        self.solver.restart();
        self.requester.clear();
        self.told = None;
    }
}

/// A request for a key frame that stands.
#[derive(Clone, Copy, Debug)]
struct PendingKeyFrameRequest {
    /// Nothing could be decoded so far.
    joins: bool,
    /// Not to be sent, or sent again, before.
    at: Time,
    /// RTCP's timer knows of it.
    scheduled: bool,
}

/// A key frame is asked for again after this time: when the answer, or the request, was lost.
const KEY_FRAME_RETRY_INTERVAL: Span = Span::millis(700);
/// For how long a request for a key frame is of use.
const KEY_FRAME_REQUEST_USEFUL: Span = Span::secs(1);
/// A sender is told the play-out delay this often.
const PLAYOUT_REPORT_INTERVAL: Span = Span::secs(1);

/// What a receiver needs to ask for lost packets.
struct RetransmissionReceiver {
    settings: RepairSettings,
    /// Whether nobody has said under which SSRC retransmissions come, and whether it is known by now.
    any_ssrc: bool,
    associated: bool,
    /// The stream's SSRC as the sender's description has it.
    announced: Option<u32>,
    requester: Requester,
    /// The retransmission stream's own numbers.
    reception: Reception,
    sent: Option<PeerTime>,
    /// RTCP's timer knows that there is something to ask for.
    scheduled: bool,
    /// Nothing can be asked for before.
    not_before: Time,
    /// Packets that counted when they came, or when a later one showed whose they are.
    shown: u64,
    check: Check,
}

impl RetransmissionReceiver {
    fn new(settings: RepairSettings) -> Self {
        Self {
            settings,
            any_ssrc: false,
            associated: true,
            announced: None,
            requester: Requester::new(settings),
            reception: Reception::trusting(settings.ssrc, CLOCK_RATE),
            sent: None,
            scheduled: false,
            not_before: Time::ZERO,
            shown: 0,
            check: Check::new(&REPAIR_NOT_COUNTED),
        }
    }
}

/// After so long without another packet a receiver that answers does so, also when its half has nothing to say yet.
const KEEPALIVE_DELAY: Span = Span::millis(500);
/// The subtype of an APP packet that says no more than that a receiver of the controller's own is there.
const PRESENCE_SUBTYPE: u8 = 31;

struct Stream {
    ssrc: u32,
    reception: Reception,
    /// What is added to its sequence numbers: a sender that changes its SSRC goes on where it was.
    ahead: i64,
    heard: Time,
    /// When its media or its RTCP came last.
    spoke: Time,
    /// Where its media comes from.
    from: Origin,
    /// Its source has said BYE.
    ended: bool,
    /// The SSRC under which its source goes on, by its BYE.
    heir: Option<u32>,
    sent: Option<PeerTime>,
    /// The newest frame's time stamp, when it began to come, and the longest time between two that came lately.
    frame: (u32, Time),
    pace: Option<Span>,
    timestamp: u32,
    ticks: i64,
    after_marker: bool,
    /// Whether any packet had a marker: in a stream without them another timestamp begins another frame.
    marks: bool,
}

impl Receiver {
    /// A receiver that joins now. `chance` draws RTCP's intervals.
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
        let (knock, siblings, answers, said) = (None, Vec::new(), false, None);
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
            knock,
            siblings,
            answers,
            said,
            reporter: None,
            repair: None,
            pending_key_frame: None,
            intra: 0,
            parity: None,
        }
    }

    /// The receiver for senders that pause while nobody reports. It sends a report without a body, at RTCP's times,
    /// where its half waits for more packets than such a sender sends (`tfmcc` is silent while packets are farther
    /// apart than the round trips it was told of).
    #[must_use]
    pub fn answering(self) -> Self {
        Self { answers: true, ..self }
    }

    /// The receiver of a session whose description names the media's payload types, or its source, or both. No source of
    /// another payload type is followed. The one that is named takes the place of any other. When it has
    /// left itself, its sender may have been started again, and the name holds no longer.
    #[must_use]
    pub fn described(self, payload_types: Option<PayloadTypes>, named: Option<u32>) -> Self {
        Self { payload_types, named, ..self }
    }

    /// The driver's clock has stood still until now: its process was stopped, or its machine was. What the source has
    /// not said in that time is no silence of the source's.
    pub fn on_clock_gap(&mut self, now: Time) {
        self.resumed = self.resumed.max(now);
    }

    /// The receiver of one of several groups that carry the same video at different rates, each sent only while it has
    /// a member.
    #[must_use]
    pub fn in_simulcast(self, now: Time) -> Self {
        Self { knock: Some(PresenceTimer::new(now)), ..self }
    }

    /// What the groups of the simulcast are sent at, as its sender has told last, the lowest first; empty: not told.
    pub fn siblings(&self) -> &[Rate] {
        &self.siblings
    }

    /// It reports single packets in this format, at times of its own or with its half's reports; `bandwidth` is the
    /// session's, of which these reports take at most 5 % as far as they need not leave every 200 ms.
    #[must_use]
    pub fn with_feedback(self, format: FeedbackFormat, bandwidth: Rate) -> Self {
        Self { reporter: Reporter::new(format, bandwidth).map(Box::new), ..self }
    }

    /// It asks for packets that are lost, and takes them from the stream of retransmissions (RFC 4588). Only for
    /// sessions of two members under [`crate::Profile::Avpf`].
    #[must_use]
    pub fn with_repair(self, settings: RepairSettings) -> Self {
        Self { repair: Some(Box::new(RetransmissionReceiver::new(settings))), ..self }
    }

    /// As [`Receiver::with_repair`], whatever SSRC retransmissions come under: the first one of something that was
    /// asked for tells it (RFC 4588, section 5.3), anew for each source of the media. One that `settings` name is known
    /// before: 0 names none.
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

    /// Asks for a key frame: by a full intra request (RFC 5104) when it `joins` and nothing could be decoded so far, by
    /// a picture loss indication (RFC 4585) when a reference is lost. It asks until [`Receiver::has_key_frame`]. Only
    /// under [`crate::Profile::Avpf`]. Poll afterwards.
    pub fn needs_key_frame(&mut self, now: Time, joins: bool) {
        if self.pending_key_frame.is_none_or(|pending_key_frame| pending_key_frame.joins != joins) {
            self.intra = self.intra.wrapping_add(u8::from(joins));
            self.pending_key_frame = Some(PendingKeyFrameRequest { joins, at: now, scheduled: false });
        }
    }

    /// What it decodes next needs nothing that is lost.
    pub fn has_key_frame(&mut self) {
        self.pending_key_frame = None;
    }

    /// It computes lost packets from parity, and in a small group asks for more of it, at times that `chance` draws.
    #[must_use]
    pub fn with_parity(self, settings: ParitySettings, chance: Chance) -> Self {
        Self { parity: Some(Box::new(ParityReceiver::new(settings, chance))), ..self }
    }

    /// As [`Receiver::with_parity`], whatever SSRC parity comes under: the first packet of its payload type from where
    /// the media comes tells it, anew for each source of the media.
    #[must_use]
    pub fn with_parity_of_any_source(self, settings: ParitySettings, chance: Chance) -> Self {
        let parity = ParityReceiver { any_ssrc: true, associated: false, ..ParityReceiver::new(settings, chance) };
        Self { parity: Some(Box::new(parity)), ..self }
    }

    /// Once a second it tells the sender, with a report, that it computes lost packets from parity and what its
    /// play-out delay is: for a sender that waits for that word ([`crate::Sender::with_parity_on_word`]). Without a
    /// delay, or with none to wait in, it tells nothing. It needs [`Receiver::with_parity`].
    #[must_use]
    pub fn telling_playout(mut self) -> Self {
        if let Some(parity) = &mut self.parity {
            parity.tells = true;
        }
        self
    }

    /// A packet of parity has arrived, which covers what `protection` says. Its bytes count as received; what it gives
    /// back stays lost, to the half as in reports. Poll afterwards.
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
        let need = parity.solver.on_parity(protection);
        self.half.on_extra(&ExtraArrival { at: now, stream: Kind::Parity, size, sent, ecn, missing });
        self.on_need(now, need);
        Received::New(u64::try_from(seq).unwrap_or(0))
    }

    /// What a packet of the media or of parity has left of a block's need. Who asks for packets does not ask for
    /// parity.
    fn on_need(&mut self, now: Time, need: Option<Need>) {
        let idle = self.parity.as_ref().is_none_or(|parity| parity.requester.is_idle());
        let Some(need) = need.filter(|need| self.repair.is_none() && !(idle && need.lacks == 0)) else { return };
        let group = self.group();
        if let Some(parity) = &mut self.parity {
            parity.requester.on_need(now, &need, &parity.settings, group);
        }
    }

    fn group(&self) -> Group {
        Group { members: self.participant.census().members, round_trip: self.half.view().rtt }
    }

    /// Lost packets that parity has given back since this was last asked.
    pub fn take_recovered(&mut self) -> Vec<Recovered> {
        let (Some(parity), Some(stream)) = (&mut self.parity, &self.stream) else { return Vec::new() };
        let recovered = parity.solver.take();
        if let Some(repair) = &mut self.repair {
            recovered.iter().for_each(|(seq, _)| repair.requester.on_recovered(*seq));
        }
        let shown = |(seq, packet)| Recovered { number: seq as u16, seq: stream.shown(seq), packet };
        recovered.into_iter().map(shown).collect()
    }

    /// Whether it computes lost packets from parity.
    pub fn has_parity(&self) -> bool {
        self.parity.is_some()
    }

    /// The source that it follows.
    pub fn source(&self) -> Option<u32> {
        Some(self.stream.as_ref()?.ssrc)
    }

    /// Whether `ssrc` at this place is the source that it follows; `None` as long as it follows none.
    pub fn is_source(&self, ssrc: u32, from: Origin) -> Option<bool> {
        self.stream.as_ref().map(|stream| (stream.ssrc, stream.from) == (ssrc, from))
    }

    /// What it asked for, and what it got.
    pub fn requests(&self) -> Requests {
        let packets = self.repair.as_ref().map(|repair| repair.requester.counts).unwrap_or_default();
        packets + self.parity.as_ref().map(|parity| parity.counts).unwrap_or_default()
    }

    /// From now on frames are shown this long after they are ready: nothing is asked for that would come later.
    pub fn set_playout(&mut self, delay: Span) {
        if let Some(repair) = &mut self.repair {
            repair.requester.set_playout(delay);
        }
        if let Some(parity) = &mut self.parity {
            parity.settings.playout = Some(delay);
        }
    }

    /// What it takes from the sending of a packet that is lost to its repair; nothing without repair.
    pub fn repair_time(&self, now: Time) -> Span {
        match (&self.repair, &self.parity) {
            (Some(repair), _) => repair.requester.takes(now),
            (None, Some(parity)) => parity.settings.block(),
            (None, None) => Span::ZERO,
        }
    }

    /// The promise of repair: what was repaired stays lost to the controller.
    pub fn repair_check(&self) -> Option<Check> {
        Some(self.repair.as_ref()?.check)
    }

    /// What its path could carry for it, as far as the receiver half can tell.
    pub fn acceptable(&self) -> Option<Rate> {
        self.half.acceptable()
    }

    /// The promise that no datagram of its own is larger than the path's MTU.
    pub fn mtu_check(&self) -> Check {
        self.participant.mtu_check()
    }

    /// Packets that arrived and of which no report told, since reports have 5 % of the bandwidth; and messages that fit
    /// into no datagram.
    pub fn untold(&self) -> (u64, u64) {
        (self.reporter.as_ref().map_or(0, |reporter| reporter.untold()), self.participant.refused())
    }

    /// Its synchronisation source, which changes after a collision.
    pub fn ssrc(&self) -> u32 {
        self.participant.identity.ssrc
    }

    /// The receiver half's own view, for the record.
    pub fn view(&self) -> View {
        self.half.view()
    }

    /// The promises that the receiver half has kept an eye on.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Interarrival jitter (RFC 3550, A.8).
    pub fn jitter(&self) -> Span {
        self.stream.as_ref().map_or(Span::ZERO, |s| s.reception.jitter())
    }

    /// Packets that were expected, from the first that came to the newest.
    pub fn expected(&self) -> u64 {
        self.past.expected + self.stream.as_ref().map_or(0, |s| s.reception.expected())
    }

    /// Distinct packets that came.
    pub fn received(&self) -> u64 {
        let duplicates = self.past.duplicates + self.stream.as_ref().map_or(0, |s| s.reception.duplicates());
        self.arrived().saturating_sub(duplicates)
    }

    /// Packets that came, duplicates included.
    fn arrived(&self) -> u64 {
        self.past.received + self.stream.as_ref().map_or(0, |s| s.reception.received())
    }

    /// Whether the source that it follows has said BYE, and does not go on under another SSRC.
    pub fn source_ended(&self) -> bool {
        let goes_on = |heir: u32| self.participant.members.contains(heir);
        self.stream.as_ref().is_some_and(|s| s.ended && !s.heir.is_some_and(goes_on))
    }

    /// Datagrams that could not be read.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// A datagram has arrived on the RTP port; `overhead` are its IP and UDP headers. Returns what it was, its header
    /// and its payload. Poll afterwards.
    pub fn on_rtp<'a>(
        &mut self,
        now: Time,
        from: Origin,
        datagram: &'a [u8],
        ecn: Ecn,
        buffer: Option<BufferLevel>,
    ) -> Option<(Received, RtpHeader, &'a [u8])> {
        // RTCP on this port is not misread as RTP (RFC 5761).
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
                None => notice = notice.or(Some(bytes)),
            }
        }
        let again = self.is_repair(&header).then(|| payload.split_first_chunk::<{ rtx::OSN }>()).flatten();
        let repairs = again.map(|(original, _)| u16::from_be_bytes(*original));
        let notice = notice.unwrap_or_default();
        let packet = MediaPacket { header: &header, notice, transport, repairs, size, ecn, buffer };
        let received = self.on_media(now, from, &packet);
        let (Some((_, behind)), Some(number)) = (again, repairs) else { return Some((received, header, payload)) };
        // To whoever decodes it, it is the original.
        let ssrc = self.stream.as_ref().map_or(header.ssrc, |s| s.ssrc);
        let payload_len = behind.len() as u16;
        Some((received, RtpHeader { seq: number, ssrc, payload_len, send_time: None, ..header }, behind))
    }

    /// Whether a packet with this header is of the stream of retransmissions.
    fn is_repair(&self, header: &RtpHeader) -> bool {
        self.repair.as_ref().is_some_and(|repair| {
            let RepairSettings { ssrc, payload_type, .. } = repair.settings;
            header.payload_type == payload_type && (header.ssrc == ssrc || !repair.associated)
        })
    }

    /// A packet of the stream of retransmissions. Its bytes count as received; what it repairs stays lost, to the half
    /// as in reports.
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
            let awaited = packet.repairs.is_some_and(|number| repair.requester.awaits(number));
            if !awaited && repair.announced != Some(header.ssrc) {
                return Received::Unused(UnusedReason::UnaskedRepair);
            }
            repair.settings.ssrc = header.ssrc;
            (repair.reception, repair.associated) = (Reception::trusting(header.ssrc, CLOCK_RATE), true);
        }
        let before = repair.reception.highest();
        let arrived = repair.reception.on_rtp(now, header.seq, header.timestamp);
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
        let original = packet.repairs.and_then(|number| repair.requester.on_repair(now, number, header.marker));
        let Some(original) = original else { return Received::Duplicate };
        let shown = stream.shown(original);
        if let Some(parity) = &mut self.parity {
            parity.solver.on_packet(original);
        }
        Received::Repaired(shown)
    }

    /// An RTP packet has arrived, already taken apart. Poll afterwards.
    pub fn on_media(&mut self, now: Time, from: Origin, packet: &MediaPacket<'_>) -> Received {
        let MediaPacket { header, notice, size, ecn, buffer, .. } = *packet;
        if self.participant.farewell != Farewell::Stays {
            return Received::Unused(UnusedReason::Outside);
        }
        if self.is_repair(header) {
            return self.on_repair(now, from, packet);
        }
        if header.ssrc == self.participant.identity.ssrc {
            self.hear_media(now, header.ssrc, from);
            return Received::Unused(UnusedReason::OwnSource);
        }
        if !self.goes_on(now, header) && !self.follow(now, from, header) {
            return Received::Unused(self.why_not_followed(from, header));
        }
        if !self.hear_media(now, header.ssrc, from) {
            return Received::Unused(UnusedReason::OtherAddress);
        }
        let Some(stream) = &mut self.stream else { return Received::Unused(UnusedReason::OtherSource) };
        let before = stream.reception.received();
        let seq = match stream.reception.on_rtp(now, header.seq, header.timestamp) {
            Arrived::New(seq) => seq,
            Arrived::Duplicate(_) => {
                // A mark on any copy of a packet is one on the packet (RFC 8888, 3.1).
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
        // Whoever asks for packets goes by the numbers that they have at their source.
        let (number, seq) = (u64::try_from(seq).unwrap_or(0), u64::try_from(seq + stream.ahead).unwrap_or(0));
        // Without a send-time extension (a standard sender) the media clock is the next best.
        let anew = !stream.marks && header.timestamp != stream.timestamp;
        let sampled = stream.sampled(header.timestamp);
        let sent = header.send_time.map_or(sampled, |stamp| stamp.peer(stream.sent));
        stream.sent = Some(sent);
        let edge = FrameEdge { first: stream.after_marker || anew, last: header.marker };
        stream.after_marker = header.marker;
        stream.marks |= header.marker;
        self.half.on_arrival(&Arrival { at: now, seq, size, sent, sampled, edge, ecn, notice, buffer });
        let need = self.parity.as_mut().and_then(|parity| parity.solver.on_packet(number));
        if let Some(repair) = &mut self.repair {
            match header.send_time {
                Some(_) => repair.requester.on_original(now, number, sent, header.marker),
                None => repair.requester.on_unstamped(now, number, sent, header.marker),
            }
            repair.shown += stream.reception.received() - before;
            // By the counters of the report block, which nothing but the media's numbers move.
            let duplicates = self.past.duplicates + stream.reception.duplicates();
            repair
                .check
                .see(repair.shown == (self.past.received + stream.reception.received()).saturating_sub(duplicates));
        }
        self.on_need(now, need);
        Received::New(seq)
    }

    /// Whether media of this source from this place may be used: a source keeps to the place where it was heard first
    /// (RFC 3550, 8.2), so that nobody else can speak for it.
    fn hear_media(&mut self, now: Time, ssrc: u32, from: Origin) -> bool {
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

    /// A datagram has arrived on the RTCP port. Poll afterwards.
    pub fn on_rtcp(&mut self, now: Time, from: Origin, datagram: &[u8]) {
        match Compound::parse(datagram) {
            Ok(compound) => self.on_compound(now, from, &compound, datagram.len()),
            Err(_) => self.unreadable += 1,
        }
    }

    /// Whether RTCP from this place is not of the source, towards one receiver: as a member, its author would make
    /// reports rarer. The media tell the source's place; before them no RTCP is taken.
    pub fn ignores_rtcp(&self, from: Origin) -> bool {
        !self.participant.is_group() && self.stream.as_ref().is_none_or(|stream| stream.from != from)
    }

    /// A compound of `len` bytes has arrived, already parsed: a group's members share the work in the simulator.
    pub fn on_compound(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) {
        if self.gone() || self.ignores_rtcp(from) {
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
                Packet::SenderReport { ssrc, ntp, .. } => {
                    if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == *ssrc) {
                        stream.reception.on_sr(now, *ntp);
                        self.half.on_sender_report(now);
                    }
                }
                Packet::Summary { ssrc, group: Some(group), .. }
                    if self.participant.summary() && self.stream.as_ref().is_none_or(|s| s.ssrc == *ssrc) =>
                {
                    self.participant.told(now, *ssrc, from, *group);
                }
                Packet::App { ssrc, subtype, name, data } if *name == self.app => {
                    let body = Body { subtype: *subtype, bytes: data.clone() };
                    if self.stream.as_ref().is_some_and(|s| s.ssrc == *ssrc) {
                        self.half.on_announce(&Announcement { at: now, body: &body });
                    } else if *ssrc != self.participant.identity.ssrc {
                        self.half.on_overheard(&Overheard { at: now, from: ReceiverId(*ssrc), body: &body });
                    }
                }
                Packet::App { ssrc, name: simulcast::APP, data, .. }
                    if self.stream.as_ref().is_some_and(|s| s.ssrc == *ssrc) =>
                {
                    self.siblings = simulcast::read_rates(data).unwrap_or_default();
                }
                Packet::App { .. } => self.on_asked(now, packet),
                _ => {}
            }
        }
        for ssrc in self.participant.heard_byes(now, from, compound, len) {
            // What speaks for the source is where its media comes from: its RTCP may not have been heard before.
            if let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == ssrc && s.from == from) {
                stream.ended = true;
                stream.heir = heir(compound, ssrc);
                self.participant.on_source(now, stream.heir.is_some());
            }
        }
    }

    /// Another member asks for parity.
    fn on_asked(&mut self, now: Time, packet: &Packet) {
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

    /// How full the play-out buffer is now. To be told before each poll, by who has one.
    pub fn on_buffer(&mut self, now: Time, level: BufferLevel) {
        self.half.on_buffer(now, level);
    }

    /// The packets that it may be told of later; `None`: it has to be told of each at once.
    pub fn batchable(&self) -> Option<Batchable> {
        let asks = self.repair.is_some() || self.parity.is_some() || self.pending_key_frame.is_some();
        let speaks = self.knock.is_some() || self.answers || self.reporter.is_some();
        let stays = self.participant.farewell == Farewell::Stays;
        let stream = self.stream.as_ref().filter(|stream| !stream.ended && stream.ssrc != self.ssrc())?;
        let receivers = self.participant.members.reported_receivers().unwrap_or(0);
        (stays && !asks && !speaks && self.half.is_patient()).then_some(Batchable { source: stream.ssrc, receivers })
    }

    /// Leaves the session: one of the next polls gives the last words, in a large group not the first. Poll afterwards.
    pub fn leave(&mut self) {
        self.participant.leave();
    }

    /// Whether it wants to leave, but its BYE still waits its turn.
    pub fn leaving(&self) -> bool {
        matches!(self.participant.farewell, Farewell::Wanted | Farewell::Waits)
    }

    /// Whether it has left.
    pub fn gone(&self) -> bool {
        self.participant.farewell == Farewell::Gone
    }

    /// What to do now. To be called until it says [`Output::Wait`], after every other call and when the time has come.
    pub fn poll(&mut self, now: Time) -> Output {
        if let Some(bytes) = self.participant.first_of_all(now) {
            return Output::Rtcp(bytes);
        }
        if self.participant.farewell != Farewell::Stays {
            if self.participant.farewell_due(now, false) {
                return Output::Rtcp(self.last_words(now));
            }
            return Output::Wait(self.participant.farewell_wake(now));
        }
        if self.knock_wake().is_some_and(|wake| wake.at <= now) {
            return Output::Rtcp(self.encode_knock(now));
        }
        if let Some(wake) = self.half.wake()
            && wake.at <= now
        {
            self.half.on_timer(now);
        }
        if self.feedback_due().is_some_and(|wake| wake.at <= now) {
            return Output::Rtcp(self.feedback(now));
        }
        self.schedule_nack(now);
        self.wish_parity(now);
        self.schedule_key_frame_request(now);
        // A half that is clocked by itself sends regular packets with a bandwidth of their own; RTCP's timer then
        // rests.
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
                    if let Some(bytes) = self.report(now).or_else(|| self.encode_request(now)) {
                        return Output::Rtcp(bytes);
                    }
                }
                None => {}
            },
            _ => {}
        }
        // Requests go at the times of RTCP's timer, which a half that is clocked by itself leaves alone.
        if self.wants_to_ask()
            && self.half.due() != Due::Rtcp
            && self.participant.rtcp_due(now)
            && let Some(bytes) = self.encode_request(now)
        {
            return Output::Rtcp(bytes);
        }
        if self.answer_wake().is_some_and(|wake| wake.at <= now) && self.participant.rtcp_due(now) {
            return Output::Rtcp(self.encode_answer(now));
        }
        self.wait_until_due(now)
    }

    /// Waits for whatever is due soonest.
    fn wait_until_due(&self, now: Time) -> Output {
        let due = match self.half.due() {
            Due::Rtcp => Some(self.participant.wake()),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        let asks = self.asks_at().map(|at| Wake { at, why: "packets are missing" });
        let soonest = [due, self.half.wake(), self.knock_wake(), self.answer_wake(), self.feedback_due(), asks]
            .into_iter()
            .flatten()
            .min_by_key(|w| w.at);
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    fn report(&mut self, now: Time) -> Option<Vec<u8>> {
        let (expected, received) = (self.expected(), self.arrived());
        let slot = Slot {
            now,
            expected: expected - self.prior.expected.min(expected),
            lost: (expected as i64 - self.prior.expected as i64) - (received as i64 - self.prior.received as i64),
            members: self.participant.census().members,
            interval: self.participant.interval(),
            rtcp_share: self.participant.share(now),
        };
        let reply = self.half.report(&slot);
        if reply == Reply::Suppress {
            return None;
        }
        self.prior = Totals { expected, received, ..self.prior };
        self.said = Some(now);
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

    /// Tells RTCP's timer when there is parity to ask for.
    fn wish_parity(&mut self, now: Time) {
        let Some(parity) = &self.parity else { return };
        if parity.scheduled || now < parity.not_before || parity.requester.wake().is_none_or(|at| at > now) {
            return;
        }
        let group = self.group();
        let Some(parity) = &mut self.parity else { return };
        if !parity.requester.wants(now, group) {
            return;
        }
        parity.scheduled = self.participant.request_dithered(now, parity.requester.useful(now, group));
        if !parity.scheduled {
            parity.not_before = self.participant.timer.next();
        }
    }

    /// A request for parity, if there is still something to ask for.
    fn parity_request(&mut self, now: Time) -> Option<Packet> {
        let (media, group) = (self.stream.as_ref().filter(|s| !s.ended)?.ssrc, self.group());
        let parity = self.parity.as_mut()?;
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

    /// What it tells of its play-out delay, when it is time for it.
    fn parity_use(&mut self, now: Time) -> Option<Packet> {
        let media = self.stream.as_ref().filter(|s| !s.ended)?.ssrc;
        let due = |told: Option<Time>| told.is_none_or(|told| now.since(told) >= PLAYOUT_REPORT_INTERVAL);
        let parity = self.parity.as_mut().filter(|parity| parity.tells && due(parity.told))?;
        let playout = parity.settings.playout.filter(|playout| *playout > Span::ZERO)?;
        parity.told = Some(now);
        Some(ParityUse { sender: self.participant.identity.ssrc, media, playout }.to_packet())
    }

    /// Tells RTCP's timer when a key frame is to be asked for.
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

    /// The request for a key frame, if it is time.
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

    /// Tells RTCP's timer when there is something to ask for.
    fn schedule_nack(&mut self, now: Time) {
        let Some(repair) = &mut self.repair else { return };
        if repair.scheduled || now < repair.not_before || repair.requester.wake().is_none_or(|at| at > now) {
            return;
        }
        if let Some(rtt) = self.half.view().rtt {
            repair.requester.on_round_trip(rtt);
        }
        if !repair.requester.wants(now) {
            return;
        }
        repair.scheduled = self.participant.request_early(now, repair.requester.useful(now));
        if !repair.scheduled {
            repair.not_before = self.participant.timer.next();
        }
    }

    /// When [`Receiver::wish`] has something to do, or what it scheduled for comes.
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

    /// A request for the packets that are missing, if there is still something to ask for.
    fn nack_packet(&mut self, now: Time) -> Option<Packet> {
        let media = self.stream.as_ref().filter(|s| !s.ended)?.ssrc;
        let repair = self.repair.as_mut()?;
        if std::mem::take(&mut repair.scheduled) {
            self.participant.timer.cancel_early();
        }
        let missing = repair.requester.take(now);
        let sender = self.participant.identity.ssrc;
        (!missing.is_empty()).then(|| Nack { sender, media, missing }.to_packet())
    }

    /// A compound with a request alone (RFC 4585, 3.1). Its report has no block, so that controllers see the reports
    /// that they would see without repair.
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

    /// When the session itself has to report single packets.
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
        // Only differences count: any epoch will do for the receiver's clock.
        let ntp = NtpEpoch::default().middle(now);
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

    fn knock_wake(&self) -> Option<Wake> {
        Some(self.knock?.wake(self.stream.as_ref().map(|s| s.heard)))
    }

    fn encode_knock(&mut self, now: Time) -> Vec<u8> {
        if let Some(knock) = &mut self.knock {
            knock.knocked(now);
        }
        let packets = vec![self.receiver_report(now), self.participant.sdes()];
        self.participant.encode(now, packets)
    }

    /// When it says no more than that it is there: some time after a packet that nothing followed, neither packet nor
    /// report.
    fn answer_wake(&self) -> Option<Wake> {
        let heard = self.stream.as_ref().filter(|s| self.answers && !s.ended)?.heard;
        let at = (heard + KEEPALIVE_DELAY).max(self.participant.timer.next());
        self.said.is_none_or(|said| said < heard).then_some(Wake { at, why: "media pauses" })
    }

    fn encode_answer(&mut self, now: Time) -> Vec<u8> {
        self.said = Some(now);
        let present =
            app(self.participant.identity.ssrc, self.app, Body { subtype: PRESENCE_SUBTYPE, bytes: Vec::new() });
        let packets = vec![self.receiver_report(now), self.participant.sdes(), present];
        self.participant.encode(now, packets)
    }

    fn receiver_report(&mut self, now: Time) -> Packet {
        let block = self.stream.as_mut().filter(|s| !s.ended).and_then(|s| s.reception.report_block(now));
        Packet::ReceiverReport { ssrc: self.participant.identity.ssrc, blocks: block.into_iter().collect() }
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

/// The SSRC under which a source goes on that gives `ssrc` up: the compound names it as well.
fn heir(compound: &Compound, ssrc: u32) -> Option<u32> {
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
            heir: None,
            sent: None,
            frame: (header.timestamp, now),
            pace: None,
            timestamp: header.timestamp,
            ticks: 0,
            after_marker: true,
            marks: false,
        }
    }

    /// A packet of media has come. How long the source is silent between two frames is forgotten by an eighth with
    /// each.
    fn keep_pace(&mut self, now: Time, timestamp: u32) {
        let (frame, began) = self.frame;
        if frame != timestamp {
            let step = now.since(began);
            // Frames that were kept are told at once, and tell nothing of it.
            if !step.is_zero() {
                self.pace = Some(self.pace.map_or(step, |pace| step.max(pace * 7 / 8)));
            }
            self.frame = (timestamp, now);
        }
    }

    /// The number that comes next, as it is counted to others.
    fn next(&self) -> i64 {
        self.reception.highest().map_or(self.ahead, |highest| highest + self.ahead + 1)
    }

    /// A number at the source, extended, as it is counted to others.
    fn shown(&self, number: u64) -> u64 {
        number.saturating_add_signed(self.ahead)
    }

    /// The media clock at this timestamp, on the sender's clock: it counts from the first packet that came.
    fn sampled(&mut self, timestamp: u32) -> PeerTime {
        let ahead = timestamp.wrapping_sub(self.timestamp) as i32;
        let ticks = self.ticks.saturating_add(i64::from(ahead));
        if ahead > 0 {
            (self.timestamp, self.ticks) = (timestamp, ticks);
        }
        // After five timestamps, each nearly half of their range ahead of the one before, the product needs more than
        // 64 bits.
        let nanos = i128::from(ticks) * 1_000_000_000 / i128::from(CLOCK_RATE);
        PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}
