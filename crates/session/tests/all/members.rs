//! Members that join, leave, fall silent or use another's SSRC, and arbitrary datagrams from the network.

#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{Datagram, Group, SENDER, at, media, receiver, rtcp, sender, settings};
use proptest::prelude::*;
use steadycast_control::ReceiverId;
use steadycast_session::{
    AudioPacket, AudioSettings, Emit, Origin, Output, Profile, Received, RtcpSettings, SenderSettings, UnusedReason,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtcp::{Compound, GroupSize, KeyFrameRequest, Packet, ReportBlock};
use steadycast_wire::rtp::RtpHeader;

const PERIOD: Span = Span::millis(40);

fn asmp() -> Group {
    Group::new(rtcp(Profile::Asmp, Rate::mbps(2), true), PERIOD, Span::millis(20))
}

/// Returns the sources that sent BYE in a compound.
fn byes(compound: &[u8]) -> Vec<u32> {
    let packets = Compound::parse(compound).unwrap().packets;
    packets.iter().flat_map(|p| if let Packet::Bye { ssrcs, .. } = p { ssrcs.clone() } else { Vec::new() }).collect()
}

#[test]
fn the_jitter_is_unknown_until_two_packets_have_arrived() {
    let settings_of = rtcp(Profile::Rfc3550, Rate::mbps(2), false);
    let greedy = SenderSettings { greedy: true, ..settings(settings_of, Emit::Paced) };
    let (mut sender, _) = sender(greedy, Rate::mbps(1), &[]);
    let (mut receiver, _) = receiver(2, settings_of, at(0));
    let packets = media(&mut sender, at(0), at(1_000));
    // The first two packets arrive twice, and the third one later than the others.
    let arrivals = [(0, 0, false), (0, 5, false), (1, 5, true), (1, 5, true), (2, 45, true)];
    assert_eq!(receiver.jitter(), None);
    for (packet, delay, known) in arrivals {
        let (left, packet) = &packets[packet];
        let mut bytes = Vec::new();
        packet.encode(&vec![0; packet.header.payload_len.into()], &mut bytes);
        receiver.on_rtp(*left + Span::millis(delay), Origin(1), &bytes, Ecn::NotEct, None);
        assert_eq!(receiver.jitter().is_some(), known, "{delay} ms");
    }
    assert!(receiver.jitter() > Some(Span::ZERO));
}

#[test]
fn every_compound_begins_with_a_report_names_its_source_and_parses() {
    let mut group = asmp();
    for _ in 0..3 {
        group.join();
    }
    group.run_to(at(10_000));
    group.at(1).leave();
    group.sender.stop();
    group.run_to(at(11_000));
    let mut kinds = [0; 5];
    for (_, by, bytes) in &group.said {
        let compound = Compound::parse(bytes).unwrap();
        let ssrc = by.map_or(SENDER, |n| 100 + n as u32);
        assert_eq!(bytes.len(), compound.encoded_len());
        match &compound.packets[0] {
            Packet::SenderReport { ssrc: of, packets, octets, .. } => {
                assert_eq!((*of, by), (SENDER, &None));
                assert!(*packets > 0 && *octets == packets / 3 * 2_000);
                kinds[0] += 1;
            }
            Packet::ReceiverReport { ssrc: of, blocks } => {
                assert_eq!(*of, ssrc);
                assert!(blocks.iter().all(|b| b.ssrc == SENDER && b.cumulative_lost == 0));
                kinds[1] += 1;
            }
            other => panic!("a compound begins with {other:?}"),
        }
        assert!(
            matches!(&compound.packets[1], Packet::Sdes { chunks } if chunks[..] == [(ssrc, format!("{ssrc}@test"))])
        );
        for packet in &compound.packets[2..] {
            match packet {
                Packet::App { ssrc: of, name, data, .. } => {
                    assert_eq!((*of, name, data.len() % 4), (ssrc, b"TEST", 0));
                    kinds[3] += 1;
                }
                Packet::Bye { ssrcs, .. } => {
                    assert_eq!(ssrcs[..], [ssrc]);
                    kinds[4] += 1;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        kinds[2] += 1;
    }
    assert_eq!(kinds[4], 2, "the receiver and the sender that left said BYE");
    assert!((5..=20).contains(&kinds[0]) && (15..=60).contains(&kinds[1]), "{kinds:?}");
}

#[test]
fn the_round_trip_time_from_lsr_and_dlsr_is_right_within_three_units() {
    for delay in [Span::millis(5), Span::micros(20_123), Span::millis(300)] {
        let mut group = Group::new(rtcp(Profile::Asmp, Rate::mbps(2), false), PERIOD, delay);
        group.join();
        group.run_to(at(20_000));
        let told = group.told.lock().unwrap();
        let measured: Vec<Span> = told.reports.iter().filter_map(|(_, _, rtt)| *rtt).collect();
        assert!(measured.len() > 10, "{}", measured.len());
        let unit = 1e9 / 65_536.0;
        for rtt in measured {
            let error = rtt.as_nanos() as f64 - (delay * 2).as_nanos() as f64;
            assert!(error.abs() <= 3.0 * unit, "{error} ns");
        }
    }
}

#[test]
fn a_hundred_joins_within_a_second_keep_rtcp_within_its_share_and_are_all_heard() {
    let mut group = asmp();
    group.run_to(at(2_000));
    for _ in 0..100 {
        group.join();
        group.run_to(group.now + Span::millis(10));
    }
    let bytes = |group: &Group, from: Time, to: Time| -> u64 {
        group.said.iter().filter(|(t, ..)| *t >= from && *t < to).map(|(_, _, b)| b.len() as u64 + 28).sum()
    };
    group.run_to(at(33_000));
    assert_eq!(group.sender.receivers(), 100);
    let share = Bytes::new(bytes(&group, at(3_000), at(33_000))).per(Span::secs(30)).ratio(Rate::mbps(2));
    assert!(share > 0.02 && share <= 0.06, "{share}");
    // The join storm: all first reports are early, and reconsideration spreads them.
    let first = Bytes::new(bytes(&group, at(2_000), at(4_000))).per(Span::secs(2)).ratio(Rate::mbps(2));
    assert!(first > 0.01 && first <= 0.10, "{first}");
}

#[test]
fn a_storm_of_byes_is_spread_and_leaves_nobody_behind() {
    let mut group = asmp();
    for _ in 0..100 {
        group.join();
    }
    group.run_to(at(20_000));
    assert_eq!(group.sender.receivers(), 100);
    for n in 0..90 {
        group.at(n).leave();
    }
    group.run_to(at(60_000));
    let times: Vec<Time> = group.said.iter().filter(|(.., b)| !byes(b).is_empty()).map(|(t, ..)| *t).collect();
    assert_eq!((times.len(), group.sender.receivers()), (90, 10));
    assert!((0..90).all(|n| group.receivers[n].as_ref().is_some_and(|r| r.gone())));
    let at_once = times.iter().filter(|t| t.since(at(20_000)) < Span::millis(100)).count();
    assert!(at_once < 20, "{at_once} of 90 in the first tenth of a second");
    let lasted = times.last().map(|t| t.since(at(20_000)));
    assert!(lasted.is_some_and(|l| l > Span::secs(1) && l < Span::secs(30)), "{lasted:?}");
    let told = group.told.lock().unwrap();
    assert_eq!(told.left.len(), 90, "the controller is told of each");
}

#[test]
fn of_fifty_members_a_bye_goes_at_once() {
    let mut group = asmp();
    for _ in 0..40 {
        group.join();
    }
    group.run_to(at(20_000));
    group.at(0).leave();
    group.run_to(at(20_000));
    assert!(group.receivers[0].as_ref().is_some_and(|r| r.gone()));
    assert_eq!(group.said.last().map(|(t, by, b)| (*t, *by, byes(b))), Some((at(20_000), Some(0), vec![100])));
}

#[test]
fn who_was_never_heard_leaves_without_a_word() {
    let mut group = asmp();
    let n = group.join();
    group.at(n).leave();
    group.run_to(at(5_000));
    assert!(group.said.iter().all(|(_, by, _)| by.is_none()) && group.receivers[n].as_ref().unwrap().gone());
}

#[test]
fn a_silent_death_is_noticed_after_five_intervals() {
    let mut group = asmp();
    group.join();
    group.join();
    group.run_to(at(10_000));
    assert_eq!(group.sender.receivers(), 2);
    group.receivers[0] = None;
    group.run_to(at(30_000));
    let told = group.told.lock().unwrap();
    let [(left, who)] = told.left[..] else { panic!("{:?}", told.left) };
    let last = told.reports.iter().rfind(|(_, from, _)| *from == who).map(|(t, ..)| *t).unwrap();
    assert_eq!(who, ReceiverId(100));
    // Five intervals of 1 s, which the sender checks at its next report, within 1.5 s.
    let after = left.since(last);
    assert!(after > Span::secs(5) && after < Span::millis(6_600), "{after:?}");
}

#[test]
fn ten_seconds_without_feedback_are_survived() {
    for (profile, forgotten) in [(Profile::Rfc3550, 0), (Profile::Asmp, 1)] {
        let mut group = Group::new(rtcp(profile, Rate::mbps(2), true), PERIOD, Span::millis(20));
        group.join();
        group.run_to(at(20_000));
        group.feedback_lost = true;
        group.run_to(at(30_000));
        group.feedback_lost = false;
        let sent = group.sender.packets();
        assert_eq!(sent, 3 * 751, "{profile:?}: media goes on");
        group.run_to(at(50_000));
        let told = group.told.lock().unwrap();
        // With 1 s between reports, ten seconds of silence are a time-out, and the next report is a return.
        assert_eq!(told.left.len(), forgotten, "{profile:?}");
        assert!(told.reports.iter().any(|(t, ..)| *t > at(30_000)), "{profile:?}");
        assert_eq!(group.sender.receivers(), 1);
    }
}

#[test]
fn the_sequence_number_wraps_without_a_loss() {
    let mut group = Group::new(rtcp(Profile::Rfc3550, Rate::mbps(2), false), Span::millis(1), Span::millis(20));
    group.join();
    group.run_to(at(25_000));
    let receiver = group.receivers[0].as_ref().unwrap();
    assert_eq!(receiver.expected(), receiver.received());
    // 3 packets per millisecond: past 65,536 twice.
    assert!((74_900..=75_003).contains(&receiver.expected()), "{}", receiver.expected());
    let seqs = &group.got[0].lock().unwrap().seqs;
    assert!(seqs.windows(2).all(|w| w[1] == w[0] + 1));
}

#[test]
fn a_receiver_whose_ssrc_is_taken_says_bye_with_the_old_and_goes_on_with_a_new_one() {
    let mut group = asmp();
    group.join();
    group.join();
    group.run_to(at(10_000));
    // Another host uses the SSRC 100.
    let packets = vec![
        Packet::ReceiverReport { ssrc: 100, blocks: Vec::new() },
        Packet::Sdes { chunks: vec![(100, "other@test".to_owned())] },
    ];
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    group.at(0).on_rtcp(at(10_000), Origin(77), &bytes);
    group.run_to(at(10_000));
    let said = group.said.last().map(|(t, by, b)| (*t, *by, byes(b)));
    assert_eq!(said, Some((at(10_000), Some(0), vec![100])));
    group.run_to(at(20_000));
    let new = group.receivers[0].as_ref().unwrap().ssrc();
    assert!(new != 100 && new != 101);
    assert_eq!(group.got[0].lock().unwrap().renamed, [ReceiverId(new)]);
    assert_eq!(group.sender.receivers(), 2, "the old one has left, the new one is there");
    let told = group.told.lock().unwrap();
    assert_eq!(told.left.iter().map(|l| l.1).collect::<Vec<_>>(), [ReceiverId(100)]);
    let later: Vec<ReceiverId> = told.reports.iter().filter(|(t, ..)| *t > at(10_100)).map(|r| r.1).collect();
    assert!(later.contains(&ReceiverId(new)) && !later.contains(&ReceiverId(100)));
}

#[test]
fn a_sender_whose_ssrc_is_taken_goes_on_with_a_new_one_and_its_receivers_lose_nothing() {
    let mut group = asmp();
    group.join();
    group.run_to(at(10_000));
    let mut bytes = Vec::new();
    Compound { packets: vec![Packet::ReceiverReport { ssrc: SENDER, blocks: Vec::new() }] }.encode(&mut bytes);
    group.sender.on_rtcp(at(10_000), Origin(77), &bytes);
    group.run_to(at(10_000));
    assert!(group.said.iter().any(|(t, by, b)| (*t, *by, byes(b)) == (at(10_000), None, vec![SENDER])));
    assert_ne!(group.sender.ssrc(), SENDER);
    group.run_to(at(20_000));
    let receiver = group.receivers[0].as_ref().unwrap();
    assert_eq!(receiver.expected(), receiver.received());
    assert!((1_490..=1_500).contains(&receiver.expected()), "{}", receiver.expected());
    let seqs = group.got[0].lock().unwrap();
    assert!(seqs.seqs.windows(2).all(|w| w[1] == w[0] + 1), "to the controller it is one stream");
    let reports = &group.told.lock().unwrap().reports;
    assert!(reports.iter().any(|(t, _, rtt)| *t > at(12_000) && rtt.is_some()));
    // The same packet from the same address is now a loop, not another collision.
    let ssrc = group.sender.ssrc();
    let mut bytes = Vec::new();
    Compound { packets: vec![Packet::ReceiverReport { ssrc, blocks: Vec::new() }] }.encode(&mut bytes);
    group.sender.on_rtcp(at(20_000), Origin(77), &bytes);
    assert_eq!(group.sender.ssrc(), ssrc);
}

/// Returns a compound as bytes.
fn bytes(packets: Vec<Packet>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    bytes
}

fn rr(ssrc: u32) -> Packet {
    Packet::ReceiverReport { ssrc, blocks: Vec::new() }
}

fn bye(ssrc: u32) -> Packet {
    Packet::Bye { ssrcs: vec![ssrc], reason: String::new() }
}

fn named(ssrc: u32) -> Packet {
    Packet::Sdes { chunks: vec![(ssrc, format!("{ssrc}@test"))] }
}

/// The address of the sender.
const SENDERS: Origin = Origin(u64::MAX);

#[test]
fn a_source_is_ended_by_a_bye_in_a_compound_of_its_own_from_its_own_address_alone() {
    let mut group = asmp();
    let n = group.join();
    group.run_to(at(10_000));
    let own = [rr(SENDER), named(SENDER), bye(SENDER)].to_vec();
    let others = [rr(999), named(999), bye(SENDER)].to_vec();
    let early = [rr(SENDER), bye(SENDER), named(SENDER)].to_vec();
    for (from, packets) in [
        (Origin(77), [bye(SENDER)].to_vec()),
        (Origin(77), others.clone()),
        (Origin(77), own.clone()),
        (SENDERS, [bye(SENDER)].to_vec()),
        (SENDERS, others),
        (SENDERS, early),
    ] {
        let datagram = bytes(packets.clone());
        group.at(n).on_rtcp(at(10_000), from, &datagram);
        assert!(!group.at(n).source_ended(), "from {from:?}: {packets:?}");
    }
    group.at(n).on_rtcp(at(10_000), SENDERS, &bytes(own));
    assert!(group.at(n).source_ended());
}

#[test]
fn a_source_whose_reports_were_never_heard_is_ended_from_where_its_media_comes_alone() {
    let (mut sender, _) = sender(settings(asmp().rtcp, Emit::Paced), Rate::mbps(1), &[]);
    let (mut alone, _) = receiver(100, asmp().rtcp, at(0));
    sender.push_frame(Time::ZERO, &group::frame(0, steadycast_session::FrameKind::I, 5_000, 0));
    for (now, packet) in media(&mut sender, at(0), at(500)) {
        let mut datagram = Vec::new();
        packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut datagram);
        alone.on_rtp(now, SENDERS, &datagram, Ecn::NotEct, None);
    }
    assert!(alone.received() >= 5);
    // The first host that reports with the sender's SSRC is not thereby the sender.
    alone.on_rtcp(at(600), Origin(77), &bytes([rr(SENDER), named(SENDER), bye(SENDER)].to_vec()));
    assert!(!alone.source_ended());
    let (mut alone, _) = receiver(100, asmp().rtcp, at(0));
    sender.push_frame(Time::ZERO, &group::frame(1, steadycast_session::FrameKind::P, 5_000, 600));
    for (now, packet) in media(&mut sender, at(600), at(900)) {
        let mut datagram = Vec::new();
        packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut datagram);
        alone.on_rtp(now, SENDERS, &datagram, Ecn::NotEct, None);
    }
    alone.on_rtcp(at(1_000), SENDERS, &bytes([rr(SENDER), named(SENDER), bye(SENDER)].to_vec()));
    assert!(alone.source_ended());
}

#[test]
fn a_source_of_which_nothing_comes_for_five_intervals_has_left_without_a_bye() {
    let (mut sender, _) = sender(settings(asmp().rtcp, Emit::Paced), Rate::mbps(1), &[]);
    let (mut alone, _) = receiver(100, asmp().rtcp, at(0));
    let least = Span::secs(30);
    assert_eq!(alone.source_left(at(100_000), least), None, "nobody was heard");
    sender.push_frame(Time::ZERO, &group::frame(0, steadycast_session::FrameKind::I, 5_000, 0));
    let mut last = Time::ZERO;
    for (now, packet) in media(&mut sender, at(0), at(500)) {
        let mut datagram = Vec::new();
        packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut datagram);
        alone.on_rtp(now, SENDERS, &datagram, Ecn::NotEct, None);
        last = now;
    }
    assert_eq!(alone.source_left(last + Span::millis(29_999), least), None);
    assert_eq!(alone.source_left(last + least, least), Some(least));
    // Five intervals of such a small session are at least five seconds, independent of the setting.
    assert_eq!(alone.source_left(last + Span::millis(4_999), Span::ZERO), None);
    assert!(alone.source_left(last + Span::secs(25), Span::ZERO).is_some());
    // The source's reports show that it is present; those of others do not.
    alone.on_rtcp(at(20_000), Origin(77), &bytes([rr(999), named(999)].to_vec()));
    assert_eq!(alone.source_left(last + least, least), Some(least));
    // Neither does a message with the source's SSRC from another host.
    let plea = KeyFrameRequest::PictureLoss { sender: SENDER, media: 100 }.to_packet();
    alone.on_rtcp(at(20_000), Origin(77), &bytes(vec![plea]));
    assert_eq!(alone.source_left(last + least, least), Some(least));
    alone.on_rtcp(at(25_000), SENDERS, &bytes([rr(SENDER), named(SENDER)].to_vec()));
    assert_eq!(alone.source_left(at(54_999), least), None);
    assert_eq!(alone.source_left(at(55_000), least), Some(least));
}

#[test]
fn a_source_that_takes_another_ssrc_goes_on_and_has_not_ended_whether_its_bye_comes_or_not() {
    for comes in [true, false] {
        let mut group = asmp();
        let n = group.join();
        group.run_to(at(10_000));
        group.sender.on_rtcp(at(10_000), Origin(77), &bytes([rr(SENDER)].to_vec()));
        let Output::Rtcp(farewell) = group.sender.poll(at(10_000)) else { panic!("no BYE") };
        assert_eq!(byes(&farewell), [SENDER]);
        if comes {
            group.at(n).on_rtcp(at(10_000), SENDERS, &farewell);
            // This also holds until its media arrives.
            assert!(!group.at(n).source_ended());
        }
        let before = group.at(n).received();
        group.run_to(at(20_000));
        assert!(!group.at(n).source_ended());
        // There are 75 packets per second. Without a BYE the old SSRC has to be silent for two frame intervals, at
        // least 50 ms; a third has begun.
        let came = group.at(n).received() - before;
        let bounds = if comes { 745..=755 } else { 738..=750 };
        assert!(bounds.contains(&came), "{came}");
        group.sender.stop();
        group.run_to(at(21_000));
        assert!(group.at(n).source_ended(), "BYE of the SSRC that it went on with");
    }
}

/// Returns a packet of this source in the session of a sender with another SSRC.
fn other_source(seq: u16, timestamp: u32, ssrc: u32) -> Vec<u8> {
    let header = RtpHeader { payload_type: 96, marker: true, seq, timestamp, ssrc, send_time: None, payload_len: 10 };
    let mut datagram = Vec::new();
    header.encode(&[], &[0; 10], &mut datagram);
    datagram
}

/// Returns the arrival times in ns and numbers of a stream with one packet per `spacing`. The first `whole` pass a
/// queue that fills. Then it is full: of the packets that are sent while it transmits one, all but one are lost.
fn sparse(seed: u64, spacing: u64, whole: u64, pattern: u64, loss: f64) -> Vec<(u64, u64)> {
    let (mut chance, mean, run) = (Seed(seed).part("loss"), 1.0 / (1.0 - loss), 1 + seed % 8);
    let each = (spacing as f64 * mean) as u64;
    let mut came: Vec<_> = (0..whole).map(|n| (n * each, n)).collect();
    let (delay, mut n) = ((whole - 1) * (each - spacing), whole - 1);
    for packet in 0..1_000 {
        n += match pattern {
            0 => mean as u64,
            1 => 1 + chance.exponential(mean) as u64,
            _ if packet % run == 0 => (run as f64 * mean) as u64,
            _ => 1,
        };
        came.push((n * spacing + delay, n));
    }
    came
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_arrives_of_a_stream_of_which_90_to_99_9_percent_are_lost_counts(
        seed: u64, first: u16, spacing in 10_000u64..1_000_000, whole in 2u64..300, pattern in 0u64..3,
        loss in 0.9..0.999,
    ) {
        // With fewer than ten arrivals per second, a restart is not detected soon.
        prop_assume!(spacing as f64 / (1.0 - loss) <= 1e8);
        let rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false);
        let (mut receiver, _) = receiver(2, rtcp, Time::ZERO);
        let came = sparse(seed, spacing, whole, pattern, loss);
        // The application keeps packets until their run is known.
        let mut held: Vec<(Time, Vec<u8>)> = Vec::new();
        for (at, n) in &came {
            let now = Time::from_nanos(*at);
            let bytes = other_source(first.wrapping_add(*n as u16), (n * spacing / 11_111) as u32, SENDER);
            let header = |bytes: &[u8]| RtpHeader::parse(bytes).unwrap().0;
            let mut come = vec![(now, bytes)];
            if receiver.begins_run(now, SENDERS, &header(&come[0].1)) && !held.is_empty() {
                receiver.begin_run(now, SENDERS, &header(&held[0].1));
                come.splice(0..0, held.drain(..));
            }
            for (now, bytes) in come {
                match receiver.on_rtp(now, SENDERS, &bytes, Ecn::NotEct, None).unwrap().0 {
                    Received::Unused(_) => held.push((now, bytes)),
                    _ => held.clear(),
                }
            }
            let longest = held.first().map_or(Span::ZERO, |(first, _)| now.since(*first));
            prop_assert!(held.len() < 16 || longest <= Span::millis(500), "{} for {longest}", held.len());
        }
        // A jump may look like a restart. If a stream seems to restart twice, one or two packets are left out.
        let missing = came.len() - held.len() - receiver.received() as usize;
        prop_assert!(missing <= came.len() / 100, "{missing}");
    }
}

#[test]
fn a_stream_that_pauses_is_left_for_one_of_the_same_place_and_for_none_of_another() {
    for (place, follows) in [(SENDERS, true), (Origin(77), false)] {
        let mut group = asmp();
        let n = group.join();
        group.run_to(at(10_000));
        let named = Packet::Sdes { chunks: vec![(55, "1@test".to_owned())] };
        group.at(n).on_rtcp(at(10_900), place, &bytes([rr(55), named].to_vec()));
        let mut came = Vec::new();
        for k in 0..5u16 {
            let datagram = other_source(700 + k, 9_000 + 3_600 * u32::from(k), 55);
            let now = at(11_000 + 40 * u64::from(k));
            let (received, ..) = group.at(n).on_rtp(now, place, &datagram, Ecn::NotEct, None).unwrap();
            came.push(matches!(received, Received::New(_)));
            let waiting = group.at(n).waiting(now).map(|other| (other.ssrc, other.from));
            assert_eq!(waiting, (!came[usize::from(k)]).then_some((55, place)), "packet {k}");
        }
        // The second packet of the new source proves that it is a stream. 50 ms after its first packet, no packet of
        // the old source can be in flight.
        assert_eq!(came, [false, false, follows, follows, follows]);
        let left = group.at(n).source_left(at(42_000), Span::secs(1));
        assert!(left.is_some_and(|silence| silence <= Span::millis(42_000 - 11_160)), "{left:?}: something came");
    }
}

#[test]
fn two_sources_of_one_place_that_both_send_do_not_take_turns() {
    let mut group = asmp();
    let n = group.join();
    group.run_to(at(1_000));
    // It sends 75 packets per second itself.
    let mut followed = 0;
    for k in 0..200u16 {
        let now = at(1_000 + 10 * u64::from(k));
        group.run_to(now);
        let datagram = other_source(700 + k, 900 * u32::from(k), 55);
        let (received, ..) = group.at(n).on_rtp(now, SENDERS, &datagram, Ecn::NotEct, None).unwrap();
        followed += u32::from(!matches!(received, Received::Unused(_)));
    }
    assert_eq!((followed, group.at(n).source()), (0, Some(SENDER)));
}

#[test]
fn a_straggler_of_one_who_left_brings_nobody_back() {
    let mut group = asmp();
    group.join();
    group.join();
    group.run_to(at(10_000));
    let report = group.said.iter().rfind(|(_, by, _)| *by == Some(0)).map(|(.., b)| b.clone()).unwrap();
    group.at(0).leave();
    group.run_to(at(10_500));
    assert_eq!(group.sender.receivers(), 1);
    group.sender.on_rtcp(at(10_500), Origin(0), &report);
    assert_eq!(group.sender.receivers(), 1);
    // Another host's BYE does not remove a member either.
    let mut bye = Vec::new();
    let packets = vec![
        Packet::ReceiverReport { ssrc: 999, blocks: Vec::new() },
        Packet::Bye { ssrcs: vec![101], reason: String::new() },
    ];
    Compound { packets }.encode(&mut bye);
    group.sender.on_rtcp(at(10_500), Origin(77), &bye);
    assert_eq!(group.sender.receivers(), 1);
}

#[test]
fn rtcp_of_45_receivers_stays_within_five_percent_in_the_mean_and_six_always() {
    let mut group = asmp();
    for _ in 0..45 {
        group.join();
    }
    let mut highest = 0.0_f64;
    for second in 1..=90 {
        group.run_to(at(second * 1_000));
        let share = group.sender.rtcp_share(group.now);
        if second >= 10 {
            highest = highest.max(share);
        }
    }
    assert!(highest > 0.01 && highest <= 0.06, "{highest}");
    let steady: u64 = group.said.iter().filter(|(t, ..)| *t >= at(30_000)).map(|(.., b)| b.len() as u64 + 28).sum();
    let mean = Bytes::new(steady).per(Span::secs(60)).ratio(Rate::mbps(2));
    assert!(mean > 0.01 && mean <= 0.05, "{mean}");
}

#[test]
fn with_audio_the_rtcp_of_a_group_stays_within_six_percent() {
    for receivers in [1, 3, 12] {
        let mut group = asmp();
        let audio = AudioSettings {
            shares_feedback: true,
            ssrc: 77,
            payload_type: 111,
            rate: Rate::kbps(69),
            first_seq: 0,
            first_timestamp: 0,
        };
        // This profile has no minimum interval, so that the group uses RTCP's whole share.
        group.rtcp = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::kbps(200), true);
        group.sender =
            sender(SenderSettings { audio: Some(audio), ..settings(group.rtcp, Emit::Burst) }, Rate::mbps(1), &[]).0;
        for _ in 0..receivers {
            let n = group.join();
            group.receivers[n] = group.receivers[n].take().map(|receiver| receiver.with_audio(audio.payload_type));
        }
        for index in 0..6_000 {
            let sampled = at(20 * u64::from(index));
            group.sender.push_audio(AudioPacket { index, sampled, len: 120, begins: index == 0 });
            group.run_to(sampled);
        }
        let mean = |by: fn(Option<usize>) -> bool| {
            let said = group.said.iter().filter(|(t, who, _)| *t >= at(20_000) && by(*who));
            let bytes = said.map(|(.., bytes)| bytes.len() as u64 + 28).sum();
            Bytes::new(bytes).per(Span::secs(100)).ratio(Rate::kbps(200))
        };
        let (all, own) = (mean(|_| true), mean(|by| by.is_none()));
        assert!(all > 0.03 && all <= 0.06, "{receivers} receivers: {all}, of which the sender's {own}");
    }
}

#[test]
fn duplicates_are_told_as_such_and_count_once() {
    let (mut source, _) = sender(settings(rtcp(Profile::Asmp, Rate::mbps(1), true), Emit::Burst), Rate::mbps(1), &[]);
    let (mut sink, got) = receiver(5, rtcp(Profile::Asmp, Rate::mbps(1), true), Time::ZERO);
    source.push_frame(Time::ZERO, &group::frame(0, steadycast_session::FrameKind::I, 20_000, 0));
    for (now, packet) in media(&mut source, Time::ZERO, Time::ZERO) {
        let mut bytes = Vec::new();
        packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut bytes);
        let first = sink.on_rtp(now, Origin(1), &bytes, Ecn::NotEct, None).map(|r| r.0);
        assert!(matches!(first, Some(Received::New(_))));
        let second = sink.on_rtp(now, Origin(1), &bytes, Ecn::NotEct, None).map(|r| r.0);
        assert_eq!(second, Some(Received::Duplicate));
    }
    assert_eq!((sink.received(), sink.expected(), got.lock().unwrap().seqs.len()), (22, 22, 22));
}

/// Returns a malformed datagram: random bytes, or a valid one with some bytes changed and its end cut off.
fn garbage() -> impl Strategy<Value = (Vec<u8>, Vec<(usize, u8)>, usize)> {
    let noise = prop::collection::vec(any::<u8>(), 0..80);
    (noise, prop::collection::vec((0usize..60, any::<u8>()), 0..6), 0usize..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_stops_nobody(
        all in prop::collection::vec(garbage(), 1..40),
        damaged in any::<bool>(),
    ) {
        let mut group = asmp();
        group.join();
        group.join();
        group.run_to(at(3_000));
        let model = group.said.iter().rfind(|(_, by, _)| by.is_some()).map(|(.., b)| b.clone()).unwrap_or_default();
        for (mut bytes, edits, end) in all {
            if damaged {
                bytes = model.clone();
                for (place, value) in edits {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte = value;
                    }
                }
                bytes.truncate(end.max(4));
            }
            let now = group.now;
            group.sender.on_rtcp(now, Origin(88), &bytes);
            group.at(0).on_rtcp(now, Origin(88), &bytes);
            group.at(0).on_rtp(now, Origin(88), &bytes, Ecn::NotEct, None);
            group.run_to(now + Span::millis(50));
        }
        group.run_to(group.now + Span::secs(10));
        let receiver = group.receivers[0].as_ref().unwrap();
        // The damage is bounded: the stream continues and is reported.
        prop_assert_eq!(receiver.received(), group.receivers[1].as_ref().unwrap().received());
        prop_assert_eq!(receiver.expected(), receiver.received());
        let recent = group.now.before(Span::secs(5));
        let told = group.told.lock().unwrap();
        prop_assert!(told.reports.iter().any(|(t, from, _)| *t > recent && *from == ReceiverId(101)));
    }

    #[test]
    fn what_can_not_be_read_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let settings = settings(rtcp(Profile::Asmp, Rate::mbps(1), true), Emit::Burst);
        let (mut source, told) = sender(settings, Rate::mbps(1), &[]);
        let (mut sink, got) = receiver(5, rtcp(Profile::Asmp, Rate::mbps(1), true), Time::ZERO);
        if Compound::parse(&bytes).is_err() {
            source.on_rtcp(Time::ZERO, Origin(9), &bytes);
            sink.on_rtcp(Time::ZERO, Origin(9), &bytes);
            prop_assert_eq!((source.feedback().unreadable, sink.unreadable()), (1, 1));
        }
        if steadycast_wire::rtp::RtpHeader::parse(&bytes).is_err() || steadycast_wire::is_rtcp(&bytes) {
            let before = sink.unreadable();
            prop_assert!(sink.on_rtp(Time::ZERO, Origin(9), &bytes, Ecn::NotEct, None).is_none());
            prop_assert_eq!(sink.unreadable(), before + 1);
            prop_assert_eq!(sink.expected(), 0);
            prop_assert!(got.lock().unwrap().seqs.is_empty());
        }
        prop_assert!(told.lock().unwrap().left.is_empty());
        let waits = matches!(source.poll(Time::ZERO), Output::Wait(Some(wake)) if wake.at > Time::ZERO);
        prop_assert!(waits);
    }
}

#[test]
fn timestamps_that_each_jump_by_nearly_half_their_range_stop_no_receiver() {
    let (mut alone, got) = receiver(100, asmp().rtcp, at(0));
    // Without a send time the timestamp replaces it: fifteen years after 20,000 packets.
    for n in 0..20_000_u32 {
        let (seq, timestamp) = (n as u16, n.wrapping_mul(0x7fff_ffff));
        let (payload_type, ssrc) = (96, SENDER);
        let header = RtpHeader { payload_type, marker: true, seq, timestamp, ssrc, send_time: None, payload_len: 0 };
        let mut datagram = Vec::new();
        header.encode(&[], &[], &mut datagram);
        let received = alone.on_rtp(at(n.into()), SENDERS, &datagram, Ecn::NotEct, None).map(|(received, ..)| received);
        assert!(matches!(received, Some(Received::New(_))), "packet {n}");
    }
    assert_eq!(got.lock().unwrap().seqs.len(), 20_000);
}

#[test]
fn how_large_its_group_is_a_receiver_is_told_by_the_source_alone_and_believes_up_to_a_bound() {
    let group = Some(GroupSize { average: u16::MAX, receivers: u32::MAX });
    let summary = || Packet::Summary { ssrc: SENDER, media: SENDER, ntp: 0, group };
    for (from, packets, silenced) in [
        (Origin(77), vec![summary()], false),
        (Origin(77), vec![rr(999), named(999), summary()], false),
        (SENDERS, vec![rr(SENDER), named(SENDER), summary()], true),
    ] {
        let (mut alone, _) = receiver(100, RtcpSettings { summary: true, ..asmp().rtcp }, at(0));
        alone.on_rtcp(at(0), SENDERS, &bytes(vec![rr(SENDER), named(SENDER)]));
        alone.on_rtcp(at(0), from, &bytes(packets));
        let (mut now, mut said) = (at(0), 0);
        while now < at(60_000) {
            match alone.poll(now) {
                Output::Rtcp(_) => said += 1,
                Output::Wait(wake) => now = wake.map_or(Time::NEVER, |wake| wake.at),
                Output::Media(_) => unreachable!("a receiver sends no media"),
            }
        }
        assert_eq!(said == 0, silenced, "{from:?}: {said} reports in a minute");
        assert!(now < Time::ZERO + Span::secs(86_400), "{from:?}: the next one at {now}");
    }
}

#[test]
fn in_a_group_that_is_sampled_nobody_is_believed_in_the_name_of_another() {
    let (mut source, told) = sender(settings(asmp().rtcp, Emit::Burst), Rate::mbps(1), &[]);
    let report = |n: u32| {
        let ssrc = n.wrapping_mul(2_654_435_761);
        let block = ReportBlock { ssrc: SENDER, highest_seq: 65_500, ..ReportBlock::default() };
        bytes(vec![Packet::ReceiverReport { ssrc, blocks: vec![block] }, named(ssrc)])
    };
    for n in 1..=1_000 {
        source.on_rtcp(at(n.into()), Origin(n.into()), &report(n));
    }
    assert_eq!((told.lock().unwrap().reports.len(), source.feedback().packets), (1_000, 1_000));
    for n in 1..=1_000 {
        source.on_rtcp(at(1_001), Origin(7_777), &report(n));
    }
    assert_eq!((told.lock().unwrap().reports.len(), source.feedback().packets), (1_000, 1_000));
    // The 125 to 256 sampled members are known at other addresses.
    assert!((700..=900).contains(&source.feedback().refused), "{:?}", source.feedback());
}

#[test]
fn members_whose_ssrcs_are_chosen_like_ours_do_not_silence_us() {
    let (mut alone, _) = receiver(100, asmp().rtcp, at(0));
    // Five addresses with the maximum number of members each, whose SSRCs agree in the lowest twenty bits.
    for n in 1..=320_u32 {
        let ssrc = 100 ^ n << 20;
        alone.on_rtcp(at(0), Origin(u64::from(n) / 64), &bytes(vec![rr(ssrc), named(ssrc)]));
    }
    let (mut now, mut said) = (at(0), 0);
    while now < at(60_000) {
        match alone.poll(now) {
            Output::Rtcp(_) => said += 1,
            Output::Wait(wake) => now = wake.map_or(Time::NEVER, |wake| wake.at),
            Output::Media(_) => unreachable!("a receiver sends no media"),
        }
    }
    assert!((3..=120).contains(&said), "{said} reports in a minute");
}

#[test]
fn a_lone_packet_of_a_stranger_does_not_lock_the_stream_out() {
    let mut group = asmp();
    group.join();
    // A well-formed RTP packet of another stream arrives first.
    let mut stranger = vec![0x80, 96, 0, 7, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef];
    stranger.extend([0; 40]);
    group.at(0).on_rtp(Time::ZERO, Origin(9), &stranger, Ecn::NotEct, None);
    group.run_to(at(2_000));
    let received = group.at(0).received();
    assert!((147..=151).contains(&received), "{received}");
    // Later it is ignored.
    let verdict = group.at(0).on_rtp(at(2_000), Origin(9), &stranger, Ecn::NotEct, None).map(|r| r.0);
    assert_eq!(verdict, Some(Received::Unused(UnusedReason::OtherSource)));
    group.send(None, Datagram::Rtp(stranger));
    group.run_to(at(2_100));
    assert_eq!(group.at(0).expected(), group.at(0).received());
}

#[test]
fn a_stranger_that_goes_on_does_not_lock_the_described_stream_out() {
    let packet = |payload_type: u8, ssrc: u32, seq: u8| {
        let mut bytes = vec![0x80, payload_type, 0, seq, 0, 0, 0, 0];
        bytes.extend(ssrc.to_be_bytes());
        bytes.extend([0; 40]);
        bytes
    };
    // The other source has another payload type, or its SSRC is not the described one.
    for (payload_type, named) in [(97, None), (96, Some(SENDER))] {
        let mut group = asmp();
        group.join();
        let receiver = group.receivers[0].take().unwrap();
        group.receivers[0] = Some(receiver.described(Some([96].into_iter().collect()), named));
        for n in 0..100 {
            let bytes = packet(payload_type, 0xdead_beef, n);
            group.at(0).on_rtp(at(n.into()), Origin(9), &bytes, Ecn::NotEct, None);
            group.run_to(at(u64::from(n) + 1));
        }
        group.run_to(at(2_000));
        assert_eq!(group.at(0).source(), Some(SENDER));
        let got = group.got[0].lock().unwrap().seqs.len();
        assert!((145..=175).contains(&got), "{got}");
        // A later source is not in the description, and a late packet does not restore the named one.
        group.sender.stop();
        group.run_to(at(3_000));
        assert!(group.at(0).source_ended());
        for (ssrc, seq, follows) in [(77, 1, true), (77, 2, true), (SENDER, 3, false), (77, 3, true)] {
            let bytes = packet(96, ssrc, seq);
            let verdict = group.at(0).on_rtp(at(3_000), SENDERS, &bytes, Ecn::NotEct, None).map(|r| r.0);
            assert_eq!(matches!(verdict, Some(Received::New(_))), follows, "{ssrc}, packet {seq}");
        }
    }
}

#[test]
fn receivers_without_a_source_report_at_rfc_3550s_interval_and_at_once_when_one_comes() {
    let settings = rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), true);
    let mut all: Vec<_> = (0..4).map(|n| receiver(100 + n, settings, at(0)).0).collect();
    let run = |all: &mut Vec<steadycast_session::Receiver>, from: u64, to: u64| {
        let mut said = Vec::new();
        for ms in from..to {
            for n in 0..all.len() {
                while let Output::Rtcp(compound) = all[n].poll(at(ms)) {
                    said.push((ms, n));
                    for (_, member) in all.iter_mut().enumerate().filter(|(other, _)| *other != n) {
                        member.on_rtcp(at(ms), Origin(n as u64), &compound);
                    }
                }
            }
        }
        said
    };
    let said = run(&mut all, 0, 60_000);
    // Four members with one report each, 2 to 6 s after the first.
    assert!((32..=100).contains(&said.len()), "{}", said.len());
    let (mut sender, _) = sender(group::settings(settings, Emit::Burst), Rate::mbps(1), &[]);
    sender.push_frame(Time::ZERO, &group::frame(0, steadycast_session::FrameKind::I, 5_000, 60_000));
    for (_, packet) in media(&mut sender, at(60_000), at(60_100)) {
        let mut datagram = Vec::new();
        packet.encode(&vec![0; usize::from(packet.header.payload_len)], &mut datagram);
        for member in &mut all {
            member.on_rtp(at(60_000), SENDERS, &datagram, Ecn::NotEct, None);
        }
    }
    let said = run(&mut all, 60_000, 60_500);
    for n in 0..4 {
        assert!(said.iter().any(|(_, by)| *by == n), "{said:?}");
    }
    // The BYE ends their reports.
    for member in &mut all {
        member.on_rtcp(at(60_500), SENDERS, &bytes([rr(SENDER), named(SENDER), bye(SENDER)].to_vec()));
    }
    let said = run(&mut all, 61_000, 91_000);
    assert!((12..=60).contains(&said.len()), "{}", said.len());
}

#[test]
fn one_that_has_been_silent_for_its_time_out_counts_no_longer() {
    let mut group = asmp();
    group.join();
    group.run_to(at(10_000));
    assert!(group.sender.counts(at(10_000), 100, at(9_000)));
    assert!(group.sender.counts(at(10_000), 77, at(9_000)), "heard a moment ago, without a report");
    group.feedback_lost = true;
    group.run_to(at(60_000));
    assert!(!group.sender.counts(at(60_000), 100, at(10_000)));
    assert!(!group.sender.counts(at(60_000), 77, at(10_000)));
}
