//! A run is determined by the scenario and its seed. The random numbers of a flow or link do not depend on other
//! flows.

use crate::lab;

use lab::{Row, build, run, scenario};
use proptest::prelude::*;
use steadycast_units::{Span, Time};

fn busy(seed: u64, controller: &str) -> String {
    format!(
        "duration = \"8s\"\nseed = {seed}\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"2Mbps\", delay = \"10ms\", loss = {{ kind = \"bernoulli\", p = 0.01 }}, \
         queue = {{ kind = \"red\", preset = \"classic\" }} }}\n\
         access = {{ rate = \"10Mbps\", delay = \"5ms\", jitter = {{ mean = \"1ms\", reorder = true }} }}\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{controller}\"\n{}\n\
         [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\nsend_jitter = \"1ms\"\nstart = {{ uniform = [\"0s\", \"1s\"] }}\n\
         [[flow]]\nname = \"noise\"\nkind = \"onoff\"\nrate = \"400kbps\"\n\
         on = {{ dist = \"pareto\", mean = \"500ms\", shape = 1.5 }}\n\
         off = {{ dist = \"exponential\", mean = \"500ms\" }}\n",
        if controller == "tfrc" { "" } else { "receivers = 5" }
    )
}

fn summary_of(seed: u64, controller: &str) -> String {
    run(&busy(seed, controller)).summary.to_string()
}

#[test]
fn equal_runs_have_equal_summaries_to_the_last_byte_also_side_by_side() {
    for controller in ["asmp", "tfmcc", "tfrc"] {
        let alone = summary_of(1, controller);
        let many: Vec<_> = (0..4).map(|_| std::thread::spawn(move || summary_of(1, controller))).collect();
        for run in many {
            assert_eq!(run.join().ok().as_ref(), Some(&alone), "{controller}");
        }
    }
}

#[test]
fn another_seed_gives_another_record() {
    let sha = |seed| run(&busy(seed, "asmp")).summary["record_sha256"].clone();
    let all = [sha(1), sha(2), sha(3)];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
}

#[test]
fn how_often_a_run_is_interrupted_to_look_does_not_change_it() {
    let scenario = scenario(&busy(1, "asmp"));
    let (mut looked, mut straight) = (build(&scenario), build(&scenario));
    let mut times = 0;
    assert!(looked.run(|_| {
        times += 1;
        true
    }));
    assert!(straight.run(|_| true) && times >= 8);
    let _ = looked.summary(false);
    assert_eq!(looked.summary(true).to_string(), straight.summary(true).to_string());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_run_in_steps_of_any_length_is_the_run_in_one_go(steps in prop::collection::vec(1..900_u64, 1..40)) {
        let scenario = scenario(&busy(1, "tfrc"));
        let (mut stepped, mut straight) = (build(&scenario), build(&scenario));
        let mut at = Time::ZERO;
        for step in steps {
            at += Span::millis(step);
            let over = stepped.run_to(at);
            prop_assert_eq!((over, stepped.now()), (at >= stepped.end(), at.min(stepped.end())));
        }
        prop_assert!(stepped.run(|_| true) && straight.run(|_| true));
        prop_assert_eq!(stepped.summary(true).to_string(), straight.summary(true).to_string());
    }
}

/// Two hosts with separate links that have loss and jitter, and flows that draw random numbers. `more` adds other
/// flows.
fn apart(more: &str, video: &str) -> Vec<Vec<Row>> {
    let text = format!(
        "duration = \"6s\"\nnodes = [\"s\", \"r\", \"x\", \"y\", \"z\"]\n\
         [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"2Mbps\"\ndelay = \"5ms\"\njitter = {{ mean = \"1ms\" }}\n\
         loss = {{ kind = \"gilbert\", p_bad = 0.02, p_good = 0.3, loss_good = 0, loss_bad = 0.5 }}\n\
         [[link]]\nbetween = [\"x\", \"y\"]\nrate = \"1Mbps\"\nloss = {{ kind = \"bernoulli\", p = 0.1 }}\n\
         [[link]]\nbetween = [\"y\", \"z\"]\n\
         {more}[[flow]]\nname = \"noise\"\nkind = \"onoff\"\nrate = \"400kbps\"\non = {{ mean = \"200ms\" }}\n\
         off = {{ mean = \"200ms\" }}\nsend_jitter = \"3ms\"\nfrom = \"s\"\nto = \"r\"\n\
         start = {{ uniform = [\"0s\", \"1s\"] }}\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{video}\"\nfrom = \"s\"\nto = \"r\"\n\
         {}[record]\npackets = [\"noise\", \"video\"]\n",
        if more.is_empty() { String::new() } else { more.replace("one", "two") }
    );
    let run = run(&text);
    ["noise", "video"].iter().map(|flow| run.packets(flow)).collect()
}

#[test]
fn a_flow_more_elsewhere_reshuffles_nothing() {
    for video in ["asmp", "tfrc"] {
        let alone = apart("", video);
        assert!(alone.iter().all(|rows| rows.len() > 100));
        for more in [
            "[[flow]]\nname = \"one\"\nkind = \"onoff\"\nrate = \"300kbps\"\non = { mean = \"100ms\" }\n\
             off = { mean = \"100ms\" }\nfrom = \"x\"\nto = \"y\"\nsend_jitter = \"2ms\"\n",
            "[[flow]]\nname = \"one\"\nkind = \"tcp\"\nfrom = \"x\"\nto = \"y\"\n\
             start = { uniform = [\"0s\", \"1s\"] }\n",
            "[[flow]]\nname = \"one\"\nkind = \"video\"\ncontroller = \"asmp\"\nfrom = \"x\"\nto = [\"y\", \"z\"]\n",
        ] {
            assert!(apart(more, video) == alone, "{video} beside {more}");
        }
    }
}

#[test]
fn a_flow_more_on_the_same_link_draws_nothing_of_the_others() {
    // The send times of an on/off source do not depend on other flows on its link.
    let sent = |more: &str| {
        let text = format!(
            "duration = \"6s\"\nnodes = [\"s\", \"r\"]\n[[link]]\nbetween = [\"s\", \"r\"]\nrate = \"1Mbps\"\n\
             loss = {{ kind = \"bernoulli\", p = 0.1 }}\n{more}\
             [[flow]]\nname = \"noise\"\nkind = \"onoff\"\nrate = \"400kbps\"\non = {{ mean = \"200ms\" }}\n\
             off = {{ mean = \"200ms\" }}\nsend_jitter = \"3ms\"\nfrom = \"s\"\nto = \"r\"\n[record]\n\
             packets = [\"noise\"]\n"
        );
        run(&text).sent("noise")
    };
    let alone = sent("");
    assert!(alone.len() > 100);
    assert!(sent("[[flow]]\nname = \"other\"\nkind = \"tcp\"\nfrom = \"s\"\nto = \"r\"\n") == alone);
}

/// A random tree of nodes with random links and flows.
#[derive(Clone, Debug)]
struct Net {
    parents: Vec<usize>,
    links: Vec<(u32, u32, u32, u8)>,
    flows: Vec<(usize, usize, u8, u32)>,
    seed: u64,
}

fn net() -> impl Strategy<Value = Net> {
    (2usize..7).prop_flat_map(|nodes| {
        let parents = (1..nodes).map(|n| (0..n).boxed()).collect::<Vec<_>>();
        let link = (500u32..4_000, 0u32..60, 1u32..30, 0u8..7);
        let links = prop::collection::vec(link, nodes - 1);
        let flows = prop::collection::vec((0..nodes, 0..nodes, 0u8..6, 20u32..3_000), 1..5);
        (parents, links, flows, 1u64..1_000).prop_map(|(parents, links, flows, seed)| Net {
            parents,
            links,
            flows,
            seed,
        })
    })
}

impl Net {
    /// Returns how many packets a link can hold: a full queue and the packets in flight. No packet is smaller than 40
    /// B, and a jitter of 5 ms practically never exceeds 100 ms.
    fn holds(&self, name: &serde_json::Value, direction: &serde_json::Value) -> u64 {
        let number = name.as_str().and_then(|n| n.strip_prefix('l')?.parse::<usize>().ok()).unwrap_or(usize::MAX);
        let Some((rate, delay, limit, kind)) = self.links.get(number) else { return 0 };
        let rate = if direction == "back" && *kind == 3 { 100 } else { *rate };
        let queue = match kind {
            4 => limit + 6,
            5 => 1_500 * limit / 40,
            _ => *limit,
        };
        // kb/s · ms = bits
        u64::from(queue) + u64::from(rate * (delay + 100)).div_ceil(8 * 40)
    }

    fn text(&self) -> String {
        let mut text = format!("duration = \"2s\"\nseed = {}\nnodes = [\"n[0-{}]\"]\n", self.seed, self.links.len());
        for (n, (parent, (rate, delay, limit, kind))) in self.parents.iter().zip(&self.links).enumerate() {
            let extra = match kind {
                0 => "loss = { kind = \"bernoulli\", p = 0.1, direction = \"both\" }\n",
                1 => "jitter = { mean = \"5ms\", reorder = true }\n",
                2 => "arq = { tries = 3, per_try = \"3ms\" }\nloss = { kind = \"run\", mean = \"20p\" }\n",
                3 => "jitter = { mean = \"5ms\" }\nback = { rate = \"100kbps\" }\n",
                _ => "",
            };
            let queue = match kind {
                4 => {
                    format!("{{ kind = \"red\", limit = \"{}p\", min = \"2p\", max = \"6p\", ecn = true }}", limit + 6)
                }
                5 => format!("{{ limit = \"{}B\" }}", 1_500 * limit),
                _ => format!("{{ limit = \"{limit}p\" }}"),
            };
            text += &format!(
                "[[link]]\nname = \"l{n}\"\nbetween = [\"n{parent}\", \"n{}\"]\nrate = \"{rate}kbps\"\n\
                 delay = \"{delay}ms\"\n\
                 queue = {queue}\n{extra}",
                n + 1
            );
        }
        for (n, (from, to, kind, rate)) in self.flows.iter().enumerate() {
            let to = if from == to { (to + 1) % (self.links.len() + 1) } else { *to };
            text += &format!("[[flow]]\nname = \"f{n}\"\nfrom = \"n{from}\"\nsend_jitter = \"1ms\"\n");
            text += &match kind {
                0 => format!("kind = \"cbr\"\nrate = \"{rate}kbps\"\nto = \"n{to}\"\n"),
                1 => format!(
                    "kind = \"onoff\"\nrate = \"{rate}kbps\"\non = {{ mean = \"300ms\" }}\n\
                     off = {{ mean = \"300ms\" }}\nto = \"n{to}\"\n"
                ),
                2 => format!("kind = \"tcp\"\ncongestion = \"cubic\"\necn = true\nto = \"n{to}\"\n"),
                3 => format!("kind = \"video\"\ncontroller = \"tfrc\"\nmedia = \"greedy\"\nto = \"n{to}\"\n"),
                kind => {
                    let all: Vec<String> =
                        (0..=self.links.len()).filter(|m| m != from).map(|m| format!("\"n{m}\"")).collect();
                    let controller = if *kind == 4 { "asmp" } else { "tfmcc" };
                    let cast = if all.len() > 1 { "cast = \"multicast\"\n" } else { "" };
                    format!("kind = \"video\"\ncontroller = \"{controller}\"\n{cast}to = [{}]\n", all.join(", "))
                }
            };
        }
        text + "[record]\npackets = \"all\"\n"
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_built_runs_conserves_packets_and_keeps_their_order(net in net()) {
        let text = net.text();
        let run = run(&text);
        let reorders = net.links.iter().any(|l| l.3 == 1);
        for link in run.summary["links"].as_array().into_iter().flatten() {
            let [offered, arrived, dropped] =
                ["offered_packets", "packets", "dropped_packets"].map(|k| link[k].as_u64().unwrap_or(u64::MAX));
            // Packets in flight at the end still arrive, unless the queue takes longer to drain.
            prop_assert!(arrived + dropped <= offered, "{link}");
            let flying = offered - arrived - dropped;
            let holds = net.holds(&link["name"], &link["direction"]);
            prop_assert!(flying <= holds, "{flying} of at most {holds} still under way: {link}");
            let used = link["utilisation_frac"].as_f64().unwrap_or(0.0);
            prop_assert!((0.0..=1.0).contains(&used), "{link}");
        }
        for (n, (from, to, kind, _)) in net.flows.iter().enumerate() {
            if from == to || *kind > 1 {
                continue;
            }
            let name = format!("f{n}");
            let (sent, arrived) = (run.sent(&name), run.arrived(&name, &format!("n{to}")));
            prop_assert!(arrived.len() <= sent.len());
            let mut ids: Vec<i64> = arrived.iter().map(|r| r.seq).collect();
            prop_assert!(reorders || ids.is_sorted(), "in order");
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), arrived.len(), "each once");
            prop_assert!(arrived.iter().all(|r| r.delay_ms >= 0.0));
        }
        prop_assert!(!run.summary.to_string().contains("NaN"));
    }

    #[test]
    fn stopped_at_any_time_no_packet_is_lost_track_of(net in net(), stop in 1u32..19) {
        let scenario = scenario(&net.text().replace("[record]", "[record]\ninterval = \"100ms\""));
        let mut simulation = build(&scenario);
        let mut steps = 0;
        let complete = simulation.run(|_| {
            steps += 1;
            steps < stop
        });
        prop_assert!(!complete && simulation.now() < simulation.end());
        let summary = simulation.summary(complete);
        prop_assert_eq!(&summary["complete"], &serde_json::Value::Bool(false));
        for link in summary["links"].as_array().into_iter().flatten() {
            let count = |k: &str| link[k].as_u64().unwrap_or(u64::MAX);
            prop_assert!(count("packets") + count("dropped_packets") <= count("offered_packets"), "{}", link);
        }
    }
}
