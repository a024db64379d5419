//! Per-packet feedback of `rtpsession`, and the mapping of its packet numbers to the controller's.

use gstreamer::glib;
use std::collections::VecDeque;
use steadycast_remote::{PacketResult, PeerTime};

/// Packets in the history; the controller's has the same length.
const REMEMBERED: usize = 1 << 14;

/// A packet that was passed to `rtpsession`.
#[derive(Clone, Copy, Debug)]
struct SentPacket {
    /// The departure time on the system's clock.
    left: u64,
    payload: u32,
    /// Whether its arrival was reported. Of packets that departed at the same time, the others are then meant.
    is_reported: bool,
}

/// Maps to the controller's numbers the transport-wide ones, which `rtpsession` assigns across all of its streams.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The packets in order of departure.
    kept: VecDeque<SentPacket>,
    /// The controller's number of the first packet in the history.
    first: u64,
    /// A packet's transport-wide number minus its controller's number, modulo 2^16.
    ahead: u16,
}

/// Maximum time from this element to `rtpsession`, in nanoseconds.
const SOON: u64 = 1_000_000_000;
/// Times that differ by more than these nanoseconds belong to different clocks.
const OTHER_CLOCK: u64 = 60_000_000_000;

/// A packet in an event of feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReportedPacket {
    pub(crate) number: u16,
    /// Time at which `rtpsession` sent it, on the system's clock.
    pub(crate) sent: Option<u64>,
    /// Time of arrival on the receiver's clock; `None` if it was lost.
    pub(crate) arrived: Option<u64>,
    /// Payload size in bytes.
    pub(crate) size: u32,
}

impl ReportedPacket {
    /// Returns the packets of an event `RTPTWCCPackets`; malformed ones are left out.
    pub(crate) fn all(structure: &gstreamer::StructureRef) -> Vec<Self> {
        let Ok(packets) = structure.get::<glib::ValueArray>("packets") else { return Vec::new() };
        let read = |value: &glib::Value| Self::read(value.get::<gstreamer::Structure>().ok()?.as_ref());
        packets.iter().filter_map(read).collect()
    }

    fn read(packet: &gstreamer::StructureRef) -> Option<Self> {
        let time = |name| packet.get::<u64>(name).ok().filter(|ns| *ns != u64::MAX);
        let lost = packet.get::<bool>("lost").unwrap_or(false);
        Some(Self {
            number: packet.get::<u32>("seqnum").ok()? as u16,
            sent: time("local-ts"),
            arrived: if lost { None } else { time("remote-ts") },
            size: packet.get::<u32>("size").unwrap_or(0),
        })
    }
}

impl Numbers {
    /// Adds a departing packet. Controllers' numbers increase by one.
    pub(crate) fn sent(&mut self, number: u64, left: u64, payload: u32) {
        if self.kept.is_empty() {
            self.first = number;
        }
        if self.kept.len() == REMEMBERED {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(SentPacket { left, payload, is_reported: false });
    }

    /// Returns the controller's result for this packet; `None` if it is of another stream.
    pub(crate) fn fate(&mut self, packet: &ReportedPacket) -> Option<PacketResult> {
        let place = self.place(packet)?;
        let kept = self.kept.get_mut(place)?;
        kept.is_reported = packet.arrived.is_some();
        let number = self.first + place as u64;
        self.ahead = packet.number.wrapping_sub(number as u16);
        let at = packet.arrived.map(|ns| PeerTime::from_nanos(i64::try_from(ns).unwrap_or(i64::MAX)));
        Some(at.map_or(PacketResult::missing(number), |at| PacketResult::at(number, at)))
    }

    fn place(&self, packet: &ReportedPacket) -> Option<usize> {
        let newest = self.kept.len().checked_sub(1)?;
        let back = ((self.first + newest as u64) as u16).wrapping_sub(packet.number.wrapping_sub(self.ahead));
        let counted = newest.checked_sub(usize::from(back));
        let fits = |place: &usize| packet.size == 0 || self.kept[*place].payload == packet.size;
        let near = |place: &usize| packet.sent.is_some_and(|at| at.abs_diff(self.kept[*place].left) < OTHER_CLOCK);
        let Some(at) = packet.sent.filter(|_| near(&newest) || near(&0)) else { return counted.filter(fits) };
        // The packet is the last that departed before `rtpsession` sent it; equal times go by number.
        let after = self.kept.partition_point(|kept| kept.left <= at);
        let left = self.kept.get(after.checked_sub(1)?)?.left;
        if at - left > SOON {
            return None;
        }
        let begin = self.kept.partition_point(|kept| kept.left < left);
        let among = |place: &usize| (begin..after).contains(place);
        counted
            .filter(among)
            .filter(fits)
            .or_else(|| (begin..after).find(|place| fits(place) && !self.kept[*place].is_reported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(number: u16, sent: u64, size: u32) -> ReportedPacket {
        ReportedPacket { number, sent: Some(sent), arrived: Some(1), size }
    }

    fn number(numbers: &mut Numbers, packet: ReportedPacket) -> Option<u64> {
        numbers.fate(&packet).map(|fate| fate.number)
    }

    #[test]
    fn numbers_are_counted_where_no_other_stream_takes_any_beyond_their_wrap() {
        let mut numbers = Numbers::default();
        for n in 0..70_000 {
            numbers.sent(n, n * 10, 1_000);
            assert_eq!(number(&mut numbers, reported(n as u16, n * 10 + 3, 1_000)), Some(n));
        }
    }

    #[test]
    fn packets_of_other_streams_are_left_out_and_ours_are_found_by_time_and_size() {
        let mut numbers = Numbers::default();
        // Each frame's three packets are sent in two groups. An audio packet is numbered between the second and the
        // third.
        let mut wire = 100_u16;
        for frame in 0..30_000_u64 {
            let at = |part: u32| frame * 40_000_000 + u64::from(part / 2) * 5_000_000;
            for part in 0..3 {
                numbers.sent(frame * 3 + u64::from(part), at(part), 900);
            }
            for part in 0..3_u32 {
                if part == 2 {
                    assert_eq!(number(&mut numbers, reported(wire, at(part) - 1_000_000, 160)), None);
                    wire = wire.wrapping_add(1);
                }
                let found = number(&mut numbers, reported(wire, at(part) + 200_000, 900));
                assert_eq!(found, Some(frame * 3 + u64::from(part)));
                wire = wire.wrapping_add(1);
            }
        }
    }

    #[test]
    fn times_of_another_clock_are_left_aside() {
        let mut numbers = Numbers::default();
        for n in 0..100 {
            numbers.sent(n, 1_000_000_000_000 + n, 900);
        }
        assert_eq!(number(&mut numbers, reported(7, 40, 900)), Some(7));
    }

    #[test]
    fn what_was_never_sent_is_nothing() {
        let mut numbers = Numbers::default();
        assert_eq!(number(&mut numbers, reported(0, 0, 1_000)), None);
        numbers.sent(0, 9, 1_000);
        assert_eq!(number(&mut numbers, reported(9, 5, 1_000)), None, "sent before");
        assert_eq!(number(&mut numbers, reported(9, 2_000_000_000, 1_000)), None, "sent long after");
        let untimed = ReportedPacket { number: 0, sent: None, arrived: None, size: 0 };
        assert_eq!(numbers.fate(&untimed), Some(PacketResult::missing(0)));
    }
}
