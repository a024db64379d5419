//! Answers to generated offers.

use crate::answers::{answer, receiver_answer, with_audio};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use sdp_types::{Media, Session};
use std::collections::BTreeSet;
use std::fmt::Write;
use steadycast_web::{Feedback, agree, agree_to_receive};
use steadycast_wire::payload::PayloadFormat;

const FORMATS: [PayloadFormat; 4] = [PayloadFormat::Vp8, PayloadFormat::Vp9, PayloadFormat::H264, PayloadFormat::Av1];
const CODECS: [(&str, &str); 8] = [
    ("VP8", ""),
    ("VP9", "profile-id=0"),
    ("VP9", "profile-id=2"),
    ("H264", "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"),
    ("H264", "level-asymmetry-allowed=1;packetization-mode=0;profile-level-id=42e01f"),
    ("AV1", "level-idx=5;profile=0;tier=0"),
    ("red", ""),
    ("flexfec-03", "repair-window=10000000"),
];
const REPORTS: [&str; 6] = ["goog-remb", "transport-cc", "ccm fir", "nack", "nack pli", "ack ccfb"];
const EXTENSIONS: [&str; 5] = [
    "urn:ietf:params:rtp-hdrext:toffset",
    "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
    "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
    "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay",
    "urn:ietf:params:rtp-hdrext:sdes:mid",
];
const TRANSPORT: &str = "a=ice-ufrag:Oggf\r\na=ice-pwd:8g8FPdXAoMEOklIbSrVMH7w6\r\na=setup:actpass\r\na=rtcp-mux\r\n\
    a=fingerprint:sha-256 47:C6:51:E1:46:97:BF:69:4C:10:F1:9F:\
    9D:FE:AE:13:FB:73:94:33:3D:AF:BC:22:01:F2:B4:C5:4F:7E:DC:84\r\n";

/// Payload types of a section with their codecs, retransmissions and feedback. Duplicates are frequent.
fn types() -> impl Strategy<Value = (Vec<u8>, String)> {
    let number = prop_oneof![8 => 96u8..128, 1 => 35u8..64, 1 => 64u8..96];
    let each = (number.clone(), number, any::<bool>(), subsequence(REPORTS.to_vec(), 0..=REPORTS.len()));
    let codecs = subsequence(CODECS.to_vec(), 1..=CODECS.len()).prop_shuffle();
    (codecs, prop::collection::vec(each, CODECS.len())).prop_map(|(codecs, each)| {
        let (mut all, mut text) = (Vec::new(), String::new());
        for ((name, fmtp), (own, again, repeated, reports)) in codecs.into_iter().zip(each) {
            all.push(own);
            writeln!(text, "a=rtpmap:{own} {name}/90000\r").unwrap();
            if !fmtp.is_empty() {
                writeln!(text, "a=fmtp:{own} {fmtp}\r").unwrap();
            }
            for report in reports {
                writeln!(text, "a=rtcp-fb:{own} {report}\r").unwrap();
            }
            if repeated {
                all.push(again);
                writeln!(text, "a=rtpmap:{again} rtx/90000\r\na=fmtp:{again} apt={own}\r").unwrap();
            }
        }
        (all, text)
    })
}

/// Payload types of an audio section with their codecs and feedback.
fn audio_types() -> impl Strategy<Value = (Vec<u8>, String)> {
    let number = prop_oneof![6 => 96u8..128, 1 => 64u8..96];
    let names = select(vec!["opus/48000/2", "OPUS/48000/2", "opus/48000", "G722/8000"]);
    let each = (number, names, subsequence(REPORTS.to_vec(), 0..=REPORTS.len()));
    prop::collection::vec(each, 1..4).prop_map(|each| {
        let (mut all, mut text) = (Vec::new(), String::new());
        for (own, name, reports) in each {
            all.push(own);
            writeln!(text, "a=rtpmap:{own} {name}\r\na=fmtp:{own} useinbandfec=1\r").unwrap();
            for report in reports {
                writeln!(text, "a=rtcp-fb:{own} {report}\r").unwrap();
            }
        }
        (all, text)
    })
}

/// Header extensions, some with an ID that requires the two-byte form, some with a duplicate ID.
fn extensions() -> impl Strategy<Value = String> {
    let ids = prop::collection::vec(prop_oneof![4 => 1u8..15, 1 => 16u8..=255], EXTENSIONS.len());
    (subsequence(EXTENSIONS.to_vec(), 0..=EXTENSIONS.len()).prop_shuffle(), ids).prop_map(|(names, ids)| {
        names.into_iter().zip(ids).map(|(name, id)| format!("a=extmap:{id} {name}\r\n")).collect()
    })
}

fn section() -> impl Strategy<Value = (bool, String)> {
    let video = types().prop_map(|types| ("video", types));
    let kinds = prop_oneof![3 => video, 2 => audio_types().prop_map(|types| ("audio", types))];
    let port = prop_oneof![3 => Just(9u16), 1 => Just(0)];
    let direction = prop_oneof![6 => Just("recvonly"), 1 => Just("sendrecv"), 1 => Just("sendonly")];
    (kinds, port, any::<bool>(), direction, extensions()).prop_map(
        |((kind, (types, lines)), port, shared, direction, extensions)| {
            let types: Vec<String> = types.iter().map(u8::to_string).collect();
            let shared = if shared && port == 0 { "a=bundle-only\r\n" } else { "" };
            let head = format!("m={kind} {port} UDP/TLS/RTP/SAVPF {}\r\nc=IN IP4 0.0.0.0\r\n", types.join(" "));
            (port > 0, format!("{head}{TRANSPORT}a={direction}\r\n{shared}{extensions}{lines}"))
        },
    )
}

/// An offer of up to five sections.
fn offer() -> impl Strategy<Value = String> {
    prop::collection::vec(section(), 1..6).prop_map(|sections| {
        let mids: Vec<String> = (0..sections.len()).filter(|n| sections[*n].0).map(|n| n.to_string()).collect();
        let mut text =
            format!("v=0\r\no=- 7 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {}\r\n", mids.join(" "));
        for (mid, (_, section)) in sections.iter().enumerate() {
            write!(text, "{section}a=mid:{mid}\r\n").unwrap();
        }
        text
    })
}

fn values<'a>(media: &'a Media, name: &'a str) -> Vec<&'a str> {
    media.get_attribute_values(name).flatten().collect()
}

/// Checks that there are no duplicates.
fn single<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let all: Vec<&str> = all.collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    all
}

fn first_words<'a>(lines: &[&'a str]) -> impl Iterator<Item = &'a str> {
    lines.iter().filter_map(|line| line.split(' ').next()).collect::<Vec<_>>().into_iter()
}

/// Checks that the accepted section contains only what was offered, and each number once.
fn within(offered: &Media, said: &Media) {
    let types = single(said.fmt.split(' '));
    let all: Vec<&str> = offered.fmt.split(' ').collect();
    assert!(types.iter().all(|pt| all.contains(pt)), "{types:?} of {all:?}");
    assert!(types.iter().all(|pt| !(64..96).contains(&pt.parse::<u8>().unwrap())), "{types:?} may be reports");
    for name in ["rtpmap", "fmtp"] {
        let (said, offered) = (values(said, name), values(offered, name));
        assert!(single(first_words(&said)).iter().all(|pt| types.contains(pt)));
        assert!(
            said.iter().all(|line| offered.iter().any(|it| it.eq_ignore_ascii_case(line))),
            "{said:?} of {offered:?}"
        );
    }
    let ids = values(said, "extmap");
    for id in single(first_words(&ids)) {
        assert!((1..15).contains(&id.parse::<u8>().unwrap()));
    }
    let offered_ids = values(offered, "extmap");
    assert!(ids.iter().all(|line| offered_ids.contains(line)), "{ids:?} of {offered_ids:?}");
    let reports = values(offered, "rtcp-fb");
    for report in values(said, "rtcp-fb") {
        let of_type = report.replace('*', types[0]);
        assert!(reports.contains(&of_type.as_str()), "{report} of {reports:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_answer_contains_only_offered_values_in_order_and_once(
        text in offer(),
        // `None` is an end that receives.
        format in option::of(select(FORMATS.to_vec())),
        feedback in select(vec![Feedback::Congestion, Feedback::Transport, Feedback::Standard]),
    ) {
        let offer = Session::parse(text.as_bytes()).unwrap();
        let agreed = match format {
            Some(format) => agree(text.as_bytes(), &with_audio(format)),
            None => agree_to_receive(text.as_bytes(), true),
        };
        let Ok(agreed) = agreed else { return Ok(()) };
        let said = if format.is_some() { answer(&agreed, feedback) } else { receiver_answer(&agreed, feedback) };
        let heads = |of: &Session| -> Vec<_> {
            let head = |media: &Media| (media.media.clone(), media.proto.clone(), values(media, "mid").concat());
            of.medias.iter().map(head).collect()
        };
        prop_assert_eq!(heads(&offer), heads(&said));
        let taken: Vec<usize> = (0..said.medias.len()).filter(|n| said.medias[*n].port > 0).collect();
        let kinds: Vec<&str> = taken.iter().map(|n| offer.medias[*n].media.as_str()).collect();
        prop_assert!(matches!(kinds[..], ["video"] | ["audio", "video"] | ["video", "audio"]), "{:?}", kinds);
        let bundle = said.get_first_attribute_value("group").flatten();
        for (place, (offered, said)) in offer.medias.iter().zip(&said.medias).enumerate() {
            if taken.contains(&place) {
                prop_assert!(offered.port > 0 || offered.has_attribute("bundle-only"));
                within(offered, said);
            } else {
                prop_assert!(said.has_attribute("inactive") && values(said, "extmap").is_empty());
                prop_assert_eq!(&said.fmt, &offered.fmt);
            }
        }
        let mids: Vec<String> = taken.iter().map(usize::to_string).collect();
        prop_assert!(bundle.is_none_or(|group| group == format!("BUNDLE {}", mids.join(" "))), "{:?}", bundle);
        if let [first, second] = taken[..] {
            prop_assert!(bundle.is_some());
            let (first, second) = (&said.medias[first], &said.medias[second]);
            // Both sections have the same transport, and no payload type or extension ID has two meanings.
            for name in ["ice-ufrag", "ice-pwd", "fingerprint", "setup", "candidate"] {
                prop_assert_eq!(values(first, name), values(second, name));
            }
            prop_assert!(first.fmt.split(' ').all(|it| second.fmt.split(' ').all(|other| it != other)));
            let maps = [values(first, "extmap"), values(second, "extmap")].concat();
            single(first_words(&maps.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()));
        }
    }
}
