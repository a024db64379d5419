//! Finds the units of a frame. The frame may be divided between two units.

use super::{PayloadFormat, av1};

pub(super) const PICTURE: u8 = 0x00;
pub(super) const FIRST_SLICE: u8 = 0x01;
pub(super) const LAST_SLICE: u8 = 0xaf;
pub(super) const SEQUENCE: u8 = 0xb3;
const GROUP: u8 = 0xb8;
/// NAL unit types that H.264 uses for RTP payloads (RFC 6184, table 1).
pub(super) const STAP_A: u8 = 24;
pub(super) const STAP_B: u8 = 25;
pub(super) const MTAP16: u8 = 26;
pub(super) const MTAP24: u8 = 27;
pub(super) const FU_A: u8 = 28;
pub(super) const FU_B: u8 = 29;

/// Returns the sizes of all units of a frame in bytes, including start codes.
pub fn unit_sizes(format: PayloadFormat, frame: &[u8]) -> Vec<usize> {
    Units::new(format, frame).map(|unit| unit.len).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Number of bytes at the start of the unit that are not sent or are changed. This is the start code. For AV1, it
    /// is everything before the payload of the OBU.
    pub(super) prefix: usize,
    /// Used for AV1: the size of the OBU's header. The header is sent after the aggregation header.
    pub(super) head: usize,
    /// Whether the unit must begin a new payload.
    pub(super) apart: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Units<'a> {
    format: PayloadFormat,
    frame: &'a [u8],
    offset: usize,
}

impl<'a> Units<'a> {
    pub(super) fn new(format: PayloadFormat, frame: &'a [u8]) -> Self {
        Self { format, frame, offset: 0 }
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        loop {
            let offset = self.offset;
            let rest = self.frame.get(offset..).filter(|rest| !rest.is_empty())?;
            let unit = match self.format {
                PayloadFormat::Mpeg4 | PayloadFormat::Vp8 | PayloadFormat::Vp9 => {
                    Unit { offset, len: rest.len(), prefix: 0, head: 0, apart: false }
                }
                PayloadFormat::Mpeg2 => mpeg2_unit(offset, rest),
                PayloadFormat::H263p => h263_unit(offset, rest),
                PayloadFormat::H264 | PayloadFormat::H265 => nal_unit(offset, rest),
                PayloadFormat::Av1 => av1::unit(offset, rest),
            };
            self.offset += unit.len;
            // Skip a start code without data, because it is not a unit.
            if unit.len > unit.prefix || self.format.row().stood_for == 0 && unit.len > 0 {
                return Some(unit);
            }
        }
    }
}

/// Returns each start code 00 00 01 xx: its position and its value xx.
pub(super) fn start_codes(bytes: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + bytes.get(from..)?.windows(4).position(|four| four[..3] == [0, 0, 1])?;
        from = at + 4;
        Some((at, bytes[at + 3]))
    })
}

/// Returns the bytes after each start code, up to the end of the frame (H.264 and H.265, annexes B).
///
/// The end of each unit is not searched, because this is slow for long units. Use [`nal_unit_of`] to find it where it
/// is needed.
pub(super) fn behind_start_codes(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut from = 0;
    std::iter::from_fn(move || {
        from += frame.get(from..)?.windows(3).position(|three| *three == [0, 0, 1])? + 3;
        frame.get(from..)
    })
}

/// Returns the bytes up to the next start code.
pub(super) fn nal_unit_of(behind: &[u8]) -> &[u8] {
    &behind[..behind.windows(3).position(|three| *three == [0, 0, 1]).unwrap_or(behind.len())]
}

/// Returns the NAL units that follow the start codes of an H.264 or H.265 stream.
pub fn nal_units(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = |behind| {
        let unit = nal_unit_of(behind);
        // Remove zeros at the end, because they belong to the next start code.
        &unit[..unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
    };
    behind_start_codes(stream).map(whole).filter(|unit| !unit.is_empty())
}

fn mpeg2_unit(offset: usize, rest: &[u8]) -> Unit {
    let mut in_slice = false;
    let (mut len, mut apart) = (rest.len(), false);
    for (at, code) in start_codes(rest) {
        let slice = (FIRST_SLICE..=LAST_SLICE).contains(&code);
        let header = matches!(code, PICTURE | SEQUENCE | GROUP);
        // These headers must start a payload (RFC 2250, section 3.1).
        apart |= at == 0 && header;
        if in_slice && (slice || header) {
            len = at;
            break;
        }
        in_slice |= slice;
    }
    Unit { offset, len, prefix: 0, head: 0, apart }
}

fn h263_unit(offset: usize, rest: &[u8]) -> Unit {
    // A picture, a GOB or a slice begins with sixteen zero bits and a one bit.
    let code = |three: &[u8]| three[0] == 0 && three[1] == 0 && three[2] & 0x80 != 0;
    let prefix = if rest.len() > 2 && code(rest) { 2 } else { 0 };
    let next = rest.get(1..).and_then(|later| later.windows(3).position(code));
    let picture = prefix > 0 && rest[2] & 0xfc == 0x80;
    Unit { offset, len: next.map_or(rest.len(), |at| at + 1), prefix, head: 0, apart: picture }
}

fn nal_unit(offset: usize, rest: &[u8]) -> Unit {
    let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
    let prefix = if zeros >= 2 && rest.get(zeros) == Some(&1) { zeros + 1 } else { 0 };
    let next = rest[prefix..].windows(3).position(|three| *three == [0, 0, 1]);
    let len = next.map_or(rest.len(), |at| {
        // The zeros at the end belong to the next start code, because a NAL unit does not end with a zero.
        let end = prefix + at;
        end - rest[prefix..end].iter().rev().take_while(|&&byte| byte == 0).count()
    });
    Unit { offset, len, prefix, head: 0, apart: false }
}
