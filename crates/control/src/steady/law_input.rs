//! The input that all control laws get at a report, and the decision that they return.

use super::packet::Loss;
use super::signals::{FeedbackSummary, Signals};

/// If trains measure that the flow has less than this share of the queue, other flows share the queue. In an unshared
/// queue, the true share is 1. The limit is lower because reports round a train's duration to a millisecond.
const SHARED_QUEUE_SHARE_MAX: f64 = 0.85;

/// Size of a segment of a congestion window, in bits. A TCP with 1500 B packets has segments of this size. It does not
/// depend on the session's packet size, so that the windows of both window-based laws can be compared with a TCP's
/// window.
pub(super) const SEGMENT_BITS: f64 = 8.0 * 1_500.0;

/// The decision of a control law at a report. Rates are in bit/s. The text is the name of the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transition {
    /// The same law remains in charge and sets this rate.
    Stay(f64, &'static str),
    /// Control passes from DELAY to COMPETE, or from COMPETE to DELAY. The number is the first rate of COMPETE, or the
    /// receive rate with which DELAY begins.
    Switch(f64, &'static str),
}

/// The input of a control law at a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct LawInput<'a> {
    /// The current time, in seconds.
    pub(super) now: f64,
    /// The time since the last report, in seconds.
    pub(super) dt: f64,
    /// The rate that was last decided on, in bit/s.
    pub(super) rate: f64,
    /// The round-trip time, in seconds.
    pub(super) rtt: f64,
    pub(super) signals: &'a Signals,
    pub(super) feedback: &'a FeedbackSummary,
    /// The newest loss. `None` if its packet left before the last response to a loss. There is one response per round
    /// trip.
    pub(super) loss: Option<Loss>,
    /// Whether a CE-marked packet was reported that left after the last response to a mark or a loss.
    pub(super) mark: bool,
    /// The flow's share of the queue, as measured by its packet trains. `None` if no train has measured it recently.
    pub(super) share: Option<f64>,
}

impl LawInput<'_> {
    /// Returns true if trains show that other flows share the queue.
    pub(super) fn is_shared(&self) -> bool {
        self.share.is_some_and(|share| share < SHARED_QUEUE_SHARE_MAX)
    }
}
