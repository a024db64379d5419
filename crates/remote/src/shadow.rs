//! A sender can run the receiver part of a controller ([`ReceiverHalf`]) for each of its receivers.

use std::collections::VecDeque;
use steadycast_control::{Arrival, Departing, FrameEdge, Notice, ReceiverHalf, Reply, Sent, Slot};
use steadycast_units::{Bytes, Ecn, PeerTime, Span, Time};

/// Maximum number of receivers for which a sender runs a receiver part.
pub const SHADOWS: usize = 4_096;

/// A media packet that was sent.
#[derive(Clone, Copy)]
pub struct SentMedia {
    /// The number of the packet, as in [`Sent::number`].
    pub number: u64,
    /// The extended sequence number of the packet.
    pub seq: u64,
    /// When the packet was sent.
    pub at: Time,
    /// The size of the IP packet in bytes.
    pub size: Bytes,
    /// The position of the packet in its frame.
    pub edge: FrameEdge,
    /// The RTP header extension that the controller's sender part wrote.
    pub notice: Notice,
}

/// The media packets that were sent last, in order.
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

    /// Sets the position and the header extension of the packet that is sent next.
    pub fn noticed(&mut self, packet: &Departing, notice: Notice) {
        (self.edge, self.notice) = (packet.edge, notice);
    }

    /// Adds a packet that was sent. If the list is full, removes the oldest packet.
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

    /// Returns the packet that has this number. Packets of all streams are numbered together.
    pub fn by_number(&self, number: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&number, |left| left.number).ok()?)
    }

    /// Returns the packet with this extended sequence number.
    pub fn by_seq(&self, seq: u64) -> Option<&SentMedia> {
        self.all.get(self.all.binary_search_by_key(&seq, |left| left.seq).ok()?)
    }

    /// Clears all header extensions. They were written by another controller.
    pub fn forget_notices(&mut self) {
        self.all.iter_mut().for_each(|left| left.notice = Notice::NONE);
    }
}

/// The receiver part of a controller, run at the sender for one receiver.
pub struct Shadow {
    /// The receiver part.
    pub half: Box<dyn ReceiverHalf>,
    /// The time up to which the receiver part has run.
    pub until: Time,
    /// The first and the highest sequence number, if packets were counted.
    seqs: Option<(u64, u64)>,
    arrived: u64,
    /// The number of expected packets and the number of arrived packets, up to the last report.
    reported: (u64, u64),
}

impl Shadow {
    /// Creates a receiver part for which no packet has arrived yet.
    pub fn new(half: Box<dyn ReceiverHalf>) -> Self {
        Self { half, until: Time::ZERO, seqs: None, arrived: 0, reported: (0, 0) }
    }

    /// Counts a packet that was sent to the receiver. `arrived` states whether it has arrived.
    pub fn count(&mut self, seq: u64, arrived: bool) {
        // Start the number of expected packets at the lowest sequence number that was counted (RFC 3550, appendix A.3).
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

    /// Passes an arrival to the receiver part. `at` is on the sender's clock. The receiver part's time never decreases.
    pub fn arrive(&mut self, at: Time, left: &SentMedia, ecn: Ecn) {
        self.until = at.max(self.until);
        let sent = PeerTime::from_nanos(i64::try_from(left.at.as_nanos()).unwrap_or(i64::MAX));
        self.half.on_arrival(&Arrival {
            at: self.until,
            seq: left.seq,
            size: left.size,
            sent,
            // Use the send time, because the sampling time is unknown.
            sampled: sent,
            edge: left.edge,
            ecn,
            notice: left.notice.bytes(),
            buffer: None,
        });
    }

    /// Asks the receiver part for its report. Returns the reply and the slot that was passed to it.
    pub fn report(&mut self, now: Time, members: u32, interval: Span) -> (Slot, Reply) {
        let all = self.seqs.map_or(0, |(first, highest)| highest - first + 1);
        let expected = all - self.reported.0.min(all);
        let lost = expected as i64 - self.news() as i64;
        // The nominal share of the bandwidth that RTCP may use (RFC 3550, section 6.2).
        let slot = Slot { now, expected, lost, members, interval, rtcp_share: 0.05 };
        let reply = self.half.report(&slot);
        // If the report was suppressed, let the next report cover its interval too.
        if reply != Reply::Suppress {
            self.reported = (all, self.arrived);
        }
        (slot, reply)
    }
}
