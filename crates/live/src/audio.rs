//! Audio between a session and the threads that encode or decode it.

use crate::Waker;
use crate::jitter_buffer::REORDER_WAIT;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steadycast_media::{AudioFeed, CodedAudio};
use steadycast_session::AUDIO_CLOCK_RATE;
use steadycast_units::{Span, Time};

/// Maximum number of packets that wait for the session. It corresponds to half a second of audio.
const MAX_WAITING_PACKETS: usize = 25;

/// An encoded audio packet of the source.
#[derive(Debug)]
struct EncodedAudio {
    /// When the packet is to be sent.
    due: Span,
    /// When the packet's audio was sampled.
    at: Span,
    /// Whether the packet is the first one after a silence.
    begins: bool,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct AudioQueueState {
    waiting: VecDeque<EncodedAudio>,
    /// Packets that the session has taken but not sent yet, each with its number.
    taken: VecDeque<(u32, Vec<u8>)>,
    next: u32,
    /// Share of audio packets that receivers report as lost, from 0 to 1.
    loss: f64,
    closed: bool,
    waker: Option<Waker>,
}

/// A queue that carries encoded audio from the encoder's thread to the session's thread.
#[derive(Clone, Debug, Default)]
pub struct AudioQueue(Arc<(Mutex<AudioQueueState>, Condvar)>);

impl AudioQueue {
    fn locked(&self) -> MutexGuard<'_, AudioQueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet. Waits up to `patience` for room in the queue. Returns whether there was room, or `None` if the
    /// session has ended.
    ///
    /// `at` is the time at which the audio was sampled, counted from the first picture. `begins` is true if the packet
    /// is the first one after a silence.
    pub fn push(&self, at: Span, begins: bool, bytes: &[u8], patience: Duration) -> Option<bool> {
        self.push_due(at, at, begins, bytes, patience)
    }

    /// Adds a packet like [`AudioQueue::push`]. The packet is to be sent at `due`, which may differ from its sampling
    /// time `at`.
    pub(crate) fn push_due(&self, due: Span, at: Span, begins: bool, bytes: &[u8], patience: Duration) -> Option<bool> {
        let full = |queue: &mut AudioQueueState| queue.waiting.len() >= MAX_WAITING_PACKETS && !queue.closed;
        let waited = self.0.1.wait_timeout_while(self.locked(), patience, full);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.closed {
            return None;
        }
        if queue.waiting.len() >= MAX_WAITING_PACKETS {
            return Some(false);
        }
        queue.waiting.push_back(EncodedAudio { due, at, begins, bytes: bytes.to_vec() });
        // Wake the session only for the first waiting packet, because earlier packets have woken it already.
        if let Some(waker) = queue.waker.as_ref().filter(|_| queue.waiting.len() == 1) {
            waker.wake();
        }
        Some(true)
    }

    /// Returns the share of audio packets that receivers report as lost. The encoder needs it for in-band FEC.
    pub fn loss(&self) -> f64 {
        self.locked().loss
    }

    pub(crate) fn set_loss(&self, loss: f64) {
        self.locked().loss = loss;
    }

    /// Informs the encoder that the session has ended.
    pub(crate) fn close(&self) {
        self.locked().closed = true;
        self.0.1.notify_all();
    }

    /// Sets the waker that is called when packets are ready.
    pub(crate) fn wake_by(&self, waker: Waker) {
        self.locked().waker = Some(waker);
    }

    /// Appends the payload of packet `index` to `out`. This packet is sent now.
    pub(crate) fn write(&self, index: u32, out: &mut Vec<u8>) {
        let mut queue = self.locked();
        // Remove the packets before `index` as well, because packets are sent in order.
        while let Some((number, bytes)) = queue.taken.pop_front_if(|(number, _)| *number <= index) {
            if number == index {
                out.extend_from_slice(&bytes);
            }
        }
    }
}

impl AudioFeed for AudioQueue {
    fn due(&self) -> Span {
        self.locked().waiting.front().map_or(Span::MAX, |packet| packet.due)
    }

    fn next(&mut self) -> Option<CodedAudio> {
        let mut queue = self.locked();
        let EncodedAudio { at, begins, bytes, .. } = queue.waiting.pop_front()?;
        let (index, len) = (queue.next, u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        queue.next = queue.next.wrapping_add(1);
        queue.taken.push_back((index, bytes));
        // Wake the encoder, which may wait for room.
        self.0.1.notify_all();
        Some(CodedAudio { index, at, len, begins })
    }
}

/// An audio packet that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedAudio {
    /// When the audio is to be played, in ticks of 1/90000 s on the clock of the frames. Time zero is the first frame
    /// that was received.
    pub ticks: i64,
    /// Number of packets that are missing directly before this packet.
    pub missing: u64,
    /// The payload, which is an Opus packet.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct ReceivedState {
    packets: VecDeque<ReceivedAudio>,
    wanted: bool,
}

/// A queue of received audio packets for their reader.
#[derive(Clone, Debug, Default)]
pub struct ReceivedAudioQueue(Arc<Mutex<ReceivedState>>);

/// Maximum number of packets that wait for a reader or for sender reports. It corresponds to 10 s of audio.
const MAX_HELD_PACKETS: usize = 500;

impl ReceivedAudioQueue {
    fn locked(&self) -> MutexGuard<'_, ReceivedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. No packets are stored until a reader is registered.
    pub fn want(&self) {
        self.locked().wanted = true;
    }

    /// Removes all packets from the queue and returns them.
    pub fn take(&self) -> Vec<ReceivedAudio> {
        self.locked().packets.drain(..).collect()
    }

    fn push(&self, packet: ReceivedAudio) {
        let mut state = self.locked();
        if !state.wanted {
            return;
        }
        state.packets.push_back(packet);
        if state.packets.len() > MAX_HELD_PACKETS {
            state.packets.pop_front();
        }
    }
}

/// Maximum difference between the time of a packet and the time that follows from sender reports, in ticks of 1/90000
/// s. It is 10 ms. Differences up to this limit are ignored. The reports of a browser deviate by a few milliseconds. If
/// packets followed each deviation, a player would make audible corrections.
const MAX_DEVIATION: u64 = 900;

/// Puts audio packets into order, and converts their times to the clock of the frames.
#[derive(Debug, Default)]
pub(crate) struct AudioIntake {
    pub(crate) payload_type: u8,
    queue: ReceivedAudioQueue,
    /// Packets that wait for earlier packets, by sequence number. Each has its arrival time, RTP timestamp and payload.
    held: BTreeMap<u64, (Time, u32, Vec<u8>)>,
    next: Option<u64>,
    /// Packets that wait for sender reports. Each has its RTP timestamp, the number of packets missing before it, and
    /// its payload.
    unaligned: VecDeque<(u32, u64, Vec<u8>)>,
    /// RTP timestamp of the last packet that was aligned, and its time on the clock of the frames.
    last: Option<(u32, i64)>,
    pub(crate) counts: AudioCounts,
}

/// Counts of received audio packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AudioCounts {
    /// When the first packet arrived.
    pub(crate) first: Option<Time>,
    pub(crate) received: u64,
    /// Number of packets missing between received packets.
    pub(crate) lost: u64,
    /// Number of packets whose time on the clock of the frames is known.
    pub(crate) aligned: u64,
}

impl AudioIntake {
    pub(crate) fn new(payload_type: u8, queue: ReceivedAudioQueue) -> Self {
        Self { payload_type, queue, ..Self::default() }
    }

    /// Processes a packet. `seq` is its extended sequence number.
    pub(crate) fn take(&mut self, now: Time, seq: u64, timestamp: u32, payload: &[u8]) {
        self.counts.first.get_or_insert(now);
        self.counts.received += 1;
        if self.next.is_none_or(|next| seq >= next) {
            self.held.insert(seq, (now, timestamp, payload.to_vec()));
        }
        self.release(|at| now.since(at) > REORDER_WAIT);
    }

    /// Releases the packets that still wait for earlier packets.
    pub(crate) fn end(&mut self) {
        self.release(|_| true);
    }

    /// Releases packets in order. A packet is released if no packet before it is missing, or if `overdue` returns true
    /// for its arrival time.
    fn release(&mut self, overdue: impl Fn(Time) -> bool) {
        while let Some((seq, (at, ..))) = self.held.first_key_value() {
            let (seq, due) = (*seq, self.next.is_none_or(|next| next == *seq));
            if !due && !overdue(*at) {
                return;
            }
            let Some((_, (_, timestamp, payload))) = self.held.pop_first() else { return };
            let missing = self.next.map_or(0, |next| seq - next);
            self.next = Some(seq + 1);
            self.counts.lost += missing;
            self.unaligned.push_back((timestamp, missing, payload));
            // Limit the number of packets, because a sender may never send the reports that they wait for.
            if self.unaligned.len() > MAX_HELD_PACKETS {
                self.unaligned.pop_front();
            }
        }
    }

    /// Moves packets to `queue` as long as `ticks_of` can convert their RTP timestamps.
    pub(crate) fn align(&mut self, ticks_of: impl Fn(u32) -> Option<i64>) {
        while let Some(reported) = self.unaligned.front().and_then(|(timestamp, ..)| ticks_of(*timestamp)) {
            let Some((timestamp, missing, bytes)) = self.unaligned.pop_front() else { return };
            let continued = self.last.map(|(last, ticks)| {
                let since = i64::from(timestamp.wrapping_sub(last) as i32);
                ticks + since * 90_000 / i64::from(AUDIO_CLOCK_RATE)
            });
            let ticks = continued.filter(|ticks| ticks.abs_diff(reported) <= MAX_DEVIATION).unwrap_or(reported);
            self.last = Some((timestamp, ticks));
            self.counts.aligned += 1;
            self.queue.push(ReceivedAudio { ticks, missing, bytes });
        }
    }

    pub(crate) fn restart(&mut self) {
        // Release the packets that wait, because their sequence numbers belong to the old stream.
        self.end();
        (self.next, self.last) = (None, None);
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
    fn sender_reports_that_deviate_a_little_leave_no_gaps() {
        let queue = ReceivedAudioQueue::default();
        queue.want();
        for duration in [120u32, 240, 480, 960, 1_920, 2_880, 5_760] {
            let mut intake = AudioIntake::new(111, queue.clone());
            // Before each packet, a report changes the relation of the clocks. After 100 packets, the source's clock
            // jumps.
            for n in 0..200u32 {
                intake.take(at(u64::from(n)), u64::from(n), (u32::MAX - 5_000).wrapping_add(n * duration), &[1]);
                let moved = i64::from(n * 37 % 200) * 4 - 400 + if n < 100 { 0 } else { 9_000 };
                intake.align(|timestamp| Some(i64::from(timestamp.wrapping_sub(u32::MAX - 5_000)) * 90 / 48 + moved));
            }
            let ticks: Vec<i64> = queue.take().iter().map(|packet| packet.ticks).collect();
            let steps: Vec<i64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let whole = i64::from(duration) * 90 / 48;
            assert_eq!((ticks[0], ticks.len()), (-400, 200));
            assert!(steps.iter().enumerate().all(|(n, step)| n == 99 || *step == whole), "{duration}: {steps:?}");
            assert!((8_200..=9_800).contains(&(steps[99] - whole)), "{duration}: {}", steps[99]);
        }
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
