//! The record of a run.

use crate::activity::{throughout, within};
use crate::{Agent, AgentIx, Body, Viewer};
use steadycast_control::Stream;
use steadycast_link::{Counts, Ecn, Link};
use steadycast_record::{Path, row};
use steadycast_scenario::Scenario;
use steadycast_units::{Bytes, Span, Time};

/// The record of a simulation, an emulation or a live session.
pub struct Record<'a> {
    /// How the scenario was run: `simulated`, `emulated` or `live`.
    pub world: &'static str,
    /// The scenario that was run.
    pub scenario: &'a Scenario,
    /// All agents.
    pub agents: &'a [Agent],
    /// The flows in the scenario's order.
    pub flows: &'a [FlowEnds],
    /// Receivers of simulcasts, in the scenario's order.
    pub viewers: &'a [Viewer],
    /// The two directions of each link, in the scenario's order. Empty if links are not modelled.
    pub links: Vec<LinkRecord<'a>>,
    /// The link directions that a flow's data passes, as indices into `links`. The outer list has an entry per flow.
    /// That entry is one path, or a path per receiver if each receiver has its own source. The path of a group changes
    /// when a receiver joins or leaves.
    pub ways: Vec<Vec<Path>>,
    /// Recorded packets of each agent. `None` if the agent's flow does not record packets.
    pub logs: &'a [Option<Vec<PacketRow>>],
    /// How often a packet left a link, summed over all links.
    pub hops: u64,
    /// Time step of all series.
    pub step: Span,
    /// The time that the run has reached.
    pub now: Time,
}

/// One direction of a link.
pub struct LinkRecord<'a> {
    /// The link, with its counts.
    pub link: &'a Link,
    /// The counts at the end of the warm-up, if there was one.
    pub before: Option<&'a Counts>,
    /// The bytes that the transmitter has sent.
    pub sent: Bytes,
    /// Number of packets that reached the end of the link.
    pub carried: u64,
    /// One point per time step. Empty if the series is not recorded.
    pub series: &'a [LinkPoint],
}

/// The agents of a flow, and when it is active.
pub struct FlowEnds {
    /// When the flow starts for the first time.
    pub start: Time,
    /// When the flow stops for the last time.
    pub stop: Time,
    /// Periods in which the flow is active, each from a start to a stop.
    pub active: Vec<(Time, Time)>,
    /// When the averaging of mean values starts.
    pub means_from: Time,
    /// The source. If each receiver has a source of its own, one source per receiver.
    pub sources: Vec<AgentIx>,
    /// The receivers, in the scenario's order.
    pub sinks: Vec<AgentIx>,
}

impl FlowEnds {
    /// Returns the source that sends to the receiver with this index.
    pub fn source_of(&self, receiver: usize) -> Option<AgentIx> {
        self.sources.get(self.source_place(receiver)).copied()
    }

    /// Returns the index in `sources` of the source that sends to the receiver with this index.
    pub(crate) fn source_place(&self, receiver: usize) -> usize {
        if self.sources.len() > 1 { receiver } else { 0 }
    }

    /// Returns how long the flow is active between `from` and `until`.
    pub fn active(&self, from: Time, until: Time) -> Span {
        within(self.active.iter().copied(), from, until)
    }

    /// Returns whether the flow is active without a break between `from` and `until`.
    pub fn active_throughout(&self, from: Time, until: Time) -> bool {
        throughout(self.active.iter().copied(), from, until)
    }
}

/// One step of a link's series.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPoint {
    /// Bytes that the transmitter sent in the step.
    pub bytes: u64,
    /// Number of packets dropped in the step.
    pub dropped: u64,
    /// Number of packets in the queue at the end of the step.
    pub queued: u32,
    /// Queuing delay of the last packet that was offered.
    pub wait: Span,
}

row!(LinkPoint { bytes, dropped, queued, wait });

/// A recorded packet. Its fields are packed into few bytes because a run may record millions of packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketRow {
    at: Time,
    seq: u64,
    /// One-way delay of a packet that arrived. `Span::MAX` if the row is for a packet that was sent.
    delay: Span,
    /// Index of the frame. `u32::MAX` if the packet has no frame.
    frame: u32,
    /// The IP size in bytes, the flag [`PacketRow::CE`] and the code of the stream.
    size: u32,
}

impl PacketRow {
    const CE: u32 = 1 << 31;
    /// Position of the stream's code. Code 0 means no stream, and code n is `STREAMS[n - 1]`.
    const STREAM_SHIFT: u32 = 24;
    const SIZE: u32 = (1 << Self::STREAM_SHIFT) - 1;
    /// The streams of a video flow that are recorded, with their names in the table.
    const STREAMS: [(Stream, &str); 5] = [
        (Stream::Media, "video"),
        (Stream::Repair, "repair"),
        (Stream::Parity, "parity"),
        (Stream::Padding, "padding"),
        (Stream::Audio, "audio"),
    ];

    /// Creates the row of a packet that was sent or arrived at `at`. `delay` is the one-way delay if the packet
    /// arrived.
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
    /// Returns the name of the stream if the packet belongs to a video flow.
    pub fn stream(&self) -> Option<&'static str> {
        let code = ((self.size & !Self::CE) >> Self::STREAM_SHIFT) as usize;
        Self::STREAMS.get(code.checked_sub(1)?).map(|(_, name)| *name)
    }

    fn of_stream(mut self, stream: Stream) -> Self {
        let code = Self::STREAMS.iter().position(|(of, _)| *of == stream).map_or(0, |n| n as u32 + 1);
        self.size |= code << Self::STREAM_SHIFT;
        self
    }
    /// Returns the index of the packet's frame, if it has one.
    pub fn frame(&self) -> Option<u32> {
        (self.frame != u32::MAX).then_some(self.frame)
    }
    /// Returns whether the packet arrived with the ECN codepoint CE.
    pub const fn ce(&self) -> bool {
        self.size & Self::CE != 0
    }
    /// Returns the one-way delay if the packet arrived.
    pub fn delay(&self) -> Option<Span> {
        (self.delay != Span::MAX).then_some(self.delay)
    }

    /// Creates the row of a packet with the content `body`. Returns `None` if such content is not recorded, such as
    /// feedback.
    pub fn of(at: Time, size: Bytes, body: &Body, ecn: Ecn, delay: Option<Span>) -> Option<Self> {
        let media = match body {
            Body::Plain(n) => return Some(Self::new(at, *n, size, None, ecn, delay)),
            Body::Tcp(_, segment) => return Some(Self::new(at, segment.seq.into(), size, None, ecn, delay)),
            Body::Rtp(media) => media,
            Body::Parity(parity) => &parity.0,
            Body::TcpAck(..) | Body::Rtcp { .. } | Body::Raw(_) => return None,
        };
        // Record a repair under the number of the packet that it repairs, as in TCP.
        let seq = media.repairs.unwrap_or(media.seq);
        // Leave out the frame of audio, whose `fragment.frame` is the index of the packet, and of parity, whose block
        // may consist of several frames.
        let has_frame = !matches!(media.stream, Stream::Audio | Stream::Parity);
        let frame = has_frame.then_some(media.fragment.frame);
        Some(Self::new(at, seq, size, frame, ecn, delay).of_stream(media.stream))
    }
}

row!(PacketRow { at, seq, delay, frame, size });
