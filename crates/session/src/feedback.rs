//! The receiver's part of per-packet feedback: records arrivals and writes reports.

use crate::MediaPacket;
use crate::participant::{MAX_DATAGRAM, Room};
use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, Wake};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{
    CongestionFeedback, Packet, PacketArrival as Reported, PacketStatus, StreamArrivals, Ticks, TransportFeedback,
};

/// The default id of the header extension that contains the transport-wide sequence number.
pub const TRANSPORT_NUMBER_ID: u8 = 14;

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    ecn: Ecn,
}

/// The recent arrivals of a stream, by RTP sequence number. With transport-wide feedback, this is a single window for
/// all streams, by transport-wide sequence number.
#[derive(Debug)]
struct Window {
    ssrc: u32,
    /// The extended sequence number of the oldest packet in the window.
    first: u64,
    arrivals: VecDeque<Option<Arrival>>,
    /// For each of the latest reports, the sequence number that follows its last packet. The newest report comes first.
    reported_up_to: [u64; REPORTS_PER_PACKET],
    /// Packets that arrived after a report had shown them as missing: their lowest sequence number, and how many there
    /// are.
    late: Option<(u64, u64)>,
}

/// Maximum number of packets from one source in a report. The sender's history has the same length.
const MAX_COVERED_PACKETS: usize = 1 << 14;
/// Maximum number of streams from one sender.
const MAX_SOURCES: usize = 8;
/// Number of reports that contain each packet. There are several, because reports may be lost.
const REPORTS_PER_PACKET: usize = 3;

impl Window {
    fn new(ssrc: u32, seq: u16) -> Self {
        // Start one cycle above zero, so that packets that precede the first arrival have a number as well.
        let first = (1 << 16) | u64::from(seq);
        Self { ssrc, first, arrivals: VecDeque::new(), reported_up_to: [first; REPORTS_PER_PACKET], late: None }
    }

    /// Adds an arrival. Returns the number of unreported arrivals that leave the window because of it.
    fn on_packet(&mut self, seq: u16, arrival: Arrival) -> u64 {
        let next = self.next();
        let number = next.saturating_add_signed(i64::from(seq.wrapping_sub(next as u16) as i16));
        let Some(place) = number.checked_sub(self.first) else { return 0 };
        let (place, mut untold) = (place as usize, 0);
        if place >= self.arrivals.len() {
            if place > self.arrivals.len() + MAX_COVERED_PACKETS {
                // The source has restarted, because the gap is larger than a window.
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
            // Report CE if any copy of a packet has this mark (RFC 8888, section 3.1).
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

    /// Returns the number of unreported arrivals with a sequence number below `until`.
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

    /// Returns the first sequence number of the next report. The report repeats the packets of the last `again`
    /// reports.
    fn begin(&self, again: usize) -> u64 {
        self.reported_up_to[again].max(self.first)
    }

    /// Returns the first sequence number of a report that contains all late and unreported packets.
    fn begin_late(&self) -> u64 {
        self.late.map_or(self.begin(0), |(lowest, _)| lowest.min(self.begin(0)).max(self.first))
    }

    /// Returns the number of late packets, or 0 if a report that starts at `begin` includes all of them. No later
    /// report includes the late packets that this report omits.
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

/// Records arrivals and schedules the reports about them.
#[derive(Debug)]
pub(crate) struct Reporter {
    format: FeedbackFormat,
    /// Whether a report repeats packets only if an earlier packet arrived late.
    ///
    /// Older libwebrtc senders ignore the receive delta of a packet that an earlier report contained. This shifts all
    /// later times in the report.
    once: bool,
    windows: Vec<Window>,
    /// The time of the first unreported arrival, and whether a frame has ended since then.
    waiting: Option<(Time, bool)>,
    last_report: Option<Time>,
    count: u8,
    /// The rate that feedback can use: 5 % of the session bandwidth.
    share: Rate,
    /// The IP bytes of the packets that have arrived since the last report.
    received: Bytes,
    /// The IP size of the last report.
    size: Bytes,
    /// Number of arrivals that were not reported before they left their window.
    untold: u64,
}

/// Minimum interval between reports. More than one report per frame has little effect (RFC 8888, section 4).
const MIN_INTERVAL: Span = Span::millis(25);
/// Maximum interval between reports, even if they then need more than 5 % of the bandwidth. Delay-based controllers
/// need enough samples (RFC 8888, section 4).
const MAX_INTERVAL: Span = Span::millis(200);
/// The size of a report without packets: SSRCs, times, and IP and UDP headers.
const MIN_REPORT_SIZE: Bytes = Bytes::new(64);
/// The size of a message without packets, for transport-wide feedback or for RFC 8888 with one stream.
const MESSAGE_HEADER_SIZE: usize = 20;
/// The share of the bandwidth that RTCP can use (RFC 3550, section 6.2).
const RTCP_SHARE: f64 = 0.05;

impl Reporter {
    /// Creates a reporter, or returns `None` for [`FeedbackFormat::Own`]. Feedback uses at most 5 % of the session
    /// `bandwidth`, or 5 % of the arriving bytes if that is more. `webrtc` is whether the sender may be a WebRTC
    /// endpoint.
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

    /// Discards all arrivals, because a new stream starts.
    pub(crate) fn restart(&mut self) {
        self.windows.clear();
        self.waiting = None;
    }

    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }

    /// Adds an arrival, which may be a duplicate. `ends` is whether the packet is the last one of its frame.
    pub(crate) fn on_packet(&mut self, now: Time, packet: &MediaPacket<'_>, ends: bool) {
        let MediaPacket { header, transport, size, ecn, .. } = *packet;
        let seq = match (self.format, transport) {
            (FeedbackFormat::TransportWide, Some(number)) => number,
            (FeedbackFormat::TransportWide, None) => return,
            _ => header.seq,
        };
        self.on_arrival(header.ssrc, seq, Arrival { at: now, ecn }, size, ends);
    }

    /// Adds an arrival. `seq` is the RTP or transport-wide sequence number.
    fn on_arrival(&mut self, ssrc: u32, seq: u16, arrival: Arrival, size: Bytes, ends: bool) {
        let now = arrival.at;
        let ssrc = match self.format {
            // Use a single window, because all streams share the transport-wide sequence numbers.
            FeedbackFormat::TransportWide => self.windows.first().map_or(ssrc, |window| window.ssrc),
            _ => ssrc,
        };
        self.received += size;
        if let Some(window) = self.windows.iter_mut().find(|window| window.ssrc == ssrc) {
            self.untold += window.on_packet(seq, arrival);
        // Limit the number of streams, so that forged SSRCs cannot exhaust the memory.
        } else if self.windows.len() < MAX_SOURCES {
            let mut window = Window::new(ssrc, seq);
            window.on_packet(seq, arrival);
            self.windows.push(window);
        }
        let (since, ended) = self.waiting.unwrap_or((now, false));
        self.waiting = Some((since, ended || ends));
    }

    /// Returns when the next report is due, or `None` if no packet has arrived since the last report.
    pub(crate) fn due(&self) -> Option<Wake> {
        let (since, ended) = self.waiting?;
        // Use the minimum interval if 5 % of the arrived bytes are enough for a report. At a high media rate this
        // allows a report per frame.
        let saved = self.received.as_f64() * RTCP_SHARE >= self.size.as_f64();
        let pace = if saved { MIN_INTERVAL } else { self.size.at(self.share).max(MIN_INTERVAL).min(MAX_INTERVAL) };
        let after = self.last_report.map_or(since, |last| last + pace);
        // At the end of a frame, report as soon as the interval allows, because the report then contains the whole
        // frame. Otherwise wait for more packets.
        let at = if ended { since.max(after) } else { (since + MIN_INTERVAL).max(after) };
        Some(Wake { at, why: "per-packet feedback" })
    }

    /// Writes a report. Returns RTCP packets that each fit into `room`. `ntp` is the middle 32 bits of the NTP time at
    /// `now`.
    ///
    /// A report may fill one datagram, or more datagrams if RTCP's share of the bandwidth allows them. If there is not
    /// enough room, the report repeats fewer arrivals of earlier reports. If there is still not enough room, the report
    /// also omits new arrivals and adds their number to `untold`.
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

    /// Returns how many media packets fit into a report. It can fill one datagram, or more if RTCP's share of the
    /// bandwidth allows it.
    fn fitting(&self, now: Time, room: Room) -> usize {
        let since = self.last_report.map_or(Span::ZERO, |last| now.since(last));
        let share = self.share.over(since).as_f64().max(self.received.as_f64() * RTCP_SHARE);
        // Allow at least one datagram, because a report without packets would be useless.
        let datagrams = (share / room.datagram.as_f64()).ceil().max(1.0) as usize;
        // RFC 8888 uses 8 bytes per stream and 2 bytes per packet (section 3.1).
        let streams = 8 * self.windows.len();
        datagrams * (room.packets.saturating_sub(MESSAGE_HEADER_SIZE + streams) / 2)
    }

    /// Returns the first sequence number of each window in a report that contains at most `most` packets.
    fn begins(&self, most: usize) -> Vec<u64> {
        // A repetition of 0 means a report with unreported packets only.
        let begin = |window: &Window, repetition: usize| match repetition {
            1 if self.once => window.begin_late(),
            again => window.begin(again),
        };
        let count = |repetition| self.windows.iter().map(|w| w.from(begin(w, repetition)).len()).sum::<usize>();
        // Repeat arrivals in as many reports as the room allows, because reports may be lost.
        let choices = if self.once { 2 } else { REPORTS_PER_PACKET };
        let repetition = (0..choices).rev().find(|repetition| count(*repetition) <= most);
        let chosen = |window: &Window| match repetition {
            Some(repetition) => begin(window, repetition),
            None => {
                // Unreported packets alone do not fit. Divide the room between the streams in proportion to these
                // packets.
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
        // Count every RTCP packet, so that the sender can detect missing packets.
        self.count = self.count.wrapping_add(packets.len() as u8);
        packets
    }

    /// Stores the IP size of the report that was sent last.
    pub(crate) fn sent(&mut self, size: Bytes) {
        self.size = size;
    }
}

/// Bytes that SRTCP adds: its index and AES-GCM's tag (RFC 7714, section 9.2).
const SRTCP_OVERHEAD: usize = 20;

/// Times that are earlier than the latest one by more than this mean that the program's clock was set back. Smaller
/// differences come from times that several threads have read.
const CLOCK_SET_BACK: Span = Span::secs(1);

/// Transport-wide feedback for a program that has its own RTP stack. Reports repeat packets only if an earlier packet
/// arrives late.
///
/// If the program's clock is set back, the recorder's times continue at the latest time.
#[derive(Debug)]
pub struct TransportFeedbackRecorder {
    reporter: Reporter,
    ssrc: u32,
    /// The latest time of a call.
    latest: Time,
    /// The sum of the times by which the program's clock was set back.
    set_back: Span,
}

impl TransportFeedbackRecorder {
    /// Creates a recorder that reports with the SSRC `ssrc`. Feedback uses at most 5 % of the session `bandwidth`, or
    /// 5 % of the arriving bytes if that is more.
    pub fn new(ssrc: u32, bandwidth: Rate) -> Self {
        let reporter = Reporter::of(FeedbackFormat::TransportWide, bandwidth, true);
        Self { reporter, ssrc, latest: Time::ZERO, set_back: Span::ZERO }
    }

    /// Converts a time of the program's clock to a time that continues if the clock is set back.
    fn continued(&mut self, now: Time) -> Time {
        let late = self.latest.since(now + self.set_back);
        if late > CLOCK_SET_BACK {
            self.set_back += late;
        }
        let now = now + self.set_back;
        self.latest = self.latest.max(now);
        now
    }

    /// Adds an arrival of an RTP packet, which may be a duplicate. `ssrc` is the packet's SSRC, `number` is its
    /// transport-wide sequence number, and `size` is its IP size. `ends` is whether the packet is the last one of its
    /// frame.
    pub fn on_packet(&mut self, now: Time, ssrc: u32, number: u16, size: Bytes, ends: bool) {
        let at = self.continued(now);
        self.reporter.on_arrival(ssrc, number, Arrival { at, ecn: Ecn::NotEct }, size, ends);
    }

    /// Returns when the next report is due, or `None` if no packet has arrived since the last report.
    pub fn due(&self) -> Option<Time> {
        self.reporter.due().map(|wake| wake.at.before(self.set_back))
    }

    /// Returns a report as reduced-size RTCP packets (RFC 5506), each for its own datagram. Returns no packets if no
    /// report is due.
    pub fn report(&mut self, now: Time) -> Vec<Vec<u8>> {
        let now = self.continued(now);
        if self.reporter.due().is_none_or(|due| now < due.at) {
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
