use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

const NS_PER_S: f64 = 1e9;

/// A length of time, in whole nanoseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any run: 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` nanoseconds.
    pub const fn nanos(n: u64) -> Self {
        Self(n)
    }
    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// `s` seconds, rounded to the nearest nanosecond. Negative and NaN give zero, what is too long gives
    /// [`Span::MAX`].
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S + 0.5) as u64) // `as` saturates, and maps NaN to 0
    }
    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// In milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// The difference, zero where `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Scaled by a factor that is not negative.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor + 0.5) as u64)
    }
    /// How often `other` fits, as a real number; infinite when `other` is zero.
    pub fn ratio(self, other: Self) -> f64 {
        self.0 as f64 / other.0 as f64
    }
    /// This much time, forwards, as a signed offset.
    pub fn as_offset(self) -> Offset {
        Offset(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl Span {
    /// Longer, or shorter, by this; not below zero.
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

/// A point in time on the clock of the party that is told it, in whole nanoseconds from that clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The clock's start.
    pub const ZERO: Self = Self(0);
    /// After every run.
    pub const NEVER: Self = Self(u64::MAX);

    /// `n` nanoseconds after the clock's start.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds since the clock's start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// How long ago `earlier` was: zero when it is still to come.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// This much earlier, not before the clock's start.
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

/// A signed length of time: how much later (or, negative, earlier).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(i64);

impl Offset {
    /// Neither later nor earlier.
    pub const ZERO: Self = Self(0);

    /// `n` nanoseconds.
    pub const fn nanos(n: i64) -> Self {
        Self(n)
    }
    /// In nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S
    }
    /// `s` seconds, rounded towards zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * NS_PER_S) as i64)
    }
    /// Its length, without the sign.
    pub const fn abs(self) -> Span {
        Span(self.0.unsigned_abs())
    }
    /// As a span; negative gives zero.
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

/// A point in time on the *other* end's clock. It can't be subtracted from a [`Time`]: see [`OneWay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerTime(i64);

impl PeerTime {
    /// `n` nanoseconds from that clock's start.
    pub const fn from_nanos(n: i64) -> Self {
        Self(n)
    }
    /// Nanoseconds from that clock's start.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
    /// How much later than `earlier`, both on the other end's clock.
    pub const fn since(self, earlier: Self) -> Offset {
        Offset(self.0.saturating_sub(earlier.0))
    }
}

/// The apparent one-way delay of a packet: its arrival on one end's clock minus its departure on the other end's. It
/// holds the unknown offset between the clocks, so only the difference of two of them means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OneWay(i64);

impl OneWay {
    /// Returns the apparent delay of a packet that was sent at `sent` by the other end's clock and arrived at
    /// `arrived`.
    pub fn between(sent: PeerTime, arrived: Time) -> Self {
        let arrived = i64::try_from(arrived.0).unwrap_or(i64::MAX);
        Self(arrived.saturating_sub(sent.0))
    }
    /// Returns the apparent delay of our own packet, sent at `sent` by our clock and received at `arrived` by the other
    /// end's clock.
    pub fn to_peer(sent: Time, arrived: PeerTime) -> Self {
        let sent = i64::try_from(sent.0).unwrap_or(i64::MAX);
        Self(arrived.0.saturating_sub(sent))
    }
    /// How much longer than `anchor` this packet was under way.
    pub const fn variation_since(self, anchor: Self) -> Offset {
        Offset(self.0.saturating_sub(anchor.0))
    }
    /// Moved by a share of the variation towards `sample`: one step of an exponentially weighted mean.
    #[must_use]
    pub fn towards(self, sample: Self, weight: f64) -> Self {
        Self(self.0.saturating_add((sample.variation_since(self).0 as f64 * weight) as i64))
    }
    /// The raw difference of the two clocks, for delay figures of a world in which both are one clock.
    pub const fn assuming_one_clock(self) -> Offset {
        Offset(self.0)
    }
}

/// A time as it stands on the wire: 32 bits in units of 2⁻¹⁸ s, modulo 2³² (it wraps after 4.5 hours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// One unit: 2⁻¹⁸ s, about 3.8 µs.
    pub const UNIT: Span = Span(3_815);

    /// The stamp of a time on one's own clock.
    pub fn of(at: Time) -> Self {
        Self(((u128::from(at.0) << 18) / 1_000_000_000) as u32)
    }
    /// The last time at or before `now`, on the clock that made the stamp, that has this stamp.
    pub fn own(self, now: Time) -> Time {
        let age = Self::of(now).0.wrapping_sub(self.0);
        now.before(Self::units(age))
    }
    /// On the other end's clock: the point nearest to `near`, an earlier stamp of the same clock (`None` at first).
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        let Some(near) = near else {
            return PeerTime(Self::units(self.0).0 as i64);
        };
        let near_units = ((i128::from(near.0) << 18).div_euclid(1_000_000_000)) as u32;
        let ahead = i64::from(self.0.wrapping_sub(near_units) as i32);
        PeerTime(near.0.saturating_add(((i128::from(ahead) * 1_000_000_000) >> 18) as i64))
    }
    /// This stamp moved later by `held`: an echo from which the holding time has been taken out.
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
