//! Determines from a frame's header whether the frame depends on other frames, and whether other frames depend on it.

use super::units::{PICTURE, behind_start_codes, nal_unit_of};
use super::{PayloadFormat, av1, h265, sei, vp8, vp9};

/// Whether a frame depends on other frames, and whether other frames depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureKind {
    /// A picture that has no reference frames.
    Intra,
    /// A picture that is predicted from earlier pictures. Later pictures may be predicted from it.
    Predicted,
    /// A picture from which no other picture is predicted.
    Disposable,
}

/// NAL unit types (ITU-T H.264, table 7-1).
const SLICE: u8 = 1;
const IDR: u8 = 5;
const SEI: u8 = 6;
/// The start code of an MPEG-4 picture, `vop_start_code` (ISO/IEC 14496-2, table 6-3).
const VOP: u8 = 0xb6;

/// Returns the kind of a reassembled frame. Returns `None` if the frame's header is missing.
pub fn picture_kind(format: PayloadFormat, frame: &[u8]) -> Option<PictureKind> {
    match format {
        // vop_coding_type is 0 for I, 1 for P and 2 for B. 3 is S, a P frame with global motion compensation.
        PayloadFormat::Mpeg4 => Some(by_number(u32::from(after(frame, VOP)?.first()? >> 6), [0, 2])),
        // picture_coding_type follows the ten bits of temporal_reference. It is 1 for I, 2 for P and 3 for B.
        PayloadFormat::Mpeg2 => Some(by_number(u32::from(after(frame, PICTURE)?.get(1)? >> 3 & 7), [1, 3])),
        PayloadFormat::H263p => h263(frame),
        PayloadFormat::H264 => h264(frame),
        PayloadFormat::H265 => h265::picture_kind(frame),
        PayloadFormat::Vp8 => (!frame.is_empty()).then(|| by_key(vp8::is_key(frame))),
        PayloadFormat::Vp9 => (!frame.is_empty()).then(|| by_key(vp9::is_key(frame))),
        PayloadFormat::Av1 => av1::holds_picture(frame).then(|| by_key(av1::is_key(frame))),
    }
}

/// Returns whether a decoder can start at a frame. This is true for the following:
///
/// - an I picture (MPEG-4, MPEG-2, H.263)
/// - an IDR picture (H.264)
/// - an IRAP picture (H.265, section 3.62)
/// - a recovery point (H.264, D.2.8; H.265, D.3.8)
/// - a key frame (VP8, VP9)
/// - the start of a coded video sequence (AV1, section 7.5)
pub fn is_key_frame(format: PayloadFormat, frame: &[u8]) -> bool {
    picture_kind(format, frame) == Some(PictureKind::Intra)
}

/// Returns the kind of a VP8, VP9 or AV1 frame. Our encoders produce no disposable frames in these formats.
const fn by_key(is_key: bool) -> PictureKind {
    if is_key { PictureKind::Intra } else { PictureKind::Predicted }
}

fn by_number(number: u32, [intra, disposable]: [u32; 2]) -> PictureKind {
    match number {
        n if n == intra => PictureKind::Intra,
        n if n == disposable => PictureKind::Disposable,
        _ => PictureKind::Predicted,
    }
}

/// Returns the bytes after the first start code 00 00 01 `code`.
fn after(frame: &[u8], code: u8) -> Option<&[u8]> {
    let at = frame.windows(4).position(|bytes| bytes == [0, 0, 1, code])?;
    frame.get(at + 4..)
}

/// Reads an H.263 picture (ITU-T H.263, section 5.1). It begins with a start code of 22 bits and a temporal reference
/// of 8 bits. PTYPE or PLUSPTYPE follows.
fn h263(frame: &[u8]) -> Option<PictureKind> {
    let mut bits = Bits::new(frame);
    if bits.take(22)? != 0b10_0000 {
        return None;
    }
    bits.take(8 + 5)?;
    if bits.take(3)? != 7 {
        return Some(if bits.take(1)? == 0 { PictureKind::Intra } else { PictureKind::Predicted });
    }
    // If UFEP is 1, OPPTYPE precedes MPPTYPE. Skip it.
    if bits.take(3)? == 1 {
        bits.take(18)?;
    }
    // The coding type is 0 for I, 1 for P, 2 for improved PB and 3 for B.
    Some(by_number(bits.take(3)?, [0, 3]))
}

fn h264(frame: &[u8]) -> Option<PictureKind> {
    let mut recovers = false;
    for unit in behind_start_codes(frame) {
        let (head, body) = unit.split_first()?;
        match head & 0x1f {
            IDR => return Some(PictureKind::Intra),
            SEI => recovers |= sei::has_recovery_point(nal_unit_of(body)),
            // The frame has a recovery point, so a decoder can start at it.
            SLICE if recovers => return Some(PictureKind::Intra),
            SLICE if head & 0x60 == 0 => return Some(PictureKind::Disposable),
            SLICE => return Some(PictureKind::Predicted),
            _ => {}
        }
    }
    None
}

/// Reads bits. The most significant bit of a byte comes first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next `n` bits as a number. `n` is at most 32.
    fn take(&mut self, n: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..n {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }
}
