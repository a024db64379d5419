//! Per-packet feedback, from a receiver's datagrams to the sender half.

use std::sync::{Arc, Mutex};
use steadycast_control::{
    Arrival, Decision, ExtraSent, Limit, PacketReport, ReceiverHalf, Reply, Report, SenderHalf, Sent, Slot, Stream, Why,
};
use steadycast_link::{Config, Fate, Link, Service, Steps};
use steadycast_session::{
    FeedbackFormat, Identity, Origin, Output, Profile, Receiver, RtcpSettings, Sender, SenderSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{
    Compound, CongestionFeedback, Packet, PacketArrival, PacketStatus, StreamArrivals, Ticks, TransportFeedback,
};

/// The calls that a sender half received.
#[derive(Default)]
struct Told {
    sent: Vec<(u64, Time, Bytes)>,
    reports: Vec<(Time, Option<Span>, Vec<PacketReport>)>,
}

/// A half with a constant rate that records its calls.
struct Keeps(Arc<Mutex<Told>>);

impl SenderHalf for Keeps {
    fn on_sent(&mut self, sent: &Sent) {
        self.0.lock().expect("one thread").sent.push((sent.number, sent.at, sent.size));
    }
    fn on_extra_sent(&mut self, _: &ExtraSent) {
        panic!("the session has one stream");
    }
    fn on_report(&mut self, report: &Report<'_>) {
        self.0.lock().expect("one thread").reports.push((report.at, report.rtt, report.packets.to_vec()));
    }
    fn decision(&self) -> Decision {
        let rate = Rate::mbps(1);
        Decision { target: rate, pacing: rate, window: None, limit: Limit::Cap, why: Why::rule("constant") }
    }
}

/// A receiver half without reports.
struct Silent;

impl ReceiverHalf for Silent {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}
    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Plain
    }
}

/// Runs ten seconds of 1 Mb/s over 20 ms in each direction, with numbers that wrap. Packet `n` is lost if `lost(n)`,
/// report `n` if `unheard(n)`; every fourth packet is marked.
fn run(format: FeedbackFormat, lost: fn(u64) -> bool, unheard: fn(u64) -> bool) -> Told {
    run_as(format, lost, unheard, |datagram| datagram)
}

/// Runs as [`run`] does, with a function that changes the receiver's datagrams on their way.
fn run_as(
    format: FeedbackFormat,
    lost: fn(u64) -> bool,
    unheard: fn(u64) -> bool,
    becomes: fn(Vec<u8>) -> Vec<u8>,
) -> Told {
    let rtcp = RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::secs(1) }, Rate::mbps(1));
    let who = |ssrc| Identity { ssrc, cname: format!("{ssrc}@test") };
    let settings = SenderSettings {
        greedy: true,
        feedback: format,
        first_seq: 65_000,
        ..SenderSettings::new(who(1), rtcp, Bytes::new(1000), *b"TEST")
    };
    let told = Arc::new(Mutex::new(Told::default()));
    let seed = Seed(1);
    let mut sender = Sender::new(settings, Box::new(Keeps(Arc::clone(&told))), seed.part("sender"), Time::ZERO);
    let receiver = Receiver::new(who(2), rtcp, *b"TEST", Box::new(Silent), seed.part("receiver"), Time::ZERO);
    let mut receiver = receiver.with_feedback(format, Rate::mbps(1));
    let config = Config { service: Service::Unlimited, delay: Steps::constant(Span::millis(20)), ..Config::default() };
    let mut links = [Link::new(&config, "forth", seed), Link::new(&config, "back", seed)];
    let mut under_way: Vec<(Time, bool, Ecn, Vec<u8>)> = Vec::new();
    let (mut now, mut packets, mut reports) = (Time::ZERO, 0, 0);
    while now < Time::ZERO + Span::secs(10) {
        let mut next = Time::ZERO + Span::secs(10);
        for (end, link) in links.iter_mut().enumerate() {
            loop {
                let output = if end == 0 { sender.poll(now) } else { receiver.poll(now) };
                let (rtp, arrives, datagram) = match output {
                    Output::Media(media) => {
                        let mut datagram = Vec::new();
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        assert_eq!(datagram.len() + 28, media.size.get() as usize, "the size told is the size encoded");
                        assert_eq!(media.transport.is_some(), format == FeedbackFormat::TransportWide);
                        packets += 1;
                        (true, !lost(packets - 1), datagram)
                    }
                    Output::Rtcp(datagram) if end == 1 => {
                        reports += 1;
                        (false, !unheard(reports - 1), becomes(datagram))
                    }
                    Output::Rtcp(_) => continue,
                    Output::Wait(until) => {
                        next = until.map_or(next, |until| next.min(until.at));
                        break;
                    }
                };
                let ecn = if rtp && packets % 4 == 0 { Ecn::Ce } else { Ecn::Ect1 };
                let size = Bytes::new(datagram.len() as u64 + 28);
                if let Fate::Arrives { at, .. } = link.offer(now, size, ecn)
                    && arrives
                {
                    under_way.push((at, rtp, ecn, datagram));
                }
            }
        }
        under_way.sort_by_key(|(at, ..)| *at);
        now = under_way.first().map_or(next, |(at, ..)| next.min(*at));
        while under_way.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, rtp, ecn, datagram) = under_way.remove(0);
            if rtp {
                receiver.on_rtp(now, Origin(1), &datagram, ecn, None);
            } else {
                sender.on_rtcp(now, Origin(2), &datagram);
            }
        }
    }
    drop(sender);
    Arc::into_inner(told).and_then(|told| told.into_inner().ok()).expect("the sender is gone")
}

const BOTH: [FeedbackFormat; 2] = [FeedbackFormat::Rfc8888, FeedbackFormat::TransportWide];

#[test]
fn every_packet_is_told_with_its_sending_arrival_and_mark() {
    for format in BOTH {
        let told = run(format, |n| n % 50 == 7, |_| false);
        assert!((1_150..=1_260).contains(&told.sent.len()), "{}", told.sent.len());
        let mut arrived = vec![None; told.sent.len()];
        for (at, rtt, packets) in &told.reports {
            assert!(packets.is_sorted_by_key(|packet| packet.number));
            if let Some(rtt) = rtt.filter(|_| !packets.is_empty()) {
                assert!(rtt >= Span::micros(38_500) && rtt <= Span::micros(67_000), "{format:?} at {at}: {rtt}");
            }
            for packet in packets {
                let (number, sent, size) = told.sent[packet.number as usize];
                assert_eq!(
                    (packet.number, packet.sent, packet.size, packet.stream),
                    (number, sent, size, Stream::Media)
                );
                if let Some(how) = packet.arrived {
                    assert_eq!(arrived[number as usize].replace(how), None, "{format:?}: an arrival is told once");
                }
            }
        }
        // The last packets may still be in flight.
        for (n, how) in arrived.iter().enumerate().take(told.sent.len() - 20) {
            assert_eq!(how.is_none(), n % 50 == 7, "{format:?}: packet {n}");
            let Some(how) = how else { continue };
            let way = how.at.map(|at| at.as_nanos() - told.sent[n].1.as_nanos() as i64);
            // The resolution is 1/1024 s, rounded down before the report's time in 1/65536 s; or 250 µs.
            assert!(way.is_some_and(|ns| (19_700_000..=21_000_000).contains(&ns)), "{format:?}: packet {n}, {way:?}");
            let mark = if n % 4 == 3 { Ecn::Ce } else { Ecn::Ect1 };
            assert_eq!(how.ecn, (format == FeedbackFormat::Rfc8888).then_some(mark), "packet {n}");
        }
    }
}

#[test]
fn a_lost_report_hides_no_packet() {
    for format in BOTH {
        let told = run(format, |_| false, |n| n % 3 == 1);
        let arrivals = told.reports.iter().flat_map(|(.., packets)| packets).filter(|p| p.arrived.is_some()).count();
        let under_way = told.sent.len() - arrivals;
        assert!(under_way <= 20, "{format:?}: {under_way} of {} were never told", told.sent.len());
    }
}

/// Returns the feedback messages of a compound as a datagram.
fn reduced(datagram: Vec<u8>) -> Vec<u8> {
    let Compound { packets } = Compound::parse(&datagram).expect("a receiver writes what can be read");
    let packets: Vec<_> = packets.into_iter().filter(|packet| matches!(packet, Packet::Feedback { .. })).collect();
    let mut bytes = Vec::new();
    if !packets.is_empty() {
        Compound { packets }.encode(&mut bytes);
    }
    bytes
}

#[test]
fn feedback_in_a_datagram_of_its_own_tells_what_it_tells_in_a_compound() {
    for format in BOTH {
        let arrivals = |told: &Told| -> Vec<(u64, bool)> {
            let packets = told.reports.iter().flat_map(|(.., packets)| packets);
            packets.map(|packet| (packet.number, packet.arrived.is_some())).collect()
        };
        let whole = run(format, |n| n % 50 == 7, |_| false);
        let alone = run_as(format, |n| n % 50 == 7, |_| false, reduced);
        assert!(arrivals(&whole).len() > 1_000);
        // Packets and reports are sent at the same times in both runs.
        assert_eq!(arrivals(&alone), arrivals(&whole), "{format:?}");
        assert!(
            alone.reports.iter().all(|(_, rtt, packets)| rtt.is_some() == packets.iter().any(|p| p.arrived.is_some()))
        );
    }
}

/// A greedy sender of 1 Mb/s that has sent some 125 packets in a second, from number 0 on.
fn sending(format: FeedbackFormat) -> (Sender, Arc<Mutex<Told>>) {
    let rtcp = RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::secs(1) }, Rate::mbps(1));
    let who = Identity { ssrc: 1, cname: "1@test".to_owned() };
    let new = SenderSettings::new(who, rtcp, Bytes::new(1000), *b"TEST");
    let settings = SenderSettings { greedy: true, feedback: format, ..new };
    let told = Arc::new(Mutex::new(Told::default()));
    let mut sender = Sender::new(settings, Box::new(Keeps(Arc::clone(&told))), Seed(1).part("sender"), Time::ZERO);
    let mut now = Time::ZERO;
    loop {
        match sender.poll(now) {
            Output::Wait(Some(wake)) if wake.at <= Time::ZERO + Span::secs(1) => now = wake.at,
            Output::Wait(_) => return (sender, told),
            Output::Media(_) | Output::Rtcp(_) => {}
        }
    }
}

/// Passes this compound to the sender after a second.
fn hear(sender: &mut Sender, from: u64, packets: Vec<Packet>) {
    let mut datagram = Vec::new();
    Compound { packets }.encode(&mut datagram);
    sender.on_rtcp(Time::ZERO + Span::secs(1), Origin(from), &datagram);
}

/// Returns the packets that make a host a member.
fn named(ssrc: u32) -> Vec<Packet> {
    let chunks = vec![(ssrc, format!("{ssrc}@test"))];
    vec![Packet::ReceiverReport { ssrc, blocks: Vec::new() }, Packet::Sdes { chunks }]
}

/// Returns a report in this format that the first hundred packets arrived at the same time.
fn all_arrived(format: FeedbackFormat, sender: u32) -> Vec<Packet> {
    if format == FeedbackFormat::TransportWide {
        let packets = vec![PacketStatus::At(Ticks(4_000)); 100];
        return TransportFeedback { sender, media: 1, count: 0, begin_seq: 0, packets }.to_packets(1_200);
    }
    let arrivals = vec![Some(PacketArrival::before(Span::millis(100), Ecn::NotEct)); 100];
    let streams = vec![StreamArrivals { ssrc: 1, begin_seq: 0, arrivals }];
    vec![CongestionFeedback { sender, streams, report_time: 65_536 }.to_packet()]
}

/// Returns the number of packets that were reported to the half as arrived.
fn arrived(told: &Arc<Mutex<Told>>) -> usize {
    let told = told.lock().expect("one thread");
    told.reports.iter().flat_map(|(.., packets)| packets).filter(|packet| packet.arrived.is_some()).count()
}

#[test]
fn what_a_stranger_says_of_packets_alone_or_in_a_members_name_is_neither_believed_nor_in_the_members_way() {
    for format in BOTH {
        let (mut sender, told) = sending(format);
        hear(&mut sender, 2, named(2));
        for ssrc in [99, 2] {
            hear(&mut sender, 9, all_arrived(format, ssrc));
            assert_eq!(arrived(&told), 0, "{format:?}: of {ssrc}");
        }
        hear(&mut sender, 2, [named(2), all_arrived(format, 2)].concat());
        assert_eq!(arrived(&told), 100, "{format:?}");
    }
}

#[test]
fn of_one_compound_no_more_is_read_than_twice_what_is_remembered_and_the_rest_is_counted() {
    let (mut sender, told) = sending(FeedbackFormat::TransportWide);
    let packets = vec![PacketStatus::Missing; 1 << 14];
    let missing = TransportFeedback { sender: 2, media: 1, count: 0, begin_seq: 0, packets }.to_packets(100_000);
    assert_eq!(missing.len(), 1);
    hear(&mut sender, 2, [named(2), vec![missing[0].clone(); 60]].concat());
    let told = told.lock().expect("one thread");
    let reported: usize = told.reports.iter().map(|(.., packets)| packets.len()).sum();
    assert_eq!((reported, sender.feedback().refused), (2 * told.sent.len(), 58));
}

#[test]
fn reports_in_a_format_that_was_not_agreed_on_are_not_read() {
    for (agreed, other) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
        let (mut sender, told) = sending(agreed);
        hear(&mut sender, 2, [named(2), all_arrived(other, 2)].concat());
        assert_eq!(arrived(&told), 0, "{other:?} where it is {agreed:?}");
        hear(&mut sender, 2, [named(2), all_arrived(agreed, 2)].concat());
        assert_eq!(arrived(&told), 100, "{agreed:?}");
    }
}

#[test]
fn reports_leave_as_often_as_five_percent_of_the_session_allow_and_at_least_five_times_a_second() {
    for format in BOTH {
        let told = run(format, |_| false, |_| false);
        let reports = told.reports.iter().filter(|(.., packets)| !packets.is_empty()).count();
        // 50 kb/s hold about 50 reports of 120 bytes per second. Reports are at least 25 ms apart; regular compounds,
        // at most one per second, carry feedback as well.
        assert!((150..=410).contains(&reports), "{format:?}: {reports} in ten seconds");
    }
}

#[test]
fn a_receiver_that_reports_as_its_half_alone_says_writes_no_packet_reports() {
    let told = run(FeedbackFormat::Own, |_| false, |_| false);
    assert!(told.reports.iter().all(|(.., packets)| packets.is_empty()));
    assert!(!told.reports.is_empty());
}

#[test]
fn the_packets_of_a_sender_that_follows_others_are_told_too() {
    let rtcp = RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::secs(1) }, Rate::mbps(1));
    let who = |ssrc| Identity { ssrc, cname: format!("{ssrc}@test") };
    for format in BOTH {
        let receiver = Receiver::new(who(2), rtcp, *b"TEST", Box::new(Silent), Seed(1).part("receiver"), Time::ZERO);
        let mut receiver = receiver.with_feedback(format, Rate::mbps(1));
        let mut now = Time::ZERO;
        for n in 0..10 {
            let told = Arc::new(Mutex::new(Told::default()));
            let new = SenderSettings::new(who(100 + n), rtcp, Bytes::new(1000), *b"TEST");
            let settings = SenderSettings { greedy: true, feedback: format, ..new };
            let half = Box::new(Keeps(Arc::clone(&told)));
            let mut sender = Sender::new(settings, half, Seed(1).part("sender"), now);
            // The first source ends at a number over 20,000; the others begin at 0 again.
            let end = now + Span::secs(if n == 0 { 165 } else { 5 });
            while now < end {
                let mut next = end;
                loop {
                    match sender.poll(now) {
                        Output::Media(media) => {
                            let mut datagram = Vec::new();
                            media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                            receiver.on_rtp(now, Origin(1), &datagram, Ecn::NotEct, None);
                        }
                        Output::Rtcp(_) => {}
                        Output::Wait(until) => break next = until.map_or(next, |until| next.min(until.at)),
                    }
                }
                loop {
                    match receiver.poll(now) {
                        Output::Rtcp(datagram) => sender.on_rtcp(now, Origin(2), &datagram),
                        Output::Wait(until) => break next = until.map_or(next, |until| next.min(until.at)),
                        Output::Media(_) => panic!("a receiver sends no media"),
                    }
                }
                now = next;
            }
            let told = told.lock().expect("one thread");
            let arrived = told.reports.iter().flat_map(|(.., packets)| packets).filter(|p| p.arrived.is_some()).count();
            assert!(told.sent.len() > if n == 0 { 20_000 } else { 500 }, "sender {n}: {} packets", told.sent.len());
            assert!(arrived + 20 >= told.sent.len(), "{format:?}, sender {n}: {arrived} of {}", told.sent.len());
            // It leaves without a BYE and is silent for longer than a member may be.
            now += Span::secs(60);
        }
    }
}
