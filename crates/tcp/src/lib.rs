//! A sans-IO model of one TCP connection that carries bulk data one way: a [`Sender`], a [`Receiver`], and the [`Segment`]s
//! and [`Ack`]s between them, to be carried by whoever drives them.
//!
//! It is counted in segments of one size, as ns-2 counts: windows and thresholds are numbers of segments, a segment is lost
//! or arrives as a whole. "Byte counting" (RFC 3465) here means that an acknowledgment of two segments counts for two.
//!
//! Told, never asked: every call gets the time. One mutation ([`Sender::on_ack`], [`Sender::on_timer`]), then drain
//! [`Sender::poll`] until it says [`Poll::Wait`] or [`Poll::Done`]:
//!
//! ```
//! use steadycast_tcp::{Config, Congestion, Poll, Preset, Receiver, Sender};
//! use steadycast_units::{Bytes, Span, Time};
//!
//! let mut config = Config::new(Preset::Ns2, Congestion::NewReno);
//! config.bytes = Some(Bytes::new(100_000));
//! let (mut sender, mut receiver) = (Sender::new(&config), Receiver::new(&config));
//! let mut now = Time::ZERO;
//! loop {
//!     match sender.poll(now) {
//!         Poll::Send(segment) => {
//!             // A path of 50 ms without loss, one segment at a time.
//!             now += Span::millis(50);
//!             if let Some(ack) = receiver.on_segment(now, &segment) {
//!                 sender.on_ack(now, &ack);
//!             }
//!         }
//!         Poll::Wait { .. } => unreachable!("nothing is lost here"),
//!         Poll::Done => break,
//!     }
//! }
//! assert_eq!(receiver.distinct_segments(), 101); // the SYN and 100 segments of 1000 B
//! ```
//!
//! What it leaves out: the three-way handshake beyond its first segment, FIN, a window that the receiver changes, data in
//! both directions, Nagle, DSACK, F-RTO, and of Linux its RACK and tail loss probe.

mod bits;
mod config;
mod cubic;
mod hystart;
mod receiver;
mod rtt;
mod scoreboard;
mod sender;
mod wire;

pub use config::{Config, ConfigError, Congestion, Hystart, MAX_WINDOW, Preset, UnknownName};
pub use receiver::Receiver;
pub use rtt::Floor;
pub use sender::{Poll, Sender, Why};
pub use wire::{Ack, Block, Ecn, Segment};
