//! What became of each frame at a receiver, from what the sender sent and which packets came when.

use crate::{Coded, Fragment, FrameKind, Schedule};
use steadycast_units::{Bytes, Time};
use steadycast_words::words;

words! {
    /// What became of a frame.
    #[derive(Default)]
    pub enum FrameFate {
        /// All of it came in time, and so did what it depends on.
        #[default]
        Ok = "ok",
        /// Some of it did not come, or it was not sent at all.
        Lost = "lost",
        /// All of it came, too late to be shown at its time. What depends on it can be decoded.
        Late = "late",
        /// All of it came in time, but not what it depends on.
        Undecodable = "undecodable",
    }
}

/// Which frames of a stream can be decoded. Groups of pictures are closed: one reference that is missing, and nothing
/// behind it in its group can be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    /// All since the latest I frame came.
    intact: bool,
}

impl Chain {
    /// What becomes of the next frame in coding order, of which all came, or not; it is in time.
    pub fn next(&mut self, kind: FrameKind, whole: bool) -> FrameFate {
        let referenced = kind == FrameKind::I || self.intact;
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

/// A frame as the sender sent it, or skipped it.
#[derive(Clone, Copy, Debug)]
pub struct SentFrame {
    /// The frame.
    pub coded: Coded,
    /// When the encoder delivered it.
    pub ready: Time,
    /// Number of its first packet among all packets of the flow.
    pub first_packet: u32,
    /// Its packets so far; none when it was skipped or still waits.
    pub packets: u32,
}

impl SentFrame {
    /// Whether it only stands for a number that no frame has, since the flow paused: nobody was to get it.
    pub fn is_gap(&self) -> bool {
        self.ready == Time::NEVER
    }
}

/// All frames and packets of a flow, as the sender sent them.
#[derive(Clone, Debug, Default)]
pub struct SentFrames {
    /// In coding order; of a lean list the latest.
    pub frames: Vec<SentFrame>,
    /// How many there were before these.
    gone: u32,
    /// What each packet carried, in the order in which they left.
    pub packets: Vec<(Time, Fragment)>,
    /// Nobody asks for `packets`, or for frames that have left.
    lean: bool,
}

/// So many frames stay in a lean list, at the least: several seconds', as what leaves is of the latest second.
const LATEST: usize = 1_024;

impl SentFrames {
    /// The latest frames without a list of their packets, for a sender, which does not know what becomes of these.
    pub fn lean() -> Self {
        Self { lean: true, ..Self::default() }
    }

    /// How many frames there were.
    pub const fn count(&self) -> u32 {
        self.gone + self.frames.len() as u32
    }

    /// The frame with this number, in coding order.
    pub fn get(&self, frame: u32) -> Option<&SentFrame> {
        self.frames.get(frame.checked_sub(self.gone)? as usize)
    }

    /// A frame is ready.
    pub fn ready(&mut self, now: Time, coded: Coded) {
        if self.lean && self.frames.len() == 2 * LATEST {
            self.frames.drain(..LATEST);
            self.gone += LATEST as u32;
        }
        self.frames.push(SentFrame { coded, ready: now, first_packet: self.packets.len() as u32, packets: 0 });
    }

    /// The flow starts again after a pause, with frame number `index`: the numbers before it that no frame has are
    /// gaps.
    pub fn skip_to(&mut self, index: u32) {
        for index in self.count()..index {
            let (kind, size) = (FrameKind::B, Bytes::ZERO);
            let coded = Coded { index, clip: 0, display: index, kind, quantizer: 0, size };
            let first_packet = self.packets.len() as u32;
            self.frames.push(SentFrame { coded, ready: Time::NEVER, first_packet, packets: 0 });
        }
    }

    /// A packet has left.
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

/// Bytes of a frame that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The frame, in coding order.
    pub frame: u32,
    /// First missing byte.
    pub offset: u32,
    /// How many.
    pub len: u32,
}

/// What has arrived at one receiver.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    came: Vec<u64>,
    frames: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Time,
    last: Time,
    packets: u32,
}

const NOT_SEEN: Seen = Seen { first: Time::NEVER, last: Time::ZERO, packets: 0 };

impl Assembly {
    /// Packet number `packet` of the flow (its sequence number less the first one) has arrived; duplicates don't count.
    pub fn on_packet(&mut self, now: Time, packet: u64, fragment: Fragment) {
        let (word, bit) = ((packet / 64) as usize, 1 << (packet % 64));
        if word >= self.came.len() {
            self.came.resize(word + 1, 0);
        }
        if self.came[word] & bit != 0 {
            return;
        }
        self.came[word] |= bit;
        let frame = fragment.frame as usize;
        if frame >= self.frames.len() {
            self.frames.resize(frame + 1, NOT_SEEN);
        }
        let seen = &mut self.frames[frame];
        seen.first = seen.first.min(now);
        seen.last = seen.last.max(now);
        seen.packets += 1;
    }

    fn has(&self, packet: u32) -> bool {
        self.came.get(packet as usize / 64).is_some_and(|word| word & (1 << (packet % 64)) != 0)
    }

    fn seen(&self, frame: usize) -> Seen {
        self.frames.get(frame).copied().unwrap_or(NOT_SEEN)
    }

    /// When the first and the last packet of a frame came; `None` when none has.
    pub fn arrival(&self, frame: u32) -> Option<(Time, Time)> {
        let seen = self.seen(frame as usize);
        (seen.packets > 0).then_some((seen.first, seen.last))
    }

    /// What became of each frame: it is late when its last packet came after the frame was due.
    pub fn fates(&self, sent: &SentFrames, schedule: &Schedule) -> Vec<FrameFate> {
        let mut chain = Chain::default();
        let judge = |(n, frame): (usize, &SentFrame)| {
            let seen = self.seen(n);
            let bytes: u64 = self.bytes(sent, frame);
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

    /// The parts that are missing of frames of which something came: what a decoder has to conceal.
    pub fn missing(&self, sent: &SentFrames) -> Vec<Missing> {
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
                if !self.has(packet) {
                    missing.push(Missing { frame: n as u32, offset: fragment.offset, len: u32::from(fragment.len) });
                }
            }
            let size = frame.coded.size.saturating_sub(Bytes::new(u64::from(end))).get() as u32;
            if size > 0 {
                // The run ended before the frame had left.
                missing.push(Missing { frame: n as u32, offset: end, len: size });
            }
        }
        missing
    }
}
