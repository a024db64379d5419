//! Packetises video frames into RTP payloads and reassembles them.
//!
//! | format | document | payload header | units of a frame |
//! |---|---|---|---|
//! | MPEG-4 | RFC 6416 | none | the frame |
//! | MPEG-2 | RFC 2250 | 4 bytes | slices, the first with all headers before it |
//! | H.263+ | RFC 4629 | 2 bytes | what begins with a start code: picture, GOBs, slices |
//! | H.264 | RFC 6184 | none, or 2 bytes in each part of a divided unit (FU-A) | NAL units |
//! | H.265 | RFC 7798 | none, or 3 bytes in each part of a divided unit (FU) | NAL units |
//! | VP8 | RFC 7741 | 4 bytes, with a picture id of 15 bits | the frame |
//! | VP9 | RFC 9628 | 3 bytes, with a picture id of 15 bits | the frame |
//! | AV1 | AOM's RTP payload format 1.0 | 1 byte, and if the payload has two OBUs, the length of the first | OBUs |
//!
//! Parameter sets and sequence headers are sent in band. [`fragments`] only computes where a frame is divided, without
//! allocation. [`payloads`] also returns the bytes.

mod av1;
mod depacketise;
mod h265;
mod kind;
mod sei;
mod units;
mod vp8;
mod vp9;

pub use depacketise::{Depacketiser, MAX_FRAME, Reassembled};
pub use kind::{PictureKind, is_key_frame, picture_kind};
pub use units::{nal_units, unit_sizes};

use std::iter::Peekable;
use units::{Unit, Units};

/// An RTP payload format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// MPEG-4 part 2 (RFC 6416, section 5).
    Mpeg4,
    /// MPEG-1 and MPEG-2 (RFC 2250, section 3).
    Mpeg2,
    /// H.263 in all its versions (RFC 4629).
    H263p,
    /// H.264 in packetization mode 1 (RFC 6184).
    H264,
    /// H.265 without decoding order numbers: `sprop-max-don-diff` is 0 (RFC 7798).
    H265,
    /// VP8 (RFC 7741).
    Vp8,
    /// VP9 with one spatial layer in non-flexible mode (RFC 9628). Superframes are not supported.
    Vp9,
    /// AV1 with one layer (AOM, RTP Payload Format For AV1, version 1.0).
    Av1,
}

/// The RTP clock rate in Hz. It is the same for all formats.
pub const CLOCK_RATE: u32 = 90_000;

impl PayloadFormat {
    /// All formats.
    pub const ALL: [Self; 8] =
        [Self::Mpeg4, Self::Mpeg2, Self::H263p, Self::H264, Self::H265, Self::Vp8, Self::Vp9, Self::Av1];

    const fn row(self) -> Row {
        match self {
            Self::Mpeg4 => Row { shares: true, ..Row::of("mpeg4", "MP4V-ES", 0) },
            Self::Mpeg2 => Row { shares: true, static_type: Some(32), ..Row::of("mpeg2", "MPV", 4) },
            Self::H263p => Row { shares: true, ..Row::of("h263", "H263-1998", 2) },
            Self::H264 => Row { part_header: 2, stood_for: 1, ..Row::of("h264", "H264", 0) },
            Self::H265 => Row { part_header: 3, stood_for: 2, ..Row::of("h265", "H265", 0) },
            Self::Vp8 => Row::of("vp8", "VP8", 4),
            Self::Vp9 => Row::of("vp9", "VP9", 3),
            Self::Av1 => Row::of("av1", "AV1", 1),
        }
    }

    /// Returns the name of the codec that settings and options use.
    pub const fn codec(self) -> &'static str {
        self.row().codec
    }

    /// Returns the format whose codec has this name in settings and options.
    pub fn of_codec(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.codec() == name)
    }

    /// Returns the encoding name that `a=rtpmap` contains. It is a registered media subtype.
    pub const fn encoding(self) -> &'static str {
        self.row().encoding
    }

    /// Returns the format with this encoding name. Case is ignored.
    pub fn of_encoding(name: &str) -> Option<Self> {
        let known = |format: &Self| format.encoding().eq_ignore_ascii_case(name);
        // Accept a second name for H.263, because RFC 4629 registers two names for this payload format.
        let other = name.eq_ignore_ascii_case("H263-2000").then_some(Self::H263p);
        Self::ALL.into_iter().find(known).or(other)
    }

    /// Returns the static payload type that RFC 3551 assigns to the format. Other formats use a dynamic type, 96…127.
    pub const fn static_type(self) -> Option<u8> {
        self.row().static_type
    }
}

#[derive(Clone, Copy)]
struct Row {
    codec: &'static str,
    encoding: &'static str,
    static_type: Option<u8>,
    /// Length of the payload header before whole units, in bytes.
    whole_header: usize,
    /// Length of the payload header before a part of a unit, in bytes.
    part_header: usize,
    /// Length of the NAL unit header in bytes. If a unit is divided, the payload header replaces its NAL unit header.
    stood_for: usize,
    /// Whether several whole units may be sent in one payload.
    shares: bool,
}

impl Row {
    const fn of(codec: &'static str, encoding: &'static str, header: usize) -> Self {
        let (whole_header, part_header) = (header, header);
        Self { codec, encoding, static_type: None, whole_header, part_header, stood_for: 0, shares: false }
    }
}

/// Minimum of the payload limit. A smaller limit is raised to this value.
pub const MIN_PAYLOAD: usize = 8;

/// A payload, described as a range of the access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of the range in the access unit, in bytes.
    pub offset: usize,
    /// Length of the range in bytes.
    pub len: usize,
    /// Number of bytes at the start of the range that are not sent, because the payload header implies them. An example
    /// is a start code.
    pub implied: usize,
    /// Length of the payload header in bytes.
    pub header_len: usize,
    /// Whether the fragment is the first of a unit.
    pub starts_unit: bool,
    /// Whether the fragment is the last of a unit.
    pub ends_unit: bool,
    /// Whether the fragment is the last of the access unit. RTP's marker bit is then set.
    pub last: bool,
}

impl Fragment {
    /// Returns the length of the payload in bytes, including the payload header.
    pub const fn payload_len(&self) -> usize {
        self.header_len + self.len - self.implied
    }
}

/// Divides a frame into payloads of at most `max_payload` bytes. A limit below [`MIN_PAYLOAD`] is raised to it.
///
/// For H.264 and H.265, the frame must be a byte stream as in annex B, or a single NAL unit. For AV1, it must be in the
/// low-overhead format (AV1, section 5).
///
/// - H.264 and H.265: each NAL unit has its own payloads.
/// - AV1: a payload may contain the end of one OBU and the start of the next.
/// - Other formats: whole units share a payload if they fit into it. Each part of a divided unit has its own payload,
///   so that a loss damages few units.
pub fn fragments(format: PayloadFormat, frame: &[u8], max_payload: usize) -> Fragments<'_> {
    let (max, units) = (max_payload.max(MIN_PAYLOAD), Units::new(format, frame).peekable());
    Fragments { format, frame, max, units, rest: None }
}

/// The iterator that [`fragments`] returns.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    format: PayloadFormat,
    frame: &'a [u8],
    max: usize,
    units: Peekable<Units<'a>>,
    /// The remaining part of a divided unit: its offset in the access unit and its length in bytes.
    rest: Option<(usize, usize)>,
}

impl Iterator for Fragments<'_> {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.format == PayloadFormat::Av1 {
            return self.next_obus();
        }
        let header_len = self.format.row().part_header;
        if let Some((offset, left)) = self.rest.take() {
            let len = left.min(self.max - header_len);
            if len < left {
                self.rest = Some((offset + len, left - len));
            }
            return Some(self.fragment(offset, len, 0, header_len, false));
        }
        let unit = self.units.next()?;
        let header_len = self.format.row().whole_header;
        if header_len + unit.len - unit.prefix > self.max {
            return Some(self.divide(unit));
        }
        let mut len = unit.len;
        if self.format.row().shares {
            // The start code of the first unit is not sent, so it does not use up room.
            let room = self.max - header_len + unit.prefix;
            while let Some(more) = self.units.next_if(|more| !more.apart && len + more.len <= room) {
                len += more.len;
            }
        }
        Some(self.fragment(unit.offset, len, unit.prefix, header_len, true))
    }
}

impl Fragments<'_> {
    fn divide(&mut self, unit: Unit) -> Fragment {
        let header_len = self.format.row().part_header;
        // The NAL unit header is implied, because the FU header contains its fields.
        let implied = unit.prefix + self.format.row().stood_for;
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

/// A payload together with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// Describes which part of the frame the payload contains.
    pub fragment: Fragment,
    header: [u8; 4],
    body: &'a [u8],
}

impl Payload<'_> {
    /// Appends the payload to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header[..self.fragment.header_len]);
        out.extend_from_slice(self.body);
    }
}

/// Does the same as [`fragments`], but returns the payloads with their bytes. `picture` is the frame number. Its low
/// 15 bits are the picture ID of VP8 and VP9.
pub fn payloads(
    format: PayloadFormat,
    frame: &[u8],
    picture: u32,
    max_payload: usize,
) -> impl Iterator<Item = Payload<'_>> {
    let (mut mpeg2, mut nal) = (Mpeg2Picture::default(), [0; 2]);
    let key = matches!(format, PayloadFormat::Vp9 | PayloadFormat::Av1) && is_key_frame(format, frame);
    fragments(format, frame, max_payload).map(move |fragment| {
        let carried = &frame[fragment.offset..fragment.offset + fragment.len];
        let body = &carried[fragment.implied..];
        // Remember the NAL unit header. Only the first fragment contains it, but each packet must repeat its fields.
        if fragment.starts_unit && format.row().stood_for > 0 {
            let header = carried.get(fragment.implied.saturating_sub(format.row().stood_for)..fragment.implied);
            nal[..header.map_or(0, <[u8]>::len)].copy_from_slice(header.unwrap_or_default());
        }
        let mut header = [0; 4];
        match format {
            PayloadFormat::Mpeg4 => {}
            PayloadFormat::Mpeg2 => {
                if fragment.starts_unit {
                    mpeg2.update(carried);
                }
                header = mpeg2.header(&fragment);
            }
            // P: the two zero bytes at the beginning of a start code are omitted (RFC 4629, section 5.1).
            PayloadFormat::H263p => header[0] = if fragment.implied > 0 { 0x04 } else { 0 },
            PayloadFormat::H264 => {
                // The FU indicator contains F and NRI of the unit, and type 28. The FU header contains the start bit,
                // the end bit, and the type of the unit (RFC 6184, section 5.8).
                header[0] = nal[0] & 0xe0 | units::FU_A;
                header[1] = u8::from(fragment.starts_unit) << 7 | u8::from(fragment.ends_unit) << 6 | nal[0] & 0x1f;
            }
            PayloadFormat::H265 => header = h265::header(nal, &fragment),
            PayloadFormat::Vp8 => header = vp8::header(picture, &fragment),
            PayloadFormat::Vp9 => header = vp9::header(picture, key, &fragment),
            PayloadFormat::Av1 => header = av1::header(frame, key, &fragment),
        }
        Payload { fragment, header, body }
    })
}

/// Fields of the latest picture header. RFC 2250 repeats them in each payload.
#[derive(Clone, Copy, Default)]
struct Mpeg2Picture {
    temporal_reference: u16,
    coding_type: u8,
    /// FBV, BFC, FFV and FFC in one byte (RFC 2250, section 3.4).
    vectors: u8,
    sequence: bool,
}

impl Mpeg2Picture {
    fn update(&mut self, unit: &[u8]) {
        // S is set only if there is a sequence header (RFC 2250, section 3.4).
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
                    // The flag and the code of the forward vector span two bytes.
                    let forward = (d << 1 & 0x0e | e >> 7) & 0x0f;
                    let backward = e >> 3 & 0x0f;
                    self.vectors = match self.coding_type {
                        2 => forward,
                        3 => backward << 4 | forward,
                        _ => 0,
                    };
                }
                // Stop, because headers occur only before the first slice.
                units::FIRST_SLICE..=units::LAST_SLICE => return,
                _ => {}
            }
        }
    }

    /// Returns the payload header (RFC 2250, section 3.4). These are its fields, each with its number of bits:
    ///
    /// MBZ 5, T 1, TR 10; AN 1, N 1, S 1, B 1, E 1, P 3; FBV 1, BFC 3, FFV 1, FFC 3
    fn header(&self, fragment: &Fragment) -> [u8; 4] {
        let [high, low] = self.temporal_reference.to_be_bytes();
        let flags = u8::from(self.sequence && fragment.starts_unit) << 5
            | u8::from(fragment.starts_unit) << 4
            | u8::from(fragment.ends_unit) << 3;
        [high, low, flags | self.coding_type, self.vectors]
    }
}
