//! RTCP without I/O: when a member may send a report ([`interval`]), which members are in the session ([`members`]),
//! and which packets of a source arrived ([`reception`]).
//!
//! The caller passes the time and a seeded generator of random numbers ([`Chance`](steadycast_units::Chance)).
//! `steadycast-wire` writes and parses the bytes.

pub mod interval;
pub mod members;
pub mod reception;

pub use interval::{Early, Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
pub use members::{Census, Conflict, Members, Origin, SourceStatus};
pub use reception::{Arrived, Interval, Reception};
