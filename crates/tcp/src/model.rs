//! Congestion controls that need more than a window: they pace, measure the delivery rate, or count marks.

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

/// What BBR reads of an acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckEvent {
    pub(crate) now: Time,
    pub(crate) sample: Sample,
    /// The segments delivered since the start.
    pub(crate) delivered: u64,
    /// The segments in flight afterwards.
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
    /// Whether BBR keeps less in flight than the path carries, so that samples are application-limited.
    pub(crate) is_self_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryState {
    Open,
    Recovery,
    Loss,
}

pub(crate) struct Outstanding<'a, Again> {
    pub(crate) scoreboard: &'a Scoreboard,
    /// The lost retransmissions to be sent again.
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
    /// The sender counts as limited by its window until this number of segments is delivered. `None` before the window
    /// has limited the sender.
    limited_until: Option<u64>,
    limited: bool,
    /// The reported marks, modulo 2¹⁶.
    marks: u16,
}

impl Model {
    /// Returns `None` for a congestion control without a model.
    pub(crate) fn new(config: &Config, initial_window: f64) -> Option<Self> {
        let chance = || config.draws.part("bbr");
        let algorithm = match config.congestion {
            Congestion::Bbr => Algorithm::Bbr(Bbr::new(chance(), initial_window)),
            Congestion::Bbr1 => Algorithm::Bbr1(Bbr1::new(chance(), initial_window)),
            Congestion::Dctcp => Algorithm::Dctcp(Dctcp::new()),
            Congestion::Prague => {
                let mut prague = Prague::new();
                prague.set(if config.handshake { 1.0 } else { initial_window });
                Algorithm::Prague(prague)
            }
            _ => return None,
        };
        // DCTCP is not paced in Linux.
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

    /// Whether the control sets the window itself, also after losses.
    pub(crate) fn owns_window(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bbr(_) | Algorithm::Bbr1(_))
    }

    pub(crate) fn ecn(&self) -> Ecn {
        if matches!(self.algorithm, Algorithm::Prague(_)) { Ecn::Ect1 } else { Ecn::Ect0 }
    }

    /// Returns alpha, the marked share; `None` if the control has none.
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

    /// Returns how many of the `fresh` segments were marked.
    pub(crate) fn marked(&mut self, ack: &Ack, fresh: u32) -> u32 {
        match self.algorithm {
            Algorithm::Dctcp(_) if ack.ece => fresh,
            Algorithm::Prague(_) => {
                let more = ack.marks.wrapping_sub(self.marks);
                // A reordered acknowledgment has a lower count, and a forged one may have too many marks.
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

    /// Records that the application has nothing to send.
    pub(crate) fn on_application_limit(&mut self, in_flight: u32) {
        self.rate_estimator.set_app_limited(in_flight);
    }

    /// Records a transmission. Returns the window if a restart from idle changes it.
    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32, cwnd: f64) -> Option<f64> {
        let mut window = None;
        if self.owns_window() {
            // The first segment after an idle time (BBRHandleRestartFromIdle).
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

    /// Records a time-out at a window of `cwnd`. Returns the window.
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
        // Room for one segment.
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
                // Packet conservation at the beginning of recovery.
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
            // Lost segments leave no room for new ones (BBRModulateCwndForRecovery).
            cwnd = (cwnd - self.rate_estimator.losses().len() as f64).max(1.0);
        }
        if std::mem::take(&mut self.limited) {
            self.limited_until = Some(delivered + u64::from(in_flight));
        }
        // `cwnd_limited` stays true until all that was in flight is delivered.
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
