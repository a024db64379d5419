//! Per-packet feedback: what a receiver writes of each packet that arrived, and how the sender joins it with what it
//! sent.

use crate::MediaPacket;
use crate::participant::Room;
use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, PacketArrival, Stream, Wake};
use steadycast_remote::{History, Joined};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::rtcp::{
    Acknowledged, Arrived, Compound, CongestionFeedback, Packet, PacketArrival as Reported, PacketStatus,
    StreamArrivals, Ticks, TransportFeedback,
};

/// The header extension element that carries a packet's transport-wide number.
pub const TRANSPORT_NUMBER_ID: u8 = 14;

/// Whether a compound's packet tells of single packets in this format.
pub(crate) fn tells(format: FeedbackFormat, packet: &Packet) -> bool {
    match format {
        FeedbackFormat::Rfc8888 => CongestionFeedback::is(packet),
        FeedbackFormat::TransportWide => TransportFeedback::is(packet),
        _ => false,
    }
}

/// No further message of a compound is read once so many packets were told of: twice as many as a sender remembers, and
/// as many as a receiver of ours tells of at the most. A message of a few bytes can tell of 16,384.
const READ: usize = 1 << 15;

/// Reads the per-packet feedback in a compound, in the format that was agreed on, and joins it with what was sent;
/// `None` where it tells of no packet that was. `stream_of` names the stream of an SSRC that is ours. Also returns how
/// many messages were not read, beyond [`READ`] packets.
pub(crate) fn join(
    history: &mut History,
    now: Time,
    compound: &Compound,
    format: FeedbackFormat,
    stream_of: impl Fn(u32) -> Option<Stream>,
) -> (Option<Joined>, u64) {
    let told = |arrival: Option<Arrived>| arrival.map(|Arrived { at, ecn }| PacketArrival { at, ecn });
    let (mut joined, mut any, mut read, mut unread) = (Joined::default(), false, 0, 0);
    for packet in compound.packets.iter().filter(|packet| tells(format, packet)) {
        let first = joined.packets.len();
        if read >= READ {
            unread += 1;
        } else if let Ok(Some(feedback)) = CongestionFeedback::from_packet(packet) {
            let reported = feedback.reported_at(history.near());
            for (ssrc, Acknowledged { seq, arrival }) in feedback.acknowledged(history.near()) {
                read += 1;
                let number = stream_of(ssrc).and_then(|stream| history.by_seq(stream, seq));
                if let Some(number) = number {
                    any = true;
                    history.join(number, told(arrival), &mut joined);
                }
            }
            joined.measure_from(first, now, reported);
        } else if let Ok(Some(feedback)) = TransportFeedback::from_packet(packet) {
            for Acknowledged { seq, arrival } in feedback.acknowledged(history.near()) {
                read += 1;
                if let Some(number) = history.by_low_bits(seq) {
                    any = true;
                    history.join(number, told(arrival), &mut joined);
                }
            }
            // This format does not tell when it was written: the newest arrival stands for it.
            if let Some(newest) = history.near() {
                joined.measure_from(first, now, newest);
            }
        }
    }
    joined.sort();
    (any.then_some(joined), unread)
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
struct Came {
    at: Time,
    ecn: Ecn,
}

/// What arrived under one SSRC, or by transport-wide number.
#[derive(Debug)]
struct Window {
    ssrc: u32,
    /// The extended number of the first that is kept.
    first: u64,
    came: VecDeque<Option<Came>>,
    /// The numbers from which on nothing has been told, or once at the most, or twice.
    told: [u64; TOLD],
}

/// Packets of one source that a report covers at most: as many as a sender remembers.
const COVERED: usize = 1 << 14;
/// Sources that a report covers at most: the streams of one sender.
const SOURCES: usize = 8;
/// Reports in which a packet stands where there is room for it, so that some of them may be lost.
const TOLD: usize = 3;

impl Window {
    fn new(ssrc: u32, seq: u16) -> Self {
        // Room for packets before the first that came.
        let first = (1 << 16) | u64::from(seq);
        Self { ssrc, first, came: VecDeque::new(), told: [first; TOLD] }
    }

    /// A packet has come. Returns how many others had come of which nothing can be told any more.
    fn on_packet(&mut self, seq: u16, came: Came) -> u64 {
        let next = self.next();
        let number = next.saturating_add_signed(i64::from(seq.wrapping_sub(next as u16) as i16));
        let Some(place) = number.checked_sub(self.first) else { return 0 };
        let (place, mut untold) = (place as usize, 0);
        if place >= self.came.len() {
            if place > self.came.len() + COVERED {
                // A sequence that begins anew.
                untold = self.fresh(self.next());
                *self = Self::new(self.ssrc, seq);
                self.came.push_back(Some(came));
                return untold;
            }
            self.came.resize(place + 1, None);
            let kept = self.next().saturating_sub(COVERED as u64);
            untold = self.fresh(kept);
            self.keep_from(kept);
        }
        let place = (number - self.first) as usize;
        match &mut self.came[place] {
            // The first copy's time, and a mark if any copy has one (RFC 8888, 3.1).
            Some(first) if came.ecn.is_ce() => first.ecn = Ecn::Ce,
            Some(_) => {}
            none => *none = Some(came),
        }
        untold
    }

    /// The number behind the last that is kept.
    fn next(&self) -> u64 {
        self.first + self.came.len() as u64
    }

    /// Packets with numbers below `until` that came and of which nothing has been told.
    fn fresh(&self, until: u64) -> u64 {
        let place = |number: u64| (number.saturating_sub(self.first) as usize).min(self.came.len());
        let (from, until) = (place(self.told[0]), place(until));
        self.came.range(from..until.max(from)).flatten().count() as u64
    }

    fn keep_from(&mut self, number: u64) {
        let old = (number.saturating_sub(self.first) as usize).min(self.came.len());
        self.came.drain(..old);
        self.first += old as u64;
    }

    /// Where a report begins that tells anew of what was told `again` times at the most.
    fn begin(&self, again: usize) -> u64 {
        self.told[again].max(self.first)
    }

    /// What is told by a report from the number `begin` on.
    fn from(&self, begin: u64) -> impl ExactSizeIterator<Item = &Option<Came>> {
        self.came.range((begin.saturating_sub(self.first) as usize).min(self.came.len())..)
    }

    /// Moves on after a report.
    fn reported(&mut self) {
        self.told.rotate_right(1);
        self.told[0] = self.next();
        self.keep_from(self.told[TOLD - 1]);
    }
}

/// The receiver's side: what arrived, and when to tell of it.
#[derive(Debug)]
pub(crate) struct Reporter {
    format: FeedbackFormat,
    windows: Vec<Window>,
    /// A packet came since the last report; when the first of them did, and whether one ended a frame.
    waiting: Option<(Time, bool)>,
    said: Option<Time>,
    count: u8,
    /// RTCP's 5 % of the session bandwidth.
    share: Rate,
    /// IP bytes that came since the last report.
    received: Bytes,
    /// IP bytes of the last report.
    size: Bytes,
    /// Packets that came and of which no report told.
    untold: u64,
}

/// Reports leave no closer together than this: RFC 8888, section 4, calls one per frame the most that helps.
const SHORTEST: Span = Span::millis(25);
/// Reports leave no farther apart than this where packets come at all: beyond it delay-based controllers see too little
/// (RFC 8888, 4).
const LONGEST: Span = Span::millis(200);
/// A report without packets has this size: SSRCs, times, IP and UDP.
const LEAST_REPORT: Bytes = Bytes::new(64);
/// Bytes of a message without what it says of packets: of one stream in RFC 8888's format, and in the transport-wide
/// one.
const HEAD: usize = 20;
/// RTCP's share of the bandwidth (RFC 3550, section 6.2).
const SHARE: f64 = 0.05;

impl Reporter {
    /// Reports in this format; `None` for [`FeedbackFormat::Own`]. `bandwidth` is the session's, of which feedback
    /// takes 5 %; where more arrives than that, it takes 5 % of what arrives.
    pub(crate) fn new(format: FeedbackFormat, bandwidth: Rate) -> Option<Self> {
        (format != FeedbackFormat::Own).then_some(Self {
            format,
            windows: Vec::new(),
            waiting: None,
            said: None,
            count: 0,
            share: bandwidth.scale(SHARE),
            received: Bytes::ZERO,
            size: LEAST_REPORT,
            untold: 0,
        })
    }

    /// Another source, or the same one from another number on: what came of the one before is of no use to it.
    pub(crate) fn restart(&mut self) {
        self.windows.clear();
        self.waiting = None;
    }

    /// Packets that came and of which no report told.
    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }

    /// A packet has arrived, a duplicate included. `ends` says that it ended its frame.
    pub(crate) fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>, ends: bool) {
        let MediaPacket { header, transport, size, ecn, .. } = *packet;
        let (ssrc, seq) = match (self.format, transport) {
            (FeedbackFormat::TransportWide, Some(number)) => {
                (self.windows.first().map_or(header.ssrc, |w| w.ssrc), number)
            }
            (FeedbackFormat::TransportWide, None) => return,
            _ => (header.ssrc, header.seq),
        };
        self.received += size;
        if let Some(window) = self.windows.iter_mut().find(|window| window.ssrc == ssrc) {
            self.untold += window.on_packet(seq, Came { at: now, ecn });
        } else if self.windows.len() < SOURCES {
            let mut window = Window::new(ssrc, seq);
            window.on_packet(seq, Came { at: now, ecn });
            self.windows.push(window);
        }
        let (since, ended) = self.waiting.unwrap_or((now, false));
        self.waiting = Some((since, ended || ends));
    }

    /// When the next report leaves; `None`: not before a packet comes.
    pub(crate) fn due(&self) -> Option<Wake> {
        let (since, ended) = self.waiting?;
        // RTCP's share sets the pace where that is slower than a report per frame.
        let saved = self.received.as_f64() * SHARE >= self.size.as_f64();
        let pace = if saved { SHORTEST } else { self.size.at(self.share).max(SHORTEST).min(LONGEST) };
        let after = self.said.map_or(since, |said| said + pace);
        let at = if ended { since.max(after) } else { (since + SHORTEST).max(after) };
        Some(Wake { at, why: "per-packet feedback" })
    }

    /// The report, as packets of compounds of the reporter `ssrc`, each of which has `room` for them. `now` is on the
    /// receiver's clock, `ntp` the same instant as the middle 32 bits of an NTP time.
    ///
    /// Each packet stands in three reports as long as a report fits into one datagram, or into RTCP's share of the
    /// bandwidth; else in two or in one. Where not even what is new fits, the oldest of it is left out and counted.
    pub(crate) fn write(&mut self, now: Time, ntp: u32, ssrc: u32, room: Room) -> Vec<Packet> {
        let begins = self.begins(self.fitting(now, room));
        let left_out: u64 = self.windows.iter().zip(&begins).map(|(window, begin)| window.fresh(*begin)).sum();
        self.untold += left_out;
        (self.waiting, self.said, self.received) = (None, Some(now), Bytes::ZERO);
        let packets = match self.format {
            FeedbackFormat::Rfc8888 => self.congestion(now, ntp, ssrc, &begins, room.packets),
            FeedbackFormat::TransportWide => self.transport(ssrc, &begins, room.packets),
            _ => Vec::new(),
        };
        self.windows.iter_mut().for_each(Window::reported);
        packets
    }

    /// Packets of which a report may tell now: as many as one datagram holds, or as RTCP's share since the last report
    /// pays for.
    fn fitting(&self, now: Time, room: Room) -> usize {
        let since = self.said.map_or(Span::ZERO, |said| now.since(said));
        let share = self.share.over(since).as_f64().max(self.received.as_f64() * SHARE);
        let datagrams = (share / room.datagram.as_f64()).ceil().max(1.0) as usize;
        let streams = 8 * self.windows.len();
        datagrams * (room.packets.saturating_sub(HEAD + streams) / 2)
    }

    /// From which numbers on the windows are told of in a report on `most` packets.
    fn begins(&self, most: usize) -> Vec<u64> {
        let count = |again: usize| self.windows.iter().map(|w| w.from(w.begin(again)).len()).sum::<usize>();
        let again = (0..TOLD).rev().find(|again| count(*again) <= most);
        let begin = |window: &Window| match again {
            Some(again) => window.begin(again),
            None => {
                let fresh = window.from(window.begin(0)).len();
                window.next() - (fresh * most / count(0)) as u64
            }
        };
        self.windows.iter().map(begin).collect()
    }

    fn congestion(&self, now: Time, ntp: u32, sender: u32, begins: &[u64], room: usize) -> Vec<Packet> {
        let reported = |came: &Came| Reported::before(now.since(came.at), came.ecn);
        let stream = |(window, begin): (&Window, &u64)| StreamArrivals {
            ssrc: window.ssrc,
            begin_seq: *begin as u16,
            arrivals: window.from(*begin).map(|came| came.as_ref().map(reported)).collect(),
        };
        let streams = self.windows.iter().zip(begins).map(stream).collect();
        let whole = CongestionFeedback { sender, streams, report_time: ntp };
        whole.split(room).iter().map(CongestionFeedback::to_packet).collect()
    }

    fn transport(&mut self, sender: u32, begins: &[u64], room: usize) -> Vec<Packet> {
        let (Some(window), Some(begin)) = (self.windows.first(), begins.first()) else { return Vec::new() };
        let status = |came: &Option<Came>| came.map_or(PacketStatus::Missing, |c| PacketStatus::At(Ticks::of(c.at)));
        let feedback = TransportFeedback {
            sender,
            media: window.ssrc,
            count: self.count,
            begin_seq: *begin as u16,
            packets: window.from(*begin).map(status).collect(),
        };
        let packets = feedback.to_packets(room);
        self.count = self.count.wrapping_add(packets.len() as u8);
        packets
    }

    /// A report has left, in compounds of these IP bytes together.
    pub(crate) fn sent(&mut self, size: Bytes) {
        self.size = size;
    }
}
