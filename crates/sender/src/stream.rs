use crate::{FrameQueue, FrameRole, RepairSettings, RetransmissionCache};
use std::collections::VecDeque;
use steadycast_control::FrameEdge;
use steadycast_units::{Bytes, Rate, Span, Time};

/// The content of a stream, which decides when its packets are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamKind {
    /// Audio: sent immediately, before all other packets, and not paced. Its rate is part of the controlled rate.
    Audio,
    /// Video: sent at the pacing rate.
    #[default]
    Video,
    /// Parity (FEC) that the caller makes: sent at the pacing rate, before video.
    Parity,
}

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StreamSettings {
    /// The content of the stream.
    pub kind: StreamKind,
    /// The RTP SSRC, which identifies the stream in NACKs, key-frame requests and RFC 8888. Without RTP, any number.
    pub ssrc: u32,
    /// Retransmission on NACK; `None` disables it.
    pub retransmission: Option<RepairSettings>,
    /// The rate below which the stream is paused, for a layer of a simulcast. With zero the stream is never paused.
    pub least: Rate,
    /// The rate that is reserved for audio and parity, and the highest rate of video.
    pub most: Rate,
    /// Whether feedback covers the stream's packets. Browsers leave audio out of transport-wide feedback, unless the
    /// session description negotiates it.
    pub covered: bool,
}

impl StreamSettings {
    /// Creates the settings of a video stream without retransmission and without a maximum.
    pub const fn video(ssrc: u32) -> Self {
        let (kind, least, most) = (StreamKind::Video, Rate::ZERO, Rate::MAX);
        Self { kind, ssrc, retransmission: None, least, most, covered: true }
    }

    /// Creates the settings of an audio stream of this rate, headers included.
    pub const fn audio(ssrc: u32, rate: Rate) -> Self {
        Self { kind: StreamKind::Audio, most: rate, ..Self::video(ssrc) }
    }
}

/// The handle of a stream of a [`MediaSender`](crate::MediaSender).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// A packet that the caller has made and keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MediaPacket {
    /// The caller's identifier of the packet, which is returned with the packet.
    pub id: u64,
    /// The size on the wire, including IP and UDP headers.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
    /// The RTP sequence number. The packets of a stream have to be added in the order of these numbers.
    pub seq: u16,
}

/// Instructions to a stream's encoder for its next frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderTarget {
    /// The rate of the stream, as a rate of IP packets: the stream's part of the controller's target, after repair's
    /// part is subtracted.
    pub rate: Rate,
    /// Whether the next frame should not be encoded, because the backlog is too large. No other frame may then depend
    /// on it.
    pub skip: bool,
    /// Whether the next frame has to be a key frame.
    pub key_frame: bool,
}

/// A packet of the queue and of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) packet: MediaPacket,
    pub(crate) role: FrameRole,
    /// The time at which the packet's frame was added.
    pub(crate) ready: Time,
}

/// Minimum time between two key frames on request.
const MIN_KEY_FRAME_INTERVAL: Span = Span::millis(500);

/// A stream, with its queue and its cache.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) settings: StreamSettings,
    pub(crate) queue: FrameQueue<VecDeque<Queued>>,
    pub(crate) cache: Option<RetransmissionCache<MediaPacket>>,
    /// The role of the frame whose packets are being added; `None` if the frame was skipped.
    pub(crate) role: Option<FrameRole>,
    /// Whether the caller announces its frames.
    pub(crate) is_announced: bool,
    /// The extended sequence number of the newest packet that was sent.
    pub(crate) newest: Option<u64>,
    /// Whether a receiver requests a key frame.
    pub(crate) requested: bool,
    /// The time of the last key frame, or of the last request for one.
    last_key: Option<Time>,
    /// The bytes of the frame whose packets are being added.
    pub(crate) frame_size: Bytes,
}

impl StreamState {
    pub(crate) fn new(settings: StreamSettings, max_backlog: Span) -> Self {
        // Audio and parity have reserved rates, so their queues need no bound.
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

    /// Extends the sequence number of a packet that is sent.
    pub(crate) fn extend(&mut self, seq: u16) -> u64 {
        // The offset leaves room below the first number for packets that were numbered before it.
        let newest = self.newest.unwrap_or(1 << 16 | u64::from(seq));
        let extended = newest.saturating_add_signed(i64::from(seq.wrapping_sub(newest as u16) as i16));
        self.newest = Some(newest.max(extended));
        extended
    }

    /// Notes a key frame, which answers all requests before it.
    pub(crate) fn on_key_frame(&mut self, now: Time) {
        (self.requested, self.last_key) = (false, Some(now));
    }

    /// Returns true if the next frame has to be a key frame; `full` is true if the queue is full, so that the frame
    /// would not be sent soon.
    pub(crate) fn take_key_frame(&mut self, now: Time, full: bool) -> bool {
        // A key frame that joins a full queue would reach the receiver late.
        let wanted = (self.requested || self.queue.is_broken()) && !full;
        let due = wanted && self.last_key.is_none_or(|last| now.since(last) >= MIN_KEY_FRAME_INTERVAL);
        if due {
            self.requested = false;
            self.last_key = Some(now);
        }
        due
    }
}
