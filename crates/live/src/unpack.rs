//! From payloads back to frames, for whoever reads them in another thread.

use crate::Consumer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_units::{Bytes, Span, Time};
use steadycast_wire::payload::{Depacketiser, PayloadFormat};
use steadycast_wire::rtp::RtpHeader;

/// A frame as it came out of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// When it is to be shown, in ticks of 1/90000 s from the first frame that came.
    pub ticks: i64,
    /// Its bytes, as far as they are of use.
    pub bytes: Vec<u8>,
    /// Something of it is missing.
    pub damaged: bool,
    /// When its first packet came.
    pub first: Time,
    /// When its last packet came.
    pub last: Time,
}

/// What became of the frames of a stream, as far as its packets tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames of which all came.
    pub whole: u64,
    /// Frames of which something is missing.
    pub damaged: u64,
    /// Frames of which nothing came, by the gaps in the time stamps.
    pub missing: u64,
}

/// What is known of a frame when its bytes have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// When it is to be shown, as [`ReceivedFrame::ticks`].
    pub ticks: i64,
    /// Its bytes.
    pub size: Bytes,
    /// Something of it is missing.
    pub damaged: bool,
    /// When its first and its last packet came.
    pub came: (Time, Time),
}

#[derive(Debug, Default)]
struct Shelf {
    frames: VecDeque<ReceivedFrame>,
    counts: FrameCounts,
    rows: Vec<FrameRow>,
    wanted: bool,
    closed: bool,
    /// Frames that the reader did not take in time.
    overrun: u64,
}

/// Frames that wait for their reader.
#[derive(Clone, Debug, Default)]
pub struct FrameShelf(Arc<(Mutex<Shelf>, Condvar)>);

/// As many frames wait for a slow reader; then the oldest go.
const WAITING: usize = 1_024;

impl FrameShelf {
    fn locked(&self) -> MutexGuard<'_, Shelf> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody reads them: without this only their sizes and times are kept.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// All that is there, or nothing after `patience`; `None` when there will be no more.
    pub fn take(&self, patience: Duration) -> Option<Vec<ReceivedFrame>> {
        let waits = |shelf: &mut Shelf| shelf.frames.is_empty() && !shelf.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, waits);
        let (mut shelf, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if shelf.frames.is_empty() && shelf.closed {
            return None;
        }
        Some(shelf.frames.drain(..).collect())
    }

    /// There will be no more.
    pub fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// What became of the frames so far.
    pub fn counts(&self) -> FrameCounts {
        self.locked().counts
    }

    /// Frames that the reader did not take in time.
    pub fn overrun(&self) -> u64 {
        self.locked().overrun
    }

    /// All frames so far, without their bytes.
    pub fn rows(&self) -> Vec<FrameRow> {
        self.locked().rows.clone()
    }

    fn put(&self, frame: ReceivedFrame, missing: u64) {
        let mut shelf = self.locked();
        shelf.counts.missing += missing;
        *(if frame.damaged { &mut shelf.counts.damaged } else { &mut shelf.counts.whole }) += 1;
        let size = Bytes::new(frame.bytes.len() as u64);
        let row = FrameRow { ticks: frame.ticks, size, damaged: frame.damaged, came: (frame.first, frame.last) };
        shelf.rows.push(row);
        if !shelf.wanted {
            return;
        }
        if shelf.frames.len() >= WAITING {
            shelf.frames.pop_front();
            shelf.overrun += 1;
        }
        shelf.frames.push_back(frame);
        drop(shelf);
        self.0.1.notify_all();
    }
}

/// How long a packet waits for one before it, at the most.
const REORDERED: Span = Span::millis(80);
/// How many wait, at the most.
const HELD: usize = 256;

/// Puts packets into order, and their payloads together.
pub struct Unpacker {
    shelf: FrameShelf,
    payload_type: u8,
    depacketiser: Depacketiser,
    held: BTreeMap<u64, (Time, RtpHeader, Vec<u8>)>,
    /// The extended sequence number that comes next.
    next: Option<u64>,
    /// The frame that is being put together.
    open: Option<Open>,
    ticks: Option<(u32, i64)>,
    /// Between two frames, the least that was seen.
    period: Option<i64>,
    last_ticks: Option<i64>,
    /// The frame before ended with its marker, and nothing is missing since.
    clean: bool,
}

struct Open {
    timestamp: u32,
    first: Time,
    last: Time,
    damaged: bool,
}

impl Unpacker {
    /// Of packets of this payload type and format.
    pub fn new(format: PayloadFormat, payload_type: u8, shelf: FrameShelf) -> Self {
        Self {
            shelf,
            payload_type,
            depacketiser: Depacketiser::new(format),
            held: BTreeMap::new(),
            next: None,
            open: None,
            ticks: None,
            period: None,
            last_ticks: None,
            clean: true,
        }
    }

    fn release(&mut self, now: Time) {
        while let Some((seq, (at, ..))) = self.held.first_key_value() {
            let (seq, at) = (*seq, *at);
            let due = self.next.is_none_or(|next| seq == next);
            if !due && self.held.len() <= HELD && now.since(at) <= REORDERED {
                return;
            }
            let Some((_, (at, header, payload))) = self.held.pop_first() else { return };
            if self.next.is_some_and(|next| seq > next) {
                self.gap();
            }
            self.next = Some(seq + 1);
            self.packet(at, &header, &payload);
        }
    }

    fn gap(&mut self) {
        self.depacketiser.gap();
        if let Some(open) = &mut self.open {
            open.damaged = true;
        }
        self.clean = false;
    }

    fn packet(&mut self, at: Time, header: &RtpHeader, payload: &[u8]) {
        if self.open.as_ref().is_some_and(|open| open.timestamp != header.timestamp) {
            // The marker was lost; and of which of the two frames more is missing nobody knows.
            self.finish();
            self.depacketiser.gap();
        }
        let clean = self.clean;
        let open = self.open.get_or_insert(Open { timestamp: header.timestamp, first: at, last: at, damaged: !clean });
        open.last = open.last.max(at);
        open.damaged |= self.depacketiser.push(payload).is_err();
        if header.marker {
            self.clean = true;
            self.finish();
        }
    }

    fn finish(&mut self) {
        let frame = self.depacketiser.finish();
        let Some(open) = self.open.take() else { return };
        let ticks = match self.ticks {
            Some((stamp, ticks)) => ticks + i64::from(open.timestamp.wrapping_sub(stamp) as i32),
            None => 0,
        };
        self.ticks = Some((open.timestamp, ticks));
        let step = self.last_ticks.map(|last| ticks - last).filter(|step| *step > 0);
        let mut missing = 0;
        if let Some(step) = step {
            let period = self.period.map_or(step, |p| p.min(step));
            self.period = Some(period);
            // A step over several frames after a loss; without one the sender has left them out.
            if open.damaged || frame.damaged {
                missing = (step / period - 1).clamp(0, 1_000) as u64;
            }
        }
        self.last_ticks = Some(self.last_ticks.map_or(ticks, |last| last.max(ticks)));
        let damaged = open.damaged || frame.damaged;
        let (first, last) = (open.first, open.last);
        self.shelf.put(ReceivedFrame { ticks, bytes: frame.bytes, damaged, first, last }, missing);
    }
}

impl Consumer for Unpacker {
    fn take(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        // One that comes after all is of no use any more.
        if header.payload_type != self.payload_type || self.next.is_some_and(|next| seq < next) {
            return;
        }
        self.held.insert(seq, (now, *header, payload.to_vec()));
        self.release(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(unpacker: &mut Unpacker, ms: u64, seq: u64, frame: u32, marker: bool) {
        let header = RtpHeader {
            payload_type: 96,
            marker,
            seq: seq as u16,
            timestamp: frame.wrapping_mul(3_600).wrapping_sub(5_000),
            ssrc: 1,
            send_time: None,
            payload_len: 2,
        };
        unpacker.take(Time::ZERO + Span::millis(ms), seq, &header, &[frame as u8, seq as u8]);
    }

    fn fresh() -> (Unpacker, FrameShelf) {
        let shelf = FrameShelf::default();
        shelf.want();
        (Unpacker::new(PayloadFormat::Mpeg4, 96, shelf.clone()), shelf)
    }

    fn taken(shelf: &FrameShelf) -> Vec<(i64, Vec<u8>, bool)> {
        let frames = shelf.take(Duration::ZERO).unwrap();
        frames.into_iter().map(|f| (f.ticks, f.bytes, f.damaged)).collect()
    }

    #[test]
    fn packets_that_overtook_each_other_make_whole_frames() {
        let (mut unpacker, shelf) = fresh();
        for (ms, seq, frame, marker) in [(0, 10, 0, false), (1, 12, 1, true), (2, 11, 0, true), (3, 13, 2, true)] {
            packet(&mut unpacker, ms, seq, frame, marker);
        }
        let expected = [(0, vec![0, 10, 0, 11], false), (3_600, vec![1, 12], false), (7_200, vec![2, 13], false)];
        assert_eq!(taken(&shelf), expected);
        assert_eq!(shelf.counts(), FrameCounts { whole: 3, damaged: 0, missing: 0 });
    }

    #[test]
    fn a_lost_packet_damages_its_frame_and_no_other() {
        let (mut unpacker, shelf) = fresh();
        packet(&mut unpacker, 0, 1, 0, true);
        packet(&mut unpacker, 40, 2, 1, false);
        packet(&mut unpacker, 41, 4, 1, true);
        packet(&mut unpacker, 80, 5, 2, true);
        assert_eq!(taken(&shelf).len(), 1, "the rest waits for number 3");
        packet(&mut unpacker, 160, 6, 3, true);
        let damaged: Vec<bool> = taken(&shelf).into_iter().map(|f| f.2).collect();
        assert_eq!(damaged, [true, false, false]);
    }

    #[test]
    fn frames_of_which_nothing_came_are_counted_by_their_time_stamps() {
        let (mut unpacker, shelf) = fresh();
        packet(&mut unpacker, 0, 1, 0, true);
        packet(&mut unpacker, 40, 2, 1, true);
        // Frames 2 and 3, one packet each, never come.
        packet(&mut unpacker, 160, 5, 4, true);
        packet(&mut unpacker, 300, 6, 5, true);
        assert_eq!(shelf.counts(), FrameCounts { whole: 3, damaged: 1, missing: 2 });
    }

    #[test]
    fn a_reader_that_never_comes_costs_no_memory_beyond_its_share() {
        let (mut unpacker, shelf) = fresh();
        for n in 0..2_000 {
            packet(&mut unpacker, n, n, n as u32, true);
        }
        assert_eq!((taken(&shelf).len(), shelf.overrun()), (WAITING, 2_000 - WAITING as u64));
        shelf.close();
        assert_eq!(shelf.take(Duration::ZERO), None);
    }
}
