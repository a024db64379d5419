//! H.265 in RTP (RFC 7798, sections 1.1.4 and 4.4), without decoding order numbers.
//!
//! ```text
//! header of a NAL unit and of a payload: | F | Type (6) | LayerId (6) | TID (3) |
//! part of a NAL unit (FU, type 49):      payload header | S | E | FuType (6) | bytes behind the unit's own header
//! several NAL units (AP, type 48):       payload header, then each unit behind its length (16)
//! ```

use super::Fragment;

/// Aggregation packet.
pub(super) const AP: u8 = 48;
/// Fragmentation unit.
pub(super) const FU: u8 = 49;
/// NAL units below it hold picture data; 16…23 of them are of pictures that a decoder can begin with (H.265, table
/// 7-1).
pub(super) const FIRST_OTHER: u8 = 32;

/// The type of a NAL unit or a payload.
pub(super) const fn kind(header: [u8; 2]) -> u8 {
    header[0] >> 1 & 0x3f
}

/// The same header with another type.
const fn with_kind(header: [u8; 2], kind: u8) -> [u8; 2] {
    [header[0] & 0x81 | kind << 1, header[1]]
}

/// The NAL unit's header, of a part with this payload header and FU header.
pub(super) const fn of_part(header: [u8; 2], fu: u8) -> [u8; 2] {
    with_kind(header, fu & 0x3f)
}

/// The headers of a part of the unit with the header `nal`.
pub(super) fn header(nal: [u8; 2], fragment: &Fragment) -> [u8; 4] {
    let [first, second] = with_kind(nal, FU);
    let fu = u8::from(fragment.starts_unit) << 7 | u8::from(fragment.ends_unit) << 6 | kind(nal);
    [first, second, fu, 0]
}
