//! A policer on a link: which packets pass, and that none waits.
use steadycast_link::{Config, Drop, Ecn, Fate, FqCoDel, Link, Policer, Queue, Service, Steps};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

const END: Time = Time::NEVER;
const PACKET: Bytes = Bytes::new(1000);
const DELAY: Span = Span::millis(5);

/// 4 Mb/s and 30 kB before an unlimited link with 5 ms of delay.
fn link(queue: Queue) -> Link {
    let policer = Some(Policer { rate: Rate::mbps(4), burst: Bytes::new(30_000) });
    Link::new(&Config { policer, queue, delay: Steps::constant(DELAY), ..Config::default() }, "test", Seed(1))
}

/// Offers a packet every `gap`. Returns which of them passed.
fn offer(link: &mut Link, gap: Span, from: Time, packets: u64) -> Vec<bool> {
    let mut passed = Vec::new();
    for n in 0..packets {
        let now = from + gap * n;
        let fate = match link.offer_with_flow(now, PACKET, Ecn::Ect1, n) {
            Fate::Held(token) => {
                let (taken, fate) = link.take(now).expect("nothing is before it");
                assert_eq!(taken, token);
                fate
            }
            fate => fate,
        };
        match fate {
            Fate::Arrives { at, ecn } => {
                assert_eq!((at, ecn), (now + DELAY, Ecn::Ect1), "nothing waits and nothing is marked")
            }
            fate => assert_eq!(fate, Fate::Dropped(Drop::Policed)),
        }
        passed.push(matches!(fate, Fate::Arrives { .. }));
    }
    passed
}

fn queues() -> [Queue; 2] {
    let fair = FqCoDel { codel: steadycast_link::CoDel::RFC, flows: 64, quantum: Bytes::new(1514) };
    [Queue::drop_tail(steadycast_link::Limit::Packets(50)), Queue::FqCoDel(fair)]
}

#[test]
fn in_the_long_run_its_rate_passes_whatever_comes() {
    for queue in queues() {
        for (gap, offered) in [(1_000, 8.0), (500, 16.0), (2_500, 3.2)] {
            let mut link = link(queue.clone());
            let packets = 60_000_000 / gap;
            let passed = offer(&mut link, Span::micros(gap), Time::ZERO, packets).iter().filter(|p| **p).count();
            let mbps = passed as f64 * 8_000.0 / 60e6;
            let wanted = f64::min(offered, 4.0);
            assert!((mbps / wanted - 1.0).abs() < 0.01, "{mbps} of {offered} Mb/s");
            let counts = link.counts(END);
            assert_eq!((counts.policed, counts.dropped()), (packets - passed as u64, packets - passed as u64));
        }
    }
}

#[test]
fn a_burst_passes_once_and_again_when_the_bucket_has_filled() {
    for queue in queues() {
        let mut link = link(queue);
        let passed = |link: &mut Link, at| offer(link, Span::ZERO, at, 40).iter().take_while(|p| **p).count();
        assert_eq!(passed(&mut link, Time::ZERO), 30);
        // The tokens of a packet accumulate in 2 ms.
        assert_eq!(passed(&mut link, Time::ZERO + Span::millis(21)), 10);
        assert_eq!(passed(&mut link, Time::ZERO + Span::millis(1_000)), 30, "it never holds more than its burst");
    }
}

#[test]
fn what_is_queued_behind_it_waits_as_always() {
    let policer = Some(Policer { rate: Rate::mbps(4), burst: Bytes::new(3_000) });
    let service = Service::Rate(Steps::constant(Rate::mbps(8)));
    let mut link = Link::new(&Config { policer, service, ..Config::default() }, "test", Seed(1));
    let fates: Vec<_> = (0..5).map(|_| link.offer(Time::ZERO, PACKET, Ecn::NotEct)).collect();
    let arrives = |ms| Fate::Arrives { at: Time::ZERO + Span::millis(ms), ecn: Ecn::NotEct };
    let policed = Fate::Dropped(Drop::Policed);
    assert_eq!(fates, [arrives(1), arrives(2), arrives(3), policed, policed]);
}
