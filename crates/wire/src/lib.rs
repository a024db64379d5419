//! RTP and RTCP packet formats, extended sequence numbers, NTP timestamps and video payload formats.
//!
//! This crate neither reads a clock nor sends. Parsers validate what arrives from the network. They return a value or a
//! [`ParseError`] and never panic, and their allocations are bounded by the size of the input.

mod bytes;
pub mod ntp;
pub mod parity;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod seq;

/// Overhead of IPv4 without options (20) and UDP (8) per datagram, in bytes.
pub const IP_UDP_OVERHEAD: usize = 28;

/// The reason why a datagram could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet ends before the announced length.
    #[error("{what}: needs {need} bytes, has {got}")]
    Short {
        /// The part that is truncated.
        what: &'static str,
        /// Number of bytes that the part needs.
        need: usize,
        /// Number of bytes that remain for the part.
        got: usize,
    },
    /// The packet belongs to another protocol, or to another version of this one.
    #[error("version {got} instead of 2")]
    Version {
        /// The version field of the packet.
        got: u8,
    },
    /// The padding is empty, unaligned, longer than the packet, or not at the end of the last packet.
    #[error("padding of {count} bytes in a packet of {len}")]
    Padding {
        /// The number of padding bytes that the packet announces.
        count: usize,
        /// The number of bytes in the packet that could be padding.
        len: usize,
    },
    /// The packet contains more items than a legitimate sender would write.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind of the items.
        what: &'static str,
        /// The maximum number that is accepted.
        limit: usize,
    },
    /// The packetisation is valid in its format, but not supported by this program.
    #[error("{what}")]
    Unsupported {
        /// The packetisation.
        what: &'static str,
    },
    /// The packet belongs to a layer that is not used. Lower layers do not depend on it.
    #[error("{what}")]
    OtherLayer {
        /// The layer.
        what: &'static str,
    },
    /// A part of the packet contradicts its format.
    #[error("{what}")]
    Malformed {
        /// The problem.
        what: &'static str,
    },
}

impl ParseError {
    /// Returns the part of the packet that is wrong.
    pub const fn what(&self) -> &'static str {
        match self {
            Self::Short { what, .. }
            | Self::TooMany { what, .. }
            | Self::Unsupported { what }
            | Self::OtherLayer { what }
            | Self::Malformed { what } => what,
            Self::Version { .. } => "version",
            Self::Padding { .. } => "padding",
        }
    }
}

/// Returns true if a datagram is RTCP rather than RTP, on a port that RTP and RTCP share (RFC 5761, section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    // In RTP this byte contains the marker bit and the payload type. RFC 5761 forbids payload types whose byte would
    // look like RTCP's.
    matches!(datagram.get(1), Some(192..=223))
}

/// Decodes text from the network without control characters (C0 and C1, except line breaks), which could control a
/// terminal, and without a byte order mark. All text in packets and session descriptions is decoded by this function,
/// because it may be displayed.
pub fn plain_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    text.chars().filter(|c| !c.is_control() || matches!(c, '\r' | '\n')).collect()
}
