//! A sans-IO model of one TCP connection with bulk data one way.
//!
//! Sequence numbers count segments of one size, and windows are in segments, as in ns-2. "Byte counting" (RFC 3465)
//! means that an acknowledgment of two segments counts for two.
//!
//! The caller passes the time. Call [`Sender::on_ack`] or [`Sender::on_timer`], then [`Sender::poll`] until it
//! returns [`Poll::Wait`] or [`Poll::Done`]:
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
//!             // The path has a delay of 50 ms and no loss. One segment at a time is in flight.
//!             now += Span::millis(50);
//!             if let Some(ack) = receiver.on_segment(now, &segment) {
//!                 sender.on_ack(now, &ack);
//!             }
//!         }
//!         Poll::Wait { .. } => unreachable!("nothing is lost here"),
//!         Poll::Done => break,
//!     }
//! }
//! assert_eq!(receiver.distinct_segments, 101); // the SYN and 100 segments of 1000 B
//! ```
//!
//! # Congestion controls
//!
//! | | window | repair without SACK | repair with SACK |
//! |---|---|---|---|
//! | [`Congestion::Reno`] | RFC 5681 | fast recovery ends at the first new acknowledgment | RFC 6675 |
//! | [`Congestion::NewReno`] | RFC 5681 | RFC 6582; [`Config::impatient`] selects the timer rule | RFC 6675 |
//! | [`Congestion::Sack`] | RFC 5681 | (always with SACK) | RFC 6675 |
//! | [`Congestion::Cubic`] | RFC 9438 | RFC 6582 | RFC 6675 |
//! | [`Congestion::Bbr`] | draft-ietf-ccwg-bbr (version 3) | (always with SACK) | RFC 6675 |
//! | [`Congestion::Bbr1`] | the first BBR draft (version 1) | (always with SACK) | RFC 6675 |
//! | [`Congestion::Dctcp`] | RFC 8257 | RFC 6582 | RFC 6675 |
//! | [`Congestion::Prague`] | draft-briscoe-iccrg-prague-congestion-control | RFC 6582 | RFC 6675 |
//!
//! `docs/tcp.md` describes the last four.
//!
//! Of RFC 6675's NextSeg, rule 4 (one rescue retransmission) is missing. Reno's thresholds are rounded down, as in
//! ns-2 and Linux. The threshold of duplicate acknowledgments is three.
//!
//! # Comparison with ns-2.35
//!
//! One FTP transfer over 10 Mb/s with Debian's `ns` and its defaults, against the preset `Ns2`. Drop-tail queue of
//! *q* packets, one-way delay 22 ms, window 400, 60 s:
//!
//! | | q | kb/s, ns-2 | kb/s, ours | retransmitted, ns-2 | retransmitted, ours |
//! |---|---|---|---|---|---|
//! | Reno | 10 / 50 / 200 | 8270 / 9837 / 9875 | 8278 / 9841 / 9879 | 82 / 221 / 398 | 83 / 221 / 398 |
//! | NewReno | 10 / 50 / 200 | 8211 / 9846 / 9875 | 8221 / 9850 / 9879 | 83 / 228 / 398 | 83 / 228 / 398 |
//! | SACK | 10 / 50 / 200 | 8306 / 9885 / 9914 | 8368 / 9904 / 9940 | 55 / 121 / 440 | 54 / 121 / 298 |
//!
//! Random loss with probability *p*, one-way delay 50 ms, window 100, three seeds of 2000 s; segments per second
//! (time-outs per 2000 s):
//!
//! | | p | ns-2 | ours |
//! |---|---|---|---|
//! | Reno | 0.1 / 1 / 3 % | 391 (34) / 106 (296) / 53 (786) | 393 (34) / 106 (297) / 53 (821) |
//! | NewReno | 0.1 / 1 / 3 % | 401 (4) / 116 (62) / 60 (340) | 403 (3) / 116 (72) / 61 (327) |
//! | SACK | 0.1 / 1 / 3 % | 401 (1) / 116 (26) / 59 (251) | 403 (0) / 116 (36) / 59 (372) |
//!
//! ns-2's SACK retransmits a hole as soon as any block lies beyond it, which avoids time-outs at high loss.
//!
//! # Comparison with Linux
//!
//! With the preset `Linux`, windows are whole numbers, CUBIC has the kernel's formula, and RACK has no reordering
//! window. New segments leave in units as with TSO autosizing; a unit's last segment carries PSH and is acknowledged
//! immediately.
//!
//! # What is not modelled
//!
//! The three-way handshake beyond its first segment, FIN, a change of the receiver's window, data in both directions,
//! Nagle, DSACK, F-RTO, RACK's reordering window, and Linux's tail loss probe.

mod bbr;
mod bbr1;
mod config;
mod cubic;
mod dctcp;
mod delivery;
mod filter;
mod hystart;
mod model;
mod offload;
mod pacer;
mod prague;
mod receiver;
mod rounds;
mod rtt;
mod scoreboard;
mod sender;
mod sliding_bitmap;
mod whole_window;
mod wire;

pub use config::{Config, ConfigError, Congestion, Hystart, LINUX_WINDOW, MAX_WINDOW, Preset};
pub use receiver::Receiver;
pub use rtt::RtoFloor;
pub use sender::{Poll, SendLimit, Sender};
pub use steadycast_units::Ecn;
pub use wire::{Ack, Block, Segment};
