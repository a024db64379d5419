//! What an agent may be told of later: a world that has many receivers goes round them once for many packets.

use crate::intake::Bundle;
use crate::{Agent, Arriving, Body};
use steadycast_session as session;
use steadycast_units::Time;

/// Of an agent: packets that it may be told of later, by [`Agent::catch_up`].
#[derive(Clone, Copy, Debug)]
pub enum Batchable {
    /// Plain ones: it sends nothing, and never wakes.
    Plain,
    /// Those of the source of its session.
    Session(session::Batchable),
}

/// Of a packet: what decides whether it can wait.
#[derive(Clone, Copy, Debug)]
pub enum BatchKey {
    /// A plain one.
    Plain,
    /// One of a session.
    Session(session::BatchKey),
}

impl BatchKey {
    /// Of a packet's content; `None`: it can't wait.
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
    /// Whether the packet can wait. One that can is to be told before any that cannot.
    #[inline]
    pub fn accepts(&mut self, packet: &BatchKey) -> bool {
        match (self, packet) {
            (Self::Plain, BatchKey::Plain) => true,
            (Self::Session(batchable), BatchKey::Session(packet)) => batchable.accepts(packet),
            _ => false,
        }
    }
}

/// Plain packets of a flow that follow each other by number, and have reached many agents alike.
#[derive(Debug)]
pub struct PlainRun {
    first: u64,
    bundle: Bundle,
}

impl PlainRun {
    /// Of packets that have arrived at these times; `None`: they are no such run.
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
    /// As [`Agent::catch_up`] with all packets of a run. Returns `false`, and does nothing, where they have to be told
    /// one by one.
    pub fn catch_up_run(&mut self, run: &PlainRun) -> bool {
        if let Self::PlainSink(sink) = self { sink.on_bundle(run.first, &run.bundle) } else { false }
    }

    /// The packets that it may be told of later, until its wake and before anything else happens to it; `None`: it has
    /// to be told of each at once.
    pub fn batchable(&self) -> Option<Batchable> {
        match self {
            Self::PlainSink(_) => Some(Batchable::Plain),
            Self::VideoSink(sink) => sink.batchable().map(Batchable::Session),
            _ => None,
        }
    }

    /// Packets that it had [`Agent::batchable`] with have arrived at these times: there is nothing to send, and its wake
    /// is where it was.
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
