use crate::Wake;
use steadycast_units::{Span, Time};

/// The no-feedback timer of a sender (as in RFC 5348, section 4.4). It starts when a packet is sent and expires if no
/// feedback arrives in time; the rate then has to fall. It does not run while nothing is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoFeedbackTimer {
    until: Option<Time>,
}

impl NoFeedbackTimer {
    /// Starts the timer when a packet is sent, unless it is already running. `timeout` is the longest time that
    /// feedback may take.
    pub(crate) fn on_sent(&mut self, at: Time, timeout: Span) {
        self.until.get_or_insert(at + timeout);
    }

    /// Stops the timer, because feedback has arrived.
    pub(crate) fn on_feedback(&mut self) {
        self.until = None;
    }

    /// Returns true if the timer has expired. An expired timer restarts with the next packet that is sent.
    pub(crate) fn has_expired(&mut self, now: Time) -> bool {
        let over = self.until.is_some_and(|until| until <= now);
        if over {
            self.until = None;
        }
        over
    }

    /// Returns the expiry time.
    pub(crate) fn wake(&self) -> Option<Wake> {
        self.until.map(|at| Wake { at, why: "no feedback" })
    }
}
