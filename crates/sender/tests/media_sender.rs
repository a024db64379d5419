//! A [`MediaSender`] keeps the order of its streams, its bounds and its promises to the caller.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use proptest::prelude::*;
use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, FrameEdge, Stream};
use steadycast_remote::{Bounds, Given, PacketResult, PeerTime};
use steadycast_sender::{
    Backlog, Departure, FrameRole, MediaPacket, MediaSender, MediaSettings, Output, PacketName, RepairSettings,
    StreamId, StreamSettings,
};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::rtcp::{Compound, KeyFrameRequest, Nack, PacketStatus, Ticks, TransportFeedback};

fn ms(n: u64) -> Time {
    Time::ZERO + Span::millis(n)
}

fn settings() -> MediaSettings {
    MediaSettings::new(Bounds::new(Rate::kbps(100), Rate::mbps(4)))
}

/// A sender at a fixed rate, with one video stream.
fn fixed(rate: &str, settings: MediaSettings) -> (MediaSender, StreamId) {
    let mut sender = MediaSender::new("fixed", &[("rate".to_owned(), Given::Text(rate.into()))], settings).unwrap();
    let mut video = StreamSettings::video(1);
    video.retransmission = Some(RepairSettings::default());
    let video = sender.add_stream(video);
    (sender, video)
}

fn packet(seq: u16) -> MediaPacket {
    MediaPacket {
        id: 1_000 + u64::from(seq),
        size: Bytes::new(1_000),
        edge: FrameEdge { first: true, last: true },
        seq,
    }
}

/// Returns all packets that the sender sends until `end`, with their times.
fn sent_until(sender: &mut MediaSender, mut now: Time, end: Time) -> Vec<(Time, Departure)> {
    let mut sent = Vec::new();
    loop {
        match sender.poll(now) {
            Output::Send(departure) => sent.push((now, departure)),
            Output::Dropped(..) => {}
            Output::Wait(wake) => now = wake.map_or(end, |wake| wake.at),
        }
        if now >= end {
            return sent;
        }
    }
}

#[test]
fn audio_leaves_at_once_then_retransmissions_then_parity_then_video_at_the_pacing_rate() {
    let (mut sender, video) = fixed("1Mbps", settings());
    let audio = sender.add_stream(StreamSettings::audio(2, Rate::kbps(50)));
    let parity = sender.add_stream(StreamSettings::parity(3, Rate::kbps(50)));
    assert!(sender.push(ms(0), video, &packet(0)));
    assert_eq!(sent_until(&mut sender, ms(0), ms(100)).len(), 1);
    // The packet of 1,000 bytes took 8 ms, so the next ones are due at once.
    for seq in 1..3 {
        assert!(sender.push(ms(200), video, &packet(seq)));
    }
    assert!(sender.push(ms(200), parity, &packet(7)));
    assert!(sender.resend(ms(200), video, 0));
    assert!(sender.push(ms(200), audio, &packet(9)));
    let sent = sent_until(&mut sender, ms(200), ms(300));
    let kinds: Vec<_> = sent.iter().map(|(_, left)| (left.stream, left.kind, left.seq)).collect();
    let expected = [
        (audio, Stream::Media, 9),
        (video, Stream::Repair, 0),
        (parity, Stream::Parity, 7),
        (video, Stream::Media, 1),
        (video, Stream::Media, 2),
    ];
    assert_eq!(kinds, expected);
    let times: Vec<_> = sent.iter().map(|(at, _)| at.since(ms(200)).as_millis_f64()).collect();
    // The retransmission waits for the audio, and has 2 bytes more than its original.
    assert_eq!(times[0], 0.0);
    assert!((times[1] - 8.0).abs() < 0.01 && (times[4] - 32.0).abs() < 0.05, "{times:?}");
}

#[test]
fn a_packet_that_is_requested_again_and_again_is_retransmitted_once_per_round_trip() {
    let (mut sender, video) = fixed("1Mbps", settings());
    assert!(sender.push(ms(0), video, &packet(0)));
    assert_eq!(sent_until(&mut sender, ms(0), ms(10)).len(), 1);
    let nack = Nack { sender: 2, media: 1, missing: vec![0, 0, 0] }.to_packet();
    let mut datagram = Vec::new();
    Compound { packets: vec![nack] }.encode(&mut datagram);
    let mut repairs = Vec::new();
    // A round trip of 100 ms is assumed until one is measured.
    for n in 0..30 {
        let now = ms(200 + 10 * n);
        sender.on_rtcp(now, &datagram).unwrap();
        repairs.extend(sent_until(&mut sender, now, now + Span::millis(10)));
    }
    assert_eq!(repairs.len(), 3);
    assert!(repairs.iter().all(|(_, left)| left.kind == Stream::Repair && left.id == 1_000));
}

#[test]
fn retransmissions_stay_within_their_share_of_the_rate_and_the_encoder_gets_the_rest() {
    let (mut sender, video) = fixed("1Mbps", settings());
    let mut sent = Vec::new();
    for n in 0..500_u16 {
        let now = ms(10 * u64::from(n));
        let target = sender.encoder(now, video);
        if !target.skip {
            sender.push(now, video, &packet(n));
        }
        for back in 1..20 {
            sender.resend(now, video, n.wrapping_sub(10 * back));
        }
        sent.extend(sent_until(&mut sender, now, now + Span::millis(10)));
    }
    let bytes = |kind| sent.iter().filter(|(_, left)| left.kind == kind).map(|(_, left)| left.size.get()).sum::<u64>();
    let (media, repair) = (bytes(Stream::Media), bytes(Stream::Repair));
    // At most 0.15 of 1 Mb/s over five seconds, plus what accumulates in one second (REPAIR_SHARE).
    assert!(repair > 80_000 && repair <= 120_000, "{repair}");
    assert!(media + repair <= 625_000 + 2_000, "{media} and {repair}");
    let rate = sender.encoder(ms(5_000), video).rate;
    assert!(rate < Rate::kbps(900) && rate > Rate::kbps(800), "{rate}");
    assert!(sender.repairs().refused > 100);
}

#[test]
fn a_full_queue_says_skip_and_then_asks_for_a_key_frame_once() {
    let (mut sender, video) = fixed("1Mbps", settings());
    let mut seq = 0;
    let mut frame = |sender: &mut MediaSender, now, role| {
        let taken = sender.frame(now, video, role);
        for n in 0..13 {
            let edge = FrameEdge { first: n == 0, last: n == 12 };
            assert_eq!(sender.push(now, video, &MediaPacket { edge, ..packet(seq) }), taken);
            seq += u16::from(taken);
        }
        taken
    };
    // 13 kB each 40 ms are 2.6 times the rate: the backlog reaches a second after about 625 ms.
    assert!(frame(&mut sender, ms(0), FrameRole::Key));
    let refused = (1..100).map(|n| ms(40 * n)).find(|now| {
        sent_until(&mut sender, now.before(Span::millis(40)), *now);
        !frame(&mut sender, *now, FrameRole::Reference)
    });
    let at = refused.unwrap();
    assert!(at > ms(500) && at < ms(800), "{at:?}");
    // The queue is still full, so the encoder is not even asked for a key frame.
    let target = sender.encoder(at, video);
    assert!(target.skip && !target.key_frame);
    assert!(!frame(&mut sender, at + Span::millis(40), FrameRole::Disposable));
    sent_until(&mut sender, at, at + Span::millis(700));
    let later = at + Span::millis(700);
    let target = sender.encoder(later, video);
    assert!(!target.skip && target.key_frame);
    assert!(!sender.encoder(later, video).key_frame, "it is said once");
    assert!(!frame(&mut sender, later, FrameRole::Reference), "nothing can be decoded before the key frame");
    assert!(frame(&mut sender, later, FrameRole::Key));
    assert_eq!(sender.backlog().skipped, 3);
}

#[test]
fn a_key_frame_replaces_what_waits_and_the_caller_gets_its_packets_back() {
    let (mut sender, video) = fixed("100kbps", settings());
    for seq in 0..20 {
        sender.frame(ms(0), video, FrameRole::Reference);
        sender.push(ms(0), video, &packet(seq));
    }
    let waits = sender.backlog().bytes.get() / 1_000;
    assert!(sender.frame(ms(1), video, FrameRole::Key));
    assert!(sender.push(ms(1), video, &packet(20)));
    let mut dropped = Vec::new();
    while let Output::Dropped(stream, id) = sender.poll(ms(1)) {
        assert_eq!(stream, video);
        dropped.push(id);
    }
    assert_eq!(dropped, (1_000..1_000 + waits).collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn a_cleared_sender_sends_what_is_pushed_next_and_still_retransmits_what_was_sent(
        waiting in 1_u16..200, sent_ms in 0_u64..100,
    ) {
        let (mut sender, video) = fixed("1Mbps", settings());
        for seq in 0..waiting {
            sender.push(ms(0), video, &packet(seq));
        }
        let before = sent_until(&mut sender, ms(0), ms(sent_ms + 1)).len();
        sender.clear();
        prop_assert_eq!(sender.backlog().bytes, Bytes::ZERO);
        prop_assert!(sender.push(ms(200), video, &packet(waiting)));
        prop_assert!(sender.resend(ms(200), video, 0));
        let after: Vec<_> = sent_until(&mut sender, ms(200), ms(500)).iter().map(|(_, left)| left.seq).collect();
        prop_assert_eq!(after, [0, waiting]);
        prop_assert!(before >= 1);
    }
}

proptest! {
    #[test]
    fn a_frame_that_exceeds_twice_the_backlog_is_refused_to_its_end_and_audio_is_not(
        before in 0_u16..100, packets in 400_u16..600, reference: bool,
    ) {
        let (mut sender, video) = fixed("1Mbps", settings());
        let audio = sender.add_stream(StreamSettings::audio(2, Rate::kbps(50)));
        let role = if reference { FrameRole::Reference } else { FrameRole::Disposable };
        let packet = |n: u16, of: u16, seq| {
            let edge = FrameEdge { first: n == 0, last: n + 1 == of };
            MediaPacket { edge, ..packet(seq) }
        };
        prop_assert!(sender.frame(ms(0), video, FrameRole::Key));
        for n in 0..before {
            prop_assert!(sender.push(ms(0), video, &packet(n, before, n)));
        }
        prop_assert!(sender.frame(ms(0), video, role));
        let taken = (0..packets).filter(|n| sender.push(ms(0), video, &packet(*n, packets + 2, before + n))).count();
        // Two seconds at 1 Mb/s are 250 packets; the bound is checked before a packet is added.
        prop_assert_eq!(taken + usize::from(before), 251);
        prop_assert!(sender.push(ms(0), audio, &packet(0, 1, 0)));
        prop_assert_eq!(sender.backlog_of(audio).bytes, Bytes::new(1_000));
        prop_assert_eq!(sender.backlog_of(video), Backlog { bytes: Bytes::new(251_000), skipped: 1 });
        sent_until(&mut sender, ms(0), ms(5_000));
        prop_assert!(!sender.push(ms(5_000), video, &packet(packets, packets + 2, before + packets)));
        prop_assert_eq!(sender.frame(ms(5_000), video, FrameRole::Reference), !reference);
        prop_assert_eq!(sender.encoder(ms(5_000), video).key_frame, reference);
        prop_assert!(sender.frame(ms(5_001), video, FrameRole::Key));
        prop_assert!(sender.push(ms(5_001), video, &packet(0, 1, 9_000)));
    }
}

#[test]
fn a_caller_that_announces_no_frames_gets_a_request_for_a_key_frame_and_goes_on() {
    let (mut sender, video) = fixed("1Mbps", settings());
    let taken = (0..300).filter(|seq| sender.push(ms(0), video, &packet(*seq))).count();
    assert_eq!(taken, 251);
    sent_until(&mut sender, ms(0), ms(3_000));
    assert!(sender.encoder(ms(3_000), video).key_frame);
    assert!(!sender.encoder(ms(4_000), video).key_frame, "it is said once");
    assert!(sender.push(ms(4_000), video, &packet(300)));
}

#[test]
fn a_request_of_a_receiver_reaches_the_encoder() {
    let (mut sender, video) = fixed("1Mbps", settings());
    let mut datagram = Vec::new();
    let packets = vec![KeyFrameRequest::PictureLoss { sender: 2, media: 1 }.to_packet()];
    Compound { packets }.encode(&mut datagram);
    assert_eq!(sender.on_rtcp(ms(0), &datagram).unwrap().key_frames, 1);
    assert!(sender.encoder(ms(0), video).key_frame);
    assert!(!sender.encoder(ms(1), video).key_frame);
}

#[test]
fn layers_get_rate_in_their_order_and_audio_before_them() {
    let mut sender = fixed("1Mbps", settings()).0;
    let layer = |ssrc, least, most| {
        let mut layer = StreamSettings::video(ssrc);
        (layer.least, layer.most) = (Rate::kbps(least), Rate::kbps(most));
        layer
    };
    // The video stream that `fixed` adds would come first and take the whole rate, so the layers get a new sender
    // without it.
    drop(sender);
    sender = MediaSender::new("fixed", &[("rate".to_owned(), Given::Text("1Mbps".into()))], settings()).unwrap();
    let low = sender.add_stream(layer(1, 100, 150));
    let middle = sender.add_stream(layer(2, 300, 500));
    let high = sender.add_stream(layer(3, 600, 2_000));
    let audio = sender.add_stream(StreamSettings::audio(4, Rate::kbps(50)));
    let mut skips = |stream| sender.encoder(ms(0), stream).skip;
    assert_eq!([skips(low), skips(middle), skips(high)], [false, false, true], "a layer without a rate is paused");
    let mut rate = |stream| sender.encoder(ms(0), stream).rate;
    assert_eq!(rate(audio), Rate::kbps(50));
    assert_eq!((rate(low), rate(middle), rate(high)), (Rate::kbps(150), Rate::kbps(500), Rate::ZERO));
}

proptest! {
    #[test]
    fn the_encoder_gets_what_the_reserved_rates_of_audio_and_parity_leave(
        audio in 0_u64..200, parity in 1_u64..400, sent in 0_u64..=100,
    ) {
        let (mut sender, video) = fixed("1Mbps", settings());
        sender.add_stream(StreamSettings::audio(2, Rate::kbps(audio)));
        let parities = sender.add_stream(StreamSettings::parity(3, Rate::kbps(parity)));
        // The program sends `sent` per cent of the reserved parity.
        let interval = 800_000 / (parity * sent).max(1);
        for now in (0..2_000).map(ms) {
            if sent > 0 && now.since(ms(0)).as_nanos() / 1_000_000 % interval == 0 {
                sender.push(now, parities, &packet(0));
            }
            sent_until(&mut sender, now, now + Span::millis(1));
        }
        sent_until(&mut sender, ms(2_000), ms(2_200));
        prop_assert_eq!(sender.encoder(ms(2_200), video).rate, Rate::kbps(1_000 - audio - parity));
    }

    #[test]
    fn a_stream_that_could_never_be_sent_is_refused(least in 0_u64..1_200, most in 0_u64..1_200, kind in 0..3) {
        let bounds = Bounds::new(Rate::kbps(100), Rate::mbps(1));
        let mut sender = MediaSender::new("fixed", &[], MediaSettings::new(bounds)).unwrap();
        let (least, most) = (Rate::kbps(least), Rate::kbps(most));
        let mut video = StreamSettings::video(1);
        (video.least, video.most) = (least, most);
        let (settings, possible) = match kind {
            0 => (StreamSettings::audio(1, most), most <= Rate::mbps(1)),
            1 => (StreamSettings::parity(1, most), most <= Rate::mbps(1)),
            _ => (video, most > Rate::ZERO && least <= most && least <= Rate::mbps(1)),
        };
        prop_assert_eq!(sender.try_add_stream(settings).is_ok(), possible);
        prop_assert_eq!(sender.streams(), usize::from(possible));
        prop_assert_eq!(sender.try_add_stream(StreamSettings::video(1)).is_ok(), !possible, "an SSRC has one stream");
    }
}

/// Runs two layers of a video over an idle link for 30 s, with frames in the first `frames` seconds. Returns the upper
/// layer's rate at the end, and the bytes of media and of padding that were sent in each second.
fn layers_over_an_idle_link(controller: &str, [most, least]: [u64; 2], frames: u64) -> (Rate, Vec<[u64; 2]>) {
    let mut settings = settings();
    settings.padding = true;
    let mut sender = MediaSender::new(controller, &[], settings).unwrap();
    let mut low = StreamSettings::video(1);
    (low.most, low.retransmission) = (Rate::kbps(most), Some(RepairSettings::default()));
    let mut high = StreamSettings::video(2);
    (high.least, high.retransmission) = (Rate::kbps(least), Some(RepairSettings::default()));
    let layers = [sender.add_stream(low), sender.add_stream(high)];
    let (mut way, mut seq, mut sent) = (VecDeque::new(), 0_u16, vec![[0; 2]; 30]);
    let mut upper = Rate::ZERO;
    for tick in 0..6_000 {
        let now = ms(5 * tick);
        for layer in layers.into_iter().filter(|_| tick % 8 == 0 && tick < 200 * frames) {
            let target = sender.encoder(now, layer);
            upper = target.rate;
            let bytes = if target.skip { 0 } else { target.rate.over(Span::millis(40)).get() };
            let packets = bytes.div_ceil(1_000);
            for n in 0..packets {
                let edge = FrameEdge { first: n == 0, last: n + 1 == packets };
                sender.push(now, layer, &MediaPacket { id: 0, size: Bytes::new(bytes / packets), edge, seq });
                seq = seq.wrapping_add(1);
            }
        }
        for (at, left) in sent_until(&mut sender, now, now + Span::millis(5)) {
            sent[tick as usize / 200][usize::from(left.kind == Stream::Padding)] += left.size.get();
            let arrival = PeerTime::from_nanos(at.as_nanos() as i64 + 25_000_000);
            way.push_back((at, PacketResult::at(left.number, arrival)));
        }
        if tick % 10 == 0 {
            let arrived = way.iter().take_while(|(at, _)| *at + Span::millis(50) < now).count();
            sender.feedback(now, way.drain(..arrived).map(|(_, fate)| fate).collect::<Vec<_>>());
        }
    }
    (upper, sent)
}

#[test]
fn padding_lets_a_paused_layer_start_and_ends_when_it_has_started() {
    for (controller, layers) in ["steady", "gcc", "nada", "tfrc", "scream", "asmp"]
        .into_iter()
        .flat_map(|name| [[300, 500], [150, 600], [500, 1_000]].map(|layers| (name, layers)))
    {
        let (upper, sent) = layers_over_an_idle_link(controller, layers, 30);
        assert!(upper >= Rate::kbps(layers[1]), "{controller} {layers:?}: {upper}");
        // The probes of `gcc` may still have padding.
        let [media, padding] = [0, 1].map(|n| sent[25..].iter().map(|second| second[n]).sum::<u64>());
        assert!(padding * if controller == "gcc" { 20 } else { media + 1 } <= media, "{controller} {layers:?}");
    }
}

#[test]
fn padding_towards_a_paused_layer_stays_within_the_target_and_ends_with_the_frames() {
    // The cap of 4 Mb/s is too low for the upper layer.
    let (upper, sent) = layers_over_an_idle_link("fixed", [300, 3_900], 10);
    assert_eq!(upper, Rate::ZERO);
    let second = |[media, padding]: [u64; 2]| (media, media + padding);
    for (media, all) in sent[1..9].iter().copied().map(second) {
        assert!((36_000..=38_000).contains(&media) && (490_000..=502_000).contains(&all), "{media} of {all}");
    }
    assert!(sent[11..].iter().all(|second| *second == [0, 0]), "{sent:?}");
}

#[test]
fn padding_and_media_together_stay_within_the_target_if_the_pacing_rate_is_above_it() {
    for controller in ["gcc", "steady", "nada", "scream"] {
        let mut padding = settings();
        padding.padding = true;
        let mut sender = MediaSender::new(controller, &[], padding).unwrap();
        let mut low = StreamSettings::video(1);
        (low.most, low.retransmission) = (Rate::kbps(80), Some(RepairSettings::default()));
        let mut high = StreamSettings::video(2);
        high.least = Rate::mbps(1);
        let layers = [sender.add_stream(low), sender.add_stream(high)];
        let (mut bytes, mut seq, mut target) = (0, 0, Rate::ZERO);
        for n in 0..10 {
            let now = ms(40 * n);
            target = target.max(sender.decision().target);
            assert!(layers.map(|layer| sender.encoder(now, layer).rate) == [Rate::kbps(80), Rate::ZERO]);
            // A frame of 80 kb/s, in small packets.
            for packet in 0..8 {
                let edge = FrameEdge { first: packet == 0, last: packet == 7 };
                sender.push(now, layers[0], &MediaPacket { id: 0, size: Bytes::new(50), edge, seq });
                seq += 1;
            }
            let sent = sent_until(&mut sender, now, now + Span::millis(40));
            bytes += sent.iter().map(|(_, left)| left.size.get()).sum::<u64>();
        }
        let most = target.over(Span::millis(400)).get();
        assert!(bytes > most * 8 / 10 && bytes <= most * 102 / 100, "{controller}: {bytes} of {most}");
    }
}

#[test]
fn no_padding_is_sent_for_a_layer_that_waits_for_a_lower_one_to_grow() {
    let mut padding = settings();
    padding.padding = true;
    // The lower layer has no maximum, so it takes the whole rate. Its encoder uses less.
    let (mut sender, low) = fixed("1Mbps", padding);
    let mut high = StreamSettings::video(2);
    high.least = Rate::kbps(500);
    let high = sender.add_stream(high);
    for n in 0..50 {
        let now = ms(40 * u64::from(n));
        assert_eq!([low, high].map(|layer| sender.encoder(now, layer).rate), [Rate::mbps(1), Rate::ZERO]);
        sender.push(now, low, &packet(n));
        assert_eq!(sent_until(&mut sender, now, now + Span::millis(40)).len(), 1);
    }
}

#[test]
fn feedback_finds_packets_by_the_stack_s_own_numbers() {
    let (mut sender, video) = fixed("1Mbps", settings());
    for seq in 0..3 {
        sender.push(ms(0), video, &packet(seq));
    }
    let sent = sent_until(&mut sender, ms(0), ms(50));
    for (_, left) in &sent {
        // The stack numbers another stream as well, so that its numbers differ from ours.
        sender.sent_as(left.number, PacketName::Transport(65_535_u16.wrapping_add(2 * left.number as u16)));
    }
    assert_eq!(sender.number(PacketName::Transport(1)), Some(1));
    assert_eq!(sender.number(PacketName::Transport(2)), None);
    let at = |n: u64| PacketStatus::At(Ticks::of(ms(60 + n)));
    let packets = vec![at(0), PacketStatus::Missing, at(1), PacketStatus::Missing, at(2)];
    let feedback = TransportFeedback { sender: 2, media: 1, count: 0, begin_seq: 65_535, packets };
    let mut datagram = Vec::new();
    Compound { packets: feedback.to_packets(1_000) }.encode(&mut datagram);
    assert_eq!(sender.on_rtcp(ms(90), &datagram).unwrap().packets, 3);
    assert_eq!(sender.on_rtcp(ms(91), &datagram).unwrap().packets, 0, "what is repeated is ignored");
}

/// The bytes that are sent in five seconds if `poll` is called every `step`, and the most that one call sends.
fn with_late_timers(step: Span) -> (u64, u64) {
    let (mut sender, video) = fixed("1Mbps", settings());
    let (mut all, mut most, mut now, mut seq) = (0, 0, ms(0), 0);
    while now < ms(5_000) {
        while sender.backlog().bytes < Bytes::new(50_000) {
            sender.push(now, video, &packet(seq));
            seq += 1;
        }
        let mut burst = 0;
        while let Output::Send(left) = sender.poll(now) {
            burst += left.size.get();
        }
        (all, most, now) = (all + burst, most.max(burst), now + step);
    }
    (all, most)
}

#[test]
fn a_timer_that_comes_late_costs_no_rate_up_to_the_credit_and_makes_no_burst_beyond_it() {
    // 1 Mb/s over five seconds is 625,000 bytes.
    for late in [1, 5, 10, 20] {
        let (all, most) = with_late_timers(Span::millis(late));
        assert!((610_000..=630_000).contains(&all), "{late} ms: {all}");
        assert!(most <= 2_500 + 1_000, "{late} ms: {most}");
    }
    // A credit of 20 ms, and a packet every 100 ms.
    let (all, most) = with_late_timers(Span::millis(100));
    assert!(all < 250_000 && most <= 3_500, "{all} and {most}");
}

#[test]
fn idleness_is_not_caught_up() {
    let (mut sender, video) = fixed("1Mbps", settings());
    sender.push(ms(0), video, &packet(0));
    sent_until(&mut sender, ms(0), ms(500));
    for seq in 1..4 {
        sender.push(ms(500), video, &packet(seq));
    }
    let times: Vec<_> = sent_until(&mut sender, ms(500), ms(600)).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [ms(500), ms(508), ms(516)]);
}

#[test]
fn a_retransmission_that_feedback_leaves_out_is_never_lost() {
    // If the missing retransmissions counted as lost, `tfrc` would lower its rate, and the two rates would differ.
    let mut rates = Vec::new();
    for named in [false, true] {
        let mut sender = MediaSender::new("tfrc", &[], settings()).unwrap();
        let mut video = StreamSettings::video(1);
        video.retransmission = Some(RepairSettings::default());
        let video = sender.add_stream(video);
        for n in 0..2_000_u16 {
            let now = ms(10 * u64::from(n));
            sender.push(now, video, &packet(n));
            if n % 7 == 0 {
                sender.resend(now, video, n.wrapping_sub(20));
            }
            let sent = sent_until(&mut sender, now, now + Span::millis(10));
            let fates = sent.iter().filter_map(|(at, left)| match left.kind {
                Stream::Repair => named.then_some(PacketResult::missing(left.number)),
                _ => Some(PacketResult::at(left.number, PeerTime::from_nanos(at.as_nanos() as i64 + 20_000_000))),
            });
            sender.feedback(now + Span::millis(10), fates.collect::<Vec<_>>());
        }
        assert!(sender.repairs().packets > 100, "{:?}", sender.repairs());
        rates.push(sender.decision().target);
    }
    assert_eq!(rates[0], rates[1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any calls at any times the sender still answers, its rates are within the bounds, and it sends each packet
    /// at most once as media.
    #[test]
    fn calls_in_any_order_break_nothing(
        calls in prop::collection::vec((0_u8..9, 0_u64..200, any::<u16>(), any::<u64>()), 1..300),
        rfc8888 in any::<bool>(),
    ) {
        let mut settings = settings();
        if rfc8888 {
            settings.format = FeedbackFormat::Rfc8888;
        }
        settings.padding = true;
        let mut sender = MediaSender::new("steady", &[], settings).unwrap();
        let mut video = StreamSettings::video(1);
        video.retransmission = Some(RepairSettings::default());
        let video = sender.add_stream(video);
        let audio = sender.add_stream(StreamSettings::audio(2, Rate::kbps(50)));
        let (mut now, mut id, mut seen) = (Time::ZERO, 0, std::collections::BTreeSet::new());
        for (call, after, short, long) in calls {
            now += Span::millis(after);
            let stream = StreamId(u32::from(short % 3));
            match call {
                0..3 => {
                    id += 1;
                    let edge = FrameEdge { first: long.is_multiple_of(2), last: long.is_multiple_of(3) };
                    sender.push(now, stream, &MediaPacket { id, size: Bytes::new(long % 2_000), edge, seq: short });
                }
                3 => drop(sender.on_rtcp(now, &long.to_be_bytes())),
                4 => {
                    let arrived = PacketResult::at(long % 99, PeerTime::from_nanos(long as i64));
                    sender.feedback(now, [PacketResult::missing(long % 100), arrived]);
                }
                5 => {
                    sender.resend(now, video, short);
                }
                6 => sender.sent_as(long % 100, PacketName::Own(long)),
                7 => {
                    let role = [FrameRole::Key, FrameRole::Reference, FrameRole::Disposable][usize::from(short % 3)];
                    sender.frame(now, video, role);
                }
                _ => sender.forget(long % 100),
            }
            let target = sender.encoder(now, audio);
            prop_assert!(target.rate <= Rate::mbps(4));
            let mut polls = 0;
            loop {
                polls += 1;
                prop_assert!(polls < 10_000);
                match sender.poll(now) {
                    Output::Send(left) => {
                        if left.kind == Stream::Media {
                            prop_assert!(seen.insert(left.id));
                        }
                    }
                    Output::Dropped(..) => {}
                    Output::Wait(wake) => {
                        prop_assert!(wake.is_none_or(|wake| wake.at > now));
                        break;
                    }
                }
            }
        }
    }
}
