//! What happens next: a heap of packed keys.

use std::cmp::Ordering;
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

/// A binary heap of its own, since a hop puts one key in where another was: the standard one's `PeekMut` does the same
/// in twice the instructions.
#[derive(Default)]
pub(crate) struct Agenda {
    /// No key comes before its parent, which is the one at half its place.
    keys: Vec<Key>,
    turns: u64,
    /// The first key has been handed out. Whatever is put in next takes its place: half the work of taking one away and
    /// putting one in, and most events put in another.
    taken: bool,
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
        if self.taken {
            return self.replace(key);
        }
        let mut place = self.keys.len();
        self.keys.push(key);
        while place > 0 && key < self.keys[(place - 1) / 2] {
            self.keys[place] = self.keys[(place - 1) / 2];
            place = (place - 1) / 2;
        }
        self.keys[place] = key;
    }

    /// Puts a key in where the one is that [`Agenda::take`] has handed out.
    #[inline(always)]
    pub(crate) fn replace(&mut self, key: Key) {
        self.taken = false;
        let keys = &mut self.keys[..];
        let (mut place, mut child) = (0, 1);
        while let Some([left, right]) = keys.get(child..).and_then(<[Key]>::first_chunk) {
            // Without a branch: which of two comes first can't be predicted.
            let first = *right.min(left);
            child += usize::from(right < left);
            if key < first {
                child = keys.len();
                break;
            }
            keys[place] = first;
            (place, child) = (child, 2 * child + 1);
        }
        if let Some(&only) = keys.get(child).filter(|only| **only < key) {
            keys[place] = only;
            place = child;
        }
        if let Some(slot) = keys.get_mut(place) {
            *slot = key;
        }
    }

    /// When the next key is due; NEVER without any. To be asked when [`Agenda::take`] has answered that nothing more is
    /// due.
    pub(crate) fn next(&self) -> Time {
        debug_assert!(!self.taken, "the first key is still the one that was handed out");
        self.keys.first().map_or(Time::NEVER, |key| key.at())
    }

    /// Takes the next key, if it is due up to and including `until`.
    #[inline]
    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, Due)> {
        if std::mem::take(&mut self.taken)
            && let Some(last) = self.keys.pop()
        {
            self.replace(last);
        }
        let first = *self.keys.first()?;
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
