/// The header extension that a sender half sends with one packet: up to 24 bytes in one RTP header extension element
/// (RFC 8285). The element's identifier is set in the controller's registry entry.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Notice {
    id: u8,
    len: u8,
    bytes: [u8; Self::MOST],
}

impl Notice {
    /// The maximum size of a notice, in bytes.
    pub const MOST: usize = 24;
    /// The notice of a packet without a header extension.
    pub const NONE: Self = Self { id: 0, len: 0, bytes: [0; Self::MOST] };

    /// Creates an element `id` (1 to 14) with the first [`Notice::MOST`] bytes of `bytes`.
    pub fn new(id: u8, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= Self::MOST && (1..=14).contains(&id));
        let len = bytes.len().min(Self::MOST);
        let mut notice = Self { id, len: len as u8, bytes: [0; Self::MOST] };
        notice.bytes[..len].copy_from_slice(&bytes[..len]);
        notice
    }
    /// Returns the element's identifier; 0 if there is none.
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

/// The content of a controller's RTCP APP packet (RFC 3550, section 6.7): a subtype from 0 to 31 and bytes. The
/// packet's name is set in the registry entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The APP subtype, 0 to 31, which distinguishes a controller's messages.
    pub subtype: u8,
    /// The content; it is padded to whole 32-bit words when it is sent.
    pub bytes: Vec<u8>,
}
