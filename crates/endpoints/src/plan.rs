//! The plan of a run: when the sources and receivers of flows start, stop, join and leave.

use crate::FlowEnds;
use steadycast_scenario::{self as sc, EventKind, FlowIx, Scenario};
use steadycast_units::{Steps, Time};

/// A start, stop, join or leave of a flow's source or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When the transition happens.
    pub at: Time,
    /// The flow.
    pub flow: FlowIx,
    /// The source or receiver that it concerns.
    pub end: End,
    /// What the source or receiver does.
    pub does: Action,
}

/// An end of a flow, which is the flow's source or one of the flow's receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source. If each receiver has a source of its own, this means all sources.
    Source,
    /// The receiver with this index.
    Receiver(usize),
}

/// What an end of a flow does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The end starts.
    Start,
    /// The end stops.
    Stop,
    /// The end joins its group and starts.
    Join,
    /// The end leaves its group and stops.
    Leave,
}

impl Action {
    /// Returns whether the end is active after this action.
    pub const fn begins(self) -> bool {
        matches!(self, Self::Start | Self::Join)
    }
}

/// Returns a scenario's transitions: first the starts and stops of each flow, then the events. The list is not sorted
/// by time. Its order decides which of two transitions at the same time happens first.
pub fn plan(scenario: &Scenario, flows: &[FlowEnds]) -> Vec<Transition> {
    let mut plan = Vec::new();
    for (n, (flow, ends)) in scenario.flows.iter().zip(flows).enumerate() {
        let ix = FlowIx(n as u32);
        let transition = |at, end, does| Transition { at, flow: ix, end, does };
        // Start receivers only in video flows. Other receivers have no session to start.
        if matches!(flow.kind, sc::FlowKind::Video(_)) {
            let outside = scenario.starts_outside(ix);
            for (times, (at, _)) in ends.active.iter().enumerate() {
                let members = members(scenario, ix, flow.to.len(), *at);
                // Members of the group start before the first packet. Leave out a receiver that joins by an event at or
                // before the flow's first start, because the join starts its session.
                let there = |r: &usize| members[*r] && (times > 0 || outside.binary_search(r).is_err());
                let starts = (0..flow.to.len()).filter(there);
                plan.extend(starts.map(|receiver| transition(*at, End::Receiver(receiver), Action::Start)));
            }
        }
        for (at, stop) in &ends.active {
            plan.push(transition(*at, End::Source, Action::Start));
            if *stop < Time::NEVER {
                plan.push(transition(*stop, End::Source, Action::Stop));
            }
        }
    }
    let event = |event: &sc::Event| {
        let (flow, receiver, does) = match event.kind {
            EventKind::Join { flow, receiver } => (flow, receiver, Action::Join),
            EventKind::Leave { flow, receiver } => (flow, receiver, Action::Leave),
            _ => return None,
        };
        Some(Transition { at: event.at, flow, end: End::Receiver(receiver), does })
    };
    plan.extend(scenario.events.iter().filter_map(event));
    plan
}

/// Returns the transitions of one end of a flow, in the order of time.
pub fn transitions_of(plan: &[Transition], flow: FlowIx, end: End) -> impl Iterator<Item = (Time, Action)> + use<> {
    let of = |transition: &&Transition| transition.flow == flow && transition.end == end;
    let mut transitions: Vec<_> = plan.iter().filter(of).map(|transition| (transition.at, transition.does)).collect();
    transitions.sort_by_key(|(at, _)| *at);
    transitions.into_iter()
}

/// Returns for each receiver of a flow's group whether it is a member, over time.
pub fn membership(scenario: &Scenario, flow: FlowIx) -> Steps<Vec<bool>> {
    let receivers = scenario.flows[flow.0 as usize].to.len();
    let members = |at: Time| members(scenario, flow, receivers, at);
    let mut steps = Steps::constant(members(Time::ZERO));
    for event in &scenario.events {
        if matches!(event.kind, EventKind::Join { flow: f, .. } | EventKind::Leave { flow: f, .. } if f == flow) {
            steps.then(event.at, members(event.at));
        }
    }
    steps
}

/// Returns for each receiver whether it is a member of the flow's group after the events up to `at`.
fn members(scenario: &Scenario, flow: FlowIx, receivers: usize, at: Time) -> Vec<bool> {
    let mut inside = vec![true; receivers];
    for receiver in scenario.starts_outside(flow) {
        inside[receiver] = false;
    }
    for event in scenario.events.iter().filter(|e| e.at <= at) {
        match event.kind {
            EventKind::Join { flow: f, receiver } if f == flow => inside[receiver] = true,
            EventKind::Leave { flow: f, receiver } if f == flow => inside[receiver] = false,
            _ => {}
        }
    }
    inside
}
