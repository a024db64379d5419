//! The RTP payload format of H.265 (RFC 7798, sections 1.1.4 and 4.4), without decoding order numbers.
//!
//! ```text
//! header of a NAL unit and of a payload: | F | Type (6) | LayerId (6) | TID (3) |
//! part of a NAL unit (FU, type 49):      payload header | S | E | FuType (6) | bytes behind the unit's own header
//! several NAL units (AP, type 48):       payload header, then each unit behind its length (16)
//! ```

use super::units::{behind_start_codes, nal_unit_of};
use super::{Fragment, PictureKind, sei};

pub(super) const AP: u8 = 48;
pub(super) const FU: u8 = 49;
/// Payload content information, which encloses another payload.
pub(super) const PACI: u8 = 50;
/// NAL unit types below this one contain picture data (H.265, table 7-1).
pub(super) const FIRST_OTHER: u8 = 32;

/// Pictures at which a decoder can start (H.265, section 3.62 and table 7-1).
pub(super) const IRAP: std::ops::Range<u8> = 16..24;
/// SEI messages before their picture (H.265, table 7-1).
const PREFIX_SEI: u8 = 39;

/// Returns a frame's kind; `None` without picture data. Disposable frames, which our encoders do not make, are not
/// detected.
pub(super) fn picture_kind(frame: &[u8]) -> Option<PictureKind> {
    let mut recovers = false;
    for unit in behind_start_codes(frame) {
        match kind([*unit.first()?, 0]) {
            kind if IRAP.contains(&kind) => return Some(PictureKind::Intra),
            kind if kind < FIRST_OTHER => {
                return Some(if recovers { PictureKind::Intra } else { PictureKind::Predicted });
            }
            PREFIX_SEI => recovers |= unit.get(2..).is_some_and(|body| sei::has_recovery_point(nal_unit_of(body))),
            _ => {}
        }
    }
    None
}

/// Returns the type of a NAL unit or payload.
pub(super) const fn kind(header: [u8; 2]) -> u8 {
    header[0] >> 1 & 0x3f
}

const fn with_kind(header: [u8; 2], kind: u8) -> [u8; 2] {
    // F and the highest bit of LayerId stay as they are.
    [header[0] & 0x81 | kind << 1, header[1]]
}

/// Returns the NAL unit's header from a fragment's payload header and FU header.
pub(super) const fn of_part(header: [u8; 2], fu: u8) -> [u8; 2] {
    with_kind(header, fu & 0x3f)
}

/// Returns a fragment's payload header and FU header, for the unit's header `nal`.
pub(super) fn header(nal: [u8; 2], fragment: &Fragment) -> [u8; 4] {
    let [first, second] = with_kind(nal, FU);
    let fu = u8::from(fragment.starts_unit) << 7 | u8::from(fragment.ends_unit) << 6 | kind(nal);
    [first, second, fu, 0]
}
