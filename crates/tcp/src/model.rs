//! Congestion controls that need more than a window. They pace, measure the delivery rate or count ECN marks.

use crate::bbr::Bbr;
use crate::bbr1::Bbr1;
use crate::config::{Config, Congestion};
use crate::dctcp::Dctcp;
use crate::delivery::{RateEstimator, Sample};
use crate::pacer::Pacer;
use crate::prague::Prague;
use crate::scoreboard::Scoreboard;
use crate::wire::Ack;
use steadycast_units::{Ecn, Span, Time};

/// Data about an acknowledgment that BBR reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckEvent {
    pub(crate) now: Time,
    pub(crate) sample: Sample,
    /// Number of segments delivered since the start of the connection.
    pub(crate) delivered: u64,
    /// Number of segments in flight after this acknowledgment.
    pub(crate) in_flight: u32,
    pub(crate) cwnd: f64,
    /// Whether the window limited the sender in this round trip.
    pub(crate) cwnd_limited: bool,
    pub(crate) recovering: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) cwnd: f64,
    /// The pacing rate in segments per second.
    pub(crate) pacing: f64,
    pub(crate) quantum: u32,
    /// Whether BBR intentionally keeps less in flight than the path can carry. Samples are then application-limited.
    pub(crate) is_self_limited: bool,
}

/// The state of the sender's loss recovery. A recovery ends when all segments that were outstanding at its start are
/// acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryState {
    Open,
    /// Fast recovery.
    Recovery,
    /// Recovery from a time-out.
    Loss,
}

pub(crate) struct Outstanding<'a, Again> {
    pub(crate) scoreboard: &'a Scoreboard,
    /// The lost retransmissions that have to be sent again.
    pub(crate) again: Again,
}

/// The congestion window, in segments.
pub(crate) struct Window {
    pub(crate) phase: RecoveryState,
    pub(crate) cwnd: f64,
    /// The receiver's window, in segments.
    pub(crate) most: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum Algorithm {
    Bbr(Bbr),
    Bbr1(Bbr1),
    Dctcp(Dctcp),
    Prague(Prague),
}

/// A congestion control with its pacer and delivery-rate estimation.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) algorithm: Algorithm,
    pub(crate) pacer: Option<Pacer>,
    rate_estimator: RateEstimator,
    phase: RecoveryState,
    /// The sender is regarded as limited by its window until this number of segments is delivered. It is `None` before
    /// the window has limited the sender.
    limited_until: Option<u64>,
    limited: bool,
    /// Number of marks that the receiver has reported, modulo 2¹⁶.
    marks: u16,
}

impl Model {
    /// Creates the model. Returns `None` for a congestion control that needs only a window.
    pub(crate) fn new(config: &Config, initial_window: f64) -> Option<Self> {
        let chance = || config.draws.part("bbr");
        let algorithm = match config.congestion {
            Congestion::Bbr => Algorithm::Bbr(Bbr::new(chance(), initial_window)),
            Congestion::Bbr1 => Algorithm::Bbr1(Bbr1::new(chance(), initial_window)),
            Congestion::Dctcp => Algorithm::Dctcp(Dctcp::new()),
            Congestion::Prague => {
                let mut prague = Prague::new();
                prague.set(1.0);
                Algorithm::Prague(prague)
            }
            _ => return None,
        };
        // Linux does not pace DCTCP.
        let pacer = (!matches!(algorithm, Algorithm::Dctcp(_))).then(Pacer::new);
        let rate_estimator = RateEstimator::default();
        Some(Self {
            algorithm,
            pacer,
            rate_estimator,
            phase: RecoveryState::Open,
            limited_until: None,
            limited: false,
            marks: 0,
        })
    }

    /// Whether the congestion control sets the window itself, also after losses.
    pub(crate) fn owns_window(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bbr(_) | Algorithm::Bbr1(_))
    }

    pub(crate) fn ecn(&self) -> Ecn {
        if matches!(self.algorithm, Algorithm::Prague(_)) { Ecn::Ect1 } else { Ecn::Ect0 }
    }

    /// Returns alpha, the estimated fraction of marked segments. Returns `None` if the congestion control does not
    /// estimate it.
    pub(crate) fn alpha(&self) -> Option<f64> {
        match &self.algorithm {
            Algorithm::Dctcp(dctcp) => Some(dctcp.alpha),
            Algorithm::Prague(prague) => Some(prague.alpha),
            Algorithm::Bbr(_) | Algorithm::Bbr1(_) => None,
        }
    }

    pub(crate) fn state(&self) -> Option<&'static str> {
        match &self.algorithm {
            Algorithm::Bbr(bbr) => Some(bbr.name()),
            Algorithm::Bbr1(bbr) => Some(bbr.name()),
            Algorithm::Dctcp(_) | Algorithm::Prague(_) => None,
        }
    }

    /// Returns how many of the `fresh` newly acknowledged segments were marked.
    pub(crate) fn marked(&mut self, ack: &Ack, fresh: u32) -> u32 {
        match self.algorithm {
            Algorithm::Dctcp(_) if ack.ece => fresh,
            Algorithm::Prague(_) => {
                let more = ack.marks.wrapping_sub(self.marks);
                // Ignore a reordered acknowledgment, which has a lower count. A forged count may be too high, so limit
                // the marks to `fresh`.
                if more >= 1 << 15 || fresh == 0 {
                    return 0;
                }
                self.marks = ack.marks;
                u32::from(more).min(fresh)
            }
            _ => 0,
        }
    }

    pub(crate) fn on_window_limit(&mut self) {
        self.limited = true;
    }

    /// Records that the application has no data to send.
    pub(crate) fn on_application_limit(&mut self, in_flight: u32) {
        self.rate_estimator.set_app_limited(in_flight);
    }

    /// Records a transmission. Returns the new window if a restart after an idle time changes it.
    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32, cwnd: f64) -> Option<f64> {
        let mut window = None;
        if self.owns_window() {
            // Adapt the model if this is the first segment after an idle time (BBRHandleRestartFromIdle).
            if in_flight <= 1 && self.rate_estimator.is_app_limited() {
                window = match &mut self.algorithm {
                    Algorithm::Bbr(bbr) => bbr.on_restart(now, cwnd),
                    Algorithm::Bbr1(bbr) => bbr.on_restart(now, cwnd),
                    Algorithm::Dctcp(_) | Algorithm::Prague(_) => None,
                };
            }
            self.rate_estimator.on_sent(now, seq, in_flight);
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(now);
        }
        window
    }

    pub(crate) fn on_open(&mut self, now: Time, rtt: Option<Span>) {
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => bbr.on_open(now, rtt),
            Algorithm::Bbr1(bbr) => bbr.on_open(now, rtt),
            Algorithm::Dctcp(_) | Algorithm::Prague(_) => {}
        }
    }

    /// Records a time-out. `cwnd` is the window before it. Returns the new window.
    pub(crate) fn on_timeout(&mut self, now: Time, cwnd: f64, in_flight: u32) -> f64 {
        self.phase = RecoveryState::Loss;
        self.rate_estimator.on_timeout();
        let delivered = self.rate_estimator.delivered;
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => {
                let event = AckEvent { now, delivered, in_flight, cwnd, ..AckEvent::default() };
                bbr.on_losses(&event, self.rate_estimator.losses());
                bbr.on_recovery(cwnd, delivered, true);
            }
            Algorithm::Bbr1(bbr) => bbr.on_recovery(cwnd, delivered, true),
            Algorithm::Dctcp(_) => {}
            Algorithm::Prague(prague) => prague.set(1.0),
        }
        // Leave room for one segment.
        f64::from(in_flight + 1)
    }

    pub(crate) fn on_ack<'a>(
        &mut self,
        now: Time,
        ack: &Ack,
        sent: Outstanding<'_, impl Iterator<Item = &'a u32>>,
        window: &Window,
        min_rtt: Span,
    ) -> f64 {
        let Outstanding { scoreboard, again } = sent;
        let Window { phase, mut cwnd, most } = *window;
        let sample = self.rate_estimator.on_ack(now, ack, scoreboard, again, min_rtt);
        let (delivered, in_flight) = (self.rate_estimator.delivered, scoreboard.pipe());
        if phase != self.phase {
            if phase == RecoveryState::Recovery {
                match &mut self.algorithm {
                    Algorithm::Bbr(bbr) => bbr.on_recovery(cwnd, delivered, false),
                    Algorithm::Bbr1(bbr) => bbr.on_recovery(cwnd, delivered, false),
                    Algorithm::Dctcp(_) | Algorithm::Prague(_) => {}
                }
                // Recovery begins with packet conservation: send one segment for each delivered segment.
                cwnd = f64::from(in_flight + sample.fresh.max(1));
            } else {
                cwnd = match &mut self.algorithm {
                    Algorithm::Bbr(bbr) => bbr.on_recovered(cwnd),
                    Algorithm::Bbr1(bbr) => bbr.on_recovered(cwnd),
                    Algorithm::Dctcp(_) | Algorithm::Prague(_) => cwnd,
                };
            }
            self.phase = phase;
        } else {
            // Subtract the lost segments, so that they do not make room for new segments (BBRModulateCwndForRecovery).
            cwnd = (cwnd - self.rate_estimator.losses().len() as f64).max(1.0);
        }
        if std::mem::take(&mut self.limited) {
            self.limited_until = Some(delivered + u64::from(in_flight));
        }
        // `cwnd_limited` stays true until all segments that were in flight are delivered.
        let cwnd_limited = self.limited_until.is_some_and(|until| delivered <= until);
        let recovering = phase == RecoveryState::Recovery;
        let event = AckEvent { now, sample, delivered, in_flight, cwnd, cwnd_limited, recovering };
        let losses = self.rate_estimator.losses();
        let decision = match &mut self.algorithm {
            Algorithm::Bbr(bbr) => bbr.on_ack(&event, losses),
            Algorithm::Bbr1(bbr) => bbr.on_ack(&event, losses.len()),
            Algorithm::Dctcp(_) | Algorithm::Prague(_) => return cwnd,
        };
        if decision.is_self_limited {
            self.rate_estimator.set_app_limited(in_flight);
        }
        self.pace(decision.pacing, decision.quantum);
        decision.cwnd.clamp(1.0, most)
    }

    pub(crate) fn pace(&mut self, rate: f64, quantum: u32) {
        if let Some(pacer) = &mut self.pacer {
            pacer.set(rate, quantum);
        }
    }
}
