//! CoDel (RFC 8289) and FQ-CoDel (RFC 8290): the fates of packets that a link holds.
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_link::{
    CoDel, Config, Drop, Ecn, Fate, FqCoDel, Limit, Link, Opportunities, Queue, Service, Steps, Token,
};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const PACKET: Bytes = Bytes::new(1000);

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

fn codel(limit: u32, ecn: bool) -> CoDel {
    CoDel { limit: Limit::Packets(limit), ecn, ..CoDel::RFC }
}

/// 8 Mb/s: a packet takes 1 ms.
fn config(queue: Queue) -> Config {
    Config { service: Service::Rate(Steps::constant(Rate::mbps(8))), queue, ..Config::default() }
}

fn fair(limit: u32) -> Config {
    config(Queue::FqCoDel(FqCoDel { codel: codel(limit, false), flows: 1024, quantum: Bytes::new(1514) }))
}

/// A link and the packets that it holds, each with its number.
struct Driver {
    link: Link,
    held: BTreeMap<Token, u64>,
    /// The fates that the link returned: the time, the packet's number, the fate.
    fates: Vec<(Time, u64, Fate)>,
}

impl Driver {
    fn new(config: &Config) -> Self {
        Self { link: Link::new(config, "test", Seed(1)), held: BTreeMap::new(), fates: Vec::new() }
    }

    fn ask(&mut self, now: Time) {
        while let Some((token, fate)) = self.link.take(now) {
            let n = self.held.remove(&token).expect("a token that was handed out");
            self.fates.push((now, n, fate));
        }
    }

    /// Collects all fates up to `now`.
    fn go(&mut self, now: Time) {
        while let Some(due) = self.link.due().filter(|due| *due <= now) {
            self.ask(due);
        }
    }

    fn offer(&mut self, now: Time, n: u64, size: Bytes, ecn: Ecn, flow: u64) {
        self.go(now);
        match self.link.offer_with_flow(now, size, ecn, flow) {
            Fate::Held(token) => assert_eq!(self.held.insert(token, n), None, "a token is for one packet"),
            fate => self.fates.push((now, n, fate)),
        }
        self.ask(now);
    }

    fn with(&self, wanted: Drop) -> Vec<Time> {
        self.fates.iter().filter(|(_, _, fate)| *fate == Fate::Dropped(wanted)).map(|(at, ..)| *at).collect()
    }

    fn arrived(&self) -> Vec<u64> {
        self.fates.iter().filter(|(_, _, fate)| matches!(fate, Fate::Arrives { .. })).map(|(_, n, _)| *n).collect()
    }
}

/// Offers twice what the link carries, for `millis` ms.
fn overload(ecn: Ecn, marks: bool, millis: u64) -> Driver {
    let mut driver = Driver::new(&config(Queue::CoDel(codel(100_000, marks))));
    for n in 0..2 * millis {
        driver.offer(Time::ZERO + Span::micros(500) * n, n, PACKET, ecn, 0);
    }
    driver
}

/// Returns when CoDel signals congestion in a queue that only grows: one interval after the delay first exceeded the
/// target, then after interval/√count each time, at the next packet that leaves.
fn expected(first: Time, until: Time) -> Vec<Time> {
    let (mut at, mut count, mut all) = (first, 1u32, vec![first]);
    loop {
        at += Span::millis(100).scale(1.0 / f64::from(count).sqrt());
        let leaves = Time::ZERO + Span::millis(at.as_nanos().div_ceil(1_000_000));
        if leaves > until {
            return all;
        }
        all.push(leaves);
        count += 1;
    }
}

#[test]
fn drops_follow_the_control_law_of_the_rfc() {
    // Packet n comes at n/2 ms and leaves at n ms: the wait is 5 ms from 10 ms on.
    let driver = overload(Ecn::NotEct, false, 800);
    let drops = driver.with(Drop::Stale);
    assert_eq!(drops, expected(ms(110), ms(799)));
    // 110 ms + 100 ms (1 + 1/√2 + … + 1/√16) = 776 ms.
    assert_eq!(drops.len(), 17);
    assert_eq!(driver.link.counts(Time::NEVER).early, drops.len() as u64);
}

#[test]
fn what_can_be_marked_is_marked_at_the_times_of_the_drops() {
    let driver = overload(Ecn::Ect0, true, 800);
    assert_eq!(driver.with(Drop::Stale), []);
    let marked = driver.fates.iter().filter(|(_, _, fate)| matches!(fate, Fate::Arrives { ecn: Ecn::Ce, .. }));
    let times: Vec<Time> = marked.map(|(at, ..)| *at).collect();
    assert_eq!(times, expected(ms(110), ms(799)));
    assert_eq!(driver.link.counts(Time::NEVER).marked, times.len() as u64);
    // Packets that are not ECN-capable are dropped at these times, and so are all packets without marking.
    assert_eq!(overload(Ecn::NotEct, true, 800).with(Drop::Stale), times);
    assert_eq!(overload(Ecn::Ect0, false, 800).with(Drop::Stale), times);
}

#[test]
fn a_burst_that_is_gone_within_an_interval_loses_nothing() {
    let mut driver = Driver::new(&config(Queue::CoDel(codel(1000, false))));
    for burst in 0..20 {
        (0..90).for_each(|n| driver.offer(ms(200 * burst), 90 * burst + n, PACKET, Ecn::NotEct, 0));
    }
    driver.go(ms(10_000));
    assert_eq!(driver.arrived(), (0..1800).collect::<Vec<_>>());
    assert_eq!(driver.link.due(), None);
}

#[test]
fn dropping_begins_again_at_the_rate_that_was_right_a_moment_ago() {
    // Returns the time between the first two drops of an overload that follows a pause of `pause` ms, in which the
    // queue empties.
    let gap = |pause: u64| {
        let mut driver = overload(Ecn::NotEct, false, 800);
        driver.go(ms(2_000));
        let (start, before) = (ms(2_000 + pause), driver.with(Drop::Stale).len());
        (0..1_000).for_each(|n| driver.offer(start + Span::micros(500) * n, 5_000 + n, PACKET, Ecn::NotEct, 0));
        let drops = driver.with(Drop::Stale);
        drops[before + 1].since(drops[before])
    };
    assert!(gap(100) < Span::millis(30), "{}", gap(100));
    assert_eq!(gap(3_000), Span::millis(100));
}

#[test]
fn codel_drops_what_does_not_fit_and_fq_codel_from_the_longest_queue() {
    let mut driver = Driver::new(&config(Queue::CoDel(codel(3, false))));
    (0..5).for_each(|n| driver.offer(ms(0), n, PACKET, Ecn::NotEct, 0));
    assert_eq!(driver.with(Drop::Full).len(), 2);
    driver.go(ms(10));
    assert_eq!(driver.arrived(), [0, 1, 2]);

    let mut driver = Driver::new(&fair(10));
    (0..8).for_each(|n| driver.offer(ms(0), n, PACKET, Ecn::NotEct, 1));
    (8..12).for_each(|n| driver.offer(ms(0), n, PACKET, Ecn::NotEct, 2));
    driver.go(ms(20));
    // Packet 0 is on the transmitter. When the eleventh packet arrives, packets 1 … 7 are the longest queue: half of
    // it is dropped from its head.
    assert_eq!(driver.link.counts(Time::NEVER).full, 4);
    let mut arrived = driver.arrived();
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn flows_take_turns_by_bytes_and_a_new_one_comes_first() {
    let mut driver = Driver::new(&fair(1000));
    // One flow of large and one of small packets; both send more than fits into the 50 ms.
    (0..60).for_each(|n| driver.offer(ms(0), n, Bytes::new(1500), Ecn::NotEct, 1));
    (100..400).for_each(|n| driver.offer(ms(0), n, Bytes::new(300), Ecn::NotEct, 2));
    driver.go(ms(50));
    let large = driver.arrived().iter().filter(|n| **n < 100).count() * 1500;
    let small = driver.arrived().iter().filter(|n| **n >= 100).count() * 300;
    assert!(large.abs_diff(small) <= 3000 && large + small > 48_000, "{large} and {small}");
    // A new flow's packet is the next to leave.
    driver.offer(ms(50), 999, PACKET, Ecn::NotEct, 3);
    let before = driver.arrived().len();
    driver.go(ms(53));
    assert_eq!(driver.arrived().get(before), Some(&999));
}

#[test]
fn on_a_trace_packets_leave_at_its_opportunities() {
    let trace = Opportunities { at: Arc::new([Span::millis(10), Span::millis(20)]), looped: true };
    let queue = Queue::CoDel(codel(100, false));
    let mut driver = Driver::new(&Config { service: Service::Trace(trace), queue, ..Config::default() });
    (0..3).for_each(|n| driver.offer(ms(0), n, PACKET, Ecn::NotEct, 0));
    assert_eq!(driver.link.due(), Some(ms(10)));
    driver.go(ms(100));
    let times: Vec<Fate> = driver.fates.iter().map(|(_, _, fate)| *fate).collect();
    // The same as with drop-tail: the 1500 B at 10 ms carry the first packet and half of the second.
    assert_eq!(times, [10, 20, 20].map(|at| Fate::Arrives { at: ms(at), ecn: Ecn::NotEct }));
}

proptest! {
    #[test]
    fn each_packet_is_told_once_and_flows_stay_in_order(
        packets in prop::collection::vec((0u64..2_000_000, 40u64..1500, 0u64..6), 1..400),
        limit in 1u32..60, fair_one in any::<bool>(),
    ) {
        let config = if fair_one { fair(limit) } else { config(Queue::CoDel(codel(limit, false))) };
        let mut driver = Driver::new(&config);
        let mut now = Time::ZERO;
        for (n, (gap, size, flow)) in packets.iter().enumerate() {
            now += Span::nanos(*gap);
            driver.offer(now, n as u64, Bytes::new(*size), Ecn::NotEct, *flow);
            prop_assert!(driver.link.queued(now) <= limit as usize);
        }
        driver.go(now + Span::secs(10));
        prop_assert!(driver.held.is_empty());
        let mut all: Vec<u64> = driver.fates.iter().map(|(_, n, _)| *n).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..packets.len() as u64).collect::<Vec<_>>());
        for flow in 0..6 {
            let of: Vec<u64> = driver.arrived().into_iter().filter(|n| packets[*n as usize].2 == flow).collect();
            prop_assert!(of.is_sorted());
        }
        prop_assert_eq!(driver.arrived().len() as u64, driver.link.arrived());
    }

    /// As long as no packet's delay exceeds the target for an interval, CoDel drops nothing early and behaves as
    /// drop-tail does.
    #[test]
    fn codel_without_a_standing_queue_answers_as_drop_tail_does(
        packets in prop::collection::vec((0u64..2_000_000, 40u64..1500), 1..90), limit in 1u32..60,
    ) {
        let plain = config(Queue::drop_tail(Limit::Packets(limit)));
        let mut held = Driver::new(&config(Queue::CoDel(codel(limit, false))));
        let mut link = Link::new(&plain, "test", Seed(1));
        let (mut now, mut fates) = (Time::ZERO, BTreeMap::new());
        for (n, (gap, size)) in packets.iter().enumerate() {
            now += Span::nanos(*gap);
            held.offer(now, n as u64, Bytes::new(*size), Ecn::Ect0, 0);
            fates.insert(n as u64, link.offer(now, Bytes::new(*size), Ecn::Ect0));
            prop_assert_eq!(held.link.queued(now), link.queued(now));
        }
        held.go(now + Span::secs(1));
        let collected: BTreeMap<u64, Fate> = held.fates.iter().map(|(_, n, fate)| (*n, *fate)).collect();
        prop_assume!(held.link.counts(Time::NEVER).early == 0);
        prop_assert_eq!(collected, fates);
        prop_assert_eq!(format!("{:?}", held.link.counts(Time::NEVER)), format!("{:?}", link.counts(Time::NEVER)));
    }
}
