//! TCP's two ends.

use super::{FigureContext, Out, Recorded, Work};
use crate::intake::{Digest, Intake};
use crate::{Activity, Arriving, Body, Rows};
use std::cmp::Ordering;
use steadycast_link::Ecn;
use steadycast_record::{Figures, flow, row};
use steadycast_scenario::Workload;
use steadycast_tcp::{Ack, Config, Poll, Receiver, Segment, Sender};
use steadycast_units::{Bytes, Chance, Span, Spread, Time, sums};

/// TCP's sending end, with the application before it.
pub struct TcpSource {
    /// How its TCP is.
    pub config: Config,
    work: Work,
    /// The connection that is open now, or was the last.
    pub sender: Sender,
    chance: Chance,
    running: bool,
    done: bool,
    /// Of the transfer under way.
    number: u32,
    /// Of connections that are over.
    past: SegmentCounts,
    /// Smoothed round-trip times, weighed by segments.
    pub srtt: Spread,
    window: WindowArea,
    last: Time,
    /// Its series.
    pub samples: Rows<TcpPoint>,
    /// IP bytes sent.
    pub sent_bytes: Bytes,
    last_bytes: Bytes,
    activity: Activity,
    /// A digest of all that left, and when.
    pub digest: Digest,
}

/// A flow's segments, over one connection or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Sent, those sent again included.
    pub sent: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

sums!(SegmentCounts { sent, retransmitted, timeouts });

/// A congestion window over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WindowArea {
    /// ∫ cwnd dt.
    pub(super) packet_seconds: f64,
    /// The time of the integral.
    pub(super) over: Span,
}

impl WindowArea {
    /// The window was this large for a span.
    pub(super) fn add(&mut self, cwnd: f64, span: Span) {
        self.packet_seconds += cwnd * span.as_secs_f64();
        self.over += span;
    }

    /// Its mean in packets.
    fn mean(&self) -> Option<f64> {
        (!self.over.is_zero()).then(|| self.packet_seconds / self.over.as_secs_f64())
    }
}

/// One step of TCP's series.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpPoint {
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Slow-start threshold in packets; infinite at first.
    pub ssthresh: f64,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// IP bytes sent in the step.
    pub bytes: u64,
}

row!(TcpPoint { cwnd, ssthresh, srtt, bytes });

impl TcpSource {
    /// It sends nothing before it is started.
    pub fn new(config: Config, source: &Workload, chance: Chance) -> Self {
        Self {
            sender: Sender::new(&config),
            work: Work::new(source, config.packet),
            config,
            chance,
            running: false,
            done: false,
            number: 0,
            past: SegmentCounts::default(),
            srtt: Spread::default(),
            window: WindowArea::default(),
            last: Time::ZERO,
            samples: Rows::default(),
            sent_bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            activity: Activity::default(),
            digest: Digest::default(),
        }
    }

    /// Starts, or starts again.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        if self.running {
            return;
        }
        if self.sender.sent > 0 {
            // After a pause it is another connection.
            self.renew();
        }
        self.running = true;
        self.last = now;
        self.activity.begin(now);
        self.work.start(now, &mut self.chance);
        self.work(now);
        self.drain(now, out);
    }

    /// Stops: nothing more is written.
    pub fn stop(&mut self, now: Time) {
        self.account(now);
        self.running = false;
        self.activity.end(now);
    }

    /// When it next wants [`TcpSource::on_wake`].
    pub fn wake(&self) -> Time {
        if !self.running {
            return Time::NEVER;
        }
        self.sender.wake().unwrap_or(Time::NEVER).min(self.work.wake())
    }

    /// An acknowledgement of transfer `transfer` has come; whether it is this one's, and to be polled for what leaves
    /// now.
    #[inline(always)]
    pub fn take(&mut self, now: Time, transfer: u32, ack: &Ack) -> bool {
        if !self.running || transfer != self.number {
            return false;
        }
        self.account(now);
        self.sender.on_ack(now, ack);
        if let Some(srtt) = self.sender.srtt() {
            self.srtt.add(srtt);
        }
        true
    }

    /// A timer has run out, or the application writes.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if !self.running {
            return;
        }
        self.account(now);
        self.sender.on_timer(now);
        self.work(now);
        self.drain(now, out);
    }

    /// What the application does when its time has come.
    fn work(&mut self, now: Time) {
        if self.work.transfers(now) {
            self.activity.begin(now);
            self.renew();
        }
        self.work.turn(now, &mut self.chance, &mut self.activity);
        while self.work.writes(now) {
            // With as much written as the receiver takes at once, the application has to wait.
            if self.sender.unsent() < self.config.window {
                self.sender.offer(now, 1);
            }
        }
    }

    /// An application that always has something, at present.
    #[inline]
    fn feed(&mut self, now: Time) {
        if let Work::OnOff { writing: true, gap: None, .. } = self.work
            && self.sender.unsent() == 0
        {
            self.sender.offer(now, 1);
        }
    }

    fn drain(&mut self, now: Time, out: &mut Out<'_>) {
        while let Some((ecn, segment)) = self.poll(now) {
            out.send(segment.len, ecn, Body::Tcp(self.number, segment));
        }
    }

    /// The transfer under way.
    pub const fn transfer(&self) -> u32 {
        self.number
    }

    /// The segment of [`TcpSource::transfer`] that leaves next, with its ECN field; `None` until something else
    /// happens.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<(Ecn, Segment)> {
        self.feed(now);
        match self.sender.poll(now) {
            Poll::Send(segment) => {
                self.digest.add(now.as_nanos() ^ u64::from(segment.seq) << 40);
                self.sent_bytes += segment.len;
                Some((segment.ecn, segment))
            }
            Poll::Wait { .. } => None,
            Poll::Done => {
                self.finished(now);
                None
            }
        }
    }

    /// All that was written is acknowledged.
    fn finished(&mut self, now: Time) {
        // One whose application only pauses is not at its end.
        if let Work::OnOff { writing, .. } = self.work {
            if !writing {
                self.activity.end(now);
            }
            return;
        }
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        self.activity.complete(now);
        self.work.complete(now, &mut self.chance);
    }

    fn renew(&mut self) {
        self.past = self.counts();
        self.config.draws = self.config.draws.derive("next");
        self.sender = Sender::new(&self.config);
        self.number += 1;
        self.done = false;
    }

    /// The segments of all its connections.
    fn counts(&self) -> SegmentCounts {
        let (sent, retransmitted) = (self.sender.sent, self.sender.retransmitted);
        self.past + SegmentCounts { sent, retransmitted, timeouts: self.sender.timeouts }
    }

    fn account(&mut self, now: Time) {
        self.window.add(self.sender.cwnd, now.since(self.last));
        self.last = now;
    }

    /// Ends a step of the series.
    pub fn sample(&mut self, now: Time) {
        if self.running {
            self.account(now);
        }
        self.samples.push(TcpPoint {
            cwnd: self.sender.cwnd,
            ssthresh: self.sender.ssthresh,
            srtt: self.sender.srtt(),
            bytes: self.sent_bytes.saturating_sub(self.last_bytes).get(),
        });
        self.last_bytes = self.sent_bytes;
    }
}

/// TCP's receiving end.
pub struct TcpSink {
    receiver: Receiver,
    /// The transfer that it receives.
    transfer: u32,
    config: Config,
    /// What came, retransmissions of what was there already left out.
    pub intake: Intake,
    distinct: u64,
}

impl TcpSink {
    /// It has heard nothing yet.
    pub fn new(config: Config, intake: Intake) -> Self {
        Self { receiver: Receiver::new(&config), transfer: 0, config, intake, distinct: 0 }
    }

    /// A segment of transfer `transfer` has come; what is answered to it, and that packet's size.
    #[inline(always)]
    pub fn take(&mut self, now: Time, packet: &Arriving<'_>, transfer: u32, segment: &Segment) -> Option<(Bytes, Ack)> {
        let segment = match packet.ecn {
            Ecn::Ce => &Segment { ecn: Ecn::Ce, ..*segment },
            _ => segment,
        };
        match transfer.cmp(&self.transfer) {
            // The transfer is over: nobody is there to answer.
            Ordering::Less => return None,
            Ordering::Equal => {}
            Ordering::Greater => {
                (self.receiver, self.transfer, self.distinct) = (Receiver::new(&self.config), transfer, 0);
            }
        }
        let ack = self.receiver.on_segment(now, segment);
        let distinct = self.receiver.distinct_segments;
        if distinct > self.distinct {
            self.intake.add(now, packet.size, packet.sent);
        }
        self.distinct = distinct;
        ack.map(|ack| (self.config.len_of(&ack), ack))
    }

    /// The delayed acknowledgement is due.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if let Some(ack) = self.receiver.on_timer(now) {
            out.send(self.config.len_of(&ack), Ecn::NotEct, Body::TcpAck(self.transfer, ack));
        }
    }

    /// When it next wants [`TcpSink::on_wake`].
    pub fn wake(&self) -> Time {
        self.receiver.wake().unwrap_or(Time::NEVER)
    }

    /// Ends a step of the series.
    pub fn sample(&mut self) {
        let packets = self.intake.packets();
        self.intake.sample(packets);
    }
}

/// TCP's figures, of the simulated TCP and of a kernel's.
pub(super) fn tcp_figures(counts: SegmentCounts, srtt: &Spread, window: &WindowArea, into: &mut Figures) {
    into.put(&flow::SENT_PACKETS, counts.sent);
    into.put(&flow::RETRANSMITTED, counts.retransmitted);
    into.put(&flow::TIMEOUTS, counts.timeouts);
    into.put_spread(&flow::SRTT, srtt);
    into.put(&flow::CWND_MEAN, window.mean());
}

impl Recorded for TcpSource {
    fn figures(&self, _about: &FigureContext<'_>, into: &mut Figures) {
        tcp_figures(self.counts(), &self.srtt, &self.window, into);
    }
    fn digest(&self) -> (u64, u64) {
        (self.digest.value(), self.sent_bytes.get())
    }
    fn windows(&self) -> &[TcpPoint] {
        &self.samples
    }
    fn activity(&self) -> Option<&Activity> {
        Some(&self.activity)
    }
}

/// Loss and delay of TCP's segments say nothing of what its application got: a sink writes no figures.
impl Recorded for TcpSink {
    fn intake(&self) -> Option<&Intake> {
        Some(&self.intake)
    }
}
