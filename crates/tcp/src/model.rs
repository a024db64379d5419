//! Congestion controls that are more than a law of the window: they pace, measure the delivery rate, or count marks.

use crate::bbr::Bbr;
use crate::bbr1::Bbr1;
use crate::config::{Config, Congestion};
use crate::dctcp::Dctcp;
use crate::delivery::{Ledger, Sample};
use crate::pacer::Pacer;
use crate::prague::Prague;
use crate::scoreboard::Scoreboard;
use crate::wire::Ack;
use steadycast_units::{Ecn, Span, Time};

/// What a control sees of an acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) now: Time,
    pub(crate) sample: Sample,
    /// Segments delivered in all.
    pub(crate) delivered: u64,
    /// Under way, after the acknowledgment.
    pub(crate) in_flight: u32,
    pub(crate) cwnd: f64,
    /// The window held something back in this round trip.
    pub(crate) cwnd_limited: bool,
    /// Fast recovery.
    pub(crate) recovering: bool,
}

/// What it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) cwnd: f64,
    /// In segments per second.
    pub(crate) pacing: f64,
    pub(crate) quantum: u32,
    /// It keeps less under way than the path takes, so that delivery rates tell nothing of the path.
    pub(crate) limits_itself: bool,
}

/// Where the sender's repairs stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Recovery,
    Loss,
}

/// The segments that are not acknowledged yet, for a model.
pub(crate) struct Outstanding<'a, Again> {
    pub(crate) board: &'a Scoreboard,
    /// Those that were sent again.
    pub(crate) again: Again,
}

/// The sender's window, in segments, for a model that sets it.
pub(crate) struct Window {
    pub(crate) phase: Phase,
    pub(crate) cwnd: f64,
    /// The receiver's window.
    pub(crate) most: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum Law {
    Bbr(Bbr),
    Bbr1(Bbr1),
    Dctcp(Dctcp),
    Prague(Prague),
}

/// One of them, with its books.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) law: Law,
    pub(crate) pacer: Option<Pacer>,
    ledger: Ledger,
    phase: Phase,
    /// The window has held something back, until this is delivered.
    limited_until: Option<u64>,
    limited: bool,
    /// Marks that acknowledgments have told of, modulo 2¹⁶.
    marks: u16,
}

impl Model {
    /// The model that a congestion control needs, if it does.
    pub(crate) fn new(config: &Config, initial_window: f64) -> Option<Self> {
        let chance = || config.draws.part("bbr");
        let law = match config.congestion {
            Congestion::Bbr => Law::Bbr(Bbr::new(chance(), initial_window)),
            Congestion::Bbr1 => Law::Bbr1(Bbr1::new(chance(), initial_window)),
            Congestion::Dctcp => Law::Dctcp(Dctcp::new()),
            Congestion::Prague => {
                let mut prague = Prague::new();
                prague.set(if config.handshake { 1.0 } else { initial_window });
                Law::Prague(prague)
            }
            _ => return None,
        };
        let pacer = (!matches!(law, Law::Dctcp(_))).then(Pacer::new);
        let ledger = Ledger::default();
        Some(Self { law, pacer, ledger, phase: Phase::Open, limited_until: None, limited: false, marks: 0 })
    }

    /// Whether it sets the window itself, after losses too.
    pub(crate) fn owns_window(&self) -> bool {
        matches!(self.law, Law::Bbr(_) | Law::Bbr1(_))
    }

    pub(crate) fn ecn(&self) -> Ecn {
        if matches!(self.law, Law::Prague(_)) { Ecn::Ect1 } else { Ecn::Ect0 }
    }

    /// The estimate of the marked part.
    pub(crate) fn alpha(&self) -> Option<f64> {
        match &self.law {
            Law::Dctcp(dctcp) => Some(dctcp.alpha),
            Law::Prague(prague) => Some(prague.alpha),
            Law::Bbr(_) | Law::Bbr1(_) => None,
        }
    }

    pub(crate) fn state(&self) -> Option<&'static str> {
        match &self.law {
            Law::Bbr(bbr) => Some(bbr.name()),
            Law::Bbr1(bbr) => Some(bbr.name()),
            Law::Dctcp(_) | Law::Prague(_) => None,
        }
    }

    /// How many of `fresh` segments an acknowledgment tells to be marked.
    pub(crate) fn marked(&mut self, ack: &Ack, fresh: u32) -> u32 {
        match self.law {
            Law::Dctcp(_) if ack.ece => fresh,
            Law::Prague(_) => {
                let more = ack.marks.wrapping_sub(self.marks);
                // An old acknowledgment counts fewer, and a false one more than there can be.
                if more >= 1 << 15 || fresh == 0 {
                    return 0;
                }
                self.marks = ack.marks;
                u32::from(more).min(fresh)
            }
            _ => 0,
        }
    }

    /// The window held something back.
    pub(crate) fn on_window_limit(&mut self) {
        self.limited = true;
    }

    /// The application has no more, while `in_flight` are under way.
    pub(crate) fn on_application_limit(&mut self, in_flight: u32) {
        self.ledger.limit(in_flight);
    }

    /// A segment leaves, which makes `in_flight` of them; the window, where a pause changes it.
    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32, cwnd: f64) -> Option<f64> {
        let mut window = None;
        if self.owns_window() {
            if in_flight <= 1 && self.ledger.is_app_limited() {
                window = match &mut self.law {
                    Law::Bbr(bbr) => bbr.on_restart(now, cwnd),
                    Law::Bbr1(bbr) => bbr.on_restart(now, cwnd),
                    Law::Dctcp(_) | Law::Prague(_) => None,
                };
            }
            self.ledger.on_sent(now, seq, in_flight);
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(now);
        }
        window
    }

    /// The connection is open.
    pub(crate) fn on_open(&mut self, now: Time, rtt: Option<Span>) {
        match &mut self.law {
            Law::Bbr(bbr) => bbr.on_open(now, rtt),
            Law::Bbr1(bbr) => bbr.on_open(now, rtt),
            Law::Dctcp(_) | Law::Prague(_) => {}
        }
    }

    /// A time-out with a window of `cwnd`, after which `in_flight` are under way: the window.
    pub(crate) fn on_timeout(&mut self, now: Time, cwnd: f64, in_flight: u32) -> f64 {
        self.phase = Phase::Loss;
        self.ledger.on_timeout();
        let delivered = self.ledger.delivered;
        match &mut self.law {
            Law::Bbr(bbr) => {
                let seen = Seen { now, delivered, in_flight, cwnd, ..Seen::default() };
                bbr.on_losses(&seen, self.ledger.losses());
                bbr.on_recovery(cwnd, delivered, true);
            }
            Law::Bbr1(bbr) => bbr.on_recovery(cwnd, delivered, true),
            Law::Dctcp(_) => {}
            Law::Prague(prague) => prague.set(1.0),
        }
        f64::from(in_flight + 1)
    }

    /// For those that own the window: what an acknowledgment makes of it.
    pub(crate) fn on_ack<'a>(
        &mut self,
        now: Time,
        ack: &Ack,
        sent: Outstanding<'_, impl Iterator<Item = &'a u32>>,
        window: &Window,
        least_rtt: Span,
    ) -> f64 {
        let Outstanding { board, again } = sent;
        let Window { phase, mut cwnd, most } = *window;
        let sample = self.ledger.on_ack(now, ack, board, again, least_rtt);
        let (delivered, in_flight) = (self.ledger.delivered, board.pipe());
        if phase != self.phase {
            if phase == Phase::Recovery {
                match &mut self.law {
                    Law::Bbr(bbr) => bbr.on_recovery(cwnd, delivered, false),
                    Law::Bbr1(bbr) => bbr.on_recovery(cwnd, delivered, false),
                    Law::Dctcp(_) | Law::Prague(_) => {}
                }
                cwnd = f64::from(in_flight + sample.fresh.max(1));
            } else {
                cwnd = match &mut self.law {
                    Law::Bbr(bbr) => bbr.on_recovered(cwnd),
                    Law::Bbr1(bbr) => bbr.on_recovered(cwnd),
                    Law::Dctcp(_) | Law::Prague(_) => cwnd,
                };
            }
            self.phase = phase;
        } else {
            // What is lost leaves no room (BBRModulateCwndForRecovery).
            cwnd = (cwnd - self.ledger.losses().len() as f64).max(1.0);
        }
        if std::mem::take(&mut self.limited) {
            self.limited_until = Some(delivered + u64::from(in_flight));
        }
        let cwnd_limited = self.limited_until.is_some_and(|until| delivered <= until);
        let recovering = phase == Phase::Recovery;
        let seen = Seen { now, sample, delivered, in_flight, cwnd, cwnd_limited, recovering };
        let losses = self.ledger.losses();
        let wish = match &mut self.law {
            Law::Bbr(bbr) => bbr.on_ack(&seen, losses),
            Law::Bbr1(bbr) => bbr.on_ack(&seen, losses.len()),
            Law::Dctcp(_) | Law::Prague(_) => return cwnd,
        };
        if wish.limits_itself {
            self.ledger.limit(in_flight);
        }
        self.pace(wish.pacing, wish.quantum);
        wish.cwnd.clamp(1.0, most)
    }

    pub(crate) fn pace(&mut self, rate: f64, quantum: u32) {
        if let Some(pacer) = &mut self.pacer {
            pacer.set(rate, quantum);
        }
    }
}
