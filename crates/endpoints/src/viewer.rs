//! A receiver of a simulcast. At any time it is in one of the simulcast's groups.

use crate::{Agent, AgentIx};
use steadycast_control::simulcast::{Chooser, Move};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Rate, Span, Time};

/// A receiver of a simulcast. It has a sink for each group, and exactly one of the sinks is joined. The simulation or
/// emulation calls [`Viewer::look`] after each call of that sink. If the method returns a change, the simulation or
/// emulation moves the receiver to the other group.
pub struct Viewer {
    /// The index of the simulcast in the scenario.
    pub simulcast: usize,
    /// The index of the receiver in the list of the groups' receivers.
    pub receiver: usize,
    /// The sinks, one for each group.
    pub sinks: Vec<AgentIx>,
    /// The directions of links on the path to this receiver.
    pub way: Vec<u32>,
    chooser: Chooser,
    /// The moves with their reasons.
    pub moves: Vec<Move>,
}

impl Viewer {
    /// Creates a viewer in the lowest group. It has no sinks yet.
    pub fn new(scenario: &sc::Scenario, simulcast: usize, receiver: usize) -> Self {
        let spec = &scenario.simulcasts[simulcast];
        let floor = |flow: &sc::FlowIx| match &scenario.flows[flow.0 as usize].kind {
            FlowKind::Video(video) => video.floor.unwrap_or(Rate::ZERO),
            _ => Rate::ZERO,
        };
        let chooser = Chooser::new(spec.flows.iter().map(floor), spec.up, spec.hold, Time::ZERO);
        Self { simulcast, receiver, sinks: Vec::new(), way: Vec::new(), chooser, moves: Vec::new() }
    }

    /// Returns the sink that is joined.
    pub fn sink(&self) -> AgentIx {
        self.sinks[self.chooser.place()]
    }

    /// Decides whether the receiver moves to another group. Returns the sink that leaves and the sink that joins.
    pub fn look(&mut self, now: Time, agents: &[Agent]) -> Option<(AgentIx, AgentIx)> {
        let from = self.sink();
        let Agent::VideoSink(sink) = &agents[from.0 as usize] else { return None };
        let session = sink.session()?;
        self.chooser.on_told(session.siblings());
        let change = self.chooser.look(now, session.acceptable())?;
        self.moves.push(change);
        Some((from, self.sink()))
    }

    /// Returns how long the receiver was in each group between two times.
    pub fn stays(&self, from: Time, until: Time) -> Vec<Span> {
        let mut stays = vec![Span::ZERO; self.sinks.len()];
        let (mut place, mut since) = (0, Time::ZERO);
        // The last stay ends at `until`. The 0 is a placeholder: no stay follows.
        let ends = self.moves.iter().map(|m| (m.at, m.to)).chain([(until, 0)]);
        for (at, next) in ends {
            stays[place] += at.min(until).since(since.max(from));
            (place, since) = (next, at);
        }
        stays
    }
}
