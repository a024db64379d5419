//! Coded audio: the times and sizes of its packets.

use steadycast_units::{Bytes, Rate, Span};

/// The duration of the audio in one packet. This is Opus's default frame duration (RFC 7587, section 4.2).
pub const AUDIO_PACKET_TIME: Span = Span::millis(20);

/// A coded audio packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedAudio {
    /// The packet's number, from 0.
    pub index: u32,
    /// When the packet's first sample was recorded, as the time since the start of the flow.
    pub at: Span,
    /// The packet's length in bytes.
    pub len: u16,
    /// Whether the packet is the first packet after a silence.
    pub begins: bool,
}

/// A source of coded audio over time.
pub trait AudioFeed: Send {
    /// Returns when the next packet is ready, as the time since the start of the flow. Returns [`Span::MAX`] if the
    /// time is not known yet.
    fn due(&self) -> Span;

    /// Returns the next packet once it is due. Returns `None` if the packet is delayed.
    fn next(&mut self) -> Option<CodedAudio>;
}

/// Audio of constant rate, without content. There is one packet per [`AUDIO_PACKET_TIME`].
#[derive(Clone, Copy, Debug)]
pub struct ConstantAudio {
    len: u16,
    next: u32,
}

impl ConstantAudio {
    /// Creates audio. `rate` is the codec's rate, without packet headers.
    pub fn new(rate: Rate) -> Self {
        Self { len: packet_len(rate), next: 0 }
    }
}

/// Returns the mean payload length of an audio packet in bytes. `rate` is the codec's rate.
pub fn packet_len(rate: Rate) -> u16 {
    u16::try_from(rate.over(AUDIO_PACKET_TIME).get()).unwrap_or(u16::MAX).max(1)
}

/// Returns the rate of the IP packets that carry audio. `rate` is the codec's rate, and `headers` is the size of the
/// headers of one packet.
pub fn packet_rate(rate: Rate, headers: Bytes) -> Rate {
    (Bytes::new(packet_len(rate).into()) + headers).per(AUDIO_PACKET_TIME)
}

impl AudioFeed for ConstantAudio {
    fn due(&self) -> Span {
        AUDIO_PACKET_TIME * u64::from(self.next)
    }

    fn next(&mut self) -> Option<CodedAudio> {
        let index = self.next;
        let at = self.due();
        self.next += 1;
        Some(CodedAudio { index, at, len: self.len, begins: index == 0 })
    }
}
