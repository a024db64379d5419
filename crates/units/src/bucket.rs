use crate::{Bytes, Rate, Span, Time};

/// A token bucket, as in RFC 2697 but with a single bucket. It is full at the start. A caller that waits for tokens
/// sends at most `rate · T + burst` in any time T.
///
/// The bucket stores the time at which it will be full, because this time does not change while the bucket fills.
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
    /// The time in which the empty bucket fills up.
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

    /// Returns whether the bucket contains `size` tokens at `now`. This is never the case if `size` exceeds the burst.
    pub fn holds(&self, now: Time, size: Bytes) -> bool {
        // Compute how long the bucket would take to fill if `size` tokens were removed now. If this is longer than an
        // empty bucket takes, there are too few tokens.
        (self.full.max(now) + size.at(self.rate)).since(now) <= self.depth
    }

    /// Returns when the bucket contains `size` tokens. If `size` exceeds the burst, returns when the bucket is full.
    pub fn holds_at(&self, size: Bytes) -> Time {
        self.full.before(self.depth.saturating_sub(size.at(self.rate)))
    }

    /// Takes `size` tokens. If the bucket contains fewer tokens, later packets have to wait longer.
    pub fn take(&mut self, now: Time, size: Bytes) {
        self.full = self.full.max(now) + size.at(self.rate);
    }
}
