//! Several TFRC connections for one stream. They use capacity that one connection would leave unused if packets are
//! lost without congestion, as on wireless links.
//!
//! `multfrc` and `e-multfrc` open several TFRC connections. `aio-tfrc` and `eaio-tfrc` open one connection, and count
//! losses only among a share of its packets. `docs/controllers/multfrc.md` has the equations and the differences from
//! the papers.

mod law;
mod many;
mod one;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Param, Receivers, SLOWEST_FEEDBACK, params};
use steadycast_units::Span;

const PAPER: &str = "Chen, Zakhor: EAIO-TFRC; RFC 5348";

pub(crate) const MULTFRC: Controller = Controller {
    name: "multfrc",
    about: "n TFRC connections in parallel; n grows by one in n periods, and falls by one when the round-trip time \
            has grown by a quarter",
    when: "for one receiver over a hop that loses packets without congestion, such as Wi-Fi",
    source: PAPER,
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    extension: many::EXTENSION,
    answers_marks: true,
    app: *b"MULT",
    colour: "#17becf",
    params: &IIAD,
    sender: |setup, values| Box::new(many::Sender::new(setup, values)),
    receiver: |setup, values| Box::new(many::Receiver::new(setup, values)),
    ..crate::fixed::CONTROLLER
};

pub(crate) const E_MULTFRC: Controller = Controller {
    name: "e-multfrc",
    about: "n TFRC connections in parallel, as multfrc; n falls by a quarter when the round-trip time has grown by a \
            quarter",
    colour: "#17becf",
    dashes: &[6.0, 2.0],
    params: &E_IIMD,
    ..MULTFRC
};

pub(crate) const AIO_TFRC: Controller = Controller {
    name: "aio-tfrc",
    about: "one connection with the rate of n TFRC connections: n times TFRC's rate, with the loss measured on every \
            n-th packet; n changes as in multfrc",
    extension: one::EXTENSION,
    app: *b"TFRC",
    colour: "#bcbd22",
    dashes: &[],
    params: &IIAD,
    sender: |setup, values| Box::new(one::Sender::new(setup, values)),
    receiver: one::receiver,
    promises: &[&MARKED],
    slowest_feedback: SLOWEST_FEEDBACK,
    ..MULTFRC
};

pub(crate) const EAIO_TFRC: Controller = Controller {
    name: "eaio-tfrc",
    about: "one connection with the rate of n TFRC connections: n times TFRC's rate, with the loss measured on every \
            n-th packet; n changes as in e-multfrc",
    colour: "#bcbd22",
    dashes: &[6.0, 2.0],
    params: &IIMD,
    ..AIO_TFRC
};

const MARKED: Promise = Promise {
    id: "aio-tfrc.one-in-n-marked",
    about: "the number of packets marked for the loss measurement is the sum of 1/n over all packets sent, to within \
            one packet, and n is at least 1",
};

const PARAMS: usize = 8;
const IIAD: [Param; PARAMS] = law("iiad", [1.0; 2], [1.0; 2], [0.25; 2]);
const IIMD: [Param; PARAMS] = law("iimd", [0.25, 1.0], [0.75, 1.0], [0.5, 0.5]);
/// E-MULTFRC differs from MULTFRC only in how n increases and decreases (Chen, Zakhor, section 2.3). So γ is 0.25, as
/// in [`IIAD`].
const E_IIMD: [Param; PARAMS] = law("iimd", [0.25, 1.0], [0.75, 1.0], [0.25, 0.25]);

const fn law(moves: &'static str, alpha: [f64; 2], beta: [f64; 2], gamma: [f64; 2]) -> [Param; PARAMS] {
    params! { [
        choice law:
            "how the number of connections n changes; iiad: inverse increase, additive decrease; iimd: inverse \
             increase, multiplicative decrease; fixed: n is constant",
            "Chen, Zakhor, eq. 1 and 2", [moves; 2], &["iiad", "iimd", "fixed"];
        number n: "the number of connections at the start; with law = fixed, throughout",
            "Steadycast", [1.0; 2], [1.0, 64.0];
        number alpha: "n grows by alpha/n in each period without congestion",
            "Chen, Zakhor, eq. 1 and 2", alpha, [0.0, 8.0];
        number beta:
            "in a period with congestion, the number subtracted from n (law = iiad), or the factor that n is \
             multiplied by (law = iimd)",
            "Chen, Zakhor, eq. 1 and 2; 0.75 is Steadycast's, the paper prints 1", beta, [0.0, 8.0];
        number gamma:
            "a period has congestion if its mean round-trip time exceeds the minimum by more than this share of the \
             minimum",
            "Chen, Zakhor, sections 2.1, 2.3 and 3", gamma, [0.0, 10.0];
        span period: "the length of a period; n changes once per period, and round-trip times are averaged over it",
            "Chen, Zakhor, section 3: 20 s", [Span::secs(20); 2], [Span::millis(500), Span::secs(600)];
        choice rtt_min:
            "the minimum round-trip time is the minimum of single samples (samples), or of the periods' means \
             (averages)",
            "Chen, Zakhor, section 3: means; Steadycast: samples", ["samples", "averages"], &["samples", "averages"];
        choice profile: "the constants of each TFRC connection: those of RFC 5348, or those of ns-2",
            "RFC 5348; ns-2.35 defaults", ["rfc5348"; 2], &["rfc5348", "ns2"];
    ] }
}
