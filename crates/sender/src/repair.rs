//! Limits and numbers of a sender's repair packets: retransmissions and parity packets.

use steadycast_units::{Bytes, Rate, Span, Time, sums};

/// Settings of retransmission. Sender and receiver need the same settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairSettings {
    /// The retransmission stream's SSRC.
    pub ssrc: u32,
    /// The retransmission stream's RTP payload type.
    pub payload_type: u8,
    /// The time from a frame's readiness at the sender to its display. With `None`, one second is assumed.
    pub playout: Option<Span>,
}

impl RepairSettings {
    /// Returns the time for which a packet is useful, starting when its frame was ready.
    pub fn useful(&self) -> Span {
        self.playout.unwrap_or(DEFAULT_USEFUL_TIME)
    }
}

/// The time for which a packet is useful if the play-out delay is not known.
pub const DEFAULT_USEFUL_TIME: Span = Span::secs(1);

/// Maximum share of the target rate that retransmissions can use. str0m has the same limit.
const REPAIR_SHARE: f64 = 0.15;
/// The time over which an unused share accumulates. It is twice as long as in libwebrtc, so that a burst of losses can
/// be repaired.
const BUDGET_WINDOW: Span = Span::secs(1);

/// A token bucket that limits the packets that are sent because of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairBudget {
    tokens: f64,
    refilled: Option<Time>,
}

impl RepairBudget {
    /// Takes `size` bytes from the bucket, or returns false if it contains fewer. The bucket is filled at
    /// `REPAIR_SHARE` of the rate `target`. Its capacity is at least twice the packet size `packet`.
    pub fn take(&mut self, now: Time, target: Rate, packet: Bytes, size: Bytes) -> bool {
        // Make room for two packets. Otherwise a full packet could never be retransmitted at a low rate.
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

/// Numbers of retransmissions, parity packets and refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Number of retransmitted packets.
    pub packets: u64,
    /// IP bytes of the retransmitted packets.
    pub bytes: Bytes,
    /// Number of requests that were refused because repair had used its share of the rate.
    pub refused: u64,
    /// Number of requests that were refused because the packets would have arrived too late.
    pub stale: u64,
    /// Number of parity packets.
    pub parities: u64,
    /// IP bytes of the parity packets.
    pub parity_bytes: Bytes,
}

sums!(Repairs { packets, bytes, refused, stale, parities, parity_bytes });
