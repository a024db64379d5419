//! Datagrams of external hosts over the links of a scenario.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use steadycast_capture::{Address, Meta, udp};
use steadycast_endpoints::LinkPoint;
use steadycast_link::Ecn;
use steadycast_network::{DatagramEvent, Datagrams, Target};
use steadycast_scenario::Scenario;
use steadycast_units::{Span, Time};

/// Returns a UDP datagram of this total size from this port.
fn datagram(port: u16, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    (bytes[0], bytes[9]) = (0x45, 17);
    bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    bytes
}

#[test]
fn datagrams_of_other_hosts_are_told_apart_by_their_ports() {
    let slowest = |kind: &str| {
        let text = format!(
            "duration = \"4s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nname = \"path\"\nbetween = [\"a\", \"b\"]\nrate = \
                \"8Mbps\"\n\
             delay = \"10ms\"\nqueue = {{ kind = \"{kind}\", limit = \"200p\" }}\n\
             [[flow]]\nname = \"any\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nfrom = \"a\"\nto = [\"b\"]\n"
        );
        let scenario = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}")).scenario;
        let (a, b) = (scenario.links[0].a, scenario.links[0].b);
        let mut network = Datagrams::new(&scenario, &[a, b]).unwrap_or_else(|e| panic!("{e}"));
        let mut offers = BTreeMap::new();
        // A quarter more than the link carries, and 50 small datagrams per second.
        (0..4000u64).for_each(|n| drop(offers.insert(n * 800, datagram(5001, 1000))));
        (0..150u64).for_each(|n| drop(offers.insert(n * 20_000 + 1, datagram(5002, 200))));
        let (mut small, mut all) = (Vec::new(), 0);
        let mut go = |network: &mut Datagrams, until: Time| {
            while network.next() <= until {
                let due = network.next();
                network.advance(due, |passed| {
                    let DatagramEvent::Arrival(arrival) = passed else { return };
                    all += 1;
                    if arrival.bytes[20..22] == 5002u16.to_be_bytes() {
                        small.push(arrival.at.since(arrival.sent));
                    }
                });
            }
        };
        for (micros, bytes) in offers {
            let at = Time::ZERO + Span::micros(micros);
            go(&mut network, at);
            assert!(network.offer(at, a, Target::Host(b), Ecn::NotEct, bytes).is_some());
        }
        go(&mut network, Time::ZERO + Span::secs(10));
        let links = network.links(Time::NEVER);
        assert_eq!((links[0].carried, links[0].link.arrived()), (all, all), "nothing is left behind");
        (small.len(), small.into_iter().max().unwrap_or_default())
    };
    let (count, wait) = slowest("fq-codel");
    assert_eq!(count, 150);
    assert!(wait < Span::micros(12_500) && wait > Span::micros(10_200), "{wait}");
    let (_, wait) = slowest("codel");
    assert!(wait > Span::millis(40), "{wait}");
}

proptest! {
    #[test]
    fn each_step_of_a_series_is_counted_at_its_end_however_late_its_driver_comes_and_whatever_time_it_names(
        kind in sample::select(vec!["droptail", "red", "pie", "codel", "fq-codel", "dualpi2"]),
        offers in vec((0u64..30_000, 30usize..1_400, 0u64..60_000), 1..120), rate in 1u64..9,
    ) {
        let text = format!(
            "duration = '1200ms'\nnodes = ['a', 'b']\n[[link]]\nname = 'path'\nbetween = ['a', 'b']\n\
             rate = '{rate}Mbps'\ndelay = '10ms'\nloss = 0.02\n\
             queue = {{ kind = '{kind}', limit = '20p' }}\n\
             [[flow]]\nname = 'any'\nkind = 'cbr'\nrate = '1Mbps'\nfrom = 'a'\nto = ['b']\n\
             [[event]]\nat = '550ms'\nset = {{ link = 'path', rate = '2Mbps' }}\n\
             [record]\ninterval = '100ms'\n"
        );
        let scenario = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}")).scenario;
        let (a, b) = (scenario.links[0].a, scenario.links[0].b);
        let seen = |punctual: bool| {
            let mut network = Datagrams::new(&scenario, &[a, b]).unwrap_or_else(|e| panic!("{e}"));
            let mut now = Time::ZERO;
            for (gap, size, behind) in &offers {
                now += Span::micros(*gap);
                while punctual && network.next() <= now {
                    network.advance(network.next(), |_| {});
                }
                network.advance(now, |_| {});
                let named = if punctual { now } else { now.before(Span::micros(*behind)) };
                network.offer(named, a, Target::Host(b), Ecn::NotEct, datagram(5001, *size)).unwrap();
            }
            network.advance(now.max(Time::ZERO + Span::secs(5)), |_| {});
            let of = |point: &LinkPoint| (point.bytes, point.dropped, point.queued, point.wait);
            let links = network.links(Time::NEVER);
            links.iter().map(|link| (link.series.iter().map(of).collect(), link.sent)).collect::<Vec<(Vec<_>, _)>>()
        };
        let all = seen(true);
        prop_assert_eq!(&all, &seen(false));
        for (series, sent) in all {
            prop_assert_eq!(series.len(), 12);
            prop_assert_eq!(series.iter().map(|point| point.0).sum::<u64>(), sent.get());
        }
    }
}

/// A file whose content is read later.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_shows_what_the_links_before_it_have_made_of_a_datagrams_ecn_field() {
    // The first link marks all packets that wait, the second one clears the ECN field of all.
    let text = "duration = '1s'\nnodes = ['a', 'b', 'c', 'd']\n\
                [[link]]\nname = 'first'\nbetween = ['a', 'b']\nrate = '8Mbps'\nqueue = { kind = 'codel', \
                ce_threshold = '0ms' }\n\
                [[link]]\nname = 'second'\nbetween = ['b', 'c']\nbleach = true\n\
                [[link]]\nname = 'third'\nbetween = ['c', 'd']\n\
                [[flow]]\nname = 'any'\nkind = 'cbr'\nrate = '1Mbps'\nfrom = 'a'\nto = ['d']\n\
                [record]\npcap = ['second', 'third']\n";
    let scenario = Scenario::parse(text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}")).scenario;
    let (a, d) = (scenario.links[0].a, scenario.links[2].b);
    let mut network = Datagrams::new(&scenario, &[a, d]).unwrap_or_else(|e| panic!("{e}"));
    let mut files = BTreeMap::<String, Seen>::new();
    let open = |link: &str| Ok(Box::new(files.entry(link.to_owned()).or_default().clone()) as Box<dyn Write + Send>);
    network.capture(&scenario, open).unwrap_or_else(|e| panic!("{e:?}"));
    let end = |host| Address { host: Ipv4Addr::new(10, 0, 0, host), port: 5004 };
    let mut sent = Vec::new();
    udp(&Meta { from: end(1), to: end(2), ecn: Ecn::Ect1.bits() }, &[0; 972], &mut sent);
    for _ in 0..2 {
        assert!(network.offer(Time::ZERO, a, Target::Host(d), Ecn::Ect1, sent.clone()).is_some());
    }
    network.advance(Time::ZERO + Span::secs(1), |_| {});
    network.end_capture().unwrap_or_else(|e| panic!("{e:?}"));
    let fields = |link: &str| -> Vec<Ecn> {
        let file = files[link].0.lock().unwrap();
        let headers = file.windows(20).filter(|w| w[0] == 0x45 && w[2..10] == sent[2..10] && w[12..] == sent[12..20]);
        headers
            .map(|header| {
                let words = header.chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])));
                assert_eq!(words.sum::<u32>() % 0xffff, 0, "the checksum is right");
                Ecn::from_bits(header[1])
            })
            .collect()
    };
    assert_eq!(fields("second"), [Ecn::Ect1, Ecn::Ce]);
    assert_eq!(fields("third"), [Ecn::NotEct, Ecn::NotEct]);
}
