//! Nodes and links: how a packet gets from one agent to others.
//!
//! A link tells a packet's arrival when it is offered, so a hop is one event: the packet waits in the link's list of packets in
//! flight, and only the first of each list stands in the agenda.

use crate::agenda::{Agenda, Due, Turn};
use crate::packet::{AgentIx, Packet, PacketIx, Pool, To};
use crate::tree::Tree;
use std::collections::VecDeque;
use steadycast_link::{Ecn, Fate, Link};
use steadycast_units::Time;

pub(crate) struct Net {
    pub(crate) links: Vec<Hop>,
    pub(crate) nodes: Vec<Node>,
    /// Ways to the hosts that unicast packets go to: for each, the link to take from each node.
    pub(crate) routes: Vec<Vec<Option<u32>>>,
    pub(crate) groups: Vec<Group>,
    pub(crate) pool: Pool,
    pub(crate) agenda: Agenda,
    pub(crate) hops: u64,
    pub(crate) capture: Option<Box<dyn Capture>>,
}

/// Sees every packet that is offered to a captured link.
pub(crate) trait Capture: Send {
    /// `ecn` is what the packet's header says at the link's entry.
    fn seen(&mut self, link: u32, now: Time, packet: &Packet, ecn: Ecn, fate: Fate);

    /// Ends the files; tells the first that failed.
    fn finish(self: Box<Self>) -> Result<(), (String, std::io::Error)>;
}

/// One direction of a link, and what is in flight on it.
pub(crate) struct Hop {
    pub(crate) link: Link,
    pub(crate) to: u32,
    pub(crate) reverse: u32,
    pub(crate) captured: bool,
    pub(crate) carried: u64,
    in_flight: VecDeque<InFlight>,
}

#[derive(Clone, Copy)]
struct InFlight {
    at: Time,
    turn: Turn,
    packet: PacketIx,
    ecn: Ecn,
}

#[derive(Default)]
pub(crate) struct Node {
    /// Agents on this node that are members of a group.
    pub(crate) members: Vec<(u32, AgentIx)>,
}

pub(crate) struct Group {
    pub(crate) tree: Tree,
}

/// A packet at its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) agent: AgentIx,
    pub(crate) packet: PacketIx,
    pub(crate) ecn: Ecn,
}

impl Hop {
    pub(crate) fn new(link: Link, to: u32, reverse: u32) -> Self {
        Self { link, to, reverse, captured: false, carried: 0, in_flight: VecDeque::new() }
    }
}

impl Net {
    /// A packet leaves the agent on `node`.
    pub(crate) fn send(&mut self, now: Time, node: u32, packet: Packet, out: &mut Vec<Delivery>) {
        let (to, ecn) = (packet.to, packet.ecn);
        let ix = self.pool.put(packet);
        self.forward(now, node, None, to, ix, ecn, out);
        self.pool.release(ix);
    }

    /// The first packet in flight on link `l` has arrived. Deliveries to agents on the node are put into `out`; each holds one
    /// copy, which the caller releases.
    pub(crate) fn arrive(&mut self, now: Time, l: u32, out: &mut Vec<Delivery>) {
        let hop = &mut self.links[l as usize];
        // After an overtaking the agenda has a key too many for this link: it comes too early, or for nothing.
        let Some(flying) = hop.in_flight.pop_front_if(|f| f.at <= now) else {
            self.agenda.remove();
            return;
        };
        hop.carried += 1;
        let node = hop.to;
        match hop.in_flight.front() {
            Some(next) => self.agenda.replace(next.at, next.turn, Due::Link(l)),
            None => self.agenda.remove(),
        }
        self.hops += 1;
        let to = self.pool.get(flying.packet).to;
        self.forward(now, node, Some(l), to, flying.packet, flying.ecn, out);
        self.pool.release(flying.packet);
    }

    #[allow(clippy::too_many_arguments, reason = "the innermost call: a struct would be built and taken apart per hop")]
    fn forward(
        &mut self,
        now: Time,
        node: u32,
        via: Option<u32>,
        to: To,
        packet: PacketIx,
        ecn: Ecn,
        out: &mut Vec<Delivery>,
    ) {
        match to {
            To::One { agent, route } => match self.routes[route as usize][node as usize] {
                Some(link) => self.offer(now, link, packet, ecn),
                None => {
                    self.pool.copy(packet);
                    out.push(Delivery { agent, packet, ecn });
                }
            },
            To::Group(group) => {
                let from = self.pool.get(packet).from;
                for &(g, agent) in &self.nodes[node as usize].members {
                    if g == group && agent != from {
                        self.pool.copy(packet);
                        out.push(Delivery { agent, packet, ecn });
                    }
                }
                let back = via.map(|l| self.links[l as usize].reverse);
                // Indices, since offering needs the whole net; the tree does not change meanwhile.
                let mut n = 0;
                while let Some(link) = self.groups[group as usize].tree.branch(node, n) {
                    if Some(link) != back {
                        self.offer(now, link, packet, ecn);
                    }
                    n += 1;
                }
            }
        }
    }

    fn offer(&mut self, now: Time, l: u32, packet: PacketIx, ecn: Ecn) {
        let body = self.pool.get(packet);
        let hop = &mut self.links[l as usize];
        let fate = hop.link.offer(now, body.size, ecn);
        if hop.captured
            && let Some(capture) = &mut self.capture
        {
            capture.seen(l, now, body, ecn, fate);
        }
        let Fate::Arrives { at, ecn } = fate else { return };
        self.pool.copy(packet);
        let turn = self.agenda.turn();
        let flying = InFlight { at, turn, packet, ecn };
        match hop.in_flight.back() {
            None => {
                hop.in_flight.push_back(flying);
                self.agenda.put_in_turn(at, turn, Due::Link(l));
            }
            Some(last) if last.at <= at => hop.in_flight.push_back(flying),
            Some(_) => self.overtake(l, flying),
        }
    }

    /// A jitter that reorders has let this packet overtake others.
    #[cold]
    fn overtake(&mut self, l: u32, flying: InFlight) {
        let hop = &mut self.links[l as usize];
        let place = hop.in_flight.partition_point(|f| f.at <= flying.at);
        hop.in_flight.insert(place, flying);
        if place == 0 {
            // The agenda still has the key of the packet that was first.
            self.agenda.put_in_turn(flying.at, flying.turn, Due::Link(l));
        }
    }
}
