//! What happens next: two 4-ary heaps of packed keys.
//!
//! Packets in flight have one of their own. There are few keys in it, and nearly every event moves one; agents' are many, and mostly wait.

use std::cmp::Ordering;
use steadycast_units::Time;

/// What a key in the agenda is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The first packet in flight in this lane arrives.
    Lane(u32),
    /// This agent wants to be woken.
    Agent(u32),
    /// This entry of the scenario's own plan: an event, a graft, a prune.
    Plan(u32),
    /// Copies of one packet arrive on many links at once.
    Fan(u32),
}

/// When something is due, and what: time (56 bits: 834 days) · turn (40 bits) · kind and index (32 bits). The turn is the order among
/// equal times: who was scheduled first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// After all others.
    const LAST: Self = Self { high: u64::MAX, low: u64::MAX };

    fn new(at: Time, turn: u64, due: Due) -> Self {
        let (kind, index) = match due {
            Due::Lane(i) => (0, i),
            Due::Agent(i) => (1, i),
            Due::Plan(i) => (2, i),
            Due::Fan(i) => (3, i),
        };
        debug_assert!(index < 1 << 30 && turn < 1 << 40);
        let at = at.as_nanos().min((1 << 56) - 1);
        Self { high: at << 8 | turn >> 32, low: turn << 32 | u64::from(kind << 30 | index) }
    }

    pub(crate) const fn at(self) -> Time {
        Time::from_nanos(self.high >> 8)
    }

    const fn due(self) -> Due {
        let index = self.low as u32 & ((1 << 30) - 1);
        match self.low as u32 >> 30 {
            0 => Due::Lane(index),
            1 => Due::Agent(index),
            2 => Due::Plan(index),
            _ => Due::Fan(index),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // As one number: two instructions and no branch.
        let whole = |key: &Self| u128::from(key.high) << 64 | u128::from(key.low);
        whole(self).cmp(&whole(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
pub(crate) struct Agenda {
    /// Of lanes and fans.
    flights: Heap,
    /// Of agents and plans.
    rest: Heap,
    turns: u64,
}

impl Agenda {
    /// A key to be put in, now or later; among equal times those made first come first.
    #[inline]
    pub(crate) fn key(&mut self, at: Time, due: Due) -> Key {
        self.turns += 1;
        Key::new(at, self.turns, due)
    }

    /// Puts in a key of an agent or a plan.
    #[inline]
    pub(crate) fn put(&mut self, key: Key) {
        debug_assert!(matches!(key.due(), Due::Agent(_) | Due::Plan(_)));
        self.rest.put(key);
    }

    /// Puts in a key of a lane or a fan.
    #[inline]
    pub(crate) fn put_flight(&mut self, key: Key) {
        debug_assert!(matches!(key.due(), Due::Lane(_) | Due::Fan(_)));
        self.flights.put(key);
    }

    /// Takes the next key, if it is due up to and including `until`.
    #[inline]
    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, Due)> {
        let (flight, other) = (self.flights.first(), self.rest.first());
        let first = flight.min(other);
        if first.at() > until || first == Key::LAST {
            return None;
        }
        if flight < other {
            self.flights.taken = true;
        } else {
            self.rest.taken = true;
        }
        Some((first.at(), first.due()))
    }
}

#[derive(Default)]
struct Heap {
    /// The keys, and behind them such as come after all others, so that every family of four is whole.
    keys: Vec<Key>,
    len: usize,
    /// The first key has been handed out. Whatever is put in next takes its place: half the work of taking one away and putting
    /// one in, and most events put in another.
    taken: bool,
}

impl Heap {
    #[inline]
    fn put(&mut self, key: Key) {
        if std::mem::take(&mut self.taken) {
            self.sink(key);
        } else {
            self.push(key);
        }
    }

    /// The first key that has not been handed out.
    #[inline]
    fn first(&mut self) -> Key {
        if std::mem::take(&mut self.taken) {
            self.pop();
        }
        self.keys.first().copied().unwrap_or(Key::LAST)
    }

    /// Puts a key in the first one's place.
    #[inline]
    fn sink(&mut self, key: Key) {
        let mut hole = 0;
        loop {
            let first = 4 * hole + 1;
            let Some(&[a, b, c, d]) = self.keys.get(first..).and_then(<[Key]>::first_chunk) else { break };
            let (ab, i) = if b < a { (b, first + 1) } else { (a, first) };
            let (cd, j) = if d < c { (d, first + 3) } else { (c, first + 2) };
            let (least, child) = if cd < ab { (cd, j) } else { (ab, i) };
            if key <= least {
                break;
            }
            self.keys[hole] = least;
            hole = child;
        }
        self.keys[hole] = key;
    }

    fn push(&mut self, key: Key) {
        let mut hole = self.len;
        self.len += 1;
        if self.keys.len() < self.len + 3 {
            self.keys.resize(2 * self.len + 3, Key::LAST);
        }
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[hole] = self.keys[parent];
            hole = parent;
        }
        self.keys[hole] = key;
    }

    #[inline(never)]
    fn pop(&mut self) {
        self.len -= 1;
        let last = std::mem::replace(&mut self.keys[self.len], Key::LAST);
        if self.len > 0 {
            self.sink(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadycast_units::Span;

    fn put(agenda: &mut Agenda, at: Time, due: Due) {
        let key = agenda.key(at, due);
        match due {
            Due::Lane(_) | Due::Fan(_) => agenda.put_flight(key),
            Due::Agent(_) | Due::Plan(_) => agenda.put(key),
        }
    }

    proptest! {
        #[test]
        fn keys_come_in_the_order_of_time_then_of_making(steps in prop::collection::vec((0u64..50, 0u64..40, any::<bool>()), 1..200)) {
            let mut agenda = Agenda::default();
            let (mut waiting, mut now) = (Vec::new(), 0);
            let due = |n: u32, flight| if flight { Due::Lane(n) } else { Due::Agent(n) };
            for (n, (later, until, flight)) in steps.into_iter().enumerate() {
                put(&mut agenda, Time::from_nanos(now + later), due(n as u32, flight));
                waiting.push((now + later, n as u32, flight));
                if n % 3 == 2 {
                    let until = now + until / 8;
                    let first = waiting.iter().min().copied().filter(|(at, ..)| *at <= until);
                    waiting.retain(|key| Some(*key) != first);
                    let told = agenda.take(Time::from_nanos(until));
                    prop_assert_eq!(told, first.map(|(at, n, flight)| (Time::from_nanos(at), due(n, flight))));
                    now = first.map_or(now, |(at, ..)| at);
                }
            }
            waiting.sort_unstable();
            let rest: Vec<_> = std::iter::from_fn(|| agenda.take(Time::NEVER)).collect();
            let left = waiting.into_iter().map(|(at, n, flight)| (Time::from_nanos(at), due(n, flight)));
            prop_assert_eq!(rest, left.collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_times_come_in_the_order_in_which_they_were_put() {
        let mut agenda = Agenda::default();
        let at = Time::ZERO + Span::secs(1);
        for due in [Due::Agent(7), Due::Lane(3), Due::Plan(1)] {
            put(&mut agenda, at, due);
        }
        put(&mut agenda, Time::ZERO, Due::Lane(9));
        let mut order = Vec::new();
        while let Some((_, due)) = agenda.take(Time::NEVER) {
            order.push(due);
        }
        assert_eq!(order, [Due::Lane(9), Due::Agent(7), Due::Lane(3), Due::Plan(1)]);
        assert_eq!(agenda.take(Time::NEVER), None);
    }

    #[test]
    fn what_is_put_in_while_one_is_taken_comes_in_its_order() {
        let mut agenda = Agenda::default();
        let at = |s| Time::ZERO + Span::secs(s);
        for s in [5, 1, 3] {
            put(&mut agenda, at(s), Due::Agent(s as u32));
        }
        assert_eq!(agenda.take(at(0)), None);
        assert_eq!(agenda.take(at(2)), Some((at(1), Due::Agent(1))));
        put(&mut agenda, at(4), Due::Lane(4));
        put(&mut agenda, at(2), Due::Lane(2));
        let rest = std::iter::from_fn(|| agenda.take(Time::NEVER)).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(rest, [at(2), at(3), at(4), at(5)]);
    }
}
