//! The record of a run.

use crate::activity::{throughout, within};
use crate::{Agent, AgentIx, Body, Viewer};
use steadycast_control::Stream;
use steadycast_link::{Counts, Ecn, Link};
use steadycast_record::row;
use steadycast_scenario::Scenario;
use steadycast_units::{Bytes, Span, Time};

/// The record of a simulation, an emulation or a live session.
pub struct Record<'a> {
    /// `simulated`, `emulated` or `live`.
    pub world: &'static str,
    /// The scenario that was run.
    pub scenario: &'a Scenario,
    /// All agents.
    pub agents: &'a [Agent],
    /// The flows in the scenario's order.
    pub flows: &'a [FlowEnds],
    /// The receivers of simulcasts, in the scenario's order.
    pub viewers: &'a [Viewer],
    /// The scenario's links with two directions each; empty if not modelled.
    pub links: Vec<LinkRecord<'a>>,
    /// The link directions of each flow's data as indices into `links`: one list, or one per receiver with its own
    /// source.
    pub ways: Vec<Vec<Vec<u32>>>,
    /// The packets of each agent whose flow records them.
    pub logs: &'a [Option<Vec<PacketRow>>],
    /// Number of packets that left a link, over all links.
    pub hops: u64,
    /// The step of all series.
    pub step: Span,
    /// The time up to which the run has advanced.
    pub now: Time,
}

/// One direction of a link.
pub struct LinkRecord<'a> {
    /// The link, with its counts.
    pub link: &'a Link,
    /// The counts at the end of the warm-up, if any.
    pub before: Option<&'a Counts>,
    /// The bytes that the transmitter has sent.
    pub sent: Bytes,
    /// The packets at the link's end.
    pub carried: u64,
    /// The state per step of the series; empty if not recorded.
    pub series: &'a [LinkPoint],
}

/// The agents of a flow.
pub struct FlowEnds {
    /// The time of the first start.
    pub start: Time,
    /// The time of the last stop.
    pub stop: Time,
    /// The active periods, each from a start to a stop.
    pub active: Vec<(Time, Time)>,
    /// The start of mean values.
    pub means_from: Time,
    /// The source, or one per receiver.
    pub sources: Vec<AgentIx>,
    /// The receivers, in the scenario's order.
    pub sinks: Vec<AgentIx>,
}

impl FlowEnds {
    /// Returns the source of the receiver with this index.
    pub fn source_of(&self, receiver: usize) -> Option<AgentIx> {
        self.sources.get(if self.sources.len() > 1 { receiver } else { 0 }).copied()
    }

    /// Returns how long the flow is active between two times.
    pub fn active(&self, from: Time, until: Time) -> Span {
        within(self.active.iter().copied(), from, until)
    }

    /// Returns whether the flow is active all the time between two times.
    pub fn active_throughout(&self, from: Time, until: Time) -> bool {
        throughout(self.active.iter().copied(), from, until)
    }
}

/// One step of a link's series.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPoint {
    /// The transmitter's bytes in the step.
    pub bytes: u64,
    /// Number of packets dropped in the step.
    pub dropped: u64,
    /// Packets that wait at the end of the step.
    pub queued: u32,
    /// The wait of the packet offered last.
    pub wait: Span,
}

row!(LinkPoint { bytes, dropped, queued, wait });

/// A recorded packet, in four words because a run may have millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketRow {
    at: Time,
    seq: u64,
    /// `Span::MAX` if not recorded on arrival.
    delay: Span,
    /// `u32::MAX` if there is none.
    frame: u32,
    /// The IP size, the flag [`PacketRow::CE`] and the stream.
    size: u32,
}

impl PacketRow {
    const CE: u32 = 1 << 31;
    /// The stream's number: 0 is no stream, and n is `STREAMS[n - 1]`.
    const STREAM_SHIFT: u32 = 24;
    const SIZE: u32 = (1 << Self::STREAM_SHIFT) - 1;
    /// The recorded streams of a video flow, with their names in the table.
    const STREAMS: [(Stream, &str); 4] =
        [(Stream::Media, "video"), (Stream::Repair, "repair"), (Stream::Padding, "padding"), (Stream::Audio, "audio")];

    /// Creates the row of a packet that was sent or arrived at `at`. `delay` is an arrival's one-way delay.
    #[inline]
    pub fn new(at: Time, seq: u64, size: Bytes, frame: Option<u32>, ecn: Ecn, delay: Option<Span>) -> Self {
        let size = (size.get() as u32 & Self::SIZE) | if ecn == Ecn::Ce { Self::CE } else { 0 };
        Self { at, seq, delay: delay.unwrap_or(Span::MAX), frame: frame.unwrap_or(u32::MAX), size }
    }

    /// Returns when the packet was sent or arrived.
    pub const fn at(&self) -> Time {
        self.at
    }
    /// Returns the packet's number in the flow.
    pub const fn seq(&self) -> u64 {
        self.seq
    }
    /// Returns the IP size in bytes.
    pub const fn size(&self) -> u32 {
        self.size & Self::SIZE
    }
    /// Returns the stream's name in a video flow.
    pub fn stream(&self) -> Option<&'static str> {
        let code = ((self.size & !Self::CE) >> Self::STREAM_SHIFT) as usize;
        Self::STREAMS.get(code.checked_sub(1)?).map(|(_, name)| *name)
    }

    fn of_stream(mut self, stream: Stream) -> Self {
        let code = Self::STREAMS.iter().position(|(of, _)| *of == stream).map_or(0, |n| n as u32 + 1);
        self.size |= code << Self::STREAM_SHIFT;
        self
    }
    /// Returns the packet's frame, if any.
    pub fn frame(&self) -> Option<u32> {
        (self.frame != u32::MAX).then_some(self.frame)
    }
    /// Returns whether the packet arrived CE-marked.
    pub const fn ce(&self) -> bool {
        self.size & Self::CE != 0
    }
    /// Returns an arrival's one-way delay.
    pub fn delay(&self) -> Option<Span> {
        (self.delay != Span::MAX).then_some(self.delay)
    }

    /// Creates the row of this content; `None` for content that is not recorded, such as feedback and parity.
    pub fn of(at: Time, size: Bytes, body: &Body, ecn: Ecn, delay: Option<Span>) -> Option<Self> {
        let seq = match body {
            Body::Plain(n) => *n,
            Body::Tcp(_, segment) => u64::from(segment.seq),
            Body::Rtp(media) => {
                // A repair counts under its original's number, as in TCP.
                let seq = media.repairs.unwrap_or(media.seq);
                // Audio has no frames; its `fragment.frame` is the packet's index.
                let frame = (media.stream != Stream::Audio).then_some(media.fragment.frame);
                return Some(Self::new(at, seq, size, frame, ecn, delay).of_stream(media.stream));
            }
            Body::Parity(..) | Body::TcpAck(..) | Body::Rtcp { .. } | Body::Raw(_) => return None,
        };
        Some(Self::new(at, seq, size, None, ecn, delay))
    }
}

row!(PacketRow { at, seq, delay, frame, size });
