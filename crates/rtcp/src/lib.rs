//! The machinery of RTCP without I/O: *when* a member may speak ([`interval`]), *who* is in the session ([`members`])
//! and *what* arrived from a source ([`reception`]).
//!
//! Everything is told the time and draws from a [`Chance`](steadycast_units::Chance) that it is given. The bytes are
//! `steadycast-wire`'s.

pub mod interval;
pub mod members;
pub mod reception;

pub use interval::{Early, Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
pub use members::{Census, Conflict, Heard, Members, Origin};
pub use reception::{Arrived, Interval, Reception};
