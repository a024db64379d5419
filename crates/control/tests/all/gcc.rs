//! The claims about `gcc`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::bench::{Bench, Clock, Link, Marking};
use harness::proof::{
    Hearing, any_path, bench_stands, bench_table, both_halves_stand, clocks_need_not_agree, packet_op, packets_stand,
};
use harness::{Path, Plan, assert_between, assert_snapshot, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Given, find};
use steadycast_control::{Limit, Mode, Need, ReceiverId, Reply, Stream, Values};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span};

const RTT: Span = Span::millis(50);

fn plan() -> Plan {
    let mut plan = Plan::new("gcc", Path::clean(Span::ZERO));
    plan.cap = Rate::mbps(30);
    plan
}

fn text(name: &str, value: &str) -> Plan {
    plan().set(name, Given::Text(value.into()))
}

fn alone(kbps: u64, rtt: Span) -> Bench {
    Bench::new(Link::new(Rate::kbps(kbps), rtt), &[plan()])
}

/// Returns the first time, within the next minute, at which the first flow's target is on this side of `rate`.
fn when(bench: &mut Bench, met: impl Fn(Rate) -> bool) -> Span {
    let from = bench.now;
    while !met(bench.flows[0].target()) && bench.now < from + Span::secs(60) {
        bench.run_for(Span::millis(5));
    }
    bench.now.since(from)
}

#[test]
fn alone_on_a_link_it_uses_most_of_it_with_a_short_queue() {
    let (none, not) = (Marking::Never, Ecn::NotEct);
    let rows = [
        (500, 40, not, none),
        (500, 200, not, none),
        (1_000, 50, not, none),
        (2_000, 20, not, none),
        (2_000, 100, not, none),
        (4_000, 50, not, none),
        (8_000, 40, not, none),
        (20_000, 25, not, none),
        // gcc does not react to marks: the queue takes the packets that ECN would have marked.
        (4_000, 50, Ecn::Ect0, Marking::Step(Span::millis(5))),
    ];
    let table = bench_table(
        "gcc",
        &[],
        &rows,
        |_| Rate::mbps(50),
        (20.0, 80.0),
        |used, loss, p95| {
            assert!((0.88..=1.0).contains(&used), "{used}");
            // These values belong to the row that the next test covers.
            let slow = p95 > Span::millis(60);
            assert!((Span::millis(12)..=Span::millis(300)).contains(&p95) && (slow || loss == 0.0), "{p95} {loss}");
        },
    );
    assert_snapshot("gcc.txt", &table);
    let page = include_str!("../../../../docs/controllers/gcc.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

#[test]
fn a_queue_that_grows_by_less_than_the_least_threshold_is_not_seen_until_it_is_full() {
    // The slope is 6 / (4 · 60) = 0.025. At 8 Mb/s the rate rises by 0.5 % per second, and the threshold adapts to the
    // slope.
    let p95 = |kbps: u64| {
        let mut bench = Bench::new(Link::new(Rate::kbps(kbps), Span::millis(40)), &[plan()]);
        bench.run_until(s(80.0));
        bench.queue_delay(0, 0.95, s(20.0), s(80.0))
    };
    let (slow, quick) = (p95(8_000), p95(4_000));
    assert!((Span::millis(150)..=Span::millis(300)).contains(&slow), "{slow}");
    assert!((Span::millis(12)..=Span::millis(60)).contains(&quick), "{quick}");
}

#[test]
fn probes_find_the_link_within_half_a_second() {
    // libwebrtc asserts 700 … 1300 kb/s at 1 Mb/s, 50 ms each way.
    let mut bench = alone(1_000, Span::millis(100));
    bench.run_until(s(0.5));
    assert_between(bench.flows[0].target(), Rate::kbps(700), Rate::kbps(1_300));
    assert_eq!(bench.flows[0].sender.decision().limit, Limit::Start);
    // The rate reaches 5 Mb/s within a second; without probes 300 kb/s become 2.5 Mb/s in 27.6 s, at 8 % a second.
    let mut wide = alone(20_000, RTT);
    let soon = when(&mut wide, |target| target >= Rate::kbps(4_900));
    assert!((Span::millis(150)..=Span::millis(700)).contains(&soon), "{soon}");
    let without = plan().set("probes", Given::Switch(false));
    let mut slow = Bench::new(Link::new(Rate::mbps(20), RTT), &[without]);
    let late = when(&mut slow, |target| target >= Rate::kbps(2_500));
    assert!((Span::secs(27)..=Span::secs(29)).contains(&late), "{late}");
    let padding =
        |bench: &Bench| bench.flows[0].packets.iter().filter(|packet| packet.stream == Stream::Padding).count();
    assert!((5..=80).contains(&padding(&wide)) && padding(&slow) == 0, "{} {}", padding(&wide), padding(&slow));
}

#[test]
fn after_ten_seconds_the_estimate_is_near_the_capacity_and_follows_its_fall() {
    // libwebrtc asserts a deviation of at most 180 kb/s. Its fall to 500 kb/s in 500 ± 33 ms is not reproduced:
    // docs/controllers/gcc.md.
    for rtt in [Span::millis(1), Span::millis(20), Span::millis(100)] {
        let mut bench = Bench::new(Link::new(Rate::mbps(1), rtt), &[text("start", "900kbps")]);
        bench.run_until(s(10.0));
        assert_between(bench.flows[0].target(), Rate::kbps(820), Rate::kbps(1_180));
        bench.set_rate(Rate::kbps(500));
        let fall = when(&mut bench, |target| target <= Rate::kbps(500));
        assert!((Span::millis(500)..=Span::millis(1_000)).contains(&fall), "{rtt}: {fall}");
        bench.run_until(s(60.0));
        let used = bench.used(0, s(20.0), s(60.0));
        assert!((0.85..=1.0).contains(&used), "{rtt}: {used}");
        bench.set_rate(Rate::mbps(1));
        bench.run_until(s(120.0));
        let used = bench.used(0, s(90.0), s(120.0));
        assert!((0.85..=1.0).contains(&used), "{rtt}: {used}");
    }
}

#[test]
fn a_jump_of_the_receivers_clock_is_overcome() {
    for ahead in [70, 130] {
        let mut plan = text("start", "900kbps");
        plan.receivers_ahead = Span::secs(100);
        let mut bench = Bench::new(Link::new(Rate::mbps(1), RTT), &[plan]);
        bench.flows[0].clock = Clock::Every(Span::millis(50));
        bench.run_until(s(10.0));
        bench.flows[0].receiver_ahead = Span::secs(ahead);
        bench.set_rate(Rate::kbps(500));
        // libwebrtc takes 867 ms with a jump ahead, and 933 ms with a jump back.
        let fall = when(&mut bench, |target| target <= Rate::kbps(500));
        assert!((Span::millis(500)..=Span::millis(1_200)).contains(&fall), "{ahead}: {fall}");
        bench.run_until(s(60.0));
        let used = bench.used(0, s(25.0), s(60.0));
        assert!((0.85..=1.0).contains(&used), "{ahead}: {used}");
    }
}

#[test]
fn alone_the_rate_saws() {
    // libwebrtc asserts that the lowest target is below 0.85 of the highest, at 500 kb/s and 100 ms each way.
    let mut bench = alone(500, Span::millis(200));
    bench.run_until(s(50.0));
    let late = bench.flows[0].decisions.iter().filter(|d| d.at >= s(30.0)).map(|d| d.decision.target);
    let (least, most) = (late.clone().min().unwrap(), late.max().unwrap());
    assert!((0.7..0.85).contains(&least.ratio(most)), "{least} {most}");
}

#[test]
fn the_model_bears_random_loss_and_the_fraction_does_not() {
    let mean = |model: &str, loss: f64| {
        let mut plan = text("loss", model);
        plan.cap = Rate::kbps(1_500);
        let mut bench = Bench::new(Link::new(Rate::mbps(2), Span::millis(400)).losing(loss), &[plan]);
        bench.run_until(s(120.0));
        bench.mean_target(0, s(20.0), s(120.0))
    };
    for loss in [0.005, 0.02, 0.1] {
        assert_between(mean("v2", loss), Rate::kbps(1_400), Rate::kbps(1_500));
    }
    assert_between(mean("v1", 0.005), Rate::kbps(1_400), Rate::kbps(1_500));
    // libwebrtc asserts 100 kb/s with either model.
    assert_between(mean("v1", 0.1), Rate::kbps(100), Rate::kbps(400));
}

#[test]
fn with_receiver_reports_alone_loss_decides() {
    let mut bench = Bench::new(Link::new(Rate::mbps(1), Span::millis(200)), &[text("start", "1Mbps")]);
    bench.flows[0].mute = true;
    bench.run_until(s(20.0));
    assert_between(bench.flows[0].target(), Rate::kbps(500), Rate::kbps(1_300));
    bench.link.loss = 0.15;
    bench.run_until(s(40.0));
    assert_between(bench.flows[0].target(), Rate::kbps(30), Rate::kbps(300));
}

#[test]
fn a_pause_of_the_video_does_not_lower_the_estimate() {
    let mut bench = alone(2_000, Span::millis(200));
    bench.run_until(s(20.0));
    bench.flows[0].idle = true;
    bench.run_until(s(24.0));
    bench.flows[0].idle = false;
    assert_between(bench.flows[0].target(), Rate::mbps(1), Rate::kbps(2_200));
    bench.run_until(s(60.0));
    let used = bench.used(0, s(26.0), s(60.0));
    assert!((0.85..=1.0).contains(&used), "{used}");
}

#[test]
fn a_source_that_sends_less_holds_the_estimate_down_unless_it_is_probed() {
    let run = |probes: bool| {
        let plan = plan().set("probes", Given::Switch(probes));
        let mut bench = Bench::new(Link::new(Rate::mbps(10), RTT), &[plan]);
        bench.flows[0].most = Rate::kbps(400);
        bench.run_until(s(60.0));
        bench.flows[0].target()
    };
    // The limit is 1.5 times the acknowledged rate plus 10 kb/s.
    assert_eq!(run(false).as_bps().div_ceil(1_000), 611);
    assert_between(run(true), Rate::kbps(3_500), Rate::mbps(5));
}

#[test]
fn flows_of_one_kind_share_a_link_once_they_have_met_for_a_minute_or_two() {
    for seed in 1..=3 {
        let one = |n: u64| Plan { seed: Seed(seed + 100 * n), ..plan() };
        let mut bench = Bench::new(Link::new(Rate::mbps(3), RTT), &[one(0)]);
        bench.run_until(s(10.0));
        bench.join(&one(1));
        bench.run_until(s(240.0));
        let [a, b] = [0, 1].map(|i| bench.used(i, s(120.0), s(240.0)));
        assert!((0.85..=1.0).contains(&(a + b)), "{a} {b}");
        assert!((0.6..=1.6).contains(&(a / b)), "{a} {b}");
        assert_eq!(bench.loss(0, s(120.0), s(239.0)), 0.0);
    }
}

#[test]
fn nearly_equal_frame_rates_starve_the_slower_camera() {
    let ratio = |kbps: u64, fps: u64| {
        let mut bench = Bench::new(Link::new(Rate::kbps(kbps), RTT), &[plan()]);
        bench.run_until(s(10.0));
        bench.join(&plan());
        bench.flows[1].fps = fps;
        bench.run_until(s(240.0));
        let [a, b] = [0, 1].map(|i| bench.used(i, s(120.0), s(240.0)));
        assert!((0.85..=1.0).contains(&(a + b)), "{a} {b}");
        a / b
    };
    // 29 and 30 frames/s drift by 1/30, more than the least slope 0.025. RFC 8868 allows a ratio of three.
    for kbps in [3_000, 6_000] {
        let (near, far) = (ratio(kbps, 29), ratio(kbps, 25));
        assert!((4.0..=25.0).contains(&near) && (0.7..=1.4).contains(&far), "{kbps}: {near} {far}");
    }
}

#[test]
fn beside_constant_rate_traffic_it_takes_what_is_left() {
    let mut bench = Bench::new(Link::new(Rate::mbps(4), RTT).cross(Rate::mbps(2)), &[plan()]);
    bench.run_until(s(60.0));
    assert_between(bench.received_rate(0, s(20.0), s(60.0)), Rate::kbps(1_750), Rate::kbps(2_000));
}

#[test]
fn frames_of_uneven_size_and_lost_reports_cost_a_little() {
    let mut uneven = alone(2_000, RTT);
    uneven.flows[0].noise = 0.5;
    uneven.run_until(s(60.0));
    let used = uneven.used(0, s(20.0), s(60.0));
    assert!((0.7..=0.95).contains(&used), "{used}");
    let mut lost = alone(4_000, RTT);
    lost.link.back_loss = 0.33;
    lost.run_until(s(60.0));
    let used = lost.used(0, s(10.0), s(60.0));
    assert!((0.8..=1.0).contains(&used), "{used}");
}

#[test]
fn a_queue_of_few_packets_costs_loss_and_no_rate() {
    // The queue holds 40 ms: the delay can't rise enough to be detected before packets are lost.
    for (model, least, most) in [("v2", 0.002, 0.05), ("v1", 0.01, 0.1)] {
        let link = Link::new(Rate::mbps(2), RTT).limit(Bytes::new(10_000));
        let mut bench = Bench::new(link, &[text("loss", model)]);
        bench.run_until(s(60.0));
        let (used, loss) = (bench.used(0, s(20.0), s(60.0)), bench.loss(0, s(20.0), s(59.0)));
        assert!((0.9..=1.001).contains(&used) && (least..=most).contains(&loss), "{model}: {used} {loss}");
    }
}

#[test]
fn silence_lowers_the_rate_and_feedback_brings_it_back() {
    let mut bench = alone(4_000, RTT);
    bench.run_until(s(20.0));
    let before = bench.flows[0].target();
    bench.link.back_loss = 1.0;
    bench.run_until(s(22.5));
    // The data in flight exceeds the window: the encoder gets the minimum of the pushback.
    let decision = bench.flows[0].sender.decision();
    assert_eq!((decision.target, &*decision.why.rule), (Rate::kbps(30), "more under way than fits"));
    bench.run_until(s(40.0));
    // After 3 s the rate falls by a fifth per second, for 17 s.
    let estimate = bench.flows[0].sender.decision().pacing.scale(1.0 / 2.5);
    assert_between(estimate, before.scale(0.015), before.scale(0.035));
    bench.link.back_loss = 0.0;
    bench.run_until(s(80.0));
    assert_between(bench.flows[0].target(), Rate::kbps(3_000), Rate::kbps(4_300));
    // Without the pushback only the back-off applies.
    let without = plan().set("pushback", Given::Switch(false));
    let mut alone = Bench::new(Link::new(Rate::mbps(4), RTT), &[without]);
    alone.run_until(s(20.0));
    let before = alone.flows[0].target();
    alone.link.back_loss = 1.0;
    alone.run_until(s(22.5));
    assert_between(alone.flows[0].target(), before.scale(0.99), before);
    alone.run_until(s(26.5));
    assert_between(alone.flows[0].target(), before.scale(0.4), before.scale(0.55));
    assert_eq!(alone.flows[0].sender.decision().why.rule, "no feedback: reduced");
}

#[test]
fn the_clocks_of_the_ends_need_not_agree() {
    clocks_need_not_agree(plan(), &Link::new(Rate::mbps(2), RTT));
}

#[test]
fn it_needs_reports_of_packets_and_for_its_probes_what_sends_them() {
    let gcc = find("gcc").unwrap();
    let needs =
        |given: &[(String, Given)]| (gcc.needs)(&Values::resolve(gcc.params, Mode::Repaired, given).unwrap()).to_vec();
    assert_eq!(needs(&[]), [Need::PacketReports, Need::Probes]);
    assert_eq!(needs(&[("probes".into(), Given::Switch(false))]), [Need::PacketReports]);
}

#[test]
fn reports_are_due_each_fifty_to_two_hundred_and_fifty_milliseconds_while_packets_come() {
    let due_after = |kbps: u64| {
        let chosen = Chosen::shared("gcc", Mode::Repaired, &[]).unwrap();
        let mut plan = plan();
        plan.cap = Rate::kbps(kbps);
        let mut half = Hearing(chosen.receiver(&plan.setup(ReceiverId(9), "receiver")));
        let due = |half: &mut Hearing, at: u64| {
            half.packet(at, false, Ecn::NotEct);
            half.due().unwrap_or(0)
        };
        assert_eq!(half.due(), None);
        let first = due(&mut half, 100);
        assert_eq!(due(&mut half, 110), first);
        assert_eq!((half.report(first), half.due()), (Reply::Plain, None));
        let next = due(&mut half, first + 10);
        // After a pause the report is due immediately.
        half.report(next);
        assert_eq!(due(&mut half, next + 2_000), next + 2_000);
        (first, next)
    };
    assert_eq!(due_after(4_000), (150, 200));
    // 544 bits at 5 kb/s: 108.8 ms.
    assert_eq!(due_after(100), (208, 316));
    assert_eq!(due_after(20), (350, 600));
}

both_halves_stand!("gcc", 1);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_becomes_of_packets_the_rate_stays_within_its_bounds(
        ops in prop::collection::vec((packet_op(), 0u64..200), 1..200), v1 in any::<bool>(), options in any::<bool>(),
    ) {
        let params = [
            ("loss", Given::Text(if v1 { "v1" } else { "v2" }.into())),
            ("pushback", Given::Switch(options)),
            ("probes", Given::Switch(options)),
        ];
        packets_stand("gcc", &params, Mode::Repaired, Ecn::NotEct, ops)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path(), v1 in any::<bool>()) {
        let loss = ("loss", Given::Text(if v1 { "v1" } else { "v2" }.into()));
        bench_stands("gcc", &[loss], &path, Ecn::NotEct)?;
    }
}
