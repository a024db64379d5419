use crate::{Shaper, Steps};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time, TokenBucket};

/// The times at which a recorded link can deliver data (Mahimahi). Up to 1500 bytes leave at each of these times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Times since the start of the trace. They do not decrease, and there is at least one.
    pub at: Arc<[Span]>,
    /// Whether the trace repeats.
    pub looped: bool,
}

impl Opportunities {
    /// Number of bytes that can leave at one delivery opportunity.
    pub const BYTES: u64 = 1500;

    /// Returns the mean rate up to the last opportunity. Returns `None` if the last opportunity is at time zero.
    pub fn mean_rate(&self) -> Option<Rate> {
        let period = self.at.last().filter(|last| !last.is_zero())?;
        Some(Bytes::new(Self::BYTES * self.at.len() as u64).per(*period))
    }

    fn time(&self, n: u64) -> Option<Time> {
        let len = self.at.len() as u64;
        let last = *self.at.last()?;
        let round = n / len;
        // The last time is the period of the trace. A trace with a period of zero can't be repeated.
        if round > 0 && (!self.looped || last.is_zero()) {
            return None;
        }
        Some(Time::ZERO + last * round + self.at[(n % len) as usize])
    }

    /// Returns the index of the first opportunity at or after `from`. The index is at least `least`.
    fn first_from(&self, from: Time, least: u64) -> u64 {
        let len = self.at.len() as u64;
        let last = self.at.last().map_or(0, |s| s.as_nanos());
        // Skip whole periods, because a search from the beginning of a long trace is slow.
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
    /// A rate that changes at known times. At a rate of 0, the queue keeps its packets. [`Service::UNLIMITED`] means no
    /// limit.
    Rate(Steps<Rate>),
    /// Rates that were read from a file.
    Table {
        /// The rates over time.
        steps: Steps<Rate>,
        /// Mean of the rates.
        mean: Rate,
    },
    /// A trace of a recorded link.
    Trace(Opportunities),
}

impl Service {
    /// The rate that means "unlimited".
    pub const UNLIMITED: Rate = Rate::mbps(1_000_000);
}

#[derive(Debug)]
pub(crate) struct Transmitter {
    service: Service,
    free: Time,
    // The rate at present. It is cached until `valid`, which saves most searches in the steps.
    rate: Rate,
    valid: Time,
    // Size of the last packet, and its transmission time at `rate`.
    last: (Bytes, Span),
    // Index of the current opportunity of a trace, and the bytes that are left in it.
    opportunity: u64,
    left: u64,
    shaping: Option<Box<Shaping>>,
}

/// The token bucket of a shaper. A packet may depart only when there are tokens for the largest packet. The size of the
/// packet is not known before, because the queue selects the packet only at its departure.
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

    /// Returns when the transmitter has sent everything and the shaper lets the next packet leave.
    pub(crate) fn free_at(&self) -> Time {
        let holds_at = self.shaping.as_ref().map(|shaping| shaping.bucket.holds_at(shaping.largest));
        holds_at.map_or(self.free, |at| at.max(self.free))
    }

    /// Returns the rate of the shaper, if there is one.
    pub(crate) fn sustained(&self) -> Option<Rate> {
        self.shaping.as_ref().map(|shaping| shaping.bucket.rate())
    }

    /// Transmits `size` bytes from `start` on. The transmitter must be free then. Returns when the transmission ends.
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
                // If the rate changes during the transmission, compute the end piece by piece.
                if done <= self.valid { done } else { end_across_rate_changes(steps, start, size) }
            }
            Service::Trace(trace) => {
                let mut n = trace.first_from(start, self.opportunity);
                // Bytes that an opportunity did not use are lost, as in Mahimahi.
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

    /// Returns the earliest time from `now` on at which a transmission can start.
    pub(crate) fn ready(&self, now: Time) -> Time {
        let now = now.max(self.free_at());
        match &self.service {
            Service::Trace(trace) => {
                let n = trace.first_from(now, self.opportunity);
                // Take the next opportunity if all bytes of this one are used.
                let spent = n == self.opportunity && self.left == 0;
                trace.time(n + u64::from(spent)).unwrap_or(Time::NEVER)
            }
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let mut at = now;
                // During an outage, wait for a rate above zero.
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

    /// Returns how many bytes of a transmission are not sent yet at `now`. The transmission has `size` bytes and ends
    /// at `done`.
    pub(crate) fn unsent(&self, now: Time, done: Time, size: Bytes) -> Bytes {
        match &self.service {
            Service::Unlimited => Bytes::ZERO,
            _ if done <= now => Bytes::ZERO,
            // Count the whole packet, because a trace sends a packet in one piece.
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

    /// Returns how many bytes can be sent after `from` and until `until`. Returns `None` if there is no shaper and the
    /// rate is unlimited for a part of this time.
    pub(crate) fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        let shaped = self.shaping.as_ref().map(|s| s.burst + s.bucket.rate().over(until.since(from)));
        [self.transmits(from, until), shaped].into_iter().flatten().min()
    }

    /// Returns the capacity like [`Transmitter::capacity`], but without the limit of the shaper.
    fn transmits(&self, from: Time, until: Time) -> Option<Bytes> {
        match &self.service {
            Service::Unlimited => None,
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let (mut now, mut sum) = (from, Bytes::ZERO);
                while now < until {
                    let (rate, next) = (*steps.at(now), steps.next_change(now).min(until));
                    // Return `None` if there is no limit for a part of the time.
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
    // Count in bits · 10⁻⁹, so that no rounding error arises over any number of rate changes.
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
