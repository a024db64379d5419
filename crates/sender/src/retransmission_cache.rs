use crate::{DEFAULT_USEFUL_TIME, FrameRole, RepairBudget, RepairSettings, Repairs};
use std::collections::{BTreeSet, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Number of RTT samples that are kept. Their minimum estimates the path's RTT without queueing.
const RTT_SAMPLES: usize = 16;
/// RTT that is assumed for a packet in flight before any RTT is measured (libwebrtc's `kDefaultRtt`).
const DEFAULT_RTT: Span = Span::millis(100);
/// Time from a loss to its NACK, beyond the RTT. Used until the first retransmission has been sent.
const LOSS_DETECTION_TIME: Span = Span::millis(30);
/// Minimum time for which a sent packet stays in the cache.
const MIN_RETENTION: Span = Span::secs(1);
/// Maximum number of cached packets. A NACK's 16-bit sequence number is unambiguous within a quarter of its range.
const MAX_CACHED_PACKETS: usize = 1 << 14;

/// A sent packet that a NACK may request.
#[derive(Clone, Copy, Debug)]
pub struct CachedPacket<P> {
    /// The packet, or an identifier of it.
    pub content: P,
    /// The role of the packet's frame.
    pub role: FrameRole,
    /// The time at which the encoder delivered the packet's frame.
    pub ready: Time,
    /// The time of the latest transmission: the original or its last retransmission.
    pub sent: Time,
    /// The IP size of the packet as a retransmission.
    pub size: Bytes,
    /// Whether the packet is in the retransmission queue.
    pub queued: bool,
    /// The number of the last retransmission among the packets of all streams of the session.
    pub resent_as: Option<u64>,
}

/// A packet that is to be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct Retransmission<P> {
    /// The original's extended sequence number.
    pub seq: u64,
    /// The original packet.
    pub packet: CachedPacket<P>,
}

/// Context of a NACK: the values that decide whether a packet can be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct NackContext {
    /// The time at which the NACK arrived.
    pub now: Time,
    /// The controller's target rate.
    pub target: Rate,
    /// The IP size of a full packet.
    pub packet: Bytes,
    /// Whether the controller is at its lower limit. Only packets of I frames are then retransmitted.
    pub scarce: bool,
    /// The longest play-out delay that receivers announced, if any did.
    pub announced_playout: Option<Span>,
}

/// The sender's history of sent packets, from which it answers NACKs (RFC 4588).
#[derive(Debug)]
pub struct RetransmissionCache<P> {
    /// The settings of the retransmission stream.
    pub settings: RepairSettings,
    packets: VecDeque<CachedPacket<P>>,
    /// The extended sequence number of the oldest cached packet.
    first: u64,
    /// The packets to be retransmitted, ordered by deadline, then I frames first, then by sequence number.
    queue: BTreeSet<(Time, bool, u64)>,
    rtt_samples: VecDeque<Span>,
    /// Mean and variation of the time from a transmission to the packet's next retransmission. Estimated as in RFC
    /// 6298, except that the first sample's variation is an eighth of it, not half.
    resend_delay: Option<(Span, Span)>,
    /// The RTP timestamp of the frame that is being sent, and the time of its first packet.
    departing_frame: Option<(u32, Time)>,
    /// The counts of retransmissions and of refused requests.
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

    /// Adds an original that is being sent. `seq` is the previous number plus one; after a gap the cache starts empty.
    pub fn on_sent(&mut self, seq: u64, packet: CachedPacket<P>) {
        let age = MIN_RETENTION.max(self.settings.useful() + self.round_trip());
        // A queued packet is kept, because the queue refers to it by its position.
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

    /// Applies the play-out delay that a receiver announced. The delay begins when the receiver notices that the packet
    /// is missing. The delay therefore also extends the useful time of packets that were sent late. Returns whether an
    /// RTT has been measured: without one, the number of possible retransmissions is unknown.
    pub fn on_playout(&mut self, announced_playout: Span) -> bool {
        self.settings.playout = self.settings.playout.max(Some(announced_playout.max(DEFAULT_USEFUL_TIME)));
        !self.rtt_samples.is_empty()
    }

    /// Returns the path's RTT without queueing, or zero before the first sample.
    fn round_trip(&self) -> Span {
        self.rtt_samples.iter().min().copied().unwrap_or(Span::ZERO)
    }

    /// Returns how many retransmissions (0 to 8) of a packet can arrive in time, if it is sent `waited` after its frame
    /// was ready.
    ///
    /// One retransmission takes the mean of recent ones plus twice their variation. This time contains the one-way
    /// delay, the detection of the loss, the RTCP interval, the delay of the feedback, and the pacer. The time that is
    /// available is the announced play-out delay. Without an announcement it is the useful time minus the larger of two
    /// values: the time that the frame `timestamp` has already spent in the pacer, and half of `waited`. Only half of
    /// `waited` counts, because a retransmission does not wait for other frames again.
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
        // The packet itself takes a one-way delay to the receiver before its loss can be detected.
        let left = announced_playout.unwrap_or(self.settings.useful().saturating_sub(before)).saturating_sub(*rtt / 2);
        (left.as_nanos() / (mean + variation * 2).as_nanos().max(1)).min(8) as u32
    }

    /// Queues the packet that a NACK requests. The packet is not queued if it is not cached, is queued already, was
    /// sent within the last RTT, or would arrive too late. It is also not queued if retransmissions have used up their
    /// share of the rate, which is in `budget` for all streams.
    pub fn on_nack(&mut self, context: &NackContext, budget: &mut RepairBudget, number: u16) {
        let Some(newest) = (self.first + self.packets.len() as u64).checked_sub(1) else { return };
        // A NACK names packets that were sent, so the number is that of the newest packet with these low 16 bits.
        let Some(seq) = newest.checked_sub(u64::from((newest as u16).wrapping_sub(number))) else { return };
        // A packet that was sent less than an RTT ago may still arrive, because the receiver sent the NACK before the
        // packet could arrive.
        let flight = if self.rtt_samples.is_empty() { DEFAULT_RTT } else { self.round_trip() };
        if self.get(seq).is_some_and(|cached| context.now.since(cached.sent) >= flight) {
            self.send_again(context, budget, seq);
        }
    }

    /// Queues a packet again after its retransmission was reported lost. `number` is the number of the retransmission
    /// among the packets of all streams. No further NACK is needed.
    pub fn on_lost(&mut self, context: &NackContext, budget: &mut RepairBudget, number: u64) {
        if let Some(place) = self.packets.iter().position(|cached| cached.resent_as == Some(number)) {
            self.send_again(context, budget, self.first + place as u64);
        }
    }

    /// Queues a packet for retransmission, unless it is queued already, would arrive too late, or the budget is used
    /// up.
    fn send_again(&mut self, context: &NackContext, budget: &mut RepairBudget, seq: u64) {
        let NackContext { now, target, packet, scarce, announced_playout } = *context;
        let (rtt, by) = (self.round_trip(), self.settings.useful());
        let Some(cached) = seq.checked_sub(self.first).and_then(|place| self.packets.get_mut(place as usize)) else {
            return;
        };
        // At the controller's floor, the rate does not suffice for all retransmissions. I frames come first, since all
        // later frames depend on them.
        if cached.queued || scarce && cached.role != FrameRole::Key {
            return;
        }
        // The retransmission still takes a one-way delay to the receiver.
        let due = (cached.ready + by).before(rtt / 2);
        // A retransmission arrives one RTT after the loss was noticed, at the earliest.
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

    /// Returns the extended sequence number of the oldest packet that may still be retransmitted.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Drops queued packets that would arrive too late. Returns whether a packet is left in the queue.
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

    /// Returns the number of packets in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the queue contains a packet, as of the last call of [`RetransmissionCache::waits`].
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next packet to retransmit from the queue. `number` is its number among the packets of all streams.
    pub fn next(&mut self, now: Time, number: u64) -> Option<Retransmission<P>> {
        if !self.waits(now) {
            return None;
        }
        let (.., seq) = self.queue.pop_first()?;
        let cached = self.get(seq)?;
        // The sample begins at the previous transmission, so that it contains all delays of one attempt.
        let took = now.since(cached.sent);
        (cached.queued, cached.sent, cached.resent_as) = (false, now, Some(number));
        let retransmission = Retransmission { seq, packet: *cached };
        self.resend_delay = Some(self.resend_delay.map_or((took, took / 8), |(mean, variation)| {
            let apart = took.saturating_sub(mean).max(mean.saturating_sub(took));
            // The gains of RFC 6298, section 2.3.
            (mean.scale(0.875) + took / 8, variation.scale(0.75) + apart / 4)
        }));
        Some(retransmission)
    }

    /// Returns the packet that was sent last, for use as padding.
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
