//! The pacer: the queue of packets and the times at which they can leave.

use gstreamer as gst;
use std::collections::VecDeque;
use steadycast_remote::{Bytes, FrameEdge, Rate, Span, Time};

/// Headers of IPv4 and UDP.
pub(crate) const HEADERS: u64 = 28;
/// Maximum size of the part of a packet that locates its payload: the header, 15 contributing sources, and the head of
/// an extension.
pub(crate) const HEAD: usize = 12 + 4 * 15 + 4;
/// Maximum lateness that is made up for: a thread that wakes up later sends at most this span's packets in a burst.
const LATE: Span = Span::millis(10);
/// Packets that are due within this span are sent together.
const TOGETHER: Span = Span::millis(1);

/// The fields of an RTP packet that the pacer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rtp {
    /// Size on the wire.
    pub(crate) size: u64,
    pub(crate) payload: u32,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
}

impl Rtp {
    /// Parses the head of a packet of `size` bytes (RFC 3550, section 5.1); `None` if it is not RTP.
    pub(crate) fn read(head: &[u8], size: usize) -> Option<Self> {
        let (first, second) = (*head.first()?, *head.get(1)?);
        if first >> 6 != 2 || size < 12 {
            return None;
        }
        let word = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let mut length = 12 + 4 * usize::from(first & 15);
        if first & 16 != 0 {
            length += 4 + 4 * (word(length)? & 0xffff) as usize;
        }
        // Padding is counted as payload: it is rare, and its length is in the last byte, which can be in another
        // memory.
        let payload = u32::try_from(size.saturating_sub(length)).ok()?;
        Some(Self { size: size as u64 + HEADERS, payload, timestamp: word(4)?, marker: second & 128 != 0 })
    }
}

/// A queued packet.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) buffer: gst::Buffer,
    pub(crate) rtp: Rtp,
    pub(crate) edge: FrameEdge,
    pub(crate) came: Time,
}

/// An item of the element's queue, which keeps the order of packets and events.
#[derive(Debug)]
pub(crate) enum Item {
    Packet(Packet),
    Event(gst::Event),
}

/// The next step of the pacer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this item.
    Leave(Item),
    /// Wait until this time.
    At(Time),
    /// Wait for an item.
    Idle,
}

/// The queue and its pacing state.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    items: VecDeque<Item>,
    /// Bytes on the wire of the queued packets.
    waiting: u64,
    /// The time at which the next packet can leave.
    free: Time,
}

impl Pacer {
    pub(crate) fn push(&mut self, item: Item) {
        if let Item::Packet(packet) = &item {
            self.waiting += packet.rtp.size;
        }
        self.items.push_back(item);
    }

    pub(crate) fn clear(&mut self) {
        (self.waiting, self.free) = (0, Time::ZERO);
        self.items.clear();
    }

    pub(crate) fn waiting(&self) -> Bytes {
        Bytes::new(self.waiting)
    }

    /// Returns the time for which the oldest packet has waited.
    pub(crate) fn age(&self, now: Time) -> Span {
        let oldest = self.items.iter().find_map(|item| match item {
            Item::Packet(packet) => Some(packet.came),
            Item::Event(_) => None,
        });
        oldest.map_or(Span::ZERO, |came| now.since(came))
    }

    pub(crate) fn has_packets(&self) -> bool {
        self.waiting > 0
    }

    /// Returns the next step at the rate `pace`. If `closed`, packets wait for feedback.
    pub(crate) fn next(&mut self, now: Time, pace: Rate, closed: bool) -> Next {
        match self.items.front() {
            None => Next::Idle,
            Some(Item::Packet(_)) if closed => Next::Idle,
            Some(Item::Packet(packet)) => {
                if self.free > now + TOGETHER {
                    return Next::At(self.free);
                }
                let size = Bytes::new(packet.rtp.size);
                self.free = self.free.max(now.before(LATE)) + size.at(pace.max(Rate::kbps(1)));
                self.waiting = self.waiting.saturating_sub(packet.rtp.size);
                self.items.pop_front().map_or(Next::Idle, Next::Leave)
            }
            Some(Item::Event(_)) => self.items.pop_front().map_or(Next::Idle, Next::Leave),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_size_payload_time_stamp_and_marker() {
        let mut head = vec![0x91, 0x80 | 96, 0, 7, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 1, 0xbe, 0xde, 0, 1, 0x51, 0, 7, 0];
        let read = Rtp::read(&head, 1_024);
        let payload = 1_024 - 12 - 4 - 8;
        assert_eq!(read, Some(Rtp { size: 1_052, payload, timestamp: 0x0102_0304, marker: true }));
        head[0] = 0x11;
        assert_eq!(Rtp::read(&head, 1_024), None, "version 0");
        for len in 0..20 {
            assert_eq!(Rtp::read(&[0x91; 24][..len], len), None, "{len} bytes");
        }
    }
}
