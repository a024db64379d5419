//! Determines the fate of each frame at a receiver. The inputs are the sender's record and the arrival times of
//! packets.

use crate::{Coded, Fragment, FrameKind, Schedule};
use steadycast_settings::words;
use steadycast_units::{Bytes, Time};

words! {
    /// What became of a frame at a receiver.
    #[derive(Default)]
    pub enum FrameFate {
        /// The whole frame arrived in time. All frames on which it depends are complete.
        #[default]
        Ok = "ok",
        /// A part of the frame did not arrive, or the frame was not sent.
        Lost = "lost",
        /// The whole frame arrived, but too late to be displayed at its time. Frames that depend on this frame can
        /// still be decoded.
        Late = "late",
        /// The whole frame arrived, but a frame on which it depends is not complete.
        Undecodable = "undecodable",
    }
}

/// Tracks which frames can be decoded. If a reference frame is missing, no later frame of the closed GOP can be
/// decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecodeChain {
    /// Whether all reference frames since the latest I frame are complete.
    intact: bool,
}

impl DecodeChain {
    /// Returns the fate of the next frame in coding order, but never [`FrameFate::Late`]. `whole` states whether the
    /// complete frame arrived.
    pub fn next(&mut self, kind: FrameKind, whole: bool) -> FrameFate {
        let referenced = kind == FrameKind::I || self.intact;
        // A missing B frame does not break the chain, because no frame depends on it.
        if kind != FrameKind::B {
            self.intact = whole && referenced;
        }
        match (whole, referenced) {
            (false, _) => FrameFate::Lost,
            (true, false) => FrameFate::Undecodable,
            (true, true) => FrameFate::Ok,
        }
    }
}

/// A frame that the sender sent or skipped.
#[derive(Clone, Copy, Debug)]
pub struct SentFrame {
    /// The coded frame.
    pub coded: Coded,
    /// The time at which the encoder delivered the frame.
    pub ready: Time,
    /// The index of the frame's first packet in [`SentFrames::packets`].
    pub first_packet: u32,
    /// The number of the frame's packets that were sent so far. It is 0 if the frame was skipped or is still queued.
    pub packets: u32,
}

impl SentFrame {
    /// Returns whether this entry is not a frame, but fills a frame number that was skipped during a pause. No receiver
    /// expects it.
    pub fn is_gap(&self) -> bool {
        self.ready == Time::NEVER
    }
}

/// All frames and packets that the sender of a flow has sent.
#[derive(Clone, Debug, Default)]
pub struct SentFrames {
    /// The frames in coding order. In a lean list, older frames have been removed.
    pub frames: Vec<SentFrame>,
    /// The number of older frames that were removed from `frames`.
    gone: u32,
    /// The packets in the order of sending: the time of sending, and the fragment in the packet.
    pub packets: Vec<(Time, Fragment)>,
    /// If set, per-packet records and completed frames are not retained.
    lean: bool,
}

/// Minimum number of frames that remain in a lean list when older frames are removed. [`SentFrames::sent`] uses only
/// frames of the last second, because packets are sent at most one second late.
const LEAN_FRAMES: usize = 1_024;

impl SentFrames {
    /// Creates a lean list, for a sender that does not evaluate the fates of its frames.
    pub fn lean() -> Self {
        Self { lean: true, ..Self::default() }
    }

    /// Returns the number of frames so far, including frames that were removed from the list.
    pub const fn count(&self) -> u32 {
        self.gone + self.frames.len() as u32
    }

    /// Returns the frame with this number in coding order. Returns `None` if the frame was removed or is still to come.
    pub fn get(&self, frame: u32) -> Option<&SentFrame> {
        self.frames.get(frame.checked_sub(self.gone)? as usize)
    }

    /// Adds a frame that the encoder has delivered.
    pub fn ready(&mut self, now: Time, coded: Coded) {
        // Remove half of the list at a time, so that the mean cost per frame is constant.
        if self.lean && self.frames.len() == 2 * LEAN_FRAMES {
            self.frames.drain(..LEAN_FRAMES);
            self.gone += LEAN_FRAMES as u32;
        }
        self.frames.push(SentFrame { coded, ready: now, first_packet: self.packets.len() as u32, packets: 0 });
    }

    /// Resumes after a pause at frame number `index`. Fills the skipped numbers with entries for which
    /// [`SentFrame::is_gap`] is true.
    pub fn skip_to(&mut self, index: u32) {
        for index in self.count()..index {
            // Use B frames, because they do not break the decode chain.
            let (kind, size) = (FrameKind::B, Bytes::ZERO);
            let coded = Coded { index, clip: 0, display: index, kind, quantizer: 0, size };
            let first_packet = self.packets.len() as u32;
            self.frames.push(SentFrame { coded, ready: Time::NEVER, first_packet, packets: 0 });
        }
    }

    /// Records a transmitted packet.
    pub fn sent(&mut self, now: Time, fragment: Fragment) {
        let place = fragment.frame.checked_sub(self.gone).map(|place| place as usize);
        if let Some(frame) = place.and_then(|place| self.frames.get_mut(place)) {
            if frame.packets == 0 {
                frame.first_packet = self.packets.len() as u32;
            }
            frame.packets += 1;
        }
        if !self.lean {
            self.packets.push((now, fragment));
        }
    }
}

/// A range of bytes that are missing in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingBytes {
    /// The frame's number in coding order.
    pub frame: u32,
    /// The offset of the first missing byte.
    pub offset: u32,
    /// The number of missing bytes.
    pub len: u32,
}

/// The packets that have arrived at one receiver.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    arrived: Vec<u64>,
    frames: Vec<FrameArrival>,
}

#[derive(Clone, Copy, Debug)]
struct FrameArrival {
    first: Time,
    last: Time,
    packets: u32,
}

const NOTHING_ARRIVED: FrameArrival = FrameArrival { first: Time::NEVER, last: Time::ZERO, packets: 0 };

impl Assembly {
    /// Records the arrival of a packet. `packet` is its sequence number minus the first sequence number of the flow.
    /// Duplicates are ignored.
    pub fn on_packet(&mut self, now: Time, packet: u64, fragment: Fragment) {
        let (word, bit) = ((packet / 64) as usize, 1 << (packet % 64));
        if word >= self.arrived.len() {
            self.arrived.resize(word + 1, 0);
        }
        if self.arrived[word] & bit != 0 {
            return;
        }
        self.arrived[word] |= bit;
        let frame = fragment.frame as usize;
        if frame >= self.frames.len() {
            self.frames.resize(frame + 1, NOTHING_ARRIVED);
        }
        let seen = &mut self.frames[frame];
        seen.first = seen.first.min(now);
        seen.last = seen.last.max(now);
        seen.packets += 1;
    }

    fn has_arrived(&self, packet: u32) -> bool {
        self.arrived.get(packet as usize / 64).is_some_and(|word| word & (1 << (packet % 64)) != 0)
    }

    fn seen(&self, frame: usize) -> FrameArrival {
        self.frames.get(frame).copied().unwrap_or(NOTHING_ARRIVED)
    }

    /// Returns when the first and the last packet of a frame arrived. Returns `None` if no packet has arrived.
    pub fn arrival(&self, frame: u32) -> Option<(Time, Time)> {
        let seen = self.seen(frame as usize);
        (seen.packets > 0).then_some((seen.first, seen.last))
    }

    /// Returns the fate of each frame. A frame is late if its last packet arrived after the frame's display time.
    pub fn fates(&self, sent: &SentFrames, schedule: &Schedule) -> Vec<FrameFate> {
        let mut chain = DecodeChain::default();
        let judge = |(n, frame): (usize, &SentFrame)| {
            let seen = self.seen(n);
            let bytes: u64 = self.bytes(sent, frame);
            // The frame is whole if all packets that were sent have arrived, and if they contain all bytes of the
            // frame.
            let whole = frame.packets > 0 && seen.packets == frame.packets && bytes == frame.coded.size.get();
            match chain.next(frame.coded.kind, whole) {
                FrameFate::Ok if schedule.due(frame.ready).is_some_and(|due| seen.last > due) => FrameFate::Late,
                fate => fate,
            }
        };
        sent.frames.iter().enumerate().map(judge).collect()
    }

    fn bytes(&self, sent: &SentFrames, frame: &SentFrame) -> u64 {
        let packets = frame.first_packet as usize..(frame.first_packet + frame.packets) as usize;
        sent.packets[packets].iter().map(|(_, f)| u64::from(f.len)).sum()
    }

    /// Returns the missing parts of frames, which a decoder has to conceal. Leaves out frames of which no packet
    /// arrived.
    pub fn missing(&self, sent: &SentFrames) -> Vec<MissingBytes> {
        let mut missing = Vec::new();
        for (n, frame) in sent.frames.iter().enumerate() {
            let seen = self.seen(n);
            if seen.packets == 0 {
                continue;
            }
            let mut end = 0;
            for packet in frame.first_packet..frame.first_packet + frame.packets {
                let fragment = sent.packets[packet as usize].1;
                end = fragment.offset + u32::from(fragment.len);
                if !self.has_arrived(packet) {
                    missing.push(MissingBytes {
                        frame: n as u32,
                        offset: fragment.offset,
                        len: u32::from(fragment.len),
                    });
                }
            }
            let size = frame.coded.size.saturating_sub(Bytes::new(u64::from(end))).get() as u32;
            if size > 0 {
                // The source stopped before it sent these bytes, so they are missing at the end of the frame.
                missing.push(MissingBytes { frame: n as u32, offset: end, len: size });
            }
        }
        missing
    }
}
