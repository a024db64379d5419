//! A rate controller that runs at the sender alone, for products that have per-packet feedback.
//!
//! The feedback is transport-wide (draft-holmer-rmcat-transport-wide-cc-extensions-01) or RFC 8888. A [`Remote`]
//! turns sent packets and their arrivals into a [`Decision`]: the encoder's rate, the pacing rate and the reason. The
//! receiver needs no part of Steadycast.
//!
//! The crate is sans-IO. With a full history (16,384 packets), [`Remote::sent`] allocates no memory.
//! [`Remote::feedback`] allocates memory for reports, and sometimes for packets of unknown fate.
//!
//! # Example
//!
//! A greedy sender on a link of 2 Mb/s and 40 ms round trip, with feedback every 50 ms:
//!
//! ```
#![doc = include_str!("../examples/link.rs")]
//! ```
//!
//! # Stability
//! [`Remote`], [`Bounds`], [`Packet`], [`PacketResult`] and their fields follow semantic versioning. All else may
//! change in any version.

mod clock_offset;
mod history;
mod remote;
mod replay;
mod shadow;

pub use history::{History, Joined};
pub use remote::{Bounds, Feedback, Packet, PacketResult, Remote};
pub use replay::Replayed;
pub use shadow::{Departures, SHADOWS, SentMedia, Shadow};

/// Types of `steadycast-control`.
pub use steadycast_control::registry::{Factory, Given, ParamError, ParamErrorKind};
pub use steadycast_control::{
    Check, Decision, FrameEdge, Limit, MediaQueue, Mode, Need, PacketArrival, Probe, Stream, Wake, Why, Window,
};
/// The units of all quantities.
pub use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};
