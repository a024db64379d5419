//! What happens next: packed keys, in a row and a heap.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use steadycast_units::Time;

/// What a key in the agenda is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The first packet in flight in this lane arrives.
    Lane(u32),
    /// This agent wants to be woken.
    Agent(u32),
    /// This entry of the driver's plan.
    Entry(u32),
    /// Copies of one packet arrive on many links at once.
    Fan(u32),
    /// This link has something to tell of packets that it holds.
    Queue(u32),
    /// This join or leave reaches the next router.
    Graft(u32),
}

/// Bits of an index: links are at most 2²⁸, of two directions each.
const INDEX: u32 = 29;

/// When something is due, and what: time (56 bits: 834 days) · turn (40 bits) · kind and index (32 bits). The turn is
/// the order among equal times: who was scheduled first.
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
            Due::Entry(i) => (2, i),
            Due::Fan(i) => (3, i),
            Due::Queue(i) => (4, i),
            Due::Graft(i) => (5, i),
        };
        debug_assert!(index < 1 << INDEX && turn < 1 << 40);
        let at = at.as_nanos().min((1 << 56) - 1);
        Self { high: at << 8 | turn >> 32, low: turn << 32 | u64::from(kind << INDEX | index) }
    }

    /// As one number: to compare it takes two instructions and no branch.
    #[inline(always)]
    const fn whole(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    pub(crate) const fn at(self) -> Time {
        Time::from_nanos(self.high >> 8)
    }

    const fn due(self) -> Due {
        let index = self.low as u32 & ((1 << INDEX) - 1);
        match self.low as u32 >> INDEX {
            0 => Due::Lane(index),
            1 => Due::Agent(index),
            2 => Due::Entry(index),
            3 => Due::Fan(index),
            4 => Due::Queue(index),
            _ => Due::Graft(index),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole().cmp(&other.whole())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.whole() < other.whole()
    }
}

/// The keys that come next lie in a row, all others behind them in a heap. A lane's next key comes soon after the one
/// that was handed out: it passes a few others in the row, while timers lie in the heap until their time is near.
pub(crate) struct Agenda {
    /// Those that come next, the first one last: none comes after the first of the heap.
    near: Vec<Key>,
    far: BinaryHeap<Reverse<Key>>,
    /// The first key of the heap; the last of all where there is none.
    border: Key,
    turns: u64,
    /// The first key has been handed out. Whatever is put in next takes its place: half the work of taking one away and
    /// putting one in, and most events put in another.
    taken: bool,
}

/// Length of the row. To put a key into a longer one would cost more than to put it into the heap.
const NEAR: usize = 16;

impl Default for Agenda {
    fn default() -> Self {
        Self { near: Vec::new(), far: BinaryHeap::new(), border: Key::LAST, turns: 0, taken: false }
    }
}

impl Agenda {
    /// A key to be put in, now or later; among equal times those made first come first.
    #[inline]
    pub(crate) fn key(&mut self, at: Time, due: Due) -> Key {
        self.turns += 1;
        Key::new(at, self.turns, due)
    }

    #[inline]
    pub(crate) fn put(&mut self, key: Key) {
        if !self.taken {
            self.near.push(key);
        }
        self.replace(key);
    }

    /// Puts a key in where the one is that [`Agenda::take`] has handed out.
    #[inline(always)]
    pub(crate) fn replace(&mut self, key: Key) {
        self.taken = false;
        if self.border < key || self.near.len() > NEAR {
            return self.put_behind(key);
        }
        let near = &mut self.near[..];
        let Some(mut place) = near.len().checked_sub(1) else { return };
        while place > 0 && near[place - 1] < key {
            near[place] = near[place - 1];
            place -= 1;
        }
        near[place] = key;
    }

    /// Puts a key into the heap, or into a row that is full: then the last one of the row goes there.
    #[inline(never)]
    fn put_behind(&mut self, key: Key) {
        let makes_room = key < self.border;
        let behind = if makes_room { self.near.remove(0) } else { key };
        self.far.push(Reverse(behind));
        self.border = self.border.min(behind);
        if makes_room {
            self.replace(key);
        } else {
            self.near.pop();
        }
    }

    /// Takes a row's half of keys out of the heap; the first of them.
    #[inline(never)]
    fn fetch(&mut self) -> Option<Key> {
        while self.near.len() < NEAR / 2
            && let Some(Reverse(key)) = self.far.pop()
        {
            self.near.push(key);
        }
        self.near.reverse();
        self.border = self.far.peek().map_or(Key::LAST, |Reverse(key)| *key);
        self.near.last().copied()
    }

    /// When the next key is due; NEVER without any. To be asked when [`Agenda::take`] has answered that nothing more is
    /// due.
    pub(crate) fn next(&self) -> Time {
        debug_assert!(!self.taken, "the first key is still the one that was handed out");
        self.near.last().map_or(Time::NEVER, |key| key.at())
    }

    /// Takes the next key, if it is due up to and including `until`.
    #[inline]
    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, Due)> {
        if std::mem::take(&mut self.taken) {
            self.near.pop();
        }
        let first = match self.near.last() {
            Some(first) => *first,
            None => self.fetch()?,
        };
        self.taken = first.at() <= until;
        self.taken.then(|| (first.at(), first.due()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadycast_units::Span;

    fn put(agenda: &mut Agenda, at: Time, due: Due) {
        let key = agenda.key(at, due);
        agenda.put(key);
    }

    proptest! {
        #[test]
        fn keys_come_in_the_order_of_time_then_of_making(
            steps in prop::collection::vec((0u64..50, 0u64..40, any::<bool>()), 1..200),
        ) {
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
        for due in [Due::Agent(7), Due::Lane(3), Due::Entry(1)] {
            put(&mut agenda, at, due);
        }
        put(&mut agenda, Time::ZERO, Due::Lane(9));
        let mut order = Vec::new();
        while let Some((_, due)) = agenda.take(Time::NEVER) {
            order.push(due);
        }
        assert_eq!(order, [Due::Lane(9), Due::Agent(7), Due::Lane(3), Due::Entry(1)]);
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
