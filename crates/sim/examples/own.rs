//! Simulates a user-defined controller that competes with TCP: `cargo run --release -p steadycast-sim --example own`.

use std::error::Error;
use std::path::Path;
use steadycast_control::registry::{Controller, FeedbackTiming, Param, Receivers, Registry, TEMPLATE};
use steadycast_control::{Arrival, Body, Decision, Limit, ReceiverHalf, Reply, Report, SenderHalf, Sent, Slot, Why};
use steadycast_scenario::Document;
use steadycast_sim::{Inputs, Simulation};
use steadycast_units::Rate;

/// Describes the controller: its name in scenarios, its parameters, and how its sender part and its receiver part are
/// created.
static HALVING: Controller = Controller {
    name: "halving",
    about: "halves its rate with each report of a loss, and raises it by a step with each other one",
    source: "own",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Periodic,
    standard_reports: false,
    app: *b"HALV",
    params: &[Param::rate("step", "by how much", "own", [Rate::kbps(50); 2], [Rate::bps(1), Rate::mbps(1)])],
    sender: |setup, values| {
        let (step, floor, cap) = (values.rate("step").unwrap_or(Rate::ZERO), setup.floor, setup.cap);
        Box::new(Halving { rate: Rate::kbps(400).min(cap), step, floor, cap })
    },
    receiver: |_, _| Box::new(Counting),
    ..TEMPLATE
};

struct Halving {
    rate: Rate,
    step: Rate,
    floor: Rate,
    cap: Rate,
}

impl SenderHalf for Halving {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_report(&mut self, report: &Report<'_>) {
        // The body comes from the network. Ignore it if it has another length, because it is then invalid.
        let Some(&[0, 0, 0, lost]) = report.body.map(|body| &body.bytes[..]) else { return };
        let rate = if lost > 0 { self.rate.scale(0.5) } else { self.rate + self.step };
        self.rate = rate.max(self.floor).min(self.cap);
    }

    fn decision(&self) -> Decision {
        let why = Why::rule("halved or raised by a step");
        Decision { target: self.rate, pacing: self.rate, window: None, limit: Limit::Network, why }
    }
}

struct Counting;

impl ReceiverHalf for Counting {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}

    fn report(&mut self, slot: &Slot) -> Reply {
        Reply::Body(Body { subtype: 1, bytes: vec![0, 0, 0, slot.lost.clamp(0, 255) as u8] })
    }
}

const SCENARIO: &str = r#"
duration = "60s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "2Mbps", delay = "20ms", queue = { limit = "50kB" } }
[[flow]]
name = "video"
kind = "video"
controller = "halving"
params.halving.step = "20kbps"
media = "greedy"
[[flow]]
name = "tcp"
kind = "tcp"
"#;

/// Runs the scenario. Returns each flow's name and the throughput at its receiver in bit/s.
pub(crate) fn run() -> Result<Vec<(String, f64)>, Box<dyn Error>> {
    let registry = Registry::default().with(&HALVING);
    let loaded = Document::parse(SCENARIO, Path::new("own.toml"))?.check_with(registry)?;
    let mut simulation = Simulation::build(&loaded.scenario, &Inputs::default())?;
    let complete = simulation.run(|_| true);
    let summary = simulation.summary(complete);
    let flows = summary["flows"].as_array().into_iter().flatten();
    let got = |flow: &serde_json::Value| Some((flow["name"].as_str()?.to_owned(), flow["throughput_bps"].as_f64()?));
    Ok(flows.filter_map(got).collect())
}

#[allow(dead_code, reason = "a test runs it by itself")]
fn main() -> Result<(), Box<dyn Error>> {
    for (name, bps) in run()? {
        println!("{name}: {:.2} Mb/s", bps / 1e6);
    }
    Ok(())
}
