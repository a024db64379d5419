//! A tunnel and a browser on a link, in virtual time.

use crate::client::{Client, EPOCH, Version, address, certificate, credentials};
use std::net::SocketAddr;
use steadycast_link::{BernoulliLoss, Config as LinkConfig, Ecn, Fate, Jitter, JitterDist, Link, Loss, Steps};
use steadycast_units::{Bytes, Seed, Span, Time};
use steadycast_web::{Keys, Output, Role, State, Tunnel, TunnelParameters};

/// Returns a link with this loss rate and a variable delay around 20 ms, which reorders and duplicates packets.
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

/// A datagram in flight: arrival time, direction, source address and bytes.
type Flying = (Time, bool, SocketAddr, Vec<u8>);

/// A tunnel and a browser on a link.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) tunnel: Tunnel,
    pub(crate) client: Client,
    links: [Link; 2],
    flying: Vec<Flying>,
    /// Outputs of the tunnel other than datagrams.
    pub(crate) said: Vec<Output>,
    /// All datagrams of the browser. `answered` are the addresses and sizes of the datagrams of the tunnel.
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>)>,
    pub(crate) answered: Vec<(SocketAddr, usize)>,
}

/// Returns the parameters of a tunnel to this browser.
pub(crate) fn ends(client: u8) -> TunnelParameters {
    let peer = credentials(client);
    let fingerprints = vec![certificate(client).fingerprint];
    TunnelParameters { local: address(SERVER), own: credentials(1), peer, fingerprints, role: Role::Answerer }
}

impl World {
    pub(crate) fn new(ends: TunnelParameters, client: Client, link: &LinkConfig, seed: Seed) -> Self {
        let tunnel = Tunnel::new(*EPOCH, Time::ZERO, ends, &certificate(1)).unwrap();
        let links = ["forth", "back"].map(|name| Link::new(link, name, seed));
        let (flying, said, sent, answered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { now: Time::ZERO, tunnel, client, links, flying, said, sent, answered }
    }

    /// Creates a world with an honest browser.
    pub(crate) fn honest(version: Version, link: &LinkConfig, seed: Seed) -> Self {
        let client = Client::new(address(CLIENT), address(SERVER), 2, &credentials(1), version);
        Self::new(ends(2), client, link, seed)
    }

    /// Sets the loss rate of both directions.
    pub(crate) fn set_loss(&mut self, loss: f64, seed: Seed) {
        self.links = ["forth", "back"].map(|name| Link::new(&rough(loss), name, seed));
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

    /// Takes the outputs of the tunnel.
    pub(crate) fn settle(&mut self) {
        while let Some(output) = self.tunnel.poll() {
            match output {
                Output::Send(to, bytes) => {
                    self.answered.push((to, bytes.len()));
                    // A datagram to another address does not reach the browser.
                    if to == self.client.at {
                        self.carry(false, address(SERVER), &bytes);
                    }
                }
                other => self.said.push(other),
            }
        }
    }

    /// Runs until this time, or until `done`.
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

    /// Returns the keys of the tunnel.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.said.iter().find_map(|output| if let Output::Keys(keys) = output { Some(keys) } else { None })
    }

    pub(crate) fn connected(&self) -> bool {
        self.client.keys.is_some() && self.tunnel.state() == State::Connected
    }
}
