//! The emulated world: a scenario in real time, across real kernels' sockets.
//!
//! Hosts are network namespaces without a name, each with one TUN device as its way to everywhere. Between them stands
//! one thread, the relay, with the network of every world ([`steadycast_network::Datagrams`]): what a host's kernel
//! sends is offered to the links, and written to the device of the host at which it arrives, at the time at which it
//! arrives.

mod datagram;
mod kernel;
mod membership;
mod namespace;
mod program;
mod refuse;
mod relay;
mod tap;
mod tcp;
mod udp;
mod watch;
mod world;

pub use namespace::Namespace;
pub use program::{Program, sweep};
pub use refuse::refusals;
pub use relay::{LATE, Punctuality};
pub use steadycast_network::{group_address, host_address};
pub use world::{EmulateError, Emulation, Host, Options, RTP_PORT, TCP_PORT};
