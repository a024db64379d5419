use crate::{FeedbackInterval, Wake};
use steadycast_units::{Span, Time};

/// The timeout is at least this number of feedback intervals, because one late message is not missing feedback.
const TIMEOUT_INTERVALS: u64 = 2;

/// The no-feedback timer (as in RFC 5348, section 4.4). Sending a packet starts it, and feedback stops it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoFeedbackTimer {
    until: Option<Time>,
    interval: FeedbackInterval,
}

impl NoFeedbackTimer {
    /// Starts the timer, unless it is running.
    pub(crate) fn on_sent(&mut self, at: Time, timeout: Span) {
        self.interval.on_sent(at);
        self.until.get_or_insert(at + timeout.max(self.interval.get() * TIMEOUT_INTERVALS));
    }

    pub(crate) fn on_feedback(&mut self, now: Time) {
        self.interval.on_feedback(now);
        self.until = None;
    }

    /// Returns whether the timer has expired. After that, the timer is stopped until the next packet is sent.
    pub(crate) fn has_expired(&mut self, now: Time) -> bool {
        let over = self.until.is_some_and(|until| until <= now);
        if over {
            self.until = None;
        }
        over
    }

    pub(crate) fn wake(&self) -> Option<Wake> {
        self.until.map(|at| Wake { at, why: "no feedback" })
    }
}
