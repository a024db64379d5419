//! Packets as pcapng, for Wireshark.
//!
//! A simulated packet has a size and what its protocol needs, but no bytes: [`udp`] and [`tcp`] make a datagram of it, with right
//! lengths and checksums, and [`CaptureFile`] writes datagrams to a stream as they come, so that a long run needs no memory.

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, tcp, udp};
pub use file::CaptureFile;
