//! A receiver half that runs at the sender, in place of a receiver that does not run it, and the packets that it is
//! told of.

use std::collections::VecDeque;
use steadycast_control::{Arrival, Departing, FrameEdge, Notice, ReceiverHalf, Reply, Sent, Slot};
use steadycast_units::{Bytes, Ecn, PeerTime, Span, Time};

/// Receivers whose halves one sender runs, at most.
pub const SHADOWS: usize = 4_096;

/// A packet of the media, as it left.
#[derive(Clone, Copy)]
pub struct Left {
    /// As [`Sent::number`].
    pub number: u64,
    /// Extended sequence number.
    pub seq: u64,
    /// When it left.
    pub at: Time,
    /// IP size.
    pub size: Bytes,
    /// Where it stands in its frame.
    pub edge: FrameEdge,
    /// What the sender half sent along.
    pub notice: Notice,
}

/// The last packets of the media that have left, in order.
pub struct Departures {
    most: usize,
    all: VecDeque<Left>,
    edge: FrameEdge,
    notice: Notice,
}

impl Departures {
    /// As many as `most` are kept.
    pub fn new(most: usize) -> Self {
        Self { most, all: VecDeque::new(), edge: FrameEdge::default(), notice: Notice::NONE }
    }

    /// This packet leaves next, with this notice.
    pub fn noticed(&mut self, packet: &Departing, notice: Notice) {
        (self.edge, self.notice) = (packet.edge, notice);
    }

    /// It has left.
    pub fn sent(&mut self, sent: &Sent) {
        if self.all.len() == self.most {
            self.all.pop_front();
        }
        let Sent { left: at, number, seq, size, .. } = *sent;
        self.all.push_back(Left { number, seq, at, size, edge: self.edge, notice: self.notice });
    }

    /// The oldest.
    pub fn first(&self) -> Option<&Left> {
        self.all.front()
    }

    /// The one with this place among all packets of the session.
    pub fn by_number(&self, number: u64) -> Option<&Left> {
        self.all.get(self.all.binary_search_by_key(&number, |left| left.number).ok()?)
    }

    /// The one with this extended sequence number.
    pub fn by_seq(&self, seq: u64) -> Option<&Left> {
        self.all.get(self.all.binary_search_by_key(&seq, |left| left.seq).ok()?)
    }

    /// What they carry was said in another controller's words.
    pub fn forget_notices(&mut self) {
        self.all.iter_mut().for_each(|left| left.notice = Notice::NONE);
    }
}

/// The receiver half that stands in for one receiver.
pub struct Shadow {
    /// The half.
    pub half: Box<dyn ReceiverHalf>,
    /// How far its time has come.
    pub until: Time,
    /// First and highest sequence number, and packets that came.
    seqs: Option<(u64, u64)>,
    came: u64,
    /// Packets expected and come at its last report.
    said: (u64, u64),
}

impl Shadow {
    /// Nothing has come yet.
    pub fn new(half: Box<dyn ReceiverHalf>) -> Self {
        Self { half, until: Time::ZERO, seqs: None, came: 0, said: (0, 0) }
    }

    /// Counts a packet that was sent to it.
    pub fn count(&mut self, seq: u64, came: bool) {
        let (first, highest) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((first.min(seq), highest.max(seq)));
        self.came += u64::from(came);
    }

    /// The highest sequence number that was counted.
    pub fn highest(&self) -> u64 {
        self.seqs.map_or(0, |(_, highest)| highest)
    }

    /// Packets that have come since its last report.
    pub fn news(&self) -> u64 {
        self.came - self.said.1
    }

    /// Tells the half of a packet that came, by the sender's clock, no earlier than what it has been told of before.
    pub fn arrive(&mut self, at: Time, left: &Left, ecn: Ecn) {
        self.until = at.max(self.until);
        let sent = PeerTime::from_nanos(i64::try_from(left.at.as_nanos()).unwrap_or(i64::MAX));
        self.half.on_arrival(&Arrival {
            at: self.until,
            seq: left.seq,
            size: left.size,
            sent,
            sampled: sent,
            edge: left.edge,
            ecn,
            notice: left.notice.bytes(),
            buffer: None,
        });
    }

    /// What the half reports now, with what it was asked to report on.
    pub fn report(&mut self, now: Time, members: u32, interval: Span) -> (Slot, Reply) {
        let all = self.seqs.map_or(0, |(first, highest)| highest - first + 1);
        let expected = all - self.said.0.min(all);
        let lost = expected as i64 - self.news() as i64;
        let slot = Slot { now, expected, lost, members, interval, rtcp_share: 0.05 };
        let reply = self.half.report(&slot);
        if reply != Reply::Suppress {
            self.said = (all, self.came);
        }
        (slot, reply)
    }
}
