use std::collections::VecDeque;
use steadycast_control::{PacketArrival, PacketReport, Stream};
use steadycast_units::{Bytes, PeerTime, Span, Time};

/// The number of packets in the history. It is less than half of the range of a 16-bit number, so that a number
/// identifies one packet.
const HISTORY_PACKETS: usize = 1 << 14;

/// The number of sequence number spaces.
const SEQ_SPACES: usize = 4;

/// Returns the index of a stream's sequence number space. Padding uses the space of retransmissions.
const fn seq_space(stream: Stream) -> usize {
    match stream {
        Stream::Media => 0,
        Stream::Repair | Stream::Padding => 1,
        Stream::Parity => 2,
        Stream::Audio => 3,
    }
}

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    at: Time,
    size: Bytes,
    stream: Stream,
    /// The newest sequence number in each space at the send time, including the packet's own.
    seqs: [u16; SEQ_SPACES],
    /// Whether the packet was reported as arrived.
    arrived: bool,
    /// Whether the packet's fate was reported, or declared unknown.
    settled: bool,
    /// True if feedback never covers the packet. Its absence from feedback is then not a loss.
    uncovered: bool,
}

/// The last 16,384 packets that a sender has sent on all its streams. Feedback refers to packets by numbers, which the
/// history resolves.
#[derive(Debug, Default)]
pub struct History {
    packets: VecDeque<SentPacket>,
    /// The number of the oldest packet in the history.
    first: u64,
    /// The number of the first packet in each sequence number space, even if it is no longer in the history. Packets
    /// before it have no sequence number in that space.
    begun: [Option<u64>; SEQ_SPACES],
    near: Option<PeerTime>,
    /// The fates of all packets before this number were reported, or were passed on as unknown.
    settled: u64,
}

/// Per-packet feedback, joined with the history.
#[derive(Debug, Default)]
pub struct Joined {
    /// The packets in the order of sending. Packets that an earlier report has covered as arrived are left out.
    pub packets: Vec<PacketReport>,
    /// The round-trip time by the newest packet in the report: from its send time to the report's arrival, minus the
    /// hold time at the receiver.
    pub rtt: Option<Span>,
}

impl History {
    /// Records a packet that is sent. `number` is one more than the previous one, and `seq` is the number in the
    /// packet's own stream.
    pub fn on_sent(&mut self, number: u64, at: Time, size: Bytes, stream: Stream, seq: u16) {
        if self.packets.is_empty() {
            self.first = number;
        }
        // A larger history would make 16-bit numbers ambiguous.
        if self.packets.len() == HISTORY_PACKETS {
            self.packets.pop_front();
            self.first += 1;
        }
        // Each packet stores the newest number of every space, which makes the search in `by_seq` possible.
        let mut seqs = self.packets.back().map_or([0; SEQ_SPACES], |last| last.seqs);
        seqs[seq_space(stream)] = seq;
        self.begun[seq_space(stream)].get_or_insert(number);
        self.packets.push_back(SentPacket { at, size, stream, seqs, arrived: false, settled: false, uncovered: false });
    }

    /// Declares that feedback does not cover packet `number`. A report that this packet is missing is then ignored,
    /// because transport-wide feedback can't distinguish a packet that the receiver leaves out from one that has not
    /// arrived.
    pub fn leave_out(&mut self, number: u64) {
        if let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) {
            left.uncovered = true;
        }
    }

    /// Returns the newest time of the receiver's clock in the feedback so far.
    pub fn near(&self) -> Option<PeerTime> {
        self.near
    }

    /// Returns the number of the newest packet with these low 16 bits; `None` if it is not in the history.
    pub fn by_low_bits(&self, low: u16) -> Option<u64> {
        let newest = self.first + (self.packets.len() as u64).checked_sub(1)?;
        let back = (newest as u16).wrapping_sub(low);
        newest.checked_sub(u64::from(back)).filter(|number| *number >= self.first)
    }

    /// Returns the number of the newest packet with this sequence number in its stream.
    pub fn by_seq(&self, stream: Stream, seq: u16) -> Option<u64> {
        let of = seq_space(stream);
        let begun = self.begun[of]?;
        let newest = self.packets.back()?.seqs[of];
        // A stream's number never decreases from packet to packet, and the history covers at most a quarter of its
        // range. The distance to the newest number can therefore be searched by bisection.
        let wanted = newest.wrapping_sub(seq);
        let (mut low, mut high) = (begun.saturating_sub(self.first) as usize, self.packets.len());
        while low < high {
            let middle = low.midpoint(high);
            if newest.wrapping_sub(self.packets[middle].seqs[of]) > wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let left = self.packets.get(low)?;
        (seq_space(left.stream) == of && left.seqs[of] == seq).then_some(self.first + low as u64)
    }

    /// Adds to `unknown` the packets before the newest one in `joined` whose fates were not reported, each once.
    /// Feedback that has covered a later packet may never cover these. Receivers leave out retransmissions
    /// (transport-wide feedback), and QUIC's acknowledgements only name packets that have arrived (RFC 9000, section
    /// 13.2). There is no need to wait for more feedback first, because a fate that is reported later still counts.
    pub fn overtaken(&mut self, joined: &Joined, unknown: &mut Vec<PacketReport>) {
        let Some(newest) = joined.packets.iter().map(|packet| packet.number).max() else { return };
        for number in self.settled.max(self.first)..newest {
            self.settle(number, unknown);
        }
        self.settled = self.settled.max(newest);
    }

    /// Adds packet `number` to `unknown`, unless its fate was reported or it was added before.
    pub fn settle(&mut self, number: u64, unknown: &mut Vec<PacketReport>) {
        if let Some(left) =
            self.index(number).and_then(|index| self.packets.get_mut(index)).filter(|left| !left.settled)
        {
            left.settled = true;
            let SentPacket { at: sent, size, stream, .. } = *left;
            unknown.push(PacketReport { number, sent, size, stream, arrived: None });
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok())
    }

    /// Adds the feedback about packet `number` to `joined`. A packet that was never sent, has left the history or was
    /// already reported as arrived is ignored.
    pub fn join(&mut self, number: u64, arrived: Option<PacketArrival>, joined: &mut Joined) {
        let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) else { return };
        // Repeated feedback must not count an arrival twice.
        if left.arrived || left.uncovered && arrived.is_none() {
            return;
        }
        (left.arrived, left.settled) = (arrived.is_some(), true);
        self.near = self.near.max(arrived.and_then(|arrived| arrived.at));
        joined.packets.push(PacketReport { number, sent: left.at, size: left.size, stream: left.stream, arrived });
    }
}

impl Joined {
    /// Sorts the packets by the order of sending.
    pub fn sort(&mut self) {
        self.packets.sort_unstable_by_key(|packet| packet.number);
    }

    /// If all packets have the same arrival time, interpolates their arrival times. Each packet before the newest one
    /// gets the arrival time at which its one-way delay equals that of the newest one.
    pub(crate) fn spread(&mut self) {
        let arrival = |packet: &PacketReport| packet.arrived.and_then(|arrived| Some((packet.sent, arrived.at?)));
        let Some((sent, at)) = self.packets.iter().rev().find_map(arrival) else { return };
        // Different arrival times are real measurements, and are kept.
        if self.packets.iter().filter_map(arrival).any(|(_, other)| other != at) {
            return;
        }
        for packet in &mut self.packets {
            let earlier = i64::try_from(sent.since(packet.sent).as_nanos()).unwrap_or(0);
            if let Some(at) = packet.arrived.as_mut().and_then(|arrived| arrived.at.as_mut()) {
                *at = PeerTime::from_nanos(at.as_nanos().saturating_sub(earlier));
            }
        }
    }

    /// Measures the round-trip time by the newest packet that has arrived. The report was written at `reported` on the
    /// receiver's clock and arrived at `now`.
    pub fn measure(&mut self, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(0, now, reported);
    }

    /// Measures the round-trip time as [`Joined::measure`] does, but from one of several reports that arrive together.
    /// The packets of this report begin at index `first`. If none of them has arrived, the round-trip time is kept.
    pub fn measure_from(&mut self, first: usize, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(first, now, reported).or(self.rtt);
    }

    fn round_trip(&self, first: usize, now: Time, reported: PeerTime) -> Option<Span> {
        let told = self.packets.iter().skip(first);
        let arrived = told.filter_map(|packet| Some((packet.number, packet.sent, packet.arrived?.at?)));
        let (_, sent, at) = arrived.max_by_key(|(number, ..)| *number)?;
        // Both times are on the receiver's clock, so the clock's offset cancels.
        let held = reported.as_nanos().saturating_sub(at.as_nanos()).max(0);
        Some(now.since(sent).saturating_sub(Span::nanos(held.unsigned_abs())))
    }
}
