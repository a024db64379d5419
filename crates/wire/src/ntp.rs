//! NTP timestamps in RTCP, and the round-trip time from them (RFC 3550, sections 4 and 6.4.1).

use steadycast_units::{Span, Time};

/// Maximum plausible round-trip time. More comes from a stale or forged report block.
pub const MAX_ROUND_TRIP: Span = Span::secs(60);

const NS_PER_S: u128 = 1_000_000_000;

/// The 64-bit NTP time (seconds since 1900 in 32.32 fixed point) at a local clock's [`Time::ZERO`]. It may have any
/// value if no other clock has to agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NtpEpoch(pub u64);

impl NtpEpoch {
    /// Returns the epoch of a clock whose [`Time::ZERO`] was this many seconds after 1970.
    pub const fn from_unix_secs(secs: u64) -> Self {
        // Seconds from 1900 to 1970 (RFC 868).
        Self(secs.wrapping_add(2_208_988_800) << 32)
    }
    /// Returns the NTP time of `at`, rounded down to 2⁻³² s. It wraps in 2036.
    pub fn ntp(self, at: Time) -> u64 {
        self.0.wrapping_add(((u128::from(at.as_nanos()) << 32) / NS_PER_S) as u64)
    }
    /// Returns the local time of an NTP time at or after the epoch (modulo 2³² s), rounded up to the nanosecond.
    pub fn time(self, ntp: u64) -> Time {
        let since = u128::from(ntp.wrapping_sub(self.0));
        Time::from_nanos(((since * NS_PER_S).div_ceil(1 << 32)) as u64)
    }
    /// Returns the middle 32 bits of the NTP time of `at`, in 1/65536 s.
    pub fn middle(self, at: Time) -> u32 {
        middle(self.ntp(at))
    }
}

/// Returns an NTP time's middle 32 bits, in 1/65536 s, as in LSR. They wrap after 18.2 h.
pub const fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// Converts a span to DLSR's 1/65536 s, rounded down, at most 18.2 h.
pub fn dlsr(span: Span) -> u32 {
    u32::try_from((u128::from(span.as_nanos()) << 16) / NS_PER_S).unwrap_or(u32::MAX)
}

/// Converts a count of 1/65536 s to a span.
pub fn span(units: u32) -> Span {
    Span::nanos(((u128::from(units) * NS_PER_S) >> 16) as u64)
}

/// Returns the round-trip time A − LSR − DLSR, modulo 2³² (RFC 3550, section 6.4.1).
///
/// `arrival` is the middle of the arrival's NTP time. `None` if LSR is zero, or if the result is negative or above
/// [`MAX_ROUND_TRIP`].
pub fn round_trip(arrival: u32, lsr: u32, dlsr: u32) -> Option<Span> {
    if lsr == 0 {
        return None;
    }
    let units = arrival.wrapping_sub(lsr).wrapping_sub(dlsr);
    // A negative result wraps to several hours, so the limit excludes it.
    Some(span(units)).filter(|&trip| trip <= MAX_ROUND_TRIP)
}
