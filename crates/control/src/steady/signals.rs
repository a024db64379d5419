//! What a sender knows of its path from reports of single packets: base delay, queueing delay, rates and losses.

use super::constants::*;
use super::packet::{ArrivedPacket, Loss, drop_old};
use super::trains::{Train, TrainMonitor};
use crate::PacketReport;
use crate::fields::ABSURD_RTT;
use std::collections::VecDeque;
use steadycast_units::{OneWay, PeerTime, Span, Time};

/// Packets that are remembered in flight: as many as a session joins with reports.
const MOST_IN_FLIGHT: usize = 1 << 14;
/// Arrivals that are remembered, whatever the rate.
const MOST_ARRIVALS: usize = 1 << 15;
/// RttSource-trip time before the first measurement, in seconds.
pub(super) const INITIAL_RTT: f64 = 0.5 * CUT_SCALE;

/// The least value of the last while, by seconds.
#[derive(Clone, Debug, Default)]
struct Least(VecDeque<(u64, f64)>);

impl Least {
    fn add(&mut self, now: f64, value: f64) {
        match self.0.back_mut() {
            Some((second, least)) if *second >= now as u64 => *least = least.min(value),
            _ => self.0.push_back((now as u64, value)),
        }
    }

    /// Forgets what is older than `seconds`; the least of the rest.
    fn of(&mut self, now: f64, seconds: u64) -> Option<f64> {
        let from = (now as u64).saturating_sub(seconds);
        while self.0.len() > 1 && self.0.front().is_some_and(|(second, _)| *second < from) {
            self.0.pop_front();
        }
        self.0.iter().map(|(_, value)| *value).min_by(f64::total_cmp)
    }
}

#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    size: u64,
    sent: f64,
    /// How much later it would have left, had all left at the pacing rate and no faster, and what its being early makes
    /// of a queue that is served at the rate, in seconds.
    early: f64,
    own: f64,
    /// Known once its arrival has been told.
    delay: Option<f64>,
    /// Feedback tells of later packets and not of this one: it is neither in flight nor lost.
    unknown: bool,
}

/// How a source's packets leave that may leave faster than others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// The rate, in bit/s, and how many times as fast the law has them leave.
    pub(super) rate: f64,
    pub(super) pacing: f64,
    /// The longest queue that is taken for a burst's own, in seconds.
    pub(super) most: f64,
}

/// What one report brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FeedbackSummary {
    /// Packets whose arrival it is the first to tell of, and those of them that carry CE.
    pub(super) arrived: u32,
    pub(super) marked: u32,
    /// Packets that are lost by now.
    pub(super) lost: u32,
    /// The same, where several in a row count once.
    pub(super) runs: u32,
    /// Packets that were told to be lost, and have come.
    pub(super) late: u32,
    /// The newest of the lost packets.
    pub(super) loss: Option<Loss>,
    /// When the newest packet with CE left.
    pub(super) latest_marked: Option<f64>,
    /// The rates at which some packets in a row left and arrived, all of which waited.
    pub(super) rows: Vec<(f64, f64)>,
    /// TrainMonitor that have arrived.
    pub(super) trains: Vec<Train>,
}

/// What became of the packets of one report.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: f64,
    arrived: u32,
    lost: u32,
    runs: u32,
}

/// Where a round-trip time comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum RttSource {
    /// The sender's own measurement; without one, the age of the newest packet that the report tells of.
    Measured(Option<Span>),
    /// What the sender told a receiver, if it has.
    FromSender(Option<Span>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    flight: VecDeque<Out>,
    last_number: Option<u64>,
    highest: Option<u64>,
    /// When packets left, and the bytes that had left up to and with them.
    sent: VecDeque<(f64, u64)>,
    sent_bytes: u64,
    arrivals: VecDeque<ArrivedPacket>,
    arrived_bytes: u64,
    told: VecDeque<Told>,
    rates: VecDeque<(f64, f64)>,
    /// DelayLaw and arrival from which all others are counted.
    anchor: Option<(OneWay, PeerTime)>,
    /// The receiver's clock less ours at the last report.
    ahead: Option<f64>,
    delays: Least,
    base: f64,
    rtts: Least,
    /// Least round-trip time of ten minutes, in seconds.
    pub(super) base_rtt: f64,
    /// The last packet's queueing delay, in seconds.
    pub(super) q: f64,
    /// The packet with which a row of packets that all waited begins, and how many came after it.
    row: Option<(ArrivedPacket, u32)>,
    /// When the last packet left, and how early the next one was then; of sources that make bursts.
    bucket: Option<(f64, f64)>,
    /// Since when packets have been early.
    early_since: Option<f64>,
    /// When a packet left last that was much too early.
    burst_at: Option<f64>,
    /// DelayLaw of the last packet that arrived before the next one in flight.
    before: Option<f64>,
    /// Packets that were told to be lost lately, and for how long those were overtaken that have come, in seconds.
    gone: VecDeque<Out>,
    late: f64,
    /// When the packet with the highest number that has arrived left.
    newest: f64,
    /// The share of packets that came before others or with them, as none do that wait in a queue.
    mixed: f64,
    /// Arrival of the first packet after the path's last silence, in seconds of the receiver's clock.
    resumed_at: Option<f64>,
    /// What trains have told.
    pub(super) trains: TrainMonitor,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self { base_rtt: INITIAL_RTT, ..Self::default() }
    }

    /// `burst`: of sources whose packets may leave faster than that.
    pub(super) fn on_sent(&mut self, at: Time, number: u64, size: u64, burst: Option<Burst>) {
        let at = at.as_secs_f64();
        if self.last_number.is_some_and(|last| number <= last) {
            return;
        }
        self.last_number = Some(number);
        self.sent_bytes += size;
        let early = self.bucket.map_or(0.0, |(then, early)| (early - (at - then)).max(0.0));
        self.early_since = self.early_since.filter(|_| early > 0.0).or((early > 0.0).then_some(at));
        let counted = if self.early_since.is_some_and(|since| at - since > 0.5 * A_WHILE) { 0.0 } else { early };
        let own = burst.map_or(0.0, |burst| (counted * burst.pacing).min(burst.most));
        let left = (at + counted).max(self.sent.back().map_or(at, |(before, _)| *before));
        self.sent.push_back((left, self.sent_bytes));
        self.flight.push_back(Out { number, size, sent: at, early: counted, own, delay: None, unknown: false });
        if counted > DRAIN_ABOVE {
            self.burst_at = Some(at);
        }
        self.bucket = burst.map(|burst| {
            let most = burst.most / burst.pacing;
            (at, (early + 8.0 * size as f64 / (burst.pacing * burst.rate)).min(most))
        });
        if self.flight.len() > MOST_IN_FLIGHT {
            self.flight.pop_front();
        }
        drop_old(&mut self.sent, |(was, _)| *was < at - 2.0 * SEEN);
    }

    /// The sender's clock is another one: what was known of single packets is worthless.
    pub(super) fn restart(&mut self) {
        *self = Self { rtts: std::mem::take(&mut self.rtts), base_rtt: self.base_rtt, ..Self::default() };
    }

    /// Replaces the base delay by the least delay of the last `span` seconds. Forgets what was measured by the old one:
    /// the least round-trip time, which the next report gives anew, and the trains.
    pub(super) fn learn_path(&mut self, now: f64, span: f64) {
        let raised = self.least(span, |packet| packet.whole);
        self.base += raised;
        self.q = (self.q - raised).max(0.0);
        (self.delays, self.rtts, self.trains, self.row) = Default::default();
        self.delays.add(now, self.base);
    }

    /// A packet that has not come yet comes, late: when it left and what it measures are known now.
    pub(super) fn on_late(&mut self, at: Time, number: u64, size: u64) {
        if let Ok(place) = self.place(number) {
            (self.flight[place].sent, self.flight[place].size) = (at.as_secs_f64(), size);
        }
    }

    /// The fate of a packet is unknown. Its bytes count as arrived, and no more if its arrival is told later.
    pub(super) fn on_unknown(&mut self, number: u64) {
        if let Ok(place) = self.place(number)
            && let Some(out) = self.flight.get_mut(place).filter(|out| out.delay.is_none() && !out.unknown)
        {
            out.unknown = true;
            self.arrived_bytes += std::mem::take(&mut out.size);
        }
    }

    /// A packet of another stream has come, which has no number among these.
    pub(super) fn on_extra(&mut self, size: u64) {
        self.sent_bytes += size;
        self.arrived_bytes += size;
    }

    /// The round-trip time now: the least one and the queueing delay.
    pub(super) fn rtt(&self) -> f64 {
        self.base_rtt + self.q
    }

    /// Takes a report in. `keep`: for how many seconds a base delay is believed; `rate`: what the law asked for until
    /// now.
    pub(super) fn on_feedback(
        &mut self,
        at: Time,
        round: RttSource,
        packets: &[PacketReport],
        (rate, keep): (f64, u64),
    ) -> FeedbackSummary {
        let now = at.as_secs_f64();
        let mut news = FeedbackSummary::default();
        self.see_clock(now, packets);
        let mut newest: Option<f64> = None;
        for packet in packets {
            let Some(arrived) = packet.arrived else {
                self.miss(packet.number, &mut news);
                continue;
            };
            let Some(out) = self.take(packet.number, &mut news) else { continue };
            let delay = arrived.at.map(|at| self.arrive(now, &out, at));
            if delay.is_some() {
                news.rows.extend(self.row());
                news.trains.extend(self.train(out.size));
            }
            if let Ok(place) = self.place(out.number) {
                self.flight[place].delay = Some(delay.unwrap_or(self.base + self.q));
            }
            if self.highest < Some(out.number) {
                (self.highest, self.newest) = (Some(out.number), out.sent);
            }
            newest = Some(newest.map_or(out.sent, |sent| sent.max(out.sent)));
            news.arrived += 1;
            if arrived.ecn.is_some_and(|ecn| ecn.is_ce()) {
                news.marked += 1;
                news.latest_marked = Some(news.latest_marked.unwrap_or(0.0).max(out.sent));
            }
        }
        let round = match round {
            RttSource::Measured(rtt) => rtt.map(Span::as_secs_f64).or(newest.map(|sent| now - sent)),
            RttSource::FromSender(rtt) => rtt.map(Span::as_secs_f64),
        };
        if let Some(round) = round.filter(|r| *r > 0.0 && *r < ABSURD_RTT.as_secs_f64()) {
            self.rtts.add(now, round);
        }
        self.base_rtt = self.rtts.of(now, PATH_KEPT).unwrap_or(INITIAL_RTT).max(1e-3);
        self.base = self.delays.of(now, keep).unwrap_or(0.0);
        self.q = self.arrivals.back().map_or(0.0, |last| (last.delay - self.base).max(0.0));
        if let Some(told) = self.told.back() {
            self.late *= libm::exp2((told.at - now) / MEMORY);
        }
        self.count_losses(&mut news);
        self.told.push_back(Told { at: now, arrived: news.arrived, lost: news.lost, runs: news.runs });
        self.rates.push_back((now, rate));
        drop_old(&mut self.told, |told| told.at < now - SEEN);
        drop_old(&mut self.rates, |(at, _)| *at < now - SEEN);
        drop_old(&mut self.gone, |out| out.sent < now - SEEN);
        news
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.flight.binary_search_by_key(&number, |out| out.number)
    }

    /// The packet whose arrival is told for the first time. One that was told to be lost shows how late packets come.
    fn take(&mut self, number: u64, news: &mut FeedbackSummary) -> Option<Out> {
        if let Ok(place) = self.place(number) {
            return Some(self.flight[place]).filter(|out| out.delay.is_none());
        }
        let place = self.gone.binary_search_by_key(&number, |out| out.number).ok()?;
        let out = self.gone.remove(place)?;
        if out.unknown {
            return Some(out);
        }
        // As RFC 8985's reordering window that grows only by what did come, and to two round trips.
        self.late = self.late.max((1.0 + A_QUARTER) * (self.newest - out.sent)).min(2.0 * self.rtt());
        news.late += 1;
        if let Some(told) = self.told.iter_mut().rev().find(|told| told.lost > 0) {
            told.lost -= 1;
            told.runs = told.runs.min(told.lost);
        }
        Some(out)
    }

    /// A report tells that a packet has not arrived. One whose fate was unknown is lost now, or once later ones have
    /// overtaken it.
    fn miss(&mut self, number: u64, news: &mut FeedbackSummary) {
        if let Ok(place) = self.place(number) {
            self.flight[place].unknown = false;
        } else if let Ok(place) = self.gone.binary_search_by_key(&number, |out| out.number)
            && let Some(out) = self.gone.get_mut(place).filter(|out| out.unknown)
        {
            out.unknown = false;
            let sent = out.sent;
            let before = place.checked_sub(1).and_then(|place| self.gone.get(place));
            news.runs += u32::from(before.is_none_or(|last| last.unknown || last.number + 1 != number));
            news.lost += 1;
            let newest = news.loss.filter(|loss| loss.sent > sent);
            news.loss = newest.or_else(|| Some(self.loss_at(sent, self.before.unwrap_or(self.base))));
        }
    }

    /// A loss of a packet that left at `sent`, where the packet before it took `delay`.
    fn loss_at(&self, sent: f64, delay: f64) -> Loss {
        Loss { sent, q: (delay - self.base).max(0.0), rank: self.rank(delay) }
    }

    /// The packets that have arrived since then, the newest first.
    fn lately(&self, from: f64) -> impl Iterator<Item = &ArrivedPacket> {
        self.arrivals.iter().rev().take_while(move |a| a.at >= from)
    }

    /// A receiver's clock that jumps makes all delays so far worthless.
    fn see_clock(&mut self, now: f64, packets: &[PacketReport]) {
        let Some(peer) = packets.iter().rev().find_map(|p| p.arrived?.at) else { return };
        let ahead = peer.as_nanos() as f64 / 1e9 - now;
        if self.ahead.is_some_and(|before| (ahead - before).abs() > LATELY) {
            self.anchor = None;
            self.arrivals.clear();
            self.delays = Least::default();
            (self.before, self.resumed_at) = (None, None);
        }
        self.ahead = Some(ahead);
    }

    fn arrive(&mut self, now: f64, out: &Out, at: PeerTime) -> f64 {
        let way = OneWay::to_peer(Time::ZERO + Span::from_secs_f64(out.sent), at);
        let (first, begin) = *self.anchor.get_or_insert((way, at));
        let delay = way.variation_since(first).as_secs_f64().clamp(-LATELY, LATELY);
        let last = self.arrivals.back().map_or((f64::MIN, f64::MIN), |last| (last.at, last.came));
        let came = at.since(begin).as_secs_f64().max(last.1);
        self.arrived_bytes += out.size;
        self.delays.add(now, delay);
        let whole = delay;
        if self.arrivals.back().is_some_and(|before| whole - before.whole > PATH_SILENCE) {
            self.resumed_at = Some(came);
        }
        let delay = if out.own > 0.0 { (whole - out.own).max(self.base.min(whole)) } else { whole };
        let at = (came + (out.early - (whole - delay)).max(0.0)).max(last.0);
        let left = out.sent + out.early;
        self.mixed += LITTLE * LITTLE * (f64::from(u8::from(self.mixes(out.sent, came))) - self.mixed);
        self.arrivals.push_back(ArrivedPacket {
            left,
            at,
            delay,
            sent: out.sent,
            came,
            whole,
            bytes: self.arrived_bytes,
        });
        if self.arrivals.len() > MOST_ARRIVALS {
            self.arrivals.pop_front();
        }
        drop_old(&mut self.arrivals, |a| a.at < at - SEEN);
        whole
    }

    /// Whether a packet came before one that left before it, or with one that left a while before it. No queue does
    /// that: what leaves it is apart by the time of a packet.
    fn mixes(&self, sent: f64, came: f64) -> bool {
        let before = self.arrivals.iter().rev().find(|a| a.sent < sent - TRAIN_TIME);
        self.arrivals.back().is_some_and(|last| last.sent > sent)
            || before.is_some_and(|a| came - a.came < (sent - a.sent) / MANY)
    }

    /// The rates at which some packets in a row, that all waited, left and arrived, once they are enough.
    fn row(&mut self) -> Option<(f64, f64)> {
        let last = self.arrivals.back().copied()?;
        if last.whole - self.base < WAITS {
            self.row = None;
            return None;
        }
        let Some((first, count)) = self.row.as_mut() else {
            self.row = Some((last, 0));
            return None;
        };
        *count += 1;
        let (sent, came) = (last.sent - first.sent, last.came - first.came);
        if f64::from(*count) < FEW || came < 2.0 * DRAIN_ABOVE || sent <= 0.0 {
            return None;
        }
        let bits = 8.0 * (last.bytes - first.bytes) as f64;
        self.row = Some((last, 0));
        Some((bits / sent, bits / came))
    }

    /// The train that the packet which has just arrived ends, if it does.
    fn train(&mut self, size: u64) -> Option<Train> {
        let rate = self.rates.back().map_or(0.0, |(_, rate)| *rate);
        let (first, last) = self.trains.see(*self.arrivals.back()?, 8.0 * size as f64, rate)?;
        let (bits, took) = (8.0 * (last.bytes - first.bytes) as f64, last.came - first.came);
        // At a low rate it takes longer until so many have come.
        let enough = 2.0 * f64::from(SEVERAL) * 8.0 * size as f64 / rate.max(1.0);
        let span = self.rtt().max(RECEIVED_SPAN).max(enough.min(SEEN));
        let waited = self.up_to(&first, span).all(|a| a.whole - self.base >= WAITS);
        Some(Train { bits, took, before: self.before(&first, span), waited })
    }

    /// The packets that came in the `span` seconds up to `end`, the newest first.
    fn up_to(&self, end: &ArrivedPacket, span: f64) -> impl Iterator<Item = &ArrivedPacket> {
        let (sent, came) = (end.sent, end.came);
        self.arrivals.iter().rev().skip_while(move |a| a.sent > sent).take_while(move |a| a.came >= came - span)
    }

    /// Their rate, in bit/s, where they are enough and cover half of that time.
    fn before(&self, end: &ArrivedPacket, span: f64) -> Option<f64> {
        let first = self.up_to(end, span).last()?;
        let covered = end.came - first.came;
        let enough = self.up_to(end, span).count() >= SEVERAL as usize;
        (enough && covered > 0.5 * span).then(|| 8.0 * (end.bytes - first.bytes) as f64 / covered)
    }

    fn count_losses(&mut self, news: &mut FeedbackSummary) {
        let Some(highest) = self.highest else { return };
        let mut newest = None;
        let from = self.newest - self.late;
        let overtaken = |out: &Out| out.number.saturating_add(u64::from(ENOUGH)) <= highest && out.sent < from;
        while let Some(out) = self.flight.front().copied().filter(overtaken) {
            self.flight.pop_front();
            match out.delay {
                Some(delay) => self.before = Some(delay),
                None if out.unknown => self.gone.push_back(out),
                None => {
                    let last = self.gone.back().filter(|last| !last.unknown);
                    news.lost += 1;
                    news.runs += u32::from(last.is_none_or(|last| last.number + 1 != out.number));
                    self.gone.push_back(out);
                    newest = Some((out.sent, self.before.unwrap_or(self.base)));
                }
            }
        }
        if let Some((sent, delay)) = newest {
            news.loss = Some(self.loss_at(sent, delay));
        }
    }

    /// The share of remembered packets with a smaller delay; equal ones count half.
    fn rank(&self, delay: f64) -> f64 {
        let count = |below: fn(&f64, &f64) -> bool| self.arrivals.iter().filter(|a| below(&a.whole, &delay)).count();
        match self.arrivals.len() {
            0 => 0.5,
            all => (count(f64::lt) + count(f64::le)) as f64 / (2 * all) as f64,
        }
    }

    /// The least queueing delay of the packets that arrived in the last `span` seconds before the newest one.
    pub(super) fn low(&self, span: f64) -> f64 {
        self.least(span, |packet| packet.delay)
    }

    /// The same of another delay: [`ArrivedPacket::whole`] has the queue that a source's own bursts made.
    pub(super) fn least(&self, span: f64, delay: impl Fn(&ArrivedPacket) -> f64) -> f64 {
        let Some(newest) = self.arrivals.back() else { return 0.0 };
        (self.lately(newest.at - span).map(&delay).fold(delay(newest), f64::min) - self.base).max(0.0)
    }

    /// How much longer the packets of that time took in the mean than the one that took least, in seconds, where that
    /// is no queue's.
    pub(super) fn spread(&self, span: f64) -> f64 {
        let Some(newest) = self.arrivals.back() else { return 0.0 };
        let sum = |(sum, count): (f64, f64), a: &ArrivedPacket| (sum + a.delay, count + 1.0);
        let (sum, count) = self.lately(newest.at - span).fold((0.0, 0.0), sum);
        (self.mixed / LITTLE).min(1.0) * (sum / count - self.base - self.low(span)).max(0.0)
    }

    /// The first and the last packet that arrived in the last `span` seconds.
    fn ends(&self, span: f64) -> Option<(&ArrivedPacket, &ArrivedPacket)> {
        let newest = self.arrivals.back()?;
        let place = self.arrivals.partition_point(|a| a.at < newest.at - span.min(SEEN));
        Some((self.arrivals.get(place)?, newest))
    }

    /// Returns the seconds since the first packet after the path's last silence.
    pub(super) fn time_since_silence(&self) -> Option<f64> {
        let newest = self.arrivals.back()?;
        self.resumed_at.map(|at| newest.came - at)
    }

    /// Returns what [`Self::carries`] does, but only since the path's last silence: what did not arrive in the silence
    /// says nothing of the path after it. The first packets after it come at the rate of the last link, and say nothing
    /// either.
    pub(super) fn carries_since_silence(&self, span: f64, rate: f64) -> Option<f64> {
        let since = self.time_since_silence().filter(|since| *since >= PATH_RESUME_TIME);
        self.carries(since.map_or(span, |since| since.min(span)), rate)
    }

    /// The rate of what arrived in the last `span` seconds, three at most, in bit/s; `None` where packets cover less
    /// than a third of them.
    pub(super) fn received(&self, span: f64) -> Option<f64> {
        let (first, newest) = self.ends(span)?;
        let covered = newest.at - first.at;
        (covered >= EMPTY * span.min(SEEN) && covered > 0.0)
            .then(|| 8.0 * (newest.bytes - first.bytes) as f64 / covered)
    }

    /// What the path carries, in bit/s: what arrived in the last `span` seconds or, of a source that makes bursts and
    /// pauses, the part of `rate` that is left when its packets arrive over a longer time than they left in.
    pub(super) fn carries(&self, span: f64, rate: f64) -> Option<f64> {
        let received = self.received(span);
        let (first, newest) = self.ends(span)?;
        if self.burst_at.is_none_or(|at| at < newest.sent - SEEN) {
            return received;
        }
        let (came, left) = (newest.at - first.at, newest.left - first.left);
        let share = if came > EMPTY * span { (left / came).clamp(0.0, 1.0) } else { return received };
        Some(received.map_or(rate * share, |received| received.max(rate * share)))
    }

    /// The same, of a path that may just have become longer, so that nothing arrived for a while, and of a source whose
    /// small frames are all that came in a round trip: the most of that and of what passes of a source's pauses.
    pub(super) fn carries_lately(&self, rate: f64) -> Option<f64> {
        let rtt = self.rtt();
        let spans = [rtt.max(RECEIVED_SPAN), (2.0 * rtt).max(SILENCE)];
        spans.into_iter().filter_map(|span| self.carries(span, rate)).reduce(f64::max)
    }

    /// The rate up to which a law grows of which a source leaves most unused (RFC 7661, 4.3), in bit/s: no loss would
    /// tell of it.
    pub(super) fn usage_limit(&self) -> f64 {
        let used = self.received(A_WHILE);
        used.map_or(f64::INFINITY, |used| f64::from(SEVERAL) * MORE * used)
    }

    /// The rate of what was sent between two times, in bit/s.
    fn sent_rate(&self, from: f64, to: f64) -> f64 {
        let up_to = |time: f64| {
            let place = self.sent.partition_point(|(at, _)| *at < time);
            self.sent.get(place.saturating_sub(1)).map_or(0, |(_, bytes)| *bytes)
        };
        8.0 * up_to(to).saturating_sub(up_to(from)) as f64 / (to - from).max(1e-3)
    }

    /// How many times what the source sent in the last `span` seconds its rate was.
    pub(super) fn spare(&self, now: f64, span: f64) -> f64 {
        let lately = || self.rates.iter().rev().take_while(|(at, _)| *at > now - span);
        let mean = lately().map(|(_, rate)| *rate).sum::<f64>() / lately().count().max(1) as f64;
        mean / self.sent_rate(now - span, now).max(1.0)
    }

    /// Whether the source sent less than a part of what it might have, a round trip ago.
    pub(super) fn is_idle(&self, now: f64, part: f64) -> bool {
        let rtt = self.rtt();
        let least = self.rates.iter().map(|(_, rate)| *rate).min_by(f64::total_cmp);
        least.is_some_and(|least| self.sent_rate(now - rtt - CUT_SCALE, now - rtt) < part * least)
    }

    /// Packets told of in the last `span` seconds, three at most, and the shares of them that are lost, and lost with
    /// several in a row counted once.
    pub(super) fn loss_shares(&self, now: f64, span: f64) -> (u32, f64, f64) {
        let lately = self.told.iter().filter(|told| told.at > now - span);
        let sum = |(n, lost, runs), told: &Told| (n + told.arrived + told.lost, lost + told.lost, runs + told.runs);
        let (told, lost, runs) = lately.fold((0, 0, 0), sum);
        let share = |of: u32| f64::from(of) / f64::from(told.max(1));
        (told, share(lost), share(runs))
    }
}
