//! Finds the UDP datagram in a captured frame. The crates `etherparse` and `pcap-parser` remove link headers, tags and
//! tunnels. This module skips the headers of other tunnels: PPP, MPLS, GRE, ERSPAN, VXLAN, GTP-U and TURN.

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice, UdpSlice, ip_number};
use pcap_parser::Linktype;
use pcap_parser::data::{PacketData, get_packetdata};
use std::net::IpAddr;
use steadycast_wire::STUN_COOKIE;

/// An address and a port.
pub(crate) type Endpoint = (IpAddr, u16);

/// Maximum number of nested headers. A frame with more headers counts as damaged.
const MOST_LAYERS: usize = 12;
/// UDP ports of VXLAN. Linux used port 8472 before port 4789 was assigned.
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    /// Size of the IP packet in bytes. The fragments of a datagram count as one packet.
    pub(crate) size: u64,
    /// Identification from the IPv4 header. It is `None` for IPv6.
    pub(crate) id: Option<u16>,
    pub(crate) payload: &'a [u8],
    /// Set if the packet is the first fragment of a datagram.
    pub(crate) fragment: Option<Fragment>,
}

/// A fragment of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) of: FragmentedDatagram,
    /// Length of the fragment's payload, in bytes.
    pub(crate) bytes: u64,
    /// Length from the UDP header, in bytes. It is 0 if this is not the first fragment.
    pub(crate) all: u64,
}

/// Identifies the datagram that a fragment belongs to: source address, destination address and identification.
pub(crate) type FragmentedDatagram = (IpAddr, IpAddr, u32);

/// Why a record was skipped: it has no readable UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Skipped {
    /// The link type is not supported.
    LinkType(i32),
    /// The frame does not contain IP.
    EtherType(u16),
    Tcp,
    /// The IP packet contains a protocol that this module does not read.
    Protocol(u8),
    Ipsec,
    Macsec,
    /// The frame is an IEEE 802.3 frame without IP. It has a length where Ethernet has a type.
    Llc,
    /// The file does not describe the record's interface.
    NoInterface,
    CutShort,
    NotRtp,
    Damaged,
    /// The record has no time.
    Timeless,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LinkType(105 | 119 | 127) => f.write_str("Wi-Fi frames (their link type is not read)"),
            Self::LinkType(link) => write!(f, "of link type {link}, which is not read"),
            Self::EtherType(kind) => write!(f, "no IP (EtherType 0x{kind:04x})"),
            Self::Tcp => f.write_str("TCP, in which media are not read"),
            Self::Protocol(number) => write!(f, "IP protocol {number}, which is not read"),
            Self::Ipsec => f.write_str("encrypted by IPsec"),
            Self::Macsec => f.write_str("encrypted by MACsec"),
            Self::Llc => f.write_str("IEEE 802.3 frames without IP (LLC)"),
            Self::NoInterface => f.write_str("of an interface that the file does not describe"),
            Self::CutShort => f.write_str("cut so short that no header can be read"),
            Self::NotRtp => f.write_str("UDP without RTP"),
            Self::Damaged => f.write_str("damaged"),
            Self::Timeless => f.write_str("without a time"),
        }
    }
}

impl Skipped {
    /// Returns advice for a user whose capture has mostly records that were skipped for this reason.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::LinkType(105 | 119 | 127) => {
                "capture at an interface with an address (not in monitor mode), or decrypt and convert by Wireshark"
            }
            Self::LinkType(_) => "capture at an Ethernet interface or by tcpdump -i any, or convert it by Wireshark",
            Self::EtherType(_) | Self::Protocol(_) | Self::Ipsec | Self::Llc => {
                "capture inside the tunnel, where the call is UDP"
            }
            Self::Tcp => "have the call use UDP (TURN over UDP, RTSP over UDP)",
            Self::CutShort => "capture 128 bytes or more of each: tcpdump -s 128",
            Self::NotRtp => "capture where the call passes, and its UDP packets",
            Self::Macsec => "capture at a host, above MACsec",
            Self::NoInterface => "give the original file: a merge or a cut lost the interface descriptions",
            Self::Damaged => "capture again, or give another file",
            Self::Timeless => "capture with pcapng's enhanced packets, or as pcap",
        }
    }
}

pub(crate) enum Content<'a> {
    Datagram(Datagram<'a>),
    /// A fragment that is not the first one. It has no ports, because only the first fragment contains the UDP header.
    LaterFragment(Fragment),
    Skipped(Skipped),
    /// The payload of a TCP segment, which may contain a session description.
    Tcp(&'a [u8]),
}

/// The part of a frame that is still to be parsed. The variant says which protocol its first header belongs to.
enum Layer<'a> {
    Ethernet(&'a [u8]),
    EtherType(u16, &'a [u8]),
    Ip(&'a [u8]),
    Gre(&'a [u8]),
    Ppp(&'a [u8]),
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// Whether the capturing host itself sent a frame. Linux's cooked captures say so in their packet type.
pub(crate) fn is_outgoing(link: Linktype, bytes: &[u8]) -> Option<bool> {
    let kind = match link {
        Linktype::LINUX_SLL => word(bytes, 0)?,
        Linktype::LINUX_SLL2 => u16::from(*bytes.get(10)?),
        _ => return None,
    };
    match kind {
        0 => Some(false),
        4 => Some(true),
        _ => None,
    }
}

pub(crate) fn decapsulate(link: Linktype, bytes: &[u8]) -> Content<'_> {
    let mut layer = match first_layer(link, bytes) {
        Ok(layer) => layer,
        Err(skipped) => return Content::Skipped(skipped),
    };
    for _ in 0..MOST_LAYERS {
        match inner(layer) {
            Inner::Layer(next) => layer = next,
            Inner::Content(content) => return content,
        }
    }
    Content::Skipped(Skipped::Damaged)
}

fn first_layer(link: Linktype, bytes: &[u8]) -> Result<Layer<'_>, Skipped> {
    let from = |at: usize| bytes.get(at..).filter(|rest| !rest.is_empty()).ok_or(Skipped::CutShort);
    let kind = |at: usize| word(bytes, at).ok_or(Skipped::CutShort);
    Ok(match link.0 {
        // Skip the header of BSD loopback. It is an address family of four bytes, in the byte order of the host or of
        // the network.
        0 | 108 => Layer::Ip(from(4)?),
        9 => Layer::Ppp(bytes),
        12 | 14 => Layer::Ip(bytes),
        50 if bytes.first() == Some(&0xff) => Layer::Ppp(bytes),
        50 | 104 => Layer::EtherType(kind(2)?, from(4)?),
        51 => Layer::EtherType(0x8864, bytes),
        109 => Layer::Ip(from(12)?),
        117 => Layer::Ip(from(usize::from(*bytes.first().ok_or(Skipped::CutShort)?).next_multiple_of(4))?),
        239 => nflog(bytes)?,
        // Apple's PKTAP header has its own length and the type of the next header, both little-endian.
        258 => {
            let number = |at: usize| {
                let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
                four.map(u32::from_le_bytes).ok_or(Skipped::CutShort)
            };
            let inner = Linktype(number(8)? as i32);
            if inner.0 == 258 {
                return Err(Skipped::Damaged);
            }
            first_layer(inner, from(number(0)? as usize)?)?
        }
        _ => match get_packetdata(bytes, link, bytes.len()) {
            Some(PacketData::L2(frame)) => Layer::Ethernet(frame),
            Some(PacketData::L3(kind, packet)) => Layer::EtherType(kind, packet),
            Some(PacketData::L4(47, packet)) => Layer::Gre(packet),
            Some(PacketData::L4(number, _)) => return Err(Skipped::Protocol(number)),
            Some(PacketData::Unsupported(_)) => return Err(Skipped::LinkType(link.0)),
            None if bytes.is_empty() => return Err(Skipped::CutShort),
            None => return Err(Skipped::LinkType(link.0)),
        },
    })
}

/// Removes Linux's NFLOG header. It begins with an address family, a version and a group. Attributes follow, each with
/// a length, a type and a value, padded to four bytes.
fn nflog(bytes: &[u8]) -> Result<Layer<'_>, Skipped> {
    let mut rest = bytes.get(4..).ok_or(Skipped::CutShort)?;
    while let [l0, l1, k0, k1, ..] = *rest {
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        if u16::from_le_bytes([k0, k1]) == 9 {
            // The capture may have cut the payload.
            return rest.get(4..length.clamp(4, rest.len())).map(Layer::Ip).ok_or(Skipped::Damaged);
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..).ok_or(Skipped::CutShort)?;
    }
    Err(Skipped::CutShort)
}

enum Inner<'a> {
    Layer(Layer<'a>),
    Content(Content<'a>),
}

fn skipped<'a>(why: Skipped) -> Inner<'a> {
    Inner::Content(Content::Skipped(why))
}

fn inner(layer: Layer<'_>) -> Inner<'_> {
    match layer {
        Layer::Ethernet(frame) => LaxSlicedPacket::from_ethernet(frame)
            .map_or_else(|_| skipped(Skipped::CutShort), |packet| network(&packet, frame.len(), None)),
        Layer::EtherType(kind, packet) => ether_type(kind, packet),
        Layer::Ip(packet) => LaxSlicedPacket::from_ip(packet).map_or_else(
            |_| {
                // If the IP header is complete, the packet is damaged. Otherwise the capture cut it.
                let header = if packet.first().is_some_and(|first| first >> 4 == 6) { 40 } else { 20 };
                skipped(if packet.len() < header { Skipped::CutShort } else { Skipped::Damaged })
            },
            |sliced| network(&sliced, packet.len(), None),
        ),
        Layer::Gre(packet) => gre(packet).map_or_else(|| skipped(Skipped::CutShort), Inner::Layer),
        Layer::Ppp(packet) => ppp(packet).map_or_else(|| skipped(Skipped::CutShort), Inner::Layer),
    }
}

fn ether_type(kind: u16, packet: &[u8]) -> Inner<'_> {
    let layer = match kind {
        // Skip the six bytes of PPPoE's session header (RFC 2516, section 4).
        0x8864 => packet.get(6..).map(Layer::Ppp),
        0x8847 | 0x8848 => mpls(packet),
        0x6558 => Some(Layer::Ethernet(packet)),
        0x88e5 => return skipped(Skipped::Macsec),
        // Values below 0x0600 are a length (IEEE 802.3, section 3.2.6). The type is then in a SNAP header (IEEE 802).
        ..0x0600 => match packet {
            [0xaa, 0xaa, 0x03, 0, 0, 0, rest @ ..] => {
                word(rest, 0).zip(rest.get(2..)).map(|(kind, rest)| Layer::EtherType(kind, rest))
            }
            _ => return skipped(Skipped::Llc),
        },
        // Skip ERSPAN's header. It has 8 bytes in version 1 (type II) and 12 bytes in version 2 (type III). Version 2
        // has 8 more bytes if its last bit is set. Type I has no header, and its GRE header has no sequence number.
        0x88be if packet.first().is_some_and(|first| first >> 4 == 1) => packet.get(8..).map(Layer::Ethernet),
        0x22eb => {
            let more = packet.get(11).is_some_and(|last| last & 1 == 1);
            packet.get(if more { 20 } else { 12 }..).map(Layer::Ethernet)
        }
        0x88be => Some(Layer::Ethernet(packet)),
        0x880b => Some(Layer::Ppp(packet)),
        _ => return network(&LaxSlicedPacket::from_ether_type(kind.into(), packet), packet.len(), Some(kind)),
    };
    layer.map_or_else(|| skipped(Skipped::CutShort), Inner::Layer)
}

/// Skips PPP's protocol number (RFC 1661, section 2). The address and control fields of HDLC may precede it.
fn ppp(packet: &[u8]) -> Option<Layer<'_>> {
    let packet = packet.strip_prefix(&[0xff, 0x03]).unwrap_or(packet);
    // A first byte that is odd means that the protocol number is compressed to one byte.
    let (number, rest) = match *packet.first()? {
        short if short & 1 == 1 => (u16::from(short), packet.get(1..)?),
        _ => (word(packet, 0)?, packet.get(2..)?),
    };
    Some(match number {
        0x0021 | 0x0057 => Layer::Ip(rest),
        0x0281 | 0x0283 => mpls(rest)?,
        other => Layer::EtherType(other, &[]),
    })
}

/// Skips MPLS labels (RFC 3032). If a pseudowire carries Ethernet, a control word may follow the labels (RFC 4448).
fn mpls(mut packet: &[u8]) -> Option<Layer<'_>> {
    loop {
        let (label, rest) = packet.split_at_checked(4)?;
        packet = rest;
        if label[2] & 1 == 1 {
            break;
        }
    }
    Some(match packet.first()? >> 4 {
        // MPLS does not say which protocol it carries. Recognise IP by its version (RFC 4928).
        4 | 6 => Layer::Ip(packet),
        0 if packet.starts_with(&[0, 0]) => Layer::Ethernet(packet.get(4..)?),
        _ => Layer::Ethernet(packet),
    })
}

/// Removes a GRE header including its optional fields (RFC 2784 and RFC 2890, or RFC 2637 for version 1).
fn gre(packet: &[u8]) -> Option<Layer<'_>> {
    let (flags, kind) = (word(packet, 0)?, word(packet, 2)?);
    let optional = match flags & 7 {
        1 => 4 + [0x1000, 0x0080].iter().filter(|flag| flags & **flag != 0).count() * 4,
        _ => [0x8000 | 0x4000, 0x2000, 0x1000].iter().filter(|flag| flags & **flag != 0).count() * 4,
    };
    Some(Layer::EtherType(kind, packet.get(4 + optional..)?))
}

/// Returns the identification of an IPv6 fragment, and whether it is the first fragment (RFC 8200, 4.5). Returns
/// `(0, true)` if no fragment header is found.
///
/// `first` is the type of the first header in `headers`. The headers may be cut short. The iterator of etherparse
/// 0.20.3 is not used, because it reads beyond the end of such headers.
fn fragment_of(first: u8, headers: &[u8]) -> (u32, bool) {
    let (mut kind, mut rest) = (first, headers);
    while let [next, length, high, low, id @ ..] = rest {
        let size = match kind {
            44 => {
                let id = id.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
                return (id, u16::from_be_bytes([*high, *low]) >> 3 == 0);
            }
            // The length in an authentication header is in units of 4 bytes, minus 2 (RFC 4302, 2.2).
            51 => (usize::from(*length) + 2) * 4,
            _ => (usize::from(*length) + 1) * 8,
        };
        kind = *next;
        rest = rest.get(size..).unwrap_or_default();
    }
    (0, true)
}

/// Returns what the IP packet contains that `etherparse` found. If there is no IP packet, returns the next header or
/// the reason to skip the record.
fn network<'a>(packet: &LaxSlicedPacket<'a>, captured: usize, read_as: Option<u16>) -> Inner<'a> {
    let (from, to, head, total, id, first): (IpAddr, IpAddr, u64, u64, u32, bool) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let head = u64::from(header.ihl()) * 4;
            let offset = header.fragments_offset().value();
            // A length of 0 means that the packet was captured before the network card splits it (TSO).
            let total = match header.total_len() {
                0 => captured as u64,
                total => u64::from(total),
            };
            let (from, to) = (header.source_addr().into(), header.destination_addr().into());
            (from, to, head, total, u32::from(header.identification()), offset == 0)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let first = ip.extensions().first_header().map_or(0, |first| first.0);
            let place = fragment_of(first, ip.extensions().slice());
            let extensions = ip.extensions().slice().len() as u64;
            let total = 40 + u64::from(header.payload_length());
            (header.source_addr().into(), header.destination_addr().into(), 40 + extensions, total, place.0, place.1)
        }
        Some(LaxNetSlice::Arp(_)) => return skipped(Skipped::EtherType(0x0806)),
        None => return no_network(packet, read_as),
    };
    let Some(payload) = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref) else {
        return skipped(Skipped::CutShort);
    };
    let number = payload.ip_number;
    let mut fragment = None;
    if payload.fragmented {
        if number != ip_number::UDP {
            return skipped(Skipped::Protocol(number.0));
        }
        let bytes = total.saturating_sub(head);
        let of = (from, to, id);
        // Only the first fragment has the UDP header, which has the length of the whole datagram.
        let all = word(payload.payload, 4).map_or(0, u64::from);
        if !first {
            return Inner::Content(Content::LaterFragment(Fragment { of, bytes, all: 0 }));
        }
        fragment = Some(Fragment { of, bytes, all });
    }
    match number {
        ip_number::UDP => {
            let udp = match &packet.transport {
                Some(TransportSlice::Udp(udp)) => Some(udp.clone()),
                _ => UdpSlice::from_slice_lax(payload.payload).ok(),
            };
            let Some(udp) = udp else { return skipped(Skipped::CutShort) };
            let size = fragment.map_or(total, |one| head + one.all);
            let (from, to) = ((from, udp.source_port()), (to, udp.destination_port()));
            let id = from.0.is_ipv4().then_some(id as u16);
            tunnelled(&Datagram { from, to, size, id, payload: udp.payload(), fragment })
        }
        ip_number::GRE => Inner::Layer(Layer::Gre(payload.payload)),
        ip_number::IPV4 | ip_number::IPV6 => Inner::Layer(Layer::Ip(payload.payload)),
        ip_number::TCP => {
            let content = match &packet.transport {
                Some(TransportSlice::Tcp(tcp)) => Content::Tcp(tcp.payload()),
                _ => Content::Skipped(Skipped::Tcp),
            };
            Inner::Content(content)
        }
        ip_number::ENCAP_SEC => skipped(Skipped::Ipsec),
        other => skipped(Skipped::Protocol(other.0)),
    }
}

fn no_network<'a>(packet: &LaxSlicedPacket<'a>, read_as: Option<u16>) -> Inner<'a> {
    if packet.link_exts.iter().any(|each| matches!(each, LaxLinkExtSlice::Macsec(_)))
        && packet.ether_payload().is_none()
    {
        return skipped(Skipped::Macsec);
    }
    if packet.stop_err.is_some() {
        return skipped(Skipped::CutShort);
    }
    match packet.ether_payload() {
        // If `etherparse` removed a header, parse the type behind this header next. Otherwise the type is not
        // supported.
        Some(inside) if Some(inside.ether_type.0) != read_as || !packet.link_exts.is_empty() => {
            Inner::Layer(Layer::EtherType(inside.ether_type.0, inside.payload))
        }
        Some(inside) => skipped(Skipped::EtherType(inside.ether_type.0)),
        None => skipped(Skipped::EtherType(read_as.unwrap_or(0))),
    }
}

/// Returns the datagram. If the datagram belongs to a UDP tunnel, returns the packet that it carries.
fn tunnelled<'a>(datagram: &Datagram<'a>) -> Inner<'a> {
    let payload = datagram.payload;
    let inside = |at: usize| payload.get(at..);
    let layer = match datagram.to.1 {
        port if VXLAN.contains(&port) && payload.first() == Some(&0x08) => inside(8).map(Layer::Ethernet),
        GENEVE if payload.first().is_some_and(|first| first >> 6 == 0) => {
            let options = usize::from(payload[0] & 0x3f) * 4;
            word(payload, 2).zip(inside(8 + options)).map(|(kind, rest)| Layer::EtherType(kind, rest))
        }
        // Message type 255 (G-PDU) carries a user's packet. The header has 8 bytes if it has no optional fields.
        GTP_U if payload.starts_with(&[0x30, 0xff]) => inside(8).map(Layer::Ip),
        GTP_U if payload.get(1) == Some(&0xff) && payload[0] >> 5 == 1 => gtp(payload).map(Layer::Ip),
        _ => None,
    };
    if let Some(layer) = layer {
        return Inner::Layer(layer);
    }
    Inner::Content(Content::Datagram(Datagram { payload: relayed(payload).unwrap_or(payload), ..*datagram }))
}

/// Skips GTP-U's header, including its extension headers (3GPP TS 29.281, section 5).
fn gtp(payload: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    let mut next = if payload[0] & 0x04 != 0 { *payload.get(11)? } else { 0 };
    while next != 0 {
        let length = usize::from(*payload.get(at)?).max(1) * 4;
        next = *payload.get(at + length - 1)?;
        at += length;
    }
    payload.get(at..)
}

/// Whether a datagram is a Send or Data indication of TURN. Such a datagram carries another datagram (RFC 8656, section
/// 11).
pub(crate) fn is_indication(payload: &[u8]) -> bool {
    matches!(word(payload, 0), Some(0x0016 | 0x0017)) && payload.get(4..8) == Some(&STUN_COOKIE)
}

/// Returns the datagram that TURN relays. It is in ChannelData (RFC 8656, section 12.4), or in a Send or Data
/// indication (section 11). Returns `None` for other payloads.
fn relayed(payload: &[u8]) -> Option<&[u8]> {
    let kind = word(payload, 0)?;
    let length = usize::from(word(payload, 2)?);
    if (0x4000..0x5000).contains(&kind) {
        // Take at most `length` bytes, because padding to four bytes may follow. There may be fewer bytes, because the
        // capture may have cut the datagram.
        return payload.get(4..).map(|data| &data[..length.min(data.len())]).filter(|data| !data.is_empty());
    }
    if !is_indication(payload) {
        return None;
    }
    let mut rest = payload.get(20..)?;
    while let (Some(attribute), Some(length)) = (word(rest, 0), word(rest, 2)) {
        let data = rest.get(4..)?;
        let length = usize::from(length);
        if attribute == 0x0013 {
            return Some(&data[..length.min(data.len())]);
        }
        rest = data.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Returns the transaction ID of a STUN message (RFC 8489, section 5), and whether the message is a response. Returns
/// `None` for other payloads.
pub(crate) fn stun(payload: &[u8]) -> Option<([u8; 12], bool)> {
    let kind = word(payload, 0).filter(|kind| kind >> 14 == 0)?;
    let id = payload.get(8..20).filter(|_| payload.get(4..8) == Some(&STUN_COOKIE))?;
    let class = kind & 0x0110;
    matches!(class, 0 | 0x0100 | 0x0110).then_some((id.try_into().ok()?, class != 0))
}

#[cfg(test)]
mod tests {
    use super::fragment_of;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fragment_header_is_found_behind_others_and_headers_that_are_cut_short_have_none(
            id: u32,
            offset in 0u16..8192,
            options in 0u8..4,
            cut in 1usize..9,
            any in prop::collection::vec(any::<u8>(), 0..64),
            kind: u8,
        ) {
            let mut headers = vec![0; (usize::from(options) + 1) * 8];
            (headers[0], headers[1]) = (44, options);
            headers.extend([17, 0]);
            headers.extend((offset << 3 | 1).to_be_bytes());
            headers.extend(id.to_be_bytes());
            prop_assert_eq!(fragment_of(0, &headers), (id, offset == 0));
            let short = &headers[..headers.len() - cut];
            prop_assert!(cut < 5 || fragment_of(0, short) == (0, true));
            let _ = fragment_of(kind, &any);
        }
    }
}
