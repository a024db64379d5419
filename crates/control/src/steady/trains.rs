//! Trains: a few packets that leave at once. In a queue they lie one behind the other, so they arrive at the rate at
//! which the path serves them: the link's where the queue is shared, and what the flow gets anyway where the queue is
//! its own. What arrives at other times, as a share of that, is the flow's share of the queue.

use super::Config;
use super::signals::Arrived;

/// Packets that leave this many times as fast as the rate are a train, and this many at least.
const FAST: f64 = 8.0;
const LEAST: u32 = 3;
/// Feedback tells arrivals to a millisecond: trains that took less than this in all, in seconds, tell no rate.
const LEAST_TOOK: f64 = 0.004;

/// A train that has arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// Bits of its packets after the first one, and the seconds in which these came.
    pub(super) bits: f64,
    pub(super) took: f64,
    /// The rate, in bit/s, of what came just before it, where that was enough to tell one.
    pub(super) before: Option<f64>,
    /// All of that waited in a queue.
    pub(super) waited: bool,
}

/// What trains have told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trains {
    /// The first and the last packet so far of what may be a train, and how many there are.
    open: Option<(Arrived, Arrived, u32)>,
    /// When a train was told last, and the bits and seconds of trains lately, by weights that fade.
    told_at: f64,
    bits: f64,
    took: f64,
    /// When the share was told last, and the sum of the shares by the trains' bits, and of these bits; they fade, too.
    share_at: f64,
    share: f64,
    weight: f64,
    /// Trains in a row that showed a queue of its own.
    own: u32,
}

impl Trains {
    /// A packet of `bits` has arrived, while `rate` is sent. Whether it ends a train: that one's first and last packet.
    pub(super) fn see(&mut self, packet: Arrived, bits: f64, rate: f64) -> Option<(Arrived, Arrived)> {
        let apart = bits / (FAST * rate.max(1.0));
        if let Some((_, last, count)) = &mut self.open
            && (0.0..=apart).contains(&(packet.sent - last.sent))
        {
            (*last, *count) = (packet, *count + 1);
            return None;
        }
        let (first, last, count) = self.open.replace((packet, packet, 1))?;
        (count >= LEAST).then_some((first, last))
    }

    /// Keeps what a train told.
    pub(super) fn note(&mut self, now: f64, train: &Train, config: &Config) {
        let kept = libm::exp(-(now - self.told_at) / config.train_span);
        (self.bits, self.took) = (self.bits * kept + train.bits, self.took * kept + train.took);
        self.told_at = now;
        let Some(before) = train.before else { return };
        // In bits, and by sums, since a train's own time is coarse: at high rates feedback tells it to a fourth.
        let share = before * train.took;
        // Nobody else has much of a path on which a flow gets nearly what a train shows, whether it has a queue there
        // or not.
        self.own = if share > config.share_own * train.bits { self.own + 1 } else { 0 };
        if !train.waited {
            // Where no queue stood, less than that may be all that was sent.
            return;
        }
        let kept = libm::exp(-(now - self.share_at) / config.train_span);
        (self.share, self.weight) = (self.share * kept + share, self.weight * kept + train.bits);
        self.share_at = now;
    }

    /// The rate at which the path serves packets that leave at once, in bit/s, as it was told last.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.took > LEAST_TOOK).then(|| self.bits / self.took)
    }

    /// When that was.
    pub(super) fn told_at(&self) -> f64 {
        self.told_at
    }

    /// The flow's share of the queue lately; 1 where the queue is its own.
    pub(super) fn share(&self, now: f64, config: &Config) -> Option<f64> {
        (now - self.share_at < config.train_span && self.weight > 0.0).then(|| self.share / self.weight)
    }

    /// Trains in a row that showed a queue of its own.
    pub(super) fn own(&self) -> u32 {
        self.own
    }

    /// Whether these are enough.
    pub(super) fn show_own(&self, config: &Config) -> bool {
        f64::from(self.own) >= config.own_trains
    }

    /// Another law rules: a queue of its own is to be shown anew.
    pub(super) fn forget_own(&mut self) {
        self.own = 0;
    }
}

/// When trains are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timetable {
    /// How many were wanted.
    count: u32,
    /// When the last one was, and from when on the next one may be.
    at: f64,
    next: f64,
    /// The lowest rate since it grew last, and since when it has not.
    low: f64,
    low_since: f64,
}

impl Timetable {
    /// A competition begins.
    pub(super) fn begin(&mut self, now: f64, config: &Config) {
        self.next = now + config.train_again;
    }

    /// While competing: in a queue that has room for it, for a train that is lost tells nothing and is a loss that TCP
    /// has not got. Sooner where the last one showed a queue of its own.
    pub(super) fn compete(&mut self, now: f64, room: bool, own: u32, config: &Config) {
        let again = own > 0 && now >= self.at + config.train_again;
        if room && (now >= self.next || again) {
            self.leave(now, config.train_every);
        }
    }

    /// In DELAY: until what the path carries is known, and then where the flow has much less of it and does not grow.
    /// Several in a row while it is in doubt whether the queue is the flow's own.
    pub(super) fn delay(
        &mut self,
        now: f64,
        (settled, doubts): (bool, bool),
        rate: f64,
        carries: Option<f64>,
        config: &Config,
    ) {
        let (wanted, every) = match carries {
            None => (settled, config.train_every),
            Some(carries) => (self.stagnates(now, config) && rate < 0.5 * carries, config.look_every),
        };
        let again = doubts && now >= self.at + config.train_again;
        if again || (wanted && now >= self.next) {
            self.leave(now, every);
        }
    }

    /// Watches whether `rate` grows.
    pub(super) fn watch(&mut self, now: f64, rate: f64, delays: bool) {
        if rate > 1.3 * self.low || !delays {
            (self.low, self.low_since) = (rate, now);
        }
        self.low = self.low.min(rate);
    }

    /// Whether the rate has not grown by three tenths for long.
    pub(super) fn stagnates(&self, now: f64, config: &Config) -> bool {
        now - self.low_since > config.stagnant
    }

    fn leave(&mut self, now: f64, every: f64) {
        self.count += 1;
        (self.at, self.next) = (now, now + every);
    }

    /// How many were wanted so far; each once.
    pub(super) fn wanted(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }
}
