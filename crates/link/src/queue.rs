use crate::service::Transmitter;
use crate::{Drop, Ecn};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Chance, Rate, Span, Time};

/// A limit, in packets or in bytes. The packet on the transmitter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many packets.
    Packets(u32),
    /// So many bytes.
    Bytes(Bytes),
}

/// Random early detection (Floyd and Jacobson 1993), with the gentle slope above the upper threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Above this, everything is dropped.
    pub limit: Amount,
    /// Below this average nothing is dropped; in packets, or in mean packets when `by_bytes`.
    pub min: f64,
    /// At this average the drop probability is `max_p`.
    pub max: f64,
    /// See `max`.
    pub max_p: f64,
    /// Weight of the present length in its average.
    pub weight: f64,
    /// Between `max` and 2·`max` the probability rises from `max_p` to 1, instead of jumping.
    pub gentle: bool,
    /// The average is of bytes, thresholds are in mean packets, and a packet's probability is in proportion to its size.
    pub by_bytes: bool,
    /// What counts as one packet, for thresholds and for the ageing of the average while idle.
    pub mean_packet: Bytes,
    /// Mark packets that are ECN-capable instead of dropping them, up to the upper threshold.
    pub ecn: bool,
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Above this, everything is dropped.
    pub limit: Amount,
    /// What a standing queue may make packets wait.
    pub target: Span,
    /// How long they may wait longer before the first is dropped.
    pub interval: Span,
    /// Mark packets that are ECN-capable instead of dropping them.
    pub ecn: bool,
}

/// CoDel for each of many queues, which take turns (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// For each queue; the limit is for all of them together, and what is beyond it is taken from the longest.
    pub codel: CoDel,
    /// Queues that flows are hashed into.
    pub flows: u32,
    /// What a queue may send in its turn.
    pub quantum: Bytes,
}

/// Where packets wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// First in, first out, up to a limit.
    DropTail(Amount),
    /// Random early detection.
    Red(Red),
    /// Controlled delay.
    CoDel(CoDel),
    /// Controlled delay with a queue for each flow.
    FqCoDel(FqCoDel),
}

impl Queue {
    const fn limit(&self) -> Amount {
        match self {
            Self::DropTail(limit)
            | Self::Red(Red { limit, .. })
            | Self::CoDel(CoDel { limit, .. })
            | Self::FqCoDel(FqCoDel { codel: CoDel { limit, .. }, .. }) => *limit,
        }
    }
}

#[derive(Debug)]
pub(crate) struct QueueState {
    kind: Queue,
    /// Departure and size of each packet that has been admitted and not yet left.
    waiting: VecDeque<(Time, u32)>,
    bytes: u64,
    red: RedState,
    chance: Chance,
}

#[derive(Debug, Default)]
struct RedState {
    average: f64,
    /// Packets since the last drop; `None` below the lower threshold.
    since: Option<u64>,
    empty_since: Time,
}

impl QueueState {
    pub(crate) fn new(kind: &Queue, chance: Chance) -> Self {
        Self { kind: *kind, waiting: VecDeque::new(), bytes: 0, red: RedState::default(), chance }
    }

    #[inline]
    fn leave(&mut self, now: Time) {
        while let Some(&(departure, size)) = self.waiting.front() {
            if departure > now {
                break;
            }
            self.waiting.pop_front();
            self.bytes -= u64::from(size);
            self.red.empty_since = departure;
        }
    }

    pub(crate) fn length(&mut self, now: Time) -> usize {
        self.leave(now);
        self.waiting.len()
    }

    /// Whether there is room at `now`.
    #[inline]
    pub(crate) fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        self.leave(now);
        self.fits(size, self.kind.limit())
    }

    pub(crate) fn admit(&mut self, now: Time, size: Bytes, ecn: Ecn, link: &Transmitter) -> Result<Ecn, Drop> {
        let room = self.has_room(now, size);
        match self.kind {
            // CoDel's packets wait in [`crate::managed::Managed`].
            Queue::DropTail(_) | Queue::CoDel(_) | Queue::FqCoDel(_) => room.then_some(ecn).ok_or(Drop::Full),
            Queue::Red(red) => {
                let early = self.early(&red, now, size, link.rate(now));
                if !room {
                    self.red.since = Some(0);
                    return Err(Drop::Full);
                }
                match (early, ecn) {
                    (false, _) => Ok(ecn),
                    (true, ecn) if ecn.is_capable() && red.ecn && self.red.average < red.max => Ok(Ecn::Ce),
                    (true, _) => Err(Drop::Early),
                }
            }
        }
    }

    #[inline]
    pub(crate) fn admitted(&mut self, size: Bytes, departure: Time) {
        self.waiting.push_back((departure, size.get() as u32));
        self.bytes += size.get();
    }

    #[inline]
    fn fits(&self, size: Bytes, limit: Amount) -> bool {
        match limit {
            Amount::Packets(most) => self.waiting.len() < most as usize,
            Amount::Bytes(most) => self.bytes + size.get() <= most.get(),
        }
    }

    /// Whether RED wants this packet gone; moves the average.
    fn early(&mut self, red: &Red, now: Time, size: Bytes, rate: Option<Rate>) -> bool {
        // As in ns-2 the packet on the transmitter is not part of the length that is averaged.
        let head = self.waiting.front().map_or(0, |(_, size)| u64::from(*size));
        let length = if red.by_bytes {
            (self.bytes - head) as f64 / red.mean_packet.as_f64()
        } else {
            self.waiting.len().saturating_sub(1) as f64
        };
        let state = &mut self.red;
        if self.waiting.is_empty() {
            // While idle, the average ages as if empty places had been seen at the rate of mean packets.
            let one = rate.map_or(0, |r| red.mean_packet.at(r).as_nanos()).max(1);
            let missed = now.since(state.empty_since).as_nanos() / one;
            state.average *= libm::pow(1.0 - red.weight, missed as f64 + 1.0);
        } else {
            state.average += red.weight * (length - state.average);
        }
        let average = state.average;
        if average < red.min {
            state.since = None;
            return false;
        }
        let Some(since) = state.since else {
            state.since = Some(0);
            return false;
        };
        let since = since + 1;
        state.since = Some(since);
        let base = if average < red.max {
            red.max_p * (average - red.min) / (red.max - red.min)
        } else if red.gentle && average < 2.0 * red.max {
            red.max_p + (1.0 - red.max_p) * (average - red.max) / red.max
        } else {
            1.0
        };
        let p = if red.by_bytes { base * size.as_f64() / red.mean_packet.as_f64() } else { base };
        // Drops are spread evenly: none within 1/p packets of the last one, certain within 2/p.
        let count = since as f64 * p;
        let p = if base >= 1.0 || count >= 2.0 {
            1.0
        } else if count < 1.0 {
            0.0
        } else {
            (p / (2.0 - count)).min(1.0)
        };
        if p > 0.0 && (p >= 1.0 || self.chance.happens(p)) {
            state.since = Some(0);
            return true;
        }
        false
    }
}
