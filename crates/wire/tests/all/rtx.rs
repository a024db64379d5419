//! Retransmissions.
use proptest::prelude::*;
use steadycast_units::Stamp;
use steadycast_wire::ParseError;
use steadycast_wire::rtp::RtpHeader;
use steadycast_wire::rtx::{OSN, RtxStream};

const STREAM: RtxStream = RtxStream { payload_type: 97, apt: 96, ssrc: 2_222, media: 1_111 };

fn original() -> RtpHeader {
    RtpHeader {
        payload_type: 96,
        marker: true,
        seq: 0x1234,
        timestamp: 0x0506_0708,
        ssrc: 1_111,
        send_time: Some(Stamp(9)),
        payload_len: 3,
    }
}

#[test]
fn a_retransmission_has_the_layout_of_rfc_4588() {
    let mut header = STREAM.header(7, &original()).expect("there is room");
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    RtxStream::write_payload(0x1234, &[1, 2, 3], &mut payload);
    header.encode(&[], &payload, &mut out);
    #[rustfmt::skip]
    assert_eq!(out, [
        0x80, 0x80 | 97, 0, 7,      5, 6, 7, 8,     0, 0, 0x08, 0xae,
        0x12, 0x34, 1, 2, 3,
    ]);
    header.send_time = Some(Stamp(77));
    let back = STREAM.original(&header, &payload).expect("it is one");
    assert_eq!(back, (RtpHeader { send_time: None, ..original() }, &[1, 2, 3][..]));
}

#[test]
fn packets_of_other_streams_or_without_an_osn_are_no_retransmissions() {
    let header = STREAM.header(7, &original()).expect("there is room");
    assert!(matches!(STREAM.original(&header, &[1]), Err(ParseError::Short { need: OSN, got: 1, .. })));
    assert!(STREAM.original(&header, &[1, 2]).is_ok_and(|(_, payload)| payload.is_empty()));
    for other in [RtpHeader { ssrc: 3, ..header }, RtpHeader { payload_type: 96, ..header }] {
        assert!(matches!(STREAM.original(&other, &[1, 2, 3]), Err(ParseError::Malformed { .. })));
    }
    let full = |payload_len| STREAM.header(7, &RtpHeader { payload_len, ..original() });
    assert_eq!(full(65_533).map(|header| header.payload_len), Ok(65_535));
    assert!(matches!(full(65_534), Err(ParseError::TooMany { limit: 65_533, .. })));
}

proptest! {
    #[test]
    fn every_original_is_restored(
        marker: bool, seq: u16, own: u16, timestamp: u32, payload in prop::collection::vec(any::<u8>(), 0..1_500),
    ) {
        let payload_len = payload.len() as u16;
        let original = RtpHeader { marker, seq, timestamp, payload_len, send_time: None, ..original() };
        let header = STREAM.header(own, &original).expect("there is room");
        let (mut again, mut datagram) = (Vec::new(), Vec::new());
        RtxStream::write_payload(seq, &payload, &mut again);
        header.encode(&[], &again, &mut datagram);
        let (read, _, body) = RtpHeader::parse(&datagram).expect("it can read what it wrote");
        prop_assert_eq!(read, header);
        prop_assert_eq!(STREAM.original(&read, body), Ok((original, &payload[..])));
    }
}
