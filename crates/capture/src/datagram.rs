//! Writes IPv4 (RFC 791), UDP (RFC 768) and TCP (RFC 9293) headers with their checksums.

use std::net::Ipv4Addr;
use steadycast_units::Ecn;

const IP: usize = 20;
const UDP: usize = 8;
const TCP: usize = 20;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_TCP: u8 = 6;
const LONGEST: usize = 65_535;

/// The address and the port of one end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address of the host or the multicast group.
    pub host: Ipv4Addr,
    /// The UDP or TCP port.
    pub port: u16,
}

/// Addresses, ports and ECN field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The source address.
    pub from: Address,
    /// The destination address.
    pub to: Address,
    /// ECN field: 0 not ECN-capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced (RFC 3168).
    pub ecn: u8,
}

/// Flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// SYN: opens the connection.
    pub syn: bool,
    /// ACK: the acknowledgment number is valid.
    pub ack: bool,
    /// ECE: echoes an ECN mark.
    pub ece: bool,
    /// CWR: the congestion window was reduced in response to an ECN mark.
    pub cwr: bool,
    /// PSH: this is the last segment of a write.
    pub psh: bool,
}

/// The fields of a TCP header except the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// The sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgment number, which is the next expected byte.
    pub ack: u32,
    /// The segment's flags.
    pub flags: Flags,
    /// The advertised window in bytes.
    pub window: u16,
    /// Timestamps TSval and TSecr (RFC 7323). They are omitted if `room` is too small.
    pub stamps: Option<(u32, u32)>,
    /// SACK blocks (RFC 2018). A block is its first byte, and the byte after its last byte. Empty blocks are omitted.
    /// All blocks are omitted if `room` is too small.
    pub sacks: [(u32, u32); 3],
    /// Size of the TCP options in bytes. It is rounded down to a multiple of four, and limited to 40. Unused bytes are
    /// filled with no-operation options.
    pub room: usize,
}

/// Writes a UDP datagram with its IP header to `out`. A payload that is too long for IP is truncated.
pub fn udp(meta: &Meta, payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(LONGEST - IP - UDP)];
    let length = UDP + payload.len();
    ip(meta, PROTOCOL_UDP, length, out);
    out.extend_from_slice(&meta.from.port.to_be_bytes());
    out.extend_from_slice(&meta.to.port.to_be_bytes());
    out.extend_from_slice(&(length as u16).to_be_bytes());
    // Set the checksum field to 0 while the checksum is computed.
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(payload);
    // Send a checksum of zero as 0xffff, because zero means "no checksum". Both are equal in ones' complement (RFC
    // 768).
    let sum = match transport_sum(out) {
        0 => 0xffff,
        sum => sum,
    };
    out[IP + 6..IP + 8].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a TCP segment with its IP header to `out`. The payload consists of zeros. The IP packet has `size` bytes, but
/// at least the size of the headers.
pub fn tcp(meta: &Meta, header: &TcpHeader, size: usize, out: &mut Vec<u8>) {
    let room = header.room.min(40) / 4 * 4;
    let head = TCP + room;
    let length = size.clamp(IP + head, LONGEST) - IP;
    ip(meta, PROTOCOL_TCP, length, out);
    out.extend_from_slice(&meta.from.port.to_be_bytes());
    out.extend_from_slice(&meta.to.port.to_be_bytes());
    out.extend_from_slice(&header.seq.to_be_bytes());
    out.extend_from_slice(&header.ack.to_be_bytes());
    let Flags { syn, ack, ece, cwr, psh } = header.flags;
    let flags = u8::from(syn) << 1 | u8::from(psh) << 3 | u8::from(ack) << 4 | u8::from(ece) << 6 | u8::from(cwr) << 7;
    out.extend_from_slice(&[(head as u8 / 4) << 4, flags]);
    out.extend_from_slice(&header.window.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    options(header, room, out);
    out.resize(IP + length, 0);
    let sum = transport_sum(out);
    out[IP + 16..IP + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the ECN field in the IP header of a datagram, and updates the header's checksum.
pub fn mark(bytes: &mut [u8], ecn: Ecn) {
    let Some(tos) = bytes.get(1).copied() else { return };
    if Ecn::from_bits(tos) == ecn || bytes.len() < IP {
        return;
    }
    let old = u16::from_be_bytes([bytes[0], tos]);
    bytes[1] = tos & !3 | ecn.bits();
    let new = u16::from_be_bytes([bytes[0], bytes[1]]);
    // Update the checksum by RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let checksum = fold(u32::from(!u16::from_be_bytes([bytes[10], bytes[11]])) + u32::from(!old) + u32::from(new));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn options(header: &TcpHeader, room: usize, out: &mut Vec<u8>) {
    const NOP: u8 = 1;
    let end = out.len() + room;
    if let Some((value, echo)) = header.stamps.filter(|_| room >= 12) {
        // Two no-operation options align the timestamps to words (RFC 7323, appendix A).
        out.extend_from_slice(&[NOP, NOP, 8, 10]);
        out.extend_from_slice(&value.to_be_bytes());
        out.extend_from_slice(&echo.to_be_bytes());
    }
    let blocks = header.sacks.iter().filter(|(first, end)| first != end);
    let count = blocks.clone().count();
    if count > 0 && out.len() + 4 + 8 * count <= end {
        out.extend_from_slice(&[NOP, NOP, 5, 2 + 8 * count as u8]);
        for (first, end) in blocks {
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&end.to_be_bytes());
        }
    }
    out.resize(end, NOP);
}

fn ip(meta: &Meta, protocol: u8, length: usize, out: &mut Vec<u8>) {
    out.clear();
    // IP version 4, a header length of five words, and the ECN field.
    out.extend_from_slice(&[0x45, meta.ecn & 3]);
    out.extend_from_slice(&((IP + length) as u16).to_be_bytes());
    // Set the identification to 0, because a datagram that is not fragmented needs none (RFC 6864).
    out.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    out.extend_from_slice(&meta.from.host.octets());
    out.extend_from_slice(&meta.to.host.octets());
    let sum = fold(add(0, out));
    out[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the checksum of a UDP or TCP datagram. It includes the pseudo header and all data after the IP header.
fn transport_sum(datagram: &[u8]) -> u16 {
    let length = (datagram.len() - IP) as u32;
    fold(add(add(u32::from(datagram[9]) + length, &datagram[12..IP]), &datagram[IP..]))
}

fn add(sum: u32, bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sum = pairs.iter().fold(sum, |sum, pair| sum + u32::from(u16::from_be_bytes(*pair)));
    sum + rest.first().map_or(0, |last| u32::from(*last) << 8)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            from: Address { host: Ipv4Addr::new(10, 0, 0, 1), port: 5004 },
            to: Address { host: Ipv4Addr::new(239, 0, 0, 1), port: 5004 },
            ecn: 2,
        }
    }

    #[test]
    fn the_ip_checksum_is_that_of_a_published_example() {
        // This is the example header from Wikipedia's "IPv4 header checksum". Its checksum is set to zero.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(fold(add(0, &header)), 0xb861);
    }

    #[test]
    fn sums_over_a_finished_datagram_are_zero() {
        let mut out = Vec::new();
        for length in 0..40u8 {
            udp(&meta(), &(0..length).collect::<Vec<_>>(), &mut out);
            assert_eq!((fold(add(0, &out[..20])), transport_sum(&out)), (0, 0), "{length}");
            assert_eq!(out.len(), 28 + usize::from(length));
            assert_eq!(out[2..4], (out.len() as u16).to_be_bytes());
            let header = TcpHeader { seq: 7, room: 12, stamps: Some((1, 2)), ..TcpHeader::default() };
            tcp(&meta(), &header, 52 + usize::from(length), &mut out);
            assert_eq!((fold(add(0, &out[..20])), transport_sum(&out)), (0, 0), "{length}");
            assert_eq!(out.len(), 52 + usize::from(length));
        }
    }

    #[test]
    fn a_mark_leaves_the_checksum_right_whatever_the_header_says() {
        for tos in [0u8, 1, 2, 0xb8, 0xba, 0xff] {
            for id in [0u8, 0x7f, 0xff] {
                for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
                    let mut bytes = Vec::new();
                    udp(&meta(), &[7; 3], &mut bytes);
                    (bytes[1], bytes[4]) = (tos, id);
                    bytes[10..12].fill(0);
                    let sum = fold(add(0, &bytes[..IP]));
                    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
                    mark(&mut bytes, ecn);
                    assert_eq!(bytes[1], tos & 0xfc | ecn.bits());
                    assert_eq!(fold(add(0, &bytes[..IP])), 0, "tos {tos} id {id} {ecn:?}");
                }
            }
        }
    }

    #[test]
    fn sack_blocks_are_left_out_where_the_size_has_no_room_for_them() {
        let mut out = Vec::new();
        let mut header = TcpHeader { sacks: [(1, 5), (0, 0), (9, 10)], room: 0, ..TcpHeader::default() };
        tcp(&meta(), &header, 40, &mut out);
        assert_eq!((out.len(), out[32] >> 4), (40, 5));
        header.room = 20;
        tcp(&meta(), &header, 60, &mut out);
        assert_eq!((out.len(), out[32] >> 4), (60, 10));
        assert_eq!(out[40..48], [1, 1, 5, 18, 0, 0, 0, 1]);
    }

    #[test]
    fn a_size_that_is_too_small_or_too_large_still_makes_a_datagram() {
        let mut out = Vec::new();
        tcp(&meta(), &TcpHeader::default(), 0, &mut out);
        assert_eq!(out.len(), 40);
        tcp(&meta(), &TcpHeader { room: 99, ..TcpHeader::default() }, 1_000_000, &mut out);
        assert_eq!((out.len(), out[32] >> 4), (65_535, 15));
        udp(&meta(), &vec![0; 70_000], &mut out);
        assert_eq!(out.len(), 65_535);
    }
}
