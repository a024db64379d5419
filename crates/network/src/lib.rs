//! The network of simulations and emulations: links, paths, multicast trees and forwarding.
//!
//! The simulator drives a [`Network`] event by event. [`Datagrams`] is the same network for external hosts, and a clock
//! drives it.

mod capture;
mod config;
mod datagrams;
mod event_queue;
mod lane;
mod net;
mod network;
mod packet;
mod tree;

pub use capture::{AgentInfo, TcpShape, group_address, host_address};
pub use datagrams::{DatagramArrival, DatagramEvent, Datagrams, Target};
pub use net::{Delivery, Fan, Leg, PathIx};
pub use network::{Alarm, Event, Network};
pub use packet::{Head, Packet, PacketIx, To};
