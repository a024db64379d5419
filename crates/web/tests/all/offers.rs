//! Offers to servers, generated answers to them, and the connections that follow in virtual time.

use crate::answers::{with_audio, written};
use crate::client::{Client, EPOCH, Version, address, certificate, credentials};
use crate::world::{self, CLIENT, World, rough};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sdp_types::Session;
use std::net::SocketAddr;
use steadycast_link::{Config as LinkConfig, Ecn, Fate, Link};
use steadycast_units::{Bytes, Seed, Span, Time};
use steadycast_web::{
    CONNECT_TIMEOUT, CONSENT_TIMEOUT, Credentials, EndCause, Feedback, Keys, LocalParameters, NegotiatedParameters,
    Output, Role, State, Stream, Tunnel, TunnelParameters, agree_to_receive, propose,
};
use steadycast_wire::payload::PayloadFormat;

const FORMATS: [PayloadFormat; 4] = [PayloadFormat::Vp8, PayloadFormat::Vp9, PayloadFormat::H264, PayloadFormat::Av1];
const OWN: &str = "198.51.100.7:50000";
const SERVER: &str = "192.0.2.1:40000";

fn proposed(format: PayloadFormat, feedback: Feedback) -> NegotiatedParameters {
    propose(&with_audio(format), feedback).unwrap()
}

/// Returns the answer of our own WHIP endpoint to an offer.
fn answered(offer: &str, audio: bool, feedback: Feedback) -> String {
    let agreed = agree_to_receive(offer.as_bytes(), audio).unwrap();
    agreed.describe(&LocalParameters {
        session: 7,
        address: address(SERVER),
        others: &[],
        credentials: &credentials(1),
        fingerprint: certificate(1).fingerprint,
        feedback,
        send_time: true,
        key_frames: true,
        sources: None,
    })
}

#[test]
fn an_offer_has_both_tracks_in_one_bundle_with_all_candidates() {
    let text = written(&proposed(PayloadFormat::Vp8, Feedback::Transport), Feedback::Transport);
    let offer = Session::parse(text.as_bytes()).unwrap();
    assert_eq!(offer.get_first_attribute_value("group"), Some(Some("BUNDLE 0 1")));
    assert!(!offer.has_attribute("ice-lite"));
    let kinds: Vec<&str> = offer.medias.iter().map(|media| media.media.as_str()).collect();
    assert_eq!(kinds, ["video", "audio"]);
    for media in &offer.medias {
        assert!(media.port > 0 && media.proto == "UDP/TLS/RTP/SAVPF");
        for name in ["sendonly", "rtcp-mux", "rtcp-mux-only", "rtcp-rsize", "end-of-candidates"] {
            assert!(media.has_attribute(name), "{name}");
        }
        let value = |name| media.get_first_attribute_value(name).flatten();
        assert_eq!(value("setup"), Some("actpass"));
        assert!(value("candidate").is_some_and(|it| it.ends_with("typ host")));
    }
    for line in [
        "m=video 40003 UDP/TLS/RTP/SAVPF 96 97",
        "a=rtpmap:96 VP8/90000",
        "a=rtcp-fb:96 transport-cc",
        "a=rtcp-fb:96 nack",
        "a=rtcp-fb:96 nack pli",
        "a=rtpmap:97 rtx/90000",
        "a=fmtp:97 apt=96",
        "a=ssrc-group:FID 11 12",
        "m=audio 40003 UDP/TLS/RTP/SAVPF 111",
        "a=rtpmap:111 opus/48000/2",
        "a=rtcp-fb:111 transport-cc",
        "a=ssrc:13 cname:it",
    ] {
        assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{line} in {text}");
    }
    assert!(!text.contains("ccfb"));
    let text = written(&proposed(PayloadFormat::Vp8, Feedback::Congestion), Feedback::Congestion);
    assert!(text.contains("a=rtcp-fb:* ack ccfb") && !text.contains("transport-cc"));
}

#[test]
fn what_webrtc_can_not_show_is_not_offered() {
    for format in [None, Some(PayloadFormat::Mpeg4)] {
        let refused = propose(&Stream { format, config: &[], audio: false }, Feedback::Transport).unwrap_err();
        assert_eq!(refused.place, "offer.codec");
    }
}

#[test]
fn our_endpoint_s_answer_is_accepted_for_each_codec_with_and_without_audio() {
    for format in FORMATS {
        for (feedback, audio) in [(Feedback::Transport, true), (Feedback::Congestion, false)] {
            let offer = proposed(format, feedback);
            let answer = answered(&written(&offer, feedback), audio, feedback);
            let accepted = offer.accept(answer.as_bytes(), &with_audio(format)).unwrap();
            assert_eq!((accepted.payload_type, accepted.repair), (96, Some(97)), "{format:?}");
            assert_eq!((accepted.peer.clone(), accepted.fingerprints.len()), (credentials(1), 1));
            assert_eq!(accepted.transport.is_some(), feedback == Feedback::Transport);
            assert_eq!(accepted.congestion, feedback == Feedback::Congestion);
            assert_eq!(
                accepted.audio.as_ref().map(|it| (it.payload_type, it.shares_feedback)),
                audio.then_some((111, true))
            );
            let candidates = vec![address(SERVER)];
            assert_eq!(accepted.role, Role::Offerer { candidates, is_dtls_client: true });
        }
    }
}

#[test]
fn an_answer_that_can_not_be_used_is_refused_at_its_place() {
    let offer = proposed(PayloadFormat::Vp8, Feedback::Transport);
    let whole = answered(&written(&offer, Feedback::Transport), true, Feedback::Transport);
    let transport = "a=rtcp-fb:96 transport-cc\r\n";
    let wrong = [
        ("hello".to_owned(), "answer.text"),
        ("a".repeat(65_537), "answer.text"),
        (whole.split("m=audio").next().unwrap().to_owned(), "answer.sections"),
        (whole.replace("m=video 40000", "m=video 0"), "answer.video"),
        (whole.replace("UDP/TLS/RTP/SAVPF", "RTP/AVP"), "answer.transport"),
        (whole.replace("a=recvonly", "a=inactive"), "answer.direction"),
        (whole.replace("a=rtcp-mux\r\n", ""), "answer.rtcp-mux"),
        (whole.replace("a=setup:passive", "a=setup:actpass"), "answer.setup"),
        (whole.replace("a=ice-pwd", "a=ice-x"), "answer.ice"),
        (whole.replace("sha-256", "sha-1"), "answer.fingerprint"),
        (whole.replace("a=candidate", "a=x"), "answer.candidates"),
        (whole.replace(" udp ", " tcp "), "answer.candidates"),
        (whole.replace("192.0.2.1 40000 typ", "a.local 40000 typ"), "answer.candidates"),
        (whole.replace("VP8", "VP9"), "answer.codec"),
        (whole.replace(transport, ""), "answer.feedback"),
        (whole.replace("a=extmap:3", "a=extmap:5"), "answer.feedback"),
    ];
    for (answer, place) in wrong {
        assert_ne!(answer, whole, "{place}");
        let refused = offer.accept(answer.as_bytes(), &with_audio(PayloadFormat::Vp8)).unwrap_err();
        assert_eq!(refused.place, place, "{refused}");
    }
    let active = whole.replace("a=setup:passive", "a=setup:active");
    let accepted = offer.accept(active.as_bytes(), &with_audio(PayloadFormat::Vp8)).unwrap();
    assert!(matches!(accepted.role, Role::Offerer { is_dtls_client: false, .. }));
}

/// A change of a line: its position, its kind, and a number.
type Change = (prop::sample::Index, u8, u32);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_answers_are_accepted_with_all_that_a_session_needs_or_refused(
        format in select(FORMATS.to_vec()),
        is_congestion in any::<bool>(),
        audio in any::<bool>(),
        changes in prop::collection::vec(any::<Change>(), 0..6),
        cut in option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let feedback = if is_congestion { Feedback::Congestion } else { Feedback::Transport };
        let offer = proposed(format, feedback);
        let answer = answered(&written(&offer, feedback), audio, feedback);
        let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
        for (place, kind, number) in changes {
            let place = place.index(lines.len());
            let line = lines[place].clone();
            match kind % 4 {
                0 => drop(lines.remove(place)),
                1 => lines.insert(place, line),
                2 => lines[place] = line.chars().take(number as usize % (line.len() + 1)).collect(),
                _ => {
                    let changed = |c: char| if c.is_ascii_digit() { number.to_string() } else { c.into() };
                    lines[place] = line.chars().map(changed).collect();
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        let mut answer = (lines.join("\r\n") + "\r\n").into_bytes();
        if let Some(cut) = cut {
            answer.truncate(cut.index(answer.len()));
        }
        match offer.accept(&answer, &with_audio(format)) {
            Ok(accepted) => {
                let Role::Offerer { candidates, .. } = &accepted.role else { panic!("{:?}", accepted.role) };
                prop_assert!((1..=8).contains(&candidates.len()) && !accepted.fingerprints.is_empty());
                prop_assert!(accepted.congestion || accepted.transport.is_some());
                prop_assert!(accepted.peer.ufrag.len() >= 4 && accepted.peer.password.len() >= 22);
                let mut types: Vec<u8> = [Some(accepted.payload_type), accepted.repair].into_iter().flatten().collect();
                types.extend(accepted.audio.iter().map(|audio| audio.payload_type));
                types.sort_unstable();
                let count = types.len();
                types.dedup();
                prop_assert_eq!(types.len(), count);
            }
            Err(refused) => prop_assert!(refused.place.starts_with("answer."), "{}", refused),
        }
    }
}

/// Two tunnels on a link: that of the offerer, and that of the server.
struct Ends {
    now: Time,
    tunnels: [Tunnel; 2],
    links: [Link; 2],
    flying: Vec<(Time, usize, Vec<u8>)>,
    said: [Vec<Output>; 2],
    /// Whether datagrams arrive.
    is_up: bool,
}

const ADDRESSES: [&str; 2] = [OWN, SERVER];

impl Ends {
    /// Creates both ends. `theirs` are the server's credentials as the offerer knows them.
    fn new(theirs: Credentials, fingerprint: u8, loss: f64, seed: Seed) -> Self {
        let tunnel = |own: u8, local: &str, peer: Credentials, fingerprint: u8, role: Role| {
            let fingerprints = vec![certificate(fingerprint).fingerprint];
            let ends = TunnelParameters { local: address(local), own: credentials(own), peer, fingerprints, role };
            Tunnel::new(*EPOCH, Time::ZERO, ends, &certificate(own)).unwrap()
        };
        // The first candidate is an address at which nothing listens.
        let candidates = vec![address("203.0.113.1:1"), address(SERVER)];
        let role = Role::Offerer { candidates, is_dtls_client: true };
        let tunnels = [tunnel(2, OWN, theirs, fingerprint, role), tunnel(1, SERVER, credentials(2), 2, Role::Answerer)];
        let links = ["forth", "back"].map(|name| Link::new(&rough(loss), name, seed));
        Self { now: Time::ZERO, tunnels, links, flying: Vec::new(), said: [Vec::new(), Vec::new()], is_up: true }
    }

    fn settle(&mut self) {
        for from in [0, 1] {
            while let Some(output) = self.tunnels[from].poll() {
                let Output::Send(to, bytes) = output else {
                    self.said[from].push(output);
                    continue;
                };
                let len = Bytes::new(bytes.len() as u64 + 28);
                if let Fate::Arrives { at, .. } = self.links[from].offer(self.now, len, Ecn::NotEct)
                    && to == address(ADDRESSES[1 - from])
                    && self.is_up
                {
                    self.flying.push((at, 1 - from, bytes));
                }
            }
        }
    }

    fn run(&mut self, until: Time, done: impl Fn(&Self) -> bool) {
        while self.now < until && !done(self) {
            let next = self.flying.iter().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER);
            let wake = self.tunnels.iter().map(Tunnel::wake).min().unwrap_or(Time::NEVER);
            self.now = next.min(wake).min(until).max(self.now);
            while let Some(n) = self.flying.iter().position(|(at, ..)| *at <= self.now) {
                let (_, to, bytes) = self.flying.remove(n);
                self.tunnels[to].on_datagram(self.now, address(ADDRESSES[1 - to]), &bytes);
            }
            for tunnel in &mut self.tunnels {
                if tunnel.wake() <= self.now {
                    tunnel.on_wake(self.now);
                }
            }
            self.settle();
        }
    }

    fn keys(&self, end: usize) -> Option<&Keys> {
        self.said[end].iter().find_map(|output| if let Output::Keys(keys) = output { Some(keys) } else { None })
    }

    fn connected(&self) -> bool {
        self.tunnels.iter().all(|tunnel| tunnel.state() == State::Connected)
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

#[test]
fn an_offerer_connects_to_our_endpoint_and_both_have_the_same_keys() {
    let mut ends = Ends::new(credentials(1), 1, 0.0, Seed(1));
    ends.run(at(3_000), Ends::connected);
    assert!(ends.connected(), "{:?} {:?}", ends.tunnels[0].state(), ends.tunnels[0].why());
    assert!(ends.keys(0).is_some());
    assert_eq!(ends.keys(0), ends.keys(1));
    assert_eq!(ends.tunnels[0].peer(), Some(address(SERVER)));
    // Consent is renewed: the connection outlives its time.
    ends.run(ends.now + CONSENT_TIMEOUT + CONSENT_TIMEOUT, |ends| !ends.connected());
    assert!(ends.connected());
    // The server ends the session.
    let now = ends.now;
    ends.tunnels[1].close(now);
    ends.settle();
    ends.run(now + Span::secs(2), |ends| ends.tunnels[0].state() == State::Ended);
    assert_eq!(ends.tunnels[0].why(), Some("it has ended the session"));
    assert_eq!([0, 1].map(|n| ends.tunnels[n].end_cause()), [EndCause::ClosedByPeer, EndCause::Closed].map(Some));
}

/// A server may answer `a=setup:active` (RFC 8842, section 5.3). It then begins the DTLS handshake.
#[test]
fn an_offerer_is_the_dtls_server_of_an_active_server() {
    for (version, is_rough) in [Version::V12, Version::V13, Version::Either].into_iter().zip([false, false, true]) {
        let active = Client::new(address(CLIENT), address(world::SERVER), 2, &credentials(1), version).controlled();
        let role = Role::Offerer { candidates: vec![address(CLIENT)], is_dtls_client: false };
        let link = if is_rough { rough(0.0) } else { LinkConfig::default() };
        let mut world = World::new(TunnelParameters { role, ..world::ends(2) }, active, &link, Seed(1));
        world.run(at(5_000), World::connected);
        assert!(world.connected(), "{version:?}: {:?} {:?}", world.tunnel.state(), world.client.failed);
        assert!(world.keys().is_some());
        assert_eq!(world.keys(), world.client.keys.as_ref(), "{version:?}");
        assert_eq!(world.tunnel.peer(), Some(address(CLIENT)));
        // The server ends the session.
        world.client.dtls.close().unwrap();
        world.run(world.now + Span::secs(2), |world| world.tunnel.state() == State::Ended);
        assert_eq!(world.tunnel.state(), State::Ended, "{version:?}");
    }
}

/// The bound is that of the connections with browsers: 57 of 60 connected within 5 s.
#[test]
fn an_offerer_connects_at_a_loss_of_a_fifth() {
    let mut soon = 0;
    for seed in 0..12 {
        let mut ends = Ends::new(credentials(1), 1, 0.2, Seed(seed));
        ends.run(at(5_000), Ends::connected);
        soon += usize::from(ends.connected() && ends.keys(0) == ends.keys(1));
    }
    assert!(soon >= 8, "{soon}");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_after_its_time_and_named() {
    let mut ends = Ends::new(credentials(9), 1, 0.0, Seed(1));
    ends.run(at(20_000), |ends| ends.tunnels[0].state() == State::Ended);
    assert_eq!(ends.now, Time::ZERO + CONNECT_TIMEOUT);
    let why = ends.tunnels[0].why().unwrap();
    assert!(why.starts_with("no answer to ICE checks in 15 s from 203.0.113.1:1, 192.0.2.1:40000"), "{why}");
    assert_eq!(ends.keys(0), None);
}

#[test]
fn a_certificate_that_the_answer_does_not_name_gets_no_keys() {
    let mut ends = Ends::new(credentials(1), 3, 0.0, Seed(1));
    ends.run(at(20_000), |ends| ends.tunnels[0].state() == State::Ended);
    assert_eq!(ends.tunnels[0].why(), Some("the server's certificate is not the one of its answer"));
    assert_eq!(ends.keys(0), None);
}

#[test]
fn without_answers_to_checks_consent_expires() {
    let mut ends = Ends::new(credentials(1), 1, 0.0, Seed(1));
    ends.run(at(3_000), Ends::connected);
    ends.is_up = false;
    let last = ends.now;
    ends.run(last + CONSENT_TIMEOUT * 2, |ends| ends.tunnels[0].state() == State::Ended);
    assert_eq!(ends.tunnels[0].why(), Some("the server has been silent for 30 s"));
    assert!(ends.now.since(last) <= CONSENT_TIMEOUT + Span::secs(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn datagrams_of_strangers_do_not_connect(
        datagrams in prop::collection::vec(any::<(u16, Vec<u8>, bool)>(), 1..40)
    ) {
        let mut ends = Ends::new(credentials(1), 1, 0.0, Seed(1));
        ends.tunnels[0].on_wake(Time::ZERO);
        ends.settle();
        for (n, (port, bytes, is_stun)) in datagrams.iter().enumerate() {
            let mut bytes = bytes.clone();
            if *is_stun {
                let head = [1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
                bytes.splice(0..0, head);
            }
            let from = SocketAddr::new(address(SERVER).ip(), *port);
            ends.tunnels[0].on_datagram(at(n as u64), from, &bytes);
        }
        prop_assert_eq!(ends.tunnels[0].state(), State::Checking);
        prop_assert_eq!(ends.tunnels[0].peer(), None);
    }
}
