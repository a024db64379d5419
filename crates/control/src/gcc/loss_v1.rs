//! Computes the loss-based estimate v1, and applies the limits of all estimates (libwebrtc,
//! `send_side_bandwidth_estimation.cc`).

use super::Config;
use super::constants::{HIGH_LOSS, LOW_LOSS, SILENCE};
use std::collections::VecDeque;
use steadycast_units::{Rate, Span, Time};

/// Minimum number of packets from which a loss fraction is computed.
const LEAST_PACKETS: i64 = 20;
/// An increase starts from the lowest target within this time before the increase.
const MIN_HISTORY: Span = Span::secs(1);
/// An increase multiplies the lowest target by this factor.
const FACTOR: f64 = 1.08;
/// An increase also adds this rate.
const STEP: Rate = Rate::kbps(1);
const BETWEEN_CUTS: Span = Span::millis(300);
/// A loss fraction of this age is not used any more. It is 1.2 times the longest report interval, which is 5 s.
const LOSS_REPORT_MAX_AGE: Span = Span::secs(6);
/// Duration of the start phase.
const START: Span = Span::secs(2);
/// Interval between two reductions while there is no feedback.
const BACK_OFF_INTERVAL: Span = Span::secs(1);
/// Factor by which the rate is reduced while there is no feedback.
const BACK_OFF: f64 = 0.8;

#[derive(Clone, Debug, Default)]
pub(super) struct LossV1 {
    config: Config,
    pub(super) target: Rate,
    /// The delay-based estimate. It is `None` before the first estimate.
    pub(super) delay_based: Option<Rate>,
    /// Targets of the last second. This is a monotonic queue: rates rise from front to back.
    least: VecDeque<(Time, Rate)>,
    expected: i64,
    lost: i64,
    pub(super) fraction: f64,
    first_report: Option<Time>,
    fraction_at: Option<Time>,
    cut_at: Option<Time>,
    cut: bool,
    pub(super) rtt: Span,
    /// When the round-trip time was last measured, and its value.
    propagation: Option<(Time, Span)>,
    first_sent: Option<Time>,
    last_sent: Time,
    pub(super) rule: &'static str,
}

impl LossV1 {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: *config, target: config.start, rule: "start rate", ..Self::default() }
    }

    pub(super) fn in_start(&self, now: Time) -> bool {
        self.first_report.is_none_or(|at| now.since(at) < START)
    }

    pub(super) fn on_sent(&mut self, at: Time) {
        self.first_sent.get_or_insert(at);
        self.last_sent = at;
    }

    pub(super) fn on_rtt(&mut self, now: Time, rtt: Span) {
        self.rtt = rtt;
        self.propagation = Some((now, rtt));
    }

    pub(super) fn set(&mut self, rate: Rate) {
        self.delay_based = None;
        self.take(rate, "probe");
        self.least.clear();
    }

    pub(super) fn set_delay_based(&mut self, rate: Rate) {
        self.delay_based = Some(rate);
    }

    /// Adds the packets of a report. `lost` is negative if packets arrived late that were reported as missing before.
    pub(super) fn on_loss(&mut self, now: Time, lost: i64, expected: i64) {
        self.first_report.get_or_insert(now);
        (self.expected, self.lost) = (self.expected.saturating_add(expected), self.lost.saturating_add(lost));
        if self.expected < LEAST_PACKETS {
            return;
        }
        let share = self.lost.max(0) as f64 / self.expected as f64;
        // Round the fraction down to eight bits, as a receiver report does.
        self.fraction = (share * 256.0).floor().min(255.0) / 256.0;
        (self.expected, self.lost, self.cut) = (0, 0, false);
        self.fraction_at = Some(now);
    }

    /// Returns the last measured round-trip time, plus the time from this measurement to the last sent packet. Before
    /// the first measurement, returns the time from the first to the last sent packet.
    fn corrected_rtt(&self) -> Span {
        match (self.propagation, self.first_sent) {
            (Some((at, rtt)), _) => rtt + self.last_sent.since(at),
            (None, Some(first)) => self.last_sent.since(first),
            (None, None) => Span::ZERO,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.corrected_rtt() > SILENCE
    }

    /// Updates the target. `v2` is the estimate of the loss model, or `None` until the model is ready.
    pub(super) fn update(&mut self, now: Time, v2: Option<(Rate, &'static str)>) {
        if self.is_silent() {
            let due = self.cut_at.is_none_or(|at| now.since(at) >= BACK_OFF_INTERVAL);
            if due && self.target > self.config.floor {
                self.cut_at = Some(now);
                self.take(self.target.scale(BACK_OFF), "no feedback: reduced");
            } else {
                self.take(self.target, self.rule);
            }
            return;
        }
        // In the start phase, use the delay-based estimate, because it may rise faster than 8 % per second.
        if self.fraction == 0.0 && self.in_start(now) && v2.is_none() {
            let above = self.delay_based.filter(|rate| *rate > self.target);
            if let Some(rate) = above {
                self.least.clear();
                self.least.push_back((now, rate));
                self.take(rate, "start: as by delay");
                return;
            }
        }
        self.remember(now);
        let Some(fraction_at) = self.fraction_at else {
            return self.take(self.target, self.rule);
        };
        if let Some((rate, rule)) = v2 {
            return self.take(rate, rule);
        }
        if now.since(fraction_at) >= LOSS_REPORT_MAX_AGE {
            return self.take(self.target, "loss report too old: held");
        }
        if self.fraction <= LOW_LOSS {
            let least = self.least.front().map_or(self.target, |(_, rate)| *rate);
            self.take(least.scale(FACTOR) + STEP, "little loss: increased");
        } else if self.fraction <= HIGH_LOSS {
            self.take(self.target, "some loss: held");
        } else {
            // Wait for a round trip, because reports do not show the effect of a decrease earlier.
            let due = self.cut_at.is_none_or(|at| now.since(at) >= BETWEEN_CUTS + self.rtt);
            if !self.cut && due {
                (self.cut, self.cut_at) = (true, Some(now));
                self.take(self.target.scale(1.0 - self.fraction / 2.0), "much loss: reduced");
            } else {
                self.take(self.target, self.rule);
            }
        }
    }

    fn remember(&mut self, now: Time) {
        // Keep the rates rising from front to back, so that the front is the minimum.
        while self.least.front().is_some_and(|(at, _)| now.since(*at) + Span::millis(1) > MIN_HISTORY) {
            self.least.pop_front();
        }
        while self.least.back().is_some_and(|(_, rate)| *rate >= self.target) {
            self.least.pop_back();
        }
        self.least.push_back((now, self.target));
    }

    fn take(&mut self, rate: Rate, rule: &'static str) {
        let bounded = self.delay_based.filter(|by_delay| *by_delay < rate);
        self.rule = if bounded.is_some() { "delay" } else { rule };
        self.target = bounded.unwrap_or(rate).clamp(self.config.floor, self.config.cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimator() -> LossV1 {
        LossV1::new(&super::super::tests::config())
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    /// Simulates a report on 100 packets per second, and an update every 25 ms. Returns the final target.
    fn run(estimator: &mut LossV1, seconds: std::ops::Range<u64>, lost: i64) -> Rate {
        for step in seconds.start * 40..seconds.end * 40 {
            let now = at(step * 25);
            estimator.on_sent(now);
            if step % 40 == 0 {
                estimator.on_rtt(now, Span::millis(100));
                estimator.on_loss(now, lost, 100);
            }
            estimator.update(now, None);
        }
        estimator.target
    }

    #[test]
    fn little_loss_raises_the_rate_by_eight_percent_a_second_some_holds_it_much_halves_its_share() {
        let mut little = estimator();
        let first = run(&mut little, 0..1, 2);
        assert_eq!(first, Rate::kbps(325));
        let tenth = run(&mut little, 1..10, 2);
        // Exact steps of a second would give (300 + 12.5) 1.08^10 − 12.5. The rate is slightly lower, because updates
        // occur every 25 ms and the history is a second long.
        assert!((Rate::kbps(590)..=Rate::kbps(665)).contains(&tenth), "{tenth}");
        let held = run(&mut little, 10..15, 8);
        assert_eq!(held, tenth);
        let mut much = estimator();
        let cut = run(&mut much, 0..1, 20);
        // 51/256 of the packets are lost. The rate is reduced by half of that share.
        assert_eq!(cut, Rate::from_bps_f64(300_000.0 * (1.0 - 51.0 / 512.0)));
        let again = run(&mut much, 1..4, 20);
        assert_eq!(again.as_bps() / 100, (cut.as_bps_f64() * libm::pow(1.0 - 51.0 / 512.0, 3.0)) as u64 / 100);
    }

    #[test]
    fn a_fraction_needs_twenty_packets_and_is_forgotten_after_six_seconds() {
        let mut few = estimator();
        few.on_loss(at(0), 19, 19);
        few.update(at(25), None);
        assert_eq!((few.target, few.fraction), (Rate::kbps(300), 0.0));
        few.on_loss(at(50), 0, 19);
        assert_eq!(few.fraction, 0.5);
        few.update(at(75), None);
        let cut = few.target;
        for ms in (6_100..20_000).step_by(25) {
            few.update(at(ms), None);
        }
        assert_eq!((few.target, few.rule), (cut, "loss report too old: held"));
    }

    #[test]
    fn without_loss_the_start_follows_the_estimate_by_delay_and_never_exceeds_it() {
        let mut start = estimator();
        start.set_delay_based(Rate::mbps(2));
        start.on_loss(at(0), 0, 100);
        start.update(at(10), None);
        assert_eq!(start.target, Rate::mbps(2));
        start.set_delay_based(Rate::kbps(700));
        start.update(at(20), None);
        assert_eq!((start.target, start.rule), (Rate::kbps(700), "delay"));
    }

    #[test]
    fn silence_while_sending_takes_a_fifth_each_second_after_three_seconds_also_from_the_first_packet_on() {
        for heard in [true, false] {
            let mut silent = estimator();
            silent.on_sent(at(0));
            if heard {
                silent.on_rtt(at(0), Span::millis(100));
            }
            let mut step = |from: u64, to: u64| {
                for ms in (from..to).step_by(25) {
                    silent.on_sent(at(ms));
                    silent.update(at(ms), None);
                }
                silent.target
            };
            assert_eq!(step(25, 2_900), Rate::kbps(300));
            assert_eq!(step(2_900, 3_100), Rate::kbps(240));
            assert_eq!(step(3_100, 5_100), Rate::from_bps_f64(300_000.0 * 0.512));
            assert_eq!(step(5_100, 40_000), Rate::kbps(5));
        }
    }
}
