//! A live sender with a minimal browser as receiver, over loopback sockets.
#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::disallowed_methods, reason = "the browser lives in real time")]

#[allow(dead_code, reason = "in virtual time it can do more")]
mod browsers;

use browsers::{Browser, EPOCH, offer};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use steadycast_live::{
    Destination, EncodedFrame, FlowKeys, LiveError, Medium, NextJob, PairOptions, SendOptions, Sending, Steering,
};
use steadycast_media::{FrameKind, Scale};
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

/// The SSRC of the receiver, as in Chromium.
const RECEIVER: u32 = 1;

fn begun(offer: String, ports: std::ops::RangeInclusive<u16>) -> Result<Sending, LiveError> {
    let Value::Object(keys) = json!({ "controller": "steady", "cap": "1Mbps" }) else { panic!() };
    let options = SendOptions {
        flow: FlowKeys::new(keys),
        to: Destination::Browser { offer, media: Ipv4Addr::LOCALHOST.into(), ports },
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

/// An encoder whose pictures all have the same size.
fn encode(sending: &Sending) {
    let encoder_queue = sending.encoder_queue.clone().unwrap();
    std::thread::spawn(move || {
        loop {
            match encoder_queue.next_job(Duration::from_millis(100)) {
                NextJob::Job(job) => {
                    let (kind, first) = if job.first { (FrameKind::I, 0x10) } else { (FrameKind::P, 0x11) };
                    let bytes = [vec![first], vec![0; 2_000]].concat();
                    encoder_queue.push(EncodedFrame { picture: job.picture, kind, quantizer: job.quantizer, bytes });
                }
                NextJob::Nothing => {}
                NextJob::Closed => return,
            }
        }
    });
}

/// A browser with what it has received.
struct Viewer {
    browser: Browser,
    media: Vec<RtpHeader>,
    numbers: Vec<u16>,
    compounds: Vec<Packet>,
}

impl Viewer {
    fn of(answer: &str) -> Self {
        let browser = Browser::of(answer);
        browser.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Self { browser, media: Vec::new(), numbers: Vec::new(), compounds: Vec::new() }
    }

    /// Runs until `done`, or for 5 s.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let from = EPOCH.elapsed();
        let mut datagram = [0; 2_048];
        while !done(self) {
            let failed = &self.browser.client.failed;
            assert!(EPOCH.elapsed() - from < Duration::from_secs(5), "{failed:?} {:?}", self.media.len());
            if let Some(len) = self.browser.turn(&mut datagram) {
                self.take(&datagram[..len]);
            }
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let srtp = self.browser.srtp.as_mut().unwrap();
        if steadycast_wire::is_rtcp(datagram) {
            let bytes = srtp.open_rtcp(datagram).unwrap();
            self.compounds.extend(Compound::parse(bytes).unwrap().packets);
            return;
        }
        let (header, mut elements, _) = RtpHeader::parse(srtp.open_rtp(Browser::now(), datagram).unwrap()).unwrap();
        let number = elements.find(|(id, _)| *id == 4).and_then(|(_, bytes)| TransportNumber::read(bytes));
        self.numbers.extend(number.map(|number| number.seq));
        self.media.push(header);
    }
}

#[test]
fn a_browser_gets_media_with_its_payload_types_and_its_first_report_counts() {
    let sending = begun(offer(), 41_000..=41_099).unwrap();
    encode(&sending);
    let mut viewer = Viewer::of(&sending.sdp);
    viewer.until(|viewer| viewer.media.len() > 10);
    assert!(viewer.media.iter().all(|header| header.payload_type == 96), "{:?}", viewer.media);
    assert_eq!(viewer.numbers.len(), viewer.media.len());
    // The first compound of a browser: an empty report and a PLI, without a CNAME.
    let (ssrc, media) = (RECEIVER.to_be_bytes(), viewer.media[0].ssrc.to_be_bytes());
    let mut asks = [&[0x80, 201, 0, 1][..], &ssrc, &[0x81, 206, 0, 2], &ssrc, &media].concat();
    viewer.browser.srtp.as_mut().unwrap().protect_rtcp(&mut asks, 0);
    viewer.browser.socket.send(&asks).unwrap();
    let status = || sending.handle.status(Duration::from_secs(1));
    viewer.until(|_| status()["key_frames"].as_u64() == Some(1));
    let connection = &status()["browser"];
    let at = viewer.browser.client.at.to_string();
    let values = ["state", "why", "address", "is_silent"].map(|key| connection[key].clone());
    assert_eq!(values, [json!("connected"), json!(null), json!(at), json!(false)]);
    sending.handle.stop();
    viewer.until(|viewer| viewer.browser.client.closed);
    let bye = |packet: &Packet| matches!(packet, Packet::Bye { ssrcs, .. } if ssrcs.contains(&viewer.media[0].ssrc));
    assert!(viewer.compounds.iter().any(bye));
    assert!(sending.handle.finish().is_ok());
}

#[test]
fn an_unacceptable_offer_is_an_error_with_its_place() {
    let place = |offer: String, ports| begun(offer, ports).err().map(|error| error.place);
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    assert_eq!(place(offer(), port..=port).as_deref(), Some("media"));
    assert_eq!(place(offer().replace("VP8", "XYZ"), 41_000..=41_099).as_deref(), Some("offer.codec"));
    assert_eq!(place("no offer".into(), 41_000..=41_099).as_deref(), Some("offer.text"));
}
