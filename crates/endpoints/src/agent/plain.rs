//! Traffic at a constant rate, and its sink. The source sends always or in periods.

use super::{Agent, FigureContext, Out, Recorded, SentStep};
use crate::intake::{Bundle, Intake};
use crate::{Activity, Body, Rows};
use steadycast_link::Ecn;
use steadycast_record::{Figures, flow};
use steadycast_scenario::{Pareto, PeriodDist, Periods};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// If `poll` is called late, missed packets are still sent if they were due within this time. Older packets are
/// skipped, because sending all of them would be a burst.
const MAX_CATCH_UP: Span = Span::millis(20);

/// When a source sends.
pub enum Beat {
    /// The source always sends.
    Always,
    /// The source sends in periods, with pauses between them.
    OnOff {
        /// Distribution of the durations of the sending periods.
        on: Periods,
        /// Distribution of the durations of the pauses.
        off: Periods,
        /// When the current period or pause ends.
        until: Time,
        /// Whether the source is in a sending period.
        sending: bool,
        /// Random source for the durations.
        chance: Chance,
    },
}

pub(super) fn draw(periods: &Periods, chance: &mut Chance) -> Span {
    let mean = periods.mean.as_secs_f64();
    match periods.dist {
        PeriodDist::Constant => periods.mean,
        PeriodDist::Exponential => Span::from_secs_f64(chance.exponential(mean)),
        PeriodDist::Pareto(Pareto { shape }) => Span::from_secs_f64(chance.pareto(mean, shape)),
    }
}

/// A source that sends packets of one size at a constant rate.
pub struct PlainSource {
    packet: Bytes,
    gap: Span,
    beat: Beat,
    next: Time,
    /// Number of packets sent.
    pub sent: u64,
    /// IP bytes sent.
    pub bytes: Bytes,
    last_bytes: Bytes,
    /// IP bytes sent in each step of the time series.
    pub samples: Rows<u64>,
    activity: Activity,
}

impl PlainSource {
    /// Creates a source. It sends nothing until it is started.
    pub fn new(rate: Rate, packet: Bytes, beat: Beat) -> Self {
        Self {
            packet,
            gap: packet.at(rate),
            beat,
            next: Time::NEVER,
            sent: 0,
            bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            samples: Rows::default(),
            activity: Activity::default(),
        }
    }

    /// Starts the source. May be called again after a stop.
    pub fn start(&mut self, now: Time) {
        self.next = now;
        self.activity.begin(now);
        if let Beat::OnOff { on, until, sending, chance, .. } = &mut self.beat {
            *until = now + draw(on, chance);
            *sending = true;
        }
    }

    /// Stops sending.
    pub fn stop(&mut self, now: Time) {
        self.next = Time::NEVER;
        self.activity.end(now);
    }

    /// Returns the IP size of a packet.
    pub const fn packet(&self) -> Bytes {
        self.packet
    }

    /// Returns when the next packet is due.
    pub const fn wake(&self) -> Time {
        self.next
    }

    /// Returns the number of the packet that is due. Returns `None` if no packet is due.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<u64> {
        if now < self.next {
            return None;
        }
        if let Beat::OnOff { on, off, until, sending, chance } = &mut self.beat {
            while *until <= now {
                let period = draw(if *sending { off } else { on }, chance);
                *sending = !*sending;
                if *sending {
                    self.activity.begin(*until);
                } else {
                    self.activity.end(*until);
                }
                // Replace a duration of zero, which could make this loop endless.
                *until += period.max(Span::nanos(1));
            }
            if !*sending {
                self.next = *until;
                return None;
            }
        }
        self.sent += 1;
        self.bytes += self.packet;
        // If this call is late, let the next packets be due immediately. This keeps the mean rate.
        self.next = (self.next + self.gap).max(now.before(MAX_CATCH_UP));
        Some(self.sent - 1)
    }

    pub(super) fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if let Some(number) = self.poll(now) {
            out.send(self.packet, Ecn::NotEct, Body::Plain(number));
        }
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self) {
        self.samples.push(self.bytes.saturating_sub(self.last_bytes).get());
        self.last_bytes = self.bytes;
    }
}

/// A sink that counts arriving packets.
pub struct PlainSink {
    /// Counts of the arrived packets.
    pub intake: Intake,
    first: Option<u64>,
    next: u64,
    /// Which of the packets before `next` have arrived. The lowest bit stands for the newest packet.
    arrived: u128,
}

impl PlainSink {
    /// Creates a sink that has received nothing.
    pub fn new(intake: Intake) -> Self {
        Self { intake, first: None, next: 0, arrived: 0 }
    }

    /// Counts the packet `number`, which was sent at `sent`. Ignores a duplicate.
    #[inline(always)]
    pub fn on_packet(&mut self, now: Time, number: u64, size: Bytes, sent: Option<Time>) {
        self.first.get_or_insert(number);
        if number == self.next {
            // Handle the most frequent case first.
            (self.next, self.arrived) = (number + 1, self.arrived << 1 | 1);
            return self.intake.add(now, size, sent);
        }
        let ahead = (number + 1).saturating_sub(self.next);
        // Clear the mask if the number jumps by 128 or more.
        self.arrived = self.arrived.checked_shl(u32::try_from(ahead).unwrap_or(u32::MAX)).unwrap_or(0);
        self.next += ahead;
        // If the packet is too old for the mask, it counts as new.
        let bit = u32::try_from(self.next - 1 - number).ok().and_then(|back| 1u128.checked_shl(back));
        if bit.is_some_and(|bit| self.arrived & bit != 0) {
            return;
        }
        self.arrived |= bit.unwrap_or(0);
        self.intake.add(now, size, sent);
    }

    /// Counts several consecutive packets. `first` is the number of the first packet. If the packets must be counted
    /// one by one, changes nothing and returns false.
    pub(crate) fn on_bundle(&mut self, first: u64, bundle: &Bundle) -> bool {
        let n = bundle.packets();
        // Only accept packets that directly follow the newest packet, because none of them can be a duplicate.
        if first != self.next || n >= u64::from(u128::BITS) || !self.intake.add_all(bundle) {
            return false;
        }
        self.first.get_or_insert(first);
        self.next += n;
        self.arrived = self.arrived << n | ((1 << n) - 1);
        true
    }

    /// Returns the number of packets from the first packet to the newest, including missing packets.
    pub fn expected(&self) -> u64 {
        self.next - self.first.unwrap_or(self.next)
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self) {
        let expected = self.expected();
        self.intake.sample(expected);
    }
}

impl Recorded for PlainSource {
    fn figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        let others =
            about.others.iter().map(|agent| if let Agent::PlainSource(other) = agent { other.sent } else { 0 });
        into.put(&flow::SENT_PACKETS, self.sent + others.sum::<u64>());
    }
    fn digest(&self) -> (u64, u64) {
        (self.sent, self.bytes.get())
    }
    fn sent(&self) -> Vec<SentStep> {
        let step = |bytes: u64| SentStep { bytes, packets: bytes / self.packet.get().max(1), decided: None };
        self.samples.iter().copied().map(step).collect()
    }
    fn activity(&self) -> Option<&Activity> {
        Some(&self.activity)
    }
}

impl Recorded for PlainSink {
    fn figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        self.intake.figures(about, into);
    }
    fn intake(&self) -> Option<&Intake> {
        Some(&self.intake)
    }
}
