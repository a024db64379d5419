//! The claims of `steady`, alone and beside other `steady` flows. `crates/sim/tests/all/steady.rs` has those beside
//! TCP.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::bench::{Bench, Link, Marking};
use harness::proof::{
    Hearing, any_path, bench_stands, bench_table, both_halves_stand, clocks_need_not_agree, packet_op, packets_stand,
};
use harness::{Path, Plan, assert_between, assert_snapshot, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{Limit, Mode, ReceiverId, Reply};
use steadycast_units::{Ecn, Rate, Span, Time};

fn plan(ecn: Ecn) -> Plan {
    let mut plan = Plan::new("steady", Path::clean(Span::ZERO));
    (plan.ecn, plan.cap) = (ecn, Rate::mbps(50));
    plan
}

fn alone(kbps: u64, ms: u64) -> Bench {
    Bench::new(Link::new(Rate::kbps(kbps), Span::millis(ms)), &[plan(Ecn::NotEct)])
}

/// Returns the rules of the decisions between two times.
fn rules(bench: &Bench, i: usize, from: Time, to: Time) -> Vec<String> {
    let stood = bench.flows[i].decisions.iter().filter(|d| (from..to).contains(&d.at));
    stood.map(|d| d.decision.why.rule.to_string()).collect()
}

#[test]
fn alone_on_a_link_it_fills_it_and_leaves_the_queue_empty() {
    let none = Marking::Never;
    let step = Marking::Step(Span::millis(2));
    let rows = [
        (500, 40, Ecn::NotEct, none),
        (1_000, 20, Ecn::NotEct, none),
        (1_000, 40, Ecn::NotEct, none),
        (1_000, 200, Ecn::NotEct, none),
        (4_000, 20, Ecn::NotEct, none),
        (4_000, 40, Ecn::NotEct, none),
        (4_000, 120, Ecn::NotEct, none),
        (20_000, 40, Ecn::NotEct, none),
        (4_000, 40, Ecn::Ect0, Marking::Step(Span::millis(5))),
        (4_000, 40, Ecn::Ect1, step),
        (20_000, 40, Ecn::Ect1, step),
    ];
    let table = bench_table(
        "steady",
        &[],
        &rows,
        |_| Rate::mbps(50),
        (20.0, 80.0),
        |used, loss, p95| {
            assert!((0.7..=1.001).contains(&used) && loss == 0.0, "{used} {loss}");
            assert!((Span::micros(100)..=Span::millis(80)).contains(&p95), "{p95}");
        },
    );
    assert_snapshot("steady.txt", &table);
    let page = include_str!("../../../../docs/controllers/steady.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

#[test]
fn four_of_its_kind_share_a_link_without_loss_and_never_compete() {
    let mut bench = alone(4_000, 40);
    for (at, fps) in [(10.0, 29), (20.0, 31), (30.0, 28)] {
        bench.run_until(s(at));
        bench.join(&plan(Ecn::NotEct));
        bench.flows.last_mut().unwrap().fps = fps;
    }
    bench.run_until(s(100.0));
    let shares = [0, 1, 2, 3].map(|i| bench.used(i, s(50.0), s(100.0)));
    assert!((0.9..=1.0).contains(&shares.iter().sum::<f64>()), "{shares:?}");
    for (i, share) in shares.iter().enumerate() {
        assert!((0.2..=0.3).contains(share), "{shares:?}");
        assert_eq!(bench.loss(i, s(50.0), s(99.0)), 0.0);
        assert!(rules(&bench, i, s(50.0), s(100.0)).iter().all(|rule| !rule.starts_with("compete")));
    }
    let p95 = bench.queue_delay(0, 0.95, s(50.0), s(100.0));
    assert!((Span::millis(1)..=Span::millis(30)).contains(&p95), "{p95}");
}

#[test]
fn beside_constant_rate_traffic_it_takes_what_is_left() {
    let link = Link::new(Rate::mbps(4), Span::millis(40)).cross(Rate::mbps(2));
    let mut bench = Bench::new(link, &[plan(Ecn::NotEct)]);
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(20.0), s(60.0)), Rate::kbps(1_800), Rate::kbps(2_000));
    assert!(rules(&bench, 0, s(5.0), s(60.0)).iter().all(|rule| !rule.starts_with("compete")));
}

#[test]
fn random_loss_alone_costs_little() {
    // Loss rates near this one, so that each run loses other packets. In one of sixteen such runs, losses are once
    // attributed to other flows.
    for (loss, mean) in [(0.02, 0.92), (0.05, 0.85)] {
        let used = [0.98, 0.99, 1.0, 1.01, 1.02].map(|part| {
            let link = Link::new(Rate::mbps(4), Span::millis(40)).losing(part * loss);
            let mut bench = Bench::new(link, &[plan(Ecn::NotEct)]);
            bench.run_until(s(60.0));
            bench.used(0, s(10.0), s(60.0))
        });
        let all = used.iter().sum::<f64>() / 5.0;
        assert!((mean..=1.0 - loss / 2.0).contains(&all), "{loss}: {used:?}");
        assert!(used.iter().all(|used| *used > 0.7), "{loss}: {used:?}");
    }
}

#[test]
fn random_loss_after_a_start_that_overflowed_a_short_queue_costs_little() {
    // START sends twice what the path carries. A queue of a few milliseconds then drops many packets, and drops hardly
    // any packet afterwards, as a policer does.
    let used = [(10, 20, 6, 0.01), (20, 20, 8, 0.015), (27, 18, 9, 0.008), (30, 24, 12, 0.02)].map(
        |(mbps, ms, queue_ms, loss)| {
            let limit = Rate::mbps(mbps).over(Span::millis(queue_ms));
            let link = Link::new(Rate::mbps(mbps), Span::millis(ms)).limit(limit).losing(loss);
            let mut bench = Bench::new(link, &[plan(Ecn::NotEct)]);
            bench.run_until(s(60.0));
            bench.used(0, s(10.0), s(60.0))
        },
    );
    assert!(used.iter().all(|used| (0.85..=1.001).contains(used)), "{used:?}");
}

#[test]
fn it_follows_a_capacity_that_falls_to_a_quarter_and_rises_again() {
    let mut bench = alone(4_000, 40);
    bench.run_until(s(20.0));
    bench.set_rate(Rate::mbps(1));
    bench.run_until(s(50.0));
    assert_between(bench.received_rate(0, s(23.0), s(50.0)), Rate::kbps(900), Rate::kbps(1_000));
    let p95 = bench.queue_delay(0, 0.95, s(24.0), s(50.0));
    assert!((Span::millis(1)..=Span::millis(60)).contains(&p95), "{p95}");
    bench.set_rate(Rate::mbps(4));
    bench.run_until(s(80.0));
    assert_between(bench.received_rate(0, s(55.0), s(80.0)), Rate::kbps(3_700), Rate::kbps(4_000));
}

#[test]
fn a_source_of_frames_that_sends_less_than_it_may_keeps_six_times_that() {
    let mut bench = alone(4_000, 40);
    bench.run_until(s(20.0));
    bench.flows[0].most = Rate::kbps(500);
    bench.run_until(s(40.0));
    // An earlier rule kept 1.5 times the source's rate. A source that uses a fixed share of its rate, below two thirds,
    // then fell to nothing.
    assert_between(bench.flows[0].target(), Rate::kbps(2_800), Rate::kbps(3_200));
    bench.flows[0].most = Rate::MAX;
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(43.0), s(60.0)), Rate::kbps(3_700), Rate::kbps(4_000));
}

#[test]
fn silence_halves_the_rate_every_half_second_and_feedback_brings_it_back() {
    let mut bench = alone(4_000, 40);
    bench.run_until(s(20.0));
    let before = bench.flows[0].target();
    bench.link.back_loss = 1.0;
    bench.run_until(s(21.9));
    let decision = bench.flows[0].sender.decision();
    assert_between(decision.target, before.scale(0.05), before.scale(0.26));
    assert_eq!(decision.why.rule, "no feedback: halved");
    bench.run_until(s(40.0));
    let decision = bench.flows[0].sender.decision();
    assert_eq!((decision.target, decision.limit), (Rate::kbps(1), Limit::Floor));
    bench.link.back_loss = 0.0;
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(52.0), s(60.0)), Rate::kbps(3_600), Rate::kbps(4_000));
}

#[test]
fn before_the_first_report_the_rate_is_halved_after_two_seconds_and_no_sooner() {
    let mut bench = alone(4_000, 40);
    bench.link.back_loss = 1.0;
    let first = bench.flows[0].target();
    bench.run_until(s(1.9));
    assert_eq!(bench.flows[0].target(), first);
    bench.run_until(s(2.4));
    assert_eq!(bench.flows[0].target(), first.scale(0.5));
}

#[test]
fn a_third_of_the_reports_lost_costs_little() {
    let mut bench = alone(4_000, 40);
    bench.link.back_loss = 0.33;
    bench.run_until(s(60.0));
    let used = bench.used(0, s(10.0), s(60.0));
    // The bound was 0.9 until the first run, which showed 0.89.
    assert!((0.85..=1.0).contains(&used), "{used}");
}

#[test]
fn the_clocks_of_the_ends_need_not_agree() {
    clocks_need_not_agree(plan(Ecn::NotEct), &Link::new(Rate::mbps(2), Span::millis(50)));
}

#[test]
fn a_report_is_due_after_25_ms_where_that_is_a_twentieth_of_what_arrives_and_after_100_ms() {
    let chosen = Chosen::shared("steady", Mode::Repaired, &[]).unwrap();
    let mut half = Hearing(chosen.receiver(&plan(Ecn::NotEct).setup(ReceiverId(9), "receiver")));
    assert_eq!(half.due(), None);
    half.packet(100, false, Ecn::NotEct);
    assert_eq!(half.due(), Some(200));
    half.packet(110, false, Ecn::NotEct);
    assert_eq!(half.due(), Some(125));
    assert_eq!(half.report(125), Reply::Plain);
    assert_eq!(half.due(), None);
    half.packet(130, false, Ecn::NotEct);
    assert_eq!(half.due(), Some(225));
}

both_halves_stand!("steady", 1);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_becomes_of_packets_the_rate_stays_within_its_bounds(
        ops in prop::collection::vec((packet_op(), 0u64..200), 1..200), paper in any::<bool>(), l4s in any::<bool>(),
        often in any::<bool>(),
    ) {
        let every = Given::Text(if often { "5ms" } else { "100ms" }.into());
        let mode = if paper { Mode::Paper } else { Mode::Repaired };
        packets_stand("steady", &[("report_every", every)], mode, if l4s { Ecn::Ect1 } else { Ecn::Ect0 }, ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path(), l4s in any::<bool>()) {
        bench_stands("steady", &[], &path, if l4s { Ecn::Ect1 } else { Ecn::NotEct })?;
    }
}
