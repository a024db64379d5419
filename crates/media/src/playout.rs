//! Adaptive play-out. The play-out delay is the time from a frame's readiness at the sender to its display. It follows
//! the delay of the path and the time that repairs of losses take.

use std::collections::VecDeque;
use steadycast_settings::tree::Item;
use steadycast_settings::{Findings, Kind, Within, settings};
use steadycast_units::{Span, Time};

/// Frames that were completed within this time determine the play-out delay.
const WINDOW: Span = Span::secs(10);
/// The share of the frames in [`WINDOW`] that must arrive in time without repair.
const PERCENTILE: f64 = 0.95;
/// A margin, which is added to the frame delay and the repair time.
const MARGIN: Span = Span::millis(10);
/// The amount by which the play-out delay decreases, once per [`DECREASE_INTERVAL`].
const DECREASE_STEP: Span = Span::millis(10);
const DECREASE_INTERVAL: Span = Span::secs(1);

const PLAYOUT: Within<Span> =
    Within { least: Span::millis(1), most: Span::secs(60), remedy: "from \"1ms\" to \"60s\"" };

settings! {
    /// The bounds of an adaptive play-out delay.
    #[derive(Copy, Eq)]
    Bounds checked by Bounds::check {
        /// The shortest play-out delay.
        least: Span where (PLAYOUT) = ADAPTIVE.least,
        /// The longest play-out delay.
        most: Span where (PLAYOUT) = ADAPTIVE.most,
    }
}

impl Kind<()> for Bounds {}

/// The default bounds of an adaptive play-out delay.
pub const ADAPTIVE: Bounds = Bounds { least: Span::millis(80), most: Span::millis(800) };

impl Bounds {
    fn check(&self, item: &Item, out: &mut Findings) {
        if self.least > self.most {
            let (what, remedy) =
                (format!("the longest delay, {}, is below the shortest", self.most), "make \"most\" longer");
            out.problem(item.get("most").map_or(&item.at, |most| &most.at), what, remedy);
        }
    }
}

/// An adaptive play-out delay. It is the 95th percentile of the frame delays in the last ten seconds, plus the time to
/// repair a lost packet, plus a margin. A late frame raises the play-out delay immediately, at least to the frame's own
/// delay plus the margin, within the bounds. The play-out delay falls by at most 10 ms per second.
#[derive(Clone, Debug)]
pub struct Playout {
    bounds: Bounds,
    delay: Span,
    repair: Span,
    /// The completion time and the delay of each recent frame, in order of completion.
    recent: VecDeque<(Time, Span)>,
    /// The delays of the frames in `recent`, in ascending order.
    sorted: Vec<Span>,
    changed: Time,
}

impl Playout {
    /// Creates a play-out delay, which starts at the shortest delay of `bounds`.
    pub fn new(bounds: Bounds) -> Self {
        let (recent, sorted) = (VecDeque::new(), Vec::new());
        Self { bounds, delay: bounds.least, repair: Span::ZERO, recent, sorted, changed: Time::ZERO }
    }

    /// Returns the current play-out delay.
    pub const fn delay(&self) -> Span {
        self.delay
    }

    /// Sets how long a repair takes. `takes` is the time from the expected arrival of a lost packet to the arrival of
    /// its repair.
    pub fn on_repair_time(&mut self, takes: Span) {
        self.repair = takes;
    }

    /// Records that a frame is complete. `took` is the time since the frame was ready at the sender. `repaired` states
    /// whether a lost packet of the frame was repaired. Returns the new play-out delay if it has changed.
    pub fn on_whole(&mut self, now: Time, took: Span, repaired: bool) -> Option<Span> {
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            if let Some((_, old)) = self.recent.pop_front() {
                let place = self.sorted.partition_point(|one| *one < old);
                self.sorted.remove(place);
            }
        }
        // Leave repaired frames out of the percentile, because the repair time is added below.
        if !repaired {
            self.recent.push_back((now, took));
            let place = self.sorted.partition_point(|one| *one < took);
            self.sorted.insert(place, took);
        }
        let rank = (self.sorted.len() as f64 * PERCENTILE).ceil() as usize;
        let usual = self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(took);
        // Raise the delay for a single late frame. The percentile would react only after several late frames.
        let late = if took > self.delay { took + MARGIN } else { Span::ZERO };
        let wanted = (usual + self.repair + MARGIN).max(late).clamp(self.bounds.least, self.bounds.most);
        let before = self.delay;
        if wanted > self.delay {
            (self.delay, self.changed) = (wanted, now);
        // Decrease the delay slowly, so that playback stays smooth.
        } else if now.since(self.changed) >= DECREASE_INTERVAL {
            (self.delay, self.changed) = (wanted.max(self.delay.saturating_sub(DECREASE_STEP)), now);
        }
        (self.delay != before).then_some(self.delay)
    }
}

/// The play-out delay over time. It determines when frames are displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Each play-out delay, with the time from which it is valid. If the list is empty, each frame is displayed when it
    /// is complete.
    changes: Vec<(Time, Span)>,
}

impl Schedule {
    /// Creates a schedule with a constant delay. With `None`, each frame is displayed when it is complete.
    pub fn fixed(delay: Option<Span>) -> Self {
        Self { changes: delay.map(|delay| (Time::ZERO, delay)).into_iter().collect() }
    }

    /// Sets the delay that is valid from `now` on. `now` must not be earlier than in the previous call.
    pub fn change(&mut self, now: Time, delay: Span) {
        self.changes.push((now, delay));
    }

    /// Returns the delay at the time `at`. Returns `None` if each frame is displayed when it is complete.
    pub fn delay(&self, at: Time) -> Option<Span> {
        self.changes.get(self.place(at)).map(|(_, delay)| *delay)
    }

    /// Returns when a frame is displayed that was ready at `ready`. Returns `None` if it is displayed when it is
    /// complete.
    pub fn due(&self, ready: Time) -> Option<Time> {
        let from = self.place(ready);
        let due = |n: usize, (since, delay): (Time, Span)| {
            // A change of the delay must not set the display time of a frame to a time before the change.
            let due = (ready + delay).max(since);
            self.changes.get(n + 1).is_none_or(|(next, _)| due < *next).then_some(due)
        };
        self.changes.iter().enumerate().skip(from).find_map(|(n, change)| due(n, *change))
    }

    /// Returns the index of the delay that is valid at the time `at`. Before the first change, the first delay is
    /// valid.
    fn place(&self, at: Time) -> usize {
        self.changes.partition_point(|(since, _)| *since <= at).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = ADAPTIVE;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    /// Records a frame every 40 ms from `from` to `to`, in milliseconds. Each frame is complete `took` after it was
    /// ready.
    fn play(playout: &mut Playout, from: u64, to: u64, took: Span) {
        (from..to).step_by(40).for_each(|t| {
            playout.on_whole(ms(t), took, false);
        });
    }

    #[test]
    fn it_is_what_frames_and_repair_take_and_a_margin_within_its_bounds() {
        let mut playout = Playout::new(BOUNDS);
        play(&mut playout, 0, 1_000, Span::millis(20));
        assert_eq!(playout.delay(), Span::millis(80));
        playout.on_repair_time(Span::millis(100));
        assert_eq!(playout.on_whole(ms(1_000), Span::millis(20), false), Some(Span::millis(130)));
        playout.on_repair_time(Span::secs(2));
        assert_eq!(playout.on_whole(ms(1_040), Span::millis(20), false), Some(Span::millis(800)));
    }

    #[test]
    fn it_grows_at_once_for_a_late_frame_and_shrinks_by_ten_milliseconds_a_second() {
        let mut playout = Playout::new(BOUNDS);
        play(&mut playout, 0, 10_000, Span::millis(100));
        assert_eq!(playout.delay(), Span::millis(110));
        assert_eq!(playout.on_whole(ms(10_000), Span::millis(300), false), Some(Span::millis(310)));
        play(&mut playout, 10_040, 20_000, Span::millis(100));
        assert_eq!(playout.delay(), Span::millis(310 - 90));
        play(&mut playout, 20_000, 40_000, Span::millis(100));
        assert_eq!(playout.delay(), Span::millis(110));
    }

    #[test]
    fn one_late_frame_in_fifty_does_not_hold_it_up_but_one_in_ten_does() {
        for (every, stays) in [(50, false), (10, true)] {
            let mut playout = Playout::new(BOUNDS);
            for n in 0..1_500u64 {
                let took = if n % every == 0 && (n < 1_000 || stays) { 300 } else { 100 };
                playout.on_whole(ms(40 * n), Span::millis(took), false);
            }
            assert_eq!(playout.delay() >= Span::millis(300), stays, "{}", playout.delay());
        }
    }

    #[test]
    fn what_was_repaired_makes_it_grow_but_does_not_count_twice() {
        let mut playout = Playout::new(BOUNDS);
        playout.on_repair_time(Span::millis(100));
        for n in 0..1_000u64 {
            let repaired = n % 4 == 0;
            playout.on_whole(ms(40 * n), Span::millis(if repaired { 190 } else { 100 }), repaired);
        }
        assert_eq!(playout.delay(), Span::millis(210));
    }

    #[test]
    fn a_frame_is_due_by_the_delay_that_holds_at_its_time() {
        let mut schedule = Schedule::fixed(Some(Span::millis(100)));
        assert_eq!(schedule.due(ms(1_000)), Some(ms(1_100)));
        schedule.change(ms(1_050), Span::millis(300));
        assert_eq!(schedule.due(ms(900)), Some(ms(1_000)), "shown before the change");
        assert_eq!(schedule.due(ms(950)), Some(ms(1_250)), "the change comes at its time");
        assert_eq!(schedule.due(ms(1_000)), Some(ms(1_300)));
        schedule.change(ms(1_310), Span::millis(200));
        assert_eq!(schedule.due(ms(1_000)), Some(ms(1_300)));
        assert_eq!(schedule.due(ms(1_050)), Some(ms(1_310)), "due at once when the delay shrinks below its age");
        assert_eq!(schedule.due(ms(2_000)), Some(ms(2_200)));
        assert_eq!(
            (schedule.delay(ms(0)), schedule.delay(ms(1_100))),
            (Some(Span::millis(100)), Some(Span::millis(300)))
        );
        assert_eq!(Schedule::fixed(None).due(ms(5)), None);
    }
}
