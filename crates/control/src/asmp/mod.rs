//! `asmp`: the Adaptive Smooth Multicast Protocol (Bouras, Gkamas, Kioumourtzis 2009, and its use in Multi-Evalvid-RA).
//!
//! Each receiver computes the rate that TCP would have on its own path, once per RTCP report, and smooths it; the
//! sender takes the least of them. `docs/controllers/asmp.md` has the equations and every place where the repaired mode
//! differs from the printed one.

mod delay;
mod loss;
mod message;
mod receiver;
mod rtt;
mod sender;
pub(crate) mod suppress;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Kind, Param, Receivers, Values};
use steadycast_units::{Rate, Span};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "asmp",
    about: "smooth TCP-friendly multicast: receivers compute a rate per RTCP report, the least one counts",
    source: "Bouras, Gkamas, Kioumourtzis: ASMP (Wiley, 2009); Multi-Evalvid-RA (2009)",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Periodic,
    needs: |_| &[],
    standard_reports: true,
    repeats: true,
    fallback: true,
    own_rate: true,
    extension: message::RATE_ID,
    answers_marks: true,
    app: *b"ASMP",
    colour: "#d62728",
    dashes: &[],
    params: PARAMS,
    promises: &[&STEP, &LEAST],
    sender: |setup, values| Box::new(sender::Sender::new(setup, values)),
    receiver: |setup, values| Box::new(receiver::Receiver::new(setup, values)),
};

const STEP: Promise = Promise {
    id: "asmp.a-packet-per-report",
    about: "outside the start phase a receiver's rate rises by at most one packet per round trip from report to report (eq. 13)",
};
const LEAST: Promise = Promise {
    id: "asmp.least-counts",
    about: "the sender's rate is the least of the rates of the receivers that are there, within floor and cap",
};

const PARAMS: &[Param] = &[
    Param::number("beta", "weight of the newest round-trip time", "ASMP, eq. 11", [0.5, 0.5], [0.01, 1.0]),
    Param::number("gamma_unloaded", "weight of the new rate while unloaded", "ASMP, eq. 19", [0.9, 0.9], [0.01, 1.0]),
    Param::number("gamma_congested", "weight of the new rate while congested", "ASMP, eq. 19", [0.2, 0.2], [0.01, 1.0]),
    Param::number(
        "gamma_down",
        "weight of a new rate that is lower; 0: the state's, as for a higher one",
        "own: the paper damps decreases too",
        [0.9, 0.0],
        [0.0, 1.0],
    ),
    Param::switch("smooth", "off: the new rate is taken as it is (weight 1)", "ASMP, 4.2", [true, true]),
    Param::switch("clamp_increase", "at most P/RTT more per report, with loss too", "own; ASMP, eq. 13", [true, false]),
    Param::switch("recv_clamp", "at most P/RTT above what is sent or received", "own", [true, false]),
    Param::span(
        "ci_eps",
        "how much the short mean of the delay exceeds the long one under congestion",
        "own; ASMP, eq. 18 has none",
        [Span::millis(1), Span::ZERO],
        [Span::ZERO, Span::secs(1)],
    ),
    Param::choice(
        "ci_equal",
        "the state when both means are equal",
        "ASMP, eq. 18 and 3.7",
        ["unloaded", "congested"],
        &["unloaded", "congested"],
    ),
    Param::span(
        "ci_long_window",
        "how far back the long mean reaches; 0s: to the start",
        "own; ASMP, 3.7",
        [Span::secs(60), Span::ZERO],
        [Span::ZERO, Span::secs(3600)],
    ),
    Param::choice(
        "ci_clock",
        "delay counted from the sampling or from the sending of a frame",
        "own; ASMP, 3.4",
        ["sent", "sampled"],
        &["sent", "sampled"],
    ),
    Param::switch("drift", "take the drift between the clocks out of the delay", "own", [true, false]),
    Param::choice(
        "rtt_mode",
        "how one-way delay moves the round-trip time",
        "own; ASMP, eq. 6-10",
        ["additive", "multiplicative"],
        &["additive", "multiplicative"],
    ),
    Param::span(
        "initial_rtt",
        "round-trip time until the sender has announced one",
        "own",
        [Span::millis(500), Span::millis(500)],
        [Span::millis(1), Span::secs(10)],
    ),
    Param {
        name: "initial_rate",
        about: "the sender's rate before the first report",
        source: "ASMP, 4.2 (500kbps in 4.4)",
        kind: Kind::Rate {
            default: Rate::kbps(150),
            paper: Rate::kbps(150),
            min: Rate::bps(100),
            max: Rate::mbps(1000),
        },
    },
    Param::choice(
        "init",
        "a new receiver's rate: what is sent now, or initial_rate",
        "own; ASMP, 5.4.1",
        ["announced", "fixed"],
        &["announced", "fixed"],
    ),
    Param::choice(
        "start",
        "double per report until the first sign of congestion",
        "own: the paper has none",
        ["ramp", "none"],
        &["ramp", "none"],
    ),
    Param::span(
        "ramp_delay",
        "queueing delay that ends the start phase",
        "own",
        [Span::millis(20), Span::millis(20)],
        [Span::millis(1), Span::secs(10)],
    ),
    Param::choice(
        "loss_mode",
        "loss per report, or loss events as in TFRC: with short reports a fraction is mostly noise",
        "own; ASMP, 3.3 takes the fraction and calls it a loss event rate",
        ["event", "fraction"],
        &["fraction", "event"],
    ),
    Param::choice(
        "spacing",
        "least time between two reports, where RTCP allows less: a round trip, since each adds P/RTT, or least_interval",
        "own; the paper reports per RTCP interval",
        ["rtt", "interval"],
        &["rtt", "interval"],
    ),
    Param::choice(
        "suppress",
        "in rounds longer than t_suspend, whoever hears its own rate from another stays silent",
        "ASMP, 3.8",
        ["on", "on"],
        &["on", "off"],
    ),
    Param::span(
        "t_suspend",
        "RTCP intervals above this are replaced by suppressed rounds",
        "own; ASMP, 3.8 gives no value",
        [Span::secs(5), Span::secs(5)],
        [Span::ZERO, Span::secs(86_400)],
    ),
    Param::span(
        "t_random",
        "least length of a suppressed round",
        "own; ASMP, 3.8 gives no value",
        [Span::secs(5), Span::secs(5)],
        [Span::millis(100), Span::secs(3600)],
    ),
    Param::number(
        "lambda",
        "steepness of the timers in a round; 0: ln N + 1",
        "ASMP, eq. 20; NORM",
        [0.0, 0.0],
        [0.0, 30.0],
    ),
    Param::number(
        "similarity",
        "another's rate this near to one's own suppresses it",
        "ASMP, 3.8",
        [0.02, 0.02],
        [0.0, 0.5],
    ),
    Param::switch(
        "suppress_by_lower",
        "never suppressed by a rate more than 2 % above one's own",
        "own",
        [true, false],
    ),
    Param::choice(
        "agg",
        "the sender takes the least rate, or skips a share of the lowest",
        "ASMP, eq. 1",
        ["min", "min"],
        &["min", "quantile"],
    ),
    Param::number("agg_share", "the share that quantile skips", "own", [0.02, 0.02], [0.0, 0.5]),
    Param::switch("no_feedback", "silence lowers the rate", "own: the paper has no such timer", [true, false]),
    Param::span(
        "least_interval",
        "time between two reports at least, the start phase apart; the sender assumes it for silence and ageing",
        "own; ASMP, 5.4.1",
        [Span::secs(1), Span::secs(1)],
        [Span::millis(10), Span::secs(60)],
    ),
];

/// What the parameters say, looked up once.
#[derive(Clone, Copy, Debug)]
struct Config {
    beta: f64,
    gamma_unloaded: f64,
    gamma_congested: f64,
    gamma_down: Option<f64>,
    clamp_increase: bool,
    recv_clamp: bool,
    ci_eps: Span,
    ci_equal_is_congested: bool,
    ci_long_window: Span,
    ci_sampled: bool,
    drift: bool,
    additive: bool,
    initial_rtt: Span,
    initial_rate: Rate,
    init_announced: bool,
    ramp: bool,
    ramp_delay: Span,
    loss_events: bool,
    spaced: bool,
    suppress: bool,
    t_suspend: Span,
    t_random: Span,
    lambda: Option<f64>,
    similarity: f64,
    suppress_by_lower: bool,
    skip: Option<f64>,
    no_feedback: bool,
    least_interval: Span,
}

impl Config {
    fn new(values: &Values) -> Self {
        let smooth = |gamma: f64| if values.switch("smooth") { gamma } else { 1.0 };
        let set = |n: f64| (n > 0.0).then_some(n);
        Self {
            beta: values.number("beta"),
            gamma_unloaded: smooth(values.number("gamma_unloaded")),
            gamma_congested: smooth(values.number("gamma_congested")),
            gamma_down: set(values.number("gamma_down")).map(smooth),
            clamp_increase: values.switch("clamp_increase"),
            recv_clamp: values.switch("recv_clamp"),
            ci_eps: values.span("ci_eps"),
            ci_equal_is_congested: values.choice("ci_equal") == "congested",
            ci_long_window: values.span("ci_long_window"),
            ci_sampled: values.choice("ci_clock") == "sampled",
            drift: values.switch("drift"),
            additive: values.choice("rtt_mode") == "additive",
            initial_rtt: values.span("initial_rtt"),
            initial_rate: values.rate("initial_rate").unwrap_or(Rate::kbps(150)),
            init_announced: values.choice("init") == "announced",
            ramp: values.choice("start") == "ramp",
            ramp_delay: values.span("ramp_delay"),
            loss_events: values.choice("loss_mode") == "event",
            spaced: values.choice("spacing") == "rtt",
            suppress: values.choice("suppress") == "on",
            t_suspend: values.span("t_suspend"),
            t_random: values.span("t_random"),
            lambda: set(values.number("lambda")),
            similarity: values.number("similarity"),
            suppress_by_lower: values.switch("suppress_by_lower"),
            skip: (values.choice("agg") == "quantile").then(|| values.number("agg_share")),
            no_feedback: values.switch("no_feedback"),
            least_interval: values.span("least_interval"),
        }
    }
}
