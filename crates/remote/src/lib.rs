//! Both halves of a rate controller at the sender, on per-packet feedback: the part of Steadycast that a product
//! embeds.
//!
//! A product that sends RTP already has packets, a pacer, and feedback that tells which packets arrived and when:
//! transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01), as browsers and GStreamer send it, or
//! RFC 8888's. A [`Remote`] turns what was sent and what arrived into a [`Decision`]: the rate for the encoder, the
//! rate for the pacer, and why. The receiver needs no part of Steadycast: its half of the controller runs at the
//! sender, on the arrivals that the feedback tells.
//!
//! It is sans-IO: time is told and never asked, and nothing is sent. Once the memory of sent packets is full (16,384
//! packets), [`Remote::sent`] takes no new memory. [`Remote::feedback`] takes memory for what a half's own report holds,
//! and where it leaves more fates unknown than any feedback before it.
//!
//! # Example
//!
//! A greedy sender on a link of 2 Mb/s with 40 ms of round trip, whose receiver writes feedback every 50 ms:
//!
//! ```
#![doc = include_str!("../examples/link.rs")]
//! ```
//!
//! # What is promised
//!
//! [`Remote`], [`Bounds`], [`Packet`], [`PacketResult`] and what they are made of follow semantic versioning.
//! [`History`], [`Joined`], [`Replayed`], [`Departures`] and [`Shadow`] are parts that `steadycast-session` is built
//! of, too; they may change in any version.

mod history;
mod remote;
mod replay;
mod shadow;

pub use history::{History, Joined};
pub use remote::{Bounds, Feedback, Packet, PacketResult, Remote};
pub use replay::Replayed;
pub use shadow::{Departures, Left, SHADOWS, Shadow};

/// The controllers' words that a product meets here.
pub use steadycast_control::registry::{Factory, Given, ParamError};
pub use steadycast_control::{
    Check, Decision, FrameEdge, Limit, MediaQueue, Mode, Need, PacketArrival, Probe, Stream, Wake, Why, Window,
};
/// The quantities that everything is said in.
pub use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Seed, Span, Time};
