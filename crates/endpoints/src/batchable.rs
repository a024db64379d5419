//! Batched delivery of packets. In a large simulation, each receiver is visited once for many packets.

use crate::intake::Bundle;
use crate::{Agent, Arriving, Body};
use steadycast_session as session;
use steadycast_units::Time;

/// Which packets [`Agent::catch_up`] may deliver to an agent later.
#[derive(Clone, Copy, Debug)]
pub enum Batchable {
    /// Plain packets. They go to an agent that sends nothing and has no timer.
    Plain,
    /// Packets that come from the source of the agent's session.
    Session(session::Batchable),
}

/// The properties that decide whether a packet is batched.
#[derive(Clone, Copy, Debug)]
pub enum BatchKey {
    /// A packet of plain traffic.
    Plain,
    /// A packet of a session.
    Session(session::BatchKey),
}

impl BatchKey {
    /// Returns the key of a packet with this content. Returns `None` if the packet can't be delivered later.
    pub fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Plain(_) => Some(Self::Plain),
            Body::Rtp(media) => session::BatchKey::of_media(media).map(Self::Session),
            Body::Rtcp { parsed, .. } => session::BatchKey::of_compound(parsed).map(Self::Session),
            Body::Tcp(..) | Body::TcpAck(..) | Body::Parity(..) | Body::Raw(_) => None,
        }
    }
}

impl Batchable {
    /// Returns whether the packet may wait for a batch. If it may not, deliver the present batch before this packet.
    #[inline]
    pub fn accepts(&mut self, packet: &BatchKey) -> bool {
        match (self, packet) {
            (Self::Plain, BatchKey::Plain) => true,
            (Self::Session(batchable), BatchKey::Session(packet)) => batchable.accepts(packet),
            _ => false,
        }
    }
}

/// Consecutive plain packets of one flow. They reached many agents, and each packet reached all agents at the same
/// time.
#[derive(Debug)]
pub struct PlainRun {
    first: u64,
    bundle: Bundle,
}

impl PlainRun {
    /// Creates a run. Returns `None` if there are no packets, if a packet is not plain, or if the packets' numbers are
    /// not consecutive.
    pub fn of<'a>(packets: impl Iterator<Item = (Time, Arriving<'a>)>) -> Option<Self> {
        let mut run = None;
        for (at, packet) in packets {
            let Body::Plain(n) = packet.body else { return None };
            let Self { first, bundle } = run.get_or_insert_with(|| Self { first: *n, bundle: Bundle::default() });
            if *n != *first + bundle.packets() {
                return None;
            }
            bundle.add(at, packet.size, packet.sent);
        }
        run
    }
}

impl Agent {
    /// Delivers `run` like [`Agent::catch_up`]. Returns false and changes nothing if each packet must be delivered on
    /// its own.
    pub fn catch_up_run(&mut self, run: &PlainRun) -> bool {
        if let Self::PlainSink(sink) = self { sink.on_bundle(run.first, &run.bundle) } else { false }
    }

    /// Returns which packets may be delivered in a batch. Returns `None` if no packet may wait. Deliver the batch
    /// before the agent's timer expires and before any other event.
    pub fn batchable(&self) -> Option<Batchable> {
        match self {
            Self::PlainSink(_) => Some(Batchable::Plain),
            Self::VideoSink(sink) => sink.batchable().map(Batchable::Session),
            _ => None,
        }
    }

    /// Delivers packets that [`Agent::batchable`] accepted. Each packet comes with its arrival time.
    #[inline]
    pub fn catch_up<'a>(&mut self, packets: impl Iterator<Item = (Time, Arriving<'a>)>) {
        match self {
            Self::PlainSink(sink) => packets.for_each(|(at, packet)| {
                if let Body::Plain(n) = packet.body {
                    sink.on_packet(at, *n, packet.size, packet.sent);
                }
            }),
            Self::VideoSink(sink) => packets.for_each(|(at, packet)| sink.catch_up(at, &packet)),
            _ => debug_assert!(packets.count() == 0, "it takes no batches"),
        }
    }
}
