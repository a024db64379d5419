//! Scenario files: TOML, read and checked with line and remedy, resolved into nodes, links, flows and events.

mod loaded;
mod model;
mod problem;

pub use loaded::Loaded;
pub use model::{
    Arq, Buffer, Cast, Cbr, Change, Codec, Congestion, Direction, Directions, Emit, Encode, Event, Expect, Flow,
    FlowIx, FlowKind, Jitter, JitterDist, Limit, Link, LinkIx, Loss, Media, NodeIx, OnOff, PeriodDist, Periods, Queue,
    RateSpec, Record, Red, Rtcp, RtcpProfile, Scenario, Size, Start, Tcp, TcpSource, Trace, Vbr, Video, What,
};
pub use problem::{Problem, Problems};
