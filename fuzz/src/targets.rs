//! The fuzz targets: one function per parser, which accepts any bytes. The fuzzers call them, and so do the ordinary
//! tests with the corpora (`crates/live/tests/corpora.rs`).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use steadycast_calltrace::{Options, Path, datagrams, read};
use steadycast_control::registry::{ALL, Chosen, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_live::sdp::Description;
use steadycast_live::{MasterKey, ReceivedSymbols, Srtp};
use steadycast_scenario::{Quantity, Recorded, recorded};
use steadycast_session::{
    CircuitBreaker, FeedbackDefence, Identity, MediaPacket, OperatorControls, Origin, Output, ParitySettings, Profile,
    Protection, Receiver, Recovered, RepairSettings, RtcpSettings, Sender, SenderSettings, StandardReports,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Stamp, Time};
use steadycast_web::{
    Certificate, Credentials, Feedback, LocalParameters, LocalSources, Output as Way, Role, Stream as Shown, Tunnel,
    TunnelParameters, agree, agree_to_receive, propose,
};
use steadycast_wire::ParseError;
use steadycast_wire::is_rtcp;
use steadycast_wire::parity::{ParityHeader, packet, recover, symbol};
use steadycast_wire::payload::{Depacketiser, PayloadFormat, is_key_frame, picture_kind};
use steadycast_wire::rtcp::{
    Compound, CongestionFeedback, KeyFrameRequest, Nack, Packet, ParityRequest, ParityUse, ReceiverEstimate,
    ReferenceTime, ReportBlock, TransportFeedback,
};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};
use steadycast_wire::rtx::RtxStream;

/// All targets, by name.
pub const TARGETS: [(&str, fn(&[u8])); 15] = [
    ("rtp", rtp),
    ("recognise", recognise),
    ("rtcp", rtcp),
    ("feedback", feedback),
    ("payload", payload),
    ("rtx", rtx),
    ("parity", parity),
    ("sdp", sdp),
    ("srtp", srtp),
    ("session", session),
    ("trace", trace),
    ("call", call),
    ("web_offer", web_offer),
    ("web_answer", web_answer),
    ("web_datagram", web_datagram),
];

/// RTP's header and its extensions: what was parsed can be written and parsed again with the same result.
pub fn rtp(data: &[u8]) {
    let Ok((header, extensions, payload)) = RtpHeader::parse(data) else { return };
    let elements: Vec<(u8, &[u8])> = extensions.collect();
    for number in elements.iter().filter_map(|(_, bytes)| TransportNumber::read(bytes)) {
        let mut again = Vec::new();
        number.write(&mut again);
        assert_eq!(TransportNumber::read(&again), Some(number));
    }
    // Elements that the one-byte form cannot express, or of another profile, are never written.
    if elements.iter().any(|(id, bytes)| *id == 0 || *id > 14 || bytes.is_empty() || bytes.len() > 16) {
        return;
    }
    let mut again = Vec::new();
    header.encode(&elements, payload, &mut again);
    let Ok((other, extensions, same)) = RtpHeader::parse(&again) else { panic!("it can't read what it wrote") };
    assert_eq!((other, same), (header, payload));
    assert_eq!(extensions.collect::<Vec<_>>(), elements);
}

/// Recognition of RTP among other programs' datagrams: it has a whole header and is not RTCP. If it can be parsed, it
/// has the same header except for the padding.
pub fn recognise(data: &[u8]) {
    let parsed = RtpHeader::parse(data).ok().filter(|_| !is_rtcp(data));
    let Some((header, payload)) = RtpHeader::recognise(data) else {
        assert!(parsed.is_none(), "it is RTP");
        return;
    };
    assert!(data[0] >> 6 == 2 && !is_rtcp(data) && data.ends_with(payload));
    assert!(payload.len() + 12 <= data.len() && usize::from(header.payload_len) == payload.len());
    if let Some((other, _, bare)) = parsed {
        assert!(payload.starts_with(bare));
        assert_eq!(RtpHeader { payload_len: header.payload_len, ..other }, header);
    }
}

/// RTCP compounds: what was parsed can be written and parsed again with the same result.
pub fn rtcp(data: &[u8]) {
    let Ok(compound) = Compound::parse(data) else { return };
    let mut bytes = Vec::new();
    compound.encode(&mut bytes);
    assert_eq!(bytes.len(), compound.encoded_len());
    assert_eq!(Compound::parse(&bytes).ok().as_ref(), Some(&compound));
}

/// Feedback on single packets: what was parsed of a compound can be written and parsed again with the same result,
/// whole and split.
pub fn feedback(data: &[u8]) {
    let Ok(compound) = Compound::parse(data) else { return };
    for message in &compound.packets {
        for request in KeyFrameRequest::all(message) {
            assert_eq!(KeyFrameRequest::all(&request.to_packet()).collect::<Vec<_>>(), [request]);
        }
        if let Ok(Some(nack)) = Nack::from_packet(message) {
            let fitting = Nack::fitting(&nack.missing);
            let Ok(Some(mut again)) = Nack::from_packet(&nack.to_packet()) else {
                panic!("it can't read what it wrote")
            };
            // A NACK that names a packet twice may name it once when it is written again.
            let mut asked = nack.missing[..fitting].to_vec();
            for numbers in [&mut asked, &mut again.missing] {
                numbers.sort_unstable();
                numbers.dedup();
            }
            assert_eq!(again.missing, asked);
        }
        if let Ok(Some(request)) = ParityRequest::from_packet(message) {
            assert_eq!(ParityRequest::from_packet(&request.to_packet()), Ok(Some(request)));
        }
        if let Ok(Some(told)) = ParityUse::from_packet(message) {
            assert_eq!(ParityUse::from_packet(&told.to_packet()), Ok(Some(told)));
        }
        if let Ok(Some(time)) = ReferenceTime::from_packet(message) {
            assert_eq!(ReferenceTime::from_packet(&time.answer(1, 2)), Ok(None));
        }
        if let Ok(Some(estimate)) = ReceiverEstimate::from_packet(message) {
            assert!(estimate.ssrcs.len() * 4 <= data.len());
        }
        if let Ok(Some(report)) = CongestionFeedback::from_packet(message) {
            assert_eq!(CongestionFeedback::from_packet(&report.to_packet()), Ok(Some(report.clone())));
            let parts = report.split(data.len() / 2);
            assert!(parts.iter().all(|part| part.to_packet().encoded_len() <= (data.len() / 2).max(24)));
            assert!(parts.iter().flat_map(|part| part.acknowledged(None)).eq(report.acknowledged(None)));
        }
        if let Ok(Some(report)) = TransportFeedback::from_packet(message) {
            let read = |packet: &Packet| TransportFeedback::from_packet(packet).ok().flatten().map(|part| part.packets);
            let parts: Option<Vec<_>> = report.to_packets(1_200).iter().map(read).collect();
            assert_eq!(parts.map(|parts| parts.concat()).as_ref(), Some(&report.packets));
        }
    }
}

/// Depacketisers: the first byte selects one. Payloads follow, each after its length; 0 is a gap, 255 the end of a
/// frame.
pub fn payload(data: &[u8]) {
    let Some((format, mut rest)) = data.split_first() else { return };
    let format = PayloadFormat::ALL[usize::from(*format) % PayloadFormat::ALL.len()];
    let mut depacketiser = Depacketiser::new(format);
    while let Some((len, behind)) = rest.split_first() {
        rest = behind;
        match *len {
            0 => depacketiser.gap(),
            255 => {
                let frame = depacketiser.finish();
                assert!(
                    picture_kind(format, &frame.bytes).is_none() || frame.bytes.len() > 4,
                    "a kind without a header"
                );
            }
            len => {
                let (payload, behind) = rest.split_at(usize::from(len).min(rest.len()));
                rest = behind;
                let unused = |error: &ParseError| {
                    matches!(error, ParseError::Unsupported { .. } | ParseError::OtherLayer { .. })
                };
                let damaged = depacketiser.push(payload).is_err_and(|error| !unused(&error));
                let frame = depacketiser.clone().finish();
                let _ = is_key_frame(format, &frame.bytes);
                assert!(frame.damaged || !damaged, "a payload that can't be read leaves a damaged frame");
            }
        }
    }
    // Each payload adds at most a start code or two to what it carries.
    assert!(depacketiser.finish().bytes.len() <= data.len() * 8);
}

/// Retransmissions: an original that was parsed can be sent again and parsed with the same result.
pub fn rtx(data: &[u8]) {
    let Ok((header, _, payload)) = RtpHeader::parse(data) else { return };
    let stream = RtxStream { payload_type: header.payload_type, apt: 96, ssrc: header.ssrc, media: 1 };
    let Ok((original, body)) = stream.original(&header, payload) else { return };
    let mut again = Vec::new();
    RtxStream::write_payload(original.seq, body, &mut again);
    assert_eq!(again, payload);
    let header = RtpHeader { send_time: None, ..header };
    assert_eq!(stream.header(header.seq, &original), Ok(header));
}

/// Parity: the first byte is the number of packets in a block. Symbols follow, each after its kind (a packet, or from
/// 128 on a parity) and its length. All bytes together are also tried as a payload, a packet and a symbol.
pub fn parity(data: &[u8]) {
    if let Ok((header, bytes)) = ParityHeader::parse(data) {
        let mut again = Vec::new();
        header.write(bytes, &mut again);
        assert_eq!(ParityHeader::parse(&again), Ok((header, bytes)));
    }
    if let Ok(whole) = packet(data, 7, 8) {
        let Ok(symbol) = symbol(&whole) else { panic!("it isn't a packet") };
        assert!(data.starts_with(&symbol) && data[symbol.len()..].iter().all(|byte| *byte == 0));
    }
    computed(data);
    let Some((packets, mut rest)) = data.split_first() else { return };
    let (mut sources, mut parities) = (Vec::new(), Vec::new());
    while let [what, len, behind @ ..] = rest {
        let (symbol, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        match what.checked_sub(128) {
            None => sources.push((*what, symbol)),
            Some(index) => parities.push((index, symbol)),
        }
    }
    let Ok(recovered) = recover(*packets, &sources, &parities) else { return };
    let places: Vec<u8> = recovered.iter().map(|(place, _)| *place).collect();
    assert!(places.is_sorted() && places.iter().all(|place| place < packets));
    assert!(places.iter().all(|place| sources.iter().all(|(other, _)| other != place)));
    // Parity 0 is the XOR of all packets, independent of the other parity packets.
    if let ([(place, symbol)], Some((0, parity))) = (&recovered[..], parities.first()) {
        let mut sum = symbol.clone();
        let first = |at: u8| sources.iter().find(|(other, _)| *other == at);
        for (_, source) in (0..*packets).filter(|at| at != place).filter_map(first) {
            sum.iter_mut().zip(*source).for_each(|(sum, byte)| *sum ^= byte);
        }
        assert_eq!(sum, *parity);
    }
}

/// Packets and parity that a receiver gets, each after its kind (a packet with this number, or from 128 on parity) and
/// its length. What is recovered from them is a packet with the requested number.
fn computed(mut rest: &[u8]) {
    let mut came = ReceivedSymbols::default();
    while let [what, len, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        match (what.checked_sub(128), ParityHeader::parse(bytes)) {
            (None, _) => came.on_packet(SENDER, (*what).into(), bytes),
            (_, Ok((header, symbol))) => came.on_parity(&header, symbol),
            _ => {}
        }
    }
    let all: Vec<Recovered> =
        (0..256).map(|number| Recovered { number, seq: u64::from(number), packet: None }).collect();
    for (seq, bytes) in came.recover_packets(&all) {
        assert!(bytes[2..4] == (seq as u16).to_be_bytes());
    }
}

/// Session descriptions: what was parsed can be written and parsed again with the same result.
pub fn sdp(data: &[u8]) {
    let Ok(description) = Description::read(data) else { return };
    let own = description.address.ip();
    let text = description.write(own, 1);
    let again = Description::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.address, description.address, "{text}");
    assert_eq!(again.format, description.format, "{text}");
    assert_eq!((again.feedback, again.key_frames), (description.feedback, description.key_frames), "{text}");
    let types = [&again, &description].map(|one| one.repair.as_ref().map(|repair| (repair.payload_type, repair.kept)));
    assert_eq!(types[0], types[1], "{text}");
}

/// SRTP: datagrams of strangers are refused, and what was protected with the key is accepted once.
pub fn srtp(data: &[u8]) {
    let Some(key) = MasterKey::read("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNk") else { panic!("the key is one") };
    let mut srtp = Srtp::new(&key);
    assert!(srtp.open_rtp(Time::ZERO, data).is_none() && srtp.open_rtcp(data).is_none(), "a stranger was heard");
    let mut sender = Srtp::new(&key);
    if RtpHeader::parse(data).is_ok() {
        let mut bytes = data.to_vec();
        sender.protect_rtp(&mut bytes, 0);
        assert_eq!(bytes.len(), data.len() + key.profile().tag());
        assert_eq!(srtp.open_rtp(Time::ZERO, &bytes), Some(data));
        assert!(srtp.open_rtp(Time::ZERO, &bytes).is_none(), "it was heard twice");
    }
    // What is protected has the SSRC of its sender (RFC 3711, 3.4).
    if data.len() >= 8 && Compound::parse(data).is_ok() {
        let mut bytes = data.to_vec();
        sender.protect_rtcp(&mut bytes, 0);
        assert_eq!(srtp.open_rtcp(&bytes), Some(data));
        assert!(srtp.open_rtcp(&bytes).is_none(), "it was heard twice");
    }
}

const SENDER: u32 = 0x5e0d_0001;
const RECEIVER: u32 = 0x2ece_0001;
const REPAIR: RepairSettings = RepairSettings { ssrc: 0x2e9a_0001, payload_type: 97, playout: Some(Span::millis(300)) };
const PARITY: ParitySettings = ParitySettings { ssrc: 0x9a21_0001, payload_type: 98, playout: Some(Span::millis(300)) };

/// A whole session of one controller. The first byte selects the controller and whether lost packets are repaired by
/// retransmission or parity. Datagrams for both ends follow, each after its kind, its delay in milliseconds, and its
/// length.
pub fn session(data: &[u8]) {
    let Some((which, mut rest)) = data.split_first() else { return };
    let (mut sender, mut receiver, app) = ends(usize::from(*which));
    let mut now = Time::ZERO;
    while let [what, later, len, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        now += Span::millis(u64::from(*later));
        let from = Origin(u64::from(*what >> 4));
        match *what % 6 {
            0 => sender.on_rtcp(now, from, bytes),
            1 => receiver.on_rtcp(now, from, bytes),
            2 => drop(receiver.on_rtp(now, from, bytes, Ecn::from_bits(*what >> 5), None)),
            3 => sender.on_rtcp(now, from, &report(RECEIVER + u32::from(*what >> 6), app, bytes)),
            4 => receiver.on_rtcp(now, from, &report(SENDER + u32::from(*what >> 6), app, bytes)),
            _ => drop(receiver.on_rtp(now, from, &media(bytes), Ecn::NotEct, None)),
        }
        protect(&mut receiver, now, from, bytes);
        for _ in 0..64 {
            match sender.poll(now) {
                Output::Wait(wake) => {
                    assert!(wake.is_none_or(|wake| wake.at > now), "it would never wait");
                    break;
                }
                Output::Media(_) | Output::Rtcp(_) => {}
            }
        }
        for _ in 0..64 {
            if let Output::Wait(wake) = receiver.poll(now) {
                assert!(wake.is_none_or(|wake| wake.at > now), "it would never wait");
                break;
            }
        }
        let target = sender.decision().target;
        assert!((Rate::kbps(10)..=Rate::mbps(50)).contains(&target), "{target}");
    }
}

/// The same bytes as the payload of a packet of parity.
fn protect(receiver: &mut Receiver, now: Time, from: Origin, bytes: &[u8]) {
    let Ok((told, _)) = ParityHeader::parse(bytes) else { return };
    let seq = bytes[bytes.len() - 1].into();
    let header = RtpHeader {
        payload_type: PARITY.payload_type,
        marker: false,
        seq,
        timestamp: 0,
        ssrc: PARITY.ssrc,
        send_time: None,
        payload_len: bytes.len() as u16,
    };
    let (size, ecn) = (Bytes::new(bytes.len() as u64 + 40), Ecn::NotEct);
    let packet = MediaPacket { header: &header, notice: &[], transport: None, repairs: None, size, ecn, buffer: None };
    receiver.on_parity(now, from, &packet, &Protection { header: told, packets: Arc::from([]) });
    assert!(receiver.take_recovered().len() <= 64, "a block has no more packets");
}

fn ends(which: usize) -> (Sender, Receiver, [u8; 4]) {
    let controller = ALL[which % ALL.len()];
    let Ok(factory) = Chosen::shared(controller.name, Mode::Repaired, &[]) else { panic!("it has defaults") };
    let profile = Profile::Avpf { t_rr_interval: Span::ZERO };
    let rtcp = RtcpSettings { group: true, summary: which >= 128, ..RtcpSettings::new(profile, Rate::mbps(2)) };
    let setup = |id: u32| Setup {
        packet: Bytes::new(1_200),
        mode: Mode::Repaired,
        floor: Rate::kbps(10),
        cap: Rate::mbps(50),
        capped: true,
        pictures: None,
        session_bandwidth: rtcp.session_bandwidth,
        group: true,
        id: ReceiverId(id),
        chance: Seed(1).part("half"),
        ecn: Ecn::NotEct,
        probes: true,
    };
    let who = |ssrc: u32, cname: &str| Identity { ssrc, cname: cname.to_owned() };
    let app = factory.terms().app;
    let settings = SenderSettings {
        credit: Span::millis(4),
        greedy: true,
        gated: true,
        first_seq: u16::MAX - 20,
        first_timestamp: u32::MAX - 90_000,
        repair: (which & 0x60 == 0x40).then_some(REPAIR),
        parity: (which & 0x60 == 0x60).then_some(PARITY),
        ..SenderSettings::new(who(SENDER, "sender"), rtcp, Bytes::new(1_200), app)
    };
    let served = StandardReports::new(Arc::clone(&factory), controller.standard_reports);
    let guarded = FeedbackDefence::new(
        Arc::new(CircuitBreaker::new(Arc::new(served), OperatorControls::default())),
        OperatorControls::default(),
    );
    let half = steadycast_control::registry::Factory::sender(&guarded, &setup(SENDER));
    let sender = Sender::new(settings, half, Seed(1).part("sender"), Time::ZERO);
    let half = factory.receiver(&setup(RECEIVER));
    let chance = Seed(1).part("receiver");
    let receiver = Receiver::new(who(RECEIVER, "receiver"), rtcp, app, half, chance, Time::ZERO);
    if which & 0x40 == 0 {
        return (sender, receiver, app);
    }
    if which & 0x20 != 0 {
        return (sender, receiver.with_parity(PARITY, Seed(1).part("parity")), app);
    }
    (sender, receiver.with_repair(REPAIR), app)
}

/// A report with a body of the controller: one byte is its subtype, and six more are the report block, if it has one.
fn report(ssrc: u32, name: [u8; 4], bytes: &[u8]) -> Vec<u8> {
    let (head, body) = bytes.split_at(7.min(bytes.len()));
    let at = |n: usize| head.get(n).copied().unwrap_or(0);
    let block = ReportBlock {
        ssrc: SENDER,
        fraction: at(1),
        cumulative_lost: i32::from(at(2) as i8),
        highest_seq: u32::from(u16::MAX) - 20 + u32::from(at(3)),
        jitter: u32::from(at(4)) << 6,
        lsr: u32::from(at(5)) << 10,
        dlsr: u32::from(at(6)) << 6,
    };
    let blocks = if at(0) & 0x80 == 0 { vec![block] } else { Vec::new() };
    let mut data = body.to_vec();
    data.resize(data.len().next_multiple_of(4), 0);
    let app = Packet::App { ssrc, subtype: at(0) & 0x1f, name, data };
    let first = Packet::ReceiverReport { ssrc, blocks };
    let mut out = Vec::new();
    let mut packets = vec![first, app];
    if at(0) & 0x40 != 0 {
        let missing = body.iter().map(|n| (u16::MAX - 20).wrapping_add(u16::from(*n))).collect();
        packets.push(Nack { sender: ssrc, media: SENDER, missing }.to_packet());
    }
    Compound { packets }.encode(&mut out);
    out
}

/// A packet of media with a notice, or of retransmissions: number, time stamp and send time from three bytes each.
fn media(bytes: &[u8]) -> Vec<u8> {
    let (head, notice) = bytes.split_at(4.min(bytes.len()));
    let at = |n: usize| u32::from(head.get(n).copied().unwrap_or(0));
    let again = at(0) & 0x40 != 0;
    let header = RtpHeader {
        payload_type: if again { REPAIR.payload_type } else { 96 },
        marker: at(0) & 1 != 0,
        seq: (u16::MAX - 20).wrapping_add(at(1) as u16),
        timestamp: (u32::MAX - 90_000).wrapping_add(at(2) * 900),
        ssrc: if again { REPAIR.ssrc } else { SENDER },
        send_time: (at(0) & 2 == 0).then_some(Stamp(at(3) << 10)),
        payload_len: 16,
    };
    let id = (at(0) as u8 >> 2) % 14 + 1;
    let notice = &notice[..notice.len().min(24)];
    let elements: &[(u8, &[u8])] = if notice.is_empty() { &[] } else { &[(id, notice)] };
    let mut out = Vec::new();
    // A retransmission begins with the original's number.
    let mut payload = [0; 16];
    payload[..2].copy_from_slice(&(u16::MAX - 20).wrapping_add(at(3) as u16).to_be_bytes());
    header.encode(elements, &payload, &mut out);
    out
}

/// Trace files of links, read for each quantity: a file that is accepted has a duration and a mean, and any other is
/// refused in one line.
pub fn trace(data: &[u8]) {
    for quantity in [Quantity::Rate, Quantity::Delay, Quantity::Loss] {
        match recorded(data, "it", quantity) {
            Ok(Recorded::Rows(rows) | Recorded::Pattern(rows, ..)) => {
                assert!(!rows.period.is_zero() && rows.mean() >= 0.0);
                assert!(rows.values.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            }
            Ok(Recorded::Opportunities(at, _)) => assert!(at.last().is_some_and(|last| !last.is_zero())),
            Err((what, remedy)) => assert!(!what.contains('\n') && !remedy.is_empty()),
        }
    }
}

/// A call's event log or capture: a call that is accepted has a path with as many bins as its duration, or the reasons
/// for its refusal.
pub fn call(data: &[u8]) {
    let _ = datagrams(data);
    let Ok(call) = read(data, Options::default(), None) else { return };
    assert!(!call.packets.is_empty(), "a call without packets");
    let path = Path::of(&call, data.len().is_multiple_of(2));
    let finite = |rate: Rate| rate.as_bps_f64().is_finite();
    assert!(path.bins.iter().all(|bin| finite(bin.sent) && bin.capacity.is_none_or(|band| finite(band.rate))));
}

/// Offers of browsers that play or publish: each is answered with open sections of one direction, or refused with the
/// place of the problem.
pub fn web_offer(data: &[u8]) {
    use PayloadFormat::{Av1, H264, Vp8, Vp9};
    let (own, address) = (Credentials::of(&[1; 24]), SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)));
    let played = [H264, Vp8, Vp9, Av1].map(|format| {
        let sources = LocalSources { media: 1, repair: Some(2), audio: Some(3), cname: "it" };
        ("a=sendonly", Some(sources), agree(data, &Shown { format: Some(format), config: &[], audio: true }))
    });
    let published = ("a=recvonly", None, agree_to_receive(data, true));
    for (direction, sources, agreed) in played.into_iter().chain([published]) {
        match agreed {
            Ok(agreed) => {
                let answer = agreed.describe(&LocalParameters {
                    session: 1,
                    address,
                    others: &[],
                    credentials: &own,
                    fingerprint: [0; 32],
                    feedback: if agreed.congestion { Feedback::Congestion } else { Feedback::Transport },
                    send_time: true,
                    key_frames: true,
                    sources,
                });
                let told = |start: &str| answer.lines().filter(|line| line.starts_with(start)).count();
                let open = 1 + usize::from(agreed.audio.is_some());
                assert_eq!(
                    (told("a=setup:passive"), told(direction), told("a=candidate")),
                    (open, open, open),
                    "{answer}"
                );
                assert_eq!(told("a=ssrc:") > 0, sources.is_some(), "{answer}");
                // Equal lines in both sections are one extension (RFC 9143, section 9.3).
                let maps: BTreeSet<_> = answer.lines().filter_map(|line| line.strip_prefix("a=extmap:")).collect();
                let ids: BTreeSet<_> = maps.iter().filter_map(|map| map.split(' ').next()).collect();
                assert_eq!(ids.len(), maps.len(), "{answer}");
            }
            Err(refusal) => assert!(refusal.place.starts_with("offer.") && !refusal.problem.contains('\n')),
        }
    }
}

/// A server's answers to our offers: each is accepted with an address and per-packet feedback, or refused with the place
/// of the problem.
pub fn web_answer(data: &[u8]) {
    use PayloadFormat::{Av1, H264, Vp8, Vp9};
    for (format, feedback) in
        [H264, Vp8, Vp9, Av1].into_iter().zip([Feedback::Transport, Feedback::Congestion].iter().cycle())
    {
        let stream = Shown { format: Some(format), config: &[], audio: true };
        let Ok(offered) = propose(&stream, *feedback) else { panic!("{format:?} is not offered") };
        match offered.accept(data, &stream) {
            Ok(accepted) => {
                let Role::Offerer { candidates, .. } = &accepted.role else { panic!("the role has changed") };
                assert!(!candidates.is_empty() && !accepted.fingerprints.is_empty());
                assert!(accepted.congestion || accepted.transport.is_some());
                let types = [Some(accepted.payload_type), accepted.repair, accepted.audio.map(|it| it.payload_type)];
                let known: BTreeSet<_> = types.iter().flatten().collect();
                assert_eq!(known.len(), types.iter().flatten().count(), "{types:?}");
            }
            Err(refusal) => assert!(refusal.place.starts_with("answer.") && !refusal.problem.contains('\n')),
        }
    }
}

/// Datagrams at a browser's tunnel, each after its source, its delay, and its length: nothing is sent to an address
/// without a valid check, and no keys result.
pub fn web_datagram(mut rest: &[u8]) {
    #[allow(clippy::disallowed_methods, reason = "the crates count from an instant, and only the clock gives one")]
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    static CERTIFICATES: LazyLock<Option<[Certificate; 2]>> =
        LazyLock::new(|| Some([Certificate::new(&[1; 32])?, Certificate::new(&[2; 32])?]));
    let Some([certificate, theirs]) = CERTIFICATES.as_ref() else { panic!("the secrets are good ones") };
    let at = |port: u8| SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000 + u16::from(port)));
    let (own, peer) = (Credentials::of(&[1; 24]), Credentials::of(&[2; 24]));
    let ends =
        TunnelParameters { local: at(0), own, peer, fingerprints: vec![theirs.fingerprint], role: Role::Answerer };
    let Ok(mut tunnel) = Tunnel::new(*EPOCH, Time::ZERO, ends, certificate) else { panic!("the certificate is one") };
    let (mut now, mut checked) = (Time::ZERO, BTreeSet::new());
    while let [from, later, high, low, tail @ ..] = rest {
        let (datagram, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([*high, *low]))));
        now += Span::millis(u64::from(*later) * 20);
        if tunnel.wake() <= now {
            tunnel.on_wake(now);
        }
        let refused = tunnel.refused();
        tunnel.on_datagram(now, at(*from), datagram);
        if tunnel.refused() == refused {
            checked.insert(at(*from));
        }
        while let Some(output) = tunnel.poll() {
            match output {
                Way::Send(to, _) | Way::Peer(to) => assert!(checked.contains(&to), "bytes for a stranger"),
                Way::Keys(_) => panic!("keys of what was recorded"),
            }
        }
        rest = tail;
    }
}
