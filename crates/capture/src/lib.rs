//! Writes packets as pcapng, for Wireshark.
//!
//! A simulated packet has no bytes; [`udp`] and [`tcp`] create a datagram with valid lengths and checksums.
//! [`CaptureFile`] writes datagrams as they arrive. Only the ECN field of a datagram with bytes is changed, by
//! [`mark`].

mod datagram;
mod file;

pub use datagram::{Address, Flags, Meta, TcpHeader, mark, tcp, udp};
pub use file::CaptureFile;
