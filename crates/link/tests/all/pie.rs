//! PIE (RFC 8033) on a link under overload.
use steadycast_link::{Config, Drop, Ecn, Fate, Link, LinkProperties, Pie, Queue, Service, Steps};
use steadycast_settings::{Findings, tree};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const PACKET: Bytes = Bytes::new(1000);

/// 8 Mb/s: a packet takes 1 ms.
fn link(keys: &str) -> Link {
    let mut out = Findings::new("pie.toml");
    let line = LinkProperties { rate: Some(Rate::mbps(8)), delay: Span::ZERO, called: LinkProperties::LINK };
    let queue = Queue::read(&tree::from_toml(&format!("kind = \"pie\"\n{keys}"), &mut out), &line, &mut out);
    let queue = queue.unwrap_or_else(|| panic!("{:?}", out.problems));
    let service = Service::Rate(Steps::constant(Rate::mbps(8)));
    Link::new(&Config { service, queue, ..Config::default() }, "test", Seed(1))
}

/// Offers a packet every `gap` from `from` to `until`. Returns each packet's arrival, fate and wait for the
/// transmitter.
fn offer(link: &mut Link, gap: Span, from: Time, until: Time, ecn: Ecn) -> Vec<(Time, Fate, Span)> {
    let times = std::iter::successors(Some(from), |at| Some(*at + gap)).take_while(|at| *at < until);
    times.map(|at| (at, link.offer(at, PACKET, ecn), link.waited())).collect()
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::secs(seconds)
}

fn dropped(fates: &[(Time, Fate, Span)]) -> usize {
    fates.iter().filter(|(_, fate, _)| matches!(fate, Fate::Dropped(_))).count()
}

#[test]
fn at_a_constant_overload_it_drops_the_excess_and_holds_the_delay_at_its_target() {
    for (target, wanted) in [("15ms", 15.0), ("40ms", 40.0)] {
        let mut link = link(&format!("target = \"{target}\""));
        // 10 Mb/s are offered to 8 Mb/s: a fifth is too much.
        offer(&mut link, Span::micros(800), Time::ZERO, at(20), Ecn::NotEct);
        let settled = offer(&mut link, Span::micros(800), at(20), at(120), Ecn::NotEct);
        let share = dropped(&settled) as f64 / settled.len() as f64;
        assert!((share - 0.2).abs() < 0.002, "{share} of the packets");
        assert!(!settled.iter().any(|(_, fate, _)| *fate == Fate::Dropped(Drop::Full)), "the queue is never full");
        let arrived = settled.iter().filter(|(_, fate, _)| matches!(fate, Fate::Arrives { .. }));
        let waits: Vec<_> = arrived.map(|(.., wait)| wait.as_millis_f64()).collect();
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        assert!((mean - wanted).abs() < 0.1 * wanted, "{mean} ms for {target}");
    }
}

#[test]
fn a_burst_shorter_than_its_allowance_loses_nothing_and_a_standing_queue_does() {
    // A burst of 145 packets takes 145 ms: the burst allowance of 150 ms lasts for all ten updates.
    let mut calm = link("");
    assert_eq!(dropped(&offer(&mut calm, Span::micros(1), Time::ZERO, Time::ZERO + Span::micros(145), Ecn::NotEct)), 0);
    // One more packet per millisecond keeps the queue as long.
    let standing = offer(&mut calm, Span::millis(1), Time::ZERO + Span::micros(145), at(2), Ecn::NotEct);
    let first = standing.iter().find(|(_, fate, _)| *fate == Fate::Dropped(Drop::Early)).map(|(at, ..)| *at);
    let first = first.expect("a drop").since(Time::ZERO).as_millis_f64();
    assert!(first > 150.0 && first < 600.0, "the first drop comes after {first} ms");
    assert!(dropped(&standing) < standing.len() / 5);
}

#[test]
fn what_can_be_marked_is_marked_until_the_probability_is_too_large() {
    let marks = |keys: &str, ecn| {
        let mut link = link(keys);
        offer(&mut link, Span::micros(980), Time::ZERO, at(60), ecn);
        let counts = link.counts(Time::NEVER);
        (counts.marked, counts.early)
    };
    // An excess of 2 % that marks do not reduce: the delay grows, the probability exceeds 0.1, and packets are
    // dropped.
    let (marked, early) = marks("ecn = true", Ecn::Ect0);
    assert!(marked > 50 && early > 500, "{marked} marked, {early} dropped");
    let (all, none) = marks("ecn = true\nmark_ecnth = 1", Ecn::Ect0);
    assert!(all > 5000 && none == 0, "{all} marked, {none} dropped");
    for (keys, ecn) in [("ecn = true", Ecn::NotEct), ("", Ecn::Ect0)] {
        assert_eq!(marks(keys, ecn).0, 0, "{keys} {ecn:?}");
    }
}

#[test]
fn its_constants_are_those_of_the_rfc() {
    let mut out = Findings::new("pie.toml");
    let line = LinkProperties { rate: None, delay: Span::ZERO, called: LinkProperties::LINK };
    let Some(Queue::Pie(pie)) = Queue::read(&tree::from_toml("kind = \"pie\"", &mut out), &line, &mut out) else {
        panic!("{:?}", out.problems);
    };
    let Pie { target, t_update, alpha, beta, max_burst, mark_ecnth, ecn, .. } = pie;
    assert_eq!((target, t_update, max_burst), (Span::millis(15), Span::millis(15), Span::millis(150)));
    assert_eq!((alpha, beta, mark_ecnth, ecn), (0.125, 1.25, 0.1, false));
}
