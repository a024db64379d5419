use std::sync::{Arc, Mutex, PoisonError};
use steadycast_units::Time;

/// Why a run was stopped by a controller from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What went wrong in it.
    Wrong {
        /// Where.
        place: String,
        /// When, and what.
        problem: String,
        /// What mends it.
        remedy: String,
    },
    /// Somebody pressed Ctrl-C while it was at work.
    Interrupted,
}

/// Where a run's first fault is put.
#[derive(Clone, Debug, Default)]
pub struct FaultSlot(Arc<Mutex<Option<Fault>>>);

impl FaultSlot {
    /// Keeps a fault: the first one, and an interruption before any other.
    pub fn put(&self, new: Fault) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() || new == Fault::Interrupted {
            *kept = Some(new);
        }
    }

    /// Whether there is one.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The fault, which is then no longer kept.
    pub fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// When something happened, for a fault's text; `None`: before its flow's first packet.
pub fn moment(now: Option<Time>) -> String {
    now.map_or_else(|| "at its flow's start".to_owned(), |now| format!("at {:.3} s of the run", now.as_secs_f64()))
}

/// A text in one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
