//! Estimators that judge the path: whether losses are random or caused by a queue or a policer, and whether the queue
//! is the flow's own or shared with an elastic flow.

use super::packet::{Loss, drop_old};
use std::collections::VecDeque;

/// If the lost packet met a longer queueing delay than this, in seconds, the loss is a congestion loss.
pub(super) const CERTAIN_CONGESTION_QUEUE: f64 = 0.020;

/// The gain of the mean rank of lost packets ([`Loss::rank`]), per loss.
const RANK_GAIN: f64 = 0.125;
/// If the mean rank is above this, packets are lost at the top of a queue. Random losses have a mean rank of 0.5. Tail
/// drops have a mean rank of nearly 1.
const CONGESTION_RANK_MIN: f64 = 0.68;
/// A packet that is lost by congestion meets at least this queueing delay, in seconds, and at least the transmission
/// time of a packet.
const CONGESTION_QUEUE_MIN: f64 = 0.003;
/// Losses that follow each other within this time, in seconds, meet the same queue. Each then has a smaller weight.
const INDEPENDENT_LOSS_TIME: f64 = 0.5;
/// Duration of the history of losses, in seconds.
const LOSS_HISTORY: f64 = 20.0;
/// Time for which losses are attributed to a policer after a trial has shown one, in seconds.
const POLICER_MEMORY: f64 = 120.0;
/// The natural logarithm of 1000. With this bound a significance test has an error probability of 1 in 1000.
const SIGNIFICANCE_LN: f64 = 6.907_755;
/// If the mean rank is below this, losses occur at any queue length, as on a radio link.
const RANDOM_RANK_MAX: f64 = 0.6;
/// The mean rank counts as known once this number of losses is remembered.
const RANDOM_LOSSES_MIN: f64 = 5.0;

/// Classifies losses. Congestion losses occur at the top of a queue, random losses at any queue length.
#[derive(Clone, Debug)]
pub(super) struct LossClassifier {
    /// The mean rank of the queueing delay at losses: 0.5 if they are random.
    rank: f64,
    /// The times of recent losses and marks, in seconds.
    events: VecDeque<f64>,
    /// The time until which losses are attributed to a policer, and the receive rate, in bit/s, at which the policer
    /// was found.
    policed: (f64, f64),
}

impl LossClassifier {
    pub(super) fn new() -> Self {
        Self { rank: 0.5, events: VecDeque::new(), policed: (f64::MIN, 0.0) }
    }

    /// Records a loss. Returns true if it is a congestion loss: there is a queue, and lost packets meet a longer queue
    /// than other packets do. `packet` is the path's transmission time of a packet, in seconds.
    pub(super) fn on_loss(&mut self, now: f64, loss: &Loss, packet: f64) -> bool {
        // A burst of losses is one observation of the queue, not several independent ones.
        let since = self.events.back().map_or(f64::MAX, |at| now - at);
        self.rank += RANK_GAIN * (since / INDEPENDENT_LOSS_TIME).min(1.0) * (loss.rank - self.rank);
        self.note(now);
        self.is_policed(now) || self.rank > CONGESTION_RANK_MIN && loss.q > CONGESTION_QUEUE_MIN + packet
    }

    /// Attributes losses to a policer from now on: they ended when less than `rate`, in bit/s, was sent.
    pub(super) fn set_policed(&mut self, now: f64, rate: f64) {
        self.policed = (now + POLICER_MEMORY, rate);
    }

    /// Whether losses are attributed to a policer. All of them are then congestion losses.
    pub(super) fn is_policed(&self, now: f64) -> bool {
        now < self.policed.0
    }

    /// Withdraws the verdict of a policer if a packet is lost without a queue at less than half of the policer's rate.
    /// A policer passes everything below its rate.
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

    /// Whether at least `count` losses or marks occurred in the last `within` seconds.
    pub(super) fn has_losses(&self, now: f64, count: usize, within: f64) -> bool {
        self.events
            .len()
            .checked_sub(count)
            .and_then(|index| self.events.get(index))
            .is_some_and(|at| *at > now - within)
    }

    /// Whether a loss of the share `share` among `packets` packets is significantly higher than a random loss rate of
    /// `at_most`. Uses Chernoff's bound of the binomial distribution's tail.
    pub(super) fn is_more(packets: u32, share: f64, at_most: f64) -> bool {
        share > at_most && Self::chernoff_exponent(packets, share, at_most) > SIGNIFICANCE_LN
    }

    /// Whether a loss of the share `share` among `packets` packets is significantly lower than a random loss rate of
    /// `at_least`.
    pub(super) fn is_less(packets: u32, share: f64, at_least: f64) -> bool {
        share < at_least && Self::chernoff_exponent(packets, share, at_least) > SIGNIFICANCE_LN
    }

    /// Returns the number of packets times the Kullback-Leibler divergence of the two loss rates. The probability of
    /// the observation is at most e to the power of minus this number.
    fn chernoff_exponent(packets: u32, share: f64, from: f64) -> f64 {
        let part = |of: f64, from: f64| if of > 0.0 { of * libm::log(of / from) } else { 0.0 };
        f64::from(packets) * (part(share, from) + part(1.0 - share, 1.0 - from))
    }

    /// Whether several recent losses occurred at any queue length, as on a radio link.
    pub(super) fn is_random(&self) -> bool {
        self.rank < RANDOM_RANK_MAX && self.events.len() as f64 > RANDOM_LOSSES_MIN
    }
}

/// The half-life of the peak rate, in seconds.
const PEAK_RATE_HALF_LIFE: f64 = 60.0;
/// The half-life of the peak rate while there is a queue, in seconds. A new flow may have taken the difference between
/// the peak and the present rate permanently. The old peak is then outdated.
const QUEUED_PEAK_RATE_HALF_LIFE: f64 = 10.0;

/// The peak rate: the highest recent rate, in bit/s. It decays with a half-life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakRate(pub(super) f64);

impl PeakRate {
    /// Decays over `dt` seconds. A higher `rate` replaces the peak.
    pub(super) fn update(&mut self, rate: f64, dt: f64, is_queued: bool) {
        let half_life = if is_queued { QUEUED_PEAK_RATE_HALF_LIFE } else { PEAK_RATE_HALF_LIFE };
        self.0 = (self.0 * libm::exp2(-dt / half_life)).max(rate);
    }
}

/// A queue that was shown to be the flow's own counts as such for this time, in seconds.
const OWN_QUEUE_MEMORY: f64 = 120.0;

/// The verdict that the queue is the flow's own, as behind a fair-queueing scheduler: other flows take no capacity from
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnQueue {
    until: f64,
    /// The rate that was sent when the queue was found to be the flow's own, in bit/s.
    rate: f64,
}

impl OwnQueue {
    pub(super) fn new(now: f64, rate: f64) -> Self {
        Self { until: now + OWN_QUEUE_MEMORY, rate }
    }

    /// Whether the verdict still holds. If the rate has fallen to half, the verdict is refuted, because other flows
    /// have taken capacity from the queue.
    pub(super) fn holds(&self, now: f64, rate: f64) -> bool {
        now < self.until && rate > 0.5 * self.rate
    }
}

/// The time constant with which observations fade in [`RateResponse`], in seconds.
const RESPONSE_MEMORY: f64 = 4.0;
/// Time for which a verdict on a shared queue is valid after the last observation, in seconds.
const RESPONSE_VALIDITY: f64 = 4.0;
/// The power of the response ([`RateResponse`]) is known only if the total weight of the observations is at least this.
/// A new observation has weight 1.
const RESPONSE_WEIGHT_MIN: f64 = 8.0;
/// The power of the response is known only if the logarithms of the sent rates have at least this standard deviation,
/// because a rate that hardly varies shows no response.
const SENT_RATE_DEVIATION_MIN: f64 = 0.1;
/// If the power p of [`RateResponse`] plus its standard error is below this, the queue is the flow's own.
/// Nine in ten of the measured values were 0.06 to 0.14 in an unshared queue, and 0.43 to 0.97 in one shared with a
/// TCP.
const OWN_QUEUE_POWER_MAX: f64 = 0.3;
/// If the power p of [`RateResponse`] differs from 1 by less than this, nearly all packets in the queue are of other
/// flows.
const SMALL_SHARE_POWER_TOLERANCE: f64 = 0.2;

/// The response of the receive rate to the sent rate, as the power p in received ~ sent^p. In an unshared queue p is 0,
/// since the scheduler serves this queue at a fixed rate. In a shared queue p is the other flows' share of the queue.
///
/// p is the slope of a least-squares line through the logarithms of both rates; the weights of old observations fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateResponse {
    at: f64,
    weight: f64,
    mean_sent: f64,
    mean_received: f64,
    /// The weighted sum of the squared deviations from `mean_sent`.
    sent_sent: f64,
    /// The weighted sum of the products of both deviations.
    sent_received: f64,
    /// The weighted sum of the squared deviations from `mean_received`.
    received_received: f64,
}

impl RateResponse {
    /// Adds an observation: consecutive packets that all waited were sent at the rate `sent` and arrived at the rate
    /// `received`. The sums are updated by Welford's method, which avoids loss of precision.
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

    /// Whether the measured power differs from `power` by less than `within`, even if the standard error is added.
    fn is_near(&self, power: f64, within: f64) -> bool {
        self.power().is_some_and(|(slope, error)| (slope - power).abs() + error < within)
    }

    /// Whether the queue is the flow's own, because the power is near 0. A power well below 0 shows other flows that
    /// lowered their rates at the same time.
    pub(super) fn shows_own_queue(&self) -> bool {
        self.is_near(0.0, OWN_QUEUE_POWER_MAX)
    }

    /// Whether nearly all packets in the queue are of other flows: the power is near 1.
    pub(super) fn shows_small_share(&self) -> bool {
        self.is_near(1.0, SMALL_SHARE_POWER_TOLERANCE)
    }

    /// Whether recent observations show a shared queue: even after the standard error is subtracted, the power differs
    /// from 0 by more than it does in an unshared queue. Returns `None` if the power is unknown.
    pub(super) fn is_shared(&self, now: f64) -> Option<bool> {
        let (power, error) = self.power().filter(|_| now - self.at < RESPONSE_VALIDITY)?;
        Some(power.abs() - error > OWN_QUEUE_POWER_MAX)
    }
}
