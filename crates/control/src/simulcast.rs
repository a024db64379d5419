//! A receiver's choice of a simulcast group. The groups carry the same video at different rates.
//!
//! Each group is a session with its own controller. The rate of a group is its send rate, but at least its floor. The
//! sender announces the rates of all groups ([`rates_body`]). A receiver computes its own rate, which is the rate that
//! it can accept ([`acceptable`]).
//!
//! ```text
//!  move  condition                            must last      new group
//!  down  own rate < group's floor / 2         0 s            the highest one whose rate is at most the own rate
//!  down  own rate < group's floor             2 s            the highest one whose rate is at most the own rate
//!  up    own rate ≥ 1.2 × next group's rate   10 s (hold)    the next one
//! ```
//!
//! The factor 1.2 and the hold time of 10 s are defaults. The 2 s are a fifth of the hold time. The second rule waits
//! because the own rate dips after each loss.
//!
//! A move up is a test. The test has failed if the receiver moves down again within four times the hold time that
//! preceded the test. The hold time before the next test is then doubled (RLM: McCanne, Jacobson, Vetterli, SIGCOMM
//! 1996).
//!
//! [`acceptable`]: crate::ReceiverHalf::acceptable

use crate::Body;
use steadycast_units::{Rate, Span, Time};

/// The name of the APP packet that announces the rates.
pub const APP: [u8; 4] = *b"SIMC";

/// The maximum number of groups.
pub const MOST_GROUPS: usize = 8;

/// Maximum number of times that the hold time is doubled. The default of 10 s becomes 320 s.
const DOUBLINGS: u32 = 5;

/// A test has succeeded if the receiver stays in the new group for this number of hold times.
const LASTING: u64 = 4;

/// Encodes an announcement. It contains `place`, which is the index of the sender's group. The rates of all groups
/// follow in bit/s (32 bits), lowest group first. The rate of a group that is not sent is 0.
pub fn rates_body(place: usize, rates: impl Iterator<Item = Rate>) -> Body {
    Body::of_words(place as u8 & 31, rates.map(|rate| rate.as_bps().min(u64::from(u32::MAX)) as u32))
}

/// Decodes the rates in an announcement. Returns `None` if the announcement is invalid.
pub fn read_rates(data: &[u8]) -> Option<Vec<Rate>> {
    let (words, rest) = data.as_chunks::<4>();
    let whole = rest.is_empty() && (1..=MOST_GROUPS).contains(&words.len());
    whole.then(|| words.iter().map(|word| Rate::bps(u64::from(u32::from_be_bytes(*word)))).collect())
}

/// A move from one group to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The time of the move.
    pub at: Time,
    /// Index of the old group. The lowest group has index 0.
    pub from: usize,
    /// Index of the new group.
    pub to: usize,
    /// The rate that the receiver can accept.
    pub own: Rate,
    /// The rate to which `own` was compared. For a move down, it is the floor of the old group. For a move up, it is
    /// the rate of the next group.
    pub against: Rate,
}

impl Move {
    /// Returns the reason of the move.
    pub const fn why(&self) -> &'static str {
        if self.to < self.from { "below the group's floor" } else { "enough for the next group all through the hold" }
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    floor: Rate,
    /// The announced send rate.
    sent: Rate,
    /// Number of consecutive failed tests.
    failed: u32,
}

impl Group {
    fn asks(&self) -> Rate {
        self.sent.max(self.floor)
    }
}

/// Selects the group of one receiver.
#[derive(Clone, Debug)]
pub struct Chooser {
    groups: Vec<Group>,
    up: f64,
    hold: Span,
    place: usize,
    entered: Time,
    told: bool,
    /// Since when the receiver's rate has sufficed for the next higher group. `None` if it does not suffice.
    enough: Option<Time>,
    /// Since when the receiver's rate has been below the floor of its group. `None` if it is not below.
    short: Option<Time>,
}

impl Chooser {
    /// Creates the group selection of a receiver that joins the lowest group at `now`. `floors` are the minimum rates
    /// of the groups, lowest first. The receiver moves up once its rate has been at least `up` times the next group's
    /// rate for the time `hold`.
    pub fn new(floors: impl Iterator<Item = Rate>, up: f64, hold: Span, now: Time) -> Self {
        let groups = floors.map(|floor| Group { floor, sent: Rate::ZERO, failed: 0 }).collect();
        Self { groups, up, hold, place: 0, entered: now, told: false, enough: None, short: None }
    }

    /// Returns the index of the receiver's group, counted from the lowest.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Updates the rates of the groups. Ignores an announcement that does not have exactly one rate per group.
    pub fn on_told(&mut self, rates: &[Rate]) {
        if rates.len() == self.groups.len() {
            self.groups.iter_mut().zip(rates).for_each(|(group, rate)| group.sent = *rate);
            self.told = true;
        }
    }

    /// Decides whether the receiver moves to another group, and returns the move. The move is already applied. `own` is
    /// the rate that the receiver can accept.
    pub fn look(&mut self, now: Time, own: Option<Rate>) -> Option<Move> {
        let Some(own) = own else {
            (self.enough, self.short) = (None, None);
            return None;
        };
        let floor = self.groups.get(self.place)?.floor;
        if self.place > 0 && own < floor {
            self.enough = None;
            let since = *self.short.get_or_insert(now);
            // Move straight to the group that fits, because moving down one group at a time would take several hold
            // times.
            let to = (1..self.place).rev().find(|n| self.groups[*n].asks() <= own).unwrap_or(0);
            let goes = own < floor.scale(0.5) || now.since(since) >= self.hold / 5;
            return goes.then(|| self.go(now, to, own, floor));
        }
        self.short = None;
        let next = self.groups.get(self.place + 1)?;
        let (asks, hold) = (next.asks(), self.hold * (1 << next.failed));
        if !self.told || own < asks.scale(self.up) {
            self.enough = None;
            return None;
        }
        let since = *self.enough.get_or_insert(now);
        (now.since(since) >= hold).then(|| self.go(now, self.place + 1, own, asks))
    }

    fn go(&mut self, now: Time, to: usize, own: Rate, against: Rate) -> Move {
        let from = self.place;
        if to < from {
            let group = &mut self.groups[from];
            // A move up to a group is a test. The test has failed if the receiver leaves the group soon.
            let lasted = now.since(self.entered) >= self.hold * (LASTING << group.failed);
            group.failed = if lasted { 0 } else { (group.failed + 1).min(DOUBLINGS) };
        }
        (self.place, self.entered, self.enough, self.short) = (to, now, None, None);
        Move { at: now, from, to, own, against }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOLD: Span = Span::secs(10);

    fn kbps(rates: &[u64]) -> Vec<Rate> {
        rates.iter().map(|r| Rate::kbps(*r)).collect()
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    /// Creates three groups with floors of 100, 500 and 1000 kb/s. Only the lowest group is sent, at 400 kb/s.
    fn chooser() -> Chooser {
        let mut chooser = Chooser::new(kbps(&[100, 500, 1000]).into_iter(), 1.2, HOLD, Time::ZERO);
        chooser.on_told(&kbps(&[400, 0, 0]));
        chooser
    }

    /// Calls `look` every 100 ms. `own` returns the receiver's rate in kb/s. Returns all moves.
    fn over(chooser: &mut Chooser, from_s: u64, to_s: u64, own: impl Fn(&Chooser) -> u64) -> Vec<Move> {
        let ticks = (from_s * 10..to_s * 10).map(|tick| at(tick * 100));
        ticks.filter_map(|now| chooser.look(now, Some(Rate::kbps(own(chooser))))).collect()
    }

    #[test]
    fn up_goes_who_has_a_fifth_more_than_the_next_group_asks_for_ten_seconds() {
        for (own, moves) in [(599, 0), (600, 1)] {
            let mut chooser = chooser();
            assert_eq!(over(&mut chooser, 0, 10, |_| own).len(), 0, "not before the hold is over");
            let told = over(&mut chooser, 10, 11, |_| own);
            assert_eq!(told.len(), moves, "{own} kb/s");
            assert!(told.iter().all(|m| (m.from, m.to, m.against) == (0, 1, Rate::kbps(500))));
        }
    }

    #[test]
    fn a_moment_without_enough_begins_the_hold_again() {
        let mut chooser = chooser();
        assert!(over(&mut chooser, 0, 9, |_| 700).is_empty());
        assert_eq!(chooser.look(at(9_000), Some(Rate::kbps(550))), None);
        assert!(over(&mut chooser, 10, 20, |_| 700).is_empty());
        assert_eq!(over(&mut chooser, 20, 21, |_| 700).len(), 1);
    }

    #[test]
    fn a_group_that_is_sent_asks_its_rate_and_not_its_floor() {
        let mut chooser = chooser();
        chooser.on_told(&kbps(&[400, 900, 0]));
        assert!(over(&mut chooser, 0, 60, |_| 1_070).is_empty());
        assert_eq!(over(&mut chooser, 60, 75, |_| 1_080).len(), 1);
    }

    #[test]
    fn down_goes_as_far_as_it_must_at_once_from_half_the_floor_and_soon_from_less_than_it() {
        for (own, to, after) in [(450, 0, 0), (600, 0, 2_000), (800, 1, 2_000)] {
            let mut chooser = chooser();
            over(&mut chooser, 0, 25, |_| 5_000);
            assert_eq!(chooser.place(), 2);
            chooser.on_told(&kbps(&[400, 700, 1_000]));
            let told: Vec<Move> =
                (25_000..28_000).filter_map(|ms| chooser.look(at(ms), Some(Rate::kbps(own)))).take(1).collect();
            let moves: Vec<_> = told.iter().map(|m| (m.at, m.from, m.to, m.against)).collect();
            assert_eq!(moves, [(at(25_000 + after), 2, to, Rate::kbps(1_000))], "{own} kb/s");
        }
    }

    #[test]
    fn a_dip_below_the_floor_that_ends_is_forgiven() {
        let mut chooser = chooser();
        over(&mut chooser, 0, 25, |_| 5_000);
        for second in 25..60 {
            assert!(over(&mut chooser, second, second + 1, |_| if second % 2 == 0 { 900 } else { 1_000 }).is_empty());
        }
    }

    #[test]
    fn nobody_leaves_the_lowest_group_or_moves_without_knowing_its_rate() {
        let mut chooser = chooser();
        assert!(over(&mut chooser, 0, 60, |_| 1).is_empty());
        assert!((0..600).all(|n| chooser.look(at(60_000 + n * 100), None).is_none()));
        let mut untold = Chooser::new(kbps(&[100, 500]).into_iter(), 1.2, HOLD, Time::ZERO);
        assert!(over(&mut untold, 0, 60, |_| 5_000).is_empty());
    }

    #[test]
    fn tests_that_fail_come_ever_more_seldom() {
        // The lowest group has no loss, but the rate does not suffice for the next group.
        let mut chooser = chooser();
        let moves = over(&mut chooser, 0, 300, |c| if c.place() == 0 { 5_000 } else { 450 });
        let ups: Vec<u64> = moves.iter().filter(|m| m.to == 1).map(|m| m.at.as_nanos() / 1_000_000_000).collect();
        assert_eq!(ups, [10, 32, 74, 156]);
    }

    #[test]
    fn a_stay_that_lasted_lets_the_next_test_come_as_soon_as_the_first() {
        let mut chooser = chooser();
        over(&mut chooser, 0, 30, |c| if c.place() == 0 { 550 * 2 } else { 450 });
        assert_eq!(chooser.groups[1].failed, 1);
        over(&mut chooser, 30, 120, |_| 1_100);
        assert_eq!(chooser.place(), 1);
        over(&mut chooser, 120, 123, |_| 450);
        assert_eq!((chooser.place(), chooser.groups[1].failed), (0, 0));
    }

    #[test]
    fn rates_come_back_as_they_were_told_and_nonsense_as_nothing() {
        let rates = kbps(&[250, 0, 4_000]);
        let body = rates_body(1, rates.iter().copied());
        assert_eq!((body.subtype, body.bytes.len(), read_rates(&body.bytes)), (1, 12, Some(rates)));
        for bad in [&[][..], &[1, 2, 3], &[0; 5], &[0; 4 * MOST_GROUPS + 4]] {
            assert_eq!(read_rates(bad), None);
        }
        assert_eq!(
            read_rates(&rates_body(0, [Rate::MAX].into_iter()).bytes),
            Some(vec![Rate::bps(u64::from(u32::MAX))])
        );
    }

    proptest! {
        #[test]
        fn whatever_it_is_told_it_moves_by_its_rule(
            steps in prop::collection::vec(
                (0u64..4_000, prop::option::of(0u64..3_000), prop::collection::vec(0u64..3_000, 0..5)),
                1..300,
            )
        ) {
            let floors = kbps(&[100, 500, 1000]);
            let mut chooser = Chooser::new(floors.iter().copied(), 1.2, HOLD, Time::ZERO);
            let (mut ms, mut last, mut place) = (0, 0, 0);
            for (later, own, rates) in steps {
                ms += later;
                chooser.on_told(&kbps(&rates));
                let own = own.map(Rate::kbps);
                if let Some(told) = chooser.look(at(ms), own) {
                    prop_assert_eq!((told.from, Some(told.own)), (place, own));
                    prop_assert!(told.to < floors.len() && told.to != told.from);
                    if told.to > told.from {
                        prop_assert!(told.to == told.from + 1 && ms - last >= 10_000);
                        prop_assert!(told.own >= told.against.scale(1.2) && told.against >= floors[told.to]);
                    } else {
                        prop_assert!(told.own < floors[told.from]);
                    }
                    (last, place) = (ms, told.to);
                }
                prop_assert_eq!(chooser.place(), place);
                prop_assert!(own.is_none_or(|own| place == 0 || own >= floors[place].scale(0.5) || last == ms));
            }
        }
    }
}
