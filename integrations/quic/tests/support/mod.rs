//! An end of a QUIC connection that carries each frame as a stream, for both stacks. The caller owns the clock and moves
//! the datagrams, so that the tests run in virtual time and the programs for judge over a socket.
#![allow(clippy::unwrap_used, reason = "what stops here is a test, an example or a measurement")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_quic::Steadycast;

/// The time between two frames.
pub const FRAME: Duration = Duration::from_millis(40);
/// The share of a packet that is the frame's.
pub const PAYLOAD: f64 = 0.93;

/// The congestion control of a sender.
#[allow(dead_code, reason = "the tests have no other than Steadycast's")]
pub enum Congestion {
    Steadycast(Arc<Steadycast>),
    /// Steadycast's, with acknowledgements as usual: of every second packet, or 25 ms late.
    UsualAcks(Arc<Steadycast>),
    Cubic,
    Bbr,
}

/// Returns a new certificate and its private key, as DER.
pub fn new_certificate() -> (Vec<u8>, Vec<u8>) {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    (certified.cert.der().to_vec(), certified.signing_key.serialize_der())
}

/// A sender or a receiver of frames.
pub trait Peer: Sized {
    /// Connects to a receiver that has this certificate.
    fn connect(now: Instant, to: SocketAddr, certificate: Vec<u8>, congestion: &Congestion, seed: u8) -> Self;
    /// Waits for a sender.
    fn listen(certificate: Vec<u8>, key: Vec<u8>, seed: u8) -> Self;
    fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]);
    /// Serves the timers that are due, and returns the frames that are complete.
    fn on_time(&mut self, now: Instant) -> Vec<Vec<u8>>;
    /// Sends a frame as a stream, unless `most` streams are unacknowledged or wait.
    fn send_frame(&mut self, frame: &[u8], most: usize);
    /// Writes the next datagram that is due into `buffer`, and returns its destination.
    fn transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<SocketAddr>;
    /// Returns the time of the next timer.
    fn timeout(&mut self) -> Option<Instant>;
    /// Returns the congestion window per round trip, in bits per second.
    #[allow(dead_code, reason = "the tests read Steadycast's decision")]
    fn window_rate(&mut self) -> f64;
}

/// Implements `Peer` for one of the two stacks, which differ in these types and calls.
macro_rules! peer {
    ($peer:ident, $stack:ident, $configure:ident, $bbr:ident, $most:expr, $endpoint:expr, $handle:expr, $path:expr) => {
        pub struct $peer {
            endpoint: $stack::Endpoint,
            connection: Option<($stack::ConnectionHandle, $stack::Connection)>,
            /// The bytes of the streams that have not ended.
            streams: BTreeMap<$stack::StreamId, Vec<u8>>,
        }

        impl $peer {
            fn new(server: Option<Arc<$stack::ServerConfig>>, seed: u8) -> Self {
                let new: fn(_, [u8; 32]) -> $stack::Endpoint = $endpoint;
                Self { endpoint: new(server, [seed; 32]), connection: None, streams: BTreeMap::new() }
            }
        }

        impl Peer for $peer {
            fn connect(now: Instant, to: SocketAddr, certificate: Vec<u8>, congestion: &Congestion, seed: u8) -> Self {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(certificate.into()).unwrap();
                let mut transport = $stack::TransportConfig::default();
                transport.mtu_discovery_config(None);
                match congestion {
                    Congestion::Steadycast(controllers) => controllers.$configure(&mut transport),
                    Congestion::UsualAcks(controllers) => {
                        controllers.$configure(&mut transport);
                        transport.ack_frequency_config(None);
                    }
                    Congestion::Cubic => {
                        let cubic = $stack::congestion::CubicConfig::default();
                        transport.congestion_controller_factory(Arc::new(cubic));
                    }
                    Congestion::Bbr => {
                        transport.congestion_controller_factory(Arc::new($stack::congestion::$bbr::default()));
                    }
                }
                let mut client = $stack::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
                client.transport_config(Arc::new(transport));
                let mut peer = Self::new(None, seed);
                peer.connection = Some(peer.endpoint.connect(now, client, to, "localhost").unwrap());
                peer
            }

            fn listen(certificate: Vec<u8>, key: Vec<u8>, seed: u8) -> Self {
                let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key);
                let mut server = $stack::ServerConfig::with_single_cert(vec![certificate.into()], key.into()).unwrap();
                let mut transport = $stack::TransportConfig::default();
                transport.mtu_discovery_config(None).max_concurrent_uni_streams(10_000_u32.into());
                server.transport_config(Arc::new(transport));
                Self::new(Some(Arc::new(server)), seed)
            }

            fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
                let (handle, mut buffer) = ($handle, Vec::new());
                match handle(&mut self.endpoint, now, from, datagram.into(), &mut buffer) {
                    Some($stack::DatagramEvent::ConnectionEvent(_, event)) => {
                        if let Some((_, connection)) = &mut self.connection {
                            connection.handle_event(event);
                        }
                    }
                    Some($stack::DatagramEvent::NewConnection(incoming)) => {
                        self.connection = self.endpoint.accept(incoming, now, &mut buffer, None).ok();
                    }
                    _ => {}
                }
            }

            fn on_time(&mut self, now: Instant) -> Vec<Vec<u8>> {
                use $stack::{Event, StreamEvent};
                let mut complete = Vec::new();
                let Some((handle, connection)) = &mut self.connection else { return complete };
                if connection.poll_timeout().is_some_and(|at| at <= now) {
                    connection.handle_timeout(now);
                }
                while let Some(event) = connection.poll() {
                    if let Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Readable { .. }) = event {
                        while let Some(stream) = connection.streams().accept($stack::Dir::Uni) {
                            self.streams.insert(stream, Vec::new());
                        }
                    }
                }
                self.streams.retain(|stream, content| {
                    let mut receiving = connection.recv_stream(*stream);
                    let Ok(mut chunks) = receiving.read(true) else { return false };
                    let ended = loop {
                        match chunks.next(usize::MAX) {
                            Ok(Some(chunk)) => content.extend_from_slice(&chunk.bytes),
                            Ok(None) => break true,
                            Err(_) => break false,
                        }
                    };
                    let _ = chunks.finalize();
                    if ended {
                        complete.push(std::mem::take(content));
                    }
                    !ended
                });
                while let Some(event) = connection.poll_endpoint_events() {
                    if let Some(event) = self.endpoint.handle_event(*handle, event) {
                        connection.handle_event(event);
                    }
                }
                complete
            }

            fn send_frame(&mut self, frame: &[u8], most: usize) {
                let Some((_, connection)) = &mut self.connection else { return };
                if connection.streams().send_streams() < most
                    && let Some(stream) = connection.streams().open($stack::Dir::Uni)
                {
                    let mut sending = connection.send_stream(stream);
                    assert_eq!(sending.write(frame).unwrap(), frame.len(), "the send window holds {most} frames");
                    sending.finish().unwrap();
                }
            }

            fn transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<SocketAddr> {
                buffer.clear();
                let sent = self.connection.as_mut()?.1.poll_transmit(now, $most, buffer)?;
                buffer.truncate(sent.size);
                Some(sent.destination)
            }

            fn timeout(&mut self) -> Option<Instant> {
                self.connection.as_mut()?.1.poll_timeout()
            }

            fn window_rate(&mut self) -> f64 {
                let path = $path;
                self.connection.as_mut().map_or(0.0, |(_, connection)| {
                    let (window, rtt): (u64, Duration) = path(connection);
                    window as f64 * 8.0 / rtt.as_secs_f64().max(1e-3)
                })
            }
        }
    };
}

peer!(
    Quinn,
    quinn_proto,
    configure_quinn,
    BbrConfig,
    1,
    |server, seed| quinn_proto::Endpoint::new(Arc::default(), server, false, Some(seed)),
    |endpoint: &mut quinn_proto::Endpoint, now, from, data, buffer| endpoint
        .handle(now, from, None, None, data, buffer),
    |connection: &mut quinn_proto::Connection| {
        let path = connection.stats().path;
        (path.cwnd, path.rtt)
    }
);
peer!(
    Noq,
    noq_proto,
    configure_noq,
    Bbr3Config,
    std::num::NonZeroUsize::MIN,
    |server, seed| {
        let mut config = noq_proto::EndpointConfig::default();
        config.rng_seed(Some(seed));
        noq_proto::Endpoint::new(Arc::new(config), server, false)
    },
    |endpoint: &mut noq_proto::Endpoint, now, from, data, buffer| {
        endpoint.handle(now, noq_proto::FourTuple::new(from, None), None, data, buffer)
    },
    |connection: &mut noq_proto::Connection| {
        let path = connection.path_stats(noq_proto::PathId::ZERO).unwrap_or_default();
        (path.cwnd, path.rtt)
    }
);
