use std::sync::{Arc, Mutex, PoisonError};
use steadycast_units::Time;

/// The reason why an external controller has stopped a run.
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
    /// Stores a fault. The first fault is kept, but an interruption replaces any other.
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

/// Returns a time as text for a fault. `None` is the time before the flow's first packet.
pub fn moment(now: Option<Time>) -> String {
    now.map_or_else(|| "at its flow's start".to_owned(), |now| format!("at {:.3} s of the run", now.as_secs_f64()))
}

/// Returns a text with all white space replaced by single spaces.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
