//! Nodes and links: how a packet gets from one agent to others.
//!
//! A link tells a packet's arrival when it is offered, so a hop is one event: the packet waits in a lane, a list in the order of
//! arrival, and only the first of each lane stands in the agenda. Each link has a lane of its own. What takes equally long
//! on whatever link arrives in the order in which it was offered, so idle links share a lane per latency: the agenda then holds a
//! few keys instead of one per link. Copies that a branching node sends on at once mostly arrive at once, too: they are one event
//! together, a [`Fan`].

use crate::agenda::{Agenda, Due, Turn};
use crate::packet::{Packet, PacketIx, Pool, To};
use crate::tree::Tree;
use std::collections::{BTreeMap, VecDeque};
use steadycast_ends::AgentIx;
use steadycast_link::{Ecn, Fate, Link};
use steadycast_units::{Span, Time};

pub(crate) struct Net {
    pub(crate) links: Vec<Hop>,
    pub(crate) lanes: Lanes,
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

/// One direction of a link.
pub(crate) struct Hop {
    pub(crate) link: Link,
    pub(crate) to: u32,
    pub(crate) reverse: u32,
    pub(crate) captured: bool,
    pub(crate) carried: u64,
    /// The latency of the lane that it shared last, and that lane.
    shared: (Span, u32),
}

#[derive(Clone, Copy)]
struct InFlight {
    at: Time,
    turn: Turn,
    packet: PacketIx,
    link: u32,
    ecn: Ecn,
}

/// Packets in flight. The first lanes are those of the links, then come the shared ones.
pub(crate) struct Lanes {
    lanes: Vec<VecDeque<InFlight>>,
    shared: BTreeMap<Span, u32>,
}

/// Packets of many sizes on links of many kinds could make any number of shared lanes; more than this share none.
const SHARED_LANES: usize = 64;

impl Lanes {
    pub(crate) fn new(links: usize) -> Self {
        Self { lanes: vec![VecDeque::new(); links], shared: BTreeMap::new() }
    }

    /// The shared lane of a latency.
    fn shared(&mut self, latency: Span) -> Option<u32> {
        if let Some(lane) = self.shared.get(&latency) {
            return Some(*lane);
        }
        if self.shared.len() >= SHARED_LANES {
            return None;
        }
        let lane = self.lanes.len() as u32;
        self.lanes.push(VecDeque::new());
        self.shared.insert(latency, lane);
        Some(lane)
    }
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
        Self { link, to, reverse, captured: false, carried: 0, shared: (Span::MAX, 0) }
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

/// Fans under way. Places and the memory of legs are used again.
#[derive(Default)]
pub(crate) struct Fans {
    fans: Vec<Fan>,
    free: Vec<u32>,
    spare: Vec<Vec<Leg>>,
}

impl Fans {
    fn put(&mut self, fan: Fan) -> u32 {
        if let Some(n) = self.free.pop() {
            self.fans[n as usize] = fan;
            return n;
        }
        self.fans.push(fan);
        self.fans.len() as u32 - 1
    }

    pub(crate) fn take(&mut self, n: u32) -> Fan {
        self.free.push(n);
        std::mem::take(&mut self.fans[n as usize])
    }

    fn spare(&mut self) -> Vec<Leg> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the memory of legs that have arrived.
    pub(crate) fn keep(&mut self, mut legs: Vec<Leg>) {
        legs.clear();
        self.spare.push(legs);
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

    /// The first packet of a lane has arrived. Deliveries to agents on the node are put into `out`; each holds one copy, which
    /// the caller releases.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, lane: u32, out: &mut Vec<Delivery>) {
        let in_flight = &mut self.lanes.lanes[lane as usize];
        // After an overtaking the agenda has a key too many for this lane: it comes too early, or for nothing.
        let Some(flying) = in_flight.pop_front_if(|f| f.at <= now) else { return };
        if let Some(next) = in_flight.front() {
            self.agenda.put_in_turn(next.at, next.turn, Due::Lane(lane));
        }
        self.arrive_as(now, flying.link, flying.packet, flying.ecn, out);
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
                        self.fly(now, InFlight { at, turn, packet, link, ecn });
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
        // Taken out, since offering needs the whole net; the tree does not change meanwhile.
        let branches = self.groups[group as usize].tree.take_branches(node);
        // Those that arrive together, so far.
        let (mut at, mut turn, mut legs) = (Time::NEVER, Turn::default(), Vec::new());
        for &link in branches.iter().filter(|link| Some(**link) != back) {
            let Some((arrival, ecn)) = self.offer(now, link, packet, ecn) else { continue };
            let own = self.agenda.turn();
            if arrival != at || legs.is_empty() {
                if !legs.is_empty() {
                    self.send_off(now, std::mem::take(&mut legs), at, turn, packet);
                }
                legs = self.fans.spare();
                (at, turn) = (arrival, own);
            }
            legs.push(Leg { link, ecn });
        }
        if !legs.is_empty() {
            self.send_off(now, legs, at, turn, packet);
        }
        self.groups[group as usize].tree.give_branches_back(node, branches);
        self.pool.release(packet);
    }

    /// These copies are on their way.
    fn send_off(&mut self, now: Time, legs: Vec<Leg>, at: Time, turn: Turn, packet: PacketIx) {
        self.pool.copy(packet, legs.len() as u32);
        if let [Leg { link, ecn }] = legs[..] {
            self.fans.keep(legs);
            self.fly(now, InFlight { at, turn, packet, link, ecn });
        } else {
            let n = self.fans.put(Fan { packet, legs });
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
    fn fly(&mut self, now: Time, flying: InFlight) {
        let lane = self.lane(now, &flying);
        let in_flight = &mut self.lanes.lanes[lane as usize];
        match in_flight.back() {
            None => {
                in_flight.push_back(flying);
                self.agenda.put_in_turn(flying.at, flying.turn, Due::Lane(lane));
            }
            Some(last) if last.at <= flying.at => in_flight.push_back(flying),
            Some(_) => self.overtake(lane, flying),
        }
    }

    /// The lane for a packet that was just offered.
    #[inline]
    fn lane(&mut self, now: Time, flying: &InFlight) -> u32 {
        let hop = &mut self.links[flying.link as usize];
        let latency = flying.at.since(now);
        if hop.shared.0 == latency {
            return hop.shared.1;
        }
        if !hop.link.was_idle() {
            return flying.link;
        }
        match self.lanes.shared(latency) {
            Some(lane) => {
                hop.shared = (latency, lane);
                lane
            }
            None => flying.link,
        }
    }

    /// A jitter that reorders has let this packet overtake others.
    #[cold]
    fn overtake(&mut self, lane: u32, flying: InFlight) {
        let in_flight = &mut self.lanes.lanes[lane as usize];
        let place = in_flight.partition_point(|f| f.at <= flying.at);
        in_flight.insert(place, flying);
        if place == 0 {
            // The agenda still has the key of the packet that was first.
            self.agenda.put_in_turn(flying.at, flying.turn, Due::Lane(lane));
        }
    }
}
