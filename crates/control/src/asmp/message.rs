//! Messages between the sender part and the receiver part of `asmp`.
//!
//! ```text
//! notice, on the first packet of a frame:  r_tx in 100 bit/s, 24 bits
//! report (APP "ASMP", subtype 1):          r f32 B/s │ l f32 │ t_RTT u32 µs │ flags u8, 3 × 0
//! announcement (subtype 2):                r_tx f32 B/s │ count u8, 3 × 0 │ count × (SSRC u32, RTT u32 µs)
//! ```
//!
//! Numbers are in network byte order. A message that is too short or invalid is ignored.

use super::delay::State;
use crate::fields::{self, amount, flags, micros, share, single, span, words};
use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span};

pub(super) const RATE_ID: u8 = 6;
/// Maximum number of round-trip times in one announcement.
pub(super) const MOST_ANNOUNCED: usize = 31;

const REPORT: u8 = 1;
const ANNOUNCE: u8 = 2;

const CONGESTED: u8 = 1;
const CLAMPED: u8 = 2;
const HAS_RTT: u8 = 4;
const START: u8 = 8;

/// Encodes `rate` in 24 bits. Rates above 1.6 Gb/s are encoded as 1.6 Gb/s.
pub(super) fn rate_notice(rate: Rate) -> Notice {
    Notice::new(RATE_ID, &fields::units(rate).to_be_bytes()[1..])
}

/// Decodes the rate. Returns `None` if it is missing or zero.
pub(super) fn read_rate(notice: &[u8]) -> Option<Rate> {
    let [a, b, c] = *notice.first_chunk::<3>()?;
    Some(fields::of_units(u32::from_be_bytes([0, a, b, c]))).filter(|rate| *rate > Rate::ZERO)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) rate: Rate,
    pub(super) loss: f64,
    pub(super) rtt: Span,
    pub(super) state: State,
    /// Whether `rate` was limited because of the rate at which the sender sent.
    pub(super) clamped: bool,
    /// Whether `rtt` was measured. Otherwise it is an assumed value.
    pub(super) has_rtt: bool,
    pub(super) start: bool,
}

impl Claim {
    pub(super) fn body(&self) -> Body {
        let flags = flags([
            (self.state == State::Congested, CONGESTED),
            (self.clamped, CLAMPED),
            (self.has_rtt, HAS_RTT),
            (self.start, START),
        ]);
        let (rate, loss) = (single(self.rate.as_bytes_per_s()), single(self.loss));
        Body::of_words(REPORT, [rate, loss, micros(self.rtt), u32::from_be_bytes([flags, 0, 0, 0])])
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        let [rate, loss, rtt, rest] = words(&body.bytes).filter(|_| body.subtype == REPORT)?;
        let [flags, ..] = rest.to_be_bytes();
        Some(Self {
            rate: Rate::from_bytes_per_s(amount(rate)?),
            loss: share(loss)?,
            rtt: span(rtt),
            state: if flags & CONGESTED != 0 { State::Congested } else { State::Unloaded },
            clamped: flags & CLAMPED != 0,
            has_rtt: flags & HAS_RTT != 0,
            start: flags & START != 0,
        })
    }
}

/// Encodes an announcement. It contains only the first [`MOST_ANNOUNCED`] of the round-trip times.
pub(super) fn announcement(rate: Rate, rtts: &[(ReceiverId, Span)]) -> Body {
    let rtts = &rtts[..rtts.len().min(MOST_ANNOUNCED)];
    let head = [single(rate.as_bytes_per_s()), u32::from_be_bytes([rtts.len() as u8, 0, 0, 0])];
    Body::of_words(ANNOUNCE, head.into_iter().chain(rtts.iter().flat_map(|(id, rtt)| [id.0, micros(*rtt)])))
}

/// Decodes an announcement. Returns the rate, and the round-trip time of the receiver `own` if the announcement has it.
pub(super) fn read_announcement(body: &Body, own: ReceiverId) -> Option<(Rate, Option<Span>)> {
    let [rate, rest] = words(&body.bytes).filter(|_| body.subtype == ANNOUNCE)?;
    let [count, ..] = rest.to_be_bytes();
    let entries = body.bytes.get(8..8 + 8 * usize::from(count))?;
    let mut entries = entries.chunks_exact(8).filter_map(words);
    let rtt = entries.find_map(|[id, rtt]| (ReceiverId(id) == own).then(|| span(rtt)));
    Some((Rate::from_bytes_per_s(amount(rate)?), rtt))
}
