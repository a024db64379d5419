//! The RTP payload format of H.265 (RFC 7798, sections 1.1.4 and 4.4). Decoding order numbers are not supported.
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
/// A packet with payload content information (PACI). It contains another payload.
pub(super) const PACI: u8 = 50;
/// NAL units with a type below this number contain picture data (H.265, table 7-1).
const FIRST_OTHER: u8 = 32;

/// NAL unit types of pictures at which a decoder can start (H.265, section 3.62 and table 7-1).
const IRAP: std::ops::Range<u8> = 16..24;
/// NAL unit type of SEI messages that precede their picture (H.265, table 7-1).
const PREFIX_SEI: u8 = 39;

/// Returns the kind of a frame. Returns `None` if there is no picture data. Disposable frames are not detected, because
/// our encoders do not produce them.
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

/// Returns the type in the header of a NAL unit or of a payload.
pub(super) const fn kind(header: [u8; 2]) -> u8 {
    header[0] >> 1 & 0x3f
}

const fn with_kind(header: [u8; 2], kind: u8) -> [u8; 2] {
    // Keep F and the highest bit of LayerId.
    [header[0] & 0x81 | kind << 1, header[1]]
}

/// Returns the header of a divided NAL unit. It is computed from the payload header and the FU header of a fragment.
pub(super) const fn of_part(header: [u8; 2], fu: u8) -> [u8; 2] {
    with_kind(header, fu & 0x3f)
}

/// Returns the payload header and the FU header of a fragment. `nal` is the header of the NAL unit.
pub(super) fn header(nal: [u8; 2], fragment: &Fragment) -> [u8; 4] {
    let [first, second] = with_kind(nal, FU);
    let fu = u8::from(fragment.starts_unit) << 7 | u8::from(fragment.ends_unit) << 6 | kind(nal);
    [first, second, fu, 0]
}
