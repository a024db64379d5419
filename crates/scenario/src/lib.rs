//! Scenario files: reads TOML, checks it, and resolves it into nodes, links, flows and events. Each error message
//! contains the line and a remedy.
//!
//! ```text
//!  text ──▶ Document ──▶ set("flow.video.controller=tfmcc") ──▶ check() ──▶ Loaded { scenario, warnings, … }
//!  JSON ──▶    │                                                   │
//!              └── Problems: not TOML                              └── Problems: everything that is wrong, each with
//!                                                                      file, line, key, what and a remedy
//! ```
//!
//! `--set` changes the document's tree, which stores the position of every value in the text. The tables in `file`
//! declare each key once, with its type and description. Reading, error messages and [`schema`] all use these
//! declarations. Resolving fills in defaults, expands shapes and ranges, looks up names, and checks combinations of
//! keys.

mod clock;
mod encode;
mod expect;
mod experiment;
mod file;
mod flow;
mod foreign_trace;
mod loaded;
mod model;
mod name;
mod named;
mod network;
mod recorded;
mod resolve;
mod simulcast;
mod table_header;
mod text;
mod throughput_log;
mod trace_doubts;
mod tree;

pub use encode::{Codec, Encode, Fps, Quantizers, Size};
pub use experiment::{Redraw, experiment, experiment_schema};
pub use file::schema;
pub use loaded::{Document, Loaded};
pub use model::{
    Buffer, Cast, Cbr, Change, ControllerRef, DirIx, Direction, Directions, Event, EventKind, Expect, FirstNumbers,
    Flow, FlowIx, FlowKind, KERNEL_JITTER, Link, LinkIx, Map001, Media, NodeIx, OnOff, OwnClock, Pareto, PeriodDist,
    Periods, Playout, RateSpec, Recording, Repair, Reports, Rtcp, RtcpProfile, Scenario, Series, Simulcast, Start, Tcp,
    Video, Workload,
};
pub use named::network;
pub use recorded::{Fault, Quantity, Recorded, Rows, recorded};
pub use steadycast_link::{Arq, CoDel, FqCoDel, Jitter, JitterDist, Limit, Loss, Policer, Queue, Red, Reorder, Shaper};
pub use steadycast_settings::{Problem, Problems};
pub use steadycast_tcp::Congestion;
pub use trace_doubts::Doubt;
