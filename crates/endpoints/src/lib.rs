//! The endpoints of flows, and the record of a run.
//!
//! An [`Agent`] is one end of a flow on one host. A scenario's world (simulated, emulated or live) passes it packets
//! and timers, transports what it sends, and advances the time. A [`Record`] of agents and links gives the summary and
//! the tables.

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
    Agent, AudioArrival, AudioPlayout, Beat, DecisionRow, KernelSink, KernelSource, LimitShares, MakeReceiver,
    Observed, Out, PlainSink, PlainSource, Player, Repaired, SegmentCounts, SourcePoint, TcpSink, TcpSource, VideoSink,
    VideoSource, ViewRow, Work,
};
pub use batchable::{BatchKey, Batchable, PlainRun};
pub use body::{AgentIx, Arriving, Body};
pub use freeze::Freezes;
pub use intake::{Digest, Intake, Point};
pub use make::{AgentFactory, BuildError, Inputs, MakeSink, MakeSource, Makers};
pub use plan::{Action, End, Transition, membership, plan, transitions_of};
pub use record::{FlowEnds, LinkPoint, LinkRecord, PacketRow, Record};
pub use skew::Skew;
pub use steadycast_record::{Fields, Path, Row, Rows, Store, StoredRows, Table, Values};
pub use video_plan::{
    AUDIO_PAYLOAD_TYPE, ExternalParts, HostContext, RETRANSMISSION_PAYLOAD_TYPE, RemotePeer, Supply, VideoPlan,
};
pub use viewer::Viewer;
