//! From a scenario to a world that is ready to run.

use crate::agenda::{Agenda, Due};
use crate::agent::{
    Agent, Beat, MakeReceiver, PlainSink, PlainSource, Port, TcpSink, TcpSource, VideoSink, VideoSource,
};
use crate::intake::Intake;
use crate::net::{Fans, Group, Hop, Lanes, Net, Node};
use crate::packet::{AgentIx, Pool, To};
use crate::tree::{Graph, Tree};
use crate::world::{FlowEnds, Plan, Simulation, delay_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory};
use steadycast_control::{ParamError, ReceiverId, Setup};
use steadycast_link::{self as link, Link, Steps};
use steadycast_media::{Encoder, Ladder, LadderError, Vbr, Waiting};
use steadycast_scenario as sc;
use steadycast_session::{Emit, Identity, Profile, Receiver, RtcpSettings, SenderSettings};
use steadycast_tcp as tcp;
use steadycast_units::{Bytes, Rate, Seed, Span, Time};
use steadycast_wire::ntp::NtpEpoch;

/// What a scenario needs besides itself.
#[derive(Default)]
pub struct Inputs {
    /// For each video flow that is not greedy: its ladder.
    pub ladders: BTreeMap<String, Arc<Ladder>>,
    /// For video flows whose controller is not in the registry: what makes its halves.
    pub factories: BTreeMap<String, Arc<dyn Factory>>,
}

/// Why a scenario can't be run.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The controller or one of its parameters.
    #[error("flow.{flow}.controller: {error}")]
    Controller {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: ParamError,
    },
    /// A flow has nothing to send.
    #[error("flow.{flow}.media: no frame sizes were given; encode the clip first, or take media = \"greedy\"")]
    NoLadder {
        /// The flow.
        flow: String,
    },
    /// Frame sizes that can't be used.
    #[error("flow.{flow}.media: {error}")]
    Ladder {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: LadderError,
    },
    /// A TCP that can't be.
    #[error("flow.{flow}: {error}")]
    Tcp {
        /// The flow.
        flow: String,
        /// What is wrong.
        error: tcp::ConfigError,
    },
    /// A congestion control that only a kernel has.
    #[error("flow.{flow}.congestion: \"{name}\" is a kernel's; simulated are reno, newreno, sack and cubic")]
    KernelOnly {
        /// The flow.
        flow: String,
        /// Its name.
        name: String,
    },
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

/// Bytes of IP, UDP and RTP headers with the send time: what a packet costs before its notice.
const HEADERS: u64 = 28 + 12 + 4 + 8;

pub(crate) struct Builder<'a> {
    scenario: &'a sc::Scenario,
    inputs: &'a Inputs,
    seed: Seed,
    /// When the run ends; what is under way then still arrives.
    end: Time,
    net: Net,
    graph: Graph,
    agents: Vec<Agent>,
    ports: Vec<Port>,
    /// Routes by their target node.
    routes: BTreeMap<u32, u32>,
    plan: Vec<Plan>,
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
            groups: Vec::new(),
            pool: Pool::default(),
            agenda: Agenda::default(),
            hops: 0,
            fans: Fans::default(),
            capture: None,
        };
        let mut builder = Builder {
            scenario,
            inputs,
            seed,
            end: Time::ZERO + scenario.duration,
            net,
            graph,
            agents: Vec::new(),
            ports: Vec::new(),
            routes: BTreeMap::new(),
            plan: Vec::new(),
        };
        let flows =
            scenario.flows.iter().enumerate().map(|(n, f)| builder.flow(n as u32, f)).collect::<Result<Vec<_>, _>>()?;
        builder.events(&flows);
        let Builder { mut net, agents, ports, plan, .. } = builder;
        for (n, entry) in plan.iter().enumerate() {
            net.agenda.put(entry.at(), Due::Plan(n as u32));
        }
        Ok(Simulation::new(scenario.clone(), net, agents, ports, plan, flows))
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

    fn add(&mut self, agent: Agent, node: u32, to: To, jitter: Span, name: &str) -> AgentIx {
        let ix = AgentIx(self.agents.len() as u32);
        self.agents.push(agent);
        self.ports.push(Port::new(node, to, jitter, self.seed.part(&format!("{name}.jitter"))));
        ix
    }

    fn flow(&mut self, n: u32, flow: &sc::Flow) -> Result<FlowEnds, BuildError> {
        let active = self.activity(n, flow);
        let start = active.first().map_or(Time::NEVER, |a| a.0);
        let stop = active.last().map_or(Time::NEVER, |a| a.1);
        let means_from = start.max(Time::ZERO + self.scenario.warmup);
        let source_route = self.route(flow.from.0);
        let (sources, sinks) = (Vec::new(), Vec::new());
        let mut ends = FlowEnds { start, stop, active, means_from, source_route, sources, sinks, group: None };
        for to in &flow.to {
            if to.0 != flow.from.0 && self.net.routes[source_route as usize][to.0 as usize].is_none() {
                let (from, to) = (self.name(flow.from), self.name(*to));
                return Err(BuildError::NoWay { flow: flow.name.clone(), from, to });
            }
        }
        if flow.cast == sc::Cast::Multicast {
            let up = self.net.routes[source_route as usize].clone();
            ends.group = Some(self.net.groups.len() as u32);
            self.net.groups.push(Group { tree: Tree::new(up) });
        }
        match &flow.kind {
            sc::FlowKind::Cbr(cbr) => self.plain(flow, cbr.rate, cbr.packet, None, &mut ends),
            sc::FlowKind::OnOff(on) => self.plain(flow, on.rate, on.packet, Some((on.on, on.off)), &mut ends),
            sc::FlowKind::Tcp(tcp) => self.tcp(flow, tcp, &mut ends)?,
            sc::FlowKind::Video(video) => self.video(n, flow, video, &mut ends)?,
        }
        for source in &ends.sources {
            for (at, stop) in &ends.active {
                self.plan.push(Plan::Start { at: *at, agent: *source });
                if *stop < Time::NEVER {
                    self.plan.push(Plan::Stop { at: *stop, agent: *source });
                }
            }
        }
        Ok(ends)
    }

    /// When the flow is active: its own start and stop, and those of events, in the order of time.
    fn activity(&self, n: u32, flow: &sc::Flow) -> Vec<(Time, Time)> {
        let own = match flow.start {
            sc::Start::At(at) => Some(at),
            sc::Start::Uniform(low, high) => {
                let mut chance = self.seed.part(&format!("flow.{}.start", flow.name));
                Some(low + chance.span_between(Span::ZERO, high.since(low)))
            }
            sc::Start::Event => None,
        };
        let mut turns: Vec<(Time, bool)> =
            own.map(|at| (at, true)).into_iter().chain(flow.stop.map(|at| (at, false))).collect();
        turns.extend(self.scenario.events.iter().filter_map(|e| match e.what {
            sc::What::StartFlow(flow) if flow.0 == n => Some((e.at, true)),
            sc::What::StopFlow(flow) if flow.0 == n => Some((e.at, false)),
            _ => None,
        }));
        turns.sort_by_key(|(at, _)| *at);
        let (mut active, mut since) = (Vec::new(), None);
        for (at, on) in turns {
            match since {
                None if on => since = Some(at),
                Some(from) if !on => {
                    active.push((from, at));
                    since = None;
                }
                _ => {}
            }
        }
        active.extend(since.map(|from| (from, Time::NEVER)));
        active.retain(|(from, to)| from < to);
        active
    }

    /// Which receivers are in the group at a time, events of that very time included.
    fn members(&self, n: u32, receivers: usize, at: Time) -> Vec<bool> {
        let mut inside = vec![true; receivers];
        for receiver in self.scenario.starts_outside(sc::FlowIx(n)) {
            inside[receiver] = false;
        }
        for event in self.scenario.events.iter().filter(|e| e.at <= at) {
            match event.what {
                sc::What::Join { flow, receiver } if flow.0 == n => inside[receiver] = true,
                sc::What::Leave { flow, receiver } if flow.0 == n => inside[receiver] = false,
                _ => {}
            }
        }
        inside
    }

    /// Adds a source and its sinks; `source` and `sink` make the agents, told the name of the session and of the receiver.
    fn sessions(
        &mut self,
        flow: &sc::Flow,
        ends: &mut FlowEnds,
        mut source: impl FnMut(&mut Self, &str) -> Agent,
        mut sink: impl FnMut(&mut Self, usize, &str) -> Agent,
    ) {
        let back = self.route(flow.from.0);
        let each = flow.cast == sc::Cast::UnicastEach;
        for (n, to) in flow.to.iter().enumerate() {
            let session = if each { format!("{}.{n}", flow.name) } else { flow.name.clone() };
            if n == 0 || each {
                let agent = source(self, &session);
                // A unicast source is told where to when its receiver is known.
                let target = To::Group(ends.group.unwrap_or(0));
                let ix = self.add(agent, flow.from.0, target, flow.send_jitter, &format!("flow.{session}.src"));
                ends.sources.push(ix);
            }
            let source_ix = ends.sources[ends.sources.len() - 1];
            let agent = sink(self, n, &session);
            let up = match ends.group {
                Some(group) => To::Group(group),
                None => To::One { agent: source_ix, route: back },
            };
            let ix = self.add(agent, to.0, up, Span::ZERO, &format!("flow.{session}.dst{n}"));
            ends.sinks.push(ix);
            match ends.group {
                Some(group) => self.net.nodes[to.0 as usize].members.push((group, ix)),
                None => {
                    let route = self.route(to.0);
                    self.ports[source_ix.0 as usize].to = To::One { agent: ix, route };
                }
            }
        }
        if let Some(group) = ends.group {
            // The source hears what members send.
            let source = ends.sources[0];
            self.net.nodes[flow.from.0 as usize].members.push((group, source));
        }
    }

    fn plain(
        &mut self,
        flow: &sc::Flow,
        rate: Rate,
        packet: Bytes,
        periods: Option<(sc::Periods, sc::Periods)>,
        ends: &mut FlowEnds,
    ) {
        let intake = Intake::new(ends.means_from, self.end.min(ends.stop)).active(&ends.active);
        self.sessions(
            flow,
            ends,
            |this, session| {
                let beat = match periods {
                    None => Beat::Always,
                    Some((on, off)) => {
                        let chance = this.seed.part(&format!("flow.{session}.periods"));
                        Beat::OnOff { on, off, until: Time::ZERO, sending: false, chance }
                    }
                };
                Agent::PlainSource(PlainSource::new(rate, packet, beat))
            },
            |_, _, _| Agent::PlainSink(PlainSink::new(intake.clone())),
        );
    }

    fn tcp(&mut self, flow: &sc::Flow, spec: &sc::Tcp, ends: &mut FlowEnds) -> Result<(), BuildError> {
        let mut config = tcp_config(flow, spec)?;
        if !config.tick.is_zero() {
            // As in ns-2, a connection's clock starts anywhere within a tick.
            let mut chance = self.seed.part(&format!("flow.{}.tick", flow.name));
            let phase = chance.span_between(Span::ZERO, config.tick);
            config.tick_phase = phase.min(config.tick.saturating_sub(Span::nanos(1)));
        }
        config.check().map_err(|error| BuildError::Tcp { flow: flow.name.clone(), error })?;
        let intake = Intake::new(ends.means_from, self.end.min(ends.stop)).active(&ends.active);
        self.sessions(
            flow,
            ends,
            |this, session| {
                let chance = this.seed.part(&format!("flow.{session}.transfers"));
                Agent::TcpSource(Box::new(TcpSource::new(config.clone(), &spec.source, chance)))
            },
            |_, _, _| Agent::TcpSink(Box::new(TcpSink::new(config.clone(), intake.clone()))),
        );
        Ok(())
    }

    fn video(&mut self, n: u32, flow: &sc::Flow, video: &sc::Video, ends: &mut FlowEnds) -> Result<(), BuildError> {
        let factory = match self.inputs.factories.get(&flow.name) {
            Some(factory) => Arc::clone(factory),
            None => Chosen::shared(&video.controller, video.mode, video.given())
                .map_err(|error| BuildError::Controller { flow: flow.name.clone(), error })?,
        };
        let greedy = matches!(video.media, sc::Media::Greedy { .. });
        let ladder = if greedy {
            None
        } else {
            let ladder = self.inputs.ladders.get(&flow.name);
            let ladder = ladder.ok_or_else(|| BuildError::NoLadder { flow: flow.name.clone() })?;
            ladder.check().map_err(|error| BuildError::Ladder { flow: flow.name.clone(), error })?;
            Some(Arc::clone(ladder))
        };
        let payload = video.packet.get().saturating_sub(HEADERS).max(1);
        let range = ladder.as_ref().map(|l| l.range(payload, HEADERS));
        let cap = video.cap.unwrap_or(Rate::MAX).min(range.map_or(Rate::mbps(1_000), |r| r.1));
        let floor = video.floor.unwrap_or(range.map_or(Rate::ZERO, |r| r.0)).min(cap);
        let rtcp = RtcpSettings {
            profile: match video.rtcp.profile {
                sc::RtcpProfile::Rfc3550 => Profile::Rfc3550,
                sc::RtcpProfile::Asmp => Profile::Asmp,
                sc::RtcpProfile::Avpf => Profile::Avpf { t_rr_interval: Span::ZERO },
            },
            session_bandwidth: video.rtcp.session_bw,
            t_min: video.rtcp.t_min,
            group: flow.cast == sc::Cast::Multicast,
        };
        let setup = move |this: &Self, name: &str, ssrc: u32| Setup {
            packet: video.packet,
            mode: video.mode,
            floor,
            cap,
            session_bandwidth: video.rtcp.session_bw,
            group: flow.cast == sc::Cast::Multicast,
            id: ReceiverId(ssrc),
            chance: this.seed.part(&format!("{name}.half")),
        };
        let seed = self.seed;
        // The name alone decides: adding a receiver changes no other's SSRC.
        let who =
            move |name: &str| Identity { ssrc: seed.part(&format!("{name}.ssrc")).bits32(), cname: name.to_owned() };
        let first_seq = seed.part(&format!("flow.{}.seq", flow.name)).bits32() as u16;
        let from = ends.means_from;
        let intake = Intake::new(ends.means_from, self.end.min(ends.stop)).active(&ends.active);
        let many = flow.to.len() > 1_000;
        let make_half = Arc::clone(&factory);
        self.sessions(
            flow,
            ends,
            |this, session| {
                let name = format!("{session}.src");
                let settings = SenderSettings {
                    identity: who(&name),
                    rtcp,
                    packet: video.packet,
                    payload_type: 96,
                    fragment_header: 0,
                    emit: match video.emit {
                        sc::Emit::Paced => Emit::Paced,
                        sc::Emit::Burst => Emit::Burst,
                    },
                    backlog: Span::secs(1),
                    credit: Span::ZERO,
                    greedy,
                    app: factory.app(),
                    first_seq,
                    first_timestamp: seed.part(&format!("{name}.timestamp")).bits32(),
                    epoch: NtpEpoch::from_unix_secs(0),
                };
                let vbr = match video.vbr {
                    sc::Vbr::Bucket { factor } => Vbr::Bucket { factor },
                    sc::Vbr::Ladder => Vbr::Ladder,
                };
                let paper = video.mode == steadycast_control::Mode::Paper;
                let waiting = if paper { Waiting::Damped } else { Waiting::Drained };
                let encoder = ladder.as_ref().map(|l| Encoder::new(Arc::clone(l), vbr, waiting, payload, HEADERS));
                let setup = setup(this, &name, settings.identity.ssrc);
                let chance = seed.part(&format!("{name}.rtcp"));
                let by_ladder = range.is_some_and(|r| cap >= r.1);
                Agent::VideoSource(Box::new(VideoSource::new(
                    settings,
                    factory.clone(),
                    setup,
                    encoder,
                    by_ladder,
                    chance,
                    from,
                )))
            },
            |this, n, session| {
                let name = format!("{session}.dst{}", n + 1);
                let base = setup(this, &name, 0);
                let factory = Arc::clone(&make_half);
                let make: MakeReceiver = Box::new(move |now, times| {
                    // Who joins again is somebody else to the others: its old SSRC has said BYE.
                    let name = if times == 0 { name.clone() } else { format!("{name}.{times}") };
                    let identity = who(&name);
                    let chance = seed.part(&format!("{name}.half"));
                    let setup = Setup { id: ReceiverId(identity.ssrc), chance, ..base.clone() };
                    let half = factory.receiver(&setup);
                    let chance = seed.part(&format!("{name}.rtcp"));
                    Receiver::new(identity, rtcp, factory.app(), half, chance, now)
                });
                let sink = VideoSink::new(make, intake.clone(), !greedy, first_seq, !many);
                Agent::VideoSink(Box::new(sink))
            },
        );
        let outside = self.scenario.starts_outside(sc::FlowIx(n));
        for (times, (at, _)) in ends.active.iter().enumerate() {
            let members = self.members(n, ends.sinks.len(), *at);
            for (receiver, sink) in ends.sinks.iter().enumerate() {
                // Whoever is there from the start is there before the first packet. One that joined before the flow's first
                // start has its session already.
                if members[receiver] && (times > 0 || outside.binary_search(&receiver).is_err()) {
                    self.plan.push(Plan::Start { at: *at, agent: *sink });
                }
            }
        }
        Ok(())
    }

    fn events(&mut self, flows: &[FlowEnds]) {
        for (n, (flow, ends)) in self.scenario.flows.iter().zip(flows).enumerate() {
            let Some(group) = ends.group else { continue };
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
            let ends = &flows[flow.0 as usize];
            let Some(sink) = ends.sinks.get(receiver) else { continue };
            let node = self.ports[sink.0 as usize].node;
            self.plan.push(if join {
                Plan::Start { at: event.at, agent: *sink }
            } else {
                Plan::Stop { at: event.at, agent: *sink }
            });
            if let Some(group) = ends.group {
                let sink = (!join).then_some(*sink);
                // It takes effect where the next router hears of it.
                let up = self.net.groups[group as usize].tree.up(node);
                let delay = up.map_or(Span::ZERO, |link| delay_of(self.scenario, link));
                self.plan.push(Plan::Tree { at: event.at + delay, group, node, join, sink });
            }
        }
    }

    fn graft_now(&mut self, group: u32, node: u32) {
        let mut step = Some(crate::tree::Step { node, join: true });
        while let Some(now) = step {
            let links = &self.net.links;
            let tree = &mut self.net.groups[group as usize].tree;
            step = tree.step(now, |l| (links[l as usize].to, links[l as usize].reverse));
        }
    }
}

fn tcp_config(flow: &sc::Flow, spec: &sc::Tcp) -> Result<tcp::Config, BuildError> {
    let congestion = match &spec.congestion {
        sc::Congestion::Reno => tcp::Congestion::Reno,
        sc::Congestion::NewReno => tcp::Congestion::NewReno,
        sc::Congestion::Sack => tcp::Congestion::Sack,
        sc::Congestion::Cubic => tcp::Congestion::Cubic,
        sc::Congestion::Kernel(name) => {
            return Err(BuildError::KernelOnly { flow: flow.name.clone(), name: name.clone() });
        }
    };
    let preset = match spec.preset {
        sc::TcpPreset::Linux => tcp::Preset::Linux,
        sc::TcpPreset::Ns2 => tcp::Preset::Ns2,
        sc::TcpPreset::Ns2Old => tcp::Preset::Ns2Old,
    };
    let mut config = tcp::Config::new(preset, congestion);
    config.sack = spec.sack || congestion == tcp::Congestion::Sack;
    config.packet = spec.packet;
    config.window = spec.window;
    config.initial_window = spec.initial_window;
    config.min_rto = spec.min_rto;
    config.max_rto = spec.max_rto;
    config.initial_rto = spec.init_rto;
    config.tick = spec.tick;
    config.delayed_ack = spec.delayed_ack;
    config.timestamps = spec.timestamps;
    config.ecn = spec.ecn;
    config.hystart =
        if spec.hystart && congestion == tcp::Congestion::Cubic { tcp::Hystart::Classic } else { tcp::Hystart::Off };
    config.bytes = match spec.source {
        sc::TcpSource::File(bytes) | sc::TcpSource::Transfers { bytes, .. } => Some(bytes),
        // What the application writes is offered as it comes.
        sc::TcpSource::OnOff { .. } => Some(Bytes::ZERO),
        sc::TcpSource::Bulk => None,
    };
    if !flow.send_jitter.is_zero() {
        // ns-2 drops the limit where it delays sends (its `overhead_`).
        config.recovery_burst = 0;
    }
    Ok(config)
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

fn queue(spec: &sc::Queue) -> link::Queue {
    match spec {
        sc::Queue::DropTail { limit } => link::Queue::DropTail(amount(*limit)),
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

fn link_config(
    direction: &sc::Direction,
    scenario: &sc::Scenario,
    n: u32,
    back: bool,
) -> Result<link::Config, BuildError> {
    let mut delay = Steps::constant(direction.delay);
    let mut losses = Steps::constant(loss(&direction.loss));
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
        queue: queue(&direction.queue),
        mtu: direction.mtu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(keys: &str) -> tcp::Config {
        let text = format!(
            "duration = \"1s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\", delay = \"1ms\" }}\n\
             [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n{keys}\n"
        );
        let loaded = sc::Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        let sc::FlowKind::Tcp(spec) = &loaded.scenario.flows[0].kind else { panic!("no TCP") };
        tcp_config(&loaded.scenario.flows[0], spec).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_preset_without_further_keys_is_the_models_own_preset() {
        for (name, preset) in
            [("ns2", tcp::Preset::Ns2), ("ns2old", tcp::Preset::Ns2Old), ("linux", tcp::Preset::Linux)]
        {
            for law in ["reno", "newreno", "sack", "cubic"] {
                let congestion = law.parse().unwrap_or_else(|e| panic!("{e}"));
                let mut expected = tcp::Config::new(preset, congestion);
                // 6 MiB are 4194 packets; and in a scenario CUBIC alone doesn't bring SACK along.
                if preset == tcp::Preset::Linux {
                    expected.window = 4194;
                } else if congestion == tcp::Congestion::Cubic {
                    expected.sack = false;
                }
                assert_eq!(config(&format!("preset = \"{name}\"\ncongestion = \"{law}\"")), expected, "{name} {law}");
            }
        }
    }

    #[test]
    fn keys_override_the_preset_and_only_what_they_name() {
        let base = tcp::Config::new(tcp::Preset::Ns2, tcp::Congestion::NewReno);
        let said = config(
            "preset = \"ns2\"\ncongestion = \"newreno\"\nwindow = \"7p\"\ninitial_window = \"3p\"\nmin_rto = \"1s\"\n\
             max_rto = \"9s\"\ninit_rto = \"2s\"\ntick = \"1ms\"\ndelayed_ack = true\nsack = true\ntimestamps = true\n\
             ecn = true\npacket = \"500B\"\nbytes = \"9kB\"",
        );
        let expected = tcp::Config {
            window: 7,
            initial_window: 3,
            min_rto: Span::secs(1),
            max_rto: Span::secs(9),
            initial_rto: Span::secs(2),
            tick: Span::millis(1),
            delayed_ack: true,
            sack: true,
            timestamps: true,
            ecn: true,
            packet: Bytes::new(500),
            bytes: Some(Bytes::new(9_000)),
            ..base
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn delayed_sends_lift_ns2s_limit_on_bursts_in_recovery() {
        let ns2 = "preset = \"ns2\"\ncongestion = \"newreno\"\n";
        assert_eq!(config(ns2).recovery_burst, 2);
        assert_eq!(config(&format!("{ns2}send_jitter = \"1ms\"")).recovery_burst, 0);
    }

    #[test]
    fn hystart_is_cubics_and_can_be_switched_off_or_on() {
        let hystart = |keys: &str| config(keys).hystart;
        assert_eq!(hystart(""), tcp::Hystart::Classic);
        assert_eq!(hystart("hystart = false"), tcp::Hystart::Off);
        assert_eq!(hystart("congestion = \"newreno\""), tcp::Hystart::Off);
        assert_eq!(hystart("preset = \"ns2\"\ncongestion = \"cubic\""), tcp::Hystart::Off);
        assert_eq!(hystart("preset = \"ns2\"\ncongestion = \"cubic\"\nhystart = true"), tcp::Hystart::Classic);
    }
}
