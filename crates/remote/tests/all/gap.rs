//! The interval between two reports is not taken for missing feedback, even with a short round trip.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::sync::Arc;
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Departing, FrameEdge, Mode, PacketReport, ReceiverId, Report, Sent};
use steadycast_remote::{Bytes, PacketArrival, PeerTime, Rate, Replayed, Seed, Span, Stream, Time};

const SIZE: Bytes = Bytes::new(1_000);

/// Sends packets every 5 ms over a round trip of 2 ms, with a report every `every` ms. Returns the controller's rule at
/// the end of each report interval.
fn rules(every: u64) -> Vec<String> {
    let chosen = Chosen::new("tfrc", Mode::Repaired, &[]).unwrap();
    let setup = Setup::unicast(Rate::kbps(50), Rate::mbps(20), Seed(1).part("gap"));
    let mut half = Replayed::around(Arc::new(chosen), Span::secs(1)).sender(&setup);
    let (mut packets, mut rules) = (Vec::new(), Vec::new());
    for n in 0..600_u64 {
        let sent = Time::ZERO + Span::millis(5 * n);
        if half.wake().is_some_and(|wake| wake.at <= sent) {
            half.on_timer(sent);
        }
        half.notice(&Departing { at: sent, seq: n, size: SIZE, edge: FrameEdge { first: true, last: true } });
        half.on_sent(&Sent { at: sent, left: sent, number: n, seq: n, size: SIZE, data_limited: false });
        let at = PeerTime::from_nanos((sent + Span::millis(1)).as_nanos() as i64);
        let arrived = Some(PacketArrival { at: Some(at), ecn: None });
        packets.push(PacketReport { number: n, sent, size: SIZE, stream: Stream::Media, arrived });
        if (5 * n).is_multiple_of(every) {
            rules.push(half.decision().why.rule.to_string());
            let (at, from, rtt) = (sent + Span::millis(2), ReceiverId(2), Some(Span::millis(2)));
            half.on_report(&Report { at, from, rtt, reception: None, body: None, packets: &packets, members: 2 });
            packets.clear();
        }
    }
    rules
}

#[test]
fn tfrc_does_not_halve_between_two_reports() {
    for every in [5, 40, 100] {
        let rules = rules(every);
        // The report interval is known from the second report on.
        let halved = rules.iter().skip(3).filter(|rule| rule.contains("halved")).count();
        assert_eq!(halved, 0, "a report each {every} ms: {rules:?}");
        assert!(rules.iter().any(|rule| rule.contains("slow start")), "{rules:?}");
    }
}
