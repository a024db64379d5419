//! The emulated world: the hosts, the network between them, and the endpoints that run on them.

use crate::kernel;
use crate::namespace::{self, Namespace};
use crate::program::{Program, Started, sweep};
use crate::relay::{Gate, Member, Punctuality, Relay, RelayHandle, Relayed};
use crate::tap::Tap;
use crate::tcp::{Runner, Session};
use crate::tcp_monitor::{Stream, Streams};
use crate::udp::{Hosted, Sent, UdpEnd};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use steadycast_endpoints::{
    Agent, AgentFactory, AgentIx, BuildError, End, FlowEnds, Inputs, Intake, KernelSink, KernelSource, PacketRow,
    Record, Rows, Store, StoredRows, Table, Transition, plan, transitions_of,
};
use steadycast_live::{Clock, Interface, Loop, Pair, PairOptions, TempStore};
use steadycast_network::{Datagrams, group_address, host_address};
use steadycast_record::{Figures, Path, run};
use steadycast_scenario::{self as sc, NodeIx, Scenario};
use steadycast_tcp::Config;
use steadycast_units::{Span, Spread, Time};

/// The RTP port of the first session. Its RTCP port is the next port. Each further session uses the next two ports.
pub const RTP_PORT: u16 = 5004;
/// The port of the first session, if that is a TCP session. It is iperf's default port. The port of a later TCP session
/// is higher by the number of sessions before it, UDP sessions included.
pub const TCP_PORT: u16 = 5001;

/// Maximum number of sessions. Their ports must be below the ephemeral ports of the kernel.
const MAX_SESSIONS: usize = 10_000;

/// If the pacer is called late by at most this time, it catches up, so that it keeps its rate.
const PACER_CREDIT: Span = Span::millis(5);

const CHECK_INTERVAL: Span = Span::millis(50);

/// After the end of the scenario, the run continues until no packet has arrived for this time.
const GRACE_IDLE: Span = Span::millis(400);
const GRACE_TOTAL: Span = Span::secs(3);

/// Maximum fraction of late releases. If it is exceeded, the run is not trustworthy.
const MAX_LATE_SHARE: f64 = 0.01;

/// Maximum lateness of endpoint calls, as the 99th percentile. If it is exceeded, the run is not trustworthy.
const MAX_ENDS_LATENESS: Span = Span::millis(5);

/// Why a scenario can't be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// A problem in the network or in a flow.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// There is no host of this name.
    #[error("no host is called \"{0}\"")]
    NoHost(String),
    /// A program can't be started.
    #[error("{name}: can't be started ({error})")]
    Program {
        /// The program's name.
        name: String,
        /// The system's error.
        error: io::Error,
    },
    /// A system error, and the name of the resource that it concerns. Access to "network namespaces" and "/dev/net/tun"
    /// may require privileges.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

pub(crate) fn during(what: &'static str) -> impl FnOnce(io::Error) -> EmulateError {
    move |error| EmulateError::Io(what, error)
}

/// Options that are not part of the scenario.
#[derive(Default)]
pub struct Options {
    /// Nodes that get a host although no flow begins or ends there.
    pub hosts: Vec<String>,
    /// Whether the flows of the scenario are left out.
    pub only_network: bool,
    /// A program that runs during the flows. The run ends when the program ends.
    pub program: Option<Program>,
    /// Hosts whose datagrams are recorded in the table `wire`.
    pub tap: Vec<String>,
}

/// A host of the emulated world.
pub struct Host {
    /// Name of the host's node.
    pub name: String,
    /// The host's node.
    pub node: NodeIx,
    /// The host's network namespace.
    pub namespace: Arc<Namespace>,
}

struct Ready {
    agent: Agent,
    hosted: Hosted,
    pair: Pair,
    log: Option<Rows<PacketRow>>,
}

/// A scenario that is emulated in real time. It is prepared, running, or finished.
pub struct Emulation {
    scenario: Scenario,
    /// All hosts of the emulated world.
    pub hosts: Vec<Host>,
    agents: Vec<Agent>,
    flows: Vec<FlowEnds>,
    ways: Vec<Vec<Path>>,
    logs: Vec<Option<Vec<PacketRow>>>,
    step: Span,
    now: Time,
    /// The parts that the run needs. `None` once the run has started.
    ready: Option<Prepared>,
    /// The network model. `None` until the end of the run.
    network: Option<Datagrams>,
    tap: Option<Tap>,
    timing: Punctuality,
    sessions: usize,
    program: Option<Program>,
    /// The exit code of the program.
    pub code: Option<i32>,
    /// How late the endpoints of the flows were called, over the whole run.
    ends_late: Spread,
    ends_late_last: Spread,
}

struct Prepared {
    network: Datagrams,
    gates: Vec<Gate>,
    members: Vec<Member>,
    ends: Vec<Ready>,
    /// The source of each session that uses the kernel's TCP, in the order of the sessions.
    sources: Vec<AgentIx>,
    tcp: Runner,
    streams: Streams,
    tap: Option<Tap>,
}

impl Emulation {
    /// Creates the hosts, and opens the sockets of the flows.
    pub fn build(scenario: &Scenario, inputs: &mut Inputs, options: Options) -> Result<Self, EmulateError> {
        inputs.credit = PACER_CREDIT;
        // Kill processes of earlier runs that have crashed, because they would compete with this run.
        sweep();
        let mut scenario = scenario.clone();
        if options.only_network {
            scenario.flows.clear();
            scenario.record.packets.clear();
            // Without flows, keep only the events that change the network.
            scenario.events.retain(|e| matches!(e.kind, sc::EventKind::Set(_)));
        }
        let more = options.hosts.iter().chain(options.program.iter().map(|p| &p.host)).chain(&options.tap);
        let nodes = hosts_of(&scenario, more)?;
        let mut network = Datagrams::new(&scenario, &nodes)?;
        // If there is no store, the record stays in memory.
        let store = TempStore::new().ok().map(|spool| -> Arc<dyn Store> { Arc::new(spool) });
        if let Some(store) = &store {
            network.keep_in(store);
        }
        let tapped: BTreeSet<NodeIx> = options.tap.iter().filter_map(|name| scenario.node(name)).collect();
        let tap = (!tapped.is_empty()).then(|| Tap::new(tapped, store.as_ref()));
        let mtu = scenario.links.iter().flat_map(|l| [l.forward.mtu, l.back.mtu]).map(|m| m.get()).min();
        // The minimum MTU of IPv4 is 68 bytes (RFC 791).
        let mtu = mtu.unwrap_or(1500).clamp(68, 65_535) as u16;
        let (hosts, gates) = make_hosts(&scenario, &nodes, mtu)?;
        let flows = (0..scenario.flows.len() as u32).map(sc::FlowIx);
        let ways = flows.map(|flow| network.directions_of_flow(&scenario, flow)).collect();
        let spaces = hosts.iter().map(|h| (h.node, Arc::clone(&h.namespace))).collect();
        let mut planner = Planner {
            scenario: &scenario,
            inputs,
            spaces,
            store,
            agents: Vec::new(),
            ends: Vec::new(),
            tcp: Vec::new(),
            streams: Streams::default(),
            members: Vec::new(),
            sessions: 0,
            groups: 0,
            turns: Vec::new(),
        };
        let made = namespace::in_separate_thread(|| -> Result<_, EmulateError> {
            let flows = planner.flows()?;
            let (sources, sessions): (Vec<_>, Vec<_>) = std::mem::take(&mut planner.tcp).into_iter().unzip();
            Ok((flows, sources, Runner::new(sessions)?))
        });
        let (flows, sources, tcp) = made.map_err(during("the hosts' sockets"))??;
        let Planner { agents, ends, streams, members, sessions, .. } = planner;
        let step = scenario.record.step();
        let logs = vec![None; agents.len()];
        Ok(Self {
            hosts,
            agents,
            flows,
            ways,
            logs,
            step,
            now: Time::ZERO,
            ready: Some(Prepared { network, gates, members, ends, sources, tcp, streams, tap }),
            network: None,
            tap: None,
            timing: Punctuality::default(),
            sessions,
            program: options.program,
            code: None,
            ends_late: Spread::default(),
            ends_late_last: Spread::default(),
            scenario,
        })
    }

    /// Starts the pcapng captures of the scenario. `open` returns the stream to which the capture of a link is written.
    /// Its argument is the name of the link.
    ///
    /// # Errors
    /// Returns the first error of a stream, with the name of its link.
    pub fn capture(
        &mut self,
        open: impl FnMut(&str) -> io::Result<Box<dyn Write + Send>>,
    ) -> Result<(), (String, io::Error)> {
        let Self { ready, scenario, .. } = self;
        ready.as_mut().map_or(Ok(()), |ready| ready.network.capture(scenario, open))
    }

    /// Ends the captures.
    ///
    /// # Errors
    /// Returns the first error that a stream had during the run, with the name of its link.
    pub fn end_capture(&mut self) -> Result<(), (String, io::Error)> {
        self.network.as_mut().map_or(Ok(()), Datagrams::end_capture)
    }

    /// Returns the time at which the run ends.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns how many times packets have left a link so far.
    pub fn hops(&self) -> u64 {
        self.network.as_ref().map_or(0, Datagrams::hops)
    }

    /// Runs the scenario while `go_on` returns true. `go_on` is called every 50 ms. Returns whether the end of the
    /// scenario was reached.
    ///
    /// # Errors
    /// Returns an error if the system has no memory or descriptors left.
    pub fn run(&mut self, mut go_on: impl FnMut(Time) -> bool) -> Result<bool, EmulateError> {
        let Some(ready) = self.ready.take() else { return Ok(false) };
        let Prepared { network, gates, members, ends, sources, tcp, streams, tap } = ready;
        let (end, step) = (self.end(), self.step);
        let clock = Clock::start();
        let (relay_handle, inbox) = RelayHandle::new().map_err(during("the relay"))?;
        let relay = Relay::new(network, clock, gates, &members, inbox, (streams, tap));
        let relay = spawn("sc-relay", move || relay.run()).map_err(during("the relay"))?;
        let sessions = self.sessions;
        let udp = || Udp::new(clock, ends, sessions, &relay_handle).map_err(during("the sockets"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let tcp = spawn("sc-tcp", move || tcp.run(clock, &stopped, end, step)).map_err(during("TCP"));
        let complete = tcp.and_then(|tcp| {
            let ran = udp().and_then(|mut world| {
                let ran = self.drive(&mut world, &tcp, &mut go_on);
                Ok((ran?, world))
            });
            // End the TCP thread even if the endpoints have failed.
            stop.store(true, Ordering::Release);
            for (ix, figures) in sources.iter().zip(joined(tcp, "TCP")?) {
                self.agents[ix.0 as usize] = Agent::KernelSource(Box::new(figures));
            }
            let (complete, world) = ran?;
            for (ix, agent, log) in world.into_agents() {
                self.agents[ix.0 as usize] = agent;
                self.logs[ix.0 as usize] = log.map(Rows::whole).transpose().map_err(during("the record"))?;
            }
            Ok(complete)
        });
        relay_handle.stop();
        let Relayed { mut network, streams, mut tap, timing } = joined(relay, "the relay")?;
        self.now = clock.now().min(end);
        for stream in streams.all.into_values() {
            if let Some((sent, arrived)) = stream.logs {
                self.logs[stream.source.0 as usize] = Some(sent.whole().map_err(during("the record"))?);
                self.logs[stream.sink.0 as usize] = Some(arrived.whole().map_err(during("the record"))?);
            }
            let sink = KernelSink { intake: stream.intake };
            self.agents[stream.sink.0 as usize] = Agent::KernelSink(Box::new(sink));
        }
        let recalled = self.agents.iter_mut().try_for_each(Agent::recall).and_then(|()| network.recall());
        let recalled = recalled.and_then(|()| tap.iter_mut().try_for_each(Tap::recall));
        recalled.map_err(during("the record"))?;
        (self.network, self.tap, self.timing) = (Some(network), tap, timing);
        complete
    }

    fn drive<T>(
        &mut self,
        world: &mut Udp,
        tcp: &JoinHandle<T>,
        go_on: &mut impl FnMut(Time) -> bool,
    ) -> Result<bool, EmulateError> {
        let program = self.begin()?;
        let (end, step) = (self.end(), self.step);
        // Give this thread real-time priority. It paces packets, so it takes precedence over threads that only compute.
        // The relay's thread sets its own priority.
        kernel::set_realtime_priority(false);
        let over = || tcp.is_finished() || program.as_ref().is_some_and(Started::ended);
        let mut ran = world.run(end, step, over, &mut *go_on);
        // If the program still runs at the end of the flows, wait until it ends.
        if let Some(program) = program {
            while matches!(ran, Ok(true)) && !program.ended() && go_on(end) {
                ran = world.idle().map(|()| true);
            }
            if program.ended() && !tcp.is_finished() {
                ran = ran.map(|_| true);
            }
            self.code = Some(program.end());
        }
        kernel::set_normal_priority();
        self.ends_late = world.lateness();
        self.ends_late_last = self.ends_late.since(&world.late_before);
        ran.map_err(during("the sockets"))
    }

    fn begin(&self) -> Result<Option<Started>, EmulateError> {
        let Some(program) = &self.program else { return Ok(None) };
        let Some(host) = self.hosts.iter().find(|h| h.name == program.host) else { return Ok(None) };
        let started = Started::new(program, host, &self.hosts);
        let name = || program.command.first().cloned().unwrap_or_default();
        started.map(Some).map_err(|error| EmulateError::Program { name: name(), error })
    }

    fn with_record<T>(&self, use_it: impl FnOnce(&Record<'_>) -> T) -> Option<T> {
        let network = self.network.as_ref()?;
        let record = Record {
            world: "emulated",
            scenario: &self.scenario,
            agents: &self.agents,
            flows: &self.flows,
            viewers: &[],
            links: network.links(self.now),
            ways: self.ways.clone(),
            logs: &self.logs,
            hops: network.hops(),
            step: self.step,
            now: self.now,
        };
        Some(use_it(&record))
    }

    /// Returns the summary of the run. Figures that need decoded pixels are left out. `complete` tells whether the run
    /// reached its end.
    pub fn summary(&self, complete: bool) -> Value {
        let summary = self.with_record(|record| {
            let mut tree = record.tree(complete);
            self.put_own(&mut tree.figures);
            tree.into()
        });
        summary.unwrap_or_default()
    }

    fn put_own(&self, into: &mut Figures) {
        let timing = &self.timing;
        let share = timing.late as f64 / (timing.written as f64).max(1.0);
        let ends = self.ends_late.quantile(0.99).unwrap_or(Span::ZERO);
        let trusted = share <= MAX_LATE_SHARE && ends <= MAX_ENDS_LATENESS;
        into.put(&run::TRUSTWORTHY, trusted);
        into.put(&run::RELEASED_PACKETS, timing.written);
        into.put(&run::LATE_FRAC, share);
        into.put_spread(&run::LATENESS, &timing.lateness);
        into.put_spread(&run::ENDS_LATENESS, &self.ends_late);
        into.put_spread(&run::ENDS_LATENESS_LAST, &self.ends_late_last);
        into.put(&run::REFUSED_PACKETS, timing.refused);
        into.put(&run::ASTRAY_PACKETS, timing.astray);
        if !trusted {
            let warning = format!(
                "not trustworthy: this machine was too busy: \
                 {:.1} % of the packets left the links more than 1 ms late, and \
                 1 % of the time the flows' ends were called \
                 more than {:.1} ms late; run it again on a machine with less to \
                 do, or at a lower rate",
                share * 100.0,
                ends.as_millis_f64()
            );
            into.append(&run::WARNINGS, [warning]);
        }
    }

    /// Returns the table `name`. Returns `None` if there is no such table.
    pub fn table(&self, name: &str) -> Option<Table> {
        match &self.tap {
            Some(tap) if name == "wire" => tap.table(&self.scenario),
            _ => self.with_record(|record| record.table(name)).flatten(),
        }
    }
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

fn joined<T>(thread: JoinHandle<io::Result<T>>, what: &'static str) -> Result<T, EmulateError> {
    let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
    ended.map_err(during(what))
}

struct Udp {
    driver: Loop<UdpEnd>,
    count: usize,
    /// How late endpoints were called, until the last part of the run began.
    late_before: Spread,
}

/// The last part of a run, as a fraction of its duration.
const LAST_PART: f64 = 0.05;

impl Udp {
    fn new(clock: Clock, ends: Vec<Ready>, sessions: usize, relay_handle: &RelayHandle) -> io::Result<Self> {
        let mut driver = Loop::new(clock)?;
        let sent: Vec<Rc<RefCell<Sent>>> = (0..sessions).map(|_| Rc::default()).collect();
        let count = ends.len();
        for Ready { agent, hosted, pair, log } in ends {
            let sent = Rc::clone(&sent[hosted.session]);
            driver.add(UdpEnd::new(agent, hosted, log, sent, relay_handle.clone()), pair)?;
        }
        Ok(Self { driver, count, late_before: Spread::default() })
    }

    fn run(
        &mut self,
        end: Time,
        step: Span,
        broken: impl Fn() -> bool,
        go_on: &mut impl FnMut(Time) -> bool,
    ) -> io::Result<bool> {
        let clock = self.driver.clock;
        let mut next = Time::ZERO + step;
        let last = end.before(end.since(Time::ZERO).scale(LAST_PART));
        while next <= end || clock.now() < end {
            if next <= last {
                self.late_before = self.lateness();
            }
            let until = next.min(end).min(clock.now() + CHECK_INTERVAL);
            self.turn(until)?;
            let now = clock.now();
            if now >= next {
                self.each(|ix, driver| driver.call(ix, |end, _, _| end.agent.sample(next)));
                next += step;
            }
            if broken() || !go_on(now.min(end)) {
                return Ok(now >= end);
            }
        }
        // Let the packets in flight arrive, so that the last frames do not count as lost.
        self.each(|ix, driver| driver.call(ix, |end, now, out| end.finish(now, out)));
        let (mut last, mut seen) = (clock.now(), 0);
        while clock.now() < (last + GRACE_IDLE).min(end + GRACE_TOTAL) {
            self.turn(clock.now() + CHECK_INTERVAL)?;
            let mut received_packets = 0;
            self.each(|ix, driver| received_packets += driver.end(ix).received_packets);
            // As long as packets arrive, wait for more.
            if received_packets > seen {
                (last, seen) = (clock.now(), received_packets);
            }
        }
        Ok(true)
    }

    fn lateness(&self) -> Spread {
        self.driver.late.clone()
    }

    /// Drives the endpoints, but records no samples.
    fn idle(&mut self) -> io::Result<()> {
        self.turn(self.driver.clock.now() + CHECK_INTERVAL)
    }

    fn turn(&mut self, until: Time) -> io::Result<()> {
        self.driver.run(until, |_| true)
    }

    fn each(&mut self, mut work: impl FnMut(steadycast_live::EndIx, &mut Loop<UdpEnd>)) {
        for n in 0..self.count {
            work(steadycast_live::EndIx(n), &mut self.driver);
        }
    }

    fn into_agents(self) -> impl Iterator<Item = (AgentIx, Agent, Option<Rows<PacketRow>>)> {
        self.driver.into_ends().into_iter().map(|(end, _)| (end.hosted.ix, end.agent, end.log))
    }
}

/// Returns the nodes that get a host: the ends of flows, the nodes with only one link, and the nodes in `more`.
fn hosts_of<'a>(scenario: &Scenario, more: impl Iterator<Item = &'a String>) -> Result<Vec<NodeIx>, EmulateError> {
    let mut hosts: BTreeSet<NodeIx> =
        scenario.flows.iter().flat_map(|f| [f.from].into_iter().chain(f.to.clone())).collect();
    let mut links: BTreeMap<NodeIx, u32> = BTreeMap::new();
    for node in scenario.links.iter().flat_map(|l| [l.a, l.b]) {
        *links.entry(node).or_default() += 1;
    }
    hosts.extend(links.into_iter().filter(|(_, count)| *count == 1).map(|(node, _)| node));
    for name in more {
        let node = scenario.node(name).ok_or_else(|| EmulateError::NoHost(name.clone()))?;
        hosts.insert(node);
    }
    Ok(hosts.into_iter().collect())
}

fn make_hosts(scenario: &Scenario, nodes: &[NodeIx], mtu: u16) -> Result<(Vec<Host>, Vec<Gate>), EmulateError> {
    let made: Result<Vec<(Namespace, OwnedFd)>, EmulateError> =
        namespace::in_separate_thread(|| nodes.iter().map(|node| namespace::host(host_address(*node), mtu)).collect())
            .map_err(during("the hosts"))?;
    let (mut hosts, mut gates) = (Vec::new(), Vec::new());
    for (node, (namespace, tun)) in nodes.iter().zip(made?) {
        hosts.push(Host { name: scenario.node_name(*node).to_owned(), node: *node, namespace: Arc::new(namespace) });
        gates.push(Gate { node: *node, addr: host_address(*node), tun });
    }
    Ok((hosts, gates))
}

/// Creates the agents of an emulation. Its methods move the calling thread into the network namespaces of hosts.
struct Planner<'a> {
    scenario: &'a Scenario,
    inputs: &'a Inputs,
    spaces: BTreeMap<NodeIx, Arc<Namespace>>,
    /// Where older parts of the record are stored.
    store: Option<Arc<dyn Store>>,
    agents: Vec<Agent>,
    ends: Vec<Ready>,
    tcp: Vec<(AgentIx, Session)>,
    streams: Streams,
    members: Vec<Member>,
    sessions: usize,
    groups: u32,
    /// When each end of a flow starts, stops, joins, or leaves.
    turns: Vec<Transition>,
}

impl Planner<'_> {
    fn flows(&mut self) -> Result<Vec<FlowEnds>, EmulateError> {
        let cast = AgentFactory::new(self.scenario, self.inputs);
        let mut flows: Vec<_> = (0..self.scenario.flows.len()).map(|n| cast.ends(n as u32)).collect();
        self.turns = plan(self.scenario, &flows);
        for (n, ends) in flows.iter_mut().enumerate() {
            self.flow(n as u32, &cast, ends)?;
        }
        Ok(flows)
    }

    fn space(&self, node: NodeIx) -> Result<Arc<Namespace>, EmulateError> {
        let found = self.spaces.get(&node).cloned();
        found.ok_or_else(|| EmulateError::NoHost(self.scenario.node_name(node).to_owned()))
    }

    fn enter(&self, node: NodeIx) -> Result<(), EmulateError> {
        self.space(node)?.enter().map_err(during("the hosts"))
    }

    fn keeping(&self, mut agent: Agent) -> Agent {
        if let Some(store) = &self.store {
            agent.keep_in(store);
        }
        agent
    }

    fn log(&self, n: u32) -> Option<Rows<PacketRow>> {
        let recorded = self.scenario.record.packets.contains(&sc::FlowIx(n));
        recorded.then(|| Rows::stored(self.store.clone()))
    }

    fn reserve(&mut self) -> AgentIx {
        // Add a placeholder. At the end of the run, the agent that has the record replaces it.
        self.agents.push(Agent::KernelSource(Box::new(KernelSource::new(Time::ZERO))));
        AgentIx(self.agents.len() as u32 - 1)
    }

    /// Returns when the source or the sink of flow `n` becomes active (`true`) or inactive (`false`).
    fn turns(&self, n: u32, end: End) -> VecDeque<(Time, bool)> {
        transitions_of(&self.turns, sc::FlowIx(n), end).map(|(at, does)| (at, does.begins())).collect()
    }

    fn flow(&mut self, n: u32, cast: &AgentFactory<'_>, ends: &mut FlowEnds) -> Result<(), EmulateError> {
        let scenario = self.scenario;
        let flow = &scenario.flows[n as usize];
        if self.sessions + flow.to.len() > MAX_SESSIONS {
            return Err(BuildError::new("sessions", "the scenario has too many of them").into());
        }
        match &flow.kind {
            sc::FlowKind::Tcp(spec) => self.tcp(n, flow, spec, ends),
            _ => self.udp(n, flow, cast, ends),
        }
    }

    fn tcp(&mut self, n: u32, flow: &sc::Flow, spec: &sc::Tcp, ends: &mut FlowEnds) -> Result<(), EmulateError> {
        let scenario = self.scenario;
        let plan = self.turns(n, End::Source);
        let end = Time::ZERO + scenario.duration;
        let mut intake = Intake::new(ends.means_from, end.min(ends.stop)).active(&ends.active);
        let mut figures = KernelSource::new(ends.means_from);
        if let Some(store) = &self.store {
            intake.samples.keep_in(store);
            figures.samples.keep_in(store);
        }
        for (place, to) in flow.to.iter().enumerate() {
            let name = flow.session(place);
            let (source, sink) = (self.reserve(), self.reserve());
            ends.sources.push(source);
            ends.sinks.push(sink);
            // Give each session its own port, because streams are distinguished by destination host and port.
            let port = TCP_PORT + self.sessions as u16;
            self.sessions += 1;
            // Apply the settings to both namespaces, because they do not exist per socket.
            for node in [flow.from, *to] {
                self.enter(node)?;
                host_wide(flow, spec)?;
            }
            let session = Session {
                flow: flow.name.clone(),
                spec: spec.clone(),
                from: (self.space(flow.from)?, host_address(flow.from)),
                to: (self.space(*to)?, SocketAddrV4::new(host_address(*to), port)),
                plan: plan.clone(),
                chance: scenario.seed.part(&format!("flow.{name}.transfers")),
                figures: figures.clone(),
            };
            let chance = scenario.seed.part(&format!("flow.{name}.src.jitter"));
            let stream = Stream::new(source, sink, intake.clone(), session.payload(), self.log(n).zip(self.log(n)));
            // Add only the jitter above `KERNEL_JITTER`, because the kernel itself causes that much.
            let stream = stream.jittered(flow.send_jitter.saturating_sub(sc::KERNEL_JITTER), chance);
            self.streams.all.insert((*to, port), stream);
            self.tcp.push((source, session));
        }
        Ok(())
    }

    fn udp(
        &mut self,
        n: u32,
        flow: &sc::Flow,
        cast: &AgentFactory<'_>,
        ends: &mut FlowEnds,
    ) -> Result<(), EmulateError> {
        let scenario = self.scenario;
        let mut makers = cast.makers(n, ends)?;
        let group = (flow.cast == sc::Cast::Multicast).then_some(self.groups);
        self.groups += u32::from(group.is_some());
        // Make the source a member of its group, because it must receive the members' reports.
        self.members.extend(group.map(|group| Member { group, host: flow.from, joined: true }));
        let outside = scenario.starts_outside(sc::FlowIx(n));
        let each = flow.cast == sc::Cast::UnicastEach;
        let net = |error| BuildError::new(format!("flow.{}", flow.name), error);
        let mut sources = Vec::new();
        for (place, to) in flow.to.iter().enumerate() {
            let name = flow.session(place);
            let first = place == 0 || each;
            // Each receiver has a session of its own only if the flow's cast is `UnicastEach`.
            let session = self.sessions - usize::from(!first);
            self.sessions += usize::from(first);
            // RTP and RTCP have consecutive ports (RFC 3550, section 11).
            let port = RTP_PORT + 2 * session as u16;
            let target = match group {
                Some(group) => SocketAddr::new(IpAddr::V4(group_address(group)), port),
                None => SocketAddr::new(IpAddr::V4(host_address(*to)), port),
            };
            let options = |node| PairOptions {
                interface: Some(Interface::Address(IpAddr::V4(host_address(node)))),
                local: Some(port),
                ..PairOptions::default()
            };
            // If `reports` is `Source`, the receivers send their reports to the unicast address of the sender, as in
            // source-specific multicast.
            let alone = group.is_none()
                || matches!(&flow.kind, sc::FlowKind::Video(video) if video.rtcp.reports == sc::Reports::Source);
            let source = alone.then_some(IpAddr::V4(host_address(flow.from)));
            if first {
                self.enter(flow.from)?;
                let ix = self.reserve();
                ends.sources.push(ix);
                let hosted = Hosted {
                    ix,
                    session,
                    host: flow.from,
                    plan: self.turns(n, End::Source),
                    reports_to: None,
                    member_of: None,
                    jitter: flow.send_jitter,
                    chance: scenario.seed.part(&format!("flow.{name}.src.jitter")),
                };
                let pair = Pair::sender(target, &PairOptions { source, ..options(flow.from) }).map_err(net)?;
                sources.push(Ready { agent: self.keeping((makers.source)(&name)), hosted, pair, log: self.log(n) });
            }
            self.enter(*to)?;
            let ix = self.reserve();
            ends.sinks.push(ix);
            let reports = SocketAddr::new(IpAddr::V4(host_address(flow.from)), port + 1);
            let inside = outside.binary_search(&place).is_err();
            self.members.extend(group.map(|group| Member { group, host: *to, joined: inside }));
            let hosted = Hosted {
                ix,
                session,
                host: *to,
                plan: self.turns(n, End::Receiver(place)),
                reports_to: alone.then_some(reports),
                member_of: group,
                jitter: Span::ZERO,
                chance: scenario.seed.part(&format!("flow.{name}.dst{place}.jitter")),
            };
            let pair = Pair::receiver(target, &options(*to)).map_err(net)?;
            self.ends.push(Ready { agent: self.keeping((makers.sink)(place, &name)), hosted, pair, log: self.log(n) });
        }
        // Add the sources last, because sinks must have joined before the first packet is sent.
        self.ends.extend(sources);
        Ok(())
    }
}

/// Applies the keys of a flow that concern all TCP connections of a host. The caller must have entered the host's
/// network namespace.
fn host_wide(flow: &sc::Flow, spec: &sc::Tcp) -> Result<(), BuildError> {
    let Config { sack, timestamps, ecn, .. } = spec.config;
    for (key, differs, value) in [("sack", !sack, "0"), ("timestamps", !timestamps, "0"), ("ecn", ecn, "1")] {
        if differs && !namespace::set(&format!("ipv4/tcp_{key}"), value) {
            let what = format!("/proc/sys/net/ipv4/tcp_{key} can't be written");
            return Err(BuildError::new(format!("flow.{}.{key}", flow.name), what));
        }
    }
    Ok(())
}
