//! Runs of small scenarios, and access to their results.

use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use steadycast_media::{Ladder, Scale};
use steadycast_scenario::{FlowKind, Scenario};
use steadycast_session::FrameKind;
use steadycast_sim::{Inputs, Simulation, Values};

/// The run of a scenario.
pub(crate) struct Run {
    pub(crate) simulation: Simulation,
    pub(crate) summary: Value,
}

/// A recorded packet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) at: f64,
    pub(crate) sent: bool,
    pub(crate) node: String,
    pub(crate) seq: i64,
    pub(crate) ce: bool,
    pub(crate) delay_ms: f64,
}

/// Returns frames of a constant size per quantizer, larger at I frames: 24,800/q kb/s at 25 frames per second.
pub(crate) fn ladder() -> Ladder {
    ladder_of(|n| if n.is_multiple_of(12) { 30_000 } else { 8_000 })
}

/// Returns 120 frames in groups of twelve. `size` returns a frame's size at the quantizer 1; coarser ones are smaller
/// in proportion.
pub(crate) fn ladder_of(size: fn(u32) -> u32) -> Ladder {
    let kinds: Vec<FrameKind> = (0..120).map(|n| if n % 12 == 0 { FrameKind::I } else { FrameKind::P }).collect();
    let size = |q: u8, n: u32| size(n) / u32::from(q);
    Ladder {
        fps: (25, 1),
        gop: 12,
        scale: Scale::Linear,
        quantizers: (2..=31).collect(),
        display: (0..120).collect(),
        sizes: (2..=31).map(|q| (0..120).map(|n| size(q, n)).collect()).collect(),
        kinds,
    }
}

pub(crate) fn scenario(text: &str) -> Scenario {
    match Scenario::parse(text, Path::new("test.toml")) {
        Ok(loaded) => loaded.scenario,
        Err(problems) => panic!("{problems}\n{text}"),
    }
}

pub(crate) fn build(scenario: &Scenario) -> Simulation {
    let ladder = Arc::new(ladder());
    let videos = scenario.flows.iter().filter(|f| matches!(f.kind, FlowKind::Video(_)));
    let ladders = videos.map(|f| (f.name.clone(), Arc::clone(&ladder))).collect();
    match Simulation::build(scenario, &Inputs { ladders, ..Inputs::default() }) {
        Ok(simulation) => simulation,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn run(text: &str) -> Run {
    let mut simulation = build(&scenario(text));
    assert!(simulation.run(|_| true));
    let summary = simulation.summary(true);
    Run { simulation, summary }
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().and_then(|l| l.iter().find(|v| v["name"] == name));
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

impl Run {
    pub(crate) fn flow(&self, name: &str) -> &Value {
        named(&self.summary["flows"], name)
    }
    pub(crate) fn receiver(&self, flow: &str, name: &str) -> &Value {
        named(&self.flow(flow)["receivers"], name)
    }
    /// Returns a direction's record; `None` if it carried nothing.
    pub(crate) fn link(&self, name: &str, direction: &str) -> Option<&Value> {
        self.summary["links"].as_array()?.iter().find(|l| l["name"] == name && l["direction"] == direction)
    }
    pub(crate) fn packets(&self, flow: &str) -> Vec<Row> {
        let table = self.simulation.table("packets").expect("a table");
        let column = |name: &str| table.get(name).unwrap_or_else(|| panic!("no {name}"));
        let real = |name: &str| if let Values::Real(v) = column(name) { v } else { panic!("{name} is not real") };
        let whole = |name: &str| if let Values::Whole(v) = column(name) { v } else { panic!("{name} is not whole") };
        let text = |name: &str| match column(name) {
            Values::Text { codes, texts } => (codes, texts),
            _ => panic!("{name} is no text"),
        };
        let (at, delay, seq, ecn) = (real("t_s"), real("owd_ms"), whole("seq"), whole("ecn"));
        let (flows, dirs, nodes) = (text("flow"), text("dir"), text("node"));
        let of = |(codes, texts): (&Vec<u32>, &Vec<String>), n: usize| texts[codes[n] as usize].clone();
        let Some(wanted) = flows.1.iter().position(|f| f == flow) else { return Vec::new() };
        (0..at.len())
            .filter(|n| flows.0[*n] as usize == wanted)
            .map(|n| Row {
                at: at[n],
                sent: of(dirs, n) == "s",
                node: of(nodes, n),
                seq: seq[n],
                ce: ecn[n] == 3,
                delay_ms: if delay[n].is_nan() { -1.0 } else { delay[n] },
            })
            .collect()
    }
    pub(crate) fn sent(&self, flow: &str) -> Vec<Row> {
        self.packets(flow).into_iter().filter(|r| r.sent).collect()
    }
    pub(crate) fn arrived(&self, flow: &str, node: &str) -> Vec<Row> {
        self.packets(flow).into_iter().filter(|r| !r.sent && r.node == node).collect()
    }
}

pub(crate) fn num(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[track_caller]
pub(crate) fn between(value: f64, low: f64, high: f64) {
    assert!(value >= low && value <= high, "{value} is not within {low} … {high}");
}

/// Returns a column of texts. An absent text is empty.
pub(crate) fn text(run: &Run, table: &str, name: &str) -> Vec<String> {
    match run.simulation.table(table).as_ref().and_then(|table| table.get(name)) {
        Some(Values::Text { codes, texts }) => {
            codes.iter().map(|c| texts.get(*c as usize).cloned().unwrap_or_default()).collect()
        }
        _ => panic!("no texts {name} in {table}"),
    }
}

/// Returns a column of real numbers.
pub(crate) fn real(run: &Run, table: &str, name: &str) -> Vec<f64> {
    match run.simulation.table(table).as_ref().and_then(|table| table.get(name)) {
        Some(Values::Real(values)) => values.clone(),
        _ => panic!("no numbers {name} in {table}"),
    }
}

/// Returns a column of whole numbers.
pub(crate) fn whole(run: &Run, table: &str, name: &str) -> Vec<i64> {
    match run.simulation.table(table).as_ref().and_then(|table| table.get(name)) {
        Some(Values::Whole(values)) => values.clone(),
        _ => panic!("no whole numbers {name} in {table}"),
    }
}

/// Returns the times and rules of the video's decisions.
pub(crate) fn rules(run: &Run) -> Vec<(f64, String)> {
    let table = run.simulation.table("decisions").expect("a table");
    match (table.get("t_s"), table.get("rule")) {
        (Some(Values::Real(at)), Some(Values::Text { codes, texts })) => {
            at.iter().zip(codes).map(|(at, code)| (*at, texts[*code as usize].clone())).collect()
        }
        _ => panic!("no times, or no rules"),
    }
}
