//! RTCP without I/O: when a member may send a report ([`interval`]), who is in the session ([`members`]) and what
//! arrived from a source ([`reception`]).
//!
//! The caller passes the time and a seeded generator ([`Chance`](steadycast_units::Chance)). `steadycast-wire` writes
//! and parses the bytes.

pub mod interval;
pub mod members;
pub mod reception;

pub use interval::{Early, Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
pub use members::{Census, Conflict, Members, Origin, SourceStatus};
pub use reception::{Arrived, Interval, Reception};
