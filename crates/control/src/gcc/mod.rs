//! `gcc`: Google congestion control at the sender, after libwebrtc.
//!
//! The receiver reports the arrival of each packet. The delay-based estimate rises until the delay trend indicates a
//! growing queue, then falls below the acknowledged rate. A loss model limits the estimate, and probes shorten the
//! increase. `docs/controllers/gcc.md` has the equations and the deviations.

mod aimd;
mod alr;
mod constants;
mod delay;
mod inter_arrival;
mod loss_v1;
mod loss_v2;
mod probes;
mod pushback;
mod robust_throughput;
mod sender;
mod trendline;

use crate::entry::{Controller, FeedbackTiming, FormerParam, Receivers, Setup, Value, Values, params};
use crate::report_scheduler::ReportScheduler;
use crate::{Need, ReceiverHalf, Wake};
use constants::{BETA, ETA, FEEDBACK_MAX, FEEDBACK_MIN, K_DOWN, K_UP, MOST_PROBE};
use steadycast_units::{Bytes, PeerTime, Rate, Time};

/// The registry entry of `gcc`.
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
    former: &[
        FormerParam::new("k_up", Value::Number(K_UP), "libwebrtc, trendline_estimator.cc"),
        FormerParam::new("k_down", Value::Number(K_DOWN), "libwebrtc, trendline_estimator.cc"),
        FormerParam::new("beta", Value::Number(BETA), "libwebrtc, aimd_rate_control.cc"),
        FormerParam::new("eta", Value::Number(ETA), "libwebrtc, aimd_rate_control.cc"),
        FormerParam::new("most_probe", Value::Rate(MOST_PROBE), "libwebrtc, probe_controller.cc"),
        FormerParam::new("alr_probes", Value::Switch(true), "libwebrtc, probe_controller.cc"),
    ],
    sender: |setup, values| Box::new(sender::Sender::new(&Config::new(setup, values))),
    receiver,
    ..crate::fixed::CONTROLLER
};

/// The IP size of a report, and the share of the session bandwidth for reports (libwebrtc,
/// `transport_sequence_number_feedback_generator.cc`).
const REPORT: Bytes = Bytes::new(68);
const SHARE: f64 = 0.05;

/// Builds the receiving half, which schedules a report after the first packet and then periodically while packets
/// arrive.
fn receiver(setup: &Setup, _: &Values) -> Box<dyn ReceiverHalf> {
    let interval = REPORT.at(setup.session_bandwidth.scale(SHARE)).min(FEEDBACK_MAX).max(FEEDBACK_MIN);
    Box::new(ReportScheduler::new(move |since| Wake {
        at: (since.last + interval).max(since.at),
        why: "feedback interval",
    }))
}

/// A packet that has arrived, as the estimators use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    sent: Time,
    arrived: PeerTime,
    size: Bytes,
    /// The identifier of its probe, if it belongs to one.
    probe: Option<u32>,
}

params! {
    /// The configuration of `gcc`, computed from its parameters.
    Config(values, setup) {
        let rate start: "the rate before any feedback", "libwebrtc, bitrate_settings.h",
            [Rate::kbps(300); 2], [Rate::kbps(5), Rate::mbps(1_000)];
        let choice loss: "v2: a model of loss, with v1 until it is ready; v1: by the fraction of lost packets",
            "libwebrtc, loss_based_bwe_v2.cc; send_side_bandwidth_estimation.cc", ["v2"; 2], &["v2", "v1"];
        switch probes:
            "short bursts at a rate of their own: at the start, \
             while the application limits the rate, after a large drop",
            "libwebrtc, probe_controller.cc", [true; 2];
        number pacing: "packets leave at this multiple of the target",
            "libwebrtc, goog_cc_network_control.cc", [2.5; 2], [1.0, 20.0];
        switch pushback:
            "the encoder gets less while more is under way than the target carries in a round trip and 350 ms",
            "libwebrtc, congestion_window_pushback_controller.cc", [true; 2];
    } {
        cap: Rate = setup.cap,
        floor: Rate = setup.floor.max(LEAST).min(cap),
        v2: bool = loss == "v2",
        start: Rate = start.unwrap_or(floor).clamp(floor, cap),
        most_probe: Rate = MOST_PROBE.min(cap),
    }
}

/// The minimum of all rates (libwebrtc, `bwe_defines.h`).
const LEAST: Rate = Rate::kbps(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::registry::Chosen;
    use steadycast_units::Seed;

    /// The configuration of a session from 5 kb/s to 30 Mb/s.
    pub(super) fn config() -> Config {
        let chosen = Chosen::new("gcc", Mode::Repaired, &[]).unwrap();
        let setup = Setup::unicast(Rate::kbps(5), Rate::mbps(30), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }
}
