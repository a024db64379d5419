use crate::{Bytes, Rate, Span, Time};

/// A token bucket (RFC 2697, but with a single bucket). It fills at `rate`, holds at most `burst` bytes, and is full at
/// the start. Callers that wait for enough tokens take at most `rate · T + burst` in any time T.
///
/// The bucket stores the time at which it will be full, not its number of tokens. Nothing has to be updated while it
/// fills.
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
    /// The time that the empty bucket takes to fill.
    depth: Span,
    full: Time,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(rate: Rate, burst: Bytes) -> Self {
        Self { rate, depth: burst.at(rate), full: Time::ZERO }
    }

    /// Returns the rate at which the bucket fills.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether the bucket holds `size` at `now`; never if `size` exceeds the burst.
    pub fn holds(&self, now: Time, size: Bytes) -> bool {
        // If the bucket holds `size`, then after `size` is taken it needs at most `depth` to fill: no longer than an
        // empty bucket.
        (self.full.max(now) + size.at(self.rate)).since(now) <= self.depth
    }

    /// Returns the earliest time at which the bucket holds `size`, if nothing more is taken. For a `size` above the
    /// burst, this is the time at which the bucket is full.
    pub fn holds_at(&self, size: Bytes) -> Time {
        self.full.before(self.depth.saturating_sub(size.at(self.rate)))
    }

    /// Takes `size` tokens out of the bucket at `now`. If it holds fewer, it goes into debt, and later packets wait
    /// until the debt is repaid.
    pub fn take(&mut self, now: Time, size: Bytes) {
        self.full = self.full.max(now) + size.at(self.rate);
    }
}
