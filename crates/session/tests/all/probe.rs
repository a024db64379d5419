//! Bandwidth probes, from the sender half's request to the packets.

use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Decision, Limit, Mode, Probe, ReceiverId, Report, SenderHalf, Sent, Stream, Why};
use steadycast_link::{Config, Fate, Link, Service, Steps};
use steadycast_session::{
    Emit, FeedbackFormat, Frame, FrameKind, Identity, Origin, Output, ParitySettings, Probes, Profile, Receiver,
    RepairSettings, RtcpSettings, Sender, SenderSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};

/// A half that requests one probe after the other, each until it has its packets and bytes, and records the send times.
#[derive(Default)]
struct Wants {
    probes: Vec<Probe>,
    sent: Vec<(Time, Bytes)>,
}

#[derive(Clone)]
struct Half(Arc<Mutex<Wants>>);

impl SenderHalf for Half {
    fn on_sent(&mut self, sent: &Sent) {
        self.0.lock().expect("one thread").sent.push((sent.at, sent.size));
    }
    fn on_report(&mut self, _: &Report<'_>) {}
    fn decision(&self) -> Decision {
        let (target, pacing) = (Rate::kbps(400), Rate::mbps(1));
        Decision { target, pacing, window: None, limit: Limit::Network, why: Why::rule("constant") }
    }
    fn probe(&self) -> Option<Probe> {
        self.0.lock().expect("one thread").probes.first().copied()
    }
}

fn probe(id: u32, mbps: u64, packets: u32) -> Probe {
    Probe { id, rate: Rate::mbps(mbps), packets, bytes: Bytes::new(1_000), within: false }
}

fn rtcp(profile: Profile) -> RtcpSettings {
    RtcpSettings::new(profile, Rate::mbps(4))
}

fn who(ssrc: u32) -> Identity {
    Identity { ssrc, cname: format!("{ssrc}@test") }
}

fn settings(rtcp: RtcpSettings, emit: Emit, greedy: bool, feedback: FeedbackFormat) -> SenderSettings {
    SenderSettings { emit, greedy, feedback, ..SenderSettings::new(who(1), rtcp, Bytes::new(1_000), *b"TEST") }
}

/// Runs a sender with frames of these sizes at these milliseconds for a second. Returns the gaps between its packets,
/// and the results of its probes.
fn run(wanted: Probe, emit: Emit, greedy: bool, frames: &[(u64, u64)]) -> (Vec<Span>, Probes) {
    let settings = settings(rtcp(Profile::Rfc3550), emit, greedy, FeedbackFormat::Own);
    let half = Half(Arc::new(Mutex::new(Wants { probes: vec![wanted], sent: Vec::new() })));
    let mut sender = Sender::new(settings, Box::new(half.clone()), Seed(1).part("sender"), Time::ZERO);
    let mut due: Vec<(Time, u64)> = frames.iter().map(|(ms, size)| (Time::ZERO + Span::millis(*ms), *size)).collect();
    let end = Time::ZERO + Span::secs(1);
    let mut now = Time::ZERO;
    while now < end {
        while due.first().is_some_and(|(at, _)| *at <= now) {
            let (at, size) = due.remove(0);
            sender.push_frame(now, &Frame { index: 0, kind: FrameKind::I, size: Bytes::new(size), sampled: at });
        }
        let wake = loop {
            match sender.poll(now) {
                Output::Media(_) | Output::Rtcp(_) => {}
                Output::Wait(until) => break until.map_or(end, |wake| wake.at),
            }
        };
        now = due.first().map_or(wake, |(at, _)| wake.min(*at)).min(end);
    }
    let sent = half.0.lock().expect("one thread").sent.clone();
    (sent.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect(), sender.probes())
}

#[test]
fn what_waits_leaves_at_the_probes_rate_and_then_at_the_pacing_rate() {
    let (fast, slow) = (Span::millis(1), Span::millis(8));
    for greedy in [true, false] {
        let (gaps, told) = run(probe(1, 8, 5), Emit::Paced, greedy, &[(100, 20_000)]);
        assert_eq!(gaps[..8], [fast, fast, fast, fast, slow, slow, slow, slow], "greedy: {greedy}");
        assert_eq!(told, Probes { whole: 1, cut: 0, skipped: 0 });
    }
}

#[test]
fn a_probe_may_be_slower_than_the_pacer() {
    let slow = Probe { rate: Rate::kbps(500), ..probe(1, 1, 3) };
    let (gaps, _) = run(slow, Emit::Paced, true, &[]);
    assert_eq!(gaps[..4], [16, 16, 8, 8].map(Span::millis));
}

#[test]
fn after_a_probe_within_the_pacing_rate_nothing_leaves_until_its_packets_would_have_left() {
    let (fast, slow) = (Span::millis(1), Span::millis(8));
    let within = Probe { within: true, ..probe(1, 8, 5) };
    for greedy in [true, false] {
        let (gaps, told) = run(within, Emit::Paced, greedy, &[(100, 20_000)]);
        // Five packets in five times the pacing interval: the last one's, and the four that were sent too early.
        assert_eq!(gaps[..7], [fast, fast, fast, fast, slow * 5, slow, slow], "greedy: {greedy}");
        assert_eq!(told, Probes { whole: 1, cut: 0, skipped: 0 });
    }
}

#[test]
fn parity_during_a_probe_is_sent_at_the_probes_rate_and_is_a_part_of_the_probe() {
    let mut parities = 0;
    for (within, packets, mbps) in
        [false, true].into_iter().flat_map(|within| (5..60).map(move |n| (within, n, 2 + u64::from(n % 7))))
    {
        let wanted = Probe { within, ..probe(1, mbps, packets) };
        let half = Half(Arc::new(Mutex::new(Wants { probes: vec![wanted], sent: Vec::new() })));
        let settings = SenderSettings {
            parity: Some(ParitySettings { ssrc: 9, payload_type: 98, playout: None }),
            repair: Some(RepairSettings { ssrc: 8, payload_type: 97, playout: None }),
            ..settings(rtcp(Profile::Rfc3550), Emit::Paced, true, FeedbackFormat::Own)
        };
        let mut sender = Sender::new(settings, Box::new(half), Seed(1).part("sender"), Time::ZERO);
        let (mut now, end) = (Time::ZERO, Time::ZERO + Span::secs(2));
        let mut sent: Vec<(Time, Stream, Bytes)> = Vec::new();
        while now < end {
            match sender.poll(now) {
                Output::Media(media) => sent.push((now, media.stream, media.size)),
                Output::Rtcp(_) => {}
                Output::Wait(until) => now = until.map_or(end, |wake| wake.at),
            }
        }
        let whole = sender.probes();
        let place = format!("{packets} packets at {mbps} Mb/s, within: {within}");
        assert_eq!(whole, Probes { whole: 1, cut: 0, skipped: 0 }, "{place}");
        let train = packets as usize;
        for (n, pair) in sent.windows(2).enumerate().take(train + 20) {
            let [(before, _, size), (after, ..)] = [pair[0], pair[1]];
            let rate = if n + 1 < train { wanted.rate } else { Rate::mbps(1) };
            let early: Bytes = if within && n + 1 == train {
                sent[..n].iter().map(|(.., size)| *size).fold(Bytes::ZERO, |sum, size| sum + size)
            } else {
                Bytes::ZERO
            };
            assert_eq!(after.since(before), (size + early).at(rate), "packet {n} of {place}");
        }
        parities += sent[..train].iter().filter(|(_, stream, _)| *stream == Stream::Parity).count();
        let check = sender.repair_check().expect("a check");
        assert_eq!((check.checked, check.broken), (sent.len() as u64, 0), "{place}");
    }
    assert!(parities > 100, "{parities}");
}

#[test]
fn without_enough_that_waits_it_is_cut_short_and_told() {
    // Three packets wait and five are requested; the rest of the video is paced as usual.
    let (gaps, told) = run(probe(1, 8, 5), Emit::Paced, false, &[(100, 2_800), (200, 2_800)]);
    assert_eq!(gaps.iter().filter(|gap| **gap == Span::millis(1)).count(), 2, "{gaps:?}");
    assert_eq!(gaps.iter().filter(|gap| **gap == Span::millis(8)).count(), 2, "{gaps:?}");
    assert_eq!(told, Probes { whole: 0, cut: 1, skipped: 0 });
}

#[test]
fn with_nothing_to_send_no_probe_begins() {
    let (gaps, told) = run(probe(1, 8, 5), Emit::Paced, false, &[]);
    assert_eq!((gaps.len(), told), (0, Probes::default()));
}

/// Runs `gcc` with a greedy source over 2 Mb/s and 20 ms in each direction. Returns its target after each tenth of a
/// second, and its probes.
fn drive(probes: bool) -> (Vec<Rate>, Probes) {
    let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::secs(1) });
    let setup =
        |id| Setup { id: ReceiverId(id), ..Setup::unicast(Rate::kbps(50), Rate::mbps(4), Seed(1).part("half")) };
    let given = [("probes".to_owned(), steadycast_control::registry::Given::Switch(probes))];
    let gcc = Chosen::shared("gcc", Mode::Repaired, &given).expect("it is in the registry");
    let settings = settings(rtcp, Emit::Paced, true, FeedbackFormat::Rfc8888);
    let mut sender = Sender::new(settings, gcc.sender(&setup(1)), Seed(1).part("sender"), Time::ZERO);
    let receiver = Receiver::new(who(2), rtcp, *b"TEST", gcc.receiver(&setup(2)), Seed(1).part("receiver"), Time::ZERO);
    let mut receiver = receiver.with_feedback(FeedbackFormat::Rfc8888, Rate::mbps(4));
    let delay = Steps::constant(Span::millis(20));
    let service = Service::Rate(Steps::constant(Rate::mbps(2)));
    let config = Config { service, delay, ..Config::default() };
    let mut links = [Link::new(&config, "forth", Seed(1)), Link::new(&config, "back", Seed(1))];
    let mut under_way: Vec<(Time, bool, Vec<u8>)> = Vec::new();
    let (mut now, mut targets) = (Time::ZERO, Vec::new());
    while now < Time::ZERO + Span::secs(20) {
        let mark = Time::ZERO + Span::millis(100) * (targets.len() as u64 + 1);
        let mut next = mark;
        for (end, link) in links.iter_mut().enumerate() {
            loop {
                let output = if end == 0 { sender.poll(now) } else { receiver.poll(now) };
                let mut datagram = Vec::new();
                let rtp = match output {
                    Output::Media(media) => {
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        true
                    }
                    Output::Rtcp(bytes) => {
                        datagram = bytes;
                        false
                    }
                    Output::Wait(until) => {
                        next = until.map_or(next, |until| next.min(until.at));
                        break;
                    }
                };
                let size = Bytes::new(datagram.len() as u64 + 28);
                if let Fate::Arrives { at, .. } = link.offer(now, size, Ecn::NotEct)
                    && (rtp || end == 1)
                {
                    under_way.push((at, rtp, datagram));
                }
            }
        }
        under_way.sort_by_key(|(at, ..)| *at);
        now = under_way.first().map_or(next, |(at, ..)| next.min(*at));
        while under_way.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, rtp, datagram) = under_way.remove(0);
            if rtp {
                receiver.on_rtp(now, Origin(1), &datagram, Ecn::NotEct, None);
            } else {
                sender.on_rtcp(now, Origin(2), &datagram);
            }
        }
        if now >= mark {
            targets.push(sender.decision().target);
        }
    }
    (targets, sender.probes())
}

#[test]
fn with_probes_gcc_finds_a_link_in_a_session_within_a_second_and_without_them_does_not() {
    let (with, told) = drive(true);
    let (without, none) = drive(false);
    assert!((2..=12).contains(&told.whole) && told.cut == 0, "{told:?}");
    assert_eq!(none, Probes::default());
    let (quick, slow) = (with[9], without[9]);
    assert!((Rate::kbps(1_500)..=Rate::kbps(2_400)).contains(&quick), "{quick}");
    assert!((Rate::kbps(250)..=Rate::kbps(1_200)).contains(&slow), "{slow}");
    let late: f64 = with[50..].iter().map(|rate| rate.as_bps_f64()).sum::<f64>() / with[50..].len() as f64;
    assert!((1.6e6..=2.1e6).contains(&late), "{late}");
}
