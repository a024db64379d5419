//! A minimal browser: full ICE and a DTLS client, from the same crates as the tunnel.

#![allow(clippy::disallowed_methods, reason = "the crates count from an instant, and only the clock gives one")]

use dimpl::{Config, Dtls};
use is::{Candidate, IceAgent, IceAgentEvent, IceCreds, Protocol, stun::StunMessage, stun::StunPacket};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use steadycast_units::Time;
use steadycast_web::{Certificate, Credentials, Keys};

/// The instant of time zero.
pub(crate) static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn instant(time: Time) -> Instant {
    *EPOCH + Duration::from_nanos(time.as_nanos())
}

/// Returns certificate number `number`.
pub(crate) fn certificate(number: u8) -> Certificate {
    Certificate::new(&[number; 32]).unwrap()
}

/// Returns credentials number `number`.
pub(crate) fn credentials(number: u8) -> Credentials {
    Credentials::of(&[number; 24])
}

fn creds(of: &Credentials) -> IceCreds {
    IceCreds { ufrag: of.ufrag.clone(), pass: of.password.clone() }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The DTLS version of a browser.
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
    /// Creates a browser with these credentials of the other end.
    pub(crate) fn new(at: SocketAddr, server: SocketAddr, own: u8, theirs: &Credentials, version: Version) -> Self {
        let mut ice = IceAgent::new(creds(&credentials(own)));
        ice.set_controlling(true);
        ice.set_remote_credentials(creds(theirs));
        ice.add_local_candidate(Candidate::host(at, "udp").unwrap());
        ice.add_remote_candidate(Candidate::host(server, "udp").unwrap());
        // WebRTC uses an initial retransmission timeout of 50 ms.
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

    /// Makes the browser the controlled end of ICE, as the answerer of an offer. It remains the DTLS client.
    pub(crate) fn controlled(mut self) -> Self {
        self.ice.set_controlling(false);
        self
    }

    /// Moves the browser to another address.
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
