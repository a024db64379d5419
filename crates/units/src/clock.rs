use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const NS_PER_S: f64 = 1e9;

/// A length of time, in whole nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span, 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a span of `n` nanoseconds.
    pub const fn nanos(n: u64) -> Self {
        Self(n)
    }
    /// Creates a span of `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// Creates a span of `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// Creates a span of `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Creates a span of `s` seconds, rounded to nanoseconds. Negative values and NaN give zero; large ones
    /// [`Span::MAX`].
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S + 0.5) as u64) // `as` saturates, and maps NaN to 0
    }
    /// Returns the nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// Returns the milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Whether the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// Returns the difference, or zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Returns the span times `factor` ≥ 0.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor + 0.5) as u64)
    }
    /// Returns the ratio of this span to `other`; infinite if `other` is zero.
    pub fn ratio(self, other: Self) -> f64 {
        self.0 as f64 / other.0 as f64
    }
    /// Returns the span as a positive offset.
    pub fn as_offset(self) -> Offset {
        Offset(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl Span {
    /// Returns this span plus `by`; zero if negative.
    #[must_use]
    pub fn moved(self, by: Offset) -> Self {
        if by < Offset::ZERO { self.saturating_sub(by.abs()) } else { self + by.later() }
    }
}
impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}
impl Div<u64> for Span {
    type Output = Self;
    fn div(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}

/// A point in time on the local clock, in nanoseconds. The caller passes it; no clock is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The clock's start.
    pub const ZERO: Self = Self(0);
    /// Stands for "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the time `n` nanoseconds after the clock's start.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Returns the nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the seconds since the clock's start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// Returns the span since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// Returns the time `span` before this one, at least the clock's start.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}
impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

/// A signed length of time: positive for later, negative for earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(i64);

impl Offset {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Creates an offset of `n` nanoseconds.
    pub const fn nanos(n: i64) -> Self {
        Self(n)
    }
    /// Returns the nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// Returns the seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// Creates an offset of `s` seconds, rounded towards zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S) as i64)
    }
    /// Returns the absolute value.
    pub const fn abs(self) -> Span {
        Span(self.0.unsigned_abs())
    }
    /// Returns the offset as a span; zero if it is negative.
    pub const fn later(self) -> Span {
        Span(if self.0 > 0 { self.0 as u64 } else { 0 })
    }
}
impl Sub for Offset {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

quantities! { Span Offset }

/// A point in time on the remote clock, not comparable with a [`Time`]; see [`OneWay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerTime(i64);

impl PeerTime {
    /// Creates the time `n` nanoseconds from the remote clock's start.
    pub const fn from_nanos(n: i64) -> Self {
        Self(n)
    }
    /// Returns the nanoseconds from the remote clock's start.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// Returns the offset from `earlier`.
    pub const fn since(self, earlier: Self) -> Offset {
        Offset(self.0.saturating_sub(earlier.0))
    }
}

/// The apparent one-way delay of a packet: arrival on one clock minus departure on another. The clocks' offset is
/// unknown, so only differences are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OneWay(i64);

impl OneWay {
    /// Returns the apparent delay of a received packet.
    pub fn between(sent: PeerTime, arrived: Time) -> Self {
        let arrived = i64::try_from(arrived.0).unwrap_or(i64::MAX);
        Self(arrived.saturating_sub(sent.0))
    }
    /// Returns the apparent delay of a sent packet.
    pub fn to_peer(sent: Time, arrived: PeerTime) -> Self {
        let sent = i64::try_from(sent.0).unwrap_or(i64::MAX);
        Self(arrived.0.saturating_sub(sent))
    }
    /// Returns this delay minus `anchor`; positive if this packet took longer.
    pub const fn variation_since(self, anchor: Self) -> Offset {
        Offset(self.0.saturating_sub(anchor.0))
    }
    /// Returns one step of an exponentially weighted mean, with `weight` (0…1) for `sample`.
    #[must_use]
    pub fn towards(self, sample: Self, weight: f64) -> Self {
        Self(self.0.saturating_add((sample.variation_since(self).0 as f64 * weight) as i64))
    }
    /// Returns the delay, if both ends have one clock, as in a simulation.
    pub const fn assuming_one_clock(self) -> Offset {
        Offset(self.0)
    }
}

/// A time on the wire: 32 bits in units of 2⁻¹⁸ s; it wraps after 4.5 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The unit of a stamp: 2⁻¹⁸ s, about 3.8 µs.
    pub const UNIT: Span = Span(3_815);

    /// Returns the stamp of a time on the local clock.
    pub fn of(at: Time) -> Self {
        Self(((u128::from(at.0) << 18) / 1_000_000_000) as u32)
    }
    /// Converts a local clock's stamp to the latest time at or before `now`.
    pub fn own(self, now: Time) -> Time {
        // The stamp is never in the future, so the wrapped difference is its age.
        let age = Self::of(now).0.wrapping_sub(self.0);
        now.before(Self::units(age))
    }
    /// Converts a remote clock's stamp, which wraps, to the possible time nearest to `near`. `near` is the time of an
    /// earlier stamp, or `None` for the first stamp.
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        let Some(near) = near else {
            return PeerTime(Self::units(self.0).0 as i64);
        };
        // Stamps round down, also before the clock's start.
        let near_units = ((i128::from(near.0) << 18).div_euclid(1_000_000_000)) as u32;
        // The shorter way around: up to 2.3 hours either way.
        let ahead = i64::from(self.0.wrapping_sub(near_units) as i32);
        PeerTime(near.0.saturating_add(((i128::from(ahead) * 1_000_000_000) >> 18) as i64))
    }
    /// Returns this stamp plus `held`, the time from its arrival to its echo.
    #[must_use]
    pub fn plus(self, held: Span) -> Self {
        Self(self.0.wrapping_add(((u128::from(held.0) << 18) / 1_000_000_000) as u32))
    }
    fn units(n: u32) -> Span {
        Span(((u128::from(n) * 1_000_000_000) >> 18) as u64)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}
