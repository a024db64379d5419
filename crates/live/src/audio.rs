//! Audio between a session and the threads that encode and decode it.

use crate::Waker;
use crate::jitter_buffer::REORDER_WAIT;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_media::{AudioFeed, CodedAudio};
use steadycast_units::{Span, Time};

/// Half a second of audio.
const MAX_WAITING_PACKETS: usize = 25;

/// A packet's sampling time, whether it follows a silence, and its bytes.
type EncodedAudio = (Span, bool, Vec<u8>);

#[derive(Debug, Default)]
struct AudioQueueState {
    waiting: VecDeque<EncodedAudio>,
    /// Numbered packets that the session has taken, but not sent.
    taken: VecDeque<(u32, Vec<u8>)>,
    next: u32,
    /// The share of packets reported as lost.
    loss: f64,
    closed: bool,
    waker: Option<Waker>,
}

/// A queue of encoded audio from another thread's encoder to a session.
#[derive(Clone, Debug, Default)]
pub struct AudioQueue(Arc<(Mutex<AudioQueueState>, Condvar)>);

impl AudioQueue {
    fn locked(&self) -> MutexGuard<'_, AudioQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet, sampled `at` after the first picture; `begins` if it follows a silence. Waits up to `patience`.
    /// Returns whether there was room; `None` after the session's end.
    pub fn push(&self, at: Span, begins: bool, bytes: &[u8], patience: Duration) -> Option<bool> {
        let full = |queue: &mut AudioQueueState| queue.waiting.len() >= MAX_WAITING_PACKETS && !queue.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, full);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.closed {
            return None;
        }
        if queue.waiting.len() >= MAX_WAITING_PACKETS {
            return Some(false);
        }
        queue.waiting.push_back((at, begins, bytes.to_vec()));
        // Earlier waiting packets have woken the session already.
        if let Some(waker) = queue.waker.as_ref().filter(|_| queue.waiting.len() == 1) {
            waker.wake();
        }
        Some(true)
    }

    /// Returns the reported audio loss, for the encoder's in-band FEC.
    pub fn loss(&self) -> f64 {
        self.locked().loss
    }

    pub(crate) fn set_loss(&self, loss: f64) {
        self.locked().loss = loss;
    }

    /// Tells the encoder that the session has ended.
    pub(crate) fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// Sets the waker for ready packets.
    pub(crate) fn wake_by(&self, waker: Waker) {
        self.locked().waker = Some(waker);
    }

    /// Appends the payload of packet `index`, which is sent now.
    pub(crate) fn write(&self, index: u32, out: &mut Vec<u8>) {
        let mut queue = self.locked();
        // Packets are sent in order.
        while let Some((number, bytes)) = queue.taken.pop_front_if(|(number, _)| *number <= index) {
            if number == index {
                out.extend_from_slice(&bytes);
            }
        }
    }
}

impl AudioFeed for AudioQueue {
    fn due(&self) -> Span {
        self.locked().waiting.front().map_or(Span::MAX, |(at, ..)| *at)
    }

    fn next(&mut self) -> Option<CodedAudio> {
        let mut queue = self.locked();
        let (at, begins, bytes) = queue.waiting.pop_front()?;
        let (index, len) = (queue.next, u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        queue.next = queue.next.wrapping_add(1);
        queue.taken.push_back((index, bytes));
        // The encoder may wait for room.
        self.0.1.notify_all();
        Some(CodedAudio { index, at, len, begins })
    }
}

/// A received audio packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedAudio {
    /// The presentation time on the frames' clock, in ticks of 1/90000 s from the first received frame.
    pub ticks: i64,
    /// The number of packets missing directly before this one.
    pub missing: u64,
    /// The payload: an Opus packet.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct ReceivedState {
    packets: VecDeque<ReceivedAudio>,
    wanted: bool,
    /// Packets dropped for a slow reader or without alignment.
    overrun: u64,
}

/// The queue of received audio for its reader.
#[derive(Clone, Debug, Default)]
pub struct ReceivedAudioQueue(Arc<Mutex<ReceivedState>>);

/// Maximum number of packets that wait for a reader or for alignment: 10 s of audio.
const MAX_HELD_PACKETS: usize = 500;

impl ReceivedAudioQueue {
    fn locked(&self) -> MutexGuard<'_, ReceivedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. Without one, no packets are kept.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// Takes the queued packets.
    pub fn take(&self) -> Vec<ReceivedAudio> {
        self.locked().packets.drain(..).collect()
    }

    /// Packets dropped for a slow reader or without alignment.
    pub fn overrun(&self) -> u64 {
        self.locked().overrun
    }

    fn push(&self, packet: ReceivedAudio) {
        let mut state = self.locked();
        if !state.wanted {
            return;
        }
        state.packets.push_back(packet);
        if state.packets.len() > MAX_HELD_PACKETS {
            state.packets.pop_front();
            state.overrun += 1;
        }
    }
}

/// Orders audio packets, and converts their times to the frames' clock.
#[derive(Debug, Default)]
pub(crate) struct AudioIntake {
    pub(crate) payload_type: u8,
    queue: ReceivedAudioQueue,
    /// Packets that wait for earlier ones: arrival time, RTP timestamp and payload.
    held: BTreeMap<u64, (Time, u32, Vec<u8>)>,
    next: Option<u64>,
    /// Packets that wait for sender reports: RTP timestamp, packets missing before, and payload.
    unaligned: VecDeque<(u32, u64, Vec<u8>)>,
}

impl AudioIntake {
    pub(crate) fn new(payload_type: u8, queue: ReceivedAudioQueue) -> Self {
        Self { payload_type, queue, ..Self::default() }
    }

    /// Processes a packet with its extended sequence number.
    pub(crate) fn take(&mut self, now: Time, seq: u64, timestamp: u32, payload: &[u8]) {
        if self.next.is_none_or(|next| seq >= next) {
            self.held.insert(seq, (now, timestamp, payload.to_vec()));
        }
        self.release(|at| now.since(at) > REORDER_WAIT);
    }

    /// Passes on the packets that still wait for earlier ones.
    pub(crate) fn end(&mut self) {
        self.release(|_| true);
    }

    /// Passes on packets without missing predecessors, or with an `overdue` arrival time.
    fn release(&mut self, overdue: impl Fn(Time) -> bool) {
        while let Some((seq, (at, ..))) = self.held.first_key_value() {
            let (seq, due) = (*seq, self.next.is_none_or(|next| next == *seq));
            if !due && !overdue(*at) {
                return;
            }
            let Some((_, (_, timestamp, payload))) = self.held.pop_first() else { return };
            let missing = self.next.map_or(0, |next| seq - next);
            self.next = Some(seq + 1);
            self.unaligned.push_back((timestamp, missing, payload));
            // A sender may never send the reports for the alignment.
            if self.unaligned.len() > MAX_HELD_PACKETS {
                self.unaligned.pop_front();
                self.queue.locked().overrun += 1;
            }
        }
    }

    /// Passes packets on whose time `ticks_of` knows.
    pub(crate) fn align(&mut self, ticks_of: impl Fn(u32) -> Option<i64>) {
        while let Some(ticks) = self.unaligned.front().and_then(|(timestamp, ..)| ticks_of(*timestamp)) {
            let Some((_, missing, bytes)) = self.unaligned.pop_front() else { return };
            self.queue.push(ReceivedAudio { ticks, missing, bytes });
        }
    }

    pub(crate) fn restart(&mut self) {
        // The held packets end before the sequence numbers start again.
        self.end();
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn packets_come_in_order_and_wait_for_a_missing_one_no_longer_than_for_reordered_ones() {
        let queue = ReceivedAudioQueue::default();
        queue.want();
        let mut intake = AudioIntake::new(111, queue.clone());
        for (ms, seq) in [(0, 10u64), (20, 12), (25, 11), (60, 14), (80, 15), (140, 16), (160, 17)] {
            intake.take(at(ms), seq, seq as u32 * 960, &[seq as u8]);
        }
        assert!(queue.take().is_empty(), "no sender report has come");
        intake.align(|timestamp| Some(i64::from(timestamp) * 90 / 48));
        let came: Vec<_> = queue.take().into_iter().map(|packet| (packet.ticks / 1_800, packet.missing)).collect();
        assert_eq!(came, [(10, 0), (11, 0), (12, 0), (14, 1), (15, 0), (16, 0), (17, 0)]);
    }

    #[test]
    fn an_encoder_waits_for_room_and_learns_that_the_session_has_ended() {
        let mut queue = AudioQueue::default();
        let push = |queue: &AudioQueue, n: u64| queue.push(Span::millis(20 * n), n == 0, &[n as u8], Duration::ZERO);
        assert!((0..25).all(|n| push(&queue, n) == Some(true)));
        assert_eq!(push(&queue, 25), Some(false));
        let first = queue.next().unwrap();
        assert_eq!((first.at, first.len, first.begins), (Span::ZERO, 1, true));
        assert_eq!((push(&queue, 25), queue.due()), (Some(true), Span::millis(20)));
        let mut out = Vec::new();
        queue.write(first.index, &mut out);
        assert_eq!(out, [0]);
        queue.close();
        assert_eq!(push(&queue, 26), None);
    }
}
