//! `scream`: SCReAM version 2 (draft-ietf-ccwg-rfc8298bis-screamv2).
//!
//! A window in bytes, the reference window, falls with losses, ECN marks and queueing delay, and rises by about a
//! packet per round trip and a small share of itself. The encoder's rate is what the window carries per round trip. The
//! receiver only tells which packets arrived, when and with which ECN field. `docs/controllers/scream.md` has the
//! equations and the deviations.

mod constants;
mod delay;
mod flight;
mod receiver;
mod sender;
mod window;

use crate::Need;
use crate::entry::{Controller, FeedbackTiming, Mode, Param, Receivers, Setup, Values};
use constants::{CODE, CODE_CUT_INTERVAL, CODE_MIN_REF_WND_PACKETS, DRAFT, MIN_REF_WND, Profile};
use steadycast_units::Span;

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
    receiver: |_, _| Box::new(receiver::Receiver::default()),
    ..crate::fixed::CONTROLLER
};

const PARAMS: &[Param] = &[
    Param::choice(
        "profile",
        "code: the reference code's constants, also of what stands at the draft's value below, and its small rules \
                (docs/controllers/scream.md)",
        "draft; EricssonResearch/scream, ScreamV2Tx.cpp",
        ["draft", "draft"],
        &["draft", "code"],
    ),
    Param::span(
        "qdelay_target",
        "the queueing delay at whose half the window begins to fall, by the most at the whole (code: 100 ms)",
        "draft, QDELAY_TARGET_LO",
        [DRAFT.qdelay_target, DRAFT.qdelay_target],
        [Span::millis(5), Span::secs(1)],
    ),
    Param::switch(
        "compete",
        "raise the target delay beside flows that fill the queue",
        "RFC 8298, 4.1.2.3",
        [false, false],
    ),
    Param::span(
        "virtual_rtt",
        "the round-trip time down to which flows share equally, and the least time between two cuts (code: for the \
                latter 30 ms)",
        "draft, VIRTUAL_RTT",
        [Span::millis(25), Span::millis(25)],
        [Span::millis(1), Span::secs(1)],
    ),
    Param::number("beta_loss", "what a loss leaves of the window", "draft, BETA_LOSS", [0.7, 0.7], [0.1, 1.0]),
    Param::number(
        "beta_ecn",
        "what a mark leaves of it without L4S (code: 0.9)",
        "draft, BETA_ECN",
        [DRAFT.beta_ecn, DRAFT.beta_ecn],
        [0.1, 1.0],
    ),
    Param::number(
        "mul_increase",
        "share of itself by which the window grows per round trip (code: 0.05)",
        "draft, MUL_INCREASE_FACTOR",
        [DRAFT.mul_increase, DRAFT.mul_increase],
        [0.0, 1.0],
    ),
    Param::number("alpha_up", "gain of L4S alpha while it rises", "draft, L4S_AVG_G_UP", [0.125, 0.125], [0.0, 1.0]),
    Param::number(
        "alpha_down",
        "gain of L4S alpha while it falls",
        "draft, L4S_AVG_G_DOWN",
        [1.0 / 128.0, 1.0 / 128.0],
        [0.0, 1.0],
    ),
    Param::switch(
        "reduce_jitter",
        "slower growth and less room where the delay varies (code: on)",
        "draft, REDUCE_JITTER",
        [false, false],
    ),
    Param::switch(
        "policer",
        "above a tenth of loss without a queue the window stays below what it was then",
        "draft, link loss and policers",
        [false, false],
    ),
    Param::switch(
        "spare",
        "smaller cuts while the target is low already",
        "draft, reference window reduction",
        [false, false],
    ),
];

/// What the parameters say, looked up once. Times in seconds, sizes in bytes.
#[derive(Clone, Copy, Debug)]
struct Config {
    profile: &'static Profile,
    code: bool,
    l4s: bool,
    /// Losses and classic marks of packets that left before the last cut belong to it (RFC 9002, 7.3.2); as printed
    /// there is a cut each min(virtual_rtt, s_rtt).
    once_per_rtt: bool,
    mss: f64,
    qdelay_target: f64,
    compete: bool,
    min_ref_wnd: f64,
    virtual_rtt: f64,
    /// Least time between two cuts, where the round trip is not shorter.
    cut_interval: f64,
    beta_loss: f64,
    beta_ecn: f64,
    mul_increase: f64,
    alpha_up: f64,
    alpha_down: f64,
    reduce_jitter: bool,
    policer: bool,
    spare: bool,
}

impl Config {
    fn new(setup: &Setup, values: &Values) -> Self {
        let code = values.choice("profile") == "code";
        let profile = if code { &CODE } else { &DRAFT };
        // What stands at the draft's value is the profile's.
        let number = |name: &str, of: fn(&Profile) -> f64| {
            let given = values.number(name);
            if given == of(&DRAFT) { of(profile) } else { given }
        };
        let qdelay_target = match values.span("qdelay_target") {
            given if given == DRAFT.qdelay_target => profile.qdelay_target,
            given => given,
        };
        let mss = setup.packet.as_f64().max(1.0);
        let virtual_rtt = values.span("virtual_rtt");
        Self {
            profile,
            code,
            l4s: setup.ecn == steadycast_units::Ecn::Ect1,
            once_per_rtt: values.mode() == Mode::Repaired,
            mss,
            qdelay_target: qdelay_target.as_secs_f64(),
            compete: values.switch("compete"),
            min_ref_wnd: if code { CODE_MIN_REF_WND_PACKETS * mss } else { MIN_REF_WND.as_f64() },
            virtual_rtt: virtual_rtt.as_secs_f64(),
            cut_interval: if code { virtual_rtt.max(CODE_CUT_INTERVAL) } else { virtual_rtt }.as_secs_f64(),
            beta_loss: values.number("beta_loss"),
            beta_ecn: number("beta_ecn", |profile| profile.beta_ecn),
            mul_increase: number("mul_increase", |profile| profile.mul_increase),
            alpha_up: values.number("alpha_up"),
            alpha_down: values.number("alpha_down"),
            reduce_jitter: code || values.switch("reduce_jitter"),
            policer: values.switch("policer"),
            spare: values.switch("spare"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Chosen, Given};
    use steadycast_units::{Rate, Seed};

    /// The configuration of a session with 1000-byte packets without ECN.
    pub(super) fn config(profile: &str) -> Config {
        let given = [("profile".to_owned(), Given::Text(profile.into()))];
        let chosen = Chosen::new("scream", Mode::Repaired, &given).unwrap();
        let setup = Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }

    #[test]
    fn the_code_replaces_what_stands_at_the_drafts_value() {
        let (draft, code) = (config("draft"), config("code"));
        let told = |c: &Config| [c.qdelay_target, c.beta_ecn, c.mul_increase, c.min_ref_wnd];
        assert_eq!(told(&draft), [0.06, 0.8, 0.02, 3_000.0]);
        assert_eq!(told(&code), [0.1, 0.9, 0.05, 2_000.0]);
        assert_eq!([draft.cut_interval, code.cut_interval], [0.025, 0.03]);
    }
}
