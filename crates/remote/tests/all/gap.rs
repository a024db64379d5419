//! The interval between two feedback messages is not taken for missing feedback, even with a short round trip.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use proptest::prelude::*;
use steadycast_remote::{Bounds, Bytes, FrameEdge, Packet, PacketResult, PeerTime, Rate, Remote, Span, Time};

const SIZE: Bytes = Bytes::new(1_000);
const SENT_EVERY: Span = Span::millis(5);

/// Sends packets over a round trip of 2 ms, with feedback on every `packets` of them. Returns the rule of the
/// controller `law` at the end of each feedback interval.
fn rules(law: &str, packets: u64) -> Vec<String> {
    let bounds = Bounds::new(Rate::kbps(50), Rate::mbps(20));
    let mut remote = Remote::new(law, &[], &bounds).unwrap();
    let (mut results, mut rules) = (Vec::new(), Vec::new());
    for n in 0..packets * 20 {
        let sent = Time::ZERO + SENT_EVERY * n;
        if remote.wake().is_some_and(|wake| wake.at <= sent) {
            remote.timer(sent);
        }
        let edge = FrameEdge { first: true, last: true };
        let number = remote.sent(sent, &Packet { size: SIZE, edge, data_limited: false });
        let arrival = PeerTime::from_nanos((sent + Span::millis(1)).as_nanos() as i64);
        results.push(PacketResult::at(number, arrival));
        if n % packets == packets - 1 {
            rules.push(remote.decision().why.rule.to_string());
            remote.feedback(sent + Span::millis(2), results.drain(..));
        }
    }
    rules
}

/// Returns the number of rules of missing feedback. The first three do not count: the feedback interval is known only
/// from the second message on.
fn halved(rules: &[String]) -> usize {
    rules.iter().skip(3).filter(|rule| rule.contains("halved")).count()
}

#[test]
fn tfrc_is_in_slow_start_between_the_first_messages() {
    for packets in [1, 8, 20] {
        let rules = rules("tfrc", packets);
        assert!(rules.iter().any(|rule| rule.contains("slow start")), "{rules:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_interval_between_two_messages_is_not_silence(
        law in prop::sample::select(vec!["tfrc", "steady", "nada", "scream"]),
        packets in 1_u64..=580,
    ) {
        let rules = rules(law, packets);
        prop_assert_eq!(halved(&rules), 0, "{}, feedback every {}: {:?}", law, SENT_EVERY * packets, rules);
    }
}
