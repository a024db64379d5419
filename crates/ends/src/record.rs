//! What a run has left behind.

use crate::activity::{throughout, within};
use crate::{Agent, AgentIx, Body, Viewer};
use steadycast_link::{Counts, Ecn, Link};
use steadycast_record::row;
use steadycast_scenario::Scenario;
use steadycast_units::{Bytes, Span, Time};

/// A run's record, as its world shows it.
pub struct Record<'a> {
    /// Which world: simulated, emulated or live.
    pub world: &'static str,
    /// What was run.
    pub scenario: &'a Scenario,
    /// All agents.
    pub agents: &'a [Agent],
    /// The scenario's flows in its order, each with its agents.
    pub flows: &'a [FlowEnds],
    /// The receivers of simulcasts, in the scenario's order.
    pub viewers: &'a [Viewer],
    /// The scenario's links in its order, two directions each; empty where links are not ours.
    pub links: Vec<LinkRecord<'a>>,
    /// For each flow the directions of links that its data needs, as places in `links`: once for all its receivers, or
    /// where each has a source of its own, for each of them.
    pub ways: Vec<Vec<Vec<u32>>>,
    /// Packets of the agents whose flow is recorded packet by packet.
    pub logs: &'a [Option<Vec<PacketRow>>],
    /// Packets that have left a link.
    pub hops: u64,
    /// One step of every series.
    pub step: Span,
    /// How far the run has come.
    pub now: Time,
}

/// One direction of a link.
pub struct LinkRecord<'a> {
    /// The link itself, which counts.
    pub link: &'a Link,
    /// What it had counted at the end of the warm-up; nothing without one.
    pub before: Option<&'a Counts>,
    /// Bytes that its transmitter had sent when the run ended, or has sent so far.
    pub sent: Bytes,
    /// Packets that have reached its end.
    pub carried: u64,
    /// Its series; empty where none is kept.
    pub series: &'a [LinkPoint],
}

/// The agents of a flow.
pub struct FlowEnds {
    /// When it starts for the first time.
    pub start: Time,
    /// When it stops for the last time.
    pub stop: Time,
    /// When it is active, from start to stop: pauses between them are not.
    pub active: Vec<(Time, Time)>,
    /// Means are taken from here on.
    pub means_from: Time,
    /// Its sources: one, or one per receiver when many are served by unicast.
    pub sources: Vec<AgentIx>,
    /// Its receivers, in the scenario's order.
    pub sinks: Vec<AgentIx>,
}

impl FlowEnds {
    /// The source that serves the receiver in this place.
    pub fn source_of(&self, receiver: usize) -> Option<AgentIx> {
        self.sources.get(if self.sources.len() > 1 { receiver } else { 0 }).copied()
    }

    /// How long it is active between two times.
    pub fn active(&self, from: Time, until: Time) -> Span {
        within(self.active.iter().copied(), from, until)
    }

    /// Whether it is active all the time between two times.
    pub fn active_throughout(&self, from: Time, until: Time) -> bool {
        throughout(self.active.iter().copied(), from, until)
    }
}

/// One step of a link's series.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPoint {
    /// Bytes that the transmitter sent in the step.
    pub bytes: u64,
    /// Packets dropped in the step.
    pub dropped: u64,
    /// Packets that wait at its end.
    pub queued: u32,
    /// How long the packet offered last has to wait.
    pub wait: Span,
}

row!(LinkPoint { bytes, dropped, queued, wait });

/// One recorded packet. Four words: a run may have millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketRow {
    at: Time,
    seq: u64,
    /// `Span::MAX`: none.
    delay: Span,
    /// `u32::MAX`: none.
    frame: u32,
    /// With [`PacketRow::CE`].
    size: u32,
}

impl PacketRow {
    const CE: u32 = 1 << 31;

    /// A packet of a flow by its number, IP size and frame, if it belongs to one, when it left or arrived; marked on
    /// the way or not; of one that arrived its one-way delay.
    #[inline]
    pub fn new(at: Time, seq: u64, size: Bytes, frame: Option<u32>, ecn: Ecn, delay: Option<Span>) -> Self {
        let size = (size.get() as u32 & !Self::CE) | if ecn == Ecn::Ce { Self::CE } else { 0 };
        Self { at, seq, delay: delay.unwrap_or(Span::MAX), frame: frame.unwrap_or(u32::MAX), size }
    }

    /// When it left or arrived.
    pub const fn at(&self) -> Time {
        self.at
    }
    /// Its number in the flow.
    pub const fn seq(&self) -> u64 {
        self.seq
    }
    /// IP size in bytes.
    pub const fn size(&self) -> u32 {
        self.size & !Self::CE
    }
    /// The frame that it belongs to.
    pub fn frame(&self) -> Option<u32> {
        (self.frame != u32::MAX).then_some(self.frame)
    }
    /// Whether it was marked on the way.
    pub const fn ce(&self) -> bool {
        self.size & Self::CE != 0
    }
    /// One-way delay, of one that arrived.
    pub fn delay(&self) -> Option<Span> {
        (self.delay != Span::MAX).then_some(self.delay)
    }

    /// `None` for packets that are not recorded: feedback and parity.
    pub fn of(at: Time, size: Bytes, body: &Body, ecn: Ecn, delay: Option<Span>) -> Option<Self> {
        let (seq, frame) = match body {
            Body::Plain(n) => (*n, None),
            Body::Tcp(_, segment) => (u64::from(segment.seq), None),
            // What is sent again goes by the number that it had at first, as TCP's segments do.
            Body::Rtp(media) => (media.repairs.unwrap_or(media.seq), Some(media.fragment.frame)),
            Body::Parity(..) | Body::TcpAck(..) | Body::Rtcp { .. } | Body::Raw(_) => return None,
        };
        Some(Self::new(at, seq, size, frame, ecn, delay))
    }
}

row!(PacketRow { at, seq, delay, frame, size });
