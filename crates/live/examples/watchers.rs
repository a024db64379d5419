//! Many minimal browsers in one thread. They watch a stream of `steadycast serve`, and report each packet as Chromium
//! does. `watchers http://HOST:PORT/#token=TOKEN COUNT SECONDS` prints one line of JSON.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it lives in real time, and may stop")]

#[path = "../tests/browsers/mod.rs"]
#[allow(dead_code, reason = "a test uses more of it")]
mod browsers;

use browsers::{Browser, EPOCH, offer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use steadycast_wire::rtcp::{Compound, Packet, PacketStatus, Ticks, TransportFeedback};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

/// Interval between two reports of a viewer.
const APART: Duration = Duration::from_millis(60);
/// Interval between two offers, because the server accepts ten per second.
const OFFERS: Duration = Duration::from_millis(120);
/// Time after the last viewer has connected, before rates are measured.
const SETTLING: Duration = Duration::from_secs(5);

struct Viewer {
    browser: Browser,
    media: u32,
    next: u16,
    count: u8,
    came: Vec<(u16, Ticks)>,
    reported: Duration,
    bytes: u64,
}

impl Viewer {
    fn of(answer: &str) -> Self {
        let browser = Browser::of(answer);
        browser.socket.set_nonblocking(true).unwrap();
        let (came, reported) = (Vec::new(), EPOCH.elapsed());
        Self { browser, media: 0, next: 0, count: 0, came, reported, bytes: 0 }
    }

    fn read(&mut self) {
        let mut datagram = [0; 2_048];
        while let Some(len) = self.browser.turn(&mut datagram) {
            // SRTP headers are not encrypted, and nothing else is needed.
            let datagram = &datagram[..len];
            let Ok((header, mut elements, _)) = RtpHeader::parse(datagram) else { continue };
            if steadycast_wire::is_rtcp(datagram) {
                continue;
            }
            self.bytes += len as u64 + 28;
            let number = elements.find(|(id, _)| *id == 4).and_then(|(_, bytes)| TransportNumber::read(bytes));
            let Some(number) = number else { continue };
            self.came.push((number.seq, Ticks::of(Browser::now())));
            self.media = header.ssrc;
        }
    }

    fn report(&mut self, now: Duration) {
        let Some(srtp) = self.browser.srtp.as_mut().filter(|_| !self.came.is_empty() && now >= self.reported + APART)
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
        let _ = self.browser.socket.send(&bytes);
    }
}

/// Sends an offer and returns the answer, or `None` if the server has no free place yet.
fn answered(host: &str, token: &str) -> Option<String> {
    let offer = offer();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "POST /whep/video HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/sdp\r\ncontent-length: {}\r\n\r\n{offer}",
        offer.len(),
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    match head.split(' ').nth(1).unwrap() {
        "201" => Some(body.to_owned()),
        "429" | "503" => None,
        _ => panic!("{text}"),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, page, count, seconds] = &words[..] else {
        eprintln!("watchers http://HOST:PORT/#token=TOKEN COUNT SECONDS");
        std::process::exit(2);
    };
    let (host, token) = page.strip_prefix("http://").and_then(|page| page.split_once("/#token=")).unwrap();
    let (count, seconds): (usize, u64) = (count.parse().unwrap(), seconds.parse().unwrap());
    let (mut viewers, mut asked, mut began) = (Vec::<Viewer>::new(), Duration::ZERO, None);
    let mut before = Vec::new();
    loop {
        let now = EPOCH.elapsed();
        if viewers.len() < count && now >= asked + OFFERS {
            asked = now;
            viewers.extend(answered(host, token).map(|answer| Viewer::of(&answer)));
        }
        if viewers.len() == count && viewers.iter().all(|viewer| viewer.browser.srtp.is_some()) {
            let began = *began.get_or_insert(now) + SETTLING;
            if before.is_empty() && now >= began {
                before = viewers.iter().map(|viewer| viewer.bytes).collect();
            }
            if now >= began + Duration::from_secs(seconds) {
                break;
            }
        }
        let mut fds: Vec<_> = viewers.iter().map(|it| PollFd::new(&it.browser.socket, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 })).unwrap();
        for viewer in &mut viewers {
            viewer.read();
            viewer.report(now);
        }
    }
    let grown = viewers.iter().zip(&before).map(|(viewer, before)| viewer.bytes - before);
    let mut rates: Vec<f64> = grown.map(|bytes| bytes as f64 * 8e-3 / seconds as f64).collect();
    rates.sort_by(f64::total_cmp);
    println!("{{\"viewers\":{count},\"kbps\":{{\"least\":{:.0},\"median\":{:.0}}}}}", rates[0], rates[count / 2]);
}
