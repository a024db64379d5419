/// What a sender half sends forward with one packet: up to 24 bytes that the wire carries as one RTP header extension
/// element (RFC 8285) with the id that the registry gives the controller.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Notice {
    id: u8,
    len: u8,
    bytes: [u8; Self::MOST],
}

impl Notice {
    /// The most bytes a notice can have.
    pub const MOST: usize = 24;
    /// The notice of a packet that carries none.
    pub const NONE: Self = Self { id: 0, len: 0, bytes: [0; Self::MOST] };

    /// Extension element `id` (1…14) with `bytes`, of which the first [`Notice::MOST`] are kept.
    pub fn new(id: u8, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= Self::MOST && (1..=14).contains(&id));
        let len = bytes.len().min(Self::MOST);
        let mut notice = Self { id, len: len as u8, bytes: [0; Self::MOST] };
        notice.bytes[..len].copy_from_slice(&bytes[..len]);
        notice
    }
    /// The extension element's id; 0 when there is none.
    pub const fn id(&self) -> u8 {
        self.id
    }
    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    /// Whether there is nothing to say.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notice({}: {:02x?})", self.id, self.bytes())
    }
}

/// The content of one RTCP APP packet of a controller (RFC 3550, 6.7): its subtype (0…31) and its bytes. Its name is
/// the registry's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// APP subtype, 0…31: tells a controller's messages apart.
    pub subtype: u8,
    /// The content; the wire pads it to whole 32-bit words.
    pub bytes: Vec<u8>,
}
