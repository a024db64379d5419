//! Audio beside a video.
#![allow(clippy::unwrap_used)]

use crate::lab;

use lab::{between, num, real, run, text};

/// Returns a greedy video of `video` with audio of 48 kb/s over a bottleneck of `rate`.
fn beside(rate: &str, video: &str, more: &str) -> String {
    format!(
        "duration = \"30s\"\nseed = 3\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"{rate}\", delay = \"20ms\"{more}, \
         queue = {{ kind = \"droptail\", limit = \"30p\" }} }}\n\
         access = {{ rate = \"1Gbps\", delay = \"0ms\" }}\n[[flow]]\nname = \"video\"\nkind = \"video\"\n\
         controller = \"fixed\"\nparams.fixed = {{ rate = \"{video}\" }}\nmedia = \"greedy\"\naudio = \"48kbps\"\n"
    )
}

#[test]
fn audio_is_part_of_the_rate_and_has_no_gap_where_the_rate_fits() {
    let run = run(&beside("2Mbps", "1Mbps", ""));
    let receiver = run.receiver("video", "video.dst1");
    // The controller's rate is that of both: the video gives way to the audio.
    between(num(&receiver["throughput_bps"]), 0.98e6, 1.01e6);
    for figure in ["lost_packets", "late_packets", "gaps_over_20ms", "concealed_ms_per_min"] {
        assert_eq!(num(&receiver["audio"][figure]), 0.0, "{figure}: {receiver}");
    }
}

#[test]
fn a_listener_conceals_what_the_path_loses() {
    let run = run(&beside("2Mbps", "1Mbps", ", loss = { kind = \"bernoulli\", p = 0.1 }"));
    let receiver = run.receiver("video", "video.dst1");
    // 1500 packets, of which a tenth is lost: 3 s of 30 s are concealed. Three standard deviations are 35 packets.
    between(num(&receiver["audio"]["lost_packets"]), 115.0, 185.0);
    between(num(&receiver["audio"]["concealed_ms_per_min"]), 4_600.0, 7_400.0);
    between(num(&receiver["audio"]["gaps_over_20ms"]), 4.0, 30.0);
}

#[test]
fn recorded_packets_are_those_that_the_figures_count_and_recording_changes_nothing_else() {
    for seed in 1..=5 {
        let file = beside("2Mbps", "1Mbps", ", loss = { kind = \"bernoulli\", p = 0.1 }")
            .replace("seed = 3", &format!("seed = {seed}"))
            .replace("greedy", "synthetic");
        let plain = run(&file);
        let run = run(&format!("{file}[record]\naudio = true\n"));
        assert_eq!(plain.simulation.table("audio").map(|table| table.rows()), Some(0));
        assert_eq!(plain.summary["record_sha256"], run.summary["record_sha256"]);
        let fates = text(&run, "audio", "fate");
        assert!((1_499..=1_501).contains(&fates.len()), "{}", fates.len());
        let (sent, at) = (real(&run, "audio", "sent_s"), real(&run, "audio", "arrived_s"));
        // The figures are about arrivals in the 30 s of the run. They do not know of packets that were lost before the
        // first arrival or after the last one.
        let counted = |at: &f64| *at <= 30.0;
        let known = at.iter().position(counted).unwrap()..at.iter().rposition(counted).unwrap() + 1;
        let count = |of: &str| fates[known.clone()].iter().filter(|fate| *fate == of).count() as f64;
        let figure = |name: &str| num(&run.receiver("video", "video.dst1")["audio"][name]);
        assert_eq!((count("lost"), count("late")), (figure("lost_packets"), figure("late_packets")), "seed {seed}");
        let concealed: f64 = real(&run, "audio", "concealed_ms")[known.clone()].iter().sum();
        let minutes = known.len() as f64 * 0.02 / 60.0;
        between(concealed / minutes / figure("concealed_ms_per_min"), 0.999_999, 1.000_001);
        for ((n, fate), (sent, at)) in fates.iter().enumerate().zip(sent.iter().zip(at)) {
            between(*sent, n as f64 * 0.02 - 1e-9, n as f64 * 0.02 + 1e-9);
            assert_eq!(at.is_nan(), fate == "lost");
            // The path takes 20 ms. Its queue of 30 packets of at most 1500 bytes takes 180 ms.
            assert!(at.is_nan() || (0.02..0.21).contains(&(at - sent)), "{sent} {at}");
        }
    }
}
