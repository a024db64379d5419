//! The claims about `nada`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::bench::{Bench, Link, Marking};
use harness::proof::{
    any_path, bench_stands, bench_table, both_halves_stand, clocks_need_not_agree, packet_op, packets_stand,
};
use harness::{Path, Plan, assert_between, assert_snapshot, assert_within, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{Body, Limit, Mode, ReceiverId, Report};
use steadycast_units::{Bytes, Ecn, Rate, Span};

/// A setup from 150 kb/s to 1.5 Mb/s, as in RFC 8698.
fn plan() -> Plan {
    let mut plan = Plan::new("nada", Path::clean(Span::ZERO));
    (plan.floor, plan.cap) = (Rate::kbps(150), Rate::kbps(1_500));
    plan
}

fn alone(kbps: u64, ms: u64) -> Bench {
    Bench::new(Link::new(Rate::kbps(kbps), Span::millis(ms)), &[plan()])
}

/// Returns x of a report, in milliseconds.
fn x(body: &Body) -> f64 {
    f64::from(u16::from_be_bytes([body.bytes[0] & 0x7f, body.bytes[1]])) / 10.0
}

#[test]
fn alone_on_a_link_it_fills_it_with_the_standing_queue_of_its_cap() {
    let (none, ramp) = (Marking::Never, Marking::Ramp(Span::millis(5), Span::millis(105)));
    let rows = [
        (500, 40, Ecn::NotEct, none),
        (1_000, 50, Ecn::NotEct, none),
        (1_000, 200, Ecn::NotEct, none),
        (4_000, 20, Ecn::NotEct, none),
        (4_000, 100, Ecn::NotEct, none),
        (20_000, 50, Ecn::NotEct, none),
        (1_000, 50, Ecn::Ect0, ramp),
        (4_000, 50, Ecn::Ect0, ramp),
        (4_000, 50, Ecn::Ect0, Marking::Step(Span::millis(5))),
    ];
    let table = bench_table(
        "nada",
        &[],
        &rows,
        |rate| rate.scale(1.5),
        (20.0, 80.0),
        |used, loss, p95| {
            assert!((0.5..=1.001).contains(&used) && loss == 0.0, "{used} {loss}");
            assert!((Span::millis(3)..=Span::millis(80)).contains(&p95), "{p95}");
        },
    );
    assert_snapshot("nada.txt", &table);
    let page = include_str!("../../../../docs/controllers/nada.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

#[test]
fn the_standing_queue_is_ten_milliseconds_by_r_max_over_the_capacity() {
    for (kbps, want) in [(1_000, 15.0), (600, 25.0), (300, 50.0)] {
        let mut bench = alone(kbps, 50);
        // Frames are large, so that packets have one size: the base delay includes the service time of packets that
        // found the queue empty.
        bench.flows[0].fps = 10;
        bench.run_until(s(120.0));
        let [p5, p50, p95] = [0.05, 0.5, 0.95].map(|q| bench.queue_delay(0, q, s(60.0), s(120.0)));
        // Half of the packets wait longer than the minimum of fifteen.
        println!("{kbps} {p5} {p50} {p95} {:?} {}", bench.flows[0].body.as_ref().map(x), bench.flows[0].target());
        assert_within(p50.as_millis_f64(), want, 0.1);
        assert!(p95.saturating_sub(p5) < Span::millis(12), "{kbps}: {p5} {p95}");
        if let Some(body) = bench.flows[0].body.as_ref() {
            assert_within(x(body), want, 0.01);
        }
        let used = bench.used(0, s(60.0), s(120.0));
        assert!((0.99..=1.001).contains(&used), "{used}");
    }
}

#[test]
fn three_flows_share_equally_at_three_times_the_queue() {
    let link = Link::new(Rate::kbps(3_500), Span::millis(50));
    let mut bench = Bench::new(link, &[plan(), plan(), plan()]);
    for (flow, fps) in bench.flows.iter_mut().zip([30, 29, 31]) {
        flow.fps = fps;
    }
    bench.run_until(s(200.0));
    for i in 0..3 {
        let share = bench.used(i, s(100.0), s(200.0)) * 3.0;
        assert!((0.95..=1.05).contains(&share), "{i}: {share}");
    }
    assert_within(bench.queue_delay(0, 0.5, s(100.0), s(200.0)).as_millis_f64(), 12.9, 0.1);
}

#[test]
fn flows_share_in_proportion_to_their_priority() {
    let mut first = plan();
    first.params.push(("prio".to_owned(), Given::Number(2.0)));
    let link = Link::new(Rate::kbps(1_500), Span::millis(50));
    let mut bench = Bench::new(link, &[first, plan()]);
    bench.flows[1].fps = 29;
    bench.run_until(s(200.0));
    let ratio = bench.used(0, s(100.0), s(200.0)) / bench.used(1, s(100.0), s(200.0));
    assert!((1.7..=2.2).contains(&ratio), "{ratio}");
}

#[test]
fn it_ramps_up_within_four_seconds_and_follows_a_capacity_that_changes() {
    let mut bench = alone(1_000, 50);
    bench.run_until(s(4.0));
    assert_between(bench.flows[0].target(), Rate::kbps(850), Rate::kbps(1_300));
    bench.run_until(s(40.0));
    bench.set_rate(Rate::kbps(500));
    bench.run_until(s(80.0));
    assert_between(bench.received_rate(0, s(50.0), s(80.0)), Rate::kbps(470), Rate::kbps(501));
    let p95 = bench.queue_delay(0, 0.95, s(50.0), s(80.0));
    assert!((Span::millis(20)..=Span::millis(40)).contains(&p95), "{p95}");
    bench.set_rate(Rate::mbps(1));
    bench.run_until(s(120.0));
    assert_between(bench.received_rate(0, s(90.0), s(120.0)), Rate::kbps(970), Rate::kbps(1_001));
}

/// Returns the mean target on a path of 10 Mb/s with random loss or marks and this packet size.
fn at_random(packet: u64, loss: f64, marking: Marking, ecn: Ecn) -> Rate {
    let mut plan = plan();
    (plan.packet, plan.ecn) = (Bytes::new(packet), ecn);
    let link = Link::new(Rate::mbps(10), Span::millis(50)).losing(loss).marking(marking);
    let mut bench = Bench::new(link, &[plan]);
    bench.run_until(s(200.0));
    bench.mean_target(0, s(50.0), s(200.0))
}

#[test]
fn random_loss_and_marks_hold_it_where_their_squares_meet_its_cap() {
    // Many small packets, so that every half second has a loss. x = 10 ms (p/1 %)²: 40 ms, and 375 kb/s of 1.5 Mb/s.
    let lossy = at_random(100, 0.02, Marking::Never, Ecn::NotEct);
    assert_between(lossy, Rate::kbps(300), Rate::kbps(420));
    // x = 2 ms (5 %/1 %)²: 50 ms, and 300 kb/s. Without ECN the link marks nothing, and the rate is at the cap minus
    // the effect of queued frames.
    let marked = |ecn| at_random(100, 0.0, Marking::Random(0.05), ecn);
    assert_between(marked(Ecn::Ect0), Rate::kbps(240), Rate::kbps(340));
    assert_between(marked(Ecn::NotEct), Rate::kbps(1_420), Rate::kbps(1_500));
}

#[test]
fn losses_with_half_a_second_between_them_let_it_ramp_up_each_time() {
    // As above, but few large packets: each half second without a loss raises the rate again.
    let rate = at_random(1_000, 0.02, Marking::Never, Ecn::NotEct);
    assert_between(rate, Rate::kbps(1_000), Rate::kbps(1_400));
}

#[test]
fn beside_constant_rate_traffic_it_takes_what_is_left() {
    let link = Link::new(Rate::mbps(2), Span::millis(50)).cross(Rate::mbps(1));
    let mut bench = Bench::new(link, &[plan()]);
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(30.0), s(60.0)), Rate::kbps(950), Rate::kbps(1_001));
}

#[test]
fn a_report_of_six_bytes_leaves_every_hundred_milliseconds_while_packets_arrive() {
    let mut bench = alone(1_000, 50);
    bench.run_until(s(20.0));
    let count = |bench: &Bench, from: f64, to: f64| {
        bench.flows[0].reports.iter().filter(|(at, _)| (s(from)..s(to)).contains(at)).count()
    };
    assert!((98..=100).contains(&count(&bench, 10.0, 20.0)));
    bench.flows[0].idle = true;
    bench.run_until(s(40.0));
    assert_eq!(count(&bench, 21.0, 40.0), 0);
}

#[test]
fn silence_halves_the_rate_every_half_second_and_reports_bring_it_back() {
    let mut bench = alone(1_000, 50);
    bench.run_until(s(20.0));
    let before = bench.flows[0].target();
    bench.link.back_loss = 1.0;
    bench.run_until(s(21.2));
    let decision = bench.flows[0].sender.decision();
    assert_between(decision.target, before.scale(0.2), before.scale(0.3));
    assert_eq!(decision.why.rule, "no feedback: halved");
    bench.run_until(s(30.0));
    let decision = bench.flows[0].sender.decision();
    assert_eq!((decision.target, decision.limit), (Rate::kbps(150), Limit::Floor));
    bench.link.back_loss = 0.0;
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(50.0), s(60.0)), Rate::kbps(960), Rate::kbps(1_001));
}

#[test]
fn a_report_after_a_gap_counts_for_two_intervals_and_what_is_none_for_nothing() {
    let plan = plan();
    let chosen = Chosen::shared("nada", Mode::Repaired, &plan.params).unwrap();
    let mut half = chosen.sender(&plan.setup(ReceiverId(1), "sender"));
    let mut hear = |at: f64, gradual: bool, x_ms: u16, kbps: u32| {
        let mut bytes = ((x_ms * 10) | if gradual { 0x8000 } else { 0 }).to_be_bytes().to_vec();
        bytes.extend((kbps * 1_000).to_be_bytes());
        bytes.extend([0, 0]);
        let body = Body { subtype: 1, bytes };
        let (from, rtt, reception) = (ReceiverId(9), Some(Span::millis(100)), None);
        let report = Report { at: s(at), from, rtt, reception, body: Some(&body), packets: &[], members: 2 };
        half.on_report(&report);
        half.on_report(&Report { body: None, ..report });
        half.decision().target.as_bps_f64()
    };
    assert_within(hear(1.0, false, 0, 800), 800e3 * 1.156_25, 1e-6);
    let law = |r: f64, delta: f64, x: f64, before: f64| {
        r * (1.0 - 0.5 * (delta / 0.5) * (x - 0.01 * 1.5e6 / r) / 0.5 - 0.5 * 2.0 * (x - before) / 0.5)
    };
    let first = hear(1.1, true, 20, 900);
    assert_within(first, law(925e3, 0.1, 0.02, 0.0), 1e-5);
    let second = hear(1.25, true, 30, 900);
    assert_within(second, law(first, 0.15, 0.03, 0.02), 1e-5);
    assert_within(hear(9.0, true, 30, 900), law(second, 0.2, 0.03, 0.03), 1e-5);
}

#[test]
fn the_clocks_of_the_ends_need_not_agree() {
    clocks_need_not_agree(plan(), &Link::new(Rate::mbps(1), Span::millis(50)));
}

#[test]
fn lost_and_repeated_reports_hardly_change_the_rate() {
    let mut bench = alone(1_000, 50);
    bench.link.back_loss = 0.2;
    bench.run_until(s(60.0));
    let used = bench.used(0, s(20.0), s(60.0));
    assert!((0.95..=1.001).contains(&used), "{used}");
}

both_halves_stand!("nada", 1);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_becomes_of_packets_the_rate_stays_within_its_bounds(
        ops in prop::collection::vec((packet_op(), 0u64..200), 1..200), paper in any::<bool>(),
    ) {
        let mode = if paper { Mode::Paper } else { Mode::Repaired };
        packets_stand("nada", &[], mode, Ecn::Ect0, ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path()) {
        bench_stands("nada", &[], &path, Ecn::Ect0)?;
    }
}
