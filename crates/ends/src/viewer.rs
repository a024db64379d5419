//! A receiver of a simulcast: in one of its groups at a time.

use crate::{Agent, AgentIx};
use steadycast_control::simulcast::{Chooser, Move};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Rate, Span, Time};

/// A receiver of a simulcast: a sink for each group, of which one is in its group. A world asks it after its sink was
/// called, and when it says so, has the one leave and the other join.
pub struct Viewer {
    /// The simulcast, by its place in the scenario.
    pub simulcast: usize,
    /// The receiver, by its place among those of the groups.
    pub receiver: usize,
    /// Its sinks, one for each group.
    pub sinks: Vec<AgentIx>,
    /// The links on its way, as directions.
    pub way: Vec<u32>,
    chooser: Chooser,
    /// Where it went, and why.
    pub moves: Vec<Move>,
}

impl Viewer {
    /// In the lowest group; its sinks are still to be named.
    pub fn new(scenario: &sc::Scenario, simulcast: usize, receiver: usize) -> Self {
        let spec = &scenario.simulcasts[simulcast];
        let floor = |flow: &sc::FlowIx| match &scenario.flows[flow.0 as usize].kind {
            FlowKind::Video(video) => video.floor.unwrap_or(Rate::ZERO),
            _ => Rate::ZERO,
        };
        let chooser = Chooser::new(spec.flows.iter().map(floor), spec.up, spec.hold, Time::ZERO);
        Self { simulcast, receiver, sinks: Vec::new(), way: Vec::new(), chooser, moves: Vec::new() }
    }

    /// Its sink that is in its group.
    pub fn sink(&self) -> AgentIx {
        self.sinks[self.chooser.place()]
    }

    /// Whether to move: the sink that leaves and the one that joins.
    pub fn look(&mut self, now: Time, agents: &[Agent]) -> Option<(AgentIx, AgentIx)> {
        let from = self.sink();
        let Agent::VideoSink(sink) = &agents[from.0 as usize] else { return None };
        let session = sink.session()?;
        self.chooser.on_told(session.siblings());
        let change = self.chooser.look(now, session.acceptable())?;
        self.moves.push(change);
        Some((from, self.sink()))
    }

    /// How long it was in each group between two times.
    pub fn stays(&self, from: Time, until: Time) -> Vec<Span> {
        let mut stays = vec![Span::ZERO; self.sinks.len()];
        let (mut place, mut since) = (0, Time::ZERO);
        let ends = self.moves.iter().map(|m| (m.at, m.to)).chain([(until, 0)]);
        for (at, next) in ends {
            stays[place] += at.min(until).since(since.max(from));
            (place, since) = (next, at);
        }
        stays
    }
}
