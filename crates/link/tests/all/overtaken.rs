//! Packets that arrive out of order are counted, independent of the cause.
use steadycast_link::{CoDel, Config, Ecn, Fate, Jitter, JitterDist, Limit, Link, Queue, Reorder, Service, Steps};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// Returns the arrivals in order of departure, and the link's count of reordered packets.
fn arrivals(config: &Config, seed: u64) -> (Vec<Time>, u64) {
    let mut link = Link::new(config, "test", Seed(seed));
    let mut found = Vec::new();
    let mut take = |link: &mut Link, now: Time| {
        while let Some(due) = link.due().filter(|due| *due <= now) {
            while let Some((_, fate)) = link.take(due) {
                if let Fate::Arrives { at, .. } = fate {
                    found.push(at);
                }
            }
        }
    };
    let mut passed = Vec::new();
    for n in 0..2_000 {
        let now = Time::ZERO + Span::micros(1_900) * n;
        take(&mut link, now);
        if let Fate::Arrives { at, .. } = link.offer(now, Bytes::new(1_000), Ecn::NotEct) {
            passed.push(at);
        }
        take(&mut link, now);
    }
    take(&mut link, Time::ZERO + Span::secs(100));
    found.extend(passed);
    (found, link.counts(Time::NEVER).reordered)
}

/// Counts the packets that a later one overtakes by comparing all pairs.
fn overtaken(arrivals: &[Time]) -> u64 {
    let overtaken = |n: usize| arrivals[n + 1..].iter().any(|later| *later < arrivals[n]);
    (0..arrivals.len()).filter(|n| overtaken(*n)).count() as u64
}

#[test]
fn each_packet_that_a_later_one_overtakes_is_counted_once_whatever_held_it_up() {
    let dists =
        [JitterDist::Exponential, JitterDist::Uniform, JitterDist::Normal, JitterDist::HalfNormal, JitterDist::Wifi];
    let (mut cases, mut some) = (0, 0);
    for (n, dist) in dists.into_iter().enumerate() {
        for (p, by) in [(0.0, 0), (0.05, 1), (0.2, 8)] {
            for may_overtake in [false, true] {
                for queue in [Queue::drop_tail(Limit::Packets(50)), Queue::CoDel(CoDel::RFC)] {
                    let config = Config {
                        service: Service::Rate(Steps::constant(Rate::mbps(5))),
                        delay: Steps::constant(Span::millis(20)),
                        jitter: Steps::constant(Some(Jitter { mean: Span::millis(3), dist, reorder: may_overtake })),
                        reorder: Steps::constant(Reorder { p, by: Span::millis(by) }),
                        duplicate: Steps::constant(0.1),
                        queue,
                        ..Config::default()
                    };
                    let (at, counted) = arrivals(&config, n as u64);
                    assert!(at.len() > 1_500, "{} packets arrive", at.len());
                    assert_eq!(counted, overtaken(&at), "{config:?}");
                    (cases, some) = (cases + 1, some + u64::from(counted > 0));
                    assert!(may_overtake || p > 0.0 || counted == 0, "in order: {config:?}");
                }
            }
        }
    }
    assert!(some * 2 > cases, "{some} of {cases} reorder");
}
