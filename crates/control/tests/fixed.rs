//! The constant rate, and with it the harness itself.

mod harness;

use harness::{Loss, Path, Plan, Source, assert_between, s};
use steadycast_control::Limit;
use steadycast_control::registry::Given;
use steadycast_units::{Rate, Span};

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
    // Twenty packets of 16 ms each, the one on the wire included.
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
