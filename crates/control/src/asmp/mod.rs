//! `asmp`: the Adaptive Smooth Multicast Protocol (Bouras, Gkamas, Kioumourtzis 2009, and its use in Multi-Evalvid-RA).
//!
//! Each receiver computes the rate of a TCP connection once per RTCP report. The sender sends at the lowest of these
//! rates. `docs/controllers/asmp.md` has the equations and the differences from the papers.

mod constants;
mod delay;
mod loss;
mod message;
mod receiver;
mod rtt;
mod sender;
pub(crate) mod suppress;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, params};
use constants::AGG_SHARE;
use steadycast_units::{Rate, Span};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "asmp",
    about: "each receiver computes a TCP-friendly rate per RTCP report and smooths it; the sender sends at the lowest",
    when: "for a group in which some receivers send only standard reports; in other groups tfmcc reacts faster",
    source: "Bouras, Gkamas, Kioumourtzis: ASMP (Wiley, 2009); Multi-Evalvid-RA (2009)",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Periodic,
    slowest_feedback: Span::MAX,
    needs: |_| &[],
    standard_reports: true,
    repeats: true,
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
    about: "outside the start phase a receiver's rate rises by at most one packet per round trip from one report to \
            the next (eq. 13)",
};
const LEAST: Promise = Promise {
    id: "asmp.least-counts",
    about: "the sender's rate is the lowest rate of the present receivers, limited by the session's floor and cap",
};

params! {
    /// The configuration of `asmp`, computed from its parameters.
    Config(values) {
        number beta: "the weight of the newest sample in the smoothed round-trip time",
            "ASMP, eq. 11", [0.5; 2], [0.01, 1.0];
        let number gamma_unloaded: "the weight of a newly computed rate in the smoothed rate, without congestion",
            "ASMP, eq. 19", [0.9; 2], [0.01, 1.0];
        let number gamma_congested: "the weight of a newly computed rate in the smoothed rate, during congestion",
            "ASMP, eq. 19", [0.2; 2], [0.01, 1.0];
        let number gamma_down:
            "the weight of a newly computed rate that is lower than the smoothed one; 0: as for a higher one",
            "Steadycast: the paper damps decreases too", [0.9, 0.0], [0.0, 1.0];
        let switch smooth: "whether rates are smoothed; with false, each newly computed rate has the weight 1",
            "ASMP, 4.2", [true; 2];
        span ci_eps:
            "congestion is detected when the short-term mean of the one-way delay exceeds the long-term mean by this",
            "Steadycast; ASMP, eq. 18 has none", [Span::millis(1), Span::ZERO], [Span::ZERO, Span::secs(1)];
        let rate initial_rate: "the sending rate before the first report",
            "ASMP, 4.2 (500kbps in 4.4)", [Rate::kbps(150); 2], [Rate::bps(100), Rate::mbps(1000)];
        let choice start:
            "ramp: the rate doubles per report until the first sign of congestion; none: no start phase",
            "Steadycast: the paper has none", ["ramp", "none"], &["ramp", "none"];
        let choice loss_mode:
            "event: the loss event rate as in TFRC; fraction: the share of lost packets per report, which is noisy in \
             short reports",
            "Steadycast; ASMP, 3.3 takes the fraction and calls it a loss event rate",
            ["event", "fraction"], &["fraction", "event"];
        let choice spacing:
            "the minimum time between two reports of a receiver; rtt: a round trip, as each report may add a packet \
             per round trip; interval: a second",
            "Steadycast; the paper reports per RTCP interval", ["rtt", "interval"], &["rtt", "interval"];
        let choice suppress:
            "on: above t_suspend, a receiver does not report a rate that another one has just reported",
            "ASMP, 3.8", ["on"; 2], &["on", "off"];
        span t_suspend: "if the RTCP interval is longer than this, receivers report in rounds with suppression",
            "Steadycast; ASMP, 3.8 gives no value", [Span::secs(5); 2], [Span::ZERO, Span::secs(86_400)];
        span t_random: "the minimum length of a round with suppression",
            "Steadycast; ASMP, 3.8 gives no value", [Span::secs(5); 2], [Span::millis(100), Span::secs(3600)];
        let choice agg:
            "min: the sender uses the lowest of all rates; quantile: it ignores the lowest 2 %",
            "ASMP, eq. 1", ["min"; 2], &["min", "quantile"];
    } {
        /// Whether the rules of the repaired mode are used (`docs/controllers/asmp.md`).
        repaired: bool = values.mode() == Mode::Repaired,
        gamma_unloaded: f64 = if smooth { gamma_unloaded } else { 1.0 },
        gamma_congested: f64 = if smooth { gamma_congested } else { 1.0 },
        gamma_down: Option<f64> = (gamma_down > 0.0).then_some(if smooth { gamma_down } else { 1.0 }),
        initial_rate: Rate = initial_rate.unwrap_or(Rate::kbps(150)),
        ramp: bool = start == "ramp",
        loss_events: bool = loss_mode == "event",
        spaced: bool = spacing == "rtt",
        suppress: bool = suppress == "on",
        skip: Option<f64> = (agg == "quantile").then_some(AGG_SHARE),
    }
}
