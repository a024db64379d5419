//! Packet trains: a few packets that are sent back to back. In a queue they lie one behind the other, so they arrive at
//! the rate at which the path serves them. In a shared queue this is the link's rate; in an unshared queue it is the
//! flow's rate. The receive rate before a train, divided by the train's receive rate, is the flow's share of the queue.

use super::packet::ArrivedPacket;

/// Packets that are sent this many times as fast as the rate belong to a train.
const TRAIN_SPEEDUP_MIN: f64 = 8.0;
/// The least number of packets of a train.
const TRAIN_PACKETS_MIN: u32 = 3;
/// A train shows an unshared queue if the receive rate before the train is above this share of the train's rate. Other
/// flows then have little of the path.
const OWN_QUEUE_SHARE_MIN: f64 = 0.85;
/// The time constant with which a train's weight in the mean share fades, in seconds.
const SHARE_MEMORY: f64 = 10.0;
/// Time for which the mean share is valid after the last train, in seconds.
const SHARE_VALIDITY: f64 = 10.0;

/// A train that has arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// The bits of the train's packets, without the first packet.
    pub(super) bits: f64,
    /// The time in which these packets arrived, in seconds.
    pub(super) duration: f64,
    /// The receive rate just before the train, in bit/s; `None` if too few packets arrived then.
    pub(super) rate_before: Option<f64>,
    /// Whether every packet that arrived just before the train had waited in a queue.
    pub(super) was_queued: bool,
}

/// Finds trains among arriving packets, and keeps the flow's share of the queue that they show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainMonitor {
    /// The first and the last packet so far of a possible train, and its number of packets.
    open: Option<(ArrivedPacket, ArrivedPacket, u32)>,
    /// The time of the last train that was added to the share, in seconds.
    share_at: f64,
    /// Two sums over trains: the share times the train's bits, and the train's bits. Older trains have smaller weights.
    share: f64,
    weight: f64,
    /// The number of trains in a row that showed an unshared queue.
    own: u32,
}

impl TrainMonitor {
    /// Processes a packet of `bits` that arrived while the law's rate is `rate`. If the packet is the first one after a
    /// train, returns the first and the last packet of this train.
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

    /// Adds the measurement of a train.
    pub(super) fn add(&mut self, now: f64, train: &Train) {
        let Some(before) = train.rate_before else { return };
        // The shares are added up in bits, and not as a mean of quotients: at high rates, reports measure a train's
        // duration only to within a quarter of it.
        let share = before * train.duration;
        // This count includes trains that met no queue: a train's rate of nearly the flow's rate shows in any case that
        // other flows use little of the path.
        self.own = if share > OWN_QUEUE_SHARE_MIN * train.bits { self.own + 1 } else { 0 };
        if !train.was_queued {
            // Without a queue, a rate below the train's may only mean that the source sent less.
            return;
        }
        let kept = libm::exp(-(now - self.share_at) / SHARE_MEMORY);
        (self.share, self.weight) = (self.share * kept + share, self.weight * kept + train.bits);
        self.share_at = now;
    }

    /// Returns the flow's share of the queue, as measured by recent trains. It is 1 in an unshared queue.
    pub(super) fn share(&self, now: f64) -> Option<f64> {
        (now - self.share_at < SHARE_VALIDITY && self.weight > 0.0).then(|| self.share / self.weight)
    }

    /// Whether the last `count` trains showed an unshared queue.
    pub(super) fn shows_own_queue(&self, count: u32) -> bool {
        self.own >= count
    }

    /// Resets the count of trains that showed an unshared queue.
    pub(super) fn reset_own_queue(&mut self) {
        self.own = 0;
    }
}

/// The time from the beginning of COMPETE to its first train, in seconds.
const FIRST_TRAIN_DELAY: f64 = 0.3;
/// The time between trains in COMPETE, in seconds. A train is a burst, which costs other flows some delay.
const TRAIN_INTERVAL: f64 = 3.0;
/// After a train has shown an unshared queue, another train confirms it after this time, in seconds.
const CONFIRMATION_INTERVAL: f64 = 0.3;
/// The time between trains in DELAY while the queue is in doubt, in seconds.
const DOUBT_INTERVAL: f64 = 0.3;

/// Decides when trains are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrainSchedule {
    /// The number of trains requested so far.
    count: u32,
    /// The time of the last request, in seconds.
    at: f64,
    /// The earliest time of the next request in COMPETE, in seconds.
    next: f64,
}

impl TrainSchedule {
    /// Starts COMPETE's schedule.
    pub(super) fn begin_compete(&mut self, now: f64) {
        self.next = now + FIRST_TRAIN_DELAY;
    }

    /// Requests a train in COMPETE if one is due and the queue has `room` for it. A train that overflows the queue
    /// gives no result, and costs a loss that a TCP would not have. `own` is true if the last train showed an unshared
    /// queue.
    pub(super) fn on_compete(&mut self, now: f64, room: bool, own: bool) {
        if room && (now >= self.next || own && now >= self.at + CONFIRMATION_INTERVAL) {
            self.request(now);
        }
    }

    /// Requests trains in DELAY while it is in doubt whether the queue is the flow's own.
    pub(super) fn on_delay(&mut self, now: f64, in_doubt: bool) {
        if in_doubt && now >= self.at + DOUBT_INTERVAL {
            self.request(now);
        }
    }

    fn request(&mut self, now: f64) {
        self.count += 1;
        (self.at, self.next) = (now, now + TRAIN_INTERVAL);
    }

    /// Returns the number of the last train requested, which identifies it.
    pub(super) fn last_request(&self) -> Option<u32> {
        (self.count > 0).then_some(self.count)
    }
}
