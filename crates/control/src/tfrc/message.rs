//! What the halves of `tfrc` say to each other, and what controllers that are made of it add.

use crate::Body;
use crate::equation::LossRate;
use crate::fields::{ABSURD_BYTES_PER_S, amount, micros, share, single, span, words};
use steadycast_units::{PeerTime, Rate, Span, Stamp};

/// RTP header extension element: R in 24 bits, units of 10 µs, 0 for none.
pub(super) const EXTENSION: u8 = 2;
pub(super) const RTT_UNIT: Span = Span::micros(10);
/// APP subtype of the report.
const REPORT: u8 = 1;
/// Length of a report.
pub(crate) const REPORT_BYTES: usize = 20;

/// R as it goes forward with each packet.
pub(crate) fn rtt_notice(rtt: Option<Span>) -> [u8; 3] {
    let units = rtt.map_or(0, |r| {
        let rounded = (r.as_nanos() + RTT_UNIT.as_nanos() / 2) / RTT_UNIT.as_nanos();
        rounded.clamp(1, 0xff_ffff)
    });
    [(units >> 16) as u8, (units >> 8) as u8, units as u8]
}

pub(crate) fn read_rtt_notice(bytes: &[u8]) -> Option<Span> {
    let [a, b, c] = *bytes else { return None };
    let units = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
    (units > 0).then(|| RTT_UNIT * units)
}

/// The stamp that a packet carried, from its time on the sender's clock, which is a stamp rounded to nanoseconds.
pub(crate) fn echo(sent: PeerTime) -> Stamp {
    Stamp(((i128::from(sent.as_nanos()) << 18) + 500_000_000).div_euclid(1_000_000_000) as u32)
}

/// What the receiver tells the sender: 20 bytes, big-endian.
///
/// ```text
///   0        4          8         12      16       20
///   ├────────┼──────────┼─────────┼───────┼────────┤
///   │ echo   │ t_delay  │ X_recv  │ p     │ p_all  │
///   │ stamp  │ u32 µs   │ f32 B/s │ f32   │ f32    │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Send time of the packet with the highest sequence number.
    pub(super) echo: Stamp,
    /// From its arrival to this report.
    pub(super) delay: Span,
    /// Receive rate; zero when it was not measured.
    pub(super) received: Rate,
    /// Loss event rate.
    pub(super) loss: Option<LossRate>,
    /// Share of packets missing since the last report; for the record only.
    pub(super) missing: f32,
}

impl Finding {
    pub(super) fn write(&self) -> Body {
        let received = self.received.as_bytes_per_s().min(f64::from(ABSURD_BYTES_PER_S));
        let loss = self.loss.map_or(0.0, LossRate::get);
        let words = [self.echo.0, micros(self.delay), single(received), single(loss), self.missing.to_bits()];
        Body::of_words(REPORT, words)
    }

    /// `None` for what is not such a report, or can't be true.
    pub(crate) fn read(body: &Body) -> Option<Self> {
        (body.subtype == REPORT).then(|| Self::parse(&body.bytes)).flatten()
    }

    /// The same from its bytes.
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

/// What goes forward beside R where only some packets count: 5 bytes, big-endian.
///
/// ```text
///   0       1        3        5
///   ├───────┼────────┼────────┤
///   │ flags │ vseq   │ n      │     flags: bit 0, marked
///   │ u8    │ u16    │ u8.u8  │
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    /// This packet counts.
    pub(crate) marked: bool,
    /// Its number among the marked ones; without a mark the number of the last marked one before it.
    pub(crate) vseq: u16,
    /// How many connections' worth the stream is.
    pub(crate) worth: f64,
}

impl Mark {
    /// Its bytes.
    pub(crate) fn write(&self) -> [u8; 5] {
        let [v, w] = self.vseq.to_be_bytes();
        let [n, m] = ((self.worth * 256.0).clamp(256.0, 65_535.0) as u16).to_be_bytes();
        [u8::from(self.marked), v, w, n, m]
    }

    /// `None` unless it has the right length and is worth at least one connection.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [flags, v, w, n, m] = *bytes else { return None };
        let worth = f64::from(u16::from_be_bytes([n, m])) / 256.0;
        (worth >= 1.0).then_some(Self { marked: flags & 1 != 0, vseq: u16::from_be_bytes([v, w]), worth })
    }
}
