//! Simulcast: groups that carry the same video at different rates, and the receivers' choice of group.
#![allow(clippy::unwrap_used)]

use crate::lab;

use lab::{Run, between, num, real, run, text};
use serde_json::Value;

/// Returns a source, a router, and receivers r1, r2 … behind links of these rates in Mb/s. The three groups start at
/// 100, 600 and 1500 kb/s.
fn network(rates: &[f64], seconds: u32, more: &str) -> String {
    let legs: String = rates
        .iter()
        .enumerate()
        .map(|(n, mbps)| {
            let n = n + 1;
            format!(
                "[[link]]\nname = \"l{n}\"\nbetween = [\"hub\", \"n{n}\"]\nrate = \"{}kbps\"\ndelay = \"20ms\"\n\
                 [[link]]\nbetween = [\"n{n}\", \"r{n}\"]\nrate = \"100Mbps\"\ndelay = \"1ms\"\n",
                mbps * 1e3
            )
        })
        .collect();
    let count = rates.len();
    let groups: String = [("low", 100, 500), ("mid", 600, 1_400), ("high", 1_500, 4_000)]
        .iter()
        .map(|(name, floor, cap)| {
            format!(
                "[[flow]]\nname = \"{name}\"\nkind = \"video\"\ncontroller = \"asmp\"\nmedia = \"greedy\"\n\
                 packet = \"1000B\"\n\
                 from = \"s\"\nto = [\"r[1-{count}]\"]\ncast = \"multicast\"\nfloor = \"{floor}kbps\"\n\
                 cap = \"{cap}kbps\"\n\
                 rtcp = {{ profile = \"asmp\" }}\n"
            )
        })
        .collect();
    format!(
        "duration = \"{seconds}s\"\nleave_latency = \"1s\"\nnodes \
         = [\"s\", \"hub\", \"n[1-{count}]\", \"r[1-{count}]\"]\n\
         [[link]]\nbetween = [\"s\", \"hub\"]\nrate = \"100Mbps\"\ndelay = \"5ms\"\n{legs}{groups}\
         [[simulcast]]\nname = \"layers\"\nflows = [\"low\", \"mid\", \"high\"]\n{more}"
    )
}

fn receiver<'a>(run: &'a Run, name: &str) -> &'a Value {
    let all = run.summary["simulcasts"][0]["receivers"].as_array().unwrap();
    all.iter().find(|r| r["name"] == name).unwrap()
}

/// Returns the time, receiver, old and new group of every switch.
fn moves(run: &Run) -> Vec<(f64, String, String, String)> {
    let [who, from, to] = ["receiver", "from", "to"].map(|name| text(run, "moves", name));
    let all = real(run, "moves", "t_s").into_iter().zip(who).zip(from).zip(to);
    all.map(|(((at, who), from), to)| (at, who, from, to)).collect()
}

/// Returns what a flow's source sends per second.
fn sent(run: &Run, flow: &str) -> Vec<f64> {
    let (flows, nodes) = (text(run, "rates", "flow"), text(run, "rates", "node"));
    let rates = real(run, "rates", "throughput_bps").into_iter().zip(flows).zip(nodes);
    rates.filter(|((_, f), n)| f == flow && n == "s").map(|((rate, _), _)| rate).collect()
}

fn controlled(text: &str, controller: &str) -> Run {
    run(&text.replace("\"asmp\"\nmedia", &format!("\"{controller}\"\nmedia")))
}

#[test]
fn each_receiver_ends_in_the_group_that_its_link_carries_and_the_slow_one_holds_nobody_back() {
    for controller in ["asmp", "tfmcc"] {
        let run = controlled(&network(&[0.5, 1.2, 4.0], 120, ""), controller);
        let last = |name: &str| moves(&run).iter().rfind(|m| m.1 == name).map_or("low".to_owned(), |m| m.3.clone());
        assert_eq!(["r1", "r2", "r3"].map(last), ["low", "mid", "high"], "{controller}: {:?}", moves(&run));
        // The fast receiver climbs for about 25 s; a single rate would be the slow one's 0.5 Mb/s.
        between(num(&receiver(&run, "r3")["throughput_bps"]), 2.0e6, 4.0e6);
        between(num(&receiver(&run, "r2")["throughput_bps"]), 0.6e6, 1.2e6);
        between(num(&receiver(&run, "r1")["throughput_bps"]), 0.3e6, 0.5e6);
        between(num(&run.summary["simulcasts"][0]["utilisation_frac"]), 0.55, 1.0);
    }
}

#[test]
fn down_goes_at_once_when_the_link_falls_and_up_again_after_the_hold() {
    for controller in ["asmp", "tfmcc"] {
        let events = "[[event]]\nat = \"40s\"\nset = { link = \"l1\", rate = \"400kbps\" }\n\
                      [[event]]\nat = \"60s\"\nset = { link = \"l1\", rate = \"1200kbps\" }\n";
        // What the sender does just before the link falls differs from seed to seed: the median is judged, and all are
        // bounded. The bound of 44 s held for seed 1 alone until `asmp` began to halve at a BYE; the wider one for each
        // seed was set then.
        let mut downs = Vec::new();
        for seed in 1..=5 {
            let run = controlled(&format!("seed = {seed}\n{}", network(&[1.2], 120, events)), controller);
            let switches = moves(&run);
            let down = switches.iter().find(|m| m.0 > 40.0 && m.3 == "low");
            let down = down.unwrap_or_else(|| panic!("{controller}: {switches:?}")).0;
            between(down, 40.0, 46.0);
            downs.push(down);
            let up = switches.iter().find(|m| m.0 > down && m.0 > 60.0 && m.3 == "mid");
            between(up.unwrap_or_else(|| panic!("{controller}: {switches:?}")).0, 60.0, 100.0);
        }
        downs.sort_by(f64::total_cmp);
        between(downs[2], 40.0, 44.0);
    }
}

#[test]
fn in_a_steady_network_moves_become_few() {
    for controller in ["asmp", "tfmcc"] {
        // Each link's rate lies between two groups: the lower one has no loss, the next one too much. Each attempt to
        // join the next one doubles the hold time; with a constant hold of 10 s there would be about twenty attempts.
        let run = controlled(&network(&[0.55, 1.45], 300, ""), controller);
        let switches = moves(&run);
        for name in ["r1", "r2"] {
            let times: Vec<f64> = switches.iter().filter(|m| m.1 == name).map(|m| m.0).collect();
            let late = times.iter().filter(|at| **at > 150.0).count();
            assert!((2..=16).contains(&times.len()) && late <= 4, "{controller}: {name} at {times:?}");
        }
    }
}

#[test]
fn a_group_without_receivers_is_not_sent_and_starts_when_one_comes() {
    let run = run(&network(&[4.0], 60, ""));
    let switches = moves(&run);
    assert_eq!(switches.iter().map(|m| m.3.as_str()).collect::<Vec<_>>(), ["mid", "high"]);
    let rates = sent(&run, "low");
    // It pauses five report intervals after the last report of any receiver.
    let gone = switches[0].0 as usize;
    assert!(rates[5] > 1e5 && rates[gone + 8..].iter().all(|r| *r == 0.0), "{rates:?}");
    // The receiver gets packets of the new group half a second after its join.
    let high = sent(&run, "high");
    let joined = switches[1].0 as usize;
    assert!(high[..joined - 1].iter().all(|r| *r == 0.0) && high[joined + 2] > 0.7e6, "{high:?}");
}

#[test]
fn the_same_seed_gives_the_same_moves() {
    let text = network(&[0.5, 1.2, 4.0], 60, "");
    let (a, b) = (run(&text), run(&text));
    assert_eq!(moves(&a), moves(&b));
    assert_eq!(a.summary["record_sha256"], b.summary["record_sha256"]);
}
