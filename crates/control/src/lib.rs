//! Rate controllers for video, as pairs of a sender half and a receiver half.
//!
//! A controller is sans-IO: it is told the time and what happened, and never sees a socket, a pacer, an encoder, a logger or
//! a clock. The session (crate `steadycast-session`) drives a pair in three worlds: simulated, emulated and live.
//!
//! What crosses the network between the halves is bytes of the controller's own: a [`Notice`] forward with each packet, a
//! [`Body`] back in an RTCP APP packet (and one to the group beside the sender's SR). A leaf writes and parses them itself;
//! everything in between carries them as they are.
//!
//! ```text
//!           sender half                                   receiver half
//!  on_sent, on_timer ─┐   ── packet + Notice ──────────▶  on_arrival
//!        decision() ──┤   ── SR + announce() ──────────▶  on_announce
//!        on_report ◀──┘   ◀───────── RR + report() ─────  due(), report()
//!                             (heard by members too)  ─▶  on_overheard
//! ```
//!
//! After any call that takes `&mut self`, `wake` and `decision` (sender) or `wake` and `due` (receiver) may have changed and
//! are to be read again.

mod asmp;
mod echo;
mod entry;
pub mod equation;
mod fixed;
mod half;
mod lda_plus;
pub mod loss;
mod message;
mod meter;
mod multfrc;
mod pgmcc;
mod pictures;
mod queue;
mod rbuf;
pub mod registry;
pub mod simulcast;
mod tfmcc;
mod tfrc;
mod tfrcp;

pub use echo::{Echo, EchoReceiver};
pub use entry::{Controller, Mode, ParamError, Setup, Values};
pub use half::{
    Allowance, Announcement, Arrival, BufferLevel, Check, Decision, Departing, Due, ExtraArrival, ExtraSent, FrameEdge,
    Limit, MediaQueue, Overheard, PacketArrival, PacketReport, Probe, ReceiverHalf, Reception, Reply, Report,
    SenderHalf, Sent, Slot, Stream, View, Wake, Why, Window,
};
pub use message::{Body, Notice};
pub use pictures::{Pictures, Rung};

/// Who sent a report: the SSRC of an RTP receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u32);
