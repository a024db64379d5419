//! Payload formats.
use proptest::prelude::*;
use steadycast_wire::ParseError;
use steadycast_wire::payload::{
    Depacketiser, Fragment, MIN_PAYLOAD, PayloadFormat, PictureKind, fragments, is_key_frame, payloads, picture_kind,
    unit_sizes,
};

const FORMATS: [PayloadFormat; 8] = PayloadFormat::ALL;
/// The frame number in these tests. Its lower 15 bits are 0x1234.
const PICTURE: u32 = 0x0005_1234;

fn cut(format: PayloadFormat, frame: &[u8], max: usize) -> Vec<Vec<u8>> {
    payloads(format, frame, PICTURE, max)
        .map(|payload| {
            let mut out = Vec::new();
            payload.write(&mut out);
            assert_eq!(out.len(), payload.fragment.payload_len());
            out
        })
        .collect()
}

fn together(format: PayloadFormat, payloads: &[Vec<u8>]) -> (Vec<u8>, bool) {
    let mut depacketiser = Depacketiser::new(format);
    for payload in payloads {
        assert_eq!(depacketiser.push(payload), Ok(()));
    }
    let frame = depacketiser.finish();
    (frame.bytes, frame.damaged)
}

fn planned(format: PayloadFormat, frame: &[u8], max: usize) -> Vec<Fragment> {
    fragments(format, frame, max).collect()
}

/// Returns a P picture of MPEG-2 with temporal reference 0x155, forward_f_code 7, and three slices.
fn mpeg2_picture() -> Vec<u8> {
    // 0101010101 010 1111111111111111 0 111 0…
    let mut frame = vec![0, 0, 1, 0x00, 0b0101_0101, 0b0101_0111, 0xff, 0b1111_1011, 0b1000_0000];
    frame.extend([0, 0, 1, 0xb5, 0x8f, 0xff]);
    for (slice, len) in [(1, 30), (2, 200), (3, 20)] {
        frame.extend([0, 0, 1, slice]);
        frame.extend(vec![0x55; len]);
    }
    frame
}

#[test]
fn mpeg4_is_cut_plainly_and_marked_at_its_end() {
    let plan = planned(PayloadFormat::Mpeg4, &[0; 2500], 1000);
    let lens: Vec<_> = plan.iter().map(|it| (it.offset, it.payload_len(), it.last)).collect();
    assert_eq!(lens, [(0, 1000, false), (1000, 1000, false), (2000, 500, true)]);
    assert_eq!(planned(PayloadFormat::Mpeg4, &[0; 1000], 1000).len(), 1);
    assert!(planned(PayloadFormat::Mpeg4, &[], 1000).is_empty());
}

#[test]
fn mpeg2_payloads_carry_the_picture_header_as_rfc_2250_lays_it_out() {
    let frame = mpeg2_picture();
    assert_eq!(unit_sizes(PayloadFormat::Mpeg2, &frame), [9 + 6 + 34, 204, 24]);
    let cut = cut(PayloadFormat::Mpeg2, &frame, 104);
    // TR 0x155; B and E, B only, neither, E only; P picture (2); FFV 0, FFC 7.
    let headers: Vec<_> = cut.iter().map(|payload| payload[..4].to_vec()).collect();
    assert_eq!(
        headers,
        [
            [0x01, 0x55, 0x1a, 0x07], // headers and first slice
            [0x01, 0x55, 0x12, 0x07], // the long slice, in three parts
            [0x01, 0x55, 0x02, 0x07],
            [0x01, 0x55, 0x0a, 0x07],
            [0x01, 0x55, 0x1a, 0x07], // the last slice, not behind the tail of another
        ]
    );
    assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [53, 104, 104, 8, 28]);
    assert_eq!(together(PayloadFormat::Mpeg2, &cut), (frame, false));
}

#[test]
fn a_sequence_header_sets_its_bit_and_whole_slices_share_a_payload() {
    let mut frame = vec![0, 0, 1, 0xb3, 1, 2, 3, 4, 0, 0, 1, 0xb8, 5, 6, 7, 8];
    frame.extend(mpeg2_picture());
    let cut = cut(PayloadFormat::Mpeg2, &frame, 1000);
    assert_eq!((cut.len(), &cut[0][..4]), (1, &[0x01, 0x55, 0x3a, 0x07][..]));
}

#[test]
fn the_second_field_of_mpeg2_begins_a_payload() {
    let frame = [mpeg2_picture(), mpeg2_picture()].concat();
    assert_eq!(cut(PayloadFormat::Mpeg2, &frame, 10_000).len(), 2);
}

#[test]
fn h263_omits_the_zeros_of_a_start_code_and_sets_p() {
    let mut frame = vec![0, 0, 0x80, 2];
    frame.extend([0x55; 50]);
    frame.extend([0, 0, 0x88]); // a GOB
    frame.extend([0x33; 50]);
    assert_eq!(unit_sizes(PayloadFormat::H263p, &frame), [54, 53]);
    let cut = cut(PayloadFormat::H263p, &frame, 54);
    assert_eq!(
        cut.iter().map(|it| (it.len(), it[0], it[1], it[2])).collect::<Vec<_>>(),
        [(54, 0x04, 0, 0x80), (53, 0x04, 0, 0x88)]
    );
    assert_eq!(together(PayloadFormat::H263p, &cut), (frame.clone(), false));
    // In smaller payloads the later parts have no P bit, and no zeros are omitted from them.
    let parts: Vec<_> =
        payloads(PayloadFormat::H263p, &frame, PICTURE, 30).map(|it| it.fragment.payload_len()).collect();
    assert_eq!(parts, [30, 26, 30, 25]);
}

#[test]
fn h263_payload_headers_of_others_may_have_redundancy_and_a_spare_picture_header() {
    let mut depacketiser = Depacketiser::new(PayloadFormat::H263p);
    // P = 1, V = 1, PLEN = 3
    depacketiser.push(&[0x06, 3 << 3, 0xee, 9, 9, 9, 0x80, 7]).unwrap();
    assert_eq!(depacketiser.finish().bytes, [0, 0, 0x80, 7]);
}

#[test]
fn h264_units_go_singly_or_divided_as_rfc_6184_lays_it_out() {
    let mut frame = vec![0, 0, 0, 1, 0x67, 1, 2, 3, 0, 0, 1, 0x65];
    frame.extend([0x77; 25]);
    let cut = cut(PayloadFormat::H264, &frame, 12);
    assert_eq!(cut[0], [0x67, 1, 2, 3]);
    assert_eq!(cut[1], [&[0x7c, 0x85][..], &[0x77; 10]].concat()); // NRI 3, FU-A; start, type 5
    assert_eq!(cut[2], [&[0x7c, 0x05][..], &[0x77; 10]].concat());
    assert_eq!(cut[3], [&[0x7c, 0x45][..], &[0x77; 5]].concat());
    let whole = [&[0, 0, 0, 1, 0x67, 1, 2, 3, 0, 0, 0, 1, 0x65][..], &[0x77; 25]].concat();
    assert_eq!(together(PayloadFormat::H264, &cut), (whole, false));
}

#[test]
fn h264_aggregates_of_others_are_read() {
    let mut depacketiser = Depacketiser::new(PayloadFormat::H264);
    depacketiser.push(&[0x78, 0, 2, 0x67, 9, 0, 1, 0x68]).unwrap();
    assert_eq!(depacketiser.finish().bytes, [0, 0, 0, 1, 0x67, 9, 0, 0, 0, 1, 0x68]);
    assert!(depacketiser.push(&[0x78, 0, 9, 0x67]).is_err());
    assert!(depacketiser.finish().damaged);
}

#[test]
fn data_after_a_lost_start_is_dropped_until_the_next_unit() {
    let frame = mpeg2_picture();
    let cut = cut(PayloadFormat::Mpeg2, &frame, 104);
    let mut depacketiser = Depacketiser::new(PayloadFormat::Mpeg2);
    depacketiser.push(&cut[0]).unwrap();
    depacketiser.gap();
    for payload in &cut[2..] {
        depacketiser.push(payload).unwrap();
    }
    let got = depacketiser.finish();
    assert!(got.damaged);
    assert_eq!(got.bytes, [&frame[..49], &frame[49 + 204..]].concat());
}

#[test]
fn a_divided_nal_unit_without_its_end_marks_the_frame() {
    let mut frame = vec![0, 0, 0, 1, 0x65];
    frame.extend([0x77; 50]);
    let cut = cut(PayloadFormat::H264, &frame, 12);
    let (bytes, damaged) = together(PayloadFormat::H264, &cut[..2]);
    assert!(damaged);
    assert_eq!(bytes, frame[..5 + 20]);
}

/// Returns the payloads without their last `n` bytes.
fn heads(payloads: &[Vec<u8>], n: usize) -> Vec<Vec<u8>> {
    payloads.iter().map(|payload| payload[..payload.len().min(n)].to_vec()).collect()
}

#[test]
fn h265_units_go_singly_or_divided_as_rfc_7798_lays_it_out() {
    // A VPS (32), and an IDR_W_RADL slice (19) of layer 1 with temporal ID 2.
    let mut frame = vec![0, 0, 0, 1, 0x40, 0x01, 9, 0, 0, 1, 0x26, 0x0b];
    frame.extend([0x77; 20]);
    let cut = cut(PayloadFormat::H265, &frame, 12);
    assert_eq!(cut[0], [0x40, 0x01, 9]);
    assert_eq!(cut[1], [&[0x62, 0x0b, 0x93][..], &[0x77; 9]].concat()); // FU (49), same layer and id; S, type 19
    assert_eq!(cut[2], [&[0x62, 0x0b, 0x13][..], &[0x77; 9]].concat());
    assert_eq!(cut[3], [0x62, 0x0b, 0x53, 0x77, 0x77]); // E
    let whole = [&[0, 0, 0, 1, 0x40, 0x01, 9, 0, 0, 0, 1, 0x26, 0x0b][..], &[0x77; 20]].concat();
    assert_eq!(together(PayloadFormat::H265, &cut), (whole, false));
}

#[test]
fn h265_aggregates_and_divided_parameter_sets_of_others_are_read() {
    let mut depacketiser = Depacketiser::new(PayloadFormat::H265);
    depacketiser.push(&[0x60, 0x01, 0, 3, 0x40, 1, 7, 0, 2, 0x42, 1]).unwrap();
    depacketiser.push(&[0x62, 0x01, 0xa2, 5]).unwrap(); // the first part of a PPS (34)
    depacketiser.push(&[0x62, 0x01, 0x62, 6]).unwrap();
    let sets = [0, 0, 0, 1, 0x40, 1, 7, 0, 0, 0, 1, 0x42, 1, 0, 0, 0, 1, 0x44, 1, 5, 6];
    assert_eq!(depacketiser.finish().bytes, sets);
    for refused in [&[0x60, 0x01, 0, 9, 0x40][..], &[0x66, 0x01, 1, 2], &[0x62, 0x01], &[0x40], &[]] {
        assert!(depacketiser.push(refused).is_err(), "{refused:?}");
        assert!(depacketiser.finish().damaged);
    }
}

#[test]
fn vp8_payloads_begin_with_the_descriptor_of_rfc_7741() {
    let frame: Vec<u8> = (0..20).collect();
    let cut = cut(PayloadFormat::Vp8, &frame, 12);
    // X and S, or X only; I; M and a picture ID of 15 bits.
    assert_eq!(
        heads(&cut, 5),
        [[0x90, 0x80, 0x92, 0x34, 0], [0x80, 0x80, 0x92, 0x34, 8], [0x80, 0x80, 0x92, 0x34, 16]]
    );
    assert_eq!(together(PayloadFormat::Vp8, &cut), (frame, false));
}

#[test]
fn vp8_descriptors_of_others_are_read() {
    let frame = |first: &[u8]| {
        let mut depacketiser = Depacketiser::new(PayloadFormat::Vp8);
        depacketiser.push(first).map(|()| depacketiser.finish())
    };
    // No extension; picture ID of 7 bits; I (15 bits), L, T and K.
    for head in [&[0x10][..], &[0x90, 0x80, 0x7f], &[0x90, 0xf0, 0x80, 1, 2, 3]] {
        let got = frame(&[head, &[7, 8]].concat()).unwrap();
        assert_eq!((got.bytes, got.damaged), (vec![7, 8], false), "{head:?}");
        assert!(frame(head).is_err(), "{head:?} and nothing");
    }
    // The second partition, and a continuation: the start of the frame is missing.
    for head in [0x11, 0x00] {
        let got = frame(&[head, 7, 8]).unwrap();
        assert_eq!((got.bytes, got.damaged), (vec![], true), "{head}");
    }
}

#[test]
fn vp9_payloads_begin_with_the_descriptor_of_rfc_9628() {
    let key = [0x82, 0x49, 0x83, 0x42, 1, 2, 3, 4, 5, 6];
    let others = [0x86, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    // I, and B or E; P in a frame that is not a key frame; M and a picture ID of 15 bits.
    let parts = cut(PayloadFormat::Vp9, &key, 8);
    assert_eq!(heads(&parts, 4), [[0x88, 0x92, 0x34, 0x82], [0x84, 0x92, 0x34, 2]]);
    assert_eq!(heads(&cut(PayloadFormat::Vp9, &others, 8), 3), [[0xc8, 0x92, 0x34], [0xc4, 0x92, 0x34]]);
    assert_eq!(heads(&cut(PayloadFormat::Vp9, &others, 20), 3), [[0xcc, 0x92, 0x34]]);
    assert_eq!(together(PayloadFormat::Vp9, &parts), (key.to_vec(), false));
    // A frame without its end is damaged, even if no gap was reported.
    assert_eq!(together(PayloadFormat::Vp9, &parts[..1]), (key[..5].to_vec(), true));
    assert_eq!(together(PayloadFormat::Vp9, &parts[1..]), (vec![], true));
}

#[test]
fn vp9_descriptors_of_others_are_read() {
    let push = |head: &[u8]| {
        let mut depacketiser = Depacketiser::new(PayloadFormat::Vp9);
        depacketiser.push(&[head, &[7, 8]].concat()).map(|()| depacketiser.finish().bytes)
    };
    let read = [
        &[0x0c][..],
        &[0x8c, 0x7f],                                     // picture id of 7 bits
        &[0x2c, 0xf0, 9],                                  // layers, with TL0PICIDX
        &[0xfc, 5, 0xf1, 3, 5, 6],                         // flexible, three references
        &[0x0e, 0x30, 1, 0, 1, 0, 2, 0, 2, 0],             // sizes of two layers
        &[0x0e, 0x18, 1, 0, 1, 0, 2, 0x04, 1, 0x08, 1, 2], // a group of two pictures
    ];
    for head in read {
        assert_eq!(push(head), Ok(vec![7, 8]), "{head:?}");
    }
    let other_layer = ParseError::OtherLayer { what: "a spatial layer of VP9 above the first" };
    assert_eq!(push(&[0x2c, 0x02, 9]), Err(other_layer));
    assert!(push(&[0xdc, 5, 3, 5, 7, 9]).is_err(), "four references");
    let mut depacketiser = Depacketiser::new(PayloadFormat::Vp9);
    for head in read {
        assert!(depacketiser.push(head).is_err(), "{head:?} and nothing");
    }
}

/// Returns a temporal delimiter, a sequence header and a shown key frame.
fn av1_key() -> Vec<u8> {
    [&[0x12, 0, 0x0a, 3, 0, 1, 2, 0x32, 20, 0x10][..], &[0x55; 19]].concat()
}

#[test]
fn av1_payloads_carry_one_obu_without_its_size_or_the_parts_of_two() {
    let frame = av1_key();
    let payloads = cut(PayloadFormat::Av1, &frame, 12);
    // Y, W 2 and N; the sequence header with its length; the part of the frame that fits.
    assert_eq!(payloads[0], [0x68, 5, 0x0a, 3, 0, 1, 2, 0x32, 20, 0x10, 0x55, 0x55]);
    assert_eq!(payloads[1], [&[0xd0][..], &[0x55; 11]].concat()); // Z and Y
    assert_eq!(payloads[2], [&[0x90][..], &[0x55; 6]].concat()); // Z
    assert_eq!(together(PayloadFormat::Av1, &payloads), (frame, false));
    // Both bytes of an OBU header with extension are sent once.
    let layered = [&[0x12, 0, 0x36, 0x20, 20][..], &[0x55; 20]].concat();
    let parts = cut(PayloadFormat::Av1, &layered, 12);
    assert_eq!(heads(&parts, 4), [[0x50, 0x34, 0x20, 0x55].to_vec(), vec![0x90, 0x55, 0x55, 0x55]]);
    assert_eq!(together(PayloadFormat::Av1, &parts), (layered, false));
}

#[test]
fn av1_elements_of_others_are_read() {
    let push = |payloads: &[&[u8]]| -> Result<_, ParseError> {
        let mut depacketiser = Depacketiser::new(PayloadFormat::Av1);
        for payload in payloads {
            depacketiser.push(payload)?;
        }
        Ok(depacketiser.finish())
    };
    let whole = |payloads: &[&[u8]]| {
        let got = push(payloads).expect("it is read");
        assert!(!got.damaged, "{payloads:?}");
        got.bytes
    };
    let two = vec![0x12, 0, 0x0a, 1, 9, 0x32, 2, 7, 8];
    // Two elements with one length or with two, and with redundant delimiters, tile lists and size fields.
    assert_eq!(whole(&[&[0x28, 2, 0x08, 9, 0x30, 7, 8]]), two);
    assert_eq!(whole(&[&[0x08, 2, 0x08, 9, 3, 0x30, 7, 8]]), two);
    assert_eq!(whole(&[&[0x08, 2, 0x12, 0, 3, 0x0a, 1, 9, 2, 0x40, 5, 0x84, 0x00, 0x32, 2, 7, 8]]), two);
    // The second element continues in the next packet, which has a third one.
    let more = [&two[..], &[0x32, 1, 5]].concat();
    assert_eq!(whole(&[&[0x68, 2, 0x08, 9, 0x30, 7], &[0xa0, 1, 8, 0x30, 5]]), more);
    // Malformed payloads: a sequence that starts inside an OBU, missing elements, wrong sizes.
    for wrong in [
        &[][..],
        &[0x10],
        &[0x98, 1],
        &[0x20, 1, 0x30],
        &[0x00, 9, 0x30],
        &[0x00, 0xff, 0xff],
        &[0x10, 0x32, 9, 1],
        &[0x10, 0x32, 0, 1],
        &[0x10, 0x34],
        &[0x10, 0x32],
    ] {
        assert!(push(&[wrong]).is_err(), "{wrong:?}");
    }
    // A continuation without its start, and a start without its end.
    for half in [&[0x90, 7, 8][..], &[0x50, 0x30, 7]] {
        let got = push(&[half]).expect("it could be read");
        assert_eq!((got.bytes, got.damaged), (vec![], true), "{half:?}");
    }
}

#[test]
fn key_frames_are_known_by_each_formats_rule() {
    let h264 = |kind: u8| vec![0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 1, 0x60 | kind, 3];
    let h265 = |kind: u8| vec![0, 0, 1, 0x40, 1, 9, 0, 0, 1, kind << 1, 1, 3];
    let av1 = |frame: u8| [&av1_key()[..7], &[0x32, 1, frame]].concat();
    let mpeg2 = |kind: u8| vec![0, 0, 1, 0xb3, 9, 9, 9, 9, 0, 0, 1, 0, 0x12, kind << 3, 0, 0];
    // H.263 with source format 2 and bit 9, or with PLUSPTYPE (7) and UFEP 0 or 1.
    let plain = |inter: u8| vec![0, 0, 0x80, 0x02, 0x08 | inter << 1, 0];
    let plus = |kind: u8| vec![0, 0, 0x80, 0x02, 0x1c, kind << 4, 0];
    let plus_sizes = |kind: u8| vec![0, 0, 0x80, 0x02, 0x1c, 0x80, 0x40, kind << 2, 0];
    let cases: [(PayloadFormat, Vec<u8>, Vec<u8>); 12] = [
        (PayloadFormat::Mpeg4, vec![0, 0, 1, 0xb0, 0, 0, 1, 0xb6, 0x1f], vec![0, 0, 1, 0xb6, 0x5f]),
        (PayloadFormat::Mpeg2, mpeg2(1), mpeg2(2)),
        (PayloadFormat::H263p, plain(0), plain(1)),
        (PayloadFormat::H263p, plus(0), plus(1)),
        (PayloadFormat::H263p, plus_sizes(0), plus_sizes(1)),
        (PayloadFormat::H264, h264(5), h264(1)),
        (PayloadFormat::H265, h265(19), h265(1)),
        (PayloadFormat::H265, h265(21), h265(24)),
        (PayloadFormat::Vp8, vec![0x10, 0, 0, 0x9d, 0x01, 0x2a], vec![0x11, 0, 0]),
        (PayloadFormat::Vp9, vec![0x82, 0x49], vec![0x86, 0x00]),
        (PayloadFormat::Vp9, vec![0xb1, 0x49], vec![0xb3, 0x00]), // profile 3
        (PayloadFormat::Av1, av1(0x10), av1(0x30)),
    ];
    for (format, key, other) in cases {
        assert!(is_key_frame(format, &key), "{format:?} {key:?}");
        assert!(!is_key_frame(format, &other), "{format:?} {other:?}");
    }
    // A VP9 frame that shows an existing one; AV1 without a sequence header, with a hidden frame, and with a still
    // picture.
    assert!(!is_key_frame(PayloadFormat::Vp9, &[0x88]));
    assert!(!is_key_frame(PayloadFormat::Av1, &[0x12, 0, 0x32, 1, 0x10]));
    assert!(!is_key_frame(PayloadFormat::Av1, &av1(0x00)));
    assert!(is_key_frame(PayloadFormat::Av1, &[0x0a, 1, 0x18, 0x32, 1, 0x77]));
    for format in FORMATS {
        assert!(!is_key_frame(format, &[]), "{format:?}");
    }
}

#[test]
fn formats_are_found_by_their_names() {
    let names: Vec<_> = FORMATS.iter().map(|format| (format.codec(), format.encoding())).collect();
    assert_eq!(
        names,
        [
            ("mpeg4", "MP4V-ES"),
            ("mpeg2", "MPV"),
            ("h263", "H263-1998"),
            ("h264", "H264"),
            ("h265", "H265"),
            ("vp8", "VP8"),
            ("vp9", "VP9"),
            ("av1", "AV1"),
        ]
    );
    for format in FORMATS {
        assert_eq!(PayloadFormat::of_codec(format.codec()), Some(format));
        assert_eq!(PayloadFormat::of_encoding(&format.encoding().to_lowercase()), Some(format));
    }
    assert_eq!(PayloadFormat::of_encoding("h263-2000"), Some(PayloadFormat::H263p));
    assert_eq!((PayloadFormat::of_codec("theora"), PayloadFormat::of_encoding("theora")), (None, None));
}

fn unit_body(max: usize) -> impl Strategy<Value = Vec<u8>> {
    // Without zeros no start code occurs by chance.
    prop::collection::vec(1u8..=255, 1..max)
}

fn frame(format: PayloadFormat, bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, body) in bodies.iter().enumerate() {
        match format {
            PayloadFormat::Mpeg4 if i == 0 => out.extend([0, 0, 1, 0xb6]),
            PayloadFormat::Mpeg4 => {}
            PayloadFormat::Mpeg2 if i == 0 => {
                out.extend([0, 0, 1, 0, 0x11, 0x17, 0xff, 0xf8, 0, 0, 1, 1]);
            }
            PayloadFormat::Mpeg2 => out.extend([0, 0, 1, (i % 0xaf) as u8 + 1]),
            PayloadFormat::H263p => out.extend([0, 0, if i == 0 { 0x80 } else { 0x84 }]),
            PayloadFormat::H264 => out.extend([0, 0, 0, 1, 0x61]),
            PayloadFormat::H265 => out.extend([0, 0, 0, 1, 0x02, 0x01]),
            PayloadFormat::Vp8 | PayloadFormat::Vp9 => {}
            PayloadFormat::Av1 => {
                if i == 0 {
                    out.extend([0x12, 0]);
                }
                out.push(0x32);
                out.extend((body.len() > 127).then_some(0x80 | body.len() as u8));
                out.push((body.len() >> if body.len() > 127 { 7 } else { 0 }) as u8);
            }
        }
        out.extend(body);
    }
    out
}

/// Checks that the fragments cover the frame without gap or overlap, and that only the last one is marked.
fn tiles(plan: &[Fragment], size: usize) {
    let mut at = 0;
    for fragment in plan {
        assert_eq!(fragment.offset, at);
        assert!(fragment.implied <= fragment.len);
        at += fragment.len;
    }
    assert_eq!(at, size);
    assert_eq!(plan.iter().position(|it| it.last), plan.len().checked_sub(1));
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in(bodies in prop::collection::vec(unit_body(400), 1..8), max in MIN_PAYLOAD..500) {
        for format in FORMATS {
            let frame = frame(format, &bodies);
            let cut = cut(format, &frame, max);
            prop_assert!(cut.iter().all(|payload| payload.len() <= max), "{format:?}");
            prop_assert_eq!(together(format, &cut), (frame, false));
        }
    }

    #[test]
    fn the_payloads_of_a_frame_tile_it(bodies in prop::collection::vec(unit_body(400), 1..8), max in 0usize..500) {
        for format in FORMATS {
            let frame = frame(format, &bodies);
            tiles(&planned(format, &frame, max), frame.len());
        }
    }

    #[test]
    fn arbitrary_frames_are_cut_without_loss(
        frame in prop::collection::vec(prop_oneof![3 => 0u8..3, 1 => any::<u8>()], 0..300), max in 0usize..100,
    ) {
        for format in FORMATS {
            let plan = planned(format, &frame, max);
            prop_assert!(plan.iter().all(|it| it.payload_len() <= max.max(MIN_PAYLOAD)));
            let cut = cut(format, &frame, max);
            prop_assert_eq!(cut.len(), plan.len());
            // An arbitrary byte string may contain NAL unit types that must not be sent, and is not a sequence of OBUs.
            if !matches!(format, PayloadFormat::H264 | PayloadFormat::H265 | PayloadFormat::Av1) {
                tiles(&plan, frame.len());
                prop_assert_eq!(together(format, &cut), (frame.clone(), false));
            }
        }
    }

    #[test]
    fn a_unit_begins_a_payload_or_follows_whole_units(
        bodies in prop::collection::vec(unit_body(200), 1..8), max in MIN_PAYLOAD..500,
    ) {
        for format in FORMATS {
            let frame = frame(format, &bodies);
            let mut begins = vec![0];
            begins.extend(unit_sizes(format, &frame).iter().scan(0, |at, len| { *at += len; Some(*at) }));
            for fragment in planned(format, &frame, max) {
                let end = fragment.offset + fragment.len;
                prop_assert_eq!(fragment.starts_unit, begins.contains(&fragment.offset));
                prop_assert_eq!(fragment.ends_unit, begins.contains(&end));
                let within = begins.iter().filter(|&&at| fragment.offset < at && at < end).count();
                if format == PayloadFormat::Av1 {
                    // Without a dependency descriptor, Z 0 and Y 0 mark the start and the end of a frame.
                    prop_assert!(within <= 1);
                    prop_assert_eq!((fragment.starts_unit, fragment.ends_unit), (fragment.offset == 0, fragment.last));
                } else if within > 0 {
                    prop_assert!(fragment.starts_unit && fragment.ends_unit);
                }
            }
        }
    }

    #[test]
    fn any_loss_is_noticed_and_leaves_less(
        bodies in prop::collection::vec(unit_body(300), 1..6), max in MIN_PAYLOAD..200,
        lost in prop::collection::vec(any::<bool>(), 200),
    ) {
        for format in FORMATS {
            let frame = frame(format, &bodies);
            let cut = cut(format, &frame, max);
            let mut depacketiser = Depacketiser::new(format);
            let mut any = false;
            for (i, payload) in cut.iter().enumerate() {
                if lost[i % lost.len()] {
                    depacketiser.gap();
                    any = true;
                } else {
                    depacketiser.push(payload).unwrap();
                }
            }
            let got = depacketiser.finish();
            prop_assert_eq!(got.damaged, any);
            let fits = if any { got.bytes.len() < frame.len() } else { got.bytes == frame };
            prop_assert!(fits, "{:?}", format);
        }
    }

    #[test]
    fn arbitrary_payloads_never_panic(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
        for format in FORMATS {
            let mut depacketiser = Depacketiser::new(format);
            for payload in &all {
                let _ = depacketiser.push(payload);
            }
            let most: usize = all.iter().map(|payload| 4 * payload.len() + 8).sum();
            prop_assert!(depacketiser.finish().bytes.len() <= most);
            for payload in &all {
                let _ = is_key_frame(format, payload);
            }
        }
    }
}

#[test]
fn a_frames_kind_is_read_from_headers_that_ffmpeg_wrote() {
    use PayloadFormat::{H263p, H264, Mpeg2, Mpeg4};
    use PictureKind::{Disposable, Intra, Predicted};
    for (format, kind, head) in [
        (Mpeg4, Intra, "000001b0f1000001b5a913000001b3001007000001b61060ed969e"),
        (Mpeg4, Predicted, "000001b651702206c5cc80681c06"),
        (Mpeg4, Disposable, "000001b690e0649fc3c7ca020832"),
        (Mpeg2, Intra, "000001b80008004000000100000ffff8000001b58ffff34180000001013be7"),
        (Mpeg2, Predicted, "000001000097fffb80000001b5811ff3418000000101123e"),
        (Mpeg2, Disposable, "00000100005ffffbb8000001b58111134180000001011b8a"),
        (H263p, Intra, "000080020c071ee115281faa"),
        (H263p, Predicted, "000080060e0200f750415410"),
        (H263p, Intra, "000080021cb8210012401d005ee11528"),
        (H263p, Predicted, "000080061cb821049240090040f75041"),
        (H264, Intra, "00000001674d4014f60b04b4200000000168ce3c800000000165888200308318004c"),
        (H264, Intra, "00000001060601c48000000001419a2802ca1dc004"),
        (H264, Predicted, "00000001419a2802ca1dc004f9c8"),
        (H264, Disposable, "00000001019e4501a505f8013ee7"),
    ] {
        let head = hex(head);
        assert_eq!(picture_kind(format, &head), Some(kind), "{format:?} {head:02x?}");
    }
    // The other formats have no start codes. A frame that is not a key frame counts as predicted.
    for format in [Mpeg4, Mpeg2, H263p, H264] {
        assert_eq!([&[][..], &[0; 40], &[0xff; 40]].map(|bytes| picture_kind(format, bytes)), [None; 3]);
    }
}

#[test]
fn unsupported_packetisation_is_neither_damage_nor_loss() {
    use PayloadFormat::{H264, H265, Vp9};
    // Each unsupported payload stands between two supported ones. All payload structures that a sender may choose are
    // covered.
    let whole: [(PayloadFormat, &[u8], &[u8]); 2] =
        [(H264, &[0x67, 9], &[0x68, 1]), (H265, &[0x40, 1, 7], &[0x42, 1, 8])];
    let packets = |format: PayloadFormat| -> Vec<Vec<Vec<u8>>> {
        match format {
            // STAP-B, MTAP16, MTAP24, and FU-B with the other fragments of its unit.
            H264 => vec![
                vec![vec![0x79, 0, 1, 0, 2, 0x67, 9]],
                vec![vec![0x7a, 0, 1, 0, 9, 0, 0, 0, 0x67, 9]],
                vec![vec![0x7b, 0, 1, 0, 9, 0, 0, 0, 0, 0x67, 9]],
                vec![vec![0x7d, 0x85, 0, 1, 7], vec![0x7c, 0x05, 8], vec![0x7c, 0x45, 9]],
                vec![vec![0x7d, 0x85, 0, 1, 7], vec![0x7c, 0x45, 9]],
            ],
            // PACI around a unit.
            H265 => vec![vec![vec![0x64, 0x01, 0x02, 0, 1, 2]]],
            _ => vec![],
        }
    };
    for (format, before, behind) in whole {
        for unsupported in packets(format) {
            let mut depacketiser = Depacketiser::new(format);
            depacketiser.push(before).unwrap();
            for payload in &unsupported {
                let error = depacketiser.push(payload).unwrap_err();
                assert!(matches!(error, ParseError::Unsupported { .. }), "{format:?} {payload:02x?}: {error}");
            }
            depacketiser.push(behind).unwrap();
            let frame = depacketiser.finish();
            assert_eq!((frame.damaged, frame.unsupported), (false, true), "{format:?} {unsupported:02x?}");
            assert_eq!(frame.bytes, [&[0, 0, 0, 1], before, &[0, 0, 0, 1], behind].concat());
            // The next frame is not affected.
            depacketiser.push(before).unwrap();
            let next = depacketiser.finish();
            assert_eq!((next.damaged, next.unsupported), (false, false));
        }
    }
    // A spatial layer of VP9 above the first is dropped, and the first one is complete without it.
    let mut depacketiser = Depacketiser::new(Vp9);
    depacketiser.push(&[0x2c, 0x00, 9, 7, 8]).unwrap();
    assert!(matches!(depacketiser.push(&[0x2c, 0x02, 9, 5]), Err(ParseError::OtherLayer { .. })));
    let frame = depacketiser.finish();
    assert_eq!((frame.bytes, frame.damaged, frame.unsupported), (vec![7, 8], false, false));
}

#[test]
fn continuations_of_a_lost_start_are_reported_as_orphaned() {
    for format in FORMATS {
        let frame: Vec<u8> = match format {
            PayloadFormat::H264 => [&[0, 0, 0, 1, 0x65][..], &[7; 60]].concat(),
            PayloadFormat::H265 => [&[0, 0, 0, 1, 0x26, 1][..], &[7; 60]].concat(),
            PayloadFormat::Vp8 | PayloadFormat::Vp9 => vec![0x82; 60],
            // The other formats are kept, or have other units.
            _ => continue,
        };
        let parts = cut(format, &frame, 20);
        let mut depacketiser = Depacketiser::new(format);
        for (n, part) in parts.iter().enumerate() {
            depacketiser.push(part).unwrap();
            assert!(!depacketiser.is_orphaned(), "{format:?} {n}");
        }
        depacketiser.finish();
        depacketiser.gap();
        for part in &parts[1..] {
            depacketiser.push(part).unwrap();
            assert!(depacketiser.is_orphaned(), "{format:?}");
        }
    }
}

/// Returns an SEI message before emulation prevention (H.264 and H.265, section 7.3.5).
fn sei_message(kind: usize, payload: &[u8]) -> Vec<u8> {
    let number = |value: usize| [vec![255; value / 255], vec![(value % 255) as u8]].concat();
    [number(kind), number(payload.len()), payload.to_vec()].concat()
}

/// Returns a NAL unit after a start code, with emulation prevention bytes (H.264, section 7.4.1).
fn escaped_unit(head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut unit = [&[0, 0, 0, 1], head].concat();
    let mut zeros = 0;
    for byte in body {
        if zeros >= 2 && *byte <= 3 {
            unit.push(3);
            zeros = 0;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        unit.push(*byte);
    }
    unit
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_recovery_point_is_found_wherever_it_stands_among_sei_messages(
        // Payload types and sizes have up to two bytes of 255 before the last one. Zeros require emulation prevention.
        messages in prop::collection::vec(
            (prop_oneof![Just(0usize), Just(1), Just(4), Just(5), 7usize..700],
             prop::collection::vec(prop_oneof![Just(0u8), Just(0), Just(1), Just(3), any::<u8>()], 0..600)), 0..5),
        place in prop::option::of(any::<prop::sample::Index>()),
        apart in any::<bool>(),
        h265 in any::<bool>(),
        delimiter in any::<bool>(),
    ) {
        let mut all: Vec<Vec<u8>> = messages.iter().map(|(kind, payload)| sei_message(*kind, payload)).collect();
        if let Some(place) = &place {
            all.insert(place.index(all.len() + 1), sei_message(6, &[0xc4]));
        }
        // One NAL unit for all messages, or one each. Every unit ends with its trailing bits.
        let bodies = if apart { all } else { vec![all.concat()] };
        let (format, sei, slice): (_, &[u8], &[u8]) = if h265 {
            (PayloadFormat::H265, &[39 << 1, 1], &[1 << 1, 1])
        } else {
            (PayloadFormat::H264, &[6], &[0x41])
        };
        let mut frame = Vec::new();
        if delimiter {
            frame.extend(escaped_unit(if h265 { &[35 << 1, 1] } else { &[9] }, &[0xf0]));
        }
        for body in bodies.iter().filter(|body| !body.is_empty()) {
            frame.extend(escaped_unit(sei, &[&body[..], &[0x80]].concat()));
        }
        frame.extend(escaped_unit(slice, &[0x9a, 0x28, 0x02, 0xca]));
        let kind = if place.is_some() { PictureKind::Intra } else { PictureKind::Predicted };
        prop_assert_eq!(picture_kind(format, &frame), Some(kind));
        prop_assert_eq!(is_key_frame(format, &frame), place.is_some());
        // A message after the picture belongs to another picture.
        let behind = [escaped_unit(slice, &[0x9a]), escaped_unit(sei, &[6, 1, 0xc4, 0x80])].concat();
        prop_assert_eq!(picture_kind(format, &behind), Some(PictureKind::Predicted));
    }
}

/// Parses hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}
