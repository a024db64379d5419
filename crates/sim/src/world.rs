//! The simulated world: time goes from one event to the next.

use crate::agenda::Due;
use crate::batch::Batch;
use crate::build::{BuildError, Builder};
use crate::capture::{Shape, Taps, Who};
use crate::net::{Capture, Delivery, Fan, Net};
use crate::packet::{Head, Packet, To};
use crate::port::Port;
use crate::tree::Step;
use serde_json::Value;
use std::io::{self, Write};
use steadycast_ends::{
    Agent, AgentIx, Body, FlowEnds, Inputs, LinkPoint, LinkRecord, Out, PacketRow, Record, Table, Viewer,
};
use steadycast_link::{Counts, Ecn};
use steadycast_scenario::{self as sc, Scenario};
use steadycast_units::{Bytes, Span, Time};

/// Something that was known from the start, or follows from it.
pub(crate) enum Plan {
    Start {
        at: Time,
        agent: AgentIx,
    },
    Stop {
        at: Time,
        agent: AgentIx,
    },
    /// A join or leave reaches this node.
    Tree {
        at: Time,
        group: u32,
        node: u32,
        join: bool,
        /// Who leaves: not before its BYE is out, which in a large group waits its turn.
        sink: Option<AgentIx>,
    },
}

impl Plan {
    pub(crate) fn at(&self) -> Time {
        match self {
            Self::Start { at, .. } | Self::Stop { at, .. } | Self::Tree { at, .. } => *at,
        }
    }
}

/// A sink's place in a simulcast.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    /// Whose it is.
    pub(crate) viewer: u32,
    /// Its group in the network.
    pub(crate) group: u32,
}

/// A run of a scenario.
pub struct Simulation {
    pub(crate) scenario: Scenario,
    pub(crate) net: Net,
    pub(crate) agents: Vec<Agent>,
    pub(crate) ports: Vec<Port>,
    pub(crate) plan: Vec<Plan>,
    pub(crate) flows: Vec<FlowEnds>,
    pub(crate) viewers: Vec<Viewer>,
    /// For each agent what it is in a simulcast; empty without one.
    seats: Vec<Option<Seat>>,
    /// For each flow the ways towards its source.
    sources: Vec<u32>,
    /// When each agent's key in the agenda is due; NEVER: it has none.
    armed: Vec<Time>,
    pub(crate) now: Time,
    pub(crate) step: Span,
    pub(crate) links: Vec<Vec<LinkPoint>>,
    link_last: Vec<(u64, u64)>,
    /// What the links had counted at the end of the warm-up; empty until then, and without one.
    warm: Vec<Counts>,
    /// Packets sent and arrived, of agents whose flow is to be recorded packet by packet; empty when there are none.
    pub(crate) logs: Vec<Option<Vec<PacketRow>>>,
    /// For each group.
    batches: Vec<Batch>,
    deliveries: Vec<Delivery>,
    outgoing: Vec<(Bytes, Ecn, Body)>,
}

/// How long packets may be under way after the end.
const GRACE: Span = Span::secs(3);

/// How long a run goes on without asking whether it may.
const ASK: Span = Span::millis(10);

/// Series of links are kept when there are no more than this: a report with more would show nothing.
const LINK_SERIES: usize = 512;

impl Simulation {
    /// Makes the scenario's world.
    ///
    /// # Errors
    /// A controller, TCP or ladder that can't be; no way from a source to a receiver.
    pub fn build(scenario: &Scenario, inputs: &Inputs) -> Result<Self, BuildError> {
        Builder::build(scenario, inputs)
    }

    pub(crate) fn new(
        scenario: Scenario,
        net: Net,
        agents: Vec<Agent>,
        ports: Vec<Port>,
        plan: Vec<Plan>,
        (flows, sources): (Vec<FlowEnds>, Vec<u32>),
        (viewers, seats): (Vec<Viewer>, Vec<Option<Seat>>),
    ) -> Self {
        let step = common_step(scenario.record.interval);
        let kept = if net.links.len() <= LINK_SERIES { net.links.len() } else { 0 };
        let recorded = if scenario.record.packets.is_empty() { 0 } else { agents.len() };
        let mut logs: Vec<Option<Vec<PacketRow>>> = vec![None; recorded];
        for flow in &scenario.record.packets {
            for agent in flows[flow.0 as usize].sources.iter().chain(&flows[flow.0 as usize].sinks) {
                logs[agent.0 as usize] = Some(Vec::new());
            }
        }
        Self {
            scenario,
            logs,
            armed: vec![Time::NEVER; agents.len()],
            batches: net.groups.iter().map(|_| Batch::default()).collect(),
            net,
            agents,
            ports,
            plan,
            flows,
            viewers,
            seats,
            sources,
            now: Time::ZERO,
            step,
            links: vec![Vec::new(); kept],
            link_last: vec![(0, 0); kept],
            warm: Vec::new(),
            deliveries: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    /// Has what is offered to the links that the scenario captures written as pcapng: one stream per link, both directions in it.
    /// `open` is told a link's name. Packets stand in it at the time at which they come to the link's entry, or, where its queue
    /// decides when they leave, at which they do; those that it drops with a comment.
    ///
    /// # Errors
    /// The streams', with the link's name.
    pub fn capture(
        &mut self,
        mut open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let who = self.agents.iter().zip(&self.ports).map(|(agent, port)| Who {
            node: port.node,
            tcp: match agent {
                Agent::TcpSource(source) => Some(Shape {
                    packet: source.config.packet.get(),
                    header: source.config.header.get(),
                    handshake: source.config.handshake,
                    stamps: source.config.timestamps,
                }),
                _ => None,
            },
        });
        let mut taps = Taps::new(who.collect());
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

    /// When the run ends.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// The present time in the run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What it has left behind so far.
    pub fn record(&self) -> Record<'_> {
        let under_way = self.net.under_way();
        let links = self.net.links.iter().zip(under_way).enumerate().map(|(n, (hop, on_it))| LinkRecord {
            link: &hop.link,
            before: self.warm.get(n),
            carried: hop.link.arrived() - on_it,
            series: self.links.get(n).map_or(&[][..], Vec::as_slice),
        });
        Record {
            world: "simulated",
            scenario: &self.scenario,
            agents: &self.agents,
            flows: &self.flows,
            viewers: &self.viewers,
            links: links.collect(),
            ways: self.ways(),
            logs: &self.logs,
            hops: self.net.hops,
            step: self.step,
            now: self.now,
        }
    }

    /// The summary of the run so far, without what needs pixels. `complete` says whether its end was reached.
    pub fn summary(&self, complete: bool) -> Value {
        self.record().summary(complete)
    }

    /// The table called `name`; `None` for a name that no table has.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.record().table(name)
    }

    /// The links that each flow's data needs, as directions.
    fn ways(&self) -> Vec<Vec<u32>> {
        let of = |(spec, source): (&sc::Flow, &u32)| {
            let mut links = Vec::new();
            for to in &spec.to {
                let mut node = to.0;
                let Some(ways) = self.net.routes.get(*source as usize) else { continue };
                while let Some(Some(up)) = ways.get(node as usize) {
                    links.push(up ^ 1);
                    node = self.net.links[*up as usize].to;
                    if spec.cast == sc::Cast::Multicast && links.len() > 1 << 16 {
                        break;
                    }
                }
            }
            links.sort_unstable();
            links.dedup();
            links
        };
        self.scenario.flows.iter().zip(&self.sources).map(of).collect()
    }

    /// Packets that have left a link so far.
    pub fn hops(&self) -> u64 {
        self.net.hops
    }

    /// Runs to the end, as long as `go_on` says so; it is asked every 10 ms of the run or more often.
    ///
    /// Returns whether the end was reached.
    pub fn run(&mut self, mut go_on: impl FnMut(Time) -> bool) -> bool {
        let end = self.end();
        let warm = Time::ZERO + self.scenario.warmup;
        let mut next = Time::ZERO + self.step;
        while self.now < end {
            let step = next.min(end);
            let mut until = step.min(self.now + ASK);
            if self.now < warm {
                until = until.min(warm);
            }
            // A run of 10 s ends before the packet that would leave after 10 s.
            self.advance(if until == end { end.before(Span::nanos(1)) } else { until });
            self.now = until;
            if until == warm {
                self.warm = self.net.links.iter().map(|hop| hop.link.counts()).collect();
            }
            if until == step {
                self.sample();
                next = until + self.step;
            }
            if !go_on(self.now) {
                self.settle();
                return self.now >= end;
            }
        }
        self.drain(end);
        self.settle();
        true
    }

    /// Lets arrive what is under way at the end, so that the last frames are not counted as lost.
    fn drain(&mut self, end: Time) {
        for ix in 0..self.agents.len() {
            self.agents[ix].finish(end, &mut Out { packets: &mut self.outgoing });
            self.after(AgentIx(ix as u32));
        }
        self.deliver();
        let hops = self.net.hops;
        self.advance(end + GRACE);
        // The run's figures are those of its duration.
        (self.now, self.net.hops) = (end, hops);
    }

    /// Goes on to `until`, which is included.
    fn advance(&mut self, until: Time) {
        while let Some((at, due)) = self.net.agenda.take(until) {
            self.now = at;
            match due {
                Due::Lane(lane) => {
                    if let Some(delivery) = self.net.arrive(at, lane, &mut self.deliveries) {
                        self.hand_over(delivery);
                    }
                    self.deliver();
                }
                Due::Fan(n) => {
                    let fan = self.net.fans.take(n);
                    self.net.hops += fan.legs.len() as u64;
                    if !self.hold(&fan) {
                        for leg in &fan.legs {
                            let out = &mut self.deliveries;
                            if let Some(delivery) = self.net.arrive_in_group(at, leg.link, fan.packet, leg.ecn, out) {
                                self.hand_over(delivery);
                            }
                            self.deliver();
                        }
                    }
                    self.net.fans.keep(fan.legs);
                }
                Due::Agent(agent) => self.wake(agent),
                Due::Plan(entry) => self.follow(entry),
                Due::Queue(link) => self.net.ask(at, link),
            }
        }
        self.now = until;
    }

    /// Whether a fan's plain packet will be told to its sinks later, together with others.
    fn hold(&mut self, fan: &Fan) -> bool {
        let packet = self.net.pool.get(fan.packet);
        let (To::Group(group), Body::Plain(number)) = (packet.head.to, &packet.body) else { return false };
        let what = (*number, packet.head.size, packet.head.sent);
        let (batch, group) = (&mut self.batches[group as usize], &self.net.groups[group as usize]);
        let held = batch.take((self.now, &fan.legs), what, group, (&mut self.agents, &mut self.logs));
        if held {
            self.net.pool.release_all(fan.packet, fan.legs.len() as u32);
        }
        held
    }

    /// Tells all sinks what they have not been told.
    fn settle(&mut self) {
        for (batch, group) in self.batches.iter_mut().zip(&self.net.groups) {
            batch.settle(group, &mut self.agents, &mut self.logs);
        }
    }

    #[inline]
    fn deliver(&mut self) {
        while let Some(delivery) = self.deliveries.pop() {
            self.hand_over(delivery);
        }
    }

    /// A packet has reached an agent.
    #[inline]
    fn hand_over(&mut self, delivery: Delivery) {
        let Delivery { agent: from, packet: ix, ecn } = delivery;
        let n = from.0 as usize;
        let packet = self.net.pool.get(ix);
        if let To::Group(group) = packet.head.to {
            // What came before comes first.
            let (batch, group) = (&mut self.batches[group as usize], &self.net.groups[group as usize]);
            batch.settle(group, &mut self.agents, &mut self.logs);
        }
        if let Some(Some(log)) = self.logs.get_mut(n) {
            let delay = Some(self.now.since(packet.head.sent));
            log.extend(PacketRow::of(self.now, packet.head.size, &packet.body, ecn, delay));
        }
        let arriving = packet.arriving(ecn);
        match (&mut self.agents[n], &packet.body) {
            (Agent::PlainSink(sink), Body::Plain(number)) => {
                // It sends nothing and never wakes: there is no after.
                sink.on_packet(self.now, *number, packet.head.size, packet.head.sent);
                self.net.pool.release(ix);
                return;
            }
            // What these send goes straight on its way: by way of `outgoing` it would be moved twice more.
            (Agent::TcpSink(sink), Body::Tcp(transfer, segment)) => {
                let transfer = *transfer;
                let answer = sink.take(self.now, &arriving, transfer, segment);
                let wake = sink.wake();
                self.net.pool.release(ix);
                if let Some((size, ack)) = answer {
                    self.let_go(from, size, Ecn::NotCapable, || Body::TcpAck(transfer, ack));
                }
                self.arm(from, wake);
                return;
            }
            (Agent::TcpSource(source), Body::TcpAck(transfer, ack)) => {
                let more = source.take(self.now, *transfer, ack);
                self.net.pool.release(ix);
                self.drain_tcp(from, more);
                return;
            }
            (agent, _) => agent.on_packet(self.now, &arriving, &mut Out { packets: &mut self.outgoing }),
        }
        self.net.pool.release(ix);
        self.after(from);
    }

    fn drain_tcp(&mut self, from: AgentIx, more: bool) {
        while let Agent::TcpSource(source) = &mut self.agents[from.0 as usize] {
            match if more { source.poll(self.now) } else { None } {
                Some((ecn, segment)) => {
                    let transfer = source.transfer();
                    self.let_go(from, segment.len, ecn, || Body::Tcp(transfer, segment));
                }
                None => {
                    let wake = source.wake();
                    return self.arm(from, wake);
                }
            }
        }
    }

    fn wake(&mut self, ix: u32) {
        let at = self.now;
        if self.armed[ix as usize] != at {
            return; // A key that was overtaken by an earlier one.
        }
        self.armed[ix as usize] = Time::NEVER;
        while let Some(packet) = self.ports[ix as usize].release(at) {
            let node = self.ports[ix as usize].node;
            self.net.send(at, node, packet.head, || packet.body, &mut self.deliveries);
        }
        let agent = &mut self.agents[ix as usize];
        if agent.wake() <= at {
            agent.on_wake(at, &mut Out { packets: &mut self.outgoing });
        }
        self.after(AgentIx(ix));
        self.deliver();
    }

    #[inline]
    fn remind(&mut self, at: Time, due: Due) {
        let key = self.net.agenda.key(at, due);
        self.net.agenda.put(key);
    }

    fn follow(&mut self, entry: u32) {
        match self.plan[entry as usize] {
            Plan::Start { agent, .. } => {
                self.agents[agent.0 as usize].start(self.now, &mut Out { packets: &mut self.outgoing });
                self.after(agent);
            }
            Plan::Stop { agent, .. } => {
                self.agents[agent.0 as usize].stop(self.now, &mut Out { packets: &mut self.outgoing });
                self.after(agent);
            }
            Plan::Tree { sink: Some(sink), .. } if self.agents[sink.0 as usize].leaving() => {
                let at = self.agents[sink.0 as usize].wake().max(self.now);
                self.remind(at, Due::Plan(entry));
            }
            Plan::Tree { group, node, join, .. } => {
                let (batch, tree) = (&mut self.batches[group as usize], &self.net.groups[group as usize]);
                batch.forget(tree, &mut self.agents, &mut self.logs);
                if let Some(step) = self.net.graft(group, Step { node, join }) {
                    let latency = if join { self.scenario.join_latency } else { self.scenario.leave_latency };
                    let at = self.now + latency + self.upwards(group, step.node);
                    self.plan_now(Plan::Tree { at, group, node: step.node, join, sink: None });
                }
            }
        }
        self.deliver();
    }

    /// A receiver of a simulcast may want to go to another group, now that its sink was called.
    #[inline(never)]
    fn choose(&mut self, sink: AgentIx) {
        let Some(seat) = self.seats[sink.0 as usize] else { return };
        let over = self.now >= self.end();
        let viewer = &mut self.viewers[seat.viewer as usize];
        if over || viewer.sink() != sink {
            return;
        }
        if let Some((leaves, joins)) = viewer.look(self.now, &self.agents) {
            self.plan_now(Plan::Stop { at: self.now, agent: leaves });
            self.plan_turn(leaves, false);
            self.plan_now(Plan::Start { at: self.now, agent: joins });
            self.plan_turn(joins, true);
        }
    }

    /// A sink's join or leave takes effect where the next router hears of it.
    fn plan_turn(&mut self, sink: AgentIx, join: bool) {
        let Some(Seat { group, .. }) = self.seats[sink.0 as usize] else { return };
        let node = self.ports[sink.0 as usize].node;
        let at = self.now + self.upwards(group, node);
        self.plan_now(Plan::Tree { at, group, node, join, sink: (!join).then_some(sink) });
    }

    /// Puts an entry into the plan while it is followed.
    fn plan_now(&mut self, entry: Plan) {
        self.remind(entry.at(), Due::Plan(self.plan.len() as u32));
        self.plan.push(entry);
    }

    /// How long a join or leave takes over the link from `node` towards the group's source.
    fn upwards(&self, group: u32, node: u32) -> Span {
        let up = self.net.groups[group as usize].tree.up(node);
        up.map_or(Span::ZERO, |link| delay_of(&self.scenario, link))
    }

    /// After an agent was called: its packets leave, and its next wake is put into the agenda.
    fn after(&mut self, from: AgentIx) {
        if !self.outgoing.is_empty() {
            let mut outgoing = std::mem::take(&mut self.outgoing);
            for (size, ecn, body) in outgoing.drain(..) {
                self.let_go(from, size, ecn, || body);
            }
            self.outgoing = outgoing;
        }
        let wake = self.agents[from.0 as usize].wake();
        self.arm(from, wake);
        if !self.seats.is_empty() {
            self.choose(from);
        }
    }

    /// A packet leaves an agent.
    #[inline(always)]
    fn let_go(&mut self, from: AgentIx, size: Bytes, ecn: Ecn, body: impl FnOnce() -> Body) {
        let port = &self.ports[from.0 as usize];
        let head = Head { to: port.to, from, size, sent: self.now, ecn };
        if port.jitters() || !self.logs.is_empty() {
            self.let_go_slowly(Packet { head, body: body() });
        } else {
            self.net.send(self.now, port.node, head, body, &mut self.deliveries);
        }
    }

    #[inline(never)]
    fn let_go_slowly(&mut self, packet: Packet) {
        let Packet { head, body } = packet;
        let from = head.from.0 as usize;
        if let Some(Some(log)) = self.logs.get_mut(from) {
            log.extend(PacketRow::of(self.now, head.size, &body, head.ecn, None));
        }
        let port = &mut self.ports[from];
        if port.jitters() {
            port.hold(self.now, Packet { head, body });
        } else {
            self.net.send(self.now, port.node, head, || body, &mut self.deliveries);
        }
    }

    /// Has an agent woken when it wants to, or when its port has something to release.
    #[inline]
    fn arm(&mut self, agent: AgentIx, wake: Time) {
        let ix = agent.0 as usize;
        let wake = wake.min(self.ports[ix].wake());
        if wake < self.armed[ix] {
            let at = wake.max(self.now);
            self.armed[ix] = at;
            self.remind(at, Due::Agent(agent.0));
        }
    }

    fn sample(&mut self) {
        self.settle();
        for agent in &mut self.agents {
            agent.sample(self.now);
        }
        for (n, series) in self.links.iter_mut().enumerate() {
            let link = &mut self.net.links[n].link;
            let (bytes, dropped) = (link.sent().get(), link.dropped());
            let last = std::mem::replace(&mut self.link_last[n], (bytes, dropped));
            series.push(LinkPoint {
                bytes: bytes - last.0,
                dropped: dropped - last.1,
                queued: link.queued(self.now) as u32,
                wait: link.waited(),
            });
        }
    }
}

/// The propagation delay of a link's direction at the start.
pub(crate) fn delay_of(scenario: &Scenario, direction: u32) -> Span {
    let link = &scenario.links[direction as usize / 2];
    if direction.is_multiple_of(2) { link.forward.delay } else { link.back.delay }
}

/// The longest span of which both the record's interval and a second are multiples.
fn common_step(interval: Span) -> Span {
    let (mut a, mut b) = (interval.as_nanos().max(1), 1_000_000_000);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // A record in steps that do not fit a second is taken in tenths of one at most.
    if a < 1_000_000 { Span::millis(100) } else { Span::nanos(a) }
}
