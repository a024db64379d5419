//! Computes the loss-based estimate v2 (libwebrtc, `loss_based_bwe_v2.cc`). It fits a model of a channel. The channel
//! loses a share i of all packets, called the inherent loss. If the send rate s exceeds the bandwidth B, the channel
//! also loses the excess. p is the share of lost packets.
//!
//! ```text
//!  p(s) = i                               s ≤ B
//!  p(s) = i + (1 − i) (s − B) / s         s > B
//! ```

use std::collections::VecDeque;
use steadycast_settings::words;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Minimum duration of an observation.
const OBSERVATION: Span = Span::millis(250);
/// Number of observations that are kept.
const OBSERVATIONS: usize = 15;
/// Factor by which the weight of an observation falls with each newer observation.
const WEIGHT: f64 = 0.9;
/// Minimum number of observations that an estimate needs.
pub(super) const REQUIRED: u64 = 3;
/// Bandwidths that are tried, as multiples of the current estimate.
const CANDIDATES: [f64; 3] = [1.02, 1.0, 0.95];
/// Inherent loss that the model begins with.
const FIRST_INHERENT: f64 = 0.01;
/// Minimum inherent loss.
const LEAST_INHERENT: f64 = 1e-3;
/// The inherent loss is at most this offset, plus [`BALANCE`] divided by the bandwidth.
const INHERENT_OFFSET: f64 = 0.05;
/// This rate is divided by the bandwidth or by a loss. See [`INHERENT_OFFSET`] and [`INSTANT_OFFSET`].
const BALANCE: Rate = Rate::kbps(100);
const NEWTON: f64 = 0.75;
/// How strongly a higher bandwidth is preferred, per kb/s.
const BIAS: f64 = 0.000_2;
/// How strongly a higher bandwidth is preferred, per unit of the logarithm of the bandwidth in kb/s.
const LOG_BIAS: f64 = 0.02;
/// Above this loss, a lower bandwidth is preferred instead of a higher bandwidth.
const BIAS_UNTIL: f64 = 0.2;
/// At this distance from [`BIAS_UNTIL`], the preference has half of its full strength.
const BIAS_SMOOTHING: f64 = 0.002;
/// Maximum factor by which the bandwidth rises per [`WINDOW`] while loss limits it.
const MOST_RISE: f64 = 1.3;
const WINDOW: Span = Span::millis(300);
/// While loss limits the bandwidth, it is at most the acknowledged rate times this factor.
const ABOVE_ACKNOWLEDGED: f64 = 1.5;
/// This factor replaces [`ABOVE_ACKNOWLEDGED`] for some time after a decrease. [`HELD`] defines this time.
const ABOVE_ACKNOWLEDGED_HELD: f64 = 1.2;
/// [`ABOVE_ACKNOWLEDGED_HELD`] is used until the acknowledged rate reaches the decreased rate times this factor.
const HELD: f64 = 1.3;
/// Above this loss, the bandwidth is at most [`BALANCE`] divided by the difference between the loss and this value.
const INSTANT_OFFSET: f64 = 0.05;
/// Time for which the rate is held after the first decrease. It doubles with each decrease.
const FIRST_HOLD: Span = Span::millis(300);
/// Maximum time for which the rate is held after a decrease.
const LONGEST_HOLD: Span = Span::secs(60);
/// The observation with the highest loss is ignored if its send rate is below the median send rate times this factor.
/// At this send rate or a higher one, congestion has caused the loss.
const BURST: f64 = 2.0;
/// For this time after a rise begins, the acknowledged rate is tried as the bandwidth even if the application limits
/// the rate.
const RISING: Span = Span::secs(2);
const LEAST_P: f64 = 1e-6;

words! {
    /// The rule that determined the estimate. Its text explains the decision to the user.
    #[derive(Default)]
    pub(super) enum State {
        #[default]
        DelayBased = "delay",
        Increasing = "loss model: increased",
        Decreasing = "loss model: reduced",
    }
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    rate: f64,
    size: f64,
    lost: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    size: Bytes,
    lost: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    until: Option<Time>,
    length: Span,
    rate: Option<f64>,
}

const NO_HOLD: Hold = Hold { until: None, length: FIRST_HOLD, rate: None };

/// Parameters of the model: the inherent loss, and the bandwidth in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ChannelParameters {
    inherent: f64,
    bandwidth: f64,
}

impl ChannelParameters {
    fn loss_at(&self, rate: f64) -> f64 {
        let above = if rate > self.bandwidth { (1.0 - self.inherent) * (rate - self.bandwidth) / rate } else { 0.0 };
        (self.inherent + above).clamp(LEAST_P, 1.0 - LEAST_P)
    }

    fn feasible(self) -> Self {
        let most = if self.bandwidth > 0.0 { INHERENT_OFFSET + BALANCE.as_bps_f64() / self.bandwidth } else { 1.0 };
        Self { inherent: self.inherent.max(LEAST_INHERENT).min(most.min(1.0)), ..self }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    /// Bytes that were reported for the first time, either as arrived or as missing.
    pub(super) size: Bytes,
    /// Bytes that were reported for the first time, and as missing.
    pub(super) lost: Bytes,
    /// Bytes that were reported as missing before, and have now arrived.
    pub(super) recovered: Bytes,
    pub(super) first: Time,
    pub(super) last: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LossV2 {
    floor: f64,
    cap: f64,
    observations: VecDeque<Observation>,
    count: u64,
    partial: Partial,
    /// Send time of the last packet in the newest observation.
    seen: Option<Time>,
    best: Option<ChannelParameters>,
    acknowledged: Option<f64>,
    /// Mean loss of the observations, weighted by bytes.
    pub(super) loss: f64,
    pub(super) state: State,
    result: f64,
    hold: Hold,
    /// When the current window began, and the limit of the bandwidth in this window in bit/s.
    window: Option<(Time, f64)>,
    rising: Option<(Time, f64)>,
}

impl LossV2 {
    pub(super) fn new(floor: Rate, cap: Rate) -> Self {
        Self { floor: floor.as_bps_f64(), cap: cap.as_bps_f64(), hold: NO_HOLD, ..Self::default() }
    }

    pub(super) fn result(&self) -> Option<Rate> {
        (self.best.is_some() && self.count >= REQUIRED).then(|| Rate::from_bps_f64(self.result))
    }

    /// Processes a report. `alr` is whether the application limits the rate.
    pub(super) fn update(&mut self, batch: &Batch, acknowledged: Option<Rate>, by_delay: Rate, alr: bool) {
        self.acknowledged = acknowledged.map(Rate::as_bps_f64).or(self.acknowledged);
        let by_delay = by_delay.as_bps_f64();
        let Some(now) = self.observe(batch) else { return };
        let old = *self.best.get_or_insert(ChannelParameters { inherent: FIRST_INHERENT, bandwidth: by_delay });
        if self.count == 1 {
            self.result = by_delay;
        }
        let mut best = self.candidates(old, by_delay, alr, now).map_or(old, |(channel, _)| channel);
        // If more is lost than the model explains, do not raise the bandwidth.
        if self.loss > best.inherent && best.bandwidth > old.bandwidth {
            best.bandwidth = old.bandwidth;
        }
        if self.is_limited() {
            self.bound_rise(&mut best, &old, now);
        }
        let least = self.least();
        let bounded = best.bandwidth.min(self.instant_bound()).min(by_delay).max(least);
        self.best = Some(if bounded < best.bandwidth {
            // If the bandwidth is limited, fit the inherent loss anew, as libwebrtc does.
            ChannelParameters { inherent: 0.0, bandwidth: bounded }
        } else {
            ChannelParameters { bandwidth: best.bandwidth.max(least), ..best }
        });
        self.conclude(bounded, by_delay, now);
    }

    fn is_limited(&self) -> bool {
        self.state != State::DelayBased
    }

    fn least(&self) -> f64 {
        self.acknowledged.unwrap_or(0.0).max(self.floor)
    }

    fn instant_bound(&self) -> f64 {
        instant_bound(self.loss, self.cap)
    }

    /// Adds a report to the current observation. If this completes the observation, returns when it ended.
    fn observe(&mut self, batch: &Batch) -> Option<Time> {
        if batch.size == Bytes::ZERO && batch.recovered == Bytes::ZERO {
            return None;
        }
        self.partial.size += batch.size;
        self.partial.lost = (self.partial.lost + batch.lost).saturating_sub(batch.recovered);
        // Packets that arrived late do not extend the observation.
        if batch.size == Bytes::ZERO {
            return None;
        }
        let seen = *self.seen.get_or_insert(batch.first);
        let span = batch.last.since(seen);
        if span < OBSERVATION {
            return None;
        }
        let Partial { size, lost } = std::mem::take(&mut self.partial);
        self.seen = Some(batch.last);
        let rate = size.per(span).as_bps_f64();
        self.observations.push_back(Observation {
            rate,
            size: size.as_f64() / 1e3,
            lost: lost.min(size).as_f64() / 1e3,
        });
        if self.observations.len() > OBSERVATIONS {
            self.observations.pop_front();
        }
        self.count += 1;
        self.loss = self.mean_loss();
        Some(batch.last)
    }

    fn weighted(&self) -> impl Iterator<Item = (f64, &Observation)> {
        self.observations.iter().rev().enumerate().map(|(age, seen)| (libm::pow(WEIGHT, age as f64), seen))
    }

    /// Returns the mean loss, weighted by bytes.
    ///
    /// If there are more than three observations, the two with the lowest and the highest loss are left out. This is
    /// not done if the observation with the highest loss is a burst ([`BURST`]).
    fn mean_loss(&self) -> f64 {
        let share = |seen: &Observation| if seen.size > 0.0 { seen.lost / seen.size } else { 0.0 };
        let (mut size, mut lost) = (0.0, 0.0);
        let (mut best, mut worst) = ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0));
        let mut worst_rate = 0.0;
        for (weight, seen) in self.weighted() {
            let part = (share(seen), weight * seen.size, weight * seen.lost);
            size += part.1;
            lost += part.2;
            if part.0 < best.0 {
                best = part;
            }
            if part.0 > worst.0 {
                (worst, worst_rate) = (part, seen.rate);
            }
        }
        let mut rates: Vec<f64> = self.observations.iter().map(|seen| seen.rate).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        let burst = worst_rate > 0.0 && worst_rate >= BURST * median;
        if self.observations.len() > 3 && !burst {
            let rest = size - best.1 - worst.1;
            if rest > 0.0 {
                return ((lost - best.2 - worst.2) / rest).clamp(0.0, 1.0);
            }
        }
        if size > 0.0 { (lost / size).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Improves each candidate by a step of Newton's method. Returns the best candidate and the value of its objective.
    fn candidates(
        &self,
        old: ChannelParameters,
        by_delay: f64,
        alr: bool,
        now: Time,
    ) -> Option<(ChannelParameters, f64)> {
        let most = self.window.filter(|_| self.is_limited()).map_or(self.cap, |(_, limit)| limit).max(old.bandwidth);
        let rising = self.rising.is_some_and(|(at, _)| now.since(at) <= RISING);
        let acknowledged = self.acknowledged.filter(|_| !alr || rising);
        let by_delay = Some(by_delay).filter(|rate| *rate > old.bandwidth);
        let shares = CANDIDATES.into_iter().map(|share| share * old.bandwidth);
        let mut best: Option<(ChannelParameters, f64)> = None;
        for bandwidth in shares.chain(acknowledged).chain(by_delay) {
            let channel = self.newton(ChannelParameters { bandwidth: bandwidth.min(most), ..old }.feasible());
            let objective = self.objective(&channel);
            if best.is_none_or(|(_, most)| objective > most) {
                best = Some((channel, objective));
            }
        }
        best
    }

    fn newton(&self, channel: ChannelParameters) -> ChannelParameters {
        let (mut first, mut second) = (0.0, 0.0);
        for (weight, seen) in self.weighted() {
            let p = channel.loss_at(seen.rate);
            let got = seen.size - seen.lost;
            first += weight * (seen.lost / p - got / (1.0 - p));
            second -= weight * (seen.lost / (p * p) + got / ((1.0 - p) * (1.0 - p)));
        }
        // Limit the second derivative, so that it is below zero in spite of rounding errors.
        let second = second.min(-1e-6);
        ChannelParameters { inherent: channel.inherent - NEWTON * first / second, ..channel }.feasible()
    }

    /// Returns the weighted log-likelihood of the observations, plus the preference for a bandwidth.
    fn objective(&self, channel: &ChannelParameters) -> f64 {
        let distance = BIAS_UNTIL - self.loss;
        let towards = distance / (BIAS_SMOOTHING + distance.abs());
        let kbps = channel.bandwidth / 1e3;
        let bias = towards * (BIAS * kbps + LOG_BIAS * libm::log(1.0 + kbps));
        self.weighted().fold(0.0, |sum, (weight, seen)| {
            let p = channel.loss_at(seen.rate);
            let likelihood = seen.lost * libm::log(p) + (seen.size - seen.lost) * libm::log(1.0 - p);
            sum + weight * (likelihood + bias * seen.size)
        })
    }

    fn is_rise(&self, old: f64, new: f64) -> bool {
        self.is_limited() && (old < new || (old == new && self.state == State::Increasing))
    }

    fn bound_rise(&self, best: &mut ChannelParameters, old: &ChannelParameters, now: Time) {
        if let Some((_, limit)) = self.window.filter(|(began, _)| *began + WINDOW > now) {
            best.bandwidth = best.bandwidth.min(limit);
        }
        let Some(acknowledged) = self.acknowledged.filter(|_| self.is_rise(old.bandwidth, best.bandwidth)) else {
            return;
        };
        // After a decrease, limit the rise more strictly until the acknowledged rate clearly exceeds the decreased
        // rate.
        let held = self.hold.rate.is_some_and(|rate| acknowledged < HELD * rate);
        let factor = if held { ABOVE_ACKNOWLEDGED_HELD } else { ABOVE_ACKNOWLEDGED };
        best.bandwidth = best.bandwidth.min(factor * acknowledged).max(old.bandwidth);
        if self.state == State::Decreasing && best.bandwidth == old.bandwidth {
            // Add 1 bit/s, because the state would otherwise remain `Decreasing`.
            best.bandwidth += 1.0;
        }
    }

    fn conclude(&mut self, bounded: f64, by_delay: f64, now: Time) {
        if self.state == State::Decreasing && self.hold.until.is_some_and(|until| until > now) && bounded < by_delay {
            let rate = self.hold.rate.map(|rate| rate.max(self.least()));
            self.hold.rate = rate;
            self.result = rate.map_or(bounded, |rate| rate.min(bounded));
            return;
        }
        let limits = bounded < by_delay && bounded < self.cap;
        if limits && self.is_rise(self.result, bounded) && self.may_go_on_rising(bounded, now) {
            if self.rising.is_none_or(|(_, rate)| bounded > rate) {
                self.rising = Some((now, bounded));
            }
            self.state = State::Increasing;
        } else if limits {
            if self.state != State::Decreasing {
                // Double the hold time of the next decrease. If another decrease follows, the rate rose too early.
                let length = (self.hold.length * 2).min(LONGEST_HOLD);
                self.hold = Hold { until: Some(now + self.hold.length), length, rate: Some(bounded) };
            }
            (self.rising, self.state) = (None, State::Decreasing);
        } else {
            (self.hold, self.rising, self.state) = (NO_HOLD, None, State::DelayBased);
        }
        self.result = bounded;
        if self.is_limited() && self.window.is_none_or(|(began, _)| began + WINDOW < now) {
            let from = self.best.map_or(bounded, |best| best.bandwidth);
            self.window = Some((now, (from * MOST_RISE).max(self.floor)));
        }
    }

    /// Returns whether a rise may continue. It ends if it has gained nothing for the time `RISING`.
    fn may_go_on_rising(&self, bounded: f64, now: Time) -> bool {
        self.state != State::Increasing || self.rising.is_none_or(|(at, rate)| at + RISING >= now || rate < bounded)
    }
}

fn instant_bound(loss: f64, cap: f64) -> f64 {
    if loss > INSTANT_OFFSET { (BALANCE.as_bps_f64() / (loss - INSTANT_OFFSET)).min(cap) } else { cap }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGA: f64 = 1e6;

    #[test]
    fn loss_above_the_bandwidth_adds_to_the_inherent_one() {
        let channel = ChannelParameters { inherent: 0.01, bandwidth: 1_000.0 };
        assert!((channel.loss_at(1_500.0) - 0.34).abs() < 1e-12);
        assert_eq!(channel.loss_at(1_000.0), 0.01);
        assert_eq!(ChannelParameters { inherent: 0.0, ..channel }.loss_at(10.0), LEAST_P);
    }

    #[test]
    fn inherent_loss_and_the_instant_bound_depend_on_the_bandwidth_as_derived() {
        let most = |kbps: f64| ChannelParameters { inherent: 1.0, bandwidth: kbps * 1e3 }.feasible().inherent;
        let round = |x: f64| (x * 1e3).round() / 1e3;
        assert_eq!([300.0, 1_000.0, 3_000.0].map(|kbps| round(most(kbps))), [0.383, 0.15, 0.083]);
        let bound = [0.06, 0.1, 0.2, 0.5].map(|loss| (instant_bound(loss, 30.0 * MEGA) / 1e3).round());
        assert_eq!(bound, [10_000.0, 2_000.0, 667.0, 222.0]);
        assert_eq!(instant_bound(0.05, 30.0 * MEGA), 30.0 * MEGA);
    }

    /// Sends at a rate of `kbps`, and processes a report every 50 ms. A share `lost` of the bytes is lost. Returns the
    /// final estimate.
    fn run(model: &mut LossV2, ms: std::ops::Range<u64>, kbps: f64, lost: f64, by_delay: Rate) -> Rate {
        for at in ms.step_by(50) {
            let size = Bytes::new((kbps * 50.0 / 8.0).round() as u64);
            let lost = Bytes::new((size.as_f64() * lost).round() as u64);
            let first = Time::ZERO + Span::millis(at);
            let batch = Batch { size, lost, recovered: Bytes::ZERO, first, last: first + Span::millis(49) };
            let acknowledged = Rate::kbps(kbps as u64).scale(1.0 - lost.as_f64() / size.as_f64());
            model.update(&batch, Some(acknowledged), by_delay, false);
        }
        model.result().unwrap_or_default()
    }

    fn model() -> LossV2 {
        LossV2::new(Rate::kbps(5), Rate::mbps(30))
    }

    #[test]
    fn it_is_ready_after_three_observations_and_without_loss_the_delay_rules() {
        let mut model = model();
        assert_eq!(run(&mut model, 0..700, 500.0, 0.0, Rate::mbps(1)), Rate::ZERO);
        assert_eq!(run(&mut model, 700..3_000, 500.0, 0.0, Rate::mbps(1)), Rate::mbps(1));
        assert_eq!((model.state, model.loss), (State::DelayBased, 0.0));
    }

    #[test]
    fn heavy_loss_brings_the_rate_down_to_what_comes_through_and_not_below() {
        let mut model = model();
        run(&mut model, 0..2_000, 1_000.0, 0.0, Rate::kbps(1_200));
        let rate = run(&mut model, 2_000..8_000, 1_000.0, 0.5, Rate::kbps(1_200));
        assert!((Rate::kbps(500)..=Rate::kbps(510)).contains(&rate), "{rate}");
        assert_eq!(model.state, State::Decreasing);
        assert!((model.loss - 0.5).abs() < 0.01);
    }

    /// Like `run`, but after the first second sends at the rate that the model estimates. Returns the final rate.
    fn follow(model: &mut LossV2, seconds: u64, lost: f64, by_delay: Rate) -> Rate {
        let mut rate = run(model, 0..1_000, 500.0, lost, by_delay);
        for ms in (1_000..seconds * 1_000).step_by(50) {
            rate = run(model, ms..ms + 50, rate.as_bps_f64() / 1e3, lost, by_delay);
        }
        rate
    }

    #[test]
    fn random_loss_is_taken_for_inherent_and_costs_little() {
        for (lost, least) in [(0.005, 1_000), (0.01, 1_000), (0.02, 960), (0.05, 920), (0.1, 760)] {
            let mut model = model();
            let rate = follow(&mut model, 120, lost, Rate::mbps(1));
            assert!((Rate::kbps(least)..=Rate::mbps(1)).contains(&rate), "{lost}: {rate}");
            let inherent = model.best.map_or(0.0, |best| best.inherent);
            assert!((inherent - lost).abs() < 0.001, "{lost}: {inherent}");
        }
    }

    #[test]
    fn where_the_instant_bound_cuts_the_inherent_loss_is_learnt_anew() {
        let mut model = model();
        run(&mut model, 0..6_000, 1_000.0, 0.05, Rate::mbps(2));
        let inherent = |model: &LossV2| model.best.map_or(1.0, |best| best.inherent);
        assert!((0.04..0.06).contains(&inherent(&model)), "{}", inherent(&model));
        // The limit falls to 100 kb/s / 0.15. The acknowledged rate of 800 kb/s is above this limit.
        let each = (6_000..9_000).step_by(250);
        let after: Vec<_> = each
            .map(|ms| {
                run(&mut model, ms..ms + 250, 1_000.0, 0.2, Rate::mbps(2));
                inherent(&model)
            })
            .collect();
        assert!(after.contains(&0.0), "{after:?}");
    }

    #[test]
    fn after_loss_has_gone_the_rate_returns_to_what_the_delay_gives() {
        let mut model = model();
        run(&mut model, 0..2_000, 1_000.0, 0.0, Rate::kbps(1_200));
        run(&mut model, 2_000..4_000, 1_000.0, 0.5, Rate::kbps(1_200));
        let mut ms = 4_000;
        while model.state != State::DelayBased && ms < 40_000 {
            let rate = model.result().unwrap().as_bps_f64() / 1e3;
            run(&mut model, ms..ms + 500, rate, 0.0, Rate::kbps(1_200));
            ms += 500;
        }
        assert!((4_500..20_000).contains(&ms), "{ms} ms");
        assert_eq!(model.result(), Some(Rate::kbps(1_200)));
    }

    #[test]
    fn one_bad_observation_among_many_does_not_count_as_mean_loss() {
        let mut model = model();
        run(&mut model, 0..4_000, 500.0, 0.0, Rate::mbps(1));
        run(&mut model, 4_000..4_250, 500.0, 0.4, Rate::mbps(1));
        let rate = run(&mut model, 4_250..4_550, 500.0, 0.0, Rate::mbps(1));
        assert!(model.loss < 0.05, "{}", model.loss);
        assert!(rate >= Rate::kbps(500), "{rate}");
    }

    #[test]
    fn a_packet_that_came_after_all_is_not_lost() {
        let mut model = model();
        let at = |ms: u64| Time::ZERO + Span::millis(ms);
        let size = Bytes::new(10_000);
        let lost = Batch { size, lost: Bytes::new(4_000), recovered: Bytes::ZERO, first: at(0), last: at(50) };
        model.update(&lost, None, Rate::mbps(1), false);
        let rest = Batch { size, lost: Bytes::ZERO, recovered: Bytes::new(4_000), first: at(60), last: at(300) };
        model.update(&rest, None, Rate::mbps(1), false);
        assert_eq!((model.count, model.loss), (1, 0.0));
    }
}
