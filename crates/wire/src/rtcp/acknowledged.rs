//! A representation of per-packet feedback that is the same for all formats.

use steadycast_units::{Ecn, PeerTime};

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Arrival time on the receiver's clock, if the report contains it.
    pub at: Option<PeerTime>,
    /// The ECN field of the packet, if the feedback format contains it.
    pub ecn: Option<Ecn>,
}

/// The feedback about one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Sequence number of the packet. With RFC 8888 it is the RTP sequence number, and otherwise the transport-wide
    /// sequence number.
    pub seq: u16,
    /// The arrival of the packet. It is `None` if the packet has not arrived so far.
    pub arrival: Option<Arrived>,
}

/// Extends a time of 32 bits to 64 bits. `units` is the time in units, and a second has `per_second` units. Of all
/// possible values, returns the value nearest to the time `near`. Returns `first` if `near` is `None`.
pub(super) fn unwrap(units: u32, per_second: i64, near: Option<PeerTime>, first: i64) -> i64 {
    let Some(near) = near else { return first };
    // Round down, also for times before the clock's start.
    let near = (i128::from(near.as_nanos()) * i128::from(per_second)).div_euclid(NANOS) as i64;
    near.saturating_add(i64::from(units.wrapping_sub(near as u32) as i32))
}

/// Converts a time in units to a time in nanoseconds, rounded down.
pub(super) fn peer_time(units: i64, per_second: i64) -> PeerTime {
    let nanos = (i128::from(units) * NANOS).div_euclid(i128::from(per_second));
    PeerTime::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

const NANOS: i128 = 1_000_000_000;
