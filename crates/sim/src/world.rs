//! The simulator's event loop.

use crate::batch::{AgentsAndLogs, Batches};
use crate::build::Builder;
use crate::port::Port;
use serde_json::Value;
use std::io::{self, Write};
use steadycast_endpoints::{Agent, AgentIx, Body, BuildError, FlowEnds, Inputs, Out, PacketRow, Record, Table, Viewer};
use steadycast_link::Ecn;
use steadycast_network::{AgentInfo, Alarm, Delivery, Event, Fan, Head, Network, Packet, PacketIx, TcpShape};
use steadycast_scenario::Scenario;
use steadycast_units::{Bytes, Span, Time};

/// An entry of the run's plan, known from the start or added by a simulcast receiver.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    Start {
        at: Time,
        agent: AgentIx,
    },
    Stop {
        at: Time,
        agent: AgentIx,
    },
    /// The next router gets a join or leave. A leave waits for the RTCP BYE, which a large group delays (RFC 3550,
    /// section 6.3.7).
    MembershipChange {
        at: Time,
        group: u32,
        agent: AgentIx,
        join: bool,
    },
}

impl Entry {
    pub(crate) fn at(&self) -> Time {
        match self {
            Self::Start { at, .. } | Self::Stop { at, .. } | Self::MembershipChange { at, .. } => *at,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SimulcastSlot {
    /// The index of the simulcast receiver to which the agent belongs.
    pub(crate) viewer: u32,
    /// The group's number in the network.
    pub(crate) group: u32,
}

pub(crate) struct Parts {
    pub(crate) network: Network,
    pub(crate) agents: Vec<Agent>,
    pub(crate) ports: Vec<Port>,
    pub(crate) plan: Vec<Entry>,
    pub(crate) flows: Vec<FlowEnds>,
    pub(crate) ways: Vec<Vec<Vec<u32>>>,
    pub(crate) viewers: Vec<Viewer>,
    pub(crate) slots: Vec<Option<SimulcastSlot>>,
}

/// A run of a scenario.
pub struct Simulation {
    scenario: Scenario,
    network: Network,
    agents: Vec<Agent>,
    ports: Vec<Port>,
    plan: Vec<Entry>,
    flows: Vec<FlowEnds>,
    /// Each flow's link directions.
    ways: Vec<Vec<Vec<u32>>>,
    viewers: Vec<Viewer>,
    /// For each agent; empty without a simulcast.
    slots: Vec<Option<SimulcastSlot>>,
    /// Each agent's alarm; NEVER without one.
    armed: Vec<Time>,
    now: Time,
    step: Span,
    sampled: Time,
    /// The value of [`Simulation::hops`] at the end of the run; `None` before the end.
    hops: Option<u64>,
    /// The packets of recorded flows, by agent; empty without such flows.
    logs: Vec<Option<Vec<PacketRow>>>,
    /// The arrivals not delivered to sinks yet.
    batches: Batches,
    outgoing: Vec<(Bytes, Ecn, Body)>,
}

/// How long packets are delivered after the end.
const GRACE: Span = Span::secs(3);

/// The longest virtual time between calls of `go_on`.
const MAX_STRIDE: Span = Span::millis(10);

impl Simulation {
    /// Builds a scenario's simulation.
    ///
    /// # Errors
    /// A controller, TCP configuration or bitrate ladder is invalid, or no path leads to a receiver.
    pub fn build(scenario: &Scenario, inputs: &Inputs) -> Result<Self, BuildError> {
        Builder::build(scenario, inputs)
    }

    pub(crate) fn new(scenario: Scenario, parts: Parts) -> Self {
        let Parts { network, agents, ports, plan, flows, ways, viewers, slots } = parts;
        let recorded = if scenario.record.packets.is_empty() { 0 } else { agents.len() };
        let mut logs: Vec<Option<Vec<PacketRow>>> = vec![None; recorded];
        for flow in &scenario.record.packets {
            for agent in flows[flow.0 as usize].sources.iter().chain(&flows[flow.0 as usize].sinks) {
                logs[agent.0 as usize] = Some(Vec::new());
            }
        }
        Self {
            logs,
            armed: vec![Time::NEVER; agents.len()],
            batches: Batches::default(),
            step: scenario.record.step(),
            sampled: Time::ZERO + scenario.record.step(),
            scenario,
            network,
            agents,
            ports,
            plan,
            flows,
            ways,
            viewers,
            slots,
            now: Time::ZERO,
            hops: None,
            outgoing: Vec::new(),
        }
    }

    /// Writes the packets of captured links as pcapng from now on, as [`Network::capture`].
    ///
    /// # Errors
    /// A stream can't be opened or written, with the link's name.
    pub fn capture(
        &mut self,
        open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let infos = self.agents.iter().zip(&self.ports).map(|(agent, port)| AgentInfo {
            node: port.node,
            tcp: match agent {
                Agent::TcpSource(source) => Some(TcpShape {
                    packet: source.config.packet.get(),
                    header: source.config.header.get(),
                    handshake: source.config.handshake,
                    timestamps: source.config.timestamps,
                }),
                _ => None,
            },
        });
        self.network.capture(&self.scenario, infos.collect(), open)
    }

    /// Ends the captures.
    ///
    /// # Errors
    /// The first error of a stream, with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Returns the end of the run.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the record so far.
    pub fn record(&self) -> Record<'_> {
        Record {
            world: "simulated",
            scenario: &self.scenario,
            agents: &self.agents,
            flows: &self.flows,
            viewers: &self.viewers,
            links: self.network.links(self.now),
            ways: self.ways.clone(),
            logs: &self.logs,
            hops: self.hops(),
            step: self.step,
            now: self.now,
        }
    }

    /// Returns the summary so far, without figures that need decoded pictures. `complete` means that the end was
    /// reached.
    pub fn summary(&self, complete: bool) -> Value {
        self.record().summary(complete)
    }

    /// Returns the table `name`; `None` if there is none.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.record().table(name)
    }

    /// Returns how often a packet has left a link.
    pub fn hops(&self) -> u64 {
        self.hops.unwrap_or_else(|| self.network.hops())
    }

    /// Runs to the end while `go_on` returns true; it is called at least every 10 ms of virtual time.
    ///
    /// Returns whether the end was reached.
    pub fn run(&mut self, mut go_on: impl FnMut(Time) -> bool) -> bool {
        let end = self.end();
        while self.now < end {
            self.advance_to_sample(end);
            if !go_on(self.now) {
                self.flush();
                return self.now >= end;
            }
        }
        self.drain(end);
        self.flush();
        true
    }

    /// Runs to `until` or the end. [`Simulation::run`] can then run the rest.
    ///
    /// Returns whether the end was reached.
    pub fn run_to(&mut self, until: Time) -> bool {
        let end = self.end();
        while self.now < until.min(end) {
            self.advance_to_sample(until);
        }
        self.now >= end
    }

    /// Advances to the next sample, at most to `until` and by [`MAX_STRIDE`].
    fn advance_to_sample(&mut self, until: Time) {
        let end = self.end();
        let warm = Time::ZERO + self.scenario.warmup;
        let sample = self.sampled.min(end);
        let mut until = until.min(sample).min(self.now + MAX_STRIDE);
        // The counters are saved exactly at the end of the warm-up.
        if self.now < warm {
            until = until.min(warm);
        }
        // The end is exclusive: a run of 10 s has no packet sent at 10 s.
        self.advance(if until == end { end.before(Span::nanos(1)) } else { until });
        self.now = until;
        self.network.end_warmup(self.now);
        if until == sample {
            self.sample();
            self.sampled = until + self.step;
        }
    }

    /// The last frames, in flight at the end, must not count as lost.
    fn drain(&mut self, end: Time) {
        // Packets that finishing agents send are not part of the run.
        self.network.end_run(end);
        for ix in 0..self.agents.len() {
            // Agents may still send.
            self.agents[ix].finish(end, &mut Out { packets: &mut self.outgoing });
            self.after_call(AgentIx(ix as u32));
        }
        self.deliver();
        // Later deliveries do not count as hops.
        self.hops = Some(self.network.hops());
        self.advance(end + GRACE);
        self.now = end;
    }

    fn advance(&mut self, until: Time) {
        while let Some((at, event)) = self.network.step(until) {
            self.now = at;
            match event {
                Event::Arrived(delivery) => {
                    self.deliver_one(delivery);
                    self.deliver();
                }
                Event::FanOut(fan) => self.deliver_fan(fan),
                Event::Alarm(Alarm::Agent(agent)) => self.wake(agent),
                Event::Alarm(Alarm::Entry(entry)) => self.run_entry(entry),
            }
        }
        self.now = until;
    }

    /// Delivers simultaneous copies. Some sinks get theirs later, in a batch.
    #[inline(never)]
    fn deliver_fan(&mut self, mut fan: Fan) {
        // A simulcast receiver decides by its arrivals.
        if self.slots.is_empty() {
            let mut agents_and_logs = AgentsAndLogs { agents: &mut self.agents, logs: &mut self.logs };
            self.batches.take(self.now, &mut fan, &self.armed, &mut self.network, &mut agents_and_logs);
        }
        let mut more = self.network.spread(self.now, Some(fan));
        while more {
            self.deliver();
            more = self.network.spread(self.now, None);
        }
    }

    /// Delivers an agent's pending packets before its next event.
    #[inline]
    fn flush_agent(&mut self, agent: AgentIx) {
        if self.batches.is_empty() {
            return;
        }
        let mut agents_and_logs = AgentsAndLogs { agents: &mut self.agents, logs: &mut self.logs };
        self.batches.flush_agent(agent, &self.network, &mut agents_and_logs);
    }

    fn flush(&mut self) {
        let mut agents_and_logs = AgentsAndLogs { agents: &mut self.agents, logs: &mut self.logs };
        self.batches.flush(&mut self.network, &mut agents_and_logs);
    }

    #[inline]
    fn deliver(&mut self) {
        while let Some(delivery) = self.network.delivered() {
            self.deliver_one(delivery);
        }
    }

    #[inline(always)]
    fn deliver_one(&mut self, Delivery { agent: to, packet: ix, ecn }: Delivery) {
        self.flush_agent(to);
        if !self.logs.is_empty() {
            self.log(to, ix, ecn);
        }
        match &self.agents[to.0 as usize] {
            // `outgoing` would copy the packet twice more.
            Agent::TcpSink(_) => self.deliver_segment(to, ix, ecn),
            Agent::TcpSource(_) => self.deliver_ack(to, ix, ecn),
            _ => self.deliver_other(to, ix, ecn),
        }
    }

    #[inline(never)]
    fn log(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        if let Some(log) = &mut self.logs[to.0 as usize] {
            let packet = self.network.packet(ix);
            let delay = Some(self.now.since(packet.head.sent));
            log.extend(PacketRow::of(self.now, packet.head.size, &packet.body, ecn, delay));
        }
    }

    #[inline(never)]
    fn deliver_segment(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        let packet = self.network.packet(ix);
        let (Agent::TcpSink(sink), Body::Tcp(transfer, segment)) = (&mut self.agents[to.0 as usize], &packet.body)
        else {
            return self.deliver_other(to, ix, ecn);
        };
        let transfer = *transfer;
        let answer = sink.take(self.now, &packet.arriving(ecn), transfer, segment);
        let wake = sink.wake();
        self.network.release(ix);
        if let Some((size, ack)) = answer {
            // Acknowledgments are not ECN-capable (RFC 3168, section 6.1.4).
            self.send(to, size, Ecn::NotEct, || Body::TcpAck(transfer, ack));
        }
        self.arm(to, wake);
    }

    #[inline(never)]
    fn deliver_ack(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        let packet = self.network.packet(ix);
        let (Agent::TcpSource(source), Body::TcpAck(transfer, ack)) = (&mut self.agents[to.0 as usize], &packet.body)
        else {
            return self.deliver_other(to, ix, ecn);
        };
        let more = source.take(self.now, *transfer, ack);
        self.network.release(ix);
        // `send` borrows the whole simulation.
        while let Agent::TcpSource(source) = &mut self.agents[to.0 as usize] {
            match if more { source.poll(self.now) } else { None } {
                Some((ecn, segment)) => {
                    let transfer = source.transfer();
                    self.send(to, segment.len, ecn, || Body::Tcp(transfer, segment));
                }
                None => {
                    let wake = source.wake();
                    return self.arm(to, wake);
                }
            }
        }
    }

    #[inline(never)]
    fn deliver_other(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        let packet = self.network.packet(ix);
        match (&mut self.agents[to.0 as usize], &packet.body) {
            (Agent::PlainSink(sink), Body::Plain(number)) => {
                // A plain sink sends nothing and has no timer.
                sink.on_packet(self.now, *number, packet.head.size, packet.head.sent);
                return self.network.release(ix);
            }
            (agent, _) => agent.on_packet(self.now, &packet.arriving(ecn), &mut Out { packets: &mut self.outgoing }),
        }
        self.network.release(ix);
        self.after_call(to);
    }

    #[inline(never)]
    fn wake(&mut self, agent: AgentIx) {
        let (at, ix) = (self.now, agent.0 as usize);
        if self.armed[ix] != at {
            return; // replaced by an earlier alarm
        }
        self.armed[ix] = Time::NEVER;
        self.flush_agent(agent);
        while let Some(packet) = self.ports[ix].release(at) {
            let node = self.ports[ix].node;
            self.network.send(at, node, packet.head, || packet.body);
        }
        if let Agent::PlainSource(source) = &mut self.agents[ix] {
            // `outgoing` would copy the packet twice more.
            let (packet, number) = (source.packet(), source.poll(at));
            let wake = source.wake();
            if let Some(number) = number {
                self.send(agent, packet, Ecn::NotEct, || Body::Plain(number));
            }
            self.arm(agent, wake);
            return self.deliver();
        }
        // The alarm may be for a packet that the port delays.
        if self.agents[ix].wake() <= at {
            self.agents[ix].on_wake(at, &mut Out { packets: &mut self.outgoing });
        }
        self.after_call(agent);
        self.deliver();
    }

    #[inline(never)]
    fn run_entry(&mut self, n: u32) {
        match self.plan[n as usize] {
            Entry::Start { agent, .. } => {
                self.flush_agent(agent);
                self.agents[agent.0 as usize].start(self.now, &mut Out { packets: &mut self.outgoing });
                self.after_call(agent);
            }
            Entry::Stop { agent, .. } => {
                self.flush_agent(agent);
                self.agents[agent.0 as usize].stop(self.now, &mut Out { packets: &mut self.outgoing });
                self.after_call(agent);
            }
            // The BYE is sent while the node is in the group.
            Entry::MembershipChange { agent, join: false, .. } if self.agents[agent.0 as usize].leaving() => {
                let at = self.agents[agent.0 as usize].wake().max(self.now);
                self.network.set_alarm(at, Alarm::Entry(n));
            }
            Entry::MembershipChange { group, agent, join, .. } => {
                self.network.apply_membership(self.now, group, self.ports[agent.0 as usize].node, join);
            }
        }
        self.deliver();
    }

    /// Lets a simulcast receiver change its group.
    #[inline(never)]
    fn switch_group(&mut self, sink: AgentIx) {
        let Some(slot) = self.slots[sink.0 as usize] else { return };
        // After the end, no sink starts or stops.
        let (now, over) = (self.now, self.now >= self.end());
        let viewer = &mut self.viewers[slot.viewer as usize];
        // Only the current group's sink decides.
        if over || viewer.sink() != sink {
            return;
        }
        if let Some((leaves, joins)) = viewer.look(now, &self.agents) {
            self.plan_now(Entry::Stop { at: now, agent: leaves });
            self.plan_membership(leaves, false);
            self.plan_now(Entry::Start { at: now, agent: joins });
            self.plan_membership(joins, true);
        }
    }

    /// Schedules a join or leave for the next router.
    fn plan_membership(&mut self, agent: AgentIx, join: bool) {
        let Some(SimulcastSlot { group, .. }) = self.slots[agent.0 as usize] else { return };
        let at = self.network.membership_effective_at(self.now, group, self.ports[agent.0 as usize].node);
        self.plan_now(Entry::MembershipChange { at, group, agent, join });
    }

    fn plan_now(&mut self, entry: Entry) {
        self.network.set_alarm(entry.at(), Alarm::Entry(self.plan.len() as u32));
        self.plan.push(entry);
    }

    /// Sends an agent's packets and schedules its wake-up.
    fn after_call(&mut self, from: AgentIx) {
        if !self.outgoing.is_empty() {
            // `send` borrows the whole simulation; the list's memory is reused.
            let mut outgoing = std::mem::take(&mut self.outgoing);
            for (size, ecn, body) in outgoing.drain(..) {
                self.send(from, size, ecn, || body);
            }
            self.outgoing = outgoing;
        }
        self.batches.update_batchable(from, &self.agents[from.0 as usize]);
        let wake = self.agents[from.0 as usize].wake();
        self.arm(from, wake);
        if !self.slots.is_empty() {
            self.switch_group(from);
        }
    }

    #[inline(always)]
    fn send(&mut self, from: AgentIx, size: Bytes, ecn: Ecn, body: impl FnOnce() -> Body) {
        let port = &self.ports[from.0 as usize];
        let head = Head { to: port.to, from, size, sent: self.now, ecn };
        if port.jitters() || !self.logs.is_empty() {
            self.send_on_slow_path(Packet { head, body: body() });
        } else {
            self.network.send(self.now, port.node, head, body);
        }
    }

    #[inline(never)]
    fn send_on_slow_path(&mut self, packet: Packet) {
        let Packet { head, body } = packet;
        let from = head.from.0 as usize;
        if let Some(Some(log)) = self.logs.get_mut(from) {
            log.extend(PacketRow::of(self.now, head.size, &body, head.ecn, None));
        }
        let port = &mut self.ports[from];
        if port.jitters() {
            port.hold(self.now, Packet { head, body });
        } else {
            self.network.send(self.now, port.node, head, || body);
        }
    }

    /// Schedules the wake-up of an agent or its port.
    #[inline]
    fn arm(&mut self, agent: AgentIx, wake: Time) {
        let ix = agent.0 as usize;
        let wake = wake.min(self.ports[ix].wake());
        // `wake` ignores a replaced alarm.
        if wake < self.armed[ix] {
            // A wake-up that is due is scheduled for now, behind the other events of this time.
            let at = wake.max(self.now);
            self.armed[ix] = at;
            self.network.set_alarm(at, Alarm::Agent(agent));
        }
    }

    fn sample(&mut self) {
        // The pending packets belong to this step.
        self.flush();
        for agent in &mut self.agents {
            agent.sample(self.now);
        }
        self.network.sample(self.now);
    }
}
