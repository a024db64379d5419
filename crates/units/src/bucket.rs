use crate::{Bytes, Rate, Span, Time};

/// A token bucket (RFC 2697, with one bucket), full at the start. Callers that wait for tokens send at most `rate · T
/// + burst` in any time T.
///
/// The bucket stores when it will be full, because that does not change while it fills.
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
    /// The time to fill the empty bucket.
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
        // The bucket must not become emptier than empty.
        (self.full.max(now) + size.at(self.rate)).since(now) <= self.depth
    }

    /// Returns when the bucket contains `size` tokens; for more than the burst, when it is full.
    pub fn holds_at(&self, size: Bytes) -> Time {
        self.full.before(self.depth.saturating_sub(size.at(self.rate)))
    }

    /// Takes `size` tokens. With too few, later packets wait longer.
    pub fn take(&mut self, now: Time, size: Bytes) {
        self.full = self.full.max(now) + size.at(self.rate);
    }
}
