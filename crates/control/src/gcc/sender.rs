use super::acknowledged::Robust;
use super::alr::Alr;
use super::delay::DelayBased;
use super::loss_v1::LossV1;
use super::loss_v2::{Batch, LossV2, State};
use super::probes::{Cause, Probes};
use super::pushback::Pushback;
use super::trendline::Usage;
use super::{Config, Received};
use crate::{Decision, ExtraSent, Limit, MediaQueue, PacketReport, Probe, Report, SenderHalf, Sent, Wake, Why};
use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Time between two steps without feedback (libwebrtc, `goog_cc_factory.cc`).
const STEP: Span = Span::millis(25);
/// Time between two losses that are told to the first estimate (libwebrtc, `kLossUpdateInterval`).
const LOSS_INTERVAL: Span = Span::secs(1);
/// Packets that left longer ago are no longer known.
const REMEMBERED: Span = Span::secs(10);
/// A probe's result is not below this share of what comes through (libwebrtc, `kProbeDropThroughputFraction`).
const PROBE_DROP: f64 = 0.85;

/// A packet of which no report has told that it arrived.
#[derive(Clone, Copy, Debug)]
struct Flight {
    sent: Time,
    size: Bytes,
    /// All bytes sent up to it.
    through: u64,
    probe: Option<u32>,
    /// A report has told that it did not arrive.
    missing: bool,
    /// Its fate was unknown, and its bytes have been counted with a later packet.
    unknown: bool,
}

/// What a report told that was not known.
#[derive(Clone, Debug, Default)]
struct News {
    /// In the order of arrival.
    received: Vec<Received>,
    batch: Option<Batch>,
    /// Packets told of for the first time; those missing, less those that came after all.
    expected: i64,
    lost: i64,
}

/// The sending half: all of the control.
#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    flights: BTreeMap<u64, Flight>,
    /// Bytes sent, and those up to the newest packet that arrived.
    sent: u64,
    arrived: u64,
    delay: DelayBased,
    acknowledged: Robust,
    loss_v1: LossV1,
    loss_v2: Option<LossV2>,
    alr: Alr,
    was_alr: bool,
    probes: Probes,
    pushback: Option<Pushback>,
    /// Packets expected and lost since the first estimate was told, and when it is told again.
    unsaid: (i64, i64),
    say_at: Time,
    /// Bytes whose fate is unknown. They count with the next packet that arrives, since the rate of what comes through
    /// would else be that of a part of what was sent.
    unknown: Bytes,
    /// Feedback has told of single packets.
    per_packet: bool,
    next: Option<Time>,
    starting: bool,
    /// A frame has come. A source without frames always has data, and would send at the pacer's rate.
    frames: bool,
}

impl Sender {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            delay: DelayBased::new(config),
            loss_v1: LossV1::new(config),
            loss_v2: config.v2.then(|| LossV2::new(config.floor, config.cap)),
            alr: Alr::new(config.start),
            probes: Probes::new(config),
            pushback: config.pushback.then(Pushback::new),
            starting: true,
            ..Self::default()
        }
    }

    /// A packet has left at the time `sent`; now is `at`.
    fn left(&mut self, at: Time, sent: Time, number: u64, size: Bytes) {
        self.next.get_or_insert(at + STEP);
        self.sent += size.get();
        self.alr.on_sent(sent, size);
        self.loss_v1.on_sent(at);
        let probe = self.probes.on_sent(at, size);
        self.flights.insert(number, Flight { sent, size, through: self.sent, probe, missing: false, unknown: false });
        let limit = at.before(REMEMBERED);
        while let Some(oldest) = self.flights.first_entry().filter(|oldest| oldest.get().sent < limit) {
            oldest.remove();
        }
    }

    /// What is under way: all that left after the newest packet that arrived.
    fn outstanding(&self) -> Bytes {
        Bytes::new(self.sent.saturating_sub(self.arrived))
    }

    fn read(&mut self, packets: &[PacketReport]) -> News {
        let mut news = News::default();
        for packet in packets {
            let Some(flight) = self.flights.get_mut(&packet.number) else { continue };
            let Flight { sent, size, through, probe, missing, unknown } = *flight;
            if packet.arrived.is_none() && missing {
                continue;
            }
            let batch = news.batch.get_or_insert(Batch { first: sent, last: sent, ..Batch::default() });
            (batch.first, batch.last) = (batch.first.min(sent), batch.last.max(sent));
            if !missing {
                news.expected += 1;
                batch.size += size;
            }
            let Some(arrived) = packet.arrived else {
                flight.missing = true;
                news.lost += 1;
                batch.lost += size;
                continue;
            };
            if missing {
                news.lost -= 1;
                batch.recovered += size;
            }
            self.arrived = self.arrived.max(through);
            self.flights.remove(&packet.number);
            if let Some(arrived) = arrived.at {
                let size = if unknown { Bytes::ZERO } else { size } + std::mem::take(&mut self.unknown);
                news.received.push(Received { sent, arrived, size, probe });
            }
        }
        news.received.sort_by_key(|packet| packet.arrived);
        news
    }

    /// The round trips of a report's packets: the longest, held back at the receiver, and the shortest without that.
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

    fn say_loss(&mut self, now: Time, expected: i64, lost: i64) {
        self.unsaid = (self.unsaid.0.saturating_add(expected), self.unsaid.1.saturating_add(lost));
        if now >= self.say_at && self.unsaid.0 > 0 {
            self.loss_v1.on_loss(now, self.unsaid.1, self.unsaid.0);
            (self.unsaid, self.say_at) = ((0, 0), now + LOSS_INTERVAL);
        }
    }

    /// A report without packets: the receiver report's block is all there is.
    fn on_receiver_report(&mut self, report: &Report<'_>) {
        if let Some(rtt) = report.rtt {
            self.delay.on_rtt(rtt);
        }
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

    fn on_packets(&mut self, report: &Report<'_>, news: &News) {
        let now = report.at;
        self.per_packet = true;
        let longest = self.measure(report, &news.received);
        self.say_loss(now, news.expected, news.lost);
        let alr = self.alr.since.is_some();
        if self.was_alr && !alr {
            self.probes.on_alr_end(now);
        }
        self.was_alr = alr;
        self.acknowledged.take(&news.received);
        let acknowledged = self.acknowledged.rate();
        let found = news.received.iter().fold(None, |found, packet| self.probes.on_arrival(packet).or(found));
        let probe = found.map(|rate| {
            let least = acknowledged.map_or(Rate::ZERO, |acknowledged| acknowledged.scale(PROBE_DROP));
            rate.max(least.min(self.delay.rate()))
        });
        let outcome = self.delay.update(now, &news.received, acknowledged, probe);
        if let Some(rate) = outcome.rate {
            if outcome.probe {
                self.loss_v1.set(rate);
            }
            self.loss_v1.set_delay_based(rate);
        }
        let by_delay = self.loss_v1.delay_based.unwrap_or(self.delay.rate());
        if let (Some(model), Some(batch)) = (&mut self.loss_v2, &news.batch) {
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

    /// The target anew, by all that is known.
    fn step(&mut self, now: Time) {
        let model = self.loss_v2.as_ref().and_then(|model| Some((model.result()?, model.state)));
        let v2 = model.map(|(rate, state)| (rate, state.word()));
        self.loss_v1.update(now, v2);
        self.starting = self.loss_v1.in_start(now);
        let target = self.loss_v1.target;
        self.alr.set_target(target);
        let cause = match model.map(|(_, state)| state) {
            _ if self.loss_v1.is_silent() || self.delay.usage() != Usage::Normal => Cause::Closed,
            Some(State::Decreasing) => Cause::Closed,
            Some(State::Increasing) => Cause::LossRising,
            _ => Cause::Open,
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
        let news = self.read(report.packets);
        if news.batch.is_some() {
            self.on_packets(report, &news);
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
        let pacing = if self.frames { estimate.scale(pacing) } else { target };
        Decision { target, pacing, window: None, limit, why }
    }
}
