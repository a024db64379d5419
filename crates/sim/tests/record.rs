//! The same scenario and seed give the same record: every scenario file's is pinned in `records.txt`, for debug and release.
//!
//! A change of behaviour shows there as a changed line. To write it anew: `STEADYCAST_PIN=1 cargo test -p steadycast-sim --test record`

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadycast_media::{Ladder, Scale};
use steadycast_scenario::{Document, FlowKind};
use steadycast_session::FrameKind;
use steadycast_sim::{Inputs, Simulation};

/// Long enough for all flows to have met; the rest of a scenario would only be more of the same, at a debug build's pace.
const SECONDS: u32 = 8;

fn scenarios(root: &Path, folder: &str, into: &mut Vec<PathBuf>) {
    let mut found: Vec<PathBuf> = fs::read_dir(root.join(folder))
        .expect("the folder is there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    found.sort();
    into.append(&mut found);
}

/// Frames that need no pixels: larger at I frames, smaller at coarser quantizers, different from one to the next.
fn ladder() -> Ladder {
    let kinds: Vec<FrameKind> = (0..120).map(|n| if n % 12 == 0 { FrameKind::I } else { FrameKind::P }).collect();
    let size = |q: u8, n: u32| (if n.is_multiple_of(12) { 60_000 } else { 15_000 } + n * 7919 % 5_000) / u32::from(q);
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

#[test]
fn the_same_scenario_and_seed_give_the_pinned_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["scenarios", "scenarios/papers", "validation/scenarios"] {
        scenarios(&root, folder, &mut files);
    }
    let ladder = Arc::new(ladder());
    let mut told = format!("# scenario, packet-hops in {SECONDS} s, record_sha256\n");
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
        let name = file.strip_prefix(&root).unwrap_or(&file).display();
        let sha = summary["record_sha256"].as_str().unwrap_or_default();
        let _ = writeln!(told, "{name} {} {sha}", simulation.hops());
    }
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records.txt");
    if std::env::var_os("STEADYCAST_PIN").is_some() {
        fs::write(&pinned, &told).expect("it can be written");
    }
    let pinned = fs::read_to_string(&pinned).unwrap_or_default();
    assert!(pinned == told, "the records are not those in tests/records.txt:\n{told}");
}
