//! One direction of a link: a queue, a transmitter, loss, and a propagation delay.
//!
//! A link is told when a packet is offered and answers at once with its fate: dropped, or the time at which it arrives at the
//! other end. This is possible because all that will happen to the link (rate steps, trace, delay steps) is known
//! when it is built, and a first-in-first-out queue owes nothing to packets that come later. So a hop costs one event in the
//! simulator, and in real time the packet waits in one timer until its arrival; the code is the same.
//!
//! ```text
//! offer ─▶ mtu ─▶ queue (drop-tail | RED) ─▶ transmitter (rate | steps | trace) ─▶ loss ─▶ link-layer retransmission ─▶ delay + jitter ─▶ arrival
//! ```

mod delay;
mod loss;
mod queue;
mod service;
mod steps;

pub use delay::{Jitter, JitterShape};
pub use loss::Loss;
pub use queue::{Amount, Queue, Red};
pub use service::{Opportunities, Service};
pub use steps::Steps;

use delay::Propagation;
use loss::LossState;
use queue::QueueState;
use service::Transmitter;
use steadycast_units::{Bytes, Rate, Seed, Span, Spread, Time};

/// ECN field of a packet's IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotCapable,
    /// ECN-capable transport, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// Link-layer retransmission: a frame that the radio loses is sent again, and what follows waits (papers 002 and 003).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arq {
    /// Transmissions in all before the frame is given up.
    pub tries: u32,
    /// What each repetition costs on top of sending the frame again.
    pub per_try: Span,
}

/// What a link is made of. Everything that changes during a run is known beforehand, as [`Steps`].
#[derive(Clone, Debug)]
pub struct Config {
    /// How fast it sends.
    pub service: Service,
    /// Its propagation delay.
    pub delay: Steps<Span>,
    /// What the delay varies by.
    pub jitter: Option<Jitter>,
    /// How it loses packets.
    pub loss: Steps<Loss>,
    /// Whether it repeats what it loses.
    pub arq: Option<Arq>,
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
            jitter: None,
            loss: Steps::constant(Loss::None),
            arq: None,
            queue: Queue::DropTail(Amount::Packets(50)),
            mtu: Bytes::new(1500),
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The queue was full.
    Full,
    /// RED decided so before it was full.
    Early,
    /// The medium lost it, in spite of any repetition.
    Lost,
    /// It was larger than the MTU.
    TooLarge,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reaches the other end at `at`, with `ecn` in its header. Arrivals are in order unless the jitter reorders.
    Arrives {
        /// When.
        at: Time,
        /// Its ECN field then.
        ecn: Ecn,
    },
    /// It does not.
    Dropped(Drop),
}

/// What a link has done so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Packets offered.
    pub offered: u64,
    /// Bytes that the transmitter has sent, or is committed to send: those the medium lost and repetitions included.
    pub sent: Bytes,
    /// Dropped because the queue was full.
    pub full: u64,
    /// Dropped early by RED.
    pub early: u64,
    /// Marked by RED.
    pub marked: u64,
    /// Lost by the medium.
    pub lost: u64,
    /// Refused as larger than the MTU.
    pub too_large: u64,
    /// Time between offer and start of transmission.
    pub wait: Spread,
}

impl Counts {
    /// Packets that did not arrive, for whatever reason.
    pub const fn dropped(&self) -> u64 {
        self.full + self.early + self.lost + self.too_large
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    idle: Idle,
    rest: Box<Rest>,
}

/// All that a packet needs which finds a plain link idle: one cache line instead of ten. Ten thousand receivers have ten thousand
/// such links.
#[derive(Debug)]
struct Idle {
    /// Constant rate and delay, drop-tail, nothing lost or varied: an idle link's answer needs no more than what is here.
    plain: bool,
    /// The last packet came this way, and the queue has not been told.
    untold: bool,
    /// The largest packet it takes.
    mtu: u32,
    /// When the transmitter has sent all it has taken.
    free: Time,
    /// The last size, and how long the transmitter takes for it.
    last: (Bytes, Span),
    delay: Span,
    /// Packets and bytes that came this way.
    packets: u64,
    bytes: Bytes,
}

#[derive(Debug)]
struct Rest {
    arq: Option<Arq>,
    queue: QueueState,
    transmitter: Transmitter,
    loss: LossState,
    propagation: Propagation,
    counts: Counts,
    waited: Span,
}

impl Link {
    /// A link that draws from parts `<name>.queue`, `<name>.loss` and `<name>.jitter` of the seed.
    pub fn new(config: &Config, name: &str, seed: Seed) -> Self {
        let part = |what: &str| seed.part(&format!("link.{name}.{what}"));
        let roomy = match config.queue {
            Queue::DropTail(Amount::Packets(most)) => most > 0,
            Queue::DropTail(Amount::Bytes(most)) => most >= config.mtu,
            Queue::Red(_) => false,
        };
        let steady = match &config.service {
            Service::Unlimited => true,
            Service::Rate(steps) => steps.as_constant().is_some(),
            Service::Trace(_) => false,
        };
        let delay = config.delay.as_constant().copied();
        let harmless =
            config.loss.as_constant() == Some(&Loss::None) && config.arq.is_none() && config.jitter.is_none();
        let idle = Idle {
            plain: roomy && steady && harmless && delay.is_some(),
            untold: false,
            mtu: u32::try_from(config.mtu.get()).unwrap_or(u32::MAX),
            free: Time::ZERO,
            last: (Bytes::ZERO, Span::ZERO),
            delay: delay.unwrap_or(Span::ZERO),
            packets: 0,
            bytes: Bytes::ZERO,
        };
        let rest = Rest {
            arq: config.arq,
            queue: QueueState::new(&config.queue, part("queue")),
            transmitter: Transmitter::new(&config.service),
            loss: LossState::new(&config.loss, part("loss")),
            propagation: Propagation::new(&config.delay, config.jitter, part("jitter")),
            counts: Counts::default(),
            waited: Span::ZERO,
        };
        Self { idle, rest: Box::new(rest) }
    }

    /// Offers a packet at `now`, which is never earlier than at the call before.
    #[inline]
    pub fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        let idle = &mut self.idle;
        if !idle.plain || now < idle.free || size.get() > u64::from(idle.mtu) {
            return self.offer_to_rest(now, size, ecn);
        }
        if idle.last.0 != size {
            idle.last = (size, self.rest.transmitter.span(now, size));
        }
        let done = now + idle.last.1;
        idle.free = done;
        idle.untold = true;
        idle.packets += 1;
        idle.bytes += size;
        Fate::Arrives { at: done + idle.delay, ecn }
    }

    /// Brings the parts up to date that an idle link's packets pass by.
    fn tell(&mut self) {
        if std::mem::take(&mut self.idle.untold) {
            // Of all those packets only the last can still be there.
            self.rest.queue.admitted(self.idle.last.0, self.idle.free);
            self.rest.transmitter.passed_by(self.idle.free);
            self.rest.waited = Span::ZERO;
        }
    }

    fn offer_to_rest(&mut self, now: Time, size: Bytes, ecn: Ecn) -> Fate {
        self.tell();
        let fate = self.rest.offer(now, size, ecn, self.idle.mtu);
        self.idle.free = self.rest.transmitter.free_at();
        fate
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let mut counts = self.rest.counts.clone();
        counts.offered += self.idle.packets;
        counts.sent += self.idle.bytes;
        counts.wait.add_zeros(self.idle.packets);
        counts
    }

    /// [`Counts::sent`] so far.
    pub fn sent(&self) -> Bytes {
        self.rest.counts.sent + self.idle.bytes
    }

    /// [`Counts::dropped`] so far.
    pub const fn dropped(&self) -> u64 {
        self.rest.counts.dropped()
    }

    /// How long the packet of the last [`Link::offer`] waits for the transmitter.
    pub const fn waited(&self) -> Span {
        if self.idle.untold { Span::ZERO } else { self.rest.waited }
    }

    /// Whether the last packet that was taken found this link idle, and everything about the link constant: then how long it is under
    /// way depends on its size alone.
    #[inline]
    pub const fn was_idle(&self) -> bool {
        self.idle.untold
    }

    /// Packets in the queue at `now`, the one on the transmitter included.
    pub fn queued(&mut self, now: Time) -> usize {
        self.tell();
        self.rest.queue.length(now)
    }

    /// What it could have carried from its start to `until`; `None` when its rate is unlimited.
    pub fn capacity(&self, from: Time, until: Time) -> Option<Bytes> {
        self.rest.transmitter.capacity(from, until)
    }

    /// Its rate at `now`; `None` when unlimited or given by a trace.
    pub fn rate(&self, now: Time) -> Option<Rate> {
        self.rest.transmitter.rate(now)
    }
}

impl Rest {
    fn offer(&mut self, now: Time, size: Bytes, ecn: Ecn, mtu: u32) -> Fate {
        self.counts.offered += 1;
        if size.get() > u64::from(mtu) {
            self.counts.too_large += 1;
            return Fate::Dropped(Drop::TooLarge);
        }
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
        let mut done = self.transmitter.send(start, size);
        self.counts.sent += size;
        let mut lost = self.loss.next(done);
        if let Some(arq) = self.arq {
            let mut tries = 1;
            while lost && tries < arq.tries {
                done = self.transmitter.send(done + arq.per_try, size);
                self.counts.sent += size;
                lost = self.loss.next(done);
                tries += 1;
            }
        }
        self.queue.admitted(size, done);
        if lost {
            self.counts.lost += 1;
            return Fate::Dropped(Drop::Lost);
        }
        Fate::Arrives { at: self.propagation.arrival(done), ecn }
    }
}
