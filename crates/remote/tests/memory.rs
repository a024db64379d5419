//! The heap allocations per packet.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use allocation_counter::{AllocationInfo, measure};
use steadycast_remote::{Bounds, FrameEdge, Packet, PacketResult, PeerTime, Rate, Remote, Span, Time};

/// Sends 20,000 packets, one per millisecond, with feedback every 50 ms. Then 1,000 packets are counted without
/// feedback and 1,000 with feedback.
fn taken(name: &str) -> (AllocationInfo, AllocationInfo) {
    let bounds = Bounds::new(Rate::kbps(100), Rate::mbps(20));
    let mut remote = Remote::new(name, &[], &bounds).unwrap();
    let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };
    let mut next = 0_u64;
    let mut go = |packets: u64, feedback: bool| {
        for n in next..next + packets {
            let now = Time::ZERO + Span::millis(n);
            remote.sent(now, &packet);
            if feedback && n % 50 == 49 {
                remote.timer(now);
                let at = |n: u64| PeerTime::from_nanos((n * 1_000_000) as i64);
                remote.feedback(now, (n - 49..=n).filter(|n| n % 100 != 0).map(|n| PacketResult::at(n, at(n))));
            }
        }
        next += packets;
    };
    go(20_000, true);
    let sent = measure(|| go(1_000, false));
    // The first feedback after a silence makes room for the packets whose fates it leaves unknown. The room is kept.
    go(1_000, true);
    go(1_000, false);
    (sent, measure(|| go(1_000, true)))
}

#[test]
fn a_packet_takes_no_memory_and_feedback_what_its_reports_hold() {
    for name in ["tfrc", "asmp", "nada"] {
        let (sent, told) = taken(name);
        assert_eq!(sent.count_total, 0, "{name}: {sent:?}");
        // 20 reports.
        assert!(told.count_total <= 200, "{name}: {told:?}");
        assert!(told.bytes_max < 4_096, "{name}: {told:?}");
    }
}
