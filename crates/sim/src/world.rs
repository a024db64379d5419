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

/// An entry of the run's plan. It is either known from the start, or added during the run by a simulcast receiver that
/// changes its group.
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
    /// The next router learns that an agent's node joins or leaves a group. A leave waits until the agent has sent
    /// its RTCP BYE, which a large group delays (RFC 3550, section 6.3.7).
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

/// A sink's role in a simulcast.
#[derive(Clone, Copy)]
pub(crate) struct SimulcastSlot {
    /// The simulcast receiver to which the sink belongs.
    pub(crate) viewer: u32,
    /// The group's number in the network.
    pub(crate) group: u32,
}

/// The components of which a [`Simulation`] is built.
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
    /// For each flow, the link directions that the flow's data takes.
    ways: Vec<Vec<Vec<u32>>>,
    viewers: Vec<Viewer>,
    /// The simulcast role of each agent; empty without a simulcast.
    slots: Vec<Option<SimulcastSlot>>,
    /// The time of each agent's alarm; NEVER if it has none.
    armed: Vec<Time>,
    now: Time,
    step: Span,
    /// The time of the next sample.
    sampled: Time,
    /// The number of packets that had left a link by the end of the run.
    hops: Option<u64>,
    /// The packets sent and received by agents whose flow is recorded per packet; empty if there are none.
    logs: Vec<Option<Vec<PacketRow>>>,
    /// The arrivals that have not been delivered to sinks yet.
    batches: Batches,
    outgoing: Vec<(Bytes, Ecn, Body)>,
}

/// The longest time for which packets are still delivered after the end.
const GRACE: Span = Span::secs(3);

/// The longest virtual time between two calls of `go_on`.
const MAX_STRIDE: Span = Span::millis(10);

impl Simulation {
    /// Builds the simulation of a scenario.
    ///
    /// # Errors
    /// A controller, a TCP configuration or a bitrate ladder is invalid, or no path leads from a source to a receiver.
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

    /// Writes the packets that are offered to the captured links as pcapng from now on; see [`Network::capture`].
    ///
    /// # Errors
    /// A stream can't be opened or written; the error names the link.
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

    /// Ends the captures, if there are any.
    ///
    /// # Errors
    /// The first error of a stream during the run, with the link's name.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.end_capture()
    }

    /// Returns the end of the run.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns the current time of the run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the record of the run so far.
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

    /// Returns the summary of the run so far, without the figures that need decoded pictures. `complete` is true if the
    /// end was reached.
    pub fn summary(&self, complete: bool) -> Value {
        self.record().summary(complete)
    }

    /// Returns the table `name`; `None` if there is no such table.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.record().table(name)
    }

    /// Returns the number of packets that have left a link.
    pub fn hops(&self) -> u64 {
        self.hops.unwrap_or_else(|| self.network.hops())
    }

    /// Runs to the end, as long as `go_on` returns true. `go_on` is called at least every 10 ms of virtual time.
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

    /// Runs to `until` or to the end and stops there; [`Simulation::run`] continues.
    ///
    /// Returns whether the end was reached.
    pub fn run_to(&mut self, until: Time) -> bool {
        let end = self.end();
        while self.now < until.min(end) {
            self.advance_to_sample(until);
        }
        self.now >= end
    }

    /// Advances to the next sample, but not beyond `until` and by at most [`MAX_STRIDE`].
    fn advance_to_sample(&mut self, until: Time) {
        let end = self.end();
        let warm = Time::ZERO + self.scenario.warmup;
        let sample = self.sampled.min(end);
        let mut until = until.min(sample).min(self.now + MAX_STRIDE);
        // The network saves its counters exactly at the end of the warm-up.
        if self.now < warm {
            until = until.min(warm);
        }
        // The end is exclusive: a run of 10 s does not include a packet that is sent at 10 s.
        self.advance(if until == end { end.before(Span::nanos(1)) } else { until });
        self.now = until;
        self.network.end_warmup(self.now);
        if until == sample {
            self.sample();
            self.sampled = until + self.step;
        }
    }

    /// Delivers the packets that are in flight at the end of the run, so that the last frames are not counted as lost.
    fn drain(&mut self, end: Time) {
        // The network's run ends before the agents finish, because the packets that finishing agents send do not belong
        // to it.
        self.network.end_run(end);
        for ix in 0..self.agents.len() {
            // Agents may still send when they finish.
            self.agents[ix].finish(end, &mut Out { packets: &mut self.outgoing });
            self.after_call(AgentIx(ix as u32));
        }
        self.deliver();
        // The number of hops covers the run's duration only, not the deliveries after its end.
        self.hops = Some(self.network.hops());
        self.advance(end + GRACE);
        self.now = end;
    }

    /// Processes events up to and including `until`.
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

    /// Delivers copies of a packet that arrive at the same time. Some sinks get their copies later in a batch. The
    /// other sinks get theirs now, one by one.
    #[inline(never)]
    fn deliver_fan(&mut self, mut fan: Fan) {
        // A simulcast receiver decides from the packets that have arrived, so they can't be delivered later.
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

    /// Delivers an agent's pending packets before another event reaches it.
    #[inline]
    fn flush_agent(&mut self, agent: AgentIx) {
        if self.batches.is_empty() {
            return;
        }
        let mut agents_and_logs = AgentsAndLogs { agents: &mut self.agents, logs: &mut self.logs };
        self.batches.flush_agent(agent, &self.network, &mut agents_and_logs);
    }

    /// Delivers all pending packets.
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
            // The packets of TCP agents are sent directly. Through `outgoing` they would be copied twice more.
            Agent::TcpSink(_) => self.deliver_segment(to, ix, ecn),
            Agent::TcpSource(_) => self.deliver_ack(to, ix, ecn),
            _ => self.deliver_other(to, ix, ecn),
        }
    }

    /// Records an arriving packet if the agent's packets are recorded.
    #[inline(never)]
    fn log(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        if let Some(log) = &mut self.logs[to.0 as usize] {
            let packet = self.network.packet(ix);
            let delay = Some(self.now.since(packet.head.sent));
            log.extend(PacketRow::of(self.now, packet.head.size, &packet.body, ecn, delay));
        }
    }

    /// Delivers a TCP segment, and sends the acknowledgment if there is one.
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

    /// Delivers a TCP acknowledgment, and sends the segments that it allows.
    #[inline(never)]
    fn deliver_ack(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        let packet = self.network.packet(ix);
        let (Agent::TcpSource(source), Body::TcpAck(transfer, ack)) = (&mut self.agents[to.0 as usize], &packet.body)
        else {
            return self.deliver_other(to, ix, ecn);
        };
        let more = source.take(self.now, *transfer, ack);
        self.network.release(ix);
        // The source is borrowed again for each segment, because `send` borrows the whole simulation.
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

    /// Delivers a packet to any other agent.
    #[inline(never)]
    fn deliver_other(&mut self, to: AgentIx, ix: PacketIx, ecn: Ecn) {
        let packet = self.network.packet(ix);
        match (&mut self.agents[to.0 as usize], &packet.body) {
            (Agent::PlainSink(sink), Body::Plain(number)) => {
                // A plain sink sends nothing and has no timer, so `after_call` is not needed.
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
            return; // this alarm was replaced by an earlier one
        }
        self.armed[ix] = Time::NEVER;
        self.flush_agent(agent);
        while let Some(packet) = self.ports[ix].release(at) {
            let node = self.ports[ix].node;
            self.network.send(at, node, packet.head, || packet.body);
        }
        if let Agent::PlainSource(source) = &mut self.agents[ix] {
            // As for TCP agents, the packet is sent directly, because `outgoing` would copy it twice more.
            let (packet, number) = (source.packet(), source.poll(at));
            let wake = source.wake();
            if let Some(number) = number {
                self.send(agent, packet, Ecn::NotEct, || Body::Plain(number));
            }
            self.arm(agent, wake);
            return self.deliver();
        }
        // The alarm may have been set for a packet that the port delays, instead of for the agent.
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
            // The BYE must be sent while the node is still in the group.
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

    /// Lets a simulcast receiver change its group after its sink was called.
    #[inline(never)]
    fn switch_group(&mut self, sink: AgentIx) {
        let Some(slot) = self.slots[sink.0 as usize] else { return };
        // After the end only packets in flight are delivered, so no sink starts or stops.
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

    /// Schedules a sink's join or leave for when the message reaches the next router.
    fn plan_membership(&mut self, agent: AgentIx, join: bool) {
        let Some(SimulcastSlot { group, .. }) = self.slots[agent.0 as usize] else { return };
        let at = self.network.membership_effective_at(self.now, group, self.ports[agent.0 as usize].node);
        self.plan_now(Entry::MembershipChange { at, group, agent, join });
    }

    /// Adds an entry to the plan during the run.
    fn plan_now(&mut self, entry: Entry) {
        self.network.set_alarm(entry.at(), Alarm::Entry(self.plan.len() as u32));
        self.plan.push(entry);
    }

    /// Completes a call of an agent: sends its packets and schedules its next wake-up.
    fn after_call(&mut self, from: AgentIx) {
        if !self.outgoing.is_empty() {
            // The list is taken out of the simulation, because `send` borrows the whole simulation. Its memory is
            // reused.
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

    /// Schedules an agent's wake-up, or that of its port if that is earlier.
    #[inline]
    fn arm(&mut self, agent: AgentIx, wake: Time) {
        let ix = agent.0 as usize;
        let wake = wake.min(self.ports[ix].wake());
        // Events can't be removed from the queue. If an alarm is replaced by an earlier one, `wake` ignores it when it
        // expires.
        if wake < self.armed[ix] {
            // A wake-up that is already due happens at the current time, after the events of this time that were
            // scheduled earlier.
            let at = wake.max(self.now);
            self.armed[ix] = at;
            self.network.set_alarm(at, Alarm::Agent(agent));
        }
    }

    fn sample(&mut self) {
        // The pending packets have arrived in this step, so they are delivered before its sample.
        self.flush();
        for agent in &mut self.agents {
            agent.sample(self.now);
        }
        self.network.sample(self.now);
    }
}
