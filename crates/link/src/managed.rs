//! Queues that drop or mark packets when the packets are dequeued.

use crate::{Counts, Drop, Ecn, Fate, Limit};
use std::collections::VecDeque;
use std::fmt::Debug;
use steadycast_units::{Bytes, Time};

/// The number of a packet that waits in a link. Numbers are reused, so they stay small and can be used as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) token: Token,
    pub(crate) since: Time,
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
}

#[derive(Clone, Copy)]
pub(crate) struct Offered {
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
    pub(crate) flow: u64,
}

/// An AQM algorithm that drops or marks packets when they are dequeued.
pub(crate) trait DequeueAqm: Debug + Send + Sync {
    /// Enqueues a packet. `alone` says whether the queue and the transmitter were empty before.
    fn enqueue(&mut self, packet: Waiting, flow: u64, alone: bool);
    /// Returns the next packet to send. Adds to `out` the packets that are dropped before it.
    fn dequeue(&mut self, now: Time, out: &mut CongestionSignals<'_>) -> Option<Waiting>;
    /// Returns whether a full queue still accepts a packet. If so, [`DequeueAqm::shorten`] drops packets afterwards.
    fn drops_on_overflow(&self) -> bool {
        false
    }
    /// Drops packets until the queue is within its limit.
    fn shorten(&mut self, _: &mut CongestionSignals<'_>) {}
}

/// Collects the drops and marks that one call of [`DequeueAqm::dequeue`] or [`DequeueAqm::shorten`] causes.
pub(crate) struct CongestionSignals<'a> {
    counts: &'a mut Counts,
    fates: &'a mut VecDeque<(Token, Fate, Option<Time>)>,
    packets: usize,
    bytes: u64,
}

impl CongestionSignals<'_> {
    pub(crate) fn drop(&mut self, packet: &Waiting, why: Drop) {
        match why {
            Drop::Full => self.counts.full += 1,
            _ => self.counts.early += 1,
        }
        self.packets += 1;
        self.bytes += packet.size.get();
        self.fates.push_back((packet.token, Fate::Dropped(why), None));
    }

    /// Marks an ECN-capable packet with CE.
    pub(crate) fn mark(&mut self, packet: &mut Waiting) {
        // Do not count a mark that an earlier link has set.
        if packet.ecn != Ecn::Ce {
            packet.ecn = Ecn::Ce;
            self.counts.marked += 1;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Managed {
    departure: Box<dyn DequeueAqm>,
    /// Maximum length of the queue, in packets or bytes.
    limit: Limit,
    len: usize,
    bytes: u64,
    /// When the current transmission ends, and the size of the packet that is transmitted.
    on_air: (Time, Bytes),
    /// Bytes of the current transmission, including link-layer retransmissions.
    spent: Bytes,
    /// When the next packet is dequeued. [`Time::NEVER`] if the queue is empty.
    pub(crate) due: Time,
    /// The fates that were not collected yet. The time is when the packet's copy arrives, if the packet is duplicated.
    fates: VecDeque<(Token, Fate, Option<Time>)>,
    /// When the last fate was decided.
    decided: Time,
    free: Vec<u32>,
    tokens: u32,
}

impl Managed {
    pub(crate) fn new(departure: Box<dyn DequeueAqm>, limit: Limit) -> Self {
        Self {
            departure,
            limit,
            len: 0,
            bytes: 0,
            on_air: (Time::ZERO, Bytes::ZERO),
            spent: Bytes::ZERO,
            due: Time::NEVER,
            fates: VecDeque::new(),
            decided: Time::ZERO,
            free: Vec::new(),
            tokens: 0,
        }
    }

    /// Returns how many packets are queued at `now`, including the packet on the transmitter.
    pub(crate) fn length(&self, now: Time) -> usize {
        self.len + usize::from(self.on_air.0 > now)
    }

    pub(crate) fn next_fate_at(&self) -> Time {
        if self.fates.is_empty() { self.due } else { self.decided }
    }

    /// Returns the next fate. The time is when the packet's copy arrives, if there is a copy.
    pub(crate) fn next_fate(&mut self) -> Option<(Token, Fate, Option<Time>)> {
        let next = self.fates.pop_front()?;
        self.free.push(next.0.0);
        Some(next)
    }

    pub(crate) fn decide(&mut self, now: Time, token: Token, fate: Fate, copy: Option<Time>) {
        self.decided = now;
        self.fates.push_back((token, fate, copy));
    }

    /// Returns whether the queue would exceed its limit after `more` further packets with `size` bytes in total.
    fn exceeds(&self, now: Time, more: usize, size: Bytes) -> bool {
        // Count the packet on the transmitter until it has left.
        let on_air = if self.on_air.0 > now { self.on_air.1.get() } else { 0 };
        match self.limit {
            Limit::Packets(most) => self.length(now) + more > most as usize,
            Limit::Bytes(most) => self.bytes + on_air + size.get() > most.get(),
            Limit::Time(_) => false,
        }
    }

    /// Enqueues a packet and returns its number. Returns `None` if the packet does not fit.
    pub(crate) fn enqueue(&mut self, now: Time, packet: Offered, counts: &mut Counts) -> Option<Token> {
        let Offered { size, ecn, flow } = packet;
        // Refuse the packet if the queue is full. FQ-CoDel accepts it, and drops packets of its longest queue below.
        if !self.departure.drops_on_overflow() && self.exceeds(now, 1, size) {
            return None;
        }
        let token = Token(self.free.pop().unwrap_or_else(|| {
            self.tokens += 1;
            self.tokens - 1
        }));
        let alone = self.length(now) == 0;
        self.departure.enqueue(Waiting { token, since: now, size, ecn }, flow, alone);
        self.len += 1;
        self.bytes += size.get();
        if self.exceeds(now, 0, Bytes::ZERO) {
            self.run(now, counts, |departure, out| departure.shorten(out));
        }
        Some(token)
    }

    pub(crate) fn dequeue(&mut self, now: Time, counts: &mut Counts) -> Option<Waiting> {
        let head = self.run(now, counts, |departure, out| departure.dequeue(now, out))?;
        self.len -= 1;
        self.bytes -= head.size.get();
        Some(head)
    }

    /// Calls the AQM algorithm. Then reduces the queue's length by the packets that the algorithm dropped.
    fn run<T>(
        &mut self,
        now: Time,
        counts: &mut Counts,
        call: impl FnOnce(&mut dyn DequeueAqm, &mut CongestionSignals<'_>) -> T,
    ) -> T {
        let mut out = CongestionSignals { counts, fates: &mut self.fates, packets: 0, bytes: 0 };
        let answer = call(self.departure.as_mut(), &mut out);
        let CongestionSignals { packets, bytes, .. } = out;
        self.len -= packets;
        self.bytes -= bytes;
        self.decided = now;
        answer
    }

    pub(crate) fn sending(&mut self, until: Time, size: Bytes, spent: Bytes) {
        (self.on_air, self.spent) = ((until, size), spent);
    }

    /// Returns when the current transmission ends, and how many bytes it has.
    pub(crate) const fn on_air(&self) -> (Time, Bytes) {
        (self.on_air.0, self.spent)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
