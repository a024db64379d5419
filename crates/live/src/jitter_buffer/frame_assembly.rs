//! Reassembly of frames from packets in sequence: boundaries, presentation times, and fates.

use super::frame_queue::{FRAME_ARRIVAL_TIME, FrameQueue, ReceivedFrame};
use super::markers::{Markers, Proof};
use crate::Unused;
use steadycast_media::{DecodeChain, FrameFate};
use steadycast_session::{FrameKind, UnusedReason};
use steadycast_units::Time;
use steadycast_wire::ParseError;
use steadycast_wire::payload::{Depacketiser, PayloadFormat, PictureKind, picture_kind};
use steadycast_wire::rtp::RtpHeader;

/// A key frame expected within this time (100 ms, in ticks) is not requested.
const EXPECTED_SOON: i64 = 9_000;

/// The reference for the next frame's time. Timestamps of different runs are not comparable.
#[derive(Clone, Copy)]
struct PreviousFrame {
    timestamp: u32,
    ticks: i64,
    first: Time,
}

struct OpenFrame {
    timestamp: u32,
    /// The first packet's arrival.
    first: Time,
    /// The latest packet's arrival.
    last: Time,
    /// Whether packets of the frame may be missing.
    damaged: bool,
    /// Whether packets before the frame are missing.
    after_gap: bool,
    packets: u32,
    /// The latest packet's marker.
    marked: bool,
    /// Whether the frame starts a new run.
    anew: bool,
}

/// Maximum difference between timestamp step and arrival step at the start of a run, in ticks (1 s). With a larger
/// difference, the run does not continue the previous timestamps.
const MAX_RUN_STEP_ERROR: i64 = 90_000;
/// Maximum excess of a timestamp step over the arrival step within a run, in ticks (60 s).
const MAX_STEP_AHEAD: i64 = 60 * 90_000;
/// Maximum backward step of timestamps within a run, in ticks (10 s).
const MAX_STEP_BEHIND: i64 = 10 * 90_000;

/// Reassembles frames from packets in sequence, and queues them.
pub(super) struct FrameAssembler {
    frame_queue: FrameQueue,
    format: PayloadFormat,
    pub(super) unused: Unused,
    chain: DecodeChain,
    depacketiser: Depacketiser,
    /// Packets lost since the last frame.
    lost: u64,
    open: Option<OpenFrame>,
    before: Option<PreviousFrame>,
    /// The minimum distance between two frames, in ticks.
    period: Option<i64>,
    last_ticks: Option<i64>,
    /// For a gap before the next packet: how many packets are known to be missing.
    gap: Option<u64>,
    pub(super) markers: Markers,
    /// Whether the next packet starts a new run.
    anew: bool,
    /// `Some` if a key frame is needed; true before the first one.
    lacks: Option<bool>,
    /// Whether no key frame has been received yet.
    fresh: bool,
    /// Frames since the last key frame, and between the last two.
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

    /// Reports `lost` packets before the next packet; zero if the number is unknown.
    pub(super) fn lose(&mut self, lost: u64) {
        self.gap = Some(self.gap.unwrap_or(0) + lost);
    }

    /// Begins a run with the next packet, after a change of the SSRC or a restart. If the RTP sequence numbers continue
    /// (`in_sequence`) without a gap, the source is the same, and no run begins.
    pub(super) fn start_run(&mut self, in_sequence: bool) {
        self.anew = self.gap.is_some() || !in_sequence;
    }

    /// Returns `Some` if a key frame is needed: `Some(true)` before the first frame, `Some(false)` later.
    pub(super) fn lacks_key_frame(&self) -> Option<bool> {
        self.lacks
    }

    /// Returns a timestamp's presentation time; `None` before the first frame.
    pub(super) fn ticks_of(&self, timestamp: u32) -> Option<i64> {
        let PreviousFrame { timestamp: known, ticks, .. } = self.before?;
        Some(ticks + i64::from(timestamp.wrapping_sub(known) as i32))
    }

    /// Finishes the stream's last frame.
    pub(super) fn end(&mut self) {
        // If no packet was lost but the expected marker is missing, the sender stopped within the frame. This
        // incomplete frame is left out.
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
            // Another sender may use markers differently.
            self.markers = Markers::default();
        }
        // The gap is between two frames, so only the new one's start is affected.
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
        // A marker within a unit can't end the frame.
        let within = self.depacketiser.is_within_unit();
        open.marked = marker && !within;
        self.markers.wrong |= marker && within && !open.damaged;
        open.packets += 1;
        if open.marked && !self.markers.wrong && self.markers.end(self.kind(), self.is_damaged()) {
            self.finish_early();
        }
    }

    /// Finishes the open frame before a packet of another one.
    fn next_frame(&mut self, gap: bool, anew: bool) {
        self.frame_queue.set_one_stamp(false);
        let proof = self.proof();
        let Some(open) = &mut self.open else { return };
        let marked = open.marked && !self.markers.wrong;
        if marked && !gap && !anew {
            self.markers.prove(proof);
        } else if gap && !marked || anew && self.markers.needed(proof.0) && !marked {
            // Lost packets may belong to either frame, so both count as damaged.
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

    /// Returns the open frame's kind, if its packets show it so far.
    fn kind(&self) -> Option<PictureKind> {
        picture_kind(self.format, self.depacketiser.so_far())
    }

    fn is_damaged(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.damaged)
    }

    /// Returns the last packet's arrival, if it has the marker.
    pub(super) fn marked_at(&self) -> Option<Time> {
        let open = self.open.as_ref().filter(|open| open.marked && !self.markers.wrong)?;
        self.kind().is_some().then_some(open.last)
    }

    /// Returns a frame's presentation time in ticks from the first frame, by its timestamp or, if implausible, its
    /// arrival.
    fn ticks(&self, open: &OpenFrame) -> i64 {
        let Some(before) = self.before else { return 0 };
        let waited = (open.first.since(before.first).as_nanos() / 100_000 * 9) as i64;
        let step = i64::from(open.timestamp.wrapping_sub(before.timestamp) as i32);
        let (by_stamp, last) = (before.ticks + step, self.last_ticks.unwrap_or(before.ticks));
        // A new run continues the old timeline only if its step matches the arrivals.
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
            // Without a loss, a larger step means that the sender skipped frames, so no frame is missing.
            if open.damaged || frame.damaged {
                missing = u64::try_from(step / period - 1).unwrap_or(0).min(self.lost);
            }
        }
        self.lost = 0;
        // With B frames, timestamps do not increase in decoding order.
        self.last_ticks = Some(self.last_ticks.map_or(ticks, |last| last.max(ticks)));
        let damaged = open.damaged || frame.damaged;
        if !same {
            // A new run does not reference the previous one's frames.
            self.chain = DecodeChain::default();
        }
        let gap = open.after_gap || missing > 0;
        if gap {
            // The lost frames are assumed to be references.
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

    /// Updates whether a key frame is needed. After a `gap`, references may be missing.
    fn update_key_frame_need(&mut self, kind: FrameKind, fate: FrameFate, gap: bool) {
        let (since, before) = self.group;
        let since = since.map(|since| since + 1);
        self.group = if kind == FrameKind::I { (Some(0), since) } else { (since, before) };
        match (kind, fate) {
            (FrameKind::I, FrameFate::Ok) => (self.lacks, self.fresh) = (None, false),
            (FrameKind::B, _) | (_, FrameFate::Ok | FrameFate::Late) if !gap => {}
            _ => {
                // In a group longer than the previous one, the next key frame can't be predicted.
                let left = self.group.1.zip(self.group.0).and_then(|(whole, since)| whole.checked_sub(since));
                let left = left.filter(|left| *left > 0).map(i64::from);
                let soon = left.zip(self.period).is_some_and(|(left, period)| left * period <= EXPECTED_SOON);
                self.lacks = self.lacks.or((!soon).then_some(self.fresh));
            }
        }
    }
}
