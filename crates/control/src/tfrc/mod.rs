//! `tfrc`: TCP-friendly rate control for one receiver (RFC 5348).
//!
//! The receiver measures the loss event rate p and the rate X_recv at which packets arrive, and reports both once per
//! round trip. The sender measures the round-trip time R by an echoed stamp, and sends at what TCP would get at that p
//! and R, but at most at twice what arrived.

mod message;
mod receiver;
mod sender;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Receivers, params};
use crate::loss::LossSettings;
pub(crate) use message::{Finding, Mark, REPORT_BYTES, echo, read_rtt_notice, rtt_notice};
pub(crate) use receiver::{Among, Receiver};
pub(crate) use sender::Sender;
use steadycast_units::Span;

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "tfrc",
    about: "TCP-friendly rate control for one receiver: TCP's throughput equation at the measured loss event rate",
    when: "for one receiver where a queue as long as TCP makes it does no harm, and for receivers that are not ours",
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
    sender: |setup, values| Box::new(Sender::new(setup, &Settings::new(values))),
    receiver: |setup, values| Box::new(Receiver::new(setup, &Settings::new(values), Among::All)),
    ..crate::fixed::CONTROLLER
};

const TWICE: Promise = Promise {
    id: "tfrc.at-most-twice",
    about: "with losses the rate is at most twice what arrives, above the least rate (RFC 5348, 4.3)",
};

params! {
    /// What the parameters say, looked up once. Controllers that are made of it have its parameters as well.
    pub(crate) Settings(values) {
        let choice profile:
            "ns2: ns-2's constants, also of what stands at the \
             default below, and the rate rises by at most one packet per \
                round trip once there was a loss",
            "RFC 5348; ns-2.35 defaults", ["rfc5348"; 2], &["rfc5348", "ns2"];
        let number discount_threshold:
            "least discount factor of older loss intervals while the open one is long; 1: no discounting (ns2: 0.5)",
            "own; RFC 5348, 5.5: 0.25; its predecessor and ns-2: 0.5", [RFC.discount, NS2.discount], [0.05, 1.0];
        switch damping: "send less while the round-trip time is above its mean: X · mean √R / √R (oscillation damping)",
            "RFC 5348, 4.5", [true; 2];
        span t_mbi: "longest time between two packets: the rate never falls below one packet in it",
            "RFC 5348, 4.3: t_mbi", [Span::secs(64); 2], [Span::millis(100), Span::secs(600)];
        let span start_delay:
            "queueing delay that ends slow start as a loss event would; 0: only a loss ends it (ns2: 0)",
            "own; RFC 9406 has 4 to 16 ms", [START_DELAY, Span::ZERO], [Span::ZERO, Span::secs(10)];
    } {
        profile: Profile = if profile == "ns2" { NS2 } else { RFC },
        // What stands at the default is the profile's.
        loss: LossSettings = LossSettings {
            discount: if discount_threshold == RFC.discount { profile.discount } else { discount_threshold },
            ndupack: profile.ndupack,
            ..LossSettings::default()
        },
        start_delay: Span = if profile.gentle && start_delay == START_DELAY { Span::ZERO } else { start_delay },
    }
}

/// The start ends at this in repaired mode: it is a sixth of the queue of a home router, and more than a burst of TCP's
/// first ten packets takes on 6 Mb/s.
const START_DELAY: Span = Span::millis(20);

/// What a profile sets.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    /// The least discount factor of older loss intervals while the open one is long (RFC 5348, 5.5).
    discount: f64,
    /// Later packets that make a missing one count as lost (RFC 5348, 5.1: NDUPACK).
    ndupack: u32,
    /// The weight of the past in the round-trip time (RFC 5348, 4.3: q) and, with damping, in the mean of its square
    /// root (4.5: q2).
    q: f64,
    /// Round trips without a report after which the rate is halved (RFC 5348, 4.3, step 3).
    nofeedback: f64,
    /// Round trips after which the receiver's feedback timer expires (RFC 5348, 6.2).
    report: f64,
    /// TCP's retransmission time-out in the equation is TCP's own estimator with ticks of 0.1 s, and not four round
    /// trips (RFC 5348, 3.1).
    tcp_rto: bool,
    /// ns-2's congestion avoidance: rises are limited, and only the latest X_recv counts.
    gentle: bool,
}

/// RFC 5348, but for discounting, which is off: with it a smooth stream beside one TCP takes more than twice its rate
/// at a drop-tail queue.
const RFC: Profile =
    Profile { discount: 1.0, ndupack: 3, q: 0.9, nofeedback: 4.0, report: 1.0, tcp_rto: false, gentle: false };
/// The defaults of ns-2.35.
const NS2: Profile =
    Profile { discount: 0.5, ndupack: 1, q: 0.95, nofeedback: 2.0, report: 1.5, tcp_rto: true, gentle: true };
