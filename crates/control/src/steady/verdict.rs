//! What tells a queue that somebody elastic fills from one of our own, and losses of a queue from losses by chance.

use super::Config;
use super::signals::Loss;
use crate::equation::{LossRate, throughput};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Span};

/// Losses this far apart, in seconds, are told from each other in the mean rank.
const RANK_APART: f64 = 0.5;
/// The natural logarithm of a thousand.
const SURE: f64 = 6.907_755;
/// Loss events are remembered for this long, in seconds.
const EVENTS: f64 = 20.0;

/// Whether losses come with a queue or by chance.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    /// Mean rank of the queueing delay at losses: 0.5 where they come by chance.
    rank: f64,
    events: VecDeque<f64>,
}

impl Chance {
    pub(super) fn new() -> Self {
        Self { rank: 0.5, events: VecDeque::new() }
    }

    /// A loss event. Whether it is one of congestion: the queue at losses is higher than it mostly is, and there is
    /// one. `packet`: how long the path takes for a packet.
    pub(super) fn see(&mut self, now: f64, loss: &Loss, packet: f64, config: &Config) -> bool {
        // Losses close together meet the same queue: they say it once.
        let since = self.events.back().map_or(f64::MAX, |at| now - at);
        self.rank += config.rank_gain * (since / RANK_APART).min(1.0) * (loss.rank - self.rank);
        self.note(now);
        self.rank > config.rank_congested && loss.q > config.noise_loss + packet
    }

    /// A mark: certainly one of congestion.
    pub(super) fn note(&mut self, now: f64) {
        self.events.push_back(now);
        while self.events.front().is_some_and(|at| *at < now - EVENTS) {
            self.events.pop_front();
        }
    }

    /// Whether `count` loss events, the last one included, came in the `within` seconds up to `now`.
    pub(super) fn many(&self, now: f64, count: usize, within: f64) -> bool {
        self.events
            .len()
            .checked_sub(count)
            .and_then(|place| self.events.get(place))
            .is_some_and(|at| *at > now - within)
    }

    /// Whether losses of a queue tell of somebody else who has more of it than `rate`: what TCP would have at as many
    /// of them is much more. `packet`: how long the path takes for a packet; where that is more than an AQM leaves, a
    /// single one of one's own is dropped.
    pub(super) fn tells_of_little(&self, rate: f64, rtt: f64, packet: f64, config: &Config) -> bool {
        let events = self.events.len() as f64;
        let tells = events >= config.meager_losses && packet < config.codel_target && !self.is_radio();
        let loss = LossRate::new(events * config.bits / (rate * EVENTS)).filter(|_| tells);
        loss.is_some_and(|p| {
            let tcp = throughput(Bytes::new(config.segment_bytes as u64), Span::from_secs_f64(rtt), p);
            rate < config.meager * tcp.as_bps_f64()
        })
    }

    /// Whether a path that loses `at_most` of all packets by chance hardly ever loses this `share` of so many: less
    /// than once in a thousand times, by Chernoff's bound of the binomial distribution's tail.
    pub(super) fn is_more(told: u32, share: f64, at_most: f64) -> bool {
        let part = |of: f64, from: f64| if of > 0.0 { of * libm::log(of / from) } else { 0.0 };
        let apart = part(share, at_most) + part(1.0 - share, 1.0 - at_most);
        share > at_most && f64::from(told) * apart > SURE
    }

    /// Many losses, and at any queue.
    pub(super) fn is_radio(&self) -> bool {
        self.rank < 0.6 && self.events.len() > 5
    }
}

/// How hard others press: the mean by which episodes of a queue above its target exceed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Press {
    pub(super) mean: f64,
    /// The next episode is of our own making.
    pub(super) own: bool,
}

impl Press {
    pub(super) fn new() -> Self {
        Self { mean: 1.0, own: true }
    }

    /// An episode is over whose queue reached `times` its target.
    pub(super) fn see(&mut self, times: f64, config: &Config) {
        if std::mem::take(&mut self.own) {
            return;
        }
        self.mean += config.press_gain * (times.min(4.0) - self.mean);
    }
}

/// The highest rate of the last while, by half-life.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory(pub(super) f64);

impl Memory {
    pub(super) fn see(&mut self, rate: f64, dt: f64, config: &Config) {
        self.0 = (self.0 * libm::exp2(-dt / config.memory)).max(rate);
    }
}

/// How much of the time lately a queue stood, and how many packets of it were one's own, in the mean. A flow that is
/// alone, or among its kind, empties its queue again and again, for each of them gives way as soon as the target is
/// reached. A TCP's queue stands for most of a sawtooth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// The share of the time.
    share: f64,
    /// Packets.
    own: f64,
}

impl Standing {
    /// For `dt` seconds a queue stood, or not, with `own` packets of this flow in it; `age`: seconds since the first of
    /// them.
    pub(super) fn see(&mut self, (age, dt): (f64, f64), stands: bool, own: f64, config: &Config) {
        let age = age.clamp(dt, config.stands_span);
        self.share += dt / (age + config.stands_prior) * (f64::from(u8::from(stands)) - self.share);
        self.own += dt / age.max(f64::MIN_POSITIVE) * (own - self.own);
    }

    /// Whether somebody else fills it: this flow has too little in it to have made it.
    pub(super) fn tells(&self, config: &Config) -> bool {
        self.share > config.stands && self.own < config.stands_own
    }
}

/// A queue that has shown that it is the flow's own: who else comes does not take from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnQueue {
    until: f64,
    /// What was sent when that was told, in bit/s.
    rate: f64,
}

impl OwnQueue {
    pub(super) fn new(now: f64, rate: f64, config: &Config) -> Self {
        Self { until: now + config.own_kept, rate }
    }

    /// Whether it may still be taken for that. One that gives much less than it did was not.
    pub(super) fn holds(&self, now: f64, rate: f64, config: &Config) -> bool {
        now < self.until && rate > config.starved * self.rate
    }
}

/// By which power what arrives follows what is sent: 0 where packets wait in a queue of their own, which is served
/// whatever comes; the others' share where the queue is shared. The slope of the line of least squares through the
/// logarithms, with weights that fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follows {
    at: f64,
    weight: f64,
    sent: f64,
    came: f64,
    sent_sent: f64,
    sent_came: f64,
    came_came: f64,
}

impl Follows {
    /// A few packets in a row that waited, at the rate `sent`, and arrived at the rate `came`.
    pub(super) fn see(&mut self, now: f64, sent: f64, came: f64, config: &Config) {
        let kept = libm::exp(-(now - self.at) / config.follows_span);
        self.at = now;
        for sum in [&mut self.weight, &mut self.sent_sent, &mut self.sent_came, &mut self.came_came] {
            *sum *= kept;
        }
        self.weight += 1.0;
        let (x, y) = (libm::log(sent) - self.sent, libm::log(came) - self.came);
        self.sent += x / self.weight;
        self.came += y / self.weight;
        let (x2, y2) = (libm::log(sent) - self.sent, libm::log(came) - self.came);
        self.sent_sent += x * x2;
        self.sent_came += x * y2;
        self.came_came += y * y2;
    }

    /// The power and its standard error, once enough was seen to tell it.
    fn power(&self, config: &Config) -> Option<(f64, f64)> {
        let spread = libm::sqrt(self.sent_sent / self.weight.max(1.0));
        if self.weight < config.follows_rows || spread < config.follows_spread {
            return None;
        }
        let slope = self.sent_came / self.sent_sent;
        let rest = (self.came_came - slope * self.sent_came).max(0.0) / (self.weight - 2.0).max(1.0);
        Some((slope, libm::sqrt(rest / self.sent_sent)))
    }

    /// Whether the power is so near zero, with its standard error, that the queue is one's own. A power below zero
    /// shows others, too: they gave way at the same time.
    pub(super) fn is_own(&self, config: &Config) -> bool {
        self.power(config).is_some_and(|(power, error)| power.abs() + error < config.follows)
    }

    /// Whether what was seen lately shows a queue that is shared: the power is farther from zero than [`Self::is_own`]
    /// allows, by more than its standard error. Nothing where it is not known.
    fn shared(&self, now: f64, config: &Config) -> Option<bool> {
        let (power, error) = self.power(config).filter(|_| now - self.at < config.follows_span)?;
        Some(power.abs() - error > config.follows)
    }

    pub(super) fn is_shared(&self, now: f64, config: &Config) -> bool {
        self.shared(now, config) == Some(true)
    }

    /// Whether the power is known, and may be that of a queue of one's own.
    pub(super) fn may_be_own(&self, now: f64, config: &Config) -> bool {
        self.shared(now, config) == Some(false)
    }
}

/// How long to stay with competing, once leaving it was wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    stays: u32,
    pub(super) entered: f64,
    pub(super) left: Option<f64>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { stays: 0, entered: 0.0, left: None }
    }

    /// Whether competing was left a short while ago.
    pub(super) fn again(&self, now: f64, rtt: f64, config: &Config) -> bool {
        self.left.is_some_and(|left| now - left < config.again + 10.0 * rtt)
    }

    pub(super) fn enter(&mut self, now: f64, rtt: f64, config: &Config) {
        if self.again(now, rtt, config) {
            self.stays = (self.stays + 1).min(config.stays_most as u32);
        } else if self.left.is_none_or(|left| now - left > 30.0) {
            self.stays = self.stays.saturating_sub(1);
        }
        self.entered = now;
    }

    /// Leaving was proven right.
    pub(super) fn clear(&mut self) {
        self.stays = 0;
    }

    pub(super) fn stays(&self) -> u32 {
        self.stays
    }

    /// Whether it has lasted long enough to be left.
    pub(super) fn may_leave(&self, now: f64, config: &Config) -> bool {
        let longer = if self.stays > 0 { config.stay * f64::from(1u32 << self.stays.min(16)) } else { 0.0 };
        now - self.entered > 1.0 + longer
    }
}
