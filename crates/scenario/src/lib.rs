//! Scenario files: TOML, read and checked with line and remedy, resolved into nodes, links, flows and events.
//!
//! ```text
//!  text ──▶ Document ──▶ set("flow.video.controller=tfmcc") ──▶ check() ──▶ Loaded { scenario, warnings, … }
//!  JSON ──▶    │                                                   │
//!              └── Problems: not TOML                              └── Problems: everything that is wrong, each with
//!                                                                      file, line, key, what and a remedy
//! ```
//!
//! Three steps. The *tree* holds the text with the place of every value; `--set` changes the tree. The *tables* (`file`)
//! declare each key once, with its type and description: reading, messages and [`schema`] come from that one declaration.
//! *Resolving* fills in defaults, writes out shapes and ranges, finds names and checks what a type alone can't.

mod clock;
mod file;
mod flow;
mod loaded;
mod model;
mod name;
mod network;
mod problem;
mod resolve;
mod simulcast;
mod table;
mod text;
mod tree;

pub use file::schema;
pub use loaded::{Document, Loaded};
pub use model::{
    Arq, Buffer, Cast, Cbr, Change, CoDel, Codec, Congestion, DirIx, Direction, Directions, Emit, Encode, Event,
    Expect, FirstNumbers, Flow, FlowIx, FlowKind, Jitter, JitterDist, KERNEL_JITTER, Limit, Link, LinkIx, Loss, Media,
    NodeIx, OnOff, OwnClock, PeriodDist, Periods, Queue, RateSpec, Record, Red, Reorder, Reports, Rtcp, RtcpProfile,
    Scenario, Simulcast, Size, Start, Tcp, TcpPreset, TcpSource, Trace, Vbr, Video, What,
};
pub use problem::{Problem, Problems};
