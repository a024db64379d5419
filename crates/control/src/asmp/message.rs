//! What the halves of `asmp` say to each other.
//!
//! ```text
//! notice, on the first packet of a frame:  r_tx in 100 bit/s, 24 bits
//! report (APP "ASMP", subtype 1):          r f32 B/s │ l f32 │ t_RTT u32 µs │ flags u8, 3 × 0
//! announcement (subtype 2):                r_tx f32 B/s │ count u8, 3 × 0 │ count × (SSRC u32, RTT u32 µs)
//! ```
//!
//! All in network byte order. What is too short, or a number that is no rate, is no message.

use super::delay::State;
use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span};

/// The header extension element's id.
pub(super) const RATE_ID: u8 = 6;
/// Round-trip times in one announcement at most.
pub(super) const MOST_ANNOUNCED: usize = 31;

const REPORT: u8 = 1;
const ANNOUNCE: u8 = 2;
const UNIT_BPS: u64 = 100;
const MOST_UNITS: u64 = (1 << 24) - 1;

const CONGESTED: u8 = 1;
const CLAMPED: u8 = 2;
const HAS_RTT: u8 = 4;
const START: u8 = 8;

/// The notice that says `rate`; what 24 bits can't hold (above 1.6 Gb/s) is said as the most that they can.
pub(super) fn rate_notice(rate: Rate) -> Notice {
    let units = (rate.as_bps() / UNIT_BPS).min(MOST_UNITS) as u32;
    Notice::new(RATE_ID, &units.to_be_bytes()[1..])
}

/// The rate in a notice; `None` when there is none or it is zero.
pub(super) fn read_rate(notice: &[u8]) -> Option<Rate> {
    let [a, b, c] = *notice.first_chunk::<3>()?;
    let units = u64::from(u32::from_be_bytes([0, a, b, c]));
    (units > 0).then(|| Rate::bps(units * UNIT_BPS))
}

/// One receiver's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    /// The rate that it asks for.
    pub(super) rate: Rate,
    /// Its smoothed loss.
    pub(super) loss: f64,
    /// Its round-trip time.
    pub(super) rtt: Span,
    /// What its delay says.
    pub(super) state: State,
    /// Its rate was held down by what is sent at all.
    pub(super) clamped: bool,
    /// `rtt` was measured, not assumed.
    pub(super) has_rtt: bool,
    /// It is still in its start phase.
    pub(super) start: bool,
}

impl Claim {
    pub(super) fn body(&self) -> Body {
        let mut flags = 0;
        for (set, bit) in [
            (self.state == State::Congested, CONGESTED),
            (self.clamped, CLAMPED),
            (self.has_rtt, HAS_RTT),
            (self.start, START),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let mut bytes = Vec::with_capacity(16);
        bytes.extend((self.rate.as_bytes_per_s() as f32).to_be_bytes());
        bytes.extend((self.loss as f32).to_be_bytes());
        bytes.extend(micros(self.rtt).to_be_bytes());
        bytes.extend([flags, 0, 0, 0]);
        Body { subtype: REPORT, bytes }
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        if body.subtype != REPORT {
            return None;
        }
        let words = body.bytes.first_chunk::<16>()?;
        let word = |i: usize| [words[i], words[i + 1], words[i + 2], words[i + 3]];
        let loss = f64::from(f32::from_be_bytes(word(4)));
        let flags = words[12];
        (0.0..=1.0).contains(&loss).then_some(Self {
            rate: read_f32_rate(word(0))?,
            loss,
            rtt: Span::micros(u64::from(u32::from_be_bytes(word(8)))),
            state: if flags & CONGESTED != 0 { State::Congested } else { State::Unloaded },
            clamped: flags & CLAMPED != 0,
            has_rtt: flags & HAS_RTT != 0,
            start: flags & START != 0,
        })
    }
}

/// The sender's announcement of its rate and of round-trip times, of which the first [`MOST_ANNOUNCED`] are said.
pub(super) fn announcement(rate: Rate, rtts: &[(ReceiverId, Span)]) -> Body {
    let rtts = &rtts[..rtts.len().min(MOST_ANNOUNCED)];
    let mut bytes = Vec::with_capacity(8 + 8 * rtts.len());
    bytes.extend((rate.as_bytes_per_s() as f32).to_be_bytes());
    bytes.extend([rtts.len() as u8, 0, 0, 0]);
    for (id, rtt) in rtts {
        bytes.extend(id.0.to_be_bytes());
        bytes.extend(micros(*rtt).to_be_bytes());
    }
    Body { subtype: ANNOUNCE, bytes }
}

/// The rate in an announcement, and the round-trip time in it that is for `own`.
pub(super) fn read_announcement(body: &Body, own: ReceiverId) -> Option<(Rate, Option<Span>)> {
    if body.subtype != ANNOUNCE {
        return None;
    }
    let (head, rest) = body.bytes.split_first_chunk::<8>()?;
    let rate = read_f32_rate([head[0], head[1], head[2], head[3]])?;
    let entries = rest.get(..usize::from(head[4]) * 8)?;
    let own = own.0.to_be_bytes();
    let rtt = entries.chunks_exact(8).find(|e| e[..4] == own);
    Some((rate, rtt.map(|e| Span::micros(u64::from(u32::from_be_bytes([e[4], e[5], e[6], e[7]]))))))
}

fn read_f32_rate(word: [u8; 4]) -> Option<Rate> {
    let bytes_per_s = f64::from(f32::from_be_bytes(word));
    (bytes_per_s.is_finite() && bytes_per_s >= 0.0).then(|| Rate::from_bytes_per_s(bytes_per_s))
}

fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}
