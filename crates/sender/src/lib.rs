//! The parts of a video sender that surround its rate controller, without I/O: pacing, a frame queue, retransmission
//! and bandwidth probes.
//!
//! A product that has RTP packets and sockets but no pacer uses [`MediaSender`], which sends audio first, then
//! retransmissions, parity and video. A product that has a pacer needs only [`Remote`](steadycast_remote::Remote).
//!
//! ```
#![doc = include_str!("../examples/call.rs")]
//! ```
//!
//! # Stability
//! [`MediaSender`], [`MediaSettings`], [`StreamSettings`], [`MediaPacket`], [`Departure`], [`Output`],
//! [`EncoderTarget`], [`PacketName`] and their fields follow semantic versioning. All else may change in any version.

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
