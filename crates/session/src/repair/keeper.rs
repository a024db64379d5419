use super::{Budget, KEPT, RepairSettings, Repairs};
use crate::{Fragment, FrameKind};
use std::collections::{BTreeSet, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};
use steadycast_wire::rtp::RtpHeader;

/// Round trips of which the shortest counts.
const ROUND_TRIPS: usize = 16;
/// The round trip before it is measured, as far as a packet may still be under way (libwebrtc's `kDefaultRtt`).
const UNKNOWN: Span = Span::millis(100);
/// What it takes to see a loss and to ask for the packet, as long as nothing was sent again.
const ASKS: Span = Span::millis(30);
/// Packets that are kept at most: a number of 16 bits names one of them.
const MOST: usize = 1 << 14;

/// A packet that was sent and may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) header: RtpHeader,
    pub(crate) fragment: Fragment,
    pub(crate) kind: FrameKind,
    /// When its frame was ready.
    pub(crate) ready: Time,
    /// When it left last, itself or again.
    pub(crate) sent: Time,
    /// Its IP size as a retransmission.
    pub(crate) size: Bytes,
    /// It waits to leave again.
    pub(crate) waits: bool,
    /// Its place among the packets of all streams when it left again last.
    pub(crate) again: Option<u64>,
}

/// A packet that leaves again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resend {
    /// The original's extended number.
    pub(crate) seq: u64,
    /// The original.
    pub(crate) kept: Kept,
}

/// The circumstances of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When it came.
    pub(crate) now: Time,
    /// The rate that the controller wants.
    pub(crate) target: Rate,
    /// IP size of a full packet.
    pub(crate) packet: Bytes,
    /// The controller is at its lower limit: only I frames are repaired.
    pub(crate) scarce: bool,
    /// For how long receivers wait for what is missing, as far as they say.
    pub(crate) told: Option<Span>,
}

/// Keeps at a sender what was sent last, and chooses what is sent again.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) settings: RepairSettings,
    packets: VecDeque<Kept>,
    /// The extended number of the first that is kept.
    first: u64,
    /// What waits: by when it has to come, I frames first, then in order.
    queue: BTreeSet<(Time, bool, u64)>,
    budget: Budget,
    round_trips: VecDeque<Span>,
    /// How long after a packet its retransmission leaves: mean and variation (RFC 6298, but for the first, of which an
    /// eighth is its variation).
    again: Option<(Span, Span)>,
    /// The frame that leaves, and since when.
    leaves: Option<(u32, Time)>,
    pub(crate) counts: Repairs,
}

impl Keeper {
    pub(crate) fn new(settings: RepairSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// An original leaves; `seq` is one more than the last one's.
    pub(crate) fn on_sent(&mut self, seq: u64, kept: Kept) {
        let age = KEPT.max(self.settings.useful() + self.round_trip());
        let old = |first: &Kept| kept.sent.since(first.sent) > age && !first.waits;
        while self.packets.len() == MOST || self.packets.front().is_some_and(old) {
            self.packets.pop_front();
            self.first += 1;
        }
        if self.packets.is_empty() || self.first + self.packets.len() as u64 != seq {
            self.packets.clear();
            self.queue.clear();
            self.first = seq;
        }
        self.packets.push_back(kept);
    }

    /// A round trip was measured.
    pub(crate) fn on_round_trip(&mut self, rtt: Span) {
        if self.round_trips.len() == ROUND_TRIPS {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(rtt);
    }

    /// Its receiver has said for how long it waits: from when it misses a packet, so that what left late is of use for
    /// longer. Whether a round trip was measured: before, nobody knows what that is enough for.
    pub(crate) fn on_playout(&mut self, told: Span) -> bool {
        self.settings.playout = self.settings.playout.max(Some(told.max(KEPT)));
        !self.round_trips.is_empty()
    }

    /// The path's round trip without queueing, as far as it is known.
    fn round_trip(&self) -> Span {
        self.round_trips.iter().min().copied().unwrap_or(Span::ZERO)
    }

    /// How often a packet that leaves `waited` after its frame was ready can be sent again and come in time, when
    /// receivers wait as long as was `told`: each time takes what it took of late, which is one way, the loss's being
    /// seen, RTCP's next time, the way back and the wait to leave, and twice its variation. Before, there is what the
    /// frame with this time stamp has taken to leave; or half of the wait, since a wait behind other frames passes.
    pub(crate) fn tries(&mut self, now: Time, timestamp: u32, waited: Span, told: Option<Span>) -> u32 {
        let (_, began) =
            *self.leaves.insert(self.leaves.filter(|(frame, _)| *frame == timestamp).unwrap_or((timestamp, now)));
        let Some(rtt) = self.round_trips.iter().max() else { return 0 };
        let (mean, variation) = self.again.unwrap_or((*rtt + ASKS, Span::ZERO));
        let before = now.since(began).max(waited / 2);
        let left = told.unwrap_or(self.settings.useful().saturating_sub(before)).saturating_sub(*rtt / 2);
        (left.as_nanos() / (mean + variation * 2).as_nanos().max(1)).min(8) as u32
    }

    /// A packet is asked for. It is sent again if it is kept, does not wait already, was not sent within the last round
    /// trip, would still come in time, and the share of retransmissions allows it.
    pub(crate) fn on_nack(&mut self, asked: &Asked, number: u16) {
        let Some(newest) = (self.first + self.packets.len() as u64).checked_sub(1) else { return };
        let Some(seq) = newest.checked_sub(u64::from((newest as u16).wrapping_sub(number))) else { return };
        let flight = if self.round_trips.is_empty() { UNKNOWN } else { self.round_trip() };
        if self.get(seq).is_some_and(|kept| asked.now.since(kept.sent) >= flight) {
            self.send_again(asked, seq);
        }
    }

    /// What left again under this number of all streams is lost, too: nobody needs to ask before it leaves once more.
    pub(crate) fn on_lost(&mut self, asked: &Asked, number: u64) {
        if let Some(place) = self.packets.iter().position(|kept| kept.again == Some(number)) {
            self.send_again(asked, self.first + place as u64);
        }
    }

    /// A packet is to leave again, unless it waits already, would not come in time, or the share is spent.
    fn send_again(&mut self, asked: &Asked, seq: u64) {
        let Asked { now, target, packet, scarce, told } = *asked;
        let (rtt, by) = (self.round_trip(), self.settings.useful());
        let Some(kept) = seq.checked_sub(self.first).and_then(|place| self.packets.get_mut(place as usize)) else {
            return;
        };
        if kept.waits || scarce && kept.kind != FrameKind::I {
            return;
        }
        let due = (kept.ready + by).before(rtt / 2);
        // It comes a round trip after it was missed, at the soonest.
        let in_vain = told.is_some_and(|told| rtt > told);
        if due <= now || in_vain {
            self.counts.stale += 1;
            return;
        }
        if !self.budget.take(now, target, packet, kept.size) {
            self.counts.refused += 1;
            return;
        }
        kept.waits = true;
        self.queue.insert((due, kept.kind != FrameKind::I, seq));
    }

    /// The extended number of the first that may still be sent again.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether a packet waits to be sent again; what would come too late does not.
    pub(crate) fn waits(&mut self, now: Time) -> bool {
        while self.queue.first().is_some_and(|(due, ..)| *due <= now) {
            let Some((.., seq)) = self.queue.pop_first() else { break };
            self.counts.stale += 1;
            if let Some(kept) = self.get(seq) {
                kept.waits = false;
            }
        }
        !self.queue.is_empty()
    }

    /// As [`Keeper::waits`], as it was when that was last asked.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The packet that leaves again now, under this number of all streams.
    pub(crate) fn next(&mut self, now: Time, number: u64) -> Option<Resend> {
        if !self.waits(now) {
            return None;
        }
        let (.., seq) = self.queue.pop_first()?;
        let kept = self.get(seq)?;
        let took = now.since(kept.sent);
        (kept.waits, kept.sent, kept.again) = (false, now, Some(number));
        let again = Resend { seq, kept: *kept };
        self.again = Some(self.again.map_or((took, took / 8), |(mean, variation)| {
            let apart = took.saturating_sub(mean).max(mean.saturating_sub(took));
            (mean.scale(0.875) + took / 8, variation.scale(0.75) + apart / 4)
        }));
        Some(again)
    }

    /// The packet that left last, as it would leave again for nothing but its size.
    pub(crate) fn newest(&self) -> Option<Resend> {
        let kept = *self.packets.back()?;
        Some(Resend { seq: self.first + self.packets.len() as u64 - 1, kept })
    }

    fn get(&mut self, seq: u64) -> Option<&mut Kept> {
        self.packets.get_mut(seq.checked_sub(self.first)? as usize)
    }

    /// Nothing more is sent.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.queue.clear();
    }
}
