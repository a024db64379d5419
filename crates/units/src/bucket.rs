use crate::{Bytes, Rate, Span, Time};

/// A token bucket (RFC 2697, with one bucket): it fills at a rate, holds at most a burst, and is full at the start.
/// Over any time T at most `rate · T + burst` is taken out of it by those who wait until it holds what they take.
///
/// The state is the time at which the bucket will be full, so that nothing has to be done as it fills.
///
/// ```
/// use steadycast_units::{Bytes, Rate, Span, Time, TokenBucket};
///
/// let mut bucket = TokenBucket::new(Rate::mbps(4), Bytes::new(3_000));
/// let packet = Bytes::new(1_000);
/// for _ in 0..3 {
///     assert!(bucket.holds(Time::ZERO, packet));
///     bucket.take(Time::ZERO, packet);
/// }
/// // It is empty. The tokens of one packet take 2 ms.
/// assert_eq!(bucket.holds_at(packet), Time::ZERO + Span::millis(2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// How long the empty bucket takes to fill.
    depth: Span,
    full: Time,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(rate: Rate, burst: Bytes) -> Self {
        Self { rate, depth: burst.at(rate), full: Time::ZERO }
    }

    /// The rate at which the bucket fills.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether the bucket holds `size` at `now`; never where `size` is above the burst.
    pub fn holds(&self, now: Time, size: Bytes) -> bool {
        (self.full.max(now) + size.at(self.rate)).since(now) <= self.depth
    }

    /// The earliest time at which the bucket holds `size`, if nothing more is taken; for a `size` above the burst the
    /// time at which it is full.
    pub fn holds_at(&self, size: Bytes) -> Time {
        self.full.before(self.depth.saturating_sub(size.at(self.rate)))
    }

    /// Takes `size` out of the bucket at `now`, also where it holds less: what follows waits for the difference.
    pub fn take(&mut self, now: Time, size: Bytes) {
        self.full = self.full.max(now) + size.at(self.rate);
    }
}
