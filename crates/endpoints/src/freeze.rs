//! Detection of freezes by the W3C's definition.

use std::collections::VecDeque;
use steadycast_record::{Figures, receiver};
use steadycast_units::Span;

/// Number of pictures over which the mean display duration is taken. Freezes are measured against this mean (W3C,
/// Identifiers for WebRTC's Statistics API, `freezeCount`).
const RECENT_PICTURES: usize = 30;

/// Minimum time by which a freeze exceeds the mean display duration.
const FREEZE_MARGIN: Span = Span::millis(150);

/// With fewer pictures, no picture can be a freeze by the definition. A picture that is shown for three times the mean
/// duration of three pictures would be shown for the duration of all three.
const LEAST_PICTURES: u64 = 4;

/// Counts the freezes of a video, and measures how long they last.
///
/// A picture freezes if it is shown for at least max(3·avg, avg + 150 ms). `avg` is the mean duration of the last 30
/// pictures, including the picture itself. The W3C's definition does not count the last picture of a stream. These
/// counts include it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freezes {
    /// The sum of squared durations in ns².
    squares_ns2: u128,
    /// The number of freezes.
    pub count: u64,
    /// The total time of all freezes.
    pub time: Span,
    /// The longest freeze.
    pub longest: Span,
    /// Whether the last freeze continued until the end.
    pub at_end: bool,
    /// Number of pictures shown for more than one slot.
    pub stills: u64,
    /// The time from the first picture to the end.
    pub shown: Span,
    /// The number of pictures.
    pub pictures: u64,
}

impl Freezes {
    /// Counts the freezes in a sequence of display slots. Each slot says whether a new picture appears, and how long
    /// the slot lasts. Slots before the first picture are ignored.
    pub fn of(slots: impl IntoIterator<Item = (bool, Span)>) -> Self {
        let mut all = Self::default();
        let mut recent: VecDeque<Span> = VecDeque::with_capacity(RECENT_PICTURES);
        let (mut lasts, mut held) = (Span::ZERO, 0);
        for (new, span) in slots.into_iter().skip_while(|(new, _)| !new) {
            if new && held > 0 {
                all.interval(lasts, held, &mut recent);
                (lasts, held) = (Span::ZERO, 0);
            }
            (lasts, held) = (lasts + span, held + 1);
        }
        // The last picture is shown until the end, so count it as well.
        if held > 0 {
            all.at_end = all.interval(lasts, held, &mut recent);
        }
        all
    }

    /// Counts a picture shown for `span`. Returns whether it was a freeze.
    fn interval(&mut self, span: Span, slots: u64, recent: &mut VecDeque<Span>) -> bool {
        if recent.len() == RECENT_PICTURES {
            recent.pop_front();
        }
        recent.push_back(span);
        let sum = recent.iter().fold(Span::ZERO, |sum, one| sum + *one);
        let mean = Span::nanos(sum.as_nanos() / recent.len() as u64);
        let frozen = span >= (mean * 3).max(mean + FREEZE_MARGIN);
        if frozen {
            self.count += 1;
            self.time += span;
            self.longest = self.longest.max(span);
        }
        self.stills += u64::from(slots > 1);
        self.shown += span;
        self.pictures += 1;
        self.squares_ns2 += u128::from(span.as_nanos()) * u128::from(span.as_nanos());
        frozen
    }

    /// Returns the harmonic frame rate as libwebrtc does. It is the total time divided by the sum of squared durations.
    pub fn harmonic_fps(&self) -> Option<f64> {
        (self.squares_ns2 > 0).then(|| self.shown.as_nanos() as f64 * 1e9 / self.squares_ns2 as f64)
    }

    /// Writes the counts as a receiver's figures. They are unknown if there are fewer than [`LEAST_PICTURES`] pictures.
    pub fn figures(&self, into: &mut Figures) {
        let is_known = self.pictures >= LEAST_PICTURES;
        let shown = Some(self.shown.as_secs_f64()).filter(|s| is_known && *s > 0.0);
        into.put(&receiver::FREEZE_COUNT, is_known.then_some(self.count));
        into.put_span(&receiver::FREEZE_S, is_known.then_some(self.time));
        into.put(&receiver::FREEZES_PER_MIN, shown.map(|s| self.count as f64 * 60.0 / s));
        into.put(&receiver::FROZEN_FRAC, shown.map(|s| self.time.as_secs_f64() / s));
        into.put_span(&receiver::LONGEST_FREEZE, is_known.then_some(self.longest));
        into.put(&receiver::FROZEN_AT_END, is_known.then_some(self.at_end));
        into.put(&receiver::STILLS, self.stills);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the freezes in slots that all have the same duration `period`.
    fn even(slots: impl IntoIterator<Item = bool>, period: Span) -> Freezes {
        Freezes::of(slots.into_iter().map(|new| (new, period)))
    }

    /// Returns the freezes of a video in which each picture is shown for one slot. Only one picture in the middle is
    /// shown for longer, namely for `slots` slots.
    fn still(fps: u64, slots: u64) -> Freezes {
        let around = || std::iter::repeat_n(true, 3 * fps as usize);
        let held = std::iter::repeat_n(false, slots as usize - 1);
        even(around().chain(held).chain(around()), Span::secs(1) / fps)
    }

    #[test]
    fn the_shortest_freeze_is_267_ms_at_15_fps_and_200_ms_at_25_and_30() {
        for (fps, shortest) in [(15, 4), (25, 5), (30, 6)] {
            let (shorter, freeze) = (still(fps, shortest - 1), still(fps, shortest));
            assert_eq!((shorter.count, shorter.time, shorter.stills), (0, Span::ZERO, 1), "{fps} fps");
            let span = (Span::secs(1) / fps) * shortest;
            assert_eq!((freeze.count, freeze.time, freeze.longest, freeze.stills), (1, span, span, 1), "{fps} fps");
            assert!(!freeze.at_end);
        }
    }

    #[test]
    fn a_steady_low_rate_is_no_freeze_and_one_picture_for_ever_is_none() {
        // There are five pictures per second in slots of 1/25 s. Each picture is shown for several slots, but no
        // picture is shown for longer than the others.
        let steady = even((0..500).map(|n| n % 5 == 0), Span::millis(40));
        assert_eq!((steady.count, steady.stills), (0, 100));
        assert_eq!(even([true, false, false, false], Span::secs(1)).count, 0, "nothing to compare it with");
        assert_eq!(even([false; 100], Span::millis(40)), Freezes::default(), "blank is not frozen");
    }

    #[test]
    fn freezes_are_unknown_with_pictures_so_few_that_none_can_be_a_freeze() {
        for shown in 0..6_u64 {
            // The pictures follow each other at once, and the last one stays for an hour.
            let slots = std::iter::repeat_n(true, shown as usize).chain(std::iter::repeat_n(false, 90_000));
            let freezes = even(slots, Span::millis(40));
            let mut figures = Figures::new(receiver::FREEZE_COUNT.of);
            freezes.figures(&mut figures);
            let known = shown >= LEAST_PICTURES;
            for figure in
                [&receiver::FREEZE_COUNT, &receiver::FREEZE_S, &receiver::FROZEN_FRAC, &receiver::LONGEST_FREEZE]
            {
                assert_eq!(
                    figures.get(figure).is_some_and(|value| !value.is_null()),
                    known,
                    "{} of {shown} pictures",
                    figure.key
                );
            }
            assert_eq!(freezes.count, u64::from(known), "{shown} pictures");
        }
    }

    #[test]
    fn a_stall_at_the_end_counts_and_is_marked() {
        let slots = std::iter::repeat_n(true, 100).chain(std::iter::repeat_n(false, 99));
        let stalled = even(slots, Span::millis(40));
        assert_eq!((stalled.count, stalled.time, stalled.at_end), (1, Span::secs(4), true));
        assert_eq!(stalled.shown, Span::millis(40) * 199);
    }

    #[test]
    fn an_interval_is_judged_by_the_last_thirty_alone() {
        // After 30 pictures of 400 ms, a picture of 800 ms is shorter than the threshold of 3 × 413 ms. After 30
        // pictures of 40 ms, such a picture is a freeze.
        let slow = (0..300).map(|n| n % 10 == 0);
        let long = || (0..20).map(|n| n == 0);
        let fast = std::iter::repeat_n(true, 30);
        let all = even(slow.chain(long()).chain(fast).chain(long()).chain([true]), Span::millis(40));
        assert_eq!((all.count, all.time), (1, Span::millis(800)));
    }

    #[test]
    fn a_slot_that_lasts_longer_is_a_freeze_as_one_that_is_repeated_is() {
        let grows = (0..200).map(|n| (true, Span::millis(if n == 100 { 340 } else { 40 })));
        let all = Freezes::of(grows);
        assert_eq!((all.count, all.time, all.stills), (1, Span::millis(340), 0));
    }
}
