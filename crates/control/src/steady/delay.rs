//! DELAY: the control law of a flow that shares its queue with no other flow, or only with flows that run `steady`. It
//! keeps the queueing delay at a target, which is the transmission time of a packet or two.
//!
//! [`DelayLaw::update`] applies these rules in order:
//!
//! 1. [`DelayLaw::on_loss`]: if a loss or a mark indicates that other flows share the queue, COMPETE begins. If an AQM
//!    may have dropped or marked the packet, the target is lowered.
//! 2. [`DelayLaw::check_response`]: COMPETE begins if nearly all packets of a standing queue belong to other flows.
//! 3. [`DelayLaw::find_path`]: if the rate was cut but the delay stayed constant, the path has changed, and this delay
//!    belongs to the new path.
//! 4. [`DelayLaw::yield_rate`]: if the queueing delay is above the target, the rate is cut ("yielded"). If the queue
//!    stays nevertheless, other flows fill it, and COMPETE begins.
//! 5. [`DelayLaw::grow`]: if the queueing delay is below the target, the rate grows.

use super::law_input::{LawInput, Transition};
use super::signals::{PATH_RESUME_TIME, RECEIVED_SPAN_MIN, RecentMean, Signals};
use super::verdict::{LossClassifier, OwnQueue, PeakRate, RateResponse};
use super::{Config, RATE_MIN};

/// Name of the rule that begins COMPETE because a queue stays although the rate was cut. Other flows keep the queue.
const QUEUE_STAYS: &str = "compete: yielded, and still a queue";

/// Name of the rule that lets the rate grow.
pub(super) const UP: &str = "delay: up";

// Constants for the queue and the target.

/// Minimum duration over which the standing queue is measured, in seconds. A burst drains within this time.
const LOW_SPAN_MIN: f64 = 0.060;
/// Maximum duration over which the standing queue is measured, in seconds.
const LOW_SPAN_MAX: f64 = 1.0;
/// Factor by which jitter lengthens the duration over which the standing queue is measured
/// ([`DelayLaw::update_jitter`]). It was set with `steadycast experiment networks --draw 9303` and `--draw 9304`. These
/// experiments had the factor 6.0, but [`JITTER_PACKETS`] and [`JITTER_SPAN_MIN`] had half of their present values.
const LOW_SPAN_PER_JITTER: f64 = 3.0;
/// The jitter is measured over the time that sending this number of packets takes.
const JITTER_PACKETS: f64 = 10.0;
/// Minimum duration over which the jitter is measured, in seconds. A delay spike of a busy Wi-Fi channel lasts for
/// about 90 ms. Over a shorter duration, the spike would delay all packets equally, and would not count as jitter.
const JITTER_SPAN_MIN: f64 = 0.120;
/// Time constant of the mean jitter, in seconds.
const JITTER_MEMORY: f64 = 3.0;
/// The target contains an allowance for noise. The allowance is at least this fraction of the jitter.
const JITTER_NOISE_SHARE: f64 = 0.7;
/// At low rates, the target approaches this upper limit, in seconds.
const TARGET_MAX: f64 = 0.050;
/// If the source sends frames, the target is at least this fraction of what it would be without the limit
/// [`TARGET_MAX`].
const FRAMES_TARGET_SHARE_MIN: f64 = 0.9;
/// CoDel's target, in seconds. CoDel drops packets while the queueing delay stays above it (RFC 8289, 3.2).
const CODEL_TARGET: f64 = 0.005;
/// When an AQM drops a packet, the target is scaled down. The scale then rises by this amount per second.
const SCALE_RECOVERY: f64 = 0.005;
/// Minimum scale of the target.
const SCALE_MIN: f64 = 0.25;
/// The queue counts as empty if the queueing delay is below this fraction of the target.
const EMPTY_QUEUE_TARGETS: f64 = 0.3;
/// The path rate of an idle source is assumed to be at least this fraction of the current rate.
const IDLE_PATH_RATE_SHARE: f64 = 0.9;

// Constants for losses and marks.

/// The transmission time of a packet is computed for a path rate of at least this, in bit/s.
const PACKET_TIME_RATE_MIN: f64 = 100_000.0;
/// A packet was lost in an empty queue if its queueing delay was at most this value, in seconds. The transmission time
/// of a packet replaces this value if it is longer.
const EMPTY_QUEUE_LOSS_DELAY: f64 = 0.008;
/// After a loss in a queue, it is in doubt for this time, in seconds, whether other flows share the queue.
const LOSS_ATTRIBUTION_TIME: f64 = 2.0;
/// If the rate is below this fraction of its peak and losses occur, other flows have pushed the rate down.
const PUSHED_DOWN_SHARE: f64 = 0.7;
/// Number of losses that show that other flows have pushed the rate down.
const PUSHED_DOWN_LOSSES: usize = 2;
/// The [`PUSHED_DOWN_LOSSES`] losses must occur within this time, in seconds.
const PUSHED_DOWN_SPAN: f64 = 20.0;
/// If other flows have pushed the rate down, COMPETE begins with this fraction of the peak rate.
const PUSHED_DOWN_START_SHARE: f64 = 0.8;
/// For this number of round trips after START, a loss in a queue does not indicate other flows, because START itself
/// has built the queue.
const START_QUEUE_RTTS: f64 = 3.0;
/// A loss indicates that other flows share the queue if the queueing delay is above `LOSS_QUEUE_TARGETS` × target +
/// [`LOSS_QUEUE_MARGIN`].
const LOSS_QUEUE_TARGETS: f64 = 3.0;
/// The margin in the formula of [`LOSS_QUEUE_TARGETS`], in seconds.
const LOSS_QUEUE_MARGIN: f64 = 0.010;
/// Lower bound of the threshold in the formula of [`LOSS_QUEUE_TARGETS`], in seconds. If all flows run DELAY, their
/// queue is shorter.
const LOSS_QUEUE_MIN: f64 = 0.020;
/// If COMPETE begins because of a loss at a queueing delay above that threshold, its first rate is this fraction of the
/// previous rate or of the receive rate, whichever is higher.
const LOSS_START_SHARE: f64 = 0.85;
/// A packet was lost in a standing queue if its queueing delay was above this value, in seconds, and if the current
/// standing queue is longer than half of that delay.
const STANDING_QUEUE_MIN: f64 = 0.008;
/// Each loss that an AQM may have caused lowers the scale of the target, down to [`SCALE_MIN`]. If the scale is already
/// below this value, a loss in a standing queue indicates other flows. An AQM would not drop packets at such a low
/// target.
const STANDING_QUEUE_SCALE_MAX: f64 = 0.3;
/// After a COMPETE phase, a single loss in a standing queue does not indicate other flows. Two such losses do, if they
/// occur within this time, in seconds.
const STANDING_LOSS_MEMORY: f64 = 20.0;
/// A mark multiplies the rate by this factor.
const MARK_BETA: f64 = 0.95;

// Constants for a standing queue in which nearly all packets belong to other flows.

/// A queue must stand for this time, in seconds, before the response of the receive rate is evaluated. A burst drains
/// sooner, even if it belongs to another flow that runs `steady`.
const RESPONSE_QUEUE_SPAN: f64 = 0.7;
/// Minimum queueing delay during that time, in seconds.
const RESPONSE_QUEUE_MIN: f64 = 0.020;
/// While a queue stands and the response is unknown, the source gets a rate that is higher and lower in turn, by this
/// fraction. A source of frames of one size shows no response by itself.
const VARIATION: f64 = 0.15;
/// The time for which that rate is higher, and for which it then is lower, in seconds. Except at the lowest rates, a
/// row ([`super::signals::FeedbackSummary::rows`]) fits into this time. Several such times fit into the memory of
/// [`RateResponse`].
const VARIATION_HALF_PERIOD: f64 = 0.5;
/// If trains show that this flow has less than this share of the queue, COMPETE begins. Flows that run DELAY have equal
/// shares. To get such a small share, more than ten of them would have to share the queue.
///
/// Beside BBRv3 the share is 0.02 to 0.05 (validation/experiments/dossier.toml, 5.2.1).
const SMALL_SHARE_MAX: f64 = 0.1;

// Constants for cuts of the rate while the queueing delay is above the target. A cut shows whether another flow fills
// the queue.

/// A queueing delay above this multiple of the target certainly is a queue. The path rate is then measured over the
/// last few packets only.
const QUEUE_CERTAIN_TARGETS: f64 = 3.0;
/// A cut lowers the rate by the fraction (queueing delay − target / 2) / `CUT_QUEUE_SCALE`. The constant is in seconds.
const CUT_QUEUE_SCALE: f64 = 0.2;
/// If the target is shorter than this, in seconds, a cut is larger, in inverse proportion to the target. The value was
/// found with `validation/experiments/kin.toml`.
///
/// A flow with a higher rate has a shorter target. It therefore cuts a larger fraction of its rate, and the rates of
/// the flows become more equal.
const CUT_TARGET_MIN: f64 = 0.004;
/// Maximum cut, as a fraction of the rate.
const CUT_MAX: f64 = 0.25;
/// The minimum interval between two cuts is two report intervals plus the round-trip time. A round-trip time longer
/// than this, in seconds, is replaced by this value.
const CUT_INTERVAL_RTT_MAX: f64 = 0.2;
/// A cut begins an [`Experiment`], in which the queue of a flow without competitors drains. The duration of the
/// experiment is computed for a queueing delay of at most this, in seconds.
const EXPERIMENT_QUEUE_MAX: f64 = 0.3;
/// In an experiment, the queue of a flow without competitors is assumed to drain at this fraction of the link's rate.
const EXPERIMENT_DRAIN_SHARE: f64 = 0.25;
/// An experiment lasts for this number of round trips longer than the queue needs to drain.
const EXPERIMENT_RTTS: f64 = 4.0;
/// An experiment lasts for this additional time, in seconds. Another flow that starts meanwhile may lengthen the queue
/// for a moment.
const EXPERIMENT_MARGIN: f64 = 0.6;
/// If there still is a queue after this multiple of the experiment's duration, other flows fill it. This holds even if
/// the queue is shorter than at its peak.
const EXPERIMENT_DURATIONS_MAX: f64 = 3.0;
/// If the queueing delay is above this fraction of its peak, the queue has not drained.
const STAYS_PEAK_SHARE: f64 = 0.7;
/// An [`Experiment`] ends without COMPETE once the queueing delay is short. It must be at most this fraction of its
/// peak and at most this fraction of the target.
const DRAINED_SHARE_MAX: f64 = 0.7;
/// The path has become slower if the queue grows while the receive rate is below this fraction of the rate before the
/// cut.
const PATH_DROP_SHARE: f64 = 0.85;
/// How accurate the receive rate in a growing queue is. The path may carry up to the receive rate divided by this
/// value.
const PATH_DROP_ACCURACY: f64 = 0.9;
/// Once the queue is gone, the rate is raised to this fraction of the path rate in one step.
const REFILL_SHARE: f64 = 0.9;

// Constants for the detection of another path.

/// A delay counts as the base delay of another path if it stays constant, apart from noise, for long enough. The
/// required time is a round trip plus this number of [`DelayLaw::low_span`]s.
///
/// Without jitter, these spans take half a second. The queue of a CUBIC flow does not stay constant for so long. For
/// example, it changes by 3 ms per second on a link of 40 Mb/s with a round-trip time of 44 ms (RFC 9438, equation 1).
/// In half a second, that is more than noise of 1 ms.
const CONSTANT_DELAY_SPANS: f64 = 8.0;
/// In the test for another path, a cut of the rate by less than this fraction is ignored. The rate before the cut is
/// only known to a tenth ([`PATH_DROP_ACCURACY`]), so a smaller difference may be an error.
const YIELDED_SHARE_MIN: f64 = 0.15;

// Constants for the growth of the rate.

/// Growth per second near the path rate while the mean queueing delay equals the target, as a fraction of the rate.
const GAIN: f64 = 0.06;
/// Time constant of the mean queueing delay, in seconds. It is longer than an oscillation of the queue.
const MEAN_QUEUE_MEMORY: f64 = 2.0;
/// Near the path rate, growth is multiplied by the ratio of the target to the mean queueing delay. These are the limits
/// of that ratio.
const TARGET_PER_QUEUE: (f64, f64) = (0.25, 8.0);
/// Lower bound of the mean queueing delay in that ratio, in seconds.
const MEAN_QUEUE_MIN: f64 = 1e-5;
/// Near the path rate, the growth per second is at most [`GAIN`], or this fraction of the rate per round trip if that
/// is more. A sender sees the queue a round trip late, so faster growth would build a longer queue even without other
/// flows.
const GAIN_NEAR_PER_RTT: f64 = 0.01;
/// Growth per second while the rate is clearly below the path rate, as a fraction of the rate.
const GAIN_BELOW_PATH_RATE: f64 = 0.4;
/// At this fraction of the path rate or more, the rate counts as near the path rate, and growth is slow.
const NEAR_PATH_RATE_MIN: f64 = 0.92;
/// Up to this multiple of the path rate, the rate counts as near the path rate. The queue may be empty there for a
/// while, although there is no spare capacity.
const NEAR_PATH_RATE_MAX: f64 = 1.1;
/// Maximum growth per second, as a fraction of the rate.
const GAIN_MAX: f64 = 1.0;
/// Maximum growth per round trip, as a fraction of the rate.
const GAIN_MAX_PER_RTT: f64 = 0.1;
/// A loss without a queue, for example by a policer, delays the doubling of the gain by this time, in seconds.
const DOUBLING_LOSS_DELAY: f64 = 2.0;
/// The gain begins to double once the queue has been empty for a round trip plus this time, in seconds.
const EMPTY_DOUBLING_DELAY: f64 = 0.3;
/// While the queue is empty, the gain doubles once per this time, in seconds.
const EMPTY_DOUBLING_TIME: f64 = 0.25;
/// If the queue is empty and the rate is below this fraction of its peak, the flow that pushed it down has left.
const RELEASED_SHARE_MAX: f64 = 0.6;
/// The rate grows to at most this multiple of the receive rate, plus two packets per second.
const GROWTH_RECEIVED_MULTIPLE_MAX: f64 = 1.3;
/// The receive rate that limits growth is measured over a round trip and over this time, in seconds. The higher result
/// is used, because the round trip may lie in a pause of the source.
const GROWTH_RECEIVED_SPAN: f64 = 0.5;
/// While a source of frames leaves the rate unused, the rate falls with this time constant, in seconds.
const UNUSED_RATE_DECAY: f64 = 4.0;

/// Tracks for how long the queueing delay has been constant. Also tracks by how much an unshared queue would have
/// become shorter in this time, because the rate was cut.
#[derive(Clone, Copy, Debug)]
struct DelayConstancy {
    since: f64,
    min: f64,
    max: f64,
    /// By how much the queueing delay of an unshared queue would have fallen because the rate was cut, in seconds. Each
    /// interval between two reports adds its duration times the fraction by which the rate was cut.
    yielded: f64,
}

impl DelayConstancy {
    fn new(now: f64, low: f64) -> Self {
        Self { since: now, min: low, max: low, yielded: 0.0 }
    }

    /// Adds the queueing delay of a report. `share` is the fraction by which the rate was cut in the `dt` seconds
    /// before the report. Restarts if the delay has changed by more than `noise`.
    fn add(&mut self, now: f64, low: f64, noise: f64, (share, dt): (f64, f64)) {
        (self.min, self.max) = (self.min.min(low), self.max.max(low));
        self.yielded += if share > YIELDED_SHARE_MIN { share * dt } else { 0.0 };
        if self.max - self.min > noise {
            *self = Self::new(now, low);
        }
    }

    /// Returns whether the delay has been constant. Each delay was measured as the minimum over `span` seconds.
    fn is_constant(&self, now: f64, span: f64) -> bool {
        now - self.since > CONSTANT_DELAY_SPANS * span
    }

    /// Returns whether the constant delay is the base delay of a path. An unshared queue would have drained by now,
    /// because the rate was cut. The last round trip does not count, because a cut takes effect a round trip later.
    fn is_path(&self, now: f64, (share, rtt): (f64, f64), span: f64) -> bool {
        self.is_constant(now - rtt, span) && self.yielded - share * rtt > self.max
    }
}

/// A test of whether other flows fill the queue: the rate is cut, to see whether the queue drains. It begins when the
/// queueing delay exceeds the target, and ends when the queue is gone or COMPETE begins.
#[derive(Clone, Copy, Debug)]
struct Experiment {
    since: f64,
    /// Maximum of the standing queueing delay since the experiment began, in seconds. An increase that may be noise is
    /// ignored.
    peak: f64,
    /// The rate before the cut, in bit/s. Rates after the cut are compared with it.
    rate: f64,
    /// The path rate at the beginning of the experiment, in bit/s.
    received: f64,
    /// The target at the beginning of the experiment, in seconds. The queue is compared with this target, because the
    /// current target is longer: it rises when the rate is cut.
    target: f64,
    constancy: DelayConstancy,
}

impl Experiment {
    /// Returns the duration of the experiment, in seconds. In this time, a queue drains if no other flow fills it.
    fn duration(&self, signals: &Signals) -> f64 {
        self.peak.min(EXPERIMENT_QUEUE_MAX) / EXPERIMENT_DRAIN_SHARE
            + EXPERIMENT_RTTS * signals.base_rtt
            + EXPERIMENT_MARGIN
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DelayLaw {
    /// Factor of the target of the queueing delay. It is below 1 if an AQM drops or marks packets at the target.
    scale: f64,
    /// The path rate at the last cut, in bit/s.
    pub(super) path_rate: Option<f64>,
    pub(super) cut_at: f64,
    experiment: Option<Experiment>,
    /// When START ended.
    pub(super) started: f64,
    /// When a packet was last lost in a queue.
    queue_loss_at: f64,
    /// When a packet was last lost without a queue.
    empty_queue_loss_at: f64,
    /// When the queue was last not empty.
    filled_at: f64,
    /// Mean standing queueing delay, in seconds. All flows in the same queue measure nearly the same value.
    mean_queue: f64,
    pub(super) peak_rate: PeakRate,
    own_queue: OwnQueue,
    /// When this law took over.
    pub(super) begun: f64,
    /// When a packet was last lost in a standing queue.
    standing_loss_at: f64,
    /// Whether the rate may be raised to the path rate in one step once the queue is gone.
    pub(super) refill: bool,
    /// Set when a constant delay turns out to be the base delay of another path. The value is the time in seconds for
    /// which the delay has been constant. [`super::law::Law`] then adopts the new base delay and clears this field.
    pub(super) new_path: Option<f64>,
    /// Mean jitter, in seconds. The jitter is the mean delay of a few packets minus their minimum delay. A standing
    /// queue delays all of them equally, so it does not add to the jitter.
    jitter: RecentMean,
    /// Duration over which the standing queue is measured, in seconds. The standing queue is the minimum queueing delay
    /// in it.
    pub(super) low_span: f64,
    /// Whether a packet train ([`super::trains`]) is requested. This is the case if the rate was cut although this flow
    /// has less than a packet in the queue. The train shows whether other flows fill the queue.
    wants_train: bool,
    /// How the receive rate responds to the sent rate in a standing queue.
    response: RateResponse,
    /// When a queue was first and last found to stand while the response was unknown. A longer time between two such
    /// findings than [`VARIATION_HALF_PERIOD`] begins anew.
    unknown: (f64, f64),
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
            unknown: (f64::MIN, f64::MIN),
            low_span: LOW_SPAN_MIN,
            ..Self::default()
        }
    }

    /// Updates the mean jitter, and the duration over which the standing queue is measured. The larger the jitter is
    /// relative to the target, the more packets it takes until one of them arrives without jitter.
    pub(super) fn update_jitter(&mut self, signals: &Signals, rate: f64, dt: f64, config: &Config) {
        let few = JITTER_SPAN_MIN.max(JITTER_PACKETS * config.bits / rate);
        self.jitter.add(signals.jitter(few), dt / JITTER_MEMORY);
        let longer = LOW_SPAN_PER_JITTER * self.jitter.value / self.target(rate, config);
        self.low_span = (LOW_SPAN_MIN + longer * few).min(LOW_SPAN_MAX);
    }

    /// Returns the target: the queueing delay, in seconds, at which the rate neither grows nor falls.
    ///
    /// The target is an allowance for noise, plus the time that sending a packet or two at this flow's rate takes. A
    /// flow with a higher rate has a shorter target, so that flows that run DELAY converge to equal shares. The target
    /// does not depend on the round-trip time, so the shares do not depend on it either.
    ///
    /// At low rates, the target approaches [`TARGET_MAX`] smoothly. If it were clipped there, it would no longer depend
    /// on the rate.
    pub(super) fn target(&self, rate: f64, config: &Config) -> f64 {
        self.scaled_target(self.scale, rate, config)
    }

    fn scaled_target(&self, scale: f64, rate: f64, config: &Config) -> f64 {
        let noise = config.target_floor.max(JITTER_NOISE_SHARE * self.jitter.value);
        let raw = noise + config.target_packets * config.bits / rate.max(RATE_MIN);
        let bent = TARGET_MAX * (1.0 - libm::exp(-raw * scale / TARGET_MAX));
        let least = if config.frames { FRAMES_TARGET_SHARE_MIN * raw * scale } else { 0.0 };
        bent.max(least)
    }

    /// Returns the current target. Packet drops of an AQM do not lower it below the transmission time of a packet. A
    /// single packet that waits for its turn is no queue to CoDel (RFC 8289, 3.2).
    pub(super) fn target_now(&self, now: f64, rate: f64, config: &Config) -> f64 {
        let packet = |rate: f64| config.bits / rate - CODEL_TARGET;
        let least = if self.own_queue.holds(now, rate) {
            packet(rate)
        } else {
            // Compute the transmission time at the peak rate, because other flows may have pushed the current rate
            // down. At the current rate it would be longer, and would raise the target above the queue of the other
            // flows.
            packet(rate.max(self.peak_rate.0)).min(self.scaled_target(1.0, rate, config))
        };
        self.target(rate, config).max(least)
    }

    /// Returns whether the queue is currently considered unshared.
    pub(super) fn has_own_queue(&self, now: f64, rate: f64) -> bool {
        self.own_queue.holds(now, rate)
    }

    /// Returns whether a packet was lost recently in a queue that other flows may share.
    pub(super) fn is_queue_in_doubt(&self, now: f64, rate: f64) -> bool {
        now - self.queue_loss_at < LOSS_ATTRIBUTION_TIME && !self.own_queue.holds(now, rate)
    }

    /// Returns whether a packet train is requested, and clears the request. The train shows whether other flows share
    /// the queue.
    pub(super) fn takes_train_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_train)
    }

    /// Sets the path rate and the peak rate to `received`, the rate that a policer or a short queue passes.
    pub(super) fn set_policed(&mut self, now: f64, received: f64) {
        (self.path_rate, self.cut_at, self.refill) = (Some(received), now, false);
        (self.peak_rate, self.empty_queue_loss_at) = (PeakRate(received), now);
    }

    /// Records that the queue is considered unshared for now ([`OwnQueue::holds`]). `rate` is the current sending rate,
    /// in bit/s.
    pub(super) fn set_own_queue(&mut self, now: f64, rate: f64) {
        self.own_queue = OwnQueue::new(now, rate);
        self.scale = 1.0;
    }

    /// Returns by how much jitter lengthens [`Self::low_span`], in seconds.
    pub(super) fn jitter_span(&self) -> f64 {
        self.low_span - LOW_SPAN_MIN
    }

    /// Takes control over from another law.
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
            // Assume a higher path rate. An idle source limits the receive rate itself, so its receive rate must not
            // lower the rate.
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
            // The last round trip still contains packets that arrived before the queue formed. If there certainly is a
            // queue, measure the path rate over the last few packets instead. An idle source is excluded, because its
            // receive rate is not the path rate.
            let soon = signals
                .path_rate_since_silence(self.low_span, rate)
                .filter(|_| low > QUEUE_CERTAIN_TARGETS * target && !signals.is_idle(now));
            return self.yield_rate(input, low, soon.map_or(received, |soon| soon.min(received)), target, config);
        }
        // A cut lowers the rate, and a lower rate has a longer target. A queue that still stands may now be below that
        // target. Compare it with the target from the beginning of the experiment.
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
            // Keep the rate until the effect of the last cut is visible.
            return Transition::Stay(rate, "delay: wait");
        }
        if std::mem::take(&mut self.refill)
            && let Some(path_rate) = self.path_rate.filter(|path_rate| rate < REFILL_SHARE * path_rate)
        {
            return Transition::Stay(REFILL_SHARE * path_rate, "delay: drained");
        }
        self.grow(input, low, received, target, config)
    }

    /// Responds to a loss or a mark. If it indicates that other flows share the queue, COMPETE begins. Otherwise the
    /// target of the queueing delay may be lowered.
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
        // Queueing delay that the lost or marked packet has met.
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
        // Other flows fill the buffer. A burst is not the cause, because it leaves no standing queue. An AQM is not the
        // cause either, because it does not drop packets at such a low target.
        if !own && stood && self.scale < STANDING_QUEUE_SCALE_MAX {
            // After a COMPETE phase, require two losses, because COMPETE may have caused the first loss.
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
        // An AQM keeps the queue shorter than the target. Halve the scale, so that the target approaches the threshold
        // of the AQM.
        self.scale = (0.5 * self.scale).max(SCALE_MIN);
        if own && config.frames && !input.mark {
            // No other flow fills this queue, so the source itself has overflowed it. Send no more than is served.
            (self.path_rate, self.cut_at) = (Some(received), now);
            return Some(Transition::Stay(rate.min(received), "delay: lost in its own queue"));
        }
        input.mark.then(|| {
            self.cut_at = now;
            Transition::Stay(MARK_BETA * rate.min(received), "delay: marked")
        })
    }

    /// Begins COMPETE if this flow has only a small share of a standing queue. This is so if the receive rate follows
    /// the sent rate. Only a source of frames is tested, because the sent rate must vary. Other sources send trains
    /// instead.
    fn check_response(&mut self, input: &LawInput<'_>, received: f64, config: &Config) -> Option<Transition> {
        let LawInput { now, rate, signals, feedback, .. } = *input;
        if !config.frames || feedback.rows.is_empty() || self.own_queue.holds(now, rate) {
            return None;
        }
        if signals.min_queueing_delay(RESPONSE_QUEUE_SPAN, |packet| packet.whole) <= RESPONSE_QUEUE_MIN {
            return None;
        }
        feedback.rows.iter().for_each(|(sent, received)| self.response.add(now, *sent, *received));
        if self.response.is_unknown() {
            let begun = if now - self.unknown.1 > VARIATION_HALF_PERIOD { now } else { self.unknown.0 };
            self.unknown = (begun, now);
        }
        self.response.shows_small_share().then(|| self.compete_for_share(input, received))
    }

    /// Returns the ratio of the rate for the source to the rate that was decided on. It differs from 1 only if a queue
    /// stands and the response is unknown ([`VARIATION`]).
    pub(super) fn variation(&self, now: f64) -> f64 {
        let (begun, last) = self.unknown;
        if now - last > VARIATION_HALF_PERIOD {
            return 1.0;
        }
        // Count from the flow's own finding, so that several flows do not vary in step.
        let half = (now - begun) / VARIATION_HALF_PERIOD;
        if (half as u64).is_multiple_of(2) { 1.0 + VARIATION } else { 1.0 - VARIATION }
    }

    /// Begins COMPETE, because the flow has only a small share of a standing queue. This needs no [`Experiment`],
    /// because such a small flow could not drain the queue by a cut of its rate.
    fn compete_for_share(&self, input: &LawInput<'_>, received: f64) -> Transition {
        let rate = input.rate.max(received).max(0.5 * self.peak_rate.0);
        Transition::Switch(rate, "compete: little of a queue that stands")
    }

    /// Returns by how much a constant delay may vary, in seconds: half of the target's allowance for noise.
    fn constant_within(&self, config: &Config) -> f64 {
        0.5 * config.target_floor.max(JITTER_NOISE_SHARE * self.jitter.value)
    }

    /// Returns whether the path has changed to one with a longer base delay. The measured queueing delay then stays
    /// constant although the rate was cut. An unshared queue would have drained, and the queue of a TCP would vary with
    /// the TCP's window.
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

    /// Cuts the rate ("yields"), because the queueing delay is above the target. Switches to COMPETE if the queue
    /// stays.
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
        // Do not cut the rate to the receive rate just after a silence of the path. The receive rate is not the path
        // rate then.
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
                // While the queue grows, the link is busy, so the receive rate is what the path carries. It is low, so
                // the path has become slower.
                experiment.rate = received / PATH_DROP_ACCURACY;
                is_above_path = rate > experiment.rate;
            }
        }
        let (age, duration) = (now - experiment.since, experiment.duration(signals));
        let stays = age > duration
            && (low > target.max(STAYS_PEAK_SHARE * experiment.peak) || age > EXPERIMENT_DURATIONS_MAX * duration);
        // Do not begin COMPETE while the delay is constant, because it may be the base delay of another path.
        // `find_path` needs more time than this experiment to detect another path, so wait for it.
        if stays && !experiment.constancy.is_constant(now, self.low_span) {
            return Transition::Switch(experiment.received.max(experiment.rate), QUEUE_STAYS);
        }
        let waits = resumes && age < PATH_RESUME_TIME;
        // Before the next cut, wait until the effect of the last cut is visible. If more is sent than the path carries,
        // do not wait, because the queue keeps growing.
        if !waits && (is_above_path || now - self.cut_at > rtt.min(CUT_INTERVAL_RTT_MAX) + 2.0 * config.report_every) {
            let cut = ((low - target / 2.0) / CUT_QUEUE_SCALE / (target / CUT_TARGET_MIN).min(1.0)).min(CUT_MAX);
            // Limit how far the rate is lowered, because other flows may take the capacity that this flow leaves.
            let lower = (rate.min(received) * (1.0 - cut)).max(config.yield_to * experiment.rate);
            self.path_rate = Some(received);
            self.cut_at = now;
            // Raise the rate again once the queue is gone. In an unshared queue, no other flow takes the capacity that
            // the cut leaves. A source of frames is excluded, because its bursts would fill the queue again.
            self.refill |= !config.frames && self.own_queue.holds(now, rate);
            // Flows that run DELAY each keep a packet or two in the queue. If this flow has less than a packet there,
            // the cause may be other flows, an AQM or a low rate. Request a train, which shows the cause.
            let has_little = low * rate < config.bits;
            self.wants_train = has_little && !self.own_queue.holds(now, rate);
            if self.wants_train && input.share.is_some_and(|share| share < SMALL_SHARE_MAX) {
                return self.compete_for_share(input, received);
            }
            return Transition::Stay(lower, "delay: down");
        }
        Transition::Stay(rate, "delay: over target")
    }

    /// Raises the rate, because the queueing delay is below the target.
    ///
    /// - Near the path rate the gain is low, because a large step would build a queue. The gain is proportional to the
    ///   ratio of the target to the mean queueing delay. A flow with a lower rate has a longer target, and therefore
    ///   grows faster.
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
        // `most` stops growth, but does not lower the rate. If the source sends frames, a rate that it leaves unused
        // decays to `kept`. Frames are paced at a multiple of the rate. If an unused rate stayed high, their bursts
        // would delay other flows.
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
