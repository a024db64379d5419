//! Builds a simulation from a scenario.

use crate::port::Port;
use crate::world::{Entry, Parts, Simulation, SimulcastSlot};
use steadycast_endpoints::{
    Action, Agent, AgentFactory, AgentIx, BuildError, End, FlowEnds, Inputs, Makers, Viewer, plan,
};
use steadycast_network::{Alarm, Network, To};
use steadycast_scenario as sc;
use steadycast_units::{Seed, Span};

struct PlacedFlow {
    ends: FlowEnds,
    /// The multicast group. It is `None` for a unicast flow.
    group: Option<u32>,
}

pub(crate) struct Builder<'a> {
    scenario: &'a sc::Scenario,
    seed: Seed,
    network: Network,
    agents: Vec<Agent>,
    ports: Vec<Port>,
    plan: Vec<Entry>,
    cast: AgentFactory<'a>,
}

impl<'a> Builder<'a> {
    pub(crate) fn build(scenario: &'a sc::Scenario, inputs: &'a Inputs) -> Result<Simulation, BuildError> {
        let mut builder = Builder {
            scenario,
            seed: scenario.seed,
            network: Network::new(scenario)?,
            agents: Vec::new(),
            ports: Vec::new(),
            plan: Vec::new(),
            cast: AgentFactory::new(scenario, inputs),
        };
        let flows =
            scenario.flows.iter().enumerate().map(|(n, f)| builder.flow(n as u32, f)).collect::<Result<Vec<_>, _>>()?;
        builder.graft(&flows);
        let (viewers, slots) = builder.simulcasts(&flows);
        let groups: Vec<Option<u32>> = flows.iter().map(|placed| placed.group).collect();
        let ends: Vec<FlowEnds> = flows.into_iter().map(|placed| placed.ends).collect();
        builder.plan(&ends, &groups);
        let Builder { mut network, agents, ports, plan, .. } = builder;
        for (n, entry) in plan.iter().enumerate() {
            network.set_alarm(entry.at(), Alarm::Entry(n as u32));
        }
        let flows = (0..scenario.flows.len() as u32).map(sc::FlowIx);
        let ways = flows.map(|flow| network.directions_of_flow(scenario, flow)).collect();
        let parts = Parts { network, agents, ports, plan, flows: ends, ways, viewers, slots };
        Ok(Simulation::new(scenario.clone(), parts))
    }

    fn add(&mut self, agent: Agent, node: sc::NodeIx, to: To, jitter: Span, name: &str) -> AgentIx {
        let ix = AgentIx(self.agents.len() as u32);
        self.agents.push(agent);
        // Derive the random numbers from the name, so that an additional flow does not change the random numbers of
        // other agents.
        self.ports.push(Port::new(node, to, jitter, self.seed.part(&format!("{name}.jitter"))));
        ix
    }

    fn flow(&mut self, n: u32, flow: &sc::Flow) -> Result<PlacedFlow, BuildError> {
        let ends = self.cast.ends(n);
        self.network.check_paths(self.scenario, flow)?;
        let group = (flow.cast == sc::Cast::Multicast).then(|| self.network.add_group(flow.from));
        let makers = self.cast.makers(n, &ends)?;
        let mut placed = PlacedFlow { ends, group };
        self.sessions(flow, &mut placed, makers);
        Ok(placed)
    }

    /// Adds the sources and sinks of a flow. There is one source per sink if each receiver gets a stream of its own.
    fn sessions(&mut self, flow: &sc::Flow, placed: &mut PlacedFlow, mut make: Makers<'_>) {
        let each = flow.cast == sc::Cast::UnicastEach;
        let to_source = matches!(&flow.kind, sc::FlowKind::Video(video) if video.rtcp.reports == sc::Reports::Source);
        let PlacedFlow { ends, group } = placed;
        // A multicast flow is sent to its group. For a unicast flow, this destination is only a placeholder. It is
        // never used, because `check_paths` rejects a flow without a path.
        let nowhere = To::Group(group.unwrap_or(0));
        for (n, to) in flow.to.iter().enumerate() {
            let session = flow.session(n);
            if n == 0 || each {
                let agent = (make.source)(&session);
                // For a unicast flow, `nowhere` is replaced below, when the receiver's index is known.
                let ix = self.add(agent, flow.from, nowhere, flow.send_jitter, &format!("flow.{session}.src"));
                ends.sources.push(ix);
            }
            let source = ends.sources[ends.sources.len() - 1];
            let agent = (make.sink)(n, &session);
            let up = match *group {
                Some(group) if !to_source => To::Group(group),
                _ => self.network.path(*to, flow.from, source).unwrap_or(nowhere),
            };
            // The scenario's `send_jitter` applies only to the source, so the sink has none.
            let ix = self.add(agent, *to, up, Span::ZERO, &format!("flow.{session}.dst{n}"));
            ends.sinks.push(ix);
            match *group {
                Some(group) => self.network.add_member(group, *to, ix),
                None => self.ports[source.0 as usize].to = self.network.path(flow.from, *to, ix).unwrap_or(nowhere),
            }
        }
        if let Some(group) = *group {
            // Make the source a member, so that it receives the RTCP packets of the other members.
            self.network.add_member(group, flow.from, ends.sources[0]);
        }
    }

    /// Adds all receivers to their groups, except receivers that are not members of their group at the start.
    fn graft(&mut self, flows: &[PlacedFlow]) {
        for (n, (flow, placed)) in self.scenario.flows.iter().zip(flows).enumerate() {
            let Some(group) = placed.group else { continue };
            let outside = self.scenario.starts_outside(sc::FlowIx(n as u32));
            for (_, to) in flow.to.iter().enumerate().filter(|(r, _)| outside.binary_search(r).is_err()) {
                self.network.graft(group, *to);
            }
        }
    }

    /// Converts the starts, stops, joins and leaves of the scenario into entries of the simulation's plan.
    fn plan(&mut self, flows: &[FlowEnds], groups: &[Option<u32>]) {
        for turn in plan(self.scenario, flows) {
            let (ends, group) = (&flows[turn.flow.0 as usize], groups[turn.flow.0 as usize]);
            let agents = match turn.end {
                End::Source => &ends.sources[..],
                End::Receiver(n) => ends.sinks.get(n..=n).unwrap_or(&[]),
            };
            for agent in agents {
                let (at, agent, starts) = (turn.at, *agent, turn.does.begins());
                self.plan.push(if starts { Entry::Start { at, agent } } else { Entry::Stop { at, agent } });
                if let (Some(group), Action::Join | Action::Leave) = (group, turn.does) {
                    // A join or leave changes the tree when it reaches the next router.
                    let at = self.network.membership_effective_at(at, group, self.ports[agent.0 as usize].node);
                    self.plan.push(Entry::MembershipChange { at, group, agent, join: starts });
                }
            }
        }
    }

    /// Returns the receivers of simulcasts. The second list has a [`SimulcastSlot`] for each agent that belongs to such
    /// a receiver.
    fn simulcasts(&mut self, flows: &[PlacedFlow]) -> (Vec<Viewer>, Vec<Option<SimulcastSlot>>) {
        let (mut viewers, mut slots) = (Vec::new(), Vec::new());
        for (n, spec) in self.scenario.simulcasts.iter().enumerate() {
            let lowest = &self.scenario.flows[spec.flows[0].0 as usize];
            // Resize only here, so that `slots` stays empty without simulcasts.
            slots.resize(self.agents.len(), None);
            for (receiver, to) in lowest.to.iter().enumerate() {
                let mut viewer = Viewer::new(self.scenario, n, receiver);
                for placed in spec.flows.iter().map(|flow| &flows[flow.0 as usize]) {
                    let (Some(sink), Some(group)) = (placed.ends.sinks.get(receiver), placed.group) else { continue };
                    viewer.sinks.push(*sink);
                    slots[sink.0 as usize] = Some(SimulcastSlot { viewer: viewers.len() as u32, group });
                }
                viewer.way =
                    self.network.directions(lowest.from, *to).into_iter().map(|direction| direction.0).collect();
                viewers.push(viewer);
            }
        }
        (viewers, slots)
    }
}
