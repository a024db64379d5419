//! Extended reports (RFC 3611). Only two kinds of blocks are supported. A receiver measures the round-trip time with
//! them.

use super::Packet;
use crate::ParseError;
use crate::bytes::Reader;

const XR: u8 = 207;
/// Block type of the receiver reference time report block (RFC 3611, section 4.4).
const REFERENCE_TIME: u8 = 4;
/// Block type of the DLRR report block (RFC 3611, section 4.5).
const SINCE_REFERENCE: u8 = 5;

/// A reference time that a receiver sends. The answer lets the receiver measure the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceTime {
    /// The SSRC of the receiver.
    pub ssrc: u32,
    /// NTP time of the report, in seconds as 32.32 fixed point.
    pub ntp: u64,
}

impl ReferenceTime {
    /// Parses a packet of a compound. Returns `Ok(None)` if the packet contains no reference time.
    ///
    /// # Errors
    /// Returns an error if the packet ends inside a block.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Unknown { packet_type: XR, body, .. } = packet else { return Ok(None) };
        let (what, mut reader) = ("extended report", Reader::new(body));
        let ssrc = reader.u32(what)?;
        while !reader.rest.is_empty() {
            let ([kind, _], words) = (reader.array(what)?, reader.u16(what)?);
            let mut block = Reader::new(reader.take(usize::from(words) * 4, what)?);
            if kind == REFERENCE_TIME {
                return Ok(Some(Self { ssrc, ntp: block.u64(what)? }));
            }
        }
        Ok(None)
    }

    /// Returns the answer: a DLRR block from the participant with the SSRC `from`. `since` is the time since the
    /// reference time arrived, in units of 1/65536 s.
    pub fn answer(self, from: u32, since: u32) -> Packet {
        let words = [from, u32::from_be_bytes([SINCE_REFERENCE, 0, 0, 3]), self.ssrc, (self.ntp >> 16) as u32, since];
        Packet::Unknown { packet_type: XR, count: 0, body: words.iter().flat_map(|word| word.to_be_bytes()).collect() }
    }
}
