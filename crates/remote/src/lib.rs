//! A rate controller that runs only at the sender, for products that have per-packet feedback.
//!
//! The feedback is transport-wide (draft-holmer-rmcat-transport-wide-cc-extensions-01) or RFC 8888. From the sent
//! packets and their arrivals, a [`Remote`] makes a [`Decision`]: the encoder's rate, the pacing rate and the reason.
//! The receiver needs no part of Steadycast.
//!
//! The crate is sans-IO. Once the history is full (16,384 packets), [`Remote::sent`] allocates no memory.
//! [`Remote::feedback`] allocates memory for reports, and sometimes for packets whose fate is unknown.
//!
//! # Example
//!
//! A sender that always has data uses a link of 2 Mb/s with a round-trip time of 40 ms. Feedback arrives every 50 ms:
//!
//! ```
#![doc = include_str!("../examples/link.rs")]
//! ```
//!
//! # Stability
//! [`Remote`], [`Bounds`], [`Packet`], [`PacketResult`] and their fields follow semantic versioning. Everything else
//! may change in any version.

mod clock_offset;
mod history;
mod remote;
mod replay;
mod shadow;

pub use history::{History, Joined};
pub use remote::{Bounds, Feedback, Packet, PacketResult, Remote};
pub use replay::Replayed;
pub use shadow::{Departures, SHADOWS, SentMedia, Shadow};

/// Types of the crate `steadycast-control`.
pub use steadycast_control::registry::{Factory, Given, ParamError, ParamErrorKind};
pub use steadycast_control::{
    Check, Decision, FrameEdge, Limit, MediaQueue, Mode, Need, PacketArrival, Probe, Stream, Wake, Why, Window,
};
/// Types for quantities that have a unit.
pub use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};
