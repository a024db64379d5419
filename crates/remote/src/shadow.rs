//! A receiver half that the sender runs for a receiver that has none, and the packets that are replayed to it.

use std::collections::VecDeque;
use steadycast_control::{Arrival, Departing, FrameEdge, Notice, ReceiverHalf, Reply, Sent, Slot};
use steadycast_units::{Bytes, Ecn, PeerTime, Span, Time};

/// The maximum number of receivers whose halves one sender runs.
pub const SHADOWS: usize = 4_096;

/// A media packet that was sent.
#[derive(Clone, Copy)]
pub struct SentMedia {
    /// The packet's number, as in [`Sent::number`].
    pub number: u64,
    /// The extended sequence number.
    pub seq: u64,
    /// The send time.
    pub at: Time,
    /// The IP size.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
    /// The header extension of the sender half.
    pub notice: Notice,
}

/// The last media packets that were sent, in order.
pub struct Departures {
    most: usize,
    all: VecDeque<SentMedia>,
    edge: FrameEdge,
    notice: Notice,
}

impl Departures {
    /// Creates a list of at most `most` packets.
    pub fn new(most: usize) -> Self {
        Self { most, all: VecDeque::new(), edge: FrameEdge::default(), notice: Notice::NONE }
    }

    /// Sets the position and the header extension of the next packet.
    pub fn noticed(&mut self, packet: &Departing, notice: Notice) {
        (self.edge, self.notice) = (packet.edge, notice);
    }

    /// Adds the packet, which is now sent.
    pub fn sent(&mut self, sent: &Sent) {
        if self.all.len() == self.most {
            self.all.pop_front();
        }
        let Sent { left: at, number, seq, size, .. } = *sent;
        self.all.push_back(SentMedia { number, seq, at, size, edge: self.edge, notice: self.notice });
    }

    /// Returns the oldest packet.
    pub fn first(&self) -> Option<&SentMedia> {
        self.all.front()
    }

    /// Returns the packet with this number among all packets of the session.
    pub fn by_number(&self, number: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&number, |left| left.number).ok()?)
    }

    /// Returns the packet with this extended sequence number.
    pub fn by_seq(&self, seq: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&seq, |left| left.seq).ok()?)
    }

    /// Clears all header extensions, because they were written by another controller.
    pub fn forget_notices(&mut self) {
        self.all.iter_mut().for_each(|left| left.notice = Notice::NONE);
    }
}

/// A receiver half that runs at the sender in place of one receiver's own half.
pub struct Shadow {
    /// The receiver half.
    pub half: Box<dyn ReceiverHalf>,
    /// The time up to which the half has run.
    pub until: Time,
    /// The first and the highest sequence number, and the number of packets that have arrived.
    seqs: Option<(u64, u64)>,
    arrived: u64,
    /// The numbers of packets expected and arrived up to the last report.
    reported: (u64, u64),
}

impl Shadow {
    /// Creates a shadow without arrivals.
    pub fn new(half: Box<dyn ReceiverHalf>) -> Self {
        Self { half, until: Time::ZERO, seqs: None, arrived: 0, reported: (0, 0) }
    }

    /// Counts a packet that was sent to the receiver, and whether it has arrived.
    pub fn count(&mut self, seq: u64, arrived: bool) {
        // Expected packets are counted from the first one that was sent to this receiver (RFC 3550, appendix A.3).
        let (first, highest) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((first.min(seq), highest.max(seq)));
        self.arrived += u64::from(arrived);
    }

    /// Returns the highest sequence number that was counted.
    pub fn highest(&self) -> u64 {
        self.seqs.map_or(0, |(_, highest)| highest)
    }

    /// Returns the number of packets that have arrived since the last report.
    pub fn news(&self) -> u64 {
        self.arrived - self.reported.1
    }

    /// Passes an arrival to the half. The time is on the sender's clock, and never earlier than that of the previous
    /// call.
    pub fn arrive(&mut self, at: Time, left: &SentMedia, ecn: Ecn) {
        self.until = at.max(self.until);
        let sent = PeerTime::from_nanos(i64::try_from(left.at.as_nanos()).unwrap_or(i64::MAX));
        self.half.on_arrival(&Arrival {
            at: self.until,
            seq: left.seq,
            size: left.size,
            sent,
            // The record of sent packets has no sampling time, so the send time replaces it.
            sampled: sent,
            edge: left.edge,
            ecn,
            notice: left.notice.bytes(),
            buffer: None,
        });
    }

    /// Requests a report from the half. Returns the report with the slot that it is based on.
    pub fn report(&mut self, now: Time, members: u32, interval: Span) -> (Slot, Reply) {
        let all = self.seqs.map_or(0, |(first, highest)| highest - first + 1);
        let expected = all - self.reported.0.min(all);
        let lost = expected as i64 - self.news() as i64;
        // The nominal share of RTCP in the bandwidth is used (RFC 3550, section 6.2).
        let slot = Slot { now, expected, lost, members, interval, rtcp_share: 0.05 };
        let reply = self.half.report(&slot);
        // A suppressed report was not sent, so the next one covers its interval as well.
        if reply != Reply::Suppress {
            self.reported = (all, self.arrived);
        }
        (slot, reply)
    }
}
