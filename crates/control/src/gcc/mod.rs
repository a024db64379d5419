//! `gcc`: Google congestion control, at the sender, as libwebrtc has it.
//!
//! The receiver tells of each packet when it arrived. A trend of the delay says whether a queue grows; the rate by
//! delay rises until one does and then goes below what came through. A model of loss bounds it, probes shorten the
//! way up. `docs/controllers/gcc.md` has the equations and the deviations.

mod acknowledged;
mod aimd;
mod alr;
mod arrivals;
mod delay;
mod loss_v1;
mod loss_v2;
mod probes;
mod pushback;
mod receiver;
mod sender;
mod trendline;

use crate::Need;
use crate::entry::{Controller, FeedbackTiming, Kind, Param, Receivers, Setup, Values};
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "gcc",
    about: "the trend of the delay and a model of loss, at the sender, with probes: as libwebrtc has it",
    source: "libwebrtc, goog_cc; draft-ietf-rmcat-gcc-02; Carlucci et al. (MMSys 2016)",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    needs: |values| if values.switch("probes") { &[Need::PacketReports, Need::Probes] } else { &[Need::PacketReports] },
    standard_reports: false,
    app: *b"GCC ",
    colour: "#b8860b",
    dashes: &[8.0, 2.0, 2.0, 2.0],
    params: PARAMS,
    sender: |setup, values| Box::new(sender::Sender::new(&Config::new(setup, values))),
    receiver: |setup, values| Box::new(receiver::Receiver::new(setup, values)),
    ..crate::fixed::CONTROLLER
};

/// A packet that arrived, as far as the estimators are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    sent: Time,
    arrived: PeerTime,
    size: Bytes,
    /// The probe that it belonged to.
    probe: Option<u32>,
}

const fn rate(name: &'static str, about: &'static str, source: &'static str, of: Rate, range: [Rate; 2]) -> Param {
    Param { name, about, source, kind: Kind::Rate { default: of, paper: of, min: range[0], max: range[1] } }
}

const fn number(name: &'static str, about: &'static str, source: &'static str, of: f64, range: [f64; 2]) -> Param {
    Param::number(name, about, source, [of, of], range)
}

const fn span(name: &'static str, about: &'static str, source: &'static str, of: Span, range: [Span; 2]) -> Param {
    Param::span(name, about, source, [of, of], range)
}

const PARAMS: &[Param] = &[
    rate(
        "start",
        "the rate before any feedback",
        "libwebrtc, bitrate_settings.h",
        Rate::kbps(300),
        [Rate::kbps(5), Rate::mbps(1_000)],
    ),
    Param::choice(
        "loss",
        "v2: a model of loss, with v1 until it is ready; v1: by the fraction of lost packets",
        "libwebrtc, loss_based_bwe_v2.cc; send_side_bandwidth_estimation.cc",
        ["v2", "v2"],
        &["v2", "v1"],
    ),
    Param::choice(
        "throughput",
        "what comes through: robust, from a window of packets; bayesian, a filter of samples of 150 ms",
        "libwebrtc, robust_throughput_estimator.cc; bitrate_estimator.cc",
        ["robust", "robust"],
        &["robust", "bayesian"],
    ),
    number(
        "points",
        "groups of packets over which the slope of the delay is taken",
        "libwebrtc, trendline_estimator.h",
        20.0,
        [3.0, 200.0],
    ),
    number("smoothing", "weight of the old smoothed delay", "libwebrtc, trendline_estimator.cc", 0.9, [0.0, 0.999]),
    number(
        "gain",
        "what the slope, times the groups so far (60 at most), is multiplied with before it meets the threshold",
        "libwebrtc, trendline_estimator.cc",
        4.0,
        [0.1, 100.0],
    ),
    number("threshold", "the threshold at first", "libwebrtc, trendline_estimator.cc", 12.5, [6.0, 600.0]),
    number(
        "k_up",
        "how fast the threshold follows a steeper slope, per millisecond (the draft's 0.01 belongs to its own filter)",
        "libwebrtc, trendline_estimator.cc",
        0.0087,
        [0.0, 1.0],
    ),
    number(
        "k_down",
        "how fast it follows a flatter one, per millisecond (the draft: 0.00018)",
        "libwebrtc, trendline_estimator.cc",
        0.039,
        [0.0, 1.0],
    ),
    span(
        "overuse",
        "how long the slope has to be above the threshold",
        "libwebrtc, trendline_estimator.cc",
        Span::millis(10),
        [Span::ZERO, Span::secs(1)],
    ),
    number(
        "beta",
        "the share of what came through to which overuse lowers the rate",
        "libwebrtc, aimd_rate_control.cc",
        0.85,
        [0.5, 0.99],
    ),
    number(
        "eta",
        "factor of the rise in a second while the capacity is not known",
        "libwebrtc, aimd_rate_control.cc",
        1.08,
        [1.0, 2.0],
    ),
    number(
        "low_loss",
        "v1: up to this fraction of lost packets the rate rises",
        "libwebrtc, send_side_bandwidth_estimation.cc",
        0.02,
        [0.0, 1.0],
    ),
    number("high_loss", "v1: above this one it falls", "libwebrtc, send_side_bandwidth_estimation.cc", 0.1, [0.0, 1.0]),
    span(
        "silence",
        "a round trip, or a silence while sending, that is longer takes a fifth off the rate in each second",
        "libwebrtc, RttBasedBackoff",
        Span::secs(3),
        [Span::millis(100), Span::secs(60)],
    ),
    Param::switch(
        "probes",
        "short bursts at a rate of their own: at the start, while the application limits the rate, after a large drop",
        "libwebrtc, probe_controller.cc",
        [true, true],
    ),
    number(
        "first_probe",
        "the first probe's rate, as a multiple of the start rate",
        "libwebrtc, probe_controller.cc",
        3.0,
        [1.0, 20.0],
    ),
    number("second_probe", "the second one's", "libwebrtc, probe_controller.cc", 6.0, [1.0, 40.0]),
    rate(
        "most_probe",
        "no probe is faster than this, nor than the session's cap",
        "libwebrtc, probe_controller.cc",
        Rate::mbps(5),
        [Rate::kbps(10), Rate::mbps(1_000)],
    ),
    Param::switch(
        "alr_probes",
        "while the application limits the rate, a probe at twice the estimate each 5 s",
        "libwebrtc, probe_controller.cc",
        [true, true],
    ),
    number(
        "pacing",
        "packets leave at this multiple of the target",
        "libwebrtc, goog_cc_network_control.cc",
        2.5,
        [1.0, 20.0],
    ),
    Param::switch(
        "pushback",
        "the encoder gets less while more is under way than the target carries in a round trip and queue_time",
        "libwebrtc, congestion_window_pushback_controller.cc",
        [true, true],
    ),
    span(
        "queue_time",
        "of the pushback: time in queues that is let be",
        "libwebrtc, rate_control_settings.cc (QueueSize)",
        Span::millis(350),
        [Span::ZERO, Span::secs(10)],
    ),
    span(
        "feedback_min",
        "least time between reports; in between 68 bytes at 5 % of the session bandwidth decide",
        "libwebrtc, transport_sequence_number_feedback_generator.cc",
        Span::millis(50),
        [Span::millis(5), Span::secs(1)],
    ),
    span(
        "feedback_max",
        "longest time between reports while packets come",
        "libwebrtc, transport_sequence_number_feedback_generator.cc",
        Span::millis(250),
        [Span::millis(5), Span::secs(5)],
    ),
];

/// What the sender is built from: the parameters, sorted by who takes them.
#[derive(Clone, Copy, Debug)]
struct Config {
    floor: Rate,
    cap: Rate,
    v2: bool,
    bayesian: bool,
    pacing: f64,
    pushback: bool,
    queue_time: Span,
    trend: trendline::Settings,
    aimd: aimd::Settings,
    loss: loss_v1::Settings,
    probes: probes::Settings,
}

impl Config {
    fn new(setup: &Setup, values: &Values) -> Self {
        let cap = setup.cap;
        let floor = setup.floor.max(LEAST).min(cap);
        let start = values.rate("start").unwrap_or(floor).clamp(floor, cap);
        Self {
            floor,
            cap,
            v2: values.choice("loss") == "v2",
            bayesian: values.choice("throughput") == "bayesian",
            pacing: values.number("pacing"),
            pushback: values.switch("pushback"),
            queue_time: values.span("queue_time"),
            trend: trendline::Settings {
                points: values.number("points") as usize,
                smoothing: values.number("smoothing"),
                gain: values.number("gain"),
                threshold: values.number("threshold"),
                k_up: values.number("k_up"),
                k_down: values.number("k_down"),
                overuse: values.span("overuse"),
            },
            aimd: aimd::Settings { start, floor, cap, beta: values.number("beta"), eta: values.number("eta") },
            loss: loss_v1::Settings {
                start,
                floor,
                cap,
                low: values.number("low_loss"),
                high: values.number("high_loss"),
                silence: values.span("silence"),
            },
            probes: probes::Settings {
                enabled: values.switch("probes"),
                first: values.number("first_probe"),
                second: values.number("second_probe"),
                alr: values.switch("alr_probes"),
                most: values.rate("most_probe").unwrap_or(cap).min(cap),
                start,
            },
        }
    }
}

/// No rate is below this (libwebrtc, `bwe_defines.h`).
const LEAST: Rate = Rate::kbps(5);
