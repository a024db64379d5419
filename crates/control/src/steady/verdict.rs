//! What tells a queue that somebody elastic fills from one of our own, and losses of a queue from losses by chance.

use super::constants::*;
use super::packet::{Loss, drop_old};
use std::collections::VecDeque;

/// Whether losses come with a queue or by chance.
#[derive(Clone, Debug)]
pub(super) struct LossClassifier {
    /// Mean rank of the queueing delay at losses: 0.5 where they come by chance.
    rank: f64,
    events: VecDeque<f64>,
    /// Until when losses are taken for a policer's, which ended where less was sent, and what arrived then, in bit/s.
    policed: (f64, f64),
}

impl LossClassifier {
    pub(super) fn new() -> Self {
        Self { rank: 0.5, events: VecDeque::new(), policed: (f64::MIN, 0.0) }
    }

    /// A loss event. Whether it is one of congestion: the queue at losses is higher than it mostly is, and there is
    /// one. `packet`: how long the path takes for a packet.
    pub(super) fn see(&mut self, now: f64, loss: &Loss, packet: f64) -> bool {
        // Losses close together meet the same queue: they say it once.
        let since = self.events.back().map_or(f64::MAX, |at| now - at);
        self.rank += RANK_GAIN * (since / SILENCE).min(1.0) * (loss.rank - self.rank);
        self.note(now);
        self.is_policed(now) || self.rank > RANK_CONGESTED && loss.q > WAITS + packet
    }

    /// Losses have ended where less was sent than `rate`, which arrived.
    pub(super) fn polices(&mut self, now: f64, rate: f64) {
        self.policed = (now + 2.0 * MEMORY, rate);
    }

    /// Losses are those of a policer: all are of congestion.
    pub(super) fn is_policed(&self, now: f64) -> bool {
        now < self.policed.0
    }

    /// Something was lost without a queue while `received` arrived: a policer lets more than half of its rate pass.
    pub(super) fn refutes(&mut self, received: f64) {
        if received < 0.5 * self.policed.1 {
            self.policed = (f64::MIN, 0.0);
        }
    }

    /// A mark: certainly one of congestion.
    pub(super) fn note(&mut self, now: f64) {
        self.events.push_back(now);
        drop_old(&mut self.events, |at| *at < now - KEPT);
    }

    /// Whether `count` loss events, the last one included, came in the `within` seconds up to `now`.
    pub(super) fn many(&self, now: f64, count: usize, within: f64) -> bool {
        self.events
            .len()
            .checked_sub(count)
            .and_then(|place| self.events.get(place))
            .is_some_and(|at| *at > now - within)
    }

    /// Whether a path that loses `at_most` of all packets by chance hardly ever loses this `share` of so many: less
    /// than once in a thousand times, by Chernoff's bound of the binomial distribution's tail.
    pub(super) fn is_more(told: u32, share: f64, at_most: f64) -> bool {
        share > at_most && Self::apart(told, share, at_most) > SURE
    }

    /// Whether one that loses so much hardly ever loses as little as this `share`.
    pub(super) fn is_less(told: u32, share: f64, at_least: f64) -> bool {
        share < at_least && Self::apart(told, share, at_least) > SURE
    }

    fn apart(told: u32, share: f64, from: f64) -> f64 {
        let part = |of: f64, from: f64| if of > 0.0 { of * libm::log(of / from) } else { 0.0 };
        f64::from(told) * (part(share, from) + part(1.0 - share, 1.0 - from))
    }

    /// Many losses, and at any queue.
    pub(super) fn is_radio(&self) -> bool {
        self.rank < GONE && self.events.len() as f64 > FEW
    }
}

/// The highest rate of the last while, by half-life. That is shorter while packets wait: somebody who stays may have
/// taken what it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakRate(pub(super) f64);

impl PeakRate {
    pub(super) fn see(&mut self, rate: f64, dt: f64, waits: bool) {
        let half = if waits { LATELY } else { MEMORY };
        self.0 = (self.0 * libm::exp2(-dt / half)).max(rate);
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
    pub(super) fn new(now: f64, rate: f64) -> Self {
        Self { until: now + 2.0 * MEMORY, rate }
    }

    /// Whether it may still be taken for that. One that gives much less than it did was not.
    pub(super) fn holds(&self, now: f64, rate: f64) -> bool {
        now < self.until && rate > 0.5 * self.rate
    }
}

/// By which power what arrives follows what is sent: 0 where packets wait in a queue of their own, which is served
/// whatever comes; the others' share where the queue is shared. The slope of the line of least squares through the
/// logarithms, with weights that fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateResponse {
    at: f64,
    weight: f64,
    sent: f64,
    came: f64,
    sent_sent: f64,
    sent_came: f64,
    came_came: f64,
}

impl RateResponse {
    /// A few packets in a row that waited, at the rate `sent`, and arrived at the rate `came`.
    pub(super) fn see(&mut self, now: f64, sent: f64, came: f64) {
        let kept = libm::exp(-(now - self.at) / (2.0 * A_WHILE));
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
    fn power(&self) -> Option<(f64, f64)> {
        let spread = libm::sqrt(self.sent_sent / self.weight.max(1.0));
        if self.weight < MANY || spread < LITTLE {
            return None;
        }
        let slope = self.sent_came / self.sent_sent;
        let rest = (self.came_came - slope * self.sent_came).max(0.0) / (self.weight - 2.0).max(1.0);
        Some((slope, libm::sqrt(rest / self.sent_sent)))
    }

    /// Whether the power is less than `within` from this, with its standard error. Near zero the queue is one's own; a
    /// power below zero shows others, too: they gave way at the same time. Near 1 it is nearly all theirs.
    pub(super) fn is_near(&self, power: f64, within: f64) -> bool {
        self.power().is_some_and(|(seen, error)| (seen - power).abs() + error < within)
    }

    /// Whether what was seen lately shows a queue that is shared: the power is farther from zero than in a queue of
    /// one's own, by more than its standard error. Nothing where it is not known.
    pub(super) fn shared(&self, now: f64) -> Option<bool> {
        let (power, error) = self.power().filter(|_| now - self.at < 2.0 * A_WHILE)?;
        Some(power.abs() - error > FOLLOWS)
    }
}
