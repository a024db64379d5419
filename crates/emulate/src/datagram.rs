//! Parser for the fields of IPv4 datagrams that the relay needs.

use std::net::Ipv4Addr;
use steadycast_link::Ecn;

const TCP: u8 = 6;
const UDP: u8 = 17;
const IGMP: u8 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Datagram<'a> {
    /// Parses a datagram. Returns `None` if it is truncated or not IPv4.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header = usize::from(first & 15) * 4;
        let total = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
        (first >> 4 == 4 && header >= 20 && total >= header && total == bytes.len()).then_some(Self { bytes, header })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        let mut octets = [0; 4];
        octets.copy_from_slice(&self.bytes[at..at + 4]);
        Ipv4Addr::from(octets)
    }

    pub(crate) fn to(&self) -> Ipv4Addr {
        self.address(16)
    }

    pub(crate) fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bytes[1])
    }

    pub(crate) fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Returns the bytes after the IP header. Returns `None` if the datagram carries another protocol or is not the
    /// first fragment.
    fn carried(&self, protocol: u8) -> Option<&'a [u8]> {
        let fragment = u16::from_be_bytes([self.bytes[6], self.bytes[7]]) & 0x1fff;
        (self.protocol() == protocol && fragment == 0).then(|| &self.bytes[self.header..])
    }

    /// Returns the source port and the destination port of a UDP or TCP datagram.
    pub(crate) fn ports(&self) -> Option<(u16, u16)> {
        let [a, b, c, d] = *self.carried(UDP).or_else(|| self.carried(TCP))?.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Returns the payload of a UDP datagram.
    pub(crate) fn udp(&self) -> Option<&'a [u8]> {
        self.carried(UDP)?.get(8..)
    }

    pub(crate) fn tcp(&self) -> Option<Segment> {
        let rest = self.carried(TCP).filter(|rest| rest.len() >= 20)?;
        let word = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let header = usize::from(rest[12] >> 4) * 4;
        Some(Segment {
            ports: self.ports()?,
            seq: u32::from(word(4)) << 16 | u32::from(word(6)),
            syn: rest[13] & 2 != 0,
            payload: rest.len().checked_sub(header)? as u32,
        })
    }

    pub(crate) fn igmp(&self) -> Option<&'a [u8]> {
        (self.protocol() == IGMP).then(|| &self.bytes[self.header..])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The source port and the destination port.
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) syn: bool,
    /// Length of the payload, in bytes.
    pub(crate) payload: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header.chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !(((folded & 0xffff) + (folded >> 16)) as u16)
    }

    fn datagram(tos: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let total = (20 + rest.len()) as u16;
        let mut bytes = vec![0x45, tos, (total >> 8) as u8, total as u8, 7, 9, 0x40, 0, 64, protocol, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn a_segments_numbers_are_read_and_its_payload_counted() {
        let mut tcp = vec![0x13, 0x89, 0x27, 0x10, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, 0x12];
        tcp.resize(24 + 7, 0);
        let bytes = datagram(2, 6, &tcp);
        let read = Datagram::read(&bytes).unwrap();
        assert_eq!(read.to(), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(read.ecn(), Ecn::Ect0);
        assert_eq!(read.tcp(), Some(Segment { ports: (5001, 10_000), seq: 0x0102_0304, syn: true, payload: 7 }));
    }

    #[test]
    fn truncated_datagrams_and_other_protocols_are_rejected() {
        let whole = datagram(0, 6, &[0; 20]);
        for len in 0..whole.len() {
            assert!(Datagram::read(&whole[..len]).is_none(), "{len} bytes");
        }
        let mut six = whole.clone();
        six[0] = 0x65;
        assert!(Datagram::read(&six).is_none());
        assert!(Datagram::read(&whole).unwrap().igmp().is_none());
        let mut header_too_long = datagram(0, 6, &[0; 20]);
        header_too_long[32] = 0xf0;
        assert!(Datagram::read(&header_too_long).unwrap().tcp().is_none());
    }
}
