//! CoDel (RFC 8289) and FQ-CoDel (RFC 8290).

use crate::managed::{CongestionSignals, DequeueAqm, Managed, Waiting};
use crate::queue::Discipline;
use crate::{Drop, Ecn, Limit, LinkProperties};
use std::collections::{BTreeMap, VecDeque};
use steadycast_settings::tree::Item;
use steadycast_settings::{Findings, Kind, OrNone, Within, settings};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

settings! {
    /// Controlled delay (RFC 8289, with the constants of its sections 4.2 and 4.3).
    #[derive(Copy)]
    CoDel checked by target_below_interval {
        /// The maximum length of the queue, in packets, bytes or time.
        limit: Limit = Limit::Packets(1000),
        /// The queueing delay up to which no packet is dropped.
        target: Span where (|span: &Span| takes_time(span, "5ms")) = Span::millis(5),
        /// The time for which the queueing delay must exceed the target before the first packet is dropped.
        interval: Span where (|span: &Span| takes_time(span, "100ms")) = Span::millis(100),
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool = false,
        /// The time in the queue after which each ECT(1) packet is marked, whatever `ecn` is (Linux's `ce_threshold`).
        /// L4S senders need about "1ms".
        ce_threshold: OrNone<Span> = OrNone::None,
    }
    /// CoDel for each of many queues, which take turns (RFC 8290, with the constants of its section 5.2). The limit is
    /// for all queues together. If it is exceeded, packets of the longest queue are dropped.
    #[derive(Copy)]
    FqCoDel {
        /// The CoDel settings of each queue.
        [flat] codel: CoDel = CoDel { limit: Limit::Packets(10_240), ..CoDel::RFC },
        /// The number of queues into which flows are hashed.
        flows: u32 where (Within { least: 1, most: 65_536, remedy: "from 1 to 65536" }) = 1024,
        /// The number of bytes that each queue may send per round.
        quantum: Bytes where (QUANTUM) = Bytes::new(1514),
    }
}

const QUANTUM: Within<Bytes> =
    Within { least: Bytes::new(64), most: Bytes::new(1_048_576), remedy: "from \"64B\" to \"1MiB\"" };

fn takes_time(span: &Span, default: &str) -> Option<(String, String)> {
    span.is_zero().then(|| {
        ("0 is not a possible time".into(), format!("write a time above \"0ms\", or leave it out for \"{default}\""))
    })
}

fn target_below_interval(codel: &CoDel, item: &Item, out: &mut Findings) {
    let CoDel { target, interval, .. } = codel;
    if target >= interval {
        let at = item.get("target").or(item.get("interval")).map_or(&item.at, |said| &said.at);
        let what = format!("the target of {target} is not below the interval of {interval}");
        out.problem(at, what, "the interval is the longest usual round-trip time, the target a twentieth of that");
    }
}

impl CoDel {
    /// The constants of RFC 8289.
    pub const RFC: Self = Self {
        limit: Limit::Packets(1000),
        target: Span::millis(5),
        interval: Span::millis(100),
        ecn: false,
        ce_threshold: OrNone::None,
    };
}

impl Kind<LinkProperties> for CoDel {}
impl Kind<LinkProperties> for FqCoDel {}

impl Discipline for CoDel {
    fn limit(&self) -> Limit {
        self.limit
    }
    fn on_departure(&self, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
        Some(State::managed(*self, None, rate, mtu, chance))
    }
}

impl Discipline for FqCoDel {
    fn limit(&self) -> Limit {
        self.codel.limit
    }
    fn on_departure(&self, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
        Some(State::managed(self.codel, Some((self.flows, self.quantum)), rate, mtu, chance))
    }
}

/// Maximum number of drops after an overflow (Linux; RFC 8290, section 4.1).
const MAX_DROP_BATCH: usize = 64;

/// The state of FQ-CoDel's queues, or of the single queue of CoDel.
#[derive(Debug)]
struct State {
    codel: CoDel,
    /// Number of queues and quantum of FQ-CoDel. `None` for CoDel.
    fair: Option<(u32, Bytes)>,
    mtu: Bytes,
    salt: u64,
    queues: BTreeMap<u32, Flow>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

#[derive(Debug, Default)]
struct Flow {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// Whether the queue is in the list of new or old queues.
    active: bool,
    credit: i64,
    control: ControlState,
}

/// State of CoDel's drops. The names are from RFC 8289, section 5.
#[derive(Debug, Default)]
struct ControlState {
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl State {
    fn managed(
        codel: CoDel,
        fair: Option<(u32, Bytes)>,
        rate: Option<Rate>,
        mtu: Bytes,
        mut chance: Chance,
    ) -> Managed {
        let (salt, queues) = (chance.bits64(), BTreeMap::new());
        let state = Self { codel, fair, mtu, salt, queues, new: VecDeque::new(), old: VecDeque::new() };
        Managed::new(Box::new(state), codel.limit.on(rate, mtu))
    }

    fn pop_queue(&mut self, fresh: bool) {
        if fresh {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }

    /// Dequeues a packet from queue `n`. Drops the packets before it that CoDel decides to drop (RFC 8289, section
    /// 5.5).
    fn dequeue_from(&mut self, n: u32, now: Time, out: &mut CongestionSignals<'_>) -> Option<Waiting> {
        let Self { queues, codel, mtu, .. } = self;
        let queue = queues.get_mut(&n)?;
        // Mark an ECN-capable packet instead of dropping it, if the settings say so.
        let marks = |packet: &Waiting| codel.ecn && packet.ecn.is_capable();
        let mut marked = false;
        let mut head = queue.pop(now, codel, *mtu);
        let over = |head: &Option<(Waiting, bool)>| head.as_ref().is_some_and(|(_, over)| *over);
        if queue.control.dropping {
            queue.control.dropping = over(&head);
            while queue.control.dropping && now >= queue.control.drop_next {
                let Some((packet, _)) = head else { break };
                queue.control.count += 1;
                if marks(&packet) {
                    marked = true;
                } else {
                    out.drop(&packet, Drop::Stale);
                    head = queue.pop(now, codel, *mtu);
                    queue.control.dropping = over(&head);
                }
                if queue.control.dropping {
                    queue.control.drop_next = control_law(queue.control.drop_next, codel.interval, queue.control.count);
                }
                if marked {
                    break;
                }
            }
        } else if let Some((packet, true)) = head {
            if marks(&packet) {
                marked = true;
            } else {
                out.drop(&packet, Drop::Stale);
                head = queue.pop(now, codel, *mtu);
            }
            let control = &mut queue.control;
            control.dropping = true;
            // `more` is the number of drops and marks in the last dropping phase, without the first one. Continue with
            // this count if it exceeds 1 and the next drop of that phase was due less than 16 intervals ago. Otherwise
            // start with 1 (RFC 8289, section 5.5).
            let more = control.count - control.last_count;
            let lately = now.since(control.drop_next) < codel.interval * 16;
            control.count = if more > 1 && lately { more } else { 1 };
            control.drop_next = control_law(now, codel.interval, control.count);
            control.last_count = control.count;
        }
        let (mut head, _) = head?;
        let late = matches!(codel.ce_threshold, OrNone::Some(most) if now.since(head.since) > most);
        if marked || late && head.ecn == Ecn::Ect1 {
            out.mark(&mut head);
        }
        Some(head)
    }
}

impl DequeueAqm for State {
    fn enqueue(&mut self, packet: Waiting, flow: u64, alone: bool) {
        if alone {
            // The link was idle, so remove all queues from the lists. An idle transmitter would have polled all queues
            // and removed the empty ones (RFC 8290, section 4.2).
            for n in self.new.drain(..).chain(self.old.drain(..)) {
                if let Some(queue) = self.queues.get_mut(&n) {
                    queue.active = false;
                }
            }
        }
        let (flows, quantum) = self.fair.unwrap_or((1, self.mtu));
        // Mix in the salt, so that each seed assigns flows to queues differently.
        let n = (mix_bits(flow ^ self.salt) % u64::from(flows.max(1))) as u32;
        let queue = self.queues.entry(n).or_default();
        queue.bytes += packet.size.get();
        queue.waiting.push_back(packet);
        if !queue.active {
            (queue.active, queue.credit) = (true, quantum.get() as i64);
            self.new.push_back(n);
        }
    }

    fn dequeue(&mut self, now: Time, out: &mut CongestionSignals<'_>) -> Option<Waiting> {
        let quantum = self.fair.map_or(self.mtu, |(_, quantum)| quantum).get().max(1) as i64;
        loop {
            let fresh = !self.new.is_empty();
            let n = *self.new.front().or(self.old.front())?;
            let queue = self.queues.entry(n).or_default();
            // This is deficit round robin. A queue without credit gets a quantum and moves to the end of the list of
            // old queues.
            if queue.credit <= 0 {
                queue.credit += quantum;
                self.pop_queue(fresh);
                self.old.push_back(n);
                continue;
            }
            if let Some(head) = self.dequeue_from(n, now, out) {
                if let Some(queue) = self.queues.get_mut(&n) {
                    // The credit may fall below zero by less than a packet. The next quantum makes up for this.
                    queue.credit -= head.size.get() as i64;
                }
                return Some(head);
            }
            self.pop_queue(fresh);
            // Move the queue to the old queues. A flow that sends one packet at a time would otherwise always be new
            // (RFC 8290, section 4.2).
            if fresh && !self.old.is_empty() {
                self.old.push_back(n);
            } else if let Some(queue) = self.queues.get_mut(&n) {
                queue.active = false;
            }
        }
    }

    fn drops_on_overflow(&self) -> bool {
        self.fair.is_some()
    }

    /// Drops packets from the longest queue until half of its bytes are gone. Drops at most [`MAX_DROP_BATCH`] packets.
    fn shorten(&mut self, out: &mut CongestionSignals<'_>) {
        let Some(longest) = self.queues.values_mut().max_by_key(|queue| queue.bytes) else { return };
        let goal = longest.bytes / 2;
        for _ in 0..MAX_DROP_BATCH {
            let Some(head) = longest.waiting.pop_front() else { break };
            longest.bytes -= head.size.get();
            out.drop(&head, Drop::Full);
            if longest.bytes <= goal {
                break;
            }
        }
    }
}

impl Flow {
    /// Removes the head of the queue and returns it. The flag is true if the sojourn time has been above the target for
    /// an interval.
    fn pop(&mut self, now: Time, codel: &CoDel, mtu: Bytes) -> Option<(Waiting, bool)> {
        let Some(head) = self.waiting.pop_front() else {
            self.control.first_above = None;
            return None;
        };
        self.bytes -= head.size.get();
        // Do not drop while at most one MTU is queued. The queue could become empty, and the link idle.
        if now.since(head.since) < codel.target || self.bytes <= mtu.get() {
            self.control.first_above = None;
            return Some((head, false));
        }
        let above = *self.control.first_above.get_or_insert(now + codel.interval);
        Some((head, now >= above))
    }
}

/// Returns the time of the next drop, which is `from` + interval / √count.
fn control_law(from: Time, interval: Span, count: u32) -> Time {
    from + interval.scale(1.0 / f64::from(count.max(1)).sqrt())
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
const fn mix_bits(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
