//! Shares refer to what the links carried, to the flows that were active, and to what each of them could use. A
//! flow's share of its fair share covers the time in which it competes.

use crate::lab;

use lab::{Run, between, num, run};
use proptest::prelude::*;

/// Runs twenty seconds of a dumbbell with this bottleneck and these flows.
fn beside(bottleneck: &str, rest: &str) -> Run {
    run(&format!(
        "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ delay = \"10ms\", {bottleneck} }}\n\
         access = {{ rate = \"1Gbps\" }}\n{rest}"
    ))
}

fn tcp(name: &str, more: &str) -> String {
    format!("[[flow]]\nname = \"{name}\"\nkind = \"tcp\"\n{more}\n")
}

fn set(at: u64, what: &str) -> String {
    format!("[[event]]\nat = \"{at}s\"\nset = {{ link = \"bottleneck\", {what} }}\n")
}

fn share(run: &Run, name: &str) -> f64 {
    num(&run.flow(name)["fair_share_bps"])
}

fn of_fair(run: &Run, name: &str) -> f64 {
    num(&run.flow(name)["share_of_fair"])
}

/// Returns the throughput of a flow that never competes, divided by what its links could carry.
fn of_links(run: &Run, name: &str) -> f64 {
    let flow = run.flow(name);
    assert!(flow["share_of_fair"].is_null() && num(&flow["competing_s"]) == 0.0, "{flow}");
    num(&flow["throughput_bps"]) / share(run, name)
}

const QUEUE: &str = "queue = { kind = \"droptail\", limit = \"60ms\" }";

#[test]
fn a_flow_alone_has_all_that_its_link_carried_whatever_events_made_of_it() {
    let rate = format!("rate = \"10Mbps\", {QUEUE}");
    // A single flow can't get more than its link carried. A CUBIC that fills it misses the first second and a part of
    // each reduction.
    for (at, fair) in [(0, 2e6), (5, 4e6), (10, 6e6)] {
        let run = beside(&rate, &format!("{}{}", tcp("a", ""), set(at, "rate = \"2Mbps\"")));
        assert_eq!(share(&run, "a"), fair, "{at}");
        between(of_links(&run, "a"), 0.85, 1.005);
    }
    let lost = "loss = { kind = \"bernoulli\", p = 1.0 }";
    let dead = beside(&format!("{rate}, {lost}"), &tcp("a", ""));
    assert!(dead.flow("a")["ramp_s"]["share_80pct"].is_null(), "{}", dead.flow("a"));
    let outage = beside(&rate, &format!("{}{}{}", tcp("a", ""), set(8, lost), set(13, "loss = { kind = \"none\" }")));
    assert_eq!(share(&outage, "a"), 7.5e6);
}

#[test]
fn a_policer_bounds_the_share() {
    let bottleneck = "rate = \"100Mbps\", policer = { rate = \"10Mbps\", burst = \"300kB\" }";
    let run = beside(bottleneck, &tcp("a", ""));
    assert_eq!(share(&run, "a"), 10e6);
    // The bucket adds 300 kB to the 25 MB of 20 s: 1.2 %.
    between(of_links(&run, "a"), 0.5, 1.012);
}

#[test]
fn a_share_is_of_the_time_in_which_others_are_there() {
    // Two and three downloads that start and stop independently. While they compete they have one fair share, and
    // their throughputs add up to what the link carried. Times follow a fixed rule, in seconds.
    let rate = format!("rate = \"2Mbps\", {QUEUE}");
    for case in 0..12_u64 {
        let (start, stop) = (1 + case * 7 % 9, 12 + case * 5 % 8);
        let run = beside(
            &rate,
            &format!("{}{}", tcp("a", ""), tcp("b", &format!("start = \"{start}s\"\nstop = \"{stop}s\""))),
        );
        let together = (stop - start) as f64;
        for name in ["a", "b"] {
            assert_eq!((num(&run.flow(name)["competing_s"]), share(&run, name)), (together, 1e6), "{case} {name}");
        }
        // Packets that wait when a flow ends arrive later, and the start of the second flow takes some time.
        between(of_fair(&run, "a") + of_fair(&run, "b"), 1.75, 2.08);
    }
    let third = tcp("c", "start = \"5s\"\nstop = \"15s\"");
    let run = beside(&rate, &format!("{}{}{third}", tcp("a", ""), tcp("b", "")));
    assert_eq!(num(&run.flow("a")["competing_s"]), 20.0);
    between(share(&run, "a"), 0.83e6, 0.84e6);
    between(share(&run, "c"), 0.66e6, 0.67e6);
    between(of_fair(&run, "a") + of_fair(&run, "b"), 1.6, 2.3);
}

#[test]
fn flows_that_leave_room_on_a_link_do_not_compete() {
    let cbr = |name: &str, rate: &str| format!("[[flow]]\nname = \"{name}\"\nkind = \"cbr\"\nrate = \"{rate}\"\n");
    let run = beside(&format!("rate = \"2Mbps\", {QUEUE}"), &format!("{}{}", cbr("x", "400kbps"), cbr("y", "1Mbps")));
    between(of_links(&run, "x"), 0.99, 1.01);
    between(of_links(&run, "y"), 0.99, 1.01);
    let run = beside(&format!("rate = \"2Mbps\", {QUEUE}"), &format!("{}{}", cbr("x", "400kbps"), tcp("y", "")));
    assert_eq!((num(&run.flow("x")["competing_s"]), share(&run, "x"), share(&run, "y")), (20.0, 4e5, 1.6e6));
}

#[test]
fn what_an_encoder_at_its_best_leaves_is_the_others_and_it_has_all_of_its_share() {
    let video = "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"steady\"\n\
        media = \"rfc8593\"\nrfc8593 = { r_max = \"1Mbps\" }\n";
    let run = beside("rate = \"8Mbps\", queue = { kind = \"fq-codel\" }", &format!("{}{video}", tcp("a", "")));
    // The queue gives it everything that it can use; its start-up costs some of that.
    between(share(&run, "video"), 0.6e6, 1.1e6);
    between(of_fair(&run, "video"), 0.8, 1.02);
    between(share(&run, "a") + share(&run, "video"), 7.9999e6, 8e6);
    between(of_fair(&run, "a"), 0.85, 1.03);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_video_that_others_starve_has_less_than_its_share(video in 300_u64..=950, cbr in 2_000_u64..=4_000) {
        // The video's demand is what it sends. If it were what arrives, the video would always have all of its share.
        let flows = format!(
            "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\nmedia = \"rfc8593\"\n\
             params.fixed = {{ rate = \"{video}kbps\" }}\n\
             [[flow]]\nname = \"cbr\"\nkind = \"cbr\"\nrate = \"{cbr}kbps\"\n"
        );
        let run = beside(&format!("rate = \"2Mbps\", {QUEUE}"), &flows);
        between(share(&run, "video") / (video as f64 * 1e3), 0.9, 1.1);
        between(share(&run, "cbr") / (2e6 - share(&run, "video")), 0.999, 1.001);
        // A full queue may drop one flow's packets more often than the other's, because both come at regular times.
        prop_assert!(of_fair(&run, "video") < 0.98, "{}", run.flow("video"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn steady_does_not_send_more_than_a_link_with_a_queue_of_a_few_packets_carries(
        kbps in 500_u64..=5_000,
        packets in 1_u64..=6,
        delay in 5_u64..=60,
        beside in any::<bool>(),
    ) {
        let video = "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"steady\"\nmedia = \"greedy\"\n";
        let tcp = if beside { tcp("tcp", "send_jitter = \"1ms\"") } else { String::new() };
        let run = run(&format!(
            "duration = \"60s\"\nwarmup = \"30s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ delay = \"{delay}ms\", rate = \"{kbps}kbps\", \
             queue = {{ kind = \"droptail\", limit = \"{packets}p\" }} }}\n\
             access = {{ rate = \"1Gbps\" }}\n{video}{tcp}"
        ));
        let flow = run.flow("video");
        // (The first bound, a loss of 12 %, was changed after its first run: a CUBIC's bursts alone cause 20 % of loss
        // in a queue of two packets.)
        let sent = num(&flow["throughput_bps"]) / (1.0 - num(&flow["receivers"][0]["loss_frac"]));
        prop_assert!(sent <= 1.1 * kbps as f64 * 1e3, "{}", flow);
    }
}

#[test]
fn each_of_several_receivers_that_are_served_one_by_one_is_one_of_those_who_share() {
    let video = "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"tfrc\"\nmedia = \"greedy\"\n\
        receivers = 3\ncast = \"unicast\"\n";
    let run = beside(&format!("rate = \"4Mbps\", {QUEUE}"), &format!("{}{video}", tcp("a", "")));
    assert_eq!((share(&run, "video"), share(&run, "a")), (1e6, 1e6));
}

#[test]
fn a_video_that_has_sent_all_that_it_had_is_no_longer_there() {
    let video = "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\nmedia = \"greedy\"\n\
                 bytes = \"500kB\"\n\
        params.fixed = { rate = \"1Mbps\" }\n";
    let run = beside(&format!("rate = \"2Mbps\", {QUEUE}"), &format!("{}{video}", tcp("a", "")));
    // It takes 4 s for 500 kB at 1 Mb/s.
    between(of_fair(&run, "video"), 0.9, 1.05);
    between(num(&run.flow("a")["competing_s"]), 3.9, 4.5);
    // In its last second it can use no more than its remaining data.
    between(share(&run, "video"), 0.9e6, 1e6);
    between(share(&run, "a") + share(&run, "video"), 2e6 - 2.0, 2e6);
}

#[test]
fn a_groups_share_is_that_of_its_members_at_each_time() {
    // The slow receiver limits the group to 0.4 of 4 Mb/s while it is a member, from `joins` to `leaves`.
    for (joins, leaves) in [(0_u32, 5_u32), (0, 13), (4, 9), (7, 20)] {
        let event = |at: u32, what: &str| format!("[[event]]\nat = \"{at}s\"\n{what} = \"slow\"\n");
        let join = if joins > 0 { event(joins, "join") } else { String::new() };
        let leave = if leaves < 20 { event(leaves, "leave") } else { String::new() };
        let run = run(&format!(
            "duration = \"20s\"\nnodes = [\"s\", \"r\", \"fast\", \"slow\"]\n\
             [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"4Mbps\"\ndelay = \"5ms\"\n\
             [[link]]\nbetween = [\"r\", \"fast\"]\nrate = \"10Mbps\"\ndelay = \"5ms\"\n\
             [[link]]\nbetween = [\"r\", \"slow\"]\nrate = \"400kbps\"\ndelay = \"5ms\"\n\
             [[flow]]\nname = \"group\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"tfmcc\"\n\
             from = \"s\"\nto = [\"fast\", \"slow\"]\n{}{join}{leave}",
            tcp("tcp", "from = \"s\"\nto = \"fast\"")
        ));
        let slow = f64::from(leaves - joins);
        let fair = (0.4e6 * slow + 2e6 * (20.0 - slow)) / 20.0;
        let case = format!("from {joins} to {leaves} s");
        assert!((share(&run, "group") - fair).abs() < 2.0, "{case}: {}", run.flow("group"));
        assert!((share(&run, "tcp") - (4e6 - fair)).abs() < 2.0, "{case}: {}", run.flow("tcp"));
        // The rate of the group is the mean over time, in which each second has the mean of its members.
        let nodes = lab::text(&run, "rates", "node");
        let rates = lab::real(&run, "rates", "throughput_bps");
        let of =
            |name: &str| nodes.iter().zip(&rates).filter(|row| row.0 == name).map(|row| *row.1).collect::<Vec<_>>();
        let (fast, slow) = (of("fast"), of("slow"));
        let rate: f64 = fast.iter().zip(&slow).map(|(a, b)| if b.is_nan() { *a } else { (a + b) / 2.0 }).sum::<f64>();
        between(of_fair(&run, "group") * fair / (rate / 20.0), 0.999, 1.001);
    }
}
