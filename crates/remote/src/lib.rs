//! Both halves of a rate controller at the sender, on per-packet feedback. This is the part of Steadycast that a
//! product embeds.
//!
//! A product that sends RTP already has packets, a pacer, and feedback about the arrival of each packet. The feedback
//! is transport-wide (draft-holmer-rmcat-transport-wide-cc-extensions-01), as browsers and GStreamer send it, or has
//! the format of RFC 8888. A [`Remote`] turns the packets sent and their arrivals into a [`Decision`]: the encoder's
//! rate, the pacing rate, and the reason. The receiver needs no part of Steadycast: its half of the controller runs at
//! the sender, on the arrivals in the feedback.
//!
//! The crate is sans-IO: the caller passes the time, and the crate sends nothing. Once the history of sent packets is
//! full (16,384 packets), [`Remote::sent`] allocates no memory. [`Remote::feedback`] allocates the contents of a half's
//! own report, and room for packets of unknown fate if there are more of them than in any feedback before.
//!
//! # Example
//!
//! A greedy sender on a link of 2 Mb/s with 40 ms of round trip, whose receiver writes feedback every 50 ms:
//!
//! ```
#![doc = include_str!("../examples/link.rs")]
//! ```
//!
//! # Stability
//! [`Remote`], [`Bounds`], [`Packet`], [`PacketResult`] and their fields follow semantic versioning. [`History`],
//! [`Joined`], [`Remote::join`], [`Replayed`], [`Departures`] and [`Shadow`] are shared with `steadycast-sender` and
//! `steadycast-session`, and may change in any version.

mod clock_offset;
mod history;
mod remote;
mod replay;
mod shadow;

pub use history::{History, Joined};
pub use remote::{Bounds, Feedback, Packet, PacketResult, Remote};
pub use replay::Replayed;
pub use shadow::{Departures, SHADOWS, SentMedia, Shadow};

/// The types of `steadycast-control` that appear in this crate's functions.
pub use steadycast_control::registry::{Factory, Given, ParamError, ParamErrorKind};
pub use steadycast_control::{
    Check, Decision, FrameEdge, Limit, MediaQueue, Mode, Need, PacketArrival, Probe, Stream, Wake, Why, Window,
};
/// The units of all quantities.
pub use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};
