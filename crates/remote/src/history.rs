use std::collections::VecDeque;
use steadycast_control::{PacketArrival, PacketReport, Stream};
use steadycast_units::{Bytes, PeerTime, Span, Time};

/// Maximum number of packets in the history. It is less than 2¹⁵, so that numbers of 16 bits are unambiguous.
const HISTORY_PACKETS: usize = 1 << 14;

/// After this number of feedback messages that report arrivals without any arrival time, no later message is expected
/// to have one. A few of the first messages may lack arrival times by chance.
pub(crate) const UNTIMED_MESSAGES: u32 = 3;

const SEQ_SPACES: usize = 4;

/// Returns the index of the sequence number space that a stream uses. Padding and retransmissions share a space.
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
    /// The newest sequence number in each space when this packet was sent, including the number of this packet.
    seqs: [u16; SEQ_SPACES],
    arrived: bool,
    /// Whether feedback has reported the packet's fate, or the fate was declared unknown.
    settled: bool,
    /// Whether feedback does not cover the packet. The packet is then never reported as lost.
    uncovered: bool,
}

/// The last 16,384 packets that were sent, on all streams.
#[derive(Debug, Default)]
pub struct History {
    packets: VecDeque<SentPacket>,
    /// The number of the oldest packet.
    first: u64,
    /// The number of the first packet that was sent in each sequence number space. The packet may have left the
    /// history.
    begun: [Option<u64>; SEQ_SPACES],
    near: Option<PeerTime>,
    /// [`History::settle_before`] has examined all packets below these numbers. The first number is for the calls of
    /// this function with a stream. The second number is for its calls without a stream.
    examined: [u64; 2],
}

/// Per-packet feedback that was matched with the sent packets.
#[derive(Debug, Default)]
pub struct Joined {
    /// The reported packets in the order of sending. Packets that earlier feedback reported as arrived are left out.
    pub packets: Vec<PacketReport>,
    /// The round-trip time of the newest packet that arrived, without the time for which the receiver held the
    /// feedback.
    pub rtt: Option<Span>,
}

impl History {
    /// Records a sent packet. `number` increases by 1 per packet. `seq` is the packet's sequence number in its stream.
    pub fn on_sent(&mut self, number: u64, at: Time, size: Bytes, stream: Stream, seq: u16) {
        if self.packets.is_empty() {
            self.first = number;
        }
        if self.packets.len() == HISTORY_PACKETS {
            self.packets.pop_front();
            self.first += 1;
        }
        // Store the newest sequence numbers of all spaces with each packet, so that `by_seq` can search by bisection.
        let mut seqs = self.packets.back().map_or([0; SEQ_SPACES], |last| last.seqs);
        seqs[seq_space(stream)] = seq;
        self.begun[seq_space(stream)].get_or_insert(number);
        self.packets.push_back(SentPacket { at, size, stream, seqs, arrived: false, settled: false, uncovered: false });
    }

    /// Declares that feedback does not cover packet `number`. Feedback that reports it as missing is then ignored.
    pub fn leave_out(&mut self, number: u64) {
        if let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) {
            left.uncovered = true;
        }
    }

    /// Returns the latest arrival of a packet that feedback has reported, on the receiver's clock. Returns `None` if
    /// there was none.
    pub fn near(&self) -> Option<PeerTime> {
        self.near
    }

    /// Returns the number of the newest packet whose number has these low 16 bits. Returns `None` if the packet is not
    /// in the history.
    pub fn by_low_bits(&self, low: u16) -> Option<u64> {
        let newest = self.first + (self.packets.len() as u64).checked_sub(1)?;
        let back = (newest as u16).wrapping_sub(low);
        newest.checked_sub(u64::from(back)).filter(|number| *number >= self.first)
    }

    /// Returns the number of the newest packet that has this sequence number in its stream. Returns `None` if the
    /// packet is not in the history.
    pub fn by_seq(&self, stream: Stream, seq: u16) -> Option<u64> {
        let of = seq_space(stream);
        let begun = self.begun[of]?;
        let newest = self.packets.back()?.seqs[of];
        // Search by bisection. Sequence numbers increase, and they span at most 16,384 of the 65,536 values.
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

    /// Adds to `unknown` the packets that were sent before the newest packet in `joined` but have not been reported.
    /// Adds each packet only once. Feedback may never report these packets, because QUIC acknowledges only packets that
    /// have arrived (RFC 9000, section 13.2).
    pub fn overtaken(&mut self, joined: &Joined, unknown: &mut Vec<PacketReport>) {
        let Some(newest) = joined.packets.iter().map(|packet| packet.number).max() else { return };
        self.settle_before(newest, None, unknown);
    }

    /// Adds to `unknown` the packets that have a number below `end` and have not been reported. Adds each packet only
    /// once. If `stream` is given, adds only packets of this stream. Only one stream may be used in all calls.
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

    /// Adds packet `number` to `unknown` if it has not been reported. Adds each packet only once.
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

    /// Adds feedback about packet `number` to `joined`. Does nothing if the packet is not in the history, or if it was
    /// already reported as arrived. Also does nothing if the packet is reported as missing after [`History::leave_out`]
    /// was called for it.
    pub fn join(&mut self, number: u64, arrived: Option<PacketArrival>, joined: &mut Joined) {
        let Some(left) = self.index(number).and_then(|index| self.packets.get_mut(index)) else { return };
        // Ignore repeated feedback, which must not count twice. Also ignore that an uncovered packet is reported as
        // missing, because it may have arrived.
        if left.arrived || left.uncovered && arrived.is_none() {
            return;
        }
        (left.arrived, left.settled) = (arrived.is_some(), true);
        self.near = self.near.max(arrived.and_then(|arrived| arrived.at));
        joined.packets.push(PacketReport { number, sent: left.at, size: left.size, stream: left.stream, arrived });
    }
}

impl Joined {
    /// Sorts the packets in the order of sending.
    pub fn sort(&mut self) {
        self.packets.sort_unstable_by_key(|packet| packet.number);
    }

    /// Counts this feedback message among the first ones, if these all report arrivals without arrival times.
    /// `messages` is the count before this message, at most [`UNTIMED_MESSAGES`]. It is `None` if a message has had an
    /// arrival time.
    pub(crate) fn count_untimed(&self, messages: Option<u32>) -> Option<u32> {
        let messages = messages?;
        let mut arrivals = self.packets.iter().filter_map(|packet| packet.arrived).peekable();
        if messages == UNTIMED_MESSAGES || arrivals.peek().is_none() {
            return Some(messages);
        }
        arrivals.all(|arrival| arrival.at.is_none()).then_some(messages + 1)
    }

    /// Sets the arrival time of each packet that has arrived.
    pub(crate) fn arrive_at(&mut self, at: PeerTime) {
        for arrival in self.packets.iter_mut().filter_map(|packet| packet.arrived.as_mut()) {
            arrival.at = Some(at);
        }
    }

    /// Assumes the arrival times that the feedback does not contain, because controllers measure the receive rate and
    /// the queue with arrival times. The packets must be sorted.
    ///
    /// Only packets that have arrived get an arrival time. The delay of such a packet is interpolated between the
    /// nearest packets that have an arrival time. If only one side has such a packet, its delay is used. If no
    /// packet has an arrival time, none is assumed.
    pub fn assume_times(&mut self) {
        let timed = |packet: &PacketReport| {
            let sent = i128::from(packet.sent.as_nanos());
            Some((sent, i128::from(packet.arrived?.at?.as_nanos()) - sent))
        };
        let (mut before, mut rest) = (None, &mut self.packets[..]);
        while !rest.is_empty() {
            let found = rest.iter().position(|packet| timed(packet).is_some());
            let after = found.and_then(|index| timed(&rest[index]));
            let Some((first, last)) = before.or(after).zip(after.or(before)) else { return };
            let (without, others) = rest.split_at_mut(found.unwrap_or(rest.len()));
            for packet in without {
                let sent = i128::from(packet.sent.as_nanos());
                let length = (last.0 - first.0).max(1);
                let delay = first.1 + (last.1 - first.1) * (sent - first.0).clamp(0, length) / length;
                if let Some(arrived) = &mut packet.arrived {
                    arrived.at = i64::try_from(sent + delay).ok().map(PeerTime::from_nanos);
                }
            }
            before = after;
            rest = others.get_mut(1..).unwrap_or_default();
        }
    }

    /// If all arrival times are equal, only the newest packet's time is a real one. Replaces the others, so that each
    /// packet has the one-way delay of the newest packet.
    pub(crate) fn spread(&mut self) {
        let arrival = |packet: &PacketReport| packet.arrived.and_then(|arrived| Some((packet.sent, arrived.at?)));
        let Some((sent, at)) = self.packets.iter().rev().find_map(arrival) else { return };
        // Keep the times if they differ, because they are then real measurements.
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

    /// Measures the round-trip time of the newest packet that arrived. The feedback was written at `reported`, on the
    /// receiver's clock.
    pub fn measure(&mut self, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(0, now, reported);
    }

    /// Measures like [`Joined::measure`], but uses only the packets from index `first` on. If none of these packets has
    /// arrived, the round-trip time stays the same.
    pub fn measure_from(&mut self, first: usize, now: Time, reported: PeerTime) {
        self.rtt = self.round_trip(first, now, reported).or(self.rtt);
    }

    fn round_trip(&self, first: usize, now: Time, reported: PeerTime) -> Option<Span> {
        let told = self.packets.iter().skip(first);
        let arrived = told.filter_map(|packet| Some((packet.number, packet.sent, packet.arrived?.at?)));
        let (_, sent, at) = arrived.max_by_key(|(number, ..)| *number)?;
        // Subtract two times of the receiver's clock, so that its offset cancels.
        let held = reported.as_nanos().saturating_sub(at.as_nanos()).max(0);
        Some(now.since(sent).saturating_sub(Span::nanos(held.unsigned_abs())))
    }
}
