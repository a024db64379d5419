//! The network alone, for worlds whose hosts are not ours: datagrams as bytes, the same links, trees and events.
//!
//! Whoever drives it offers what a host lets go ([`Network::offer`]), comes back at [`Network::next`] and takes what has arrived from
//! [`Network::advance`]. Between two hosts nothing differs from the simulation: what is late is only the coming back, and it does
//! not add up, since every hop inside goes on at the time at which it was due.

use crate::agenda::{Agenda, Due};
use crate::build::{BuildError, link_config};
use crate::capture::Taps;
use crate::net::{Capture, Delivery, Fans, Group, Holds, Hop, Lanes, Net, Node, Place, Ways};
use crate::packet::{Head, Pool, To};
use crate::tree::{Graph, Step, Tree};
use crate::world::delay_of;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_ends::{AgentIx, Body, Kept, LinkPoint, LinkRecord, Rows, Store};
use steadycast_link::{Counts, Ecn, Link};
use steadycast_scenario::{self as sc, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// A scenario's links, routes and trees.
pub struct Network {
    net: Net,
    scenario: Scenario,
    /// Nodes that can send and receive, in the order of their routes.
    hosts: Vec<u32>,
    /// A node's place among the hosts.
    places: BTreeMap<u32, u32>,
    /// Ways between hosts that have been gone.
    ways: BTreeMap<(u32, u32), Option<Place>>,
    grafts: Vec<Graft>,
    series: Vec<Rows<LinkPoint>>,
    last: Vec<(u64, u64)>,
    /// What the links had counted when the warm-up was over; empty until then.
    warm: Vec<Counts>,
    deliveries: Vec<Delivery>,
}

#[derive(Clone, Copy)]
struct Graft {
    group: u32,
    node: u32,
    join: bool,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host.
    Host(NodeIx),
    /// A group, by its number: those of the scenario's multicast flows in their order, then those that [`Network::group`] made.
    Group(u32),
}

/// A datagram at a host.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When it was due.
    pub at: Time,
    /// When it was offered.
    pub sent: Time,
    /// At which host.
    pub host: NodeIx,
    /// From which host.
    pub from: NodeIx,
    /// Its ECN field now.
    pub ecn: Ecn,
    /// The datagram as it was offered.
    pub bytes: &'a [u8],
}

impl Network {
    /// The network of a scenario, with a route to each of `hosts`. Receivers that no event brings in are members of their groups.
    ///
    /// # Errors
    /// A link that can't be, or no way from a flow's source to a receiver.
    pub fn new(scenario: &Scenario, hosts: &[NodeIx]) -> Result<Self, BuildError> {
        let ends = scenario.links.iter().flat_map(|l| [(l.a.0, l.b.0), (l.b.0, l.a.0)]);
        let graph = Graph::new(scenario.nodes.len(), ends);
        let mut links = Vec::with_capacity(scenario.links.len() * 2);
        for (n, l) in scenario.links.iter().enumerate() {
            for (back, direction, to) in [(false, &l.forward, l.b.0), (true, &l.back, l.a.0)] {
                let config = link_config(direction, scenario, n as u32, back)?;
                let name = format!("{}.{}", l.name, if back { "back" } else { "forward" });
                let own = links.len() as u32;
                links.push(Hop::new(Link::new(&config, &name, scenario.seed), to, own ^ 1));
            }
        }
        let count = links.len();
        let net = Net {
            lanes: Lanes::new(count),
            links,
            nodes: (0..scenario.nodes.len()).map(|_| Node::default()).collect(),
            routes: hosts.iter().map(|h| graph.ways_to(h.0, |l| l ^ 1)).collect(),
            ways: Ways::default(),
            groups: Vec::new(),
            pool: Pool::default(),
            agenda: Agenda::default(),
            hops: 0,
            fans: Fans::default(),
            holds: Holds::default(),
            capture: None,
        };
        let mut network = Self {
            net,
            scenario: scenario.clone(),
            hosts: hosts.iter().map(|h| h.0).collect(),
            places: hosts.iter().enumerate().map(|(n, h)| (h.0, n as u32)).collect(),
            ways: BTreeMap::new(),
            grafts: Vec::new(),
            series: vec![Rows::default(); count],
            last: vec![(0, 0); count],
            warm: Vec::new(),
            deliveries: Vec::new(),
        };
        for (n, flow) in scenario.flows.iter().enumerate() {
            network.reaches(flow)?;
            if flow.cast != sc::Cast::Multicast {
                continue;
            }
            let Some(group) = network.group(flow.from) else { continue };
            network.member(group, flow.from);
            let outside = scenario.starts_outside(sc::FlowIx(n as u32));
            for (receiver, to) in flow.to.iter().enumerate() {
                network.member(group, *to);
                if outside.binary_search(&receiver).is_err() {
                    network.graft_now(group, to.0);
                }
            }
        }
        Ok(network)
    }

    fn reaches(&self, flow: &sc::Flow) -> Result<(), BuildError> {
        for to in flow.to.iter().filter(|to| **to != flow.from) {
            let ways = self.places.get(&flow.from.0).map(|p| &self.net.routes[*p as usize]);
            if ways.is_none_or(|ways| ways[to.0 as usize].is_none()) {
                let name = |n| self.scenario.node_name(n).to_owned();
                return Err(BuildError::NoWay { flow: flow.name.clone(), from: name(flow.from), to: name(*to) });
            }
        }
        Ok(())
    }

    /// A further group with this source; `None` when the source is no host.
    pub fn group(&mut self, source: NodeIx) -> Option<u32> {
        let place = *self.places.get(&source.0)?;
        let up = self.net.routes[place as usize].clone();
        self.net.groups.push(Group::new(Tree::new(up), self.net.links.len()));
        Some(self.net.groups.len() as u32 - 1)
    }

    /// Groups so far.
    pub fn groups(&self) -> u32 {
        self.net.groups.len() as u32
    }

    /// What reaches this host for the group is delivered to it, whether or not the host has joined: that decides what reaches it.
    pub fn member(&mut self, group: u32, host: NodeIx) {
        let Some(place) = self.places.get(&host.0) else { return };
        let members = &mut self.net.nodes[host.0 as usize].members;
        if !members.iter().any(|(g, _)| *g == group) {
            members.push((group, AgentIx(*place)));
        }
    }

    /// A host joins a group or leaves it now. It takes effect where the next router hears of it.
    pub fn join(&mut self, now: Time, group: u32, host: NodeIx, join: bool) {
        let Some(tree) = self.net.groups.get(group as usize).map(|g| &g.tree) else { return };
        let up = tree.up(host.0);
        let at = now + up.map_or(Span::ZERO, |link| delay_of(&self.scenario, link));
        self.plan(at, Graft { group, node: host.0, join });
    }

    fn plan(&mut self, at: Time, graft: Graft) {
        let key = self.net.agenda.key(at, Due::Plan(self.grafts.len() as u32));
        self.net.agenda.put(key);
        self.grafts.push(graft);
    }

    fn graft_now(&mut self, group: u32, node: u32) {
        let mut step = Some(Step { node, join: true });
        while let Some(now) = step {
            step = self.net.graft(group, now);
        }
    }

    /// The way between two hosts, computed once.
    fn found(&mut self, from: u32, to: u32) -> Option<Place> {
        let Self { net, ways, places, .. } = self;
        *ways.entry((from, to)).or_insert_with(|| {
            let place = *places.get(&to)?;
            let Net { routes, links, ways, .. } = net;
            let step = |node: u32| routes[place as usize][node as usize].map(|link| (link, links[link as usize].to));
            if from != to && step(from).is_none() {
                return None;
            }
            let steps = std::iter::successors(step(from), |(_, node)| step(*node));
            Some(ways.add(steps.map(|(link, _)| link), AgentIx(place)))
        })
    }

    /// A host lets a datagram go. What was due before `now` has to be taken out first, by [`Network::advance`].
    ///
    /// Returns whether there is such a target.
    pub fn offer(&mut self, now: Time, from: NodeIx, to: Target, ecn: Ecn, bytes: Vec<u8>) -> bool {
        let Some(sender) = self.places.get(&from.0).copied() else { return false };
        let to = match to {
            Target::Host(host) => match (self.places.get(&host.0).copied(), self.found(from.0, host.0)) {
                (Some(place), Some(way)) => To::One { agent: AgentIx(place), way },
                _ => return false,
            },
            Target::Group(group) if group < self.groups() => To::Group(group),
            Target::Group(_) => return false,
        };
        let size = Bytes::new(bytes.len() as u64);
        let head = Head { to, from: AgentIx(sender), size, sent: now, ecn };
        self.net.send(now, from.0, head, || Body::Raw(bytes), &mut self.deliveries);
        true
    }

    /// When something is due next. It is there to be taken by [`Network::advance`] from then on.
    pub fn next(&self) -> Time {
        if self.deliveries.is_empty() { self.net.agenda.next() } else { Time::ZERO }
    }

    /// Goes on to `now`, which is included; `arrived` is told each datagram that has arrived at a host, in the order of time.
    pub fn advance(&mut self, now: Time, mut arrived: impl FnMut(&Arrival<'_>)) {
        // What a host sent to itself.
        self.deliver(now, &mut arrived);
        while let Some((at, due)) = self.net.agenda.take(now) {
            match due {
                Due::Lane(lane) => {
                    let delivery = self.net.arrive(at, lane, &mut self.deliveries);
                    self.deliveries.extend(delivery);
                }
                Due::Fan(n) => {
                    let fan = self.net.fans.take(n);
                    self.net.hops += fan.legs.len() as u64;
                    for leg in &fan.legs {
                        let out = &mut self.deliveries;
                        let delivery = self.net.arrive_in_group(at, leg.link, fan.packet, leg.ecn, out);
                        self.deliveries.extend(delivery);
                    }
                    self.net.fans.keep(fan.legs);
                }
                Due::Plan(n) => self.follow(at, n),
                Due::Queue(link) => self.net.ask(at, link),
                Due::Agent(_) => debug_assert!(false, "a network alone has no agents"),
            }
            self.deliver(at, &mut arrived);
        }
    }

    fn follow(&mut self, at: Time, n: u32) {
        let Graft { group, node, join } = self.grafts[n as usize];
        if let Some(Step { node, join }) = self.net.graft(group, Step { node, join }) {
            let latency = if join { self.scenario.join_latency } else { self.scenario.leave_latency };
            let up = self.net.groups[group as usize].tree.up(node);
            let way = up.map_or(Span::ZERO, |link| delay_of(&self.scenario, link));
            self.plan(at + latency + way, Graft { group, node, join });
        }
    }

    fn deliver(&mut self, at: Time, arrived: &mut impl FnMut(&Arrival<'_>)) {
        for delivery in self.deliveries.drain(..) {
            let packet = self.net.pool.get(delivery.packet);
            if let Body::Raw(bytes) = &packet.body {
                let host = NodeIx(self.hosts[delivery.agent.0 as usize]);
                let from = NodeIx(self.hosts[packet.head.from.0 as usize]);
                arrived(&Arrival { at, sent: packet.head.sent, host, from, ecn: delivery.ecn, bytes });
            }
            self.net.pool.release(delivery.packet);
        }
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

    /// Ends one step of the links' series; the first that ends after the warm-up ends it as well.
    pub fn sample(&mut self, now: Time) {
        for (n, series) in self.series.iter_mut().enumerate() {
            series.push(point(&mut self.net.links[n].link, now, &mut self.last[n]));
        }
        let warmup = self.scenario.warmup;
        if self.warm.is_empty() && !warmup.is_zero() && now >= Time::ZERO + warmup {
            self.warm = self.net.links.iter().map(|hop| hop.link.counts()).collect();
        }
    }

    /// Has what is offered to the links that the scenario captures written as pcapng, as a simulation does: one stream per link.
    /// `open` is told a link's name.
    ///
    /// # Errors
    /// The streams', with the link's name.
    pub fn capture(
        &mut self,
        mut open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let mut taps = Taps::new(Vec::new());
        for link in &self.scenario.record.pcap {
            taps.open(&self.scenario, *link, &mut open)?;
            for l in [link.0 * 2, link.0 * 2 + 1] {
                self.net.links[l as usize].capture();
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

    /// The links as a record shows them, two directions each.
    pub fn links(&self) -> Vec<LinkRecord<'_>> {
        let hops = self.net.links.iter().zip(&self.series).zip(self.net.under_way()).enumerate();
        hops.map(|(n, ((hop, series), on_it))| LinkRecord {
            link: &hop.link,
            before: self.warm.get(n),
            carried: hop.link.arrived() - on_it,
            series,
        })
        .collect()
    }

    /// Directions of links that a flow's data takes, as places among the links' directions.
    pub fn way(&self, flow: &sc::Flow) -> Vec<u32> {
        let mut links = Vec::new();
        let Some(place) = self.places.get(&flow.from.0) else { return links };
        let ways = &self.net.routes[*place as usize];
        for to in &flow.to {
            let mut node = to.0;
            while let Some(Some(up)) = ways.get(node as usize) {
                links.push(up ^ 1);
                node = self.net.links[*up as usize].to;
            }
        }
        links.sort_unstable();
        links.dedup();
        links
    }
}

fn point(link: &mut Link, now: Time, last: &mut (u64, u64)) -> LinkPoint {
    let (bytes, dropped) = (link.sent().get(), link.dropped());
    let before = std::mem::replace(last, (bytes, dropped));
    LinkPoint {
        bytes: bytes - before.0,
        dropped: dropped - before.1,
        queued: link.queued(now) as u32,
        wait: link.waited(),
    }
}
