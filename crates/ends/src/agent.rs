//! The ends of flows. An agent is told what arrived or that its time has come, and says what leaves.

mod kernel;
mod plain;
mod tcp;
mod video;
mod work;

pub use kernel::{KernelSink, KernelSource, Observed};
pub use plain::{Beat, PlainSink, PlainSource};
pub use tcp::{SegmentCounts, TcpSink, TcpSource};
pub use video::{
    DecisionRow, LimitShares, MakeReceiver, Player, Repaired, SourcePoint, VideoSink, VideoSource, ViewRow,
};
pub use work::Work;

use crate::intake::Intake;
use crate::{Activity, Arriving, Body, Kept, Store};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use steadycast_control::Check;
use steadycast_link::Ecn;
use steadycast_record::{Figures, Table};
use steadycast_units::{Bytes, Rate, Span, Time};
pub(crate) use tcp::TcpPoint;

/// What an agent lets go.
pub struct Out<'a> {
    /// Size, ECN field and content of each, in the order in which they leave.
    pub packets: &'a mut Vec<(Bytes, Ecn, Body)>,
}

impl Out<'_> {
    /// Lets one go.
    pub fn send(&mut self, size: Bytes, ecn: Ecn, body: Body) {
        self.packets.push((size, ecn, body));
    }
}

/// What an agent says for the record. A source fills its flow's figures, a sink those of its receiver.
pub(crate) trait Recorded {
    /// Writes its own figures.
    fn figures(&self, _about: &FigureContext<'_>, _into: &mut Figures) {}

    /// A digest of all that it did, and a number to go with it; of a sink, of what arrived.
    fn digest(&self) -> (u64, u64) {
        self.intake().map_or_else(Default::default, |intake| (intake.digest.value(), intake.packets()))
    }

    /// What arrived, at a sink.
    fn intake(&self) -> Option<&Intake> {
        None
    }

    /// When it was in its session for the first time: it is measured from then on.
    fn joined(&self) -> Time {
        Time::ZERO
    }

    /// When a source that may pause had something to send.
    fn activity(&self) -> Option<&Activity> {
        None
    }

    /// What a source sent, step by step.
    fn sent(&self) -> Vec<SentStep> {
        self.windows().iter().map(|step| SentStep::plain(step.bytes)).collect()
    }

    /// Writes a row for each decision, or for each report about one.
    fn decisions(&self, _origin: &RowOrigin<'_>, _into: &mut Table) {}

    /// TCP's window, step by step.
    fn windows(&self) -> &[TcpPoint] {
        &[]
    }

    /// What its controller's half has kept an eye on.
    fn promises(&self) -> Vec<Check> {
        Vec::new()
    }

    /// RTCP's share of the session bandwidth, step by step.
    fn rtcp_shares(&self) -> &[f64] {
        &[]
    }
}

/// What an agent has to know for its figures.
pub(crate) struct FigureContext<'a> {
    /// How long its flow was active.
    pub(crate) active: Span,
    /// From when on means are taken, …
    pub(crate) from: Time,
    /// … and the first step of the series that counts.
    pub(crate) first_step: usize,
    /// The other end, of a video's sink.
    pub(crate) source: Option<&'a VideoSource>,
    /// The flow's other sources, of a source: each receiver may have a session of its own.
    pub(crate) others: Vec<&'a Agent>,
}

/// One step of a source's series.
#[derive(Clone, Copy)]
pub(crate) struct SentStep {
    /// IP bytes.
    pub(crate) bytes: u64,
    /// Target and pacing rate at its end, of a video.
    pub(crate) decided: Option<(Rate, Rate)>,
}

impl SentStep {
    fn plain(bytes: u64) -> Self {
        Self { bytes, decided: None }
    }
}

/// Where an agent is, for the rows that it writes.
pub(crate) struct RowOrigin<'a> {
    pub(crate) flow: &'a str,
    pub(crate) node: &'a str,
    /// The flow's receivers by what they go by in its session.
    pub(crate) receivers: &'a BTreeMap<u32, String>,
    /// The run's end.
    pub(crate) until: Time,
}

/// One end of a flow.
pub enum Agent {
    /// Sends at a constant rate, always or in some periods.
    PlainSource(Box<PlainSource>),
    /// Where that goes.
    PlainSink(Box<PlainSink>),
    /// TCP's sending end.
    TcpSource(Box<TcpSource>),
    /// TCP's receiving end.
    TcpSink(Box<TcpSink>),
    /// TCP's sending end in a kernel.
    KernelSource(Box<KernelSource>),
    /// TCP's receiving end in a kernel.
    KernelSink(Box<KernelSink>),
    /// A video session's sender, with an encoder before it.
    VideoSource(Box<VideoSource>),
    /// A video session's receiver, with an assembly behind it.
    VideoSink(Box<VideoSink>),
}

impl Agent {
    /// It, as what speaks for the record.
    pub(crate) fn recorded(&self) -> &dyn Recorded {
        match self {
            Self::PlainSource(source) => &**source,
            Self::PlainSink(sink) => &**sink,
            Self::TcpSource(source) => &**source,
            Self::TcpSink(sink) => &**sink,
            Self::KernelSource(source) => &**source,
            Self::KernelSink(sink) => &**sink,
            Self::VideoSource(source) => &**source,
            Self::VideoSink(sink) => &**sink,
        }
    }

    /// It, if it is a video's source.
    pub(crate) fn video_source(&self) -> Option<&VideoSource> {
        if let Self::VideoSource(source) = self { Some(source) } else { None }
    }

    /// It, if it is a video's receiver.
    pub(crate) fn video_sink(&self) -> Option<&VideoSink> {
        if let Self::VideoSink(sink) = self { Some(sink) } else { None }
    }

    /// A packet has arrived; what it can't make sense of, an agent ignores. TCP's ends are told by who moves packets:
    /// see [`TcpSource::take`] and [`TcpSink::take`].
    pub fn on_packet(&mut self, now: Time, packet: &Arriving<'_>, out: &mut Out<'_>) {
        match (self, packet.body) {
            (Self::PlainSink(sink), Body::Plain(n)) => sink.on_packet(now, *n, packet.size, packet.sent),
            (Self::VideoSink(sink), Body::Rtp(media)) => {
                sink.on_media(now, packet, media, out);
            }
            (Self::VideoSink(sink), Body::Parity(parity)) => {
                sink.on_parity(now, packet, &parity.0, &parity.1, out);
            }
            (Self::VideoSink(sink), Body::Rtcp { bytes, parsed }) => {
                sink.on_rtcp(now, packet.from, parsed, bytes.len(), out)
            }
            (Self::VideoSource(source), Body::Rtcp { bytes, .. }) => source.on_rtcp(now, packet.from, bytes, out),
            // A group's source hears nothing of its own, and members no media of each other.
            _ => {}
        }
    }

    /// The time of [`Agent::wake`] has come.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.on_wake(now, out),
            Self::TcpSource(source) => source.on_wake(now, out),
            Self::TcpSink(sink) => sink.on_wake(now, out),
            Self::VideoSource(source) => source.on_wake(now, out),
            Self::VideoSink(sink) => sink.on_wake(now, out),
            Self::PlainSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => {}
        }
    }

    /// When it next wants [`Agent::on_wake`]; `Time::NEVER` when it waits for a packet.
    pub fn wake(&self) -> Time {
        match self {
            Self::PlainSource(source) => source.wake(),
            Self::TcpSource(source) => source.wake(),
            Self::TcpSink(sink) => sink.wake(),
            Self::VideoSource(source) => source.wake(),
            Self::VideoSink(sink) => sink.wake(),
            Self::PlainSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => Time::NEVER,
        }
    }

    /// Starts what has a start.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.start(now),
            Self::TcpSource(source) => source.start(now, out),
            Self::VideoSource(source) => source.start(now, out),
            Self::VideoSink(sink) => sink.join(now),
            Self::PlainSink(_) | Self::TcpSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => {}
        }
    }

    /// Stops what can be stopped: it sends nothing more of its own accord.
    pub fn stop(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.stop(now),
            Self::TcpSource(source) => source.stop(now),
            Self::VideoSource(source) => source.stop(now, out),
            Self::VideoSink(sink) => sink.leave(now, out),
            Self::PlainSink(_) | Self::TcpSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => {}
        }
    }

    /// Whether it has asked to leave its group and not left it yet.
    pub fn leaving(&self) -> bool {
        matches!(self, Self::VideoSink(sink) if sink.leaving())
    }

    /// The run is over: nothing new begins.
    pub fn finish(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::VideoSource(source) => source.finish(now),
            Self::VideoSink(_) => {}
            other => other.stop(now, out),
        }
    }

    /// What it keeps for the record.
    fn kept(&mut self) -> Vec<&mut dyn Kept> {
        match self {
            Self::PlainSource(source) => vec![&mut source.samples],
            Self::PlainSink(sink) => vec![&mut sink.intake.samples],
            Self::TcpSource(source) => vec![&mut source.samples],
            Self::TcpSink(sink) => vec![&mut sink.intake.samples],
            Self::KernelSource(source) => vec![&mut source.samples],
            Self::KernelSink(sink) => vec![&mut sink.intake.samples],
            Self::VideoSource(source) => source.kept().into(),
            Self::VideoSink(sink) => sink.kept().into(),
        }
    }

    /// The older part of what it keeps for the record is to go there.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.kept().into_iter().for_each(|rows| rows.keep_in(store));
    }

    /// The run is over: fetches what it keeps for the record.
    ///
    /// # Errors
    /// The store's.
    pub fn recall(&mut self) -> io::Result<()> {
        self.kept().into_iter().try_for_each(Kept::recall)
    }

    /// Ends one step of the series.
    pub fn sample(&mut self, now: Time) {
        match self {
            Self::PlainSource(source) => source.sample(),
            Self::PlainSink(sink) => sink.sample(),
            Self::TcpSource(source) => source.sample(now),
            Self::TcpSink(sink) => sink.sample(),
            Self::KernelSource(source) => source.sample(),
            // Whoever sees what reaches its host ends its steps.
            Self::KernelSink(_) => {}
            Self::VideoSource(source) => source.sample(now),
            Self::VideoSink(sink) => sink.sample(now),
        }
    }
}
