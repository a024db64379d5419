//! Payloads back into frames.

use super::{PayloadFormat, av1, h265, units, vp8, vp9};
use crate::ParseError;
use crate::bytes::Reader;

/// No frame may be longer, in bytes.
pub const MAX_FRAME: usize = 16 << 20;

/// A frame as it came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reassembled {
    /// Its bytes, as far as they are of use: each NAL unit behind a start code of four bytes; in AV1 a temporal
    /// delimiter and each OBU with its size.
    pub bytes: Vec<u8>,
    /// Whether something is missing or was refused.
    pub damaged: bool,
    /// Whether something came packed in a way that is not taken apart, and is not in its bytes.
    pub unsupported: bool,
}

/// Puts the payloads of one frame together. Payloads are pushed in the order of their sequence numbers; between frames,
/// [`Depacketiser::finish`] is called.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    format: PayloadFormat,
    frame: Reassembled,
    /// The head of what follows was lost: bytes are dropped until a unit begins.
    headless: bool,
    /// Inside a divided unit, or in VP9 inside a frame.
    open: bool,
    /// Where in the frame the open unit begins, in AV1.
    unit: usize,
    /// The way in which the unit that goes on was begun, where that is not taken apart.
    skipped: Option<&'static str>,
    /// See [`Depacketiser::is_orphaned`].
    orphaned: bool,
}

/// A start code before each NAL unit.
const START: [u8; 4] = [0, 0, 0, 1];

impl Depacketiser {
    /// A depacketiser of payloads in `format`.
    pub fn new(format: PayloadFormat) -> Self {
        Self {
            format,
            frame: Reassembled::default(),
            headless: false,
            open: false,
            unit: 0,
            skipped: None,
            orphaned: false,
        }
    }

    /// One or more packets are missing before the next one. What can't be decoded without them is dropped: the rest of
    /// a slice, a GOB or a NAL unit; of an OBU all, since its size is not known; of a frame of VP8 or VP9 the rest.
    /// MPEG-4 is kept, since its decoders look for the next marker themselves.
    pub fn gap(&mut self) {
        self.frame.damaged = true;
        self.headless = true;
        self.give_up();
    }

    /// The end of the open unit won't come any more.
    fn give_up(&mut self) {
        if std::mem::take(&mut self.open) {
            self.frame.damaged = true;
            if self.format == PayloadFormat::Av1 {
                self.frame.bytes.truncate(self.unit);
            }
        }
    }

    /// Takes the payload of the next packet.
    ///
    /// # Errors
    /// A payload that contradicts its format counts as lost. One that is packed in an unsupported way does not, nor one
    /// of another layer.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        let pushed = match self.format {
            PayloadFormat::Mpeg4 => self.append(&[], payload).map(|()| true),
            PayloadFormat::Mpeg2 => self.push_mpeg2(payload),
            PayloadFormat::H263p => self.push_h263(payload),
            PayloadFormat::H264 => self.push_h264(payload),
            PayloadFormat::H265 => self.push_h265(payload),
            PayloadFormat::Vp8 => self.push_vp8(payload),
            PayloadFormat::Vp9 => self.push_vp9(payload),
            PayloadFormat::Av1 => self.push_av1(payload),
        };
        match pushed {
            Err(ParseError::Unsupported { .. }) => self.frame.unsupported = true,
            Ok(_) | Err(ParseError::OtherLayer { .. }) => {}
            Err(_) => self.gap(),
        }
        pushed.map(|kept| self.orphaned = !kept)
    }

    /// Whether the latest payload was left out since it continues a unit whose beginning is lost.
    pub const fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// What came of the frame, as it is now.
    pub fn so_far(&self) -> &[u8] {
        &self.frame.bytes
    }

    /// Whether the latest payload says that its unit goes on in the next one, as far as its format says so.
    pub const fn is_within_unit(&self) -> bool {
        self.open
    }

    /// The frame is over: gives it out and begins the next.
    pub fn finish(&mut self) -> Reassembled {
        self.give_up();
        (self.headless, self.skipped) = (false, None);
        std::mem::take(&mut self.frame)
    }

    fn append(&mut self, head: &[u8], body: &[u8]) -> Result<(), ParseError> {
        if self.frame.bytes.len() + head.len() + body.len() > MAX_FRAME {
            return Err(ParseError::TooMany { what: "bytes in a frame", limit: MAX_FRAME });
        }
        self.frame.bytes.extend_from_slice(head);
        self.frame.bytes.extend_from_slice(body);
        Ok(())
    }

    /// Whether to keep a payload that begins a unit, or continues one.
    fn keeps(&mut self, begins: bool) -> bool {
        self.headless &= !begins;
        !self.headless
    }

    fn push_mpeg2(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut reader = Reader::new(payload);
        let header = reader.u32("MPEG-2 payload header")?;
        if header & 0x0400_0000 != 0 {
            reader.u32("MPEG-2 header extension")?;
        }
        let keeps = self.keeps(header & 0x1000 != 0);
        if keeps {
            self.append(&[], reader.rest)?;
        }
        Ok(keeps)
    }

    fn push_h263(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut reader = Reader::new(payload);
        let header = reader.u16("H.263 payload header")?;
        let begins = header & 0x0400 != 0;
        if header & 0x0200 != 0 {
            reader.u8("H.263 redundancy coding")?;
        }
        reader.take(usize::from(header >> 3 & 0x3f), "H.263 extra picture header")?;
        let keeps = self.keeps(begins);
        if keeps {
            let start: &[u8] = if begins { &[0, 0] } else { &[] };
            self.append(start, reader.rest)?;
        }
        Ok(keeps)
    }

    fn push_h264(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut reader = Reader::new(payload);
        let indicator = reader.u8("NAL unit header")?;
        let kind = indicator & 0x1f;
        if kind != units::FU_A {
            // Whatever was open has lost its end.
            self.give_up();
            (self.headless, self.skipped) = (false, None);
        }
        match kind {
            1..=23 => self.append(&START, payload).map(|()| true),
            units::STAP_A => self.aggregate(reader).map(|()| true),
            units::FU_A => {
                let header = reader.u8("FU header")?;
                let nal = [indicator & 0xe0 | header & 0x1f];
                self.part(header, &nal, reader.rest)
            }
            // Those of the interleaved mode (RFC 6184, table 3).
            units::STAP_B => Err(ParseError::Unsupported { what: "H.264 in STAP-B packets (interleaved mode)" }),
            units::MTAP16 => Err(ParseError::Unsupported { what: "H.264 in MTAP16 packets (interleaved mode)" }),
            units::MTAP24 => Err(ParseError::Unsupported { what: "H.264 in MTAP24 packets (interleaved mode)" }),
            units::FU_B => {
                let what = "H.264 in FU-B packets (interleaved mode)";
                let ends = reader.u8("FU header")? & 0x40 != 0;
                self.skipped = (!ends).then_some(what);
                Err(ParseError::Unsupported { what })
            }
            _ => Err(ParseError::Malformed { what: "a NAL unit type that RFC 6184 reserves" }),
        }
    }

    /// NAL units, each behind its length of 16 bits.
    fn aggregate(&mut self, mut reader: Reader<'_>) -> Result<(), ParseError> {
        while !reader.rest.is_empty() {
            let len = reader.u16("aggregated NAL unit")?;
            let unit = reader.take(usize::from(len), "aggregated NAL unit")?;
            self.append(&START, unit)?;
        }
        Ok(())
    }

    /// A part of a NAL unit; `fu` says in its first bits whether it is the first or the last one, `nal` is the unit's
    /// header.
    fn part(&mut self, fu: u8, nal: &[u8], body: &[u8]) -> Result<bool, ParseError> {
        let (starts, ends) = (fu & 0x80 != 0, fu & 0x40 != 0);
        if starts {
            self.frame.damaged |= self.open;
            (self.headless, self.skipped) = (false, None);
            self.append(&START, nal)?;
        } else if let Some(what) = self.skipped {
            self.skipped = self.skipped.filter(|_| !ends);
            return Err(ParseError::Unsupported { what });
        } else if !self.open {
            self.frame.damaged = true;
            return Ok(false);
        }
        self.append(&[], body)?;
        self.open = !ends;
        Ok(true)
    }

    fn push_h265(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut reader = Reader::new(payload);
        let header: [u8; 2] = reader.array("NAL unit header")?;
        let kind = h265::kind(header);
        if kind != h265::FU {
            self.give_up();
            self.headless = false;
        }
        match kind {
            0..h265::AP => self.append(&START, payload).map(|()| true),
            h265::AP => self.aggregate(reader).map(|()| true),
            h265::FU => {
                let fu = reader.u8("FU header")?;
                self.part(fu, &h265::of_part(header, fu), reader.rest)
            }
            h265::PACI => Err(ParseError::Unsupported { what: "H.265 in PACI packets (RFC 7798, section 4.4.4)" }),
            _ => Err(ParseError::Malformed { what: "a NAL unit type that RFC 7798 leaves open" }),
        }
    }

    fn push_vp8(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let (begins, body) = vp8::parse(payload)?;
        // The head of the frame, or the end of the one before, was lost, and nobody has said so.
        if begins != self.frame.bytes.is_empty() && !self.headless {
            self.gap();
        }
        let keeps = self.keeps(begins);
        if keeps {
            self.append(&[], body)?;
        }
        Ok(keeps)
    }

    fn push_vp9(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let (descriptor, body) = vp9::parse(payload)?;
        if descriptor.begins == self.open && !self.headless {
            self.gap();
        }
        let keeps = self.keeps(descriptor.begins);
        if keeps {
            self.append(&[], body)?;
            self.open = !descriptor.ends;
        }
        Ok(keeps)
    }

    fn push_av1(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut kept = false;
        for element in av1::elements(payload)? {
            if !element.continues {
                self.give_up();
                (self.open, self.unit) = (true, self.frame.bytes.len());
            }
            if self.open {
                kept = true;
                self.append(&[], element.bytes)?;
                if !element.goes_on {
                    self.open = false;
                    av1::complete(&mut self.frame.bytes, self.unit)?;
                }
            } else {
                self.frame.damaged = true;
            }
        }
        Ok(kept)
    }
}
