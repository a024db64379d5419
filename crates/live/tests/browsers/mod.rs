//! A minimal browser on a loopback socket: the sans-IO client of the tunnel's tests in real time.

#[path = "../../../web/tests/all/client.rs"]
mod client;

pub(crate) use client::{Client, EPOCH};
use client::{Version, certificate, credentials};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use steadycast_live::{MasterKey, Srtp, SrtpProfile};
use steadycast_units::Time;
use steadycast_web::{Credentials, Keys, SrtpProfile as NegotiatedProfile, lines};
use steadycast_wire::rtcp::{Compound, Packet, PacketStatus, Ticks, TransportFeedback};

const OFFER: &str = include_str!("../../../web/tests/all/offers/chromium.sdp");

/// Returns Chromium's offer with the browser's credentials and fingerprint.
pub(crate) fn offer() -> String {
    let Credentials { ufrag, password } = credentials(2);
    let digits: Vec<String> = certificate(2).fingerprint.iter().map(|byte| lines::hex(&[*byte])).collect();
    let own = |line: &str| match line.split_once(':').map(|(name, _)| name) {
        Some("a=ice-ufrag") => format!("a=ice-ufrag:{ufrag}"),
        Some("a=ice-pwd") => format!("a=ice-pwd:{password}"),
        Some("a=fingerprint") => format!("a=fingerprint:sha-256 {}", digits.join(":")),
        _ => line.to_owned(),
    };
    OFFER.lines().map(|line| own(line) + "\r\n").collect()
}

/// Returns the SRTP context of the browser.
fn opened(keys: &Keys) -> Srtp {
    let profile = match keys.profile {
        NegotiatedProfile::AEAD_AES_256_GCM => SrtpProfile::Aes256Gcm,
        NegotiatedProfile::AEAD_AES_128_GCM => SrtpProfile::Aes128Gcm,
        _ => SrtpProfile::Aes128CmSha1,
    };
    let [client, server] = MasterKey::exported(profile, &keys.material).unwrap();
    Srtp::pair(&client, &server)
}

/// The transport-wide feedback of a browser that watches, as Chromium sends it: a report each 60 ms, after an empty
/// receiver report.
#[derive(Default)]
pub(crate) struct Feedback {
    media: u32,
    next: u16,
    count: u8,
    came: Vec<(u16, Ticks)>,
    reported: Duration,
}

impl Feedback {
    const APART: Duration = Duration::from_millis(60);

    /// Records the arrival of a packet of this SSRC with this transport-wide number.
    pub(crate) fn on_packet(&mut self, at: Time, ssrc: u32, number: u16) {
        self.came.push((number, Ticks::of(at)));
        self.media = ssrc;
    }

    /// Sends a report if one is due.
    pub(crate) fn send(&mut self, browser: &mut Browser) {
        let now = EPOCH.elapsed();
        let Some(srtp) = browser.srtp.as_mut().filter(|_| !self.came.is_empty() && now >= self.reported + Self::APART)
        else {
            return;
        };
        self.reported = now;
        let last = self.came.iter().map(|(seq, _)| seq.wrapping_sub(self.next)).filter(|ahead| *ahead < 1 << 15).max();
        let mut packets = vec![PacketStatus::Missing; usize::from(last.map_or(0, |last| last + 1))];
        for (seq, at) in self.came.drain(..) {
            if let Some(place) = packets.get_mut(usize::from(seq.wrapping_sub(self.next))) {
                *place = PacketStatus::At(at);
            }
        }
        let feedback =
            TransportFeedback { sender: 1, media: self.media, count: self.count, begin_seq: self.next, packets };
        self.next = self.next.wrapping_add(feedback.packets.len() as u16);
        let parts = feedback.to_packets(1_200);
        self.count = self.count.wrapping_add(parts.len() as u8);
        let packets = [vec![Packet::ReceiverReport { ssrc: 1, blocks: Vec::new() }], parts].concat();
        let mut bytes = Vec::new();
        Compound { packets }.encode(&mut bytes);
        srtp.protect_rtcp(&mut bytes, 0);
        let _ = browser.socket.send(&bytes);
    }
}

/// A browser on its socket.
pub(crate) struct Browser {
    pub(crate) socket: UdpSocket,
    pub(crate) client: Client,
    /// The SRTP context, once the keys are available.
    pub(crate) srtp: Option<Srtp>,
}

impl Browser {
    /// Creates a browser whose offer got this answer.
    pub(crate) fn of(answer: &str) -> Self {
        let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let own = Credentials { ufrag: value("a=ice-ufrag:").into(), password: value("a=ice-pwd:").into() };
        let candidate: Vec<&str> = value("a=candidate:").split(' ').collect();
        let server = SocketAddr::new(candidate[4].parse().unwrap(), candidate[5].parse().unwrap());
        let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(server).unwrap();
        let client = Client::new(socket.local_addr().unwrap(), server, 2, &own, Version::Either);
        Self { socket, client, srtp: None }
    }

    pub(crate) fn now() -> Time {
        Time::from_nanos(EPOCH.elapsed().as_nanos() as u64)
    }

    /// Serves timers, and waits for a datagram up to the socket's timeout. Returns the length of an SRTP datagram.
    pub(crate) fn turn(&mut self, datagram: &mut [u8]) -> Option<usize> {
        let came = self.socket.recv(datagram).ok().filter(|len| *len > 0);
        self.handle(datagram, came)
    }

    /// Serves timers, and handles a datagram of this length, if one has come. Returns the length of an SRTP datagram.
    pub(crate) fn handle(&mut self, datagram: &[u8], came: Option<usize>) -> Option<usize> {
        let mut out = Vec::new();
        let media = came.filter(|_| datagram[0] >= 64);
        if let Some(len) = came.filter(|_| media.is_none()) {
            self.client.on_datagram(Self::now(), &datagram[..len], &mut out);
        }
        if self.client.wake() <= Self::now() {
            self.client.on_wake(Self::now(), &mut out);
        }
        for (_, bytes) in out {
            self.socket.send(&bytes).unwrap();
        }
        if self.srtp.is_none() {
            self.srtp = self.client.keys.as_ref().map(opened);
        }
        media
    }
}
