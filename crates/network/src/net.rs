//! Nodes and links, which forward packets between agents.
//!
//! - A hop is a single event, because a link computes the arrival time of a packet when the packet is offered.
//! - Packets in flight wait in lanes, which are sorted by arrival. Only the first packet of a lane has a key in the
//!   event queue.
//! - Packets of equal latency can share a lane, even if they are on different links, because they arrive in the order
//!   in which they were offered.
//! - Copies that arrive at the same time are a single event, called a [`Fan`].
//! - Some links decide later what happens to a packet. They return a [`Token`], under which the packet is stored until
//!   then.
//! - A packet in flight contains all data for its next hop.

use crate::capture::Captures;
use crate::event_queue::{EventKind, EventQueue};
use crate::lane::{InFlight, Lane};
use crate::packet::{Head, PacketIx, Pool, To};
use crate::tree::{Step, Tree};
use std::collections::BTreeMap;
use steadycast_endpoints::{AgentIx, Body};
use steadycast_link::{Ecn, Fate, Link, Token};
use steadycast_scenario::DirIx;
use steadycast_units::{Bytes, Span, Time};

pub(crate) struct Net {
    pub(crate) links: Vec<Hop>,
    pub(crate) lanes: Lanes,
    pub(crate) nodes: Vec<Node>,
    /// Routing tables, one for each destination to which routes were computed. A table has the next link from each
    /// node.
    pub(crate) routes: Vec<Vec<Option<u32>>>,
    pub(crate) paths: Paths,
    pub(crate) groups: Vec<Group>,
    pub(crate) pool: Pool,
    pub(crate) events: EventQueue,
    pub(crate) hops: u64,
    pub(crate) fans: Fans,
    pub(crate) holds: HeldPackets,
    pub(crate) captures: Option<Captures>,
}

#[derive(Default)]
pub(crate) struct HeldPackets {
    /// The held packets of each link. The key is the index of the link in `Net::links`.
    links: BTreeMap<u32, LinkHolds>,
}

struct LinkHolds {
    /// The held packets. The index is the number in the [`Token`] that the link returned for the packet.
    packets: Vec<Option<Held>>,
    /// When the link's event in the event queue is due. `NEVER` if it has no event there.
    armed: Time,
}

#[derive(Clone, Copy)]
struct Held {
    packet: PacketIx,
    size: u32,
    place: u32,
    ecn: Ecn,
}

impl HeldPackets {
    fn put(&mut self, link: u32, Token(n): Token, held: Held) {
        let hold = self.links.entry(link).or_insert(LinkHolds { packets: Vec::new(), armed: Time::NEVER });
        let n = n as usize;
        if n >= hold.packets.len() {
            hold.packets.resize(n + 1, None);
        }
        hold.packets[n] = Some(held);
    }

    fn take(&mut self, link: u32, Token(n): Token) -> Option<Held> {
        self.links.get_mut(&link)?.packets.get_mut(n as usize)?.take()
    }
}

pub(crate) struct Hop {
    pub(crate) link: Link,
    /// Whether the link is captured, holds packets or can reorder packets.
    needs_slow_path: bool,
    captured: bool,
    pub(crate) to: u32,
    pub(crate) reverse: u32,
    /// The shared lane (see `Lanes::shared`) of the last packet that found the link idle.
    shared: SharedLane,
    /// The shared lane of the last packet that waited for exactly one other packet.
    second: SharedLane,
}

#[derive(Clone, Copy)]
struct SharedLane {
    latency: Span,
    lane: u32,
}

impl SharedLane {
    const NONE: Self = Self { latency: Span::MAX, lane: 0 };
}

impl Hop {
    pub(crate) fn new(link: Link, to: u32, reverse: u32) -> Self {
        let needs_slow_path = link.holds_packets() || link.can_disorder();
        Self { link, needs_slow_path, captured: false, to, reverse, shared: SharedLane::NONE, second: SharedLane::NONE }
    }

    pub(crate) fn capture(&mut self) {
        (self.needs_slow_path, self.captured) = (true, true);
    }

    /// Returns the latency if the fast path applies. The link must be idle, and the packet must have the same size as
    /// the previous packet. Otherwise, returns `None`, and the packet has to be offered.
    #[inline(always)]
    fn pass(&mut self, now: Time, size: u32) -> Option<Span> {
        if self.needs_slow_path { None } else { self.link.pass(now, Bytes::new(u64::from(size))) }
    }
}

#[derive(Default)]
pub(crate) struct Paths {
    /// The links of all paths. Each path ends with its agent, which has the bit [`MARK`].
    steps: Vec<u32>,
}

/// A position on a unicast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathIx(u32);

enum NextStep {
    Link(u32),
    Agent(AgentIx),
}

/// The bit that identifies an agent in `Paths::steps`, or a link in `InFlight::place`. All numbers are below 2³⁰.
const MARK: u32 = 1 << 31;

impl Paths {
    /// Adds a path over `links` to `agent`. Returns the first position of the path.
    pub(crate) fn add(&mut self, links: impl Iterator<Item = u32>, agent: AgentIx) -> PathIx {
        let begin = PathIx(self.steps.len() as u32);
        self.steps.extend(links);
        self.steps.push(MARK | agent.0);
        begin
    }

    #[inline]
    fn next(&self, place: PathIx) -> NextStep {
        match self.steps[place.0 as usize] {
            step if step & MARK == 0 => NextStep::Link(step),
            step => NextStep::Agent(AgentIx(step & !MARK)),
        }
    }
}

/// The lanes of packets in flight. The first ones belong to one link each. Each of the others is shared by packets of
/// equal latency.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    shared: BTreeMap<Span, u32>,
}

/// Maximum number of shared lanes. Each of them is for packets of one latency. Packets of further latencies use the
/// lanes of their links.
const SHARED_LANES: usize = 64;

impl Lanes {
    pub(crate) fn new(links: usize) -> Self {
        Self { lanes: (0..links).map(|_| Lane::default()).collect(), shared: BTreeMap::new() }
    }

    /// Returns the shared lane for a latency. If there are too many shared lanes, returns the link's own lane.
    #[inline(never)]
    fn shared(&mut self, latency: Span, link: u32) -> SharedLane {
        let lane = match self.shared.get(&latency) {
            Some(lane) => *lane,
            None if self.shared.len() >= SHARED_LANES => link,
            None => {
                let lane = self.lanes.len() as u32;
                self.lanes.push(Lane::default());
                self.shared.insert(latency, lane);
                lane
            }
        };
        SharedLane { latency, lane }
    }
}

#[derive(Default)]
pub(crate) struct Node {
    /// The agents on this node that are members of a group. Each has the number of its group.
    pub(crate) members: Vec<(u32, AgentIx)>,
}

pub(crate) struct Group {
    pub(crate) tree: Tree,
    /// For each link, the only agent behind it. `None` if there is no such agent, or if the tree branches further on.
    sole_receiver: Vec<Option<AgentIx>>,
    /// How often the tree has changed.
    pub(crate) changes: u64,
}

impl Group {
    pub(crate) fn new(tree: Tree, links: usize) -> Self {
        Self { tree, sole_receiver: vec![None; links], changes: 0 }
    }

    pub(crate) fn sole_receiver(&self, link: u32) -> Option<AgentIx> {
        self.sole_receiver[link as usize]
    }
}

/// A packet that has reached its destination.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The receiving agent.
    pub agent: AgentIx,
    /// The packet's index in the pool.
    pub packet: PacketIx,
    /// The ECN field at arrival.
    pub ecn: Ecn,
}

/// Copies of one packet that arrive at the same time, as one event.
#[derive(Default)]
pub struct Fan {
    pub(crate) packet: PacketIx,
    pub(crate) legs: Vec<Leg>,
}

/// One of the copies in a [`Fan`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    pub(crate) link: u32,
    pub(crate) ecn: Ecn,
}

impl Leg {
    /// Returns the link direction by which the copy arrives.
    pub const fn direction(&self) -> DirIx {
        DirIx(self.link)
    }

    /// Returns the ECN field at arrival.
    pub const fn ecn(&self) -> Ecn {
        self.ecn
    }
}

impl Fan {
    /// Returns the packet that was copied.
    pub const fn packet(&self) -> PacketIx {
        self.packet
    }

    /// Returns the copies, ordered by link direction.
    pub fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// Retains only the copies for which `keep` returns true. The caller must release the other copies by
    /// [`crate::Network::release_copies`].
    pub fn keep(&mut self, keep: impl FnMut(&Leg) -> bool) {
        self.legs.retain(keep);
    }
}

/// The [`Fan`]s that have not arrived yet. The free slots of `fans`, and the memory of arrived fans (`spare`), are
/// reused.
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

    pub(crate) fn keep(&mut self, mut legs: Vec<Leg>) {
        legs.clear();
        self.spare.push(legs);
    }
}

impl Net {
    /// Sends a packet from an agent on `node`. Adds a delivery to `out` for each receiving agent on the same node. Each
    /// delivery has its own copy of the packet, which the caller must release.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        now: Time,
        node: u32,
        head: Head,
        body: impl FnOnce() -> Body,
        out: &mut Vec<Delivery>,
    ) {
        let Head { to, size, ecn, .. } = head;
        let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
        let packet = self.pool.put(head, body);
        match to {
            To::One { path, .. } => {
                if let Some(delivery) = self.forward(now, path, packet, size, ecn) {
                    out.push(delivery);
                }
            }
            To::Group(group) => self.spread(now, node, None, group, packet, ecn, out),
        }
    }

    /// Delivers or forwards the first packet of a lane.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, now: Time, lane: u32, out: &mut Vec<Delivery>) -> Option<Delivery> {
        let lane = &mut self.lanes.lanes[lane as usize];
        // Ignore an outdated event. After a reordering, the key of a packet can be in the event queue twice. At the
        // second event, the lane is empty or its first packet arrives later.
        let InFlight { key, packet, size, place, ecn } = *lane.front()?;
        if key.at() > now {
            return None;
        }
        // Put the key of the next packet into the event queue. The queue contains only the key of each lane's first
        // packet.
        if let Some(next) = lane.pop() {
            self.events.replace(next);
        }
        self.hops += 1;
        if place & MARK != 0 {
            return self.arrive_in_group(now, place & !MARK, packet, ecn, out);
        }
        self.forward(now, PathIx(place), packet, size, ecn)
    }

    #[inline]
    pub(crate) fn arrive_in_group(
        &mut self,
        now: Time,
        l: u32,
        packet: PacketIx,
        ecn: Ecn,
        out: &mut Vec<Delivery>,
    ) -> Option<Delivery> {
        let To::Group(group) = self.pool.get(packet).head.to else { return None };
        // Deliver the packet directly if there is only one receiver behind the link. This is so for most copies.
        if let Some(agent) = self.groups[group as usize].sole_receiver[l as usize] {
            return Some(Delivery { agent, packet, ecn });
        }
        let node = self.links[l as usize].to;
        self.spread(now, node, Some(l), group, packet, ecn, out);
        out.pop()
    }

    #[inline(always)]
    fn forward(&mut self, now: Time, position: PathIx, packet: PacketIx, size: u32, ecn: Ecn) -> Option<Delivery> {
        match self.paths.next(position) {
            NextStep::Agent(agent) => Some(Delivery { agent, packet, ecn }),
            NextStep::Link(link) => {
                // Continue at the next position of the path, which follows this link.
                let place = position.0 + 1;
                let hop = &mut self.links[link as usize];
                match hop.pass(now, size) {
                    Some(latency) if hop.shared.latency == latency => {
                        let lane = hop.shared.lane;
                        self.put_in_lane(now + latency, lane, packet, size, place, ecn);
                    }
                    passed => self.forward_on_slow_path(now, link, passed, Held { packet, size, place, ecn }),
                }
                None
            }
        }
    }

    #[inline(never)]
    fn forward_on_slow_path(&mut self, now: Time, link: u32, passed: Option<Span>, held: Held) {
        let hop = &mut self.links[link as usize];
        let fate = match passed {
            Some(latency) => Fate::Arrives { at: now + latency, ecn: held.ecn },
            None if hop.needs_slow_path => return self.forward_on_special_link(now, link, held),
            None => hop.link.offer_slowly(now, Bytes::new(u64::from(held.size)), held.ecn),
        };
        match fate {
            Fate::Arrives { at, ecn } => self.depart(now, at, link, Held { ecn, ..held }),
            Fate::Dropped(_) | Fate::Held(_) => self.pool.release(held.packet),
        }
    }

    #[inline(never)]
    fn forward_on_special_link(&mut self, now: Time, link: u32, held: Held) {
        match self.offer(now, link, held) {
            Some((at, ecn)) => self.depart(now, at, link, Held { ecn, ..held }),
            None => self.pool.release(held.packet),
        }
    }

    /// Forwards a packet of a group on all branches at `node`, and delivers it to the members there.
    #[allow(clippy::too_many_arguments, reason = "an inner call: a struct would be built and taken apart per hop")]
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
        let Head { from, size, .. } = self.pool.get(packet).head;
        let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
        for &(g, agent) in &self.nodes[node as usize].members {
            // Skip the sender, which does not receive its own packets.
            if g == group && agent != from {
                self.pool.copy(packet, 1);
                out.push(Delivery { agent, packet, ecn });
            }
        }
        // Find the link that leads back, because no copy returns the way by which the packet arrived.
        let back = via.map(|l| self.links[l as usize].reverse);
        // Take the branches out of the tree, because `offer` borrows the whole network.
        let branches = self.groups[group as usize].tree.take_branches(node);
        // Collect the copies that arrive at the time `together`, because they become one `Fan`.
        let (mut together, mut legs) = (Time::NEVER, self.fans.spare());
        for &link in branches.iter().filter(|link| Some(**link) != back) {
            let offered = match self.links[link as usize].pass(now, size) {
                Some(latency) => Some((now + latency, ecn)),
                None => self.offer(now, link, Held { packet, size, place: MARK | link, ecn }),
            };
            let Some((at, ecn)) = offered else { continue };
            if at != together {
                if !legs.is_empty() {
                    let spare = self.fans.spare();
                    let legs = std::mem::replace(&mut legs, spare);
                    self.put_in_flight(now, legs, together, packet, size);
                }
                together = at;
            }
            legs.push(Leg { link, ecn });
        }
        if legs.is_empty() {
            self.fans.keep(legs);
        } else {
            self.put_in_flight(now, legs, together, packet, size);
        }
        self.groups[group as usize].tree.give_branches_back(node, branches);
        // Release this copy, because each member and each branch has a copy of its own.
        self.pool.release(packet);
    }

    fn put_in_flight(&mut self, now: Time, legs: Vec<Leg>, at: Time, packet: PacketIx, size: u32) {
        self.pool.copy(packet, legs.len() as u32);
        // Send a single copy as an ordinary packet, which needs no fan.
        if let [Leg { link, ecn }] = legs[..] {
            self.fans.keep(legs);
            self.depart(now, at, link, Held { packet, size, place: MARK | link, ecn });
        } else {
            let n = self.fans.put(Fan { packet, legs });
            let key = self.events.key(at, EventKind::Fan(n));
            self.events.put(key);
        }
    }

    /// Offers a packet to link `l`. Returns when it arrives, and its ECN field on arrival. Returns `None` if the link
    /// drops or holds the packet.
    fn offer(&mut self, now: Time, l: u32, held: Held) -> Option<(Time, Ecn)> {
        let Held { packet, size, ecn, .. } = held;
        let hop = &mut self.links[l as usize];
        if !hop.needs_slow_path {
            return match hop.link.offer_slowly(now, Bytes::new(u64::from(size)), ecn) {
                Fate::Arrives { at, ecn } => Some((at, ecn)),
                Fate::Dropped(_) | Fate::Held(_) => None,
            };
        }
        // Compute the flow only if the link holds packets, because hashing takes time. Only such a link may have fair
        // queueing, which needs the flow.
        let flow = if hop.link.holds_packets() { self.pool.get(packet).flow() } else { 0 };
        let fate = hop.link.offer_with_flow(now, Bytes::new(u64::from(size)), ecn, flow);
        if let Fate::Held(token) = fate {
            // Add a copy for the link. The caller releases its own copy.
            self.pool.copy(packet, 1);
            self.holds.put(l, token, held);
        } else if hop.captured {
            self.record_capture(now, l, packet, ecn, fate);
        }
        if let Fate::Arrives { ecn, .. } = fate {
            self.schedule_duplicate(now, l, Held { ecn, ..held });
        }
        self.drain_queue(now, l);
        // Return no arrival for a held packet, because `drain_queue` has processed the held packets.
        match fate {
            Fate::Arrives { at, ecn } => Some((at, ecn)),
            Fate::Dropped(_) | Fate::Held(_) => None,
        }
    }

    fn schedule_duplicate(&mut self, now: Time, l: u32, held: Held) {
        if let Some(at) = self.links[l as usize].link.copy() {
            self.pool.copy(held.packet, 1);
            self.depart(now, at, l, held);
        }
    }

    pub(crate) fn serve_queue(&mut self, now: Time, l: u32) {
        // Ignore an outdated event. An earlier event of this link has replaced it.
        if let Some(hold) = self.holds.links.get_mut(&l).filter(|hold| hold.armed <= now) {
            hold.armed = Time::NEVER;
            self.drain_queue(now, l);
        }
    }

    /// Processes the packets of link `l` whose fates are known. Schedules the event for the next fate.
    fn drain_queue(&mut self, now: Time, l: u32) {
        while let Some((token, fate)) = self.links[l as usize].link.take(now) {
            let Some(held) = self.holds.take(l, token) else { continue };
            if self.links[l as usize].captured {
                self.record_capture(now, l, held.packet, held.ecn, fate);
            }
            match fate {
                Fate::Arrives { at, ecn } => {
                    self.schedule_duplicate(now, l, Held { ecn, ..held });
                    self.depart(now, at, l, Held { ecn, ..held });
                }
                Fate::Dropped(_) | Fate::Held(_) => self.pool.release(held.packet),
            }
        }
        // Schedule an event if it is due earlier than the link's present event. The later event stays in the event
        // queue, but has no effect.
        if let (Some(due), Some(hold)) = (self.links[l as usize].link.due(), self.holds.links.get_mut(&l))
            && due < hold.armed
        {
            hold.armed = due;
            let key = self.events.key(due, EventKind::Queue(l));
            self.events.put(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_capture(&mut self, now: Time, l: u32, packet: PacketIx, ecn: Ecn, fate: Fate) {
        if let Some(captures) = &mut self.captures {
            captures.on_packet(l, now, self.pool.get(packet), ecn, fate);
        }
    }

    #[inline]
    fn depart(&mut self, now: Time, at: Time, link: u32, Held { packet, size, place, ecn }: Held) {
        let (latency, hop) = (at.since(now), &mut self.links[link as usize]);
        // Packets with equal latencies arrive in the order in which they were offered, so they can share a lane.
        // Latencies are often equal if a packet waits for no other packet, or for a single one.
        let idle = hop.link.was_idle();
        let lane = if idle || hop.link.was_second(latency) {
            let shared = if idle { &mut hop.shared } else { &mut hop.second };
            if shared.latency != latency {
                *shared = self.lanes.shared(latency, link);
            }
            shared.lane
        } else {
            link
        };
        self.put_in_lane(at, lane, packet, size, place, ecn);
    }

    #[inline(always)]
    fn put_in_lane(&mut self, at: Time, lane: u32, packet: PacketIx, size: u32, place: u32, ecn: Ecn) {
        let key = self.events.key(at, EventKind::Lane(lane));
        // If this packet is now the first of its lane, add its key to the event queue. The key of the former first
        // packet stays there.
        if self.lanes.lanes[lane as usize].put(InFlight { key, packet, size, place, ecn }) {
            self.events.put(key);
        }
    }

    /// Applies one step of a join or leave. Returns the next step towards the source, if there is one.
    pub(crate) fn graft(&mut self, group: u32, step: Step) -> Option<Step> {
        let links = &self.links;
        let Group { tree, sole_receiver, changes } = &mut self.groups[group as usize];
        *changes += 1;
        let next = tree.step(step, |l| (links[l as usize].to, links[l as usize].reverse));
        let up = tree.up(step.node)?;
        let (parent, down) = (links[up as usize].to, links[up as usize].reverse);
        for (node, out, back) in [(step.node, up, down), (parent, down, up)] {
            debug_assert_eq!(links[out as usize].reverse, back);
            sole_receiver[back as usize] = None;
            let mut members = self.nodes[node as usize].members.iter().filter(|(g, _)| *g == group);
            let only = members.next().filter(|_| members.next().is_none()).map(|(_, agent)| *agent);
            match *tree.branches(node) {
                // With a single branch, a packet from this branch is delivered to the node's members and is not
                // forwarded.
                [one] => sole_receiver[links[one as usize].reverse as usize] = only,
                // With two branches, a packet from one branch is forwarded to the other. So neither branch has a sole
                // receiver. With more branches, this has been recorded before.
                [one, other] => {
                    for branch in [one, other] {
                        sole_receiver[links[branch as usize].reverse as usize] = None;
                    }
                }
                _ => {}
            }
        }
        next
    }

    pub(crate) fn packets_on_links(&self) -> Vec<u64> {
        let mut on = vec![0; self.links.len()];
        for (link, hold) in &self.holds.links {
            on[*link as usize] += hold.packets.iter().flatten().count() as u64;
        }
        for flying in self.lanes.lanes.iter().flat_map(Lane::iter) {
            let link = match flying.place {
                // Look up the present link, which is the step before the position on the path.
                place if place & MARK == 0 => self.paths.steps[place as usize - 1],
                place => place & !MARK,
            };
            on[link as usize] += 1;
        }
        for leg in self.fans.fans.iter().flat_map(|fan| &fan.legs) {
            on[leg.link as usize] += 1;
        }
        on
    }
}
