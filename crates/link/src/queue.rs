//! Where packets wait: the one list of queue disciplines, and what a discipline tells a link.

use crate::codel::{CoDel, FqCoDel};
use crate::dualpi2::DualPi2;
use crate::managed::Managed;
use crate::pie::Pie;
use crate::red::Red;
use crate::service::Transmitter;
use crate::{Drop, Ecn, Limit};
use std::collections::VecDeque;
use std::fmt::Debug;
use steadycast_units::{Bytes, Chance, Rate, Span, Time};
use steadycast_words::tree::{Item, Table};
use steadycast_words::{Findings, Kind, kinds, settings};

kinds! {
    /// What waits for a link, and what is dropped.
    Queue for Line, default "droptail",
        example "\"fq-codel\", \"100ms\" or { kind = \"fq-codel\", limit = \"100p\" }", short size {
        /// First come, first served; what does not fit is dropped.
        "droptail" => DropTail(DropTail), "a drop-tail queue";
        /// Random early detection (Floyd and Jacobson 1993).
        "red" => Red(Red), "a RED queue";
        /// Controlled delay (RFC 8289).
        "codel" => CoDel(CoDel), "a CoDel queue";
        /// CoDel for each of many queues, which take turns (RFC 8290).
        "fq-codel" => FqCoDel(FqCoDel), "a FQ-CoDel queue";
        /// Proportional integral controller enhanced (RFC 8033).
        "pie" => Pie(Pie), "a PIE queue";
        /// Dual-queue coupled AQM for L4S (RFC 9332).
        "dualpi2" => DualPi2(DualPi2), "a DualPI2 queue";
    }
}

/// A limit alone is that of a drop-tail queue.
fn size(item: &Item) -> Option<Table> {
    let begins = item.text()?.trim_start().chars().next()?;
    begins.is_ascii_digit().then(|| vec![("limit".to_owned(), item.clone())])
}

impl Queue {
    fn discipline(&self) -> &dyn Discipline {
        match self {
            Self::DropTail(queue) => queue,
            Self::Red(queue) => queue,
            Self::CoDel(queue) => queue,
            Self::FqCoDel(queue) => queue,
            Self::Pie(queue) => queue,
            Self::DualPi2(queue) => queue,
        }
    }

    /// Drop-tail with this limit.
    pub const fn drop_tail(limit: Limit) -> Self {
        Self::DropTail(DropTail { limit })
    }

    /// How much the queue holds.
    pub fn limit(&self) -> Limit {
        self.discipline().limit()
    }

    /// Reads it for a link; what is wrong goes to `out`.
    pub fn read(item: &Item, line: &Line, out: &mut Findings) -> Option<Self> {
        let queue = Self::read_for(item, line, out)?;
        needs_rate(queue.limit(), "limit", item, line, out).then_some(queue)
    }
}

/// The link that a queue is for, as far as the queue's settings derive from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Its rate when the run starts, or a trace's mean rate; `None`: unlimited.
    pub rate: Option<Rate>,
    /// Its propagation delay.
    pub delay: Span,
}

/// Whether a limit can be told on this link: a time needs a rate. What is wrong goes to `out`.
pub(crate) fn needs_rate(limit: Limit, key: &str, item: &Item, line: &Line, out: &mut Findings) -> bool {
    let fine = line.rate.is_some() || !matches!(limit, Limit::Time(_));
    if !fine {
        let remedy = "give the link a rate, or write for example \"50p\" (packets) or \"64kB\"";
        match item.get(key) {
            Some(said) => out.problem(&said.at, "a time without a rate is no amount", remedy),
            None => out.problem(&item.at, format!("its {key} is by default a time, and the link has no rate"), remedy),
        }
    }
    fine
}

/// What a queue's settings tell the link that is made with them. A discipline decides as packets come, or as they
/// leave, or neither.
pub(crate) trait Discipline {
    /// How much the queue holds.
    fn limit(&self) -> Limit;
    /// What decides as packets come.
    fn on_arrival(&self, _: Option<Rate>, _mtu: Bytes) -> Option<Box<dyn Admission>> {
        None
    }
    /// What decides as packets leave.
    fn on_departure(&self, _: Option<Rate>, _mtu: Bytes, _: Chance) -> Option<Managed> {
        None
    }
}

/// Decides about packets as they come.
pub(crate) trait Admission: Debug + Send + Sync {
    /// The packet's ECN field in the queue, or why it is dropped. A packet for which there is no room can't be taken.
    fn admit(&mut self, packet: &Arrival, chance: &mut Chance) -> Result<Ecn, Drop>;
}

/// A packet that comes, and the queue that it finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When it comes.
    pub(crate) now: Time,
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
    /// Whether it fits.
    pub(crate) room: bool,
    /// Packets in the queue, the one on the transmitter included …
    pub(crate) packets: usize,
    /// … and their bytes.
    pub(crate) bytes: u64,
    /// Bytes of the packet on the transmitter.
    pub(crate) on_air: u64,
    /// When the queue became empty last.
    pub(crate) empty_since: Time,
    /// When the transmitter will have sent all that it has taken.
    pub(crate) free: Time,
    /// The link's rate at present; `None`: unlimited, or given by a trace.
    pub(crate) rate: Option<Rate>,
}

settings! {
    /// First come, first served; what does not fit is dropped.
    #[derive(Copy)]
    DropTail {
        /// How much the queue holds.
        limit: Limit = Limit::Packets(50),
    }
}

impl Kind<Line> for DropTail {}

impl Discipline for DropTail {
    fn limit(&self) -> Limit {
        self.limit
    }
}

/// The queue of a link whose packets leave in the order in which they came, and never once they are in it.
#[derive(Debug)]
pub(crate) struct QueueState {
    /// In packets or in bytes.
    pub(crate) limit: Limit,
    /// With its generator; most queues have none.
    admission: Option<Box<(Box<dyn Admission>, Chance)>>,
    /// Each packet that has been admitted and not yet left.
    waiting: VecDeque<Waiting>,
    bytes: u64,
    empty_since: Time,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    departure: Time,
    size: u32,
    /// What the transmitter spends on it: more than its size when it is repeated.
    spent: u32,
}

impl QueueState {
    pub(crate) fn new(queue: &Queue, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Self {
        let discipline = queue.discipline();
        Self {
            limit: discipline.limit().on(rate, mtu),
            admission: discipline.on_arrival(rate, mtu).map(|admission| Box::new((admission, chance))),
            waiting: VecDeque::new(),
            bytes: 0,
            empty_since: Time::ZERO,
        }
    }

    /// Whether it takes all packets for which there is room.
    pub(crate) const fn is_plain(&self) -> bool {
        self.admission.is_none()
    }

    #[inline]
    fn leave(&mut self, now: Time) {
        while let Some(&Waiting { departure, size, .. }) = self.waiting.front() {
            if departure > now {
                break;
            }
            self.waiting.pop_front();
            self.bytes -= u64::from(size);
            self.empty_since = departure;
        }
    }

    /// Forgets what it holds.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Departure of each packet that has not left at `now`, and what the transmitter spends on it.
    pub(crate) fn unsent(&self, now: Time) -> impl Iterator<Item = (Time, Bytes)> {
        let waiting = self.waiting.iter().skip_while(move |packet| packet.departure <= now);
        waiting.map(|packet| (packet.departure, Bytes::new(u64::from(packet.spent))))
    }

    pub(crate) fn length(&mut self, now: Time) -> usize {
        self.leave(now);
        self.waiting.len()
    }

    /// Whether there is room at `now`.
    #[inline]
    pub(crate) fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        self.leave(now);
        self.limit.takes(self.waiting.len(), self.bytes, size)
    }

    pub(crate) fn admit(&mut self, now: Time, size: Bytes, ecn: Ecn, link: &Transmitter) -> Result<Ecn, Drop> {
        let room = self.has_room(now, size);
        let Some(admission) = self.admission.as_deref_mut() else { return room.then_some(ecn).ok_or(Drop::Full) };
        let packet = Arrival {
            now,
            size,
            ecn,
            room,
            packets: self.waiting.len(),
            bytes: self.bytes,
            on_air: self.waiting.front().map_or(0, |first| u64::from(first.size)),
            empty_since: self.empty_since,
            free: link.free_at(),
            rate: link.rate(now),
        };
        let (admission, chance) = admission;
        admission.admit(&packet, chance)
    }

    #[inline]
    pub(crate) fn admitted(&mut self, size: Bytes, departure: Time, spent: Bytes) {
        self.waiting.push_back(Waiting { departure, size: size.get() as u32, spent: spent.get() as u32 });
        self.bytes += size.get();
    }
}

/// What decides when packets leave, where a queue does.
pub(crate) fn managed(queue: &Queue, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
    queue.discipline().on_departure(rate, mtu, chance)
}
