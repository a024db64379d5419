//! The effect of each queue discipline on packets of each ECN codepoint.
use std::collections::BTreeMap;
use steadycast_link::{CoDel, Config, Ecn, Fate, Limit, Link, LinkProperties, Queue, Service, Steps, Token};
use steadycast_settings::{Findings, tree};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const END: Time = Time::NEVER;
const PACKET: Bytes = Bytes::new(1000);
const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];

/// The arrivals by ECN field at departure and arrival, and the packets dropped before the queue was full.
#[derive(Default)]
struct Seen {
    arrived: BTreeMap<(Ecn, Ecn), u64>,
    early: u64,
    marked: u64,
}

impl Seen {
    fn count(&self, left: Ecn, came: Ecn) -> u64 {
        self.arrived.get(&(left, came)).copied().unwrap_or_default()
    }
}

/// Offers packets with these ECN fields in turn, one every `gap`, for ten seconds to a link of 8 Mb/s, where a packet
/// takes 1 ms.
fn seen(queue: &str, fields: &[Ecn], gap: Span) -> Seen {
    let mut out = Findings::new("queue.toml");
    let rate = Rate::mbps(8);
    let line = LinkProperties { rate: Some(rate), delay: Span::millis(10), called: LinkProperties::LINK };
    let queue = Queue::read(&tree::from_toml(queue, &mut out), &line, &mut out);
    let queue = queue.unwrap_or_else(|| panic!("{:?}", out.problems));
    let service = Service::Rate(Steps::constant(rate));
    let mut link = Link::new(&Config { service, queue, ..Config::default() }, "test", Seed(1));
    let (mut seen, mut held) = (Seen::default(), BTreeMap::<Token, Ecn>::new());
    let mut ask = |link: &mut Link, held: &mut BTreeMap<Token, Ecn>, left: Option<(Fate, Ecn)>, now: Time| {
        let mut tell = |fate: Fate, left: Ecn| {
            if let Fate::Arrives { ecn, .. } = fate {
                *seen.arrived.entry((left, ecn)).or_default() += 1;
            }
        };
        match left {
            Some((Fate::Held(token), left)) => drop(held.insert(token, left)),
            Some((fate, left)) => tell(fate, left),
            None => {}
        }
        while let Some((token, fate)) = link.take(now) {
            let left = held.remove(&token).expect("a token that was handed out");
            tell(fate, left);
        }
    };
    let (mut now, end) = (Time::ZERO, Time::ZERO + Span::secs(10));
    for ecn in fields.iter().cycle() {
        while let Some(due) = link.due().filter(|due| *due <= now) {
            ask(&mut link, &mut held, None, due);
        }
        if now > end {
            break;
        }
        let fate = link.offer_with_flow(now, PACKET, *ecn, 0);
        ask(&mut link, &mut held, Some((fate, *ecn)), now);
        now += gap;
    }
    let counts = link.counts(END);
    (seen.early, seen.marked) = (counts.early, counts.marked);
    seen
}

/// Returns settings and a load for which a mark is the discipline's first signal.
fn marking(kind: &str) -> String {
    let more = match kind {
        "droptail" => "limit = \"10s\"",
        "red" => "limit = \"10s\"\necn = true\npreset = \"classic\"\nmin = \"5p\"\nmax = \"100000p\"\nmax_p = 1",
        "pie" => "limit = \"10s\"\necn = true\nmark_ecnth = 1",
        "codel" | "fq-codel" => "limit = \"10s\"\necn = true",
        "dualpi2" => "limit = \"10s\"\nalpha = 0.001\nbeta = 0",
        other => panic!("{other} is a new discipline: say here when it marks"),
    };
    format!("kind = \"{kind}\"\n{more}")
}

#[test]
fn each_discipline_marks_both_codepoints_and_drops_what_is_not_capable() {
    let gap = Span::micros(950);
    for kind in Queue::KINDS {
        for ecn in ALL {
            let seen = seen(&marking(kind), &[ecn], gap);
            let marked = seen.count(ecn, Ecn::Ce);
            let all: u64 = seen.arrived.values().sum();
            assert!(all > 5_000, "{kind} {ecn:?}: {all} arrived");
            assert_eq!(
                all,
                marked + if ecn == Ecn::Ce { 0 } else { seen.count(ecn, ecn) },
                "{kind} {ecn:?}: another field"
            );
            match (*kind, ecn) {
                ("droptail", Ecn::Ce) => assert_eq!((seen.early, seen.marked), (0, 0)),
                ("droptail", _) => assert_eq!((seen.early, seen.marked, marked), (0, 0, 0)),
                (_, Ecn::NotEct) => {
                    assert_eq!((seen.marked, marked), (0, 0), "{kind}");
                    assert!(seen.early > 10, "{kind}: {} dropped", seen.early);
                }
                (_, Ecn::Ce) => assert_eq!((seen.early, seen.marked), (0, 0), "{kind}: marked once is enough"),
                _ => {
                    assert_eq!((seen.early, seen.marked), (0, marked), "{kind} {ecn:?}");
                    assert!(marked > 10, "{kind} {ecn:?}: {marked} marked");
                }
            }
        }
    }
}

#[test]
fn a_discipline_told_not_to_mark_drops_every_codepoint() {
    let gap = Span::micros(950);
    for kind in ["red", "codel", "fq-codel", "pie"] {
        let queue = marking(kind).replace("ecn = true", "ecn = false");
        for ecn in ALL {
            let seen = seen(&queue, &[ecn], gap);
            assert_eq!(seen.marked, 0, "{kind} {ecn:?}");
            assert!(seen.early > 10, "{kind} {ecn:?}: {} dropped", seen.early);
        }
    }
}

#[test]
fn codels_threshold_marks_ect1_after_a_millisecond_and_leaves_the_others_to_the_control_law() {
    for kind in ["codel", "fq-codel"] {
        // One packet too many every 2.5 s: at the end they wait 4 ms, which is below CoDel's target.
        let gap = Span::nanos(999_600);
        for more in ["ecn = false", "ecn = true"] {
            for ecn in ALL {
                let seen = seen(&format!("kind = \"{kind}\"\nce_threshold = \"1ms\"\n{more}"), &[ecn], gap);
                let wanted = if ecn == Ecn::Ect1 { 7_000..8_000 } else { 0..1 };
                assert!(wanted.contains(&seen.marked), "{kind} {more} {ecn:?}: {} marked", seen.marked);
                assert_eq!(seen.early, 0, "{kind} {more} {ecn:?}");
            }
        }
        let without = format!("kind = \"{kind}\"\nce_threshold = \"none\"");
        assert_eq!(seen(&without, &[Ecn::Ect1], gap).marked, 0);
    }
}

#[test]
fn a_limit_of_a_queue_holds_for_every_codepoint() {
    for kind in Queue::KINDS {
        for ecn in ALL {
            let mut out = Findings::new("queue.toml");
            let line = LinkProperties { rate: Some(Rate::mbps(8)), delay: Span::ZERO, called: LinkProperties::LINK };
            let text = format!("kind = \"{kind}\"\nlimit = \"5p\"");
            let queue = Queue::read(&tree::from_toml(&text, &mut out), &line, &mut out).expect("a queue");
            assert_eq!(queue.limit(), Limit::Packets(5));
            let service = Service::Rate(Steps::constant(Rate::mbps(8)));
            let mut link = Link::new(&Config { service, queue, ..Config::default() }, "test", Seed(1));
            for n in 0..20 {
                link.offer_with_flow(Time::ZERO, PACKET, ecn, n);
                while link.take(Time::ZERO).is_some() {}
            }
            assert!(link.queued(Time::ZERO) <= 5, "{kind} {ecn:?}");
            assert!(link.counts(END).full >= 15, "{kind} {ecn:?}: {}", link.counts(END).full);
        }
    }
}

#[test]
fn a_link_that_bleaches_clears_the_field_before_its_queue_which_then_drops_instead_of_marking() {
    let service = Service::Rate(Steps::constant(Rate::mbps(1)));
    for queue in [Queue::drop_tail(Limit::Packets(50)), Queue::CoDel(CoDel { ecn: true, ..CoDel::RFC })] {
        for bleach in [false, true] {
            let config = Config { service: service.clone(), queue: queue.clone(), bleach, ..Config::default() };
            let mut link = Link::new(&config, "forth", Seed(1));
            let mut fates = Vec::new();
            for n in 0..2_000u64 {
                let now = Time::ZERO + Span::millis(7 * n);
                fates.push(link.offer(now, Bytes::new(1000), Ecn::Ect1));
                fates.extend(std::iter::from_fn(|| link.take(now)).map(|(_, fate)| fate));
            }
            let arrived =
                fates.iter().filter_map(|fate| if let Fate::Arrives { ecn, .. } = fate { Some(*ecn) } else { None });
            let arrived: Vec<Ecn> = arrived.collect();
            assert!(arrived.len() > 1_500, "{}", arrived.len());
            assert_eq!(arrived.iter().all(|ecn| *ecn == Ecn::NotEct), bleach);
            assert_eq!(arrived.contains(&Ecn::Ect1), !bleach);
            let marks = matches!(queue, Queue::CoDel(_)) && !bleach;
            assert_eq!(arrived.contains(&Ecn::Ce), marks);
            assert_eq!(link.counts(Time::ZERO + Span::secs(15)).marked > 0, marks);
        }
    }
}
