use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use steadycast_units::{Span, Time};

/// Why an external controller has stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error in the controller.
    Wrong {
        /// The place of the error.
        place: String,
        /// The time and the problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// Ctrl-C was pressed while the controller was running.
    Interrupted,
}

/// A slot that holds the first fault of a run.
#[derive(Clone, Debug, Default)]
pub struct FaultSlot(Arc<Mutex<Option<Fault>>>);

impl FaultSlot {
    /// Keeps the first fault; an interruption replaces any other.
    pub fn put(&self, new: Fault) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Later faults are mostly consequences of the first one.
        if kept.is_none() || new == Fault::Interrupted {
            *kept = Some(new);
        }
    }

    /// Returns whether there is a fault.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the fault and empties the slot.
    pub fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The time of a fault, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The time before the flow's first packet.
    Start,
    /// A time of the run.
    Run(Time),
    /// A time since the flow's start.
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

/// Returns a text with all white space replaced by single spaces.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
