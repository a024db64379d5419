//! The parts that BBR versions 1 and 3 share.

use crate::model::AckEvent;
use steadycast_units::{Span, Time};

/// The pacing rate as a share of the bandwidth: 1 − BBR.PacingMarginPercent.
pub(crate) const PACING_MARGIN: f64 = 0.99;
/// BBR.MinPipeCwnd: the minimum window, in segments.
pub(crate) const MIN_PIPE_CWND: f64 = 4.0;
/// BBR.MinRTTFilterLen: the age at which a minimum RTT expires.
pub(crate) const MIN_RTT_FILTER: Span = Span::secs(10);
/// BBR.ExtraAckedFilterLen: the filter for ACK aggregation, in rounds.
pub(crate) const EXTRA_ACKED_ROUNDS: u64 = 10;
/// The pipe is full if the bandwidth grows by less than this factor in this number of rounds.
pub(crate) const FULL_BW: (f64, u32) = (1.25, 3);
/// BBR.ProbeRTTDuration, the minimum.
const PROBE_RTT_DURATION: Span = Span::millis(200);

/// The time in which BBR.send_quantum is paced, in seconds.
const QUANTUM_TIME: f64 = 0.001;
/// The burst's bounds in segments of 1500 B: two, and 64 KiB.
const QUANTUM_RANGE: (f64, f64) = (2.0, 43.0);

/// Returns the burst in segments; `pacing` is in segments per second.
pub(crate) fn quantum(pacing: f64) -> u32 {
    (pacing * QUANTUM_TIME).clamp(QUANTUM_RANGE.0, QUANTUM_RANGE.1) as u32
}

/// Packet-timed round trips (BBR.round_count): a round ends when a segment that was sent in it is acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// The delivered segments at the round's start.
    pub(crate) next: u64,
    pub(crate) count: u64,
    /// Whether this acknowledgment starts a round.
    pub(crate) begun: bool,
}

impl Rounds {
    pub(crate) fn on_ack(&mut self, event: &AckEvent) {
        self.begun = event.sample.prior_delivered >= self.next;
        if self.begun {
            self.next = event.delivered;
            self.count += 1;
        }
    }
}

/// The window to restore after a recovery or ProbeRTT (BBR.prior_cwnd).
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorWindow {
    cwnd: f64,
    /// The end of packet conservation, which lasts a round.
    conserve_until: Option<u64>,
}

impl PriorWindow {
    /// Saves the window. If it is `lowered` on purpose, a larger saved one is kept.
    pub(crate) fn save(&mut self, cwnd: f64, lowered: bool) {
        let keeps = self.conserve_until.is_some() || lowered;
        self.cwnd = if keeps { self.cwnd.max(cwnd) } else { cwnd };
    }

    /// Starts a recovery. After a time-out nothing is in flight, so there is no packet conservation.
    pub(crate) fn on_recovery(&mut self, cwnd: f64, lowered: bool, delivered: u64, timeout: bool) {
        self.save(cwnd, lowered);
        self.conserve_until = (!timeout).then_some(delivered);
    }

    pub(crate) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        self.conserve_until = None;
        self.restored(cwnd)
    }

    pub(crate) fn restored(&self, cwnd: f64) -> f64 {
        cwnd.max(self.cwnd)
    }

    /// Returns the window after an acknowledgment: up to `most` once the pipe is `full`.
    pub(crate) fn next_cwnd(&self, event: &AckEvent, cwnd: f64, most: f64, full: bool, initial: f64) -> f64 {
        let fresh = f64::from(event.sample.fresh);
        // Packet conservation: each delivered segment allows one to be sent.
        let grown = if self.is_conserving(event) {
            cwnd.max(f64::from(event.in_flight) + fresh)
        } else if full {
            (cwnd + fresh).min(most)
        } else if cwnd < most || (event.delivered as f64) < initial {
            cwnd + fresh
        } else {
            cwnd
        };
        grown.max(MIN_PIPE_CWND)
    }

    /// Whether packet conservation applies: the first round of a recovery.
    pub(crate) fn is_conserving(&self, event: &AckEvent) -> bool {
        self.conserve_until.is_some_and(|end| event.sample.prior_delivered < end)
    }
}

/// ProbeRTT lasts 200 ms and one round, once the segments in flight are down to the target.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeRttDuration {
    until: Option<Time>,
    round: bool,
}

impl ProbeRttDuration {
    /// Returns whether ProbeRTT is over. Its time starts with at most `target` segments in flight.
    pub(crate) fn on_ack(&mut self, event: &AckEvent, rounds: &mut Rounds, target: f64) -> bool {
        if self.until.is_some() {
            self.round |= rounds.begun;
        } else if f64::from(event.in_flight) <= target {
            *self = Self { until: Some(event.now + PROBE_RTT_DURATION), round: false };
            rounds.next = event.delivered;
        }
        self.round && self.is_over(event.now)
    }

    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}
