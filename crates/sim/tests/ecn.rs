//! Marks instead of drops.

mod lab;

use lab::{between, num, run};

/// A greedy video alone on 2 Mb/s, through RED that marks.
fn marked(controller: &str, ecn: bool) -> lab::Run {
    run(&format!(
        "duration = \"40s\"\nwarmup = \"10s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"2Mbps\", delay = \"20ms\", \
         queue = {{ kind = \"red\", preset = \"classic\", ecn = true }} }}\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"{controller}\"\necn = {ecn}\n"
    ))
}

#[test]
fn a_mark_counts_as_a_loss_and_costs_no_packet() {
    for controller in ["asmp", "tfmcc", "tfrc"] {
        let (with, without) = (marked(controller, true), marked(controller, false));
        let link = |run: &lab::Run, key: &str| {
            let all = run.summary["links"].as_array().cloned().unwrap_or_default();
            all.iter().find(|l| l["name"] == "bottleneck").map_or(f64::NAN, |l| num(&l[key]))
        };
        assert!(link(&with, "marked_packets") > 20.0, "{controller}: {}", link(&with, "marked_packets"));
        assert_eq!(link(&without, "marked_packets"), 0.0, "{controller}");
        // Where the mean queue is above twice the upper threshold, RED drops all the same.
        between(link(&without, "drop_frac"), 0.001, 0.03);
        between(link(&with, "drop_frac"), 0.0, link(&without, "drop_frac") / 5.0);
        // The rate is the same whichever sign it follows.
        let rate = |run: &lab::Run| num(&run.flow("video")["throughput_bps"]);
        between(rate(&with) / rate(&without), 0.9, 1.12);
        between(rate(&with), 1.5e6, 2.01e6);
        let loss = num(&with.receiver("video", "video.dst1")["loss_event_rate"]);
        between(loss, 0.000_5, 0.03);
    }
}
