//! Reassembles frames from RTP payloads.

use super::{PayloadFormat, av1, h265, units, vp8, vp9};
use crate::ParseError;
use crate::bytes::Reader;

/// Maximum length of a frame in bytes.
pub const MAX_FRAME: usize = 16 << 20;

/// A reassembled frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reassembled {
    /// The usable bytes of the frame. H.264 and H.265 have NAL units after start codes of four bytes. AV1 has a
    /// temporal delimiter and OBUs with sizes.
    pub bytes: Vec<u8>,
    /// Whether a part of the frame is missing or was rejected.
    pub damaged: bool,
    /// Whether a part of the frame is missing because its packetisation is not supported.
    pub unsupported: bool,
}

/// Reassembles one frame at a time from payloads in sequence. Call [`Depacketiser::finish`] between two frames.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    format: PayloadFormat,
    frame: Reassembled,
    /// Whether the start of a unit was lost. Bytes are then dropped until the next unit begins.
    headless: bool,
    /// Whether the current unit continues in the next payload. For VP9, a unit is a frame.
    open: bool,
    /// Used for AV1: offset of the incomplete unit in the frame.
    unit: usize,
    /// The unsupported packetisation of the current unit, while this unit continues.
    skipped: Option<&'static str>,
    /// See [`Depacketiser::is_orphaned`].
    orphaned: bool,
}

/// The start code that is written before each NAL unit.
const START: [u8; 4] = [0, 0, 0, 1];

impl Depacketiser {
    /// Creates a depacketiser for payloads in `format`.
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

    /// Handles a gap before the next packet. Drops what can't be decoded without the lost packets. This is the rest of
    /// a slice, a GOB, a NAL unit, or a VP8 or VP9 frame. For AV1, it is a whole OBU. MPEG-4 data is kept, because
    /// decoders resynchronise.
    pub fn gap(&mut self) {
        self.frame.damaged = true;
        self.headless = true;
        self.give_up();
    }

    fn give_up(&mut self) {
        if std::mem::take(&mut self.open) {
            self.frame.damaged = true;
            if self.format == PayloadFormat::Av1 {
                // Remove the incomplete OBU. It has no valid size, so a decoder could not skip it.
                self.frame.bytes.truncate(self.unit);
            }
        }
    }

    /// Processes the payload of the next packet.
    ///
    /// # Errors
    /// - The payload does not conform to its format. It is then treated as lost.
    /// - Its packetisation or its layer is not supported.
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
            // An unused layer leaves no gap in the layers that are used.
            Ok(_) | Err(ParseError::OtherLayer { .. }) => {}
            Err(_) => self.gap(),
        }
        pushed.map(|kept| self.orphaned = !kept)
    }

    /// Returns whether the latest payload was dropped because the start of its unit was lost.
    pub const fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// Returns the bytes of the frame that have been reassembled so far.
    pub fn so_far(&self) -> &[u8] {
        &self.frame.bytes
    }

    /// Returns whether the unit of the latest payload is incomplete. Not every format shows this.
    pub const fn is_within_unit(&self) -> bool {
        self.open
    }

    /// Returns the frame and prepares for the next frame.
    pub fn finish(&mut self) -> Reassembled {
        self.give_up();
        (self.headless, self.skipped) = (false, None);
        std::mem::take(&mut self.frame)
    }

    fn append(&mut self, head: &[u8], body: &[u8]) -> Result<(), ParseError> {
        // Limit the length. A sender that never ends a frame must not exhaust the memory.
        if self.frame.bytes.len() + head.len() + body.len() > MAX_FRAME {
            return Err(ParseError::TooMany { what: "bytes in a frame", limit: MAX_FRAME });
        }
        self.frame.bytes.extend_from_slice(head);
        self.frame.bytes.extend_from_slice(body);
        Ok(())
    }

    /// Returns whether a payload is kept. `begins` indicates whether the payload starts a unit.
    fn keeps(&mut self, begins: bool) -> bool {
        self.headless &= !begins;
        !self.headless
    }

    fn push_mpeg2(&mut self, payload: &[u8]) -> Result<bool, ParseError> {
        let mut reader = Reader::new(payload);
        let header = reader.u32("MPEG-2 payload header")?;
        // T: the MPEG-2 specific header extension follows the header (RFC 2250, section 3.4).
        if header & 0x0400_0000 != 0 {
            reader.u32("MPEG-2 header extension")?;
        }
        // B: the payload starts a slice.
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
            // P: the two zero bytes of the start code were omitted (RFC 4629, section 5.1). Add them again.
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
            // If a unit is still incomplete, its end was lost.
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
            // These are packet types of the interleaved mode (RFC 6184, table 3).
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

    /// Adds the NAL units of an aggregation packet. Each unit follows its length of 16 bits.
    fn aggregate(&mut self, mut reader: Reader<'_>) -> Result<(), ParseError> {
        while !reader.rest.is_empty() {
            let len = reader.u16("aggregated NAL unit")?;
            let unit = reader.take(usize::from(len), "aggregated NAL unit")?;
            self.append(&START, unit)?;
        }
        Ok(())
    }

    /// Processes a fragment of a NAL unit. `fu` is the FU header, which shows whether the fragment is the first or the
    /// last. `nal` is the header of the unit.
    fn part(&mut self, fu: u8, nal: &[u8], body: &[u8]) -> Result<bool, ParseError> {
        let (starts, ends) = (fu & 0x80 != 0, fu & 0x40 != 0);
        if starts {
            // If a unit is still open here, the previous unit has not ended.
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
        // Call `gap` here if the start or the end of a frame was lost and the caller has not called it.
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
        // Call `gap` here if a packet was lost and the caller has not called it. In this case, the new packet starts a
        // frame while another is open, or continues a frame while none is open.
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
