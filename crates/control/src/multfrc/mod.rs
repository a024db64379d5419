//! The rate of several TFRC connections for one stream over a wireless link. If packets are lost without congestion, a
//! single connection leaves capacity unused. The round-trip time shows how many connections fill the link.
//!
//! `multfrc` and `e-multfrc` open real connections, each with its own sequence numbers, loss history and rate.
//! `aio-tfrc` and `eaio-tfrc` use one connection. It marks a share of its packets, and counts losses among these only.
//! The number of connections follows IIAD (`multfrc`, `aio-tfrc`) or IIMD (`e-multfrc`, `eaio-tfrc`).
//! `docs/controllers/multfrc.md` has the equations and the deviations.

mod law;
mod many;
mod one;

use crate::entry::{Controller, FeedbackTiming, Param, Receivers, params};
use crate::{Promise, tfrc};
use steadycast_units::Span;

const PAPER: &str = "Chen, Zakhor: EAIO-TFRC; RFC 5348";

/// The registry entry of `multfrc`: several connections, with IIAD.
pub(crate) const MULTFRC: Controller = Controller {
    name: "multfrc",
    about: "several TFRC connections at once: one more in n periods, one less when the round-trip time \
            grows by a quarter",
    when: "for one receiver over a hop that loses packets without congestion",
    source: PAPER,
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    extension: many::EXTENSION,
    answers_marks: true,
    app: *b"MULT",
    colour: "#17becf",
    params: &IIAD,
    former: tfrc::FORMER,
    sender: |setup, values| Box::new(many::Sender::new(setup, values)),
    receiver: |setup, values| Box::new(many::Receiver::new(setup, values)),
    ..crate::fixed::CONTROLLER
};

/// The registry entry of `e-multfrc`: several connections, with IIMD.
pub(crate) const E_MULTFRC: Controller = Controller {
    name: "e-multfrc",
    about: "several TFRC connections at once: a quarter less when the round-trip time grows by a quarter",
    colour: "#17becf",
    dashes: &[6.0, 2.0],
    params: &E_IIMD,
    ..MULTFRC
};

/// The registry entry of `aio-tfrc`: one connection, with IIAD.
pub(crate) const AIO_TFRC: Controller = Controller {
    name: "aio-tfrc",
    about: "one connection worth n TFRC connections: n times the rate at the loss among one in n packets; \
            n as in multfrc",
    extension: one::EXTENSION,
    app: *b"TFRC",
    colour: "#bcbd22",
    dashes: &[],
    params: &IIAD,
    sender: |setup, values| Box::new(one::Sender::new(setup, values)),
    receiver: one::receiver,
    promises: &[&MARKED],
    ..MULTFRC
};

/// The registry entry of `eaio-tfrc`: one connection, with IIMD.
pub(crate) const EAIO_TFRC: Controller = Controller {
    name: "eaio-tfrc",
    about: "one connection worth n TFRC connections: n times the rate at the loss among one in n packets; \
            n by the law of e-multfrc",
    colour: "#bcbd22",
    dashes: &[6.0, 2.0],
    params: &IIMD,
    ..AIO_TFRC
};

const MARKED: Promise = Promise {
    id: "aio-tfrc.one-in-n-marked",
    about: "as many packets are marked as the sum of 1/n over the packets sent, to one packet, and n is at least 1",
};

const PARAMS: usize = 8;
const IIAD: [Param; PARAMS] = law("iiad", [1.0; 2], [1.0; 2], [0.25; 2]);
const IIMD: [Param; PARAMS] = law("iimd", [0.25, 1.0], [0.75, 1.0], [0.5, 0.5]);
/// The law's parameters for `e-multfrc`. Section 2.3 says that it is "exactly the same as MULTFRC except" for the law,
/// so γ is that of MULTFRC.
const E_IIMD: [Param; PARAMS] = law("iimd", [0.25, 1.0], [0.75, 1.0], [0.25, 0.25]);

/// Declares the parameters, in repaired and in paper mode.
const fn law(moves: &'static str, alpha: [f64; 2], beta: [f64; 2], gamma: [f64; 2]) -> [Param; PARAMS] {
    params! { [
        choice law:
            "how the number of connections moves: inversely up and additively or multiplicatively down, or not at all",
            "Chen, Zakhor, eq. 1 and 2", [moves; 2], &["iiad", "iimd", "fixed"];
        number n: "connections at the start (and for good with a fixed law)", "own", [1.0; 2], [1.0, 64.0];
        number alpha: "rise per period, divided by n", "Chen, Zakhor, eq. 1 and 2", alpha, [0.0, 8.0];
        number beta: "in congestion: what is taken from n (iiad), or the factor that it keeps (iimd)",
            "Chen, Zakhor, eq. 1 and 2; 0.75 own, the paper prints 1", beta, [0.0, 8.0];
        number gamma: "congestion: the mean round-trip time exceeds the least one by more than this share of it",
            "Chen, Zakhor, sections 2.1, 2.3 and 3", gamma, [0.0, 10.0];
        span period: "how often n moves, and over which time the round-trip time is averaged",
            "Chen, Zakhor, section 3: 20 s", [Span::secs(20); 2], [Span::millis(500), Span::secs(600)];
        choice rtt_min:
            "what the least round-trip time is the least of: single measurements, or the periods' means",
            "Chen, Zakhor, section 3: means; samples own", ["samples", "averages"], &["samples", "averages"];
        choice profile: "the constants of each connection, as TFRC's profile",
            "RFC 5348; ns-2.35 defaults", ["rfc5348"; 2], &["rfc5348", "ns2"];
    ] }
}
