//! The network for external hosts: datagrams as bytes over the same links, trees and events.
//!
//! The driver offers what a host sends ([`Datagrams::offer`]), calls [`Datagrams::advance`] at [`Datagrams::next`],
//! and gets what has arrived. Inside, every hop happens at its exact time, and each step of the series is counted at
//! its end. Only the driver's call can be late, and its lateness does not accumulate.

use crate::net::Delivery;
use crate::network::{Event, Network};
use crate::packet::{Head, To};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use steadycast_endpoints::{AgentIx, Body, BuildError, LinkRecord, Store};
use steadycast_link::Ecn;
use steadycast_scenario::{self as sc, NodeIx, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// A network that carries datagrams between hosts.
pub struct Datagrams {
    network: Network,
    /// The nodes that can send and receive. In the network each is an agent; its number is the index here.
    hosts: Vec<NodeIx>,
    /// The index of each node in `hosts`.
    places: BTreeMap<NodeIx, AgentIx>,
    /// The paths between two hosts, for those that have sent.
    paths: BTreeMap<(AgentIx, NodeIx), Option<To>>,
    offered: u32,
    /// The numbers of the datagrams in flight, by their pool index.
    numbers: Vec<u32>,
    /// The time that has been processed. An earlier time that the driver passes is treated as this one.
    now: Time,
    step: Span,
    /// The end of the series' next step.
    sampled: Time,
    /// The end of the run; `None` once it is reached. Packets that arrive later are delivered but not part of the
    /// run.
    end: Option<Time>,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host.
    Host(NodeIx),
    /// A group, by its number: first the scenario's multicast flows in order, then those of [`Datagrams::add_group`].
    Group(u32),
}

/// The events of [`Datagrams::advance`], in order of time.
#[derive(Clone, Copy, Debug)]
pub enum DatagramEvent<'a> {
    /// A datagram has arrived at a host.
    Arrival(DatagramArrival<'a>),
    /// A step of the links' series has ended.
    Step,
}

/// A datagram that has arrived at a host.
#[derive(Clone, Copy, Debug)]
pub struct DatagramArrival<'a> {
    /// The number that [`Datagrams::offer`] returned; copies have the same.
    pub number: u32,
    /// The time of arrival.
    pub at: Time,
    /// The time at which it was offered.
    pub sent: Time,
    /// The receiving host.
    pub host: NodeIx,
    /// The sending host.
    pub from: NodeIx,
    /// The ECN field at arrival.
    pub ecn: Ecn,
    /// The datagram as it was offered.
    pub bytes: &'a [u8],
}

impl Datagrams {
    /// Creates the network of a scenario between `hosts`, with a group for each multicast flow. Receivers are members
    /// from the start unless an event adds them.
    ///
    /// # Errors
    /// An invalid link, or a receiver without a path from its flow's source.
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
            // The source is a member too: it receives the members' RTCP.
            new.add_member(group, flow.from);
            // Receivers that an event adds join later.
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

    /// Adds a group with this source; `None` if the source is not a host.
    pub fn add_group(&mut self, source: NodeIx) -> Option<u32> {
        self.places.contains_key(&source).then(|| self.network.add_group(source))
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u32 {
        self.network.groups()
    }

    /// Registers the host as a receiver of the group: packets of the group that reach the host are delivered to it.
    /// [`Self::set_membership`] decides whether they reach it.
    pub fn add_member(&mut self, group: u32, host: NodeIx) {
        if let Some(place) = self.places.get(&host) {
            self.network.add_member(group, host, *place);
        }
    }

    /// Lets a host join or leave a group now. It takes effect when the message reaches the next router.
    pub fn set_membership(&mut self, now: Time, group: u32, host: NodeIx, join: bool) {
        if group < self.groups() {
            self.network.set_membership(now.max(self.now), group, host, join);
        }
    }

    /// Sends a datagram from a host. Events before `now` must have been processed by [`Datagrams::advance`].
    ///
    /// Returns the datagram's number, which counts offered datagrams from 0. `None` if the target does not exist.
    pub fn offer(&mut self, now: Time, from: NodeIx, to: Target, ecn: Ecn, bytes: Vec<u8>) -> Option<u32> {
        // A driver's clock may lag behind the time that has been processed.
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
        // Pool slots are reused, so the number is stored per slot.
        self.numbers.resize(self.numbers.len().max(place + 1), 0);
        self.numbers[place] = number;
        self.network.send(now, from, Head { to, from: sender, size, sent: now, ecn }, || Body::Raw(bytes));
        Some(number)
    }

    /// Returns the time of the next event, at which [`Datagrams::advance`] should be called.
    pub fn next(&self) -> Time {
        self.end.map_or(Time::NEVER, |end| self.sampled.min(end)).min(self.network.next())
    }

    /// Processes events up to and including `now`. `on_event` is called for each arriving datagram and at the end of
    /// each step of the series, in order of time.
    pub fn advance(&mut self, now: Time, mut on_event: impl FnMut(DatagramEvent<'_>)) {
        while let Some(end) = self.end.filter(|end| self.sampled.min(*end) <= now) {
            let at = self.sampled.min(end);
            self.run_network(at, &mut on_event);
            // The sample comes after the packets of its time, so that it counts them.
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

    /// Processes the network's events up to and including `now`.
    fn run_network(&mut self, now: Time, on_event: &mut impl FnMut(DatagramEvent<'_>)) {
        // Datagrams that a host sent to itself.
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

    /// Stores the older part of the links' series in `store`.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.network.keep_in(store);
    }

    /// Reads the links' series back at the end of the run.
    ///
    /// # Errors
    /// An error of the store.
    pub fn recall(&mut self) -> io::Result<()> {
        self.network.recall()
    }

    /// Writes the packets that are offered to the captured links as pcapng; see [`Network::capture`].
    ///
    /// # Errors
    /// An error of a stream, with the link's name.
    pub fn capture(
        &mut self,
        scenario: &Scenario,
        open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        // Datagrams contain their headers, so no agents need to be described.
        self.network.capture(scenario, Vec::new(), open)
    }

    /// Ends the captures, if there are any.
    ///
    /// # Errors
    /// The first error of a stream during the run, with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Returns the number of packets that have left a link.
    pub fn hops(&self) -> u64 {
        self.network.hops()
    }

    /// Returns the links' records for the run until `now`, two directions per link.
    pub fn links(&self, now: Time) -> Vec<LinkRecord<'_>> {
        self.network.links(now)
    }

    /// Returns what [`Network::directions_of_flow`] returns.
    pub fn directions_of_flow(&mut self, flow: &sc::Flow) -> Vec<Vec<u32>> {
        self.network.directions_of_flow(flow)
    }
}
