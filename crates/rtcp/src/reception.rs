//! What arrived from one source, as a report block says it (RFC 3550, sections 6.4.1, A.1, A.3 and A.8).

use steadycast_units::{Span, Time};
use steadycast_wire::ntp;
use steadycast_wire::rtcp::ReportBlock;
use steadycast_wire::seq::{ExtendedSeq, MAX_DROPOUT, MAX_MISORDER, Verdict};

/// What a packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The first of its number; whether its source is real isn't settled yet.
    Probation,
    /// The first of its number. An extended number below the newest one came late.
    New(i64),
    /// Its number had come before.
    Duplicate(i64),
    /// The source started again: everything counted so far is void. This is the first packet of the new count.
    Restarted(i64),
    /// Not of this stream, as far as can be seen: not counted.
    Stray,
}

/// What happened between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Packets that should have come.
    pub expected: u64,
    /// Packets that came, duplicates and late ones included.
    pub received: u64,
    /// The difference, 0 where more came than should have.
    pub lost: u64,
    /// Share lost, 0…1.
    pub fraction: f64,
}

/// A stream of which nothing came for so long pauses: what ends the pause may be less than [`MAX_DROPOUT`] ahead, at
/// any rate.
const PAUSE: Span = Span::millis(500);
/// In the time since the packet before, a stream may have lost so many times as many packets as at its mean spacing.
const FASTER: u64 = 4;
/// Over how many packets that spacing is a mean.
const SPACED: u64 = 64;
/// It is known after so many.
const KNOWN: u64 = 16;

/// Packets that nothing explained, since the last one of the stream, each with a higher number than the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    packets: u64,
    /// How far ahead of the stream's newest the first and the last are.
    first: u32,
    last: u32,
}

/// One source's packets as one receiver sees them.
#[derive(Clone, Debug, Default)]
pub struct Reception {
    ssrc: u32,
    clock_rate: u32,
    seq: ExtendedSeq,
    received: u64,
    duplicates: u64,
    /// Bit i: the packet i before the newest came. Late packets are at most 99 behind.
    seen: u128,
    /// When a packet of the stream came last.
    heard: Time,
    /// The mean time between two numbers, and of how many it is known.
    spacing: Span,
    spaced: u64,
    /// By how much numbers grew since the last time between two arrivals that was counted.
    together: u64,
    line: Line,
    transit: Option<u32>,
    jitter: f64,
    expected_prior: u64,
    received_prior: u64,
    interval: Interval,
    sender_report: Option<(Time, u32)>,
}

impl Reception {
    /// The reception of source `ssrc`, whose timestamps count `clock_rate` ticks per second (90,000 for video).
    pub fn new(ssrc: u32, clock_rate: u32) -> Self {
        Self { ssrc, clock_rate, ..Self::default() }
    }

    /// The reception of a source that is known to be real by other means (its SSRC was agreed on): its first packet
    /// counts at once.
    pub fn trusting(ssrc: u32, clock_rate: u32) -> Self {
        Self { seq: ExtendedSeq::believing_after(0), ..Self::new(ssrc, clock_rate) }
    }

    /// A packet of the source has arrived.
    pub fn on_rtp(&mut self, arrival: Time, seq: u16, timestamp: u32) -> Arrived {
        let before = self.seq.newest();
        let mut verdict = self.seq.on_packet_within(seq, self.reach(arrival));
        if verdict == Verdict::Stray && self.hold(arrival, seq) {
            verdict = self.seq.go_on(self.line.last);
        }
        let arrived = match verdict {
            Verdict::Probation => Arrived::Probation,
            Verdict::Stray => return Arrived::Stray,
            Verdict::Started(extended) => {
                let probation = self.seq.probationers();
                self.received = probation + 1;
                self.seen = !0 >> (127 - probation.min(127));
                Arrived::New(extended)
            }
            Verdict::Restarted(extended) => {
                let Self { seq, sender_report, spacing, spaced, .. } = *self;
                *self = Self { seq, sender_report, spacing, spaced, ..Self::new(self.ssrc, self.clock_rate) };
                (self.received, self.seen) = (1, 1);
                Arrived::Restarted(extended)
            }
            Verdict::Newer(extended) => {
                let ahead = before.map_or(0, |before| extended - before);
                self.space(arrival, ahead.unsigned_abs());
                // Those that it goes on behind were the stream's.
                let Line { packets, last, .. } = self.line;
                let held = if ahead >= last.into() { packets - u64::from(ahead == last.into()) } else { 0 };
                self.received += 1 + held;
                let shifted = u32::try_from(ahead).ok().and_then(|ahead| self.seen.checked_shl(ahead));
                self.seen = shifted.unwrap_or(0) | 1;
                Arrived::New(extended)
            }
            Verdict::Late(extended) => {
                self.received += 1;
                let bit = 1u128 << before.map_or(0, |before| (before - extended).clamp(0, 127));
                if self.seen & bit != 0 {
                    self.duplicates += 1;
                    return Arrived::Duplicate(extended);
                }
                self.seen |= bit;
                Arrived::New(extended)
            }
        };
        self.heard = arrival;
        self.line = Line::default();
        self.on_transit(arrival, timestamp);
        arrived
    }

    /// A packet has come that nothing explains ([`Arrived::Stray`]). Returns whether it is the stream's all the same:
    /// where nearly all is lost, packets are farther apart than any reach. Then nothing else has come for a pause, the
    /// numbers of [`KNOWN`] packets rise, and the first of them is no farther ahead than they have come since.
    pub fn hold(&mut self, arrival: Time, seq: u16) -> bool {
        let Some(newest) = self.highest() else { return false };
        let Line { packets, first, last } = self.line;
        let step = seq.wrapping_sub((newest as u16).wrapping_add(last as u16));
        if packets > 0 && step >= 1 << 15 {
            // A late one, or one of another stream, with which another line begins.
            if step.wrapping_neg() >= MAX_MISORDER {
                self.line = Line::default();
            }
            return false;
        }
        let last = last.saturating_add(step.into());
        let first = if packets == 0 { last } else { first };
        self.line = Line { packets: packets + u64::from(step > 0), first, last };
        self.line.packets >= KNOWN && arrival.since(self.heard) >= PAUSE && self.holds()
    }

    /// Whether what nothing explained so far goes as far as the jump to it, and so may be the stream's
    /// ([`Reception::hold`]).
    pub const fn holds(&self) -> bool {
        self.line.packets > 1 && self.line.first <= self.line.last - self.line.first
    }

    /// How far ahead of the newest number a loss may have put the next one. A socket's buffer or a link that drops a
    /// burst takes time for it, of which the stream's own spacing tells how many packets it was; a made-up number comes
    /// between two packets of the stream.
    fn reach(&self, arrival: Time) -> u16 {
        let gap = arrival.since(self.heard);
        let paused = if gap >= PAUSE { MAX_DROPOUT } else { 0 };
        if self.spaced < KNOWN {
            return paused;
        }
        let lost = gap.as_nanos().saturating_mul(FASTER) / self.spacing.as_nanos().max(1);
        u16::try_from(lost).unwrap_or(u16::MAX).max(paused)
    }

    /// A packet has come that is `ahead` of the newest before it.
    fn space(&mut self, arrival: Time, ahead: u64) {
        let gap = arrival.since(self.heard);
        if gap >= PAUSE || self.received <= 2 {
            self.together = 0;
            if self.line.packets >= KNOWN {
                (self.spacing, self.spaced) = (Span::nanos(gap.as_nanos() / ahead.max(1)), KNOWN);
            }
            return;
        }
        self.together = self.together.saturating_add(ahead.max(1));
        // Of packets that were kept, or are read at once, the time before the next one is that of all of them.
        if !gap.is_zero() {
            self.spaced = (self.spaced + 1).min(SPACED);
            let (mean, each) = (self.spacing.as_nanos(), gap.as_nanos() / std::mem::take(&mut self.together));
            self.spacing = Span::nanos(mean - mean / self.spaced + each / self.spaced);
        }
    }

    /// A sender report of the source, with this NTP time, has arrived.
    pub fn on_sr(&mut self, arrival: Time, ntp: u64) {
        self.sender_report = Some((arrival, ntp::middle(ntp)));
    }

    /// The block that reports on the time since the previous one, and begins the next interval. `None` until the
    /// source is believed.
    pub fn report_block(&mut self, now: Time) -> Option<ReportBlock> {
        let newest = self.seq.newest()?;
        let expected = self.expected() - self.expected_prior;
        let received = self.received - self.received_prior;
        (self.expected_prior, self.received_prior) = (self.expected(), self.received);
        let lost = expected.saturating_sub(received);
        let fraction = if expected == 0 { 0.0 } else { lost as f64 / expected as f64 };
        self.interval = Interval { expected, received, lost, fraction };
        let (lsr, dlsr) = self.sender_report.map_or((0, 0), |(at, middle)| (middle, ntp::dlsr(now.since(at))));
        Some(ReportBlock {
            ssrc: self.ssrc,
            fraction: (fraction * 256.0).min(255.0) as u8,
            cumulative_lost: self.cumulative_lost(),
            highest_seq: newest as u32,
            jitter: self.jitter as u32,
            lsr,
            dlsr,
        })
    }

    /// The interval that the latest report block was about.
    pub const fn interval(&self) -> Interval {
        self.interval
    }
    /// The source.
    pub const fn ssrc(&self) -> u32 {
        self.ssrc
    }
    /// Whether enough packets came in sequence for the source to be believed.
    pub const fn is_valid(&self) -> bool {
        self.seq.is_valid()
    }
    /// Packets from the first to the newest.
    pub const fn expected(&self) -> u64 {
        self.seq.expected()
    }
    /// Packets that came, duplicates included.
    pub const fn received(&self) -> u64 {
        self.received
    }
    /// Packets whose number had come before.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
    /// Expected less received, in 24 bits with sign: it stays at its end where it would wrap.
    pub fn cumulative_lost(&self) -> i32 {
        let lost = self.expected() as i64 - self.received as i64;
        lost.clamp(-0x80_0000, 0x7f_ffff) as i32
    }
    /// The highest extended sequence number, `None` until the source is believed.
    pub const fn highest(&self) -> Option<i64> {
        self.seq.newest()
    }
    /// Interarrival jitter in ticks of the media clock: J += (|D| − J)/16.
    pub const fn jitter_ticks(&self) -> f64 {
        self.jitter
    }
    /// Interarrival jitter as a length of time.
    pub fn jitter(&self) -> Span {
        Span::from_secs_f64(self.jitter / f64::from(self.clock_rate.max(1)))
    }

    fn on_transit(&mut self, arrival: Time, timestamp: u32) {
        // In two parts, since 64 bits hold either and a division of 128 would be felt on every packet.
        let (secs, nanos) = (arrival.as_nanos() / 1_000_000_000, arrival.as_nanos() % 1_000_000_000);
        let rate = u64::from(self.clock_rate);
        let ticks = secs.wrapping_mul(rate).wrapping_add(nanos * rate / 1_000_000_000);
        let transit = (ticks as u32).wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let difference = f64::from((transit.wrapping_sub(before) as i32).unsigned_abs());
            self.jitter += (difference - self.jitter) / 16.0;
        }
    }
}
