//! The parts that BBR versions 1 and 3 share: rounds, the saved window, the duration of ProbeRTT, the burst size and
//! constants.

use crate::model::AckEvent;
use steadycast_units::{Span, Time};

/// The pacing rate as a share of the estimated bandwidth: 1 − BBR.PacingMarginPercent.
pub(crate) const PACING_MARGIN: f64 = 0.99;
/// The minimum window (BBR.MinPipeCwnd), in segments.
pub(crate) const MIN_PIPE_CWND: f64 = 4.0;
/// The time after which a minimum RTT sample expires (BBR.MinRTTFilterLen).
pub(crate) const MIN_RTT_FILTER: Span = Span::secs(10);
/// The length of the filter for ACK aggregation, in rounds (BBR.ExtraAckedFilterLen).
pub(crate) const EXTRA_ACKED_ROUNDS: u64 = 10;
/// The pipe is full if the bandwidth did not grow by this factor within this number of rounds.
pub(crate) const FULL_BW: (f64, u32) = (1.25, 3);
/// The minimum duration of ProbeRTT (BBR.ProbeRTTDuration).
const PROBE_RTT_DURATION: Span = Span::millis(200);

/// The burst size (BBR.send_quantum) is the data that is sent at the pacing rate in this time, in seconds.
const QUANTUM_TIME: f64 = 0.001;
/// The minimum and maximum burst, in segments of 1500 B: two segments and 64 KiB.
const QUANTUM_RANGE: (f64, f64) = (2.0, 43.0);

/// Returns the burst size in segments at a pacing rate in segments per second.
pub(crate) fn quantum(pacing: f64) -> u32 {
    (pacing * QUANTUM_TIME).clamp(QUANTUM_RANGE.0, QUANTUM_RANGE.1) as u32
}

/// Packet-timed round trips: a round ends when a segment is acknowledged that was sent in it (BBR.round_count).
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// The round ends with the acknowledgment of a segment that was sent when at least this number of segments had been
    /// delivered.
    pub(crate) next: u64,
    pub(crate) count: u64,
    /// Whether the current acknowledgment starts a round.
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
    /// The end of the first round of recovery, in which packet conservation applies.
    conserve_until: Option<u64>,
}

impl PriorWindow {
    /// Saves the window. If `lowered` is true, the window is already reduced on purpose. The saved window is then kept
    /// unless `cwnd` is larger.
    pub(crate) fn save(&mut self, cwnd: f64, lowered: bool) {
        // During recovery or ProbeRTT the window is reduced on purpose.
        let keeps = self.conserve_until.is_some() || lowered;
        self.cwnd = if keeps { self.cwnd.max(cwnd) } else { cwnd };
    }

    /// Starts a recovery at a window of `cwnd`. After a time-out nothing is in flight, so packet conservation does
    /// not apply.
    pub(crate) fn on_recovery(&mut self, cwnd: f64, lowered: bool, delivered: u64, timeout: bool) {
        self.save(cwnd, lowered);
        self.conserve_until = (!timeout).then_some(delivered);
    }

    /// Ends a recovery. Returns the window.
    pub(crate) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        self.conserve_until = None;
        self.restored(cwnd)
    }

    pub(crate) fn restored(&self, cwnd: f64) -> f64 {
        cwnd.max(self.cwnd)
    }

    /// Returns the window after an acknowledgment. Once the pipe is `full`, the window grows up to `most`. Before that,
    /// the window may also grow beyond `most` while less than the `initial` window has been delivered.
    pub(crate) fn next_cwnd(&self, event: &AckEvent, cwnd: f64, most: f64, full: bool, initial: f64) -> f64 {
        let fresh = f64::from(event.sample.fresh);
        // In the first round of recovery, each delivered segment allows one segment to be sent.
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

    /// Whether packet conservation applies: the acknowledgment belongs to the first round of a recovery.
    pub(crate) fn is_conserving(&self, event: &AckEvent) -> bool {
        self.conserve_until.is_some_and(|end| event.sample.prior_delivered < end)
    }
}

/// The duration of ProbeRTT: 200 ms and one round, counted from the time at which the segments in flight have fallen to
/// the target.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeRttDuration {
    until: Option<Time>,
    /// Whether a round has passed.
    round: bool,
}

impl ProbeRttDuration {
    /// Processes an acknowledgment. Returns whether ProbeRTT is over. ProbeRTT's time starts once at most `target`
    /// segments are in flight.
    pub(crate) fn on_ack(&mut self, event: &AckEvent, rounds: &mut Rounds, target: f64) -> bool {
        if self.until.is_some() {
            self.round |= rounds.begun;
        } else if f64::from(event.in_flight) <= target {
            *self = Self { until: Some(event.now + PROBE_RTT_DURATION), round: false };
            // The round of ProbeRTT starts when the segments in flight have fallen to the target.
            rounds.next = event.delivered;
        }
        self.round && self.is_over(event.now)
    }

    /// Whether the 200 ms are over.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}
