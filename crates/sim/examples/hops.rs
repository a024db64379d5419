//! Measures how much CPU time and memory the simulation of a scenario takes. It runs without Python, so it can run
//! under a profiler: `cargo run --release --example hops -- FILE [PATH=VALUE …]`. Video flows must be greedy, which
//! means that their source always has data. The frames of other video flows come from Python.

use std::io;
use std::path::Path;
use steadycast_record::run;
use steadycast_scenario::Document;
use steadycast_sim::{Inputs, Simulation};

/// Returns the CPU time that this thread has used, in seconds. Works only on Linux.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

/// Returns the peak memory of this process in MB. Works only on Linux.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kb.map_or(f64::NAN, |kb| kb * 1024.0 / 1e6)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut document = Document::read(Path::new(&words.next().ok_or("which scenario?")?))?;
    for change in words {
        document.set(&change).map_err(|problem| problem.to_string())?;
    }
    let mut simulation = Simulation::build(&document.check()?.scenario, &Inputs::default())?;
    let built = cpu_s();
    let complete = simulation.run(|_| true);
    let cpu = cpu_s() - built;
    let peak = peak_mb();
    let record = simulation.record();
    let tree = record.tree(complete);
    let digest = tree.figures.get(&run::RECORD_SHA256).cloned().unwrap_or_default();
    tree.write_json(&mut io::sink())?;
    println!(
        "{} hops in {cpu:.3} s after {built:.3} s of building: \
         {:.1} M/s, {digest}; {peak:.0} MB, {:.2} s and {:.0} MB with the summary written",
        simulation.hops(),
        simulation.hops() as f64 / cpu / 1e6,
        cpu_s(),
        peak_mb(),
    );
    Ok(())
}
