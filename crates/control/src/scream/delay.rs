use super::Config;
use super::constants::{
    DRIFT_GAIN, JITTER_EXTREMES_GAIN, JITTER_GAIN, JITTER_THRESHOLD, QDELAY_GAIN, QDELAY_TARGET_MOST,
};
use std::collections::VecDeque;

/// Number of samples from which the variance of the normalized queueing delay is computed (RFC 8298, section 4.1.2.3).
const VARIANCE_OVER: usize = 200;
/// Number of samples from which the mean of the normalized queueing delay is computed (RFC 8298, section 4.1.2.3).
const MEAN_OVER: usize = 50;
/// If the mean fraction of round trips with a loss exceeds this value, other flows are assumed to compete.
const COMPETING_LOSS: f64 = 0.002;
/// Weight of a new round trip in the mean fraction of round trips with a loss.
const LOSS_EVENT_GAIN: f64 = 0.02;
/// Weight of a new value in the bias while the bias rises (EricssonResearch/scream).
const BIAS_GAIN: f64 = 0.125;

#[derive(Clone, Debug, Default)]
pub(super) struct Delay {
    /// The queueing delay target in seconds. Competing flows may raise it.
    pub(super) target: f64,
    pub(super) latest: f64,
    pub(super) mean: f64,
    /// A factor in [0, 1] that slows the growth of the window. It falls with delay variation.
    pub(super) scale: f64,
    highest: f64,
    lowest: f64,
    deviation: f64,
    /// The minimum queueing delay in the current round trip, in seconds.
    round_least: Option<f64>,
    /// The slow moving average of the round trips' minimum queueing delays, in seconds.
    standing: f64,
    /// The bias that is subtracted from queueing delay samples, in seconds.
    bias: f64,
    /// The minimum queueing delay since the last update of the bias, in seconds.
    bias_least: f64,
    /// Number of round trips since the last update of the bias.
    bias_rounds: u32,
    history: VecDeque<f64>,
    loss_events: f64,
}

impl Delay {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            target: config.qdelay_target,
            scale: 1.0,
            highest: config.qdelay_target,
            bias_least: f64::INFINITY,
            ..Self::default()
        }
    }

    pub(super) fn sample(&mut self, qdelay: f64) {
        self.latest = qdelay;
        self.extreme(qdelay);
        self.round_least = Some(self.round_least.map_or(qdelay, |least| least.min(qdelay)));
    }

    /// Records a queueing delay that is used only to measure the delay variation.
    pub(super) fn extreme(&mut self, qdelay: f64) {
        self.highest = self.target.min(self.highest.max(qdelay));
        self.lowest = self.lowest.min(qdelay);
    }

    /// Updates the filters. Called at most once per `cut_interval` or smoothed round-trip time, whichever is shorter.
    pub(super) fn filter(&mut self, config: &Config) {
        let qdelay = self.latest - self.bias;
        // Follow a falling delay at once, because a queue that has drained must not reduce the window.
        if qdelay < self.mean {
            self.mean = qdelay;
        } else {
            self.mean += QDELAY_GAIN * (qdelay - self.mean);
        }
        if config.reduce_jitter {
            self.highest *= 1.0 - JITTER_EXTREMES_GAIN;
            self.lowest += JITTER_EXTREMES_GAIN * (self.highest - self.lowest);
            let variation = (self.highest - self.lowest).min(config.profile.jitter_most);
            self.deviation += JITTER_GAIN * (variation - self.deviation);
            self.scale = (1.0 - self.deviation / JITTER_THRESHOLD.as_secs_f64()).clamp(0.0, 1.0);
        }
        if config.compete {
            self.compete(config);
        }
    }

    /// Ends a round trip. `lost` tells whether it had a loss. Returns whether there is a standing queue that must be
    /// drained.
    pub(super) fn round(&mut self, lost: bool, config: &Config) -> bool {
        self.loss_events += LOSS_EVENT_GAIN * (f64::from(u8::from(lost)) - self.loss_events);
        let Some(least) = self.round_least.take() else { return false };
        self.bias_least = self.bias_least.min(least);
        self.bias_rounds += 1;
        if self.bias_rounds >= config.profile.bias_rounds {
            self.bias = self.bias_least.min(self.bias + BIAS_GAIN * (self.bias_least - self.bias));
            (self.bias_rounds, self.bias_least) = (0, f64::INFINITY);
        }
        self.standing += DRIFT_GAIN * (least - self.standing);
        // If the mean of the minima exceeds a quarter of the target, the queue does not drain by itself. It is a
        // standing queue.
        let stands = self.standing > self.target / 4.0;
        if stands {
            (self.standing, self.mean, self.bias) = (0.0, 0.0, 0.0);
        }
        stands
    }

    /// Adapts the target to competing flows that keep the queue long (RFC 8298, section 4.1.2.3).
    fn compete(&mut self, config: &Config) {
        self.history.push_front(self.latest / config.qdelay_target);
        self.history.truncate(VARIANCE_OVER);
        let mean = |over: usize| {
            let n = self.history.len().min(over);
            self.history.iter().take(n).sum::<f64>() / n as f64
        };
        let all = mean(VARIANCE_OVER);
        let squares: f64 = self.history.iter().map(|n| (n - all) * (n - all)).sum();
        let variance = squares / self.history.len() as f64;
        let new = (mean(MEAN_OVER) + variance.sqrt()) * config.qdelay_target;
        // Raise the target most if there are losses, because another flow then fills the queue.
        let target = if self.loss_events > COMPETING_LOSS {
            1.5 * new
        // The delay hardly varies, so there is a standing queue. Follow it.
        } else if variance < 0.2 {
            new
        // The delay is below the configured target. Let the raised target fall back fast.
        } else if new < config.qdelay_target {
            new.max(self.target / 2.0)
        } else {
            0.9 * self.target
        };
        let most = QDELAY_TARGET_MOST.as_secs_f64().max(config.qdelay_target);
        self.target = target.clamp(config.qdelay_target, most);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, config_of};
    use super::*;

    #[test]
    fn the_mean_rises_by_a_quarter_and_falls_at_once() {
        let config = config();
        let mut delay = Delay::new(&config);
        let mut after = |qdelay: f64| {
            delay.sample(qdelay);
            delay.filter(&config);
            delay.mean
        };
        assert_eq!([after(0.04), after(0.04), after(0.01), after(0.0)], [0.01, 0.0175, 0.01, 0.0]);
    }

    #[test]
    fn a_delay_that_varies_by_ten_milliseconds_leaves_no_growth_and_a_steady_one_all() {
        let mut config = config();
        config.reduce_jitter = true;
        let mut delay = Delay::new(&config);
        let mut run = |steps: usize, qdelay: fn(usize) -> f64| {
            for i in 0..steps {
                delay.sample(qdelay(i));
                delay.filter(&config);
            }
            delay.scale
        };
        assert_eq!(run(1_000, |i| if i % 4 == 0 { 0.05 } else { 0.0 }), 0.0);
        let steady = run(1_000, |_| 0.005);
        assert!((0.9..=1.0).contains(&steady), "{steady}");
    }

    #[test]
    fn the_code_counts_from_a_mean_of_the_minima_of_a_hundred_round_trips() {
        let config = config_of("code");
        let mut delay = Delay::new(&config);
        let mut after = |rounds: usize, qdelay: f64| {
            for _ in 0..rounds {
                delay.sample(qdelay);
                delay.round(false, &config);
            }
            delay.bias
        };
        assert_eq!([after(99, 0.008), after(1, 0.016), after(100, 0.0005)], [0.0, 0.001, 0.0005]);
    }

    #[test]
    fn a_queue_that_stands_for_hundreds_of_round_trips_is_to_be_drained() {
        let config = config();
        let mut delay = Delay::new(&config);
        let rounds = (1..2_000).find(|_| {
            delay.sample(0.03);
            delay.round(false, &config)
        });
        // The smallest n for which 30 ms (1 − (255/256)ⁿ) > 15 ms is 178.
        assert_eq!(rounds, Some(178));
        let mut low = Delay::new(&config);
        assert!((0..2_000).all(|_| {
            low.sample(0.014);
            !low.round(false, &config)
        }));
    }

    #[test]
    fn beside_flows_that_hold_the_queue_high_the_target_follows_up_to_its_limit() {
        let mut config = config();
        config.compete = true;
        let mut delay = Delay::new(&config);
        for _ in 0..300 {
            delay.sample(0.2);
            delay.round(false, &config);
            delay.filter(&config);
        }
        assert!((0.19..=0.21).contains(&delay.target), "{}", delay.target);
        for _ in 0..300 {
            delay.sample(0.5);
            delay.round(true, &config);
            delay.filter(&config);
        }
        assert_eq!(delay.target, 0.4);
        for _ in 0..900 {
            delay.sample(0.0);
            delay.round(false, &config);
            delay.filter(&config);
        }
        assert_eq!(delay.target, 0.06);
    }
}
