use steadycast_units::{Bytes, Ecn, Time};

/// A segment, from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number, from 0. With a handshake, 0 is the SYN.
    pub seq: u32,
    /// The size on the wire, IP and TCP headers included.
    pub len: Bytes,
    /// The time of transmission. It serves as the timestamp option, which the receiver echoes (RFC 7323).
    pub sent: Time,
    /// Whether this sequence number was sent before.
    pub retransmission: bool,
    /// The CWR flag: the sender has reduced its window after an ECE flag (RFC 3168).
    pub cwr: bool,
    /// The PSH flag on the last segment of a unit. The segment is acknowledged immediately.
    pub push: bool,
    /// The ECN field; a queue that marks changes it to [`Ecn::Ce`].
    pub ecn: Ecn,
}

/// A SACK block: the segments `start..end` have arrived beyond a gap. It is empty if `start == end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first segment.
    pub start: u32,
    /// One past the number of the last segment.
    pub end: u32,
}

impl Block {
    /// Whether the block has no segments.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// An acknowledgment, from the receiver to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The cumulative acknowledgment: all segments below this number have arrived.
    pub next: u32,
    /// The SACK blocks beyond `next`, the most recent first (RFC 2018); all empty without SACK.
    pub sacks: [Block; 3],
    /// The timestamp echo: the [`Segment::sent`] of the segment from which the sender measures the RTT (RFC 7323,
    /// section 4.3).
    pub echo: Time,
    /// The ECE flag. It is set from the arrival of a CE mark until the sender responds. With DCTCP it is set if the
    /// acknowledged segments were marked.
    pub ece: bool,
    /// The CE-marked segments that have arrived, modulo 2¹⁶: the packet counter of accurate ECN feedback (RFC 9768),
    /// but with enough bits to be unambiguous. It is 0 if the sender does not read it.
    pub marks: u16,
}
