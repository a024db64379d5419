//! A receiver's reports have to fit into datagrams that the path carries.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use steadycast_control::{Arrival, Body, FrameEdge, ReceiverHalf, Reply, Slot};
use steadycast_session::{
    FeedbackFormat, Identity, MediaPacket, Origin, Output, Profile, Receiver, RepairSettings, RtcpSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Stamp, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{Compound, CongestionFeedback, Packet, PacketStatus, TransportFeedback};
use steadycast_wire::rtp::RtpHeader;

/// A half with a body of this size in each regular report. It records the packets' positions in frames.
struct Says(usize, Arc<Mutex<Vec<FrameEdge>>>);

impl ReceiverHalf for Says {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.1.lock().expect("one thread").push(arrival.edge);
    }
    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Body(Body { subtype: 1, bytes: vec![1; self.0] })
    }
}

/// A path, its traffic, and the receiver at its end.
#[derive(Clone, Debug)]
struct Load {
    format: FeedbackFormat,
    mtu: u64,
    /// The length of the receiver's CNAME.
    name: usize,
    /// The length of its half's body.
    body: usize,
    /// The IP size of a packet, and the number of packets per millisecond.
    size: u64,
    per_ms: u64,
    /// One in this many packets is lost, so that there are NACKs.
    lost: u64,
    session: Rate,
}

/// The results of a second.
#[derive(Debug, Default)]
struct Outcome {
    /// The IP bytes of each datagram, and the number of polls that returned one.
    datagrams: Vec<u64>,
    reports: usize,
    arrived: BTreeSet<u16>,
    told: BTreeSet<u16>,
    bodies: usize,
    untold: (u64, u64),
    broken: u64,
}

fn media(n: u64, at: Time) -> RtpHeader {
    RtpHeader {
        payload_type: 96,
        marker: n.is_multiple_of(40),
        seq: n as u16,
        timestamp: (n / 40 * 3000) as u32,
        ssrc: 7,
        send_time: Some(Stamp::of(at)),
        payload_len: 100,
    }
}

fn told_by(packet: &Packet, into: &mut BTreeSet<u16>) {
    if let Ok(Some(feedback)) = CongestionFeedback::from_packet(packet) {
        let seqs = feedback.acknowledged(None).filter(|(_, one)| one.arrival.is_some()).map(|(_, one)| one.seq);
        into.extend(seqs);
    } else if let Ok(Some(feedback)) = TransportFeedback::from_packet(packet) {
        let each = feedback.packets.iter().enumerate().filter(|(_, status)| **status != PacketStatus::Missing);
        into.extend(each.map(|(n, _)| feedback.begin_seq.wrapping_add(n as u16)));
    }
}

fn run(load: &Load) -> Outcome {
    let rtcp = RtcpSettings {
        mtu: Bytes::new(load.mtu),
        ..RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::ZERO }, load.session)
    };
    let identity = Identity { ssrc: 2, cname: "n".repeat(load.name) };
    let half = Box::new(Says(load.body, Arc::default()));
    let receiver = Receiver::new(identity, rtcp, *b"TEST", half, Seed(1).part("receiver"), Time::ZERO);
    let repair = RepairSettings { ssrc: 8, payload_type: 97, playout: Some(Span::secs(1)) };
    let mut receiver = receiver.with_feedback(load.format, load.session).with_repair(repair);
    let mut outcome = Outcome::default();
    let (mut n, end) = (0, Time::ZERO + Span::secs(1));
    let (mut now, mut next) = (Time::ZERO, Time::ZERO);
    // No packets arrive at the end, so that all arrivals can be reported.
    while now < end {
        if now == next && now < Time::ZERO + Span::millis(700) {
            for _ in 0..load.per_ms {
                let header = media(n, now);
                let transport = (load.format == FeedbackFormat::TransportWide).then_some(n as u16);
                if load.lost == 0 || !n.is_multiple_of(load.lost) {
                    let size = Bytes::new(load.size);
                    let (notice, repairs, ecn, buffer) = (&[][..], None, Ecn::NotEct, None);
                    let packet = MediaPacket { header: &header, notice, transport, repairs, size, ecn, buffer };
                    receiver.on_media(now, Origin(1), &packet);
                    outcome.arrived.insert(n as u16);
                }
                n += 1;
            }
            next += Span::millis(1);
        }
        let mut said = false;
        let wake = loop {
            match receiver.poll(now) {
                Output::Rtcp(bytes) => {
                    said = true;
                    outcome.datagrams.push((bytes.len() + IP_UDP_OVERHEAD) as u64);
                    let compound = Compound::parse(&bytes).expect("a receiver writes what can be read");
                    let [Packet::ReceiverReport { .. }, Packet::Sdes { chunks }, ..] = &compound.packets[..] else {
                        panic!("each begins with a report and a name: {compound:?}");
                    };
                    assert!(!chunks.is_empty(), "each names its sender");
                    for packet in &compound.packets {
                        told_by(packet, &mut outcome.told);
                        outcome.bodies += usize::from(matches!(packet, Packet::App { .. }));
                    }
                }
                Output::Wait(wake) => break wake.map_or(end, |wake| wake.at),
                Output::Media(_) => panic!("a receiver sends no media"),
            }
        };
        outcome.reports += usize::from(said);
        now = if next < Time::ZERO + Span::millis(700) { wake.min(next) } else { wake }.min(end);
    }
    outcome.untold = receiver.untold();
    outcome.broken = receiver.mtu_check().broken;
    outcome
}

fn loads() -> impl Strategy<Value = Load> {
    let format = prop_oneof![Just(FeedbackFormat::Rfc8888), Just(FeedbackFormat::TransportWide)];
    let sizes = (600u64..1600, 1usize..100, 0usize..200, 120u64..1200);
    let load = (1u64..40, prop_oneof![Just(0u64), 3u64..200], 100u64..100_000);
    (format, sizes, load).prop_map(|(format, (mtu, name, body, size), (per_ms, lost, kbps))| {
        let session = Rate::kbps(kbps);
        Load { format, mtu, name, body, size, per_ms, lost, session }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_datagram_of_a_receiver_exceeds_the_mtu_and_each_packet_that_arrives_is_told(load in loads()) {
        let outcome = run(&load);
        let most = load.mtu.min(1280);
        prop_assert!(outcome.datagrams.iter().all(|size| *size <= most), "{:?}", outcome.datagrams.iter().max());
        prop_assert_eq!(outcome.broken, 0);
        // Two members with a datagram each take 5 % of 1 Mb/s for less than half a second.
        prop_assert!(outcome.bodies > 0 || load.session < Rate::mbps(1), "its half is heard, too");
        let missing = outcome.arrived.difference(&outcome.told).count() as u64;
        prop_assert_eq!((missing, outcome.untold), (0, (0, 0)));
    }

    #[test]
    fn what_tells_of_packets_takes_five_percent_of_what_arrives_or_a_datagram_for_each_report(load in loads()) {
        let outcome = run(&load);
        // RTCP's share of a second, or of what arrived. Each report may also fill one datagram and a part of another.
        let (came, took) = (outcome.arrived.len() as u64 * load.size, outcome.datagrams.iter().sum::<u64>());
        let share = (load.session.over(Span::secs(1)).as_f64() * 0.05).max(came as f64 * 0.05);
        let most = share + outcome.reports as f64 * 2.0 * load.mtu as f64;
        prop_assert!(took as f64 <= most, "{took} of {most}: {outcome:?}");
    }
}

/// High-rate traffic of small packets.
const FAST: Load = Load {
    format: FeedbackFormat::Rfc8888,
    mtu: 1500,
    name: 8,
    body: 24,
    size: 1200,
    per_ms: 40,
    lost: 0,
    session: Rate::mbps(2),
};

#[test]
fn what_no_datagram_holds_is_not_sent_and_counted() {
    let outcome = run(&Load { body: 1300, ..FAST });
    assert_eq!((outcome.bodies, outcome.broken), (0, 0));
    assert!(outcome.untold.1 > 0, "{:?}", outcome.untold);
}

#[test]
fn of_packets_that_are_mostly_headers_each_is_told_in_fewer_reports() {
    // 2 bytes for each packet in each report: with packets of 1200 bytes three reports take 0.5 %, and with packets of
    // 60 bytes they would take 10 %.
    let bytes = |size| {
        let outcome = run(&Load { size, ..FAST });
        assert_eq!(outcome.untold, (0, 0));
        outcome.datagrams.iter().sum::<u64>() as f64 / outcome.arrived.len() as f64
    };
    let (large, small) = (bytes(1200), bytes(60));
    assert!((6.0..=8.0).contains(&large), "{large} bytes for each packet");
    assert!((2.0..=3.0).contains(&small), "{small} bytes for each packet");
}

#[test]
fn a_stream_without_markers_begins_a_frame_with_each_timestamp_and_one_with_markers_behind_each_of_them() {
    let edges = |marks: bool| {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let rtcp = RtcpSettings::new(Profile::Rfc3550, Rate::mbps(1));
        let who = Identity { ssrc: 2, cname: "2@test".to_owned() };
        let half = Box::new(Says(0, Arc::clone(&noted)));
        let mut receiver = Receiver::new(who, rtcp, *b"TEST", half, Seed(1).part("receiver"), Time::ZERO);
        for n in 0..6 {
            let marker = marks && n % 3 == 2;
            let header = RtpHeader { marker, timestamp: (n / 3 * 3000) as u32, ..media(n, Time::ZERO) };
            let size = Bytes::new(500);
            let (notice, ecn) = (&[][..], Ecn::NotEct);
            let packet =
                MediaPacket { header: &header, notice, transport: None, repairs: None, size, ecn, buffer: None };
            receiver.on_media(Time::ZERO, Origin(1), &packet);
        }
        let noted = noted.lock().expect("one thread");
        noted.iter().map(|edge| (edge.first, edge.last)).collect::<Vec<_>>()
    };
    let (first, middle) = ((true, false), (false, false));
    assert_eq!(edges(false), [first, middle, middle, first, middle, middle]);
    assert_eq!(edges(true), [first, middle, (false, true), first, middle, (false, true)]);
}
