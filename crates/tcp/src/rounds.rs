//! What both versions of BBR keep in the same way: rounds, the window and how it was before a recovery, the stay in
//! ProbeRTT, the size of a burst; and the constants that they share.

use crate::model::Seen;
use steadycast_units::{Span, Time};

/// The part of the estimated bandwidth that is used (BBR.PacingMarginPercent).
pub(crate) const MARGIN: f64 = 0.99;
/// The least window (MinPipeCwnd), in segments.
pub(crate) const LEAST: f64 = 4.0;
/// A smallest round-trip time is taken again after this time.
pub(crate) const MIN_RTT_FILTER: Span = Span::secs(10);
pub(crate) const EXTRA_ACKED_ROUNDS: u64 = 10;
/// The path is full when its bandwidth did not grow by this factor in so many rounds.
pub(crate) const FULL_BW: (f64, u32) = (1.25, 3);
const PROBE_RTT_DURATION: Span = Span::millis(200);

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

    /// The window that was `cwnd` before an acknowledgment: it grows to `most` once the path was `full`, and beyond
    /// until then while less than the `initial` window has been delivered.
    pub(crate) fn grown(&self, seen: &Seen, cwnd: f64, most: f64, full: bool, initial: f64) -> f64 {
        let fresh = f64::from(seen.sample.fresh);
        let grown = if self.conserves(seen) {
            cwnd.max(f64::from(seen.in_flight) + fresh)
        } else if full {
            (cwnd + fresh).min(most)
        } else if cwnd < most || (seen.delivered as f64) < initial {
            cwnd + fresh
        } else {
            cwnd
        };
        grown.max(LEAST)
    }

    /// Whether the acknowledgment falls into the first round of a recovery.
    pub(crate) fn conserves(&self, seen: &Seen) -> bool {
        self.conserve_until.is_some_and(|end| seen.sample.prior_delivered < end)
    }
}

/// The stay in ProbeRTT: 200 ms and a round, from when few segments are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stay {
    until: Option<Time>,
    /// It has lasted a round.
    round: bool,
}

impl Stay {
    /// Whether it is over, where `few` segments are few.
    pub(crate) fn on_ack(&mut self, seen: &Seen, rounds: &mut Rounds, few: f64) -> bool {
        if self.until.is_some() {
            self.round |= rounds.begun;
        } else if f64::from(seen.in_flight) <= few {
            *self = Self { until: Some(seen.now + PROBE_RTT_DURATION), round: false };
            rounds.next = seen.delivered;
        }
        self.round && self.is_over(seen.now)
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}
