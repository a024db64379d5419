//! An RTP/RTCP session (RFC 3550) that drives the sender part and the receiver part of a rate controller, without I/O.
//!
//! A driver owns the clock and the transport. It passes frames and datagrams to a session. It then calls `poll` until
//! the result is [`Output::Wait`], and calls `poll` again at that time.
//!
//! ```text
//! Sender::push_frame ─▶ FrameQueue ─▶ header, notice ─▶ Output::Media ═▶ path ═▶ Receiver::on_media ─▶ receiver part
//! sender part ◀─ Sender::on_rtcp ◀═ the path ◀═ Output::Rtcp ◀─ report block, body ◀─ Receiver::poll ◀┘
//! ```

mod audio;
mod batchable;
mod breaker;
mod ecn;
mod feedback;
mod feedback_filter;
mod media;
mod participant;
mod peers;
mod receiver;
mod receiver_proof;
mod repair;
mod report_limiter;
mod sender;
mod simulcast;
mod standard;
mod unused;

pub use audio::{AUDIO_CLOCK_RATE, AudioPacket, AudioSettings};
pub use batchable::{BatchKey, Batchable};
pub use breaker::CircuitBreaker;
pub use ecn::{EcnCounts, EcnPath};
pub use feedback::{TRANSPORT_NUMBER_ID, TransportFeedbackRecorder};
pub use feedback_filter::{FeedbackDefence, OperatorControls};
pub use media::{HeaderIds, Media, SendTime};
pub use participant::{Identity, RtcpSettings};
pub use receiver::{MediaPacket, Received, Receiver, Waiting};
pub use repair::{PARITY_MORE, ParitySettings, Protected, Protection, Recovered, Requests};
pub use sender::{CAP_BURST, FeedbackCounts, Sender, SenderSettings};
pub use simulcast::Siblings;
pub use standard::StandardReports;
pub use steadycast_control::FeedbackFormat;
pub use steadycast_media::{Emit, Fragment, Frame, FrameKind, Part};
pub use steadycast_remote::Replayed;
pub use steadycast_rtcp::{Origin, Profile};
pub use steadycast_sender::{Backlog, Probes, RepairSettings, Repairs};
pub use unused::{UnusedCounts, UnusedReason};

use steadycast_control::Wake;

/// What the driver of a session has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send this RTP packet now.
    Media(Media),
    /// Send this RTCP compound now. It does not contain IP and UDP headers.
    Rtcp(Vec<u8>),
    /// Wait until this time or until the next event, whichever comes first. With `None`, wait until the next event.
    Wait(Option<Wake>),
}
