//! RTP and RTCP packet formats, sequence numbers, NTP timestamps and video payload formats.
//!
//! Parsers return a value or a [`ParseError`], never panic, and allocate in proportion to the input.

mod bytes;
pub mod ntp;
pub mod parity;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod seq;

/// Bytes of IPv4 without options (20) and UDP (8) per datagram.
pub const IP_UDP_OVERHEAD: usize = 28;

/// Why a datagram could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet ends before the announced length.
    #[error("{what}: needs {need} bytes, has {got}")]
    Short {
        /// The truncated part.
        what: &'static str,
        /// The bytes that the part needs.
        need: usize,
        /// The bytes that remain for the part.
        got: usize,
    },
    /// The packet belongs to another protocol or version.
    #[error("version {got} instead of 2")]
    Version {
        /// The packet's version field.
        got: u8,
    },
    /// The padding is empty, unaligned or longer than its packet, or is not in the last packet of an RTCP compound.
    #[error("padding of {count} bytes in a packet of {len}")]
    Padding {
        /// The padding length that the packet announces, in bytes.
        count: usize,
        /// The bytes of the packet that could be padding.
        len: usize,
    },
    /// The packet contains more items than a legitimate sender would write.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind of the items.
        what: &'static str,
        /// The maximum that is accepted.
        limit: usize,
    },
    /// A valid packetisation that this program does not support.
    #[error("{what}")]
    Unsupported {
        /// The packetisation.
        what: &'static str,
    },
    /// A layer that is not used. Lower layers do not depend on it.
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

/// Returns whether a datagram on a shared port is RTCP (RFC 5761, section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    // The second byte is RTCP's packet type, or RTP's marker bit and payload type. RFC 5761 allows these values only
    // for RTCP.
    matches!(datagram.get(1), Some(192..=223))
}

/// Decodes text from the network for display, without byte order mark and control characters except line breaks.
pub fn plain_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    text.chars().filter(|c| !c.is_control() || matches!(c, '\r' | '\n')).collect()
}
