//! RTP headers, sequence numbers and NTP timestamps.
use proptest::prelude::*;
use steadycast_units::{Bytes, Span, Stamp, Time};
use steadycast_wire::ntp::{self, NtpEpoch};
use steadycast_wire::rtp::{ReportRequest, RtpHeader, TransportNumber, set_transport_number};
use steadycast_wire::seq::{ExtendedSeq, Verdict};
use steadycast_wire::{ParseError, is_rtcp};

fn header() -> RtpHeader {
    RtpHeader {
        payload_type: 96,
        marker: true,
        seq: 0x1234,
        timestamp: 0x0102_0304,
        ssrc: 0xaabb_ccdd,
        send_time: None,
        payload_len: 2,
    }
}

fn encoded(header: &RtpHeader, extensions: &[(u8, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(extensions, payload, &mut out);
    out
}

#[test]
fn a_plain_header_has_the_layout_of_rfc_3550() {
    let bytes = encoded(&header(), &[], &[7, 8]);
    assert_eq!(bytes, [0x80, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 0xaa, 0xbb, 0xcc, 0xdd, 7, 8]);
    assert_eq!(header().packet_size(&[]), Bytes::new(28 + 12 + 2));
}

#[test]
fn a_transport_wide_number_has_two_bytes_or_four_with_a_request() {
    let written = |number: TransportNumber| {
        let mut out = Vec::new();
        number.write(&mut out);
        assert_eq!(TransportNumber::read(&out), Some(number));
        out
    };
    assert_eq!(written(TransportNumber { seq: 0xfffe, request: None }), [0xff, 0xfe]);
    let request = |timed, packets| Some(ReportRequest { timed, packets });
    assert_eq!(written(TransportNumber { seq: 1, request: request(true, 0x1234) }), [0, 1, 0x92, 0x34]);
    assert_eq!(written(TransportNumber { seq: 1, request: request(false, 0x7fff) }), [0, 1, 0x7f, 0xff]);
    for wrong in [&[][..], &[1], &[1, 2, 3], &[1, 2, 3, 4, 5]] {
        assert_eq!(TransportNumber::read(wrong), None);
    }
}

#[test]
fn a_send_time_and_a_short_element_take_the_one_byte_form() {
    let header = RtpHeader { send_time: Some(Stamp(0x0506_0708)), ..header() };
    let bytes = encoded(&header, &[(2, &[1, 2, 3])], &[7, 8]);
    // 0xBEDE, 3 words: ID 1 of 4 bytes, ID 2 of 3 bytes, 3 bytes of padding.
    let extension = [0xbe, 0xde, 0, 3, 0x13, 5, 6, 7, 8, 0x22, 1, 2, 3, 0, 0, 0];
    assert_eq!(bytes[0], 0x90);
    assert_eq!(bytes[12..28], extension);
    assert_eq!(header.wire_size(&[(2, &[1, 2, 3])]), 28);
}

#[test]
fn an_element_of_17_bytes_turns_all_into_the_two_byte_form() {
    let header = RtpHeader { send_time: Some(Stamp(9)), ..header() };
    let long = [5u8; 17];
    let bytes = encoded(&header, &[(4, &long)], &[7, 8]);
    assert_eq!(bytes[12..16], [0x10, 0x00, 0, 7]);
    assert_eq!(bytes[16..24], [1, 4, 0, 0, 0, 9, 4, 17]);
    let (back, elements, payload) = RtpHeader::parse(&bytes).unwrap();
    assert_eq!((back, payload), (header, &[7u8, 8][..]));
    assert_eq!(elements.collect::<Vec<_>>(), [(4, &long[..])]);
}

#[test]
fn contributing_sources_padding_and_unknown_extensions_are_tolerated() {
    let mut bytes = vec![0xb2, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]; // padding, extension, two sources
    bytes.extend([1, 1, 1, 1, 2, 2, 2, 2]);
    bytes.extend([0xab, 0xcd, 0, 1, 9, 9, 9, 9]);
    bytes.extend([42, 43, 0, 2]);
    let (header, mut elements, payload) = RtpHeader::parse(&bytes).unwrap();
    assert_eq!((header.seq, header.timestamp, header.ssrc, header.payload_len), (1, 2, 3, 2));
    assert_eq!((elements.next(), payload), (None, &[42u8, 43][..]));
}

#[test]
fn the_reserved_ids_of_the_one_byte_form_end_the_list() {
    for end in [0xf0u8, 0x01] {
        let mut bytes = vec![0x90, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xbe, 0xde, 0, 2];
        bytes.extend([0x20, 7, end, 1, 0x30, 8, 0, 0]);
        let (_, elements, _) = RtpHeader::parse(&bytes).unwrap();
        assert_eq!(elements.collect::<Vec<_>>(), [(2, &[7u8][..])], "{end:#x}");
    }
}

#[test]
fn truncated_and_contradictory_packets_are_rejected_with_a_reason() {
    let bytes = encoded(&header(), &[], &[7, 8]);
    assert_eq!(RtpHeader::parse(&bytes[..11]).unwrap_err(), ParseError::Short { what: "RTP header", need: 4, got: 3 });
    let version = [&[0x40], &bytes[1..]].concat();
    assert_eq!(RtpHeader::parse(&version).unwrap_err(), ParseError::Version { got: 1 });
    let padded = [&[0xa0], &bytes[1..]].concat();
    assert_eq!(RtpHeader::parse(&padded).unwrap_err(), ParseError::Padding { count: 8, len: 2 });
}

#[test]
fn rtcp_and_rtp_are_distinguished_on_one_port() {
    assert!(is_rtcp(&[0x81, 200]) && is_rtcp(&[0x80, 206]));
    assert!(!is_rtcp(&[0x80, 96]) && !is_rtcp(&[0x80, 0xe0]) && !is_rtcp(&[0x80]));
}

#[test]
fn a_large_jump_is_a_loss_if_it_is_explained_and_otherwise_a_stray() {
    let mut started = ExtendedSeq::default();
    started.on_packet(1000, 0);
    let verdict = |seq: u16, reach| started.clone().on_packet(seq, reach);
    // The result does not depend on the number of packets that follow.
    let confirmed = |seq: u16| {
        let mut many = started;
        (0..9).map(|n| many.on_packet(seq.wrapping_add(n), 0)).last().unwrap()
    };
    assert_eq!(verdict(1000 + 99, 0), Verdict::Newer(1099));
    assert_eq!(verdict(1000 + 100, 0), Verdict::Stray);
    assert_eq!(confirmed(1000 + 100), Verdict::Stray);
    assert_eq!(confirmed(1000 + 2990), Verdict::Stray);
    assert_eq!(confirmed(1000 + 3000), Verdict::Newer(4008));
    assert_eq!(verdict(1000 + 499, 500), Verdict::Newer(1499));
    assert_eq!(verdict(1000 + 500, 500), Verdict::Stray);
    assert_eq!(verdict(1000 + 40_000, u16::MAX), Verdict::Newer(41_000), "a long outage");
    for reach in [0, 3000, u16::MAX] {
        assert_eq!(verdict(1000 - 99, reach), Verdict::Late(901));
        assert_eq!(verdict(1000, reach), Verdict::Late(1000));
    }
    assert_eq!(verdict(1000 - 100, 3000), Verdict::Stray);
}

#[test]
fn two_strays_in_sequence_are_a_restart_unless_the_stream_goes_on_between_them() {
    let mut seq = ExtendedSeq::default();
    seq.on_packet(5, 0);
    assert_eq!(seq.on_packet(30_000, 0), Verdict::Stray);
    assert_eq!(seq.on_packet(6, 0), Verdict::Newer(6));
    assert_eq!(seq.on_packet(30_001, 0), Verdict::Stray);
    assert_eq!(seq.on_packet(5, 0), Verdict::Late(5), "a straggler is not the stream going on");
    assert_eq!(seq.on_packet(30_002, 0), Verdict::Restarted(30_002));
    assert_eq!(seq.expected(), 1);
}

#[test]
fn a_stream_that_resumes_after_a_forged_restart_keeps_its_numbers() {
    let mut seq = ExtendedSeq::default();
    for number in 0..70_000u32 {
        seq.on_packet(number as u16, 0);
    }
    seq.on_packet(30_000, 0);
    assert_eq!(seq.on_packet(30_001, 0), Verdict::Restarted(65_536 + 30_001));
    assert_eq!(seq.on_packet((70_000u32 % 65_536) as u16, 0), Verdict::Restarted(70_000));
    assert_eq!(seq.on_packet((70_001u32 % 65_536) as u16, 0), Verdict::Newer(70_001));
}

#[test]
fn the_round_trip_is_the_one_of_rfc_3550s_figure_2() {
    // The example of section 6.4.1: A = 0xb710:8000, LSR = 0xb705:2000, DLSR = 0x0005:4000, delay 6.125 s.
    let trip = ntp::round_trip(0xb710_8000, 0xb705_2000, 0x0005_4000);
    assert_eq!(trip, Some(Span::millis(6_125)));
}

#[test]
fn negative_endless_and_unanswered_round_trips_are_discarded() {
    assert_eq!(ntp::round_trip(100, 101, 0), None);
    assert_eq!(ntp::round_trip((61 << 16) + 1, 1, 0), None);
    assert_eq!(ntp::round_trip((60 << 16) + 1, 1, 0), Some(Span::secs(60)));
    assert_eq!(ntp::round_trip(100, 0, 0), None);
}

#[test]
fn the_ntp_epoch_of_unix_time_zero_is_that_of_rfc_868() {
    assert_eq!(NtpEpoch::from_unix_secs(0).ntp(Time::ZERO), 2_208_988_800 << 32);
}

prop_compose! {
    fn any_header()(payload_type in 0u8..128, marker: bool, seq: u16, timestamp: u32, ssrc: u32,
                    stamp in proptest::option::of(any::<u32>()), payload_len in 0u16..40) -> RtpHeader {
        RtpHeader { payload_type, marker, seq, timestamp, ssrc, send_time: stamp.map(Stamp), payload_len }
    }
}

proptest! {
    #[test]
    fn every_packet_reads_back_as_it_was_written_and_has_the_size_announced(
        header in any_header(),
        elements in prop::collection::vec((2u8..=255, prop::collection::vec(any::<u8>(), 0..30)), 0..5),
    ) {
        let elements: Vec<(u8, &[u8])> = elements.iter().map(|(id, data)| (*id, &data[..])).collect();
        let payload = vec![0x5a; usize::from(header.payload_len)];
        let bytes = encoded(&header, &elements, &payload);
        prop_assert_eq!(bytes.len() as u64 + 28, header.packet_size(&elements).get());
        prop_assert_eq!((header.wire_size(&elements)) % 4, 0);
        let (back, read, rest) = RtpHeader::parse(&bytes).unwrap();
        prop_assert_eq!(back, header);
        prop_assert_eq!(read.collect::<Vec<_>>(), elements);
        prop_assert_eq!(rest, &payload[..]);
    }

    #[test]
    fn rtp_is_recognised_on_a_shared_port_and_under_srtp(
        header in any_header(), tail in prop::collection::vec(any::<u8>(), 0..40), padded: bool,
    ) {
        let header = RtpHeader { payload_len: tail.len() as u16, ..header };
        let mut bytes = encoded(&header, &[], &tail);
        // The padding length is encrypted.
        bytes[0] |= u8::from(padded) << 5;
        let shadowed = header.marker && (64..96).contains(&header.payload_type);
        prop_assert_eq!(RtpHeader::recognise(&bytes), (!shadowed).then_some((header, &tail[..])));
        for len in 0..12 {
            prop_assert_eq!(RtpHeader::recognise(&bytes[..len]), None);
        }
    }

    #[test]
    fn stun_zrtp_dtls_turn_quics_short_headers_and_rtcp_are_not_taken_for_rtp(
        mut bytes in prop::collection::vec(any::<u8>(), 2..200),
        first in prop_oneof![0u8..128, 192u8..], rtcp in 192u8..224,
    ) {
        bytes[0] = first;
        prop_assert_eq!(RtpHeader::recognise(&bytes), None);
        (bytes[0], bytes[1]) = (first & 0x3f | 0x80, rtcp);
        prop_assert_eq!(RtpHeader::recognise(&bytes), None);
    }

    #[test]
    fn after_forged_jumps_each_packet_of_the_stream_keeps_its_number(
        first: u16, packets in 100u32..200_000, jumps in prop::collection::vec((any::<u16>(), 1u16..200), 1..6),
    ) {
        let mut seq = ExtendedSeq::default();
        let mut next = i64::from(first);
        for _ in 0..packets {
            prop_assert_eq!(seq.on_packet(next as u16, 0), if next == i64::from(first) { Verdict::Started(next) } else { Verdict::Newer(next) });
            next += 1;
        }
        for (ahead, run) in jumps {
            // A near number could belong to the stream itself.
            let ahead = 400 + ahead % (u16::MAX - 800);
            for n in 0..run {
                seq.on_packet((next as u16).wrapping_add(ahead).wrapping_add(n), 0);
            }
            for _ in 0..3 {
                let verdict = seq.on_packet(next as u16, 0);
                let same = matches!(verdict, Verdict::Newer(n) | Verdict::Late(n) | Verdict::Restarted(n) if n == next);
                prop_assert!(same, "{verdict:?} at {next}");
                next += 1;
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), shape in 0u8..3) {
        if let (Some(first), true) = (bytes.first_mut(), shape > 0) {
            *first = *first & 0x3f | 0x80;
        }
        if bytes.len() > 16 && shape == 2 {
            bytes[0] = 0x90;
            bytes[12..14].copy_from_slice(&[0xbe, 0xde]);
            bytes[14] = 0;
        }
        if let Ok((header, elements, payload)) = RtpHeader::parse(&bytes) {
            prop_assert_eq!(usize::from(header.payload_len), payload.len());
            prop_assert!(elements.count() <= bytes.len());
        }
        let mut numbered = bytes.clone();
        match set_transport_number(&mut numbered, 5, 0xabcd) {
            Ok(()) => {
                prop_assert!((bytes.len()..=bytes.len() + 8).contains(&numbered.len()));
                let payload = |of: &[u8]| RtpHeader::recognise(of).map(|(_, payload)| payload.to_vec());
                prop_assert_eq!(payload(&numbered), payload(&bytes));
            }
            Err(_) => prop_assert_eq!(numbered, bytes),
        }
    }

    #[test]
    fn a_number_is_written_into_packets_of_any_stack(
        id in 2u8..=255, seq: u16, again: u16, sources in 0usize..16, application in 0u8..16,
        others in prop::collection::vec((2u8..=255, prop::collection::vec(any::<u8>(), 0..20)), 0..5),
        payload in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let others: Vec<(u8, &[u8])> =
            others.iter().filter(|(other, _)| *other != id).map(|(other, data)| (*other, &data[..])).collect();
        let header = RtpHeader { payload_len: payload.len() as u16, ..header() };
        let mut packet = encoded(&header, &others, &payload);
        let one_byte = packet.get(12..14) == Some(&[0xbe, 0xde]) && !others.is_empty();
        // Contributing sources stand before the extension, and the two-byte form's profile has four bits of its own.
        packet[0] |= sources as u8;
        packet.splice(12..12, vec![9; 4 * sources]);
        let profile_at = 12 + 4 * sources;
        if !others.is_empty() && !one_byte {
            packet[profile_at + 1] |= application;
        }
        let before = packet.clone();
        if one_byte && id > 14 {
            prop_assert!(set_transport_number(&mut packet, id, seq).is_err());
            prop_assert_eq!(packet, before);
            return Ok(());
        }
        prop_assert_eq!(set_transport_number(&mut packet, id, seq), Ok(()));
        let size = packet.len();
        prop_assert!(size > before.len() && size <= before.len() + 8);
        prop_assert_eq!(set_transport_number(&mut packet, id, again), Ok(()));
        prop_assert_eq!(packet.len(), size, "the second number takes the place of the first");
        let (parsed, elements, content) = RtpHeader::parse(&packet).expect("RTP");
        prop_assert_eq!((parsed, content), (header, &payload[..]));
        let newest = again.to_be_bytes();
        let expected: Vec<_> = others.iter().copied().chain([(id, &newest[..])]).collect();
        prop_assert_eq!(elements.collect::<Vec<_>>(), expected);
        if !others.is_empty() {
            prop_assert_eq!(&packet[profile_at..profile_at + 2], &before[profile_at..profile_at + 2]);
        }
    }

    #[test]
    fn a_number_needs_an_extension_that_can_carry_it(filler in prop::collection::vec(any::<u8>(), 4)) {
        // An unknown profile, a list that ID 15 ends, and ID 0 leave the packet as it is.
        for (profile, first, id) in [([0x12, 0x34], 0x11, 5), ([0xbe, 0xde], 0xf0, 5), ([0xbe, 0xde], 0x12, 0)] {
            let mut packet = encoded(&header(), &[], &[7, 8]);
            packet[0] |= 0x10;
            let extension = [&profile[..], &[0, 1, first], &filler[1..]].concat();
            packet.splice(12..12, extension);
            let before = packet.clone();
            prop_assert!(set_transport_number(&mut packet, id, 1).is_err());
            prop_assert_eq!(packet, before);
        }
    }

    #[test]
    fn numbers_unwrap_in_any_order_within_the_limits(
        start: u16, steps in prop::collection::vec((0i64..90, 1i64..100), 1..200),
    ) {
        let mut seq = ExtendedSeq::default();
        seq.on_packet(start, 0);
        let mut newest = i64::from(start);
        for (back, ahead) in steps {
            newest += ahead;
            prop_assert_eq!(seq.on_packet(newest as u16, 0), Verdict::Newer(newest));
            prop_assert_eq!(seq.on_packet((newest - back) as u16, 0), Verdict::Late(newest - back));
        }
        prop_assert_eq!(seq.expected(), (newest - i64::from(start)) as u64 + 1);
    }

    #[test]
    fn the_round_trip_time_is_exact_across_every_wrap(epoch: u64, sent in 0u64..100_000_000_000_000,
                                                   trip in 0u64..59_000_000_000, held in 0u64..3_600_000_000_000) {
        let epoch = NtpEpoch(epoch);
        let sent = Time::from_nanos(sent);
        let back = sent + Span::nanos(trip) + Span::nanos(held);
        let lsr = epoch.middle(sent);
        prop_assume!(lsr != 0);
        // Three values are truncated by up to one unit (15.3 µs) each. A shorter round trip may become negative, and is
        // then rejected.
        let measured = ntp::round_trip(epoch.middle(back), lsr, ntp::dlsr(Span::nanos(held)));
        let Some(measured) = measured else {
            prop_assert!(trip < 15_259);
            return Ok(());
        };
        let error = measured.as_nanos() as i64 - trip as i64;
        prop_assert!((-15_260..=2 * 15_260).contains(&error), "{error}");
    }

    #[test]
    fn ntp_times_give_the_local_time_back(epoch: u64, at in 0u64..1_000_000_000_000_000) {
        let (epoch, at) = (NtpEpoch(epoch), Time::from_nanos(at));
        prop_assert_eq!(epoch.time(epoch.ntp(at)), at);
    }
}
