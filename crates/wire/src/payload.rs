//! How video frames are cut into RTP payloads, and put together again.
//!
//! | format | document | header of a payload | a frame's units |
//! |---|---|---|---|
//! | MPEG-4 | RFC 6416 | none | the frame |
//! | MPEG-2 | RFC 2250 | 4 bytes | slices, the first with all headers before it |
//! | H.263+ | RFC 4629 | 2 bytes | what begins with a start code: picture, GOBs, slices |
//! | H.264 | RFC 6184 | none, or 2 bytes in each part of a divided unit (FU-A) | NAL units |
//!
//! [`fragments`] needs no more than sizes and allocates nothing: it is what a simulation cuts by. [`payloads`] cuts the
//! same way and has the bytes. [`Depacketiser`] is the way back, and [`picture_kind`] says what a frame depends on.

mod depacketise;
mod kind;
mod units;

pub use depacketise::{Depacketiser, MAX_FRAME, Reassembled};
pub use kind::{PictureKind, picture_kind};
pub use units::{AccessUnit, unit_sizes};

use std::iter::Peekable;
use units::{Unit, Units};

/// A payload format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// MPEG-4 part 2 (RFC 6416, section 5).
    Mpeg4,
    /// MPEG-1 and MPEG-2 (RFC 2250, section 3).
    Mpeg2,
    /// H.263 in all its versions (RFC 4629).
    H263p,
    /// H.264, packetization mode 1 (RFC 6184).
    H264,
}

impl PayloadFormat {
    const fn header_len(self) -> usize {
        match self {
            Self::Mpeg4 => 0,
            Self::Mpeg2 => 4,
            Self::H263p | Self::H264 => 2,
        }
    }
}

/// Smaller limits of payload than this count as this.
pub const MIN_PAYLOAD: usize = 8;

/// One payload: which bytes of the access unit it stands for, and what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where in the access unit its bytes begin.
    pub offset: usize,
    /// How many bytes of the access unit it stands for.
    pub len: usize,
    /// How many of these, at their beginning, aren't sent since the payload header says them: start codes.
    pub implied: usize,
    /// Bytes of the payload header.
    pub header_len: usize,
    /// Whether a unit begins with it.
    pub starts_unit: bool,
    /// Whether a unit ends with it.
    pub ends_unit: bool,
    /// Whether the access unit ends with it: RTP's marker.
    pub last: bool,
}

impl Fragment {
    /// Bytes of payload, header included.
    pub const fn payload_len(&self) -> usize {
        self.header_len + self.len - self.implied
    }
}

/// Cuts an access unit into payloads of at most `max_payload` bytes (but see [`MIN_PAYLOAD`]).
///
/// Whole units share a payload as far as they fit, except in H.264. One that is longer than a payload is divided, and
/// shares none of its payloads with others, so that a loss costs as few units as may be.
pub fn fragments<'a>(format: PayloadFormat, frame: &AccessUnit<'a>, max_payload: usize) -> Fragments<'a> {
    Fragments { format, max: max_payload.max(MIN_PAYLOAD), units: Units::new(format, *frame).peekable(), rest: None }
}

/// The iterator of [`fragments`].
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    format: PayloadFormat,
    max: usize,
    units: Peekable<Units<'a>>,
    /// What is left of a divided unit: where, and how much.
    rest: Option<(usize, usize)>,
}

impl Iterator for Fragments<'_> {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        let header_len = self.format.header_len();
        if let Some((offset, left)) = self.rest.take() {
            let len = left.min(self.max - header_len);
            if len < left {
                self.rest = Some((offset + len, left - len));
            }
            return Some(self.fragment(offset, len, 0, header_len, false));
        }
        let unit = self.units.next()?;
        let whole = match self.format {
            PayloadFormat::H264 => unit.len - unit.prefix <= self.max,
            _ => header_len + unit.len - unit.prefix <= self.max,
        };
        if !whole {
            return Some(self.divide(unit));
        }
        if self.format == PayloadFormat::H264 {
            return Some(self.fragment(unit.offset, unit.len, unit.prefix, 0, true));
        }
        let mut len = unit.len;
        let room = self.max - header_len + unit.prefix;
        while let Some(more) = self.units.next_if(|more| !more.apart && len + more.len <= room) {
            len += more.len;
        }
        Some(self.fragment(unit.offset, len, unit.prefix, header_len, true))
    }
}

impl Fragments<'_> {
    fn divide(&mut self, unit: Unit) -> Fragment {
        let header_len = self.format.header_len();
        // The type of a divided NAL unit stands in the payload headers.
        let implied = unit.prefix + usize::from(self.format == PayloadFormat::H264);
        let len = (self.max - header_len + implied).min(unit.len);
        if len < unit.len {
            self.rest = Some((unit.offset + len, unit.len - len));
        }
        self.fragment(unit.offset, len, implied, header_len, true)
    }

    fn fragment(
        &mut self,
        offset: usize,
        len: usize,
        implied: usize,
        header_len: usize,
        starts_unit: bool,
    ) -> Fragment {
        let ends_unit = self.rest.is_none();
        let last = ends_unit && self.units.peek().is_none();
        Fragment { offset, len, implied, header_len, starts_unit, ends_unit, last }
    }
}

/// One payload with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// What it stands for.
    pub fragment: Fragment,
    header: [u8; 4],
    body: &'a [u8],
}

impl Payload<'_> {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header[..self.fragment.header_len]);
        out.extend_from_slice(self.body);
    }
}

/// As [`fragments`] of [`AccessUnit::Bytes`], with the bytes of the payloads.
pub fn payloads(format: PayloadFormat, frame: &[u8], max_payload: usize) -> impl Iterator<Item = Payload<'_>> {
    let (mut picture, mut nal) = (Mpeg2Picture::default(), 0);
    fragments(format, &AccessUnit::Bytes(frame), max_payload).map(move |fragment| {
        let carried = &frame[fragment.offset..fragment.offset + fragment.len];
        let body = &carried[fragment.implied..];
        let mut header = [0; 4];
        match format {
            PayloadFormat::Mpeg4 => {}
            PayloadFormat::Mpeg2 => {
                if fragment.starts_unit {
                    picture.update(carried);
                }
                header = picture.header(&fragment);
            }
            // P: the two zero bytes of a start code are left out (RFC 4629, section 5.1).
            PayloadFormat::H263p => header[0] = if fragment.implied > 0 { 0x04 } else { 0 },
            PayloadFormat::H264 => {
                if let (true, Some(&first)) = (fragment.starts_unit, carried.get(fragment.implied.wrapping_sub(1))) {
                    nal = first;
                }
                // Indicator: F and NRI of the unit, type 28. Header: start, end, the unit's type (RFC 6184, section
                // 5.8).
                header[0] = nal & 0xe0 | units::FU_A;
                header[1] = u8::from(fragment.starts_unit) << 7 | u8::from(fragment.ends_unit) << 6 | nal & 0x1f;
            }
        }
        Payload { fragment, header, body }
    })
}

/// What RFC 2250 repeats of the latest picture header in each payload.
#[derive(Clone, Copy, Default)]
struct Mpeg2Picture {
    temporal_reference: u16,
    coding_type: u8,
    /// FBV, BFC, FFV, FFC.
    vectors: u8,
    sequence: bool,
}

impl Mpeg2Picture {
    fn update(&mut self, unit: &[u8]) {
        self.sequence = false;
        for (at, code) in units::start_codes(unit) {
            match code {
                units::SEQUENCE => self.sequence = true,
                units::PICTURE => {
                    let Some(&[a, b, _, d, e]) = unit.get(at + 4..).and_then(|rest| rest.first_chunk()) else {
                        return;
                    };
                    self.temporal_reference = u16::from(a) << 2 | u16::from(b >> 6);
                    self.coding_type = b >> 3 & 7;
                    let forward = (d << 1 & 0x0e | e >> 7) & 0x0f;
                    let backward = e >> 3 & 0x0f;
                    self.vectors = match self.coding_type {
                        2 => forward,
                        3 => backward << 4 | forward,
                        _ => 0,
                    };
                }
                units::FIRST_SLICE..=units::LAST_SLICE => return,
                _ => {}
            }
        }
    }

    /// RFC 2250, section 3.4: MBZ 5, T 1, TR 10; AN 1, N 1, S 1, B 1, E 1, P 3; FBV 1, BFC 3, FFV 1, FFC 3.
    fn header(&self, fragment: &Fragment) -> [u8; 4] {
        let [high, low] = self.temporal_reference.to_be_bytes();
        let flags = u8::from(self.sequence && fragment.starts_unit) << 5
            | u8::from(fragment.starts_unit) << 4
            | u8::from(fragment.ends_unit) << 3;
        [high, low, flags | self.coding_type, self.vectors]
    }
}
