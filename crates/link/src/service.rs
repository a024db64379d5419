use crate::{Shaper, Steps};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time, TokenBucket};

/// The delivery opportunities of a recorded link (Mahimahi): at each, up to 1500 bytes leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// The times from the start of the trace, not decreasing and not empty.
    pub at: Arc<[Span]>,
    /// Whether the trace repeats.
    pub looped: bool,
}

impl Opportunities {
    /// The bytes of one opportunity.
    pub const BYTES: u64 = 1500;

    /// Returns the mean rate up to the last opportunity; `None` if its time is zero.
    pub fn mean_rate(&self) -> Option<Rate> {
        let period = self.at.last().filter(|last| !last.is_zero())?;
        Some(Bytes::new(Self::BYTES * self.at.len() as u64).per(*period))
    }

    fn time(&self, n: u64) -> Option<Time> {
        let len = self.at.len() as u64;
        let last = *self.at.last()?;
        let round = n / len;
        // The last time is the trace's period. A period of zero can't be looped.
        if round > 0 && (!self.looped || last.is_zero()) {
            return None;
        }
        Some(Time::ZERO + last * round + self.at[(n % len) as usize])
    }

    /// Returns the index of the first opportunity at or after `from`, at least `least`.
    fn first_from(&self, from: Time, least: u64) -> u64 {
        let len = self.at.len() as u64;
        let last = self.at.last().map_or(0, |s| s.as_nanos());
        // A search from the beginning of a long trace is slow.
        let mut n = least;
        if self.looped && last > 0 {
            n = n.max((from.as_nanos() / last).saturating_sub(1) * len);
        }
        while self.time(n).is_some_and(|t| t < from) {
            n += 1;
        }
        n
    }
}

/// The transmission rate of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Transmission takes no time.
    Unlimited,
    /// A rate with steps. At 0 the queue holds its packets; [`Service::UNLIMITED`] is no limit.
    Rate(Steps<Rate>),
    /// The rates of a file.
    Table {
        /// The rates over time.
        steps: Steps<Rate>,
        /// The mean of the rates.
        mean: Rate,
    },
    /// A recorded trace.
    Trace(Opportunities),
}

impl Service {
    /// The rate that stands for "unlimited".
    pub const UNLIMITED: Rate = Rate::mbps(1_000_000);
}

#[derive(Debug)]
pub(crate) struct Transmitter {
    service: Service,
    free: Time,
    // Cached until `valid`, which saves most searches in the steps.
    rate: Rate,
    valid: Time,
    // The last packet size and its transmission time at `rate`.
    last: (Bytes, Span),
    // The current opportunity of a trace, and the bytes left in it.
    opportunity: u64,
    left: u64,
    shaping: Option<Box<Shaping>>,
}

/// A shaper's token bucket. A packet departs when the bucket has tokens for the largest packet size, because the queue
/// selects the packet only at its departure.
#[derive(Debug)]
struct Shaping {
    bucket: TokenBucket,
    burst: Bytes,
    largest: Bytes,
}

impl Transmitter {
    pub(crate) fn new(service: &Service, shaper: Option<Shaper>, largest: Bytes) -> Self {
        let shaping =
            shaper.map(|Shaper { rate, burst }| Shaping { bucket: TokenBucket::new(rate, burst), burst, largest });
        Self {
            service: service.clone(),
            free: Time::ZERO,
            rate: Rate::ZERO,
            valid: Time::ZERO,
            last: (Bytes::ZERO, Span::ZERO),
            opportunity: 0,
            left: Opportunities::BYTES,
            shaping: shaping.map(Box::new),
        }
    }

    /// Returns when everything is sent and the shaper lets the next packet leave.
    pub(crate) fn free_at(&self) -> Time {
        let holds_at = self.shaping.as_ref().map(|shaping| shaping.bucket.holds_at(shaping.largest));
        holds_at.map_or(self.free, |at| at.max(self.free))
    }

    /// Returns the shaper's rate.
    pub(crate) fn sustained(&self) -> Option<Rate> {
        self.shaping.as_ref().map(|shaping| shaping.bucket.rate())
    }

    /// Transmits `size` bytes from `start`, when the transmitter must be free. Returns the end.
    pub(crate) fn send(&mut self, start: Time, size: Bytes) -> Time {
        if let Some(shaping) = &mut self.shaping {
            shaping.bucket.take(start, size);
        }
        self.free = match &self.service {
            Service::Unlimited => start,
            Service::Rate(steps) | Service::Table { steps, .. } => {
                if start >= self.valid {
                    self.rate = *steps.at(start);
                    self.valid = steps.next_change(start);
                    self.last.0 = Bytes::ZERO;
                }
                if self.last.0 != size {
                    self.last = (size, size.at(self.rate));
                }
                let done = start + self.last.1;
                // A rate change splits the transmission.
                if done <= self.valid { done } else { end_across_rate_changes(steps, start, size) }
            }
            Service::Trace(trace) => {
                let mut n = trace.first_from(start, self.opportunity);
                // Unused bytes are lost, as in Mahimahi.
                if n != self.opportunity {
                    self.left = Opportunities::BYTES;
                }
                let mut need = size.get();
                while need > self.left {
                    need -= self.left;
                    self.left = Opportunities::BYTES;
                    n += 1;
                }
                self.left -= need;
                self.opportunity = n;
                trace.time(n).unwrap_or(Time::NEVER)
            }
        };
        self.free
    }

    /// Returns the earliest start of a transmission from `now` on.
    pub(crate) fn ready(&self, now: Time) -> Time {
        let now = now.max(self.free_at());
        match &self.service {
            Service::Trace(trace) => {
                let n = trace.first_from(now, self.opportunity);
                // A spent opportunity can't start a packet.
                let spent = n == self.opportunity && self.left == 0;
                trace.time(n + u64::from(spent)).unwrap_or(Time::NEVER)
            }
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let mut at = now;
                // An outage ends with a rate above zero.
                while *steps.at(at) == Rate::ZERO && at < Time::NEVER {
                    at = steps.next_change(at);
                }
                at
            }
            Service::Unlimited => now,
        }
    }

    pub(crate) fn span(&self, now: Time, size: Bytes) -> Span {
        self.rate(now).map_or(Span::ZERO, |rate| size.at(rate))
    }

    /// Returns the unsent bytes at `now` of a transmission of `size` bytes that ends at `done`.
    pub(crate) fn unsent(&self, now: Time, done: Time, size: Bytes) -> Bytes {
        match &self.service {
            Service::Unlimited => Bytes::ZERO,
            _ if done <= now => Bytes::ZERO,
            // A trace sends a packet as a whole.
            Service::Trace(_) => size,
            _ if done == Time::NEVER => size,
            Service::Rate(_) | Service::Table { .. } => self.transmits(now, done).unwrap_or(size).min(size),
        }
    }

    pub(crate) fn rate(&self, now: Time) -> Option<Rate> {
        match &self.service {
            Service::Rate(steps) | Service::Table { steps, .. } => Some(*steps.at(now)),
            Service::Unlimited | Service::Trace(_) => None,
        }
    }

    pub(crate) fn next_change(&self, now: Time) -> Time {
        match &self.service {
            Service::Rate(steps) => steps.next_change(now),
            Service::Unlimited | Service::Table { .. } | Service::Trace(_) => Time::NEVER,
        }
    }

    pub(crate) const fn is_traced(&self) -> bool {
        matches!(self.service, Service::Trace(_) | Service::Table { .. })
    }

    /// Returns the bytes that can be sent after `from` and until `until`; `None` if the rate is unlimited at times.
    pub(crate) fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        let shaped = self.shaping.as_ref().map(|s| s.burst + s.bucket.rate().over(until.since(from)));
        [self.transmits(from, until), shaped].into_iter().flatten().min()
    }

    /// Without the shaper's limit.
    fn transmits(&self, from: Time, until: Time) -> Option<Bytes> {
        match &self.service {
            Service::Unlimited => None,
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let (mut now, mut sum) = (from, Bytes::ZERO);
                while now < until {
                    let (rate, next) = (*steps.at(now), steps.next_change(now).min(until));
                    // A part without a limit makes the capacity infinite.
                    sum += (rate < Service::UNLIMITED).then(|| rate.over(next.since(now)))?;
                    now = next;
                }
                Some(sum)
            }
            Service::Trace(trace) => {
                let until_and_at = |at: Time| trace.first_from(at + Span::nanos(1), 0);
                let before = if from == Time::ZERO { 0 } else { until_and_at(from) };
                Some(Bytes::new(until_and_at(until).saturating_sub(before) * Opportunities::BYTES))
            }
        }
    }
}

fn end_across_rate_changes(steps: &Steps<Rate>, start: Time, size: Bytes) -> Time {
    // In bits · 10⁻⁹, which is exact over any number of changes.
    let (mut now, mut bits) = (start, u128::from(size.get()) * 8_000_000_000);
    loop {
        let rate = u128::from(steps.at(now).as_bps());
        let change = steps.next_change(now);
        let can = rate * u128::from(change.since(now).as_nanos());
        if can >= bits || change == Time::NEVER {
            if rate == 0 {
                return Time::NEVER;
            }
            return now + Span::nanos(u64::try_from(bits.div_ceil(rate)).unwrap_or(u64::MAX));
        }
        bits -= can;
        now = change;
    }
}
