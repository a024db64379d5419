//! A queue of received frames for a reader in another thread. It also counts and records the frames.

use crate::TempStore;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_endpoints::{Fields, Row, Rows, StoredRows};
use steadycast_media::FrameFate;
use steadycast_units::{Bytes, Span, Time};

/// A frame that was reassembled from its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// When the frame is to be shown, in ticks of 1/90000 s from the first frame that was received.
    pub ticks: i64,
    /// The bytes of the frame that can be used.
    pub bytes: Vec<u8>,
    /// Whether a part of the frame is missing.
    pub damaged: bool,
    /// Whether the frame and all frames that it depends on are complete.
    pub whole: bool,
    /// When the first packet arrived.
    pub first: Time,
    /// When the last packet arrived.
    pub last: Time,
}

/// Number of frames by fate, as far as the packets show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Complete frames that depend only on complete frames.
    pub whole: u64,
    /// Complete frames that depend on an incomplete or missing frame, or that have an unsupported packetisation.
    pub undecodable: u64,
    /// Frames that lack a part.
    pub damaged: u64,
    /// Frames of which no packet arrived. Gaps in the timestamps show them.
    pub missing: u64,
    /// When the last packet of the latest displayable frame arrived.
    pub shown: Option<Time>,
    /// Whether all packets have had the same timestamp for more than `FRAME_ARRIVAL_TIME`.
    pub one_stamp: bool,
}

/// Time in which all packets of a frame usually arrive.
pub(super) const FRAME_ARRIVAL_TIME: Span = Span::secs(2);

impl FrameCounts {
    /// Returns a warning if something is wrong with the frames.
    pub fn warning(&self) -> Option<String> {
        self.one_stamp.then(|| "all packets have one RTP time stamp, which makes one frame of them".into())
    }
}

/// The record of a frame. It does not contain the frame's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// When the frame is to be shown; see [`ReceivedFrame::ticks`].
    pub ticks: i64,
    /// Size of the frame in bytes.
    pub size: Bytes,
    /// Fate of the frame, as far as the packets show it. Whether it was late is unknown, because there is no play-out
    /// time.
    pub fate: FrameFate,
    /// When the first and the last packet arrived.
    pub came: (Time, Time),
}

impl Row for FrameRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        // `ticks` is signed, because a frame may be shown before the first frame that was received.
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
    /// Number of frames that were dropped because the reader is slow.
    overrun: u64,
}

/// A queue of received frames for their reader.
#[derive(Clone, Debug, Default)]
pub struct FrameQueue(Arc<(Mutex<FrameQueueState>, Condvar)>);

/// Maximum number of frames that wait for the reader. If there are more, the oldest frames are dropped.
const MAX_WAITING_FRAMES: usize = 1_024;

impl FrameQueue {
    fn locked(&self) -> MutexGuard<'_, FrameQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores older records in a temporary file, if possible.
    #[must_use]
    pub fn spooled(self) -> Self {
        let mut frame_queue = self.locked();
        TempStore::keep([&mut frame_queue.rows as &mut dyn StoredRows]);
        drop(frame_queue);
        self
    }

    /// Registers a reader. Until there is a reader, frames are not queued, and only their sizes and times are recorded.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// Waits up to `patience` for a frame. Returns the frames in the queue, or `None` after the last frame.
    pub fn take(&self, patience: Duration) -> Option<Vec<ReceivedFrame>> {
        let waits = |frame_queue: &mut FrameQueueState| frame_queue.frames.is_empty() && !frame_queue.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, waits);
        let (mut frame_queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if frame_queue.frames.is_empty() && frame_queue.closed {
            return None;
        }
        Some(frame_queue.frames.drain(..).collect())
    }

    /// Announces that no further frames follow.
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

    /// Returns how many frames were dropped because the reader is slow.
    pub fn overrun(&self) -> u64 {
        self.locked().overrun
    }

    /// Returns the records of all frames so far.
    ///
    /// # Errors
    /// The temporary file can't be read.
    pub fn rows(&self) -> io::Result<Vec<FrameRow>> {
        // Copy the rows, so that the lock is released before the file is read.
        let rows = self.locked().rows.clone();
        rows.whole()
    }

    #[cfg(test)]
    pub(super) fn rows_in_memory(&self) -> usize {
        self.locked().rows.len()
    }

    /// Counts, records and queues a frame. `missing` is how many frames before it are missing completely.
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
        // Release the lock, because the reader needs it when it is woken.
        drop(frame_queue);
        self.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame that is shown at `ms` and arrived within a millisecond from then on.
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
