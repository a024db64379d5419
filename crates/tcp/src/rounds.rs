//! What both versions of BBR keep in the same way: rounds, the window before a recovery, the size of a burst.

use crate::model::Seen;

/// A burst is what the pacing rate lets out in this time (BBR.send_quantum), in seconds.
const QUANTUM: f64 = 0.001;
/// Bursts in segments of 1500 B: two, and 64 KiB at most.
const BURSTS: (f64, f64) = (2.0, 43.0);

/// The segments that leave in one burst at a pacing rate in segments per second.
pub(crate) fn quantum(pacing: f64) -> u32 {
    (pacing * QUANTUM).clamp(BURSTS.0, BURSTS.1) as u32
}

/// Round trips, counted by what had been delivered when a segment left (BBR.round_count).
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// A segment that left when this was delivered ends the round.
    pub(crate) next: u64,
    pub(crate) count: u64,
    /// The acknowledgment at hand has begun one.
    pub(crate) begun: bool,
}

impl Rounds {
    pub(crate) fn on_ack(&mut self, seen: &Seen) {
        self.begun = seen.sample.prior_delivered >= self.next;
        if self.begun {
            self.next = seen.delivered;
            self.count += 1;
        }
    }
}

/// The window to go back to after a recovery or ProbeRTT.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorWindow {
    cwnd: f64,
    /// The first round of a recovery ends here: what leaves in it is what arrives.
    conserve_until: Option<u64>,
}

impl PriorWindow {
    /// `lowered`: the window is below its usual size already, and says less than the one that was saved.
    pub(crate) fn save(&mut self, cwnd: f64, lowered: bool) {
        let keeps = self.conserve_until.is_some() || lowered;
        self.cwnd = if keeps { self.cwnd.max(cwnd) } else { cwnd };
    }

    /// Recovery begins with a window of `cwnd`; after a time-out nothing is under way that could be conserved.
    pub(crate) fn on_recovery(&mut self, cwnd: f64, lowered: bool, delivered: u64, timeout: bool) {
        self.save(cwnd, lowered);
        self.conserve_until = (!timeout).then_some(delivered);
    }

    /// Recovery is over: the window.
    pub(crate) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        self.conserve_until = None;
        self.restored(cwnd)
    }

    pub(crate) fn restored(&self, cwnd: f64) -> f64 {
        cwnd.max(self.cwnd)
    }

    /// Whether the acknowledgment falls into the first round of a recovery.
    pub(crate) fn conserves(&self, seen: &Seen) -> bool {
        self.conserve_until.is_some_and(|end| seen.sample.prior_delivered < end)
    }
}
