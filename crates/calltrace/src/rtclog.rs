//! Reads RTC event logs of libwebrtc, version 2. A log consists of batches, and a batch has one column per value. A
//! column is a base value, followed by deltas.
//!
//! The deltas are bit-packed in byte fields of protobuf (libwebrtc's
//! `logging/rtc_event_log/encoder/delta_encoding.cc`). No protobuf library decodes them. Unknown fields are skipped and
//! counted.

use crate::call::{Direction, Hidden, PacketRecord, Recording, Side, Unread, Vantage};
use crate::clock;
use crate::numbering::Numbered;
use crate::send_time::SendTimes;
use crate::sender_clock::{Stamped, Stream, senders, streams};
use crate::{Options, Problem};
use std::collections::BTreeSet;
use steadycast_units::{Bytes, Rate, Span, Time, counted};
use steadycast_wire::IP_UDP_OVERHEAD;

/// Maximum number of events that may follow the first event of a batch. The limit is needed because a damaged batch may
/// claim to have 2³² events.
const MOST_DELTAS: u64 = 1 << 20;
/// Maximum number of packets in each direction of a log.
const MOST_PACKETS: usize = 20_000_000;
/// Maximum difference between two times in a log, in milliseconds.
const DAY_MS: i64 = 86_400_000;
/// Length of the SRTP authentication tag in bytes. The sizes in a log do not include it.
const SRTP_TAG: u64 = 10;

const VERSION_1: u64 = 1;
const INCOMING_RTP: u64 = 2;
const OUTGOING_RTP: u64 = 3;
const INCOMING_RTCP: u64 = 4;
const OUTGOING_RTCP: u64 = 5;
const BEGIN: u64 = 16;
const LOSS_BASED: u64 = 18;
const DELAY_BASED: u64 = 19;
const SCREAM: u64 = 35;
/// Field numbers of the log's top-level message that are known, but not used.
const UNUSED: [u64; 22] = [6, 7, 17, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 101, 102, 103, 104];

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a protobuf message. `at` is the offset of the next field.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(n).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// Reads the next field. Returns its number and its value, or `None` if the field is cut or invalid.
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        // The key's lower three bits are the wire type. 0 is a varint, 1 is 64 bits, 2 is a length followed by bytes,
        // and 5 is 32 bits.
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let n = self.varint()?;
                Value::Bytes(self.take(n)?)
            }
            5 => Value::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        (key >> 3 != 0).then_some((key >> 3, value))
    }
}

/// Reads bits, most significant bit first. `at` is the index of the next bit.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, n: u32) -> Option<u64> {
        let mut value = 0;
        for _ in 0..n {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u64::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(8)?;
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// Decodes the `n` values that follow a column's base. Returns `None` if the bits are invalid. Each delta is relative
/// to the last value that is not absent.
pub(crate) fn deltas(packed: &[u8], base: Option<u64>, n: usize) -> Option<Vec<Option<u64>>> {
    // libwebrtc omits the deltas if all values are equal, so repeat the base.
    if packed.is_empty() {
        return Some(vec![base; n]);
    }
    let mut bits = Bits { bytes: packed, at: 0 };
    let kind = bits.take(2)?;
    let width = bits.take(6)? as u32 + 1;
    // 0 is the short header. 1 is the general header, which has three more fields.
    let (signed, optional, value_width) = match kind {
        0 => (false, false, 64),
        1 => (bits.take(1)? == 1, bits.take(1)? == 1, bits.take(6)? as u32 + 1),
        _ => return None,
    };
    // Each value needs at least one bit, so a larger `n` is invalid.
    if n > packed.len() * 8 {
        return None;
    }
    let exist =
        (0..n).map(|_| if optional { Some(bits.take(1)? == 1) } else { Some(true) }).collect::<Option<Vec<_>>>()?;
    let mut last = base;
    let mut next = |exists: bool| {
        if !exists {
            return Some(None);
        }
        last = Some(match last {
            // Without a base, the first value that is not absent is written in full.
            None => bits.varint()?,
            Some(last) => {
                let mut delta = bits.take(width)?;
                if signed && delta >> (width - 1) == 1 {
                    // Extend the sign to 64 bits.
                    delta |= !mask(width);
                }
                last.wrapping_add(delta) & mask(value_width)
            }
        });
        Some(last)
    };
    exist.into_iter().map(&mut next).collect()
}

/// The fields of a batch. If a field occurs several times, the last one is used, as in protobuf.
struct Batch<'a> {
    fields: Vec<(u64, Value<'a>)>,
    begin: usize,
    more: usize,
}

impl<'a> Batch<'a> {
    fn new(bytes: &'a [u8], begin: usize, count: u64) -> Result<Self, Problem> {
        let mut fields = Fields { bytes, at: 0 };
        let mut batch = Self { fields: Vec::new(), begin, more: 0 };
        while fields.at < bytes.len() {
            let at = fields.at;
            let field = fields.field().ok_or_else(|| broken(begin + at, "a field of this batch is cut"))?;
            batch.fields.push(field);
        }
        let more = batch.number(count).unwrap_or(0);
        if more > MOST_DELTAS {
            return Err(broken(
                begin,
                &format!("a batch says that it holds {more} more events; {MOST_DELTAS} are read"),
            ));
        }
        batch.more = more as usize;
        Ok(batch)
    }

    fn number(&self, of: u64) -> Option<u64> {
        self.fields.iter().rev().find_map(|(n, value)| match value {
            Value::Number(value) if *n == of => Some(*value),
            _ => None,
        })
    }

    fn bytes(&self, of: u64) -> &'a [u8] {
        let found = self.fields.iter().rev().find_map(|(n, value)| match value {
            Value::Bytes(bytes) if *n == of => Some(*bytes),
            _ => None,
        });
        found.unwrap_or(&[])
    }

    /// Returns the values of a column: the base, and the values that the deltas encode.
    fn column(&self, base: u64, packed: u64) -> Result<Vec<Option<u64>>, Problem> {
        let first = self.number(base);
        let mut all = vec![first];
        let more = deltas(self.bytes(packed), first, self.more)
            .ok_or_else(|| broken(self.begin, &format!("the deltas of its field {packed} can't be read")))?;
        all.extend(more);
        Ok(all)
    }

    /// Returns the times of all events, in milliseconds.
    fn times(&self, packed: u64) -> Result<Vec<i64>, Problem> {
        let all = self.column(1, packed)?;
        all.into_iter()
            .map(|at| at.map(|at| at as i64).ok_or_else(|| broken(self.begin, "an event of this batch has no time")))
            .collect()
    }

    /// Returns the RTCP datagrams. The first is in a field of its own. The others are in a field with all lengths,
    /// followed by all bytes.
    fn datagrams(&self) -> Result<Vec<&'a [u8]>, Problem> {
        let mut fields = Fields { bytes: self.bytes(102), at: 0 };
        let cut = || broken(self.begin, "its packets are cut");
        let lengths: Vec<u64> = (0..self.more).map(|_| fields.varint()).collect::<Option<_>>().ok_or_else(cut)?;
        let mut all = vec![self.bytes(2)];
        for length in lengths {
            all.push(fields.take(length).ok_or_else(cut)?);
        }
        Ok(all)
    }
}

fn broken(at: usize, what: &str) -> Problem {
    Problem::at(at as u64, what, "record the call again, or give another file")
}

#[derive(Clone, Copy)]
struct Packet {
    ms: i64,
    marker: bool,
    seq: u16,
    timestamp: u32,
    ssrc: u32,
    size: u64,
    transport: Option<u16>,
    send_time: Option<u32>,
}

const RTP_FIELDS: [u64; 36] = [
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 15, 16, 17, 18, 19, 20, 21, 101, 102, 103, 104, 105, 106, 108, 109, 110, 115, 116,
    117, 118, 119, 120, 12, 13, 14, 7,
];

fn rtp(batch: &Batch<'_>, into: &mut Vec<Packet>, unknown: &mut usize) -> Result<(), Problem> {
    *unknown += batch.fields.iter().filter(|(n, _)| !RTP_FIELDS.contains(n)).count();
    let column = |n: u64| batch.column(n, 100 + n);
    let times = batch.times(101)?;
    let (marker, seq, timestamp, ssrc) = (column(2)?, column(4)?, column(5)?, column(6)?);
    let (payload, header, padding) = (column(8)?, column(9)?, column(10)?);
    let (transport, send_time) = (column(15)?, column(17)?);
    if into.len() + times.len() > MOST_PACKETS {
        return Err(broken(batch.begin, &format!("more than {MOST_PACKETS} packets")));
    }
    for (i, ms) in times.into_iter().enumerate() {
        let part = |of: &[Option<u64>]| of[i].unwrap_or(0) & 0xffff;
        into.push(Packet {
            ms,
            marker: marker[i] == Some(1),
            seq: seq[i].unwrap_or(0) as u16,
            timestamp: timestamp[i].unwrap_or(0) as u32,
            ssrc: ssrc[i].unwrap_or(0) as u32,
            // Add the authentication tag and the UDP and IP headers, because logged sizes do not include them.
            size: part(&payload) + part(&header) + part(&padding) + SRTP_TAG + IP_UDP_OVERHEAD as u64,
            transport: transport[i].map(|n| n as u16),
            send_time: send_time[i].map(|n| n as u32 & 0xff_ffff),
        });
    }
    Ok(())
}

#[derive(Default)]
struct Log<'a> {
    incoming: Vec<Packet>,
    outgoing: Vec<Packet>,
    rtcp_in: Vec<(i64, &'a [u8])>,
    rtcp_out: Vec<(i64, &'a [u8])>,
    loss_based: Vec<(i64, u64)>,
    delay_based: Vec<(i64, u64)>,
    scream: Vec<(i64, u64)>,
    /// Number of unknown fields in the top-level message and in the batches of packets.
    unknown: usize,
    /// Times at which logs in the file begin. A valid file has at most one.
    begins: BTreeSet<i64>,
    cut: Option<usize>,
}

impl<'a> Log<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Problem> {
        let mut log = Self::default();
        let mut fields = Fields { bytes, at: 0 };
        while fields.at < bytes.len() {
            let at = fields.at;
            let Some((number, value)) = fields.field() else {
                // If the log ends within a field, use everything before that field.
                log.cut = Some(at);
                break;
            };
            match value {
                Value::Bytes(_) if number == VERSION_1 => {
                    let remedy = "record with a browser of 2019 or later, which write version 2";
                    return Err(Problem::at(at as u64, "this is an event log of version 1", remedy));
                }
                Value::Bytes(inner) => log.batch(number, inner, fields.at - inner.len())?,
                Value::Number(_) => log.unknown += 1,
            }
        }
        Ok(log)
    }

    fn batch(&mut self, number: u64, bytes: &'a [u8], begin: usize) -> Result<(), Problem> {
        match number {
            INCOMING_RTP => rtp(&Batch::new(bytes, begin, 11)?, &mut self.incoming, &mut self.unknown)?,
            OUTGOING_RTP => rtp(&Batch::new(bytes, begin, 11)?, &mut self.outgoing, &mut self.unknown)?,
            INCOMING_RTCP | OUTGOING_RTCP => {
                let batch = Batch::new(bytes, begin, 3)?;
                let all = batch.times(101)?.into_iter().zip(batch.datagrams()?);
                if number == INCOMING_RTCP { self.rtcp_in.extend(all) } else { self.rtcp_out.extend(all) }
            }
            LOSS_BASED => rates(&Batch::new(bytes, begin, 5)?, 2, 102, 1, &mut self.loss_based)?,
            DELAY_BASED => rates(&Batch::new(bytes, begin, 4)?, 2, 102, 1, &mut self.delay_based)?,
            // SCReAM's rates are in kb/s. The rates of the other estimators are in bit/s.
            SCREAM => rates(&Batch::new(bytes, begin, 7)?, 3, 103, 1000, &mut self.scream)?,
            BEGIN => self.begins.extend(Batch::new(bytes, begin, 0)?.number(1).map(|at| at as i64)),
            _ if UNUSED.contains(&number) => {}
            _ => self.unknown += 1,
        }
        Ok(())
    }
}

fn rates(batch: &Batch<'_>, base: u64, packed: u64, unit: u64, into: &mut Vec<(i64, u64)>) -> Result<(), Problem> {
    let all = batch.times(101)?.into_iter().zip(batch.column(base, packed)?);
    into.extend(all.filter_map(|(at, rate)| Some((at, (rate? & 0xffff_ffff) * unit))));
    Ok(())
}

/// Number of bytes at the beginning of a file that are checked for text.
const HEAD: usize = 256;

/// Whether the bytes begin with a field of an event log. The field may be cut. Printable text is rejected, because its
/// first bytes may look like a field.
pub(crate) fn is(bytes: &[u8]) -> bool {
    let is_printed = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80;
    let head = &bytes[..bytes.len().min(HEAD)];
    if head.len() > 8 && head.iter().all(is_printed) {
        return false;
    }
    let mut fields = Fields { bytes, at: 0 };
    let Some(key) = fields.varint() else { return false };
    key & 7 == 2 && (matches!(key >> 3, 1..=7 | 16..=35 | 101..=104)) && fields.varint().is_some()
}

/// Reads one direction of a call from a log: the direction that `options.side` specifies, or else the direction that
/// carried more bytes.
///
/// # Errors
/// The file is not a log of version 2, contradicts itself, is too large, has no packets in this direction, or has
/// packets of several senders.
pub(crate) fn read(bytes: &[u8], options: Options) -> Result<Recording, Problem> {
    let mut log = Log::read(bytes)?;
    let mut notes = Vec::new();
    log.check(&mut notes)?;
    let side = log.side(options.side)?;
    let (mut packets, mut reports) = match side {
        Side::Sender => (std::mem::take(&mut log.outgoing), std::mem::take(&mut log.rtcp_in)),
        Side::Receiver => (std::mem::take(&mut log.incoming), std::mem::take(&mut log.rtcp_out)),
    };
    let mut estimates = log.estimates();
    let copies = in_order(&mut packets) + without_copies(&mut reports) + without_copies(&mut estimates);
    if copies > 0 {
        notes.push(format!("{} that stand twice in the log are used once", counted(copies as u64, "event")));
    }
    // Only the incoming direction can contain packets of several senders.
    if side == Side::Receiver {
        of_one_sender(&mut packets, options.stream, &mut notes)?;
    }
    let all = || {
        let reports = reports.iter().map(|report| report.0).chain(log.rtcp_in.iter().map(|report| report.0));
        let reports = reports.chain(log.rtcp_out.iter().map(|report| report.0));
        let others = log.outgoing.iter().chain(&log.incoming);
        packets.iter().chain(others).map(|packet| packet.ms).chain(reports).chain(estimates.iter().map(|each| each.0))
    };
    let (first, last) = all().fold((i64::MAX, i64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    if last.saturating_sub(first) > DAY_MS {
        return Err(Problem::at(0, "its times are more than 24 h apart", "give a log of one call"));
    }
    let at = |ms: i64| Time::from_nanos((ms - first) as u64 * 1_000_000);
    let mut stamps = SendTimes::new(24);
    let records = packets.iter().map(|packet| {
        let logged = at(packet.ms);
        PacketRecord {
            seen: logged,
            stamp: packet.send_time.map(|raw| stamps.unwrap(raw, logged)),
            size: Bytes::new(packet.size),
            ssrc: packet.ssrc,
            seq: packet.seq,
            transport: packet.transport,
            timestamp: packet.timestamp,
            marker: packet.marker,
            is_recorded: true,
            is_repeat: false,
        }
    });
    let times: Vec<Time> = all().map(at).collect();
    let direction = Direction {
        packets: records.collect(),
        reports: reports.iter().map(|(ms, bytes)| (at(*ms), bytes.to_vec())).collect(),
        side: Some(side),
        vantage: Vantage::Unknown,
        hidden: if reports.is_empty() { Hidden::Absent } else { Hidden::Summary },
        set_at: Vec::new(),
        set_by: Vec::new(),
        cut_extensions: 0,
        cut_reports: 0,
        unread: Unread {
            silences: clock::silences(&times, clock::LEAST_SILENCE, clock::SILENCE_INTERVALS),
            ..Unread::default()
        },
        every: Span::millis(1),
        batches: None,
    };
    // In a receiver's log, the estimates are for the stream that the receiver itself sends. So drop them.
    let estimates = estimates.iter().filter(|_| side == Side::Sender);
    let estimates = estimates.map(|(ms, bps)| (at(*ms), Rate::bps(*bps))).collect();
    let source = match side {
        Side::Sender => "the sender's event log",
        Side::Receiver => "the receiver's event log",
    };
    Ok(Recording { direction, estimates, source, notes })
}

impl Log<'_> {
    /// Adds notes about missing or unknown parts of the log.
    ///
    /// # Errors
    /// The log has no RTP packet, or the file has several logs.
    fn check(&self, notes: &mut Vec<String>) -> Result<(), Problem> {
        if self.incoming.len() + self.outgoing.len() == 0 {
            let remedy = "a log is written every 5 s: record longer, and end the call before the browser";
            return Err(Problem::at(0, "this event log holds no RTP packet", remedy));
        }
        if self.begins.len() > 1 {
            let what = format!("it holds {} event logs, one behind the other", self.begins.len());
            return Err(Problem::at(0, what, "give one of them: each connection writes a file of its own"));
        }
        if let Some(at) = self.cut {
            notes.push(format!("the log is cut at byte {at}: what stands before is used"));
        }
        if self.begins.is_empty() {
            notes.push("the log has no beginning: its first part is missing".to_owned());
        }
        if self.unknown > 0 {
            let fields = counted(self.unknown as u64, "field");
            notes.push(format!("{fields} that this version does not know were skipped"));
        }
        Ok(())
    }

    /// Returns the side that the user specified as `named`. Without it, returns the side that carried more bytes.
    ///
    /// # Errors
    /// The log has no packets for this side.
    fn side(&self, named: Option<Side>) -> Result<Side, Problem> {
        let total = |packets: &[Packet]| packets.iter().map(|packet| packet.size).sum::<u64>();
        let more = if total(&self.outgoing) >= total(&self.incoming) { Side::Sender } else { Side::Receiver };
        let side = named.unwrap_or(more);
        let packets = match side {
            Side::Sender => &self.outgoing,
            Side::Receiver => &self.incoming,
        };
        if packets.is_empty() {
            return Err(Problem::at(0, "no RTP packet went that way", "name the other --side"));
        }
        Ok(side)
    }

    /// Returns the estimates of the controller that set the rate. This is SCReAM if SCReAM has logged estimates.
    /// Otherwise, it is the loss-based controller, or the delay-based controller if there are no loss-based estimates.
    fn estimates(&mut self) -> Vec<(i64, u64)> {
        let all = [&mut self.scream, &mut self.loss_based, &mut self.delay_based];
        all.into_iter().find(|each| !each.is_empty()).map(std::mem::take).unwrap_or_default()
    }
}

/// Sorts packets by time, and by sequence number within a millisecond. Removes copies and returns their number.
fn in_order(packets: &mut Vec<Packet>) -> usize {
    packets.sort_by_key(|packet| packet.ms);
    let mut sorted = Vec::with_capacity(packets.len());
    for together in packets.chunk_by(|a, b| a.ms == b.ms) {
        let first = (together[0].transport, together[0].seq);
        let mut together = together.to_vec();
        // Times are in whole milliseconds, so sort packets of the same millisecond by number.
        together.sort_by_key(|packet| match (packet.transport, first.0) {
            (Some(number), Some(first)) => (number.wrapping_sub(first) as i16, 0),
            _ => (0, packet.seq.wrapping_sub(first.1) as i16),
        });
        let mut seen = BTreeSet::new();
        together.retain(|packet| seen.insert((packet.ssrc, packet.seq, packet.timestamp, packet.transport)));
        sorted.append(&mut together);
    }
    let copies = packets.len() - sorted.len();
    *packets = sorted;
    copies
}

fn without_copies<T: Ord + Copy>(events: &mut Vec<(i64, T)>) -> usize {
    let all = events.len();
    // Sort by time only. The sort is stable, so it keeps the order of events in the same millisecond.
    events.sort_by_key(|event| event.0);
    let mut seen = BTreeSet::new();
    events.retain(|event| seen.insert(*event));
    all - events.len()
}

/// Number of bits in a log's send times.
const BITS: u32 = 24;

/// Keeps only the packets of one sender, because a server may forward several senders.
///
/// # Errors
/// `stream` is the SSRC of none of the senders, or is `None` although there are several senders.
fn of_one_sender(packets: &mut Vec<Packet>, stream: Option<u32>, notes: &mut Vec<String>) -> Result<(), Problem> {
    let at = |ms: i64| Time::from_nanos(ms.max(0) as u64 * 1_000_000);
    let numbered = |packet: &Packet| {
        let numbered = Numbered { at: at(packet.ms), seq: packet.seq, timestamp: packet.timestamp };
        (packet.ssrc, numbered, packet.send_time)
    };
    let stream_of = streams(&packets.iter().map(numbered).collect::<Vec<_>>(), BITS);
    let stamped = packets.iter().zip(&stream_of).enumerate().filter_map(|(place, (packet, stream))| {
        Some(Stamped { place, seen: at(packet.ms), stream: *stream, raw: packet.send_time?, size: packet.size })
    });
    let senders = senders(stamped.collect(), BITS);
    let bytes = |streams: &[Stream]| -> u64 {
        let mine = packets.iter().zip(&stream_of).filter(|(_, stream)| streams.contains(stream));
        mine.map(|(packet, _)| packet.size).sum()
    };
    let carried: Vec<u64> = senders.iter().map(|sources| bytes(sources)).collect();
    let listed: Vec<String> = senders
        .iter()
        .zip(&carried)
        .map(|(all, bytes)| format!("SSRC {0} ({0:#x}), {1} kB", all[0].0, bytes / 1000))
        .collect();
    let chosen = match (stream, &carried[..]) {
        (Some(ssrc), [_, ..]) => {
            senders.iter().position(|all| all.iter().any(|one| one.0 == ssrc)).ok_or_else(|| {
                let remedy = format!("choose one of: {}", listed.join("; "));
                Problem::at(0, format!("no stream has the SSRC {ssrc}"), remedy)
            })?
        }
        (None, [first, second, ..]) if second * 10 > *first => {
            let count = counted(senders.len() as u64, "sender");
            let is_restart = senders[0].iter().any(|one| senders[1].iter().any(|other| one.0 == other.0));
            let (why, remedy) = if is_restart {
                ("a sender that was started again or set its clock back", "give --stream SSRC for the larger part")
            } else {
                ("which a server forwards", "name one by --stream SSRC")
            };
            return Err(Problem::at(0, format!("it holds media of {count}, {why}: {}", listed.join("; ")), remedy));
        }
        _ => 0,
    };
    if senders.len() > 1 {
        let all = packets.len();
        let mut streams = stream_of.iter();
        packets.retain(|_| streams.next().is_some_and(|stream| senders[chosen].contains(stream)));
        let others = counted((all - packets.len()) as u64, "packet");
        notes.push(format!("{others} of other senders, by their clocks or paths, are left out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{deltas, mask};
    use proptest::prelude::*;

    struct Writer(Vec<bool>);

    impl Writer {
        fn put(&mut self, value: u64, width: u32) {
            self.0.extend((0..width).rev().map(|bit| value >> bit & 1 == 1));
        }
        fn varint(&mut self, mut value: u64) {
            while value >= 0x80 {
                self.put(value & 0x7f | 0x80, 8);
                value >>= 7;
            }
            self.put(value, 8);
        }
        fn bytes(&self) -> Vec<u8> {
            self.0
                .chunks(8)
                .map(|eight| (0..8).fold(0, |n, k| n << 1 | u8::from(*eight.get(k).unwrap_or(&false))))
                .collect()
        }
    }

    /// Encodes a column with the general header. Uses the short header instead if `short` is set, no value is absent,
    /// `signed` is false, and `width` is 64.
    fn packed(base: Option<u64>, values: &[Option<u64>], width: u32, signed: bool, short: bool) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        let optional = values.iter().any(Option::is_none);
        let short = short && !optional && !signed && width == 64;
        out.put(u64::from(!short), 2);
        out.put(u64::from(width - 1), 6);
        if !short {
            out.put(u64::from(signed), 1);
            out.put(u64::from(optional), 1);
            out.put(u64::from(width - 1), 6);
        }
        if optional {
            values.iter().for_each(|value| out.put(u64::from(value.is_some()), 1));
        }
        let mut last = base;
        for value in values.iter().flatten() {
            match last {
                None => out.varint(*value),
                Some(last) => out.put(value.wrapping_sub(last) & mask(width), width),
            }
            last = Some(*value);
        }
        out.bytes()
    }

    proptest! {
        #[test]
        fn a_column_comes_back_as_it_was_packed(
            base: Option<u64>,
            values in prop::collection::vec(prop::option::weighted(0.8, any::<u64>()), 1..40),
            width in 1..=64_u32,
            signed: bool,
            short: bool,
        ) {
            let base = base.map(|value| value & mask(width));
            let values: Vec<_> = values.into_iter().map(|value| value.map(|value| value & mask(width))).collect();
            let bytes = packed(base, &values, width, signed, short);
            prop_assert_eq!(deltas(&bytes, base, values.len()), Some(values));
        }
    }

    #[test]
    fn an_empty_column_repeats_its_base_and_other_types_are_refused() {
        assert_eq!(deltas(&[], Some(3), 2), Some(vec![Some(3); 2]));
        assert_eq!(deltas(&[], None, 1), Some(vec![None]));
        assert_eq!(deltas(&[0x80, 0, 0], Some(3), 1), None);
        assert_eq!(deltas(&[0x3f], Some(3), 1 << 20), None, "more values than bits");
    }
}
