//! The law of a sender that is alone, or among its kind: a rate that keeps a packet or two in the queue.

use super::Config;
use super::law::Place;
use super::signals::{Loss, News, Signals};
use super::verdict::{Backoff, Chance, Memory, OwnQueue, Press, Standing};

/// The target's scale is halved down to a quarter: below this it is there.
const LEAST_SCALE: f64 = 0.3;

/// What a source uses of its rate is counted over this many seconds.
const USED_SPAN: f64 = 2.0;
/// A rate that is used too little falls by the factor e in this many seconds.
const USED_DECAY: f64 = 4.0;

/// The rule by which the rate grows.
pub(super) const UP: &str = "delay: up";

/// Over the target: since when, and how it was then.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: f64,
    /// The highest of the least queueing delays, and when that was.
    peak: f64,
    peak_at: f64,
    /// The rate from which the yield is counted.
    rate: f64,
    received: f64,
    target: f64,
}

/// What a law says at a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    Rate(f64, &'static str),
    /// On to the other law, with this rate.
    Go(f64, &'static str),
}

/// What all laws are told at a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) now: f64,
    pub(super) dt: f64,
    pub(super) rate: f64,
    /// The highest rate of [`Delay`] lately.
    pub(super) highest: f64,
    pub(super) rtt: f64,
    pub(super) signals: &'a Signals,
    pub(super) news: &'a News,
    /// The newest loss, if its packet left after the last one that was answered.
    pub(super) loss: Option<Loss>,
    /// The same of a packet that carries CE.
    pub(super) mark: bool,
    /// The flow's share of the queue by its trains; none of what has no trains.
    pub(super) share: Option<f64>,
    /// The rate has not grown for long, and what the path carries is known, in bit/s.
    pub(super) stagnates: Option<f64>,
    pub(super) place: Place,
}

impl Step<'_> {
    /// Whether trains show that the queue is shared.
    pub(super) fn is_shared(&self, config: &Config) -> bool {
        self.share.is_some_and(|share| share < config.share_own)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Delay {
    /// The target's scale: less where an AQM drops at the target.
    scale: f64,
    /// When it came to its least.
    least_at: f64,
    /// What the path carried at the last overuse.
    pub(super) carried: Option<f64>,
    pub(super) cut_at: f64,
    episode: Option<Episode>,
    /// How many more queues went sooner than this flow yielded than went by that.
    gave: u32,
    /// When the start was over.
    pub(super) started: f64,
    loss_at: f64,
    /// When a loss met a queue last.
    queue_lost_at: f64,
    pub(super) press: Press,
    pub(super) memory: Memory,
    own: OwnQueue,
    standing: Standing,
    /// When this law began to rule, and how much of the time lately its queue was over the target.
    begun: f64,
    over: f64,
    /// What arrived when it began, in bit/s.
    brought: f64,
    /// When a loss met a standing queue last.
    stood_at: f64,
    /// The rate a while ago, when that was, and how many whiles in a row it has fallen.
    sampled: f64,
    sampled_at: f64,
    falling: u32,
    noise: f64,
    /// The rate may go up to what the path carried at once when the queue is gone.
    pub(super) refill: bool,
}

impl Delay {
    pub(super) fn new() -> Self {
        Self {
            scale: 1.0,
            least_at: 0.0,
            carried: None,
            cut_at: f64::MIN,
            episode: None,
            gave: 0,
            started: f64::MIN,
            loss_at: f64::MIN,
            queue_lost_at: f64::MIN,
            press: Press::new(),
            memory: Memory::default(),
            own: OwnQueue::default(),
            standing: Standing::default(),
            begun: 0.0,
            over: 0.0,
            brought: 0.0,
            stood_at: f64::MIN,
            sampled: 0.0,
            sampled_at: 0.0,
            falling: 0,
            noise: 0.0,
            refill: false,
        }
    }

    /// The queueing delay at which the rate neither grows nor falls, in seconds: a floor for noise, and a packet or two
    /// of this flow. It falls with the rate, so that flows of this kind share equally, and knows no round-trip time.
    /// Bent where it comes near its greatest value, so that it still falls there.
    pub(super) fn target(&self, rate: f64, config: &Config) -> f64 {
        self.scaled(self.scale, rate, config)
    }

    fn scaled(&self, scale: f64, rate: f64, config: &Config) -> f64 {
        let raw = config.target_floor + self.noise + config.target_packets * config.bits / rate.max(config.least);
        let bent = config.target_most * (1.0 - libm::exp(-raw * scale / config.target_most));
        let least = if config.frames { config.frames_unbent * raw * scale } else { 0.0 };
        bent.max(least).max(config.target_least)
    }

    /// The target that holds now. No AQM's drops take it below a packet of its own: a single packet that waits for its
    /// turn is no queue to CoDel (RFC 8289, 3.2). Unless the queue is its own that packet is no longer than at the
    /// highest rate lately, since somebody else may have pushed it down and is to be noticed, and no longer than the
    /// target without an AQM.
    pub(super) fn target_now(&self, now: f64, rate: f64, config: &Config) -> f64 {
        let packet = |rate: f64| config.bits / rate - config.codel_target;
        let least = if self.own.holds(now, rate, config) {
            packet(rate)
        } else {
            packet(rate.max(self.memory.0)).min(self.scaled(1.0, rate, config))
        };
        self.target(rate, config).max(least)
    }

    /// Whether the queue is still taken to be its own.
    pub(super) fn owned(&self, now: f64, rate: f64, config: &Config) -> bool {
        self.own.holds(now, rate, config)
    }

    /// Whether a queue has just lost a packet that is not known to be its own.
    pub(super) fn doubts(&self, now: f64, rate: f64, config: &Config) -> bool {
        now - self.queue_lost_at < config.doubt && !self.own.holds(now, rate, config)
    }

    /// What does not pass is dropped, and none of it waits: `rate` is what is left of what the path carries.
    pub(super) fn polices(&mut self, now: f64, carried: f64) {
        (self.carried, self.cut_at, self.refill) = (Some(carried), now, false);
    }

    /// The queue is told to be its own, while `rate` is sent.
    pub(super) fn owns(&mut self, now: f64, rate: f64, config: &Config) {
        self.own = OwnQueue::new(now, rate, config);
    }

    /// Comes from another law.
    pub(super) fn begin(&mut self, now: f64, carried: f64) {
        self.carried = Some(carried);
        self.cut_at = now;
        self.episode = None;
        self.gave = 0;
        self.press.own = true;
        (self.begun, self.over, self.brought) = (now, 0.0, carried);
        self.standing = Standing::default();
        (self.sampled, self.sampled_at, self.falling) = (0.0, now, 0);
    }

    pub(super) fn step(
        &mut self,
        step: &Step<'_>,
        chance: &mut Chance,
        backoff: &Backoff,
        window: Option<f64>,
        config: &Config,
    ) -> Turn {
        let Step { now, dt, rate, rtt, signals, .. } = *step;
        self.memory.see(rate, dt, config);
        let packet = config.bits / self.carried.unwrap_or(rate).max(1e5);
        self.noise = (signals.jitter() - 1.5 * packet).clamp(0.0, config.noise_most);
        let target = self.target_now(now, rate, config);
        let low = signals.low(config.low_span);
        let once = self.target(self.memory.0, config);
        self.over += (dt / config.starved_span).min(1.0) * (f64::from(u8::from(low > once)) - self.over);
        let stands = signals.low(config.stood_span) > config.stood * target;
        self.standing.see((now - self.begun, dt), stands, rate * low / config.bits, config);
        let mut received = signals.carries(rtt.max(config.received_span), rate).unwrap_or(rate);
        if signals.is_idle(now, config.idle) {
            // What arrives of a source that sends less than it might says nothing of the path.
            received = received.max(0.9 * rate);
        }
        let turn = self
            .losses(step, low, received, chance, backoff, config)
            .or_else(|| self.falls(step, low, backoff, config))
            .or_else(|| self.starves(step, low, config));
        if let Some(turn) = turn {
            return turn;
        }
        self.scale = (self.scale + config.scale_up * dt).min(1.0);
        if low > target {
            // A queue that is there for certain shows what the path carries within a few packets.
            let soon = signals
                .carries(config.low_span, rate)
                .filter(|_| low > 3.0 * target && !signals.is_idle(now, config.idle));
            return self.over(step, low, soon.map_or(received, |soon| soon.min(received)), target, config);
        }
        if signals.low(rtt.max(0.1)) <= 0.7 * target
            && let Some(over) = self.episode.take()
        {
            self.press.see(over.peak / over.target, config);
            // Half of what passed until the queue was gone: it was the path's standing still that took the rest, and
            // not a yield.
            self.refill |= self.cut_at >= over.since && self.carried.is_some_and(|carried| rate < 0.5 * carried);
            if !config.frames && self.gave_way(step, low, &over, packet, config) && !chance.is_radio() {
                return Turn::Go(rate, "compete: others give way");
            }
        }
        if now - self.cut_at < rtt + 0.05 {
            return Turn::Rate(rate, "delay: wait");
        }
        if std::mem::take(&mut self.refill)
            && let Some(carried) = self.carried.filter(|c| rate < config.refill * c)
        {
            return Turn::Rate(config.refill * carried, "delay: drained");
        }
        self.grow(step, low, received, target, backoff, window, config)
    }

    /// Losses and marks: what they say of the queue, and whether they tell of somebody else.
    fn losses(
        &mut self,
        step: &Step<'_>,
        low: f64,
        received: f64,
        chance: &mut Chance,
        backoff: &Backoff,
        config: &Config,
    ) -> Option<Turn> {
        let Step { now, rate, rtt, .. } = *step;
        if step.loss.is_none() && !step.mark {
            return None;
        }
        self.loss_at = now;
        let own = self.own.holds(now, rate, config);
        let packet = config.bits / self.carried.unwrap_or(rate).max(1e5);
        let mut congested = step.mark;
        if step.mark {
            chance.note(now);
        }
        if let Some(loss) = &step.loss {
            congested |= chance.see(now, loss, packet, config);
            if loss.q > config.standing && !chance.is_radio() {
                self.queue_lost_at = now;
            }
        }
        let memory = self.memory.0;
        if !own
            && rate < config.pushed * memory
            && chance.many(now, 2, (now - self.begun).min(20.0))
            && !chance.is_radio()
        {
            return Some(Turn::Go(0.8 * memory, "compete: pushed down, with losses"));
        }
        if now < self.started + 3.0 * rtt + 0.1 {
            return None;
        }
        if !own && self.press.mean > config.press && !chance.is_radio() {
            self.press.mean = 1.0;
            return Some(Turn::Go(rate.max(0.8 * memory), "compete: pressed, with a loss"));
        }
        let settled = self.scale < LEAST_SCALE && now - self.least_at > 0.5 + 5.0 * rtt;
        if !own && congested && settled && chance.many(now, config.aqm_losses as usize, (20.0 * rtt).max(3.0)) {
            return Some(Turn::Go(0.85 * rate, "compete: losses of a queue"));
        }
        let fallen = step.loss.is_some() && rate < config.meager_fallen * memory;
        if !own && fallen && congested && chance.tells_of_little(rate, rtt, packet, config) {
            return Some(Turn::Go(rate, "compete: losses, and little of it"));
        }
        if !own && step.loss.is_some() && low > (3.0 * self.target(rate, config) + 0.010).max(config.drain_above) {
            return Some(Turn::Go(0.85 * rate.max(received), "compete: lost, with a queue"));
        }
        let stood = step.loss.is_some_and(|loss| loss.q > config.standing && low > 0.5 * loss.q);
        if !own && stood && self.scale < LEAST_SCALE {
            // Not a burst, and no AQM that drops at the target: a queue that stood, and that is full.
            let again = now - self.stood_at < 20.0 || backoff.left.is_none();
            self.stood_at = now;
            if again && !chance.is_radio() {
                let rate = rate.max(received).max(0.5 * memory);
                return Some(Turn::Go(rate, "compete: lost again, in a standing queue"));
            }
        }
        if congested || stood {
            // An AQM drops or marks at our target.
            if self.scale >= LEAST_SCALE {
                self.least_at = now;
            }
            self.scale = (self.scale * 0.5).max(0.25);
            if step.mark {
                self.cut_at = now;
                return Some(Turn::Rate(0.95 * rate.min(received), "delay: marked"));
            }
        }
        None
    }

    /// A source of frames that falls far below what it had when it left a competition a short while ago: the verdict
    /// was wrong.
    fn falls(&self, step: &Step<'_>, low: f64, backoff: &Backoff, config: &Config) -> Option<Turn> {
        let Step { now, rate, .. } = *step;
        let soon = backoff.left.is_some() && now - self.begun < config.again;
        let falls = config.frames
            && soon
            && low > 0.0
            && rate < config.frames_back * self.brought
            && !self.own.holds(now, rate, config);
        falls.then(|| Turn::Go(self.brought.min(2.0 * rate), "compete: pushed down, soon after leaving"))
    }

    /// Whether the queue of an episode went sooner than what this flow yielded takes from it, much more often than not:
    /// others gave way, as a TCP does at a loss.
    fn gave_way(&mut self, step: &Step<'_>, low: f64, over: &Episode, packet: f64, config: &Config) -> bool {
        let Step { now, rate, rtt, .. } = *step;
        // A cut is seen in the queue a round trip later.
        let yielded = (1.0 - rate / over.rate.max(rate)) * (now - over.peak_at - rtt).max(0.0);
        let least =
            (config.gave_packets * packet).max(config.gave_least).max(config.gave_jitter * step.signals.jitter());
        let sooner = over.peak - low > config.gave * yielded + least;
        self.gave = if sooner { self.gave + 1 } else { self.gave.saturating_sub(1) };
        let tells = f64::from(self.gave) >= config.gave_often && !self.own.holds(now, rate, config);
        if tells {
            self.gave = 0;
        }
        tells
    }

    /// Pushed far below what it had by something that never loses packets, and the queue is still there.
    fn starves(&mut self, step: &Step<'_>, low: f64, config: &Config) -> Option<Turn> {
        let Step { now, rate, rtt, .. } = *step;
        let memory = self.memory.0;
        if now - self.sampled_at > config.starved_span + 5.0 * rtt {
            self.falling = if rate < 0.75 * self.sampled { self.falling.saturating_add(1) } else { 0 };
            (self.sampled, self.sampled_at) = (rate, now);
        }
        if self.standing.tells(config) && step.place.limits && !step.signals.is_idle(now, config.idle) {
            return Some(Turn::Go(rate.max(0.5 * memory), "compete: little of a queue that stands"));
        }
        let few = step.stagnates.is_some_and(|carries| rate < config.share_few * carries);
        if few && !step.signals.is_idle(now, config.idle) && !self.own.holds(now, rate, config) {
            return Some(Turn::Go(rate, "compete: little of what the path carries"));
        }
        let long = self.falling >= 2 || rate < 1.2 * config.least;
        let starves = !self.own.holds(now, rate, config)
            && rate < config.starved * memory
            && long
            && self.over > config.starved_over
            && low > 0.0;
        starves.then_some(Turn::Go(0.5 * memory, "compete: pushed down, and still a queue"))
    }

    /// Above the target: yield, and see whether the queue goes.
    fn over(&mut self, step: &Step<'_>, low: f64, received: f64, target: f64, config: &Config) -> Turn {
        let Step { now, rate, rtt, signals, .. } = *step;
        let scale = self.scale;
        let over = self.episode.get_or_insert(Episode {
            since: now,
            peak: low,
            peak_at: now,
            rate: rate.min(received.max(0.5 * rate)),
            received,
            target: target / scale,
        });
        if low >= over.peak {
            (over.peak, over.peak_at) = (low, now);
        }
        if !step.place.obeyed {
            // More is sent than this law asks for: nobody yields yet.
            over.since = now;
        }
        if received < 0.85 * over.rate {
            // The path itself carries less.
            over.rate = received / 0.9;
        }
        let age = now - over.since;
        let enough = over.peak.min(0.3) / config.yield_drain + 4.0 * signals.base_rtt + config.slack;
        let yielded = (1.0 - rate / received).max(0.0) * (now - over.peak_at);
        let going = over.peak > 0.1 && yielded > 0.0 && over.peak - low > config.going * yielded;
        if age > enough && !going && (low > target.max(config.gone * over.peak) || age > 3.0 * enough) {
            return Turn::Go(over.received.max(over.rate), "compete: yielded, and still a queue");
        }
        if now - self.cut_at > rtt.min(0.2) + 0.05 {
            let cut = ((low - target / 2.0) / config.cut_scale).clamp(config.cut_least, config.cut_most);
            let lower = (rate.min(received) * (1.0 - cut)).max(config.yield_to * over.rate);
            self.carried = Some(received);
            self.cut_at = now;
            return Turn::Rate(lower, "delay: down");
        }
        Turn::Rate(rate, "delay: over target")
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is known where it is called")]
    fn grow(
        &self,
        step: &Step<'_>,
        low: f64,
        received: f64,
        target: f64,
        backoff: &Backoff,
        window: Option<f64>,
        config: &Config,
    ) -> Turn {
        let Step { now, dt, rate, signals, .. } = *step;
        let room = 1.0 - low / target;
        let mut gain = config.gain;
        if self.carried.is_some_and(|carried| rate < 0.92 * carried) {
            gain = config.gain_below;
        }
        let free = now - self.cut_at - config.fast_after;
        if free > 0.0 {
            gain = gain.max((config.gain * libm::exp2(free / config.fast_double)).min(config.gain_most));
        }
        let mut faster = rate * (1.0 + gain * room * dt);
        if let Some(window) = window
            && backoff.left.is_some_and(|left| now - left < 6.0)
        {
            faster = faster.max(window.min(rate * (1.0 + dt)));
        }
        let most = 1.3 * received.max(signals.received(0.5).unwrap_or(0.0)) + 2.0 * config.bits;
        // Caps only stop growth, and what a source with little to send is allowed stays. Only the rate of frames comes
        // near what is used of it: frames leave at a multiple of the rate, and so make a queue for others. In a queue
        // of its own there are no others.
        let limits = config.frames && !self.own.holds(step.now, rate, config);
        let kept = signals.received(USED_SPAN).filter(|_| limits).map(|used| config.frames_limited * used);
        let next = match kept {
            Some(kept) if rate > kept => (rate * libm::exp(-dt / USED_DECAY)).max(kept),
            _ if rate < most => faster.min(most),
            _ => rate,
        };
        // What arrives without a queue, whoever asked for it, is what the path carries.
        Turn::Rate(if step.place.limits { next } else { next.max(received) }, UP)
    }
}
