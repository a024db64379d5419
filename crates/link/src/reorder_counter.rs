//! Counts reordered packets (RFC 4737).

use std::collections::VecDeque;
use steadycast_units::Time;

/// Sorted arrival times of the packets that later packets may still overtake.
#[derive(Debug, Default)]
pub(crate) struct ReorderCounter {
    pending: VecDeque<Time>,
}

impl ReorderCounter {
    /// Returns how many packets this packet is the first to overtake (RFC 4737, section 3.3). This packet leaves at
    /// `done` and arrives at `at`.
    pub(crate) fn pass(&mut self, done: Time, at: Time) -> u64 {
        // Remove packets that arrived at or before `done`, because later packets can't overtake them.
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
