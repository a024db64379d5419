//! A receiver's player, which decides how long to wait for a frame.

use std::collections::BTreeMap;
use steadycast_media::{Bounds, Fragment, Playout, Schedule};
use steadycast_units::{Span, Time};

/// Maximum number of incomplete frames that are tracked.
const MAX_OPEN_FRAMES: usize = 256;
/// Window of the minimum filter [`Origin`], which estimates when frame 0 was ready.
const ORIGIN_WINDOW: Span = Span::secs(10);

/// Play-out delay per frame.
#[derive(Clone, Debug, Default)]
pub struct Player {
    /// The play-out delay over time.
    pub schedule: Schedule,
    adaptive: Option<Box<Adaptive>>,
}

/// The properties of an arrived packet for the player.
pub(super) struct ArrivedPacket {
    pub(super) now: Time,
    /// The departure of the original packet; `None` if the original was lost.
    pub(super) sent: Option<Time>,
    /// The RTP timestamp; `None` if the packet was recovered from parity.
    pub(super) stamp: Option<u32>,
    pub(super) fragment: Fragment,
    /// Whether this is the frame's last packet.
    pub(super) ends: bool,
}

#[derive(Clone, Debug)]
struct Adaptive {
    playout: Playout,
    /// The time between frames; `None` if RTP timestamps give the frames' times.
    period: Option<Span>,
    clock: Option<MediaClock>,
    origin: Origin,
    open: BTreeMap<u32, Open>,
    /// Whether no frame has been completed yet.
    fresh: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Open {
    bytes: u32,
    /// The frame's size in bytes; `None` before its last packet has arrived.
    of: Option<u32>,
    repaired: bool,
    /// When the frame was ready, in ns after the first frame.
    begins: Option<i64>,
}

/// The newest RTP timestamp, and its distance from the first timestamp in 90 kHz ticks.
#[derive(Clone, Copy, Debug)]
struct MediaClock {
    stamp: u32,
    ticks: i64,
}

impl MediaClock {
    /// Returns the clock at `stamp`, which may be old.
    fn at(clock: Option<Self>, stamp: u32) -> Self {
        let Self { stamp: before, ticks } = clock.unwrap_or(Self { stamp, ticks: 0 });
        Self { stamp, ticks: ticks + i64::from(stamp.wrapping_sub(before) as i32) }
    }

    /// Returns the nanoseconds since the first timestamp.
    fn nanos(self) -> i64 {
        self.ticks * 100_000 / 9
    }
}

impl Player {
    /// Creates a player with a constant play-out delay; `None` waits without limit.
    pub fn fixed(delay: Option<Span>) -> Self {
        Self { schedule: Schedule::fixed(delay), adaptive: None }
    }

    /// Creates a player whose delay adapts within `bounds`. Frames are ready every `period`; without a period, their
    /// RTP timestamps give the times.
    pub fn adaptive(bounds: Bounds, period: Option<Span>) -> Self {
        let (playout, origin, open) = (Playout::new(bounds), Origin::default(), BTreeMap::new());
        let adaptive = Adaptive { playout, period, clock: None, origin, open, fresh: true };
        Self { schedule: Schedule::default(), adaptive: Some(Box::new(adaptive)) }
    }

    /// Returns whether the play-out delay adapts.
    pub fn adapts(&self) -> bool {
        self.adaptive.is_some()
    }

    pub(super) fn restart(&mut self) {
        if let Some(adaptive) = &mut self.adaptive {
            (adaptive.origin, adaptive.clock) = (Origin::default(), None);
            adaptive.open.clear();
        }
    }

    /// Processes a packet. `repair` is the delay that the repair of a loss adds. Returns the play-out delay if it has
    /// changed.
    pub(super) fn on_packet(&mut self, packet: &ArrivedPacket, repair: Span) -> Option<Span> {
        let adaptive = self.adaptive.as_mut()?;
        adaptive.playout.on_repair_time(repair);
        let delay = adaptive.on_packet(packet)?;
        self.schedule.change(packet.now, delay);
        Some(delay)
    }
}

impl Adaptive {
    fn on_packet(&mut self, packet: &ArrivedPacket) -> Option<Span> {
        let Fragment { frame, offset, len } = packet.fragment;
        let begins = self.begins(packet);
        if let Some((sent, begins)) = packet.sent.zip(begins) {
            self.origin.see(packet.now, sent, begins);
        }
        let open = self.open.entry(frame).or_default();
        open.begins = open.begins.or(begins);
        open.bytes = open.bytes.saturating_add(len.into());
        open.repaired |= packet.sent.is_none();
        if packet.ends {
            // Only the last packet shows the size.
            open.of = Some(offset.saturating_add(len.into()));
        }
        let Open { bytes, of, repaired, begins } = *open;
        if of != Some(bytes) {
            // Frames with a lost packet must not fill the memory.
            while self.open.len() > MAX_OPEN_FRAMES {
                self.open.pop_first();
            }
            return None;
        }
        self.open.remove(&frame);
        let changed = self.playout.on_whole(packet.now, self.origin.age(packet.now, begins?)?, repaired);
        let first = std::mem::take(&mut self.fresh);
        // At the first frame, the initial delay counts as a change.
        changed.or_else(|| first.then(|| self.playout.delay()))
    }

    /// Returns when the packet's frame was ready, in ns after the first frame.
    fn begins(&mut self, packet: &ArrivedPacket) -> Option<i64> {
        if let Some(period) = self.period {
            return Some(nanos(period * u64::from(packet.fragment.frame)));
        }
        let clock = MediaClock::at(self.clock, packet.stamp?);
        self.clock = Some(clock);
        Some(clock.nanos())
    }
}

/// Estimates when frame 0 was ready. The estimate is the minimum of `sent` − `begins` over recent packets
/// ([`Origin::see`]), because a packet is never sent before its frame is ready.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    /// The minimum of the present window, the minimum of the previous window, and the present window's start. The
    /// minima are in ns, and negative if frame 0 was ready before [`Time::ZERO`].
    earliest: Option<(i64, i64, Time)>,
}

impl Origin {
    /// Adds a packet sent at `sent`. Its frame was ready `begins` ns after frame 0.
    fn see(&mut self, now: Time, sent: Time, begins: i64) {
        let origin = nanos(sent.since(Time::ZERO)) - begins;
        let (present, past, since) = self.earliest.unwrap_or((origin, origin, now));
        let present = present.min(origin);
        // The minima of two windows always cover at least one whole window, and old minima expire.
        let turned = now.since(since) > ORIGIN_WINDOW;
        self.earliest = Some(if turned { (origin, present, now) } else { (present, past, since) });
    }

    /// Returns the time since a frame was ready.
    fn age(&self, now: Time, begins: i64) -> Option<Span> {
        let (present, past, _) = self.earliest?;
        let age = nanos(now.since(Time::ZERO)) - begins - present.min(past);
        Some(Span::nanos(u64::try_from(age).unwrap_or(0)))
    }
}

fn nanos(span: Span) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { least: Span::millis(10), most: Span::millis(500) };

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    /// Sends a frame as two packets over a path of 20 ms. The first packet is sent `wait` after the frame is ready.
    /// Frames are ready every 40 ms from `start` on.
    fn frame(player: &mut Player, n: u32, start: u64, wait: u64, repaired: bool) -> Option<Span> {
        let sent = ms(start + 40 * u64::from(n) + wait);
        let part = |offset, len| Fragment { frame: n, offset, len };
        let (now, last) = (sent + Span::millis(20), Span::millis(if repaired { 90 } else { 10 }));
        let stamp = Some((start as u32 + 40 * n).wrapping_mul(90).wrapping_add(u32::MAX - 50_000));
        let first = ArrivedPacket { now, sent: Some(sent), stamp, fragment: part(0, 100), ends: false };
        assert_eq!(player.on_packet(&first, Span::ZERO), None, "not whole yet");
        let sent = (!repaired).then(|| sent + last);
        let stamp = stamp.filter(|_| !repaired);
        player
            .on_packet(&ArrivedPacket { now: now + last, sent, stamp, fragment: part(100, 50), ends: true }, Span::ZERO)
    }

    #[test]
    fn it_learns_from_packets_what_frames_take_from_being_ready_on() {
        for period in [Some(Span::millis(40)), None] {
            let mut player = Player::adaptive(BOUNDS, period);
            assert_eq!(frame(&mut player, 7, 300, 0, false), Some(Span::millis(40)));
            assert_eq!(frame(&mut player, 8, 300, 60, false), Some(Span::millis(100)));
            assert_eq!(frame(&mut player, 9, 300, 0, true), Some(Span::millis(120)));
            assert_eq!(player.schedule.due(ms(5_000)), Some(ms(5_120)));
        }
    }

    #[test]
    fn by_timestamps_that_wrap_it_knows_frames_at_irregular_times() {
        let mut player = Player::adaptive(BOUNDS, None);
        // Frames are 40 to 200 ms apart, and each takes 30 ms.
        let mut start = 0;
        for n in 0..100 {
            start += u64::from(n) * 37 % 160;
            frame(&mut player, n, start, 0, false);
        }
        assert_eq!(player.schedule.delay(Time::NEVER), Some(Span::millis(40)));
    }

    #[test]
    fn after_a_pause_it_learns_anew_when_frames_are_ready() {
        let mut player = Player::adaptive(BOUNDS, Some(Span::millis(40)));
        (0..100).for_each(|n| _ = frame(&mut player, n, 0, 0, false));
        assert_eq!(player.schedule.delay(ms(4_000)), Some(Span::millis(40)));
        // If a pause skips no frame numbers, it looks like a packet that waited before it was sent. The effect lasts
        // for at most twenty seconds.
        (100..3_000).for_each(|n| _ = frame(&mut player, n, 1_000, 0, false));
        assert_eq!(player.schedule.delay(ms(5_100)), Some(Span::millis(500)));
        assert_eq!(player.schedule.delay(Time::NEVER), Some(Span::millis(40)));
    }
}
