//! TrainMonitor: a few packets that leave at once. In a queue they lie one behind the other, so they arrive at the rate at
//! which the path serves them: the link's where the queue is shared, and what the flow gets anyway where the queue is
//! its own. What arrives at other times, as a share of that, is the flow's share of the queue.

use super::constants::*;
use super::packet::ArrivedPacket;

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
pub(super) struct TrainMonitor {
    /// The first and the last packet so far of what may be a train, and how many there are.
    open: Option<(ArrivedPacket, ArrivedPacket, u32)>,
    /// When the share was told last, and the sum of the shares by the trains' bits, and of these bits; they fade, too.
    share_at: f64,
    share: f64,
    weight: f64,
    /// TrainMonitor in a row that showed a queue of its own.
    own: u32,
}

impl TrainMonitor {
    /// A packet of `bits` has arrived, while `rate` is sent. Whether it ends a train: that one's first and last packet.
    pub(super) fn see(
        &mut self,
        packet: ArrivedPacket,
        bits: f64,
        rate: f64,
    ) -> Option<(ArrivedPacket, ArrivedPacket)> {
        let apart = bits / (MANY * rate.max(1.0));
        if let Some((_, last, count)) = &mut self.open
            && (0.0..=apart).contains(&(packet.sent - last.sent))
        {
            (*last, *count) = (packet, *count + 1);
            return None;
        }
        let (first, last, count) = self.open.replace((packet, packet, 1))?;
        (count >= ENOUGH).then_some((first, last))
    }

    /// Keeps what a train told.
    pub(super) fn note(&mut self, now: f64, train: &Train) {
        let Some(before) = train.before else { return };
        // In bits, and by sums, since a train's own time is coarse: at high rates feedback tells it to a fourth.
        let share = before * train.took;
        // Nobody else has much of a path on which a flow gets nearly what a train shows, whether it has a queue there
        // or not.
        self.own = if share > NEARLY * train.bits { self.own + 1 } else { 0 };
        if !train.waited {
            // Where no queue stood, less than that may be all that was sent.
            return;
        }
        let kept = libm::exp(-(now - self.share_at) / LATELY);
        (self.share, self.weight) = (self.share * kept + share, self.weight * kept + train.bits);
        self.share_at = now;
    }

    /// The flow's share of the queue lately; 1 where the queue is its own.
    pub(super) fn share(&self, now: f64) -> Option<f64> {
        (now - self.share_at < LATELY && self.weight > 0.0).then(|| self.share / self.weight)
    }

    /// Whether so many trains in a row showed a queue of its own.
    pub(super) fn shows_own_queue(&self, count: u32) -> bool {
        self.own >= count
    }

    /// A queue of its own is to be shown anew.
    pub(super) fn reset_own_queue(&mut self) {
        self.own = 0;
    }
}

/// When trains are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainSchedule {
    /// How many were wanted.
    count: u32,
    /// When the last one was, and from when on the next one may be.
    at: f64,
    next: f64,
}

impl TrainSchedule {
    /// A competition begins.
    pub(super) fn begin(&mut self, now: f64) {
        self.next = now + A_MOMENT;
    }

    /// While competing: in a queue that has room for it, for a train that is lost tells nothing and is a loss that TCP
    /// has not got. Sooner where the last one showed a queue of its own.
    pub(super) fn compete(&mut self, now: f64, room: bool, own: bool) {
        if room && (now >= self.next || own && now >= self.at + A_MOMENT) {
            self.leave(now);
        }
    }

    /// In DELAY: several in a row while it is in doubt whether the queue is the flow's own.
    pub(super) fn delay(&mut self, now: f64, doubts: bool) {
        if doubts && now >= self.at + A_MOMENT {
            self.leave(now);
        }
    }

    fn leave(&mut self, now: f64) {
        self.count += 1;
        (self.at, self.next) = (now, now + SEEN);
    }

    /// How many were wanted so far; each once.
    pub(super) fn wanted(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }
}
