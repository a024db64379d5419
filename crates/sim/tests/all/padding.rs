//! Probes of a controller that are filled with padding.

use crate::lab;

use lab::{between, num, run};

/// Runs `gcc` alone on 4 Mb/s with 40 ms of RTT and RFC 8593's codec: at a low rate packets hardly ever wait.
fn gcc(padding: bool) -> lab::Run {
    run(&format!(
        "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"4Mbps\", delay = \"20ms\", queue = {{ kind = \"droptail\", limit = \"300ms\" }} }}\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"rfc8593\"\ncontroller = \"gcc\"\n\
         rtcp = {{ profile = \"avpf\" }}\n\
         rfc8593 = {{ r_max = \"8Mbps\" }}\nrepair = \"rtx\"\npadding = {padding}\n"
    ))
}

#[test]
fn with_padding_gcc_finds_its_link_sooner_and_nothing_leaves_faster_than_it_decides() {
    let (with, without) = (gcc(true), gcc(false));
    let of = |run: &lab::Run, key: &str| num(&run.flow("video")[key]);
    let ramp = |run: &lab::Run| num(&run.flow("video")["ramp_s"]["share_80pct"]);
    between(ramp(&with), 1.0, 4.0);
    between(ramp(&without), 2.0 * ramp(&with), 20.0);
    between(of(&with, "padding_packets"), 20.0, 400.0);
    between(of(&with, "padding_bps"), 500.0, 40_000.0);
    assert!(without.flow("video").get("padding_packets").is_none());
    // Media, retransmissions and padding together stay within the pacing rate or the probe's rate.
    let promises = with.summary["invariants"].as_array().cloned().unwrap_or_default();
    let inside = promises.iter().find(|promise| promise["id"] == "repair.within-rate");
    assert!(inside.is_some_and(|promise| num(&promise["checked"]) > 1_000.0 && promise["broken"] == 0), "{promises:?}");
    // The receiver ignores padding: it causes no loss and no retransmission.
    let receiver = with.receiver("video", "video.dst1");
    assert_eq!((num(&receiver["loss_frac"]), num(&receiver["repaired_packets"])), (0.0, 0.0));
    between(num(&receiver["frames"]["ok_frac"]), 1.0, 1.0);
}
