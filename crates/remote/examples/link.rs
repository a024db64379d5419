//! A controller that sends over a link of 2 Mb/s. Run it with `cargo run -p steadycast-remote --example link`.

use std::collections::VecDeque;
use steadycast_remote::{
    Bounds, Bytes, FrameEdge, Packet, PacketResult, ParamError, PeerTime, Rate, Remote, Span, Time,
};

fn main() -> Result<(), ParamError> {
    let (capacity, way, room) = (Rate::mbps(2), Span::millis(20), Span::millis(200));
    let bounds = Bounds::new(Rate::kbps(100), Rate::mbps(10));
    let mut remote = Remote::new("tfrc", &[], &bounds)?;
    let packet = Packet { size: bounds.packet, edge: FrameEdge::default(), data_limited: false };

    let (mut idle, mut send, mut report) = (Time::ZERO, Time::ZERO, Time::ZERO + Span::millis(50));
    let mut under_way = VecDeque::new();
    let (mut sent, mut lost) = (Bytes::ZERO, 0_u32);
    let end = Time::ZERO + Span::secs(60);
    loop {
        let wake = remote.wake().map_or(Time::NEVER, |wake| wake.at);
        let now = send.min(report).min(wake);
        if now >= end {
            break;
        }
        if now == wake {
            remote.timer(now);
        } else if now == send {
            // Send the packet. It is queued on the link if there is room, and otherwise lost.
            let number = remote.sent(now, &packet);
            sent += packet.size;
            if idle.since(now) > room {
                lost += 1;
                under_way.push_back((now + way, PacketResult::missing(number)));
            } else {
                idle = idle.max(now) + packet.size.at(capacity);
                let at = idle + way;
                under_way.push_back((at, PacketResult::at(number, PeerTime::from_nanos(at.as_nanos() as i64))));
            }
            send = now + packet.size.at(remote.decision().pacing);
        } else {
            // The feedback has been on its way for the one-way delay. It covers the packets that had arrived when it
            // was written.
            let arrived = under_way.iter().take_while(|(at, _)| *at <= now.before(way)).count();
            remote.feedback(now, under_way.drain(..arrived).map(|(_, fate)| fate));
            report = now + Span::millis(50);
        }
    }

    let decision = remote.decision();
    println!(
        "{} by \"{}\"; sent {}, lost {lost} packets",
        decision.target,
        decision.why.rule,
        sent.per(Span::secs(60))
    );
    assert!(sent.per(Span::secs(60)) > capacity.scale(0.8) && sent.per(Span::secs(60)) < capacity.scale(1.05));
    Ok(())
}
