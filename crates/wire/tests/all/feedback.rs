//! Feedback on single packets: NACKs and arrival times.
use proptest::prelude::*;
use rtcp_types::TwccPacketStatus;
use rtcp_types::prelude::*;
use steadycast_units::{Ecn, PeerTime, Rate, Span, Time};
use steadycast_wire::ParseError;
use steadycast_wire::rtcp::{
    Acknowledged, Arrived, Compound, CongestionFeedback, FeedbackKind, Nack, Packet, PacketArrival, PacketStatus,
    ParityRequest, ParityUse, ReceiverEstimate, ReferenceTime, StreamArrivals, Ticks, TransportFeedback,
};

fn bytes(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(&mut out);
    assert_eq!(out.len() % 4, 0);
    out
}

/// Encodes a packet into a compound and parses it.
fn read(packet: &Packet) -> Packet {
    let Ok(mut compound) = Compound::parse(&bytes(packet)) else { panic!("it can't read what it wrote") };
    assert_eq!(compound.packets.len(), 1);
    compound.packets.remove(0)
}

fn nack(missing: &[u16]) -> Nack {
    Nack { sender: 1, media: 2, missing: missing.to_vec() }
}

#[test]
fn a_nack_has_the_layout_of_rfc_4585() {
    // Bit 0 of the first mask is 65535, bit 1 is 0 and bit 15 is 14. 15 needs a separate entry.
    let asked = nack(&[65_534, 65_535, 0, 14, 15]);
    #[rustfmt::skip]
    let expected = [
        0x81, 205, 0, 4,            0, 0, 0, 1,     0, 0, 0, 2,
        0xff, 0xfe, 0x80, 0x03,     0, 15, 0, 0,
    ];
    assert_eq!(bytes(&asked.to_packet()), expected);
    assert_eq!(Nack::from_packet(&read(&asked.to_packet())), Ok(Some(asked)));
}

#[test]
fn a_receiver_s_clock_and_its_answer_have_the_layout_of_rfc_3611() {
    let asked = ReferenceTime { ssrc: 1, ntp: 0x0102_0304_0506_0708 };
    let written = [0x80, 207, 0, 4, 0, 0, 0, 1, 4, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(ReferenceTime::from_packet(&Compound::parse(&written).unwrap().packets[0]), Ok(Some(asked)));
    #[rustfmt::skip]
    let answered = [
        0x80, 207, 0, 5,            0, 0, 0, 9,     5, 0, 0, 3,
        0, 0, 0, 1,                 3, 4, 5, 6,     0, 0, 0x80, 0,
    ];
    assert_eq!(bytes(&asked.answer(9, 0x8000)), answered);
    assert_eq!(ReferenceTime::from_packet(&asked.answer(9, 0)), Ok(None));
    // Preceding blocks are skipped. A truncated block is rejected.
    let of =
        |body: &[u8]| ReferenceTime::from_packet(&Packet::Unknown { packet_type: 207, count: 0, body: body.to_vec() });
    assert_eq!(of(&[&[0, 0, 0, 1, 7, 0, 0, 1, 9, 9, 9, 9], &written[8..]].concat()), Ok(Some(asked)));
    assert!((5..16).all(|cut| of(&written[4..4 + cut]).is_err()));
    assert!(of(&[0, 0, 0, 1, 4, 0, 0, 1, 9, 9, 9, 9]).is_err(), "a clock of four bytes");
}

#[test]
fn a_parity_announcement_carries_the_play_out_delay_and_is_no_request() {
    let told = ParityUse { sender: 1, media: 2, playout: Span::micros(300_999) };
    #[rustfmt::skip]
    let expected = [
        0x81, 204, 0, 4,            0, 0, 0, 1,     b'P', b'R', b'T', b'Y',
        0, 0, 0, 2,                 0, 0, 1, 44,
    ];
    assert_eq!(bytes(&told.to_packet()), expected);
    let packet = read(&told.to_packet());
    assert_eq!(ParityUse::from_packet(&packet), Ok(Some(ParityUse { playout: Span::millis(300), ..told })));
    assert_eq!(ParityRequest::from_packet(&packet), Ok(None));
    assert_eq!(ParityUse::from_packet(&ParityRequest { sender: 1, media: 2, blocks: vec![] }.to_packet()), Ok(None));
    let of = |data: Vec<u8>| Packet::App { ssrc: 1, subtype: 1, name: *b"PRTY", data };
    assert!(matches!(ParityUse::from_packet(&of(vec![0; 4])), Err(ParseError::Short { .. })));
    let longest = ParityUse::from_packet(&of(vec![0xff; 12])).map(|told| told.map(|told| told.playout));
    assert_eq!(longest, Ok(Some(Span::millis(u32::MAX.into()))), "what follows is passed over");
}

#[test]
fn a_nack_has_64_entries_at_most_and_returns_how_many_numbers_fit() {
    let scattered: Vec<u16> = (0..100).map(|n| 65_000u16.wrapping_add(n * 20)).collect();
    assert_eq!(Nack::fitting(&scattered), 64);
    let packet = nack(&scattered).to_packet();
    assert_eq!(packet.encoded_len(), 12 + 256);
    assert_eq!(Nack::from_packet(&packet), Ok(Some(nack(&scattered[..64]))));
    let burst: Vec<u16> = (0..2_000).collect();
    assert_eq!(Nack::fitting(&burst), 64 * 17);
}

#[test]
fn nacks_of_nothing_and_of_too_much_are_refused() {
    let of = |fci: Vec<u8>| Packet::Feedback { kind: FeedbackKind::Transport, fmt: 1, sender: 1, media: 2, fci };
    assert!(matches!(Nack::from_packet(&of(vec![])), Err(ParseError::Short { .. })));
    assert!(matches!(Nack::from_packet(&of(vec![0; 6])), Err(ParseError::Short { .. })));
    assert!(matches!(Nack::from_packet(&of(vec![0; 2_052])), Err(ParseError::TooMany { limit: 512, .. })));
    let most = Nack::from_packet(&of(vec![0xff; 2_048])).unwrap().unwrap();
    assert_eq!(most.missing.len(), 512 * 17);
    let other = Packet::Feedback { kind: FeedbackKind::Payload, fmt: 1, sender: 1, media: 2, fci: vec![] };
    assert_eq!(Nack::from_packet(&other), Ok(None));
}

#[test]
fn an_estimate_of_a_receiver_is_mantissa_times_a_power_of_two() {
    let of = |word: u32, ssrcs: &[u8]| {
        let fci = [&b"REMB"[..], &word.to_be_bytes(), ssrcs].concat();
        Packet::Feedback { kind: FeedbackKind::Payload, fmt: 15, sender: 1, media: 0, fci }
    };
    // Two sources, exponent 3, mantissa 250,000.
    let packet = of(2 << 24 | 3 << 18 | 250_000, &[0, 0, 0, 7, 0, 0, 0, 8]);
    let estimate = ReceiverEstimate { sender: 1, rate: Rate::mbps(2), ssrcs: vec![7, 8] };
    assert_eq!(ReceiverEstimate::from_packet(&packet), Ok(Some(estimate)));
    let endless = ReceiverEstimate::from_packet(&of(63 << 18 | 0x3_ffff, &[])).unwrap().unwrap();
    assert_eq!(endless.rate, Rate::MAX);
    assert!(ReceiverEstimate::from_packet(&of(3 << 24, &[0; 8])).is_err());
    let other = Packet::Feedback { kind: FeedbackKind::Payload, fmt: 15, sender: 1, media: 0, fci: b"REMC".to_vec() };
    assert_eq!(ReceiverEstimate::from_packet(&other), Ok(None));
}

fn congestion(arrivals: Vec<Option<PacketArrival>>) -> CongestionFeedback {
    let stream = StreamArrivals { ssrc: 0x0a0b_0c0d, begin_seq: 0xfffe, arrivals };
    CongestionFeedback { sender: 1, streams: vec![stream], report_time: 0xb705_2000 }
}

#[test]
fn congestion_feedback_has_the_layout_of_rfc_8888() {
    let feedback = congestion(vec![
        Some(PacketArrival::before(Span::millis(500), Ecn::Ce)),
        None,
        Some(PacketArrival::unknown_time(Ecn::NotEct)),
    ]);
    #[rustfmt::skip]
    let expected = [
        0x8b, 205, 0, 6,            0, 0, 0, 1,
        0x0a, 0x0b, 0x0c, 0x0d,     0xff, 0xfe, 0, 3, // three blocks, by erratum 8166
        0xe2, 0x00, 0, 0,           0x9f, 0xff, 0, 0, // R, CE, 512/1024 s; not received; R, no time; filling
        0xb7, 0x05, 0x20, 0x00,
    ];
    assert_eq!(bytes(&feedback.to_packet()), expected);
    assert_eq!(CongestionFeedback::from_packet(&read(&feedback.to_packet())), Ok(Some(feedback)));
}

#[test]
fn arrival_offsets_are_truncated_and_end_at_8189_of_1024() {
    let before = |nanos: u64| PacketArrival::before(Span::nanos(nanos), Ecn::Ect1);
    let block = |arrival| bytes(&congestion(vec![Some(arrival)]).to_packet())[16..18].to_vec();
    let unit = 1_000_000_000 / 1024;
    assert_eq!(block(before(unit)), [0xa0, 0]);
    assert_eq!(block(before(unit + 1)), [0xa0, 1]);
    let longest = 8_190 * 1_000_000_000 / 1024;
    assert_eq!(block(before(longest - 1)), [0xbf, 0xfd]);
    assert_eq!(block(before(longest)), [0xbf, 0xfe]);
    assert_eq!(block(before(u64::MAX)), [0xbf, 0xfe]);
    assert_eq!(block(PacketArrival::unknown_time(Ecn::Ect0)), [0xdf, 0xff]);
}

#[test]
fn blocks_of_packets_that_did_not_arrive_say_nothing_else() {
    let Packet::Feedback { kind, fmt, sender, media, mut fci } = congestion(vec![None, None]).to_packet() else {
        panic!()
    };
    fci[4..8].copy_from_slice(&[0x7f, 0xff, 0x12, 0x34]);
    let got = CongestionFeedback::from_packet(&Packet::Feedback { kind, fmt, sender, media, fci });
    assert_eq!(got, Ok(Some(congestion(vec![None, None]))));
}

#[test]
fn arrivals_stand_on_the_receivers_clock_across_its_wrap() {
    let mut feedback = congestion(vec![Some(PacketArrival::before(Span::millis(500), Ecn::Ect0)), None]);
    feedback.report_time = 0x0000_4000; // a quarter of a second after the wrap
    let wrap = 65_536_000_000_000i64;
    let near = Some(PeerTime::from_nanos(3 * wrap - 1_000_000_000));
    assert_eq!(feedback.reported_at(near), PeerTime::from_nanos(3 * wrap + 250_000_000));
    let got: Vec<_> = feedback.acknowledged(near).collect();
    let arrival = Some(Arrived { at: Some(PeerTime::from_nanos(3 * wrap - 250_000_000)), ecn: Some(Ecn::Ect0) });
    let of = |seq, arrival| (0x0a0b_0c0d, Acknowledged { seq, arrival });
    assert_eq!(got, [of(0xfffe, arrival), of(0xffff, None)]);
    assert_eq!(
        feedback.acknowledged(None).next().unwrap().1.arrival.unwrap().at,
        Some(PeerTime::from_nanos(-250_000_000))
    );
}

#[test]
fn more_than_a_quarter_of_the_sequence_space_is_refused() {
    let fci = [&[0, 1, 0x40, 0x01][..], &[0; 32_772], &[0; 4]].concat();
    let packet = Packet::Feedback { kind: FeedbackKind::Transport, fmt: 11, sender: 1, media: 2, fci };
    assert!(matches!(CongestionFeedback::from_packet(&packet), Err(ParseError::TooMany { limit: 16_384, .. })));
}

#[test]
fn packet_feedback_is_recognised_by_type_and_format_only() {
    let of = |kind, fmt| Packet::Feedback { kind, fmt, sender: 1, media: 2, fci: vec![0xff; 3] };
    let (kind, other) = (FeedbackKind::Transport, FeedbackKind::Payload);
    let all = [of(kind, 11), of(kind, 15), of(kind, 1), of(other, 11), of(other, 15), Packet::Sdes { chunks: vec![] }];
    assert_eq!(all.each_ref().map(CongestionFeedback::is), [true, false, false, false, false, false]);
    assert_eq!(all.each_ref().map(TransportFeedback::is), [false, true, false, false, false, false]);
    assert_eq!(all.each_ref().map(Packet::is_packet_feedback), [true, true, false, false, false, false]);
    assert!(CongestionFeedback::from_packet(&all[0]).is_err() && TransportFeedback::from_packet(&all[1]).is_err());
}

fn transport(begin_seq: u16, count: u8, packets: Vec<PacketStatus>) -> TransportFeedback {
    TransportFeedback { sender: 1, media: 2, count, begin_seq, packets }
}

fn at(ticks: u32) -> PacketStatus {
    PacketStatus::At(Ticks(ticks))
}

#[test]
fn transport_wide_feedback_has_the_layout_of_the_draft() {
    use PacketStatus::Missing;
    // Reference time 1 (64 ms, 256 ticks); deltas 4, 255, −1 and 256, the last two in two bytes.
    let feedback = transport(5, 9, vec![at(260), Missing, at(515), at(514), at(770)]);
    #[rustfmt::skip]
    let expected = [
        0x8f, 205, 0, 6,            0, 0, 0, 1,     0, 0, 0, 2,
        0, 5, 0, 5,                 0, 0, 1, 9,
        0b1101_0001, 0b1010_0000,   4, 255, // two bits each: 01 00 01 10 10, and two more
        0xff, 0xff, 0x01, 0x00,
    ];
    let packets = feedback.to_packets(1_200);
    assert_eq!(packets.iter().map(bytes).collect::<Vec<_>>(), [expected]);
    assert_eq!(TransportFeedback::from_packet(&read(&packets[0])), Ok(Some(feedback)));
}

#[test]
fn transport_wide_feedback_is_filled_up_by_padding_as_libwebrtc_does() {
    // A run of 20 arrivals 1 ms apart: one chunk, 20 small deltas, two bytes of padding.
    let feedback = transport(0, 0, (0..20).map(|n| at(n * 4)).collect());
    let packet = feedback.to_packets(1_200).remove(0);
    let written = bytes(&packet);
    assert_eq!((written.len(), written[0], written[3]), (44, 0xaf, 10));
    assert_eq!((&written[20..24], &written[42..]), (&[0x20, 20, 0, 4][..], &[0, 2][..]));
    // The padding is also valid in the middle of a compound.
    let bye = [0x80, 203, 0, 0];
    let compound = Compound::parse(&[&written[..], &bye].concat()).unwrap();
    assert_eq!(compound.packets[0], packet);
    assert_eq!(TransportFeedback::from_packet(&compound.packets[0]), Ok(Some(feedback)));
}

#[test]
fn runs_and_vectors_are_chosen_by_their_coverage() {
    let missing = |n| vec![PacketStatus::Missing; n];
    let chunks = |packets: Vec<PacketStatus>| match transport(0, 0, packets).to_packets(3_000).remove(0) {
        Packet::Feedback { fci, .. } => fci[8..].to_vec(),
        _ => unreachable!(),
    };
    assert_eq!(chunks(missing(9_000)), [0x1f, 0xff, 0x03, 0x29]);
    assert_eq!(chunks(missing(3)), [0x00, 0x03]);
    // 1 and 13 × 0: a status vector of one-bit symbols.
    assert_eq!(chunks([vec![at(0)], missing(13)].concat()), [0xa0, 0x00, 0]);
    assert_eq!(chunks([vec![at(0)], missing(30)].concat()), [0xa0, 0x00, 0x00, 0x11, 0]);
}

#[test]
fn a_report_without_times_has_no_deltas() {
    use PacketStatus::{Missing, Untimed};
    let feedback = transport(65_535, 0, vec![Untimed, Untimed, Missing, Untimed]);
    let packet = feedback.to_packets(1_200).remove(0);
    let Packet::Feedback { fci, .. } = &packet else { panic!() };
    assert_eq!(fci[8..], [0b1011_0100, 0]);
    assert_eq!(TransportFeedback::from_packet(&read(&packet)), Ok(Some(feedback.clone())));
    let seqs: Vec<_> = feedback.acknowledged(None).map(|it| (it.seq, it.arrival)).collect();
    let untimed = Some(Arrived { at: None, ecn: None });
    assert_eq!(seqs, [(65_535, untimed), (0, untimed), (1, None), (2, untimed)]);
    let mixed = transport(0, 0, vec![Untimed, at(77), Missing]);
    assert_eq!(TransportFeedback::from_packet(&read(&mixed.to_packets(1_200)[0])), Ok(Some(mixed)));
}

#[test]
fn a_delta_that_does_not_fit_begins_another_report() {
    let packets = vec![at(0), at(32_767), at(65_535), at(32_767), at(0)];
    let reports = transport(10, 255, packets).to_packets(1_200);
    let got: Vec<_> = reports.iter().map(|it| TransportFeedback::from_packet(&read(it)).unwrap().unwrap()).collect();
    // Deltas of 32,767 and −32,768 fit; 32,768 does not.
    let expected = [transport(10, 255, vec![at(0), at(32_767)]), transport(12, 0, vec![at(65_535), at(32_767), at(0)])];
    assert_eq!(got, expected);
}

#[test]
fn ticks_are_counted_from_the_clock_and_the_reference_time_wraps() {
    let day = Span::secs(86_400);
    // The reference time wraps after 2²⁴ · 64 ms, which are 12.43 days.
    let mut time = Time::ZERO;
    for _ in 0..13 {
        time += day;
    }
    let ticks = Ticks::of(time + Span::nanos(249_999));
    assert_eq!(ticks.0, ((13u64 * 86_400 * 4_000) % (1 << 32)) as u32);
    let near = PeerTime::from_nanos(12 * day.as_nanos() as i64);
    assert_eq!(ticks.peer(Some(near)), PeerTime::from_nanos(13 * day.as_nanos() as i64));
    // Without an earlier time, the reference time is signed.
    assert_eq!(Ticks(u32::MAX).peer(None), PeerTime::from_nanos(-250_000));
}

#[test]
fn a_few_bytes_cannot_ask_for_much_memory() {
    let of = |fci: Vec<u8>| Packet::Feedback { kind: FeedbackKind::Transport, fmt: 15, sender: 1, media: 2, fci };
    let run = |count: u16| [&[0, 0][..], &count.to_be_bytes(), &[0, 0, 0, 0], &[0x1f, 0xff].repeat(9)].concat();
    let refused = TransportFeedback::from_packet(&of(run(16_385)));
    assert!(matches!(refused, Err(ParseError::TooMany { limit: 16_384, .. })));
    assert_eq!(TransportFeedback::from_packet(&of(run(16_384))).unwrap().unwrap().packets.len(), 16_384);
    // Missing chunks, and missing deltas.
    assert!(TransportFeedback::from_packet(&of(vec![0, 0, 0, 9, 0, 0, 0, 0])).is_err());
    assert!(TransportFeedback::from_packet(&of(vec![0, 0, 0, 9, 0, 0, 0, 0, 0x20, 9, 1, 0])).is_err());
    // Runs of length zero must end with the input.
    assert!(TransportFeedback::from_packet(&of([&[0, 0, 0, 9, 0, 0, 0, 0][..], &[0; 20]].concat())).is_err());
}

fn ecn() -> impl Strategy<Value = Ecn> {
    (0u8..4).prop_map(Ecn::from_bits)
}

fn arrival() -> impl Strategy<Value = Option<PacketArrival>> {
    let timed = (ecn(), 0u64..9000).prop_map(|(ecn, ms)| PacketArrival::before(Span::millis(ms), ecn));
    proptest::option::of(prop_oneof![4 => timed, 1 => ecn().prop_map(PacketArrival::unknown_time)])
}

fn reports(longest: usize) -> impl Strategy<Value = CongestionFeedback> {
    let stream = (any::<u32>(), any::<u16>(), prop::collection::vec(arrival(), 0..longest))
        .prop_map(|(ssrc, begin_seq, arrivals)| StreamArrivals { ssrc, begin_seq, arrivals });
    (any::<u32>(), any::<u32>(), prop::collection::vec(stream, 0..5))
        .prop_map(|(sender, report_time, streams)| CongestionFeedback { sender, streams, report_time })
}

/// Arrivals close to each other, with occasional jumps.
fn statuses(longest: usize) -> impl Strategy<Value = Vec<PacketStatus>> {
    let step = prop_oneof![8 => -300i32..600, 1 => any::<i32>(), 1 => Just(32_768), 1 => Just(-32_769)];
    let one =
        prop_oneof![3 => Just(None), 1 => Just(Some(PacketStatus::Missing)), 1 => Just(Some(PacketStatus::Untimed))];
    let runs = prop::collection::vec((one, 1usize..40, prop::collection::vec(step, 40)), 0..longest);
    (any::<u32>(), runs).prop_map(|(mut ticks, runs)| {
        let run = |(status, n, steps): (Option<PacketStatus>, usize, Vec<i32>)| {
            steps
                .into_iter()
                .take(n)
                .map(|step| {
                    ticks = ticks.wrapping_add(step as u32);
                    status.unwrap_or(at(ticks))
                })
                .collect::<Vec<_>>()
        };
        runs.into_iter().flat_map(run).collect()
    })
}

proptest! {
    #[test]
    fn nacks_round_trip(first: u16, steps in prop::collection::vec(1u16..40, 0..400)) {
        let missing: Vec<u16> = std::iter::once(first)
            .chain(steps.iter().scan(first, |at, step| { *at = at.wrapping_add(*step); Some(*at) }))
            .collect();
        let packet = nack(&missing).to_packet();
        let back = Nack::from_packet(&read(&packet)).unwrap().unwrap();
        prop_assert_eq!(&back.missing, &missing[..Nack::fitting(&missing)]);
        prop_assert!(packet.encoded_len() <= 12 + 64 * 4);
        prop_assert!(back.missing.len() == missing.len() || packet.encoded_len() == 12 + 64 * 4);
    }

    #[test]
    fn congestion_feedback_reads_back_as_it_was_written(feedback in reports(50)) {
        let back = CongestionFeedback::from_packet(&read(&feedback.to_packet()));
        prop_assert_eq!(back, Ok(Some(feedback)));
    }

    #[test]
    fn split_congestion_feedback_has_the_same_content_in_parts_that_fit(feedback in reports(300), max in 0usize..400) {
        let parts = feedback.split(max);
        prop_assert!(parts.iter().all(|part| part.to_packet().encoded_len() <= max.max(24)));
        let whole: Vec<_> = feedback.acknowledged(None).collect();
        let together: Vec<_> = parts.iter().flat_map(|part| part.acknowledged(None)).collect();
        prop_assert_eq!(together, whole);
        let sources = |all: &[CongestionFeedback]| {
            let mut ssrcs: Vec<_> = all.iter().flat_map(|it| &it.streams).map(|it| it.ssrc).collect();
            ssrcs.dedup();
            ssrcs
        };
        prop_assert_eq!(sources(&parts), sources(&[feedback]));
    }

    #[test]
    fn arrival_times_come_back_to_the_units_of_rfc_8888(
        report_ms in 0u64..100_000_000, ago_us in 0u64..7_998_000, earlier_ms in 0u64..3_600_000,
    ) {
        let reported = Time::ZERO + Span::millis(report_ms);
        let mut feedback = congestion(vec![Some(PacketArrival::before(Span::micros(ago_us), Ecn::Ce))]);
        feedback.report_time = ((u128::from(reported.as_nanos()) << 16) / 1_000_000_000) as u32;
        let near = PeerTime::from_nanos(reported.before(Span::millis(earlier_ms)).as_nanos() as i64);
        let (_, acknowledged) = feedback.acknowledged(Some(near)).next().unwrap();
        let told = acknowledged.arrival.unwrap().at.unwrap();
        let late = told.since(PeerTime::from_nanos(reported.as_nanos() as i64 - ago_us as i64 * 1_000)).as_nanos();
        // The offset is rounded down by less than 1/1024 s, the report timestamp by less than 1/65536 s plus a
        // nanosecond.
        prop_assert!((-15_260..976_563).contains(&late), "{late} ns");
    }

    #[test]
    fn transport_wide_feedback_keeps_every_tick(
        packets in statuses(12), begin_seq: u16, count: u8, max in 0usize..1_500,
    ) {
        let feedback = transport(begin_seq, count, packets);
        let (mut seq, mut together) = (begin_seq, Vec::new());
        for (n, packet) in feedback.to_packets(max).iter().enumerate() {
            // 24 bytes hold the status and delta of one packet.
            prop_assert!(packet.encoded_len() <= max.max(24).next_multiple_of(4));
            let part = TransportFeedback::from_packet(&read(packet)).unwrap().unwrap();
            prop_assert_eq!((part.begin_seq, part.count), (seq, count.wrapping_add(n as u8)));
            seq = seq.wrapping_add(part.packets.len() as u16);
            together.extend(part.packets);
        }
        prop_assert_eq!(together, feedback.packets);
    }

    #[test]
    fn an_independent_reader_finds_the_same_numbers_in_our_nack(
        first: u16, steps in prop::collection::vec(1u16..40, 0..200),
    ) {
        let missing: Vec<u16> = std::iter::once(first)
            .chain(steps.iter().scan(first, |at, step| { *at = at.wrapping_add(*step); Some(*at) }))
            .collect();
        let ours = bytes(&nack(&missing[..Nack::fitting(&missing)]).to_packet());
        let theirs = rtcp_types::TransportFeedback::parse(&ours).expect("it reads it");
        let theirs = theirs.parse_fci::<rtcp_types::Nack<'_>>().expect("it is a NACK");
        prop_assert_eq!(theirs.entries().collect::<Vec<_>>(), &missing[..Nack::fitting(&missing)]);
    }

    #[test]
    fn an_independent_reader_finds_the_same_ticks_in_our_reports(packets in statuses(8), begin_seq: u16) {
        // The independent parser does not support packets without a time.
        let timed = |status| if status == PacketStatus::Untimed { PacketStatus::Missing } else { status };
        let feedback = transport(begin_seq, 0, packets.into_iter().map(timed).collect());
        let (mut seq, mut together) = (begin_seq, Vec::new());
        for packet in feedback.to_packets(1_200) {
            let ours = bytes(&packet);
            let theirs = rtcp_types::TransportFeedback::parse(&ours).expect("it reads it");
            let theirs = theirs.parse_fci::<rtcp_types::Twcc<'_>>().expect("it is one");
            let mut ticks = theirs.reference_time() << 8;
            for status in theirs.packets() {
                let (number, status) = status.expect("it is whole");
                prop_assert_eq!(number, seq);
                seq = seq.wrapping_add(1);
                together.push(match status {
                    TwccPacketStatus::NotReceived => PacketStatus::Missing,
                    TwccPacketStatus::Received { delta } => {
                        ticks = ticks.wrapping_add(i32::from(delta) as u32);
                        at(ticks)
                    }
                });
            }
        }
        prop_assert_eq!(together, feedback.packets);
    }

    #[test]
    fn reports_of_an_independent_writer_are_read(
        begin_seq: u16, reference in 0u32..1 << 24, count: u8,
        deltas in prop::collection::vec(proptest::option::weighted(0.7, prop_oneof![3 => 0i16..256, 1 => any::<i16>()]), 1..300),
    ) {
        let theirs = |delta: &Option<i16>| match delta {
            Some(delta) => TwccPacketStatus::Received { delta: *delta },
            None => TwccPacketStatus::NotReceived,
        };
        let list: Vec<_> = deltas.iter().map(theirs).collect();
        let twcc = rtcp_types::Twcc::builder(begin_seq, reference, count, &list, None);
        let mut written = vec![0; 4_000];
        let len = rtcp_types::TransportFeedback::builder(&twcc).sender_ssrc(1).media_ssrc(2).write_into(&mut written);
        let compound = Compound::parse(&written[..len.expect("there is room")]).expect("it can be read");
        let mut ticks = reference << 8;
        let expected = deltas.iter().map(|delta| match delta {
            Some(delta) => {
                ticks = ticks.wrapping_add(i32::from(*delta) as u32);
                at(ticks)
            }
            None => PacketStatus::Missing,
        });
        let expected = transport(begin_seq, count, expected.collect());
        prop_assert_eq!(TransportFeedback::from_packet(&compound.packets[0]), Ok(Some(expected)));
    }

    #[test]
    fn arbitrary_feedback_never_panics(fmt in 0u8..32, payload: bool, fci in prop::collection::vec(any::<u8>(), 0..200)) {
        let kind = if payload { FeedbackKind::Payload } else { FeedbackKind::Transport };
        let packet = Packet::Feedback { kind, fmt, sender: 1, media: 2, fci };
        let _ = (Nack::from_packet(&packet), ReceiverEstimate::from_packet(&packet));
        if let Ok(Some(feedback)) = CongestionFeedback::from_packet(&packet) {
            let _ = feedback.acknowledged(Some(PeerTime::from_nanos(i64::MAX))).count();
        }
        if let Ok(Some(feedback)) = TransportFeedback::from_packet(&packet) {
            let _ = feedback.acknowledged(Some(PeerTime::from_nanos(i64::MIN))).count();
        }
    }
}
