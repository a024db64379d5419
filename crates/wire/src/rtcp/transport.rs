//! Transport-wide congestion control feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01, section 3.1; as
//! libwebrtc reads and writes it): arrivals by a number that counts all packets of a transport, whatever their stream.

use super::acknowledged::{peer_time, unwrap};
use super::congestion::MAX_REPORTS;
use super::{Acknowledged, Arrived, FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::Reader;
use steadycast_units::{PeerTime, Span, Time};

pub(super) const TRANSPORT_WIDE: u8 = 15;
/// Bytes before the chunks: RTCP's header, both SSRCs, first number, count, reference time and report count.
const HEAD: usize = 20;
const MAX_RUN: usize = 0x1fff;

/// A time of arrival in units of 250 µs on the receiver's clock, modulo 2³². The upper 24 bits count the 64 ms of a
/// reference time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks(pub u32);

impl Ticks {
    /// One unit: 250 µs.
    pub const UNIT: Span = Span::micros(250);

    /// The ticks of a time on one's own clock, rounded down.
    pub const fn of(at: Time) -> Self {
        Self((at.as_nanos() / Self::UNIT.as_nanos()) as u32)
    }
    /// On the other end's clock: the point nearest to `near`, an earlier time on it. At first (`None`) the reference
    /// time counts as signed.
    pub fn peer(self, near: Option<PeerTime>) -> PeerTime {
        peer_time(unwrap(self.0, PER_SECOND, near, i64::from(self.0 as i32)), PER_SECOND)
    }
}

const PER_SECOND: i64 = 4_000;

/// What became of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStatus {
    /// The packet hasn't arrived.
    Missing,
    /// The packet arrived, and the report doesn't say when.
    Untimed,
    /// The packet arrived at this time.
    At(Ticks),
}

/// A report on the packets of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportFeedback {
    /// Who reports.
    pub sender: u32,
    /// One of the transport's sources.
    pub media: u32,
    /// The report's number, modulo 256.
    pub count: u8,
    /// The transport-wide number of the first packet.
    pub begin_seq: u16,
    /// From that number on.
    pub packets: Vec<PacketStatus>,
}

impl TransportFeedback {
    /// As RTCP packets of at most `max` bytes each (but room for one packet's status at least), numbered from `count`
    /// on. Another one begins where a packet came more than 8.19 s before or after the one numbered before it.
    pub fn to_packets(&self, max: usize) -> Vec<Packet> {
        let (mut packets, mut begin, mut last, mut deltas) = (Vec::new(), 0, None, 0);
        for (n, status) in self.packets.iter().enumerate() {
            let taken = n - begin;
            let mut delta = Delta::of(*status, last);
            let len = |delta: Option<Delta>| deltas + delta.map_or(0, Delta::len);
            // Each chunk but the last says of seven packets at least.
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

    /// A report on some of the packets, whose deltas fit.
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
        // Without any times, those that arrived have the symbol of a small delta, and there are no deltas.
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

    /// Whether a packet of a compound is such a report by its kind and format. It may be damaged all the same.
    pub fn is(packet: &Packet) -> bool {
        matches!(packet, Packet::Feedback { kind: FeedbackKind::Transport, fmt: TRANSPORT_WIDE, .. })
    }

    /// From a packet of a compound: `Ok(None)` when it is something else.
    ///
    /// # Errors
    /// The packet ends before what it announces, or announces more than 16384 packets.
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
                0 | 1 => {
                    let run = usize::from(chunk) & MAX_RUN;
                    symbols.resize(symbols.len() + run.min(left), (chunk >> 13) as u8 & 3);
                }
                2 => symbols.extend((0..14).rev().take(left).map(|bit| (chunk >> bit) as u8 & 1)),
                _ => symbols.extend((0..7).rev().take(left).map(|pair| (chunk >> (2 * pair)) as u8 & 3)),
            }
        }
        let needed: usize = symbols.iter().map(|symbol| usize::from(*symbol % 3)).sum();
        // A report that was asked for without times has no deltas (version 2 of the header extension); what is left of
        // it then is less than a word of zeros.
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

    /// Each packet, by its transport-wide number. `near` is an earlier time on the receiver's clock, `None` at first.
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
    /// Of a packet behind another that arrived at `last`; `None` when it doesn't fit into 16 bits.
    fn of(status: PacketStatus, last: Option<Ticks>) -> Option<Self> {
        let at = match status {
            PacketStatus::Missing => return Some(Self::Missing),
            PacketStatus::Untimed => return Some(Self::Untimed),
            PacketStatus::At(at) => at.0,
        };
        // The first one's is counted from the reference time, which is rounded down.
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

/// Run-length chunks (0, symbol 2, run 13) where they cover as much as a status vector would (1, 0, 14 symbols of a
/// bit; 1, 1, seven of two bits).
fn chunks(mut symbols: &[u8], out: &mut Vec<u8>) {
    while let Some(first) = symbols.first() {
        let run = symbols.iter().take_while(|symbol| *symbol == first).count().min(MAX_RUN);
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
