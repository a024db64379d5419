//! The claims of `steady` where receivers decide: in groups, and with its own report. `crates/sim/tests/all/steady.rs`
//! has groups beside TCP.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::group;
use crate::harness;

use group::{Clock, Path, World, between};
use harness::bench::{Bench, Link};
use harness::proof::{receiver_stands, sender_stands};
use harness::{Plan, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Factory, Given, check_needs};
use steadycast_control::{Mode, Need};
use steadycast_units::{Rate, Seed, Span};

const AT_RECEIVER: (&str, &str) = ("at", "receiver");

fn world(seed: u64) -> World {
    World::new("steady", Mode::Repaired, &[], seed).limits(Rate::kbps(10), Rate::mbps(50))
}

fn link(mbps: u64) -> Path {
    Path::ideal().rate(Rate::mbps(mbps))
}

/// Receivers behind links of these rates, in Mb/s.
fn receivers(world: &mut World, mbps: &[u64]) -> Vec<usize> {
    mbps.iter()
        .map(|mbps| {
            let path = world.path(link(*mbps));
            world.join(path, Clock::default())
        })
        .collect()
}

#[test]
fn a_group_gets_what_its_slowest_member_can_take_and_that_one_loses_nothing() {
    let mut world = world(1);
    let all = receivers(&mut world, &[4, 8, 2, 8, 8, 8, 8, 8]);
    world.run(Span::secs(60));
    between(world.mean(20, 60), 1.9e6, 2.0e6);
    let by = world.sender.decision().why.by;
    assert_eq!(by, Some(world.id(all[2])));
    for index in all {
        assert_eq!(world.half(index).view().loss, Some(0.0));
        assert!(world.half(index).checks().iter().all(|check| check.broken == 0));
    }
    let least = world.sender.checks()[0];
    assert!(least.broken == 0 && least.checked > 100, "{least:?}");
}

#[test]
fn only_the_member_that_limits_the_rate_reports_often() {
    let mut world = world(2);
    let all = receivers(&mut world, &[8, 8, 2, 8, 8, 8, 8, 8]);
    world.run(Span::secs(10));
    let before: Vec<_> = all.iter().map(|index| world.reports(*index)).collect();
    world.run(Span::secs(30));
    let often: Vec<_> = all.iter().map(|index| (world.reports(*index) - before[*index]) as f64 / 30.0).collect();
    between(often[2], 10.0, 41.0);
    for (_, each) in often.iter().enumerate().filter(|(index, _)| *index != 2) {
        between(*each, 0.2, 2.0);
    }
}

#[test]
fn when_the_slowest_member_goes_the_next_one_counts_and_when_it_comes_it_counts_again() {
    let mut world = world(3);
    let all = receivers(&mut world, &[4, 1]);
    world.run(Span::secs(20));
    between(world.mean(10, 20), 0.9e6, 1.0e6);
    world.leave(all[1]);
    world.run(Span::secs(20));
    between(world.mean(30, 40), 3.7e6, 4.0e6);
    let late = receivers(&mut world, &[1])[0];
    world.run(Span::secs(20));
    between(world.mean(50, 60), 0.8e6, 1.0e6);
    assert_eq!(world.sender.decision().why.by, Some(world.id(late)));
}

#[test]
fn a_member_that_dies_while_it_limits_the_rate_is_given_up_within_seconds() {
    let mut world = world(4);
    let all = receivers(&mut world, &[4, 1]);
    world.run(Span::secs(20));
    world.die(all[1]);
    world.run(Span::secs(20));
    assert_eq!(world.sender.decision().why.by, Some(world.id(all[0])));
    between(world.mean(30, 40), 3.7e6, 4.0e6);
}

#[test]
fn with_nobody_heard_the_rate_falls_to_its_floor_and_comes_back_with_the_reports() {
    let mut world = world(5);
    receivers(&mut world, &[4, 8, 8]);
    world.run(Span::secs(20));
    world.back_loss = 1.0;
    world.run(Span::secs(10));
    between(world.rate().as_bps_f64(), 10e3, 10e3);
    let highest = world.mean(24, 30);
    between(highest, 10e3, 60e3);
    world.back_loss = 0.0;
    world.run(Span::secs(20));
    between(world.mean(40, 50), 3.7e6, 4.0e6);
}

#[test]
fn members_behind_one_link_share_its_queue_and_yield_together() {
    let mut world = world(6);
    let path = world.path(link(2));
    world.join_many(8, path);
    world.run(Span::secs(60));
    between(world.mean(20, 60), 1.85e6, 2.0e6);
}

#[test]
fn the_clocks_of_members_need_not_agree_and_may_drift() {
    let mut world = world(7);
    for (mbps, offset_s, ppm) in [(2, 3_600, 100.0), (4, -3_600, -100.0), (8, 0, 0.0)] {
        let path = world.path(link(mbps));
        world.join(path, Clock { offset_s, ppm });
    }
    world.run(Span::secs(60));
    between(world.mean(20, 60), 1.85e6, 2.0e6);
}

#[test]
fn of_a_hundred_members_with_the_same_queue_few_report_beyond_rtcps_times() {
    let mut world = world(8);
    let path = world.path(link(2));
    let all = world.join_many(100, path);
    world.run(Span::secs(20));
    let before: u64 = all.iter().map(|index| world.reports(*index)).sum();
    world.run(Span::secs(20));
    let each_second = (all.iter().map(|index| world.reports(*index)).sum::<u64>() - before) as f64 / 20.0;
    // RTCP's regular times give about 85 reports per second: the receivers' part of 5 % of 2 Mb/s, at 112 B per report.
    // The receiver that limits the rate sends 40 per second.
    between(each_second, 20.0, 200.0);
    between(world.mean(20, 40), 1.7e6, 2.0e6);
}

/// A flow of one receiver on a link: its use, loss, and the queue's 95th percentile from 20 s on.
fn alone(at: &str, kbps: u64, ms: u64) -> (f64, f64, Span) {
    let mut plan = Plan::new("steady", harness::Path::clean(Span::ZERO)).set("at", Given::Text(at.into()));
    plan.cap = Rate::mbps(50);
    let mut bench = Bench::new(Link::new(Rate::kbps(kbps), Span::millis(ms)), &[plan]);
    bench.run_until(s(80.0));
    (bench.used(0, s(20.0), s(80.0)), bench.loss(0, s(20.0), s(79.0)), bench.queue_delay(0, 0.95, s(20.0), s(80.0)))
}

#[test]
fn by_its_own_report_it_is_worse_than_by_reports_of_single_packets_but_safe() {
    for (kbps, ms) in [(1_000, 40), (4_000, 40), (4_000, 120), (20_000, 40)] {
        let (packets, _, short) = alone("sender", kbps, ms);
        let (used, loss, queue) = alone("receiver", kbps, ms);
        assert!((0.9..=packets + 0.02).contains(&used), "{kbps} {ms}: {used} of {packets}");
        assert_eq!(loss, 0.0, "{kbps} {ms}");
        assert!(queue <= short + Span::millis(25), "{kbps} {ms}: {queue} of {short}");
    }
}

#[test]
fn single_packets_are_needed_towards_one_receiver_alone_and_not_where_that_one_decides() {
    let chosen = |at: &str| Chosen::new("steady", Mode::Repaired, &[("at".into(), Given::Text(at.into()))]).unwrap();
    assert_eq!(chosen("sender").terms().needs_in(false), [Need::PacketReports]);
    assert_eq!(chosen("sender").terms().needs_in(true), []);
    assert_eq!(chosen(AT_RECEIVER.1).terms().needs_in(false), []);
    assert!(check_needs("steady", &chosen("sender").terms().needs_in(false), &[Need::Probes]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_sender_hears_its_rate_stays_within_its_bounds(
        ops in prop::collection::vec((harness::proof::op(), 0u64..2_000), 1..120),
    ) {
        sender_stands("steady", &[AT_RECEIVER], Mode::Repaired, ops)?;
    }

    #[test]
    fn whatever_a_receiver_hears_its_reports_are_sound(all in harness::proof::arrivals(16)) {
        receiver_stands("steady", &[AT_RECEIVER], all)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_group_is_kept_alive_and_bounded(
        seed: u64, paths in prop::collection::vec((50u64..5_000, 2u64..300, 0.0f64..0.3, 1u64..60), 1..5),
    ) {
        let mut world = World::new("steady", Mode::Repaired, &[], Seed(seed).0).limits(Rate::kbps(8), Rate::mbps(10));
        let mut least = u64::MAX;
        for (kbps, ms, loss, queue) in paths {
            least = least.min(kbps);
            let path = Path::ideal().rate(Rate::kbps(kbps)).delay(Span::millis(ms)).loss(loss).queue(queue);
            let path = world.path(path);
            world.join(path, Clock::default());
        }
        world.run(Span::secs(20));
        for (_, rate) in &world.rates {
            prop_assert!((Rate::kbps(8)..=Rate::mbps(10)).contains(rate), "{}", rate);
        }
        let mean = world.mean(10, 20);
        prop_assert!(mean <= 3.0 * 1e3 * least as f64 + 100e3, "{mean} on {least} kb/s");
        prop_assert!(world.sender.checks().iter().all(|check| check.broken == 0));
    }
}
