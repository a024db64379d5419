//! The trust model (docs/trust.md): an attacker's datagrams against sessions as live ends make them, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{at, rtcp, settings, who};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Receivers, Registry, Setup, find};
use steadycast_control::{Mode, ReceiverId};
use steadycast_session::{
    CircuitBreaker, Emit, FeedbackDefence, FeedbackFormat, OperatorControls, Origin, Output, Profile, Receiver, Sender,
    SenderSettings, StandardReports,
};
use steadycast_units::{Ecn, Rate, Seed, Span, Time};
use steadycast_wire::is_rtcp;
use steadycast_wire::rtcp::{Compound, CongestionFeedback, Packet, ReportBlock, StreamArrivals};

/// The rate of each session if it is not attacked: no link limits it.
const CAP: Rate = Rate::mbps(1);
const SOURCE: u32 = 1;
const FIRST: u16 = 3_000;
const WAY: Span = Span::millis(20);

/// The address of the sender. Receiver `n` has SSRC and address `2 + n`.
const SENDER: Origin = Origin(1);
const RECEIVER: u32 = 2;
/// The address of an attacker.
const STRANGER: Origin = Origin(100);

/// The target of an attacker's datagram: in a group all members, otherwise one end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    Sender,
    Receivers,
    Everybody,
}

/// Returns the next datagram from the newest sequence number that is known then; `None`: no more.
type Hostile<'a> = dyn FnMut(u64, u16) -> Vec<(To, Origin, Vec<u8>)> + 'a;

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
struct Case {
    controller: &'static str,
    /// The number of receivers; one is a unicast session.
    receivers: u32,
    /// When the receivers join, and the period in which they stand still.
    join: Time,
    still: (u64, u64),
}

impl Case {
    fn of(controller: &'static str, receivers: u32) -> Self {
        Self { controller, receivers, join: at(0), still: (0, 0) }
    }
}

/// The results of a session.
#[derive(Debug)]
struct Seen {
    /// The rate that was sent in each second.
    kbps: Vec<u64>,
    /// The packets that each receiver got and should have got.
    received: Vec<(u64, u64)>,
    rule: String,
    doubted: Vec<u32>,
    aside: Vec<u32>,
    refused: u64,
    ended: bool,
    rtt: bool,
}

impl Seen {
    /// Returns the mean rate of these seconds.
    fn mean(&self, from: usize, to: usize) -> u64 {
        self.kbps[from..to].iter().sum::<u64>() / (to - from) as u64
    }
}

/// Runs a session for a number of seconds; the attacker sends each 5 ms.
fn run(case: &Case, seconds: u64, hostile: &mut Hostile<'_>) -> Seen {
    let group = case.receivers > 1;
    let bandwidth = CAP;
    let avpf = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, bandwidth, group);
    let chosen = Chosen::shared(case.controller, Mode::Repaired, &[]).unwrap();
    let own = FeedbackFormat::own_of(&*chosen, group);
    let setup = |id| Setup {
        session_bandwidth: bandwidth,
        group,
        id: ReceiverId(id),
        ..Setup::unicast(Rate::kbps(50), CAP, Seed(u64::from(id)).part("half"))
    };
    let orders = OperatorControls::default();
    let served = StandardReports::new(Arc::clone(&chosen), find(case.controller).unwrap().standard_reports);
    let served = if own == FeedbackFormat::Own { served } else { served.expecting_packets() };
    let guarded = CircuitBreaker::new(Arc::new(served), orders.clone());
    let factory: Arc<dyn Factory> = Arc::new(FeedbackDefence::new(Arc::new(guarded), orders.clone()));
    let settings = SenderSettings {
        greedy: true,
        gated: true,
        peer: (!group).then_some(Origin(RECEIVER.into())),
        feedback: own,
        app: chosen.terms().app,
        first_seq: FIRST,
        ..settings(avpf, Emit::Paced)
    };
    let mut sender = Sender::new(settings, factory.sender(&setup(SOURCE)), Seed(1).part("sender"), at(0));
    let mut receivers: Vec<Receiver> = (RECEIVER..RECEIVER + case.receivers)
        .map(|ssrc| {
            let (half, chance) = (chosen.receiver(&setup(ssrc)), Seed(ssrc.into()).part("rtcp"));
            Receiver::new(who(ssrc), avpf, chosen.terms().app, half, chance, case.join)
                .with_feedback(own, bandwidth)
                .described(Some([96].into_iter().collect()), Some(SOURCE))
                .answering()
        })
        .collect();
    let mut under_way: BTreeMap<(Time, u64), (Option<usize>, Vec<u8>)> = BTreeMap::new();
    let (mut now, mut turn, mut tick) = (at(0), 0, 0);
    let mut kbps = vec![0; seconds as usize + 1];
    let end = at(seconds * 1_000);
    let mut rtt = false;
    while now < end {
        let mut wake = at(5 * tick);
        let mut post = |now: Time, by: Option<usize>, bytes: Vec<u8>| {
            turn += 1;
            under_way.insert((now + WAY, turn), (by, bytes));
        };
        loop {
            match sender.poll(now) {
                Output::Media(media) => {
                    let mut bytes = Vec::new();
                    media.encode(&vec![0; media.header.payload_len.into()], &mut bytes);
                    kbps[(now.as_nanos() / 1_000_000_000) as usize] += media.size.get() * 8 / 1_000;
                    post(now, None, bytes);
                }
                Output::Rtcp(bytes) => post(now, None, bytes),
                Output::Wait(until) => break wake = until.map_or(wake, |until| wake.min(until.at)),
            }
        }
        let still = (at(case.still.0)..at(case.still.1)).contains(&now) || now < case.join;
        for (n, receiver) in receivers.iter_mut().enumerate().filter(|_| !still) {
            loop {
                match receiver.poll(now) {
                    Output::Rtcp(bytes) => post(now, Some(n), bytes),
                    Output::Wait(until) => break wake = until.map_or(wake, |until| wake.min(until.at)),
                    Output::Media(_) => unreachable!("a receiver sends no media"),
                }
            }
        }
        now = under_way.first_key_value().map_or(wake, |((at, _), _)| wake.min(*at)).max(now);
        if now >= at(5 * tick) {
            tick += 1;
            for (to, from, bytes) in hostile(now.as_nanos() / 1_000_000, sender.next_seq() as u16) {
                if to != To::Receivers && is_rtcp(&bytes) {
                    sender.on_rtcp(now, from, &bytes);
                }
                for receiver in receivers.iter_mut().filter(|_| to != To::Sender && now >= case.join) {
                    if is_rtcp(&bytes) {
                        receiver.on_rtcp(now, from, &bytes);
                    } else {
                        receiver.on_rtp(now, from, &bytes, Ecn::NotEct, None);
                    }
                }
            }
        }
        while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= now) {
            let (by, bytes) = entry.remove();
            let from = by.map_or(SENDER, |n| Origin(u64::from(RECEIVER) + n as u64));
            if by.is_some() {
                sender.on_rtcp(now, from, &bytes);
            }
            let deaf = (at(case.still.0)..at(case.still.1)).contains(&now) || now < case.join;
            for (n, receiver) in receivers.iter_mut().enumerate() {
                if deaf || by == Some(n) || by.is_some() && !group {
                    continue;
                }
                if is_rtcp(&bytes) {
                    receiver.on_rtcp(now, from, &bytes);
                } else {
                    receiver.on_rtp(now, from, &bytes, Ecn::NotEct, None);
                }
                rtt |= receiver.view().rtt.is_some();
            }
        }
    }
    let doubted = (0..200).chain(MADE_UP..MADE_UP + 200).filter(|ssrc| sender.doubt(*ssrc).is_some()).collect();
    let rule = sender.decision().why.rule.to_string();
    sender.stop();
    let mut last = Vec::new();
    while let Output::Rtcp(bytes) = sender.poll(now) {
        last.push(bytes);
    }
    for bytes in last {
        receivers.iter_mut().for_each(|receiver| receiver.on_rtcp(now, SENDER, &bytes));
    }
    Seen {
        kbps,
        received: receivers.iter().map(|receiver| (receiver.received(), receiver.expected())).collect(),
        rule,
        doubted,
        aside: orders.aside().into_iter().map(|(ssrc, _)| ssrc).collect(),
        refused: sender.feedback().refused,
        ended: receivers.iter().all(Receiver::source_ended),
        rtt,
    }
}

/// The first SSRC that attackers forge.
const MADE_UP: u32 = 0xe000_0000;

/// No attack.
fn nobody(_: u64, _: u16) -> Vec<(To, Origin, Vec<u8>)> {
    Vec::new()
}

fn bytes(packets: Vec<Packet>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    bytes
}

fn named(ssrc: u32) -> Packet {
    Packet::Sdes { chunks: vec![(ssrc, format!("{ssrc}@test"))] }
}

/// Returns a standard report of `ssrc` on the stream, with complete loss or none.
fn report(ssrc: u32, seq: u16, lost: bool) -> Vec<Packet> {
    let (fraction, cumulative_lost) = if lost { (255, i32::from(seq)) } else { (0, 0) };
    let block =
        ReportBlock { ssrc: SOURCE, fraction, cumulative_lost, highest_seq: seq.into(), ..ReportBlock::default() };
    vec![Packet::ReceiverReport { ssrc, blocks: vec![block] }, named(ssrc)]
}

/// Returns a media packet of the source.
fn media(seq: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 96];
    bytes.extend(seq.to_be_bytes());
    bytes.extend([0, 0, 0, 7]);
    bytes.extend(SOURCE.to_be_bytes());
    bytes.extend([0; 500]);
    bytes
}

/// Runs a session with and without the attack. The rate of these seconds must not differ by more than a fifth, and no
/// receiver may lack a packet.
fn undisturbed(case: &Case, (from, to): (usize, usize), hostile: &mut Hostile<'_>) -> Seen {
    let alone = run(case, to as u64, &mut nobody);
    let seen = run(case, to as u64, hostile);
    let (left, got) = (alone.mean(from, to), seen.mean(from, to));
    assert!(left > 300, "{case:?} alone: {alone:?}");
    assert!((80..=120).contains(&(got * 100 / left)), "{case:?}: {left} alone\n{seen:?}");
    // Packets that arrived while the receiver stood still are lost in both cases.
    for ((received, expected), (alone, due)) in seen.received.iter().zip(&alone.received) {
        let lost = |received: &u64, expected: &u64| expected - received.min(expected);
        // In a group each joined member makes reports rarer, so the start takes longer.
        assert!(case.receivers > 1 || received * 100 >= alone * 80, "{case:?}: {seen:?}");
        assert!(lost(received, expected) <= lost(alone, due) + expected / 100, "{case:?}: {seen:?}");
    }
    seen
}

#[test]
fn towards_one_receiver_a_stranger_decides_nothing_before_it_speaks_while_it_stands_still_or_after() {
    for controller in ["asmp", "tfrc", "steady"] {
        for (join, still) in [(at(3_000), (0, 0)), (at(0), (4_000, 9_000)), (at(0), (0, 0))] {
            let case = Case { join, still, ..Case::of(controller, 1) };
            let rule = run(&case, 25, &mut nobody).rule;
            for what in 0..4 {
                let seen = undisturbed(&case, (12, 25), &mut |ms, seq| {
                    let empty = CongestionFeedback { sender: MADE_UP, streams: Vec::new(), report_time: 0 };
                    let own = Packet::App { ssrc: MADE_UP, subtype: 1, name: *b"ASMP", data: vec![0; 16] };
                    let say = match what {
                        // Per-packet feedback without packets.
                        0 => [Packet::ReceiverReport { ssrc: MADE_UP, blocks: vec![] }, named(MADE_UP)]
                            .into_iter()
                            .chain([empty.to_packet()])
                            .collect(),
                        1 => report(MADE_UP, seq, false),
                        2 => report(MADE_UP, seq, true),
                        _ => report(MADE_UP, seq, false).into_iter().chain([own]).collect(),
                    };
                    if ms % 250 < 5 { vec![(To::Sender, STRANGER, bytes(say))] } else { Vec::new() }
                });
                assert!(seen.refused > 50, "{case:?} {what}: {seen:?}");
                assert_eq!(seen.rule.split(':').next(), rule.split(':').next(), "{case:?} {what}");
            }
        }
    }
}

#[test]
fn who_does_not_know_the_receivers_ssrc_decides_nothing_with_its_address_either() {
    for controller in ["asmp", "tfrc"] {
        let from = Origin(RECEIVER.into());
        undisturbed(&Case::of(controller, 1), (10, 25), &mut |ms, seq| {
            // 4,000 per second: forty times the limit of one address.
            let said = (To::Sender, from, bytes(report(MADE_UP + ms as u32 % 3, seq, true)));
            if ms > 5_000 { vec![said; 20] } else { Vec::new() }
        });
    }
}

#[test]
fn a_receiver_is_heard_from_another_address_of_its_host_once_it_has_echoed_two_sender_reports() {
    let (mut sender, told) = group::sender(
        SenderSettings {
            greedy: true,
            peer: Some(Origin(RECEIVER.into())),
            ..settings(rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, CAP, false), Emit::Paced)
        },
        CAP,
        &[],
    );
    let echo = |ssrc: u32, from: u64, to: u64, sender: &mut Sender, right: bool| {
        let mut lsr = 0;
        let mut now = at(from);
        while now < at(to) {
            match sender.poll(now) {
                Output::Rtcp(said) => {
                    if let Some(Packet::SenderReport { ntp, .. }) = Compound::parse(&said).unwrap().packets.first() {
                        lsr = (ntp >> 16) as u32;
                    }
                }
                Output::Wait(until) => now = until.unwrap().at,
                Output::Media(_) => {}
            }
        }
        let highest_seq = u32::from(sender.next_seq() as u16) - 1;
        let block =
            ReportBlock { ssrc: SOURCE, highest_seq, lsr: if right { lsr } else { lsr ^ 1 }, ..Default::default() };
        let blocks = vec![block];
        bytes(vec![Packet::ReceiverReport { ssrc, blocks }, named(ssrc)])
    };
    let heard = || told.lock().unwrap().reports.len();
    for (second, (right, reports)) in [(false, 0), (true, 0), (false, 0), (true, 1)].into_iter().enumerate() {
        let said = echo(50, second as u64 * 3_000, second as u64 * 3_000 + 3_000, &mut sender, right);
        sender.on_rtcp(at(second as u64 * 3_000 + 3_000), STRANGER, &said);
        assert_eq!(heard(), reports, "{second}");
    }
    // The described receiver replaces it immediately, and stays.
    let described = echo(RECEIVER, 12_000, 13_000, &mut sender, true);
    sender.on_rtcp(at(13_000), Origin(RECEIVER.into()), &described);
    assert_eq!((heard(), told.lock().unwrap().left.len()), (2, 1));
    for second in 13..60 {
        let said = echo(50, second * 1_000, second * 1_000 + 1_000, &mut sender, true);
        sender.on_rtcp(at(second * 1_000 + 1_000), STRANGER, &said);
    }
    assert_eq!(heard(), 2);
}

#[test]
fn in_a_group_who_shows_not_that_it_receives_lowers_no_rate_and_is_named() {
    for controller in ["asmp", "tfmcc"] {
        for names in [1, 50] {
            let seen = undisturbed(&Case::of(controller, 3), (12, 30), &mut |ms, seq| {
                let ssrc = MADE_UP + (ms / 100) as u32 % names;
                let say = || (To::Everybody, STRANGER, bytes(report(ssrc, seq, true)));
                if ms > 5_000 && ms % 100 < 5 { vec![say()] } else { Vec::new() }
            });
            assert_eq!(seen.doubted.len(), names as usize, "{controller}: {seen:?}");
            assert!(seen.aside.is_empty(), "{controller}: {seen:?}");
        }
    }
}

/// A compound of 59.5 KB that names 61 members.
fn giant(ssrc: u32) -> Vec<u8> {
    let chunks = |from: u32| (from..from + 31).map(|n| (ssrc + n, "a".to_owned())).collect();
    let data = vec![0; 59_000];
    bytes(vec![
        Packet::ReceiverReport { ssrc, blocks: Vec::new() },
        Packet::Sdes { chunks: chunks(0) },
        Packet::Sdes { chunks: chunks(31) },
        Packet::App { ssrc, subtype: 0, name: *b"XXXX", data },
    ])
}

#[test]
fn datagrams_of_60_kb_with_many_names_silence_no_group_however_many_they_are() {
    for (count, every) in [(5, 20), (10_000, 10)] {
        for controller in ["asmp", "tfmcc"] {
            let mut sent = 0;
            undisturbed(&Case::of(controller, 2), (6, 30), &mut |ms, _| {
                if ms < 5_000 || ms % every >= 5 || sent >= count {
                    return Vec::new();
                }
                sent += 1;
                vec![(To::Everybody, STRANGER, giant(MADE_UP + sent % 3 * 64))]
            });
        }
    }
}

#[test]
fn made_up_numbers_in_a_running_stream_cost_nothing_wherever_they_are_and_however_often() {
    for controller in ["asmp", "tfrc", "steady"] {
        for (ahead, every) in
            [(150, 5_000), (2_500, 5_000), (20_000, 5_000), (40_000, 5_000), (63_000, 200), (40_000, 20)]
        {
            let seen = undisturbed(&Case::of(controller, 1), (5, 25), &mut |ms, seq| {
                let five = || (0..5).map(|n| (To::Receivers, SENDER, media(seq.wrapping_add(ahead + n)))).collect();
                if ms >= 5_000 && ms % every < 5 { five() } else { Vec::new() }
            });
            assert!(!seen.rule.contains("circuit breaker"), "{controller} {ahead}: {seen:?}");
        }
    }
}

#[test]
fn made_up_numbers_that_rise_as_those_of_a_stream_of_which_nearly_all_is_lost_cost_a_running_stream_nothing() {
    for step in [140, 1_000] {
        undisturbed(&Case::of("steady", 1), (5, 20), &mut |ms, seq| {
            let made_up = seq.wrapping_add((ms % 30 + 1) as u16 * step);
            if ms >= 5_000 { vec![(To::Receivers, SENDER, media(made_up))] } else { Vec::new() }
        });
    }
}

#[test]
fn who_spoke_in_the_sources_name_before_it_takes_neither_its_bye_nor_its_round_trip_away() {
    for controller in ["asmp", "tfrc", "steady"] {
        let say = bytes(vec![Packet::ReceiverReport { ssrc: SOURCE, blocks: Vec::new() }, named(SOURCE)]);
        let alone = run(&Case::of(controller, 1), 15, &mut nobody);
        let seen = undisturbed(&Case::of(controller, 1), (5, 15), &mut |ms, _| {
            if ms < 6_000 { vec![(To::Receivers, STRANGER, say.clone())] } else { Vec::new() }
        });
        assert!(seen.ended && alone.ended, "{controller}: the BYE is believed");
        assert_eq!(seen.rtt, alone.rtt, "{controller}");
    }
}

/// Returns an RTCP packet of a random kind with a random SSRC. `known`: the receivers have sent. Their SSRCs are
/// random, so an attacker that names one before has guessed it. (They were known from the start, until a case in which
/// that silenced a group.)
fn any_packet(known: bool) -> impl Strategy<Value = Packet> {
    let receiver = if known { RECEIVER } else { MADE_UP };
    let ssrc =
        move || prop_oneof![Just(SOURCE), Just(receiver), Just(receiver + 1), MADE_UP..MADE_UP + 40, any::<u32>()];
    let block = (ssrc(), any::<u8>(), any::<i32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
        |(ssrc, fraction, lost, highest_seq, jitter, lsr, dlsr)| {
            let cumulative_lost = lost >> 8;
            ReportBlock { ssrc, fraction, cumulative_lost, highest_seq, jitter, lsr, dlsr }
        },
    );
    let blocks = || prop::collection::vec(block.clone(), 0..4);
    let words = |most: usize| prop::collection::vec(any::<[u8; 4]>(), 0..most).prop_map(|words| words.concat());
    let name = prop_oneof![Just(*b"ASMP"), Just(*b"TFMC"), Just(*b"STDY"), Just(*b"PRTY"), any::<[u8; 4]>()];
    prop_oneof![
        (ssrc(), blocks()).prop_map(|(ssrc, blocks)| Packet::ReceiverReport { ssrc, blocks }),
        (ssrc(), any::<u64>(), any::<u32>(), blocks()).prop_map(|(ssrc, ntp, rtp, blocks)| {
            Packet::SenderReport { ssrc, ntp, rtp, packets: 9, octets: 9, blocks }
        }),
        prop::collection::vec((ssrc(), "[a-z]{0,9}"), 1..31).prop_map(|chunks| Packet::Sdes { chunks }),
        (ssrc(), 0u8..32, name, words(20))
            .prop_map(|(ssrc, subtype, name, data)| { Packet::App { ssrc, subtype, name, data } }),
        (ssrc(), 1usize..14_000)
            .prop_map(|(ssrc, words)| { Packet::App { ssrc, subtype: 0, name: *b"XXXX", data: vec![0; 4 * words] } }),
        prop::collection::vec(ssrc(), 1..4).prop_map(|ssrcs| Packet::Bye { ssrcs, reason: String::new() }),
        (ssrc(), any::<u16>(), 0usize..300, any::<u32>()).prop_map(|(sender, begin_seq, n, report_time)| {
            let streams = vec![StreamArrivals { ssrc: SOURCE, begin_seq, arrivals: vec![None; n] }];
            CongestionFeedback { sender, streams, report_time }.to_packet()
        }),
    ]
}

/// An attacker's datagram: the index of one of four addresses that it comes from, whether it is sent to the sender or
/// to the receivers, and its packets.
fn any_datagram(known: bool) -> impl Strategy<Value = (u64, bool, Vec<Packet>)> {
    (0u64..4, any::<bool>(), prop::collection::vec(any_packet(known), 1..5))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn no_rtcp_from_elsewhere_moves_the_rate_by_a_fifth_before_during_or_after(
        before in prop::collection::vec(any_datagram(false), 1..40),
        said in prop::collection::vec(any_datagram(true), 1..40),
        every in prop_oneof![Just(5u64), Just(100), Just(1_000)],
        controller in prop_oneof![
            Just(("steady", 1)), Just(("asmp", 1)), Just(("tfrc", 1)), Just(("asmp", 2)), Just(("tfmcc", 2)),
        ],
        when in 0u8..3,
    ) {
        let (join, still) = [(at(2_000), (0, 0)), (at(0), (3_000, 6_000)), (at(0), (0, 0))][usize::from(when)];
        let case = Case { join, still, ..Case::of(controller.0, controller.1) };
        // A group's start takes longer if attackers join, since reports become rarer: docs/trust.md says so.
        let settled = if case.receivers > 1 { 25 } else { 10 };
        let mut next = 0;
        undisturbed(&case, (settled, settled + 10), &mut |ms, _| {
            if ms % every >= 5 {
                return Vec::new();
            }
            let all = if at(ms) < join + Span::secs(3) { &before } else { &said };
            let (from, to_sender, packets) = &all[next % all.len()];
            next += 1;
            let to = if case.receivers > 1 { To::Everybody } else if *to_sender { To::Sender } else { To::Receivers };
            vec![(to, Origin(STRANGER.0 + from), bytes(packets.clone()))]
        });
    }
}

#[test]
fn a_group_reaches_its_rate_within_five_seconds_after_its_receivers_have_joined_with_each_controller() {
    for controller in Registry::default().names(|entry| entry.receivers != Receivers::One) {
        for (receivers, join) in [(2, 0), (8, 0), (2, 2_500), (8, 2_500)] {
            let case = Case { join: at(join), ..Case::of(controller, receivers) };
            let seen = run(&case, 10, &mut nobody);
            assert!(seen.doubted.is_empty() && seen.mean(7, 10) > 900, "{case:?}: {seen:?}");
        }
    }
}
