//! `gcc`: Google congestion control. It runs at the sender and is modelled on libwebrtc.
//!
//! The delay-based estimate falls if the trend of the delay shows that a queue grows. A loss model limits the estimate.
//! Probes make it rise faster. `docs/controllers/gcc.md` has the equations and the differences from libwebrtc.

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

use crate::entry::{Controller, FeedbackTiming, Receivers, Setup, Values, params};
use crate::report_scheduler::ReportScheduler;
use crate::{Need, ReceiverHalf, Wake};
use constants::{FEEDBACK_MAX, FEEDBACK_MIN, MOST_PROBE};
use steadycast_units::{Bytes, PeerTime, Rate, Time};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "gcc",
    about: "libwebrtc's congestion control: the sender estimates the rate from the trend of the delay, a loss model \
            and probes",
    when: "for low delay if no other flow fills the queue, and to compare with WebRTC calls; beside CUBIC in a \
           drop-tail queue it starves",
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
    receiver,
    ..crate::fixed::CONTROLLER
};

/// Size of a report as an IP packet (libwebrtc, `transport_sequence_number_feedback_generator.cc`).
const REPORT: Bytes = Bytes::new(68);
/// Share of the session bandwidth that reports may use (from the same file).
const SHARE: f64 = 0.05;

/// Builds the receiver part. It sends a report after the first packet, and then at regular intervals.
fn receiver(setup: &Setup, _: &Values) -> Box<dyn ReceiverHalf> {
    let interval = REPORT.at(setup.session_bandwidth.scale(SHARE)).min(FEEDBACK_MAX).max(FEEDBACK_MIN);
    Box::new(ReportScheduler::new(move |since| Wake {
        at: (since.last + interval).max(since.at),
        why: "feedback interval",
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    sent: Time,
    arrived: PeerTime,
    size: Bytes,
    probe: Option<u32>,
}

params! {
    /// The configuration of `gcc`, computed from its parameters.
    Config(values, setup) {
        let rate start: "the sending rate before the first feedback", "libwebrtc, bitrate_settings.h",
            [Rate::kbps(300); 2], [Rate::kbps(5), Rate::mbps(1_000)];
        let choice loss:
            "the loss-based estimator; v1: by the fraction of lost packets; v2: by a model of the path's loss, and by \
             v1 until the model has enough data",
            "libwebrtc, loss_based_bwe_v2.cc; send_side_bandwidth_estimation.cc", ["v2"; 2], &["v2", "v1"];
        switch probes:
            "whether the sender measures the path with probes, which are short bursts above the target rate: at the \
             start, while the application limits the rate, and after a large fall of the estimate",
            "libwebrtc, probe_controller.cc", [true; 2];
        number pacing: "the pacing rate as a multiple of the target rate",
            "libwebrtc, goog_cc_network_control.cc", [2.5; 2], [1.0, 20.0];
        switch pushback:
            "whether the encoder's rate is reduced while more data is in flight than the target rate carries in a \
             round trip plus 350 ms",
            "libwebrtc, congestion_window_pushback_controller.cc", [true; 2];
    } {
        cap: Rate = setup.cap,
        floor: Rate = setup.floor.max(LEAST).min(cap),
        v2: bool = loss == "v2",
        start: Rate = start.unwrap_or(floor).clamp(floor, cap),
        most_probe: Rate = MOST_PROBE.min(cap),
    }
}

/// Lower limit of all rates (libwebrtc, `bwe_defines.h`).
const LEAST: Rate = Rate::kbps(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::registry::Chosen;
    use steadycast_units::Seed;

    /// Returns the configuration for a session with a floor of 5 kb/s and a cap of 30 Mb/s.
    pub(super) fn config() -> Config {
        let chosen = Chosen::new("gcc", Mode::Repaired, &[]).unwrap();
        let setup = Setup::unicast(Rate::kbps(5), Rate::mbps(30), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }
}
