//! A sender and a receiver for `steadycast judge`: `judge send HOST FOLDER STACK CONTROLLER` and `judge receive FOLDER
//! STACK`. STACK is quinn or noq; CONTROLLER is steady, or the stack's own cubic or bbr.
//!
//! The sender opens a stream for each frame, 25 per second. FOLDER contains the receiver's certificate, and the record
//! of the frames: each frame's time from the sender's encoder to the arrival of its last byte. Both ends read the clock
//! of the same machine.
#![allow(clippy::unwrap_used, reason = "a program of a measurement may stop")]
#![allow(clippy::disallowed_methods, reason = "this program owns its clock and its socket")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use steadycast_quic::{Bounds, Rate, Steadycast};
use support::{Congestion, FRAME, Noq, PAYLOAD, Peer, Quinn};

const PORT: u16 = 5004;
/// Bounds of the encoder's rate, in bits per second.
const FLOOR: f64 = 100e3;
const CAP: f64 = 4e6;
/// Frames are skipped while this many (half a second) are queued or unacknowledged.
const WAITING: usize = 12;
const STEP: Duration = Duration::from_millis(1);

fn micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Passes a datagram to the peer, if one arrives before `until`.
fn receive_datagram(peer: &mut impl Peer, socket: &UdpSocket, datagram: &mut [u8], until: Instant) {
    let wait = until.saturating_duration_since(Instant::now()).clamp(Duration::from_micros(50), STEP);
    socket.set_read_timeout(Some(wait)).unwrap();
    if let Ok((size, from)) = socket.recv_from(datagram) {
        peer.on_datagram(Instant::now(), from, &datagram[..size]);
    }
}

fn send_datagrams(peer: &mut impl Peer, socket: &UdpSocket, buffer: &mut Vec<u8>) {
    while let Some(to) = peer.transmit(Instant::now(), buffer) {
        let _ = socket.send_to(buffer, to);
    }
}

fn send<P: Peer>(host: &str, folder: &str, controller: &str) {
    let bounds = Bounds::new(Rate::bps(FLOOR as u64), Rate::bps((CAP / PAYLOAD) as u64));
    let ours = Steadycast::new("steady", &[], &bounds).unwrap();
    let congestion = match controller {
        "steady" => Congestion::Steadycast(Arc::clone(&ours)),
        "cubic" => Congestion::Cubic,
        "bbr" => Congestion::Bbr,
        _ => panic!("{controller} is not steady, cubic or bbr"),
    };
    let certificate = std::fs::read(format!("{folder}/certificate.der")).unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let to: SocketAddr = format!("{host}:{PORT}").parse().unwrap();
    let mut peer = P::connect(Instant::now(), to, certificate, &congestion, 1);
    let (mut datagram, mut buffer) = (vec![0; 2048], Vec::new());
    let (mut frame, mut index, mut next) = (Instant::now(), 0_u32, Instant::now());
    loop {
        receive_datagram(&mut peer, &socket, &mut datagram, next.min(frame));
        let now = Instant::now();
        peer.on_time(now);
        if now >= frame {
            frame += FRAME;
            index += 1;
            let decision = ours.decision();
            let rate = decision.as_ref().map_or_else(|| peer.window_rate(), |decision| decision.target.as_bps() as f64);
            if index % 5 == 0 {
                let rule = decision.as_ref().map_or(controller, |decision| &decision.why.rule);
                println!("{} {rate:.0} bit/s, {rule}", micros() / 1000);
            }
            let size = (rate * PAYLOAD).clamp(FLOOR, CAP) * FRAME.as_secs_f64() / 8.0;
            let mut content = vec![0; size as usize];
            content[..8].copy_from_slice(&micros().to_be_bytes());
            peer.send_frame(&content, WAITING);
        }
        send_datagrams(&mut peer, &socket, &mut buffer);
        next = peer.timeout().unwrap_or(now + STEP);
    }
}

fn receive<P: Peer>(folder: &str) {
    let (certificate, key) = support::new_certificate();
    std::fs::write(format!("{folder}/certificate.der"), &certificate).unwrap();
    let mut record = File::create(format!("{folder}/frames.csv")).unwrap();
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let mut peer = P::listen(certificate, key, 2);
    let (mut datagram, mut buffer, mut next) = (vec![0; 2048], Vec::new(), Instant::now());
    loop {
        receive_datagram(&mut peer, &socket, &mut datagram, next);
        let now = Instant::now();
        for content in peer.on_time(now) {
            let at = u64::from_be_bytes(content[..8].try_into().unwrap());
            writeln!(record, "{at},{},{}", micros() - at, content.len()).unwrap();
        }
        send_datagrams(&mut peer, &socket, &mut buffer);
        next = peer.timeout().unwrap_or(now + STEP);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["send", host, folder, "quinn", controller] => send::<Quinn>(host, folder, controller),
        ["send", host, folder, "noq", controller] => send::<Noq>(host, folder, controller),
        ["receive", folder, "quinn"] => receive::<Quinn>(folder),
        ["receive", folder, "noq"] => receive::<Noq>(folder),
        _ => panic!("judge send HOST FOLDER STACK CONTROLLER, or judge receive FOLDER STACK"),
    }
}
