//! Reads captures (pcap and pcapng): RTP packets with their header extensions, and readable RTCP that reports on them.

use crate::call::{Direction, Hidden, PacketRecord, Recording, Unread, Vantage};
use crate::capture_file::{self, Record, TimeSource};
use crate::clock;
use crate::decapsulation::{
    Content, Datagram, Endpoint, Fragment, FragmentedDatagram, Skipped, decapsulate, is_indication, is_outgoing, stun,
};
use crate::flow::{CapturedPacket, CapturedRtcp, Flow, flows, names_source_of};
use crate::send_time::{self, Elements};
use crate::{Opener, Options, Problem};
use pcap_parser::Linktype;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use steadycast_units::{Bytes, Span, Time, counted};
use steadycast_wire::is_rtcp;
use steadycast_wire::rtcp::{Compound, Packet};
use steadycast_wire::rtp::RtpHeader;

/// Maximum number of packets in a file.
pub(crate) const MOST_PACKETS: usize = 20_000_000;
/// Maximum time between the first record and any other record.
const DAY: Duration = Duration::from_secs(86_400);
/// The shortest RTP header (RFC 3550, section 5.1).
const RTP_HEADER: usize = 12;
/// Datagrams that were cut are padded with zeros to this length in bytes, so that their RTP header can be parsed.
const FILLED: usize = 2048;
/// Two equal RTCP packets within this time are copies. A capture of two interfaces contains such copies.
const COPY_OF_REPORT_WITHIN: Span = Span::millis(5);
/// Maximum time between two fragments of a datagram. A later fragment with the same identification belongs to another
/// datagram.
pub(crate) const FRAGMENTS_WITHIN: Span = Span::secs(5);
/// Maximum number of unanswered STUN requests that are stored.
const MOST_REQUESTS: usize = 100_000;
/// If the round trip between the capture and a host is at most this long, the capture was made at this host, unless the
/// other host is near too.
const LOCAL_RTT: Span = Span::millis(2);
/// Error of a measured round trip, in nanoseconds. It is due to the resolutions of DLSR and of the capture's times.
const ROUND_TRIP_ERROR_NS: i64 = 1_000_000;

struct Fragments {
    last: Time,
    bytes: u64,
    place: usize,
    /// Information from the first fragment: the datagram's size in bytes, its endpoints, and its index in
    /// [`Capture::packets`] for these endpoints.
    first: Option<(u64, (Endpoint, Endpoint), usize)>,
}

#[derive(Default)]
struct Capture {
    packets: BTreeMap<(Endpoint, Endpoint), Vec<CapturedPacket>>,
    rtcp: Vec<CapturedRtcp>,
    first: Option<Duration>,
    fragments: BTreeMap<FragmentedDatagram, Fragments>,
    joined_fragments: u64,
    skipped: BTreeMap<Skipped, u64>,
    /// Unreadable records that may have been packets of a call: number of the record in the file, and endpoints if
    /// they are readable.
    unread: Vec<(usize, Option<(Endpoint, Endpoint)>)>,
    /// SSRC and sequence number of RTP packets whose record has no time.
    untimed: BTreeSet<(u32, u16)>,
    /// Number of datagrams that are not RTP, by the lower of their two ports.
    other_ports: BTreeMap<u16, u64>,
    /// Hosts that sent a DTLS record, and the hosts to which they sent it.
    dtls: BTreeSet<(IpAddr, IpAddr)>,
    records: usize,
    /// Which interface the current record's time is from, and its resolution.
    source: TimeSource,
    /// Times of the records in the order of the file. For a record without a time, this is the previous record's time.
    times: Vec<Time>,
    /// Number of packets that the capturing program reports as dropped.
    dropped: u64,
    send_time_id: Option<u8>,
    /// When each unanswered STUN request was sent and to which endpoint. The key is the transaction ID.
    requests: BTreeMap<[u8; 12], (Sighting, Endpoint)>,
    /// The endpoints that answered STUN requests. For each request, when it and its answer were recorded.
    answers: BTreeMap<Endpoint, Vec<(Sighting, Sighting)>>,
}

/// When a packet was recorded, and the number of its record in the file.
#[derive(Clone, Copy)]
struct Sighting {
    place: usize,
    at: Time,
}

/// Round trips between the capture and a host.
///
/// A single round trip is wrong if the capture's clock was set within it. So the place follows from the median.
struct RoundTrips {
    /// The distance that a note names. Queues behind the capture make the median larger, but not the round trips of
    /// packets that find these queues empty.
    lower_quartile: Span,
    median: Span,
}

impl RoundTrips {
    /// Returns the quartiles of round trips, which are in nanoseconds. Returns `None` if no round trip is possible.
    fn of(mut trips: Vec<i64>) -> Option<Self> {
        // A time less than zero is no round trip: the capture's clock was set within it, or the host counted wrongly.
        trips.retain(|trip| *trip > -ROUND_TRIP_ERROR_NS);
        trips.sort_unstable();
        let span = |index: usize| trips.get(index).map(|trip| Span::nanos(trip.max(&0).unsigned_abs()));
        Some(Self { lower_quartile: span(trips.len() / 4)?, median: span(trips.len() / 2)? })
    }

    /// Whether the capture was made at the host, or near it.
    fn is_local(&self) -> bool {
        self.median <= LOCAL_RTT
    }
}

/// Reads one direction of a capture. This is the direction with the SSRC `options.stream`, or the only direction.
///
/// # Errors
/// The capture is broken, has no RTP, or has several calls.
pub(crate) fn read(bytes: &[u8], options: Options, opener: Option<Opener<'_>>) -> Result<Recording, Problem> {
    let mut capture = Capture::default();
    let cut = capture_file::read(bytes, &mut |record| capture.record(record))?;
    let mut notes = Vec::new();
    if let Some(opener) = opener {
        let all = capture.rtcp.len();
        let sealed = counted(all as u64, "RTCP packet");
        // Drop RTCP that the key can't decrypt. It belongs to another session, or is not authentic.
        capture.rtcp.retain_mut(|rtcp| opener(&rtcp.bytes).map(|plain| rtcp.bytes = plain).is_some());
        if all > 0 && capture.rtcp.is_empty() {
            return Err(Problem::at(0, format!("the key opens none of its {sealed}"), "give its session's key file"));
        }
        notes.push(format!("the key opened {} of {sealed}", capture.rtcp.len()));
    }
    if let Some(at) = cut {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        notes.push(if capture_file::is(rest) {
            format!("another capture begins at byte {at}, and is not read: mergecap joins captures")
        } else {
            format!("the capture is cut or broken at byte {at}: what stands before is used")
        });
    }
    capture.note_skipped(&mut notes);
    let packets = std::mem::take(&mut capture.packets);
    let mut flows = flows(packets, options.send_time_id.or(capture.send_time_id))?;
    if flows.is_empty() {
        return Err(capture.without_rtp());
    }
    let chosen = chosen(&flows, options.stream)?;
    note_left_out(&flows, chosen, options.stream, &mut notes);
    direction(flows.swap_remove(chosen), capture, options, notes)
}

/// Advice for a user whose capture has a stream that restarted with the same SSRC.
pub(crate) const RESTART_REMEDY: &str =
    "give --stream SSRC for the larger part, or cut the file at the restart (editcap -A or -B)";
const STREAM_REMEDY: &str = "name one by --stream SSRC";

fn chosen(flows: &[Flow], stream: Option<u32>) -> Result<usize, Problem> {
    let mut sorted: Vec<(usize, u64)> = flows.iter().map(Flow::bytes).enumerate().collect();
    sorted.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let listed: Vec<String> = sorted.iter().take(20).map(|(i, bytes)| flows[*i].described(*bytes)).collect();
    let listed = listed.join("; ");
    if let Some(ssrc) = stream {
        let found = sorted.iter().find(|(i, _)| flows[*i].sources().contains(&ssrc));
        return found.map(|(i, _)| *i).ok_or_else(|| {
            Problem::at(0, format!("no stream has the SSRC {ssrc}"), format!("choose one of: {listed}"))
        });
    }
    // Ignore directions with few bytes, such as the other end's audio. They do not make the choice ambiguous.
    match &sorted[..] {
        [first, second, ..] if second.1 * 10 > first.1 => {
            let (one, other) = (flows[first.0].span(), flows[second.0].span());
            let is_sequel = one.zip(other).is_some_and(|(one, other)| one.1 <= other.0 || other.1 <= one.0);
            let is_same_source = flows[first.0].sources().intersection(&flows[second.0].sources()).next().is_some();
            let has_senders = flows.iter().any(|flow| flow.other_senders > 0);
            let parts = counted(flows.len() as u64, "part");
            let (what, remedy) = if is_sequel {
                let what = format!(
                    "it holds {parts} of media, not all at the same time, as several calls or a sender that was \
                     started again or set its clock back: {listed}"
                );
                (what, if is_same_source { RESTART_REMEDY } else { STREAM_REMEDY })
            } else if is_same_source && has_senders {
                let what = format!(
                    "it holds {parts} of media with the same SSRC at the same time, as a capture whose clock was set \
                     back and whose records were then sorted by time: {listed}"
                );
                (what, "give the file as it was captured, or --stream SSRC for the larger part")
            } else if has_senders {
                let senders = counted(flows.len() as u64, "sender");
                let what = format!("it holds media of {senders} or directions, which a server may forward: {listed}");
                (what, STREAM_REMEDY)
            } else {
                let directions = counted(flows.len() as u64, "direction");
                let what = format!("it holds {directions} of media: {listed}");
                (what, if is_same_source { RESTART_REMEDY } else { STREAM_REMEDY })
            };
            Err(Problem::at(0, what, remedy))
        }
        _ => Ok(sorted[0].0),
    }
}

/// Adds notes on packets that were left out although they seem to belong to the call. They have the chosen SSRC, or the
/// same endpoints as the chosen direction.
fn note_left_out(flows: &[Flow], chosen: usize, stream: Option<u32>, notes: &mut Vec<String>) {
    let others = || flows.iter().enumerate().filter(|(i, _)| *i != chosen).map(|one| one.1);
    let elsewhere = others().filter(|flow| flow.endpoints != flows[chosen].endpoints).flat_map(|flow| &flow.packets);
    let elsewhere = elsewhere.filter(|one| Some(one.record.ssrc) == stream).count();
    if elsewhere > 0 {
        let more = counted(elsewhere as u64, "more packet");
        notes.push(format!("{more} between other addresses have this SSRC, and are left out"));
    }
    let endpoints = &flows[chosen].endpoints;
    for flow in others().filter(|flow| flow.endpoints == *endpoints) {
        let streams: Vec<String> = flow.sources().iter().take(8).map(u32::to_string).collect();
        let packets = counted(flow.packets.len() as u64, "packet");
        notes.push(format!(
            "{packets} of SSRC {} are left out: their send times are of another clock, or their delays of another path",
            streams.join(", ")
        ));
    }
}

/// Removes steps of the capture's clock, and collects the RTCP reports on the packets.
fn direction(
    mut flow: Flow,
    mut capture: Capture,
    options: Options,
    mut notes: Vec<String>,
) -> Result<Recording, Problem> {
    flow.note(&mut notes);
    let mut unread = capture.unread_beside(&flow);
    let (mut set_at, mut set_by) = (Vec::new(), Vec::new());
    let steps = flow.clock_steps(&capture.times);
    notes.extend(clock::step_notes(&steps.iter().map(|step| step.nanos).collect::<Vec<_>>()));
    for step in steps {
        let packets = flow.packets.iter_mut().map(|one| (one.place, &mut one.record.seen));
        let rtcp = capture.rtcp.iter_mut().map(|one| (one.place, &mut one.at));
        let answers = capture.answers.values_mut().flatten().flat_map(|(asked, answered)| [asked, answered]);
        let rest = unread.iter_mut().map(|one| (one.0, &mut one.1)).chain(answers.map(|one| (one.place, &mut one.at)));
        // The clock was set at the step, so move the times of all later records.
        let later = packets.chain(rtcp).chain(rest).filter(|one| one.0 >= step.place);
        later.for_each(|one| clock::shift(one.1, -step.nanos));
        set_by.push(Span::nanos(step.nanos.unsigned_abs()));
        let first = flow.packets.iter().find(|one| one.place >= step.place);
        set_at.extend(first.map(|one| one.record.seen));
    }
    let reports = capture.reports_on(&flow);
    // Records may be out of order, for example after a merge. Their times are still correct, so sort by time.
    flow.packets.sort_by_key(|one| one.record.seen);
    let times: Vec<Time> = flow.packets.iter().map(|one| one.record.seen).collect();
    let every = flow.resolution().ok_or_else(|| {
        let remedy = "capture with times (tcpdump's default), or give the original file: a conversion dropped them";
        Problem::at(0, "all its packets have one time", remedy)
    })?;
    // With coarser times, a recording can't show whether packets waited in a queue.
    if every > clock::COARSEST {
        let what = format!("its times are in steps of {:.1} ms, which hide its delays", every.as_millis_f64());
        return Err(Problem::at(0, what, "capture with times to a microsecond: tcpdump --time-stamp-precision=micro"));
    }
    let batches = flow.batches(&times, &reports.iter().map(|one| one.at).collect::<Vec<_>>());
    // If the file does not describe a record's interface, the record has no time.
    let unplaced = capture.dropped + capture.skipped.get(&Skipped::NoInterface).copied().unwrap_or(0);
    if capture.dropped > 0 {
        let packets = counted(capture.dropped, "packet");
        notes.push(format!("the capture says that it dropped {packets}: a gap in the numbers may be its own"));
    }
    let reports_cut = reports.iter().filter(|one| one.is_cut).count();
    let is_dtls = |a: IpAddr, b: IpAddr| capture.dtls.contains(&(a, b)) || capture.dtls.contains(&(b, a));
    let has_dtls = flow.endpoints.iter().any(|(from, to)| is_dtls(from.0, to.0));
    let hidden = hidden(&reports, &flow.sources(), has_dtls);
    let direction = Direction {
        vantage: capture.vantage(&flow, &reports),
        cut_extensions: flow.packets.iter().filter(|one| one.is_cut).count(),
        packets: flow.into_records(),
        reports: reports.into_iter().filter(|one| !one.is_cut).map(|one| (one.at, one.bytes)).collect(),
        side: options.side,
        set_at,
        set_by,
        hidden,
        cut_reports: reports_cut,
        unread: Unread {
            times: unread.into_iter().map(|one| one.1).collect(),
            untimed: capture.untimed.clone(),
            unplaced,
            silences: clock::silences(&times_of(&capture, &times), clock::LEAST_SILENCE, clock::SILENCE_INTERVALS),
        },
        every: every.max(Span::micros(1)),
        batches,
    };
    Ok(Recording { direction, estimates: Vec::new(), source: "a capture", notes })
}

/// Returns the times of all records between the first and the last packet, and then the times in `corrected`.
/// `corrected` has the corrected time of each packet.
fn times_of(capture: &Capture, corrected: &[Time]) -> Vec<Time> {
    let (Some(first), Some(last)) = (corrected.first(), corrected.last()) else { return Vec::new() };
    let within = capture.times.iter().filter(|at| (first..=last).contains(at)).copied();
    within.chain(corrected.iter().copied()).collect()
}

/// Returns why the reports have no readable per-packet feedback.
fn hidden(reports: &[CapturedRtcp], sources: &BTreeSet<u32>, has_dtls: bool) -> Hidden {
    let readable = |one: &&CapturedRtcp| Compound::parse(&one.bytes).is_ok();
    let plain = reports.iter().filter(readable).count();
    // Bytes 8 to 11 of an unencrypted report are the SSRC that it reports on. SRTCP encrypts these bytes.
    let names_source = |one: &CapturedRtcp| {
        let about = one.bytes.get(8..12).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes);
        about.is_some_and(|ssrc| ssrc == 0 || sources.contains(&ssrc))
    };
    let cut = reports.iter().filter(|one| one.is_cut && !readable(one) && names_source(one)).count();
    if cut > plain {
        Hidden::Cut
    } else if reports.len() - plain - cut > plain || has_dtls && plain == 0 {
        Hidden::Sealed
    } else if plain == 0 {
        Hidden::Absent
    } else {
        Hidden::Summary
    }
}

impl Capture {
    fn record(&mut self, record: Record<'_>) -> Result<(), Problem> {
        if !matches!(record, Record::Dropped(_)) {
            self.records += 1;
        }
        if self.records > MOST_PACKETS {
            return Err(Problem::at(0, format!("more than {MOST_PACKETS} packets"), "cut it into parts"));
        }
        // Keep one time per record, because `times` is indexed by the record's number. `packet` later sets the correct
        // time.
        if self.times.len() < self.records {
            self.times.push(self.times.last().copied().unwrap_or(Time::ZERO));
        }
        match record {
            Record::Packet { link, at, source, whole, bytes } => {
                self.source = source;
                self.packet(link, at, whole, bytes)?;
            }
            Record::Untimed { link, bytes } => self.untimed(link, bytes),
            Record::Unreadable(why) => self.skip(why, None),
            Record::Dropped(count) => self.dropped = count,
        }
        Ok(())
    }

    fn packet(&mut self, link: Linktype, at: Duration, whole: u32, bytes: &[u8]) -> Result<(), Problem> {
        let first = *self.first.get_or_insert(at);
        // Add a day, so that a record that is earlier than the first one does not get a negative time.
        let since = (at + DAY).saturating_sub(first);
        if since > 2 * DAY || since.is_zero() {
            let remedy = "give a capture of one call, whose clock was not set by more";
            return Err(Problem::at(0, "its times are more than 24 h apart", remedy));
        }
        let at = Time::from_nanos(since.as_nanos() as u64);
        if let Some(last) = self.times.last_mut() {
            *last = at;
        }
        let is_cut = bytes.len() < whole as usize;
        match decapsulate(link, bytes) {
            Content::Datagram(found) => self.datagram(at, &found, is_cut, is_outgoing(link, bytes)),
            Content::LaterFragment(fragment) => self.fragment(at, fragment, None),
            Content::Skipped(why) => self.skip(why, None),
            Content::Tcp(payload) => {
                self.send_time_id = self.send_time_id.or_else(|| send_time::described(payload));
                self.skip(Skipped::Tcp, None);
            }
        }
        Ok(())
    }

    /// Notes the SSRC and the sequence number of a packet whose record has no time, so that it does not count as lost.
    fn untimed(&mut self, link: Linktype, bytes: &[u8]) {
        let known = match decapsulate(link, bytes) {
            Content::Datagram(found) if found.payload.first().is_some_and(|head| head >> 6 == 2) => {
                rtp(found.payload, true).map(|(header, ..)| (header.ssrc, header.seq))
            }
            _ => None,
        };
        self.untimed.extend(known);
        self.skip(Skipped::Timeless, None);
    }

    fn skip(&mut self, why: Skipped, endpoints: Option<(Endpoint, Endpoint)>) {
        *self.skipped.entry(why).or_default() += 1;
        if matches!(why, Skipped::CutShort | Skipped::Damaged) {
            self.unread.push((self.records, endpoints));
        }
    }

    fn datagram(&mut self, at: Time, found: &Datagram<'_>, is_cut: bool, is_outgoing: Option<bool>) {
        let endpoints = (found.from, found.to);
        let Some(&head) = found.payload.first() else {
            // Datagrams without a payload are keep-alives of a NAT binding, so they are not RTP.
            let why = if is_cut { Skipped::CutShort } else { Skipped::NotRtp };
            *self.other_ports.entry(found.from.1.min(found.to.1)).or_default() += 1;
            return self.skip(why, Some(endpoints));
        };
        // RFC 7983: the first byte is 0 to 3 for STUN, 20 to 63 for DTLS, 128 to 191 for RTP and RTCP. Other protocols,
        // such as DNS, may begin with the same byte, so check the content type and the version as well (RFC 9147).
        if matches!(found.payload, [20..=26, 0xfe, 0xfd | 0xff, ..]) {
            self.dtls.insert((found.from.0, found.to.0));
        }
        if is_cut && is_indication(found.payload) {
            return self.skip(Skipped::CutShort, Some(endpoints));
        }
        // RTP and RTCP have version 2 in the first two bits. Other datagrams may be STUN, or contain a session
        // description.
        if head >> 6 != 2 {
            self.measure(at, found);
            self.send_time_id = self.send_time_id.or_else(|| send_time::described(found.payload));
            *self.other_ports.entry(found.from.1.min(found.to.1)).or_default() += 1;
            return self.skip(Skipped::NotRtp, None);
        }
        let place = self.records;
        if is_rtcp(found.payload) {
            let bytes = found.payload.to_vec();
            self.rtcp.push(CapturedRtcp { place, at, from: found.from, to: found.to, bytes, is_cut });
            return;
        }
        let Some((header, elements, is_header_cut)) = rtp(found.payload, is_cut) else {
            return self.skip(if is_cut { Skipped::CutShort } else { Skipped::NotRtp }, Some(endpoints));
        };
        let record = PacketRecord {
            seen: at,
            stamp: None,
            size: Bytes::new(found.size),
            ssrc: header.ssrc,
            seq: header.seq,
            transport: None,
            timestamp: header.timestamp,
            marker: header.marker,
            is_recorded: true,
            is_repeat: false,
        };
        let packets = self.packets.entry(endpoints).or_default();
        packets.push(CapturedPacket {
            place,
            record,
            source: self.source,
            elements,
            is_cut: is_header_cut,
            is_outgoing,
        });
        let index = packets.len() - 1;
        if let Some(fragment) = found.fragment {
            self.fragment(at, fragment, Some((fragment.all, endpoints, index)));
        }
    }

    /// Adds a fragment to its datagram. If the datagram is complete, it gets the arrival time of its last fragment.
    fn fragment(&mut self, at: Time, fragment: Fragment, first: Option<(u64, (Endpoint, Endpoint), usize)>) {
        let known = self.fragments.remove(&fragment.of).filter(|known| at.since(known.last) <= FRAGMENTS_WITHIN);
        let mut known = known.unwrap_or(Fragments { last: at, bytes: 0, place: self.records, first: None });
        known.last = known.last.max(at);
        known.bytes += fragment.bytes;
        known.first = known.first.or(first);
        match known.first {
            Some((all, endpoints, index)) if known.bytes >= all => {
                self.joined_fragments += 1;
                if let Some(one) = self.packets.get_mut(&endpoints).and_then(|packets| packets.get_mut(index)) {
                    // The host can use the datagram only after the last fragment has arrived.
                    one.record.seen = known.last;
                }
            }
            _ => {
                self.fragments.insert(fragment.of, known);
            }
        }
    }

    /// Measures the round trip to a host by STUN requests and answers, which are not encrypted.
    fn measure(&mut self, at: Time, found: &Datagram<'_>) {
        let seen = Sighting { place: self.records, at };
        match stun(found.payload) {
            // Limit the memory for requests that are never answered.
            Some((id, false)) if self.requests.len() < MOST_REQUESTS => {
                self.requests.entry(id).or_insert((seen, found.to));
            }
            Some((id, true)) => {
                if let Some((asked, _)) = self.requests.remove(&id).filter(|one| one.1.0 == found.from.0) {
                    self.answers.entry(found.from).or_default().push((asked, seen));
                }
            }
            _ => {}
        }
    }

    fn note_skipped(&self, notes: &mut Vec<String>) {
        if self.joined_fragments > 0 {
            notes.push(format!("{} were joined from fragments", counted(self.joined_fragments, "datagram")));
        }
        let missing = self.fragments.values().filter(|one| one.first.is_some()).count();
        if missing > 0 {
            let packets = counted(missing as u64, "packet");
            notes.push(format!("of {packets} only the first fragments are in the capture: these are used"));
        }
        let orphans = self.fragments.len() - missing;
        if orphans > 0 {
            let packets = counted(orphans as u64, "datagram");
            notes.push(format!("of {packets} the first fragment is not in the capture: nothing shows what they were"));
        }
        notes.extend(left_out(&self.skipped));
    }

    /// Returns the error for a capture without RTP. It contains the most frequent reason why records were skipped.
    fn without_rtp(&self) -> Problem {
        let records = counted(self.records as u64, "record");
        if self.records == 0 {
            return Problem::at(0, "it holds no packet", "capture while the call passes, and stop after its end");
        }
        let Some((why, count)) = self.skipped.iter().max_by_key(|(_, count)| **count) else {
            let what = format!(
                "it holds no RTP: in its {records} no source has {} packets in sequence",
                crate::flow::IN_SEQUENCE
            );
            return Problem::at(0, what, Skipped::NotRtp.remedy());
        };
        // If the most frequent port is that of a known tunnel, the call is encrypted inside this tunnel.
        let port = self.other_ports.iter().max_by_key(|(_, count)| **count).map(|one| *one.0);
        let (port, remedy) = match port.filter(|_| *why == Skipped::NotRtp) {
            Some(port) => {
                let name = tunnel_of(port);
                let named = name.map_or(String::new(), |name| format!(", as {name} has"));
                let remedy = name.map_or(why.remedy(), |_| Skipped::Ipsec.remedy());
                (format!(" (most with port {port}{named})"), remedy)
            }
            None => (String::new(), why.remedy()),
        };
        let what = match why {
            Skipped::CutShort => format!("{} cut so short that no header can be read", counted(*count, "packet")),
            _ => {
                let sequence = crate::flow::IN_SEQUENCE;
                format!(
                    "it holds no RTP (no source with {sequence} packets in sequence): of its {records} {count} are \
                     {why}{port}"
                )
            }
        };
        Problem::at(0, what, remedy)
    }

    /// Returns RTCP packets that travelled in the opposite direction and refer to an SSRC of `flow`.
    fn reports_on(&self, flow: &Flow) -> Vec<CapturedRtcp> {
        let sources = flow.sources();
        let is_back = |one: &&CapturedRtcp| {
            let goes_back = |(from, to): &(Endpoint, Endpoint)| one.from.0 == to.0 && one.to.0 == from.0;
            flow.endpoints.iter().any(goes_back) && names_source_of(&one.bytes, &sources)
        };
        let mut found: Vec<CapturedRtcp> = self.rtcp.iter().filter(is_back).cloned().collect();
        // A capture with two copies of each packet also has two copies of each report. Keep one of them.
        let mut last: BTreeMap<Vec<u8>, Time> = BTreeMap::new();
        found.retain(|one| {
            let before = last.insert(one.bytes.clone(), one.at);
            before.is_none_or(|before| one.at.since(before) > COPY_OF_REPORT_WITHIN)
        });
        found
    }

    /// Returns unreadable records that may have been packets of `flow`: number of the record, and approximate time.
    fn unread_beside(&self, flow: &Flow) -> Vec<(usize, Time)> {
        let near = |place: usize| {
            let after = flow.packets.partition_point(|one| one.place < place);
            let beside = flow.packets.get(after.saturating_sub(1)).or(flow.packets.first());
            beside.map_or(Time::ZERO, |one| one.record.seen)
        };
        let is_of = |endpoints: &Option<(Endpoint, Endpoint)>| {
            endpoints.is_none_or(|endpoints| flow.endpoints.contains(&endpoints))
        };
        let skipped = self.unread.iter().filter(|one| is_of(&one.1)).map(|one| (one.0, near(one.0)));
        let orphans = self.fragments.iter().filter(|(of, fragments)| {
            let is_of = |(from, to): &(Endpoint, Endpoint)| from.0 == of.0 && to.0 == of.1;
            fragments.first.is_none() && flow.endpoints.iter().any(is_of)
        });
        skipped.chain(orphans.map(|(_, fragments)| (fragments.place, fragments.last))).collect()
    }

    /// Determines from the packets where the capture was made.
    fn vantage(&self, flow: &Flow, reports: &[CapturedRtcp]) -> Vantage {
        let directions: Vec<bool> = flow.packets.iter().filter_map(|one| one.is_outgoing).collect();
        let outgoing = directions.iter().filter(|is| **is).count();
        // Linux's cooked captures say for each packet whether the capturing host sent it.
        if directions.len() * 2 > flow.packets.len() && outgoing == directions.len() {
            return Vantage::Sender;
        }
        // Any port of a host shows the round trip to it. If both ends have the same address, only their ports differ.
        let is_one_host = flow.endpoints.iter().any(|(from, to)| from.0 == to.0);
        let by_stun = |end: &dyn Fn(&(Endpoint, Endpoint)) -> Endpoint| -> Vec<i64> {
            let ends: BTreeSet<Endpoint> = flow.endpoints.iter().map(end).collect();
            let is_end = |one: &Endpoint| ends.iter().any(|end| one == end || (!is_one_host && one.0 == end.0));
            let answers = self.answers.iter().filter(|(one, _)| is_end(one)).flat_map(|(_, answers)| answers);
            answers.map(|(asked, answered)| nanos_between(asked.at, answered.at)).collect()
        };
        let to_sender = RoundTrips::of(by_stun(&|ends| ends.0));
        let mut to_receiver = by_stun(&|ends| ends.1);
        to_receiver.extend(self.by_sender_reports(flow, reports));
        match (to_sender, RoundTrips::of(to_receiver)) {
            // If both hosts are near, the round trips do not show where the capture was made.
            (Some(sender), Some(receiver)) if sender.is_local() && sender.median * 4 < receiver.median => {
                Vantage::Sender
            }
            (sender, Some(receiver))
                if receiver.is_local() && sender.as_ref().is_none_or(|sender| receiver.median * 4 < sender.median) =>
            {
                Vantage::Receiver
            }
            (_, Some(receiver)) if !receiver.is_local() => Vantage::Before { receiver: receiver.lower_quartile },
            _ => Vantage::Unknown,
        }
    }

    /// Returns round trips to the receiver in nanoseconds. They are measured from sender reports to the receiver's
    /// answers (LSR and DLSR, RFC 3550, section 6.4.1).
    fn by_sender_reports(&self, flow: &Flow, reports: &[CapturedRtcp]) -> Vec<i64> {
        let mut sent: BTreeMap<u32, Time> = BTreeMap::new();
        let goes_there =
            |one: &&CapturedRtcp| flow.endpoints.iter().any(|(from, to)| one.from.0 == from.0 && one.to.0 == to.0);
        for one in self.rtcp.iter().filter(goes_there) {
            for packet in Compound::parse(&one.bytes).map_or(Vec::new(), |compound| compound.packets) {
                if let Packet::SenderReport { ntp, .. } = packet {
                    // LSR repeats the middle 32 bits of the sender report's NTP time, so use them as the key.
                    sent.insert((ntp >> 16) as u32, one.at);
                }
            }
        }
        let trips = reports.iter().flat_map(|one| {
            let packets = Compound::parse(&one.bytes).map_or(Vec::new(), |compound| compound.packets);
            let blocks = packets.into_iter().flat_map(|packet| match packet {
                Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } => blocks,
                _ => Vec::new(),
            });
            let sent = &sent;
            // A DLSR of zero means that the receiver has received no sender report, or that it does not measure DLSR.
            // The time since the sender report is then no round trip.
            blocks.filter(|block| block.lsr != 0 && block.dlsr != 0).filter_map(move |block| {
                let held = i64::from(block.dlsr) * 1_000_000_000 / 65_536;
                Some(nanos_between(*sent.get(&block.lsr)?, one.at) - held)
            })
        });
        trips.collect()
    }
}

fn nanos_between(from: Time, to: Time) -> i64 {
    to.as_nanos() as i64 - from.as_nanos() as i64
}

/// Returns a note that lists how many records were skipped and why. Returns `None` if no record was skipped.
pub(crate) fn left_out(skipped: &BTreeMap<Skipped, u64>) -> Option<String> {
    let mut skipped: Vec<(&Skipped, &u64)> = skipped.iter().collect();
    skipped.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let all = counted(skipped.iter().map(|one| one.1).sum(), "record");
    match &skipped[..] {
        [] => None,
        [(why, _)] => Some(format!("{all} were left out: {why}")),
        _ => {
            let listed: Vec<String> = skipped.iter().map(|(why, count)| format!("{count} {why}")).collect();
            Some(format!("{all} were left out: {}", listed.join(", ")))
        }
    }
}

/// Parses an RTP header and its extension elements of 2 to 4 bytes, as far as they were captured. Also returns whether
/// the header was cut.
pub(crate) fn rtp(payload: &[u8], is_cut: bool) -> Option<(RtpHeader, Elements, bool)> {
    if payload.len() < RTP_HEADER {
        return None;
    }
    let mut bytes = payload.to_vec();
    // Clear the padding bit. The padding's length is in the last byte, which may be cut off. So padding counts as
    // payload.
    bytes[0] &= !0x20;
    if is_cut {
        bytes.resize(bytes.len().max(FILLED), 0);
    }
    let (header, extensions, _) = RtpHeader::parse(&bytes).ok()?;
    let mut elements = Elements::new();
    for (id, data) in extensions.filter(|(_, data)| (2..=4).contains(&data.len())) {
        // Skip a value if a part of it was cut off.
        let end = data.as_ptr() as usize + data.len() - bytes.as_ptr() as usize;
        if end <= payload.len() {
            elements.push((id, data.len(), data.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))));
        }
    }
    let ours = header.send_time.filter(|_| !is_cut).map(|stamp| (steadycast_wire::rtp::SEND_TIME_ID, 4, stamp.0));
    elements.extend(ours.filter(|ours| !elements.contains(ours)));
    let is_header_cut = payload.len() < header_length(payload)?;
    Some((header, elements, is_header_cut))
}

/// Returns the length of an RTP header including its extension, in bytes. Returns `None` if `payload` is empty. If the
/// extension's length was cut off, the extension counts as empty.
fn header_length(payload: &[u8]) -> Option<usize> {
    let head = *payload.first()?;
    let sources = RTP_HEADER + usize::from(head & 0x0f) * 4;
    if head & 0x10 == 0 {
        return Some(sources);
    }
    let words =
        payload.get(sources + 2..sources + 4).map_or(0, |two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    Some(sources + 4 + words * 4)
}

fn tunnel_of(port: u16) -> Option<&'static str> {
    Some(match port {
        500 | 4500 => "IPsec",
        1080 => "a SOCKS proxy",
        1194 => "OpenVPN",
        1701 => "L2TP",
        3544 => "Teredo",
        51_820 => "WireGuard",
        _ => return None,
    })
}
