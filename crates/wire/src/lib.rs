//! RTP and RTCP as bytes, and what is read off them: extended sequence numbers, NTP stamps, video payloads.
//!
//! Nothing here keeps time or sends. What comes from the network is checked before it is believed: a parser answers
//! with a [`ParseError`] or with a value, never with a panic, and what it allocates is bounded by what it was given.

mod bytes;
pub mod ntp;
pub mod parity;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod seq;

/// What IP version 4 without options (20) and UDP (8) add to each datagram, in bytes.
pub const IP_UDP_OVERHEAD: usize = 28;

/// Why a datagram wasn't believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet ends before what it announces.
    #[error("{what}: needs {need} bytes, has {got}")]
    Short {
        /// The part that is cut.
        what: &'static str,
        /// Bytes that the part needs.
        need: usize,
        /// Bytes that are left for it.
        got: usize,
    },
    /// The packet is of another protocol, or of another version of this one.
    #[error("version {got} instead of 2")]
    Version {
        /// The version it claims.
        got: u8,
    },
    /// Its padding is empty, unaligned, longer than the packet, or not at the end of the last packet.
    #[error("padding of {count} bytes in a packet of {len}")]
    Padding {
        /// The padding it claims.
        count: usize,
        /// The bytes that could be padding.
        len: usize,
    },
    /// The packet holds more of something than any honest sender would write.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What it has too many of.
        what: &'static str,
        /// How many would have been accepted.
        limit: usize,
    },
    /// It is packed in a way that its format has and this program does not take apart.
    #[error("{what}")]
    Unsupported {
        /// The way in which it is packed.
        what: &'static str,
    },
    /// It is of a layer that is not taken: the layers below it need nothing of it.
    #[error("{what}")]
    OtherLayer {
        /// The layer.
        what: &'static str,
    },
    /// A part of it contradicts its format.
    #[error("{what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
}

impl ParseError {
    /// The part of the packet that is wrong.
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

/// Whether a datagram on a port that carries both is RTCP rather than RTP (RFC 5761, section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    matches!(datagram.get(1), Some(192..=223))
}

/// Text of the network's, without the characters that would steer a terminal (C0 and C1 controls; lines stay apart),
/// and without the mark that some editors put before a text in UTF-8:
/// all that is read from packets and session descriptions goes through here, since it may stand in a view or a message.
pub fn plain_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    text.chars().filter(|c| !c.is_control() || matches!(c, '\r' | '\n')).collect()
}
