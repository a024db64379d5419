//! Congestion control feedback (RFC 8888). According to erratum 8166, `num_reports` is the number of packet metric
//! blocks.

use super::acknowledged::{peer_time, unwrap};
use super::{Acknowledged, Arrived, FeedbackKind, Packet};
use crate::ParseError;
use crate::bytes::{Reader, to_words};
use steadycast_units::{Ecn, PeerTime, Span};

const CCFB: u8 = 11;
/// Maximum number of packets that a report may contain for one stream. It is a quarter of the sequence space (RFC 8888,
/// section 3.1).
pub(super) const MAX_REPORTS: usize = 16_384;
const MAX_STREAMS: usize = 256;
/// Length of a report without streams in bytes: the RTCP header, the sender's SSRC and the report timestamp.
const FRAME: usize = 12;
/// Length of a stream without packets in bytes: the SSRC, the first sequence number and the count.
const STREAM: usize = 8;

/// The arrival of a packet, as RFC 8888 reports it (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketArrival {
    /// The ECN field of the packet. It is [`Ecn::Ce`] if any copy of the packet was marked.
    pub ecn: Ecn,
    /// Time from the arrival to the report, in units of 1/1024 s. It has 13 bits.
    offset: u16,
}

impl PacketArrival {
    /// The value for a time of more than 8189/1024 s.
    const TOO_LONG: u16 = 0x1ffe;
    const UNAVAILABLE: u16 = 0x1fff;

    /// Creates an arrival that was `age` before the time of the report. The age is rounded down to 1/1024 s.
    pub fn before(age: Span, ecn: Ecn) -> Self {
        let units = u128::from(age.as_nanos()) * 1024 / 1_000_000_000;
        Self { ecn, offset: units.min(u128::from(Self::TOO_LONG)) as u16 }
    }
    /// Creates an arrival whose time is unknown or after the time of the report.
    pub fn unknown_time(ecn: Ecn) -> Self {
        Self { ecn, offset: Self::UNAVAILABLE }
    }
    /// Returns the time from the arrival to the report, in units of 1/1024 s. Returns `None` if it is unknown or above
    /// 8189/1024 s.
    fn units(self) -> Option<u16> {
        Some(self.offset).filter(|offset| *offset < Self::TOO_LONG)
    }
}

/// The part of a report that describes the packets of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamArrivals {
    /// The SSRC of the source.
    pub ssrc: u32,
    /// The first sequence number that is reported. If `arrivals` is empty, it is the highest sequence number received.
    pub begin_seq: u16,
    /// The arrivals of the packets from `begin_seq` on. `None` means that the packet is missing. At most 16384 arrivals
    /// are written.
    pub arrivals: Vec<Option<PacketArrival>>,
}

/// Per-packet feedback in the format of RFC 8888, section 3.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionFeedback {
    /// The SSRC of the reporting participant.
    pub sender: u32,
    /// The arrivals for each source.
    pub streams: Vec<StreamArrivals>,
    /// The report timestamp: the middle 32 bits of an NTP time, in units of 1/65536 s.
    pub report_time: u32,
}

impl CongestionFeedback {
    /// Converts the whole report to one packet, without a limit on its length. See also [`CongestionFeedback::split`].
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
            // If the number of packets is odd, pad to whole words (RFC 8888, section 3.1).
            body.resize(to_words(body.len()), 0);
        }
        body.extend_from_slice(&self.report_time.to_be_bytes());
        // Move the first four bytes of `body` to the field `media`, which is part of RFC 4585's header. These bytes are
        // the SSRC of the first stream. Without streams, they are the report timestamp.
        let fci = body.split_off(4);
        let media = body.try_into().map_or(0, u32::from_be_bytes);
        Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, sender: self.sender, media, fci }
    }

    /// Splits the report into reports of at most `max` bytes, including the RTCP header. A limit below 24 bytes is
    /// raised to 24 bytes. This is the size of a report on two packets of one source.
    pub fn split(&self, max: usize) -> Vec<Self> {
        let room = max.saturating_sub(FRAME).max(STREAM + 4);
        let fresh = || Self { streams: Vec::new(), ..*self };
        let (mut reports, mut report, mut left) = (Vec::new(), fresh(), room);
        for StreamArrivals { ssrc, begin_seq, arrivals } in &self.streams {
            let mut done = 0;
            loop {
                let rest = &arrivals[done..];
                // Begin a new report if only the header of the stream would fit. A header without at least one word of
                // packets would waste space.
                if left < STREAM + rest.len().min(2) * 2 || report.streams.len() == MAX_STREAMS {
                    reports.push(std::mem::replace(&mut report, fresh()));
                    left = room;
                }
                // Take an even number of packets, because two packets fill a word.
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

    /// Returns whether the packet has the type and format of this report. Its content is not checked.
    pub fn is(packet: &Packet) -> bool {
        matches!(packet, Packet::Feedback { kind: FeedbackKind::Transport, fmt: CCFB, .. })
    }

    /// Parses a packet of a compound. Returns `Ok(None)` if the packet has another type.
    ///
    /// # Errors
    /// Returns an error if the packet ends before the announced length. Also returns an error if it announces more than
    /// 256 streams, or more than 16384 packets of a stream.
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

    /// Returns the time of the report on the receiver's clock. `near` is an earlier time, if one is known. Of all
    /// possible values, the value nearest to it is returned.
    pub fn reported_at(&self, near: Option<PeerTime>) -> PeerTime {
        peer_time(self.reported(near), PER_SECOND)
    }

    /// Returns the source and the feedback for each packet. `near` is an earlier time on the receiver's clock, if one
    /// is known.
    pub fn acknowledged(&self, near: Option<PeerTime>) -> impl Iterator<Item = (u32, Acknowledged)> + '_ {
        let reported = self.reported(near);
        let arrived = move |arrival: PacketArrival| {
            // Multiply by 64, because the offset counts 1/1024 s and the timestamp counts 1/65536 s.
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
