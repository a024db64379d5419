//! Rate controllers for video. Each controller is a pair: a [`SenderHalf`] runs at the sender, and a [`ReceiverHalf`]
//! runs at each receiver.
//!
//! A controller is sans-IO: its inputs are events and the current time. The crate `steadycast-session` runs the pairs.
//!
//! The two parts exchange bytes in a format that the controller defines. The sender part writes a [`Notice`] with each
//! packet. The receiver part writes a [`Body`] in an RTCP APP packet. The sender part can also write a [`Body`] with
//! its sender report.
//!
//! ```text
//!           sender half                                   receiver half
//!  on_sent, on_timer ─┐   ── packet + Notice ──────────▶  on_arrival
//!        decision() ──┤   ── SR + announce() ──────────▶  on_announce
//!        on_report ◀──┘   ◀───────── RR + report() ─────  due(), report()
//!                             (heard by members too)  ─▶  on_overheard
//! ```
//!
//! Any call that takes `&mut self` may change what `wake`, `decision` and `due` return.
//!
//! # A complete controller
//!
//! This controller raises the rate by 50 kb/s after a report without loss, and halves it after a report with loss. In a
//! program, a session makes these calls.
//!
//! ```
//! use steadycast_control::{Arrival, Body, Decision, Limit, ReceiverHalf, ReceiverId, Reply, Report, SenderHalf, Sent};
//! use steadycast_control::{Slot, Why};
//! use steadycast_units::{Rate, Span, Time};
//!
//! struct Halving {
//!     rate: Rate,
//!     loss: Option<f64>,
//! }
//!
//! impl SenderHalf for Halving {
//!     fn on_sent(&mut self, _: &Sent) {}
//!
//!     fn on_report(&mut self, report: &Report<'_>) {
//!         // A body comes from the network, so impossible values are ignored.
//!         let Some(&[a, b, c, d]) = report.body.map(|body| &body.bytes[..]) else { return };
//!         let (expected, lost) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
//!         if lost > expected {
//!             return;
//!         }
//!         self.loss = (lost > 0).then(|| f64::from(lost) / f64::from(expected));
//!         self.rate = if lost > 0 { self.rate.scale(0.5) } else { self.rate + Rate::kbps(50) };
//!     }
//!
//!     fn decision(&self) -> Decision {
//!         let rule = if self.loss.is_some() { "loss: halved" } else { "no loss: 50 kb/s more" };
//!         let why = Why { loss: self.loss, ..Why::rule(rule) };
//!         Decision { target: self.rate, pacing: self.rate, window: None, limit: Limit::Network, why }
//!     }
//! }
//!
//! struct Counting;
//!
//! impl ReceiverHalf for Counting {
//!     fn on_arrival(&mut self, _: &Arrival<'_>) {}
//!
//!     fn report(&mut self, slot: &Slot) -> Reply {
//!         let expected = slot.expected.min(0xffff) as u16;
//!         let lost = slot.lost.clamp(0, expected.into()) as u16;
//!         let bytes = [expected.to_be_bytes(), lost.to_be_bytes()].concat();
//!         Reply::Body(Body { subtype: 1, bytes })
//!     }
//! }
//!
//! let (mut sender, mut receiver) = (Halving { rate: Rate::kbps(400), loss: None }, Counting);
//! let mut rates = Vec::new();
//! for (second, lost) in [(1, 0), (2, 0), (3, 10)] {
//!     let now = Time::ZERO + Span::secs(second);
//!     let slot = Slot { now, expected: 50, lost, members: 2, interval: Span::secs(1), rtcp_share: 0.0 };
//!     let Reply::Body(body) = receiver.report(&slot) else { unreachable!("each report has a body") };
//!     let (from, body) = (ReceiverId(7), Some(&body));
//!     sender.on_report(&Report { at: now, from, rtt: None, reception: None, body, packets: &[], members: 1 });
//!     rates.push(sender.decision().target);
//! }
//! assert_eq!(rates, [Rate::kbps(450), Rate::kbps(500), Rate::kbps(250)]);
//! assert_eq!(sender.decision().why.rule, "loss: halved");
//! assert_eq!(sender.decision().why.loss, Some(0.2));
//! ```

mod asmp;
mod base;
mod echo;
mod entry;
pub mod equation;
mod feedback;
mod feedback_interval;
mod fields;
mod fixed;
mod gcc;
mod half;
mod lda_plus;
pub mod loss;
mod message;
mod meter;
mod multfrc;
mod nada;
mod needs;
mod no_feedback_timer;
mod pgmcc;
mod pictures;
pub mod promise;
mod queue;
mod rbuf;
pub mod registry;
mod report_scheduler;
mod scream;
pub mod simulcast;
mod steady;
mod tfmcc;
mod tfrc;
mod tfrcp;

pub use echo::{Echo, EchoReceiver};
pub use entry::{Controller, Mode, ParamError, ParamErrorKind, Setup, Values};
pub use feedback::FeedbackFormat;
pub use feedback_interval::FeedbackInterval;
pub use half::{
    Allowance, Announcement, Arrival, BufferLevel, Decision, Departing, Due, ExtraArrival, ExtraSent, FrameEdge, Leave,
    Limit, MediaQueue, Overheard, PacketArrival, PacketReport, Probe, ReceiverHalf, Reception, Reply, Report,
    SenderHalf, Sent, Slot, Stream, View, Wake, Why, Window,
};
pub use message::{Body, Notice};
pub use needs::Need;
pub use pictures::{Pictures, Rung};
pub use promise::{Check, Promise};

/// Identifies a receiver by its SSRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u32);
