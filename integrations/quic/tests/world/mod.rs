//! A sender of frames and their receiver over a link, in virtual time, for both stacks.
#![allow(clippy::unwrap_used, reason = "what stops here is a test or an example")]
#![allow(
    clippy::disallowed_methods,
    reason = "an `Instant` has no other beginning; the times that follow are computed"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_quic::{Bounds, Decision, Rate, Steadycast};
use steadycast_remote::Seed;

pub struct Path {
    pub bps: u64,
    pub way: Duration,
    pub queue: Duration,
    pub loss: f64,
}

#[derive(Debug)]
pub struct Outcome {
    pub bps: f64,
    /// The 95th percentile of the delay of frames, from the encoder to the last byte at the receiver.
    pub delay: Duration,
    pub lost: u64,
}

const FRAME: Duration = Duration::from_millis(40);
const WARM: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(40);

/// A program for one of the two stacks, which differ in three calls.
macro_rules! stack {
    ($name:ident, $stack:ident, $configure:ident, $endpoint:expr, $handle:expr, $most:expr) => {
        /// Runs 40 s, and measures the last 30 s. `each` is called with the controller's decision once per second.
        pub fn $name(path: &Path, seed: u8, mut each: impl FnMut(&Decision)) -> Outcome {
            use $stack::{Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent};
            let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
            let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certified.cert.der().clone()).unwrap();
            let mut server =
                $stack::ServerConfig::with_single_cert(vec![certified.cert.der().clone()], key.into()).unwrap();
            let mut transport = $stack::TransportConfig::default();
            transport.mtu_discovery_config(None).max_concurrent_uni_streams(10_000_u32.into());
            server.transport_config(Arc::new(transport));
            let bounds = Bounds::new(Rate::kbps(100), Rate::bps(path.bps * 5 / 4));
            let controllers = Steadycast::new("steady", &[], &bounds).unwrap();
            let mut transport = $stack::TransportConfig::default();
            transport.mtu_discovery_config(None);
            controllers.$configure(&mut transport);
            let mut client = $stack::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
            client.transport_config(Arc::new(transport));

            let places: [SocketAddr; 2] = ["10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()];
            let new: fn(_, [u8; 32]) -> Endpoint = $endpoint;
            type End = (Endpoint, Option<(ConnectionHandle, Connection)>);
            let mut ends: [End; 2] = [(new(None, [seed; 32]), None), (new(Some(Arc::new(server)), [seed; 32]), None)];
            let start = Instant::now();
            let (mut now, mut frame, mut free) = (start, start, start);
            ends[0].1 = Some(ends[0].0.connect(now, client, places[1], "localhost").unwrap());
            let mut wires: BTreeMap<(Instant, u64), (usize, Vec<u8>)> = BTreeMap::new();
            let (mut order, mut buffer) = (0, Vec::new());
            let (mut index, mut chance) = (0_u32, Seed(seed.into()).part("link"));
            let (mut bytes, mut lost, mut delays, mut frames) = (0, 0, Vec::new(), BTreeMap::new());
            while now < start + END {
                // 1. The encoder makes a frame at the controller's rate, unless the frames of a second are waiting.
                if now >= frame {
                    frame += FRAME;
                    index += 1;
                    if let (Some((_, connection)), Some(decision)) = (&mut ends[0].1, controllers.decision()) {
                        if index % 25 == 0 {
                            each(&decision);
                        }
                        let size = decision.target.as_bps() as f64 * 0.93 * FRAME.as_secs_f64() / 8.0;
                        if connection.streams().send_streams() < 25
                            && let Some(stream) = connection.streams().open(Dir::Uni)
                        {
                            let mut content = vec![0; (size as usize).max(8)];
                            let at = u64::try_from((now - start).as_nanos()).unwrap();
                            content[..8].copy_from_slice(&at.to_be_bytes());
                            let mut sending = connection.send_stream(stream);
                            assert_eq!(
                                sending.write(&content).unwrap(),
                                content.len(),
                                "the send window holds a second"
                            );
                            sending.finish().unwrap();
                        }
                    }
                }
                // 2. What arrives is read, and answered.
                while let Some((at, to)) = wires.first_key_value().map(|((at, _), (to, _))| (*at, *to)) {
                    if at > now {
                        break;
                    }
                    let Some((_, (_, datagram))) = wires.pop_first() else { break };
                    let (endpoint, connection) = &mut ends[to];
                    buffer.clear();
                    let handle = $handle;
                    let event =
                        handle(endpoint, now, places[1 - to], bytes::BytesMut::from(&datagram[..]), &mut buffer);
                    match event {
                        Some(DatagramEvent::ConnectionEvent(_, event)) => {
                            connection.as_mut().unwrap().1.handle_event(event);
                        }
                        Some(DatagramEvent::NewConnection(incoming)) => {
                            *connection = endpoint.accept(incoming, now, &mut buffer, None).ok();
                        }
                        _ => {}
                    }
                }
                // 3. Both ends send, over the link and back.
                let mut next = frame;
                for (n, (endpoint, connection)) in ends.iter_mut().enumerate() {
                    let Some((handle, connection)) = connection else { continue };
                    if connection.poll_timeout().is_some_and(|at| at <= now) {
                        connection.handle_timeout(now);
                    }
                    while let Some(event) = connection.poll() {
                        match event {
                            Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Readable { .. }) if n == 1 => {
                                while let Some(stream) = connection.streams().accept(Dir::Uni) {
                                    frames.insert(stream, Vec::new());
                                }
                            }
                            _ => {}
                        }
                    }
                    if n == 1 {
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
                            if ended && now > start + WARM {
                                let at = Duration::from_nanos(u64::from_be_bytes(got[..8].try_into().unwrap()));
                                delays.push(now - start - at);
                                bytes += got.len();
                            }
                            !ended
                        });
                    }
                    while let Some(event) = connection.poll_endpoint_events() {
                        if let Some(event) = endpoint.handle_event(*handle, event) {
                            connection.handle_event(event);
                        }
                    }
                    loop {
                        buffer.clear();
                        let Some(sent) = connection.poll_transmit(now, $most, &mut buffer) else { break };
                        let mut arrives = Some(now + path.way);
                        if n == 0 {
                            let fits = free.saturating_duration_since(now) <= path.queue;
                            if fits {
                                let bits = (sent.size as u64 + 28) * 8;
                                free = free.max(now) + Duration::from_nanos(bits * 1_000_000_000 / path.bps);
                            }
                            arrives = (fits && !chance.happens(path.loss)).then_some(free + path.way);
                        }
                        lost += u64::from(arrives.is_none());
                        if let Some(at) = arrives {
                            order += 1;
                            wires.insert((at, order), (1 - n, buffer[..sent.size].to_vec()));
                        }
                    }
                    next = connection.poll_timeout().map_or(next, |at| next.min(at));
                }
                next = wires.first_key_value().map_or(next, |((at, _), _)| next.min(*at));
                now = next.max(now + Duration::from_micros(10));
            }
            delays.sort_unstable();
            let bps = bytes as f64 * 8.0 / (END - WARM).as_secs_f64();
            Outcome { bps, delay: delays[delays.len() * 95 / 100], lost }
        }
    };
}

stack!(
    over_quinn,
    quinn_proto,
    configure_quinn,
    |server, seed| Endpoint::new(Arc::default(), server, false, Some(seed)),
    |endpoint: &mut Endpoint, now, from, data, buffer: &mut Vec<u8>| endpoint
        .handle(now, from, None, None, data, buffer),
    1
);
stack!(
    over_noq,
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
    std::num::NonZeroUsize::MIN
);

/// 5 Mb/s with 100 ms of round trip and 500 ms of queue.
pub const LONG: Path =
    Path { bps: 5_000_000, way: Duration::from_millis(50), queue: Duration::from_millis(500), loss: 0.0 };
/// 2 Mb/s with 50 ms of round trip and 100 ms of queue, which loses 1 %.
pub const LOSSY: Path =
    Path { bps: 2_000_000, way: Duration::from_millis(25), queue: Duration::from_millis(100), loss: 0.01 };
