//! The live world: the only place that asks the clock and opens sockets for RTP.
//!
//! A [`Loop`] is one thread's way through real time: it waits for the earliest time that any of its ends asked for, or
//! for a datagram, tells the ends, and sends what they let go. It serves one end or hundreds: the sockets of an [`End`]
//! may have been made in another thread, in another network namespace.

mod browser;
mod clock;
mod driver;
mod entropy;
mod error;
mod feed;
mod flow;
mod folder;
mod handle;
mod net;
mod parity;
mod peers;
mod receive;
pub mod sdp;
mod send;
mod spool;
mod srtp;
mod unpack;
mod unused;
mod wired;

pub use browser::To;
pub use clock::Clock;
pub use driver::{Datagram, End, EndIx, Loop, Outbox, Waker};
pub use error::LiveError;
pub use feed::{EncoderDesk, Job, LadderFeed, LiveFeed, Next, RungData, Sizes, Steering, Store, Unit};
pub use flow::FlowKeys;
pub use folder::LiveRecord;
pub use handle::Handle;
pub use net::{Interface, Meta, Pair, PairOptions, Port, Which, origin, source_specific};
pub use parity::{CameSymbols, SentSymbols};
pub use peers::{Peer, Peers};
pub use receive::{LATENCY, ReceiveOptions, Receiving};
pub use send::{Medium, SendOptions, Sending};
pub use spool::Spool;
pub use srtp::{MasterKey, Srtp, SrtpProfile};
pub use unpack::{FrameCounts, FrameRow, FrameShelf, ReceivedFrame, Unpacker};
pub use unused::Unused;
pub use wired::{Consumer, Nobody, Payloads, Reports, WiredSink, WiredSource, Zeros};
