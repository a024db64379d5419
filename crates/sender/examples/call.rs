//! Sends audio and video over a link with a rate of 2 Mb/s and a loss of 1 %. Run it with:
//! `cargo run -p steadycast-sender --example call`.

use std::collections::BTreeMap;
use steadycast_remote::{Bounds, FrameEdge, PacketResult, ParamError, PeerTime, Seed};
use steadycast_sender::{
    FrameRole, MediaPacket, MediaSender, MediaSettings, Output, RepairSettings, StreamId, StreamSettings,
};
use steadycast_units::{Bytes, Rate, Span, Time};

fn main() -> Result<(), ParamError> {
    let settings = MediaSettings::new(Bounds::new(Rate::kbps(100), Rate::mbps(10)));
    let mut sender = MediaSender::new("steady", &[], settings)?;
    let mut video = StreamSettings::video(1);
    video.retransmission = Some(RepairSettings::default());
    let video = sender.add_stream(video);
    let audio = sender.add_stream(StreamSettings::audio(2, Rate::kbps(40)));

    let (tick, way, end) = (Span::millis(20), Span::millis(25), Time::ZERO + Span::secs(30));
    let (mut now, mut frame, mut seqs) = (Time::ZERO, Time::ZERO, [0_u16; 2]);
    let (mut free, mut chance, mut fates, mut bytes) = (Time::ZERO, Seed(1).part("link"), BTreeMap::new(), Bytes::ZERO);
    let mut push = |sender: &mut MediaSender, now, stream: StreamId, size: u64, edge| {
        let seq = &mut seqs[stream.0 as usize];
        sender.push(now, stream, &MediaPacket { id: u64::from(*seq), size: Bytes::new(size), edge, seq: *seq });
        *seq = seq.wrapping_add(1);
    };
    while now < end {
        // 1. The encoder makes a frame at the rate that `encoder` returns. It makes none if the sender's queue is full.
        if now >= frame {
            push(&mut sender, now, audio, 100, FrameEdge { first: true, last: true });
            let plan = sender.encoder(now, video);
            let role = if plan.key_frame { FrameRole::Key } else { FrameRole::Reference };
            if !plan.skip && sender.frame(now, video, role) {
                let packets = plan.rate.over(tick).get().div_ceil(1_200).max(1);
                let size = plan.rate.over(tick).get() / packets;
                for n in 0..packets {
                    push(&mut sender, now, video, size, FrameEdge { first: n == 0, last: n + 1 == packets });
                }
            }
            frame = now + tick;
        }
        // 2. Send packets whenever the pacer allows it. The link's queue drops packets that would wait more than
        // 100 ms.
        let wake = loop {
            match sender.poll(now) {
                Output::Send(packet) => {
                    let fits = free.since(now) <= Span::millis(100);
                    free = if fits { free.max(now) + packet.size.at(Rate::mbps(2)) } else { free };
                    let arrives = (fits && !chance.happens(0.01)).then_some(free + way);
                    fates.insert(packet.number, (free + way, arrives, packet));
                }
                Output::Dropped(..) => {}
                Output::Wait(wake) => break wake.map_or(end, |wake| wake.at),
            }
        };
        // 3. Feedback arrives 25 ms after the packets. It contains a NACK for each lost packet.
        while let Some((number, (at, arrives, packet))) = fates.first_key_value().map(|(n, fate)| (*n, *fate)) {
            if at + way > now {
                break;
            }
            fates.remove(&number);
            let peer = |at: Time| PeerTime::from_nanos(at.as_nanos() as i64);
            let fate = arrives.map_or(PacketResult::missing(number), |at| PacketResult::at(number, peer(at)));
            sender.feedback(now, [fate]);
            match arrives {
                Some(_) => bytes += packet.size,
                None => {
                    sender.resend(now, packet.stream, packet.seq);
                }
            }
        }
        let feedback = fates.first_key_value().map_or(end, |(_, (at, ..))| *at + way);
        now = wake.min(frame).min(feedback).max(now + Span::micros(100));
    }

    let (rate, repairs) = (bytes.per(Span::secs(30)), sender.repairs());
    println!("{rate} arrived; {} retransmissions; {}", repairs.packets, sender.decision().why.rule);
    assert!(rate > Rate::mbps(1) && rate < Rate::mbps(2) && repairs.packets > 10);
    Ok(())
}
