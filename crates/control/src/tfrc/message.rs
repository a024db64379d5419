//! The messages of `tfrc`. The sender writes the round-trip time R into a header extension. Some controllers that build
//! on `tfrc` append a [`Mark`] to R.

use crate::Body;
use crate::equation::LossRate;
use crate::fields::{ABSURD_BYTES_PER_S, amount, micros, share, single, span, words};
use steadycast_units::{PeerTime, Rate, Span, Stamp};

/// The header extension element that carries the round-trip time R to the receiver: 24 bits, in units of 10 µs. The
/// value 0 means unknown.
pub(super) const EXTENSION: u8 = 2;
pub(super) const RTT_UNIT: Span = Span::micros(10);
const REPORT: u8 = 1;
pub(crate) const REPORT_BYTES: usize = 20;

pub(crate) fn rtt_notice(rtt: Option<Span>) -> [u8; 3] {
    let units = rtt.map_or(0, |r| {
        let rounded = (r.as_nanos() + RTT_UNIT.as_nanos() / 2) / RTT_UNIT.as_nanos();
        // Do not write zero, which means that R is unknown.
        rounded.clamp(1, 0xff_ffff)
    });
    [(units >> 16) as u8, (units >> 8) as u8, units as u8]
}

pub(crate) fn read_rtt_notice(bytes: &[u8]) -> Option<Span> {
    let [a, b, c] = *bytes else { return None };
    let units = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
    (units > 0).then(|| RTT_UNIT * units)
}

/// Returns the time stamp that a packet carried. `sent` is this time stamp, converted to nanoseconds and rounded.
pub(crate) fn echo(sent: PeerTime) -> Stamp {
    Stamp(((i128::from(sent.as_nanos()) << 18) + 500_000_000).div_euclid(1_000_000_000) as u32)
}

/// The receiver's report: 20 bytes, big-endian.
///
/// ```text
///   0        4          8         12      16       20
///   ├────────┼──────────┼─────────┼───────┼────────┤
///   │ echo   │ t_delay  │ X_recv  │ p     │ p_all  │
///   │ stamp  │ u32 µs   │ f32 B/s │ f32   │ f32    │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FeedbackReport {
    /// Send time of the newest packet.
    pub(super) echo: Stamp,
    /// Time from the arrival of this packet until the report was sent.
    pub(super) delay: Span,
    /// The receive rate X_recv. Zero if it was not measured.
    pub(super) received: Rate,
    pub(super) loss: Option<LossRate>,
    /// Fraction of packets that were missing since the last report. It is only for the records of a run.
    pub(super) missing: f32,
}

impl FeedbackReport {
    pub(super) fn write(&self) -> Body {
        let received = self.received.as_bytes_per_s().min(f64::from(ABSURD_BYTES_PER_S));
        let loss = self.loss.map_or(0.0, LossRate::get);
        let words = [self.echo.0, micros(self.delay), single(received), single(loss), self.missing.to_bits()];
        Body::of_words(REPORT, words)
    }

    /// Parses a report. Returns `None` if the report is invalid.
    pub(crate) fn read(body: &Body) -> Option<Self> {
        (body.subtype == REPORT).then(|| Self::parse(&body.bytes)).flatten()
    }

    /// Parses the bytes of a report. Returns `None` if the report is invalid.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REPORT_BYTES {
            return None;
        }
        let [echo, delay, received, loss, missing] = words(bytes)?;
        Some(Self {
            echo: Stamp(echo),
            delay: span(delay),
            received: Rate::from_bytes_per_s(amount(received).filter(|x| *x <= f64::from(ABSURD_BYTES_PER_S))?),
            loss: LossRate::new(share(loss)?),
            missing: share(missing)? as f32,
        })
    }
}

/// A field of 5 bytes (big-endian) that follows the round-trip time R in the header extension. Controllers use it if
/// they count losses only among the packets that they mark.
///
/// ```text
///   0       1        3        5
///   ├───────┼────────┼────────┤
///   │ flags │ vseq   │ n      │     flags: bit 0, marked
///   │ u8    │ u16    │ u8.u8  │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Whether the packet counts for the loss rate.
    pub(crate) marked: bool,
    /// The packet's number among the marked packets. An unmarked packet has the number of the last marked packet.
    pub(crate) vseq: u16,
    /// The number of TCP connections that the stream stands for.
    pub(crate) connections: f64,
}

impl Mark {
    pub(crate) fn write(&self) -> [u8; 5] {
        let [v, w] = self.vseq.to_be_bytes();
        let [n, m] = ((self.connections * 256.0).clamp(256.0, 65_535.0) as u16).to_be_bytes();
        [u8::from(self.marked), v, w, n, m]
    }

    /// Parses a mark. Returns `None` if the length is wrong or `connections` is below 1.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [flags, v, w, n, m] = *bytes else { return None };
        let connections = f64::from(u16::from_be_bytes([n, m])) / 256.0;
        (connections >= 1.0).then_some(Self { marked: flags & 1 != 0, vseq: u16::from_be_bytes([v, w]), connections })
    }
}
