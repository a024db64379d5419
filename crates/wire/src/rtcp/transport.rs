//! Transport-wide congestion control feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01, section 3.1, in the
//! form of libwebrtc). It identifies packets by a sequence number that all streams of a transport share.

use super::acknowledged::{peer_time, unwrap};
use super::congestion::MAX_REPORTS;
use super::{Acknowledged, Arrived, FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::Reader;
use steadycast_units::{PeerTime, Span, Time};

pub(super) const TRANSPORT_WIDE: u8 = 15;
/// Number of bytes before the chunks: RTCP header, SSRCs, base number, status count, reference time and report count.
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
    /// Returns this arrival as a time on the peer's clock. The value is only known modulo 2³², so the result is the one
    /// nearest to the earlier time `near`. If `near` is `None` (first report), the value is read as a signed number.
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

/// A feedback message about the packets of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportFeedback {
    /// The SSRC of the reporting participant.
    pub sender: u32,
    /// The SSRC of one of the transport's sources.
    pub media: u32,
    /// The feedback packet count, modulo 256.
    pub count: u8,
    /// The transport-wide sequence number of the first packet.
    pub begin_seq: u16,
    /// The statuses of consecutive packets. The first one has the sequence number `begin_seq`.
    pub packets: Vec<PacketStatus>,
}

impl TransportFeedback {
    /// Encodes the report as RTCP packets of at most `max` bytes each. Each RTCP packet has at least one status, even
    /// if that exceeds `max`. The feedback packet counts begin at `count`. A new RTCP packet begins where consecutive
    /// arrivals are more than 8.19 s apart, because a delta has 16 bits.
    pub fn to_packets(&self, max: usize) -> Vec<Packet> {
        let (mut packets, mut begin, mut last, mut deltas) = (Vec::new(), 0, None, 0);
        for (n, status) in self.packets.iter().enumerate() {
            let taken = n - begin;
            let mut delta = Delta::of(*status, last);
            let len = |delta: Option<Delta>| deltas + delta.map_or(0, Delta::len);
            // Each chunk except the last describes at least seven packets.
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

    /// Encodes the packets in `range` as the RTCP packet with the index `number`. Their arrival-time deltas must fit
    /// into 16 bits.
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
        // If no arrival time is known, a received packet gets the symbol of a small delta, but no delta is written.
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

    /// Returns whether the packet has the type and format of transport-wide feedback. The content is not checked.
    pub fn is(packet: &Packet) -> bool {
        matches!(packet, Packet::Feedback { kind: FeedbackKind::Transport, fmt: TRANSPORT_WIDE, .. })
    }

    /// Parses one packet of a compound RTCP packet. Returns `Ok(None)` if the packet has another type.
    ///
    /// # Errors
    /// Returns an error if the packet is shorter than it announces, or if it announces more than 16384 statuses.
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
                // The upper bit of the symbol is the second bit of the run-length chunk.
                0 | 1 => {
                    let run = usize::from(chunk) & MAX_RUN;
                    symbols.resize(symbols.len() + run.min(left), (chunk >> 13) as u8 & 3);
                }
                2 => symbols.extend((0..14).rev().take(left).map(|bit| (chunk >> bit) as u8 & 1)),
                _ => symbols.extend((0..7).rev().take(left).map(|pair| (chunk >> (2 * pair)) as u8 & 3)),
            }
        }
        // Symbol 1 has a delta of one byte, symbol 2 a delta of two bytes. Symbols 0 and 3 have no delta.
        let needed: usize = symbols.iter().map(|symbol| usize::from(*symbol % 3)).sum();
        // A report without arrival times (version 2 of the header extension) has no deltas. Only up to three zero bytes
        // of padding follow the chunks.
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

    /// Returns the arrival of each packet with its transport-wide sequence number. `near` is an earlier time on the
    /// receiver's clock, if one is known.
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
    /// Returns the delta between the arrival at `last` and this arrival. Returns `None` if the delta exceeds 16 bits.
    fn of(status: PacketStatus, last: Option<Ticks>) -> Option<Self> {
        let at = match status {
            PacketStatus::Missing => return Some(Self::Missing),
            PacketStatus::Untimed => return Some(Self::Untimed),
            PacketStatus::At(at) => at.0,
        };
        // The first delta is relative to the report's reference time, which is a multiple of 64 ms.
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

/// Writes the status chunks. Each chunk is a run of equal symbols or a vector of symbols. A run is chosen if it
/// describes at least as many packets as a vector would.
///
/// - A run has the bit 0, a symbol of 2 bits, and a length of 13 bits.
/// - A vector has the bits 1 and 0 and fourteen one-bit symbols, or the bits 1 and 1 and seven two-bit symbols.
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
