//! `nada`: Network-Assisted Dynamic Adaptation (RFC 8698).
//!
//! Combines queueing delay, loss and ECN marks into one signal x. In equilibrium, the rate is inversely proportional to
//! x. `docs/controllers/nada.md` has the equations and the differences from the RFC.

mod constants;
mod message;
mod receiver;
mod sender;
mod signal;

use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, Setup, params};
use constants::{R_MAX, X_MAX};
use steadycast_units::{Rate, Span};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "nada",
    about: "combines queueing delay, loss and ECN marks into one congestion signal; in equilibrium the rate is \
            inversely proportional to the signal",
    when: "to compare with the IETF's proposals for calls (RMCAT); beside one CUBIC in a drop-tail queue it leaves the \
           CUBIC a third of its fair share",
    source: "RFC 8698",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    answers_marks: true,
    app: *b"NADA",
    colour: "#bc5090",
    params: PARAMS,
    sender: |setup, values| Box::new(sender::Sender::new(&Config::new(setup, values))),
    receiver: |setup, values| Box::new(receiver::Receiver::new(&Config::new(setup, values))),
    ..crate::fixed::CONTROLLER
};

params! {
    /// Configuration of `nada`. Rates are in bit/s. Times are in seconds, except `delta`.
    Config(values, setup) {
        number prio: "the weight of this flow among NADA flows; the shares of flows are in proportion to their weights",
            "RFC 8698, PRIO", [1.0; 2], [0.01, 100.0];
        let rate r_min: "the minimum rate; if not set, the session's floor",
            "RFC 8698, RMIN", [Rate::ZERO, Rate::kbps(150)], [Rate::kbps(1), Rate::mbps(1_000)];
        let rate r_max:
            "the maximum rate, to which the flow's share is in proportion; if not set, the session's cap, or 20 Mb/s \
             without a cap",
            "RFC 8698, RMAX", [Rate::ZERO, Rate::kbps(1_500)], [Rate::kbps(1), Rate::mbps(1_000)];
        secs x_ref: "the congestion signal, as a delay, at which a flow with prio = 1 sends at r_max",
            "RFC 8698, XREF", [Span::millis(10); 2], [Span::millis(1), Span::millis(500)];
        number kappa: "the gain of both terms of the gradual update (eq. 7): a higher gain changes the rate faster",
            "RFC 8698, KAPPA", [0.5; 2], [0.01, 5.0];
        number eta: "the gain of the second term of the gradual update, which follows the signal's change",
            "RFC 8698, ETA", [2.0; 2], [0.0, 20.0];
        secs tau: "the longest round-trip time at which the gradual update is stable",
            "RFC 8698, TAU", [Span::millis(500); 2], [Span::millis(50), Span::secs(10)];
        span delta: "the interval between two reports of the receiver",
            "RFC 8698, DELTA", [Span::millis(100); 2], [Span::millis(20), Span::millis(500)];
        secs d_loss: "the delay that a loss rate of 1 % adds to the congestion signal",
            "RFC 8698, DLOSS", [Span::millis(10); 2], [Span::ZERO, Span::secs(1)];
        secs d_mark: "the delay that an ECN marking rate of 1 % adds to the congestion signal",
            "RFC 8698, DMARK", [Span::millis(2); 2], [Span::ZERO, Span::secs(1)];
    } {
        /// Whether additional rules are used where the RFC has none. For example, a mark then ends the ramp-up.
        own_rules: bool = setup.mode == Mode::Repaired,
        r_max: f64 = within(setup, r_max.unwrap_or(if setup.capped { setup.cap } else { R_MAX })),
        r_min: f64 = within(setup, r_min.unwrap_or(setup.floor)).min(r_max),
        /// Lower limit of the rate when it is halved because feedback is missing.
        floor: f64 = setup.floor.as_bps_f64().min(r_max),
        x_max: f64 = if own_rules { X_MAX } else { message::MOST_X }.as_secs_f64(),
    }
}

/// Limits a rate to the range of the session. Returns it in bit/s.
fn within(setup: &Setup, rate: Rate) -> f64 {
    rate.max(setup.floor).min(setup.cap).as_bps_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Chosen;
    use steadycast_units::Seed;

    /// Returns the configuration in paper mode. Its rates are from 150 kb/s to 1.5 Mb/s.
    pub(super) fn printed() -> Config {
        let chosen = Chosen::new("nada", Mode::Paper, &[]).unwrap();
        let setup =
            Setup { mode: Mode::Paper, ..Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(1).part("config")) };
        Config::new(&setup, &chosen.values)
    }

    #[test]
    fn limits_that_are_not_set_are_the_sessions() {
        let printed = printed();
        assert_eq!([printed.r_min, printed.r_max], [150e3, 1.5e6]);
        let setup = Setup::unicast(Rate::kbps(300), Rate::mbps(4), Seed(1).part("config"));
        let own = Config::new(&setup, &Chosen::new("nada", Mode::Repaired, &[]).unwrap().values);
        assert_eq!([own.r_min, own.r_max], [300e3, 4e6]);
    }

    #[test]
    fn the_worst_signal_leaves_less_than_half_a_megabit_where_nobody_sets_a_cap() {
        let setup = Setup { capped: false, ..Setup::unicast(Rate::kbps(10), Setup::NO_CAP, Seed(1).part("config")) };
        let config = Config::new(&setup, &Chosen::new("nada", Mode::Repaired, &[]).unwrap().values);
        let least = config.x_ref * config.r_max / config.x_max;
        assert!((0.2e6..0.5e6).contains(&least), "{least} bit/s at the largest signal");
    }
}
