//! The ends of flows. An agent is told what arrived or that its time has come, and says what leaves.

mod plain;
mod tcp;
mod video;

pub(crate) use plain::{Beat, PlainSink, PlainSource};
pub(crate) use tcp::{TcpSink, TcpSource};
pub(crate) use video::{MakeReceiver, SourcePoint, VideoSink, VideoSource};

use crate::packet::{Body, Packet, To};
use std::collections::VecDeque;
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Chance, Span, Time};

/// What an agent lets go.
pub(crate) struct Out<'a> {
    pub(crate) packets: &'a mut Vec<(Bytes, Ecn, Body)>,
}

impl Out<'_> {
    pub(crate) fn send(&mut self, size: Bytes, ecn: Ecn, body: Body) {
        self.packets.push((size, ecn, body));
    }
}

pub(crate) enum Agent {
    PlainSource(PlainSource),
    PlainSink(PlainSink),
    TcpSource(Box<TcpSource>),
    TcpSink(Box<TcpSink>),
    VideoSource(Box<VideoSource>),
    VideoSink(Box<VideoSink>),
}

impl Agent {
    pub(crate) fn on_packet(&mut self, now: Time, packet: &Packet, ecn: Ecn, out: &mut Out<'_>) {
        match (self, &packet.body) {
            (Self::PlainSink(sink), Body::Plain(n)) => sink.on_packet(now, packet, *n),
            (Self::TcpSink(sink), Body::Tcp(transfer, segment)) => {
                sink.on_segment(now, packet, *transfer, segment, ecn, out);
            }
            (Self::TcpSource(source), Body::TcpAck(transfer, ack)) => source.on_ack(now, *transfer, ack, out),
            (Self::VideoSink(sink), Body::Rtp(media)) => sink.on_media(now, packet, media, ecn, out),
            (Self::VideoSink(sink), Body::Rtcp { bytes, parsed }) => {
                sink.on_rtcp(now, packet.from, parsed, bytes.len(), out)
            }
            (Self::VideoSource(source), Body::Rtcp { bytes, .. }) => source.on_rtcp(now, packet.from, bytes, out),
            // A group's source hears nothing of its own, and members no media of each other.
            _ => {}
        }
    }

    pub(crate) fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.on_wake(now, out),
            Self::TcpSource(source) => source.on_wake(now, out),
            Self::TcpSink(sink) => sink.on_wake(now, out),
            Self::VideoSource(source) => source.on_wake(now, out),
            Self::VideoSink(sink) => sink.on_wake(now, out),
            Self::PlainSink(_) => {}
        }
    }

    pub(crate) fn wake(&self) -> Time {
        match self {
            Self::PlainSource(source) => source.wake(),
            Self::TcpSource(source) => source.wake(),
            Self::TcpSink(sink) => sink.wake(),
            Self::VideoSource(source) => source.wake(),
            Self::VideoSink(sink) => sink.wake(),
            Self::PlainSink(_) => Time::NEVER,
        }
    }

    /// Starts what has a start.
    pub(crate) fn start(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.start(now),
            Self::TcpSource(source) => source.start(now, out),
            Self::VideoSource(source) => source.start(now, out),
            Self::VideoSink(sink) => sink.join(now),
            Self::PlainSink(_) | Self::TcpSink(_) => {}
        }
    }

    /// Stops what can be stopped: it sends nothing more of its own accord.
    pub(crate) fn stop(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::PlainSource(source) => source.stop(),
            Self::TcpSource(source) => source.stop(now),
            Self::VideoSource(source) => source.stop(now, out),
            Self::VideoSink(sink) => sink.leave(now, out),
            Self::PlainSink(_) | Self::TcpSink(_) => {}
        }
    }

    /// Whether it has asked to leave its group and not left it yet.
    pub(crate) fn leaving(&self) -> bool {
        matches!(self, Self::VideoSink(sink) if sink.leaving())
    }

    /// The run is over: nothing new begins.
    pub(crate) fn finish(&mut self, now: Time, out: &mut Out<'_>) {
        match self {
            Self::VideoSource(source) => source.finish(now),
            Self::VideoSink(_) => {}
            other => other.stop(now, out),
        }
    }

    /// Ends one step of the series.
    pub(crate) fn sample(&mut self, now: Time) {
        match self {
            Self::PlainSource(source) => source.sample(),
            Self::PlainSink(sink) => sink.sample(),
            Self::TcpSource(source) => source.sample(now),
            Self::TcpSink(sink) => sink.sample(),
            Self::VideoSource(source) => source.sample(now),
            Self::VideoSink(sink) => sink.sample(),
        }
    }
}

/// Where an agent sits: its node, where its packets go, and the jitter with which they leave.
pub(crate) struct Port {
    pub(crate) node: u32,
    pub(crate) to: To,
    jitter: Span,
    chance: Chance,
    held: VecDeque<(Time, Packet)>,
}

impl Port {
    pub(crate) fn new(node: u32, to: To, jitter: Span, chance: Chance) -> Self {
        Self { node, to, jitter, chance, held: VecDeque::new() }
    }

    pub(crate) const fn jitters(&self) -> bool {
        !self.jitter.is_zero()
    }

    /// Holds a packet back for a time uniform in 0 … jitter. What comes meanwhile leaves with it, so that bursts stay bursts:
    /// the jitter is that of a busy host, and ns-2's (`overhead_`).
    pub(crate) fn hold(&mut self, now: Time, packet: Packet) {
        let until = match self.held.back() {
            Some((until, _)) => *until,
            None => now + self.chance.span_between(Span::ZERO, self.jitter),
        };
        self.held.push_back((until, packet));
    }

    pub(crate) fn release(&mut self, now: Time) -> Option<Packet> {
        self.held.pop_front_if(|(t, _)| *t <= now).map(|(_, packet)| packet)
    }

    pub(crate) fn wake(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |(t, _)| *t)
    }
}
