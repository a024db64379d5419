//! Coded audio: the times and sizes of its packets.

use steadycast_units::{Bytes, Rate, Span};

/// The duration of audio in one packet: the default frame of Opus (RFC 7587, section 4.2).
pub const AUDIO_PACKET_TIME: Span = Span::millis(20);

/// A coded audio packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedAudio {
    /// The packet's number, from 0.
    pub index: u32,
    /// The sampling time of the packet's first sample, from the start of the flow.
    pub at: Span,
    /// The packet's length in bytes.
    pub len: u16,
    /// Whether the packet is the first one after a silence.
    pub begins: bool,
}

/// A source of coded audio over time.
pub trait AudioFeed: Send {
    /// Returns when the next packet is ready, from the start of the flow; [`Span::MAX`] if it is not known yet.
    fn due(&self) -> Span;

    /// Returns the next packet once it is due; `None` if it is delayed.
    fn next(&mut self) -> Option<CodedAudio>;
}

/// Audio of a constant rate without content, with one packet in each [`AUDIO_PACKET_TIME`].
#[derive(Clone, Copy, Debug)]
pub struct ConstantAudio {
    len: u16,
    next: u32,
}

impl ConstantAudio {
    /// Creates audio of this codec rate, without packet headers.
    pub fn new(rate: Rate) -> Self {
        Self { len: packet_len(rate), next: 0 }
    }
}

/// Returns the mean length of the packets of audio at this codec rate in bytes.
pub fn packet_len(rate: Rate) -> u16 {
    u16::try_from(rate.over(AUDIO_PACKET_TIME).get()).unwrap_or(u16::MAX).max(1)
}

/// Returns the rate of IP packets of audio at this codec rate, with headers of this size.
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
