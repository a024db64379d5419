use crate::Wake;
use steadycast_units::{Span, Time};

/// A sender's watch over its feedback: when something was sent and nothing was heard for so long, the rate is to fall.
/// Without something sent it never runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    until: Option<Time>,
}

impl Silence {
    /// A packet has left; `patience`: how long feedback about it may take.
    pub(crate) fn on_sent(&mut self, at: Time, patience: Span) {
        self.until.get_or_insert(at + patience);
    }

    /// Feedback about packets has come.
    pub(crate) fn on_heard(&mut self) {
        self.until = None;
    }

    /// Whether it has lasted too long. It then begins anew with the next packet that is sent.
    pub(crate) fn is_over(&mut self, now: Time) -> bool {
        let over = self.until.is_some_and(|until| until <= now);
        if over {
            self.until = None;
        }
        over
    }

    /// When it will have lasted too long.
    pub(crate) fn wake(&self) -> Option<Wake> {
        self.until.map(|at| Wake { at, why: "no feedback" })
    }
}
