//! `tfmcc`: TCP-Friendly Multicast Congestion Control (RFC 4654).
//!
//! TCP's equation gives a rate for each receiver. The receiver with the lowest rate, the current limiting receiver
//! (CLR), sets the rate. `docs/controllers/tfmcc.md` has the equations and deviations.

mod echo;
mod message;
mod receiver;
mod rtt;
mod sender;
mod timer;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Receivers, params};
use steadycast_units::Span;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "tfmcc",
    about: "the receiver with the lowest rate reports once per round trip and sets the rate; of the others, a few \
            report in each feedback round",
    when: "for a group in which every receiver is ours (steadycast receive)",
    source: "RFC 4654; Widmer, Handley (SIGCOMM 2001)",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Clocked,
    // With feedback every 250 ms, the rate was only 0.01 to 0.16 times the rate with the controller's own reports
    // (`crates/remote/tests/all/matrix.rs`).
    slowest_feedback: Span::millis(100),
    standard_reports: false,
    own_rate: true,
    extension: message::NOTICE_ID,
    answers_marks: true,
    app: *b"TFMC",
    colour: "#1f77b4",
    dashes: &[6.0, 2.0],
    params: PARAMS,
    promises: &[&RISE],
    sender: |setup, values| Box::new(sender::Sender::new(setup, values)),
    receiver: |setup, values| Box::new(receiver::Receiver::new(setup, values)),
    ..crate::fixed::CONTROLLER
};

/// After a round in which no round-trip time exceeded R_max, R_max is multiplied by this factor (RFC 4654, section
/// 3.2).
const R_MAX_DECAY: f64 = 0.9;
/// Granularity of the clock. R_max exceeds the packet interval by at least this (RFC 4654, section 3.2).
const GRANULARITY: Span = Span::millis(1);
/// Weight of the old value in the smoothed round-trip time, except at the limiting receiver (RFC 4654, section 4.3.2).
const Q_OTHER: f64 = 0.5;
/// Duration over which the receive rate is measured, in round trips (RFC 4654, section 4.3.4).
const K: f64 = 3.0;
/// Minimum factor by which older loss intervals are discounted (RFC 4654, section 5.5).
const DISCOUNT: f64 = 0.5;
/// The minimum rate is one packet per this time (RFC 4654, section 3.3).
const X_MIN: Span = Span::secs(8);
/// Duration of the first feedback round in a quick start, in round trips. It is short, so that reports come early.
const FIRST_ROUND: f64 = 2.0;

const RISE: Promise = Promise {
    id: "tfmcc.a-packet-per-round",
    about: "outside slow start the rate rises by at most one packet per R_max in each R_max (RFC 4654, 2.2)",
};

params! {
    /// The configuration of `tfmcc`, computed from its parameters.
    Config(values) {
        let choice profile:
            "the feedback timers and filters: those of RFC 4654, of the 2001 paper's implementation, or of NORM's",
            "RFC 4654; SIGCOMM 2001; NRL NORM", ["rfc4654"; 2], &["rfc4654", "sigcomm2001", "norm"];
        let choice start:
            "rfc: the start of RFC 4654; quick: the first measured round-trip time replaces the assumed r_max, the \
             first feedback round is short, and slow start begins with TCP's initial window",
            "Steadycast; RFC 5348, 4.2", ["quick", "rfc"], &["quick", "rfc"];
        span r_max: "the assumed largest round-trip time of all receivers before the first measurement",
            "RFC 4654, 3.1", [Span::millis(500); 2], [Span::millis(10), Span::secs(10)];
        number round:
            "the length of a feedback round, as a multiple of the largest round-trip time of all receivers (4 is \
             enough if the receivers get each other's reports)",
            "RFC 4654, 3.4", [6.0; 2], [1.0, 50.0];
        number g:
            "after a report, receivers whose rate is above the reported rate less this share of it do not report in \
             this round",
            "RFC 4654, 3.4", [0.1; 2], [0.0, 0.9];
        number receivers: "the number of receivers N up to which the random timers spread their reports",
            "RFC 4654, 4.5", [10_000.0; 2], [2.0, 1e7];
    } {
        profile: Profile = match profile {
            "sigcomm2001" => Profile::Sigcomm2001,
            "norm" => Profile::Norm,
            _ => Profile::Rfc4654,
        },
        quick: bool = start == "quick",
        /// Weight of the old value in the smoothed round-trip time at the limiting receiver (RFC 4654, section 4.3.2).
        q_clr: f64 = if profile == Profile::Sigcomm2001 { 0.95 } else { 0.9 },
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Profile {
    #[default]
    Rfc4654,
    Sigcomm2001,
    Norm,
}

impl Config {
    /// Returns the duration of a feedback round. `first` is true for the round before any measurement.
    fn round(&self, r_max: Span, first: bool) -> Span {
        r_max.scale(if self.quick && first { self.round.min(FIRST_ROUND) } else { self.round })
    }
}
