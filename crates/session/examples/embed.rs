//! A program that embeds Steadycast: it has a sender and a receiver on two UDP sockets. Run it with:
//! `cargo run -p steadycast-session --example embed`.
//!
//! `docs/embedding-reference.md` explains it step by step.
#![allow(clippy::disallowed_methods, reason = "the program owns the clock, as an embedding program does")]

use std::io::ErrorKind::WouldBlock;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_session::{Frame, FrameKind, SenderSettings};
use steadycast_session::{Identity, Origin, Output, Profile, Receiver, RtcpSettings, Sender};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};

const PACKET: Bytes = Bytes::new(1200);
const FRAMES_PER_SECOND: u64 = 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sent, received, reports) = run()?;
    println!("{sent} packets sent, {received} received, {reports} reports");
    Ok(())
}

/// Sends for one second. Returns the number of packets sent, the number of packets received, and the number of reports.
pub(crate) fn run() -> Result<(u32, u64, u64), Box<dyn std::error::Error>> {
    let (to_receiver, to_sender) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    to_receiver.connect(to_sender.local_addr()?)?;
    to_sender.connect(to_receiver.local_addr()?)?;
    [&to_receiver, &to_sender].into_iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let factory = Chosen::shared("tfrc", Mode::Repaired, &[])?;
    let seed = Seed(1); // a real program takes the seed and the SSRCs from the system's random source
    let bandwidth = Rate::mbps(4);
    let setup = |id| Setup {
        packet: PACKET,
        id: ReceiverId(id),
        ..Setup::unicast(Rate::kbps(100), bandwidth, seed.part("half"))
    };
    let rtcp = RtcpSettings::new(Profile::Rfc3550, bandwidth);
    let who = |ssrc| Identity { ssrc, cname: format!("{ssrc}@localhost") };
    let settings =
        SenderSettings { credit: Span::millis(5), ..SenderSettings::new(who(1), rtcp, PACKET, factory.terms().app) };
    let mut sender = Sender::new(settings, factory.sender(&setup(1)), seed.part("sender"), Time::ZERO);
    let half = factory.receiver(&setup(2));
    let mut receiver = Receiver::new(who(2), rtcp, factory.terms().app, half, seed.part("receiver"), Time::ZERO);

    let began = Instant::now();
    let now = || Time::from_nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let end = Time::ZERO + Span::secs(1);
    let (mut frames, mut buffer) = (0_u32, [0; 2048]);
    while now() < end {
        // 1. Push a frame. The controller's target determines its size.
        let sampled = Time::ZERO + Span::secs(1) / FRAMES_PER_SECOND * u64::from(frames);
        if now() >= sampled {
            let size = sender.decision().target.over(Span::secs(1) / FRAMES_PER_SECOND);
            sender.push_frame(now(), &Frame { index: frames, kind: FrameKind::P, size, sampled });
            frames += 1;
        }
        // 2. Send the packets that the sender and the receiver return, until each of them returns `Wait`.
        let mut wake = end.min(sampled);
        for (socket, is_sender) in [(&to_receiver, true), (&to_sender, false)] {
            loop {
                let output = if is_sender { sender.poll(now()) } else { receiver.poll(now()) };
                match output {
                    Output::Media(media) => {
                        let mut datagram = Vec::new(); // the encoder's bytes stand here instead of zeros
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        socket.send(&datagram)?;
                    }
                    Output::Rtcp(datagram) => drop(socket.send(&datagram)?),
                    Output::Wait(until) => {
                        wake = until.map_or(wake, |until| wake.min(until.at));
                        break;
                    }
                }
            }
        }
        // 3. Receive until both sockets are empty. RTP and RTCP share a port: a second byte from 192 to 223 means RTCP
        // (RFC 5761).
        while let Some(len) = arrived(&to_sender, &mut buffer)? {
            match buffer[..len] {
                [_, 192..224, ..] => receiver.on_rtcp(now(), Origin(1), &buffer[..len]),
                _ => drop(receiver.on_rtp(now(), Origin(1), &buffer[..len], Ecn::NotEct, None)),
            }
        }
        while let Some(len) = arrived(&to_receiver, &mut buffer)? {
            sender.on_rtcp(now(), Origin(2), &buffer[..len]);
        }
        // A real program waits here until a datagram arrives on either socket, but not longer than until `wake`.
        std::thread::sleep(Duration::from_nanos(wake.since(now()).min(Span::micros(500)).as_nanos()));
    }
    println!("target {}, because of {:?}", sender.decision().target, sender.decision().why);
    Ok((sender.packets(), receiver.received(), sender.feedback().packets))
}

/// Returns the length of the next datagram, or `None` if no datagram has arrived.
fn arrived(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
    match socket.recv(buffer) {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
