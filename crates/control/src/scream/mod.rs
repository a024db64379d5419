//! `scream`: SCReAM version 2 (draft-ietf-ccwg-rfc8298bis-screamv2).
//!
//! The window falls with losses, ECN marks and queueing delay. The encoder's rate is one window per round trip.
//! `docs/controllers/scream.md` has the equations and deviations.

mod constants;
mod delay;
mod flight;
mod profile;
mod sender;
mod window;

use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, SLOWEST_FEEDBACK, params};
use crate::report_scheduler::{ReportScheduler, SinceLastReport};
use crate::{Need, Wake};
use constants::{REPORT_AFTER, REPORT_PACKETS, VIRTUAL_RTT};
use profile::{CODE, DRAFT, Profile};
use steadycast_units::{Ecn, Span};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "scream",
    about: "a window in bytes that falls with losses, ECN marks and a queueing delay near 60 ms; the encoder's rate \
            is one window per round trip",
    when: "for low delay where no other flow fills the queue, or with L4S; beside CUBIC at drop-tail it starves",
    source: "draft-ietf-ccwg-rfc8298bis-screamv2; EricssonResearch/scream",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    needs: |_| &[Need::PacketReports],
    standard_reports: false,
    answers_marks: true,
    app: *b"SCRM",
    colour: "#003f5c",
    params: PARAMS,
    sender: |setup, values| Box::new(sender::Sender::new(setup, Config::new(setup, values))),
    receiver: |_, _| Box::new(ReportScheduler::new(report_at)),
    slowest_feedback: SLOWEST_FEEDBACK,
    ..crate::fixed::CONTROLLER
};

params! {
    /// The configuration of `scream`. Times are in seconds, sizes in bytes, rates in bit/s.
    Config(values, setup) {
        let choice profile:
            "draft: the rules and values of the Internet-Draft; code: those of the draft's authors' code, also for \
             each parameter below that has its default value",
            "SCReAM v2 draft; EricssonResearch/scream, ScreamV2Tx.cpp", ["draft"; 2], &["draft", "code"];
        let span qdelay_target:
            "the target of the queueing delay; the window falls from half of it on, and by the largest step at the \
             target (with profile = code: 100 ms)",
            "SCReAM v2 draft, QDELAY_TARGET_LO", [DRAFT.qdelay_target; 2], [Span::millis(5), Span::secs(1)];
        switch compete: "whether the target delay rises beside flows that fill the queue",
            "RFC 8298, 4.1.2.3", [false; 2];
        number alpha_up:
            "the weight of a new sample in L4S alpha, the smoothed share of marked packets, while it rises",
            "SCReAM v2 draft, L4S_AVG_G_UP", [0.125; 2], [0.0, 1.0];
        number alpha_down:
            "the weight of a new sample in L4S alpha, the smoothed share of marked packets, while it falls",
            "SCReAM v2 draft, L4S_AVG_G_DOWN", [1.0 / 128.0; 2], [0.0, 1.0];
        let switch reduce_jitter:
            "whether the window grows more slowly and is smaller while the delay varies (with profile = code: true)",
            "SCReAM v2 draft, REDUCE_JITTER", [false; 2];
    } {
        profile: Profile = if profile == "code" { CODE } else { DRAFT },
        qdelay_target: f64 = of_profile(qdelay_target, DRAFT.qdelay_target, profile.qdelay_target).as_secs_f64(),
        reduce_jitter: bool = reduce_jitter || profile.reduce_jitter,
        /// Minimum interval between two reductions, in seconds. A round-trip time shorter than this replaces it.
        cut_interval: f64 = VIRTUAL_RTT.as_secs_f64().max(profile.cut_interval),
        l4s: bool = setup.ecn == Ecn::Ect1,
        /// Whether a loss or classic mark is ignored if its packet was sent before the last reduction (RFC 9002,
        /// section 7.3.2). The draft has no such rule.
        once_per_rtt: bool = values.mode() == Mode::Repaired,
        mss: f64 = setup.packet.as_f64().max(1.0),
    }
}

/// Returns `given`. If `given` is the draft's default, returns the profile's value instead.
fn of_profile<T: PartialEq>(given: T, draft: T, profile: T) -> T {
    if given == draft { profile } else { given }
}

/// Returns when the next report is due (the draft's section on feedback).
fn report_at(since: &SinceLastReport) -> Wake {
    if since.ends {
        Wake { at: since.at, why: "frame complete" }
    } else if since.packets >= REPORT_PACKETS {
        Wake { at: since.at, why: "packets to acknowledge" }
    } else {
        Wake { at: since.last + REPORT_AFTER, why: "report interval" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;
    use crate::registry::{Chosen, Given};
    use steadycast_units::{Rate, Seed};

    /// Returns a configuration that sends 1000-byte packets without ECN.
    pub(super) fn config() -> Config {
        config_of("draft")
    }

    pub(super) fn config_of(profile: &str) -> Config {
        let given = [("profile".to_owned(), Given::Text(profile.into()))];
        let chosen = Chosen::new("scream", Mode::Repaired, &given).unwrap();
        let setup = Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }
}
