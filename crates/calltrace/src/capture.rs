//! Captures, pcap and pcapng: RTP with its header extensions, and the RTCP that reports on it where that is readable.

use crate::call::{Direction, Hidden, Record, Sighting, Vantage};
use crate::clock;
use crate::decapsulation::{
    Content, Datagram, End, Fragment, FragmentedDatagram, Skipped, decapsulate, is_outgoing, stun,
};
use crate::send_time::{self, Elements, SendTimes};
use crate::{Opener, Options, Problem};
use pcap_parser::pcapng::{Block, OptionCode};
use pcap_parser::{Linktype, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use steadycast_units::{Bytes, Span, Time, counted};
use steadycast_wire::is_rtcp;
use steadycast_wire::rtcp::{Compound, CongestionFeedback, Packet};
use steadycast_wire::rtp::RtpHeader;

/// The most packets of a file.
const MOST_PACKETS: usize = 20_000_000;
/// Times of a capture are within a day of each other.
const DAY: Duration = Duration::from_secs(86_400);
/// Packets whose numbers follow each other that make RTP of a source.
const IN_SEQUENCE: usize = 20;
/// The longest step between the numbers of two such packets.
const LONGEST_STEP: i16 = 64;
/// A packet that stands twice does so within this time; without a header extension its bytes do not show that it was
/// not sent again.
const TWICE_WITHIN: Span = Span::secs(2);
const TWICE_WITHIN_BARE: Span = Span::millis(5);
/// Fragments of a datagram are this close; later ones with its number are another's.
const FRAGMENTS_WITHIN: Span = Span::secs(5);
/// STUN requests whose answer is awaited.
const MOST_REQUESTS: usize = 100_000;
/// An end whose answers come back within this time is where the capture was made.
const HERE: Span = Span::millis(2);

/// A packet as it stands in the file.
#[derive(Clone)]
struct Captured {
    /// The place of its record in the file.
    place: usize,
    sighting: Sighting,
    elements: Elements,
    is_outgoing: Option<bool>,
}

/// RTCP as it stands in the file.
#[derive(Clone)]
struct CapturedRtcp {
    place: usize,
    at: Time,
    from: End,
    to: End,
    bytes: Vec<u8>,
    is_cut: bool,
}

/// RTP of one or more pairs of ends that share a source.
#[derive(Default)]
struct Way {
    ends: Vec<(End, End)>,
    packets: Vec<Captured>,
    /// Packets that stand twice.
    doubled: usize,
}

/// The fragments of a datagram that were seen.
struct Fragments {
    last: Time,
    bytes: u64,
    /// The datagram's bytes, and its packet: of which ends, and its place there.
    first: Option<(u64, (End, End), usize)>,
}

/// All that is read of a capture.
#[derive(Default)]
struct Seen {
    ways: BTreeMap<(End, End), Way>,
    rtcp: Vec<CapturedRtcp>,
    first: Option<Duration>,
    fragments: BTreeMap<FragmentedDatagram, Fragments>,
    joined_fragments: u64,
    skipped: BTreeMap<Skipped, u64>,
    has_dtls: bool,
    packets: usize,
    /// Packets that the capturing program says it dropped.
    dropped: u64,
    send_time_id: Option<u8>,
    /// STUN requests that were not answered yet, by their transaction.
    requests: BTreeMap<[u8; 12], (Time, IpAddr)>,
    /// The least time from a request to a host to its answer, both as captured.
    distances: BTreeMap<IpAddr, Span>,
}

/// Whether bytes begin as a capture does.
pub(crate) fn is(bytes: &[u8]) -> bool {
    let magics = [0x0a0d_0d0a, 0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];
    bytes.first_chunk().is_some_and(|four| magics.contains(&u32::from_be_bytes(*four)))
}

/// Reads a capture: the direction that `options.stream` names, or the only one.
///
/// # Errors
/// It is broken, holds no RTP or several calls, or does not say how packets arrived.
pub(crate) fn read(bytes: &[u8], options: Options, opener: Option<Opener<'_>>) -> Result<Record, Problem> {
    let mut seen = Seen::default();
    let cut =
        if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) { pcapng(bytes, &mut seen) } else { pcap(bytes, &mut seen) }?;
    let mut notes = Vec::new();
    if let Some(opener) = opener {
        let all = seen.rtcp.len();
        let sealed = counted(all as u64, "RTCP packet");
        seen.rtcp.retain_mut(|rtcp| opener(&rtcp.bytes).map(|plain| rtcp.bytes = plain).is_some());
        if all > 0 && seen.rtcp.is_empty() {
            return Err(Problem::at(0, format!("the key opens none of its {sealed}"), "give its session's key file"));
        }
        notes.push(format!("the key opened {} of {sealed}", seen.rtcp.len()));
    }
    if let Some(at) = cut {
        notes.push(format!("the capture is cut or broken at byte {at}: what stands before is used"));
    }
    seen.note_skipped(&mut notes);
    let mut ways = std::mem::take(&mut seen.ways);
    keep_rtp(&mut ways);
    if ways.is_empty() {
        return Err(seen.without_rtp());
    }
    let mut ways = merged(ways);
    ways.iter_mut().for_each(Way::drop_copies);
    let chosen = chosen(&ways, options.stream)?;
    let others: usize = ways
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != chosen)
        .flat_map(|(_, way)| &way.packets)
        .filter(|packet| Some(packet.sighting.ssrc) == options.stream)
        .count();
    if others > 0 {
        let more = counted(others as u64, "more packet");
        notes.push(format!("{more} between other addresses have this SSRC, and are left out"));
    }
    let way = ways.swap_remove(chosen);
    direction(way, &seen, options, notes)
}

/// Finds what the packets' extensions are, sets the capture's clock right, and collects the reports on them.
fn direction(mut way: Way, seen: &Seen, options: Options, mut notes: Vec<String>) -> Result<Record, Problem> {
    if way.ends.len() > 1 {
        let pairs = counted(way.ends.len() as u64, "pair");
        notes.push(format!("its streams went between {pairs} of addresses, as after a NAT rebinding: all are used"));
    }
    if way.doubled > 0 {
        let all = way.packets.len();
        notes.push(if way.doubled * 10 >= all * 9 {
            "each packet stands twice in the capture: one of each is used".to_owned()
        } else {
            format!("{} that stand twice in the capture are used once", counted(way.doubled as u64, "packet"))
        });
    }
    let named = options.send_time_id.or(seen.send_time_id);
    let found = send_time::find(way.packets.iter().map(|one| (one.sighting.seen, &one.elements)), named)?;
    let mut reports = seen.reports_on(&way);
    set_right(&mut way, &mut reports, found, &mut notes);
    let times: Vec<Time> = way.packets.iter().map(|one| one.sighting.seen).collect();
    let every = clock::resolution(&times).ok_or_else(|| {
        let remedy = "capture with times (tcpdump's default), or give the original file: a conversion dropped them";
        Problem::at(0, "all its packets have one time", remedy)
    })?;
    if every > clock::COARSEST {
        let what = format!("its times are in steps of {:.1} ms, which hide its delays", every.as_millis_f64());
        return Err(Problem::at(0, what, "capture with times to a microsecond: tcpdump --time-stamp-precision=micro"));
    }
    if seen.dropped > 0 {
        let packets = counted(seen.dropped, "packet");
        notes.push(format!("the capture says that it dropped {packets}: a gap in the numbers may be its own"));
    }
    let hidden = hidden(&reports, &way.sources(), seen.has_dtls);
    let vantage = seen.vantage(&way, &reports);
    let direction = Direction {
        packets: way.sightings(found),
        reports: reports.into_iter().filter(|one| !one.is_cut).map(|one| (one.at, one.bytes)).collect(),
        side: options.side,
        vantage,
        hidden,
        has_drops: seen.dropped > 0,
        every: every.max(Span::micros(1)),
    };
    Ok(Record { direction, estimates: Vec::new(), source: "a capture", notes })
}

/// Why reports in the other direction tell nothing of single packets.
fn hidden(reports: &[CapturedRtcp], sources: &BTreeSet<u32>, has_dtls: bool) -> Hidden {
    let readable = |one: &&CapturedRtcp| Compound::parse(&one.bytes).is_ok();
    let plain = reports.iter().filter(readable).count();
    // Behind the eight bytes that SRTCP leaves in the clear a report names the source that it is about.
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

/// Takes out steps of the capture's clock, which send times show; without these, only that it was set back.
fn set_right(way: &mut Way, reports: &mut [CapturedRtcp], found: Option<send_time::Kind>, notes: &mut Vec<String>) {
    way.packets.sort_by_key(|one| one.place);
    let steps = match found {
        Some(kind) => by_send_times(&way.packets, kind),
        None => set_back(&way.packets),
    };
    for step in steps {
        let moved = |at: Time| Time::from_nanos(at.as_nanos().saturating_add_signed(-step.nanos));
        way.packets.iter_mut().filter(|one| one.place >= step.place).for_each(|one| {
            one.sighting.seen = moved(one.sighting.seen);
        });
        reports.iter_mut().filter(|one| one.place >= step.place).for_each(|one| one.at = moved(one.at));
        notes.push(clock::set_note(step.nanos));
    }
    // What stands out of order was recorded so, by several threads or in a merge: the times are in order.
    way.packets.sort_by_key(|one| one.sighting.seen);
}

fn by_send_times(packets: &[Captured], kind: send_time::Kind) -> Vec<clock::Step> {
    let bits = send_time::bits(kind);
    let wrap = (1_i64 << (bits - 18)) * 1_000_000_000;
    let value = |one: &Captured| one.elements.iter().find(|e| (e.0, e.1) == kind).map(|e| e.2);
    let stamped: Vec<(&Captured, u32)> = packets.iter().filter_map(|one| Some((one, value(one)?))).collect();
    let mut points = Vec::with_capacity(stamped.len());
    let (mut delay, mut before): (i64, Option<(&Captured, u32)>) = (0, None);
    for &(one, raw) in &stamped {
        if let Some((last, last_raw)) = before {
            let passed = one.sighting.seen.as_nanos() as i64 - last.sighting.seen.as_nanos() as i64;
            let mut advanced = send_time::advance(last_raw, raw, bits);
            let follows =
                one.sighting.ssrc == last.sighting.ssrc && one.sighting.seq == last.sighting.seq.wrapping_add(1);
            if !follows {
                // A silence may have been longer than a wrap.
                advanced += ((passed - advanced) as f64 / wrap as f64).round() as i64 * wrap;
            }
            delay += passed - advanced;
        }
        before = Some((one, raw));
        points.push((one.sighting.seen.as_nanos() as i64, delay));
    }
    let steps = clock::steps(&points);
    steps.into_iter().map(|step| clock::Step { place: stamped[step.place].0.place, ..step }).collect()
}

/// Finds where a clock was set back, where no packet says when it left: the numbers go on, and the times repeat.
fn set_back(packets: &[Captured]) -> Vec<clock::Step> {
    const LEAST_NS: i64 = 100_000_000;
    const FOLLOWING: usize = 5;
    let mut streams: BTreeMap<u32, Vec<&Captured>> = BTreeMap::new();
    for one in packets {
        streams.entry(one.sighting.ssrc).or_default().push(one);
    }
    let Some(stream) = streams.into_values().max_by_key(Vec::len) else { return Vec::new() };
    let nanos = |one: &Captured| one.sighting.seen.as_nanos() as i64;
    let is_step = |window: &&[&Captured]| {
        let ahead = window[1].sighting.seq.wrapping_sub(window[0].sighting.seq);
        let back = nanos(window[1]) - nanos(window[0]);
        (1..=8).contains(&ahead) && back <= -LEAST_NS && window[1..].iter().all(|one| nanos(one) < nanos(window[0]))
    };
    let steps = stream.windows(FOLLOWING + 1).filter(is_step);
    steps.map(|two| clock::Step { place: two[1].place, nanos: nanos(two[1]) - nanos(two[0]) }).collect()
}

/// Leaves out what is no RTP: sources whose numbers do not follow each other.
fn keep_rtp(ways: &mut BTreeMap<(End, End), Way>) {
    let mut sources: BTreeMap<u32, Vec<(Time, u16)>> = BTreeMap::new();
    for one in ways.values().flat_map(|way| &way.packets) {
        sources.entry(one.sighting.ssrc).or_default().push((one.sighting.seen, one.sighting.seq));
    }
    sources.retain(|_, packets| {
        packets.sort();
        packets.dedup_by_key(|packet| packet.1);
        let steps = packets.windows(2).map(|pair| pair[1].1.wrapping_sub(pair[0].1) as i16);
        let following = steps.filter(|step| (-LONGEST_STEP..=LONGEST_STEP).contains(step)).count();
        following >= IN_SEQUENCE && following * 2 >= packets.len()
    });
    ways.retain(|_, way| {
        way.packets.retain(|one| sources.contains_key(&one.sighting.ssrc));
        !way.packets.is_empty()
    });
}

/// Joins what goes between different addresses and shares a source: a NAT rebound, or the capture stands on both sides
/// of one. The two directions of an echo, and what a relay sends on, stay apart.
fn merged(ways: BTreeMap<(End, End), Way>) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    for (ends, mut way) in ways {
        way.ends = vec![ends];
        let sources = way.sources();
        let passes_on = |other: &Way| {
            other.ends.iter().any(|(from, to)| {
                let same_host = from.0 == to.0;
                let meet = |a: &End, b: &End| if same_host { a == b } else { a.0 == b.0 };
                meet(to, &ends.0) || meet(from, &ends.1)
            })
        };
        let found = all
            .iter_mut()
            .find(|other| !passes_on(other) && other.packets.iter().any(|one| sources.contains(&one.sighting.ssrc)));
        match found {
            Some(other) => {
                other.ends.push(ends);
                other.packets.append(&mut way.packets);
            }
            None => all.push(way),
        }
    }
    all
}

/// The direction that is meant.
fn chosen(ways: &[Way], stream: Option<u32>) -> Result<usize, Problem> {
    let mut sorted: Vec<(usize, u64)> = ways.iter().map(Way::bytes).enumerate().collect();
    sorted.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let listed: Vec<String> = sorted.iter().take(20).map(|(i, bytes)| ways[*i].described(*bytes)).collect();
    let listed = listed.join("; ");
    if let Some(ssrc) = stream {
        let found = sorted.iter().find(|(i, _)| ways[*i].sources().contains(&ssrc));
        return found.map(|(i, _)| *i).ok_or_else(|| {
            Problem::at(0, format!("no stream has the SSRC {ssrc}"), format!("choose one of: {listed}"))
        });
    }
    // A direction that carries next to nothing, such as the other end's sound, is no call of its own.
    match &sorted[..] {
        [first, second, ..] if second.1 * 10 > first.1 => {
            let what = format!("it holds {} of media: {listed}", counted(ways.len() as u64, "direction"));
            Err(Problem::at(0, what, "name one by --stream SSRC"))
        }
        _ => Ok(sorted[0].0),
    }
}

/// Whether a report is about one of these sources; feedback that names none counts, and so does what can't be read.
fn names(bytes: &[u8], sources: &BTreeSet<u32>) -> bool {
    let Ok(compound) = Compound::parse(bytes) else { return true };
    compound.packets.iter().any(|packet| match packet {
        Packet::Feedback { media, .. } if packet.is_packet_feedback() => {
            let streams = CongestionFeedback::from_packet(packet).ok().flatten();
            sources.contains(media)
                || *media == 0
                || streams.is_some_and(|report| report.streams.iter().any(|one| sources.contains(&one.ssrc)))
        }
        Packet::SenderReport { blocks, .. } | Packet::ReceiverReport { blocks, .. } => {
            blocks.iter().any(|block| sources.contains(&block.ssrc))
        }
        _ => false,
    })
}

impl Way {
    fn sources(&self) -> BTreeSet<u32> {
        self.packets.iter().map(|one| one.sighting.ssrc).collect()
    }

    fn bytes(&self) -> u64 {
        self.packets.iter().map(|one| one.sighting.size.get()).sum()
    }

    fn described(&self, bytes: u64) -> String {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for one in &self.packets {
            *counts.entry(one.sighting.ssrc).or_default() += 1;
        }
        let main = counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(ssrc, _)| *ssrc);
        let times = || self.packets.iter().map(|one| one.sighting.seen);
        let length = times().max().zip(times().min()).map_or(Span::ZERO, |(last, first)| last.since(first));
        format!("SSRC {main}, {:.1} s, {} kB", length.as_secs_f64(), bytes / 1000)
    }

    /// Keeps one record of each packet that stands twice: a capture at several interfaces, or of a mirror port.
    ///
    /// Where each does, and says when it left, the later record is kept, which is the one nearer to the receiver.
    fn drop_copies(&mut self) {
        self.packets.sort_by_key(|one| one.sighting.seen);
        let mut last: BTreeMap<(u32, u16), usize> = BTreeMap::new();
        let mut copies: Vec<(usize, usize)> = Vec::new();
        for (i, one) in self.packets.iter().enumerate() {
            let key = (one.sighting.ssrc, one.sighting.seq);
            if let Some(&first) = last.get(&key) {
                let before = &self.packets[first];
                let within = if one.elements.is_empty() { TWICE_WITHIN_BARE } else { TWICE_WITHIN };
                let is_near = one.sighting.seen.since(before.sighting.seen) <= within;
                if is_near && before.elements == one.elements && before.sighting.timestamp == one.sighting.timestamp {
                    copies.push((first, i));
                    continue;
                }
            }
            last.insert(key, i);
        }
        let left = self.packets.len() - copies.len();
        let later = copies.len() * 10 >= left * 9 && self.packets.iter().all(|one| !one.elements.is_empty());
        if later {
            for &(first, copy) in &copies {
                let (seen, place) = (self.packets[copy].sighting.seen, self.packets[copy].place);
                self.packets[first].sighting.seen = seen;
                self.packets[first].place = place;
            }
        }
        let dropped: BTreeSet<usize> = copies.iter().map(|copy| copy.1).collect();
        let mut i = 0;
        self.packets.retain(|_| {
            i += 1;
            !dropped.contains(&(i - 1))
        });
        self.doubled = copies.len();
    }

    /// The packets, with what their extension elements are found to be.
    fn sightings(self, stamps: Option<send_time::Kind>) -> Vec<Sighting> {
        let of = |elements: &Elements, kind: send_time::Kind| elements.iter().find(|e| (e.0, e.1) == kind).map(|e| e.2);
        let kinds: BTreeSet<send_time::Kind> =
            self.packets.iter().flat_map(|one| one.elements.iter().map(|(id, len, _)| (*id, *len))).collect();
        // Transport-wide numbers have 16 bits; with a request of feedback (version 2) 16 more follow.
        let number = |kind: send_time::Kind, value: u32| (if kind.1 == 4 { value >> 16 } else { value }) as u16;
        let counts = kinds.into_iter().filter(|kind| matches!(kind.1, 2 | 4) && Some(*kind) != stamps).find(|&kind| {
            let all = self.packets.iter().filter_map(|one| of(&one.elements, kind));
            does_count(&all.map(|value| number(kind, value)).collect::<Vec<_>>())
        });
        let mut unwrapped = SendTimes::new(stamps.map_or(24, send_time::bits));
        let found = self.packets.iter().map(|one| Sighting {
            transport: counts.and_then(|kind| Some(number(kind, of(&one.elements, kind)?))),
            stamp: stamps.and_then(|kind| of(&one.elements, kind)).map(|raw| unwrapped.unwrap(raw, one.sighting.seen)),
            ..one.sighting
        });
        found.collect()
    }
}

/// Whether values of 16 bits count packets: nine of ten are a few more than the one before.
fn does_count(values: &[u16]) -> bool {
    let next = values.windows(2).filter(|pair| (1..=LONGEST_STEP as u16).contains(&pair[1].wrapping_sub(pair[0])));
    values.len() >= IN_SEQUENCE && next.count() * 10 >= (values.len() - 1) * 9
}

impl Seen {
    /// Takes a packet as it was captured.
    fn packet(&mut self, link: Linktype, at: Duration, whole: u32, bytes: &[u8]) -> Result<(), Problem> {
        self.packets += 1;
        if self.packets > MOST_PACKETS {
            return Err(Problem::at(0, format!("more than {MOST_PACKETS} packets"), "cut it into parts"));
        }
        let first = *self.first.get_or_insert(at);
        // The clock is the capture's; what was stamped before the first packet is not before its zero.
        let since = (at + DAY).saturating_sub(first);
        if since > 2 * DAY || since.is_zero() {
            let remedy = "give a capture of one call, whose clock was not set by more";
            return Err(Problem::at(0, "its times are more than 24 h apart", remedy));
        }
        let at = Time::from_nanos(since.as_nanos() as u64);
        let is_cut = bytes.len() < whole as usize;
        match decapsulate(link, bytes) {
            Content::Datagram(found) => self.datagram(at, &found, is_cut, is_outgoing(link, bytes)),
            Content::LaterFragment(fragment) => self.fragment(at, fragment, None),
            Content::Skipped(why) => self.skip(why),
            Content::Tcp(payload) => {
                self.send_time_id = self.send_time_id.or_else(|| send_time::described(payload));
                self.skip(Skipped::Tcp);
            }
        }
        Ok(())
    }

    fn skip(&mut self, why: Skipped) {
        *self.skipped.entry(why).or_default() += 1;
    }

    fn datagram(&mut self, at: Time, found: &Datagram<'_>, is_cut: bool, is_outgoing: Option<bool>) {
        let Some(&head) = found.payload.first() else { return self.skip(Skipped::CutShort) };
        // RFC 7983: below 4 STUN, 20 to 63 DTLS, 128 to 191 RTP and RTCP.
        self.has_dtls |= (20..=63).contains(&head);
        if head >> 6 != 2 {
            self.measure(at, found);
            self.send_time_id = self.send_time_id.or_else(|| send_time::described(found.payload));
            return self.skip(Skipped::NotRtp);
        }
        if is_rtcp(found.payload) {
            let (place, bytes) = (self.packets, found.payload.to_vec());
            self.rtcp.push(CapturedRtcp { place, at, from: found.from, to: found.to, bytes, is_cut });
            return;
        }
        // Padding is counted by a last byte, which may be cut off; here it is a part of the size.
        let mut plain = found.payload.to_vec();
        plain[0] &= !0x20;
        let Ok((header, extensions, _)) = RtpHeader::parse(&plain) else {
            return self.skip(if is_cut { Skipped::CutShort } else { Skipped::NotRtp });
        };
        let short = extensions.filter(|(_, data)| (2..=4).contains(&data.len()));
        let number = |data: &[u8]| data.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        let mut elements: Elements = short.map(|(id, data)| (id, data.len(), number(data))).collect();
        elements.extend(header.send_time.map(|stamp| (steadycast_wire::rtp::SEND_TIME_ID, 4, stamp.0)));
        let sighting = Sighting {
            seen: at,
            stamp: None,
            size: Bytes::new(found.size),
            ssrc: header.ssrc,
            seq: header.seq,
            transport: None,
            timestamp: header.timestamp,
            marker: header.marker,
            is_recorded: true,
        };
        let ends = (found.from, found.to);
        let packets = &mut self.ways.entry(ends).or_default().packets;
        packets.push(Captured { place: self.packets, sighting, elements, is_outgoing });
        let place = packets.len() - 1;
        if let Some(fragment) = found.fragment {
            self.fragment(at, fragment, Some((fragment.all, ends, place)));
        }
    }

    /// Counts a fragment. A datagram has arrived when its last fragment has.
    fn fragment(&mut self, at: Time, fragment: Fragment, first: Option<(u64, (End, End), usize)>) {
        let known = self.fragments.remove(&fragment.of).filter(|known| at.since(known.last) <= FRAGMENTS_WITHIN);
        let mut known = known.unwrap_or(Fragments { last: at, bytes: 0, first: None });
        known.last = known.last.max(at);
        known.bytes += fragment.bytes;
        known.first = known.first.or(first);
        match known.first {
            Some((all, ends, place)) if known.bytes >= all => {
                self.joined_fragments += 1;
                if let Some(one) = self.ways.get_mut(&ends).and_then(|way| way.packets.get_mut(place)) {
                    one.sighting.seen = known.last;
                }
            }
            _ => {
                self.fragments.insert(fragment.of, known);
            }
        }
    }

    /// Measures how far a host is by its answers to STUN, which are readable in encrypted calls.
    fn measure(&mut self, at: Time, found: &Datagram<'_>) {
        match stun(found.payload) {
            Some((id, false)) if self.requests.len() < MOST_REQUESTS => {
                self.requests.entry(id).or_insert((at, found.to.0));
            }
            Some((id, true)) => {
                if let Some((asked, host)) = self.requests.remove(&id).filter(|one| one.1 == found.from.0) {
                    let trip = at.since(asked);
                    self.distances.entry(host).and_modify(|least| *least = trip.min(*least)).or_insert(trip);
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
        for why in [Skipped::CutShort, Skipped::Damaged, Skipped::Timeless] {
            if let Some(count) = self.skipped.get(&why) {
                notes.push(format!("{} were left out: {why}", counted(*count, "record")));
            }
        }
    }

    /// The refusal of a capture without RTP names what most of it is.
    fn without_rtp(&self) -> Problem {
        let Some((why, count)) = self.skipped.iter().max_by_key(|(_, count)| **count) else {
            let what = format!("it holds no RTP: no source with {IN_SEQUENCE} packets in sequence");
            return Problem::at(0, what, Skipped::NotRtp.remedy());
        };
        let all = self.packets as u64;
        let what = match why {
            Skipped::CutShort => format!("{} cut so short that no header can be read", counted(*count, "packet")),
            _ => {
                let records = counted(all, "record");
                format!(
                    "it holds no RTP (no source with {IN_SEQUENCE} packets in sequence): of its {records} {count} are \
                     {why}"
                )
            }
        };
        Problem::at(0, what, why.remedy())
    }

    /// RTCP that goes from where the packets go to where they come from, and names one of their sources.
    fn reports_on(&self, way: &Way) -> Vec<CapturedRtcp> {
        let sources = way.sources();
        let is_back = |one: &&CapturedRtcp| {
            way.ends.iter().any(|(from, to)| one.from.0 == to.0 && one.to.0 == from.0) && names(&one.bytes, &sources)
        };
        let mut found: Vec<CapturedRtcp> = self.rtcp.iter().filter(is_back).cloned().collect();
        // A capture that has each packet twice has each report twice.
        let mut seen: BTreeMap<Vec<u8>, Time> = BTreeMap::new();
        found.retain(|one| {
            let before = seen.insert(one.bytes.clone(), one.at);
            before.is_none_or(|before| one.at.since(before) > TWICE_WITHIN_BARE)
        });
        found
    }

    /// Where the capture was made, by what it shows of it.
    fn vantage(&self, way: &Way, reports: &[CapturedRtcp]) -> Vantage {
        let directions: Vec<bool> = way.packets.iter().filter_map(|one| one.is_outgoing).collect();
        let outgoing = directions.iter().filter(|is| **is).count();
        if directions.len() * 2 > way.packets.len() && outgoing == directions.len() {
            return Vantage::Sender;
        }
        let nearest = |hosts: &dyn Fn(&(End, End)) -> IpAddr| {
            way.ends.iter().filter_map(|ends| self.distances.get(&hosts(ends)).copied()).min()
        };
        let to_sender = nearest(&|ends| ends.0.0);
        let mut to_receiver = nearest(&|ends| ends.1.0);
        if let Some(trip) = self.by_sender_reports(way, reports) {
            to_receiver = Some(to_receiver.map_or(trip, |least| least.min(trip)));
        }
        match (to_sender, to_receiver) {
            (Some(sender), Some(receiver)) if sender * 4 < receiver && sender <= HERE => Vantage::Sender,
            (sender, Some(receiver)) if receiver <= HERE && sender.is_none_or(|sender| receiver * 4 < sender) => {
                Vantage::Receiver
            }
            (_, Some(receiver)) if receiver > HERE => Vantage::Before { receiver },
            _ => Vantage::Unknown,
        }
    }

    /// The least time to the receiver and back, by its answers to sender reports (RFC 3550, section 6.4.1: LSR, DLSR).
    fn by_sender_reports(&self, way: &Way, reports: &[CapturedRtcp]) -> Option<Span> {
        let mut sent: BTreeMap<u32, Time> = BTreeMap::new();
        let there = |one: &&CapturedRtcp| way.ends.iter().any(|ends| one.from.0 == ends.0.0 && one.to.0 == ends.1.0);
        for one in self.rtcp.iter().filter(there) {
            for packet in Compound::parse(&one.bytes).map_or(Vec::new(), |compound| compound.packets) {
                if let Packet::SenderReport { ntp, .. } = packet {
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
            blocks.filter(|block| block.lsr != 0).filter_map(move |block| {
                let since = one.at.since(*sent.get(&block.lsr)?);
                let held = Span::nanos(u64::from(block.dlsr) * 1_000_000_000 / 65_536);
                Some(Span::nanos(since.as_nanos().saturating_sub(held.as_nanos())))
            })
        });
        trips.min()
    }
}

/// Reads all packets; where the file is cut, the byte.
fn pcapng(bytes: &[u8], seen: &mut Seen) -> Result<Option<u64>, Problem> {
    let mut rest = bytes;
    let mut is_big_endian = false;
    // By interface: link type, and the resolution and offset of its times.
    let mut interfaces: Vec<(Linktype, u8, i64)> = Vec::new();
    while !rest.is_empty() {
        let parsed = if is_big_endian { parse_block_be(rest) } else { parse_block_le(rest) };
        let Ok((next, block)) = parsed else {
            let at = (bytes.len() - rest.len()) as u64;
            return if at == 0 { Err(broken()) } else { Ok(Some(at)) };
        };
        // A block of no length would be read for ever.
        if next.len() >= rest.len() {
            return Ok(Some((bytes.len() - rest.len()) as u64));
        }
        rest = next;
        match block {
            Block::SectionHeader(section) => {
                is_big_endian = section.big_endian();
                interfaces.clear();
            }
            Block::InterfaceDescription(each) => interfaces.push((each.linktype, each.if_tsresol, each.if_tsoffset)),
            Block::EnhancedPacket(packet) => {
                let Some((link, resolution, offset)) = interfaces.get(packet.if_id as usize) else { continue };
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let Some(at) = time(ticks, *resolution, *offset) else {
                    seen.skip(Skipped::Timeless);
                    continue;
                };
                let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                seen.packet(*link, at, packet.origlen, data)?;
            }
            Block::SimplePacket(_) => seen.skip(Skipped::Timeless),
            Block::InterfaceStatistics(statistics) => {
                let drops = statistics
                    .options
                    .iter()
                    .filter(|option| matches!(option.code, OptionCode::IsbIfDrop | OptionCode::IsbOsDrop));
                let counts = drops.filter_map(|option| {
                    let eight: [u8; 8] = option.value().get(..8)?.try_into().ok()?;
                    Some(if is_big_endian { u64::from_be_bytes(eight) } else { u64::from_le_bytes(eight) })
                });
                // Statistics are counts since the beginning, and each may stand several times.
                seen.dropped = seen.dropped.max(counts.max().unwrap_or(0));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The time of an enhanced packet block: powers of ten, or of two where the highest bit of the resolution is set
/// (if_tsresol); seconds are added by if_tsoffset.
fn time(ticks: u64, resolution: u8, offset: i64) -> Option<Duration> {
    let per_second = match resolution {
        two @ 0x80.. => 1_u128.checked_shl(u32::from(two & 0x7f))?,
        ten => 10_u128.checked_pow(u32::from(ten))?,
    };
    let nanos = (u128::from(ticks)).checked_mul(1_000_000_000)? / per_second;
    let nanos = i128::try_from(nanos).ok()? + i128::from(offset) * 1_000_000_000;
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// As [`pcapng`], of the older format.
fn pcap(bytes: &[u8], seen: &mut Seen) -> Result<Option<u64>, Problem> {
    let (mut rest, header) = parse_pcap_header(bytes).map_err(|_| broken())?;
    let parse = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
    // The upper bits say how long a frame check sequence is.
    let link = Linktype(header.network.0 & 0x0fff_ffff);
    while !rest.is_empty() {
        let Ok((next, packet)) = parse(rest) else { return Ok(Some((bytes.len() - rest.len()) as u64)) };
        rest = next;
        let at = Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(u64::from(packet.ts_usec) * unit);
        seen.packet(link, at, packet.origlen, packet.data)?;
    }
    Ok(None)
}

fn broken() -> Problem {
    Problem::at(0, "this capture can't be read: its header is damaged", "capture again, or give another file")
}
