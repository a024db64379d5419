//! The choice between a few rungs of a stream at its key frames. A rung is one of the stream's encodings, which differ
//! in rate. The source of such a stream is encoded once for many viewers.
//!
//! Three rules avoid a switch at each key frame:
//!
//! - A finer rung is chosen only if its highest rate in the last [`WORST_OVER`] fits the target rate.
//! - The present rung is kept while the backlog is at most [`TOLERATED_BACKLOG`].
//! - After each failed climb to a finer rung, the wait before the next climb to this rung is longer.

use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span};

/// The highest rate of a rung is taken over this length of content.
pub const WORST_OVER: Span = Span::secs(10);

/// The stream keeps its rung if the backlog that remains after a group of pictures can be sent in this time. The
/// pacer's limit is one second, so the next group still has room.
const TOLERATED_BACKLOG: Span = Span::millis(250);

/// Maximum share of the rate that a rung may need if it is the stream's first rung, or if the stream steps down to it.
/// The margin leaves room for larger groups of pictures.
const FITTING_SHARE: f64 = 0.75;

/// Maximum share of the target rate that a finer rung may need for a climb. The need is the rung's highest recent rate.
const CLIMB_SHARE: f64 = 0.8;

/// Maximum share of the rate that a finer rung may need if the stream climbs by several rungs at once. The stream does
/// this only if it has never stepped down.
const JUMP_SHARE: f64 = 0.5;

/// The stream does not climb if the rate is below this share of the rate at the last key frame.
const STEADY_SHARE: f64 = 0.95;

/// The rate no longer carries a rung if it is below this share of the rate that the rung needs.
const CARRYING_SHARE: f64 = 0.9;

/// The rate has collapsed if it is below this share of the highest rate at the last two key frames.
const COLLAPSE_SHARE: f64 = 0.65;

/// Maximum share of the rate that a rung may need after a collapse of the rate. The margin is large because the target
/// rate may still exceed the path's capacity.
const COLLAPSED_FITTING_SHARE: f64 = 0.5;

/// The rest of a group of pictures is not sent if the rate is below this share of the rate that the rung needs. This
/// drains the path's queue.
const ABANDON_SHARE: f64 = 0.9;

/// How long a finer rung must fit before the stream climbs to it. This value applies once the stream has stepped down.
/// [`WAIT_GROWTH`] lengthens the wait after failed climbs.
const FIRST_WAIT: Span = Span::secs(4);

/// How long a finer rung must fit before the stream climbs to it, if the stream has never stepped down.
const START_WAIT: Span = Span::secs(1);

/// The factor by which the wait before a climb grows after each failed climb.
const WAIT_GROWTH: u64 = 8;

/// The longest wait before a climb.
const MAX_WAIT: Span = Span::secs(240);

/// A climb has failed if the stream steps down within this time after the climb.
const TRIAL: Span = Span::secs(120);

/// The largest ratio between the rates of two neighbouring rungs.
const MAX_RATIO: f64 = 3.0;

/// Returns the rates of `count` rungs from `top` to `bottom`, the finest first. The logarithms of the rates are evenly
/// spaced. If the ratio between neighbours would exceed `MAX_RATIO`, only the middle of this range is used.
pub fn spaced_rates(count: usize, top: Rate, bottom: Rate) -> Vec<Rate> {
    let (highest, lowest) = (top.max(bottom).as_bps_f64().max(1.0), bottom.as_bps_f64().max(1.0));
    let steps = count.saturating_sub(1).max(1) as f64;
    let ratio = libm::pow(highest / lowest, 1.0 / steps).min(MAX_RATIO);
    let middle = libm::sqrt(highest * lowest);
    let place = |n: usize| (count.saturating_sub(1) as f64) / 2.0 - n as f64;
    (0..count).map(|n| Rate::from_bps_f64(middle * libm::pow(ratio, place(n)))).collect()
}

/// The rates that a rung needs, including all packet headers (IP, UDP and RTP).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RungNeed {
    /// The rate of the rung's last two groups of pictures, whichever is higher.
    pub recent: Rate,
    /// The highest rate of the rung's groups of pictures in the last [`WORST_OVER`].
    pub worst: Rate,
}

/// The rates of each rung's recent groups of pictures. All viewers of a source share them.
#[derive(Clone, Debug, Default)]
pub struct RungHistory {
    groups: VecDeque<(Span, Vec<Rate>)>,
}

impl RungHistory {
    /// Adds a group of pictures that ended at `at`. `rates` has the rate of each rung.
    pub fn push(&mut self, at: Span, rates: Vec<Rate>) {
        self.groups.retain(|(ended, each)| *ended + WORST_OVER >= at && each.len() == rates.len());
        self.groups.push_back((at, rates));
    }

    /// Removes the finest rung from the history.
    pub fn remove_finest(&mut self) {
        for (_, rates) in self.groups.iter_mut().filter(|(_, rates)| !rates.is_empty()) {
            rates.remove(0);
        }
    }

    /// Adds a rung that is finer than the others. `target` is used as its rate until the rung has been measured.
    pub fn add_finest(&mut self, target: Rate) {
        for (_, rates) in &mut self.groups {
            rates.insert(0, target);
        }
    }

    /// Returns what each rung needs. Returns an empty list before the first group of pictures.
    pub fn needs(&self) -> Vec<RungNeed> {
        let rungs = self.groups.back().map_or(0, |(_, rates)| rates.len());
        let highest = |rung: usize, groups: usize| {
            let rates = self.groups.iter().rev().take(groups).filter_map(|(_, rates)| rates.get(rung).copied());
            rates.max().unwrap_or(Rate::ZERO)
        };
        (0..rungs).map(|rung| RungNeed { recent: highest(rung, 2), worst: highest(rung, usize::MAX) }).collect()
    }
}

/// The state of a stream at a key frame.
#[derive(Clone, Copy, Debug)]
pub struct RungContext<'a> {
    /// When the key frame is due.
    pub at: Span,
    /// The stream's present rung, as an index into `needs`. `None` at the start and after a pause.
    pub rung: Option<usize>,
    /// What each rung needs. The list begins with the finest rung.
    pub needs: &'a [RungNeed],
    /// The duration of a group of pictures.
    pub lasts: Span,
    /// The target rate.
    pub rate: Rate,
    /// The number of bytes in the pacer.
    pub backlog: Bytes,
}

/// The reason why a stream has its present rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RungReason {
    /// This is the stream's first rung since its start or since a pause. It was the finest rung that fitted the rate.
    #[default]
    First,
    /// The next finer rung does not fit the rate, or this is the finest rung.
    Kept,
    /// The next finer rung fits the rate, but has not fitted for long enough.
    Waits,
    /// The stream climbed to this rung, because it had fitted the rate for long enough.
    Climbed,
    /// The stream stepped down to this rung, because the finer rung would have left too large a backlog in the pacer.
    Backlog,
    /// The stream stepped down to this rung, because the rate no longer carried the finer rung.
    RateFell,
}

impl RungReason {
    /// Returns the name of the reason in status messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Kept => "kept",
            Self::Waits => "waits",
            Self::Climbed => "climbed",
            Self::Backlog => "backlog",
            Self::RateFell => "rate-fell",
        }
    }
}

/// A switching rule. At each key frame, it chooses one of the encodings (rungs) of the stream.
pub trait SwitchingRule: Send {
    /// Returns the rung for the group of pictures that begins, as an index into `context.needs`.
    fn choose(&mut self, context: &RungContext<'_>) -> usize;
}

/// Creates the switching rules for the streams of a flow.
pub trait SwitchingFactory: Send + Sync {
    /// Creates the switching rule for one stream.
    fn rule(&self) -> Box<dyn SwitchingRule>;
}

/// The name of the built-in rule, which is [`RungChooser`].
pub const BUILT_IN_SWITCHING: &str = "hysteresis";

/// The built-in switching rule.
#[derive(Clone, Debug, Default)]
pub struct RungChooser {
    reason: RungReason,
    /// When the next finer rung began to fit the rate.
    fits_since: Option<Span>,
    /// The rates at the last two key frames. The latest rate comes first.
    last_rates: [Rate; 2],
    /// The last climb to each rung, by the index of the rung.
    climbs: Vec<Climb>,
    /// Whether the stream has ever stepped down.
    has_fallen: bool,
}

/// The stream's climbs to a rung. `last` is the time of the last climb. `wait` is how long the rung must fit the rate
/// before the next climb.
#[derive(Clone, Copy, Debug)]
struct Climb {
    last: Option<Span>,
    wait: Span,
}

/// Returns whether to skip the rest of the present group of pictures. This is the case if the rate is below
/// `ABANDON_SHARE` of the rate that the rung needs, and if there is a coarser rung.
pub fn abandons_group(rung: Option<usize>, needs: &[RungNeed], rate: Rate) -> bool {
    let coarser = |rung: &usize| rung + 1 < needs.len();
    let need = rung.filter(coarser).and_then(|rung| needs.get(rung));
    need.is_some_and(|need| rate < need.recent.scale(ABANDON_SHARE))
}

impl SwitchingRule for RungChooser {
    fn choose(&mut self, context: &RungContext<'_>) -> usize {
        if context.rung.is_none() {
            *self = Self::default();
        }
        let RungContext { at, needs, rate, backlog, .. } = *context;
        let [last_rate, earlier] = self.last_rates;
        self.last_rates = [rate, last_rate];
        let last = needs.len().saturating_sub(1);
        let whole = rate.over(context.lasts);
        // The rate that remains for the group if the backlog is sent within the group's duration. It is at least half
        // of the target rate.
        let room = whole.saturating_sub(backlog).max(Bytes::new(whole.get() / 2)).per(context.lasts);
        let need = |rung: usize| needs.get(rung).copied().unwrap_or_default();
        let fitting = |share: f64| (0..=last).find(|rung| need(*rung).recent <= room.scale(share)).unwrap_or(last);
        let Some(rung) = context.rung.map(|rung| rung.min(last)) else { return fitting(FITTING_SHARE) };
        let recent = need(rung).recent;
        let left = (backlog + recent.over(context.lasts)).saturating_sub(whole);
        let highest = last_rate.max(earlier);
        let collapsed = rate < highest.scale(COLLAPSE_SHARE) && recent > rate.scale(COLLAPSED_FITTING_SHARE);
        let has_failed = self.is_on_trial(at, rung);
        let (chosen, reason) = if rung < last && (collapsed || rate < recent.scale(CARRYING_SHARE)) {
            // After a failed climb, use the usual margin even if the rate has collapsed, because the path carried the
            // coarser rung before the climb.
            let share = if collapsed && !has_failed { COLLAPSED_FITTING_SHARE } else { FITTING_SHARE };
            let to = fitting(share).max(rung + 1);
            self.step_down(at, rung, to);
            (to, RungReason::RateFell)
        } else if rung < last && left > rate.over(TOLERATED_BACKLOG) {
            // After a failed climb, step down only one rung, because the climb itself caused the backlog.
            let to = if has_failed { rung + 1 } else { fitting(FITTING_SHARE).max(rung + 1) };
            self.step_down(at, rung, to);
            (to, RungReason::Backlog)
        } else if rung > 0 && need(rung - 1).worst <= room.scale(CLIMB_SHARE) {
            let finest = (0..rung).find(|rung| need(*rung).worst <= room.scale(JUMP_SHARE)).unwrap_or(rung - 1);
            self.climb(at, rung, finest, rate < last_rate.scale(STEADY_SHARE))
        } else {
            self.fits_since = None;
            (rung, RungReason::Kept)
        };
        // Store the reason if the rung changes or a wait begins or ends. Otherwise, the reason of the last change
        // stays.
        if chosen != rung || matches!(reason, RungReason::Waits) || matches!(self.reason, RungReason::Waits) {
            self.reason = reason;
        }
        chosen
    }
}

impl RungChooser {
    /// Returns why the present rung was chosen.
    pub const fn reason(&self) -> RungReason {
        self.reason
    }

    /// Informs the rule that the finest rung was removed from the stream.
    pub fn remove_finest(&mut self) {
        self.fits_since = None;
        if !self.climbs.is_empty() {
            self.climbs.remove(0);
        }
    }

    /// Informs the rule that a rung was added that is finer than the others.
    pub fn add_finest(&mut self) {
        self.fits_since = None;
        if !self.climbs.is_empty() {
            self.climbs.insert(0, Climb { last: None, wait: FIRST_WAIT });
        }
    }

    fn climb_to(&mut self, rung: usize) -> &mut Climb {
        if self.climbs.len() <= rung {
            self.climbs.resize(rung + 1, Climb { last: None, wait: FIRST_WAIT });
        }
        &mut self.climbs[rung]
    }

    /// Returns whether the last climb to a rung was so recent that a step down means that the climb failed.
    fn is_on_trial(&self, at: Span, rung: usize) -> bool {
        let last = self.climbs.get(rung).and_then(|climb| climb.last);
        last.is_some_and(|last| at.saturating_sub(last) < TRIAL)
    }

    /// Records that the stream steps down from `rung` to `to`. For each rung that it leaves, sets the wait before the
    /// next climb to that rung. The wait becomes longer if the last climb to the rung has failed. Otherwise, it becomes
    /// [`FIRST_WAIT`] again.
    fn step_down(&mut self, at: Span, rung: usize, to: usize) {
        (self.fits_since, self.has_fallen) = (None, true);
        // Forget the rate before the collapse. Otherwise, the same collapse would be found again at the next key frame.
        self.last_rates[1] = Rate::ZERO;
        for rung in rung..to {
            let has_failed = self.is_on_trial(at, rung);
            let climb = self.climb_to(rung);
            climb.last = None;
            climb.wait = if has_failed { (climb.wait * WAIT_GROWTH).min(MAX_WAIT) } else { FIRST_WAIT };
        }
    }

    /// Climbs by one rung if the finer rung has fitted for long enough. If the stream has never stepped down, climbs to
    /// `finest`. Does not climb while the target rate falls, because the target may then exceed the path's capacity.
    fn climb(&mut self, at: Span, rung: usize, finest: usize, falls: bool) -> (usize, RungReason) {
        let since = *self.fits_since.get_or_insert(at);
        let starts = !self.has_fallen;
        let climb = self.climb_to(rung - 1);
        if falls || at.saturating_sub(since) < if starts { START_WAIT } else { climb.wait } {
            return (rung, RungReason::Waits);
        }
        let to = if starts { finest } else { rung - 1 };
        for climbed in to..rung {
            self.climb_to(climbed).last = Some(at);
        }
        self.fits_since = None;
        (to, RungReason::Climbed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadycast_units::{Chance, Seed};

    const GROUP: Span = Span::millis(480);

    /// Simulates the rule for `secs` seconds. `rungs` has the mean rates of the rungs in kb/s, and `spread` is the
    /// relative variation between groups. `path` returns the rate of the path in kb/s at each second. A controller's
    /// target is a third above the rate that the stream uses, at least 30 % of the path's rate, and at most the path's
    /// rate. Returns the times in seconds at which the rung changed, with the new rungs.
    fn driven(
        rungs: &[u64],
        spread: f64,
        secs: u64,
        chance: &mut Chance,
        path: impl Fn(u64) -> u64,
    ) -> Vec<(u64, usize)> {
        let (mut chooser, mut found, mut backlog, mut used) = (RungChooser::default(), Vec::new(), 0.0f64, 0.0);
        let (mut history, mut chosen) = (RungHistory::default(), None);
        for n in 0..secs * 1_000 / 480 {
            let (at, content) = (GROUP * n, 1.0 + spread * (chance.unit() - 0.5));
            let sizes: Vec<f64> = rungs.iter().map(|kbps| *kbps as f64 * content * 60.0).collect();
            let path = path(at.as_nanos() / 1_000_000_000) as f64;
            let target = path.min((used * 4.0 / 3.0f64).max(0.3 * path));
            history.push(at, sizes.iter().map(|size| Bytes::new(*size as u64).per(GROUP)).collect());
            let context = RungContext {
                at,
                rung: chosen,
                needs: &history.needs(),
                lasts: GROUP,
                rate: Rate::from_bps_f64(target * 1e3),
                backlog: Bytes::new(backlog as u64),
            };
            let rung = *chosen.insert(chooser.choose(&context));
            if found.last().is_none_or(|(_, before)| *before != rung) {
                found.push((at.as_nanos() / 1_000_000_000, rung));
            }
            used = rungs[rung] as f64 * content;
            backlog = (backlog + sizes[rung] - target * 60.0).max(0.0);
        }
        found
    }

    #[test]
    fn a_finest_rung_that_leaves_and_returns_does_not_move_the_stream() {
        let (mut chooser, mut history, mut rung) = (RungChooser::default(), RungHistory::default(), None);
        let rates: Vec<Rate> = [4_000, 2_000, 1_000, 500].map(Rate::kbps).into();
        history.push(GROUP, rates.clone());
        let choose = |at: u64, rung: &mut Option<usize>, chooser: &mut RungChooser, history: &RungHistory| {
            let needs = history.needs();
            let (at, rate, backlog) = (GROUP * at, Rate::kbps(1_500), Bytes::ZERO);
            let context = RungContext { at, rung: *rung, needs: &needs, lasts: GROUP, rate, backlog };
            needs[*rung.insert(chooser.choose(&context))].recent
        };
        assert_eq!(choose(1, &mut rung, &mut chooser, &history), Rate::kbps(1_000));
        for n in 0..3 {
            history.remove_finest();
            chooser.remove_finest();
            rung = rung.map(|rung| rung - 1);
            assert_eq!(history.needs().len(), 3);
            assert_eq!(choose(2 + 2 * n, &mut rung, &mut chooser, &history), Rate::kbps(1_000));
            history.add_finest(rates[0]);
            chooser.add_finest();
            rung = rung.map(|rung| rung + 1);
            assert_eq!(choose(3 + 2 * n, &mut rung, &mut chooser, &history), Rate::kbps(1_000));
            // Until the finest rung has been measured, its target rate is used as its rate.
            assert_eq!(history.needs()[0], RungNeed { recent: rates[0], worst: rates[0] });
        }
    }

    #[test]
    fn rungs_span_the_range_or_lie_around_its_middle() {
        let kbps = |count| {
            let rates = spaced_rates(count, Rate::mbps(8), Rate::kbps(100));
            rates.into_iter().map(|rate| rate.as_bps() / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(kbps(1), [894]);
        assert_eq!(kbps(2), [1_549, 516]);
        let eight = kbps(8);
        assert_eq!((eight.len(), eight[0], eight[7]), (8, 8_000, 100));
        assert!(eight.windows(2).all(|pair| (1.8..1.95).contains(&(pair[0] as f64 / pair[1] as f64))), "{eight:?}");
    }

    proptest! {
        #[test]
        fn at_rest_the_rung_changes_once_a_minute_at_most(
            top in 400u64..6_000,
            ratio in 1.5f64..2.5,
            spread in 0.0f64..0.4,
            kbps in 150u64..8_000,
            seed in 0u64..1_000,
        ) {
            let rungs: Vec<u64> = (0..4).map(|n| (top as f64 / libm::pow(ratio, f64::from(n))) as u64).collect();
            let found = driven(&rungs, spread, 660, &mut Seed(seed).part("rungs"), |_| kbps);
            let at_rest = found.iter().filter(|(at, _)| *at >= 60).count();
            prop_assert!(at_rest <= 10, "{:?} at {}: {:?}", rungs, kbps, found);
        }

        #[test]
        fn a_rate_that_falls_leaves_a_rung_that_it_does_not_carry_within_three_groups(
            kbps in 400u64..4_000,
            part in 0.15f64..0.5,
            seed in 0u64..1_000,
        ) {
            let rungs: Vec<u64> = (0..6).map(|n| kbps * 9 / 10 / (1 << n)).collect();
            let less = (kbps as f64 * part) as u64;
            let path = |at: u64| if at < 60 { kbps } else { less };
            let found = driven(&rungs, 0.1, 62, &mut Seed(seed).part("rungs"), path);
            let (_, rung) = found[found.len() - 1];
            // A rung is kept while the rate is at least `CARRYING_SHARE` of the rate that the rung needs. The tolerance
            // is larger because groups differ by a twentieth.
            prop_assert!(rungs[rung] * 17 <= less * 20, "{:?} at {}: {:?}", rungs, less, found);
        }
    }
}
