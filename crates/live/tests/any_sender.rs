//! Frames of any standard-compliant sender are received unchanged: with any payload format and packetisation, with
//! useful or missing markers, with reordered and duplicate packets, and after an SSRC change or a restart.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use steadycast_control::registry::{Chosen, Given, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_endpoints::{Intake, VideoSink};
use steadycast_live::{
    Datagram, End, FrameQueue, JitterBuffer, Meta, Outbox, ReceivedFrame, Reports, SocketSink, Which,
};
use steadycast_session::{Identity, Profile, Receiver, RtcpSettings, UnusedReason};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::payload::{PayloadFormat, payloads};
use steadycast_wire::rtp::RtpHeader;

const TYPE: u8 = 96;
/// Duration of a frame.
const FRAME: Span = Span::millis(40);
const TICKS: i64 = 3_600;

/// Marker conventions of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Markers {
    Right,
    Never,
    EachPacket,
    EachUnit,
    KeyFramesOnly,
}

/// Changes of the stream at a key frame.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    /// The SSRC changes. Sequence numbers and timestamps continue.
    Name,
    /// The SSRC changes. Sequence numbers and timestamps start anew.
    Source,
    /// The SSRC stays. Sequence numbers and timestamps start anew.
    Restart,
}

#[derive(Clone, Debug)]
struct Sending {
    format: PayloadFormat,
    markers: Markers,
    change: Change,
    /// Number of slices per frame, if the format has slices.
    slices: usize,
    /// Number of frames from one key frame to the next.
    group: usize,
    frames: usize,
    most: usize,
    /// Maximum delay of a packet in milliseconds. One packet in `twice` is duplicated.
    late_ms: u64,
    twice: u64,
    seed: u64,
}

fn sending() -> impl Strategy<Value = Sending> {
    let markers = prop_oneof![
        Just(Markers::Right),
        Just(Markers::Never),
        Just(Markers::EachPacket),
        Just(Markers::EachUnit),
        Just(Markers::KeyFramesOnly)
    ];
    let change = prop_oneof![Just(Change::Nothing), Just(Change::Name), Just(Change::Source), Just(Change::Restart)];
    let shape = (1..=5usize, 4..=12usize, 13..=40usize, 40..=400usize);
    (0..PayloadFormat::ALL.len(), markers, change, shape, 0..=30u64, 2..=20u64, any::<u64>()).prop_map(
        |(format, markers, change, (slices, group, frames, most), late_ms, twice, seed)| {
            let format = PayloadFormat::ALL[format];
            Sending { format, markers, change, slices, group, frames, most, late_ms, twice, seed }
        },
    )
}

/// Returns a frame in the form in which the depacketiser returns it.
fn frame(format: PayloadFormat, key: bool, slices: usize, n: usize) -> Vec<u8> {
    let body = |salt: usize| (0..130 + 37 * ((n + salt) % 9)).map(move |at| 0x11 + ((at * 7 + n + salt) % 0xe0) as u8);
    let nal =
        |head: &[u8], salt: usize| [&[0, 0, 0, 1], head].concat().into_iter().chain(body(salt)).collect::<Vec<u8>>();
    let nals = |sets: &[&[u8]], slice: &[u8]| {
        let sets = sets.iter().map(|set| [&[0, 0, 0, 1], *set].concat());
        sets.chain((0..slices).map(|salt| nal(slice, salt))).flatten().collect::<Vec<u8>>()
    };
    match format {
        PayloadFormat::Mpeg4 => [0, 0, 1, 0xb6, if key { 0x11 } else { 0x51 }].into_iter().chain(body(0)).collect(),
        PayloadFormat::Mpeg2 => {
            let mut all = vec![0, 0, 1, 0, 0x11, if key { 0x4f } else { 0x57 }, 0xff, 0xf8, 0x80];
            for slice in 0..slices {
                all.extend([0, 0, 1, 1 + slice as u8].into_iter().chain(body(slice)));
            }
            all
        }
        PayloadFormat::H263p => {
            let mut all = vec![0, 0, 0x80, 0x02, if key { 0x0d } else { 0x0f }];
            all.extend(body(0));
            for slice in 1..slices {
                all.extend([0, 0, 0x80 | (slice as u8) << 2 | 1].into_iter().chain(body(slice)));
            }
            all
        }
        PayloadFormat::H264 if key => nals(&[&[9, 0x10], &[0x67, 1, 2], &[0x68, 3]], &[0x65, 0x88]),
        PayloadFormat::H264 => nals(&[&[9, 0x30]], &[0x61, 0x9a]),
        PayloadFormat::H265 if key => nals(&[&[0x40, 1, 7], &[0x42, 1, 8], &[0x44, 1, 9]], &[0x26, 1]),
        PayloadFormat::H265 => nals(&[], &[0x02, 1]),
        PayloadFormat::Vp8 => [if key { 0x10 } else { 0x11 }].into_iter().chain(body(0)).collect(),
        PayloadFormat::Vp9 => [if key { 0x82 } else { 0x86 }].into_iter().chain(body(0)).collect(),
        PayloadFormat::Av1 => {
            let obu = |kind: u8, first: u8, salt: usize| {
                let bytes: Vec<u8> = std::iter::once(first).chain(body(salt)).collect();
                let len = [bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8];
                [&[kind << 3 | 2][..], &len, &bytes].concat()
            };
            let sequence = if key { vec![1 << 3 | 2, 3, 0x00, 1, 2] } else { Vec::new() };
            let tiles = (1..slices).flat_map(|salt| obu(4, 0x20, salt));
            let head = obu(if slices > 1 { 3 } else { 6 }, if key { 0x10 } else { 0x30 }, 0);
            [vec![2 << 3 | 2, 0], sequence, head].concat().into_iter().chain(tiles).collect()
        }
    }
}

impl Sending {
    fn is_key(&self, n: usize) -> bool {
        n.is_multiple_of(self.group)
    }

    fn frame(&self, n: usize) -> Vec<u8> {
        frame(self.format, self.is_key(n), self.slices, n)
    }

    /// Returns the datagrams in the order of arrival.
    fn packets(&self) -> Vec<(Time, Vec<u8>)> {
        let (mut chance, mut all) = (Seed(self.seed).part("packets"), Vec::new());
        let (mut ssrc, mut seq, mut stamp) = (0x1000, chance.bits32() as u16, chance.bits32());
        for n in 0..self.frames {
            // A source that sends for less than two frames is not followed, so that no change is made at the end.
            if n > 0 && self.is_key(n) && n + 5 < self.frames {
                if matches!(self.change, Change::Name | Change::Source) {
                    ssrc += 1;
                }
                if matches!(self.change, Change::Source | Change::Restart) {
                    // The jump is larger than any loss.
                    seq = seq.wrapping_add(5_000 + chance.bits32() as u16 % 50_000);
                    stamp = stamp.wrapping_add(1 << 30).wrapping_add(chance.bits32() >> 1);
                }
            }
            let unit = self.frame(n);
            for (k, payload) in payloads(self.format, &unit, n as u32, self.most).enumerate() {
                let marker = match self.markers {
                    Markers::Right => payload.fragment.last,
                    Markers::Never => false,
                    Markers::EachPacket => true,
                    Markers::EachUnit => payload.fragment.ends_unit,
                    Markers::KeyFramesOnly => payload.fragment.last && self.is_key(n),
                };
                let mut body = Vec::new();
                payload.write(&mut body);
                let payload_len = body.len() as u16;
                let header =
                    RtpHeader { payload_type: TYPE, marker, seq, timestamp: stamp, ssrc, send_time: None, payload_len };
                let mut bytes = Vec::new();
                header.encode(&[], &body, &mut bytes);
                let sent = Time::ZERO + Span::secs(1) + FRAME * n as u64 + Span::micros(100) * k as u64;
                // The first packet is not delayed, because the receiver can't know that an earlier one exists.
                let late = if all.is_empty() { 0 } else { chance.bits64() % (1 + self.late_ms * 1_000) };
                all.push((sent + Span::micros(late), bytes.clone()));
                if chance.bits64().is_multiple_of(self.twice) {
                    all.push((sent + Span::micros(late + chance.bits64() % 5_000), bytes));
                }
                seq = seq.wrapping_add(1);
            }
            stamp = stamp.wrapping_add(TICKS as u32);
        }
        all.sort_by_key(|(at, _)| *at);
        all
    }
}

/// Returns a receiver for standard senders, and its frame queue.
fn receiver(format: PayloadFormat) -> (SocketSink, FrameQueue) {
    let given: &[(String, Given)] = &[];
    let factory = Chosen::shared("fixed", Mode::Repaired, given).unwrap();
    let setup = Setup {
        packet: Bytes::new(1_000),
        mode: Mode::Repaired,
        floor: Rate::ZERO,
        cap: Rate::MAX,
        capped: true,
        session_bandwidth: Rate::mbps(2),
        group: false,
        id: ReceiverId(9),
        chance: Seed(1).part("half"),
        pictures: None,
        ecn: Ecn::NotEct,
        probes: true,
    };
    let make = Box::new(move |now, _| {
        let rtcp = RtcpSettings { group: true, ..RtcpSettings::new(Profile::Rfc3550, Rate::mbps(2)) };
        let identity = Identity { ssrc: 9, cname: "receiver".into() };
        Receiver::new(identity, rtcp, factory.terms().app, factory.receiver(&setup), Seed(1).part("rtcp"), now)
            .described(Some([TYPE].into_iter().collect()), None)
    });
    let frame_queue = FrameQueue::default();
    frame_queue.want();
    let sink = VideoSink::new(make, Intake::new(Time::ZERO, Time::NEVER), false, 0);
    let reports = Reports::Sender { known: None, mux: false, heard: false };
    let jitter_buffer = Box::new(JitterBuffer::new(format, [TYPE].into_iter().collect(), frame_queue.clone()));
    (SocketSink::new(sink, jitter_buffer, reports), frame_queue)
}

/// Returns all frames of these datagrams, with the time at which each was available.
fn received(format: PayloadFormat, packets: &[(Time, Vec<u8>)]) -> Vec<(Time, ReceivedFrame)> {
    let (mut sink, frame_queue) = receiver(format);
    let (mut out, mut frames) = (Outbox::default(), Vec::new());
    let from: SocketAddr = "192.0.2.1:5004".parse().unwrap();
    let take = |at, frames: &mut Vec<_>| {
        frames.extend(frame_queue.take(Duration::ZERO).unwrap().into_iter().map(|frame| (at, frame)));
    };
    sink.join(Time::ZERO);
    for (at, bytes) in packets {
        while sink.wake() <= *at {
            let now = sink.wake();
            sink.on_wake(now, &mut out);
            take(now, &mut frames);
        }
        let meta = Meta { from, to: None, ecn: Ecn::NotEct, at: *at };
        sink.on_datagram(*at, &Datagram { which: Which::Rtp, bytes, meta }, &mut out);
        take(*at, &mut frames);
    }
    sink.close();
    take(packets.last().unwrap().0, &mut frames);
    frames
}

/// Checks that all frames are received unchanged, complete and with their times.
fn comes_out(sending: &Sending) -> Result<(), TestCaseError> {
    let frames = received(sending.format, &sending.packets());
    let expected: Vec<Vec<u8>> = (0..sending.frames).map(|n| sending.frame(n)).collect();
    let got: Vec<&Vec<u8>> = frames.iter().map(|(_, frame)| &frame.bytes).collect();
    prop_assert_eq!(got.len(), expected.len(), "frames");
    prop_assert!(got.iter().zip(&expected).all(|(got, sent)| *got == sent), "bytes");
    prop_assert!(frames.iter().all(|(_, frame)| frame.whole && !frame.damaged), "whole");
    for (n, (_, frame)) in frames.iter().enumerate() {
        let off = (frame.ticks - TICKS * n as i64).abs();
        // Frame times of a new run follow from its arrival, which may be late, and the errors of successive runs add
        // up.
        let runs = match sending.change {
            Change::Nothing | Change::Name => 0,
            Change::Source | Change::Restart => (n / sending.group) as i64,
        };
        prop_assert!(off <= runs * 90 * (sending.late_ms as i64 + 1), "frame {n} is {off} ticks off");
    }
    Ok(())
}

/// Returns an H.264 packet with these header fields.
fn packet(payload_type: u8, ssrc: u32, seq: u16, timestamp: u32, marker: bool, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let header = RtpHeader { payload_type, marker, seq, timestamp, ssrc, send_time: None, payload_len };
    let mut bytes = Vec::new();
    header.encode(&[], payload, &mut bytes);
    bytes
}

/// The reasons for unused packets beside a stream.
const BESIDE: [UnusedReason; 16] = [
    UnusedReason::ExcludedSource,
    UnusedReason::KeepAlive,
    UnusedReason::Stun,
    UnusedReason::Dtls,
    UnusedReason::MpegTs,
    UnusedReason::NotRtp,
    UnusedReason::Malformed,
    UnusedReason::UnknownPayloadType,
    UnusedReason::OtherSource,
    UnusedReason::OtherAddress,
    UnusedReason::OwnSource,
    UnusedReason::FarNumber,
    UnusedReason::Duplicate,
    UnusedReason::NoPayload,
    UnusedReason::UnsupportedPacketisation,
    UnusedReason::MalformedPayload,
];

/// Checks that each packet beside a stream counts under its reason and under no other one.
fn counts_under_its_reason(seed: u64, share: u64) -> Result<(), TestCaseError> {
    const SOURCE: u32 = 0x5151_5151;
    let mut chance = Seed(seed).part("beside");
    let (mut sink, frame_queue) = receiver(PayloadFormat::H264);
    let (own, other, excluded) = ("192.0.2.1:5004", "192.0.2.2:5004", "192.0.2.3:5004");
    sink.excluded = vec![excluded.parse::<SocketAddr>().unwrap().ip()];
    sink.join(Time::ZERO);
    let (mut out, mut seq, mut at) = (Outbox::default(), 1_000u16, Time::ZERO + Span::secs(1));
    let mut expected = std::collections::BTreeMap::new();
    let mut take = |sink: &mut SocketSink, from: &str, bytes: &[u8]| {
        at += Span::millis(10);
        while sink.wake() <= at {
            sink.on_wake(sink.wake(), &mut out);
        }
        let meta = Meta { from: from.parse().unwrap(), to: None, ecn: Ecn::NotEct, at };
        sink.on_datagram(at, &Datagram { which: Which::Rtp, bytes, meta }, &mut out);
    };
    let mut collided = false;
    for n in 0..300u32 {
        let stamp = n * 3_600;
        let last = packet(TYPE, SOURCE, seq, stamp, true, &[0x65, n as u8, 7]);
        take(&mut sink, own, &last);
        seq = seq.wrapping_add(1);
        // The first packets are undisturbed, so that the receiver follows their source.
        if n < 10 || chance.bits64() % 100 >= share {
            continue;
        }
        let reason = BESIDE[(chance.bits64() % BESIDE.len() as u64) as usize];
        let (mut from, mut used_number) = (own, false);
        let bytes = match reason {
            UnusedReason::ExcludedSource => {
                from = excluded;
                packet(TYPE, 3, 1, stamp, true, &[0x65, 1])
            }
            UnusedReason::KeepAlive => vec![0; (chance.bits64() % 4) as usize],
            UnusedReason::Stun => [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat(),
            UnusedReason::Dtls => [&[22, 0xfe, 0xfd][..], &[0; 20]].concat(),
            UnusedReason::MpegTs => [&[0x47][..], &[0; 187]].concat(),
            UnusedReason::NotRtp => [&[0x48][..], &[0; 187]].concat(),
            // A header extension that is longer than the packet.
            UnusedReason::Malformed => {
                let mut cut = packet(TYPE, SOURCE, seq, stamp, true, &[0x65, 1, 0, 200]);
                cut[0] |= 0x10;
                cut
            }
            UnusedReason::UnknownPayloadType => packet(98, 0x6262_6262, n as u16, stamp, true, &[0x65, 1]),
            UnusedReason::OtherSource => packet(TYPE, 0x6262_6262, n as u16, stamp, true, &[0x65, 1]),
            UnusedReason::OtherAddress => {
                from = other;
                // The sequence number is consecutive, or far ahead.
                let ahead = if chance.bits64().is_multiple_of(2) { 0 } else { 20_000 };
                packet(TYPE, SOURCE, seq.wrapping_add(ahead), stamp, true, &[0x65, 1])
            }
            UnusedReason::OwnSource => packet(TYPE, 9, n as u16, stamp, true, &[0x65, 1]),
            UnusedReason::FarNumber => {
                let ahead = 10_000 + (chance.bits64() % 40_000) as u16;
                packet(TYPE, SOURCE, seq.wrapping_add(ahead), stamp, true, &[0x65, 1])
            }
            UnusedReason::Duplicate => last,
            in_sequence => {
                used_number = true;
                let payload: &[u8] = match in_sequence {
                    UnusedReason::NoPayload => &[],
                    UnusedReason::UnsupportedPacketisation => &[0x7d, 0xc5, 0, 1, 7],
                    _ => &[0x1f, 7],
                };
                packet(TYPE, SOURCE, seq, stamp + 1_800, true, payload)
            }
        };
        seq = seq.wrapping_add(u16::from(used_number));
        take(&mut sink, from, &bytes);
        // After a collision the receiver changes its SSRC, so that the next such packet belongs to another source (RFC
        // 3550, section 8.2).
        let own = reason == UnusedReason::OwnSource;
        let reason = if own && std::mem::replace(&mut collided, true) { UnusedReason::OtherSource } else { reason };
        *expected.entry(reason).or_insert(0) += 1;
    }
    sink.close();
    let counts = sink.unused().counts;
    let counted: std::collections::BTreeMap<_, _> = counts.iter().collect();
    prop_assert_eq!(&counted, &expected);
    // Unsupported packets are no damage, malformed ones are.
    let frames = frame_queue.counts();
    let malformed = expected.get(&UnusedReason::MalformedPayload).copied().unwrap_or(0);
    prop_assert_eq!((frames.damaged, frames.missing), (malformed, 0), "{:?}", frames);
    // Each reason has a sentence.
    prop_assert_eq!(sink.unused().explanations(None, true).len(), expected.len());
    Ok(())
}

#[test]
fn another_source_whose_first_packet_is_overtaken_begins_with_that_one() {
    // The second packet of each source arrives first, so that the source is followed only from the first packet on.
    let sending = Sending {
        format: PayloadFormat::Vp8,
        markers: Markers::Right,
        change: Change::Name,
        slices: 1,
        group: 4,
        frames: 18,
        most: 181,
        late_ms: 18,
        twice: 5,
        seed: 14_756_235_532_738_182_443,
    };
    comes_out(&sending).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_any_sender_are_received_unchanged_and_in_time(sending in sending()) {
        comes_out(&sending)?;
    }

    #[test]
    fn each_packet_that_is_not_used_counts_under_its_reason(seed: u64, share in 1u64..100) {
        counts_under_its_reason(seed, share)?;
    }

    #[test]
    fn a_frame_is_there_with_its_marker_and_without_one_when_the_next_begins(sending in sending(), right: bool) {
        let markers = if right { Markers::Right } else { Markers::Never };
        let sending = Sending { change: Change::Nothing, markers, late_ms: 0, most: sending.most.min(120), ..sending };
        let frames = received(sending.format, &sending.packets());
        for (n, (at, frame)) in frames.iter().enumerate() {
            let waited = at.since(frame.last);
            // The markers are trusted only after the first key frame and the first other frame.
            let most = if right && n > 1 { Span::ZERO } else { FRAME };
            prop_assert!(waited <= most, "frame {n} of {} came after {waited:?}", sending.frames);
        }
    }
}
