//! Counts reordered packets (RFC 4737).

use std::collections::VecDeque;
use steadycast_units::Time;

/// The arrivals that later packets may overtake, ascending.
#[derive(Debug, Default)]
pub(crate) struct ReorderCounter {
    pending: VecDeque<Time>,
}

impl ReorderCounter {
    /// Returns the number of packets that only this packet has overtaken so far (RFC 4737, section 3.3). The packet
    /// leaves at `done` and arrives at `at`.
    pub(crate) fn pass(&mut self, done: Time, at: Time) -> u64 {
        // Later packets can't overtake arrivals before `done`.
        while self.pending.front().is_some_and(|arrival| *arrival <= done) {
            self.pending.pop_front();
        }
        let mut overtaken = 0;
        while self.pending.pop_back_if(|arrival| *arrival > at).is_some() {
            overtaken += 1;
        }
        self.pending.push_back(at);
        overtaken
    }
}
