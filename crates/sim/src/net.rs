//! Nodes and links: how a packet gets from one agent to others.
//!
//! A link tells a packet's arrival when it is offered, so a hop is one event: the packet waits in the link's list of packets in
//! flight, and only the first of each list stands in the agenda. Copies that a branching node sends on at once mostly arrive at
//! once, too: then they are one event together, a [`Fan`].

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
    pub(crate) fans: Fans,
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

/// Copies of one packet that arrive at the same time, and in turns that follow each other, on several links.
#[derive(Default)]
pub(crate) struct Fan {
    pub(crate) packet: PacketIx,
    pub(crate) legs: Vec<Leg>,
}

/// One copy of a fan.
#[derive(Clone, Copy)]
pub(crate) struct Leg {
    pub(crate) link: u32,
    pub(crate) ecn: Ecn,
}

/// Fans under way; places and their memory are used again.
#[derive(Default)]
pub(crate) struct Fans {
    fans: Vec<Fan>,
    free: Vec<u32>,
}

impl Fans {
    /// An empty one.
    fn spare(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.fans.push(Fan::default());
            self.fans.len() as u32 - 1
        })
    }

    /// Takes the fan out of its place, until it is given back.
    pub(crate) fn take(&mut self, n: u32) -> Fan {
        std::mem::take(&mut self.fans[n as usize])
    }

    pub(crate) fn give_back(&mut self, n: u32, mut fan: Fan) {
        fan.legs.clear();
        self.fans[n as usize] = fan;
        self.free.push(n);
    }
}

impl Net {
    /// A packet leaves the agent on `node`.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, node: u32, packet: Packet, out: &mut Vec<Delivery>) {
        let (to, ecn) = (packet.to, packet.ecn);
        let ix = self.pool.put(packet);
        self.forward(now, node, None, to, ix, ecn, out);
    }

    /// The first packet in flight on link `l` has arrived. Deliveries to agents on the node are put into `out`; each holds one
    /// copy, which the caller releases.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, l: u32, out: &mut Vec<Delivery>) {
        let hop = &mut self.links[l as usize];
        // After an overtaking the agenda has a key too many for this link: it comes too early, or for nothing.
        let Some(flying) = hop.in_flight.pop_front_if(|f| f.at <= now) else { return };
        if let Some(next) = hop.in_flight.front() {
            self.agenda.put_in_turn(next.at, next.turn, Due::Link(l));
        }
        self.arrive_as(now, l, flying.packet, flying.ecn, out);
    }

    /// A copy of a packet has arrived by link `l`.
    #[inline]
    pub(crate) fn arrive_as(&mut self, now: Time, l: u32, packet: PacketIx, ecn: Ecn, out: &mut Vec<Delivery>) {
        let hop = &mut self.links[l as usize];
        hop.carried += 1;
        self.hops += 1;
        let (node, to) = (hop.to, self.pool.get(packet).to);
        self.forward(now, node, Some(l), to, packet, ecn, out);
    }

    /// Sends one copy of a packet on from `node`, or as many as there are branches.
    #[allow(clippy::too_many_arguments, reason = "the innermost call: a struct would be built and taken apart per hop")]
    #[inline]
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
                Some(link) => match self.offer(now, link, packet, ecn) {
                    Some((at, ecn)) => {
                        let turn = self.agenda.turn();
                        self.fly(link, InFlight { at, turn, packet, ecn });
                    }
                    None => self.pool.release(packet),
                },
                None => out.push(Delivery { agent, packet, ecn }),
            },
            To::Group(group) => self.spread(now, node, via, group, packet, ecn, out),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "as above")]
    fn spread(
        &mut self,
        now: Time,
        node: u32,
        via: Option<u32>,
        group: u32,
        packet: PacketIx,
        ecn: Ecn,
        out: &mut Vec<Delivery>,
    ) {
        let from = self.pool.get(packet).from;
        for &(g, agent) in &self.nodes[node as usize].members {
            if g == group && agent != from {
                self.pool.copy(packet, 1);
                out.push(Delivery { agent, packet, ecn });
            }
        }
        let back = via.map(|l| self.links[l as usize].reverse);
        // Legs of the same arrival, so far; their copies are counted when they are sent off.
        let (mut at, mut turn, mut fan) = (Time::NEVER, Turn::default(), None);
        // Indices, since offering needs the whole net; the tree does not change meanwhile.
        let mut n = 0;
        while let Some(link) = self.groups[group as usize].tree.branch(node, n) {
            n += 1;
            if Some(link) == back {
                continue;
            }
            let Some((arrival, ecn)) = self.offer(now, link, packet, ecn) else { continue };
            let own = self.agenda.turn();
            let place = match fan {
                Some(place) if at == arrival => place,
                _ => {
                    self.send_off(fan, at, turn, packet);
                    (at, turn) = (arrival, own);
                    *fan.insert(self.fans.spare())
                }
            };
            self.fans.fans[place as usize].legs.push(Leg { link, ecn });
        }
        self.send_off(fan, at, turn, packet);
        self.pool.release(packet);
    }

    /// The legs in this fan are on their way.
    fn send_off(&mut self, fan: Option<u32>, at: Time, turn: Turn, packet: PacketIx) {
        let Some(n) = fan else { return };
        let fan = &mut self.fans.fans[n as usize];
        self.pool.copy(packet, fan.legs.len() as u32);
        if let [Leg { link, ecn }] = fan.legs[..] {
            fan.legs.clear();
            self.fans.free.push(n);
            self.fly(link, InFlight { at, turn, packet, ecn });
        } else {
            fan.packet = packet;
            self.agenda.put_in_turn(at, turn, Due::Fan(n));
        }
    }

    /// When a packet that takes link `l` arrives, and with which mark; `None`: it does not.
    #[inline]
    fn offer(&mut self, now: Time, l: u32, packet: PacketIx, ecn: Ecn) -> Option<(Time, Ecn)> {
        let body = self.pool.get(packet);
        let hop = &mut self.links[l as usize];
        let fate = hop.link.offer(now, body.size, ecn);
        if hop.captured
            && let Some(capture) = &mut self.capture
        {
            capture.seen(l, now, body, ecn, fate);
        }
        match fate {
            Fate::Arrives { at, ecn } => Some((at, ecn)),
            Fate::Dropped(_) => None,
        }
    }

    #[inline]
    fn fly(&mut self, l: u32, flying: InFlight) {
        let hop = &mut self.links[l as usize];
        match hop.in_flight.back() {
            None => {
                hop.in_flight.push_back(flying);
                self.agenda.put_in_turn(flying.at, flying.turn, Due::Link(l));
            }
            Some(last) if last.at <= flying.at => hop.in_flight.push_back(flying),
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
