//! Packets that a link holds until they leave, and what a discipline that decides then has to say.

use crate::{Counts, Drop, Ecn, Fate, Limit};
use std::collections::VecDeque;
use std::fmt::Debug;
use steadycast_units::{Bytes, Time};

/// A packet that a link holds: the number under which its driver keeps it. Numbers are used again, so that they are
/// fewer than the most packets that were ever held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) token: Token,
    pub(crate) since: Time,
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
}

/// A packet that is offered, and the flow that it is of.
#[derive(Clone, Copy)]
pub(crate) struct Offered {
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
    pub(crate) flow: u64,
}

/// Keeps packets, and decides about them as they leave.
pub(crate) trait Departure: Debug + Send + Sync {
    /// Takes in a packet that has just come. `alone`: nothing waits, and nothing is on the transmitter.
    fn enqueue(&mut self, packet: Waiting, flow: u64, alone: bool);
    /// The next packet that the transmitter, free at `now`, sends; those that it gives up instead go to `out`.
    fn dequeue(&mut self, now: Time, out: &mut GivenUp<'_>) -> Option<Waiting>;
    /// Whether it takes in a packet beyond the limit and gives up others by [`Departure::shorten`], instead of refusing
    /// the packet.
    fn sheds(&self) -> bool {
        false
    }
    /// Gives up packets, because there are more than the limit allows.
    fn shorten(&mut self, _: &mut GivenUp<'_>) {}
}

/// Where a discipline says what it gives up and what it marks.
pub(crate) struct GivenUp<'a> {
    counts: &'a mut Counts,
    told: &'a mut VecDeque<(Token, Fate, Option<Time>)>,
    packets: usize,
    bytes: u64,
}

impl GivenUp<'_> {
    /// Gives a packet up.
    pub(crate) fn drop(&mut self, packet: &Waiting, why: Drop) {
        match why {
            Drop::Full => self.counts.full += 1,
            _ => self.counts.early += 1,
        }
        self.packets += 1;
        self.bytes += packet.size.get();
        self.told.push_back((packet.token, Fate::Dropped(why), None));
    }

    /// Marks a packet that can be marked.
    pub(crate) fn mark(&mut self, packet: &mut Waiting) {
        if packet.ecn != Ecn::Ce {
            packet.ecn = Ecn::Ce;
            self.counts.marked += 1;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Managed {
    departure: Box<dyn Departure>,
    /// How much the queue holds, in packets or in bytes.
    limit: Limit,
    len: usize,
    bytes: u64,
    /// What is on the transmitter, and until when.
    on_air: (Time, Bytes),
    /// What the transmitter spends on it: more than its size when it is repeated.
    spent: Bytes,
    /// When the next packet leaves; NEVER: nothing waits.
    pub(crate) due: Time,
    /// Fates that the driver has not been told.
    told: VecDeque<(Token, Fate, Option<Time>)>,
    /// When the last of them was decided.
    decided: Time,
    free: Vec<u32>,
    tokens: u32,
}

impl Managed {
    /// `limit` is in packets or in bytes.
    pub(crate) fn new(departure: Box<dyn Departure>, limit: Limit) -> Self {
        Self {
            departure,
            limit,
            len: 0,
            bytes: 0,
            on_air: (Time::ZERO, Bytes::ZERO),
            spent: Bytes::ZERO,
            due: Time::NEVER,
            told: VecDeque::new(),
            decided: Time::ZERO,
            free: Vec::new(),
            tokens: 0,
        }
    }

    /// Packets at `now`, the one on the transmitter included.
    pub(crate) fn length(&self, now: Time) -> usize {
        self.len + usize::from(self.on_air.0 > now)
    }

    /// When the driver has to ask.
    pub(crate) fn asks(&self) -> Time {
        if self.told.is_empty() { self.due } else { self.decided }
    }

    /// The fate of a packet that has one, and when a copy of it arrives.
    pub(crate) fn next_fate(&mut self) -> Option<(Token, Fate, Option<Time>)> {
        let told = self.told.pop_front()?;
        self.free.push(told.0.0);
        Some(told)
    }

    pub(crate) fn decide(&mut self, now: Time, token: Token, fate: Fate, copy: Option<Time>) {
        self.decided = now;
        self.told.push_back((token, fate, copy));
    }

    /// Whether so many packets more, of this size together, would be too much.
    fn exceeds(&self, now: Time, more: usize, size: Bytes) -> bool {
        let on_air = if self.on_air.0 > now { self.on_air.1.get() } else { 0 };
        match self.limit {
            Limit::Packets(most) => self.length(now) + more > most as usize,
            Limit::Bytes(most) => self.bytes + on_air + size.get() > most.get(),
            Limit::Time(_) => false,
        }
    }

    /// Takes a packet in; `None`: it does not fit.
    pub(crate) fn take_in(&mut self, now: Time, packet: Offered, counts: &mut Counts) -> Option<Token> {
        let Offered { size, ecn, flow } = packet;
        if !self.departure.sheds() && self.exceeds(now, 1, size) {
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
            self.ask(now, counts, |departure, out| departure.shorten(out));
        }
        Some(token)
    }

    /// The transmitter is free at `now`: what it sends next.
    pub(crate) fn leave(&mut self, now: Time, counts: &mut Counts) -> Option<Waiting> {
        let head = self.ask(now, counts, |departure, out| departure.dequeue(now, out))?;
        self.len -= 1;
        self.bytes -= head.size.get();
        Some(head)
    }

    /// Asks the discipline, and takes note of what it gives up.
    fn ask<T>(
        &mut self,
        now: Time,
        counts: &mut Counts,
        asked: impl FnOnce(&mut dyn Departure, &mut GivenUp<'_>) -> T,
    ) -> T {
        let mut out = GivenUp { counts, told: &mut self.told, packets: 0, bytes: 0 };
        let answer = asked(self.departure.as_mut(), &mut out);
        let GivenUp { packets, bytes, .. } = out;
        self.len -= packets;
        self.bytes -= bytes;
        self.decided = now;
        answer
    }

    /// A packet is on the transmitter.
    pub(crate) fn sending(&mut self, until: Time, size: Bytes, spent: Bytes) {
        (self.on_air, self.spent) = ((until, size), spent);
    }

    /// Until when the transmitter is busy, and with how much.
    pub(crate) const fn on_air(&self) -> (Time, Bytes) {
        (self.on_air.0, self.spent)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
