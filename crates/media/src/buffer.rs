//! A receiver's play-out buffer. Arriving packets fill it, and the player drains it.

use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time};

/// How the player drains the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consume {
    /// The player takes bytes at a constant rate. IP, UDP and RTP headers are included in the rate.
    Rate(Rate),
    /// The player takes one frame per period. At the start of the period, all bytes of the frame that have arrived are
    /// removed.
    Frames(Span),
}

/// Playback starts when 1/`START_FRACTION` of the buffer is filled. It restarts in the same way after an underflow.
const START_FRACTION: u64 = 5;

/// A play-out buffer, which counts the bytes of IP packets.
///
/// RTP and RTCP treat a packet as received even if it does not fit, but the player does not get it.
#[derive(Clone, Debug)]
pub struct PlayBuffer {
    size: Bytes,
    consume: Consume,
    level: Bytes,
    /// When playback started, and the bytes played since then at a constant rate. `None` while the player waits for
    /// data.
    playing: Option<(Time, Bytes)>,
    /// The buffered bytes of each frame. Used only with [`Consume::Frames`].
    frames: BTreeMap<u32, Bytes>,
    /// The number of the next frame to play, and its play-out time.
    next: (u32, Time),
    underflows: u64,
    overflows: u64,
}

impl PlayBuffer {
    /// Creates an empty buffer.
    pub fn new(size: Bytes, consume: Consume) -> Self {
        Self {
            size,
            consume,
            level: Bytes::ZERO,
            playing: None,
            frames: BTreeMap::new(),
            next: (0, Time::NEVER),
            underflows: 0,
            overflows: 0,
        }
    }

    /// Returns the capacity.
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Returns how often the buffer ran empty during playback.
    pub const fn underflows(&self) -> u64 {
        self.underflows
    }

    /// Returns the number of packets that did not fit.
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns the number of buffered bytes at `now`.
    pub fn level(&mut self, now: Time) -> Bytes {
        self.advance(now);
        self.level
    }

    /// Adds a packet of `frame`. Returns false if it does not fit, or if its frame has already been played.
    pub fn offer(&mut self, now: Time, size: Bytes, frame: u32) -> bool {
        self.advance(now);
        if self.level + size > self.size {
            self.overflows += 1;
            return false;
        }
        if matches!(self.consume, Consume::Frames(_)) {
            // Refuse a packet of a frame that has already been played.
            if self.playing.is_some() && frame < self.next.0 {
                return false;
            }
            *self.frames.entry(frame).or_default() += size;
        }
        self.level += size;
        if self.playing.is_none() && self.level.get() * START_FRACTION >= self.size.get() {
            self.playing = Some((now, Bytes::ZERO));
            self.next = (self.frames.keys().next().copied().unwrap_or(0), now);
        }
        true
    }

    fn advance(&mut self, now: Time) {
        let Some((since, played)) = self.playing else { return };
        match self.consume {
            Consume::Rate(rate) => {
                // Count from the start of playback, so that rounding errors do not accumulate.
                let due = rate.over(now.since(since));
                let wanted = due.saturating_sub(played);
                if wanted > self.level {
                    self.run_empty();
                } else {
                    self.level = self.level.saturating_sub(wanted);
                    self.playing = Some((since, due));
                }
            }
            Consume::Frames(period) => {
                while self.playing.is_some() && self.next.1 <= now {
                    if self.level == Bytes::ZERO {
                        self.run_empty();
                        return;
                    }
                    let (frame, at) = self.next;
                    // Remove the bytes of earlier frames too, because they arrived too late to be played.
                    let later = self.frames.split_off(&(frame + 1));
                    let gone = std::mem::replace(&mut self.frames, later);
                    let bytes = gone.values().fold(Bytes::ZERO, |sum, b| sum + *b);
                    self.level = self.level.saturating_sub(bytes);
                    // Advance by at least 1 ns, because a period of zero would make this loop endless.
                    self.next = (frame + 1, at + period.max(Span::nanos(1)));
                }
            }
        }
    }

    fn run_empty(&mut self) {
        self.underflows += 1;
        self.level = Bytes::ZERO;
        self.playing = None;
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    const K: Bytes = Bytes::new(1000);

    #[test]
    fn playing_begins_at_a_fifth_and_takes_its_rate() {
        let mut buffer = PlayBuffer::new(K + K + K + K + K + K + K + K + K + K, Consume::Rate(Rate::kbps(8)));
        assert!(buffer.offer(at(0), K, 0));
        assert_eq!(buffer.level(at(5_000)), K);
        assert!(buffer.offer(at(5_000), K, 0));
        assert_eq!(buffer.level(at(5_500)).get(), 1_500);
        assert_eq!(buffer.level(at(7_000)).get(), 0);
        assert_eq!((buffer.underflows(), buffer.overflows()), (0, 0));
        assert_eq!(buffer.level(at(7_001)).get(), 0);
        assert_eq!(buffer.underflows(), 1);
        // After the underflow, playback waits until a fifth of the buffer is filled.
        assert!(buffer.offer(at(9_000), K, 0));
        assert_eq!(buffer.level(at(60_000)), K);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_kept() {
        let mut buffer = PlayBuffer::new(K + K, Consume::Rate(Rate::bps(8)));
        assert!(buffer.offer(at(0), K, 0) && buffer.offer(at(0), K, 0) && !buffer.offer(at(1), K, 0));
        assert_eq!((buffer.level(at(1)), buffer.overflows()), (K + K, 1));
    }

    #[test]
    fn frame_by_frame_each_takes_what_came_of_it_and_late_packets_find_no_place() {
        let mut buffer = PlayBuffer::new(Bytes::new(5_000), Consume::Frames(Span::millis(40)));
        // The first packet fills a fifth of the buffer, so that playback starts with frame 0.
        assert!(buffer.offer(at(0), K, 0));
        assert!(buffer.offer(at(10), K, 1) && buffer.offer(at(20), K, 2));
        assert_eq!(buffer.level(at(39)), K + K);
        assert_eq!(buffer.level(at(40)), K);
        assert!(!buffer.offer(at(41), K, 0), "its turn is over");
        assert_eq!(buffer.level(at(80)).get(), 0);
        assert_eq!(buffer.underflows(), 0);
        assert_eq!((buffer.level(at(120)).get(), buffer.underflows()), (0, 1));
    }

    proptest! {
        #[test]
        fn the_level_stays_between_nothing_and_its_size(
            size in 1u64..20_000, kbps in 1u64..2_000, by_frame in any::<bool>(),
            packets in prop::collection::vec((0u64..200, 1u64..2_000, 0u32..40), 1..80),
        ) {
            let consume = if by_frame { Consume::Frames(Span::millis(40)) } else { Consume::Rate(Rate::kbps(kbps)) };
            let mut buffer = PlayBuffer::new(Bytes::new(size), consume);
            let (mut now, mut offered) = (0, 0);
            for (n, (ms, bytes, frame)) in packets.into_iter().enumerate() {
                now += ms;
                let before = buffer.level(at(now));
                let kept = buffer.offer(at(now), Bytes::new(bytes), n as u32 / 3 + frame / 20);
                offered += 1;
                let after = buffer.level(at(now));
                prop_assert!(after.get() <= size);
                prop_assert!(kept || after <= before);
                prop_assert!(buffer.overflows() <= offered);
            }
        }
    }
}
