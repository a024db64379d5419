use crate::Span;
use std::ops::Sub;

/// An amount of data. For a packet, it is the IP size, which includes all headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Self = Self(0);

    /// Creates an amount of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Returns the number of bytes as a float.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// Returns the rate at which this amount takes `span`. Returns [`Rate::MAX`] if `span` is zero.
    pub fn per(self, span: Span) -> Rate {
        if span.is_zero() {
            return Rate::MAX;
        }
        // Use 128 bits, because the product exceeds 64 bits from 2.3 GB on.
        let bits = u128::from(self.0) * 8 * 1_000_000_000 / u128::from(span.as_nanos());
        Rate(u64::try_from(bits).unwrap_or(u64::MAX))
    }
    /// Returns the time that this amount takes at `rate`, rounded up. Returns [`Span::MAX`] if the rate is zero.
    pub fn at(self, rate: Rate) -> Span {
        if rate.0 == 0 {
            return Span::MAX;
        }
        let bits = self.0.saturating_mul(8);
        // For the size of a packet, 64 bits suffice, and the division is faster.
        match bits.checked_mul(1_000_000_000) {
            Some(scaled) => Span::nanos(scaled.div_ceil(rate.0)),
            None => {
                let ns = (u128::from(bits) * 1_000_000_000).div_ceil(u128::from(rate.0));
                Span::nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }
    /// Returns this amount minus `other`. Returns zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A rate in bits per second on the wire. Prefixes are powers of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Zero bits per second.
    pub const ZERO: Self = Self(0);
    /// The largest rate.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a rate of `n` bits per second.
    pub const fn bps(n: u64) -> Self {
        Self(n)
    }
    /// Creates a rate of `n` · 10³ bits per second.
    pub const fn kbps(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// Creates a rate of `n` · 10⁶ bits per second.
    pub const fn mbps(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// Creates a rate of `b` bit/s, rounded. Negative values give zero, and infinity gives [`Rate::MAX`]. NaN panics in
    /// debug builds, and gives zero in release builds.
    pub fn from_bps_f64(b: f64) -> Self {
        debug_assert!(!b.is_nan(), "a rate that is not a number");
        // The conversion truncates and saturates.
        Self((b + 0.5) as u64)
    }
    /// Returns the rate in bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// Returns the rate in bits per second as a float.
    pub fn as_bps_f64(self) -> f64 {
        self.0 as f64
    }
    /// Returns the rate in bytes per second.
    pub fn as_bytes_per_s(self) -> f64 {
        self.0 as f64 / 8.0
    }
    /// Creates a rate of `b` bytes per second.
    pub fn from_bytes_per_s(b: f64) -> Self {
        Self::from_bps_f64(b * 8.0)
    }
    /// Returns the amount of data that this rate carries during `span`.
    pub fn over(self, span: Span) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
    /// Multiplies the rate by `factor`, which must not be negative.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self::from_bps_f64(self.0 as f64 * factor)
    }
    /// Returns this rate divided by `other`. The result is infinite if `other` is zero and this rate is not.
    pub fn ratio(self, other: Self) -> f64 {
        self.0 as f64 / other.0 as f64
    }
    /// Returns this rate minus `other`. Returns zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

quantities! { Bytes Rate }

impl Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "not a number")]
    fn a_rate_that_is_not_a_number_stops_a_debug_build_where_it_is_made() {
        let _ = Rate::from_bps_f64(f64::NAN);
    }
}
