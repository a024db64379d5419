//! The network of every world: links, ways and trees, and how packets get from one agent to others.
//!
//! [`Network`] is built from a scenario and driven event by event; the simulated world stands on it. [`Datagrams`] is
//! the same network for hosts that are not ours: it carries bytes between them, driven by a clock.

mod agenda;
mod capture;
mod config;
mod datagrams;
mod lane;
mod net;
mod network;
mod packet;
mod tree;

pub use capture::{Shape, Who, group_address, host_address};
pub use datagrams::{DatagramArrival, Datagrams, Passed, Target};
pub use net::{Delivery, Fan, Leg, PathIx};
pub use network::{Alarm, Event, Network};
pub use packet::{Head, Packet, PacketIx, To};
