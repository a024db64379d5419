//! Counts the packets that arrive at a receiver.

use crate::agent::FigureContext;
use crate::{Fields, Row, Rows};
use std::ops::Range;
use steadycast_record::{Figures, receiver};
use steadycast_units::{Bytes, Span, Spread, Time};

/// Counts the packets that arrive, in total and per step of a series.
#[derive(Clone, Debug, Default)]
pub struct Intake {
    /// When the averaging period starts.
    from: Time,
    /// When the averaging period ends.
    until: Time,
    /// Pauses of the flow, each with its start and end. They do not belong to the averaging period.
    pauses: Vec<(Time, Time)>,
    /// IP bytes that arrived in the averaging period. Duplicates are not counted.
    pub bytes: Bytes,
    /// The one-way delays in the averaging period.
    pub delay: Spread,
    now: Sample,
    last: Sample,
    /// Number of steps in the series.
    steps: usize,
    /// The last step with an arrival, and the number of packets expected in it.
    heard: Option<(usize, u32)>,
    /// Counts per step of the series.
    pub samples: Rows<Point>,
    /// Digest of all arrivals and their times.
    pub digest: Digest,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    bytes: u64,
    packets: u64,
    /// Number of packets whose delay is known.
    delays: u64,
    delay_ns: u64,
    expected: u64,
}

/// One step of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// IP bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
    /// Number of packets expected in the step.
    pub expected: u32,
    /// Mean one-way delay of the packets whose delay is known.
    pub delay: Option<Span>,
    /// Bytes in the play-out buffer at the end of the step, if there is a buffer.
    pub buffer: Option<Bytes>,
    /// Play-out delay at the end of the step, if there is one.
    pub playout: Option<Span>,
}

impl Row for Point {
    fn pass(&mut self, by: &mut Fields<'_>) {
        self.bytes.pass(by);
        self.packets.pass(by);
        self.expected.pass(by);
        self.delay.pass(by);
        // Most points have neither `buffer` nor `playout`, so one flag stands for both.
        let mut more = self.buffer.is_some() || self.playout.is_some();
        more.pass(by);
        if more {
            self.buffer.pass(by);
            self.playout.pass(by);
        }
    }
}

impl Intake {
    /// Creates counts whose averaging period lasts from `from` to `until`.
    pub fn new(from: Time, until: Time) -> Self {
        Self { from, until, ..Self::default() }
    }

    /// Stores the series compactly, for very large groups.
    #[must_use]
    pub fn packed(self) -> Self {
        Self { samples: Rows::packed(), ..self }
    }

    /// Excludes the pauses of a flow from the averaging period. `stretches` are the flow's active periods.
    pub fn active(mut self, stretches: &[(Time, Time)]) -> Self {
        self.pauses = stretches.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
        self
    }

    /// Counts a packet that is no duplicate. It has the size `size` and was sent at `sent`. If `sent` is `None`, its
    /// delay is unknown.
    #[inline]
    pub fn add(&mut self, now: Time, size: Bytes, sent: Option<Time>) {
        let delay = sent.map(|sent| now.since(sent));
        self.now.count(size, delay);
        if self.counts(now) {
            self.bytes += size;
            if let Some(delay) = delay {
                self.delay.add(delay);
            }
        }
        self.digest.add(digested(now, size));
    }

    /// Counts all packets of a bundle as [`Intake::add`] does. Returns false and changes nothing if packets may lie
    /// outside of the averaging period.
    pub(crate) fn add_all(&mut self, bundle: &Bundle) -> bool {
        let Bundle { begins, ends, sum, delay, digested } = bundle;
        if !self.pauses.is_empty() || *begins < self.from || *ends > self.until {
            return false;
        }
        self.now.bytes += sum.bytes;
        self.now.packets += sum.packets;
        self.now.delays += sum.delays;
        self.now.delay_ns += sum.delay_ns;
        self.bytes += Bytes::new(sum.bytes);
        self.delay.merge(delay);
        digested.iter().for_each(|value| self.digest.add(*value));
        true
    }

    /// Counts the bytes of a repair packet. The lost packet that it repairs still counts as lost.
    pub fn add_repair(&mut self, now: Time, size: Bytes) {
        self.now.bytes += size.get();
        if self.counts(now) {
            self.bytes += size;
        }
        // Invert the value, so that a repair's digest differs from an original's.
        self.digest.add(!digested(now, size));
    }

    /// Returns whether `now` lies in the averaging period and not in a pause.
    pub fn counts(&self, now: Time) -> bool {
        let pauses = self.pauses.iter().any(|(from, to)| now > *from && now < *to);
        now >= self.from && now <= self.until && !pauses
    }

    /// Returns the number of packets in the whole run, without duplicates.
    pub const fn packets(&self) -> u64 {
        self.now.packets
    }

    /// Returns how many packets were expected and how many arrived, from the first step of the averaging period on.
    pub(crate) fn expected_and_got(&self, about: &FigureContext<'_>) -> (u64, u64) {
        let all = self.samples.all();
        let counted = all.get(about.first_step..).unwrap_or(&[]);
        let sum = |of: fn(&Point) -> u32| counted.iter().map(|point| u64::from(of(point))).sum::<u64>();
        (sum(|p| p.expected) + about.unheard, sum(|p| p.packets))
    }

    /// Returns the steps from the last arrival on whose packets would have arrived by `now`, and how many packets were
    /// expected in them. `step` is the length of a step.
    ///
    /// A sink expects the packets up to the newest that has arrived, so it does not notice the loss of later ones.
    pub(crate) fn silent_steps(&self, now: Time, step: Span) -> (Range<usize>, u64) {
        let (heard, expected) = self.heard.unwrap_or_default();
        let settled = now.since(Time::ZERO).saturating_sub(self.delay.max().unwrap_or_default());
        (heard..(settled.as_nanos() / step.as_nanos()) as usize, u64::from(expected))
    }

    /// Writes the loss and the delay as figures.
    pub(crate) fn figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        let (expected, got) = self.expected_and_got(about);
        // `got` may exceed `expected`, because a packet that was expected before the first step may arrive later. Limit
        // the loss to zero then.
        let lost = (expected > 0).then(|| (1.0 - got as f64 / expected as f64).max(0.0));
        into.put(&receiver::LOSS, lost);
        into.put_spread(&receiver::DELAY, &self.delay);
        into.put_span(&receiver::DELAY_MEAN, self.delay.mean());
    }

    /// Appends the present time step to the series. `expected` is the number of packets that should have arrived so
    /// far.
    pub fn sample(&mut self, expected: u64) {
        self.now.expected = expected;
        let packets = (self.now.packets - self.last.packets) as u32;
        let expected = expected.saturating_sub(self.last.expected) as u32;
        if packets > 0 {
            self.heard = Some((self.steps, expected));
        }
        self.steps += 1;
        self.samples.push(Point {
            bytes: self.now.bytes - self.last.bytes,
            packets,
            expected,
            delay: (self.now.delay_ns - self.last.delay_ns)
                .checked_div(self.now.delays - self.last.delays)
                .map(Span::nanos),
            buffer: None,
            playout: None,
        });
        self.last = self.now;
    }
}

/// Packets without duplicates that reached many receivers at the same times. They are summed once for all receivers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    begins: Time,
    ends: Time,
    sum: Sample,
    delay: Spread,
    digested: Vec<u64>,
}

impl Bundle {
    /// Adds a packet. The parameters are explained at [`Intake::add`].
    pub(crate) fn add(&mut self, now: Time, size: Bytes, sent: Option<Time>) {
        if self.sum.packets == 0 {
            self.begins = now;
        }
        self.ends = now;
        let delay = sent.map(|sent| now.since(sent));
        self.sum.count(size, delay);
        if let Some(delay) = delay {
            self.delay.add(delay);
        }
        self.digested.push(digested(now, size));
    }

    pub(crate) const fn packets(&self) -> u64 {
        self.sum.packets
    }
}

impl Sample {
    #[inline]
    fn count(&mut self, size: Bytes, delay: Option<Span>) {
        self.bytes += size.get();
        self.packets += 1;
        if let Some(delay) = delay {
            self.delays += 1;
            self.delay_ns += delay.as_nanos();
        }
    }
}

#[inline]
const fn digested(now: Time, size: Bytes) -> u64 {
    now.as_nanos() ^ size.get() << 48
}

/// A running digest of a sequence of values. Different sequences have different digests with high probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        // With an odd multiplier and a rotation, each bit affects all later states.
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    /// Returns the digest so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}
