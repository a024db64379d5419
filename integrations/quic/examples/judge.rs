//! A sender and a receiver for `steadycast judge`: `judge send HOST FOLDER STACK CONTROLLER` and `judge receive FOLDER
//! STACK`. STACK is quinn or noq; CONTROLLER is steady, or the stack's own cubic or bbr.
//!
//! Each frame is a stream, 25 in a second. The receiver's certificate is in FOLDER, and so is the record of the frames:
//! the time of each from the sender's encoder to its last byte. Both ends read the same machine's clock.
#![allow(clippy::unwrap_used, reason = "a program of a measurement may stop")]
#![allow(clippy::disallowed_methods, reason = "this program owns its clock and its socket")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use steadycast_quic::{Bounds, Rate, Steadycast};

const PORT: u16 = 5004;
const FRAME: Duration = Duration::from_millis(40);
/// Bounds of the encoder's rate, in bits per second.
const FLOOR: f64 = 100e3;
const CAP: f64 = 4e6;
/// The share of a packet that is the frame's.
const PAYLOAD: f64 = 0.93;
/// Frames are skipped while half a second of them is unacknowledged or waits.
const WAITING: usize = 12;
/// The longest sleep of the loop.
const STEP: Duration = Duration::from_millis(1);

fn micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Waits until a datagram arrives or `until` is reached.
fn received(socket: &UdpSocket, buffer: &mut [u8], until: Instant) -> Option<(usize, SocketAddr)> {
    let wait = until.saturating_duration_since(Instant::now()).clamp(Duration::from_micros(50), STEP);
    socket.set_read_timeout(Some(wait)).unwrap();
    socket.recv_from(buffer).ok()
}

/// The programs for one of the two stacks, which differ in these calls.
macro_rules! stack {
    ($name:ident, $stack:ident, $configure:ident, $endpoint:expr, $handle:expr, $most:expr, $own:expr, $bbr:expr) => {
        mod $name {
            use super::*;
            use $stack::congestion::{ControllerFactory, CubicConfig};
            use $stack::{Connection, DatagramEvent, Dir, Endpoint, Event, StreamEvent};

            fn moved(endpoint: &mut Endpoint, connection: &mut Connection, handle: $stack::ConnectionHandle) {
                while let Some(event) = connection.poll_endpoint_events() {
                    if let Some(event) = endpoint.handle_event(handle, event) {
                        connection.handle_event(event);
                    }
                }
            }

            fn left(connection: &mut Connection, socket: &UdpSocket, buffer: &mut Vec<u8>) {
                loop {
                    buffer.clear();
                    let Some(sent) = connection.poll_transmit(Instant::now(), $most, buffer) else { break };
                    let _ = socket.send_to(&buffer[..sent.size], sent.destination);
                }
            }

            pub fn send(host: &str, folder: &str, controller: &str) {
                let der = std::fs::read(format!("{folder}/certificate.der")).unwrap();
                let mut roots = rustls::RootCertStore::empty();
                roots.add(der.into()).unwrap();
                let bounds = Bounds::new(Rate::bps(FLOOR as u64), Rate::bps((CAP / PAYLOAD) as u64));
                let ours = Steadycast::new("steady", &[], &bounds).unwrap();
                let mut transport = $stack::TransportConfig::default();
                transport.mtu_discovery_config(None);
                let own: Arc<dyn ControllerFactory + Send + Sync> = match controller {
                    "bbr" => $bbr,
                    _ => Arc::new(CubicConfig::default()),
                };
                match controller {
                    "steady" => ours.$configure(&mut transport),
                    "cubic" | "bbr" => drop(transport.congestion_controller_factory(own)),
                    _ => panic!("{controller} is not steady, cubic or bbr"),
                }
                let mut client = $stack::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
                client.transport_config(Arc::new(transport));
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                let to: SocketAddr = format!("{host}:{PORT}").parse().unwrap();
                let new: fn(_, [u8; 32]) -> Endpoint = $endpoint;
                let mut endpoint = new(None, [1; 32]);
                let (handle, mut connection) = endpoint.connect(Instant::now(), client, to, "localhost").unwrap();
                let (mut datagram, mut buffer) = (vec![0; 2048], Vec::new());
                let (mut frame, mut index, mut next) = (Instant::now(), 0_u32, Instant::now());
                loop {
                    if let Some((size, from)) = received(&socket, &mut datagram, next.min(frame)) {
                        let handle = $handle;
                        buffer.clear();
                        let data = bytes::BytesMut::from(&datagram[..size]);
                        if let Some(DatagramEvent::ConnectionEvent(_, event)) =
                            handle(&mut endpoint, Instant::now(), from, data, &mut buffer)
                        {
                            connection.handle_event(event);
                        }
                    }
                    let now = Instant::now();
                    if connection.poll_timeout().is_some_and(|at| at <= now) {
                        connection.handle_timeout(now);
                    }
                    while connection.poll().is_some() {}
                    if now >= frame {
                        frame += FRAME;
                        index += 1;
                        let own = $own;
                        let rate = match controller {
                            "steady" => ours.decision().map_or(FLOOR, |decision| decision.target.as_bps() as f64),
                            _ => own(&mut connection),
                        };
                        let size = (rate * PAYLOAD).clamp(FLOOR, CAP) * FRAME.as_secs_f64() / 8.0;
                        if index % 25 == 0 {
                            println!("{rate:.0} bit/s, {} streams", connection.streams().send_streams());
                        }
                        if !connection.is_handshaking()
                            && connection.streams().send_streams() < WAITING
                            && let Some(stream) = connection.streams().open(Dir::Uni)
                        {
                            let mut content = vec![0; size as usize];
                            content[..8].copy_from_slice(&micros().to_be_bytes());
                            let mut sending = connection.send_stream(stream);
                            assert_eq!(sending.write(&content).unwrap(), content.len(), "half a second fits");
                            sending.finish().unwrap();
                        }
                    }
                    moved(&mut endpoint, &mut connection, handle);
                    left(&mut connection, &socket, &mut buffer);
                    next = connection.poll_timeout().unwrap_or(now + STEP);
                }
            }

            pub fn receive(folder: &str) {
                let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
                let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
                let der = certified.cert.der().clone();
                std::fs::write(format!("{folder}/certificate.der"), &der).unwrap();
                let mut server = $stack::ServerConfig::with_single_cert(vec![der], key.into()).unwrap();
                let mut transport = $stack::TransportConfig::default();
                transport.mtu_discovery_config(None).max_concurrent_uni_streams(10_000_u32.into());
                server.transport_config(Arc::new(transport));
                let mut record = File::create(format!("{folder}/frames.csv")).unwrap();
                let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
                let new: fn(_, [u8; 32]) -> Endpoint = $endpoint;
                let mut endpoint = new(Some(Arc::new(server)), [2; 32]);
                let mut connected = None;
                let (mut datagram, mut buffer) = (vec![0; 2048], Vec::new());
                let (mut frames, mut next) = (BTreeMap::new(), Instant::now());
                loop {
                    if let Some((size, from)) = received(&socket, &mut datagram, next) {
                        let handle = $handle;
                        buffer.clear();
                        let (now, data) = (Instant::now(), bytes::BytesMut::from(&datagram[..size]));
                        match (handle(&mut endpoint, now, from, data, &mut buffer), &mut connected) {
                            (Some(DatagramEvent::ConnectionEvent(_, event)), Some((_, connection))) => {
                                let connection: &mut Connection = connection;
                                connection.handle_event(event);
                            }
                            (Some(DatagramEvent::NewConnection(incoming)), _) => {
                                connected = endpoint.accept(incoming, now, &mut buffer, None).ok();
                            }
                            _ => {}
                        }
                    }
                    let now = Instant::now();
                    next = now + STEP;
                    let Some((handle, connection)) = &mut connected else { continue };
                    if connection.poll_timeout().is_some_and(|at| at <= now) {
                        connection.handle_timeout(now);
                    }
                    while let Some(event) = connection.poll() {
                        if let Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Readable { .. }) = event {
                            while let Some(stream) = connection.streams().accept(Dir::Uni) {
                                frames.insert(stream, Vec::new());
                            }
                        }
                    }
                    frames.retain(|stream, got: &mut Vec<u8>| {
                        let mut receiving = connection.recv_stream(*stream);
                        let Ok(mut chunks) = receiving.read(true) else { return false };
                        let ended = loop {
                            match chunks.next(usize::MAX) {
                                Ok(Some(chunk)) => got.extend_from_slice(&chunk.bytes),
                                Ok(None) => break true,
                                Err(_) => break false,
                            }
                        };
                        let _ = chunks.finalize();
                        if ended {
                            let at = u64::from_be_bytes(got[..8].try_into().unwrap());
                            writeln!(record, "{at},{},{}", micros() - at, got.len()).unwrap();
                        }
                        !ended
                    });
                    moved(&mut endpoint, connection, *handle);
                    left(connection, &socket, &mut buffer);
                    next = connection.poll_timeout().unwrap_or(next);
                }
            }
        }
    };
}

stack!(
    quinn,
    quinn_proto,
    configure_quinn,
    |server, seed| Endpoint::new(Arc::default(), server, false, Some(seed)),
    |endpoint: &mut Endpoint, now, from, data, buffer: &mut Vec<u8>| endpoint
        .handle(now, from, None, None, data, buffer),
    1,
    |connection: &mut Connection| {
        let path = connection.stats().path;
        path.cwnd as f64 * 8.0 / path.rtt.as_secs_f64()
    },
    Arc::new(quinn_proto::congestion::BbrConfig::default())
);
stack!(
    noq,
    noq_proto,
    configure_noq,
    |server, seed| {
        let mut config = noq_proto::EndpointConfig::default();
        config.rng_seed(Some(seed));
        Endpoint::new(Arc::new(config), server, false)
    },
    |endpoint: &mut Endpoint, now, from, data, buffer: &mut Vec<u8>| {
        endpoint.handle(now, noq_proto::FourTuple::new(from, None), None, data, buffer)
    },
    std::num::NonZeroUsize::MIN,
    |connection: &mut Connection| {
        let path = connection.path_stats(noq_proto::PathId::ZERO).unwrap_or_default();
        path.cwnd as f64 * 8.0 / path.rtt.as_secs_f64().max(1e-3)
    },
    Arc::new(noq_proto::congestion::Bbr3Config::default())
);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["send", host, folder, "quinn", controller] => quinn::send(host, folder, controller),
        ["send", host, folder, "noq", controller] => noq::send(host, folder, controller),
        ["receive", folder, "quinn"] => quinn::receive(folder),
        ["receive", folder, "noq"] => noq::receive(folder),
        _ => panic!("judge send HOST FOLDER STACK CONTROLLER, or judge receive FOLDER STACK"),
    }
}
