//! One direction of a call: what left, how it arrived, and what its sender believed.

use crate::Problem;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time};
use steadycast_wire::rtcp::{Acknowledged, Compound, CongestionFeedback, TransportFeedback};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived, on the receiver's clock.
    Arrived(PeerTime),
    /// It did not arrive.
    Lost,
    /// Nobody says.
    Unknown,
}

/// One packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it left, on the sender's clock, from the record's beginning.
    pub left: Time,
    /// The IP packet.
    pub size: Bytes,
    /// Its source.
    pub ssrc: u32,
    /// What became of it.
    pub fate: Fate,
}

/// A frame of the stream that carried most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When its first packet left.
    pub left: Time,
    /// Its RTP timestamp, counted on from the first frame's over its wraps: ticks of the stream's clock.
    pub ticks: i64,
    /// When its last packet arrived; `None` where one is missing, or nobody says.
    pub arrived: Option<PeerTime>,
    /// Its IP packets.
    pub size: Bytes,
}

/// A report: when it came, and of each packet that it tells of its place among those sent and its arrival, if it did.
pub type Told = (Time, Vec<(u32, Option<PeerTime>)>);

/// What left and what came back at the sender, in the order of its clock: what its controller was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Packets that left: when, their IP bytes, and whether they are of the stream that carried most.
    pub sent: Vec<(Time, Bytes, bool)>,
    /// Reports that came.
    pub reports: Vec<Told>,
}

/// What a file tells of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it was read from, in words.
    pub source: String,
    /// In the order of departures.
    pub packets: Vec<Flight>,
    /// Reports on single packets.
    pub reports: usize,
    /// What its controller was told; empty where the record was not made at the sender.
    pub exchange: Exchange,
    /// Whether its first packets are in the record: no report came sooner than one on them could.
    pub begins: bool,
    /// The sender's estimate, each time that it was logged.
    pub estimates: Vec<(Time, Rate)>,
    /// Frames in the order of departures.
    pub frames: Vec<Frame>,
    /// The least time from a departure to the report on it; `None` where the record was not made at the sender.
    pub round_trip: Option<Span>,
    /// How finely departures and arrivals are told.
    pub every: (Span, Span),
    /// What a reader has to know of the record.
    pub notes: Vec<String>,
}

/// Where a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where packets left.
    Sender,
    /// Where they arrived.
    Receiver,
}

/// A packet as a record has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    pub(crate) seen: Time,
    /// When it left by its own stamp, on a clock that begins near the record's.
    pub(crate) stamp: Option<Time>,
    pub(crate) size: Bytes,
    pub(crate) ssrc: u32,
    pub(crate) seq: u16,
    pub(crate) transport: Option<u16>,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
}

/// Unwraps send times in 2⁻¹⁸ s beside a record's clock.
pub(crate) struct Stamps {
    bits: u32,
    first: Option<(u32, Time)>,
}

/// What is added to times by stamps: packets that were stamped before the first one that was seen.
const BEFORE: Span = Span::secs(1);

impl Stamps {
    pub(crate) fn new(bits: u32) -> Self {
        Self { bits, first: None }
    }

    /// The stamp as a time, nearest to the one that `beside` says.
    pub(crate) fn unwrap(&mut self, raw: u32, beside: Time) -> Time {
        let (first, anchor) = *self.first.get_or_insert((raw, beside));
        let wrap = 1_i128 << self.bits;
        let gone = (i128::from(beside.as_nanos()) - i128::from(anchor.as_nanos())) * (1 << 18) / 1_000_000_000;
        let raw = (i128::from(raw) - i128::from(first)).rem_euclid(wrap);
        let ticks = raw + (gone - raw + wrap / 2).div_euclid(wrap) * wrap;
        let nanos = i128::from((anchor + BEFORE).as_nanos()) + ticks * 1_000_000_000 / (1 << 18);
        Time::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

/// One direction as a record has it: packets and reports in the order of their times.
pub(crate) struct Direction {
    pub(crate) packets: Vec<Sighting>,
    /// RTCP about it: when it was seen, and its bytes.
    pub(crate) reports: Vec<(Time, Vec<u8>)>,
    /// Where it was recorded; `None` where that has to be found out.
    pub(crate) side: Option<Side>,
    /// How finely its clock tells times.
    pub(crate) every: Span,
}

/// What a file holds, before departures and arrivals are joined.
pub(crate) struct Record {
    pub(crate) direction: Direction,
    pub(crate) estimates: Vec<(Time, Rate)>,
    pub(crate) source: &'static str,
    pub(crate) notes: Vec<String>,
}

impl Record {
    /// The call, by what its own end says of arrivals.
    pub(crate) fn alone(self) -> Result<Call, Problem> {
        // Stamps begin later than the record's clock.
        let later = if self.direction.stamped() { BEFORE } else { Span::ZERO };
        let mut call = self.direction.joined(self.notes)?;
        call.exchange.sent.iter_mut().for_each(|packet| packet.0 += later);
        call.exchange.reports.iter_mut().for_each(|report| report.0 += later);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source: self.source.to_owned(), ..call })
    }

    /// The call, by departures of this end and arrivals at the other.
    pub(crate) fn with(mut self, other: Self) -> Result<Call, Problem> {
        self.notes.extend(other.notes);
        let later = if self.direction.stamped() { BEFORE } else { Span::ZERO };
        let call = self.direction.across(other.direction, self.notes)?;
        let source = format!("{} joined with {}", self.source, other.source);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source, ..call })
    }
}

/// Numbers of one source, counted on over their wraps from `near`.
fn counted_on<'a>(
    packets: impl Iterator<Item = &'a Sighting> + 'a,
    near: i64,
) -> impl Iterator<Item = (i64, &'a Sighting)> + 'a {
    packets.scan(near, |last, packet| {
        *last += i64::from(packet.seq.wrapping_sub(*last as u16) as i16);
        Some((*last, packet))
    })
}

/// Arrivals that reports told.
#[derive(Default)]
struct Arrivals {
    fates: Vec<Option<Fate>>,
    arrived: usize,
    reports: Vec<Told>,
    round_trip: Option<Span>,
    begins: bool,
    fine: Option<Span>,
}

impl Direction {
    /// Joins departures with arrivals.
    ///
    /// # Errors
    /// Nothing says when packets arrived.
    pub(crate) fn joined(mut self, mut notes: Vec<String>) -> Result<Call, Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        self.reports.sort_by_key(|report| report.0);
        let told = self.told();
        let by_reports = self.side != Some(Side::Receiver) && told.arrived * 2 > self.packets.len();
        let stamped = self.stamped();
        if !by_reports && !stamped {
            let remedy = "record at the sender with its reports (TWCC or RFC 8888) readable, as an event log has them, \
                          or at the receiver with the header extension abs-send-time";
            return Err(Problem::at(0, "nothing in it says both when packets left and when they arrived", remedy));
        }
        let left = |packet: &Sighting| if stamped { packet.stamp.unwrap_or(packet.seen) } else { packet.seen };
        let seen = |packet: &Sighting| Fate::Arrived(PeerTime::from_nanos(packet.seen.as_nanos() as i64));
        let mut all: Vec<(Sighting, Flight)> = Vec::with_capacity(self.packets.len());
        for (i, packet) in self.packets.iter().enumerate() {
            let fate = if by_reports { told.fates[i].unwrap_or(Fate::Unknown) } else { seen(packet) };
            all.push((*packet, Flight { left: left(packet), size: packet.size, ssrc: packet.ssrc, fate }));
        }
        if !by_reports {
            notes.push("arrivals are the record's own: what was lost is known by the gaps in the numbers".to_owned());
        }
        let main = main_source(&all);
        let sent = all.iter().map(|(packet, _)| (packet.seen, packet.size, Some(packet.ssrc) == main)).collect();
        let missing = missing(&all);
        let frames = frames(&all, &missing);
        let mut packets: Vec<Flight> = all.into_iter().map(|one| one.1).chain(missing).collect();
        packets.sort_by_key(|flight| flight.left);
        let fine = if stamped { Span::micros(4) } else { self.every };
        Ok(Call {
            source: String::new(),
            packets,
            reports: told.reports.len(),
            exchange: if by_reports { Exchange { sent, reports: told.reports } } else { Exchange::default() },
            begins: told.begins,
            estimates: Vec::new(),
            frames,
            round_trip: told.round_trip.filter(|_| by_reports),
            every: (fine, if by_reports { told.fine.unwrap_or(self.every) } else { self.every }),
            notes,
        })
    }

    /// Whether each packet says when it left.
    fn stamped(&self) -> bool {
        !self.packets.is_empty() && self.packets.iter().all(|packet| packet.stamp.is_some())
    }

    /// Joins departures here with arrivals at the other end, by source and number.
    ///
    /// # Errors
    /// The two have less than half of this end's packets in common.
    fn across(mut self, mut other: Self, notes: Vec<String>) -> Result<Call, Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        other.packets.sort_by_key(|packet| packet.seen);
        let sources: BTreeSet<u32> = self.packets.iter().map(|packet| packet.ssrc).collect();
        let stamped = self.stamped();
        let mut all: Vec<(Sighting, Flight)> = Vec::with_capacity(self.packets.len());
        let mut arrived = 0;
        for ssrc in sources {
            let mine = || self.packets.iter().filter(move |packet| packet.ssrc == ssrc);
            let theirs = || other.packets.iter().filter(move |packet| packet.ssrc == ssrc);
            let near = mine().next().map_or(0, |packet| i64::from(packet.seq));
            let mut came: BTreeMap<i64, Time> = BTreeMap::new();
            for (number, packet) in counted_on(theirs(), near) {
                came.entry(number).or_insert(packet.seen);
            }
            let ends = came.keys().next().copied().zip(came.keys().next_back().copied());
            for (number, packet) in counted_on(mine(), near) {
                let fate = match (came.get(&number), ends) {
                    (Some(at), _) => Fate::Arrived(PeerTime::from_nanos(at.as_nanos() as i64)),
                    (None, Some((first, last))) if (first..=last).contains(&number) => Fate::Lost,
                    _ => Fate::Unknown,
                };
                arrived += usize::from(matches!(fate, Fate::Arrived(_)));
                let left = packet.stamp.filter(|_| stamped).unwrap_or(packet.seen);
                all.push((*packet, Flight { left, size: packet.size, ssrc, fate }));
            }
        }
        if arrived * 2 < all.len() {
            let what = "the two files have less than half of the packets in common";
            return Err(Problem::at(0, what, "give the two ends of one call, the sender's first"));
        }
        all.sort_by_key(|one| one.1.left);
        let frames = frames(&all, &[]);
        let told = self.told();
        Ok(Call {
            source: String::new(),
            packets: all.into_iter().map(|one| one.1).collect(),
            reports: self.reports.len(),
            exchange: Exchange::default(),
            begins: told.begins,
            estimates: Vec::new(),
            frames,
            round_trip: told.round_trip,
            every: (if stamped { Span::micros(4) } else { self.every }, other.every),
            notes,
        })
    }

    /// What the reports say of each packet: of several with one number the newest that had left before the report.
    fn told(&self) -> Arrivals {
        let mut told = Arrivals { fates: vec![None; self.packets.len()], ..Arrivals::default() };
        let mut newest: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        let (mut next, mut near) = (0, None);
        for (at, bytes) in &self.reports {
            while let Some(packet) = self.packets.get(next).filter(|packet| packet.seen <= *at) {
                for (key, number) in [(Some(packet.ssrc), Some(packet.seq)), (None, packet.transport)] {
                    if let Some(number) = number {
                        let table = newest.entry(key).or_insert_with(|| vec![u32::MAX; 1 << 16]);
                        table[usize::from(number)] = next as u32;
                    }
                }
                next += 1;
            }
            let Ok(compound) = Compound::parse(bytes) else { continue };
            let mut results = Vec::new();
            for packet in &compound.packets {
                let mut each = Vec::new();
                if let Ok(Some(report)) = TransportFeedback::from_packet(packet) {
                    each.extend(report.acknowledged(near).map(|one| (None, one)));
                    told.fine = Some(Span::micros(250));
                } else if let Ok(Some(report)) = CongestionFeedback::from_packet(packet) {
                    each.extend(report.acknowledged(near).map(|(ssrc, one)| (Some(ssrc), one)));
                    told.fine = Some(Span::nanos(976_563));
                }
                let mut last = None;
                for (key, Acknowledged { seq, arrival }) in each {
                    let Some(index) = newest.get(&key).map(|table| table[usize::from(seq)] as usize) else { continue };
                    // A number that nobody has used for half a round is another packet's.
                    let Some(fate) = told.fates.get_mut(index).filter(|_| next - index < 1 << 15) else { continue };
                    results.push((index as u32, arrival.and_then(|arrived| arrived.at)));
                    match arrival {
                        None if fate.is_none() => *fate = Some(Fate::Lost),
                        Some(arrived) if !matches!(fate, Some(Fate::Arrived(_))) => {
                            told.arrived += 1;
                            *fate = arrived.at.map(Fate::Arrived);
                            near = arrived.at.or(near);
                            last = last.max(Some(self.packets[index].seen));
                        }
                        _ => {}
                    }
                }
                if let Some(last) = last {
                    let trip = at.since(last);
                    told.round_trip = Some(told.round_trip.map_or(trip, |least| least.min(trip)));
                }
            }
            if !results.is_empty() {
                told.reports.push((*at, results));
            }
        }
        let waited = self.packets.first().zip(told.reports.first()).map(|(packet, report)| report.0.since(packet.seen));
        told.begins = waited.zip(told.round_trip).is_none_or(|(waited, least)| waited >= least);
        told
    }
}

/// The most packets in a row that are taken for lost: a longer gap is another beginning.
const LONGEST_GAP: u16 = 3000;

/// Packets that left before the record was made and were not seen there: gaps in the numbers of each source.
fn missing(all: &[(Sighting, Flight)]) -> Vec<Flight> {
    let mut last: BTreeMap<u32, (u16, Flight)> = BTreeMap::new();
    let mut gaps: BTreeMap<(u32, u16), Flight> = BTreeMap::new();
    for (packet, flight) in all {
        let Some((seq, before)) = last.get(&packet.ssrc).copied() else {
            last.insert(packet.ssrc, (packet.seq, *flight));
            continue;
        };
        let ahead = packet.seq.wrapping_sub(seq);
        if ahead == 0 || ahead > 0x8000 {
            gaps.remove(&(packet.ssrc, packet.seq)); // late, not lost
            continue;
        }
        if ahead <= LONGEST_GAP {
            let between = flight.left.since(before.left);
            for n in 1..ahead {
                let left = before.left + between.scale(f64::from(n) / f64::from(ahead));
                let lost = Flight { left, fate: Fate::Lost, ..*flight };
                gaps.insert((packet.ssrc, seq.wrapping_add(n)), lost);
            }
        }
        last.insert(packet.ssrc, (packet.seq, *flight));
    }
    gaps.into_values().collect()
}

/// The source that carried most.
fn main_source(all: &[(Sighting, Flight)]) -> Option<u32> {
    let mut carried: BTreeMap<u32, u64> = BTreeMap::new();
    for (packet, flight) in all {
        *carried.entry(packet.ssrc).or_default() += flight.size.get();
    }
    carried.iter().max_by_key(|(_, bytes)| **bytes).map(|(ssrc, _)| *ssrc)
}

/// The frames of the source that carried most, by their timestamps; an end without a marker is a missing packet.
fn frames(all: &[(Sighting, Flight)], missing: &[Flight]) -> Vec<Frame> {
    let Some(main) = main_source(all) else { return Vec::new() };
    let mut holes: Vec<Time> = missing.iter().filter(|flight| flight.ssrc == main).map(|flight| flight.left).collect();
    holes.sort();
    let mut frames: Vec<(u32, Frame, bool)> = Vec::new();
    let mut ticks = 0;
    for (packet, flight) in all.iter().filter(|(packet, _)| packet.ssrc == main) {
        let arrived = match flight.fate {
            Fate::Arrived(at) => Some(at),
            _ => None,
        };
        match frames.last_mut().filter(|frame| frame.0 == packet.timestamp) {
            Some((_, frame, ended)) => {
                frame.arrived = frame.arrived.zip(arrived).map(|(a, b)| a.max(b));
                frame.size += flight.size;
                *ended |= packet.marker;
            }
            None => {
                ticks += frames.last().map_or(0, |last| i64::from(packet.timestamp.wrapping_sub(last.0) as i32));
                let frame = Frame { left: flight.left, ticks, arrived, size: flight.size };
                frames.push((packet.timestamp, frame, packet.marker));
            }
        }
    }
    let until: Vec<Time> =
        frames.iter().skip(1).map(|frame| frame.1.left).chain([Time::from_nanos(u64::MAX)]).collect();
    let whole = frames.into_iter().zip(until).map(|((_, frame, ended), end)| {
        let hole = holes.partition_point(|at| *at < frame.left);
        let torn = !ended || holes.get(hole).is_some_and(|at| *at < end);
        Frame { arrived: frame.arrived.filter(|_| !torn), ..frame }
    });
    whole.collect()
}
