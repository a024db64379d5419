use crate::{DEFAULT_USEFUL_TIME, FrameRole, RepairBudget, RepairSettings, Repairs};
use std::collections::{BTreeSet, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Number of RTT samples that are stored. Their minimum is the RTT without queueing.
const RTT_SAMPLES: usize = 16;
/// The time for which a packet is assumed to be in flight before the first RTT sample (libwebrtc's `kDefaultRtt`).
const DEFAULT_RTT: Span = Span::millis(100);
/// The assumed time that a receiver needs to detect a loss. A NACK arrives this time plus an RTT after the lost packet
/// was sent.
const LOSS_DETECTION_TIME: Span = Span::millis(30);
/// The minimum time for which a packet stays in the cache.
const MIN_RETENTION: Span = Span::secs(1);
/// Maximum number of cached packets. It is a quarter of the 16-bit range, so that a sequence number in a NACK is
/// unambiguous.
const MAX_CACHED_PACKETS: usize = 1 << 14;

/// A sent packet that a NACK may request.
#[derive(Clone, Copy, Debug)]
pub struct CachedPacket<P> {
    /// The packet, or an identifier of it.
    pub content: P,
    /// The role of the packet's frame.
    pub role: FrameRole,
    /// When the encoder delivered the frame.
    pub ready: Time,
    /// When the packet was last sent, either as an original or as a retransmission.
    pub sent: Time,
    /// The IP size of the packet when it is retransmitted.
    pub size: Bytes,
    /// Whether the packet is queued for retransmission.
    pub queued: bool,
    /// The number of the packet's last retransmission. All streams share these numbers.
    pub resent_as: Option<u64>,
}

/// A packet to be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct Retransmission<P> {
    /// The extended sequence number of the original packet.
    pub seq: u64,
    /// The original packet.
    pub packet: CachedPacket<P>,
}

/// The circumstances of a NACK, which decide whether the packet is retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct NackContext {
    /// When the NACK arrived.
    pub now: Time,
    /// The controller's target rate.
    pub target: Rate,
    /// The IP size of a full packet.
    pub packet: Bytes,
    /// Whether the controller is at its lower limit. Only packets of I frames are retransmitted in this case.
    pub scarce: bool,
    /// The longest play-out delay that receivers have announced, or `None` if there is no announcement.
    pub announced_playout: Option<Span>,
}

/// The sent packets that can be retransmitted on a NACK (RFC 4588).
#[derive(Debug)]
pub struct RetransmissionCache<P> {
    /// The settings.
    pub settings: RepairSettings,
    packets: VecDeque<CachedPacket<P>>,
    /// The extended sequence number of the oldest cached packet.
    first: u64,
    /// The packets to retransmit, in the order in which they are sent: by deadline, then I frames first, then by
    /// sequence number.
    queue: BTreeSet<(Time, bool, u64)>,
    rtt_samples: VecDeque<Span>,
    /// Mean and variation of the time between two transmissions of a packet (RFC 6298). The first variation is an
    /// eighth of the first sample instead of half of it.
    resend_delay: Option<(Span, Span)>,
    /// The frame that is being sent: its RTP timestamp, and the time at which its first packet was sent.
    departing_frame: Option<(u32, Time)>,
    /// Numbers of retransmissions and refused requests.
    pub counts: Repairs,
}

impl<P: Copy> RetransmissionCache<P> {
    /// Creates an empty cache.
    pub fn new(settings: RepairSettings) -> Self {
        Self {
            settings,
            packets: VecDeque::new(),
            first: 0,
            queue: BTreeSet::new(),
            rtt_samples: VecDeque::new(),
            resend_delay: None,
            departing_frame: None,
            counts: Repairs::default(),
        }
    }

    /// Adds an original packet. If `seq` does not follow the previous sequence number, the cache is emptied first.
    pub fn on_sent(&mut self, seq: u64, packet: CachedPacket<P>) {
        let age = MIN_RETENTION.max(self.settings.useful() + self.round_trip());
        // Keep queued packets, because the queue refers to them by their sequence number.
        let old = |first: &CachedPacket<P>| packet.sent.since(first.sent) > age && !first.queued;
        while self.packets.len() == MAX_CACHED_PACKETS || self.packets.front().is_some_and(old) {
            self.packets.pop_front();
            self.first += 1;
        }
        if self.packets.is_empty() || self.first + self.packets.len() as u64 != seq {
            self.packets.clear();
            self.queue.clear();
            self.first = seq;
        }
        self.packets.push_back(packet);
    }

    /// Adds an RTT sample.
    pub fn on_round_trip(&mut self, rtt: Span) {
        if self.rtt_samples.len() == RTT_SAMPLES {
            self.rtt_samples.pop_front();
        }
        self.rtt_samples.push_back(rtt);
    }

    /// Applies the play-out delay that a receiver has announced: a lost packet is useful if it arrives within this time
    /// after its loss. Returns whether an RTT has been measured.
    pub fn on_playout(&mut self, announced_playout: Span) -> bool {
        self.settings.playout = self.settings.playout.max(Some(announced_playout.max(DEFAULT_USEFUL_TIME)));
        !self.rtt_samples.is_empty()
    }

    /// Returns the RTT without queueing, or zero before the first sample.
    fn round_trip(&self) -> Span {
        self.rtt_samples.iter().min().copied().unwrap_or(Span::ZERO)
    }

    /// Returns how many retransmissions of a packet can arrive in time, from 0 to 8. The packet is sent `waited` after
    /// its frame was ready.
    ///
    /// An attempt takes the mean time of recent attempts plus twice their variation. The time for all attempts is the
    /// announced play-out delay. Without an announcement, it is the useful time minus the time in the pacer.
    pub fn possible_retransmissions(
        &mut self,
        now: Time,
        timestamp: u32,
        waited: Span,
        announced_playout: Option<Span>,
    ) -> u32 {
        let (_, began) = *self
            .departing_frame
            .insert(self.departing_frame.filter(|(frame, _)| *frame == timestamp).unwrap_or((timestamp, now)));
        let Some(rtt) = self.rtt_samples.iter().max() else { return 0 };
        let (mean, variation) = self.resend_delay.unwrap_or((*rtt + LOSS_DETECTION_TIME, Span::ZERO));
        let before = now.since(began).max(waited / 2);
        // Subtract half an RTT, because a receiver cannot detect a loss before the packet's time of arrival.
        let left = announced_playout.unwrap_or(self.settings.useful().saturating_sub(before)).saturating_sub(*rtt / 2);
        (left.as_nanos() / (mean + variation * 2).as_nanos().max(1)).min(8) as u32
    }

    /// Queues the packet that a NACK requests. Does nothing if the packet is unknown, is already queued, was sent
    /// within the last RTT, or would arrive too late. Does nothing either if `budget` has no room for the packet.
    pub fn on_nack(&mut self, context: &NackContext, budget: &mut RepairBudget, number: u16) {
        let Some(newest) = (self.first + self.packets.len() as u64).checked_sub(1) else { return };
        // Several extended sequence numbers have `number` as their low 16 bits. Take the highest of them that is not
        // above `newest`.
        let Some(seq) = newest.checked_sub(u64::from((newest as u16).wrapping_sub(number))) else { return };
        // Ignore the NACK if the packet may still be in flight.
        let flight = if self.rtt_samples.is_empty() { DEFAULT_RTT } else { self.round_trip() };
        if self.get(seq).is_some_and(|cached| context.now.since(cached.sent) >= flight) {
            self.send_again(context, budget, seq);
        }
    }

    /// Queues a packet whose retransmission was lost. `number` is the number of the lost retransmission.
    pub fn on_lost(&mut self, context: &NackContext, budget: &mut RepairBudget, number: u64) {
        if let Some(place) = self.packets.iter().position(|cached| cached.resent_as == Some(number)) {
            self.send_again(context, budget, self.first + place as u64);
        }
    }

    fn send_again(&mut self, context: &NackContext, budget: &mut RepairBudget, seq: u64) {
        let NackContext { now, target, packet, scarce, announced_playout } = *context;
        let (rtt, by) = (self.round_trip(), self.settings.useful());
        let Some(cached) = seq.checked_sub(self.first).and_then(|place| self.packets.get_mut(place as usize)) else {
            return;
        };
        // At the lower limit of the rate, repair only I frames, because all later frames depend on them.
        if cached.queued || scarce && cached.role != FrameRole::Key {
            return;
        }
        // The packet must be sent at least one one-way delay before the deadline of its frame.
        let due = (cached.ready + by).before(rtt / 2);
        // A retransmission arrives at least one RTT after the loss, so it is useless if that is later than the
        // play-out.
        let in_vain = announced_playout.is_some_and(|playout| rtt > playout);
        if due <= now || in_vain {
            self.counts.stale += 1;
            return;
        }
        if !budget.take(now, target, packet, cached.size) {
            self.counts.refused += 1;
            return;
        }
        cached.queued = true;
        self.queue.insert((due, cached.role != FrameRole::Key, seq));
    }

    /// Returns the extended sequence number of the oldest cached packet.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Drops queued packets that would arrive too late. Returns whether any queued packet is left.
    pub fn waits(&mut self, now: Time) -> bool {
        while self.queue.first().is_some_and(|(due, ..)| *due <= now) {
            let Some((.., seq)) = self.queue.pop_first() else { break };
            self.counts.stale += 1;
            if let Some(cached) = self.get(seq) {
                cached.queued = false;
            }
        }
        !self.queue.is_empty()
    }

    /// Returns the number of queued packets.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether a packet is queued. The result is as of the last call of [`RetransmissionCache::waits`].
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next packet to retransmit. `number` is the number that this retransmission gets. Media,
    /// retransmissions and parity of all streams are numbered together.
    pub fn next(&mut self, now: Time, number: u64) -> Option<Retransmission<P>> {
        if !self.waits(now) {
            return None;
        }
        let (.., seq) = self.queue.pop_first()?;
        let cached = self.get(seq)?;
        // The time since the previous transmission includes all delays of a retransmission, so use it as the sample.
        let took = now.since(cached.sent);
        (cached.queued, cached.sent, cached.resent_as) = (false, now, Some(number));
        let retransmission = Retransmission { seq, packet: *cached };
        self.resend_delay = Some(self.resend_delay.map_or((took, took / 8), |(mean, variation)| {
            let apart = took.saturating_sub(mean).max(mean.saturating_sub(took));
            // Update mean and variation as in RFC 6298, section 2.3.
            (mean.scale(0.875) + took / 8, variation.scale(0.75) + apart / 4)
        }));
        Some(retransmission)
    }

    /// Returns the newest packet, for use as padding.
    pub fn newest(&self) -> Option<Retransmission<P>> {
        let packet = *self.packets.back()?;
        Some(Retransmission { seq: self.first + self.packets.len() as u64 - 1, packet })
    }

    fn get(&mut self, seq: u64) -> Option<&mut CachedPacket<P>> {
        self.packets.get_mut(seq.checked_sub(self.first)? as usize)
    }

    /// Empties the cache and the queue.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.queue.clear();
    }
}
