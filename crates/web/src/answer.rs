//! Negotiates a browser's offer and writes the answer (RFC 9429). WHEP is draft-ietf-wish-whep-04, and WHIP is
//! RFC 9725.
//!
//! The answer accepts one video section and an audio section that is bundled with it. All other sections are rejected
//! but keep their positions. The answer uses the payload types and extension IDs of the offer.

use crate::Credentials;
use crate::certificate::Fingerprint;
use crate::lines::{
    Format, Lines, TRANSPORT_WIDE, add_attribute, formats, hex, parameter, profile_level, retransmissions,
    rtcp_feedback, ssrc_group, unhex,
};
use crate::transport::Transport;
use sdp_types::{Attribute, Connection, Media, Origin, Session};
use std::net::SocketAddr;
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::plain_text;

/// URI of the header extension that contains the send time. The send time has 24 bits in units of 2⁻¹⁸ s.
pub(crate) const SEND_TIME: &str = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time";

/// Maximum length of a session description in bytes. A browser's offer with all its codecs has a tenth of this length.
pub(crate) const LONGEST: usize = 1 << 16;

/// Maximum number of ICE candidates in a session description. The limit is needed because each candidate is checked for
/// several seconds.
pub(crate) const MAX_CANDIDATES: usize = 8;

/// The error if an offer can't be answered or an answer can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct NegotiationError {
    /// The part of the description with the error, for example `offer.codec` or `answer.setup`.
    pub place: &'static str,
    /// The problem in words.
    pub problem: String,
    /// The remedy in words.
    pub remedy: &'static str,
}

pub(crate) fn refuse<T>(
    place: &'static str,
    problem: impl Into<String>,
    remedy: &'static str,
) -> Result<T, NegotiationError> {
    Err(NegotiationError { place, problem: problem.into(), remedy })
}

/// The format in which a receiver reports on individual packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// RFC 8888 feedback (`ack ccfb`).
    Congestion,
    /// `transport-cc` feedback. Packets have transport-wide sequence numbers in a header extension.
    Transport,
    /// No per-packet feedback. Receivers send only standard report blocks.
    Standard,
}

/// The stream that this end sends.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// The payload format of the video. It is `None` if the stream has no pictures.
    pub format: Option<PayloadFormat>,
    /// H.264 parameter sets. Each follows a start code.
    pub config: &'a [u8],
    /// Whether Opus audio is also sent, if the offer has it.
    pub audio: bool,
}

/// The parameters of this end. They also determine which parts of the offer this end uses.
#[derive(Clone, Debug)]
pub struct LocalParameters<'a> {
    /// A unique number of this session.
    pub session: u64,
    /// The address at which the browser reaches this end.
    pub address: SocketAddr,
    /// Further addresses of this end, in order of preference.
    pub others: &'a [SocketAddr],
    /// ICE credentials.
    pub credentials: &'a Credentials,
    /// The fingerprint of this end's certificate.
    pub fingerprint: Fingerprint,
    /// The format of per-packet feedback. It is used only if it was offered.
    pub feedback: Feedback,
    /// Whether packets contain their send time. This applies only if it was offered.
    pub send_time: bool,
    /// Whether key-frame requests are used. A sender answers them with key frames, and a receiver sends them.
    pub key_frames: bool,
    /// The SSRCs of this end's streams. It is `None` if this end receives.
    pub sources: Option<LocalSources<'a>>,
}

/// SSRCs of the streams that this end sends.
#[derive(Clone, Copy, Debug)]
pub struct LocalSources<'a> {
    /// SSRC of the media.
    pub media: u32,
    /// SSRC of the retransmissions.
    pub repair: Option<u32>,
    /// SSRC of the audio, if audio was negotiated.
    pub audio: Option<u32>,
    /// The canonical name (CNAME) of all these streams.
    pub cname: &'a str,
}

/// The negotiated Opus audio (RFC 7587). It is bundled with the video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedAudio {
    /// The payload type of the audio.
    pub payload_type: u8,
    /// Whether the audio section has the same per-packet feedback as the video, and the same header extensions with the
    /// same IDs. If not, audio packets use neither.
    pub shares_feedback: bool,
    pub(crate) fmtp: String,
    pub(crate) small_reports: bool,
    pub(crate) round_trip: bool,
    pub(crate) section: usize,
}

/// The role of this end in the negotiation, in ICE and in DTLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end answers an offer. It uses ICE-lite and is the DTLS server.
    Answerer,
    /// This end made the offer. It is the controlling ICE agent (RFC 8445, section 6.1.1).
    Offerer {
        /// The addresses of the other end, in order of preference. The list is empty before the answer arrives.
        candidates: Vec<SocketAddr>,
        /// Whether this end is the DTLS client (RFC 9725, section 4.4.4).
        is_dtls_client: bool,
    },
}

/// Parameters that were negotiated from an offer, or that this end offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedParameters {
    /// Payload type of the video.
    pub payload_type: u8,
    /// Payload type of retransmissions.
    pub repair: Option<u8>,
    /// Whether RFC 8888 feedback is offered.
    pub congestion: bool,
    /// ID of the header extension for transport-wide feedback.
    pub transport: Option<u8>,
    /// ID of the header extension for send times.
    pub send_time: Option<u8>,
    /// The peer's ICE credentials.
    pub peer: Credentials,
    /// Accepted fingerprints of the peer's certificate.
    pub fingerprints: Vec<Fingerprint>,
    /// The audio. It is `None` if no audio is wanted, or if the video's BUNDLE group contains no usable audio.
    pub audio: Option<NegotiatedAudio>,
    /// Payload format of the video.
    pub format: PayloadFormat,
    /// The SSRCs of the offerer's media and of its retransmissions. It is `None` unless the offer announces both
    /// (RFC 5576, section 4.2).
    pub offered_sources: Option<(u32, u32)>,
    /// The role of this end.
    pub role: Role,
    pub(crate) direction: Direction,
    pub(crate) fmtp: String,
    /// The kinds of key-frame requests that the browser offers: `nack pli` and `ccm fir`.
    pub(crate) requests: Vec<&'static str>,
    pub(crate) small_reports: bool,
    /// Whether reference time reports are requested. A receiver needs them to measure the round-trip time (RFC 3611,
    /// section 5.1).
    pub(crate) round_trip: bool,
    /// The `mid` values of the video's BUNDLE group, in the order of the offer.
    pub(crate) group: Option<Vec<String>>,
    /// The sections of the description, with only their first line and their `mid`.
    pub(crate) sections: Vec<Media>,
    /// Index of the accepted video section.
    pub(crate) taken: usize,
}

/// Returns a copy of a section with nothing but its first line and its `mid`.
fn named(media: &Media) -> Media {
    let mut named = media.clone();
    named.port = 0;
    named.connections.clear();
    named.bandwidths.clear();
    named.attributes.retain(|line| line.attribute == "mid");
    named
}

pub(crate) fn value<'a>(media: &'a Media, name: &'a str) -> Option<&'a str> {
    media.get_first_attribute_value(name).flatten()
}

/// The MediaStream to which both tracks belong (RFC 8830). Browsers play the tracks of a MediaStream in sync.
const MEDIA_STREAM: &str = "steadycast";

const BROWSER: &str = "give the offer as RTCPeerConnection.createOffer made it";

/// An H.264 profile. Some profiles are subsets of other profiles (H.264, section A.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    ConstrainedBaseline,
    Baseline,
    Main,
    ConstrainedHigh,
    High,
    High444,
    Other,
}

impl Profile {
    const fn of(profile: u8, constraints: u8) -> Self {
        match (profile, constraints) {
            (66, c) if c & 0x40 != 0 => Self::ConstrainedBaseline,
            (77, c) if c & 0x80 != 0 => Self::ConstrainedBaseline,
            (66, _) => Self::Baseline,
            (77, _) => Self::Main,
            (100, c) if c & 0x0c == 0x0c => Self::ConstrainedHigh,
            (100, _) => Self::High,
            (244, _) => Self::High444,
            _ => Self::Other,
        }
    }

    /// Returns whether a decoder with this profile can play a stream with the profile `stream`.
    fn plays(self, stream: Self) -> bool {
        use Profile::{Baseline, ConstrainedBaseline, ConstrainedHigh, High, High444, Main, Other};
        self == stream
            || match stream {
                ConstrainedBaseline => self != Other,
                Main | ConstrainedHigh => matches!(self, High | High444),
                High => self == High444,
                Baseline | High444 | Other => false,
            }
    }
}

/// Returns whether packets with this payload type can be distinguished from RTCP on a shared port (RFC 5761,
/// section 4).
pub(crate) const fn no_report(payload_type: u8) -> bool {
    !matches!(payload_type, 64..=95)
}

/// Returns whether a peer that offers `offered` can decode the stream. `level` contains the stream's H.264 profile,
/// constraints and level.
fn plays(offered: &Format, format: PayloadFormat, level: Option<[u8; 3]>) -> bool {
    let said = |key: &str| parameter(&offered.fmtp, key).map(str::trim);
    let zero = |key: &str| said(key).is_none_or(|said| said == "0");
    if offered.format != Some(format) || !no_report(offered.payload_type) {
        return false;
    }
    match format {
        PayloadFormat::Vp8 => true,
        PayloadFormat::Vp9 => zero("profile-id"),
        PayloadFormat::H264 => {
            // Without this parameter, the decoder supports Baseline at level 1 (RFC 6184, section 8.1).
            let of = said("profile-level-id").map_or(Some(vec![66, 0, 10]), unhex);
            let Some(Ok([profile, constraints, most])) = of.map(<[u8; 3]>::try_from) else { return false };
            let fits = level.is_none_or(|[own, own_constraints, own_level]| {
                let decoder = Profile::of(profile, constraints);
                let asymmetric = said("level-asymmetry-allowed") == Some("1");
                decoder.plays(Profile::of(own, own_constraints)) && (own_level <= most || asymmetric)
            });
            // Require packetization mode 1, because only this mode has FU-A, and large frames need FU-A.
            said("packetization-mode") == Some("1") && fits
        }
        PayloadFormat::Av1 => zero("profile"),
        _ => false,
    }
}

/// Returns whether the section is of the given kind and is in use. It is in use if it has a port or shares the port of
/// another section.
fn is_open(media: &Media, kind: &str) -> bool {
    media.media == kind && (media.port > 0 || media.has_attribute("bundle-only"))
}

/// The direction in which media flows, as this end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

impl Direction {
    /// Returns the direction attributes with which an offered section can't be used.
    pub(crate) const fn excluded(self) -> [&'static str; 2] {
        match self {
            Self::Send => ["sendonly", "inactive"],
            Self::Receive => ["recvonly", "inactive"],
        }
    }

    /// Returns the direction attribute that this end writes.
    const fn attribute(self) -> &'static str {
        match self {
            Self::Send => "sendonly",
            Self::Receive => "recvonly",
        }
    }

    /// Returns a remedy: the direction attribute that the offer should have.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Send => "take \"recvonly\"",
            Self::Receive => "take \"sendonly\"",
        }
    }
}

enum Wanted<'a> {
    Sent(&'a Stream<'a>),
    Received { audio: bool },
}

impl Wanted<'_> {
    const fn direction(&self) -> Direction {
        match self {
            Self::Sent(_) => Direction::Send,
            Self::Received { .. } => Direction::Receive,
        }
    }

    const fn audio(&self) -> bool {
        match self {
            Self::Sent(stream) => stream.audio,
            Self::Received { audio } => *audio,
        }
    }
}

/// Returns whether a section requests reports with which the round-trip time is measured (RFC 3611, section 5.1).
fn asks_round_trip(lines: Lines<'_>) -> bool {
    lines.values("rtcp-xr").any(|said| said.split_whitespace().any(|it| it.starts_with("rcvr-rtt=")))
}

pub(crate) fn asks(media: &Media, payload_type: u8, words: &[&str]) -> bool {
    rtcp_feedback(media, payload_type).any(|said| said == words)
}

/// Returns the first Opus payload type of a section and its format parameters.
pub(crate) fn opus(media: &Media) -> Option<(u8, String)> {
    let map = |said: &str| {
        let (word, map) = said.split_once(' ')?;
        // Require this clock and channel count, because every Opus stream has them (RFC 7587, section 7).
        map.trim().eq_ignore_ascii_case("opus/48000/2").then(|| word.parse::<u8>().ok()).flatten()
    };
    let maps: Vec<u8> = media.get_attribute_values("rtpmap").flatten().filter_map(map).collect();
    let found = formats(media).into_iter().find(|it| maps.contains(&it.payload_type) && no_report(it.payload_type))?;
    Some((found.payload_type, found.fmtp))
}

impl NegotiatedParameters {
    /// Negotiates the audio. It must be Opus and share the video's transport. The first suitable section is used.
    fn audio_of(&self, session: &Session) -> Option<NegotiatedAudio> {
        let group = self.group.as_ref()?;
        let of_video = value(&self.sections[self.taken], "mid");
        let bundled = |media: &Media| {
            value(media, "mid").is_some_and(|mid| Some(mid) != of_video && group.iter().any(|it| it == mid))
        };
        session.medias.iter().enumerate().find_map(|(section, media)| {
            let fits_direction = !self.direction.excluded().into_iter().any(|it| media.has_attribute(it));
            let fits = is_open(media, "audio") && bundled(media) && media.proto.ends_with("RTP/SAVPF");
            let fits = fits && fits_direction;
            let (payload_type, fmtp) = opus(media).filter(|_| fits)?;
            // Require different payload types. In a bundle, the payload type also determines to which section a packet
            // belongs (RFC 9143, section 9.2).
            if payload_type == self.payload_type || Some(payload_type) == self.repair {
                return None;
            }
            let lines = Lines { session, media };
            Some(NegotiatedAudio {
                payload_type,
                shares_feedback: self.shares_feedback(lines, payload_type),
                fmtp,
                small_reports: media.has_attribute("rtcp-rsize"),
                round_trip: asks_round_trip(lines),
                section,
            })
        })
    }

    /// Returns whether an audio section has the same per-packet feedback as the video, and the same header extensions
    /// with the same IDs.
    pub(crate) fn shares_feedback(&self, lines: Lines<'_>, payload_type: u8) -> bool {
        let asks = |words: &[&str]| asks(lines.media, payload_type, words);
        let transport = lines.extension(TRANSPORT_WIDE).filter(|_| asks(&["transport-cc"]));
        let send_time = lines.extension(SEND_TIME).filter(|id| transport != Some(*id));
        (transport, send_time, asks(&["ack", "ccfb"])) == (self.transport, self.send_time, self.congestion)
    }
}

/// Negotiates an offer in which the other end receives `stream`. The first video section is used.
///
/// # Errors
/// Returns an error if the offer can't be answered.
pub fn agree(offer: &[u8], stream: &Stream<'_>) -> Result<NegotiatedParameters, NegotiationError> {
    negotiate(offer, &Wanted::Sent(stream))
}

/// Negotiates an offer in which the other end sends. The first video section is used. `audio` indicates whether this
/// end wants audio as well.
///
/// # Errors
/// Returns an error if the offer can't be answered.
pub fn agree_to_receive(offer: &[u8], audio: bool) -> Result<NegotiatedParameters, NegotiationError> {
    negotiate(offer, &Wanted::Received { audio })
}

fn negotiate(offer: &[u8], wanted: &Wanted<'_>) -> Result<NegotiatedParameters, NegotiationError> {
    let direction = wanted.direction();
    if offer.len() > LONGEST {
        return refuse("offer.text", format!("it has {} bytes", offer.len()), "send no more than 65536");
    }
    let session = match Session::parse(plain_text(offer).as_bytes()) {
        Ok(session) => session,
        Err(error) => return refuse("offer.text", format!("not a session description ({error})"), BROWSER),
    };
    let Some(taken) = session.medias.iter().position(|media| is_open(media, "video")) else {
        return match direction {
            Direction::Send => refuse("offer.video", "it asks for no video", "add a video transceiver, \"recvonly\""),
            Direction::Receive => refuse("offer.video", "it sends no video", "add a video track"),
        };
    };
    let media = &session.medias[taken];
    let own = Lines { session: &session, media };
    let transport = Transport::of(&session, media);
    // Accept only DTLS-SRTP with feedback, because browsers offer nothing else.
    if !media.proto.ends_with("RTP/SAVPF") {
        return refuse("offer.transport", format!("its video travels by {}", media.proto), BROWSER);
    }
    if let Some(wrong) = direction.excluded().into_iter().find(|d| media.has_attribute(d)) {
        return refuse("offer.direction", format!("its video is {wrong}"), direction.remedy());
    }
    // Require RTP and RTCP on one port, because the tunnel has a single socket.
    if !transport.has("rtcp-mux") {
        return refuse("offer.rtcp-mux", "it wants a port for reports alone", BROWSER);
    }
    // Reject an ICE-lite peer. Both ends would wait for the other end's checks.
    if session.has_attribute("ice-lite") {
        return refuse("offer.ice", "it does not check: this end is ICE-lite itself", "take full ICE");
    }
    if !matches!(transport.values("setup").first(), Some(&("actpass" | "active"))) {
        return refuse("offer.setup", "it does not begin DTLS itself", "take a=setup:actpass, as browsers do");
    }
    let (peer, fingerprints) = transport.peer("offer.ice", "offer.fingerprint", BROWSER)?;
    let (format, played) = match wanted {
        Wanted::Sent(stream) => offered(media, stream)?,
        Wanted::Received { .. } => decodable(media)?,
    };
    let payload_type = played.payload_type;
    let asks = |words: &[&str]| asks(media, payload_type, words);
    let requests = ["nack pli", "ccm fir"];
    let number = own.extension(TRANSPORT_WIDE);
    let mut negotiated = NegotiatedParameters {
        payload_type,
        repair: retransmissions(media, payload_type).map(|(again, _)| again).filter(|again| no_report(*again)),
        congestion: asks(&["ack", "ccfb"]),
        transport: number.filter(|_| asks(&["transport-cc"])),
        // Ignore the send time if its ID equals the ID of the sequence number. The two extensions could not be
        // distinguished.
        send_time: own.extension(SEND_TIME).filter(|id| number != Some(*id)),
        peer,
        fingerprints,
        audio: None,
        format,
        offered_sources: ssrc_group(media, "FID"),
        role: Role::Answerer,
        direction,
        fmtp: played.fmtp,
        requests: requests.into_iter().filter(|it| asks(&it.split(' ').collect::<Vec<_>>())).collect(),
        small_reports: transport.has("rtcp-rsize"),
        round_trip: asks_round_trip(own),
        group: transport.group.map(|mids| mids.into_iter().map(str::to_owned).collect()),
        sections: session.medias.iter().map(named).collect(),
        taken,
    };
    if wanted.audio() {
        negotiated.audio = negotiated.audio_of(&session);
    }
    Ok(negotiated)
}

fn offered(media: &Media, stream: &Stream<'_>) -> Result<(PayloadFormat, Format), NegotiationError> {
    const PLAYED: &str = "a browser is sent h264, vp8, vp9 or av1: choose one that it offers";
    let Some(format) = stream.format else {
        return refuse("offer.codec", "nothing is sent that could be seen", PLAYED);
    };
    match first_playing(media, format, stream.config) {
        Ok(found) => Ok((format, found)),
        Err((sent, others)) => refuse("offer.codec", format!("{sent} is sent, and it offers {others}"), PLAYED),
    }
}

/// Returns the section's first format that can decode the payload format `format`. `config` is the codec configuration.
///
/// If there is none, the error contains the name of `format` and the names of all formats in the section.
pub(crate) fn first_playing(media: &Media, format: PayloadFormat, config: &[u8]) -> Result<Format, (String, String)> {
    let mut all = formats(media);
    let level = profile_level(config);
    match all.iter().position(|offered| plays(offered, format, level)) {
        Some(place) => Ok(all.swap_remove(place)),
        None => {
            let name = |it: Format| match parameter(&it.fmtp, "profile-level-id") {
                Some(level) => format!("{} ({level})", it.name),
                None => it.name,
            };
            let mut names: Vec<String> = all.into_iter().map(name).collect();
            // Remove repeated names. Chromium offers a codec several times with different parameters.
            names.dedup();
            let of = match (format, level) {
                (PayloadFormat::H264, Some(level)) => format!("{} ({})", format.codec(), hex(&level)),
                _ => format.codec().to_owned(),
            };
            Err((of, names.join(", ")))
        }
    }
}

fn decodable(media: &Media) -> Result<(PayloadFormat, Format), NegotiationError> {
    use PayloadFormat::{Av1, H264, Vp8, Vp9};
    let all = formats(media);
    let mut names: Vec<String> = all.iter().map(|it| it.name.clone()).collect();
    names.dedup();
    let found = all.into_iter().find_map(|offered| {
        let format = offered.format.filter(|format| matches!(format, Vp8 | H264 | Vp9 | Av1))?;
        plays(&offered, format, None).then_some((format, offered))
    });
    let remedy = "send vp8, h264 (packetization-mode=1), vp9 (profile 0) or av1 (profile 0)";
    found.map_or_else(|| refuse("offer.codec", format!("it offers {}", names.join(", ")), remedy), Ok)
}

impl NegotiatedParameters {
    /// Writes the answer or the offer that this end sends.
    pub fn describe(&self, own: &LocalParameters<'_>) -> String {
        let address = own.address.ip();
        let origin = Origin::with_ip_addr(own.session.to_string(), 1, address);
        let mut whole = Session::new(origin, "-");
        whole.times = vec![sdp_types::Time::new(0, 0)];
        // Leave the audio out if this end sends no audio.
        let audio = self.audio.as_ref().filter(|_| own.sources.is_none_or(|own| own.audio.is_some()));
        let accepted = |place: usize| place == self.taken || audio.is_some_and(|audio| audio.section == place);
        if let Some(group) = &self.group {
            // Keep the order of the offer. The first section then stays the tagged section, unless it is rejected
            // (RFC 9143, section 7.3).
            let is_accepted = |mid: &String| {
                let of = |section: &Media| value(section, "mid") == Some(mid);
                self.sections.iter().position(of).is_some_and(accepted)
            };
            let mut mids: Vec<&str> = group.iter().filter(|mid| is_accepted(mid)).map(String::as_str).collect();
            mids.dedup();
            whole.add_attribute(Attribute::with_value("group", format!("BUNDLE {}", mids.join(" "))));
        }
        match self.role {
            Role::Answerer => whole.add_attribute(Attribute::new("ice-lite")),
            // `ice2` announces that this end uses RFC 8445 instead of its predecessor (RFC 8445, section 10).
            Role::Offerer { .. } => whole.add_attribute(Attribute::with_value("ice-options", "ice2")),
        }
        for (place, section) in self.sections.iter().enumerate() {
            let mut media = section.clone();
            media.add_connection(Connection::from_ip_addr_ttl(address, None));
            match audio.filter(|audio| audio.section == place) {
                _ if place == self.taken => self.describe_video(&mut media, own),
                Some(audio) => self.describe_audio(&mut media, own, audio),
                // Keep a rejected section with port 0, because sections are matched by position (RFC 3264, section 6).
                None => media.add_attribute(Attribute::new("inactive")),
            }
            whole.medias.push(media);
        }
        let mut text = Vec::new();
        // Ignore the result, because writing to a vector can't fail.
        let _ = whole.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Writes the direction and the transport attributes into a section. Each section of a bundle needs them, because
    /// browsers expect this.
    fn describe_transport(&self, media: &mut Media, own: &LocalParameters<'_>, small_reports: bool) {
        media.port = own.address.port();
        let Credentials { ufrag, password } = own.credentials;
        let digits: Vec<String> = own.fingerprint.iter().map(|byte| hex(&[*byte])).collect();
        let mut flag = |name: &str| media.add_attribute(Attribute::new(name));
        flag(self.direction.attribute());
        flag("rtcp-mux");
        if self.role != Role::Answerer {
            // A WHIP server must use the same port for RTP and RTCP (RFC 9725, section 4.4.1; RFC 8858, section 3).
            flag("rtcp-mux-only");
        }
        if small_reports {
            flag("rtcp-rsize");
        }
        add_attribute(media, "ice-ufrag", ufrag.clone());
        add_attribute(media, "ice-pwd", password.clone());
        add_attribute(media, "fingerprint", format!("sha-256 {}", digits.join(":")));
        let is_answer = self.role == Role::Answerer;
        add_attribute(media, "setup", if is_answer { "passive" } else { "actpass" });
        for (n, address) in [own.address].iter().chain(own.others).take(MAX_CANDIDATES).enumerate() {
            let (foundation, ip, port) = (n + 1, address.ip(), address.port());
            // Host candidates in order of preference: the local preference decreases (RFC 8445, section 5.1.2.1).
            let priority = (126 << 24) + ((65_535 - n) << 8) + 255;
            add_attribute(media, "candidate", format!("{foundation} 1 udp {priority} {ip} {port} typ host"));
        }
    }

    /// Adds the feedback (`rtcp-fb`) and the header extensions (`extmap`) to a section.
    fn describe_feedback(&self, media: &mut Media, own: &LocalParameters<'_>, payload_type: u8) {
        match own.feedback {
            // Use the asterisk, because RFC 8888, section 6, requires it. Chromium sends this feedback only if the line
            // applies to every payload type.
            Feedback::Congestion if self.congestion => add_attribute(media, "rtcp-fb", "* ack ccfb"),
            Feedback::Transport => {
                if let Some(id) = self.transport {
                    add_attribute(media, "extmap", format!("{id} {TRANSPORT_WIDE}"));
                    add_attribute(media, "rtcp-fb", format!("{payload_type} transport-cc"));
                }
            }
            Feedback::Congestion | Feedback::Standard => {}
        }
        if let Some(id) = self.send_time.filter(|_| own.send_time) {
            add_attribute(media, "extmap", format!("{id} {SEND_TIME}"));
        }
    }

    fn describe_video(&self, media: &mut Media, own: &LocalParameters<'_>) {
        // Leave the retransmissions out if this end sends without a retransmission stream.
        let repair = self.repair.filter(|_| own.sources.is_none_or(|own| own.repair.is_some()));
        let pt = self.payload_type;
        media.fmt = pt.to_string();
        if let Some(again) = repair {
            media.fmt += &format!(" {again}");
        }
        self.describe_transport(media, own, self.small_reports);
        add_attribute(media, "rtpmap", format!("{pt} {}/90000", self.format.encoding()));
        if !self.fmtp.is_empty() {
            add_attribute(media, "fmtp", format!("{pt} {}", self.fmtp));
        }
        self.describe_feedback(media, own, pt);
        let mut add_attribute = |name: &str, value: String| add_attribute(media, name, value);
        for request in self.requests.iter().filter(|_| own.key_frames) {
            add_attribute("rtcp-fb", format!("{pt} {request}"));
        }
        if self.round_trip {
            add_attribute("rtcp-xr", "rcvr-rtt=all".into());
        }
        if let Some(again) = repair {
            add_attribute("rtcp-fb", format!("{pt} nack"));
            add_attribute("rtpmap", format!("{again} rtx/90000"));
            add_attribute("fmtp", format!("{again} apt={pt}"));
        }
        if let Some(own) = &own.sources {
            let again = own.repair.filter(|_| repair.is_some());
            add_attribute("msid", format!("{MEDIA_STREAM} video"));
            if let Some(ssrc) = again {
                add_attribute("ssrc-group", format!("FID {} {ssrc}", own.media));
            }
            for ssrc in [own.media].into_iter().chain(again) {
                add_attribute("ssrc", format!("{ssrc} cname:{}", own.cname));
            }
        }
        media.add_attribute(Attribute::new("end-of-candidates"));
    }

    fn describe_audio(&self, media: &mut Media, own: &LocalParameters<'_>, audio: &NegotiatedAudio) {
        let pt = audio.payload_type;
        media.fmt = pt.to_string();
        self.describe_transport(media, own, audio.small_reports);
        add_attribute(media, "rtpmap", format!("{pt} opus/48000/2"));
        if !audio.fmtp.is_empty() {
            add_attribute(media, "fmtp", format!("{pt} {}", audio.fmtp));
        }
        if audio.shares_feedback {
            self.describe_feedback(media, own, pt);
        }
        if audio.round_trip {
            add_attribute(media, "rtcp-xr", "rcvr-rtt=all");
        }
        if let Some((ssrc, cname)) = own.sources.and_then(|own| Some((own.audio?, own.cname))) {
            add_attribute(media, "msid", format!("{MEDIA_STREAM} audio"));
            add_attribute(media, "ssrc", format!("{ssrc} cname:{cname}"));
        }
        media.add_attribute(Attribute::new("end-of-candidates"));
    }
}
