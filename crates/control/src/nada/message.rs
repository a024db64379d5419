//! The report that the receiver part of `nada` sends (RFC 8698, section 5.3).
//!
//! ```text
//! report (APP "NADA" 1):    rmode, 1 bit (1: gradual) │ x, 15 bits of 0.1 ms │ r_recv u32 bit/s │ 0 0
//! ```

use crate::Body;
use steadycast_units::{Rate, Span};

const REPORT: u8 = 1;
const GRADUAL: u16 = 0x8000;
const UNIT: Span = Span::micros(100);

/// Maximum of x that fits into 15 bits.
pub(super) const MOST_X: Span = Span::micros(3_276_700);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Message {
    /// Whether the receiver requests a gradual update (rmode 1). Otherwise, it requests a ramp-up (rmode 0).
    pub(super) gradual: bool,
    pub(super) x: Span,
    pub(super) received: Rate,
}

impl Message {
    pub(super) fn body(&self) -> Body {
        let tenths = (self.x.min(MOST_X).as_nanos() + UNIT.as_nanos() / 2) / UNIT.as_nanos();
        let head = (tenths as u16).min(GRADUAL - 1) | if self.gradual { GRADUAL } else { 0 };
        let received = u32::try_from(self.received.as_bps()).unwrap_or(u32::MAX);
        let mut bytes = head.to_be_bytes().to_vec();
        bytes.extend(received.to_be_bytes());
        bytes.extend([0, 0]);
        Body { subtype: REPORT, bytes }
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        let bytes = body.bytes.first_chunk::<8>().filter(|_| body.subtype == REPORT && body.bytes.len() == 8)?;
        let head = u16::from_be_bytes([bytes[0], bytes[1]]);
        let received = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        Some(Self {
            gradual: head & GRADUAL != 0,
            x: UNIT * u64::from(head & !GRADUAL),
            received: Rate::bps(u64::from(received)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_48_bits_and_what_it_cannot_hold_is_its_greatest() {
        let message = Message { gradual: true, x: Span::micros(15_040), received: Rate::kbps(1_000) };
        let body = message.body();
        assert_eq!(body.bytes, [0x80, 150, 0, 0x0f, 0x42, 0x40, 0, 0]);
        assert_eq!(Message::read(&body), Some(Message { x: Span::millis(15), ..message }));
        let most = Message { gradual: false, x: Span::secs(9), received: Rate::mbps(5_000) }.body();
        assert_eq!(most.bytes[..6], [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Message::read(&most).map(|m| (m.gradual, m.x)), Some((false, MOST_X)));
        assert_eq!(Message::read(&Body { subtype: 1, bytes: vec![0; 6] }), None);
        assert_eq!(Message::read(&Body { subtype: 2, bytes: vec![0; 8] }), None);
    }
}
