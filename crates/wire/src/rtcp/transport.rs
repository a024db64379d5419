//! Transport-wide congestion control feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01, section 3.1, in the
//! form of libwebrtc). It reports arrivals by a sequence number that counts all packets of a transport, across streams.

use super::acknowledged::{peer_time, unwrap};
use super::congestion::MAX_REPORTS;
use super::{Acknowledged, Arrived, FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::Reader;
use steadycast_units::{PeerTime, Span, Time};

pub(super) const TRANSPORT_WIDE: u8 = 15;
/// Bytes before the chunks: RTCP header, SSRCs, base number, status count, reference time and report count.
const HEAD: usize = 20;
const MAX_RUN: usize = 0x1fff;

/// An arrival time on the receiver's clock in units of 250 µs, modulo 2³².
///
/// The upper 24 bits are the reference time in units of 64 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks(pub u32);

impl Ticks {
    /// One unit: 250 µs.
    pub const UNIT: Span = Span::micros(250);

    /// Returns the ticks of a local time, rounded down.
    pub const fn of(at: Time) -> Self {
        Self((at.as_nanos() / Self::UNIT.as_nanos()) as u32)
    }
    /// Returns the time on the peer's clock that is nearest to the earlier time `near`. For the first report `near` is
    /// `None`, and the reference time is read as a signed number.
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        peer_time(unwrap(self.0, PER_SECOND, near, i64::from(self.0 as i32)), PER_SECOND)
    }
}

const PER_SECOND: i64 = 4_000;

/// The status of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStatus {
    /// The packet has not arrived.
    Missing,
    /// The packet arrived at an unknown time.
    Untimed,
    /// The packet arrived at this time.
    At(Ticks),
}

/// A report on the packets of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportFeedback {
    /// The SSRC of the reporting participant.
    pub sender: u32,
    /// The SSRC of one of the transport's sources.
    pub media: u32,
    /// The number of the report, modulo 256.
    pub count: u8,
    /// The transport-wide sequence number of the first packet.
    pub begin_seq: u16,
    /// The statuses of the packets from `begin_seq` on.
    pub packets: Vec<PacketStatus>,
}

impl TransportFeedback {
    /// Returns RTCP packets of at most `max` bytes, but at least one status each. Their feedback counts begin at
    /// `count`. Arrivals more than 8.19 s apart are split, as a delta has 16 bits.
    pub fn to_packets(&self, max: usize) -> Vec<Packet> {
        let (mut packets, mut begin, mut last, mut deltas) = (Vec::new(), 0, None, 0);
        for (n, status) in self.packets.iter().enumerate() {
            let taken = n - begin;
            let mut delta = Delta::of(*status, last);
            let len = |delta: Option<Delta>| deltas + delta.map_or(0, Delta::len);
            // Each chunk except the last covers at least seven packets.
            let full = HEAD + (taken + 1).div_ceil(7) * 2 + len(delta) > max || taken == MAX_REPORTS;
            if taken > 0 && (full || delta.is_none()) {
                packets.push(self.part(begin..n, packets.len()));
                (begin, deltas) = (n, 0);
                delta = Delta::of(*status, None);
            }
            deltas += delta.map_or(0, Delta::len);
            if n == begin {
                last = None;
            }
            if let PacketStatus::At(at) = status {
                last = Some(*at);
            }
        }
        packets.push(self.part(begin..self.packets.len(), packets.len()));
        packets
    }

    /// Returns report `number` on these packets, whose arrival-time deltas must fit into 16 bits.
    fn part(&self, range: std::ops::Range<usize>, number: usize) -> Packet {
        let statuses = &self.packets[range.clone()];
        let first = statuses.iter().find_map(|status| match status {
            PacketStatus::At(at) => Some(*at),
            _ => None,
        });
        let mut fci = Vec::new();
        fci.extend_from_slice(&self.begin_seq.wrapping_add(range.start as u16).to_be_bytes());
        fci.extend_from_slice(&(statuses.len() as u16).to_be_bytes());
        let reference = first.map_or(0, |first| first.0 >> 8);
        let count = self.count.wrapping_add(number as u8);
        fci.extend_from_slice(&(reference << 8 | u32::from(count)).to_be_bytes());
        let mut last = None;
        let deltas: Vec<Delta> = statuses
            .iter()
            .map(|status| {
                let delta = Delta::of(*status, last).unwrap_or(Delta::Untimed);
                if let PacketStatus::At(at) = status {
                    last = Some(*at);
                }
                delta
            })
            .collect();
        // Without times, received packets have the symbol of a small delta, but no delta.
        let symbols: Vec<u8> = deltas
            .iter()
            .map(|delta| match delta {
                Delta::Missing => 0,
                Delta::Untimed if first.is_none() => 1,
                Delta::Untimed => 3,
                Delta::Small(_) => 1,
                Delta::Large(_) => 2,
            })
            .collect();
        chunks(&symbols, &mut fci);
        for delta in deltas {
            match delta {
                Delta::Small(delta) => fci.push(delta),
                Delta::Large(delta) => fci.extend_from_slice(&delta.to_be_bytes()),
                Delta::Missing | Delta::Untimed => {}
            }
        }
        let (sender, media) = (self.sender, self.media);
        Packet::Feedback { kind: FeedbackKind::Transport, fmt: TRANSPORT_WIDE, sender, media, fci }
    }

    /// Returns whether the packet has this report's type and format. It may be malformed.
    pub fn is(packet: &Packet) -> bool {
        matches!(packet, Packet::Feedback { kind: FeedbackKind::Transport, fmt: TRANSPORT_WIDE, .. })
    }

    /// Parses a packet of a compound; `Ok(None)` for another type.
    ///
    /// # Errors
    /// The packet ends before the announced length, or announces more than 16384 packets.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Feedback { kind: FeedbackKind::Transport, fmt: TRANSPORT_WIDE, sender, media, fci } = packet else {
            return Ok(None);
        };
        let what = "transport-wide feedback";
        let mut reader = Reader::new(fci);
        let begin_seq = reader.u16(what)?;
        let expected = usize::from(reader.u16(what)?);
        if expected > MAX_REPORTS {
            return Err(ParseError::TooMany { what: "packets in transport-wide feedback", limit: MAX_REPORTS });
        }
        let reference = reader.u32(what)?;
        let mut symbols = Vec::new();
        while symbols.len() < expected {
            let chunk = reader.u16(what)?;
            let left = expected - symbols.len();
            match chunk >> 14 {
                // A run-length chunk's second bit belongs to its symbol.
                0 | 1 => {
                    let run = usize::from(chunk) & MAX_RUN;
                    symbols.resize(symbols.len() + run.min(left), (chunk >> 13) as u8 & 3);
                }
                2 => symbols.extend((0..14).rev().take(left).map(|bit| (chunk >> bit) as u8 & 1)),
                _ => symbols.extend((0..7).rev().take(left).map(|pair| (chunk >> (2 * pair)) as u8 & 3)),
            }
        }
        // Symbols 1 and 2 have deltas of one and two bytes; 0 and 3 none.
        let needed: usize = symbols.iter().map(|symbol| usize::from(*symbol % 3)).sum();
        // Without times (version 2 of the header extension) there are no deltas, only up to three zeros of padding.
        let rest = reader.rest;
        let timed = needed <= rest.len() || rest.len() > 3 || rest.iter().any(|byte| *byte != 0);
        let mut ticks = reference & 0xffff_ff00;
        let mut status = |symbol: u8| {
            ticks = match symbol {
                0 => return Ok(PacketStatus::Missing),
                1 if timed => ticks.wrapping_add(reader.u8(what)?.into()),
                2 if timed => ticks.wrapping_add(i32::from(reader.u16(what)? as i16) as u32),
                _ => return Ok(PacketStatus::Untimed),
            };
            Ok(PacketStatus::At(Ticks(ticks)))
        };
        let packets = symbols.into_iter().map(&mut status).collect::<Result<_, _>>()?;
        Ok(Some(Self { sender: *sender, media: *media, count: reference as u8, begin_seq, packets }))
    }

    /// Returns each packet with its transport-wide sequence number. `near` is an earlier time on the receiver's clock,
    /// if any.
    pub fn acknowledged(&self, near: Option<PeerTime>) -> impl Iterator<Item = Acknowledged> + '_ {
        let seqs = (0..=u16::MAX).map(|n| self.begin_seq.wrapping_add(n));
        seqs.zip(&self.packets).map(move |(seq, status)| {
            let arrived = |at| Some(Arrived { at, ecn: None });
            let arrival = match status {
                PacketStatus::Missing => None,
                PacketStatus::Untimed => arrived(None),
                PacketStatus::At(ticks) => arrived(Some(ticks.peer(near))),
            };
            Acknowledged { seq, arrival }
        })
    }
}

#[derive(Clone, Copy)]
enum Delta {
    Missing,
    Untimed,
    Small(u8),
    Large(i16),
}

impl Delta {
    /// Returns the delta to the arrival at `last`; `None` if it exceeds 16 bits.
    fn of(status: PacketStatus, last: Option<Ticks>) -> Option<Self> {
        let at = match status {
            PacketStatus::Missing => return Some(Self::Missing),
            PacketStatus::Untimed => return Some(Self::Untimed),
            PacketStatus::At(at) => at.0,
        };
        // The first delta is relative to the report's reference time, a multiple of 64 ms.
        let delta = last.map_or(at & 0xff, |last| at.wrapping_sub(last.0)) as i32;
        match u8::try_from(delta) {
            Ok(small) => Some(Self::Small(small)),
            Err(_) => i16::try_from(delta).ok().map(Self::Large),
        }
    }
    const fn len(self) -> usize {
        match self {
            Self::Missing | Self::Untimed => 0,
            Self::Small(_) => 1,
            Self::Large(_) => 2,
        }
    }
}

/// Writes the status chunks: a run (0, symbol 2 bits, run 13 bits) if it covers at least as many packets as a vector
/// (1, 0 and fourteen one-bit symbols, or 1, 1 and seven two-bit symbols).
fn chunks(mut symbols: &[u8], out: &mut Vec<u8>) {
    while let Some(first) = symbols.first() {
        let run = symbols.iter().take_while(|symbol| *symbol == first).count().min(MAX_RUN);
        // One-bit symbols only distinguish "not received" and "small delta".
        let narrow = symbols.iter().take(14).all(|symbol| *symbol < 2);
        let most = symbols.len().min(if narrow { 14 } else { 7 });
        let (chunk, taken) = if run >= most {
            (u16::from(*first) << 13 | run as u16, run)
        } else if narrow {
            let bits = symbols[..most].iter().zip((0..14).rev()).map(|(symbol, bit)| u16::from(*symbol) << bit);
            (0x8000 | bits.sum::<u16>(), most)
        } else {
            let pairs = symbols[..most].iter().zip((0..7).rev()).map(|(symbol, pair)| u16::from(*symbol) << (2 * pair));
            (0xc000 | pairs.sum::<u16>(), most)
        };
        out.extend_from_slice(&chunk.to_be_bytes());
        symbols = &symbols[taken..];
    }
}
