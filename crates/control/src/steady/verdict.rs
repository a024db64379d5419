//! Estimators that judge the path. They tell whether losses are random or caused by a queue or a policer. They also
//! tell whether an elastic flow shares the queue.

use super::packet::{Loss, drop_old};
use std::collections::VecDeque;

/// A loss is a congestion loss if the lost packet met a longer queueing delay than this, in seconds.
pub(super) const CERTAIN_CONGESTION_QUEUE: f64 = 0.020;

/// Weight of a new loss in the mean rank of lost packets ([`Loss::rank`]).
const RANK_GAIN: f64 = 0.125;
/// If the mean rank is above this, packets are lost at the top of a queue. The mean rank of random losses is 0.5. The
/// mean rank of tail drops is nearly 1.
const CONGESTION_RANK_MIN: f64 = 0.68;
/// A congestion loss meets a queueing delay of more than this, in seconds, plus the transmission time of a packet.
const CONGESTION_QUEUE_MIN: f64 = 0.003;
/// Losses that follow each other within this time, in seconds, meet the same queue. Each of them then has a smaller
/// weight.
const INDEPENDENT_LOSS_TIME: f64 = 0.5;
/// How long losses are remembered, in seconds.
const LOSS_HISTORY: f64 = 20.0;
/// After a trial has shown a policer, losses are attributed to it for this time, in seconds.
const POLICER_MEMORY: f64 = 120.0;
/// The natural logarithm of 1000. A significance test with this bound is wrong in at most 1 of 1000 cases.
const SIGNIFICANCE_LN: f64 = 6.907_755;
/// If the mean rank is below this, losses occur at any queue length, as on a radio link.
const RANDOM_RANK_MAX: f64 = 0.6;
/// The mean rank counts as known once more than this number of losses and marks are remembered.
const RANDOM_LOSSES_MIN: f64 = 5.0;

/// Classifies losses. Congestion losses occur at the top of a queue, random losses at any queue length.
#[derive(Clone, Debug)]
pub(super) struct LossClassifier {
    /// Mean rank of the queueing delay at losses. The rank of a delay is the fraction of recent delays that are
    /// shorter. The mean is 0.5 if losses are random.
    rank: f64,
    /// The times of recent losses and marks, in seconds.
    events: VecDeque<f64>,
    /// The first value is the time until which losses are attributed to a policer, in seconds. The second value is the
    /// receive rate at which the policer was found, in bit/s.
    policed: (f64, f64),
}

impl LossClassifier {
    pub(super) fn new() -> Self {
        Self { rank: 0.5, events: VecDeque::new(), policed: (f64::MIN, 0.0) }
    }

    /// Records a loss. Returns whether it is a congestion loss: there is a queue, and lost packets meet a longer queue
    /// than others. `packet` is the time that the path needs to transmit a packet, in seconds.
    pub(super) fn on_loss(&mut self, now: f64, loss: &Loss, packet: f64) -> bool {
        // Give losses in quick succession a smaller weight, because they observe the same queue.
        let since = self.events.back().map_or(f64::MAX, |at| now - at);
        self.rank += RANK_GAIN * (since / INDEPENDENT_LOSS_TIME).min(1.0) * (loss.rank - self.rank);
        self.note(now);
        self.is_policed(now) || self.rank > CONGESTION_RANK_MIN && loss.q > CONGESTION_QUEUE_MIN + packet
    }

    /// Attributes losses to a policer from now on, because they ended when the flow sent less than `rate`, in bit/s.
    /// The policer passes about this rate.
    pub(super) fn set_policed(&mut self, now: f64, rate: f64) {
        self.policed = (now + POLICER_MEMORY, rate);
    }

    /// Returns whether losses are attributed to a policer. All losses are then congestion losses.
    pub(super) fn is_policed(&self, now: f64) -> bool {
        now < self.policed.0
    }

    /// Withdraws the finding of a policer if packets are lost although less than half of the policer's rate arrives. A
    /// policer passes everything below its rate.
    pub(super) fn refute_policer(&mut self, received: f64) {
        if received < 0.5 * self.policed.1 {
            self.policed = (f64::MIN, 0.0);
        }
    }

    /// Records the time of a loss or a mark. The mean rank of losses does not change, because a mark is congestion at
    /// any rank.
    pub(super) fn note(&mut self, now: f64) {
        self.events.push_back(now);
        drop_old(&mut self.events, |at| *at < now - LOSS_HISTORY);
    }

    /// Returns whether at least `count` losses or marks occurred in the last `within` seconds.
    pub(super) fn has_losses(&self, now: f64, count: usize, within: f64) -> bool {
        self.events
            .len()
            .checked_sub(count)
            .and_then(|index| self.events.get(index))
            .is_some_and(|at| *at > now - within)
    }

    /// Returns whether a loss rate of `share`, measured over `packets` packets, is significantly higher than a random
    /// loss rate of `at_most`. Uses Chernoff's bound for the tail of the binomial distribution.
    pub(super) fn is_more(packets: u32, share: f64, at_most: f64) -> bool {
        share > at_most && Self::chernoff_exponent(packets, share, at_most) > SIGNIFICANCE_LN
    }

    /// Returns whether a loss rate of `share`, measured over `packets` packets, is significantly lower than a random
    /// loss rate of `at_least`.
    pub(super) fn is_less(packets: u32, share: f64, at_least: f64) -> bool {
        share < at_least && Self::chernoff_exponent(packets, share, at_least) > SIGNIFICANCE_LN
    }

    /// Returns the number of packets times the Kullback-Leibler divergence of both loss rates. If `from` is the true
    /// loss rate, the observation has a probability of at most e to the power of minus the result.
    fn chernoff_exponent(packets: u32, share: f64, from: f64) -> f64 {
        let part = |of: f64, from: f64| if of > 0.0 { of * libm::log(of / from) } else { 0.0 };
        f64::from(packets) * (part(share, from) + part(1.0 - share, 1.0 - from))
    }

    /// Returns whether there were several recent losses and they occurred at any queue length, as on a radio link.
    pub(super) fn is_random(&self) -> bool {
        self.rank < RANDOM_RANK_MAX && self.events.len() as f64 > RANDOM_LOSSES_MIN
    }
}

/// Loss rates up to this value count as random loss without a trial.
const RANDOM_LOSS_INITIAL: f64 = 0.03;
/// If a trial has shown random losses, loss rates up to this multiple of the measured loss rate count as random loss.
const RANDOM_LOSS_MARGIN: f64 = 1.5;
/// The highest loss rate that can count as random loss after a trial.
const RANDOM_LOSS_MAX: f64 = 0.2;
/// How long the first finding of random loss holds, in seconds. Another trial may follow then, because another flow may
/// have caused the losses in the first trial. A trial takes about a second.
const RANDOM_LOSS_MEMORY_MIN: f64 = 10.0;
/// A finding that another trial repeats holds twice as long as the one before, but at most this time, in seconds.
const RANDOM_LOSS_MEMORY_MAX: f64 = 160.0;

/// The loss rate up to which losses count as random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RandomLoss {
    found: f64,
    /// When the finding ends, in seconds.
    until: f64,
    /// How long the finding holds, in seconds.
    memory: f64,
}

impl RandomLoss {
    /// Records that losses went on in a trial. `share` is the higher of the loss rates before the trial and in it.
    pub(super) fn find(&mut self, now: f64, share: f64) {
        self.found = (RANDOM_LOSS_MARGIN * share).min(RANDOM_LOSS_MAX);
        self.memory = (2.0 * self.memory).clamp(RANDOM_LOSS_MEMORY_MIN, RANDOM_LOSS_MEMORY_MAX);
        self.until = now + self.memory;
    }

    /// Returns the highest loss rate that counts as random now.
    pub(super) fn at_most(&self, now: f64) -> f64 {
        if now < self.until { self.found } else { RANDOM_LOSS_INITIAL }
    }
}

/// Half-life of the peak rate, in seconds.
const PEAK_RATE_HALF_LIFE: f64 = 60.0;
/// Half-life of the peak rate while there is a queue, in seconds. It is shorter because the old peak may be outdated. A
/// new flow may permanently have taken the difference between the peak rate and the current rate.
const QUEUED_PEAK_RATE_HALF_LIFE: f64 = 10.0;

/// The highest recent rate, in bit/s. It decays with a half-life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakRate(pub(super) f64);

impl PeakRate {
    /// Lets the peak rate decay over `dt` seconds. If `rate` is higher, it becomes the peak rate. `is_queued` selects
    /// the shorter half-life.
    pub(super) fn update(&mut self, rate: f64, dt: f64, is_queued: bool) {
        let half_life = if is_queued { QUEUED_PEAK_RATE_HALF_LIFE } else { PEAK_RATE_HALF_LIFE };
        self.0 = (self.0 * libm::exp2(-dt / half_life)).max(rate);
    }
}

/// A queue that was shown to be unshared counts as unshared for this time, in seconds.
const OWN_QUEUE_MEMORY: f64 = 120.0;

/// The finding that no other flow shares the queue, for example behind a fair-queueing scheduler. Other flows then take
/// no capacity from this queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnQueue {
    until: f64,
    /// The rate that was sent when the queue was found to be unshared, in bit/s.
    rate: f64,
}

impl OwnQueue {
    pub(super) fn new(now: f64, rate: f64) -> Self {
        Self { until: now + OWN_QUEUE_MEMORY, rate }
    }

    /// Returns whether the queue still counts as unshared. It does not if the rate has fallen to half, because other
    /// flows then have taken capacity from the queue.
    pub(super) fn holds(&self, now: f64, rate: f64) -> bool {
        now < self.until && rate > 0.5 * self.rate
    }
}

/// Time constant with which old observations lose their weight in [`RateResponse`], in seconds.
const RESPONSE_MEMORY: f64 = 4.0;
/// The finding of a shared queue stays valid for this time after the last observation, in seconds.
const RESPONSE_VALIDITY: f64 = 4.0;
/// The power p of a [`RateResponse`] is known only if the weights of all observations sum up to at least this value. A
/// new observation has weight 1.
const RESPONSE_WEIGHT_MIN: f64 = 8.0;
/// The power p is known only if the logarithms of the sent rates have at least this standard deviation. A rate that
/// hardly varies shows no response.
const SENT_RATE_DEVIATION_MIN: f64 = 0.1;
/// The queue is unshared if the power p of [`RateResponse`] plus its standard error is below this value. In an unshared
/// queue, nine in ten measured powers were 0.06 to 0.14. In a queue shared with a TCP, they were 0.43 to 0.97.
const OWN_QUEUE_POWER_MAX: f64 = 0.3;
/// Nearly all packets in the queue belong to other flows if the power p of [`RateResponse`] differs from 1 by less than
/// this.
const SMALL_SHARE_POWER_TOLERANCE: f64 = 0.2;

/// How the receive rate responds to the sent rate, as the power p in received ~ sent^p. In an unshared queue p is 0,
/// because the scheduler serves this queue at a fixed rate. In a shared queue p is the share of the queue that other
/// flows have.
///
/// p is the slope of a least-squares line through the logarithms of both rates. Old observations lose their weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateResponse {
    at: f64,
    weight: f64,
    mean_sent: f64,
    mean_received: f64,
    /// Weighted sum of the squared deviations from `mean_sent`.
    sent_sent: f64,
    /// Weighted sum of the products of the deviations from `mean_sent` and `mean_received`.
    sent_received: f64,
    /// Weighted sum of the squared deviations from `mean_received`.
    received_received: f64,
}

impl RateResponse {
    /// Adds an observation: a row of packets that all waited in a queue. It was sent at the rate `sent` and arrived at
    /// the rate `received`. The sums are updated by Welford's method, which avoids loss of precision.
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

    /// Returns the power p in `received ~ sent^p`, and its standard error. Returns `None` if there are too few
    /// observations, or if the sent rates hardly vary.
    fn power(&self) -> Option<(f64, f64)> {
        let deviation = libm::sqrt(self.sent_sent / self.weight.max(1.0));
        if self.weight < RESPONSE_WEIGHT_MIN || deviation < SENT_RATE_DEVIATION_MIN {
            return None;
        }
        // Subtract two degrees of freedom, because slope and intercept are estimated from the same observations.
        let slope = self.sent_received / self.sent_sent;
        let residual = (self.received_received - slope * self.sent_received).max(0.0) / (self.weight - 2.0).max(1.0);
        Some((slope, libm::sqrt(residual / self.sent_sent)))
    }

    /// Returns whether the measured power differs from `power` by less than `within`. The standard error is added to
    /// the difference.
    fn is_near(&self, power: f64, within: f64) -> bool {
        self.power().is_some_and(|(slope, error)| (slope - power).abs() + error < within)
    }

    /// Returns whether the queue is unshared. It is if the power p in `received ~ sent^p` is near 0. A p well below
    /// 0 does not count, because other flows then lowered their rates at the same time.
    pub(super) fn shows_own_queue(&self) -> bool {
        self.is_near(0.0, OWN_QUEUE_POWER_MAX)
    }

    /// Returns whether the power is unknown because the sent rates hardly vary, or because there are few observations.
    pub(super) fn is_unknown(&self) -> bool {
        self.power().is_none()
    }

    /// Returns whether nearly all packets in the queue belong to other flows. They do if the power p in
    /// `received ~ sent^p` is near 1.
    pub(super) fn shows_small_share(&self) -> bool {
        self.is_near(1.0, SMALL_SHARE_POWER_TOLERANCE)
    }

    /// Returns whether recent observations show a shared queue. They do if the power p in `received ~ sent^p` differs
    /// from 0 by more than [`OWN_QUEUE_POWER_MAX`] plus the standard error. Returns `None` if p is unknown or outdated.
    pub(super) fn is_shared(&self, now: f64) -> Option<bool> {
        let (power, error) = self.power().filter(|_| now - self.at < RESPONSE_VALIDITY)?;
        Some(power.abs() - error > OWN_QUEUE_POWER_MAX)
    }
}
