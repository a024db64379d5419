//! The two ends of simulated TCP.

use super::{FigureContext, Out, Recorded, Work};
use crate::intake::{Digest, Intake};
use crate::{Activity, Arriving, Body, Rows};
use std::cmp::Ordering;
use steadycast_link::Ecn;
use steadycast_record::{Figures, flow, row};
use steadycast_scenario::Workload;
use steadycast_tcp::{Ack, Config, Poll, Receiver, Segment, Sender};
use steadycast_units::{Bytes, Chance, Span, Spread, Time, sums};

/// A TCP sender with its application.
pub struct TcpSource {
    /// The TCP configuration.
    pub config: Config,
    work: Work,
    /// The present or, in a pause, the last connection.
    pub sender: Sender,
    chance: Chance,
    running: bool,
    done: bool,
    /// The number of the transfer in progress.
    number: u32,
    /// The counts of closed connections.
    past: SegmentCounts,
    /// The smoothed RTTs, weighted by segments.
    pub srtt: Spread,
    window: WindowArea,
    last: Time,
    /// TCP's state in each step of the series.
    pub samples: Rows<TcpPoint>,
    /// The IP bytes sent.
    pub sent_bytes: Bytes,
    last_bytes: Bytes,
    activity: Activity,
    /// A digest of all segments and their times.
    pub digest: Digest,
}

/// The segment counts of a flow's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Number of segments sent, retransmissions included.
    pub sent: u64,
    /// Number of segments retransmitted.
    pub retransmitted: u64,
    /// Number of retransmission time-outs.
    pub timeouts: u64,
}

sums!(SegmentCounts { sent, retransmitted, timeouts });

/// A congestion window over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WindowArea {
    /// ∫ cwnd dt, in packets times seconds.
    pub(super) packet_seconds: f64,
    pub(super) over: Span,
}

impl WindowArea {
    pub(super) fn add(&mut self, cwnd: f64, span: Span) {
        self.packet_seconds += cwnd * span.as_secs_f64();
        self.over += span;
    }

    /// Returns the mean window in packets.
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
    /// Creates a source that sends nothing before its start.
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

    /// Starts the source, also after a stop.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        if self.running {
            return;
        }
        if self.sender.sent > 0 {
            // A restart opens a new connection.
            self.renew();
        }
        self.running = true;
        self.last = now;
        self.activity.begin(now);
        self.work.start(now, &mut self.chance);
        self.work(now);
        self.drain(now, out);
    }

    /// Stops the application's writes.
    pub fn stop(&mut self, now: Time) {
        self.account(now);
        self.running = false;
        self.activity.end(now);
    }

    /// Returns when [`TcpSource::on_wake`] is due.
    pub fn wake(&self) -> Time {
        if !self.running {
            return Time::NEVER;
        }
        self.sender.wake().unwrap_or(Time::NEVER).min(self.work.wake())
    }

    /// Processes an acknowledgment. Returns whether the source has to be polled.
    #[inline(always)]
    pub fn take(&mut self, now: Time, transfer: u32, ack: &Ack) -> bool {
        // The packet belongs to a closed connection.
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

    /// Processes a timer, or the application's next write.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if !self.running {
            return;
        }
        self.account(now);
        self.sender.on_timer(now);
        self.work(now);
        self.drain(now, out);
    }

    fn work(&mut self, now: Time) {
        if self.work.transfers(now) {
            self.activity.begin(now);
            self.renew();
        }
        self.work.turn(now, &mut self.chance, &mut self.activity);
        while self.work.writes(now) {
            // The application blocks while a full window is unsent.
            if self.sender.unsent() < self.config.window {
                self.sender.offer(now, 1);
            }
        }
    }

    /// Writes for an application that always has data.
    #[inline]
    fn feed(&mut self, now: Time) {
        // One packet at a time, so that nothing is unsent when the period ends.
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

    /// Returns the number of the transfer in progress.
    pub const fn transfer(&self) -> u32 {
        self.number
    }

    /// Returns the next segment and its ECN field; `None` until the next event.
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

    /// Ends the transfer or period after the last acknowledgment.
    fn finished(&mut self, now: Time) {
        // An on-off application has no transfers.
        if let Work::OnOff { writing, .. } = self.work {
            if !writing {
                self.activity.end(now);
            }
            return;
        }
        // A finished connection returns `Done` at each poll.
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        self.activity.complete(now);
        self.work.complete(now, &mut self.chance);
    }

    fn renew(&mut self) {
        self.past = self.counts();
        // Random numbers must not depend on the length of earlier connections.
        self.config.draws = self.config.draws.derive("next");
        self.sender = Sender::new(&self.config);
        self.number += 1;
        self.done = false;
    }

    fn counts(&self) -> SegmentCounts {
        let (sent, retransmitted) = (self.sender.sent, self.sender.retransmitted);
        self.past + SegmentCounts { sent, retransmitted, timeouts: self.sender.timeouts }
    }

    fn account(&mut self, now: Time) {
        // The window was constant since the last event, so the integral is exact.
        self.window.add(self.sender.cwnd, now.since(self.last));
        self.last = now;
    }

    /// Appends the present time step to the series.
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

/// A TCP receiver.
pub struct TcpSink {
    receiver: Receiver,
    transfer: u32,
    config: Config,
    /// The arrivals, without duplicates.
    pub intake: Intake,
    distinct: u64,
}

impl TcpSink {
    /// Creates a sink without a connection.
    pub fn new(config: Config, intake: Intake) -> Self {
        Self { receiver: Receiver::new(&config), transfer: 0, config, intake, distinct: 0 }
    }

    /// Processes a segment of this transfer. Returns the acknowledgment and its IP size.
    #[inline(always)]
    pub fn take(&mut self, now: Time, packet: &Arriving<'_>, transfer: u32, segment: &Segment) -> Option<(Bytes, Ack)> {
        // The network may have marked the packet.
        let segment = match packet.ecn {
            Ecn::Ce => &Segment { ecn: Ecn::Ce, ..*segment },
            _ => segment,
        };
        match transfer.cmp(&self.transfer) {
            // The transfer's connection is closed.
            Ordering::Less => return None,
            Ordering::Equal => {}
            Ordering::Greater => {
                (self.receiver, self.transfer, self.distinct) = (Receiver::new(&self.config), transfer, 0);
            }
        }
        let ack = self.receiver.on_segment(now, segment);
        let distinct = self.receiver.distinct_segments;
        // Duplicates do not count as arrivals.
        if distinct > self.distinct {
            self.intake.add(now, packet.size, packet.sent);
        }
        self.distinct = distinct;
        ack.map(|ack| (self.config.len_of(&ack), ack))
    }

    /// Sends a due delayed acknowledgment.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if let Some(ack) = self.receiver.on_timer(now) {
            out.send(self.config.len_of(&ack), Ecn::NotEct, Body::TcpAck(self.transfer, ack));
        }
    }

    /// Returns when [`TcpSink::on_wake`] is due.
    pub fn wake(&self) -> Time {
        self.receiver.wake().unwrap_or(Time::NEVER)
    }

    /// Appends the present time step to the series.
    pub fn sample(&mut self) {
        let packets = self.intake.packets();
        self.intake.sample(packets);
    }
}

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

impl Recorded for TcpSink {
    fn intake(&self) -> Option<&Intake> {
        Some(&self.intake)
    }
}
