//! One direction of a link: a queue, a transmitter, loss, and a propagation delay.
//!
//! The fate of a packet is decided when the packet is offered. This is possible because every change of the link is
//! known, and because a FIFO queue does not depend on later packets. Each packet costs one event in the simulator and
//! one timer in real time.
//!
//! Queues that drop packets at dequeue (CoDel, FQ-CoDel, DualPI2) return [`Fate::Held`] instead. The caller then
//! collects the fates with [`Link::take`], after each offer and at [`Link::due`].
//!
//! ```text
//! offer ─▶ mtu ─▶ policer ─▶ queue (drop-tail | RED | PIE | CoDel | FQ-CoDel | DualPI2) ─▶ shaper ─▶ transmitter
//! (rate | steps | trace) ─▶ loss ─▶ link-layer retransmission ─▶ delay + jitter, late or twice ─▶ arrival
//! ```

mod codel;
mod delay;
mod disorder;
mod dualpi2;
mod limit;
mod loss;
mod managed;
mod pie;
mod policer;
mod queue;
mod red;
mod reorder_counter;
mod service;
mod shaper;

pub use codel::{CoDel, FqCoDel};
pub use delay::{Jitter, JitterDist};
pub use disorder::Reorder;
pub use dualpi2::DualPi2;
pub use limit::Limit;
pub use loss::{BernoulliLoss, GilbertLoss, ListLoss, Loss, PacketNumbers, RunLoss, probability};
pub use managed::Token;
pub use pie::Pie;
pub use policer::Policer;
pub use queue::{DropTail, LinkProperties, Queue};
pub use red::{Red, RedPreset};
pub use service::{Opportunities, Service};
pub use shaper::Shaper;

use delay::Propagation;
use disorder::Disorder;
use loss::LossState;
use managed::{Managed, Offered};
use queue::QueueState;
use reorder_counter::ReorderCounter;
use service::Transmitter;
use steadycast_settings::{Within, settings};
use steadycast_units::{Bytes, Rate, Seed, Span, Spread, Time, TokenBucket};
pub use steadycast_units::{Ecn, Steps};

settings! {
    /// Link-layer retransmission: a frame that the radio loses is sent again, and the packets behind it wait (Hong and
    /// Park 2011).
    #[derive(Copy, Eq)]
    Arq {
        /// The maximum number of transmissions of a packet, including the first one; after these the packet is lost.
        tries: u32 where (TRIES) => "write for example tries = 7",
        /// The delay of each retransmission, in addition to the packet's transmission time.
        per_try: Span => "write for example per_try = \"1ms\"",
    }
}

const TRIES: Within<u32> = Within { least: 1, most: 1000, remedy: "from 1 (no retransmission) to 1000" };

/// The configuration of a link. [`Steps`] contain the changes of a value during the run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The transmission rate.
    pub service: Service,
    /// The propagation delay.
    pub delay: Steps<Span>,
    /// Random variation of the delay.
    pub jitter: Steps<Option<Jitter>>,
    /// Random loss of the medium.
    pub loss: Steps<Loss>,
    /// Link-layer retransmission, if the link has it.
    pub arq: Option<Arq>,
    /// Random late arrival of packets.
    pub reorder: Steps<Reorder>,
    /// Probability that a packet arrives twice, from 0 to 1.
    pub duplicate: Steps<f64>,
    /// The policer before the queue.
    pub policer: Option<Policer>,
    /// The shaper behind the queue. Its burst is at least [`Config::mtu`].
    pub shaper: Option<Shaper>,
    /// Whether the link clears the ECN field of packets that enter it.
    pub bleach: bool,
    /// The queue and its discipline.
    pub queue: Queue,
    /// Size of the largest packet that the link accepts. Larger packets are dropped.
    pub mtu: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            service: Service::Unlimited,
            delay: Steps::constant(Span::ZERO),
            jitter: Steps::constant(None),
            loss: Steps::constant(Loss::None),
            arq: None,
            reorder: Steps::constant(Reorder::default()),
            duplicate: Steps::constant(0.0),
            policer: None,
            shaper: None,
            bleach: false,
            queue: Queue::drop_tail(Limit::Packets(50)),
            mtu: Bytes::new(1500),
        }
    }
}

impl Config {
    /// Returns the sustained rate. It is [`Service::nominal`], limited by the shaper's rate. Returns `None` if it is
    /// unlimited.
    fn sustained(&self) -> Option<Rate> {
        self.service.nominal().into_iter().chain(self.shaper.map(|shaper| shaper.rate)).min()
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The queue was full.
    Full,
    /// RED, PIE or DualPI2 dropped the packet before the queue was full.
    Early,
    /// CoDel dropped the packet, because the sojourn time had been above the target for an interval.
    Stale,
    /// The policer's bucket had too few tokens.
    Policed,
    /// The medium lost the packet, after all retransmissions.
    Lost,
    /// The packet was larger than the MTU.
    TooLarge,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives. If it is duplicated, [`Link::copy`] returns when the copy arrives. Arrivals are in order
    /// unless the link reorders.
    Arrives {
        /// When the packet arrives.
        at: Time,
        /// The ECN field at arrival.
        ecn: Ecn,
    },
    /// The packet is dropped.
    Dropped(Drop),
    /// The packet waits in the queue. [`Link::take`] returns its fate later.
    Held(Token),
}

/// Counters since the start of the link.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of packets that were offered.
    pub offered: u64,
    /// Bytes that the transmitter has sent. Lost packets and link-layer retransmissions are included.
    pub sent: Bytes,
    /// Number of packets that were dropped because the queue was full.
    pub full: u64,
    /// Number of packets that the queue discipline dropped although the queue was not full.
    pub early: u64,
    /// Number of packets that the queue discipline marked CE.
    pub marked: u64,
    /// Number of packets that the policer dropped.
    pub policed: u64,
    /// Number of packets that the medium lost.
    pub lost: u64,
    /// Number of packets that were dropped because they were larger than the MTU.
    pub too_large: u64,
    /// Number of packets that arrived after a later packet (RFC 4737). Copies are not counted.
    pub reordered: u64,
    /// Number of packets that arrived twice.
    pub duplicated: u64,
    /// Time from the offer to the start of the transmission, per packet.
    pub wait: Spread,
}

impl Counts {
    /// Returns the number of packets that did not arrive.
    pub const fn dropped(&self) -> u64 {
        self.full + self.early + self.policed + self.lost + self.too_large
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    idle: Idle,
    state: Box<LinkState>,
}

/// The state that decides the fate of a packet on an idle plain link. It fits into one cache line, because a run may
/// have ten thousand links.
#[derive(Debug)]
struct Idle {
    /// When the transmitter becomes free. It is maintained only on plain links.
    free: Time,
    /// Size of the last packet. On a link that is not plain, it is [`NO_SIZE`].
    size: Bytes,
    /// Transmission time of a packet of this size.
    span: Span,
    /// Latency of a packet of this size if the link is idle.
    latency: Span,
    /// Number of packets of this size that found the link idle and are not in [`LinkState::counts`] yet.
    passed: u64,
    plain: Plain,
}

/// Whether a link is plain. A plain link has a constant rate and delay, a drop-tail queue and nothing else. Its only
/// state is the time when its transmitter becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Yes { delay: Span },
    No,
}

#[derive(Debug)]
struct LinkState {
    mtu: Bytes,
    policer: Option<Box<TokenBucket>>,
    bleach: bool,
    retransmitter: Option<Box<Retransmitter>>,
    queue: QueueState,
    /// From this time on, all queued packets have the size [`Idle::size`], and `queue` is not maintained.
    /// [`Time::NEVER`] if the link is not plain.
    uniform_from: Time,
    /// The previous [`Idle::size`] and its transmission time. They are cached because many flows alternate between two
    /// sizes.
    before: (Bytes, Span),
    /// Queue of a discipline that drops or marks packets when they are dequeued. If it is set, it is used instead of
    /// `queue`.
    managed: Option<Box<Managed>>,
    transmitter: Transmitter,
    /// Random loss. `None` if no packet is ever lost.
    loss: Option<Box<LossState>>,
    propagation: Propagation,
    disorder: Option<Box<Disorder>>,
    reorder_counter: ReorderCounter,
    /// When the copy of the last packet arrives, if the packet was duplicated.
    copy: Option<Time>,
    counts: Counts,
    waited: Span,
}

/// Link-layer retransmission, and what it costs.
#[derive(Debug)]
struct Retransmitter {
    arq: Arq,
    /// Bytes of the packets' first transmissions.
    first: Bytes,
    /// Bytes of retransmissions, and the bytes that the link could have carried while it waited to retransmit.
    spent: Bytes,
}

impl Retransmitter {
    const fn new(arq: Arq) -> Self {
        Self { arq, first: Bytes::ZERO, spent: Bytes::ZERO }
    }

    /// Returns the share of the capacity that was left for first transmissions.
    fn efficiency(&self) -> f64 {
        let all = (self.first + self.spent).as_f64();
        if all > 0.0 { self.first.as_f64() / all } else { 1.0 }
    }
}

const NO_SIZE: Bytes = Bytes::new(u64::MAX);

impl Link {
    /// Creates a link. Its random numbers come from the seed's parts `link.<name>.queue`, `.loss`, `.jitter` and
    /// `.disorder`.
    pub fn new(config: &Config, name: &str, seed: Seed) -> Self {
        let part = |what: &str| seed.part(&format!("link.{name}.{what}"));
        let rate = config.sustained();
        let queue = QueueState::new(&config.queue, rate, config.mtu, part("queue"));
        // Give `queue` and `managed` the same part of the seed, because only one of them draws random numbers.
        let managed = queue::managed(&config.queue, rate, config.mtu, part("queue")).map(Box::new);
        // Exclude a queue that has no room for a packet of the MTU's size. The fast path does not look at the limit.
        let has_plain_queue = queue.is_plain() && managed.is_none() && queue.limit.fits(0, 0, config.mtu);
        let has_constant_rate = match &config.service {
            Service::Unlimited => true,
            Service::Rate(steps) => steps.as_constant().is_some_and(|rate| *rate > Rate::ZERO),
            Service::Table { .. } | Service::Trace(_) => false,
        };
        let disorder = Disorder::new(&config.reorder, &config.duplicate, part("disorder"));
        let lossless = config.loss.as_constant() == Some(&Loss::None) && config.arq.is_none();
        let undisturbed =
            lossless && config.jitter.as_constant() == Some(&None) && disorder.is_none() && config.policer.is_none();
        let undisturbed = undisturbed && !config.bleach && config.shaper.is_none();
        let plain = match config.delay.as_constant() {
            Some(delay) if has_plain_queue && has_constant_rate && undisturbed => Plain::Yes { delay: *delay },
            _ => Plain::No,
        };
        let idle = Idle { free: Time::ZERO, size: NO_SIZE, span: Span::ZERO, latency: Span::ZERO, passed: 0, plain };
        let state = LinkState {
            mtu: config.mtu,
            policer: config.policer.map(|policer| Box::new(TokenBucket::new(policer.rate, policer.burst))),
            bleach: config.bleach,
            retransmitter: config.arq.map(|arq| Box::new(Retransmitter::new(arq))),
            queue,
            uniform_from: if plain == Plain::No { Time::NEVER } else { Time::ZERO },
            before: (NO_SIZE, Span::ZERO),
            managed,
            transmitter: Transmitter::new(&config.service, config.shaper, config.mtu),
            loss: LossState::new(&config.loss, part("loss")).map(Box::new),
            propagation: Propagation::new(&config.delay, &config.jitter, part("jitter")),
            disorder: disorder.map(Box::new),
            reorder_counter: ReorderCounter::default(),
            copy: None,
            counts: Counts::default(),
            waited: Span::ZERO,
        };
        Self { idle, state: Box::new(state) }
    }

    /// Offers a packet of `size` at the time `now`, which must not decrease from call to call.
    ///
    /// ```
    /// use steadycast_link::{Config, Drop, Ecn, Fate, Limit, Link, Queue, Service, Steps};
    /// use steadycast_units::{Bytes, Rate, Seed, Span, Time};
    ///
    /// let config = Config {
    ///     service: Service::Rate(Steps::constant(Rate::mbps(1))),
    ///     delay: Steps::constant(Span::millis(10)),
    ///     queue: Queue::drop_tail(Limit::Packets(2)),
    ///     ..Config::default()
    /// };
    /// let mut link = Link::new(&config, "forth", Seed(1));
    /// let mut offer = || link.offer(Time::ZERO, Bytes::new(1000), Ecn::NotEct);
    /// // A packet takes 8 ms to transmit. The second waits for the first, and the third finds the queue full.
    /// let arrives = |ms| Fate::Arrives { at: Time::ZERO + Span::millis(ms), ecn: Ecn::NotEct };
    /// assert_eq!(offer(), arrives(18));
    /// assert_eq!(offer(), arrives(26));
    /// assert_eq!(offer(), Fate::Dropped(Drop::Full));
    /// ```
    ///
    /// A queue that drops or marks packets when they are dequeued holds them until then:
    ///
    /// ```
    /// use steadycast_link::{CoDel, Config, Ecn, Fate, Limit, Link, Queue, Service, Steps};
    /// use steadycast_units::{Bytes, Rate, Seed, Span, Time};
    ///
    /// let service = Service::Rate(Steps::constant(Rate::mbps(1)));
    /// let queue = Queue::CoDel(CoDel { limit: Limit::Packets(100), ..CoDel::RFC });
    /// let config = Config { service, queue, ..Config::default() };
    /// let mut link = Link::new(&config, "forth", Seed(1));
    /// let offered: Vec<_> = (0..2).map(|_| link.offer(Time::ZERO, Bytes::new(1000), Ecn::NotEct)).collect();
    /// let mut fates = Vec::new();
    /// let mut now = Time::ZERO;
    /// loop {
    ///     while let Some((token, fate)) = link.take(now) {
    ///         fates.push((Fate::Held(token), fate));
    ///     }
    ///     let Some(due) = link.due() else { break };
    ///     now = due;
    /// }
    /// let arrives = |ms| Fate::Arrives { at: Time::ZERO + Span::millis(ms), ecn: Ecn::NotEct };
    /// assert_eq!(fates, [(offered[0], arrives(8)), (offered[1], arrives(16))]);
    /// ```
    #[inline]
    pub fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        match self.pass(now, size) {
            Some(latency) => Fate::Arrives { at: now + latency, ecn },
            None => self.offer_slowly(now, size, ecn),
        }
    }

    /// Offers a packet on the fast path and returns its latency. If it returns `None`, the packet was not offered. Then
    /// call [`Link::offer_slowly`].
    #[inline]
    pub fn pass(&mut self, now: Time, size: Bytes) -> Option<Span> {
        let idle = &mut self.idle;
        if size != idle.size || now < idle.free {
            return None;
        }
        idle.free = now + idle.span;
        idle.passed += 1;
        Some(idle.latency)
    }

    /// Offers a packet like [`Link::offer`]. `flow` is the number of the packet's flow, which FQ-CoDel needs.
    pub fn offer_with_flow(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if self.state.managed.is_some() { self.state.enqueue(now, size, ecn, flow) } else { self.offer(now, size, ecn) }
    }

    /// Returns whether the link may return [`Fate::Held`].
    pub const fn holds_packets(&self) -> bool {
        self.state.managed.is_some()
    }

    /// Returns whether the link may reorder or duplicate packets.
    pub const fn can_disorder(&self) -> bool {
        self.state.disorder.is_some()
    }

    /// Returns when the copy of the last packet arrives, if there is a copy. A second call returns `None`.
    pub fn copy(&mut self) -> Option<Time> {
        self.state.copy.take()
    }

    /// Returns when [`Link::take`] has to be called for the next fate, if no packet is offered before that time.
    /// Returns `None` if no packet is held.
    pub fn due(&self) -> Option<Time> {
        self.state.managed.as_ref().map(|managed| managed.next_fate_at()).filter(|at| *at < Time::NEVER)
    }

    /// Returns the next held packet whose fate is known, with this fate. Call it after each offer and at [`Link::due`]
    /// until it returns `None`.
    pub fn take(&mut self, now: Time) -> Option<(Token, Fate)> {
        loop {
            let managed = self.state.managed.as_mut()?;
            if let Some((token, fate, copy)) = managed.next_fate() {
                self.state.copy = copy;
                return Some((token, fate));
            }
            if managed.due > now || managed.due == Time::NEVER {
                return None;
            }
            self.state.serve();
        }
    }

    /// Offers a packet after [`Link::pass`] has returned `None`.
    #[inline]
    pub fn offer_slowly(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        match self.idle.plain {
            Plain::Yes { delay } if size <= self.state.mtu => self.offer_to_plain(now, size, ecn, delay),
            _ => self.state.offer(now, size, ecn),
        }
    }

    /// Offers a packet to a plain link.
    #[inline]
    fn offer_to_plain(&mut self, now: Time, size: Bytes, ecn: Ecn, delay: Span) -> Fate {
        let (idle, state) = (&mut self.idle, &mut *self.state);
        // Count the passed packets first, because their size `idle.size` may change below.
        state.count_passed(idle);
        if size != idle.size {
            state.change_size(now, size, idle);
            idle.latency = idle.span + delay;
        }
        if now >= idle.free {
            (idle.free, idle.passed) = (now + idle.span, 1);
            return Fate::Arrives { at: idle.free + delay, ecn };
        }
        state.counts.offered += 1;
        // If all queued packets have the same size, compute the queue's length from the time at which the transmitter
        // becomes free.
        let is_uniform = now >= state.uniform_from;
        let room = if is_uniform {
            let backlog = idle.backlog(now);
            state.queue.limit.fits(backlog as usize, backlog * size.get(), size)
        } else {
            state.queue.has_room(now, size)
        };
        if !room {
            state.counts.full += 1;
            return Fate::Dropped(Drop::Full);
        }
        // The waiting time is known on arrival, because the queue is a FIFO.
        state.waited = idle.free.since(now);
        state.counts.wait.add(state.waited);
        state.counts.sent += size;
        idle.free += idle.span;
        if !is_uniform {
            state.queue.admitted(size, idle.free, size);
        }
        Fate::Arrives { at: idle.free + delay, ecn }
    }

    /// Returns the counters at `now`.
    pub fn counts(&self, now: Time) -> Counts {
        let mut counts = self.state.counts.clone();
        counts.add_passed(&self.idle);
        counts.sent = self.sent(now);
        counts
    }

    /// Returns [`Counts::sent`] at `now`. The bits of a packet count as they leave. With a trace, a packet counts when
    /// it has left completely.
    pub fn sent(&self, now: Time) -> Bytes {
        let taken = self.state.counts.sent + self.idle.bytes();
        taken.saturating_sub(self.unsent(now))
    }

    /// Returns how many bytes of accepted packets are not sent yet at `now`.
    fn unsent(&self, now: Time) -> Bytes {
        let unsent = |done: Time, spent: Bytes| self.state.transmitter.unsent(now, done, spent);
        if now >= self.state.uniform_from {
            let Idle { free, size, span, .. } = self.idle;
            // Count the packets behind the first one completely, because only the first packet can be partly sent.
            let behind = self.idle.backlog(now).saturating_sub(1);
            return unsent(free.before(span * behind), size) + Bytes::new(size.get() * behind);
        }
        if let Some(managed) = &self.state.managed {
            let (done, spent) = managed.on_air();
            return unsent(done, spent);
        }
        let mut waiting = self.state.queue.unsent(now);
        let first = waiting.next().map_or(Bytes::ZERO, |(done, spent)| unsent(done, spent));
        first + waiting.map(|(_, spent)| spent).sum()
    }

    /// Returns the number of packets that were accepted and not dropped, plus the number of copies. Some of them may
    /// still be on their way.
    pub const fn arrived(&self) -> u64 {
        let counts = &self.state.counts;
        counts.offered + counts.duplicated + self.idle.passed - counts.dropped()
    }

    /// Returns [`Counts::dropped`] up to now.
    pub const fn dropped(&self) -> u64 {
        self.state.counts.dropped()
    }

    /// Returns how long the last offered packet waits for its transmission. If [`Link::holds_packets`] is true, returns
    /// how long the last dequeued packet has waited instead.
    pub const fn waited(&self) -> Span {
        if self.idle.passed > 0 { Span::ZERO } else { self.state.waited }
    }

    /// Returns true if the last packet found the link idle, and if the link is plain. A plain link has only a constant
    /// or unlimited rate, a constant delay and a drop-tail queue. The packet's latency then depends only on its size.
    #[inline]
    pub const fn was_idle(&self) -> bool {
        self.idle.passed > 0
    }

    /// Returns whether the last packet waited for exactly one other packet, which had the same size, was offered at the
    /// same time and found a plain link idle. `latency` is the latency of the last packet.
    #[inline]
    pub fn was_second(&self, latency: Span) -> bool {
        let Idle { passed, plain, span, .. } = self.idle;
        passed == 0 && plain != Plain::No && self.state.waited == span && latency == self.idle.latency + span
    }

    /// Returns the number of packets in the queue at `now`, including the packet on the transmitter.
    pub fn queued(&mut self, now: Time) -> usize {
        match &self.state.managed {
            Some(managed) => managed.length(now),
            None if now >= self.state.uniform_from => self.idle.backlog(now) as usize,
            None => self.state.queue.length(now),
        }
    }

    /// Returns how many bytes the link can send from `from` to `until`. Returns `None` if there is no limit.
    pub fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        self.state.transmitter.capacity(from, until)
    }

    /// Returns the long-term limit of the throughput between `from` and `until`, if the rate does not change between
    /// them. Returns `None` if there is no limit, and zero while every packet is lost. Link-layer retransmissions
    /// reduce the limit by the share of the capacity that they have cost so far.
    pub fn throughput_limit(&self, from: Time, until: Time) -> Option<Rate> {
        if self.state.loss.as_ref().is_some_and(|loss| loss.loses_all(from)) {
            return Some(Rate::ZERO);
        }
        let span = until.since(from);
        let traced = || self.capacity(from, until).filter(|_| !span.is_zero()).map(|bytes| bytes.per(span));
        let rate = self.rate(from).filter(|rate| *rate < Service::UNLIMITED && !self.is_traced());
        // Use the mean rate of a trace, because a trace has no rate at a point in time.
        let own = rate.or_else(traced);
        let efficiency = self.state.retransmitter.as_ref().map_or(1.0, |retransmitter| retransmitter.efficiency());
        let own = own.map(|rate| rate.scale(efficiency));
        let policer = self.state.policer.as_ref().map(|bucket| bucket.rate());
        [own, policer, self.state.transmitter.sustained()].into_iter().flatten().min()
    }

    /// Returns when [`Link::throughput_limit`] changes next. Rates from a file count as constant.
    pub fn next_change(&self, now: Time) -> Time {
        let loss = self.state.loss.as_ref().map_or(Time::NEVER, |loss| loss.next_change(now));
        self.state.transmitter.next_change(now).min(loss)
    }

    /// Returns whether the rate comes from a file or a trace.
    pub const fn is_traced(&self) -> bool {
        self.state.transmitter.is_traced()
    }

    /// Returns the rate at `now`. Returns `None` if the rate is unlimited or comes from a trace.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        self.state.transmitter.rate(now)
    }
}

impl Idle {
    const fn bytes(&self) -> Bytes {
        Bytes::new(self.size.get().wrapping_mul(self.passed))
    }

    /// Returns how many packets have not departed at `now`. All of them must have the size [`Idle::size`].
    fn backlog(&self, now: Time) -> u64 {
        self.free.since(now).as_nanos().div_ceil(self.span.as_nanos().max(1))
    }
}

impl Counts {
    fn add_passed(&mut self, idle: &Idle) {
        if idle.passed > 0 {
            self.offered += idle.passed;
            self.sent += idle.bytes();
            self.wait.add_zeros(idle.passed);
        }
    }
}

impl LinkState {
    #[inline]
    fn count_passed(&mut self, idle: &mut Idle) {
        if idle.passed > 0 {
            self.counts.add_passed(idle);
            (idle.passed, self.waited) = (0, Span::ZERO);
        }
    }

    /// Prepares the fast path for packets of the size `size`.
    #[inline(never)]
    fn change_size(&mut self, now: Time, size: Bytes, idle: &mut Idle) {
        if now < idle.free {
            // Fill the queue's list of packets. All of them have the old size, so their departures are known.
            if now >= self.uniform_from {
                self.queue.clear();
                for behind in (0..idle.backlog(now)).rev() {
                    self.queue.admitted(idle.size, idle.free.before(idle.span * behind), idle.size);
                }
            }
            self.uniform_from = idle.free;
        }
        // Flows alternate between two sizes, such as data and ACKs, so try the previous size first.
        let span = if size == self.before.0 { self.before.1 } else { self.transmitter.span(now, size) };
        self.before = (idle.size, idle.span);
        (idle.size, idle.span) = (size, span);
    }

    fn refusal(&mut self, now: Time, size: Bytes) -> Option<Drop> {
        self.counts.offered += 1;
        // Check the size before the policer, because a packet that is too large uses no tokens.
        if size > self.mtu {
            self.counts.too_large += 1;
            return Some(Drop::TooLarge);
        }
        if let Some(bucket) = &mut self.policer {
            if !bucket.holds(now, size) {
                self.counts.policed += 1;
                return Some(Drop::Policed);
            }
            bucket.take(now, size);
        }
        None
    }

    const fn entering(&self, ecn: Ecn) -> Ecn {
        if self.bleach { Ecn::NotEct } else { ecn }
    }

    #[inline(never)]
    fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        if self.managed.is_some() {
            return self.enqueue(now, size, ecn, 0);
        }
        if let Some(refused) = self.refusal(now, size) {
            return Fate::Dropped(refused);
        }
        let ecn = self.entering(ecn);
        // If the queue drops the packet, return before the transmission, because the packet takes no time on the link.
        let ecn = match self.queue.admit(now, size, ecn, &self.transmitter) {
            Ok(marked) => {
                self.counts.marked += u64::from(marked != ecn);
                marked
            }
            Err(drop) => {
                match drop {
                    Drop::Early => self.counts.early += 1,
                    _ => self.counts.full += 1,
                }
                return Fate::Dropped(drop);
            }
        };
        let start = self.transmitter.free_at().max(now);
        self.waited = start.since(now);
        self.counts.wait.add(self.waited);
        let before = self.counts.sent;
        // Transmit the packet before its loss is known, because a lost packet has used the link as well.
        let (done, lost) = self.transmit(start, size);
        self.queue.admitted(size, done, self.counts.sent.saturating_sub(before));
        if lost {
            self.counts.lost += 1;
            return Fate::Dropped(Drop::Lost);
        }
        Fate::Arrives { at: self.deliver(done), ecn }
    }

    /// Transmits a packet. Returns when it departs, and whether the medium has lost it after all retransmissions.
    #[inline]
    fn transmit(&mut self, start: Time, size: Bytes) -> (Time, bool) {
        let mut done = self.transmitter.send(start, size);
        self.counts.sent += size;
        let mut loses = |at| self.loss.as_mut().is_some_and(|loss| loss.next(at));
        let mut lost = loses(done);
        if let Some(Retransmitter { arq, first, spent }) = self.retransmitter.as_deref_mut() {
            let mut tries = 1;
            *first += size;
            while lost && tries < arq.tries {
                // Add the retransmission to the transmitter's time, because it delays the packets behind it. Wi-Fi and
                // LTE with in-order delivery do the same.
                let again = done + arq.per_try;
                *spent += size;
                if done < Time::NEVER {
                    *spent += self.transmitter.capacity(done, again).unwrap_or_default();
                }
                done = self.transmitter.send(again, size);
                self.counts.sent += size;
                lost = loses(done);
                tries += 1;
            }
        }
        (done, lost)
    }

    /// Returns when a packet that left at `done` arrives. If the packet is duplicated, stores when the copy arrives.
    fn deliver(&mut self, done: Time) -> Time {
        let at = self.arrival(done);
        self.counts.reordered += self.reorder_counter.pass(done, at);
        let twice = self.disorder.as_mut().is_some_and(|disorder| disorder.is_duplicated(done));
        self.counts.duplicated += u64::from(twice);
        // Draw the arrival again, because the copy has its own jitter.
        self.copy = twice.then(|| self.arrival(done));
        at
    }

    fn arrival(&mut self, done: Time) -> Time {
        match self.disorder.as_mut().and_then(|disorder| disorder.extra_delay(done)) {
            // Let later packets overtake a late packet.
            Some(by) => self.propagation.unordered_arrival(done) + by,
            None => self.propagation.arrival(done),
        }
    }

    fn enqueue(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if let Some(refused) = self.refusal(now, size) {
            return Fate::Dropped(refused);
        }
        let ecn = self.entering(ecn);
        // Serve first the dequeues that were due before `now`, because they must not see this packet.
        while self.managed.as_ref().is_some_and(|managed| managed.due < now) {
            self.serve();
        }
        let Some(managed) = &mut self.managed else { return Fate::Dropped(Drop::Full) };
        let Some(token) = managed.enqueue(now, Offered { size, ecn, flow }, &mut self.counts) else {
            self.counts.full += 1;
            return Fate::Dropped(Drop::Full);
        };
        // If the transmitter was idle, it can serve this packet as soon as it is ready.
        if managed.due == Time::NEVER {
            managed.due = self.transmitter.ready(now);
        }
        Fate::Held(token)
    }

    fn serve(&mut self) {
        let Some(mut managed) = self.managed.take() else { return };
        let now = managed.due;
        if let Some(head) = managed.dequeue(now, &mut self.counts) {
            self.waited = now.since(head.since);
            self.counts.wait.add(self.waited);
            let before = self.counts.sent;
            let (done, lost) = self.transmit(now, head.size);
            managed.sending(done, head.size, self.counts.sent.saturating_sub(before));
            let fate = if lost {
                self.counts.lost += 1;
                Fate::Dropped(Drop::Lost)
            } else {
                Fate::Arrives { at: self.deliver(done), ecn: head.ecn }
            };
            managed.decide(now, head.token, fate, self.copy.take());
        }
        managed.due = if managed.is_empty() { Time::NEVER } else { self.transmitter.ready(now) };
        self.managed = Some(managed);
    }
}
