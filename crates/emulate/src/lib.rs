//! The emulated world: runs a scenario in real time over kernel sockets.
//!
//! Hosts are unnamed network namespaces. Each has a TUN device as its default route. A relay thread reads the datagrams
//! of all hosts and passes them through the simulator's network model ([`steadycast_network::Datagrams`]). When a
//! datagram arrives in the model, the relay writes it to the device of its destination.

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
