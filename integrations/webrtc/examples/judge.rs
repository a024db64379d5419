//! A sender and a receiver for `steadycast judge`: `judge send HOST ESTIMATOR` and `judge receive`. ESTIMATOR is
//! steady, or gcc, which is webrtc-rs' own.
//!
//! Both use webrtc-rs' chain of interceptors (estimator, transport-wide numbers, pacer, NACK and RTX) over a UDP socket
//! with plain RTP. The sender produces 30 frames per second of the size that the estimator allows.
#![allow(clippy::unwrap_used, reason = "a program of a measurement may stop")]
#![allow(clippy::disallowed_methods, reason = "this program owns its clock and its socket")]

#[path = "../tests/support/mod.rs"]
mod support;

use rtc_interceptor::{
    BandwidthEstimator, CongestionControlBuilder, Gcc, Interceptor, NackResponderBuilder, PacerBuilder, Packet,
    Registry, Slot, TwccReceiverBuilder, TwccSenderBuilder,
};
use rtc_shared::marshal::{Marshal, Unmarshal};
use sansio::Protocol;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use steadycast_remote::{Bounds, Rate};
use steadycast_webrtc::{SharedEstimator, Steadycast};
use support::{at, nack_generator, restored, video_packet, video_stream};

const PORT: u16 = 5004;
/// The maximum payload of a packet in bytes.
const PAYLOAD_MAX: usize = 1_100;
const FRAMES_PER_SECOND: u32 = 30;
const FRAME_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / FRAMES_PER_SECOND as u64);
/// Bounds of the estimate, in bits per second.
const FLOOR: u64 = 100_000;
const CAP: u64 = 4_000_000;
const STEP: Duration = Duration::from_millis(1);

/// Waits up to a millisecond for a datagram for the chain, handles its timers, and sends its packets.
fn process(chain: &mut impl Interceptor, socket: &UdpSocket, peer: &mut Option<SocketAddr>) {
    let mut buffer = [0; 2048];
    if let Ok((size, from)) = socket.recv_from(&mut buffer) {
        *peer = Some(from);
        let mut data = &buffer[..size];
        // RTCP and RTP share the port, and differ in the packet type (RFC 5761, section 4).
        let packet = if data.get(1).is_some_and(|kind| (192..=223).contains(kind)) {
            rtc_rtcp::packet::unmarshal(&mut data).ok().map(Packet::Rtcp)
        } else {
            rtc_rtp::Packet::unmarshal(&mut data).ok().map(|packet| Packet::Rtp(restored(packet)))
        };
        if let Some(packet) = packet {
            chain.handle_read(at(Instant::now(), packet)).unwrap();
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
    let estimator = match estimator {
        "gcc" => SharedEstimator::new(Gcc::new(300_000.0, FLOOR as f64, CAP as f64)),
        name => SharedEstimator::new(Steadycast::new(name, &[], &bounds).unwrap()),
    };
    let mut chain = Registry::new()
        .with(Slot::CongestionControl, CongestionControlBuilder::new(estimator.paced()).build())
        .with(Slot::TwccSender, TwccSenderBuilder::new().build())
        .with(Slot::Pacer, PacerBuilder::new().with_target_bitrate(estimator.paced().target_bitrate()).build())
        .with(Slot::NackResponder, NackResponderBuilder::new().build())
        .build();
    chain.bind_local_stream(&video_stream());
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(STEP)).unwrap();
    let mut peer = Some(format!("{host}:{PORT}").parse().unwrap());
    let (mut next_frame, mut frames, mut sequence_number) = (Instant::now(), 0_u32, 0_u16);
    loop {
        let now = Instant::now();
        if now >= next_frame {
            next_frame += FRAME_INTERVAL;
            frames += 1;
            let rate = estimator.encoder_bitrate();
            if frames.is_multiple_of(FRAMES_PER_SECOND) {
                println!("{rate:.0} bit/s");
            }
            let mut unsent = ((rate * FRAME_INTERVAL.as_secs_f64() / 8.0) as usize).max(16);
            while unsent > 0 {
                let size = unsent.min(PAYLOAD_MAX);
                unsent -= size;
                let packet = video_packet(now, sequence_number, frames * 3_000, unsent == 0, size);
                chain.handle_write(packet).unwrap();
                sequence_number = sequence_number.wrapping_add(1);
            }
        }
        process(&mut chain, &socket, &mut peer);
    }
}

fn receive() {
    let mut chain = Registry::new()
        .with(Slot::TwccReceiver, TwccReceiverBuilder::new().with_interval(Duration::from_millis(50)).build())
        .with(Slot::NackGenerator, nack_generator())
        .build();
    chain.bind_remote_stream(&video_stream());
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    socket.set_read_timeout(Some(STEP)).unwrap();
    let mut peer = None;
    loop {
        process(&mut chain, &socket, &mut peer);
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
