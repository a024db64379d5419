//! The feedback messages that Steadycast reads into: key frame requests (RFC 4585, section 6.3.1; RFC 5104, section
//! 4.3.1) and congestion control feedback (RFC 8888).

use super::{FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::{Reader, to_words};
use steadycast_units::Span;

const PLI: u8 = 1;
const FIR: u8 = 4;
const CCFB: u8 = 11;
/// Of RFC 8888, section 3.1: a report covers less than a quarter of the sequence space.
const MAX_REPORTS: usize = 16_384;
const MAX_STREAMS: usize = 256;

/// A receiver asks for a picture that needs no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFrameRequest {
    /// Picture loss indication: something was lost.
    PictureLoss {
        /// Who asks.
        sender: u32,
        /// Of which source.
        media: u32,
    },
    /// Full intra request: a decoder has to start. Repeats of a request keep its number.
    FullIntra {
        /// Who asks.
        sender: u32,
        /// Of which source.
        media: u32,
        /// The request's number, modulo 256.
        number: u8,
    },
}

impl KeyFrameRequest {
    /// As a packet of a compound.
    pub fn to_packet(self) -> Packet {
        let (fmt, sender, media, fci) = match self {
            Self::PictureLoss { sender, media } => (PLI, sender, media, Vec::new()),
            Self::FullIntra { sender, media, number } => {
                // The source stands in the entry; the field of the common header is 0.
                let [a, b, c, d] = media.to_be_bytes();
                (FIR, sender, 0, vec![a, b, c, d, number, 0, 0, 0])
            }
        };
        Packet::Feedback { kind: FeedbackKind::Payload, fmt, sender, media, fci }
    }
    /// All requests in a packet: none in one that isn't a request.
    pub fn all(packet: &Packet) -> impl Iterator<Item = Self> {
        let (pli, entries): (_, &[u8]) = match packet {
            Packet::Feedback { kind: FeedbackKind::Payload, fmt: PLI, sender, media, .. } => {
                (Some(Self::PictureLoss { sender: *sender, media: *media }), &[])
            }
            Packet::Feedback { kind: FeedbackKind::Payload, fmt: FIR, fci, .. } => (None, fci),
            _ => (None, &[]),
        };
        let by = match packet {
            Packet::Feedback { sender, .. } => *sender,
            _ => 0,
        };
        let entries = entries.chunks_exact(8).map(move |entry| Self::FullIntra {
            sender: by,
            media: u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]),
            number: entry[4],
        });
        pli.into_iter().chain(entries)
    }
}

/// How one packet arrived (RFC 8888, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketArrival {
    /// The two ECN bits of its IP header.
    pub ecn: u8,
    offset: u16,
}

impl PacketArrival {
    const TOO_LONG: u16 = 0x1ffe;
    const UNAVAILABLE: u16 = 0x1fff;

    /// It arrived this long before the report's time, rounded down to 1/1024 s.
    pub fn before(report: Span, ecn: u8) -> Self {
        let units = u128::from(report.as_nanos()) * 1024 / 1_000_000_000;
        Self { ecn: ecn & 3, offset: units.min(u128::from(Self::TOO_LONG)) as u16 }
    }
    /// It arrived, nobody knows when.
    pub fn unknown_time(ecn: u8) -> Self {
        Self { ecn: ecn & 3, offset: Self::UNAVAILABLE }
    }
    /// How long before the report's time; `None` when that is unknown or more than 8 s.
    pub fn offset(self) -> Option<Span> {
        (self.offset < Self::TOO_LONG).then(|| Span::nanos(u64::from(self.offset) * 1_000_000_000 / 1024))
    }
}

/// What arrived of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamArrivals {
    /// The source.
    pub ssrc: u32,
    /// The first sequence number reported.
    pub begin_seq: u16,
    /// From that number on; `None` for a packet that hasn't arrived. At most 16384, the rest isn't written.
    pub arrivals: Vec<Option<PacketArrival>>,
}

/// The per-packet feedback of RFC 8888.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionFeedback {
    /// Who reports.
    pub sender: u32,
    /// What arrived, by source.
    pub streams: Vec<StreamArrivals>,
    /// When the report was made: the middle of an NTP time, in 1/65536 s.
    pub report_time: u32,
}

impl CongestionFeedback {
    /// As a packet of a compound.
    pub fn to_packet(&self) -> Packet {
        let mut body = Vec::new();
        for stream in &self.streams {
            let arrivals = &stream.arrivals[..stream.arrivals.len().min(MAX_REPORTS)];
            body.extend_from_slice(&stream.ssrc.to_be_bytes());
            body.extend_from_slice(&stream.begin_seq.to_be_bytes());
            body.extend_from_slice(&(arrivals.len() as u16).to_be_bytes());
            for arrival in arrivals {
                let bits = arrival.map_or(0, |it| 0x8000 | u16::from(it.ecn) << 13 | it.offset);
                body.extend_from_slice(&bits.to_be_bytes());
            }
            body.resize(to_words(body.len()), 0);
        }
        body.extend_from_slice(&self.report_time.to_be_bytes());
        // RFC 8888 has no media source in its header: its first stream stands where RFC 4585 has that field, or,
        // without streams, the report time.
        let fci = body.split_off(4);
        let media = body.try_into().map_or(0, u32::from_be_bytes);
        Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, sender: self.sender, media, fci }
    }

    /// From a packet of a compound: `Ok(None)` when it is something else.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, sender, media, fci } = packet else {
            return Ok(None);
        };
        let mut reader = Reader::new(fci);
        let (mut streams, mut word) = (Vec::new(), *media);
        while !reader.rest().is_empty() {
            if streams.len() == MAX_STREAMS {
                return Err(ParseError::TooMany { what: "streams in congestion feedback", limit: MAX_STREAMS });
            }
            let begin_seq = reader.u16("congestion feedback")?;
            let count = usize::from(reader.u16("congestion feedback")?);
            if count > MAX_REPORTS {
                return Err(ParseError::TooMany { what: "packets in congestion feedback", limit: MAX_REPORTS });
            }
            let reports = reader.take(to_words(count * 2), "congestion feedback")?;
            let arrivals = reports.chunks_exact(2).take(count).map(|bits| {
                let bits = u16::from_be_bytes([bits[0], bits[1]]);
                let arrival = PacketArrival { ecn: (bits >> 13) as u8 & 3, offset: bits & 0x1fff };
                (bits & 0x8000 != 0).then_some(arrival)
            });
            streams.push(StreamArrivals { ssrc: word, begin_seq, arrivals: arrivals.collect() });
            word = reader.u32("congestion feedback")?;
        }
        Ok(Some(Self { sender: *sender, streams, report_time: word }))
    }
}
