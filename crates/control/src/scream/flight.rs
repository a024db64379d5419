use crate::PacketReport;
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{OneWay, Span, Time};

/// How long a packet is remembered after a later packet was acknowledged, if it is lost or its fate is unknown.
const MISSING_MAX_AGE: Span = Span::secs(2);

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    number: u64,
    size: u64,
    sent: Time,
    /// Whether the packet's fate is unknown. The packet then does not count as in flight.
    unknown: bool,
}

/// A packet that is not acknowledged, although a later packet is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Missing {
    sent: Time,
    /// When a later packet was first acknowledged.
    passed: Time,
    lost: bool,
    /// Whether feedback skips this packet. The packet then does not count as lost.
    unknown: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FeedbackSummary {
    /// Bytes between the old and the new highest acknowledged packet. Lost packets between the two are included.
    pub(super) acked: u64,
    /// Bytes of ECN-marked packets in `acked`.
    pub(super) acked_marked: u64,
    /// Number of packets that were reported as received for the first time.
    pub(super) delivered: u32,
    /// Number of ECN-marked packets in `delivered`.
    pub(super) marked: u32,
    pub(super) lost: u32,
    /// Send time of the newest marked packet.
    pub(super) latest_marked: Option<Time>,
    /// Send time of the newest lost packet.
    pub(super) latest_lost: Option<Time>,
    /// Send time of the newest acknowledged packet, and its one-way delay if the report contains it.
    pub(super) newest: Option<(Time, Option<OneWay>)>,
    /// The minimum and the maximum one-way delay in this report.
    pub(super) extremes: Option<(OneWay, OneWay)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    /// Packets above the highest acknowledged packet, in sending order.
    out: VecDeque<SentPacket>,
    pub(super) bytes: u64,
    last: Option<u64>,
    missing: BTreeMap<u64, Missing>,
    first_reordering: Span,
    reordering: Span,
}

impl InFlight {
    pub(super) fn new(reordering: Span) -> Self {
        Self { first_reordering: reordering, reordering, ..Self::default() }
    }

    pub(super) fn on_sent(&mut self, number: u64, size: u64, sent: Time) {
        // Ignore a repeated number. Its bytes would otherwise count twice.
        if self.last.is_none_or(|last| number > last) {
            self.last = Some(number);
            self.bytes += size;
            self.out.push_back(SentPacket { number, size, sent, unknown: false });
        }
    }

    /// Removes a packet from the bytes in flight, because its fate is unknown.
    pub(super) fn on_unknown(&mut self, number: u64) {
        if let Ok(place) = self.out.binary_search_by_key(&number, |out| out.number) {
            let out = &mut self.out[place];
            self.bytes -= if out.unknown { 0 } else { out.size };
            out.unknown = true;
        // Leave a lost packet as it is, because the window was already reduced for it.
        } else if let Some(missing) = self.missing.get_mut(&number).filter(|missing| !missing.lost) {
            missing.unknown = true;
        }
    }

    /// Processes a report. The reordering time is limited to `most`, the round-trip time, but never to less than its
    /// initial value.
    pub(super) fn on_report(&mut self, now: Time, packets: &[PacketReport], most: Span) -> FeedbackSummary {
        let mut summary = FeedbackSummary::default();
        for packet in packets {
            let Some(arrived) = packet.arrived else {
                self.on_missing(packet.number);
                continue;
            };
            let marked = arrived.ecn.is_some_and(|ecn| ecn.is_ce());
            let Some(sent) = self.acknowledge(now, packet.number, marked, &mut summary) else { continue };
            let delay = arrived.at.map(|at| OneWay::to_peer(sent, at));
            if let Some((newest, known @ None)) = &mut summary.newest
                && *newest == sent
            {
                *known = delay;
            }
            if let Some(delay) = delay {
                let (least, most) = summary.extremes.unwrap_or((delay, delay));
                summary.extremes = Some((least.min(delay), most.max(delay)));
            }
            summary.delivered += 1;
            if marked {
                summary.marked += 1;
                summary.latest_marked = summary.latest_marked.max(Some(sent));
            }
        }
        self.reordering = self.reordering.min(most.max(self.first_reordering));
        let reordering = self.reordering;
        for missing in self.missing.values_mut().filter(|m| !m.lost && !m.unknown && now.since(m.passed) >= reordering)
        {
            missing.lost = true;
            summary.lost += 1;
            summary.latest_lost = summary.latest_lost.max(Some(missing.sent));
        }
        // Keep lost packets for a while. If one arrives late, its delay shows how long reordering takes.
        self.missing.retain(|_, m| !(m.lost || m.unknown) || now.since(m.passed) < MISSING_MAX_AGE);
        summary
    }

    /// Records that feedback reports a packet as missing. Its fate is then no longer unknown.
    fn on_missing(&mut self, number: u64) {
        if let Ok(place) = self.out.binary_search_by_key(&number, |out| out.number) {
            let out = &mut self.out[place];
            self.bytes += if out.unknown { out.size } else { 0 };
            out.unknown = false;
        } else if let Some(missing) = self.missing.get_mut(&number) {
            missing.unknown = false;
        }
    }

    /// Acknowledges a packet, and returns its send time. Returns `None` if the packet is unknown or was acknowledged
    /// before.
    fn acknowledge(&mut self, now: Time, number: u64, marked: bool, summary: &mut FeedbackSummary) -> Option<Time> {
        if let Some(missing) = self.missing.remove(&number) {
            if missing.lost {
                // The packet was declared lost too early. Wait longer from now on.
                self.reordering = now.since(missing.passed);
            }
            return Some(missing.sent);
        }
        let end = self.out.partition_point(|out| out.number <= number);
        if self.out.get(end.checked_sub(1)?)?.number != number {
            return None;
        }
        let mut sent = None;
        for out in self.out.drain(..end) {
            self.bytes -= if out.unknown { 0 } else { out.size };
            summary.acked += out.size;
            if out.number == number {
                summary.acked_marked += if marked { out.size } else { 0 };
                summary.newest = Some((out.sent, None));
                sent = Some(out.sent);
            } else {
                let SentPacket { number, sent, unknown, .. } = out;
                self.missing.insert(number, Missing { sent, passed: now, lost: false, unknown });
            }
        }
        sent
    }

    /// Declares all packets in flight lost. Packets whose fates are unknown are removed, but do not count as lost.
    pub(super) fn clear(&mut self, now: Time) {
        for out in self.out.drain(..) {
            let SentPacket { number, sent, unknown, .. } = out;
            self.missing.insert(number, Missing { sent, passed: now, lost: !unknown, unknown });
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PacketArrival, Stream};
    use steadycast_units::{Bytes, Ecn, PeerTime};

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    const RTT: Span = Span::millis(200);

    /// Returns a flight of ten packets of 1000 bytes. One packet is sent per millisecond.
    fn flight() -> InFlight {
        let mut flight = InFlight::new(Span::millis(30));
        (0..10).for_each(|n| flight.on_sent(n, 1_000, ms(n)));
        flight
    }

    fn reported(number: u64, arrived: bool, ecn: Ecn) -> PacketReport {
        let at = Some(PeerTime::from_nanos((number as i64 + 20) * 1_000_000));
        let arrived = arrived.then_some(PacketArrival { at, ecn: Some(ecn) });
        PacketReport { number, sent: ms(number), size: Bytes::new(1_000), stream: Stream::Media, arrived }
    }

    #[test]
    fn packets_lost_below_the_highest_acknowledged_leave_the_flight_at_once() {
        let mut flight = flight();
        let summary = flight.on_report(
            ms(30),
            &[reported(4, true, Ecn::Ect1), reported(5, false, Ecn::NotEct), reported(6, true, Ecn::Ce)],
            RTT,
        );
        assert_eq!((flight.bytes, summary.acked, summary.acked_marked), (3_000, 7_000, 1_000));
        assert_eq!((summary.delivered, summary.marked, summary.lost), (2, 1, 0));
        assert_eq!((summary.latest_marked, summary.newest.map(|n| n.0)), (Some(ms(6)), Some(ms(6))));
    }

    #[test]
    fn a_packet_is_lost_a_reordering_window_after_a_later_one_was_acknowledged_and_once() {
        let mut flight = flight();
        flight.on_report(ms(30), &[reported(1, true, Ecn::Ect1)], RTT);
        assert_eq!(flight.on_report(ms(59), &[], RTT).lost, 0);
        let summary = flight.on_report(ms(60), &[], RTT);
        assert_eq!((summary.lost, summary.latest_lost), (1, Some(ms(0))));
        assert_eq!(flight.on_report(ms(90), &[], RTT).lost, 0);
    }

    #[test]
    fn a_lost_packet_that_comes_late_makes_the_window_as_long_as_it_was_late() {
        let mut flight = flight();
        flight.on_report(ms(30), &[reported(1, true, Ecn::Ect1)], RTT);
        flight.on_report(ms(60), &[], RTT);
        let summary = flight.on_report(ms(80), &[reported(0, true, Ecn::Ect1), reported(3, true, Ecn::Ect1)], RTT);
        assert_eq!((summary.delivered, flight.reordering), (2, Span::millis(50)));
        assert_eq!([flight.on_report(ms(129), &[], RTT).lost, flight.on_report(ms(130), &[], RTT).lost], [0, 1]);
    }

    #[test]
    fn what_is_told_twice_or_was_never_sent_counts_once_or_not_at_all() {
        let mut flight = flight();
        let all: Vec<_> = (0..5).map(|n| reported(n, true, Ecn::Ce)).collect();
        assert_eq!(flight.on_report(ms(30), &all, RTT).delivered, 5);
        assert_eq!(flight.on_report(ms(40), &all, RTT), FeedbackSummary::default());
        assert_eq!(flight.on_report(ms(40), &[reported(77, true, Ecn::Ce)], RTT), FeedbackSummary::default());
        assert_eq!(flight.bytes, 5_000);
        flight.clear(ms(50));
        assert_eq!((flight.bytes, flight.on_report(ms(90), &[], RTT).lost), (0, 0));
    }

    #[test]
    fn one_very_late_packet_puts_losses_off_by_a_round_trip_at_most() {
        let mut flight = flight();
        flight.on_report(ms(30), &[reported(1, true, Ecn::Ect1)], RTT);
        flight.on_report(ms(60), &[], RTT);
        flight.on_report(ms(1_500), &[reported(0, true, Ecn::Ect1), reported(3, true, Ecn::Ect1)], RTT);
        assert_eq!([flight.on_report(ms(1_699), &[], RTT).lost, flight.on_report(ms(1_700), &[], RTT).lost], [0, 1]);
    }
}
