//! A port attaches an agent to a node of the network.

use std::collections::VecDeque;
use steadycast_network::{Packet, To};
use steadycast_scenario::NodeIx;
use steadycast_units::{Chance, Span, Time};

pub(crate) struct Port {
    pub(crate) node: NodeIx,
    pub(crate) to: To,
    jitter: Span,
    chance: Chance,
    held: VecDeque<(Time, Packet)>,
}

impl Port {
    pub(crate) fn new(node: NodeIx, to: To, jitter: Span, chance: Chance) -> Self {
        Self { node, to, jitter, chance, held: VecDeque::new() }
    }

    pub(crate) const fn jitters(&self) -> bool {
        !self.jitter.is_zero()
    }

    /// Delays a packet by a random time, as a busy host does (ns-2's `overhead_`). The time is uniformly distributed
    /// between zero and `jitter`. Packets that are sent during this time leave together with the first packet.
    pub(crate) fn hold(&mut self, now: Time, packet: Packet) {
        let until = match self.held.back() {
            Some((until, _)) => *until,
            None => now + self.chance.span_between(Span::ZERO, self.jitter),
        };
        self.held.push_back((until, packet));
    }

    pub(crate) fn release(&mut self, now: Time) -> Option<Packet> {
        self.held.pop_front_if(|(t, _)| *t <= now).map(|(_, packet)| packet)
    }

    pub(crate) fn wake(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |(t, _)| *t)
    }
}
