//! Creation of the agents of a scenario's flows.

use crate::{
    Agent, AgentIx, Beat, ExternalParts, FlowEnds, HostContext, Intake, PlainSink, PlainSource, Rows, TcpSink,
    TcpSource, VideoPlan,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::Factory;
use steadycast_media::{Ladder, SwitchingFactory};
use steadycast_scenario as sc;
use steadycast_session::Siblings;
use steadycast_tcp as tcp;
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// A scenario's inputs for a run.
#[derive(Default)]
pub struct Inputs {
    /// Frame sizes of each video flow, by the flow's name. A flow with `media = "greedy"` has no ladder.
    pub ladders: BTreeMap<String, Arc<Ladder>>,
    /// Controllers that are not in the registry, by flow name.
    pub factories: BTreeMap<String, Arc<dyn Factory>>,
    /// Switching rules that are Python classes or programs, by flow name.
    pub switching: BTreeMap<String, Arc<dyn SwitchingFactory>>,
    /// Maximum delay that a source makes up for when it wakes late. It is zero in virtual time.
    pub credit: Span,
}

/// Why a scenario can't be simulated or emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct BuildError {
    /// Key in the scenario, such as `flow.video.media`.
    pub key: String,
    /// What is wrong with the key or its value.
    pub what: String,
}

impl BuildError {
    /// Creates an error for a key of the scenario.
    pub fn new(key: impl Into<String>, what: impl ToString) -> Self {
        Self { key: key.into(), what: what.to_string() }
    }
}

/// Creates a source. The parameter is the name of the session.
pub type MakeSource<'a> = Box<dyn FnMut(&str) -> Agent + 'a>;

/// Creates a sink. The parameters are the receiver's index and the name of the session.
pub type MakeSink<'a> = Box<dyn FnMut(usize, &str) -> Agent + 'a>;

/// The functions that create a flow's agents.
pub struct Makers<'a> {
    /// Creates the source. It is called once for each receiver if each receiver has a source of its own.
    pub source: MakeSource<'a>,
    /// Creates the sink of a receiver.
    pub sink: MakeSink<'a>,
}

/// Creates the agents of a scenario.
pub struct AgentFactory<'a> {
    scenario: &'a sc::Scenario,
    inputs: &'a Inputs,
    seed: Seed,
    /// What connects the senders of a simulcast's groups. There is a list for each simulcast, and an entry for each
    /// group.
    siblings: Vec<Vec<Siblings>>,
}

impl<'a> AgentFactory<'a> {
    /// Creates the factory for a scenario.
    pub fn new(scenario: &'a sc::Scenario, inputs: &'a Inputs) -> Self {
        let siblings = scenario.simulcasts.iter().map(|s| Siblings::new(s.flows.len())).collect();
        Self { scenario, inputs, seed: scenario.seed, siblings }
    }

    /// Returns when flow `n` is active and from when its means are taken. The lists of agents are empty.
    pub fn ends(&self, n: u32) -> FlowEnds {
        let active = self.activity(n, &self.scenario.flows[n as usize]);
        let start = active.first().map_or(Time::NEVER, |a| a.0);
        let stop = active.last().map_or(Time::NEVER, |a| a.1);
        // Leave the warm-up out of the means.
        let means_from = start.max(Time::ZERO + self.scenario.warmup);
        let (sources, sinks): (Vec<AgentIx>, Vec<AgentIx>) = (Vec::new(), Vec::new());
        FlowEnds { start, stop, active, means_from, sources, sinks }
    }

    /// Returns the functions that create the agents of flow `n`.
    ///
    /// # Errors
    /// The controller, the TCP configuration or the ladder is invalid.
    pub fn makers(&self, n: u32, ends: &FlowEnds) -> Result<Makers<'a>, BuildError> {
        let flow = &self.scenario.flows[n as usize];
        let end = Time::ZERO + self.scenario.duration;
        let intake = Intake::new(ends.means_from, end.min(ends.stop)).active(&ends.active);
        match &flow.kind {
            sc::FlowKind::Cbr(cbr) => Ok(self.plain(cbr.rate, cbr.packet, None, intake)),
            sc::FlowKind::OnOff(on) => Ok(self.plain(on.rate, on.packet, Some((on.on, on.off)), intake)),
            sc::FlowKind::Tcp(tcp) => self.tcp(flow, tcp, intake, ends.means_from),
            sc::FlowKind::Video(video) => {
                let group = self.scenario.group_of(sc::FlowIx(n));
                let siblings = group.map(|(simulcast, place)| self.siblings[simulcast][place].clone());
                self.video(flow, video, intake, ends.means_from, siblings)
            }
        }
    }

    /// Returns the periods in which a flow is active, in order. Its start and stop keys and the scenario's events
    /// decide.
    fn activity(&self, n: u32, flow: &sc::Flow) -> Vec<(Time, Time)> {
        let own = match flow.start {
            sc::Start::At(at) => Some(at),
            sc::Start::Uniform(low, high) => {
                let mut chance = self.seed.part(&format!("flow.{}.start", flow.name));
                Some(low + chance.span_between(Span::ZERO, high.since(low)))
            }
            sc::Start::Event => None,
        };
        let mut transitions: Vec<(Time, bool)> =
            own.map(|at| (at, true)).into_iter().chain(flow.stop.map(|at| (at, false))).collect();
        transitions.extend(self.scenario.events.iter().filter_map(|e| match e.kind {
            sc::EventKind::StartFlow(flow) if flow.0 == n => Some((e.at, true)),
            sc::EventKind::StopFlow(flow) if flow.0 == n => Some((e.at, false)),
            _ => None,
        }));
        // The sort is stable. At equal times, the flow's own start and stop therefore precede the events.
        transitions.sort_by_key(|(at, _)| *at);
        let (mut active, mut since) = (Vec::new(), None);
        for (at, on) in transitions {
            match since {
                None if on => since = Some(at),
                Some(from) if !on => {
                    active.push((from, at));
                    since = None;
                }
                // A start of an active flow or a stop of an inactive flow has no effect.
                _ => {}
            }
        }
        active.extend(since.map(|from| (from, Time::NEVER)));
        active.retain(|(from, to)| from < to);
        active
    }

    fn plain(
        &self,
        rate: Rate,
        packet: Bytes,
        periods: Option<(sc::Periods, sc::Periods)>,
        intake: Intake,
    ) -> Makers<'a> {
        let seed = self.seed;
        Makers {
            source: Box::new(move |session| {
                let beat = match periods {
                    None => Beat::Always,
                    Some((on, off)) => {
                        let chance = seed.part(&format!("flow.{session}.periods"));
                        Beat::OnOff { on, off, until: Time::ZERO, sending: false, chance }
                    }
                };
                Agent::PlainSource(Box::new(PlainSource::new(rate, packet, beat)))
            }),
            sink: Box::new(move |_, _| Agent::PlainSink(Box::new(PlainSink::new(intake.clone())))),
        }
    }

    fn tcp(&self, flow: &'a sc::Flow, spec: &'a sc::Tcp, intake: Intake, from: Time) -> Result<Makers<'a>, BuildError> {
        let mut config = tcp_config(flow, spec)?;
        if !config.tick.is_zero() {
            // As in ns-2, the connection's clock starts at a random time within a tick.
            let mut chance = self.seed.part(&format!("flow.{}.tick", flow.name));
            let phase = chance.span_between(Span::ZERO, config.tick);
            // Stay below a whole tick, which rounding could otherwise produce.
            config.tick_phase = phase.min(config.tick.saturating_sub(Span::nanos(1)));
        }
        config.check().map_err(|error| BuildError::new(format!("flow.{}", flow.name), error))?;
        let (seed, sink) = (self.seed, config.clone());
        Ok(Makers {
            source: Box::new(move |session| {
                let chance = seed.part(&format!("flow.{session}.transfers"));
                let config = tcp::Config { draws: seed.derive(&format!("flow.{session}.tcp")), ..config.clone() };
                Agent::TcpSource(Box::new(TcpSource::new(config, &spec.source, chance, from)))
            }),
            sink: Box::new(move |_, _| Agent::TcpSink(Box::new(TcpSink::new(sink.clone(), intake.clone())))),
        })
    }

    fn video(
        &self,
        flow: &'a sc::Flow,
        video: &'a sc::Video,
        intake: Intake,
        from: Time,
        siblings: Option<Siblings>,
    ) -> Result<Makers<'a>, BuildError> {
        let external = ExternalParts {
            controller: self.inputs.factories.get(&flow.name),
            switching: self.inputs.switching.get(&flow.name),
        };
        let plan = VideoPlan::of(
            flow,
            video,
            external,
            self.inputs.ladders.get(&flow.name),
            HostContext::whole(self.seed, self.inputs.credit, self.scenario.mtu(flow)),
        )?;
        let (plan, chosen) = (Arc::new(plan), siblings.is_some());
        let of_source = Arc::clone(&plan);
        // In a large group, each receiver stores as little as possible.
        let crowd = flow.to.len() > 1_000;
        let audio = video.audio.is_some() && self.scenario.record.audio;
        Ok(Makers {
            source: Box::new(move |session| {
                let mut source = of_source.source(session, None, siblings.clone(), from);
                source.audio_sent = audio.then(Rows::default);
                Agent::VideoSource(Box::new(source))
            }),
            sink: Box::new(move |n, session| {
                let intake = if crowd { intake.clone().packed() } else { intake.clone() };
                let mut sink = plan.sink(plan.receiver(n, session, chosen), intake);
                sink.keep_views = !crowd;
                sink.audio_arrivals = audio.then(Box::default);
                Agent::VideoSink(Box::new(sink))
            }),
        })
    }
}

fn tcp_config(flow: &sc::Flow, spec: &sc::Tcp) -> Result<tcp::Config, BuildError> {
    if let tcp::Congestion::Kernel(name) = spec.config.congestion {
        let simulated = tcp::Congestion::ALL.map(tcp::Congestion::name).join(", ");
        let what = format!("\"{name}\" is a kernel's; simulated are {simulated}");
        return Err(BuildError::new(format!("flow.{}.congestion", flow.name), what));
    }
    let mut config = spec.config.clone();
    config.bytes = match spec.source {
        sc::Workload::File(bytes) | sc::Workload::Transfers { bytes, .. } => Some(bytes),
        // The application of an on-off flow adds data packet by packet, so there is none at the start.
        sc::Workload::OnOff { .. } => Some(Bytes::ZERO),
        sc::Workload::Bulk => None,
    };
    if !flow.send_jitter.is_zero() {
        // ns-2 models send jitter with `overhead_`. With `overhead_`, ns-2 does not limit the segments per
        // acknowledgment in recovery.
        config.recovery_burst = 0;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(keys: &str) -> (Result<tcp::Config, BuildError>, Vec<sc::Problem>) {
        let text = format!(
            "duration = \"1s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"1Mbps\", delay = \"1ms\" }}\n\
             [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n{keys}\n"
        );
        let loaded = sc::Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        let sc::FlowKind::Tcp(spec) = &loaded.scenario.flows[0].kind else { panic!("no TCP") };
        (tcp_config(&loaded.scenario.flows[0], spec), loaded.warnings)
    }

    fn config(keys: &str) -> tcp::Config {
        read(keys).0.unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_congestion_control_that_cant_be_simulated_is_warned_of_and_refused_with_all_that_can() {
        let simulated = tcp::Congestion::ALL.map(tcp::Congestion::name);
        for name in simulated.iter().chain(&["vegas", "westwood", "htcp", "illinois", "yeah"]) {
            let (config, warnings) = read(&format!("congestion = \"{name}\""));
            let told: Vec<_> = warnings.iter().filter(|warning| warning.what.contains("only emulate")).collect();
            let Err(error) = config else {
                assert!(simulated.contains(name) && told.is_empty(), "{name}");
                continue;
            };
            assert_eq!((told.len(), told[0].line, simulated.contains(name)), (1, Some(8), false), "{name}");
            let all = simulated.join(", ");
            assert!(told[0].remedy.ends_with(&all) && error.what.ends_with(&all), "{error}");
        }
    }

    #[test]
    fn a_flow_has_the_settings_that_its_keys_say_and_what_it_carries() {
        let base = tcp::Config::new(tcp::Preset::Ns2, tcp::Congestion::NewReno);
        let said =
            config("preset = \"ns2\"\ncongestion = \"newreno\"\nwindow = \"7p\"\npacket = \"500B\"\nbytes = \"9kB\"");
        let (packet, bytes) = (Bytes::new(500), Some(Bytes::new(9_000)));
        assert_eq!(said, tcp::Config { window: 7, packet, bytes, ..base });
    }

    #[test]
    fn delayed_sends_lift_ns2s_limit_on_bursts_in_recovery() {
        let ns2 = "preset = \"ns2\"\ncongestion = \"newreno\"\n";
        assert_eq!(config(ns2).recovery_burst, 2);
        assert_eq!(config(&format!("{ns2}send_jitter = \"1ms\"")).recovery_burst, 0);
    }
}
