//! RTP and RTCP packet formats, sequence numbers, NTP timestamps and video payload formats.
//!
//! Parsers return a value or a [`ParseError`]. They never panic. The memory that they allocate is proportional to the
//! input.

mod bytes;
pub mod ntp;
pub mod parity;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod seq;

/// Size of the IPv4 header without options (20 bytes) and the UDP header (8 bytes) of a datagram.
pub const IP_UDP_OVERHEAD: usize = 28;

/// The magic cookie of a STUN message, its bytes 4 to 7 (RFC 8489, section 5).
pub const STUN_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Why a datagram could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet is shorter than the length that it announces.
    #[error("{what}: needs {need} bytes, has {got}")]
    Short {
        /// The part of the packet that is truncated.
        what: &'static str,
        /// The number of bytes that the part needs.
        need: usize,
        /// The number of bytes that remain for the part.
        got: usize,
    },
    /// The packet belongs to another protocol or version.
    #[error("version {got} instead of 2")]
    Version {
        /// The packet's version field.
        got: u8,
    },
    /// The padding is empty, unaligned or longer than its packet. Or it is not in the last packet of an RTCP compound.
    #[error("padding of {count} bytes in a packet of {len}")]
    Padding {
        /// The length of the padding that the packet announces, in bytes.
        count: usize,
        /// The number of bytes in the packet that could be padding.
        len: usize,
    },
    /// The packet contains more items than a legitimate sender would write.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind of items, in words.
        what: &'static str,
        /// The maximum number of items that is accepted.
        limit: usize,
    },
    /// The packetisation or the header extension is valid, but this program does not support it.
    #[error("{what}")]
    Unsupported {
        /// The packetisation or the header extension, in words.
        what: &'static str,
    },
    /// The packet belongs to a layer that is not used. Lower layers do not depend on this layer.
    #[error("{what}")]
    OtherLayer {
        /// The layer, in words.
        what: &'static str,
    },
    /// A part of the packet does not conform to its format.
    #[error("{what}")]
    Malformed {
        /// The problem, in words.
        what: &'static str,
    },
}

impl ParseError {
    /// Returns which part of the packet is wrong.
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

/// Returns whether a datagram is RTCP. The datagram comes from a port that RTP and RTCP share (RFC 5761, section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    // The second byte is the packet type of RTCP, or the marker bit and payload type of RTP. RFC 5761 reserves these
    // values for RTCP.
    matches!(datagram.get(1), Some(192..=223))
}

/// Decodes text from the network, so that it can be displayed. Removes a byte order mark and all control characters
/// except line breaks.
pub fn plain_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    text.chars().filter(|c| !c.is_control() || matches!(c, '\r' | '\n')).collect()
}
