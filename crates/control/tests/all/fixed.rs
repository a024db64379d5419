//! The constant rate, and the harness itself.

use crate::harness;

use harness::bench::{Bench, Clock, Link, Marking};
use harness::{Loss, Path, Plan, Source, assert_between, s};
use steadycast_control::Limit;
use steadycast_control::registry::Given;
use steadycast_units::{Bytes, Ecn, Rate, Span};

fn plan(path: Path) -> Plan {
    Plan::new("fixed", path).set("rate", Given::Text("1Mbps".into()))
}

#[test]
fn the_rate_stays_whatever_happens_on_the_way() {
    let mut world = plan(Path::clean(Span::millis(80)).losing(Loss::Bernoulli(0.3))).build();
    world.run_until(s(20.0));
    assert_eq!(world.decisions.len(), 1);
    assert_between(world.sent_rate(s(0.0), s(20.0)), Rate::kbps(999), Rate::kbps(1_001));
    let loss = world.loss(0, s(0.0), s(19.0));
    assert!((0.27..=0.33).contains(&loss), "{loss}");
    assert_eq!(world.share_limited_by(Limit::Cap, s(0.0), s(20.0)), 1.0);
}

#[test]
fn a_bottleneck_at_half_the_rate_fills_its_queue_and_drops_the_other_half() {
    let mut world = plan(Path::clean(Span::millis(80)).bottleneck(Rate::kbps(500), 20)).build();
    world.run_until(s(20.0));
    assert_between(world.received_rate(0, s(5.0), s(20.0)), Rate::kbps(499), Rate::kbps(501));
    let loss = world.loss(0, s(5.0), s(19.0));
    assert!((0.49..=0.51).contains(&loss), "{loss}");
    // Twenty packets of 16 ms each, including the one in service.
    let queue = world.queue_delay(0, 0.95, s(5.0), s(20.0));
    assert!((Span::millis(304)..=Span::millis(320)).contains(&queue), "{queue}");
}

#[test]
fn a_source_with_less_to_send_is_sent_as_it_comes() {
    let mut world = plan(Path::clean(Span::millis(80))).build();
    world.source = Source::Rate(Rate::kbps(200));
    world.run_until(s(10.0));
    assert_between(world.sent_rate(s(0.0), s(10.0)), Rate::kbps(199), Rate::kbps(201));
    world.source = Source::Idle;
    world.run_until(s(20.0));
    assert!(world.sent_rate(s(10.1), s(20.0)) == Rate::ZERO);
}

#[test]
fn frames_over_a_link_with_room_arrive_whole_and_without_a_queue() {
    let mut bench = Bench::new(Link::new(Rate::mbps(2), Span::millis(40)), &[plan(Path::clean(Span::ZERO))]);
    bench.run_until(s(20.0));
    assert_between(bench.received_rate(0, s(1.0), s(20.0)), Rate::kbps(998), Rate::kbps(1_002));
    assert_eq!((bench.loss(0, s(0.0), s(19.0)), bench.queue_delay(0, 1.0, s(0.0), s(19.0))), (0.0, Span::ZERO));
    // Two flows and constant-rate traffic exceed the link by 25 %: the queue stays at its 300 ms.
    let plans = [plan(Path::clean(Span::ZERO)), plan(Path::clean(Span::ZERO))];
    let mut full = Bench::new(Link::new(Rate::mbps(2), Span::millis(40)).cross(Rate::kbps(500)), &plans);
    full.run_until(s(20.0));
    let queue = full.queue_delay(0, 0.5, s(5.0), s(19.0));
    assert!((Span::millis(285)..=Span::millis(300)).contains(&queue), "{queue}");
    let used = full.used(0, s(5.0), s(20.0)) + full.used(1, s(5.0), s(20.0));
    assert!((0.7..=0.9).contains(&used), "{used}");
}

#[test]
fn a_report_tells_what_became_of_each_packet() {
    let link = Link::new(Rate::mbps(2), Span::millis(40)).losing(0.1).marking(Marking::Random(0.2));
    let mut plan = plan(Path::clean(Span::ZERO));
    plan.ecn = Ecn::Ect1;
    let mut bench = Bench::new(link, &[plan]);
    let flow = &mut bench.flows[0];
    (flow.overlap, flow.clock) = (0, Clock::Counted { packets: 16, marker: false, after: Span::millis(40) });
    bench.run_until(s(60.0));
    let (loss, marked) = (bench.loss(0, s(0.0), s(59.0)), bench.marked(0, s(0.0), s(59.0)));
    assert!((0.085..=0.115).contains(&loss) && (0.165..=0.195).contains(&marked), "{loss} {marked}");
    let flow = &bench.flows[0];
    let told: usize = flow.reports.iter().map(|(_, packets)| packets).sum();
    assert!(flow.packets.len() - told < 20, "{told} of {}", flow.packets.len());
    // 40 ms, five packets a frame: a report every 42 ms or so.
    assert!((1_300..=1_510).contains(&flow.reports.len()), "{}", flow.reports.len());
    assert_eq!(flow.packets.iter().map(|p| p.size).max(), Some(Bytes::new(834)));
}
