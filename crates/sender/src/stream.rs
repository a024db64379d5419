use crate::{FrameQueue, FrameRole, RepairSettings, RetransmissionCache};
use std::collections::VecDeque;
use steadycast_control::FrameEdge;
use steadycast_units::{Bytes, Rate, Span, Time};

/// The content of a stream, which decides when its packets are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamKind {
    /// Audio, sent immediately and not paced, but a part of the controlled rate.
    Audio,
    /// Video, at the pacing rate.
    #[default]
    Video,
    /// Parity (FEC) from the caller, at the pacing rate and before video.
    Parity,
}

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StreamSettings {
    /// The content.
    pub kind: StreamKind,
    /// The RTP SSRC in NACKs, key-frame requests and RFC 8888; without RTP, any number.
    pub ssrc: u32,
    /// Retransmission on NACK; `None` disables it.
    pub retransmission: Option<RepairSettings>,
    /// The rate below which a simulcast layer is paused; zero for never.
    pub least: Rate,
    /// Audio's and parity's reserved rate, or video's maximum.
    pub most: Rate,
    /// Whether feedback covers the packets. Browsers leave audio out unless it is negotiated.
    pub covered: bool,
}

impl StreamSettings {
    /// Creates a video stream without retransmissions and without a maximum rate.
    pub const fn video(ssrc: u32) -> Self {
        let (kind, least, most) = (StreamKind::Video, Rate::ZERO, Rate::MAX);
        Self { kind, ssrc, retransmission: None, least, most, covered: true }
    }

    /// Creates an audio stream. `rate` includes the headers.
    pub const fn audio(ssrc: u32, rate: Rate) -> Self {
        Self { kind: StreamKind::Audio, most: rate, ..Self::video(ssrc) }
    }
}

/// A stream of a [`MediaSender`](crate::MediaSender).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// A packet that the caller keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MediaPacket {
    /// The caller's identifier, which [`Departure`](crate::Departure) returns.
    pub id: u64,
    /// The IP size, with IP and UDP headers.
    pub size: Bytes,
    /// The position in the frame.
    pub edge: FrameEdge,
    /// The RTP sequence number. Packets are added in its order.
    pub seq: u16,
}

/// What an encoder has to do with the next frame of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderTarget {
    /// The stream's rate, as a rate of IP packets.
    pub rate: Rate,
    /// Whether to skip the next frame, because of the backlog. No other frame may depend on it.
    pub skip: bool,
    /// Whether the next frame has to be a key frame.
    pub key_frame: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) packet: MediaPacket,
    pub(crate) role: FrameRole,
    /// When the frame was added.
    pub(crate) ready: Time,
}

const MIN_KEY_FRAME_INTERVAL: Span = Span::millis(500);

#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) settings: StreamSettings,
    pub(crate) queue: FrameQueue<VecDeque<Queued>>,
    pub(crate) cache: Option<RetransmissionCache<MediaPacket>>,
    /// The role of the frame that is being added; `None` if it is skipped.
    pub(crate) role: Option<FrameRole>,
    pub(crate) is_announced: bool,
    /// The newest sent packet's extended sequence number.
    pub(crate) newest: Option<u64>,
    pub(crate) requested: bool,
    /// The last key frame, or the last request for one.
    last_key: Option<Time>,
    /// The bytes of the frame that is being added.
    pub(crate) frame_size: Bytes,
}

impl StreamState {
    pub(crate) fn new(settings: StreamSettings, max_backlog: Span) -> Self {
        // Audio and parity have reserved rates.
        let bound = (settings.kind == StreamKind::Video).then_some(max_backlog);
        Self {
            settings,
            queue: FrameQueue::new(bound),
            cache: settings.retransmission.map(RetransmissionCache::new),
            role: Some(FrameRole::Reference),
            is_announced: false,
            newest: None,
            requested: false,
            last_key: None,
            frame_size: Bytes::ZERO,
        }
    }

    pub(crate) fn extend(&mut self, seq: u16) -> u64 {
        // The offset leaves room for packets before the first one.
        let newest = self.newest.unwrap_or(1 << 16 | u64::from(seq));
        let extended = newest.saturating_add_signed(i64::from(seq.wrapping_sub(newest as u16) as i16));
        self.newest = Some(newest.max(extended));
        extended
    }

    /// A key frame answers all earlier requests.
    pub(crate) fn on_key_frame(&mut self, now: Time) {
        (self.requested, self.last_key) = (false, Some(now));
    }

    /// Returns whether the next frame has to be a key frame. With a `full` queue it would be late.
    pub(crate) fn take_key_frame(&mut self, now: Time, full: bool) -> bool {
        let wanted = (self.requested || self.queue.is_broken()) && !full;
        let due = wanted && self.last_key.is_none_or(|last| now.since(last) >= MIN_KEY_FRAME_INTERVAL);
        if due {
            self.requested = false;
            self.last_key = Some(now);
        }
        due
    }
}
