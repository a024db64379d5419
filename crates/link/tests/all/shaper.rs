//! A shaper on a link: in no interval does more leave than rate and burst allow, and the sustained rate is reached.
use steadycast_link::{Config, Ecn, Fate, FqCoDel, Limit, Link, Queue, Service, Shaper, Steps};
use steadycast_units::{Bytes, Chance, Rate, Seed, Span, Time};

const MTU: Bytes = Bytes::new(1500);
const END: Time = Time::NEVER;

/// Offers packets of these sizes at these times; returns the departures of those that leave, with their sizes.
fn departures(link: &mut Link, offers: &[(Time, Bytes)]) -> Vec<(Time, Bytes)> {
    let mut left = Vec::new();
    let mut held = std::collections::BTreeMap::new();
    let mut take = |link: &mut Link, held: &mut std::collections::BTreeMap<_, Bytes>, now: Time| {
        while let Some(due) = link.due().filter(|due| *due <= now) {
            while let Some((token, fate)) = link.take(due) {
                let size = held.remove(&token).expect("it is held");
                if let Fate::Arrives { at, .. } = fate {
                    left.push((at, size));
                }
            }
        }
    };
    let mut passed = Vec::new();
    for (now, size) in offers {
        take(link, &mut held, *now);
        match link.offer_with_flow(*now, *size, Ecn::NotEct, 1) {
            Fate::Arrives { at, .. } => passed.push((at, *size)),
            Fate::Held(token) => drop(held.insert(token, *size)),
            Fate::Dropped(_) => {}
        }
        take(link, &mut held, *now);
    }
    take(link, &mut held, Time::ZERO + Span::secs(3600));
    left.extend(passed);
    left.sort_unstable();
    left
}

fn queues() -> [Queue; 2] {
    let codel = steadycast_link::CoDel { limit: Limit::Packets(200), ..steadycast_link::CoDel::RFC };
    [Queue::drop_tail(Limit::Packets(200)), Queue::FqCoDel(FqCoDel { codel, flows: 16, quantum: Bytes::new(1514) })]
}

fn link(queue: &Queue, peak: Option<Rate>, shaper: Shaper) -> Link {
    let service = peak.map_or(Service::Unlimited, |rate| Service::Rate(Steps::constant(rate)));
    let config = Config { service, shaper: Some(shaper), queue: queue.clone(), mtu: MTU, ..Config::default() };
    Link::new(&config, "test", Seed(1))
}

/// Draws rates, bursts, peak rates, sizes and times. A packet's last bit leaves after its tokens were taken, by its
/// transmission time at most, so an interval may hold one packet more.
#[test]
fn over_no_time_does_more_leave_than_its_rate_and_its_burst_allow() {
    let mut chance = Seed(7).part("shaper");
    for case in 0..120 {
        let rate = Rate::kbps(200 + below(&mut chance, 20_000));
        let burst = Bytes::new(1500 + below(&mut chance, 120_000));
        let peak = [None, Some(rate.scale(1.5)), Some(rate.scale(8.0)), Some(rate.scale(0.5))][case % 4];
        for queue in queues() {
            let mut link = link(&queue, peak, Shaper { rate, burst });
            let load = 0.3 + 2.0 * chance.unit();
            let offers = offers(&mut chance, rate.scale(load), 1_500);
            let left = departures(&mut link, &offers);
            assert!(left.len() > 200, "case {case}: {} of {} left", left.len(), offers.len());
            let slack = peak.map_or(Span::ZERO, |peak| MTU.at(peak)) + Span::micros(1);
            for (n, (from, _)) in left.iter().enumerate() {
                let mut sum = Bytes::ZERO;
                for (until, size) in left.iter().skip(n).take(300) {
                    sum += *size;
                    let most = burst + rate.over(until.since(*from) + slack) + Bytes::new(1);
                    assert!(sum <= most, "case {case}: {sum} in {}, at most {most}", until.since(*from));
                }
            }
        }
    }
}

fn below(chance: &mut Chance, most: u64) -> u64 {
    chance.bits64() % most
}

/// Draws packets with this mean rate, many of them in bursts.
fn offers(chance: &mut Chance, rate: Rate, packets: usize) -> Vec<(Time, Bytes)> {
    let mut now = Time::ZERO;
    (0..packets)
        .map(|_| {
            let size = Bytes::new(64 + below(chance, 1_437));
            if chance.happens(0.3) {
                now += Bytes::new(2_600).at(rate).scale(2.0 * chance.unit());
            }
            (now, size)
        })
        .collect()
}

#[test]
fn for_good_its_rate_leaves_and_what_is_below_it_does_not_wait() {
    for queue in queues() {
        for (mbps, offered) in [(2, 6.0), (2, 2.4), (20, 60.0), (20, 10.0)] {
            let shaper = Shaper { rate: Rate::mbps(mbps), burst: Bytes::new(20_000) };
            let mut link = link(&queue, Some(Rate::mbps(100)), shaper);
            let gap = Bytes::new(1_000).at(Rate::from_bps_f64(offered * 1e6));
            let offers: Vec<_> = (0..20_000).map(|n| (Time::ZERO + gap * n, Bytes::new(1_000))).collect();
            let left = departures(&mut link, &offers);
            let (from, until) = (left[2_000].0, left[left.len() - 1].0);
            let passed = (left.len() - 2_001) as f64 * 8_000.0 / until.since(from).as_secs_f64() / 1e6;
            let wanted = offered.min(mbps as f64);
            assert!((passed / wanted - 1.0).abs() < 0.01, "{passed} of {offered} Mb/s through {mbps}");
            if offered < mbps as f64 {
                assert_eq!(link.counts(END).wait.max().unwrap_or_default(), Span::ZERO);
            }
        }
    }
}

/// 30 kB at 4 Mb/s with a peak rate of 8 Mb/s: 1000 B take 1 ms to send, and their tokens take 2 ms to accumulate.
#[test]
fn a_burst_leaves_at_the_peak_rate_and_what_follows_at_the_sustained_rate() {
    let shaper = Shaper { rate: Rate::mbps(4), burst: Bytes::new(3_000) };
    let mut link = link(&Queue::drop_tail(Limit::Packets(50)), Some(Rate::mbps(8)), shaper);
    let offers = [(Time::ZERO, Bytes::new(1_000)); 6];
    let left: Vec<u64> = departures(&mut link, &offers).iter().map(|(at, _)| at.as_nanos() / 10_000).collect();
    // The bucket holds the largest packet of 1500 B at 0, 1 ms (2500 B), 2 ms (2000 B) and 3 ms (1500 B), then every
    // 2 ms. Times are in hundredths of a millisecond.
    assert_eq!(left, [100, 200, 300, 400, 600, 800]);
}

#[test]
fn its_fair_part_and_its_capacity_are_those_of_the_sustained_rate() {
    let shaper = Shaper { rate: Rate::mbps(4), burst: Bytes::new(50_000) };
    let second = Time::ZERO + Span::secs(1);
    for (peak, passes) in [(None, 4), (Some(Rate::mbps(100)), 4), (Some(Rate::mbps(1)), 1)] {
        let link = link(&Queue::drop_tail(Limit::Packets(50)), peak, shaper);
        assert_eq!(link.throughput_limit(Time::ZERO, second), Some(Rate::mbps(passes)));
        let most = [Some(Bytes::new(550_000)), peak.map(|peak| peak.over(Span::secs(1)))];
        assert_eq!(link.capacity(Time::ZERO, second), most.into_iter().flatten().min());
    }
}

/// A limit that is a time refers to the sustained rate. 100 ms at 4 Mb/s are 50 kB.
#[test]
fn a_queue_of_a_time_is_as_long_as_the_sustained_rate_takes() {
    let shaper = Shaper { rate: Rate::mbps(4), burst: Bytes::new(1_500) };
    let mut link = link(&Queue::drop_tail(Limit::Time(Span::millis(100))), Some(Rate::mbps(100)), shaper);
    let taken =
        (0..200).filter(|_| matches!(link.offer(Time::ZERO, Bytes::new(1_000), Ecn::NotEct), Fate::Arrives { .. }));
    let taken = taken.count();
    assert!((48..=52).contains(&taken), "{taken} packets of 1000 B");
}
