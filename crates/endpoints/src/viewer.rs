//! A receiver of a simulcast, which is always in one of the simulcast's groups.

use crate::{Agent, AgentIx};
use steadycast_control::simulcast::{Chooser, Move};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Rate, Span, Time};

/// A receiver of a simulcast. It has a sink for each group and is a member of one group at a time. The caller calls
/// [`Viewer::look`] after each call of the sink of that group. The viewer may then request a move to another group.
pub struct Viewer {
    /// Index of the simulcast in the scenario.
    pub simulcast: usize,
    /// Index of the receiver. It is the same in all groups.
    pub receiver: usize,
    /// The receiver's sinks, one for each group.
    pub sinks: Vec<AgentIx>,
    /// The link directions on the path to the receiver.
    pub way: Vec<u32>,
    chooser: Chooser,
    /// Moves so far, each with its reason.
    pub moves: Vec<Move>,
}

impl Viewer {
    /// Creates a viewer that is in the lowest group and has no sinks yet.
    pub fn new(scenario: &sc::Scenario, simulcast: usize, receiver: usize) -> Self {
        let spec = &scenario.simulcasts[simulcast];
        let floor = |flow: &sc::FlowIx| match &scenario.flows[flow.0 as usize].kind {
            FlowKind::Video(video) => video.floor.unwrap_or(Rate::ZERO),
            _ => Rate::ZERO,
        };
        let chooser = Chooser::new(spec.flows.iter().map(floor), spec.up, spec.hold, Time::ZERO);
        Self { simulcast, receiver, sinks: Vec::new(), way: Vec::new(), chooser, moves: Vec::new() }
    }

    /// Returns the sink of the group that the receiver is in.
    pub fn sink(&self) -> AgentIx {
        self.sinks[self.chooser.place()]
    }

    /// Decides whether to move to another group. Returns the sink that leaves and the sink that joins.
    pub fn look(&mut self, now: Time, agents: &[Agent]) -> Option<(AgentIx, AgentIx)> {
        let from = self.sink();
        let Agent::VideoSink(sink) = &agents[from.0 as usize] else { return None };
        let session = sink.session()?;
        self.chooser.on_told(session.siblings());
        let change = self.chooser.look(now, session.acceptable())?;
        self.moves.push(change);
        Some((from, self.sink()))
    }

    /// Returns how long the receiver was in each group between `from` and `until`.
    pub fn stays(&self, from: Time, until: Time) -> Vec<Span> {
        let mut stays = vec![Span::ZERO; self.sinks.len()];
        let (mut place, mut since) = (0, Time::ZERO);
        // The last stay ends at `until`. The group 0 after it is a placeholder.
        let ends = self.moves.iter().map(|m| (m.at, m.to)).chain([(until, 0)]);
        for (at, next) in ends {
            stays[place] += at.min(until).since(since.max(from));
            (place, since) = (next, at);
        }
        stays
    }
}
