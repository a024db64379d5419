//! One direction of a link: a queue, a transmitter, loss, and a propagation delay.
//!
//! The fate of a packet is decided when it is offered, because every change of the link is known and a FIFO queue
//! does not depend on later packets. A hop costs one event in the simulator and one timer in real time.
//!
//! Queues that drop packets at dequeue (CoDel, FQ-CoDel, DualPI2) return [`Fate::Held`]. The driver then collects fates
//! with [`Link::take`], after each offer and at [`Link::due`].
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
mod steps;

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
pub use steps::Steps;

use delay::Propagation;
use disorder::Disorder;
use loss::LossState;
use managed::{Managed, Offered};
use queue::QueueState;
use reorder_counter::ReorderCounter;
use service::Transmitter;
use steadycast_settings::{Within, settings};
pub use steadycast_units::Ecn;
use steadycast_units::{Bytes, Rate, Seed, Span, Spread, Time, TokenBucket};

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

/// The configuration of a link. [`Steps`] describe every change during a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The transmission rate.
    pub service: Service,
    /// The propagation delay.
    pub delay: Steps<Span>,
    /// The random variation of the delay.
    pub jitter: Steps<Option<Jitter>>,
    /// The random loss of the medium.
    pub loss: Steps<Loss>,
    /// The link-layer retransmission, if there is any.
    pub arq: Option<Arq>,
    /// The packets that arrive late.
    pub reorder: Steps<Reorder>,
    /// The probability of a second arrival, 0…1.
    pub duplicate: Steps<f64>,
    /// The policer before the queue.
    pub policer: Option<Policer>,
    /// The shaper behind the queue. Its burst is at least [`Config::mtu`].
    pub shaper: Option<Shaper>,
    /// Whether the link clears the ECN field on entry.
    pub bleach: bool,
    /// The queue and its discipline.
    pub queue: Queue,
    /// The largest packet; larger ones are dropped.
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
    /// Returns the sustained rate: [`Service::nominal`], limited by the shaper's rate; `None` if unlimited.
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
    /// CoDel dropped the packet: the sojourn time had been above the target for an interval.
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
    /// The packet arrives; a duplicate's arrival is [`Link::copy`]. Arrivals are in order unless the link reorders.
    Arrives {
        /// The time of arrival.
        at: Time,
        /// The ECN field at arrival.
        ecn: Ecn,
    },
    /// The packet is dropped.
    Dropped(Drop),
    /// The packet waits in the queue; [`Link::take`] returns its fate later.
    Held(Token),
}

/// Counters since the link's start.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The packets offered.
    pub offered: u64,
    /// The bytes sent by the transmitter, with lost packets and retransmissions.
    pub sent: Bytes,
    /// The packets dropped because the queue was full.
    pub full: u64,
    /// The packets dropped by the queue discipline with room left.
    pub early: u64,
    /// The packets marked CE by the queue discipline.
    pub marked: u64,
    /// The packets dropped by the policer.
    pub policed: u64,
    /// The packets lost by the medium.
    pub lost: u64,
    /// The packets larger than the MTU.
    pub too_large: u64,
    /// The packets delivered after a later one (RFC 4737), without copies.
    pub reordered: u64,
    /// The packets delivered twice.
    pub duplicated: u64,
    /// The time from offer to start of transmission, per packet.
    pub wait: Spread,
}

impl Counts {
    /// Returns the packets that did not arrive.
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

/// The state for a packet that finds a plain link idle. It fits into one cache line, for runs with ten thousand
/// links.
#[derive(Debug)]
struct Idle {
    /// When the transmitter becomes free; on plain links only.
    free: Time,
    /// The last packet's size; [`NO_SIZE`] on links that are not plain.
    size: Bytes,
    /// The transmission time of `size`.
    span: Span,
    /// The latency of `size` on the idle link.
    latency: Span,
    /// The packets of `size` that found the link idle and are not in [`LinkState::counts`] yet.
    passed: u64,
    plain: Plain,
}

/// A plain link has a constant rate and delay, a drop-tail queue and nothing else. Its only state is when its
/// transmitter becomes free.
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
    arq: Option<Arq>,
    queue: QueueState,
    /// The time from which all queued packets have the size [`Idle::size`]; [`Time::NEVER`] if the link is not plain.
    /// From then on, `queue` is not maintained.
    uniform_from: Time,
    /// The previous [`Idle::size`] and its transmission time; flows often have two sizes.
    before: (Bytes, Span),
    /// Replaces `queue` if the discipline decides at dequeue.
    managed: Option<Box<Managed>>,
    transmitter: Transmitter,
    /// `None` if no packet is ever lost.
    loss: Option<Box<LossState>>,
    propagation: Propagation,
    disorder: Option<Box<Disorder>>,
    reorder_counter: ReorderCounter,
    /// The arrival of the last packet's copy.
    copy: Option<Time>,
    counts: Counts,
    waited: Span,
}

const NO_SIZE: Bytes = Bytes::new(u64::MAX);

impl Link {
    /// Creates a link. It draws from `<name>.queue`, `.loss`, `.jitter` and `.disorder` of the seed.
    pub fn new(config: &Config, name: &str, seed: Seed) -> Self {
        let part = |what: &str| seed.part(&format!("link.{name}.{what}"));
        let rate = config.sustained();
        let queue = QueueState::new(&config.queue, rate, config.mtu, part("queue"));
        // Only one of the two draws from this part of the seed.
        let managed = queue::managed(&config.queue, rate, config.mtu, part("queue")).map(Box::new);
        // The fast path treats all packets alike.
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
            arq: config.arq,
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

    /// Offers a packet at `now`, which must not decrease.
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
    /// A queue that decides at dequeue holds packets:
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

    /// Offers a packet on the fast path and returns its latency. `None` means that the packet was not offered; use
    /// [`Link::offer_slowly`].
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

    /// Offers a packet with the number of its flow, for FQ-CoDel.
    pub fn offer_with_flow(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if self.state.managed.is_some() { self.state.enqueue(now, size, ecn, flow) } else { self.offer(now, size, ecn) }
    }

    /// Whether the link may return [`Fate::Held`].
    pub const fn holds_packets(&self) -> bool {
        self.state.managed.is_some()
    }

    /// Whether the link may reorder or duplicate packets.
    pub const fn can_disorder(&self) -> bool {
        self.state.disorder.is_some()
    }

    /// Returns the arrival of the last packet's copy, once.
    pub fn copy(&mut self) -> Option<Time> {
        self.state.copy.take()
    }

    /// Returns when [`Link::take`] has the next fate without further offers; `None` if no packet is held.
    pub fn due(&self) -> Option<Time> {
        self.state.managed.as_ref().map(|managed| managed.next_fate_at()).filter(|at| *at < Time::NEVER)
    }

    /// Returns the next known fate of a held packet. Call it until it returns `None`, after each offer and at
    /// [`Link::due`].
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
        // Counted now, before `idle.size` changes.
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
        // With packets of one size, the queue's length follows from the time at which the transmitter becomes free.
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
        // In a FIFO queue, the waiting time is known on arrival.
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

    /// Returns [`Counts::sent`]: the bits that have left, or whole packets with a trace.
    pub fn sent(&self, now: Time) -> Bytes {
        let taken = self.state.counts.sent + self.idle.bytes();
        taken.saturating_sub(self.unsent(now))
    }

    /// Returns the accepted bytes that are not sent at `now`.
    fn unsent(&self, now: Time) -> Bytes {
        let unsent = |done: Time, spent: Bytes| self.state.transmitter.unsent(now, done, spent);
        if now >= self.state.uniform_from {
            let Idle { free, size, span, .. } = self.idle;
            // Only the first packet can be partly sent.
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

    /// Returns the packets accepted and not dropped, plus copies; some may be in flight.
    pub const fn arrived(&self) -> u64 {
        let counts = &self.state.counts;
        counts.offered + counts.duplicated + self.idle.passed - counts.dropped()
    }

    /// Returns [`Counts::dropped`] so far.
    pub const fn dropped(&self) -> u64 {
        self.state.counts.dropped()
    }

    /// Returns how long the last offered packet waits. On a link that holds packets, returns how long the last
    /// dequeued one has waited.
    pub const fn waited(&self) -> Span {
        if self.idle.passed > 0 { Span::ZERO } else { self.state.waited }
    }

    /// Whether the last packet found a plain link idle, so that its latency depends only on its size.
    #[inline]
    pub const fn was_idle(&self) -> bool {
        self.idle.passed > 0
    }

    /// Whether the last packet waited for exactly one other, which had the same size, was offered at the same time
    /// and found a plain link idle.
    #[inline]
    pub fn was_second(&self, latency: Span) -> bool {
        let Idle { passed, plain, span, .. } = self.idle;
        passed == 0 && plain != Plain::No && self.state.waited == span && latency == self.idle.latency + span
    }

    /// Returns the queued packets at `now`, with the one on the transmitter.
    pub fn queued(&mut self, now: Time) -> usize {
        match &self.state.managed {
            Some(managed) => managed.length(now),
            None if now >= self.state.uniform_from => self.idle.backlog(now) as usize,
            None => self.state.queue.length(now),
        }
    }

    /// Returns the capacity in bytes from `from` to `until`; `None` if unlimited.
    pub fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        self.state.transmitter.capacity(from, until)
    }

    /// Returns the long-term limit of the throughput between two times without a rate change; `None` without a limit.
    /// The limit is zero while every packet is lost.
    pub fn throughput_limit(&self, from: Time, until: Time) -> Option<Rate> {
        if self.state.loss.as_ref().is_some_and(|loss| loss.loses_all(from)) {
            return Some(Rate::ZERO);
        }
        let span = until.since(from);
        let traced = || self.capacity(from, until).filter(|_| !span.is_zero()).map(|bytes| bytes.per(span));
        let rate = self.rate(from).filter(|rate| *rate < Service::UNLIMITED && !self.is_traced());
        // A trace has only a mean rate.
        let own = rate.or_else(traced);
        let policer = self.state.policer.as_ref().map(|bucket| bucket.rate());
        [own, policer, self.state.transmitter.sustained()].into_iter().flatten().min()
    }

    /// Returns the next change of [`Link::throughput_limit`]. Rates from a file count as constant.
    pub fn next_change(&self, now: Time) -> Time {
        let loss = self.state.loss.as_ref().map_or(Time::NEVER, |loss| loss.next_change(now));
        self.state.transmitter.next_change(now).min(loss)
    }

    /// Whether the rate comes from a file or a trace.
    pub const fn is_traced(&self) -> bool {
        self.state.transmitter.is_traced()
    }

    /// Returns the rate at `now`; `None` if unlimited or from a trace.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        self.state.transmitter.rate(now)
    }
}

impl Idle {
    const fn bytes(&self) -> Bytes {
        Bytes::new(self.size.get().wrapping_mul(self.passed))
    }

    /// Returns the number of packets that have not departed at `now`, if all have the size [`Idle::size`].
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

    /// Prepares the fast path for another packet size.
    #[inline(never)]
    fn change_size(&mut self, now: Time, size: Bytes, idle: &mut Idle) {
        if now < idle.free {
            // All packets in the queue have the old size, so their departures are known.
            if now >= self.uniform_from {
                self.queue.clear();
                for behind in (0..idle.backlog(now)).rev() {
                    self.queue.admitted(idle.size, idle.free.before(idle.span * behind), idle.size);
                }
            }
            self.uniform_from = idle.free;
        }
        // Flows alternate between few sizes (data and ACKs).
        let span = if size == self.before.0 { self.before.1 } else { self.transmitter.span(now, size) };
        self.before = (idle.size, idle.span);
        (idle.size, idle.span) = (size, span);
    }

    fn refusal(&mut self, now: Time, size: Bytes) -> Option<Drop> {
        self.counts.offered += 1;
        // A packet that is too large uses no tokens.
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
        // A dropped packet takes no link time.
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
        // A lost packet has used the link.
        let (done, lost) = self.transmit(start, size);
        self.queue.admitted(size, done, self.counts.sent.saturating_sub(before));
        if lost {
            self.counts.lost += 1;
            return Fate::Dropped(Drop::Lost);
        }
        Fate::Arrives { at: self.deliver(done), ecn }
    }

    /// Transmits a packet. Returns its departure, and whether the medium has lost it after all retransmissions.
    #[inline]
    fn transmit(&mut self, start: Time, size: Bytes) -> (Time, bool) {
        let mut done = self.transmitter.send(start, size);
        self.counts.sent += size;
        let mut loses = |at| self.loss.as_mut().is_some_and(|loss| loss.next(at));
        let mut lost = loses(done);
        if let Some(arq) = self.arq {
            let mut tries = 1;
            while lost && tries < arq.tries {
                // Retransmission blocks the packets behind it, as in Wi-Fi and LTE with in-order delivery.
                done = self.transmitter.send(done + arq.per_try, size);
                self.counts.sent += size;
                lost = loses(done);
                tries += 1;
            }
        }
        (done, lost)
    }

    /// Returns when a packet that left at `done` arrives. If the packet is duplicated, stores the copy's arrival.
    fn deliver(&mut self, done: Time) -> Time {
        let at = self.arrival(done);
        self.counts.reordered += self.reorder_counter.pass(done, at);
        let twice = self.disorder.as_mut().is_some_and(|disorder| disorder.is_duplicated(done));
        self.counts.duplicated += u64::from(twice);
        // The copy has its own jitter.
        self.copy = twice.then(|| self.arrival(done));
        at
    }

    fn arrival(&mut self, done: Time) -> Time {
        match self.disorder.as_mut().and_then(|disorder| disorder.extra_delay(done)) {
            // Later packets overtake a late one.
            Some(by) => self.propagation.unordered_arrival(done) + by,
            None => self.propagation.arrival(done),
        }
    }

    fn enqueue(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if let Some(refused) = self.refusal(now, size) {
            return Fate::Dropped(refused);
        }
        let ecn = self.entering(ecn);
        // Dequeues that were due before `now` must not see this packet.
        while self.managed.as_ref().is_some_and(|managed| managed.due < now) {
            self.serve();
        }
        let Some(managed) = &mut self.managed else { return Fate::Dropped(Drop::Full) };
        let Some(token) = managed.enqueue(now, Offered { size, ecn, flow }, &mut self.counts) else {
            self.counts.full += 1;
            return Fate::Dropped(Drop::Full);
        };
        // The transmitter was idle.
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
