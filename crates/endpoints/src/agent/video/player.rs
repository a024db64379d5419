//! The player of a receiver. It decides how long to wait for a frame.

use std::collections::BTreeMap;
use steadycast_media::{Bounds, Fragment, Playout, Schedule};
use steadycast_units::{Span, Time};

/// Maximum number of incomplete frames that are tracked.
const MAX_OPEN_FRAMES: usize = 256;
/// Duration of a window of the minimum filter [`Origin`], which estimates when frame 0 was ready.
const ORIGIN_WINDOW: Span = Span::secs(10);

/// Determines the play-out delay of each frame.
#[derive(Clone, Debug, Default)]
pub struct Player {
    /// The play-out delays over time.
    pub schedule: Schedule,
    adaptive: Option<Box<Adaptive>>,
}

/// What the player needs to know about a packet that has arrived.
pub(super) struct ArrivedPacket {
    pub(super) now: Time,
    /// When the packet was sent. `None` if this is unknown or if the packet is repaired.
    pub(super) sent: Option<Time>,
    /// Whether the original packet was lost.
    pub(super) repaired: bool,
    /// The RTP timestamp. `None` if the packet was recovered from parity.
    pub(super) stamp: Option<u32>,
    pub(super) fragment: Fragment,
    /// Whether this packet is the last packet of its frame.
    pub(super) ends: bool,
}

#[derive(Clone, Debug)]
struct Adaptive {
    playout: Playout,
    /// The time between two frames. `None` if RTP timestamps tell when frames are ready.
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
    /// The size of the frame in bytes. `None` until its last packet has arrived.
    of: Option<u32>,
    repaired: bool,
    /// When the frame was ready, in nanoseconds after the first frame.
    begins: Option<i64>,
}

/// The newest RTP timestamp, and how many 90 kHz ticks it is after the first timestamp.
#[derive(Clone, Copy, Debug)]
struct MediaClock {
    stamp: u32,
    ticks: i64,
}

impl MediaClock {
    /// Returns the clock at the RTP timestamp `stamp`, which may be older than the newest timestamp.
    fn at(clock: Option<Self>, stamp: u32) -> Self {
        let Self { stamp: before, ticks } = clock.unwrap_or(Self { stamp, ticks: 0 });
        Self { stamp, ticks: ticks + i64::from(stamp.wrapping_sub(before) as i32) }
    }

    /// Returns how many nanoseconds have passed since the first timestamp.
    fn nanos(self) -> i64 {
        self.ticks * 100_000 / 9
    }
}

impl Player {
    /// Creates a player whose play-out delay is constant. `None` means that it waits without limit.
    pub fn fixed(delay: Option<Span>) -> Self {
        Self { schedule: Schedule::fixed(delay), adaptive: None }
    }

    /// Creates a player whose play-out delay adapts within `bounds`. A frame is ready once per `period`. If `period` is
    /// `None`, the RTP timestamps tell when frames are ready.
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

    /// Processes a packet. `repair` is how long the repair of a lost packet takes. Returns the new play-out delay if it
    /// has changed.
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
        open.repaired |= packet.repaired;
        if packet.ends {
            // The size of the frame is known only from its last packet.
            open.of = Some(offset.saturating_add(len.into()));
        }
        let Open { bytes, of, repaired, begins } = *open;
        if of != Some(bytes) {
            // Forget old frames that lack a packet, so that they do not fill the memory.
            while self.open.len() > MAX_OPEN_FRAMES {
                self.open.pop_first();
            }
            return None;
        }
        self.open.remove(&frame);
        let changed = self.playout.on_whole(packet.now, self.origin.age(packet.now, begins?)?, repaired);
        let first = std::mem::take(&mut self.fresh);
        // Return the initial delay at the first frame, although it has not changed.
        changed.or_else(|| first.then(|| self.playout.delay()))
    }

    /// Returns when the frame of this packet was ready, in nanoseconds after the first frame.
    fn begins(&mut self, packet: &ArrivedPacket) -> Option<i64> {
        if let Some(period) = self.period {
            return Some(nanos(period * u64::from(packet.fragment.frame)));
        }
        let clock = MediaClock::at(self.clock, packet.stamp?);
        self.clock = Some(clock);
        Some(clock.nanos())
    }
}

/// Estimates when frame 0 was ready. A packet is never sent before its frame is ready. The estimate is therefore the
/// minimum of `sent` − `begins` over recent packets ([`Origin::see`]).
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    /// The minimum of the current window, the minimum of the previous window, and the start of the current window. The
    /// minima are in nanoseconds. They are negative if frame 0 was ready before [`Time::ZERO`].
    earliest: Option<(i64, i64, Time)>,
}

impl Origin {
    /// Adds a packet that was sent at `sent`. Its frame was ready `begins` nanoseconds after frame 0.
    fn see(&mut self, now: Time, sent: Time, begins: i64) {
        let origin = nanos(sent.since(Time::ZERO)) - begins;
        let (present, past, since) = self.earliest.unwrap_or((origin, origin, now));
        let present = present.min(origin);
        // Begin a new window after a while, so that old minima expire. The minima of two windows together always span
        // at least one whole window.
        let turned = now.since(since) > ORIGIN_WINDOW;
        self.earliest = Some(if turned { (origin, present, now) } else { (present, past, since) });
    }

    /// Returns how long ago a frame was ready. `begins` is its time in nanoseconds after frame 0.
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

    /// Sends a frame in two packets over a path whose delay is 20 ms. Frames are ready every 40 ms, beginning at
    /// `start`. The first packet is sent `wait` ms after the frame is ready.
    fn frame(player: &mut Player, n: u32, start: u64, wait: u64, repaired: bool) -> Option<Span> {
        let sent = ms(start + 40 * u64::from(n) + wait);
        let part = |offset, len| Fragment { frame: n, offset, len };
        let (now, last) = (sent + Span::millis(20), Span::millis(if repaired { 90 } else { 10 }));
        let stamp = Some((start as u32 + 40 * n).wrapping_mul(90).wrapping_add(u32::MAX - 50_000));
        let first =
            ArrivedPacket { now, sent: Some(sent), repaired: false, stamp, fragment: part(0, 100), ends: false };
        assert_eq!(player.on_packet(&first, Span::ZERO), None, "not whole yet");
        let sent = (!repaired).then(|| sent + last);
        let stamp = stamp.filter(|_| !repaired);
        let second = ArrivedPacket { now: now + last, sent, repaired, stamp, fragment: part(100, 50), ends: true };
        player.on_packet(&second, Span::ZERO)
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
        // Frames are ready at intervals of 40 to 200 ms, and each takes 30 ms to arrive.
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
        // A pause that skips no frame numbers looks like a packet that waited before it was sent. The effect lasts for
        // at most twenty seconds.
        (100..3_000).for_each(|n| _ = frame(&mut player, n, 1_000, 0, false));
        assert_eq!(player.schedule.delay(ms(5_100)), Some(Span::millis(500)));
        assert_eq!(player.schedule.delay(Time::NEVER), Some(Span::millis(40)));
    }
}
