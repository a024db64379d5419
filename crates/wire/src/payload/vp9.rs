//! The RTP payload format of VP9 (RFC 9628, section 4.2). Only one spatial layer is supported.
//!
//! ```text
//! | I | P | L | F | B | E | V | Z |
//! | M |     PictureID (7 or 15)   |    if I; 15 bits if M
//! | TID (3) | U | SID (3) |   D   |    if L; then TL0PICIDX (8), if not F
//! | P_DIFF (7)            |   N   |    if F and P, up to three, the last without N
//! scalability structure                if V
//! ```

use super::Fragment;
use crate::ParseError;
use crate::bytes::Reader;

/// The fields of a payload descriptor that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// B: the payload starts the frame.
    pub(super) begins: bool,
    /// E: the payload ends the frame.
    pub(super) ends: bool,
}

/// Returns the payload descriptor of a payload that is sent. I and M are set. P, B and E depend on the frame. P is also
/// set for intra-only frames, because a decoder can't start there.
pub(super) fn header(picture: u32, key: bool, fragment: &Fragment) -> [u8; 4] {
    let [high, low] = (picture as u16 | 0x8000).to_be_bytes();
    let bounds = u8::from(fragment.starts_unit) << 3 | u8::from(fragment.ends_unit) << 2;
    [0x80 | u8::from(!key) << 6 | bounds, high, low, 0]
}

pub(super) fn parse(payload: &[u8]) -> Result<(Descriptor, &[u8]), ParseError> {
    let what = "VP9 payload descriptor";
    let malformed = |what| Err(ParseError::Malformed { what });
    let mut reader = Reader::new(payload);
    let flags = reader.u8(what)?;
    let has = |bit: u8| flags >> bit & 1 == 1;
    let (predicted, flexible) = (has(6), has(4));
    // If M is set, the picture ID has a second byte.
    if has(7) && reader.u8(what)? & 0x80 != 0 {
        reader.u8(what)?;
    }
    if has(5) {
        // SID is the number of the spatial layer. Only layer 0 is used.
        if reader.u8(what)? >> 1 & 7 != 0 {
            return Err(ParseError::OtherLayer { what: "a spatial layer of VP9 above the first" });
        }
        // TL0PICIDX does not exist in flexible mode.
        if !flexible {
            reader.u8(what)?;
        }
    }
    if flexible && predicted {
        let mut references = 1;
        while reader.u8(what)? & 1 == 1 {
            references += 1;
            if references > 3 {
                return malformed("a frame of VP9 with more than three references");
            }
        }
    }
    if has(1) {
        structure(&mut reader)?;
    }
    if reader.rest.is_empty() {
        return malformed("a VP9 payload without any of a frame");
    }
    Ok((Descriptor { begins: has(3), ends: has(2) }, reader.rest))
}

/// Skips the scalability structure: | N_S (3) | Y | G | 0 (3) |. If Y is set, the sizes of N_S + 1 layers follow. If G
/// is set, a description of the pictures of a group follows.
fn structure(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    let what = "VP9 scalability structure";
    let flags = reader.u8(what)?;
    if flags & 0x10 != 0 {
        reader.take(4 * (usize::from(flags >> 5) + 1), what)?;
    }
    if flags & 0x08 != 0 {
        // Each of the N_G pictures has the number of its references, and one byte for each reference.
        for _ in 0..reader.u8(what)? {
            let references = reader.u8(what)? >> 2 & 3;
            reader.take(references.into(), what)?;
        }
    }
    Ok(())
}

/// Returns whether a frame is a key frame. The uncompressed header shows this (VP9, section 6.2).
///
/// ```text
/// | frame_marker (2) | profile (2) | reserved (1, only in profile 3) | show_existing_frame (1) | frame_type (1) |
/// ```
pub(super) fn is_key(frame: &[u8]) -> bool {
    let Some(&first) = frame.first() else { return false };
    // Remove the reserved bit, which only profile 3 has.
    let bits = if first & 0x30 == 0x30 { first << 1 } else { first };
    first >> 6 == 2 && bits & 0x0c == 0
}
