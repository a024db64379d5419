//! The RTP payload format of VP8 (RFC 7741, section 4.2).
//!
//! ```text
//! | X | R | N | S | R | PID (3) |
//! | I | L | T | K |   RSV (4)   |    if X
//! | M |     PictureID (7 or 15) |    if I; 15 bits if M
//! |         TL0PICIDX (8)       |    if L
//! | TID (2) | Y |  KEYIDX (5)   |    if T or K
//! ```

use super::Fragment;
use crate::ParseError;
use crate::bytes::Reader;

/// Returns the payload descriptor of a payload that is sent. X, I and M are set. PID is 0, because RFC 7741 allows a
/// frame to be sent as one partition.
pub(super) fn header(picture: u32, fragment: &Fragment) -> [u8; 4] {
    let [high, low] = (picture as u16 | 0x8000).to_be_bytes();
    [0x80 | u8::from(fragment.starts_unit) << 4, 0x80, high, low]
}

/// Parses a payload. Returns whether it starts a frame, and the part of the frame that it contains.
pub(super) fn parse(payload: &[u8]) -> Result<(bool, &[u8]), ParseError> {
    let what = "VP8 payload descriptor";
    let mut reader = Reader::new(payload);
    let flags = reader.u8(what)?;
    if flags & 0x80 != 0 {
        let extension = reader.u8(what)?;
        // If M is set, the picture ID has a second byte.
        if extension & 0x80 != 0 && reader.u8(what)? & 0x80 != 0 {
            reader.u8(what)?;
        }
        if extension & 0x40 != 0 {
            reader.u8(what)?;
        }
        // T and K use the same byte.
        if extension & 0x30 != 0 {
            reader.u8(what)?;
        }
    }
    if reader.rest.is_empty() {
        return Err(ParseError::Malformed { what: "a VP8 payload without any of a frame" });
    }
    // A payload starts a frame if S is set and the partition index is 0.
    Ok((flags & 0x17 == 0x10, reader.rest))
}

/// Returns whether a frame is a key frame. This is the case if P, the lowest bit of the frame tag, is 0 (RFC 6386,
/// section 9.1).
pub(super) fn is_key(frame: &[u8]) -> bool {
    frame.first().is_some_and(|tag| tag & 1 == 0)
}
