//! Delivers the packets of a multicast group to its receivers in batches.
//!
//! The state of ten thousand receivers does not fit in the CPU cache. A batch contains several packets, so each
//! receiver's state is loaded once per batch. A packet is delivered immediately if it could make a receiver send or
//! wake up earlier ([`Agent::batchable`]). Therefore batching has no observable effect.

use std::collections::BTreeMap;
use steadycast_endpoints::{Agent, AgentIx, Arriving, BatchKey, Batchable, PacketRow, PlainRun};
use steadycast_link::Ecn;
use steadycast_network::{Fan, Leg, Network, PacketIx, To};
use steadycast_scenario::{DirIx, NodeIx};
use steadycast_units::Time;

/// The packets that have not been delivered yet. There is one batch for each group and branching node, and `at`
/// contains its index.
#[derive(Default)]
pub(crate) struct Batches {
    batches: Vec<Batch>,
    at: BTreeMap<(u32, NodeIx), usize>,
    /// For each agent: the index of its batch, and its index within this batch. The list is empty if there are no
    /// batches.
    places: Vec<Option<(u32, u32)>>,
}

/// The packets for receivers behind the links of one node. Each of these links leads to a single receiver.
#[derive(Default)]
struct Batch {
    /// The value of [`Network::changes`] when `sinks` was filled.
    changes: u64,
    /// The receivers, in the order of their links.
    sinks: Vec<Sink>,
    /// The copies of the latest packet that was sent to all of these receivers.
    all: Vec<Leg>,
    arrivals: Vec<Arrival>,
}

struct Sink {
    link: DirIx,
    agent: AgentIx,
    batchable: Option<Batchable>,
    /// A bit per arrival. The bit is set if the arrival is for other receivers only, or has already been delivered.
    done: u64,
}

/// A packet whose copies arrive at several sinks.
struct Arrival {
    at: Time,
    packet: PacketIx,
    /// The number of copies that are delivered with the batch.
    copies: u32,
    ecn: Ecn,
}

pub(crate) struct AgentsAndLogs<'a> {
    pub(crate) agents: &'a mut [Agent],
    pub(crate) logs: &'a mut [Option<Vec<PacketRow>>],
}

/// Maximum number of packets per batch: one for each bit of [`Sink::done`].
const MAX_BATCH: usize = u64::BITS as usize;

impl Batches {
    /// Removes from `fan` the copies that can be delivered later, and adds them to a batch. `armed` contains the next
    /// wake-up time of each agent.
    pub(crate) fn take(
        &mut self,
        now: Time,
        fan: &mut Fan,
        armed: &[Time],
        network: &mut Network,
        agents_and_logs: &mut AgentsAndLogs<'_>,
    ) {
        let packet = network.packet(fan.packet());
        let (To::Group(group), Some(batch_key)) = (packet.head.to, BatchKey::of(&packet.body)) else { return };
        let Some(first) = fan.legs().first().map(Leg::direction) else { return };
        let (key, changes) = ((group, network.begins_at(first)), network.changes(group));
        let n = match self.at.get(&key) {
            Some(n) if self.batches[*n].changes == changes => *n,
            // Look up the receivers, because the tree has changed or this is the first packet at this node.
            known => {
                let n = known.copied().unwrap_or(self.batches.len());
                self.look_up(n, key, first, network, agents_and_logs);
                n
            }
        };
        self.batches[n].take(now, fan, &batch_key, armed);
        if self.batches[n].arrivals.len() == MAX_BATCH {
            self.batches[n].flush(network, agents_and_logs);
        }
    }

    fn look_up(
        &mut self,
        n: usize,
        key: (u32, NodeIx),
        first: DirIx,
        network: &mut Network,
        agents_and_logs: &mut AgentsAndLogs<'_>,
    ) {
        let (group, _) = key;
        if n == self.batches.len() {
            self.batches.push(Batch::default());
            self.at.insert(key, n);
        }
        self.places.resize(agents_and_logs.agents.len(), None);
        let batch = &mut self.batches[n];
        batch.flush(network, agents_and_logs);
        // The sinks can be removed now, because their pending packets were delivered above.
        for sink in batch.sinks.drain(..) {
            self.places[sink.agent.0 as usize] = None;
        }
        batch.changes = network.changes(group);
        for link in network.branches_beside(group, first) {
            let agent = network.sole_receiver(group, link);
            // Skip the agent if it already belongs to a batch.
            let Some(agent) = agent.filter(|agent| self.places[agent.0 as usize].is_none()) else { continue };
            if let Agent::PlainSink(_) | Agent::VideoSink(_) = agents_and_logs.agents[agent.0 as usize] {
                self.places[agent.0 as usize] = Some((n as u32, batch.sinks.len() as u32));
                let batchable = agents_and_logs.agents[agent.0 as usize].batchable();
                batch.sinks.push(Sink { link, agent, batchable, done: 0 });
            }
        }
        batch.all.clear();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[inline]
    pub(crate) fn flush_agent(&mut self, agent: AgentIx, network: &Network, agents_and_logs: &mut AgentsAndLogs<'_>) {
        if let Some(Some((batch, place))) = self.places.get(agent.0 as usize) {
            let Batch { sinks, arrivals, .. } = &mut self.batches[*batch as usize];
            let sink = &mut sinks[*place as usize];
            sink.flush(arrivals.iter().map(|arrival| arrival.arriving(network)), agents_and_logs);
            // Mark all present arrivals as delivered to this sink. Only later arrivals remain.
            sink.done = u64::MAX.checked_shr(u64::BITS - arrivals.len() as u32).unwrap_or(0);
        }
    }

    /// Updates [`Sink::batchable`] after the agent has processed an event.
    #[inline]
    pub(crate) fn update_batchable(&mut self, ix: AgentIx, agent: &Agent) {
        if let Some(Some((batch, place))) = self.places.get(ix.0 as usize) {
            self.batches[*batch as usize].sinks[*place as usize].batchable = agent.batchable();
        }
    }

    pub(crate) fn flush(&mut self, network: &mut Network, agents_and_logs: &mut AgentsAndLogs<'_>) {
        for batch in &mut self.batches {
            batch.flush(network, agents_and_logs);
        }
    }
}

impl Batch {
    fn take(&mut self, now: Time, fan: &mut Fan, batch_key: &BatchKey, armed: &[Time]) {
        let bit = 1 << self.arrivals.len();
        let Some(ecn) = fan.legs().first().map(Leg::ecn) else { return };
        let (packet, before) = (fan.packet(), fan.legs().len());
        // This packet has the same copies as an earlier packet that was for all sinks. Skip the comparison for each
        // sink.
        if self.all == fan.legs() && matches!(batch_key, BatchKey::Plain) {
            self.arrivals.push(Arrival { at: now, packet, copies: before as u32, ecn });
            return fan.keep(|_| false);
        }
        let legs = (before == self.sinks.len()).then(|| fan.legs().to_vec());
        // Copies and sinks are both sorted by link, so one pass finds the sink of each copy.
        let mut sinks = self.sinks.iter_mut().peekable();
        fan.keep(|leg| {
            while let Some(sink) = sinks.next_if(|sink| sink.link < leg.direction()) {
                sink.done |= bit;
            }
            let Some(sink) = sinks.next_if(|sink| sink.link == leg.direction()) else { return true };
            // A batch stores one ECN value per arrival, so a copy with another ECN value can't wait.
            let waits = leg.ecn() == ecn
                // If the agent's timer is due, it must be processed before the packet.
                && armed[sink.agent.0 as usize] > now
                && sink.batchable.as_mut().is_some_and(|batchable| batchable.accepts(batch_key));
            sink.done |= if waits { 0 } else { bit };
            !waits
        });
        sinks.for_each(|sink| sink.done |= bit);
        let copies = (before - fan.legs().len()) as u32;
        // No copy was added. Clear the bit, so that the next arrival can use it.
        if copies == 0 {
            self.sinks.iter_mut().for_each(|sink| sink.done &= !bit);
            return;
        }
        if let Some(legs) = legs.filter(|_| fan.legs().is_empty()) {
            self.all = legs;
        }
        self.arrivals.push(Arrival { at: now, packet, copies, ecn });
    }

    fn flush(&mut self, network: &mut Network, agents_and_logs: &mut AgentsAndLogs<'_>) {
        if self.arrivals.is_empty() {
            return;
        }
        let all: Vec<_> = self.arrivals.iter().map(|arrival| arrival.arriving(network)).collect();
        // Sum plain packets once for all sinks. This is not possible if a log needs each packet.
        let run = if agents_and_logs.logs.is_empty() { PlainRun::of(all.iter().copied()) } else { None };
        for sink in &mut self.sinks {
            let plain_run = run.as_ref().filter(|_| sink.done == 0);
            if !plain_run.is_some_and(|run| agents_and_logs.agents[sink.agent.0 as usize].catch_up_run(run)) {
                sink.flush(all.iter().copied(), agents_and_logs);
            }
            sink.done = 0;
        }
        for Arrival { packet, copies, .. } in self.arrivals.drain(..) {
            network.release_copies(packet, copies);
        }
    }
}

impl Arrival {
    fn arriving<'a>(&self, network: &'a Network) -> (Time, Arriving<'a>) {
        (self.at, network.packet(self.packet).arriving(self.ecn))
    }
}

impl Sink {
    #[inline]
    fn flush<'a>(
        &mut self,
        all: impl Iterator<Item = (Time, Arriving<'a>)> + Clone,
        agents_and_logs: &mut AgentsAndLogs<'_>,
    ) {
        let (n, done) = (self.agent.0 as usize, self.done);
        // Fast path: all arrivals are for this sink, none has been delivered yet, and packets are not logged.
        if done == 0 && agents_and_logs.logs.is_empty() {
            return agents_and_logs.agents[n].catch_up(all);
        }
        let new = all.enumerate().filter(|(place, _)| done & 1 << place == 0).map(|(_, arrival)| arrival);
        if let Some(Some(log)) = agents_and_logs.logs.get_mut(n) {
            let row = |(at, it): (Time, Arriving<'_>)| {
                PacketRow::of(at, it.size, it.body, it.ecn, it.sent.map(|sent| at.since(sent)))
            };
            log.extend(new.clone().filter_map(row));
        }
        agents_and_logs.agents[n].catch_up(new);
    }
}
