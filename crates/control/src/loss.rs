//! Computes the loss event rate at a TFRC receiver (RFC 5348, section 5).

use crate::equation::LossRate;
use std::collections::VecDeque;
use steadycast_units::{Span, Time};

/// Number of closed loss intervals in the average. The RFC calls it n.
pub const INTERVALS: usize = 8;
/// Weights of the loss intervals, newest first (RFC 5348, section 5.4).
pub const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Maximum number of loss runs that are stored because a late packet may change them.
const OPEN_RUNS: usize = 128;

/// Settings in which the protocols that use this history differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSettings {
    /// Minimum discount factor (section 5.5). It is 0.25 in RFC 5348, and 0.5 in RFC 4654 and ns-2. A value of 1
    /// disables discounting.
    pub discount: f64,
    /// A missing packet counts as lost once this number of later packets has arrived. It is 3 in RFC 5348, and at least
    /// 1.
    pub ndupack: u32,
    /// Maximum difference, in packets, between a late packet and the highest packet. If a packet arrives even later,
    /// the loss remains counted.
    pub reorder: u64,
}

impl Default for LossSettings {
    fn default() -> Self {
        Self { discount: 0.25, ndupack: 3, reorder: u64::MAX }
    }
}

/// A packet that has arrived. It is given to [`LossHistory::on_packet`].
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket {
    /// Extended sequence number.
    pub seq: u64,
    /// When the packet arrived.
    pub at: Time,
    /// Whether the packet is marked CE. A marked packet counts as lost.
    pub ce: bool,
    /// Current round-trip time. Losses within a round-trip time are one loss event (RFC 5348, section 5.2).
    pub rtt: Span,
}

/// How an arrival changes the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether a new loss event has begun.
    pub new_loss_event: bool,
    /// Whether a late packet has removed a loss event.
    pub removed_loss_event: bool,
    /// Number of packets that newly count as lost or marked.
    pub lost: u64,
    /// Whether a packet has arrived that already counted as lost.
    pub late: bool,
}

/// A run of successive lost packets, or a single marked packet.
#[derive(Clone, Copy, Debug)]
struct LossRun {
    first: u64,
    last: u64,
    /// Sequence number and arrival time of the packet before the gap. They stay the same if a late packet splits the
    /// gap.
    before: (u64, Time),
    /// Sequence number and arrival time of the packet after the gap.
    after: (u64, Time),
    rtt: Span,
}

impl LossRun {
    /// Returns when packet `seq` was lost, interpolated between the packets before and after the gap (RFC 5348, section
    /// 5.2).
    ///
    /// ```text
    ///                                            S_loss − S_before
    ///  T_loss = T_before + (T_after − T_before) · ──────────────────
    ///                                            S_after − S_before
    /// ```
    fn time(&self, seq: u64) -> Time {
        let gap = u128::from(self.after.0.saturating_sub(self.before.0));
        // A marked packet has no gap around it, so nothing is interpolated.
        if gap == 0 {
            return self.after.1;
        }
        let part =
            u128::from(self.after.1.since(self.before.1).as_nanos()) * u128::from(seq.saturating_sub(self.before.0));
        self.before.1 + Span::nanos(u64::try_from(part / gap).unwrap_or(u64::MAX))
    }

    fn after(&self, from: u64, at: Time) -> Option<u64> {
        if self.time(self.last) <= at {
            return None;
        }
        let (mut low, mut high) = (from, self.last);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time(middle) > at {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

/// A gap in the sequence numbers. Its packets do not count as lost yet, because they may still arrive.
#[derive(Clone, Copy, Debug)]
struct Gap {
    run: LossRun,
    /// Number of packets that have arrived although they were sent after the gap.
    overtaken: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    packets: f64,
    /// Discount factor DF_i of this interval (RFC 5348, section 5.5).
    discount: f64,
    /// Whether this is the interval before the first loss. Its length was computed from the rate (RFC 5348, section
    /// 6.3.1).
    derived: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Events {
    closed: [Interval; INTERVALS],
    count: usize,
    /// First lost packet of the latest loss event, and when it was lost.
    latest: Option<(u64, Time)>,
    total: u64,
}

impl Events {
    fn closed(&self) -> &[Interval] {
        &self.closed[..self.count]
    }

    fn closed_mean(&self) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (interval, w) in self.closed().iter().zip(WEIGHTS) {
            sum += interval.packets * w * interval.discount;
            weight += w * interval.discount;
        }
        (weight > 0.0).then(|| sum / weight)
    }

    /// Returns the discount factor DF if the open interval has `open` packets (RFC 5348, section 5.5).
    fn discount(&self, open: f64, least: f64) -> f64 {
        match self.closed_mean() {
            Some(mean) if open > 2.0 * mean => (2.0 * mean / open).max(least),
            _ => 1.0,
        }
    }

    fn push(&mut self, packets: f64, derived: bool, least: f64) {
        let discount = self.discount(packets, least);
        for interval in &mut self.closed[..self.count] {
            interval.discount *= discount;
        }
        self.closed.rotate_right(1);
        self.closed[0] = Interval { packets, discount: 1.0, derived };
        self.count = (self.count + 1).min(INTERVALS);
    }

    fn add(&mut self, run: &LossRun, first_interval: f64, least: f64) {
        let mut from = run.first;
        loop {
            let start = match self.latest {
                None => Some(from),
                // Losses within a round trip after the start of an event belong to this event (RFC 5348, section 5.2).
                Some((_, at)) => run.after(from, at + run.rtt),
            };
            let Some(start) = start else { return };
            match self.latest {
                None => self.push(first_interval, true, least),
                Some((seq, _)) => self.push(start.saturating_sub(seq).max(1) as f64, false, least),
            }
            self.latest = Some((start, run.time(start)));
            self.total += 1;
            if start == run.last {
                return;
            }
            from = start + 1;
            from = self.skip(run, start).unwrap_or(from);
        }
    }

    /// Skips the events in the middle of a long gap: counts them without storing them. A gap that lasts hours would
    /// have too many events to store. The events are evenly spaced, so the result is the same.
    fn skip(&mut self, run: &LossRun, start: u64) -> Option<u64> {
        // Do not skip the last events, because they fill the history.
        const KEPT: u64 = 2 * INTERVALS as u64 + 2;
        let next = run.after(start + 1, run.time(start) + run.rtt)?;
        let (apart, left) = (next - start, run.last - start);
        let skipped = (left / apart).checked_sub(KEPT).filter(|n| *n > 0)?;
        self.total += skipped;
        let to = start + skipped * apart;
        self.latest = Some((to, run.time(to)));
        Some(to + 1)
    }

    /// Returns the loss event rate (RFC 5348, sections 5.4 and 5.5).
    ///
    /// ```text
    ///              ⎛ w₀ I₀ + Σ₁ᵏ⁻¹ wᵢ DFᵢ DF Iᵢ   Σ₁ᵏ wᵢ₋₁ DFᵢ Iᵢ ⎞
    ///  1/p  =  max ⎜ ────────────────────────── , ─────────────── ⎟
    ///              ⎝    w₀ + Σ₁ᵏ⁻¹ wᵢ DFᵢ DF        Σ₁ᵏ wᵢ₋₁ DFᵢ  ⎠
    /// ```
    fn rate(&self, open: f64, least: f64) -> Option<LossRate> {
        let closed_mean = self.closed_mean()?;
        let discount = self.discount(open, least);
        let (mut sum, mut weight) = (WEIGHTS[0] * open, WEIGHTS[0]);
        for (interval, w) in self.closed().iter().zip(&WEIGHTS[1..]) {
            sum += interval.packets * w * interval.discount * discount;
            weight += w * interval.discount * discount;
        }
        // Take the larger of two means: with and without the open interval. A short open interval then does not raise
        // the loss rate (RFC 5348, section 5.4).
        Some(LossRate::one_in((sum / weight).max(closed_mean)))
    }

    fn rescale(&mut self, factor: f64) {
        for interval in self.closed[..self.count].iter_mut().filter(|i| i.derived) {
            interval.packets = sane(interval.packets * factor);
        }
    }
}

/// Limits the length of an interval to 1…10⁸ packets.
fn sane(packets: f64) -> f64 {
    if packets.is_nan() { 1.0 } else { packets.clamp(1.0, 1e8) }
}

/// The lost packets of one stream, and the loss events that they form.
///
/// The memory is limited for any input, because only the latest runs of lost packets are stored.
#[derive(Clone, Debug, Default)]
pub struct LossHistory {
    settings: LossSettings,
    /// Highest sequence number so far, and when that packet arrived.
    highest: Option<(u64, Time)>,
    /// Gaps whose packets do not count as lost yet, by sequence number. There are at most `ndupack` gaps.
    gaps: Vec<Gap>,
    /// Losses that a late packet may still change, by sequence number.
    runs: VecDeque<LossRun>,
    settled: Option<Box<Events>>,
    events: Events,
    /// Length of the interval before the first loss event, in packets. It is computed from the rate.
    first_interval: f64,
    lost: u64,
}

impl LossHistory {
    /// Creates an empty history.
    pub fn new(settings: LossSettings) -> Self {
        let settings = LossSettings {
            discount: settings.discount.clamp(0.0, 1.0),
            ndupack: settings.ndupack.clamp(1, 64),
            ..settings
        };
        Self { settings, first_interval: 1.0, ..Self::default() }
    }

    /// Adds a packet that has arrived. `first_interval` returns the length in packets of the interval before the first
    /// loss event (RFC 5348, section 6.3.1; RFC 4654, section 5.6). It is called when the first loss event begins.
    pub fn on_packet(&mut self, packet: &ReceivedPacket, first_interval: impl FnOnce() -> f64) -> Change {
        let Some((highest, since)) = self.highest else {
            self.highest = Some((packet.seq, packet.at));
            return self.process(packet, None, first_interval);
        };
        let mut late = None;
        if packet.seq > highest {
            if packet.seq - highest > 1 {
                let run = LossRun {
                    first: highest + 1,
                    last: packet.seq - 1,
                    before: (highest, since),
                    after: (packet.seq, packet.at),
                    rtt: packet.rtt,
                };
                self.open_gap(run);
            }
            self.highest = Some((packet.seq, packet.at));
        } else if !self.fill_gap(packet.seq) {
            if !self.fill_run(packet.seq) {
                // The packet is a duplicate, or is too late to change a loss.
                return Change::default();
            }
            late = Some(packet.seq);
        }
        // For each gap, count the packets that arrive although they were sent after the gap. They have the role of
        // duplicate acknowledgments in TCP.
        for gap in self.gaps.iter_mut().filter(|g| g.run.last < packet.seq) {
            gap.overtaken += 1;
        }
        self.process(packet, late, first_interval)
    }

    /// Adds a packet that has no sequence number in this stream, but was sent after packet `packet.seq`. Intervals do
    /// not count it.
    pub fn on_other(&mut self, packet: &ReceivedPacket, first_interval: impl FnOnce() -> f64) -> Change {
        let Some((highest, since)) = self.highest else {
            self.highest = Some((packet.seq, packet.at));
            return Change::default();
        };
        if packet.seq > highest {
            let run = LossRun {
                first: highest + 1,
                last: packet.seq,
                before: (highest, since),
                after: (packet.seq.saturating_add(1), packet.at),
                rtt: packet.rtt,
            };
            self.open_gap(run);
            self.highest = Some((packet.seq, packet.at));
        }
        for gap in self.gaps.iter_mut().filter(|g| g.run.last <= packet.seq) {
            gap.overtaken += 1;
        }
        self.process(&ReceivedPacket { ce: false, ..*packet }, None, first_interval)
    }

    fn process(&mut self, packet: &ReceivedPacket, late: Option<u64>, first_interval: impl FnOnce() -> f64) -> Change {
        let before = self.events;
        let mut rebuild = late.is_some();
        let mut lost = 0u64;
        let ndupack = self.settings.ndupack;
        // A packet that was sent after a gap was also sent after all earlier gaps. So the gaps with enough later
        // packets come first.
        let ripe = self.gaps.iter().take_while(|g| g.overtaken >= ndupack).count();
        let mark = LossRun {
            first: packet.seq,
            last: packet.seq,
            before: (packet.seq, packet.at),
            after: (packet.seq, packet.at),
            rtt: packet.rtt,
        };
        let new: Vec<LossRun> = self.gaps.drain(..ripe).map(|g| g.run).chain(packet.ce.then_some(mark)).collect();
        if self.events.total == 0 && !new.is_empty() {
            self.first_interval = sane(first_interval());
        }
        for run in new {
            lost = lost.saturating_add((run.last - run.first).saturating_add(1));
            // A mark counts when the packet arrives, but a gap counts only after later packets have arrived. So a gap
            // may precede a mark that already counts. In that case, group all runs into loss events again (RFC 5348,
            // section 5.1).
            let place = self.runs.partition_point(|r| r.first < run.first);
            rebuild |= place < self.runs.len();
            if self.runs.len() == self.runs.capacity() {
                // Reserve only a little memory. Doubling would waste memory, because a large group has many histories.
                self.runs.reserve_exact(self.runs.len() / 8 + 2);
            }
            self.runs.insert(place, run);
            if !rebuild {
                self.events.add(&run, self.first_interval, self.settings.discount);
            }
        }
        if rebuild {
            self.rebuild();
        }
        self.settle();
        self.lost = self.lost.saturating_add(lost);
        Change {
            new_loss_event: self.events.total > before.total,
            removed_loss_event: self.events.total < before.total,
            lost,
            late: late.is_some(),
        }
    }

    /// Makes runs final that no late packet can change any more. If there are too many runs, also makes the oldest runs
    /// final.
    fn settle(&mut self) {
        let highest = self.highest.map_or(0, |(seq, _)| seq);
        // Keep runs after the oldest gap. If this gap counts as lost later, these runs have to be grouped into loss
        // events again.
        let open = self.gaps.first().map_or(u64::MAX, |gap| gap.run.first);
        let past = |run: &LossRun| run.last < open && highest.saturating_sub(run.last) > self.settings.reorder;
        while self.runs.len() > OPEN_RUNS || self.runs.front().is_some_and(past) {
            if let Some(run) = self.runs.pop_front() {
                let settled = self.settled.get_or_insert_default();
                settled.add(&run, self.first_interval, self.settings.discount);
            }
        }
    }

    fn open_gap(&mut self, run: LossRun) {
        // Reserve memory for one gap only. Usually there is only one, and the default growth would reserve memory for
        // several.
        self.gaps.reserve_exact(usize::from(self.gaps.is_empty()));
        self.gaps.push(Gap { run, overtaken: 0 });
    }

    fn rebuild(&mut self) {
        self.events = self.settled.as_deref().copied().unwrap_or_default();
        for run in &self.runs {
            self.events.add(run, self.first_interval, self.settings.discount);
        }
    }

    /// Removes a late packet from the gap that it belongs to. Returns false if it belongs to no gap.
    fn fill_gap(&mut self, seq: u64) -> bool {
        let Some(i) = self.gaps.iter().position(|g| (g.run.first..=g.run.last).contains(&seq)) else { return false };
        let gap = self.gaps.remove(i);
        let parts = split(&gap.run, seq).map(|part| part.map(|run| Gap { run, ..gap }));
        self.gaps.splice(i..i, parts.into_iter().flatten());
        true
    }

    /// Removes a late packet from the loss run that it belongs to. Returns false if it belongs to no loss run.
    fn fill_run(&mut self, seq: u64) -> bool {
        let i = self.runs.partition_point(|r| r.last < seq);
        let Some(run) = self.runs.get(i).copied().filter(|r| r.first <= seq && r.before.0 != r.after.0) else {
            return false;
        };
        self.runs.remove(i);
        for part in split(&run, seq).into_iter().rev().flatten() {
            self.runs.insert(i, part);
        }
        self.lost = self.lost.saturating_sub(1);
        true
    }

    /// Returns the loss event rate p. Returns `None` before the first loss event.
    pub fn rate(&self) -> Option<LossRate> {
        self.events.rate(self.open(), self.settings.discount)
    }

    /// Returns the length of the open interval I₀: the number of packets since the first loss of the latest event.
    /// Returns 0 before the first event.
    pub fn open(&self) -> f64 {
        match (self.highest, self.events.latest) {
            (Some((highest, _)), Some((seq, _))) => highest.saturating_sub(seq) as f64 + 1.0,
            _ => 0.0,
        }
    }

    /// Returns the closed intervals I₁, I₂ … in packets, newest first.
    pub fn closed(&self) -> impl Iterator<Item = f64> + '_ {
        self.events.closed().iter().map(|i| i.packets)
    }

    /// Returns how many loss events there were so far.
    pub const fn events(&self) -> u64 {
        self.events.total
    }

    /// Returns how many packets were lost or marked so far. Packets that arrived late do not count.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Multiplies the length of the interval before the first loss event by `factor`. This is needed if the round-trip
    /// time changes (RFC 4654, section 5.6). The result is at least one packet.
    pub fn rescale_first(&mut self, factor: f64) {
        self.first_interval = sane(self.first_interval * factor);
        if let Some(settled) = &mut self.settled {
            settled.rescale(factor);
        }
        self.events.rescale(factor);
        self.rebuild();
    }

    /// Groups losses into loss events again, with a new round-trip time. Losses that are final stay as they are.
    pub fn regroup(&mut self, rtt: Span) {
        for run in self.runs.iter_mut().chain(self.gaps.iter_mut().map(|g| &mut g.run)) {
            run.rtt = rtt;
        }
        self.rebuild();
    }
}

/// Splits a run of lost packets, because packet `seq` has arrived.
fn split(run: &LossRun, seq: u64) -> [Option<LossRun>; 2] {
    [
        (run.first < seq).then(|| LossRun { last: seq - 1, ..*run }),
        (seq < run.last).then(|| LossRun { first: seq + 1, ..*run }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const R: Span = Span::millis(100);
    /// Packets are sent every 10 ms, so a round trip has ten packets.
    const STEP: Span = Span::millis(10);

    fn at(seq: u64) -> Time {
        Time::ZERO + STEP * seq
    }

    fn packet(seq: u64) -> ReceivedPacket {
        ReceivedPacket { seq, at: at(seq), ce: false, rtt: R }
    }

    fn receive(history: &mut LossHistory, seqs: impl IntoIterator<Item = u64>) -> Vec<Change> {
        seqs.into_iter().map(|seq| history.on_packet(&packet(seq), || 50.0)).collect()
    }

    /// Creates a history. It has the given closed intervals, newest first, and `open` packets in the open interval.
    fn with(closed: &[f64], open: u64, discount: f64) -> LossHistory {
        let mut history = LossHistory::new(LossSettings { discount, ..LossSettings::default() });
        for packets in closed.iter().rev() {
            // Set all discount factors to one, as in the reference values.
            history.events.push(*packets, false, 1.0);
        }
        history.events.latest = Some((1_000, Time::ZERO));
        history.highest = Some((999 + open, Time::ZERO));
        history
    }

    fn p(history: &LossHistory) -> f64 {
        history.rate().map_or(0.0, LossRate::get)
    }

    #[track_caller]
    fn close(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want} ± {within}");
    }

    #[test]
    fn without_discounting_the_open_interval_counts_with_the_weight_of_one() {
        close(p(&with(&[100.0; 8], 300, 1.0)), 0.0075, 1e-12);
        close(p(&with(&[100.0; 8], 30, 1.0)), 0.01, 1e-12);
    }

    #[test]
    fn discounting_has_its_published_values() {
        for (open, quarter, half) in [
            (100, 0.01, 0.01),
            (200, 0.008_571_4, 0.008_571_4),
            (400, 0.005_384_6, 0.005_384_6),
            (800, 0.002_432_4, 0.003_333_3),
        ] {
            close(p(&with(&[100.0; 8], open, 0.25)), quarter, 5e-8);
            close(p(&with(&[100.0; 8], open, 0.5)), half, 5e-8);
        }
        let mixed = [80.0, 120.0, 60.0, 200.0, 90.0, 150.0, 40.0, 100.0];
        let short = with(&mixed, 30, 0.25);
        close(short.events.closed_mean().unwrap_or(0.0), 109.667, 5e-4);
        close(p(&short), 0.009_118_5, 5e-8);
        close(p(&with(&mixed, 400, 0.25)), 0.005_366_7, 5e-8);
    }

    #[test]
    fn a_closed_interval_hands_its_discount_to_all_older_ones_once() {
        let mut history = with(&[100.0; 8], 1, 0.25);
        history.events.push(400.0, false, 0.25);
        let factors: Vec<_> = history.events.closed().iter().map(|i| i.discount).collect();
        assert_eq!(factors, [1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]);
        history.events.push(100.0, false, 0.25);
        assert_eq!(history.events.closed()[2].discount, 0.5);
    }

    #[test]
    fn one_loss_per_hundred_packets_is_a_rate_of_one_in_a_hundred() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..2_000).filter(|seq| seq % 100 != 50));
        close(p(&history), 0.01, 1e-12);
        assert_eq!(history.closed().collect::<Vec<_>>(), [100.0; 8]);
        assert_eq!((history.events(), history.lost(), history.open()), (20, 20, 50.0));
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_have_arrived_and_not_before() {
        let mut history = LossHistory::new(LossSettings::default());
        let changes = receive(&mut history, [0, 1, 2, 4, 5, 6]);
        assert_eq!(changes.iter().map(|c| c.lost).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);
        assert!(changes[5].new_loss_event && history.rate().is_some());
        close(p(&history), 1.0 / 50.0, 1e-12);
        assert_eq!(history.open(), 4.0);

        let mut hasty = LossHistory::new(LossSettings { ndupack: 1, ..LossSettings::default() });
        assert!(receive(&mut hasty, [0, 2])[1].new_loss_event);
    }

    #[test]
    fn packets_outside_the_count_show_and_overtake_what_is_missing_but_lengthen_nothing() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, [0, 1, 2]);
        // Packet 3 of the stream is missing. Three packets of another stream that were sent after it show that it was
        // lost.
        let lost: Vec<u64> = (0..3).map(|_| history.on_other(&packet(3), || 50.0).lost).collect();
        assert_eq!((lost, history.open()), (vec![0, 0, 1], 1.0));
        // Packet 3 arrives late, so its loss event is removed.
        assert!(receive(&mut history, [3])[0].removed_loss_event);
        // Packets of another stream that were sent before the newest packet do not show a loss.
        for _ in 0..9 {
            assert_eq!(history.on_other(&packet(2), || 50.0), Change::default());
        }
        assert_eq!((history.rate(), history.lost()), (None, 0));
    }

    #[test]
    fn reordering_by_two_places_is_no_loss() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..300).map(|i| if i % 3 == 0 { i + 2 } else { i - 1 }));
        assert_eq!((history.rate(), history.lost(), history.gaps.len()), (None, 0, 0));
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event_and_the_next_one_after_it_is_another() {
        let mut history = LossHistory::new(LossSettings::default());
        // There are ten packets per round trip. So packet 110 is exactly a round trip after packet 100, and packet 111
        // is later.
        let one = |history: &mut LossHistory, lost: [u64; 2], to: u64| {
            receive(history, (0..to).filter(|s| !lost.contains(s)));
        };
        one(&mut history, [100, 110], 200);
        assert_eq!((history.events(), history.lost()), (1, 2));
        let mut history = LossHistory::new(LossSettings::default());
        one(&mut history, [100, 111], 200);
        assert_eq!(history.events(), 2);
        assert_eq!(history.closed().collect::<Vec<_>>(), [11.0, 50.0]);
    }

    #[test]
    fn a_late_packet_takes_its_loss_event_back() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..50).filter(|s| *s != 20));
        assert_eq!(history.events(), 1);
        let change = history.on_packet(&ReceivedPacket { at: at(50), ..packet(20) }, || 50.0);
        assert!(change.removed_loss_event && change.late && !change.new_loss_event);
        assert_eq!((history.rate(), history.lost(), history.events()), (None, 0, 0));
        // The next loss calls the closure for a first interval again.
        let mut asked = false;
        for seq in [50, 52, 53, 54] {
            history.on_packet(&packet(seq), || {
                asked = true;
                70.0
            });
        }
        assert!(asked);
        assert_eq!(history.closed().collect::<Vec<_>>(), [70.0]);
    }

    #[test]
    fn a_late_packet_that_began_an_event_moves_its_beginning() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..60).filter(|s| ![20, 25, 32].contains(s)));
        // Packet 25 belongs to the event that began at packet 20, but packet 32 does not.
        assert_eq!((history.events(), history.closed().next()), (2, Some(12.0)));
        history.on_packet(&ReceivedPacket { at: at(60), ..packet(20) }, || 50.0);
        // Now the event begins at packet 25, and packet 32 is within the round trip after it.
        assert_eq!((history.events(), history.closed().next(), history.open()), (1, Some(50.0), 35.0));
    }

    #[test]
    fn a_mark_is_an_event_at_once_and_a_loss_just_before_it_becomes_its_beginning() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, 0..20);
        let marked = ReceivedPacket { ce: true, ..packet(22) };
        // Packets 20 and 21 are missing, but they may only be late.
        let change = history.on_packet(&marked, || 50.0);
        assert!(change.new_loss_event);
        assert_eq!((change.lost, history.open()), (1, 1.0));
        let changes = receive(&mut history, [23, 24]);
        assert_eq!((changes[1].lost, history.events(), history.open()), (2, 1, 5.0));
        assert!(!changes[1].new_loss_event);
    }

    #[test]
    fn a_mark_on_the_first_packet_of_all_counts() {
        let mut history = LossHistory::new(LossSettings::default());
        assert!(history.on_packet(&ReceivedPacket { ce: true, ..packet(7) }, || 10.0).new_loss_event);
        close(p(&history), 0.1, 1e-12);
    }

    #[test]
    fn a_marked_packet_can_not_arrive_late_a_second_time() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, 0..5);
        history.on_packet(&ReceivedPacket { ce: true, ..packet(5) }, || 50.0);
        assert_eq!(history.on_packet(&packet(5), || 50.0), Change::default());
        assert_eq!(history.events(), 1);
    }

    #[test]
    fn a_gap_of_hours_is_counted_as_evenly_spaced_events_without_walking_through_it() {
        let mut history = LossHistory::new(LossSettings::default());
        let gap = 1u64 << 31;
        let spread = Span::secs(7_200);
        history.on_packet(&ReceivedPacket { at: Time::ZERO, ..packet(0) }, || 50.0);
        for extra in 0..3 {
            history
                .on_packet(&ReceivedPacket { seq: gap + extra, at: Time::ZERO + spread, ce: false, rtt: R }, || 50.0);
        }
        // The gap has 7200 s / 100 ms events, minus the effect of rounding up to whole packets.
        assert!((71_990..=72_000).contains(&history.events()), "{}", history.events());
        let apart = gap as f64 / 72_000.0;
        for interval in history.closed() {
            close(interval, apart, 1.5);
        }
        close(p(&history) * apart, 1.0, 1e-3);
    }

    #[test]
    fn skipping_over_a_long_gap_changes_nothing() {
        // The gap is just long enough that events are skipped. Compare the result with the result for the same gap if
        // none are skipped.
        let run = LossRun { first: 1, last: 999, before: (0, at(0)), after: (1_000, at(1_000)), rtt: R };
        let (mut fast, mut slow) = (Events::default(), Events::default());
        fast.add(&run, 50.0, 0.25);
        let mut from = run.first;
        while let Some(start) = match slow.latest {
            None => Some(from),
            Some((_, at)) => run.after(from, at + R),
        } {
            slow.push(slow.latest.map_or(50.0, |(seq, _)| (start - seq) as f64), slow.latest.is_none(), 0.25);
            slow.latest = Some((start, run.time(start)));
            slow.total += 1;
            from = start + 1;
            if start == run.last {
                break;
            }
        }
        assert_eq!((fast.total, fast.latest), (slow.total, slow.latest));
        assert_eq!(fast.total, 91);
        let seen = |e: &Events| e.closed().iter().map(|i| (i.packets, i.discount)).collect::<Vec<_>>();
        assert_eq!(seen(&fast), seen(&slow));
    }

    #[test]
    fn the_first_interval_can_be_rescaled_while_it_counts() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..120).filter(|s| *s != 20 && *s != 70));
        assert_eq!(history.closed().collect::<Vec<_>>(), [50.0, 50.0]);
        history.rescale_first(4.0);
        assert_eq!(history.closed().collect::<Vec<_>>(), [50.0, 200.0]);
        history.rescale_first(1e-9);
        assert_eq!(history.closed().collect::<Vec<_>>(), [50.0, 1.0]);
    }

    #[test]
    fn a_better_round_trip_time_regroups_the_losses() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..100).filter(|s| ![20, 25, 30].contains(s)));
        assert_eq!(history.events(), 1);
        history.regroup(Span::millis(40));
        assert_eq!(history.events(), 3);
        assert_eq!(history.closed().collect::<Vec<_>>(), [5.0, 5.0, 50.0]);
    }

    #[test]
    fn losses_beyond_the_kept_runs_are_final_and_lose_nothing() {
        let mut history = LossHistory::new(LossSettings::default());
        receive(&mut history, (0..100_000).filter(|seq| seq % 100 != 50));
        assert_eq!((history.events(), history.lost()), (1_000, 1_000));
        assert_eq!(history.runs.len(), OPEN_RUNS);
        close(p(&history), 0.01, 1e-12);
        // A packet that is far too late changes nothing. A late packet within the limit removes its loss event.
        assert_eq!(history.on_packet(&packet(50), || 50.0), Change::default());
        assert!(history.on_packet(&packet(99_850), || 50.0).removed_loss_event);
        assert_eq!(history.closed().next(), Some(200.0));
    }

    /// Computes the loss events as the RFC describes. Arrivals are in order. A missing packet counts if three later
    /// packets have arrived and the packet is not in `late`. Its loss time is interpolated.
    fn by_the_book(arrivals: &[(u64, Time, bool)], late: &[u64], first: f64) -> Vec<f64> {
        let mut losses = Vec::new();
        for (i, (seq, time, marked)) in arrivals.iter().enumerate() {
            if let Some((before, since)) = i.checked_sub(1).map(|b| (arrivals[b].0, arrivals[b].1)) {
                for missing in before + 1..*seq {
                    if arrivals.len() - i >= 3 && !late.contains(&missing) {
                        let share = u128::from(missing - before) * u128::from(time.since(since).as_nanos());
                        losses.push((missing, since + Span::nanos((share / u128::from(seq - before)) as u64)));
                    }
                }
            }
            if *marked {
                losses.push((*seq, *time));
            }
        }
        let mut events: Vec<(u64, Time)> = Vec::new();
        for (seq, time) in losses {
            if events.last().is_none_or(|(_, at)| time > *at + R) {
                events.push((seq, time));
            }
        }
        let mut intervals: Vec<f64> = events.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
        intervals.reverse();
        if !events.is_empty() {
            intervals.push(first);
        }
        intervals.truncate(INTERVALS);
        intervals
    }

    proptest! {
        #[test]
        fn losses_that_no_packet_comes_too_late_for_are_final_and_change_nothing(
            packets in prop::collection::vec((0u64..20, 0u64..40, 0usize..12, prop::bool::weighted(0.1)), 4..300),
        ) {
            let (mut seq, mut time) = (0, Time::ZERO);
            let mut arrivals = Vec::new();
            for (n, (jump, _, late, ce)) in packets.iter().enumerate() {
                seq += 1 + jump.saturating_sub(16) * 9;
                // Most packets arrive in order. Some arrive after packets that were sent later.
                arrivals.push((n + late.saturating_sub(8) * 3, seq, *ce));
            }
            arrivals.sort_by_key(|(place, ..)| *place);
            let most = arrivals.iter().scan(0, |highest, (_, seq, _)| {
                *highest = *seq.max(highest);
                Some(*highest - seq)
            });
            let reorder = most.max().unwrap_or(0);
            let mut all = LossHistory::new(LossSettings::default());
            let mut few = LossHistory::new(LossSettings { reorder, ..LossSettings::default() });
            for ((_, seq, ce), (_, ms, ..)) in arrivals.iter().zip(&packets) {
                time += Span::millis(*ms);
                let packet = ReceivedPacket { seq: *seq, at: time, ce: *ce, rtt: R };
                prop_assert_eq!(few.on_packet(&packet, || 33.0), all.on_packet(&packet, || 33.0));
                prop_assert_eq!(few.closed().collect::<Vec<_>>(), all.closed().collect::<Vec<_>>());
                prop_assert_eq!((few.rate(), few.open(), few.lost()), (all.rate(), all.open(), all.lost()));
            }
            let highest = few.highest.map_or(0, |(seq, _)| seq);
            let open = few.gaps.first().map_or(u64::MAX, |gap| gap.run.first);
            prop_assert!(few.runs.iter().all(|run| run.last > open || run.last + reorder >= highest));
        }

        #[test]
        fn it_agrees_with_the_rules_applied_packet_by_packet(
            packets in prop::collection::vec((0u64..20, 0u64..40, prop::bool::weighted(0.03)), 4..200),
            back in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let (mut seq, mut time) = (0, Time::ZERO);
            let arrivals: Vec<_> = packets.iter().map(|(jump, ms, marked)| {
                // Usually the next packet arrives. Sometimes there is a gap.
                seq += 1 + jump.saturating_sub(16) * 3;
                time += Span::millis(*ms);
                (seq, time, *marked)
            }).collect();
            let mut history = LossHistory::new(LossSettings::default());
            for (seq, at, ce) in &arrivals {
                history.on_packet(&ReceivedPacket { seq: *seq, at: *at, ce: *ce, rtt: R }, || 33.0);
            }
            prop_assert_eq!(history.closed().collect::<Vec<_>>(), by_the_book(&arrivals, &[], 33.0));
            // Some of the lost packets then arrive late.
            let last = arrivals.len() - 3;
            let missing: Vec<u64> = (arrivals[0].0..arrivals[last].0)
                .filter(|s| arrivals.binary_search_by_key(s, |a| a.0).is_err()).collect();
            let mut late: Vec<u64> = Vec::new();
            for index in back.iter().filter(|_| !missing.is_empty()) {
                let seq = missing[index.index(missing.len())];
                history.on_packet(&ReceivedPacket { seq, at: time, ce: false, rtt: R }, || 33.0);
                late.push(seq);
            }
            // A late packet also counts as a later packet for the gaps before it. Here, all these gaps are already
            // final.
            prop_assert_eq!(history.closed().collect::<Vec<_>>(), by_the_book(&arrivals, &late, 33.0));
        }

        #[test]
        fn any_sequence_of_numbers_keeps_it_bounded_and_its_rate_a_rate(
            packets in prop::collection::vec(
                (prop_oneof![any::<u64>(), 0u64..300, (u64::MAX - 300)..=u64::MAX, (1u64 << 31)..(1u64 << 31) + 50],
                 any::<u32>(), prop::bool::weighted(0.2), prop_oneof![Just(0u64), 1u64..1_000_000_000, Just(u64::MAX)]),
                1..300),
            ndupack in 0u32..6,
        ) {
            let mut history = LossHistory::new(LossSettings { ndupack, ..LossSettings::default() });
            let mut time = Time::ZERO;
            for (seq, step, ce, rtt) in packets {
                time += Span::nanos(u64::from(step));
                history.on_packet(&ReceivedPacket { seq, at: time, ce, rtt: Span::nanos(rtt) }, || f64::NAN);
                prop_assert!(history.gaps.len() <= ndupack.max(1) as usize);
                prop_assert!(history.runs.len() <= OPEN_RUNS);
                prop_assert_eq!(history.rate().is_some(), history.events() > 0);
                if let Some(rate) = history.rate() {
                    prop_assert!(rate.get() > 0.0 && rate.get() <= 1.0);
                }
                prop_assert!(history.closed().all(|i| i >= 1.0 && i.is_finite()));
            }
        }
    }
}
