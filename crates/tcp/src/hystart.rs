use crate::config::Hystart;
use steadycast_units::{Span, Time};

/// Samples in a round that a judgement needs (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Smallest and largest growth of the round trip that counts (MIN_RTT_THRESH, MAX_RTT_THRESH).
const THRESHOLDS: (Span, Span) = (Span::millis(4), Span::millis(16));
/// Linux: rounds are counted from the start, but not judged below that window, in segments.
const LOW_WINDOW: f64 = 16.0;
/// Linux: acknowledgments this close are one train.
const TRAIN_GAP: Span = Span::millis(2);
/// RFC 9406: growth is divided by that in conservative slow start, which lasts at most that many rounds.
const CSS_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;
/// RFC 9406: L, for a sender without pacing.
const UNPACED_LIMIT: f64 = 8.0;

/// What slow start is to do with this acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Advice {
    /// Grow by this share of what was acknowledged.
    Grow(f64),
    /// The path is full: the threshold is here.
    Leave,
}

/// Leaves slow start when the queue begins to grow, before it overflows.
#[derive(Clone, Debug)]
pub(crate) struct Hystarter {
    kind: Hystart,
    /// The round ends when this is acknowledged.
    round_end: u32,
    round_start: Time,
    last_ack: Time,
    samples: u32,
    /// Least of this round, of the round before, of all.
    least: Span,
    least_before: Span,
    least_ever: Span,
    /// Conservative slow start: the least of the round that began it, and the rounds left.
    conservative: Option<(Span, u32)>,
}

impl Hystarter {
    pub(crate) fn new(kind: Hystart) -> Self {
        Self {
            kind,
            round_end: 0,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            samples: 0,
            least: Span::MAX,
            least_before: Span::MAX,
            least_ever: Span::MAX,
            conservative: None,
        }
    }

    /// The network was congested. RFC 9406 (section 4.3) is for the first slow start only; Linux looks in each.
    pub(crate) fn on_congestion(&mut self) {
        let kind = if self.kind == Hystart::PlusPlus { Hystart::Off } else { self.kind };
        *self = Self { least_ever: self.least_ever, ..Self::new(kind) };
    }

    /// How many of the segments acknowledged at once count.
    pub(crate) fn limit(&self) -> f64 {
        if self.kind == Hystart::PlusPlus { UNPACED_LIMIT } else { f64::INFINITY }
    }

    /// An acknowledgment up to `una` arrived in slow start, with up to `max` sent, measured as `rtt`.
    pub(crate) fn on_ack(&mut self, now: Time, una: u32, max: u32, rtt: Span, cwnd: f64) -> Advice {
        if self.kind == Hystart::Off {
            return Advice::Grow(1.0);
        }
        self.least_ever = self.least_ever.min(rtt);
        if una > self.round_end {
            self.round_end = max;
            self.round_start = now;
            self.last_ack = now;
            self.least_before = self.least;
            self.least = Span::MAX;
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds -= 1;
                if *rounds == 0 {
                    return Advice::Leave;
                }
            }
        }
        if self.kind == Hystart::Classic && cwnd < LOW_WINDOW {
            return Advice::Grow(1.0);
        }
        self.least = self.least.min(rtt);
        self.samples += 1;
        if self.kind == Hystart::Classic { self.classic(now) } else { self.plus_plus() }
    }

    /// As Linux's tcp_cubic without pacing: the length of the train against half a round trip, and the least delay of
    /// the round once there are eight samples.
    fn classic(&mut self, now: Time) -> Advice {
        if now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = now;
            if now.since(self.round_start) > self.least_ever / 2 {
                return Advice::Leave;
            }
        }
        let limit = self.least_ever + (self.least_ever / 8).clamp(THRESHOLDS.0, THRESHOLDS.1);
        if self.samples > SAMPLES && self.least > limit { Advice::Leave } else { Advice::Grow(1.0) }
    }

    /// RFC 9406, section 4.2.
    fn plus_plus(&mut self) -> Advice {
        if let Some((baseline, _)) = self.conservative {
            if self.samples >= SAMPLES && self.least < baseline {
                self.conservative = None;
                return Advice::Grow(1.0);
            }
            return Advice::Grow(1.0 / CSS_DIVISOR);
        }
        if self.samples >= SAMPLES && self.least != Span::MAX && self.least_before != Span::MAX {
            let growth = (self.least_before / 8).clamp(THRESHOLDS.0, THRESHOLDS.1);
            if self.least >= self.least_before + growth {
                self.conservative = Some((self.least, CSS_ROUNDS));
                return Advice::Grow(1.0 / CSS_DIVISOR);
            }
        }
        Advice::Grow(1.0)
    }
}
