//! Datagrams of hosts that are not ours, carried by the links of a scenario.

use std::collections::BTreeMap;
use std::path::Path;
use steadycast_link::Ecn;
use steadycast_network::{Datagrams, Target};
use steadycast_scenario::Scenario;
use steadycast_units::{Span, Time};

/// A UDP datagram of this size in all, from this port.
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
            "duration = \"4s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nname = \"path\"\nbetween = [\"a\", \"b\"]\nrate = \"8Mbps\"\n\
             delay = \"10ms\"\nqueue = {{ kind = \"{kind}\", limit = \"200p\" }}\n\
             [[flow]]\nname = \"any\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nfrom = \"a\"\nto = [\"b\"]\n"
        );
        let scenario = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}")).scenario;
        let (a, b) = (scenario.links[0].a, scenario.links[0].b);
        let mut network = Datagrams::new(&scenario, &[a, b]).unwrap_or_else(|e| panic!("{e}"));
        let mut offers = BTreeMap::new();
        // A quarter more than fits, and beside it 50 small ones per second.
        (0..4000u64).for_each(|n| drop(offers.insert(n * 800, datagram(5001, 1000))));
        (0..150u64).for_each(|n| drop(offers.insert(n * 20_000 + 1, datagram(5002, 200))));
        let (mut small, mut all) = (Vec::new(), 0);
        let mut go = |network: &mut Datagrams, until: Time| {
            while network.next() <= until {
                let due = network.next();
                network.advance(due, |arrival| {
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
            assert!(network.offer(at, a, Target::Host(b), Ecn::NotEct, bytes));
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
