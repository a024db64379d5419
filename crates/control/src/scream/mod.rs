//! `scream`: SCReAM version 2 (draft-ietf-ccwg-rfc8298bis-screamv2).
//!
//! A window in bytes, the reference window, falls with losses, ECN marks and queueing delay, and rises by about a
//! packet per round trip and a small share of itself. The encoder's rate is what the window carries per round trip. The
//! receiver only tells which packets arrived, when and with which ECN field. `docs/controllers/scream.md` has the
//! equations and the deviations.

mod constants;
mod delay;
mod flight;
mod sender;
mod window;

use crate::asks::{Asks, Fresh};
use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, params};
use crate::{Need, Wake};
use constants::{QDELAY_TARGET, REPORT_AFTER, REPORT_PACKETS};
use steadycast_units::{Ecn, Span};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "scream",
    about: "a window in bytes, held by loss, marks and 60 ms of queue; the encoder gets what it carries per round trip",
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
    receiver: |_, _| Box::new(Asks::new(report_at)),
    ..crate::fixed::CONTROLLER
};

params! {
    /// What the parameters say, looked up once. Times in seconds, sizes in bytes.
    Config(values, setup) {
        secs qdelay_target:
            "the queueing delay at whose half the window begins to fall, by the most at the whole",
            "draft, QDELAY_TARGET_LO", [QDELAY_TARGET; 2], [Span::millis(5), Span::secs(1)];
        switch compete: "raise the target delay beside flows that fill the queue", "RFC 8298, 4.1.2.3", [false; 2];
        secs virtual_rtt:
            "the round-trip time down to which flows share equally, and the least time between two cuts",
            "draft, VIRTUAL_RTT", [Span::millis(25); 2], [Span::millis(1), Span::secs(1)];
        number beta_loss: "what a loss leaves of the window", "draft, BETA_LOSS", [0.7; 2], [0.1, 1.0];
        number beta_ecn: "what a mark leaves of it without L4S", "draft, BETA_ECN", [0.8; 2], [0.1, 1.0];
        number mul_increase: "share of itself by which the window grows per round trip",
            "draft, MUL_INCREASE_FACTOR", [0.02; 2], [0.0, 1.0];
        number alpha_up: "gain of L4S alpha while it rises", "draft, L4S_AVG_G_UP", [0.125; 2], [0.0, 1.0];
        number alpha_down:
            "gain of L4S alpha while it falls", "draft, L4S_AVG_G_DOWN", [1.0 / 128.0; 2], [0.0, 1.0];
        switch reduce_jitter:
            "slower growth and less room where the delay varies", "draft, REDUCE_JITTER", [false; 2];
    } {
        l4s: bool = setup.ecn == Ecn::Ect1,
        /// Losses and classic marks of packets that left before the last cut belong to it (RFC 9002, 7.3.2); as printed
        /// there is a cut each min(virtual_rtt, s_rtt).
        once_per_rtt: bool = values.mode() == Mode::Repaired,
        mss: f64 = setup.packet.as_f64().max(1.0),
    }
}

/// When a report is due, as SCReAM has it.
fn report_at(fresh: &Fresh) -> Wake {
    if fresh.ends {
        Wake { at: fresh.at, why: "frame complete" }
    } else if fresh.packets >= REPORT_PACKETS {
        Wake { at: fresh.at, why: "packets to acknowledge" }
    } else {
        Wake { at: fresh.last + REPORT_AFTER, why: "report interval" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;
    use crate::registry::Chosen;
    use steadycast_units::{Rate, Seed};

    /// The configuration of a session with 1000-byte packets without ECN.
    pub(super) fn config() -> Config {
        let chosen = Chosen::new("scream", Mode::Repaired, &[]).unwrap();
        let setup = Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }
}
