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
use crate::fields::{self, amount, flags, micros, share, single, span, words};
use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span};

/// The header extension element's id.
pub(super) const RATE_ID: u8 = 6;
/// Round-trip times in one announcement at most.
pub(super) const MOST_ANNOUNCED: usize = 31;

const REPORT: u8 = 1;
const ANNOUNCE: u8 = 2;

const CONGESTED: u8 = 1;
const CLAMPED: u8 = 2;
const HAS_RTT: u8 = 4;
const START: u8 = 8;

/// The notice that says `rate`; what 24 bits can't hold (above 1.6 Gb/s) is said as the most that they can.
pub(super) fn rate_notice(rate: Rate) -> Notice {
    Notice::new(RATE_ID, &fields::units(rate).to_be_bytes()[1..])
}

/// The rate in a notice; `None` when there is none or it is zero.
pub(super) fn read_rate(notice: &[u8]) -> Option<Rate> {
    let [a, b, c] = *notice.first_chunk::<3>()?;
    Some(fields::of_units(u32::from_be_bytes([0, a, b, c]))).filter(|rate| *rate > Rate::ZERO)
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

/// The sender's announcement of its rate and of round-trip times, of which the first [`MOST_ANNOUNCED`] are said.
pub(super) fn announcement(rate: Rate, rtts: &[(ReceiverId, Span)]) -> Body {
    let rtts = &rtts[..rtts.len().min(MOST_ANNOUNCED)];
    let head = [single(rate.as_bytes_per_s()), u32::from_be_bytes([rtts.len() as u8, 0, 0, 0])];
    Body::of_words(ANNOUNCE, head.into_iter().chain(rtts.iter().flat_map(|(id, rtt)| [id.0, micros(*rtt)])))
}

/// The rate in an announcement, and the round-trip time in it that is for `own`.
pub(super) fn read_announcement(body: &Body, own: ReceiverId) -> Option<(Rate, Option<Span>)> {
    let [rate, rest] = words(&body.bytes).filter(|_| body.subtype == ANNOUNCE)?;
    let [count, ..] = rest.to_be_bytes();
    let entries = body.bytes.get(8..8 + 8 * usize::from(count))?;
    let mut entries = entries.chunks_exact(8).filter_map(words);
    let rtt = entries.find_map(|[id, rtt]| (ReceiverId(id) == own).then(|| span(rtt)));
    Some((Rate::from_bytes_per_s(amount(rate)?), rtt))
}
