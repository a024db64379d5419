//! One direction of a call: what left, how it arrived, and what its sender believed.
//!
//! Each packet has a departure, an arrival and a fate that are known by stated evidence, or unknown for a stated
//! reason.
//! A call without evidence of both times is refused.

use crate::Problem;
use crate::clock;
use crate::evidence::{Arrival, Departure, Evidence, Fate, Unknown};
use crate::send_time::BEFORE;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time, counted};
use steadycast_wire::rtcp::{Acknowledged, Compound, CongestionFeedback, Packet, TransportFeedback};

/// One packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it left.
    pub departure: Departure,
    /// When it arrived.
    pub arrival: Arrival,
    /// What became of it.
    pub fate: Fate,
    /// The IP packet; of one that is not in the record, that of its neighbour.
    pub size: Bytes,
    /// Its source.
    pub ssrc: u32,
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
    /// False for a packet that only the numbers around it show: its time and size are its neighbours'.
    pub(crate) is_recorded: bool,
}

/// Where a capture was made, by its own evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vantage {
    /// Where packets left.
    Sender,
    /// Where they arrived.
    Receiver,
    /// The receiver is a round trip away.
    Before { receiver: Span },
    /// Nothing shows it.
    Unknown,
}

/// Why the reports of the receiver do not speak of single packets, where none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// No RTCP goes back.
    Absent,
    /// It is encrypted.
    Sealed,
    /// It was cut when it was captured.
    Cut,
    /// It is readable, and gives sums.
    Summary,
}

/// One direction as a record has it: packets and reports in the order of their times.
pub(crate) struct Direction {
    pub(crate) packets: Vec<Sighting>,
    /// RTCP about it: when it was seen, and its bytes.
    pub(crate) reports: Vec<(Time, Vec<u8>)>,
    /// Where it was recorded, as the user says or a log's kind; `None` where the record has to show it.
    pub(crate) side: Option<Side>,
    /// Where it was recorded, by the record's evidence.
    pub(crate) vantage: Vantage,
    pub(crate) hidden: Hidden,
    /// Whether the record says of itself that it missed packets.
    pub(crate) has_drops: bool,
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
        let (mut call, later) = self.direction.joined(self.notes)?;
        call.exchange.sent.iter_mut().for_each(|packet| packet.0 += later);
        call.exchange.reports.iter_mut().for_each(|report| report.0 += later);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source: self.source.to_owned(), ..call })
    }

    /// The call, by departures of this end and arrivals at the other.
    pub(crate) fn with(mut self, other: Self) -> Result<Call, Problem> {
        self.notes.extend(other.notes);
        let later = if self.direction.all_stamped() { BEFORE } else { Span::ZERO };
        let call = self.direction.across(other.direction, self.notes)?;
        let source = format!("{} joined with {}", self.source, other.source);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source, ..call })
    }
}

/// Extends the 16-bit sequence numbers of one source over their wraps (RFC 3550, appendix A.1), beginning at `near`.
fn counted_on<'a>(
    packets: impl Iterator<Item = &'a Sighting> + 'a,
    near: i64,
) -> impl Iterator<Item = (i64, &'a Sighting)> + 'a {
    packets.scan(near, |last, packet| {
        *last += i64::from(packet.seq.wrapping_sub(*last as u16) as i16);
        Some((*last, packet))
    })
}

/// What reports on single packets say of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    At(PeerTime),
    /// It arrived, and the report has no time for it.
    Untimed,
    Missing,
}

/// A packet that is not in the record, and the transport-wide numbers of its stream's packets around it.
type Missing = (Sighting, Option<(i64, i64)>);

/// Arrivals that reports told.
#[derive(Default)]
struct Arrivals {
    reported: Vec<Option<Reported>>,
    reports: Vec<Told>,
    round_trip: Option<Span>,
    begins: bool,
    fine: Option<Span>,
}

/// Whose clock says when packets left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DepartureClock {
    /// The packets' own stamps.
    Stamps,
    /// The record's.
    Record,
}

/// Delays that spread by less than this show no queue: both clocks may stand at one place.
const SAME_PLACE_NS: i64 = 1_000_000;
/// The share of a stream's packets that carry a stamp where a stream does.
const STAMPED_SHARE: f64 = 0.9;
/// The share of all bytes that the streams with evidence carry, at the least.
const LEAST_SHARE: f64 = 0.5;
/// Where reports tell of less than this share, a record's own arrivals are preferred to them.
const ENOUGH_REPORTED: f64 = 0.9;
/// Unknown fates are noted from this share of the packets on.
const NOTED_SHARE: f64 = 0.01;

const SENDER_REMEDY: &str = "record at the sender with its reports (TWCC or RFC 8888) readable, as an event log has \
                             them, or at the receiver with the header extension abs-send-time";

impl Direction {
    /// Joins departures with arrivals; also returns how much later than the record's clock its departures are.
    ///
    /// # Errors
    /// Nothing says when packets left, or when they arrived.
    pub(crate) fn joined(mut self, mut notes: Vec<String>) -> Result<(Call, Span), Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        self.reports.sort_by_key(|report| report.0);
        self.has_times()?;
        let main = main_source(&self.packets);
        self.add_missing();
        let mut told = self.told();
        let is_at_receiver =
            self.side == Some(Side::Receiver) || self.side.is_none() && self.vantage == Vantage::Receiver;
        let all: u64 = self.packets.iter().map(|packet| packet.size.get()).sum();
        let timed = self.packets.iter().zip(&told.reported).filter(|(_, one)| matches!(one, Some(Reported::At(_))));
        let timed: u64 = timed.map(|(packet, _)| packet.size.get()).sum();
        let timed_share = timed as f64 / all.max(1) as f64;
        let stamped = self.stamped_streams();
        let carried = self.packets.iter().filter(|packet| stamped.contains(&packet.ssrc));
        let stamped_share = carried.map(|packet| packet.size.get()).sum::<u64>() as f64 / all.max(1) as f64;
        let is_partial = timed_share < ENOUGH_REPORTED;
        let serves_itself = stamped_share > LEAST_SHARE && self.arrives_here(stamped_share, timed > 0).is_ok();
        let by_reports = !is_at_receiver && timed_share > LEAST_SHARE && !(is_partial && serves_itself);
        let departures = if by_reports { self.departures(&told, &stamped)? } else { DepartureClock::Stamps };
        if !by_reports {
            self.arrives_here(stamped_share, timed > 0)?;
            if let Vantage::Before { receiver } = self.vantage {
                notes.push(format!(
                    "the capture was made {:.0} ms (there and back) before the receiver: what happened behind it is \
                     not in it",
                    receiver.as_millis_f64()
                ));
            }
        }
        if departures == DepartureClock::Record && self.side != Some(Side::Receiver) {
            self.set_right(&mut told, &mut notes);
        }
        if departures == DepartureClock::Stamps {
            self.note_unstamped(&stamped, stamped_share, &mut notes)?;
        } else if self.side.is_none() && self.vantage != Vantage::Sender {
            notes.push("packets left as captured: what happened before the capture is not in it".to_owned());
        }
        let by_record = departures == DepartureClock::Record;
        let by_receiver_reports = self.by_receiver_reports(&told);
        let mut before = self.packets.iter().find_map(|packet| packet.stamp).unwrap_or(Time::ZERO);
        let mut left = |packet: &Sighting| match packet.stamp {
            _ if by_record && packet.is_recorded => Departure::Recorded(packet.seen),
            _ if by_record => Departure::Unknown(packet.seen),
            // Packets keep their order in most queues.
            None => Departure::Unknown(before),
            Some(at) => {
                before = at;
                if packet.is_recorded { Departure::Stamped(at) } else { Departure::Unknown(at) }
            }
        };
        let mut all: Vec<(Sighting, Flight)> = Vec::with_capacity(self.packets.len());
        for (i, packet) in self.packets.iter().enumerate() {
            let (arrival, fate) = match (by_reports, packet.is_recorded, told.reported[i]) {
                (false, true, _) => {
                    let at = PeerTime::from_nanos(packet.seen.as_nanos() as i64);
                    (Arrival::Recorded(at), Fate::Arrived(Evidence::Record))
                }
                (true, _, Some(Reported::At(at))) => (Arrival::Reported(at), Fate::Arrived(Evidence::Feedback)),
                (false, false, Some(Reported::At(_))) => {
                    (Arrival::Unknown(Unknown::Unrecorded), Fate::Arrived(Evidence::Feedback))
                }
                (_, _, Some(Reported::Untimed)) => {
                    (Arrival::Unknown(Unknown::TimeNotReported), Fate::Arrived(Evidence::Feedback))
                }
                (_, _, Some(Reported::Missing)) => (Arrival::Unknown(Unknown::Lost), Fate::Lost(Evidence::Feedback)),
                (_, false, None) => self.unseen(by_reports, by_receiver_reports.get(&i).copied()),
                (true, true, None) => (Arrival::Unknown(Unknown::NotReported), Fate::Unknown(Unknown::NotReported)),
            };
            all.push((
                *packet,
                Flight { departure: left(packet), arrival, fate, size: packet.size, ssrc: packet.ssrc },
            ));
        }
        if !by_reports {
            notes.push(
                "arrivals are the record's own: a gap in the numbers counts as a loss, unless the receiver's reports \
                 say that it arrived; packets that the record itself missed look the same"
                    .to_owned(),
            );
        }
        missed(&all, &mut notes);
        let sent = all.iter().map(|(packet, _)| (packet.seen, packet.size, Some(packet.ssrc) == main)).collect();
        let frames = frames(&all, main);
        let mut packets: Vec<Flight> = all.into_iter().map(|one| one.1).collect();
        packets.sort_by_key(|flight| flight.departure.near());
        let fine = if by_record { self.every } else { Span::micros(4) };
        let call = Call {
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
        };
        Ok((call, if by_record { Span::ZERO } else { BEFORE }))
    }

    fn has_times(&self) -> Result<(), Problem> {
        let same = self.packets.windows(2).all(|pair| pair[0].seen == pair[1].seen);
        if same && self.packets.len() > 1 {
            return Err(Problem::at(0, "all its packets have one time", "record the call again, or give the original"));
        }
        Ok(())
    }

    /// What becomes of a packet that is not in the record, of which no feedback speaks.
    fn unseen(&self, by_reports: bool, by_receiver_report: Option<Fate>) -> (Arrival, Fate) {
        match by_receiver_report {
            Some(fate @ Fate::Arrived(_)) => (Arrival::Unknown(Unknown::Unrecorded), fate),
            Some(fate) => (Arrival::Unknown(Unknown::Lost), fate),
            // Where packets leave, a gap is the record's own.
            None if by_reports || self.has_drops => {
                (Arrival::Unknown(Unknown::Unrecorded), Fate::Unknown(Unknown::Unrecorded))
            }
            None => (Arrival::Unknown(Unknown::Lost), Fate::Lost(Evidence::Gap)),
        }
    }

    /// Streams whose packets say when they left.
    fn stamped_streams(&self) -> BTreeSet<u32> {
        let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for packet in self.packets.iter().filter(|packet| packet.is_recorded) {
            let count = counts.entry(packet.ssrc).or_default();
            *count = (count.0 + usize::from(packet.stamp.is_some()), count.1 + 1);
        }
        counts.retain(|_, (stamped, all)| *stamped as f64 >= STAMPED_SHARE * *all as f64);
        counts.into_keys().collect()
    }

    /// Whether each packet says when it left.
    fn all_stamped(&self) -> bool {
        !self.packets.is_empty() && self.packets.iter().all(|packet| packet.stamp.is_some())
    }

    /// Notes the streams that do not say when their packets left.
    ///
    /// # Errors
    /// These carry most of the call.
    fn note_unstamped(&self, stamped: &BTreeSet<u32>, share: f64, notes: &mut Vec<String>) -> Result<(), Problem> {
        let mut others: BTreeMap<u32, u64> = BTreeMap::new();
        for packet in self.packets.iter().filter(|packet| packet.is_recorded && !stamped.contains(&packet.ssrc)) {
            *others.entry(packet.ssrc).or_default() += 1;
        }
        if share < LEAST_SHARE {
            let what = format!(
                "the streams that carry {:.0} % of it have no abs-send-time, and nothing else says when they left",
                100.0 * (1.0 - share)
            );
            return Err(Problem::at(0, what, SENDER_REMEDY));
        }
        if !others.is_empty() {
            let listed: Vec<String> =
                others.iter().map(|(ssrc, count)| format!("SSRC {ssrc} ({})", counted(*count, "packet"))).collect();
            let streams = listed.join(", ");
            notes.push(format!("no packet of {streams} says when it left: delays are those of the other streams"));
        }
        Ok(())
    }

    /// By whose clock packets left, where reports say when they arrived.
    ///
    /// # Errors
    /// The capture was made where packets arrived, or nothing shows that it was not.
    fn departures(&self, told: &Arrivals, stamped: &BTreeSet<u32>) -> Result<DepartureClock, Problem> {
        let recorded = || self.packets.iter().filter(|packet| packet.is_recorded);
        if recorded().all(|packet| stamped.contains(&packet.ssrc)) {
            return Ok(DepartureClock::Stamps);
        }
        if self.side == Some(Side::Sender) || self.vantage == Vantage::Sender {
            return Ok(DepartureClock::Record);
        }
        let by_stamp: Vec<(i64, i64)> = recorded().filter_map(since_stamp).collect();
        let fine = SAME_PLACE_NS + self.every.as_nanos() as i64;
        if clock::spread(&by_stamp).is_some_and(|spread| spread <= fine) {
            return Ok(DepartureClock::Record);
        }
        let arrivals: Vec<(i64, i64)> = self
            .packets
            .iter()
            .zip(&told.reported)
            .filter_map(|(packet, reported)| match reported {
                Some(Reported::At(at)) if packet.is_recorded => {
                    let seen = packet.seen.as_nanos() as i64;
                    Some((seen, at.as_nanos() - seen))
                }
                _ => None,
            })
            .collect();
        let coarse = told.fine.unwrap_or(Span::ZERO).as_nanos() as i64 + self.every.as_nanos() as i64;
        let spread = clock::spread(&arrivals);
        if by_stamp.is_empty() && spread.is_none_or(|spread| spread <= SAME_PLACE_NS + coarse) {
            let what = if spread.is_some() {
                "the capture's times and the receiver's agree to a millisecond: it may have been made where packets \
                 arrived, and then nothing says when they left"
            } else {
                "too few arrivals are reported to show at which end the capture was made: no five seconds have 20"
            };
            let remedy = "say --side sender if it was made at the sender; else capture there, or send abs-send-time";
            return Err(Problem::at(0, what, remedy));
        }
        Ok(if by_stamp.is_empty() { DepartureClock::Record } else { DepartureClock::Stamps })
    }

    /// Takes out steps of the record's clock, which the reported arrivals show.
    fn set_right(&mut self, told: &mut Arrivals, notes: &mut Vec<String>) {
        let seen = |packet: &Sighting| packet.seen.as_nanos() as i64;
        let timed = self.packets.iter().zip(&told.reported).enumerate();
        let timed: Vec<(usize, (i64, i64))> = timed
            .filter_map(|(i, (packet, reported))| match reported {
                Some(Reported::At(at)) if packet.is_recorded => Some((i, (seen(packet), at.as_nanos() - seen(packet)))),
                _ => None,
            })
            .collect();
        let points: Vec<(i64, i64)> = timed.iter().map(|one| one.1).collect();
        for step in clock::steps(&points) {
            let (from, by) = (timed[step.place].0, step.nanos);
            let at = self.packets[from].seen;
            let moved = |time: &mut Time| *time = Time::from_nanos(time.as_nanos().saturating_add_signed(by));
            told.reports.iter_mut().filter(|report| report.0 >= at).for_each(|report| moved(&mut report.0));
            self.packets[from..].iter_mut().for_each(|packet| moved(&mut packet.seen));
            notes.push(clock::set_note(-by));
        }
    }

    /// Checks that the record's own times are arrivals, and that packets say when they left.
    ///
    /// # Errors
    /// The true reason why one of these is unknown.
    fn arrives_here(&self, stamped_share: f64, any_report: bool) -> Result<(), Problem> {
        let reports = match self.hidden {
            _ if any_report => "its reports tell of less than half of its packets when they arrived",
            Hidden::Absent => "no reports of the receiver are in it",
            Hidden::Sealed => "SRTCP hides when packets arrived",
            Hidden::Cut => "its reports were cut when they were captured",
            Hidden::Summary => "its reports (RR) tell how many packets were lost, not when each arrived",
        };
        let remedy = match self.hidden {
            _ if any_report => "capture all of the receiver's reports, or at the receiver's side",
            Hidden::Absent => {
                "capture both directions, or at the receiver's side with the header extension abs-send-time"
            }
            Hidden::Sealed => {
                "give the other end's capture by --other-end or the session's --key-file, or capture at the receiver's \
                 side with the header extension abs-send-time"
            }
            Hidden::Cut => "capture whole packets: tcpdump -s 0",
            Hidden::Summary => SENDER_REMEDY,
        };
        if self.side == Some(Side::Sender) || self.side.is_none() && self.vantage == Vantage::Sender {
            let what =
                format!("it was recorded where packets left, and nothing in it says when they arrived: {reports}");
            return Err(Problem::at(0, what, remedy));
        }
        if stamped_share == 0.0 {
            let left = "no header extension advances as abs-send-time does";
            let what = if self.side == Some(Side::Receiver) {
                format!("nothing in it says when packets left: {left}")
            } else {
                format!("nothing in it says both when packets left ({left}) and when they arrived ({reports})")
            };
            let remedy = if self.side == Some(Side::Receiver) { SENDER_REMEDY } else { remedy };
            return Err(Problem::at(0, what, remedy));
        }
        if self.side == Some(Side::Receiver) || self.vantage == Vantage::Receiver {
            return Ok(());
        }
        let by_stamp: Vec<(i64, i64)> = self.packets.iter().filter_map(since_stamp).collect();
        let spread = clock::spread(&by_stamp);
        if spread.is_none_or(|spread| spread <= SAME_PLACE_NS + self.every.as_nanos() as i64) {
            let shown = if spread.is_some() {
                "its times and the packets' send times agree to a millisecond, as where packets leave"
            } else {
                "it has too few packets with send times to show at which end it was made (no five seconds have 20)"
            };
            let what = format!("{shown}, and nothing in it says when they arrived: {reports}");
            return Err(Problem::at(0, what, format!("{remedy}; say --side receiver if it was made there")));
        }
        Ok(())
    }

    /// Adds the packets that the numbers around them show to be missing in the record.
    ///
    /// Each gets a transport-wide number that no packet of the record has, between those of its stream's neighbours.
    fn add_missing(&mut self) {
        let mut numbers: BTreeSet<i64> = BTreeSet::new();
        let mut number = 0;
        // In the order in which packets left, if they say when.
        self.packets.sort_by_key(|packet| packet.stamp.unwrap_or(packet.seen));
        let numbered: Vec<(Sighting, Option<i64>)> = self
            .packets
            .iter()
            .map(|packet| {
                let counted = packet.transport.map(|wrapped| {
                    number += i64::from(wrapped.wrapping_sub(number as u16) as i16);
                    number
                });
                numbers.extend(counted);
                (*packet, counted)
            })
            .collect();
        let mut last: BTreeMap<u32, (Sighting, Option<i64>)> = BTreeMap::new();
        let mut gaps: BTreeMap<(u32, u16), Missing> = BTreeMap::new();
        for (packet, counted) in numbered {
            let Some((before, counted_before)) = last.get(&packet.ssrc).copied() else {
                last.insert(packet.ssrc, (packet, counted));
                continue;
            };
            let ahead = packet.seq.wrapping_sub(before.seq);
            if ahead == 0 || ahead > 0x8000 {
                gaps.remove(&(packet.ssrc, packet.seq)); // late, not lost
                continue;
            }
            if ahead <= LONGEST_GAP {
                for n in 1..ahead {
                    let share = f64::from(n) / f64::from(ahead);
                    let between = |from: Time, to: Time| from + to.since(from).scale(share);
                    let missing = Sighting {
                        seen: between(before.seen, packet.seen.max(before.seen)),
                        stamp: before.stamp.zip(packet.stamp).map(|(from, to)| between(from, to)),
                        seq: before.seq.wrapping_add(n),
                        transport: None,
                        marker: false,
                        is_recorded: false,
                        ..packet
                    };
                    gaps.insert((packet.ssrc, missing.seq), (missing, counted_before.zip(counted)));
                }
            }
            last.insert(packet.ssrc, (packet, counted));
        }
        let mut missing: Vec<Missing> = gaps.into_values().collect();
        // The one whose last possible number comes first chooses first: then each finds one, if there is one.
        missing.sort_by_key(|(packet, within)| (within.map(|within| within.1), packet.stamp, packet.seen));
        for (packet, within) in &mut missing {
            let free = within.and_then(|(from, to)| (from + 1..to).find(|number| !numbers.contains(number)));
            numbers.extend(free);
            packet.transport = free.map(|number| number as u16);
        }
        self.packets.extend(missing.into_iter().map(|one| one.0));
        self.packets.sort_by_key(|packet| packet.seen);
    }

    /// The fates of missing packets by receiver reports: between two of them the receiver counts its losses, and other
    /// gaps are the record's.
    fn by_receiver_reports(&self, told: &Arrivals) -> BTreeMap<usize, Fate> {
        let mut counts: BTreeMap<u32, Vec<(u32, i32)>> = BTreeMap::new();
        for (_, bytes) in &self.reports {
            for packet in Compound::parse(bytes).map_or(Vec::new(), |compound| compound.packets) {
                if let Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } = packet {
                    for block in blocks {
                        counts.entry(block.ssrc).or_default().push((block.highest_seq, block.cumulative_lost));
                    }
                }
            }
        }
        let mut fates = BTreeMap::new();
        for (ssrc, mut counts) in counts {
            counts.dedup_by_key(|count| count.0);
            let mine = || self.packets.iter().enumerate().filter(move |(_, packet)| packet.ssrc == ssrc);
            let Some((_, first)) = mine().next() else { continue };
            // The receiver counts cycles from its own beginning: numbers are compared from the first one here.
            let base = i64::from(first.seq);
            let place = |high: u32| base + i64::from(high.wrapping_sub(u32::from(first.seq)) as u16);
            let mut last = base;
            let mut gaps: BTreeMap<i64, usize> = BTreeMap::new();
            for (i, packet) in mine() {
                last += i64::from(packet.seq.wrapping_sub(last as u16) as i16);
                if !packet.is_recorded && told.reported[i].is_none() {
                    gaps.insert(last, i);
                }
            }
            let cycles: Vec<i64> = counts
                .iter()
                .scan((0_i64, None), |(cycle, before), count| {
                    let at = place(count.0);
                    if before.is_some_and(|before| at + 0x8000 < before) {
                        *cycle += 0x1_0000;
                    }
                    *before = Some(at);
                    Some(at + *cycle)
                })
                .collect();
            // Losses before the record are in the first report's sum, unless that is nothing.
            let begin = counts.first().filter(|count| count.1 <= 0).map(|_| (base - 1, 0));
            let known = begin.into_iter().chain(cycles.into_iter().zip(counts.iter().map(|count| count.1)));
            let known: Vec<(i64, i32)> = known.collect();
            for pair in known.windows(2) {
                let within: Vec<usize> =
                    gaps.range(pair[0].0 + 1..=pair[1].0.max(pair[0].0)).map(|(_, place)| *place).collect();
                let lost = usize::try_from(pair[1].1 - pair[0].1).unwrap_or(0).min(within.len());
                // Which of them were lost is not said: these are spread evenly.
                for (k, place) in within.iter().enumerate() {
                    let is_lost = (k + 1) * lost / within.len() > k * lost / within.len();
                    let evidence = Evidence::ReceiverReport;
                    fates.insert(*place, if is_lost { Fate::Lost(evidence) } else { Fate::Arrived(evidence) });
                }
            }
        }
        fates
    }

    /// Joins departures here with arrivals at the other end, by source and number.
    ///
    /// # Errors
    /// The two have less than half of this end's packets in common.
    fn across(mut self, mut other: Self, mut notes: Vec<String>) -> Result<Call, Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        self.reports.sort_by_key(|report| report.0);
        other.packets.sort_by_key(|packet| packet.seen);
        self.has_times()?;
        other.has_times()?;
        let told = self.told();
        let sources: BTreeSet<u32> = self.packets.iter().map(|packet| packet.ssrc).collect();
        let stamped = self.all_stamped();
        let mut all: Vec<(Sighting, Flight)> = Vec::with_capacity(self.packets.len());
        let mut arrived = 0;
        for ssrc in sources {
            let mine = || self.packets.iter().filter(move |packet| packet.ssrc == ssrc);
            let theirs = || other.packets.iter().filter(move |packet| packet.ssrc == ssrc);
            let reported = self.packets.iter().zip(&told.reported).filter(|(packet, _)| packet.ssrc == ssrc);
            let near = mine().next().map_or(0, |packet| i64::from(packet.seq));
            let mut came: BTreeMap<i64, Time> = BTreeMap::new();
            for (number, packet) in counted_on(theirs(), near) {
                came.entry(number).or_insert(packet.seen);
            }
            let ends = came.keys().next().copied().zip(came.keys().next_back().copied());
            for ((number, packet), (_, reported)) in counted_on(mine(), near).zip(reported) {
                let (arrival, fate) = match (came.get(&number), reported) {
                    (Some(at), _) => {
                        let at = PeerTime::from_nanos(at.as_nanos() as i64);
                        (Arrival::Recorded(at), Fate::Arrived(Evidence::Record))
                    }
                    (None, Some(Reported::At(_) | Reported::Untimed)) => {
                        (Arrival::Unknown(Unknown::Unrecorded), Fate::Arrived(Evidence::Feedback))
                    }
                    (None, Some(Reported::Missing)) => {
                        (Arrival::Unknown(Unknown::Lost), Fate::Lost(Evidence::Feedback))
                    }
                    (None, None) if !ends.is_some_and(|(first, last)| (first..=last).contains(&number)) => {
                        (Arrival::Unknown(Unknown::Unrecorded), Fate::Unknown(Unknown::Unrecorded))
                    }
                    (None, None) if other.has_drops => {
                        (Arrival::Unknown(Unknown::Unrecorded), Fate::Unknown(Unknown::Unrecorded))
                    }
                    (None, None) => (Arrival::Unknown(Unknown::Lost), Fate::Lost(Evidence::Gap)),
                };
                arrived += usize::from(arrival.known().is_some());
                let departure = match packet.stamp.filter(|_| stamped) {
                    Some(at) => Departure::Stamped(at),
                    None => Departure::Recorded(packet.seen),
                };
                all.push((*packet, Flight { departure, arrival, fate, size: packet.size, ssrc }));
            }
        }
        if arrived * 2 < all.len() {
            let what = "the two files have less than half of the packets in common";
            return Err(Problem::at(0, what, "give the two ends of one call, the sender's first"));
        }
        missed(&all, &mut notes);
        all.sort_by_key(|one| one.1.departure.near());
        let frames = frames(&all, main_source(&self.packets));
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
        let mut told = Arrivals { reported: vec![None; self.packets.len()], ..Arrivals::default() };
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
                    // A number that no packet has used for half a round is another packet's.
                    let recent = next.checked_sub(index).is_some_and(|behind| behind < 1 << 15);
                    let Some(known) = told.reported.get_mut(index).filter(|_| recent) else { continue };
                    results.push((index as u32, arrival.and_then(|arrived| arrived.at)));
                    match arrival {
                        None if known.is_none() => *known = Some(Reported::Missing),
                        Some(arrived) if !matches!(known, Some(Reported::At(_))) => {
                            *known = Some(arrived.at.map_or(Reported::Untimed, Reported::At));
                            near = arrived.at.or(near);
                            if self.packets[index].is_recorded {
                                last = last.max(Some(self.packets[index].seen));
                            }
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

/// The record's time of a packet, and by how much it is later than the packet's stamp.
fn since_stamp(packet: &Sighting) -> Option<(i64, i64)> {
    let seen = packet.seen.as_nanos() as i64;
    packet.stamp.filter(|_| packet.is_recorded).map(|stamp| (seen, seen - stamp.as_nanos() as i64))
}

/// Notes how much the record itself missed, and of how much no report speaks.
fn missed(all: &[(Sighting, Flight)], notes: &mut Vec<String>) {
    let percent = |count: usize| 100.0 * count as f64 / all.len().max(1) as f64;
    let came = |flight: &Flight| matches!(flight.fate, Fate::Arrived(_));
    let own = all.iter().filter(|(packet, flight)| !packet.is_recorded && came(flight)).count();
    if own > 0 {
        let packets = counted(own as u64, "packet");
        notes.push(format!(
            "the capture itself missed {packets} ({:.1} %) of which the receiver reports that they arrived",
            percent(own)
        ));
    }
    let unknown = all.iter().filter(|(_, flight)| matches!(flight.fate, Fate::Unknown(_))).count();
    if unknown as f64 >= NOTED_SHARE * all.len() as f64 && unknown > 0 {
        let packets = counted(unknown as u64, "packet");
        notes.push(format!("of {packets} ({:.1} %) nothing says whether they arrived", percent(unknown)));
    }
}

/// The most packets in a row that are taken for missing: a longer gap is another beginning.
const LONGEST_GAP: u16 = 3000;

/// The source that carried most.
fn main_source(packets: &[Sighting]) -> Option<u32> {
    let mut carried: BTreeMap<u32, u64> = BTreeMap::new();
    for packet in packets {
        *carried.entry(packet.ssrc).or_default() += packet.size.get();
    }
    carried.iter().max_by_key(|(_, bytes)| **bytes).map(|(ssrc, _)| *ssrc)
}

/// The frames of a source, by their timestamps; an end without a marker is a missing packet.
fn frames(all: &[(Sighting, Flight)], main: Option<u32>) -> Vec<Frame> {
    let Some(main) = main else { return Vec::new() };
    let mine = || all.iter().filter(|(packet, _)| packet.ssrc == main);
    let unseen = mine().filter(|(packet, _)| !packet.is_recorded);
    let (came, holes): (Vec<_>, Vec<_>) = unseen.partition(|(_, flight)| matches!(flight.fate, Fate::Arrived(_)));
    let times = |part: Vec<&(Sighting, Flight)>| {
        let mut times: Vec<Time> = part.iter().map(|(_, flight)| flight.departure.near()).collect();
        times.sort();
        times
    };
    let (came, holes) = (times(came), times(holes));
    let mut frames: Vec<(u32, Frame, bool)> = Vec::new();
    let mut ticks = 0;
    for (packet, flight) in mine().filter(|(packet, _)| packet.is_recorded) {
        let (left, arrived) = (flight.departure.near(), flight.arrival.known());
        match frames.last_mut().filter(|frame| frame.0 == packet.timestamp) {
            Some((_, frame, ended)) => {
                frame.arrived = frame.arrived.zip(arrived).map(|(a, b)| a.max(b));
                frame.size += flight.size;
                *ended |= packet.marker;
            }
            None => {
                ticks += frames.last().map_or(0, |last| i64::from(packet.timestamp.wrapping_sub(last.0) as i32));
                let frame = Frame { left, ticks, arrived, size: flight.size };
                frames.push((packet.timestamp, frame, packet.marker));
            }
        }
    }
    let until: Vec<Time> =
        frames.iter().skip(1).map(|frame| frame.1.left).chain([Time::from_nanos(u64::MAX)]).collect();
    let whole = frames.into_iter().zip(until).map(|((_, frame, ended), end)| {
        let within =
            |times: &[Time]| times.get(times.partition_point(|at| *at < frame.left)).is_some_and(|at| *at < end);
        let torn = !(ended || within(&came)) || within(&holes);
        Frame { arrived: frame.arrived.filter(|_| !torn), ..frame }
    });
    whole.collect()
}
