//! Packets as pcapng, for Wireshark.
//!
//! A simulated packet has a size and protocol fields, but no bytes. [`udp`] and [`tcp`] make a datagram with valid
//! lengths and checksums, and [`CaptureFile`] writes datagrams to a stream as they arrive, so that memory does not grow
//! with the run. Datagrams with bytes are written unchanged; [`mark`] sets the ECN field that a link has changed.

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, mark, tcp, udp};
pub use file::CaptureFile;
