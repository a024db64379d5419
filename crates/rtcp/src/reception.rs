//! Reception statistics of a source (RFC 3550, sections 6.4.1, A.1, A.3 and A.8).

use steadycast_units::{Span, Time};
use steadycast_wire::ntp;
use steadycast_wire::rtcp::ReportBlock;
use steadycast_wire::seq::{ExtendedSeq, MAX_DROPOUT, MAX_MISORDER, Verdict};

/// The result of checking a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A new packet. The value is its extended sequence number. It is below the newest number if the packet was
    /// reordered.
    New(i64),
    /// A packet that has already arrived. The value is its extended sequence number.
    Duplicate(i64),
    /// The first packet after a restart of the source. All counters have been reset. The value is the packet's extended
    /// sequence number.
    Restarted(i64),
    /// A packet whose number fits neither the stream nor a restart. The packet is not counted.
    Stray,
}

/// After a silence of this length, the next sequence number may be up to [`MAX_DROPOUT`] ahead, whatever the packet
/// rate is.
const PAUSE: Span = Span::millis(500);
/// The packet rate since the last arrival can plausibly be this many times the mean packet rate.
const FASTER: u64 = 4;
/// The number of packets over which the time between packets is averaged.
const SPACED: u64 = 64;
/// The minimum number of packets from which the time between packets is known.
const KNOWN: u64 = 16;

/// The number of frames over which the number of packets per tick of the media clock is averaged.
const AVERAGED_FRAMES: f64 = 32.0;
/// The minimum sum of the frames' weights from which the averages are known.
const KNOWN_FRAMES: f64 = 8.0;
/// The factor per frame by which the size of the largest frame decreases. It halves in 710 frames.
const LARGEST_FRAME_DECAY: f64 = 1.0 - 1.0 / 1_024.0;
/// An RTP timestamp that is off by more seconds than this belongs to another media clock.
const TIMESTAMP_JUMP_S: u32 = 5;
/// One packet lowers [`MediaClock::least_transit`] by at most this part of a second. A forged packet may have a later
/// timestamp than the source's packets.
const LARGEST_DECREASE_PARTS: u32 = 10;
/// The interval at which [`MediaClock::least_transit`] is increased, because the clocks may drift.
const DRIFT_INTERVAL: Span = Span::secs(1);
/// The assumed maximum drift of the clocks, as parts of a second in each [`DRIFT_INTERVAL`].
const DRIFT_PARTS: u32 = 1_000;

/// The sampling times of a source's packets, according to their RTP timestamps.
///
/// The queue of a link that stands still keeps packets, and drops those that do not fit. When the link works again, the
/// first packet after the dropped ones arrives directly after the kept ones. The time between these two arrivals does
/// not show how many packets were sent meanwhile, but the timestamps do.
#[derive(Clone, Copy, Debug)]
struct MediaClock {
    /// The timestamp of the packet with the newest number.
    timestamp: u32,
    /// The least time from sampling to arrival, in ticks. It includes the unknown offset between the clocks.
    least_transit: u32,
    /// The time at which `least_transit` was last set or increased.
    drifts_since: Time,
    /// The weighted number of packets in recent frames. A frame's weight decreases with each later frame.
    packets: f64,
    /// The weighted duration of the same frames in ticks.
    ticks: f64,
    /// The sum of the weights of these frames.
    frames: f64,
    /// The number of packets of the largest frame. It decreases slowly, because it is the size of rare key frames.
    largest_frame: f64,
    /// How much the sequence number has increased since the timestamp last changed.
    numbers_since: u64,
}

impl MediaClock {
    /// Starts with the first packet. `now` is its arrival time in ticks.
    const fn new(arrival: Time, now: u32, timestamp: u32) -> Self {
        let least_transit = now.wrapping_sub(timestamp);
        let (packets, ticks, frames, largest_frame, numbers_since) = (0.0, 0.0, 0.0, 0.0, 0);
        Self { timestamp, least_transit, drifts_since: arrival, packets, ticks, frames, largest_frame, numbers_since }
    }

    /// Handles the packet with the newest number, which is `ahead` more than the newest number before it. `now` is its
    /// arrival time in ticks.
    fn on_newer(&mut self, arrival: Time, now: u32, timestamp: u32, ahead: u64, clock_rate: u32) {
        let jump = clock_rate.saturating_mul(TIMESTAMP_JUMP_S);
        let transit = now.wrapping_sub(timestamp);
        let above_least = transit.wrapping_sub(self.least_transit) as i32;
        if above_least.unsigned_abs() > jump {
            (self.least_transit, self.drifts_since) = (transit, arrival);
        } else if above_least < 0 {
            let decrease = above_least.unsigned_abs().min(clock_rate / LARGEST_DECREASE_PARTS);
            self.least_transit = self.least_transit.wrapping_sub(decrease);
            self.drifts_since = arrival;
        } else if arrival.since(self.drifts_since) >= DRIFT_INTERVAL {
            let drift = above_least.unsigned_abs().min(clock_rate / DRIFT_PARTS);
            self.least_transit = self.least_transit.wrapping_add(drift);
            self.drifts_since = arrival;
        }
        self.numbers_since = self.numbers_since.saturating_add(ahead);
        let step = timestamp.wrapping_sub(std::mem::replace(&mut self.timestamp, timestamp));
        if step != 0 {
            let numbers = std::mem::take(&mut self.numbers_since) as f64;
            // Packets may be out of order, and a forged packet may have any timestamp.
            if step <= jump {
                let kept = 1.0 - 1.0 / AVERAGED_FRAMES;
                self.packets = self.packets * kept + numbers;
                self.ticks = self.ticks * kept + f64::from(step);
                self.frames = self.frames * kept + 1.0;
                // If whole frames were lost, their packets are included in `numbers`.
                let of_frame = numbers * (self.ticks / self.frames / f64::from(step)).min(1.0);
                self.largest_frame = of_frame.max(self.largest_frame * LARGEST_FRAME_DECAY);
            }
        }
    }

    /// Returns how many packets the source can plausibly have sent from the newest packet to a packet that arrives now
    /// with this timestamp.
    ///
    /// No packet is assumed to be delayed by less than all others before it. The timestamp therefore explains a large
    /// step only if the newest packet was delayed. In an undelayed stream, a forged packet can skip only a few frames,
    /// and its timestamp has to be plausible. The size of the largest frame is added, because all packets of a key
    /// frame may be lost at once.
    fn sent_since(&self, now: u32, timestamp: u32, clock_rate: u32) -> u16 {
        let step = timestamp.wrapping_sub(self.timestamp);
        let possible = now.wrapping_sub(self.least_transit).wrapping_sub(self.timestamp) as i32;
        if self.frames < KNOWN_FRAMES || step > clock_rate.saturating_mul(TIMESTAMP_JUMP_S) {
            return 0;
        }
        let passed = f64::from(step.min(possible.max(0).unsigned_abs()));
        (FASTER as f64 * passed * self.packets / self.ticks + self.largest_frame) as u16
    }
}

/// Stray packets whose numbers are ascending. After a heavy loss, they may continue the stream (see
/// [`Reception::hold`]).
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    packets: u64,
    /// The distance from the stream's newest number to the first of these packets.
    first: u32,
    /// The distance from the stream's newest number to the last of these packets.
    last: u32,
}

/// The state of one source at one receiver.
#[derive(Clone, Debug, Default)]
pub struct Reception {
    ssrc: u32,
    clock_rate: u32,
    seq: ExtendedSeq,
    received: u64,
    duplicates: u64,
    /// Bit i is set if the packet with the newest number minus i has arrived. Packets are reordered by at most 99
    /// numbers.
    seen: u128,
    last_arrival: Time,
    /// The mean time between two consecutive sequence numbers.
    spacing: Span,
    /// The number of packets from which `spacing` was computed.
    spaced: u64,
    /// How much the sequence number has increased since `spacing` was last updated.
    numbers_since: u64,
    line: Line,
    media_clock: Option<MediaClock>,
    transit: Option<u32>,
    jitter: f64,
    expected_prior: u64,
    received_prior: u64,
    sender_report: Option<(Time, u32)>,
}

impl Reception {
    /// Creates the state for a source. `clock_rate` is the rate of its RTP clock in ticks per second (90,000 for
    /// video). There is no probation, because the SSRC was signalled.
    pub fn new(ssrc: u32, clock_rate: u32) -> Self {
        Self { ssrc, clock_rate, ..Self::default() }
    }

    /// Handles an RTP packet of the source. `timestamp` is its RTP timestamp.
    pub fn on_rtp(&mut self, arrival: Time, seq: u16, timestamp: u32) -> Arrived {
        let before = self.seq.newest();
        let mut verdict = self.seq.on_packet(seq, self.reach(arrival, timestamp));
        if verdict == Verdict::Stray && self.hold(arrival, seq) {
            verdict = self.seq.go_on(self.line.last);
        }
        let arrived = match verdict {
            Verdict::Stray => return Arrived::Stray,
            Verdict::Started(extended) => {
                (self.received, self.seen) = (1, 1);
                Arrived::New(extended)
            }
            Verdict::Restarted(extended) => {
                let Self { seq, sender_report, spacing, spaced, .. } = *self;
                // Keep the clock and the packet rate, because a restart does not change them.
                *self = Self { seq, sender_report, spacing, spaced, ..Self::new(self.ssrc, self.clock_rate) };
                (self.received, self.seen) = (1, 1);
                Arrived::Restarted(extended)
            }
            Verdict::Newer(extended) => {
                let ahead = before.map_or(0, |before| extended - before);
                self.space(arrival, ahead.unsigned_abs());
                let now = self.in_ticks(arrival);
                let media_clock = self.media_clock.get_or_insert_with(|| MediaClock::new(arrival, now, timestamp));
                media_clock.on_newer(arrival, now, timestamp, ahead.unsigned_abs(), self.clock_rate);
                // The stream has accepted this packet's number. If no stray packet has a higher number, the stray
                // packets belong to the stream, too. Count them as received.
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
        self.last_arrival = arrival;
        self.line = Line::default();
        self.on_transit(arrival, timestamp);
        arrived
    }

    /// Handles an [`Arrived::Stray`] packet. Returns whether the stray packets continue the stream after a heavy loss.
    ///
    /// Three conditions must hold. No other packet has arrived for `PAUSE`, at least `KNOWN` stray packets had
    /// ascending numbers, and [`Reception::holds`] is true.
    pub fn hold(&mut self, arrival: Time, seq: u16) -> bool {
        let Some(newest) = self.highest() else { return false };
        let Line { packets, first, last } = self.line;
        let step = seq.wrapping_sub((newest as u16).wrapping_add(last as u16));
        if packets > 0 && step >= 1 << 15 {
            // Ignore a small step back, which is a reordering. After a large step back, discard the stray packets,
            // because they do not belong to one stream.
            if step.wrapping_neg() >= MAX_MISORDER {
                self.line = Line::default();
            }
            return false;
        }
        let last = last.saturating_add(step.into());
        let first = if packets == 0 { last } else { first };
        self.line = Line { packets: packets + u64::from(step > 0), first, last };
        self.line.packets >= KNOWN && arrival.since(self.last_arrival) >= PAUSE && self.holds()
    }

    /// Returns whether the stray packets span at least as many numbers as are missing before the first stray packet.
    pub const fn holds(&self) -> bool {
        self.line.packets > 1 && self.line.first <= self.line.last - self.line.first
    }

    /// Returns the largest step of the sequence number that a loss can explain. It depends on the time since the last
    /// arrival or on the [`MediaClock`]. A forged packet right after another packet can take a large step only if its
    /// timestamp is plausible, and if the other packet was delayed ([`MediaClock::sent_since`]).
    fn reach(&self, arrival: Time, timestamp: u32) -> u16 {
        let gap = arrival.since(self.last_arrival);
        let paused = if gap >= PAUSE { MAX_DROPOUT } else { 0 };
        let now = self.in_ticks(arrival);
        let sent = self.media_clock.map_or(0, |clock| clock.sent_since(now, timestamp, self.clock_rate));
        if self.spaced < KNOWN {
            return paused.max(sent);
        }
        let lost = gap.as_nanos().saturating_mul(FASTER) / self.spacing.as_nanos().max(1);
        u16::try_from(lost).unwrap_or(u16::MAX).max(paused).max(sent)
    }

    /// Returns the time as ticks of the RTP clock, modulo 2³².
    fn in_ticks(&self, time: Time) -> u32 {
        // Convert seconds and nanoseconds separately, because a 128-bit division per packet would be slow.
        let (secs, nanos) = (time.as_nanos() / 1_000_000_000, time.as_nanos() % 1_000_000_000);
        let rate = u64::from(self.clock_rate);
        secs.wrapping_mul(rate).wrapping_add(nanos * rate / 1_000_000_000) as u32
    }

    /// Updates the mean time between packets. `ahead` is the number of the new packet minus the newest number before
    /// it.
    fn space(&mut self, arrival: Time, ahead: u64) {
        let gap = arrival.since(self.last_arrival);
        if gap >= PAUSE || self.received <= 2 {
            self.numbers_since = 0;
            if self.line.packets >= KNOWN {
                (self.spacing, self.spaced) = (Span::nanos(gap.as_nanos() / ahead.max(1)), KNOWN);
            }
            return;
        }
        self.numbers_since = self.numbers_since.saturating_add(ahead.max(1));
        // Packets of a batch arrive at the same time. Divide the next gap by their number.
        if !gap.is_zero() {
            self.spaced = (self.spaced + 1).min(SPACED);
            let (mean, each) = (self.spacing.as_nanos(), gap.as_nanos() / std::mem::take(&mut self.numbers_since));
            self.spacing = Span::nanos(mean - mean / self.spaced + each / self.spaced);
        }
    }

    /// Handles a sender report of the source. `ntp` is its NTP timestamp.
    pub fn on_sr(&mut self, arrival: Time, ntp: u64) {
        self.sender_report = Some((arrival, ntp::middle(ntp)));
    }

    /// Returns the LSR of the next report block. Returns `None` before the first sender report.
    pub fn lsr(&self) -> Option<u32> {
        self.sender_report.map(|(_, middle)| middle)
    }

    /// Returns a report block that covers the time since the previous report block. Returns `None` before the first
    /// packet.
    pub fn report_block(&mut self, now: Time) -> Option<ReportBlock> {
        let newest = self.seq.newest()?;
        let expected = self.expected() - self.expected_prior;
        let received = self.received - self.received_prior;
        (self.expected_prior, self.received_prior) = (self.expected(), self.received);
        let lost = expected.saturating_sub(received);
        let fraction = if expected == 0 { 0.0 } else { lost as f64 / expected as f64 };
        // Set both fields to 0 if no sender report has arrived (RFC 3550, section 6.4.1).
        let (lsr, dlsr) = self.sender_report.map_or((0, 0), |(at, middle)| (middle, ntp::dlsr(now.since(at))));
        Some(ReportBlock {
            ssrc: self.ssrc,
            // Limit the value to eight bits. It would be 256 if all packets were lost.
            fraction: (fraction * 256.0).min(255.0) as u8,
            cumulative_lost: self.cumulative_lost(),
            highest_seq: newest as u32,
            jitter: self.jitter as u32,
            lsr,
            dlsr,
        })
    }

    /// Returns the SSRC of the source.
    pub const fn ssrc(&self) -> u32 {
        self.ssrc
    }
    /// Returns the number of packets from the first to the newest sequence number.
    pub const fn expected(&self) -> u64 {
        self.seq.expected()
    }
    /// Returns the number of packets that have arrived, including duplicates.
    pub const fn received(&self) -> u64 {
        self.received
    }
    /// Returns the number of duplicates.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
    /// Returns the number of expected packets minus the number of received packets, limited to a signed number of 24
    /// bits (RFC 3550, section 6.4.1).
    pub fn cumulative_lost(&self) -> i32 {
        let lost = self.expected() as i64 - self.received as i64;
        lost.clamp(-0x80_0000, 0x7f_ffff) as i32
    }
    /// Returns the highest extended sequence number. Returns `None` before the first packet.
    pub const fn highest(&self) -> Option<i64> {
        self.seq.newest()
    }
    /// Returns the interarrival jitter. For each packet, J += (|D| − J)/16 (RFC 3550, appendix A.8).
    pub fn jitter(&self) -> Span {
        Span::from_secs_f64(self.jitter / f64::from(self.clock_rate.max(1)))
    }

    fn on_transit(&mut self, arrival: Time, timestamp: u32) {
        let transit = self.in_ticks(arrival).wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let difference = f64::from((transit.wrapping_sub(before) as i32).unsigned_abs());
            self.jitter += (difference - self.jitter) / 16.0;
        }
    }
}
