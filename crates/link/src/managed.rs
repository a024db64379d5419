//! Queues that decide when a packet leaves: CoDel (RFC 8289) and FQ-CoDel (RFC 8290).
//!
//! CoDel alone is FQ-CoDel with one flow, but for what happens on overflow.

use crate::{CoDel, Counts, Drop, Ecn, Fate, Limit};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// A packet that a link holds: the number under which its driver keeps it. Numbers are used again, so that they are fewer than the
/// most packets that were ever held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) token: Token,
    pub(crate) since: Time,
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
}

/// The largest batch that is dropped at once when the limit is exceeded: Linux's, which RFC 8290 describes.
const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct Managed {
    codel: CoDel,
    /// How much fits, in packets or in bytes.
    limit: Limit,
    /// The number of queues and the quantum of FQ-CoDel.
    fair: Option<(u32, Bytes)>,
    mtu: Bytes,
    /// What flows are hashed with.
    salt: u64,
    queues: BTreeMap<u32, Flow>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
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

#[derive(Debug, Default)]
struct Flow {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// Whether it is in one of the lists.
    active: bool,
    credit: i64,
    control: Control,
}

/// CoDel's state, with the names of RFC 8289, section 5.
#[derive(Debug, Default)]
struct Control {
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Managed {
    /// `fair`: the number of queues and the quantum of FQ-CoDel.
    pub(crate) fn new(
        codel: CoDel,
        fair: Option<(u32, Bytes)>,
        rate: Option<Rate>,
        mtu: Bytes,
        mut chance: Chance,
    ) -> Self {
        Self {
            codel,
            limit: codel.limit.on(rate, mtu),
            fair,
            mtu,
            salt: chance.bits64(),
            queues: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
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
    pub(crate) fn tell(&mut self) -> Option<(Token, Fate, Option<Time>)> {
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
    pub(crate) fn take_in(
        &mut self,
        now: Time,
        (size, ecn): (Bytes, Ecn),
        flow: u64,
        counts: &mut Counts,
    ) -> Option<Token> {
        if self.length(now) == 0 {
            // Since then the transmitter has asked all queues in vain.
            for n in self.new.drain(..).chain(self.old.drain(..)) {
                if let Some(queue) = self.queues.get_mut(&n) {
                    queue.active = false;
                }
            }
        }
        if self.fair.is_none() && self.exceeds(now, 1, size) {
            return None;
        }
        let token = Token(self.free.pop().unwrap_or_else(|| {
            self.tokens += 1;
            self.tokens - 1
        }));
        let (flows, quantum) = self.fair.unwrap_or((1, self.mtu));
        let n = (mixed(flow ^ self.salt) % u64::from(flows.max(1))) as u32;
        let queue = self.queues.entry(n).or_default();
        queue.waiting.push_back(Waiting { token, since: now, size, ecn });
        queue.bytes += size.get();
        self.bytes += size.get();
        self.len += 1;
        if !queue.active {
            (queue.active, queue.credit) = (true, quantum.get() as i64);
            self.new.push_back(n);
        }
        if self.fair.is_some() && self.exceeds(now, 0, Bytes::ZERO) {
            self.shorten(now, counts);
        }
        Some(token)
    }

    /// Drops half of the longest queue, from its head.
    fn shorten(&mut self, now: Time, counts: &mut Counts) {
        let Some(fat) = self.queues.values_mut().max_by_key(|queue| queue.bytes) else { return };
        let goal = fat.bytes / 2;
        for _ in 0..BATCH {
            let Some(head) = fat.waiting.pop_front() else { break };
            fat.bytes -= head.size.get();
            self.bytes -= head.size.get();
            self.len -= 1;
            counts.full += 1;
            self.told.push_back((head.token, Fate::Dropped(Drop::Full), None));
            if fat.bytes <= goal {
                break;
            }
        }
        self.decided = now;
    }

    /// The transmitter is free at `now`: what it sends next.
    pub(crate) fn leave(&mut self, now: Time, counts: &mut Counts) -> Option<Waiting> {
        let quantum = self.fair.map_or(self.mtu, |(_, quantum)| quantum).get().max(1) as i64;
        loop {
            let fresh = !self.new.is_empty();
            let n = *self.new.front().or(self.old.front())?;
            let queue = self.queues.entry(n).or_default();
            if queue.credit <= 0 {
                queue.credit += quantum;
                self.next(fresh);
                self.old.push_back(n);
                continue;
            }
            if let Some(head) = self.dequeue(n, now, counts) {
                if let Some(queue) = self.queues.get_mut(&n) {
                    queue.credit -= head.size.get() as i64;
                }
                return Some(head);
            }
            self.next(fresh);
            // A new flow that has nothing more waits behind the old ones: else it would be new again with its next packet.
            if fresh && !self.old.is_empty() {
                self.old.push_back(n);
            } else if let Some(queue) = self.queues.get_mut(&n) {
                queue.active = false;
            }
        }
    }

    fn next(&mut self, fresh: bool) {
        if fresh {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }

    /// The next packet of a queue (RFC 8289, section 5.5), what comes before it dropped.
    fn dequeue(&mut self, n: u32, now: Time, counts: &mut Counts) -> Option<Waiting> {
        let Self { queues, told, codel, mtu, .. } = self;
        let queue = queues.get_mut(&n)?;
        let (mut packets, mut bytes) = (0, 0);
        let mut lost = |packet: Waiting| {
            counts.early += 1;
            told.push_back((packet.token, Fate::Dropped(Drop::Stale), None));
        };
        // Whether a sign is wanted, and this packet can carry it.
        let marks = |packet: &Waiting| codel.ecn && packet.ecn.is_capable();
        let mut marked = false;
        let mut pop = |queue: &mut Flow| {
            let head = queue.pop(now, codel, *mtu);
            if let Some((head, _)) = &head {
                (packets, bytes) = (packets + 1, bytes + head.size.get());
            }
            head
        };
        let mut head = pop(queue);
        let over = |head: &Option<(Waiting, bool)>| head.as_ref().is_some_and(|(_, over)| *over);
        if queue.control.dropping {
            queue.control.dropping = over(&head);
            while queue.control.dropping && now >= queue.control.drop_next {
                let Some((packet, _)) = head else { break };
                queue.control.count += 1;
                if marks(&packet) {
                    marked = true;
                } else {
                    lost(packet);
                    head = pop(queue);
                    queue.control.dropping = over(&head);
                }
                if queue.control.dropping {
                    queue.control.drop_next = law(queue.control.drop_next, codel.interval, queue.control.count);
                }
                if marked {
                    break;
                }
            }
        } else if let Some((packet, true)) = head {
            if marks(&packet) {
                marked = true;
            } else {
                lost(packet);
                head = pop(queue);
            }
            let control = &mut queue.control;
            control.dropping = true;
            // It begins with the rate that was right a moment ago, if that is a moment ago.
            let more = control.count - control.last_count;
            let lately = now.since(control.drop_next) < codel.interval * 16;
            control.count = if more > 1 && lately { more } else { 1 };
            control.drop_next = law(now, codel.interval, control.count);
            control.last_count = control.count;
        }
        self.len -= packets;
        self.bytes -= bytes;
        self.decided = now;
        let (mut head, _) = head?;
        if marked && head.ecn != Ecn::Ce {
            head.ecn = Ecn::Ce;
            counts.marked += 1;
        }
        Some(head)
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

impl Flow {
    /// Its head, and whether the wait has been too long for an interval.
    fn pop(&mut self, now: Time, codel: &CoDel, mtu: Bytes) -> Option<(Waiting, bool)> {
        let Some(head) = self.waiting.pop_front() else {
            self.control.first_above = None;
            return None;
        };
        self.bytes -= head.size.get();
        if now.since(head.since) < codel.target || self.bytes <= mtu.get() {
            self.control.first_above = None;
            return Some((head, false));
        }
        let above = *self.control.first_above.get_or_insert(now + codel.interval);
        Some((head, now >= above))
    }
}

/// CoDel's control law: the next drop comes an interval over the square root of the drops later.
fn law(from: Time, interval: Span, count: u32) -> Time {
    from + interval.scale(1.0 / f64::from(count.max(1)).sqrt())
}

/// Mixes a number's bits (the finalizer of SplitMix64: Steele, Lea and Flood 2014).
const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
