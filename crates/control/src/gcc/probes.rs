//! Decides when probes are sent, and computes their results (libwebrtc, `probe_controller.cc`,
//! `probe_bitrate_estimator.cc`).
//!
//! Once a probe is offered, all sent packets belong to it until it is complete. This includes media and padding.

use super::constants::{FIRST_PROBE, SECOND_PROBE};
use super::{Config, Received};
use crate::Probe;
use std::collections::VecDeque;
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time};

/// Minimum number of packets in a probe.
const PACKETS: u32 = 5;
/// Minimum duration of a probe.
const LENGTH: Span = Span::millis(15);
/// Rate of a further probe, as a multiple of the last probe's result.
const FURTHER: f64 = 2.0;
/// A further probe is sent if the measured result of the last probe exceeds this share of that probe's rate.
const FURTHER_ABOVE: f64 = 0.7;
/// Maximum time for which a result is awaited.
const WAIT: Span = Span::secs(1);
/// Interval between probes in an application-limited phase.
const ALR_INTERVAL: Span = Span::secs(5);
/// Rate of probes in an application-limited phase, as a multiple of the estimate.
const ALR_SCALE: f64 = 2.0;
/// The estimate has dropped if it is below its previous value times this share. A recovery probe may follow a drop.
const DROP: f64 = 0.66;
/// Rate of a recovery probe, as a share of the estimate before the drop.
const AFTER_DROP: f64 = 0.85;
/// A recovery probe is sent only if its rate times this share exceeds the current estimate.
const LEAST_EXPECTED_RESULT: f64 = 0.95;
/// A recovery probe is sent less than this time after the drop.
const DROP_MAX_AGE: Span = Span::secs(5);
/// A recovery probe is sent in an application-limited phase, or less than this time after the end of such a phase.
const ALR_END_MAX_AGE: Span = Span::secs(3);
/// Minimum interval between two recovery probes.
const DROP_INTERVAL: Span = Span::secs(5);
/// Maximum rate of a probe while the estimate rises and loss limits it, as a multiple of the estimate.
const LOSS_LIMITED: f64 = 1.5;
/// Share of a probe's packets, and of its bytes, that have to arrive for a result.
const COMPLETE: f64 = 0.8;
/// For a valid result, the probe must have been sent within this time, and must have arrived within this time.
const LONGEST: Span = Span::secs(1);
/// Maximum ratio of the receive rate to the send rate for a valid result.
const MOST_RATIO: f64 = 2.0;
/// If the receive rate of a probe is less than its send rate times this share, the link was full.
const UNSATURATED: f64 = 0.9;
/// If the link was full, the result is the receive rate times this share.
const TARGET_UTILIZATION: f64 = 0.95;
/// Minimum send rate for a valid result, as a share of the probe's rate. With a lower send rate, the pacer had too
/// little data to send.
const LEAST_SEND_RATIO: f64 = 0.8;
/// Maximum number of probes whose result is awaited.
const MOST_CLUSTERS: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProbeLimit {
    #[default]
    Open,
    /// The estimate rises, but loss limits it. The rate of a probe is at most [`LOSS_LIMITED`] times the estimate.
    LossRising,
    /// No probes are sent, because there is loss, feedback is missing, or a queue grows or drains.
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    probe: Probe,
    begun: Time,
    packets: u32,
    bytes: Bytes,
    seen: Option<ArrivedCluster>,
}

#[derive(Clone, Copy, Debug)]
struct ArrivedCluster {
    packets: u32,
    bytes: Bytes,
    first_sent: Time,
    last_sent: (Time, Bytes),
    first_arrival: (PeerTime, Bytes),
    last_arrival: PeerTime,
}

impl Cluster {
    fn is_full(&self) -> bool {
        self.packets >= self.probe.packets && self.bytes >= self.probe.bytes
    }

    /// Adds a packet of this probe that has arrived. Returns the result once enough packets have arrived.
    fn take(&mut self, packet: &Received) -> Option<Rate> {
        let seen = self.seen.get_or_insert(ArrivedCluster {
            packets: 0,
            bytes: Bytes::ZERO,
            first_sent: packet.sent,
            last_sent: (packet.sent, packet.size),
            first_arrival: (packet.arrived, packet.size),
            last_arrival: packet.arrived,
        });
        seen.packets += 1;
        seen.bytes += packet.size;
        // Compare times, because packets may arrive in another order.
        seen.first_sent = seen.first_sent.min(packet.sent);
        if packet.sent > seen.last_sent.0 {
            seen.last_sent = (packet.sent, packet.size);
        }
        if packet.arrived < seen.first_arrival.0 {
            seen.first_arrival = (packet.arrived, packet.size);
        }
        seen.last_arrival = seen.last_arrival.max(packet.arrived);
        let (packets, bytes) = (f64::from(self.probe.packets) * COMPLETE, self.probe.bytes.as_f64() * COMPLETE);
        if f64::from(seen.packets) < packets || seen.bytes.as_f64() < bytes {
            return None;
        }
        seen.result(self.probe.rate)
    }
}

impl ArrivedCluster {
    fn result(&self, asked: Rate) -> Option<Rate> {
        let valid = |span: Span| !span.is_zero() && span <= LONGEST;
        // A duration is zero if the feedback's resolution is too coarse.
        let sent = self.last_sent.0.since(self.first_sent);
        let received = self.last_arrival.since(self.first_arrival.0).later();
        if !valid(sent) || !valid(received) {
            return None;
        }
        let sent = self.bytes.saturating_sub(self.last_sent.1).per(sent);
        // Leave out the first packet, because n packets have n − 1 intervals between them.
        let received = self.bytes.saturating_sub(self.first_arrival.1).per(received);
        if received.ratio(sent) > MOST_RATIO || sent < asked.scale(LEAST_SEND_RATIO) {
            return None;
        }
        let full = received < sent.scale(UNSATURATED);
        Some(if full { received.scale(TARGET_UTILIZATION) } else { received.min(sent) })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ProbeController {
    config: Config,
    /// Probes that are not complete. The first one is offered to the session.
    wanted: VecDeque<Probe>,
    next_id: u32,
    /// Probes that have begun, newest last. Only the newest may be incomplete.
    sent: VecDeque<Cluster>,
    /// A further probe follows if the result is above this rate. It is `None` if no result is awaited.
    further_above: Option<Rate>,
    asked: Option<Time>,
    estimate: Rate,
    cause: ProbeLimit,
    /// When the estimate last dropped, and its value before the drop.
    drop: Option<(Time, Rate)>,
    drop_probe: Option<Time>,
    alr_ended: Option<Time>,
}

impl ProbeController {
    pub(super) fn new(config: &Config) -> Self {
        let mut probes = Self { config: *config, next_id: 1, estimate: config.start, ..Self::default() };
        probes.request_probes(None, &[config.start.scale(FIRST_PROBE), config.start.scale(SECOND_PROBE)], true);
        probes
    }

    pub(super) fn wanted(&self) -> Option<Probe> {
        self.wanted.front().copied()
    }

    pub(super) fn on_alr_end(&mut self, at: Time) {
        self.alr_ended = Some(at);
    }

    /// Adds a sent packet to the current probe. Returns the identifier of this probe.
    pub(super) fn on_sent(&mut self, at: Time, size: Bytes) -> Option<u32> {
        self.withdraw(at);
        let probe = self.wanted()?;
        self.asked.get_or_insert(at);
        // A probe begins with the first packet that is sent after the probe was offered to the sender.
        if self.sent.back().is_none_or(|last| last.probe.id != probe.id) {
            self.sent.push_back(Cluster { probe, begun: at, packets: 0, bytes: Bytes::ZERO, seen: None });
            if self.sent.len() > MOST_CLUSTERS {
                self.sent.pop_front();
            }
        }
        let cluster = self.sent.back_mut()?;
        cluster.packets += 1;
        cluster.bytes += size;
        if cluster.is_full() {
            self.wanted.pop_front();
        }
        Some(probe.id)
    }

    /// Withdraws a probe that has not become complete in time.
    fn withdraw(&mut self, now: Time) {
        let last = self.sent.back().filter(|last| now.since(last.begun) > WAIT).map(|last| last.probe.id);
        if last.is_some() && self.wanted().map(|probe| probe.id) == last {
            self.wanted.pop_front();
        }
    }

    /// Processes the arrival of a packet. Returns the result of the packet's probe once it is available.
    pub(super) fn on_arrival(&mut self, packet: &Received) -> Option<Rate> {
        let id = packet.probe?;
        self.sent.iter_mut().find(|cluster| cluster.probe.id == id)?.take(packet)
    }

    /// Updates the estimate. This may trigger a further probe.
    pub(super) fn set_estimate(&mut self, now: Time, rate: Rate, cause: ProbeLimit) {
        self.cause = cause;
        if rate < self.estimate.scale(DROP) {
            self.drop = Some((now, self.estimate));
        }
        self.estimate = rate;
        if self.further_above.is_some_and(|least| rate > least) {
            self.request_probes(Some(now), &[rate.scale(FURTHER)], true);
        }
    }

    /// Requests a recovery probe after a queue has drained, because the cause of a drop may have been temporary.
    pub(super) fn on_recovery(&mut self, now: Time, alr: bool) {
        let fresh = |at: Option<Time>, span: Span| at.is_some_and(|at| now.since(at) < span);
        let Some((at, before)) = self.drop else { return };
        let rate = before.scale(AFTER_DROP);
        if self.further_above.is_none()
            && (alr || fresh(self.alr_ended, ALR_END_MAX_AGE))
            && fresh(Some(at), DROP_MAX_AGE)
            && !fresh(self.drop_probe, DROP_INTERVAL)
            && rate.scale(LEAST_EXPECTED_RESULT) > self.estimate
        {
            self.drop_probe = Some(now);
            self.request_probes(Some(now), &[rate], false);
        }
    }

    /// Requests a probe if the timer has expired. `alr` is when the application-limited phase began.
    pub(super) fn step(&mut self, now: Time, alr: Option<Time>) {
        self.withdraw(now);
        if self.asked.is_some_and(|at| now.since(at) > WAIT) {
            self.further_above = None;
        }
        let Some(since) = alr.filter(|_| self.further_above.is_none()) else { return };
        let due = self.asked.map_or(since, |at| at.max(since)) + ALR_INTERVAL;
        if now >= due {
            self.request_probes(Some(now), &[self.estimate.scale(ALR_SCALE)], true);
        }
    }

    fn request_probes(&mut self, now: Option<Time>, rates: &[Rate], further: bool) {
        let most = match self.cause {
            ProbeLimit::Open => self.config.most_probe,
            ProbeLimit::LossRising => self.config.most_probe.min(self.estimate.scale(LOSS_LIMITED)),
            ProbeLimit::Closed => return,
        };
        if !self.config.probes {
            return;
        }
        self.further_above = None;
        for rate in rates {
            let rate = (*rate).min(most);
            let probe = Probe { id: self.next_id, rate, packets: PACKETS, bytes: rate.over(LENGTH), within: false };
            self.next_id = self.next_id.wrapping_add(1);
            self.wanted.push_back(probe);
            self.further_above = (further && rate < most).then(|| rate.scale(FURTHER_ABOVE));
        }
        // Drop the oldest probes if there are too many. They were never completed and are outdated.
        while self.wanted.len() > MOST_CLUSTERS {
            self.wanted.pop_front();
        }
        self.asked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Bytes = Bytes::new(1_000);

    fn probes() -> ProbeController {
        ProbeController::new(&super::super::tests::config())
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    /// Sends the offered probe at `rate`, beginning at `from`. The path has the given `capacity`. Returns the probe's
    /// result.
    fn play(probes: &mut ProbeController, from: Time, rate: Rate, capacity: Rate) -> Option<Rate> {
        let id = probes.wanted()?.id;
        let (mut now, mut free, mut result) = (from, Time::ZERO, None);
        while probes.wanted().is_some_and(|probe| probe.id == id) {
            let probe = probes.on_sent(now, S);
            assert_eq!(probe, Some(id));
            free = free.max(now) + S.at(capacity);
            let arrived = PeerTime::from_nanos(free.as_nanos() as i64 - 7_000_000_000);
            result = probes.on_arrival(&Received { sent: now, arrived, size: S, probe }).or(result);
            now += S.at(rate);
        }
        result
    }

    fn kbps(rate: Option<Rate>) -> Option<u64> {
        rate.map(|rate| (rate.as_bps() + 500) / 1_000)
    }

    #[test]
    fn three_and_six_times_the_start_rate_are_tried_and_twice_what_was_found_while_more_is_found() {
        let mut probes = probes();
        let rates = |probes: &ProbeController| probes.wanted().map(|probe| probe.rate.as_bps() / 1_000);
        assert_eq!(rates(&probes), Some(900));
        let found = play(&mut probes, at(0), Rate::kbps(900), Rate::mbps(20));
        assert_eq!(kbps(found), Some(900));
        assert_eq!(rates(&probes), Some(1_800));
        let found = play(&mut probes, at(100), Rate::kbps(1_800), Rate::mbps(20));
        assert_eq!(kbps(found), Some(1_800));
        // A result up to 0.7 · 1800 kb/s triggers no further probe. A higher result triggers a probe at twice the
        // result, up to the limit.
        probes.set_estimate(at(200), Rate::kbps(1_260), ProbeLimit::Open);
        assert_eq!(probes.wanted(), None);
        probes.set_estimate(at(210), Rate::kbps(1_800), ProbeLimit::Open);
        assert_eq!(rates(&probes), Some(3_600));
        play(&mut probes, at(220), Rate::kbps(3_600), Rate::mbps(20));
        probes.set_estimate(at(300), Rate::kbps(3_600), ProbeLimit::Open);
        assert_eq!(rates(&probes), Some(5_000));
        play(&mut probes, at(320), Rate::mbps(5), Rate::mbps(20));
        probes.set_estimate(at(400), Rate::mbps(5), ProbeLimit::Open);
        assert_eq!(probes.wanted(), None);
    }

    #[test]
    fn a_full_path_gives_a_little_less_than_its_rate() {
        let mut probes = probes();
        assert_eq!(kbps(play(&mut probes, at(0), Rate::kbps(900), Rate::kbps(500))), Some(475));
        // The receive rate is only slightly below the send rate, so it is the probe's result.
        assert_eq!(kbps(play(&mut probes, at(500), Rate::kbps(1_800), Rate::kbps(1_700))), Some(1_700));
    }

    #[test]
    fn a_probe_that_left_too_slowly_or_not_in_time_tells_nothing() {
        let mut probes = probes();
        assert_eq!(play(&mut probes, at(0), Rate::kbps(300), Rate::mbps(20)), None);
        // The next probe begins. It is withdrawn a second later.
        let id = probes.wanted().map(|probe| probe.id);
        assert_eq!((probes.on_sent(at(1_000), S), id), (id, Some(2)));
        assert_eq!(probes.on_sent(at(2_001), S), None);
    }

    #[test]
    fn a_probe_has_five_packets_and_fifteen_milliseconds_of_data() {
        let probe = probes().wanted().unwrap();
        assert_eq!((probe.packets, probe.bytes), (5, Bytes::new(1_687)));
    }

    #[test]
    fn application_limited_phases_are_probed_each_five_seconds_at_twice_the_estimate() {
        let mut probes = probes();
        probes.wanted.clear();
        probes.asked = Some(at(0));
        probes.set_estimate(at(100), Rate::kbps(400), ProbeLimit::Open);
        let asked: Vec<_> = (0..15_000)
            .step_by(25)
            .filter(|ms| {
                probes.step(at(*ms), Some(at(1_000)));
                probes.wanted.pop_front().is_some_and(|probe| probe.rate == Rate::kbps(800))
            })
            .collect();
        assert_eq!(asked, [6_000, 11_000]);
    }

    #[test]
    fn while_loss_or_a_queue_holds_the_rate_down_nothing_is_probed() {
        let mut probes = probes();
        probes.wanted.clear();
        probes.further_above = Some(Rate::kbps(100));
        probes.set_estimate(at(0), Rate::kbps(500), ProbeLimit::Closed);
        assert_eq!(probes.wanted(), None);
        probes.set_estimate(at(10), Rate::kbps(500), ProbeLimit::LossRising);
        assert_eq!(probes.wanted().map(|probe| probe.rate), Some(Rate::kbps(750)));
    }

    #[test]
    fn after_a_large_drop_in_a_limited_phase_most_of_the_old_rate_is_tried_once_in_five_seconds() {
        let mut probes = probes();
        probes.wanted.clear();
        probes.further_above = None;
        probes.set_estimate(at(0), Rate::mbps(2), ProbeLimit::Open);
        probes.set_estimate(at(1_000), Rate::kbps(800), ProbeLimit::Open);
        probes.on_recovery(at(2_000), false);
        assert_eq!(probes.wanted(), None);
        probes.on_recovery(at(2_000), true);
        assert_eq!(probes.wanted.pop_front().map(|probe| probe.rate), Some(Rate::kbps(1_700)));
        probes.on_recovery(at(2_500), true);
        assert_eq!(probes.wanted(), None);
    }
}
