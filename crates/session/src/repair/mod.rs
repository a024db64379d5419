//! Retransmission of lost packets (RFC 4588), asked for by generic NACKs (RFC 4585, section 6.2.1), and parity, from
//! which receivers compute what they have lost.
//!
//! A [`Requester`] at the receiver finds gaps and says when to ask. A [`Keeper`] at the sender keeps what was sent and
//! says what to send again. Retransmissions leave through the media's pacer, so that they are part of the rate that the
//! controller decided.

mod asker;
mod blocks;
mod keeper;
mod requester;

pub(crate) use asker::{ASKING, Asker, Group};
pub(crate) use blocks::{AskedParity, Blocks, Need, Parity, Solver};
pub use blocks::{PARITY_MORE, ParitySettings, Protected, Protection, Recovered};
pub(crate) use keeper::{Asked, Keeper, Kept, Resend};
pub(crate) use requester::Requester;

use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time, sums};

/// How a session of two members repairs losses. Both ends have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What is sent on request takes at most this share of the rate (str0m's bound).
const SHARE: f64 = 0.15;
/// What is not used of the share is kept for this time. libwebrtc bounds retransmissions over 500 ms; bursts of losses
/// need twice that.
const SAVED: Span = Span::secs(1);

/// What may be sent on request.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    tokens: f64,
    refilled: Option<Time>,
}

impl Budget {
    /// Takes a packet of this size out, at this rate and with full packets of `packet`; false: it does not hold so
    /// much.
    fn take(&mut self, now: Time, target: Rate, packet: Bytes, size: Bytes) -> bool {
        let most = target.scale(SHARE).over(SAVED).max(packet + packet).as_f64();
        let saved = self.refilled.map_or(most, |at| target.scale(SHARE).as_bytes_per_s() * now.since(at).as_secs_f64());
        (self.tokens, self.refilled) = ((self.tokens + saved).min(most), Some(now));
        let enough = self.tokens >= size.as_f64();
        if enough {
            self.tokens -= size.as_f64();
        }
        enough
    }
}

/// How long receivers wait for what is missing, by their SSRCs, and until when each one's word holds.
#[derive(Debug, Default)]
pub(crate) struct Words(BTreeMap<u32, (Span, Time)>);

impl Words {
    /// A receiver says how long it waits, which holds until then.
    pub(crate) fn say(&mut self, now: Time, who: u32, waits: Span, until: Time) {
        self.0.retain(|_, (_, until)| now < *until);
        self.0.insert(who, (waits, until));
    }

    /// The longest that holds: one receiver's word takes nothing from another.
    pub(crate) fn longest(&self, now: Time) -> Option<Span> {
        self.0.values().filter(|(_, until)| now < *until).map(|(waits, _)| *waits).max()
    }
}

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

sums!(Requests { nacks, asked, repaired });

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

sums!(Repairs { packets, bytes, refused, stale, parities, parity_bytes });
