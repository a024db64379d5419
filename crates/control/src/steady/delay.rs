//! The law of a sender that is alone, or among its kind: a rate that keeps a packet or two in the queue.

use super::Config;
use super::constants::*;
use super::law_input::{LawInput, Transition};
use super::signals::Signals;
use super::verdict::{LossClassifier, OwnQueue, PeakRate, RateResponse};

/// Why competing begins: others keep the queue.
const STANDS: &str = "compete: yielded, and still a queue";

/// The rule by which the rate grows.
pub(super) const UP: &str = "delay: up";

/// How long the queueing delay has stayed within noise, and how much of the flow's own queue the yield has drained since
/// then.
#[derive(Clone, Copy, Debug)]
struct Constancy {
    since: f64,
    least: f64,
    most: f64,
    /// The yielded share of the rate times its duration, in seconds of queue.
    yielded: f64,
}

impl Constancy {
    fn new(now: f64, low: f64) -> Self {
        Self { since: now, least: low, most: low, yielded: 0.0 }
    }

    /// Adds a report's delay, and the `share` of the rate that was yielded in the `dt` seconds before it. Begins anew
    /// where the delay has changed by more than `noise`.
    fn see(&mut self, now: f64, low: f64, noise: f64, (share, dt): (f64, f64)) {
        (self.least, self.most) = (self.least.min(low), self.most.max(low));
        self.yielded += if share > PATH_YIELD_LEAST { share * dt } else { 0.0 };
        if self.most - self.least > noise {
            *self = Self::new(now, low);
        }
    }

    /// Whether the delay, measured as the least of each `span` seconds, is constant.
    fn holds(&self, now: f64, span: f64) -> bool {
        now - self.since > PATH_CONSTANT_SPANS * span
    }

    /// Whether the constant delay is the path's: the yield, which takes effect a round trip later, would have drained
    /// all of it.
    fn is_path(&self, now: f64, (share, rtt): (f64, f64), span: f64) -> bool {
        self.holds(now - rtt, span) && self.yielded - share * rtt > self.most
    }
}

/// Over the target: since when, and how it was then.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: f64,
    /// The highest of the least queueing delays, but for noise.
    peak: f64,
    /// The rate from which the yield is counted.
    rate: f64,
    received: f64,
    /// The target then, which the yield raises.
    target: f64,
    constancy: Constancy,
}

impl Episode {
    /// How long a queue of its own may take to go, in seconds.
    fn enough(&self, signals: &Signals) -> f64 {
        self.peak.min(A_MOMENT) / A_QUARTER + f64::from(SEVERAL) * signals.base_rtt + 2.0 * A_MOMENT
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DelayLaw {
    /// The target's scale: less where an AQM drops at the target.
    scale: f64,
    /// What the path carried at the last overuse.
    pub(super) carried: Option<f64>,
    pub(super) cut_at: f64,
    episode: Option<Episode>,
    /// When the start was over.
    pub(super) started: f64,
    /// When a loss met a queue last, and when one met none.
    queue_lost_at: f64,
    chance_at: f64,
    /// When the queue was last more than empty.
    filled_at: f64,
    pub(super) memory: PeakRate,
    own: OwnQueue,
    /// When this law began to rule.
    begun: f64,
    /// When a loss met a standing queue last.
    stood_at: f64,
    /// The rate may go up to what the path carried at once when the queue is gone.
    pub(super) refill: bool,
    /// The seconds for which the delay of another path has been constant, once one is found; the law takes the value.
    pub(super) new_path: Option<f64>,
    /// How much more than the least of a few packets their delay is in the mean, in seconds: what jitter makes, since
    /// a queue that stands is there for all of them. The least queueing delay of this many seconds is the queue.
    jitter: f64,
    pub(super) span: f64,
    /// A cut has met a queue in which less than a packet was this flow's: it is to be seen whose that is.
    wonders: bool,
    /// How what arrives follows what is sent while a queue stands.
    follows: RateResponse,
}

impl DelayLaw {
    pub(super) fn new() -> Self {
        Self {
            scale: 1.0,
            cut_at: f64::MIN,
            started: f64::MIN,
            queue_lost_at: f64::MIN,
            chance_at: f64::MIN,
            filled_at: f64::MIN,
            stood_at: f64::MIN,
            span: LOW_SPAN,
            ..Self::default()
        }
    }

    /// Learns how much delays vary among a few packets: so much is noise, and the more there is of it, as a part of the
    /// target, the more packets it takes to see how empty the queue is.
    pub(super) fn see_jitter(&mut self, signals: &Signals, rate: f64, dt: f64, config: &Config) {
        let few = LOW_SPAN.max(FEW * config.bits / rate);
        self.jitter += (dt / SEEN).min(1.0) * (signals.spread(few) - self.jitter);
        let longer = JITTER_LONGER * self.jitter / self.target(rate, config);
        self.span = (LOW_SPAN + longer * few).min(0.5 * A_WHILE);
    }

    /// The queueing delay at which the rate neither grows nor falls, in seconds: a floor for noise, and a packet or two
    /// of this flow. It falls with the rate, so that flows of this kind share equally, and knows no round-trip time.
    /// Bent where it comes near its greatest value, so that it still falls there.
    pub(super) fn target(&self, rate: f64, config: &Config) -> f64 {
        self.scaled(self.scale, rate, config)
    }

    fn scaled(&self, scale: f64, rate: f64, config: &Config) -> f64 {
        let raw = config.target_floor.max(BETA * self.jitter) + config.target_packets * config.bits / rate.max(LEAST);
        let bent = TARGET_MOST * (1.0 - libm::exp(-raw * scale / TARGET_MOST));
        let least = if config.frames { ALMOST * raw * scale } else { 0.0 };
        bent.max(least)
    }

    /// The target that holds now. No AQM's drops take it below a packet of its own: a single packet that waits for its
    /// turn is no queue to CoDel (RFC 8289, 3.2). Unless the queue is its own that packet is no longer than at the
    /// highest rate lately, since somebody else may have pushed it down and is to be noticed, and no longer than the
    /// target without an AQM.
    pub(super) fn target_now(&self, now: f64, rate: f64, config: &Config) -> f64 {
        let packet = |rate: f64| config.bits / rate - CODEL_TARGET;
        let least = if self.own.holds(now, rate) {
            packet(rate)
        } else {
            packet(rate.max(self.memory.0)).min(self.scaled(1.0, rate, config))
        };
        self.target(rate, config).max(least)
    }

    /// Whether the queue is still taken to be its own.
    pub(super) fn owned(&self, now: f64, rate: f64) -> bool {
        self.own.holds(now, rate)
    }

    /// Whether a queue has just lost a packet that is not known to be its own.
    pub(super) fn is_queue_in_doubt(&self, now: f64, rate: f64) -> bool {
        now - self.queue_lost_at < A_WHILE && !self.own.holds(now, rate)
    }

    /// Whether a train is to show whose a queue is that has little of this flow; said once.
    pub(super) fn takes_train_request(&mut self) -> bool {
        std::mem::take(&mut self.wonders)
    }

    /// What does not pass is dropped, and none of it waits: `rate` is what is left of what the path carries.
    pub(super) fn polices(&mut self, now: f64, carried: f64) {
        (self.carried, self.cut_at, self.refill) = (Some(carried), now, false);
        (self.memory, self.chance_at) = (PeakRate(carried), now);
    }

    /// The queue is told to be its own, while `rate` is sent.
    pub(super) fn set_own_queue(&mut self, now: f64, rate: f64) {
        self.own = OwnQueue::new(now, rate);
        self.scale = 1.0;
    }

    /// Comes from another law.
    pub(super) fn begin(&mut self, now: f64, carried: f64) {
        self.carried = Some(carried);
        self.cut_at = now;
        self.episode = None;
        self.begun = now;
    }

    pub(super) fn update(
        &mut self,
        input: &LawInput<'_>,
        chance: &mut LossClassifier,
        first: bool,
        config: &Config,
    ) -> Transition {
        let LawInput { now, dt, rate, rtt, signals, .. } = *input;
        let target = self.target_now(now, rate, config);
        let low = signals.low(self.span);
        self.memory.see(rate, dt, low > 0.5 * target);
        if low > EMPTY * target {
            self.filled_at = now;
        }
        let mut received = signals.carries_since_silence(rtt.max(RECEIVED_SPAN), rate).unwrap_or(rate);
        if signals.is_idle(now, NOT_ALL) {
            // What arrives of a source that sends less than it might says nothing of the path.
            received = received.max(ALMOST * rate);
        }
        let turn =
            self.losses(input, low, received, chance, first, config).or_else(|| self.follows(input, received, config));
        if let Some(turn) = turn {
            return turn;
        }
        self.scale = (self.scale + SCALE_UP * dt).min(1.0);
        if self.finds_path(input, low, config) {
            return Transition::Stay(rate, "delay: a longer path");
        }
        if low > target {
            // A queue that is there for certain shows what the path carries within a few packets.
            let soon = signals
                .carries_since_silence(self.span, rate)
                .filter(|_| low > f64::from(ENOUGH) * target && !signals.is_idle(now, NOT_ALL));
            return self.over(input, low, soon.map_or(received, |soon| soon.min(received)), target, config);
        }
        // The yield has raised the target: whether the queue goes is seen by what it was.
        if let Some(over) = self.episode
            && now - over.since > over.enough(signals)
            && low > over.target.max(BETA * over.peak)
        {
            return Transition::Switch(over.received.max(over.rate), STANDS);
        }
        let gone = |over: &Episode| signals.low(rtt.max(config.report_most)) <= BETA * target.min(over.peak);
        self.episode = self.episode.filter(|over| !gone(over));
        if now - self.cut_at < rtt + 2.0 * config.report_every {
            return Transition::Stay(rate, "delay: wait");
        }
        if std::mem::take(&mut self.refill)
            && let Some(carried) = self.carried.filter(|c| rate < ALMOST * c)
        {
            return Transition::Stay(ALMOST * carried, "delay: drained");
        }
        self.grow(input, low, received, target, config)
    }

    /// Losses and marks: what they say of the queue, and whether they tell of somebody else. `first`: the session has
    /// not left a competition yet.
    fn losses(
        &mut self,
        input: &LawInput<'_>,
        low: f64,
        received: f64,
        chance: &mut LossClassifier,
        first: bool,
        config: &Config,
    ) -> Option<Transition> {
        let LawInput { now, rate, rtt, .. } = *input;
        if input.loss.is_none() && !input.mark {
            return None;
        }
        let own = self.own.holds(now, rate);
        let packet = config.bits / self.carried.unwrap_or(rate).max(LEAST / LITTLE);
        let mut congested = input.mark;
        if input.mark {
            chance.note(now);
        }
        if let Some(loss) = &input.loss {
            congested |= chance.see(now, loss, packet);
            if loss.q <= STANDING.max(packet) {
                self.chance_at = now;
            } else if !chance.is_radio() {
                self.queue_lost_at = now;
            }
        }
        // The queue that it met.
        let met = input.loss.map(|loss| loss.q).or(input.mark.then_some(input.signals.q));
        let memory = self.memory.0;
        if !own && rate < BETA * memory && chance.many(now, 2, (now - self.begun).min(KEPT)) && !chance.is_radio() {
            return Some(Transition::Switch(NOT_ALL * memory, "compete: pushed down, with losses"));
        }
        if now < self.started + f64::from(ENOUGH) * rtt + config.report_most {
            return None;
        }
        if !own
            && met.is_some()
            && low > (f64::from(ENOUGH) * self.target(rate, config) + 0.5 * DRAIN_ABOVE).max(DRAIN_ABOVE)
        {
            return Some(Transition::Switch(NEARLY * rate.max(received), "compete: lost, with a queue"));
        }
        let stood = met.is_some_and(|q| q > STANDING && low > 0.5 * q);
        if !own && stood && self.scale < AHEAD * A_QUARTER {
            // Not a burst, and no AQM that drops at the target: a queue that stood, and that is full.
            let again = now - self.stood_at < KEPT || first;
            self.stood_at = now;
            if again && !chance.is_radio() {
                let rate = rate.max(received).max(0.5 * memory);
                return Some(Transition::Switch(rate, "compete: lost again, in a standing queue"));
            }
        }
        if !congested && !stood {
            return None;
        }
        if own && config.frames && !input.mark {
            // Nobody else fills that queue: what is dropped there was too much.
            (self.carried, self.cut_at) = (Some(received), now);
            return Some(Transition::Stay(rate.min(received), "delay: lost in its own queue"));
        }
        // An AQM drops or marks at our target.
        self.scale = (0.5 * self.scale).max(A_QUARTER);
        input.mark.then(|| {
            self.cut_at = now;
            Transition::Stay(SIMILAR * rate.min(received), "delay: marked")
        })
    }

    /// A queue stands that has next to nothing of a source of frames: what arrives follows what that sends.
    fn follows(&mut self, input: &LawInput<'_>, received: f64, config: &Config) -> Option<Transition> {
        let LawInput { now, rate, signals, feedback, .. } = *input;
        if !config.frames || feedback.rows.is_empty() || self.own.holds(now, rate) {
            return None;
        }
        // A burst passes sooner, be it one of others of its kind.
        if signals.least(0.5 * A_WHILE, |packet| packet.whole) <= DRAIN_ABOVE {
            return None;
        }
        feedback.rows.iter().for_each(|(sent, came)| self.follows.see(now, *sent, *came));
        self.follows.is_near(1.0, 2.0 * LITTLE).then(|| self.has_little(input, received))
    }

    /// Yielding what a flow has of a queue can't drain it where that is little.
    fn has_little(&self, input: &LawInput<'_>, received: f64) -> Transition {
        Transition::Switch(input.rate.max(received).max(0.5 * self.memory.0), "compete: little of a queue that stands")
    }

    /// Returns the range in seconds within which a delay counts as constant: half of what the target takes for noise.
    fn constant_within(&self, config: &Config) -> f64 {
        0.5 * config.target_floor.max(BETA * self.jitter)
    }

    /// Returns true if the queueing delay is that of another path, because no yield changes it: a queue of the flow's own
    /// would have drained, and that of a TCP varies with its window.
    fn finds_path(&mut self, input: &LawInput<'_>, low: f64, config: &Config) -> bool {
        let LawInput { now, dt, rate, rtt, .. } = *input;
        let noise = self.constant_within(config);
        let Some(over) = self.episode.as_mut() else { return false };
        let share = if input.relation.is_upper_bound { 1.0 - rate / over.rate } else { 0.0 };
        over.constancy.see(now, low, noise, (share, dt));
        if !over.constancy.is_path(now, (share, rtt), self.span) {
            return false;
        }
        self.new_path = Some(now - over.constancy.since);
        self.carried = Some(over.received.max(over.rate));
        (self.episode, self.refill) = (None, true);
        true
    }

    /// Above the target: yield, and see whether the queue goes.
    fn over(&mut self, input: &LawInput<'_>, low: f64, received: f64, target: f64, config: &Config) -> Transition {
        let LawInput { now, rate, rtt, signals, .. } = *input;
        let noise = self.constant_within(config);
        // Just after a silence of the path the first packets do not tell yet what it carries.
        let resumes = signals.time_since_silence().is_some_and(|since| since < PATH_RESUME_TIME);
        let over = self.episode.get_or_insert(Episode {
            since: now,
            peak: low,
            rate: if resumes { rate } else { rate.min(received.max(0.5 * rate)) },
            received,
            target,
            constancy: Constancy::new(now, low),
        });
        if low > over.peak + noise {
            over.peak = low;
            if received < NEARLY * over.rate {
                // A queue that grows is served at the rate that arrives: the path itself carries less.
                over.rate = received / ALMOST;
            }
        }
        if !input.relation.is_upper_bound {
            // More is sent than this law asks for: nobody yields yet.
            over.since = now;
        }
        let (age, enough) = (now - over.since, over.enough(signals));
        let stands = age > enough && (low > target.max(BETA * over.peak) || age > f64::from(ENOUGH) * enough);
        if stands && !over.constancy.holds(now, self.span) {
            return Transition::Switch(over.received.max(over.rate), STANDS);
        }
        let waits = resumes && age < PATH_RESUME_TIME;
        if !waits && now - self.cut_at > rtt.min(CUT_SCALE) + 2.0 * config.report_every {
            let cut = ((low - target / 2.0) / CUT_SCALE).min(A_QUARTER);
            let lower = (rate.min(received) * (1.0 - cut)).max(config.yield_to * over.rate);
            self.carried = Some(received);
            self.cut_at = now;
            // A flow of this kind has a packet or two there; an AQM or a low rate leave it less, which a train tells.
            let little = low * rate < config.bits;
            self.wonders = little && !self.own.holds(now, rate);
            if self.wonders && input.share.is_some_and(|share| share < LITTLE) {
                return self.has_little(input, received);
            }
            return Transition::Stay(lower, "delay: down");
        }
        Transition::Stay(rate, "delay: over target")
    }

    fn grow(&self, input: &LawInput<'_>, low: f64, received: f64, target: f64, config: &Config) -> Transition {
        let LawInput { now, dt, rate, signals, .. } = *input;
        let room = 1.0 - low / target;
        let of_carried = self.carried.map_or(f64::MAX, |carried| rate / carried);
        let mut gain = if of_carried < NEAR { GAIN_BELOW } else { GAIN };
        let fast = GAIN_MOST.min(GAIN_ROUND / input.rtt);
        let mut doubles = |free: f64, double: f64| {
            if free > 0.0 {
                gain = gain.max((GAIN * libm::exp2(free / double)).min(fast));
            }
        };
        doubles(now - self.cut_at - A_WHILE, 1.0 / GAIN_MOST);
        // Near what the path carried the queue may be empty for a while without telling of more.
        if !(NEAR..A_BIT_MORE).contains(&of_carried) {
            let since = self.filled_at.max(self.cut_at).max(self.chance_at + A_WHILE);
            doubles(now - since - input.rtt - A_MOMENT, 0.5 * SILENCE);
        }
        if low < EMPTY * target && rate < GONE * self.memory.0 {
            // Who pushed it down is not there now.
            gain = gain.max(fast);
        }
        let faster = rate * (1.0 + gain * room * dt);
        let most = (1.0 + EMPTY) * received.max(signals.received(SILENCE).unwrap_or(0.0)) + 2.0 * config.bits;
        // Caps only stop growth, and what a source with little to send is allowed stays, but for frames that leave most
        // of it unused: they leave at a multiple of the rate, and so make a queue for others.
        let kept = if config.frames { signals.usage_limit() } else { f64::INFINITY };
        let next = if rate > kept {
            (rate * libm::exp(-dt / (2.0 * A_WHILE))).max(kept)
        } else if rate < most {
            faster.min(most)
        } else {
            rate
        };
        // What arrives without a queue, whoever asked for it, is what the path carries.
        Transition::Stay(if input.relation.is_limiting { next } else { next.max(received) }, UP)
    }
}
