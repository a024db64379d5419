//! Reassembles frames from packets in sequence. Finds where frames begin and end, when they are shown, and what
//! happened to them.

use super::frame_queue::{FRAME_ARRIVAL_TIME, FrameQueue, ReceivedFrame};
use super::markers::{Markers, Proof};
use crate::Unused;
use steadycast_media::{DecodeChain, FrameFate};
use steadycast_session::{FrameKind, UnusedReason};
use steadycast_units::Time;
use steadycast_wire::ParseError;
use steadycast_wire::payload::{Depacketiser, PayloadFormat, PictureKind, picture_kind};
use steadycast_wire::rtp::RtpHeader;

/// A key frame is not requested if one is expected within this time, in ticks of 1/90000 s. It is 100 ms.
const EXPECTED_SOON: i64 = 9_000;

/// The previous frame, from which the presentation time of the next frame is computed.
#[derive(Clone, Copy)]
struct PreviousFrame {
    timestamp: u32,
    ticks: i64,
    first: Time,
}

struct OpenFrame {
    timestamp: u32,
    /// When the first packet arrived.
    first: Time,
    /// When the latest packet arrived.
    last: Time,
    /// Whether packets of the frame may be missing.
    damaged: bool,
    /// Whether packets before the frame are missing.
    after_gap: bool,
    packets: u32,
    /// Whether the latest packet has the marker.
    marked: bool,
    /// Whether the frame starts a new run, after a change of the SSRC or a restart.
    anew: bool,
}

/// Maximum difference between the timestamp step and the arrival step at the start of a run, in ticks. It is 1 s. A
/// step is from one frame to the next. If the difference is larger, the run does not continue the previous timestamps.
const MAX_RUN_STEP_ERROR: i64 = 90_000;
/// Maximum excess of the timestamp step over the arrival step within a run, in ticks. It is 60 s. A step is from one
/// frame to the next.
const MAX_STEP_AHEAD: i64 = 60 * 90_000;
/// Maximum step back of the timestamps from one frame to the next within a run, in ticks. It is 10 s.
const MAX_STEP_BEHIND: i64 = 10 * 90_000;

/// Reassembles frames from packets in sequence, and adds them to a queue.
pub(super) struct FrameAssembler {
    frame_queue: FrameQueue,
    format: PayloadFormat,
    pub(super) unused: Unused,
    chain: DecodeChain,
    depacketiser: Depacketiser,
    /// Number of packets that were lost since the last frame.
    lost: u64,
    open: Option<OpenFrame>,
    before: Option<PreviousFrame>,
    /// The smallest distance between two frames so far, in ticks.
    period: Option<i64>,
    last_ticks: Option<i64>,
    /// Set if there is a gap before the next packet. The value is how many packets are known to be missing.
    gap: Option<u64>,
    pub(super) markers: Markers,
    /// Whether the next packet starts a new run, after a change of the SSRC or a restart.
    anew: bool,
    /// `Some` if a key frame is needed. The value is true if no key frame has been received before.
    lacks: Option<bool>,
    /// Whether no key frame has been received yet.
    fresh: bool,
    /// Number of frames since the last key frame, and number of frames between the last two key frames.
    group: (Option<u32>, Option<u32>),
}

impl FrameAssembler {
    pub(super) fn new(format: PayloadFormat, frame_queue: FrameQueue) -> Self {
        Self {
            frame_queue,
            format,
            unused: Unused::default(),
            chain: DecodeChain::default(),
            depacketiser: Depacketiser::new(format),
            lost: 0,
            open: None,
            before: None,
            period: None,
            last_ticks: None,
            gap: None,
            markers: Markers::default(),
            anew: false,
            lacks: None,
            fresh: true,
            group: (None, None),
        }
    }

    /// Registers a gap before the next packet. `lost` is how many packets are missing, or zero if the number is
    /// unknown.
    pub(super) fn lose(&mut self, lost: u64) {
        self.gap = Some(self.gap.unwrap_or(0) + lost);
    }

    /// Starts a run with the next packet, after a change of the SSRC or a restart. If the RTP sequence numbers continue
    /// without a gap (`in_sequence`), the source is still the same. No run is started then.
    pub(super) fn start_run(&mut self, in_sequence: bool) {
        self.anew = self.gap.is_some() || !in_sequence;
    }

    /// Returns `Some` if a key frame is needed. The value is true before the first key frame, and false later.
    pub(super) fn lacks_key_frame(&self) -> Option<bool> {
        self.lacks
    }

    /// Returns the presentation time of an RTP timestamp in ticks. Returns `None` before the first frame.
    pub(super) fn ticks_of(&self, timestamp: u32) -> Option<i64> {
        let PreviousFrame { timestamp: known, ticks, .. } = self.before?;
        Some(ticks + i64::from(timestamp.wrapping_sub(known) as i32))
    }

    /// Finishes the last frame of the stream.
    pub(super) fn end(&mut self) {
        // Leave the frame out if the sender stopped within it. The frame then has no marker although frames of this
        // kind end with a marker, and no packet was lost.
        let ended = |open: &OpenFrame| open.damaged || open.marked || !self.markers.needed(self.kind());
        if self.open.as_ref().is_some_and(ended) {
            self.finish();
        }
    }

    pub(super) fn packet(&mut self, at: Time, header: &RtpHeader, payload: &[u8]) {
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
            // Forget how markers were used, because another sender may use them differently.
            self.markers = Markers::default();
        }
        // Register the gap here only if no frame is open. It is then between two frames, and affects only the start of
        // the new frame.
        if self.open.is_none() && gap {
            self.depacketiser.gap();
        }
        let fresh =
            OpenFrame { timestamp, first: at, last: at, damaged: gap, after_gap: gap, packets: 0, marked: false, anew };
        let open = self.open.get_or_insert(fresh);
        open.last = open.last.max(at);
        if self.before.is_none() && open.last.since(open.first) > FRAME_ARRIVAL_TIME {
            self.frame_queue.set_one_stamp(true);
        }
        match self.depacketiser.push(payload) {
            Ok(()) if self.depacketiser.is_orphaned() => self.unused.add(UnusedReason::AfterLoss),
            Ok(()) => {}
            // Do not count an unsupported packet as lost or damaged.
            Err(ParseError::Unsupported { what }) => {
                self.unused.add_payload(UnusedReason::UnsupportedPacketisation, what);
            }
            Err(ParseError::OtherLayer { what }) => self.unused.add_payload(UnusedReason::UnsupportedLayer, what),
            Err(error) => {
                open.damaged = true;
                self.unused.add_payload(UnusedReason::MalformedPayload, error.what());
            }
        }
        // A marker within a unit can't be the end of the frame.
        let within = self.depacketiser.is_within_unit();
        open.marked = marker && !within;
        self.markers.wrong |= marker && within && !open.damaged;
        open.packets += 1;
        if open.marked && !self.markers.wrong && self.markers.end(self.kind(), self.is_damaged()) {
            self.finish_early();
        }
    }

    /// Finishes the open frame, because the next packet belongs to another frame.
    fn next_frame(&mut self, gap: bool, anew: bool) {
        self.frame_queue.set_one_stamp(false);
        let proof = self.proof();
        let Some(open) = &mut self.open else { return };
        let marked = open.marked && !self.markers.wrong;
        if marked && !gap && !anew {
            self.markers.prove(proof);
        } else if gap && !marked || anew && self.markers.needed(proof.0) && !marked {
            // Count the open frame as damaged, because its last packets may be lost. After a gap, the next frame counts
            // as damaged as well.
            self.depacketiser.gap();
            open.damaged = true;
        }
        self.finish();
    }

    /// Finishes the open frame at its marker.
    pub(super) fn finish_early(&mut self) {
        let proof = self.proof();
        self.markers.early = self.open.as_ref().map(|open| (open.timestamp, proof));
        self.finish();
    }

    fn proof(&self) -> Proof {
        (self.kind(), self.open.as_ref().is_some_and(|open| open.packets > 1 && !open.damaged))
    }

    /// Returns the kind of the open frame if its packets show it already.
    fn kind(&self) -> Option<PictureKind> {
        picture_kind(self.format, self.depacketiser.so_far())
    }

    fn is_damaged(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.damaged)
    }

    /// Returns when the last packet arrived, if it has the marker.
    pub(super) fn marked_at(&self) -> Option<Time> {
        let open = self.open.as_ref().filter(|open| open.marked && !self.markers.wrong)?;
        self.kind().is_some().then_some(open.last)
    }

    /// Returns when a frame is shown, in ticks from the first frame. The time follows from the RTP timestamp, or from
    /// the arrival if the timestamp is implausible.
    fn ticks(&self, open: &OpenFrame) -> i64 {
        let Some(before) = self.before else { return 0 };
        let waited = (open.first.since(before.first).as_nanos() / 100_000 * 9) as i64;
        let step = i64::from(open.timestamp.wrapping_sub(before.timestamp) as i32);
        let (by_stamp, last) = (before.ticks + step, self.last_ticks.unwrap_or(before.ticks));
        // After a change of the SSRC or a restart (`anew`), the timestamps may start again. Continue them only if the
        // step to this frame matches the step of the arrivals.
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
            // If nothing was lost, a larger step means that the sender has skipped frames. No frame is missing then.
            if open.damaged || frame.damaged {
                missing = u64::try_from(step / period - 1).unwrap_or(0).min(self.lost);
            }
        }
        self.lost = 0;
        // Keep the highest time, because timestamps of B frames do not increase in decoding order.
        self.last_ticks = Some(self.last_ticks.map_or(ticks, |last| last.max(ticks)));
        let damaged = open.damaged || frame.damaged;
        if !same {
            // Forget earlier frames after a change of the SSRC or a restart, because later frames do not refer to them.
            self.chain = DecodeChain::default();
        }
        let gap = open.after_gap || missing > 0;
        if gap {
            // Assume that other frames refer to the lost frames.
            self.chain.next(FrameKind::P, false);
        }
        let kind = match picture_kind(self.format, &frame.bytes) {
            Some(PictureKind::Intra) => FrameKind::I,
            Some(PictureKind::Disposable) => FrameKind::B,
            Some(PictureKind::Predicted) | None => FrameKind::P,
        };
        // A frame that has no bytes although nothing was lost consists of unsupported packets.
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

    /// Updates whether a key frame is needed. `gap` says whether frames are missing that this frame may refer to.
    fn update_key_frame_need(&mut self, kind: FrameKind, fate: FrameFate, gap: bool) {
        let (since, before) = self.group;
        let since = since.map(|since| since + 1);
        self.group = if kind == FrameKind::I { (Some(0), since) } else { (since, before) };
        match (kind, fate) {
            (FrameKind::I, FrameFate::Ok) => (self.lacks, self.fresh) = (None, false),
            (FrameKind::B, _) | (_, FrameFate::Ok | FrameFate::Late) if !gap => {}
            _ => {
                // If the group is longer than the previous one, it can't be predicted when the next key frame comes.
                let left = self.group.1.zip(self.group.0).and_then(|(whole, since)| whole.checked_sub(since));
                let left = left.filter(|left| *left > 0).map(i64::from);
                let soon = left.zip(self.period).is_some_and(|(left, period)| left * period <= EXPECTED_SOON);
                self.lacks = self.lacks.or((!soon).then_some(self.fresh));
            }
        }
    }
}
