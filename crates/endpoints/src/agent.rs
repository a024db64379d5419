//! The endpoints of flows. They process packets and timers, and return the packets to send.

mod kernel;
mod plain;
mod tcp;
mod video;
mod work;

pub use kernel::{KernelSink, KernelSource, Observed};
pub use plain::{Beat, PlainSink, PlainSource};
pub use tcp::{SegmentCounts, TcpSink, TcpSource};
pub use video::{
    AudioArrival, AudioPlayout, DecisionRow, LimitShares, MakeReceiver, Player, Repaired, SourcePoint, VideoSink,
    VideoSource, ViewRow,
};
pub use work::Work;

use crate::intake::Intake;
use crate::{Activity, Arriving, Body, Store, StoredRows};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use steadycast_control::Check;
use steadycast_link::Ecn;
use steadycast_record::{Figures, Table};
use steadycast_units::{Bytes, Rate, Span, Time};
pub(crate) use tcp::TcpPoint;

/// Collects the packets that an agent sends.
pub struct Out<'a> {
    /// IP size, ECN field and content of each packet, in the order of sending.
    pub packets: &'a mut Vec<(Bytes, Ecn, Body)>,
}

impl Out<'_> {
    /// Sends a packet.
    pub fn send(&mut self, size: Bytes, ecn: Ecn, body: Body) {
        self.packets.push((size, ecn, body));
    }
}

/// What an agent contributes to the record of a run.
pub(crate) trait Recorded {
    fn figures(&self, _about: &FigureContext<'_>, _into: &mut Figures) {}

    /// Returns a digest of the agent's actions, and their number. The actions of a sink are the arrivals of packets.
    fn digest(&self) -> (u64, u64) {
        self.intake().map_or_else(Default::default, |intake| (intake.digest.value(), intake.packets()))
    }

    fn intake(&self) -> Option<&Intake> {
        None
    }

    /// Returns when the agent's measurement begins.
    fn joined(&self) -> Time {
        Time::ZERO
    }

    /// Returns the periods in which the source had data to send. Returns `None` if the agent does not record them.
    fn activity(&self) -> Option<&Activity> {
        None
    }

    /// Returns the periods in which the sink was a member of the session.
    fn stays(&self) -> &[(Time, Time)] {
        &[(Time::ZERO, Time::NEVER)]
    }

    /// Returns what a source sent in each step of the time series, and its rates.
    fn sent(&self) -> Vec<SentStep> {
        self.windows().iter().map(|step| SentStep { bytes: step.bytes, ..SentStep::default() }).collect()
    }

    /// Writes a row for each decision of a sender, or for each report of a receiver.
    fn decisions(&self, _origin: &RowOrigin<'_>, _into: &mut Table) {}

    /// Returns the state of TCP's window in each step of the time series.
    fn windows(&self) -> &[TcpPoint] {
        &[]
    }

    fn promises(&self) -> Vec<Check> {
        Vec::new()
    }

    /// Returns RTCP's share of the session bandwidth in each step of the time series.
    fn rtcp_shares(&self) -> &[f64] {
        &[]
    }
}

pub(crate) struct FigureContext<'a> {
    /// How long the agent's flow was active since the mean values began.
    pub(crate) active: Span,
    /// When the measurement of mean values begins.
    pub(crate) from: Time,
    /// Index of the first step that counts for mean values.
    pub(crate) first_step: usize,
    /// The source from which a video sink receives.
    pub(crate) source: Option<&'a VideoSource>,
    /// The other sources of the flow, if each receiver has its own source.
    pub(crate) others: Vec<&'a Agent>,
    /// Number of packets that were sent after the last arrival at a sink and should have arrived by now.
    pub(crate) unheard: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct SentStep {
    /// Number of IP bytes sent in the step.
    pub(crate) bytes: u64,
    /// Number of packets sent in the step whose losses count. It is 0 for TCP.
    pub(crate) packets: u64,
    /// The target rate and the pacing rate of a video at the end of the step.
    pub(crate) decided: Option<(Rate, Rate)>,
}

pub(crate) struct RowOrigin<'a> {
    pub(crate) flow: &'a str,
    pub(crate) node: &'a str,
    /// The names of the flow's receivers, by SSRC.
    pub(crate) receivers: &'a BTreeMap<u32, String>,
    /// When the run ends.
    pub(crate) until: Time,
}

/// One end of a flow.
pub enum Agent {
    /// A source that sends packets at a constant rate, either always or in periods.
    PlainSource(Box<PlainSource>),
    /// A sink for the packets of a [`PlainSource`].
    PlainSink(Box<PlainSink>),
    /// A TCP sender.
    TcpSource(Box<TcpSource>),
    /// A TCP receiver.
    TcpSink(Box<TcpSink>),
    /// A TCP sender in the kernel.
    KernelSource(Box<KernelSource>),
    /// A TCP receiver in the kernel.
    KernelSink(Box<KernelSink>),
    /// The sender of a video session, and its encoder.
    VideoSource(Box<VideoSource>),
    /// The receiver of a video session, which assembles frames.
    VideoSink(Box<VideoSink>),
}

impl Agent {
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

    pub(crate) fn video_source(&self) -> Option<&VideoSource> {
        if let Self::VideoSource(source) = self { Some(source) } else { None }
    }

    pub(crate) fn video_sink(&self) -> Option<&VideoSink> {
        if let Self::VideoSink(sink) = self { Some(sink) } else { None }
    }

    /// Processes a packet. For TCP, use [`TcpSource::take`] and [`TcpSink::take`] instead.
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
            // Ignore all other packets. Members of a multicast group also receive their own packets and the media of
            // other members.
            _ => {}
        }
    }

    /// Handles the expiry of the timer that [`Agent::wake`] returns.
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

    /// Returns when [`Agent::on_wake`] is due. Returns `Time::NEVER` if the agent only waits for packets.
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

    /// Starts the agent. Video sinks are the only sinks that need this call.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.start(now),
            Self::TcpSource(source) => source.start(now, out),
            Self::VideoSource(source) => source.start(now, out),
            Self::VideoSink(sink) => sink.join(now),
            Self::PlainSink(_) | Self::TcpSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => {}
        }
    }

    /// Stops the agent. It then sends no new data.
    pub fn stop(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.stop(now),
            Self::TcpSource(source) => source.stop(now),
            Self::VideoSource(source) => source.stop(now, out),
            Self::VideoSink(sink) => sink.leave(now, out),
            Self::PlainSink(_) | Self::TcpSink(_) | Self::KernelSource(_) | Self::KernelSink(_) => {}
        }
    }

    /// Returns whether the agent is about to leave its group, but has not left yet.
    pub fn leaving(&self) -> bool {
        matches!(self, Self::VideoSink(sink) if sink.leaving())
    }

    /// Tells the agent that the run ends. It then sends no new data.
    pub fn finish(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::VideoSource(source) => source.finish(now),
            // Do not stop a receiver, because the last packets have not arrived yet.
            Self::VideoSink(_) => {}
            other => other.stop(now, out),
        }
    }

    fn stored_rows(&mut self) -> Vec<&mut dyn StoredRows> {
        match self {
            Self::PlainSource(source) => vec![&mut source.samples],
            Self::PlainSink(sink) => vec![&mut sink.intake.samples],
            Self::TcpSource(source) => vec![&mut source.samples],
            Self::TcpSink(sink) => vec![&mut sink.intake.samples],
            Self::KernelSource(source) => vec![&mut source.samples],
            Self::KernelSink(sink) => vec![&mut sink.intake.samples],
            Self::VideoSource(source) => source.stored_rows(),
            Self::VideoSink(sink) => sink.stored_rows(),
        }
    }

    /// Sets the store in which older rows are kept.
    pub fn keep_in(&mut self, store: &Arc<dyn Store>) {
        self.stored_rows().into_iter().for_each(|rows| rows.keep_in(store));
    }

    /// Reads the rows back from the store after the run.
    ///
    /// # Errors
    /// Returns an error if the store returns one.
    pub fn recall(&mut self) -> io::Result<()> {
        self.stored_rows().into_iter().try_for_each(StoredRows::recall)
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self, now: Time) {
        match self {
            Self::PlainSource(source) => source.sample(),
            Self::PlainSink(sink) => sink.sample(),
            Self::TcpSource(source) => source.sample(now),
            Self::TcpSink(sink) => sink.sample(),
            Self::KernelSource(source) => source.sample(),
            // Do nothing, because the emulation samples the sink's `intake` itself.
            Self::KernelSink(_) => {}
            Self::VideoSource(source) => source.sample(now),
            Self::VideoSink(sink) => sink.sample(now),
        }
    }
}
