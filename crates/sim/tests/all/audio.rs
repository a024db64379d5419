//! Audio beside a video.
#![allow(clippy::unwrap_used)]

use crate::lab;

use lab::{Run, between, num, real, run, text, whole};
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Chance, Seed};

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

/// A fall of a link's rate: the rates before and after it in bit/s, the one-way delay in ms, and the packets of the
/// drop-tail queue.
fn fall(chance: &mut Chance) -> (f64, f64, u64, u64) {
    let before = 1e6 * chance.between(1.0, 6.0);
    let after = (before * chance.between(0.1, 0.5)).max(2e5);
    let mut pick = |of: &[u64]| of[(chance.between(0.0, of.len() as f64) as usize).min(of.len() - 1)];
    (before, after, pick(&[5, 10, 20, 40, 80]), pick(&[10, 20, 50, 100, 200]))
}

/// Returns the number of audio packets that were sent, and the times in seconds at which those were sent that did not
/// arrive.
fn sent_and_lost(run: &Run) -> (usize, Vec<f64>) {
    let (streams, dirs, seqs) =
        (text(run, "packets", "stream"), text(run, "packets", "dir"), whole(run, "packets", "seq"));
    let of = |dir: &str| (0..seqs.len()).filter(|n| streams[*n] == "audio" && dirs[*n] == dir).collect::<Vec<_>>();
    let arrived: BTreeSet<i64> = of("r").into_iter().map(|n| seqs[n]).collect();
    let times = real(run, "packets", "t_s");
    let sent = of("s");
    (sent.len(), sent.into_iter().filter(|n| !arrived.contains(&seqs[*n])).map(|n| times[n]).collect())
}

/// The queue of `q` bits is full after q / (before − after). The first loss is reported when the full queue has been
/// transmitted, q / after later, and a round trip. `steady` then needs up to a second to find that the queue is its
/// own. This second was chosen after 24 other falls, in which it needed 0.9 s, apart from a single packet.
#[test]
fn after_a_fall_of_the_link_s_rate_audio_is_lost_until_the_first_losses_are_reported_and_a_second() {
    let (mut chance, mut falls_with_losses) = (Seed(48).part("falls"), 0);
    for n in 0..8 {
        let (before, after, delay, packets) = fall(&mut chance);
        let file = format!(
            "duration = \"20s\"\nseed = {n}\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"{before:.0}bps\", delay = \"{delay}ms\", \
             queue = {{ kind = \"droptail\", limit = \"{packets}p\" }} }}\n\
             access = {{ rate = \"1Gbps\", delay = \"0ms\" }}\n[[flow]]\nname = \"video\"\nkind = \"video\"\n\
             controller = \"steady\"\nmedia = \"greedy\"\naudio = \"48kbps\"\nrepair = \"auto\"\n\
             [[event]]\nat = \"12s\"\nset = {{ link = \"bottleneck\", rate = \"{after:.0}bps\" }}\n\
             [record]\npackets = \"video\"\n"
        );
        let bits = packets as f64 * 1_200.0 * 8.0;
        let reported = bits / (before - after) + bits / after + 2.0 * delay as f64 / 1e3;
        let run = run(&file);
        // An audio packet leaves every 20 ms.
        let (sent, lost) = sent_and_lost(&run);
        assert!(sent > 950, "{sent} audio packets: {file}");
        // Losses before the fall are those of the start. Audio of the last second may still be in the queue at the end.
        let lost: Vec<f64> = lost.into_iter().map(|at| at - 12.0).collect();
        let lost: Vec<f64> = lost.into_iter().filter(|at| (0.0..7.0).contains(at)).collect();
        falls_with_losses += usize::from(!lost.is_empty());
        let name = format!("{before:.0} to {after:.0} bit/s, {delay} ms, {packets} packets: {lost:?}");
        assert!(lost.iter().all(|at| *at < reported + 1.0), "within {reported} s and one: {name}");
    }
    assert!(falls_with_losses >= 2, "audio is lost after {falls_with_losses} falls");
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

/// Checks the rows of a flow's streams in the table `packets`: a packet belongs to a frame if and only if it is
/// neither audio nor parity, and its number is unique among the packets that its stream sent.
#[test]
fn an_audio_or_parity_packet_in_the_table_of_packets_belongs_to_no_picture() {
    for (seed, media) in [(1, "greedy"), (2, "synthetic"), (3, "synthetic")] {
        let file = beside("2Mbps", "1Mbps", ", loss = { kind = \"bernoulli\", p = 0.05 }")
            .replace("duration = \"30s\"\nseed = 3", &format!("duration = \"5s\"\nseed = {seed}"))
            .replace("greedy", media);
        let run = run(&format!("{file}repair = \"auto\"\n[record]\npackets = \"video\"\n"));
        let (streams, dirs) = (text(&run, "packets", "stream"), text(&run, "packets", "dir"));
        let (seqs, frames) = (whole(&run, "packets", "seq"), whole(&run, "packets", "frame"));
        let (kinds, quantizers) = (text(&run, "packets", "ftype"), whole(&run, "packets", "q"));
        let mut seen = BTreeSet::new();
        let mut counts = BTreeMap::new();
        for n in 0..streams.len() {
            let row = format!("{media}, row {n}: {} {}", streams[n], seqs[n]);
            *counts.entry((dirs[n].as_str(), streams[n].as_str())).or_insert(0) += 1;
            if ["audio", "parity"].contains(&streams[n].as_str()) {
                assert_eq!((frames[n], kinds[n].as_str(), quantizers[n]), (-1, "", -1), "{row}");
            } else {
                assert!(frames[n] >= 0, "{row}");
                assert_eq!(!kinds[n].is_empty(), media == "synthetic", "{row}");
            }
            if dirs[n] == "s" && streams[n] != "repair" {
                assert!(seen.insert((streams[n].clone(), seqs[n])), "{row}");
            }
        }
        // A packet of audio is sent every 20 ms.
        let sent = counts[&("s", "audio")];
        assert!((250..=251).contains(&sent), "{counts:?}");
        assert!(counts[&("r", "audio")] < sent && counts[&("s", "repair")] > 0, "{counts:?}");
    }
}

#[test]
fn recorded_packets_are_those_that_the_figures_count_and_recording_changes_nothing_else() {
    for seed in 1..=5 {
        let file = beside("2Mbps", "1Mbps", ", loss = { kind = \"bernoulli\", p = 0.1 }")
            .replace("seed = 3", &format!("seed = {seed}"))
            .replace("greedy", if seed % 2 == 0 { "greedy" } else { "synthetic" });
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
