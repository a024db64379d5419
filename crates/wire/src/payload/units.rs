//! Where a frame may be cut.

use super::{PayloadFormat, av1};

pub(super) const PICTURE: u8 = 0x00;
pub(super) const FIRST_SLICE: u8 = 0x01;
pub(super) const LAST_SLICE: u8 = 0xaf;
pub(super) const SEQUENCE: u8 = 0xb3;
const GROUP: u8 = 0xb8;
/// NAL unit types of payloads (RFC 6184, table 1).
pub(super) const STAP_A: u8 = 24;
pub(super) const FU_A: u8 = 28;

/// A frame, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessUnit<'a> {
    /// Only its size: one unit, which begins with the format's start code (of 4 bytes before NAL units, a temporal
    /// delimiter and a size field before OBUs).
    Size(usize),
    /// The sizes of its units, as [`unit_sizes`] gives them.
    Units(&'a [usize]),
    /// All of it. H.264 and H.265 in the byte stream format of their annexes B, or one bare NAL unit; AV1 in the
    /// low-overhead format of its section 5.
    Bytes(&'a [u8]),
}

/// The sizes of the units of a frame, start codes included: enough for [`fragments`](super::fragments) to cut it as if
/// it had the bytes (as long as they have start codes of 4 bytes before NAL units, no field pictures in MPEG-2, and in
/// AV1 one temporal delimiter, at the beginning, headers without extensions and size fields that are as short as may
/// be).
pub fn unit_sizes(format: PayloadFormat, frame: &[u8]) -> Vec<usize> {
    Units::new(format, AccessUnit::Bytes(frame)).map(|unit| unit.len).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Bytes at its beginning that aren't sent as they are: its start code; in AV1 all before the OBU's payload.
    pub(super) prefix: usize,
    /// Bytes of its header that are sent behind the payload header, in AV1.
    pub(super) head: usize,
    /// It may not share a payload with what is before it.
    pub(super) apart: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Units<'a> {
    format: PayloadFormat,
    frame: AccessUnit<'a>,
    offset: usize,
}

impl<'a> Units<'a> {
    pub(super) fn new(format: PayloadFormat, frame: AccessUnit<'a>) -> Self {
        Self { format, frame, offset: 0 }
    }

    /// A unit of which only the size is known.
    fn assumed(&self, len: usize) -> Unit {
        let (prefix, head) = match self.format {
            PayloadFormat::Mpeg4 | PayloadFormat::Mpeg2 | PayloadFormat::Vp8 | PayloadFormat::Vp9 => (0, 0),
            PayloadFormat::H263p => (len.min(2), 0),
            // At least a byte of the unit itself is left.
            PayloadFormat::H264 | PayloadFormat::H265 => (len.saturating_sub(1).min(4), 0),
            PayloadFormat::Av1 => (av1::assumed_prefix(self.offset == 0, len), 1),
        };
        Unit { offset: self.offset, len, prefix, head, apart: false }
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        loop {
            let offset = self.offset;
            let unit = match &mut self.frame {
                AccessUnit::Size(size) => {
                    let len = std::mem::take(size);
                    if len == 0 {
                        return None;
                    }
                    self.assumed(len)
                }
                AccessUnit::Units(sizes) => {
                    let (&len, rest) = sizes.split_first()?;
                    *sizes = rest;
                    self.assumed(len)
                }
                AccessUnit::Bytes(frame) => {
                    let rest = frame.get(offset..).filter(|rest| !rest.is_empty())?;
                    match self.format {
                        PayloadFormat::Mpeg4 | PayloadFormat::Vp8 | PayloadFormat::Vp9 => {
                            Unit { offset, len: rest.len(), prefix: 0, head: 0, apart: false }
                        }
                        PayloadFormat::Mpeg2 => mpeg2_unit(offset, rest),
                        PayloadFormat::H263p => h263_unit(offset, rest),
                        PayloadFormat::H264 | PayloadFormat::H265 => nal_unit(offset, rest),
                        PayloadFormat::Av1 => av1::unit(offset, rest),
                    }
                }
            };
            self.offset += unit.len;
            // A start code with nothing behind it isn't a unit.
            if unit.len > unit.prefix || self.format.row().stood_for == 0 && unit.len > 0 {
                return Some(unit);
            }
        }
    }
}

/// Start codes 00 00 01 xx: where each begins, and xx.
pub(super) fn start_codes(bytes: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + bytes.get(from..)?.windows(4).position(|four| four[..3] == [0, 0, 1])?;
        from = at + 4;
        Some((at, bytes[at + 3]))
    })
}

fn mpeg2_unit(offset: usize, rest: &[u8]) -> Unit {
    let mut in_slice = false;
    let (mut len, mut apart) = (rest.len(), false);
    for (at, code) in start_codes(rest) {
        let slice = (FIRST_SLICE..=LAST_SLICE).contains(&code);
        let header = matches!(code, PICTURE | SEQUENCE | GROUP);
        // The headers of RFC 2250, section 3.1: they begin a payload.
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
    // Sixteen zeros and a one: of a picture, a GOB or a slice.
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
        // All zeros before the next start code are its own: a NAL unit doesn't end with one.
        let end = prefix + at;
        end - rest[prefix..end].iter().rev().take_while(|&&byte| byte == 0).count()
    });
    Unit { offset, len, prefix, head: 0, apart: false }
}
