//! A sender and receivers over loopback sockets, in one loop.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadycast_control::registry::{Chosen, Given, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_endpoints::{Intake, VideoSink, VideoSource};
use steadycast_live::{
    Clock, Consumer, Datagram, End, EndIx, Interface, Loop, Meta, Outbox, Pair, PairOptions, Reports, SocketSink,
    SocketSource, Which, ZeroPayloads,
};
use steadycast_session::{
    EcnCounts, EcnPath, FeedbackFormat, Identity, Profile, Receiver, RtcpSettings, SenderSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtp::RtpHeader;

/// Received sequence numbers, and payload bytes.
#[derive(Clone, Default)]
struct ReceivedPackets(Arc<Mutex<(Vec<u64>, usize)>>);

impl Consumer for ReceivedPackets {
    fn take(&mut self, _: Time, seq: u64, _: &RtpHeader, payload: &[u8]) {
        let mut taken = self.0.lock().unwrap();
        taken.0.push(seq);
        taken.1 += payload.len();
    }
}

struct Session {
    rate: Rate,
    controller: &'static str,
    group: bool,
    ecn: Ecn,
}

impl Session {
    fn rtcp(&self) -> RtcpSettings {
        let profile = Profile::Avpf { t_rr_interval: Span::ZERO };
        RtcpSettings { group: self.group, ..RtcpSettings::new(profile, Rate::mbps(2)) }
    }

    fn setup(&self, ssrc: u32) -> Setup {
        Setup {
            packet: Bytes::new(1_000),
            mode: Mode::Repaired,
            floor: Rate::kbps(50),
            cap: self.rate,
            capped: true,
            session_bandwidth: Rate::mbps(2),
            group: self.group,
            id: ReceiverId(ssrc),
            chance: Seed(u64::from(ssrc)).part("half"),
            pictures: None,
            ecn: self.ecn,
            probes: true,
        }
    }

    fn factory(&self) -> Arc<dyn steadycast_control::registry::Factory> {
        let given: &[(String, Given)] = &[];
        Chosen::shared(self.controller, Mode::Repaired, given).unwrap()
    }

    fn source(&self, clock: &Clock) -> SocketSource {
        let settings = SenderSettings {
            credit: Span::millis(4),
            greedy: true,
            feedback: FeedbackFormat::own_of(&*self.factory(), false),
            first_seq: 65_500,
            epoch: clock.epoch(),
            ecn: self.ecn,
            ..SenderSettings::new(
                Identity { ssrc: 7, cname: "sender".into() },
                self.rtcp(),
                Bytes::new(1_000),
                self.factory().terms().app,
            )
        };
        let chance = Seed(1).part("rtcp");
        let source = VideoSource::new(settings, self.factory(), self.setup(7), None, false, chance, Time::ZERO);
        SocketSource::new(source, Box::new(ZeroPayloads))
    }

    fn sink(&self, ssrc: u32, taken: &ReceivedPackets, reports: Reports) -> SocketSink {
        let (factory, setup, rtcp) = (self.factory(), self.setup(ssrc), self.rtcp());
        let make = Box::new(move |now, _| {
            let identity = Identity { ssrc, cname: format!("receiver-{ssrc}") };
            let chance = Seed(u64::from(ssrc)).part("rtcp");
            Receiver::new(identity, rtcp, factory.terms().app, factory.receiver(&setup), chance, now)
                .with_feedback(FeedbackFormat::own_of(&*factory, false), setup.session_bandwidth)
        });
        let sink = VideoSink::new(make, Intake::new(Time::ZERO, Time::NEVER), false, 0);
        SocketSink::new(sink, Box::new(taken.clone()), reports)
    }
}

/// An end of a video flow.
enum Wired {
    /// The sender.
    Source(Box<SocketSource>),
    /// A receiver.
    Sink(Box<SocketSink>),
}

impl End for Wired {
    fn wake(&self) -> Time {
        match self {
            Self::Source(source) => source.wake(),
            Self::Sink(sink) => sink.wake(),
        }
    }

    fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        match self {
            Self::Source(source) => source.on_wake(now, out),
            Self::Sink(sink) => sink.on_wake(now, out),
        }
    }

    fn on_datagram(&mut self, now: Time, datagram: &Datagram<'_>, out: &mut Outbox) {
        match self {
            Self::Source(source) => source.on_datagram(now, datagram, out),
            Self::Sink(sink) => sink.on_datagram(now, datagram, out),
        }
    }

    fn done(&self) -> bool {
        match self {
            Self::Source(source) => source.done(),
            Self::Sink(sink) => sink.done(),
        }
    }
}

const TO_SENDER: Reports = Reports::Sender { known: None, mux: false, heard: false };

/// The results of a session: the sender, and each receiver with the packets that it received.
struct Done {
    source: SocketSource,
    sinks: Vec<(SocketSink, Vec<u64>, usize)>,
}

fn run(session: &Session, at: &[SocketAddr], options: &PairOptions, reports: Reports, to: SocketAddr) -> Done {
    let clock = Clock::start();
    let mut driver = Loop::new(clock).unwrap();
    let mut taken = Vec::new();
    for (n, at) in at.iter().enumerate() {
        let mut sink = session.sink(100 + n as u32, &ReceivedPackets::default(), reports);
        let mine = ReceivedPackets::default();
        sink = SocketSink::new(sink.sink, Box::new(mine.clone()), reports);
        sink.join(clock.now());
        driver.add(Wired::Sink(Box::new(sink)), Pair::receiver(*at, options).unwrap()).unwrap();
        taken.push(mine);
    }
    let pair = Pair::sender(to, &PairOptions { source: None, ..options.clone() }).unwrap();
    let source = driver.add(Wired::Source(Box::new(session.source(&clock))), pair).unwrap();
    driver.call(source, |end, now, out| {
        if let Wired::Source(source) = end {
            source.start(now, out);
        }
    });
    driver.run(clock.now() + Span::millis(1_500), |_| true).unwrap();
    driver.call(source, |end, now, out| {
        if let Wired::Source(source) = end {
            source.stop(now, out);
        }
    });
    driver.run(clock.now() + Span::millis(100), |_| true).unwrap();
    for n in 0..at.len() {
        driver.call(EndIx(n), |end, now, out| {
            if let Wired::Sink(sink) = end {
                sink.leave(now, out);
            }
        });
    }
    driver.run(clock.now() + Span::millis(100), |_| true).unwrap();
    let (mut sinks, mut source) = (Vec::new(), None);
    let mut taken = taken.into_iter();
    for (end, _) in driver.into_ends() {
        match end {
            Wired::Sink(sink) => {
                let (seqs, bytes) = taken.next().unwrap().0.lock().unwrap().clone();
                sinks.push((*sink, seqs, bytes));
            }
            Wired::Source(it) => source = Some(*it),
        }
    }
    Done { source: source.unwrap(), sinks }
}

fn in_order(seqs: &[u64]) -> bool {
    seqs.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// Returns a free even port on loopback, which the system has chosen.
fn free(ip: &str) -> SocketAddr {
    loop {
        let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
        let at = socket.local_addr().unwrap();
        if at.port().is_multiple_of(2) && std::net::UdpSocket::bind((ip, at.port() + 1)).is_ok() {
            return at;
        }
    }
}

#[test]
fn all_that_leaves_at_a_fixed_rate_arrives_in_order_over_ipv4_and_ipv6() {
    for (ip, mux) in [("127.0.0.1", false), ("127.0.0.1", true), ("::1", false)] {
        let session = Session { rate: Rate::mbps(2), controller: "fixed", group: false, ecn: Ecn::NotEct };
        let at = free(ip);
        let options = PairOptions { mux, ..PairOptions::default() };
        let done = run(&session, &[at], &options, Reports::Sender { known: None, mux, heard: false }, at);
        let (sink, seqs, bytes) = &done.sinks[0];
        let sent = done.source.source.sent_packets as usize;
        assert_eq!(seqs.len(), sent, "{ip}, mux {mux}");
        assert!(in_order(seqs));
        // 1.5 s at 2 Mb/s in packets of 1000 B are 375 packets. A busy machine may send fewer, but never more.
        assert!((100..=377).contains(&sent), "{sent} packets");
        assert_eq!(*bytes % seqs.len(), 0, "payloads are of one size");
        assert_eq!(sink.unused().unreadable(), 0);
        assert!(sink.sink.rtcp_packets > 0, "it has at least said good-bye");
        assert!(done.source.source.feedback().packets > 0, "{ip}, mux {mux}: the sender heard no report");
    }
}

#[test]
fn reports_come_to_the_port_that_the_description_names() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: false, ecn: Ecn::NotEct };
    let at = free("127.0.0.1");
    let options = PairOptions { reports: Some(free("127.0.0.1").port()), ..PairOptions::default() };
    let done = run(&session, &[at], &options, TO_SENDER, at);
    // The receiver got the sender's BYE, and the sender the receiver's reports.
    assert!(done.sinks[0].0.ended_by().is_some());
    assert!(done.source.source.feedback().packets > 0);
}

#[test]
fn nothing_is_reported_where_a_session_has_no_room_for_it() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: false, ecn: Ecn::NotEct };
    let at = free("127.0.0.1");
    let done = run(&session, &[at], &PairOptions::default(), Reports::Nowhere, at);
    let (sink, seqs, _) = &done.sinks[0];
    assert!(seqs.len() > 50 && in_order(seqs));
    assert_eq!((sink.sink.rtcp_packets, done.source.source.feedback().packets), (0, 0));
}

#[test]
fn packets_of_an_excluded_source_are_ignored() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: false, ecn: Ecn::NotEct };
    let (clock, at) = (Clock::start(), free("127.0.0.1"));
    let mut driver = Loop::new(clock).unwrap();
    let taken = [ReceivedPackets::default(), ReceivedPackets::default()];
    let other = free("127.0.0.1");
    for (mine, (at, excluded)) in taken.iter().zip([(at, "127.0.0.1"), (other, "127.0.0.2")]) {
        let mut sink = session.sink(100, mine, TO_SENDER);
        sink.excluded = vec![excluded.parse().unwrap()];
        let ix = driver.add(Wired::Sink(Box::new(sink)), Pair::receiver(at, &PairOptions::default()).unwrap()).unwrap();
        driver.call(ix, |end, now, _| {
            if let Wired::Sink(sink) = end {
                sink.join(now)
            }
        });
        let pair = Pair::sender(at, &PairOptions::default()).unwrap();
        let source = driver.add(Wired::Source(Box::new(session.source(&clock))), pair).unwrap();
        driver.call(source, |end, now, out| {
            if let Wired::Source(source) = end {
                source.start(now, out)
            }
        });
    }
    driver.run(clock.now() + Span::millis(500), |_| true).unwrap();
    let counts = taken.map(|mine| mine.0.lock().unwrap().0.len());
    assert!(counts[0] == 0 && counts[1] > 10, "{counts:?}");
}

#[test]
fn a_controllers_own_reports_come_back_and_raise_the_rate() {
    let session = Session { rate: Rate::mbps(4), controller: "tfrc", group: false, ecn: Ecn::NotEct };
    let at = free("127.0.0.1");
    let done = run(&session, &[at], &PairOptions::default(), TO_SENDER, at);
    let source = &done.source.source;
    let reports = source.feedback().packets;
    assert!(reports >= 5, "{reports} reports in 1.5 s of short round trips");
    let best = source.decisions.iter().map(|d| d.decision.target).max().unwrap();
    assert!((Rate::mbps(1)..=Rate::mbps(4)).contains(&best), "{best}");
    // On loopback there is no delay except that of the scheduler.
    let rtt = source.decisions.iter().filter_map(|d| d.decision.why.rtt).min().unwrap();
    assert!(rtt < Span::millis(50), "{rtt}");
}

/// Returns a receiver report without a block.
fn bare_report(ssrc: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 201, 0, 1];
    bytes.extend(ssrc.to_be_bytes());
    bytes
}

#[test]
fn reports_still_go_to_the_sender_while_another_host_sends_rtcp() {
    let session = Session { rate: Rate::mbps(4), controller: "tfrc", group: false, ecn: Ecn::NotEct };
    let at = free("127.0.0.1");
    let (clock, over) = (Clock::start(), AtomicBool::new(false));
    std::thread::scope(|all| {
        all.spawn(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
            // No datagram arrives here, so that each wait lasts 10 ms.
            socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            // The session lasts less than two seconds. The limit ends this thread even if the session panics.
            let until = clock.now() + Span::secs(20);
            while !over.load(Relaxed) && clock.now() < until {
                // Before the receiver listens, the datagrams are rejected.
                let _ = socket.send_to(&bare_report(999), (at.ip(), at.port() + 1));
                let _ = socket.recv_from(&mut [0; 2_000]);
            }
        });
        let done = run(&session, &[at], &PairOptions::default(), TO_SENDER, at);
        over.store(true, Relaxed);
        let (reports, sent) = (done.source.source.feedback().packets, done.sinks[0].0.sink.rtcp_packets);
        assert!(reports >= 5 && reports * 10 >= sent * 8, "{reports} of {sent} reports came to the sender");
    });
}

#[test]
fn reports_go_to_the_followed_source_despite_packets_of_others() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: false, ecn: Ecn::NotEct };
    let mut sink = session.sink(100, &ReceivedPackets::default(), TO_SENDER);
    sink.join(Time::ZERO);
    let (mut ms, mut out) = (0, Outbox::default());
    let mut deliver = |which, from: &str, bytes: &[u8]| {
        ms += 1;
        let at = Time::ZERO + Span::millis(ms);
        let meta = Meta { from: from.parse().unwrap(), to: None, ecn: Ecn::NotEct, at };
        sink.on_datagram(at, &Datagram { which, bytes, meta }, &mut out);
        sink.reports_to().map(|to| to.to_string())
    };
    let media = |ssrc: u8, seq: u8| [&[0x80, 96, 0, seq, 0, 0, 0, 0, 0, 0, 0, ssrc][..], &[0; 40]].concat();
    let bye = |ssrc: u8| [&bare_report(ssrc.into())[..], &[0x81, 203, 0, 1, 0, 0, 0, ssrc]].concat();
    let to = |address: &str| Some(address.to_owned());
    // A compound of an unknown type, an SDES and a BYE, each without an SSRC.
    let nameless: [[u8; 4]; 3] = [[0x80, 207, 0, 0], [0x80, 202, 0, 0], [0x80, 203, 0, 0]];
    for bytes in &nameless {
        assert_eq!(deliver(Which::Rtcp, "10.0.0.9:7000", bytes), None, "{bytes:?}");
    }
    // Before any media, the address of the first report is used.
    assert_eq!(deliver(Which::Rtcp, "10.0.0.9:7000", &bare_report(9)), to("10.0.0.9:7000"));
    assert_eq!(deliver(Which::Rtp, "10.0.0.1:5000", &media(1, 1)), to("10.0.0.1:5001"));
    assert_eq!(deliver(Which::Rtp, "10.0.0.1:5000", &media(1, 2)), to("10.0.0.1:5001"));
    // Media and reports of other sources are ignored.
    assert_eq!(deliver(Which::Rtp, "10.0.0.9:5000", &media(9, 1)), to("10.0.0.1:5001"));
    assert_eq!(deliver(Which::Rtcp, "10.0.0.9:7000", &bare_report(9)), to("10.0.0.1:5001"));
    // A NAT may have mapped the RTCP to another port.
    assert_eq!(deliver(Which::Rtcp, "10.0.0.1:6000", &bare_report(1)), to("10.0.0.1:6000"));
    assert_eq!(deliver(Which::Rtp, "10.0.0.1:5000", &media(1, 3)), to("10.0.0.1:6000"));
    // A report with the source's SSRC from another address is ignored.
    assert_eq!(deliver(Which::Rtcp, "10.0.0.9:7000", &bare_report(1)), to("10.0.0.1:6000"));
    // Compounds without an SSRC are ignored.
    for bytes in &nameless {
        assert_eq!(deliver(Which::Rtcp, "10.0.0.9:7000", bytes), to("10.0.0.1:6000"), "{bytes:?}");
    }
    // The source ends, and restarts elsewhere.
    assert_eq!(deliver(Which::Rtcp, "10.0.0.1:6000", &bye(1)), to("10.0.0.1:6000"));
    assert_eq!(deliver(Which::Rtp, "10.0.0.2:5000", &media(2, 1)), to("10.0.0.2:5001"));
}

/// An end that takes a millisecond for each datagram.
struct Slow(Clock, u64);

impl End for Slow {
    fn wake(&self) -> Time {
        Time::NEVER
    }
    fn on_wake(&mut self, _: Time, _: &mut Outbox) {}
    fn on_datagram(&mut self, _: Time, _: &Datagram<'_>, _: &mut Outbox) {
        let until = self.0.now() + Span::millis(1);
        while self.0.now() < until {}
        self.1 += 1;
    }
}

#[test]
fn a_loop_ends_in_time_though_datagrams_come_faster_than_its_end_takes_them() {
    let clock = Clock::start();
    let mut driver = Loop::new(clock).unwrap();
    let at = free("127.0.0.1");
    let ix = driver.add(Slow(clock, 0), Pair::receiver(at, &PairOptions::default()).unwrap()).unwrap();
    let (over, floods) = (AtomicBool::new(false), AtomicBool::new(true));
    std::thread::scope(|all| {
        all.spawn(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            // A driver that ignores its end time while datagrams arrive would never return, so the flood ends after 20
            // s.
            let until = clock.now() + Span::secs(20);
            while !over.load(Relaxed) && clock.now() < until {
                socket.send_to(&bare_report(9), at).unwrap();
            }
            floods.store(false, Relaxed);
        });
        driver.run(clock.now() + Span::millis(300), |_| true).unwrap();
        assert!(floods.load(Relaxed), "it went on for as long as datagrams came");
        over.store(true, Relaxed);
    });
    assert!(driver.end(ix).1 > 16, "{} datagrams", driver.end(ix).1);
}

#[test]
fn two_group_members_on_one_machine_get_all_media_and_each_others_reports() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: true, ecn: Ecn::NotEct };
    let to: SocketAddr = SocketAddr::new("239.7.9.11".parse().unwrap(), free("127.0.0.1").port());
    let interface = Some(Interface::Name("lo".into()));
    let options = PairOptions { interface, ttl: Some(1), ..PairOptions::default() };
    let done = run(&session, &[to, to], &options, Reports::Group, to);
    for (sink, seqs, _) in &done.sinks {
        assert_eq!(seqs.len() as u64, done.source.source.sent_packets);
        assert!(in_order(seqs));
        assert_eq!(sink.sink.ssrcs.len(), 1, "its own reports came back, and were no collision");
    }
}

#[test]
fn a_source_specific_member_reports_to_its_source_only() {
    let session = Session { rate: Rate::mbps(1), controller: "fixed", group: true, ecn: Ecn::NotEct };
    let to = SocketAddr::new("232.7.9.11".parse().unwrap(), free("127.0.0.1").port());
    let from = |source: &str| PairOptions {
        // The interface is given by its address, which is then the source address.
        interface: Some(Interface::Address("127.0.0.1".parse().unwrap())),
        source: Some(source.parse().unwrap()),
        ..PairOptions::default()
    };
    let done = run(&session, &[to], &from("127.0.0.1"), TO_SENDER, to);
    assert_eq!(done.sinks[0].1.len() as u64, done.source.source.sent_packets);
    assert!(done.source.source.feedback().packets > 0, "no report");
    let none = run(&session, &[to], &from("127.0.0.9"), TO_SENDER, to);
    assert_eq!(none.sinks[0].1.len(), 0, "a member of another source's channel gets nothing");
}

#[test]
fn source_specific_groups_of_ipv6_are_joined_by_the_interfaces_name() {
    let options = PairOptions {
        interface: Some(Interface::Name("lo".into())),
        source: Some("::1".parse().unwrap()),
        ..PairOptions::default()
    };
    let group = SocketAddr::new("ff31::7:9:11".parse().unwrap(), free("::1").port());
    assert!(Pair::receiver(group, &options).is_ok());
    let wrong = PairOptions { source: Some("127.0.0.1".parse().unwrap()), ..options };
    let error = Pair::receiver(group, &wrong).err().unwrap().to_string();
    assert!(error.contains("of one kind"), "{error}");
}

#[test]
fn a_source_specific_group_without_a_source_is_an_error() {
    let to: SocketAddr = "232.7.9.11:5004".parse().unwrap();
    let error = Pair::receiver(to, &PairOptions::default()).err().unwrap().to_string();
    assert!(error.contains("232.7.9.11") && error.contains("--source"), "{error}");
    let port: SocketAddr = "127.0.0.1:65535".parse().unwrap();
    let error = Pair::receiver(port, &PairOptions::default()).err().unwrap().to_string();
    assert!(error.contains("from 1 to 65534"), "{error}");
}

#[test]
fn each_datagrams_ecn_field_is_set_as_asked_and_read_on_arrival_over_ipv4_and_ipv6() {
    let over = |ip, mux, ecn: Ecn| {
        let session = Session { rate: Rate::mbps(2), controller: "scream", group: false, ecn };
        let at = free(ip);
        let options = PairOptions { mux, ..PairOptions::default() };
        let done = run(&session, &[at], &options, Reports::Sender { known: None, mux, heard: false }, at);
        let (source, by_ecn) = (&done.source.source, done.sinks[0].0.sink.by_ecn);
        assert!(source.sent_packets > 20, "{ip} {ecn:?}: {} packets", source.sent_packets);
        assert_eq!(by_ecn[usize::from(ecn.bits())], source.sent_packets, "{ip} {ecn:?}: {by_ecn:?}");
        assert_eq!(by_ecn.iter().sum::<u64>(), source.sent_packets);
        let counts = EcnCounts { sent: source.sent_packets, ..EcnCounts::default() };
        assert_eq!(source.ecn(), ecn.is_capable().then_some((EcnPath::Kept, counts)), "{ip} {ecn:?}");
    };
    std::thread::scope(|all| {
        for (ip, mux, ecn) in [
            ("127.0.0.1", false, Ecn::Ect0),
            ("127.0.0.1", true, Ecn::Ect1),
            ("::1", false, Ecn::Ect1),
            ("::1", true, Ecn::Ect0),
            ("127.0.0.1", false, Ecn::NotEct),
        ] {
            all.spawn(move || over(ip, mux, ecn));
        }
    });
}
