//! Reads supplemental enhancement information (SEI) of H.264 (sections 7.3.2.3 and D.1) and H.265 (sections 7.3.2.4 and
//! D.2). A NAL unit contains one or more messages. The payload type and the size of a message are coded in the same
//! way: as any number of bytes with the value 255, followed by one byte below 255. The value is the sum of these bytes.
//!
//! ```text
//! payload type | size | payload | the next message, or the trailing bits
//! ```

/// Payload type of a recovery point. A decoder can start at its picture (H.264, D.2.8; H.265, D.3.8).
const RECOVERY_POINT: usize = 6;

/// Returns whether a NAL unit contains a recovery point message. `body` is the unit without its header.
pub(super) fn has_recovery_point(body: &[u8]) -> bool {
    let mut bytes = Unescaped { bytes: body.iter(), zeros: 0 };
    loop {
        let (Some(kind), Some(size)) = (number(&mut bytes), number(&mut bytes)) else { return false };
        let whole = (0..size).all(|_| bytes.next().is_some());
        if !whole || kind == RECOVERY_POINT {
            // Reject an empty message. A recovery point contains the number of frames until recovery, so it is never
            // empty.
            return whole && size > 0;
        }
    }
}

/// Reads a payload type or a size. It is the sum of all bytes up to the first byte below 255.
fn number(bytes: &mut Unescaped<'_>) -> Option<usize> {
    let mut sum = 0usize;
    loop {
        let byte = bytes.next()?;
        sum = sum.saturating_add(byte.into());
        if byte < 255 {
            return Some(sum);
        }
    }
}

/// Iterates over the bytes of a NAL unit, without each `emulation_prevention_three_byte`.
struct Unescaped<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// Number of zeros directly before the next byte.
    zeros: u32,
}

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let mut byte = *self.bytes.next()?;
        // Skip the 03, because 00 00 03 stands for 00 00 (H.264, section 7.4.1).
        if byte == 3 && self.zeros >= 2 {
            self.zeros = 0;
            byte = *self.bytes.next()?;
        }
        self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        Some(byte)
    }
}
