//! What arrives at a receiver, counted.

use crate::{Fields, Row, Rows};
use steadycast_record::{Figures, receiver};
use steadycast_units::{Bytes, Span, Spread, Time};

/// Counts of what arrived; a series of them is made by taking samples.
#[derive(Clone, Debug, Default)]
pub struct Intake {
    /// Means count from here on …
    from: Time,
    /// … up to here.
    until: Time,
    /// Nor while the flow pauses.
    pauses: Vec<(Time, Time)>,
    /// IP bytes of distinct packets between them.
    pub bytes: Bytes,
    /// One-way delays of the packets between them.
    pub delay: Spread,
    now: Sample,
    last: Sample,
    /// The series.
    pub samples: Rows<Point>,
    /// A digest of what came, and when.
    pub digest: Digest,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    bytes: u64,
    packets: u64,
    delay_ns: u64,
    expected: u64,
}

/// One step of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// IP bytes in the step.
    pub bytes: u64,
    /// Packets in the step.
    pub packets: u32,
    /// Packets that were expected in the step.
    pub expected: u32,
    /// Mean one-way delay in the step.
    pub delay: Option<Span>,
    /// What is in the play-out buffer at its end, where there is one.
    pub buffer: Option<Bytes>,
    /// The play-out delay at its end, where there is one.
    pub playout: Option<Span>,
}

impl Row for Point {
    fn pass(&mut self, by: &mut Fields<'_>) {
        self.bytes.pass(by);
        self.packets.pass(by);
        self.expected.pass(by);
        self.delay.pass(by);
        // Most have neither.
        let mut more = self.buffer.is_some() || self.playout.is_some();
        more.pass(by);
        if more {
            self.buffer.pass(by);
            self.playout.pass(by);
        }
    }
}

impl Intake {
    /// Means are taken between these times.
    pub fn new(from: Time, until: Time) -> Self {
        Self { from, until, ..Self::default() }
    }

    /// One of very many: its series is to take little memory.
    #[must_use]
    pub fn packed(self) -> Self {
        Self { samples: Rows::packed(), ..self }
    }

    /// Leaves the time between these stretches out of the means.
    pub fn active(mut self, stretches: &[(Time, Time)]) -> Self {
        self.pauses = stretches.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
        self
    }

    /// A distinct packet of `size` that left at `sent`.
    #[inline]
    pub fn add(&mut self, now: Time, size: Bytes, sent: Time) {
        let delay = now.since(sent);
        self.now.count(size, delay);
        if self.counts(now) {
            self.bytes += size;
            self.delay.add(delay);
        }
        self.digest.add(digested(now, size));
    }

    /// Adds a whole bundle, as one packet after the other by [`Intake::add`]. Returns `false`, and does nothing, where
    /// means begin, end or pause meanwhile.
    pub(crate) fn add_all(&mut self, bundle: &Bundle) -> bool {
        let Bundle { begins, ends, sum, delay, digested } = bundle;
        if !self.pauses.is_empty() || *begins < self.from || *ends > self.until {
            return false;
        }
        self.now.bytes += sum.bytes;
        self.now.packets += sum.packets;
        self.now.delay_ns += sum.delay_ns;
        self.bytes += Bytes::new(sum.bytes);
        self.delay.merge(delay);
        digested.iter().for_each(|value| self.digest.add(*value));
        true
    }

    /// A packet of `size` that repairs a lost one: its bytes arrived, the lost packet did not.
    pub fn add_repair(&mut self, now: Time, size: Bytes) {
        self.now.bytes += size.get();
        if self.counts(now) {
            self.bytes += size;
        }
        self.digest.add(!digested(now, size));
    }

    /// Whether means are taken now.
    pub fn counts(&self, now: Time) -> bool {
        let pauses = self.pauses.iter().any(|(from, to)| now > *from && now < *to);
        now >= self.from && now <= self.until && !pauses
    }

    /// Distinct packets, the whole time.
    pub const fn packets(&self) -> u64 {
        self.now.packets
    }

    /// Packets that were expected from this step of the series on, and that came.
    pub(crate) fn expected_and_got(&self, first_step: usize) -> (u64, u64) {
        let all = self.samples.all();
        let counted = all.get(first_step..).unwrap_or(&[]);
        let sum = |of: fn(&Point) -> u32| counted.iter().map(|point| u64::from(of(point))).sum::<u64>();
        (sum(|p| p.expected), sum(|p| p.packets))
    }

    /// Writes loss from this step of the series on, and delay.
    pub(crate) fn figures(&self, first_step: usize, into: &mut Figures) {
        let (expected, got) = self.expected_and_got(first_step);
        let lost = (expected > 0).then(|| (1.0 - got as f64 / expected as f64).max(0.0));
        into.put(&receiver::LOSS, lost);
        into.put_spread(&receiver::DELAY, &self.delay);
        into.put_span(&receiver::DELAY_MEAN, self.delay.mean());
    }

    /// Ends a step of the series; `expected` are all packets that should have come so far.
    pub fn sample(&mut self, expected: u64) {
        self.now.expected = expected;
        let packets = self.now.packets - self.last.packets;
        self.samples.push(Point {
            bytes: self.now.bytes - self.last.bytes,
            packets: packets as u32,
            expected: expected.saturating_sub(self.last.expected) as u32,
            delay: (self.now.delay_ns - self.last.delay_ns).checked_div(packets).map(Span::nanos),
            buffer: None,
            playout: None,
        });
        self.last = self.now;
    }
}

/// Distinct packets that have reached many receivers alike: they are added up once for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    begins: Time,
    ends: Time,
    sum: Sample,
    delay: Spread,
    digested: Vec<u64>,
}

impl Bundle {
    /// What it is made of: see [`Intake::add`].
    pub(crate) fn add(&mut self, now: Time, size: Bytes, sent: Time) {
        if self.sum.packets == 0 {
            self.begins = now;
        }
        self.ends = now;
        self.sum.count(size, now.since(sent));
        self.delay.add(now.since(sent));
        self.digested.push(digested(now, size));
    }

    pub(crate) const fn packets(&self) -> u64 {
        self.sum.packets
    }
}

impl Sample {
    #[inline]
    fn count(&mut self, size: Bytes, delay: Span) {
        self.bytes += size.get();
        self.packets += 1;
        self.delay_ns += delay.as_nanos();
    }
}

/// What a packet adds to the digest.
#[inline]
const fn digested(now: Time, size: Bytes) -> u64 {
    now.as_nanos() ^ size.get() << 48
}

/// A running digest of a record: cheap per packet, and different for any other record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Goes on with this value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        // A multiplication by an odd constant and a rotation: every bit of the past moves every later state.
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    /// The digest so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}
