//! The parts of the summary beside the flows.

use crate::lab;

use lab::{between, num, run};
use serde_json::Value;
use steadycast_endpoints::Record;

/// One greedy video and a TCP.
fn beside_tcp(lines: &str) -> String {
    format!(
        "duration = \"30s\"\n{lines}\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"2Mbps\", delay = \"20ms\", queue = {{ kind = \"droptail\", limit = \"30p\" }} }}\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"CONTROLLER\"\n\
         [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\npacket = \"1200B\"\n"
    )
}

fn invariant<'a>(summary: &'a Value, id: &str) -> Option<&'a Value> {
    summary["invariants"].as_array().and_then(|all| all.iter().find(|one| one["id"] == id))
}

#[test]
fn controllers_keep_an_eye_on_their_promises_and_hold_them() {
    let promises = [
        ("asmp", "asmp.a-packet-per-report"),
        ("asmp", "asmp.least-counts"),
        ("asmp", "rtcp.share"),
        ("tfmcc", "tfmcc.a-packet-per-round"),
        ("eaio-tfrc", "aio-tfrc.one-in-n-marked"),
        ("tfrc", "tfrc.at-most-twice"),
        ("pgmcc", "pgmcc.within-window"),
    ];
    for (controller, id) in promises {
        let run = run(&beside_tcp("").replace("CONTROLLER", controller));
        let Some(found) = invariant(&run.summary, id) else { panic!("{controller}: no {id}") };
        // Between once per second and once per packet.
        between(num(&found["checked"]), 25.0, 6_300.0);
        assert_eq!(found["broken"], 0, "{controller}: {found}");
    }
}

#[test]
fn controllers_in_one_run_keep_their_promises_apart() {
    let text = beside_tcp("").replace("CONTROLLER", "steady");
    let asmp = "[[flow]]\nname = \"other\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"asmp\"\n";
    let run = run(&format!("{text}{asmp}"));
    let all = run.summary["invariants"].as_array().cloned().unwrap_or_default();
    let ids: Vec<&str> = all.iter().filter_map(|one| one["id"].as_str()).collect();
    let least = ["asmp.a-packet-per-report", "asmp.least-counts", "rtcp.share", "steady.at-most-twice"];
    assert!(least.iter().all(|id| ids.contains(id)), "{ids:?}");
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    assert!(all.iter().all(|one| one["about"].as_str().is_some_and(|said| !said.is_empty())));
}

#[test]
fn what_is_not_promised_is_not_checked() {
    let paper = beside_tcp("").replace("\"CONTROLLER\"", "\"asmp\"\nmode = \"paper\"");
    assert_eq!(invariant(&run(&paper).summary, "asmp.a-packet-per-report"), None);
    // Feedback once per RTT has no bound.
    assert_eq!(invariant(&run(&beside_tcp("").replace("CONTROLLER", "tfrc")).summary, "rtcp.share"), None);
}

#[test]
fn a_link_s_means_leave_the_warm_up_out_and_its_counts_do_not() {
    // The link is congested in the warm-up only, because the TCP stops 1 s before the warm-up ends.
    let text = beside_tcp("warmup = \"15s\"")
        .replace("CONTROLLER", "fixed")
        .replace("media = \"greedy\"", "media = \"greedy\"\nparams.fixed = { rate = \"500kbps\" }");
    let text = format!("{text}stop = \"14s\"\n");
    let (warm, whole) = (run(&text), run(&text.replace("warmup = \"15s\"", "")));
    let link = |run: &lab::Run| {
        run.summary["links"].as_array().and_then(|all| all.iter().find(|l| l["name"] == "bottleneck").cloned())
    };
    let (Some(warm), Some(whole)) = (link(&warm), link(&whole)) else { panic!("no bottleneck") };
    assert_eq!(warm["offered_packets"], whole["offered_packets"]);
    assert_eq!(warm["dropped_packets"], whole["dropped_packets"]);
    between(num(&warm["utilisation_frac"]), 0.24, 0.27);
    between(num(&whole["utilisation_frac"]), 0.55, 0.7);
    between(num(&warm["queue_ms"]["p95"]), 0.0, 1.0);
    between(num(&whole["queue_ms"]["p95"]), 50.0, 145.0);
    assert_eq!(num(&warm["drop_frac"]), 0.0);
    between(num(&whole["drop_frac"]), 1e-4, 0.05);
}

#[test]
fn a_flow_s_means_leave_the_warm_up_out_and_its_counts_do_not() {
    // The link is congested until 1 s before the warm-up ends, because its rate rises then.
    let repaired = "media = \"greedy\"\nrepair = \"rtx\"\nparams.fixed = { rate = \"500kbps\" }";
    let text = beside_tcp("warmup = \"15s\"").replace("CONTROLLER", "fixed").replace("media = \"greedy\"", repaired);
    let text = format!(
        "{text}[[flow]]\nname = \"early\"\nkind = \"tcp\"\nstop = \"14s\"\n\
         [[event]]\nat = \"14s\"\nset = {{ link = \"bottleneck\", rate = \"40Mbps\" }}\n"
    );
    let (warm, whole) = (run(&text), run(&text.replace("warmup = \"15s\"", "")));
    for (flow, count) in [("video", "repair_packets"), ("tcp", "sent_packets"), ("early", "sent_packets")] {
        between(num(&warm.flow(flow)[count]), 1.0, 1e6);
        assert_eq!(warm.flow(flow)[count], whole.flow(flow)[count], "{flow} {count}");
    }
    assert_eq!(num(&warm.flow("video")["repair_bps"]), 0.0);
    between(num(&whole.flow("video")["repair_bps"]), 1e3, 1e5);
    // The reports come at an even rate.
    let feedback = |run: &lab::Run| num(&run.flow("video")["feedback_bps"]);
    between(feedback(&warm) / feedback(&whole), 0.9, 1.1);
    between(num(&warm.flow("tcp")["srtt_ms"]["max"]), 40.0, 80.0);
    between(num(&whole.flow("tcp")["srtt_ms"]["max"]), 120.0, 400.0);
    between(num(&warm.flow("tcp")["cwnd_packets"]["mean"]), num(&whole.flow("tcp")["cwnd_packets"]["mean"]) + 1.0, 1e4);
    for unknown in ["/srtt_ms/p50", "/cwnd_packets/mean", "/throughput_bps"] {
        assert!(warm.flow("early").pointer(unknown).is_some_and(Value::is_null), "{unknown}");
    }
}

/// Returns what a link of 10 Mb/s with 20 Mb/s offered used, and its throughput, with these events.
fn overloaded(events: &[(&str, &str)]) -> (Option<f64>, f64) {
    let each = events.iter().map(|(at, rate)| {
        format!(
            "[[event]]\nat = \"{at}\"\nset = {{ link = \"bottleneck\", direction = \"forward\", rate = \"{rate}\" }}\n"
        )
    });
    let run = run(&format!(
        "duration = \"20s\"\nwarmup = \"2s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"10Mbps\", delay = \"10ms\", queue = {{ limit = \"100p\" }} }}\n\
         [[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"20Mbps\"\n{}",
        each.collect::<String>()
    ));
    let used = run.link("bottleneck", "forward").expect("it carried the flow")["utilisation_frac"].as_f64();
    (used, num(&run.flow("c")["throughput_bps"]) / 1e6)
}

#[test]
fn a_link_that_is_always_busy_used_all_it_could_whatever_events_change_its_rate() {
    let near = |got: (Option<f64>, f64), mbps: f64| {
        let (used, through) = got;
        assert!(used.is_some_and(|used| (0.999..=1.0001).contains(&used)), "{got:?}");
        assert!((through / mbps - 1.0).abs() < 0.01, "{got:?}, and not {mbps}");
    };
    near(overloaded(&[]), 10.0);
    near(overloaded(&[("0s", "2Mbps")]), 2.0);
    near(overloaded(&[("0s", "10Mbps")]), 10.0);
    // Eight seconds at ten, then ten at four.
    near(overloaded(&[("10s", "2Mbps"), ("10s", "4Mbps")]), 120.0 / 18.0);
    near(overloaded(&[("5s", "1Mbps"), ("5s", "2Mbps"), ("5s", "10Mbps")]), 10.0);
    // An outage of six seconds.
    near(overloaded(&[("6s", "0bps"), ("12s", "10Mbps")]), 120.0 / 18.0);
}

#[test]
fn an_event_takes_a_link_s_limit_away() {
    let (used, through) = overloaded(&[("11s", "none")]);
    assert_eq!(used, None, "nobody knows what it could have carried");
    // Nine seconds at ten, then nine at everything that is offered.
    assert!((through / 15.0 - 1.0).abs() < 0.01, "{through}");
}

#[test]
fn a_tcp_whose_window_holds_less_than_its_share_is_a_warning_and_another_is_none() {
    // 10 Mb/s hold 100,000 bytes in a round trip of 80 ms: 67 packets.
    for (window, few) in [("60p", true), ("70p", false)] {
        let run = run(&format!(
            "duration = \"4s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"10Mbps\", delay = \"40ms\", queue = \"100p\" }}\n\
             access = {{ rate = \"none\", delay = \"0ms\" }}\n\
             [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\nwindow = \"{window}\"\n"
        ));
        let emulated = Record { world: "emulated", ..run.simulation.record() }.summary(true);
        for summary in [&run.summary, &emulated] {
            let said = summary["warnings"].to_string();
            let expected = "the window limits it, and not the network; make flow.tcp.window \\\"67p\\\" or more";
            assert_eq!(said.contains(expected), few, "{window}: {said}");
        }
    }
}

#[test]
fn the_kernels_window_limits_an_emulated_tcp_whatever_the_scenario_gives_it() {
    // 1 Gb/s hold 10 MB in an RTT of 80 ms: 6,667 packets. The kernel's window grows to 4,194.
    let run = run("duration = \"100ms\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = { rate = \"1Gbps\", delay = \"40ms\", queue = \"100p\" }\n\
         access = { rate = \"none\", delay = \"0ms\" }\n\
         [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\nwindow = \"6700p\"\n");
    let said = |world| Record { world, ..run.simulation.record() }.summary(true)["warnings"].to_string();
    assert!(!said("simulated").contains("the window limits it"), "{}", said("simulated"));
    let want = "its window holds 6291000 bytes, and its fair share 10000000 in a round trip of 80ms: the window limits \
                it, and not the network; no larger one is opened here";
    assert!(said("emulated").contains(want), "{}", said("emulated"));
}

/// Whatever the encoder's rule is, a source without frames sends at the controller's rate: it has no large frames that
/// need more.
#[test]
fn a_greedy_source_sends_at_the_controllers_rate_whatever_vbr_is() {
    for vbr in ["bucket", "evalvid", "ladder", "frame", "frame\"\nroom = 10.0\nwait = \"1s", "rungs"] {
        let text = beside_tcp("").replace("CONTROLLER", "fixed").replace(
            "media = \"greedy\"",
            &format!("media = \"greedy\"\nvbr = \"{vbr}\"\nparams.fixed = {{ rate = \"300kbps\" }}"),
        );
        let sent = num(&run(&text).flow("video")["sent_packets"]);
        // 30 s at 300 kb/s in packets of 1200 B.
        between(sent, 900.0, 945.0);
    }
}
