use super::alr::AlrDetector;
use super::delay::DelayBased;
use super::loss_v1::LossV1;
use super::loss_v2::{Batch, LossV2, State};
use super::probes::{ProbeController, ProbeLimit};
use super::pushback::CongestionWindowPushback;
use super::robust_throughput::RobustThroughput;
use super::trendline::BandwidthUsage;
use super::{Config, Received};
use crate::{Decision, ExtraSent, Limit, MediaQueue, PacketReport, Probe, Report, SenderHalf, Sent, Wake, Why};
use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Interval between two updates if there is no feedback (libwebrtc, `goog_cc_factory.cc`).
const STEP: Span = Span::millis(25);
/// Interval between two updates of the loss fraction in estimate v1 (libwebrtc, `kLossUpdateInterval`).
const LOSS_INTERVAL: Span = Span::secs(1);
const HISTORY_AGE: Span = Span::secs(10);
/// Lower limit of a probe's result, as a share of the acknowledged rate (libwebrtc, `kProbeDropThroughputFraction`).
const PROBE_DROP: f64 = 0.85;

/// A sent packet for which no report has confirmed the arrival.
#[derive(Clone, Copy, Debug)]
struct SentPacket {
    sent: Time,
    size: Bytes,
    /// Number of bytes sent up to and including this packet.
    through: u64,
    probe: Option<u32>,
    missing: bool,
    /// Whether the packet's fate is unknown ([`SenderHalf::on_unknown`]). Its bytes are then added to the next packet
    /// that arrives.
    unknown: bool,
}

#[derive(Clone, Debug, Default)]
struct FeedbackSummary {
    received: Vec<Received>,
    batch: Option<Batch>,
    /// Number of packets that were reported for the first time.
    expected: i64,
    /// Number of packets that are newly missing, minus the number of missing packets that arrived late.
    lost: i64,
}

/// The sender part of `gcc`. It runs all estimators.
#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    flights: BTreeMap<u64, SentPacket>,
    /// Total number of bytes sent.
    sent: u64,
    /// Number of bytes sent up to and including the newest packet that has arrived.
    arrived: u64,
    delay: DelayBased,
    acknowledged: RobustThroughput,
    loss_v1: LossV1,
    loss_v2: Option<LossV2>,
    alr: AlrDetector,
    was_alr: bool,
    probes: ProbeController,
    pushback: Option<CongestionWindowPushback>,
    /// Number of packets expected and lost since the last update of estimate v1.
    unreported: (i64, i64),
    next_loss_update: Time,
    /// Bytes of packets whose fate is unknown. They are added to the next packet that arrives, so that no sent bytes
    /// are missing in the acknowledged rate.
    unknown: Bytes,
    /// Whether per-packet feedback has arrived. If so, receiver reports are ignored.
    per_packet: bool,
    next: Option<Time>,
    starting: bool,
    /// Whether a frame was ever queued. Before that, the pacing rate equals the target, because a source without frames
    /// always sends at the pacing rate.
    frames: bool,
}

impl Sender {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            delay: DelayBased::new(config),
            loss_v1: LossV1::new(config),
            loss_v2: config.v2.then(|| LossV2::new(config.floor, config.cap)),
            alr: AlrDetector::new(config.start),
            probes: ProbeController::new(config),
            pushback: config.pushback.then(CongestionWindowPushback::new),
            starting: true,
            ..Self::default()
        }
    }

    /// Processes a packet that was sent at `sent`. `at` is the current time.
    fn left(&mut self, at: Time, sent: Time, number: u64, size: Bytes) {
        self.next.get_or_insert(at + STEP);
        self.sent += size.get();
        self.alr.on_sent(sent, size);
        self.loss_v1.on_sent(at);
        let probe = self.probes.on_sent(at, size);
        self.flights
            .insert(number, SentPacket { sent, size, through: self.sent, probe, missing: false, unknown: false });
        let limit = at.before(HISTORY_AGE);
        while let Some(oldest) = self.flights.first_entry().filter(|oldest| oldest.get().sent < limit) {
            oldest.remove();
        }
    }

    /// Returns how many bytes were sent after the newest packet that has arrived.
    fn outstanding(&self) -> Bytes {
        Bytes::new(self.sent.saturating_sub(self.arrived))
    }

    fn read(&mut self, packets: &[PacketReport]) -> FeedbackSummary {
        let mut summary = FeedbackSummary::default();
        for packet in packets {
            let Some(flight) = self.flights.get_mut(&packet.number) else { continue };
            let SentPacket { sent, size, through, probe, missing, unknown } = *flight;
            // Skip a repeated report of a loss, so that the loss does not count twice.
            if packet.arrived.is_none() && missing {
                continue;
            }
            let batch = summary.batch.get_or_insert(Batch { first: sent, last: sent, ..Batch::default() });
            (batch.first, batch.last) = (batch.first.min(sent), batch.last.max(sent));
            if !missing {
                summary.expected += 1;
                batch.size += size;
            }
            let Some(arrived) = packet.arrived else {
                flight.missing = true;
                summary.lost += 1;
                batch.lost += size;
                continue;
            };
            if missing {
                summary.lost -= 1;
                batch.recovered += size;
            }
            self.arrived = self.arrived.max(through);
            self.flights.remove(&packet.number);
            if let Some(arrived) = arrived.at {
                let size = if unknown { Bytes::ZERO } else { size } + std::mem::take(&mut self.unknown);
                summary.received.push(Received { sent, arrived, size, probe });
            }
        }
        // Sort by arrival, because the delay estimators need this order.
        summary.received.sort_by_key(|packet| packet.arrived);
        summary
    }

    /// Updates the round-trip times. Returns the longest one. It includes the time for which the receiver held the
    /// feedback back.
    fn measure(&mut self, report: &Report<'_>, received: &[Received]) -> Option<Span> {
        let newest = received.last()?.arrived;
        let longest = received.iter().map(|packet| report.at.since(packet.sent)).max()?;
        let without =
            |packet: &Received| report.at.since(packet.sent).saturating_sub(newest.since(packet.arrived).later());
        let shortest = received.iter().map(without).min()?;
        self.loss_v1.on_rtt(report.at, shortest);
        self.delay.on_rtt(report.rtt.unwrap_or(shortest));
        Some(longest)
    }

    fn update_loss_v1(&mut self, now: Time, expected: i64, lost: i64) {
        self.unreported = (self.unreported.0.saturating_add(expected), self.unreported.1.saturating_add(lost));
        if now >= self.next_loss_update && self.unreported.0 > 0 {
            self.loss_v1.on_loss(now, self.unreported.1, self.unreported.0);
            (self.unreported, self.next_loss_update) = ((0, 0), now + LOSS_INTERVAL);
        }
    }

    /// Processes a receiver report, which has no per-packet feedback.
    fn on_receiver_report(&mut self, report: &Report<'_>) {
        if let Some(rtt) = report.rtt {
            self.delay.on_rtt(rtt);
        }
        // Per-packet feedback has already counted these losses.
        if self.per_packet {
            return;
        }
        let Some(reception) = report.reception else { return };
        self.loss_v1.on_rtt(report.at, report.rtt.unwrap_or(self.loss_v1.rtt));
        let expected = i64::try_from(reception.expected).unwrap_or(i64::MAX);
        if expected > 0 {
            self.loss_v1.on_loss(report.at, reception.lost, expected);
        }
        self.step(report.at);
    }

    fn on_packets(&mut self, report: &Report<'_>, summary: &FeedbackSummary) {
        let now = report.at;
        self.per_packet = true;
        let longest = self.measure(report, &summary.received);
        self.update_loss_v1(now, summary.expected, summary.lost);
        let alr = self.alr.since.is_some();
        // When an application-limited phase ends, a recovery probe is permitted for some time.
        if self.was_alr && !alr {
            self.probes.on_alr_end(now);
        }
        self.was_alr = alr;
        self.acknowledged.take(&summary.received);
        let acknowledged = self.acknowledged.rate();
        let found = summary.received.iter().fold(None, |found, packet| self.probes.on_arrival(packet).or(found));
        let probe = found.map(|rate| {
            let least = acknowledged.map_or(Rate::ZERO, |acknowledged| acknowledged.scale(PROBE_DROP));
            // Limit the result from below, so that a probe does not reduce the rate below the acknowledged rate.
            rate.max(least.min(self.delay.rate()))
        });
        let outcome = self.delay.update(now, &summary.received, acknowledged, probe);
        if let Some(rate) = outcome.rate {
            // Call `set` first, because it discards the delay-based estimate.
            if outcome.probe {
                self.loss_v1.set(rate);
            }
            self.loss_v1.set_delay_based(rate);
        }
        let by_delay = self.loss_v1.delay_based.unwrap_or(self.delay.rate());
        if let (Some(model), Some(batch)) = (&mut self.loss_v2, &summary.batch) {
            model.update(batch, acknowledged, by_delay, alr);
        }
        if let (Some(pushback), Some(longest)) = (&mut self.pushback, longest) {
            pushback.on_report(longest, self.loss_v1.target);
        }
        self.step(now);
        if outcome.recovered {
            self.probes.on_recovery(now, alr);
        }
    }

    fn step(&mut self, now: Time) {
        let model = self.loss_v2.as_ref().and_then(|model| Some((model.result()?, model.state)));
        let v2 = model.map(|(rate, state)| (rate, state.word()));
        self.loss_v1.update(now, v2);
        self.starting = self.loss_v1.in_start(now);
        let target = self.loss_v1.target;
        self.alr.set_target(target);
        let cause = match model.map(|(_, state)| state) {
            // Send no probe, because it would add congestion and could not measure the path.
            _ if self.loss_v1.is_silent() || self.delay.usage() != BandwidthUsage::Normal => ProbeLimit::Closed,
            Some(State::Decreasing) => ProbeLimit::Closed,
            Some(State::Increasing) => ProbeLimit::LossRising,
            _ => ProbeLimit::Open,
        };
        self.probes.set_estimate(now, target, cause);
        self.probes.step(now, self.alr.since);
        let outstanding = self.outstanding();
        if let Some(pushback) = &mut self.pushback {
            pushback.step(outstanding);
        }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.left(sent.at, sent.left, sent.number, sent.size);
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.left(sent.at, sent.left, sent.number, sent.size);
    }

    fn on_queue(&mut self, queue: &MediaQueue) {
        self.frames |= queue.frame.is_some();
    }

    fn on_unknown(&mut self, packets: &[PacketReport]) {
        for packet in packets {
            if let Some(flight) = self.flights.get_mut(&packet.number).filter(|flight| !flight.unknown) {
                flight.unknown = true;
                self.unknown += flight.size;
            }
        }
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if report.packets.is_empty() {
            return self.on_receiver_report(report);
        }
        let summary = self.read(report.packets);
        if summary.batch.is_some() {
            self.on_packets(report, &summary);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.next.is_some_and(|at| at <= now) {
            self.next = Some(now + STEP);
            self.step(now);
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.next.map(|at| Wake { at, why: "estimate's step" })
    }

    fn probe(&self) -> Option<Probe> {
        self.probes.wanted()
    }

    fn decision(&self) -> Decision {
        let Config { floor, cap, pacing, .. } = self.config;
        let estimate = self.loss_v1.target;
        let target = self.pushback.as_ref().map_or(estimate, |pushback| pushback.apply(estimate)).clamp(floor, cap);
        let limit = Limit::between(target, floor, cap, self.starting && target > floor);
        let rule = if target < estimate { "more under way than fits" } else { self.loss_v1.rule };
        let loss = self.loss_v2.as_ref().filter(|model| model.result().is_some()).map(|model| model.loss);
        let (loss, rtt) = (loss.unwrap_or(self.loss_v1.fraction), self.loss_v1.rtt);
        let why = Why { loss: Some(loss), rtt: Some(rtt).filter(|rtt| !rtt.is_zero()), ..Why::rule(rule) };
        // Send faster than the target rate, so that a large frame leaves within a frame interval.
        let pacing = if self.frames { estimate.scale(pacing) } else { target };
        Decision { target, pacing, window: None, limit, why }
    }
}
