//! The claims about `scream`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::bench::{Bench, Link, Marking};
use harness::proof::{
    Hearing, any_path, bench_stands, bench_table, both_halves_stand, clocks_need_not_agree, packet_op, packets_stand,
};
use harness::{Path, Plan, assert_between, assert_snapshot, s};
use proptest::prelude::*;
use std::fmt::Write as _;
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{Limit, Mode, ReceiverId, Reply};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};

const STEP: Marking = Marking::Step(Span::millis(2));

fn plan(ecn: Ecn) -> Plan {
    let mut plan = Plan::new("scream", Path::clean(Span::ZERO));
    (plan.ecn, plan.cap) = (ecn, Rate::mbps(50));
    plan
}

fn alone(kbps: u64, rtt: Span, ecn: Ecn, marking: Marking) -> Bench {
    Bench::new(Link::new(Rate::kbps(kbps), rtt).marking(marking), &[plan(ecn)])
}

fn max_rtt(bench: &Bench, from: Time) -> Span {
    let late = bench.flows[0].decisions.iter().filter(|d| d.at >= from);
    late.filter_map(|d| d.decision.why.rtt).max().unwrap()
}

#[test]
fn alone_on_a_link_it_uses_most_of_it_with_a_short_queue() {
    let none = Marking::Never;
    let rows = [
        (500, 40, Ecn::NotEct, none),
        (1_000, 50, Ecn::NotEct, none),
        (1_000, 200, Ecn::NotEct, none),
        (4_000, 20, Ecn::NotEct, none),
        (4_000, 50, Ecn::NotEct, none),
        (4_000, 100, Ecn::NotEct, none),
        (20_000, 50, Ecn::NotEct, none),
        (4_000, 50, Ecn::Ect0, Marking::Step(Span::millis(5))),
        (1_000, 50, Ecn::Ect1, STEP),
        (4_000, 20, Ecn::Ect1, STEP),
        (4_000, 50, Ecn::Ect1, STEP),
        (20_000, 25, Ecn::Ect1, STEP),
        (20_000, 25, Ecn::Ect1, Marking::Ramp(Span::millis(2), Span::millis(10))),
    ];
    let table = bench_table(
        "scream",
        &[],
        &rows,
        |_| Rate::mbps(50),
        (20.0, 80.0),
        |used, loss, p95| {
            assert!((0.6..=1.001).contains(&used) && loss == 0.0, "{used} {loss}");
            assert!((Span::micros(500)..=Span::millis(110)).contains(&p95), "{p95}");
        },
    );
    assert_snapshot("scream.txt", &table);
    let page = include_str!("../../../../docs/controllers/scream.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

/// Compares flows on a link of 4 Mb/s, or of 1 Mb/s (from 30 s on, for a step). Each row has the round-trip time in ms,
/// the flows and the time range in s. It also has the rate in kb/s and the median and 95th percentile of the queue in
/// ms of EricssonResearch/scream c8f84c3 with its defaults, for the same sources and links. They are means of three
/// round-trip times, one millisecond apart.
type Peer = (&'static str, u64, usize, [f64; 2], [f64; 3]);
const PEER: [Peer; 7] = [
    ("4", 50, 1, [20.0, 80.0], [3_891.0, 21.5, 54.5]),
    ("4", 100, 1, [20.0, 80.0], [3_960.0, 17.0, 49.7]),
    ("1", 50, 1, [20.0, 80.0], [963.0, 18.7, 56.8]),
    ("1", 100, 1, [20.0, 80.0], [978.0, 16.1, 56.5]),
    ("4", 50, 2, [20.0, 80.0], [3_919.0, 25.7, 55.9]),
    ("4→1", 50, 1, [30.0, 32.0], [988.0, 142.9, 424.5]),
    ("4→1", 50, 1, [32.0, 50.0], [924.0, 14.6, 67.3]),
];

fn as_its_peer((rates, ms, flows, [from, to], _): Peer) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for ms in [ms - 1, ms, ms + 1] {
        let plan = || {
            let params = vec![("profile".into(), Given::Text("code".into()))];
            Plan { params, cap: Rate::mbps(20), ..plan(Ecn::NotEct) }
        };
        let rate = if rates == "1" { Rate::mbps(1) } else { Rate::mbps(4) };
        let link = Link::new(rate, Span::millis(ms)).limit(Bytes::new(150_000));
        let mut bench = Bench::new(link, &[plan()]);
        (1..flows).for_each(|_| bench.join(&plan()));
        if rates == "4→1" {
            bench.run_until(s(30.0));
            bench.set_rate(Rate::mbps(1));
        }
        let (from, to) = (s(from), s(to));
        bench.run_until(to);
        let rate: f64 = (0..flows).map(|i| bench.received_rate(i, from, to).as_bps_f64() / 1e3).sum();
        let queue = |q| bench.queue_delay(0, q, from, to).as_millis_f64();
        [rate, queue(0.5), queue(0.95)].iter().zip(&mut sum).for_each(|(one, sum)| *sum += one / 3.0);
    }
    sum
}

#[test]
fn the_profile_code_has_the_rates_of_its_authors_code() {
    let mut table = String::from(
        "Mb/s  RTT/ms  flows  time/s    kb/s    code          p50    code          p95    code\n\
         ----  ------  -----  ------  ------  ------  -----  ------  ------  -----  ------  ------  -----\n",
    );
    for peer in PEER {
        let (rates, ms, flows, [from, to], theirs) = peer;
        write!(table, "{rates:<4}  {ms:>6}  {flows:>5}  {from:>3}-{to}").unwrap();
        for (i, (ours, theirs)) in as_its_peer(peer).into_iter().zip(theirs).enumerate() {
            let (ratio, digits) = (ours / theirs, usize::from(i > 0));
            let near = (0.95..=1.05).contains(&ratio);
            assert!(near || i > 0 || to == 32.0, "{rates} {ms} {flows}: {ours}");
            write!(table, "  {ours:>6.digits$}  {theirs:>6.digits$}  {ratio:>4.2}{}", if near { " " } else { "*" })
                .unwrap();
        }
        table = table.trim_end().to_owned() + "\n";
    }
    assert_snapshot("scream-code.txt", &table);
    let page = include_str!("../../../../docs/controllers/scream.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

#[test]
fn without_marks_the_queue_stays_around_half_of_its_target() {
    for (kbps, least) in [(1_000, 0.8), (4_000, 0.93)] {
        let mut bench = alone(kbps, Span::millis(50), Ecn::NotEct, Marking::Never);
        bench.run_until(s(60.0));
        let used = bench.used(0, s(10.0), s(60.0));
        assert!((least..=1.0).contains(&used), "{kbps}: {used}");
        let [p50, p95] = [0.5, 0.95].map(|q| bench.queue_delay(0, q, s(10.0), s(60.0)));
        assert!((Span::millis(2)..=Span::millis(30)).contains(&p50), "{kbps}: {p50}");
        assert!((Span::millis(25)..=Span::millis(80)).contains(&p95), "{kbps}: {p95}");
    }
}

#[test]
fn with_l4s_one_to_two_packets_are_marked_per_round_trip_and_the_queue_stays_at_the_step() {
    for (kbps, ms) in [(1_000, 50), (4_000, 20), (4_000, 50), (20_000, 25)] {
        let mut bench = alone(kbps, Span::millis(ms), Ecn::Ect1, STEP);
        bench.run_until(s(60.0));
        let (from, to) = (s(10.0), s(60.0));
        let sent = bench.flows[0].packets.iter().filter(|p| (from..to).contains(&p.sent));
        let marked = sent.filter(|p| p.marked).count() as f64;
        let per_round = marked / (50.0 / Span::millis(ms).as_secs_f64());
        assert!((0.7..=2.0).contains(&per_round), "{kbps} {ms}: {per_round}");
        let p95 = bench.queue_delay(0, 0.95, from, to);
        assert!((Span::millis(1)..=Span::millis(4)).contains(&p95), "{kbps}: {p95}");
        let used = bench.used(0, from, to);
        assert!((0.7..=0.85).contains(&used), "{kbps}: {used}");
    }
}

#[test]
fn it_holds_what_libwebrtc_asserts_of_its_own() {
    // Packets of 255 bytes, and the round-trip times that the sender measures.
    let run = |kbps: u64, ms: u64, ecn: Ecn, marking: Marking, limit: u64, (from, to): (f64, f64)| {
        let link = Link::new(Rate::kbps(kbps), Span::millis(2 * ms)).marking(marking).limit(Bytes::new(limit));
        let mut plan = plan(ecn);
        plan.packet = Bytes::new(255);
        let mut bench = Bench::new(link, &[plan]);
        bench.run_until(s(to));
        (bench.mean_target(0, s(from), s(to)), max_rtt(&bench, s(from)))
    };
    let (rate, rtt) = run(1_000, 25, Ecn::Ect1, STEP, 1_000_000, (4.0, 9.0));
    assert_between(rate, Rate::kbps(650), Rate::kbps(1_100));
    assert!(rtt < Span::millis(75), "{rtt}");
    let (rate, rtt) = run(2_000, 10, Ecn::NotEct, Marking::Never, 1_000_000, (10.0, 20.0));
    assert_between(rate, Rate::kbps(1_500), Rate::kbps(2_500));
    assert!(rtt < Span::millis(80), "{rtt}");
    let (rate, rtt) = run(5_000, 10, Ecn::NotEct, Marking::Never, 3 * 255, (10.0, 20.0));
    assert_between(rate, Rate::kbps(1_500), Rate::kbps(5_400));
    assert!(rtt < Span::millis(60), "{rtt}");
}

#[test]
fn without_a_limit_the_cap_is_reached_within_a_hundred_reports() {
    let mut plan = plan(Ecn::NotEct);
    plan.cap = Rate::mbps(2);
    let mut bench = Bench::new(Link::new(Rate::mbps(100), Span::millis(50)), &[plan]);
    bench.run_until(s(3.3));
    let decision = bench.flows[0].sender.decision();
    assert_eq!((decision.target, decision.limit), (Rate::mbps(2), Limit::Cap));
    assert!((60..=110).contains(&bench.flows[0].reports.len()), "{}", bench.flows[0].reports.len());
    bench.run_until(s(30.0));
    assert_between(bench.received_rate(0, s(5.0), s(30.0)), Rate::kbps(1_950), Rate::kbps(2_010));
}

#[test]
fn three_flows_share_a_link_with_marks_and_without() {
    for (ecn, marking, least) in [(Ecn::Ect1, STEP, 0.75), (Ecn::NotEct, Marking::Never, 0.85)] {
        let mut bench = Bench::new(Link::new(Rate::mbps(6), Span::millis(50)).marking(marking), &[plan(ecn)]);
        for (at, fps) in [(5.0, 29), (10.0, 31)] {
            bench.run_until(s(at));
            bench.join(&plan(ecn));
            // With equal frame rates, each source would find the same queue with every frame.
            bench.flows.last_mut().unwrap().fps = fps;
        }
        bench.run_until(s(120.0));
        let shares = [0, 1, 2].map(|i| bench.used(i, s(40.0), s(120.0)));
        let all: f64 = shares.iter().sum();
        assert!((least..=1.0).contains(&all), "{shares:?}");
        for share in shares {
            assert!((0.7..=1.4).contains(&(share * 3.0 / all)), "{ecn:?}: {shares:?}");
        }
    }
}

#[test]
fn it_follows_a_capacity_that_falls_and_rises_again() {
    let mut bench = alone(4_000, Span::millis(50), Ecn::NotEct, Marking::Never);
    bench.run_until(s(20.0));
    bench.set_rate(Rate::mbps(1));
    bench.run_until(s(50.0));
    assert_between(bench.received_rate(0, s(30.0), s(50.0)), Rate::kbps(700), Rate::kbps(1_000));
    // The queue of the capacity drop has drained after three seconds.
    let p95 = bench.queue_delay(0, 0.95, s(23.0), s(50.0));
    assert!((Span::millis(20)..=Span::millis(100)).contains(&p95), "{p95}");
    bench.set_rate(Rate::mbps(4));
    bench.run_until(s(80.0));
    assert_between(bench.received_rate(0, s(60.0), s(80.0)), Rate::kbps(3_500), Rate::kbps(4_000));
}

#[test]
fn beside_constant_rate_traffic_it_takes_what_is_left() {
    let link = Link::new(Rate::mbps(4), Span::millis(50)).cross(Rate::mbps(2));
    let mut bench = Bench::new(link, &[plan(Ecn::NotEct)]);
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(20.0), s(60.0)), Rate::kbps(1_700), Rate::kbps(2_000));
}

#[test]
fn random_loss_of_half_a_percent_costs_a_third() {
    let link = Link::new(Rate::mbps(4), Span::millis(50)).losing(0.005);
    let mut bench = Bench::new(link, &[plan(Ecn::NotEct)]);
    bench.run_until(s(60.0));
    let used = bench.used(0, s(10.0), s(60.0));
    assert!((0.5..=0.75).contains(&used), "{used}");
}

#[test]
fn a_source_that_sends_less_than_it_may_does_not_inflate_the_window() {
    let mut bench = alone(10_000, Span::millis(50), Ecn::NotEct, Marking::Never);
    bench.flows[0].most = Rate::mbps(1);
    bench.run_until(s(30.0));
    // 1.5 times the bytes in flight, plus one packet.
    assert_between(bench.flows[0].target(), Rate::kbps(1_000), Rate::kbps(4_000));
    bench.flows[0].idle = true;
    bench.run_until(s(40.0));
    bench.flows[0].idle = false;
    bench.run_until(s(50.0));
    assert_between(bench.received_rate(0, s(42.0), s(50.0)), Rate::kbps(970), Rate::kbps(1_030));
}

#[test]
fn silence_halves_the_rate_every_half_second_and_feedback_brings_it_back() {
    let mut bench = alone(4_000, Span::millis(50), Ecn::NotEct, Marking::Never);
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
    // The sender continues to send single packets, which detect the return of feedback.
    bench.link.back_loss = 0.0;
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(50.0), s(60.0)), Rate::kbps(3_600), Rate::kbps(4_000));
}

#[test]
fn a_third_of_the_reports_lost_costs_little() {
    let mut bench = alone(4_000, Span::millis(50), Ecn::NotEct, Marking::Never);
    bench.link.back_loss = 0.33;
    bench.run_until(s(60.0));
    let used = bench.used(0, s(10.0), s(60.0));
    assert!((0.8..=1.0).contains(&used), "{used}");
}

#[test]
fn the_clocks_of_the_ends_need_not_agree() {
    clocks_need_not_agree(plan(Ecn::NotEct), &Link::new(Rate::mbps(2), Span::millis(50)));
}

#[test]
fn a_report_is_due_at_the_frame_s_end_after_sixteen_packets_or_after_forty_milliseconds() {
    let chosen = Chosen::shared("scream", Mode::Repaired, &[]).unwrap();
    let mut half = Hearing(chosen.receiver(&plan(Ecn::Ect1).setup(ReceiverId(9), "receiver")));
    assert_eq!(half.due(), None);
    half.packet(100, true, Ecn::Ect1);
    assert_eq!(half.due(), Some(100));
    assert_eq!(half.report(100), Reply::Plain);
    assert_eq!(half.due(), None);
    half.packet(110, false, Ecn::Ect1);
    assert_eq!(half.due(), Some(140));
    (0..14).for_each(|n| half.packet(111 + n, false, Ecn::Ect1));
    assert_eq!(half.due(), Some(140));
    half.packet(130, false, Ecn::Ect1);
    assert_eq!(half.due(), Some(130));
    assert_eq!(half.report(130), Reply::Plain);
    half.packet(300, false, Ecn::Ect1);
    assert_eq!(half.due(), Some(170));
}

#[test]
fn on_a_bench_reports_come_with_each_frame_and_within_long_ones() {
    let mut bench = alone(20_000, Span::millis(50), Ecn::NotEct, Marking::Never);
    bench.run_until(s(30.0));
    let told = bench.flows[0].reports.iter().filter(|(at, _)| *at >= s(20.0)).count();
    // A frame has about 80 packets: five reports of sixteen packets, and one of the rest.
    assert!((1_500..=2_000).contains(&told), "{told}");
}

both_halves_stand!("scream", 1);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_becomes_of_packets_the_rate_stays_within_its_bounds(
        ops in prop::collection::vec((packet_op(), 0u64..200), 1..200), paper in any::<bool>(),
        options in any::<bool>(), l4s in any::<bool>(),
    ) {
        let params = ["compete", "reduce_jitter"].map(|name| (name, Given::Switch(options)));
        let mode = if paper { Mode::Paper } else { Mode::Repaired };
        packets_stand("scream", &params, mode, if l4s { Ecn::Ect1 } else { Ecn::Ect0 }, ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path(), l4s in any::<bool>()) {
        bench_stands("scream", &[], &path, if l4s { Ecn::Ect1 } else { Ecn::NotEct })?;
    }
}
