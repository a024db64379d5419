//! Packet trains: a few packets sent back to back. They show whether other flows share the queue.
//!
//! - In a shared queue, no other packet is between the packets of a train, so the train arrives at the link's rate.
//! - A fair-queueing scheduler gives the flow a queue of its own. A train then arrives at the rate at which the
//!   scheduler serves this queue. The flow's other packets arrive at the same rate.
//!
//! The flow's share of the queue is a ratio: the receive rate before the train, divided by the rate at which the train
//! arrives.

use super::packet::ArrivedPacket;

/// Packets belong to a train if they are sent at least at this multiple of the control law's rate.
const TRAIN_SPEEDUP_MIN: f64 = 8.0;
const TRAIN_PACKETS_MIN: u32 = 3;
/// Two receive rates are compared: the rate of a train, and the rate just before it. The train shows an unshared queue
/// if the rate before it is above this fraction of the train's rate.
const OWN_QUEUE_SHARE_MIN: f64 = 0.85;
/// Time constant with which the weight of a train fades, in seconds.
const SHARE_MEMORY: f64 = 10.0;
/// The mean share stays valid for this time after the last train, in seconds.
const SHARE_VALIDITY: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// Size of all packets after the first, in bits.
    pub(super) bits: f64,
    /// How long these packets took to arrive, in seconds.
    pub(super) duration: f64,
    /// The receive rate just before the train, in bit/s. `None` if too few packets arrived.
    pub(super) rate_before: Option<f64>,
    /// Whether all packets that arrived just before the train had waited in a queue.
    pub(super) was_queued: bool,
}

/// Finds trains among the arriving packets. Computes the flow's share of the queue from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainMonitor {
    /// A possible train: its first packet, its last packet so far, and its number of packets so far.
    open: Option<(ArrivedPacket, ArrivedPacket, u32)>,
    /// When the last train was added to `share`, in seconds.
    share_at: f64,
    /// The flow's share times the train's bits, summed over all trains. Older trains have less weight.
    share: f64,
    /// The train's bits, summed over all trains. Older trains have less weight.
    weight: f64,
    /// Number of consecutive trains that showed an unshared queue.
    own: u32,
}

impl TrainMonitor {
    /// Processes an arrived packet of the size `bits`. `rate` is the rate that the control law has set. If the packet
    /// is the first one after a train, returns the train's first and last packet.
    pub(super) fn on_arrival(
        &mut self,
        packet: ArrivedPacket,
        bits: f64,
        rate: f64,
    ) -> Option<(ArrivedPacket, ArrivedPacket)> {
        let gap_max = bits / (TRAIN_SPEEDUP_MIN * rate.max(1.0));
        if let Some((_, last, count)) = &mut self.open
            && (0.0..=gap_max).contains(&(packet.sent - last.sent))
        {
            (*last, *count) = (packet, *count + 1);
            return None;
        }
        let (first, last, count) = self.open.replace((packet, packet, 1))?;
        (count >= TRAIN_PACKETS_MIN).then_some((first, last))
    }

    pub(super) fn add(&mut self, now: f64, train: &Train) {
        let Some(before) = train.rate_before else { return };
        // This product is the flow's share times the train's bits, because the train's rate is its bits divided by its
        // duration. The mean share is weighted by bits, because a single train may be wrong by a quarter at high rates.
        let share = before * train.duration;
        // This test does not need a queue before the train. Without a queue, a train arrives faster than the flow's
        // other packets, so it does not look like a train in an unshared queue.
        self.own = if share > OWN_QUEUE_SHARE_MIN * train.bits { self.own + 1 } else { 0 };
        if !train.was_queued {
            // Do not update the mean share. Without a queue, the receive rate before the train may be low because the
            // source sent little.
            return;
        }
        let kept = libm::exp(-(now - self.share_at) / SHARE_MEMORY);
        (self.share, self.weight) = (self.share * kept + share, self.weight * kept + train.bits);
        self.share_at = now;
    }

    /// Returns the flow's share of the queue according to recent trains. It is 1 in an unshared queue. Returns `None`
    /// if the share is unknown.
    pub(super) fn share(&self, now: f64) -> Option<f64> {
        (now - self.share_at < SHARE_VALIDITY && self.weight > 0.0).then(|| self.share / self.weight)
    }

    /// Returns whether the last `count` trains showed an unshared queue.
    pub(super) fn shows_own_queue(&self, count: u32) -> bool {
        self.own >= count
    }

    pub(super) fn reset_own_queue(&mut self) {
        self.own = 0;
    }
}

/// Time from the beginning of COMPETE until its first train, in seconds.
const FIRST_TRAIN_DELAY: f64 = 0.3;
/// Time between two trains in COMPETE, in seconds. It is long because a train delays other flows.
const TRAIN_INTERVAL: f64 = 3.0;
/// Time between a train that shows an unshared queue and a train that confirms it, in seconds.
const CONFIRMATION_INTERVAL: f64 = 0.3;
/// Time between two trains in DELAY while it is in doubt whether the queue is shared, in seconds.
const DOUBT_INTERVAL: f64 = 0.3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainSchedule {
    count: u32,
    at: f64,
    /// The earliest time of the next request in COMPETE, in seconds.
    next: f64,
}

impl TrainSchedule {
    pub(super) fn begin_compete(&mut self, now: f64) {
        self.next = now + FIRST_TRAIN_DELAY;
    }

    /// Requests a train in COMPETE if one is due. `room` tells whether the queue has room for a train. Without room, a
    /// train could overflow the queue. `own` tells whether the last train showed an unshared queue.
    pub(super) fn on_compete(&mut self, now: f64, room: bool, own: bool) {
        if room && (now >= self.next || own && now >= self.at + CONFIRMATION_INTERVAL) {
            self.request(now);
        }
    }

    /// Requests a train in DELAY if one is due. `in_doubt` tells whether it is unknown if other flows share the queue.
    pub(super) fn on_delay(&mut self, now: f64, in_doubt: bool) {
        if in_doubt && now >= self.at + DOUBT_INTERVAL {
            self.request(now);
        }
    }

    fn request(&mut self, now: f64) {
        self.count += 1;
        (self.at, self.next) = (now, now + TRAIN_INTERVAL);
    }

    /// Returns the number of the last request, which identifies its train.
    pub(super) fn last_request(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }
}
