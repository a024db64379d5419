//! The video stream of the tests and of the program for `steadycast judge`.
#![allow(dead_code, reason = "each program uses a part")]

use rtc_interceptor::{
    AttributedPacket, NackGeneratorBuilder, NackGeneratorInterceptor, Packet, RTCPFeedback, RTPHeaderExtension,
    StreamInfo, TaggedPacket,
};
use rtc_shared::TransportContext;
use std::time::Instant;

/// The SSRC of the media. That of the retransmissions is the next one.
pub(crate) const SSRC: u32 = 7;
/// The payload type of the media.
pub(crate) const MEDIA_TYPE: u8 = 96;
/// The payload type of retransmissions.
pub(crate) const RETRANSMISSION_TYPE: u8 = 97;

/// Returns a video stream with transport-wide feedback, NACK and RTX.
pub(crate) fn video_stream() -> StreamInfo {
    let feedback = |typ: &str| RTCPFeedback { typ: typ.to_owned(), parameter: String::new() };
    StreamInfo {
        ssrc: SSRC,
        ssrc_rtx: Some(SSRC + 1),
        clock_rate: 90_000,
        mime_type: "video/VP8".to_owned(),
        payload_type: MEDIA_TYPE,
        payload_type_rtx: Some(RETRANSMISSION_TYPE),
        rtcp_feedback: vec![feedback("transport-cc"), feedback("nack")],
        rtp_header_extensions: vec![RTPHeaderExtension {
            uri: "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01".to_owned(),
            id: 5,
        }],
        ..Default::default()
    }
}

/// Returns a packet of the video with a payload of `size` bytes. `marker` marks the last packet of a frame.
pub(crate) fn video_packet(
    now: Instant,
    sequence_number: u16,
    timestamp: u32,
    marker: bool,
    size: usize,
) -> TaggedPacket {
    let header = rtc_rtp::header::Header {
        version: 2,
        marker,
        payload_type: MEDIA_TYPE,
        sequence_number,
        timestamp,
        ssrc: SSRC,
        ..Default::default()
    };
    at(now, Packet::Rtp(rtc_rtp::Packet { header, payload: vec![0xab; size].into() }))
}

/// Returns `packet` as a chain takes it at the time `now`.
pub(crate) fn at(now: Instant, packet: Packet) -> TaggedPacket {
    TaggedPacket { now, transport: TransportContext::default(), message: AttributedPacket::new(packet) }
}

/// Returns the packet that a retransmission carries (RFC 4588, section 4); any other packet is returned unchanged. The
/// chain does not do this. Its NACK generator would request a lost packet again and again, and be sent it each time.
pub(crate) fn restored(mut packet: rtc_rtp::Packet) -> rtc_rtp::Packet {
    if packet.header.payload_type == RETRANSMISSION_TYPE && packet.payload.len() >= 2 {
        let original = packet.payload.split_to(2);
        packet.header.sequence_number = u16::from_be_bytes([original[0], original[1]]);
        (packet.header.ssrc, packet.header.payload_type) = (SSRC, MEDIA_TYPE);
    }
    packet
}

/// Returns a generator that requests a lost packet at most ten times, as libwebrtc does. webrtc-rs' default
/// has no limit: the answers to requests for packets that are too old would fill the pacer after a long queue.
pub(crate) fn nack_generator() -> NackGeneratorInterceptor {
    NackGeneratorBuilder::new().with_max_nacks_per_packet(10).build()
}
