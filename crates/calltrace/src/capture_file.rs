//! Reads the records of a capture file: pcap (draft-ietf-opsawg-pcap) or pcapng (draft-ietf-opsawg-pcapng).

use crate::Problem;
use crate::decapsulation::Skipped;
use pcap_parser::pcapng::{Block, OptionCode};
use pcap_parser::{Linktype, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};
use std::collections::BTreeMap;
use std::time::Duration;
use steadycast_units::Span;

/// First four bytes of a pcapng file. They are the same in either byte order.
const PCAPNG: u32 = 0x0a0d_0d0a;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeSource {
    /// Number of the interface in the file.
    pub(crate) interface: usize,
    /// Resolution of the interface's times, as the file states it.
    pub(crate) every: Span,
}

pub(crate) enum Record<'a> {
    /// `whole` is the packet's length before the capture cut it.
    Packet { link: Linktype, at: Duration, source: TimeSource, whole: u32, bytes: &'a [u8] },
    /// A packet without a usable time.
    Untimed { link: Linktype, bytes: &'a [u8] },
    /// A record that can't be read.
    Unreadable(Skipped),
    /// Total number of packets that the capturing program has dropped so far.
    Dropped(u64),
}

pub(crate) fn is(bytes: &[u8]) -> bool {
    let magics = [PCAPNG, 0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];
    bytes.first_chunk().is_some_and(|four| magics.contains(&u32::from_be_bytes(*four)))
}

/// Reads all records and passes each to `take`. Returns the offset at which the file is cut or broken, or `None` if it
/// is intact.
///
/// # Errors
/// The file's header is damaged, or `take` fails.
pub(crate) fn read(
    bytes: &[u8],
    take: &mut impl FnMut(Record<'_>) -> Result<(), Problem>,
) -> Result<Option<u64>, Problem> {
    if bytes.starts_with(&PCAPNG.to_be_bytes()) { pcapng(bytes, take) } else { pcap(bytes, take) }
}

/// Link type, resolution of times (if_tsresol), and offset of times in seconds (if_tsoffset).
type Interface = (Linktype, u8, i64);

fn pcapng(bytes: &[u8], take: &mut impl FnMut(Record<'_>) -> Result<(), Problem>) -> Result<Option<u64>, Problem> {
    let mut rest = bytes;
    let mut is_big_endian = false;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut of_sections_before = 0;
    // A file may have several statistics blocks for one interface. Their counts are cumulative, so keep the largest
    // count of each interface.
    let (mut drops, mut section): (BTreeMap<(u32, u32), u64>, u32) = (BTreeMap::new(), 0);
    while !rest.is_empty() {
        let parsed = if is_big_endian { parse_block_be(rest) } else { parse_block_le(rest) };
        let Ok((next, block)) = parsed else {
            let at = (bytes.len() - rest.len()) as u64;
            return if at == 0 { Err(broken()) } else { Ok(Some(at)) };
        };
        // A block of length zero would cause an endless loop.
        if next.len() >= rest.len() {
            return Ok(Some((bytes.len() - rest.len()) as u64));
        }
        rest = next;
        match block {
            Block::SectionHeader(header) => {
                is_big_endian = header.big_endian();
                section += 1;
                of_sections_before += interfaces.len();
                interfaces.clear();
            }
            Block::InterfaceDescription(each) => interfaces.push((each.linktype, each.if_tsresol, each.if_tsoffset)),
            Block::EnhancedPacket(packet) => {
                let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                take(match interfaces.get(packet.if_id as usize) {
                    None => Record::Unreadable(Skipped::NoInterface),
                    Some(&(link, resolution, offset)) => match time(ticks, resolution, offset) {
                        None => Record::Untimed { link, bytes: data },
                        Some(at) => {
                            let interface = of_sections_before + packet.if_id as usize;
                            let source = TimeSource { interface, every: tick(resolution) };
                            Record::Packet { link, at, source, whole: packet.origlen, bytes: data }
                        }
                    },
                })?;
            }
            Block::SimplePacket(packet) => {
                // A simple packet block belongs to the first interface. Its data may be padded, so cut the padding off.
                take(match interfaces.first() {
                    None => Record::Unreadable(Skipped::NoInterface),
                    Some(&(link, ..)) => {
                        let length = (packet.origlen as usize).min(packet.data.len());
                        Record::Untimed { link, bytes: &packet.data[..length] }
                    }
                })?;
            }
            Block::InterfaceStatistics(statistics) => {
                let counts = statistics
                    .options
                    .iter()
                    .filter(|option| matches!(option.code, OptionCode::IsbIfDrop | OptionCode::IsbOsDrop))
                    .filter_map(|option| {
                        let eight: [u8; 8] = option.value().get(..8)?.try_into().ok()?;
                        Some(if is_big_endian { u64::from_be_bytes(eight) } else { u64::from_le_bytes(eight) })
                    });
                let most = counts.max().unwrap_or(0);
                let interface = drops.entry((section, statistics.if_id)).or_default();
                *interface = most.max(*interface);
                take(Record::Dropped(drops.values().fold(0, |sum: u64, count| sum.saturating_add(*count))))?;
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the ticks per second that if_tsresol specifies. The value is a power of ten, or a power of two if the
/// highest bit is set.
fn per_second(resolution: u8) -> Option<u128> {
    match resolution {
        two @ 0x80.. => 1_u128.checked_shl(u32::from(two & 0x7f)),
        ten => 10_u128.checked_pow(u32::from(ten)),
    }
}

/// Returns the duration of a tick, at least a nanosecond.
fn tick(resolution: u8) -> Span {
    Span::nanos(per_second(resolution).map_or(1, |ticks| (1_000_000_000 / ticks).max(1) as u64))
}

/// Converts ticks to a time since 1970. `resolution` is if_tsresol, and `offset` is if_tsoffset in seconds.
fn time(ticks: u64, resolution: u8, offset: i64) -> Option<Duration> {
    let nanos = (u128::from(ticks)).checked_mul(1_000_000_000)? / per_second(resolution)?;
    let nanos = i128::try_from(nanos).ok()? + i128::from(offset) * 1_000_000_000;
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

fn pcap(bytes: &[u8], take: &mut impl FnMut(Record<'_>) -> Result<(), Problem>) -> Result<Option<u64>, Problem> {
    let (mut rest, header) = parse_pcap_header(bytes).map_err(|_| broken())?;
    let parse = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
    // Use only the lower half, because the upper half describes the frame check sequence.
    let link = Linktype(header.network.0 & 0xffff);
    while !rest.is_empty() {
        // Stop at another file header or at zeros. The header occurs if files were concatenated without a tool. Zeros
        // occur if the capturing program was interrupted.
        if bytes.get(..4).is_some_and(|magic| rest.starts_with(magic)) || rest.starts_with(&[0; 16]) {
            return Ok(Some((bytes.len() - rest.len()) as u64));
        }
        let Ok((next, packet)) = parse(rest) else { return Ok(Some((bytes.len() - rest.len()) as u64)) };
        rest = next;
        let at = Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(u64::from(packet.ts_usec) * unit);
        let source = TimeSource { interface: 0, every: Span::nanos(unit) };
        take(Record::Packet { link, at, source, whole: packet.origlen, bytes: packet.data })?;
    }
    Ok(None)
}

fn broken() -> Problem {
    Problem::at(0, "this capture can't be read: its header is damaged", "capture again, or give another file")
}
