//! A live sender whose receiver is a browser in small, over a socket of this machine.
#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::disallowed_methods, reason = "the browser lives in real time")]

#[path = "../../web/tests/all/client.rs"]
#[allow(dead_code, reason = "in virtual time it can do more")]
mod client;

use client::{Client, EPOCH, Version, certificate, credentials};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use steadycast_live::{FlowKeys, LiveError, MasterKey, Medium, Next, PairOptions, SendOptions, Sending, Srtp};
use steadycast_live::{SrtpProfile, Steering, To, Unit};
use steadycast_media::{FrameKind, Scale};
use steadycast_units::Time;
use steadycast_web::{Credentials, Keys, SrtpProfile as Agreed, lines};
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

const OFFER: &str = include_str!("../../web/tests/all/offers/chromium.sdp");
/// Its SSRC as a receiver, as Chromium has it.
const RECEIVER: u32 = 1;

/// Chromium's offer with the browser's own name, password and fingerprint.
fn offer() -> String {
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

fn begun(offer: String, ports: std::ops::RangeInclusive<u16>) -> Result<Sending, LiveError> {
    let Value::Object(keys) = json!({ "controller": "steady", "cap": "1Mbps" }) else { panic!() };
    let options = SendOptions {
        flow: FlowKeys::new(keys),
        to: To::Browser { offer, media: Ipv4Addr::LOCALHOST.into(), ports },
        pair: PairOptions::default(),
        cname: "it".into(),
        buffer: None,
        consume: None,
        key: None,
    };
    let steering = Steering {
        fps: (30, 1),
        gop: 300,
        quantizers: (4, 63),
        scale: Scale::Logarithmic(6),
        sizes: vec![(320, 180)],
        own_pace: false,
        overhead: 0,
    };
    Sending::start(options, Medium::Encoder { format: PayloadFormat::Vp8, config: Vec::new(), steering })
}

/// An encoder whose pictures are all of one size.
fn encode(sending: &Sending) {
    let desk = sending.desk.clone().unwrap();
    std::thread::spawn(move || {
        loop {
            match desk.next_job(Duration::from_millis(100)) {
                Next::Job(job) => {
                    let (kind, first) = if job.first { (FrameKind::I, 0x10) } else { (FrameKind::P, 0x11) };
                    let bytes = [vec![first], vec![0; 2_000]].concat();
                    desk.push(Unit { picture: job.picture, kind, quantizer: job.quantizer, bytes });
                }
                Next::Nothing => {}
                Next::Closed => return,
            }
        }
    });
}

/// The browser's protection of what it sends, and opening of what comes.
fn opened(keys: &Keys) -> Srtp {
    let profile = match keys.profile {
        Agreed::AEAD_AES_256_GCM => SrtpProfile::Aes256Gcm,
        Agreed::AEAD_AES_128_GCM => SrtpProfile::Aes128Gcm,
        _ => SrtpProfile::Aes128CmSha1,
    };
    let [client, server] = MasterKey::exported(profile, &keys.material).unwrap();
    Srtp::pair(&client, &server)
}

/// A browser on its socket, and what it has seen.
struct Browser {
    socket: UdpSocket,
    client: Client,
    srtp: Option<Srtp>,
    media: Vec<RtpHeader>,
    numbers: Vec<u16>,
    compounds: Vec<Packet>,
}

impl Browser {
    fn of(answer: &str) -> Self {
        let value = |name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        let own = Credentials { ufrag: value("a=ice-ufrag:"), password: value("a=ice-pwd:") };
        let port = value("m=video ").split(' ').next().unwrap().parse().unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        let client = Client::new(socket.local_addr().unwrap(), server, 2, &own, Version::Either);
        Self { socket, client, srtp: None, media: Vec::new(), numbers: Vec::new(), compounds: Vec::new() }
    }

    fn now() -> Time {
        Time::from_nanos(EPOCH.elapsed().as_nanos() as u64)
    }

    /// Lives until `done`, or for 5 s.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let from = EPOCH.elapsed();
        let mut datagram = [0; 2_048];
        while !done(self) {
            assert!(EPOCH.elapsed() - from < Duration::from_secs(5), "{:?} {:?}", self.client.failed, self.media.len());
            let mut out = Vec::new();
            self.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            match self.socket.recv(&mut datagram) {
                Ok(len) if datagram[0] < 64 => self.client.on_datagram(Self::now(), &datagram[..len], &mut out),
                Ok(len) => self.take(&datagram[..len]),
                Err(_) => {}
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
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let srtp = self.srtp.as_mut().unwrap();
        if steadycast_wire::is_rtcp(datagram) {
            let bytes = srtp.open_rtcp(datagram).unwrap();
            self.compounds.extend(Compound::parse(bytes).unwrap().packets);
            return;
        }
        let (header, mut elements, _) = RtpHeader::parse(srtp.open_rtp(Self::now(), datagram).unwrap()).unwrap();
        let number = elements.find(|(id, _)| *id == 4).and_then(|(_, bytes)| TransportNumber::read(bytes));
        self.numbers.extend(number.map(|number| number.seq));
        self.media.push(header);
    }
}

#[test]
fn a_browser_is_sent_media_under_its_numbers_and_its_first_word_is_heard() {
    let sending = begun(offer(), 41_000..=41_099).unwrap();
    encode(&sending);
    let mut browser = Browser::of(sending.answer().unwrap());
    browser.until(|browser| browser.media.len() > 10);
    assert!(browser.media.iter().all(|header| header.payload_type == 96), "{:?}", browser.media);
    assert_eq!(browser.numbers.len(), browser.media.len());
    // A report of nothing, and a picture loss: a browser's first compound. It has no name.
    let (ssrc, media) = (RECEIVER.to_be_bytes(), browser.media[0].ssrc.to_be_bytes());
    let mut asks = [&[0x80, 201, 0, 1][..], &ssrc, &[0x81, 206, 0, 2], &ssrc, &media].concat();
    browser.srtp.as_mut().unwrap().protect_rtcp(&mut asks, 0);
    browser.socket.send(&asks).unwrap();
    let status = || sending.handle.status(Duration::from_secs(1));
    browser.until(|_| status()["key_frames"].as_u64() == Some(1));
    let way = &status()["browser"];
    let at = browser.client.at.to_string();
    assert_eq!(way, &json!({ "state": "connected", "why": null, "address": at }));
    sending.handle.stop();
    browser.until(|browser| browser.client.closed);
    let bye = |packet: &Packet| matches!(packet, Packet::Bye { ssrcs, .. } if ssrcs.contains(&browser.media[0].ssrc));
    assert!(browser.compounds.iter().any(bye));
    assert!(sending.handle.finish().is_ok());
}

#[test]
fn an_offer_that_can_not_be_taken_says_where() {
    let place = |offer: String, ports| begun(offer, ports).err().map(|error| error.place);
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    assert_eq!(place(offer(), port..=port).as_deref(), Some("media"));
    assert_eq!(place(offer().replace("VP8", "XYZ"), 41_000..=41_099).as_deref(), Some("offer.codec"));
    assert_eq!(place("no offer".into(), 41_000..=41_099).as_deref(), Some("offer.text"));
}
