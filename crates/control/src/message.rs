/// The controller's header extension element on one packet. It has up to 24 bytes (RFC 8285).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Notice {
    id: u8,
    len: u8,
    bytes: [u8; Self::MOST],
}

impl Notice {
    /// Maximum size of the content in bytes.
    pub const MOST: usize = 24;
    /// Stands for no header extension element.
    pub const NONE: Self = Self { id: 0, len: 0, bytes: [0; Self::MOST] };

    /// Creates an element with the identifier `id`, from 1 to 14. Its content is the first [`Notice::MOST`] bytes of
    /// `bytes`.
    pub fn new(id: u8, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= Self::MOST && (1..=14).contains(&id));
        let len = bytes.len().min(Self::MOST);
        let mut notice = Self { id, len: len as u8, bytes: [0; Self::MOST] };
        notice.bytes[..len].copy_from_slice(&bytes[..len]);
        notice
    }
    /// Returns the identifier of the element. Returns 0 if there is no element.
    pub const fn id(&self) -> u8 {
        self.id
    }
    /// Returns the content of the element.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// Returns whether the element is empty. An empty element is not sent.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notice({}: {:02x?})", self.id, self.bytes())
    }
}

/// A controller's message in an RTCP APP packet (RFC 3550, section 6.7). The name in the APP packet is
/// [`Controller::app`].
///
/// [`Controller::app`]: crate::Controller::app
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Subtype in the APP packet, from 0 to 31.
    pub subtype: u8,
    /// Content of the message. It is padded to 32-bit words when it is sent.
    pub bytes: Vec<u8>,
}
