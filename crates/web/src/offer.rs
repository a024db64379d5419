//! Makes the offer of an end that publishes to a server, and reads the server's answer (RFC 9725, section 4.2;
//! RFC 9429).
//!
//! The offer has a video section. If audio is sent, it also has a bundled audio section (RFC 9725, section 4.4.1). As
//! in browsers' offers, both sections have the same port, and neither is `bundle-only`. The offer contains all
//! candidates, so trickle ICE is not used. [`NegotiatedParameters::describe`] writes the text of the offer.

use crate::Credentials;
use crate::answer::{
    Direction, Feedback, LONGEST, MAX_CANDIDATES, NegotiatedAudio, NegotiatedParameters, NegotiationError, Role,
    SEND_TIME, Stream, asks, first_playing, no_report, opus, refuse, value,
};
use crate::lines::{Lines, TRANSPORT_WIDE, add_attribute, hex, profile_level, retransmissions};
use crate::transport::Transport;
use sdp_types::{Media, MediaType, Session, TransportProto};
use std::net::{IpAddr, SocketAddr};
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::plain_text;

/// Dynamic payload types (RFC 3551, section 6) of the video, its retransmissions and the audio.
const PAYLOAD_TYPES: (u8, u8, u8) = (96, 97, 111);
/// IDs of two header extensions: the send time and the transport-wide sequence number.
const EXTENSIONS: (u8, u8) = (2, 3);
/// The profile and level that are offered if the stream has no parameter sets: Constrained Baseline at level 3.1. All
/// WebRTC ends support this profile, but RFC 7742 (section 6.2) requires only level 1.2.
const H264_LEVEL: [u8; 3] = [0x42, 0xe0, 0x1f];

const FORMATS: &str = "send vp8, h264, vp9 or av1";
const OTHER_CODEC: &str = "send another --codec: vp8, h264, vp9 or av1";
const SERVER: &str = "the server has to answer as RFC 9725 says: ask its operator";

/// Makes an offer to send `stream`. `feedback` is the format of per-packet feedback.
///
/// # Errors
/// Returns an error if the stream has no pictures, or if WebRTC does not have their format.
pub fn propose(stream: &Stream<'_>, feedback: Feedback) -> Result<NegotiatedParameters, NegotiationError> {
    use PayloadFormat::{Av1, H264, Vp8, Vp9};
    let Some(format) = stream.format else {
        return refuse("offer.codec", "nothing is sent that could be seen", FORMATS);
    };
    let fmtp = match format {
        H264 => {
            let level = hex(&profile_level(stream.config).unwrap_or(H264_LEVEL)).to_lowercase();
            format!("level-asymmetry-allowed=1;packetization-mode=1;profile-level-id={level}")
        }
        Vp9 => "profile-id=0".to_owned(),
        Vp8 | Av1 => String::new(),
        _ => return refuse("offer.codec", format!("WebRTC has no {}", format.codec()), FORMATS),
    };
    let (payload_type, repair, audio) = PAYLOAD_TYPES;
    let section = |kind: MediaType, mid: &str| {
        let mut media = Media::new(kind, 0, TransportProto::UdpTlsRtpSavpf, "");
        add_attribute(&mut media, "mid", mid);
        media
    };
    let mut sections = vec![section(MediaType::Video, "0")];
    if stream.audio {
        let mut media = section(MediaType::Audio, "1");
        media.fmt = audio.to_string();
        sections.push(media);
    }
    let audio = stream.audio.then(|| NegotiatedAudio {
        payload_type: audio,
        shares_feedback: true,
        fmtp: "minptime=10;useinbandfec=1".to_owned(),
        small_reports: true,
        round_trip: false,
        section: 1,
    });
    Ok(NegotiatedParameters {
        payload_type,
        repair: Some(repair),
        congestion: feedback == Feedback::Congestion,
        transport: (feedback == Feedback::Transport).then_some(EXTENSIONS.1),
        send_time: Some(EXTENSIONS.0),
        peer: Credentials { ufrag: String::new(), password: String::new() },
        fingerprints: Vec::new(),
        group: Some(sections.iter().filter_map(|media| value(media, "mid")).map(str::to_owned).collect()),
        audio,
        format,
        offered_sources: None,
        role: Role::Offerer { candidates: Vec::new(), is_dtls_client: true },
        direction: Direction::Send,
        fmtp,
        requests: vec!["nack pli", "ccm fir"],
        small_reports: true,
        round_trip: false,
        sections,
        taken: 0,
    })
}

impl NegotiatedParameters {
    /// Returns what a server has accepted. `self` is the offer, and `stream` is the stream to send.
    ///
    /// If the server rejects the audio, only the video is sent. According to the RFC, a WHIP server should not reject
    /// individual media (RFC 9725, section 4.4.3).
    ///
    /// # Errors
    /// Returns an error if the answer can't be used, or if it lacks something that the session needs.
    pub fn accept(&self, answer: &[u8], stream: &Stream<'_>) -> Result<Self, NegotiationError> {
        if answer.len() > LONGEST {
            return refuse("answer.text", format!("it has {} bytes, and at most 65536 are read", answer.len()), SERVER);
        }
        let session = match Session::parse(plain_text(answer).as_bytes()) {
            Ok(session) => session,
            Err(error) => return refuse("answer.text", format!("not a session description ({error})"), SERVER),
        };
        // Sections are matched by position (RFC 3264, section 6), so their kinds must be the same.
        let kinds = |medias: &[Media]| medias.iter().map(|media| media.media.clone()).collect::<Vec<_>>();
        if kinds(&session.medias) != kinds(&self.sections) {
            let (had, offered) = (kinds(&session.medias).join(", "), kinds(&self.sections).join(", "));
            return refuse("answer.sections", format!("it has [{had}], and the offer [{offered}]"), SERVER);
        }
        let Some(media) = session.medias.get(self.taken) else {
            return refuse("answer.video", "it has no video", SERVER);
        };
        let lines = Lines { session: &session, media };
        let transport = Transport::of(&session, media);
        let (role, peer, fingerprints) = connection_of(media, &transport)?;
        let found = match first_playing(media, self.format, stream.config) {
            Ok(found) => found,
            Err((sent, others)) => {
                return refuse("answer.codec", format!("{sent} is sent, and it takes [{others}]"), OTHER_CODEC);
            }
        };
        let payload_type = found.payload_type;
        let asks = |words: &[&str]| asks(media, payload_type, words);
        // An extension counts as accepted only if it keeps its ID from the offer (RFC 8285, section 6).
        let kept = |offered: Option<u8>, uri: &str| offered.filter(|id| lines.extension(uri) == Some(*id));
        let mut negotiated = Self {
            payload_type,
            repair: retransmissions(media, payload_type)
                .map(|(again, _)| again)
                .filter(|again| self.repair.is_some() && no_report(*again)),
            congestion: self.congestion && asks(&["ack", "ccfb"]),
            transport: kept(self.transport, TRANSPORT_WIDE).filter(|_| asks(&["transport-cc"])),
            send_time: kept(self.send_time, SEND_TIME),
            peer,
            fingerprints,
            role,
            fmtp: found.fmtp,
            audio: None,
            ..self.clone()
        };
        // Reject the answer if it has no per-packet feedback, because the sender's controller needs it.
        if !negotiated.congestion && negotiated.transport.is_none() {
            let missing = if self.congestion { "RFC 8888 feedback" } else { "transport-wide feedback" };
            let problem = format!("it has no {missing}, from which the rate is found");
            return refuse("answer.feedback", problem, "turn it on at the server (transport-cc), or take another one");
        }
        negotiated.audio = self.audio.as_ref().and_then(|audio| negotiated.accepted_audio(&session, &transport, audio));
        Ok(negotiated)
    }

    /// Returns the audio that the answer accepts. Returns `None` if the answer rejects the audio, or if the audio does
    /// not use the video's transport.
    fn accepted_audio(
        &self,
        session: &Session,
        transport: &Transport<'_>,
        offered: &NegotiatedAudio,
    ) -> Option<NegotiatedAudio> {
        let media = session.medias.get(offered.section)?;
        let group = transport.group.as_ref()?;
        let is_bundled = value(media, "mid").is_some_and(|mid| group.contains(&mid));
        let fits = media.port > 0 && is_bundled && !Direction::Send.excluded().iter().any(|it| media.has_attribute(it));
        let (payload_type, _) = opus(media).filter(|_| fits)?;
        // Require different payload types. In a bundle, the payload type determines to which section a packet belongs
        // (RFC 9143, section 9.2).
        if payload_type == self.payload_type || Some(payload_type) == self.repair {
            return None;
        }
        let shares_feedback = self.shares_feedback(Lines { session, media }, payload_type);
        Some(NegotiatedAudio { payload_type, shares_feedback, ..offered.clone() })
    }
}

/// Reads the video section of an answer. Returns the role of this end, the server's credentials and its fingerprints.
fn connection_of(
    media: &Media,
    transport: &Transport<'_>,
) -> Result<(Role, Credentials, Vec<crate::Fingerprint>), NegotiationError> {
    if media.port == 0 {
        return refuse("answer.video", "it rejects the video", OTHER_CODEC);
    }
    if !media.proto.ends_with("RTP/SAVPF") {
        return refuse("answer.transport", format!("its video travels by {}", media.proto), SERVER);
    }
    if let Some(wrong) = Direction::Send.excluded().into_iter().find(|d| media.has_attribute(d)) {
        return refuse("answer.direction", format!("its video is {wrong}, and nothing is received here"), SERVER);
    }
    // Require RTP and RTCP on one port, because the tunnel has a single socket.
    if !transport.has("rtcp-mux") {
        return refuse("answer.rtcp-mux", "it wants a port for reports alone", SERVER);
    }
    let is_dtls_client = match transport.values("setup").first() {
        Some(&"passive") => true,
        Some(&"active") => false,
        // An answer must choose one of the two roles (RFC 8842, section 5.3). Reject it otherwise.
        _ => return refuse("answer.setup", "it is neither active nor passive", SERVER),
    };
    let (peer, fingerprints) = transport.peer("answer.ice", "answer.fingerprint", SERVER)?;
    let candidates = candidates(&transport.values("candidate"));
    if candidates.is_empty() {
        let problem = "it names no address for media (a=candidate by UDP), and later ones are not awaited";
        return refuse("answer.candidates", problem, "let the server put its candidates into the answer");
    }
    Ok((Role::Offerer { candidates, is_dtls_client }, peer, fingerprints))
}

/// Returns the UDP addresses of the candidates (RFC 8839, section 5.1). The address with the highest priority comes
/// first.
///
/// Skips candidates that have a host name or another transport than UDP.
fn candidates(lines: &[&str]) -> Vec<SocketAddr> {
    let one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "1", protocol, priority, ip, port, "typ", _, ..] = words[..] else { return None };
        let (ip, port) = (ip.parse::<IpAddr>().ok()?, port.parse::<u16>().ok().filter(|port| *port > 0)?);
        let fits = protocol.eq_ignore_ascii_case("udp") && !ip.is_unspecified() && !ip.is_multicast();
        fits.then_some((priority.parse::<u32>().ok()?, SocketAddr::new(ip, port)))
    };
    let mut all: Vec<(u32, SocketAddr)> = lines.iter().filter_map(one).collect();
    all.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    all.dedup_by_key(|(_, address)| *address);
    all.into_iter().map(|(_, address)| address).take(MAX_CANDIDATES).collect()
}
