//! The RTP payload format of AV1 (AOM, RTP Payload Format For AV1, version 1.0, sections 4 and 5).
//!
//! ```text
//! | Z | Y | W (2) | N | 0 (3) |, then OBU elements
//! ```
//!
//! - Z: the first element continues the last element of the previous packet.
//! - Y: the last element continues in the next packet.
//! - W: the number of elements. All elements except the last have a length field (leb128). If W is 0, the number is not
//!   given, and each element has a length field.
//! - N: a coded video sequence starts.
//!
//! A packet that this module creates contains one or two OBUs, or parts of them. Temporal delimiters and tile lists are
//! neither sent nor used.
//!
//! All packets of a frame except the last end inside an OBU. libwebrtc needs this. It regards Y = 0 as the end of a
//! frame and Z = 0 as the start of a frame.

use super::units::{Unit, Units};
use super::{Fragment, Fragments, PayloadFormat};
use crate::ParseError;
use crate::bytes::Reader;

const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;
const TILE_LIST: u8 = 8;

const HAS_EXTENSION: u8 = 4;
const HAS_SIZE: u8 = 2;
/// A temporal delimiter in AV1's low-overhead format.
const DELIMITER: [u8; 2] = [TEMPORAL_DELIMITER << 3 | HAS_SIZE, 0];

/// An OBU (AV1, section 5.3): | 0 | type (4) | X | S | 0 |. The header has an extension byte if X is set. The size
/// follows if S is set, then the payload.
#[derive(Clone, Copy, Debug)]
struct Obu {
    kind: u8,
    /// Length of the header in bytes.
    head: usize,
    /// Length of the size field in bytes.
    size: usize,
    /// Length of the payload in bytes.
    body: usize,
}

impl Obu {
    /// Parses the first OBU of `bytes`, which must not be empty. If the OBU is truncated or has no size, it extends to
    /// the end.
    fn first(bytes: &[u8]) -> Self {
        let flags = bytes.first().copied().unwrap_or(0);
        let head = (1 + usize::from(flags & HAS_EXTENSION != 0)).min(bytes.len());
        let rest = &bytes[head..];
        let size = if flags & HAS_SIZE == 0 { None } else { leb128(rest) };
        let (body, size) = size.unwrap_or((rest.len(), 0));
        Self { kind: flags >> 3 & 0x0f, head, size, body: body.min(rest.len() - size) }
    }
    const fn len(self) -> usize {
        self.head + self.size + self.body
    }
    const fn is_sent(self) -> bool {
        self.kind != TEMPORAL_DELIMITER && self.kind != TILE_LIST
    }
}

/// Decodes a leb128 value (AV1, section 4.10.5). Returns the value and its encoded length in bytes. Returns `None` if
/// it is truncated or exceeds 32 bits.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0u64;
    // Stop after eight bytes, the maximum length of leb128 (AV1, section 4.10.5).
    for (n, byte) in bytes.iter().take(8).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()? as usize, n + 1));
        }
    }
    None
}

fn write_leb128(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(0x80 | value as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn leb128_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

/// Finds the next OBU that must be sent. Returns the number of bytes to skip before it, and the OBU.
fn next(rest: &[u8]) -> (usize, Obu) {
    let mut at = 0;
    loop {
        let obu = Obu::first(&rest[at..]);
        if obu.is_sent() || at + obu.len() == rest.len() {
            return (at, obu);
        }
        at += obu.len();
    }
}

pub(super) fn unit(offset: usize, rest: &[u8]) -> Unit {
    let (at, obu) = next(rest);
    Unit { offset, len: at + obu.len(), prefix: at + obu.head + obu.size, head: obu.head, apart: false }
}

impl Fragments<'_> {
    /// Returns the next payload. It contains the rest of an OBU or the next OBU. If there is room, it also contains the
    /// start of the following OBU.
    ///
    /// Except for the last payload of a frame, each payload ends in the middle of an OBU. So the bits Y of this payload
    /// and Z of the next payload show that the frame continues.
    pub(super) fn next_obus(&mut self) -> Option<Fragment> {
        let starts_unit = self.rest.is_none();
        let (offset, left, prefix, head) = match self.rest.take() {
            Some((offset, left)) => (offset, left, 0, 0),
            None => self.units.next().map(|it| (it.offset, it.len, it.prefix, it.head))?,
        };
        let unsent = |at: usize| next(&self.frame[at..]).0;
        let skipped = if starts_unit { unsent(offset) } else { 0 };
        // The following OBU can share the payload only if no omitted OBU lies between them.
        let second = self.units.peek().copied().filter(|second| unsent(second.offset) == 0);
        // A shared payload needs the aggregation header and the length of the first OBU.
        let shared = 1 + leb128_len(left - skipped);
        let room = self.max.saturating_sub(shared + left - skipped);
        let alone = (self.max - 1 - head + prefix).min(left);
        let Some(second) = second.filter(|_| room > 0) else {
            let len = if second.is_some() { alone.min(left - 1).max(prefix) } else { alone };
            self.rest = (len < left).then_some((offset + len, left - len));
            return Some(self.fragment(offset, len, prefix, 1 + head, starts_unit));
        };
        self.units.next();
        let goes_on = self.units.peek().is_some();
        let taken = room.min(second.len - usize::from(goes_on));
        self.rest = (taken < second.len).then_some((second.offset + taken, second.len - taken));
        Some(self.fragment(offset, left + taken, skipped, shared, starts_unit))
    }
}

/// Returns the bytes that precede the frame's data in a payload. The first byte is the aggregation header.
///
/// If the fragment has two elements, the length of the first element follows. If it has one element and starts an OBU,
/// the header of the OBU follows.
pub(super) fn header(frame: &[u8], key: bool, fragment: &Fragment) -> [u8; 4] {
    // N is set only in the first packet of a coded video sequence.
    let begins = key && fragment.offset == 0;
    let (z, y) = (u8::from(!fragment.starts_unit), u8::from(!fragment.ends_unit));
    let mut ends = Units::new(PayloadFormat::Av1, frame).map(|unit| unit.offset + unit.len);
    let first = ends.find(|end| *end > fragment.offset).unwrap_or(frame.len()) - fragment.offset;
    let count = if first < fragment.len { 2 } else { 1 };
    let mut header = [z << 7 | y << 6 | count << 4 | u8::from(begins) << 3, 0, 0, 0];
    if count == 2 {
        let mut len = Vec::new();
        write_leb128(first - fragment.implied, &mut len);
        header[1..=len.len()].copy_from_slice(&len);
    } else if fragment.starts_unit {
        let rest = &frame[fragment.offset..];
        let (at, obu) = next(rest);
        header[1..=obu.head].copy_from_slice(&rest[at..at + obu.head]);
        // Remove the size field, because the length of the element implies the size of the OBU.
        header[1] &= !HAS_SIZE;
    }
    header
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the element continues the last element of the previous packet.
    pub(super) continues: bool,
    /// Whether the element continues in the next packet.
    pub(super) goes_on: bool,
}

pub(super) fn elements(payload: &[u8]) -> Result<Vec<Element<'_>>, ParseError> {
    let malformed = |what| Err(ParseError::Malformed { what });
    let mut reader = Reader::new(payload);
    let flags = reader.u8("AV1 aggregation header")?;
    let count = usize::from(flags >> 4 & 3);
    // N means that a coded video sequence begins, and Z means that the first OBU began earlier. They contradict each
    // other.
    if flags & 0x88 == 0x88 {
        return malformed("a coded video sequence of AV1 that begins inside an OBU");
    }
    let mut elements = Vec::new();
    while !reader.rest.is_empty() {
        let mut len = reader.rest.len();
        // If W is set, the last element has no length and ends with the payload.
        if count == 0 || elements.len() + 1 < count {
            let Some((told, size)) = leb128(reader.rest) else { return malformed("length of an AV1 OBU element") };
            reader.take(size, "AV1 OBU element")?;
            len = told;
        }
        let bytes = reader.take(len, "AV1 OBU element")?;
        elements.push(Element { bytes, continues: false, goes_on: false });
    }
    if elements.is_empty() || count != 0 && elements.len() != count {
        return malformed("an AV1 payload with fewer OBU elements than it announces");
    }
    if let Some(first) = elements.first_mut() {
        first.continues = flags & 0x80 != 0;
    }
    if let Some(last) = elements.last_mut() {
        last.goes_on = flags & 0x40 != 0;
    }
    Ok(elements)
}

/// Completes the last OBU of a frame, which starts at `at`: adds its size field. If it is the first OBU, a temporal
/// delimiter is put before it.
///
/// The OBU is removed if it is malformed, or if its type is not sent ([`Obu::is_sent`]).
pub(super) fn complete(frame: &mut Vec<u8>, at: usize) -> Result<(), ParseError> {
    let bytes = &frame[at..];
    if bytes.is_empty() {
        return Ok(());
    }
    let obu = Obu::first(bytes);
    let whole = bytes.len() > usize::from(bytes[0] & HAS_EXTENSION != 0);
    // If the sender has kept the size field, its value must be correct.
    let sized = bytes[0] & HAS_SIZE != 0;
    let right = !sized
        || obu.size > 0 && obu.len() == bytes.len() && leb128(&bytes[obu.head..]).map(|it| it.0) == Some(obu.body);
    if !whole || !right || !obu.is_sent() {
        frame.truncate(at);
        let damaged = Err(ParseError::Malformed { what: "an OBU of AV1 whose size is wrong" });
        return if whole && right { Ok(()) } else { damaged };
    }
    if !sized {
        let mut size = Vec::new();
        write_leb128(obu.body, &mut size);
        frame[at] |= HAS_SIZE;
        frame.splice(at + obu.head..at + obu.head, size);
    }
    if at == 0 {
        // Add a temporal delimiter, because decoders expect one at the start of each temporal unit.
        frame.splice(0..0, DELIMITER);
    }
    Ok(())
}

/// Returns whether a temporal unit starts a coded video sequence. It then has a sequence header, followed by a key
/// frame that is shown (AV1, section 7.5).
pub(super) fn is_key(frame: &[u8]) -> bool {
    let (mut rest, mut still, mut sequence) = (frame, false, false);
    while !rest.is_empty() {
        let obu = Obu::first(rest);
        let body = &rest[obu.head + obu.size..obu.len()];
        let first = body.first().copied().unwrap_or(0xff);
        match obu.kind {
            SEQUENCE_HEADER => {
                sequence = true;
                // The first fields are seq_profile (3 bits), still_picture (1) and reduced_still_picture_header (1). If
                // the last of these is set, a key frame has no frame type.
                still = first & 0x08 != 0;
            }
            // For a shown key frame, show_existing_frame (1 bit) is 0, frame_type (2 bits) is 0 and show_frame (1 bit)
            // is 1.
            FRAME | FRAME_HEADER => return sequence && (still || first >> 4 == 1),
            _ => {}
        }
        rest = &rest[obu.len()..];
    }
    false
}

/// Returns whether a temporal unit contains a part of a picture. It may instead contain only headers.
pub(super) fn holds_picture(frame: &[u8]) -> bool {
    let mut rest = frame;
    while !rest.is_empty() {
        let obu = Obu::first(rest);
        if matches!(obu.kind, FRAME | FRAME_HEADER) {
            return true;
        }
        rest = &rest[obu.len()..];
    }
    false
}
