//! A sender's repairs.

use steadycast_units::{Bytes, Rate, Span, Time, sums};

/// Retransmission settings, the same at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairSettings {
    /// The retransmission stream's SSRC.
    pub ssrc: u32,
    /// The retransmission stream's RTP payload type.
    pub payload_type: u8,
    /// The time from a ready frame to its display; `None` for one second.
    pub playout: Option<Span>,
}

impl RepairSettings {
    /// Returns how long a packet is useful after its frame was ready.
    pub fn useful(&self) -> Span {
        self.playout.unwrap_or(DEFAULT_USEFUL_TIME)
    }
}

/// The useful time of a packet without a known play-out delay.
pub const DEFAULT_USEFUL_TIME: Span = Span::secs(1);

/// The maximum share of the target rate for retransmissions (str0m's bound).
const REPAIR_SHARE: f64 = 0.15;
/// The time over which an unused share accumulates: twice libwebrtc's, for bursts of losses.
const BUDGET_WINDOW: Span = Span::secs(1);

/// A token bucket for packets sent on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairBudget {
    tokens: f64,
    refilled: Option<Time>,
}

impl RepairBudget {
    /// Takes `size` from the bucket. It fills at `REPAIR_SHARE` of `target` and holds at least two packets of size
    /// `packet`. Returns false if there is too little.
    pub fn take(&mut self, now: Time, target: Rate, packet: Bytes, size: Bytes) -> bool {
        // With less than two packets, a full packet could never be retransmitted at a low rate.
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

/// Counts of retransmissions, parity packets and refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// The retransmitted packets.
    pub packets: u64,
    /// The retransmitted IP bytes.
    pub bytes: Bytes,
    /// The requests refused because repair had used its share.
    pub refused: u64,
    /// The requests refused because the packets would be late.
    pub stale: u64,
    /// The parity packets.
    pub parities: u64,
    /// The IP bytes of parity packets.
    pub parity_bytes: Bytes,
}

sums!(Repairs { packets, bytes, refused, stale, parities, parity_bytes });
