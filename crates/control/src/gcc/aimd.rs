//! Computes the delay-based rate (libwebrtc, `aimd_rate_control.cc`, `link_capacity_estimator.cc`).

use super::Config;
use super::constants::{BETA, ETA};
use super::trendline::BandwidthUsage;
use steadycast_units::{Rate, Span, Time};

/// Weight of a new capacity sample in the mean.
const ALPHA: f64 = 0.05;
/// Lower limit of [`LinkCapacity::variance`], in kb/s.
const LEAST_VARIANCE: f64 = 0.4;
/// Upper limit of [`LinkCapacity::variance`], in kb/s.
const MOST_VARIANCE: f64 = 2.5;
/// The rate may grow to the acknowledged rate times this factor, plus [`ABOVE`].
const ABOVE_ACKNOWLEDGED: f64 = 1.5;
/// Added to the acknowledged rate times [`ABOVE_ACKNOWLEDGED`].
const ABOVE: Rate = Rate::kbps(10);
/// A decrease sets the rate to the acknowledged rate times [`BETA`], minus this rate.
const BELOW: Rate = Rate::kbps(5);
/// Minimum amount by which the rate grows in a multiplicative increase, in bit/s.
const LEAST_STEP: f64 = 1_000.0;
/// Minimum speed at which the rate grows in an additive increase, in bit/s per second.
const LEAST_SLOPE: f64 = 4_000.0;
/// Assumed frame rate. The assumed packet size follows from it.
const FRAMES_PER_S: f64 = 30.0;
/// Maximum of the assumed packet size, in bytes. A frame is assumed to be divided into packets of equal size.
const PACKET: f64 = 1_200.0;
/// Assumed time until overuse is detected.
const DETECTION: Span = Span::millis(100);
/// Round-trip time that is assumed before the first measurement.
const FIRST_RTT: Span = Span::millis(200);
/// Minimum interval between two decreases. A shorter round-trip time is replaced by this interval.
const LEAST_INTERVAL: Span = Span::millis(10);
/// Maximum of the interval that has to pass between two decreases. A longer round-trip time is replaced by it.
const MOST_INTERVAL: Span = Span::millis(200);

/// Estimate of the link's capacity. It is computed from the acknowledged rates at which overuse was detected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkCapacity {
    /// Mean of the acknowledged rates at overuse, in kb/s.
    estimate: Option<f64>,
    /// Variance of these rates divided by their mean, in kb/s.
    variance: f64,
}

impl LinkCapacity {
    fn kbps(rate: Rate) -> f64 {
        rate.as_bps_f64() / 1e3
    }

    fn deviation(&self) -> f64 {
        self.estimate.map_or(0.0, |estimate| (self.variance * estimate).sqrt())
    }

    fn known(&self) -> Option<Rate> {
        self.estimate.map(|kbps| Rate::from_bps_f64(kbps * 1e3))
    }

    /// Returns whether `rate` is more than three standard deviations above the estimate.
    fn is_exceeded_by(&self, rate: Rate) -> bool {
        self.estimate.is_some_and(|estimate| Self::kbps(rate) > estimate + 3.0 * self.deviation())
    }

    /// Returns whether `rate` is more than three standard deviations below the estimate.
    fn is_undercut_by(&self, rate: Rate) -> bool {
        self.estimate.is_some_and(|estimate| Self::kbps(rate) < estimate - 3.0 * self.deviation())
    }

    fn take(&mut self, rate: Rate) {
        let sample = Self::kbps(rate);
        let estimate = self.estimate.map_or(sample, |old| (1.0 - ALPHA) * old + ALPHA * sample);
        let error = estimate - sample;
        // The first sample has no error, so begin with the minimum variance.
        let before = if self.estimate.is_some() { self.variance } else { LEAST_VARIANCE };
        let variance = (1.0 - ALPHA) * before + ALPHA * error * error / estimate.max(1.0);
        *self = Self { estimate: Some(estimate), variance: variance.clamp(LEAST_VARIANCE, MOST_VARIANCE) };
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Hold,
    Increase,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aimd {
    config: Config,
    pub(super) rate: Rate,
    acknowledged: Rate,
    state: State,
    capacity: LinkCapacity,
    changed: Option<Time>,
    rtt: Span,
}

impl Aimd {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: *config, rate: config.start, acknowledged: config.start, rtt: FIRST_RTT, ..Self::default() }
    }

    pub(super) fn on_rtt(&mut self, rtt: Span) {
        self.rtt = rtt;
    }

    pub(super) fn set(&mut self, rate: Rate, now: Time) {
        self.rate = rate.clamp(self.config.floor, self.config.cap);
        self.changed = Some(now);
    }

    /// Returns whether the rate may be decreased now. This is so if a round trip has passed since the last change, or
    /// if the acknowledged rate is below half of the rate.
    pub(super) fn may_reduce(&self, now: Time, acknowledged: Option<Rate>) -> bool {
        let interval = self.rtt.clamp(LEAST_INTERVAL, MOST_INTERVAL);
        self.changed.is_none_or(|at| now.since(at) >= interval)
            || acknowledged.is_some_and(|acknowledged| acknowledged < self.rate.scale(0.5))
    }

    /// Updates the rate and the state according to the detected usage.
    ///
    /// ```text
    ///  usage       rate          state afterwards
    ///  overuse     decreases     hold
    ///  normal      increases     increase
    ///  underuse    unchanged     hold
    /// ```
    pub(super) fn update(&mut self, usage: BandwidthUsage, acknowledged: Option<Rate>, now: Time) {
        self.acknowledged = acknowledged.unwrap_or(self.acknowledged);
        match usage {
            BandwidthUsage::Over => self.decrease(now),
            BandwidthUsage::Under => self.state = State::Hold,
            BandwidthUsage::Normal => {
                // Do not count the time of a hold when the increase is computed, because the rate does not grow during
                // a hold.
                if self.state == State::Hold {
                    self.changed = Some(now);
                }
                self.state = State::Increase;
                self.increase(now);
            }
        }
        self.rate = self.rate.clamp(self.config.floor, self.config.cap);
    }

    fn increase(&mut self, now: Time) {
        // If the acknowledged rate is far above the estimate, the link's capacity has changed. Discard the estimate.
        if self.capacity.is_exceeded_by(self.acknowledged) {
            self.capacity = LinkCapacity::default();
        }
        let limit = self.acknowledged.scale(ABOVE_ACKNOWLEDGED) + ABOVE;
        let since = self.changed.replace(now).map(|at| now.since(at).as_secs_f64());
        // If the application limits the sender, the rate must not rise beyond what the sender has tested.
        if self.rate >= limit {
            return;
        }
        let rate = self.rate.as_bps_f64();
        let more = if self.capacity.estimate.is_some() {
            self.slope() * since.unwrap_or(0.0)
        } else {
            // If there was a pause, count at most one second of it.
            let factor = libm::pow(ETA, since.unwrap_or(1.0).min(1.0));
            (rate * (factor - 1.0)).max(LEAST_STEP)
        };
        self.rate = Rate::from_bps_f64(rate + more).min(limit);
    }

    /// Returns the speed at which the rate grows in an additive increase, in bit/s per second.
    ///
    /// ```text
    ///  max( 4000,  8 P / (2 (R + 100 ms)) ),   P = F / ⌈F / 1200⌉,   F = X / (8 · 30)
    /// ```
    ///
    /// X is the rate in bit/s, and R is the round-trip time. F is the size of a frame at 30 frames per second, in
    /// bytes. P is the size of a packet in bytes.
    fn slope(&self) -> f64 {
        let frame = self.rate.as_bytes_per_s() / FRAMES_PER_S;
        let packet = frame / (frame / PACKET).ceil().max(1.0);
        let response = (self.rtt + DETECTION).as_secs_f64() * 2.0;
        (8.0 * packet / response).max(LEAST_SLOPE)
    }

    fn decrease(&mut self, now: Time) {
        let mut to = self.acknowledged.scale(BETA);
        // Subtract a constant rate, so that the queue drains even if the rate is low (libwebrtc).
        if to > BELOW {
            to = to.saturating_sub(BELOW);
        }
        // After a probe, the acknowledged rate may be higher than the current rate. Then use the estimated capacity
        // instead.
        if to > self.rate {
            to = self.capacity.known().map_or(to, |capacity| capacity.scale(BETA));
        }
        self.rate = self.rate.min(to);
        // If the acknowledged rate is far below the estimate, the link's capacity has changed. Discard the estimate.
        if self.capacity.is_undercut_by(self.acknowledged) {
            self.capacity = LinkCapacity::default();
        }
        self.capacity.take(self.acknowledged);
        (self.state, self.changed) = (State::Hold, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn capacity_is_a_slow_mean_with_a_bounded_deviation() {
        let mut capacity = LinkCapacity::default();
        let reported: Vec<_> = [1_000, 900, 950]
            .into_iter()
            .map(|kbps| {
                capacity.take(Rate::kbps(kbps));
                let round = |x: f64| (x * 100.0).round() / 100.0;
                (round(capacity.estimate.unwrap()), round(capacity.deviation()))
            })
            .collect();
        assert_eq!(reported, [(1000.0, 20.0), (995.0, 28.8), (992.75, 29.62)]);
        assert!(!capacity.is_exceeded_by(Rate::kbps(1_081)) && capacity.is_exceeded_by(Rate::kbps(1_082)));
        assert!(!capacity.is_undercut_by(Rate::kbps(904)) && capacity.is_undercut_by(Rate::kbps(903)));
    }

    #[test]
    fn the_additive_increase_is_half_a_packet_per_response_time() {
        let slope = |kbps, ms| {
            let mut aimd = Aimd::new(&config());
            (aimd.rate, aimd.rtt) = (Rate::kbps(kbps), Span::millis(ms));
            aimd.slope().round()
        };
        let short = [100, 300, 1_000, 2_500].map(|kbps| slope(kbps, 50));
        let long = [100, 300, 1_000, 2_500].map(|kbps| slope(kbps, 200));
        assert_eq!(short, [11_111.0, 16_667.0, 27_778.0, 30_864.0]);
        assert_eq!(long, [5_556.0, 8_333.0, 13_889.0, 15_432.0]);
        assert_eq!(slope(10, 200), 4_000.0);
    }

    /// After overuse, the rate rises from 0.85 of the link's rate to the whole rate. This takes the time (1 − β) · link
    /// rate / slope.
    #[test]
    fn a_cycle_uses_0_925_of_a_fast_link_and_takes_the_longer_the_faster_that_is() {
        for (mbps, slope) in [(20, 26_667.0), (100, 26_667.0)] {
            let link = Rate::mbps(mbps);
            let mut aimd = Aimd::new(&Config { start: link, cap: Rate::mbps(1_000), ..config() });
            aimd.on_rtt(Span::millis(80));
            let (mut ms, mut falls, mut used) = (0, Vec::new(), Vec::new());
            while falls.len() < 3 {
                let usage = if aimd.rate > link { BandwidthUsage::Over } else { BandwidthUsage::Normal };
                falls.extend((usage == BandwidthUsage::Over).then_some(ms));
                aimd.update(usage, Some(aimd.rate.min(link)), at(ms));
                used.extend((falls.len() == 2).then(|| aimd.rate.ratio(link)));
                ms += 50;
            }
            let share = used.iter().sum::<f64>() / used.len() as f64;
            assert!((0.92..=0.93).contains(&share), "{mbps} Mb/s: {share}");
            let (takes, by_law) = ((falls[2] - falls[1]) as f64 / 1e3, 0.15 * link.as_bps_f64() / slope);
            assert!((takes / by_law - 1.0).abs() < 0.05, "{mbps} Mb/s: {takes} s, and {by_law} s by the law");
        }
    }

    #[test]
    fn without_a_capacity_the_rate_rises_by_eight_percent_a_second_and_no_further_than_half_above_what_came_through() {
        let mut aimd = Aimd::new(&config());
        for ms in (0..=1_000).step_by(50) {
            aimd.update(BandwidthUsage::Normal, Some(Rate::kbps(280)), at(ms));
        }
        let second = aimd.rate;
        assert!((Rate::kbps(323)..=Rate::kbps(326)).contains(&second), "{second}");
        for ms in (1_000..20_000).step_by(50) {
            aimd.update(BandwidthUsage::Normal, Some(Rate::kbps(280)), at(ms));
        }
        assert_eq!(aimd.rate, Rate::kbps(430));
        // A rise from 300 kb/s to 2.5 Mb/s at 8 % per second takes ln(8.33)/ln(1.08) = 27.6 s, if the acknowledged rate
        // follows.
        let mut alone = Aimd::new(&config());
        let mut ms = 0;
        while alone.rate < Rate::kbps(2_500) {
            alone.update(BandwidthUsage::Normal, Some(alone.rate), at(ms));
            ms += 50;
        }
        assert!((26_500..=28_500).contains(&ms), "{ms}");
    }

    #[test]
    fn overuse_goes_to_below_what_came_through_and_the_next_rise_is_additive() {
        let mut aimd = Aimd::new(&Config { start: Rate::kbps(1_200), ..config() });
        aimd.on_rtt(Span::millis(50));
        aimd.update(BandwidthUsage::Over, Some(Rate::kbps(1_000)), at(1_000));
        assert_eq!(aimd.rate, Rate::kbps(845));
        assert!(
            !aimd.may_reduce(at(1_049), Some(Rate::kbps(800))) && aimd.may_reduce(at(1_050), Some(Rate::kbps(800)))
        );
        assert!(aimd.may_reduce(at(1_001), Some(Rate::kbps(400))));
        aimd.update(BandwidthUsage::Under, Some(Rate::kbps(990)), at(1_100));
        assert_eq!(aimd.rate, Rate::kbps(845));
        aimd.update(BandwidthUsage::Normal, Some(Rate::kbps(990)), at(1_200));
        aimd.update(BandwidthUsage::Normal, Some(Rate::kbps(990)), at(2_200));
        let risen = aimd.rate.saturating_sub(Rate::kbps(845));
        assert!((Rate::kbps(22)..=Rate::kbps(32)).contains(&risen), "{risen}");
        // Overuse never raises the rate, even if the acknowledged rate is higher.
        let before = aimd.rate;
        aimd.update(BandwidthUsage::Over, Some(Rate::kbps(1_400)), at(3_000));
        assert!(aimd.rate <= before);
        // The acknowledged rate far exceeds the estimate of the capacity. So the estimate is discarded, and the
        // increase is multiplicative again.
        aimd.update(BandwidthUsage::Normal, Some(Rate::mbps(3)), at(3_100));
        assert!(aimd.capacity.estimate.is_none());
    }
}
