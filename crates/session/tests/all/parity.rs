//! Parity: requests of receivers, answers of senders, and forged parity.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{SENDER, at, receiver, rtcp, sender, settings};
use std::sync::Arc;
use steadycast_control::Stream;
use steadycast_session::{
    Emit, Media, MediaPacket, Origin, Output, ParitySettings, Profile, Protection, Received, Receiver, RepairSettings,
    Sender, SenderSettings, UnusedReason,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::ntp::NtpEpoch;
use steadycast_wire::parity::ParityHeader;
use steadycast_wire::rtcp::{BlockRequest, Compound, Nack, Packet, ParityRequest, ParityUse, ReportBlock};
use steadycast_wire::rtp::RtpHeader;

const RECEIVER: u32 = 77;
const PARITY: ParitySettings = ParitySettings { ssrc: 9, payload_type: 98, playout: Some(Span::millis(500)) };
const AVPF: Profile = Profile::Avpf { t_rr_interval: Span::ZERO };

/// Returns a greedy sender of 1 Mb/s to a group, one of whose receivers has reported no loss.
fn sending() -> (Sender, Time) {
    // A block ends at twenty packets, independent of delays by parity.
    let parity = Some(ParitySettings { playout: None, ..PARITY });
    let greedy = SenderSettings { greedy: true, parity, ..settings(rtcp(AVPF, Rate::mbps(2), true), Emit::Paced) };
    let (mut sender, _) = sender(greedy, Rate::mbps(1), &[]);
    let now = at(1_000);
    sent(&mut sender, at(0), now);
    for highest in [65_500, 65_620] {
        let block = ReportBlock { ssrc: SENDER, highest_seq: highest, ..ReportBlock::default() };
        hear(&mut sender, now, 1, vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: vec![block] }]);
    }
    // The loss rate, here zero, is read once per second and valid for ten.
    let now = at(13_000);
    sent(&mut sender, at(1_000), now);
    let packets = vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() }; 2];
    hear(&mut sender, now, 1, packets);
    (sender, now)
}

fn hear(sender: &mut Sender, now: Time, from: u64, packets: Vec<Packet>) {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    sender.on_rtcp(now, Origin(from), &bytes);
}

fn ask(sender: &mut Sender, now: Time, from: u64, media: u32, blocks: Vec<BlockRequest>) {
    let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
    hear(sender, now, from, vec![report, ParityRequest { sender: RECEIVER, media, blocks }.to_packet()]);
}

/// Returns the packets that are sent until a time, parity with what it covers.
fn sent(sender: &mut Sender, mut now: Time, until: Time) -> Vec<(Media, Option<Protection>)> {
    let mut all = Vec::new();
    loop {
        match sender.poll(now) {
            Output::Media(media) => {
                let protection = sender.protection().filter(|_| media.stream == Stream::Parity).cloned();
                all.push((media, protection));
            }
            Output::Rtcp(_) => {}
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            Output::Wait(_) => return all,
        }
    }
}

/// Returns the first number of the last complete block of twenty packets, counted from number 65,500.
fn last_block(sender: &Sender) -> u64 {
    let packets = sender.next_seq() - 65_500;
    65_500 + packets / 20 * 20 - 20
}

#[test]
fn a_retransmission_has_the_size_of_its_datagram_with_and_without_parity() {
    for parity in [None, Some(PARITY)] {
        let repair = Some(RepairSettings { ssrc: 8, payload_type: 97, playout: None });
        let profile = rtcp(AVPF, Rate::mbps(2), false);
        let both = SenderSettings { greedy: true, repair, parity, ..settings(profile, Emit::Paced) };
        let (mut sender, _) = sender(both, Rate::mbps(1), &[]);
        sent(&mut sender, at(0), at(1_000));
        let block = ReportBlock { ssrc: SENDER, highest_seq: 65_600, ..ReportBlock::default() };
        hear(&mut sender, at(1_000), 1, vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: vec![block] }]);
        let missing = (40..=41).map(|back| (sender.next_seq() - back) as u16).collect();
        let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
        let nack = Nack { sender: RECEIVER, media: SENDER, missing }.to_packet();
        hear(&mut sender, at(1_000), 1, vec![report, nack]);
        let again = sent(&mut sender, at(1_000), at(1_200)).into_iter().map(|(media, _)| media);
        let again: Vec<Media> = again.filter(|media| media.stream == Stream::Repair).collect();
        assert_eq!(again.len(), 2, "{parity:?}");
        for media in &again {
            let mut datagram = Vec::new();
            media.encode(&vec![0; media.payload_len()], &mut datagram);
            assert_eq!(datagram.len() + 28, media.size.get() as usize, "{parity:?}");
        }
        assert_eq!(sender.repairs().bytes, again.iter().map(|media| media.size).sum(), "{parity:?}");
    }
}

#[test]
fn as_many_parities_as_are_asked_for_leave_once_whoever_asks_and_cover_the_block() {
    let (mut sender, now) = sending();
    let base = last_block(&sender);
    let wanted = |parities| vec![BlockRequest { base: base as u16, packets: 20, parities }];
    let before = sender.repairs().parities;
    for parities in [1, 3, 2] {
        ask(&mut sender, now, 1, SENDER, wanted(parities));
    }
    let parities: Vec<(Media, Protection)> =
        sent(&mut sender, now, at(13_100)).into_iter().filter_map(|(media, of)| Some((media, of?))).collect();
    let headers: Vec<ParityHeader> = parities.iter().map(|(_, protection)| protection.header).collect();
    let header = |index| ParityHeader { packets: 20, base: base as u16, index, sent: index + 1 };
    assert_eq!(headers, [header(0), header(1), header(2)]);
    assert_eq!(sender.repairs().parities - before, 3);
    let (media, protection) = &parities[0];
    assert_eq!((protection.packets.len(), protection.packets[19].seq), (20, base + 19));
    let mut datagram = Vec::new();
    media.encode(&vec![0; media.payload_len()], &mut datagram);
    assert_eq!(datagram.len() + 28, media.size.get() as usize, "the size told is the size encoded");
}

#[test]
fn a_report_that_another_one_has_overtaken_takes_no_loss_back() {
    let sent_after = |blocks: [(u32, i32); 4]| {
        let plain = settings(rtcp(AVPF, Rate::mbps(2), true), Emit::Paced);
        let greedy = SenderSettings { greedy: true, parity: Some(PARITY), ..plain };
        let (mut sender, _) = sender(greedy, Rate::mbps(1), &[]);
        sent(&mut sender, at(0), at(2_000));
        for (highest_seq, cumulative_lost) in blocks {
            let block = ReportBlock { ssrc: SENDER, highest_seq, cumulative_lost, ..ReportBlock::default() };
            let packets = vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: vec![block] }];
            hear(&mut sender, at(2_000), 1, packets);
        }
        sent(&mut sender, at(2_000), at(8_000)).iter().filter(|(media, _)| media.stream == Stream::Parity).count()
    };
    let (first, one, two, three) = ((65_500, 0), (65_560, 10), (65_620, 30), (65_680, 40));
    let in_order = sent_after([first, one, two, three]);
    assert!((50..=750).contains(&in_order), "{in_order} parities of some 750 packets");
    let overtaken = sent_after([first, two, one, three]);
    assert!(overtaken.abs_diff(in_order) * 10 <= in_order, "{overtaken}, and {in_order} in order");
    // The reordered packet arrives last.
    let (last, right) = (sent_after([first, two, two, one]), sent_after([first, one, two, two]));
    assert!(last.abs_diff(right) * 10 <= right, "{last}, and {right} in order");
}

#[test]
fn no_parity_is_sent_for_strangers_of_other_streams_of_what_was_never_sent_or_is_too_old() {
    let (mut sender, now) = sending();
    let base = last_block(&sender);
    let right = BlockRequest { base: base as u16, packets: 20, parities: 2 };
    ask(&mut sender, now, 2, SENDER, vec![right]);
    ask(&mut sender, now, 1, SENDER + 1, vec![right]);
    for wrong in [
        BlockRequest { packets: 19, ..right },
        BlockRequest { packets: 255, parities: 255, ..right },
        BlockRequest { base: right.base.wrapping_add(1), ..right },
        BlockRequest { base: right.base.wrapping_add(20), ..right },
        BlockRequest { base: right.base.wrapping_sub(200), ..right },
        BlockRequest { parities: 0, ..right },
    ] {
        ask(&mut sender, now, 1, SENDER, vec![wrong]);
    }
    let parities: Vec<ParityHeader> =
        sent(&mut sender, now, at(13_100)).into_iter().filter_map(|(_, of)| Some(of?.header)).collect();
    assert_eq!(parities, []);
    // A block has at most as many parity packets as media packets, even on request.
    ask(&mut sender, at(13_100), 1, SENDER, vec![BlockRequest { parities: 255, ..right }]);
    let parities = sent(&mut sender, at(13_100), at(13_300));
    assert!((5..=20).contains(&parities.iter().filter(|(media, _)| media.stream == Stream::Parity).count()));
}

#[test]
fn a_storm_of_requests_for_parity_gets_fifteen_percent_of_the_rate_and_the_whole_stays_what_it_was() {
    let (mut sender, start) = sending();
    let (mut now, mut media, mut parity) = (start, 0, 0);
    // 100,000 requests in ten seconds for all parity of the newest blocks.
    for n in 0..100_000u64 {
        let base = last_block(&sender);
        let block = |back: u64| BlockRequest { base: (base - 20 * back) as u16, packets: 20, parities: 64 };
        ask(&mut sender, now, 1, SENDER, (0..3).map(block).collect());
        let next = start + Span::micros(100) * (n + 1);
        for (packet, _) in sent(&mut sender, now, next) {
            *(if packet.stream == Stream::Parity { &mut parity } else { &mut media }) += packet.size.get();
        }
        now = next;
    }
    let (all, most) = (media + parity, 0.15 * 1.25e6 + 0.15 * 125_000.0);
    assert!((1_240_000..1_260_000).contains(&all), "{all}");
    assert!((0.9 * most..=most).contains(&(parity as f64)), "{parity} of {most}");
    assert!(sender.repairs().refused > 100_000);
}

/// Returns a member's announcement of its play-out delay, and a report with an RTT of 250 ms.
fn use_parity(sender: &mut Sender, now: Time, from: u64, media: u32, playout: Span) {
    use_parity_as(sender, now, from, RECEIVER, media, playout);
}

fn use_parity_as(sender: &mut Sender, now: Time, from: u64, ssrc: u32, media: u32, playout: Span) {
    let sent_at = NtpEpoch::from_unix_secs(1_000_000_000).middle(now.before(Span::millis(250)));
    let block = ReportBlock { ssrc: SENDER, highest_seq: 65_500, lsr: sent_at, ..ReportBlock::default() };
    let report = Packet::ReceiverReport { ssrc, blocks: vec![block] };
    hear(sender, now, from, vec![report, ParityUse { sender: ssrc, media, playout }.to_packet()]);
}

/// Returns the number of parity packets that are sent until a time.
fn parities(sender: &mut Sender, now: Time, until: Time) -> usize {
    sent(sender, now, until).iter().filter(|(media, _)| media.stream == Stream::Parity).count()
}

/// Returns a greedy sender of 1 Mb/s to one receiver, with retransmission, and with parity only after an announcement.
fn sending_on_word() -> Sender {
    let greedy = SenderSettings {
        greedy: true,
        repair: Some(RepairSettings { ssrc: 8, payload_type: 97, playout: None }),
        parity: Some(ParitySettings { playout: None, ..PARITY }),
        parity_on_word: true,
        ..settings(rtcp(AVPF, Rate::mbps(2), false), Emit::Paced)
    };
    let (mut sender, _) = sender(greedy, Rate::mbps(1), &[]);
    assert_eq!(parities(&mut sender, at(0), at(1_000)), 0);
    hear(&mut sender, at(1_000), 1, vec![Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() }; 2]);
    sender
}

#[test]
fn parity_on_a_member_s_word_is_as_strong_as_its_play_out_delay_needs_and_ends_with_its_word() {
    // A retransmission takes 260 ms, after half an RTT: three seconds have room for eight, and 300 ms for none.
    for (playout, least, most) in [(3_000, 0, 0), (300, 15, 60)] {
        let mut sender = sending_on_word();
        use_parity(&mut sender, at(1_000), 1, SENDER, Span::millis(playout));
        let count = parities(&mut sender, at(1_000), at(2_000));
        assert!((least..=most).contains(&count), "{playout} ms: {count}");
        // The announcement is valid for ten seconds.
        let later = parities(&mut sender, at(2_000), at(10_500));
        assert!((8 * least..=9 * most).contains(&later), "{playout} ms: {later}");
        parities(&mut sender, at(10_500), at(11_200));
        assert_eq!(parities(&mut sender, at(11_200), at(13_000)), 0, "{playout} ms");
    }
}

#[test]
fn no_parity_is_sent_on_the_word_of_strangers_of_other_streams_of_who_does_not_wait_and_before_a_round_trip_is_known() {
    let mut sender = sending_on_word();
    use_parity(&mut sender, at(1_000), 2, SENDER, Span::millis(300));
    use_parity(&mut sender, at(1_000), 1, SENDER + 1, Span::millis(300));
    use_parity(&mut sender, at(1_000), 1, SENDER, Span::ZERO);
    assert_eq!(parities(&mut sender, at(1_000), at(2_000)), 0);
    let mut sender = sending_on_word();
    let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
    let told = ParityUse { sender: RECEIVER, media: SENDER, playout: Span::millis(300) }.to_packet();
    hear(&mut sender, at(1_000), 1, vec![report, told]);
    assert_eq!(parities(&mut sender, at(1_000), at(2_000)), 0);
    // A play-out delay of weeks must not keep blocks open for weeks.
    use_parity(&mut sender, at(2_000), 1, SENDER, Span::millis(u32::MAX.into()));
    assert_eq!(parities(&mut sender, at(2_000), at(4_000)), 0);
}

#[test]
fn what_would_come_later_than_its_receiver_waits_is_not_sent_again() {
    for (playout, again) in [(200, 0), (300, 1)] {
        let mut sender = sending_on_word();
        use_parity(&mut sender, at(1_000), 1, SENDER, Span::millis(playout));
        sent(&mut sender, at(1_000), at(1_500));
        let missing = vec![(sender.next_seq() - 40) as u16];
        let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
        hear(&mut sender, at(1_500), 1, vec![report, Nack { sender: RECEIVER, media: SENDER, missing }.to_packet()]);
        sent(&mut sender, at(1_500), at(1_600));
        let repairs = sender.repairs();
        assert_eq!((repairs.packets, repairs.stale), (again, 1 - again), "{playout} ms of 250 ms of round trip");
    }
}

#[test]
fn of_several_words_the_longest_counts_and_each_for_ten_seconds() {
    let (short, long_first, short_first) = (&[200][..], &[300, 1][..], &[1, 300][..]);
    for (words, later, again) in [(short, 500, 0), (long_first, 500, 1), (short_first, 500, 1), (short, 10_500, 1)] {
        let mut sender = sending_on_word();
        for (ssrc, playout) in (RECEIVER..).zip(words) {
            use_parity_as(&mut sender, at(1_000), 1, ssrc, SENDER, Span::millis(*playout));
        }
        let now = at(1_000 + later);
        sent(&mut sender, at(1_000), now);
        let missing = vec![(sender.next_seq() - 40) as u16];
        let report = Packet::ReceiverReport { ssrc: RECEIVER, blocks: Vec::new() };
        let nack = Nack { sender: RECEIVER, media: SENDER, missing }.to_packet();
        hear(&mut sender, now, 1, vec![report.clone(), report, nack]);
        sent(&mut sender, now, now + Span::millis(100));
        let repairs = sender.repairs();
        assert_eq!((repairs.packets, repairs.stale), (again, 1 - again), "{words:?}, asked {later} ms later");
    }
}

#[test]
fn a_receiver_tells_its_play_out_delay_once_a_second_where_it_waits_at_all_and_was_told_to() {
    let told = |playout: Option<Span>, tells: bool| {
        let (receiver, _) = receiver(RECEIVER, rtcp(AVPF, Rate::mbps(2), false), at(0));
        let receiver = receiver.with_parity(ParitySettings { playout, ..PARITY }, Seed(1).part("parity"));
        let mut receiver = if tells { receiver.telling_playout() } else { receiver };
        let (mut said, mut reports) = (Vec::new(), 0);
        for n in 0..1_000u16 {
            let now = at(10 * u64::from(n));
            let header = header(96, SENDER, n);
            receiver.on_media(now, Origin(1), &packet(&header));
            while let Output::Rtcp(bytes) = receiver.poll(now) {
                reports += 1;
                let compound = Compound::parse(&bytes).unwrap();
                said.extend(compound.packets.iter().filter_map(|packet| ParityUse::from_packet(packet).unwrap()));
            }
        }
        (said, reports)
    };
    let delay = Span::millis(250);
    let (said, reports) = told(Some(delay), true);
    assert!((7..=10).contains(&said.len()) && reports > 2 * said.len(), "{} of {reports}", said.len());
    assert!(said.iter().all(|told| *told == ParityUse { sender: RECEIVER, media: SENDER, playout: delay }));
    for (playout, tells) in [(None, true), (Some(Span::ZERO), true), (Some(delay), false)] {
        assert_eq!(told(playout, tells).0, []);
    }
}

/// Returns a receiver that has got the packets 100 to 119 except some, 10 ms apart.
fn receiving(lost: &[u16], members: u32) -> (Receiver, Time) {
    let (receiver, _) = receiver(RECEIVER, rtcp(AVPF, Rate::mbps(2), true), at(0));
    let mut receiver = receiver.with_parity(PARITY, Seed(1).part("parity"));
    for n in (100..120).filter(|n| !lost.contains(n)) {
        let header = header(96, SENDER, n);
        let packet = packet(&header);
        assert!(matches!(receiver.on_media(at(10 * u64::from(n)), Origin(1), &packet), Received::New(_)));
    }
    for ssrc in 1_000..1_000 + members {
        let named = Packet::Sdes { chunks: vec![(ssrc, format!("{ssrc}@test"))] };
        let packets = vec![Packet::ReceiverReport { ssrc, blocks: Vec::new() }, named];
        receiver.on_compound(at(1_200), Origin(ssrc.into()), &Compound { packets }, 8);
    }
    (receiver, at(1_200))
}

fn header(payload_type: u8, ssrc: u32, seq: u16) -> RtpHeader {
    RtpHeader { payload_type, marker: true, seq, timestamp: 0, ssrc, send_time: None, payload_len: 100 }
}

fn packet(header: &RtpHeader) -> MediaPacket<'_> {
    let (size, ecn) = (Bytes::new(140), Ecn::NotEct);
    MediaPacket { header, notice: &[], transport: None, repairs: None, size, ecn, buffer: None }
}

fn parity(receiver: &mut Receiver, now: Time, from: u64, ssrc: u32, seq: u16, told: ParityHeader) -> Received {
    let protection = Protection { header: told, packets: Arc::from([]) };
    receiver.on_parity(now, Origin(from), &packet(&header(98, ssrc, seq)), &protection)
}

const FIRST: ParityHeader = ParityHeader { packets: 20, base: 100, index: 0, sent: 1 };

/// Returns its requests until a time, with their times.
fn asked(receiver: &mut Receiver, mut now: Time, until: Time) -> Vec<(Time, BlockRequest)> {
    let mut all = Vec::new();
    loop {
        match receiver.poll(now) {
            Output::Rtcp(bytes) => {
                let compound = Compound::parse(&bytes).unwrap();
                let requests = compound.packets.iter().filter_map(|packet| ParityRequest::from_packet(packet).unwrap());
                all.extend(requests.flat_map(|request| request.blocks).map(|block| (now, block)));
            }
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            _ => return all,
        }
    }
}

#[test]
fn a_receiver_that_lacks_a_parity_asks_for_it_within_a_round_trip_and_then_has_its_packets() {
    let (mut receiver, now) = receiving(&[105, 112], 10);
    assert!(matches!(parity(&mut receiver, now, 1, 9, 500, FIRST), Received::New(_)));
    assert_eq!(receiver.take_recovered(), []);
    let asks = asked(&mut receiver, now, now + Span::millis(100));
    let [(when, BlockRequest { base: 100, packets: 20, parities: 2 })] = asks[..] else { panic!("{asks:?}") };
    assert!(when >= now);
    parity(&mut receiver, when + Span::millis(60), 1, 9, 501, ParityHeader { index: 1, sent: 2, ..FIRST });
    let numbers: Vec<u16> = receiver.take_recovered().iter().map(|recovered| recovered.number).collect();
    assert_eq!(numbers, [105, 112]);
    assert_eq!(asked(&mut receiver, when, now + Span::secs(1)), []);
    assert_eq!((receiver.received(), receiver.requests().nacks), (18, 1), "what comes back stays lost");
}

#[test]
fn a_receiver_does_not_ask_when_it_hears_another_do_so_or_when_the_group_is_large() {
    for (members, overheard) in [(10, true), (150, false)] {
        let (mut receiver, now) = receiving(&[105, 112], members);
        parity(&mut receiver, now, 1, 9, 500, FIRST);
        if overheard {
            let blocks = vec![BlockRequest { base: 100, packets: 20, parities: 2 }];
            let asked = ParityRequest { sender: 1_003, media: SENDER, blocks }.to_packet();
            let packets = vec![Packet::ReceiverReport { ssrc: 1_003, blocks: Vec::new() }, asked];
            receiver.on_compound(now, Origin(1_003), &Compound { packets }, 40);
        }
        assert_eq!(asked(&mut receiver, now, now + Span::millis(110)), [], "{members} members");
    }
}

#[test]
fn parity_from_elsewhere_of_another_stream_and_of_absurd_blocks_gives_nothing_back() {
    let (mut receiver, now) = receiving(&[105], 10);
    for (from, ssrc) in [(2, 9), (1, 8), (1, SENDER)] {
        assert_eq!(
            parity(&mut receiver, now, from, ssrc, 500, FIRST),
            Received::Unused(UnusedReason::OtherSource),
            "{from} {ssrc}"
        );
    }
    let mut number = 500;
    for packets in [0, 1, 19, 64, 65, 255] {
        for base in [0, 99, 101, 119, 120, 140, 20_000, 40_000] {
            for (index, sent) in [(0, 1), (63, 64), (64, 65), (255, 255), (200, 0)] {
                number += 1;
                parity(&mut receiver, now, 1, 9, number, ParityHeader { packets, base, index, sent });
            }
        }
    }
    // Blocks that lost more than their parity recovers have recovered nothing, and each number is recovered at most
    // once.
    let back: Vec<u16> = receiver.take_recovered().iter().map(|recovered| recovered.number).collect();
    let mut once = back.clone();
    once.sort_unstable();
    once.dedup();
    assert!(back.len() == once.len() && back.len() <= 64, "{back:?}");
    assert!(asked(&mut receiver, now, now + Span::secs(1)).len() <= 16);
    assert_eq!(receiver.received(), 19);
}

#[test]
fn parity_of_what_is_to_come_carries_no_receiver_away() {
    let (mut receiver, now) = receiving(&[105], 10);
    // Blocks of one packet, each with the maximum distance from the previous one.
    for n in 0..2_000u16 {
        let base = 119u16.wrapping_add(n.wrapping_mul(31));
        parity(&mut receiver, now, 1, 9, 500 + n, ParityHeader { packets: 1, base, index: 0, sent: 1 });
    }
    let back: Vec<u16> = receiver.take_recovered().iter().map(|recovered| recovered.number).collect();
    assert!(back.iter().all(|number| (120..=151).contains(number)), "{back:?}");
    // Later arrivals still count, and later losses are recovered.
    for n in (160..200).filter(|n| *n != 170) {
        let header = header(96, SENDER, n);
        assert!(matches!(receiver.on_media(now, Origin(1), &packet(&header)), Received::New(_)), "{n}");
    }
    parity(&mut receiver, now, 1, 9, 2_500, ParityHeader { packets: 20, base: 160, index: 0, sent: 1 });
    let back: Vec<u16> = receiver.take_recovered().iter().map(|recovered| recovered.number).collect();
    assert_eq!(back, [170]);
}
