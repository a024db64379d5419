use steadycast_units::{PeerTime, Span, Time};

/// The length of a slot of the minimum filter. The minimum is taken over the current slot and the two before it, so
/// that it can follow clock drift.
const SLOT: Span = Span::secs(10);

/// The difference between the sender's and a receiver's clock, plus the one-way delay of feedback. It is estimated as
/// the minimum difference between the arrival time of feedback and the newest arrival time reported in it.
///
/// Feedback does not contain the time at which it was written. The difference is smallest for feedback that was written
/// right after an arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The minima of this slot and the two before it, in nanoseconds.
    minima: [Option<i64>; 3],
    /// The start of this slot.
    since: Time,
}

impl ClockOffset {
    /// Updates the minimum with feedback that arrived at `now`.
    pub(crate) fn learn(&mut self, now: Time, newest: PeerTime) {
        let offset = (now.as_nanos() as i64).saturating_sub(newest.as_nanos());
        if self.least().is_some_and(|least| offset.saturating_sub(least) > SLOT.as_nanos() as i64) {
            // Feedback is never delayed by this much more than before, so the receiver's clock was set back.
            self.minima = [None; 3];
        }
        if now.since(self.since) > SLOT {
            self.minima.rotate_right(1);
            (self.minima[0], self.since) = (None, now);
        }
        self.minima[0] = Some(self.minima[0].map_or(offset, |least| least.min(offset)));
    }

    fn least(&self) -> Option<i64> {
        self.minima.iter().flatten().min().copied()
    }

    /// Converts a time of the receiver's clock to the sender's clock. The true offset of the clocks is unknown, so the
    /// smallest observed offset is used, which includes the shortest delay of the return path. The result is therefore
    /// the earliest time at which feedback that was written at `at` can arrive.
    pub(crate) fn local(&self, at: PeerTime) -> Time {
        let nanos = at.as_nanos().saturating_add(self.least().unwrap_or_default()).max(0);
        Time::from_nanos(nanos.unsigned_abs())
    }
}
