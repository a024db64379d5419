//! Runs many minimal browsers in one thread. They watch a stream of `steadycast serve` and report each packet as
//! Chromium does. `watchers http://HOST:PORT/#token=TOKEN COUNT SECONDS` prints one line of JSON.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it lives in real time, and may stop")]

#[path = "../tests/browsers/mod.rs"]
#[allow(dead_code, reason = "a test uses more of it")]
mod browsers;

use browsers::{Browser, EPOCH, Feedback, offer};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, UNIX_EPOCH};
use steadycast_units::Time;
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

/// Time between two offers. The server accepts ten offers per second.
const OFFERS: Duration = Duration::from_millis(120);
/// Time between the last browser's connection and the start of the measurement.
const SETTLING: Duration = Duration::from_secs(5);

struct Viewer {
    browser: Browser,
    state: UdpSocketState,
    feedback: Feedback,
    bytes: u64,
}

impl Viewer {
    fn of(answer: &str) -> Self {
        let browser = Browser::of(answer);
        let state = UdpSocketState::new(UdpSockRef::from(&browser.socket)).unwrap();
        Self { browser, state, feedback: Feedback::default(), bytes: 0 }
    }

    /// Returns the length of a datagram and the time at which the kernel received it.
    fn receive(&self, datagram: &mut [u8]) -> Option<(usize, Time)> {
        let (mut meta, buffers) = ([RecvMeta::default()], &mut [IoSliceMut::new(datagram)]);
        self.state.recv(UdpSockRef::from(&self.browser.socket), buffers, &mut meta).ok().filter(|count| *count > 0)?;
        let age = meta[0].timestamp.and_then(|at| UNIX_EPOCH.elapsed().ok()?.checked_sub(at)).unwrap_or_default();
        let at = EPOCH.elapsed().saturating_sub(age);
        Some((meta[0].len, Time::from_nanos(at.as_nanos() as u64)))
    }

    fn read(&mut self) {
        let mut datagram = [0; 2_048];
        while let Some((len, at)) = self.receive(&mut datagram) {
            let Some(len) = self.browser.handle(&datagram, Some(len)) else { continue };
            // The RTP header can be read although the payload is encrypted, because SRTP does not encrypt headers.
            let datagram = &datagram[..len];
            let Ok((header, mut elements, _)) = RtpHeader::parse(datagram) else { continue };
            if steadycast_wire::is_rtcp(datagram) {
                continue;
            }
            self.bytes += len as u64 + 28;
            let number = elements.find(|(id, _)| *id == 4).and_then(|(_, bytes)| TransportNumber::read(bytes));
            if let Some(number) = number {
                self.feedback.on_packet(at, header.ssrc, number.seq);
            }
        }
        self.browser.handle(&[], None); // its timers
    }
}

/// Sends an offer and returns the answer. Returns `None` if the server has no free place yet.
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
            viewer.feedback.send(&mut viewer.browser);
        }
    }
    let grown = viewers.iter().zip(&before).map(|(viewer, before)| viewer.bytes - before);
    let mut rates: Vec<f64> = grown.map(|bytes| bytes as f64 * 8e-3 / seconds as f64).collect();
    rates.sort_by(f64::total_cmp);
    println!("{{\"viewers\":{count},\"kbps\":{{\"least\":{:.0},\"median\":{:.0}}}}}", rates[0], rates[count / 2]);
}
