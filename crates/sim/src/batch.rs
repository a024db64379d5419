//! Plain packets of a group that have arrived and whose sinks have not been told.
//!
//! Ten thousand sinks do not fit a cache. To go round all of them once for many packets costs a fraction of going round for each: what a
//! sink counts comes out of memory once per batch.

use steadycast_ends::{Agent, AgentIx, PacketRow};
use steadycast_link::Ecn;
use steadycast_network::{Leg, Network};
use steadycast_units::{Bytes, Time};

/// Arrivals of one group, all by the same links.
#[derive(Default)]
pub(crate) struct Batch {
    legs: Vec<Leg>,
    /// The sinks to which these links lead, with the ECN field on arrival.
    sinks: Vec<(AgentIx, Ecn)>,
    /// What [`Network::changes`] told when the sinks were looked up.
    changes: u64,
    arrivals: Vec<Plain>,
}

/// A plain packet that has arrived.
pub(crate) struct Plain {
    pub(crate) at: Time,
    pub(crate) number: u64,
    pub(crate) size: Bytes,
    pub(crate) sent: Time,
}

/// The agents of a world, with the packets that are recorded of each.
pub(crate) struct Told<'a> {
    pub(crate) agents: &'a mut [Agent],
    pub(crate) logs: &'a mut [Option<Vec<PacketRow>>],
}

/// The largest number of packets that wait: with more, memory is no longer what costs time.
const MOST: usize = 64;

impl Batch {
    /// Takes the arrival of a plain packet by these links in; `false` when not all of them lead to plain sinks and nowhere else.
    pub(crate) fn take(
        &mut self,
        plain: Plain,
        legs: &[Leg],
        network: &Network,
        group: u32,
        told: &mut Told<'_>,
    ) -> bool {
        let changes = network.changes(group);
        if self.legs != legs || self.changes != changes {
            self.settle(told);
            self.legs.clear();
            self.sinks.clear();
            for leg in legs {
                let sink = network.leaf(group, leg.direction());
                let Some(sink) = sink.filter(|ix| matches!(told.agents[ix.0 as usize], Agent::PlainSink(_))) else {
                    return false;
                };
                self.sinks.push((sink, leg.ecn()));
            }
            self.legs.extend_from_slice(legs);
            self.changes = changes;
        }
        self.arrivals.push(plain);
        if self.arrivals.len() == MOST {
            self.settle(told);
        }
        true
    }

    /// Tells the sinks what they have not been told.
    pub(crate) fn settle(&mut self, told: &mut Told<'_>) {
        if self.arrivals.is_empty() {
            return;
        }
        for (agent, ecn) in &self.sinks {
            if let Some(Some(log)) = told.logs.get_mut(agent.0 as usize) {
                let row = |a: &Plain| PacketRow::new(a.at, a.number, a.size, None, *ecn, Some(a.at.since(a.sent)));
                log.extend(self.arrivals.iter().map(row));
            }
            if let Agent::PlainSink(sink) = &mut told.agents[agent.0 as usize] {
                for Plain { at, number, size, sent } in &self.arrivals {
                    sink.on_packet(*at, *number, *size, *sent);
                }
            }
        }
        self.arrivals.clear();
    }
}
