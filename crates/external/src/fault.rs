use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use steadycast_units::{Span, Time};

/// Why an external controller has stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The controller made an error.
    Wrong {
        /// Where the error happened: the flow, and the controller or switching rule.
        place: String,
        /// When the error happened, and what it was.
        problem: String,
        /// What the controller's author should do about it.
        remedy: String,
    },
    /// Ctrl-C was pressed while the controller was running.
    Interrupted,
}

/// Stores the first fault of a run. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FaultSlot(Arc<Mutex<Option<Fault>>>);

impl FaultSlot {
    /// Stores a fault if there is none yet. An interruption replaces any other fault.
    pub fn put(&self, new: Fault) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Keep the first fault, because later faults are mostly its consequences.
        if kept.is_none() || new == Fault::Interrupted {
            *kept = Some(new);
        }
    }

    /// Returns whether there is a fault.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Removes the fault from the slot and returns it.
    pub fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// When a fault happened, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the flow's first packet.
    Start,
    /// At this time of the run.
    Run(Time),
    /// At this time after the flow's start.
    Stream(Span),
}

impl From<Option<Time>> for Moment {
    fn from(now: Option<Time>) -> Self {
        now.map_or(Self::Start, Self::Run)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("at its flow's start"),
            Self::Run(now) => write!(f, "at {:.3} s of the run", now.as_secs_f64()),
            Self::Stream(at) => write!(f, "at {:.3} s of the stream", at.as_secs_f64()),
        }
    }
}

/// Returns `text` as one line. All white space becomes single spaces.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
