//! Code that BBR version 1 and version 3 share.

use crate::model::AckEvent;
use steadycast_units::{Span, Time};

/// Ratio of the pacing rate to the bandwidth: 1 − BBR.PacingMarginPercent.
pub(crate) const PACING_MARGIN: f64 = 0.99;
/// BBR.MinPipeCwnd: the minimum window in segments.
pub(crate) const MIN_PIPE_CWND: f64 = 4.0;
/// BBR.MinRTTFilterLen: the age at which a minimum RTT expires.
pub(crate) const MIN_RTT_FILTER: Span = Span::secs(10);
/// BBR.ExtraAckedFilterLen: the length of the filter for ACK aggregation in rounds.
pub(crate) const EXTRA_ACKED_ROUNDS: u64 = 10;
/// The pipe is full if the bandwidth has grown by less than this factor within this number of rounds.
pub(crate) const FULL_BW: (f64, u32) = (1.25, 3);
/// BBR.ProbeRTTDuration: the minimum duration of ProbeRTT.
const PROBE_RTT_DURATION: Span = Span::millis(200);

/// A burst (BBR.send_quantum) contains the data that is paced in this time, in seconds.
const QUANTUM_TIME: f64 = 0.001;
/// Minimum and maximum burst in segments of 1500 B. The maximum is 64 KiB.
const QUANTUM_RANGE: (f64, f64) = (2.0, 43.0);

/// Returns the size of a burst in segments. `pacing` is in segments per second.
pub(crate) fn quantum(pacing: f64) -> u32 {
    (pacing * QUANTUM_TIME).clamp(QUANTUM_RANGE.0, QUANTUM_RANGE.1) as u32
}

/// Counts round trips by packets (BBR.round_count). A round ends when a segment that was sent in it is acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    /// Number of segments that had been delivered when the round started.
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

/// The window that is restored after a recovery or after ProbeRTT (BBR.prior_cwnd).
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorWindow {
    cwnd: f64,
    /// Number of segments that had been delivered when the recovery began. Packet conservation ends when a segment is
    /// acknowledged that was sent later, so it lasts one round. The value is `None` outside a fast recovery.
    conserve_until: Option<u64>,
    /// Whether a recovery has begun and not ended.
    recovers: bool,
}

impl PriorWindow {
    /// Saves the window. In a recovery, or if the window was `lowered` on purpose, a larger window that is already
    /// saved is kept.
    pub(crate) fn save(&mut self, cwnd: f64, lowered: bool) {
        let keeps = self.recovers || lowered;
        self.cwnd = if keeps { self.cwnd.max(cwnd) } else { cwnd };
    }

    /// Starts a recovery. After a time-out there is no packet conservation, because nothing is in flight.
    pub(crate) fn on_recovery(&mut self, cwnd: f64, lowered: bool, delivered: u64, timeout: bool) {
        self.save(cwnd, lowered);
        (self.conserve_until, self.recovers) = ((!timeout).then_some(delivered), true);
    }

    pub(crate) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        (self.conserve_until, self.recovers) = (None, false);
        self.restored(cwnd)
    }

    pub(crate) fn restored(&self, cwnd: f64) -> f64 {
        cwnd.max(self.cwnd)
    }

    /// Returns the window after an acknowledgment. If the pipe is `full`, the window grows only up to `most`.
    pub(crate) fn next_cwnd(&self, event: &AckEvent, cwnd: f64, most: f64, full: bool, initial: f64) -> f64 {
        let fresh = f64::from(event.sample.fresh);
        // Under packet conservation, each delivered segment allows one segment to be sent.
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

    /// Whether packet conservation applies. It applies in the first round of a recovery.
    pub(crate) fn is_conserving(&self, event: &AckEvent) -> bool {
        self.conserve_until.is_some_and(|end| event.sample.prior_delivered < end)
    }
}

/// Measures how long ProbeRTT has lasted. ProbeRTT ends after 200 ms and one round. Both periods begin when the number
/// of segments in flight has fallen to the target.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeRttDuration {
    until: Option<Time>,
    round: bool,
}

impl ProbeRttDuration {
    /// Processes an acknowledgment. Returns whether ProbeRTT is over. Its time starts when at most `target` segments
    /// are in flight.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// ProbeRTT, which has a small window, may begin while a recovery lasts (BBRSaveCwnd).
    #[test]
    fn the_window_before_a_recovery_is_kept_when_probe_rtt_begins_in_it() {
        for timeout in [true, false] {
            let mut prior = PriorWindow::default();
            prior.on_recovery(100.0, false, 1_000, timeout);
            prior.save(4.0, false);
            assert_eq!(prior.on_recovered(4.0), 100.0);
            prior.save(20.0, false);
            assert_eq!(prior.restored(4.0), 20.0, "after the recovery, the newest window is kept");
        }
    }
}
