//! An RTP/RTCP session around a pair of controller halves (RFC 3550), sans-IO.
//!
//! A session is driven by three verbs: hand it what happened (a frame, a datagram), then `poll` it until it says
//! [`Output::Wait`], then come back at that time or when something else happens. Its driver owns the clock and the way
//! of the datagrams: the simulator, an emulated network or a socket.
//!
//! The way of a packet, forward only:
//!
//! ```text
//! Sender::push_frame ─▶ Pacer ─▶ header, notice ─▶ Output::Media ═▶ the world ═▶ Receiver::on_media ─▶ receiver half
//! sender half ◀─ Sender::on_rtcp ◀═ the world ◀═ Output::Rtcp ◀─ report block, body ◀─ Receiver::poll ◀┘
//! ```

mod batchable;
mod breaker;
mod ecn;
mod feedback;
mod feedback_filter;
mod gate;
mod media;
mod pacer;
mod participant;
mod peers;
mod probe;
mod receiver;
mod receiver_proof;
mod repair;
mod sender;
mod share;
mod simulcast;
mod standard;
mod unused;

pub use batchable::{BatchKey, Batchable};
pub use breaker::CircuitBreaker;
pub use ecn::{EcnCounts, EcnPath};
pub use feedback::TRANSPORT_NUMBER_ID;
pub use feedback_filter::{FeedbackDefence, OperatorControls};
pub use media::{HeaderIds, Media, SendTime};
pub use pacer::Backlog;
pub use participant::{Identity, RtcpSettings};
pub use probe::Probes;
pub use receiver::{MediaPacket, Received, Receiver, Waiting};
pub use repair::{PARITY_MORE, ParitySettings, Protected, Protection, Recovered, RepairSettings, Repairs, Requests};
pub use sender::{CAP_BURST, FeedbackCounts, Sender, SenderSettings};
pub use simulcast::Siblings;
pub use standard::StandardReports;
pub use steadycast_control::FeedbackFormat;
pub use steadycast_media::{Emit, Fragment, Frame, FrameKind, Part};
pub use steadycast_remote::Replayed;
pub use steadycast_rtcp::{Origin, Profile};
pub use unused::{UnusedCounts, UnusedReason};

use steadycast_control::Wake;

/// What a session asks of its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send this RTP packet now, in the stream that it names.
    Media(Media),
    /// Send this RTCP compound now; the bytes are without IP and UDP headers.
    Rtcp(Vec<u8>),
    /// Do nothing until this time, or until something happens. `None`: until something happens.
    Wait(Option<Wake>),
}
