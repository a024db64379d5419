//! The messages that the sender and the receivers of `tfmcc` exchange.
//!
//! ```text
//! notice, on every packet:  X_supp f32 bit/s │ fb_nr u8 │ flags u8 │ R_max u16 ms │ CLR u32 │ echo of u32 │ ts'_r u32
//!                               [│ X f32 bit/s: profiles sigcomm2001 and norm only]
//! report (APP "TFMC" 1):        ts_r u32 │ ts'_i u32 │ X_r f32 bit/s │ p f32 │ RTT u32 µs │ fb_nr u8 │ flags u8 │ 0 0
//! ```
//!
//! [`SenderNotice`] and [`ReceiverReport`] describe the fields. Stamps are in units of 2⁻¹⁸ s. A stamp with a prime is
//! an echo: a stamp of the other side, plus the time from its arrival until the echo was sent. Numbers are in network
//! byte order.

use crate::fields::{amount, flags, micros, share, single, span, words};
use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span, Stamp};

pub(super) const NOTICE_ID: u8 = 4;
const REPORT: u8 = 1;

const HAS_CLR: u8 = 1;
const HAS_ECHO: u8 = 2;
const SLOW_START: u8 = 4;

const HAVE_RTT: u8 = 1;
const HAVE_LOSS: u8 = 2;
const LEAVE: u8 = 4;
const IS_CLR: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SenderNotice {
    /// A receiver that is not limiting does not report a rate above this. The value is [`Rate::MAX`] at the start of a
    /// round.
    pub(super) x_supp: Rate,
    /// The number of the feedback round.
    pub(super) fb_nr: u8,
    /// The longest round-trip time of all receivers (R_max), in whole milliseconds.
    pub(super) r_max: Span,
    /// The limiting receiver: the one with the lowest rate.
    pub(super) clr: Option<ReceiverId>,
    /// The receiver whose time stamp is echoed, and this time stamp.
    pub(super) echo: Option<(ReceiverId, Stamp)>,
    pub(super) slow_start: bool,
    /// The send rate. `None` if the profile's timers do not need it.
    pub(super) x: Option<Rate>,
}

impl SenderNotice {
    pub(super) fn notice(&self) -> Notice {
        // The message has no infinity. Write the maximum instead.
        let x_supp = if self.x_supp == Rate::MAX { f32::MAX.to_bits() } else { single(self.x_supp.as_bps_f64()) };
        let flags =
            flags([(self.clr.is_some(), HAS_CLR), (self.echo.is_some(), HAS_ECHO), (self.slow_start, SLOW_START)]);
        // Round up, so that no receiver's round-trip time appears longer than R_max.
        let ms = u16::try_from(self.r_max.as_nanos().div_ceil(1_000_000)).unwrap_or(u16::MAX);
        let round = u32::from_be_bytes([self.fb_nr, flags, 0, 0]) | u32::from(ms);
        let clr = self.clr.unwrap_or_default().0;
        let (echo, stamp) = self.echo.unwrap_or((ReceiverId(0), Stamp(0)));
        match self.x {
            None => Notice::of_words(NOTICE_ID, [x_supp, round, clr, echo.0, stamp.0]),
            Some(x) => Notice::of_words(NOTICE_ID, [x_supp, round, clr, echo.0, stamp.0, single(x.as_bps_f64())]),
        }
    }

    pub(super) fn read(notice: &[u8]) -> Option<Self> {
        let [x_supp, round, clr, echo, stamp] = words(notice)?;
        let [fb_nr, flags, ms @ ..] = round.to_be_bytes();
        Some(Self {
            x_supp: if x_supp == f32::MAX.to_bits() { Rate::MAX } else { rate(x_supp)? },
            fb_nr,
            r_max: Span::millis(u64::from(u16::from_be_bytes(ms).max(1))),
            clr: (flags & HAS_CLR != 0).then_some(ReceiverId(clr)),
            echo: (flags & HAS_ECHO != 0).then_some((ReceiverId(echo), Stamp(stamp))),
            slow_start: flags & SLOW_START != 0,
            x: words(notice).and_then(|[.., x]: [u32; 6]| rate(x)),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReceiverReport {
    /// The time on the receiver's clock when it sent this report.
    pub(super) ts: Stamp,
    /// The time stamp of the last packet, plus the time since this packet arrived.
    pub(super) echo: Stamp,
    pub(super) rate: Rate,
    /// The loss event rate.
    pub(super) loss: f64,
    /// The round-trip time. R_max until it is measured.
    pub(super) rtt: Span,
    /// The latest feedback round that the receiver knows.
    pub(super) fb_nr: u8,
    pub(super) have_rtt: bool,
    pub(super) have_loss: bool,
    pub(super) leave: bool,
    /// Whether the receiver that sends this report is the limiting receiver.
    pub(super) is_clr: bool,
}

impl ReceiverReport {
    pub(super) fn body(&self) -> Body {
        let flags =
            flags([(self.have_rtt, HAVE_RTT), (self.have_loss, HAVE_LOSS), (self.leave, LEAVE), (self.is_clr, IS_CLR)]);
        let words = [
            self.ts.0,
            self.echo.0,
            single(self.rate.as_bps_f64()),
            single(self.loss),
            micros(self.rtt),
            u32::from_be_bytes([self.fb_nr, flags, 0, 0]),
        ];
        Body::of_words(REPORT, words)
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        let [ts, echo, x_r, loss, rtt, rest] = words(&body.bytes).filter(|_| body.subtype == REPORT)?;
        let [fb_nr, flags, ..] = rest.to_be_bytes();
        Some(Self {
            ts: Stamp(ts),
            echo: Stamp(echo),
            rate: rate(x_r)?,
            loss: share(loss)?,
            rtt: span(rtt),
            fb_nr,
            have_rtt: flags & HAVE_RTT != 0,
            have_loss: flags & HAVE_LOSS != 0,
            leave: flags & LEAVE != 0,
            is_clr: flags & IS_CLR != 0,
        })
    }
}

fn rate(bps: u32) -> Option<Rate> {
    amount(bps).map(Rate::from_bps_f64)
}
