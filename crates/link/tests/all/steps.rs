//! Rates that change: the capacity of a link, and its behaviour during an outage.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use proptest::prelude::*;
use std::sync::Arc;
use steadycast_link::{Config, Ecn, Fate, Limit, Link, Opportunities, Queue, Service, Steps};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

fn link(service: Service, queue: Queue) -> Link {
    Link::new(&Config { service, queue, ..Config::default() }, "it", Seed(1))
}

fn of_steps(first: Rate, changes: &[(u64, Rate)]) -> Steps<Rate> {
    let mut steps = Steps::constant(first);
    changes.iter().for_each(|(ms, rate)| steps.then(at(*ms), *rate));
    steps
}

/// Sums the rates of all milliseconds. Of several changes at one time the last one holds.
fn by_milliseconds(first: Rate, changes: &[(u64, Rate)], from: u64, until: u64) -> f64 {
    let rate = |ms: u64| {
        changes
            .iter()
            .filter(|(t, _)| *t <= ms)
            .max_by_key(|(t, _)| *t)
            .map_or(first, |(t, _)| changes.iter().rev().find(|(other, _)| other == t).unwrap().1)
    };
    (from..until).map(|ms| rate(ms).as_bytes_per_s() / 1e3).sum()
}

proptest! {
    #[test]
    fn what_steps_could_carry_is_their_integral(
        first in 0u64..50_000,
        changes in prop::collection::vec((0u64..200, 0u64..50_000), 0..12),
        (from, more) in (0u64..250, 0u64..250),
    ) {
        let changes: Vec<_> = changes.into_iter().map(|(ms, kbps)| (ms, Rate::kbps(kbps))).collect();
        let first = Rate::kbps(first);
        let link = link(Service::Rate(of_steps(first, &changes)), Queue::drop_tail(Limit::Packets(50)));
        let capacity = link.capacity(at(from), at(from + more)).unwrap().as_f64();
        let summed = by_milliseconds(first, &changes, from, from + more);
        // Each step is rounded down to the byte.
        prop_assert!(capacity <= summed + 1e-6 && capacity + 13.0 >= summed, "{capacity} and {summed}");
    }

    #[test]
    fn a_link_that_is_never_idle_sends_what_it_could_over_steps_as_over_traces(
        kbps in prop::collection::vec((0u64..300, 0u64..40_000), 1..8),
        mut times in prop::collection::vec(0u64..300, 1..60),
        (from, more) in (0u64..200, 1u64..200),
    ) {
        times.sort_unstable();
        times.push(300);
        let changes: Vec<_> = kbps.into_iter().map(|(ms, kbps)| (ms, Rate::kbps(kbps))).collect();
        let trace = Opportunities { at: times.iter().map(|ms| Span::millis(*ms)).collect::<Arc<[_]>>(), looped: true };
        for service in [Service::Rate(of_steps(Rate::mbps(1), &changes)), Service::Trace(trace)] {
            let mut link = link(service.clone(), Queue::drop_tail(Limit::Packets(100_000)));
            for _ in 0..2_000 {
                link.offer(Time::ZERO, Bytes::new(1500), Ecn::NotEct);
            }
            let until = from + more;
            // Bytes that leave at time zero count in an interval that starts there.
            let before = if from == 0 { Bytes::ZERO } else { link.sent(at(from)) };
            let sent = link.sent(at(until)).saturating_sub(before);
            let could = link.capacity(at(from), at(until)).unwrap();
            let apart = sent.as_f64() - could.as_f64();
            prop_assert!(apart.abs() <= 13.0, "{service:?}: {sent:?} of {could:?}");
        }
    }
}

#[test]
fn a_link_without_a_limit_for_a_while_could_carry_no_known_amount_then() {
    let changes = [(100, Service::UNLIMITED), (200, Rate::mbps(8))];
    let mut link = link(Service::Rate(of_steps(Rate::mbps(8), &changes)), Queue::drop_tail(Limit::Packets(50)));
    assert_eq!(link.capacity(at(0), at(100)), Some(Bytes::new(100_000)));
    assert_eq!((link.capacity(at(0), at(101)), link.capacity(at(150), at(300))), (None, None));
    assert_eq!(link.capacity(at(200), at(300)), Some(Bytes::new(100_000)));
    // 1000 bytes take 1 ms; the time between them is negligible.
    let mut done = |ms| match link.offer(at(ms), Bytes::new(1000), Ecn::NotEct) {
        Fate::Arrives { at, .. } => at.since(Time::ZERO + Span::millis(ms)),
        fate => panic!("{fate:?}"),
    };
    assert_eq!((done(50), done(150), done(250)), (Span::millis(1), Span::nanos(8), Span::millis(1)));
}

/// Each discipline, with room for ten packets.
fn disciplines() -> Vec<Queue> {
    let limit = Limit::Packets(10);
    let read = |text: &str| {
        let mut out = steadycast_settings::Findings::new("queue.toml");
        let item = steadycast_settings::tree::from_toml(text, &mut out);
        let line = steadycast_link::LinkProperties {
            rate: Some(Rate::mbps(8)),
            delay: Span::millis(10),
            called: steadycast_link::LinkProperties::LINK,
        };
        Queue::read(&item, &line, &mut out).unwrap_or_else(|| panic!("{text}"))
    };
    let kinds = ["droptail", "red", "codel", "fq-codel", "pie", "dualpi2"];
    kinds
        .map(|kind| read(&format!("kind = \"{kind}\"\nlimit = \"{}p\"", 10)))
        .into_iter()
        .chain([Queue::drop_tail(limit)])
        .collect()
}

#[test]
fn in_an_outage_nothing_leaves_whatever_the_discipline_and_the_queue_holds_and_overflows() {
    for queue in disciplines() {
        let steps = of_steps(Rate::mbps(8), &[(100, Rate::ZERO), (400, Rate::mbps(8))]);
        let mut link = link(Service::Rate(steps), queue.clone());
        let (mut arrivals, mut dropped, mut held) = (Vec::new(), 0, 0);
        let mut count = |fate: Fate| match fate {
            Fate::Arrives { at, .. } => arrivals.push(at),
            Fate::Dropped(_) => dropped += 1,
            Fate::Held(_) => held += 1,
        };
        // A packet every 5 ms, which takes 1 ms.
        let mut now = 0;
        while now < 1_000 {
            while let Some((_, fate)) = link.take(at(now)) {
                count(fate);
            }
            if now % 5 == 0 {
                count(link.offer_with_flow(at(now), Bytes::new(1000), Ecn::NotEct, 1));
            }
            now += 1;
        }
        while let Some((_, fate)) = link.take(at(now)) {
            count(fate);
        }
        let in_outage = arrivals.iter().filter(|t| **t > at(101) && **t <= at(400)).count();
        let after = arrivals.iter().filter(|t| **t > at(400) && **t <= at(420)).count();
        assert_eq!(in_outage, 0, "{queue:?}");
        // 60 packets arrive in the outage, and the queue has room for ten beside the one on the transmitter. Those
        // ten, and four that arrive while they leave, may be dropped for their delay.
        assert!((49..=74).contains(&dropped), "{queue:?}: {dropped} dropped");
        // Ten, the one on the transmitter and the four that arrive, minus those that the discipline drops.
        assert!((1..=15).contains(&after), "{queue:?}: {after} leave within 20 ms after it");
        assert_eq!(arrivals.len() + dropped, 200, "{queue:?}: {held} held");
        assert_eq!(link.sent(at(400)).saturating_sub(link.sent(at(101))), Bytes::ZERO, "{queue:?}");
    }
}

#[test]
fn a_link_that_never_carries_anything_keeps_what_fits_and_drops_the_rest() {
    for queue in disciplines() {
        let mut link = link(Service::Rate(Steps::constant(Rate::ZERO)), queue.clone());
        let mut dropped = 0;
        for ms in 0..100 {
            let fate = link.offer_with_flow(at(ms), Bytes::new(1000), Ecn::NotEct, 1);
            dropped += usize::from(matches!(fate, Fate::Dropped(_)));
            assert!(!matches!(fate, Fate::Arrives { at, .. } if at < Time::NEVER), "{queue:?}");
            while let Some((_, fate)) = link.take(at(ms)) {
                assert!(matches!(fate, Fate::Dropped(_)), "{queue:?}");
                dropped += 1;
            }
        }
        assert!((90..=100).contains(&dropped), "{queue:?}: {dropped}");
        assert_eq!(
            (link.sent(at(1_000)), link.capacity(at(0), at(1_000))),
            (Bytes::ZERO, Some(Bytes::ZERO)),
            "{queue:?}"
        );
    }
}

#[test]
fn in_a_hole_of_a_table_nothing_leaves_and_what_waits_leaves_at_its_end_one_by_one() {
    let steps = of_steps(Rate::ZERO, &[(100, Rate::mbps(8)), (200, Rate::ZERO), (300, Rate::mbps(8))]);
    let service = Service::Table { steps, mean: Rate::mbps(4) };
    // 20 ms at the mean rate are ten packets, although the rate starts at zero.
    let mut link = link(service, Queue::drop_tail(Limit::Time(Span::millis(20))));
    let mut offer = |ms: u64, n: usize| {
        let fates = (0..n).map(|_| link.offer(at(ms), Bytes::new(1000), Ecn::NotEct));
        let there = fates.filter_map(|fate| match fate {
            Fate::Arrives { at, .. } => Some(at.since(Time::ZERO).as_millis_f64()),
            Fate::Dropped(_) | Fate::Held(_) => None,
        });
        there.collect::<Vec<_>>()
    };
    let from = |ms: u64| (1..=10).map(|n| (ms + n) as f64).collect::<Vec<_>>();
    assert_eq!(offer(50, 12), from(100), "of twelve there is room for ten");
    // Five packets leave before the outage, and five after it.
    assert_eq!(offer(195, 10), [196.0, 197.0, 198.0, 199.0, 200.0, 301.0, 302.0, 303.0, 304.0, 305.0]);
    assert_eq!(offer(250, 12), [306.0, 307.0, 308.0, 309.0, 310.0], "five wait already");
    assert_eq!(link.sent(at(300)).saturating_sub(link.sent(at(200))), Bytes::ZERO);
    assert_eq!(link.capacity(at(0), at(400)), Some(Bytes::new(200_000)));
}
