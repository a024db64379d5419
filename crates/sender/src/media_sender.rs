use crate::stream::{Queued, StreamState};
use crate::{
    Backlog, CachedPacket, EncoderTarget, FrameRole, MediaPacket, NackContext, Pace, PacketName, Prober, Probes,
    RepairBudget, RepairShare, Repairs, Retransmission, StreamId, StreamKind, StreamSettings, feedback,
};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use steadycast_control::{Decision, FeedbackFormat, Limit, MediaQueue, Need, Probe, Stream, Wake, Window};
use steadycast_remote::{Bounds, Given, Packet, PacketResult, ParamError, ParamErrorKind, Remote};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::ParseError;
use steadycast_wire::rtcp::{Compound, KeyFrameRequest, Nack};

/// The settings of a [`MediaSender`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MediaSettings {
    /// Limits of the controller's rate, and the properties of the stack's feedback.
    pub bounds: Bounds,
    /// The format of per-packet feedback that [`MediaSender::on_rtcp`] reads.
    pub format: FeedbackFormat,
    /// Whether feedback includes retransmissions. Pion and libwebrtc leave most of them out.
    pub retransmissions_covered: bool,
    /// Whether the stack can send padding. Padding fills the probes of the controller, and raises the sent rate while a
    /// video layer is paused. Padding repeats packets, so at least one video stream must set
    /// [`StreamSettings::retransmission`].
    pub padding: bool,
    /// The limit of the queue, as the time that its packets take at the pacing rate. Frames that exceed it are skipped.
    pub max_backlog: Span,
    /// If [`MediaSender::poll`] is called late, the pacer catches up for at most this time.
    pub credit: Span,
}

impl MediaSettings {
    /// Creates settings for transport-wide feedback that does not include retransmissions, and for a stack without
    /// padding.
    ///
    /// The backlog is at most 1 s, and the pacer catches up for at most 20 ms.
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            format: FeedbackFormat::TransportWide,
            retransmissions_covered: false,
            padding: false,
            max_backlog: Span::secs(1),
            credit: Span::millis(20),
        }
    }
}

/// A packet to be sent now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Departure {
    /// The stream.
    pub stream: StreamId,
    /// The caller's identifier of the packet. A retransmission or padding has the identifier of the packet that it
    /// repeats.
    pub id: u64,
    /// The RTP sequence number. A retransmission or padding has the sequence number of the packet that it repeats.
    pub seq: u16,
    /// The number of the packet. The packets of all streams are numbered together. The low 16 bits are the
    /// transport-wide sequence number, unless the caller sets another one with [`MediaSender::sent_as`].
    pub number: u64,
    /// Whether the packet is media, a retransmission, parity or padding.
    pub kind: Stream,
    /// The packet size, including IP and UDP headers.
    pub size: Bytes,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send this packet now.
    Send(Departure),
    /// The packet with this identifier will not be sent, because a key frame has replaced the packet's frame.
    Dropped(StreamId, u64),
    /// Wait until this time or until the next event, whichever comes first. With `None`, wait until the next event.
    Wait(Option<Wake>),
}

/// What one call of [`MediaSender::on_rtcp`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtcpCounts {
    /// Number of packets for which feedback reports an arrival or a loss for the first time.
    pub packets: u64,
    /// Number of packets that NACKs request.
    pub nacked: u64,
    /// Number of key-frame requests.
    pub key_frames: u64,
    /// Number of feedback messages that were ignored because they report too many packets.
    pub refused: u64,
}

/// Maximum number of sent packets whose [`PacketName`] is stored. The history in `Remote` has the same length.
const NAMED_PACKETS: usize = 1 << 14;
/// Encoders keep their full rate up to this backlog, as time at the pacing rate. It is one frame at 25 frames per
/// second.
const FRAME_BACKLOG: Span = Span::millis(40);
/// The time in which a backlog above [`FRAME_BACKLOG`] is drained.
const DRAIN_TIME: Span = Span::millis(250);
/// Minimum share of the rate that encoders get while a backlog is drained.
const MIN_DRAIN_SHARE: f64 = 0.5;
/// Padding towards a paused layer stops at this time after the last call of [`MediaSender::encoder`], because a program
/// that makes no frames has no use for the layer.
const FILL_TIME: Span = Span::millis(250);
/// A retransmission is larger than the original, because it contains the original's sequence number (RFC 4588, section
/// 4).
const ORIGINAL_SEQ: Bytes = Bytes::new(2);

/// A sender of several streams with a rate controller, without I/O.
///
/// The caller keeps the packets' bytes. It passes packets to [`MediaSender::push`]. It passes RTCP to
/// [`MediaSender::on_rtcp`], or the fates of packets to [`MediaSender::feedback`]. After that it calls
/// [`MediaSender::poll`] until the result is [`Output::Wait`]. Before each frame it calls [`MediaSender::encoder`].
///
/// All times are on one clock, which may start at any value.
pub struct MediaSender {
    remote: Remote,
    settings: MediaSettings,
    streams: Vec<StreamState>,
    pace: Pace,
    prober: Prober,
    share: RepairShare,
    budget: RepairBudget,
    /// The number of each packet whose name is stored.
    names: BTreeMap<PacketName, u64>,
    /// The same names and numbers, with the oldest first.
    named: VecDeque<(PacketName, u64)>,
    /// Whether the caller sets transport-wide sequence numbers itself.
    own_transport: bool,
    dropped: VecDeque<(StreamId, u64)>,
    /// The number that the next packet gets.
    next: u64,
    /// The stream to which the newest cached packet belongs.
    newest: Option<StreamId>,
    /// The padding for a paused layer.
    fill: Option<Fill>,
}

/// Padding for a paused layer, up to a rate of all packets together.
#[derive(Clone, Copy, Debug)]
struct Fill {
    rate: Rate,
    /// When the padding ends.
    until: Time,
    /// Charges all packets at `rate`. The sender's pacer does not limit the mean rate of all packets, because its
    /// rate may be above the target.
    pace: Pace,
}

impl fmt::Debug for MediaSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (streams, backlog) = (self.streams.len(), self.backlog());
        f.debug_struct("MediaSender").field("streams", &streams).field("backlog", &backlog).finish_non_exhaustive()
    }
}

impl MediaSender {
    /// Creates a sender with a built-in controller. `params` replace the controller's default parameters.
    ///
    /// # Errors
    /// The same as in [`Remote::new`].
    pub fn new(controller: &str, params: &[(String, Given)], settings: MediaSettings) -> Result<Self, ParamError> {
        let mut bounds = settings.bounds.clone();
        // Offer probes to the controller, because the prober can send them.
        bounds.offers.push(Need::Probes);
        Ok(Self::around(Remote::new(controller, params, &bounds)?, settings))
    }

    /// Creates a sender with the given controller, which must not have sent anything yet.
    pub fn around(remote: Remote, settings: MediaSettings) -> Self {
        Self {
            remote,
            pace: Pace::new(settings.credit),
            settings,
            streams: Vec::new(),
            prober: Prober::default(),
            share: RepairShare::default(),
            budget: RepairBudget::default(),
            names: BTreeMap::new(),
            named: VecDeque::new(),
            own_transport: false,
            dropped: VecDeque::new(),
            next: 0,
            newest: None,
            fill: None,
        }
    }

    /// Adds a stream. Video streams get their rates in the order in which they are added, so add the base layer first.
    pub fn add_stream(&mut self, settings: StreamSettings) -> StreamId {
        self.streams.push(StreamState::new(settings, self.settings.max_backlog));
        StreamId(self.streams.len() as u32 - 1)
    }

    /// Adds a stream as [`MediaSender::add_stream`] does, after a check of its settings.
    ///
    /// # Errors
    /// Another stream has the SSRC, and the SSRC is not 0, which is for transports without RTP. Or the stream could
    /// never be sent: audio or parity has a rate above the cap, or video has a maximum of zero, or a minimum above its
    /// maximum or above the cap.
    pub fn try_add_stream(&mut self, settings: StreamSettings) -> Result<StreamId, ParamError> {
        if let Some(StreamId(other)) = self.with_ssrc(settings.ssrc) {
            let problem = format!("stream {other} has the SSRC {}", settings.ssrc);
            return Err(ParamError::new(ParamErrorKind::InvalidValue, "ssrc", problem, "give each stream its own"));
        }
        settings.check(self.settings.bounds.cap)?;
        Ok(self.add_stream(settings))
    }

    /// Returns the number of added streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the stream that has this SSRC. A transport without RTP may give all its streams the SSRC 0, so the
    /// result for 0 is `None`.
    pub fn with_ssrc(&self, ssrc: u32) -> Option<StreamId> {
        self.stream_of(ssrc).filter(|_| ssrc != 0)
    }

    /// Returns the controller's decision.
    pub fn decision(&self) -> Decision {
        self.remote.decision()
    }

    /// Returns the bytes that wait and the number of frames that were skipped, for all streams together.
    pub fn backlog(&self) -> Backlog {
        self.streams.iter().map(|stream| stream.queue.backlog()).fold(Backlog::default(), |all, one| Backlog {
            bytes: all.bytes + one.bytes,
            skipped: all.skipped + one.skipped,
        })
    }

    /// Returns the bytes that wait and the number of frames that were skipped, for one stream.
    pub fn backlog_of(&self, stream: StreamId) -> Backlog {
        self.streams.get(stream.0 as usize).map(|state| state.queue.backlog()).unwrap_or_default()
    }

    /// Returns the numbers of retransmissions and refused requests.
    pub fn repairs(&self) -> Repairs {
        let mut all = Repairs::default();
        for cache in self.streams.iter().filter_map(|stream| stream.cache.as_ref()) {
            all = all + cache.counts;
        }
        all
    }

    /// Returns the numbers of probes.
    pub fn probes(&self) -> Probes {
        self.prober.counts()
    }

    /// Returns the target for the next frame of a stream. Each key-frame request is returned only once.
    ///
    /// The rate is reduced while more than a frame waits. Audio and parity get their rates first, and video streams
    /// share the rest in order. Each video stream gets at most its maximum. It is paused if the rest is below its
    /// minimum, except the first video stream, which is never paused. While a stream is paused, padding raises the sent
    /// rate up to the target and to the rate that the stream needs ([`MediaSettings::padding`]). Without padding, a
    /// controller that raises its target only to a multiple of the sent rate may never start the stream.
    pub fn encoder(&mut self, now: Time, stream: StreamId) -> EncoderTarget {
        let Decision { target, pacing, .. } = self.remote.decision();
        // Reduce the rate during a backlog. Otherwise an encoder that exceeds its rate by only one per cent would fill
        // the queue.
        let excess = self.backlog().bytes.at(pacing).saturating_sub(FRAME_BACKLOG);
        let drain = (1.0 - excess.ratio(DRAIN_TIME)).max(MIN_DRAIN_SHARE);
        // Subtract the share of retransmissions, because all packets together must not exceed the target.
        let mut left = self.share.left(now, target).scale(drain);
        let whole = left;
        let (mut rate, mut first, mut at_most, mut fill) = (Rate::ZERO, true, true, None);
        for kind in [StreamKind::Audio, StreamKind::Parity, StreamKind::Video] {
            for (n, state) in self.streams.iter().enumerate().filter(|(_, state)| state.settings.kind == kind) {
                let StreamSettings { least, most, .. } = state.settings;
                let video = kind == StreamKind::Video;
                let part = left.min(most);
                let part = if part < least && !(video && first) { Rate::ZERO } else { part };
                first &= !video;
                // Unless the streams before this one have all that they can use, their own packets raise the sent rate.
                if video && part < least && at_most {
                    fill = Some(whole.min(Rate::bps(whole.as_bps() - left.as_bps() + least.as_bps())));
                }
                at_most &= part == most;
                left = Rate::bps(left.as_bps().saturating_sub(part.as_bps()));
                if n == stream.0 as usize {
                    rate = part;
                }
            }
        }
        let pace = self.fill.map_or(Pace::new(self.settings.credit), |fill| fill.pace);
        let fill = fill.filter(|_| self.settings.padding);
        self.fill = fill.map(|rate| Fill { rate, until: now + FILL_TIME, pace });
        let video = self.stream(stream).is_some_and(|state| state.settings.kind == StreamKind::Video);
        // A video stream without a rate is paused.
        let skip = video && (self.is_full() || rate == Rate::ZERO);
        let key_frame = self.stream(stream).is_some_and(|state| state.take_key_frame(now, skip));
        EncoderTarget { rate, skip, key_frame }
    }

    fn is_full(&self) -> bool {
        self.backlog().bytes.at(self.remote.decision().pacing) > self.settings.max_backlog
    }

    fn stream(&mut self, stream: StreamId) -> Option<&mut StreamState> {
        self.streams.get_mut(stream.0 as usize)
    }

    /// Begins an encoded frame. Returns false if the frame has to be skipped. Its packets should then not get sequence
    /// numbers. If other frames depend on the skipped frame, [`MediaSender::encoder`] requests a key frame.
    ///
    /// A key frame is never skipped. If the queue is full, it replaces frames that wait.
    ///
    /// Callers need not call this method.
    pub fn frame(&mut self, now: Time, stream: StreamId, role: FrameRole) -> bool {
        let (pacing, all) = (self.remote.decision().pacing, self.backlog().bytes);
        let Some(state) = self.stream(stream) else { return false };
        // Include the bytes of the other streams, because all streams share the pacer.
        let others = all.saturating_sub(state.queue.backlog().bytes);
        let dropped = state.queue.admit(role, others, pacing);
        // Without a role, `push` refuses the packets of this frame.
        (state.role, state.is_announced) = (dropped.is_some().then_some(role), true);
        if role == FrameRole::Key {
            state.on_key_frame(now);
        }
        let Some(dropped) = dropped else { return false };
        let packets = dropped.into_iter().flat_map(|frame| frame.content);
        self.dropped.extend(packets.map(|queued| (stream, queued.packet.id)));
        true
    }

    /// Adds a packet. Returns false if the packet is not queued. Reasons are: its frame is skipped, the backlog is
    /// above twice the maximum, its size is zero, or the stream does not exist. Call [`MediaSender::poll`] afterwards.
    ///
    /// If the backlog exceeds twice the maximum, the rest of a video frame is skipped, except for key frames.
    /// [`MediaSender::encoder`] then requests a key frame, unless the skipped frame was disposable.
    pub fn push(&mut self, now: Time, stream: StreamId, packet: &MediaPacket) -> bool {
        let (pacing, most) = (self.remote.decision().pacing, self.settings.max_backlog * 2);
        let waits = self.backlog().bytes.at(pacing);
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return false };
        let Some(role) = state.role.filter(|_| packet.size > Bytes::ZERO) else { return false };
        if waits.is_zero() {
            // The pacer must not catch up for the time in which the queue was empty.
            self.pace.resume(now, pacing);
        }
        // Limit the backlog here as well, because the caller may not call `frame`. Audio needs no limit, because it is
        // not paced.
        if waits > most && role != FrameRole::Key && state.settings.kind == StreamKind::Video {
            if state.is_announced {
                // Skip the rest of the frame, because receivers cannot decode a part of it.
                state.role = None;
                state.queue.skip(role);
            } else {
                state.requested = true;
            }
            return false;
        }
        let queued = Queued { packet: *packet, role, ready: now };
        match packet.edge.first {
            false if state.queue.head().is_some() => {
                if let Some(packets) = state.queue.extend(packet.size) {
                    // Use the time at which the frame was ready, because it determines the deadline of a
                    // retransmission.
                    let ready = packets.front().map_or(now, |first: &Queued| first.ready);
                    packets.push_back(Queued { ready, ..queued });
                }
            }
            // Begin an entry for a new frame, or for a frame whose earlier packets have all been sent.
            _ => state.queue.add(now, packet.size, VecDeque::from([queued])),
        }
        state.frame_size = if packet.edge.first { packet.size } else { state.frame_size + packet.size };
        // Report the frame's size with its last packet, because only then is it known.
        if packet.edge.last && state.settings.kind == StreamKind::Video {
            let frame = state.frame_size;
            self.report_queue(now, Some(frame));
        }
        true
    }

    fn report_queue(&mut self, now: Time, frame: Option<Bytes>) {
        let video = self.streams.iter().filter(|stream| stream.settings.kind == StreamKind::Video);
        let waiting = video.clone().fold(Bytes::ZERO, |bytes, stream| bytes + stream.queue.backlog().bytes);
        let oldest = video.filter_map(|stream| stream.queue.head()).map(|head| head.since).min();
        let age = oldest.map_or(Span::ZERO, |since| now.since(since));
        self.remote.queued(&MediaQueue { at: now, waiting, age, frame });
    }

    /// Sets the name by which feedback identifies a sent packet. `number` is the packet's [`Departure::number`].
    ///
    /// Call this method for retransmissions if the feedback format is RFC 8888. Call it for all packets if the caller
    /// assigns transport-wide sequence numbers itself, or if the protocol is not RTP.
    pub fn sent_as(&mut self, number: u64, name: PacketName) {
        self.own_transport |= matches!(name, PacketName::Transport(_));
        // Keep the name if it now belongs to a newer packet, because 16-bit numbers wrap.
        if self.named.len() == NAMED_PACKETS
            && let Some((name, number)) = self.named.pop_front()
            && self.names.get(&name) == Some(&number)
        {
            self.names.remove(&name);
        }
        self.names.insert(name, number);
        self.named.push_back((name, number));
    }

    /// Returns the number of the packet with this name, or `None` if the name is not known.
    pub fn number(&self, name: PacketName) -> Option<u64> {
        match name {
            PacketName::Transport(low) if !self.own_transport => self.remote.number(low),
            _ => self.names.get(&name).copied(),
        }
    }

    /// Reads an RTCP compound: per-packet feedback, NACKs and key-frame requests. Call [`MediaSender::poll`]
    /// afterwards.
    ///
    /// # Errors
    /// The datagram is not RTCP.
    pub fn on_rtcp(&mut self, now: Time, datagram: &[u8]) -> Result<RtcpCounts, ParseError> {
        let compound = Compound::parse(datagram)?;
        let mut counts = RtcpCounts::default();
        let mut lost = Vec::new();
        let Self { remote, names, own_transport, settings, .. } = self;
        let rtt = remote.join(now, |now, history, joined| {
            let (read, refused) =
                feedback::join(history, now, &compound, settings.format, |history, name| match name {
                    // If the caller sets no sequence numbers, a transport-wide sequence number is the low 16 bits of
                    // the packet's number.
                    PacketName::Transport(low) if !*own_transport => history.by_low_bits(low),
                    _ => names.get(&name).copied(),
                });
            counts.refused = refused;
            if let Some(read) = read {
                *joined = read;
            }
            counts.packets = joined.packets.len() as u64;
            // Take only lost retransmissions, because receivers request lost originals with NACKs.
            let repairs = joined.packets.iter().filter(|packet| packet.stream == Stream::Repair);
            lost.extend(repairs.filter(|packet| packet.arrived.is_none()).map(|packet| packet.number));
        });
        self.after_feedback(now, rtt, &lost);
        for packet in &compound.packets {
            if let Ok(Some(nack)) = Nack::from_packet(packet) {
                counts.nacked += nack.missing.len() as u64;
                if let Some(stream) = self.stream_of(nack.media) {
                    for seq in nack.missing {
                        self.resend(now, stream, seq);
                    }
                }
            }
            for request in KeyFrameRequest::all(packet) {
                let (KeyFrameRequest::PictureLoss { media, .. } | KeyFrameRequest::FullIntra { media, .. }) = request;
                if let Some(stream) = self.stream_of(media) {
                    counts.key_frames += 1;
                    self.request_key_frame(stream);
                }
            }
        }
        Ok(counts)
    }

    /// Returns the first stream that was added with this SSRC.
    fn stream_of(&self, ssrc: u32) -> Option<StreamId> {
        self.streams.iter().position(|stream| stream.settings.ssrc == ssrc).map(|n| StreamId(n as u32))
    }

    /// Processes the fates of packets in the same way as [`Remote::feedback`]. Call [`MediaSender::poll`] afterwards.
    pub fn feedback(&mut self, now: Time, fates: impl IntoIterator<Item = PacketResult>) {
        let mut missing = Vec::new();
        let fates = fates.into_iter().inspect(|fate| {
            if fate.arrived.is_none() {
                missing.push(fate.number);
            }
        });
        let rtt = self.remote.feedback(now, fates);
        self.after_feedback(now, rtt, &missing);
    }

    /// Passes the round-trip time to the caches and the controller's probe to the prober. Retransmits packets whose
    /// last retransmission was lost.
    fn after_feedback(&mut self, now: Time, rtt: Option<Span>, lost: &[u64]) {
        let context = self.nack_context(now);
        for cache in self.streams.iter_mut().filter_map(|stream| stream.cache.as_mut()) {
            if let Some(rtt) = rtt {
                cache.on_round_trip(rtt);
            }
            // Only feedback that includes retransmissions shows whether they are lost.
            if self.settings.retransmissions_covered {
                lost.iter().for_each(|number| cache.on_lost(&context, &mut self.budget, *number));
            }
        }
        self.prober.request(self.remote.probe());
    }

    fn nack_context(&self, now: Time) -> NackContext {
        let Decision { target, limit, .. } = self.remote.decision();
        let (packet, scarce) = (self.settings.bounds.packet, limit == Limit::Floor);
        NackContext { now, target, packet, scarce, announced_playout: None }
    }

    /// Requests the retransmission of a packet, as a NACK does. Returns whether this call has queued the packet. Call
    /// [`MediaSender::poll`] afterwards.
    ///
    /// The call does not queue a packet that is already queued, was sent less than a round trip ago, is not cached, or
    /// would arrive too late. It does not queue the packet either if repair has used its share of the rate, or if the
    /// controller is at its lower limit and the packet does not belong to a key frame.
    pub fn resend(&mut self, now: Time, stream: StreamId, seq: u16) -> bool {
        let context = self.nack_context(now);
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return false };
        let Some(cache) = &mut state.cache else { return false };
        let before = cache.queued();
        cache.on_nack(&context, &mut self.budget, seq);
        cache.queued() > before
    }

    /// Requests a key frame, as a PLI or an FIR does. Requests within 0.5 s are answered with one key frame.
    pub fn request_key_frame(&mut self, stream: StreamId) {
        if let Some(state) = self.stream(stream) {
            state.requested = true;
        }
    }

    /// Removes all waiting packets. Sent packets stay in the history and the cache.
    pub fn clear(&mut self) {
        self.dropped.clear();
        self.streams.iter_mut().for_each(|stream| stream.queue.clear());
    }

    /// Records that feedback will not include this packet ([`Remote::forget`]).
    pub fn forget(&mut self, number: u64) {
        self.remote.forget(number);
    }

    /// Returns what the caller has to do now.
    ///
    /// Call this method after each call of another method, and at the time of the last [`Output::Wait`]. Repeat the
    /// call until the result is [`Output::Wait`]. If the call is late, the pacer catches up for at most
    /// [`MediaSettings::credit`].
    pub fn poll(&mut self, now: Time) -> Output {
        if let Some((stream, id)) = self.dropped.pop_front() {
            return Output::Dropped(stream, id);
        }
        if self.remote.wake().is_some_and(|wake| wake.at <= now) {
            self.remote.timer(now);
            self.prober.request(self.remote.probe());
        }
        // Send audio first and without pacing, because the pacing of a video frame would delay it.
        if let Some(stream) = self.oldest(StreamKind::Audio) {
            return self.send_head(now, stream);
        }
        let repair = self.waiting_repair(now);
        let due = self.due(now, repair.is_some());
        if due.is_some_and(|due| due <= now) {
            let sent = match repair {
                Some(stream) => self.send_repair(now, stream),
                None => None,
            };
            // Send parity before video: it protects packets that have already been sent, so it is needed sooner.
            let next = || self.oldest(StreamKind::Parity).or_else(|| self.oldest(StreamKind::Video));
            if let Some(departure) = sent {
                return Output::Send(departure);
            }
            return match next() {
                Some(stream) => self.send_head(now, stream),
                None => self.send_padding(now),
            };
        }
        self.wait(now, due)
    }

    fn wait(&self, now: Time, due: Option<Time>) -> Output {
        let media = due.map(|at| Wake { at, why: "pacer" });
        let soonest = self.remote.wake().into_iter().chain(media).min_by_key(|wake| wake.at);
        // Always wait for at least 1 ns. With a time in the past, the caller would call `poll` without end.
        Output::Wait(soonest.map(|wake| Wake { at: wake.at.max(now + Span::nanos(1)), ..wake }))
    }

    /// Returns when the next packet that is not audio may be sent. Returns `None` if no packet waits or the window is
    /// closed.
    fn due(&self, now: Time, repair: bool) -> Option<Time> {
        let waits = repair
            || self.oldest(StreamKind::Parity).is_some()
            || self.oldest(StreamKind::Video).is_some()
            || self.pads();
        let closed = self.remote.decision().window.is_some_and(Window::is_closed);
        let due = self.pace.due(self.departure_rate());
        // Without a waiting packet, padding for a paused layer may be due.
        let fill = self.fill.filter(|fill| now < fill.until && self.newest.is_some());
        let due = if waits { Some(due) } else { fill.map(|fill| fill.pace.due(fill.rate).max(due)) };
        due.filter(|_| !closed)
    }

    /// Charges a sent packet to the pacer and to the padding for a paused layer.
    fn charge(&mut self, now: Time, size: Bytes) {
        self.pace.sent(now, size, self.departure_rate());
        if let Some(fill) = &mut self.fill {
            fill.pace.sent(now, size, fill.rate);
        }
    }

    /// Returns the stream of this kind whose first frame has waited longest.
    fn oldest(&self, kind: StreamKind) -> Option<StreamId> {
        let streams = self.streams.iter().enumerate().filter(|(_, stream)| stream.settings.kind == kind);
        let heads = streams.filter_map(|(n, stream)| Some((stream.queue.head()?.since, n)));
        heads.min().map(|(_, n)| StreamId(n as u32))
    }

    /// Returns the first stream that has a retransmission to send.
    fn waiting_repair(&mut self, now: Time) -> Option<StreamId> {
        let waits = self.streams.iter_mut().position(|stream| stream.cache.as_mut().is_some_and(|c| c.waits(now)));
        waits.map(|n| StreamId(n as u32))
    }

    fn departure_rate(&self) -> Rate {
        self.prober.rate().unwrap_or_else(|| self.remote.decision().pacing)
    }

    /// Adds a sent packet to the current probe, because a probe consists of all packets that are sent during the probe.
    /// A packet that the feedback does not include has to be left out. If there is no current probe, the packet starts
    /// the probe `wanted`. Only video starts a probe.
    fn count_in_probe(&mut self, wanted: Option<Probe>, size: Bytes) {
        let early = self.prober.on_sent(wanted, size);
        self.pace.charge_early(early);
    }

    /// Returns whether padding can fill the current probe.
    fn pads(&self) -> bool {
        self.settings.padding && self.prober.pads() && self.newest.is_some()
    }

    fn send_head(&mut self, now: Time, stream: StreamId) -> Output {
        let Some(state) = self.stream(stream) else { return Output::Wait(None) };
        let (settings, head) = (state.settings, state.queue.head().and_then(|head| head.content.front()).copied());
        let Some(Queued { packet, role, ready }) = head else {
            // This does not happen with admitted frames, because each has a packet.
            state.queue.clear();
            return Output::Wait(None);
        };
        state.queue.take(packet.size, VecDeque::pop_front);
        let kind = if settings.kind == StreamKind::Parity { Stream::Parity } else { Stream::Media };
        let empty = self.oldest(StreamKind::Video).is_none();
        let size = packet.size;
        let number = match (kind, settings.covered) {
            (_, false) => self.remote.sent_uncovered(now, kind, size),
            (Stream::Media, _) => self.remote.sent(now, &Packet { size, edge: packet.edge, data_limited: empty }),
            _ => self.remote.sent_extra(now, kind, size),
        };
        self.next = number + 1;
        self.charge(now, size);
        if settings.kind == StreamKind::Video {
            self.count_in_probe(self.remote.probe(), size);
            if empty && !self.pads() {
                self.prober.ran_dry();
            }
            self.report_queue(now, None);
        } else if settings.covered {
            self.count_in_probe(None, size);
        }
        // Parity is no repair here, because `encoder` has already reserved its rate.
        self.share.on_sent(now, size, false);
        // Store the packet's name, because RFC 8888 identifies packets by SSRC and sequence number.
        if settings.covered && self.settings.format == FeedbackFormat::Rfc8888 {
            self.sent_as(number, PacketName::Rtp { ssrc: settings.ssrc, seq: packet.seq });
        }
        let state = &mut self.streams[stream.0 as usize];
        let seq = state.extend(packet.seq);
        if let Some(cache) = &mut state.cache {
            let (content, size) = (packet, size + ORIGINAL_SEQ);
            cache.on_sent(seq, CachedPacket { content, role, ready, sent: now, size, queued: false, resent_as: None });
            self.newest = Some(stream);
        }
        self.prober.request(self.remote.probe());
        let MediaPacket { id, seq, .. } = packet;
        Output::Send(Departure { stream, id, seq, number, kind, size })
    }

    fn send_repair(&mut self, now: Time, stream: StreamId) -> Option<Departure> {
        // With this number, the cache recognises the loss of this retransmission.
        let number = self.next;
        let cache = self.streams.get_mut(stream.0 as usize)?.cache.as_mut()?;
        let Retransmission { packet, .. } = cache.next(now, number)?;
        cache.counts.packets += 1;
        cache.counts.bytes += packet.size;
        self.share.on_sent(now, packet.size, true);
        Some(self.send_again(now, stream, &packet, Stream::Repair))
    }

    fn send_again(
        &mut self,
        now: Time,
        stream: StreamId,
        cached: &CachedPacket<MediaPacket>,
        kind: Stream,
    ) -> Departure {
        let size = cached.size;
        // If feedback does not include the packet, the controller must not take it for lost.
        let number = match self.settings.retransmissions_covered {
            true => self.remote.sent_extra(now, kind, size),
            false => self.remote.sent_uncovered(now, kind, size),
        };
        self.next = number + 1;
        self.charge(now, size);
        if kind == Stream::Padding || self.settings.retransmissions_covered {
            self.count_in_probe(None, size);
        }
        self.prober.request(self.remote.probe());
        let MediaPacket { id, seq, .. } = cached.content;
        Departure { stream, id, seq, number, kind, size }
    }

    fn send_padding(&mut self, now: Time) -> Output {
        // Use the newest packet as padding, because it also repairs a loss of the original.
        let newest = self.newest.and_then(|stream| {
            let cache = self.streams.get(stream.0 as usize)?.cache.as_ref()?;
            Some((stream, cache.newest()?.packet))
        });
        let Some((stream, packet)) = newest else {
            self.prober.ran_dry();
            return self.wait(now, None);
        };
        Output::Send(self.send_again(now, stream, &packet, Stream::Padding))
    }
}
