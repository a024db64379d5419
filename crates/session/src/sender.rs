use crate::ecn::{EcnCheck, EcnCounts, EcnPath};
use crate::feedback;
use crate::gate::ReportLimiter;
use crate::media::{HeaderIds, overhead};
use crate::pacer::Pacer;
use crate::participant::{Farewell, Participant, Standing};
use crate::peers::{Peers, STANDARD_REPORTS_GRACE};
use crate::probe::{Prober, Probes};
use crate::receiver_proof::SentReports;
use crate::repair::{
    AnnouncedPlayouts, Blocks, CachedPacket, MAX_REQUESTING_MEMBERS, NackContext, PARITY_MORE, Parity,
    ParityRequestContext, Retransmission, RetransmissionCache,
};
use crate::share::RepairShare;
use crate::{
    Backlog, Emit, Fragment, Frame, FrameKind, Identity, Media, Output, ParitySettings, Part, Protected, Protection,
    RepairSettings, Repairs, RtcpSettings, Siblings,
};
use std::collections::VecDeque;
use steadycast_control::promise::REPAIR_WITHIN_RATE;
use steadycast_control::{
    Allowance, Body, Check, Decision, Departing, Due, ExtraSent, FeedbackFormat, FrameEdge, Leave, Limit, MediaQueue,
    Notice, PacketReport, ReceiverId, Reception, Report, SenderHalf, Sent, Stream, Wake, Window, simulcast,
};
use steadycast_remote::{History, Joined};
use steadycast_rtcp::{Origin, Profile};
use steadycast_units::{Bytes, Chance, Ecn, Rate, Span, Stamp, Time, TokenBucket, sums};
use steadycast_wire::ntp::{self, NtpEpoch};
use steadycast_wire::rtcp::{
    Compound, KeyFrameRequest, Nack, Packet, ParityRequest, ParityUse, ReferenceTime, ReportBlock,
};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::rtx::{self, RtxStream};

/// What a sender is made with.
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The sender's SSRC and canonical name.
    pub identity: Identity,
    /// The timing of RTCP.
    pub rtcp: RtcpSettings,
    /// IP size of a full packet, header extensions included.
    pub packet: Bytes,
    /// RTP payload type.
    pub payload_type: u8,
    /// In which elements of the header extension packets carry what receivers read.
    pub ids: HeaderIds,
    /// Whether packets leave paced or in bursts.
    pub emit: Emit,
    /// The delay that a driver which wakes late may make up for.
    pub credit: Span,
    /// The most that the session may send, of media, repairs, parity and padding together. A frame may exceed it by what
    /// [`CAP_BURST`] carries.
    pub cap: Option<Rate>,
    /// Whether the source always has data: packets as fast as the pacer lets them go, each with a timestamp of its own
    /// and none with a marker, since there are no frames that could end.
    pub greedy: bool,
    /// Whether reports are limited: an address that reports more often than a whole group would has the rest counted
    /// and not read; and of a group only who echoes its sender reports is believed.
    pub gated: bool,
    /// Where its one receiver is, if that is known. From elsewhere a report is believed as long as nothing has come
    /// from there, and if it echoes the sender's own: the receiver's host may have several addresses.
    pub peer: Option<Origin>,
    /// The format in which receivers report single packets. The sender reads no other, and sends what this one needs.
    pub feedback: FeedbackFormat,
    /// The name of the controller's APP packets.
    pub app: [u8; 4],
    /// First sequence number.
    pub first_seq: u16,
    /// RTP timestamp of time zero.
    pub first_timestamp: u32,
    /// Wall-clock time of time zero, for NTP timestamps.
    pub epoch: NtpEpoch,
    /// Its RTP packets leave with this ECN field as long as the path keeps it, which is checked where receivers report
    /// single packets by RFC 8888.
    pub ecn: Ecn,
    /// Packets may leave this many times as fast as the target: for frames that are larger than others, of an encoder
    /// whose mean is the target.
    pub room: f64,
    /// It keeps what it sends and sends again what its receiver asks for (RFC 4588). SoleReceiver for sessions of two members.
    pub repair: Option<RepairSettings>,
    /// Where nothing waits during a probe, it sends its newest packet again, in the stream of retransmissions: what
    /// libwebrtc fills probes up with, and what every receiver that takes RFC 4588 drops as a duplicate. It needs
    /// `repair`.
    pub padding: bool,
    /// It sends parity, from which receivers compute lost packets; its amount follows their losses.
    pub parity: Option<ParitySettings>,
    /// It sends parity only while a receiver says that it uses it ([`Receiver::telling_playout`]), and with the
    /// play-out delay that it tells: for a receiver that may not know parity.
    ///
    /// [`Receiver::telling_playout`]: crate::Receiver::telling_playout
    pub parity_on_word: bool,
    /// It is one of several that carry the same video at different rates, and tells its group the rates of all.
    pub siblings: Option<Siblings>,
}

impl SenderSettings {
    /// A paced sender of frames, without catching up, whose numbers and times begin at 0.
    pub fn new(identity: Identity, rtcp: RtcpSettings, packet: Bytes, app: [u8; 4]) -> Self {
        Self {
            identity,
            rtcp,
            packet,
            payload_type: 96,
            ids: HeaderIds::default(),
            emit: Emit::Paced,
            credit: Span::ZERO,
            cap: None,
            greedy: false,
            gated: false,
            peer: None,
            feedback: FeedbackFormat::Own,
            app,
            first_seq: 0,
            first_timestamp: 0,
            epoch: NtpEpoch::from_unix_secs(0),
            ecn: Ecn::NotEct,
            room: 1.0,
            repair: None,
            padding: false,
            parity: None,
            parity_on_word: false,
            siblings: None,
        }
    }

    /// How much more than the cap may leave at a time: of what has no frames one packet beside the next, and what a late
    /// driver makes up for.
    fn burst_above(&self, cap: Rate) -> Bytes {
        let packets = self.packet + self.packet + cap.over(self.credit);
        if self.greedy { packets } else { packets.max(cap.over(CAP_BURST)) }
    }
}

/// The longest that the pacer's backlog may take at the pacing rate.
const MAX_BACKLOG: Span = Span::secs(1);

/// How much more than the cap a sender of frames may send at a time, as a time at the cap: a key frame is several times
/// as large as the mean frame, and leaves at the pacing rate. Over any time T a session sends at most
/// `cap · (T + CAP_BURST)`, and a packet.
pub const CAP_BURST: Span = Span::millis(250);

/// RTP timestamps count 90,000 ticks per second for video.
pub(crate) const CLOCK_RATE: u32 = 90_000;

/// The sending end of a session.
pub struct Sender {
    settings: SenderSettings,
    half: Box<dyn SenderHalf>,
    decision: Decision,
    changed: bool,
    pacer: Pacer,
    /// The tokens that the cap leaves.
    cap: Option<TokenBucket>,
    prober: Prober,
    participant: Participant,
    peers: Peers,
    /// Who is listened to where there is one receiver.
    only: Option<SoleReceiver>,
    /// Who has echoed which sender report from elsewhere than where that is.
    elsewhere: Option<(Origin, u32)>,
    /// What shows who receives the stream.
    sent_reports: SentReports,
    seq: u64,
    /// Packets of all streams sent so far.
    number: u64,
    /// What was sent last, where receivers report single packets.
    history: Option<History>,
    packets: u32,
    octets: u32,
    greedy_frame: u32,
    /// What a notice cost in the packet before: most notices are of one size.
    notice_cost: Bytes,
    allowance_left: AllowanceLeft,
    feedback: FeedbackCounts,
    gate: Option<ReportLimiter>,
    /// The group's size as it was told last, and when.
    told: (u32, Time),
    /// When a member was heard last; at first, when it began.
    heard: Time,
    /// With which ECN field packets leave.
    ecn: EcnCheck,
    /// Sends lost packets again.
    repair: Option<RetransmissionSender>,
    /// Fills up probes.
    padding: Option<Padding>,
    /// Sends parity.
    parity: Option<ParitySender>,
    /// A receiver waits for a key frame; when the encoder was last told so.
    key_frame: (bool, Option<Time>),
    /// The one receiver's clock, and when it came: until the next report, which answers.
    reference: Option<(ReferenceTime, Time)>,
}

/// The receiver of a session that is no group: at [`SenderSettings::peer`], or else the first whose report is believed.
/// Nobody else's RTCP is read until it has said BYE, or, if it is not the one that was described, has reported nothing
/// for as long as its kind of reports may take.
#[derive(Clone, Copy, Debug)]
struct SoleReceiver {
    from: Origin,
    /// It sends more than standard reports.
    often: bool,
    /// Another one may take its place from then on.
    until: Time,
}

/// What a sender needs to send lost packets again.
struct RetransmissionSender {
    cache: RetransmissionCache,
    /// The next number of the retransmission stream, extended.
    seq: u64,
    share: RepairShare,
    inside: PacingCheck,
}

/// Packets that are sent for nothing but their size.
#[derive(Clone, Copy, Debug, Default)]
struct Padding {
    packets: u64,
    bytes: Bytes,
}

/// What a sender needs to send parity.
struct ParitySender {
    blocks: Blocks,
    /// The next number of the stream of parity, extended.
    seq: u64,
    share: RepairShare,
    /// What the newest parity covers.
    newest: Option<Protection>,
    packets: u64,
    bytes: Bytes,
    /// When the receivers' losses were looked at last.
    looked: Time,
    /// It is made until then: as long as a receiver's word holds, where that is waited for.
    until: Time,
    announced: AnnouncedPlayouts,
}

/// The share of packets that parity leaves missing in a group: a hundredth of a per cent of pictures of a hundred
/// packets.
const GROUP_RESIDUAL_LOSS: f64 = 2e-5;
/// The same in a group that is small enough to ask for what else it needs.
const REQUESTING_GROUP_RESIDUAL_LOSS: f64 = 1e-3;
/// The same towards one receiver, retransmission included. Far less than is aimed at: a retransmission that has to pass
/// the queue that dropped its original is lost more often than independent losses are.
const UNICAST_RESIDUAL_LOSS: f64 = 3e-7;
/// A receiver that has said that it uses parity is taken to do so for this time.
const PARITY_USE_LIFETIME: Span = Span::secs(10);
/// A receiver's play-out delay is taken to be no longer than this.
const MAX_PLAYOUT: Span = Span::secs(10);
/// This share of the receivers is left behind, where others need less parity.
const UNSERVED_SHARE: f64 = 0.02;
/// Receivers' losses are looked at this often.
const LOSS_CHECK_INTERVAL: Span = Span::secs(1);

/// Checks that all streams together stay within the pacing rate: each packet takes its size at the highest rate until
/// the next one, and may leave a packet and the credit before those ahead of it are through. The pacer itself looks at
/// the last packet alone.
struct PacingCheck {
    check: Check,
    packet: Bytes,
    /// What a late wake may catch up is a time: at whichever rate that is used, a lower one afterwards owes no more.
    credit: Span,
    /// How long what was ahead of the last packet still took when that left.
    ahead: Span,
    /// The last packet: its size, and when it left.
    size: Bytes,
    last: Time,
    /// The highest pacing rate since then.
    rate: Rate,
}

impl RetransmissionSender {
    fn new(repair: RepairSettings, settings: &SenderSettings) -> Self {
        let inside = PacingCheck {
            check: Check::new(&REPAIR_WITHIN_RATE),
            packet: settings.packet,
            credit: settings.credit,
            ahead: Span::ZERO,
            size: Bytes::ZERO,
            last: Time::ZERO,
            rate: Rate::ZERO,
        };
        Self {
            cache: RetransmissionCache::new(repair),
            seq: settings.first_seq.into(),
            share: RepairShare::default(),
            inside,
        }
    }
}

impl ParitySender {
    fn new(parity: ParitySettings, settings: &SenderSettings) -> Self {
        let mut blocks = Blocks::new(parity);
        blocks.anywhere = settings.greedy;
        Self {
            blocks,
            seq: settings.first_seq.into(),
            share: RepairShare::default(),
            newest: None,
            packets: 0,
            bytes: Bytes::ZERO,
            looked: Time::ZERO,
            until: if settings.parity_on_word { Time::ZERO } else { Time::NEVER },
            announced: AnnouncedPlayouts::default(),
        }
    }
}

impl PacingCheck {
    fn on_sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        let rate = self.rate.max(pacing);
        // Times are whole nanoseconds: each packet may seem to be early by one.
        let since = now.since(self.last) + Span::nanos(1);
        self.ahead = (self.ahead + self.size.at(rate)).saturating_sub(since);
        self.check.see(self.ahead <= self.packet.saturating_sub(size).at(rate) + self.credit);
        (self.size, self.last, self.rate) = (size, now, pacing);
    }
}

/// What is left of an allowance.
#[derive(Clone, Copy, Debug, Default)]
struct AllowanceLeft {
    /// The allowance that it belongs to, by its end.
    until: Time,
    spent: Bytes,
    /// A frame did not fit: nothing follows it.
    closed: bool,
}

impl AllowanceLeft {
    /// Takes `cost` out, or nothing: false.
    fn take(&mut self, allowance: Option<Allowance>, cost: Bytes) -> bool {
        let Some(allowance) = allowance else { return true };
        if allowance.until != self.until {
            *self = Self { until: allowance.until, ..Self::default() };
        }
        self.closed |= self.spent + cost > allowance.bytes;
        if !self.closed {
            self.spent += cost;
        }
        !self.closed
    }
}

/// What a compound tells of one receiver.
struct ReceiverFeedback<'a> {
    block: Option<&'a ReportBlock>,
    body: Option<&'a Body>,
    packets: Joined,
}

/// Least time between two key frames that one receiver asked for.
const MIN_KEY_FRAME_INTERVAL: Span = Span::millis(500);

/// GStreamer 1.22 reports packets under this number until its session has one of its own.
const GSTREAMER_UNSET_SSRC: u32 = u32::MAX;

/// Least time between a unicast sender's reports under AVPF.
const MIN_REPORT_INTERVAL: Span = Span::secs(1);

/// Least time between two summaries of a group that grows.
const MIN_SUMMARY_INTERVAL: Span = Span::millis(50);

/// Feedback that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedbackCounts {
    /// Compounds with a report on our stream.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: Bytes,
    /// Datagrams that could not be read.
    pub unreadable: u64,
    /// Datagrams that were not read, since their address had sent too many, or is not that of the one receiver; reports
    /// under the SSRC of another; and messages of a compound that tells of more packets than are read of one.
    pub refused: u64,
}

sums!(FeedbackCounts { packets, bytes, unreadable, refused });

impl Sender {
    /// A sender that starts now. `chance` draws RTCP's intervals.
    pub fn new(settings: SenderSettings, half: Box<dyn SenderHalf>, chance: Chance, now: Time) -> Self {
        let mut rtcp = settings.rtcp;
        if let Profile::Avpf { t_rr_interval } = &mut rtcp.profile
            && !rtcp.group
        {
            // RFC 4585 lets two members send as often as RTCP's bandwidth allows: a hundred reports a second. Feedback
            // is worth that, a sender's report is not.
            *t_rr_interval = (*t_rr_interval).max(MIN_REPORT_INTERVAL);
        }
        let participant = Participant::new(settings.identity.clone(), rtcp, true, chance, now);
        let decision = half.decision();
        if let Some(siblings) = &settings.siblings {
            siblings.tell(decision.target);
        }
        // A burst of what never ends would never end.
        let emit = if settings.greedy { Emit::Paced } else { settings.emit };
        Self {
            decision,
            changed: true,
            pacer: Pacer::new(
                emit,
                (emit == Emit::Paced || settings.cap.is_some()).then_some(MAX_BACKLOG),
                settings.credit,
            ),
            cap: settings.cap.map(|cap| TokenBucket::new(cap, settings.burst_above(cap))),
            prober: Prober::default(),
            participant,
            peers: Peers::default(),
            only: None,
            elsewhere: None,
            sent_reports: SentReports::default(),
            seq: u64::from(settings.first_seq),
            number: 0,
            history: (settings.feedback != FeedbackFormat::Own).then(History::default),
            packets: 0,
            octets: 0,
            greedy_frame: 0,
            notice_cost: Bytes::ZERO,
            allowance_left: AllowanceLeft::default(),
            feedback: FeedbackCounts::default(),
            gate: settings.gated.then(|| ReportLimiter::new(settings.rtcp.session_bandwidth)),
            told: (0, now),
            heard: now,
            ecn: EcnCheck::new(settings.ecn, settings.feedback == FeedbackFormat::Rfc8888),
            repair: settings.repair.map(|repair| RetransmissionSender::new(repair, &settings)),
            padding: settings.padding.then(Padding::default),
            parity: settings.parity.map(|parity| ParitySender::new(parity, &settings)),
            key_frame: (false, None),
            reference: None,
            half,
            settings,
        }
    }

    /// What is known of the path's way with the ECN field, and what became of the packets that left as ECN-capable.
    pub fn ecn(&self) -> (EcnPath, EcnCounts) {
        (self.ecn.path, self.ecn.counts)
    }

    /// Packets of padding sent so far, and their IP bytes; `None` without padding.
    pub fn padding(&self) -> Option<(u64, Bytes)> {
        self.padding.map(|padding| (padding.packets, padding.bytes))
    }

    /// What a packet of parity that has just been polled covers.
    pub fn protection(&self) -> Option<&Protection> {
        self.parity.as_ref()?.newest.as_ref()
    }

    /// What was sent again, and what was not.
    pub fn repairs(&self) -> Repairs {
        let again = self.repair.as_ref().map(|repair| repair.cache.counts).unwrap_or_default();
        let Some(parity) = &self.parity else { return again };
        let refused = again.refused + parity.blocks.refused;
        Repairs { parities: parity.packets, parity_bytes: parity.bytes, refused, ..again }
    }

    /// The rate for the encoder, as a rate of IP packets: the decision's target, less what repair takes.
    pub fn media_target(&mut self, now: Time) -> Rate {
        let target = self.decision.target;
        let target = self.repair.as_mut().map_or(target, |repair| repair.share.left(now, target));
        self.parity.as_mut().map_or(target, |parity| parity.share.left(now, target))
    }

    /// The time from which the sender takes it that no receiver is left, unless one is heard before.
    pub fn deserted_at(&self) -> Time {
        self.heard + self.participant.member_timeout()
    }

    /// Continues with the sequence numbers of a sender that was stopped, whose streams start again.
    pub fn continue_after(&mut self, before: &Self) {
        self.seq = before.seq;
        if let (Some(repair), Some(before)) = (&mut self.repair, &before.repair) {
            repair.seq = before.seq;
        }
        if let (Some(parity), Some(before)) = (&mut self.parity, &before.parity) {
            parity.seq = before.seq;
        }
    }

    /// Whether the encoder is to make a key frame: true once for each time that a receiver's request (RFC 4585, section
    /// 6.3.1; RFC 5104, section 4.3.1) is to be answered, which is at most twice a second, and once in two seconds in a
    /// group.
    pub fn take_key_frame(&mut self) -> bool {
        std::mem::take(&mut self.key_frame.0)
    }

    /// The extended sequence number of the first packet that may be sent again, or of which parity may be; `None`
    /// without repair.
    pub fn first_kept(&self) -> Option<u64> {
        let again = self.repair.as_ref().map(|repair| repair.cache.first());
        let covered = self.parity.as_ref().map(|parity| parity.blocks.first().unwrap_or(self.seq));
        again.into_iter().chain(covered).min()
    }

    /// The extended sequence number of the next packet.
    pub fn next_seq(&self) -> u64 {
        self.seq
    }

    /// Its synchronisation source, which changes after a collision.
    pub fn ssrc(&self) -> u32 {
        self.participant.identity.ssrc
    }

    /// What the controller wants now, and why.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether the decision has changed since this was last asked.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What waits in the pacer.
    pub fn backlog(&self) -> Backlog {
        self.pacer.backlog()
    }

    /// What became of the controller's probes.
    pub fn probes(&self) -> Probes {
        self.prober.told()
    }

    /// Packets sent so far.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Feedback that has arrived so far.
    pub fn feedback(&self) -> FeedbackCounts {
        self.feedback
    }

    /// The promises that the controller has kept an eye on.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// The promise of repair: with it, too, no more leaves than the controller allows.
    pub fn repair_check(&self) -> Option<Check> {
        Some(self.repair.as_ref()?.inside.check)
    }

    /// The promise that no packet of its own, of RTP or RTCP, is larger than the path's MTU.
    pub fn mtu_check(&self) -> Check {
        self.participant.mtu_check()
    }

    /// RTCP's share of the session bandwidth over the last half minute, as heard here.
    pub fn rtcp_share(&self, now: Time) -> f64 {
        self.participant.share(now)
    }

    /// Receivers that are in the session now.
    pub fn receivers(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Whether one that was heard last at `last` is of the session still: it reports, or its time-out is not over.
    pub fn counts(&self, now: Time, ssrc: u32, last: Time) -> bool {
        self.peers.get(ssrc).is_some() || now.since(last) <= self.participant.member_timeout()
    }

    /// A frame is ready. False when it was skipped because the backlog is at its bound, or the controller can't afford
    /// it. Poll afterwards.
    pub fn push_frame(&mut self, now: Time, frame: &Frame) -> bool {
        self.push_cut(now, frame, VecDeque::new())
    }

    /// The same as [`Sender::push_frame`], for a frame that a payload format has cut into `parts`, which together cover
    /// all of it. The payloads have the parts' lengths.
    pub fn push_cut(&mut self, now: Time, frame: &Frame, parts: VecDeque<Part>) -> bool {
        if self.stopped() {
            return false;
        }
        if !self.allowance_left.take(self.half.allowance(), self.cost_on_wire(frame.size)) {
            self.pacer.skip(frame.kind);
            return false;
        }
        let drains = self.settings.cap.map_or(self.media_rate(), |cap| cap.min(self.media_rate()));
        let taken = self.pacer.push(now, frame, parts, drains);
        if taken {
            self.tell_queue(now, Some(frame.size));
        }
        taken
    }

    /// Tells the half what waits.
    fn tell_queue(&mut self, now: Time, frame: Option<Bytes>) {
        if self.settings.greedy {
            return;
        }
        let age = self.pacer.head().map_or(Span::ZERO, |head| now.since(head.since));
        self.half.on_queue(&MediaQueue { at: now, waiting: self.pacer.backlog().bytes, age, frame });
    }

    /// What a frame of this size takes on the wire.
    fn cost_on_wire(&self, size: Bytes) -> Bytes {
        let each = self.overhead(&self.bare_header(), &Notice::NONE).max(self.notice_cost);
        let limit = self.settings.packet.saturating_sub(self.number_of_original());
        let fits = limit.saturating_sub(each).max(Bytes::new(1));
        Bytes::new(size.get() + size.get().div_ceil(fits.get()) * each.get())
    }

    /// IP size of a packet with this header and notice, without its payload.
    fn overhead(&self, header: &RtpHeader, notice: &Notice) -> Bytes {
        overhead(header, notice, self.settings.ids, self.numbered())
    }

    /// Whether packets carry their transport-wide number.
    fn numbered(&self) -> bool {
        self.settings.feedback == FeedbackFormat::TransportWide
    }

    fn bare_header(&self) -> RtpHeader {
        RtpHeader {
            payload_type: self.settings.payload_type,
            marker: false,
            seq: self.seq as u16,
            timestamp: 0,
            ssrc: self.participant.identity.ssrc,
            send_time: Some(Stamp(0)),
            payload_len: 0,
        }
    }

    /// Sends nothing more but a BYE, which in a large group waits its turn. Poll afterwards.
    pub fn stop(&mut self) {
        self.participant.leave();
        self.pacer.clear();
        if let Some(repair) = &mut self.repair {
            repair.cache.clear();
        }
        if let Some(parity) = &mut self.parity {
            parity.blocks.clear();
        }
        if let Some(siblings) = &self.settings.siblings {
            siblings.tell(Rate::ZERO);
        }
    }

    /// Whether it was stopped.
    pub fn stopped(&self) -> bool {
        self.participant.farewell != Farewell::Stays
    }

    /// A datagram has arrived on the RTCP port. Poll afterwards.
    pub fn on_rtcp(&mut self, now: Time, from: Origin, datagram: &[u8]) {
        if self.participant.farewell == Farewell::Gone {
            return;
        }
        let receives = |ssrc: &u32| self.peers.get(*ssrc).is_some_and(|peer| peer.receives && peer.from == from);
        let whose = (from, first_ssrc(datagram).filter(receives));
        let shut =
            self.is_shut_to(now, from) || self.gate.as_mut().is_some_and(|gate| !gate.admits(now, whose, self.packets));
        if shut {
            self.feedback.refused += 1;
            return;
        }
        let Ok(compound) = Compound::parse(datagram) else {
            self.feedback.unreadable += 1;
            return;
        };
        if !self.is_receivers_host(from, &compound) {
            self.feedback.refused += 1;
            return;
        }
        match self.participant.learn(now, from, &compound, datagram.len()) {
            Standing::Good => self.heard = now,
            Standing::Ignored => return,
            Standing::Collision => return self.participant.renew(),
        }
        let mine = self.participant.identity.ssrc;
        let mut reports = false;
        let teller = self.feedback_sender(now, from, &compound);
        let mut joined = teller.and_then(|_| self.join_feedback(now, &compound));
        for packet in &compound.packets {
            match packet {
                Packet::ReceiverReport { ssrc, blocks } | Packet::SenderReport { ssrc, blocks, .. }
                    if *ssrc != mine =>
                {
                    let block = blocks.iter().find(|b| b.ssrc == mine);
                    // What is said of no stream of ours may have been said in another session.
                    let body = block.and_then(|_| self.body_of(&compound, *ssrc));
                    let packets = joined.take();
                    if block.is_some() || body.is_some() || packets.is_some() {
                        let told =
                            ReceiverFeedback { block, body: body.as_ref(), packets: packets.unwrap_or_default() };
                        reports |= self.report(now, from, *ssrc, &told);
                    }
                }
                Packet::Feedback { .. } => self.on_request(now, from, packet),
                Packet::App { .. } => {
                    self.on_parity_request(now, from, packet);
                    self.on_parity_use(now, from, packet);
                }
                _ => self.on_reference(now, from, packet),
            }
        }
        // Feedback may come without a report (RFC 5506): a receiver sends what it knows of packets as a packet of its
        // own.
        if let Some((who, packets)) = teller.zip(joined) {
            reports |= self.report(now, from, who, &ReceiverFeedback { block: None, body: None, packets });
        }
        self.on_byes(now, from, &compound, datagram.len());
        if reports {
            self.feedback.packets += 1;
            self.feedback.bytes += Bytes::new((datagram.len() + steadycast_wire::IP_UDP_OVERHEAD) as u64);
        }
        self.read_decision();
    }

    fn on_byes(&mut self, now: Time, from: Origin, compound: &Compound, len: usize) {
        for ssrc in self.participant.heard_byes(now, from, compound, len) {
            if self.peers.get(ssrc).is_some_and(|p| p.from == from) {
                self.peers.remove(ssrc);
                self.half.on_leave(now, ReceiverId(ssrc), Leave::Bye);
            }
        }
        // Whoever goes on under another SSRC says BYE, too, and has yet to report under it.
        self.only = self.only.filter(|_| self.peers.len() > 0);
    }

    /// Whether another one than who is there is the one receiver.
    fn is_shut_to(&self, now: Time, from: Origin) -> bool {
        let described = self.settings.peer;
        let stays = |only: &SoleReceiver| described == Some(only.from) || now < only.until;
        described != Some(from) && self.only.is_some_and(|only| only.from != from && stays(&only))
    }

    /// Whether a compound is of the one receiver's host: from where that is, or, as long as nothing has come from
    /// there, from where two of the sender's own reports were echoed.
    fn is_receivers_host(&mut self, from: Origin, compound: &Compound) -> bool {
        let Some(described) = self.settings.peer.filter(|_| !self.settings.rtcp.group) else { return true };
        if described == from || self.only.is_some_and(|only| only.from == from) {
            return true;
        }
        let mine = self.participant.identity.ssrc;
        let blocks = compound.packets.iter().flat_map(|packet| match packet {
            Packet::ReceiverReport { blocks, .. } | Packet::SenderReport { blocks, .. } => &blocks[..],
            _ => &[],
        });
        let echo = |block: &&ReportBlock| block.ssrc == mine && self.sent_reports.echoed_by(block, self.seq);
        let Some(lsr) = blocks.clone().find(echo).map(|block| block.lsr) else { return false };
        let before = self.elsewhere.replace((from, lsr));
        before.is_some_and(|(place, earlier)| place == from && earlier != lsr)
    }

    /// Whether the controller hears what this one says: who receives the stream, and towards one receiver anybody as
    /// long as nobody there has shown that.
    fn believes(&self, ssrc: u32) -> bool {
        let open = if self.settings.rtcp.group { !self.settings.gated } else { self.peers.receiving == 0 };
        open || self.peers.get(ssrc).is_some_and(|peer| peer.receives)
    }

    /// Why the controller does not hear this one, if it has been heard of.
    pub fn doubt(&self, ssrc: u32) -> Option<&'static str> {
        (self.peers.get(ssrc).is_some() && !self.believes(ssrc))
            .then_some("it does not show that it receives the stream")
    }

    /// Somebody asks for packets or a key frame: a member, from where it is one. In the same compound it has mostly
    /// said who it is, but requests may also come alone: GStreamer's session asks often, and reports little.
    fn on_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        self.on_key_request(now, from, packet);
        let Ok(Some(nack)) = Nack::from_packet(packet) else { return };
        if !self.is_from_member(from, nack.sender, nack.media) {
            return;
        }
        let context = self.nack_context(now);
        let Some(repair) = &mut self.repair else { return };
        for number in nack.missing {
            repair.cache.on_nack(&context, number);
        }
    }

    /// Feedback tells of packets that left again and are lost: towards who is authenticated, as browsers are, they
    /// leave once more at once.
    fn on_lost(&mut self, now: Time, packets: &[PacketReport]) {
        let context = self.nack_context(now);
        let Some(repair) = self.repair.as_mut().filter(|_| self.settings.rtcp.authenticated) else { return };
        for lost in packets.iter().filter(|packet| packet.stream == Stream::Repair && packet.arrived.is_none()) {
            repair.cache.on_lost(&context, lost.number);
        }
    }

    fn nack_context(&self, now: Time) -> NackContext {
        let scarce = self.decision.limit == Limit::Floor;
        let announced_playout = self.parity.as_ref().and_then(|parity| parity.announced.longest(now));
        NackContext { now, target: self.decision.target, packet: self.settings.packet, scarce, announced_playout }
    }

    /// Somebody asks for parity: a member, as in [`Sender::on_request`].
    fn on_parity_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        let head = self.overhead(&self.bare_header(), &Notice::NONE);
        let Ok(Some(request)) = ParityRequest::from_packet(packet) else { return };
        if !self.is_from_member(from, request.sender, request.media) {
            return;
        }
        let Some(parity) = &mut self.parity else { return };
        for wanted in &request.blocks {
            let context =
                ParityRequestContext { now, target: self.decision.target, packet: self.settings.packet, head };
            parity.blocks.on_request(&context, wanted);
        }
    }

    /// A receiver says that it uses parity, and how long it waits: a member, as in [`Sender::on_request`]. Before a
    /// round trip is known nobody can tell how much parity it needs.
    fn on_parity_use(&mut self, now: Time, from: Origin, packet: &Packet) {
        let Ok(Some(told)) = ParityUse::from_packet(packet) else { return };
        if !self.is_from_member(from, told.sender, told.media) || told.playout == Span::ZERO {
            return;
        }
        let Some(parity) = self.parity.as_mut().filter(|parity| parity.until != Time::NEVER) else { return };
        parity.announced.say(now, told.sender, told.playout.min(MAX_PLAYOUT), now + PARITY_USE_LIFETIME);
        let Some(playout) = parity.announced.longest(now) else { return };
        parity.blocks.settings.playout = Some(playout);
        if self.repair.as_mut().is_none_or(|repair| repair.cache.on_playout(playout)) {
            parity.until = now + PARITY_USE_LIFETIME;
        }
    }

    /// The one receiver wants to know the round trip.
    fn on_reference(&mut self, now: Time, from: Origin, packet: &Packet) {
        let Ok(Some(time)) = ReferenceTime::from_packet(packet) else { return };
        if !self.settings.rtcp.group && self.is_from_member(from, time.ssrc, self.participant.identity.ssrc) {
            self.reference = Some((time, now));
        }
    }

    /// Whether a request comes from a member, from where that speaks, and is about the stream that is being sent.
    fn is_from_member(&self, from: Origin, sender: u32, media: u32) -> bool {
        let members = &self.participant.members;
        let known = members.contains(sender) && members.speaks_from(sender, from);
        // In a group requests have a share of their own, and a newcomer's first one is for what it can't begin without.
        let known = known && (self.settings.rtcp.group || self.believes(sender));
        known && media == self.participant.identity.ssrc && self.participant.farewell == Farewell::Stays
    }

    /// Somebody asks for a key frame.
    fn on_key_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        let mine = self.participant.identity.ssrc;
        let asks = KeyFrameRequest::all(packet).any(|request| {
            let (sender, media) = match request {
                KeyFrameRequest::PictureLoss { sender, media } => (sender, media),
                KeyFrameRequest::FullIntra { sender, media, .. } => (sender, media),
            };
            sender != mine && self.is_from_member(from, sender, media)
        });
        let apart = if self.settings.rtcp.group { MIN_KEY_FRAME_INTERVAL * 4 } else { MIN_KEY_FRAME_INTERVAL };
        if asks && self.key_frame.1.is_none_or(|last| now.since(last) >= apart) {
            self.key_frame = (true, Some(now));
        }
    }

    fn body_of(&self, compound: &Compound, from: u32) -> Option<Body> {
        compound.packets.iter().find_map(|packet| match packet {
            Packet::App { ssrc, subtype, name, data } if *ssrc == from && *name == self.settings.app => {
                Some(Body { subtype: *subtype, bytes: data.clone() })
            }
            _ => None,
        })
    }

    /// Who tells of single packets in a compound: who reports in it, or, without a report, who sent its first feedback
    /// message. `None` unless that is a member that speaks from there. Of each packet only the first word that it has
    /// arrived counts: a stranger's would take the place of the receiver's.
    fn feedback_sender(&mut self, now: Time, from: Origin, compound: &Compound) -> Option<u32> {
        let (mine, format) = (self.participant.identity.ssrc, self.settings.feedback);
        if !compound.packets.iter().any(|packet| feedback::tells(format, packet)) {
            return None;
        }
        let reports = compound.packets.iter().find_map(|packet| match packet {
            Packet::ReceiverReport { ssrc, .. } | Packet::SenderReport { ssrc, .. } if *ssrc != mine => Some(*ssrc),
            _ => None,
        });
        let members = &mut self.participant.members;
        let who = match reports {
            Some(who) => who,
            None => {
                let who = reporter(compound, mine)?;
                members.on_rtcp(now, who, from);
                who
            }
        };
        (members.contains(who) && members.speaks_from(who, from) && self.believes(who)).then_some(who)
    }

    /// The per-packet feedback in a compound, joined with what was sent; `None` without any.
    fn join_feedback(&mut self, now: Time, compound: &Compound) -> Option<Joined> {
        let (mine, format) = (self.participant.identity.ssrc, self.settings.feedback);
        let history = self.history.as_mut()?;
        let repair = self.repair.as_ref().map(|repair| repair.cache.settings.ssrc);
        let parity = self.parity.as_ref().map(|parity| parity.blocks.settings.ssrc);
        let stream_of = |ssrc| match ssrc {
            _ if ssrc == mine => Some(Stream::Media),
            _ if repair == Some(ssrc) => Some(Stream::Repair),
            _ if parity == Some(ssrc) => Some(Stream::Parity),
            _ => None,
        };
        let (joined, unread) = feedback::join(history, now, compound, format, stream_of);
        self.feedback.refused += unread;
        joined
    }

    /// The one receiver reports from there; `often`: by more than a standard report. If it is another one, those before
    /// it have left.
    fn listen_to(&mut self, now: Time, from: Origin, often: bool) {
        let before = self.only.filter(|only| only.from == from);
        if before.is_none() {
            while let Some(gone) = self.peers.pop_silent(Time::NEVER) {
                self.half.on_leave(now, ReceiverId(gone), Leave::Silent);
            }
        }
        let often = often || before.is_some_and(|only| only.often);
        let patience = if often { Span::ZERO } else { STANDARD_REPORTS_GRACE };
        self.only = Some(SoleReceiver { from, often, until: now + self.participant.member_timeout() + patience });
    }

    /// A receiver reports. False: its SSRC is that of another one. Of a group that is sampled the members alone do not
    /// show that.
    fn report(&mut self, now: Time, origin: Origin, from: u32, told: &ReceiverFeedback<'_>) -> bool {
        let ReceiverFeedback { block, body, packets: joined } = told;
        if !self.settings.rtcp.group {
            self.listen_to(now, origin, body.is_some() || !joined.packets.is_empty());
        }
        if self.peers.get(from).is_some_and(|peer| peer.from != origin) {
            self.feedback.refused += 1;
            return false;
        }
        if let Some(gone) = self.peers.make_room_for(from) {
            self.half.on_leave(now, ReceiverId(gone), Leave::Silent);
        }
        self.peers.hear(now, origin, from, body.is_some());
        let echoes = block.is_some_and(|block| self.sent_reports.echoed_by(block, self.seq));
        if let Some(block) = block.filter(|_| echoes) {
            self.peers.echo(from, block.lsr);
        }
        // In a group, one whose report echoes no report of late receives nothing now: no rate would suit it.
        let stale = self.settings.rtcp.group && self.settings.gated && block.is_some() && !echoes;
        if stale || !self.believes(from) {
            return true;
        }
        let members = if self.settings.gated { self.peers.receiving.max(1) } else { self.peers.len() } as u32;
        let Some(peer) = self.peers.get_mut(from) else { return true };
        let (mut reception, mut rtt) = (None, None);
        if let Some(block) = block {
            rtt = ntp::round_trip(self.settings.epoch.middle(now), block.lsr, block.dlsr);
            let (expected, lost) = peer.count(block);
            peer.on_loss(expected, lost);
            reception = Some(Reception {
                expected,
                lost,
                fraction: f64::from(block.fraction) / 256.0,
                highest: peer.extended(block.highest_seq, self.seq),
                jitter: Span::nanos(u64::from(block.jitter) * 1_000_000_000 / u64::from(CLOCK_RATE)),
            });
        }
        if let Some((repair, rtt)) = self.repair.as_mut().zip(rtt) {
            repair.cache.on_round_trip(rtt);
        }
        // What a packet's own feedback measures is newer than what a report block does.
        let rtt = joined.rtt.or(rtt);
        self.ecn.on_report(&joined.packets, self.number);
        self.on_lost(now, &joined.packets);
        self.half.on_report(&Report {
            at: now,
            from: ReceiverId(from),
            rtt,
            reception,
            body: *body,
            packets: &joined.packets,
            members,
        });
        if from != GSTREAMER_UNSET_SSRC && self.peers.get(GSTREAMER_UNSET_SSRC).is_some_and(|peer| peer.from == origin)
        {
            self.peers.remove(GSTREAMER_UNSET_SSRC);
            self.half.on_leave(now, ReceiverId(GSTREAMER_UNSET_SSRC), Leave::Silent);
        }
        true
    }

    /// What to do now. To be called until it says [`Output::Wait`], after every other call and when the time has come.
    /// A call too many changes nothing.
    ///
    /// One frame crosses a path of 20 ms, and the receiver's reports come back:
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use steadycast_control::registry::{Chosen, Setup};
    /// use steadycast_control::{Mode, Wake};
    /// use steadycast_session::{
    ///     Frame, FrameKind, Identity, Origin, Output, Profile, Receiver, RtcpSettings, Sender, SenderSettings,
    /// };
    /// use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
    ///
    /// let (packet, session_bandwidth, seed) = (Bytes::new(1000), Rate::mbps(1), Seed(1));
    /// let pair = Chosen::shared("fixed", Mode::Repaired, &[])?;
    /// let setup = Setup { packet, ..Setup::unicast(Rate::ZERO, session_bandwidth, seed.part("half")) };
    /// let rtcp = RtcpSettings::new(Profile::Rfc3550, session_bandwidth);
    /// let who = |ssrc| Identity { ssrc, cname: format!("{ssrc}@example") };
    /// let app = pair.terms().app;
    /// let settings = SenderSettings::new(who(1), rtcp, packet, app);
    /// let (mut now, end, delay) = (Time::ZERO, Time::ZERO + Span::secs(5), Span::millis(20));
    /// let mut sender = Sender::new(settings, pair.sender(&setup), seed.part("sender"), now);
    /// let mut receiver = Receiver::new(who(2), rtcp, app, pair.receiver(&setup), seed.part("receiver"), now);
    ///
    /// sender.push_frame(now, &Frame { index: 0, kind: FrameKind::I, size: Bytes::new(5_000), sampled: now });
    /// // Datagrams under way: when each arrives, and where.
    /// let mut path: VecDeque<(Time, &str, Vec<u8>)> = VecDeque::new();
    /// while now < end {
    ///     let mut wake = end;
    ///     let mut waits = |until: Option<Wake>| wake = until.map_or(wake, |w| wake.min(w.at));
    ///     loop {
    ///         match sender.poll(now) {
    ///             Output::Media(media) => {
    ///                 let mut datagram = Vec::new();
    ///                 media.encode(&vec![0; media.header.payload_len.into()], &mut datagram);
    ///                 path.push_back((now + delay, "RTP", datagram));
    ///             }
    ///             Output::Rtcp(datagram) => path.push_back((now + delay, "RTCP to the receiver", datagram)),
    ///             Output::Wait(until) => break waits(until),
    ///         }
    ///     }
    ///     loop {
    ///         match receiver.poll(now) {
    ///             Output::Rtcp(datagram) => path.push_back((now + delay, "RTCP to the sender", datagram)),
    ///             Output::Wait(until) => break waits(until),
    ///             Output::Media(_) => unreachable!("a receiver sends no media"),
    ///         }
    ///     }
    ///     now = path.front().map_or(wake, |(at, ..)| wake.min(*at));
    ///     while let Some((_, to, datagram)) = path.pop_front_if(|(at, ..)| *at <= now) {
    ///         match to {
    ///             "RTP" => drop(receiver.on_rtp(now, Origin(1), &datagram, Ecn::NotEct, None)),
    ///             "RTCP to the receiver" => receiver.on_rtcp(now, Origin(1), &datagram),
    ///             _ => sender.on_rtcp(now, Origin(2), &datagram),
    ///         }
    ///     }
    /// }
    /// assert_eq!((sender.packets(), receiver.received()), (6, 6));
    /// // Between two parties the interval is 360 s / 1000, the bandwidth in kb/s (RFC 3550, 6.2).
    /// assert!((10..=18).contains(&sender.feedback().packets));
    /// # Ok::<(), steadycast_control::ParamError>(())
    /// ```
    pub fn poll(&mut self, now: Time) -> Output {
        if let Some(bytes) = self.participant.first_of_all(now) {
            return Output::Rtcp(bytes);
        }
        if self.stopped() {
            if self.participant.farewell_due(now, self.packets > 0) {
                return Output::Rtcp(self.last_words(now));
            }
            return Output::Wait(self.participant.farewell_wake(now));
        }
        if let Some(wake) = self.half.wake()
            && wake.at <= now
        {
            self.half.on_timer(now);
            self.read_decision();
        }
        // As a receiver half's reports, those that a sender half asks for have a bandwidth of their own.
        let reports = match self.half.due() {
            Due::Rtcp => self.participant.rtcp_due(now),
            Due::At(wake) => wake.at <= now,
            Due::Hold => false,
        };
        if reports || self.grown_at().is_some_and(|at| at <= now) {
            return Output::Rtcp(self.sender_report(now));
        }
        let repairs = self.repair.as_mut().is_some_and(|repair| repair.cache.waits(now));
        if let Some(due) = self.media_due()
            && due <= now
        {
            let again = if repairs { self.send_repair(now) } else { None };
            let extra = again.or_else(|| self.send_parity(now));
            let waits = self.settings.greedy || self.pacer.head().is_some();
            let extra = extra.or_else(|| if waits { None } else { self.send_padding(now) });
            let media = extra.unwrap_or_else(|| self.send_media(now));
            self.ecn.on_sent(now, media.number);
            self.participant.see_size(media.size);
            return Output::Media(media);
        }
        self.wait_until_due(now)
    }

    fn wait_until_due(&self, now: Time) -> Output {
        let media = self.media_due().map(|at| Wake { at, why: "pacer" });
        let report = match self.half.due() {
            Due::Rtcp => Some(self.participant.wake()),
            Due::At(wake) => Some(wake),
            Due::Hold => None,
        };
        let grown = self.grown_at().map(|at| Wake { at, why: "group has grown" });
        let soonest = [self.half.wake(), report, media, grown].into_iter().flatten().min_by_key(|w| w.at);
        // A half that is late all the same must not keep its driver from ever waiting.
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    /// When the next packet may leave; `None` when there is none or the window is closed.
    fn media_due(&self) -> Option<Time> {
        let closed = self.decision.window.is_some_and(Window::is_closed);
        let repairs = self.repair.as_ref().is_some_and(|repair| repair.cache.has_waiting());
        let parity = self.parity.as_ref().is_some_and(|parity| parity.blocks.waits());
        let waits = self.settings.greedy || self.pacer.head().is_some() || repairs || parity || self.pads_for_probe();
        let capped = || self.cap.map_or(Time::ZERO, |bucket| bucket.holds_at(self.settings.packet));
        (waits && !closed).then(|| self.pacer.due(self.departure_rate()).max(capped()))
    }

    /// Whether padding would leave, did nothing else wait: a probe is under way.
    fn pads_for_probe(&self) -> bool {
        let kept = self.repair.as_ref().is_some_and(|repair| repair.cache.newest().is_some());
        kept && self.padding.is_some() && self.prober.pads() && !self.stopped()
    }

    /// The rate at which packets leave: a probe's while one is under way.
    fn departure_rate(&self) -> Rate {
        self.prober.rate().unwrap_or_else(|| self.media_rate())
    }

    /// Counts a packet of any stream at the pacer and at the cap.
    fn count_departure(&mut self, now: Time, size: Bytes, pacing: Rate) {
        self.pacer.sent(now, size, pacing);
        if let Some(bucket) = &mut self.cap {
            bucket.take(now, size);
        }
    }

    /// The rate at which packets leave without a probe.
    fn media_rate(&self) -> Rate {
        let Decision { target, pacing, .. } = self.decision;
        if self.settings.room > 1.0 { pacing.max(target.scale(self.settings.room)) } else { pacing }
    }

    fn send_media(&mut self, now: Time) -> Media {
        let mut header = RtpHeader { send_time: Some(Stamp::of(now)), ..self.bare_header() };
        // A retransmission is longer by the original's number.
        let limit = self.settings.packet.saturating_sub(self.number_of_original());
        let room = |cost: Bytes| limit.saturating_sub(cost).max(Bytes::new(1));
        let ready = self.pacer.head().map_or(now, |head| head.since);
        let cost = self.overhead(&header, &Notice::NONE).max(self.notice_cost);
        let (frame, offset, rest, part) = match self.pacer.head() {
            Some(head) => (head.frame, head.offset, head.rest(), head.parts.front().copied()),
            None => {
                let frame = Frame { index: self.greedy_frame, kind: FrameKind::P, size: room(cost), sampled: now };
                (frame, Bytes::ZERO, frame.size, None)
            }
        };
        let most = part.map_or(room(self.notice_cost), |p| Bytes::new(u64::from(p.len)));
        let last = !self.settings.greedy && rest <= most;
        let mut edge = FrameEdge { first: offset == Bytes::ZERO, last };
        let size = cost + part.map_or(rest.min(room(cost)), |p| Bytes::new(u64::from(p.payload)));
        let notice = self.half.notice(&Departing { at: now, seq: self.seq, size, edge });
        let cost = self.overhead(&header, &notice);
        self.notice_cost = cost;
        let fits = room(cost).max(Bytes::new(1));
        let (len, payload) = match part {
            Some(part) => (most, Bytes::new(u64::from(part.payload))),
            None if self.settings.greedy => (fits, fits),
            None => (rest.min(fits), rest.min(fits)),
        };
        // What has no frames ends none.
        edge.last = !self.settings.greedy && len == rest;
        header.marker = edge.last;
        header.timestamp = self.timestamp(frame.sampled);
        header.payload_len = payload.get() as u16;
        let size = cost + payload;
        let fragment = Fragment { frame: frame.index, offset: offset.get() as u32, len: len.get() as u16 };
        let transport = self.numbered().then_some(self.number as u16);
        let (stream, repairs, ids) = (Stream::Media, None, self.settings.ids);
        let (number, seq) = (self.number, self.seq);
        let ecn = self.ecn.field();
        let media = Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn };
        self.keep_for_repair(now, &media, frame.kind, ready);
        self.on_media_sent(now, &media, len);
        media
    }

    /// A packet of the media leaves, with `len` bytes of the frame: pacer, history, counters and controller take it in.
    fn on_media_sent(&mut self, now: Time, media: &Media, len: Bytes) {
        let size = media.size;
        if let Some(history) = &mut self.history {
            history.on_sent(self.number, now, size, Stream::Media, self.seq as u16);
        }
        if self.settings.greedy {
            self.greedy_frame = self.greedy_frame.wrapping_add(1);
        } else {
            self.pacer.take(len);
        }
        self.count_departure(now, size, self.departure_rate());
        let early = self.prober.on_sent(self.half.probe(), size);
        self.pacer.owe(early);
        if !self.settings.greedy && self.pacer.head().is_none() && !self.pads_for_probe() {
            self.prober.ran_dry();
        }
        self.participant.members.on_own_rtp(now);
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(u32::from(media.header.payload_len));
        let data_limited = !self.settings.greedy && self.pacer.head().is_none();
        self.half.on_sent(&Sent { at: now, left: now, number: self.number, seq: self.seq, size, data_limited });
        self.tell_queue(now, None);
        self.number += 1;
        self.seq += 1;
        if self.decision.window.is_some() {
            self.read_decision();
        }
    }

    /// What a packet that is sent again, or its parity, is longer by.
    fn number_of_original(&self) -> Bytes {
        match (&self.parity, &self.repair) {
            (Some(_), _) => PARITY_MORE,
            (None, Some(_)) => Bytes::new(rtx::OSN as u64),
            (None, None) => Bytes::ZERO,
        }
    }

    /// An original leaves: it may be asked for.
    fn keep_for_repair(&mut self, now: Time, media: &Media, kind: FrameKind, ready: Time) {
        let again = self.overhead(&media.header, &Notice::NONE) + self.number_of_original();
        // A probe's packets may leave faster.
        let pacing = self.media_rate().max(self.departure_rate());
        self.add_to_block(now, media, now.since(ready));
        let Some(repair) = &mut self.repair else { return };
        let (header, fragment) = (media.header, media.fragment);
        let size = again + Bytes::new(u64::from(header.payload_len));
        repair.cache.on_sent(
            media.seq,
            CachedPacket { header, fragment, kind, ready, sent: now, size, queued: false, resent_as: None },
        );
        repair.share.on_sent(now, media.size, false);
        if self.settings.emit == Emit::Paced {
            repair.inside.on_sent(now, media.size, pacing);
        }
    }

    /// Sends a packet again, under a number of the retransmission stream; `None`: none waits.
    fn send_repair(&mut self, now: Time) -> Option<Media> {
        let pacing = self.media_rate();
        let repair = self.repair.as_mut()?;
        let Retransmission { seq: original, packet } = repair.cache.next(now, self.number)?;
        repair.cache.counts.packets += 1;
        repair.cache.counts.bytes += packet.size;
        repair.share.on_sent(now, packet.size, true);
        self.send_again(now, original, &packet, Stream::Repair, pacing)
    }

    /// Sends a packet again, at this rate, under the next number of the retransmission stream.
    fn send_again(
        &mut self,
        now: Time,
        original: u64,
        packet: &CachedPacket,
        stream: Stream,
        pacing: Rate,
    ) -> Option<Media> {
        let (numbered, media) = (self.numbered(), self.participant.identity.ssrc);
        let repair = self.repair.as_mut()?;
        let RepairSettings { ssrc, payload_type, .. } = repair.cache.settings;
        let rtx = RtxStream { payload_type, apt: self.settings.payload_type, ssrc, media };
        let header = rtx.header(repair.seq as u16, &packet.header).ok()?;
        let header = RtpHeader { send_time: Some(Stamp::of(now)), ..header };
        let (seq, size, number) = (repair.seq, packet.size, self.number);
        repair.seq += 1;
        self.number += 1;
        if self.settings.emit == Emit::Paced {
            repair.inside.on_sent(now, size, pacing);
        }
        if let Some(history) = &mut self.history {
            history.on_sent(number, now, size, stream, seq as u16);
        }
        self.count_departure(now, size, pacing);
        self.half.on_extra_sent(&ExtraSent { at: now, left: now, number, stream, size });
        self.read_decision();
        let transport = numbered.then_some(number as u16);
        let (notice, fragment, repairs) = (Notice::NONE, packet.fragment, Some(original));
        let (ids, ecn) = (self.settings.ids, self.ecn.field());
        Some(Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn })
    }

    /// Sends the newest packet again, for its size alone; `None`: none is kept.
    fn send_padding(&mut self, now: Time) -> Option<Media> {
        if !self.pads_for_probe() {
            return None;
        }
        let Retransmission { seq: original, packet } = self.repair.as_ref()?.cache.newest()?;
        let media = self.send_again(now, original, &packet, Stream::Padding, self.departure_rate())?;
        // A probe that is filled up is not within the pacing rate: nothing of it was too early.
        self.prober.on_sent(None, media.size);
        if let Some(padding) = &mut self.padding {
            padding.packets += 1;
            padding.bytes += media.size;
        }
        Some(media)
    }

    /// A packet of the media leaves `waited` after its frame was ready: it becomes part of a block.
    fn add_to_block(&mut self, now: Time, media: &Media, waited: Span) {
        let Some(parity) = &mut self.parity else { return };
        parity.share.on_sent(now, media.size, false);
        if now >= parity.until {
            return;
        }
        if now.since(parity.looked) >= LOSS_CHECK_INTERVAL {
            parity.looked = now;
            if let Some(loss) = self.peers.loss(UNSERVED_SHARE) {
                parity.blocks.on_loss(now, loss);
            }
        }
        let loss = parity.blocks.loss();
        let few = self.participant.census().members <= MAX_REQUESTING_MEMBERS;
        let left = match &mut self.repair {
            None if few && self.peers.len() > 0 => REQUESTING_GROUP_RESIDUAL_LOSS,
            None => GROUP_RESIDUAL_LOSS,
            Some(repair) => {
                let missed = 1.0 - (1.0 - loss) * (1.0 - loss);
                let tries = repair.cache.tries(now, media.header.timestamp, waited, parity.announced.longest(now));
                (0..tries).fold(UNICAST_RESIDUAL_LOSS, |left, _| left / missed.max(1e-9))
            }
        };
        let packet = Protected { seq: media.seq, fragment: media.fragment, marker: media.header.marker };
        parity.blocks.on_sent(now, packet, media.header.payload_len, left);
    }

    /// Sends a parity; `None`: none waits.
    fn send_parity(&mut self, now: Time) -> Option<Media> {
        let numbered = self.numbered();
        let (pacing, bare) = (self.media_rate(), self.bare_header());
        let head = self.overhead(&bare, &Notice::NONE);
        let parity = self.parity.as_mut()?;
        let Parity { protection, payload } = parity.blocks.next()?;
        let ParitySettings { ssrc, payload_type, .. } = parity.blocks.settings;
        let size = head + Bytes::new(payload.into());
        let (number, seq, stream) = (self.number, parity.seq, Stream::Parity);
        parity.seq += 1;
        parity.packets += 1;
        parity.bytes += size;
        parity.share.on_sent(now, size, true);
        let fragment = protection.packets.first()?.fragment;
        parity.newest = Some(protection);
        if let Some(repair) = self.repair.as_mut().filter(|_| self.settings.emit == Emit::Paced) {
            repair.inside.on_sent(now, size, pacing);
        }
        if let Some(history) = &mut self.history {
            history.on_sent(number, now, size, stream, seq as u16);
        }
        self.number += 1;
        self.count_departure(now, size, pacing);
        self.half.on_extra_sent(&ExtraSent { at: now, left: now, number, stream, size });
        self.read_decision();
        let timestamp = self.timestamp(now);
        let send_time = Some(Stamp::of(now));
        let header =
            RtpHeader { payload_type, seq: seq as u16, timestamp, ssrc, send_time, payload_len: payload, ..bare };
        let (transport, ecn) = (numbered.then_some(number as u16), self.ecn.field());
        let (notice, repairs, ids) = (Notice::NONE, None, self.settings.ids);
        Some(Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn })
    }

    fn timestamp(&self, at: Time) -> u32 {
        let ticks = u128::from(at.as_nanos()) * u128::from(CLOCK_RATE) / 1_000_000_000;
        self.settings.first_timestamp.wrapping_add(ticks as u32)
    }

    /// When members are to be told out of turn that they have become many more than they know: they report to us alone,
    /// and would go on at the pace of a small group.
    fn grown_at(&self) -> Option<Time> {
        let (known, at) = self.told;
        let grown = self.participant.summary() && self.participant.census().members > known + known / 2 + 2;
        grown.then(|| at + MIN_SUMMARY_INTERVAL)
    }

    fn sender_report(&mut self, now: Time) -> Vec<u8> {
        self.forget_silent(now);
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.first_report(now), self.participant.sdes()];
        if self.participant.summary() {
            self.told = (self.participant.census().members, now);
            let (group, ntp) = (Some(self.participant.group_size()), self.settings.epoch.ntp(now));
            packets.push(Packet::Summary { ssrc, media: ssrc, ntp, group });
        }
        if let Some((reference, came)) = self.reference.take() {
            packets.push(reference.answer(ssrc, ntp::dlsr(now.since(came))));
        }
        if let Some(body) = self.half.announce(now) {
            packets.push(app(ssrc, self.settings.app, body));
            self.read_decision();
        }
        if let Some(siblings) = &self.settings.siblings {
            packets.push(app(ssrc, simulcast::APP, siblings.body()));
        }
        self.participant.encode(now, packets)
    }

    fn last_words(&mut self, now: Time) -> Vec<u8> {
        let bye = Packet::Bye { ssrcs: vec![self.participant.identity.ssrc], reason: String::new() };
        let packets = vec![self.first_report(now), self.participant.sdes(), bye];
        self.participant.encode(now, packets)
    }

    fn first_report(&mut self, now: Time) -> Packet {
        let ssrc = self.participant.identity.ssrc;
        if self.packets > 0 {
            self.sent_reports.push(now, self.settings.epoch.middle(now), self.seq);
            Packet::SenderReport {
                ssrc,
                ntp: self.settings.epoch.ntp(now),
                rtp: self.timestamp(now),
                packets: self.packets,
                octets: self.octets,
                blocks: Vec::new(),
            }
        } else {
            Packet::ReceiverReport { ssrc, blocks: Vec::new() }
        }
    }

    /// A receiver that has been silent for five intervals is gone (RFC 3550, 6.3.5).
    fn forget_silent(&mut self, now: Time) {
        let limit = now.before(self.participant.member_timeout());
        while let Some(ssrc) = self.peers.pop_silent(limit) {
            self.half.on_leave(now, ReceiverId(ssrc), Leave::Silent);
            self.read_decision();
        }
    }

    fn read_decision(&mut self) {
        self.prober.want(self.half.probe());
        let decision = self.half.decision();
        if decision != self.decision {
            self.decision = decision;
            let pacing = self.media_rate();
            if let Some(repair) = &mut self.repair {
                repair.inside.rate = repair.inside.rate.max(pacing);
            }
            self.changed = true;
            if let Some(siblings) = self.settings.siblings.as_ref().filter(|_| !self.stopped()) {
                siblings.tell(self.decision.target);
            }
        }
    }
}

/// The SSRC with which a compound begins.
fn first_ssrc(datagram: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*datagram.get(4..)?.first_chunk()?))
}

/// Who sent the first feedback message in a compound, unless that was the source `mine` itself.
fn reporter(compound: &Compound, mine: u32) -> Option<u32> {
    let sender = |packet: &Packet| if let Packet::Feedback { sender, .. } = packet { Some(*sender) } else { None };
    compound.packets.iter().find_map(sender).filter(|ssrc| *ssrc != mine)
}

pub(crate) fn app(ssrc: u32, name: [u8; 4], body: Body) -> Packet {
    let mut data = body.bytes;
    data.resize(data.len().next_multiple_of(4), 0);
    Packet::App { ssrc, subtype: body.subtype, name, data }
}
