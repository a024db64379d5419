use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const NS_PER_S: f64 = 1e9;

/// A length of time, in whole nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span, 584 years: longer than any run.
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
    /// Creates a span of `s` seconds, rounded to the nearest nanosecond. Negative values and NaN give zero, values that
    /// are too large give [`Span::MAX`].
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
    /// Returns the span multiplied by `factor`, which must not be negative.
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
    /// Returns this span plus the offset `by`, or zero if the sum is negative.
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

/// A point in time on the local clock, in whole nanoseconds since that clock's start. The library never reads a clock:
/// the caller passes the present time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The clock's start.
    pub const ZERO: Self = Self(0);
    /// A time later than the end of any run. It stands for "never".
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
    /// Returns the span since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// Returns the time that is `span` before this one, or the clock's start if that is later.
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

/// A point in time on the remote clock. It can't be subtracted from a [`Time`]: see [`OneWay`].
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
    /// Returns the offset from `earlier`, both on the remote clock.
    pub const fn since(self, earlier: Self) -> Offset {
        Offset(self.0.saturating_sub(earlier.0))
    }
}

/// The apparent one-way delay of a packet: its arrival on one clock minus its departure on the other. It includes the
/// unknown offset between the clocks, so only the difference between two apparent delays is meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OneWay(i64);

impl OneWay {
    /// Returns the apparent delay of a packet that was sent at `sent` on the remote clock and arrived at `arrived` on
    /// the local clock.
    pub fn between(sent: PeerTime, arrived: Time) -> Self {
        let arrived = i64::try_from(arrived.0).unwrap_or(i64::MAX);
        Self(arrived.saturating_sub(sent.0))
    }
    /// Returns the apparent delay of a local packet that was sent at `sent` on the local clock and arrived at `arrived`
    /// on the remote clock.
    pub fn to_peer(sent: Time, arrived: PeerTime) -> Self {
        let sent = i64::try_from(sent.0).unwrap_or(i64::MAX);
        Self(arrived.0.saturating_sub(sent))
    }
    /// Returns this delay minus the delay `anchor`; positive if this packet took longer.
    pub const fn variation_since(self, anchor: Self) -> Offset {
        Offset(self.0.saturating_sub(anchor.0))
    }
    /// Returns this delay plus `weight` (0…1) times its difference to `sample`: one step of an exponentially weighted
    /// mean.
    #[must_use]
    pub fn towards(self, sample: Self, weight: f64) -> Self {
        Self(self.0.saturating_add((sample.variation_since(self).0 as f64 * weight) as i64))
    }
    /// Returns the apparent delay as an offset. It is the true one-way delay in a simulation, where the sender and the
    /// receiver have the same clock.
    pub const fn assuming_one_clock(self) -> Offset {
        Offset(self.0)
    }
}

/// A time in the wire format: 32 bits in units of 2⁻¹⁸ s, modulo 2³² (it wraps after 4.5 hours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The unit of a stamp: 2⁻¹⁸ s, about 3.8 µs.
    pub const UNIT: Span = Span(3_815);

    /// Returns the stamp of a time on the local clock.
    pub fn of(at: Time) -> Self {
        Self(((u128::from(at.0) << 18) / 1_000_000_000) as u32)
    }
    /// Converts a stamp that the local clock made to local time. Of all times with this stamp, returns the latest one
    /// at or before `now`.
    pub fn own(self, now: Time) -> Time {
        // A stamp of the local clock is never in the future, so the wrapped difference is its age.
        let age = Self::of(now).0.wrapping_sub(self.0);
        now.before(Self::units(age))
    }
    /// Converts a stamp of the remote clock to remote time. Of all times with this stamp, returns the one nearest to
    /// `near`, which is the time of an earlier stamp. `near` is `None` for the first stamp.
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        let Some(near) = near else {
            return PeerTime(Self::units(self.0).0 as i64);
        };
        // Stamps round down. A plain division rounds towards zero, which is upwards for times before the clock's start.
        let near_units = ((i128::from(near.0) << 18).div_euclid(1_000_000_000)) as u32;
        // The wrapped difference as a signed number is the shorter way around: up to 2.3 hours in either direction.
        let ahead = i64::from(self.0.wrapping_sub(near_units) as i32);
        PeerTime(near.0.saturating_add(((i128::from(ahead) * 1_000_000_000) >> 18) as i64))
    }
    /// Returns this stamp plus `held`. A peer adds the time from a stamp's arrival to its echo, so that this time is
    /// not counted as round-trip time.
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
