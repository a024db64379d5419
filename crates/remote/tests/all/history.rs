//! The resolution of packet numbers in feedback.

use std::collections::BTreeMap;
use steadycast_control::{PacketArrival, PacketReport};
use steadycast_remote::{Bytes, History, Joined, PeerTime, Seed, Span, Stream, Time};

#[test]
fn a_sequence_number_names_the_newest_packet_of_its_stream_however_rare_that_is() {
    let mut chance = Seed(1).part("streams");
    let (mut history, mut sent) = (History::default(), Vec::new());
    let mut next = [65_000_u16, 7, 40_000];
    for stream in 0..3 {
        assert_eq!(history.by_seq([Stream::Media, Stream::Repair, Stream::Parity][stream], next[stream]), None);
    }
    for number in 0..50_000_u64 {
        // The other streams have few packets and none at first; no retransmission is left in the history at the end.
        let (of, stream) = match chance.bits32() % 1_000 {
            0..200 if number > 5_000 => (2, Stream::Parity),
            200..205 if (10_000..30_000).contains(&number) => (1, Stream::Repair),
            205..207 if (10_000..30_000).contains(&number) => (1, Stream::Padding),
            _ => (0, Stream::Media),
        };
        next[of] = next[of].wrapping_add(1);
        history.on_sent(number, Time::ZERO, Bytes::new(1_000), stream, next[of]);
        sent.push((of, next[of]));
        if ![9_000, 15_000, 29_999, 49_999].contains(&number) {
            continue;
        }
        let forgotten = sent.len().saturating_sub(1 << 14);
        let places = sent.iter().enumerate().skip(forgotten);
        let named: BTreeMap<(usize, u16), u64> = places.map(|(place, which)| (*which, place as u64)).collect();
        for (of, stream) in [(0, Stream::Media), (1, Stream::Repair), (2, Stream::Parity)] {
            for seq in 0..=u16::MAX {
                let found = history.by_seq(stream, seq);
                assert_eq!(found, named.get(&(of, seq)).copied(), "{stream:?}, {seq} after {number}");
            }
        }
    }
}

/// Feedback about audio alone must not hide that the video before it is unreported.
#[test]
fn packets_of_all_streams_are_settled_after_those_of_one_stream() {
    for seed in 1..=20 {
        let (mut chance, mut history) = (Seed(seed).part("streams"), History::default());
        let streams: Vec<_> =
            (0..100).map(|_| if chance.happens(0.3) { Stream::Audio } else { Stream::Media }).collect();
        for (number, stream) in (0..).zip(&streams) {
            history.on_sent(number, Time::ZERO, Bytes::new(1_000), *stream, number as u16);
        }
        let (mut audio, mut all) = (Vec::new(), Vec::new());
        history.settle_before(90, Some(Stream::Audio), &mut audio);
        history.settle_before(60, None, &mut all);
        let expected =
            |kept: &dyn Fn(usize) -> bool| -> Vec<u64> { (0..100).filter(|n| kept(*n)).map(|n| n as u64).collect() };
        let numbers = |of: &[PacketReport]| of.iter().map(|packet| packet.number).collect::<Vec<_>>();
        assert_eq!(numbers(&audio), expected(&|n| n < 90 && streams[n] == Stream::Audio));
        assert_eq!(numbers(&all), expected(&|n| n < 60 && streams[n] == Stream::Media));
    }
}

/// Draws feedback in which some packets are missing and others have no arrival time. Known times must not change, and
/// the assumed ones lie between those of the packets around them.
#[test]
fn arrival_times_that_feedback_lacks_are_assumed_between_those_that_it_has() {
    for seed in 1..=200 {
        let (mut chance, mut arrives) = (Seed(seed).part("times"), 0_i64);
        let shares = (chance.between(0.0, 0.5), chance.between(0.0, 1.0));
        let offset = chance.between(-1e18, 1e18) as i64;
        let mut joined = Joined::default();
        for number in 0..40_u64 {
            let sent = number * 1_000_000;
            arrives = (arrives + 1_000).max(sent as i64 + chance.between(1e7, 3e7) as i64);
            let at = (!chance.happens(shares.1)).then(|| PeerTime::from_nanos(offset + arrives));
            let arrived = (!chance.happens(shares.0)).then_some(PacketArrival { at, ecn: None });
            let (sent, size) = (Time::ZERO + Span::nanos(sent), Bytes::new(1_000));
            joined.packets.push(PacketReport { number, sent, size, stream: Stream::Media, arrived });
        }
        let time = |packet: &PacketReport| packet.arrived.and_then(|arrived| arrived.at);
        let before = joined.packets.clone();
        let anything_timed = before.iter().any(|packet| time(packet).is_some());
        joined.assume_times();
        let after = &joined.packets;
        for (was, is) in before.iter().zip(after) {
            assert_eq!(was.arrived.is_some(), is.arrived.is_some(), "{was:?} {is:?}");
            assert!(time(was).is_none() || was == is, "{was:?} {is:?}");
            assert_eq!(time(is).is_some(), is.arrived.is_some() && anything_timed, "{is:?}");
        }
        let times: Vec<_> = after.iter().filter_map(time).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}
