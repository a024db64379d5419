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

/// A TCP sender and its application.
pub struct TcpSource {
    /// The TCP configuration.
    pub config: Config,
    work: Work,
    /// The current connection. In a pause, it is the last connection.
    pub sender: Sender,
    chance: Chance,
    running: bool,
    done: bool,
    /// The number of the current transfer.
    number: u32,
    /// Segment counts of the closed connections.
    past: SegmentCounts,
    means: TcpMeans,
    last: Time,
    /// State of TCP in each step of the time series.
    pub samples: Rows<TcpPoint>,
    /// IP bytes sent.
    pub sent_bytes: Bytes,
    last_bytes: Bytes,
    activity: Activity,
    /// A digest of all segments and their times.
    pub digest: Digest,
}

/// Segment counts of all connections of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Number of segments sent, including retransmissions.
    pub sent: u64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
}

sums!(SegmentCounts { sent, retransmitted, timeouts });

/// The mean values of a TCP sender. They leave out the time before `from`.
#[derive(Clone, Debug)]
pub(super) struct TcpMeans {
    /// When the mean values begin.
    from: Time,
    /// Smoothed round-trip times, with one sample per acknowledgment.
    srtt: Spread,
    /// ∫ cwnd dt, in packets times seconds.
    packet_seconds: f64,
    /// The time over which `packet_seconds` is an integral.
    over: Span,
}

impl TcpMeans {
    pub(super) fn new(from: Time) -> Self {
        Self { from, srtt: Spread::default(), packet_seconds: 0.0, over: Span::ZERO }
    }

    /// Adds the window that was valid from `since` until `now`.
    pub(super) fn add_window(&mut self, cwnd: f64, since: Time, now: Time) {
        let span = now.since(since.max(self.from));
        self.packet_seconds += cwnd * span.as_secs_f64();
        self.over += span;
    }

    /// Adds a smoothed round-trip time as `samples` samples.
    pub(super) fn add_srtt(&mut self, now: Time, srtt: Span, samples: u64) {
        if now >= self.from {
            (0..samples).for_each(|_| self.srtt.add(srtt));
        }
    }

    /// Returns the mean congestion window in packets. Returns `None` if no time has passed.
    pub(super) fn cwnd(&self) -> Option<f64> {
        (!self.over.is_zero()).then(|| self.packet_seconds / self.over.as_secs_f64())
    }
}

/// One step in the time series of TCP's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpPoint {
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Slow-start threshold in packets. At the start of a connection, it is the configured threshold, or else the
    /// maximum window.
    pub ssthresh: f64,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// IP bytes sent in the step.
    pub bytes: u64,
}

row!(TcpPoint { cwnd, ssthresh, srtt, bytes });

impl TcpSource {
    /// Creates a source. It sends nothing until it is started.
    pub fn new(config: Config, source: &Workload, chance: Chance, means_from: Time) -> Self {
        Self {
            sender: Sender::new(&config),
            work: Work::new(source, config.packet),
            config,
            chance,
            running: false,
            done: false,
            number: 0,
            past: SegmentCounts::default(),
            means: TcpMeans::new(means_from),
            last: Time::ZERO,
            samples: Rows::default(),
            sent_bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            activity: Activity::default(),
            digest: Digest::default(),
        }
    }

    /// Starts the source. May be called again after a stop.
    pub fn start(&mut self, now: Time, out: &mut Out<'_>) {
        if self.running {
            return;
        }
        if self.sender.sent > 0 {
            // Open a new connection when the source is started again.
            self.renew();
        }
        self.running = true;
        self.last = now;
        self.activity.begin(now);
        self.work.start(now, &mut self.chance);
        self.work(now);
        self.drain(now, out);
    }

    /// Stops the application, which then writes no more data.
    pub fn stop(&mut self, now: Time) {
        // The end of the run stops a source that has stopped before. Its window does not count in between.
        if self.running {
            self.account(now);
        }
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

    /// Processes an acknowledgment. Returns whether [`TcpSource::poll`] must be called.
    #[inline(always)]
    pub fn take(&mut self, now: Time, transfer: u32, ack: &Ack) -> bool {
        // Ignore the packet if it belongs to a closed connection.
        if !self.running || transfer != self.number {
            return false;
        }
        self.account(now);
        self.sender.on_ack(now, ack);
        if let Some(srtt) = self.sender.srtt() {
            self.means.add_srtt(now, srtt, 1);
        }
        true
    }

    /// Handles the expiry of a timer, or lets the application write.
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
            // Do not write if a full window is unsent. The application is blocked then.
            if self.sender.unsent() < self.config.window {
                self.sender.offer(now, 1);
            }
        }
    }

    /// Writes data if the application always has data.
    #[inline]
    fn feed(&mut self, now: Time) {
        // Write one packet at a time, so that no data is unsent when the period ends.
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

    /// Returns the number of the current transfer.
    pub const fn transfer(&self) -> u32 {
        self.number
    }

    /// Returns the next segment and its ECN field. Returns `None` if nothing can be sent before the next event.
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

    /// Ends the current transfer or period. Called when all data is acknowledged.
    fn finished(&mut self, now: Time) {
        // An on-off application has periods instead of transfers.
        if let Work::OnOff { writing, .. } = self.work {
            if !writing {
                self.activity.end(now);
            }
            return;
        }
        // Complete the transfer only once, although the connection returns `Done` at every further poll.
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        self.activity.complete(now);
        self.work.complete(now, &mut self.chance);
    }

    fn renew(&mut self) {
        self.past = self.counts();
        // Derive new random numbers for the new connection. They must not depend on the length of earlier connections.
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
        // The window was constant since the last event, so this integral is exact.
        self.means.add_window(self.sender.cwnd, self.last, now);
        self.last = now;
    }

    /// Appends the current step to the time series.
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
    /// Counts of the arrived packets, without duplicates.
    pub intake: Intake,
    distinct: u64,
}

impl TcpSink {
    /// Creates a sink that has no connection yet.
    pub fn new(config: Config, intake: Intake) -> Self {
        Self { receiver: Receiver::new(&config), transfer: 0, config, intake, distinct: 0 }
    }

    /// Processes a segment of the transfer `transfer`. Returns the acknowledgment to send, and its IP size.
    #[inline(always)]
    pub fn take(&mut self, now: Time, packet: &Arriving<'_>, transfer: u32, segment: &Segment) -> Option<(Bytes, Ack)> {
        // Copy the mark, because the network may have marked the packet.
        let segment = match packet.ecn {
            Ecn::Ce => &Segment { ecn: Ecn::Ce, ..*segment },
            _ => segment,
        };
        match transfer.cmp(&self.transfer) {
            // Ignore the segment, because the connection of its transfer is closed.
            Ordering::Less => return None,
            Ordering::Equal => {}
            Ordering::Greater => {
                (self.receiver, self.transfer, self.distinct) = (Receiver::new(&self.config), transfer, 0);
            }
        }
        let ack = self.receiver.on_segment(now, segment);
        let distinct = self.receiver.distinct_segments;
        // Do not count a duplicate as an arrival.
        if distinct > self.distinct {
            self.intake.add(now, packet.size, packet.sent);
        }
        self.distinct = distinct;
        ack.map(|ack| (self.config.len_of(&ack), ack))
    }

    /// Sends a delayed acknowledgment if one is due.
    pub fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if let Some(ack) = self.receiver.on_timer(now) {
            out.send(self.config.len_of(&ack), Ecn::NotEct, Body::TcpAck(self.transfer, ack));
        }
    }

    /// Returns when [`TcpSink::on_wake`] is due.
    pub fn wake(&self) -> Time {
        self.receiver.wake().unwrap_or(Time::NEVER)
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self) {
        let packets = self.intake.packets();
        self.intake.sample(packets);
    }
}

pub(super) fn tcp_figures(counts: SegmentCounts, means: &TcpMeans, into: &mut Figures) {
    into.put(&flow::SENT_PACKETS, counts.sent);
    into.put(&flow::RETRANSMITTED, counts.retransmitted);
    into.put(&flow::TIMEOUTS, counts.timeouts);
    into.put_spread(&flow::SRTT, &means.srtt);
    into.put(&flow::CWND_MEAN, means.cwnd());
}

impl Recorded for TcpSource {
    fn figures(&self, _about: &FigureContext<'_>, into: &mut Figures) {
        tcp_figures(self.counts(), &self.means, into);
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
