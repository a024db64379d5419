//! What limits the rate of a controller whose feedback has stopped.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::collections::VecDeque;
use steadycast_control::registry::Registry;
use steadycast_remote::{
    Bounds, Bytes, FrameEdge, Limit, Need, Packet, PacketResult, PeerTime, Rate, Remote, Span, Time, Window,
};

/// Sends over an empty link of 20 ms for 70 s. The feedback stops after 10 s.
fn sent_without_feedback(mut remote: Remote) -> Remote {
    let at = |ms: u64| Time::ZERO + Span::millis(ms);
    let (mut due, mut arrived) = (Time::ZERO, VecDeque::new());
    for now in (0..70_000).map(at) {
        while due <= now && !remote.decision().window.is_some_and(Window::is_closed) {
            let packet = Packet { size: Bytes::new(1_200), edge: FrameEdge::default(), data_limited: false };
            let arrival = now + Span::millis(20);
            let arrival_time = PeerTime::from_nanos(arrival.as_nanos() as i64);
            arrived.push_back((arrival, PacketResult::at(remote.sent(now, &packet), arrival_time)));
            due = due.max(now.before(Span::millis(20))) + packet.size.at(remote.decision().pacing);
        }
        if now < at(10_000) && now.as_nanos().is_multiple_of(50_000_000) {
            let reported = arrived.iter().take_while(|(at, _)| *at <= now).count();
            remote.feedback(now, arrived.drain(..reported).map(|(_, result)| result));
        }
        if remote.wake().is_some_and(|wake| wake.at <= now) {
            remote.timer(now);
        }
    }
    remote
}

#[test]
fn a_controller_whose_feedback_has_stopped_is_not_said_to_be_in_its_start_phase() {
    for controller in Registry::default().names(|_| true) {
        let mut bounds = Bounds::new(Rate::kbps(100), Rate::mbps(1));
        bounds.offers = vec![Need::Probes];
        let Ok(remote) = Remote::new(controller, &[], &bounds) else { continue };
        let decision = sent_without_feedback(remote).decision();
        assert_ne!(decision.limit, Limit::Start, "{controller}: {decision:?}");
    }
}
