//! Reassembly of frames from RTP payloads, and a queue for their reader in another thread.

use crate::{Consumer, TempStore, Unused};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_endpoints::{Fields, Row, Rows, StoredRows};
use steadycast_media::{DecodeChain, FrameFate};
use steadycast_session::{FrameKind, UnusedReason};
use steadycast_units::{Bytes, Span, Time};
use steadycast_wire::ParseError;
use steadycast_wire::payload::{Depacketiser, PayloadFormat, PictureKind, picture_kind};
use steadycast_wire::rtp::{PayloadTypes, RtpHeader};
use steadycast_wire::seq::{MAX_MISORDER, MIN_SEQUENTIAL};

/// A frame that was reassembled from its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Presentation time in ticks of 1/90000 s from the first received frame.
    pub ticks: i64,
    /// The bytes that are usable.
    pub bytes: Vec<u8>,
    /// Whether a part of it is missing.
    pub damaged: bool,
    /// Whether it is complete, and all frames that it depends on are.
    pub whole: bool,
    /// Arrival time of the first packet.
    pub first: Time,
    /// Arrival time of the last packet.
    pub last: Time,
}

/// The number of frames by their fate, as far as the packets show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames that are complete, with all frames that they depend on.
    pub whole: u64,
    /// Frames that are complete but not decodable: a reference is missing, or the packetisation is not supported.
    pub undecodable: u64,
    /// Frames of which a part is missing.
    pub damaged: u64,
    /// Frames of which no packet arrived, by the gaps of the timestamps.
    pub missing: u64,
    /// Arrival time of the last packet of the latest frame that can be shown.
    pub shown: Option<Time>,
    /// Whether all packets have the same timestamp, over more than [`FRAME_ARRIVAL_TIME`].
    pub one_stamp: bool,
}

/// Time within which the packets of a frame usually arrive.
const FRAME_ARRIVAL_TIME: Span = Span::secs(2);

impl FrameCounts {
    /// Returns a warning about the frames, if there is a reason for one.
    pub fn warning(&self) -> Option<String> {
        self.one_stamp.then(|| "all packets have one RTP time stamp, which makes one frame of them".into())
    }
}

/// The record of a frame, which is kept when its bytes are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// Presentation time, as [`ReceivedFrame::ticks`].
    pub ticks: i64,
    /// Its size in bytes.
    pub size: Bytes,
    /// The frame's fate, as far as the packets show it. Lateness is unknown, because the play-out time is.
    pub fate: FrameFate,
    /// Arrival times of the first and the last packet.
    pub came: (Time, Time),
}

impl Row for FrameRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        // The time is negative for a frame that precedes the first received one in display order.
        self.ticks.pass(by);
        self.size.pass(by);
        by.one_of(&mut self.fate, &[FrameFate::Ok, FrameFate::Lost, FrameFate::Late, FrameFate::Undecodable]);
        self.came.0.pass(by);
        self.came.1.pass(by);
    }
}

#[derive(Debug, Default)]
struct FrameQueueState {
    frames: VecDeque<ReceivedFrame>,
    counts: FrameCounts,
    rows: Rows<FrameRow>,
    wanted: bool,
    closed: bool,
    /// Frames dropped because the reader was too slow.
    overrun: u64,
}

/// The queue of received frames for their reader.
#[derive(Clone, Debug, Default)]
pub struct FrameQueue(Arc<(Mutex<FrameQueueState>, Condvar)>);

/// Maximum number of frames that wait for a slow reader. The oldest are dropped.
const MAX_WAITING_FRAMES: usize = 1_024;

impl FrameQueue {
    fn locked(&self) -> MutexGuard<'_, FrameQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the records of older frames to a temporary file. If none can be created, they stay in memory.
    #[must_use]
    pub fn spooled(self) -> Self {
        let mut frame_queue = self.locked();
        TempStore::keep([&mut frame_queue.rows as &mut dyn StoredRows]);
        drop(frame_queue);
        self
    }

    /// Announces a reader. Without one only sizes and times of frames are kept.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// Returns the frames in the queue. Waits up to `patience` for one. Returns `None` when no more frames follow.
    pub fn take(&self, patience: Duration) -> Option<Vec<ReceivedFrame>> {
        let waits = |frame_queue: &mut FrameQueueState| frame_queue.frames.is_empty() && !frame_queue.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, waits);
        let (mut frame_queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if frame_queue.frames.is_empty() && frame_queue.closed {
            return None;
        }
        Some(frame_queue.frames.drain(..).collect())
    }

    /// Announces that no more frames follow.
    pub fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// Returns the number of frames by their fate so far.
    pub fn counts(&self) -> FrameCounts {
        self.locked().counts
    }

    /// Returns the number of frames dropped because the reader was too slow.
    pub fn overrun(&self) -> u64 {
        self.locked().overrun
    }

    /// Returns the records of all frames so far.
    ///
    /// # Errors
    /// Records can't be read from the temporary file.
    pub fn rows(&self) -> io::Result<Vec<FrameRow>> {
        let rows = self.locked().rows.clone();
        rows.whole()
    }

    fn put(&self, frame: ReceivedFrame, fate: FrameFate, missing: u64) {
        let mut frame_queue = self.locked();
        frame_queue.counts.missing += missing;
        match fate {
            FrameFate::Lost => frame_queue.counts.damaged += 1,
            FrameFate::Undecodable => frame_queue.counts.undecodable += 1,
            FrameFate::Ok | FrameFate::Late => {
                frame_queue.counts.whole += 1;
                frame_queue.counts.shown = Some(frame.last);
            }
        }
        let size = Bytes::new(frame.bytes.len() as u64);
        let row = FrameRow { ticks: frame.ticks, size, fate, came: (frame.first, frame.last) };
        frame_queue.rows.push(row);
        if !frame_queue.wanted {
            return;
        }
        if frame_queue.frames.len() >= MAX_WAITING_FRAMES {
            frame_queue.frames.pop_front();
            frame_queue.overrun += 1;
        }
        frame_queue.frames.push_back(frame);
        drop(frame_queue);
        self.0.1.notify_all();
    }
}

/// Time that a packet waits for a missing earlier one if nothing is retransmitted. It counts from the last packet that
/// arrived in sequence, because a number far ahead may be forged while others arrive in order.
pub(crate) const REORDER_WAIT: Span = Span::millis(80);
/// Maximum number of waiting packets with a wait of [`REORDER_WAIT`].
const MAX_HELD_SHORT: usize = 256;
/// Maximum number of waiting packets per millisecond of a longer wait: 160 Mb/s in packets of 1000 bytes.
const HELD_PER_MS: u64 = 20;
/// Maximum number of waiting packets for any wait.
const MAX_HELD: u64 = 1 << 14;

/// A packet with its arrival time. A packet without payload only fills its sequence number, and belongs to no frame.
type Held = (Time, RtpHeader, Vec<u8>);

/// A jitter buffer that puts packets into order and reassembles frames.
pub struct JitterBuffer {
    frame_queue: FrameQueue,
    format: PayloadFormat,
    payload_types: PayloadTypes,
    unused: Unused,
    chain: DecodeChain,
    depacketiser: Depacketiser,
    held: BTreeMap<u64, Held>,
    /// Maximum time that a packet waits for an earlier one, and maximum number of waiting packets.
    patience: (Span, usize),
    /// The extended sequence number of the next packet.
    next: Option<u64>,
    /// Arrival time of the latest packet that was in sequence.
    progress: Time,
    /// Number of packets since the last gap.
    since_gap: u64,
    /// Consecutive packets that arrived after their gap had been given up, with the number of the first.
    late: (u64, Vec<Held>),
    /// Number of packets lost since the last frame.
    lost: u64,
    /// The frame that is being reassembled.
    open: Option<OpenFrame>,
    /// The previous frame.
    before: Option<PreviousFrame>,
    /// The minimum distance between two frames, in ticks.
    period: Option<i64>,
    last_ticks: Option<i64>,
    /// Number of packets known to be missing before the next one, if there is a gap.
    gap: Option<u64>,
    markers: Markers,
    /// Sequence numbers at which new runs of the stream start, and which have not been reached yet.
    runs: VecDeque<u64>,
    /// Whether the next packet starts a new run.
    anew: bool,
    /// The RTP sequence number that follows the last packet of the same source.
    raw: Option<u16>,
    /// Whether a key frame is needed (`Some`), and whether none has been received so far.
    lacks: Option<bool>,
    /// Whether no key frame has been received so far.
    fresh: bool,
    /// Number of frames since the last key frame, and between the last two key frames.
    group: (Option<u32>, Option<u32>),
}

/// A key frame that is expected within this many ticks (100 ms) is not requested.
const EXPECTED_SOON: i64 = 9_000;

/// The reference for the time of the next frame. Timestamps of different runs are not comparable.
#[derive(Clone, Copy)]
struct PreviousFrame {
    timestamp: u32,
    ticks: i64,
    first: Time,
}

struct OpenFrame {
    timestamp: u32,
    first: Time,
    last: Time,
    damaged: bool,
    /// Whether packets are missing before its first one.
    after_gap: bool,
    /// Number of its packets so far. `marked` is the marker bit of the latest.
    packets: u32,
    marked: bool,
    /// Whether it starts a new run: the SSRC changed, or the source restarted.
    anew: bool,
}

/// The reliability of a sender's marker bits. Some senders set none; some mark each packet, NAL unit or slice. A
/// receiver must not rely on them (RFC 6184, section 5.1), so that a frame ends where the next timestamp starts. A
/// marker ends it earlier only if two conditions hold: a marker was right for this kind of picture before, and a frame
/// had unmarked packets before its last one. The second condition excludes senders that mark each packet but have sent
/// frames of one packet only.
#[derive(Clone, Copy, Debug, Default)]
struct Markers {
    /// Whether a marker was right for intra, predicted and disposable pictures.
    proved: [bool; 3],
    /// Whether a frame of several packets had a marker only on its last one.
    sparing: bool,
    /// Whether a marker was set within a frame.
    wrong: bool,
    /// The timestamp of the last frame, if it was finished at its marker, and what this marker proves.
    early: Option<(u32, Proof)>,
}

/// The evidence of a marker, if the next packet belongs to another frame: the kind of picture, and whether unmarked
/// packets preceded it.
type Proof = (Option<PictureKind>, bool);

impl Markers {
    /// Returns true if a marker at the last packet ends the frame. The kind may be unknown if the start of a damaged
    /// frame is missing.
    fn end(&self, kind: Option<PictureKind>, damaged: bool) -> bool {
        self.needed(kind) && self.sparing && (kind.is_some() || damaged)
    }

    /// Returns true if all frames of this kind so far ended with a marker.
    fn needed(&self, kind: Option<PictureKind>) -> bool {
        !self.wrong && kind.map_or(self.proved.contains(&true), |kind| self.proved[kind as usize])
    }

    fn prove(&mut self, (kind, sparing): Proof) {
        if let Some(kind) = kind {
            self.proved[kind as usize] = true;
            self.sparing |= sparing;
        }
    }

    /// Handles the first packet of a frame with this timestamp. `next` is true if no packet is missing before it.
    fn on_frame(&mut self, timestamp: u32, next: bool) {
        if let Some((before, proof)) = self.early.take() {
            if before == timestamp {
                self.wrong = true;
            } else if next {
                self.prove(proof);
            }
        }
    }
}

/// Maximum difference, in ticks (1 s), between timestamp and arrival time at which a new run continues the timestamps
/// of the previous run.
const MAX_RUN_STEP_ERROR: i64 = 90_000;
/// Maximum step of a timestamp within a run, in ticks: 60 s ahead of the arrival, and 10 s backwards.
const MAX_STEP_AHEAD: i64 = 60 * 90_000;
const MAX_STEP_BEHIND: i64 = 10 * 90_000;

impl JitterBuffer {
    /// Creates the jitter buffer of packets of these payload types and this format.
    pub fn new(format: PayloadFormat, payload_types: PayloadTypes, frame_queue: FrameQueue) -> Self {
        Self {
            frame_queue,
            format,
            payload_types,
            unused: Unused::default(),
            chain: DecodeChain::default(),
            depacketiser: Depacketiser::new(format),
            held: BTreeMap::new(),
            patience: (REORDER_WAIT, MAX_HELD_SHORT),
            next: None,
            progress: Time::ZERO,
            since_gap: 0,
            late: (0, Vec::new()),
            lost: 0,
            open: None,
            before: None,
            period: None,
            last_ticks: None,
            gap: None,
            markers: Markers::default(),
            runs: VecDeque::new(),
            anew: false,
            raw: None,
            lacks: None,
            fresh: true,
            group: (None, None),
        }
    }

    /// Sets the time that packets wait for earlier ones, which may be retransmitted.
    #[must_use]
    pub fn waiting(self, wait: Span) -> Self {
        let most = (wait.as_nanos() / 1_000_000 * HELD_PER_MS).clamp(MAX_HELD_SHORT as u64, MAX_HELD);
        Self { patience: (wait.max(REORDER_WAIT), most as usize), ..self }
    }

    fn release(&mut self, now: Time) {
        while let Some((seq, (at, ..))) = self.held.first_key_value() {
            let (seq, at) = (*seq, *at);
            let due = self.next.is_none_or(|next| seq == next);
            let (wait, most) = self.patience;
            // The next packet is still missing, and neither the time nor the number of waiting packets has reached its
            // bound.
            if !due && self.held.len() <= most && now.since(at.max(self.progress)) <= wait {
                return;
            }
            let Some((seq, packet)) = self.held.pop_first() else { return };
            self.go_on(seq, packet);
        }
    }

    /// Takes the next held packet. Missing packets before it are given up as lost.
    fn go_on(&mut self, seq: u64, (at, header, payload): Held) {
        if let Some(next) = self.next.filter(|next| seq > *next) {
            self.give_up(seq - next);
        } else {
            self.progress = self.progress.max(at);
        }
        while self.runs.front().is_some_and(|from| *from <= seq) {
            self.runs.pop_front();
            // If the sequence numbers continue, it is the same stream under a new SSRC.
            self.anew = self.gap.is_some() || self.raw != Some(header.seq);
        }
        (self.next, self.raw) = (Some(seq + 1), Some(header.seq.wrapping_add(1)));
        self.since_gap += 1;
        if !payload.is_empty() {
            self.packet(at, &header, &payload);
        }
    }

    fn give_up(&mut self, lost: u64) {
        self.gap = Some(self.gap.unwrap_or(0) + lost);
        self.since_gap = 0;
        self.late.1.clear();
    }

    /// Handles a packet whose gap was given up. The stream goes back to it if consecutive packets follow there: more
    /// than have followed the gap, or at a distance at which packets can't be late. So a single forged number can't
    /// make the receiver discard the genuine packets.
    fn take_late(&mut self, seq: u64, packet: Held) {
        let (first, run) = &mut self.late;
        if *first + run.len() as u64 != seq || run.len() >= MAX_HELD_SHORT {
            run.clear();
            *first = seq;
        }
        // The count is taken back if the stream goes back to this packet.
        self.unused.add(UnusedReason::TooLate);
        run.push(packet);
        let (first, votes) = (*first, run.len() as u64);
        let far = self.next.is_some_and(|next| first + u64::from(MAX_MISORDER) <= next);
        if votes >= u64::from(MIN_SEQUENTIAL) && (far || votes > self.since_gap) {
            let run = std::mem::take(&mut self.late.1);
            run.iter().for_each(|_| self.unused.counts.take_back(UnusedReason::TooLate));
            self.give_up(0);
            self.next = Some(first);
            self.held.extend((first..).zip(run));
        }
    }

    fn packet(&mut self, at: Time, header: &RtpHeader, payload: &[u8]) {
        let RtpHeader { timestamp, marker, .. } = *header;
        let (lost, anew) = (self.gap.take(), std::mem::take(&mut self.anew));
        let gap = lost.is_some();
        match &mut self.open {
            Some(open) if open.timestamp == timestamp && !anew => {
                self.markers.wrong |= open.marked;
                if gap {
                    self.depacketiser.gap();
                    open.damaged = true;
                }
            }
            Some(_) => self.next_frame(gap, anew),
            None => self.markers.on_frame(timestamp, !gap && !anew),
        }
        self.lost += lost.unwrap_or(0);
        if anew {
            // Another sender may use markers in another way.
            self.markers = Markers::default();
        }
        // The gap lies between two frames, so that it only affects the start of the new one.
        if self.open.is_none() && gap {
            self.depacketiser.gap();
        }
        let fresh =
            OpenFrame { timestamp, first: at, last: at, damaged: gap, after_gap: gap, packets: 0, marked: false, anew };
        let open = self.open.get_or_insert(fresh);
        open.last = open.last.max(at);
        if self.before.is_none() && open.last.since(open.first) > FRAME_ARRIVAL_TIME {
            self.frame_queue.locked().counts.one_stamp = true;
        }
        match self.depacketiser.push(payload) {
            Ok(()) if self.depacketiser.is_orphaned() => self.unused.add(UnusedReason::AfterLoss),
            Ok(()) => {}
            // Unsupported packets are neither lost nor damaged.
            Err(ParseError::Unsupported { what }) => {
                self.unused.add_payload(UnusedReason::UnsupportedPacketisation, what);
            }
            Err(ParseError::OtherLayer { what }) => self.unused.add_payload(UnusedReason::UnsupportedLayer, what),
            Err(error) => {
                open.damaged = true;
                self.unused.add_payload(UnusedReason::MalformedPayload, error.what());
            }
        }
        // A marker on a fragment that is not the last of its unit can't end the frame.
        let within = self.depacketiser.is_within_unit();
        open.marked = marker && !within;
        self.markers.wrong |= marker && within && !open.damaged;
        open.packets += 1;
        if open.marked && !self.markers.wrong && self.markers.end(self.kind(), self.is_damaged()) {
            self.finish_early();
        }
    }

    /// Finishes the open frame, because the next packet belongs to another one.
    fn next_frame(&mut self, gap: bool, anew: bool) {
        self.frame_queue.locked().counts.one_stamp = false;
        let proof = self.proof();
        let Some(open) = &mut self.open else { return };
        let marked = open.marked && !self.markers.wrong;
        if marked && !gap && !anew {
            self.markers.prove(proof);
        } else if gap && !marked || anew && self.markers.needed(proof.0) && !marked {
            // Packets were lost at the boundary. It is unknown which of the two frames they belong to, so that both
            // count as damaged.
            self.depacketiser.gap();
            open.damaged = true;
        }
        self.finish();
    }

    /// Finishes the open frame at its marker.
    fn finish_early(&mut self) {
        let proof = self.proof();
        self.markers.early = self.open.as_ref().map(|open| (open.timestamp, proof));
        self.finish();
    }

    fn proof(&self) -> Proof {
        (self.kind(), self.open.as_ref().is_some_and(|open| open.packets > 1 && !open.damaged))
    }

    /// Returns the kind of the open frame's picture, if the packets so far show it.
    fn kind(&self) -> Option<PictureKind> {
        picture_kind(self.format, self.depacketiser.so_far())
    }

    fn is_damaged(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.damaged)
    }

    /// Returns the time until which a frame waits behind its marker for reordered packets.
    fn ends_at(&self) -> Option<Time> {
        let open = self.open.as_ref().filter(|open| open.marked && !self.markers.wrong)?;
        (self.held.is_empty() && self.kind().is_some()).then_some(open.last + REORDER_WAIT)
    }

    /// Returns the presentation time of a frame in ticks from the first one. It follows from the timestamp, or from the
    /// arrival time if the timestamp is not plausible.
    fn ticks(&self, open: &OpenFrame) -> i64 {
        let Some(before) = self.before else { return 0 };
        let waited = (open.first.since(before.first).as_nanos() / 100_000 * 9) as i64;
        let step = i64::from(open.timestamp.wrapping_sub(before.timestamp) as i32);
        let (by_stamp, last) = (before.ticks + step, self.last_ticks.unwrap_or(before.ticks));
        // A new run may start at any timestamp, so that it continues the old timeline only if its step matches the
        // arrival times.
        let right = match open.anew {
            true => by_stamp > last && (step - waited).abs() <= MAX_RUN_STEP_ERROR,
            false => (-MAX_STEP_BEHIND..=waited + MAX_STEP_AHEAD).contains(&step),
        };
        if right { by_stamp } else { last + waited.max(self.period.unwrap_or(1)) }
    }

    fn finish(&mut self) {
        let frame = self.depacketiser.finish();
        let Some(open) = self.open.take() else { return };
        let same = !open.anew;
        let ticks = self.ticks(&open);
        self.before = Some(PreviousFrame { timestamp: open.timestamp, ticks, first: open.first });
        let step = self.last_ticks.filter(|_| same).map(|last| ticks - last).filter(|step| *step > 0);
        let mut missing = 0;
        if let Some(step) = step {
            let period = self.period.map_or(step, |p| p.min(step));
            self.period = Some(period);
            // After a loss, a larger step means missing frames, each of at least one packet. Without a loss the sender
            // has skipped them.
            if open.damaged || frame.damaged {
                missing = u64::try_from(step / period - 1).unwrap_or(0).min(self.lost);
            }
        }
        self.lost = 0;
        // With B frames, timestamps do not increase in decoding order.
        self.last_ticks = Some(self.last_ticks.map_or(ticks, |last| last.max(ticks)));
        let damaged = open.damaged || frame.damaged;
        if !same {
            // A new run does not reference frames of the previous one.
            self.chain = DecodeChain::default();
        }
        let gap = open.after_gap || missing > 0;
        if gap {
            // The lost frames are assumed to be references, because their kind is unknown.
            self.chain.next(FrameKind::P, false);
        }
        let kind = match picture_kind(self.format, &frame.bytes) {
            Some(PictureKind::Intra) => FrameKind::I,
            Some(PictureKind::Disposable) => FrameKind::B,
            Some(PictureKind::Predicted) | None => FrameKind::P,
        };
        // A frame without bytes and without loss consists of unsupported packets.
        let unsupported = frame.unsupported || frame.bytes.is_empty();
        let fate = match self.chain.next(kind, !damaged && !unsupported) {
            FrameFate::Lost if !damaged => FrameFate::Undecodable,
            fate => fate,
        };
        self.update_key_frame_need(kind, fate, gap);
        let (first, last) = (open.first, open.last);
        let whole = fate == FrameFate::Ok;
        self.frame_queue.put(ReceivedFrame { ticks, bytes: frame.bytes, damaged, whole, first, last }, fate, missing);
    }
}

impl JitterBuffer {
    /// Updates whether a key frame is needed after this frame. `gap` is true if frames are missing before it, which may
    /// be references.
    fn update_key_frame_need(&mut self, kind: FrameKind, fate: FrameFate, gap: bool) {
        let (since, before) = self.group;
        let since = since.map(|since| since + 1);
        self.group = if kind == FrameKind::I { (Some(0), since) } else { (since, before) };
        match (kind, fate) {
            (FrameKind::I, FrameFate::Ok) => (self.lacks, self.fresh) = (None, false),
            (FrameKind::B, _) | (_, FrameFate::Ok | FrameFate::Late) if !gap => {}
            _ => {
                // If the present group is longer than the previous one, the time of the next key frame can't be
                // predicted.
                let left = self.group.1.zip(self.group.0).and_then(|(whole, since)| whole.checked_sub(since));
                let left = left.filter(|left| *left > 0).map(i64::from);
                let soon = left.zip(self.period).is_some_and(|(left, period)| left * period <= EXPECTED_SOON);
                self.lacks = self.lacks.or((!soon).then_some(self.fresh));
            }
        }
    }
}

impl Consumer for JitterBuffer {
    fn lacks_key_frame(&self) -> Option<bool> {
        self.lacks
    }

    fn take(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        // Parity may share the sequence numbers of the media (RFC 5109). It fills its number, so that it does not count
        // as lost.
        let payload = if self.payload_types.contains(header.payload_type) {
            if payload.is_empty() {
                self.unused.add(UnusedReason::NoPayload);
            }
            payload
        } else {
            self.unused.add_of_type(UnusedReason::UnknownPayloadType, header.payload_type);
            &[]
        };
        let packet = (now, *header, payload.to_vec());
        if self.next.is_some_and(|next| seq < next) {
            self.take_late(seq, packet);
        } else {
            self.held.insert(seq, packet);
        }
        self.release(now);
    }

    fn take_repaired(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        // Frames that were finished without this packet are not reassembled again.
        if self.next.is_none_or(|next| seq >= next) {
            self.take(now, seq, header, payload);
        } else {
            self.unused.add(UnusedReason::TooLate);
        }
    }

    fn unused(&self) -> Unused {
        self.unused.clone()
    }

    fn restart(&mut self, seq: u64) {
        self.runs.push_back(seq);
    }

    fn wake(&self) -> Time {
        let waits = self.held.first_key_value().map(|(_, (at, ..))| (*at).max(self.progress) + self.patience.0);
        // The bounds are inclusive, so that the timer expires just after them.
        waits.into_iter().chain(self.ends_at()).min().map_or(Time::NEVER, |at| at + Span::nanos(1))
    }

    fn on_wake(&mut self, now: Time) {
        self.release(now);
        if self.ends_at().is_some_and(|at| now > at) {
            self.finish_early();
        }
    }

    fn end(&mut self) {
        while let Some((seq, packet)) = self.held.pop_first() {
            self.go_on(seq, packet);
        }
        // A sender that stops within a frame has lost nothing, so that the incomplete frame is not reported as damaged.
        let ended = |open: &OpenFrame| open.damaged || open.marked || !self.markers.needed(self.kind());
        if self.open.as_ref().is_some_and(ended) {
            self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const I: u8 = 0x00;
    const P: u8 = 0x40;
    const B: u8 = 0x80;

    /// Returns an MPEG-4 frame of this kind, or a further part of one, that ends with two numbers.
    fn frame_of(kind: u8, one: u8, other: u8) -> [u8; 7] {
        [0, 0, 1, 0xb6, kind, one, other]
    }

    fn packet(jitter_buffer: &mut JitterBuffer, ms: u64, seq: u64, frame: u32, marker: bool) {
        packet_of(jitter_buffer, I, ms, seq, frame, marker);
    }

    fn packet_of(jitter_buffer: &mut JitterBuffer, kind: u8, ms: u64, seq: u64, frame: u32, marker: bool) {
        let header = RtpHeader {
            payload_type: 96,
            marker,
            seq: seq as u16,
            timestamp: frame.wrapping_mul(3_600).wrapping_sub(5_000),
            ssrc: 1,
            send_time: None,
            payload_len: 2,
        };
        jitter_buffer.take(Time::ZERO + Span::millis(ms), seq, &header, &frame_of(kind, frame as u8, seq as u8));
    }

    fn fresh() -> (JitterBuffer, FrameQueue) {
        let frame_queue = FrameQueue::default();
        frame_queue.want();
        let mut jitter_buffer =
            JitterBuffer::new(PayloadFormat::Mpeg4, [96].into_iter().collect(), frame_queue.clone());
        // The sender's markers have proved right.
        jitter_buffer.markers = Markers { proved: [true; 3], sparing: true, ..Markers::default() };
        (jitter_buffer, frame_queue)
    }

    /// Returns the numbers of whole, damaged and missing frames.
    fn counted(frame_queue: &FrameQueue) -> (u64, u64, u64) {
        let counts = frame_queue.counts();
        (counts.whole, counts.damaged, counts.missing)
    }

    fn taken(frame_queue: &FrameQueue) -> Vec<(i64, Vec<u8>, bool)> {
        let frames = frame_queue.take(Duration::ZERO).unwrap();
        let numbers = |bytes: &[u8]| bytes.chunks(7).flat_map(|part| part[5..].to_vec()).collect();
        frames.into_iter().map(|f| (f.ticks, numbers(&f.bytes), f.damaged)).collect()
    }

    #[test]
    fn packets_that_overtook_each_other_make_whole_frames() {
        let (mut jitter_buffer, frame_queue) = fresh();
        for (ms, seq, frame, marker) in [(0, 10, 0, false), (1, 12, 1, true), (2, 11, 0, true), (3, 13, 2, true)] {
            packet(&mut jitter_buffer, ms, seq, frame, marker);
        }
        let expected = [(0, vec![0, 10, 0, 11], false), (3_600, vec![1, 12], false), (7_200, vec![2, 13], false)];
        assert_eq!(taken(&frame_queue), expected);
        assert_eq!(counted(&frame_queue), (3, 0, 0));
    }

    #[test]
    fn a_lost_packet_damages_its_frame_and_no_other() {
        let (mut jitter_buffer, frame_queue) = fresh();
        packet(&mut jitter_buffer, 0, 1, 0, true);
        packet(&mut jitter_buffer, 40, 2, 1, false);
        packet(&mut jitter_buffer, 41, 4, 1, true);
        packet(&mut jitter_buffer, 80, 5, 2, true);
        assert_eq!(taken(&frame_queue).len(), 1, "the rest waits for number 3");
        packet(&mut jitter_buffer, 160, 6, 3, true);
        let damaged: Vec<bool> = taken(&frame_queue).into_iter().map(|f| f.2).collect();
        assert_eq!(damaged, [true, false, false]);
    }

    #[test]
    fn completely_lost_frames_are_counted_by_their_timestamps() {
        let (mut jitter_buffer, frame_queue) = fresh();
        packet(&mut jitter_buffer, 0, 1, 0, true);
        packet(&mut jitter_buffer, 40, 2, 1, true);
        // Frames 2 and 3 of one packet each are lost.
        packet(&mut jitter_buffer, 160, 5, 4, true);
        packet(&mut jitter_buffer, 300, 6, 5, true);
        assert_eq!(counted(&frame_queue), (3, 1, 2));
    }

    #[test]
    fn packets_that_wait_for_a_lost_one_are_taken_at_the_end() {
        let (mut jitter_buffer, frame_queue) = fresh();
        for n in [0, 1, 3, 4, 5] {
            packet(&mut jitter_buffer, n * 10, n, n as u32, true);
        }
        jitter_buffer.end();
        let damaged: Vec<(i64, bool)> = taken(&frame_queue).into_iter().map(|f| (f.0 / 3_600, f.2)).collect();
        assert_eq!(damaged, [(0, false), (1, false), (3, true), (4, false), (5, false)]);
        assert_eq!(counted(&frame_queue), (4, 1, 1));
    }

    #[test]
    fn packets_of_another_payload_type_or_without_payload_are_not_lost() {
        for (payload_type, payload) in [(122, &[1, 2, 3][..]), (96, &[])] {
            let (mut jitter_buffer, frame_queue) = fresh();
            for n in [0, 1] {
                packet(&mut jitter_buffer, n * 10, n, n as u32, true);
            }
            let header = RtpHeader {
                payload_type,
                marker: false,
                seq: 2,
                timestamp: 3_600u32.wrapping_sub(5_000),
                ssrc: 1,
                send_time: None,
                payload_len: payload.len() as u16,
            };
            jitter_buffer.take(Time::ZERO + Span::millis(20), 2, &header, payload);
            for n in [3, 4] {
                packet(&mut jitter_buffer, n * 10, n, n as u32 - 1, true);
            }
            assert_eq!(counted(&frame_queue), (4, 0, 0), "payload type {payload_type}");
        }
    }

    #[test]
    fn a_frame_without_its_marker_at_the_end_counts_where_a_packet_of_it_is_missing() {
        for (second, frames) in [(3, 2), (4, 3)] {
            let (mut jitter_buffer, frame_queue) = fresh();
            for (n, marker) in [(0, true), (1, true), (2, false)] {
                packet(&mut jitter_buffer, n, n, n as u32, marker);
            }
            packet(&mut jitter_buffer, 3, second, 2, false);
            jitter_buffer.end();
            let damaged: Vec<bool> = taken(&frame_queue).into_iter().map(|f| f.2).collect();
            assert_eq!(damaged, [false, false, true][..frames]);
        }
    }

    /// Sends a frame of one packet every 10 ms, with further packets in between.
    fn stream(
        jitter_buffer: &mut JitterBuffer,
        frames: std::ops::Range<u64>,
        mut each: impl FnMut(&mut JitterBuffer, u64),
    ) {
        for n in frames {
            packet(jitter_buffer, n * 10, n, n as u32, true);
            each(jitter_buffer, n);
        }
    }

    #[test]
    fn one_made_up_number_ahead_of_a_stream_that_goes_on_costs_the_frame_that_it_takes_the_place_of_at_most() {
        for (ahead, damaged) in [(2, 1), (90, 1), (2_500, 0), (20_000, 0)] {
            let (mut jitter_buffer, frame_queue) = fresh();
            stream(&mut jitter_buffer, 0..500, |jitter_buffer, n| {
                if n == 100 {
                    packet(jitter_buffer, 1_001, n + ahead, 7, false);
                }
            });
            let (whole, seen, missing) = counted(&frame_queue);
            // By sequence numbers alone, a packet in place of another frame's only packet forms a whole frame.
            assert_eq!((whole + seen, missing), (500, 0), "{ahead} ahead");
            assert!(seen <= damaged, "{ahead} ahead: {seen}");
        }
    }

    #[test]
    fn a_forged_number_during_a_pause_costs_two_frames() {
        for ahead in [2, 90, 2_500, 20_000] {
            let (mut jitter_buffer, frame_queue) = fresh();
            stream(&mut jitter_buffer, 0..100, |_, _| {});
            // The stream pauses.
            packet(&mut jitter_buffer, 1_200, 100 + ahead, 7, true);
            packet(&mut jitter_buffer, 1_300, 101 + ahead, 8, true);
            stream(&mut jitter_buffer, 131..500, |_, _| {});
            let after = frame_queue.counts();
            assert!((467..=471).contains(&after.whole), "{ahead} ahead: {after:?}");
            assert!((1..=4).contains(&after.damaged), "{ahead} ahead: {after:?}");
        }
    }

    #[test]
    fn a_pair_of_late_packets_does_not_turn_the_stream_back() {
        let (mut jitter_buffer, frame_queue) = fresh();
        stream(&mut jitter_buffer, 0..50, |jitter_buffer, n| {
            if n == 20 {
                jitter_buffer.next = Some(23);
                jitter_buffer.give_up(0);
            }
            if n == 40 {
                packet(jitter_buffer, 401, 21, 21, true);
                packet(jitter_buffer, 402, 22, 22, true);
            }
        });
        let ticks: Vec<i64> = taken(&frame_queue).into_iter().map(|f| f.0).collect();
        assert!(ticks.is_sorted(), "{ticks:?}");
    }

    #[test]
    fn many_losses_do_not_add_up_their_waits() {
        let (mut jitter_buffer, frame_queue) = fresh();
        // Every third packet is lost. The packets are 10 ms apart, and each gap is waited for 80 ms after the packet
        // behind it.
        for n in (0..300).filter(|n| n % 3 != 2) {
            packet(&mut jitter_buffer, n * 10, n, n as u32, true);
        }
        let newest = taken(&frame_queue).last().map(|f| f.1[1]);
        assert!((285..=292).contains(&(u64::from(newest.unwrap()) + 256)), "{newest:?}");
    }

    #[test]
    fn another_sources_time_stamps_go_on_where_the_ones_before_ended() {
        let (mut jitter_buffer, frame_queue) = fresh();
        stream(&mut jitter_buffer, 0..100, |_, _| {});
        // Another source starts 4 s later, with timestamps hours away and without its first packet.
        jitter_buffer.restart(100);
        for n in 101..200u64 {
            let header = RtpHeader {
                payload_type: 96,
                marker: true,
                seq: n as u16,
                timestamp: (n as u32 * 3_600).wrapping_add(3_000_000_000),
                ssrc: 2,
                send_time: None,
                payload_len: 2,
            };
            jitter_buffer.take(Time::ZERO + Span::millis(4_000 + n * 10), n, &header, &frame_of(I, 1, 2));
        }
        let counts = counted(&frame_queue);
        assert!((197..=198).contains(&counts.0) && counts.1 <= 1 && counts.2 == 0, "{counts:?}");
        let ticks: Vec<i64> = taken(&frame_queue).into_iter().map(|f| f.0).collect();
        let steps: Vec<i64> = ticks.windows(2).map(|w| w[1] - w[0]).filter(|step| *step != 3_600).collect();
        // 4 s, and twice the distance between packets.
        assert_eq!(steps, [4_020 * 90]);
    }

    #[test]
    fn frames_after_a_lost_reference_are_undecodable_until_the_next_intra_frame() {
        // The letters are kinds of whole frames, a dash is a lost one. Losses are visible by the timestamps.
        for (frames, fates) in [
            ("IPPP", [4, 0, 0]),
            // The frame after the gap counts as damaged, because the lost packet may belong to either frame.
            ("IP-PPPIP", [4, 2, 2]),
            ("IBPBPBP", [7, 0, 0]),
            ("PPIP", [2, 0, 2]),
            ("IB-BPPI", [3, 2, 2]),
            ("IPP-IPB", [3, 2, 2]),
        ] {
            let (mut jitter_buffer, frame_queue) = fresh();
            for (n, kind) in frames.bytes().enumerate().filter(|(_, kind)| *kind != b'-') {
                let kind = if kind == b'I' {
                    I
                } else if kind == b'P' {
                    P
                } else {
                    B
                };
                packet_of(&mut jitter_buffer, kind, n as u64 * 100, n as u64, n as u32, true);
            }
            // This packet releases those that wait for the lost one.
            packet_of(&mut jitter_buffer, I, 2_000, frames.len() as u64, frames.len() as u32, true);
            let counts = frame_queue.counts();
            let told = [counts.whole - 1, counts.damaged + counts.missing, counts.undecodable];
            assert_eq!(told, fates, "{frames}");
            let rows = frame_queue.rows().unwrap();
            let undecodable = rows.iter().filter(|row| row.fate == FrameFate::Undecodable).count();
            assert_eq!(undecodable as u64, counts.undecodable);
        }
    }

    #[test]
    fn a_key_frame_is_needed_after_a_lost_reference_unless_one_is_due_soon() {
        // Frames of 40 ms, with a dash for a lost one, and whether the first or a later key frame was ever needed.
        for (frames, first, another) in [
            ("PPIPP", true, false),
            ("IPPPPPPPPPIPP", false, false),
            ("IPPPPPPP-PPPIP", false, true),
            // The next key frame is due in two frames.
            ("IPPPPPIPPP-PIP", false, false),
            ("IPPPPPPPP-BBBI", false, true),
        ] {
            let (mut jitter_buffer, _) = fresh();
            let mut seen = Vec::new();
            let all = frames.bytes().chain(*b"PP").enumerate();
            for (n, kind) in all.filter(|(_, kind)| *kind != b'-') {
                let kind = match kind {
                    b'I' => I,
                    b'P' => P,
                    _ => B,
                };
                packet_of(&mut jitter_buffer, kind, n as u64 * 100, n as u64, n as u32, true);
                seen.push(jitter_buffer.lacks_key_frame());
            }
            assert_eq!(
                (seen.contains(&Some(true)), seen.contains(&Some(false))),
                (first, another),
                "{frames}: {seen:?}"
            );
            assert_eq!(seen.last(), Some(&None), "{frames}: {seen:?}");
        }
    }

    #[test]
    fn a_constant_timestamp_causes_a_warning_within_three_seconds_and_slow_frames_do_not() {
        for (frame_ms, told) in [(u64::MAX, true), (1_000, false), (2_500, false)] {
            let (mut jitter_buffer, frame_queue) = fresh();
            jitter_buffer.markers = Markers::default();
            for n in 0..300 {
                packet(&mut jitter_buffer, n * 10, n, (n * 10 / frame_ms) as u32, n % 3 == 2);
            }
            let counts = frame_queue.counts();
            assert_eq!((counts.warning().is_some(), counts.damaged), (told, 0), "{frame_ms} ms");
            jitter_buffer.end();
            assert_eq!(frame_queue.counts().warning().is_some(), told, "at the end, {frame_ms} ms");
        }
    }

    #[test]
    fn missing_frames_are_at_most_as_many_as_missing_packets() {
        let (mut jitter_buffer, frame_queue) = fresh();
        packet(&mut jitter_buffer, 0, 1, 0, true);
        packet(&mut jitter_buffer, 10, 2, 1, true);
        // The sender left out one second, and one packet is missing.
        packet(&mut jitter_buffer, 1_000, 4, 26, true);
        packet(&mut jitter_buffer, 1_100, 5, 27, true);
        assert_eq!(counted(&frame_queue), (3, 1, 1));
    }

    #[test]
    fn with_a_longer_wait_a_packet_that_is_sent_again_makes_its_frame_whole_and_one_too_late_turns_nothing_back() {
        for (again, counts) in [(250, (60, 0, 0)), (450, (59, 1, 0))] {
            let (jitter_buffer, frame_queue) = fresh();
            let mut jitter_buffer = jitter_buffer.waiting(Span::millis(300));
            for n in (0..60).filter(|n| *n != 10) {
                if n * 10 == 100 + again {
                    let header = RtpHeader {
                        payload_type: 96,
                        marker: true,
                        seq: 10,
                        timestamp: 10u32.wrapping_mul(3_600).wrapping_sub(5_000),
                        ssrc: 1,
                        send_time: None,
                        payload_len: 2,
                    };
                    jitter_buffer.take_repaired(Time::ZERO + Span::millis(n * 10), 10, &header, &frame_of(I, 10, 10));
                }
                packet(&mut jitter_buffer, n * 10, n, n as u32, true);
            }
            let seen = counted(&frame_queue);
            // The lost frame counts as missing, and the frame after it as damaged.
            let lost = (seen.0, seen.1 + seen.2, 0);
            let expected = if counts.1 == 0 { counts } else { (58, 2, 0) };
            assert_eq!(lost, expected, "{again} ms");
            let ticks: Vec<i64> = taken(&frame_queue).into_iter().map(|f| f.0).collect();
            assert!(ticks.is_sorted(), "{ticks:?}");
        }
    }

    #[test]
    fn rows_of_older_frames_lie_in_a_file_and_come_back_as_they_were() {
        let filled = |frame_queue: FrameQueue| {
            let mut jitter_buffer =
                JitterBuffer::new(PayloadFormat::Mpeg4, [96].into_iter().collect(), frame_queue.clone());
            // The two frames of each pair are swapped, and one packet in a hundred is lost.
            for n in (0..1_000u64).filter(|n| n % 100 != 50) {
                let kind = if n.is_multiple_of(10) { I } else { P };
                packet_of(&mut jitter_buffer, kind, n * 40, n, n as u32 ^ 1, true);
            }
            frame_queue
        };
        let (stored, here) = (filled(FrameQueue::default().spooled()), filled(FrameQueue::default()));
        let latest = stored.locked().rows.len();
        assert!((1..=200).contains(&latest), "{latest} rows in memory");
        let rows = stored.rows().unwrap();
        assert_eq!(rows, here.rows().unwrap());
        assert!((900..=990).contains(&rows.len()), "{} rows", rows.len());
        assert!(rows.iter().any(|row| row.ticks < 0));
        for fate in [FrameFate::Ok, FrameFate::Lost, FrameFate::Undecodable] {
            assert!(rows.iter().any(|row| row.fate == fate), "{fate:?}");
        }
    }

    #[test]
    fn a_missing_reader_costs_bounded_memory() {
        let (mut jitter_buffer, frame_queue) = fresh();
        for n in 0..2_000 {
            packet(&mut jitter_buffer, n, n, n as u32, true);
        }
        assert_eq!(
            (taken(&frame_queue).len(), frame_queue.overrun()),
            (MAX_WAITING_FRAMES, 2_000 - MAX_WAITING_FRAMES as u64)
        );
        frame_queue.close();
        assert_eq!(frame_queue.take(Duration::ZERO), None);
    }
}
