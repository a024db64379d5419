//! The law of a sender of L4S packets that are marked: it answers to the share of marks (RFC 9331, 4.3), and never
//! competes.

use super::Config;
use super::constants::*;
use super::law_input::{LawInput, SEGMENT_BITS, Transition};

/// Marks of the last while, and the window in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScalableLaw {
    alpha: f64,
    window: f64,
    /// Packets told of in this round, and those of them that were marked.
    told: u32,
    marked: u32,
    round_since: f64,
    cut_at: f64,
    marked_at: Option<f64>,
}

impl ScalableLaw {
    /// Whether it rules: packets have been marked not long ago.
    pub(super) fn rules(&mut self, input: &LawInput<'_>, config: &Config) -> bool {
        if !config.l4s {
            return false;
        }
        let before = self.marked_at.is_some_and(|at| input.now - at < LATELY);
        if input.feedback.marked > 0 {
            self.marked_at = Some(input.now);
        }
        let rules = self.marked_at.is_some_and(|at| input.now - at < LATELY);
        if rules && !before {
            *self = Self { marked_at: self.marked_at, alpha: 1.0, round_since: input.now, ..Self::default() };
            self.window = input.rate * input.rtt / SEGMENT_BITS;
        }
        rules
    }

    pub(super) fn update(&mut self, input: &LawInput<'_>, config: &Config) -> Transition {
        let LawInput { now, dt, rtt, feedback, signals, .. } = *input;
        let round = rtt.max(L4S_RTT);
        self.told += feedback.arrived + feedback.lost;
        self.marked += feedback.marked;
        if now - self.round_since >= round && self.told > 0 {
            let share = f64::from(self.marked) / f64::from(self.told);
            self.alpha += L4S_GAIN * (share - self.alpha);
            (self.told, self.marked, self.round_since) = (0, 0, now);
        }
        let mut rule = "l4s: up";
        if input.loss.is_some() {
            self.window *= BETA;
            self.cut_at = now;
            rule = "l4s: loss";
        } else if input.mark && now - self.cut_at >= round {
            // A mark of a packet that left after the last cut: once for all that were in flight then (RFC 9331, 4.3).
            self.window *= 1.0 - 0.5 * self.alpha;
            self.cut_at = now;
            rule = "l4s: marks";
        } else if feedback.marked == 0 {
            // As much per round trip of `round`, whatever the path's own is.
            self.window += L4S_UP * dt / round * (rtt / round);
        }
        self.window = self.window.max(LITTLE * WINDOW_LEAST);
        let mut rate = self.window * SEGMENT_BITS / rtt;
        if let Some(received) = signals.received(rtt.max(RECEIVED_SPAN))
            && !signals.is_idle(now, NOT_ALL)
        {
            let most = AHEAD * received + 2.0 * config.bits / rtt;
            if rate > most {
                rate = most;
                self.window = rate * rtt / SEGMENT_BITS;
            }
        }
        Transition::Stay(rate, rule)
    }
}
