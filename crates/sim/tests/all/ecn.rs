//! ECN marks instead of drops.

use crate::lab;

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
        // If the mean queue exceeds twice the upper threshold, RED drops in spite of ECN.
        between(link(&without, "drop_frac"), 0.001, 0.03);
        between(link(&with, "drop_frac"), 0.0, link(&without, "drop_frac") / 5.0);
        // The rate is the same with marks as with drops.
        let rate = |run: &lab::Run| num(&run.flow("video")["throughput_bps"]);
        between(rate(&with) / rate(&without), 0.9, 1.12);
        between(rate(&with), 1.5e6, 2.01e6);
        let loss = num(&with.receiver("video", "video.dst1")["loss_event_rate"]);
        between(loss, 0.000_5, 0.03);
    }
}

/// A greedy video beside CBR through DualPI2, with its packets recorded.
fn l4s(ecn: &str, feedback: &str) -> lab::Run {
    run(&format!(
        "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"4Mbps\", delay = \"20ms\", queue = {{ kind = \"dualpi2\" }} }}\n[record]\n\
         packets = [\"video\"]\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"tfrc\"\necn = \"{ecn}\"\n\
         feedback = \"{feedback}\"\n"
    ))
}

#[test]
fn ect1_packets_of_a_video_come_out_marked_by_dualpi2_and_wait_less_than_classic_ones() {
    let share = |ecn: &str, feedback: &str| {
        let run = l4s(ecn, feedback);
        let arrived = run.arrived("video", "video.dst1");
        let marked = arrived.iter().filter(|row| row.ce).count() as f64 / arrived.len() as f64;
        let delay = arrived.iter().map(|row| row.delay_ms).sum::<f64>() / arrived.len() as f64;
        let dropped = run.link("bottleneck", "forward").map_or(f64::NAN, |link| num(&link["dropped_packets"]));
        (marked, delay, dropped)
    };
    let (ect1, ect0, off) = (share("ect1", "own"), share("ect0", "own"), share("off", "own"));
    between(ect1.0, 0.001, 0.2);
    assert_eq!(ect1.2, 0.0, "marks take the place of drops");
    between(ect0.0, 0.000_1, 0.1);
    assert_eq!(off.0, 0.0);
    between(off.2, 1.0, 500.0);
    // 22.4 ms are propagation and transmission.
    between(ect1.1, 22.4, 25.0);
    between(ect0.1 - ect1.1, 2.0, 60.0);
    // Reports per packet lead to the same result.
    let reported = share("ect1", "rfc8888");
    between(reported.0 / ect1.0, 0.5, 2.0);
    assert_eq!(reported.2, 0.0);
}

#[test]
fn a_path_that_clears_the_ecn_field_is_found_and_nothing_leaves_as_capable_any_more() {
    let run = |bleach: bool| {
        run(&format!(
            "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"2Mbps\", delay = \"20ms\", \
             queue = {{ kind = \"dualpi2\" }}, bleach = {bleach} }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"scream\"\n\
             ecn = \"ect1\"\n"
        ))
    };
    let figures = |run: &lab::Run| {
        let (flow, to) = (run.flow("video").clone(), run.receiver("video", "video.dst1").clone());
        let marked = run.link("bottleneck", "forward").map_or(f64::NAN, |link| num(&link["marked_packets"]));
        (flow, to, marked)
    };
    let ((kept, at_kept, marked), (cleared, at_cleared, none)) = (figures(&run(false)), figures(&run(true)));
    assert_eq!((kept["ecn_path"].as_str(), cleared["ecn_path"].as_str()), (Some("kept"), Some("cleared")));
    assert_eq!(kept["ecn_sent_packets"], kept["sent_packets"]);
    assert_eq!(at_kept["ecn_marked_packets"], marked);
    // A report covers up to 16 packets and takes 20 ms, in which 5 more arrive. Their marks at the end are not
    // reported.
    between(num(&kept["ecn_marked_packets"]), marked - 21.0, marked);
    between(marked, 50.0, 2_000.0);
    // Twenty packets are judged; the packets of one more RTT are in flight by then.
    between(num(&cleared["ecn_sent_packets"]), 20.0, 60.0);
    assert_eq!((none, num(&cleared["ecn_marked_packets"])), (0.0, 0.0));
    assert!(at_cleared.get("ecn_capable_packets").is_none());
    // It continues with delay and loss.
    between(num(&cleared["throughput_bps"]), 1.0e6, 2.0e6);
}
