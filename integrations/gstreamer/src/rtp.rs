//! The head of an RTP packet.

/// Headers of IPv4 and UDP.
pub(crate) const HEADERS: u64 = 28;
/// Maximum bytes that locate a payload: the header, 15 contributing sources, and an extension's head.
pub(crate) const HEAD: usize = 12 + 4 * 15 + 4;
/// The fields of an RTP packet that the sender needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rtp {
    /// The size on the wire.
    pub(crate) size: u64,
    pub(crate) payload: u32,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
    pub(crate) ssrc: u32,
}

impl Rtp {
    /// Parses the head of a packet of `size` bytes (RFC 3550, section 5.1); `None` if it is not RTP.
    pub(crate) fn read(head: &[u8], size: usize) -> Option<Self> {
        let (first, second) = (*head.first()?, *head.get(1)?);
        if first >> 6 != 2 || size < 12 {
            return None;
        }
        let word = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let mut length = 12 + 4 * usize::from(first & 15);
        if first & 16 != 0 {
            length += 4 + 4 * (word(length)? & 0xffff) as usize;
        }
        // Padding counts as payload: it is rare, and its length can be in another memory block.
        let payload = u32::try_from(size.saturating_sub(length)).ok()?;
        let (seq, marker) = (word(0)? as u16, second & 128 != 0);
        Some(Self { size: size as u64 + HEADERS, payload, seq, timestamp: word(4)?, marker, ssrc: word(8)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_size_payload_time_stamp_marker_and_ssrc() {
        let mut head = vec![0x91, 0x80 | 96, 0, 7, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 1, 0xbe, 0xde, 0, 1, 0x51, 0, 7, 0];
        let read = Rtp::read(&head, 1_024);
        let payload = 1_024 - 12 - 4 - 8;
        let timestamp = 0x0102_0304;
        assert_eq!(read, Some(Rtp { size: 1_052, payload, seq: 7, timestamp, marker: true, ssrc: 9 }));
        head[0] = 0x11;
        assert_eq!(Rtp::read(&head, 1_024), None, "version 0");
        for len in 0..20 {
            assert_eq!(Rtp::read(&[0x91; 24][..len], len), None, "{len} bytes");
        }
    }
}
