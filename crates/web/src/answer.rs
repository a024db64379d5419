//! Negotiation of a browser's offer, and the answer (RFC 9429; WHEP is draft-ietf-wish-whep-04).
//!
//! The answer accepts one video section and rejects all others in place. Payload types and IDs of header extensions are
//! those of the offer, because only this end sends.

use crate::Credentials;
use crate::certificate::Fingerprint;
use crate::lines::{
    Format, Lines, TRANSPORT_WIDE, add_attribute, formats, hex, parameter, profile_level, retransmissions,
    rtcp_feedback, unhex,
};
use sdp_types::{Attribute, Connection, Media, Origin, Session};
use std::net::SocketAddr;
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::plain_text;

/// The URI of the send-time header extension: 24 bits in units of 2⁻¹⁸ s.
const SEND_TIME: &str = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time";

/// Maximum length of an offer in bytes. A browser's offer with all its codecs has a tenth of it.
const LONGEST: usize = 1 << 16;

/// Maximum number of candidates in an answer. Browsers check each of them for seconds.
const MAX_CANDIDATES: usize = 8;

/// Maximum length of a user name or a password (RFC 8839, section 5.4).
const LONGEST_CREDENTIAL: usize = 256;

/// The error of an offer that can't be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct OfferError {
    /// The part of the offer: `offer.codec` or another `offer.…`.
    pub place: &'static str,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: &'static str,
}

fn refuse<T>(place: &'static str, problem: impl Into<String>, remedy: &'static str) -> Result<T, OfferError> {
    Err(OfferError { place, problem: problem.into(), remedy })
}

/// Formats of per-packet feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// RFC 8888, `ack ccfb`.
    Congestion,
    /// Transport-wide feedback, `transport-cc`, with sequence numbers in the header extension.
    Transport,
    /// None: only the blocks of standard reports.
    Standard,
}

/// The stream that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Payload format; `None` if there is no visible content.
    pub format: Option<PayloadFormat>,
    /// Parameter sets of H.264, each after a start code.
    pub config: &'a [u8],
}

/// The parameters of this end, and the features of the offer that it uses.
#[derive(Clone, Debug)]
pub struct LocalParameters<'a> {
    /// The unique number of this session.
    pub session: u64,
    /// The address at which the browser reaches this end.
    pub address: SocketAddr,
    /// Further addresses of this end, in order of preference.
    pub others: &'a [SocketAddr],
    /// The ICE credentials of this end.
    pub credentials: &'a Credentials,
    /// The fingerprint of this end's certificate.
    pub fingerprint: Fingerprint,
    /// The format of per-packet feedback, if offered.
    pub feedback: Feedback,
    /// Whether packets carry their send time, if offered.
    pub send_time: bool,
    /// Whether key frames are made on request.
    pub key_frames: bool,
    /// SSRC of the media.
    pub media: u32,
    /// SSRC of the retransmissions, if there are any.
    pub repair: Option<u32>,
    /// The canonical name of both.
    pub cname: &'a str,
}

/// The negotiated parameters of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedParameters {
    /// Payload type of the media.
    pub payload_type: u8,
    /// Payload type of retransmissions, if the browser requests them.
    pub repair: Option<u8>,
    /// Whether RFC 8888 feedback is offered.
    pub congestion: bool,
    /// ID of the header extension for transport-wide feedback, if offered.
    pub transport: Option<u8>,
    /// ID of the header extension for send times, if offered.
    pub send_time: Option<u8>,
    /// The browser's ICE credentials.
    pub peer: Credentials,
    /// The accepted fingerprints of the browser's certificate.
    pub fingerprints: Vec<Fingerprint>,
    format: PayloadFormat,
    fmtp: String,
    /// Key-frame requests that the browser offers: `nack pli`, `ccm fir`.
    requests: Vec<&'static str>,
    small_reports: bool,
    /// Whether it requests reference time reports, which give a receiver the round-trip time (RFC 3611, section 5.1).
    round_trip: bool,
    bundled: bool,
    /// The first line and the `mid` of each section.
    sections: Vec<Media>,
    /// The index of the accepted section.
    taken: usize,
}

/// Reduces a section to its first line and its `mid`.
fn named(media: &Media) -> Media {
    let mut named = media.clone();
    named.port = 0;
    named.connections.clear();
    named.bandwidths.clear();
    named.attributes.retain(|line| line.attribute == "mid");
    named
}

fn value<'a>(media: &'a Media, name: &'a str) -> Option<&'a str> {
    media.get_first_attribute_value(name).flatten()
}

/// The transport attributes of a section: its own, or those of the bundled section that it shares a transport with (RFC
/// 9143, section 7.1.3), or those of the session.
struct Transport<'a> {
    own: Lines<'a>,
    shared: Option<Lines<'a>>,
}

impl<'a> Transport<'a> {
    fn values(&self, name: &'a str) -> Vec<&'a str> {
        let own: Vec<&str> = self.own.values(name).collect();
        if own.is_empty() { self.shared.iter().flat_map(|lines| lines.values(name)).collect() } else { own }
    }

    fn credentials(&self) -> Result<Credentials, OfferError> {
        let one = |name: &'a str, least: usize| {
            let said = self.values(name).into_iter().next().unwrap_or_default();
            let fits = (least..=LONGEST_CREDENTIAL).contains(&said.len());
            // Other characters are not `ice-char` (RFC 8839), and could inject lines into the answer.
            let fits = fits && said.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
            if fits { Ok(said.to_owned()) } else { refuse("offer.ice", format!("it has no a={name}"), BROWSER) }
        };
        Ok(Credentials { ufrag: one("ice-ufrag", 4)?, password: one("ice-pwd", 22)? })
    }

    fn fingerprints(&self) -> Result<Vec<Fingerprint>, OfferError> {
        let one = |said: &str| {
            let (hash, digits) = said.split_once(' ')?;
            let bytes = unhex(&digits.trim().replace(':', ""))?;
            // Browsers use SHA-256. Other hashes are ignored.
            if hash.eq_ignore_ascii_case("sha-256") { bytes.try_into().ok() } else { None }
        };
        let all: Vec<Fingerprint> = self.values("fingerprint").into_iter().filter_map(one).collect();
        if all.is_empty() {
            return refuse("offer.fingerprint", "it has no fingerprint by SHA-256", BROWSER);
        }
        Ok(all)
    }
}

const BROWSER: &str = "give the offer as RTCPeerConnection.createOffer made it";

/// H.264 profiles, as far as one is a subset of another (H.264, A.2).
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

    /// Returns true if decoders of this profile play a stream of the given one.
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

/// Returns true if packets of this payload type can't be confused with RTCP on a shared port (RFC 5761, section 4).
const fn no_report(payload_type: u8) -> bool {
    !matches!(payload_type, 64..=95)
}

/// Returns true if the offered payload type can decode the stream. `level` is the H.264 profile and level of the
/// stream.
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
            // Without the parameter, the profile is Baseline at level 1 (RFC 6184, section 8.1).
            let of = said("profile-level-id").map_or(Some(vec![66, 0, 10]), unhex);
            let Some(Ok([profile, constraints, most])) = of.map(<[u8; 3]>::try_from) else { return false };
            let fits = level.is_none_or(|[own, own_constraints, own_level]| {
                let decoder = Profile::of(profile, constraints);
                let asymmetric = said("level-asymmetry-allowed") == Some("1");
                decoder.plays(Profile::of(own, own_constraints)) && (own_level <= most || asymmetric)
            });
            // Only mode 1 has FU-A, which frames larger than a packet require.
            said("packetization-mode") == Some("1") && fits
        }
        PayloadFormat::Av1 => zero("profile"),
        _ => false,
    }
}

/// Returns true if a section can be accepted: its port is open, or it shares the port of another one.
fn open(media: &Media) -> bool {
    media.media == "video" && (media.port > 0 || media.has_attribute("bundle-only"))
}

/// Negotiates the first video section of an offer for this stream.
///
/// # Errors
/// The offer can't be answered.
pub fn agree(offer: &[u8], stream: &Stream<'_>) -> Result<NegotiatedParameters, OfferError> {
    if offer.len() > LONGEST {
        return refuse("offer.text", format!("it has {} bytes", offer.len()), "send no more than 65536");
    }
    let session = match Session::parse(plain_text(offer).as_bytes()) {
        Ok(session) => session,
        Err(error) => return refuse("offer.text", format!("not a session description ({error})"), BROWSER),
    };
    let Some(taken) = session.medias.iter().position(open) else {
        return refuse("offer.video", "it asks for no video", "add a video transceiver, \"recvonly\"");
    };
    let media = &session.medias[taken];
    let own = Lines { session: &session, media };
    let mid = value(media, "mid");
    let group = own.session.get_attribute_values("group").flatten().find_map(|said| {
        let mids: Vec<&str> = said.strip_prefix("BUNDLE ")?.split_whitespace().collect();
        mids.iter().any(|of| Some(*of) == mid).then_some(mids)
    });
    let first = group.as_ref().and_then(|mids| mids.first());
    // The first section of a BUNDLE group carries the transport for all of them (RFC 9143).
    let tagged = first.and_then(|first| session.medias.iter().find(|media| value(media, "mid") == Some(first)));
    let transport = Transport { own, shared: tagged.map(|media| Lines { session: &session, media }) };
    let flag = |name: &str| media.has_attribute(name) || tagged.is_some_and(|media| media.has_attribute(name));
    // Browsers only offer DTLS-SRTP with feedback (UDP/TLS/RTP/SAVPF).
    if !media.proto.ends_with("RTP/SAVPF") {
        return refuse("offer.transport", format!("its video travels by {}", media.proto), BROWSER);
    }
    let directions = ["sendonly", "inactive"];
    if let Some(wrong) = directions.into_iter().find(|d| media.has_attribute(d)) {
        return refuse("offer.direction", format!("its video is {wrong}"), "take \"recvonly\"");
    }
    // The tunnel has one socket for media and reports.
    if !flag("rtcp-mux") {
        return refuse("offer.rtcp-mux", "it wants a port for reports alone", BROWSER);
    }
    // Two ICE-lite ends would both wait for checks.
    if session.has_attribute("ice-lite") {
        return refuse("offer.ice", "it does not check: this end is ICE-lite itself", "take full ICE");
    }
    if !matches!(transport.values("setup").first(), Some(&("actpass" | "active"))) {
        return refuse("offer.setup", "it does not begin DTLS itself", "take a=setup:actpass, as browsers do");
    }
    let (peer, fingerprints) = (transport.credentials()?, transport.fingerprints()?);
    let (format, played) = offered(media, stream)?;
    let payload_type = played.payload_type;
    let asks = |words: &[&str]| rtcp_feedback(media, payload_type).any(|said| said == words);
    let requests = ["nack pli", "ccm fir"];
    let transport = own.extension(TRANSPORT_WIDE);
    Ok(NegotiatedParameters {
        payload_type,
        repair: retransmissions(media, payload_type).map(|(again, _)| again).filter(|again| no_report(*again)),
        congestion: asks(&["ack", "ccfb"]),
        transport: transport.filter(|_| asks(&["transport-cc"])),
        // Two extensions with one ID can't be distinguished in a packet.
        send_time: own.extension(SEND_TIME).filter(|id| transport != Some(*id)),
        peer,
        fingerprints,
        format,
        fmtp: played.fmtp,
        requests: requests.into_iter().filter(|it| asks(&it.split(' ').collect::<Vec<_>>())).collect(),
        small_reports: flag("rtcp-rsize"),
        round_trip: own.values("rtcp-xr").any(|said| said.split_whitespace().any(|it| it.starts_with("rcvr-rtt="))),
        bundled: group.is_some(),
        sections: session.medias.iter().map(named).collect(),
        taken,
    })
}

/// Returns the first offered payload type that can decode the stream.
fn offered(media: &Media, stream: &Stream<'_>) -> Result<(PayloadFormat, Format), OfferError> {
    const PLAYED: &str = "a browser is sent h264, vp8, vp9 or av1: choose one that it offers";
    let Some(format) = stream.format else {
        return refuse("offer.codec", "nothing is sent that could be seen", PLAYED);
    };
    let mut all = formats(media);
    let level = profile_level(stream.config);
    match all.iter().position(|offered| plays(offered, format, level)) {
        Some(place) => Ok((format, all.swap_remove(place))),
        None => {
            let name = |it: Format| match parameter(&it.fmtp, "profile-level-id") {
                Some(level) => format!("{} ({level})", it.name),
                None => it.name,
            };
            let mut names: Vec<String> = all.into_iter().map(name).collect();
            // Chromium offers a codec several times with different parameters.
            names.dedup();
            let of = match (format, level) {
                (PayloadFormat::H264, Some(level)) => format!("{} ({})", format.codec(), hex(&level)),
                _ => format.codec().to_owned(),
            };
            refuse("offer.codec", format!("{of} is sent, and it offers {}", names.join(", ")), PLAYED)
        }
    }
}

impl NegotiatedParameters {
    /// Returns the answer.
    pub fn answer(&self, own: &LocalParameters<'_>) -> String {
        let address = own.address.ip();
        let origin = Origin::with_ip_addr(own.session.to_string(), 1, address);
        let mut whole = Session::new(origin, "-");
        whole.times = vec![sdp_types::Time::new(0, 0)];
        if let Some(mid) = value(&self.sections[self.taken], "mid").filter(|_| self.bundled) {
            whole.add_attribute(Attribute::with_value("group", format!("BUNDLE {mid}")));
        }
        whole.add_attribute(Attribute::new("ice-lite"));
        for (place, section) in self.sections.iter().enumerate() {
            let mut media = section.clone();
            media.add_connection(Connection::from_ip_addr_ttl(address, None));
            if place == self.taken {
                self.describe(&mut media, own);
            } else {
                // Rejected sections keep their place with port 0, because sections are matched by position (RFC 3264,
                // section 6).
                media.add_attribute(Attribute::new("inactive"));
            }
            whole.medias.push(media);
        }
        let mut text = Vec::new();
        // Writing to a vector can't fail.
        let _ = whole.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Writes the attributes of the accepted section.
    fn describe(&self, media: &mut Media, own: &LocalParameters<'_>) {
        media.port = own.address.port();
        let repair = self.repair.zip(own.repair);
        media.fmt = self.payload_type.to_string();
        if let Some((again, _)) = repair {
            media.fmt += &format!(" {again}");
        }
        let Credentials { ufrag, password } = own.credentials;
        let digits: Vec<String> = own.fingerprint.iter().map(|byte| hex(&[*byte])).collect();
        let mut flag = |name: &str| media.add_attribute(Attribute::new(name));
        flag("sendonly");
        flag("rtcp-mux");
        if self.small_reports {
            flag("rtcp-rsize");
        }
        let pt = self.payload_type;
        let mut add_attribute = |name: &str, value: String| add_attribute(media, name, value);
        add_attribute("ice-ufrag", ufrag.clone());
        add_attribute("ice-pwd", password.clone());
        add_attribute("fingerprint", format!("sha-256 {}", digits.join(":")));
        add_attribute("setup", "passive".into());
        for (n, address) in [own.address].iter().chain(own.others).take(MAX_CANDIDATES).enumerate() {
            let (foundation, ip, port) = (n + 1, address.ip(), address.port());
            // The priority of host candidates, of which the first has the highest local preference (RFC 8445, section
            // 5.1.2.1).
            let priority = (126 << 24) + ((65_535 - n) << 8) + 255;
            add_attribute("candidate", format!("{foundation} 1 udp {priority} {ip} {port} typ host"));
        }
        add_attribute("rtpmap", format!("{pt} {}/90000", self.format.encoding()));
        if !self.fmtp.is_empty() {
            add_attribute("fmtp", format!("{pt} {}", self.fmtp));
        }
        match own.feedback {
            // RFC 8888, section 6, requires the asterisk. Chromium sends this feedback only if the line applies to each
            // payload type, including that of retransmissions.
            Feedback::Congestion if self.congestion => add_attribute("rtcp-fb", "* ack ccfb".into()),
            Feedback::Transport => {
                if let Some(id) = self.transport {
                    add_attribute("extmap", format!("{id} {TRANSPORT_WIDE}"));
                    add_attribute("rtcp-fb", format!("{pt} transport-cc"));
                }
            }
            Feedback::Congestion | Feedback::Standard => {}
        }
        if let Some(id) = self.send_time.filter(|_| own.send_time) {
            add_attribute("extmap", format!("{id} {SEND_TIME}"));
        }
        for request in self.requests.iter().filter(|_| own.key_frames) {
            add_attribute("rtcp-fb", format!("{pt} {request}"));
        }
        if self.round_trip {
            add_attribute("rtcp-xr", "rcvr-rtt=all".into());
        }
        add_attribute("msid", "steadycast video".into());
        if let Some((again, ssrc)) = repair {
            add_attribute("rtcp-fb", format!("{pt} nack"));
            add_attribute("rtpmap", format!("{again} rtx/90000"));
            add_attribute("fmtp", format!("{again} apt={pt}"));
            add_attribute("ssrc-group", format!("FID {} {ssrc}", own.media));
        }
        for ssrc in [own.media].into_iter().chain(repair.map(|(_, ssrc)| ssrc)) {
            add_attribute("ssrc", format!("{ssrc} cname:{}", own.cname));
        }
        media.add_attribute(Attribute::new("end-of-candidates"));
    }
}
