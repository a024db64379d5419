//! Detects key frames.

use super::units::{PICTURE, Units, start_codes};
use super::{PayloadFormat, PictureKind, av1, h265, picture_kind, vp8, vp9};

/// The start code of a video object plane (VOP), which is a picture of MPEG-4 (ISO/IEC 14496-2, table 6-3).
const VOP: u8 = 0xb6;

/// Returns whether a decoder can start at a frame. This is true for the following:
///
/// - an I picture (MPEG-4, MPEG-2, H.263)
/// - an IDR picture (H.264)
/// - an IRAP picture (H.265, section 3.62)
/// - a recovery point (H.264, D.2.8; H.265, D.3.8)
/// - a key frame (VP8, VP9)
/// - the start of a coded video sequence (AV1, section 7.5)
pub fn is_key_frame(format: PayloadFormat, frame: &[u8]) -> bool {
    let byte = |at: usize| frame.get(at).copied();
    let after = |code: u8, bytes: usize| {
        let (at, _) = start_codes(frame).find(|(_, found)| *found == code)?;
        byte(at + 4 + bytes)
    };
    let recovers = || picture_kind(format, frame) == Some(PictureKind::Intra);
    match format {
        // vop_coding_type is 0 for an I picture.
        PayloadFormat::Mpeg4 => after(VOP, 0).is_some_and(|byte| byte >> 6 == 0),
        // picture_coding_type follows the ten bits of temporal_reference. It is 1 for an I picture.
        PayloadFormat::Mpeg2 => after(PICTURE, 1).is_some_and(|byte| byte >> 3 & 7 == 1),
        PayloadFormat::H263p => is_h263_intra(frame),
        PayloadFormat::H264 => {
            // Types 1 to 5 contain picture data. Type 5 is an IDR picture (H.264, table 7-1).
            first_slice(format, frame, |nal| Some(nal.first()? & 0x1f).filter(|kind| (1..=5).contains(kind)))
                .is_some_and(|kind| kind == 5)
                || recovers()
        }
        PayloadFormat::H265 => {
            first_slice(format, frame, |nal| {
                Some(h265::kind([*nal.first()?, 0])).filter(|kind| *kind < h265::FIRST_OTHER)
            })
            .is_some_and(|kind| h265::IRAP.contains(&kind))
                || recovers()
        }
        PayloadFormat::Vp8 => vp8::is_key(frame),
        PayloadFormat::Vp9 => vp9::is_key(frame),
        PayloadFormat::Av1 => av1::is_key(frame),
    }
}

/// Returns the type of the first NAL unit that contains picture data. `kind` returns the type of such a unit, and
/// `None` for other units.
fn first_slice(format: PayloadFormat, frame: &[u8], kind: impl Fn(&[u8]) -> Option<u8>) -> Option<u8> {
    Units::new(format, frame).find_map(|unit| kind(frame.get(unit.offset + unit.prefix..unit.offset + unit.len)?))
}

/// Returns whether an H.263 picture is intra-coded (H.263, sections 5.1.1 to 5.1.4).
fn is_h263_intra(frame: &[u8]) -> bool {
    let bits = |from: usize, count: usize| {
        (from..from + count)
            .try_fold(0u32, |bits, at| Some(bits << 1 | u32::from(*frame.get(at / 8)? >> (7 - at % 8) & 1)))
    };
    // Check that the frame begins with the picture start code.
    if bits(0, 22) != Some(0b10_0000) {
        return false;
    }
    // The source format in PTYPE has bits 35 to 37, and the coding type has bit 38. If the source format is 7,
    // PLUSPTYPE begins at bit 38 instead.
    match (bits(35, 3), bits(38, 3)) {
        // PLUSPTYPE has the coding type in its part MPPTYPE. If UFEP is 1, the 18 bits of OPPTYPE precede MPPTYPE.
        (Some(7), Some(1)) => bits(59, 3) == Some(0),
        (Some(7), _) => bits(41, 3) == Some(0),
        _ => bits(38, 1) == Some(0),
    }
}
