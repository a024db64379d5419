//! The queue disciplines, and the interface between them and a link.

use crate::codel::{CoDel, FqCoDel};
use crate::dualpi2::DualPi2;
use crate::managed::Managed;
use crate::pie::Pie;
use crate::red::Red;
use crate::service::Transmitter;
use crate::{Drop, Ecn, Limit};
use std::collections::VecDeque;
use std::fmt::Debug;
use steadycast_settings::tree::{Item, Table};
use steadycast_settings::{Findings, Kind, kinds, settings};
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

kinds! {
    /// The queue of a link, which packets wait in, and which drops or marks them.
    Queue for LinkProperties, default "droptail",
        example "\"fq-codel\", \"100ms\" or { kind = \"fq-codel\", limit = \"100p\" }", short size {
        /// first in, first out; a packet that does not fit is dropped.
        "droptail" => DropTail(DropTail), "a drop-tail queue";
        /// random early detection (Floyd and Jacobson 1993).
        "red" => Red(Red), "a RED queue";
        /// controlled delay (RFC 8289).
        "codel" => CoDel(CoDel), "a CoDel queue";
        /// fair queueing between flows, with CoDel in each flow's queue (RFC 8290).
        "fq-codel" => FqCoDel(FqCoDel), "a FQ-CoDel queue";
        /// proportional integral controller enhanced (RFC 8033).
        "pie" => Pie(Pie), "a PIE queue";
        /// dual-queue coupled AQM for L4S (RFC 9332).
        "dualpi2" => DualPi2(DualPi2), "a DualPI2 queue";
    }
}

/// Reads a plain limit as a drop-tail queue. An example is "100ms".
fn size(item: &Item) -> Option<Table> {
    let begins = item.text()?.trim_start().chars().next()?;
    // Only a limit begins with a digit. The name of a discipline never does.
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

    /// Creates a drop-tail queue. `limit` is its maximum length.
    pub const fn drop_tail(limit: Limit) -> Self {
        Self::DropTail(DropTail { limit })
    }

    /// Returns the maximum length of the queue.
    pub fn limit(&self) -> Limit {
        self.discipline().limit()
    }

    /// Reads the queue of a link from `item`. Adds a problem to `out` and returns `None` if it is not valid.
    pub fn read(item: &Item, line: &LinkProperties, out: &mut Findings) -> Option<Self> {
        let queue = Self::read_for(item, line, out)?;
        needs_rate(queue.limit(), "limit", item, line, out).then_some(queue)
    }
}

/// The properties of a link that the settings of its queue depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkProperties {
    /// Rate at the start, or mean rate of a trace. `None` if the rate is unlimited.
    pub rate: Option<Rate>,
    /// The propagation delay.
    pub delay: Span,
    /// What messages call the link: [`LinkProperties::LINK`], or the direction of the link that has this queue.
    pub called: &'static str,
}

impl LinkProperties {
    /// The name of a link that has the same properties in both directions.
    pub const LINK: &'static str = "the link";
}

/// Checks that the link has a rate if `limit` is a time. If it has none, adds a problem to `out` and returns false.
pub(crate) fn needs_rate(limit: Limit, key: &str, item: &Item, line: &LinkProperties, out: &mut Findings) -> bool {
    let fine = line.rate.is_some() || !matches!(limit, Limit::Time(_));
    if !fine {
        let link = line.called;
        let remedy = format!("give {link} a rate above 0, or write for example \"50p\" (packets) or \"64kB\"");
        match item.get(key) {
            Some(said) => {
                let what = format!("a limit in time needs the rate of {link}, which has none, or 0");
                out.problem(&said.at, what, remedy);
            }
            None => {
                let what = format!("its {key} is by default a time, and {link} has no rate, or 0");
                out.problem(&item.at, what, remedy);
            }
        }
    }
    fine
}

/// The settings of a queue discipline.
pub(crate) trait Discipline {
    fn limit(&self) -> Limit;
    /// Returns the algorithm that drops or marks packets when they arrive, if the discipline has one.
    fn on_arrival(&self, _: Option<Rate>, _mtu: Bytes) -> Option<Box<dyn EnqueueAqm>> {
        None
    }
    /// Returns the algorithm that drops or marks packets when they are dequeued, if the discipline has one.
    fn on_departure(&self, _: Option<Rate>, _mtu: Bytes, _: Chance) -> Option<Managed> {
        None
    }
}

/// An AQM algorithm that drops or marks packets when they arrive.
pub(crate) trait EnqueueAqm: Debug + Send + Sync {
    /// Returns the packet's new ECN field, or the reason why the packet is dropped. The packet must be dropped if
    /// [`Arrival::room`] is false.
    fn admit(&mut self, packet: &Arrival, chance: &mut Chance) -> Result<Ecn, Drop>;
}

/// An arriving packet, and the state of the queue before the packet is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Time,
    pub(crate) size: Bytes,
    pub(crate) ecn: Ecn,
    /// Whether the packet fits into the queue.
    pub(crate) room: bool,
    /// Number of queued packets, including the packet on the transmitter.
    pub(crate) packets: usize,
    /// Number of queued bytes, including the packet on the transmitter.
    pub(crate) bytes: u64,
    /// Size of the packet on the transmitter in bytes, or 0.
    pub(crate) on_air: u64,
    /// When the queue last became empty.
    pub(crate) empty_since: Time,
    /// When the transmitter becomes free.
    pub(crate) free: Time,
    /// Rate at present. `None` if it is unlimited or comes from a trace.
    pub(crate) rate: Option<Rate>,
}

settings! {
    /// First come, first served; a packet that does not fit is dropped.
    #[derive(Copy)]
    DropTail {
        /// The maximum length of the queue, in packets, bytes or time.
        limit: Limit = Limit::Packets(50),
    }
}

impl Kind<LinkProperties> for DropTail {}

impl Discipline for DropTail {
    fn limit(&self) -> Limit {
        self.limit
    }
}

/// A FIFO queue. A packet that is in the queue is never dropped.
#[derive(Debug)]
pub(crate) struct QueueState {
    /// Maximum length in packets or bytes.
    pub(crate) limit: Limit,
    /// The AQM that decides on arrival. It is boxed because most queues have none.
    admission: Option<Box<(Box<dyn EnqueueAqm>, Chance)>>,
    /// The packets that have not departed yet.
    waiting: VecDeque<Waiting>,
    bytes: u64,
    empty_since: Time,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    departure: Time,
    size: u32,
    /// Bytes that the transmitter sends for the packet, including link-layer retransmissions.
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

    /// Returns whether every packet that fits is admitted.
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

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Returns the departure and [`Waiting::spent`] of each packet that has not departed at `now`.
    pub(crate) fn unsent(&self, now: Time) -> impl Iterator<Item = (Time, Bytes)> {
        let waiting = self.waiting.iter().skip_while(move |packet| packet.departure <= now);
        waiting.map(|packet| (packet.departure, Bytes::new(u64::from(packet.spent))))
    }

    pub(crate) fn length(&mut self, now: Time) -> usize {
        self.leave(now);
        self.waiting.len()
    }

    #[inline]
    pub(crate) fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        self.leave(now);
        self.limit.fits(self.waiting.len(), self.bytes, size)
    }

    pub(crate) fn admit(&mut self, now: Time, size: Bytes, ecn: Ecn, link: &Transmitter) -> Result<Ecn, Drop> {
        let room = self.has_room(now, size);
        let Some(admission) = self.admission.as_deref_mut() else { return room.then_some(ecn).ok_or(Drop::Full) };
        // Describe the queue without the new packet to the AQM.
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

pub(crate) fn managed(queue: &Queue, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
    queue.discipline().on_departure(rate, mtu, chance)
}
