//! The scalable law for L4S packets (RFC 9331, section 4.3), as TCP Prague
//! (draft-briscoe-iccrg-prague-congestion-control). It decides while packets are marked; otherwise the other laws do.

use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::signals::RECEIVED_SPAN_MIN;
use super::verdict::LossClassifier;
use super::{Config, RATE_MIN};

/// The number of round trips after a mark for which this law decides. In equilibrium, eight round trips without a mark
/// occur by chance in one of 370 cases.
const MARK_VALIDITY_ROUNDS: f64 = 8.0;
/// When this law takes over, it begins at the receive rate, but at least at this share of the previous rate.
const ENTRY_RATE_SHARE_MIN: f64 = 0.5;
/// The gain of the mean share of marks per round trip (Prague draft: 1/16).
const ALPHA_GAIN: f64 = 0.0625;
/// Flows with a shorter round-trip time behave as if they had this round-trip time, in seconds (Prague draft).
const VIRTUAL_RTT: f64 = 0.025;
/// The increase of the window per round trip without a marked packet, in segments. With one segment, as in the Prague
/// draft, a paced flow took 1.2 times its fair share beside a Prague flow.
const ADDITIVE_INCREASE: f64 = 0.37;
/// The factor of the window after a loss (RFC 9438, section 4.6).
const LOSS_BETA: f64 = 0.7;
/// The least window, in segments. A paced sender can send less than one segment per round trip.
const WINDOW_MIN: f64 = 0.2;
/// The maximum rate, as a multiple of the receive rate. Acknowledgements limit a TCP likewise.
const RECEIVED_RATE_MULTIPLE_MAX: f64 = 1.2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScalableLaw {
    /// The mean share of marked packets.
    alpha: f64,
    /// In segments.
    window: f64,
    /// The packets reported in this round.
    packets: u32,
    /// The packets reported as marked in this round.
    marked: u32,
    round_since: f64,
    cut_at: f64,
    /// The last report with a mark, in seconds.
    marked_at: Option<f64>,
    /// Whether this law made the last decision.
    ruled: bool,
}

impl ScalableLaw {
    /// Whether this law decides: packets were marked recently, and there is no policer. A policer drops packets without
    /// marking them, so behind it this law would grow too far.
    pub(super) fn rules(&mut self, input: &LawInput<'_>, is_policed: bool, config: &Config) -> bool {
        if !config.l4s {
            return false;
        }
        let LawInput { now, rate, rtt, signals, .. } = *input;
        let round = rtt.max(VIRTUAL_RTT);
        let was_marked = self.marked_at.is_some();
        if input.feedback.marked > 0 {
            self.marked_at = Some(now);
        }
        let rules = !is_policed && self.marked_at.is_some_and(|at| now - at < MARK_VALIDITY_ROUNDS * round);
        if rules && !self.ruled {
            // At first alpha is 1, so that the first mark halves the window. Later it is the old alpha, decayed by
            // the time without marks.
            let unmarked = libm::pow(1.0 - ALPHA_GAIN, (now - self.round_since) / round);
            let alpha = if was_marked { self.alpha * unmarked } else { 1.0 };
            *self = Self { alpha, marked_at: self.marked_at, round_since: now, ..Self::default() };
            // DELAY may have raised the rate above what the path carries.
            let received = signals.received(rtt.max(RECEIVED_SPAN_MIN)).unwrap_or(rate);
            self.window = rate.min(received.max(ENTRY_RATE_SHARE_MIN * rate)) * rtt / SEGMENT_BITS;
        }
        self.ruled = rules;
        rules
    }

    pub(super) fn update(&mut self, input: &LawInput<'_>, losses: &mut LossClassifier, config: &Config) -> Transition {
        let LawInput { now, dt, rtt, feedback, signals, .. } = *input;
        let round = rtt.max(VIRTUAL_RTT);
        self.packets += feedback.arrived + feedback.lost;
        self.marked += feedback.marked;
        if now - self.round_since >= round && self.packets > 0 {
            let share = f64::from(self.marked) / f64::from(self.packets);
            self.alpha += ALPHA_GAIN * (share - self.alpha);
            (self.packets, self.marked, self.round_since) = (0, 0, now);
        }
        let mut rule = "l4s: up";
        // As in DELAY, a random loss is not congestion.
        let packet = config.bits / input.rate.max(RATE_MIN);
        if input.loss.is_some_and(|loss| losses.on_loss(now, &loss, packet)) {
            self.window *= LOSS_BETA;
            self.cut_at = now;
            rule = "l4s: loss";
        } else {
            if input.mark && now - self.cut_at >= round {
                // One response per round trip (RFC 9331, section 4.3).
                self.window *= 1.0 - 0.5 * self.alpha;
                self.cut_at = now;
                rule = "l4s: marks";
            }
            // Growth counts unmarked packets and not reports without marks, because beside a classic TCP nearly every
            // report has a mark. The factor `rtt / round` keeps shorter round trips from getting a larger share (Prague
            // draft).
            let unmarked = 1.0 - f64::from(feedback.marked) / f64::from(feedback.arrived.max(1));
            self.window += ADDITIVE_INCREASE * unmarked * dt / round * (rtt / round);
        }
        self.window = self.window.max(WINDOW_MIN);
        let mut rate = self.window * SEGMENT_BITS / rtt;
        // An idle source's receive rate does not show what the path carries.
        if let Some(received) = signals.received(rtt.max(RECEIVED_SPAN_MIN))
            && !signals.is_idle(now)
        {
            let most = RECEIVED_RATE_MULTIPLE_MAX * received + 2.0 * config.bits / rtt;
            if rate > most {
                rate = most;
                self.window = rate * rtt / SEGMENT_BITS;
            }
        }
        Transition::Stay(rate, rule)
    }
}
