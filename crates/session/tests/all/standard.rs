//! Receivers that only send standard reports, every 2.4 to 5 s, behind a link of 2 Mb/s.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use crate::group;

use group::{rtcp, settings, who};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Setup, find};
use steadycast_control::{Mode, PacketArrival, PacketReport, ReceiverId, Reception, Report, Sent, Stream};
use steadycast_link::{Config, Ecn, Fate, Limit, Link, Queue, Service, Steps};
use steadycast_session::{
    Emit, Origin, Output, Profile, Receiver, RtcpSettings, Sender, SenderSettings, StandardReports,
};
use steadycast_units::{Bytes, PeerTime, Rate, Seed, Span, Time};
use steadycast_wire::is_rtcp;

/// The results of a minute after its start.
#[derive(Debug, PartialEq)]
struct Seen {
    utilisation: f64,
    loss: f64,
    reports: u64,
    rule: String,
    /// The sender's next number when the receiver joined; 0: it was present from the first packet on.
    joined: u64,
}

fn drive(controller: &str, from: Span, seed: Seed) -> Seen {
    drive_joined(controller, from, seed, 65_500, Time::ZERO)
}

/// Runs as [`drive`] does, with the sender's first number and the time of the receiver's join.
fn drive_joined(controller: &str, from: Span, seed: Seed, first_seq: u16, joins: Time) -> Seen {
    let setup = |id| Setup {
        session_bandwidth: Rate::mbps(2),
        id: ReceiverId(id),
        ..Setup::unicast(Rate::kbps(50), Rate::mbps(1_000), seed.part("half"))
    };
    let rtcp = |profile| rtcp(profile, Rate::mbps(2), false);
    let own = Chosen::shared(controller, Mode::Repaired, &[]).unwrap();
    let able = find(controller).unwrap().standard_reports;
    let factory: Arc<dyn Factory> = Arc::new(StandardReports::new(own, able));
    let avpf = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO });
    let settings = SenderSettings { greedy: true, app: factory.terms().app, first_seq, ..settings(avpf, Emit::Paced) };
    let mut sender = Sender::new(settings, factory.sender(&setup(1)), seed.part("sender"), Time::ZERO);
    // GStreamer's rtpbin uses RFC 3550's five seconds, independent of the bandwidth.
    let plain = Chosen::shared("fixed", Mode::Repaired, &[]).unwrap();
    let five = RtcpSettings { t_min: Some(Span::secs(5)), group: true, ..rtcp(Profile::Rfc3550) };
    let half = plain.receiver(&setup(2));
    let mut receiver = Receiver::new(who(2), five, *b"NONE", half, seed.part("receiver"), joins);
    let config = Config {
        service: Service::Rate(Steps::constant(Rate::mbps(2))),
        delay: Steps::constant(Span::millis(20)),
        queue: Queue::drop_tail(Limit::Packets(50)),
        ..Config::default()
    };
    let back = Config { delay: Steps::constant(Span::millis(20)), ..Config::default() };
    let mut links = [Link::new(&config, "forth", seed), Link::new(&back, "back", seed)];
    let mut under_way: BTreeMap<(Time, u64), (usize, Vec<u8>)> = BTreeMap::new();
    let (mut now, mut number, mut newest) = (Time::ZERO, 0, 0);
    let (from, end) = (Time::ZERO + from, Time::ZERO + Span::secs(60));
    let (mut bytes, mut before) = (Bytes::ZERO, (0, 0));
    while now < end {
        let mut wake = end;
        for (way, link) in links.iter_mut().enumerate() {
            if way == 1 && now < joins {
                (wake, newest) = (wake.min(joins), sender.next_seq());
                continue;
            }
            loop {
                let datagram = match if way == 0 { sender.poll(now) } else { receiver.poll(now) } {
                    Output::Media(media) => {
                        let mut datagram = Vec::new();
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        datagram
                    }
                    Output::Rtcp(datagram) => datagram,
                    Output::Wait(until) => {
                        wake = until.map_or(wake, |u| wake.min(u.at));
                        break;
                    }
                };
                let size = Bytes::new(datagram.len() as u64 + 28);
                if let Fate::Arrives { at, .. } = link.offer(now, size, Ecn::NotEct) {
                    under_way.insert((at, number), (way, datagram));
                    number += 1;
                }
            }
        }
        if now < from {
            before = (receiver.expected(), receiver.received());
        }
        now = under_way.first_key_value().map_or(wake, |((at, _), _)| wake.min(*at));
        while let Some(entry) = under_way.first_entry().filter(|e| e.key().0 <= now) {
            let (way, datagram) = entry.remove();
            match (way, is_rtcp(&datagram)) {
                (0, _) if now < joins => {}
                (0, true) => receiver.on_rtcp(now, Origin(1), &datagram),
                (0, false) => {
                    receiver.on_rtp(now, Origin(1), &datagram, Ecn::NotEct, None);
                    if now >= from {
                        bytes += Bytes::new(datagram.len() as u64 + 28);
                    }
                }
                _ => sender.on_rtcp(now, Origin(2), &datagram),
            }
        }
    }
    let (expected, received) = (receiver.expected() - before.0, receiver.received() - before.1);
    Seen {
        utilisation: bytes.per(end.since(from)).ratio(Rate::mbps(2)),
        loss: 1.0 - received as f64 / expected as f64,
        reports: sender.feedback().packets,
        rule: sender.decision().why.rule.to_string(),
        joined: newest,
    }
}

#[test]
fn asmp_on_standard_reports_alone_uses_the_link_and_loses_little() {
    for seed in 0..12 {
        let seen = drive("asmp", Span::secs(20), Seed(seed));
        assert!((8..=25).contains(&seen.reports), "seed {seed}: {seen:?}");
        assert!((0.6..=1.0).contains(&seen.utilisation), "seed {seed}: {seen:?}");
        assert!((0.0..0.02).contains(&seen.loss), "seed {seed}: {seen:?}");
    }
}

#[test]
fn a_receiver_that_joins_after_the_numbers_have_wrapped_gets_what_it_would_get_before() {
    for seed in 0..2 {
        let joined = |first| drive_joined("asmp", Span::secs(40), Seed(seed), first, Time::ZERO + Span::secs(20));
        let (before, after) = (joined(0), joined(65_500));
        assert!(before.joined < 1 << 16 && after.joined > 1 << 16, "seed {seed}: {before:?}, {after:?}");
        assert!((0.3..=1.0).contains(&after.utilisation), "seed {seed}: {after:?}");
        assert_eq!(after, Seen { joined: after.joined, ..before }, "seed {seed}");
    }
}

#[test]
fn reports_of_single_packets_are_a_controllers_own_though_they_have_no_body() {
    let rule = |told: bool| {
        let setup = Setup::unicast(Rate::kbps(50), Rate::mbps(4), Seed(1).part("half"));
        let mut half = StandardReports::new(Chosen::shared("gcc", Mode::Repaired, &[]).unwrap(), false).sender(&setup);
        let at = |ms: u64| Time::ZERO + Span::millis(ms);
        let mut packets = Vec::new();
        for number in 0..20 {
            let (sent, size, stream) = (at(5 * number), Bytes::new(1_000), Stream::Media);
            half.on_sent(&Sent { at: sent, left: sent, number, seq: number, size, data_limited: false });
            let arrived = Some(PacketArrival { at: Some(PeerTime::from_nanos(5_000_000 * number as i64)), ecn: None });
            packets.push(PacketReport { number, sent, size, stream, arrived });
        }
        let reception = Reception { expected: 20, lost: 0, fraction: 0.0, highest: 19, jitter: Span::ZERO };
        let packets = if told { &packets[..] } else { &[] };
        let (from, reception) = (ReceiverId(9), Some(reception));
        half.on_report(&Report { at: at(150), from, rtt: None, reception, body: None, packets, members: 1 });
        assert_eq!(half.probe().is_some(), told, "what it is served by has no probes");
        half.decision().why.rule.into_owned()
    };
    assert!(rule(false).starts_with("standard reports alone"), "{}", rule(false));
    assert!(!rule(true).starts_with("standard reports alone"), "{}", rule(true));
}

#[test]
fn a_controller_that_needs_its_own_reports_falls_back_to_asmp_and_says_so() {
    for (controller, seed) in ["tfrc", "tfmcc"].into_iter().flat_map(|name| (0..6).map(move |seed| (name, seed))) {
        let seen = drive(controller, Span::secs(20), Seed(seed));
        assert!(seen.rule.starts_with("standard reports alone, so asmp: "), "{controller}, seed {seed}: {seen:?}");
        assert!((0.6..=1.0).contains(&seen.utilisation), "{controller}, seed {seed}: {seen:?}");
        assert!((0.0..0.02).contains(&seen.loss), "{controller}, seed {seed}: {seen:?}");
    }
}
