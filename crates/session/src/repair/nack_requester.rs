use super::Requests;
use crate::RepairSettings;
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{OneWay, PeerTime, Span, Time};
use steadycast_wire::rtcp::Nack;

/// Maximum number of missing packets. If there are more, the list is cleared (libwebrtc's `kMaxNackPackets`).
const MAX_MISSING: usize = 1_000;
/// A missing packet is requested when this many later packets have arrived (GStreamer's `rtx-delay-reorder`).
const REORDER_THRESHOLD: u64 = 3;
/// The RTT that is assumed before the first measurement (libwebrtc's `kDefaultRtt`).
const DEFAULT_RTT: Span = Span::millis(100);
/// Minimum margin for variation of the RTT.
const MIN_RTT_MARGIN: Span = Span::millis(10);
/// The number of packets over which the loss rate is an exponentially weighted mean.
const LOSS_WINDOW: f64 = 1_000.0;
/// The loss rate that should remain after repair.
const RESIDUAL_LOSS: f64 = 1e-4;
/// Maximum number of requests per packet for which the play-out delay reserves time.
const MAX_PLANNED_REQUESTS: u64 = 3;
/// After a reordered packet, the path is assumed to reorder packets for this time.
const REORDERING_TIMEOUT: Span = Span::secs(60);
const MAX_REQUESTS: u32 = 8;
/// Maximum number of requests for a packet that is only presumed to exist, because the end of a frame has not arrived.
const MAX_TAIL_REQUESTS: u32 = 2;
/// Length of the periods in which the minimum one-way delay is measured. The minimum over the last two periods is used.
const MIN_DELAY_WINDOW: Span = Span::secs(10);
/// The time for which a packet that is no longer requested can still be repaired.
const ABANDONED_RETENTION: Span = Span::secs(2);

#[derive(Clone, Copy, Debug)]
struct Missing {
    /// When the packet would have arrived without queueing. The time is interpolated (RFC 4588, section 6.3).
    expected: Time,
    /// When the packet is requested next. It is `Time::NEVER` if the packet is not requested any more.
    ask: Time,
    asked: Time,
    tries: u32,
    most: u32,
}

/// Estimates the time from a request to its answer (RFC 6298).
///
/// The first variation is an eighth of the first sample. RFC 6298 uses half of the sample, but then the estimate would
/// be too large at first. A packet that is due within three RTTs would not be requested.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrip {
    mean: Span,
    variation: Span,
    measured: bool,
    /// How many times the time before a repeated request has been doubled.
    backoff: u32,
}

impl RoundTrip {
    /// Returns the margin that is added to the mean time. Most answers arrive within this margin.
    fn margin(&self) -> Span {
        self.variation.max(MIN_RTT_MARGIN)
    }

    /// Returns the time after which a request is repeated (GStreamer's `rtx-retry-timeout`).
    fn timer(&self) -> Span {
        (self.mean + (self.variation * 2).max(MIN_RTT_MARGIN)) * (1 << self.backoff)
    }

    /// Reduces the estimate when a packet was not requested because its answer would be too late. Without requests, no
    /// sample would correct the estimate.
    fn age(&mut self) {
        (self.mean, self.variation) = (self.mean.scale(0.98), self.variation.scale(0.9));
    }

    /// Adds the time from the last of `tries` requests to the answer.
    ///
    /// After several requests, the answer may belong to any of them (Karn's algorithm). Then the estimate does not
    /// change. If the last request was sent too early, the time before a repeated request is doubled.
    fn on_answer(&mut self, took: Span, tries: u32) {
        if tries > 1 {
            let too_soon = !self.measured || took < self.mean.scale(0.9);
            self.backoff = (self.backoff + u32::from(too_soon)).min(3);
        } else if self.measured {
            // The gains are those in RFC 6298, section 2.3.
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
    /// Adds an arrival that follows after `lost` missing packets.
    fn see(&mut self, lost: u64) {
        let lost = (lost as f64).min(MAX_MISSING as f64);
        self.packets = (self.packets + lost + 1.0).min(LOSS_WINDOW);
        let weight = ((lost + 1.0) / self.packets).min(1.0);
        self.share += (lost / (lost + 1.0) - self.share) * weight;
    }

    /// Returns the number of requests per lost packet, from 1 to [`MAX_PLANNED_REQUESTS`], that reduces the loss rate
    /// to at most [`RESIDUAL_LOSS`].
    fn tries(&self) -> u64 {
        // A request is in vain if the request or its answer is lost.
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
    /// The packets that have arrived as retransmissions or have been recovered from parity.
    repaired: BTreeSet<u64>,
    /// The newest packet, and the time at which it would have arrived without queueing.
    newest: Option<(u64, Time)>,
    /// When the next sequence number is presumed lost, if the newest packet is not the last one of its frame.
    tail: Option<Time>,
    way: Option<OneWay>,
    /// The minimum one-way delays of the present and of the previous period, and the start of the present period.
    shortest: Option<(OneWay, OneWay, Time)>,
    jitter: Span,
    /// When a packet last arrived out of order.
    reordered: Option<Time>,
    spacing: Span,
    /// A slowly decreasing maximum of the time between two packets of a frame.
    pause: Option<Span>,
    /// Whether the newest packet is not the last packet of its frame.
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

    /// Sets the time for which a packet is useful, starting when its frame was ready.
    pub(crate) fn set_playout(&mut self, delay: Span) {
        self.settings.playout = Some(delay);
    }

    /// Returns the time from the expected arrival of a packet to the arrival of its repair.
    pub(crate) fn repair_time(&self, now: Time) -> Span {
        self.reordering_delay(now) + self.spacing + self.round_trip.timer() * self.loss.tries()
    }

    /// Resets the state because a new stream starts. Packets that the old stream lacks stay lost.
    pub(crate) fn restart(&mut self) {
        *self = Self { round_trip: self.round_trip, counts: self.counts, ..Self::new(self.settings) };
    }

    /// Stores the RTT of the controller. It is used until this requester has measured an RTT.
    pub(crate) fn on_round_trip(&mut self, rtt: Span) {
        if !self.round_trip.measured {
            self.round_trip.mean = rtt;
        }
    }

    /// Processes an original packet. `ends` is whether it is the last packet of its frame.
    pub(crate) fn on_original(&mut self, now: Time, seq: u64, sent: PeerTime, ends: bool) {
        let expected = self.without_queueing(now, sent);
        self.process_arrival(now, seq, expected, ends);
    }

    /// Processes an original packet that has no send time. It is assumed to have arrived without queueing.
    pub(crate) fn on_unstamped(&mut self, now: Time, seq: u64, sampled: PeerTime, ends: bool) {
        let _ = self.without_queueing(now, sampled);
        if let Some((_, expected)) = self.newest.as_mut().filter(|(newest, _)| seq > *newest + 1) {
            // Use the present time as the expected arrival of the missing packets before this packet, because there are
            // no send times to interpolate.
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
            // A later packet has overtaken this one. It is no retransmission, because retransmissions have a stream of
            // their own.
            self.reordered = Some(now);
            return;
        }
        let ahead = seq - newest;
        if ahead == 1 {
            let spacing = expected.since(before);
            // Update the spacing only here, because it is not known across a gap.
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
        // Request the packets that have now reached the reordering threshold. Packets before them have reached it
        // earlier.
        for (_, missing) in
            self.missing.range_mut(newest.saturating_sub(REORDER_THRESHOLD - 1)..=seq.saturating_sub(REORDER_THRESHOLD))
        {
            if missing.tries == 0 && missing.ask != Time::NEVER {
                missing.ask = missing.ask.min(now);
            }
        }
        self.advance(now, seq, expected, ends);
    }

    /// Returns whether the packet `osn` has been requested and has not arrived.
    pub(crate) fn awaits(&self, osn: u16) -> bool {
        let Some(seq) = self.extended_seq(osn) else { return false };
        self.missing.get(&seq).is_some_and(|missing| missing.tries > 0)
    }

    /// Extends a 16-bit sequence number. The result is the number nearest to the newest packet.
    fn extended_seq(&self, osn: u16) -> Option<u64> {
        let (newest, _) = self.newest?;
        Some(newest.saturating_add_signed(i64::from(osn.wrapping_sub(newest as u16) as i16)))
    }

    /// Records that a packet has been recovered from parity.
    pub(crate) fn on_recovered(&mut self, seq: u64) {
        self.missing.remove(&seq);
        self.repaired.insert(seq);
        while self.repaired.len() > MAX_MISSING {
            self.repaired.pop_first();
        }
    }

    /// Processes a retransmission. `osn` is the original's sequence number. Returns its extended sequence number if the
    /// original was missing.
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
        // This packet becomes the newest one. Check the packet after it as well, because it may also be missing.
        if seq > newest {
            self.advance(now, seq, missing.expected, ends);
        }
        Some(seq)
    }

    /// Updates the list of missing packets. Returns whether a packet has to be requested now.
    pub(crate) fn wants(&mut self, now: Time) -> bool {
        if self.tail.is_some_and(|tail| tail <= now)
            && let Some((newest, expected)) = self.newest
        {
            self.tail = None;
            self.insert(newest + 1, expected, now, MAX_TAIL_REQUESTS);
        }
        // Assume an RTT of zero before the first measurement. With a play-out delay below the default RTT there would
        // otherwise be no request, and therefore no measurement.
        let round_trip = if self.round_trip.measured { self.round_trip.mean } else { Span::ZERO };
        let answer = now + round_trip + self.round_trip.margin();
        // Subtract half an RTT, because the play-out delay begins when the frame is ready at the sender.
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

    /// Returns for how long the due requests can still wait, so that their answers arrive in time.
    pub(crate) fn useful(&self, now: Time) -> Span {
        let due = self.missing.values().filter(|missing| missing.ask <= now).map(|missing| missing.expected).max();
        let answer = self.round_trip.mean + self.round_trip.mean / 2 + self.round_trip.margin();
        due.map_or(Span::ZERO, |due| (due + self.settings.useful()).since(now + answer))
    }

    /// Returns the packets to request now, as many as fit into one NACK.
    pub(crate) fn take(&mut self, now: Time) -> Vec<u16> {
        if !self.wants(now) {
            return Vec::new();
        }
        let due = self.missing.iter().filter(|(_, missing)| missing.ask <= now);
        let seqs: Vec<u64> = due.map(|(seq, _)| *seq).collect();
        let mut named: Vec<u16> = seqs.iter().map(|seq| *seq as u16).collect();
        // Request only the packets that fit into one NACK. The next RTCP packet requests the rest.
        named.truncate(Nack::fitting(&named));
        // Repeat the request only after the answer can have arrived, because an earlier request would be answered
        // twice.
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

    /// Returns the time at which the result of [`NackRequester::wants`] may change.
    pub(crate) fn wake(&self) -> Option<Time> {
        let asks = self.missing.values().map(|missing| missing.ask).filter(|ask| *ask != Time::NEVER);
        asks.chain(self.tail).min()
    }

    /// Returns how long a missing packet may be late before it is requested. It is zero if there was no recent
    /// reordering (RFC 8985, section 6.2, step 4). Otherwise it is GStreamer's `rtx-delay`.
    fn reordering_delay(&self, now: Time) -> Span {
        let overtakes = self.reordered.is_some_and(|at| now.since(at) < REORDERING_TIMEOUT);
        if overtakes { (self.jitter * 2).max(self.spacing / 2) } else { Span::ZERO }
    }

    fn advance(&mut self, now: Time, seq: u64, expected: Time, ends: bool) {
        (self.newest, self.open) = (Some((seq, expected)), !ends);
        // Wait for the end of a frame only if the time between packets of a frame is known. It is not known before two
        // packets of one frame have arrived.
        let wait = self.pause.filter(|_| !ends).map(|pause| (self.spacing * 2).max(pause + pause / 2));
        self.tail = wait.map(|wait| now + wait + self.reordering_delay(now));
    }

    fn insert(&mut self, seq: u64, expected: Time, ask: Time, most: u32) {
        let fresh = Missing { expected, ask, asked: Time::ZERO, tries: 0, most };
        // Ignore a packet that has been repaired: it is not missing, although its original never arrived.
        if self.repaired.contains(&seq) {
            return;
        }
        let known = self.missing.entry(seq).or_insert(fresh);
        // Request a packet again that was given up, because a later packet has now confirmed the loss.
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

    /// Returns when the packet would have arrived without queueing. This is its send time plus the minimum one-way
    /// delay.
    fn without_queueing(&mut self, now: Time, sent: PeerTime) -> Time {
        let way = OneWay::between(sent, now);
        if let Some(before) = self.way.replace(way) {
            let apart = way.variation_since(before).abs();
            // The gain is the one in RFC 3550, section 6.4.1.
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

    /// Delivers packets 0 to 99, which were sent every 10 ms. The path has a delay of 20 ms.
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
        // The request is repeated after the default RTT of 100 ms plus the minimum margin of 10 ms.
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
        // Packet 100 was only late. The path is therefore assumed to reorder packets for the next minute.
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
        // From now on the source takes 500 ms to encode a frame. Packet 100 is lost.
        requester.on_unstamped(ms(1_530), 101, sent(1_010), true);
        let first = requester.wake().expect("something is missing");
        assert_eq!(requester.take(first.max(ms(1_540))), [100]);
    }

    #[test]
    fn what_would_come_too_late_is_not_asked_for_but_taken() {
        let mut requester = NackRequester::new(SETTINGS);
        running(&mut requester);
        requester.round_trip.on_answer(Span::millis(40), 1);
        // Packet 100 was expected at 1020 ms and is useful for 300 ms. Subtract 20 ms for the one-way delay, 40 ms for
        // the answer and 10 ms for the margin. The last request is therefore possible at 1250 ms.
        requester.on_original(ms(1_030), 101, sent(1_010), true);
        assert!(requester.wants(ms(1_249)));
        assert!(!requester.wants(ms(1_251)));
        assert_eq!(requester.on_repair(ms(1_300), 100, true), Some(100));
    }

    #[test]
    fn the_end_of_a_frame_is_asked_for_when_nothing_follows() {
        let mut requester = NackRequester::new(RepairSettings { playout: None, ..SETTINGS });
        // The time between the packets of a frame is not known before two packets of one frame have arrived.
        requester.on_original(ms(20), 0, sent(0), false);
        assert_eq!(requester.wake(), None);
        (1..100).for_each(|n| requester.on_original(ms(20 + 10 * n), n, sent(10 * n), n % 2 == 1));
        requester.on_original(ms(1_020), 100, sent(1_000), false);
        let wake = requester.wake().expect("the frame's end is missing");
        assert!(wake > ms(1_039) && wake <= ms(1_040), "{wake}");
        assert_eq!(requester.take(wake), [101]);
        // Packet 101 is not the last packet of its frame either, so packet 102 is requested.
        assert_eq!(requester.on_repair(wake + Span::millis(40), 101, false), Some(101));
        let wake = requester.wake().expect("the frame's end is missing");
        assert_eq!(requester.take(wake), [102]);
        // Packet 102 is requested only twice, because no later packet shows that it was sent.
        let wake = requester.wake().expect("it may have been lost again");
        assert_eq!(requester.take(wake), [102]);
        let wake = requester.wake().expect("the last try");
        assert!(!requester.wants(wake) && requester.wake().is_none());
        // Packet 104 shows that packets 102 and 103 were sent, so both are requested.
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
        // Each frame has two packets. They are 12 ms apart, except in each third frame, where they are 3 ms apart. The
        // next frame follows after 3 ms.
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
