//! One direction of a call. It has the packets with their departures, arrivals and fates, and the bandwidth estimates
//! that the sender logged. If a packet's fate is unknown, it comes with the reason.

use crate::Problem;
use crate::batches::{Batches, Cause};
use crate::clock;
use crate::delay_steps::{Axis, lasting_steps};
use crate::pictures::frames_of;
use crate::reported::{Arrivals, Reported};
use crate::send_time::BEFORE;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time, counted};

/// A packet with its departure, arrival and fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When the packet left. If this is unknown, it is a time near the departures of neighbouring packets.
    pub left: Time,
    /// Whether the recording shows when the packet left.
    pub is_left_known: bool,
    /// When the packet arrived, on the receiver's clock. It is `None` if the packet did not arrive, or if its arrival
    /// time is unknown.
    pub arrived: Option<PeerTime>,
    /// Whether the packet arrived or was lost.
    pub fate: Fate,
    /// Size of the IP packet. If the recording does not have the packet, this is the size of a neighbouring packet.
    pub size: Bytes,
}

impl Flight {
    /// Returns the departure and the arrival if both are known.
    pub fn times(&self) -> Option<(Time, PeerTime)> {
        self.arrived.filter(|_| self.is_left_known).map(|arrived| (self.left, arrived))
    }
}

/// Whether a packet arrived or was lost. If a recording at the receiver contains the packet with its time, the packet
/// arrived. Otherwise, the receiver's reports take precedence over the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrived.
    Arrived {
        /// Whether this is known from the receiver's reports and not from the recording.
        is_reported: bool,
    },
    /// The packet was lost on its way.
    Lost,
    /// It is unknown whether the packet arrived.
    Unknown(Unknown),
}

/// Why a packet's fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Neither a report nor the recording shows whether the packet arrived.
    NoEvidence,
    /// The packet was lost, or the recording is unreadable or has a gap there.
    LostOrUnread,
    /// The packet was lost on the path, or dropped by the capturing program. The recording does not show when the
    /// program dropped packets.
    LostOrDropped,
}

/// A video frame. It belongs to the stream that has the most bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When the frame's first packet left.
    pub left: Time,
    /// RTP timestamp minus the first frame's RTP timestamp, unwrapped, in ticks of the stream's clock.
    pub ticks: i64,
    /// When the frame's last packet arrived. It is `None` if the end of the frame is unknown, if a packet of the frame
    /// was or may have been lost, or if the arrival of a recorded packet is unknown.
    pub arrived: Option<PeerTime>,
    /// Sum of the sizes of the frame's IP packets.
    pub size: Bytes,
    /// Packets that are missing in the recording between the previous frame and this one.
    pub missing: MissingPackets,
}

/// Numbers of packets that are missing in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingPackets {
    /// All missing packets.
    pub all: u64,
    /// The missing packets that were lost.
    pub lost: u64,
}

/// A feedback report that lists individual packets. The first value is when the report arrived at the sender. Each
/// entry has the packet's index in [`Exchange::sent`] and its arrival. An arrival of `None` means that the report lists
/// the packet as missing.
pub type PacketReport = (Time, Vec<(u32, Option<PeerTime>)>);

/// What the sender's controller received as input: packets that were sent and reports that arrived. All times are on
/// the sender's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// For each sent packet: when it was recorded, the size of its IP packet, and whether it belongs to the stream that
    /// has the most bytes.
    pub sent: Vec<(Time, Bytes, bool)>,
    /// Reports that arrived at the sender.
    pub reports: Vec<PacketReport>,
}

/// One direction of a call, as read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Kind of the recording for messages, such as "a capture".
    pub source: String,
    /// The packets in the order of their departures.
    pub packets: Vec<Flight>,
    /// Number of reports that list individual packets.
    pub reports: usize,
    /// Input of the sender's controller. It is empty if the recording was not made at the sender.
    pub exchange: Exchange,
    /// Whether the recording contains the call's first packets. It does not if the first report arrives less than a
    /// round trip after the first packet.
    pub begins: bool,
    /// Bandwidth estimates that the sender logged.
    pub estimates: Vec<(Time, Rate)>,
    /// The frames in the order of their departures.
    pub frames: Vec<Frame>,
    /// Shortest time from a packet's departure to a report on it. It is `None` if the recording was not made at the
    /// sender.
    pub round_trip: Option<Span>,
    /// Resolution of departure times, and resolution of arrival times.
    pub every: (Span, Span),
    /// Sizes of the steps of the recording's clock that were removed.
    pub clock_steps: Vec<Span>,
    /// Notes for the user about the recording.
    pub notes: Vec<String>,
}

/// Where a recording was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender, where packets left.
    Sender,
    /// The receiver, where packets arrived.
    Receiver,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketRecord {
    pub(crate) seen: Time,
    /// Send time from the packet's header. Its clock begins near the recording's first time.
    pub(crate) stamp: Option<Time>,
    pub(crate) size: Bytes,
    pub(crate) ssrc: u32,
    pub(crate) seq: u16,
    pub(crate) transport: Option<u16>,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
    /// Whether the recording contains the packet. A missing packet gets an interpolated time, and the size of the next
    /// recorded packet.
    pub(crate) is_recorded: bool,
    /// Whether this packet repeats an earlier packet, with the same SSRC and sequence number. Senders repeat packets in
    /// this way if no retransmission stream (RFC 4588) was negotiated.
    pub(crate) is_repeat: bool,
}

/// Where a capture was made, as far as its packets show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vantage {
    /// Where packets left.
    Sender,
    /// Where packets arrived.
    Receiver,
    /// Somewhere between sender and receiver. `receiver` is the round-trip time from that point to the receiver.
    Before { receiver: Span },
    /// The packets do not show where the capture was made.
    Unknown,
}

/// Why the recording has no readable report that lists individual packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// The recording has no RTCP from the receiver.
    Absent,
    /// The reports are encrypted (SRTCP).
    Sealed,
    /// The reports were cut when they were captured.
    Cut,
    /// The receiver sent only cumulative counts, as in receiver reports (RR).
    Summary,
}

/// One direction of a recording, before departures and arrivals are joined. [`Self::joined`] sorts packets and reports
/// by time.
pub(crate) struct Direction {
    pub(crate) packets: Vec<PacketRecord>,
    /// RTCP from the receiver: when it was recorded, and its bytes.
    pub(crate) reports: Vec<(Time, Vec<u8>)>,
    /// At which side of the call the recording was made. The user specifies this, or it follows from the kind of log.
    /// If it is `None`, it has to be determined from the recording.
    pub(crate) side: Option<Side>,
    pub(crate) vantage: Vantage,
    pub(crate) hidden: Hidden,
    /// For each removed step of the recording's clock: the time of the first packet after the step.
    pub(crate) set_at: Vec<Time>,
    /// For each removed step of the recording's clock: the size of the step.
    pub(crate) set_by: Vec<Span>,
    pub(crate) cut_extensions: usize,
    pub(crate) cut_reports: usize,
    pub(crate) unread: Unread,
    pub(crate) every: Span,
    pub(crate) batches: Option<Batches>,
}

/// Gaps in the recording. Packets that seem lost may have arrived in these gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    /// Times of records that could not be read.
    pub(crate) times: Vec<Time>,
    /// SSRC and sequence number of packets whose record has no time.
    pub(crate) untimed: BTreeSet<(u32, u16)>,
    /// Number of packets that the recording misses at unknown times.
    pub(crate) unplaced: u64,
    /// Periods in which nothing was recorded: beginning and end.
    pub(crate) silences: Vec<(Time, Time)>,
}

/// Content of a file before departures and arrivals are joined.
pub(crate) struct Recording {
    pub(crate) direction: Direction,
    pub(crate) estimates: Vec<(Time, Rate)>,
    pub(crate) source: &'static str,
    pub(crate) notes: Vec<String>,
}

impl Recording {
    /// Returns the call. Arrivals are taken from this file only.
    pub(crate) fn alone(self) -> Result<Call, Problem> {
        let (mut call, later) = self.direction.joined(self.notes)?;
        call.exchange.sent.iter_mut().for_each(|packet| packet.0 += later);
        call.exchange.reports.iter_mut().for_each(|report| report.0 += later);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source: self.source.to_owned(), ..call })
    }

    /// Returns the call. Departures are taken from this file, and arrivals from `other`, which is the receiver's file.
    pub(crate) fn with(mut self, other: Self) -> Result<Call, Problem> {
        self.notes.extend(other.notes);
        let later = if self.direction.all_stamped() { BEFORE } else { Span::ZERO };
        let call = self.direction.across(other.direction, self.notes)?;
        let source = format!("{} joined with {}", self.source, other.source);
        let estimates = self.estimates.into_iter().map(|(at, rate)| (at + later, rate)).collect();
        Ok(Call { estimates, source, ..call })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DepartureClock {
    /// The sender's clock, read from the send times in packet headers.
    Stamps,
    /// The clock of the recording itself.
    Record,
}

/// If delays vary by at most this much, there is no queue between departure and arrival. Both times may then have been
/// recorded at the same place.
const SAME_PLACE_NS: i64 = 1_000_000;
/// If the delays between two recordings vary by at most this much, both recordings were made at one place. The clocks
/// of two different hosts vary more.
const ONE_PLACE_NS: i64 = 100_000;
/// A stream counts as having send times if at least this share of its packets carries one.
const STAMPED_SHARE: f64 = 0.9;
/// Send times or reports are not used if they exist for less than this share of the call's bytes.
const LEAST_SHARE: f64 = 0.5;
/// If reports cover less than this share of the bytes, the recording's own times are preferred.
const ENOUGH_REPORTED: f64 = 0.9;
/// If the fate of at least this share of the packets is unknown, a note tells the user.
const NOTED_SHARE: f64 = 0.01;

/// Resolution of the header extension abs-send-time.
const SEND_TIME_RESOLUTION: Span = Span::micros(4);
/// Largest plausible difference of a delay from the median delay. It is half of the 64 s after which abs-send-time
/// wraps.
const LONGEST_DELAY: Span = Span::secs(32);
/// If more than this share of the known delays is implausible, the file is refused.
const MOST_IMPLAUSIBLE: f64 = 0.02;

const WHOLE_PACKETS: &str = "capture whole packets: tcpdump -s 0";
const SENDER_REMEDY: &str = "record at the sender with its reports (TWCC or RFC 8888) readable, as an event log has \
                             them, or at the receiver with the header extension abs-send-time";

#[derive(Clone, Copy)]
struct Clocks {
    departures: DepartureClock,
    /// Whether arrivals are taken from the receiver's reports. Otherwise the recording's times are the arrivals.
    by_reports: bool,
}

/// Streams whose packets carry send times, and the share of the call's bytes that belongs to these streams.
struct Stamps {
    streams: BTreeSet<u32>,
    share: f64,
    /// Share of all packets that carry a send time.
    packets: f64,
}

/// Describes times whose [`clock::spread`] is at most `limit`, which is in nanoseconds.
fn agreement(points: &[(i64, i64)], limit: i64) -> &'static str {
    // The spread has no steps, and a step can be one of the path's delay.
    if clock::spread_with_steps(points).is_some_and(|spread| spread > limit) {
        "agree to a millisecond, apart from single steps"
    } else {
        "agree to a millisecond"
    }
}

impl Direction {
    /// Joins departures with arrivals. Also returns the time by which the clock of departures is ahead of the
    /// recording's clock.
    ///
    /// # Errors
    /// The recording does not show when packets left, or when they arrived.
    pub(crate) fn joined(mut self, mut notes: Vec<String>) -> Result<(Call, Span), Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        self.reports.sort_by_key(|report| report.0);
        self.has_times()?;
        let main = main_source(&self.packets);
        let restarted = self.add_missing();
        note_restarts(&restarted, &mut notes);
        let mut arrivals = self.arrivals();
        let clocks = self.clocks(&arrivals, &mut notes)?;
        if clocks.departures == DepartureClock::Record && self.side != Some(Side::Receiver) {
            self.set_right(&mut arrivals, &mut notes);
        }
        let fates = self.fates(&arrivals, &restarted, clocks.by_reports);
        let departures = self.departures(clocks.departures);
        let all: Vec<(PacketRecord, Flight)> = (self.packets.iter().zip(fates).zip(departures))
            .map(|((packet, (arrived, fate)), (left, is_left_known))| {
                (*packet, Flight { left, is_left_known, arrived, fate, size: packet.size })
            })
            .collect();
        if !clocks.by_reports {
            notes.push(
                "arrivals are the record's own: a gap in the numbers counts as a loss, unless the receiver's reports \
                 say that it arrived; packets that the record itself missed look the same"
                    .to_owned(),
            );
        }
        note_missed(&all, &mut notes);
        let sent = all.iter().map(|(packet, _)| (packet.seen, packet.size, Some(packet.ssrc) == main)).collect();
        let frames = frames_of(&all, &mut notes);
        let mut packets: Vec<Flight> = all.into_iter().map(|one| one.1).collect();
        packets.sort_by_key(|flight| flight.left);
        let by_record = clocks.departures == DepartureClock::Record;
        let reported = clocks.by_reports.then_some(arrivals.resolution).flatten();
        // The resolution is the interval between batches, but at most `COARSEST`. The link causes longer batches, not
        // the clock.
        let own = self.batches.map_or(self.every, |batches| self.every.max(batches.interval.min(clock::COARSEST)));
        let call = Call {
            source: String::new(),
            packets,
            reports: arrivals.reports.len(),
            round_trip: arrivals.round_trip.filter(|_| clocks.by_reports),
            begins: arrivals.begins,
            exchange: if clocks.by_reports {
                Exchange { sent, reports: arrivals.reports }
            } else {
                Exchange::default()
            },
            estimates: Vec::new(),
            frames,
            every: (if by_record { own } else { SEND_TIME_RESOLUTION }, reported.unwrap_or(own)),
            clock_steps: self.set_by,
            notes,
        };
        Ok((call.without_implausible_delays()?, if by_record { Span::ZERO } else { BEFORE }))
    }

    /// Decides which clock departures are read from, and which clock arrivals are read from.
    ///
    /// # Errors
    /// There is no clock for departures or for arrivals.
    fn clocks(&self, arrivals: &Arrivals, notes: &mut Vec<String>) -> Result<Clocks, Problem> {
        let is_at_receiver =
            self.side == Some(Side::Receiver) || self.side.is_none() && self.vantage == Vantage::Receiver;
        let all: u64 = self.packets.iter().map(|packet| packet.size.get()).sum();
        let timed = self.packets.iter().zip(&arrivals.reported).filter(|(_, one)| matches!(one, Some(Reported::At(_))));
        let timed: u64 = timed.map(|(packet, _)| packet.size.get()).sum();
        let timed_share = timed as f64 / all.max(1) as f64;
        let stamps = self.stamps();
        let is_partial = timed_share < ENOUGH_REPORTED;
        // A recording at the receiver shows arrivals itself, so it is preferred to incomplete reports.
        let serves_itself = stamps.share > LEAST_SHARE && self.arrives_here(&stamps, timed > 0).is_ok();
        let by_reports = !is_at_receiver && timed_share > LEAST_SHARE && !(is_partial && serves_itself);
        if by_reports && is_partial && self.cut_reports * 100 > self.reports.len() {
            // A capture with a length limit cuts only the longest reports. These are reports on the busiest times. So
            // the reports that remain are not representative, and the recording is refused.
            let what = format!(
                "{} were cut when they were captured, and of {:.0} % of its bytes nothing else says when they arrived",
                counted(self.cut_reports as u64, "report"),
                100.0 * (1.0 - timed_share)
            );
            return Err(Problem::at(0, what, WHOLE_PACKETS));
        }
        let departures = if by_reports {
            self.departure_clock(arrivals, &stamps.streams)?
        } else {
            self.arrives_here(&stamps, timed > 0)?;
            if let Vantage::Before { receiver } = self.vantage {
                notes.push(format!(
                    "the capture was made {:.0} ms (there and back) before the receiver: what happened behind it is \
                     not in it",
                    receiver.as_millis_f64()
                ));
            } else if !is_at_receiver {
                notes.push(
                    "nothing in the capture shows where it was made: if it was not made at the receiver, what happened \
                     behind it is missing; otherwise say --side receiver"
                        .to_owned(),
                );
            }
            DepartureClock::Stamps
        };
        // Batches distort only recorded times, so check them only if recorded times are used.
        if departures == DepartureClock::Record || !by_reports {
            self.check_batches(notes)?;
        }
        if departures == DepartureClock::Stamps {
            self.note_unstamped(&stamps, notes)?;
        } else if self.side.is_none() && self.vantage != Vantage::Sender {
            notes.push("packets left as captured: what happened before the capture is not in it".to_owned());
        }
        Ok(Clocks { departures, by_reports })
    }

    /// Checks whether the recording's clock puts packets into batches. If a link causes the batches, only adds a note.
    ///
    /// # Errors
    /// Batches are longer than [`clock::COARSEST`], and the cause is not known to be a link.
    fn check_batches(&self, notes: &mut Vec<String>) -> Result<(), Problem> {
        let Some(Batches { interval, cause }) = self.batches.filter(|one| one.interval > clock::COARSEST) else {
            return Ok(());
        };
        let within = format!("its packets stand in batches of up to {:.0} ms", interval.as_millis_f64());
        let remedy = "capture with the kernel's or the card's time stamps, on the host itself and not in a virtual \
                      machine; an event log of the browser has the arrivals";
        match cause {
            Cause::Link => {
                notes.push(format!(
                    "{within}, and the other direction's do not: a link sends them together, and the delays contain \
                     what they waited for that"
                ));
                Ok(())
            }
            Cause::Clock => {
                let what = format!("{within}, in both directions: the capture's clock is as coarse, and hides delays");
                Err(Problem::at(0, what, remedy))
            }
            Cause::Unknown => {
                let what = format!(
                    "{within}, and nothing in it shows whether the link or the capture's clock puts them together"
                );
                Err(Problem::at(0, what, format!("{remedy}; or capture both directions")))
            }
        }
    }

    /// Returns when each packet left, and whether this is known.
    fn departures(&self, clock: DepartureClock) -> Vec<(Time, bool)> {
        let by_record = clock == DepartureClock::Record;
        let mut before = self.packets.iter().find_map(|packet| packet.stamp).unwrap_or(Time::ZERO);
        let departure = |packet: &PacketRecord| match packet.stamp {
            _ if by_record => (packet.seen, packet.is_recorded),
            // Most queues keep the order of packets. So take the previous packet's send time as an estimate.
            None => (before, false),
            Some(at) => {
                before = at;
                (at, packet.is_recorded)
            }
        };
        self.packets.iter().map(departure).collect()
    }

    /// Returns the arrival of each packet, if it is known, and the packet's fate.
    fn fates(&self, arrivals: &Arrivals, restarted: &BTreeSet<u32>, by_reports: bool) -> Vec<(Option<PeerTime>, Fate)> {
        let by_receiver_reports = self.by_receiver_reports(arrivals, restarted);
        let is_untimed = |packet: &PacketRecord| self.unread.untimed.contains(&(packet.ssrc, packet.seq));
        let is_known = |(i, packet): (usize, &PacketRecord)| match (arrivals.reported[i], by_receiver_reports.get(&i)) {
            (Some(reported), _) => Some(reported != Reported::Missing),
            (None, Some(fate)) => Some(matches!(fate, Fate::Arrived { .. })),
            (None, None) => is_untimed(packet).then_some(true),
        };
        let known: Vec<Option<bool>> = self.packets.iter().enumerate().map(is_known).collect();
        // If arrivals are read from reports, a gap in the recording does not count as a loss. So the unreadable records
        // do not matter.
        let unread = if by_reports { Some(BTreeSet::new()) } else { self.may_be_unread(&known) };
        let fate = |i: usize, packet: &PacketRecord| match (by_reports, packet.is_recorded, arrivals.reported[i]) {
            (false, true, _) => Fate::Arrived { is_reported: false },
            (_, _, Some(Reported::At(_) | Reported::Untimed)) => Fate::Arrived { is_reported: true },
            (_, _, Some(Reported::Missing)) => Fate::Lost,
            (true, true, None) => Fate::Unknown(Unknown::NoEvidence),
            (_, false, None) => match (by_receiver_reports.get(&i), &unread) {
                (Some(fate), _) => *fate,
                // If arrivals are read from reports, a gap in the recording does not show that the packet was lost on
                // the path. Assume that the recording itself missed this packet.
                (None, _) if by_reports => Fate::Unknown(Unknown::NoEvidence),
                (None, _) if is_untimed(packet) => Fate::Arrived { is_reported: false },
                (None, None) => Fate::Unknown(Unknown::LostOrDropped),
                (None, Some(unread)) if unread.contains(&i) => Fate::Unknown(Unknown::LostOrUnread),
                (None, Some(_)) => Fate::Lost,
            },
        };
        let arrived = |i: usize, packet: &PacketRecord| match arrivals.reported[i] {
            _ if !by_reports => packet.is_recorded.then(|| PeerTime::from_nanos(packet.seen.as_nanos() as i64)),
            Some(Reported::At(at)) => Some(at),
            _ => None,
        };
        let both = |(i, packet): (usize, &PacketRecord)| (arrived(i, packet), fate(i, packet));
        self.packets.iter().enumerate().map(both).collect()
    }

    fn has_times(&self) -> Result<(), Problem> {
        let same = self.packets.windows(2).all(|pair| pair[0].seen == pair[1].seen);
        if same && self.packets.len() > 1 {
            return Err(Problem::at(0, "all its packets have one time", "record the call again, or give the original"));
        }
        Ok(())
    }

    fn stamps(&self) -> Stamps {
        let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        // Do not count packets that are missing in the recording: their header extensions are unknown.
        for packet in self.packets.iter().filter(|packet| packet.is_recorded) {
            let count = counts.entry(packet.ssrc).or_default();
            *count = (count.0 + usize::from(packet.stamp.is_some()), count.1 + 1);
        }
        let (stamped, all) = counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        counts.retain(|_, (stamped, all)| *stamped as f64 >= STAMPED_SHARE * *all as f64);
        let streams: BTreeSet<u32> = counts.into_keys().collect();
        let bytes = |packets: &mut dyn Iterator<Item = &PacketRecord>| packets.map(|packet| packet.size.get()).sum();
        let carried: u64 = bytes(&mut self.packets.iter().filter(|packet| streams.contains(&packet.ssrc)));
        let total: u64 = bytes(&mut self.packets.iter());
        let share = carried as f64 / total.max(1) as f64;
        Stamps { streams, share, packets: stamped as f64 / all.max(1) as f64 }
    }

    fn without_stamps(&self, stamps: &Stamps) -> (String, &'static str) {
        if self.cut_extensions * 10 > self.packets.len() {
            let share = 100.0 * self.cut_extensions as f64 / self.packets.len() as f64;
            (
                format!("the header extensions of {share:.0} % of its packets were cut when they were captured"),
                WHOLE_PACKETS,
            )
        } else if stamps.packets > 0.0 {
            (format!("only {:.0} % of its packets carry abs-send-time", 100.0 * stamps.packets), SENDER_REMEDY)
        } else {
            ("no header extension advances as abs-send-time does".to_owned(), SENDER_REMEDY)
        }
    }

    fn all_stamped(&self) -> bool {
        !self.packets.is_empty() && self.packets.iter().all(|packet| packet.stamp.is_some())
    }

    /// Adds a note that lists the streams without send times.
    ///
    /// # Errors
    /// The streams without send times carry most of the call's bytes.
    fn note_unstamped(&self, stamps: &Stamps, notes: &mut Vec<String>) -> Result<(), Problem> {
        let mut others: BTreeMap<u32, u64> = BTreeMap::new();
        for packet in self.packets.iter().filter(|packet| packet.is_recorded && !stamps.streams.contains(&packet.ssrc))
        {
            *others.entry(packet.ssrc).or_default() += 1;
        }
        if stamps.share < LEAST_SHARE {
            let (why, remedy) = self.without_stamps(stamps);
            let what = format!(
                "nothing says when the packets of the streams that carry {:.0} % of it left: {why}",
                100.0 * (1.0 - stamps.share)
            );
            return Err(Problem::at(0, what, remedy));
        }
        if !others.is_empty() {
            let listed: Vec<String> =
                others.iter().map(|(ssrc, count)| format!("SSRC {ssrc} ({})", counted(*count, "packet"))).collect();
            let streams = listed.join(", ");
            notes.push(format!("no packet of {streams} says when it left: delays are those of the other streams"));
        }
        Ok(())
    }

    /// Returns the clock from which departures are read, if arrivals come from reports.
    ///
    /// # Errors
    /// The capture was made at the receiver, or may have been made there.
    fn departure_clock(&self, arrivals: &Arrivals, stamped: &BTreeSet<u32>) -> Result<DepartureClock, Problem> {
        let recorded = || self.packets.iter().filter(|packet| packet.is_recorded);
        if recorded().all(|packet| stamped.contains(&packet.ssrc)) {
            return Ok(DepartureClock::Stamps);
        }
        if self.side == Some(Side::Sender) || self.vantage == Vantage::Sender {
            return Ok(DepartureClock::Record);
        }
        let by_stamp: Vec<(i64, i64)> = recorded().filter_map(since_stamp).collect();
        // If send times and recorded times agree, the capture was made at the sender.
        let fine = SAME_PLACE_NS + self.every.as_nanos() as i64;
        if clock::spread(&by_stamp).is_some_and(|spread| spread <= fine) {
            return Ok(DepartureClock::Record);
        }
        let delays: Vec<(i64, i64)> =
            self.reported_times(arrivals).map(|(_, seen, arrived)| (seen, arrived - seen)).collect();
        // Both times are rounded. This makes their difference vary by the sum of both resolutions, even without a
        // queue.
        let coarse = arrivals.resolution.unwrap_or(Span::ZERO).as_nanos() as i64 + self.every.as_nanos() as i64;
        let spread = clock::spread(&delays);
        let may_be_at_receiver = !matches!(self.vantage, Vantage::Before { .. });
        if by_stamp.is_empty() && may_be_at_receiver && spread.is_none_or(|spread| spread <= SAME_PLACE_NS + coarse) {
            let what = if spread.is_some() {
                format!(
                    "the capture's times and the receiver's {}: it may have been made where packets arrived, and then \
                     nothing says when they left",
                    agreement(&delays, SAME_PLACE_NS + coarse)
                )
            } else {
                "too few arrivals are reported to show at which end the capture was made: no five seconds have 20"
                    .to_owned()
            };
            let remedy = "say --side sender if it was made at the sender; else capture there, or send abs-send-time";
            return Err(Problem::at(0, what, remedy));
        }
        Ok(if by_stamp.is_empty() { DepartureClock::Record } else { DepartureClock::Stamps })
    }

    /// Returns the recorded packets whose arrival time is reported. Each has its index, its recorded time and its
    /// reported arrival, in nanoseconds.
    fn reported_times(&self, arrivals: &Arrivals) -> impl Iterator<Item = (usize, i64, i64)> {
        let timed = self.packets.iter().zip(&arrivals.reported).enumerate();
        timed.filter_map(|(i, (packet, reported))| match reported {
            Some(Reported::At(at)) if packet.is_recorded => Some((i, packet.seen.as_nanos() as i64, at.as_nanos())),
            _ => None,
        })
    }

    /// Finds steps of the recording's clock by comparing it with the reported arrivals, and removes these steps.
    fn set_right(&mut self, arrivals: &mut Arrivals, notes: &mut Vec<String>) {
        let timed: Vec<(usize, i64, i64)> = self.reported_times(arrivals).collect();
        let points: Vec<(i64, i64)> = timed.iter().map(|(_, seen, arrived)| (*seen, arrived - seen)).collect();
        // The steps at `set_at` were removed before, with an error of a few milliseconds. Remove this error.
        let rest = self.set_at.iter().filter_map(|at| {
            let place = points.partition_point(|point| point.0 < at.as_nanos() as i64);
            Some(clock::Step { place, nanos: clock::rest_of_step(&points, place)? })
        });
        for step in rest {
            let from = timed[step.place].0;
            self.packets[from..].iter_mut().for_each(|packet| clock::shift(&mut packet.seen, step.nanos));
        }
        let steps = clock::long_steps(&points);
        notes.extend(clock::step_notes(&steps.iter().map(|step| -step.nanos).collect::<Vec<_>>()));
        for step in steps {
            let (from, by) = (timed[step.place].0, step.nanos);
            let at = self.packets[from].seen;
            // The reports that arrived after the step have times of the same clock, so move them too.
            let after = arrivals.reports.iter_mut().filter(|report| report.0 >= at);
            after.for_each(|report| clock::shift(&mut report.0, by));
            self.packets[from..].iter_mut().for_each(|packet| clock::shift(&mut packet.seen, by));
            self.set_by.push(Span::nanos(by.unsigned_abs()));
        }
        self.set_right_short(arrivals, notes);
    }

    /// Finds and removes steps of the recording's clock that are shorter than a second.
    fn set_right_short(&mut self, arrivals: &mut Arrivals, notes: &mut Vec<String>) {
        let mut timed: Vec<(i64, i64)> =
            self.reported_times(arrivals).map(|(_, seen, arrived)| (arrived, seen)).collect();
        // Sort by reported arrival. These times are from the receiver's clock, so a step of the recording's clock does
        // not change their order.
        timed.sort_by_key(|one| one.0);
        let points: Vec<(f64, f64)> =
            timed.iter().map(|(at, seen)| (*at as f64 * 1e-9, (at - seen) as f64 * 1e-9)).collect();
        let resolution = arrivals.resolution.unwrap_or(Span::ZERO).as_secs_f64() + self.every.as_secs_f64();
        let steps = lasting_steps(&points, Axis::Arrivals, resolution);
        // A change to a shorter route makes packets overtake each other. In the order of departures it appears as one
        // step, but in the order of arrivals as several steps. So fewer steps by departure mean that the route changed,
        // not the clock.
        let mut by_departure: Vec<(f64, f64)> = points.iter().map(|(at, delay)| (at - delay, *delay)).collect();
        by_departure.sort_by(|a, b| a.0.total_cmp(&b.0));
        let of_route = lasting_steps(&by_departure, Axis::Departures, resolution);
        if !of_route.is_empty() && of_route.len() < steps.len() {
            return;
        }
        let mut removed = Vec::new();
        for step in steps {
            let by = (step.seconds * 1e9) as i64;
            let (arrived, seen) = timed[step.index];
            // A step of the clock changes the delay of the return path by the opposite amount. Steps without such a
            // change are route changes, and `crate::path` removes them.
            let back = arrivals.return_delay_change(arrived).filter(|(_, spread)| *spread < by.abs() / 2);
            if back.is_some_and(|(back, _)| (back + by).abs() > by.abs() / 2) {
                continue;
            }
            let is_after = |at: Time| at.as_nanos() as i64 >= seen;
            let after = arrivals.reports.iter_mut().filter(|report| is_after(report.0));
            after.for_each(|report| clock::shift(&mut report.0, by));
            for (packet, reported) in self.packets.iter_mut().zip(&arrivals.reported) {
                let is_behind = match reported {
                    Some(Reported::At(at)) => at.as_nanos() >= arrived,
                    _ => is_after(packet.seen),
                };
                if is_behind {
                    clock::shift(&mut packet.seen, by);
                }
            }
            self.set_by.push(Span::nanos(by.unsigned_abs()));
            removed.push(-by);
        }
        notes.extend(clock::step_notes(&removed));
    }

    /// Checks that the recording was made where packets arrive, and that packets carry send times.
    ///
    /// # Errors
    /// The recording may not have been made there, or no stream has send times.
    fn arrives_here(&self, stamps: &Stamps, any_report: bool) -> Result<(), Problem> {
        // Receiver reports (RR) are short, so they may be complete although longer per-packet reports were cut.
        let is_cut = self.hidden == Hidden::Summary && self.cut_reports * 10 > self.reports.len();
        let hidden = if is_cut { Hidden::Cut } else { self.hidden };
        let reports = match hidden {
            Hidden::Cut => "its reports were cut when they were captured",
            _ if any_report => "its reports tell of less than half of its packets when they arrived",
            Hidden::Absent => "no reports of the receiver are in it",
            Hidden::Sealed => "SRTCP hides when packets arrived",
            Hidden::Summary => "its reports (RR) tell how many packets were lost, not when each arrived",
        };
        let remedy = match hidden {
            Hidden::Cut => WHOLE_PACKETS,
            _ if any_report => "capture all of the receiver's reports, or at the receiver's side",
            Hidden::Absent => {
                "capture both directions, or at the receiver's side with the header extension abs-send-time"
            }
            Hidden::Sealed => {
                "give the other end's capture by --other-end or the session's --key-file, or capture at the receiver's \
                 side with the header extension abs-send-time"
            }
            Hidden::Summary => SENDER_REMEDY,
        };
        if self.side == Some(Side::Sender) || self.side.is_none() && self.vantage == Vantage::Sender {
            let what =
                format!("it was recorded where packets left, and nothing in it says when they arrived: {reports}");
            return Err(Problem::at(0, what, remedy));
        }
        if stamps.share == 0.0 {
            let (left, remedy_for_stamps) = self.without_stamps(stamps);
            if self.side.map_or(self.vantage == Vantage::Receiver, |side| side == Side::Receiver) {
                let what = format!("nothing in it says when packets left: {left}");
                let remedy = match self.side {
                    Some(_) => remedy_for_stamps.to_owned(),
                    None => format!("{remedy_for_stamps}; say --side sender if it was made there"),
                };
                return Err(Problem::at(0, what, remedy));
            }
            let what = format!("nothing in it says both when packets left ({left}) and when they arrived ({reports})");
            let remedy = if remedy_for_stamps == WHOLE_PACKETS { WHOLE_PACKETS } else { remedy };
            return Err(Problem::at(0, what, remedy));
        }
        if self.side == Some(Side::Receiver) || self.vantage == Vantage::Receiver {
            return Ok(());
        }
        let by_stamp: Vec<(i64, i64)> = self.packets.iter().filter_map(since_stamp).collect();
        let spread = clock::spread(&by_stamp);
        // Behind the bottleneck, the queueing delay makes recorded times vary against send times. Without such a
        // variation, the recording may have been made at the sender.
        if spread.is_none_or(|spread| spread <= SAME_PLACE_NS + self.every.as_nanos() as i64) {
            let shown = if spread.is_some() {
                let agreement = agreement(&by_stamp, SAME_PLACE_NS + self.every.as_nanos() as i64);
                format!("its times and the packets' send times {agreement}, as where packets leave")
            } else {
                "it has too few packets with send times to show at which end it was made (no five seconds have 20)"
                    .to_owned()
            };
            let what = format!("{shown}, and nothing in it says when they arrived: {reports}");
            return Err(Problem::at(0, what, format!("{remedy}; say --side receiver if it was made there")));
        }
        Ok(())
    }

    /// Joins departures in this recording with arrivals in `other`, which is the receiver's recording. Packets are
    /// matched by SSRC, sequence number and timestamp.
    ///
    /// # Errors
    /// Fewer than half of this recording's packets are in `other`.
    fn across(mut self, mut other: Self, mut notes: Vec<String>) -> Result<Call, Problem> {
        self.packets.sort_by_key(|packet| packet.seen);
        self.reports.sort_by_key(|report| report.0);
        other.packets.sort_by_key(|packet| packet.seen);
        self.has_times()?;
        other.has_times()?;
        // At a short round trip, a sender's file looks like a receiver's. So the other file must look like a sender's.
        let at_receiver = self.vantage == Vantage::Receiver;
        let is_reversed = match other.vantage {
            Vantage::Sender => at_receiver || matches!(self.vantage, Vantage::Before { .. }),
            Vantage::Before { .. } => at_receiver,
            Vantage::Receiver | Vantage::Unknown => false,
        };
        if is_reversed {
            let what = "the first recording was made at the receiver, or the second one at the sender";
            return Err(Problem::at(0, what, "give the sender's file first, and the receiver's by --other-end"));
        }
        let arrivals = self.arrivals();
        let stamped = self.all_stamped();
        // The combination of sequence number and timestamp recurs only after hours, so it identifies a packet.
        let key = |packet: &PacketRecord| (packet.ssrc, packet.seq, packet.timestamp);
        let mut seen_there: BTreeMap<(u32, u16, u32), Time> = BTreeMap::new();
        for packet in &other.packets {
            // If a packet was recorded several times, take the first record as the arrival.
            seen_there.entry(key(packet)).or_insert(packet.seen);
        }
        let ends = |ssrc: u32| {
            let places = self.packets.iter().enumerate().filter(move |(_, packet)| packet.ssrc == ssrc);
            let both: Vec<usize> =
                places.filter(|(_, packet)| seen_there.contains_key(&key(packet))).map(|one| one.0).collect();
            both.first().copied().zip(both.last().copied())
        };
        let sources: BTreeSet<u32> = self.packets.iter().map(|packet| packet.ssrc).collect();
        let ends: BTreeMap<u32, Option<(usize, usize)>> = sources.into_iter().map(|ssrc| (ssrc, ends(ssrc))).collect();
        let is_blind = |at: Time| other.unread.silences.iter().any(|silence| (silence.0..silence.1).contains(&at));
        let mut all: Vec<(PacketRecord, Flight)> = Vec::with_capacity(self.packets.len());
        let (mut common, mut near) = (0, Time::ZERO);
        for (i, (packet, reported)) in self.packets.iter().zip(&arrivals.reported).enumerate() {
            let there = seen_there.get(&key(packet));
            near = there.copied().unwrap_or(near);
            let is_within =
                ends.get(&packet.ssrc).copied().flatten().is_some_and(|(from, to)| (from..=to).contains(&i));
            let fate = match (there, reported) {
                (Some(_), _) => Fate::Arrived { is_reported: false },
                (None, Some(Reported::At(_) | Reported::Untimed)) => Fate::Arrived { is_reported: true },
                (None, Some(Reported::Missing)) => Fate::Lost,
                (None, None) if other.unread.untimed.contains(&(packet.ssrc, packet.seq)) => {
                    Fate::Arrived { is_reported: false }
                }
                // The receiver's recording may begin later or end earlier than the sender's. So the fate of a packet
                // outside of it is unknown.
                (None, None) if !is_within => Fate::Unknown(Unknown::NoEvidence),
                (None, None) if other.unread.unplaced > 0 => Fate::Unknown(Unknown::LostOrDropped),
                (None, None) if !other.unread.times.is_empty() || is_blind(near) => {
                    Fate::Unknown(Unknown::LostOrUnread)
                }
                (None, None) => Fate::Lost,
            };
            common += usize::from(there.is_some());
            let arrived = there.map(|at| PeerTime::from_nanos(at.as_nanos() as i64));
            let left = packet.stamp.filter(|_| stamped).unwrap_or(packet.seen);
            all.push((*packet, Flight { left, is_left_known: true, arrived, fate, size: packet.size }));
        }
        // If both files were recorded at one place, the call would seem to have no delay and no loss. Refuse such
        // files.
        let passed: Vec<(i64, i64)> = self
            .packets
            .iter()
            .filter_map(|packet| {
                let seen = packet.seen.as_nanos() as i64;
                Some((seen, seen_there.get(&key(packet))?.as_nanos() as i64 - seen))
            })
            .collect();
        if clock::spread(&passed).is_some_and(|spread| spread <= ONE_PLACE_NS) {
            let what = "the times of the two files agree to a tenth of a millisecond: both were recorded at one place, \
                        or nothing lies between their places";
            return Err(Problem::at(0, what, "give the other end's file by --other-end, not a copy of the first"));
        }
        // With so few packets in common, the files are recordings of different calls.
        if common * 2 < all.len() {
            let what = "the two files have less than half of the packets in common";
            return Err(Problem::at(0, what, "give the two ends of one call, the sender's first"));
        }
        note_missed(&all, &mut notes);
        all.sort_by_key(|one| one.1.left);
        let frames = frames_of(&all, &mut notes);
        let call = Call {
            source: String::new(),
            packets: all.into_iter().map(|one| one.1).collect(),
            reports: arrivals.reports.len(),
            exchange: Exchange::default(),
            begins: arrivals.begins,
            estimates: Vec::new(),
            frames,
            round_trip: arrivals.round_trip,
            every: (if stamped { SEND_TIME_RESOLUTION } else { self.every }, other.every),
            clock_steps: self.set_by.into_iter().chain(other.set_by).collect(),
            notes,
        };
        call.without_implausible_delays()
    }
}

/// Returns a packet's recorded time, and the recorded time minus the packet's send time, in nanoseconds.
fn since_stamp(packet: &PacketRecord) -> Option<(i64, i64)> {
    let seen = packet.seen.as_nanos() as i64;
    packet.stamp.filter(|_| packet.is_recorded).map(|stamp| (seen, seen - stamp.as_nanos() as i64))
}

fn note_restarts(restarted: &BTreeSet<u32>, notes: &mut Vec<String>) {
    if !restarted.is_empty() {
        let listed: Vec<String> = restarted.iter().map(u32::to_string).collect();
        let streams = listed.join(", ");
        notes.push(format!(
            "the numbers of SSRC {streams} began anew, as when a sender restarts: no packet is missing there"
        ));
    }
}

/// Adds notes on packets that the recording missed although they arrived, and on packets whose fate is unknown.
fn note_missed(all: &[(PacketRecord, Flight)], notes: &mut Vec<String>) {
    let percent = |count: usize| 100.0 * count as f64 / all.len().max(1) as f64;
    let own =
        all.iter().filter(|(packet, flight)| !packet.is_recorded && flight.fate == Fate::Arrived { is_reported: true });
    let own = own.count();
    if own > 0 {
        let packets = counted(own as u64, "packet");
        notes.push(format!(
            "the capture itself missed {packets} ({:.1} %) of which the receiver reports that they arrived",
            percent(own)
        ));
    }
    let count = |why: Unknown| all.iter().filter(|(_, flight)| flight.fate == Fate::Unknown(why)).count();
    let unread = count(Unknown::LostOrUnread) + count(Unknown::LostOrDropped);
    if unread > 0 {
        let packets = counted(unread as u64, "packet");
        notes.push(format!(
            "{packets} ({:.1} %) were lost, or are in records that could not be read or were not made",
            percent(unread)
        ));
    }
    let unknown = count(Unknown::NoEvidence);
    if unknown as f64 >= NOTED_SHARE * all.len() as f64 && unknown > 0 {
        let packets = counted(unknown as u64, "packet");
        notes.push(format!("of {packets} ({:.1} %) nothing says whether they arrived", percent(unknown)));
    }
}

impl Call {
    /// Marks arrivals as unknown if their delay differs from the median delay by more than [`LONGEST_DELAY`].
    ///
    /// # Errors
    /// More than a share of [`MOST_IMPLAUSIBLE`] of the arrivals is implausible.
    fn without_implausible_delays(mut self) -> Result<Self, Problem> {
        let times = self.packets.iter().filter_map(Flight::times);
        let times: Vec<(i64, i64)> =
            times.map(|(left, arrived)| (left.as_nanos() as i64, arrived.as_nanos())).collect();
        let mut delays: Vec<i64> = times.iter().map(|(left, arrived)| arrived - left).collect();
        delays.sort_unstable();
        let Some(&median) = delays.get(delays.len() / 2) else { return Ok(self) };
        // Allow for the drift between the two clocks, which is less than 1000 ppm.
        let lasted = times.last().zip(times.first()).map_or(0, |(last, first)| last.0.saturating_sub(first.0));
        let most = LONGEST_DELAY.as_nanos() as i64 + lasted / 1000;
        let (mut removed, mut farthest) = (0_u64, 0);
        for packet in &mut self.packets {
            let Some((left, arrived)) = packet.times() else { continue };
            let off = (arrived.as_nanos() - left.as_nanos() as i64 - median).abs();
            if off > most {
                farthest = farthest.max(off);
                removed += 1;
                packet.arrived = None;
            }
        }
        if removed == 0 {
            return Ok(self);
        }
        let packets = counted(removed, "packet");
        let what = format!(
            "the times of {packets} contradict those of the others by up to {:.0} s, and no network holds packets so \
             long",
            farthest as f64 * 1e-9
        );
        if removed as f64 > MOST_IMPLAUSIBLE * delays.len() as f64 {
            return Err(Problem::at(0, what, "record the call again, or give another file: this one is damaged"));
        }
        self.notes.push(format!("{what}: these are left out"));
        Ok(self)
    }
}

pub(crate) fn main_source(packets: &[PacketRecord]) -> Option<u32> {
    let mut carried: BTreeMap<u32, u64> = BTreeMap::new();
    for packet in packets {
        *carried.entry(packet.ssrc).or_default() += packet.size.get();
    }
    carried.iter().max_by_key(|(_, bytes)| **bytes).map(|(ssrc, _)| *ssrc)
}
