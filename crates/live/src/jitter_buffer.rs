//! A buffer that sorts packets and reassembles frames, and a queue of these frames for a reader.

mod frame_assembly;
mod frame_queue;
mod markers;

pub use frame_queue::{FrameCounts, FrameQueue, FrameRow, ReceivedFrame};

use crate::{Consumer, Unused};
use frame_assembly::FrameAssembler;
use std::collections::{BTreeMap, VecDeque};
use steadycast_session::UnusedReason;
use steadycast_units::{Span, Time};
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::rtp::{PayloadTypes, RtpHeader};
use steadycast_wire::seq::{MAX_MISORDER, MIN_SEQUENTIAL};

/// How long to wait for a missing packet if there are no retransmissions. The wait starts when the first packet after
/// the gap arrives, or at the last arrival in sequence if that is later. A packet after the gap may be forged, so it
/// can't end the wait while other packets still arrive in sequence.
pub(crate) const REORDER_WAIT: Span = Span::millis(80);
/// Maximum number of packets that wait if the wait is [`REORDER_WAIT`].
const MAX_HELD_SHORT: usize = 256;
/// Maximum number of packets that wait, per millisecond of the wait, if the wait is longer than [`REORDER_WAIT`]. It
/// corresponds to 160 Mb/s in packets of 1000 bytes.
const HELD_PER_MS: u64 = 20;
const MAX_HELD: u64 = 1 << 14;

/// A packet and its arrival time. If the payload is empty, the packet only fills the gap at its sequence number.
type Held = (Time, RtpHeader, Vec<u8>);

/// A jitter buffer, which puts packets into order and reassembles frames.
pub struct JitterBuffer {
    payload_types: PayloadTypes,
    assembler: FrameAssembler,
    /// Packets that wait for earlier packets, by extended sequence number.
    held: BTreeMap<u64, Held>,
    /// Maximum time to wait for an earlier packet, and maximum number of packets that wait.
    limits: (Span, usize),
    /// Extended sequence number of the next packet.
    next: Option<u64>,
    /// When the last packet in sequence arrived.
    progress: Time,
    /// Number of packets since the last gap.
    since_gap: u64,
    /// Consecutive late packets, and the sequence number of the first of them. A packet is late if its gap was given up
    /// before the packet arrived.
    late: (u64, Vec<Held>),
    /// Extended sequence numbers at which the SSRC will change or the source will restart.
    runs: VecDeque<u64>,
    /// RTP sequence number of the next packet, if the source does not change.
    next_rtp_seq: Option<u16>,
}

impl JitterBuffer {
    /// Creates a jitter buffer for packets with these payload types. Frames are added to `frame_queue`.
    pub fn new(format: PayloadFormat, payload_types: PayloadTypes, frame_queue: FrameQueue) -> Self {
        Self {
            payload_types,
            assembler: FrameAssembler::new(format, frame_queue),
            held: BTreeMap::new(),
            limits: (REORDER_WAIT, MAX_HELD_SHORT),
            next: None,
            progress: Time::ZERO,
            since_gap: 0,
            late: (0, Vec::new()),
            runs: VecDeque::new(),
            next_rtp_seq: None,
        }
    }

    /// Sets how long to wait until earlier packets are repaired.
    #[must_use]
    pub fn waiting(self, wait: Span) -> Self {
        let most = (wait.as_nanos() / 1_000_000 * HELD_PER_MS).clamp(MAX_HELD_SHORT as u64, MAX_HELD);
        Self { limits: (wait.max(REORDER_WAIT), most as usize), ..self }
    }

    fn release(&mut self, now: Time) {
        while let Some((seq, (at, ..))) = self.held.first_key_value() {
            let (seq, at) = (*seq, *at);
            let due = self.next.is_none_or(|next| seq == next);
            let (wait, most) = self.limits;
            // Keep waiting. The next packet is still missing, and no limit is reached.
            if !due && self.held.len() <= most && now.since(at.max(self.progress)) <= wait {
                return;
            }
            let Some((seq, packet)) = self.held.pop_first() else { return };
            self.go_on(seq, packet);
        }
    }

    /// Processes the first packet that waits. Gives up the packets that are missing before it.
    fn go_on(&mut self, seq: u64, (at, header, payload): Held) {
        if let Some(next) = self.next.filter(|next| seq > *next) {
            self.give_up(seq - next);
        } else {
            self.progress = self.progress.max(at);
        }
        // Start the runs that begin at `seq` or earlier. A run begins with a new SSRC or a restart of the source. If
        // its first packets are lost, the run begins before `seq`.
        while self.runs.front().is_some_and(|from| *from <= seq) {
            self.runs.pop_front();
            self.assembler.start_run(self.next_rtp_seq == Some(header.seq));
        }
        (self.next, self.next_rtp_seq) = (Some(seq + 1), Some(header.seq.wrapping_add(1)));
        self.since_gap += 1;
        if !payload.is_empty() {
            self.assembler.packet(at, &header, &payload);
        }
    }

    fn give_up(&mut self, lost: u64) {
        self.assembler.lose(lost);
        self.since_gap = 0;
        self.late.1.clear();
    }

    /// Discards a packet that arrived after its gap was given up.
    ///
    /// A forged sequence number may have caused the gap. So the buffer goes back to consecutive late packets if there
    /// are at least [`MIN_SEQUENTIAL`] of them. They must also be more than the packets since the gap, or at least
    /// [`MAX_MISORDER`] numbers behind.
    fn take_late(&mut self, seq: u64, packet: Held) {
        let (first, run) = &mut self.late;
        if *first + run.len() as u64 != seq || run.len() >= MAX_HELD_SHORT {
            run.clear();
            *first = seq;
        }
        // Count the packet as too late. The count is corrected below if the buffer goes back to this packet.
        self.assembler.unused.add(UnusedReason::TooLate);
        run.push(packet);
        let (first, votes) = (*first, run.len() as u64);
        let far = self.next.is_some_and(|next| first + u64::from(MAX_MISORDER) <= next);
        if votes >= u64::from(MIN_SEQUENTIAL) && (far || votes > self.since_gap) {
            let run = std::mem::take(&mut self.late.1);
            run.iter().for_each(|_| self.assembler.unused.counts.take_back(UnusedReason::TooLate));
            self.give_up(0);
            self.next = Some(first);
            self.held.extend((first..).zip(run));
        }
    }

    /// Returns the time until which a frame that ends with a marker waits for reordered packets.
    fn ends_at(&self) -> Option<Time> {
        self.assembler.marked_at().filter(|_| self.held.is_empty()).map(|at| at + REORDER_WAIT)
    }
}

impl Consumer for JitterBuffer {
    fn lacks_key_frame(&self) -> Option<bool> {
        self.assembler.lacks_key_frame()
    }

    fn take(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        // Remove the payload of unknown payload types, but keep the packets. They may be parity packets that use
        // sequence numbers of the media (RFC 5109). Without the packets, these numbers would count as lost.
        let payload = if self.payload_types.contains(header.payload_type) {
            if payload.is_empty() {
                self.assembler.unused.add(UnusedReason::NoPayload);
            }
            payload
        } else {
            self.assembler.unused.add_of_type(UnusedReason::UnknownPayloadType, header.payload_type);
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

    fn ticks_of(&self, timestamp: u32) -> Option<i64> {
        self.assembler.ticks_of(timestamp)
    }

    fn take_repaired(&mut self, now: Time, seq: u64, header: &RtpHeader, payload: &[u8]) {
        // Ignore a packet of a frame that is finished. The frame stays as it is.
        if self.next.is_none_or(|next| seq >= next) {
            self.take(now, seq, header, payload);
        } else {
            self.assembler.unused.add(UnusedReason::TooLate);
        }
    }

    fn unused(&self) -> Unused {
        self.assembler.unused.clone()
    }

    fn restart(&mut self, seq: u64) {
        self.runs.push_back(seq);
    }

    fn wake(&self) -> Time {
        let waits = self.held.first_key_value().map(|(_, (at, ..))| (*at).max(self.progress) + self.limits.0);
        // Add a nanosecond, because the limits are inclusive and the timer must expire after them.
        waits.into_iter().chain(self.ends_at()).min().map_or(Time::NEVER, |at| at + Span::nanos(1))
    }

    fn on_wake(&mut self, now: Time) {
        self.release(now);
        if self.ends_at().is_some_and(|at| now > at) {
            self.assembler.finish_early();
        }
    }

    fn end(&mut self) {
        while let Some((seq, packet)) = self.held.pop_first() {
            self.go_on(seq, packet);
        }
        self.assembler.end();
    }
}

#[cfg(test)]
mod tests {
    use super::markers::Markers;
    use super::*;
    use std::time::Duration;
    use steadycast_media::FrameFate;

    const I: u8 = 0x00;
    const P: u8 = 0x40;
    const B: u8 = 0x80;

    /// Returns an MPEG-4 frame of the kind `kind`, or a part of a frame. It ends with the two numbers.
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
        // Start as if the sender's markers had proved right.
        jitter_buffer.assembler.markers = Markers { proved: [true; 3], sparing: true, ..Markers::default() };
        (jitter_buffer, frame_queue)
    }

    /// Returns how many frames are whole, damaged and missing.
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
        // Frames 2 and 3 are lost. Each has one packet.
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

    /// Sends a frame every 10 ms. Each frame has one packet. After each frame, `each` may send further packets.
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
            // The sequence numbers alone do not always show the damage. If a foreign packet takes the place of a
            // frame's only packet, it forms a whole frame.
            assert_eq!((whole + seen, missing), (500, 0), "{ahead} ahead");
            assert!(seen <= damaged, "{ahead} ahead: {seen}");
        }
    }

    #[test]
    fn a_forged_number_during_a_pause_costs_two_frames() {
        for ahead in [2, 90, 2_500, 20_000] {
            let (mut jitter_buffer, frame_queue) = fresh();
            stream(&mut jitter_buffer, 0..100, |_, _| {});
            // Pause the stream, and send two forged packets.
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
        // Every third packet is lost. The packets are 10 ms apart. Each gap is given up 80 ms after the packet that
        // follows it.
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
        // Another source starts 4 s later. Its timestamps are hours away, and its first packet is lost.
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
        // The step consists of the pause of 4 s and twice the distance between packets.
        assert_eq!(steps, [4_020 * 90]);
    }

    #[test]
    fn frames_after_a_lost_reference_are_undecodable_until_the_next_intra_frame() {
        // Each letter is the kind of a whole frame. A dash is a lost frame, which shows in the timestamps.
        for (frames, fates) in [
            ("IPPP", [4, 0, 0]),
            // The frame after the gap counts as damaged, because the lost packet may belong to it.
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
            // Send a packet that releases the packets that wait for the lost one.
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
        // Each row has frames of 40 ms. It also says whether the first key frame was ever needed, and whether a later
        // key frame was ever needed. A dash is a lost frame.
        for (frames, first, another) in [
            ("PPIPP", true, false),
            ("IPPPPPPPPPIPP", false, false),
            ("IPPPPPPP-PPPIP", false, true),
            // After the loss, no key frame is requested, because one is due in two frames.
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
            jitter_buffer.assembler.markers = Markers::default();
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
        // The sender has left out one second of frames, and one packet is missing.
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
            // The lost frame counts as missing. The frame after it counts as damaged.
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
            // `n ^ 1` swaps the two frames of each pair. One packet in a hundred is lost.
            for n in (0..1_000u64).filter(|n| n % 100 != 50) {
                let kind = if n.is_multiple_of(10) { I } else { P };
                packet_of(&mut jitter_buffer, kind, n * 40, n, n as u32 ^ 1, true);
            }
            frame_queue
        };
        let (stored, here) = (filled(FrameQueue::default().spooled()), filled(FrameQueue::default()));
        let latest = stored.rows_in_memory();
        assert!((1..=200).contains(&latest), "{latest} rows in memory");
        let rows = stored.rows().unwrap();
        assert_eq!(rows, here.rows().unwrap());
        assert!((900..=990).contains(&rows.len()), "{} rows", rows.len());
        assert!(rows.iter().any(|row| row.ticks < 0));
        for fate in [FrameFate::Ok, FrameFate::Lost, FrameFate::Undecodable] {
            assert!(rows.iter().any(|row| row.fate == fate), "{fate:?}");
        }
    }
}
