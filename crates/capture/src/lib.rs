//! Writes packets as pcapng, for Wireshark.
//!
//! A simulated packet has a size and protocol fields, but no bytes. [`udp`] and [`tcp`] create a datagram with valid
//! lengths and checksums for it. [`CaptureFile`] writes datagrams to a stream as they arrive, so that memory does not
//! grow with the run. Datagrams that have bytes are written unchanged, except that [`mark`] sets the ECN field if a
//! link has changed it.

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, mark, tcp, udp};
pub use file::CaptureFile;
