//! The common form of per-packet feedback.

use steadycast_units::{Ecn, PeerTime};

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The time on the receiver's clock, if the report contains it.
    pub at: Option<PeerTime>,
    /// The ECN field, if the feedback format contains it.
    pub ecn: Option<Ecn>,
}

/// The feedback on one packet, in any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The packet's sequence number: RTP's (RFC 8888) or transport-wide.
    pub seq: u16,
    /// The arrival of the packet; `None` if it has not arrived so far.
    pub arrival: Option<Arrived>,
}

/// Extends a 32-bit count of units to the value nearest to the time `near`. Returns `first` if `near` is `None`.
pub(super) fn unwrap(units: u32, per_second: i64, near: Option<PeerTime>, first: i64) -> i64 {
    let Some(near) = near else { return first };
    // Times before the clock's start are rounded down as well.
    let near = (i128::from(near.as_nanos()) * i128::from(per_second)).div_euclid(NANOS) as i64;
    near.saturating_add(i64::from(units.wrapping_sub(near as u32) as i32))
}

/// Rounds down to the nanosecond.
pub(super) fn peer_time(units: i64, per_second: i64) -> PeerTime {
    let nanos = (i128::from(units) * NANOS).div_euclid(i128::from(per_second));
    PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

const NANOS: i128 = 1_000_000_000;
