use crate::client::{address, certificate, credentials};
use proptest::prelude::*;
use sdp_types::Session;
use steadycast_web::{
    Credentials, Feedback, LocalParameters, LocalSources, NegotiatedParameters, NegotiationError, Stream, agree,
    agree_to_receive,
};
use steadycast_wire::payload::PayloadFormat;

/// Chromium's offers: with one "recvonly" video transceiver, and with audio before it and RFC 8888 enabled.
const CHROMIUM: &str = include_str!("offers/chromium.sdp");
const WITH_AUDIO: &str = include_str!("offers/chromium-ccfb.sdp");
/// The offer of Firefox 153 without its H.264 plug-in.
const FIREFOX: &str = include_str!("offers/firefox.sdp");

pub(crate) const fn stream(format: PayloadFormat) -> Stream<'static> {
    Stream { format: Some(format), config: &[], audio: false }
}

pub(crate) const fn with_audio(format: PayloadFormat) -> Stream<'static> {
    Stream { audio: true, ..stream(format) }
}

const VP8: Stream<'_> = stream(PayloadFormat::Vp8);

pub(crate) fn answer(agreed: &NegotiatedParameters, feedback: Feedback) -> Session {
    Session::parse(written(agreed, feedback).as_bytes()).unwrap()
}

/// Returns the description of an end that sends.
pub(crate) fn written(agreed: &NegotiatedParameters, feedback: Feedback) -> String {
    let sources = LocalSources { media: 11, repair: Some(12), audio: Some(13), cname: "it" };
    described(agreed, feedback, Some(sources))
}

/// Returns the answer of an end that receives.
pub(crate) fn receiver_answer(agreed: &NegotiatedParameters, feedback: Feedback) -> Session {
    Session::parse(described(agreed, feedback, None).as_bytes()).unwrap()
}

fn described(agreed: &NegotiatedParameters, feedback: Feedback, sources: Option<LocalSources<'_>>) -> String {
    agreed.describe(&LocalParameters {
        session: 7,
        address: address("192.0.2.1:40003"),
        others: &[],
        credentials: &credentials(1),
        fingerprint: certificate(1).fingerprint,
        feedback,
        send_time: sources.is_some(),
        key_frames: true,
        sources,
    })
}

fn lines(session: &Session, section: usize) -> Vec<String> {
    let said = |line: &sdp_types::Attribute| match &line.value {
        Some(value) => format!("{}:{value}", line.attribute),
        None => line.attribute.clone(),
    };
    session.medias[section].attributes.iter().map(said).collect()
}

#[test]
fn chromium_s_numbers_are_taken_as_it_offers_them() {
    let agreed = agree(CHROMIUM.as_bytes(), &VP8).unwrap();
    assert_eq!((agreed.payload_type, agreed.repair), (96, Some(97)));
    assert_eq!((agreed.transport, agreed.send_time, agreed.congestion), (Some(4), Some(2), false));
    assert_eq!((agreed.peer.ufrag.len(), agreed.peer.password.len(), agreed.fingerprints.len()), (4, 24, 1));
    let said = answer(&agreed, Feedback::Transport);
    assert_eq!(said.get_first_attribute_value("group"), Some(Some("BUNDLE 0")));
    assert!(said.has_attribute("ice-lite"));
    assert_eq!((said.medias[0].port, said.medias[0].fmt.as_str()), (40_003, "96 97"));
    let lines = lines(&said, 0);
    for line in [
        "mid:0",
        "sendonly",
        "rtcp-mux",
        "rtcp-rsize",
        "rtcp-xr:rcvr-rtt=all",
        "setup:passive",
        "candidate:1 1 udp 2130706431 192.0.2.1 40003 typ host",
        "end-of-candidates",
        "rtpmap:96 VP8/90000",
        "rtcp-fb:96 transport-cc",
        "rtcp-fb:96 nack",
        "rtcp-fb:96 nack pli",
        "rtcp-fb:96 ccm fir",
        "rtpmap:97 rtx/90000",
        "fmtp:97 apt=96",
        "extmap:2 http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
        "extmap:4 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
        "ssrc-group:FID 11 12",
        "ssrc:11 cname:it",
        "ssrc:12 cname:it",
        "msid:steadycast video",
    ] {
        assert_eq!(lines.iter().filter(|it| *it == line).count(), 1, "{line} in {lines:?}");
    }
    assert_eq!(lines.iter().filter(|it| it.starts_with("extmap") || it.starts_with("rtcp-fb")).count(), 6);
}

#[test]
fn firefox_s_numbers_are_taken_as_it_offers_them() {
    for (format, taken) in
        [(PayloadFormat::Vp8, (120, 124)), (PayloadFormat::Vp9, (121, 125)), (PayloadFormat::Av1, (99, 100))]
    {
        let agreed = agree(FIREFOX.as_bytes(), &stream(format)).unwrap();
        assert_eq!((agreed.payload_type, agreed.repair), (taken.0, Some(taken.1)));
        assert_eq!((agreed.transport, agreed.send_time, agreed.congestion), (Some(7), Some(4), false));
        assert_eq!((agreed.peer.ufrag.len(), agreed.peer.password.len(), agreed.fingerprints.len()), (8, 32, 1));
        assert!(!answer(&agreed, Feedback::Transport).medias[0].has_attribute("rtcp-xr"), "it asks for no round trip");
    }
    assert_eq!(agree(FIREFOX.as_bytes(), &stream(PayloadFormat::H264)).unwrap_err().place, "offer.codec");
}

#[test]
fn an_audio_section_is_refused_in_its_place_and_rfc_8888_is_answered_for_all_types() {
    let agreed = agree(WITH_AUDIO.as_bytes(), &VP8).unwrap();
    assert!(agreed.congestion);
    let said = answer(&agreed, Feedback::Congestion);
    let of: Vec<(&str, u16)> = said.medias.iter().map(|media| (media.media.as_str(), media.port)).collect();
    assert_eq!(of, [("audio", 0), ("video", 40_003)]);
    assert_eq!(said.get_first_attribute_value("group"), Some(Some("BUNDLE 1")));
    assert_eq!(lines(&said, 0), ["mid:0", "inactive"]);
    let lines = lines(&said, 1);
    assert!(lines.contains(&"rtcp-fb:* ack ccfb".to_owned()) && !lines.iter().any(|it| it.contains("transport")));
}

#[test]
fn audio_is_bundled_with_the_video_under_the_numbers_of_the_offer() {
    let agreed = agree(WITH_AUDIO.as_bytes(), &with_audio(PayloadFormat::Vp8)).unwrap();
    let audio = agreed.audio.as_ref().unwrap();
    assert_eq!((audio.payload_type, audio.shares_feedback), (111, true));
    let said = answer(&agreed, Feedback::Transport);
    assert_eq!(said.get_first_attribute_value("group"), Some(Some("BUNDLE 0 1")));
    assert_eq!(said.medias.iter().map(|media| media.port).collect::<Vec<_>>(), [40_003, 40_003]);
    assert_eq!(said.medias[0].fmt, "111");
    let of_audio = lines(&said, 0);
    for line in [
        "mid:0",
        "sendonly",
        "rtcp-mux",
        "setup:passive",
        "rtpmap:111 opus/48000/2",
        "fmtp:111 minptime=10;useinbandfec=1",
        "msid:steadycast audio",
        "ssrc:13 cname:it",
    ] {
        assert_eq!(of_audio.iter().filter(|it| *it == line).count(), 1, "{line} in {of_audio:?}");
    }
    // The packets of audio and video are numbered together, in an extension with the same ID.
    let id = "extmap:3 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    for (section, line) in [(0, "rtcp-fb:111 transport-cc"), (1, "rtcp-fb:96 transport-cc")] {
        let lines = lines(&said, section);
        assert!(lines.contains(&line.to_owned()) && lines.contains(&id.to_owned()), "{lines:?}");
    }
    assert!(lines(&said, 1).contains(&"msid:steadycast video".to_owned()));
    // If the audio section offers the extension under another ID, audio packets carry none, as with Firefox's offers.
    let apart = WITH_AUDIO.replacen("a=extmap:3", "a=extmap:12", 1);
    let agreed = agree(apart.as_bytes(), &with_audio(PayloadFormat::Vp8)).unwrap();
    assert!(!agreed.audio.as_ref().unwrap().shares_feedback);
    let of_audio = lines(&answer(&agreed, Feedback::Transport), 0);
    assert!(!of_audio.iter().any(|it| it.starts_with("extmap") || it.starts_with("rtcp-fb")), "{of_audio:?}");
}

/// Returns an offer of a browser that publishes.
fn publishing(offer: &str) -> String {
    offer.replace("a=recvonly", "a=sendonly")
}

#[test]
fn a_publisher_is_answered_with_the_first_codec_that_can_be_decoded_and_no_ssrc() {
    let offer = publishing(WITH_AUDIO);
    let agreed = agree_to_receive(offer.as_bytes(), true).unwrap();
    assert_eq!((agreed.payload_type, agreed.format), (96, PayloadFormat::Vp8));
    let said = receiver_answer(&agreed, Feedback::Transport);
    assert_eq!(said.get_first_attribute_value("group"), Some(Some("BUNDLE 0 1")));
    for section in [0, 1] {
        let lines = lines(&said, section);
        for line in ["recvonly", "rtcp-mux", "setup:passive"] {
            assert_eq!(lines.iter().filter(|it| *it == line).count(), 1, "{line} in {lines:?}");
        }
        assert!(!lines.iter().any(|it| it.starts_with("ssrc") || it.starts_with("msid") || it == "sendonly"));
        assert!(lines.iter().any(|it| it.ends_with(" transport-cc")), "{lines:?}");
    }
    let video = lines(&said, 1);
    for line in ["rtcp-fb:96 nack", "rtcp-fb:96 nack pli", "rtcp-fb:96 ccm fir", "fmtp:97 apt=96"] {
        assert!(video.contains(&line.to_owned()), "{line} in {video:?}");
    }
    // If audio is not wanted, its section is rejected, and keeps its position.
    let agreed = agree_to_receive(offer.as_bytes(), false).unwrap();
    assert_eq!(receiver_answer(&agreed, Feedback::Transport).medias[0].port, 0);
    // The formats of the offer are taken in its order, as far as they can be decoded.
    let firefox = agree_to_receive(publishing(FIREFOX).as_bytes(), true).unwrap();
    assert_eq!(firefox.payload_type, 120);
    let without_vp8 = publishing(CHROMIUM).replace(" VP8/", " VP7/");
    assert_eq!(agree_to_receive(without_vp8.as_bytes(), true).unwrap().format, PayloadFormat::Vp9);
}

#[test]
fn the_ssrcs_that_a_publisher_announces_are_known() {
    let mid = CHROMIUM.lines().find(|line| line.starts_with("a=mid")).unwrap();
    let with = |line: &str| {
        let offer = publishing(CHROMIUM).replace(mid, &format!("{mid}\r\n{line}"));
        agree_to_receive(offer.as_bytes(), true).unwrap().offered_sources
    };
    assert_eq!(with("a=ssrc-group:FID 77 78"), Some((77, 78)));
    for other in ["a=ssrc-group:SIM 77 78", "a=ssrc-group:FID 77", "a=ssrc-group:FID x y", "a=ssrc:77 cname:a"] {
        assert_eq!(with(other), None, "{other}");
    }
}

#[test]
fn an_offer_that_can_not_be_received_is_refused_with_its_place() {
    let offer = publishing(CHROMIUM);
    let cases = [
        ("offer.direction", CHROMIUM.to_owned()),
        ("offer.direction", CHROMIUM.replace("a=recvonly", "a=inactive")),
        ("offer.video", offer.replace("m=video 9", "m=audio 9")),
        ("offer.codec", ["VP8", "VP9", "H264", "AV1"].into_iter().fold(offer.clone(), |all, it| all.replace(it, "x"))),
        ("offer.setup", offer.replace("actpass", "passive")),
        ("offer.ice", offer.replace("a=ice-pwd", "a=ice-word")),
    ];
    for (place, offer) in cases {
        let Err(NegotiationError { place: told, problem, .. }) = agree_to_receive(offer.as_bytes(), true) else {
            panic!("{place}")
        };
        assert_eq!(told, place, "{problem}");
    }
    // A publisher may offer both directions (RFC 9725, section 4.2).
    let both = CHROMIUM.replace("a=recvonly", "a=sendrecv");
    assert!(agree_to_receive(both.as_bytes(), true).is_ok());
}

#[test]
fn audio_is_refused_where_it_could_not_arrive_with_the_video() {
    for offer in [
        WITH_AUDIO.replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 1"),
        WITH_AUDIO.replace("a=rtpmap:111 opus/48000/2", "a=rtpmap:111 opus/48000"),
        WITH_AUDIO.replacen("a=recvonly", "a=sendonly", 1),
        WITH_AUDIO.replace("m=audio 9 ", "m=audio 0 "),
        WITH_AUDIO.replace(" 111 ", " 96 ").replace("a=rtpmap:111", "a=rtpmap:96"),
    ] {
        let agreed = agree(offer.as_bytes(), &with_audio(PayloadFormat::Vp8)).unwrap();
        assert_eq!(agreed.audio, None, "{offer}");
        assert_eq!(answer(&agreed, Feedback::Congestion).medias[0].port, 0);
    }
}

#[test]
fn a_section_that_shares_the_transport_of_another_finds_it_there() {
    // With `bundlePolicy: "max-bundle"`, only the first section has a transport and a port.
    let mut sections = WITH_AUDIO.split("m=video 9 ");
    let (first, video) = (sections.next().unwrap(), sections.next().unwrap());
    let shared = |line: &&str| !["a=ice-", "a=fingerprint", "a=setup", "a=rtcp-"].iter().any(|it| line.starts_with(it));
    let video: Vec<&str> = video.lines().filter(shared).collect();
    let video = format!("{}\r\na=rtcp-fb:96 nack\r\na=bundle-only\r\n", video.join("\r\n"));
    let offer = format!("{first}m=video 0 {video}");
    let agreed = agree(offer.as_bytes(), &VP8).unwrap();
    assert_eq!(agreed.peer.ufrag.len(), 4);
    assert_eq!((agreed.fingerprints.len(), agreed.payload_type), (1, 96));
}

/// Returns parameter sets with this profile, constraints and level.
fn sets(of: [u8; 3]) -> Vec<u8> {
    [&[0, 0, 0, 1, 0x67][..], &of, &[1, 2, 3, 0, 0, 0, 1, 0x68, 5]].concat()
}

#[test]
fn h264_is_taken_under_the_first_profile_whose_decoder_plays_it() {
    let taken = |of: [u8; 3]| {
        let config = sets(of);
        let stream = Stream { format: Some(PayloadFormat::H264), config: &config, audio: false };
        agree(CHROMIUM.as_bytes(), &stream).map(|agreed| agreed.payload_type)
    };
    // In Chromium's offer 102 is 42001f, 108 is 42e01f, 116 is 4d001f and 41 is f4001f, all in mode 1 and for any
    // level.
    assert_eq!(taken([66, 0xc0, 31]), Ok(102), "constrained baseline");
    assert_eq!(taken([66, 0, 31]), Ok(102), "baseline");
    assert_eq!(taken([77, 0x40, 40]), Ok(116), "main");
    assert_eq!(taken([100, 0, 31]), Ok(41), "high");
    let refusal = taken([110, 0, 31]).unwrap_err();
    assert_eq!(refusal.place, "offer.codec");
    assert!(refusal.problem.starts_with("h264 (6E001F) is sent, and it offers VP8, rtx"), "{refusal}");
    // The error for a browser that supports only constrained baseline names its profiles.
    let baseline =
        ["42001f", "4d001f", "f4001f"].into_iter().fold(CHROMIUM.to_owned(), |offer, id| offer.replace(id, "6e001f"));
    let of = |of: [u8; 3]| {
        let config = sets(of);
        agree(baseline.as_bytes(), &Stream { format: Some(PayloadFormat::H264), config: &config, audio: false })
    };
    assert_eq!(of([66, 0xc0, 31]).unwrap().payload_type, 108);
    let refusal = of([100, 0, 31]).unwrap_err();
    assert!(refusal.problem.starts_with("h264 (64001F) is sent"), "{refusal}");
    assert!(refusal.problem.contains("H264 (42e01f)"), "{refusal}");
    // Without level asymmetry, the level of the stream must not exceed the offered one.
    let strict = CHROMIUM.replace("level-asymmetry-allowed=1", "level-asymmetry-allowed=0");
    let config = sets([66, 0xc0, 32]);
    let stream = Stream { format: Some(PayloadFormat::H264), config: &config, audio: false };
    assert_eq!(agree(strict.as_bytes(), &stream).unwrap_err().place, "offer.codec");
}

#[test]
fn each_codec_that_a_browser_is_sent_is_found_and_no_other() {
    use PayloadFormat::{Av1, H263p, H265, Mpeg2, Mpeg4, Vp8, Vp9};
    for (format, expected) in [(Vp8, Some(96)), (Vp9, Some(98)), (Av1, Some(45)), (Mpeg4, None), (Mpeg2, None)]
        .into_iter()
        .chain([(H263p, None), (H265, None)])
    {
        let agreed = agree(CHROMIUM.as_bytes(), &stream(format));
        assert_eq!(agreed.as_ref().ok().map(|it| it.payload_type), expected, "{format:?}");
        let place = agreed.err().map(|it| it.place);
        assert_eq!(place, expected.is_none().then_some("offer.codec"));
    }
    let nothing = Stream { format: None, config: &[], audio: false };
    assert_eq!(agree(CHROMIUM.as_bytes(), &nothing).unwrap_err().place, "offer.codec");
}

#[test]
fn an_offer_that_can_not_be_answered_is_refused_with_its_place() {
    let without = |start: &str| -> String {
        let kept: Vec<&str> = CHROMIUM.lines().filter(|line| !line.starts_with(start)).collect();
        kept.join("\r\n") + "\r\n"
    };
    let cases = [
        ("offer.text", "no offer".to_owned()),
        ("offer.text", "v=0\r\n".repeat(20_000)),
        ("offer.video", CHROMIUM.replace("m=video 9", "m=audio 9")),
        ("offer.video", CHROMIUM.replace("m=video 9", "m=video 0")),
        ("offer.transport", CHROMIUM.replace("UDP/TLS/RTP/SAVPF", "RTP/AVP")),
        ("offer.direction", CHROMIUM.replace("a=recvonly", "a=sendonly")),
        ("offer.direction", CHROMIUM.replace("a=recvonly", "a=inactive")),
        ("offer.rtcp-mux", without("a=rtcp-mux")),
        ("offer.ice", CHROMIUM.replace("a=extmap-allow-mixed", "a=ice-lite")),
        ("offer.ice", without("a=ice-pwd")),
        ("offer.ice", CHROMIUM.replace("a=ice-ufrag:", "a=ice-ufrag:\u{e9}")),
        ("offer.setup", CHROMIUM.replace("actpass", "passive")),
        ("offer.setup", without("a=setup")),
        ("offer.fingerprint", CHROMIUM.replace("sha-256", "sha-1")),
        ("offer.fingerprint", without("a=fingerprint")),
    ];
    for (place, offer) in cases {
        let Err(NegotiationError { place: told, problem, .. }) = agree(offer.as_bytes(), &VP8) else {
            panic!("{place}")
        };
        assert_eq!(told, place, "{problem}");
    }
}

#[test]
fn an_answer_omits_what_it_cannot_carry() {
    let agreed = agree(CHROMIUM.as_bytes(), &VP8).unwrap();
    let own: Credentials = credentials(1);
    let own = LocalParameters {
        session: 1,
        address: address("[2001:db8::1]:40000"),
        others: &[address("192.0.2.1:40000")],
        credentials: &own,
        fingerprint: [0; 32],
        feedback: Feedback::Standard,
        send_time: false,
        key_frames: false,
        sources: Some(LocalSources { media: 1, repair: None, audio: None, cname: "it" }),
    };
    let said = Session::parse(agreed.describe(&own).as_bytes()).unwrap();
    let lines = lines(&said, 0);
    assert!(!lines.iter().any(|it| it.starts_with("rtcp-fb") || it.starts_with("extmap") || it.contains("rtx")));
    assert_eq!(said.medias[0].fmt, "96");
    let candidates: Vec<&String> = lines.iter().filter(|it| it.starts_with("candidate")).collect();
    let in_order = [
        "candidate:1 1 udp 2130706431 2001:db8::1 40000 typ host",
        "candidate:2 1 udp 2130706175 192.0.2.1 40000 typ host",
    ];
    assert_eq!(candidates, in_order);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_offer_whose_lines_are_lost_doubled_or_mixed_is_answered_or_refused(
        picks in prop::collection::vec((0usize..400, 0usize..400), 0..6),
        cut in 0usize..4_000,
    ) {
        let mut mixed: Vec<&str> = WITH_AUDIO.lines().collect();
        for (from, to) in picks {
            let line = mixed[from % mixed.len()];
            let place = to % mixed.len();
            if from % 3 == 0 { mixed.remove(place); } else { mixed.insert(place, line); }
        }
        let text = mixed.join("\r\n") + "\r\n";
        let text = if cut < text.len() && cut % 4 == 0 { &text[..cut] } else { &text };
        if let Ok(agreed) = agree(text.as_bytes(), &VP8) {
            let said = answer(&agreed, Feedback::Standard);
            prop_assert_eq!(said.medias.len(), text.matches("\nm=").count());
            prop_assert_eq!(said.medias.iter().filter(|media| media.port > 0).count(), 1);
        }
    }
}
