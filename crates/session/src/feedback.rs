//! The receiver's side of per-packet feedback.

use crate::MediaPacket;
use crate::participant::{MAX_DATAGRAM, Room};
use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, Wake};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{
    CongestionFeedback, Packet, PacketArrival as Reported, PacketStatus, StreamArrivals, Ticks, TransportFeedback,
};

/// The default id of the header extension with the transport-wide sequence number.
pub const TRANSPORT_NUMBER_ID: u8 = 14;

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    ecn: Ecn,
}

/// The arrivals that feedback may report, per SSRC or by transport-wide sequence numbers.
#[derive(Debug)]
struct Window {
    ssrc: u32,
    /// The extended number of the oldest packet.
    first: u64,
    arrivals: VecDeque<Option<Arrival>>,
    /// For each of the latest reports, newest first: the number after its last packet.
    reported_up_to: [u64; REPORTS_PER_PACKET],
    /// Packets that arrived after a report had shown them missing: the lowest number, and the count.
    late: Option<(u64, u64)>,
}

/// Maximum number of one source's packets in a report, as many as a sender's history holds.
const MAX_COVERED_PACKETS: usize = 1 << 14;
/// Maximum number of streams of one sender.
const MAX_SOURCES: usize = 8;
/// Each packet is in this many reports, because reports may be lost.
const REPORTS_PER_PACKET: usize = 3;

impl Window {
    fn new(ssrc: u32, seq: u16) -> Self {
        // Leaves room for packets that precede the first arrival.
        let first = (1 << 16) | u64::from(seq);
        Self { ssrc, first, arrivals: VecDeque::new(), reported_up_to: [first; REPORTS_PER_PACKET], late: None }
    }

    /// Adds an arrival. Returns how many unreported arrivals leave the window.
    fn on_packet(&mut self, seq: u16, arrival: Arrival) -> u64 {
        let next = self.next();
        let number = next.saturating_add_signed(i64::from(seq.wrapping_sub(next as u16) as i16));
        let Some(place) = number.checked_sub(self.first) else { return 0 };
        let (place, mut untold) = (place as usize, 0);
        if place >= self.arrivals.len() {
            if place > self.arrivals.len() + MAX_COVERED_PACKETS {
                // A gap larger than a window is a restart of the source.
                untold = self.fresh(self.next());
                *self = Self::new(self.ssrc, seq);
                self.arrivals.push_back(Some(arrival));
                return untold;
            }
            self.arrivals.resize(place + 1, None);
            let kept = self.next().saturating_sub(MAX_COVERED_PACKETS as u64);
            untold = self.fresh(kept);
            self.keep_from(kept);
        }
        let place = (number - self.first) as usize;
        match &mut self.arrivals[place] {
            // A CE mark on any copy counts (RFC 8888, section 3.1).
            Some(first) if arrival.ecn.is_ce() => first.ecn = Ecn::Ce,
            Some(_) => {}
            none => {
                *none = Some(arrival);
                if number < self.reported_up_to[0] {
                    self.late = Some(self.late.map_or((number, 1), |(lowest, count)| (lowest.min(number), count + 1)));
                }
            }
        }
        untold
    }

    fn next(&self) -> u64 {
        self.first + self.arrivals.len() as u64
    }

    /// Returns the number of unreported arrivals below `until`.
    fn fresh(&self, until: u64) -> u64 {
        let place = |number: u64| (number.saturating_sub(self.first) as usize).min(self.arrivals.len());
        let (from, until) = (place(self.reported_up_to[0]), place(until));
        self.arrivals.range(from..until.max(from)).flatten().count() as u64
    }

    fn keep_from(&mut self, number: u64) {
        let old = (number.saturating_sub(self.first) as usize).min(self.arrivals.len());
        self.arrivals.drain(..old);
        self.first += old as u64;
    }

    /// Returns the start of a report that repeats packets up to `again` times.
    fn begin(&self, again: usize) -> u64 {
        self.reported_up_to[again].max(self.first)
    }

    /// Returns the start of a report from the first late or unreported packet on.
    fn begin_late(&self) -> u64 {
        self.late.map_or(self.begin(0), |(lowest, _)| lowest.min(self.begin(0)).max(self.first))
    }

    /// Returns how many late packets a report from `begin` on leaves out forever.
    fn late_before(&self, begin: u64) -> u64 {
        self.late.map_or(0, |(lowest, count)| if lowest < begin { count } else { 0 })
    }

    fn from(&self, begin: u64) -> impl ExactSizeIterator<Item = &Option<Arrival>> {
        self.arrivals.range((begin.saturating_sub(self.first) as usize).min(self.arrivals.len())..)
    }

    fn reported(&mut self) {
        self.reported_up_to.rotate_right(1);
        self.reported_up_to[0] = self.next();
        self.late = None;
        self.keep_from(self.reported_up_to[REPORTS_PER_PACKET - 1]);
    }
}

/// Records arrivals and schedules reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    format: FeedbackFormat,
    /// Whether a report repeats packets only if an earlier packet arrived late.
    ///
    /// Older libwebrtc senders ignore the receive delta of a packet that was already reported. All later times in the
    /// report are then shifted.
    once: bool,
    windows: Vec<Window>,
    /// The first unreported arrival, and whether a frame has ended since.
    waiting: Option<(Time, bool)>,
    last_report: Option<Time>,
    count: u8,
    /// 5 % of the session bandwidth.
    share: Rate,
    /// The IP bytes that have arrived since the last report.
    received: Bytes,
    /// The IP size of the last report.
    size: Bytes,
    /// Arrivals that left their window unreported.
    untold: u64,
}

/// More than one report per frame helps little (RFC 8888, section 4).
const MIN_INTERVAL: Span = Span::millis(25);
/// Longer intervals give delay-based controllers too few samples (RFC 8888, section 4).
const MAX_INTERVAL: Span = Span::millis(200);
/// The size of a report without packets: SSRCs, times, IP and UDP headers.
const MIN_REPORT_SIZE: Bytes = Bytes::new(64);
/// The size of a message without packets, transport-wide or of one RFC 8888 stream.
const MESSAGE_HEADER_SIZE: usize = 20;
/// RTCP's share of the bandwidth (RFC 3550, section 6.2).
const RTCP_SHARE: f64 = 0.05;

impl Reporter {
    /// Returns `None` for [`FeedbackFormat::Own`]. Feedback takes at most 5 % of the session `bandwidth` or of the
    /// arriving bytes. `webrtc` is whether the sender may be a WebRTC end.
    pub(crate) fn new(format: FeedbackFormat, bandwidth: Rate, webrtc: bool) -> Option<Self> {
        (format != FeedbackFormat::Own).then(|| Self::of(format, bandwidth, webrtc))
    }

    fn of(format: FeedbackFormat, bandwidth: Rate, webrtc: bool) -> Self {
        Self {
            once: webrtc && format == FeedbackFormat::TransportWide,
            format,
            windows: Vec::new(),
            waiting: None,
            last_report: None,
            count: 0,
            share: bandwidth.scale(RTCP_SHARE),
            received: Bytes::ZERO,
            size: MIN_REPORT_SIZE,
            untold: 0,
        }
    }

    /// Discards the previous stream's arrivals.
    pub(crate) fn restart(&mut self) {
        self.windows.clear();
        self.waiting = None;
    }

    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }

    /// Adds an arrival or duplicate. `ends` marks the last packet of a frame.
    pub(crate) fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>, ends: bool) {
        let MediaPacket { header, transport, size, ecn, .. } = *packet;
        let seq = match (self.format, transport) {
            (FeedbackFormat::TransportWide, Some(number)) => number,
            (FeedbackFormat::TransportWide, None) => return,
            _ => header.seq,
        };
        self.on_arrival(header.ssrc, seq, Arrival { at: now, ecn }, size, ends);
    }

    /// Adds an arrival under its RTP or transport-wide sequence number.
    fn on_arrival(&mut self, ssrc: u32, seq: u16, arrival: Arrival, size: Bytes, ends: bool) {
        let now = arrival.at;
        let ssrc = match self.format {
            // Transport-wide sequence numbers run across all streams.
            FeedbackFormat::TransportWide => self.windows.first().map_or(ssrc, |window| window.ssrc),
            _ => ssrc,
        };
        self.received += size;
        if let Some(window) = self.windows.iter_mut().find(|window| window.ssrc == ssrc) {
            self.untold += window.on_packet(seq, arrival);
        // Bounds the memory that forged SSRCs can take.
        } else if self.windows.len() < MAX_SOURCES {
            let mut window = Window::new(ssrc, seq);
            window.on_packet(seq, arrival);
            self.windows.push(window);
        }
        let (since, ended) = self.waiting.unwrap_or((now, false));
        self.waiting = Some((since, ended || ends));
    }

    /// Returns when the next report is due, if a packet has arrived.
    pub(crate) fn due(&self) -> Option<Wake> {
        let (since, ended) = self.waiting?;
        // At a high media rate, 5 % of the arrived bytes allow a report per frame.
        let saved = self.received.as_f64() * RTCP_SHARE >= self.size.as_f64();
        let pace = if saved { MIN_INTERVAL } else { self.size.at(self.share).max(MIN_INTERVAL).min(MAX_INTERVAL) };
        let after = self.last_report.map_or(since, |last| last + pace);
        // At a frame's end, the report covers the whole frame. Otherwise it waits for more packets.
        let at = if ended { since.max(after) } else { (since + MIN_INTERVAL).max(after) };
        Some(Wake { at, why: "per-packet feedback" })
    }

    /// Writes a report as RTCP packets that each fit into `room`. `ntp` is the middle 32 bits of the NTP time at `now`.
    ///
    /// A report that exceeds both a datagram and RTCP's share repeats fewer arrivals of earlier reports. New arrivals
    /// that do not fit are counted in `untold`.
    pub(crate) fn write(&mut self, now: Time, ntp: u32, ssrc: u32, room: Room) -> Vec<Packet> {
        let begins = self.begins(self.fitting(now, room));
        for (window, begin) in self.windows.iter().zip(&begins) {
            self.untold += window.fresh(*begin) + if self.once { window.late_before(*begin) } else { 0 };
        }
        (self.waiting, self.last_report, self.received) = (None, Some(now), Bytes::ZERO);
        let packets = match self.format {
            FeedbackFormat::Rfc8888 => self.congestion(now, ntp, ssrc, &begins, room.packets),
            FeedbackFormat::TransportWide => self.transport(ssrc, &begins, room.packets),
            _ => Vec::new(),
        };
        self.windows.iter_mut().for_each(Window::reported);
        packets
    }

    /// Returns how many media packets a report may cover: those of one datagram, or more if RTCP's share allows.
    fn fitting(&self, now: Time, room: Room) -> usize {
        let since = self.last_report.map_or(Span::ZERO, |last| now.since(last));
        let share = self.share.over(since).as_f64().max(self.received.as_f64() * RTCP_SHARE);
        // A report without packets would be useless.
        let datagrams = (share / room.datagram.as_f64()).ceil().max(1.0) as usize;
        // 8 bytes per stream, and 2 per packet (RFC 8888, section 3.1).
        let streams = 8 * self.windows.len();
        datagrams * (room.packets.saturating_sub(MESSAGE_HEADER_SIZE + streams) / 2)
    }

    /// Returns each window's first number in a report of at most `most` packets.
    fn begins(&self, most: usize) -> Vec<u64> {
        // With a repetition of 0, a report contains only unreported packets.
        let begin = |window: &Window, repetition: usize| match repetition {
            1 if self.once => window.begin_late(),
            again => window.begin(again),
        };
        let count = |repetition| self.windows.iter().map(|w| w.from(begin(w, repetition)).len()).sum::<usize>();
        // Arrivals are repeated as often as the room allows, because reports may be lost.
        let choices = if self.once { 2 } else { REPORTS_PER_PACKET };
        let repetition = (0..choices).rev().find(|repetition| count(*repetition) <= most);
        let chosen = |window: &Window| match repetition {
            Some(repetition) => begin(window, repetition),
            None => {
                // The streams share the room in proportion to their unreported packets.
                let fresh = window.from(window.begin(0)).len();
                window.next() - (fresh * most / count(0)) as u64
            }
        };
        self.windows.iter().map(chosen).collect()
    }

    fn congestion(&self, now: Time, ntp: u32, sender: u32, begins: &[u64], room: usize) -> Vec<Packet> {
        let reported = |arrival: &Arrival| Reported::before(now.since(arrival.at), arrival.ecn);
        let stream = |(window, begin): (&Window, &u64)| StreamArrivals {
            ssrc: window.ssrc,
            begin_seq: *begin as u16,
            arrivals: window.from(*begin).map(|arrival| arrival.as_ref().map(reported)).collect(),
        };
        let streams = self.windows.iter().zip(begins).map(stream).collect();
        let whole = CongestionFeedback { sender, streams, report_time: ntp };
        whole.split(room).iter().map(CongestionFeedback::to_packet).collect()
    }

    fn transport(&mut self, sender: u32, begins: &[u64], room: usize) -> Vec<Packet> {
        let (Some(window), Some(begin)) = (self.windows.first(), begins.first()) else { return Vec::new() };
        let status =
            |arrival: &Option<Arrival>| arrival.map_or(PacketStatus::Missing, |c| PacketStatus::At(Ticks::of(c.at)));
        let feedback = TransportFeedback {
            sender,
            media: window.ssrc,
            count: self.count,
            begin_seq: *begin as u16,
            packets: window.from(*begin).map(status).collect(),
        };
        let packets = feedback.to_packets(room);
        // The count numbers RTCP packets, so that the sender detects missing ones.
        self.count = self.count.wrapping_add(packets.len() as u8);
        packets
    }

    /// Stores the IP size of the report that was just sent.
    pub(crate) fn sent(&mut self, size: Bytes) {
        self.size = size;
    }
}

/// SRTCP's index and AES-GCM's tag in bytes (RFC 7714, section 9.2).
const SRTCP_OVERHEAD: usize = 20;

/// Transport-wide feedback for a program with its own RTP stack. Packets are repeated only if an earlier one arrives
/// late.
#[derive(Debug)]
pub struct TransportFeedbackRecorder {
    reporter: Reporter,
    ssrc: u32,
}

impl TransportFeedbackRecorder {
    /// Reports as `ssrc`, with at most 5 % of the session `bandwidth` or of the arriving bytes.
    pub fn new(ssrc: u32, bandwidth: Rate) -> Self {
        Self { reporter: Reporter::of(FeedbackFormat::TransportWide, bandwidth, true), ssrc }
    }

    /// Adds an arrival or duplicate of an RTP packet: SSRC, transport-wide sequence number, IP size, and whether it
    /// ends its frame.
    pub fn on_packet(&mut self, now: Time, ssrc: u32, number: u16, size: Bytes, ends: bool) {
        self.reporter.on_arrival(ssrc, number, Arrival { at: now, ecn: Ecn::NotEct }, size, ends);
    }

    /// Returns when the next report is due, if a packet has arrived.
    pub fn due(&self) -> Option<Time> {
        self.reporter.due().map(|wake| wake.at)
    }

    /// Returns reduced-size RTCP packets (RFC 5506), one per datagram; none before they are due.
    pub fn report(&mut self, now: Time) -> Vec<Vec<u8>> {
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let packets = MAX_DATAGRAM.get() as usize - IP_UDP_OVERHEAD - SRTCP_OVERHEAD;
        let report = self.reporter.write(now, 0, self.ssrc, Room { datagram: MAX_DATAGRAM, packets });
        let encode = |packet: &Packet| {
            let mut datagram = Vec::with_capacity(packet.encoded_len());
            packet.encode(&mut datagram);
            datagram
        };
        let datagrams: Vec<Vec<u8>> = report.iter().map(encode).collect();
        let size: usize = datagrams.iter().map(|each| each.len() + IP_UDP_OVERHEAD + SRTCP_OVERHEAD).sum();
        self.reporter.sent(Bytes::new(size as u64));
        datagrams
    }
}
