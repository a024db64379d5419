//! Loss repair: retransmission (RFC 4588) on generic NACKs (RFC 4585, section 6.2.1), and parity packets (FEC).
//!
//! At the receiver, a [`NackRequester`] detects gaps and schedules NACKs. At the sender, a [`RetransmissionCache`]
//! holds sent packets and selects those to retransmit. Retransmissions pass the media's pacer, so they are part of the
//! rate that the controller decided.

mod blocks;
mod nack_requester;
mod parity_requester;
mod retransmission_cache;

pub(crate) use blocks::{Blocks, Need, Parity, ParityRequestContext, Solver};
pub use blocks::{PARITY_MORE, ParitySettings, Protected, Protection, Recovered};
pub(crate) use nack_requester::NackRequester;
pub(crate) use parity_requester::{Group, MAX_REQUESTING_MEMBERS, ParityRequester};
pub(crate) use retransmission_cache::{CachedPacket, NackContext, Retransmission, RetransmissionCache};

use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time, sums};

/// Retransmission settings of a session of two members. Both ends need the same values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairSettings {
    /// The SSRC of the retransmission stream.
    pub ssrc: u32,
    /// The RTP payload type of the retransmission stream.
    pub payload_type: u8,
    /// The time from a frame being ready to its display. `None`: a packet is useful for one second.
    pub playout: Option<Span>,
}

impl RepairSettings {
    /// Returns how long after its frame was ready a packet is useful.
    fn useful(&self) -> Span {
        self.playout.unwrap_or(DEFAULT_USEFUL_TIME)
    }
}

/// Time for which a packet is useful when no play-out delay is known.
const DEFAULT_USEFUL_TIME: Span = Span::secs(1);

/// Maximum share of the target rate for packets that are sent on request (str0m's bound).
const REPAIR_SHARE: f64 = 0.15;
/// Time over which an unused share accumulates. libwebrtc bounds retransmissions over 500 ms; bursts of losses need
/// twice that.
const BUDGET_WINDOW: Span = Span::secs(1);

/// Token bucket for packets that are sent on request.
#[derive(Clone, Copy, Debug, Default)]
struct RepairBudget {
    tokens: f64,
    refilled: Option<Time>,
}

impl RepairBudget {
    /// Takes `size` out of the bucket, which fills at [`REPAIR_SHARE`] of `target` and holds at least two packets of
    /// `packet` bytes. Returns false if it holds less than `size`.
    fn take(&mut self, now: Time, target: Rate, packet: Bytes, size: Bytes) -> bool {
        let most = target.scale(REPAIR_SHARE).over(BUDGET_WINDOW).max(packet + packet).as_f64();
        let saved =
            self.refilled.map_or(most, |at| target.scale(REPAIR_SHARE).as_bytes_per_s() * now.since(at).as_secs_f64());
        (self.tokens, self.refilled) = ((self.tokens + saved).min(most), Some(now));
        let enough = self.tokens >= size.as_f64();
        if enough {
            self.tokens -= size.as_f64();
        }
        enough
    }
}

/// The play-out delays that receivers announced, by SSRC, each with the time at which it expires.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedPlayouts(BTreeMap<u32, (Span, Time)>);

impl AnnouncedPlayouts {
    /// Stores the play-out delay `waits` that the receiver `who` announced. It expires at `until`.
    pub(crate) fn announce(&mut self, now: Time, who: u32, waits: Span, until: Time) {
        self.0.retain(|_, (_, until)| now < *until);
        self.0.insert(who, (waits, until));
    }

    /// Returns the longest delay that has not expired. The longest counts, so that one receiver cannot shorten
    /// another's.
    pub(crate) fn longest(&self, now: Time) -> Option<Span> {
        self.0.values().filter(|(_, until)| now < *until).map(|(waits, _)| *waits).max()
    }
}

/// Counts of a receiver's requests and of their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// RTCP packets with a NACK or a parity request.
    pub nacks: u64,
    /// Requested packets, each counted as often as it was requested.
    pub asked: u64,
    /// Lost packets that arrived as retransmissions.
    pub repaired: u64,
}

sums!(Requests { nacks, asked, repaired });

/// Counts of a sender's retransmissions, parity packets and refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Retransmitted packets.
    pub packets: u64,
    /// The IP bytes of these packets.
    pub bytes: steadycast_units::Bytes,
    /// Requests that were refused because repair had used its share of the rate.
    pub refused: u64,
    /// Requests for packets that would have arrived too late.
    pub stale: u64,
    /// Parity packets.
    pub parities: u64,
    /// The IP bytes of these packets.
    pub parity_bytes: steadycast_units::Bytes,
}

sums!(Repairs { packets, bytes, refused, stale, parities, parity_bytes });
