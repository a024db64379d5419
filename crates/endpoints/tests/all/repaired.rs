//! Counting of repaired packets when the receiver only knows sixteen bits of a packet's number, as over sockets.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Mode, Notice, Stream};
use steadycast_endpoints::{AgentIx, Arriving, Body, Intake, Out, VideoSink};
use steadycast_session::{
    Fragment, HeaderIds, Identity, Media, Profile, Received, Receiver, RepairSettings, RtcpSettings,
};
use steadycast_units::{Bytes, Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtp::RtpHeader;

/// Returns a sink with retransmission that has joined.
fn sink() -> VideoSink {
    let make = |now: Time, _: u32| {
        let rtcp = RtcpSettings::new(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2));
        let setup = Setup::unicast(Rate::kbps(50), Rate::mbps(2), Seed(1).part("half"));
        let fixed = Chosen::shared("fixed", Mode::Repaired, &[]).unwrap();
        let who = Identity { ssrc: 2, cname: "receiver".to_owned() };
        let receiver = Receiver::new(who, rtcp, fixed.terms().app, fixed.receiver(&setup), Seed(1).part("rtcp"), now);
        receiver.with_repair(RepairSettings { ssrc: 9, payload_type: 97, playout: Some(Span::millis(300)) })
    };
    let mut sink = VideoSink::new(Box::new(make), Intake::new(Time::ZERO, Time::NEVER), false, 0);
    sink.repair = true;
    sink.join(Time::ZERO);
    sink
}

/// Delivers packet `number` `ms` milliseconds after the start, as an original or a retransmission.
fn arrives(sink: &mut VideoSink, ms: u32, number: u32, again: bool) -> Received {
    let now = Time::ZERO + Span::millis(ms.into());
    let (seq, size, ecn) = (number as u16, Bytes::new(140), Ecn::NotEct);
    let (payload_type, ssrc, stream) = if again { (97, 9, Stream::Repair) } else { (96, 1, Stream::Media) };
    let repairs = again.then_some(u64::from(seq));
    let header = RtpHeader { payload_type, marker: true, seq, timestamp: 0, ssrc, send_time: None, payload_len: 100 };
    let (notice, fragment, transport) = (Notice::NONE, Fragment::default(), None);
    let media = Media {
        header,
        notice,
        fragment,
        number: 0,
        transport,
        ids: HeaderIds::default(),
        stream,
        seq: seq.into(),
        repairs,
        size,
        ecn,
    };
    let body = Body::Plain(0);
    let arriving = Arriving { from: AgentIx(1), size, sent: Some(now), ecn, body: &body };
    sink.on_media(now, &arriving, &media, &mut Out { packets: &mut Vec::new() })
}

#[test]
fn a_packet_whose_repair_has_overtaken_it_was_not_lost_and_one_of_a_wrap_later_is_another() {
    for overtaken in [true, false] {
        let mut sink = sink();
        for n in (0..70_000).filter(|n| *n != 10) {
            assert!(matches!(arrives(&mut sink, n, n, false), Received::New(_)), "{n}");
            if n == 20 {
                assert_eq!(arrives(&mut sink, n, 10, true), Received::Repaired(10));
                assert_eq!(sink.repaired.len(), 1);
            }
            if n == 30 && overtaken {
                assert_eq!(arrives(&mut sink, n, 10, false), Received::New(10));
                assert!(sink.repaired.is_empty());
            }
        }
        assert_eq!(sink.repaired.len(), usize::from(!overtaken));
    }
}
