//! Observes the TCP of the hosts' kernels at the relay. It finds out which segments deliver new bytes, and when.

use crate::datagram::{Datagram, Segment};
use std::collections::BTreeMap;
use steadycast_endpoints::{AgentIx, Intake, PacketRow, Rows};
use steadycast_link::Ecn;
use steadycast_network::DatagramArrival;
use steadycast_scenario::NodeIx;
use steadycast_units::{Bytes, Chance, Seed, Span, Time};

/// One direction of a connection.
pub(crate) struct Stream {
    pub(crate) source: AgentIx,
    pub(crate) sink: AgentIx,
    pub(crate) intake: Intake,
    /// Payload size of a full segment, in bytes. It converts byte offsets to packet numbers.
    pub(crate) payload: u32,
    /// Records of the sent packets and of the arrived packets.
    pub(crate) logs: Option<(Rows<PacketRow>, Rows<PacketRow>)>,
    /// Maximum send jitter. A packet is held for a random time between 0 and this time, with uniform distribution.
    jitter: Span,
    chance: Chance,
    until: Time,
    bytes: ReceivedBytes,
}

impl Stream {
    pub(crate) fn new(
        source: AgentIx,
        sink: AgentIx,
        intake: Intake,
        payload: u32,
        logs: Option<(Rows<PacketRow>, Rows<PacketRow>)>,
    ) -> Self {
        let (jitter, until, chance) = (Span::ZERO, Time::ZERO, Seed(0).part("jitter"));
        Self {
            source,
            sink,
            intake,
            payload: payload.max(1),
            logs,
            jitter,
            chance,
            until,
            bytes: ReceivedBytes::default(),
        }
    }

    /// Adds send jitter in the same way as the simulation.
    pub(crate) fn jittered(mut self, jitter: Span, chance: Chance) -> Self {
        (self.jitter, self.chance) = (jitter, chance);
        self
    }

    fn row(&self, at: Time, offset: u64, size: usize, ecn: Ecn, delay: Option<Span>) -> PacketRow {
        let seq = offset / u64::from(self.payload);
        PacketRow::new(at, seq, Bytes::new(size as u64), None, ecn, delay)
    }
}

/// The streams, each under its destination's host and port.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) all: BTreeMap<(NodeIx, u16), Stream>,
}

impl Streams {
    /// Returns until when a datagram must be held at its host. Returns `None` if it need not be held.
    pub(crate) fn hold(&mut self, now: Time, datagram: &Datagram<'_>, to: NodeIx) -> Option<Time> {
        let stream = self.all.get_mut(&(to, datagram.tcp()?.ports.1)).filter(|s| !s.jitter.is_zero())?;
        // All packets that a stream holds leave together at `until`. The first packet after that time draws a new
        // `until`.
        if stream.until <= now {
            stream.until = now + stream.chance.span_between(Span::ZERO, stream.jitter);
        }
        Some(stream.until)
    }

    pub(crate) fn sent(&mut self, now: Time, datagram: &Datagram<'_>, to: Option<NodeIx>) {
        let (Some(to), Some(segment)) = (to, datagram.tcp()) else { return };
        let Some(stream) = self.all.get_mut(&(to, segment.ports.1)) else { return };
        if segment.payload > 0 && stream.logs.is_some() {
            let row = stream.row(now, stream.bytes.place(segment.seq), datagram.len(), datagram.ecn(), None);
            stream.logs.iter_mut().for_each(|logs| logs.0.push(row));
        }
    }

    pub(crate) fn arrived(&mut self, arrival: &DatagramArrival<'_>) {
        let Some(datagram) = Datagram::read(arrival.bytes) else { return };
        let Some(segment) = datagram.tcp() else { return };
        let Some(stream) = self.all.get_mut(&(arrival.host, segment.ports.1)) else { return };
        // Call `place` before `add`. `place` finds the offset that is nearest to `next`, and `add` advances `next`.
        let offset = stream.bytes.place(segment.seq);
        if stream.bytes.add(&segment) {
            stream.intake.add(arrival.at, Bytes::new(datagram.len() as u64), Some(arrival.sent));
        }
        if segment.payload > 0 && stream.logs.is_some() {
            let delay = Some(arrival.at.since(arrival.sent));
            let row = stream.row(arrival.at, offset, datagram.len(), arrival.ecn, delay);
            stream.logs.iter_mut().for_each(|logs| logs.1.push(row));
        }
    }

    pub(crate) fn sample(&mut self) {
        for stream in self.all.values_mut() {
            let packets = stream.intake.packets();
            stream.intake.sample(packets);
        }
    }
}

#[derive(Debug, Default)]
struct ReceivedBytes {
    /// Sequence number of the first byte.
    base: u32,
    /// All bytes before this offset were received.
    next: u64,
    /// The ranges that were received after a gap. The key is the start of a range, and the value is its end.
    ahead: BTreeMap<u64, u64>,
}

/// The maximum window of TCP (RFC 7323). A segment that is further ahead can't belong to the connection.
const MAX_WINDOW: i64 = 1 << 30;

impl ReceivedBytes {
    /// Returns the offset of a byte in the stream.
    fn place(&self, seq: u32) -> u64 {
        // Compute a signed distance, so that the result is right when the sequence numbers wrap.
        let from_next = seq.wrapping_sub(self.base.wrapping_add(self.next as u32)) as i32;
        self.next.saturating_add_signed(i64::from(from_next))
    }

    /// Adds a segment. Returns whether it contains a new byte.
    fn add(&mut self, segment: &Segment) -> bool {
        if segment.syn {
            // Start over. A SYN begins a new connection, or it is a retransmission before any data.
            *self = Self { base: segment.seq.wrapping_add(1), ..Self::default() };
            return false;
        }
        let (start, end) = (self.place(segment.seq), self.place(segment.seq) + u64::from(segment.payload));
        if end <= self.next || (start as i64) - (self.next as i64) > MAX_WINDOW {
            return false;
        }
        let start = start.max(self.next);
        let covered = self.ahead.range(..=start).next_back().is_some_and(|(_, to)| *to >= end);
        if covered {
            return false;
        }
        let to = self.ahead.get(&start).map_or(end, |to| end.max(*to));
        self.ahead.insert(start, to);
        while let Some(entry) = self.ahead.first_entry().filter(|e| *e.key() <= self.next) {
            self.next = self.next.max(entry.remove());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(seq: u32, payload: u32) -> Segment {
        Segment { ports: (1, 2), seq, syn: false, payload }
    }

    fn after_syn(seq: u32) -> ReceivedBytes {
        let mut received = ReceivedBytes::default();
        received.add(&Segment { syn: true, ..segment(seq, 0) });
        received
    }

    #[test]
    fn each_byte_counts_once_in_any_order_across_the_wrap() {
        let isn = u32::MAX - 150;
        let mut received = after_syn(isn);
        let at = |n: u32| isn.wrapping_add(1 + 100 * n);
        let new: Vec<bool> =
            [0, 2, 2, 1, 0, 3, 1, 5, 4].map(|n| received.add(&segment(at(n), 100))).into_iter().collect();
        assert_eq!(new, [true, true, false, true, false, true, false, true, true]);
        assert_eq!((received.next, received.ahead.len()), (600, 0));
    }

    #[test]
    fn a_segment_that_is_half_new_counts_and_an_acknowledgment_does_not() {
        let mut received = after_syn(7);
        assert!(received.add(&segment(8, 100)));
        assert!(received.add(&segment(58, 100)));
        assert_eq!(received.next, 150);
        assert!(!received.add(&segment(158, 0)));
        assert!(!received.add(&segment(8, 150)));
    }

    #[test]
    fn another_connection_begins_at_its_own_number() {
        let mut received = after_syn(1_000);
        assert!(received.add(&segment(1_001, 500)));
        received.add(&Segment { syn: true, ..segment(90_000, 0) });
        assert!(received.add(&segment(90_001, 500)));
        assert_eq!(received.next, 500);
    }
}
