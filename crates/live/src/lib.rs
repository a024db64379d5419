//! Runs flow endpoints in real time. Only this crate reads the clock and opens sockets for RTP.
//!
//! A [`Loop`] runs up to hundreds of endpoints ([`End`]) in one thread. It waits for a datagram or a timer, calls the
//! endpoints that are due, and sends what they emit.

mod audio;
mod broadcast;
mod browser;
mod clock;
mod driver;
mod entropy;
mod error;
mod feed;
mod flow;
mod group_control;
mod handle;
mod jitter_buffer;
mod live_record;
mod media_port;
mod net;
mod parity;
mod peers;
mod receive;
pub mod sdp;
mod send;
mod socket_endpoint;
mod srtp;
mod temp_store;
mod unused;

pub use audio::{AudioQueue, ReceivedAudio, ReceivedAudioQueue};
pub use broadcast::{Broadcast, BroadcastJob, BroadcastStatus, NextBroadcastJob};
pub use browser::{Destination, Publisher};
pub use clock::Clock;
pub use driver::{Datagram, End, EndIx, Loop, Outbox, Waker};
pub use error::LiveError;
pub use feed::{
    EncodedFrame, EncoderJob, EncoderQueue, LadderFeed, LiveFeed, NextJob, PayloadStore, RungData, SharedRungs,
    SizeStats,
};
pub use flow::FlowKeys;
pub use group_control::Steering;
pub use handle::Handle;
pub use jitter_buffer::{FrameCounts, FrameQueue, FrameRow, JitterBuffer, ReceivedFrame};
pub use live_record::LiveRecord;
pub use media_port::{MediaPort, SharedPort};
pub use net::{Interface, Meta, Pair, PairOptions, PairPort, Port, Which, origin, source_specific};
pub use parity::{ReceivedSymbols, SentSymbols};
pub use peers::{Peer, Peers};
pub use receive::{LATENCY, ReceiveOptions, Receiving};
pub use send::{LocalOffer, Medium, SendOptions, Sending};
pub use socket_endpoint::{Consumer, Discard, Payloads, Reports, SocketSink, SocketSource, ZeroPayloads};
pub use srtp::{MasterKey, Srtp, SrtpProfile};
pub use temp_store::TempStore;
pub use unused::Unused;
