//! What the halves of `tfmcc` say to each other.
//!
//! ```text
//! notice, on every packet:      X_supp f32 bit/s │ fb_nr u8 │ flags u8 │ R_max u16 ms │ CLR u32 │ echo of u32 │ ts'_r u32
//!                               [│ X f32 bit/s: profiles sigcomm2001 and norm only]
//! report (APP "TFMC" 1):        ts_r u32 │ ts'_i u32 │ X_r f32 bit/s │ p f32 │ RTT u32 µs │ fb_nr u8 │ flags u8 │ 0 0
//! ```
//!
//! Time stamps count 2⁻¹⁸ s; the primed ones are echoes from which the holding time has been taken out. Network byte order.

use crate::{Body, Notice, ReceiverId};
use steadycast_units::{Rate, Span, Stamp};

/// The header extension element's id.
pub(super) const NOTICE_ID: u8 = 4;
const REPORT: u8 = 1;

const HAS_CLR: u8 = 1;
const HAS_ECHO: u8 = 2;
const SLOW_START: u8 = 4;

const HAVE_RTT: u8 = 1;
const HAVE_LOSS: u8 = 2;
const LEAVE: u8 = 4;
const IS_CLR: u8 = 8;

/// What goes forward with each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Forward {
    /// Rates from this on are silenced; [`Rate::MAX`] at the beginning of a round.
    pub(super) x_supp: Rate,
    /// The round.
    pub(super) fb_nr: u8,
    /// The largest round-trip time, in whole milliseconds.
    pub(super) r_max: Span,
    /// The limiting receiver.
    pub(super) clr: Option<ReceiverId>,
    /// Whose time stamp is echoed, and the stamp.
    pub(super) echo: Option<(ReceiverId, Stamp)>,
    /// Nobody has lost a packet yet.
    pub(super) slow_start: bool,
    /// The sending rate, in the profiles whose timers are biased by it.
    pub(super) x: Option<Rate>,
}

impl Forward {
    pub(super) fn notice(&self) -> Notice {
        let mut bytes = [0; 24];
        // The largest number stands for no limit: infinity is no number on our wires.
        let x_supp = if self.x_supp == Rate::MAX { f32::MAX } else { self.x_supp.as_bps_f64() as f32 };
        bytes[..4].copy_from_slice(&x_supp.to_be_bytes());
        bytes[4] = self.fb_nr;
        for (set, bit) in
            [(self.clr.is_some(), HAS_CLR), (self.echo.is_some(), HAS_ECHO), (self.slow_start, SLOW_START)]
        {
            bytes[5] |= if set { bit } else { 0 };
        }
        let ms = u16::try_from(self.r_max.as_nanos().div_ceil(1_000_000)).unwrap_or(u16::MAX);
        bytes[6..8].copy_from_slice(&ms.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.clr.unwrap_or_default().0.to_be_bytes());
        let (echo, stamp) = self.echo.unwrap_or((ReceiverId(0), Stamp(0)));
        bytes[12..16].copy_from_slice(&echo.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&stamp.0.to_be_bytes());
        let Some(x) = self.x else { return Notice::new(NOTICE_ID, &bytes[..20]) };
        bytes[20..].copy_from_slice(&(x.as_bps_f64() as f32).to_be_bytes());
        Notice::new(NOTICE_ID, &bytes)
    }

    pub(super) fn read(notice: &[u8]) -> Option<Self> {
        let (head, rest) = notice.split_first_chunk::<20>()?;
        let word = |i: usize| u32::from_be_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (flags, ms) = (head[5], u16::from_be_bytes([head[6], head[7]]));
        let x_supp = f32::from_bits(word(0));
        Some(Self {
            x_supp: if x_supp == f32::MAX { Rate::MAX } else { rate(x_supp)? },
            fb_nr: head[4],
            r_max: Span::millis(u64::from(ms.max(1))),
            clr: (flags & HAS_CLR != 0).then_some(ReceiverId(word(8))),
            echo: (flags & HAS_ECHO != 0).then_some((ReceiverId(word(12)), Stamp(word(16)))),
            slow_start: flags & SLOW_START != 0,
            x: rest.first_chunk::<4>().and_then(|x| rate(f32::from_be_bytes(*x))),
        })
    }
}

/// One receiver's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Back {
    /// The receiver's clock when it left.
    pub(super) ts: Stamp,
    /// The sender's time stamp of the last packet, moved later by the time since it arrived.
    pub(super) echo: Stamp,
    /// The rate that it wants.
    pub(super) rate: Rate,
    /// Its loss event rate.
    pub(super) loss: f64,
    /// Its round-trip time: measured, or R_max.
    pub(super) rtt: Span,
    /// The last round that it knows of.
    pub(super) fb_nr: u8,
    /// `rtt` was measured.
    pub(super) have_rtt: bool,
    /// It has seen a loss event.
    pub(super) have_loss: bool,
    /// It is about to leave.
    pub(super) leave: bool,
    /// It reports as the limiting receiver.
    pub(super) is_clr: bool,
}

impl Back {
    pub(super) fn body(&self) -> Body {
        let mut flags = 0;
        for (set, bit) in
            [(self.have_rtt, HAVE_RTT), (self.have_loss, HAVE_LOSS), (self.leave, LEAVE), (self.is_clr, IS_CLR)]
        {
            flags |= if set { bit } else { 0 };
        }
        let mut bytes = Vec::with_capacity(24);
        bytes.extend(self.ts.0.to_be_bytes());
        bytes.extend(self.echo.0.to_be_bytes());
        bytes.extend((self.rate.as_bps_f64() as f32).to_be_bytes());
        bytes.extend((self.loss as f32).to_be_bytes());
        bytes.extend(u32::try_from(self.rtt.as_nanos() / 1_000).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend([self.fb_nr, flags, 0, 0]);
        Body { subtype: REPORT, bytes }
    }

    pub(super) fn read(body: &Body) -> Option<Self> {
        if body.subtype != REPORT {
            return None;
        }
        let b = body.bytes.first_chunk::<24>()?;
        let word = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let (loss, flags) = (f64::from(f32::from_bits(word(12))), b[21]);
        (0.0..=1.0).contains(&loss).then_some(Self {
            ts: Stamp(word(0)),
            echo: Stamp(word(4)),
            rate: rate(f32::from_bits(word(8)))?,
            loss,
            rtt: Span::micros(u64::from(word(16))),
            fb_nr: b[20],
            have_rtt: flags & HAVE_RTT != 0,
            have_loss: flags & HAVE_LOSS != 0,
            leave: flags & LEAVE != 0,
            is_clr: flags & IS_CLR != 0,
        })
    }
}

fn rate(bps: f32) -> Option<Rate> {
    (bps.is_finite() && bps >= 0.0).then(|| Rate::from_bps_f64(f64::from(bps)))
}
