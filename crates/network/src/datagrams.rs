//! The network for external hosts. It carries datagrams, as bytes, over the links and trees of a scenario.
//!
//! The driver sends datagrams by [`Datagrams::offer`], and calls [`Datagrams::advance`] at the time that
//! [`Datagrams::next`] returns. Events have exact times, so that errors do not accumulate if the calls are late.

use crate::net::Delivery;
use crate::network::{Event, Network};
use crate::packet::{Head, To};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_endpoints::{AgentIx, Body, BuildError, LinkRecord, Path, Store};
use steadycast_link::Ecn;
use steadycast_scenario::{self as sc, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// A network that carries datagrams between hosts.
pub struct Datagrams {
    network: Network,
    /// The nodes that send and receive. The index is the number of the agent.
    hosts: Vec<NodeIx>,
    /// The agent of each node. This is the inverse of `hosts`.
    places: BTreeMap<NodeIx, AgentIx>,
    /// The path from an agent to a node. There is an entry only if the agent has already sent a datagram to the node.
    paths: BTreeMap<(AgentIx, NodeIx), Option<To>>,
    offered: u32,
    /// The number of each datagram in flight, by its index in the packet pool.
    numbers: Vec<u32>,
    /// All events up to this time have been processed. The time never decreases.
    now: Time,
    step: Span,
    /// The end of the current step of the time series.
    sampled: Time,
    /// The end of the run. `None` once it has been reached. Later arrivals are not part of the run.
    end: Option<Time>,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host.
    Host(NodeIx),
    /// A group, by its number. The groups of the scenario's multicast flows come first, then the groups of
    /// [`Datagrams::add_group`].
    Group(u32),
}

/// The events that [`Datagrams::advance`] passes to its caller, in order of time.
#[derive(Clone, Copy, Debug)]
pub enum DatagramEvent<'a> {
    /// A datagram has arrived.
    Arrival(DatagramArrival<'a>),
    /// A step of the time series has ended.
    Step,
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct DatagramArrival<'a> {
    /// The number that [`Datagrams::offer`] returned for the datagram. All copies of a datagram have the same number.
    pub number: u32,
    /// When the datagram arrived.
    pub at: Time,
    /// When the datagram was offered.
    pub sent: Time,
    /// The receiving host.
    pub host: NodeIx,
    /// The sending host.
    pub from: NodeIx,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// The bytes of the datagram.
    pub bytes: &'a [u8],
}

impl Datagrams {
    /// Creates the network of a scenario, which connects `hosts`. Creates a group for each multicast flow. The
    /// receivers are members from the start, except those that an event adds.
    ///
    /// # Errors
    /// Returns an error if a link is invalid or no path leads to a receiver.
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
            new.network.check_paths(scenario, flow)?;
            if flow.cast != sc::Cast::Multicast {
                continue;
            }
            let Some(group) = new.add_group(flow.from) else { continue };
            // Make the source a member too, so that it receives the RTCP packets of the other members.
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

    /// Adds a group with this source. Returns the number of the group, or `None` if the source is not a host.
    pub fn add_group(&mut self, source: NodeIx) -> Option<u32> {
        self.places.contains_key(&source).then(|| self.network.add_group(source))
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u32 {
        self.network.groups()
    }

    /// Registers the host as a receiver of the group. Whether packets reach it depends on [`Self::set_membership`].
    pub fn add_member(&mut self, group: u32, host: NodeIx) {
        if let Some(place) = self.places.get(&host) {
            self.network.add_member(group, host, *place);
        }
    }

    /// Makes a host join or leave a group. The change takes effect when it reaches the next router.
    pub fn set_membership(&mut self, now: Time, group: u32, host: NodeIx, join: bool) {
        if group < self.groups() {
            self.network.set_membership(now.max(self.now), group, host, join);
        }
    }

    /// Sends a datagram. [`Datagrams::advance`] must have processed all events before `now`.
    ///
    /// Returns the number of the datagram, counted from 0. Returns `None` if `from` or the destination does not exist,
    /// or if no path leads to the destination.
    pub fn offer(&mut self, now: Time, from: NodeIx, to: Target, ecn: Ecn, bytes: Vec<u8>) -> Option<u32> {
        // Never go back in time, because the driver's clock may lag behind.
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
        // Extend the list if the slot is new. Slots of the pool are reused.
        self.numbers.resize(self.numbers.len().max(place + 1), 0);
        self.numbers[place] = number;
        self.network.send(now, from, Head { to, from: sender, size, sent: now, ecn }, || Body::Raw(bytes));
        Some(number)
    }

    /// Returns when [`Datagrams::advance`] has to be called next.
    pub fn next(&self) -> Time {
        self.end.map_or(Time::NEVER, |end| self.sampled.min(end)).min(self.network.next())
    }

    /// Processes all events up to and including `now`. Calls `on_event` for each arrival and each end of a step, in
    /// order of time.
    pub fn advance(&mut self, now: Time, mut on_event: impl FnMut(DatagramEvent<'_>)) {
        while let Some(end) = self.end.filter(|end| self.sampled.min(*end) <= now) {
            let at = self.sampled.min(end);
            self.run_network(at, &mut on_event);
            // Sample after the network has run, so that packets of the same time count in the sample.
            if at == self.sampled {
                self.network.sample(at);
                self.network.end_warmup(at);
                on_event(DatagramEvent::Step);
                self.sampled += self.step;
            }
            if at == end {
                self.network.end_run(at);
                self.end = None;
            }
        }
        self.run_network(now, &mut on_event);
        self.now = self.now.max(now);
    }

    fn run_network(&mut self, now: Time, on_event: &mut impl FnMut(DatagramEvent<'_>)) {
        // Deliver datagrams from a host to itself first.
        self.deliver(now, on_event);
        while let Some((at, event)) = self.network.step(now) {
            match event {
                Event::Arrived(delivery) => self.deliver_one(at, delivery, on_event),
                Event::FanOut(fan) => {
                    let mut more = self.network.spread(at, Some(fan));
                    while more {
                        self.deliver(at, on_event);
                        more = self.network.spread(at, None);
                    }
                }
                Event::Alarm(_) => debug_assert!(false, "datagrams set no alarms"),
            }
            self.deliver(at, on_event);
        }
    }

    fn deliver(&mut self, at: Time, on_event: &mut impl FnMut(DatagramEvent<'_>)) {
        while let Some(delivery) = self.network.delivered() {
            self.deliver_one(at, delivery, on_event);
        }
    }

    fn deliver_one(&mut self, at: Time, delivery: Delivery, on_event: &mut impl FnMut(DatagramEvent<'_>)) {
        let packet = self.network.packet(delivery.packet);
        if let Body::Raw(bytes) = &packet.body {
            let Head { from, sent, .. } = packet.head;
            let number = self.numbers[delivery.packet.0 as usize];
            let (host, from) = (self.hosts[delivery.agent.0 as usize], self.hosts[from.0 as usize]);
            on_event(DatagramEvent::Arrival(DatagramArrival {
                number,
                at,
                sent,
                host,
                from,
                ecn: delivery.ecn,
                bytes,
            }));
        }
        self.network.release(delivery.packet);
    }

    /// Moves older parts of the time series to `store`.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.network.keep_in(store);
    }

    /// Reads the time series back from the store at the end of the run.
    ///
    /// # Errors
    /// Returns an error of the store.
    pub fn recall(&mut self) -> io::Result<()> {
        self.network.recall()
    }

    /// Begins to capture packets. See [`Network::capture`].
    ///
    /// # Errors
    /// Returns an error of an output stream, with the name of its link.
    pub fn capture(
        &mut self,
        scenario: &Scenario,
        open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        // Pass no agents, because datagrams have their own headers.
        self.network.capture(scenario, Vec::new(), open)
    }

    /// Ends the captures.
    ///
    /// # Errors
    /// Returns the first error of an output stream, with the name of its link.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Returns the number of hops so far. A hop is the passage of a packet over a link.
    pub fn hops(&self) -> u64 {
        self.network.hops()
    }

    /// Returns the records of all links until `now`. Each link has two records, one per direction.
    pub fn links(&self, now: Time) -> Vec<LinkRecord<'_>> {
        self.network.links(now)
    }

    /// Returns the link directions of a flow. See [`Network::directions_of_flow`].
    pub fn directions_of_flow(&mut self, scenario: &sc::Scenario, flow: sc::FlowIx) -> Vec<Path> {
        self.network.directions_of_flow(scenario, flow)
    }
}
