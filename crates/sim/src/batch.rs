//! Plain packets of a group that have arrived and whose sinks have not been told.
//!
//! Ten thousand sinks do not fit a cache. To go round all of them once for many packets costs a fraction of going round for each: what a
//! sink counts comes out of memory once per batch.

use crate::net::{Group, Leg};
use steadycast_ends::{Agent, PacketRow};
use steadycast_units::{Bytes, Time};

/// Arrivals of one group, all by the same links.
#[derive(Default)]
pub(crate) struct Batch {
    legs: Vec<Leg>,
    arrivals: Vec<Arrival>,
}

struct Arrival {
    at: Time,
    number: u64,
    size: Bytes,
    sent: Time,
}

/// No more than this many wait: by then memory is no longer what counts.
const MOST: usize = 64;

impl Batch {
    /// Takes the arrival of a plain packet by these links in; `false` when not all of them lead to plain sinks and nowhere else.
    pub(crate) fn take(
        &mut self,
        (at, legs): (Time, &[Leg]),
        (number, size, sent): (u64, Bytes, Time),
        group: &Group,
        (agents, logs): (&mut [Agent], &mut [Option<Vec<PacketRow>>]),
    ) -> bool {
        if self.legs != legs {
            self.settle(group, agents, logs);
            let plain = |leg: &Leg| {
                group.leaf(leg.link).is_some_and(|agent| matches!(agents[agent.0 as usize], Agent::PlainSink(_)))
            };
            if !legs.iter().all(plain) {
                return false;
            }
            self.legs.clear();
            self.legs.extend_from_slice(legs);
        }
        self.arrivals.push(Arrival { at, number, size, sent });
        if self.arrivals.len() == MOST {
            self.settle(group, agents, logs);
        }
        true
    }

    /// Tells the sinks what they have not been told.
    pub(crate) fn settle(&mut self, group: &Group, agents: &mut [Agent], logs: &mut [Option<Vec<PacketRow>>]) {
        if self.arrivals.is_empty() {
            return;
        }
        for leg in &self.legs {
            let Some(agent) = group.leaf(leg.link) else { continue };
            if let Some(Some(log)) = logs.get_mut(agent.0 as usize) {
                let row = |a: &Arrival| PacketRow::new(a.at, a.number, a.size, None, leg.ecn, Some(a.at.since(a.sent)));
                log.extend(self.arrivals.iter().map(row));
            }
            if let Agent::PlainSink(sink) = &mut agents[agent.0 as usize] {
                for Arrival { at, number, size, sent } in &self.arrivals {
                    sink.on_packet(*at, *number, *size, *sent);
                }
            }
        }
        self.arrivals.clear();
    }

    /// The tree changes: the links may lead elsewhere.
    pub(crate) fn forget(&mut self, group: &Group, agents: &mut [Agent], logs: &mut [Option<Vec<PacketRow>>]) {
        self.settle(group, agents, logs);
        self.legs.clear();
    }
}
