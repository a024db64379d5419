//! Retransmission of lost packets (RFC 4588), asked for by generic NACKs (RFC 4585, section 6.2.1), and parity, from which receivers compute
//! what they have lost.
//!
//! A [`Requester`] at the receiver finds gaps and says when to ask. A [`Keeper`] at the sender keeps what was sent and says what to
//! send again. Retransmissions leave through the media's pacer, so that they are part of the rate that the controller decided.

mod blocks;
mod keeper;
mod requester;

pub(crate) use blocks::{Blocks, PARITY_MORE, Parity, Solver};
pub use blocks::{ParitySettings, Protected, Protection};
pub(crate) use keeper::{Asked, Keeper, Kept, Resend};
pub(crate) use requester::Requester;

use steadycast_units::Span;

/// How a session of two members repairs losses. Both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    /// Synchronisation source of the retransmission stream.
    pub ssrc: u32,
    /// RTP payload type of the retransmission stream.
    pub payload_type: u8,
    /// Time between a frame being ready and its being shown; `None`: a packet is of use for one second.
    pub playout: Option<Span>,
}

impl RepairSettings {
    /// How long after its frame was ready a packet is of use.
    fn useful(&self) -> Span {
        self.playout.unwrap_or(KEPT)
    }
}

/// Packets are kept for at least this time.
const KEPT: Span = Span::secs(1);

/// What a receiver has asked for, and what it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// RTCP packets with a NACK.
    pub nacks: u64,
    /// Packets that were asked for, each as often as it was.
    pub asked: u64,
    /// Lost packets that came after all, as retransmissions.
    pub repaired: u64,
}

impl std::ops::Add for Requests {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self { nacks: self.nacks + more.nacks, asked: self.asked + more.asked, repaired: self.repaired + more.repaired }
    }
}

/// What a sender was asked for, and what it sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Retransmitted packets.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: steadycast_units::Bytes,
    /// Requests for packets that were not sent again because retransmissions had taken their share of the rate.
    pub refused: u64,
    /// Requests for packets that could not have come in time.
    pub stale: u64,
    /// Packets of parity.
    pub parities: u64,
    /// Their IP bytes.
    pub parity_bytes: steadycast_units::Bytes,
}

impl std::ops::Add for Repairs {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self {
            packets: self.packets + more.packets,
            bytes: self.bytes + more.bytes,
            refused: self.refused + more.refused,
            stale: self.stale + more.stale,
            parities: self.parities + more.parities,
            parity_bytes: self.parity_bytes + more.parity_bytes,
        }
    }
}
