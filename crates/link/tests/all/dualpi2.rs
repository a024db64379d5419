//! DualPI2 (RFC 9332) on a link: the queue and the fate of each packet.
use proptest::prelude::*;
use std::collections::BTreeMap;
use steadycast_link::{Config, Counts, Drop, Ecn, Fate, Link, LinkProperties, Queue, Service, Steps, Token};
use steadycast_settings::{Findings, tree};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const END: Time = Time::NEVER;
const PACKET: Bytes = Bytes::new(1000);
const GAP: Span = Span::millis(1);

/// 8 Mb/s: a packet takes 1 ms.
fn config(keys: &str) -> Config {
    let mut out = Findings::new("dualpi2.toml");
    let rate = Rate::mbps(8);
    let item = tree::from_toml(&format!("kind = \"dualpi2\"\n{keys}"), &mut out);
    let queue = Queue::read(
        &item,
        &LinkProperties { rate: Some(rate), delay: Span::ZERO, called: LinkProperties::LINK },
        &mut out,
    );
    let queue = queue.unwrap_or_else(|| panic!("{:?}", out.problems));
    Config { service: Service::Rate(Steps::constant(rate)), queue, ..Config::default() }
}

/// A link and the packets that it holds, each with its number, size and ECN field, and their fates.
struct Driver {
    link: Link,
    held: BTreeMap<Token, (u64, Time, Ecn)>,
    fates: Vec<PacketFate>,
    offered: u64,
}

#[derive(Clone, Copy, Debug)]
struct PacketFate {
    n: u64,
    came: Time,
    sent_as: Ecn,
    fate: Fate,
}

impl Driver {
    fn new(keys: &str) -> Self {
        Self { link: Link::new(&config(keys), "test", Seed(1)), held: BTreeMap::new(), fates: Vec::new(), offered: 0 }
    }

    fn ask(&mut self, now: Time) {
        while let Some((token, fate)) = self.link.take(now) {
            let (n, came, sent_as) = self.held.remove(&token).expect("a token that was handed out");
            self.fates.push(PacketFate { n, came, sent_as, fate });
        }
    }

    fn go(&mut self, now: Time) {
        while let Some(due) = self.link.due().filter(|due| *due <= now) {
            self.ask(due);
        }
    }

    fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) {
        self.go(now);
        let n = self.offered;
        self.offered += 1;
        match self.link.offer_with_flow(now, size, ecn, 0) {
            Fate::Held(token) => assert_eq!(self.held.insert(token, (n, now, ecn)), None, "a token is for one packet"),
            fate => self.fates.push(PacketFate { n, came: now, sent_as: ecn, fate }),
        }
        self.ask(now);
    }

    /// Offers one packet per ECN field of `fields` every `gap`, from `from` until `until`.
    fn stream(&mut self, gap: Span, fields: &[Ecn], from: Time, until: Time) {
        let mut now = from;
        while now < until {
            fields.iter().for_each(|ecn| self.offer(now, PACKET, *ecn));
            now += gap;
        }
        self.go(until);
    }

    /// Returns the shares of the packets with this field, sent from `from` on, that arrived unmarked, arrived marked,
    /// and were dropped early, and their mean latency.
    fn share(&self, ecn: Ecn, from: Time) -> (f64, f64, f64, f64) {
        let all: Vec<_> = self.fates.iter().filter(|t| t.sent_as == ecn && t.came >= from).collect();
        let count = |fits: &dyn Fn(Fate) -> bool| all.iter().filter(|t| fits(t.fate)).count() as f64;
        let marked = count(&|fate| matches!(fate, Fate::Arrives { ecn: Ecn::Ce, .. }));
        let arrived = count(&|fate| matches!(fate, Fate::Arrives { .. }));
        let early = count(&|fate| fate == Fate::Dropped(Drop::Early));
        let waits = all.iter().filter_map(|t| match t.fate {
            Fate::Arrives { at, .. } => Some(at.since(t.came).as_millis_f64()),
            _ => None,
        });
        let n = all.len() as f64;
        ((arrived - marked) / n, marked / n, early / n, waits.sum::<f64>() / arrived)
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

#[test]
fn ect1_and_ce_wait_in_the_queue_of_little_delay_and_all_else_in_the_classic_one() {
    let mut driver = Driver::new("");
    // 20 Classic packets, then two of each kind: the L4S packets overtake the waiting Classic ones.
    (0..20).for_each(|_| driver.offer(at(0), PACKET, Ecn::NotEct));
    for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::NotEct, Ecn::Ce] {
        driver.offer(at(0), PACKET, ecn);
    }
    driver.go(at(100));
    let order: Vec<_> = driver.fates.iter().map(|t| t.n).collect();
    assert_eq!(&order[..4], [0, 21, 23, 1], "the first was on the transmitter");
    assert_eq!(order.len(), 24);
    assert_eq!(&order[22..], [20, 22]);
}

#[test]
fn coupled_marks_are_twice_the_root_of_classic_drops() {
    // 10 % more than the link carries: Classic packets and one L4S packet in twenty, which is never marked for its
    // sojourn time.
    let mut driver = Driver::new("min_th = \"10s\"\nlimit = \"10s\"");
    let mut turn = vec![Ecn::NotEct; 19];
    turn.push(Ecn::Ect1);
    driver.stream(Span::micros(18_200), &turn, at(0), at(400_000));
    let from = at(200_000);
    let ((.., dropped, _), (_, marked, none, _)) = (driver.share(Ecn::NotEct, from), driver.share(Ecn::Ect1, from));
    assert!(dropped > 0.05 && dropped < 0.15, "{dropped}");
    assert!((marked / (2.0 * dropped.sqrt()) - 1.0).abs() < 0.02, "{marked} marked, {dropped} dropped");
    assert_eq!(none, 0.0);
}

#[test]
fn a_classic_overload_is_dropped_until_the_delay_is_its_target_and_marked_only_below_the_largest_probability() {
    for (ecn, keys) in [(Ecn::NotEct, ""), (Ecn::Ect0, ""), (Ecn::Ect0, "k = 10")] {
        let mut driver = Driver::new(&format!("limit = \"10s\"\n{keys}"));
        // A ninth more than the link carries, from a source that ignores marks.
        driver.stream(Span::micros(900), &[ecn], at(0), at(120_000));
        let (_, marked, early, wait) = driver.share(ecn, at(60_000));
        assert!((early - 0.1).abs() < 0.01, "{ecn:?} {keys}: {early} dropped");
        if ecn == Ecn::Ect0 && keys.is_empty() {
            // p_C oscillates around 1/k²: above it packets are dropped, and below it they are marked.
            assert!(marked > 0.05 && marked < 0.25, "{marked} marked");
        } else {
            // The wait is the target of 15 ms and 1 ms of transmission. With k = 10, the drop probability of 0.1 is
            // above 1/k², so no packet is marked.
            assert!((wait - 16.0).abs() < 1.5, "{wait} ms");
            assert_eq!(marked, 0.0, "{ecn:?} {keys}");
        }
    }
}

#[test]
fn the_ramp_marks_l4s_packets_that_wait_though_the_classic_queue_is_empty() {
    let mut driver = Driver::new("");
    // Ten packets together wait 0, 1, … 9 ms. The second one finds only the packet on the transmitter before it.
    (0..10).for_each(|_| driver.offer(at(0), PACKET, Ecn::Ect1));
    driver.go(at(50));
    let marked: Vec<_> =
        driver.fates.iter().filter(|t| matches!(t.fate, Fate::Arrives { ecn: Ecn::Ce, .. })).map(|t| t.n).collect();
    // Packets 0 and 1 are not marked. Packet 2 waits 2 ms and raises the count to 1, which the next ones exceed.
    assert_eq!(marked, [3, 4, 5, 6, 7, 8, 9]);
    // One packet at a time: none waits for another.
    let mut calm = Driver::new("");
    calm.stream(GAP, &[Ecn::Ect1], at(0), at(1_000));
    assert_eq!((calm.link.counts(END).marked, calm.link.counts(END).dropped()), (0, 0));
}

#[test]
fn overload_drops_l4s_packets_too_and_marks_the_others() {
    let mut driver = Driver::new("limit = \"10s\"");
    // Twice what the link carries, of L4S packets alone: p' rises above 1/k, and then half of them must be dropped.
    driver.stream(Span::micros(500), &[Ecn::Ect1], at(0), at(120_000));
    let (unmarked, marked, early, wait) = driver.share(Ecn::Ect1, at(60_000));
    assert!((early - 0.5).abs() < 0.02 && unmarked < 0.001, "{unmarked} unmarked, {marked} marked, {early} dropped");
    assert!(wait < 30.0, "{wait} ms");
    assert_eq!(driver.link.counts(END).full, 0);
}

#[test]
fn while_both_wait_the_classic_queue_has_its_share() {
    for (keys, share) in [("", 1.0 / 16.0), ("classic_share = 0.25", 0.25)] {
        // Both queues have more than their share, and the gains of 0 prevent drops.
        let mut driver = Driver::new(&format!("{keys}\nalpha = 0\nbeta = 0\nlimit = \"100s\""));
        driver.stream(GAP, &[Ecn::Ect1, Ecn::NotEct], at(0), at(8_000));
        let of = |ecn| driver.fates.iter().filter(|t| t.sent_as == ecn).count() as f64;
        let got = of(Ecn::NotEct) / (of(Ecn::NotEct) + of(Ecn::Ect1));
        assert!((got / share - 1.0).abs() < 0.02, "{got} instead of {share}");
    }
}

#[test]
fn it_drops_what_does_not_fit_into_both_queues_together() {
    let mut driver = Driver::new("limit = \"5p\"");
    for ecn in [Ecn::Ect1, Ecn::NotEct, Ecn::Ect1, Ecn::NotEct, Ecn::Ect1, Ecn::NotEct, Ecn::Ect1] {
        driver.offer(at(0), PACKET, ecn);
    }
    assert_eq!(
        driver.fates.iter().filter(|t| t.fate == Fate::Dropped(Drop::Full)).map(|t| t.n).collect::<Vec<_>>(),
        [5, 6]
    );
    let Queue::DualPi2(dual) = config("").queue else { panic!("not DualPI2") };
    assert_eq!(dual.limit, steadycast_link::Limit::Time(Span::millis(250)));
}

/// Offers packets by the transmitter's timing. Without drops, all leave at the same times as from a drop-tail queue.
fn ends(link: &mut Link, packets: &[(u64, u64, u8)]) -> (Counts, Time) {
    let (mut now, mut last) = (Time::ZERO, Time::ZERO);
    let mut see = |fate: Fate| {
        if let Fate::Arrives { at, .. } = fate {
            last = last.max(at);
        }
    };
    for (gap, size, ecn) in packets {
        now += Span::nanos(*gap);
        while let Some(due) = link.due().filter(|due| *due <= now) {
            while let Some((_, fate)) = link.take(due) {
                see(fate);
            }
        }
        see(link.offer_with_flow(now, Bytes::new(*size), Ecn::from_bits(*ecn), 0));
    }
    while let Some(due) = link.due() {
        while let Some((_, fate)) = link.take(due) {
            see(fate);
        }
    }
    (link.counts(END), last)
}

proptest! {
    #[test]
    fn each_packet_is_told_once_and_each_queue_stays_in_order(
        packets in prop::collection::vec((0u64..2_000_000, 40u64..1500, 0u8..4), 1..400), limit in 1u32..60,
    ) {
        let mut driver = Driver::new(&format!("limit = \"{limit}p\"\nalpha = 10\nbeta = 50"));
        let mut now = Time::ZERO;
        for (gap, size, ecn) in &packets {
            now += Span::nanos(*gap);
            driver.offer(now, Bytes::new(*size), Ecn::from_bits(*ecn));
            prop_assert!(driver.link.queued(now) <= limit as usize);
        }
        driver.go(now + Span::secs(10));
        prop_assert!(driver.held.is_empty());
        prop_assert_eq!(driver.link.due(), None);
        let mut all: Vec<u64> = driver.fates.iter().map(|t| t.n).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..packets.len() as u64).collect::<Vec<_>>());
        for low in [false, true] {
            let lane = driver.fates.iter().filter(|t| (t.sent_as.bits() & 1 == 1) == low);
            let of: Vec<u64> = lane.filter(|t| matches!(t.fate, Fate::Arrives { .. })).map(|t| t.n).collect();
            prop_assert!(of.is_sorted());
        }
        for packet in &driver.fates {
            let Fate::Arrives { ecn, .. } = packet.fate else { continue };
            prop_assert!(ecn == packet.sent_as || ecn == Ecn::Ce && packet.sent_as.is_capable(), "{:?} became \
                {:?}", packet.sent_as, ecn);
        }
    }

    #[test]
    fn the_transmitter_never_rests_while_a_packet_waits(
        packets in prop::collection::vec((0u64..2_000_000, 40u64..1500, 0u8..4), 1..300),
    ) {
        let calm = "alpha = 0\nbeta = 0\nlimit = \"100s\"";
        let mut plain = config(calm);
        plain.queue = Queue::drop_tail(steadycast_link::Limit::Packets(1_000));
        let (dual, last) = ends(&mut Link::new(&config(calm), "test", Seed(1)), &packets);
        let (tail, wanted) = ends(&mut Link::new(&plain, "test", Seed(1)), &packets);
        prop_assert_eq!((dual.sent, last), (tail.sent, wanted));
        prop_assert_eq!(dual.dropped(), 0);
    }
}
