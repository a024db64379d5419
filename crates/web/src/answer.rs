//! What a browser offers, and what it is answered (RFC 9429; WHEP is draft-ietf-wish-whep-04).
//!
//! The answer takes one video section, and refuses all others in their places. Payload types and elements of the header
//! extension are the offer's, since this end sends alone.

use crate::Credentials;
use crate::certificate::Fingerprint;
use crate::lines::{
    Format, Lines, TRANSPORT_WIDE, asked, formats, hex, parameter, profile_level, put, retransmissions, unhex,
};
use sdp_types::{Attribute, Connection, Media, Origin, Session};
use std::net::SocketAddr;
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::plain_text;

/// What the header extension of send times goes by: 24 bits of 2⁻¹⁸ s.
const SEND_TIME: &str = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time";

/// No offer is longer: a browser's with all its codecs takes a tenth of it.
const LONGEST: usize = 1 << 16;

/// The longest user name and password (RFC 8839, section 5.4).
const LONGEST_CREDENTIAL: usize = 256;

/// Why an offer can't be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct Refusal {
    /// What of it: `offer.codec` or another `offer.…`.
    pub place: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What would help.
    pub remedy: &'static str,
}

fn refuse<T>(place: &'static str, problem: impl Into<String>, remedy: &'static str) -> Result<T, Refusal> {
    Err(Refusal { place, problem: problem.into(), remedy })
}

/// How single packets are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// By RFC 8888: `ack ccfb`.
    Congestion,
    /// By transport-wide numbers in the header extension: `transport-cc`.
    Transport,
    /// Not at all: by blocks of standard reports alone.
    Standard,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Payload format; `None` for nothing that could be seen.
    pub format: Option<PayloadFormat>,
    /// Parameter sets of H.264, each behind a start code.
    pub config: &'a [u8],
}

/// Who this end is, and what of the offer it takes up.
#[derive(Clone, Debug)]
pub struct Own<'a> {
    /// A number of this session's own.
    pub session: u64,
    /// Where the browser reaches it.
    pub address: SocketAddr,
    /// For the browser's checks.
    pub credentials: &'a Credentials,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
    /// How single packets are to be reported, where that is offered.
    pub feedback: Feedback,
    /// Whether packets carry their send time, where it is offered.
    pub send_time: bool,
    /// Key frames are made on request.
    pub key_frames: bool,
    /// SSRC of the media.
    pub media: u32,
    /// SSRC of the retransmissions, where there are any.
    pub repair: Option<u32>,
    /// The canonical name of both.
    pub cname: &'a str,
}

/// What an offer makes possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Payload type of the media.
    pub payload_type: u8,
    /// Payload type of packets that are sent again, where the browser asks for them.
    pub repair: Option<u8>,
    /// Packets may be reported by RFC 8888.
    pub congestion: bool,
    /// Packets may be reported by transport-wide numbers in this element.
    pub transport: Option<u8>,
    /// Send times may stand in this element.
    pub send_time: Option<u8>,
    /// The browser's user name and password in ICE.
    pub peer: Credentials,
    /// Its certificate is one of these.
    pub fingerprints: Vec<Fingerprint>,
    format: PayloadFormat,
    fmtp: String,
    /// What the browser may be told of the media: `nack pli`, `ccm fir`.
    requests: Vec<&'static str>,
    small_reports: bool,
    /// It asks for the round trip, which a receiver alone does not know (RFC 3611, section 5.1).
    round_trip: bool,
    bundled: bool,
    /// Of each section the first line and the name.
    sections: Vec<Media>,
    /// Which of them is taken.
    taken: usize,
}

/// Of a section its first line and its name.
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

/// Lines about the transport: those of the section, or of the one whose transport it shares (RFC 9143, section 7.1.3),
/// or of the whole session.
struct Transport<'a> {
    own: Lines<'a>,
    shared: Option<Lines<'a>>,
}

impl<'a> Transport<'a> {
    fn values(&self, name: &'a str) -> Vec<&'a str> {
        let own: Vec<&str> = self.own.values(name).collect();
        if own.is_empty() { self.shared.iter().flat_map(|lines| lines.values(name)).collect() } else { own }
    }

    fn credentials(&self) -> Result<Credentials, Refusal> {
        let one = |name: &'a str, least: usize| {
            let said = self.values(name).into_iter().next().unwrap_or_default();
            let fits = (least..=LONGEST_CREDENTIAL).contains(&said.len());
            let fits = fits && said.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
            if fits { Ok(said.to_owned()) } else { refuse("offer.ice", format!("it has no a={name}"), BROWSER) }
        };
        Ok(Credentials { ufrag: one("ice-ufrag", 4)?, password: one("ice-pwd", 22)? })
    }

    fn fingerprints(&self) -> Result<Vec<Fingerprint>, Refusal> {
        let one = |said: &str| {
            let (hash, digits) = said.split_once(' ')?;
            let bytes = unhex(&digits.trim().replace(':', ""))?;
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

/// Profiles of H.264 as far as one contains another (H.264, A.2).
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

    /// Whether its decoders play a stream of that profile.
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

/// Whether packets of this payload type are no reports where both share a port (RFC 5761, section 4).
const fn no_report(payload_type: u8) -> bool {
    !matches!(payload_type, 64..=95)
}

/// Whether what is offered under a payload type plays the stream, whose profile and level of H.264 are these.
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
            let of = said("profile-level-id").map_or(Some(vec![66, 0, 10]), unhex);
            let Some(Ok([profile, constraints, most])) = of.map(<[u8; 3]>::try_from) else { return false };
            let fits = level.is_none_or(|[own, own_constraints, own_level]| {
                let decoder = Profile::of(profile, constraints);
                let asymmetric = said("level-asymmetry-allowed") == Some("1");
                decoder.plays(Profile::of(own, own_constraints)) && (own_level <= most || asymmetric)
            });
            said("packetization-mode") == Some("1") && fits
        }
        PayloadFormat::Av1 => zero("profile"),
        _ => false,
    }
}

/// Whether this section can be taken: its port is open, or it shares that of another.
fn open(media: &Media) -> bool {
    media.media == "video" && (media.port > 0 || media.has_attribute("bundle-only"))
}

/// What the first video section of an offer makes possible for this stream.
///
/// # Errors
/// It can't be answered.
pub fn agree(offer: &[u8], stream: &Stream<'_>) -> Result<Agreed, Refusal> {
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
    let tagged = first.and_then(|first| session.medias.iter().find(|media| value(media, "mid") == Some(first)));
    let transport = Transport { own, shared: tagged.map(|media| Lines { session: &session, media }) };
    let flag = |name: &str| media.has_attribute(name) || tagged.is_some_and(|media| media.has_attribute(name));
    if !media.proto.ends_with("RTP/SAVPF") {
        return refuse("offer.transport", format!("its video travels by {}", media.proto), BROWSER);
    }
    let directions = ["sendonly", "inactive"];
    if let Some(wrong) = directions.into_iter().find(|d| media.has_attribute(d)) {
        return refuse("offer.direction", format!("its video is {wrong}"), "take \"recvonly\"");
    }
    if !flag("rtcp-mux") {
        return refuse("offer.rtcp-mux", "it wants a port for reports alone", BROWSER);
    }
    if session.has_attribute("ice-lite") {
        return refuse("offer.ice", "it does not check: this end is ICE-lite itself", "take full ICE");
    }
    if !matches!(transport.values("setup").first(), Some(&("actpass" | "active"))) {
        return refuse("offer.setup", "it does not begin DTLS itself", "take a=setup:actpass, as browsers do");
    }
    let (peer, fingerprints) = (transport.credentials()?, transport.fingerprints()?);
    let (format, played) = offered(media, stream)?;
    let payload_type = played.payload_type;
    let asks = |words: &[&str]| asked(media, payload_type).any(|said| said == words);
    let requests = ["nack pli", "ccm fir"];
    let transport = own.extension(TRANSPORT_WIDE);
    Ok(Agreed {
        payload_type,
        repair: retransmissions(media, payload_type).map(|(again, _)| again).filter(|again| no_report(*again)),
        congestion: asks(&["ack", "ccfb"]),
        transport: transport.filter(|_| asks(&["transport-cc"])),
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

/// The payload type that is played.
fn offered(media: &Media, stream: &Stream<'_>) -> Result<(PayloadFormat, Format), Refusal> {
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
            names.dedup();
            let of = match (format, level) {
                (PayloadFormat::H264, Some(level)) => format!("{} ({})", format.codec(), hex(&level)),
                _ => format.codec().to_owned(),
            };
            refuse("offer.codec", format!("{of} is sent, and it offers {}", names.join(", ")), PLAYED)
        }
    }
}

impl Agreed {
    /// The answer.
    pub fn answer(&self, own: &Own<'_>) -> String {
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
                media.add_attribute(Attribute::new("inactive"));
            }
            whole.medias.push(media);
        }
        let mut text = Vec::new();
        // Nothing that is written into a vector fails.
        let _ = whole.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The section that is taken.
    fn describe(&self, media: &mut Media, own: &Own<'_>) {
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
        let (ip, port) = (own.address.ip(), own.address.port());
        let pt = self.payload_type;
        let mut put = |name: &str, value: String| put(media, name, value);
        put("ice-ufrag", ufrag.clone());
        put("ice-pwd", password.clone());
        put("fingerprint", format!("sha-256 {}", digits.join(":")));
        put("setup", "passive".into());
        // RFC 8445, section 5.1.2.1, of the only host candidate.
        put("candidate", format!("1 1 udp 2130706431 {ip} {port} typ host"));
        put("rtpmap", format!("{pt} {}/90000", self.format.encoding()));
        if !self.fmtp.is_empty() {
            put("fmtp", format!("{pt} {}", self.fmtp));
        }
        match own.feedback {
            // Chromium reports packets only where each payload type is named, that of retransmissions too; RFC 8888,
            // section 6, asks for the asterisk.
            Feedback::Congestion if self.congestion => put("rtcp-fb", "* ack ccfb".into()),
            Feedback::Transport => {
                if let Some(id) = self.transport {
                    put("extmap", format!("{id} {TRANSPORT_WIDE}"));
                    put("rtcp-fb", format!("{pt} transport-cc"));
                }
            }
            Feedback::Congestion | Feedback::Standard => {}
        }
        if let Some(id) = self.send_time.filter(|_| own.send_time) {
            put("extmap", format!("{id} {SEND_TIME}"));
        }
        for request in self.requests.iter().filter(|_| own.key_frames) {
            put("rtcp-fb", format!("{pt} {request}"));
        }
        if self.round_trip {
            put("rtcp-xr", "rcvr-rtt=all".into());
        }
        put("msid", "steadycast video".into());
        if let Some((again, ssrc)) = repair {
            put("rtcp-fb", format!("{pt} nack"));
            put("rtpmap", format!("{again} rtx/90000"));
            put("fmtp", format!("{again} apt={pt}"));
            put("ssrc-group", format!("FID {} {ssrc}", own.media));
        }
        for ssrc in [own.media].into_iter().chain(repair.map(|(_, ssrc)| ssrc)) {
            put("ssrc", format!("{ssrc} cname:{}", own.cname));
        }
        media.add_attribute(Attribute::new("end-of-candidates"));
    }
}
