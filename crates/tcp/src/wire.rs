use steadycast_units::{Bytes, Ecn, Time};

/// One segment, from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 0. With a handshake, 0 is the SYN.
    pub seq: u32,
    /// Size on the wire, IP and TCP headers included.
    pub len: Bytes,
    /// When it left: the timestamp option, which the receiver echoes.
    pub sent: Time,
    /// Whether this number was sent before.
    pub retransmission: bool,
    /// The sender has answered the last echo of a mark.
    pub cwr: bool,
    /// It ends what was sent at once (PSH): the receiving application takes it, and it is acknowledged.
    pub push: bool,
    /// To be changed to [`Ecn::Ce`] by a queue that marks.
    pub ecn: Ecn,
}

/// Segments `start..end` that have arrived beyond a gap; empty where `start == end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub start: u32,
    /// The number after the last one.
    pub end: u32,
}

impl Block {
    /// Whether it holds nothing.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// One acknowledgment, from the receiver to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The number awaited next: all below it have arrived.
    pub next: u32,
    /// What has arrived beyond `next`, the latest first (RFC 2018); all empty when SACK is off.
    pub sacks: [Block; 3],
    /// [`Segment::sent`] of the segment that this acknowledgment is measured by (RFC 7323, section 4.3).
    pub echo: Time,
    /// A mark arrived and the sender has not answered it yet; for DCTCP: what is acknowledged was marked.
    pub ece: bool,
    /// How many marked segments have arrived, modulo 2¹⁶: the counter of packets of accurate ECN feedback, as if it
    /// were never too short. 0 for senders that don't read it.
    pub marks: u16,
}
