//! The resolution of packet numbers in feedback.

use std::collections::BTreeMap;
use steadycast_control::PacketReport;
use steadycast_remote::{Bytes, History, Seed, Stream, Time};

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
