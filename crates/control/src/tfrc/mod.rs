//! `tfrc`: TCP-friendly rate control for one receiver (RFC 5348).
//!
//! The receiver measures the loss event rate p and the rate X_recv at which packets arrive, and reports both once per
//! round trip. The sender measures the round-trip time R by an echoed stamp, and sends at what TCP would get at that p
//! and R, but at most at twice what arrived.

mod message;
mod receiver;
mod sender;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Param, Receivers, Values};
use crate::loss::LossSettings;
pub(crate) use message::{Finding, Mark, REPORT_BYTES, echo, read_rtt_notice, rtt_notice};
pub(crate) use receiver::{Among, Receiver};
pub(crate) use sender::Sender;
use steadycast_units::Span;

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "tfrc",
    about: "TCP-friendly rate control for one receiver: TCP's throughput equation at the measured loss event rate",
    source: "RFC 5348",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    extension: message::EXTENSION,
    answers_marks: true,
    app: *b"TFRC",
    colour: "#1f77b4",
    params: PARAMS,
    promises: &[&TWICE],
    sender: |setup, values| Box::new(Sender::new(setup, &Settings::read(values))),
    receiver: |setup, values| Box::new(Receiver::new(setup, &Settings::read(values), Among::All)),
    ..crate::fixed::CONTROLLER
};

const TWICE: Promise = Promise {
    id: "tfrc.at-most-twice",
    about: "with losses the rate is at most twice what arrives, above the least rate (RFC 5348, 4.3)",
};

/// Its parameters, which controllers that are made of it have as well.
pub(crate) const PARAMS: &[Param; 10] = &[
    Param::choice(
        "profile",
        "ns2: every parameter below that stands at RFC 5348's value takes ns-2's instead, and the rate rises by \
                at most one packet per round trip once there was a loss",
        "RFC 5348; ns-2.35 defaults",
        ["rfc5348", "rfc5348"],
        &["rfc5348", "ns2"],
    ),
    Param::number(
        "discount_threshold",
        "least discount factor of older loss intervals while the open one is long; 1: no discounting (ns2: 0.5)",
        "own; RFC 5348, 5.5: 0.25; its predecessor and ns-2: 0.5",
        [RFC.discount, NS2.discount],
        [0.05, 1.0],
    ),
    Param::number(
        "ndupack",
        "later packets that make a missing one count as lost (ns2: 1)",
        "RFC 5348, 5.1: NDUPACK",
        [RFC.ndupack, RFC.ndupack],
        [1.0, 64.0],
    ),
    Param::number(
        "q_rtt",
        "weight of the past in the round-trip time and, with damping, in the mean of its square root (ns2: 0.95)",
        "RFC 5348, 4.3: q, 4.5: q2",
        [RFC.q, RFC.q],
        [0.0, 0.999],
    ),
    Param::switch(
        "damping",
        "send less while the round-trip time is above its mean: X · mean √R / √R (oscillation damping)",
        "RFC 5348, 4.5",
        [true, true],
    ),
    Param::span(
        "t_mbi",
        "longest time between two packets: the rate never falls below one packet in it",
        "RFC 5348, 4.3: t_mbi",
        [Span::secs(64), Span::secs(64)],
        [Span::millis(100), Span::secs(600)],
    ),
    Param::number(
        "nofeedback",
        "round trips without a report after which the rate is halved (ns2: 2)",
        "RFC 5348, 4.3 step 3",
        [RFC.nofeedback, RFC.nofeedback],
        [1.0, 64.0],
    ),
    Param::number(
        "report_every",
        "round trips after which the receiver's feedback timer expires; a packet that arrives a round trip after the \
                last report calls one too (ns2: 1.5)",
        "RFC 5348, 6.2",
        [RFC.report, RFC.report],
        [1.0, 16.0],
    ),
    Param::choice(
        "t_rto",
        "TCP's retransmission time-out in the equation: four round trips, or TCP's own estimator with ticks of 0.1 s in \
                the full equation (ns2: tcp)",
        "RFC 5348, 3.1; ns-2.35",
        ["4R", "4R"],
        &["4R", "tcp"],
    ),
    Param::span(
        "start_delay",
        "queueing delay that ends slow start as a loss event would; 0: only a loss ends it (ns2: 0)",
        "own; RFC 9406 has 4 to 16 ms",
        [START_DELAY, Span::ZERO],
        [Span::ZERO, Span::secs(10)],
    ),
];

/// Of the repaired mode: a sixth of the queue of a home router, and more than a burst of TCP's first ten packets takes
/// on 6 Mb/s.
const START_DELAY: Span = Span::millis(20);

/// What a profile sets.
struct Profile {
    discount: f64,
    ndupack: f64,
    q: f64,
    nofeedback: f64,
    report: f64,
}

/// Discounting is off: with it a smooth stream beside one TCP takes more than twice its rate at a drop-tail queue.
const RFC: Profile = Profile { discount: 1.0, ndupack: 3.0, q: 0.9, nofeedback: 4.0, report: 1.0 };
const NS2: Profile = Profile { discount: 0.5, ndupack: 1.0, q: 0.95, nofeedback: 2.0, report: 1.5 };

/// What the parameters say, looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    loss: LossSettings,
    q: f64,
    damping: bool,
    t_mbi: Span,
    nofeedback: f64,
    report: f64,
    tcp_rto: bool,
    start_delay: Span,
    /// ns-2's congestion avoidance: rises are limited, and only the latest X_recv counts.
    gentle: bool,
}

impl Settings {
    pub(crate) fn read(values: &Values) -> Self {
        let ns2 = values.choice("profile") == "ns2";
        let number = |name: &str, rfc: f64, other: f64| {
            let given = values.number(name);
            if ns2 && given == rfc { other } else { given }
        };
        Self {
            loss: LossSettings {
                discount: number("discount_threshold", RFC.discount, NS2.discount),
                ndupack: number("ndupack", RFC.ndupack, NS2.ndupack) as u32,
                ..LossSettings::default()
            },
            q: number("q_rtt", RFC.q, NS2.q),
            damping: values.switch("damping"),
            t_mbi: values.span("t_mbi"),
            nofeedback: number("nofeedback", RFC.nofeedback, NS2.nofeedback),
            report: number("report_every", RFC.report, NS2.report),
            tcp_rto: ns2 || values.choice("t_rto") == "tcp",
            start_delay: Some(values.span("start_delay")).filter(|d| !ns2 || *d != START_DELAY).unwrap_or_default(),
            gentle: ns2,
        }
    }
}
