//! `steady`: a controller that is fair beside TCP, and keeps the queue empty where no other flow fills it.
//!
//! ```text
//!            queue                 experiments, losses or marks show other flows
//!  START ───────────▶ DELAY ────────────────────────────────────────────────────▶ COMPETE
//!    │                  ▲                                                            │
//!    │ loss             └──── the queue empties, or is its own ──────────────────────┘
//!    └──────────────────────────────────────────────────────────────────────────────▶
//! ```
//!
//! A sender can't see whether an elastic flow, such as TCP, shares its queue. As an experiment, it lowers its rate by a
//! third. The queue then drains, unless a TCP flow fills it. Until an experiment shows such a flow, [`delay`] keeps a
//! packet or two in the queue. After that, [`compete`] runs a paced CUBIC window (RFC 9438). While L4S packets are
//! marked, [`scalable`] decides. `docs/controllers/steady.md` has the rules.
//!
//! Dependencies: [`packet`] ← [`trains`] ← [`signals`] ← [`law_input`] ← the laws [`delay`], [`compete`],
//! [`scalable`] (with [`verdict`]) ← [`law`] ← [`sender`].
//!
//! Times are in seconds and rates in bit/s. Delays are relative to the base delay. A constant without a source is a
//! choice of this project.

mod compete;
mod delay;
mod law;
mod law_input;
mod packet;
mod scalable;
mod sender;
mod signals;
#[cfg(test)]
mod tests;
mod trains;
mod verdict;

use crate::entry::{Controller, FeedbackTiming, Receivers, params};
use crate::report_scheduler::ReportScheduler;
use crate::{Need, Promise, Wake};
use steadycast_units::{Ecn, Span};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "steady",
    about: "keeps the queue almost empty if no other flow fills it, and takes the share of a CUBIC flow if one does",
    when: "for one receiver; it is the default",
    source: "Steadycast; RFC 9438 beside TCP",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    needs: |_| &[Need::PacketReports],
    standard_reports: false,
    answers_marks: true,
    app: *b"STDY",
    colour: "#00798c",
    params: PARAMS,
    promises: &[&DELAY, &TWICE],
    sender: |setup, values| Box::new(sender::Sender::new(setup, Config::new(setup, values))),
    receiver: |setup, values| {
        let config = Config::new(setup, values);
        Box::new(ReportScheduler::new(move |since| {
            let at = since.last + config.report_after(since.bytes.as_f64());
            Wake { at, why: "report interval" }
        }))
    },
    ..crate::fixed::CONTROLLER
};

/// The minimum rate in bit/s, unless the session's maximum rate is lower.
const RATE_MIN: f64 = 10_000.0;
/// The rate is halved if no feedback arrives for this time, in seconds (RFC 8083).
const FEEDBACK_TIMEOUT_MIN: f64 = 0.5;
/// The same timeout as a number of round trips. The longer of both timeouts applies.
const FEEDBACK_TIMEOUT_RTTS: f64 = 4.0;

const DELAY: Promise = Promise {
    id: "steady.delay-never-rises",
    about: "in the state DELAY, the rate does not rise while the queueing delay is above twice the target; \
            but the rate for the source may alternate around it by 15 %",
};
const TWICE: Promise = Promise {
    id: "steady.at-most-twice",
    about: "in the state COMPETE, the rate is at most four packets per round trip above the higher of two rates: twice \
            the arriving rate (if the source pauses, twice the rate at which its bursts arrive), and the rate that the \
            last experiment gave up",
};

params! {
    /// The configuration of `steady`. Times are in seconds.
    Config(values, setup) {
        secs report_every:
            "the interval between two reports of the receiver, if report_bytes have arrived since the last report",
            "Steadycast; RFC 3550, 6.2", [Span::millis(25); 2], [Span::millis(5), Span::secs(1)];
        secs report_most: "the longest interval between two reports of the receiver while packets arrive",
            "Steadycast", [Span::millis(100); 2], [Span::millis(5), Span::secs(1)];
        number report_bytes:
            "the bytes that must arrive between two reports for the interval report_every; with the default, reports \
             are at most 5 % of the arriving data",
            "Steadycast; RFC 3550, 6.2", [2_000.0; 2], [0.0, 100_000.0];
        number start: "the sending rate at the start, in bit/s", "Steadycast", [300_000.0; 2], [10_000.0, 1e7];
        secs target_floor: "the part of the target queueing delay that allows for noise in the measured delay",
            "Steadycast", [Span::millis(2); 2], [Span::ZERO, Span::secs(1)];
        number target_packets: "the number of packets that each flow keeps in the queue in the state DELAY",
            "Copa", [1.75; 2], [0.1, 20.0];
        number yield_to: "the share of the rate that is still sent while an experiment tests whether the queue empties",
            "Steadycast", [0.65; 2], [0.1, 1.0];
        number equation:
            "while CUBIC grows as Reno does, the window is at most this multiple of the window of TCP's equation at \
             the measured loss",
            "Steadycast; RFC 5348, 3.1", [1.25; 2], [0.5, 100.0];
        number train_packets:
            "the minimum number of packets in a train, a burst that measures the path; with 1, no trains are sent",
            "Steadycast", [4.0; 2], [1.0, 64.0];
        number pacing: "the pacing rate of a frame's packets as a multiple of the rate, except in the state DELAY",
            "Steadycast", [1.25; 2], [1.0, 10.0];
    } {
        /// The packet size, in bits.
        bits: f64 = 8.0 * setup.packet.as_f64().max(1.0),
        /// The session's maximum rate, in bit/s.
        cap: f64 = setup.cap.as_bps_f64(),
        /// Whether packets are sent as L4S packets, which have ECT(1).
        l4s: bool = setup.ecn == Ecn::Ect1,
        /// Whether the source sends video frames. Set when the first frame is queued.
        frames: bool = false,
        /// Whether the session sends trains.
        probes: bool = setup.probes,
    }
}

impl Config {
    /// Returns how long after the last report the receiver sends the next report. `bytes` is the number of bytes that
    /// have arrived since the last report. The short interval is used if a report is then at most 5 % of these bytes
    /// (RFC 3550, section 6.2).
    fn report_after(&self, bytes: f64) -> Span {
        let enough = bytes >= self.report_bytes;
        Span::from_secs_f64(if enough { self.report_every } else { self.report_most })
    }
}
