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

/// The data of one acknowledgment that BBR uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckEvent {
    pub(crate) now: Time,
    pub(crate) sample: Sample,
    /// The number of segments delivered since the start of the connection.
    pub(crate) delivered: u64,
    /// The number of segments in flight after the acknowledgment.
    pub(crate) in_flight: u32,
    pub(crate) cwnd: f64,
    /// Whether the window limited the sender in this round trip.
    pub(crate) cwnd_limited: bool,
    /// Whether the sender is in fast recovery.
    pub(crate) recovering: bool,
}

/// The decision of BBR after an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) cwnd: f64,
    /// The pacing rate in segments per second.
    pub(crate) pacing: f64,
    pub(crate) quantum: u32,
    /// Whether BBR itself keeps less data in flight than the path can carry. Delivery-rate samples then count as
    /// application-limited.
    pub(crate) is_self_limited: bool,
}

/// The sender's loss recovery state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryState {
    Open,
    Recovery,
    Loss,
}

/// The outstanding segments, as BBR's delivery-rate estimation needs them.
pub(crate) struct Outstanding<'a, Again> {
    pub(crate) scoreboard: &'a Scoreboard,
    /// The retransmissions that were lost and have to be sent again.
    pub(crate) again: Again,
}

/// The sender's congestion window, in segments, for a congestion control that sets it.
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

/// A congestion control with its pacer and its delivery-rate estimation.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) algorithm: Algorithm,
    pub(crate) pacer: Option<Pacer>,
    rate_estimator: RateEstimator,
    phase: RecoveryState,
    /// The sender counts as limited by its window until the total number of delivered segments exceeds this number;
    /// `None` if the window has never been the limit.
    limited_until: Option<u64>,
    limited: bool,
    /// The marks that acknowledgments have reported, modulo 2¹⁶.
    marks: u16,
}

impl Model {
    /// Creates the model of a congestion control, if it needs one.
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

    /// Returns the estimate alpha of the marked share, if the control has one.
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

    /// Returns how many of the `fresh` segments the acknowledgment reports as marked.
    pub(crate) fn marked(&mut self, ack: &Ack, fresh: u32) -> u32 {
        match self.algorithm {
            Algorithm::Dctcp(_) if ack.ece => fresh,
            Algorithm::Prague(_) => {
                let more = ack.marks.wrapping_sub(self.marks);
                // If an acknowledgment was reordered, its count is lower than that of the previous acknowledgment. A
                // forged acknowledgment may report more marks than segments. Both are ignored.
                if more >= 1 << 15 || fresh == 0 {
                    return 0;
                }
                self.marks = ack.marks;
                u32::from(more).min(fresh)
            }
            _ => 0,
        }
    }

    /// Records that the window prevented the sender from sending.
    pub(crate) fn on_window_limit(&mut self) {
        self.limited = true;
    }

    /// Records that the application has nothing to send while `in_flight` segments are outstanding.
    pub(crate) fn on_application_limit(&mut self, in_flight: u32) {
        self.rate_estimator.set_app_limited(in_flight);
    }

    /// Records a transmission after which `in_flight` segments are outstanding. Returns the new window if a restart
    /// from idle changes it.
    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32, cwnd: f64) -> Option<f64> {
        let mut window = None;
        if self.owns_window() {
            // The first segment after an idle time: BBR restarts its pacing (BBRHandleRestartFromIdle).
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

    /// Records that the handshake is complete.
    pub(crate) fn on_open(&mut self, now: Time, rtt: Option<Span>) {
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => bbr.on_open(now, rtt),
            Algorithm::Bbr1(bbr) => bbr.on_open(now, rtt),
            Algorithm::Dctcp(_) | Algorithm::Prague(_) => {}
        }
    }

    /// Records a time-out at a window of `cwnd`, after which `in_flight` segments are outstanding. Returns the
    /// window.
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
        // After a time-out the window allows one segment to be sent.
        f64::from(in_flight + 1)
    }

    /// Processes an acknowledgment for BBR. Returns the new window.
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
                // Packet conservation: at the beginning of recovery, the window is the number of segments in flight
                // plus those just delivered.
                cwnd = f64::from(in_flight + sample.fresh.max(1));
            } else {
                // Recovery is over: BBR restores the window that it had before.
                cwnd = match &mut self.algorithm {
                    Algorithm::Bbr(bbr) => bbr.on_recovered(cwnd),
                    Algorithm::Bbr1(bbr) => bbr.on_recovered(cwnd),
                    Algorithm::Dctcp(_) | Algorithm::Prague(_) => cwnd,
                };
            }
            self.phase = phase;
        } else {
            // Lost segments are subtracted from the window, so that they leave no room for new segments
            // (BBRModulateCwndForRecovery).
            cwnd = (cwnd - self.rate_estimator.losses().len() as f64).max(1.0);
        }
        if std::mem::take(&mut self.limited) {
            self.limited_until = Some(delivered + u64::from(in_flight));
        }
        // `cwnd_limited` remains true for a round trip: until all segments that were in flight when it became true have
        // been delivered.
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
