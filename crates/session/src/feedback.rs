//! The receiver's side of per-packet feedback: it reports each packet's arrival.

use crate::MediaPacket;
use crate::participant::{MAX_DATAGRAM, Room};
use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, Wake};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{
    CongestionFeedback, Packet, PacketArrival as Reported, PacketStatus, StreamArrivals, Ticks, TransportFeedback,
};

/// The default id of the header extension that carries the transport-wide sequence number.
pub const TRANSPORT_NUMBER_ID: u8 = 14;

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    ecn: Ecn,
}

/// The window of recent arrivals that feedback may report. There is one for each SSRC, by RTP sequence number, or a
/// single one for all streams, by transport-wide sequence number.
#[derive(Debug)]
struct Window {
    ssrc: u32,
    /// The extended number of the oldest packet in the window.
    first: u64,
    arrivals: VecDeque<Option<Arrival>>,
    /// Entry n is a packet number: this packet and all later ones have been included in at most n reports.
    reported_up_to: [u64; REPORTS_PER_PACKET],
    /// The lowest number and the count of late packets: those that have arrived since the last report, but were missing
    /// in an earlier report.
    late: Option<(u64, u64)>,
}

/// Maximum number of packets of one source in a report. The value is the size of a sender's history.
const MAX_COVERED_PACKETS: usize = 1 << 14;
/// Maximum number of sources in a report: the streams of one sender.
const MAX_SOURCES: usize = 8;
/// If there is room, each packet is included in this number of reports, because reports may be lost.
const REPORTS_PER_PACKET: usize = 3;

impl Window {
    fn new(ssrc: u32, seq: u16) -> Self {
        // The offset leaves room in the number space for packets that precede the first arrival.
        let first = (1 << 16) | u64::from(seq);
        Self { ssrc, first, arrivals: VecDeque::new(), reported_up_to: [first; REPORTS_PER_PACKET], late: None }
    }

    /// Adds an arrival. Returns the number of arrivals that leave the window without having been reported.
    fn on_packet(&mut self, seq: u16, arrival: Arrival) -> u64 {
        let next = self.next();
        let number = next.saturating_add_signed(i64::from(seq.wrapping_sub(next as u16) as i16));
        let Some(place) = number.checked_sub(self.first) else { return 0 };
        let (place, mut untold) = (place as usize, 0);
        if place >= self.arrivals.len() {
            if place > self.arrivals.len() + MAX_COVERED_PACKETS {
                // The gap is larger than a window, so the source has restarted.
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
            // A duplicate does not change the arrival time, but a CE mark on any copy counts (RFC 8888, section 3.1).
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

    /// Returns the number after the newest in the window.
    fn next(&self) -> u64 {
        self.first + self.arrivals.len() as u64
    }

    /// Returns the number of arrivals below `until` that have not been reported.
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

    /// Returns the number of the first packet that has been reported at most `again` times. A report that begins there
    /// repeats packets up to `again` times.
    fn begin(&self, again: usize) -> u64 {
        self.reported_up_to[again].max(self.first)
    }

    /// Returns the first packet number of a report that begins with the first late packet or, without a late packet,
    /// with the first unreported one. Only packets after the late packet are repeated.
    fn begin_late(&self) -> u64 {
        self.late.map_or(self.begin(0), |(lowest, _)| lowest.min(self.begin(0)).max(self.first))
    }

    /// Returns the number of late packets that will never be reported if the present report begins at `begin`.
    fn late_before(&self, begin: u64) -> u64 {
        self.late.map_or(0, |(lowest, count)| if lowest < begin { count } else { 0 })
    }

    /// Returns the packets of a report from the number `begin` on.
    fn from(&self, begin: u64) -> impl ExactSizeIterator<Item = &Option<Arrival>> {
        self.arrivals.range((begin.saturating_sub(self.first) as usize).min(self.arrivals.len())..)
    }

    /// Updates the window after a report.
    fn reported(&mut self) {
        self.reported_up_to.rotate_right(1);
        self.reported_up_to[0] = self.next();
        self.late = None;
        self.keep_from(self.reported_up_to[REPORTS_PER_PACKET - 1]);
    }
}

/// The receiver's side of per-packet feedback: it records arrivals and schedules reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    format: FeedbackFormat,
    /// Whether each packet is reported only once, as libwebrtc does with transport-wide feedback. A packet is reported
    /// again only if an earlier packet arrives late. Repetitions confuse older versions of libwebrtc's sender: they
    /// skip the receive delta of a packet that they know already, which shifts the times of all later packets in the
    /// report. They also count a packet as lost again with each report in which it is missing.
    once: bool,
    windows: Vec<Window>,
    /// The arrival of the first packet since the last report, and whether a frame ended since; `None` without any
    /// packet.
    waiting: Option<(Time, bool)>,
    last_report: Option<Time>,
    count: u8,
    /// RTCP's share, 5 % of the session bandwidth.
    share: Rate,
    /// The IP bytes that have arrived since the last report.
    received: Bytes,
    /// The IP size of the last report.
    size: Bytes,
    /// The number of packets that arrived but were removed from their window before they were reported.
    untold: u64,
}

/// Minimum report interval. RFC 8888, section 4, says that more than one report per frame has little benefit.
const MIN_INTERVAL: Span = Span::millis(25);
/// Maximum report interval while packets arrive. With a longer interval, delay-based controllers get too few samples
/// (RFC 8888, section 4).
const MAX_INTERVAL: Span = Span::millis(200);
/// The IP size of a report without packets: SSRCs, times, IP and UDP headers.
const MIN_REPORT_SIZE: Bytes = Bytes::new(64);
/// Size in bytes of a feedback message without its packets. The value applies to one stream in RFC 8888's format, and
/// for the transport-wide format.
const MESSAGE_HEADER_SIZE: usize = 20;
/// RTCP's share of the bandwidth (RFC 3550, section 6.2).
const RTCP_SHARE: f64 = 0.05;

impl Reporter {
    /// Creates a reporter of this format; `None` for [`FeedbackFormat::Own`]. Feedback takes at most 5 % of
    /// `bandwidth`, the session bandwidth, or 5 % of the arriving bytes if that is more. `webrtc` is true if the sender
    /// may be a browser or another WebRTC end.
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

    /// Resets after an SSRC change or a sequence-number jump; discards the arrivals of the previous stream.
    pub(crate) fn restart(&mut self) {
        self.windows.clear();
        self.waiting = None;
    }

    /// Returns the number of packets that arrived but were removed from their window before they were reported.
    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }

    /// Adds an arrival, duplicates included. `ends` is true if the packet is the last of its frame.
    pub(crate) fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>, ends: bool) {
        let MediaPacket { header, transport, size, ecn, .. } = *packet;
        let seq = match (self.format, transport) {
            (FeedbackFormat::TransportWide, Some(number)) => number,
            (FeedbackFormat::TransportWide, None) => return,
            _ => header.seq,
        };
        self.on_arrival(header.ssrc, seq, Arrival { at: now, ecn }, size, ends);
    }

    /// Adds the arrival of a packet. `seq` is the number that feedback uses for it: its RTP or its transport-wide
    /// sequence number.
    fn on_arrival(&mut self, ssrc: u32, seq: u16, arrival: Arrival, size: Bytes, ends: bool) {
        let now = arrival.at;
        let ssrc = match self.format {
            // Transport-wide sequence numbers run across all streams, so all streams share one window.
            FeedbackFormat::TransportWide => self.windows.first().map_or(ssrc, |window| window.ssrc),
            _ => ssrc,
        };
        self.received += size;
        if let Some(window) = self.windows.iter_mut().find(|window| window.ssrc == ssrc) {
            self.untold += window.on_packet(seq, arrival);
        // The bound limits the memory that forged SSRCs can take.
        } else if self.windows.len() < MAX_SOURCES {
            let mut window = Window::new(ssrc, seq);
            window.on_packet(seq, arrival);
            self.windows.push(window);
        }
        let (since, ended) = self.waiting.unwrap_or((now, false));
        self.waiting = Some((since, ended || ends));
    }

    /// Returns when the next report is due; `None` while no packet has arrived since the last one.
    pub(crate) fn due(&self) -> Option<Wake> {
        let (since, ended) = self.waiting?;
        // The share of RTCP determines the interval if it does not allow a report per frame. At a high media rate, 5 %
        // of the arrived bytes allow a report per frame even if the session bandwidth is small.
        let saved = self.received.as_f64() * RTCP_SHARE >= self.size.as_f64();
        let pace = if saved { MIN_INTERVAL } else { self.size.at(self.share).max(MIN_INTERVAL).min(MAX_INTERVAL) };
        let after = self.last_report.map_or(since, |last| last + pace);
        // If a frame has ended, the report is sent now and covers the whole frame. Otherwise the report waits for more
        // packets.
        let at = if ended { since.max(after) } else { (since + MIN_INTERVAL).max(after) };
        Some(Wake { at, why: "per-packet feedback" })
    }

    /// Returns the report of the reporter `ssrc` as RTCP packets, each of which fits into `room`. `now` is the
    /// receiver's clock, and `ntp` is the same instant as the middle 32 bits of an NTP time.
    ///
    /// Each packet is included in three reports, or in one if `once` is set. If such a report exceeds both one datagram
    /// and RTCP's share of the bandwidth, each packet is included in fewer reports. If not even the unreported packets
    /// fit, the oldest of them are left out and counted.
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

    /// Returns how many packets a report may contain now. These are as many as fit into one datagram, or more if RTCP's
    /// share since the last report allows more.
    fn fitting(&self, now: Time, room: Room) -> usize {
        let since = self.last_report.map_or(Span::ZERO, |last| now.since(last));
        let share = self.share.over(since).as_f64().max(self.received.as_f64() * RTCP_SHARE);
        // At least one datagram, since a report without packets would be useless.
        let datagrams = (share / room.datagram.as_f64()).ceil().max(1.0) as usize;
        // RFC 8888, section 3.1: each stream has a header of 8 bytes, and each packet takes 2.
        let streams = 8 * self.windows.len();
        datagrams * (room.packets.saturating_sub(MESSAGE_HEADER_SIZE + streams) / 2)
    }

    /// Returns each window's first number in a report that contains at most `most` packets.
    fn begins(&self, most: usize) -> Vec<u64> {
        // With a repetition of 0, a report contains only unreported packets. With a higher one, it begins earlier.
        let begin = |window: &Window, repetition: usize| match repetition {
            1 if self.once => window.begin_late(),
            again => window.begin(again),
        };
        let count = |repetition| self.windows.iter().map(|w| w.from(begin(w, repetition)).len()).sum::<usize>();
        // Packets are repeated in as many reports as possible, as a protection against the loss of reports.
        let choices = if self.once { 2 } else { REPORTS_PER_PACKET };
        let repetition = (0..choices).rev().find(|repetition| count(*repetition) <= most);
        let chosen = |window: &Window| match repetition {
            Some(repetition) => begin(window, repetition),
            None => {
                // Not even the unreported packets fit. The streams share the room in proportion to the numbers of their
                // unreported packets.
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
        // The feedback packet count numbers the RTCP packets of a report, so that the sender detects missing parts of a
        // split report.
        self.count = self.count.wrapping_add(packets.len() as u8);
        packets
    }

    /// Stores the total IP size of the compounds of the report that was just sent.
    pub(crate) fn sent(&mut self, size: Bytes) {
        self.size = size;
    }
}

/// Bytes that SRTCP appends to an RTCP compound: its index and the tag of AES-GCM (RFC 7714, section 9.2).
const SRTCP_OVERHEAD: usize = 20;

/// The receiver's side of transport-wide feedback for a program that has its own RTP stack. The recorder stores
/// arrivals, and writes the reports that a session's receiver would send to a browser. Each packet is reported once,
/// and again only if a packet before it arrives late.
#[derive(Debug)]
pub struct TransportFeedbackRecorder {
    reporter: Reporter,
    ssrc: u32,
}

impl TransportFeedbackRecorder {
    /// Creates a recorder that reports as `ssrc`. Reports take at most 5 % of `bandwidth`, the session bandwidth, or 5
    /// % of the arriving bytes if that is more.
    pub fn new(ssrc: u32, bandwidth: Rate) -> Self {
        Self { reporter: Reporter::of(FeedbackFormat::TransportWide, bandwidth, true), ssrc }
    }

    /// Adds the arrival of an RTP packet, duplicates included: its SSRC, its transport-wide sequence number, and its IP
    /// size. `ends` is true if the packet is the last of its frame.
    pub fn on_packet(&mut self, now: Time, ssrc: u32, number: u16, size: Bytes, ends: bool) {
        self.reporter.on_arrival(ssrc, number, Arrival { at: now, ecn: Ecn::NotEct }, size, ends);
    }

    /// Returns when the next report is due; `None` while no packet has arrived since the last one.
    pub fn due(&self) -> Option<Time> {
        self.reporter.due().map(|wake| wake.at)
    }

    /// Returns the report as reduced-size RTCP packets (RFC 5506), one per datagram. Returns none before the report is
    /// due.
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
