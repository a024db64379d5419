use steadycast_units::{Bytes, Ecn, Time};

/// A data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number. It counts segments and starts at 0. Segment 0 is the SYN.
    pub seq: u32,
    /// Size on the wire, including IP and TCP headers.
    pub len: Bytes,
    /// The send time, which the timestamp option contains (RFC 7323).
    pub sent: Time,
    /// Whether the same sequence number was sent before.
    pub retransmission: bool,
    /// The CWR flag: the sender has reduced its window after ECE (RFC 3168).
    pub cwr: bool,
    /// The PSH flag: the segment is the last of a TSO unit and must be acknowledged immediately.
    pub push: bool,
    /// The ECN field. A queue may change it to [`Ecn::Ce`].
    pub ecn: Ecn,
}

/// A SACK block: the segments `start..end` have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first segment of the block.
    pub start: u32,
    /// One past the last segment of the block.
    pub end: u32,
}

impl Block {
    /// Whether the block contains no segments.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All segments below this number have arrived.
    pub next: u32,
    /// The SACK blocks, newest first (RFC 2018). They are empty if SACK is not used.
    pub sacks: [Block; 3],
    /// The timestamp echo: the value of [`Segment::sent`] from which the sender measures the RTT (RFC 7323,
    /// section 4.3).
    pub echo: Time,
    /// The ECE flag: a mark has arrived, and the sender has not responded yet. With DCTCP, the flag indicates whether
    /// the acknowledged segments were marked.
    pub ece: bool,
    /// Number of CE-marked segments so far, modulo 2¹⁶, as in accurate ECN feedback (RFC 9768). It is 0 if it is not
    /// used.
    pub marks: u16,
}
