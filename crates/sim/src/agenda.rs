//! What happens next: a 4-ary heap of packed keys.

use dary_heap::QuaternaryHeap;
use std::cmp::Reverse;
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

/// Order among equal times: who was put in first. Taken when something is scheduled, kept while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

/// time (56 bits: 834 days) · turn (40 bits) · kind and index (32 bits)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    fn new(at: Time, turn: Turn, due: Due) -> Self {
        let (kind, index) = match due {
            Due::Lane(i) => (0, i),
            Due::Agent(i) => (1, i),
            Due::Plan(i) => (2, i),
            Due::Fan(i) => (3, i),
        };
        debug_assert!(index < 1 << 30 && turn.0 < 1 << 40);
        let at = at.as_nanos().min((1 << 56) - 1);
        Self(u128::from(at) << 72 | u128::from(turn.0) << 32 | u128::from(kind << 30 | index))
    }

    fn read(self) -> (Time, Due) {
        let index = self.0 as u32 & ((1 << 30) - 1);
        let due = match self.0 as u32 >> 30 {
            0 => Due::Lane(index),
            1 => Due::Agent(index),
            2 => Due::Plan(index),
            _ => Due::Fan(index),
        };
        (Time::from_nanos((self.0 >> 72) as u64), due)
    }
}

#[derive(Default)]
pub(crate) struct Agenda {
    heap: QuaternaryHeap<Reverse<Key>>,
    turns: u64,
    /// The first key has been handed out. Whatever is put in next takes its place: half the work of taking one away and putting
    /// one in, and most events put in another.
    taken: bool,
}

impl Agenda {
    pub(crate) fn turn(&mut self) -> Turn {
        self.turns += 1;
        Turn(self.turns)
    }

    pub(crate) fn put(&mut self, at: Time, due: Due) {
        let turn = self.turn();
        self.put_in_turn(at, turn, due);
    }

    #[inline]
    pub(crate) fn put_in_turn(&mut self, at: Time, turn: Turn, due: Due) {
        let key = Reverse(Key::new(at, turn, due));
        if std::mem::take(&mut self.taken)
            && let Some(mut top) = self.heap.peek_mut()
        {
            *top = key;
            return;
        }
        self.heap.push(key);
    }

    /// When the next key is due; NEVER without any. To be asked when [`Agenda::take`] has answered that nothing more is due.
    pub(crate) fn next(&self) -> Time {
        debug_assert!(!self.taken, "the first key is still the one that was handed out");
        self.heap.peek().map_or(Time::NEVER, |key| key.0.read().0)
    }

    /// Takes the next key, if it is due up to and including `until`.
    #[inline]
    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, Due)> {
        if std::mem::take(&mut self.taken) {
            self.heap.pop();
        }
        let (at, due) = self.heap.peek()?.0.read();
        self.taken = at <= until;
        self.taken.then_some((at, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Span;

    #[test]
    fn equal_times_come_in_the_order_in_which_they_were_put() {
        let mut agenda = Agenda::default();
        let at = Time::ZERO + Span::secs(1);
        for due in [Due::Agent(7), Due::Lane(3), Due::Plan(1)] {
            agenda.put(at, due);
        }
        agenda.put(Time::ZERO, Due::Lane(9));
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
            agenda.put(at(s), Due::Agent(s as u32));
        }
        assert_eq!(agenda.take(at(0)), None);
        assert_eq!(agenda.take(at(2)), Some((at(1), Due::Agent(1))));
        agenda.put(at(4), Due::Lane(4));
        agenda.put(at(2), Due::Lane(2));
        let rest = std::iter::from_fn(|| agenda.take(Time::NEVER)).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(rest, [at(2), at(3), at(4), at(5)]);
    }
}
