/// The header extension of one packet: up to 24 bytes (RFC 8285).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Notice {
    id: u8,
    len: u8,
    bytes: [u8; Self::MOST],
}

impl Notice {
    /// The maximum size in bytes.
    pub const MOST: usize = 24;
    /// No header extension.
    pub const NONE: Self = Self { id: 0, len: 0, bytes: [0; Self::MOST] };

    /// Creates an element `id` (1 to 14) with the first [`Notice::MOST`] bytes of `bytes`.
    pub fn new(id: u8, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= Self::MOST && (1..=14).contains(&id));
        let len = bytes.len().min(Self::MOST);
        let mut notice = Self { id, len: len as u8, bytes: [0; Self::MOST] };
        notice.bytes[..len].copy_from_slice(&bytes[..len]);
        notice
    }
    /// Returns the identifier; 0 if there is none.
    pub const fn id(&self) -> u8 {
        self.id
    }
    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// Returns whether the notice is empty. An empty notice is not sent.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notice({}: {:02x?})", self.id, self.bytes())
    }
}

/// The content of an RTCP APP packet (RFC 3550, section 6.7). The packet's name is [`Controller::app`].
///
/// [`Controller::app`]: crate::Controller::app
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The APP subtype, 0 to 31.
    pub subtype: u8,
    /// The content; padded to 32-bit words when sent.
    pub bytes: Vec<u8>,
}
