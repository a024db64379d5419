//! What becomes of every format of per-packet feedback: one record for each packet.

use steadycast_units::{Ecn, PeerTime};

/// How one packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When, on the receiver's clock; `None` when the receiver doesn't say.
    pub at: Option<PeerTime>,
    /// The ECN field of its IP header; `None` in a format that has no room for it.
    pub ecn: Option<Ecn>,
}

/// What a receiver says of one packet, in whatever format it said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The packet's number: RTP's (RFC 8888), or the transport-wide one.
    pub seq: u16,
    /// How the packet arrived; `None` when it hasn't, so far.
    pub arrival: Option<Arrived>,
}

/// A count of units that wraps after 32 bits, as a count that doesn't: the one nearest to `near`, a time in nanoseconds
/// on the same clock; `first` without one.
pub(super) fn unwrap(units: u32, per_second: i64, near: Option<PeerTime>, first: i64) -> i64 {
    let Some(near) = near else { return first };
    let near = (i128::from(near.as_nanos()) * i128::from(per_second)).div_euclid(NANOS) as i64;
    near.saturating_add(i64::from(units.wrapping_sub(near as u32) as i32))
}

/// A count of units as a time, rounded down to the nanosecond.
pub(super) fn peer_time(units: i64, per_second: i64) -> PeerTime {
    let nanos = (i128::from(units) * NANOS).div_euclid(i128::from(per_second));
    PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

const NANOS: i128 = 1_000_000_000;
