use crate::{Bytes, Rate, Span, Time};

/// A token bucket (as in RFC 2697, but a single bucket). It fills at `rate`, contains at most `burst` bytes, and is
/// full at the start. Callers that wait for enough tokens send at most `rate · T + burst` in any time T.
///
/// Instead of the number of tokens, the bucket stores the time at which it will be full. This time does not change
/// while the bucket fills, so nothing has to be updated.
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
/// // The bucket is empty now. After 2 ms it contains the tokens of one packet.
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

    /// Whether the bucket contains `size` tokens at `now`; always false if `size` exceeds the burst.
    pub fn holds(&self, now: Time, size: Bytes) -> bool {
        // After `size` is taken, the bucket must not need longer to fill than an empty bucket.
        (self.full.max(now) + size.at(self.rate)).since(now) <= self.depth
    }

    /// Returns the earliest time at which the bucket contains `size` tokens, if nothing more is taken. For a `size`
    /// above the burst, this is the time at which the bucket is full.
    pub fn holds_at(&self, size: Bytes) -> Time {
        self.full.before(self.depth.saturating_sub(size.at(self.rate)))
    }

    /// Takes `size` tokens out of the bucket at `now`. If it contains fewer, the number of tokens becomes negative, and
    /// later packets wait longer.
    pub fn take(&mut self, now: Time, size: Bytes) {
        self.full = self.full.max(now) + size.at(self.rate);
    }
}
