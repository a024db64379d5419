//! Estimators behind a law's verdict on its path: whether losses are random, a queue's or a policer's, and whether the
//! queue is the flow's own or shared with an elastic flow.

use super::packet::{Loss, drop_old};
use std::collections::VecDeque;

/// A loss that met a longer queue, in seconds, is a congestion loss at any rank.
pub(super) const CERTAIN_CONGESTION_QUEUE: f64 = 0.020;

/// The gain of the mean rank, per loss.
const RANK_GAIN: f64 = 0.125;
/// If the mean rank is above this, losses meet the top of a queue. Random losses have 0.5, tail drops nearly 1.
const CONGESTION_RANK_MIN: f64 = 0.68;
/// A congestion loss meets at least this queueing delay, in seconds, and that of a packet.
const CONGESTION_QUEUE_MIN: f64 = 0.003;
/// Losses closer together than this, in seconds, meet the same queue, so that each counts for less.
const INDEPENDENT_LOSS_TIME: f64 = 0.5;
/// Duration of the history of losses, in seconds.
const LOSS_HISTORY: f64 = 20.0;
/// Time for which losses are attributed to a policer after a trial has shown one, in seconds.
const POLICER_MEMORY: f64 = 120.0;
/// The natural logarithm of 1000: a significance test is wrong once in a thousand times.
const SIGNIFICANCE_LN: f64 = 6.907_755;
/// Losses of a lower mean rank come at any queue, as those of a radio do.
const RANDOM_RANK_MAX: f64 = 0.6;
/// The mean rank counts as known from this number of remembered losses on.
const RANDOM_LOSSES_MIN: f64 = 5.0;

/// Classifies losses: congestion losses come at the top of a queue, random ones at any queue.
#[derive(Clone, Debug)]
pub(super) struct LossClassifier {
    /// The mean rank of the queueing delay at losses: 0.5 if they are random.
    rank: f64,
    /// The times of recent losses and marks, in seconds.
    events: VecDeque<f64>,
    /// The time until which losses are taken for a policer's, and the rate of arrival, in bit/s, when that was shown.
    policed: (f64, f64),
}

impl LossClassifier {
    pub(super) fn new() -> Self {
        Self { rank: 0.5, events: VecDeque::new(), policed: (f64::MIN, 0.0) }
    }

    /// Records a loss. Returns true if it is a congestion loss: a queue exists, and losses meet a longer one than other
    /// packets do. `packet` is the time that the path takes to send a packet, in seconds.
    pub(super) fn on_loss(&mut self, now: f64, loss: &Loss, packet: f64) -> bool {
        // A burst of losses is one observation of the queue, not several independent ones.
        let since = self.events.back().map_or(f64::MAX, |at| now - at);
        self.rank += RANK_GAIN * (since / INDEPENDENT_LOSS_TIME).min(1.0) * (loss.rank - self.rank);
        self.note(now);
        self.is_policed(now) || self.rank > CONGESTION_RANK_MIN && loss.q > CONGESTION_QUEUE_MIN + packet
    }

    /// Takes losses for a policer's from now on: they ended when less was sent than `rate`, in bit/s.
    pub(super) fn set_policed(&mut self, now: f64, rate: f64) {
        self.policed = (now + POLICER_MEMORY, rate);
    }

    /// Whether losses are taken for a policer's. All of them are congestion losses then.
    pub(super) fn is_policed(&self, now: f64) -> bool {
        now < self.policed.0
    }

    /// Ends the verdict of a policer if a loss without a queue came at less than half of its rate: a policer passes
    /// everything below its rate.
    pub(super) fn refute_policer(&mut self, received: f64) {
        if received < 0.5 * self.policed.1 {
            self.policed = (f64::MIN, 0.0);
        }
    }

    /// Records a mark. A mark is always congestion, so it leaves the mean rank as it is.
    pub(super) fn note(&mut self, now: f64) {
        self.events.push_back(now);
        drop_old(&mut self.events, |at| *at < now - LOSS_HISTORY);
    }

    /// Whether at least `count` losses or marks came in the last `within` seconds.
    pub(super) fn has_losses(&self, now: f64, count: usize, within: f64) -> bool {
        self.events
            .len()
            .checked_sub(count)
            .and_then(|index| self.events.get(index))
            .is_some_and(|at| *at > now - within)
    }

    /// Whether `share` of `packets` packets lost is significantly more than a random loss rate of `at_most`, by
    /// Chernoff's bound of the binomial distribution's tail.
    pub(super) fn is_more(packets: u32, share: f64, at_most: f64) -> bool {
        share > at_most && Self::chernoff_exponent(packets, share, at_most) > SIGNIFICANCE_LN
    }

    /// Whether `share` of `packets` packets lost is significantly less than a random loss rate of `at_least`.
    pub(super) fn is_less(packets: u32, share: f64, at_least: f64) -> bool {
        share < at_least && Self::chernoff_exponent(packets, share, at_least) > SIGNIFICANCE_LN
    }

    /// Returns the number of packets times the Kullback-Leibler divergence of the two loss rates. The probability of
    /// the observation is at most e to the power of minus this.
    fn chernoff_exponent(packets: u32, share: f64, from: f64) -> f64 {
        let part = |of: f64, from: f64| if of > 0.0 { of * libm::log(of / from) } else { 0.0 };
        f64::from(packets) * (part(share, from) + part(1.0 - share, 1.0 - from))
    }

    /// Whether several recent losses came at any queue, as a radio's do.
    pub(super) fn is_random(&self) -> bool {
        self.rank < RANDOM_RANK_MAX && self.events.len() as f64 > RANDOM_LOSSES_MIN
    }
}

/// The half-life of the peak rate, in seconds.
const PEAK_RATE_HALF_LIFE: f64 = 60.0;
/// Its half-life while packets wait, in seconds: a new flow that stays may have taken the difference, so that the old
/// peak is no measure any more.
const QUEUED_PEAK_RATE_HALF_LIFE: f64 = 10.0;

/// The highest rate lately, in bit/s. It decays with a half-life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakRate(pub(super) f64);

impl PeakRate {
    /// Decays over `dt` seconds, and takes `rate` if that is higher.
    pub(super) fn update(&mut self, rate: f64, dt: f64, is_queued: bool) {
        let half_life = if is_queued { QUEUED_PEAK_RATE_HALF_LIFE } else { PEAK_RATE_HALF_LIFE };
        self.0 = (self.0 * libm::exp2(-dt / half_life)).max(rate);
    }
}

/// Time for which a queue counts as the flow's after that was shown, in seconds.
const OWN_QUEUE_MEMORY: f64 = 120.0;

/// The verdict that the queue is the flow's own, as behind a fair-queueing scheduler: other flows do not take from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnQueue {
    until: f64,
    /// The rate that was sent when the verdict was made, in bit/s.
    rate: f64,
}

impl OwnQueue {
    pub(super) fn new(now: f64, rate: f64) -> Self {
        Self { until: now + OWN_QUEUE_MEMORY, rate }
    }

    /// Whether the verdict still holds. A rate that fell to half refutes it: other flows did take from the queue.
    pub(super) fn holds(&self, now: f64, rate: f64) -> bool {
        now < self.until && rate > 0.5 * self.rate
    }
}

/// The time constant with which observations of the regression fade, in seconds.
const RESPONSE_MEMORY: f64 = 4.0;
/// Time for which a verdict on a shared queue is valid after the last observation, in seconds.
const RESPONSE_VALIDITY: f64 = 4.0;
/// The least weight of observations, each of weight 1 at first, from which the power is known.
const RESPONSE_WEIGHT_MIN: f64 = 8.0;
/// The least standard deviation of the logarithms of sent rates from which the power is known: a rate that hardly
/// varies shows no response.
const SENT_RATE_DEVIATION_MIN: f64 = 0.1;
/// If the exponent of the response (below), less its standard error, is at most this, the flow has a queue of its own.
/// Nine in ten of the measured values were 0.06 to 0.14 in a queue of its own, and 0.43 to 0.97 in one that a TCP
/// shares.
const OWN_QUEUE_POWER_MAX: f64 = 0.3;
/// If the power is within this of 1, nearly all of the queue is of other flows.
const SMALL_SHARE_POWER_TOLERANCE: f64 = 0.2;

/// The response of the rate of arrival to the sent rate, as the power p in received ~ sent^p. In a queue of the flow's
/// own p is 0, since the scheduler serves it at its rate. In a shared queue p is the share of the other flows.
///
/// p is the slope of a least-squares line through the logarithms of both rates; the weights of old observations fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateResponse {
    at: f64,
    weight: f64,
    mean_sent: f64,
    mean_received: f64,
    /// The weighted sums of squares and of products of the deviations from the means.
    sent_sent: f64,
    sent_received: f64,
    received_received: f64,
}

impl RateResponse {
    /// Adds an observation: packets in a row, all of which waited, were sent at the rate `sent` and arrived at the rate
    /// `received`. The sums are updated as by Welford, which loses no digits.
    pub(super) fn add(&mut self, now: f64, sent: f64, received: f64) {
        let kept = libm::exp(-(now - self.at) / RESPONSE_MEMORY);
        self.at = now;
        for sum in [&mut self.weight, &mut self.sent_sent, &mut self.sent_received, &mut self.received_received] {
            *sum *= kept;
        }
        self.weight += 1.0;
        let (x, y) = (libm::log(sent) - self.mean_sent, libm::log(received) - self.mean_received);
        self.mean_sent += x / self.weight;
        self.mean_received += y / self.weight;
        let (x2, y2) = (libm::log(sent) - self.mean_sent, libm::log(received) - self.mean_received);
        self.sent_sent += x * x2;
        self.sent_received += x * y2;
        self.received_received += y * y2;
    }

    /// Returns the power and its standard error, if the observations suffice.
    fn power(&self) -> Option<(f64, f64)> {
        let deviation = libm::sqrt(self.sent_sent / self.weight.max(1.0));
        if self.weight < RESPONSE_WEIGHT_MIN || deviation < SENT_RATE_DEVIATION_MIN {
            return None;
        }
        // The residual variance has two degrees of freedom less than the observations: slope and intercept.
        let slope = self.sent_received / self.sent_sent;
        let residual = (self.received_received - slope * self.sent_received).max(0.0) / (self.weight - 2.0).max(1.0);
        Some((slope, libm::sqrt(residual / self.sent_sent)))
    }

    /// Whether the distance of the power from `power`, plus its standard error, is below `within`.
    fn is_near(&self, power: f64, within: f64) -> bool {
        self.power().is_some_and(|(slope, error)| (slope - power).abs() + error < within)
    }

    /// Whether the queue is the flow's own: the power is near 0. A power well below 0 shows other flows, which gave way
    /// at the same time.
    pub(super) fn shows_own_queue(&self) -> bool {
        self.is_near(0.0, OWN_QUEUE_POWER_MAX)
    }

    /// Whether nearly all of the queue is of other flows: the power is near 1.
    pub(super) fn shows_small_share(&self) -> bool {
        self.is_near(1.0, SMALL_SHARE_POWER_TOLERANCE)
    }

    /// Whether recent observations show a shared queue: the power differs from 0 by more than in a queue of the flow's
    /// own, its standard error deducted. Returns `None` if the power is unknown.
    pub(super) fn is_shared(&self, now: f64) -> Option<bool> {
        let (power, error) = self.power().filter(|_| now - self.at < RESPONSE_VALIDITY)?;
        Some(power.abs() - error > OWN_QUEUE_POWER_MAX)
    }
}
