//! What happens next: a 4-ary heap of packed keys.

use dary_heap::QuaternaryHeap;
use std::cmp::Reverse;
use steadycast_units::Time;

/// What a key in the agenda is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The first packet in flight on this link arrives.
    Link(u32),
    /// This agent wants to be woken.
    Agent(u32),
    /// This entry of the scenario's own plan: an event, a graft, a prune.
    Plan(u32),
}

/// Order among equal times: who was put in first. Taken when something is scheduled, kept while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

/// time (56 bits: 834 days) · turn (40 bits) · kind and index (32 bits)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    fn new(at: Time, turn: Turn, due: Due) -> Self {
        let (kind, index) = match due {
            Due::Link(i) => (0, i),
            Due::Agent(i) => (1, i),
            Due::Plan(i) => (2, i),
        };
        debug_assert!(index < 1 << 30 && turn.0 < 1 << 40);
        let at = at.as_nanos().min((1 << 56) - 1);
        Self(u128::from(at) << 72 | u128::from(turn.0) << 32 | u128::from(kind << 30 | index))
    }

    fn read(self) -> (Time, Due) {
        let index = self.0 as u32 & ((1 << 30) - 1);
        let due = match self.0 as u32 >> 30 {
            0 => Due::Link(index),
            1 => Due::Agent(index),
            _ => Due::Plan(index),
        };
        (Time::from_nanos((self.0 >> 72) as u64), due)
    }
}

#[derive(Default)]
pub(crate) struct Agenda {
    heap: QuaternaryHeap<Reverse<Key>>,
    turns: u64,
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

    pub(crate) fn put_in_turn(&mut self, at: Time, turn: Turn, due: Due) {
        self.heap.push(Reverse(Key::new(at, turn, due)));
    }

    /// The next key up to and including `until`. The caller takes it away by [`Agenda::remove`] or [`Agenda::replace`].
    pub(crate) fn next(&self, until: Time) -> Option<(Time, Due)> {
        let (at, due) = self.heap.peek()?.0.read();
        (at <= until).then_some((at, due))
    }

    pub(crate) fn remove(&mut self) {
        self.heap.pop();
    }

    /// Puts another key in the place of the next one: half the work of taking one away and putting one in.
    pub(crate) fn replace(&mut self, at: Time, turn: Turn, due: Due) {
        if let Some(mut top) = self.heap.peek_mut() {
            *top = Reverse(Key::new(at, turn, due));
        }
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
        for due in [Due::Agent(7), Due::Link(3), Due::Plan(1)] {
            agenda.put(at, due);
        }
        agenda.put(Time::ZERO, Due::Link(9));
        let mut order = Vec::new();
        while let Some((_, due)) = agenda.next(Time::NEVER) {
            order.push(due);
            agenda.remove();
        }
        assert_eq!(order, [Due::Link(9), Due::Agent(7), Due::Link(3), Due::Plan(1)]);
        assert_eq!(agenda.next(Time::NEVER), None);
    }
}
