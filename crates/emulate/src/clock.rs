//! The run's time: that of the machine's monotonic clock since the start.
#![allow(clippy::disallowed_methods, reason = "this world's time is the real one; everything else is told it from here")]

use std::time::Instant;
use steadycast_units::{Span, Time};

/// What time it is in the run. Zero before its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A run that starts after `wait`.
    pub fn starting_after(wait: Span) -> Self {
        Self { start: Instant::now() + std::time::Duration::from_nanos(wait.as_nanos()) }
    }

    /// The present time.
    pub fn now(&self) -> Time {
        let passed = Instant::now().saturating_duration_since(self.start);
        Time::from_nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long it still is until `at`; before the start, that much more.
    pub fn until(&self, at: Time) -> Span {
        let due = self.start + std::time::Duration::from_nanos(at.as_nanos().min(1 << 60));
        let left = due.saturating_duration_since(Instant::now());
        Span::nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
    }
}
