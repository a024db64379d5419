//! The scalable law for L4S packets (RFC 9331, section 4.3). It works like TCP Prague
//! (draft-briscoe-iccrg-prague-congestion-control). It decides while packets are marked. Otherwise the other laws
//! decide.

use super::law_input::{LawInput, SEGMENT_BITS, Transition};
use super::signals::RECEIVED_SPAN_MIN;
use super::verdict::LossClassifier;
use super::{Config, RATE_MIN};

/// This law sets the rate for this number of round trips after a mark. Afterwards, the other laws do. In equilibrium,
/// only 1 in 370 periods of eight round trips has no mark.
const MARK_VALIDITY_ROUNDS: f64 = 8.0;
/// When this law takes over, it begins with the receive rate, but at least with this fraction of the previous rate.
const ENTRY_RATE_SHARE_MIN: f64 = 0.5;
/// Weight of a new round trip in the mean fraction of marks (Prague draft: 1/16).
const ALPHA_GAIN: f64 = 0.0625;
/// Flows with a shorter round-trip time behave as if they had this round-trip time, in seconds (Prague draft).
const VIRTUAL_RTT: f64 = 0.025;
/// How much the window grows per round trip without a marked packet, in segments. The Prague draft has one segment.
/// With that value, a paced flow took 1.2 times its fair share beside a Prague flow.
const ADDITIVE_INCREASE: f64 = 0.37;
/// A loss multiplies the window by this factor (RFC 9438, section 4.6).
const LOSS_BETA: f64 = 0.7;
/// Minimum window, in segments. It is below 1 because a paced sender can send less than one segment per round trip.
const WINDOW_MIN: f64 = 0.2;
/// Maximum ratio of the rate to the receive rate. Acknowledgements limit a TCP in the same way.
const RECEIVED_RATE_MULTIPLE_MAX: f64 = 1.2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScalableLaw {
    /// Mean fraction of marked packets.
    alpha: f64,
    /// Congestion window, in segments.
    window: f64,
    /// Number of packets reported in this round trip.
    packets: u32,
    /// Number of packets reported as marked in this round trip.
    marked: u32,
    round_since: f64,
    cut_at: f64,
    /// When the last report with a mark arrived, in seconds.
    marked_at: Option<f64>,
    /// Whether this law made the last decision.
    ruled: bool,
}

impl ScalableLaw {
    /// Returns whether this law decides. It does if packets were marked recently and there is no policer. A policer
    /// drops packets without marking them, so this law would let the rate grow too far.
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
            // Begin with alpha = 1, so that the first mark halves the window. If this law takes over again, begin with
            // the old alpha, reduced for the time without marks.
            let unmarked = libm::pow(1.0 - ALPHA_GAIN, (now - self.round_since) / round);
            let alpha = if was_marked { self.alpha * unmarked } else { 1.0 };
            *self = Self { alpha, marked_at: self.marked_at, round_since: now, ..Self::default() };
            // Limit the first window, because DELAY may have raised the rate above what the path carries.
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
        // Do not respond to random losses, because they are not congestion. DELAY does the same.
        let packet = config.bits / input.rate.max(RATE_MIN);
        if input.loss.is_some_and(|loss| losses.on_loss(now, &loss, packet)) {
            self.window *= LOSS_BETA;
            self.cut_at = now;
            rule = "l4s: loss";
        } else {
            if input.mark && now - self.cut_at >= round {
                // Respond only once per round trip (RFC 9331, section 4.3).
                self.window *= 1.0 - 0.5 * self.alpha;
                self.cut_at = now;
                rule = "l4s: marks";
            }
            // Grow with the fraction of unmarked packets. Beside a classic TCP, nearly every report has a mark, so a
            // rule that counts reports without marks would hardly let the window grow. The factor `rtt / round` keeps
            // flows with shorter round trips from getting a larger share (Prague draft).
            let unmarked = 1.0 - f64::from(feedback.marked) / f64::from(feedback.arrived.max(1));
            self.window += ADDITIVE_INCREASE * unmarked * dt / round * (rtt / round);
        }
        self.window = self.window.max(WINDOW_MIN);
        let mut rate = self.window * SEGMENT_BITS / rtt;
        // Skip this limit if the source is idle, because its receive rate does not show what the path carries.
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
