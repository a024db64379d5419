//! Session descriptions (RFC 8866). The private attribute `x-steadycast` contains the controller's name and other
//! values. Receivers of other programs ignore this attribute.

use base64ct::{Base64, Base64Unpadded, Encoding};
use sdp_types::{Attribute, Bandwidth, BandwidthType, Connection, Media, MediaType, Origin, Session, TransportProto};
use std::net::{IpAddr, SocketAddr};
use steadycast_control::FeedbackFormat;
use steadycast_session::TRANSPORT_NUMBER_ID;
use steadycast_units::{Ecn, Rate, Span};
use steadycast_web::lines::{
    self, Format, Lines, TRANSPORT_WIDE, formats, hex, parameter, profile_level, rtcp_feedback, ssrc_group, unhex,
};
use steadycast_wire::payload::{PayloadFormat, nal_units};
use steadycast_wire::plain_text;
use steadycast_wire::rtp::PayloadTypes;

/// Why a session description can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {remedy}")]
pub struct SdpError {
    /// What is wrong with the description.
    pub problem: String,
    /// What the user should do about it.
    pub remedy: &'static str,
}

fn wrong(problem: impl Into<String>, remedy: &'static str) -> SdpError {
    SdpError { problem: problem.into(), remedy }
}

/// The contents of a session description that has one video stream and may have one audio stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Address of the receiver or group.
    pub address: SocketAddr,
    /// The only source whose packets are accepted (RFC 4570). In a sender's description, it is the sender's address if
    /// the group is source-specific.
    pub source: Option<IpAddr>,
    /// Time to live of packets to an IPv4 group.
    pub ttl: Option<u8>,
    /// Whether RTP and RTCP share a port (RFC 5761).
    pub mux: bool,
    /// Whether media and reports are encrypted (RFC 3711). The key is not part of the description.
    pub secure: bool,
    /// RTP payload type.
    pub payload_type: u8,
    /// Other payload types of the same format (RFC 3264, section 5.1).
    pub others: Vec<u8>,
    /// Payload format. `None` if this program does not support it.
    pub format: Option<PayloadFormat>,
    /// Decoder configuration. For MPEG-4, it is the value of the parameter `config`, decoded to bytes. For H.264 and
    /// H.265, it consists of parameter sets with start codes.
    pub config: Vec<u8>,
    /// RTCP port in `a=rtcp` (RFC 3605). `None` if the description does not contain this attribute. The RTCP port is
    /// then the port after the RTP port.
    pub rtcp_port: Option<u16>,
    /// Sources whose packets are discarded (RFC 4570).
    pub excluded: Vec<IpAddr>,
    /// Maximum rate of the media.
    pub bandwidth: Option<Rate>,
    /// RTCP bandwidth of the receivers (`b=RR`, RFC 3556). If it is 0, they send no reports.
    pub reports: Option<Rate>,
    /// Format of per-packet feedback. `None` if the description contains no standard format.
    pub feedback: Option<PacketFeedback>,
    /// ECN codepoint with which packets are sent (RFC 6679, section 6.1).
    pub ecn: Ecn,
    /// The retransmission stream. `None` if lost packets are not sent again.
    pub repair: Option<Retransmissions>,
    /// The parity stream, if there is one.
    pub parity: Option<ParityStream>,
    /// The audio stream. `None` if there is no audio, or none that this program supports.
    pub audio: Option<AudioStream>,
    /// The formats of the audio, each with its payload type, if there is audio but none that this program supports.
    pub unsupported_audio: Vec<String>,
    /// SSRC and canonical name of the media (RFC 5576). After [`Description::read`], it is `None` if the description
    /// does not contain them, or if it contains an SSRC group.
    pub media: Option<(u32, String)>,
    /// Whether the sender makes key frames on request (PLI, RFC 4585; FIR, RFC 5104).
    pub key_frames: bool,
    /// Keys and values of the private attribute.
    pub ours: Vec<(String, String)>,
}

/// Formats of per-packet feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFeedback {
    /// Feedback by RFC 8888, which is announced as `ack ccfb`.
    Congestion,
    /// Transport-wide feedback, which is announced as `transport-cc`. The value is the id of its header extension.
    Transport(u8),
}

impl PacketFeedback {
    /// Returns how a sender of this program announces the feedback format. Returns `None` if the format needs no
    /// announcement.
    pub const fn of(format: FeedbackFormat) -> Option<Self> {
        match format {
            FeedbackFormat::Own | FeedbackFormat::Stats | FeedbackFormat::Blocks => None,
            FeedbackFormat::Rfc8888 => Some(Self::Congestion),
            FeedbackFormat::TransportWide => Some(Self::Transport(TRANSPORT_NUMBER_ID)),
        }
    }

    /// Returns the feedback format.
    pub const fn format(self) -> FeedbackFormat {
        match self {
            Self::Congestion => FeedbackFormat::Rfc8888,
            Self::Transport(_) => FeedbackFormat::TransportWide,
        }
    }
}

/// A retransmission stream (RFC 4588). Receivers request packets with generic NACKs (RFC 4585).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retransmissions {
    /// RTP payload type of the retransmissions.
    pub payload_type: u8,
    /// How long the sender stores packets (`rtx-time`), if the description says so.
    pub kept: Option<Span>,
    /// SSRCs of the media and the retransmissions, if the description contains them (RFC 5576).
    pub sources: Option<Sources>,
}

/// A parity stream that protects blocks of packets. Its payload format is defined in docs/wire.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityStream {
    /// RTP payload type of the parity.
    pub payload_type: u8,
    /// SSRCs of the media and the parity, if the description contains them (RFC 5576; RFC 5956, section 4.3).
    pub sources: Option<Sources>,
}

/// An audio stream of Opus packets (RFC 7587).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioStream {
    /// RTP payload type of the audio.
    pub payload_type: u8,
    /// Port to which the audio is sent. It is the port of the video if audio and video are bundled (RFC 9143).
    pub port: u16,
    /// SSRC and canonical name, if the description contains them (RFC 5576).
    pub source: Option<(u32, String)>,
}

impl AudioStream {
    /// Returns the audio stream of a media section. Returns `None` if the section has no Opus.
    fn of(media: &Media) -> Option<Self> {
        let payload_type = formats(media).iter().find(|format| format.name.eq_ignore_ascii_case(OPUS))?.payload_type;
        Some(Self { payload_type, port: media.port, source: lone_source(media) })
    }

    /// Returns the media section of the audio. Its addresses and its format of per-packet feedback are the same as in
    /// the video's section `of_video`.
    fn section(&self, video: &Description, of_video: &Media) -> Media {
        let mut media =
            Media::new(MediaType::Audio, self.port, TransportProto::Other(of_video.proto.clone()), self.payload_type);
        media.connections.clone_from(&of_video.connections);
        let mut put = |name: &str, value: String| media.add_attribute(Attribute::with_value(name, value));
        // Always write two channels (RFC 7587, section 7).
        put("rtpmap", format!("{} {OPUS}/48000/2", self.payload_type));
        put("fmtp", format!("{} sprop-stereo=1;useinbandfec=1", self.payload_type));
        for value in of_video.get_attribute_values("source-filter").flatten() {
            put("source-filter", value.to_owned());
        }
        put("extmap", "1 urn:x-steadycast:send-time".into());
        if let Some(PacketFeedback::Transport(id)) = video.feedback {
            put("extmap", format!("{id} {TRANSPORT_WIDE}"));
        }
        match video.feedback {
            Some(PacketFeedback::Congestion) => put("rtcp-fb", "* ack ccfb".into()),
            Some(PacketFeedback::Transport(_)) => put("rtcp-fb", format!("{} transport-cc", self.payload_type)),
            None => {}
        }
        if let Some((ssrc, cname)) = &self.source {
            put("ssrc", format!("{ssrc} cname:{cname}"));
        }
        if video.mux {
            media.add_attribute(Attribute::new("rtcp-mux"));
        }
        media.add_attribute(Attribute::new("sendonly"));
        media
    }
}

const OPUS: &str = "opus";

/// The SSRCs of the media and of its repair stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// SSRC of the media.
    pub media: u32,
    /// SSRC of the retransmissions or the parity.
    pub repair: u32,
    /// Canonical name of both SSRCs.
    pub cname: String,
}

impl Sources {
    /// Returns the lines of a group of two SSRCs (RFC 5576, section 4.2). Leaves out the lines of SSRCs in `named`, and
    /// adds the group's SSRCs to `named`.
    fn lines(&self, semantics: &str, named: &mut Vec<u32>) -> Vec<(&'static str, String)> {
        let Self { media, repair, cname } = self;
        let mut lines = vec![("ssrc-group", format!("{semantics} {media} {repair}"))];
        for ssrc in [*media, *repair] {
            if !named.contains(&ssrc) {
                named.push(ssrc);
                lines.push(("ssrc", format!("{ssrc} cname:{cname}")));
            }
        }
        lines
    }
}

const PARITY_ENCODING: &str = "x-steadycast-rs";

const PRIVATE_ATTRIBUTE: &str = "x-steadycast";

/// Returns the static payload type of a format. If the format has none, returns the first dynamic payload type (RFC
/// 3551, section 6).
pub(crate) fn default_payload_type(format: Option<PayloadFormat>) -> u8 {
    format.and_then(PayloadFormat::static_type).unwrap_or(96)
}

impl Description {
    /// Returns a description that has no optional features.
    pub fn bare(address: SocketAddr, format: Option<PayloadFormat>) -> Self {
        Self {
            address,
            source: None,
            ttl: None,
            mux: false,
            rtcp_port: None,
            excluded: Vec::new(),
            reports: None,
            secure: false,
            payload_type: default_payload_type(format),
            others: Vec::new(),
            format,
            config: Vec::new(),
            bandwidth: None,
            feedback: None,
            ecn: Ecn::NotEct,
            repair: None,
            parity: None,
            audio: None,
            unsupported_audio: Vec::new(),
            media: None,
            key_frames: false,
            ours: Vec::new(),
        }
    }

    /// Returns all SSRCs in the description, the media's first. Also returns whether the description has the SSRC of
    /// each other stream (retransmissions, parity and audio).
    pub fn sources(&self) -> (Vec<u32>, bool) {
        let again = self.repair.as_ref().and_then(|repair| repair.sources.as_ref());
        let covered = self.parity.as_ref().and_then(|parity| parity.sources.as_ref());
        let each = again.is_some() == self.repair.is_some() && covered.is_some() == self.parity.is_some();
        let mut all: Vec<u32> = [again, covered].into_iter().flatten().flat_map(|of| [of.media, of.repair]).collect();
        all.extend(self.media.iter().map(|(ssrc, _)| *ssrc));
        let each = each && self.audio.as_ref().is_none_or(|audio| audio.source.is_some());
        // Add the audio's SSRC only if there are others, because the first SSRC has to be the video's.
        if !all.is_empty() {
            all.extend(self.audio.iter().filter_map(|audio| audio.source.as_ref()).map(|(ssrc, _)| *ssrc));
        }
        (all, each)
    }

    /// Returns the payload types of the media.
    pub fn payload_types(&self) -> PayloadTypes {
        std::iter::once(self.payload_type).chain(self.others.iter().copied()).collect()
    }

    /// Returns the value of a key of the private attribute.
    pub fn private_value(&self, key: &str) -> Option<&str> {
        self.ours.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns the description as text. `own` is the address of the sender, and `session` is a unique number.
    pub fn write(&self, own: IpAddr, session: u64) -> String {
        let origin = Origin::with_ip_addr(session.to_string(), 1, own);
        // Use AVPF only if it is needed, because some players support only AVP.
        let early = self.feedback.is_some() || self.repair.is_some() || self.key_frames;
        let proto = match (self.secure, early) {
            (false, false) => TransportProto::RtpAvp,
            (false, true) => TransportProto::RtpAvpf,
            (true, false) => TransportProto::RtpSavp,
            (true, true) => TransportProto::RtpSavpf,
        };
        let mut media = Media::new(MediaType::Video, self.address.port(), proto, self.payload_type);
        let more = [self.repair.as_ref().map(|r| r.payload_type), self.parity.as_ref().map(|p| p.payload_type)];
        for payload_type in self.others.iter().copied().chain(more.into_iter().flatten()) {
            media.fmt += &format!(" {payload_type}");
        }
        // Write a TTL only for IPv4 multicast (RFC 8866, section 5.7).
        let group4 = self.address.ip().is_multicast() && self.address.is_ipv4();
        let ttl = if group4 { Some(self.ttl.unwrap_or(1)) } else { None };
        media.add_connection(Connection::from_ip_addr_ttl(self.address.ip(), ttl));
        if let Some(rate) = self.bandwidth {
            media.add_bandwidth(Bandwidth::new(BandwidthType::As, rate.as_bps().div_ceil(1_000)));
        }
        if let Some(rate) = self.reports {
            media.add_bandwidth(Bandwidth::new(BandwidthType::Rr, rate.as_bps()));
        }
        let (name, fmtp) = self.encoding();
        let mut put = |name: &str, value: String| media.add_attribute(Attribute::with_value(name, value));
        for payload_type in std::iter::once(self.payload_type).chain(self.others.iter().copied()) {
            put("rtpmap", format!("{payload_type} {name}/90000"));
            if let Some(fmtp) = &fmtp {
                put("fmtp", format!("{payload_type} {fmtp}"));
            }
        }
        let kind = |source: &IpAddr| if source.is_ipv4() { "IP4" } else { "IP6" };
        if let Some(source) = self.source {
            put("source-filter", format!(" incl IN {} {} {source}", kind(&source), self.address.ip()));
        }
        for source in &self.excluded {
            put("source-filter", format!(" excl IN {} {} {source}", kind(source), self.address.ip()));
        }
        if let Some(port) = self.rtcp_port {
            put("rtcp", port.to_string());
        }
        put("extmap", "1 urn:x-steadycast:send-time".into());
        match self.feedback {
            // Write an asterisk as the payload type, because RFC 8888, section 6, requires it.
            Some(PacketFeedback::Congestion) => put("rtcp-fb", "* ack ccfb".into()),
            Some(PacketFeedback::Transport(id)) => {
                put("extmap", format!("{id} {TRANSPORT_WIDE}"));
                put("rtcp-fb", format!("{} transport-cc", self.payload_type));
            }
            None => {}
        }
        if self.ecn.is_capable() {
            // Write `leap`, because ECN starts with the first packet (RFC 6679, section 6.1). The reports of RFC 8888
            // replace the ECN feedback of RFC 6679 (RFC 8888, section 7).
            let ect = if self.ecn == Ecn::Ect1 { 1 } else { 0 };
            put("ecn-capable-rtp", format!(" leap mode=setonly; ect={ect}"));
        }
        if self.key_frames {
            put("rtcp-fb", format!("{} nack pli", self.payload_type));
            put("rtcp-fb", format!("{} ccm fir", self.payload_type));
        }
        if let Some(repair) = &self.repair {
            put("rtcp-fb", format!("{} nack", self.payload_type));
            put("rtpmap", format!("{} rtx/90000", repair.payload_type));
            let kept = repair.kept.map(|kept| format!(";rtx-time={}", kept.as_nanos() / 1_000_000)).unwrap_or_default();
            put("fmtp", format!("{} apt={}{kept}", repair.payload_type, self.payload_type));
        }
        if let Some(parity) = &self.parity {
            put("rtpmap", format!("{} {PARITY_ENCODING}/90000", parity.payload_type));
        }
        let mut named = Vec::new();
        let again = self.repair.as_ref().and_then(|repair| repair.sources.as_ref()).map(|of| ("FID", of));
        let covered = self.parity.as_ref().and_then(|parity| parity.sources.as_ref()).map(|of| ("FEC-FR", of));
        // Leave out the media's SSRC if there is an SSRC group (RFC 5576), because the group's lines contain it.
        let alone = self.media.as_ref().filter(|_| again.is_none() && covered.is_none());
        for (semantics, sources) in again.into_iter().chain(covered) {
            sources.lines(semantics, &mut named).into_iter().for_each(|(name, value)| put(name, value));
        }
        if let Some((ssrc, cname)) = alone {
            put("ssrc", format!("{ssrc} cname:{cname}"));
        }
        if !self.ours.is_empty() {
            let ours: Vec<String> = self.ours.iter().map(|(k, v)| format!("{k}={v}")).collect();
            put(PRIVATE_ATTRIBUTE, ours.join(";"));
        }
        if self.mux {
            media.add_attribute(Attribute::new("rtcp-mux"));
        }
        media.add_attribute(Attribute::new("sendonly"));
        let mut whole = Session::new(origin, "steadycast");
        whole.times = vec![sdp_types::Time::new(0, 0)];
        let audio = self.audio.as_ref().map(|audio| audio.section(self, &media));
        whole.medias = std::iter::once(media).chain(audio).collect();
        let mut text = Vec::new();
        let _ = whole.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn encoding(&self) -> (&'static str, Option<String>) {
        let fmtp = match self.format {
            Some(PayloadFormat::Mpeg4) => {
                // Write profile 3 at level 5 (advanced simple), which includes everything that is sent.
                let config = (!self.config.is_empty()).then(|| format!("; config={}", hex(&self.config)));
                Some(format!("profile-level-id=245{}", config.unwrap_or_default()))
            }
            Some(PayloadFormat::H264) => {
                let sets: Vec<String> = nal_units(&self.config).map(Base64::encode_string).collect();
                let mut fmtp = "packetization-mode=1".to_owned();
                if let Some(level) = profile_level(&self.config) {
                    fmtp += &format!("; profile-level-id={}", hex(&level));
                }
                if !sets.is_empty() {
                    fmtp += &format!("; sprop-parameter-sets={}", sets.join(","));
                }
                Some(fmtp)
            }
            // The other formats need no parameters, or contain them in the stream.
            _ => None,
        };
        (self.format.map_or("x-steadycast-greedy", PayloadFormat::encoding), fmtp)
    }

    /// Reads the first video stream of a description, and its audio.
    ///
    /// # Errors
    /// The text is not a session description, or it has no video over RTP that this program can receive.
    pub fn read(text: &[u8]) -> Result<Self, SdpError> {
        let session = Session::parse(tidy(text).as_bytes())
            .map_err(|e| wrong(format!("not a session description ({e})"), "give the file that the sender wrote"))?;
        let media = video(&session);
        let media = media.ok_or_else(|| wrong("there is no video in it", "name a description with an m=video line"))?;
        // FFmpeg describes SRTP as RTP/AVP with a key.
        let secure = media.proto.contains("SAVP") || media.has_attribute("crypto");
        if !["RTP/AVP", "RTP/AVPF", "RTP/SAVP", "RTP/SAVPF"].contains(&&*media.proto) {
            let problem = format!("the video travels by {}", media.proto);
            return Err(wrong(problem, "this program takes RTP/AVP and RTP/SAVP"));
        }
        // Refuse port 0, which means that the stream is rejected (RFC 8866, section 5.14).
        if media.port == 0 {
            return Err(wrong("its video has port 0: nothing is sent", "give the port to which it is sent"));
        }
        let connection = media.connections.first().or(session.connection.as_ref());
        let connection = connection.ok_or_else(|| wrong("it has no c= line", "add the address, as c=IN IP4 …"))?;
        let told = &connection.connection_address;
        let address = connection
            .try_address()
            .map_err(|_| wrong(format!("\"{told}\" is not an address"), "write an IPv4 or IPv6 address, not a name"))?;
        let lines = Lines { session: &session, media };
        let (Format { payload_type, format, fmtp, .. }, same) = chosen(formats(media))?;
        let fmtps = std::iter::once(&fmtp).chain(same.iter().map(|offer| &offer.fmtp));
        // Take the configuration of any payload type, because one encoder produces all payload types of a format.
        let config = fmtps.map(|fmtp| config(format, fmtp)).find(|config| !config.is_empty()).unwrap_or_default();
        let ours = media.get_first_attribute_value(PRIVATE_ATTRIBUTE).flatten().unwrap_or_default();
        let ours = ours.split(';').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        let (feedback, repair) = (feedback(lines, payload_type), retransmissions(media, payload_type));
        let parity = parity_stream(media, payload_type);
        let (wanted, excluded) = sources_of(lines, address.ip);
        let audio = audio(&session, payload_type);
        Ok(Self {
            address: SocketAddr::new(address.ip, media.port),
            source: wanted.first().copied(),
            excluded,
            rtcp_port: rtcp_port(media),
            ttl: address.ttl,
            mux: media.has_attribute("rtcp-mux"),
            secure,
            payload_type,
            others: same.iter().map(|offer| offer.payload_type).collect(),
            format,
            config,
            // Ignore `b=AS` at session level, because it is for all media together.
            bandwidth: bandwidth(&media.bandwidths, "AS").map(|kbps| Rate::bps(kbps.saturating_mul(1_000))),
            reports: bandwidth(&media.bandwidths, "RR").or(bandwidth(&session.bandwidths, "RR")).map(Rate::bps),
            feedback,
            repair,
            ecn: ecn(lines),
            parity,
            unsupported_audio: if audio.is_none() { audio_formats(&session, payload_type) } else { Vec::new() },
            audio,
            media: lone_source(media),
            key_frames: rtcp_feedback(media, payload_type).any(|words| words == ["nack", "pli"]),
            ours,
        })
    }
}

/// Makes the descriptions of cameras acceptable to the strict parser. Removes superfluous blanks (RFC 8866, section 9),
/// comments and the text before `v=`. Replaces lines that are not used.
fn tidy(text: &[u8]) -> String {
    let text: Vec<u8> = text.iter().map(|byte| if *byte == b'\t' { b' ' } else { *byte }).collect();
    let text = plain_text(&text);
    let begins =
        |line: &str| line.trim_start().strip_prefix('v').is_some_and(|rest| rest.trim_start().starts_with('='));
    let before = text.lines().position(begins).unwrap_or(0);
    let is_comment = |line: &&str| line.trim_start().starts_with(['#', ';']);
    let tidied = |line: &str| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.split_once('=') {
            Some(("a", value)) => {
                let (name, value) = value.split_once(':').map_or((value, None), |(name, value)| (name, Some(value)));
                format!("a={name}{}", value.map(|value| format!(":{}", value.trim_start())).unwrap_or_default())
            }
            Some((key, _)) if key.len() == 1 && !"vmcb".contains(key) => "a=-".to_owned(),
            _ => line,
        }
    };
    text.lines().skip(before).filter(|line| !is_comment(line)).map(tidied).collect::<Vec<_>>().join("\n")
}

/// Returns the first video whose port is not 0. If there is none, returns the first video. Port 0 means that the video
/// is not sent.
fn video(session: &Session) -> Option<&Media> {
    let all = || session.medias.iter().filter(|media| media.media == "video");
    all().find(|media| media.port != 0).or_else(|| all().next())
}

/// Returns the audio sections of a description. Leaves out those with port 0, which means that nothing is sent.
fn audio_sections(session: &Session) -> impl Iterator<Item = &Media> {
    session.medias.iter().filter(|media| media.media == "audio" && media.port != 0)
}

/// Returns the first Opus stream whose payload type is not `video`, the payload type of the video.
fn audio(session: &Session, video: u8) -> Option<AudioStream> {
    audio_sections(session).filter_map(AudioStream::of).find(|audio| audio.payload_type != video)
}

/// Returns the formats of all audio sections, each with its payload type. `video` is the payload type of the video.
fn audio_formats(session: &Session, video: u8) -> Vec<String> {
    let named = |format: Format| match format.payload_type == video {
        // Say so, because this is why even Opus is not supported here.
        true => format!("{} with the payload type of the video ({video})", format.name),
        false => named(&format),
    };
    audio_sections(session).flat_map(formats).map(named).collect()
}

/// Returns an encoding with its payload type, as messages show it.
fn named(format: &Format) -> String {
    format!("{} ({})", format.name, format.payload_type)
}

/// Encodings of packets that repair the packets of another payload type.
const REPAIR_ENCODINGS: [&str; 7] = ["rtx", "red", "ulpfec", "flexfec", "flexfec-03", "parityfec", PARITY_ENCODING];

/// Returns whether packets are sent in another order than the decoding order, which is not supported.
fn interleaved(offer: &Format) -> bool {
    let above = |key: &str, least: u32| {
        parameter(&offer.fmtp, key).and_then(|text| text.trim().parse().ok()).is_some_and(|n: u32| n > least)
    };
    match offer.format {
        // Mode 2 is the interleaved mode (RFC 6184, section 8.1).
        Some(PayloadFormat::H264) => above("packetization-mode", 1),
        // If the value is above 0, NAL units may be sent in another order than the decoding order (RFC 7798, section
        // 7.1).
        Some(PayloadFormat::H265) => above("sprop-max-don-diff", 0),
        _ => false,
    }
}

fn config(format: Option<PayloadFormat>, fmtp: &str) -> Vec<u8> {
    match format {
        Some(PayloadFormat::Mpeg4) => parameter(fmtp, "config").and_then(unhex).unwrap_or_default(),
        Some(PayloadFormat::H264) => described(fmtp, &["sprop-parameter-sets"]),
        // The parameters are defined in RFC 7798, section 7.1.
        Some(PayloadFormat::H265) => described(fmtp, &["sprop-vps", "sprop-sps", "sprop-pps"]),
        _ => Vec::new(),
    }
}

/// Returns the first payload type that is supported. If there is none, returns the first one that is video. Also
/// returns the other payload types of the same format.
fn chosen(mut offers: Vec<Format>) -> Result<(Format, Vec<Format>), SdpError> {
    let beside = |offer: &Format| REPAIR_ENCODINGS.iter().any(|name| offer.name.eq_ignore_ascii_case(name));
    let best = offers
        .iter()
        .position(|offer| offer.format.is_some() && !interleaved(offer))
        .or_else(|| offers.iter().position(|offer| offer.format.is_some()))
        // Accept unsupported video, whose packets are counted but not decoded.
        .or_else(|| offers.iter().position(|offer| !beside(offer)))
        .or(if offers.is_empty() { None } else { Some(0) });
    let Some(best) = best else {
        return Err(wrong("its m= line has no payload type", "add a number from 0 to 127"));
    };
    let best = offers.remove(best);
    if interleaved(&best) {
        let problem = format!("the {} packets of type {} are interleaved", best.name, best.payload_type);
        return Err(wrong(problem, "have the sender send them in decoding order (packetization-mode 0 or 1)"));
    }
    offers.retain(|offer| best.format.is_some() && offer.format == best.format && !interleaved(offer));
    Ok((best, offers))
}

/// Returns the payload types of a description's first video stream, each with its encoding.
pub fn offered(text: &[u8]) -> Vec<String> {
    let session = Session::parse(tidy(text).as_bytes()).ok();
    let media = session.as_ref().and_then(video);
    media.map(|media| formats(media).iter().map(named).collect()).unwrap_or_default()
}

/// Returns the first supported encoding whose clock is not 90 kHz (RFC 6416, section 7.1). The result has its name, its
/// payload type and its clock in Hz.
pub fn other_clock(text: &[u8]) -> Option<(String, u8, String)> {
    let session = Session::parse(tidy(text).as_bytes()).ok()?;
    formats(video(&session)?).into_iter().find_map(|offer| {
        let mut words = offer.name.split('/');
        let (name, clock) = (words.next()?, words.next()?);
        PayloadFormat::of_encoding(name)?;
        Some((name.to_owned(), offer.payload_type, clock.to_owned()))
    })
}

/// Returns the sources that are accepted and the sources that are excluded (RFC 4570, section 3).
fn sources_of(lines: Lines<'_>, to: IpAddr) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut wanted, mut excluded) = (Vec::new(), Vec::new());
    for filter in lines.values("source-filter") {
        let mut words = filter.split_whitespace();
        let list = match words.next() {
            Some("incl") => &mut wanted,
            Some("excl") => &mut excluded,
            _ => continue,
        };
        // Skip the network and the address type, which follow from the addresses.
        let destination = words.nth(2);
        if destination.is_some_and(|word| word == "*" || word.parse() == Ok(to)) {
            list.extend(words.filter_map(|word| word.parse::<IpAddr>().ok()));
        }
    }
    (wanted, excluded)
}

/// Returns the port in `a=rtcp` (RFC 3605, section 2.1).
fn rtcp_port(media: &Media) -> Option<u16> {
    let said = media.get_first_attribute_value("rtcp").flatten()?;
    said.split_whitespace().next()?.parse().ok().filter(|port| *port > 0)
}

/// Returns the bandwidth of the type `kind`, in the unit of this type.
fn bandwidth(lines: &[Bandwidth], kind: &str) -> Option<u64> {
    lines.iter().find(|line| line.bwtype == kind).map(|line| line.bandwidth)
}

fn retransmissions(media: &Media, payload_type: u8) -> Option<Retransmissions> {
    let (own, kept) = lines::retransmissions(media, payload_type)?;
    Some(Retransmissions { payload_type: own, kept, sources: sources(media, "FID") })
}

fn parity_stream(media: &Media, payload_type: u8) -> Option<ParityStream> {
    let own = formats(media).iter().find(|format| format.name.eq_ignore_ascii_case(PARITY_ENCODING))?.payload_type;
    (own != payload_type).then(|| ParityStream { payload_type: own, sources: sources(media, "FEC-FR") })
}

/// Returns the first group of two SSRCs that has these semantics.
fn sources(media: &Media, semantics: &str) -> Option<Sources> {
    let (media_source, repair) = ssrc_group(media, semantics)?;
    let own = format!("{media_source} cname:");
    let cname = media.get_attribute_values("ssrc").flatten().find_map(|said| said.strip_prefix(&own));
    Some(Sources { media: media_source, repair, cname: cname.unwrap_or_default().to_owned() })
}

/// Returns the first SSRC that has a canonical name. Returns `None` if there are SSRC groups.
fn lone_source(media: &Media) -> Option<(u32, String)> {
    if media.has_attribute("ssrc-group") {
        return None;
    }
    let (ssrc, cname) = media.get_attribute_values("ssrc").flatten().find_map(|said| said.split_once(" cname:"))?;
    Some((ssrc.parse().ok()?, cname.to_owned()))
}

/// Returns the NAL units in these `fmtp` parameters. A start code precedes each of them.
fn described(line: &str, keys: &[&str]) -> Vec<u8> {
    keys.iter()
        .filter_map(|key| parameter(line, key))
        .flat_map(|sets| sets.split(','))
        .filter_map(unbase64)
        .filter(|set| !set.is_empty())
        .flat_map(|set| [vec![0, 0, 0, 1], set].concat())
        .collect()
}

/// Returns the format of per-packet feedback. Prefers RFC 8888, because it includes ECN.
fn feedback(lines: Lines<'_>, payload_type: u8) -> Option<PacketFeedback> {
    let asks = |what: &[&str]| rtcp_feedback(lines.media, payload_type).any(|words| words == what);
    if asks(&["ack", "ccfb"]) {
        return Some(PacketFeedback::Congestion);
    }
    lines.extension(TRANSPORT_WIDE).filter(|_| asks(&["transport-cc"])).map(PacketFeedback::Transport)
}

/// Returns the ECN codepoint in `a=ecn-capable-rtp` (RFC 6679, section 6.1). If the attribute does not say which one,
/// it is ECT(0).
fn ecn(lines: Lines<'_>) -> Ecn {
    let Some(said) = lines.values("ecn-capable-rtp").next() else { return Ecn::NotEct };
    let words = || said.split([' ', ';']).filter(|word| !word.is_empty());
    match words().find_map(|word| word.strip_prefix("ect=")) {
        // In this mode, the sender does not set the ECN field.
        _ if words().any(|word| word == "mode=readonly") => Ecn::NotEct,
        Some("1") => Ecn::Ect1,
        _ => Ecn::Ect0,
    }
}

/// Decodes base64 (RFC 4648, section 4). The padding may be missing.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    Base64Unpadded::decode_vec(text.trim().trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(format: Option<PayloadFormat>, config: &[u8]) -> Description {
        Description {
            ttl: Some(4),
            payload_type: 96,
            config: config.to_vec(),
            bandwidth: Some(Rate::kbps(2_000)),
            ours: vec![("controller".into(), "asmp".into()), ("mode".into(), "repaired".into())],
            ..Description::bare("239.1.2.3:5004".parse().unwrap(), format)
        }
    }

    fn retransmissions() -> Retransmissions {
        let sources = Sources { media: 1_111, repair: 4_000_000_000, cname: "me@desk".into() };
        Retransmissions { payload_type: 97, kept: Some(Span::secs(1)), sources: Some(sources) }
    }

    fn parity() -> ParityStream {
        let sources = Sources { media: 1_111, repair: 2_222, cname: "me@desk".into() };
        ParityStream { payload_type: 98, sources: Some(sources) }
    }

    fn audio() -> AudioStream {
        AudioStream { payload_type: 111, port: 5_006, source: Some((3_333, "me@desk".into())) }
    }

    #[test]
    fn a_description_with_a_key_is_encrypted_whatever_its_profile() {
        for (crypto, secure) in [("", false), ("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AAAA\r\n", true)] {
            let text = format!(
                "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\nm=video 5 RTP/AVP 96\r\n\
                 a=rtpmap:96 H264/90000\r\n{crypto}"
            );
            assert_eq!(Description::read(text.as_bytes()).unwrap().secure, secure, "{text}");
        }
    }

    #[test]
    fn descriptions_round_trip() {
        let own: IpAddr = "10.0.0.1".parse().unwrap();
        let sets = [0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1e, 0xd9, 0, 0, 0, 1, 0x68, 0xce, 0x3c, 0x80];
        let all = [
            description(Some(PayloadFormat::Mpeg4), &[0, 0, 1, 0xb0, 0xf5]),
            Description { payload_type: 32, mux: true, ..description(Some(PayloadFormat::Mpeg2), &[]) },
            Description { source: Some(own), ..description(Some(PayloadFormat::H263p), &[]) },
            Description { excluded: vec![own], rtcp_port: Some(9_099), ..description(Some(PayloadFormat::Mpeg4), &[]) },
            Description { reports: Some(Rate::bps(500)), ..description(Some(PayloadFormat::Mpeg4), &[]) },
            Description { reports: Some(Rate::ZERO), ..description(Some(PayloadFormat::Mpeg4), &[]) },
            Description { secure: true, media: Some((7, "a b@c".into())), ..description(None, &[]) },
            Description { secure: true, bandwidth: None, ..description(Some(PayloadFormat::H264), &sets) },
            Description { address: "[2001:db8::2]:6000".parse().unwrap(), ttl: None, ..description(None, &[]) },
            Description { feedback: Some(PacketFeedback::Congestion), secure: true, ..description(None, &[]) },
            Description { feedback: Some(PacketFeedback::Transport(14)), ..description(None, &[]) },
            Description { feedback: Some(PacketFeedback::Congestion), ecn: Ecn::Ect1, ..description(None, &[]) },
            Description { feedback: Some(PacketFeedback::Congestion), ecn: Ecn::Ect0, ..description(None, &[]) },
            Description { repair: Some(retransmissions()), ..description(Some(PayloadFormat::H264), &sets) },
            Description { key_frames: true, ..description(Some(PayloadFormat::H264), &sets) },
            Description { others: vec![100, 35], ..description(Some(PayloadFormat::H264), &sets) },
            Description { parity: Some(parity()), ..description(Some(PayloadFormat::Mpeg4), &[0, 0, 1, 0xb0]) },
            Description { repair: Some(retransmissions()), parity: Some(parity()), ..description(None, &[]) },
            Description { audio: Some(audio()), mux: true, ..description(Some(PayloadFormat::H264), &sets) },
            Description { audio: Some(AudioStream { source: None, ..audio() }), ..description(None, &[]) },
            Description {
                parity: Some(ParityStream { sources: None, ..parity() }),
                key_frames: true,
                ..description(None, &[])
            },
            Description {
                repair: Some(Retransmissions { kept: None, sources: None, ..retransmissions() }),
                ..description(None, &[])
            },
        ];
        // Add the other formats, which have no parameters.
        for one in all.into_iter().chain(PayloadFormat::ALL[4..].iter().map(|format| description(Some(*format), &[]))) {
            let text = one.write(own, 17);
            assert_eq!(Description::read(text.as_bytes()), Ok(one), "{text}");
        }
    }

    #[test]
    fn the_lines_are_those_that_standard_receivers_expect() {
        let text =
            description(Some(PayloadFormat::Mpeg4), &[0, 0, 1, 0xb0, 0xf5]).write("10.0.0.1".parse().unwrap(), 17);
        for line in [
            "o=- 17 1 IN IP4 10.0.0.1\r\n",
            "m=video 5004 RTP/AVP 96\r\nc=IN IP4 239.1.2.3/4\r\nb=AS:2000\r\n",
            "a=rtpmap:96 MP4V-ES/90000\r\na=fmtp:96 profile-level-id=245; config=000001B0F5\r\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn feedback_attributes_follow_the_rfcs() {
        let own = "10.0.0.1".parse().unwrap();
        let text = |feedback| Description { feedback: Some(feedback), ..description(None, &[]) }.write(own, 17);
        let ccfb = text(PacketFeedback::Congestion);
        assert!(ccfb.contains("m=video 5004 RTP/AVPF 96\r\n") && ccfb.contains("a=rtcp-fb:* ack ccfb\r\n"), "{ccfb}");
        let twcc = text(PacketFeedback::Transport(14));
        assert!(twcc.contains("a=rtcp-fb:96 transport-cc\r\n"), "{twcc}");
        assert!(twcc.contains(&format!("a=extmap:14 {TRANSPORT_WIDE}\r\n")), "{twcc}");
    }

    #[test]
    fn the_ecn_attribute_follows_rfc_6679() {
        let text = Description { ecn: Ecn::Ect1, ..description(None, &[]) }.write("10.0.0.1".parse().unwrap(), 17);
        assert!(text.contains("a=ecn-capable-rtp: leap mode=setonly; ect=1\r\n"), "{text}");
        let read = |line: &str| {
            let head = "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\nm=video 5 RTP/AVPF 96\r\n";
            Description::read(format!("{head}{line}\r\n").as_bytes()).unwrap().ecn
        };
        for (line, ecn) in [
            ("a=ecn-capable-rtp: ice,rtp mode=setread;ect=1", Ecn::Ect1),
            ("a=ecn-capable-rtp:leap ect=0", Ecn::Ect0),
            ("a=ecn-capable-rtp: rtp", Ecn::Ect0),
            ("a=ecn-capable-rtp: rtp ect=random; mode=setonly", Ecn::Ect0),
            ("a=ecn-capable-rtp: rtp mode=readonly; ect=1", Ecn::NotEct),
            ("a=rtcp-fb:* ack ccfb", Ecn::NotEct),
        ] {
            assert_eq!(read(line), ecn, "{line}");
        }
    }

    #[test]
    fn the_retransmission_attributes_follow_rfc_4588() {
        let own = "10.0.0.1".parse().unwrap();
        let text = Description { repair: Some(retransmissions()), ..description(None, &[]) }.write(own, 17);
        for line in [
            "m=video 5004 RTP/AVPF 96 97\r\n",
            "a=rtcp-fb:96 nack\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96;rtx-time=1000\r\n",
            "a=ssrc-group:FID 1111 4000000000\r\na=ssrc:1111 cname:me@desk\r\na=ssrc:4000000000 cname:me@desk\r\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn parity_stands_beside_the_video_as_a_payload_type_and_a_source_of_its_own() {
        let own = "10.0.0.1".parse().unwrap();
        let text = Description { parity: Some(parity()), ..description(None, &[]) }.write(own, 17);
        for line in [
            "m=video 5004 RTP/AVP 96 98\r\n",
            "a=rtpmap:98 x-steadycast-rs/90000\r\na=ssrc-group:FEC-FR 1111 2222\r\na=ssrc:1111 cname:me@desk\r\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let both = Description { repair: Some(retransmissions()), parity: Some(parity()), ..description(None, &[]) };
        let text = both.write(own, 17);
        assert_eq!(text.matches("a=ssrc:1111 ").count(), 1, "{text}");
        // The three cases are the payload type of the video itself, an invalid payload type, and an unknown encoding.
        for wrong in ["96 x-steadycast-rs/90000", "200 x-steadycast-rs/90000", "98 x-steadycast-rsx/90000"] {
            let text = text.replace("98 x-steadycast-rs/90000", wrong);
            assert_eq!(Description::read(text.as_bytes()).unwrap().parity, None, "{wrong}");
        }
    }

    #[test]
    fn retransmissions_are_read_where_they_are_asked_for_and_are_of_the_videos_type() {
        let read = |lines: &str| {
            let head = "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\n\
                        m=video 5 RTP/AVPF 96 97 98 99\r\na=rtpmap:96 H264/90000\r\n";
            Description::read(format!("{head}{lines}").as_bytes()).unwrap().repair
        };
        let of_two = "a=rtpmap:98 H265/90000\r\na=rtpmap:99 rtx/90000\r\na=fmtp:99 apt=98\r\n\
                          a=rtpmap:97 RTX/90000\r\na=fmtp:97 rtx-time=300; apt=96\r\n";
        let found = read(&format!("a=rtcp-fb:96 nack\r\n{of_two}")).unwrap();
        assert_eq!((found.payload_type, found.kept, found.sources), (97, Some(Span::millis(300)), None));
        for none in [
            of_two,
            &format!("a=rtcp-fb:96 nack pli\r\n{of_two}"),
            "a=rtcp-fb:96 nack\r\n",
            "a=rtcp-fb:* nack\r\na=rtpmap:97 rtx/90000\r\n",
            "a=rtcp-fb:* nack\r\na=rtpmap:96 rtx/90000\r\na=fmtp:96 apt=96\r\n",
            "a=rtcp-fb:* nack\r\na=rtpmap:200 rtx/90000\r\na=fmtp:200 apt=96\r\n",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
        // An SSRC group that is not valid is ignored.
        let half = format!("a=rtcp-fb:96 nack\r\n{of_two}a=ssrc-group:FID 12\r\n");
        assert_eq!(read(&half).unwrap().sources, None);
    }

    #[test]
    fn packet_feedback_is_read_from_standard_descriptions() {
        let read = |lines: &str| {
            let head = "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\nm=video 5 RTP/AVPF 96\r\n";
            Description::read(format!("{head}{lines}").as_bytes()).unwrap().feedback
        };
        let extmap = format!("a=extmap:3/sendonly {TRANSPORT_WIDE}\r\n");
        assert_eq!(read("a=rtcp-fb:96 ack ccfb\r\n"), Some(PacketFeedback::Congestion));
        assert_eq!(read(&format!("a=rtcp-fb:* transport-cc\r\n{extmap}")), Some(PacketFeedback::Transport(3)));
        let both = format!("a=rtcp-fb:96 transport-cc\r\na=rtcp-fb:* ack ccfb\r\n{extmap}");
        assert_eq!(read(&both), Some(PacketFeedback::Congestion));
        // The cases are another payload type, no header extension, an invalid id, and no request for feedback.
        for none in [
            "a=rtcp-fb:97 ack ccfb\r\n",
            "a=rtcp-fb:96 transport-cc\r\n",
            &format!("a=rtcp-fb:96 transport-cc\r\na=extmap:15 {TRANSPORT_WIDE}\r\n"),
            &extmap,
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    /// Reads a description that has one video section.
    fn read(above: &str, formats: &str, lines: &str) -> Result<Description, SdpError> {
        let head = "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nc=IN IP4 232.9.9.1/16\r\n";
        let text = format!("{head}{above}m=video 5004 RTP/AVPF {formats}\r\n{lines}");
        Description::read(text.as_bytes())
    }

    #[test]
    fn lines_above_the_sections_hold_for_the_video_unless_it_has_its_own() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let of = |above: &str, lines: &str| {
            let read = read(&format!("t=0 0\r\n{above}"), "32", lines).unwrap();
            (read.source, read.excluded)
        };
        for (above, lines, source) in [
            ("a=source-filter: incl IN IP4 * 10.0.0.7\r\n", "", ip("10.0.0.7")),
            ("a=source-filter: incl IN IP4 232.9.9.1 10.0.0.7 10.0.0.8\r\n", "", ip("10.0.0.7")),
            ("a=source-filter:incl IN * * 10.0.0.7\r\n", "", ip("10.0.0.7")),
            ("", "a=source-filter: incl IN IP4 * 10.0.0.7\r\n", ip("10.0.0.7")),
            (
                "a=source-filter: incl IN IP4 * 10.0.0.7\r\n",
                "a=source-filter: incl IN IP4 232.9.9.1 10.0.0.9\r\n",
                ip("10.0.0.9"),
            ),
            ("a=source-filter: incl IN IP4 232.9.9.2 10.0.0.7\r\n", "", None),
            ("a=source-filter: incl IN IP4\r\n", "", None),
            ("a=source-filter: incl IN IP4 * not-an-address\r\n", "", None),
        ] {
            assert_eq!(of(above, lines), (source, Vec::new()), "{above}{lines}");
        }
        let without = vec!["10.0.0.7".parse().unwrap(), "10.0.0.8".parse().unwrap()];
        assert_eq!(of("a=source-filter: excl IN IP4 * 10.0.0.7 10.0.0.8\r\n", ""), (None, without));
        let above = format!("t=0 0\r\na=extmap:5 {TRANSPORT_WIDE}\r\na=ecn-capable-rtp: rtp ect=1\r\n");
        let common = read(&above, "32", "a=rtcp-fb:32 transport-cc\r\n").unwrap();
        assert_eq!((common.feedback, common.ecn), (Some(PacketFeedback::Transport(5)), Ecn::Ect1));
    }

    #[test]
    fn the_first_type_that_can_be_taken_apart_is_taken_wherever_it_stands() {
        let maps = "a=rtpmap:96 H264/90000\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\na=rtpmap:116 red/90000\r\n\
                    a=rtpmap:117 ulpfec/90000\r\na=rtpmap:98 H264/90000\r\na=fmtp:98 packetization-mode=2\r\n\
                    a=rtcp-fb:* nack\r\n";
        for formats in ["97 96", "96 97", "116 117 97 96", "33 26 97 96", "98 97 96", "26 96 97 98"] {
            let read = read("t=0 0\r\n", formats, maps).unwrap();
            assert_eq!((read.payload_type, read.format), (96, Some(PayloadFormat::H264)), "{formats}");
            assert_eq!(read.repair.is_some(), formats.contains("97"), "{formats}");
        }
        for (formats, payload_type) in [("33", 33), ("97 33", 33), ("97 116", 97), ("26 33", 26)] {
            let read = read("t=0 0\r\n", formats, maps).unwrap();
            assert_eq!((read.payload_type, read.format), (payload_type, None), "{formats}");
        }
        let text = "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nt=0 0\r\nm=video 5 RTP/AVP 33 26 97 99\r\n\
                    a=rtpmap:97 rtx/90000\r\n";
        assert_eq!(offered(text.as_bytes()), ["MP2T (33)", "JPEG (26)", "rtx (97)", "99 (99)"]);
    }

    #[test]
    fn audio_that_is_not_supported_is_named_and_all_other_audio_is_not() {
        let read = |audio: &str| {
            let text = format!(
                "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n\
                 m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n{audio}"
            );
            Description::read(text.as_bytes()).unwrap()
        };
        for (audio, named) in [
            ("", &[][..]),
            ("m=audio 0 RTP/AVP 0\n", &[]),
            ("m=audio 5006 RTP/AVP 0\n", &["PCMU (0)"]),
            ("m=audio 5006 RTP/AVP 8 101\na=rtpmap:101 telephone-event/8000\n", &["PCMA (8)", "telephone-event (101)"]),
            ("m=audio 5006 RTP/AVP 97\na=rtpmap:97 MPEG4-GENERIC/48000/2\n", &["MPEG4-GENERIC (97)"]),
            ("m=audio 5006 RTP/AVP 96\na=rtpmap:96 opus/48000/2\n", &["opus with the payload type of the video (96)"]),
            ("m=audio 5006 RTP/AVP 0 97\na=rtpmap:97 opus/48000/2\n", &[]),
            ("m=audio 5006 RTP/AVP 0\nm=audio 5008 RTP/AVP 97\na=rtpmap:97 OPUS/48000/2\n", &[]),
        ] {
            let read = read(audio);
            assert_eq!(read.unsupported_audio, named, "{audio}");
            assert_eq!(read.audio.is_some(), audio.to_lowercase().contains("97 opus"), "{audio}");
        }
    }

    #[test]
    fn blanks_and_unused_lines_do_not_change_a_description() {
        let text = "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\na=tool:x\n\
                    m=video 5004 RTP/AVP 97 96\nb=AS:500\na=rtpmap:96 H264/90000\na=rtpmap:97 rtx/90000\n\
                    a=fmtp:97 apt=96;rtx-time=300\na=rtcp-fb:96 nack\na=rtcp:7001 IN IP4 127.0.0.1\n\
                    a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LAHtkBYJaE,aMuDyyA=\n";
        let expected = Description::read(text.as_bytes()).unwrap();
        let said = expected.repair.as_ref().is_some_and(|repair| repair.kept.is_some());
        assert!(said && expected.config.len() == 22 && expected.rtcp_port == Some(7_001), "{expected:?}");
        for (from, to) in [
            (" ", "  "),
            (" ", "\t"),
            ("\n", " \n"),
            ("\n", "\r\n\r\n"),
            (":9", ": 9"),
            (";", " ; "),
            ("=3", " = 3"),
            ("s=x", "s="),
            ("o=- 1 1", "o=my camera -1 99999999999999999999999"),
            ("t=0 0", "t=0"),
            ("t=0 0", "i=\u{e9}\ne=?\nr=7d 1h 0 25h\nz=0\nk=clear:x\nt=now"),
            ("o=- 1 1 IN IP4 127.0.0.1\ns=x\n", ""),
            ("m=video", "m=video 0 RTP/AVP 96\na=rtpmap:96 H265/90000\nm=audio 9 RTP/AVP 0\nm=video"),
            ("H264/90000", "h264"),
        ] {
            let odd = text.replace(from, to);
            assert_ne!(odd, text);
            let read = Description::read(odd.as_bytes());
            let read = read.map(|read| Description { unsupported_audio: Vec::new(), ..read });
            assert_eq!(read, Ok(expected.clone()), "{odd}");
        }
        for (from, to, said) in [
            ("RTP/AVP", "RTP/AVP/TCP", "travels by RTP/AVP/TCP"),
            ("video 5004", "video 0", "port 0"),
            ("AVP 97 96", "AVP 200", "no payload type"),
        ] {
            let error = Description::read(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.problem.contains(said), "{error}");
        }
        let clock = text.replace("H264/90000", "H264/1000");
        assert_eq!(Description::read(clock.as_bytes()).unwrap().format, None);
        assert_eq!(offered(clock.as_bytes()), ["rtx (97)", "H264/1000 (96)"]);
    }

    #[test]
    fn all_types_of_the_chosen_format_are_taken_and_no_others() {
        let h264 = "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=0\r\na=rtpmap:97 h264/90000\r\n\
                    a=fmtp:97 packetization-mode=1; sprop-parameter-sets=Z0LAHtkBYJaE,aMuDyyA=\r\n\
                    a=rtpmap:98 VP8/90000\r\na=rtpmap:99 H264/90000\r\na=fmtp:99 packetization-mode=2\r\n\
                    a=rtpmap:100 rtx/90000\r\na=fmtp:100 apt=96\r\na=rtpmap:101 H264/1000\r\n";
        for (formats, first, taken) in [
            ("96 97", 96, &[96, 97][..]),
            ("97 96", 97, &[96, 97]),
            ("99 100 96 98 97 101", 96, &[96, 97]),
            ("98 96 97", 98, &[98]),
            ("101 97", 97, &[97]),
            ("96", 96, &[96]),
        ] {
            let read = read("t=0 0\r\n", formats, h264).unwrap();
            assert_eq!(read.payload_type, first, "{formats}");
            let all: Vec<u8> = (0..=255).filter(|each| read.payload_types().contains(*each)).collect();
            assert_eq!(all, taken, "{formats}");
            assert_eq!(read.config.is_empty(), !taken.contains(&97), "{formats}");
        }
    }

    #[test]
    fn text_around_a_description_does_not_change_it() {
        let lines = [
            "v=0",
            "o=- 0 0 IN IP4 127.0.0.1",
            "s=No Name",
            "c=IN IP4 127.0.0.1",
            "t=0 0",
            "a=tool:libavformat 59.27.100",
            "m=video 6400 RTP/AVP 96",
            "a=rtpmap:96 H264/90000",
            "a=fmtp:96 packetization-mode=1",
        ];
        let plain = Description::read(lines.join("\r\n").as_bytes());
        assert!(plain.as_ref().is_ok_and(|read| read.format == Some(PayloadFormat::H264)), "{plain:?}");
        let before = [
            "",
            "SDP:\n",
            "SDP:\r\n\r\n",
            "\u{feff}SDP:\n",
            "\n\n",
            "# a camera\n",
            "; x\n\n",
            " \t\n",
            "Output #0, rtp, to 'rtp://127.0.0.1:6400':\n  Metadata:\n    encoder : Lavf59\nSDP:\n",
            "version\nSDP:\n",
        ];
        let after = ["", "\n", "\r\n\r\n", "\n\n\n", "\n# the end\n"];
        for before in before {
            for end in ["\n", "\r\n", "\r\n\r\n", "\n# comment\n"] {
                for blank in ["", "  ", "\t"] {
                    for after in after {
                        let text = format!("{before}{blank}{}{after}", lines.join(&format!("{end}{blank}")));
                        assert_eq!(Description::read(text.as_bytes()), plain, "{text:?}");
                    }
                }
            }
        }
        // A text that contains no session description is refused, even if it begins like the texts above.
        for none in ["SDP:\n", "SDP:\nnothing\n", "# v=0\n", "a v=0\nm=video 5 RTP/AVP 96\n"] {
            let error = Description::read(none.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("not a session description"), "{none:?}: {error}");
        }
    }

    #[test]
    fn an_encoding_with_another_clock_rate_is_reported_with_it() {
        for format in PayloadFormat::ALL {
            let name = format.encoding();
            for clock in ["1000", "8000", "25", "90001", "48000"] {
                let text = format!(
                    "SDP:\nv=0\nc=IN IP4 1.2.3.4\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 {name}/{clock}\n"
                );
                assert_eq!(Description::read(text.as_bytes()).map(|read| read.format), Ok(None), "{text}");
                assert_eq!(other_clock(text.as_bytes()), Some((name.to_owned(), 96, clock.to_owned())));
                let right = text.replace(&format!("/{clock}"), "/90000");
                assert_eq!(Description::read(right.as_bytes()).map(|read| read.format), Ok(Some(format)));
                assert_eq!(other_clock(right.as_bytes()), None);
            }
        }
    }

    #[test]
    fn interleaved_packets_are_refused_with_the_reason() {
        for (name, fmtp, taken) in [
            ("H264", "packetization-mode=2; sprop-interleaving-depth=4", false),
            ("H264", "packetization-mode=1", true),
            ("H264", "packetization-mode=0;sprop-max-don-diff=0", true),
            ("H265", "sprop-max-don-diff=3", false),
            ("H265", "sprop-max-don-diff=0", true),
            ("MP4V-ES", "packetization-mode=2", true),
        ] {
            let lines = format!("a=rtpmap:96 {name}/90000\r\na=fmtp:96 {fmtp}\r\n");
            match read("t=0 0\r\n", "96", &lines) {
                Ok(_) => assert!(taken, "{fmtp}"),
                Err(error) => assert!(!taken && error.problem.contains("interleaved"), "{fmtp}: {error}"),
            }
        }
    }

    #[test]
    fn the_port_and_the_bandwidth_of_reports_are_those_that_are_said() {
        let of = |above: &str, lines: &str| {
            let read = read(above, "32", lines).unwrap();
            (read.rtcp_port, read.reports.map(Rate::as_bps))
        };
        assert_eq!(of("t=0 0\r\n", "a=rtcp:6499 IN IP4 1.2.3.4\r\n"), (Some(6_499), None));
        assert_eq!(of("t=0 0\r\n", "a=rtcp:0\r\n"), (None, None));
        assert_eq!(of("t=0 0\r\n", "b=AS:100\r\nb=RS:0\r\nb=RR:0\r\n"), (None, Some(0)));
        assert_eq!(of("b=RR:800\r\nt=0 0\r\n", ""), (None, Some(800)));
        assert_eq!(of("b=RR:0\r\nt=0 0\r\n", "b=RR:900\r\n"), (None, Some(900)));
    }

    #[test]
    fn ffmpegs_description_is_read() {
        let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                    a=tool:libavformat\r\n\
                    m=video 5004 RTP/AVP 96\r\na=rtpmap:96 MP4V-ES/90000\r\n\
                    a=fmtp:96 profile-level-id=1;config=000001B001\r\n";
        let read = Description::read(text.as_bytes()).unwrap();
        assert_eq!((read.format, read.config), (Some(PayloadFormat::Mpeg4), vec![0, 0, 1, 0xb0, 1]));
        assert_eq!(read.address, "127.0.0.1:5004".parse().unwrap());
    }

    #[test]
    fn parameter_sets_of_h265_are_read_in_the_order_in_which_a_decoder_needs_them() {
        let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                    m=video 5004 RTP/AVP 96\r\n\
                    a=rtpmap:96 H265/90000\r\na=fmtp:96 sprop-pps=RAE=; sprop-vps=QAE=; sprop-sps=QgE=\r\n";
        let read = Description::read(text.as_bytes()).unwrap();
        assert_eq!(read.config, [0, 0, 0, 1, 0x40, 1, 0, 0, 0, 1, 0x42, 1, 0, 0, 0, 1, 0x44, 1]);
    }

    #[test]
    fn control_characters_are_removed_from_descriptions_and_errors() {
        let head =
            "v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=\u{1b}[2Jx\r\nc=IN IP4 1.2.3.4\r\nt=0 0\r\nm=video 5 RTP/AVP 96\r\n";
        let tool = "a=tool:\u{9b}31m\r\na=x-steadycast:controller=\u{1b}[31mX\u{1b}]0\u{7}\r\n";
        let read = Description::read(format!("{head}{tool}").as_bytes()).unwrap();
        assert_eq!(read.private_value("controller"), Some("[31mX]0"));
        assert!(!format!("{read:?}").contains("\\u{"), "{read:?}");
        let error = Description::read(b"v=0\r\n\x1b[31m=\x07\r\n").unwrap_err().to_string();
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }

    #[test]
    fn unusable_descriptions_are_errors_with_a_remedy() {
        for (text, what) in [
            ("nonsense", "not a session description"),
            ("v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nt=0 0\r\nm=audio 5 RTP/AVP 0\r\n", "no video"),
            ("v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nt=0 0\r\nm=video 5 RTP/AVP 96\r\n", "c= line"),
            ("v=0\r\no=- 0 0 IN IP4 1.2.3.4\r\ns=x\r\nt=0 0\r\nm=video 5 UDP/TLS/RTP/SAVPF 96\r\n", "TLS"),
        ] {
            let error = Description::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
