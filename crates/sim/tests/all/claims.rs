//! The claims of the simulator, one small scenario each.

use crate::lab;

use lab::{Row, between, num, run, scenario};
use steadycast_sim::{Inputs, Simulation};

const CBR: &str = "[[flow]]\nname = \"cbr\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nfrom = \"s\"\nto = \"r\"\n";
/// A greedy source of 1 Mb/s: a packet of 1000 B every 8 ms.
const FIXED: &str = "kind = \"video\"\ncontroller = \"fixed\"\nparams.fixed = { rate = \"1Mbps\" }\n\
                     media = \"greedy\"\npacket = \"1000B\"\nrtcp = { profile = \"rfc3550\" }\n";

/// Returns a scenario with one link `l` from s to r that has these lines.
fn one_link(lines: &str, rest: &str) -> String {
    format!(
        "duration = \"20s\"\nnodes = [\"s\", \"r\"]\n[[link]]\nname = \"l\"\nbetween = [\"s\", \"r\"]\n{lines}\n{rest}"
    )
}

#[test]
fn a_packet_takes_its_transmissions_and_propagations_to_the_nanosecond() {
    let text = format!(
        "duration = \"10s\"\nnodes = [\"s\", \"a\", \"b\", \"r\"]\n\
         [[link]]\nbetween = [\"s\", \"a\"]\nrate = \"10Mbps\"\ndelay = \"5ms\"\n\
         [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"8Mbps\"\ndelay = \"7ms\"\n\
         [[link]]\nbetween = [\"b\", \"r\"]\nrate = \"4Mbps\"\ndelay = \"11ms\"\n{CBR}\
         [record]\npackets = \"all\"\n"
    );
    let run = run(&text);
    let (sent, arrived) = (run.sent("cbr"), run.arrived("cbr", "r"));
    assert_eq!((sent.len(), arrived.len()), (1_250, 1_250));
    // 0.8 + 1 + 2 ms on the links and 23 ms on the way.
    assert!(arrived.iter().all(|row| (row.delay_ms - 26.8).abs() < 1e-9), "{:?}", arrived[0]);
    let delay = &run.receiver("cbr", "r")["delay_ms"];
    between(num(&delay["p50"]), 26.6, 27.0);
    assert_eq!(num(&delay["max"]), 26.8);
    // Three hops per packet, minus packets in flight at the end.
    between(run.simulation.hops() as f64, 3.0 * 1_250.0 - 12.0, 3.0 * 1_250.0 - 1.0);
}

#[test]
fn a_full_drop_tail_queue_drops_what_the_link_can_not_carry() {
    let cbr = CBR.replace("1Mbps", "2Mbps");
    let run = run(&one_link("rate = \"1Mbps\"\ndelay = \"10ms\"\nqueue = { limit = \"10p\" }", &cbr));
    let link = run.link("l", "forward").unwrap();
    // 5000 offered, 2500 carried and 10 in the queue.
    assert_eq!(num(&link["offered_packets"]), 5_000.0);
    between(num(&link["dropped_packets"]), 2_485.0, 2_495.0);
    between(num(&link["utilisation_frac"]), 0.999, 1.0);
    between(num(&run.receiver("cbr", "r")["loss_frac"]), 0.490, 0.500);
    // A queue of ten packets of 8 ms each, the one on the link included.
    between(num(&link["queue_ms"]["max"]), 72.0, 80.0);
    between(num(&run.receiver("cbr", "r")["throughput_bps"]), 0.99e6, 1.0e6);
}

#[test]
fn a_queue_in_bytes_holds_bytes() {
    let cbr = CBR.replace("1Mbps", "2Mbps");
    let run = run(&one_link("rate = \"1Mbps\"\nqueue = { limit = \"5500B\" }", &cbr));
    // Five packets of 1000 B fit, the one on the link included.
    between(num(&run.link("l", "forward").unwrap()["queue_ms"]["max"]), 32.0, 40.0);
}

#[test]
fn unicast_goes_the_way_with_the_fewest_hops() {
    let text = format!(
        "duration = \"2s\"\nnodes = [\"s\", \"a\", \"b\", \"c\", \"r\"]\n\
         [[link]]\nbetween = [\"s\", \"a\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n[[link]]\nbetween = [\"b\", \"r\"]\n\
         [[link]]\nbetween = [\"s\", \"c\"]\ndelay = \"500ms\"\n[[link]]\nbetween = [\"c\", \"r\"]\n{CBR}"
    );
    let run = run(&text);
    assert!(run.link("s-a", "forward").is_none() && run.link("b-r", "forward").is_none());
    assert_eq!(num(&run.link("c-r", "forward").unwrap()["packets"]), 250.0);
    assert_eq!(num(&run.receiver("cbr", "r")["delay_ms"]["max"]), 500.0, "delay does not count");
}

fn star(cast: &str) -> lab::Run {
    run(&format!(
        "duration = \"10s\"\nnodes = [\"s\", \"hub\", \"r[1-5]\"]\n\
         [[link]]\nbetween = [\"s\", \"hub\"]\n[[link]]\nbetween = [\"hub\", \"r[1-5]\"]\n\
         [[flow]]\nname = \"video\"\n{FIXED}cast = \"{cast}\"\nfrom = \"s\"\nto = [\"r[1-5]\"]\n"
    ))
}

#[test]
fn multicast_crosses_each_link_once_and_reaches_all() {
    let run = star("multicast");
    let sent = num(&run.flow("video")["sent_packets"]);
    between(sent, 1_249.0, 1_251.0);
    // Sender reports are added, and on a member's link the receiver reports of the others.
    between(num(&run.link("s-hub", "forward").unwrap()["packets"]) - sent, 1.0, 6.0);
    for n in 1..=5 {
        between(num(&run.link(&format!("hub-r{n}"), "forward").unwrap()["packets"]) - sent, 3.0, 24.0);
        between(num(&run.receiver("video", &format!("r{n}"))["throughput_bps"]), 0.99e6, 1.0e6);
    }
}

#[test]
fn unicast_to_each_crosses_the_shared_link_once_for_each() {
    let run = star("unicast");
    between(num(&run.link("s-hub", "forward").unwrap()["packets"]), 5.0 * 1_249.0, 5.0 * 1_320.0);
    // The flow's figures cover all five sessions.
    let flow = run.flow("video");
    between(num(&flow["sent_packets"]), 5.0 * 1_249.0, 5.0 * 1_251.0);
    let reports = |n: u32| num(&run.receiver("video", &format!("r{n}"))["feedback_packets"]);
    let reports: f64 = (1..=5).map(reports).sum();
    between(num(&flow["feedback_packets"]), 0.6 * reports, reports);
    for n in 1..=5 {
        between(num(&run.link(&format!("hub-r{n}"), "forward").unwrap()["packets"]), 1_249.0, 1_320.0);
        between(num(&run.receiver("video", &format!("r{n}"))["throughput_bps"]), 0.99e6, 1.0e6);
    }
}

/// s – a – b – c – r with 10 ms each; r joins at 2 s and leaves at 5 s.
fn late(extra: &str) -> lab::Run {
    run(&format!(
        "duration = \"10s\"\njoin_latency = \"100ms\"\nleave_latency = \"200ms\"\n\
         nodes = [\"s\", \"a\", \"b\", \"c\", \"r\", \"q\"]\n\
         [[link]]\nbetween = [\"s\", \"a\"]\ndelay = \"10ms\"\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"10ms\"\n\
         [[link]]\nbetween = [\"b\", \"c\"]\ndelay = \"10ms\"\n[[link]]\nbetween = [\"c\", \"r\"]\ndelay = \"10ms\"\n\
         [[link]]\nbetween = [\"a\", \"q\"]\ndelay = \"10ms\"\n\
         [[flow]]\nname = \"video\"\n{FIXED}cast = \"multicast\"\nfrom = \"s\"\nto = {extra}\n\
         [[event]]\nat = \"2s\"\njoin = \"video.r\"\n[[event]]\nat = \"5s\"\nleave = \"video.r\"\n\
         [record]\npackets = \"all\"\n"
    ))
}

fn first_and_last(rows: &[Row]) -> (f64, f64) {
    (rows.first().map_or(f64::NAN, |r| r.at), rows.last().map_or(f64::NAN, |r| r.at))
}

#[test]
fn a_join_goes_up_the_tree_router_by_router_and_a_leave_cuts_it() {
    let run = late("[\"r\"]");
    let (first, _) = first_and_last(&run.arrived("video", "r"));
    // 4 · 10 ms up and 3 routers of 100 ms, then 4 · 10 ms down; packets come every 8 ms.
    between(first, 2.38, 2.3881);
    // The last link of the tree is pruned first: the source's packets are useless until the leave has reached it.
    let on = |name: &str| num(&run.link(name, "forward").unwrap()["packets"]);
    // From 2.34 s to 5 s + 4 · 10 ms + 3 · 200 ms, at 125 per second.
    between(on("s-a"), 3.30 * 125.0 - 1.0, 3.30 * 125.0 + 6.0);
    between(on("s-a") - on("a-b"), 0.2 * 125.0 - 3.0, 0.2 * 125.0 + 3.0);
    between(on("b-c") - on("c-r"), 0.2 * 125.0 - 3.0, 0.2 * 125.0 + 3.0);
    // It left at 5 s and received nothing later.
    let got = run.arrived("video", "r").iter().filter(|r| r.at <= 5.0).count() as f64;
    // The rate covers the 3 s of its membership.
    between(num(&run.receiver("video", "r")["throughput_bps"]) * 3.0 / 8_000.0, got - 1.0, got + 1.0);
}

#[test]
fn a_branch_that_others_need_stays() {
    let run = late("[\"r\", \"q\"]");
    let (first, _) = first_and_last(&run.arrived("video", "r"));
    // The tree already reaches a.
    between(first, 2.26, 2.2681);
    let (start, end) = first_and_last(&run.arrived("video", "q"));
    between(start, 0.02, 0.021);
    between(end, 10.0, 10.02);
    between(num(&run.receiver("video", "q")["throughput_bps"]), 0.99e6, 1.0e6);
}

#[test]
fn a_late_joiners_figures_start_at_its_join() {
    let text = format!(
        "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"4Mbps\", delay = \"10ms\" }}\n\
         [[flow]]\nname = \"video\"\n{}\nreceivers = 3\n[[event]]\nat = \"15s\"\njoin = \"video.dst2\"\n",
        FIXED.replace("greedy", "synthetic")
    );
    let run = run(&text);
    let [first, late] = ["video.dst1", "video.dst2"].map(|name| run.receiver("video", name));
    assert_eq!((num(&first["frames"]["sent"]), num(&late["frames"]["sent"])), (500.0, 125.0));
    assert_eq!(num(&late["frames"]["ok"]) + num(&late["frames"]["undecodable"]), 125.0);
    // At most it waits for an I frame.
    assert!(num(&late["frames"]["undecodable"]) < 12.0);
    between(num(&late["throughput_bps"]) / num(&first["throughput_bps"]), 0.93, 1.07);
    assert_eq!(num(&late["loss_frac"]), 0.0);
}

#[test]
fn a_member_is_not_owed_what_was_sent_while_it_was_away() {
    let text = format!(
        "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"4Mbps\", delay = \"10ms\" }}\n\
         [[flow]]\nname = \"video\"\n{}\nreceivers = 3\n[[event]]\nat = \"10s\"\nleave = \"video.dst2\"\n",
        FIXED.replace("greedy", "synthetic")
    );
    let judged = |more: &str, ready: f64, stays: &[(f64, f64)]| {
        let run = run(&format!("{text}{more}"));
        let stayed = run.receiver("video", "video.dst1");
        assert_eq!(num(&stayed["frames"]["ok"]), 500.0);
        let away = run.receiver("video", "video.dst2");
        // Frames that were on their way when it left do not count. An I frame takes four frame times.
        let frames = num(&away["frames"]["sent"]);
        between(frames, ready - 5.0, ready - 1.0);
        assert_eq!((num(&away["frames"]["lost"]), num(&away["frozen_frac"])), (0.0, 0.0), "{away}");
        assert_eq!((num(&away["freeze_count"]), num(&away["loss_frac"])), (0.0, 0.0));
        // Its rate, the group's rate and the rate's variation are those of the members.
        let rate = num(&stayed["throughput_bps"]);
        between(num(&away["throughput_bps"]) / rate, 0.98, 1.02);
        between(num(&run.flow("video")["throughput_bps"]) / rate, 0.99, 1.01);
        assert!(num(&run.flow("video")["rate_cov"]) < 0.1, "{}", run.flow("video"));
        let (nodes, rates) = (lab::text(&run, "rates", "node"), lab::real(&run, "rates", "throughput_bps"));
        let rows = nodes.iter().zip(rates).filter(|(node, _)| *node == "video.dst2");
        for (second, (_, rate_bps)) in rows.enumerate() {
            let here = stays.iter().any(|(from, until)| *from < second as f64 + 1.0 && *until > second as f64);
            assert_eq!(rate_bps.is_nan(), !here, "at {second} s: {rate_bps}");
        }
        let rows = run.simulation.table("frames").unwrap();
        let Some(steadycast_sim::Values::Text { codes, texts }) = rows.get("node") else { panic!("no nodes") };
        let of = |name: &str| codes.iter().filter(|code| texts[**code as usize] == name).count();
        assert_eq!([of("video.dst1"), of("video.dst2")], [500, frames as usize]);
    };
    judged("", 250.0, &[(0.0, 10.0)]);
    // A receiver with a join event was not a member before.
    let joins = ["5.27s", "14.87s"].map(|at| format!("[[event]]\nat = \"{at}\"\njoin = \"video.dst2\"\n"));
    judged(&joins.concat(), 118.0 + 128.0, &[(5.27, 10.0), (14.87, 20.0)]);
}

#[test]
fn events_set_rate_delay_and_loss() {
    let text = one_link(
        "rate = \"4Mbps\"\ndelay = \"10ms\"\nqueue = { limit = \"10p\" }",
        &format!(
            "{CBR}[[event]]\nat = \"5s\"\nset = {{ link = \"l\", rate = \"500kbps\" }}\n\
             [[event]]\nat = \"10s\"\nset = {{ link = \"l\", rate = \"4Mbps\", delay = \"30ms\" }}\n\
             [[event]]\nat = \"15s\"\nset = {{ link = \"l\", loss = {{ kind = \"bernoulli\", p = 0.2 }} }}\n\
             [record]\npackets = \"all\"\n"
        ),
    );
    let run = run(&text);
    let rows = run.arrived("cbr", "r");
    let part = |from: f64, to: f64| rows.iter().filter(|r| r.at > from && r.at <= to).collect::<Vec<_>>();
    assert!(part(0.0, 5.0).iter().all(|r| (r.delay_ms - 12.0).abs() < 1e-9));
    between(part(6.0, 10.0).len() as f64, 249.0, 251.0);
    assert!(part(10.3, 15.0).iter().all(|r| (r.delay_ms - 32.0).abs() < 1e-9));
    between(part(15.1, 20.0).len() as f64 / (4.9 * 125.0), 0.75, 0.85);
}

#[test]
fn a_flow_starts_and_stops_as_often_as_events_say() {
    let events = [(2, "stop"), (5, "start"), (7, "stop"), (12, "start"), (14, "stop")];
    let events: String =
        events.iter().map(|(at, what)| format!("[[event]]\nat = \"{at}s\"\n{what} = \"cbr\"\n")).collect();
    let run = run(&one_link(
        "rate = \"4Mbps\"\ndelay = \"10ms\"",
        &format!("{CBR}start = \"0s\"\n{events}[record]\npackets = \"all\"\n"),
    ));
    let sent = run.sent("cbr");
    let within = |from: f64, to: f64| sent.iter().filter(|r| r.at >= from && r.at < to).count();
    assert_eq!([within(0.0, 2.0), within(5.0, 7.0), within(12.0, 14.0), sent.len()], [250, 250, 250, 750]);
    // Means cover the active time.
    between(num(&run.flow("cbr")["throughput_bps"]), 0.99e6, 1.01e6);
    assert_eq!(num(&run.flow("cbr")["receivers"][0]["loss_frac"]), 0.0);
    between(num(&run.flow("cbr")["rate_cov"]), 0.0, 0.02);
}

#[test]
fn a_greedy_source_with_an_amount_ends_after_it() {
    let text = one_link(
        "rate = \"8Mbps\"\ndelay = \"10ms\"",
        &format!(
            "[[flow]]\nname = \"video\"\n{FIXED}from = \"s\"\nto = \"r\"\nstart = \"0s\"\nbytes = \"1MB\"\n\
                  [record]\npackets = \"all\"\n"
        ),
    )
    .replace("1Mbps", "4Mbps");
    let once = run(&text);
    assert_eq!(num(&once.flow("video")["sent_packets"]), 1_000.0);
    between(first_and_last(&once.sent("video")).1, 1.9, 2.1);
    let receiver = once.receiver("video", "r");
    assert_eq!(num(&receiver["loss_frac"]), 0.0);
    // The mean is over the whole run of 20 s: 1 MB is sent in 2 s.
    between(num(&receiver["throughput_bps"]), 0.399e6, 0.401e6);
    // Each start restarts the source.
    let events = "[[event]]\nat = \"10s\"\nstop = \"video\"\n[[event]]\nat = \"12s\"\nstart = \"video\"\n";
    let again = run(&format!("{text}{events}"));
    assert_eq!(num(&again.flow("video")["sent_packets"]), 2_000.0);
}

#[test]
fn an_outage_of_thousands_of_packets_counts_as_loss() {
    let loss = |at: u32, p: f64| {
        format!("[[event]]\nat = \"{at}s\"\nset = {{ link = \"l\", loss = {{ kind = \"bernoulli\", p = {p:.1} }} }}\n")
    };
    let text = one_link(
        "rate = \"8Mbps\"\ndelay = \"10ms\"",
        &format!(
            "[[flow]]\nname = \"video\"\n{FIXED}from = \"s\"\nto = \"r\"\n{}{}[record]\npackets = \"all\"\n",
            loss(5, 1.0),
            loss(15, 0.0)
        ),
    );
    let run = run(&text.replace("1Mbps", "4Mbps"));
    let (sent, arrived) = (run.sent("video").len() as f64, run.arrived("video", "r").len() as f64);
    between(arrived / sent, 0.49, 0.51);
    // A jump of the sequence number is accepted from its second packet on, and packets in flight at the end are not
    // expected yet.
    between(num(&run.receiver("video", "r")["loss_frac"]) - (1.0 - arrived / sent), -0.001, 0.001);
}

#[test]
fn the_score_is_the_same_whether_a_viewer_joins_at_a_groups_start_or_in_its_middle() {
    let score = |at: &str| {
        let text = format!(
            "duration = \"9.6s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"4Mbps\", delay = \"10ms\" }}\n\
             [[flow]]\nname = \"video\"\n{}\nreceivers = 2\n[[event]]\nat = \"{at}s\"\njoin = \"video.dst2\"\n",
            FIXED.replace("greedy", "synthetic")
        );
        let run = run(&text);
        let receiver = run.receiver("video", "video.dst2");
        (num(&receiver["rate_score"]), num(&receiver["frames"]["undecodable"]))
    };
    // Groups of twelve frames: one begins at 8.64 s, of which two are shown in either case.
    let (whole, none) = score("8.62");
    let (cut, some) = score("8.42");
    assert_eq!((none, some > 2.0), (0.0, true), "{some}");
    between(cut - whole, -0.001, 0.001);
}

#[test]
fn a_pause_between_two_groups_of_pictures_is_no_freeze() {
    let run = run(&one_link(
        "rate = \"4Mbps\"\ndelay = \"10ms\"",
        "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\nparams.fixed = { rate = \"1Mbps\" }\n\
         start = \"0s\"\nplayout = \"adaptive\"\nfrom = \"s\"\nto = \"r\"\n\
         [[event]]\nat = \"4.79s\"\nstop = \"video\"\n[[event]]\nat = \"15s\"\nstart = \"video\"\n",
    ));
    let receiver = run.receiver("video", "r");
    assert_eq!(num(&receiver["frames"]["sent"]), 120.0 + 125.0);
    assert_eq!(num(&receiver["freeze_count"]), 0.0, "{receiver}");
}

#[test]
fn a_tcp_that_starts_again_is_another_connection() {
    let tcp = "[[flow]]\nname = \"tcp\"\nkind = \"tcp\"\nfrom = \"s\"\nto = \"r\"\nstart = \"0s\"\n\
               [[event]]\nat = \"4s\"\nstop = \"tcp\"\n[[event]]\nat = \"10s\"\nstart = \"tcp\"\n\
               [[event]]\nat = \"14s\"\nstop = \"tcp\"\n[record]\npackets = \"all\"\n";
    let run = run(&one_link("rate = \"2Mbps\"\ndelay = \"10ms\"", tcp));
    let sent = run.sent("tcp");
    assert!(!sent.iter().any(|r| r.at > 4.0 && r.at < 10.0) && !sent.iter().any(|r| r.at > 14.0));
    assert_eq!(sent.iter().find(|r| r.at >= 10.0).map(|r| r.seq), Some(0), "it counts from the start");
    // The second stretch behaves like the first: no state is left over.
    let from = |at: f64| sent.iter().filter(|r| r.at >= at && r.at < at + 4.0).map(|r| r.seq).collect::<Vec<_>>();
    assert!(from(0.0) == from(10.0) && from(0.0).len() > 400);
    between(num(&run.flow("tcp")["throughput_bps"]), 1.2e6, 2.01e6);
}

#[test]
fn a_video_goes_on_with_whole_groups_of_pictures_after_a_pause() {
    for controller in ["fixed", "tfrc", "asmp", "tfmcc"] {
        let rate = if controller == "fixed" { "params.fixed = { rate = \"1Mbps\" }\n" } else { "" };
        let text = one_link(
            "rate = \"4Mbps\"\ndelay = \"10ms\"",
            &format!(
                "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{controller}\"\n{rate}\
                 from = \"s\"\nto = \"r\"\nstart = \"1s\"\n\
                 [[event]]\nat = \"5.1s\"\nstop = \"video\"\n[[event]]\nat = \"12s\"\nstart = \"video\"\n\
                 [record]\npackets = \"all\"\n"
            ),
        );
        let run = run(&text);
        let sent = run.sent("video");
        assert!(!sent.iter().any(|r| r.at > 5.1 && r.at < 12.0), "{controller}");
        assert!(sent.windows(2).all(|w| w[1].seq == w[0].seq + 1), "{controller}: numbers go on");
        let receiver = run.receiver("video", "r");
        assert_eq!(num(&receiver["loss_frac"]), 0.0, "{controller}");
        // 4.1 s and 8 s of frames. Some of the first stretch's last frames may have waited in the pacer.
        assert_eq!(num(&receiver["frames"]["sent"]), 103.0 + 200.0, "{controller}");
        between(num(&receiver["frames"]["ok"]), 290.0, 303.0);
        assert_eq!(num(&receiver["frames"]["undecodable"]), 0.0, "{controller}");
        let tables = run.simulation.table("frames").unwrap();
        let real = |name: &str| match tables.get(name).unwrap() {
            steadycast_sim::Values::Real(v) => v.clone(),
            _ => Vec::new(),
        };
        let (pts, ready) = (real("pts_s"), real("ready_s"));
        assert_eq!(pts.len(), 303);
        assert!(pts.iter().zip(&ready).all(|(p, r)| (p - r).abs() < 1e-6), "{controller}: no B frames here");
        assert!(pts[..103].iter().all(|p| *p < 5.1) && pts[103..].iter().all(|p| *p >= 12.0));
    }
}

#[test]
fn a_stopped_video_says_bye_and_its_receiver_reports_no_more_of_it() {
    let text = one_link(
        "rate = \"4Mbps\"\ndelay = \"10ms\"",
        &format!("[[flow]]\nname = \"video\"\n{FIXED}from = \"s\"\nto = \"r\"\nstop = \"5s\"\n"),
    );
    let run = run(&text);
    let flow = run.flow("video");
    // A report per 360/2000 s (RFC 3550, 6.2) for 5 s; nothing in the 15 s thereafter.
    between(num(&flow["feedback_packets"]), 20.0, 40.0);
    between(num(&flow["throughput_bps"]), 0.99e6, 1.0e6);
}

#[test]
fn a_recorded_link_delivers_its_mean_rate() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("claims");
    std::fs::create_dir_all(&folder).unwrap();
    // 1500 B in 6 ms and 1500 B in 18 ms, alternating: 1 Mb/s.
    let lines: String = (0..100).map(|n| format!("{}\n{}\n", 24 * n + 6, 24 * n + 24)).collect();
    std::fs::write(folder.join("link.mahi"), lines).unwrap();
    let text = one_link("trace = \"link.mahi\"\nloop = true", &CBR.replace("1Mbps", "2Mbps"));
    let loaded = steadycast_scenario::Scenario::parse(&text, &folder.join("s.toml")).unwrap_or_else(|p| panic!("{p}"));
    let mut simulation = lab::build(&loaded.scenario);
    assert!(simulation.run(|_| true));
    let summary = simulation.summary(true);
    between(num(&summary["flows"][0]["throughput_bps"]), 0.985e6, 1.005e6);
    between(num(&summary["links"][0]["utilisation_frac"]), 0.99, 1.0);
}

#[test]
fn nothing_leaves_in_a_hole_of_a_table_and_delay_and_loss_follow_theirs() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("claims");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let trace = file("rates.csv", "t_s,mbps\n0,4\n1,0\n2,4\n");
    let (delay, loss) = (file("delays.csv", "0 10\n10 30\n"), file("losses.csv", "0 0\n15 1\n"));
    let lines = format!("trace = {trace:?}\ndelay_trace = {delay:?}\nloss_trace = {loss:?}");
    let run = run(&one_link(&lines, &format!("{CBR}[record]\npackets = \"all\"\n")));
    let rows = run.arrived("cbr", "r");
    // Every 3 s the link stops for one second; the first packet arrives 2 ms and the delay later.
    for (round, delay) in [(0.0, 0.010), (3.0, 0.010), (9.0, 0.030), (12.0, 0.030)] {
        let there: Vec<_> = rows.iter().map(|row| row.at - round - delay).filter(|at| *at > 1.003).collect();
        between(there[0], 2.001_999, 2.002_001);
    }
    assert!(rows.iter().all(|row| row.at < 15.033) && rows.iter().any(|row| row.at > 15.0));
    let least = |from: f64, until: f64| {
        let part = rows.iter().filter(|row| (from..until).contains(&row.at));
        part.map(|row| row.delay_ms).fold(f64::MAX, f64::min)
    };
    between(least(0.0, 10.0), 11.999, 12.001);
    between(least(10.1, 15.0), 31.999, 32.001);
}

/// A scenario file with such an event is refused when it is read, but a program can compose a scenario.
#[test]
fn a_trace_is_not_changed_by_an_event_in_silence() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("claims");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text, key, change) in [
        ("other.mahi", "12\n24\n", "trace", "rate = \"1Mbps\""),
        ("other_delays.csv", "0 10\n10 30\n", "delay_trace", "delay = \"1ms\""),
        ("other_losses.csv", "0 0\n15 1\n", "loss_trace", "loss = { kind = \"none\" }"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
        let file = folder.join(name).display().to_string();
        let mut composed = scenario(&one_link(&format!("{key} = {file:?}\nloop = true"), CBR));
        assert!(Simulation::build(&composed, &Inputs::default()).is_ok());
        let event = format!("{CBR}[[event]]\nat = \"5s\"\nset = {{ link = \"l\", {change} }}\n");
        composed.events = scenario(&one_link("rate = \"2Mbps\"", &event)).events;
        let error = Simulation::build(&composed, &Inputs::default()).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|e| e.starts_with("link.l: a trace holds")), "{key}: {error:?}");
    }
}

#[test]
fn jitter_keeps_the_order_unless_it_may_not() {
    let jitter = |reorder: bool| {
        let jitter = format!("jitter = {{ mean = \"8ms\", dist = \"exponential\", reorder = {reorder} }}");
        let lines = format!("rate = \"10Mbps\"\ndelay = \"10ms\"\n{jitter}");
        run(&one_link(&lines, &format!("{CBR}[record]\npackets = \"all\"\n")))
    };
    let overtaken = |rows: &[Row]| rows.windows(2).filter(|w| w[1].seq < w[0].seq).count() as f64;
    let mean = |rows: &[Row]| rows.iter().map(|r| r.delay_ms).sum::<f64>() / rows.len() as f64;
    let (kept, mixed) = (jitter(false).arrived("cbr", "r"), jitter(true).arrived("cbr", "r"));
    assert_eq!((kept.len(), mixed.len()), (2_500, 2_500));
    assert_eq!(overtaken(&kept), 0.0);
    // Two exponential delays differ by more than their means' distance with probability e⁻¹/2 = 0.18.
    between(overtaken(&mixed) / 2_500.0, 0.13, 0.23);
    between(mean(&mixed), 10.8 + 7.4, 10.8 + 8.6);
    assert!(mean(&kept) > mean(&mixed) + 1.0, "who keeps the order waits for others");
    let ids = |rows: &[Row]| {
        let mut ids: Vec<i64> = rows.iter().map(|r| r.seq).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&mixed), (0..2_500).collect::<Vec<_>>(), "each arrives once");
}

#[test]
fn retransmission_on_the_link_turns_loss_into_delay() {
    let with = |arq: &str| {
        let lines = format!("rate = \"10Mbps\"\ndelay = \"10ms\"\nloss = {{ kind = \"bernoulli\", p = 0.3 }}\n{arq}");
        run(&one_link(&lines, CBR))
    };
    let (bare, mended) = (with(""), with("arq = { tries = 7, per_try = \"4ms\" }"));
    let of = |run: &lab::Run, what: &str| num(&run.receiver("cbr", "r")[what]);
    between(of(&bare, "loss_frac"), 0.27, 0.33);
    assert_eq!(num(&bare.receiver("cbr", "r")["delay_ms"]["max"]), 10.8);
    // 0.3⁷ = 0.02 % are lost after all retransmissions.
    between(of(&mended, "loss_frac"), 0.0, 0.002);
    let delay = &mended.receiver("cbr", "r")["delay_ms"];
    between(num(&delay["p50"]), 10.6, 11.0);
    between(num(&delay["p95"]), 15.0, 30.0);
}

#[test]
fn on_off_sources_have_their_mean_rate() {
    let mean = |on: &str, off: &str| {
        let rates = (1..=4).map(|seed| {
            let text = format!(
                "duration = \"300s\"\nseed = {seed}\nnodes = [\"s\", \"r\"]\n[[link]]\nbetween = [\"s\", \"r\"]\n\
                 [[flow]]\nname = \"noise\"\nkind = \"onoff\"\nrate = \"200kbps\"\non = {on}\noff = {off}\n\
                 from = \"s\"\nto = \"r\"\n"
            );
            num(&run(&text).flow("noise")["throughput_bps"])
        });
        rates.sum::<f64>() / 4.0
    };
    // Half of the time, with a standard error of 3 % over 1200 periods, larger with Pareto's tail.
    let exponential = "{ dist = \"exponential\", mean = \"500ms\" }";
    between(mean(exponential, exponential), 92e3, 108e3);
    let pareto = "{ dist = \"pareto\", mean = \"500ms\", shape = 1.9 }";
    between(mean(pareto, pareto), 85e3, 115e3);
    let constant = "{ dist = \"constant\", mean = \"1s\" }";
    between(mean(constant, "{ dist = \"constant\", mean = \"3s\" }"), 49e3, 51e3);
}

#[test]
fn send_jitter_breaks_the_lock_of_phases() {
    let losses = |jitter: &str| {
        let flow = |name: &str| {
            format!("{}send_jitter = \"{jitter}\"\n", CBR.replace("cbr\"\nkind", &format!("{name}\"\nkind")))
        };
        let lines = "rate = \"1.5Mbps\"\ndelay = \"10ms\"\nqueue = { limit = \"10p\" }";
        let run = run(&one_link(lines, &(flow("one") + &flow("two"))));
        [num(&run.receiver("one", "r")["loss_frac"]), num(&run.receiver("two", "r")["loss_frac"])]
    };
    let locked = losses("0s");
    assert!((locked[0] - locked[1]).abs() > 0.2, "{locked:?}: equal flows in step, one takes it all");
    let free = losses("8ms");
    between(free[0], 0.2, 0.3);
    between(free[1], 0.2, 0.3);
}

#[test]
fn a_mark_reaches_the_receiver() {
    let queue = "queue = { kind = \"red\", limit = \"50p\", min \
                 = \"5p\", max = \"15p\", max_p = 0.1, weight = 0.02, ecn = true }";
    let lines = format!("rate = \"2Mbps\"\ndelay = \"20ms\"\n{queue}");
    let tcp = "[[flow]]\nname = \"tcp\"\nkind = \"tcp\"\necn = true\nfrom = \"s\"\nto = \"r\"\nwindow = \"60p\"\n\
               [record]\npackets = \"all\"\n";
    let run = run(&one_link(&lines, tcp));
    let link = run.link("l", "forward").unwrap();
    let marked = run.arrived("tcp", "r").iter().filter(|r| r.ce).count() as f64;
    between(marked, 20.0, 600.0);
    // The packets that the link marked, minus those that it lost or that are in flight.
    between(num(&link["marked_packets"]) - marked, 0.0, 3.0);
    between(num(&link["utilisation_frac"]), 0.85, 1.0);
}

#[test]
fn fair_shares_are_max_min_fair() {
    let flow = |name: &str, from: &str, to: &str| {
        format!("[[flow]]\nname = \"{name}\"\nkind = \"tcp\"\nfrom = \"{from}\"\nto = \"{to}\"\n")
    };
    let run = run(&format!(
        "duration = \"2s\"\nnodes = [\"a\", \"b\", \"c\"]\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"4Mbps\"\n\
         [[link]]\nbetween = [\"b\", \"c\"]\nrate = \"10Mbps\"\n{}{}{}{}",
        flow("long", "a", "c"),
        flow("first", "a", "b"),
        flow("second", "b", "c"),
        CBR.replace("\"s\"", "\"b\"").replace("\"r\"", "\"c\""),
    ));
    let share = |name: &str| num(&run.flow(name)["fair_share_bps"]);
    assert_eq!([share("long"), share("first"), share("second"), share("cbr")], [2e6, 2e6, 7e6, 1e6]);
}

#[test]
fn a_link_that_follows_a_trace_is_shared_as_the_trace_has_it() {
    let flow = |name: &str, from: &str, to: &str| {
        format!("[[flow]]\nname = \"{name}\"\nkind = \"tcp\"\nfrom = \"{from}\"\nto = \"{to}\"\n")
    };
    let text = format!(
        "duration = \"2s\"\nnodes = [\"a\", \"b\", \"c\"]\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"4Mbps\"\n\
         [[link]]\nbetween = [\"b\", \"c\"]\ntrace = \"../../scenarios/traces/lte-synthetic.mahi\"\nloop = true\n{}{}",
        flow("over", "a", "c"),
        flow("before", "a", "b"),
    );
    let run = run(&text);
    // What the trace carries in each second, up to half of the 4 Mb/s; the other flow gets the rest.
    let share = |name: &str| num(&run.flow(name)["fair_share_bps"]);
    between(share("over"), 0.1e6, 2e6);
    between(share("over") + share("before"), 4e6 - 4.0, 4e6);
    assert!(run.flow("over")["share_of_fair"].is_number());
}

#[test]
fn what_limited_the_rate_adds_up_to_one() {
    for controller in ["fixed", "tfrc", "asmp", "tfmcc"] {
        let text = one_link(
            "rate = \"700kbps\"\ndelay = \"20ms\"",
            &format!(
                "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{controller}\"\nfrom = \"s\"\n\
                 to = \"r\"\n"
            ),
        );
        let run = run(&text);
        let parts = &run.flow("video")["limited_by_frac"];
        let sum: f64 = ["network", "encoder", "start", "cap"].iter().map(|k| num(&parts[*k])).sum();
        between(sum, 1.0 - 1e-9, 1.0 + 1e-9);
        if controller != "fixed" {
            // The ladder needs up to 12 Mb/s on a link of 0.7 Mb/s.
            assert!(num(&parts["network"]) >= 0.5, "{controller}: {parts}");
        }
    }
}

#[test]
fn an_empty_stretch_is_no_run_time_error() {
    // A start at the very end, a flow to its own node, an immediate stop: every valid input runs.
    let text = one_link("", &format!("{CBR}start = \"19.9999s\"\nstop = \"20s\"\n"));
    assert_eq!(num(&run(&text).flow("cbr")["sent_packets"]), 1.0);
    let sc = scenario(&one_link("", CBR));
    assert_eq!(sc.flows.len(), 1);
}
