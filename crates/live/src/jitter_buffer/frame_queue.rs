//! The queue of received frames, from which a reader in another thread takes them. The queue also counts and records
//! the frames.

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
    /// Presentation time in ticks of 1/90000 s from the first received frame.
    pub ticks: i64,
    /// The usable bytes of the frame.
    pub bytes: Vec<u8>,
    /// Whether a part of the frame is missing.
    pub damaged: bool,
    /// Whether the frame is complete, and all frames on which it depends are complete.
    pub whole: bool,
    /// Arrival time of the first packet.
    pub first: Time,
    /// Arrival time of the last packet.
    pub last: Time,
}

/// How many frames had each fate, as far as the packets show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames that are complete, and for which all frames on which they depend are complete, too.
    pub whole: u64,
    /// Frames that are complete but not decodable: a reference is missing, or the packetisation is not supported.
    pub undecodable: u64,
    /// Frames of which a part is missing.
    pub damaged: u64,
    /// Frames of which no packet arrived, by the gaps of the timestamps.
    pub missing: u64,
    /// Arrival time of the last packet of the latest frame that can be shown.
    pub shown: Option<Time>,
    /// Whether all packets of more than `FRAME_ARRIVAL_TIME` have the same timestamp.
    pub one_stamp: bool,
}

/// Time within which the packets of a frame usually arrive.
pub(super) const FRAME_ARRIVAL_TIME: Span = Span::secs(2);

impl FrameCounts {
    /// Returns a warning about the frames, if there is one.
    pub fn warning(&self) -> Option<String> {
        self.one_stamp.then(|| "all packets have one RTP time stamp, which makes one frame of them".into())
    }
}

/// The record of a frame, which is kept when its bytes are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// Presentation time, as [`ReceivedFrame::ticks`].
    pub ticks: i64,
    /// The frame's size in bytes.
    pub size: Bytes,
    /// The frame's fate, as far as the packets show it. Whether it is late is unknown, because the play-out time is
    /// unknown.
    pub fate: FrameFate,
    /// Arrival times of the first and the last packet.
    pub came: (Time, Time),
}

impl Row for FrameRow {
    fn pass(&mut self, by: &mut Fields<'_>) {
        // The time is negative for a frame that is displayed before the first received one.
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

    /// Registers a reader. Without a reader, only sizes and times of frames are kept.
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

    /// Sets whether all packets so far have the same timestamp.
    pub(super) fn set_one_stamp(&self, one_stamp: bool) {
        self.locked().counts.one_stamp = one_stamp;
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
        // The copy releases the lock before the file is read.
        let rows = self.locked().rows.clone();
        rows.whole()
    }

    #[cfg(test)]
    pub(super) fn rows_in_memory(&self) -> usize {
        self.locked().rows.len()
    }

    /// Counts a frame, records it and, if there is a reader, adds it to the queue. `missing` is the number of frames
    /// before this one of which no packet arrived.
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
        // The reader that is woken needs the lock, so it is released first.
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
