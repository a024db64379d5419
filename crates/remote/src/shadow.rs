//! Receiver halves that the sender runs for its receivers.

use std::collections::VecDeque;
use steadycast_control::{Arrival, Departing, FrameEdge, Notice, ReceiverHalf, Reply, Sent, Slot};
use steadycast_units::{Bytes, Ecn, PeerTime, Span, Time};

/// The maximum number of receivers for which a sender runs a receiver half.
pub const SHADOWS: usize = 4_096;

/// A sent media packet.
#[derive(Clone, Copy)]
pub struct SentMedia {
    /// The number, as in [`Sent::number`].
    pub number: u64,
    /// The extended sequence number.
    pub seq: u64,
    /// The send time.
    pub at: Time,
    /// The IP size.
    pub size: Bytes,
    /// The position in the frame.
    pub edge: FrameEdge,
    /// The sender half's header extension.
    pub notice: Notice,
}

/// The last sent media packets, in order.
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

    /// Sets the next packet's position and header extension.
    pub fn noticed(&mut self, packet: &Departing, notice: Notice) {
        (self.edge, self.notice) = (packet.edge, notice);
    }

    /// Adds the packet.
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

    /// Returns the packet with this number among all streams.
    pub fn by_number(&self, number: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&number, |left| left.number).ok()?)
    }

    /// Returns the packet with this extended sequence number.
    pub fn by_seq(&self, seq: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&seq, |left| left.seq).ok()?)
    }

    /// Clears all header extensions, which another controller wrote.
    pub fn forget_notices(&mut self) {
        self.all.iter_mut().for_each(|left| left.notice = Notice::NONE);
    }
}

/// A receiver half at the sender.
pub struct Shadow {
    /// The receiver half.
    pub half: Box<dyn ReceiverHalf>,
    /// The time up to which it has run.
    pub until: Time,
    /// The first and highest sequence numbers.
    seqs: Option<(u64, u64)>,
    arrived: u64,
    /// Expected and arrived packets up to the last report.
    reported: (u64, u64),
}

impl Shadow {
    /// Creates a shadow without arrivals.
    pub fn new(half: Box<dyn ReceiverHalf>) -> Self {
        Self { half, until: Time::ZERO, seqs: None, arrived: 0, reported: (0, 0) }
    }

    /// Counts a packet that was sent to the receiver.
    pub fn count(&mut self, seq: u64, arrived: bool) {
        // Expected packets count from the receiver's first (RFC 3550, appendix A.3).
        let (first, highest) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((first.min(seq), highest.max(seq)));
        self.arrived += u64::from(arrived);
    }

    /// Returns the highest counted sequence number.
    pub fn highest(&self) -> u64 {
        self.seqs.map_or(0, |(_, highest)| highest)
    }

    /// Returns the arrivals since the last report.
    pub fn news(&self) -> u64 {
        self.arrived - self.reported.1
    }

    /// Passes an arrival to the half. The time is on the sender's clock and never decreases.
    pub fn arrive(&mut self, at: Time, left: &SentMedia, ecn: Ecn) {
        self.until = at.max(self.until);
        let sent = PeerTime::from_nanos(i64::try_from(left.at.as_nanos()).unwrap_or(i64::MAX));
        self.half.on_arrival(&Arrival {
            at: self.until,
            seq: left.seq,
            size: left.size,
            sent,
            // There is no sampling time, so the send time stands in.
            sampled: sent,
            edge: left.edge,
            ecn,
            notice: left.notice.bytes(),
            buffer: None,
        });
    }

    /// Returns the half's report, with its slot.
    pub fn report(&mut self, now: Time, members: u32, interval: Span) -> (Slot, Reply) {
        let all = self.seqs.map_or(0, |(first, highest)| highest - first + 1);
        let expected = all - self.reported.0.min(all);
        let lost = expected as i64 - self.news() as i64;
        // RTCP's nominal share (RFC 3550, section 6.2).
        let slot = Slot { now, expected, lost, members, interval, rtcp_share: 0.05 };
        let reply = self.half.report(&slot);
        // The next report covers a suppressed one's interval.
        if reply != Reply::Suppress {
            self.reported = (all, self.arrived);
        }
        (slot, reply)
    }
}
