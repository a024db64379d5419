//! Lists the UDP datagrams of a capture. The lists of two hosts can be compared packet by packet.

use crate::Problem;
use crate::capture::{FRAGMENTS_WITHIN, MOST_PACKETS, left_out, rtp};
use crate::capture_file::{self, Record};
use crate::decapsulation::{Content, Datagram, Fragment, FragmentedDatagram, Skipped, decapsulate};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use steadycast_units::counted;
use steadycast_wire::is_rtcp;

/// Number of payload bytes in the digest. A capture of 96 bytes per packet contains this many bytes after the headers
/// of Ethernet (14 bytes), IPv6 (40 bytes) and UDP (8 bytes).
const DIGESTED: usize = 34;

/// A UDP datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedDatagram {
    /// When the datagram was captured, as time since 1970-01-01 00:00 UTC on the capturing host's clock. For a
    /// fragmented datagram, this is when its last fragment was captured.
    pub at: Duration,
    /// The source address and port.
    pub from: SocketAddr,
    /// The destination address and port.
    pub to: SocketAddr,
    /// Size of the IP packet including its header, in bytes. The fragments of a datagram count as one packet.
    pub size: u64,
    /// Identification from the IPv4 header (RFC 791). It is `None` for IPv6.
    pub id: Option<u16>,
    /// The SSRC and the sequence number, if the payload begins like an RTP packet (RFC 3550).
    pub rtp: Option<(u32, u16)>,
    /// A digest of the payload's first bytes.
    pub digest: u64,
}

/// UDP datagrams in the order of the file, and notes on records that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams of which all fragments were captured. The capture may have cut their payload.
    pub all: Vec<CapturedDatagram>,
    /// Notes on records that were left out, with the reasons.
    pub notes: Vec<String>,
}

/// What is known of a fragmented datagram. `first` is set once the first fragment was captured. It has the datagram's
/// size in bytes and its index.
struct Fragments {
    last: Duration,
    bytes: u64,
    first: Option<(u64, usize)>,
}

#[derive(Default)]
struct Reading {
    /// Each datagram, and whether all of its fragments were captured.
    all: Vec<(CapturedDatagram, bool)>,
    fragments: BTreeMap<FragmentedDatagram, Fragments>,
    skipped: BTreeMap<Skipped, u64>,
    records: usize,
}

/// Reads the UDP datagrams of a capture in the format pcap or pcapng.
///
/// # Errors
/// The bytes are not a capture, its header is damaged, or it has too many packets.
pub fn datagrams(bytes: &[u8]) -> Result<Datagrams, Problem> {
    if !capture_file::is(bytes) {
        return Err(Problem::at(0, "this is not a capture", "give a file as .pcap or .pcapng"));
    }
    let mut reading = Reading::default();
    let cut = capture_file::read(bytes, &mut |record| reading.record(record))?;
    let mut notes = Vec::new();
    if let Some(at) = cut {
        notes.push(format!("the capture is cut or broken at byte {at}: what stands before is used"));
    }
    let missing = reading.all.iter().filter(|one| !one.1).count();
    if missing > 0 {
        notes.push(format!("{} without some of their fragments are left out", counted(missing as u64, "datagram")));
    }
    let orphans = reading.fragments.values().filter(|one| one.first.is_none()).count();
    if orphans > 0 {
        notes.push(format!("of {} the first fragment is missing", counted(orphans as u64, "datagram")));
    }
    notes.extend(left_out(&reading.skipped));
    let all = reading.all.into_iter().filter(|one| one.1).map(|one| one.0).collect();
    Ok(Datagrams { all, notes })
}

impl Reading {
    fn record(&mut self, record: Record<'_>) -> Result<(), Problem> {
        self.records += 1;
        if self.records > MOST_PACKETS {
            return Err(Problem::at(0, format!("more than {MOST_PACKETS} packets"), "cut it into parts"));
        }
        let skipped = match record {
            Record::Packet { link, at, whole, bytes, .. } => match decapsulate(link, bytes) {
                Content::Datagram(found) => {
                    self.datagram(at, &found, bytes.len() < whole as usize);
                    return Ok(());
                }
                Content::LaterFragment(fragment) => {
                    self.fragment(at, fragment, None);
                    return Ok(());
                }
                Content::Skipped(why) => why,
                Content::Tcp(_) => Skipped::Tcp,
            },
            Record::Untimed { .. } => Skipped::Timeless,
            Record::Unreadable(why) => why,
            Record::Dropped(_) => return Ok(()),
        };
        *self.skipped.entry(skipped).or_default() += 1;
        Ok(())
    }

    fn datagram(&mut self, at: Duration, found: &Datagram<'_>, is_cut: bool) {
        // RTCP has version 2 as well, so check the packet type too.
        let is_media = found.payload.first().is_some_and(|head| head >> 6 == 2) && !is_rtcp(found.payload);
        let header = if is_media { rtp(found.payload, is_cut) } else { None };
        let one = CapturedDatagram {
            at,
            from: found.from.into(),
            to: found.to.into(),
            size: found.size,
            id: found.id,
            rtp: header.map(|(header, ..)| (header.ssrc, header.seq)),
            digest: digest(&found.payload[..found.payload.len().min(DIGESTED)]),
        };
        self.all.push((one, found.fragment.is_none()));
        if let Some(fragment) = found.fragment {
            self.fragment(at, fragment, Some((fragment.all, self.all.len() - 1)));
        }
    }

    fn fragment(&mut self, at: Duration, fragment: Fragment, first: Option<(u64, usize)>) {
        let within = Duration::from_nanos(FRAGMENTS_WITHIN.as_nanos());
        let known = self.fragments.remove(&fragment.of).filter(|known| at.saturating_sub(known.last) <= within);
        let mut known = known.unwrap_or(Fragments { last: at, bytes: 0, first: None });
        known.last = known.last.max(at);
        known.bytes += fragment.bytes;
        known.first = known.first.or(first);
        match known.first.filter(|(all, _)| known.bytes >= *all).and_then(|(_, place)| self.all.get_mut(place)) {
            Some((one, is_whole)) => (one.at, *is_whole) = (known.last, true),
            None => _ = self.fragments.insert(fragment.of, known),
        }
    }
}

/// Returns the 64-bit FNV-1a hash.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
