use std::collections::VecDeque;
use steadycast_control::{PacketArrival, PacketReport, Stream};
use steadycast_units::{Bytes, PeerTime, Span, Time};

/// Packets that a sender remembers: fewer than half of a 16-bit number's range, so that a number names one packet.
const REMEMBERED: usize = 1 << 14;

/// Streams that have sequence numbers of their own.
const NUMBERED: usize = 3;

/// Which of them has a stream's numbers: padding has its numbers in the stream of repairs.
const fn numbered(stream: Stream) -> usize {
    match stream {
        Stream::Media => 0,
        Stream::Repair | Stream::Padding => 1,
        Stream::Parity => 2,
    }
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Left {
    at: Time,
    size: Bytes,
    stream: Stream,
    /// The newest sequence number of each stream when it left, its own among them.
    seqs: [u16; NUMBERED],
    /// Its arrival has been told.
    arrived: bool,
    /// Its fate has been told, or been found to be unknown.
    settled: bool,
}

/// The last 16,384 packets that a sender has sent, of all its streams. Feedback names packets; the history says which
/// they are.
#[derive(Debug, Default)]
pub struct History {
    packets: VecDeque<Left>,
    /// The number of the first that is remembered.
    first: u64,
    /// The number of each stream's first packet, remembered or not: those before it know no sequence number of that
    /// stream.
    begun: [Option<u64>; NUMBERED],
    near: Option<PeerTime>,
    /// Up to this number every packet is settled.
    settled: u64,
}

/// Per-packet feedback, joined with what was sent.
#[derive(Debug, Default)]
pub struct Joined {
    /// The packets, in the order in which they were sent. Those that had arrived by an earlier report are left out.
    pub packets: Vec<PacketReport>,
    /// The round trip by the newest packet that has just been told: from its sending to this report's coming, less the
    /// time for which the receiver held it.
    pub rtt: Option<Span>,
}

impl History {
    /// A packet leaves; `number` is one more than the last one's, and `seq` its number in its own stream.
    pub fn on_sent(&mut self, number: u64, at: Time, size: Bytes, stream: Stream, seq: u16) {
        if self.packets.is_empty() {
            self.first = number;
        }
        if self.packets.len() == REMEMBERED {
            self.packets.pop_front();
            self.first += 1;
        }
        let mut seqs = self.packets.back().map_or([0; NUMBERED], |last| last.seqs);
        seqs[numbered(stream)] = seq;
        self.begun[numbered(stream)].get_or_insert(number);
        self.packets.push_back(Left { at, size, stream, seqs, arrived: false, settled: false });
    }

    /// The newest time that the receiver's clock has told.
    pub fn near(&self) -> Option<PeerTime> {
        self.near
    }

    /// The newest packet whose number has these lowest 16 bits; `None` when it is not remembered.
    pub fn by_low_bits(&self, low: u16) -> Option<u64> {
        let newest = self.first + (self.packets.len() as u64).checked_sub(1)?;
        let back = (newest as u16).wrapping_sub(low);
        newest.checked_sub(u64::from(back)).filter(|number| *number >= self.first)
    }

    /// The number of the newest packet with this sequence number in its stream.
    pub fn by_seq(&self, stream: Stream, seq: u16) -> Option<u64> {
        let of = numbered(stream);
        let begun = self.begun[of]?;
        let newest = self.packets.back()?.seqs[of];
        // From packet to packet a stream's number stays or grows, and of its range a quarter is remembered at the most.
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
        (numbered(left.stream) == of && left.seqs[of] == seq).then_some(self.first + low as u64)
    }

    /// Adds to `unknown` the packets before those in `joined` whose fates no feedback has told, each once. Feedback
    /// that has told of a later packet need never tell of these: receivers leave out retransmissions (transport-wide
    /// feedback), and QUIC's acknowledgements name what arrived alone (RFC 9000, section 13.2). Waiting for more of it
    /// would gain nothing, since a fate that is told later still counts.
    pub fn overtaken(&mut self, joined: &Joined, unknown: &mut Vec<PacketReport>) {
        let Some(newest) = joined.packets.iter().map(|packet| packet.number).max() else { return };
        for number in self.settled.max(self.first)..newest {
            self.settle(number, unknown);
        }
        self.settled = self.settled.max(newest);
    }

    /// Adds the packet called `number` to `unknown`, unless its fate has been told or it has been added before.
    pub fn settle(&mut self, number: u64, unknown: &mut Vec<PacketReport>) {
        if let Some(left) =
            self.place(number).and_then(|place| self.packets.get_mut(place)).filter(|left| !left.settled)
        {
            left.settled = true;
            let Left { at: sent, size, stream, .. } = *left;
            unknown.push(PacketReport { number, sent, size, stream, arrived: None });
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok())
    }

    /// Adds to `joined` what feedback says of the packet called `number`. Nothing is added for one that was never sent,
    /// is forgotten, or had arrived before.
    pub fn join(&mut self, number: u64, arrived: Option<PacketArrival>, joined: &mut Joined) {
        let Some(left) = self.place(number).and_then(|place| self.packets.get_mut(place)) else { return };
        if left.arrived {
            return;
        }
        (left.arrived, left.settled) = (arrived.is_some(), true);
        self.near = self.near.max(arrived.and_then(|arrived| arrived.at));
        joined.packets.push(PacketReport { number, sent: left.at, size: left.size, stream: left.stream, arrived });
    }
}

impl Joined {
    /// Puts the packets into the order in which they were sent.
    pub fn sort(&mut self) {
        self.packets.sort_unstable_by_key(|packet| packet.number);
    }

    /// Where all packets arrived at one time, gives each before the newest the time that makes it take as long as that.
    pub(crate) fn spread(&mut self) {
        let arrival = |packet: &PacketReport| packet.arrived.and_then(|arrived| Some((packet.sent, arrived.at?)));
        let Some((sent, at)) = self.packets.iter().rev().find_map(arrival) else { return };
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

    /// Takes the round trip from the newest packet whose arrival is told, in a report written at `reported` that comes
    /// `now`.
    pub fn measure(&mut self, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(0, now, reported);
    }

    /// As [`Joined::measure`], of one of several reports that come together: its packets are those from the place
    /// `first` on. Where none of them has arrived the round trip stays what it was.
    pub fn measure_from(&mut self, first: usize, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(first, now, reported).or(self.rtt);
    }

    fn round_trip(&self, first: usize, now: Time, reported: PeerTime) -> Option<Span> {
        let told = self.packets.iter().skip(first);
        let arrived = told.filter_map(|packet| Some((packet.number, packet.sent, packet.arrived?.at?)));
        let (_, sent, at) = arrived.max_by_key(|(number, ..)| *number)?;
        let held = reported.as_nanos().saturating_sub(at.as_nanos()).max(0);
        Some(now.since(sent).saturating_sub(Span::nanos(held.unsigned_abs())))
    }
}
