//! RTCP without I/O. The module [`interval`] decides when a member may report, [`members`] contains the members of the
//! session, and [`reception`] counts which packets have arrived. The crate `steadycast-wire` reads and writes the
//! bytes.

pub mod interval;
pub mod members;
pub mod reception;

pub use interval::{Expiry, IntervalInputs, Leave, Profile, Timer, TimerConfig};
pub use members::{Census, Conflict, Members, Origin, SourceStatus};
pub use reception::{Arrived, Reception};
