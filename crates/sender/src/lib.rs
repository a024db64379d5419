//! The parts of a video sender around its rate controller, sans-IO: a pacer with priorities, a bounded frame queue,
//! retransmission within the rate, and probes. Feedback is read in the format of the product's RTP stack.
//!
//! A product that has RTP packets and sockets, but no pacer, uses a [`MediaSender`]. The `MediaSender` sends all
//! streams of a session in this order: audio, retransmissions, parity, video. The caller keeps the packets' bytes, owns
//! the clock and the sockets, and sends the packets that [`Output::Send`] names. A product that has its own pacer only
//! needs [`Remote`](steadycast_remote::Remote).
//!
//! ```
#![doc = include_str!("../examples/call.rs")]
//! ```
//!
//! # Stability
//! [`MediaSender`], [`MediaSettings`], [`StreamSettings`], [`MediaPacket`], [`Departure`], [`Output`],
//! [`EncoderTarget`], [`PacketName`] and their fields follow semantic versioning. All else is shared with
//! `steadycast-session` and may change in any version.

pub mod feedback;
mod frame_queue;
mod media_sender;
mod pace;
mod probe;
mod repair;
mod repair_share;
mod retransmission_cache;
mod stream;

pub use feedback::PacketName;
pub use frame_queue::{Backlog, FrameQueue, FrameRole, QueuedFrame};
pub use media_sender::{Departure, MediaSender, MediaSettings, Output, RtcpCounts};
pub use pace::Pace;
pub use probe::{Prober, Probes};
pub use repair::{DEFAULT_USEFUL_TIME, RepairBudget, RepairSettings, Repairs};
pub use repair_share::RepairShare;
pub use retransmission_cache::{CachedPacket, NackContext, Retransmission, RetransmissionCache};
pub use stream::{EncoderTarget, MediaPacket, StreamId, StreamKind, StreamSettings};
