//! DELAY: the control law of a flow that shares its queue with no other flow, or only with flows that run `steady`. It
//! keeps the queueing delay at a target, which is the transmission time of a packet or two.
//!
//! The rules of [`DelayLaw::update`], in order:
//!
//! 1. [`DelayLaw::on_loss`]: if a loss or a mark shows other flows, COMPETE begins. If an AQM may have dropped or
//!    marked the packet, the target is lowered.
//! 2. [`DelayLaw::check_response`]: if nearly all packets of a standing queue belong to other flows, COMPETE begins.
//! 3. [`DelayLaw::find_path`]: if the rate was cut and the delay stayed constant, the delay is that of another path.
//! 4. [`DelayLaw::yield_rate`]: above the target, the rate is cut ("yielded"). If the queue stays all the same, other
//!    flows fill it, and COMPETE begins.
//! 5. [`DelayLaw::grow`]: below the target, the rate grows.

use super::law_input::{LawInput, Transition};
use super::signals::{PATH_RESUME_TIME, RECEIVED_SPAN_MIN, Signals};
use super::verdict::{LossClassifier, OwnQueue, PeakRate, RateResponse};
use super::{Config, RATE_MIN};

/// The rule's name if a queue stays although the rate was cut: other flows keep the queue.
const QUEUE_STAYS: &str = "compete: yielded, and still a queue";

/// The rule's name if the rate grows.
pub(super) const UP: &str = "delay: up";

// The queue and the target.

/// The shortest span over which the standing queue is measured, in seconds. A burst drains within it.
const LOW_SPAN_MIN: f64 = 0.060;
/// The longest span over which the standing queue is measured, in seconds.
const LOW_SPAN_MAX: f64 = 1.0;
/// The factor with which jitter lengthens the span of the standing queue ([`DelayLaw::update_jitter`]). Set with the
/// networks of `steadycast experiment networks --draw 9303` and `--draw 9304`, as 6.0 with half the present span.
const LOW_SPAN_PER_JITTER: f64 = 3.0;
/// The jitter is measured over the time in which this number of packets is sent.
const JITTER_PACKETS: f64 = 10.0;
/// The shortest time over which the jitter is measured, in seconds. A delay spike of a busy Wi-Fi channel lasts for
/// about 90 ms; within a shorter time it delays all packets alike, and would not count as jitter.
const JITTER_SPAN_MIN: f64 = 0.120;
/// The time constant of the mean jitter, in seconds.
const JITTER_MEMORY: f64 = 3.0;
/// The target contains a floor for noise, which is at least this share of the jitter.
const JITTER_NOISE_SHARE: f64 = 0.7;
/// The upper limit that the target approaches at low rates, in seconds.
const TARGET_MAX: f64 = 0.050;
/// For a source of frames, the target is at least this share of the target without the limit [`TARGET_MAX`].
const FRAMES_TARGET_SHARE_MIN: f64 = 0.9;
/// CoDel's target in seconds, above which it drops (RFC 8289, 3.2).
const CODEL_TARGET: f64 = 0.005;
/// After an AQM's drop has reduced the target's scale, the scale rises by this per second.
const SCALE_RECOVERY: f64 = 0.005;
/// The least scale of the target.
const SCALE_MIN: f64 = 0.25;
/// The queue counts as empty below this share of the target.
const EMPTY_QUEUE_TARGETS: f64 = 0.3;
/// The path rate of an idle source is assumed to be at least this share of the law's rate.
const IDLE_PATH_RATE_SHARE: f64 = 0.9;

// Losses and marks.

/// The lowest path rate, in bit/s, from which the transmission time of a packet is computed.
const PACKET_TIME_RATE_MIN: f64 = 100_000.0;
/// A lost packet has met no queue if its queueing delay was at most this, in seconds, or at most the transmission time
/// of a packet.
const EMPTY_QUEUE_LOSS_DELAY: f64 = 0.008;
/// After a loss in a queue, it is in doubt for this time, in seconds, whether the queue is the flow's own.
const LOSS_ATTRIBUTION_TIME: f64 = 2.0;
/// If the rate is below this share of its peak, losses show that other flows have pushed it down.
const PUSHED_DOWN_SHARE: f64 = 0.7;
/// The number of losses that show that other flows have pushed the rate down.
const PUSHED_DOWN_LOSSES: usize = 2;
/// The time within which [`PUSHED_DOWN_LOSSES`] losses must occur, in seconds.
const PUSHED_DOWN_SPAN: f64 = 20.0;
/// If losses show that the rate was pushed down, COMPETE begins with this share of the peak rate.
const PUSHED_DOWN_START_SHARE: f64 = 0.8;
/// For this number of round trips after START, a loss in a queue is no evidence of other flows, because START itself
/// made the queue.
const START_QUEUE_RTTS: f64 = 3.0;
/// A loss shows other flows if the queueing delay exceeds `LOSS_QUEUE_TARGETS` × target + [`LOSS_QUEUE_MARGIN`].
const LOSS_QUEUE_TARGETS: f64 = 3.0;
/// The margin in the rule of [`LOSS_QUEUE_TARGETS`], in seconds.
const LOSS_QUEUE_MARGIN: f64 = 0.010;
/// The minimum queueing delay, in seconds, at which a loss shows other flows. Flows that run DELAY keep their queue
/// shorter than this.
const LOSS_QUEUE_MIN: f64 = 0.020;
/// After a loss that shows other flows by its queueing delay, COMPETE begins with this share of the rate.
const LOSS_START_SHARE: f64 = 0.85;
/// A lost packet has met a standing queue if its queueing delay was above this, in seconds, and at least half of that
/// delay is still there.
const STANDING_QUEUE_MIN: f64 = 0.008;
/// Below this scale of the target, a loss in a standing queue shows other flows. An AQM is not the cause, because
/// earlier losses have lowered the target to almost [`SCALE_MIN`].
const STANDING_QUEUE_SCALE_MAX: f64 = 0.3;
/// Two losses in a standing queue within this time, in seconds, show that other flows fill the queue.
const STANDING_LOSS_MEMORY: f64 = 20.0;
/// The factor by which a mark multiplies the rate.
const MARK_BETA: f64 = 0.95;

// A standing queue in which nearly all packets belong to other flows.

/// The time for which a queue must stand, in seconds, before the response of the receive rate is evaluated. A burst
/// drains sooner, even the burst of another flow that runs `steady`.
const RESPONSE_QUEUE_SPAN: f64 = 1.0;
/// The minimum queueing delay during that time, in seconds.
const RESPONSE_QUEUE_MIN: f64 = 0.020;
/// If trains show that less than this share of the queue belongs to this flow, COMPETE begins. Flows that run DELAY
/// have equal shares, so more than ten of them would have to share the queue.
///
/// Beside BBRv3 the share is 0.02 to 0.05 (validation/experiments/dossier.toml, 5.2.1).
const SMALL_SHARE_MAX: f64 = 0.1;

// Cuts of the rate while the queueing delay is above the target. They show whether another flow fills the queue.

/// A queueing delay above this many targets certainly is a queue. The path rate is then taken from the last few
/// packets.
const QUEUE_CERTAIN_TARGETS: f64 = 3.0;
/// A cut lowers the rate by the share (queueing delay − target / 2) / `CUT_QUEUE_SCALE`. In seconds.
const CUT_QUEUE_SCALE: f64 = 0.2;
/// Below this target, in seconds, a cut is larger, in inverse proportion to the target. Set by
/// `validation/experiments/kin.toml`.
///
/// Flows with a higher rate have a lower target. They cut a larger share of their rate, so the flows' rates become more
/// equal.
const CUT_TARGET_MIN: f64 = 0.004;
/// The greatest cut, as a share of the rate.
const CUT_MAX: f64 = 0.25;
/// The minimum interval between two cuts is two report intervals plus the round-trip time, which counts as at most
/// this, in seconds.
const CUT_INTERVAL_RTT_MAX: f64 = 0.2;
/// A cut begins an [`Experiment`], in which the queue of a lone flow drains. Its duration is computed for a queueing
/// delay of at most this, in seconds.
const EXPERIMENT_QUEUE_MAX: f64 = 0.3;
/// In an experiment, the queue of a lone flow drains at this share of the link's rate.
const EXPERIMENT_DRAIN_SHARE: f64 = 0.25;
/// An experiment waits for this number of round trips, in addition to the time in which the queue drains.
const EXPERIMENT_RTTS: f64 = 4.0;
/// An experiment waits for this further time, in seconds, because the start of another flow may lengthen the queue for
/// a moment.
const EXPERIMENT_MARGIN: f64 = 0.6;
/// If a queue remains for this many times the experiment's duration, other flows fill it, even if it is shorter than at
/// its peak.
const EXPERIMENT_DURATIONS_MAX: f64 = 3.0;
/// A queue above this share of its peak has not drained.
const STAYS_PEAK_SHARE: f64 = 0.7;
/// An experiment ends without COMPETE when the queue is below this share of its peak and of the target.
const DRAINED_SHARE_MAX: f64 = 0.7;
/// If the receive rate is below this share of the rate while the queue grows, the path has become slower.
const PATH_DROP_SHARE: f64 = 0.85;
/// The accuracy of a receive rate in a growing queue: the path may carry up to that rate divided by this.
const PATH_DROP_ACCURACY: f64 = 0.9;
/// Once the queue is gone, the rate is raised to this share of the path rate in one step.
const REFILL_SHARE: f64 = 0.9;

// Another path.

/// If a delay stays within the noise for a round trip plus this number of [`DelayLaw::low_span`]s, it counts as the
/// base delay of another path.
///
/// Without jitter, these spans take half a second. In this time, the queue of a CUBIC flow changes by more than noise
/// of 1 ms. For example, on a link of 40 Mb/s with a round-trip time of 44 ms, the queue changes by 3 ms per second
/// (RFC 9438, equation 1).
const CONSTANT_DELAY_SPANS: f64 = 8.0;
/// A cut of the rate by less than this share does not count as a yield. The rate before the cut is only known to a
/// tenth ([`PATH_DROP_ACCURACY`]), so a smaller difference may be an error.
const YIELDED_SHARE_MIN: f64 = 0.15;

// Growth.

/// The growth per second near the path rate, as a share of the rate, if the mean queueing delay equals the target.
const GAIN: f64 = 0.06;
/// The time constant of the mean queue, in seconds. It is long enough to cover an oscillation of the queue.
const MEAN_QUEUE_MEMORY: f64 = 2.0;
/// The growth near the path rate is multiplied by the ratio of the target to the mean queue, within these limits.
const TARGET_PER_QUEUE: (f64, f64) = (0.25, 8.0);
/// The lower bound of the mean queueing delay in that ratio, in seconds.
const MEAN_QUEUE_MIN: f64 = 1e-5;
/// Near the path rate, growth above [`GAIN`] is at most this per round trip. A sender sees the queue a round trip late,
/// so a lone flow that grows faster would make a longer queue.
const GAIN_NEAR_PER_RTT: f64 = 0.01;
/// Growth per second below the path rate.
const GAIN_BELOW_PATH_RATE: f64 = 0.4;
/// From this share of the path rate on, the rate counts as near it, and growth is slow.
const NEAR_PATH_RATE_MIN: f64 = 0.92;
/// Up to this share of the path rate, the rate counts as near it: the queue may be empty for a while although there is
/// no spare capacity.
const NEAR_PATH_RATE_MAX: f64 = 1.1;
/// The fastest growth per second.
const GAIN_MAX: f64 = 1.0;
/// The fastest growth per round trip.
const GAIN_MAX_PER_RTT: f64 = 0.1;
/// A loss without a queue, as by a policer, delays the doubling of growth by this time, in seconds.
const DOUBLING_LOSS_DELAY: f64 = 2.0;
/// The gain begins to double once the queue has been empty for this time, in seconds, and a round trip.
const EMPTY_DOUBLING_DELAY: f64 = 0.3;
/// The time in which the gain doubles while the queue is empty, in seconds.
const EMPTY_DOUBLING_TIME: f64 = 0.25;
/// If the queue is empty and the rate is below this share of its peak, the flow that had pushed the rate down has left.
const RELEASED_SHARE_MAX: f64 = 0.6;
/// The rate grows up to this multiple of the receive rate.
const GROWTH_RECEIVED_MULTIPLE_MAX: f64 = 1.3;
/// The growth is limited by the receive rate over a round trip, or over this span in seconds if that rate is higher. A
/// round trip may lie in a pause of the source.
const GROWTH_RECEIVED_SPAN: f64 = 0.5;
/// The time constant with which the rate falls while a source of frames leaves it unused, in seconds.
const UNUSED_RATE_DECAY: f64 = 4.0;

/// Tracks how long the queueing delay has been constant, and how much of an unshared queue the yield would have drained
/// in this time.
#[derive(Clone, Copy, Debug)]
struct DelayConstancy {
    since: f64,
    min: f64,
    max: f64,
    /// The yielded share of the rate times its duration: the queueing delay, in seconds, that the yield would have
    /// drained.
    yielded: f64,
}

impl DelayConstancy {
    fn new(now: f64, low: f64) -> Self {
        Self { since: now, min: low, max: low, yielded: 0.0 }
    }

    /// Adds a report's delay, and the `share` of the rate that was yielded in the `dt` seconds before it. Restarts if
    /// the delay has changed by more than `noise`.
    fn add(&mut self, now: f64, low: f64, noise: f64, (share, dt): (f64, f64)) {
        (self.min, self.max) = (self.min.min(low), self.max.max(low));
        self.yielded += if share > YIELDED_SHARE_MIN { share * dt } else { 0.0 };
        if self.max - self.min > noise {
            *self = Self::new(now, low);
        }
    }

    /// Whether the delay has been constant. The delay is measured as the minimum of each `span` seconds.
    fn is_constant(&self, now: f64, span: f64) -> bool {
        now - self.since > CONSTANT_DELAY_SPANS * span
    }

    /// Whether the constant delay is that of the path. If it were a queue, the yield would have drained all of it. A
    /// yield takes effect a round trip later.
    fn is_path(&self, now: f64, (share, rtt): (f64, f64), span: f64) -> bool {
        self.is_constant(now - rtt, span) && self.yielded - share * rtt > self.max
    }
}

/// The experiment of a yield. It runs from the time at which the queue exceeded the target until the queue is gone.
#[derive(Clone, Copy, Debug)]
struct Experiment {
    since: f64,
    /// The highest standing queueing delay so far, in seconds. Increases within the noise are ignored.
    peak: f64,
    /// The rate before the cut, in bit/s. Rates after the cut are compared with it.
    rate: f64,
    /// The path rate at the beginning of the experiment, in bit/s.
    received: f64,
    /// The target at the beginning of the experiment. The yield raises the current target, so the queue is compared
    /// with this earlier target.
    target: f64,
    constancy: DelayConstancy,
}

impl Experiment {
    /// Returns the time in seconds within which an unshared queue drains.
    fn duration(&self, signals: &Signals) -> f64 {
        self.peak.min(EXPERIMENT_QUEUE_MAX) / EXPERIMENT_DRAIN_SHARE
            + EXPERIMENT_RTTS * signals.base_rtt
            + EXPERIMENT_MARGIN
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DelayLaw {
    /// The factor of the queueing delay's target: below 1 if an AQM drops or marks at the target.
    scale: f64,
    /// The path rate at the last cut, in bit/s.
    pub(super) path_rate: Option<f64>,
    pub(super) cut_at: f64,
    experiment: Option<Experiment>,
    /// The time at which START ended.
    pub(super) started: f64,
    /// The time of the last loss in a queue.
    queue_loss_at: f64,
    /// The time of the last loss without a queue.
    empty_queue_loss_at: f64,
    /// The last time at which the queue was not empty.
    filled_at: f64,
    /// The mean standing queueing delay, in seconds. All flows in the same queue measure nearly the same value.
    mean_queue: f64,
    pub(super) peak_rate: PeakRate,
    own_queue: OwnQueue,
    /// The time at which this law took over.
    begun: f64,
    /// The time of the last loss of a packet that met a standing queue.
    standing_loss_at: f64,
    /// Whether the rate may be raised to the path rate in one step once the queue is gone.
    pub(super) refill: bool,
    /// Set when a constant delay turns out to be the base delay of another path: the time, in seconds, for which it has
    /// been constant. `Law` takes the value.
    pub(super) new_path: Option<f64>,
    /// The mean jitter in seconds: the mean delay of a few packets minus their minimum delay. A standing queue delays
    /// all of them equally, so it does not add to the jitter.
    jitter: f64,
    /// The span over which the standing queue is measured, in seconds. The standing queue is the minimum queueing delay
    /// within it.
    pub(super) low_span: f64,
    /// Whether a packet train ([`super::trains`]) is requested, because the rate was cut although the queue holds less
    /// than a packet of this flow. The train shows whether other flows fill the queue.
    wants_train: bool,
    /// The response of the receive rate to the sent rate in a standing queue.
    response: RateResponse,
}

impl DelayLaw {
    pub(super) fn new() -> Self {
        Self {
            scale: 1.0,
            cut_at: f64::MIN,
            started: f64::MIN,
            queue_loss_at: f64::MIN,
            empty_queue_loss_at: f64::MIN,
            filled_at: f64::MIN,
            standing_loss_at: f64::MIN,
            low_span: LOW_SPAN_MIN,
            ..Self::default()
        }
    }

    /// Updates the mean jitter, and the span over which the standing queue is measured. The larger the jitter is
    /// relative to the target, the more packets are needed until one of them has met no jitter.
    pub(super) fn update_jitter(&mut self, signals: &Signals, rate: f64, dt: f64, config: &Config) {
        let few = JITTER_SPAN_MIN.max(JITTER_PACKETS * config.bits / rate);
        self.jitter += (dt / JITTER_MEMORY).min(1.0) * (signals.jitter(few) - self.jitter);
        let longer = LOW_SPAN_PER_JITTER * self.jitter / self.target(rate, config);
        self.low_span = (LOW_SPAN_MIN + longer * few).min(LOW_SPAN_MAX);
    }

    /// Returns the target: the queueing delay, in seconds, at which the rate neither grows nor falls. It is a floor for
    /// noise, plus the transmission time of a packet or two at this flow's rate. A flow with a higher rate has a lower
    /// target, so that flows that run DELAY converge to equal shares. The target does not depend on the round-trip
    /// time, so the shares do not depend on it either. At low rates, the target approaches [`TARGET_MAX`] smoothly
    /// instead of being clipped there, so that it depends on the rate everywhere.
    pub(super) fn target(&self, rate: f64, config: &Config) -> f64 {
        self.scaled_target(self.scale, rate, config)
    }

    fn scaled_target(&self, scale: f64, rate: f64, config: &Config) -> f64 {
        let noise = config.target_floor.max(JITTER_NOISE_SHARE * self.jitter);
        let raw = noise + config.target_packets * config.bits / rate.max(RATE_MIN);
        let bent = TARGET_MAX * (1.0 - libm::exp(-raw * scale / TARGET_MAX));
        let least = if config.frames { FRAMES_TARGET_SHARE_MIN * raw * scale } else { 0.0 };
        bent.max(least)
    }

    /// Returns the current target. Drops by an AQM do not lower it below the transmission time of a packet, because a
    /// single packet that waits for its turn is no queue to CoDel (RFC 8289, 3.2).
    pub(super) fn target_now(&self, now: f64, rate: f64, config: &Config) -> f64 {
        let packet = |rate: f64| config.bits / rate - CODEL_TARGET;
        let least = if self.own_queue.holds(now, rate) {
            packet(rate)
        } else {
            // Other flows may have pushed the rate down. The transmission time is computed at the peak rate, because
            // the longer time at the present rate would raise the target above the queue of the other flows.
            packet(rate.max(self.peak_rate.0)).min(self.scaled_target(1.0, rate, config))
        };
        self.target(rate, config).max(least)
    }

    /// Whether the queue is currently considered the flow's own.
    pub(super) fn has_own_queue(&self, now: f64, rate: f64) -> bool {
        self.own_queue.holds(now, rate)
    }

    /// Whether a packet was lost recently in a queue that is not known to be the flow's own.
    pub(super) fn is_queue_in_doubt(&self, now: f64, rate: f64) -> bool {
        now - self.queue_loss_at < LOSS_ATTRIBUTION_TIME && !self.own_queue.holds(now, rate)
    }

    /// Returns whether a train is requested that shows whether other flows share the queue. Clears the request.
    pub(super) fn takes_train_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_train)
    }

    /// Sets the path rate and the peak rate to `received`, the rate that a policer passes.
    pub(super) fn set_policed(&mut self, now: f64, received: f64) {
        (self.path_rate, self.cut_at, self.refill) = (Some(received), now, false);
        (self.peak_rate, self.empty_queue_loss_at) = (PeakRate(received), now);
    }

    /// Records that the queue is considered the flow's own while `rate` is sent.
    pub(super) fn set_own_queue(&mut self, now: f64, rate: f64) {
        self.own_queue = OwnQueue::new(now, rate);
        self.scale = 1.0;
    }

    /// Takes over the control from another law.
    pub(super) fn begin(&mut self, now: f64, path_rate: f64) {
        self.path_rate = Some(path_rate);
        self.cut_at = now;
        self.experiment = None;
        self.begun = now;
    }

    /// Decides on the rate. `first` is true until a COMPETE phase has ended.
    pub(super) fn update(
        &mut self,
        input: &LawInput<'_>,
        losses: &mut LossClassifier,
        first: bool,
        config: &Config,
    ) -> Transition {
        let LawInput { now, dt, rate, rtt, signals, .. } = *input;
        let target = self.target_now(now, rate, config);
        let low = signals.low(self.low_span);
        self.mean_queue += (dt / MEAN_QUEUE_MEMORY).min(1.0) * (low - self.mean_queue);
        self.peak_rate.update(rate, dt, low > 0.5 * target);
        if low > EMPTY_QUEUE_TARGETS * target {
            self.filled_at = now;
        }
        let mut received = signals.path_rate_since_silence(rtt.max(RECEIVED_SPAN_MIN), rate).unwrap_or(rate);
        if signals.is_idle(now) {
            // The receive rate of an idle source is limited by the source, not by the path, so it must not pull the
            // law's rate down.
            received = received.max(IDLE_PATH_RATE_SHARE * rate);
        }
        let turn = self
            .on_loss(input, low, received, losses, first, config)
            .or_else(|| self.check_response(input, received, config));
        if let Some(turn) = turn {
            return turn;
        }
        self.scale = (self.scale + SCALE_RECOVERY * dt).min(1.0);
        if self.find_path(input, low, config) {
            return Transition::Stay(rate, "delay: a longer path");
        }
        if low > target {
            // The window of a round trip still contains packets that arrived before the queue formed. If there
            // certainly is a queue, the path rate of the last few packets is used, because it is more recent. An idle
            // source's receive rate is not the path rate.
            let soon = signals
                .path_rate_since_silence(self.low_span, rate)
                .filter(|_| low > QUEUE_CERTAIN_TARGETS * target && !signals.is_idle(now));
            return self.yield_rate(input, low, soon.map_or(received, |soon| soon.min(received)), target, config);
        }
        // The yield has lowered the rate, and a lower rate has a higher target. A queue that still stands may now be
        // below that target, so it is compared with the target from the beginning of the experiment.
        if let Some(experiment) = self.experiment
            && now - experiment.since > experiment.duration(signals)
            && low > experiment.target.max(STAYS_PEAK_SHARE * experiment.peak)
        {
            return Transition::Switch(experiment.received.max(experiment.rate), QUEUE_STAYS);
        }
        let is_gone = |experiment: &Experiment| {
            signals.low(rtt.max(config.report_most)) <= DRAINED_SHARE_MAX * target.min(experiment.peak)
        };
        self.experiment = self.experiment.filter(|experiment| !is_gone(experiment));
        if now - self.cut_at < rtt + 2.0 * config.report_every {
            // The effect of the last cut is not visible yet.
            return Transition::Stay(rate, "delay: wait");
        }
        if std::mem::take(&mut self.refill)
            && let Some(path_rate) = self.path_rate.filter(|path_rate| rate < REFILL_SHARE * path_rate)
        {
            return Transition::Stay(REFILL_SHARE * path_rate, "delay: drained");
        }
        self.grow(input, low, received, target, config)
    }

    /// Responds to a loss or a mark. If this shows other flows, COMPETE begins; otherwise the target may fall.
    fn on_loss(
        &mut self,
        input: &LawInput<'_>,
        low: f64,
        received: f64,
        losses: &mut LossClassifier,
        first: bool,
        config: &Config,
    ) -> Option<Transition> {
        let LawInput { now, rate, rtt, .. } = *input;
        if input.loss.is_none() && !input.mark {
            return None;
        }
        let own = self.own_queue.holds(now, rate);
        let packet = config.bits / self.path_rate.unwrap_or(rate).max(PACKET_TIME_RATE_MIN);
        let mut is_congestion = input.mark;
        if input.mark {
            losses.note(now);
        }
        if let Some(loss) = &input.loss {
            is_congestion |= losses.on_loss(now, loss, packet);
            if loss.q <= EMPTY_QUEUE_LOSS_DELAY.max(packet) {
                self.empty_queue_loss_at = now;
            } else if !losses.is_random() {
                self.queue_loss_at = now;
            }
        }
        // The queueing delay of the lost or marked packet.
        let met = input.loss.map(|loss| loss.q).or(input.mark.then_some(input.signals.q));
        let peak_rate = self.peak_rate.0;
        if !own
            && rate < PUSHED_DOWN_SHARE * peak_rate
            && losses.has_losses(now, PUSHED_DOWN_LOSSES, (now - self.begun).min(PUSHED_DOWN_SPAN))
            && !losses.is_random()
        {
            return Some(Transition::Switch(PUSHED_DOWN_START_SHARE * peak_rate, "compete: pushed down, with losses"));
        }
        if now < self.started + START_QUEUE_RTTS * rtt + config.report_most {
            return None;
        }
        let long = (LOSS_QUEUE_TARGETS * self.target(rate, config) + LOSS_QUEUE_MARGIN).max(LOSS_QUEUE_MIN);
        if !own && met.is_some() && low > long {
            return Some(Transition::Switch(LOSS_START_SHARE * rate.max(received), "compete: lost, with a queue"));
        }
        let stood = met.is_some_and(|q| q > STANDING_QUEUE_MIN && low > 0.5 * q);
        // A burst does not leave a standing queue, and an AQM does not drop at so low a target. Other flows therefore
        // fill the buffer.
        if !own && stood && self.scale < STANDING_QUEUE_SCALE_MAX {
            // After a COMPETE phase two losses are required, because COMPETE may have caused the first.
            let again = now - self.standing_loss_at < STANDING_LOSS_MEMORY || first;
            self.standing_loss_at = now;
            if again && !losses.is_random() {
                let rate = rate.max(received).max(0.5 * peak_rate);
                return Some(Transition::Switch(rate, "compete: lost again, in a standing queue"));
            }
        }
        if !is_congestion && !stood {
            return None;
        }
        // An AQM keeps the queue shorter than the target. Halving the scale lowers the target towards the AQM's
        // threshold.
        self.scale = (0.5 * self.scale).max(SCALE_MIN);
        if own && config.frames && !input.mark {
            // No other flow fills this queue, so the source itself has overflowed it: it sends more than is served.
            (self.path_rate, self.cut_at) = (Some(received), now);
            return Some(Transition::Stay(rate.min(received), "delay: lost in its own queue"));
        }
        input.mark.then(|| {
            self.cut_at = now;
            Transition::Stay(MARK_BETA * rate.min(received), "delay: marked")
        })
    }

    /// Checks whether a source of frames has only a small share of a standing queue. If so, its receive rate follows
    /// its sent rate. The sent rate of frames varies enough for this test. Other sources send trains instead.
    fn check_response(&mut self, input: &LawInput<'_>, received: f64, config: &Config) -> Option<Transition> {
        let LawInput { now, rate, signals, feedback, .. } = *input;
        if !config.frames || feedback.rows.is_empty() || self.own_queue.holds(now, rate) {
            return None;
        }
        if signals.min_queueing_delay(RESPONSE_QUEUE_SPAN, |packet| packet.whole) <= RESPONSE_QUEUE_MIN {
            return None;
        }
        feedback.rows.iter().for_each(|(sent, received)| self.response.add(now, *sent, *received));
        self.response.shows_small_share().then(|| self.compete_for_share(input, received))
    }

    /// Begins COMPETE if the flow has only a small share of a standing queue. No experiment is made, because this
    /// flow's yield could not drain that queue.
    fn compete_for_share(&self, input: &LawInput<'_>, received: f64) -> Transition {
        let rate = input.rate.max(received).max(0.5 * self.peak_rate.0);
        Transition::Switch(rate, "compete: little of a queue that stands")
    }

    /// Returns the range in seconds within which a delay counts as constant: half of the target's floor for noise.
    fn constant_within(&self, config: &Config) -> f64 {
        0.5 * config.target_floor.max(JITTER_NOISE_SHARE * self.jitter)
    }

    /// Returns true if the queueing delay is the base delay of another path, which no yield changes. An unshared queue
    /// would have drained, and the queue of a TCP varies with the TCP's window.
    fn find_path(&mut self, input: &LawInput<'_>, low: f64, config: &Config) -> bool {
        let LawInput { now, dt, rate, rtt, .. } = *input;
        let noise = self.constant_within(config);
        let Some(experiment) = self.experiment.as_mut() else { return false };
        let share = 1.0 - rate / experiment.rate;
        experiment.constancy.add(now, low, noise, (share, dt));
        if !experiment.constancy.is_path(now, (share, rtt), self.low_span) {
            return false;
        }
        self.new_path = Some(now - experiment.constancy.since);
        self.path_rate = Some(experiment.received.max(experiment.rate));
        (self.experiment, self.refill) = (None, true);
        true
    }

    /// Cuts the rate above the target ("yields"), and switches to COMPETE if the queue stays.
    fn yield_rate(
        &mut self,
        input: &LawInput<'_>,
        low: f64,
        received: f64,
        target: f64,
        config: &Config,
    ) -> Transition {
        let LawInput { now, rate, rtt, signals, .. } = *input;
        let noise = self.constant_within(config);
        // Just after a silence of the path, the receive rate is not the path rate, so the rate is not cut to it.
        let resumes = signals.time_since_silence().is_some_and(|since| since < PATH_RESUME_TIME);
        let experiment = self.experiment.get_or_insert(Experiment {
            since: now,
            peak: low,
            rate: if resumes { rate } else { rate.min(received.max(0.5 * rate)) },
            received,
            target,
            constancy: DelayConstancy::new(now, low),
        });
        let mut is_above_path = false;
        if low > experiment.peak + noise {
            experiment.peak = low;
            if received < PATH_DROP_SHARE * experiment.rate {
                // In a growing queue the link is busy, so the receive rate is what the path carries: the path has
                // become slower.
                experiment.rate = received / PATH_DROP_ACCURACY;
                is_above_path = rate > experiment.rate;
            }
        }
        let (age, duration) = (now - experiment.since, experiment.duration(signals));
        let stays = age > duration
            && (low > target.max(STAYS_PEAK_SHARE * experiment.peak) || age > EXPERIMENT_DURATIONS_MAX * duration);
        // A constant delay may be the base delay of another path. The test for that takes longer, so COMPETE waits for
        // its result.
        if stays && !experiment.constancy.is_constant(now, self.low_span) {
            return Transition::Switch(experiment.received.max(experiment.rate), QUEUE_STAYS);
        }
        let waits = resumes && age < PATH_RESUME_TIME;
        // A cut waits until the effect of the last cut is visible, unless more is sent than the path carries. In that
        // case the queue grows in any event.
        if !waits && (is_above_path || now - self.cut_at > rtt.min(CUT_INTERVAL_RTT_MAX) + 2.0 * config.report_every) {
            let cut = ((low - target / 2.0) / CUT_QUEUE_SCALE / (target / CUT_TARGET_MIN).min(1.0)).min(CUT_MAX);
            // If other flows take the yielded capacity, this lower bound limits what the experiment costs.
            let lower = (rate.min(received) * (1.0 - cut)).max(config.yield_to * experiment.rate);
            self.path_rate = Some(received);
            self.cut_at = now;
            // In an unshared queue no other flow takes the yielded capacity, so the rate is raised again once the queue
            // is gone. A source of frames is excluded, because its bursts fill such a queue again by themselves.
            self.refill |= !config.frames && self.own_queue.holds(now, rate);
            // Flows that run DELAY keep a packet or two each in the queue. If this flow has less than a packet, the
            // cause is other flows, an AQM or a low rate; a train shows which.
            let has_little = low * rate < config.bits;
            self.wants_train = has_little && !self.own_queue.holds(now, rate);
            if self.wants_train && input.share.is_some_and(|share| share < SMALL_SHARE_MAX) {
                return self.compete_for_share(input, received);
            }
            return Transition::Stay(lower, "delay: down");
        }
        Transition::Stay(rate, "delay: over target")
    }

    /// Raises the rate below the target.
    ///
    /// - Near the path rate the gain is low, because a large step would build a queue. It is proportional to the target
    ///   divided by the mean queue, so that a flow with a lower rate, which has a higher target, grows faster.
    /// - While the queue is empty, the gain grows with time.
    fn grow(&self, input: &LawInput<'_>, low: f64, received: f64, target: f64, config: &Config) -> Transition {
        let LawInput { now, dt, rate, signals, .. } = *input;
        let room = 1.0 - low / target;
        let of_path_rate = self.path_rate.map_or(f64::MAX, |path_rate| rate / path_rate);
        let fast = GAIN_MAX.min(GAIN_MAX_PER_RTT / input.rtt);
        let (least, most) = TARGET_PER_QUEUE;
        let by_share = GAIN * (target / self.mean_queue.max(MEAN_QUEUE_MIN)).clamp(least, most);
        let mut gain = by_share.min(fast).min(GAIN.max(GAIN_NEAR_PER_RTT / input.rtt));
        if of_path_rate < NEAR_PATH_RATE_MIN {
            gain = gain.max(GAIN_BELOW_PATH_RATE);
        }
        if !(NEAR_PATH_RATE_MIN..NEAR_PATH_RATE_MAX).contains(&of_path_rate) {
            let since = self.filled_at.max(self.cut_at).max(self.empty_queue_loss_at + DOUBLING_LOSS_DELAY);
            let free = now - since - input.rtt - EMPTY_DOUBLING_DELAY;
            if free > 0.0 {
                gain = gain.max((GAIN * libm::exp2(free / EMPTY_DOUBLING_TIME)).min(fast));
            }
        }
        if low < EMPTY_QUEUE_TARGETS * target && rate < RELEASED_SHARE_MAX * self.peak_rate.0 {
            gain = gain.max(fast);
        }
        let faster = rate * (1.0 + gain * room * dt);
        let most = GROWTH_RECEIVED_MULTIPLE_MAX * received.max(signals.received(GROWTH_RECEIVED_SPAN).unwrap_or(0.0))
            + 2.0 * config.bits;
        // `most` stops growth, but does not lower the rate. With frames, a rate that the source leaves unused decays to
        // `kept`, because frames are paced at a multiple of the rate, and their bursts would delay other flows.
        let kept = if config.frames { signals.usage_limit() } else { f64::INFINITY };
        let next = if rate > kept {
            (rate * libm::exp(-dt / UNUSED_RATE_DECAY)).max(kept)
        } else if rate < most {
            faster.min(most)
        } else {
            rate
        };
        Transition::Stay(next, UP)
    }
}
