//! One direction of a link: a queue, a transmitter, loss, and a propagation delay.
//!
//! A link is told when a packet is offered and answers at once with its fate: dropped, or the time at which it arrives
//! at the other end. This is possible because all that will happen to the link (rate steps, trace, delay steps) is
//! known when it is built, and a first-in-first-out queue owes nothing to packets that come later. So a hop costs one
//! event in the simulator, and in real time the packet waits in one timer until its arrival; the code is the same.
//!
//! Queues that decide when a packet *leaves* (CoDel, FQ-CoDel, DualPI2) answer that it is [`Fate::Held`]. Its driver
//! keeps it, and asks [`Link::take`] for fates: right after each offer, and when [`Link::due`] says.
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
mod overtaken;
mod pie;
mod policer;
mod queue;
mod red;
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
pub use queue::{DropTail, Line, Queue};
pub use red::{Red, RedPreset};
pub use service::{Opportunities, Service};
pub use shaper::Shaper;
pub use steps::Steps;

use delay::Propagation;
use disorder::Disorder;
use loss::LossState;
use managed::{Managed, Offered};
use overtaken::Overtaken;
use queue::QueueState;
use service::Transmitter;
pub use steadycast_units::Ecn;
use steadycast_units::{Bytes, Rate, Seed, Span, Spread, Time, TokenBucket};
use steadycast_words::{Within, settings};

settings! {
    /// Link-layer retransmission: a frame that the radio loses is sent again, and what follows waits (papers 002 and
    /// 003).
    #[derive(Copy, Eq)]
    Arq {
        /// How often a packet is sent at most, the first time included.
        tries: u32 where (TRIES) => "write for example tries = 7",
        /// What each further try adds to the delay, beside sending the packet again.
        per_try: Span => "write for example per_try = \"1ms\"",
    }
}

const TRIES: Within<u32> = Within { least: 1, most: 1000, remedy: "from 1 (no retransmission) to 1000" };

/// What a link is made of. Everything that changes during a run is known beforehand, as [`Steps`].
#[derive(Clone, Debug)]
pub struct Config {
    /// How fast it sends.
    pub service: Service,
    /// Its propagation delay.
    pub delay: Steps<Span>,
    /// What the delay varies by.
    pub jitter: Steps<Option<Jitter>>,
    /// How it loses packets.
    pub loss: Steps<Loss>,
    /// Whether it repeats what it loses.
    pub arq: Option<Arq>,
    /// Which packets come later than others that left after them.
    pub reorder: Steps<Reorder>,
    /// Probability, 0…1, that a packet comes twice.
    pub duplicate: Steps<f64>,
    /// What drops packets beyond a rate, before the queue.
    pub policer: Option<Policer>,
    /// What lets packets leave the queue by its tokens. Its burst is at least [`Config::mtu`].
    pub shaper: Option<Shaper>,
    /// Whether it clears the ECN field of each packet at its entry, as some routers and tunnels do.
    pub bleach: bool,
    /// Where packets wait.
    pub queue: Queue,
    /// The largest packet it takes.
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
    /// The rate that the link keeps up: the transmitter's first or mean rate, at most its shaper's; `None`: unlimited.
    fn sustained(&self) -> Option<Rate> {
        self.service.nominal().into_iter().chain(self.shaper.map(|shaper| shaper.rate)).min()
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The queue was full.
    Full,
    /// RED, PIE or DualPI2 decided so before it was full.
    Early,
    /// The packet had waited too long, by CoDel's rule.
    Stale,
    /// The packet did not conform to the policer.
    Policed,
    /// The medium lost it, in spite of any repetition.
    Lost,
    /// The packet was larger than the MTU.
    TooLarge,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet reaches the other end at `at`, with `ecn` in its header. Arrivals are in order unless the link
    /// reorders. When a packet arrives twice, [`Link::copy`] tells the other arrival.
    Arrives {
        /// When.
        at: Time,
        /// Its ECN field then.
        ecn: Ecn,
    },
    /// The packet is lost, for this reason.
    Dropped(Drop),
    /// The packet waits; [`Link::take`] will tell what becomes of it.
    Held(Token),
}

/// What a link has done so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Packets offered.
    pub offered: u64,
    /// Bytes that the transmitter has sent, those the medium lost and repetitions included. Inside of a link what it
    /// has taken to send.
    pub sent: Bytes,
    /// Dropped because the queue was full.
    pub full: u64,
    /// Dropped by the queue discipline, though there was room.
    pub early: u64,
    /// Marked by the queue discipline.
    pub marked: u64,
    /// Dropped by the policer.
    pub policed: u64,
    /// Lost by the medium.
    pub lost: u64,
    /// Refused as larger than the MTU.
    pub too_large: u64,
    /// Delivered after a packet that left later, for whatever reason; a copy is not counted.
    pub reordered: u64,
    /// Delivered a second time.
    pub duplicated: u64,
    /// Time between offer and start of transmission.
    pub wait: Spread,
}

impl Counts {
    /// Packets that did not arrive, for whatever reason.
    pub const fn dropped(&self) -> u64 {
        self.full + self.early + self.policed + self.lost + self.too_large
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    idle: Idle,
    rest: Box<Rest>,
}

/// All that a packet needs which finds a plain link idle: one cache line instead of ten. Ten thousand receivers have
/// ten thousand such links.
#[derive(Debug)]
struct Idle {
    /// When the transmitter has sent all it has taken. Of plain links only.
    free: Time,
    /// The last size, which the link takes; nothing on links that are not plain.
    size: Bytes,
    /// How long the transmitter takes for it …
    span: Span,
    /// … and how long until it arrives.
    latency: Span,
    /// Packets of this size that found the link idle, and of which nobody has been told.
    passed: u64,
    plain: Plain,
}

/// Whether a link has constant rate and delay, a drop-tail queue, and nothing lost or varied: then all there is to know
/// is when it becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Yes { delay: Span },
    No,
}

#[derive(Debug)]
struct Rest {
    mtu: Bytes,
    policer: Option<Box<TokenBucket>>,
    bleach: bool,
    arq: Option<Arq>,
    queue: QueueState,
    /// On a plain link, when the last packet of another size than [`Idle::size`] leaves; NEVER on others. What waits
    /// from then on follows from the time at which the link becomes free, and `queue` need not know of it.
    odd: Time,
    /// The size before that of [`Idle::size`], and how long the transmitter takes for it.
    before: (Bytes, Span),
    /// Instead of `queue`, where that decides when packets leave.
    managed: Option<Box<Managed>>,
    transmitter: Transmitter,
    /// Of a link that loses packets at some time.
    loss: Option<Box<LossState>>,
    propagation: Propagation,
    disorder: Option<Box<Disorder>>,
    overtaken: Overtaken,
    /// The other arrival of the packet that was delivered last.
    copy: Option<Time>,
    counts: Counts,
    waited: Span,
}

/// The size of no packet.
const NO_SIZE: Bytes = Bytes::new(u64::MAX);

impl Link {
    /// A link that draws from parts `<name>.queue`, `<name>.loss`, `<name>.jitter` and `<name>.disorder` of the seed.
    pub fn new(config: &Config, name: &str, seed: Seed) -> Self {
        let part = |what: &str| seed.part(&format!("link.{name}.{what}"));
        let rate = config.sustained();
        let queue = QueueState::new(&config.queue, rate, config.mtu, part("queue"));
        let managed = queue::managed(&config.queue, rate, config.mtu, part("queue")).map(Box::new);
        let roomy = queue.is_plain() && managed.is_none() && queue.limit.takes(0, 0, config.mtu);
        let steady = match &config.service {
            Service::Unlimited => true,
            Service::Rate(steps) => steps.as_constant().is_some_and(|rate| *rate > Rate::ZERO),
            Service::Table { .. } | Service::Trace(_) => false,
        };
        let disorder = Disorder::new(&config.reorder, &config.duplicate, part("disorder"));
        let lossless = config.loss.as_constant() == Some(&Loss::None) && config.arq.is_none();
        let harmless =
            lossless && config.jitter.as_constant() == Some(&None) && disorder.is_none() && config.policer.is_none();
        let harmless = harmless && !config.bleach && config.shaper.is_none();
        let plain = match config.delay.as_constant() {
            Some(delay) if roomy && steady && harmless => Plain::Yes { delay: *delay },
            _ => Plain::No,
        };
        let idle = Idle { free: Time::ZERO, size: NO_SIZE, span: Span::ZERO, latency: Span::ZERO, passed: 0, plain };
        let rest = Rest {
            mtu: config.mtu,
            policer: config.policer.map(|policer| Box::new(TokenBucket::new(policer.rate, policer.burst))),
            bleach: config.bleach,
            arq: config.arq,
            queue,
            odd: if plain == Plain::No { Time::NEVER } else { Time::ZERO },
            before: (NO_SIZE, Span::ZERO),
            managed,
            transmitter: Transmitter::new(&config.service, config.shaper, config.mtu),
            loss: LossState::new(&config.loss, part("loss")).map(Box::new),
            propagation: Propagation::new(&config.delay, &config.jitter, part("jitter")),
            disorder: disorder.map(Box::new),
            overtaken: Overtaken::default(),
            copy: None,
            counts: Counts::default(),
            waited: Span::ZERO,
        };
        Self { idle, rest: Box::new(rest) }
    }

    /// Offers a packet at `now`, which is never earlier than at the call before.
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
    /// A queue that decides as packets leave keeps them: the driver asks for their fates.
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
    /// let mut told = Vec::new();
    /// let mut now = Time::ZERO;
    /// loop {
    ///     while let Some((token, fate)) = link.take(now) {
    ///         told.push((Fate::Held(token), fate));
    ///     }
    ///     let Some(due) = link.due() else { break };
    ///     now = due;
    /// }
    /// let arrives = |ms| Fate::Arrives { at: Time::ZERO + Span::millis(ms), ecn: Ecn::NotEct };
    /// assert_eq!(told, [(offered[0], arrives(8)), (offered[1], arrives(16))]);
    /// ```
    #[inline]
    pub fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        match self.pass(now, size) {
            Some(latency) => Fate::Arrives { at: now + latency, ecn },
            None => self.offer_slowly(now, size, ecn),
        }
    }

    /// Offers a packet if it finds a plain link idle and is as large as the one before that did; tells how long it is
    /// under way. With `None` nothing has happened, and it remains to be offered.
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

    /// The same as [`Link::offer`], with a number that tells flows apart, which only FQ-CoDel uses.
    pub fn offer_of(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if self.rest.managed.is_some() { self.rest.enqueue(now, size, ecn, flow) } else { self.offer(now, size, ecn) }
    }

    /// Whether it holds what it takes.
    pub const fn holds(&self) -> bool {
        self.rest.managed.is_some()
    }

    /// Whether it may deliver packets out of turn, or twice.
    pub const fn disorders(&self) -> bool {
        self.rest.disorder.is_some()
    }

    /// When the packet of which it was just told that it arrives, by [`Link::offer`] or [`Link::take`], arrives again;
    /// told once.
    pub fn copy(&mut self) -> Option<Time> {
        self.rest.copy.take()
    }

    /// When [`Link::take`] will have something to tell, if nothing more is offered; `None` when nothing is held.
    pub fn due(&self) -> Option<Time> {
        self.rest.managed.as_ref().map(|managed| managed.asks()).filter(|at| *at < Time::NEVER)
    }

    /// What becomes of the next held packet of which that is known at `now`. To be asked until there is none: after
    /// each offer, and at [`Link::due`].
    pub fn take(&mut self, now: Time) -> Option<(Token, Fate)> {
        loop {
            let managed = self.rest.managed.as_mut()?;
            if let Some((token, fate, copy)) = managed.next_fate() {
                self.rest.copy = copy;
                return Some((token, fate));
            }
            if managed.due > now || managed.due == Time::NEVER {
                return None;
            }
            self.rest.serve();
        }
    }

    /// Offers a packet of which [`Link::pass`] has said that it does not pass.
    #[inline]
    pub fn offer_slowly(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        match self.idle.plain {
            Plain::Yes { delay } if size <= self.rest.mtu => self.offer_to_plain(now, size, ecn, delay),
            _ => self.rest.offer(now, size, ecn),
        }
    }

    /// The fast path of [`Rest::offer`], for plain links.
    #[inline]
    fn offer_to_plain(&mut self, now: Time, size: Bytes, ecn: Ecn, delay: Span) -> Fate {
        let (idle, rest) = (&mut self.idle, &mut *self.rest);
        rest.count_passed(idle);
        if size != idle.size {
            rest.turn_to(now, size, idle);
            idle.latency = idle.span + delay;
        }
        if now >= idle.free {
            (idle.free, idle.passed) = (now + idle.span, 1);
            return Fate::Arrives { at: idle.free + delay, ecn };
        }
        rest.counts.offered += 1;
        let alike = now >= rest.odd;
        let room = if alike {
            let line = idle.line(now);
            rest.queue.limit.takes(line as usize, line * size.get(), size)
        } else {
            rest.queue.has_room(now, size)
        };
        if !room {
            rest.counts.full += 1;
            return Fate::Dropped(Drop::Full);
        }
        rest.waited = idle.free.since(now);
        rest.counts.wait.add(rest.waited);
        rest.counts.sent += size;
        idle.free += idle.span;
        if !alike {
            rest.queue.admitted(size, idle.free, size);
        }
        Fate::Arrives { at: idle.free + delay, ecn }
    }

    /// What it has done until `now`.
    pub fn counts(&self, now: Time) -> Counts {
        let mut counts = self.rest.counts.clone();
        counts.add_passed(&self.idle);
        counts.sent = self.sent(now);
        counts
    }

    /// [`Counts::sent`] until `now`: what has left the transmitter, bit by bit; over a trace packet by packet.
    pub fn sent(&self, now: Time) -> Bytes {
        let taken = self.rest.counts.sent + self.idle.bytes();
        taken.saturating_sub(self.unsent(now))
    }

    /// What it has taken to send, and at `now` not sent.
    fn unsent(&self, now: Time) -> Bytes {
        let rest = |done: Time, spent: Bytes| self.rest.transmitter.rest(now, done, spent);
        if now >= self.rest.odd {
            let Idle { free, size, span, .. } = self.idle;
            let behind = self.idle.line(now).saturating_sub(1);
            return rest(free.before(span * behind), size) + Bytes::new(size.get() * behind);
        }
        if let Some(managed) = &self.rest.managed {
            let (done, spent) = managed.on_air();
            return rest(done, spent);
        }
        let mut waiting = self.rest.queue.unsent(now);
        let first = waiting.next().map_or(Bytes::ZERO, |(done, spent)| rest(done, spent));
        first + waiting.map(|(_, spent)| spent).sum()
    }

    /// Packets that it took and did not drop, and copies of them: those that are still under way included.
    pub const fn arrived(&self) -> u64 {
        let counts = &self.rest.counts;
        counts.offered + counts.duplicated + self.idle.passed - counts.dropped()
    }

    /// [`Counts::dropped`] so far.
    pub const fn dropped(&self) -> u64 {
        self.rest.counts.dropped()
    }

    /// How long the packet of the last [`Link::offer`] waits for the transmitter; where packets are held, the last that
    /// left waited.
    pub const fn waited(&self) -> Span {
        if self.idle.passed > 0 { Span::ZERO } else { self.rest.waited }
    }

    /// Whether the last packet that was taken found this link idle, and everything about the link constant: then how
    /// long it is under way depends on its size alone.
    #[inline]
    pub const fn was_idle(&self) -> bool {
        self.idle.passed > 0
    }

    /// Whether the last packet that was taken, and is under way for so long, waited for one other of its size, which
    /// came at the same time and found a plain link idle.
    #[inline]
    pub fn was_second(&self, latency: Span) -> bool {
        let Idle { passed, plain, span, .. } = self.idle;
        passed == 0 && plain != Plain::No && self.rest.waited == span && latency == self.idle.latency + span
    }

    /// Packets in the queue at `now`, the one on the transmitter included.
    pub fn queued(&mut self, now: Time) -> usize {
        match &self.rest.managed {
            Some(managed) => managed.length(now),
            None if now >= self.rest.odd => self.idle.line(now) as usize,
            None => self.rest.queue.length(now),
        }
    }

    /// What it could have carried from its start to `until`; `None` when its rate is unlimited.
    pub fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        self.rest.transmitter.capacity(from, until)
    }

    /// The rate at which packets get through it for good between two times between which its rate does not change: at
    /// most its policer's or its shaper's, none while every packet is lost, and a trace's mean. `None` when nothing limits it.
    pub fn passes(&self, from: Time, until: Time) -> Option<Rate> {
        if self.rest.loss.as_ref().is_some_and(|loss| loss.loses_all(from)) {
            return Some(Rate::ZERO);
        }
        let span = until.since(from);
        let traced = || self.capacity(from, until).filter(|_| !span.is_zero()).map(|bytes| bytes.per(span));
        let rate = self.rate(from).filter(|rate| *rate < Service::UNLIMITED && !self.is_traced());
        let own = rate.or_else(traced);
        let policer = self.rest.policer.as_ref().map(|bucket| bucket.rate());
        [own, policer, self.rest.transmitter.sustained()].into_iter().flatten().min()
    }

    /// When [`Link::passes`] next changes after `now`. A file's changes all the time, which counts as no change.
    pub fn next_change(&self, now: Time) -> Time {
        let loss = self.rest.loss.as_ref().map_or(Time::NEVER, |loss| loss.next_change(now));
        self.rest.transmitter.next_change(now).min(loss)
    }

    /// Whether its rate is a file's.
    pub const fn is_traced(&self) -> bool {
        self.rest.transmitter.is_traced()
    }

    /// Its rate at `now`; `None` when unlimited or given by a trace.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        self.rest.transmitter.rate(now)
    }
}

impl Idle {
    /// Of what passed.
    const fn bytes(&self) -> Bytes {
        Bytes::new(self.size.get().wrapping_mul(self.passed))
    }

    /// How many packets of this size have not left at `now`, where there are no others.
    fn line(&self, now: Time) -> u64 {
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

impl Rest {
    #[inline]
    fn count_passed(&mut self, idle: &mut Idle) {
        if idle.passed > 0 {
            self.counts.add_passed(idle);
            (idle.passed, self.waited) = (0, Span::ZERO);
        }
    }

    /// A plain link turns to another size, with nothing passed that is not counted.
    #[inline(never)]
    fn turn_to(&mut self, now: Time, size: Bytes, idle: &mut Idle) {
        if now < idle.free {
            if now >= self.odd {
                self.queue.clear();
                for behind in (0..idle.line(now)).rev() {
                    self.queue.admitted(idle.size, idle.free.before(idle.span * behind), idle.size);
                }
            }
            self.odd = idle.free;
        }
        let span = if size == self.before.0 { self.before.1 } else { self.transmitter.span(now, size) };
        self.before = (idle.size, idle.span);
        (idle.size, idle.span) = (size, span);
    }

    /// Why a packet does not come as far as the queue.
    fn refuses(&mut self, now: Time, size: Bytes) -> Option<Drop> {
        self.counts.offered += 1;
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

    /// The ECN field with which a packet enters the queue.
    const fn entering(&self, ecn: Ecn) -> Ecn {
        if self.bleach { Ecn::NotEct } else { ecn }
    }

    #[inline(never)]
    fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        if self.managed.is_some() {
            return self.enqueue(now, size, ecn, 0);
        }
        if let Some(refused) = self.refuses(now, size) {
            return Fate::Dropped(refused);
        }
        let ecn = self.entering(ecn);
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
        let (done, lost) = self.transmit(start, size);
        self.queue.admitted(size, done, self.counts.sent.saturating_sub(before));
        if lost {
            self.counts.lost += 1;
            return Fate::Dropped(Drop::Lost);
        }
        Fate::Arrives { at: self.deliver(done), ecn }
    }

    /// Sends a packet, as often as it takes; tells when the last bit has left, and whether the medium has lost it all
    /// the same.
    #[inline]
    fn transmit(&mut self, start: Time, size: Bytes) -> (Time, bool) {
        let mut done = self.transmitter.send(start, size);
        self.counts.sent += size;
        let mut loses = |at| self.loss.as_mut().is_some_and(|loss| loss.next(at));
        let mut lost = loses(done);
        if let Some(arq) = self.arq {
            let mut tries = 1;
            while lost && tries < arq.tries {
                done = self.transmitter.send(done + arq.per_try, size);
                self.counts.sent += size;
                lost = loses(done);
                tries += 1;
            }
        }
        (done, lost)
    }

    /// When a packet arrives that has left at `done`; a copy of it is told by itself.
    fn deliver(&mut self, done: Time) -> Time {
        let at = self.arrival(done);
        self.counts.reordered += self.overtaken.pass(done, at);
        let twice = self.disorder.as_mut().is_some_and(|disorder| disorder.twice(done));
        self.counts.duplicated += u64::from(twice);
        self.copy = twice.then(|| self.arrival(done));
        at
    }

    fn arrival(&mut self, done: Time) -> Time {
        match self.disorder.as_mut().and_then(|disorder| disorder.late(done)) {
            Some(by) => self.propagation.apart(done) + by,
            None => self.propagation.arrival(done),
        }
    }

    /// [`Rest::offer`] for a link that holds packets until they leave.
    fn enqueue(&mut self, now: Time, size: Bytes, ecn: Ecn, flow: u64) -> Fate {
        if let Some(refused) = self.refuses(now, size) {
            return Fate::Dropped(refused);
        }
        let ecn = self.entering(ecn);
        // A driver that asks late has all the same what was due before.
        while self.managed.as_ref().is_some_and(|managed| managed.due < now) {
            self.serve();
        }
        let Some(managed) = &mut self.managed else { return Fate::Dropped(Drop::Full) };
        let Some(token) = managed.take_in(now, Offered { size, ecn, flow }, &mut self.counts) else {
            self.counts.full += 1;
            return Fate::Dropped(Drop::Full);
        };
        if managed.due == Time::NEVER {
            managed.due = self.transmitter.ready(now);
        }
        Fate::Held(token)
    }

    /// The transmitter takes the next held packet.
    fn serve(&mut self) {
        let Some(mut managed) = self.managed.take() else { return };
        let now = managed.due;
        if let Some(head) = managed.leave(now, &mut self.counts) {
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
