use crate::audio::{self, AudioSender};
use crate::ecn::{EcnCheck, EcnCounts, EcnPath};
use crate::media::{HeaderIds, overhead};
use crate::participant::{Farewell, Participant, Standing};
use crate::peers::{Peers, STANDARD_REPORTS_GRACE};
use crate::receiver_proof::SentReports;
use crate::repair::{NextParity, ParityRequestContext, RepairStreams};
use crate::report_limiter::ReportLimiter;
use crate::{
    AudioPacket, AudioSettings, Backlog, Emit, Fragment, Frame, FrameKind, Identity, Media, Output, ParitySettings,
    Part, Probes, Protection, RepairSettings, Repairs, RtcpSettings, Siblings,
};
use std::collections::VecDeque;
use steadycast_control::{
    Allowance, Body, Check, Decision, Departing, Due, ExtraSent, FeedbackFormat, FrameEdge, Leave, Limit, MediaQueue,
    Notice, PacketReport, Probe, ReceiverId, Reception, Report, SenderHalf, Sent, Stream, Wake, Window, simulcast,
};
use steadycast_remote::{History, Joined};
use steadycast_rtcp::{Origin, Profile};
use steadycast_sender::{
    CachedPacket, FrameQueue, FrameRole, NackContext, Pace, PacketName, Prober, Retransmission, feedback,
};
use steadycast_units::{Bytes, Chance, Ecn, Rate, Span, Stamp, Time, TokenBucket, sums};
use steadycast_wire::ntp::{self, NtpEpoch};
use steadycast_wire::rtcp::{
    Compound, KeyFrameRequest, Nack, Packet, ParityRequest, ParityUse, ReferenceTime, ReportBlock,
};
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::rtx::RtxStream;

/// Settings of a [`Sender`].
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// The sender's SSRC and canonical name (CNAME).
    pub identity: Identity,
    /// The timing rules of RTCP.
    pub rtcp: RtcpSettings,
    /// The IP size of a full packet, including header extensions.
    pub packet: Bytes,
    /// The RTP payload type of the media.
    pub payload_type: u8,
    /// The ids of the RTP header extensions.
    pub ids: HeaderIds,
    /// Whether packets are paced, or sent as a burst per frame.
    pub emit: Emit,
    /// After a late wake-up, the pacer sends without gaps to catch up, but for at most this time.
    pub credit: Span,
    /// Maximum rate of all media, repair packets and padding together. Short bursts can exceed it ([`CAP_BURST`]).
    pub cap: Option<Rate>,
    /// Whether there are always data to send. In this case each packet has a timestamp of its own and no marker bit.
    pub greedy: bool,
    /// Whether reports are checked before they are used. Their rate is limited per address. In a group, a receiver must
    /// also prove that it receives the stream.
    pub gated: bool,
    /// The address of a unicast receiver. If no RTCP has arrived from it, another address is accepted once that address
    /// has proved that it receives sender reports.
    pub peer: Option<Origin>,
    /// The format of per-packet feedback. Feedback in other formats is ignored.
    pub feedback: FeedbackFormat,
    /// The name of the controller's RTCP APP packets.
    pub app: [u8; 4],
    /// The first RTP sequence number.
    pub first_seq: u16,
    /// The RTP timestamp at time zero.
    pub first_timestamp: u32,
    /// The wall-clock time at time zero, for NTP timestamps.
    pub epoch: NtpEpoch,
    /// The ECN field of RTP packets, as long as the path does not change it.
    pub ecn: Ecn,
    /// Minimum ratio of the pacing rate to the target rate. It is at least 1 and makes room for frames of varying size.
    /// It has no effect on a greedy source.
    pub room: f64,
    /// Settings for retransmission on NACK (RFC 4588). With `None`, packets are not retransmitted. Only for sessions of
    /// two members.
    pub repair: Option<RepairSettings>,
    /// Whether the newest packet is retransmitted as padding, to fill a probe while no other packet waits. This
    /// requires `repair`.
    pub padding: bool,
    /// Settings for parity packets (FEC). With `None`, there is no parity.
    pub parity: Option<ParitySettings>,
    /// Whether parity is sent only while receivers announce that they use it ([`Receiver::telling_playout`]).
    ///
    /// [`Receiver::telling_playout`]: crate::Receiver::telling_playout
    pub parity_on_word: bool,
    /// Settings of the audio stream. With `None`, there is no audio.
    pub audio: Option<AudioSettings>,
    /// The other senders of a simulcast. This sender announces their rates together with its own.
    pub siblings: Option<Siblings>,
}

impl SenderSettings {
    /// Creates settings for paced frames. The pacer does not catch up, and sequence numbers and timestamps start at 0.
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
            audio: None,
            siblings: None,
        }
    }

    /// Returns the size of the token bucket that limits the rate to `cap`.
    fn burst_above(&self, cap: Rate) -> Bytes {
        let packets = self.packet + self.packet + cap.over(self.credit);
        if self.greedy { packets } else { packets.max(cap.over(CAP_BURST)) }
    }
}

/// Frames are skipped if the pacing rate needs more than this time to drain the queue.
const MAX_BACKLOG: Span = Span::secs(1);

/// The burst that [`SenderSettings::cap`] permits, as a time at that rate. A key frame has to fit into it. In any time
/// T, at most `cap · (T + CAP_BURST)` plus one packet is sent.
pub const CAP_BURST: Span = Span::millis(250);

/// The RTP clock rate of video, in Hz.
pub(crate) const CLOCK_RATE: u32 = 90_000;

/// The sending side of a session.
pub struct Sender {
    settings: SenderSettings,
    half: Box<dyn SenderHalf>,
    decision: Decision,
    changed: bool,
    queue: FrameQueue<QueuedParts>,
    pace: Pace,
    emit: Emit,
    cap: Option<TokenBucket>,
    prober: Prober,
    participant: Participant,
    peers: Peers,
    sole_receiver: Option<SoleReceiver>,
    /// An address other than the receiver's from which a report has arrived, and the LSR in that report. The LSR
    /// matches a sender report. If a second report from the address has the LSR of another sender report, the receiver
    /// has moved there.
    elsewhere: Option<(Origin, u32)>,
    sent_reports: SentReports,
    seq: u64,
    /// Number of packets sent so far, in all streams.
    number: u64,
    history: Option<History>,
    /// The SSRC of the receiver that has sent the latest per-packet feedback.
    feedback_from: Option<u32>,
    packets: u32,
    octets: u32,
    greedy_frame: u32,
    /// The size of the previous packet's headers. It is the estimate for the next packet.
    notice_cost: Bytes,
    allowance_left: AllowanceLeft,
    feedback: FeedbackCounts,
    gate: Option<ReportLimiter>,
    /// The last announced size of the group (RFC 5760), and the time of this announcement.
    last_summary: (u32, Time),
    /// When RTCP of a member last arrived. Before the first arrival: when the session started.
    last_rtcp: Time,
    ecn: EcnCheck,
    /// The streams of retransmissions, padding and parity.
    repair: RepairStreams,
    audio: Option<AudioSender>,
    /// Whether a key frame is requested, and when the encoder was last asked for a key frame.
    key_frame: (bool, Option<Time>),
    /// The reference time in the receiver's report (RFC 3611), and when it arrived. The next sender report answers it.
    reference: Option<(ReferenceTime, Time)>,
}

/// The receiver of a unicast session. RTCP from other hosts is ignored until this receiver leaves or times out.
#[derive(Clone, Copy, Debug)]
struct SoleReceiver {
    from: Origin,
    /// Whether the receiver has sent more than standard reports. In this case its reports are frequent, and it times
    /// out sooner by [`STANDARD_REPORTS_GRACE`].
    often: bool,
    until: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct AllowanceLeft {
    /// The value of [`Allowance::until`] in the present allowance. A different value means a new allowance.
    until: Time,
    spent: Bytes,
    /// Whether a frame has exceeded the allowance. All later frames are dropped as well, until a new allowance begins.
    closed: bool,
}

impl AllowanceLeft {
    /// Takes `cost` bytes from the allowance. Returns false if they exceed it.
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

/// The feedback of a receiver in an RTCP compound.
struct ReceiverFeedback<'a> {
    block: Option<&'a ReportBlock>,
    body: Option<&'a Body>,
    packets: Joined,
}

/// Minimum time between two requested key frames in a unicast session.
const MIN_KEY_FRAME_INTERVAL: Span = Span::millis(500);

/// The SSRC that GStreamer 1.22 uses in feedback until its session has chosen an SSRC.
const GSTREAMER_UNSET_SSRC: u32 = u32::MAX;

/// Minimum time between two reports of a unicast sender with AVPF.
const MIN_REPORT_INTERVAL: Span = Span::secs(1);

/// Minimum time between two announcements of the group size (RFC 5760) while the group grows.
const MIN_SUMMARY_INTERVAL: Span = Span::millis(50);

/// How much RTCP feedback a sender has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedbackCounts {
    /// Number of compounds with a report about this sender's stream.
    pub packets: u64,
    /// The IP bytes of these compounds.
    pub bytes: Bytes,
    /// Number of datagrams that could not be parsed.
    pub unreadable: u64,
    /// Number of datagrams and reports that were ignored. They came from a wrong address, exceeded a limit, or had the
    /// SSRC of another receiver.
    pub refused: u64,
}

sums!(FeedbackCounts { packets, bytes, unreadable, refused });

impl Sender {
    /// Creates a sender that starts at `now`. `chance` provides the random part of RTCP intervals.
    pub fn new(settings: SenderSettings, half: Box<dyn SenderHalf>, chance: Chance, now: Time) -> Self {
        let mut rtcp = settings.rtcp;
        if let Profile::Avpf { t_rr_interval } = &mut rtcp.profile
            && !rtcp.group
        {
            // Limit the rate of sender reports, because RFC 4585 would permit perhaps a hundred per second.
            *t_rr_interval = (*t_rr_interval).max(MIN_REPORT_INTERVAL);
        }
        let mut participant = Participant::new(settings.identity.clone(), rtcp, true, chance, now);
        participant.members.set_further_streams(settings.audio.is_some().into());
        let decision = half.decision();
        if let Some(siblings) = &settings.siblings {
            siblings.set_rate(decision.target);
        }
        // Do not use bursts with a greedy source: a burst ends with its frame, and a greedy source has no frames.
        let emit = if settings.greedy { Emit::Paced } else { settings.emit };
        Self {
            decision,
            changed: true,
            queue: FrameQueue::new((emit == Emit::Paced || settings.cap.is_some()).then_some(MAX_BACKLOG)),
            pace: Pace::new(settings.credit),
            emit,
            cap: settings.cap.map(|cap| TokenBucket::new(cap, settings.burst_above(cap))),
            prober: Prober::default(),
            participant,
            peers: Peers::default(),
            sole_receiver: None,
            elsewhere: None,
            sent_reports: SentReports::default(),
            seq: u64::from(settings.first_seq),
            number: 0,
            history: (settings.feedback != FeedbackFormat::Own).then(History::default),
            feedback_from: None,
            packets: 0,
            octets: 0,
            greedy_frame: 0,
            notice_cost: Bytes::ZERO,
            allowance_left: AllowanceLeft::default(),
            feedback: FeedbackCounts::default(),
            gate: settings.gated.then(|| ReportLimiter::new(settings.rtcp.session_bandwidth)),
            last_summary: (0, now),
            last_rtcp: now,
            ecn: EcnCheck::new(settings.ecn, settings.feedback == FeedbackFormat::Rfc8888),
            repair: RepairStreams::new(&settings),
            audio: settings.audio.map(AudioSender::new),
            key_frame: (false, None),
            reference: None,
            half,
            settings,
        }
    }

    /// Returns whether the path preserves the ECN field, and the numbers of ECN-capable packets.
    pub fn ecn(&self) -> (EcnPath, EcnCounts) {
        (self.ecn.path, self.ecn.counts)
    }

    /// Returns the number of padding packets and their IP bytes, or `None` if padding is disabled.
    pub fn padding(&self) -> Option<(u64, Bytes)> {
        self.repair.padding.map(|padding| (padding.packets, padding.bytes))
    }

    /// Returns which packets the last parity packet protects.
    pub fn protection(&self) -> Option<&Protection> {
        self.repair.parity.as_ref()?.newest.as_ref()
    }

    /// Returns the numbers of retransmissions and parity packets.
    pub fn repairs(&self) -> Repairs {
        self.repair.counts()
    }

    /// Returns the rate for the encoder's packets, including IP headers. It is the target rate minus the rates of audio
    /// and repair.
    pub fn media_target(&mut self, now: Time) -> Rate {
        // Subtract the rate of audio, because pacing and window do not apply to audio.
        let reserved = self.settings.audio.map_or(Rate::ZERO, |audio| audio.rate);
        self.repair.left(now, self.decision.target.saturating_sub(reserved))
    }

    /// Returns when the last receiver times out if no further report arrives.
    pub fn deserted_at(&self) -> Time {
        self.last_rtcp + self.participant.member_timeout()
    }

    /// Continues the sequence numbers of `before`, a sender that has stopped.
    pub fn continue_after(&mut self, before: &Self) {
        self.seq = before.seq;
        self.repair.continue_after(&before.repair);
        if let (Some(audio), Some(before)) = (&mut self.audio, &before.audio) {
            audio.seq = before.seq;
        }
    }

    /// Adds an audio packet. Audio packets are sent before video, and neither the rate nor the window limits them.
    ///
    /// This method has no effect if there is no audio stream or if the sender has stopped.
    pub fn push_audio(&mut self, packet: AudioPacket) {
        let stopped = self.stopped();
        if let Some(audio) = self.audio.as_mut().filter(|_| !stopped) {
            audio.push(packet);
        }
    }

    /// Returns the loss of audio packets that a receiver reports. It can control in-band FEC (RFC 7587, section 3.1.1).
    /// Returns `None` until a receiver reports it.
    pub fn audio_loss(&self) -> Option<f64> {
        self.audio.as_ref().and_then(AudioSender::loss)
    }

    /// Returns the SSRC of the audio stream.
    pub fn audio_ssrc(&self) -> Option<u32> {
        self.settings.audio.map(|audio| audio.ssrc)
    }

    /// Returns whether a receiver has requested a key frame (RFC 4585, section 6.3.1; RFC 5104, section 4.3.1). Returns
    /// true only once per request, and at most every 0.5 s, or every 2 s in a group.
    pub fn take_key_frame(&mut self) -> bool {
        std::mem::take(&mut self.key_frame.0)
    }

    /// Returns the extended sequence number of the oldest packet that may be repaired, or `None` without repair.
    pub fn first_kept(&self) -> Option<u64> {
        self.repair.first_kept(self.seq)
    }

    /// Returns the extended sequence number of the next packet.
    pub fn next_seq(&self) -> u64 {
        self.seq
    }

    /// Returns this sender's SSRC. It changes after a collision.
    pub fn ssrc(&self) -> u32 {
        self.participant.identity.ssrc
    }

    /// Returns the controller's present decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns whether the decision has changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns the pacer's backlog.
    pub fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// Returns the numbers of the controller's probes.
    pub fn probes(&self) -> Probes {
        self.prober.counts()
    }

    /// Returns the number of media packets sent so far.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the numbers of feedback datagrams so far.
    pub fn feedback(&self) -> FeedbackCounts {
        self.feedback
    }

    /// Returns the controller's run-time checks.
    pub fn checks(&self) -> &[Check] {
        self.half.checks()
    }

    /// Returns the result of the check that media and repair together do not exceed the pacing rate.
    pub fn repair_check(&self) -> Option<Check> {
        self.repair.check()
    }

    /// Returns the result of the check that no RTP or RTCP packet is larger than the path's MTU.
    pub fn mtu_check(&self) -> Check {
        self.participant.mtu_check()
    }

    /// Returns the share of the session bandwidth that RTCP used in the last half minute.
    pub fn rtcp_share(&self, now: Time) -> f64 {
        self.participant.share(now)
    }

    /// Returns the number of receivers in the session.
    pub fn receivers(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Returns whether the receiver `ssrc` is still in the session. `last` is when its last RTCP arrived.
    pub fn counts(&self, now: Time, ssrc: u32, last: Time) -> bool {
        self.peers.get(ssrc).is_some() || now.since(last) <= self.participant.member_timeout()
    }

    /// Adds a frame. Returns false if the frame is skipped because of the backlog or the controller's allowance. Poll
    /// afterwards.
    pub fn push_frame(&mut self, now: Time, frame: &Frame) -> bool {
        self.push_cut(now, frame, VecDeque::new())
    }

    /// Adds a frame that is already divided into `parts`. Each part is sent as one packet. See [`Sender::push_frame`].
    pub fn push_cut(&mut self, now: Time, frame: &Frame, parts: VecDeque<Part>) -> bool {
        if self.stopped() {
            return false;
        }
        if !self.allowance_left.take(self.half.allowance(), self.cost_on_wire(frame.size)) {
            self.queue.skip(role_of(frame.kind));
            return false;
        }
        let drains = self.settings.cap.map_or(self.media_rate(), |cap| cap.min(self.media_rate()));
        let taken = self.queue.admit(role_of(frame.kind), Bytes::ZERO, drains).is_some();
        if taken {
            self.queue.add(now, frame.size, QueuedParts { frame: *frame, parts });
            self.report_queue(now, Some(frame.size));
        }
        taken
    }

    fn report_queue(&mut self, now: Time, frame: Option<Bytes>) {
        // Report nothing for a greedy source, because it has no queue: it makes each packet when the packet is due.
        if self.settings.greedy {
            return;
        }
        let age = self.queue.head().map_or(Span::ZERO, |head| now.since(head.since));
        self.half.on_queue(&MediaQueue { at: now, waiting: self.queue.backlog().bytes, age, frame });
    }

    /// Returns the size of a frame on the wire, including packet headers.
    fn cost_on_wire(&self, size: Bytes) -> Bytes {
        // Assume that the headers of the next packets are as large as those of the last packet.
        let each = self.overhead(&self.bare_header(), &Notice::NONE).max(self.notice_cost);
        let limit = self.settings.packet.saturating_sub(self.repair.overhead());
        // Use at least 1 byte, even if the headers fill the packet.
        let fits = limit.saturating_sub(each).max(Bytes::new(1));
        Bytes::new(size.get() + size.get().div_ceil(fits.get()) * each.get())
    }

    /// Returns the IP size of a packet without payload.
    fn overhead(&self, header: &RtpHeader, notice: &Notice) -> Bytes {
        overhead(header, notice, self.settings.ids, self.numbered())
    }

    /// Returns whether packets contain a transport-wide sequence number.
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

    /// Stops sending. Only a BYE is still sent, which is delayed in large groups (RFC 3550, section 6.3.7). Poll
    /// afterwards.
    pub fn stop(&mut self) {
        self.participant.leave();
        self.queue.clear();
        self.repair.clear();
        if let Some(audio) = &mut self.audio {
            audio.stop();
        }
        if let Some(siblings) = &self.settings.siblings {
            siblings.set_rate(Rate::ZERO);
        }
    }

    /// Returns whether the sender was stopped.
    pub fn stopped(&self) -> bool {
        self.participant.farewell != Farewell::Stays
    }

    /// Processes a datagram from the RTCP port. Poll afterwards.
    pub fn on_rtcp(&mut self, now: Time, from: Origin, datagram: &[u8]) {
        if self.participant.farewell == Farewell::Gone {
            return;
        }
        // A proven receiver has a rate limit of its own, so that reports with forged SSRCs cannot use it up.
        let receives = |ssrc: &u32| self.peers.get(*ssrc).is_some_and(|peer| peer.receives && peer.from == from);
        let whose = (from, first_ssrc(datagram).filter(receives));
        // Check the address and the rate limit before parsing, so that a flood of reports needs little time.
        let shut = self.rejects_address(now, from)
            || self.gate.as_mut().is_some_and(|gate| !gate.admits(now, whose, self.packets));
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
        // Ignore the whole compound after a collision or a loop (RFC 3550, section 8.2).
        match self.participant.learn(now, from, &compound, datagram.len()) {
            Standing::Good => self.last_rtcp = now,
            Standing::Ignored => return,
            Standing::Collision => return self.participant.renew(),
        }
        let mine = self.participant.identity.ssrc;
        let mut reports = false;
        let feedback_sender = self.feedback_sender(now, from, &compound);
        // Read all per-packet feedback here, because `history` returns each packet only once. It is passed on with the
        // first report of the compound.
        let mut joined = feedback_sender.and_then(|who| self.join_feedback(now, who, &compound));
        for packet in &compound.packets {
            match packet {
                Packet::ReceiverReport { ssrc, blocks } | Packet::SenderReport { ssrc, blocks, .. }
                    if *ssrc != mine =>
                {
                    if let Some(audio) = &mut self.audio {
                        blocks.iter().for_each(|block| audio.on_block(block));
                    }
                    let block = blocks.iter().find(|b| b.ssrc == mine);
                    // Use an APP packet only if the reporter has a block about this stream. Otherwise the packet may
                    // belong to another session.
                    let body = block.and_then(|_| self.body_of(&compound, *ssrc));
                    let packets = joined.take();
                    if block.is_some() || body.is_some() || packets.is_some() {
                        let feedback =
                            ReceiverFeedback { block, body: body.as_ref(), packets: packets.unwrap_or_default() };
                        reports |= self.report(now, from, *ssrc, &feedback);
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
        // Pass on feedback without a report as well (reduced-size RTCP, RFC 5506).
        if let Some((who, packets)) = feedback_sender.zip(joined) {
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
        for ssrc in self.participant.read_byes(now, from, compound, len) {
            if self.peers.get(ssrc).is_some_and(|p| p.from == from) {
                self.peers.remove(ssrc);
                self.half.on_leave(now, ReceiverId(ssrc), Leave::Bye);
            }
        }
        // After the last receiver's BYE, accept the next report from any address.
        self.sole_receiver = self.sole_receiver.filter(|_| self.peers.len() > 0);
    }

    /// Returns whether RTCP from this address is rejected, because the unicast receiver has another address.
    fn rejects_address(&self, now: Time, from: Origin) -> bool {
        let described = self.settings.peer;
        let stays = |only: &SoleReceiver| described == Some(only.from) || now < only.until;
        described != Some(from) && self.sole_receiver.is_some_and(|only| only.from != from && stays(&only))
    }

    /// Returns whether a compound comes from the unicast receiver. It does if its address `from` is the configured
    /// address or the receiver's present address.
    ///
    /// It also does if the receiver has moved to the address `from`. The proof is that this compound and an earlier one
    /// from `from` contain the LSRs of two different sender reports. [`Self::rejects_address`] rejects compounds from a
    /// new address before this call, as long as the present receiver is active.
    fn is_receivers_host(&mut self, from: Origin, compound: &Compound) -> bool {
        // Without a configured address, accept everything here, because the first accepted reporter becomes the
        // receiver.
        let Some(described) = self.settings.peer.filter(|_| !self.settings.rtcp.group) else { return true };
        if described == from || self.sole_receiver.is_some_and(|only| only.from == from) {
            return true;
        }
        let mine = self.participant.identity.ssrc;
        let blocks = compound.packets.iter().flat_map(|packet| match packet {
            Packet::ReceiverReport { blocks, .. } | Packet::SenderReport { blocks, .. } => &blocks[..],
            _ => &[],
        });
        let echo = |block: &&ReportBlock| block.ssrc == mine && self.sent_reports.echoed_by(block, self.seq);
        let Some(lsr) = blocks.clone().find(echo).map(|block| block.lsr) else { return false };
        // Require two different LSRs, because a single LSR could be guessed or replayed.
        let before = self.elsewhere.replace((from, lsr));
        before.is_some_and(|(place, earlier)| place == from && earlier != lsr)
    }

    /// Returns whether this member's reports are passed to the controller.
    fn affects_controller(&self, ssrc: u32) -> bool {
        // In unicast, use the reports of all members until one member has proved that it receives the stream
        // (`Peer::receives`).
        let open = if self.settings.rtcp.group { !self.settings.gated } else { self.peers.receiving == 0 };
        open || self.peers.get(ssrc).is_some_and(|peer| peer.receives)
    }

    /// Returns why the controller ignores the reports of a member. Returns `None` if the controller uses them, or if
    /// the member is not known.
    pub fn doubt(&self, ssrc: u32) -> Option<&'static str> {
        (self.peers.get(ssrc).is_some() && !self.affects_controller(ssrc))
            .then_some("it does not show that it receives the stream")
    }

    /// Processes a NACK or a key-frame request. GStreamer may send them without a report.
    fn on_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        self.on_key_request(now, from, packet);
        let Ok(Some(nack)) = Nack::from_packet(packet) else { return };
        if !self.is_from_member(from, nack.sender, nack.media) {
            return;
        }
        let context = self.nack_context(now);
        let Some(again) = &mut self.repair.retransmission else { return };
        for number in nack.missing {
            again.cache.on_nack(&context, &mut again.budget, number);
        }
    }

    /// Retransmits packets whose last retransmission is reported as lost. This is done only for authenticated
    /// receivers.
    fn on_lost(&mut self, now: Time, packets: &[PacketReport]) {
        let context = self.nack_context(now);
        let authenticated = self.settings.rtcp.authenticated;
        let Some(again) = self.repair.retransmission.as_mut().filter(|_| authenticated) else { return };
        for lost in packets.iter().filter(|packet| packet.stream == Stream::Repair && packet.arrived.is_none()) {
            again.cache.on_lost(&context, &mut again.budget, lost.number);
        }
    }

    fn nack_context(&self, now: Time) -> NackContext {
        let scarce = self.decision.limit == Limit::Floor;
        let announced_playout = self.repair.parity.as_ref().and_then(|parity| parity.announced.longest(now));
        NackContext { now, target: self.decision.target, packet: self.settings.packet, scarce, announced_playout }
    }

    fn on_parity_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        let head = self.overhead(&self.bare_header(), &Notice::NONE);
        let Ok(Some(request)) = ParityRequest::from_packet(packet) else { return };
        if !self.is_from_member(from, request.sender, request.media) {
            return;
        }
        let Some(parity) = &mut self.repair.parity else { return };
        for wanted in &request.blocks {
            let context =
                ParityRequestContext { now, target: self.decision.target, packet: self.settings.packet, head };
            parity.blocks.on_request(&context, wanted);
        }
    }

    /// Processes a member's announcement that it uses parity.
    fn on_parity_use(&mut self, now: Time, from: Origin, packet: &Packet) {
        let Ok(Some(announcement)) = ParityUse::from_packet(packet) else { return };
        if !self.is_from_member(from, announcement.sender, announcement.media) || announcement.playout == Span::ZERO {
            return;
        }
        self.repair.on_parity_use(now, announcement.sender, announcement.playout);
    }

    /// Stores the reference time of the unicast receiver. The next sender report answers it.
    fn on_reference(&mut self, now: Time, from: Origin, packet: &Packet) {
        let Ok(Some(time)) = ReferenceTime::from_packet(packet) else { return };
        if !self.settings.rtcp.group && self.is_from_member(from, time.ssrc, self.participant.identity.ssrc) {
            self.reference = Some((time, now));
        }
    }

    /// Returns whether a request comes from the address of the member `sender` and is about this stream.
    fn is_from_member(&self, from: Origin, sender: u32, media: u32) -> bool {
        let members = &self.participant.members;
        let known = members.contains(sender) && members.speaks_from(sender, from);
        // In a group, accept requests of all members, because new members cannot prove yet that they receive the
        // stream.
        let known = known && (self.settings.rtcp.group || self.affects_controller(sender));
        known && media == self.participant.identity.ssrc && self.participant.farewell == Farewell::Stays
    }

    fn on_key_request(&mut self, now: Time, from: Origin, packet: &Packet) {
        let mine = self.participant.identity.ssrc;
        let asks = KeyFrameRequest::all(packet).any(|request| {
            let (sender, media) = match request {
                KeyFrameRequest::PictureLoss { sender, media } => (sender, media),
                KeyFrameRequest::FullIntra { sender, media, .. } => (sender, media),
            };
            sender != mine && self.is_from_member(from, sender, media)
        });
        // Request key frames less often in a group, because each key frame reduces the rate of the other frames for all
        // members.
        let apart = if self.settings.rtcp.group { MIN_KEY_FRAME_INTERVAL * 4 } else { MIN_KEY_FRAME_INTERVAL };
        // Request only one key frame in this time, because it answers all requests.
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

    /// Returns the SSRC that sent the compound's per-packet feedback. Returns `None` if this SSRC belongs to another
    /// address.
    ///
    /// This prevents forged feedback, which would be harmful because only the first report about a packet is used.
    fn feedback_sender(&mut self, now: Time, from: Origin, compound: &Compound) -> Option<u32> {
        let (mine, format) = (self.participant.identity.ssrc, self.settings.feedback);
        if !compound.packets.iter().any(|packet| feedback::is_packet_feedback(format, packet)) {
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
                // Add the member here. Members are otherwise added by their reports, but this feedback contains none
                // (reduced-size RTCP).
                let who = reporter(compound, mine)?;
                members.on_rtcp(now, who, from);
                who
            }
        };
        if !members.contains(who) || !members.speaks_from(who, from) {
            return None;
        }
        if self.affects_controller(who) {
            return Some(who);
        }
        // A browser may send the feedback and the reports on the video with different SSRCs. If packets are
        // authenticated, an address of a unicast session is one receiver.
        let is_one = self.settings.rtcp.authenticated && !self.settings.rtcp.group;
        self.peers.receiving_from(from).filter(|_| is_one)
    }

    /// Returns the per-packet feedback of the receiver `who`, matched with the sent packets.
    ///
    /// For some packets, the controller is informed that their fate is unknown. These are packets before the first
    /// video packet that a new receiver reports, and audio packets that have not arrived. Audio has its own transport
    /// address, and a receiver may receive only the video.
    fn join_feedback(&mut self, now: Time, who: u32, compound: &Compound) -> Option<Joined> {
        let (mine, format) = (self.participant.identity.ssrc, self.settings.feedback);
        let history = self.history.as_mut()?;
        let (repair, parity) = self.repair.ssrcs();
        let audio = self.settings.audio.map(|audio| audio.ssrc);
        let stream_of = |ssrc| match ssrc {
            _ if ssrc == mine => Some(Stream::Media),
            _ if audio == Some(ssrc) => Some(Stream::Audio),
            _ if repair == Some(ssrc) => Some(Stream::Repair),
            _ if parity == Some(ssrc) => Some(Stream::Parity),
            _ => None,
        };
        let find = |history: &History, name| match name {
            PacketName::Transport(low) => history.by_low_bits(low),
            PacketName::Rtp { ssrc, seq } => stream_of(ssrc).and_then(|stream| history.by_seq(stream, seq)),
            PacketName::Own(_) => None,
        };
        let (joined, unread) = feedback::join(history, now, compound, format, find);
        self.feedback.refused += unread;
        let mut joined = joined?;
        let mut unknown = Vec::new();
        let reported = |packet: &&PacketReport| packet.stream == Stream::Media;
        let first = joined.packets.iter().filter(reported).map(|packet| packet.number).min();
        if let Some(newest) = joined.packets.iter().map(|packet| packet.number).max() {
            if self.feedback_from != Some(who) {
                // Packets before the first reported video packet are not lost, but have an unknown fate. If the
                // feedback reports only audio, use `newest` instead of the first video packet, and leave
                // `feedback_from` unset. The next feedback from this receiver is then treated as its first one again.
                history.settle_before(first.unwrap_or(newest), None, &mut unknown);
                self.feedback_from = first.map(|_| who).or(self.feedback_from);
            }
            history.settle_before(newest, Some(Stream::Audio), &mut unknown);
        }
        let is_lost_audio = |packet: &PacketReport| packet.stream == Stream::Audio && packet.arrived.is_none();
        unknown.extend(joined.packets.iter().filter(|packet| is_lost_audio(packet)));
        joined.packets.retain(|packet| !is_lost_audio(packet));
        if !unknown.is_empty() {
            self.half.on_unknown(&unknown);
        }
        Some(joined)
    }

    /// Makes the address `from` the address of the unicast receiver. Removes receivers at other addresses.
    fn set_sole_receiver(&mut self, now: Time, from: Origin, often: bool) {
        let before = self.sole_receiver.filter(|only| only.from == from);
        if before.is_none() {
            while let Some(gone) = self.peers.pop_silent(Time::NEVER) {
                self.half.on_leave(now, ReceiverId(gone), Leave::Silent);
            }
        }
        let often = often || before.is_some_and(|only| only.often);
        let patience = if often { Span::ZERO } else { STANDARD_REPORTS_GRACE };
        self.sole_receiver =
            Some(SoleReceiver { from, often, until: now + self.participant.member_timeout() + patience });
    }

    /// Passes a member's report to the controller. Returns false if the SSRC `from` belongs to another address.
    fn report(&mut self, now: Time, origin: Origin, from: u32, feedback: &ReceiverFeedback<'_>) -> bool {
        let ReceiverFeedback { block, body, packets: joined } = feedback;
        if !self.settings.rtcp.group {
            self.set_sole_receiver(now, origin, body.is_some() || !joined.packets.is_empty());
        }
        // Check the address here as well, because the member table contains only a sample of a large group.
        if self.peers.get(from).is_some_and(|peer| peer.from != origin) {
            self.feedback.refused += 1;
            return false;
        }
        if let Some(gone) = self.peers.make_room_for(from) {
            self.half.on_leave(now, ReceiverId(gone), Leave::Silent);
        }
        self.peers.on_report(now, origin, from, body.is_some());
        let echoes = block.is_some_and(|block| self.sent_reports.echoed_by(block, self.seq));
        if let Some(block) = block.filter(|_| echoes) {
            self.peers.echo(from, block.lsr);
        }
        // A group member that does not repeat the LSR of a recent sender report does not receive the stream at present.
        let stale = self.settings.rtcp.group && self.settings.gated && block.is_some() && !echoes;
        if stale || !self.affects_controller(from) {
            return true;
        }
        // Do not count unproven members, because some controllers scale with the size of the group.
        let members = if self.settings.gated { self.peers.receiving.max(1) } else { self.peers.len() } as u32;
        let Some(peer) = self.peers.get_mut(from) else { return true };
        let (mut reception, mut rtt) = (None, None);
        if let Some(block) = block {
            // Compute the RTT as in RFC 3550, section 6.4.1.
            rtt = ntp::round_trip(self.settings.epoch.middle(now), block.lsr, block.dlsr);
            let (expected, lost) = peer.count(block);
            peer.on_loss(expected, lost);
            reception = Some(Reception {
                expected,
                lost,
                // The fraction is an 8-bit fixed-point number (RFC 3550, section 6.4.1).
                fraction: f64::from(block.fraction) / 256.0,
                highest: peer.extended(block.highest_seq, self.seq),
                jitter: Span::nanos(u64::from(block.jitter) * 1_000_000_000 / u64::from(CLOCK_RATE)),
            });
        }
        if let Some((again, rtt)) = self.repair.retransmission.as_mut().zip(rtt) {
            again.cache.on_round_trip(rtt);
        }
        // Prefer the RTT from per-packet feedback, because it is newer.
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
        // Remove GStreamer's placeholder SSRC, because the receiver now uses an SSRC that it has chosen.
        if from != GSTREAMER_UNSET_SSRC && self.peers.get(GSTREAMER_UNSET_SSRC).is_some_and(|peer| peer.from == origin)
        {
            self.peers.remove(GSTREAMER_UNSET_SSRC);
            self.half.on_leave(now, ReceiverId(GSTREAMER_UNSET_SSRC), Leave::Silent);
        }
        true
    }

    /// Returns what the driver has to do now. Call this method after each call of another method, and at the time of
    /// the last [`Output::Wait`]. Repeat the call until the result is [`Output::Wait`]. A call more than necessary has
    /// no effect.
    ///
    /// In this example, one frame crosses a path with a delay of 20 ms, and the receiver's reports come back:
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
    /// // The datagrams in flight, each with its arrival time and its destination.
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
    /// // In a unicast session the minimum interval is 360 s divided by the bandwidth in kb/s (RFC 3550, section 6.2).
    /// assert!((10..=18).contains(&sender.feedback().packets));
    /// # Ok::<(), steadycast_control::ParamError>(())
    /// ```
    pub fn poll(&mut self, now: Time) -> Output {
        if let Some(bytes) = self.participant.pending_datagram(now) {
            return Output::Rtcp(bytes);
        }
        // Do this before the check for a stop, because it also sends the BYE of the audio stream.
        if let Some(bytes) = self.audio_report(now) {
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
        if let Some(media) = self.send_audio(now) {
            self.participant.check_size(media.size);
            return Output::Media(media);
        }
        // Send reports by RTCP's timer only if the controller does not schedule its reports itself.
        let reports = match self.half.due() {
            Due::Rtcp => self.participant.rtcp_due(now),
            Due::At(wake) => wake.at <= now,
            Due::Hold => false,
        };
        if reports || self.lacks_first_report() || self.grown_at().is_some_and(|at| at <= now) {
            return Output::Rtcp(self.sender_report(now));
        }
        let repairs = self.repair.retransmission.as_mut().is_some_and(|again| again.cache.waits(now));
        if let Some(due) = self.media_due()
            && due <= now
        {
            // Send retransmissions first, because they have deadlines. Send padding only if no other packet waits.
            let again = if repairs { self.send_repair(now) } else { None };
            let extra = again.or_else(|| self.send_parity(now));
            let waits = self.settings.greedy || self.queue.head().is_some();
            let extra = extra.or_else(|| if waits { None } else { self.send_padding(now) });
            let media = extra.unwrap_or_else(|| self.send_media(now));
            self.ecn.on_sent(now, media.number);
            self.participant.check_size(media.size);
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
        // Always wait for at least 1 ns. With a time in the past, the driver would poll without end.
        Output::Wait(soonest.map(|w| Wake { at: w.at.max(now + Span::nanos(1)), ..w }))
    }

    /// Returns when the next packet may be sent, or `None` if no packet can be sent.
    fn media_due(&self) -> Option<Time> {
        let closed = self.decision.window.is_some_and(Window::is_closed);
        let media = self.settings.greedy || self.queue.head().is_some();
        let waits = media || self.repair.has_waiting() || self.pads_for_probe();
        let capped = || self.cap.map_or(Time::ZERO, |bucket| bucket.holds_at(self.settings.packet));
        // Apply the cap to repair as well, because it limits all streams together.
        (waits && !closed).then(|| match self.emit {
            Emit::Paced => self.pace.due(self.departure_rate()).max(capped()),
            Emit::Burst => capped(),
        })
    }

    /// Returns whether a probe is filled with padding when no other packet waits.
    fn pads_for_probe(&self) -> bool {
        self.repair.can_pad() && self.prober.pads() && !self.stopped()
    }

    /// Returns the rate at which packets are sent. During a probe it is the rate of the probe, otherwise the pacing
    /// rate.
    fn departure_rate(&self) -> Rate {
        self.prober.rate().unwrap_or_else(|| self.media_rate())
    }

    /// Returns the highest rate at which a packet may be sent now. Probes may exceed the pacing rate.
    fn highest_rate(&self) -> Rate {
        self.media_rate().max(self.departure_rate())
    }

    /// Charges a sent packet to the pacer and to the cap. The packet can belong to any stream.
    fn count_departure(&mut self, now: Time, size: Bytes) {
        self.pace.sent(now, size, self.departure_rate());
        if let Some(bucket) = &mut self.cap {
            bucket.take(now, size);
        }
    }

    /// Adds a sent packet to the current probe, because a probe consists of all packets that are sent during the probe.
    /// If there is no current probe, the packet starts the probe `wanted`. Only media starts a probe.
    fn count_in_probe(&mut self, wanted: Option<Probe>, size: Bytes) {
        let early = self.prober.on_sent(wanted, size);
        self.pace.charge_early(early);
    }

    /// Returns the pacing rate that applies when there is no probe.
    fn media_rate(&self) -> Rate {
        let Decision { target, pacing, .. } = self.decision;
        // Pace frames faster than the target rate. Otherwise frames that are larger than the mean would wait. A greedy
        // source has no frames: it would send at the higher rate all the time.
        let faster = self.settings.room > 1.0 && !self.settings.greedy;
        if faster { pacing.max(target.scale(self.settings.room)) } else { pacing }
    }

    fn send_media(&mut self, now: Time) -> Media {
        let mut header = RtpHeader { send_time: Some(Stamp::of(now)), ..self.bare_header() };
        // Leave space for the original's sequence number, which a retransmission of this packet contains.
        let limit = self.settings.packet.saturating_sub(self.repair.overhead());
        // Use at least 1 byte, so that a frame ends even if the headers fill the packet.
        let room = |cost: Bytes| limit.saturating_sub(cost).max(Bytes::new(1));
        let ready = self.queue.head().map_or(now, |head| head.since);
        let cost = self.overhead(&header, &Notice::NONE).max(self.notice_cost);
        let (frame, offset, rest, part) = match self.queue.head() {
            Some(head) => (head.content.frame, head.taken, head.rest(), head.content.parts.front().copied()),
            None => {
                let frame = Frame { index: self.greedy_frame, kind: FrameKind::P, size: room(cost), sampled: now };
                (frame, Bytes::ZERO, frame.size, None)
            }
        };
        let most = part.map_or(room(self.notice_cost), |p| Bytes::new(u64::from(p.len)));
        let last = !self.settings.greedy && rest <= most;
        let mut edge = FrameEdge { first: offset == Bytes::ZERO, last };
        let size = cost + part.map_or(rest.min(room(cost)), |p| Bytes::new(u64::from(p.payload)));
        // Pass an estimate of the size, because the length of this packet's header extension is not known yet.
        let notice = self.half.notice(&Departing { at: now, seq: self.seq, size, edge });
        let cost = self.overhead(&header, &notice);
        self.notice_cost = cost;
        let fits = room(cost).max(Bytes::new(1));
        // `part.payload` includes the header of the payload format. This header does not count in `len`, because it is
        // not a part of the frame.
        let (len, payload) = match part {
            Some(part) => (most, Bytes::new(u64::from(part.payload))),
            None if self.settings.greedy => (fits, fits),
            None => (rest.min(fits), rest.min(fits)),
        };
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

    /// Updates the state after a media packet was sent. `len` is the number of bytes of the frame in this packet.
    fn on_media_sent(&mut self, now: Time, media: &Media, len: Bytes) {
        let size = media.size;
        if let Some(history) = &mut self.history {
            history.on_sent(self.number, now, size, Stream::Media, self.seq as u16);
        }
        if self.settings.greedy {
            self.greedy_frame = self.greedy_frame.wrapping_add(1);
        } else {
            self.queue.take(len, |head| head.parts.pop_front());
        }
        self.count_departure(now, size);
        self.count_in_probe(self.half.probe(), size);
        if !self.settings.greedy && self.queue.head().is_none() && !self.pads_for_probe() {
            self.prober.ran_dry();
        }
        // A member that sends data is a sender (RFC 3550, section 6.3.8).
        self.participant.members.on_own_rtp(now);
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(u32::from(media.header.payload_len));
        // The source limits the rate if no frame waits (RFC 5348, section 4.3).
        let data_limited = !self.settings.greedy && self.queue.head().is_none();
        self.half.on_sent(&Sent { at: now, left: now, number: self.number, seq: self.seq, size, data_limited });
        self.report_queue(now, None);
        self.number += 1;
        self.seq += 1;
        // Read the decision only if there is a window, because a sent packet changes the window but not the rate.
        if self.decision.window.is_some() {
            self.read_decision();
        }
    }

    fn keep_for_repair(&mut self, now: Time, media: &Media, kind: FrameKind, ready: Time) {
        let overhead = self.overhead(&media.header, &Notice::NONE);
        let pacing = self.highest_rate();
        self.repair.add_to_block(now, media, now.since(ready), &self.peers, &self.participant);
        self.repair.keep(now, media, role_of(kind), ready, overhead);
        self.repair.check_pacing(now, media.size, pacing);
    }

    fn send_repair(&mut self, now: Time) -> Option<Media> {
        let Retransmission { seq: original, packet } = self.repair.retransmission.as_mut()?.next(now, self.number)?;
        self.send_again(now, original, &packet, Stream::Repair)
    }

    /// Sends a cached packet again in the retransmission stream.
    fn send_again(
        &mut self,
        now: Time,
        original: u64,
        packet: &CachedPacket<(RtpHeader, Fragment)>,
        stream: Stream,
    ) -> Option<Media> {
        let (numbered, media) = (self.numbered(), self.participant.identity.ssrc);
        let again = self.repair.retransmission.as_mut()?;
        let RepairSettings { ssrc, payload_type, .. } = again.cache.settings;
        let rtx = RtxStream { payload_type, apt: self.settings.payload_type, ssrc, media };
        let (original_header, fragment) = packet.content;
        let header = rtx.header(again.seq as u16, &original_header).ok()?;
        // Use the present time as the send time, because the receiver must measure the delay of the retransmission.
        let header = RtpHeader { send_time: Some(Stamp::of(now)), ..header };
        let (seq, size) = (again.seq, packet.size);
        again.seq += 1;
        let number = self.on_repair_sent(now, stream, seq, size);
        let transport = numbered.then_some(number as u16);
        let (notice, repairs) = (Notice::NONE, Some(original));
        let (ids, ecn) = (self.settings.ids, self.ecn.field());
        Some(Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn })
    }

    /// Updates the state after a retransmission, padding or parity was sent. Returns the number of the packet.
    fn on_repair_sent(&mut self, now: Time, stream: Stream, seq: u64, size: Bytes) -> u64 {
        let (number, pacing) = (self.number, self.highest_rate());
        self.repair.check_pacing(now, size, pacing);
        if let Some(history) = &mut self.history {
            history.on_sent(number, now, size, stream, seq as u16);
        }
        self.number += 1;
        self.count_departure(now, size);
        self.count_in_probe(None, size);
        self.half.on_extra_sent(&ExtraSent { at: now, left: now, number, stream, size });
        self.read_decision();
        number
    }

    /// Sends the newest cached packet again as padding, if a probe needs it.
    fn send_padding(&mut self, now: Time) -> Option<Media> {
        if !self.pads_for_probe() {
            return None;
        }
        let Retransmission { seq: original, packet } = self.repair.retransmission.as_ref()?.cache.newest()?;
        let media = self.send_again(now, original, &packet, Stream::Padding)?;
        if let Some(padding) = &mut self.repair.padding {
            padding.packets += 1;
            padding.bytes += media.size;
        }
        Some(media)
    }

    /// Sends the next parity packet. The pacer delays later packets of all streams for it.
    fn send_parity(&mut self, now: Time) -> Option<Media> {
        let (numbered, bare, stream) = (self.numbered(), self.bare_header(), Stream::Parity);
        let head = self.overhead(&bare, &Notice::NONE);
        let parity = self.repair.parity.as_mut()?;
        let ParitySettings { ssrc, payload_type, .. } = parity.blocks.settings;
        let NextParity { seq, payload, size, fragment } = parity.next(now, head)?;
        let number = self.on_repair_sent(now, stream, seq, size);
        let timestamp = self.timestamp(now);
        let send_time = Some(Stamp::of(now));
        let header =
            RtpHeader { payload_type, seq: seq as u16, timestamp, ssrc, send_time, payload_len: payload, ..bare };
        let (transport, ecn) = (numbered.then_some(number as u16), self.ecn.field());
        let (notice, repairs, ids) = (Notice::NONE, None, self.settings.ids);
        Some(Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn })
    }

    fn timestamp(&self, at: Time) -> u32 {
        audio::timestamp(self.settings.first_timestamp, at, CLOCK_RATE)
    }

    fn send_audio(&mut self, now: Time) -> Option<Media> {
        let (packet, header) = self.audio.as_mut()?.next(now)?;
        let AudioSender { seq, settings: AudioSettings { shares_feedback, .. }, .. } = self.audio.as_ref()?;
        let (seq, shares_feedback) = (seq - 1, *shares_feedback);
        let numbered = self.numbered() && shares_feedback;
        let size = overhead(&header, &Notice::NONE, self.settings.ids, numbered) + Bytes::new(packet.len.into());
        let (number, stream) = (self.number, Stream::Audio);
        // Charge audio to the pacer, so that all streams together do not exceed the pacing rate.
        self.count_departure(now, size);
        let ecn = if shares_feedback { self.ecn.field() } else { Ecn::NotEct };
        if shares_feedback {
            if let Some(history) = &mut self.history {
                history.on_sent(number, now, size, stream, seq as u16);
            }
            self.number += 1;
            self.ecn.on_sent(now, number);
            self.count_in_probe(None, size);
            self.half.on_extra_sent(&ExtraSent { at: now, left: now, number, stream, size });
        }
        self.participant.members.on_own_rtp(now);
        self.read_decision();
        let fragment = Fragment { frame: packet.index, offset: 0, len: packet.len };
        let transport = numbered.then_some(number as u16);
        let (notice, repairs, ids) = (Notice::NONE, None, self.settings.ids);
        Some(Media { header, notice, fragment, number, transport, ids, stream, seq, repairs, size, ecn })
    }

    /// Returns the sender report or BYE of the audio stream, if one is due. It is a compound of its own, because audio
    /// may have its own transport.
    fn audio_report(&mut self, now: Time) -> Option<Vec<u8>> {
        let ntp = self.settings.epoch.ntp(now);
        let packets = self.audio.as_mut()?.take_report(now, ntp, &self.participant.identity.cname)?;
        Some(self.participant.encode(now, packets))
    }

    /// Returns whether the first sender report is due immediately. A receiver needs it to synchronise audio and video,
    /// so it is sent without delay (RFC 3550, section 6.2).
    fn lacks_first_report(&self) -> bool {
        let audio = self.audio.as_ref().filter(|_| !self.settings.rtcp.group);
        audio.is_some_and(|audio| audio.lacks_report(self.packets > 0))
    }

    /// Returns when the size of a group that has grown must be announced again. Without the announcement, members would
    /// report too often.
    fn grown_at(&self) -> Option<Time> {
        let (known, at) = self.last_summary;
        let grown = self.participant.summary() && self.participant.census().members > known + known / 2 + 2;
        grown.then(|| at + MIN_SUMMARY_INTERVAL)
    }

    fn sender_report(&mut self, now: Time) -> Vec<u8> {
        if let Some(audio) = &mut self.audio {
            audio.on_video_report();
        }
        // Remove silent receivers once per report (RFC 3550, section 6.3.5).
        self.forget_silent(now);
        let ssrc = self.participant.identity.ssrc;
        let mut packets = vec![self.first_report(now), self.participant.sdes()];
        if self.participant.summary() {
            self.last_summary = (self.participant.census().members, now);
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
        // Send an SR only if data have been sent (RFC 3550, section 6.4).
        if self.packets > 0 {
            // Store the report's NTP time. A receiver that sends it back as the LSR proves that it receives the stream.
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

    /// Removes receivers that have been silent for five intervals (RFC 3550, section 6.3.5).
    fn forget_silent(&mut self, now: Time) {
        let limit = now.before(self.participant.member_timeout());
        while let Some(ssrc) = self.peers.pop_silent(limit) {
            self.half.on_leave(now, ReceiverId(ssrc), Leave::Silent);
            self.read_decision();
        }
    }

    fn read_decision(&mut self) {
        self.prober.request(self.half.probe());
        let decision = self.half.decision();
        if decision != self.decision {
            self.decision = decision;
            let pacing = self.media_rate();
            self.repair.on_pacing(pacing);
            self.changed = true;
            // Do not overwrite the rate of zero that `stop` has set.
            if let Some(siblings) = self.settings.siblings.as_ref().filter(|_| !self.stopped()) {
                siblings.set_rate(self.decision.target);
            }
        }
    }
}

/// A frame in the queue, with its parts that have not been sent. There are no parts if only the size of the frame is
/// relevant.
#[derive(Clone, Debug)]
struct QueuedParts {
    frame: Frame,
    parts: VecDeque<Part>,
}

const fn role_of(kind: FrameKind) -> FrameRole {
    match kind {
        FrameKind::I => FrameRole::Key,
        FrameKind::P => FrameRole::Reference,
        FrameKind::B => FrameRole::Disposable,
    }
}

fn first_ssrc(datagram: &[u8]) -> Option<u32> {
    // The SSRC follows after the four bytes of the common header (RFC 3550, section 6.4).
    Some(u32::from_be_bytes(*datagram.get(4..)?.first_chunk()?))
}

/// Returns the SSRC that sent the first feedback message, unless it is `mine`.
fn reporter(compound: &Compound, mine: u32) -> Option<u32> {
    let sender = |packet: &Packet| if let Packet::Feedback { sender, .. } = packet { Some(*sender) } else { None };
    compound.packets.iter().find_map(sender).filter(|ssrc| *ssrc != mine)
}

pub(crate) fn app(ssrc: u32, name: [u8; 4], body: Body) -> Packet {
    let mut data = body.bytes;
    // Pad the data of the APP packet to a multiple of 32 bits (RFC 3550, section 6.7).
    data.resize(data.len().next_multiple_of(4), 0);
    Packet::App { ssrc, subtype: body.subtype, name, data }
}
