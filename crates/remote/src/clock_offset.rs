use steadycast_units::{PeerTime, Span, Time};

/// The duration of a slot. Only three slots are kept, so that the offset follows clock drift.
const SLOT: Span = Span::secs(10);

/// The sender's clock minus the receiver's clock, plus the delay of feedback.
///
/// Each feedback gives a sample: its arrival time minus the newest packet arrival that it reports. The smallest sample
/// counts, because the receiver wrote this feedback right after the packet's arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The smallest sample of each slot in nanoseconds, the current slot first.
    minima: [Option<i64>; 3],
    since: Time,
}

impl ClockOffset {
    /// Adds the sample of feedback that arrived at `now`. `newest` is the newest packet arrival in the feedback.
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

    /// Returns the earliest arrival time, on the sender's clock, of feedback that the receiver wrote at `at`.
    pub(crate) fn local(&self, at: PeerTime) -> Time {
        let nanos = at.as_nanos().saturating_add(self.least().unwrap_or_default()).max(0);
        Time::from_nanos(nanos.unsigned_abs())
    }
}
