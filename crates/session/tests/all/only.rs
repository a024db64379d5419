//! Unicast sessions: how the receiver is determined, and that no other host has an effect.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{SENDER, Told, at, media, rtcp, settings};
use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Chosen, Factory, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_session::{Emit, Origin, Profile, Sender, SenderSettings, StandardReports};
use steadycast_units::{Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{Compound, Packet, ReportBlock};

const RECEIVER: u32 = 77;

fn greedy() -> SenderSettings {
    let avpf = Profile::Avpf { t_rr_interval: Span::ZERO };
    SenderSettings { greedy: true, ..settings(rtcp(avpf, Rate::mbps(2), false), Emit::Paced) }
}

/// Returns a sender that has sent for a second, and the calls of its half.
fn sending() -> (Sender, Arc<Mutex<Told>>) {
    let (mut sender, told) = group::sender(greedy(), Rate::mbps(1), &[]);
    media(&mut sender, at(0), at(1_000));
    (sender, told)
}

fn bytes(packets: Vec<Packet>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    bytes
}

/// Returns a report on the stream, standard or with a body of the controller.
fn report(ssrc: u32, own: Option<[u8; 4]>) -> Vec<u8> {
    let block = ReportBlock { ssrc: SENDER, highest_seq: 65_510, ..ReportBlock::default() };
    let chunks = vec![(ssrc, format!("{ssrc}@test"))];
    let body = own.map(|name| Packet::App { ssrc, subtype: 1, name, data: vec![0; 16] });
    let packets = [Packet::ReceiverReport { ssrc, blocks: vec![block] }, Packet::Sdes { chunks }];
    bytes(packets.into_iter().chain(body).collect())
}

fn bye(ssrc: u32) -> Vec<u8> {
    let packets =
        [Packet::ReceiverReport { ssrc, blocks: Vec::new() }, Packet::Bye { ssrcs: vec![ssrc], reason: String::new() }];
    bytes(packets.into())
}

/// Returns the receivers whose reports the half got.
fn heard(told: &Arc<Mutex<Told>>) -> Vec<u32> {
    told.lock().unwrap().reports.iter().map(|(_, from, _)| from.0).collect()
}

#[test]
fn while_the_receiver_reports_nobody_else_is_heard_and_each_try_is_counted() {
    let (mut sender, told) = sending();
    sender.on_rtcp(at(1_000), Origin(1), &report(RECEIVER, None));
    for n in 0..100 {
        sender.on_rtcp(at(1_000 + u64::from(n)), Origin(2), &report(500 + n, Some(*b"TEST")));
    }
    sender.on_rtcp(at(2_000), Origin(1), &report(RECEIVER, None));
    assert_eq!((heard(&told), sender.receivers()), (vec![RECEIVER; 2], 1));
    assert_eq!((sender.feedback().packets, sender.feedback().refused), (2, 100));
    // Another SSRC of the same host is accepted. After its last BYE the next reporter is the receiver.
    sender.on_rtcp(at(2_000), Origin(1), &report(RECEIVER + 1, None));
    sender.on_rtcp(at(2_000), Origin(1), &bye(RECEIVER));
    sender.on_rtcp(at(2_000), Origin(2), &report(500, None));
    assert_eq!(sender.receivers(), 1);
    sender.on_rtcp(at(2_000), Origin(1), &bye(RECEIVER + 1));
    sender.on_rtcp(at(2_000), Origin(2), &report(500, None));
    assert_eq!(heard(&told), [RECEIVER, RECEIVER, RECEIVER + 1, 500]);
}

#[test]
fn another_takes_the_place_of_a_receiver_that_is_silent_for_five_intervals_of_its_reports() {
    // RFC 3550's reports are 5 s apart, this session's 1 s.
    for (own, silent) in [(None, 25_000), (Some(*b"TEST"), 5_000)] {
        let (mut sender, told) = sending();
        sender.on_rtcp(at(1_000), Origin(1), &report(RECEIVER, own));
        sender.on_rtcp(at(1_000 + silent - 1), Origin(2), &report(500, None));
        assert_eq!(heard(&told), [RECEIVER], "{own:?}");
        sender.on_rtcp(at(1_000 + silent), Origin(2), &report(500, None));
        assert_eq!(heard(&told), [RECEIVER, 500], "{own:?}");
        let left: Vec<ReceiverId> = told.lock().unwrap().left.iter().map(|(_, who)| *who).collect();
        assert_eq!((left, sender.receivers()), (vec![ReceiverId(RECEIVER)], 1), "{own:?}");
        // The former receiver is now ignored.
        sender.on_rtcp(at(1_000 + silent), Origin(1), &report(RECEIVER, own));
        assert_eq!(heard(&told), [RECEIVER, 500], "{own:?}");
    }
}

#[test]
fn a_receiver_is_heard_from_another_address_once_it_has_been_silent_at_the_old_one() {
    let (mut sender, told) = sending();
    sender.on_rtcp(at(1_000), Origin(1), &report(RECEIVER, Some(*b"TEST")));
    media(&mut sender, at(1_000), at(3_000));
    sender.on_rtcp(at(3_000), Origin(2), &report(RECEIVER, Some(*b"TEST")));
    assert_eq!(heard(&told), [RECEIVER]);
    media(&mut sender, at(3_000), at(9_000));
    sender.on_rtcp(at(9_000), Origin(2), &report(RECEIVER, Some(*b"TEST")));
    assert_eq!((heard(&told), sender.receivers()), (vec![RECEIVER; 2], 1));
}

#[test]
fn a_strangers_standard_reports_do_not_take_the_receivers_controller_away() {
    let tfrc = Chosen::shared("tfrc", Mode::Repaired, &[]).unwrap();
    let factory: Arc<dyn Factory> = Arc::new(StandardReports::new(tfrc, false));
    let rule = |stranger: u64| {
        let setup = Setup::unicast(Rate::kbps(50), Rate::mbps(4), Seed(1).part("half"));
        let settings = SenderSettings { app: factory.terms().app, ..greedy() };
        let mut sender = Sender::new(settings, factory.sender(&setup), Seed(1).part("sender"), Time::ZERO);
        media(&mut sender, at(0), at(1_000));
        sender.on_rtcp(at(1_000), Origin(1), &report(RECEIVER, Some(factory.terms().app)));
        for n in 0..5 {
            sender.on_rtcp(at(1_001 + n), Origin(stranger), &report(500, None));
        }
        sender.decision().why.rule.to_string()
    };
    assert!(!rule(2).starts_with("standard reports alone"), "{}", rule(2));
    assert!(rule(1).starts_with("standard reports alone"), "on the receiver's own host: {}", rule(1));
}
