use steadycast_units::{Bytes, Ecn, Time};

/// A data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number, counted in segments from 0. With a handshake, segment 0 is the SYN.
    pub seq: u32,
    /// The size on the wire, with IP and TCP headers.
    pub len: Bytes,
    /// The send time, as the timestamp option (RFC 7323).
    pub sent: Time,
    /// Whether this sequence number was sent before.
    pub retransmission: bool,
    /// CWR: the window was reduced after ECE (RFC 3168).
    pub cwr: bool,
    /// PSH: the segment is the last of a TSO unit, and is acknowledged immediately.
    pub push: bool,
    /// The ECN field; a queue may change it to [`Ecn::Ce`].
    pub ecn: Ecn,
}

/// A SACK block: the segments `start..end` have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first segment.
    pub start: u32,
    /// One past the last segment.
    pub end: u32,
}

impl Block {
    /// Whether the block has no segments.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All segments below this number have arrived.
    pub next: u32,
    /// The SACK blocks, newest first (RFC 2018); empty without SACK.
    pub sacks: [Block; 3],
    /// The timestamp echo: the [`Segment::sent`] for the RTT (RFC 7323, section 4.3).
    pub echo: Time,
    /// ECE, until the sender responds; with DCTCP, whether the acknowledged segments were marked.
    pub ece: bool,
    /// The CE-marked segments so far, modulo 2¹⁶, as in accurate ECN feedback (RFC 9768); 0 if unused.
    pub marks: u16,
}
