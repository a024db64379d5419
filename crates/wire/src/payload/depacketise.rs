//! Payloads back into frames.

use super::{PayloadFormat, units};
use crate::ParseError;
use crate::bytes::Reader;

/// No frame may be longer, in bytes.
pub const MAX_FRAME: usize = 16 << 20;

/// A frame as it came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reassembled {
    /// Its bytes, as far as they are of use; in H.264 each NAL unit behind a start code of four bytes.
    pub bytes: Vec<u8>,
    /// Whether something is missing or was refused.
    pub damaged: bool,
}

/// Puts the payloads of one frame together. Payloads are pushed in the order of their sequence numbers; between frames,
/// [`Depacketiser::finish`] is called.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    format: PayloadFormat,
    frame: Reassembled,
    /// The head of what follows was lost: bytes are dropped until a unit begins.
    headless: bool,
    /// Inside a divided NAL unit.
    open: bool,
}

impl Depacketiser {
    /// For payloads of one format.
    pub fn new(format: PayloadFormat) -> Self {
        Self { format, frame: Reassembled::default(), headless: false, open: false }
    }

    /// One or more packets are missing before the next one. What can't be decoded without them is dropped: the rest of
    /// a slice, a GOB or a NAL unit. MPEG-4 is kept, since its decoders look for the next marker themselves.
    pub fn gap(&mut self) {
        self.frame.damaged = true;
        self.headless = true;
        self.open = false;
    }

    /// The payload of the next packet. One that can't be read counts as lost.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        let pushed = match self.format {
            PayloadFormat::Mpeg4 => self.append(&[], payload),
            PayloadFormat::Mpeg2 => self.push_mpeg2(payload),
            PayloadFormat::H263p => self.push_h263(payload),
            PayloadFormat::H264 => self.push_h264(payload),
        };
        if pushed.is_err() {
            self.gap();
        }
        pushed
    }

    /// The frame is over: gives it out and begins the next.
    pub fn finish(&mut self) -> Reassembled {
        // A divided unit without its end.
        self.frame.damaged |= self.open;
        (self.open, self.headless) = (false, false);
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

    fn push_mpeg2(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        let mut reader = Reader::new(payload);
        let header = reader.u32("MPEG-2 payload header")?;
        if header & 0x0400_0000 != 0 {
            reader.u32("MPEG-2 header extension")?;
        }
        if self.keeps(header & 0x1000 != 0) {
            self.append(&[], reader.rest())?;
        }
        Ok(())
    }

    fn push_h263(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        let mut reader = Reader::new(payload);
        let header = reader.u16("H.263 payload header")?;
        let begins = header & 0x0400 != 0;
        if header & 0x0200 != 0 {
            reader.u8("H.263 redundancy coding")?;
        }
        reader.take(usize::from(header >> 3 & 0x3f), "H.263 extra picture header")?;
        if self.keeps(begins) {
            let start: &[u8] = if begins { &[0, 0] } else { &[] };
            self.append(start, reader.rest())?;
        }
        Ok(())
    }

    fn push_h264(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        const START: [u8; 4] = [0, 0, 0, 1];
        let mut reader = Reader::new(payload);
        let indicator = reader.u8("NAL unit header")?;
        let kind = indicator & 0x1f;
        if kind != units::FU_A {
            // Whatever was open has lost its end.
            self.frame.damaged |= std::mem::take(&mut self.open);
            self.headless = false;
        }
        match kind {
            1..=23 => self.append(&START, payload),
            units::STAP_A => {
                while !reader.rest().is_empty() {
                    let len = reader.u16("aggregated NAL unit")?;
                    let unit = reader.take(usize::from(len), "aggregated NAL unit")?;
                    self.append(&START, unit)?;
                }
                Ok(())
            }
            units::FU_A => {
                let header = reader.u8("FU header")?;
                let (starts, ends) = (header & 0x80 != 0, header & 0x40 != 0);
                if starts {
                    self.frame.damaged |= self.open;
                    self.headless = false;
                    let [a, b, c, d] = START;
                    self.append(&[a, b, c, d, indicator & 0xe0 | header & 0x1f], reader.rest())?;
                } else if self.open {
                    self.append(&[], reader.rest())?;
                } else {
                    self.frame.damaged = true;
                    return Ok(());
                }
                self.open = !ends;
                Ok(())
            }
            _ => Err(ParseError::Malformed { what: "NAL unit type that packetization mode 1 doesn't have" }),
        }
    }
}
