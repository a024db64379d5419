use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const NS_PER_S: f64 = 1e9;

/// A length of time in whole nanoseconds. It is never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// A span of zero length.
    pub const ZERO: Self = Self(0);
    /// The longest span. It is 584 years long.
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
    /// Creates a span of `s` seconds, rounded to nanoseconds. Negative values and NaN give zero. Values that are too
    /// large give [`Span::MAX`].
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S + 0.5) as u64) // `as` saturates, and maps NaN to 0
    }
    /// Returns the length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns the length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// Returns the length in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Whether the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// Returns this span minus `other`. Returns zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Multiplies the span by `factor`, which must not be negative.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor + 0.5) as u64)
    }
    /// Returns this span divided by `other`. The result is infinite if `other` is zero and this span is not.
    pub fn ratio(self, other: Self) -> f64 {
        self.0 as f64 / other.0 as f64
    }
    /// Converts the span to a positive offset.
    pub fn as_offset(self) -> Offset {
        Offset(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl Span {
    /// Returns this span plus the offset `by`. Returns zero if the sum is negative.
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

/// A point in time on the local clock, in nanoseconds. No function of this crate reads a clock. The caller passes the
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// A time that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates the time that is `n` nanoseconds after the clock's start.
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
    /// Returns the span from `earlier` to this time. Returns zero if `earlier` is the later time.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// Returns the time that is `span` before this time. The result is not before the clock's start.
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

/// A signed length of time. It is positive for "later" and negative for "earlier".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(i64);

impl Offset {
    /// An offset of zero.
    pub const ZERO: Self = Self(0);

    /// Creates an offset of `n` nanoseconds.
    pub const fn nanos(n: i64) -> Self {
        Self(n)
    }
    /// Returns the offset in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// Returns the offset in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// Creates an offset of `s` seconds, rounded towards zero to nanoseconds.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S) as i64)
    }
    /// Returns the absolute value as a span.
    pub const fn abs(self) -> Span {
        Span(self.0.unsigned_abs())
    }
    /// Converts the offset to a span. Returns zero if the offset is negative.
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

/// A point in time on the remote clock. It can't be compared with a [`Time`], which is on the local clock. See
/// [`OneWay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerTime(i64);

impl PeerTime {
    /// Creates the time that is `n` nanoseconds from the remote clock's start.
    pub const fn from_nanos(n: i64) -> Self {
        Self(n)
    }
    /// Returns the nanoseconds from the remote clock's start.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// Returns the offset from `earlier` to this time.
    pub const fn since(self, earlier: Self) -> Offset {
        Offset(self.0.saturating_sub(earlier.0))
    }
}

/// The apparent one-way delay of a packet. It is the arrival time on one clock minus the departure time on another. The
/// offset between the clocks is unknown, so only differences between delays are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OneWay(i64);

impl OneWay {
    /// Returns the apparent delay of a packet that the remote end sent and this end received.
    pub fn between(sent: PeerTime, arrived: Time) -> Self {
        let arrived = i64::try_from(arrived.0).unwrap_or(i64::MAX);
        Self(arrived.saturating_sub(sent.0))
    }
    /// Returns the apparent delay of a packet that this end sent and the remote end received.
    pub fn to_peer(sent: Time, arrived: PeerTime) -> Self {
        let sent = i64::try_from(sent.0).unwrap_or(i64::MAX);
        Self(arrived.0.saturating_sub(sent))
    }
    /// Returns this delay minus `anchor`. The result is positive if this packet took longer.
    pub const fn variation_since(self, anchor: Self) -> Offset {
        Offset(self.0.saturating_sub(anchor.0))
    }
    /// Updates an exponentially weighted mean and returns it. `self` is the old mean. `weight` (0…1) is the weight of
    /// the new `sample`.
    #[must_use]
    pub fn towards(self, sample: Self, weight: f64) -> Self {
        Self(self.0.saturating_add((sample.variation_since(self).0 as f64 * weight) as i64))
    }
    /// Returns the true delay under the assumption that both ends use the same clock, as in a simulation.
    pub const fn assuming_one_clock(self) -> Offset {
        Offset(self.0)
    }
}

/// A time as it is written into packets. It has 32 bits in units of 2⁻¹⁸ s, so it wraps after 4.5 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The unit of a stamp. It is 2⁻¹⁸ s, about 3.8 µs.
    pub const UNIT: Span = Span(3_815);

    /// Converts a time on the local clock to a stamp.
    pub fn of(at: Time) -> Self {
        Self(((u128::from(at.0) << 18) / 1_000_000_000) as u32)
    }
    /// Converts a stamp of the local clock to a time. Of all times that have this stamp, returns the latest that is not
    /// after `now`.
    pub fn own(self, now: Time) -> Time {
        // The stamp is not in the future, so the wrapped difference to `now` is its age.
        let age = Self::of(now).0.wrapping_sub(self.0);
        now.before(Self::units(age))
    }
    /// Converts a stamp of the remote clock to a time. Of all times that have this stamp, returns the time nearest to
    /// `near`. `near` is the time of an earlier stamp, or `None` for the first stamp.
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        let Some(near) = near else {
            return PeerTime(Self::units(self.0).0 as i64);
        };
        // Round down, as stamps do, even for times before the clock's start.
        let near_units = ((i128::from(near.0) << 18).div_euclid(1_000_000_000)) as u32;
        // Take the shorter way around. It is at most 2.3 hours in either direction.
        let ahead = i64::from(self.0.wrapping_sub(near_units) as i32);
        PeerTime(near.0.saturating_add(((i128::from(ahead) * 1_000_000_000) >> 18) as i64))
    }
    /// Returns this stamp plus `held`. `held` is the time from the arrival of the stamp to its echo.
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
