//! MPEG-TFRCP: the rate is set once per control interval (Miyabayashi, Wakamiya, Murata, Miyahara: MPEG-TFRCP, 2001).
//!
//! After an interval with a loss, TCP's throughput equation gives the rate. After an interval without a loss, the rule
//! depends on the variant ([`Law`]). The loss rate is measured in the interval. The variants named `-cl` measure it in
//! the whole session.

mod message;
mod receiver;
mod sender;

use crate::entry::{
    Controller, Dashes, FeedbackTiming, Mode, Param, Receivers, SLOWEST_FEEDBACK, Setup, Values, params,
};
use crate::{ReceiverHalf, SenderHalf};
use receiver::Receiver;
use sender::Sender;
use steadycast_units::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    /// Doubles the rate: r ← 2 r (equation 2).
    Double,
    /// Increases the rate by MTU / RTT for each round trip in the interval I: r ← r + MTU · I / RTT² (equation 3).
    Additive,
    /// Takes a better quantizer: Q ← Q − 2, r ← rate(Q) (section III.B).
    Quantizer,
}

#[derive(Clone, Copy, Debug)]
struct Variant {
    law: Law,
    /// Whether the loss rate is measured in the whole session (equation 4). Otherwise it is measured in the last
    /// interval.
    cumulative: bool,
}

const fn entry(name: &'static str, about: &'static str, dashes: Dashes, params: &'static [Param]) -> Controller {
    Controller {
        name,
        about,
        when: "to repeat the experiments of its paper; of its five variants, the rate of tfrcp-qai-cl varies least",
        source: "Miyabayashi et al. 2001",
        receivers: Receivers::One,
        feedback: FeedbackTiming::Clocked,
        // The sender halves its rate after four reporting periods without a report. Standard reports come too rarely
        // for this.
        standard_reports: false,
        app: *b"MTFR",
        colour: "#8c564b",
        dashes,
        params,
        sender: original,
        receiver: |_, values| Box::new(Receiver::new(&Settings::read(values))) as Box<dyn ReceiverHalf>,
        slowest_feedback: SLOWEST_FEEDBACK,
        ..crate::fixed::CONTROLLER
    }
}

fn build(setup: &Setup, values: &Values, law: Law, cumulative: bool) -> Box<dyn SenderHalf> {
    Box::new(Sender::new(setup, values, Variant { law, cumulative }))
}

fn original(setup: &Setup, values: &Values) -> Box<dyn SenderHalf> {
    build(setup, values, Law::Double, false)
}

pub(crate) const TFRCP: Controller = entry("tfrcp", TFRCP_ABOUT, &[], RATE);
const TFRCP_ABOUT: &str = "sets the rate once per 32 round trips: to TCP's throughput after an interval with loss, to \
    twice the rate after one without";
pub(crate) const EAI: Controller = Controller {
    sender: |setup, values| build(setup, values, Law::Additive, false),
    ..entry("tfrcp-eai", EAI_ABOUT, &[6.0, 2.0], RATE)
};
const EAI_ABOUT: &str = "as tfrcp, but after an interval without loss the rate rises by one packet per round trip for \
    each round trip";
pub(crate) const QAI: Controller = Controller {
    sender: |setup, values| build(setup, values, Law::Quantizer, false),
    ..entry("tfrcp-qai", "as tfrcp, but after an interval without loss the quantizer falls by 2", &[2.0; 2], STEPS)
};
pub(crate) const EAI_CL: Controller = Controller {
    sender: |setup, values| build(setup, values, Law::Additive, true),
    ..entry("tfrcp-eai-cl", "as tfrcp-eai, but the loss is that of the whole session", &[8.0, 2.0, 2.0, 2.0], RATE_CL)
};
pub(crate) const QAI_CL: Controller = Controller {
    sender: |setup, values| build(setup, values, Law::Quantizer, true),
    ..entry("tfrcp-qai-cl", "as tfrcp-qai, but the loss is that of the whole session", &[4.0; 2], STEPS_CL)
};

/// Minimum of the retransmission timeout T₀ = srtt + 4 rttvar. The value is Linux's, because the paper gives none.
const RTO_MIN: Span = Span::millis(200);
/// Ratio of the pacing rate to the mean rate. If it were lower, large I frames would wait long. The paper has no such
/// ratio.
const PACE: f64 = 1.25;

params! {
    K = number k:
        "the length of a control interval in round trips, before it is rounded up to whole groups of pictures",
        "Miyabayashi et al., section II.A: 32; table I: 8 … 96", [32.0; 2], [1.0, 1024.0];
    ROUND = choice interval_round:
        "a control interval is rounded up to whole groups of pictures (gop), or to whole frames (frame)",
        "Miyabayashi et al., section II.A: GoP", ["gop"; 2], &["gop", "frame"];
    ACK = choice ack: "the receiver answers each sender report (report), or every packet (packet)",
        "Miyabayashi et al., section II.B: reports; section II.A (the paper's simulation): packets",
        ["report"; 2], &["report", "packet"];
    R0 = choice r0: "the rate at the start: that of the quantizer 60 (lowest), or the video's highest rate (highest)",
        "not in the paper, which says that a high first rate is the problem of EAI-CL",
        ["lowest"; 2], &["lowest", "highest"];
    CL_BRANCH = choice cl_branch:
        "the loss that decides whether the rate rises: that of the session (cumulative), or that of the last \
         interval (interval)",
        "open in the paper; its figure 11 needs the session's", ["cumulative"; 2], &["cumulative", "interval"];
}

/// Number of frames between two sender reports. Receivers answer a sender report immediately (section II.B).
const SR_FRAMES: f64 = 5.0;
/// The quantizer at the start (section III.B).
const FIRST_QUANTIZER: f64 = 60.0;
/// By how much the quantizer falls after an interval without loss (section III.B).
const QUANTIZER_STEP: f64 = 2.0;

const RATE: &[Param] = &[K, ROUND, ACK, R0];
const RATE_CL: &[Param] = &[K, ROUND, ACK, R0, CL_BRANCH];
const STEPS: &[Param] = &[K, ROUND, ACK];
const STEPS_CL: &[Param] = &[K, ROUND, ACK, CL_BRANCH];

#[derive(Clone, Copy, Debug)]
struct Settings {
    k: f64,
    by_frame: bool,
    per_packet: bool,
    /// Whether the receiver counts the packets between two sender reports (section II.B). Otherwise the cumulative
    /// counters in receiver reports are used. They remain correct if a report is lost.
    counts: bool,
}

impl Settings {
    fn read(values: &Values) -> Self {
        Self {
            k: values.number("k"),
            by_frame: values.choice("interval_round") == "frame",
            per_packet: values.choice("ack") == "packet",
            counts: values.mode() == Mode::Paper,
        }
    }
}
