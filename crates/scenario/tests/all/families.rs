//! The format describes the networks of all five papers: one unusual network of each kind, written out.

use std::path::Path;
use steadycast_link::RunLoss;
use steadycast_scenario::{FlowIx, FlowKind, Limit, Loss, Queue, RateSpec, Scenario, Workload};
use steadycast_settings::Packets;
use steadycast_units::{Rate, Span};

fn load(text: &str) -> Scenario {
    let loaded = Scenario::parse(text, Path::new("family.toml")).unwrap_or_else(|p| panic!("{p}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let again = Scenario::parse(&loaded.resolved_toml(), Path::new("again.toml")).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(again.scenario, loaded.scenario);
    loaded.scenario
}

#[test]
fn a_base_station_with_exponential_runs_between_losses() {
    let s = load(
        r#"
duration = "9000s"
nodes = ["s", "bs", "r"]
[[link]]
between = ["s", "bs"]
rate = "10Mbps"
delay = "10ms"
[[link]]
between = ["bs", "r"]
rate = "1Mbps"
delay = "70ms"
loss = { kind = "run", mean = "12.5p" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "greedy"
cap = "1Mbps"
packet = "1000B"
from = "s"
to = "r"
"#,
    );
    assert_eq!(s.links[1].forward.loss, Loss::Run(RunLoss { mean: Packets(12.5) }));
    assert_eq!(s.links[1].back.loss, Loss::None, "downlink only");
}

#[test]
fn routers_in_a_row_with_red_on_one_of_them() {
    let s = load(
        r#"
duration = "200s"
nodes = ["s", "r[1-3]", "fast[1-3]", "slow[1-3]", "node[7-8]"]
[[link]]
between = ["s", "r1"]
rate = "10Mbps"
delay = "5ms"
[[link]]
between = ["r1", "fast[1-3]"]
rate = "10Mbps"
delay = "5ms"
[[link]]
between = ["r1", "r2"]
rate = "10Mbps"
delay = "5ms"
[[link]]
name = "bottleneck"
between = ["r2", "r3"]
rate = "500kbps"
delay = "20ms"
queue = { kind = "red", preset = "ns2" }
[[link]]
between = ["r3", "slow[1-3]"]
[[link]]
between = ["r[2-3]", "node[7-8]"]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "greedy"
cap = "1Mbps"
from = "s"
to = ["fast[1-3]", "slow[1-3]"]
[[flow]]
name = "tcp"
kind = "tcp"
preset = "ns2"
from = "node7"
to = "node8"
"#,
    );
    let names: Vec<_> = s.links.iter().skip(9).map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["r2-node7", "r3-node8"], "two ranges of equal length go one by one");
    let Queue::Red(red) = &s.links[5].forward.queue else { panic!("{:?}", s.links[5]) };
    assert!((red.weight - 0.00797).abs() < 5e-6);
    assert_eq!(s.links[6].forward.queue, Queue::drop_tail(Limit::Packets(50)));
}

#[test]
fn a_late_receiver_behind_a_slow_link_comes_and_goes() {
    let s = load(
        r#"
duration = "150s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "2.5Mbps", delay = "20ms", queue = { kind = "red" } }
access = { rate = "10Mbps", delay = "5ms" }
[[link]]
name = "right-video.dst5"
rate = "300kbps"
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
receivers = 5
[[flow]]
name = "tcp"
count = 4
kind = "tcp"
preset = "ns2"
[[event]]
at = "50s"
join = "video.dst5"
[[event]]
at = "100s"
leave = "video.dst5"
"#,
    );
    assert_eq!(s.starts_outside(FlowIx(0)), [4]);
    assert_eq!(s.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["video", "tcp1", "tcp2", "tcp3", "tcp4"]);
    let slow = &s.links[s.link("right-video.dst5").unwrap().0 as usize];
    assert_eq!(slow.forward.rate, RateSpec::Constant(Rate::kbps(300)));
}

#[test]
fn a_star_of_a_hundred_lossy_links_with_late_joiners() {
    let s = load(
        r#"
duration = "600s"
[topology]
shape = "star"
legs = [{ count = 101, rate = "10Mbps", delay = "50ms", loss = { kind = "bernoulli", p = 0.01 } }]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
receivers = 100
[[flow]]
name = "tcp"
kind = "tcp"
preset = "ns2"
to = "leg101"
[[event]]
at = "300s"
join = "video.leg[11-100]"
"#,
    );
    assert_eq!(s.starts_outside(FlowIx(0)).len(), 90);
    assert_eq!((s.links.len(), s.flows[1].to.len()), (101, 1));
}

#[test]
fn heterogeneous_legs_with_tcp_and_udp_that_come_and_go() {
    let s = load(
        r#"
duration = "300s"
[topology]
shape = "star"
legs = [
    { name = "r[1-7]", count = 7, rate = "2Mbps", delay = "10ms" },
    { name = "r8", rate = "2Mbps", delay = "100ms" },
]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "greedy"
cap = "1Mbps"
receivers = 8
[[flow]]
name = "tcp-a[1-8]"
kind = "tcp"
preset = "ns2"
to = "r[1-8]"
on = { dist = "pareto", mean = "5s", shape = 1.5 }
off = { dist = "pareto", mean = "5s", shape = 1.5 }
[[flow]]
name = "udp-a[1-8]"
kind = "onoff"
to = "r[1-8]"
rate = "400kbps"
on = { dist = "pareto", mean = "5s", shape = 1.5 }
off = { dist = "pareto", mean = "5s", shape = 1.5 }
"#,
    );
    assert_eq!(s.flows.len(), 17);
    assert_eq!(s.node_name(s.flows[8].to[0]), "r8", "tcp-a8");
    let FlowKind::Tcp(tcp) = &s.flows[8].kind else { panic!() };
    assert!(matches!(tcp.source, Workload::OnOff { rate: None, .. }));
    assert_eq!(s.links[7].forward.delay, Span::millis(100));
}

#[test]
fn forty_eight_tcps_beside_a_receivers_buffer_and_a_file_that_takes_its_time() {
    let s = load(
        r#"
duration = "60s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "500kbps", delay = "10ms" }
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
media = "greedy"
bytes = "1MB"
packet = "160B"
buffer = { size = "16KiB", consume = "8kbps" }
cap = "64kbps"
[[flow]]
name = "tcp"
count = 48
kind = "tcp"
preset = "ns2old"
start = { uniform = ["0s", "1s"] }
"#,
    );
    assert_eq!(s.flows.len(), 49);
    let FlowKind::Tcp(tcp) = &s.flows[48].kind else { panic!() };
    assert_eq!((tcp.config.min_rto, tcp.config.tick), (Span::secs(1), Span::millis(100)));
}

#[test]
fn radio_losses_in_steps_and_a_link_that_changes_its_rate() {
    let s = load(
        r#"
duration = "350s"
[topology]
shape = "star"
legs = [
    { rate = "2Mbps", delay = "30ms", loss = { kind = "bernoulli", p = 0.05 } },
    { rate = "2Mbps", delay = "30ms", loss = { kind = "bernoulli", p = 0.08 } },
]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
receivers = 2
[[event]]
at = "50s"
join = "video.leg2"
[[event]]
at = "100s"
set = { link = "hub-leg1", direction = "forward", rate = "1Mbps", loss = { kind = "none" } }
[[event]]
at = "300s"
leave = "leg2"
"#,
    );
    assert_eq!(s.events.len(), 3);
}
