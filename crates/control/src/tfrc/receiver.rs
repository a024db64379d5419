use super::Settings;
use super::message::{FeedbackReport, Mark, RTT_UNIT, echo, read_rtt_notice};
use crate::entry::Setup;
use crate::equation::{self, LossRate};
use crate::loss::{Change, LossHistory, ReceivedPacket};
use crate::queue::Queue;
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, View, Wake};
use std::collections::VecDeque;
use steadycast_units::{Bytes, OneWay, Rate, Span, Stamp, Time};

/// Maximum number of entries in `marks`.
const MOST_EXPIRIES: usize = 16;
/// The round-trip time that is assumed until a packet carries a measured one.
const INITIAL_RTT: Span = Span::millis(500);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CountedPackets {
    #[default]
    All,
    /// Only the marked packets count. They have a separate numbering ([`Mark`]).
    Marked,
}

#[derive(Default)]
pub(crate) struct Receiver {
    packet: Bytes,
    settings: Settings,
    among: CountedPackets,
    vseq: Option<u64>,
    history: LossHistory,
    queue: Queue,
    least_rtt: Option<Span>,
    /// The round-trip time R that the newest packet carried.
    rtt: Option<Span>,
    /// The newest packet's sequence number, time stamp and arrival time.
    latest: Option<(u64, Stamp, Time)>,
    total: Bytes,
    /// Times at which the feedback timer expired or a report was sent. Each has the number of bytes received until
    /// then.
    marks: VecDeque<(Time, Bytes)>,
    timer: Option<Time>,
    reported: Option<Time>,
    fresh: bool,
    urgent: Option<Wake>,
    received: Option<Rate>,
    /// The highest X_recv before the first loss.
    best: Rate,
}

impl Receiver {
    pub(crate) fn new(setup: &Setup, settings: &Settings, among: CountedPackets) -> Self {
        Self {
            packet: setup.packet,
            settings: *settings,
            among,
            history: LossHistory::new(settings.loss),
            queue: Queue::new(settings.start_delay),
            ..Self::default()
        }
    }

    /// Computes the receive rate X_recv (RFC 5348, section 6.2). The measurement begins at the latest timer expiry that
    /// is at least a round trip ago. The result is at least one packet per round trip.
    fn measure(&self, now: Time) -> Option<Rate> {
        let rtt = self.rtt?;
        let mark = self.marks.iter().rev().find(|(at, _)| now.since(*at) >= rtt).or(self.marks.front())?;
        let rate = self.total.saturating_sub(mark.1).per(now.since(mark.0).max(rtt));
        Some(rate.max(self.packet.per(rtt)))
    }

    fn mark(&mut self, at: Time, total: Bytes) {
        self.marks.push_back((at, total));
        let rtt = self.rtt.unwrap_or_default();
        // Keep the latest entry that is older than a round trip, because the measurement of X_recv begins there.
        while self.marks.len() > MOST_EXPIRIES || self.marks.get(1).is_some_and(|(old, _)| at.since(*old) >= rtt) {
            self.marks.pop_front();
        }
    }

    fn interval(&self, rtt: Span) -> Span {
        rtt.scale(self.settings.profile.report)
    }

    /// Returns the full number whose low 16 bits are `low`. It is the number that is nearest to the highest number so
    /// far.
    fn extended(&mut self, low: u16) -> u64 {
        // Begin in the middle of the range, so that packets that were sent before the first arrived packet fit below
        // it.
        let near = self.vseq.unwrap_or((1 << 32) | u64::from(low));
        let seq = near.saturating_add_signed(i64::from(low.wrapping_sub(near as u16) as i16));
        self.vseq = Some(near.max(seq));
        seq
    }

    /// Records the timer expiries up to `now`, if no data has arrived since the last report. Returns whether the timer
    /// has expired.
    fn expired_in_silence(&mut self, now: Time) -> bool {
        let (Some(timer), Some(rtt), false) = (self.timer, self.rtt, self.fresh) else { return false };
        if now < timer {
            return false;
        }
        let interval = self.interval(rtt).max(RTT_UNIT);
        // Include all later expiries up to `now`. No data has arrived between them.
        let more = now.since(timer).as_nanos() / interval.as_nanos();
        if more > 0 {
            self.mark(timer + interval * (more - 1), self.total);
        }
        self.mark(timer + interval * more, self.total);
        self.timer = Some(timer + interval * (more + 1));
        true
    }

    /// Returns why a report is needed immediately, or `None` if it is not. `silence` is true if the packet ends an
    /// interval without data.
    fn reason(&self, change: &Change, silence: bool, now: Time, rtt: Span) -> Option<&'static str> {
        if change.removed_loss_event {
            Some("loss event taken back")
        } else if self.rtt.is_none() {
            Some("no round-trip time yet")
        } else if silence {
            Some("data after silence")
        } else if self.settings.profile.report > 1.0 && self.reported.is_some_and(|at| now.since(at) >= rtt) {
            Some("a round trip since the last")
        } else {
            self.reported.is_none().then_some("first packet")
        }
    }
}

impl ReceiverHalf for Receiver {
    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.total += extra.size;
    }

    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let now = arrival.at;
        let (round_trip, rest) = arrival.notice.split_at(arrival.notice.len().min(3));
        let silence = self.expired_in_silence(now);
        let before = self.total;
        self.total += arrival.size;
        // Do not take R and the echo from a reordered packet, because its values are older.
        if self.latest.is_none_or(|(seq, ..)| arrival.seq > seq) {
            self.latest = Some((arrival.seq, echo(arrival.sent), now));
            self.rtt = read_rtt_notice(round_trip).or(self.rtt);
            self.least_rtt = [self.least_rtt, self.rtt].into_iter().flatten().min();
        }
        if let (Some(rtt), None) = (self.rtt, self.timer) {
            self.mark(now, before);
            self.timer = Some(now + self.interval(rtt));
        }

        let rtt = self.rtt.unwrap_or(INITIAL_RTT);
        let best = self.best.max(self.measure(now).filter(|_| self.reported.is_some()).unwrap_or_default());
        let half = self.packet.per(rtt * 2);
        let packet = self.packet;
        let previous = self.history.rate();
        let mark = Mark::read(rest);
        let connections = mark.map_or(1.0, |m| m.connections);
        // Before the first loss, treat a growing queue like a CE mark.
        let way = OneWay::between(arrival.sent, now);
        let queued = self.queue.on_packet(way, now, rtt, Span::ZERO) && self.history.events() == 0;
        // Compute the first loss interval with the shortest round-trip time, because `rtt` includes the queue, which
        // will drain.
        let first_rtt = self.least_rtt.filter(|_| queued).unwrap_or(rtt);
        // Divide the rate by the number of connections. The first loss interval is computed for a single connection.
        let first = || 1.0 / equation::loss_for(best.scale(1.0 / connections).max(half), packet, first_rtt).get();
        let received = |seq| ReceivedPacket { seq, at: now, ce: arrival.ecn.is_ce() || queued, rtt };
        let change = match (self.among, mark) {
            (CountedPackets::All, _) => self.history.on_packet(&received(arrival.seq), first),
            (CountedPackets::Marked, Some(mark)) => {
                let vseq = self.extended(mark.vseq);
                if mark.marked {
                    self.history.on_packet(&received(vseq), first)
                } else {
                    self.history.on_other(&received(vseq), first)
                }
            }
            (CountedPackets::Marked, None) => Change::default(),
        };

        self.fresh = true;
        let more = change.new_loss_event && self.history.rate() > previous;
        let why = if more { Some("loss event") } else { self.reason(&change, silence, now, rtt) };
        if let (Some(why), None) = (why, self.urgent) {
            self.urgent = Some(Wake { at: now, why });
        }
    }

    fn due(&self) -> Due {
        match (self.urgent, self.timer) {
            (Some(wake), _) => Due::At(wake),
            (None, Some(at)) if self.fresh => Due::At(Wake { at, why: "feedback timer" }),
            _ => Due::Hold,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let Some((_, echo, arrived)) = self.latest.filter(|_| self.fresh) else { return Reply::Suppress };
        let now = slot.now;
        // In the first report the rate is zero, because no round trip has passed over which it could be measured.
        let received = self.measure(now).filter(|_| self.reported.is_some());
        let loss = self.history.rate();
        if let Some(rate) = received {
            self.received = Some(rate);
            if loss.is_none() {
                self.best = self.best.max(rate);
            }
        }
        self.mark(now, self.total);
        self.timer = self.rtt.map(|rtt| now + self.interval(rtt));
        self.reported = Some(now);
        (self.fresh, self.urgent) = (false, None);
        let missing = if slot.expected == 0 { 0.0 } else { slot.lost.max(0) as f64 / slot.expected as f64 };
        let feedback = FeedbackReport {
            echo,
            delay: now.since(arrived),
            received: received.unwrap_or_default(),
            loss,
            missing: missing.min(1.0) as f32,
        };
        Reply::Body(feedback.write())
    }

    fn view(&self) -> View {
        View {
            rate: self.received,
            loss: self.history.rate().map(LossRate::get),
            rtt: self.rtt,
            state: Some(if self.history.events() == 0 { "slow start" } else { "congestion avoidance" }),
        }
    }
}
