//! Packets in flight, in the order in which they arrive.

use crate::event_queue::Key;
use crate::packet::PacketIx;
use steadycast_link::Ecn;
use steadycast_units::Time;

/// A copy of a packet in flight on a link.
#[derive(Clone, Copy, Default)]
pub(crate) struct InFlight {
    pub(crate) key: Key,
    pub(crate) packet: PacketIx,
    pub(crate) size: u32,
    /// For a unicast packet, its next position on its path. For a multicast packet, its present link, with the bit
    /// `net::MARK` set.
    pub(crate) place: u32,
    pub(crate) ecn: Ecn,
}

/// A ring buffer of packets in flight. It has less code than `VecDeque`, because each hop executes this code.
#[derive(Default)]
pub(crate) struct Lane {
    /// The slots of the ring. Their number is 0 or a power of two.
    slots: Vec<InFlight>,
    head: usize,
    len: usize,
    /// When the latest packet arrives.
    last: Time,
}

impl Lane {
    #[inline]
    fn slot(&self, n: usize) -> usize {
        (self.head + n) & (self.slots.len().wrapping_sub(1))
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&InFlight> {
        if self.len == 0 { None } else { self.slots.get(self.head) }
    }

    /// Removes the first packet. Returns the key of the packet after it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Key> {
        self.head = self.slot(1);
        self.len -= 1;
        self.front().map(|next| next.key)
    }

    /// Inserts a packet that has the newest key. Returns whether it arrives before all others.
    #[inline(always)]
    pub(crate) fn put(&mut self, flying: InFlight) -> bool {
        let (at, others) = (flying.key.at(), self.len);
        if self.len == self.slots.len() {
            self.grow();
        }
        let slot = self.slot(others);
        self.slots[slot] = flying;
        self.len += 1;
        // If the packet arrives before the latest packet, sort it in.
        if at < self.last {
            return self.sort_in_last();
        }
        self.last = at;
        others == 0
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        // Move the first packet to slot 0, because the vector grows at its end.
        self.slots.rotate_left(self.head);
        self.head = 0;
        self.slots.resize((2 * self.len).max(4), InFlight::default());
    }

    /// Moves the last packet to its place in the order of arrival. Returns whether it arrives before all others.
    #[cold]
    #[inline(never)]
    fn sort_in_last(&mut self) -> bool {
        let mut place = self.len - 1;
        let newcomer = self.slots[self.slot(place)];
        while place > 0 && newcomer.key < self.slots[self.slot(place - 1)].key {
            let (to, from) = (self.slot(place), self.slot(place - 1));
            self.slots[to] = self.slots[from];
            place -= 1;
        }
        let slot = self.slot(place);
        self.slots[slot] = newcomer;
        place == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        (0..self.len).map(|n| &self.slots[self.slot(n)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_queue::{EventKind, EventQueue};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_in_flight_arrives_in_the_order_of_keys(steps in prop::collection::vec((0u64..30, 0u32..3), 1..100)) {
            let (mut lane, mut events, mut expected) = (Lane::default(), EventQueue::default(), Vec::new());
            for (at, pops) in steps {
                let key = events.key(Time::from_nanos(at), EventKind::Lane(0));
                let flying = InFlight { key, packet: PacketIx::default(), size: 1, place: 0, ecn: Ecn::NotEct };
                prop_assert_eq!(lane.put(flying), expected.iter().all(|other| key < *other));
                expected.push(key);
                expected.sort_unstable();
                for _ in 0..pops {
                    prop_assert_eq!(lane.front().map(|f| f.key), expected.first().copied());
                    if !expected.is_empty() {
                        lane.pop();
                        expected.remove(0);
                    }
                }
                prop_assert_eq!(lane.iter().map(|f| f.key).collect::<Vec<_>>(), expected.clone());
            }
        }
    }
}
