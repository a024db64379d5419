use steadycast_units::{PeerTime, Span, Time};

/// The minimum is over the current slot and two before, so that it follows clock drift.
const SLOT: Span = Span::secs(10);

/// The difference between the clocks, plus the delay of feedback.
///
/// The value is the minimum of the feedback's arrival time minus the newest packet arrival in the feedback. The minimum
/// comes from feedback that was written right after an arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The minima of this slot and the two before, in nanoseconds.
    minima: [Option<i64>; 3],
    since: Time,
}

impl ClockOffset {
    /// Updates the minimum with feedback that arrived at `now`.
    pub(crate) fn learn(&mut self, now: Time, newest: PeerTime) {
        let offset = (now.as_nanos() as i64).saturating_sub(newest.as_nanos());
        if self.least().is_some_and(|least| offset.saturating_sub(least) > SLOT.as_nanos() as i64) {
            // The receiver's clock was set back.
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

    /// Converts a time to the sender's clock: the earliest arrival of feedback that was written at `at`.
    pub(crate) fn local(&self, at: PeerTime) -> Time {
        let nanos = at.as_nanos().saturating_add(self.least().unwrap_or_default()).max(0);
        Time::from_nanos(nanos.unsigned_abs())
    }
}
