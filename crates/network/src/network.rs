//! The network of a scenario: links, paths, and groups with their trees. It forwards packets.
//!
//! A driver calls [`Network::step`] for the next event, and takes packets from [`Network::delivered`]. The timers that
//! the driver sets by [`Network::set_alarm`] are in the same event queue. Events at the same time are in the order in
//! which they were scheduled.

use crate::capture::{AgentInfo, Captures};
use crate::config::link_config;
use crate::event_queue::{EventKind, EventQueue};
use crate::net::{Delivery, Fan, Fans, Group, HeldPackets, Hop, Lanes, Net, Node, Paths};
use crate::packet::{Head, Packet, PacketIx, Pool, To};
use crate::tree::{Graph, Step, Tree};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_endpoints::{
    AgentIx, Body, BuildError, LinkPoint, LinkRecord, Path, Rows, Store, StoredRows, membership,
};
use steadycast_link::{Counts, Link};
use steadycast_scenario::{self as sc, DirIx, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// A timer of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// An agent's timer.
    Agent(AgentIx),
    /// A timer with an index that the caller chooses. For example, it may be for a planned start or stop.
    Entry(u32),
}

/// An event that [`Network::step`] returns.
pub enum Event {
    /// A packet has reached an agent. [`Network::delivered`] returns further packets that arrived with it.
    Arrived(Delivery),
    /// Copies of a packet arrive at the same time. The driver has to pass them to [`Network::spread`].
    FanOut(Fan),
    /// A driver's timer has expired.
    Alarm(Alarm),
}

/// A join or leave that is on its way to the next router.
#[derive(Clone, Copy)]
struct MembershipChange {
    group: u32,
    node: NodeIx,
    join: bool,
}

/// The links, paths and trees of a scenario, with the packets in flight.
pub struct Network {
    net: Net,
    graph: Graph,
    /// For each node towards which routes were computed, the index of these routes in `net.routes`.
    routes: BTreeMap<u32, u32>,
    membership_changes: Vec<MembershipChange>,
    /// The initial delay of each link direction.
    delays: Vec<Span>,
    join_latency: Span,
    leave_latency: Span,
    warmup: Span,
    /// One time series per recorded link direction.
    series: Vec<Rows<LinkPoint>>,
    last: Vec<Carried>,
    /// The counters of all links at the end of the warm-up. Empty before that, and if there is no warm-up.
    warm: Vec<Counts>,
    /// The number of bytes that each link had sent at the end of the run.
    ended: Vec<Bytes>,
    deliveries: Vec<Delivery>,
    /// The copies of a packet ([`Fan`]) that [`Network::spread`] processes, and the index of the next one.
    spreading: Option<(Fan, usize)>,
}

#[derive(Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    dropped: u64,
}

/// Maximum number of recorded link directions. If there are more link directions, none is recorded, because so many
/// would not be readable.
const MAX_SERIES: usize = 512;

impl Network {
    /// Creates the network of a scenario. It has no groups yet.
    ///
    /// # Errors
    /// Returns an error if a link is invalid.
    pub fn new(scenario: &Scenario) -> Result<Self, BuildError> {
        let ends = scenario.links.iter().flat_map(|l| [(l.a.0, l.b.0), (l.b.0, l.a.0)]);
        let graph = Graph::new(scenario.nodes.len(), ends);
        let directions = 2 * scenario.links.len();
        let (mut links, mut delays) = (Vec::with_capacity(directions), Vec::with_capacity(directions));
        for (n, l) in scenario.links.iter().enumerate() {
            let link = sc::LinkIx(n as u32);
            for (way, direction, to) in [(DirIx::forward(link), &l.forward, l.b), (DirIx::back(link), &l.back, l.a)] {
                let config = link_config(direction, scenario, way)?;
                let name = format!("{}.{}", l.name, if way.is_back() { "back" } else { "forward" });
                links.push(Hop::new(Link::new(&config, &name, scenario.seed), to.0, way.reverse().0));
                delays.push(direction.delay);
            }
        }
        let recorded = if links.len() <= MAX_SERIES { links.len() } else { 0 };
        let net = Net {
            lanes: Lanes::new(links.len()),
            links,
            nodes: (0..scenario.nodes.len()).map(|_| Node::default()).collect(),
            routes: Vec::new(),
            paths: Paths::default(),
            groups: Vec::new(),
            pool: Pool::default(),
            events: EventQueue::default(),
            hops: 0,
            fans: Fans::default(),
            holds: HeldPackets::default(),
            captures: None,
        };
        Ok(Self {
            net,
            graph,
            routes: BTreeMap::new(),
            membership_changes: Vec::new(),
            delays,
            join_latency: scenario.join_latency,
            leave_latency: scenario.leave_latency,
            warmup: scenario.warmup,
            series: vec![Rows::default(); recorded],
            last: vec![Carried::default(); recorded],
            warm: Vec::new(),
            ended: Vec::new(),
            deliveries: Vec::new(),
            spreading: None,
        })
    }

    /// Returns the index of the routes towards `node`. Computes the routes at the first call.
    fn route(&mut self, node: NodeIx) -> usize {
        let Self { net, graph, routes, .. } = self;
        let route = routes.entry(node.0).or_insert_with(|| {
            net.routes.push(graph.routes_to(node.0, |l| DirIx(l).reverse().0));
            net.routes.len() as u32 - 1
        });
        *route as usize
    }

    /// Checks that paths lead from the source of a flow to all its receivers.
    ///
    /// # Errors
    /// Returns an error if no path leads to a receiver. The error mentions the first such receiver.
    pub fn check_paths(&mut self, scenario: &Scenario, flow: &sc::Flow) -> Result<(), BuildError> {
        let route = self.route(flow.from);
        // Accept a receiver on the node of the source, because it needs no link.
        let cut = |to: &&NodeIx| **to != flow.from && self.net.routes[route][to.0 as usize].is_none();
        flow.to.iter().find(cut).map_or(Ok(()), |to| {
            let (from, to) = (scenario.node_name(flow.from), scenario.node_name(*to));
            Err(BuildError::new(format!("flow.{}", flow.name), format!("no way leads from {from} to {to}")))
        })
    }

    /// Returns the destination for packets that `from` sends to `agent` on `to`. Returns `None` if there is no path.
    pub fn path(&mut self, from: NodeIx, to: NodeIx, agent: AgentIx) -> Option<To> {
        let route = self.route(to);
        let Net { routes, links, paths, .. } = &mut self.net;
        let step = |node: u32| routes[route][node as usize].map(|link| (link, links[link as usize].to));
        if from != to && step(from.0).is_none() {
            return None;
        }
        let steps = std::iter::successors(step(from.0), |(_, node)| step(*node));
        Some(To::One { agent, path: paths.add(steps.map(|(link, _)| link), agent) })
    }

    /// Returns the link directions on the path from `source` to a receiver's node. The last direction of the path comes
    /// first.
    pub fn directions(&mut self, source: NodeIx, receiver: NodeIx) -> Vec<DirIx> {
        let route = self.route(source);
        let Net { routes, links, .. } = &self.net;
        let step = |node: u32| routes[route][node as usize].map(|up| (up, links[up as usize].to));
        std::iter::successors(step(receiver.0), |(_, node)| step(*node)).map(|(up, _)| DirIx(up).reverse()).collect()
    }

    /// Returns the link directions on the paths of a flow to these receivers. They are sorted and have no duplicates.
    fn directions_to<'t>(&mut self, flow: &sc::Flow, to: impl Iterator<Item = &'t NodeIx>) -> Vec<DirIx> {
        let (mut all, mut most) = (Vec::new(), 1 << 16);
        for to in to {
            all.extend(self.directions(flow.from, *to));
            // Remove duplicates now and then, so that the memory stays proportional to the result.
            if all.len() > most {
                all.sort_unstable();
                all.dedup();
                most = most.max(2 * all.len());
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the link directions of a flow over time. A multicast flow has one path, which changes when a receiver
    /// joins or leaves. Other flows have one path per receiver.
    pub fn directions_of_flow(&mut self, scenario: &sc::Scenario, ix: sc::FlowIx) -> Vec<Path> {
        let numbers = |directions: Vec<DirIx>| directions.into_iter().map(|direction| direction.0).collect();
        let flow = &scenario.flows[ix.0 as usize];
        match flow.cast {
            sc::Cast::Unicast | sc::Cast::UnicastEach => {
                flow.to.iter().map(|to| Path::constant(numbers(self.directions(flow.from, *to)))).collect()
            }
            // The receivers of a simulcast move between its groups, and the groups share one path.
            sc::Cast::Multicast if scenario.group_of(ix).is_some() => {
                vec![Path::constant(numbers(self.directions_to(flow, flow.to.iter())))]
            }
            sc::Cast::Multicast => {
                let way = |members: &Vec<bool>| {
                    let to = flow.to.iter().zip(members).filter_map(|(to, is_member)| is_member.then_some(to));
                    numbers(self.directions_to(flow, to))
                };
                vec![membership(scenario, ix).map(way)]
            }
        }
    }

    /// Adds a group with this source. Returns the number of the group.
    pub fn add_group(&mut self, source: NodeIx) -> u32 {
        let route = self.route(source);
        let up = self.net.routes[route].clone();
        self.net.groups.push(Group::new(Tree::new(up), self.net.links.len()));
        self.groups() - 1
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u32 {
        self.net.groups.len() as u32
    }

    /// Registers `agent` as a receiver of the group. Whether packets reach its node depends on [`Self::set_membership`]
    /// and [`Self::graft`].
    pub fn add_member(&mut self, group: u32, node: NodeIx, agent: AgentIx) {
        let members = &mut self.net.nodes[node.0 as usize].members;
        if !members.contains(&(group, agent)) {
            members.push((group, agent));
        }
    }

    /// Adds a node to the tree of the group immediately, along the whole way from the source.
    pub fn graft(&mut self, group: u32, node: NodeIx) {
        let mut step = Some(Step { node: node.0, join: true });
        while let Some(now) = step {
            step = self.net.graft(group, now);
        }
    }

    /// Schedules that a node sends a join or leave at `at`. The change takes effect when it reaches the next router.
    pub fn set_membership(&mut self, at: Time, group: u32, node: NodeIx, join: bool) {
        let at = self.membership_effective_at(at, group, node);
        self.plan(at, MembershipChange { group, node, join });
    }

    /// Returns when a join or leave that is sent at `at` reaches the next router.
    pub fn membership_effective_at(&self, at: Time, group: u32, node: NodeIx) -> Time {
        let up = self.net.groups.get(group as usize).and_then(|g| g.tree.up(node.0));
        at + up.map_or(Span::ZERO, |link| self.delays[link as usize])
    }

    fn plan(&mut self, at: Time, change: MembershipChange) {
        let key = self.net.events.key(at, EventKind::MembershipChange(self.membership_changes.len() as u32));
        self.net.events.put(key);
        self.membership_changes.push(change);
    }

    /// Processes a join or leave that has reached the next router. The routers further up follow, each after the join
    /// or leave latency.
    pub fn apply_membership(&mut self, now: Time, group: u32, node: NodeIx, join: bool) {
        if let Some(Step { node, join }) = self.net.graft(group, Step { node: node.0, join }) {
            // A leave takes longer, because the router first queries for other members (RFC 3376, last member query).
            let latency = if join { self.join_latency } else { self.leave_latency };
            self.set_membership(now + latency, group, NodeIx(node), join);
        }
    }

    /// Returns the only agent behind this link direction. Returns `None` if there is no such agent, or if the tree
    /// branches further on.
    pub fn sole_receiver(&self, group: u32, direction: DirIx) -> Option<AgentIx> {
        self.net.groups[group as usize].sole_receiver(direction.0)
    }

    /// Returns the node at which a link direction begins.
    pub fn begins_at(&self, direction: DirIx) -> NodeIx {
        let links = &self.net.links;
        NodeIx(links[links[direction.0 as usize].reverse as usize].to)
    }

    /// Returns the link directions of the group that begin at the same node as `direction`, in order.
    pub fn branches_beside(&self, group: u32, direction: DirIx) -> impl Iterator<Item = DirIx> {
        let branches = self.net.groups[group as usize].tree.branches(self.begins_at(direction).0);
        branches.iter().copied().map(DirIx)
    }

    /// Returns how often the tree of the group has changed. Between two changes, [`Network::sole_receiver`] returns the
    /// same results.
    pub fn changes(&self, group: u32) -> u64 {
        self.net.groups[group as usize].changes
    }

    /// Sends a packet. Receivers on the same node receive it immediately.
    #[inline(always)]
    pub fn send(&mut self, now: Time, node: NodeIx, head: Head, body: impl FnOnce() -> Body) {
        self.net.send(now, node.0, head, body, &mut self.deliveries);
    }

    /// Schedules an alarm, which [`Network::step`] returns when it is due.
    #[inline]
    pub fn set_alarm(&mut self, at: Time, alarm: Alarm) {
        let due = match alarm {
            Alarm::Agent(agent) => EventKind::Agent(agent.0),
            Alarm::Entry(n) => EventKind::Entry(n),
        };
        let key = self.net.events.key(at, due);
        self.net.events.put(key);
    }

    /// Returns the time of the next event. Returns `Time::ZERO` while [`Network::delivered`] has packets. The result is
    /// valid only after [`Network::step`] has returned `None`.
    pub fn next(&self) -> Time {
        if self.deliveries.is_empty() { self.net.events.next() } else { Time::ZERO }
    }

    /// Processes events up to and including `until`. Stops at the first event for the driver, and returns this event.
    #[inline]
    pub fn step(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            let (at, due) = self.net.events.take(until)?;
            let event = match due {
                EventKind::Lane(lane) => match self.net.arrive(at, lane, &mut self.deliveries) {
                    Some(delivery) => Event::Arrived(delivery),
                    None => continue,
                },
                EventKind::Agent(agent) => Event::Alarm(Alarm::Agent(AgentIx(agent))),
                EventKind::Entry(n) => Event::Alarm(Alarm::Entry(n)),
                EventKind::Fan(n) => {
                    let fan = self.net.fans.take(n);
                    // Each copy counts as a hop.
                    self.net.hops += fan.legs.len() as u64;
                    Event::FanOut(fan)
                }
                EventKind::Queue(link) => {
                    self.net.serve_queue(at, link);
                    continue;
                }
                EventKind::MembershipChange(n) => {
                    let MembershipChange { group, node, join } = self.membership_changes[n as usize];
                    self.apply_membership(at, group, node, join);
                    continue;
                }
            };
            return Some((at, event));
        }
    }

    /// Delivers or forwards one copy of a [`Fan`] per call. The caller takes the deliveries from [`Network::delivered`]
    /// after each call, and repeats the call until it returns `false`.
    pub fn spread(&mut self, now: Time, fan: Option<Fan>) -> bool {
        if let Some(fan) = fan {
            self.spreading = Some((fan, 0));
        }
        let Some((fan, next)) = &mut self.spreading else { return false };
        // After the last copy, keep the memory of the fan for the next fan.
        let Some(leg) = fan.legs.get(*next).copied() else {
            let legs = std::mem::take(&mut fan.legs);
            self.net.fans.keep(legs);
            self.spreading = None;
            return false;
        };
        *next += 1;
        let packet = fan.packet;
        let delivery = self.net.arrive_in_group(now, leg.link, packet, leg.ecn, &mut self.deliveries);
        // Add this delivery last, so that it is delivered first, because `delivered` takes packets from the end.
        self.deliveries.extend(delivery);
        true
    }

    /// Releases `copies` copies of a packet that [`Fan::keep`] has removed.
    pub fn release_copies(&mut self, ix: PacketIx, copies: u32) {
        self.net.pool.release_copies(ix, copies);
    }

    /// Returns the next packet that has reached an agent. The caller must release it by [`Network::release`].
    #[inline]
    pub fn delivered(&mut self) -> Option<Delivery> {
        self.deliveries.pop()
    }

    /// Returns the pool index that the next packet will have.
    pub(crate) fn next_packet(&self) -> PacketIx {
        self.net.pool.next()
    }

    /// Returns a packet.
    #[inline]
    pub fn packet(&self, ix: PacketIx) -> &Packet {
        self.net.pool.get(ix)
    }

    /// Releases one delivered copy of a packet.
    #[inline]
    pub fn release(&mut self, ix: PacketIx) {
        self.net.pool.release(ix);
    }

    /// Moves older parts of the time series to `store`.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.series.iter_mut().for_each(|series| series.keep_in(store));
    }

    /// Reads the time series back from the store at the end of the run.
    ///
    /// # Errors
    /// Returns an error of the store.
    pub fn recall(&mut self) -> io::Result<()> {
        self.series.iter_mut().try_for_each(StoredRows::recall)
    }

    /// Ends a step of the time series: adds a point for each recorded link direction.
    pub fn sample(&mut self, now: Time) {
        for ((series, hop), last) in self.series.iter_mut().zip(&mut self.net.links).zip(&mut self.last) {
            let link = &mut hop.link;
            let sent = link.sent(now).get();
            debug_assert!(sent >= last.bytes, "a link was asked about the past");
            // Avoid a wrap of the difference in release builds, which do not check the assertion.
            let all = Carried { bytes: sent.max(last.bytes), dropped: link.dropped() };
            let before = std::mem::replace(last, all);
            series.push(LinkPoint {
                bytes: all.bytes - before.bytes,
                dropped: all.dropped - before.dropped,
                queued: link.queued(now) as u32,
                wait: link.waited(),
            });
        }
    }

    /// Saves the counters of the links at the end of the warm-up. Mean values can then exclude the warm-up.
    pub fn end_warmup(&mut self, now: Time) {
        if self.warm.is_empty() && !self.warmup.is_zero() && now >= Time::ZERO + self.warmup {
            self.warm = self.net.links.iter().map(|hop| hop.link.counts(now)).collect();
        }
    }

    /// Saves the number of bytes that each link has sent by the end of the run.
    pub fn end_run(&mut self, now: Time) {
        self.ended = self.net.links.iter().map(|hop| hop.link.sent(now)).collect();
    }

    /// Writes the packets that are offered to captured links, in pcapng format. `open` creates the output stream of a
    /// link. A stream contains both directions of its link. `agents` is indexed by [`AgentIx`].
    ///
    /// The time of a packet is its arrival at the link. If the queue drops packets when they leave it, the time is the
    /// packet's departure. Dropped packets have a comment.
    ///
    /// # Errors
    /// Returns an error of an output stream, with the name of its link.
    pub fn capture(
        &mut self,
        scenario: &Scenario,
        agents: Vec<AgentInfo>,
        mut open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let mut captures = Captures::new(agents);
        for link in &scenario.record.pcap {
            captures.open(scenario, *link, &mut open)?;
            for direction in [DirIx::forward(*link), DirIx::back(*link)] {
                self.net.links[direction.0 as usize].capture();
            }
        }
        self.net.captures = Some(captures);
        Ok(())
    }

    /// Ends the captures.
    ///
    /// # Errors
    /// Returns the first error of an output stream, with the name of its link.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.net.captures.take().map_or(Ok(()), Captures::finish)
    }

    /// Returns the number of hops so far. Each packet counts once for each link that it has left.
    pub fn hops(&self) -> u64 {
        self.net.hops
    }

    /// Returns the records of all links until `now`. Each link has two records, one per direction.
    pub fn links(&self, now: Time) -> Vec<LinkRecord<'_>> {
        let hops = self.net.links.iter().zip(self.net.packets_on_links()).enumerate();
        hops.map(|(n, (hop, on_it))| LinkRecord {
            link: &hop.link,
            before: self.warm.get(n),
            sent: self.ended.get(n).copied().unwrap_or_else(|| hop.link.sent(now)),
            // Subtract the packets in flight, because `arrived` includes them.
            carried: hop.link.arrived() - on_it,
            series: self.series.get(n).map_or(&[][..], |series| series),
        })
        .collect()
    }
}
