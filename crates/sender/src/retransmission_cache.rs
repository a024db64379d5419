use crate::{DEFAULT_USEFUL_TIME, FrameRole, RepairBudget, RepairSettings, Repairs};
use std::collections::{BTreeSet, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The RTT samples kept; their minimum is the RTT without queueing.
const RTT_SAMPLES: usize = 16;
/// The assumed flight time before any RTT sample (libwebrtc's `kDefaultRtt`).
const DEFAULT_RTT: Span = Span::millis(100);
/// The assumed time from a loss to its NACK, beyond the RTT.
const LOSS_DETECTION_TIME: Span = Span::millis(30);
/// The minimum time in the cache.
const MIN_RETENTION: Span = Span::secs(1);
/// The maximum number of cached packets: a quarter of the 16-bit range, so that NACKs are unambiguous.
const MAX_CACHED_PACKETS: usize = 1 << 14;

/// A sent packet that a NACK may request.
#[derive(Clone, Copy, Debug)]
pub struct CachedPacket<P> {
    /// The packet, or an identifier of it.
    pub content: P,
    /// The role of its frame.
    pub role: FrameRole,
    /// When the encoder delivered the frame.
    pub ready: Time,
    /// The latest transmission, original or retransmission.
    pub sent: Time,
    /// The IP size as a retransmission.
    pub size: Bytes,
    /// Whether it is queued for retransmission.
    pub queued: bool,
    /// The number of its last retransmission, among the packets of all streams.
    pub resent_as: Option<u64>,
}

/// A packet to be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct Retransmission<P> {
    /// The original's extended sequence number.
    pub seq: u64,
    /// The original packet.
    pub packet: CachedPacket<P>,
}

/// What decides whether a packet can be retransmitted.
#[derive(Clone, Copy, Debug)]
pub struct NackContext {
    /// When the NACK arrived.
    pub now: Time,
    /// The controller's target rate.
    pub target: Rate,
    /// The IP size of a full packet.
    pub packet: Bytes,
    /// Whether the controller is at its lower limit; only I frames are then retransmitted.
    pub scarce: bool,
    /// The longest play-out delay that receivers announced, if any.
    pub announced_playout: Option<Span>,
}

/// The sent packets from which NACKs are answered (RFC 4588).
#[derive(Debug)]
pub struct RetransmissionCache<P> {
    /// The settings.
    pub settings: RepairSettings,
    packets: VecDeque<CachedPacket<P>>,
    /// The oldest cached packet's extended sequence number.
    first: u64,
    /// The packets to retransmit, by deadline, then I frames first, then sequence number.
    queue: BTreeSet<(Time, bool, u64)>,
    rtt_samples: VecDeque<Span>,
    /// Mean and variation of the time until a packet is retransmitted again (RFC 6298). The first variation is an
    /// eighth of the first sample, not half.
    resend_delay: Option<(Span, Span)>,
    /// The frame that is being sent: its RTP timestamp, and its first packet's time.
    departing_frame: Option<(u32, Time)>,
    /// The counts.
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

    /// Adds an original. `seq` is the previous one plus one; after a gap the cache starts empty.
    pub fn on_sent(&mut self, seq: u64, packet: CachedPacket<P>) {
        let age = MIN_RETENTION.max(self.settings.useful() + self.round_trip());
        // The queue refers to packets by position.
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

    /// Applies the play-out delay that a receiver announced. The delay counts from the loss of a packet. Returns
    /// whether an RTT has been measured.
    pub fn on_playout(&mut self, announced_playout: Span) -> bool {
        self.settings.playout = self.settings.playout.max(Some(announced_playout.max(DEFAULT_USEFUL_TIME)));
        !self.rtt_samples.is_empty()
    }

    /// Returns the RTT without queueing; zero before the first sample.
    fn round_trip(&self) -> Span {
        self.rtt_samples.iter().min().copied().unwrap_or(Span::ZERO)
    }

    /// Returns how many retransmissions (0 to 8) can arrive in time, for a packet sent `waited` after its frame was
    /// ready.
    ///
    /// An attempt takes the mean of recent ones plus twice their variation. The total time is the announced play-out
    /// delay; without one, the useful time minus the time in the pacer.
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
        // The receiver detects a loss half an RTT after the packet was sent, at the earliest.
        let left = announced_playout.unwrap_or(self.settings.useful().saturating_sub(before)).saturating_sub(*rtt / 2);
        (left.as_nanos() / (mean + variation * 2).as_nanos().max(1)).min(8) as u32
    }

    /// Queues the packet that a NACK requests, unless it is unknown, queued, sent within the last RTT, too late, or
    /// beyond `budget`.
    pub fn on_nack(&mut self, context: &NackContext, budget: &mut RepairBudget, number: u16) {
        let Some(newest) = (self.first + self.packets.len() as u64).checked_sub(1) else { return };
        // `seq` is the highest sequence number up to `newest` whose low 16 bits are `number`.
        let Some(seq) = newest.checked_sub(u64::from((newest as u16).wrapping_sub(number))) else { return };
        // The packet may still be in flight.
        let flight = if self.rtt_samples.is_empty() { DEFAULT_RTT } else { self.round_trip() };
        if self.get(seq).is_some_and(|cached| context.now.since(cached.sent) >= flight) {
            self.send_again(context, budget, seq);
        }
    }

    /// Queues a packet whose retransmission was lost. `number` is that retransmission's.
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
        // At the floor, only I frames are repaired, because all later frames depend on them.
        if cached.queued || scarce && cached.role != FrameRole::Key {
            return;
        }
        // A one-way delay before the frame's deadline.
        let due = (cached.ready + by).before(rtt / 2);
        // A retransmission takes at least an RTT.
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

    /// Returns the oldest cached packet's extended sequence number.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Drops queued packets that are too late. Returns whether one is left.
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

    /// Returns whether a packet is queued, as of the last [`RetransmissionCache::waits`].
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next packet to retransmit. `number` is its number among the packets of all streams.
    pub fn next(&mut self, now: Time, number: u64) -> Option<Retransmission<P>> {
        if !self.waits(now) {
            return None;
        }
        let (.., seq) = self.queue.pop_first()?;
        let cached = self.get(seq)?;
        // The time since the previous transmission includes all delays of a retransmission attempt.
        let took = now.since(cached.sent);
        (cached.queued, cached.sent, cached.resent_as) = (false, now, Some(number));
        let retransmission = Retransmission { seq, packet: *cached };
        self.resend_delay = Some(self.resend_delay.map_or((took, took / 8), |(mean, variation)| {
            let apart = took.saturating_sub(mean).max(mean.saturating_sub(took));
            // RFC 6298, section 2.3.
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
