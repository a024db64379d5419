//! Audio beside a video.

use crate::lab;

use lab::{between, num, run};

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
