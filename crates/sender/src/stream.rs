use crate::{FrameQueue, FrameRole, RepairSettings, RetransmissionCache};
use std::collections::VecDeque;
use steadycast_control::FrameEdge;
use steadycast_remote::{ParamError, ParamErrorKind};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The content of a stream. It decides when the stream's packets are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamKind {
    /// Audio. It is not paced but sent immediately. Its rate is part of the controlled rate.
    Audio,
    /// Video, which is sent at the pacing rate.
    #[default]
    Video,
    /// Parity packets (FEC) from the caller. They are sent at the pacing rate, before video.
    Parity,
}

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StreamSettings {
    /// The kind of content.
    pub kind: StreamKind,
    /// The SSRC of the stream in NACKs, key-frame requests and RFC 8888's feedback. It can be any number if RTP is not
    /// used.
    pub ssrc: u32,
    /// Settings for retransmission on NACK. With `None`, packets are not retransmitted.
    pub retransmission: Option<RepairSettings>,
    /// The rate below which a simulcast layer is paused. If it is zero, the layer is never paused.
    pub least: Rate,
    /// For audio and parity, the rate that is reserved for the stream. For video, the stream's maximum rate.
    pub most: Rate,
    /// Whether feedback includes the stream's packets. Browsers leave audio packets out unless this is negotiated.
    pub covered: bool,
}

impl StreamSettings {
    /// Creates a video stream without retransmissions and without a maximum rate.
    pub const fn video(ssrc: u32) -> Self {
        let (kind, least, most) = (StreamKind::Video, Rate::ZERO, Rate::MAX);
        Self { kind, ssrc, retransmission: None, least, most, covered: true }
    }

    /// Creates an audio stream. `rate` includes packet headers.
    pub const fn audio(ssrc: u32, rate: Rate) -> Self {
        Self { kind: StreamKind::Audio, most: rate, ..Self::video(ssrc) }
    }

    /// Creates a stream of parity packets. `rate` includes packet headers.
    pub const fn parity(ssrc: u32, rate: Rate) -> Self {
        Self { kind: StreamKind::Parity, ..Self::audio(ssrc, rate) }
    }

    /// Returns an error if the stream could never be sent below the rate `cap`.
    pub(crate) fn check(&self, cap: Rate) -> Result<(), ParamError> {
        let Self { kind, least, most, .. } = *self;
        let wrong = |name: &str, problem: String, remedy: &str| {
            Err(ParamError::new(ParamErrorKind::InvalidValue, name, problem, remedy))
        };
        match kind {
            StreamKind::Audio | StreamKind::Parity if most > cap => {
                wrong("rate", format!("{most} is above the cap, {cap}"), "give a rate up to the cap")
            }
            StreamKind::Video if most == Rate::ZERO => {
                wrong("most", "a maximum of 0 pauses the stream for ever".into(), "give a rate above 0, or no maximum")
            }
            StreamKind::Video if least > most => wrong(
                "least",
                format!("{least} is above the stream's maximum, {most}"),
                "give a rate up to the maximum",
            ),
            StreamKind::Video if least > cap => {
                wrong("least", format!("{least} is above the cap, {cap}"), "give a rate up to the cap")
            }
            _ => Ok(()),
        }
    }
}

/// A stream of a [`MediaSender`](crate::MediaSender), by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// A packet whose bytes the caller keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MediaPacket {
    /// The caller's identifier of the packet, which [`Departure`](crate::Departure) returns.
    pub id: u64,
    /// The packet size, including IP and UDP headers.
    pub size: Bytes,
    /// The packet's position in its frame.
    pub edge: FrameEdge,
    /// The RTP sequence number. Packets are added in the order of their sequence numbers.
    pub seq: u16,
}

/// The target for the next frame of a stream's encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderTarget {
    /// The rate of the stream's IP packets.
    pub rate: Rate,
    /// Whether to skip the next frame because of the backlog. The encoder must not let other frames depend on it.
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
    /// The role of the frame that is being added, or `None` if the frame is skipped.
    pub(crate) role: Option<FrameRole>,
    pub(crate) is_announced: bool,
    /// The extended sequence number of the newest sent packet.
    pub(crate) newest: Option<u64>,
    pub(crate) requested: bool,
    /// The time of the last key frame, or of the last key frame that was requested from the encoder.
    last_key: Option<Time>,
    /// The bytes of the frame that is being added.
    pub(crate) frame_size: Bytes,
}

impl StreamState {
    pub(crate) fn new(settings: StreamSettings, max_backlog: Span) -> Self {
        // Limit only the queue of video, because audio and parity have reserved rates.
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
        // Start one cycle above zero, so that packets from before the first one also have a number.
        let newest = self.newest.unwrap_or(1 << 16 | u64::from(seq));
        let extended = newest.saturating_add_signed(i64::from(seq.wrapping_sub(newest as u16) as i16));
        self.newest = Some(newest.max(extended));
        extended
    }

    /// Clears the request for a key frame, because this key frame answers all earlier requests.
    pub(crate) fn on_key_frame(&mut self, now: Time) {
        (self.requested, self.last_key) = (false, Some(now));
    }

    /// Returns whether the next frame has to be a key frame. Returns false if the queue is `full`, because the key
    /// frame would be late.
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
