//! The recorder of transport-wide feedback, for programs with an RTP stack of their own.

use proptest::prelude::*;
use std::collections::BTreeMap;
use steadycast_session::TransportFeedbackRecorder;
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::rtcp::{Compound, TransportFeedback};

const SOURCE: u32 = 7;

/// Returns the arrival times by transport-wide number that these datagrams report, in ns; `None`: missing.
fn reported(datagrams: &[Vec<u8>]) -> Vec<(u16, Option<i64>)> {
    let read = |datagram: &Vec<u8>| {
        // IP, UDP and SRTCP add at most 48 bytes.
        assert!(datagram.len() <= 1280 - 48, "a report has {} bytes", datagram.len());
        let compound = Compound::parse(datagram).expect("RTCP");
        let [packet] = &compound.packets[..] else { panic!("one report for each datagram") };
        let feedback = TransportFeedback::from_packet(packet).expect("well-formed").expect("transport-wide feedback");
        assert_eq!((feedback.sender, feedback.media), (1, SOURCE));
        let known = feedback.acknowledged(None);
        known.map(|one| (one.seq, one.arrival.map(|at| at.at.expect("a time").as_nanos()))).collect::<Vec<_>>()
    };
    datagrams.iter().flat_map(read).collect()
}

proptest! {
    /// Every packet between the first and the last arrival is reported, with its time to a tick of 250 µs or as
    /// missing. Numbers wrap, packets are lost, duplicated and reordered, and silences last up to 20 s.
    #[test]
    fn each_packet_is_reported_as_it_arrived(
        first: u16,
        packets in prop::collection::vec((0u64..40_000, 0u8..10, any::<bool>()), 2..400),
        silence in prop_oneof![Just(0), 0u64..20_000],
    ) {
        let mut recorder = TransportFeedbackRecorder::new(1, Rate::mbps(1));
        let (mut now, mut arrived, mut latest) = (Time::ZERO + Span::secs(1), BTreeMap::new(), BTreeMap::new());
        let mut pending = None;
        let last = packets.len() as u64 - 1;
        for (n, (gap_us, chance, ends)) in (0u64..).zip(&packets) {
            now += Span::micros(*gap_us);
            if n == last / 2 {
                now += Span::millis(silence);
            }
            // The first and the last packet arrive, so that the range is known.
            let number = match *chance {
                0 | 1 if n > 0 && n < last => continue,
                2 if n > 0 && n < last => n - 1,
                _ => n,
            };
            let due = recorder.due().is_some_and(|due| due <= now);
            let datagrams = recorder.report(now);
            prop_assert_eq!(due, !datagrams.is_empty());
            prop_assert!(!due || recorder.due().is_none());
            latest.extend(reported(&datagrams));
            recorder.on_packet(now, SOURCE, first.wrapping_add(number as u16), Bytes::new(1200), *ends);
            arrived.entry(number).or_insert(now);
            pending = recorder.due();
            prop_assert!(pending.is_some());
        }
        latest.extend(reported(&recorder.report(pending.expect("the last packet arrived").max(now))));
        for number in 0..=last {
            let known = latest.get(&first.wrapping_add(number as u16));
            match (arrived.get(&number), known) {
                (None, Some(None)) => {}
                (Some(at), Some(Some(told))) => {
                    let late = at.as_nanos() as i64 - told;
                    prop_assert!((0..250_000).contains(&late), "packet {number} is {late} ns off");
                }
                (at, told) => prop_assert!(false, "packet {number} arrived at {at:?}, reported {told:?}"),
            }
        }
    }

    /// Without reordering, each packet is reported exactly once. libwebrtc's older senders take a wrong time from a
    /// report that repeats packets.
    #[test]
    fn each_packet_is_reported_once(
        packets in prop::collection::vec((0u64..40_000, any::<bool>(), any::<bool>()), 2..400),
    ) {
        let mut recorder = TransportFeedbackRecorder::new(1, Rate::mbps(1));
        let (mut now, mut all) = (Time::ZERO + Span::secs(1), Vec::new());
        for (n, (gap_us, is_lost, ends)) in packets.iter().enumerate() {
            now += Span::micros(*gap_us);
            all.extend(reported(&recorder.report(now)));
            if !is_lost || n == 0 {
                recorder.on_packet(now, SOURCE, n as u16, Bytes::new(1200), *ends);
            }
        }
        all.extend(reported(&recorder.report(now + Span::secs(1))));
        let numbers: Vec<u16> = all.iter().map(|(number, _)| *number).collect();
        prop_assert_eq!(&numbers, &(0..numbers.len() as u16).collect::<Vec<_>>());
        let came = |n: usize| n == 0 || !packets[n].1;
        prop_assert!(all.iter().all(|(number, at)| at.is_some() == came(usize::from(*number))));
        prop_assert_eq!(numbers.len(), packets.len() - (0..packets.len()).rev().take_while(|n| !came(*n)).count());
    }

    /// Reports take 5 % of the session bandwidth or of the arriving rate, whichever is larger, in addition to one
    /// report per 200 ms. Every eighth packet arrives after `8 * late` packets with higher numbers, so that reports
    /// list packets a second time.
    #[test]
    fn reports_take_their_share_of_the_rate(mbps in 1u64..40, seed in 0u64..8, late in 0u16..40) {
        let mut recorder = TransportFeedbackRecorder::new(1, Rate::mbps(1));
        let (mut now, mut sent, size) = (Time::ZERO + Span::millis(seed), 0, Bytes::new(1200));
        for n in 0..4_000u16 {
            now += size.at(Rate::mbps(mbps));
            let number = if n % 8 == 0 { n.wrapping_sub(8 * late) } else { n };
            recorder.on_packet(now, SOURCE, number, size, n % 4 == 3);
            sent += recorder.report(now).iter().map(|datagram| datagram.len() + 48).sum::<usize>();
        }
        prop_assert!(sent > 0);
        // Each packet takes at most four bytes; a report between frames has its own header.
        prop_assert!(sent as f64 <= 4_000.0 * 1_200.0 * 0.06, "{sent} bytes of reports");
    }
}
