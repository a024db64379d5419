//! The endpoints of flows, and the record that they make.
//!
//! An [`Agent`] is one end of a flow on one host: a video sender with its encoder, a video receiver with its frame
//! assembly, the two ends of TCP and of plain traffic. A world passes it packets that arrive and timers that expire,
//! and takes the packets that it sends. The world also transports the packets and advances the time. The counts of a
//! world's agents and links form a [`Record`], from which the summary and the tables of a run are made, the same for
//! all worlds.

mod activity;
mod agent;
mod batchable;
mod body;
mod freeze;
mod intake;
mod make;
mod plan;
mod promises;
mod record;
mod score;
mod shares;
mod simulcast;
mod skew;
mod summary;
mod tables;
mod video_plan;
mod viewer;
mod warnings;

pub use activity::Activity;
pub use agent::{
    Agent, AudioPlayout, Beat, DecisionRow, KernelSink, KernelSource, LimitShares, MakeReceiver, Observed, Out,
    PlainSink, PlainSource, Player, Repaired, SegmentCounts, SourcePoint, TcpSink, TcpSource, VideoSink, VideoSource,
    ViewRow, Work,
};
pub use batchable::{BatchKey, Batchable, PlainRun};
pub use body::{AgentIx, Arriving, Body};
pub use freeze::Freezes;
pub use intake::{Digest, Intake, Point};
pub use make::{AgentFactory, BuildError, Inputs, MakeSink, MakeSource, Makers};
pub use plan::{Action, End, Transition, plan, transitions_of};
pub use record::{FlowEnds, LinkPoint, LinkRecord, PacketRow, Record};
pub use skew::Skew;
pub use steadycast_record::{Fields, Row, Rows, Store, StoredRows, Table, Values};
pub use video_plan::{AUDIO_PAYLOAD_TYPE, HostContext, RETRANSMISSION_PAYLOAD_TYPE, RemotePeer, Supply, VideoPlan};
pub use viewer::Viewer;
