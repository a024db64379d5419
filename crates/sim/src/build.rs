//! From a scenario to a world that is ready to run.

use crate::agenda::{Agenda, Due};
use crate::net::{Fans, Group, Holds, Hop, Lanes, Net, Node, Place, Ways};
use crate::packet::{Pool, To};
use crate::port::Port;
use crate::tree::{Graph, Tree};
use crate::world::{Plan, Seat, Simulation, delay_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_ends::{Agent, AgentIx, Cast, FlowEnds, Inputs, MakeError, Makers, Viewer};
use steadycast_link::{self as link, Link, Steps};
use steadycast_scenario as sc;
use steadycast_units::{Rate, Seed, Span, Time};

/// Why a scenario can't be run.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// One of its flows.
    #[error(transparent)]
    Flow(#[from] MakeError),
    /// No way leads from a flow's source to a receiver.
    #[error("flow.{flow}: no way leads from {from} to {to}")]
    NoWay {
        /// The flow.
        flow: String,
        /// Its source.
        from: String,
        /// The receiver.
        to: String,
    },
    /// A recorded rate can't be changed, and none can begin on the way.
    #[error(
        "link.{link}: a trace holds for a whole run; an event can set a constant rate on a link with a constant rate"
    )]
    TraceEvent {
        /// The link.
        link: String,
    },
    /// More than is numbered.
    #[error("the scenario has too many {0}")]
    TooMany(&'static str),
}

/// A flow that has its place in the network.
struct Laid {
    ends: FlowEnds,
    /// The ways towards its source.
    source_route: u32,
    /// The group of a multicast flow.
    group: Option<u32>,
}

pub(crate) struct Builder<'a> {
    scenario: &'a sc::Scenario,
    seed: Seed,
    net: Net,
    graph: Graph,
    agents: Vec<Agent>,
    ports: Vec<Port>,
    /// Routes by their target node.
    routes: BTreeMap<u32, u32>,
    plan: Vec<Plan>,
    cast: Cast<'a>,
}

impl<'a> Builder<'a> {
    pub(crate) fn build(scenario: &'a sc::Scenario, inputs: &'a Inputs) -> Result<Simulation, BuildError> {
        if scenario.links.len() > 1 << 28 || scenario.nodes.len() > 1 << 28 {
            return Err(BuildError::TooMany("links"));
        }
        let seed = scenario.seed;
        let ends = scenario.links.iter().flat_map(|l| [(l.a.0, l.b.0), (l.b.0, l.a.0)]);
        let graph = Graph::new(scenario.nodes.len(), ends);
        let mut links = Vec::with_capacity(scenario.links.len() * 2);
        for (n, l) in scenario.links.iter().enumerate() {
            for (back, direction, to) in [(false, &l.forward, l.b.0), (true, &l.back, l.a.0)] {
                let config = link_config(direction, scenario, n as u32, back)?;
                let name = format!("{}.{}", l.name, if back { "back" } else { "forward" });
                let own = links.len() as u32;
                links.push(Hop::new(Link::new(&config, &name, seed), to, own ^ 1));
            }
        }
        let net = Net {
            lanes: Lanes::new(links.len()),
            links,
            nodes: (0..scenario.nodes.len()).map(|_| Node::default()).collect(),
            routes: Vec::new(),
            ways: Ways::default(),
            groups: Vec::new(),
            pool: Pool::default(),
            agenda: Agenda::default(),
            hops: 0,
            fans: Fans::default(),
            holds: Holds::default(),
            capture: None,
        };
        let mut builder = Builder {
            scenario,
            seed,
            net,
            graph,
            agents: Vec::new(),
            ports: Vec::new(),
            routes: BTreeMap::new(),
            plan: Vec::new(),
            cast: Cast::new(scenario, inputs),
        };
        let flows =
            scenario.flows.iter().enumerate().map(|(n, f)| builder.flow(n as u32, f)).collect::<Result<Vec<_>, _>>()?;
        builder.events(&flows);
        let simulcasts = builder.simulcasts(&flows);
        let Builder { mut net, agents, ports, plan, .. } = builder;
        for (n, entry) in plan.iter().enumerate() {
            let key = net.agenda.key(entry.at(), Due::Plan(n as u32));
            net.agenda.put(key);
        }
        let flows = flows.into_iter().map(|laid| (laid.ends, laid.source_route)).unzip();
        Ok(Simulation::new(scenario.clone(), net, agents, ports, plan, flows, simulcasts))
    }

    fn name(&self, node: sc::NodeIx) -> String {
        self.scenario.node_name(node).to_owned()
    }

    /// The way to `node`, computed once.
    fn route(&mut self, node: u32) -> u32 {
        if let Some(route) = self.routes.get(&node) {
            return *route;
        }
        let route = self.net.routes.len() as u32;
        self.net.routes.push(self.graph.ways_to(node, |l| l ^ 1));
        self.routes.insert(node, route);
        route
    }

    /// The way between two nodes, to an agent on the second.
    fn way(&mut self, from: u32, to: u32, agent: AgentIx) -> Place {
        let route = self.route(to) as usize;
        let Net { routes, links, ways, .. } = &mut self.net;
        let step = |node: u32| routes[route][node as usize].map(|link| (link, links[link as usize].to));
        let steps = std::iter::successors(step(from), |(_, node)| step(*node));
        ways.add(steps.map(|(link, _)| link), agent)
    }

    fn add(&mut self, agent: Agent, node: u32, to: To, jitter: Span, name: &str) -> AgentIx {
        let ix = AgentIx(self.agents.len() as u32);
        self.agents.push(agent);
        self.ports.push(Port::new(node, to, jitter, self.seed.part(&format!("{name}.jitter"))));
        ix
    }

    fn flow(&mut self, n: u32, flow: &sc::Flow) -> Result<Laid, BuildError> {
        let ends = self.cast.ends(n);
        let source_route = self.route(flow.from.0);
        for to in &flow.to {
            if to.0 != flow.from.0 && self.net.routes[source_route as usize][to.0 as usize].is_none() {
                let (from, to) = (self.name(flow.from), self.name(*to));
                return Err(BuildError::NoWay { flow: flow.name.clone(), from, to });
            }
        }
        let group = (flow.cast == sc::Cast::Multicast).then(|| {
            let up = self.net.routes[source_route as usize].clone();
            self.net.groups.push(Group::new(Tree::new(up), self.net.links.len()));
            self.net.groups.len() as u32 - 1
        });
        let makers = self.cast.makers(n, &ends)?;
        let mut laid = Laid { ends, source_route, group };
        self.sessions(flow, &mut laid, makers);
        if matches!(flow.kind, sc::FlowKind::Video(_)) {
            let outside = self.scenario.starts_outside(sc::FlowIx(n));
            for (times, (at, _)) in laid.ends.active.iter().enumerate() {
                let members = self.cast.members(n, laid.ends.sinks.len(), *at);
                for (receiver, sink) in laid.ends.sinks.iter().enumerate() {
                    // Whoever is there from the start is there before the first packet. One that joined before the flow's first
                    // start has its session already.
                    if members[receiver] && (times > 0 || outside.binary_search(&receiver).is_err()) {
                        self.plan.push(Plan::Start { at: *at, agent: *sink });
                    }
                }
            }
        }
        for source in &laid.ends.sources {
            for (at, stop) in &laid.ends.active {
                self.plan.push(Plan::Start { at: *at, agent: *source });
                if *stop < Time::NEVER {
                    self.plan.push(Plan::Stop { at: *stop, agent: *source });
                }
            }
        }
        Ok(laid)
    }

    /// Adds a source and its sinks, or a source for each sink.
    fn sessions(&mut self, flow: &sc::Flow, laid: &mut Laid, mut make: Makers<'_>) {
        let each = flow.cast == sc::Cast::UnicastEach;
        let to_source = matches!(&flow.kind, sc::FlowKind::Video(video) if video.rtcp.reports == sc::Reports::Source);
        let Laid { ends, group, .. } = laid;
        for (n, to) in flow.to.iter().enumerate() {
            let session = if each { format!("{}.{n}", flow.name) } else { flow.name.clone() };
            if n == 0 || each {
                let agent = (make.source)(&session);
                // A unicast source is told where to when its receiver is known.
                let target = To::Group(group.unwrap_or(0));
                let ix = self.add(agent, flow.from.0, target, flow.send_jitter, &format!("flow.{session}.src"));
                ends.sources.push(ix);
            }
            let source_ix = ends.sources[ends.sources.len() - 1];
            let agent = (make.sink)(n, &session);
            let up = match *group {
                Some(group) if !to_source => To::Group(group),
                _ => To::One { agent: source_ix, way: self.way(to.0, flow.from.0, source_ix) },
            };
            let ix = self.add(agent, to.0, up, Span::ZERO, &format!("flow.{session}.dst{n}"));
            ends.sinks.push(ix);
            match *group {
                Some(group) => self.net.nodes[to.0 as usize].members.push((group, ix)),
                None => {
                    let way = self.way(flow.from.0, to.0, ix);
                    self.ports[source_ix.0 as usize].to = To::One { agent: ix, way };
                }
            }
        }
        if let Some(group) = *group {
            // The source hears what members send.
            let source = ends.sources[0];
            self.net.nodes[flow.from.0 as usize].members.push((group, source));
        }
    }

    fn events(&mut self, flows: &[Laid]) {
        for (n, (flow, laid)) in self.scenario.flows.iter().zip(flows).enumerate() {
            let Some(group) = laid.group else { continue };
            let outside = self.scenario.starts_outside(sc::FlowIx(n as u32));
            for (receiver, to) in flow.to.iter().enumerate() {
                if outside.binary_search(&receiver).is_err() {
                    self.graft_now(group, to.0);
                }
            }
        }
        for event in &self.scenario.events {
            let (flow, receiver, join) = match event.what {
                sc::What::Join { flow, receiver } => (flow, receiver, true),
                sc::What::Leave { flow, receiver } => (flow, receiver, false),
                _ => continue,
            };
            let laid = &flows[flow.0 as usize];
            let Some(sink) = laid.ends.sinks.get(receiver) else { continue };
            let node = self.ports[sink.0 as usize].node;
            self.plan.push(if join {
                Plan::Start { at: event.at, agent: *sink }
            } else {
                Plan::Stop { at: event.at, agent: *sink }
            });
            if let Some(group) = laid.group {
                let sink = (!join).then_some(*sink);
                // It takes effect where the next router hears of it.
                let up = self.net.groups[group as usize].tree.up(node);
                let delay = up.map_or(Span::ZERO, |link| delay_of(self.scenario, link));
                self.plan.push(Plan::Tree { at: event.at + delay, group, node, join, sink });
            }
        }
    }

    /// The receivers of simulcasts, and for each agent which it is of.
    fn simulcasts(&self, flows: &[Laid]) -> (Vec<Viewer>, Vec<Option<Seat>>) {
        let (mut viewers, mut seats) = (Vec::new(), Vec::new());
        for (n, spec) in self.scenario.simulcasts.iter().enumerate() {
            let lowest = spec.flows[0].0 as usize;
            seats.resize(self.agents.len(), None);
            for (receiver, to) in self.scenario.flows[lowest].to.iter().enumerate() {
                let mut viewer = Viewer::new(self.scenario, n, receiver);
                for laid in spec.flows.iter().map(|flow| &flows[flow.0 as usize]) {
                    let (Some(sink), Some(group)) = (laid.ends.sinks.get(receiver), laid.group) else { continue };
                    viewer.sinks.push(*sink);
                    seats[sink.0 as usize] = Some(Seat { viewer: viewers.len() as u32, group });
                }
                let ups = &self.net.routes[flows[lowest].source_route as usize];
                let step = |node: u32| ups[node as usize].map(|up| (up, self.net.links[up as usize].to));
                viewer.way.extend(std::iter::successors(step(to.0), |(_, node)| step(*node)).map(|(up, _)| up ^ 1));
                viewers.push(viewer);
            }
        }
        (viewers, seats)
    }

    fn graft_now(&mut self, group: u32, node: u32) {
        let mut step = Some(crate::tree::Step { node, join: true });
        while let Some(now) = step {
            step = self.net.graft(group, now);
        }
    }
}

fn amount(limit: sc::Limit) -> link::Amount {
    match limit {
        sc::Limit::Packets(n) => link::Amount::Packets(n),
        sc::Limit::Bytes(b) => link::Amount::Bytes(b),
    }
}

fn loss(spec: &sc::Loss) -> link::Loss {
    match spec {
        sc::Loss::None => link::Loss::None,
        sc::Loss::Bernoulli { p } => link::Loss::Bernoulli { p: *p },
        sc::Loss::Run { mean } => link::Loss::Run { mean: *mean },
        sc::Loss::Gilbert { p_bad, p_good, loss_good, loss_bad } => {
            link::Loss::Gilbert { p_bad: *p_bad, p_good: *p_good, loss_good: *loss_good, loss_bad: *loss_bad }
        }
        sc::Loss::List { packets } => link::Loss::List { packets: packets.to_vec() },
    }
}

fn codel(spec: &sc::CoDel) -> link::CoDel {
    link::CoDel { limit: amount(spec.limit), target: spec.target, interval: spec.interval, ecn: spec.ecn }
}

fn queue(spec: &sc::Queue) -> link::Queue {
    match spec {
        sc::Queue::DropTail { limit } => link::Queue::DropTail(amount(*limit)),
        sc::Queue::CoDel(spec) => link::Queue::CoDel(codel(spec)),
        sc::Queue::FqCoDel { codel: spec, flows, quantum } => {
            link::Queue::FqCoDel(link::FqCoDel { codel: codel(spec), flows: *flows, quantum: *quantum })
        }
        sc::Queue::Red(red) => {
            // Thresholds in bytes count as so many mean packets.
            let packets = |l: sc::Limit| match l {
                sc::Limit::Packets(n) => f64::from(n),
                sc::Limit::Bytes(b) => b.as_f64() / red.mean_packet.as_f64(),
            };
            link::Queue::Red(link::Red {
                limit: amount(red.limit),
                min: packets(red.min),
                max: packets(red.max),
                max_p: red.max_p,
                weight: red.weight,
                gentle: red.gentle,
                by_bytes: matches!(red.min, sc::Limit::Bytes(_)),
                mean_packet: red.mean_packet,
                ecn: red.ecn,
            })
        }
    }
}

pub(crate) fn link_config(
    direction: &sc::Direction,
    scenario: &sc::Scenario,
    n: u32,
    back: bool,
) -> Result<link::Config, BuildError> {
    let mut delay = Steps::constant(direction.delay);
    let mut losses = Steps::constant(loss(&direction.loss));
    let late = |r: &sc::Reorder| link::Reorder { p: r.p, by: r.by };
    let mut reorder = Steps::constant(late(&direction.reorder));
    let mut duplicate = Steps::constant(direction.duplicate);
    let mut rates = match &direction.rate {
        sc::RateSpec::Constant(rate) => Some(Steps::constant(*rate)),
        _ => None,
    };
    for event in &scenario.events {
        let sc::What::Set(change) = &event.what else { continue };
        if change.link.0 != n || !(if back { change.direction.back() } else { change.direction.forward() }) {
            continue;
        }
        let traced = |rate: &sc::RateSpec| matches!(rate, sc::RateSpec::Trace(_));
        if change.rate.as_ref().is_some_and(|new| traced(new) || traced(&direction.rate)) {
            return Err(BuildError::TraceEvent { link: scenario.links[n as usize].name.clone() });
        }
        if let Some(sc::RateSpec::Constant(rate)) = &change.rate {
            // A link without a rate gets one: until then it is as fast as can be told.
            rates.get_or_insert(Steps::constant(Rate::bps(1_000_000_000_000))).then(event.at, *rate);
        }
        if let Some(new) = change.delay {
            delay.then(event.at, new);
        }
        if let Some(new) = &change.loss {
            losses.then(event.at, loss(new));
        }
        if let Some(new) = &change.reorder {
            reorder.then(event.at, late(new));
        }
        if let Some(new) = change.duplicate {
            duplicate.then(event.at, new);
        }
    }
    Ok(link::Config {
        service: match (&direction.rate, rates) {
            (sc::RateSpec::Trace(trace), _) => {
                link::Service::Trace(link::Opportunities { at: Arc::clone(&trace.opportunities), looped: trace.looped })
            }
            (_, Some(steps)) => link::Service::Rate(steps),
            (_, None) => link::Service::Unlimited,
        },
        delay,
        jitter: direction.jitter.as_ref().map(|j| link::Jitter {
            mean: j.mean,
            shape: match j.dist {
                sc::JitterDist::Exponential => link::JitterShape::Exponential,
                sc::JitterDist::Uniform => link::JitterShape::Uniform,
                sc::JitterDist::Normal => link::JitterShape::Normal,
            },
            reorder: j.reorder,
        }),
        loss: losses,
        arq: direction.arq.as_ref().map(|a| link::Arq { tries: a.tries, per_try: a.per_try }),
        reorder,
        duplicate,
        queue: queue(&direction.queue),
        mtu: direction.mtu,
    })
}
