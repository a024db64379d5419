//! NTP timestamps in RTCP, and how the round-trip time is computed from them (RFC 3550, sections 4 and 6.4.1).

use steadycast_units::{Span, Time};

/// Maximum plausible round-trip time. A larger result comes from a report block that is stale or forged.
pub const MAX_ROUND_TRIP: Span = Span::secs(60);

const NS_PER_S: u128 = 1_000_000_000;

/// The NTP time that corresponds to a local clock's [`Time::ZERO`]. It is the number of seconds since 1900 in 32.32
/// fixed point. It may have any value if the NTP times are not compared with those of another clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NtpEpoch(pub u64);

impl NtpEpoch {
    /// Returns the epoch of a clock. The clock's [`Time::ZERO`] is `secs` seconds after the beginning of 1970.
    pub const fn from_unix_secs(secs: u64) -> Self {
        // Add the seconds from 1900 to 1970 (RFC 868).
        Self(secs.wrapping_add(2_208_988_800) << 32)
    }
    /// Converts a local time to an NTP time. It is rounded down to 2⁻³² s and wraps in 2036.
    pub fn ntp(self, at: Time) -> u64 {
        self.0.wrapping_add(((u128::from(at.as_nanos()) << 32) / NS_PER_S) as u64)
    }
    /// Converts an NTP time to a local time, rounded up to the nanosecond. The NTP time must not be before the epoch.
    /// It is interpreted modulo 2³² s.
    pub fn time(self, ntp: u64) -> Time {
        let since = u128::from(ntp.wrapping_sub(self.0));
        Time::from_nanos(((since * NS_PER_S).div_ceil(1 << 32)) as u64)
    }
    /// Converts a local time to the middle 32 bits of its NTP time, in units of 1/65536 s.
    pub fn middle(self, at: Time) -> u32 {
        middle(self.ntp(at))
    }
}

/// Returns the middle 32 bits of an NTP time, as LSR contains them. The unit is 1/65536 s, and they wrap after 18.2 h.
pub const fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// Converts a span to the unit of DLSR, 1/65536 s. It is rounded down, and is at most 18.2 h.
pub fn dlsr(span: Span) -> u32 {
    u32::try_from((u128::from(span.as_nanos()) << 16) / NS_PER_S).unwrap_or(u32::MAX)
}

/// Converts a number of units of 1/65536 s to a span.
pub fn span(units: u32) -> Span {
    Span::nanos(((u128::from(units) * NS_PER_S) >> 16) as u64)
}

/// Returns the round-trip time A − LSR − DLSR, computed modulo 2³² (RFC 3550, section 6.4.1).
///
/// `arrival` is A, the middle 32 bits of the NTP time at which the report arrived. Returns `None` if LSR is zero, or if
/// the result is negative or above [`MAX_ROUND_TRIP`].
pub fn round_trip(arrival: u32, lsr: u32, dlsr: u32) -> Option<Span> {
    if lsr == 0 {
        return None;
    }
    let units = arrival.wrapping_sub(lsr).wrapping_sub(dlsr);
    // A negative result wraps to several hours, so the limit also excludes it.
    Some(span(units)).filter(|&trip| trip <= MAX_ROUND_TRIP)
}
