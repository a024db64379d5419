//! `gcc`: Google congestion control, at the sender, as libwebrtc has it.
//!
//! The receiver tells of each packet when it arrived. A trend of the delay says whether a queue grows; the rate by
//! delay rises until one does and then goes below what came through. A model of loss bounds it, probes shorten the
//! way up. `docs/controllers/gcc.md` has the equations and the deviations.

mod acknowledged;
mod aimd;
mod alr;
mod arrivals;
mod constants;
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
use steadycast_units::{Bytes, PeerTime, Rate, Time};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "gcc",
    about: "the trend of the delay and a model of loss, at the sender, with probes: as libwebrtc has it",
    when: "for low delay where no other flow fills the queue, as calls have it; beside CUBIC at drop-tail it starves",
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
    receiver: |setup, _| Box::new(receiver::Receiver::new(setup)),
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
    Param::switch(
        "probes",
        "short bursts at a rate of their own: at the start, while the application limits the rate, after a large drop",
        "libwebrtc, probe_controller.cc",
        [true, true],
    ),
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
        "the encoder gets less while more is under way than the target carries in a round trip and 350 ms",
        "libwebrtc, congestion_window_pushback_controller.cc",
        [true, true],
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
            trend: trendline::Settings { k_up: values.number("k_up"), k_down: values.number("k_down") },
            aimd: aimd::Settings { start, floor, cap, beta: values.number("beta"), eta: values.number("eta") },
            loss: loss_v1::Settings { start, floor, cap },
            probes: probes::Settings {
                enabled: values.switch("probes"),
                alr: values.switch("alr_probes"),
                most: values.rate("most_probe").unwrap_or(cap).min(cap),
                start,
            },
        }
    }
}

/// No rate is below this (libwebrtc, `bwe_defines.h`).
const LEAST: Rate = Rate::kbps(5);
