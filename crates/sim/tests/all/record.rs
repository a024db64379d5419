//! The same scenario and seed give the same record: every scenario file's is pinned in `records.txt`, for debug and
//! release.
//!
//! A change of behaviour shows there as a changed line, and the lines below it say what changed: throughput, loss and
//! the 95th percentile of the delay of each flow, at its first receiver. To write it anew, or for a new scenario:
//! `STEADYCAST_PIN=1 cargo test -p steadycast-sim --test all record::`
//!
//! Clips are replaced by synthetic frame sizes. `examples/aimd.toml` is left out because its controller is written in
//! Python (`tests/determinism` covers Python controllers), and `cases/rfc8869` because its traces are generated in
//! Python. `q-7-2.toml` is pinned as built only, because its flows start later.

use crate::lab;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadycast_media::Ladder;
use steadycast_scenario::{Document, FlowKind};
use steadycast_sim::{Inputs, Simulation};

/// The duration of each run: long enough for all flows to meet, and short enough for a debug build.
const SECONDS: u32 = 8;

/// The folders of scenarios, read recursively.
const FOLDERS: [&str; 4] =
    ["scenarios", "papers/scenarios", "validation/scenarios", "python/steadycast/experiments/rfc8867"];

/// Returns all scenario files in and below a folder, sorted by name, the folder's files first.
fn scenarios(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("the folder is there").filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    let (folders, files): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| path.is_dir());
    let toml = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml"));
    // A network without flows sends nothing.
    let inner = folders.iter().filter(|inner| !inner.ends_with("networks"));
    toml.chain(inner.flat_map(|inner| scenarios(inner))).collect()
}

/// Formats a flow's line: what it sent, and what its first receiver got.
fn line(flow: &Value) -> String {
    let receiver = &flow["receivers"][0];
    let number = |value: &Value, factor: f64, digits: usize, unit: &str| match value.as_f64() {
        Some(x) => format!("{:.digits$} {unit}", x * factor),
        None => "-".to_owned(),
    };
    let by = ["controller", "congestion"].iter().find_map(|key| flow[key].as_str());
    format!(
        "  {} ({}) {}, loss {}, p95 {}",
        flow["name"].as_str().unwrap_or_default(),
        by.or(flow["kind"].as_str()).unwrap_or_default(),
        number(&receiver["throughput_bps"], 1e-3, 1, "kb/s"),
        number(&receiver["loss_frac"], 100.0, 2, "%"),
        number(&receiver["delay_ms"]["p95"], 1.0, 1, "ms"),
    )
}

/// Returns a ladder of synthetic frames: larger at I frames, smaller at coarser quantizers, different from frame to
/// frame.
fn ladder() -> Ladder {
    lab::ladder_of(|n| (if n.is_multiple_of(12) { 60_000 } else { 15_000 }) + n * 7919 % 5_000)
}

/// Formats the lines that only one of the two texts has: `-` for those of `pinned`, `+` for those of `records`.
fn changed_lines(pinned: &str, records: &str) -> String {
    let only_in = |text: &str, other: &str, sign: char| -> String {
        let others: BTreeSet<&str> = other.lines().collect();
        text.lines().filter(|line| !others.contains(line)).map(|line| format!("{sign} {line}\n")).collect()
    };
    only_in(pinned, records, '-') + &only_in(records, pinned, '+')
}

#[test]
fn the_same_scenario_and_seed_give_the_pinned_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files: Vec<_> = FOLDERS.iter().flat_map(|folder| scenarios(&root.join(folder))).collect();
    let ladder = Arc::new(ladder());
    let mut records = format!("# scenario, packet-hops in {SECONDS} s, record_sha256; a line per flow\n");
    for file in files {
        let mut document = Document::read(&file).expect("it is TOML");
        document.set(&format!("duration={SECONDS}s")).expect("a key");
        document.set("warmup=0s").expect("a key");
        let scenario = match document.check() {
            Ok(loaded) => loaded.scenario,
            Err(problems) => panic!("{}: {problems}", file.display()),
        };
        let videos = scenario.flows.iter().filter(|f| matches!(f.kind, FlowKind::Video(_)));
        let inputs =
            Inputs { ladders: videos.map(|f| (f.name.clone(), Arc::clone(&ladder))).collect(), ..Inputs::default() };
        let mut simulation = Simulation::build(&scenario, &inputs).expect("it can be built");
        assert!(simulation.run(|_| true), "{}", file.display());
        let summary = simulation.summary(true);
        assert_eq!(simulation.record().tree(true).into_json(), summary.to_string(), "{}", file.display());
        let name = file.strip_prefix(&root).unwrap_or(&file).display();
        let sha = summary["record_sha256"].as_str().unwrap_or_default();
        let _ = writeln!(records, "{name} {} {sha}", simulation.hops());
        for flow in summary["flows"].as_array().into_iter().flatten() {
            let _ = writeln!(records, "{}", line(flow));
        }
    }
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records.txt");
    if std::env::var_os("STEADYCAST_PIN").is_some() {
        fs::write(&pinned, &records).expect("it can be written");
    }
    let pinned = fs::read_to_string(&pinned).unwrap_or_default();
    let changes = changed_lines(&pinned, &records);
    assert!(pinned == records, "tests/records.txt must be written anew, or the change taken back:\n{changes}");
}
