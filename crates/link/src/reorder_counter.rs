//! Counts reordered packets (RFC 4737).

use std::collections::VecDeque;
use steadycast_units::Time;

/// The arrivals that later packets may still overtake, in ascending order. When a packet overtakes arrivals, they are
/// counted and removed before its own arrival is appended.
#[derive(Debug, Default)]
pub(crate) struct ReorderCounter {
    pending: VecDeque<Time>,
}

impl ReorderCounter {
    /// Records a packet that leaves at `done` and arrives at `at`. Returns how many packets that left earlier arrive
    /// later and have not been counted yet: the receiver sees them out of order (RFC 4737, section 3.3).
    pub(crate) fn pass(&mut self, done: Time, at: Time) -> u64 {
        // A later packet can't arrive before it leaves. The arrivals before that time can't be overtaken any more.
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
