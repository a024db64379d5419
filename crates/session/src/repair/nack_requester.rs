use super::Requests;
use crate::RepairSettings;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{OneWay, PeerTime, Span, Time};
use steadycast_wire::rtcp::Nack;

/// A longer list is cleared (libwebrtc's `kMaxNackPackets`).
const MAX_MISSING: usize = 1_000;
/// The number of later packets after which a missing one is requested (GStreamer's `rtx-delay-reorder`).
const REORDER_THRESHOLD: u64 = 3;
/// RTT before a measurement (libwebrtc's `kDefaultRtt`).
const DEFAULT_RTT: Span = Span::millis(100);
/// Minimum margin for the variation of the RTT.
const MIN_RTT_MARGIN: Span = Span::millis(10);
/// Packets over which the loss rate is averaged (exponentially weighted).
const LOSS_WINDOW: f64 = 1_000.0;
/// Target loss rate after repair.
const RESIDUAL_LOSS: f64 = 1e-4;
/// The play-out delay is planned for at most this number of requests per packet.
const MAX_PLANNED_REQUESTS: u64 = 3;
/// The time after a reordered packet for which the path counts as reordering.
const REORDERING_TIMEOUT: Span = Span::secs(60);
const MAX_REQUESTS: u32 = 8;
/// Maximum requests for a frame's end that is only presumed lost.
const MAX_TAIL_REQUESTS: u32 = 2;
/// The length of a period in which the minimum one-way delay is taken. The minima of the last two periods count.
const MIN_DELAY_WINDOW: Span = Span::secs(10);
/// The time for which an abandoned packet may still be repaired.
const ABANDONED_RETENTION: Span = Span::secs(2);

#[derive(Clone, Copy, Debug)]
struct Missing {
    /// When the packet would have arrived without queueing, interpolated (RFC 4588, section 6.3).
    expected: Time,
    /// The next request; `Time::NEVER` if the packet is given up.
    ask: Time,
    asked: Time,
    tries: u32,
    most: u32,
}

/// Estimator of the time from a request to its answer (RFC 6298).
///
/// The first variation is an eighth of the first sample. RFC 6298's half would make answers appear so late that no
/// packet that is due within three RTTs would be requested.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrip {
    mean: Span,
    variation: Span,
    measured: bool,
    /// How often the retry timer has been doubled.
    backoff: u32,
}

impl RoundTrip {
    /// Returns the margin within which most answers arrive after the mean time.
    fn margin(&self) -> Span {
        self.variation.max(MIN_RTT_MARGIN)
    }

    /// Returns the time after which a request is repeated (GStreamer's `rtx-retry-timeout`).
    fn timer(&self) -> Span {
        (self.mean + (self.variation * 2).max(MIN_RTT_MARGIN)) * (1 << self.backoff)
    }

    /// Lowers the estimate after a packet was not requested, because without requests no sample corrects it.
    fn age(&mut self) {
        (self.mean, self.variation) = (self.mean.scale(0.98), self.variation.scale(0.9));
    }

    /// Adds the time from the last request to its answer.
    ///
    /// After several requests, the answer may belong to any of them (Karn's algorithm), so the estimate is unchanged.
    /// Only the timer is doubled if it was too short.
    fn on_answer(&mut self, took: Span, tries: u32) {
        if tries > 1 {
            let too_soon = !self.measured || took < self.mean.scale(0.9);
            self.backoff = (self.backoff + u32::from(too_soon)).min(3);
        } else if self.measured {
            // The gains of RFC 6298, section 2.3.
            let apart = if took > self.mean { took.saturating_sub(self.mean) } else { self.mean.saturating_sub(took) };
            self.variation = self.variation.scale(0.75) + apart / 4;
            (self.mean, self.backoff) = (self.mean.scale(0.875) + took / 8, 0);
        } else {
            *self = Self { mean: took, variation: took / 8, measured: true, backoff: 0 };
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    share: f64,
    packets: f64,
}

impl Loss {
    /// Counts an arrival after `lost` missing packets.
    fn see(&mut self, lost: u64) {
        let lost = (lost as f64).min(MAX_MISSING as f64);
        self.packets = (self.packets + lost + 1.0).min(LOSS_WINDOW);
        let weight = ((lost + 1.0) / self.packets).min(1.0);
        self.share += (lost / (lost + 1.0) - self.share) * weight;
    }

    /// Returns the requests per lost packet (1 to [`MAX_PLANNED_REQUESTS`]) that leave at most [`RESIDUAL_LOSS`].
    fn tries(&self) -> u64 {
        // A request fails if it, or its answer, is lost.
        let missed = 1.0 - (1.0 - self.share) * (1.0 - self.share);
        let (mut tries, mut left) = (1, self.share * missed);
        while tries < MAX_PLANNED_REQUESTS && left > RESIDUAL_LOSS {
            (tries, left) = (tries + 1, left * missed);
        }
        tries
    }
}

/// Detects missing packets at a receiver and schedules NACKs for them.
#[derive(Debug, Default)]
pub(crate) struct NackRequester {
    settings: RepairSettings,
    missing: BTreeMap<u64, Missing>,
    /// Packets that arrived as retransmissions or were recovered from parity.
    repaired: BTreeSet<u64>,
    /// The newest packet, and its arrival without queueing.
    newest: Option<(u64, Time)>,
    /// When the next number counts as missing, if no frame's end has arrived.
    tail: Option<Time>,
    way: Option<OneWay>,
    /// The minimum one-way delays of the present and the previous period, and the start of the present period.
    shortest: Option<(OneWay, OneWay, Time)>,
    jitter: Span,
    /// The last arrival out of order.
    reordered: Option<Time>,
    spacing: Span,
    /// A slowly decreasing maximum of the time between a frame's packets.
    pause: Option<Span>,
    /// Whether the newest packet is not the last of its frame.
    open: bool,
    loss: Loss,
    round_trip: RoundTrip,
    pub(crate) counts: Requests,
}

impl NackRequester {
    pub(crate) fn new(settings: RepairSettings) -> Self {
        let round_trip = RoundTrip { mean: DEFAULT_RTT, ..RoundTrip::default() };
        Self { settings, round_trip, ..Self::default() }
    }

    /// Sets how long a packet is useful after its frame was ready.
    pub(crate) fn set_playout(&mut self, delay: Span) {
        self.settings.playout = Some(delay);
    }

    /// Returns the time from a packet's expected arrival to its repair's arrival.
    pub(crate) fn repair_time(&self, now: Time) -> Span {
        self.reordering_delay(now) + self.spacing + self.round_trip.timer() * self.loss.tries()
    }

    /// Resets the state for a new stream. The old stream's missing packets stay lost.
    pub(crate) fn restart(&mut self) {
        *self = Self { round_trip: self.round_trip, counts: self.counts, ..Self::new(self.settings) };
    }

    /// Stores the controller's RTT, used until one is measured here.
    pub(crate) fn on_round_trip(&mut self, rtt: Span) {
        if !self.round_trip.measured {
            self.round_trip.mean = rtt;
        }
    }

    /// Processes an original; `ends` if it is its frame's last packet.
    pub(crate) fn on_original(&mut self, now: Time, seq: u64, sent: PeerTime, ends: bool) {
        let expected = self.without_queueing(now, sent);
        self.process_arrival(now, seq, expected, ends);
    }

    /// Processes an original without a send time. It is assumed to have arrived without queueing.
    pub(crate) fn on_unstamped(&mut self, now: Time, seq: u64, sampled: PeerTime, ends: bool) {
        let _ = self.without_queueing(now, sampled);
        if let Some((_, expected)) = self.newest.as_mut().filter(|(newest, _)| seq > *newest + 1) {
            // The missing packets before this packet count as expected now, because there are no send times to
            // interpolate.
            *expected = now;
        }
        self.process_arrival(now, seq, now, ends);
    }

    fn process_arrival(&mut self, now: Time, seq: u64, expected: Time, ends: bool) {
        self.missing.remove(&seq);
        let lost = self.newest.map_or(0, |(newest, _)| seq.saturating_sub(newest + 1));
        self.loss.see(lost);
        let Some((newest, before)) = self.newest else {
            return self.advance(now, seq, expected, ends);
        };
        if seq <= newest {
            // Retransmissions have their own stream, so this is an overtaken original.
            self.reordered = Some(now);
            return;
        }
        let ahead = seq - newest;
        if ahead == 1 {
            let spacing = expected.since(before);
            // Across a gap, the spacing is unknown.
            self.spacing = self.spacing.scale(0.875) + spacing / 8;
            if self.open {
                let before = self.pause.unwrap_or(Span::ZERO);
                self.pause = Some(before.scale(1.0 - 1.0 / 64.0).max(spacing));
            }
        } else if ahead as usize > MAX_MISSING {
            self.missing.clear();
        } else {
            let step = expected.since(before) / ahead;
            let reordering_delay = self.reordering_delay(now);
            let ask = now + reordering_delay;
            for (n, missing) in (newest + 1..seq).enumerate() {
                self.insert(missing, before + step * (n as u64 + 1), ask, MAX_REQUESTS);
            }
        }
        // Earlier numbers have reached the reordering threshold before.
        for (_, missing) in
            self.missing.range_mut(newest.saturating_sub(REORDER_THRESHOLD - 1)..=seq.saturating_sub(REORDER_THRESHOLD))
        {
            if missing.tries == 0 && missing.ask != Time::NEVER {
                missing.ask = missing.ask.min(now);
            }
        }
        self.advance(now, seq, expected, ends);
    }

    /// Returns whether this packet was requested and has not arrived.
    pub(crate) fn awaits(&self, osn: u16) -> bool {
        let Some(seq) = self.extended_seq(osn) else { return false };
        self.missing.get(&seq).is_some_and(|missing| missing.tries > 0)
    }

    /// Extends a 16-bit sequence number to the one nearest to the newest.
    fn extended_seq(&self, osn: u16) -> Option<u64> {
        let (newest, _) = self.newest?;
        Some(newest.saturating_add_signed(i64::from(osn.wrapping_sub(newest as u16) as i16)))
    }

    /// Marks a packet as recovered from parity.
    pub(crate) fn on_recovered(&mut self, seq: u64) {
        self.missing.remove(&seq);
        self.repaired.insert(seq);
        while self.repaired.len() > MAX_MISSING {
            self.repaired.pop_first();
        }
    }

    /// Returns the extended number of the retransmitted original, if it is missing.
    pub(crate) fn on_repair(&mut self, now: Time, osn: u16, ends: bool) -> Option<u64> {
        let (newest, seq) = (self.newest?.0, self.extended_seq(osn)?);
        let missing = self.missing.remove(&seq)?;
        if missing.tries > 0 {
            self.round_trip.on_answer(now.since(missing.asked), missing.tries);
        }
        self.counts.repaired += 1;
        self.repaired.insert(seq);
        while self.repaired.len() > MAX_MISSING {
            self.repaired.pop_first();
        }
        // The packet after it may be missing as well.
        if seq > newest {
            self.advance(now, seq, missing.expected, ends);
        }
        Some(seq)
    }

    /// Updates the list. Returns whether a packet is to be requested now.
    pub(crate) fn wants(&mut self, now: Time) -> bool {
        if self.tail.is_some_and(|tail| tail <= now)
            && let Some((newest, expected)) = self.newest
        {
            self.tail = None;
            self.insert(newest + 1, expected, now, MAX_TAIL_REQUESTS);
        }
        // A play-out delay below the default RTT would prevent any request, and so any measurement.
        let round_trip = if self.round_trip.measured { self.round_trip.mean } else { Span::ZERO };
        let answer = now + round_trip + self.round_trip.margin();
        // The play-out delay begins half an RTT before the frame's arrival.
        let due = self.settings.useful().saturating_sub(round_trip / 2);
        let (mut wants, mut untried) = (false, 0);
        for missing in self.missing.values_mut().filter(|missing| missing.ask <= now) {
            if missing.tries >= missing.most || answer > missing.expected + due {
                missing.ask = Time::NEVER;
                untried += u32::from(missing.tries == 0);
            } else {
                wants = true;
            }
        }
        (0..untried).for_each(|_| self.round_trip.age());
        wants
    }

    /// Returns for how long the due requests can still be answered in time.
    pub(crate) fn useful(&self, now: Time) -> Span {
        let due = self.missing.values().filter(|missing| missing.ask <= now).map(|missing| missing.expected).max();
        let answer = self.round_trip.mean + self.round_trip.mean / 2 + self.round_trip.margin();
        due.map_or(Span::ZERO, |due| (due + self.settings.useful()).since(now + answer))
    }

    /// Returns due packets, as many as one NACK holds.
    pub(crate) fn take(&mut self, now: Time) -> Vec<u16> {
        if !self.wants(now) {
            return Vec::new();
        }
        let due = self.missing.iter().filter(|(_, missing)| missing.ask <= now);
        let seqs: Vec<u64> = due.map(|(seq, _)| *seq).collect();
        let mut named: Vec<u16> = seqs.iter().map(|seq| *seq as u16).collect();
        // The rest follows with the next RTCP packet.
        named.truncate(Nack::fitting(&named));
        // An earlier repetition would be answered twice.
        let again = now + self.round_trip.timer().max(self.spacing);
        for seq in &seqs[..named.len()] {
            if let Some(missing) = self.missing.get_mut(seq) {
                (missing.asked, missing.ask, missing.tries) = (now, again, missing.tries + 1);
            }
        }
        self.counts.nacks += 1;
        self.counts.asked += named.len() as u64;
        named
    }

    /// Returns when [`NackRequester::wants`] may change.
    pub(crate) fn wake(&self) -> Option<Time> {
        let asks = self.missing.values().map(|missing| missing.ask).filter(|ask| *ask != Time::NEVER);
        asks.chain(self.tail).min()
    }

    /// Lateness before a request: zero without recent reordering (RFC 8985, section 6.2, step 4), otherwise GStreamer's
    /// `rtx-delay`.
    fn reordering_delay(&self, now: Time) -> Span {
        let overtakes = self.reordered.is_some_and(|at| now.since(at) < REORDERING_TIMEOUT);
        if overtakes { (self.jitter * 2).max(self.spacing / 2) } else { Span::ZERO }
    }

    fn advance(&mut self, now: Time, seq: u64, expected: Time, ends: bool) {
        (self.newest, self.open) = (Some((seq, expected)), !ends);
        // Before two packets of one frame have arrived, their spacing is unknown.
        let wait = self.pause.filter(|_| !ends).map(|pause| (self.spacing * 2).max(pause + pause / 2));
        self.tail = wait.map(|wait| now + wait + self.reordering_delay(now));
    }

    fn insert(&mut self, seq: u64, expected: Time, ask: Time, most: u32) {
        let fresh = Missing { expected, ask, asked: Time::ZERO, tries: 0, most };
        // A repaired packet is not missing, although its original never arrived.
        if self.repaired.contains(&seq) {
            return;
        }
        let known = self.missing.entry(seq).or_insert(fresh);
        // A later packet confirms the loss, so an abandoned packet is requested again.
        if known.ask == Time::NEVER {
            known.ask = ask;
        }
        known.most = known.most.max(most);
        let old = |missing: &Missing| missing.ask == Time::NEVER && missing.expected + ABANDONED_RETENTION < expected;
        while self.missing.first_entry().is_some_and(|first| old(first.get())) {
            self.missing.pop_first();
        }
        if self.missing.len() > MAX_MISSING {
            self.missing.clear();
        }
    }

    /// Returns when the packet would have arrived without queueing: its send time plus the minimum one-way delay.
    fn without_queueing(&mut self, now: Time, sent: PeerTime) -> Time {
        let way = OneWay::between(sent, now);
        if let Some(before) = self.way.replace(way) {
            let apart = way.variation_since(before).abs();
            // The gain of RFC 3550, section 6.4.1.
            self.jitter = self.jitter.scale(15.0 / 16.0) + apart / 16;
        }
        let (present, past, since) = self.shortest.unwrap_or((way, way, now));
        let present = present.min(way);
        let turned = now.since(since) > MIN_DELAY_WINDOW;
        self.shortest = Some(if turned { (way, present, now) } else { (present, past, since) });
        now.before(way.variation_since(present.min(past)).later())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: RepairSettings = RepairSettings { ssrc: 9, payload_type: 97, playout: Some(Span::millis(300)) };

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    fn sent(n: u64) -> PeerTime {
        PeerTime::from_nanos(n as i64 * 1_000_000)
    }

    /// Delivers packets 0 to 99, sent every 10 ms on a path with a delay of 20 ms.
    fn running(requester: &mut NackRequester) {
        (0..100).for_each(|n| requester.on_original(ms(20 + 10 * n), n, sent(10 * n), true));
    }

    #[test]
    fn where_packets_overtake_each_other_one_is_asked_for_after_half_a_spacing_and_then_after_a_round_trip() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.reordered = Some(ms(1_000));
        requester.on_original(ms(1_030), 101, sent(1_010), true);
        assert!(!requester.wants(ms(1_030)));
        let first = requester.wake().expect("something is missing");
        assert!(first > ms(1_034) && first <= ms(1_035), "{first}");
        assert_eq!(requester.take(first), [100]);
        // The default RTT is 100 ms, and the minimum margin 10 ms.
        assert_eq!(requester.wake(), Some(first + Span::millis(110)));
        assert_eq!(requester.on_repair(first + Span::millis(40), 100, true), Some(100));
        assert_eq!(requester.wake(), None);
        assert_eq!(requester.round_trip.mean, Span::millis(40));
        assert_eq!(requester.on_repair(first + Span::millis(41), 100, true), None, "it has come");
    }

    #[test]
    fn while_no_packet_overtakes_another_a_missing_one_is_asked_for_at_once() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.on_original(ms(1_030), 101, sent(1_010), true);
        assert_eq!(requester.take(ms(1_030)), [100]);
        // The packet was only late. For the next minute the path is assumed to reorder packets.
        requester.on_original(ms(1_035), 100, sent(1_000), true);
        requester.on_original(ms(1_050), 103, sent(1_030), true);
        assert!(!requester.wants(ms(1_050)));
        requester.on_original(ms(61_040), 104, sent(61_020), true);
        requester.on_original(ms(61_060), 106, sent(61_040), true);
        assert_eq!(requester.take(ms(61_060)), [105]);
    }

    #[test]
    fn three_later_packets_make_it_ask_at_once_and_a_late_original_makes_it_forget() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.reordered = Some(ms(1_000));
        for n in [101, 102, 103] {
            assert!(!requester.wants(ms(1_021)));
            requester.on_original(ms(1_021), n, sent(1_001), true);
        }
        assert_eq!(requester.take(ms(1_021)), [100]);
        requester.on_original(ms(1_022), 100, sent(1_000), true);
        assert!(requester.wake().is_none());
        assert_eq!(requester.on_repair(ms(1_060), 100, true), None);
    }

    #[test]
    fn of_packets_without_a_send_time_a_late_frame_makes_no_later_one_too_late() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        // From here on the source takes 500 ms to encode a frame; number 100 is lost.
        requester.on_unstamped(ms(1_530), 101, sent(1_010), true);
        let first = requester.wake().expect("something is missing");
        assert_eq!(requester.take(first.max(ms(1_540))), [100]);
    }

    #[test]
    fn what_would_come_too_late_is_not_asked_for_but_taken() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.round_trip.on_answer(Span::millis(40), 1);
        // The deadline is 1250 ms: 300 ms after packet 100 was expected, minus 20 ms of one-way delay, 40 ms for the
        // answer, and 10 ms of margin.
        requester.on_original(ms(1_030), 101, sent(1_010), true);
        assert!(requester.wants(ms(1_249)));
        assert!(!requester.wants(ms(1_251)));
        assert_eq!(requester.on_repair(ms(1_300), 100, true), Some(100));
    }

    #[test]
    fn the_end_of_a_frame_is_asked_for_when_nothing_follows() {
        let mut requester = NackRequester::new(RepairSettings { playout: None, ..SETTINGS });
        // Before two packets of a frame have arrived, the time between the packets of a frame is unknown.
        requester.on_original(ms(20), 0, sent(0), false);
        assert_eq!(requester.wake(), None);
        (1..100).for_each(|n| requester.on_original(ms(20 + 10 * n), n, sent(10 * n), n % 2 == 1));
        requester.on_original(ms(1_020), 100, sent(1_000), false);
        let wake = requester.wake().expect("the frame's end is missing");
        assert!(wake > ms(1_039) && wake <= ms(1_040), "{wake}");
        assert_eq!(requester.take(wake), [101]);
        // Packet 101 is not the frame's end either, so the next packet is requested.
        assert_eq!(requester.on_repair(wake + Span::millis(40), 101, false), Some(101));
        let wake = requester.wake().expect("the frame's end is missing");
        assert_eq!(requester.take(wake), [102]);
        // No later packet shows that packet 102 was sent, so it is only requested twice.
        let wake = requester.wake().expect("it may have been lost again");
        assert_eq!(requester.take(wake), [102]);
        let wake = requester.wake().expect("the last try");
        assert!(!requester.wants(wake) && requester.wake().is_none());
        // A later packet shows that packet 102 was sent. Both missing packets are requested.
        requester.on_original(wake, 104, sent(1_200), true);
        assert_eq!(requester.take(wake), [102, 103]);
    }

    #[test]
    fn a_guess_that_turns_out_to_be_missing_is_not_asked_for_before_its_answer_can_be_there() {
        let mut requester = NackRequester::new(RepairSettings { playout: None, ..SETTINGS });
        (0..100).for_each(|n| requester.on_original(ms(20 + 10 * n), n, sent(10 * n), n % 2 == 1));
        requester.on_original(ms(1_020), 100, sent(1_000), false);
        let wake = requester.wake().expect("the frame's end is missing");
        assert_eq!(requester.take(wake), [101]);
        requester.on_original(wake, 103, sent(1_015), true);
        assert_eq!(requester.take(wake), [102]);
    }

    #[test]
    fn a_pause_that_packets_of_a_frame_made_before_does_not_make_it_ask() {
        let mut requester = NackRequester::new(RepairSettings { playout: None, ..SETTINGS });
        // Frames of two packets that are 12 ms apart; in each third frame they are 3 ms apart. The next frame follows
        // after 3 ms.
        let mut now = 20;
        for n in 0..120 {
            requester.on_original(ms(now), n, sent(now - 20), n % 2 == 1);
            let pause = if n % 2 == 0 && n % 3 != 0 { 12 } else { 3 };
            assert!(n < 40 || requester.wake().is_none_or(|at| at > ms(now + pause)), "packet {n}");
            now += pause;
        }
    }

    #[test]
    fn a_play_out_delay_makes_room_for_the_tries_that_leave_one_loss_in_ten_thousand() {
        for (every, tries) in [(1_000_000, 1), (500, 1), (100, 2), (20, 3), (5, 3)] {
            let mut loss = Loss::default();
            (1..20_000).for_each(|n| loss.see(u64::from(n % every == 0)));
            assert_eq!(loss.tries(), tries, "one in {every}: {loss:?}");
        }
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.round_trip.on_answer(Span::millis(40), 1);
        let takes = requester.repair_time(ms(1_020));
        assert!(
            takes > Span::millis(59) && takes <= Span::millis(60),
            "a spacing, a round trip and its margin: {takes}"
        );
    }

    #[test]
    fn more_than_a_thousand_missing_packets_are_given_up() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.on_original(ms(1_030), 1_099, sent(1_010), true);
        assert_eq!(requester.missing.len(), 999);
        requester.on_original(ms(1_031), 1_102, sent(1_010), true);
        assert_eq!(requester.missing.len(), 0);
    }

    #[test]
    fn an_answer_that_comes_too_soon_after_the_second_request_lengthens_the_timer() {
        let mut round_trip = NackRequester::new(SETTINGS).round_trip;
        assert_eq!(round_trip.timer(), Span::millis(110));
        round_trip.on_answer(Span::millis(90), 2);
        assert_eq!(round_trip.timer(), Span::millis(220));
        round_trip.on_answer(Span::millis(200), 1);
        assert_eq!(round_trip.timer(), Span::millis(250));
        round_trip.on_answer(Span::millis(190), 2);
        assert_eq!(round_trip.backoff, 0);
    }
}
