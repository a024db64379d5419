use crate::{Shaper, Steps};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span, Time, TokenBucket};

/// The delivery opportunities of a recorded link, as in Mahimahi's trace files: at each of these times up to 1500
/// bytes leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// The times, counted from the start of the trace. They never decrease, and there is at least one.
    pub at: Arc<[Span]>,
    /// Whether the trace repeats after its last opportunity.
    pub looped: bool,
}

impl Opportunities {
    /// The bytes of one opportunity.
    pub const BYTES: u64 = 1500;

    /// Returns the mean rate over one period, which ends at the last opportunity; `None` if the period is zero.
    pub fn mean_rate(&self) -> Option<Rate> {
        let period = self.at.last().filter(|last| !last.is_zero())?;
        Some(Bytes::new(Self::BYTES * self.at.len() as u64).per(*period))
    }

    fn time(&self, n: u64) -> Option<Time> {
        let len = self.at.len() as u64;
        let last = *self.at.last()?;
        let round = n / len;
        // If all opportunities of a trace have the same time, it has no period with which it could repeat.
        if round > 0 && (!self.looped || last.is_zero()) {
            return None;
        }
        Some(Time::ZERO + last * round + self.at[(n % len) as usize])
    }

    /// Returns the index of the first opportunity whose time is at or after `from` and whose index is at least `least`.
    fn first_from(&self, from: Time, least: u64) -> u64 {
        let len = self.at.len() as u64;
        let last = self.at.last().map_or(0, |s| s.as_nanos());
        // The search starts one period before `from`, because a search from the beginning of a long trace would be
        // slow.
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
    /// Transmission takes no time, so packets only have the propagation delay.
    Unlimited,
    /// A rate, constant or with steps. At a rate of 0 no packet leaves and the queue holds its packets.
    /// [`Service::UNLIMITED`] means no limit.
    Rate(Steps<Rate>),
    /// The rates of a file, which may change as often as those of a trace.
    Table {
        /// The rates over time.
        steps: Steps<Rate>,
        /// The mean of the rates.
        mean: Rate,
    },
    /// The delivery opportunities of a recorded trace.
    Trace(Opportunities),
}

impl Service {
    /// The rate that stands for "unlimited" during a part of the run.
    pub const UNLIMITED: Rate = Rate::mbps(1_000_000);
}

#[derive(Debug)]
pub(crate) struct Transmitter {
    service: Service,
    free: Time,
    // The rate that applies until `valid`. It is cached so that most packets need no search in the steps.
    rate: Rate,
    valid: Time,
    // The last packet size and its transmission time at the current rate. Most packets of a flow have one size.
    last: (Bytes, Span),
    // Trace: the number of the current opportunity, and the bytes left in it.
    opportunity: u64,
    left: u64,
    shaping: Option<Box<Shaping>>,
}

/// A shaper's bucket. A packet leaves when the bucket contains tokens for a packet of the maximum size. The packet's
/// own size is not known yet, because a queue that decides at dequeue selects the packet only when it leaves.
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

    /// Returns the time at which the transmitter has sent everything and the shaper lets the next packet leave.
    pub(crate) fn free_at(&self) -> Time {
        let holds_at = self.shaping.as_ref().map(|shaping| shaping.bucket.holds_at(shaping.largest));
        holds_at.map_or(self.free, |at| at.max(self.free))
    }

    /// Returns the shaper's rate, if there is a shaper.
    pub(crate) fn sustained(&self) -> Option<Rate> {
        self.shaping.as_ref().map(|shaping| shaping.bucket.rate())
    }

    /// Transmits `size` bytes from `start` on; the transmitter must be free at `start`. Returns the time at which the
    /// last bit has left.
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
                    // The cached transmission time was that of the previous rate.
                    self.last.0 = Bytes::ZERO;
                }
                if self.last.0 != size {
                    self.last = (size, size.at(self.rate));
                }
                let done = start + self.last.1;
                // A rate change during the transmission splits it into parts.
                if done <= self.valid { done } else { end_across_rate_changes(steps, start, size) }
            }
            Service::Trace(trace) => {
                let mut n = trace.first_from(start, self.opportunity);
                // Unused bytes of an opportunity are lost, as in Mahimahi.
                if n != self.opportunity {
                    self.left = Opportunities::BYTES;
                }
                let mut need = size.get();
                // A packet larger than the rest of the opportunity continues in the next one.
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
                // An opportunity without bytes left can't start a packet.
                let spent = n == self.opportunity && self.left == 0;
                trace.time(n + u64::from(spent)).unwrap_or(Time::NEVER)
            }
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let mut at = now;
                // During an outage transmission starts with the next rate above zero.
                while *steps.at(at) == Rate::ZERO && at < Time::NEVER {
                    at = steps.next_change(at);
                }
                at
            }
            Service::Unlimited => now,
        }
    }

    /// Returns the transmission time of `size` at the current rate.
    pub(crate) fn span(&self, now: Time, size: Bytes) -> Span {
        self.rate(now).map_or(Span::ZERO, |rate| size.at(rate))
    }

    /// Returns how many of the `size` bytes of a transmission that ends at `done` are not sent at `now`.
    pub(crate) fn unsent(&self, now: Time, done: Time, size: Bytes) -> Bytes {
        match &self.service {
            Service::Unlimited => Bytes::ZERO,
            _ if done <= now => Bytes::ZERO,
            // A trace sends a packet as a whole, at its opportunity.
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

    /// Returns the bytes that can be sent after `from` and until `until`. If `from` is the start of the run, the bytes
    /// at `from` are included. `None` if the rate is unlimited during part of that time.
    pub(crate) fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        let shaped = self.shaping.as_ref().map(|s| s.burst + s.bucket.rate().over(until.since(from)));
        [self.transmits(from, until), shaped].into_iter().flatten().min()
    }

    /// Returns [`Self::capacity`] without the shaper's limit.
    fn transmits(&self, from: Time, until: Time) -> Option<Bytes> {
        match &self.service {
            Service::Unlimited => None,
            Service::Rate(steps) | Service::Table { steps, .. } => {
                let (mut now, mut sum) = (from, Bytes::ZERO);
                while now < until {
                    let (rate, next) = (*steps.at(now), steps.next_change(now).min(until));
                    // If part of the interval has no rate limit, the capacity is infinite. In that case no value is
                    // returned, because a finite one would be wrong.
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

/// Returns the end of a transmission during which the rate changes.
fn end_across_rate_changes(steps: &Steps<Rate>, start: Time, size: Bytes) -> Time {
    // Integer arithmetic in bits · 10⁻⁹ keeps the result exact over any number of changes.
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
