//! Retransmission of RTP packets in a stream of their own (RFC 4588).
//!
//! A packet that is sent again has the original's time stamp, marker and payload; its number, payload type and, where
//! both streams share a session, its source are those of the retransmission stream. The original's number (OSN) stands
//! before the payload:
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

/// Bytes that a packet is longer when it is sent again: those of the OSN. Media has to leave that much room below the
/// MTU.
pub const OSN: usize = 2;

/// Which stream repeats which (RFC 4588, sections 5.2 and 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtxStream {
    /// The retransmission stream's payload type, 0…127.
    pub payload_type: u8,
    /// The original's: the parameter `apt`.
    pub apt: u8,
    /// The retransmission stream's source. With a session of its own, which a group requires, that is the original's.
    pub ssrc: u32,
    /// The original's source.
    pub media: u32,
}

impl RtxStream {
    /// The header of an original that is sent again under the number `seq`. It has no send time: whatever sends it
    /// stamps it with its own departure, which isn't the original's.
    ///
    /// # Errors
    /// The payload leaves no room for the OSN in a datagram.
    pub fn header(&self, seq: u16, original: &RtpHeader) -> Result<RtpHeader, ParseError> {
        let limit = usize::from(u16::MAX) - OSN;
        let payload_len = original.payload_len.checked_add(OSN as u16);
        let payload_len = payload_len.ok_or(ParseError::TooMany { what: "bytes of payload to send again", limit })?;
        let (payload_type, ssrc) = (self.payload_type, self.ssrc);
        Ok(RtpHeader { payload_type, seq, ssrc, send_time: None, payload_len, ..*original })
    }

    /// Appends the payload of an original with the number `osn` that is sent again. Padding is not part of it.
    pub fn write_payload(osn: u16, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&osn.to_be_bytes());
        out.extend_from_slice(payload);
    }

    /// The original of a packet of the retransmission stream: its header and its payload. When the original left is not
    /// known.
    ///
    /// # Errors
    /// The packet is of another stream, or has no OSN, as one that a sender fills its rate up with.
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
