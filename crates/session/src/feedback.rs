//! Per-packet feedback: what a receiver writes of each packet that arrived, and how the sender joins it with what it sent.

use std::collections::VecDeque;
use steadycast_control::{FeedbackFormat, PacketArrival, Stream, Wake};
use steadycast_remote::{History, Joined};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_wire::IP_UDP_OVERHEAD;
use steadycast_wire::rtcp::{
    Acknowledged, Arrived, Compound, CongestionFeedback, Packet, PacketArrival as Reported, PacketStatus,
    StreamArrivals, Ticks, TransportFeedback,
};

/// The header extension element that carries a packet's transport-wide number.
pub const TRANSPORT_NUMBER_ID: u8 = 14;

/// Whether a compound's packet tells of single packets in this format.
pub(crate) fn tells(format: FeedbackFormat, packet: &Packet) -> bool {
    match format {
        FeedbackFormat::Own => false,
        FeedbackFormat::Rfc8888 => CongestionFeedback::is(packet),
        FeedbackFormat::TransportWide => TransportFeedback::is(packet),
    }
}

/// No further message of a compound is read once so many packets were told of: twice as many as a sender remembers, and as many as a
/// receiver of ours tells of at the most. A message of a few bytes can tell of 16,384.
const READ: usize = 1 << 15;

/// Reads the per-packet feedback in a compound, in the format that was agreed on, and joins it with what was sent; `None` without any.
/// `stream_of` names the stream of an SSRC that is ours. Also returns how many messages were not read, beyond [`READ`] packets.
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
            any = true;
            let reported = feedback.reported_at(history.near());
            for (ssrc, Acknowledged { seq, arrival }) in feedback.acknowledged(history.near()) {
                read += 1;
                let number = stream_of(ssrc).and_then(|stream| history.by_seq(stream, seq));
                if let Some(number) = number {
                    history.join(number, told(arrival), &mut joined);
                }
            }
            joined.measure_from(first, now, reported);
        } else if let Ok(Some(feedback)) = TransportFeedback::from_packet(packet) {
            any = true;
            for Acknowledged { seq, arrival } in feedback.acknowledged(history.near()) {
                read += 1;
                if let Some(number) = history.by_low_bits(seq) {
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
    /// The extended number of the first that is still reported.
    first: u64,
    came: VecDeque<Option<Came>>,
    /// Where the last report and the one before it began: each packet stands in three reports, so that one may be lost.
    begins: [u64; 2],
}

/// Packets of one source that a report covers at most.
const COVERED: usize = 1 << 12;
/// Sources that a report covers at most: the streams of one sender.
const SOURCES: usize = 8;

impl Window {
    fn new(ssrc: u32, seq: u16) -> Self {
        // Room for packets before the first that came.
        let first = (1 << 16) | u64::from(seq);
        Self { ssrc, first, came: VecDeque::new(), begins: [first; 2] }
    }

    fn on_packet(&mut self, seq: u16, came: Came) {
        let next = self.first + self.came.len() as u64;
        let number = next.saturating_add_signed(i64::from(seq.wrapping_sub(next as u16) as i16));
        let Some(place) = number.checked_sub(self.first) else { return };
        let place = place as usize;
        if place >= self.came.len() {
            if place > self.came.len() + COVERED {
                // A sequence that begins anew.
                *self = Self::new(self.ssrc, seq);
                return self.came.push_back(Some(came));
            }
            self.came.resize(place + 1, None);
            while self.came.len() > COVERED {
                self.came.pop_front();
                self.first += 1;
            }
        }
        let place = (number - self.first) as usize;
        match &mut self.came[place] {
            // The first copy's time, and a mark if any copy has one (RFC 8888, 3.1).
            Some(first) if came.ecn.is_ce() => first.ecn = Ecn::Ce,
            Some(_) => {}
            none => *none = Some(came),
        }
    }

    /// Moves on after a report: what stood in three is left out from now on.
    fn reported(&mut self) {
        let next = self.first + self.came.len() as u64;
        let [last, before] = self.begins;
        self.begins = [next, last];
        let old = before.max(self.first) - self.first;
        self.came.drain(..(old as usize).min(self.came.len()));
        self.first += old;
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
    /// Bytes of the last report on the wire.
    size: Bytes,
}

/// Reports leave no closer together than this: RFC 8888, section 4, calls one per frame the most that helps.
const SHORTEST: Span = Span::millis(25);
/// And, where packets come at all, no farther apart than this: beyond it delay-based controllers see too little (RFC 8888, 4).
const LONGEST: Span = Span::millis(200);
/// Of a report without packets: SSRCs, times, IP and UDP.
const LEAST_REPORT: Bytes = Bytes::new(64);
/// The largest compound, without IP and UDP.
const LARGEST: usize = 1_200;

impl Reporter {
    /// Reports in this format; `None` for [`FeedbackFormat::Own`]. `bandwidth` is the session's, of which feedback takes 5 %.
    pub(crate) fn new(format: FeedbackFormat, bandwidth: Rate) -> Option<Self> {
        (format != FeedbackFormat::Own).then_some(Self {
            format,
            windows: Vec::new(),
            waiting: None,
            said: None,
            count: 0,
            share: bandwidth.scale(0.05),
            size: LEAST_REPORT,
        })
    }

    /// Another source, or the same one from another number on: what came of the one before is of no use to it.
    pub(crate) fn restart(&mut self) {
        self.windows.clear();
        self.waiting = None;
    }

    /// A packet has arrived, a duplicate included. `ends` says that it ended its frame.
    pub(crate) fn on_packet(&mut self, now: Time, ssrc: u32, seq: u16, transport: Option<u16>, ecn: Ecn, ends: bool) {
        let (ssrc, seq) = match (self.format, transport) {
            (FeedbackFormat::TransportWide, Some(number)) => (self.windows.first().map_or(ssrc, |w| w.ssrc), number),
            (FeedbackFormat::TransportWide, None) => return,
            _ => (ssrc, seq),
        };
        if let Some(window) = self.windows.iter_mut().find(|window| window.ssrc == ssrc) {
            window.on_packet(seq, Came { at: now, ecn });
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
        // 5 % of the session bandwidth set the pace where that is slower than a report per frame.
        let pace = self.size.at(self.share).max(SHORTEST).min(LONGEST);
        let after = self.said.map_or(since, |said| said + pace);
        let at = if ended { since.max(after) } else { (since + SHORTEST).max(after) };
        Some(Wake { at, why: "per-packet feedback" })
    }

    /// The report, as packets of a compound of the reporter `ssrc`. `now` is on the receiver's clock, `ntp` the same instant as the
    /// middle 32 bits of an NTP time.
    pub(crate) fn write(&mut self, now: Time, ntp: u32, ssrc: u32) -> Vec<Packet> {
        (self.waiting, self.said) = (None, Some(now));
        let packets = match self.format {
            FeedbackFormat::Own => Vec::new(),
            FeedbackFormat::Rfc8888 => self.congestion(now, ntp, ssrc),
            FeedbackFormat::TransportWide => self.transport(ssrc),
        };
        self.windows.iter_mut().for_each(Window::reported);
        packets
    }

    fn congestion(&self, now: Time, ntp: u32, sender: u32) -> Vec<Packet> {
        let reported = |came: &Came| Reported::before(now.since(came.at), came.ecn);
        let stream = |window: &Window| StreamArrivals {
            ssrc: window.ssrc,
            begin_seq: window.first as u16,
            arrivals: window.came.iter().map(|came| came.as_ref().map(reported)).collect(),
        };
        let streams = self.windows.iter().map(stream).collect();
        let whole = CongestionFeedback { sender, streams, report_time: ntp };
        whole.split(LARGEST).iter().map(CongestionFeedback::to_packet).collect()
    }

    fn transport(&mut self, sender: u32) -> Vec<Packet> {
        let Some(window) = self.windows.first() else { return Vec::new() };
        let status = |came: &Option<Came>| came.map_or(PacketStatus::Missing, |c| PacketStatus::At(Ticks::of(c.at)));
        let feedback = TransportFeedback {
            sender,
            media: window.ssrc,
            count: self.count,
            begin_seq: window.first as u16,
            packets: window.came.iter().map(status).collect(),
        };
        let packets = feedback.to_packets(LARGEST);
        self.count = self.count.wrapping_add(packets.len() as u8);
        packets
    }

    /// A compound of `len` bytes with the report has left.
    pub(crate) fn sent(&mut self, len: usize) {
        self.size = Bytes::new((len + IP_UDP_OVERHEAD) as u64);
    }
}
