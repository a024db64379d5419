//! Counts of the packets that a receiver did not use, and sentences that explain the counts.

use std::collections::BTreeMap;
use steadycast_session::{UnusedCounts, UnusedReason};
use steadycast_units::counted;
use steadycast_web::Protocol;
use steadycast_web::lines::unsupported_static;
use steadycast_wire::STUN_COOKIE;

/// The packets that a receiver did not use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// The number of packets per reason.
    pub counts: UnusedCounts,
    /// The number of packets per unknown payload type.
    types: BTreeMap<u8, u64>,
    /// What was wrong with the latest payload that could not be parsed.
    payload: Option<&'static str>,
}

impl Unused {
    /// Counts a packet.
    pub fn add(&mut self, reason: UnusedReason) {
        self.counts.add(reason);
    }

    /// Counts a packet. If the reason is an unknown payload type, also counts the packet under this type.
    pub fn add_of_type(&mut self, reason: UnusedReason, payload_type: u8) {
        self.add(reason);
        if reason == UnusedReason::UnknownPayloadType {
            *self.types.entry(payload_type).or_default() += 1;
        }
    }

    /// Counts a packet whose payload could not be parsed. `what` describes the problem.
    pub fn add_payload(&mut self, reason: UnusedReason, what: &'static str) {
        self.add(reason);
        self.payload = Some(what);
    }

    /// Returns the sum of these counts and the counts of `other`.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.counts = self.counts + other.counts;
        for (payload_type, count) in &other.types {
            *self.types.entry(*payload_type).or_default() += count;
        }
        self.payload = self.payload.or(other.payload);
        self
    }

    /// Returns the number of datagrams that could not be parsed or authenticated.
    pub fn unreadable(&self) -> u64 {
        use UnusedReason::{FailedAuthentication, Malformed, NotRtp};
        [NotRtp, Malformed, FailedAuthentication].into_iter().map(|reason| self.counts.get(reason)).sum()
    }

    /// Returns one sentence per reason. If `all` is false, leaves out reasons that are normal in a session. `offered`
    /// lists the payload types of the session description, if there is one.
    pub fn explanations(&self, offered: Option<&[String]>, all: bool) -> Vec<String> {
        let sentence = |(reason, count): (UnusedReason, u64)| {
            let noun = |what: &str| counted(count, what);
            let text = match reason {
                UnusedReason::Stun => {
                    format!("{} came: the sender uses ICE, which is not supported here", noun("STUN message"))
                }
                UnusedReason::Dtls => format!(
                    "{} came: the sender uses DTLS, which is not supported here: share a key file",
                    noun("DTLS record")
                ),
                UnusedReason::MpegTs => format!(
                    "{} came: an MPEG transport stream without RTP, which is not supported here: have the sender send \
                     the video alone by RTP (ffmpeg: -an -f rtp rtp://…)",
                    noun("datagram")
                ),
                UnusedReason::KeepAlive => {
                    format!("{} came: such datagrams keep a NAT binding open, and carry no media", noun("keep-alive"))
                }
                UnusedReason::UnknownPayloadType => format!("{} {}", noun("packet"), self.of_types(offered)),
                UnusedReason::OtherAddress => format!(
                    "{} not used: another address sends under the SSRC of the source that is followed",
                    noun("packet")
                ),
                UnusedReason::OwnSource => {
                    format!("{} not used: it has the SSRC of this receiver; is there a loop?", noun("packet"))
                }
                UnusedReason::UnsupportedPacketisation | UnusedReason::UnsupportedLayer => format!(
                    "{} not used: {} is not supported",
                    noun("packet"),
                    self.payload.unwrap_or("its packetisation")
                ),
                UnusedReason::MalformedPayload => format!(
                    "{} not used: its payload contradicts its format ({}); is it another codec?",
                    noun("packet"),
                    self.payload.unwrap_or("truncated")
                ),
                // Leave out the following reasons unless `all` is true, because they are normal in a session.
                _ if !all => return None,
                UnusedReason::NotRtp => format!("{} of another protocol than RTP", noun("datagram")),
                UnusedReason::Malformed => format!("{} with damaged headers", noun("datagram")),
                UnusedReason::FailedAuthentication => {
                    format!("{} not protected by this key", noun("datagram"))
                }
                UnusedReason::ExcludedSource => {
                    format!("{} of a source that the description excludes", noun("datagram"))
                }
                UnusedReason::OtherReport => {
                    format!("{} (RTCP) of a source without media", noun("report"))
                }
                UnusedReason::FarNumber => {
                    format!("{} whose sequence number is far from that of the stream", noun("packet"))
                }
                UnusedReason::OtherSource => {
                    format!("{} of sources that were not followed, because another one was sending", noun("packet"))
                }
                UnusedReason::Duplicate => format!("{} received before", noun("packet")),
                UnusedReason::UnaskedRepair => format!("{} retransmitted without a request", noun("packet")),
                UnusedReason::Outside => format!("{} outside the session", noun("packet")),
                UnusedReason::TooLate => format!("{} that arrived too late", noun("packet")),
                UnusedReason::NoPayload => format!("{} without payload", noun("packet")),
                UnusedReason::AfterLoss => {
                    format!("{} that continues a lost unit", noun("packet"))
                }
            };
            Some(text)
        };
        self.counts.iter().filter_map(sentence).collect()
    }

    /// Returns a phrase that lists the unknown payload types, with the probable cause and its remedy.
    fn of_types(&self, offered: Option<&[String]>) -> String {
        const NAMED: usize = 3;
        let mut types: Vec<String> = self.types.keys().take(NAMED).map(u8::to_string).collect();
        if self.types.len() > NAMED {
            types.push(format!("{} more", self.types.len() - NAMED));
        }
        let fixed: Option<Vec<&str>> = self.types.keys().map(|number| unsupported_static(*number)).collect();
        let why = match (offered, fixed) {
            // A static payload type means the same in each session, so a description would not help.
            (None, Some(names)) => format!("which is {}: not supported here", names.join(" and ")),
            (None, None) => "which is unknown without a description: give the sender's .sdp file".to_owned(),
            (Some(offered), _) => {
                // In `offered`, each entry has the form NAME (NUMBER).
                let is_named = |of: &u8| offered.iter().any(|offer| offer.ends_with(&format!(" ({of})")));
                let named = self.types.keys().any(is_named);
                let why = if named {
                    "is not of the format that the description names first"
                } else {
                    "the description does not name"
                };
                format!("which {why}: it has {}", offered.join(", "))
            }
        };
        format!("of payload type {} came, {why}", types.join(" and "))
    }
}

/// Returns why a datagram is neither RTP nor RTCP (RFC 7983). Returns `None` if it may be RTP or RTCP.
pub(crate) fn foreign(bytes: &[u8]) -> Option<UnusedReason> {
    match Protocol::of(bytes) {
        // A datagram of less than 4 bytes is a keep-alive, because RTP, RTCP, STUN and DTLS all have longer headers.
        _ if bytes.len() < 4 => Some(UnusedReason::KeepAlive),
        // A datagram may begin anywhere in a transport stream, so its first byte may be that of any protocol.
        _ if is_mpeg_ts(bytes) => Some(UnusedReason::MpegTs),
        Protocol::Stun if bytes.get(4..8) == Some(&STUN_COOKIE) => Some(UnusedReason::Stun),
        Protocol::Dtls if bytes[1] == DTLS_MAJOR_VERSION => Some(UnusedReason::Dtls),
        Protocol::Rtp => None,
        Protocol::Stun | Protocol::Dtls | Protocol::Other => Some(UnusedReason::NotRtp),
    }
}

/// The first byte of the version in a DTLS record (RFC 9147, section 4).
const DTLS_MAJOR_VERSION: u8 = 254;
/// The size of a transport stream packet, and its first byte (ISO/IEC 13818-1, section 2.4.3.2).
const TS_PACKET: usize = 188;
const TS_SYNC: u8 = 0x47;
/// Minimum number of sync bytes in a datagram of a transport stream. In an RTP payload, fewer may be a coincidence.
const TS_SYNCS: usize = 2;
const TS_SYNCS_IN_RTP: usize = 5;

/// Returns whether a datagram consists of transport stream packets, of which the first may be incomplete.
fn is_mpeg_ts(bytes: &[u8]) -> bool {
    let like_rtp = matches!(Protocol::of(bytes), Protocol::Rtp);
    // In RTP, a transport stream begins behind the header of 12 bytes.
    if like_rtp && bytes[1] & 0x7f == TS_IN_RTP && bytes.get(12) == Some(&TS_SYNC) {
        return false;
    }
    let least = if like_rtp { TS_SYNCS_IN_RTP } else { TS_SYNCS };
    let syncs = |start: usize| bytes[start..].iter().step_by(TS_PACKET);
    let starts = (0..TS_PACKET.min(bytes.len())).filter(|start| syncs(*start).len() >= least);
    let whole = bytes.len().is_multiple_of(TS_PACKET) && !like_rtp;
    starts.chain(whole.then_some(0)).any(|start| syncs(start).all(|byte| *byte == TS_SYNC))
}

/// The payload type of a transport stream in RTP (RFC 3551, section 6).
const TS_IN_RTP: u8 = 33;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_static_payload_type_is_named_instead_of_a_description_that_would_not_help() {
        for (types, says) in [
            (&[33][..], "type 33 came, which is MP2T: not"),
            (&[0, 26], "type 0 and 26 came, which is PCMU and JPEG: not"),
            (&[96], "give the sender's .sdp file"),
            (&[33, 96], "give the sender's .sdp file"),
        ] {
            let mut unused = Unused::default();
            types.iter().for_each(|number| unused.add_of_type(UnusedReason::UnknownPayloadType, *number));
            let told = unused.explanations(None, true);
            assert!(told[0].contains(says), "{types:?}: {told:?}");
        }
    }

    proptest! {
        #[test]
        fn a_transport_stream_without_rtp_is_recognised_wherever_a_datagram_begins_in_it(
            start in 0..TS_PACKET, len in TS_SYNCS_IN_RTP * TS_PACKET + 1..1_473, noise in any::<[u8; 32]>(),
        ) {
            let byte = |at: usize| if at.is_multiple_of(TS_PACKET) { TS_SYNC } else { noise[at % 31] };
            let stream: Vec<u8> = (0..2_000).map(byte).collect();
            // With a sync byte at offset 12, the bytes before may be an RTP header.
            prop_assume!(start != TS_PACKET - 12);
            prop_assert_eq!(foreign(&stream[start..start + len]), Some(UnusedReason::MpegTs));
            prop_assert_eq!(foreign(&stream[..TS_PACKET]), Some(UnusedReason::MpegTs));
            // An RTP packet that contains such packets is RTP.
            let rtp = [&[0x80, TS_IN_RTP, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9], &stream[..7 * TS_PACKET]].concat();
            prop_assert_eq!(foreign(&rtp), None);
        }

        #[test]
        fn only_a_message_with_the_magic_cookie_is_stun_and_only_a_record_with_a_version_is_dtls(
            bytes in prop::collection::vec(any::<u8>(), 8..200), first in prop_oneof![0u8..4, 20u8..64], whole: bool,
        ) {
            let mut bytes = bytes;
            bytes[0] = first;
            (bytes[1], bytes[4]) = if whole { (254, 0x21) } else { (bytes[1] & 0x7f, bytes[4] | 0x80) };
            if whole {
                bytes[4..8].copy_from_slice(&STUN_COOKIE);
            }
            let kind = if first < 4 { UnusedReason::Stun } else { UnusedReason::Dtls };
            prop_assert_eq!(foreign(&bytes), Some(if whole { kind } else { UnusedReason::NotRtp }));
        }
    }
}
