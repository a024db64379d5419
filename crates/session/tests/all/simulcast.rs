//! Sessions that carry the same video at different rates.

use crate::group;

use group::{at, frame, receiver, rtcp, sender, settings};
use steadycast_control::simulcast;
use steadycast_session::{
    Emit, FrameKind, Media, MediaPacket, Origin, Output, Profile, Receiver, RtcpSettings, SenderSettings, Siblings,
};
use steadycast_units::{Ecn, Rate, Span, Time};
use steadycast_wire::rtcp::{Compound, Packet};

fn asmp() -> RtcpSettings {
    rtcp(Profile::Rfc3550, Rate::mbps(1), true)
}

/// Returns the times of a receiver's presence reports until `until`: compounds of a report and SDES, without a body of
/// the controller.
fn knocks(receiver: &mut Receiver, now: Time, until: Time) -> Vec<Time> {
    let plain = |bytes: &[u8]| Compound::parse(bytes).is_ok_and(|c| c.packets.len() == 2);
    said(receiver, now, until).iter().filter(|(_, bytes)| plain(bytes)).map(|(at, _)| *at).collect()
}

/// Returns the RTCP of a receiver until `until`, with its times.
fn said(receiver: &mut Receiver, mut now: Time, until: Time) -> Vec<(Time, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        match receiver.poll(now) {
            Output::Rtcp(bytes) => all.push((now, bytes)),
            Output::Wait(Some(wake)) if wake.at <= until => now = wake.at,
            _ => return all,
        }
    }
}

#[test]
fn a_receiver_that_hears_no_media_knocks_ever_more_seldom_and_stops_when_it_hears_some() {
    let (silent, _) = receiver(7, asmp(), Time::ZERO);
    let mut silent = silent.in_simulcast(Time::ZERO);
    assert_eq!(knocks(&mut silent, Time::ZERO, at(2_000)), [100, 300, 700, 1_500].map(at));

    let (mut source, _) = sender(settings(asmp(), Emit::Burst), Rate::mbps(1), &[]);
    source.push_frame(Time::ZERO, &frame(0, FrameKind::I, 500, 2_000));
    let Output::Media(media) = source.poll(at(2_000)) else { panic!("no media") };
    silent.on_media(at(2_000), Origin(1), &packet(&media));
    // It reports again two seconds after the packet.
    assert_eq!(knocks(&mut silent, at(2_000), at(4_100)), [at(4_000)]);
    // Receivers outside of a simulcast never do.
    let (mut alone, _) = receiver(8, asmp(), Time::ZERO);
    assert!(knocks(&mut alone, Time::ZERO, at(1_000)).is_empty());
}

#[test]
fn a_group_is_told_what_all_groups_are_sent_at() {
    let [low, high] = &Siblings::new(2)[..] else { panic!("not two") };
    high.set_rate(Rate::kbps(900));
    let one = SenderSettings { siblings: Some(low.clone()), ..settings(asmp(), Emit::Burst) };
    let (mut source, _) = sender(one, Rate::kbps(300), &[]);
    source.push_frame(Time::ZERO, &frame(0, FrameKind::I, 500, 0));
    let (listener, _) = receiver(7, asmp(), Time::ZERO);
    let mut listener = listener.in_simulcast(Time::ZERO);
    let (mut now, mut bytes) = (Time::ZERO, 0);
    while now < at(10_000) {
        match source.poll(now) {
            Output::Media(media) => {
                listener.on_media(now, Origin(1), &packet(&media));
            }
            Output::Rtcp(compound) => {
                listener.on_rtcp(now, Origin(1), &compound);
                bytes = compound.len();
                let parsed = Compound::parse(&compound).unwrap_or_else(|e| panic!("{e}"));
                let told = parsed.packets.iter().filter(|p| matches!(p, Packet::App { name: simulcast::APP, .. }));
                assert_eq!(told.count(), 1);
            }
            Output::Wait(wake) => now = wake.map_or(at(10_000), |w| w.at),
        }
    }
    assert_eq!(listener.siblings(), [Rate::kbps(300), Rate::kbps(900)]);
    // The cost: a header of twelve bytes, and four for each group.
    let (mut plain, _) = sender(settings(asmp(), Emit::Burst), Rate::kbps(300), &[]);
    plain.push_frame(Time::ZERO, &frame(0, FrameKind::I, 500, 0));
    let mut now = Time::ZERO;
    let without = loop {
        match plain.poll(now) {
            Output::Rtcp(compound) => break compound.len(),
            Output::Wait(Some(wake)) => now = wake.at,
            _ => {}
        }
    };
    assert_eq!(bytes, without + 12 + 2 * 4);
}

#[test]
fn a_sender_counts_as_deserted_when_nobody_was_heard_for_five_intervals() {
    let (mut source, _) = sender(settings(asmp(), Emit::Burst), Rate::kbps(300), &[]);
    let first = source.deserted_at();
    assert!(first >= Time::ZERO + Span::secs(5), "{first:?}");
    let (listener, _) = receiver(7, asmp(), Time::ZERO);
    let mut listener = listener.in_simulcast(Time::ZERO);
    let knock = said(&mut listener, Time::ZERO, at(150)).remove(0);
    source.on_rtcp(at(3_000), Origin(7), &knock.1);
    assert!(source.deserted_at() >= first + Span::secs(2), "{:?}", source.deserted_at());
}

fn packet(media: &Media) -> MediaPacket<'_> {
    MediaPacket {
        header: &media.header,
        notice: &[],
        transport: None,
        repairs: None,
        size: media.size,
        ecn: Ecn::NotEct,
        buffer: None,
    }
}
