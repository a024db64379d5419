use steadycast_units::{Span, Time};

/// The estimate is at most this. Otherwise, a long outage would delay the timeouts after it.
const INTERVAL_MAX: Span = Span::secs(3);
/// The factor by which the estimate decreases with each message, unless the message took longer. One late message then
/// does not delay timeouts for long.
const DECREASE: f64 = 0.875;

/// Estimates the longest recent interval between feedback messages, from the times of sending and of feedback. Only
/// from a longer silence can a sender conclude that feedback is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedbackInterval {
    /// When the first packet after the last feedback was sent.
    waits_since: Option<Time>,
    estimate: Span,
}

impl FeedbackInterval {
    /// Records that a packet is sent.
    pub fn on_sent(&mut self, now: Time) {
        self.waits_since.get_or_insert(now);
    }

    /// Records that feedback arrives.
    pub fn on_feedback(&mut self, now: Time) {
        // Several messages may arrive at the same time. Only the first of them ends an interval.
        if let Some(since) = self.waits_since.take() {
            self.estimate = now.since(since).max(self.estimate.scale(DECREASE)).min(INTERVAL_MAX);
        }
    }

    /// Returns the estimate. It is zero before the first feedback.
    #[must_use]
    pub fn get(&self) -> Span {
        self.estimate
    }
}
