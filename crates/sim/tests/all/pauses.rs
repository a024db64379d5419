//! The summary of a source that pauses.

use crate::lab;

use lab::{between, num, run};
use serde_json::Value;

/// A 2 Mb/s link with 40 ms of round trip.
const LINK: &str = "duration = \"60s\"\nwarmup = \"10s\"\n[topology]\nshape = \"dumbbell\"\n\
    bottleneck = { rate = \"2Mbps\", delay = \"20ms\", queue = { kind = \"droptail\", limit = \"30p\" } }\n\
    access = { rate = \"100Mbps\" }\n";

#[test]
fn pages_are_counted_and_timed_and_the_share_is_of_the_time_in_which_they_load() {
    // Alone, 100 kB take a few round trips of slow start and the rest at 2 Mb/s; then a pause of 2 s.
    let web =
        "[[flow]]\nname = \"web\"\nkind = \"tcp\"\nbytes = \"100kB\"\noff = { dist = \"constant\", mean = \"2s\" }\n";
    let alone = run(&format!("{LINK}{web}"));
    let flow = alone.flow("web");
    let (mean, active) = (num(&flow["transfer_mean_ms"]) / 1e3, num(&flow["active_frac"]));
    between(mean, 0.4, 0.8);
    between(num(&flow["transfer_ms"]["p95"]) / 1e3, mean * 0.9, mean * 1.2);
    between(num(&flow["transfers_count"]), 60.0 / (mean + 2.0) - 1.0, 60.0 / (mean + 2.0) + 1.0);
    between(active, mean / (mean + 2.0) - 0.02, mean / (mean + 2.0) + 0.02);
    // All data arrived while the source was active.
    let busy = num(&flow["active_throughput_bps"]);
    between(busy * active / num(&flow["throughput_bps"]), 0.999, 1.001);
    assert_eq!(num(&flow["fair_share_bps"]), 2e6);
    assert!(flow["share_of_fair"].is_null(), "it competes with nobody");
    between(busy, 1.2e6, 2e6);
    assert!(alone.summary["fairness"]["jain"].is_null());
}

#[test]
fn an_on_off_source_has_a_share_of_what_it_sends_while_on() {
    for kind in ["onoff", "tcp"] {
        let text = format!(
            "{LINK}[[flow]]\nname = \"x\"\nkind = \"{kind}\"\nrate = \"400kbps\"\n\
             on = {{ dist = \"constant\", mean = \"1s\" }}\noff = {{ dist = \"constant\", mean = \"3s\" }}\n"
        );
        let beside = run(&format!("{text}[[flow]]\nname = \"y\"\nkind = \"tcp\"\n"));
        let (x, y) = (beside.flow("x"), beside.flow("y"));
        between(num(&x["competing_s"]), 12.0, 15.0);
        assert_eq!([num(&x["fair_share_bps"]), num(&y["fair_share_bps"])], [400e3, 1.6e6], "{kind}");
        between(num(&x["share_of_fair"]), if kind == "onoff" { 0.8 } else { 0.3 }, 1.05);
        between(num(&y["share_of_fair"]), 0.8, 1.25);
        let run = run(&text);
        let flow = run.flow("x");
        between(num(&flow["active_frac"]), 0.24, 0.28);
        between(num(&flow["active_throughput_bps"]), 380e3, 420e3);
        assert_eq!(num(&flow["fair_share_bps"]), 400e3, "{kind}");
        assert!(flow["share_of_fair"].is_null(), "{kind} competes with nobody");
        assert!(flow.get("transfer_ms").is_none(), "{kind} has no transfers");
        if kind == "onoff" {
            // No queueing: 20 ms, plus 4 ms for 1000 B at 2 Mb/s and 0.08 ms at each access link.
            let receiver = run.receiver("x", "x.dst1");
            between(num(&receiver["delay_mean_ms"]), 24.15, 24.17);
            between(num(&receiver["delay_ms"]["p50"]) / num(&receiver["delay_mean_ms"]), 0.99, 1.01);
        }
    }
}

#[test]
fn what_pauses_is_not_taken_for_treated_unfairly_in_its_pauses() {
    let beside = |more: &str| {
        let flow = |name: &str, more: &str| format!("[[flow]]\nname = \"{name}\"\nkind = \"tcp\"\n{more}");
        run(&format!("{LINK}{}{}{}", flow("a", ""), flow("b", "start = \"1s\"\n"), flow("c", more)))
    };
    // Jain's index by its definition.
    let of = |run: &lab::Run, names: &[&str]| {
        let rates: Vec<f64> = names.iter().map(|name| num(&run.flow(name)["throughput_bps"])).collect();
        let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|x| x * x).sum::<f64>());
        sum * sum / (rates.len() as f64 * squares)
    };
    let index = |run: &lab::Run| num(&run.summary["fairness"]["jain"]);
    // The index of two continuous flows does not change with a third one that loads a page every 10 s.
    let pages = beside("bytes = \"50kB\"\noff = { dist = \"constant\", mean = \"10s\" }\n");
    between(index(&pages), 0.9, 1.0);
    between(index(&pages), of(&pages, &["a", "b"]) - 1e-9, of(&pages, &["a", "b"]) + 1e-9);
    between(num(&pages.summary["fairness"]["jain_1s"]["mean"]), 0.8, 1.0);
    // A file that is not complete before the end never paused: the flow counts as one of three.
    let long = beside("bytes = \"100MB\"\n");
    between(num(&long.flow("c")["active_frac"]), 0.9999, 1.0);
    between(num(&long.flow("c")["share_of_fair"]), 0.6, 1.4);
    between(index(&long), of(&long, &["a", "b", "c"]) - 1e-9, of(&long, &["a", "b", "c"]) + 1e-9);
    assert!(long.flow("c").get("transfers_count").is_none());
}

#[test]
fn a_second_counts_for_fairness_once_both_flows_are_there() {
    let text = format!(
        "{}[[flow]]\nname = \"a\"\nkind = \"tcp\"\n[[flow]]\nname = \"b\"\nkind = \"tcp\"\nstart = \"30s\"\n",
        LINK.replace("warmup = \"10s\"\n", "")
    );
    let run = run(&text);
    // With the 30 s before the start of the second flow, at 1/2, the mean would be below 0.75.
    between(num(&run.summary["fairness"]["jain_1s"]["mean"]), 0.8, 1.0);
}

#[test]
fn a_source_with_short_periods_has_a_share_of_what_it_sends_while_on() {
    // Sources that pause at random times, and so compete in parts of their periods only. Each sends 1 Mb/s while on,
    // whatever the network does, and no packet is lost.
    for (on, off) in [("1ms", "249ms"), ("10ms", "500ms"), ("100ms", "4s")] {
        let text = format!(
            "{}[[flow]]\nname = \"x\"\ncount = 8\nkind = \"onoff\"\nrate = \"1Mbps\"\n\
             packet = \"125B\"\non = {{ dist = \"constant\", mean = \"{on}\" }}\n\
             off = {{ dist = \"exponential\", mean = \"{off}\" }}\n[record]\ninterval = \"INTERVAL\"\n",
            LINK.replace("30p", "1000p")
        );
        for interval in ["1s", "100ms"] {
            let run = run(&text.replace("INTERVAL", interval));
            let rate = |x: &Value| num(&x["share_of_fair"]) * num(&x["fair_share_bps"]);
            let rates: Vec<f64> = (1..=8).map(|n| rate(run.flow(&format!("x{n}")))).collect();
            between(rates.iter().sum::<f64>() / 8.0, 0.8e6, 1.2e6);
        }
    }
}
