//! Audio beside the video: what leaves when, what the reports say, and how a receiver aligns both.

use crate::group;

use group::{at, frame, receiver, rtcp, sender, settings};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Decision, Limit, Mode, Report, SenderHalf, Sent, Stream, Why, Window};
use steadycast_session::{
    AudioPacket, AudioSettings, Emit, FeedbackFormat, FrameKind, Origin, Output, Profile, Received, Receiver, Sender,
    SenderSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{Compound, Packet};

const AUDIO: AudioSettings = AudioSettings {
    shares_feedback: true,
    ssrc: 77,
    payload_type: 111,
    rate: Rate::kbps(69),
    first_seq: 65_530,
    first_timestamp: u32::MAX - 48_000,
};

fn with_audio(profile: Profile) -> SenderSettings {
    SenderSettings { audio: Some(AUDIO), ..settings(rtcp(profile, Rate::mbps(1), false), Emit::Paced) }
}

fn packet(index: u32) -> AudioPacket {
    AudioPacket { index, sampled: at(20 * u64::from(index)), len: 120, begins: index == 0 }
}

/// A half whose window is closed.
struct Closed;

impl SenderHalf for Closed {
    fn on_sent(&mut self, _: &Sent) {}
    fn on_report(&mut self, _: &Report<'_>) {}
    fn decision(&self) -> Decision {
        let rate = Rate::kbps(100);
        let window = Some(Window::Packets(0));
        Decision { target: rate, pacing: rate, window, limit: Limit::Network, why: Why::rule("closed") }
    }
}

#[test]
fn audio_leaves_when_its_window_is_closed() {
    let mut sender = Sender::new(with_audio(Profile::Rfc3550), Box::new(Closed), Seed(1).part("sender"), Time::ZERO);
    sender.push_frame(Time::ZERO, &frame(0, FrameKind::I, 9_000, 0));
    sender.push_audio(packet(0));
    assert!(matches!(sender.poll(Time::ZERO), Output::Media(media) if media.stream == Stream::Audio));
    assert!(matches!(sender.poll(Time::ZERO), Output::Wait(_)));
}

/// Drives a sender for `ms` with an audio packet each 20 ms and the frames `frames` (time in ms and bytes). Returns the
/// packets with their times.
fn driven(sender: &mut Sender, frames: &[(u64, u64)], ms: u64) -> Vec<(Time, Stream, Bytes, u64)> {
    let mut sent = Vec::new();
    for now in 0..ms {
        for (n, (_, size)) in frames.iter().enumerate().filter(|(_, (when, _))| *when == now) {
            let kind = if n == 0 { FrameKind::I } else { FrameKind::P };
            sender.push_frame(at(now), &frame(n as u32, kind, *size, now));
        }
        if now % 20 == 0 {
            sender.push_audio(packet((now / 20) as u32));
        }
        let until = at(now + 1);
        let mut clock = at(now);
        loop {
            match sender.poll(clock) {
                Output::Media(media) => sent.push((clock, media.stream, media.size, media.seq)),
                Output::Rtcp(_) => {}
                Output::Wait(Some(wake)) if wake.at < until => clock = wake.at,
                Output::Wait(_) => break,
            }
        }
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever waits, each audio packet leaves in the millisecond in which it was made, in order and without a gap.
    /// All streams together keep the pacing rate: the video gives way.
    #[test]
    fn audio_waits_for_no_frame_and_the_video_makes_room_for_it(
        kbps in 120u64..4_000,
        frames in prop::collection::vec((0u64..900, 200u64..60_000), 0..12),
    ) {
        let (mut sender, _) = sender(with_audio(Profile::Rfc3550), Rate::kbps(kbps), &[]);
        let sent = driven(&mut sender, &frames, 1_000);
        let audio: Vec<_> = sent.iter().filter(|(_, stream, ..)| *stream == Stream::Audio).collect();
        prop_assert_eq!(audio.len(), 50);
        for (n, (when, _, _, seq)) in audio.iter().enumerate() {
            prop_assert_eq!((*when, *seq), (at(20 * n as u64), 65_530 + n as u64));
        }
        // The bound of pacing, without the last packet. Audio does not wait, so the total may exceed the rate by the
        // packet that was just sent, and by the audio packet.
        let all: Bytes = sent[..sent.len() - 1].iter().map(|(_, _, size, _)| *size).sum();
        let allowed = Rate::kbps(kbps).over(Span::secs(1)) + Bytes::new(2 * 1_000);
        prop_assert!(all <= allowed, "{} of {}", all.get(), allowed.get());
    }
}

#[test]
fn audio_that_is_not_part_of_the_feedback_takes_no_number_and_has_no_extension() {
    for shares_feedback in [true, false] {
        let audio = Some(AudioSettings { shares_feedback, ..AUDIO });
        let settings =
            SenderSettings { audio, feedback: FeedbackFormat::TransportWide, ..with_audio(Profile::Rfc3550) };
        let (mut sender, _) = sender(settings, Rate::kbps(500), &[]);
        sender.push_frame(Time::ZERO, &frame(0, FrameKind::I, 9_000, 0));
        let (mut numbers, mut of_audio) = (Vec::new(), Vec::new());
        // An audio packet leaves in every second step, and the video's packets between.
        for step in 0..50 {
            if step % 2 == 0 {
                sender.push_audio(packet(step / 2));
            }
            loop {
                match sender.poll(at(10 * u64::from(step))) {
                    Output::Media(media) => {
                        numbers.extend(media.transport);
                        if media.stream == Stream::Audio {
                            of_audio.push((media.transport.is_some(), media.header.send_time.is_some()));
                        }
                    }
                    Output::Rtcp(_) => {}
                    Output::Wait(_) => break,
                }
            }
        }
        assert_eq!(of_audio, [(shares_feedback, shares_feedback); 25]);
        // A gap in the numbers would be reported as a loss.
        assert_eq!(numbers, (0..numbers.len() as u16).collect::<Vec<_>>());
        assert!(numbers.len() > if shares_feedback { 25 + 5 } else { 5 }, "{numbers:?}");
    }
}

#[test]
fn audio_is_reserved_in_the_target_of_the_pictures() {
    let (mut sender, _) = sender(with_audio(Profile::Rfc3550), Rate::kbps(500), &[]);
    assert_eq!(sender.media_target(Time::ZERO), Rate::kbps(431));
    let (mut without, _) =
        group::sender(SenderSettings { audio: None, ..with_audio(Profile::Rfc3550) }, Rate::kbps(500), &[]);
    assert_eq!(without.media_target(Time::ZERO), Rate::kbps(500));
}

/// The timestamp of an audio packet, and the video's timestamp of the same time once it is known.
type Aligned = (u32, Option<u32>);

/// Passes both ends' packets over a path of 30 ms for `ms`. The receiver gets no packet that is sent before `joins`.
/// `lost` decides about each audio packet by its index. Returns the audio packets that arrived, and the receiver's
/// compounds.
fn over_a_path(
    sender: &mut Sender,
    receiver: &mut Receiver,
    (joins, ms): (u64, u64),
    lost: impl Fn(u32) -> bool,
) -> (Vec<Aligned>, Vec<Vec<u8>>) {
    let mut under_way: Vec<(Time, bool, bool, Vec<u8>)> = Vec::new();
    let (mut came, mut said) = (Vec::new(), Vec::new());
    for now in 0..ms {
        if now % 40 == 0 {
            let kind = if now == 0 { FrameKind::I } else { FrameKind::P };
            sender.push_frame(at(now), &frame((now / 40) as u32, kind, 2_000, now));
        }
        if now % 20 == 0 {
            sender.push_audio(packet((now / 20) as u32));
        }
        loop {
            match sender.poll(at(now)) {
                Output::Media(_) | Output::Rtcp(_) if now < joins => {}
                Output::Media(media) if media.stream == Stream::Audio && lost(media.fragment.frame) => {}
                Output::Media(media) => {
                    let mut bytes = Vec::new();
                    media.encode(&vec![0; usize::from(media.header.payload_len)], &mut bytes);
                    under_way.push((at(now + 30), true, false, bytes));
                }
                Output::Rtcp(bytes) => under_way.push((at(now + 30), true, true, bytes)),
                Output::Wait(_) => break,
            }
        }
        while let Output::Rtcp(bytes) = receiver.poll(at(now)) {
            said.push(bytes.clone());
            under_way.push((at(now + 30), false, true, bytes));
        }
        let (due, rest) = under_way.into_iter().partition(|(when, ..)| *when <= at(now));
        under_way = rest;
        for (_, forward, reports, bytes) in due {
            match (forward, reports) {
                (true, false) => {
                    let got = receiver.on_rtp(at(now), Origin(1), &bytes, Ecn::NotEct, None);
                    if let Some((Received::Audio(_), header, _)) = got {
                        came.push((header.timestamp, receiver.video_timestamp(header.timestamp)));
                    }
                }
                (true, true) => receiver.on_rtcp(at(now), Origin(1), &bytes),
                _ => sender.on_rtcp(at(now), Origin(2), &bytes),
            }
        }
    }
    (came, said)
}

#[test]
fn a_receiver_aligns_both_streams_from_the_first_reports_on_and_reports_on_both() {
    let avpf = Profile::Avpf { t_rr_interval: Span::ZERO };
    let (mut sender, _) = sender(with_audio(avpf), Rate::mbps(1), &[]);
    let (receiver, _) = receiver(5, rtcp(avpf, Rate::mbps(1), false), Time::ZERO);
    let mut receiver = receiver.with_audio(AUDIO.payload_type);
    let (came, said) = over_a_path(&mut sender, &mut receiver, (0, 12_000), |index| index % 10 == 3);
    assert!(came.len() >= 535, "{}", came.len());
    let aligned = came.iter().filter(|(_, video)| video.is_some()).count();
    assert!(aligned >= came.len() - 3, "{aligned} of {}", came.len());
    for (timestamp, video) in came.iter().filter_map(|(timestamp, video)| Some((timestamp, (*video)?))) {
        // The video's timestamps begin at 0xffff_0000 with the same clock.
        let sampled = f64::from(timestamp.wrapping_sub(AUDIO.first_timestamp)) / 48_000.0;
        let shown = f64::from(video.wrapping_sub(0xffff_0000)) / 90_000.0;
        assert!((sampled - shown).abs() < 1e-4, "{sampled} s at {shown} s");
    }
    // One in ten is lost. A report's share is of a few packets, and the value falls slowly.
    let loss = sender.audio_loss().unwrap();
    assert!((0.05..=0.4).contains(&loss), "{loss}");
    let blocks = said.iter().filter_map(|bytes| match &Compound::parse(bytes).unwrap().packets[0] {
        Packet::ReceiverReport { blocks, .. } => Some(blocks.iter().map(|block| block.ssrc).collect::<Vec<_>>()),
        _ => None,
    });
    assert!(blocks.clone().any(|ssrcs| ssrcs == [1, 77]), "{:?}", blocks.collect::<Vec<_>>());
    // The audio's reports make no further member of the session.
    assert_eq!(sender.receivers(), 1);
}

#[test]
fn a_long_gap_of_the_audio_ends_neither_stream() {
    let avpf = Profile::Avpf { t_rr_interval: Span::ZERO };
    let (mut sender, _) = sender(with_audio(avpf), Rate::mbps(1), &[]);
    let (receiver, _) = receiver(5, rtcp(avpf, Rate::mbps(1), false), Time::ZERO);
    let mut receiver = receiver.with_audio(AUDIO.payload_type);
    // For 15 s one packet in 20 arrives.
    let (came, _) =
        over_a_path(&mut sender, &mut receiver, (0, 20_000), |index| (100..850).contains(&index) && index % 20 > 0);
    assert!(came.len() >= 280, "{}", came.len());
    assert!(came.iter().skip(5).all(|(_, video)| video.is_some()));
    assert!(!receiver.source_ended() && receiver.source_left(at(20_000), Span::secs(5)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Neither audio packets without arrival nor packets from before the receiver's time count as lost. All video
    /// packets arrive.
    #[test]
    fn what_no_receiver_reports_is_no_loss_of_the_controller(
        name in prop::sample::select(vec!["steady", "scream", "gcc"]),
        twcc: bool,
        joins in prop_oneof![Just(0), 1u64..1_500],
        kept in 0u32..4,
        fails_at in prop_oneof![Just(0), 0u32..150],
    ) {
        let feedback = if twcc { FeedbackFormat::TransportWide } else { FeedbackFormat::Rfc8888 };
        let avpf = Profile::Avpf { t_rr_interval: Span::ZERO };
        let settings = SenderSettings { feedback, ..with_audio(avpf) };
        let setup = Setup::unicast(Rate::kbps(150), Rate::mbps(1), Seed(1).part("half"));
        let setup = Setup { packet: settings.packet, ..setup };
        let chosen = Chosen::shared(name, Mode::Repaired, &[]).expect("the controller exists");
        let mut sender = Sender::new(settings, chosen.sender(&setup), Seed(1).part("sender"), Time::ZERO);
        let (receiver, _) = receiver(5, rtcp(avpf, Rate::mbps(1), false), Time::ZERO);
        let mut receiver = receiver.with_audio(AUDIO.payload_type).with_feedback(feedback, Rate::mbps(1));
        // From `fails_at` on, at most three of four audio packets arrive, or none.
        let lost = |index: u32| index >= fails_at && index % 4 >= kept;
        let (came, _) = over_a_path(&mut sender, &mut receiver, (joins, 4_000), lost);
        let why = &sender.decision().why;
        prop_assert!(why.loss.is_none_or(|loss| loss == 0.0), "{why:?}");
        prop_assert!(sender.packets() > 100, "{} packets: {why:?}", sender.packets());
        prop_assert_eq!(sender.audio_loss().is_none(), came.is_empty());
    }
}
