//! One session and one link, driven once in virtual time and once over two UDP sockets on loopback in real time. The
//! code between the two worlds is [`drive`]; they differ in their clocks and in the transport of datagrams.
#![allow(clippy::disallowed_methods, reason = "one of the two worlds is the real one")]

use std::net::UdpSocket;
use std::time::{Duration, Instant};
use steadycast_control::registry::{Chosen, Given, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_link::{Config, Ecn, Fate, Limit, Link, Queue, Service, Steps};
use steadycast_session::{Identity, Origin, Output, Profile, Receiver, RtcpSettings, Sender, SenderSettings};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// A world: a clock, and a transport of datagrams.
trait World {
    /// Advances to `until` at the latest. Returns the time, and a datagram if one has arrived.
    fn next(&mut self, until: Time) -> (Time, Option<(Port, Vec<u8>)>);
    /// Transports a datagram, which is sent now.
    fn carry(&mut self, to: Port, datagram: &[u8]);
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Port {
    Rtp,
    Rtcp,
}

struct Virtual(Time, Vec<(Port, Vec<u8>)>);

impl World for Virtual {
    fn next(&mut self, until: Time) -> (Time, Option<(Port, Vec<u8>)>) {
        if let Some(datagram) = self.1.pop() {
            return (self.0, Some(datagram));
        }
        self.0 = self.0.max(until);
        (self.0, None)
    }
    fn carry(&mut self, to: Port, datagram: &[u8]) {
        self.1.push((to, datagram.to_vec()));
    }
}

struct Loopback {
    start: Instant,
    sockets: [UdpSocket; 2],
}

impl World for Loopback {
    fn next(&mut self, until: Time) -> (Time, Option<(Port, Vec<u8>)>) {
        let mut datagram = [0; 2048];
        loop {
            for (port, socket) in [Port::Rtp, Port::Rtcp].into_iter().zip(&self.sockets) {
                if let Ok(len) = socket.recv(&mut datagram) {
                    return (self.now(), Some((port, datagram[..len].to_vec())));
                }
            }
            if self.now() >= until {
                return (self.now(), None);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    fn carry(&mut self, to: Port, datagram: &[u8]) {
        // The sockets are connected to each other.
        let from = if to == Port::Rtp { 1 } else { 0 };
        self.sockets[from].send(datagram).expect("loopback takes datagrams");
    }
}

impl Loopback {
    fn new() -> std::io::Result<Self> {
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        sockets[0].connect(sockets[1].local_addr()?)?;
        sockets[1].connect(sockets[0].local_addr()?)?;
        sockets.iter().try_for_each(|s| s.set_nonblocking(true))?;
        Ok(Self { start: Instant::now(), sockets })
    }
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

struct Seen {
    sent: u32,
    /// The IP bytes of media that passed the link.
    carried: Bytes,
    received: Bytes,
    /// The total delay of wake-ups.
    late: Span,
    expected: u64,
    feedback: u64,
}

/// A wake-up within this delay is no stall: the loop sleeps between two checks.
const NAP: Span = Span::millis(1);

/// A fixed 1 Mb/s into a link of 0.8 Mb/s for three seconds, with the receiver's reports on the way back.
fn drive(world: &mut impl World) -> Seen {
    let given = [("rate".to_owned(), Given::Text("1Mbps".into()))];
    let factory = Chosen::shared("fixed", Mode::Repaired, &given).expect("fixed is in the registry");
    let seed = Seed(1);
    let setup = |id| Setup {
        session_bandwidth: Rate::mbps(1),
        id: ReceiverId(id),
        ..Setup::unicast(Rate::ZERO, Rate::MAX, seed.part("half"))
    };
    let rtcp = RtcpSettings::new(Profile::Rfc3550, Rate::mbps(1));
    let who = |ssrc| Identity { ssrc, cname: format!("{ssrc}@test") };
    let settings = SenderSettings {
        credit: Span::millis(200), // a loaded machine may wake us late
        greedy: true,
        first_seq: 65_500,
        ..SenderSettings::new(who(1), rtcp, Bytes::new(1000), factory.terms().app)
    };
    let mut sender = Sender::new(settings, factory.sender(&setup(1)), seed.part("sender"), Time::ZERO);
    let half = factory.receiver(&setup(2));
    let mut receiver = Receiver::new(who(2), rtcp, factory.terms().app, half, seed.part("receiver"), Time::ZERO);
    let config = Config {
        service: Service::Rate(Steps::constant(Rate::kbps(800))),
        delay: Steps::constant(Span::millis(20)),
        queue: Queue::drop_tail(Limit::Packets(10)),
        ..Config::default()
    };
    let mut links = [Link::new(&config, "forth", seed), Link::new(&Config::default(), "back", seed)];
    let mut under_way: Vec<(Time, Port, Vec<u8>)> = Vec::new();
    let (mut now, mut carried, mut received, mut late) = (Time::ZERO, Bytes::ZERO, Bytes::ZERO, Span::ZERO);
    while now < Time::ZERO + Span::secs(3) {
        let mut wake = Time::ZERO + Span::secs(3);
        for (end, link) in links.iter_mut().enumerate() {
            loop {
                let (port, datagram) = match if end == 0 { sender.poll(now) } else { receiver.poll(now) } {
                    Output::Media(media) => {
                        let mut datagram = Vec::new();
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        assert_eq!(datagram.len() + 28, media.size.get() as usize, "the size told is the size encoded");
                        (Port::Rtp, datagram)
                    }
                    Output::Rtcp(datagram) => (if end == 0 { Port::Rtp } else { Port::Rtcp }, datagram),
                    Output::Wait(until) => {
                        wake = until.map_or(wake, |u| wake.min(u.at));
                        break;
                    }
                };
                let size = Bytes::new(datagram.len() as u64 + 28);
                if let Fate::Arrives { at, .. } = link.offer(now, size, Ecn::NotEct) {
                    under_way.push((at, port, datagram));
                }
            }
        }
        under_way.sort_by_key(|(at, ..)| *at);
        while under_way.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, port, datagram) = under_way.remove(0);
            if is_media(port, &datagram) {
                carried += Bytes::new(datagram.len() as u64 + 28);
            }
            world.carry(port, &datagram);
        }
        let next = under_way.first().map_or(wake, |(at, ..)| wake.min(*at));
        let mut until = next;
        loop {
            let datagram;
            (now, datagram) = world.next(until);
            late += Some(now.since(until)).filter(|late| *late > NAP).unwrap_or_default();
            // Transported datagrams have arrived, and are read first.
            until = now;
            match datagram {
                Some((port, bytes)) if is_media(port, &bytes) => {
                    receiver.on_rtp(now, Origin(1), &bytes, Ecn::NotEct, None);
                    received += Bytes::new(bytes.len() as u64 + 28);
                }
                Some((Port::Rtp, bytes)) => receiver.on_rtcp(now, Origin(1), &bytes),
                Some((Port::Rtcp, bytes)) => sender.on_rtcp(now, Origin(2), &bytes),
                None => break,
            }
        }
    }
    let (expected, feedback) = (receiver.expected(), sender.feedback().packets);
    Seen { sent: sender.packets(), carried, received, late, expected, feedback }
}

/// RTP and RTCP share the forward port (RFC 5761): packet types 192…223 are RTCP.
fn is_media(port: Port, datagram: &[u8]) -> bool {
    port == Port::Rtp && !(192..224).contains(&datagram[1])
}

/// 375 packets of 1000 B are sent in 3 s. Of these, 0.8 Mb/s arrive, except in the first 30 ms. A stall costs at most
/// the packets of its duration. (Stalls did not count, until runs on a machine that stalled for 200 ms had less than
/// the bounds.)
fn check(seen: &Seen) {
    let late = seen.late.as_secs_f64();
    let rate = seen.received.per(Span::secs(3)).as_bps_f64();
    assert_eq!(seen.received, seen.carried, "what came out of the link, and nothing else");
    assert!(rate > 770e3 - 800e3 * late / 3.0 && rate < 815e3, "{rate} bit/s, {late} s late");
    let least = |packets: f64| packets - 125.0 * late;
    let (sent, expected) = (f64::from(seen.sent), seen.expected as f64);
    assert!(sent >= least(365.0) && sent <= 377.0, "{sent} sent, {late} s late");
    assert!(expected >= least(350.0) && expected <= 376.0, "{expected} expected across the wrap, {late} s late");
    assert!((1..=12).contains(&seen.feedback), "{} reports", seen.feedback);
}

#[test]
fn a_session_runs_in_virtual_time() {
    let seen = drive(&mut Virtual(Time::ZERO, Vec::new()));
    assert_eq!(seen.late, Span::ZERO);
    check(&seen);
}

#[test]
fn the_same_session_runs_over_udp_sockets_in_real_time() {
    check(&drive(&mut Loopback::new().expect("loopback has sockets")));
}
