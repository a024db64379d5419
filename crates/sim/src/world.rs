//! The simulator's event loop.

use crate::batch::{AgentsAndLogs, Batches};
use crate::build::Builder;
use crate::port::Port;
use serde_json::Value;
use std::io::{self, Write};
use steadycast_endpoints::{
    Agent, AgentIx, Body, BuildError, FlowEnds, Inputs, Out, PacketRow, Path, Record, Table, Viewer,
};
use steadycast_link::Ecn;
use steadycast_network::{AgentInfo, Alarm, Delivery, Event, Fan, Head, Network, Packet, PacketIx, TcpShape};
use steadycast_scenario::Scenario;
use steadycast_units::{Bytes, Span, Time};

/// A planned event of the run. Events are known from the start, or a simulcast receiver adds them during the run.
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
    /// A join or a leave reaches the next router. A leave waits until the RTCP BYE has been sent, which takes longer in
    /// a large group (RFC 3550, section 6.3.7).
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
    /// Index of the simulcast receiver to which the agent belongs.
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
    pub(crate) ways: Vec<Vec<Path>>,
    pub(crate) viewers: Vec<Viewer>,
    pub(crate) slots: Vec<Option<SimulcastSlot>>,
}

/// The simulation of a scenario.
pub struct Simulation {
    scenario: Scenario,
    network: Network,
    agents: Vec<Agent>,
    ports: Vec<Port>,
    plan: Vec<Entry>,
    flows: Vec<FlowEnds>,
    /// For each flow, lists of link directions on its paths. A multicast flow has one list. Other flows have one list
    /// per receiver.
    ways: Vec<Vec<Path>>,
    viewers: Vec<Viewer>,
    /// For each agent: the simulcast receiver and group to which it belongs. The list is empty without a simulcast.
    slots: Vec<Option<SimulcastSlot>>,
    /// For each agent: when its alarm expires. The alarm is for the agent's timer, or for a packet that its port
    /// delays. [`Time::NEVER`] means that no alarm is set.
    armed: Vec<Time>,
    now: Time,
    step: Span,
    sampled: Time,
    /// The value of [`Simulation::hops`] at the end of the run. It is `None` before the end.
    hops: Option<u64>,
    /// The recorded packets of each agent. The list is empty if the scenario records no packets.
    logs: Vec<Option<Vec<PacketRow>>>,
    /// Packets that have arrived but have not been delivered to their sinks yet.
    batches: Batches,
    outgoing: Vec<(Bytes, Ecn, Body)>,
}

/// How long packets are still delivered after the end of the run.
const GRACE: Span = Span::secs(3);

/// Maximum virtual time between two calls of `go_on`.
const MAX_STRIDE: Span = Span::millis(10);

impl Simulation {
    /// Builds the simulation of a scenario.
    ///
    /// # Errors
    /// Returns an error if a controller, a TCP configuration or a bitrate ladder is invalid, or if no path leads to a
    /// receiver.
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

    /// Starts to write the packets of the captured links as pcapng. See [`Network::capture`].
    ///
    /// # Errors
    /// Returns the link's name and the error if a stream can't be opened or written.
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
                    timestamps: source.config.timestamps,
                }),
                _ => None,
            },
        });
        self.network.capture(&self.scenario, infos.collect(), open)
    }

    /// Ends the captures and completes their streams.
    ///
    /// # Errors
    /// Returns the first error of a stream, together with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Returns the time at which the run ends.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the record of the run up to the current time.
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

    /// Returns the summary of the run up to the current time. It lacks the results that need decoded pictures.
    /// `complete` indicates whether the end was reached.
    pub fn summary(&self, complete: bool) -> Value {
        self.record().summary(complete)
    }

    /// Returns the table called `name`. Returns `None` if there is no such table.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.record().table(name)
    }

    /// Returns the number of hops: how often any packet has left a link.
    pub fn hops(&self) -> u64 {
        self.hops.unwrap_or_else(|| self.network.hops())
    }

    /// Runs until the end or until `go_on` returns false. `go_on` is called at least every 10 ms of virtual time.
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

    /// Runs to the time `until`, or to the end if that comes first. [`Simulation::run`] can then run the rest.
    ///
    /// Returns whether the end was reached.
    pub fn run_to(&mut self, until: Time) -> bool {
        let end = self.end();
        while self.now < until.min(end) {
            self.advance_to_sample(until);
        }
        self.now >= end
    }

    /// Advances to the next sampling time, but not beyond `until` and by at most [`MAX_STRIDE`].
    fn advance_to_sample(&mut self, until: Time) {
        let end = self.end();
        let warm = Time::ZERO + self.scenario.warmup;
        let sample = self.sampled.min(end);
        let mut until = until.min(sample).min(self.now + MAX_STRIDE);
        // Stop exactly at the end of the warm-up, because the counters are saved then.
        if self.now < warm {
            until = until.min(warm);
        }
        // The end is exclusive: a run of 10 s contains no packet sent at 10 s.
        self.advance(if until == end { end.before(Span::nanos(1)) } else { until });
        self.now = until;
        self.network.end_warmup(self.now);
        if until == sample {
            self.sample();
            self.sampled = until + self.step;
        }
    }

    /// Ends all agents and delivers the packets that are still in flight. Otherwise the last frames would be counted as
    /// lost.
    fn drain(&mut self, end: Time) {
        // Save the counters first, because packets that finishing agents send are not part of the run.
        self.network.end_run(end);
        for ix in 0..self.agents.len() {
            // An agent may still send packets when it finishes.
            self.agents[ix].finish(end, &mut Out { packets: &mut self.outgoing });
            self.after_call(AgentIx(ix as u32));
        }
        self.deliver();
        // Save the number of hops now, so that later deliveries are not included.
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

    /// Delivers copies of a packet that arrive at the same time. Some sinks get their copies later, in a batch.
    #[inline(never)]
    fn deliver_fan(&mut self, mut fan: Fan) {
        // Do not batch if the scenario has a simulcast, because its receivers must react to each arrival.
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

    /// Delivers the pending packets of an agent. This must be done before the agent's next event.
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
            // TCP has its own functions here. `deliver_other` would copy each packet twice more, through `outgoing`.
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
            // Pure acknowledgments are not ECN-capable (RFC 3168, section 6.1.4).
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
        // Borrow the source again in each pass, because `send` borrows the whole simulation.
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
                // Skip `after_call`, because a plain sink sends nothing and has no timer.
                sink.on_packet(self.now, *number, packet.head.size, Some(packet.head.sent));
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
            // Send directly, because `outgoing` would copy the packet twice more.
            let (packet, number) = (source.packet(), source.poll(at));
            let wake = source.wake();
            if let Some(number) = number {
                self.send(agent, packet, Ecn::NotEct, || Body::Plain(number));
            }
            self.arm(agent, wake);
            return self.deliver();
        }
        // Wake the agent only if its own timer is due. The alarm may be for a packet that the port delays.
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
            // Leave the group only when the BYE has been sent.
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

    /// Lets the simulcast receiver to which `sink` belongs switch to another group.
    #[inline(never)]
    fn switch_group(&mut self, sink: AgentIx) {
        let Some(slot) = self.slots[sink.0 as usize] else { return };
        // After the end of the run, no sink may start or stop.
        let (now, over) = (self.now, self.now >= self.end());
        let viewer = &mut self.viewers[slot.viewer as usize];
        // Only the sink of the current group decides.
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

    /// Plans the event with which a join or leave of the agent takes effect at the next router.
    fn plan_membership(&mut self, agent: AgentIx, join: bool) {
        let Some(SimulcastSlot { group, .. }) = self.slots[agent.0 as usize] else { return };
        let at = self.network.membership_effective_at(self.now, group, self.ports[agent.0 as usize].node);
        self.plan_now(Entry::MembershipChange { at, group, agent, join });
    }

    fn plan_now(&mut self, entry: Entry) {
        self.network.set_alarm(entry.at(), Alarm::Entry(self.plan.len() as u32));
        self.plan.push(entry);
    }

    /// Sends the packets that an agent has produced, and schedules its next wake-up.
    fn after_call(&mut self, from: AgentIx) {
        if !self.outgoing.is_empty() {
            // Take the list, because `send` borrows the whole simulation. Put it back afterwards to reuse its memory.
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

    /// Schedules the next wake-up of an agent or its port.
    #[inline]
    fn arm(&mut self, agent: AgentIx, wake: Time) {
        let ix = agent.0 as usize;
        let wake = wake.min(self.ports[ix].wake());
        // Set an earlier alarm. The later alarm stays set, but `wake` ignores it when it expires.
        if wake < self.armed[ix] {
            // If the wake-up time has passed, schedule it for now. It then comes after the other events of this time.
            let at = wake.max(self.now);
            self.armed[ix] = at;
            self.network.set_alarm(at, Alarm::Agent(agent));
        }
    }

    fn sample(&mut self) {
        // Deliver the pending packets first, because they belong to this sampling step.
        self.flush();
        for agent in &mut self.agents {
            agent.sample(self.now);
        }
        self.network.sample(self.now);
    }
}
