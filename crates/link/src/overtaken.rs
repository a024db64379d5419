//! Counts the packets that a later one overtakes.

use std::collections::VecDeque;
use steadycast_units::Time;

/// The arrivals that a packet which leaves later may still overtake. They ascend: what an arrival overtakes is counted
/// and removed before it is put behind the rest.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    ahead: VecDeque<Time>,
}

impl Overtaken {
    /// Takes in a packet that leaves at `done` and arrives at `at`. Returns how many packets that left before arrive
    /// after it and have not been counted yet: the receiver sees them out of order (RFC 4737, 3.3).
    pub(crate) fn pass(&mut self, done: Time, at: Time) -> u64 {
        // No later packet arrives before it leaves.
        while self.ahead.front().is_some_and(|arrival| *arrival <= done) {
            self.ahead.pop_front();
        }
        let mut overtaken = 0;
        while self.ahead.pop_back_if(|arrival| *arrival > at).is_some() {
            overtaken += 1;
        }
        self.ahead.push_back(at);
        overtaken
    }
}
