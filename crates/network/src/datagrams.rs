//! The network for hosts that are not ours: datagrams as bytes over the same links, trees and events.
//!
//! Its driver offers what a host sends ([`Datagrams::offer`]), comes back at [`Datagrams::next`] and takes what has
//! arrived from [`Datagrams::advance`]. Every hop inside happens at the time at which it is due, and each step of the
//! series is counted at its end: only the coming back is late, and lateness does not add up.

use crate::net::Delivery;
use crate::network::{Event, Network};
use crate::packet::{Head, To};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_ends::{AgentIx, Body, BuildError, LinkRecord, Store};
use steadycast_link::Ecn;
use steadycast_scenario::{self as sc, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// A network that carries datagrams between hosts.
pub struct Datagrams {
    network: Network,
    /// Nodes that can send and receive. For the network each is an agent, by its place here.
    hosts: Vec<NodeIx>,
    /// A node's place among the hosts.
    places: BTreeMap<NodeIx, AgentIx>,
    /// Where packets between two hosts go, of those that have sent.
    paths: BTreeMap<(AgentIx, NodeIx), Option<To>>,
    offered: u32,
    /// The numbers of those under way, by their places in the pool.
    numbers: Vec<u32>,
    /// What has happened until now stays: a driver that names an earlier time means this one.
    now: Time,
    step: Span,
    /// The end of the series' next step.
    sampled: Time,
    /// The end of the run, until it has come. What waits in the links then still arrives, and is not part of the run.
    end: Option<Time>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host.
    Host(NodeIx),
    /// A group, by its number: those of the scenario's multicast flows in their order, then those of
    /// [`Datagrams::add_group`].
    Group(u32),
}

/// What [`Datagrams::advance`] tells, in the order of time.
#[derive(Clone, Copy, Debug)]
pub enum Passed<'a> {
    /// A datagram has arrived at a host.
    Arrival(DatagramArrival<'a>),
    /// A step of the links' series is over.
    Step,
}

/// A datagram at a host.
#[derive(Clone, Copy, Debug)]
pub struct DatagramArrival<'a> {
    /// As [`Datagrams::offer`] said: its copies have the same.
    pub number: u32,
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

impl Datagrams {
    /// The network of a scenario between `hosts`, with a group for each multicast flow. Receivers that no event brings
    /// in are in their groups.
    ///
    /// # Errors
    /// A link that can't be, or no way from a flow's source to a receiver.
    pub fn new(scenario: &Scenario, hosts: &[NodeIx]) -> Result<Self, BuildError> {
        let places = hosts.iter().enumerate().map(|(n, host)| (*host, AgentIx(n as u32))).collect();
        let network = Network::new(scenario)?;
        let step = scenario.record.step();
        let mut new = Self {
            network,
            hosts: hosts.to_vec(),
            places,
            paths: BTreeMap::new(),
            offered: 0,
            numbers: Vec::new(),
            now: Time::ZERO,
            step,
            sampled: Time::ZERO + step,
            end: Some(Time::ZERO + scenario.duration),
        };
        for (n, flow) in scenario.flows.iter().enumerate() {
            new.network.check_ways(scenario, flow)?;
            if flow.cast != sc::Cast::Multicast {
                continue;
            }
            let Some(group) = new.add_group(flow.from) else { continue };
            new.add_member(group, flow.from);
            let outside = scenario.starts_outside(sc::FlowIx(n as u32));
            for (receiver, to) in flow.to.iter().enumerate() {
                new.add_member(group, *to);
                if outside.binary_search(&receiver).is_err() {
                    new.network.graft(group, *to);
                }
            }
        }
        Ok(new)
    }

    /// Makes a further group with this source; `None` when the source is no host.
    pub fn add_group(&mut self, source: NodeIx) -> Option<u32> {
        self.places.contains_key(&source).then(|| self.network.add_group(source))
    }

    /// Groups so far.
    pub fn groups(&self) -> u32 {
        self.network.groups()
    }

    /// What reaches this host for the group is delivered to it. Whether anything reaches it is decided by joins.
    pub fn add_member(&mut self, group: u32, host: NodeIx) {
        if let Some(place) = self.places.get(&host) {
            self.network.add_member(group, host, *place);
        }
    }

    /// A host joins a group or leaves it now. It takes effect where the next router hears of it.
    pub fn turn(&mut self, now: Time, group: u32, host: NodeIx, join: bool) {
        if group < self.groups() {
            self.network.turn(now.max(self.now), group, host, join);
        }
    }

    /// A host sends a datagram. What was due before `now` has to be taken out first, by [`Datagrams::advance`].
    ///
    /// Returns the datagram's number: how many were offered before it. `None` where there is no such target.
    pub fn offer(&mut self, now: Time, from: NodeIx, to: Target, ecn: Ecn, bytes: Vec<u8>) -> Option<u32> {
        let (now, sender) = (now.max(self.now), self.places.get(&from).copied()?);
        let to = match to {
            Target::Host(host) => {
                let Self { network, places, paths, .. } = self;
                let path = || network.path(from, host, *places.get(&host)?);
                *paths.entry((sender, host)).or_insert_with(path)
            }
            Target::Group(group) => (group < self.groups()).then_some(To::Group(group)),
        };
        let (to, number) = (to?, self.offered);
        self.offered += 1;
        let size = Bytes::new(bytes.len() as u64);
        let place = self.network.next_packet().0 as usize;
        self.numbers.resize(self.numbers.len().max(place + 1), 0);
        self.numbers[place] = number;
        self.network.send(now, from, Head { to, from: sender, size, sent: now, ecn }, || Body::Raw(bytes));
        Some(number)
    }

    /// When something is due next. It is there to be taken by [`Datagrams::advance`] from then on.
    pub fn next(&self) -> Time {
        self.end.map_or(Time::NEVER, |end| self.sampled.min(end)).min(self.network.next())
    }

    /// Goes on to `now`, which is included; `told` hears of each datagram that has arrived at a host, and of the ends
    /// of the series' steps, in the order of time.
    pub fn advance(&mut self, now: Time, mut told: impl FnMut(Passed<'_>)) {
        while let Some(end) = self.end.filter(|end| self.sampled.min(*end) <= now) {
            let at = self.sampled.min(end);
            self.carry(at, &mut told);
            if at == self.sampled {
                self.network.sample(at);
                self.network.end_warmup(at);
                told(Passed::Step);
                self.sampled += self.step;
            }
            if at == end {
                self.network.end_run(at);
                self.end = None;
            }
        }
        self.carry(now, &mut told);
        self.now = self.now.max(now);
    }

    /// Has the links carry what is due until `now`.
    fn carry(&mut self, now: Time, told: &mut impl FnMut(Passed<'_>)) {
        // What a host sent to itself.
        self.deliver(now, told);
        while let Some((at, event)) = self.network.step(now) {
            match event {
                Event::Arrived(delivery) => self.hand_over(at, delivery, told),
                Event::Together(fan) => {
                    let mut more = self.network.spread(at, Some(fan));
                    while more {
                        self.deliver(at, told);
                        more = self.network.spread(at, None);
                    }
                }
                Event::Alarm(_) => debug_assert!(false, "datagrams set no alarms"),
            }
            self.deliver(at, told);
        }
    }

    fn deliver(&mut self, at: Time, told: &mut impl FnMut(Passed<'_>)) {
        while let Some(delivery) = self.network.delivered() {
            self.hand_over(at, delivery, told);
        }
    }

    fn hand_over(&mut self, at: Time, delivery: Delivery, told: &mut impl FnMut(Passed<'_>)) {
        let packet = self.network.packet(delivery.packet);
        if let Body::Raw(bytes) = &packet.body {
            let Head { from, sent, .. } = packet.head;
            let number = self.numbers[delivery.packet.0 as usize];
            let (host, from) = (self.hosts[delivery.agent.0 as usize], self.hosts[from.0 as usize]);
            told(Passed::Arrival(DatagramArrival { number, at, sent, host, from, ecn: delivery.ecn, bytes }));
        }
        self.network.release(delivery.packet);
    }

    /// The older part of the links' series is to go there.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.network.keep_in(store);
    }

    /// The run is over: fetches the links' series.
    ///
    /// # Errors
    /// The store's.
    pub fn recall(&mut self) -> io::Result<()> {
        self.network.recall()
    }

    /// Has what is offered to the links that the scenario captures written as pcapng: see [`Network::capture`].
    ///
    /// # Errors
    /// The streams', with the link's name.
    pub fn capture(
        &mut self,
        scenario: &Scenario,
        open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        // Datagrams bring their headers along.
        self.network.capture(scenario, Vec::new(), open)
    }

    /// Ends the captures; without any it does nothing.
    ///
    /// # Errors
    /// The first that a stream had during the run, with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Packets that have left a link so far.
    pub fn hops(&self) -> u64 {
        self.network.hops()
    }

    /// The links as a record of the run until `now` shows them, two directions each.
    pub fn links(&self, now: Time) -> Vec<LinkRecord<'_>> {
        self.network.links(now)
    }

    /// As [`Network::ways_of`].
    pub fn ways_of(&mut self, flow: &sc::Flow) -> Vec<Vec<u32>> {
        self.network.ways_of(flow)
    }
}
