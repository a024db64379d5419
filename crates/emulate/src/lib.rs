//! The emulated world: a scenario in real time, across real kernels' sockets.
//!
//! Hosts are network namespaces without a name, each with one TUN device as its way to everywhere. Between them stands one
//! thread, the relay, with the simulator's own network ([`steadycast_sim::Network`]): what a host's kernel sends is offered to the
//! links, and written to the device of the host at which it arrives, at the time at which it arrives.

mod datagram;
mod kernel;
mod membership;
mod namespace;
mod relay;
mod tcp;
mod watch;

pub use namespace::Namespace;
pub use relay::{LATE, Punctuality, group_address, host_address};
