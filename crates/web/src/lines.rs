//! Reads the attributes of a media section (RFC 8866).

use sdp_types::{Attribute, Media, Session};
use steadycast_units::Span;
use steadycast_wire::payload::{PayloadFormat, nal_units};

/// URI of the transport-wide sequence number (draft-holmer-rmcat-transport-wide-cc-extensions-01).
pub const TRANSPORT_WIDE: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

/// A media section and its session. Attributes at session level apply to all sections (RFC 8866, section 5.13).
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    /// The session description.
    pub session: &'a Session,
    /// The section.
    pub media: &'a Media,
}

impl<'a> Lines<'a> {
    /// Returns the values of an attribute that is allowed at session level and in media sections. If the media section
    /// has the attribute, the values at session level are ignored.
    pub fn values(self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.media.get_attribute_values(name).flatten();
        let common = self.session.get_attribute_values(name).flatten();
        let replaced = self.media.has_attribute(name);
        own.chain(common.filter(move |_| !replaced))
    }

    /// Returns the ID of a header extension. Returns `None` if the extension is missing, or if its ID does not fit the
    /// one-byte form (RFC 8285, section 4.2).
    pub fn extension(self, uri: &str) -> Option<u8> {
        self.values("extmap").find_map(|said| {
            let (id, name) = said.split_once(' ')?;
            // Remove a direction, which may follow the ID (RFC 8285, section 5).
            let id = id.split('/').next()?.parse().ok().filter(|id| (1..=14).contains(id))?;
            (name.split_whitespace().next() == Some(uri)).then_some(id)
        })
    }
}

/// A payload type that is listed in the m= line.
pub struct Format {
    /// The payload type number.
    pub payload_type: u8,
    /// The encoding name.
    pub name: String,
    /// The payload format. It is `None` if this project does not support the format.
    pub format: Option<PayloadFormat>,
    /// The format parameters.
    pub fmtp: String,
}

/// Static payload types that need no `a=rtpmap` (RFC 3551, tables 4 and 5). The payload types of [`PayloadFormat`] are
/// not repeated here.
const STATIC: [(u8, &str); 22] = [
    (0, "PCMU"),
    (3, "GSM"),
    (4, "G723"),
    (5, "DVI4"),
    (6, "DVI4"),
    (7, "LPC"),
    (8, "PCMA"),
    (9, "G722"),
    (10, "L16"),
    (11, "L16"),
    (12, "QCELP"),
    (13, "CN"),
    (14, "MPA"),
    (15, "G728"),
    (16, "DVI4"),
    (17, "DVI4"),
    (18, "G729"),
    (25, "CelB"),
    (26, "JPEG"),
    (28, "nv"),
    (31, "H261"),
    (33, "MP2T"),
];

/// Returns the encoding name of a static payload type. Returns `None` for the types of [`PayloadFormat`].
pub fn unsupported_static(payload_type: u8) -> Option<&'static str> {
    STATIC.iter().find(|(number, _)| *number == payload_type).map(|(_, name)| *name)
}

/// Returns the payload types of a section, in the order of the m= line (RFC 8866, section 5.14).
pub fn formats(media: &Media) -> Vec<Format> {
    let of_type = |name: &str, payload_type: u8| {
        let find = |value: &str| {
            let (word, rest) = value.split_once(' ')?;
            (word.parse() == Ok(payload_type)).then(|| rest.trim().to_owned())
        };
        media.get_attribute_values(name).flatten().find_map(find)
    };
    let format = |payload_type: u8| {
        let own = PayloadFormat::ALL.into_iter().find(|format| format.static_type() == Some(payload_type));
        let named = unsupported_static(payload_type).map(str::to_owned);
        let map = of_type("rtpmap", payload_type).map(|map| match map.split('/').collect::<Vec<_>>()[..] {
            // A video format must have an RTP clock of 90 kHz. With another clock, keep the whole text, so that it
            // matches no format.
            [name, clock, ..] if clock != "90000" && PayloadFormat::of_encoding(name).is_some() => map,
            [name, ..] => name.to_owned(),
            [] => map,
        });
        let format = map.as_deref().map_or(own, PayloadFormat::of_encoding);
        let name = map.or(named).or(own.map(|format| format.encoding().to_owned()));
        let fmtp = of_type("fmtp", payload_type).unwrap_or_default();
        Format { payload_type, name: name.unwrap_or_else(|| payload_type.to_string()), format, fmtp }
    };
    media.fmt.split_whitespace().filter_map(|word| word.parse().ok()).filter(|pt| *pt < 128).map(format).collect()
}

/// Returns the first group of two SSRCs with these semantics, such as `FID` (RFC 5576, section 4.2).
pub fn ssrc_group(media: &Media, semantics: &str) -> Option<(u32, u32)> {
    media.get_attribute_values("ssrc-group").flatten().find_map(|said| {
        let mut ssrcs = said.strip_prefix(semantics)?.strip_prefix(' ')?.split_whitespace().map(str::parse);
        Some((ssrcs.next()?.ok()?, ssrcs.next()?.ok()?))
    })
}

/// Returns the words of each `a=rtcp-fb` line that applies to this payload type. Lines for all payload types are
/// included (RFC 4585, section 4.2).
pub fn rtcp_feedback(media: &Media, payload_type: u8) -> impl Iterator<Item = Vec<&str>> {
    let own = payload_type.to_string();
    let words = media.get_attribute_values("rtcp-fb").flatten().map(|said| said.split_whitespace().collect::<Vec<_>>());
    words
        .filter(move |words| words.first().is_some_and(|of| *of == "*" || **of == own))
        .map(|words| words[1..].to_vec())
}

/// Returns the payload type of the retransmissions of `payload_type`, and for how long the sender caches packets.
/// Returns `None` if retransmissions are not offered (RFC 4588, section 8).
pub fn retransmissions(media: &Media, payload_type: u8) -> Option<(u8, Option<Span>)> {
    if !rtcp_feedback(media, payload_type).any(|words| words == ["nack"]) {
        return None;
    }
    // A retransmission format (`rtx`) has the parameter `apt`. Its value is the payload type of the media that is
    // retransmitted.
    let repeats = |it: &Format| parameter(&it.fmtp, "apt").and_then(|apt| apt.parse().ok()) == Some(payload_type);
    let again = formats(media)
        .into_iter()
        .find(|it| it.name.eq_ignore_ascii_case("rtx") && it.payload_type != payload_type && repeats(it))?;
    let kept = parameter(&again.fmtp, "rtx-time").and_then(|ms| ms.parse().ok());
    Some((again.payload_type, kept.map(|ms: u32| Span::millis(ms.into()))))
}

/// Returns the value of a format parameter.
pub fn parameter<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let pair = |p: &'a str| {
        let (name, value) = p.split_once('=')?;
        name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
    };
    line.split(';').find_map(pair)
}

/// Returns the bytes as hexadecimal digits in upper case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect()
}

/// Converts hexadecimal digits to bytes. Returns `None` if the text contains anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|p| Some(digit(p.first()?)? << 4 | digit(p.get(1)?)?)).collect()
}

/// Adds an attribute with a value.
pub fn add_attribute(media: &mut Media, name: &str, value: impl Into<String>) {
    media.add_attribute(Attribute::with_value(name, value.into()));
}

/// Returns the profile, the constraints and the level of an H.264 stream (RFC 6184, section 8.1). They are read from
/// parameter sets that follow start codes.
pub fn profile_level(config: &[u8]) -> Option<[u8; 3]> {
    nal_units(config).find(|unit| unit[0] & 0x1f == 7)?.get(1..)?.first_chunk().copied()
}
