//! What a sender learns about its path from per-packet reports.

use super::packet::{ArrivedPacket, Loss, drop_old};
use super::trains::{Train, TrainMonitor};
use crate::PacketReport;
use crate::fields::ABSURD_RTT;
use std::collections::VecDeque;
use steadycast_units::{OneWay, PeerTime, Span, Time};

/// Maximum number of packets in flight, as in the history of a session.
const MAX_IN_FLIGHT: usize = 1 << 14;
const MAX_ARRIVALS: usize = 1 << 15;

/// The round-trip time until it is measured, in seconds.
pub(super) const INITIAL_RTT: f64 = 0.1;
/// The base round-trip time is the minimum over this time, in seconds.
pub(super) const BASE_RTT_WINDOW: u64 = 600;

/// How long sent bytes are remembered, in seconds. They are needed for the sent rate of a round trip ago.
const SENT_HISTORY: f64 = 6.0;
/// How long arrivals are remembered, in seconds. Rates and delays are measured over at most this time.
const ARRIVAL_HISTORY: f64 = 3.0;
/// How long the packet counts of reports are remembered, in seconds. The loss rate is measured over at most this time.
const REPORT_HISTORY: f64 = 3.0;
const RATE_HISTORY: f64 = 3.0;
/// A lost packet is remembered for this time, in seconds. If it arrives within this time, it is recognised as late.
const LOST_HISTORY: f64 = 3.0;
/// After a packet that was sent early, the source counts as bursty for this time, in seconds.
const BURST_HISTORY: f64 = 3.0;

/// A packet is part of a burst if it is sent too early by more than this time, in seconds. The pacing rate determines
/// when it should be sent.
const BURST_EARLY_MIN: f64 = 0.020;
/// If all packets have been early for longer than this time, in seconds, they are no burst. The source sends more than
/// its rate.
const BURST_DURATION_MAX: f64 = 1.0;

/// A packet is lost once a packet has arrived whose number is higher by this value (RFC 9002, section 6.1.1).
const PACKET_REORDER_THRESHOLD: u32 = 3;
/// Ratio of the reordering window to the lateness of the last packet that was declared lost too early.
const REORDER_WINDOW_FACTOR: f64 = 1.25;
/// Upper limit of the reordering window, in round-trip times (RFC 8985 has 1).
const REORDER_WINDOW_RTTS_MAX: f64 = 2.0;
/// The path counts as reordering while the reordering window is longer than this, in seconds. A window of 30 ms needs
/// five minutes to fall to this value ([`REORDER_WINDOW_HALF_LIFE`]).
const REORDERING_MIN: f64 = 0.001;
/// Half-life of the reordering window, in seconds.
const REORDER_WINDOW_HALF_LIFE: f64 = 60.0;

/// Each packet bounds the offset between the two clocks on both sides, because its one-way delay is at least zero, and
/// at most the time from its sending to the feedback. A clock was set if a packet contradicts the bounds of the packets
/// of this many seconds before it.
const CLOCK_WINDOW: u64 = 10;
/// Contradictions up to this value, in seconds, may be errors of time stamps, or drift.
const CLOCK_ERROR_MAX: f64 = 0.010;
/// The largest drift between the clocks, as a fraction. It counts while there is no feedback.
const CLOCK_DRIFT_MAX: f64 = 0.001;

/// If the one-way delay rises by more than this between two packets, in seconds, the path was silent. Radio links that
/// serve packets in bursts every 20 ms stay below this value.
const PATH_SILENCE_MIN: f64 = 0.040;
/// For this time after a silence of the path, in seconds, the receive rate is not the path rate. The packets that
/// waited during the silence arrive in a burst.
pub(super) const PATH_RESUME_TIME: f64 = 0.060;

/// Maximum queueing delay, in seconds, that a packet has met if a policer dropped it. A longer limit would also include
/// losses at a full queue of a few packets, such as ten packets at 20 Mb/s.
pub(super) const POLICER_QUEUE_MAX: f64 = 0.004;

/// A packet with at least this queueing delay, in seconds, has waited in a queue. A shorter delay may be noise of the
/// clocks.
const WAITED_DELAY_MIN: f64 = 0.003;

/// Minimum weight of a new packet in `unqueued_share`.
const UNQUEUED_SHARE_GAIN: f64 = 0.01;
/// If at least this fraction of the packets did not come from a queue, all variation of the delay counts as jitter. If
/// the fraction is smaller, only a proportional part counts, because a changing queue may cause the rest.
const UNQUEUED_SHARE_FULL: f64 = 0.1;
/// A packet is compared with a packet that was sent at least this much earlier, in seconds. Over a shorter time,
/// rounding would matter, because reports round arrival times to a millisecond.
const UNQUEUED_SEND_GAP_MIN: f64 = 0.005;
/// If the time between two packets is this many times shorter at the receiver than at the sender, the second packet was
/// not queued. A queue would have separated them by a packet's transmission time.
const UNQUEUED_COMPRESSION_MIN: f64 = 8.0;

/// A row is a sequence of packets that all waited in a queue. After its first packet, a row needs at least this number
/// of packets.
const ROW_PACKETS_MIN: f64 = 5.0;
/// A row must take at least this time to arrive, in seconds.
const ROW_DURATION_MIN: f64 = 0.040;

/// The receive rate before a packet train is known only if at least this number of packets arrived.
const RATE_BEFORE_PACKETS_MIN: u32 = 4;

/// The receive rate is measured over a round trip, but over at least this time, in seconds.
pub(super) const RECEIVED_SPAN_MIN: f64 = 0.150;
/// A receive rate is known only if the time from the first to the last packet is at least this fraction of the time
/// over which the rate is measured.
const COVERED_SHARE_MIN: f64 = 0.3;
/// Minimum duration over which the recent path rate is measured, in seconds. It is longer than the pauses of a source.
const PAUSES_SPAN_MIN: f64 = 0.5;

/// Duration over which the usage of a source is measured, in seconds.
const USAGE_SPAN: f64 = 2.0;
/// Maximum ratio of the rate or window to the source's usage (RFC 7661, section 4.3). A higher rate would be untested,
/// because the source does not use it.
const USAGE_MULTIPLE_MAX: f64 = 6.0;
/// A source is idle if it sends less than this fraction of its rate.
const IDLE_SHARE_MAX: f64 = 0.8;
/// Duration over which it is decided whether a source is idle, in seconds.
const IDLE_SPAN: f64 = 0.2;

/// A mean that forgets old values. Until there are many values, all of them have the same weight, and the initial value
/// 0 counts as one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentMean {
    pub(super) value: f64,
    count: f64,
}

impl RecentMean {
    /// Adds a value. Its weight is at least `gain`.
    pub(super) fn add(&mut self, value: f64, gain: f64) {
        self.count += 1.0;
        self.value += gain.max(1.0 / (self.count + 1.0)) * (value - self.value);
    }
}

/// Minimum of a value over the last seconds. Times are rounded down to whole seconds.
#[derive(Clone, Debug, Default)]
struct WindowedMin(VecDeque<(u64, f64)>);

impl WindowedMin {
    fn add(&mut self, now: f64, value: f64) {
        match self.0.back_mut() {
            Some((second, least)) if *second >= now as u64 => *least = least.min(value),
            _ => self.0.push_back((now as u64, value)),
        }
    }

    /// Returns the minimum over the last `seconds`. Returns the last value if there is none in that time.
    fn min(&mut self, now: f64, seconds: u64) -> Option<f64> {
        let from = (now as u64).saturating_sub(seconds);
        while self.0.len() > 1 && self.0.front().is_some_and(|(second, _)| *second < from) {
            self.0.pop_front();
        }
        self.0.iter().map(|(_, value)| *value).min_by(f64::total_cmp)
    }
}

#[derive(Clone, Copy, Debug)]
struct InFlightPacket {
    number: u64,
    size: u64,
    sent: f64,
    /// By how much the packet was sent too early, in seconds. The pacing rate determines when it should have been sent.
    early: f64,
    /// Queueing delay that the packet's own burst causes, in seconds.
    own_queue: f64,
    /// The measured delay in seconds. `None` until the arrival is reported.
    delay: Option<f64>,
    /// Whether feedback skips the packet. The packet is then neither in flight nor lost.
    unknown: bool,
}

/// Limits of the bursts that a source may send above its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// The rate that the control law has set, without its variation, in bit/s.
    pub(super) rate: f64,
    /// Ratio of the pacing rate to `rate`.
    pub(super) pacing: f64,
    /// Maximum queueing delay that is attributed to the flow's own burst, in seconds.
    pub(super) max_queue: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FeedbackSummary {
    /// Number of packets whose arrival is reported for the first time.
    pub(super) arrived: u32,
    /// Number of these packets that have a CE mark.
    pub(super) marked: u32,
    /// Number of packets that this report causes to be declared lost.
    pub(super) lost: u32,
    /// Number of losses. Consecutive losses count once.
    pub(super) loss_runs: u32,
    /// Number of losses that met no queue. Consecutive losses count once. A policer causes such losses.
    pub(super) unqueued_loss_runs: u32,
    /// Number of packets that have arrived although they had been declared lost.
    pub(super) spurious: u32,
    pub(super) loss: Option<Loss>,
    /// Send time of the newest packet with a CE mark, in seconds.
    pub(super) latest_marked: Option<f64>,
    /// Rates at which rows were sent and received, in bit/s. A row is a sequence of packets that waited in a queue.
    pub(super) rows: Vec<(f64, f64)>,
    pub(super) trains: Vec<Train>,
}

/// Loss rates, as fractions of the reported packets.
pub(super) struct LossShares {
    /// Number of reported packets.
    pub(super) packets: u32,
    /// Lost packets.
    pub(super) lost: f64,
    /// Lost packets, where consecutive losses count once.
    pub(super) runs: f64,
    /// Packets that were lost without a queue. Consecutive losses count once.
    pub(super) unqueued: f64,
}

#[derive(Clone, Copy, Debug)]
struct ReportCounts {
    at: f64,
    arrived: u32,
    lost: u32,
    loss_runs: u32,
    unqueued_loss_runs: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    flight: VecDeque<InFlightPacket>,
    last_number: Option<u64>,
    highest_arrived: Option<u64>,
    /// Send times in seconds, each with the number of bytes sent until then.
    sent: VecDeque<(f64, u64)>,
    sent_bytes: u64,
    arrivals: VecDeque<ArrivedPacket>,
    arrived_bytes: u64,
    reports: VecDeque<ReportCounts>,
    /// Past rates of the control law: until when each rate was in use, and the rate in bit/s.
    rates: VecDeque<(f64, f64)>,
    /// Delay and arrival time of the first packet since a clock was set. All delays and arrival times are relative to
    /// it.
    anchor: Option<(OneWay, PeerTime)>,
    delays: WindowedMin,
    /// The measured delay, in seconds: the largest offset that the clocks may have.
    offset_max: WindowedMin,
    /// The time from sending to feedback minus the measured delay, in seconds: minus the smallest offset.
    offset_min: WindowedMin,
    /// The base delay, in seconds.
    base: f64,
    rtts: WindowedMin,
    /// Minimum round-trip time in the last ten minutes, in seconds.
    pub(super) base_rtt: f64,
    /// Queueing delay of the last packet, in seconds.
    pub(super) q: f64,
    /// The first packet of the current row ([`ROW_PACKETS_MIN`]), and the number of packets that followed it.
    row: Option<(ArrivedPacket, u32)>,
    /// A leaky bucket. The first value is the send time of the last packet. The second value is how long the next
    /// packet would have to wait at the pacing rate. Both are in seconds.
    bucket: Option<(f64, f64)>,
    /// Send time of the oldest packet of the current burst, in seconds. All packets of a burst are sent earlier than
    /// the pacing rate allows. `None` if the last packet was not sent too early.
    early_since: Option<f64>,
    burst_at: Option<f64>,
    last_delay: Option<f64>,
    /// Packets that were recently declared lost. Also packets that were removed from `flight` while their fate was
    /// unknown, because a later report may still declare them lost.
    lost: VecDeque<InFlightPacket>,
    /// How long a packet that was overtaken may still arrive before it is declared lost, in seconds.
    reorder_window: f64,
    /// Send time of the arrived packet that has the highest number, in seconds.
    newest_sent: f64,
    /// Mean fraction of packets that did not come from a queue.
    unqueued_share: RecentMean,
    /// When the first packet after the path's last silence arrived, in seconds of the receiver's clock.
    resumed_at: Option<f64>,
    pub(super) trains: TrainMonitor,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self { base_rtt: INITIAL_RTT, ..Self::default() }
    }

    /// Records a sent packet. `burst` is set if the source may send bursts above its rate. A leaky bucket then measures
    /// by how much the packet is sent too early for the pacing rate.
    pub(super) fn on_sent(&mut self, at: Time, number: u64, size: u64, burst: Option<Burst>) {
        let at = at.as_secs_f64();
        if self.last_number.is_some_and(|last| number <= last) {
            return;
        }
        self.last_number = Some(number);
        self.sent_bytes += size;
        let early = self.bucket.map_or(0.0, |(then, early)| (early - (at - then)).max(0.0));
        self.early_since = self.early_since.filter(|_| early > 0.0).or((early > 0.0).then_some(at));
        // A source that sends too early for a long time exceeds its rate. Its queue is not the queue of a burst, so
        // count the packet as on time.
        let is_burst = self.early_since.is_none_or(|since| at - since <= BURST_DURATION_MAX);
        let counted = if is_burst { early } else { 0.0 };
        let own_queue = burst.map_or(0.0, |burst| (counted * burst.pacing).min(burst.max_queue));
        // Keep the entries of `sent` in the order of time.
        let left = (at + counted).max(self.sent.back().map_or(at, |(before, _)| *before));
        self.sent.push_back((left, self.sent_bytes));
        let packet = InFlightPacket { number, size, sent: at, early: counted, own_queue, delay: None, unknown: false };
        self.flight.push_back(packet);
        if counted > BURST_EARLY_MIN {
            self.burst_at = Some(at);
        }
        self.bucket = burst.map(|burst| {
            let most = burst.max_queue / burst.pacing;
            (at, (early + 8.0 * size as f64 / (burst.pacing * burst.rate)).min(most))
        });
        if self.flight.len() > MAX_IN_FLIGHT {
            self.flight.pop_front();
        }
        drop_old(&mut self.sent, |(was, _)| *was < at - SENT_HISTORY);
    }

    /// Replaces the base delay by the minimum over the last `span` seconds. Discards what was measured relative to the
    /// old base delay.
    pub(super) fn adopt_path(&mut self, now: f64, span: f64) {
        let raised = self.min_queueing_delay(span, |packet| packet.whole);
        self.base += raised;
        self.q = (self.q - raised).max(0.0);
        (self.delays, self.rtts, self.trains, self.row) = Default::default();
        self.delays.add(now, self.base);
    }

    /// Records that a packet's fate is unknown. Its bytes count as arrived now, and are not counted again later.
    pub(super) fn on_unknown(&mut self, number: u64) {
        if let Ok(index) = self.flight_index(number)
            && let Some(packet) = self.flight.get_mut(index).filter(|packet| packet.delay.is_none() && !packet.unknown)
        {
            packet.unknown = true;
            self.arrived_bytes += std::mem::take(&mut packet.size);
        }
    }

    /// Returns whether the path reorders packets: in the last minutes, packets were declared lost too early.
    pub(super) fn is_reordering(&self) -> bool {
        self.reorder_window > REORDERING_MIN
    }

    /// Returns the base round-trip time plus the last queueing delay, in seconds. This sum follows a changing queue
    /// faster than a smoothed round-trip time.
    pub(super) fn rtt(&self) -> f64 {
        self.base_rtt + self.q
    }

    /// Processes a report. `rate` is the sending rate until now, in bit/s. The base delay becomes the minimum over the
    /// last `keep` seconds.
    pub(super) fn on_feedback(
        &mut self,
        at: Time,
        rtt: Option<Span>,
        packets: &[PacketReport],
        (rate, keep): (f64, u64),
    ) -> FeedbackSummary {
        let now = at.as_secs_f64();
        let mut summary = FeedbackSummary::default();
        let mut newest: Option<f64> = None;
        for packet in packets {
            let Some(arrived) = packet.arrived else {
                self.on_missing(packet.number, &mut summary);
                continue;
            };
            let Some(sent) = self.first_arrival(packet.number, &mut summary) else { continue };
            let delay = arrived.at.map(|at| self.on_arrival(now, &sent, at));
            if delay.is_some() {
                summary.rows.extend(self.finish_row());
                summary.trains.extend(self.finish_train(sent.size));
            }
            // Acknowledge the packet even if the report has no arrival time. Assume the last delay then.
            if let Ok(index) = self.flight_index(sent.number) {
                self.flight[index].delay = Some(delay.unwrap_or(self.base + self.q));
            }
            if self.highest_arrived < Some(sent.number) {
                (self.highest_arrived, self.newest_sent) = (Some(sent.number), sent.sent);
            }
            newest = Some(newest.map_or(sent.sent, |newest| newest.max(sent.sent)));
            summary.arrived += 1;
            if arrived.ecn.is_some_and(|ecn| ecn.is_ce()) {
                summary.marked += 1;
                summary.latest_marked = Some(summary.latest_marked.unwrap_or(0.0).max(sent.sent));
            }
        }
        let measured = rtt.map(Span::as_secs_f64).or(newest.map(|sent| now - sent));
        // Ignore a wrong value, because it would remain the minimum for ten minutes.
        if let Some(measured) = measured.filter(|r| *r > 0.0 && *r < ABSURD_RTT.as_secs_f64()) {
            self.rtts.add(now, measured);
        }
        self.base_rtt = self.rtts.min(now, BASE_RTT_WINDOW).unwrap_or(INITIAL_RTT).max(1e-3);
        self.base = self.delays.min(now, keep).unwrap_or(0.0);
        self.q = self.arrivals.back().map_or(0.0, |last| (last.delay - self.base).max(0.0));
        if let Some(last) = self.reports.back() {
            self.reorder_window *= libm::exp2((last.at - now) / REORDER_WINDOW_HALF_LIFE);
        }
        self.detect_losses(&mut summary);
        let FeedbackSummary { arrived, lost, loss_runs, unqueued_loss_runs, .. } = summary;
        let counts = ReportCounts { at: now, arrived, lost, loss_runs, unqueued_loss_runs };
        self.reports.push_back(counts);
        self.rates.push_back((now, rate));
        drop_old(&mut self.reports, |report| report.at < now - REPORT_HISTORY);
        drop_old(&mut self.rates, |(at, _)| *at < now - RATE_HISTORY);
        drop_old(&mut self.lost, |packet| packet.sent < now - LOST_HISTORY);
        summary
    }

    fn flight_index(&self, number: u64) -> Result<usize, usize> {
        self.flight.binary_search_by_key(&number, |packet| packet.number)
    }

    /// Returns the packet if its arrival is reported for the first time. If it was declared lost, widens the reordering
    /// window and corrects the loss counts.
    fn first_arrival(&mut self, number: u64, summary: &mut FeedbackSummary) -> Option<InFlightPacket> {
        if let Ok(index) = self.flight_index(number) {
            return Some(self.flight[index]).filter(|packet| packet.delay.is_none());
        }
        let index = self.lost.binary_search_by_key(&number, |packet| packet.number).ok()?;
        let packet = self.lost.remove(index)?;
        if packet.unknown {
            return Some(packet);
        }
        // Compute the width from the packet's lateness. RFC 8985 widens the window in fixed steps instead.
        let window = self.reorder_window.max(REORDER_WINDOW_FACTOR * (self.newest_sent - packet.sent));
        self.reorder_window = window.min(REORDER_WINDOW_RTTS_MAX * self.rtt());
        summary.spurious += 1;
        if let Some(report) = self.reports.iter_mut().rev().find(|report| report.lost > 0) {
            report.lost -= 1;
            report.loss_runs = report.loss_runs.min(report.lost);
            report.unqueued_loss_runs = report.unqueued_loss_runs.min(report.lost);
        }
        Some(packet)
    }

    /// Records that feedback reports a packet as missing. The packet counts as lost once later packets have overtaken
    /// it.
    fn on_missing(&mut self, number: u64, summary: &mut FeedbackSummary) {
        if let Ok(index) = self.flight_index(number) {
            self.flight[index].unknown = false;
        } else if let Ok(index) = self.lost.binary_search_by_key(&number, |packet| packet.number)
            && let Some(packet) = self.lost.get_mut(index).filter(|packet| packet.unknown)
        {
            packet.unknown = false;
            let sent = packet.sent;
            let before = index.checked_sub(1).and_then(|index| self.lost.get(index));
            let is_new_run = before.is_none_or(|last| last.unknown || last.number + 1 != number);
            let delay = self.count_loss(summary, is_new_run);
            let newest = summary.loss.filter(|loss| loss.sent > sent);
            summary.loss = newest.or_else(|| Some(self.loss_at(sent, delay)));
        }
    }

    /// Counts a lost packet. `is_new_run` is false if the packet before it was lost, too. Returns the last measured
    /// delay, which the lost packet met, in seconds.
    fn count_loss(&self, summary: &mut FeedbackSummary, is_new_run: bool) -> f64 {
        let delay = self.last_delay.unwrap_or(self.base);
        summary.lost += 1;
        summary.loss_runs += u32::from(is_new_run);
        summary.unqueued_loss_runs += u32::from(is_new_run && delay - self.base <= POLICER_QUEUE_MAX);
        delay
    }

    /// Describes a loss. `sent` is the send time of the lost packet, and `delay` is the delay of the packet before it.
    fn loss_at(&self, sent: f64, delay: f64) -> Loss {
        Loss { sent, q: (delay - self.base).max(0.0), rank: self.rank(delay) }
    }

    /// Returns an iterator over the arrivals since `from`, newest first.
    fn arrived_since(&self, from: f64) -> impl Iterator<Item = &ArrivedPacket> {
        self.arrivals.iter().rev().take_while(move |a| a.at >= from)
    }

    /// Whether a clock was set since the packets before. `elapsed` is the time since the packet was sent, in seconds.
    fn is_clock_set(&mut self, now: f64, way: OneWay, elapsed: f64) -> bool {
        let Some((first, _)) = self.anchor else { return false };
        let delay = way.variation_since(first).as_secs_f64();
        let silent = self.reports.back().map_or(0.0, |report| now - report.at);
        let margin = CLOCK_ERROR_MAX + CLOCK_DRIFT_MAX * silent;
        let (above, below) = (self.offset_max.min(now, CLOCK_WINDOW), self.offset_min.min(now, CLOCK_WINDOW));
        above.is_some_and(|most| delay - elapsed > most + margin) || below.is_some_and(|least| delay < -least - margin)
    }

    /// Adds an arrival. Returns the measured delay, in seconds.
    fn on_arrival(&mut self, now: f64, packet: &InFlightPacket, at: PeerTime) -> f64 {
        let way = OneWay::to_peer(Time::ZERO + Span::from_secs_f64(packet.sent), at);
        let elapsed = (now - packet.sent).max(0.0);
        if self.is_clock_set(now, way, elapsed) {
            // Delays before and after the change can't be compared.
            self.anchor = None;
            self.arrivals.clear();
            (self.delays, self.offset_max, self.offset_min) = Default::default();
            (self.last_delay, self.resumed_at, self.row) = (None, None, None);
            (self.trains, self.base) = (TrainMonitor::default(), 0.0);
        }
        let (first, begin) = *self.anchor.get_or_insert((way, at));
        let delay = way.variation_since(first).as_secs_f64();
        self.offset_max.add(now, delay);
        self.offset_min.add(now, elapsed - delay);
        let last = self.arrivals.back().map_or((f64::MIN, f64::MIN), |last| (last.at, last.came));
        let came = at.since(begin).as_secs_f64().max(last.1);
        self.arrived_bytes += packet.size;
        self.delays.add(now, delay);
        let whole = delay;
        // Compare packets in the order in which they were sent. A packet that was overtaken is late even if the path
        // was not silent.
        let is_silence = |before: &ArrivedPacket| packet.sent > before.sent && whole - before.whole > PATH_SILENCE_MIN;
        if self.arrivals.back().is_some_and(is_silence) {
            self.resumed_at = Some(came);
        }
        // Subtract the delay that the flow's own burst causes, but at most the measured queueing delay. On a fast path,
        // a burst causes no delay.
        let own = packet.own_queue;
        let delay = if own > 0.0 { (whole - own).max(self.base.min(whole)) } else { whole };
        // At the pacing rate, the packet would have been sent later by `early`. It would have waited less in the queue,
        // by `whole - delay`. Add the difference to the arrival time.
        let at = (came + (packet.early - (whole - delay)).max(0.0)).max(last.0);
        let left = packet.sent + packet.early;
        // Compare the packet with earlier packets, before it is added to them.
        let unqueued = f64::from(u8::from(self.is_unqueued(packet.sent, came)));
        self.unqueued_share.add(unqueued, UNQUEUED_SHARE_GAIN);
        let arrived = ArrivedPacket { left, at, delay, sent: packet.sent, came, whole, bytes: self.arrived_bytes };
        self.arrivals.push_back(arrived);
        if self.arrivals.len() > MAX_ARRIVALS {
            self.arrivals.pop_front();
        }
        drop_old(&mut self.arrivals, |a| a.at < at - ARRIVAL_HISTORY);
        whole
    }

    /// Returns whether the packet cannot have come from a queue. There are two such cases. Either another packet has
    /// overtaken it, or the time since an earlier packet is much shorter at the receiver than at the sender
    /// ([`UNQUEUED_COMPRESSION_MIN`]).
    fn is_unqueued(&self, sent: f64, came: f64) -> bool {
        let before = self.arrivals.iter().rev().find(|a| a.sent < sent - UNQUEUED_SEND_GAP_MIN);
        self.arrivals.back().is_some_and(|last| last.sent > sent)
            || before.is_some_and(|a| came - a.came < (sent - a.sent) / UNQUEUED_COMPRESSION_MIN)
    }

    /// If the last packet completes a row ([`ROW_PACKETS_MIN`]), returns the rates at which the row was sent and
    /// received, in bit/s. A packet that did not wait in a queue ends the row without a result, because it arrives as
    /// it was sent.
    fn finish_row(&mut self) -> Option<(f64, f64)> {
        let last = self.arrivals.back().copied()?;
        if last.whole - self.base < WAITED_DELAY_MIN {
            self.row = None;
            return None;
        }
        let Some((first, count)) = self.row.as_mut() else {
            self.row = Some((last, 0));
            return None;
        };
        *count += 1;
        let (sent, came) = (last.sent - first.sent, last.came - first.came);
        if f64::from(*count) < ROW_PACKETS_MIN || came < ROW_DURATION_MIN || sent <= 0.0 {
            return None;
        }
        // n packets have n − 1 intervals between them, so the first packet's bytes do not count. The last packet begins
        // the next row.
        let bits = 8.0 * (last.bytes - first.bytes) as f64;
        self.row = Some((last, 0));
        Some((bits / sent, bits / came))
    }

    fn finish_train(&mut self, size: u64) -> Option<Train> {
        let rate = self.rates.back().map_or(0.0, |(_, rate)| *rate);
        let (first, last) = self.trains.on_arrival(*self.arrivals.back()?, 8.0 * size as f64, rate)?;
        let (bits, duration) = (8.0 * (last.bytes - first.bytes) as f64, last.came - first.came);
        // At a low rate, look back until twice the minimum number of packets was sent.
        let enough = 2.0 * f64::from(RATE_BEFORE_PACKETS_MIN) * 8.0 * size as f64 / rate.max(1.0);
        let span = self.rtt().max(RECEIVED_SPAN_MIN).max(enough.min(ARRIVAL_HISTORY));
        let was_queued = self.arrived_before(&first, span).all(|a| a.whole - self.base >= WAITED_DELAY_MIN);
        Some(Train { bits, duration, rate_before: self.rate_before(&first, span), was_queued })
    }

    /// Returns an iterator over the arrivals in the `span` seconds up to `end`, newest first.
    fn arrived_before(&self, end: &ArrivedPacket, span: f64) -> impl Iterator<Item = &ArrivedPacket> {
        let (sent, came) = (end.sent, end.came);
        self.arrivals.iter().rev().skip_while(move |a| a.sent > sent).take_while(move |a| a.came >= came - span)
    }

    /// Returns the receive rate of [`Self::arrived_before`], in bit/s. Returns `None` if there are too few packets, or
    /// if they cover less than half of `span`.
    fn rate_before(&self, end: &ArrivedPacket, span: f64) -> Option<f64> {
        let first = self.arrived_before(end, span).last()?;
        let covered = end.came - first.came;
        let enough = self.arrived_before(end, span).count() >= RATE_BEFORE_PACKETS_MIN as usize;
        (enough && covered > 0.5 * span).then(|| 8.0 * (end.bytes - first.bytes) as f64 / covered)
    }

    /// Declares packets lost that were overtaken. The number of the overtaking packet must be higher by at
    /// least [`PACKET_REORDER_THRESHOLD`]. Its send time must be later by more than the reordering window.
    fn detect_losses(&mut self, summary: &mut FeedbackSummary) {
        let Some(highest) = self.highest_arrived else { return };
        let mut newest = None;
        // Give an overtaken packet the reordering window to arrive, because it may only be late.
        let from = self.newest_sent - self.reorder_window;
        let overtaken = |packet: &InFlightPacket| {
            packet.number.saturating_add(u64::from(PACKET_REORDER_THRESHOLD)) <= highest && packet.sent < from
        };
        while let Some(packet) = self.flight.front().copied().filter(overtaken) {
            self.flight.pop_front();
            match packet.delay {
                Some(delay) => self.last_delay = Some(delay),
                // Keep the packet, so that a later report can still declare it lost.
                None if packet.unknown => self.lost.push_back(packet),
                None => {
                    let last = self.lost.back().filter(|last| !last.unknown);
                    let is_new_run = last.is_none_or(|last| last.number + 1 != packet.number);
                    newest = Some((packet.sent, self.count_loss(summary, is_new_run)));
                    self.lost.push_back(packet);
                }
            }
        }
        if let Some((sent, delay)) = newest {
            summary.loss = Some(self.loss_at(sent, delay));
        }
    }

    /// Returns the fraction of stored packets that have a smaller delay. Equal delays count half, so that the mean rank
    /// is 0.5.
    fn rank(&self, delay: f64) -> f64 {
        let count = |below: fn(&f64, &f64) -> bool| self.arrivals.iter().filter(|a| below(&a.whole, &delay)).count();
        match self.arrivals.len() {
            0 => 0.5,
            all => (count(f64::lt) + count(f64::le)) as f64 / (2 * all) as f64,
        }
    }

    /// Returns the standing queue, in seconds: the minimum queueing delay over the last `span` seconds.
    pub(super) fn low(&self, span: f64) -> f64 {
        self.min_queueing_delay(span, |packet| packet.delay)
    }

    /// Returns the minimum queueing delay over the last `span` seconds. `delay` selects which delay of a packet is
    /// used. [`ArrivedPacket::whole`] includes the delay that the source's own bursts cause.
    pub(super) fn min_queueing_delay(&self, span: f64, delay: impl Fn(&ArrivedPacket) -> f64) -> f64 {
        let Some(newest) = self.arrivals.back() else { return 0.0 };
        (self.arrived_since(newest.at - span).map(&delay).fold(delay(newest), f64::min) - self.base).max(0.0)
    }

    /// Returns the jitter: the mean delay minus the minimum delay over the last `span` seconds. The part that a queue
    /// may have caused is excluded.
    pub(super) fn jitter(&self, span: f64) -> f64 {
        let Some(newest) = self.arrivals.back() else { return 0.0 };
        let sum = |(sum, count): (f64, f64), a: &ArrivedPacket| (sum + a.delay, count + 1.0);
        let (sum, count) = self.arrived_since(newest.at - span).fold((0.0, 0.0), sum);
        (self.unqueued_share.value / UNQUEUED_SHARE_FULL).min(1.0) * (sum / count - self.base - self.low(span)).max(0.0)
    }

    fn ends(&self, span: f64) -> Option<(&ArrivedPacket, &ArrivedPacket)> {
        let newest = self.arrivals.back()?;
        let index = self.arrivals.partition_point(|a| a.at < newest.at - span.min(ARRIVAL_HISTORY));
        Some((self.arrivals.get(index)?, newest))
    }

    /// Returns the time since the path's last silence, in seconds. Returns `None` if there was no silence.
    pub(super) fn time_since_silence(&self) -> Option<f64> {
        let newest = self.arrivals.back()?;
        self.resumed_at.map(|at| newest.came - at)
    }

    /// Returns [`Self::path_rate`] since the path's last silence. Ignores the silence until [`PATH_RESUME_TIME`] has
    /// passed.
    pub(super) fn path_rate_since_silence(&self, span: f64, rate: f64) -> Option<f64> {
        let since = self.time_since_silence().filter(|since| *since >= PATH_RESUME_TIME);
        self.path_rate(since.map_or(span, |since| since.min(span)), rate)
    }

    /// Returns the receive rate over the last `span` seconds (at most 3 s), in bit/s. Returns `None` if the packets
    /// cover too little of that time.
    pub(super) fn received(&self, span: f64) -> Option<f64> {
        let (first, newest) = self.ends(span)?;
        let covered = newest.at - first.at;
        (covered >= COVERED_SHARE_MIN * span.min(ARRIVAL_HISTORY) && covered > 0.0)
            .then(|| 8.0 * (newest.bytes - first.bytes) as f64 / covered)
    }

    /// Returns the rate that the path carried in the last `span` seconds, in bit/s.
    ///
    /// If the source sends bursts, the receive rate may be too low because of the pauses between them. The result is
    /// then at least `rate` × (time in which the packets were sent) / (time in which they arrived).
    pub(super) fn path_rate(&self, span: f64, rate: f64) -> Option<f64> {
        let received = self.received(span);
        let (first, newest) = self.ends(span)?;
        if self.burst_at.is_none_or(|at| at < newest.sent - BURST_HISTORY) {
            return received;
        }
        let (came, left) = (newest.at - first.at, newest.left - first.left);
        let share = if came > COVERED_SHARE_MIN * span { (left / came).clamp(0.0, 1.0) } else { return received };
        Some(received.map_or(rate * share, |received| received.max(rate * share)))
    }

    /// Returns the path rate over a short and over a longer time, whichever is higher. In the short time, few or no
    /// packets may have arrived.
    pub(super) fn recent_path_rate(&self, rate: f64) -> Option<f64> {
        let rtt = self.rtt();
        let spans = [rtt.max(RECEIVED_SPAN_MIN), (2.0 * rtt).max(PAUSES_SPAN_MIN)];
        spans.into_iter().filter_map(|span| self.path_rate(span, rate)).reduce(f64::max)
    }

    /// Returns the rate above which a control law must not raise its rate, in bit/s. This limit matters if the source
    /// leaves most of its rate unused (RFC 7661, section 4.3).
    pub(super) fn usage_limit(&self) -> f64 {
        let used = self.received(USAGE_SPAN);
        used.map_or(f64::INFINITY, |used| USAGE_MULTIPLE_MAX * used)
    }

    /// Returns the mean sent rate between two times, in bit/s.
    fn sent_rate(&self, from: f64, to: f64) -> f64 {
        let up_to = |time: f64| {
            let index = self.sent.partition_point(|(at, _)| *at < time);
            self.sent.get(index.saturating_sub(1)).map_or(0, |(_, bytes)| *bytes)
        };
        8.0 * up_to(to).saturating_sub(up_to(from)) as f64 / (to - from).max(1e-3)
    }

    /// Returns the ratio of the permitted rate, which the control law sets, to the sent rate. Both are means over the
    /// last `span` seconds.
    pub(super) fn rate_per_usage(&self, now: f64, span: f64) -> f64 {
        let recent = || self.rates.iter().rev().take_while(|(at, _)| *at > now - span);
        let mean = recent().map(|(_, rate)| *rate).sum::<f64>() / recent().count().max(1) as f64;
        mean / self.sent_rate(now - span, now).max(1.0)
    }

    /// Returns whether the source was idle a round trip ago: it sent clearly less than its rate. The packets that
    /// arrive now were sent at that time.
    pub(super) fn is_idle(&self, now: f64) -> bool {
        let rtt = self.rtt();
        let least = self.rates.iter().map(|(_, rate)| *rate).min_by(f64::total_cmp);
        least.is_some_and(|least| self.sent_rate(now - rtt - IDLE_SPAN, now - rtt) < IDLE_SHARE_MAX * least)
    }

    /// Returns the loss rates of the last `span` seconds (at most 3 s).
    pub(super) fn loss_shares(&self, now: f64, span: f64) -> LossShares {
        let recent = || self.reports.iter().filter(|report| report.at > now - span);
        let sum = |of: fn(&ReportCounts) -> u32| recent().map(of).sum::<u32>();
        let packets = sum(|report| report.arrived + report.lost);
        let share = |of| f64::from(sum(of)) / f64::from(packets.max(1));
        LossShares {
            packets,
            lost: share(|report| report.lost),
            runs: share(|report| report.loss_runs),
            unqueued: share(|report| report.unqueued_loss_runs),
        }
    }
}
