//! Writes packets to pcapng files, which Wireshark can read.
//!
//! A simulated packet has no bytes, so [`udp`] and [`tcp`] create a datagram with valid lengths and checksums. [`mark`]
//! sets the ECN field of a datagram. [`CaptureFile`] writes datagrams to a file.

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, mark, tcp, udp};
pub use file::CaptureFile;
