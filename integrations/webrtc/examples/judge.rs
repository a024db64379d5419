//! A sender and a receiver for `steadycast judge`: `judge send HOST ESTIMATOR` and `judge receive`. ESTIMATOR is
//! steady, or gcc, which is webrtc-rs' own.
//!
//! webrtc-rs' chain of interceptors (estimator, transport-wide numbers, pacer, NACK and RTX) over a UDP socket with
//! plain RTP. The sender's frames have the size that the estimator allows, 30 in a second.
#![allow(clippy::unwrap_used, reason = "a program of a measurement may stop")]
#![allow(clippy::disallowed_methods, reason = "this program owns its clock and its socket")]

use rtc_interceptor::{
    AttributedPacket, BandwidthEstimator, CongestionControlBuilder, EstimatorStats, Gcc, Interceptor,
    NackGeneratorBuilder, NackResponderBuilder, PacerBuilder, Packet, PacketReport, RTCPFeedback, RTPHeaderExtension,
    Registry, Slot, StreamInfo, TaggedPacket, TwccReceiverBuilder, TwccSenderBuilder,
};
use rtc_shared::TransportContext;
use rtc_shared::marshal::{Marshal, Unmarshal};
use sansio::Protocol;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use steadycast_remote::{Bounds, Rate};
use steadycast_webrtc::Steadycast;

const PORT: u16 = 5004;
const SSRC: u32 = 7;
/// Payload types of media and of retransmissions.
const TYPES: [u8; 2] = [96, 97];
const PAYLOAD: usize = 1_100;
const FRAME: Duration = Duration::from_nanos(1_000_000_000 / 30);
/// Bounds of the estimate, in bits per second.
const FLOOR: u64 = 100_000;
const CAP: u64 = 4_000_000;
/// The longest sleep of the loop.
const STEP: Duration = Duration::from_millis(1);

/// The estimator, shared with the program, which reads its rate.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn BandwidthEstimator + Send>>>);

impl BandwidthEstimator for Shared {
    fn on_reports(&mut self, now: Instant, reports: &[PacketReport]) {
        self.0.lock().unwrap().on_reports(now, reports);
    }
    fn target_bitrate(&self) -> f64 {
        self.0.lock().unwrap().target_bitrate()
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.0.lock().unwrap().handle_timeout(now);
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.0.lock().unwrap().poll_timeout()
    }
    fn stats(&self) -> EstimatorStats {
        self.0.lock().unwrap().stats()
    }
}

fn stream() -> StreamInfo {
    let feedback = |typ: &str| RTCPFeedback { typ: typ.to_owned(), parameter: String::new() };
    StreamInfo {
        ssrc: SSRC,
        ssrc_rtx: Some(SSRC + 1),
        clock_rate: 90_000,
        mime_type: "video/VP8".to_owned(),
        payload_type: TYPES[0],
        payload_type_rtx: Some(TYPES[1]),
        rtcp_feedback: vec![feedback("transport-cc"), feedback("nack")],
        rtp_header_extensions: vec![RTPHeaderExtension {
            uri: "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01".to_owned(),
            id: 5,
        }],
        ..Default::default()
    }
}

fn tagged(packet: Packet) -> TaggedPacket {
    TaggedPacket { now: Instant::now(), transport: TransportContext::default(), message: AttributedPacket::new(packet) }
}

/// Passes what arrives within a millisecond to the chain, serves its timers, and sends its packets.
fn turn(chain: &mut impl Interceptor, socket: &UdpSocket, peer: &mut Option<SocketAddr>) {
    let mut buffer = [0; 2048];
    if let Ok((size, from)) = socket.recv_from(&mut buffer) {
        *peer = Some(from);
        let mut data = &buffer[..size];
        // RTCP's packet types, by which it is told from RTP on the same port (RFC 5761, section 4).
        let packet = if (192..=223).contains(&data[1]) {
            rtc_rtcp::packet::unmarshal(&mut data).ok().map(Packet::Rtcp)
        } else {
            rtc_rtp::Packet::unmarshal(&mut data).ok().map(Packet::Rtp)
        };
        if let Some(packet) = packet {
            chain.handle_read(tagged(packet)).unwrap();
        }
    }
    chain.handle_timeout(Instant::now()).unwrap();
    while chain.poll_read().is_some() {}
    while let Some(sent) = chain.poll_write() {
        let data = match &sent.message.packet {
            Packet::Rtp(packet) => packet.marshal().ok(),
            Packet::Rtcp(packets) if !packets.is_empty() => rtc_rtcp::packet::marshal(packets).ok(),
            _ => None,
        };
        if let (Some(data), Some(to)) = (data, *peer) {
            let _ = socket.send_to(&data, to);
        }
    }
}

fn send(host: &str, estimator: &str) {
    let bounds = Bounds::new(Rate::bps(FLOOR), Rate::bps(CAP));
    let estimator: Box<dyn BandwidthEstimator + Send> = match estimator {
        "gcc" => Box::new(Gcc::new(300_000.0, FLOOR as f64, CAP as f64)),
        name => Box::new(Steadycast::new(name, &[], &bounds).unwrap()),
    };
    let estimator = Shared(Arc::new(Mutex::new(estimator)));
    let mut chain = Registry::new()
        .with(Slot::CongestionControl, CongestionControlBuilder::new(estimator.clone()).build())
        .with(Slot::TwccSender, TwccSenderBuilder::new().build())
        .with(Slot::Pacer, PacerBuilder::new().with_target_bitrate(estimator.target_bitrate()).build())
        .with(Slot::NackResponder, NackResponderBuilder::new().build())
        .build();
    chain.bind_local_stream(&stream());
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(STEP)).unwrap();
    let mut peer = Some(format!("{host}:{PORT}").parse().unwrap());
    let (mut next, mut frames, mut sequence_number) = (Instant::now(), 0_u32, 0_u16);
    loop {
        if Instant::now() >= next {
            next += FRAME;
            frames += 1;
            let rate = estimator.target_bitrate();
            if frames % 30 == 0 {
                println!("{rate:.0} bit/s");
            }
            let mut left = ((rate * FRAME.as_secs_f64() / 8.0) as usize).max(16);
            while left > 0 {
                let size = left.min(PAYLOAD);
                left -= size;
                let header = rtc_rtp::header::Header {
                    version: 2,
                    marker: left == 0,
                    payload_type: TYPES[0],
                    sequence_number,
                    timestamp: frames * 3_000,
                    ssrc: SSRC,
                    ..Default::default()
                };
                sequence_number = sequence_number.wrapping_add(1);
                let packet = rtc_rtp::Packet { header, payload: vec![0xab; size].into() };
                chain.handle_write(tagged(Packet::Rtp(packet))).unwrap();
            }
        }
        turn(&mut chain, &socket, &mut peer);
    }
}

fn receive() {
    let mut chain = Registry::new()
        .with(Slot::TwccReceiver, TwccReceiverBuilder::new().with_interval(Duration::from_millis(50)).build())
        .with(Slot::NackGenerator, NackGeneratorBuilder::new().with_interval(Duration::from_millis(50)).build())
        .build();
    chain.bind_remote_stream(&stream());
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    socket.set_read_timeout(Some(STEP)).unwrap();
    let mut peer = None;
    loop {
        turn(&mut chain, &socket, &mut peer);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["send", host, estimator] => send(host, estimator),
        ["receive"] => receive(),
        _ => panic!("judge send HOST ESTIMATOR, or judge receive"),
    }
}
