//! Settings, budget and counts of a sender's repairs.

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
    /// Returns the time for which a packet is useful after its frame was ready.
    pub fn useful(&self) -> Span {
        self.playout.unwrap_or(DEFAULT_USEFUL_TIME)
    }
}

/// Time for which a packet is useful when no play-out delay is known.
pub const DEFAULT_USEFUL_TIME: Span = Span::secs(1);

/// Maximum share of the target rate for packets that are sent on request (str0m's bound).
const REPAIR_SHARE: f64 = 0.15;
/// Time over which an unused share accumulates. libwebrtc limits retransmissions over 500 ms, but bursts of losses need
/// twice that time.
const BUDGET_WINDOW: Span = Span::secs(1);

/// Token bucket for packets that are sent on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairBudget {
    tokens: f64,
    refilled: Option<Time>,
}

impl RepairBudget {
    /// Takes `size` out of the bucket, which fills at `REPAIR_SHARE` of `target` and has room for at least two packets
    /// of `packet` bytes. Returns false if it contains less than `size`.
    pub fn take(&mut self, now: Time, target: Rate, packet: Bytes, size: Bytes) -> bool {
        // The bucket has room for two packets at any rate. If its size were only 15 % of a low rate, a full packet
        // could never be retransmitted.
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

/// Counts of a sender's retransmissions, parity packets and refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// The number of retransmitted packets.
    pub packets: u64,
    /// The IP bytes of the retransmitted packets.
    pub bytes: Bytes,
    /// The number of requests that were refused because repair had used its share of the rate.
    pub refused: u64,
    /// The number of requests that were refused because the packets would have arrived too late.
    pub stale: u64,
    /// The number of parity packets.
    pub parities: u64,
    /// The IP bytes of the parity packets.
    pub parity_bytes: Bytes,
}

sums!(Repairs { packets, bytes, refused, stale, parities, parity_bytes });
