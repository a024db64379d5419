use steadycast_units::{PeerTime, Span, Time};

/// The time over which [`ClockOffset`] stores one minimum. It uses the minima of the last three such slots, so that the
/// estimate follows clock drift.
const SLOT: Span = Span::secs(10);

/// Estimates the sender's clock minus the receiver's clock, plus the delay of feedback.
///
/// Each feedback gives a sample: its arrival time minus the arrival time of the newest packet in it. The smallest
/// sample counts, because the receiver wrote this feedback right after the packet had arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The smallest sample of each slot in nanoseconds. The current slot comes first.
    minima: [Option<i64>; 3],
    since: Time,
}

impl ClockOffset {
    /// Adds a sample. The feedback arrived at `now`, and `newest` is the latest arrival of a packet in it.
    pub(crate) fn learn(&mut self, now: Time, newest: PeerTime) {
        let offset = (now.as_nanos() as i64).saturating_sub(newest.as_nanos());
        if self.least().is_some_and(|least| offset.saturating_sub(least) > SLOT.as_nanos() as i64) {
            // Discard the samples, because the receiver's clock was set back.
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

    /// Returns when feedback arrives at the earliest if the receiver wrote it at `at`, on the receiver's clock. The
    /// result is on the sender's clock.
    pub(crate) fn local(&self, at: PeerTime) -> Time {
        let nanos = at.as_nanos().saturating_add(self.least().unwrap_or_default()).max(0);
        Time::from_nanos(nanos.unsigned_abs())
    }
}
