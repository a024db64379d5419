//! Packet trains: a few packets sent back to back. They show whether other flows share the queue.
//!
//! - In a shared queue, no other packet is between the packets of a train, so the train arrives at the link's rate.
//! - A fair-queueing scheduler gives the flow a queue of its own. The train then arrives at the rate at which the
//!   scheduler serves this queue. The other packets of the flow arrive at the same rate.
//!
//! The flow's share of the queue is the receive rate before the train, divided by the rate at which the train arrives.

use super::packet::ArrivedPacket;

/// Packets that are sent at least this many times as fast as the law's rate belong to a train.
const TRAIN_SPEEDUP_MIN: f64 = 8.0;
const TRAIN_PACKETS_MIN: u32 = 3;
/// A train shows an unshared queue if the receive rate before it is above this share of its rate.
const OWN_QUEUE_SHARE_MIN: f64 = 0.85;
/// The time constant with which a train's weight fades, in seconds.
const SHARE_MEMORY: f64 = 10.0;
/// How long the mean share is valid after the last train, in seconds.
const SHARE_VALIDITY: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// The size of the packets after the first.
    pub(super) bits: f64,
    /// How long these packets took to arrive, in seconds.
    pub(super) duration: f64,
    /// The receive rate just before, in bit/s; `None` with too few packets.
    pub(super) rate_before: Option<f64>,
    /// Whether every packet just before the train had waited in a queue.
    pub(super) was_queued: bool,
}

/// Finds trains among arrivals, and the flow's share of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainMonitor {
    /// A possible train: its first and last packet so far, and its number of packets.
    open: Option<(ArrivedPacket, ArrivedPacket, u32)>,
    /// The time of the last train in `share`, in seconds.
    share_at: f64,
    /// A fading sum over trains: share times bits.
    share: f64,
    /// A fading sum over trains: bits.
    weight: f64,
    /// The number of consecutive trains that showed an unshared queue.
    own: u32,
}

impl TrainMonitor {
    /// Processes an arrived packet of `bits`; `rate` is the law's rate. If the packet is the first one after a train,
    /// returns the train's first and last packet.
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
        // The flow's share multiplied by the train's bits, for a mean weighted by bits. At high rates, the share of a
        // single train may be wrong by a quarter.
        let share = before * train.duration;
        // This test needs no queue before the train: on a free link, a train arrives faster than the flow's packets.
        self.own = if share > OWN_QUEUE_SHARE_MIN * train.bits { self.own + 1 } else { 0 };
        if !train.was_queued {
            // Without a queue, the receive rate before the train may be low because the source sent little.
            return;
        }
        let kept = libm::exp(-(now - self.share_at) / SHARE_MEMORY);
        (self.share, self.weight) = (self.share * kept + share, self.weight * kept + train.bits);
        self.share_at = now;
    }

    /// Returns the flow's share of the queue by recent trains, 1 in an unshared one; `None` if unknown.
    pub(super) fn share(&self, now: f64) -> Option<f64> {
        (now - self.share_at < SHARE_VALIDITY && self.weight > 0.0).then(|| self.share / self.weight)
    }

    /// Whether the last `count` trains showed an unshared queue.
    pub(super) fn shows_own_queue(&self, count: u32) -> bool {
        self.own >= count
    }

    pub(super) fn reset_own_queue(&mut self) {
        self.own = 0;
    }
}

/// The time from the beginning of COMPETE to its first train, in seconds.
const FIRST_TRAIN_DELAY: f64 = 0.3;
/// The time between trains in COMPETE, in seconds. A train costs other flows some delay.
const TRAIN_INTERVAL: f64 = 3.0;
/// The time until a train that confirms an unshared queue, in seconds.
const CONFIRMATION_INTERVAL: f64 = 0.3;
/// The time between trains in DELAY while the queue is in doubt, in seconds.
const DOUBT_INTERVAL: f64 = 0.3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainSchedule {
    count: u32,
    at: f64,
    /// The earliest next request in COMPETE, in seconds.
    next: f64,
}

impl TrainSchedule {
    pub(super) fn begin_compete(&mut self, now: f64) {
        self.next = now + FIRST_TRAIN_DELAY;
    }

    /// Requests a train in COMPETE if a train is due. Without `room` in the queue, the train could overflow the queue.
    /// `own` is true if the last train showed an unshared queue.
    pub(super) fn on_compete(&mut self, now: f64, room: bool, own: bool) {
        if room && (now >= self.next || own && now >= self.at + CONFIRMATION_INTERVAL) {
            self.request(now);
        }
    }

    /// Requests trains in DELAY while the queue may be the flow's own.
    pub(super) fn on_delay(&mut self, now: f64, in_doubt: bool) {
        if in_doubt && now >= self.at + DOUBT_INTERVAL {
            self.request(now);
        }
    }

    fn request(&mut self, now: f64) {
        self.count += 1;
        (self.at, self.next) = (now, now + TRAIN_INTERVAL);
    }

    /// Returns the last request's number, which identifies its train.
    pub(super) fn last_request(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }
}
