use std::collections::VecDeque;
use steadycast_control::{PacketArrival, PacketReport, Stream};
use steadycast_units::{Bytes, PeerTime, Span, Time};

/// The maximum number of packets in the history. It is less than 2¹⁵, so that 16-bit numbers are unambiguous.
const HISTORY_PACKETS: usize = 1 << 14;

const SEQ_SPACES: usize = 4;

/// Returns the sequence number space of a stream; padding shares that of retransmissions.
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
    /// The newest number of each sequence number space, including this packet's number.
    seqs: [u16; SEQ_SPACES],
    arrived: bool,
    /// Whether the fate was reported or declared unknown.
    settled: bool,
    /// Whether feedback does not cover the packet, so that it is not reported as lost.
    uncovered: bool,
}

/// The last 16,384 packets sent on all streams.
#[derive(Debug, Default)]
pub struct History {
    packets: VecDeque<SentPacket>,
    /// The oldest packet's number.
    first: u64,
    /// The number of the first packet in each sequence number space. The packet may have left the history.
    begun: [Option<u64>; SEQ_SPACES],
    near: Option<PeerTime>,
    /// All packets before these numbers were examined by [`History::settle_before`]: for one stream, and for all.
    examined: [u64; 2],
}

/// Per-packet feedback, joined with the history.
#[derive(Debug, Default)]
pub struct Joined {
    /// The reported packets in the order of sending. Earlier feedback did not report them as arrived.
    pub packets: Vec<PacketReport>,
    /// The round-trip time by the newest packet, without the receiver's hold time.
    pub rtt: Option<Span>,
}

impl History {
    /// Records a sent packet. `number` increases by 1 per packet; `seq` is the sequence number in the stream.
    pub fn on_sent(&mut self, number: u64, at: Time, size: Bytes, stream: Stream, seq: u16) {
        if self.packets.is_empty() {
            self.first = number;
        }
        if self.packets.len() == HISTORY_PACKETS {
            self.packets.pop_front();
            self.first += 1;
        }
        // Each packet has the newest numbers of all spaces, so that `by_seq` can bisect.
        let mut seqs = self.packets.back().map_or([0; SEQ_SPACES], |last| last.seqs);
        seqs[seq_space(stream)] = seq;
        self.begun[seq_space(stream)].get_or_insert(number);
        self.packets.push_back(SentPacket { at, size, stream, seqs, arrived: false, settled: false, uncovered: false });
    }

    /// Declares that feedback does not cover packet `number`; reports of it as missing are then ignored.
    pub fn leave_out(&mut self, number: u64) {
        if let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) {
            left.uncovered = true;
        }
    }

    /// Returns the newest time of the receiver's clock so far.
    pub fn near(&self) -> Option<PeerTime> {
        self.near
    }

    /// Returns the number of the newest packet with these low 16 bits; `None` if it is not in the history.
    pub fn by_low_bits(&self, low: u16) -> Option<u64> {
        let newest = self.first + (self.packets.len() as u64).checked_sub(1)?;
        let back = (newest as u16).wrapping_sub(low);
        newest.checked_sub(u64::from(back)).filter(|number| *number >= self.first)
    }

    /// Returns the number of the newest packet with this sequence number in its stream; `None` if unknown.
    pub fn by_seq(&self, stream: Stream, seq: u16) -> Option<u64> {
        let of = seq_space(stream);
        let begun = self.begun[of]?;
        let newest = self.packets.back()?.seqs[of];
        // Bisection works, because sequence numbers increase and span at most 16,384 of the 65,536 values.
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

    /// Adds to `unknown` the unreported packets before the newest packet in `joined`, each once. Feedback may never
    /// cover them, because QUIC acknowledges only packets that have arrived (RFC 9000, section 13.2).
    pub fn overtaken(&mut self, joined: &Joined, unknown: &mut Vec<PacketReport>) {
        let Some(newest) = joined.packets.iter().map(|packet| packet.number).max() else { return };
        self.settle_before(newest, None, unknown);
    }

    /// Adds to `unknown` the unreported packets before `end`, each once: those of `stream`, or of all streams. All
    /// calls with a stream must have the same one.
    pub fn settle_before(&mut self, end: u64, stream: Option<Stream>, unknown: &mut Vec<PacketReport>) {
        let which = usize::from(stream.is_none());
        for number in self.examined[which].max(self.first)..end {
            let packet = self.index(number).and_then(|index| self.packets.get(index));
            if packet.is_some_and(|packet| stream.is_none_or(|stream| stream == packet.stream)) {
                self.settle(number, unknown);
            }
        }
        self.examined[which] = self.examined[which].max(end);
    }

    /// Adds packet `number` to `unknown`, once and only if it is unreported.
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

    /// Adds feedback about packet `number` to `joined`, unless it is unknown or was reported as arrived.
    pub fn join(&mut self, number: u64, arrived: Option<PacketArrival>, joined: &mut Joined) {
        let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) else { return };
        // Repeated feedback must not count twice.
        if left.arrived || left.uncovered && arrived.is_none() {
            return;
        }
        (left.arrived, left.settled) = (arrived.is_some(), true);
        self.near = self.near.max(arrived.and_then(|arrived| arrived.at));
        joined.packets.push(PacketReport { number, sent: left.at, size: left.size, stream: left.stream, arrived });
    }
}

impl Joined {
    /// Sorts by the order of sending.
    pub fn sort(&mut self) {
        self.packets.sort_unstable_by_key(|packet| packet.number);
    }

    /// If all arrival times are equal, replaces them, so that each packet has the newest packet's one-way delay.
    pub(crate) fn spread(&mut self) {
        let arrival = |packet: &PacketReport| packet.arrived.and_then(|arrived| Some((packet.sent, arrived.at?)));
        let Some((sent, at)) = self.packets.iter().rev().find_map(arrival) else { return };
        // Different times are real measurements.
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

    /// Measures the round-trip time by the newest arrival. The report was written at `reported` on the receiver's
    /// clock.
    pub fn measure(&mut self, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(0, now, reported);
    }

    /// Measures as [`Joined::measure`], but only by the packets from index `first`. Without an arrival among these
    /// packets, the round-trip time stays the same.
    pub fn measure_from(&mut self, first: usize, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(first, now, reported).or(self.rtt);
    }

    fn round_trip(&self, first: usize, now: Time, reported: PeerTime) -> Option<Span> {
        let told = self.packets.iter().skip(first);
        let arrived = told.filter_map(|packet| Some((packet.number, packet.sent, packet.arrived?.at?)));
        let (_, sent, at) = arrived.max_by_key(|(number, ..)| *number)?;
        // The receiver's clock offset cancels.
        let held = reported.as_nanos().saturating_sub(at.as_nanos()).max(0);
        Some(now.since(sent).saturating_sub(Span::nanos(held.unsigned_abs())))
    }
}
