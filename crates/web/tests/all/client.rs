//! A browser in small: full ICE and the client's side of DTLS, from the crates whose other halves a tunnel is made of.

#![allow(clippy::disallowed_methods, reason = "the crates count from an instant, and only the clock gives one")]

use dimpl::{Config, Dtls};
use is::{Candidate, IceAgent, IceAgentEvent, IceCreds, Protocol, stun::StunMessage, stun::StunPacket};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use steadycast_link::{BernoulliLoss, Config as LinkConfig, Ecn, Fate, Jitter, JitterDist, Link, Loss, Steps};
use steadycast_units::{Bytes, Seed, Span, Time};
use steadycast_web::{Certificate, Credentials, Ends, Keys, Output, State, Tunnel};

/// Time zero.
pub(crate) static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn instant(time: Time) -> Instant {
    *EPOCH + Duration::from_nanos(time.as_nanos())
}

/// A certificate of this number.
pub(crate) fn certificate(number: u8) -> Certificate {
    Certificate::new(&[number; 32]).unwrap()
}

/// Credentials of this number.
pub(crate) fn credentials(number: u8) -> Credentials {
    Credentials::of(&[number; 24])
}

fn creds(of: &Credentials) -> IceCreds {
    IceCreds { ufrag: of.ufrag.clone(), pass: of.password.clone() }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Which version of DTLS a browser speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Version {
    V12,
    V13,
    Either,
}

pub(crate) struct Client {
    pub(crate) at: SocketAddr,
    server: SocketAddr,
    ice: IceAgent,
    pub(crate) dtls: Dtls,
    dtls_wake: Time,
    nominated: bool,
    pub(crate) keys: Option<Keys>,
    pub(crate) closed: bool,
    pub(crate) failed: Option<String>,
}

impl Client {
    /// A browser that was told `password` as the other end's.
    pub(crate) fn new(at: SocketAddr, server: SocketAddr, own: u8, theirs: &Credentials, version: Version) -> Self {
        let mut ice = IceAgent::new(creds(&credentials(own)));
        ice.set_controlling(true);
        ice.set_remote_credentials(creds(theirs));
        ice.add_local_candidate(Candidate::host(at, "udp").unwrap());
        ice.add_remote_candidate(Candidate::host(server, "udp").unwrap());
        // As WebRTC's: its first wait is 50 ms.
        let config = Config::builder().flight_start_rto(Duration::from_millis(50)).flight_retries(8).build().unwrap();
        let (config, certificate) = (Arc::new(config), certificate(own).dtls);
        let start = instant(Time::ZERO);
        let mut dtls = match version {
            Version::V12 => Dtls::new_12(config, certificate, start),
            Version::V13 => Dtls::new_13(config, certificate, start),
            Version::Either => Dtls::new_auto(config, certificate, start),
        };
        dtls.set_active(true);
        let (keys, failed) = (None, None);
        Self { at, server, ice, dtls, dtls_wake: Time::NEVER, nominated: false, keys, closed: false, failed }
    }

    /// It is elsewhere from now on.
    pub(crate) fn moved(&mut self, to: SocketAddr) {
        self.ice.invalidate_candidate(&Candidate::host(self.at, "udp").unwrap());
        self.at = to;
        self.ice.add_local_candidate(Candidate::host(to, "udp").unwrap());
    }

    pub(crate) fn wake(&mut self) -> Time {
        let ice = self
            .ice
            .poll_timeout()
            .map_or(Time::ZERO, |at| Time::from_nanos(at.saturating_duration_since(*EPOCH).as_nanos() as u64));
        ice.min(if self.nominated { self.dtls_wake } else { Time::NEVER })
    }

    pub(crate) fn on_wake(&mut self, now: Time, out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        self.ice.handle_timeout(instant(now));
        self.drain(now, out);
    }

    pub(crate) fn on_datagram(&mut self, now: Time, datagram: &[u8], out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        if datagram[0] < 4 {
            let Ok(message) = StunMessage::parse(datagram) else { return };
            let packet = StunPacket { proto: Protocol::Udp, source: self.server, destination: self.at, message };
            self.ice.handle_packet(instant(now), packet);
            self.ice.handle_timeout(instant(now));
        } else {
            let done = self.dtls.handle_timeout(instant(now)).and_then(|()| self.dtls.handle_packet(datagram));
            self.failed = self.failed.take().or(done.err().map(|error| error.to_string()));
        }
        self.drain(now, out);
    }

    fn drain(&mut self, now: Time, out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        while let Some(event) = self.ice.poll_event() {
            self.nominated |= matches!(event, IceAgentEvent::NominatedSend { .. });
        }
        while let Some(transmit) = self.ice.poll_transmit() {
            out.push((transmit.source, transmit.contents.to_vec()));
        }
        if !self.nominated || self.failed.is_some() {
            return;
        }
        if let Err(error) = self.dtls.handle_timeout(instant(now)) {
            self.failed = Some(error.to_string());
        }
        let mut buffer = vec![0; 4_096];
        loop {
            match self.dtls.poll_output(&mut buffer) {
                dimpl::Output::Packet(bytes) => out.push((self.at, bytes.to_vec())),
                dimpl::Output::KeyingMaterial(bytes, profile) => {
                    self.keys = Some(Keys { profile, material: bytes.to_vec() });
                }
                dimpl::Output::CloseNotify => self.closed = true,
                dimpl::Output::Timeout(at) => {
                    let after = at.saturating_duration_since(*EPOCH).as_nanos();
                    self.dtls_wake = Time::from_nanos(u64::try_from(after).unwrap_or(u64::MAX));
                    return;
                }
                _ => {}
            }
        }
    }
}

/// A link that loses this share, has a delay of 20 ms that varies so that packets overtake each other, and brings some
/// twice.
pub(crate) fn rough(loss: f64) -> LinkConfig {
    let jitter = Jitter { mean: Span::millis(5), dist: JitterDist::Exponential, reorder: true };
    LinkConfig {
        delay: Steps::constant(Span::millis(20)),
        jitter: Steps::constant(Some(jitter)),
        loss: Steps::constant(Loss::Bernoulli(BernoulliLoss { p: loss })),
        duplicate: Steps::constant(0.05),
        ..LinkConfig::default()
    }
}

pub(crate) const SERVER: &str = "192.0.2.1:40000";
pub(crate) const CLIENT: &str = "198.51.100.7:50000";

/// Who is told a datagram, from where it came, and its bytes.
type Flying = (Time, bool, SocketAddr, Vec<u8>);

/// A tunnel and a browser on a link.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) tunnel: Tunnel,
    pub(crate) client: Client,
    links: [Link; 2],
    flying: Vec<Flying>,
    /// What the tunnel let go beside datagrams.
    pub(crate) said: Vec<Output>,
    /// All datagrams of the browser, and how many bytes the tunnel sent to which address.
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) answered: Vec<(SocketAddr, usize)>,
}

/// The ends of a tunnel to the browser of this number.
pub(crate) fn ends(client: u8) -> Ends {
    let peer = credentials(client);
    let fingerprints = vec![certificate(client).fingerprint];
    Ends { local: address(SERVER), own: credentials(1), peer, fingerprints }
}

impl World {
    pub(crate) fn new(ends: Ends, client: Client, link: &LinkConfig, seed: Seed) -> Self {
        let tunnel = Tunnel::new(*EPOCH, Time::ZERO, ends, &certificate(1)).unwrap();
        let links = ["forth", "back"].map(|name| Link::new(link, name, seed));
        let (flying, said, sent, answered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now: Time::ZERO, tunnel, client, links, flying, said, sent, answered }
    }

    /// An honest browser.
    pub(crate) fn honest(version: Version, link: &LinkConfig, seed: Seed) -> Self {
        let client = Client::new(address(CLIENT), address(SERVER), 2, &credentials(1), version);
        Self::new(ends(2), client, link, seed)
    }

    fn carry(&mut self, to_server: bool, from: SocketAddr, bytes: &[u8]) {
        let link = &mut self.links[usize::from(!to_server)];
        if let Fate::Arrives { at, .. } = link.offer(self.now, Bytes::new(bytes.len() as u64 + 28), Ecn::NotEct) {
            self.flying.push((at, to_server, from, bytes.to_vec()));
            if let Some(at) = link.copy() {
                self.flying.push((at, to_server, from, bytes.to_vec()));
            }
        }
    }

    /// Takes what the tunnel lets go.
    pub(crate) fn settle(&mut self) {
        while let Some(output) = self.tunnel.poll() {
            match output {
                Output::Send(to, bytes) => {
                    self.answered.push((to, bytes.len()));
                    // Whoever is elsewhere does not get it.
                    if to == self.client.at {
                        self.carry(false, address(SERVER), &bytes);
                    }
                }
                other => self.said.push(other),
            }
        }
    }

    /// Goes on until this time, or until `done`.
    pub(crate) fn run(&mut self, until: Time, done: impl Fn(&Self) -> bool) {
        while self.now < until && !done(self) {
            let next = self.flying.iter().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER);
            self.now = next.min(self.client.wake()).min(self.tunnel.wake()).min(until).max(self.now);
            let mut out = Vec::new();
            while let Some(n) = self.flying.iter().position(|(at, ..)| *at <= self.now) {
                let (_, to_server, from, bytes) = self.flying.remove(n);
                if to_server {
                    self.tunnel.on_datagram(self.now, from, &bytes);
                } else {
                    self.client.on_datagram(self.now, &bytes, &mut out);
                }
            }
            if self.client.wake() <= self.now {
                self.client.on_wake(self.now, &mut out);
            }
            if self.tunnel.wake() <= self.now {
                self.tunnel.on_wake(self.now);
            }
            for (from, bytes) in out {
                self.carry(true, from, &bytes);
                self.sent.push((from, bytes));
            }
            self.settle();
        }
    }

    /// The tunnel's keys.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.said.iter().find_map(|output| if let Output::Keys(keys) = output { Some(keys) } else { None })
    }

    pub(crate) fn connected(&self) -> bool {
        self.client.keys.is_some() && self.tunnel.state() == State::Connected
    }
}
