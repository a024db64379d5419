//! Batched delivery of packets to agents. In a simulation with many receivers, each receiver is visited once for many
//! packets.

use crate::intake::Bundle;
use crate::{Agent, Arriving, Body};
use steadycast_session as session;
use steadycast_units::Time;

/// The packets that [`Agent::catch_up`] may deliver to an agent later.
#[derive(Clone, Copy, Debug)]
pub enum Batchable {
    /// Plain packets. The agent sends nothing and has no timer.
    Plain,
    /// Packets from the source of the agent's session.
    Session(session::Batchable),
}

/// The properties that decide whether a packet can be delivered in a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchKey {
    /// A packet of plain traffic.
    Plain,
    /// A packet of a session.
    Session(session::BatchKey),
}

impl BatchKey {
    /// Returns the key of a packet with this content; `None` if it can't be delivered later.
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
    /// Returns true if the delivery of the packet can be postponed. The packet still has to be delivered before any
    /// packet that can't be postponed.
    #[inline]
    pub fn accepts(&mut self, packet: &BatchKey) -> bool {
        match (self, packet) {
            (Self::Plain, BatchKey::Plain) => true,
            (Self::Session(batchable), BatchKey::Session(packet)) => batchable.accepts(packet),
            _ => false,
        }
    }
}

/// A run of consecutive plain packets of one flow that have reached many agents at the same times.
#[derive(Debug)]
pub struct PlainRun {
    first: u64,
    bundle: Bundle,
}

impl PlainRun {
    /// Creates a run from packets with these arrival times; `None` if they are not plain packets with consecutive
    /// numbers.
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
    /// Delivers all packets of `run`, with the same result as [`Agent::catch_up`]. If they have to be delivered
    /// individually, does nothing and returns false.
    pub fn catch_up_run(&mut self, run: &PlainRun) -> bool {
        if let Self::PlainSink(sink) = self { sink.on_bundle(run.first, &run.bundle) } else { false }
    }

    /// Returns which packets may be delivered later. They have to be delivered before the agent's timer expires and
    /// before the agent processes anything else. Returns `None` if each packet has to be delivered immediately.
    pub fn batchable(&self) -> Option<Batchable> {
        match self {
            Self::PlainSink(_) => Some(Batchable::Plain),
            Self::VideoSink(sink) => sink.batchable().map(Batchable::Session),
            _ => None,
        }
    }

    /// Delivers packets that [`Agent::batchable`] accepted, with their arrival times. They do not make the agent send
    /// anything, and do not move its timer to an earlier time.
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
