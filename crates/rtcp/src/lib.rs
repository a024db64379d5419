//! RTCP without I/O: when a member may report ([`interval`]), the session's members ([`members`]), and which packets
//! arrived ([`reception`]). `steadycast-wire` has the bytes.

pub mod interval;
pub mod members;
pub mod reception;

pub use interval::{Early, Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
pub use members::{Census, Conflict, Members, Origin, SourceStatus};
pub use reception::{Arrived, Interval, Reception};
