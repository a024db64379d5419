//! The messages that the sender and the receivers of `pgmcc` exchange. Numbers are in network byte order.

use crate::fields::{share, single, words};
use crate::{Body, Notice, ReceiverId};
use steadycast_units::Stamp;

pub(super) const NOTICE_ID: u8 = 5;

const REPORT_NOW: u8 = 1;
const HAS_ACKER: u8 = 2;

/// The header extension of each packet. It has 5 bytes, or 10 once the sender has a report to confirm.
///
/// ```text
///   0        4       5       6         10
///   ├────────┼───────┼───────┼─────────┤
///   │ acker  │ flags │ count │ loss    │     flags: bit 0, report now; bit 1, there is an acker
///   │ u32    │ u8    │ u8    │ f32     │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SenderNotice {
    /// The receiver that acknowledges this packet.
    pub(super) acker: Option<ReceiverId>,
    /// Whether the sender requests a report from all receivers, so that it can elect an acker.
    pub(super) report_now: bool,
    /// The latest report that has reached the sender. Receivers with the same or a lower loss rate then suppress their
    /// own reports.
    pub(super) confirmed: Option<Confirmation>,
}

/// The confirmation that a report has reached the sender. A PGM source confirms a NAK in the same way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Confirmation {
    /// Counter that distinguishes a new confirmation from an older one.
    pub(super) count: u8,
    pub(super) loss: f64,
}

impl SenderNotice {
    pub(super) fn notice(self) -> Notice {
        let mut bytes = [0; 10];
        bytes[..4].copy_from_slice(&self.acker.unwrap_or_default().0.to_be_bytes());
        bytes[4] = u8::from(self.report_now) | if self.acker.is_some() { HAS_ACKER } else { 0 };
        let Some(confirmed) = self.confirmed else { return Notice::new(NOTICE_ID, &bytes[..5]) };
        bytes[5] = confirmed.count;
        bytes[6..].copy_from_slice(&single(confirmed.loss).to_be_bytes());
        Notice::new(NOTICE_ID, &bytes)
    }

    pub(super) fn read(notice: &[u8]) -> Option<Self> {
        let (&[a, b, c, d, flags], rest) = notice.split_first_chunk()?;
        let confirmed = match *rest {
            [] => None,
            [count, e, f, g, h] => Some(Confirmation { count, loss: share(u32::from_be_bytes([e, f, g, h]))? }),
            _ => return None,
        };
        let acker = (flags & HAS_ACKER != 0).then(|| ReceiverId(u32::from_be_bytes([a, b, c, d])));
        Some(Self { acker, report_now: flags & REPORT_NOW != 0, confirmed })
    }
}

/// The purpose of a report. The report carries it as its APP subtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A packet is missing, or the sender has requested a report.
    Report = 1,
    /// The acker acknowledges a packet.
    Ack = 2,
    Leave = 3,
}

/// A receiver's report: 16 bytes.
///
/// ```text
///   0       4         8       12      16
///   ├───────┼─────────┼───────┼───────┤
///   │ lead  │ bitmap  │ loss  │ echo  │     bitmap, bit i: packet lead − i has arrived
///   │ u32   │ u32     │ f32   │ stamp │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReceiverReport {
    pub(super) purpose: Purpose,
    /// The low 32 bits of the highest sequence number.
    pub(super) lead: u32,
    /// Which of the last 32 packets have arrived. Zero except in an acknowledgment.
    pub(super) bitmap: u32,
    pub(super) loss: f64,
    /// The send time of packet `lead`, plus the time between its arrival and this report.
    pub(super) echo: Stamp,
}

impl ReceiverReport {
    pub(super) fn body(&self) -> Body {
        Body::of_words(self.purpose as u8, [self.lead, self.bitmap, single(self.loss), self.echo.0])
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        let purpose = match body.subtype {
            1 => Purpose::Report,
            2 => Purpose::Ack,
            3 => Purpose::Leave,
            _ => return None,
        };
        let [lead, bitmap, loss, echo] = words(&body.bytes).filter(|_| body.bytes.len() == 16)?;
        Some(Self { purpose, lead, bitmap, loss: share(loss)?, echo: Stamp(echo) })
    }
}
