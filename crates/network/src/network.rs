//! A scenario's network: links, ways between nodes, groups with their trees, and what happens to packets on them.
//!
//! A driver calls [`Network::step`] for one event of its own after the other, and takes after each what was delivered
//! from [`Network::delivered`]. The events are the network's own and the alarms that the driver has set for itself
//! ([`Network::set_alarm`]): one agenda orders both, ties by the order of scheduling.

use crate::agenda::{Agenda, Due};
use crate::capture::{Taps, Who};
use crate::config::link_config;
use crate::net::{Capture, Delivery, Fan, Fans, Group, Holds, Hop, Lanes, Net, Node, Paths};
use crate::packet::{Head, Packet, PacketIx, Pool, To};
use crate::tree::{Graph, Step, Tree};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_ends::{AgentIx, Body, BuildError, Kept, LinkPoint, LinkRecord, Rows, Store};
use steadycast_link::{Counts, Link};
use steadycast_scenario::{self as sc, DirIx, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// What a driver has asked to be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// An agent wants to be called.
    Agent(AgentIx),
    /// An entry of the driver's plan is due, by its place there.
    Entry(u32),
}

/// What [`Network::step`] has done.
pub enum Event {
    /// A packet has reached an agent. [`Network::delivered`] has what else has arrived with it.
    Arrived(Delivery),
    /// Copies of one packet arrive together. They wait until the driver says what becomes of them: [`Network::spread`]
    /// or [`Network::absorb`].
    Together(Fan),
    /// An alarm of the driver is due.
    Alarm(Alarm),
}

/// A join or a leave on its way to the next router.
#[derive(Clone, Copy)]
struct Graft {
    group: u32,
    node: NodeIx,
    join: bool,
}

/// A scenario's links, ways and trees, with all packets that are under way.
pub struct Network {
    net: Net,
    graph: Graph,
    /// Routes that have been computed, by their target node.
    routes: BTreeMap<u32, u32>,
    grafts: Vec<Graft>,
    /// The propagation delay of each direction at the start.
    delays: Vec<Span>,
    join_latency: Span,
    leave_latency: Span,
    warmup: Span,
    /// For each direction that is recorded.
    series: Vec<Rows<LinkPoint>>,
    last: Vec<Carried>,
    /// What the links had counted when the warm-up was over; empty until then, and without one.
    warm: Vec<Counts>,
    /// What the links had sent when the run was over; empty until then.
    ended: Vec<Bytes>,
    deliveries: Vec<Delivery>,
    /// The copies that [`Network::spread`] has still to let arrive.
    spreading: Option<(Fan, usize)>,
}

/// What a direction of a link has carried and dropped so far.
#[derive(Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    dropped: u64,
}

/// Directions are recorded when there are no more than this: a report with more would show nothing.
const MOST_SERIES: usize = 512;

impl Network {
    /// The network of a scenario, without groups.
    ///
    /// # Errors
    /// A link that can't be, or too many of them.
    pub fn new(scenario: &Scenario) -> Result<Self, BuildError> {
        if scenario.links.len() > 1 << 28 || scenario.nodes.len() > 1 << 28 {
            return Err(BuildError::new("links", "the scenario has too many of them"));
        }
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
        let recorded = if links.len() <= MOST_SERIES { links.len() } else { 0 };
        let net = Net {
            lanes: Lanes::new(links.len()),
            links,
            nodes: (0..scenario.nodes.len()).map(|_| Node::default()).collect(),
            routes: Vec::new(),
            paths: Paths::default(),
            groups: Vec::new(),
            pool: Pool::default(),
            agenda: Agenda::default(),
            hops: 0,
            fans: Fans::default(),
            holds: Holds::default(),
            capture: None,
        };
        Ok(Self {
            net,
            graph,
            routes: BTreeMap::new(),
            grafts: Vec::new(),
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

    /// The place of the ways towards `node` among the routes; they are computed once.
    fn route(&mut self, node: NodeIx) -> usize {
        let Self { net, graph, routes, .. } = self;
        let route = routes.entry(node.0).or_insert_with(|| {
            net.routes.push(graph.ways_to(node.0, |l| DirIx(l).reverse().0));
            net.routes.len() as u32 - 1
        });
        *route as usize
    }

    /// Checks that a way leads from a flow's source to each of its receivers.
    ///
    /// # Errors
    /// The first receiver to which none leads.
    pub fn check_ways(&mut self, scenario: &Scenario, flow: &sc::Flow) -> Result<(), BuildError> {
        let route = self.route(flow.from);
        let cut = |to: &&NodeIx| **to != flow.from && self.net.routes[route][to.0 as usize].is_none();
        flow.to.iter().find(cut).map_or(Ok(()), |to| {
            let (from, to) = (scenario.node_name(flow.from), scenario.node_name(*to));
            Err(BuildError::new(format!("flow.{}", flow.name), format!("no way leads from {from} to {to}")))
        })
    }

    /// Where packets from the node `from` go to `agent` on the node `to`; `None` where no way leads there.
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

    /// The directions that packets from `source` take to a receiver's node, the last one first.
    pub fn directions(&mut self, source: NodeIx, receiver: NodeIx) -> Vec<DirIx> {
        let route = self.route(source);
        let Net { routes, links, .. } = &self.net;
        let step = |node: u32| routes[route][node as usize].map(|up| (up, links[up as usize].to));
        std::iter::successors(step(receiver.0), |(_, node)| step(*node)).map(|(up, _)| DirIx(up).reverse()).collect()
    }

    /// The directions that a flow's data takes to all its receivers, in order, each once.
    fn directions_of(&mut self, flow: &sc::Flow) -> Vec<DirIx> {
        let (mut all, mut most) = (Vec::new(), 1 << 16);
        for to in &flow.to {
            all.extend(self.directions(flow.from, *to));
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

    /// The directions that a flow's data takes, as numbers: to all its receivers together, or to each of them where
    /// each is served by a
    /// stream of its own.
    pub fn ways_of(&mut self, flow: &sc::Flow) -> Vec<Vec<u32>> {
        let numbers = |directions: Vec<DirIx>| directions.into_iter().map(|direction| direction.0).collect();
        match flow.cast {
            sc::Cast::Unicast | sc::Cast::UnicastEach => {
                flow.to.iter().map(|to| numbers(self.directions(flow.from, *to))).collect()
            }
            sc::Cast::Multicast => vec![numbers(self.directions_of(flow))],
        }
    }

    /// Makes a group with this source; returns its number.
    pub fn add_group(&mut self, source: NodeIx) -> u32 {
        let route = self.route(source);
        let up = self.net.routes[route].clone();
        self.net.groups.push(Group::new(Tree::new(up), self.net.links.len()));
        self.groups() - 1
    }

    /// Groups so far.
    pub fn groups(&self) -> u32 {
        self.net.groups.len() as u32
    }

    /// What reaches this node for the group is delivered to `agent`. Whether anything reaches it is decided by joins.
    pub fn add_member(&mut self, group: u32, node: NodeIx, agent: AgentIx) {
        let members = &mut self.net.nodes[node.0 as usize].members;
        if !members.contains(&(group, agent)) {
            members.push((group, agent));
        }
    }

    /// A node is in the group from now on, up to the source, without any delay.
    pub fn graft(&mut self, group: u32, node: NodeIx) {
        let mut step = Some(Step { node: node.0, join: true });
        while let Some(now) = step {
            step = self.net.graft(group, now);
        }
    }

    /// A node joins a group or leaves it at `at`. It takes effect where the next router hears of it.
    pub fn turn(&mut self, at: Time, group: u32, node: NodeIx, join: bool) {
        let at = self.heard_at(at, group, node);
        self.plan(at, Graft { group, node, join });
    }

    /// When the next router hears of a join or leave that a node says at `at`.
    pub fn heard_at(&self, at: Time, group: u32, node: NodeIx) -> Time {
        let up = self.net.groups.get(group as usize).and_then(|g| g.tree.up(node.0));
        at + up.map_or(Span::ZERO, |link| self.delays[link as usize])
    }

    fn plan(&mut self, at: Time, graft: Graft) {
        let key = self.net.agenda.key(at, Due::Graft(self.grafts.len() as u32));
        self.net.agenda.put(key);
        self.grafts.push(graft);
    }

    /// The next router hears now that a node joins a group or leaves it. Routers further up hear of it later.
    pub fn turn_now(&mut self, now: Time, group: u32, node: NodeIx, join: bool) {
        if let Some(Step { node, join }) = self.net.graft(group, Step { node: node.0, join }) {
            let latency = if join { self.join_latency } else { self.leave_latency };
            self.turn(now + latency, group, NodeIx(node), join);
        }
    }

    /// The one agent that a packet of the group is for which arrives by this direction, where that is all it is for.
    pub fn leaf(&self, group: u32, direction: DirIx) -> Option<AgentIx> {
        self.net.groups[group as usize].leaf(direction.0)
    }

    /// The node at which a direction begins.
    pub fn begins_at(&self, direction: DirIx) -> NodeIx {
        let links = &self.net.links;
        NodeIx(links[links[direction.0 as usize].reverse as usize].to)
    }

    /// The directions that packets of the group take from the node at which this one begins, in order.
    pub fn beside(&self, group: u32, direction: DirIx) -> impl Iterator<Item = DirIx> {
        let branches = self.net.groups[group as usize].tree.branches(self.begins_at(direction).0);
        branches.iter().copied().map(DirIx)
    }

    /// How often the group's tree has changed: what [`Network::leaf`] has told may be otherwise after a change.
    pub fn changes(&self, group: u32) -> u64 {
        self.net.groups[group as usize].changes
    }

    /// A packet leaves its agent on `node`. What it is for on the same node is delivered at once.
    #[inline(always)]
    pub fn send(&mut self, now: Time, node: NodeIx, head: Head, body: impl FnOnce() -> Body) {
        self.net.send(now, node.0, head, body, &mut self.deliveries);
    }

    /// Has [`Network::step`] return an alarm at `at`. Among equal times, alarms and packets come in the order of their
    /// making.
    #[inline]
    pub fn set_alarm(&mut self, at: Time, alarm: Alarm) {
        let due = match alarm {
            Alarm::Agent(agent) => Due::Agent(agent.0),
            Alarm::Entry(n) => Due::Entry(n),
        };
        let key = self.net.agenda.key(at, due);
        self.net.agenda.put(key);
    }

    /// When something is due next; `Time::ZERO` when something waits to be taken from [`Network::delivered`]. To be
    /// asked when [`Network::step`] has returned nothing.
    pub fn next(&self) -> Time {
        if self.deliveries.is_empty() { self.net.agenda.next() } else { Time::ZERO }
    }

    /// Goes on up to and including `until`, or to the next event that is the driver's; tells its time. `None`: nothing
    /// is due until then.
    #[inline]
    pub fn step(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            let (at, due) = self.net.agenda.take(until)?;
            let event = match due {
                Due::Lane(lane) => match self.net.arrive(at, lane, &mut self.deliveries) {
                    Some(delivery) => Event::Arrived(delivery),
                    None => continue,
                },
                Due::Agent(agent) => Event::Alarm(Alarm::Agent(AgentIx(agent))),
                Due::Entry(n) => Event::Alarm(Alarm::Entry(n)),
                Due::Fan(n) => {
                    let fan = self.net.fans.take(n);
                    self.net.hops += fan.legs.len() as u64;
                    Event::Together(fan)
                }
                Due::Queue(link) => {
                    self.net.ask(at, link);
                    continue;
                }
                Due::Graft(n) => {
                    let Graft { group, node, join } = self.grafts[n as usize];
                    self.turn_now(at, group, node, join);
                    continue;
                }
            };
            return Some((at, event));
        }
    }

    /// Copies that have arrived together are delivered and go on, each where it is: to be called until it returns
    /// `false`. What each has brought is taken from [`Network::delivered`] in between.
    pub fn spread(&mut self, now: Time, fan: Option<Fan>) -> bool {
        if let Some(fan) = fan {
            self.spreading = Some((fan, 0));
        }
        let Some((fan, next)) = &mut self.spreading else { return false };
        let Some(leg) = fan.legs.get(*next).copied() else {
            let legs = std::mem::take(&mut fan.legs);
            self.net.fans.keep(legs);
            self.spreading = None;
            return false;
        };
        *next += 1;
        let packet = fan.packet;
        let delivery = self.net.arrive_in_group(now, leg.link, packet, leg.ecn, &mut self.deliveries);
        // It comes first: what lies there was put in by this call, or by none.
        self.deliveries.extend(delivery);
        true
    }

    /// Gives copies of a packet back that were taken out of a fan.
    pub fn release_all(&mut self, ix: PacketIx, copies: u32) {
        self.net.pool.release_all(ix, copies);
    }

    /// The next packet that has reached an agent. Its copy is the driver's: it gives it back by [`Network::release`].
    #[inline]
    pub fn delivered(&mut self) -> Option<Delivery> {
        self.deliveries.pop()
    }

    /// The place of the packet that is sent next.
    pub(crate) fn next_packet(&self) -> PacketIx {
        self.net.pool.next()
    }

    /// A packet.
    #[inline]
    pub fn packet(&self, ix: PacketIx) -> &Packet {
        self.net.pool.get(ix)
    }

    /// Gives a delivered copy of a packet back.
    #[inline]
    pub fn release(&mut self, ix: PacketIx) {
        self.net.pool.release(ix);
    }

    /// The older part of the links' series is to go there.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.series.iter_mut().for_each(|series| series.keep_in(store));
    }

    /// The run is over: fetches the links' series.
    ///
    /// # Errors
    /// The store's.
    pub fn recall(&mut self) -> io::Result<()> {
        self.series.iter_mut().try_for_each(Kept::recall)
    }

    /// Ends one step of the links' series.
    pub fn sample(&mut self, now: Time) {
        for ((series, hop), last) in self.series.iter_mut().zip(&mut self.net.links).zip(&mut self.last) {
            let link = &mut hop.link;
            let sent = link.sent(now).get();
            debug_assert!(sent >= last.bytes, "a link was asked about the past");
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

    /// Keeps what the links have counted, once: when the warm-up is over. Means leave it out.
    pub fn end_warmup(&mut self, now: Time) {
        if self.warm.is_empty() && !self.warmup.is_zero() && now >= Time::ZERO + self.warmup {
            self.warm = self.net.links.iter().map(|hop| hop.link.counts(now)).collect();
        }
    }

    /// Keeps what the links have sent: the run is over, and what still leaves is not part of it.
    pub fn end_run(&mut self, now: Time) {
        self.ended = self.net.links.iter().map(|hop| hop.link.sent(now)).collect();
    }

    /// Has what is offered to the links that the scenario captures written as pcapng: one stream per link, both
    /// directions in it. `open` is told a link's name; `who` is told of each agent in order. Packets stand in it at the
    /// time at which they come to the link's entry, or, where its queue decides when they leave, at which they do;
    /// those that it drops with a comment.
    ///
    /// # Errors
    /// The streams', with the link's name.
    pub fn capture(
        &mut self,
        scenario: &Scenario,
        who: Vec<Who>,
        mut open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let mut taps = Taps::new(who);
        for link in &scenario.record.pcap {
            taps.open(scenario, *link, &mut open)?;
            for direction in [DirIx::forward(*link), DirIx::back(*link)] {
                self.net.links[direction.0 as usize].capture();
            }
        }
        self.net.capture = Some(Box::new(taps));
        Ok(())
    }

    /// Ends the captures; without any it does nothing.
    ///
    /// # Errors
    /// The first that a stream had during the run, with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.net.capture.take().map_or(Ok(()), Capture::finish)
    }

    /// Packets that have left a link so far.
    pub fn hops(&self) -> u64 {
        self.net.hops
    }

    /// The links as a record of the run until `now` shows them, two directions each.
    pub fn links(&self, now: Time) -> Vec<LinkRecord<'_>> {
        let hops = self.net.links.iter().zip(self.net.under_way()).enumerate();
        hops.map(|(n, (hop, on_it))| LinkRecord {
            link: &hop.link,
            before: self.warm.get(n),
            sent: self.ended.get(n).copied().unwrap_or_else(|| hop.link.sent(now)),
            carried: hop.link.arrived() - on_it,
            series: self.series.get(n).map_or(&[][..], |series| series),
        })
        .collect()
    }
}
