//! `pgmcc`: a congestion window for a multicast group (Rizzo, SIGCOMM 2000; draft-ietf-rmt-bb-pgmcc).
//!
//! The receiver with the lowest throughput, the acker, acknowledges every packet. The sender applies the rules of TCP's
//! window to these acknowledgments. `docs/controllers/pgmcc.md` has the equations and deviations.

mod message;
mod receiver;
mod sender;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, params};
use steadycast_units::Span;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "pgmcc",
    about: "the receiver with the lowest throughput acknowledges each packet, and the sender runs TCP's window on \
            these acknowledgments",
    when: "for a group beside BBR in a deep drop-tail queue",
    source: "Rizzo (SIGCOMM 2000); draft-ietf-rmt-bb-pgmcc-03",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Clocked,
    // With feedback every 250 ms, the rate fell to 0.26 times the rate with the controller's own reports
    // (`crates/remote/tests/all/matrix.rs`).
    slowest_feedback: Span::millis(100),
    standard_reports: false,
    extension: message::NOTICE_ID,
    app: *b"PGMC",
    colour: "#9467bd",
    params: PARAMS,
    promises: &[&WITHIN],
    sender: |setup, values| Box::new(sender::Sender::new(setup, values)),
    receiver: |setup, values| Box::new(receiver::Receiver::new(setup, values)),
    ..crate::fixed::CONTROLLER
};

const WITHIN: Promise = Promise {
    id: "pgmcc.within-window",
    about: "the number of packets in flight is at most the window plus three packets that may be lost but are not yet \
            detected as lost",
};

const DRAFT: &str = "draft-ietf-rmt-bb-pgmcc-03";

/// Number of consecutive timeouts after which the acker is dropped (draft-ietf-rmt-bb-pgmcc).
const ELECT_AFTER: u32 = 2;
/// Number of later acknowledgments after which a missing packet counts as lost (draft-ietf-rmt-bb-pgmcc).
const DUP_THRESHOLD: u32 = 3;
/// Minimum retransmission timeout, as in ns-2.35. RFC 6298 has 1 s.
const RTO_MIN: Span = Span::millis(200);
/// Maximum random delay before a receiver answers "report now". The first answer then suppresses the others. This rule
/// is not in the draft.
const BACKOFF: Span = Span::millis(100);

params! {
    /// The configuration of `pgmcc`, computed from its parameters.
    Config(values) {
        number a_loss: "the weight of a new packet in a receiver's smoothed loss rate (in the 2000 paper 536/65536)",
            DRAFT, [500.0 / 65_536.0; 2], [1e-5, 1.0];
        number c_switch:
            "another receiver replaces the acker if its estimated throughput is below this share of the acker's",
            DRAFT, [0.75; 2], [0.05, 1.0];
        let choice rank:
            "the estimate of a receiver's throughput; full: TCP's equation with time-outs; sqrt: the square-root law",
            "draft-ietf-rmt-bb-pgmcc-03; ASMP's paper, eq. 23", ["full"; 2], &["full", "sqrt"];
        number ssthresh:
            "the slow-start threshold in packets; up to this window, each acknowledgment adds one packet to it",
            DRAFT, [4.0; 2], [1.0, 64.0];
        span nak_backoff:
            "in a group, the longest time that a receiver waits before it reports a missing packet, so that another \
             receiver's report can suppress its own; with 0 it reports immediately",
            "draft-ietf-rmt-bb-pgmcc-03 (NAK suppression); RFC 3208; ASMP's paper has none",
            [Span::millis(500), Span::ZERO], [Span::ZERO, Span::secs(10)];
        number pacing: "the highest pacing rate, as a multiple of one window per round trip",
            "Steadycast", [2.0; 2], [1.0, 64.0];
    } {
        sqrt: bool = rank == "sqrt",
        /// Whether the window grows only while it is fully used (RFC 7661). The draft has no such rule.
        only_used: bool = values.mode() == Mode::Repaired,
    }
}
