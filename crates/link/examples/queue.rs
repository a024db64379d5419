//! A link with a short queue under overload: `cargo run -p steadycast-link --example queue`.

use steadycast_link::{Config, Ecn, Fate, Limit, Link, Queue, Service, Steps};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

fn main() {
    let config = Config {
        service: Service::Rate(Steps::constant(Rate::mbps(2))),
        delay: Steps::constant(Span::millis(20)),
        queue: Queue::drop_tail(Limit::Packets(25)),
        ..Config::default()
    };
    let mut link = Link::new(&config, "forward", Seed(1));
    let (packet, offered) = (Bytes::new(1_000), Rate::kbps(2_500));
    let (mut arrived, mut dropped, mut longest) = (Bytes::ZERO, 0, Span::ZERO);
    let mut now = Time::ZERO;
    while now < Time::ZERO + Span::secs(10) {
        match link.offer(now, packet, Ecn::NotEct) {
            Fate::Arrives { at, .. } => {
                arrived += packet;
                longest = longest.max(at.since(now));
            }
            _ => dropped += 1,
        }
        now += packet.at(offered);
    }
    let carried = arrived.per(Span::secs(10));
    println!("{carried} of {offered} arrive, {dropped} packets are dropped, the longest delay is {longest}");
    assert!(carried > Rate::kbps(1_950) && carried < Rate::kbps(2_050));
    assert!(longest > Span::millis(100) && longest < Span::millis(130));
}
