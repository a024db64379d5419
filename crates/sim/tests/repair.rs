//! Lost packets that are asked for and sent again.

mod lab;

use lab::{between, num, run};
use serde_json::Value;

/// A greedy source of 1 Mb/s on a path of 20 ms each way that loses packets both ways, independently of each other.
fn lossy(seconds: u64, loss: f64, playout_ms: u64, keys: &str) -> String {
    format!(
        r#"
format = 1
name = "lossy"
duration = "{seconds}s"
seed = 5
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "20Mbps", delay = "20ms", loss = {{ kind = "bernoulli", p = {loss} }}, back = {{ rate = "20Mbps", loss = {{ kind = "bernoulli", p = {loss} }} }} }}
access = {{ rate = "1Gbps", delay = "0ms" }}
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "greedy"
params.fixed = {{ rate = "4Mbps" }}
packet = "500B"
playout = "{playout_ms}ms"
rtcp = {{ profile = "avpf", session_bw = "20Mbps" }}
{keys}
"#
    )
}

fn broken(summary: &Value, id: &str) -> u64 {
    let all = summary["invariants"].as_array().expect("a list");
    let found = all.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {all:?}"));
    assert!(found["checked"].as_u64() > Some(0), "{found}");
    found["broken"].as_u64().expect("a number")
}

/// What is left of 5 % of loss after as many tries as the play-out delay has room for, and how it was computed.
#[track_caller]
fn residual(playout_ms: u64, formula: f64) {
    let run = run(&lossy(150, 0.05, playout_ms, "repair = \"rtx\""));
    let receiver = run.receiver("video", "video.dst1");
    between(num(&receiver["loss_frac"]), 0.048, 0.052);
    let after = num(&receiver["loss_after_repair_frac"]);
    assert!(after > formula / 1.3 && after < formula * 1.3, "{after} instead of {formula}: {receiver}");
    for id in ["repair-inside", "losses-still-count", "repair-never-feeds-loss"] {
        assert_eq!(broken(&run.summary, id), 0, "{id}");
    }
}

#[test]
fn one_try_leaves_of_independent_loss_what_the_formula_says() {
    residual(105, 4.88e-3);
}

#[test]
fn two_tries_leave_of_independent_loss_what_the_formula_says() {
    residual(160, 4.75e-4);
}

/// A picture source over a path of 30 ms each way that loses 1 % of its packets.
fn pictures(p: f64, emit: &str, repair: &str) -> String {
    format!(
        r#"
format = 1
name = "pictures"
duration = "120s"
warmup = "5s"
seed = 3
[topology]
shape = "dumbbell"
bottleneck = {{ rate = "10Mbps", delay = "30ms", loss = {{ kind = "bernoulli", p = {p} }}, back = {{ loss = {{ kind = "bernoulli", p = {p} }} }} }}
access = {{ rate = "1Gbps", delay = "0ms" }}
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "synthetic"
params.fixed = {{ rate = "1500kbps" }}
playout = "300ms"
emit = "{emit}"
repair = "{repair}"
"#
    )
}

fn not_ok(text: &str) -> f64 {
    let run = run(text);
    let frames = &run.receiver("video", "video.dst1")["frames"];
    1.0 - num(&frames["ok"]) / num(&frames["sent"])
}

#[test]
fn at_one_percent_of_loss_a_third_of_the_frames_fail_and_with_repair_one_in_a_thousand_at_most() {
    between(not_ok(&pictures(0.01, "burst", "none")), 0.15, 0.6);
    between(not_ok(&pictures(0.01, "burst", "rtx")), 0.0, 0.001);
    // An I frame that takes half of the play-out delay to leave has room for one try.
    between(not_ok(&pictures(0.01, "paced", "rtx")), 0.0, 0.01);
}

#[test]
fn a_clean_path_carries_no_retransmission() {
    let run = run(&pictures(0.0, "paced", "auto"));
    let flow = run.flow("video");
    assert_eq!(num(&flow["repair_packets"]), 0.0, "{flow}");
    assert_eq!(num(&flow["repair_bps"]), 0.0, "{flow}");
    assert_eq!(num(&run.receiver("video", "video.dst1")["loss_after_repair_frac"]), 0.0);
}
