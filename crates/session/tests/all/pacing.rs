//! Packetization of frames, and pacing.

use crate::group;

use group::{at, frame, media, rtcp, sender, settings};
use proptest::prelude::*;
use steadycast_control::{Decision, Limit, Report, SenderHalf, Sent, Why, Window};
use steadycast_session::{Backlog, Emit, FrameKind, Output, Part, Profile, RepairSettings, Sender, SenderSettings};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// A half whose rate changes after each packet.
struct Changing {
    rates: Vec<Rate>,
    sent: usize,
}

impl SenderHalf for Changing {
    fn on_sent(&mut self, _: &Sent) {
        self.sent += 1;
    }
    fn on_report(&mut self, _: &Report<'_>) {}
    fn decision(&self) -> Decision {
        let rate = self.rates[self.sent % self.rates.len()];
        // A decision with a window is read again after each packet.
        let window = Some(Window::Packets(u32::MAX));
        Decision { target: rate, pacing: rate, window, limit: Limit::Network, why: Why::rule("another one") }
    }
}

fn paced() -> SenderSettings {
    settings(rtcp(Profile::Rfc3550, Rate::mbps(1), false), Emit::Paced)
}

#[test]
fn the_pacer_spreads_a_frame_at_the_pacing_rate() {
    let (mut sender, _) = sender(paced(), Rate::mbps(1), &[]);
    assert!(sender.push_frame(Time::ZERO, &frame(0, FrameKind::I, 9_000, 0)));
    let sent = media(&mut sender, Time::ZERO, at(1_000));
    assert_eq!(sent[0].0, Time::ZERO);
    for pair in sent.windows(2) {
        // 1000 B at 1 Mb/s take 8 ms; the frame's last packet is smaller, and no packet waits for it.
        assert_eq!(pair[1].0.since(pair[0].0), pair[0].1.size.at(Rate::mbps(1)));
    }
    let payload: u64 = sent.iter().map(|(_, m)| u64::from(m.header.payload_len)).sum();
    assert_eq!((payload, sent.len()), (9_000, 10));
}

#[test]
fn a_frame_that_its_payload_format_has_cut_leaves_in_these_parts() {
    let (mut sender, _) = sender(paced(), Rate::mbps(1), &[]);
    // The second part's start code is implied, the third has a payload header.
    let parts = [(400, 400), (300, 297), (300, 302)].map(|(len, payload)| Part { len, payload });
    assert!(sender.push_cut(Time::ZERO, &frame(0, FrameKind::I, 1_000, 0), parts.into()));
    let sent = media(&mut sender, Time::ZERO, at(1_000));
    let seen: Vec<_> = sent.iter().map(|(_, m)| (m.fragment.offset, m.fragment.len, m.header.payload_len)).collect();
    assert_eq!(seen, [(0, 400, 400), (400, 300, 297), (700, 300, 302)]);
    let marks: Vec<bool> = sent.iter().map(|(_, m)| m.header.marker).collect();
    assert_eq!(marks, [false, false, true]);
    assert_eq!(sender.backlog().bytes, Bytes::ZERO);
}

#[test]
fn a_pause_earns_no_credit_for_a_burst() {
    let (mut sender, _) = sender(paced(), Rate::mbps(1), &[]);
    sender.push_frame(Time::ZERO, &frame(0, FrameKind::I, 500, 0));
    assert_eq!(media(&mut sender, Time::ZERO, at(900)).len(), 1);
    sender.push_frame(Time::ZERO, &frame(1, FrameKind::P, 4_000, 900));
    let times: Vec<Time> = media(&mut sender, at(900), at(1_000)).into_iter().map(|(t, _)| t).collect();
    let expected: Vec<Time> = (0..5).map(|n| at(900 + 8 * n)).collect();
    assert_eq!(times, expected);
}

#[test]
fn burst_emission_lets_a_frame_go_at_once() {
    let (mut sender, _) = sender(SenderSettings { emit: Emit::Burst, ..paced() }, Rate::kbps(10), &[]);
    sender.push_frame(Time::ZERO, &frame(0, FrameKind::I, 50_000, 0));
    let sent = media(&mut sender, Time::ZERO, Time::ZERO);
    assert_eq!(sent.len(), 50_000_usize.div_ceil(1000 - 28 - 12 - 12));
    assert!(sent.iter().all(|(t, _)| *t == Time::ZERO));
}

/// A sender whose backlog bound of 1 s at 1 Mb/s (125 kB) is exceeded by 130 kB.
fn overrun() -> Sender {
    let (mut sender, _) = sender(paced(), Rate::mbps(1), &[]);
    for n in 0..13 {
        assert!(sender.push_frame(Time::ZERO, &frame(n, if n == 0 { FrameKind::I } else { FrameKind::P }, 10_000, 0)));
    }
    assert_eq!(sender.backlog(), Backlog { bytes: Bytes::new(130_000), skipped: 0 });
    sender
}

#[test]
fn at_its_bound_the_backlog_drops_b_frames_first_then_p_frames_and_waits_for_an_i_frame() {
    let mut sender = overrun();
    assert!(!sender.push_frame(Time::ZERO, &frame(13, FrameKind::B, 100, 0)), "a B frame is dropped");
    assert_eq!(media(&mut sender, Time::ZERO, at(45)).len(), 6);
    assert!(sender.backlog().bytes.at(Rate::mbps(1)) < Span::secs(1));
    assert!(sender.push_frame(Time::ZERO, &frame(14, FrameKind::P, 100, 45)), "a B frame's loss breaks nothing");
    assert!(sender.push_frame(Time::ZERO, &frame(15, FrameKind::P, 10_000, 45)));
    assert!(!sender.push_frame(Time::ZERO, &frame(16, FrameKind::P, 100, 45)), "a P frame is dropped");
    media(&mut sender, at(45), at(500));
    assert!(sender.backlog().bytes.at(Rate::mbps(1)) < Span::secs(1));
    assert!(
        !sender.push_frame(Time::ZERO, &frame(17, FrameKind::B, 100, 500)),
        "nothing can be decoded until the next I frame"
    );
    assert!(!sender.push_frame(Time::ZERO, &frame(18, FrameKind::P, 100, 500)));
    assert!(sender.push_frame(Time::ZERO, &frame(19, FrameKind::I, 100, 500)));
    assert!(sender.push_frame(Time::ZERO, &frame(20, FrameKind::B, 100, 500)));
    assert_eq!(sender.backlog().skipped, 4);
}

#[test]
fn an_i_frame_that_finds_a_full_backlog_takes_the_place_of_what_has_not_begun() {
    let mut sender = overrun();
    assert_eq!(media(&mut sender, Time::ZERO, Time::ZERO).len(), 1);
    assert!(sender.push_frame(Time::ZERO, &frame(13, FrameKind::I, 8_000, 0)));
    let backlog = sender.backlog();
    // The first frame, whose sending has begun, is completed; the twelve behind it are dropped.
    assert_eq!(backlog, Backlog { bytes: Bytes::new(10_000 - 948 + 8_000), skipped: 12 });
    let frames: Vec<u32> = media(&mut sender, Time::ZERO, at(300)).iter().map(|(_, m)| m.fragment.frame).collect();
    assert_eq!((frames.first(), frames.last(), frames.len()), (Some(&0), Some(&13), 10 + 9));
}

#[test]
fn a_frame_has_one_timestamp_in_90_khz_and_its_last_packet_the_marker() {
    let (mut sender, _) = sender(paced(), Rate::mbps(10), &[]);
    for n in 0..30 {
        sender.push_frame(Time::ZERO, &frame(n, FrameKind::P, 2_500, 40 * u64::from(n)));
    }
    let sent = media(&mut sender, Time::ZERO, at(2_000));
    assert_eq!(sent.len(), 90);
    for (n, (_, packet)) in sent.iter().enumerate() {
        let (index, part) = (n as u32 / 3, n % 3);
        // 40 ms are 3600 ticks; the timestamp wraps within the first second.
        assert_eq!(packet.header.timestamp, 0xffff_0000_u32.wrapping_add(3_600 * index));
        assert_eq!(packet.header.marker, part == 2);
        assert_eq!((packet.header.seq, packet.seq), (65_500_u16.wrapping_add(n as u16), 65_500 + n as u64));
        assert_eq!(packet.fragment.frame, index);
    }
    assert_eq!(sent.last().map(|(_, m)| m.header.seq), Some(53), "the sequence number wraps");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_is_as_large_as_it_says_and_never_larger_than_its_limit(
        limit in 120u64..1500,
        frames in prop::collection::vec(1u64..6_000, 1..12),
        notices in prop::collection::vec(0usize..=24, 1..8),
    ) {
        let settings = SenderSettings { packet: Bytes::new(limit), emit: Emit::Burst, ..paced() };
        let (mut sender, _) = sender(settings, Rate::mbps(1), &notices);
        for (n, size) in frames.iter().enumerate() {
            sender.push_frame(Time::ZERO, &frame(n as u32, FrameKind::I, *size, 0));
        }
        let sent = media(&mut sender, Time::ZERO, Time::ZERO);
        let mut reached = vec![0; frames.len()];
        for (_, packet) in &sent {
            let mut bytes = Vec::new();
            packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut bytes);
            prop_assert_eq!(bytes.len() as u64 + 28, packet.size.get());
            prop_assert!(packet.size.get() <= limit, "{} > {limit}", packet.size.get());
            let frame = packet.fragment.frame as usize;
            let (reached, size) = (&mut reached[frame], frames[frame]);
            prop_assert_eq!(u64::from(packet.fragment.offset), *reached);
            *reached += u64::from(packet.fragment.len);
            prop_assert_eq!(packet.header.marker, *reached == size);
            // All packets but a frame's last one are full.
            prop_assert!(packet.header.marker || packet.size.get() == limit);
        }
        prop_assert_eq!(reached, frames);
    }

    #[test]
    fn a_sender_that_is_called_late_keeps_its_promise_however_its_rate_changes(
        rates in prop::collection::vec(50u64..5_000, 1..20),
        late in prop::collection::vec(0u64..12_000, 1..20),
    ) {
        let repair = Some(RepairSettings { ssrc: 9, payload_type: 97, playout: None });
        let settings = SenderSettings { repair, credit: Span::millis(5), ..paced() };
        let half = Changing { rates: rates.into_iter().map(Rate::kbps).collect(), sent: 0 };
        let mut sender = Sender::new(settings, Box::new(half), Seed(1).part("sender"), Time::ZERO);
        let (mut now, mut late) = (Time::ZERO, late.into_iter().cycle().map(Span::micros));
        while now < at(3_000) {
            if sender.backlog().bytes < Bytes::new(2_000) {
                sender.push_frame(now, &frame(0, FrameKind::I, 2_000, 0));
            }
            if let Output::Wait(wake) = sender.poll(now) {
                now = wake.expect("a packet waits").at + late.next().unwrap_or_default();
            }
        }
        let check = sender.repair_check().expect("it repairs");
        prop_assert!(check.checked > 15 && check.broken == 0, "{check:?}");
    }
}
