//! The event queue. The nearest keys are in a sorted array, and the others are in a heap.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use steadycast_units::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The first packet of this lane arrives.
    Lane(u32),
    /// The timer of this agent expires.
    Agent(u32),
    /// A timer of the caller is due. The index is the one in `Alarm::Entry`.
    Entry(u32),
    /// Copies arrive on several links at the same time.
    Fan(u32),
    /// The fate of a packet that is held by this link becomes known.
    Queue(u32),
    /// A join or leave arrives at the next router.
    MembershipChange(u32),
}

/// The number of bits for an index. There are at most 2²⁸ links, with two directions each.
const INDEX_BITS: u32 = 29;

/// An event as a number of 128 bits. The time has 56 bits (834 days), the sequence number 40 bits, and the kind and the
/// index 32 bits. Events at the same time are in the order in which they were scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    high: u64,
    low: u64,
}

impl Key {
    const LAST: Self = Self { high: u64::MAX, low: u64::MAX };

    fn new(at: Time, sequence: u64, due: EventKind) -> Self {
        let (kind, index) = match due {
            EventKind::Lane(i) => (0, i),
            EventKind::Agent(i) => (1, i),
            EventKind::Entry(i) => (2, i),
            EventKind::Fan(i) => (3, i),
            EventKind::Queue(i) => (4, i),
            EventKind::MembershipChange(i) => (5, i),
        };
        debug_assert!(index < 1 << INDEX_BITS && sequence < 1 << 40);
        // Limit the time to 56 bits, because `Time::NEVER` is larger.
        let at = at.as_nanos().min((1 << 56) - 1);
        // Put the time first and the sequence number second, so that keys can be compared as numbers.
        Self { high: at << 8 | sequence >> 32, low: sequence << 32 | u64::from(kind << INDEX_BITS | index) }
    }

    /// Returns the key as one number. The comparison of two numbers takes two instructions and no branch.
    #[inline(always)]
    const fn packed(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    pub(crate) const fn at(self) -> Time {
        Time::from_nanos(self.high >> 8)
    }

    const fn due(self) -> EventKind {
        let index = self.low as u32 & ((1 << INDEX_BITS) - 1);
        match self.low as u32 >> INDEX_BITS {
            0 => EventKind::Lane(index),
            1 => EventKind::Agent(index),
            2 => EventKind::Entry(index),
            3 => EventKind::Fan(index),
            4 => EventKind::Queue(index),
            _ => EventKind::MembershipChange(index),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.packed().cmp(&other.packed())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.packed() < other.packed()
    }
}

/// A priority queue of event keys. The nearest keys are in a short sorted array, and the others are in a heap. The
/// array is fast because the next key of a lane is usually near.
pub(crate) struct EventQueue {
    /// The next keys in descending order. No key in the array is later than the first key in the heap.
    near: Vec<Key>,
    far: BinaryHeap<Reverse<Key>>,
    /// The first key in the heap, or [`Key::LAST`] if the heap is empty.
    far_first: Key,
    last_sequence: u64,
    /// Whether the first key has been taken but is still in the array. The next insertion overwrites it, which halves
    /// the work of most events.
    taken: bool,
}

/// The maximum length of the array. A longer array would be slower than the heap.
const NEAR_LEN: usize = 16;

impl Default for EventQueue {
    fn default() -> Self {
        Self { near: Vec::new(), far: BinaryHeap::new(), far_first: Key::LAST, last_sequence: 0, taken: false }
    }
}

impl EventQueue {
    /// Creates a key. Keys with the same time are ordered by their creation.
    #[inline]
    pub(crate) fn key(&mut self, at: Time, due: EventKind) -> Key {
        self.last_sequence += 1;
        Key::new(at, self.last_sequence, due)
    }

    #[inline]
    pub(crate) fn put(&mut self, key: Key) {
        if !self.taken {
            // Add an element at the end, because `replace` overwrites the last one.
            self.near.push(key);
        }
        self.replace(key);
    }

    /// Inserts a key in place of the key that [`EventQueue::take`] returned last.
    #[inline(always)]
    pub(crate) fn replace(&mut self, key: Key) {
        self.taken = false;
        // Use the heap if the key is later than the first key in the heap, or if the array is full.
        if self.far_first < key || self.near.len() > NEAR_LEN {
            return self.insert_far(key);
        }
        let near = &mut self.near[..];
        let Some(mut place) = near.len().checked_sub(1) else { return };
        // Insert the key by insertion sort, from the end of the array.
        while place > 0 && near[place - 1] < key {
            near[place] = near[place - 1];
            place -= 1;
        }
        near[place] = key;
    }

    /// Inserts a key into the heap. A key that is earlier than all keys in the heap is inserted into the array instead.
    /// The latest key of the array then moves to the heap.
    #[inline(never)]
    fn insert_far(&mut self, key: Key) {
        let makes_room = key < self.far_first;
        // The first key in the array is its latest key.
        let behind = if makes_room { self.near.remove(0) } else { key };
        self.far.push(Reverse(behind));
        self.far_first = self.far_first.min(behind);
        if makes_room {
            self.replace(key);
        } else {
            self.near.pop();
        }
    }

    #[inline(never)]
    fn refill(&mut self) -> Option<Key> {
        // Fill only half of the array, so that keys that are inserted soon find room.
        while self.near.len() < NEAR_LEN / 2
            && let Some(Reverse(key)) = self.far.pop()
        {
            self.near.push(key);
        }
        self.near.reverse();
        self.far_first = self.far.peek().map_or(Key::LAST, |Reverse(key)| *key);
        self.near.last().copied()
    }

    /// Returns the time of the next key, or `NEVER` if there is no key. The result is valid only after
    /// [`EventQueue::take`] has returned `None`.
    pub(crate) fn next(&self) -> Time {
        debug_assert!(!self.taken, "the first key is still the one that was handed out");
        self.near.last().map_or(Time::NEVER, |key| key.at())
    }

    /// Takes the next key if it is due at `until` or earlier.
    #[inline]
    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, EventKind)> {
        // Remove the key that was taken last, if no insertion has overwritten it.
        if std::mem::take(&mut self.taken) {
            self.near.pop();
        }
        let first = match self.near.last() {
            Some(first) => *first,
            None => self.refill()?,
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

    fn put(events: &mut EventQueue, at: Time, due: EventKind) {
        let key = events.key(at, due);
        events.put(key);
    }

    proptest! {
        #[test]
        fn keys_come_in_the_order_of_time_then_of_making(
            steps in prop::collection::vec((0u64..50, 0u64..40, any::<bool>()), 1..200),
        ) {
            let mut events = EventQueue::default();
            let (mut waiting, mut now) = (Vec::new(), 0);
            let due = |n: u32, flight| if flight { EventKind::Lane(n) } else { EventKind::Agent(n) };
            for (n, (later, until, flight)) in steps.into_iter().enumerate() {
                put(&mut events, Time::from_nanos(now + later), due(n as u32, flight));
                waiting.push((now + later, n as u32, flight));
                if n % 3 == 2 {
                    let until = now + until / 8;
                    let first = waiting.iter().min().copied().filter(|(at, ..)| *at <= until);
                    waiting.retain(|key| Some(*key) != first);
                    let taken = events.take(Time::from_nanos(until));
                    prop_assert_eq!(taken, first.map(|(at, n, flight)| (Time::from_nanos(at), due(n, flight))));
                    now = first.map_or(now, |(at, ..)| at);
                }
            }
            waiting.sort_unstable();
            let rest: Vec<_> = std::iter::from_fn(|| events.take(Time::NEVER)).collect();
            let left = waiting.into_iter().map(|(at, n, flight)| (Time::from_nanos(at), due(n, flight)));
            prop_assert_eq!(rest, left.collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_times_come_in_the_order_in_which_they_were_put() {
        let mut events = EventQueue::default();
        let at = Time::ZERO + Span::secs(1);
        for due in [EventKind::Agent(7), EventKind::Lane(3), EventKind::Entry(1)] {
            put(&mut events, at, due);
        }
        put(&mut events, Time::ZERO, EventKind::Lane(9));
        let mut order = Vec::new();
        while let Some((_, due)) = events.take(Time::NEVER) {
            order.push(due);
        }
        assert_eq!(order, [EventKind::Lane(9), EventKind::Agent(7), EventKind::Lane(3), EventKind::Entry(1)]);
        assert_eq!(events.take(Time::NEVER), None);
    }

    #[test]
    fn what_is_put_in_while_one_is_taken_comes_in_its_order() {
        let mut events = EventQueue::default();
        let at = |s| Time::ZERO + Span::secs(s);
        for s in [5, 1, 3] {
            put(&mut events, at(s), EventKind::Agent(s as u32));
        }
        assert_eq!(events.take(at(0)), None);
        assert_eq!(events.take(at(2)), Some((at(1), EventKind::Agent(1))));
        put(&mut events, at(4), EventKind::Lane(4));
        put(&mut events, at(2), EventKind::Lane(2));
        let rest = std::iter::from_fn(|| events.take(Time::NEVER)).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(rest, [at(2), at(3), at(4), at(5)]);
    }
}
