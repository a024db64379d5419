//! CoDel and FQ-CoDel (RFC 8289 and RFC 8290) under long flows.

use crate::lab;

use lab::{between, num, run};
use serde_json::Value;

/// Returns a link of 10 Mb/s with this queue and these flows. The RTT is 20 ms plus the queueing delay.
fn bottleneck(queue: &str, flows: &str) -> lab::Run {
    run(&format!(
        "duration = \"30s\"\nwarmup = \"5s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"10Mbps\", delay = \"8ms\", queue = {{ {queue} }} }}\n\
         access = {{ delay = \"1ms\" }}\n{flows}"
    ))
}

fn tcp(name: &str, more: &str) -> String {
    format!("[[flow]]\nname = \"{name}\"\nkind = \"tcp\"\n{more}\n")
}

fn link(run: &lab::Run) -> &Value {
    run.link("bottleneck", "forward").unwrap_or_else(|| panic!("{}", run.summary["links"]))
}

#[test]
fn codel_keeps_a_tcps_standing_queue_near_its_target_where_drop_tail_fills_it() {
    for congestion in ["newreno", "cubic"] {
        let with = |queue: &str| bottleneck(queue, &tcp("tcp", &format!("congestion = \"{congestion}\"")));
        let (held, full) = (with("kind = \"codel\", limit = \"100p\""), with("limit = \"100p\""));
        let median = |run: &lab::Run| num(&link(run)["queue_ms"]["p50"]);
        between(median(&held), 2.0, 12.0);
        between(median(&full), 5.0 * median(&held), 130.0);
        between(num(&link(&held)["utilisation_frac"]), 0.9, 1.0);
        between(num(&link(&held)["drop_frac"]), 0.000_1, 0.02);
    }
}

#[test]
fn a_single_newreno_far_away_cannot_fill_a_link_whose_queue_is_kept_short() {
    // With CoDel the window is little more than the BDP when NewReno halves it. While it grows back the link is not
    // full, so a little more than three quarters of the link are used.
    let far = "[[link]]\nname = \"bottleneck\"\ndelay = \"38ms\"\n";
    let run = bottleneck("kind = \"codel\"", &(far.to_owned() + &tcp("tcp", "congestion = \"newreno\"")));
    between(num(&link(&run)["utilisation_frac"]), 0.75, 0.87);
}

#[test]
fn codel_marks_a_tcp_that_takes_marks_and_drops_nothing() {
    let with = |ecn: bool| bottleneck(&format!("kind = \"codel\", ecn = {ecn}"), &tcp("tcp", "ecn = true"));
    let (marked, dropped) = (with(true), with(false));
    assert_eq!(num(&link(&marked)["dropped_packets"]), 0.0);
    between(num(&link(&marked)["marked_packets"]), 10.0, 500.0);
    assert_eq!(num(&link(&dropped)["marked_packets"]), 0.0);
    between(num(&link(&dropped)["dropped_packets"]), 10.0, 500.0);
    between(num(&link(&marked)["utilisation_frac"]), 0.9, 1.0);
    between(num(&link(&marked)["queue_ms"]["p50"]), 2.0, 12.0);
}

#[test]
fn fq_codel_keeps_a_small_flow_out_of_a_bulk_transfers_queue() {
    let flows = tcp("tcp", "")
        + "[[flow]]\nname = \"voice\"\nkind = \"cbr\"\nrate = \"100kbps\"\npacket = \"200B\"\n\
         [record]\npackets = [\"voice\"]\n";
    let late = |queue: &str| {
        let run = bottleneck(queue, &flows);
        let (sent, arrived) = (run.sent("voice").len(), run.arrived("voice", "voice.dst1"));
        let mut delays: Vec<f64> = arrived.iter().filter(|row| row.at > 5.0).map(|row| row.delay_ms).collect();
        delays.sort_by(f64::total_cmp);
        assert!(delays.len() > 1500, "{}", delays.len());
        (sent - arrived.len(), delays[delays.len() * 99 / 100])
    };
    let (lost, p99) = late("kind = \"fq-codel\"");
    assert_eq!(lost, 0);
    // 10 ms on the way, 0.16 ms on the transmitter, and at most two packets of the other flow before it.
    between(p99, 10.16, 12.6);
    between(late("limit = \"100p\"").1, 60.0, 131.0);
}

#[test]
fn fq_codel_gives_two_tcps_of_different_round_trips_the_same() {
    let rates = |queue: &str| {
        let far = "[[link]]\nname = \"right-far.dst1\"\ndelay = \"11ms\"\n";
        let flows = far.to_owned() + &tcp("near", "") + &tcp("far", "");
        let run = bottleneck(queue, &flows);
        (num(&run.flow("near")["throughput_bps"]), num(&run.flow("far")["throughput_bps"]))
    };
    let (near, far) = rates("kind = \"fq-codel\"");
    between(far / near, 0.9, 1.1);
    // 10 Mb/s of the link, plus the packet that was on the transmitter when counting began.
    between(far + near, 8.5e6, 10.001e6);
    let (near, far) = rates("kind = \"codel\"");
    // In a single queue the RTTs of 20 and 40 ms determine the shares.
    between(far / near, 0.2, 0.75);
}

#[test]
fn the_same_seed_gives_the_same_record_and_another_another_hash() {
    let record = |seed: u64| {
        let text = format!(
            "duration = \"5s\"\nseed = {seed}\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"5Mbps\", delay = \"10ms\", queue = {{ kind = \"fq-codel\", flows = 4 }} }}\n\
             [[flow]]\nname = \"tcp[1-4]\"\nkind = \"tcp\"\n"
        );
        run(&text).summary["record_sha256"].clone()
    };
    assert_eq!(record(1), record(1));
    assert_ne!(record(1), record(2));
}

#[test]
fn a_group_crosses_held_queues_and_no_copy_is_forgotten() {
    for kind in ["codel", "fq-codel"] {
        let run = run(&format!(
            "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"3Mbps\", delay = \"10ms\", queue = {{ kind = \"{kind}\" }} }}\n\
             access = {{ rate = \"2Mbps\", delay = \"1ms\", queue = {{ kind = \"{kind}\", limit = \"20p\" }} }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"tfmcc\"\nreceivers = 4\n\
             {}",
            tcp("tcp", "")
        ));
        let links = run.summary["links"].as_array().cloned().unwrap_or_default();
        assert_eq!(links.len(), 16, "eight links, both ways");
        for l in &links {
            // Packets sent shortly before the end arrive after it; then the queue is empty.
            assert_eq!(num(&l["offered_packets"]), num(&l["packets"]) + num(&l["dropped_packets"]), "{kind}: {l}");
        }
        assert!(num(&link(&run)["dropped_packets"]) > 10.0, "{kind}");
        between(num(&link(&run)["utilisation_frac"]), 0.6, 1.0);
        for n in 1..=4 {
            let receiver = run.receiver("video", &format!("video.dst{n}"));
            between(num(&receiver["throughput_bps"]), 3e5, 2e6);
        }
    }
}
