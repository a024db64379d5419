//! Event logs and captures are read, and what is broken is refused.

use proptest::prelude::*;
use std::time::Duration;
use steadycast_calltrace::{Call, Fate, Flight, Opener, Options, Side, decisions, read, read_ends};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::rtcp::{Compound, PacketStatus, Ticks, TransportFeedback};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

/// 16 s of one call over loopback, at 350 kb/s, that Chromium 156 recorded at both ends.
const SENDER: &[u8] = include_bytes!("../logs/sender.log");
const RECEIVER: &[u8] = include_bytes!("../logs/receiver.log");

/// Returns options that name the side of the call at which the file was recorded.
fn at(side: Side) -> Options {
    Options { side: Some(side), ..Options::default() }
}

fn sizes(call: &Call) -> u64 {
    call.packets.iter().map(|packet| packet.size.get()).sum()
}

#[test]
fn a_log_is_read_from_the_side_that_is_named_where_packets_went_that_way() {
    assert!(read(SENDER, at(Side::Sender), None).unwrap().source.contains("sender"));
    assert!(read(RECEIVER, at(Side::Receiver), None).unwrap().source.contains("receiver"));
    assert!(read(SENDER, at(Side::Receiver), None).unwrap_err().remedy.contains("--side"));
}

#[test]
fn two_ends_joined_say_what_each_alone_says() {
    let joined = read_ends(SENDER, RECEIVER, Options::default(), None).unwrap();
    let sender = read(SENDER, Options::default(), None).unwrap();
    assert_eq!(sizes(&joined), sizes(&sender));
    assert!(joined.packets.iter().all(|packet| packet.arrived.is_some()));
    assert!(!sender.estimates.is_empty());
    assert_eq!(joined.estimates, sender.estimates);
    // The estimates in the receiver's log are those of what it sends itself.
    assert_eq!(read(RECEIVER, Options::default(), None).unwrap().estimates, []);
    // The packets contain their send times, so the receiver's log alone gives the same delays, up to a constant.
    let vary = |call: &Call| {
        let delay = |packet: &Flight| packet.arrived.expect("all arrived").as_nanos() - packet.left.as_nanos() as i64;
        let all: Vec<i64> = call.packets.iter().map(delay).collect();
        all.iter().max().unwrap() - all.iter().min().unwrap()
    };
    let receiver = read(RECEIVER, Options::default(), None).unwrap();
    assert!((vary(&joined) - vary(&receiver)).abs() <= 5_000, "{} {}", vary(&joined), vary(&receiver));
    assert!(read_ends(RECEIVER, SENDER, Options::default(), None).is_err(), "the sender's comes first");
}

#[test]
fn what_a_controller_would_have_decided_is_told_for_a_sender_s_record_alone() {
    let sender = read(SENDER, Options::default(), None).unwrap();
    let decided = decisions(&sender, "gcc").unwrap();
    let (first, last) = (sender.packets.first().unwrap().left, sender.packets.last().unwrap().left);
    assert_eq!(decided[0].1, Rate::kbps(300), "the start rate");
    assert!(decided.windows(2).all(|two| two[0].0 <= two[1].0));
    assert!(decided.iter().all(|one| one.0 >= first.before(Span::millis(50)) && one.0 <= last));
    assert!(decided.iter().any(|one| one.1 > Rate::kbps(330)), "its packets carried more: {decided:?}");
    // The log's estimates are on the packets' clock, which begins with the first.
    assert!(sender.estimates.iter().all(|one| one.0 >= first.before(Span::secs(1)) && one.0 < last + Span::secs(1)));
    assert!(decisions(&sender, "gccc").is_err());
    assert_eq!(decisions(&read(RECEIVER, Options::default(), None).unwrap(), "gcc"), Ok(Vec::new()));
}

#[test]
fn both_ends_of_a_call_have_the_same_packets() {
    let (sender, receiver) =
        (read(SENDER, Options::default(), None).unwrap(), read(RECEIVER, Options::default(), None).unwrap());
    assert_eq!((sender.packets.len(), receiver.packets.len()), (580, 580));
    assert_eq!(sizes(&sender), sizes(&receiver));
    assert!(sender.notes.iter().chain(&receiver.notes).all(|note| !note.contains("does not know")), "unknown fields");
    assert_eq!((sender.frames.len(), receiver.frames.len()), (145, 145));
    assert!(sender.packets.iter().all(|packet| packet.fate != Fate::Lost));
    assert_eq!(sender.reports, 141);
    assert!(sender.begins);
    assert_eq!(sender.every, (Span::micros(4), Span::micros(250)));
    assert!(sender.round_trip.unwrap() < Span::millis(10), "over loopback");
    let gone = |call: &Call| call.packets.last().unwrap().left.since(call.packets[0].left).as_secs_f64();
    assert!((gone(&sender) - gone(&receiver)).abs() < 1e-3);
}

#[test]
fn a_log_that_is_cut_is_used_up_to_there() {
    let call = read(&SENDER[..SENDER.len() - 100], Options::default(), None).unwrap();
    assert!(call.notes.iter().any(|note| note.contains("is cut at byte")), "{:?}", call.notes);
    assert!(call.packets.len() > 200);
}

#[test]
fn what_is_no_log_is_refused_with_a_remedy() {
    let refused = |bytes: &[u8]| read(bytes, Options::default(), None).unwrap_err().what;
    assert!(refused(b"<html>").contains("neither an event log"));
    assert!(refused(&[0x0a, 2, 1, 2]).contains("version 1"));
    // A batch of RTP whose header promises 2³¹ more packets.
    assert!(refused(&[0x12, 7, 0x58, 0xff, 0xff, 0xff, 0xff, 0x07, 0]).contains("cut"));
    assert!(refused(&[0x12, 6, 0x58, 0xff, 0xff, 0xff, 0xff, 0x07]).contains("says that it holds"));
    assert!(refused(&[0x82, 1, 0]).contains("no RTP packet"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_log_is_read_or_refused(at in 0..SENDER.len(), byte: u8, end in 0..SENDER.len()) {
        let mut bytes = SENDER.to_vec();
        bytes[at] = byte;
        bytes.truncate(end);
        let _ = read(&bytes, Options::default(), None);
    }

    #[test]
    fn a_damaged_capture_is_read_or_refused(at in 0..20_000_usize, byte: u8, end in 0..20_000_usize) {
        let mut bytes = capture(60, true, 9);
        let (at, end) = (at % bytes.len(), end % bytes.len());
        bytes[at] = byte;
        bytes.truncate(end);
        let _ = read(&bytes, Options::default(), None);
    }
}

fn datagram(back: bool, payload: &[u8]) -> Vec<u8> {
    let (from, to) = if back { (2, 1) } else { (1, 2) };
    let length = (28 + payload.len()) as u16;
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend([0x13, 0x88, 0x13, 0x88]);
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// A capture at a sender that sends a packet each 10 ms; each takes 30 ms, and one in `nth` is lost.
fn capture(packets: u16, reports: bool, nth: u16) -> Vec<u8> {
    sealed(packets, reports, nth, 0)
}

/// Applies or removes a mask behind the header of a compound.
fn masked(mask: u8, mut compound: Vec<u8>) -> Vec<u8> {
    compound.iter_mut().skip(8).for_each(|byte| *byte ^= mask);
    compound
}

/// As [`capture`], with its reports under a mask.
fn sealed(packets: u16, reports: bool, nth: u16, mask: u8) -> Vec<u8> {
    // A pcap of Ethernet frames, with times in nanoseconds.
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    let mut put = |at: Duration, back: bool, payload: &[u8]| {
        let frame = datagram(back, payload);
        for word in [at.as_secs() as u32, at.subsec_nanos(), frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    };
    for n in 0..packets {
        let at = Duration::from_millis(1000 + 10 * u64::from(n));
        let header = RtpHeader {
            payload_type: 96,
            marker: n % 3 == 2,
            seq: 65_500_u16.wrapping_add(n),
            timestamp: u32::from(n / 3) * 3000,
            ssrc: 7,
            send_time: None,
            payload_len: 500,
        };
        let (mut element, mut bytes) = (Vec::new(), Vec::new());
        TransportNumber { seq: 65_520_u16.wrapping_add(n), request: None }.write(&mut element);
        header.encode(&[(5, &element)], &[0; 500], &mut bytes);
        put(at, false, &bytes);
        if reports && n % 10 == 9 {
            let status = |k: u16| {
                let arrived = Time::from_nanos(u64::from(1030 + 10 * k) * 1_000_000);
                if k % nth == 4 { PacketStatus::Missing } else { PacketStatus::At(Ticks::of(arrived)) }
            };
            let begin_seq = 65_520_u16.wrapping_add(n - 9);
            let report = TransportFeedback {
                sender: 8,
                media: 7,
                count: 0,
                begin_seq,
                packets: (n - 9..=n).map(status).collect(),
            };
            let mut bytes = Vec::new();
            Compound { packets: report.to_packets(1200) }.encode(&mut bytes);
            put(at + Duration::from_millis(60), true, &masked(mask, bytes));
        }
    }
    file
}

#[test]
fn a_capture_s_reports_tell_when_its_packets_arrived_over_both_wraps() {
    let call = read(&capture(200, true, 10), at(Side::Sender), None).unwrap();
    assert_eq!((call.packets.len(), call.reports), (200, 20));
    let fates = call.packets.iter().enumerate();
    let wrong = fates.filter(|(i, packet)| (packet.fate == Fate::Lost) != (i % 10 == 4)).count();
    assert_eq!(wrong, 0);
    let trips: Vec<i64> = call
        .packets
        .iter()
        .filter_map(|packet| Some(packet.arrived?.as_nanos() - packet.left.as_nanos() as i64))
        .collect();
    assert_eq!(trips.iter().max(), trips.iter().min(), "each took as long");
    assert_eq!(call.packets[0].size, Bytes::new(28 + 12 + 8 + 500));
    assert_eq!(call.round_trip, Some(Span::millis(60)));
}

/// A [`capture`] as the receiver makes it: packets arrive 30 ms later, with a jitter of up to 2 ms.
fn later(capture: &[u8]) -> Vec<u8> {
    delayed(capture, |_, n| Duration::from_micros(30_000 + n % 5 * 500))
}

/// Returns a [`capture`] whose records are later. `by` returns how much, from a record's time and index.
fn delayed(capture: &[u8], by: impl Fn(Duration, u64) -> Duration) -> Vec<u8> {
    let mut bytes = capture.to_vec();
    let (mut at, mut n) = (24, 0);
    while at < bytes.len() {
        let word = |from: usize| u32::from_le_bytes(bytes[from..from + 4].try_into().expect("four bytes"));
        let (secs, nanos, len) = (word(at), word(at + 4), word(at + 8) as usize);
        let recorded = Duration::new(u64::from(secs), nanos);
        let moved = recorded + by(recorded, n);
        bytes[at..at + 4].copy_from_slice(&(moved.as_secs() as u32).to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&moved.subsec_nanos().to_le_bytes());
        (at, n) = (at + 16 + len, n + 1);
    }
    bytes
}

#[test]
fn sealed_reports_tell_what_open_ones_do_to_whoever_has_the_key() {
    let (open, hidden) = (capture(200, true, 10), sealed(200, true, 10, 0x5a));
    let mut key = |bytes: &[u8]| Some(masked(0x5a, bytes.to_vec()));
    let call = read(&hidden, at(Side::Sender), Some(&mut key)).unwrap();
    assert_eq!(call.packets, read(&open, at(Side::Sender), None).unwrap().packets);
    assert!(call.notes.iter().any(|note| note.contains("opened 20 of 20")), "{:?}", call.notes);
    assert!(read(&hidden, at(Side::Sender), None).is_err());
    // Both ends' arrivals are known, and the sender's reports give the round trip.
    let there = later(&open);
    let trip =
        |sender: &[u8], key: Option<Opener<'_>>| read_ends(sender, &there, Options::default(), key).unwrap().round_trip;
    assert_eq!((trip(&hidden, None), trip(&hidden, Some(&mut key))), (None, trip(&open, None)));
    assert!(trip(&open, None).is_some());
    let log = read(SENDER, Options::default(), Some(&mut key)).unwrap();
    assert!(log.notes.iter().any(|note| note.contains("--key-file left out")), "{:?}", log.notes);
    let other = read(&hidden, Options::default(), Some(&mut |_: &[u8]| None)).unwrap_err();
    assert!(other.what.contains("opens none of its 20"), "{other:?}");
}

#[test]
fn a_capture_that_does_not_show_its_end_is_refused_with_a_step_of_the_delay_if_there_is_one() {
    let refused = |bytes: &[u8]| read(bytes, Options::default(), None).unwrap_err().what;
    let bytes = capture(400, true, 10);
    assert!(refused(&bytes).contains("the receiver's agree to a millisecond: it may have been"), "{}", refused(&bytes));
    for (at_ms, by_ms) in [(2_000, 30), (3_500, 8), (3_000, 200)] {
        let step = |at: Duration, _| Duration::from_millis(if at.as_millis() < at_ms { 0 } else { by_ms });
        let what = refused(&delayed(&bytes, step));
        assert!(what.contains("agree to a millisecond, apart from single steps: it may have been"), "{by_ms}: {what}");
    }
}

#[test]
fn a_capture_that_does_not_say_when_packets_arrived_is_refused() {
    assert!(read(&capture(200, false, 10), Options::default(), None).unwrap_err().what.contains("when they arrived"));
    assert!(read(&capture(10, true, 10), Options::default(), None).unwrap_err().what.contains("no RTP"));
    assert!(
        read(&capture(200, true, 10), Options { stream: Some(9), ..Options::default() }, None)
            .unwrap_err()
            .remedy
            .contains("SSRC 7")
    );
}
