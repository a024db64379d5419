//! Captures, pcap and pcapng: RTP with its header extensions, and the RTCP that reports on it where that is readable.

use crate::call::{Direction, Record, Side, Sighting, Stamps};
use crate::{Opener, Problem};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use steadycast_units::{Bytes, Span, Time, counted};
use steadycast_wire::is_rtcp;
use steadycast_wire::rtcp::{Compound, CongestionFeedback, Packet};
use steadycast_wire::rtp::RtpHeader;

/// The most packets of a file.
const MOST_PACKETS: usize = 20_000_000;
/// Times of a capture are within a day of each other.
const DAY: Duration = Duration::from_secs(86_400);
/// Packets with consecutive numbers that make RTP of a source.
const IN_SEQUENCE: u32 = 20;
/// Bytes of a datagram that must be there to read its header and extensions.
const LEAST_SNAP: u32 = 96;

type End = (IpAddr, u16);
type Elements = Vec<(u8, usize, u32)>;

/// A datagram of a capture.
struct Datagram<'a> {
    from: End,
    to: End,
    size: u64,
    payload: &'a [u8],
}

/// RTP from one end to another.
#[derive(Default)]
struct Way {
    packets: Vec<(Sighting, Elements)>,
    /// By source: the last number, and how many came in sequence at most.
    sources: BTreeMap<u32, (u16, u32, u32)>,
}

/// All that is read of a capture.
#[derive(Default)]
struct Seen {
    ways: BTreeMap<(End, End), Way>,
    reports: Vec<(Time, End, End, Vec<u8>)>,
    first: Option<Duration>,
    fragments: u64,
    short: u64,
    secured: bool,
    packets: usize,
}

/// Whether bytes begin as a capture does.
pub(crate) fn is(bytes: &[u8]) -> bool {
    let magics = [0x0a0d_0d0a, 0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];
    bytes.first_chunk().is_some_and(|four| magics.contains(&u32::from_be_bytes(*four)))
}

/// Reads a capture: the direction that `stream` names, or the only one.
///
/// # Errors
/// It is broken, holds no RTP or several calls, or does not say how packets arrived.
pub(crate) fn read(
    bytes: &[u8],
    stream: Option<u32>,
    side: Option<Side>,
    opener: Option<Opener<'_>>,
) -> Result<Record, Problem> {
    let mut seen = Seen::default();
    let cut =
        if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) { pcapng(bytes, &mut seen) } else { pcap(bytes, &mut seen) }?;
    let mut notes = Vec::new();
    if let Some(opener) = opener {
        let all = seen.reports.len();
        let sealed = counted(all as u64, "RTCP packet");
        seen.reports.retain_mut(|report| opener(&report.3).map(|plain| report.3 = plain).is_some());
        if all > 0 && seen.reports.is_empty() {
            return Err(Problem::at(0, format!("the key opens none of its {sealed}"), "give its session's key file"));
        }
        notes.push(format!("the key opened {} of {sealed}", seen.reports.len()));
    }
    if let Some(at) = cut {
        notes.push(format!("the capture is cut or broken at byte {at}: what stands before is used"));
    }
    if seen.fragments > 0 {
        notes.push(format!("{} of IP packets left out", counted(seen.fragments, "fragment")));
    }
    seen.ways.retain(|_, way| way.keep());
    if seen.ways.is_empty() {
        let (what, remedy) = if seen.short > 0 {
            let what = format!("{} cut so short that no header can be read", counted(seen.short, "packet"));
            (what, format!("capture {LEAST_SNAP} bytes or more of each: tcpdump -s {LEAST_SNAP}"))
        } else {
            let what = format!("it holds no RTP: no source with {IN_SEQUENCE} packets in sequence");
            (what, "capture where the call passes, and its UDP packets".to_owned())
        };
        return Err(Problem::at(0, what, remedy));
    }
    let way = chosen(&seen, stream)?;
    let (from, to) = way;
    let way = seen.ways.remove(&way).unwrap_or_default();
    let about = |(_, sender, receiver, bytes): &(Time, End, End, Vec<u8>)| {
        sender.0 == to.0 && receiver.0 == from.0 && names(bytes, &way.sources)
    };
    let reports: Vec<_> = seen.reports.iter().filter(|one| about(one)).map(|one| (one.0, one.3.clone())).collect();
    if seen.secured && reports.is_empty() {
        notes.push("the call is encrypted (DTLS on its port): its reports can't be read".to_owned());
    }
    let direction = Direction { packets: way.sightings(), reports, side, every: Span::micros(1) };
    Ok(Record { direction, estimates: Vec::new(), source: "a capture", notes })
}

/// The direction that is meant.
fn chosen(seen: &Seen, stream: Option<u32>) -> Result<(End, End), Problem> {
    let mut ways: Vec<_> = seen.ways.iter().map(|(ends, way)| (*ends, way, way.bytes())).collect();
    ways.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let listed: Vec<String> = ways.iter().take(20).map(|(_, way, bytes)| way.described(*bytes)).collect();
    let listed = listed.join("; ");
    if let Some(ssrc) = stream {
        let found = ways.iter().find(|(_, way, _)| way.sources.contains_key(&ssrc));
        return found.map(|(ends, ..)| *ends).ok_or_else(|| {
            Problem::at(0, format!("no stream has the SSRC {ssrc}"), format!("choose one of: {listed}"))
        });
    }
    // A direction that carries next to nothing, such as the other end's sound, is no call of its own.
    match &ways[..] {
        [_, (_, _, second), ..] if second * 10 > ways[0].2 => {
            let what = format!("it holds {} of media: {listed}", counted(ways.len() as u64, "direction"));
            Err(Problem::at(0, what, "name one by --stream SSRC"))
        }
        _ => Ok(ways[0].0),
    }
}

/// Whether a report is about one of these sources; one that names none counts.
fn names(bytes: &[u8], sources: &BTreeMap<u32, (u16, u32, u32)>) -> bool {
    let Ok(compound) = Compound::parse(bytes) else { return false };
    compound.packets.iter().any(|packet| match packet {
        Packet::Feedback { media, .. } if packet.tells_packets() => {
            let streams = CongestionFeedback::from_packet(packet).ok().flatten();
            sources.contains_key(media)
                || *media == 0
                || streams.is_some_and(|report| report.streams.iter().any(|one| sources.contains_key(&one.ssrc)))
        }
        _ => false,
    })
}

impl Way {
    fn add(&mut self, packet: Sighting, elements: Elements) {
        let source = self.sources.entry(packet.ssrc).or_insert((packet.seq, 0, 0));
        source.1 = if packet.seq == source.0.wrapping_add(1) { source.1 + 1 } else { 0 };
        source.2 = source.2.max(source.1);
        source.0 = packet.seq;
        self.packets.push((packet, elements));
    }

    /// Leaves out what is no RTP; whether anything is left.
    fn keep(&mut self) -> bool {
        self.sources.retain(|_, source| source.2 >= IN_SEQUENCE);
        self.packets.retain(|(packet, _)| self.sources.contains_key(&packet.ssrc));
        !self.packets.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.packets.iter().map(|(packet, _)| packet.size.get()).sum()
    }

    fn described(&self, bytes: u64) -> String {
        let main =
            self.sources.keys().max_by_key(|ssrc| self.packets.iter().filter(|one| one.0.ssrc == **ssrc).count());
        let at = |one: Option<&(Sighting, Elements)>| one.map_or(Time::from_nanos(0), |one| one.0.seen);
        let length = at(self.packets.last()).since(at(self.packets.first()));
        let ssrc = main.copied().unwrap_or(0);
        format!("SSRC {ssrc}, {:.1} s, {} kB", length.as_secs_f64(), bytes / 1000)
    }

    /// The packets, with what their extension elements are found to be.
    fn sightings(self) -> Vec<Sighting> {
        let kinds: std::collections::BTreeSet<(u8, usize)> =
            self.packets.iter().flat_map(|(_, elements)| elements.iter().map(|(id, len, _)| (*id, *len))).collect();
        let values = |kind: (u8, usize)| -> Vec<(Time, u32)> {
            let of = |elements: &Elements| elements.iter().find(|e| (e.0, e.1) == kind).map(|e| e.2);
            self.packets.iter().filter_map(|(packet, elements)| Some((packet.seen, of(elements)?))).collect()
        };
        let counts = kinds.iter().find(|kind| kind.1 == 2 && count(&values(**kind)));
        let stamps = kinds.iter().find(|kind| {
            let all = values(**kind);
            matches!(kind.1, 3 | 4) && all.len() == self.packets.len() && follow(&all, kind.1 as u32 * 8)
        });
        let mut unwrapped = Stamps::new(stamps.map_or(24, |kind| kind.1 as u32 * 8));
        let of = |elements: &Elements, kind: Option<&(u8, usize)>| {
            kind.and_then(|kind| elements.iter().find(|e| (e.0, e.1) == *kind)).map(|e| e.2)
        };
        let found = self.packets.iter().map(|(packet, elements)| Sighting {
            transport: of(elements, counts).map(|n| n as u16),
            stamp: of(elements, stamps).map(|raw| unwrapped.unwrap(raw, packet.seen)),
            ..*packet
        });
        found.collect()
    }
}

/// Whether values of 16 bits count packets: nine of ten are one more than the one before.
fn count(values: &[(Time, u32)]) -> bool {
    let next = values.windows(2).filter(|pair| pair[1].1 as u16 == (pair[0].1 as u16).wrapping_add(1)).count();
    values.len() as u32 >= IN_SEQUENCE && next * 10 >= (values.len() - 1) * 9
}

/// Whether values are send times in 2⁻¹⁸ s: steps are the clock's to half a second, and they do move.
fn follow(values: &[(Time, u32)], bits: u32) -> bool {
    let near = |pair: &[(Time, u32)]| {
        let step = pair[1].1.wrapping_sub(pair[0].1) & (u32::MAX >> (32 - bits));
        let step = f64::from(step) / f64::from(1 << 18) - pair[1].0.since(pair[0].0).as_secs_f64();
        step.abs() < 0.5
    };
    let same = values.windows(2).filter(|pair| pair[0].1 == pair[1].1).count();
    let followed = values.windows(2).filter(|pair| near(pair)).count();
    values.len() as u32 >= IN_SEQUENCE && followed * 10 >= (values.len() - 1) * 9 && same * 2 < values.len()
}

impl Seen {
    /// Takes a packet as it was captured.
    fn packet(&mut self, link: DataLink, at: Duration, whole: u32, bytes: &[u8]) -> Result<(), Problem> {
        self.packets += 1;
        if self.packets > MOST_PACKETS {
            return Err(Problem::at(0, format!("more than {MOST_PACKETS} packets"), "cut it into parts"));
        }
        let first = *self.first.get_or_insert(at);
        // The clock is the capture's; what was stamped before the first packet is not before its zero.
        let since = (at + Duration::from_secs(1)).saturating_sub(first);
        if since > DAY || first > at + DAY {
            return Err(Problem::at(0, "its times are more than 24 h apart", "give a capture of one call"));
        }
        let at = Time::from_nanos(since.as_nanos() as u64);
        let Some(ip) = network(link, bytes) else { return Ok(()) };
        let cut = bytes.len() < whole as usize;
        match datagram(ip) {
            Some(Ok(found)) => self.datagram(at, &found, cut),
            Some(Err(Skipped::Fragment)) => self.fragments += 1,
            Some(Err(Skipped::Short)) => self.short += 1,
            None => {}
        }
        Ok(())
    }

    fn datagram(&mut self, at: Time, found: &Datagram<'_>, cut: bool) {
        let Some(&head) = found.payload.first() else { return };
        // RFC 7983: below 4 STUN, 20 to 63 DTLS, 128 to 191 RTP and RTCP.
        self.secured |= (20..=63).contains(&head);
        if head >> 6 != 2 {
            return;
        }
        if is_rtcp(found.payload) {
            self.reports.push((at, found.from, found.to, found.payload.to_vec()));
            return;
        }
        // Padding is counted by a last byte, which may be cut off; here it is a part of the size.
        let mut plain = found.payload.to_vec();
        plain[0] &= !0x20;
        let Ok((header, extensions, _)) = RtpHeader::parse(&plain) else {
            self.short += u64::from(cut);
            return;
        };
        let short = extensions.filter(|(_, data)| (2..=4).contains(&data.len()));
        let number = |data: &[u8]| data.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        let mut elements: Elements = short.map(|(id, data)| (id, data.len(), number(data))).collect();
        elements.extend(header.send_time.map(|stamp| (steadycast_wire::rtp::SEND_TIME_ID, 4, stamp.0)));
        let packet = Sighting {
            seen: at,
            stamp: None,
            size: Bytes::new(found.size),
            ssrc: header.ssrc,
            seq: header.seq,
            transport: None,
            timestamp: header.timestamp,
            marker: header.marker,
        };
        self.ways.entry((found.from, found.to)).or_default().add(packet, elements);
    }
}

/// The IP packet in a frame of a link; `None` for other protocols.
fn network(link: DataLink, bytes: &[u8]) -> Option<&[u8]> {
    let ip_at = |at: usize, kind: usize| {
        let kind = u16::from_be_bytes(bytes.get(kind..kind + 2)?.try_into().ok()?);
        matches!(kind, 0x0800 | 0x86dd).then(|| bytes.get(at..)).flatten()
    };
    match link {
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(bytes),
        DataLink::ETHERNET => match bytes.get(12..14)? {
            [0x81, 0x00] | [0x88, 0xa8] => ip_at(18, 16),
            _ => ip_at(14, 12),
        },
        DataLink::LINUX_SLL => ip_at(16, 14),
        DataLink::LINUX_SLL2 => ip_at(20, 0),
        DataLink::NULL => bytes.get(4..),
        _ => None,
    }
}

enum Skipped {
    Fragment,
    Short,
}

/// The UDP datagram in an IP packet; `None` for other protocols.
fn datagram(ip: &[u8]) -> Option<Result<Datagram<'_>, Skipped>> {
    let word = |at: usize| Some(u16::from_be_bytes(ip.get(at..at + 2)?.try_into().ok()?));
    let (head, size, from, to) = match ip.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
            if *ip.get(9)? != 17 {
                return None;
            }
            if word(6)? & 0x3fff != 0 {
                return Some(Err(Skipped::Fragment));
            }
            (usize::from(ip[0] & 15) * 4, u64::from(word(2)?), address(12)?, address(16)?)
        }
        6 => {
            let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?));
            match *ip.get(6)? {
                17 => {}
                44 => return Some(Err(Skipped::Fragment)),
                _ => return None,
            }
            (40, u64::from(word(4)?) + 40, address(8)?, address(24)?)
        }
        _ => return None,
    };
    let payload = match (word(head), word(head + 2), ip.get(head + 8..)) {
        (Some(from_port), Some(to_port), Some(payload)) => (from_port, to_port, payload),
        _ => return Some(Err(Skipped::Short)),
    };
    Some(Ok(Datagram { from: (from, payload.0), to: (to, payload.1), size, payload: payload.2 }))
}

/// Reads all packets; where the file is cut, the byte.
fn pcapng(bytes: &[u8], seen: &mut Seen) -> Result<Option<u64>, Problem> {
    let mut reader = PcapNgReader::new(bytes).map_err(|error| broken(&error))?;
    loop {
        let before = reader.bytes_parsed();
        let Some(next) = reader.next_block() else { return Ok(None) };
        let Ok((block, state)) = next else { return Ok(Some(before)) };
        if let Block::EnhancedPacket(packet) = block {
            let Some(link) = state.interfaces().get(packet.interface_id as usize) else { continue };
            seen.packet(link.linktype, packet.timestamp, packet.original_len, &packet.data)?;
        }
    }
}

/// As [`pcapng`], of the older format.
fn pcap(bytes: &[u8], seen: &mut Seen) -> Result<Option<u64>, Problem> {
    let mut reader = PcapReader::new(bytes).map_err(|error| broken(&error))?;
    let link = reader.header().datalink;
    let mut at = 24;
    while let Some(next) = reader.next_packet() {
        let Ok(packet) = next else { return Ok(Some(at)) };
        seen.packet(link, packet.timestamp(), packet.orig_len(), packet.data())?;
        at += 16 + u64::from(packet.len());
    }
    Ok(None)
}

fn broken(error: &dyn std::fmt::Display) -> Problem {
    Problem::at(0, format!("this capture can't be read ({error})"), "capture again, or give another file")
}
