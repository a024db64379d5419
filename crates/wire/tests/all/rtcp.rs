//! RTCP compounds.
use proptest::prelude::*;
use rtcp_types::{Packet as Theirs, prelude::*};
use steadycast_wire::ParseError;
use steadycast_wire::rtcp::{
    Compound, CongestionFeedback, FeedbackKind, GroupSize, KeyFrameRequest, Nack, Packet, ReceiverEstimate,
    ReportBlock, TransportFeedback,
};

fn encoded(compound: &Compound) -> Vec<u8> {
    let mut out = Vec::new();
    compound.encode(&mut out);
    assert_eq!(out.len(), compound.encoded_len());
    out
}

fn compound(packets: Vec<Packet>) -> Compound {
    Compound { packets }
}

#[rustfmt::skip]
const HAND_CHECKED: [u8; 100] = [
    // SR, one block, 12 more words (RFC 3550, section 6.4.1)
    0x81, 200, 0, 12,           0x11, 0x22, 0x33, 0x44,
    0xe5, 0x00, 0x00, 0x01,     0x80, 0x00, 0x00, 0x00, // NTP
    0x00, 0x01, 0x5f, 0x90,     0, 0, 0x03, 0xe8,       // RTP time 90000, 1000 packets
    0, 0x0f, 0x42, 0x40,                                // 10⁶ bytes
    0x55, 0x66, 0x77, 0x88,     64, 0xff, 0xff, 0xfd,   // a quarter lost, −3 in all
    0, 0x01, 0x00, 0x07,        0, 0, 0, 90,            // cycle 1, number 7; jitter 90
    0xb7, 0x05, 0x20, 0x00,     0, 0x05, 0x40, 0x00,    // LSR, DLSR 5.25 s
    // SDES, one chunk: CNAME "a@b.org" (section 6.5)
    0x81, 202, 0, 4,            0x11, 0x22, 0x33, 0x44,
    1, 7, b'a', b'@',           b'b', b'.', b'o', b'r',
    b'g', 0, 0, 0,
    // APP subtype 1 "ASMP" (section 6.7)
    0x81, 204, 0, 3,            0x11, 0x22, 0x33, 0x44,
    b'A', b'S', b'M', b'P',     1, 2, 3, 4,
    // BYE with a reason (section 6.6)
    0x81, 203, 0, 2,            0x11, 0x22, 0x33, 0x44,
    3, b'e', b'n', b'd',
];

fn hand_checked() -> Compound {
    compound(vec![
        Packet::SenderReport {
            ssrc: 0x1122_3344,
            ntp: 0xe500_0001_8000_0000,
            rtp: 90_000,
            packets: 1000,
            octets: 1_000_000,
            blocks: vec![ReportBlock {
                ssrc: 0x5566_7788,
                fraction: 64,
                cumulative_lost: -3,
                highest_seq: 0x0001_0007,
                jitter: 90,
                lsr: 0xb705_2000,
                dlsr: 0x0005_4000,
            }],
        },
        Packet::Sdes { chunks: vec![(0x1122_3344, "a@b.org".into())] },
        Packet::App { ssrc: 0x1122_3344, subtype: 1, name: *b"ASMP", data: vec![1, 2, 3, 4] },
        Packet::Bye { ssrcs: vec![0x1122_3344], reason: "end".into() },
    ])
}

#[test]
fn a_compound_has_the_layout_of_rfc_3550() {
    assert_eq!(encoded(&hand_checked()), HAND_CHECKED);
    assert_eq!(Compound::parse(&HAND_CHECKED), Ok(hand_checked()));
}

#[test]
fn a_lone_report_is_accepted() {
    let lone = compound(vec![Packet::ReceiverReport { ssrc: 1, blocks: vec![ReportBlock::default()] }]);
    assert_eq!(Compound::parse(&encoded(&lone)), Ok(lone));
}

#[test]
fn control_characters_are_removed_from_names_and_reasons() {
    let told = "\u{1b}[31mhall\u{9b}2J\r\n\u{0}";
    let packets = compound(vec![
        Packet::Sdes { chunks: vec![(1, told.into())] },
        Packet::Bye { ssrcs: vec![1], reason: told.into() },
    ]);
    let read = Compound::parse(&encoded(&packets)).unwrap().packets;
    assert!(
        matches!(&read[..], [.., Packet::Sdes { chunks }, Packet::Bye { reason, .. }]
        if chunks[0].1 == "[31mhall2J" && reason == "[31mhall2J"),
        "{read:?}"
    );
}

#[test]
fn the_second_chunk_keeps_the_zeros_its_ssrc_begins_with() {
    // The item of "ab" ends at a word boundary, so that a whole word of zeros terminates the chunk. The next SSRC,
    // 0x00000007, also starts with zeros.
    for cname in ["", "a", "ab", "abc"] {
        let sdes = compound(vec![Packet::Sdes { chunks: vec![(1, cname.into()), (7, "z".into())] }]);
        assert_eq!(Compound::parse(&encoded(&sdes)), Ok(sdes), "{cname}");
    }
}

#[test]
fn more_than_31_of_anything_goes_into_further_packets() {
    let blocks: Vec<_> = (0..70).map(|ssrc| ReportBlock { ssrc, ..ReportBlock::default() }).collect();
    let all = compound(vec![
        Packet::SenderReport { ssrc: 1, ntp: 2, rtp: 3, packets: 4, octets: 5, blocks: blocks.clone() },
        Packet::ReceiverReport { ssrc: 1, blocks: blocks.clone() },
        Packet::Sdes { chunks: (0..40).map(|ssrc| (ssrc, "x".into())).collect() },
        Packet::Bye { ssrcs: (0..40).collect(), reason: "storm".into() },
    ]);
    let back = Compound::parse(&encoded(&all)).unwrap();
    let reported: Vec<_> = back
        .packets
        .iter()
        .flat_map(|packet| match packet {
            Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } => blocks.clone(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(reported, [&blocks[..], &blocks[..]].concat());
    let reasons: Vec<_> = back
        .packets
        .iter()
        .filter_map(|packet| match packet {
            Packet::Bye { reason, .. } => Some(&reason[..]),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["", "storm"]);
    assert_eq!(back.packets.len(), 3 + 3 + 2 + 2);
}

#[test]
fn unknown_types_and_profile_extensions_are_passed_over_and_the_rest_is_read() {
    let mut bytes = vec![0x80, 201, 0, 2, 0, 0, 0, 1, 9, 9, 9, 9]; // an RR with a profile's extension
    bytes.extend([0x85, 207, 0, 1, 1, 2, 3, 4]); // XR
    bytes.extend([0x80, 203, 0, 0]); // A BYE without an SSRC.
    let read = Compound::parse(&bytes).unwrap();
    assert_eq!(read.packets[0], Packet::ReceiverReport { ssrc: 1, blocks: vec![] });
    assert_eq!(read.packets[2], Packet::Bye { ssrcs: vec![], reason: String::new() });
    assert!(matches!(read.packets[1], Packet::Unknown { .. }));
    assert_eq!(read.packets.len(), 3);
}

#[test]
fn lies_about_lengths_and_padding_are_refused() {
    let short = |bytes: &[u8]| matches!(Compound::parse(bytes), Err(ParseError::Short { .. }));
    assert!(short(&[]));
    assert!(short(&[0x80, 201, 0]));
    assert!(short(&[0x80, 201, 0, 2, 0, 0, 0, 1])); // longer than the datagram
    assert!(short(&[0x9f, 201, 0, 1, 0, 0, 0, 1])); // 31 blocks in no bytes
    assert!(short(&[0x81, 202, 0, 2, 0, 0, 0, 1, 1, 200, 0, 0])); // an item past the end
    assert!(short(&[0x81, 203, 0, 2, 0, 0, 0, 1, 200, 0, 0, 0])); // a reason past the end
    assert!(matches!(Compound::parse(&[0x40, 201, 0, 1, 0, 0, 0, 1]), Err(ParseError::Version { got: 1 })));
    let app = |last| [0xa0, 204, 0, 3, 0, 0, 0, 1, b'N', b'A', b'M', b'E', 0, 0, 0, last];
    assert!(matches!(Compound::parse(&app(16)), Err(ParseError::Padding { count: 16, len: 12 })));
    assert!(matches!(Compound::parse(&app(3)), Err(ParseError::Padding { .. })));
    assert!(matches!(Compound::parse(&[app(4), app(4)].concat()), Err(ParseError::Padding { .. })));
    assert!(matches!(Compound::parse(&app(4)).unwrap().packets[..], [Packet::App { ref data, .. }] if data.is_empty()));
}

#[test]
fn a_datagram_of_empty_packets_is_refused_before_it_costs_memory() {
    let many = [0x80, 203, 0, 0].repeat(16_000);
    assert_eq!(Compound::parse(&many), Err(ParseError::TooMany { what: "packets in a compound", limit: 256 }));
}

#[test]
fn losses_beyond_24_bits_saturate() {
    for (lost, written) in [(i32::MAX, 0x7f_ffff), (i32::MIN, -0x80_0000), (-1, -1), (0x7f_ffff, 0x7f_ffff)] {
        let block = ReportBlock { cumulative_lost: lost, ..ReportBlock::default() };
        let report = compound(vec![Packet::ReceiverReport { ssrc: 1, blocks: vec![block] }]);
        let back = Compound::parse(&encoded(&report)).unwrap();
        assert!(
            matches!(&back.packets[..], [Packet::ReceiverReport { blocks, .. }] if blocks[0].cumulative_lost == written)
        );
    }
}

#[test]
fn key_frame_requests_have_the_layout_of_rfc_4585_and_5104() {
    let pli = KeyFrameRequest::PictureLoss { sender: 1, media: 2 };
    assert_eq!(encoded(&compound(vec![pli.to_packet()])), [0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    let fir = KeyFrameRequest::FullIntra { sender: 1, media: 2, number: 9 };
    assert_eq!(
        encoded(&compound(vec![fir.to_packet()])),
        [0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 9, 0, 0, 0]
    );
    for request in [pli, fir] {
        assert_eq!(KeyFrameRequest::all(&request.to_packet()).collect::<Vec<_>>(), [request]);
    }
}

fn block() -> impl Strategy<Value = ReportBlock> {
    (any::<[u32; 5]>(), any::<u8>(), -0x80_0000..0x7f_ffff).prop_map(
        |([ssrc, highest_seq, jitter, lsr, dlsr], fraction, cumulative_lost)| ReportBlock {
            ssrc,
            fraction,
            cumulative_lost,
            highest_seq,
            jitter,
            lsr,
            dlsr,
        },
    )
}

fn words(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<[u8; 4]>(), 0..max).prop_map(|words| words.concat())
}

fn packet() -> impl Strategy<Value = Packet> {
    let blocks = || prop::collection::vec(block(), 0..=31);
    prop_oneof![
        (any::<[u32; 4]>(), any::<u64>(), blocks()).prop_map(|([ssrc, rtp, packets, octets], ntp, blocks)| {
            Packet::SenderReport { ssrc, ntp, rtp, packets, octets, blocks }
        }),
        (any::<u32>(), blocks()).prop_map(|(ssrc, blocks)| Packet::ReceiverReport { ssrc, blocks }),
        prop::collection::vec((any::<u32>(), "\\PC{0,40}"), 0..=31).prop_map(|chunks| Packet::Sdes { chunks }),
        (prop::collection::vec(any::<u32>(), 0..=31), "\\PC{0,40}")
            .prop_map(|(ssrcs, reason)| Packet::Bye { ssrcs, reason }),
        (any::<u32>(), 0u8..32, any::<[u8; 4]>(), words(20)).prop_map(|(ssrc, subtype, name, data)| Packet::App {
            ssrc,
            subtype,
            name,
            data
        }),
        (any::<bool>(), 0u8..32, any::<u32>(), any::<u32>(), words(20)).prop_map(
            |(payload, fmt, sender, media, fci)| {
                let kind = if payload { FeedbackKind::Payload } else { FeedbackKind::Transport };
                Packet::Feedback { kind, fmt, sender, media, fci }
            }
        ),
        (any::<u32>(), any::<u32>(), any::<u64>(), proptest::option::of((any::<u16>(), any::<u32>()))).prop_map(
            |(ssrc, media, ntp, group)| {
                let group = group.map(|(average, receivers)| GroupSize { average, receivers });
                Packet::Summary { ssrc, media, ntp, group }
            }
        ),
        (207u8..=223, 0u8..32, words(20))
            .prop_filter("known", |(kind, ..)| *kind != 209)
            .prop_map(|(packet_type, count, body)| Packet::Unknown { packet_type, count, body }),
    ]
}

proptest! {
    #[test]
    fn every_compound_reads_back_as_it_was_written(packets in prop::collection::vec(packet(), 1..6)) {
        let all = compound(packets);
        prop_assert_eq!(Compound::parse(&encoded(&all)), Ok(all));
    }

    #[test]
    fn an_independent_reader_finds_the_same_in_our_bytes(
        ssrc: u32, blocks in prop::collection::vec(block(), 0..=31), cname in "[a-z]{1,40}", data in words(10),
    ) {
        let ours = compound(vec![
            Packet::ReceiverReport { ssrc, blocks: blocks.clone() },
            Packet::Sdes { chunks: vec![(ssrc, cname.clone())] },
            Packet::App { ssrc, subtype: 2, name: *b"TFRC", data: data.clone() },
        ]);
        let bytes = encoded(&ours);
        let theirs: Vec<_> = rtcp_types::Compound::parse(&bytes).unwrap().map(Result::unwrap).collect();
        let [Theirs::Rr(report), Theirs::Sdes(sdes), Theirs::App(app)] = &theirs[..] else {
            return Err(TestCaseError::fail("other packets"));
        };
        prop_assert_eq!(report.ssrc(), ssrc);
        prop_assert_eq!(report.length(), 8 + 24 * blocks.len());
        for (theirs, ours) in report.report_blocks().zip(&blocks) {
            prop_assert_eq!(theirs.ssrc(), ours.ssrc);
            prop_assert_eq!(theirs.fraction_lost(), ours.fraction);
            prop_assert_eq!(theirs.cumulative_lost(), ours.cumulative_lost as u32 & 0xff_ffff);
            prop_assert_eq!(theirs.extended_sequence_number(), ours.highest_seq);
            prop_assert_eq!(theirs.interarrival_jitter(), ours.jitter);
            prop_assert_eq!(theirs.last_sender_report_timestamp(), ours.lsr);
            prop_assert_eq!(theirs.delay_since_last_sender_report_timestamp(), ours.dlsr);
        }
        let chunk = sdes.chunks().next().unwrap();
        prop_assert_eq!(chunk.items().next().unwrap().value(), cname.as_bytes());
        prop_assert_eq!((app.name(), app.data()), (*b"TFRC", &data[..]));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Compound::parse(&bytes);
    }

    #[test]
    fn damaged_compounds_never_panic_and_cost_no_more_than_they_hold(
        packets in prop::collection::vec(packet(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&compound(packets));
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(read) = Compound::parse(&bytes) {
            for packet in &read.packets {
                let _ = CongestionFeedback::from_packet(packet);
                let _ = KeyFrameRequest::all(packet).count();
                let _ = (Nack::from_packet(packet), ReceiverEstimate::from_packet(packet));
                let _ = TransportFeedback::from_packet(packet);
            }
            // Invalid text grows to at most three bytes per byte when it is decoded.
            prop_assert!(read.encoded_len() <= 3 * bytes.len() + 256);
        }
    }
}

#[test]
fn a_receiver_summary_is_laid_out_as_in_rfc_5760_and_other_sub_reports_are_skipped() {
    let group = Some(GroupSize { average: 0x70, receivers: 0x0102_0304 });
    let summary = Packet::Summary { ssrc: 0xa1, media: 0xa2, ntp: 0x1122_3344_5566_7788, group };
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    let head = [0x80, 209, 0, 6, 0, 0, 0, 0xa1, 0, 0, 0, 0xa2, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(bytes, [&head[..], &[12, 2, 0, 0x70, 1, 2, 3, 4]].concat());
    // A loss sub-report of three words precedes it.
    let mut longer = head.to_vec();
    longer[3] = 9;
    longer.extend([4, 3, 0, 0, 9, 9, 9, 9, 8, 8, 8, 8]);
    longer.extend(&bytes[20..]);
    let compound = |bytes: &[u8]| Compound::parse(bytes).map(|c| c.packets);
    assert_eq!(compound(&longer), Ok(vec![summary.clone()]));
    assert!(
        compound(&{
            longer[21] = 60;
            longer
        })
        .is_err(),
        "a sub-report longer than its packet"
    );
}
