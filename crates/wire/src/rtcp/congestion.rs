//! Congestion control feedback (RFC 8888), with erratum 8166: `num_reports` is the number of packet metric blocks.

use super::acknowledged::{peer_time, unwrap};
use super::{Acknowledged, Arrived, FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::{Reader, to_words};
use steadycast_units::{Ecn, PeerTime, Span};

const CCFB: u8 = 11;
/// Maximum number of packets per stream and report: a quarter of the sequence space (RFC 8888, section 3.1).
pub(super) const MAX_REPORTS: usize = 16_384;
const MAX_STREAMS: usize = 256;
/// Bytes of a report without streams: RTCP header, sender's SSRC and report timestamp.
const FRAME: usize = 12;
/// Bytes of a stream without packets: SSRC, first number and count.
const STREAM: usize = 8;

/// The arrival of a packet (RFC 8888, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketArrival {
    /// The ECN field; [`Ecn::Ce`] if any copy of the packet was marked.
    pub ecn: Ecn,
    /// 13 bits, in 1/1024 s.
    offset: u16,
}

impl PacketArrival {
    /// More than 8189/1024 s.
    const TOO_LONG: u16 = 0x1ffe;
    const UNAVAILABLE: u16 = 0x1fff;

    /// Creates an arrival that is `age` old at the time of the report, rounded down to 1/1024 s.
    pub fn before(age: Span, ecn: Ecn) -> Self {
        let units = u128::from(age.as_nanos()) * 1024 / 1_000_000_000;
        Self { ecn, offset: units.min(u128::from(Self::TOO_LONG)) as u16 }
    }
    /// Creates an arrival at an unknown time, or after the report's time.
    pub fn unknown_time(ecn: Ecn) -> Self {
        Self { ecn, offset: Self::UNAVAILABLE }
    }
    /// Returns the time from arrival to report; `None` if unknown or above 8189/1024 s.
    pub fn offset(self) -> Option<Span> {
        self.units().map(|units| Span::nanos(u64::from(units) * 1_000_000_000 / 1024))
    }
    fn units(self) -> Option<u16> {
        Some(self.offset).filter(|offset| *offset < Self::TOO_LONG)
    }
}

/// The packets of one source in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamArrivals {
    /// The SSRC of the source.
    pub ssrc: u32,
    /// The first reported sequence number. If `arrivals` is empty, it is the highest sequence number received.
    pub begin_seq: u16,
    /// The arrivals from `begin_seq` on; `None` if missing. At most 16384 are written.
    pub arrivals: Vec<Option<PacketArrival>>,
}

/// Per-packet feedback (RFC 8888, section 3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionFeedback {
    /// The SSRC of the reporting participant.
    pub sender: u32,
    /// The arrivals by source.
    pub streams: Vec<StreamArrivals>,
    /// The report timestamp: the middle of an NTP time, in 1/65536 s.
    pub report_time: u32,
}

impl CongestionFeedback {
    /// Returns the report as one packet of any length; see [`CongestionFeedback::split`].
    pub fn to_packet(&self) -> Packet {
        let mut body = Vec::new();
        for stream in &self.streams {
            let arrivals = &stream.arrivals[..stream.arrivals.len().min(MAX_REPORTS)];
            body.extend_from_slice(&stream.ssrc.to_be_bytes());
            body.extend_from_slice(&stream.begin_seq.to_be_bytes());
            body.extend_from_slice(&(arrivals.len() as u16).to_be_bytes());
            for arrival in arrivals {
                let bits = arrival.map_or(0, |it| 0x8000 | u16::from(it.ecn.bits()) << 13 | it.offset);
                body.extend_from_slice(&bits.to_be_bytes());
            }
            // An odd number of packets is padded to whole words (RFC 8888, section 3.1).
            body.resize(to_words(body.len()), 0);
        }
        body.extend_from_slice(&self.report_time.to_be_bytes());
        // The first four bytes of `body` become the media source in RFC 4585's header. They are the first stream's SSRC
        // or, without streams, the report timestamp.
        let fci = body.split_off(4);
        let media = body.try_into().map_or(0, u32::from_be_bytes);
        Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, sender: self.sender, media, fci }
    }

    /// Splits the report into reports of at most `max` bytes, including the RTCP header. If `max` is less than 24
    /// bytes, 24 bytes are used, which suffice for two packets of one source.
    pub fn split(&self, max: usize) -> Vec<Self> {
        let room = max.saturating_sub(FRAME).max(STREAM + 4);
        let fresh = || Self { streams: Vec::new(), ..*self };
        let (mut reports, mut report, mut left) = (Vec::new(), fresh(), room);
        for StreamArrivals { ssrc, begin_seq, arrivals } in &self.streams {
            let mut done = 0;
            loop {
                let rest = &arrivals[done..];
                // A stream's header without at least one word of packets would waste space.
                if left < STREAM + rest.len().min(2) * 2 || report.streams.len() == MAX_STREAMS {
                    reports.push(std::mem::replace(&mut report, fresh()));
                    left = room;
                }
                // Two packets fill a word.
                let taken = rest.len().min((left - STREAM) / 4 * 2).min(MAX_REPORTS);
                let begin_seq = begin_seq.wrapping_add(done as u16);
                report.streams.push(StreamArrivals { ssrc: *ssrc, begin_seq, arrivals: rest[..taken].to_vec() });
                left -= STREAM + to_words(taken * 2);
                done += taken;
                if done == arrivals.len() {
                    break;
                }
            }
        }
        reports.push(report);
        reports
    }

    /// Returns whether the packet has this report's type and format. It may be malformed.
    pub fn is(packet: &Packet) -> bool {
        matches!(packet, Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, .. })
    }

    /// Parses a packet of a compound; `Ok(None)` for another type.
    ///
    /// # Errors
    /// The packet ends before the announced length, or announces more than 256 streams or more than 16384 packets per
    /// stream.
    pub fn from_packet(packet: &Packet) -> Result<Option<Self>, ParseError> {
        let Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, sender, media, fci } = packet else {
            return Ok(None);
        };
        let mut reader = Reader::new(fci);
        let (mut streams, mut word) = (Vec::new(), *media);
        while !reader.rest.is_empty() {
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
                let arrival = PacketArrival { ecn: Ecn::from_bits((bits >> 13) as u8), offset: bits & 0x1fff };
                (bits & 0x8000 != 0).then_some(arrival)
            });
            streams.push(StreamArrivals { ssrc: word, begin_seq, arrivals: arrivals.collect() });
            word = reader.u32("congestion feedback")?;
        }
        Ok(Some(Self { sender: *sender, streams, report_time: word }))
    }

    /// Returns the report's time on the receiver's clock, as the value nearest to the earlier time `near`, if any.
    pub fn reported_at(&self, near: Option<PeerTime>) -> PeerTime {
        peer_time(self.reported(near), PER_SECOND)
    }

    /// Returns each packet with its source. `near` is an earlier time on the receiver's clock, if any.
    pub fn acknowledged(&self, near: Option<PeerTime>) -> impl Iterator<Item = (u32, Acknowledged)> + '_ {
        let reported = self.reported(near);
        let arrived = move |arrival: PacketArrival| {
            // The offset counts 1/1024 s, the timestamp 1/65536 s.
            let at = arrival.units().map(|units| peer_time(reported - i64::from(units) * 64, PER_SECOND));
            Arrived { at, ecn: Some(arrival.ecn) }
        };
        self.streams.iter().flat_map(move |stream| {
            let seqs = (0..=u16::MAX).map(|n| stream.begin_seq.wrapping_add(n));
            let each = move |(seq, arrival): (u16, &Option<PacketArrival>)| {
                (stream.ssrc, Acknowledged { seq, arrival: arrival.map(arrived) })
            };
            seqs.zip(&stream.arrivals).map(each)
        })
    }

    fn reported(&self, near: Option<PeerTime>) -> i64 {
        unwrap(self.report_time, PER_SECOND, near, self.report_time.into())
    }
}

const PER_SECOND: i64 = 65_536;
