//! Retransmission of RTP packets in a separate stream (RFC 4588).
//!
//! A retransmission has the timestamp, marker and payload of the original packet. It has the sequence number and the
//! payload type of its own stream. In a shared session, it also has the SSRC of its own stream. The original sequence
//! number (OSN) precedes the payload:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |                          RTP header                           |
//! |             OSN               |       original payload …
//! ```

use crate::ParseError;
use crate::bytes::Reader;
use crate::rtp::RtpHeader;

/// Length of the original sequence number in bytes. Media packets must leave this much room below the MTU.
pub const OSN: usize = 2;

/// The relation between a retransmission stream and the media stream that it repeats (RFC 4588, sections 5.2 and 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtxStream {
    /// The payload type of the retransmissions, 0…127.
    pub payload_type: u8,
    /// The payload type of the original packets. It is the format parameter `apt`.
    pub apt: u8,
    /// The SSRC of the retransmissions. In a multicast group, the retransmissions have the media's SSRC in a separate
    /// session.
    pub ssrc: u32,
    /// The SSRC of the media.
    pub media: u32,
}

impl RtxStream {
    /// Returns the header of a retransmission. It does not contain the send time of the original packet.
    ///
    /// # Errors
    /// Returns an error if the payload is so long that the OSN does not fit into the datagram.
    pub fn header(&self, seq: u16, original: &RtpHeader) -> Result<RtpHeader, ParseError> {
        let limit = usize::from(u16::MAX) - OSN;
        let payload_len = original.payload_len.checked_add(OSN as u16);
        let payload_len = payload_len.ok_or(ParseError::TooMany { what: "bytes of payload to send again", limit })?;
        let (payload_type, ssrc) = (self.payload_type, self.ssrc);
        Ok(RtpHeader { payload_type, seq, ssrc, send_time: None, payload_len, ..*original })
    }

    /// Appends the payload of a retransmission: first `osn`, the original sequence number, then `payload`, which must
    /// not include padding.
    pub fn write_payload(osn: u16, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&osn.to_be_bytes());
        out.extend_from_slice(payload);
    }

    /// Returns the header and the payload of the original packet. The header has no send time.
    ///
    /// # Errors
    /// Returns an error if the packet belongs to another stream, or if it is padding and has no OSN.
    pub fn original<'a>(&self, header: &RtpHeader, payload: &'a [u8]) -> Result<(RtpHeader, &'a [u8]), ParseError> {
        if (header.payload_type, header.ssrc) != (self.payload_type, self.ssrc) {
            return Err(ParseError::Malformed { what: "a packet of another stream than the retransmissions" });
        }
        let mut reader = Reader::new(payload);
        let seq = reader.u16("original sequence number")?;
        let payload = reader.rest;
        let payload_len = u16::try_from(payload.len())
            .map_err(|_| ParseError::TooMany { what: "bytes of payload", limit: usize::from(u16::MAX) })?;
        let (payload_type, ssrc) = (self.apt, self.media);
        Ok((RtpHeader { payload_type, seq, ssrc, send_time: None, payload_len, ..*header }, payload))
    }
}
