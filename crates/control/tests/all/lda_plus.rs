//! The claims about `lda-plus`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::proof::{any_path, both_halves_stand, table, world_stands};
use harness::{Loss, Path, Plan, World, assert_between, assert_snapshot, assert_within, s};
use proptest::prelude::*;
use steadycast_control::equation::{LossRate, throughput_full};
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{Body, Leave, Limit, Mode, ReceiverId, Reception, Report, SenderHalf};
use steadycast_units::{Bytes, Rate, Span, Time};

const R: Span = Span::millis(100);
const S: Bytes = Bytes::new(1000);

struct Bench {
    half: Box<dyn SenderHalf>,
    now: Time,
}

impl Bench {
    fn new(mode: Mode) -> Self {
        let plan = Plan::new("lda-plus", Path::clean(R));
        let mut bench = Self {
            half: Chosen::shared("lda-plus", mode, &[]).unwrap().sender(&plan.setup(ReceiverId(1), "sender")),
            now: s(1.0),
        };
        bench.report(9, 0, Rate::mbps(1));
        bench
    }
    /// Delivers a report 5 s after the last one: the lost ones of 100 packets, and the bottleneck estimate.
    fn report(&mut self, from: u32, lost: i64, bottleneck: Rate) -> Rate {
        self.now += Span::secs(5);
        let bytes = (bottleneck.as_bytes_per_s() as f32).to_be_bytes().to_vec();
        let body = Body { subtype: 1, bytes };
        let reception = Reception { expected: 100, lost, fraction: 0.0, highest: 0, jitter: Span::ZERO };
        self.half.on_report(&Report {
            at: self.now,
            from: ReceiverId(from),
            rtt: Some(R),
            reception: Some(reception),
            body: Some(&body),
            members: 2,
            packets: &[],
        });
        self.half.decision().target
    }
}

#[test]
fn without_loss_the_rate_rises_by_the_least_of_three() {
    let mut bench = Bench::new(Mode::Repaired);
    // A_add = (2 − 0.15) 10 kb/s; A_exp = (1 − e^−0.85) 150; A_tcp = 0.5 · 80 kb/s · 51.
    let r = bench.report(9, 0, Rate::mbps(1));
    assert_within(r.as_bps_f64(), 168_500.0, 1e-4);
    let step = 18.5 * (2.0 - 0.1685);
    assert_within(bench.report(9, 0, Rate::mbps(1)).as_bps_f64(), 168_500.0 + step * 1e3, 1e-4);
    assert_eq!(bench.half.decision().why.rule, "no loss: additive increase");
    // Near the bottleneck the increase follows the unused share, which is zero at the bottleneck.
    let mut near = Bench::new(Mode::Repaired);
    let before = 150_000.0f64;
    let left: f64 = 1.0 - 150.0 / 155.0;
    assert_within(near.report(9, 0, Rate::kbps(155)).as_bps_f64(), before * (2.0 - libm::exp(-left)), 1e-4);
    assert_eq!(near.half.decision().why.rule, "no loss: near the bottleneck");
    let mut at = Bench::new(Mode::Repaired);
    assert_within(at.report(9, 0, Rate::kbps(140)).as_bps_f64(), before, 1e-6);
}

#[test]
fn after_a_bottleneck_that_was_below_the_rate_for_a_while_the_rate_rises_again() {
    let mut bench = Bench::new(Mode::Repaired);
    let before = bench.half.decision().target;
    for _ in 0..20 {
        assert_eq!(bench.report(9, 0, Rate::kbps(75)), before);
    }
    // (2 − 0.15) 10 kb/s, as after a loss.
    assert_within(bench.report(9, 0, Rate::mbps(1)).as_bps_f64(), 168_500.0, 1e-4);
}

#[test]
fn loss_takes_its_root_or_leaves_the_equation_and_begins_the_steps_anew() {
    let mut bench = Bench::new(Mode::Repaired);
    let mut high = Rate::ZERO;
    while high < Rate::kbps(900) {
        high = bench.report(9, 0, Rate::mbps(20));
    }
    let equation = throughput_full(S, R, LossRate::new(0.25).unwrap(), R * 4, 1.0);
    let fallen = bench.report(9, 25, Rate::mbps(20));
    assert_within(fallen.as_bps_f64(), (high.as_bps_f64() * 0.5).max(equation.as_bps_f64()), 1e-4);
    let risen = bench.report(9, 0, Rate::mbps(20));
    assert_within(risen.saturating_sub(fallen).as_bps_f64(), 20_000.0, 0.03);
    // If the equation gives more, the rate rises with a loss in paper mode and stays in repaired mode.
    for (mode, more) in [(Mode::Paper, true), (Mode::Repaired, false)] {
        let mut bench = Bench::new(mode);
        let after = bench.report(9, 1, Rate::mbps(20));
        assert_eq!(after > Rate::kbps(150), more, "{after}");
        assert!(more || after == Rate::kbps(150), "{after}");
    }
}

#[test]
fn the_group_has_the_rate_of_its_slowest_until_that_one_is_gone() {
    let mut bench = Bench::new(Mode::Repaired);
    for _ in 0..4 {
        bench.report(9, 0, Rate::mbps(1));
    }
    bench.report(8, 0, Rate::mbps(1));
    bench.report(8, 50, Rate::mbps(1));
    let low = bench.half.decision();
    assert_eq!(low.why.by, Some(ReceiverId(8)));
    bench.half.on_leave(bench.now, ReceiverId(8), Leave::Silent);
    let after = bench.half.decision();
    assert_eq!(after.why.by, Some(ReceiverId(9)));
    assert!(after.target > low.target);
}

#[test]
fn packet_pairs_find_the_bottleneck_within_two_percent() {
    for kbps in [300, 1_000, 4_000] {
        let mut world = Plan::new("lda-plus", Path::clean(R).bottleneck(Rate::kbps(kbps), 50)).build();
        world.run_until(s(60.0));
        assert_within(world.members[0].half.view().rate.unwrap().as_bps_f64(), kbps as f64 * 1e3, 0.02);
    }
}

#[test]
fn one_packet_in_sixteen_leaves_with_the_one_before_it_and_the_mean_rate_is_the_target() {
    let mut world = Plan::new("lda-plus", Path::clean(R)).set("start", Given::Text("800kbps".into())).build();
    world.rtcp = Span::secs(1_000);
    world.run_until(s(20.0));
    let gaps: Vec<f64> = world.sent.windows(2).map(|w| w[1].0.since(w[0].0).as_secs_f64()).collect();
    let pairs = gaps.iter().filter(|g| **g < 1e-6).count();
    assert_within(pairs as f64, gaps.len() as f64 / 16.0, 0.02);
    assert_within(world.sent_rate(s(0.0), s(20.0)).as_bps_f64(), 800_000.0, 0.01);
}

#[test]
fn silence_halves_the_rate_every_twenty_seconds() {
    let mut world = Plan::new("lda-plus", Path::clean(R).bottleneck(Rate::mbps(1), 30)).build();
    world.run_until(s(60.0));
    let before = world.target();
    world.path.back_loss = Loss::All;
    world.run_for(Span::secs(23));
    assert_between(world.target(), before.scale(0.45), before.scale(0.62));
    world.run_for(Span::secs(600));
    assert_eq!((world.target(), world.sender.decision().limit), (Rate::kbps(1), Limit::Floor));
}

#[test]
fn alone_on_a_link_it_comes_near_and_hardly_fills_its_queue() {
    let note: fn(&World) -> String = |world| {
        let kbps = world.members[0].half.view().rate.map_or(0.0, |r| r.as_bps_f64() / 1e3);
        format!("{kbps:.0}")
    };
    let lossy = [(1_000, 160), (2_000, 50)];
    let table = table("lda-plus", &[], &lossy, (200.0, 300.0), ("bottleneck, kb/s", note), |used, loss, rtt| {
        assert!((0.1..=1.001).contains(&used), "{rtt}: {used}");
        assert!(loss < 0.06, "{rtt}: {loss}");
    });
    assert_snapshot("lda-plus.txt", &table);
    let page = include_str!("../../../../docs/controllers/lda-plus.md");
    assert!(page.contains(&table), "the page shows another table:\n{table}");
}

both_halves_stand!("lda-plus", 1);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path()) {
        world_stands("lda-plus", &path, 30.0)?;
    }
}
