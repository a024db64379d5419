//! A receiver of a simulcast, always in one of its groups.

use crate::{Agent, AgentIx};
use steadycast_control::simulcast::{Chooser, Move};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Rate, Span, Time};

/// A simulcast's receiver, with a sink per group. The receiver is a member of one group at a time. After each call of
/// that group's sink, the world calls [`Viewer::look`], which may request a move to another group.
pub struct Viewer {
    /// The simulcast's index in the scenario.
    pub simulcast: usize,
    /// The index among the groups' receivers.
    pub receiver: usize,
    /// The sinks, one per group.
    pub sinks: Vec<AgentIx>,
    /// The link directions on the path to this receiver.
    pub way: Vec<u32>,
    chooser: Chooser,
    /// The moves with their reasons.
    pub moves: Vec<Move>,
}

impl Viewer {
    /// Creates a viewer in the lowest group, without sinks.
    pub fn new(scenario: &sc::Scenario, simulcast: usize, receiver: usize) -> Self {
        let spec = &scenario.simulcasts[simulcast];
        let floor = |flow: &sc::FlowIx| match &scenario.flows[flow.0 as usize].kind {
            FlowKind::Video(video) => video.floor.unwrap_or(Rate::ZERO),
            _ => Rate::ZERO,
        };
        let chooser = Chooser::new(spec.flows.iter().map(floor), spec.up, spec.hold, Time::ZERO);
        Self { simulcast, receiver, sinks: Vec::new(), way: Vec::new(), chooser, moves: Vec::new() }
    }

    /// Returns the joined sink.
    pub fn sink(&self) -> AgentIx {
        self.sinks[self.chooser.place()]
    }

    /// Decides on a move. Returns the sinks that leave and join.
    pub fn look(&mut self, now: Time, agents: &[Agent]) -> Option<(AgentIx, AgentIx)> {
        let from = self.sink();
        let Agent::VideoSink(sink) = &agents[from.0 as usize] else { return None };
        let session = sink.session()?;
        self.chooser.on_told(session.siblings());
        let change = self.chooser.look(now, session.acceptable())?;
        self.moves.push(change);
        Some((from, self.sink()))
    }

    /// Returns the time in each group between two times.
    pub fn stays(&self, from: Time, until: Time) -> Vec<Span> {
        let mut stays = vec![Span::ZERO; self.sinks.len()];
        let (mut place, mut since) = (0, Time::ZERO);
        // The last stay ends at `until`; the 0 is a placeholder.
        let ends = self.moves.iter().map(|m| (m.at, m.to)).chain([(until, 0)]);
        for (at, next) in ends {
            stays[place] += at.min(until).since(since.max(from));
            (place, since) = (next, at);
        }
        stays
    }
}
