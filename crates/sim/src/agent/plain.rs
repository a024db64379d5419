//! Packets at a constant rate, always or in some periods, and where they go.

use super::Out;
use crate::intake::Intake;
use crate::packet::{Body, Packet};
use steadycast_link::Ecn;
use steadycast_scenario::{PeriodDist, Periods};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// When a source may send.
pub(crate) enum Beat {
    Always,
    OnOff { on: Periods, off: Periods, until: Time, sending: bool, chance: Chance },
}

pub(crate) fn draw(periods: &Periods, chance: &mut Chance) -> Span {
    let mean = periods.mean.as_secs_f64();
    match periods.dist {
        PeriodDist::Constant => periods.mean,
        PeriodDist::Exponential => Span::from_secs_f64(chance.exponential(mean)),
        PeriodDist::Pareto { shape } => Span::from_secs_f64(chance.pareto(mean, shape)),
    }
}

pub(crate) struct PlainSource {
    packet: Bytes,
    gap: Span,
    beat: Beat,
    next: Time,
    pub(crate) sent: u64,
    pub(crate) bytes: Bytes,
    last_bytes: Bytes,
    pub(crate) samples: Vec<u64>,
}

impl PlainSource {
    pub(crate) fn new(rate: Rate, packet: Bytes, beat: Beat) -> Self {
        Self {
            packet,
            gap: packet.at(rate),
            beat,
            next: Time::NEVER,
            sent: 0,
            bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            samples: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self, now: Time) {
        self.next = now;
        if let Beat::OnOff { on, until, sending, chance, .. } = &mut self.beat {
            *until = now + draw(on, chance);
            *sending = true;
        }
    }

    pub(crate) fn stop(&mut self) {
        self.next = Time::NEVER;
    }

    pub(crate) const fn wake(&self) -> Time {
        self.next
    }

    pub(crate) fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if now < self.next {
            return;
        }
        if let Beat::OnOff { on, off, until, sending, chance } = &mut self.beat {
            while *until <= now {
                let period = draw(if *sending { off } else { on }, chance);
                *sending = !*sending;
                // A period of no length at all must not keep this loop from ending.
                *until += period.max(Span::nanos(1));
            }
            if !*sending {
                self.next = *until;
                return;
            }
        }
        out.send(self.packet, Ecn::NotCapable, Body::Plain(self.sent));
        self.sent += 1;
        self.bytes += self.packet;
        self.next = now + self.gap;
    }

    pub(crate) fn sample(&mut self) {
        self.samples.push(self.bytes.saturating_sub(self.last_bytes).get());
        self.last_bytes = self.bytes;
    }
}

pub(crate) struct PlainSink {
    pub(crate) intake: Intake,
    first: Option<u64>,
    next: u64,
}

impl PlainSink {
    pub(crate) fn new(intake: Intake) -> Self {
        Self { intake, first: None, next: 0 }
    }

    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, packet: &Packet, number: u64) {
        self.first.get_or_insert(number);
        self.next = self.next.max(number + 1);
        self.intake.add(now, packet.size, packet.sent);
    }

    pub(crate) fn expected(&self) -> u64 {
        self.next - self.first.unwrap_or(self.next)
    }

    pub(crate) fn sample(&mut self) {
        let expected = self.expected();
        self.intake.sample(expected);
    }
}
