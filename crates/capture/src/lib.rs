//! Packets as pcapng, for Wireshark.
//!
//! A simulated packet has a size and what its protocol needs, but no bytes: [`udp`] and [`tcp`] make a datagram of it,
//! with right lengths and checksums, and [`CaptureFile`] writes datagrams to a stream as they come, so that a long run
//! needs no memory. Datagrams that have bytes are written as they are; [`mark`] sets what a link has made of their ECN
//! field.

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, mark, tcp, udp};
pub use file::CaptureFile;
