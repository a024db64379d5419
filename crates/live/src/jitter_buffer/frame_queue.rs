//! Received frames for a reader in another thread, with counts and records.

use crate::TempStore;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_endpoints::{Fields, Row, Rows, StoredRows};
use steadycast_media::FrameFate;
use steadycast_units::{Bytes, Span, Time};

/// A reassembled frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Presentation time in ticks of 1/90000 s from the first received frame.
    pub ticks: i64,
    /// The usable bytes of the frame.
    pub bytes: Vec<u8>,
    /// Whether a part of the frame is missing.
    pub damaged: bool,
    /// Whether the frame and all frames on which it depends are complete.
    pub whole: bool,
    /// The first packet's arrival.
    pub first: Time,
    /// The last packet's arrival.
    pub last: Time,
}

/// Frames by fate, as far as packets show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Complete frames whose references are complete, too.
    pub whole: u64,
    /// Complete frames with a missing reference or an unsupported packetisation.
    pub undecodable: u64,
    /// Frames with a missing part.
    pub damaged: u64,
    /// Frames without any packet, by the gaps of the timestamps.
    pub missing: u64,
    /// Arrival of the latest displayable frame's last packet.
    pub shown: Option<Time>,
    /// Whether all packets have had one timestamp for more than `FRAME_ARRIVAL_TIME`.
    pub one_stamp: bool,
}

/// Time in which a frame's packets usually arrive.
pub(super) const FRAME_ARRIVAL_TIME: Span = Span::secs(2);

impl FrameCounts {
    /// Returns a warning about the frames, if any.
    pub fn warning(&self) -> Option<String> {
        self.one_stamp.then(|| "all packets have one RTP time stamp, which makes one frame of them".into())
    }
}

/// A frame's record, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// See [`ReceivedFrame::ticks`].
    pub ticks: i64,
    /// In bytes.
    pub size: Bytes,
    /// The fate as far as packets show it. Lateness is unknown without a play-out time.
    pub fate: FrameFate,
    /// The arrivals of the first and the last packet.
    pub came: (Time, Time),
}

impl Row for FrameRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        // Negative for a frame displayed before the first received one.
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
    /// Frames dropped for a slow reader.
    overrun: u64,
}

/// The queue of received frames for their reader.
#[derive(Clone, Debug, Default)]
pub struct FrameQueue(Arc<(Mutex<FrameQueueState>, Condvar)>);

/// Maximum number of frames for a slow reader; the oldest are dropped.
const MAX_WAITING_FRAMES: usize = 1_024;

impl FrameQueue {
    fn locked(&self) -> MutexGuard<'_, FrameQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves older records to a temporary file, if possible.
    #[must_use]
    pub fn spooled(self) -> Self {
        let mut frame_queue = self.locked();
        TempStore::keep([&mut frame_queue.rows as &mut dyn StoredRows]);
        drop(frame_queue);
        self
    }

    /// Registers a reader. Without one, only sizes and times are kept.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// Takes the queued frames. Waits up to `patience` for one. `None` after the end.
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

    pub(super) fn set_one_stamp(&self, one_stamp: bool) {
        self.locked().counts.one_stamp = one_stamp;
    }

    /// Returns the counts of frames by fate.
    pub fn counts(&self) -> FrameCounts {
        self.locked().counts
    }

    /// Returns the number of frames dropped for a slow reader.
    pub fn overrun(&self) -> u64 {
        self.locked().overrun
    }

    /// Returns the records of all frames so far.
    ///
    /// # Errors
    /// The temporary file can't be read.
    pub fn rows(&self) -> io::Result<Vec<FrameRow>> {
        // The lock is released before the file is read.
        let rows = self.locked().rows.clone();
        rows.whole()
    }

    #[cfg(test)]
    pub(super) fn rows_in_memory(&self) -> usize {
        self.locked().rows.len()
    }

    /// Counts, records and queues a frame. `missing` frames before it had no packet.
    pub(super) fn put(&self, frame: ReceivedFrame, fate: FrameFate, missing: u64) {
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
        // The woken reader needs the lock.
        drop(frame_queue);
        self.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame at `ms` that arrived within a millisecond.
    fn frame(ms: u64) -> ReceivedFrame {
        let first = Time::ZERO + Span::millis(ms);
        let (ticks, last) = (ms as i64 * 90, first + Span::millis(1));
        ReceivedFrame { ticks, bytes: vec![0; ms as usize % 50], damaged: false, whole: true, first, last }
    }

    #[test]
    fn a_missing_reader_costs_bounded_memory() {
        let frame_queue = FrameQueue::default();
        frame_queue.put(frame(0), FrameFate::Ok, 0);
        assert_eq!(frame_queue.take(Duration::ZERO), Some(Vec::new()), "no reader has been announced");
        frame_queue.want();
        for n in 0..2_000 {
            frame_queue.put(frame(n), FrameFate::Ok, 0);
        }
        let taken = frame_queue.take(Duration::ZERO).unwrap();
        assert_eq!((taken.len(), frame_queue.overrun()), (MAX_WAITING_FRAMES, 2_000 - MAX_WAITING_FRAMES as u64));
        assert_eq!(taken.last(), Some(&frame(1_999)), "the oldest frames are dropped");
        frame_queue.close();
        assert_eq!(frame_queue.take(Duration::ZERO), None);
    }

    #[test]
    fn frames_are_counted_by_their_fate() {
        let frame_queue = FrameQueue::default();
        let fates = [FrameFate::Ok, FrameFate::Lost, FrameFate::Undecodable, FrameFate::Ok, FrameFate::Lost];
        for (n, fate) in (0..).zip(fates) {
            frame_queue.put(frame(n), fate, n);
        }
        let counts = frame_queue.counts();
        assert_eq!((counts.whole, counts.damaged, counts.undecodable, counts.missing), (2, 2, 1, 10));
        assert_eq!(counts.shown, Some(frame(3).last));
    }
}
