use crate::config::Hystart;
use steadycast_units::{Span, Time};

/// Number of RTT samples in a round before the round is evaluated (N_RTT_SAMPLE).
const MIN_SAMPLES: u32 = 8;
/// Lower and upper bound of the RTT increase that ends slow start (MIN_RTT_THRESH, MAX_RTT_THRESH).
const RTT_THRESHOLDS: (Span, Span) = (Span::millis(4), Span::millis(16));
/// Linux: HyStart does not end slow start below this window, in segments.
const LOW_WINDOW: f64 = 16.0;
/// Linux: maximum time between two acknowledgments of one ACK train.
const TRAIN_GAP: Span = Span::millis(2);
/// RFC 9406: in conservative slow start, growth is divided by this number (CSS_GROWTH_DIVISOR).
const CSS_DIVISOR: f64 = 4.0;
/// RFC 9406: maximum number of rounds in conservative slow start (CSS_ROUNDS).
const CSS_ROUNDS: u32 = 5;
/// RFC 9406: the constant L for a sender without pacing, in segments per acknowledgment.
const UNPACED_L: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Advice {
    /// The window grows by this fraction of the acknowledged segments.
    Grow(f64),
    /// Slow start ends at the current window.
    Leave,
}

/// HyStart ends slow start when the queue begins to grow.
#[derive(Clone, Debug)]
pub(crate) struct HystartState {
    kind: Hystart,
    /// The segment whose acknowledgment ends the round.
    round_end: u32,
    round_start: Time,
    last_ack: Time,
    samples: u32,
    /// The minimum RTT of this round.
    round_min_rtt: Span,
    /// The minimum RTT of the previous round.
    last_round_min_rtt: Span,
    /// The minimum RTT of the connection.
    min_rtt: Span,
    /// Set during conservative slow start: the minimum RTT of the round that started it, and the number of rounds left.
    conservative: Option<(Span, u32)>,
}

impl HystartState {
    pub(crate) fn new(kind: Hystart) -> Self {
        Self {
            kind,
            round_end: 0,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            samples: 0,
            round_min_rtt: Span::MAX,
            last_round_min_rtt: Span::MAX,
            min_rtt: Span::MAX,
            conservative: None,
        }
    }

    /// Prepares the next slow start. HyStart++ is used only in the first slow start (RFC 9406, section 4.3). Linux's
    /// HyStart is used in each.
    pub(crate) fn on_congestion(&mut self) {
        let kind = if self.kind == Hystart::PlusPlus { Hystart::Off } else { self.kind };
        *self = Self { min_rtt: self.min_rtt, ..Self::new(kind) };
    }

    /// Returns the maximum growth per acknowledgment in segments. RFC 9406 calls it L.
    pub(crate) fn limit(&self) -> f64 {
        if self.kind == Hystart::PlusPlus { UNPACED_L } else { f64::INFINITY }
    }

    /// Processes an acknowledgment up to `una` during slow start. `max` is one past the highest segment sent.
    pub(crate) fn on_ack(&mut self, now: Time, una: u32, max: u32, rtt: Span, cwnd: f64) -> Advice {
        if self.kind == Hystart::Off {
            return Advice::Grow(1.0);
        }
        self.min_rtt = self.min_rtt.min(rtt);
        if una > self.round_end {
            self.round_end = max;
            self.round_start = now;
            self.last_ack = now;
            self.last_round_min_rtt = self.round_min_rtt;
            self.round_min_rtt = Span::MAX;
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds -= 1;
                if *rounds == 0 {
                    return Advice::Leave;
                }
            }
        }
        // Return only now, because Linux also tracks rounds below this window.
        if self.kind == Hystart::Classic && cwnd < LOW_WINDOW {
            return Advice::Grow(1.0);
        }
        self.round_min_rtt = self.round_min_rtt.min(rtt);
        self.samples += 1;
        if self.kind == Hystart::Classic { self.classic(now) } else { self.plus_plus() }
    }

    /// Linux's HyStart without pacing. It checks how long the ACK train lasts, and the round's minimum RTT.
    fn classic(&mut self, now: Time) -> Advice {
        if now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = now;
            // An ACK train that is longer than half the minimum RTT means that the pipe is full.
            if now.since(self.round_start) > self.min_rtt / 2 {
                return Advice::Leave;
            }
        }
        let limit = self.min_rtt + (self.min_rtt / 8).clamp(RTT_THRESHOLDS.0, RTT_THRESHOLDS.1);
        if self.samples > MIN_SAMPLES && self.round_min_rtt > limit { Advice::Leave } else { Advice::Grow(1.0) }
    }

    /// HyStart++ (RFC 9406, section 4.2).
    fn plus_plus(&mut self) -> Advice {
        if let Some((baseline, _)) = self.conservative {
            // If the RTT has fallen again, the increase was a false alarm. Return to slow start.
            if self.samples >= MIN_SAMPLES && self.round_min_rtt < baseline {
                self.conservative = None;
                return Advice::Grow(1.0);
            }
            return Advice::Grow(1.0 / CSS_DIVISOR);
        }
        if self.samples >= MIN_SAMPLES && self.round_min_rtt != Span::MAX && self.last_round_min_rtt != Span::MAX {
            let growth = (self.last_round_min_rtt / 8).clamp(RTT_THRESHOLDS.0, RTT_THRESHOLDS.1);
            if self.round_min_rtt >= self.last_round_min_rtt + growth {
                self.conservative = Some((self.round_min_rtt, CSS_ROUNDS));
                return Advice::Grow(1.0 / CSS_DIVISOR);
            }
        }
        Advice::Grow(1.0)
    }
}
