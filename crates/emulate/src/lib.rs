//! The emulated world: runs a scenario in real time over kernel sockets.
//!
//! Hosts are unnamed network namespaces, each with a TUN device as its default route. A relay thread passes their
//! datagrams through the simulator's network model ([`steadycast_network::Datagrams`]), and writes each to its
//! destination's device at its arrival time.

mod datagram;
mod kernel;
mod membership;
mod namespace;
mod program;
mod refuse;
mod relay;
mod tap;
mod tcp;
mod tcp_monitor;
mod udp;
mod world;

pub use namespace::Namespace;
pub use program::{Program, sweep};
pub use refuse::refusals;
pub use relay::{LATE, Punctuality};
pub use steadycast_network::{group_address, host_address};
pub use world::{EmulateError, Emulation, Host, Options, RTP_PORT, TCP_PORT};
