//! NACKs that a sender must not answer, and packets that a receiver must not request.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{SENDER, at, rtcp, sender, settings};
use steadycast_control::{Arrival, ReceiverHalf, Reply, Slot, Stream};
use steadycast_session::{
    Emit, FeedbackFormat, Identity, Origin, Output, Profile, Received, Receiver, RepairSettings, Sender,
    SenderSettings, UnusedReason,
};
use steadycast_units::{Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{Compound, CongestionFeedback, KeyFrameRequest, Nack, Packet, ReportBlock};
use steadycast_wire::rtp::RtpHeader;

const RECEIVER: u32 = 77;
const RATE: Rate = Rate::mbps(1);

/// Returns a greedy sender of 1 Mb/s, from number 65,500 on, whose receiver has reported once after a second.
fn sending(playout: Option<Span>) -> (Sender, Time) {
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false);
    let repair = Some(RepairSettings { ssrc: 9, payload_type: 97, playout });
    let greedy = SenderSettings { greedy: true, repair, ..settings(rtcp, Emit::Paced) };
    let (mut sender, _) = sender(greedy, RATE, &[]);
    let now = at(1_000);
    count(&mut sender, at(0), now);
    let block = ReportBlock { ssrc: SENDER, highest_seq: 65_600, ..ReportBlock::default() };
    hear(&mut sender, now, 1, vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: vec![block] }]);
    (sender, now)
}

fn hear(sender: &mut Sender, now: Time, from: u64, packets: Vec<Packet>) {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    sender.on_rtcp(now, Origin(from), &bytes);
}

fn ask(sender: &mut Sender, now: Time, from: u64, media: u32, missing: Vec<u16>) {
    let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
    hear(sender, now, from, vec![report, Nack { sender: RECEIVER, media, missing }.to_packet()]);
}

/// Returns the bytes of media and of retransmissions that are sent until a time.
fn count(sender: &mut Sender, mut now: Time, until: Time) -> (u64, u64) {
    let (mut media, mut again) = (0, 0);
    loop {
        match sender.poll(now) {
            Output::Media(packet) if packet.stream == Stream::Repair => again += packet.size.get(),
            Output::Media(packet) => media += packet.size.get(),
            Output::Rtcp(_) => {}
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            Output::Wait(_) => return (media, again),
        }
    }
}

#[test]
fn a_storm_of_requests_gets_fifteen_percent_of_the_rate_and_the_whole_stays_what_it_was() {
    let (mut sender, start) = sending(None);
    let (mut now, mut media, mut again) = (start, 0, 0);
    // 100,000 requests in ten seconds for all recent packets.
    for n in 0..100_000u64 {
        let newest = sender.next_seq();
        ask(&mut sender, now, 1, SENDER, (1..=60).map(|back| (newest - back) as u16).collect());
        let next = start + Span::micros(100) * (n + 1);
        let (m, a) = count(&mut sender, now, next);
        (now, media, again) = (next, media + m, again + a);
    }
    let (all, most) = ((media + again) as f64, 0.15 * 1.25e6 + 0.15 * 125_000.0);
    assert!((1.24e6..1.26e6).contains(&all), "{all}");
    assert!((0.9 * most..=most).contains(&(again as f64)), "{again} of {most}");
    let check = sender.repair_check().unwrap();
    assert!(check.checked > 1_000 && check.broken == 0, "{check:?}");
    assert!(sender.repairs().refused > 100_000);
}

#[test]
fn what_was_never_sent_or_is_not_asked_by_a_receiver_is_not_sent_again() {
    let (mut sender, now) = sending(Some(Span::millis(300)));
    let next = sender.next_seq() as u16;
    ask(&mut sender, now, 1, SENDER, (0..500).map(|n| next.wrapping_add(n)).collect());
    // One request is for another stream, and one comes from an address without a receiver.
    ask(&mut sender, now, 1, SENDER + 1, vec![next.wrapping_sub(2)]);
    ask(&mut sender, now, 2, SENDER, vec![next.wrapping_sub(2)]);
    // This request is for a packet that is older than the play-out delay.
    ask(&mut sender, now, 1, SENDER, vec![next.wrapping_sub(60)]);
    assert_eq!(count(&mut sender, now, at(1_500)).1, 0);
    assert_eq!(sender.repairs().stale, 1);
}

#[test]
fn a_packet_that_is_asked_for_twice_at_once_is_sent_again_once_with_the_originals_time_stamp() {
    let (mut sender, now) = sending(Some(Span::millis(300)));
    // One of the packets, 8 ms apart, that was sent more than the assumed RTT of 100 ms ago.
    let wanted = sender.next_seq() - 20;
    for _ in 0..3 {
        ask(&mut sender, now, 1, SENDER, vec![wanted as u16; 4]);
    }
    let mut now = now;
    let again = loop {
        match sender.poll(now) {
            Output::Media(packet) => break packet,
            Output::Rtcp(_) => {}
            Output::Wait(wake) => now = wake.unwrap().at,
        }
    };
    assert_eq!((again.stream, again.repairs, again.header.ssrc), (Stream::Repair, Some(wanted), 9));
    assert!(again.header.timestamp.wrapping_sub(0xffff_0000) < 90_000, "{:?}", again.header);
    let mut datagram = Vec::new();
    again.encode(&vec![7; again.payload_len()], &mut datagram);
    assert_eq!(datagram.len() + 28, again.size.get() as usize, "the size told is the size encoded");
    assert_eq!(count(&mut sender, now, at(1_200)).1, 0);
}

fn plead(sender: &mut Sender, now: Time, from: u64, request: KeyFrameRequest) {
    let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
    hear(sender, now, from, vec![report, request.to_packet()]);
}

#[test]
fn a_flood_of_requests_for_key_frames_is_answered_twice_a_second() {
    let (mut sender, start) = sending(None);
    let mut answered = 0;
    for n in 0..10_000u64 {
        let number = n as u8;
        let request = match n % 2 {
            0 => KeyFrameRequest::PictureLoss { sender: RECEIVER, media: SENDER },
            _ => KeyFrameRequest::FullIntra { sender: RECEIVER, media: SENDER, number },
        };
        plead(&mut sender, start + Span::millis(n), 1, request);
        answered += u32::from(sender.take_key_frame());
    }
    assert_eq!(answered, 20);
}

#[test]
fn a_key_frame_of_another_source_or_for_who_is_no_member_is_not_made() {
    let (mut sender, now) = sending(None);
    for request in [
        KeyFrameRequest::PictureLoss { sender: RECEIVER, media: SENDER + 1 },
        KeyFrameRequest::PictureLoss { sender: RECEIVER + 1, media: SENDER },
    ] {
        plead(&mut sender, now, 1, request);
        assert!(!sender.take_key_frame(), "{request:?}");
    }
    // This request has a member's SSRC, but comes from another address.
    plead(&mut sender, now, 2, KeyFrameRequest::PictureLoss { sender: RECEIVER, media: SENDER });
    assert!(!sender.take_key_frame());
    plead(&mut sender, now, 1, KeyFrameRequest::PictureLoss { sender: RECEIVER, media: SENDER });
    assert!(sender.take_key_frame());
}

#[test]
fn requests_that_come_alone_are_answered_for_a_member_from_where_it_is_one() {
    // A group's members have several addresses.
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), true);
    let repair = Some(RepairSettings { ssrc: 9, payload_type: 97, playout: None });
    let greedy = SenderSettings { greedy: true, repair, ..settings(rtcp, Emit::Paced) };
    let (mut sender, _) = sender(greedy, RATE, &[]);
    let now = at(1_000);
    count(&mut sender, at(0), now);
    hear(&mut sender, now, 1, vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() }; 2]);
    let missing = vec![(sender.next_seq() - 40) as u16];
    let nack = Nack { sender: RECEIVER, media: SENDER, missing }.to_packet();
    let plea = KeyFrameRequest::PictureLoss { sender: RECEIVER, media: SENDER }.to_packet();
    hear(&mut sender, now, 2, vec![nack.clone(), plea.clone()]);
    assert!(!sender.take_key_frame());
    assert_eq!(count(&mut sender, now, at(1_100)).1, 0);
    hear(&mut sender, at(1_100), 1, vec![nack, plea]);
    assert!(sender.take_key_frame());
    assert!(count(&mut sender, at(1_100), at(1_200)).1 > 0);
}

/// A receiver half without reports.
struct Silent;

impl ReceiverHalf for Silent {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}
    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Plain
    }
}

/// Delivers a packet: the retransmission of packet `osn`, or media if `osn` is `None`.
fn arrives(receiver: &mut Receiver, now: Time, from: u64, ssrc: u32, seq: u16, osn: Option<u16>) -> Received {
    let payload: Vec<u8> = osn.map_or(vec![0, 0], |osn| osn.to_be_bytes().to_vec());
    let header = RtpHeader {
        payload_type: if osn.is_some() { 97 } else { 96 },
        marker: true,
        seq,
        timestamp: 900 * u32::from(osn.unwrap_or(seq)),
        ssrc,
        send_time: None,
        payload_len: payload.len() as u16,
    };
    let mut datagram = Vec::new();
    header.encode(&[], &payload, &mut datagram);
    let (received, ..) = receiver.on_rtp(now, Origin(from), &datagram, Ecn::NotEct, None).unwrap();
    received
}

/// Returns the numbers that it requests until a time.
fn asked(receiver: &mut Receiver, mut now: Time, until: Time) -> Vec<u16> {
    let mut all = Vec::new();
    loop {
        match receiver.poll(now) {
            Output::Rtcp(bytes) => {
                let compound = Compound::parse(&bytes).unwrap();
                let nacks = compound.packets.iter().filter_map(|packet| Nack::from_packet(packet).unwrap());
                all.extend(nacks.flat_map(|nack| nack.missing));
            }
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            _ => return all,
        }
    }
}

#[test]
fn a_stream_of_retransmissions_is_known_by_its_first_answer_to_a_request_and_no_other_is_heard() {
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false);
    let who = Identity { ssrc: RECEIVER, cname: "receiver".into() };
    let receiver = Receiver::new(who, rtcp, *b"TEST", Box::new(Silent), Seed(1).part("rtcp"), at(0));
    let settings = RepairSettings { ssrc: 0, payload_type: 97, playout: Some(Span::millis(300)) };
    let mut receiver = receiver.with_repair_of_any_source(settings);
    for n in 0..98 {
        arrives(&mut receiver, at(10 * n), 1, SENDER, n as u16, None);
        asked(&mut receiver, at(10 * n), at(10 * n));
    }
    arrives(&mut receiver, at(990), 1, SENDER, 99, None);
    let forger = 666;
    // A retransmission of a packet that has not been requested is not used.
    assert_eq!(arrives(&mut receiver, at(990), 1, forger, 0, Some(98)), Received::Unused(UnusedReason::UnaskedRepair));
    assert_eq!(asked(&mut receiver, at(990), at(1_040)), [98]);
    // Nor are retransmissions of packets that have arrived or were never sent, or from another address than the
    // media's.
    let [unasked, other] = [UnusedReason::UnaskedRepair, UnusedReason::OtherSource];
    for (from, osn, why) in [(1, 97, unasked), (1, 20_000, unasked), (2, 98, other)] {
        assert_eq!(arrives(&mut receiver, at(1_040), from, forger, 0, Some(osn)), Received::Unused(why), "{osn}");
    }
    assert_eq!(arrives(&mut receiver, at(1_041), 1, 9, 500, Some(98)), Received::Repaired(98));
    assert_eq!(arrives(&mut receiver, at(1_042), 1, 9, 501, Some(98)), Received::Duplicate);
    assert_eq!(
        arrives(&mut receiver, at(1_042), 1, forger, 0, Some(98)),
        Received::Unused(UnusedReason::UnaskedRepair)
    );
    assert_eq!((receiver.received(), receiver.requests().repaired), (99, 1));
}

#[test]
fn a_stream_of_retransmissions_that_was_announced_is_heard_from_its_first_packet_on() {
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false);
    let who = Identity { ssrc: RECEIVER, cname: "receiver".into() };
    let receiver = Receiver::new(who, rtcp, *b"TEST", Box::new(Silent), Seed(1).part("rtcp"), at(0));
    let settings = RepairSettings { ssrc: 9, payload_type: 97, playout: Some(Span::millis(300)) };
    let receiver = receiver.with_repair_of_any_source(settings).with_feedback(FeedbackFormat::Rfc8888, Rate::mbps(2));
    let mut receiver = receiver;
    for n in 0..10 {
        arrives(&mut receiver, at(10 * n), 1, SENDER, n as u16, None);
    }
    assert_eq!(arrives(&mut receiver, at(91), 1, 666, 3, Some(9)), Received::Unused(UnusedReason::UnaskedRepair));
    // Padding: a packet that has arrived is sent again.
    assert_eq!(arrives(&mut receiver, at(92), 1, 9, 500, Some(9)), Received::Duplicate);
    let mut reported = Vec::new();
    let mut now = at(92);
    while now < at(400) {
        match receiver.poll(now) {
            Output::Rtcp(bytes) => {
                let compound = Compound::parse(&bytes).unwrap();
                let told =
                    compound.packets.iter().filter_map(|packet| CongestionFeedback::from_packet(packet).unwrap());
                reported.extend(told.flat_map(|told| told.streams).map(|stream| stream.ssrc));
            }
            Output::Wait(wake) => now = wake.map_or(at(400), |wake| wake.at),
            Output::Media(_) => {}
        }
    }
    assert!(reported.contains(&SENDER) && reported.contains(&9) && !reported.contains(&666), "{reported:?}");
    assert_eq!((receiver.received(), receiver.requests().repaired), (10, 0));
}

#[test]
fn of_a_sender_that_was_started_again_packets_are_asked_for_by_the_numbers_that_it_gave_them() {
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false);
    let who = Identity { ssrc: RECEIVER, cname: "receiver".into() };
    let receiver = Receiver::new(who, rtcp, *b"TEST", Box::new(Silent), Seed(1).part("rtcp"), at(0));
    let settings = RepairSettings { ssrc: 0, payload_type: 97, playout: Some(Span::millis(300)) };
    let mut receiver = receiver.with_repair_of_any_source(settings);
    for n in 0..50 {
        arrives(&mut receiver, at(10 * n), 1, SENDER, 40_000 + n as u16, None);
        asked(&mut receiver, at(10 * n), at(10 * n));
    }
    // The first source is silent until it times out. For the application the second one continues its numbers.
    let start = 60_000;
    for n in (0..20).filter(|n| *n != 15) {
        let seq = 7_000 + n as u16;
        let received = arrives(&mut receiver, at(start + 10 * n), 1, SENDER + 7, seq, None);
        assert_eq!(received, Received::New(40_050 + n), "{n}");
        if n < 16 {
            let early = asked(&mut receiver, at(start + 10 * n), at(start + 10 * n));
            assert!(early.is_empty(), "{early:?}");
        }
    }
    assert_eq!(asked(&mut receiver, at(start + 200), at(start + 250)), [7_015]);
    let again = arrives(&mut receiver, at(start + 260), 1, 9, 500, Some(7_015));
    assert_eq!(again, Received::Repaired(40_065));
}
