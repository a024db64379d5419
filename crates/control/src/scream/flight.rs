use crate::PacketReport;
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{OneWay, Span, Time};

/// A packet below the highest acknowledged one is remembered for this long.
const REMEMBERED: Span = Span::secs(2);

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    size: u64,
    sent: Time,
    /// Its fate is unknown: it is in flight no more.
    unknown: bool,
}

/// A packet that is not acknowledged while a later one is.
#[derive(Clone, Copy, Debug)]
struct Missing {
    sent: Time,
    /// Since when a later one is acknowledged.
    passed: Time,
    lost: bool,
    /// Feedback tells of later packets and not of this one: it is not lost.
    unknown: bool,
}

/// What one report brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct News {
    /// Bytes between the old and the new highest acknowledged packet, lost ones included; and those of them that were
    /// marked.
    pub(super) acked: u64,
    pub(super) acked_marked: u64,
    /// Packets that the report is the first to tell of, and of them the marked ones.
    pub(super) delivered: u32,
    pub(super) marked: u32,
    /// Packets that are lost by now.
    pub(super) lost: u32,
    /// When the latest of the marked and of the lost packets left.
    pub(super) latest_marked: Option<Time>,
    pub(super) latest_lost: Option<Time>,
    /// When the newest packet left, and its one-way delay where the report tells it.
    pub(super) newest: Option<(Time, Option<OneWay>)>,
    /// The least and the greatest one-way delay of what was delivered.
    pub(super) extremes: Option<(OneWay, OneWay)>,
}

/// What is in flight: everything sent after the highest acknowledged packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    /// Above the highest acknowledged packet, in order.
    out: VecDeque<Out>,
    pub(super) bytes: u64,
    last: Option<u64>,
    missing: BTreeMap<u64, Missing>,
    first_reordering: Span,
    reordering: Span,
}

impl Flight {
    pub(super) fn new(reordering: Span) -> Self {
        Self { first_reordering: reordering, reordering, ..Self::default() }
    }

    pub(super) fn on_sent(&mut self, number: u64, size: u64, sent: Time) {
        if self.last.is_none_or(|last| number > last) {
            self.last = Some(number);
            self.bytes += size;
            self.out.push_back(Out { number, size, sent, unknown: false });
        }
    }

    /// The fate of a packet is unknown.
    pub(super) fn on_unknown(&mut self, number: u64) {
        if let Ok(place) = self.out.binary_search_by_key(&number, |out| out.number) {
            let out = &mut self.out[place];
            self.bytes -= if out.unknown { 0 } else { out.size };
            out.unknown = true;
        } else if let Some(missing) = self.missing.get_mut(&number).filter(|missing| !missing.lost) {
            missing.unknown = true;
        }
    }

    /// Takes in what a report says. The reordering window is at most `most`, a round-trip time, or what it was at
    /// first.
    pub(super) fn on_report(&mut self, now: Time, packets: &[PacketReport], most: Span) -> News {
        let mut news = News::default();
        for packet in packets {
            let Some(arrived) = packet.arrived else {
                self.on_missing(packet.number);
                continue;
            };
            let marked = arrived.ecn.is_some_and(|ecn| ecn.is_ce());
            let Some(sent) = self.acknowledge(now, packet.number, marked, &mut news) else { continue };
            let delay = arrived.at.map(|at| OneWay::to_peer(sent, at));
            if let Some((newest, told @ None)) = &mut news.newest
                && *newest == sent
            {
                *told = delay;
            }
            if let Some(delay) = delay {
                let (least, most) = news.extremes.unwrap_or((delay, delay));
                news.extremes = Some((least.min(delay), most.max(delay)));
            }
            news.delivered += 1;
            if marked {
                news.marked += 1;
                news.latest_marked = news.latest_marked.max(Some(sent));
            }
        }
        self.reordering = self.reordering.min(most.max(self.first_reordering));
        let reordering = self.reordering;
        for missing in self.missing.values_mut().filter(|m| !m.lost && !m.unknown && now.since(m.passed) >= reordering)
        {
            missing.lost = true;
            news.lost += 1;
            news.latest_lost = news.latest_lost.max(Some(missing.sent));
        }
        self.missing.retain(|_, m| !(m.lost || m.unknown) || now.since(m.passed) < REMEMBERED);
        news
    }

    /// A report tells that a packet has not arrived: its fate is known again.
    fn on_missing(&mut self, number: u64) {
        if let Ok(place) = self.out.binary_search_by_key(&number, |out| out.number) {
            let out = &mut self.out[place];
            self.bytes += if out.unknown { out.size } else { 0 };
            out.unknown = false;
        } else if let Some(missing) = self.missing.get_mut(&number) {
            missing.unknown = false;
        }
    }

    /// When an acknowledged packet left; `None` where that was known before, or it never left.
    fn acknowledge(&mut self, now: Time, number: u64, marked: bool, news: &mut News) -> Option<Time> {
        if let Some(missing) = self.missing.remove(&number) {
            if missing.lost {
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
            news.acked += out.size;
            if out.number == number {
                news.acked_marked += if marked { out.size } else { 0 };
                news.newest = Some((out.sent, None));
                sent = Some(out.sent);
            } else {
                let Out { number, sent, unknown, .. } = out;
                self.missing.insert(number, Missing { sent, passed: now, lost: false, unknown });
            }
        }
        sent
    }

    /// Gives up all that is in flight.
    pub(super) fn clear(&mut self, now: Time) {
        for out in self.out.drain(..) {
            let Out { number, sent, unknown, .. } = out;
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

    /// Ten packets of 1000 bytes, one each millisecond.
    fn flight() -> Flight {
        let mut flight = Flight::new(Span::millis(30));
        (0..10).for_each(|n| flight.on_sent(n, 1_000, ms(n)));
        flight
    }

    fn told(number: u64, arrived: bool, ecn: Ecn) -> PacketReport {
        let at = Some(PeerTime::from_nanos((number as i64 + 20) * 1_000_000));
        let arrived = arrived.then_some(PacketArrival { at, ecn: Some(ecn) });
        PacketReport { number, sent: ms(number), size: Bytes::new(1_000), stream: Stream::Media, arrived }
    }

    #[test]
    fn packets_lost_below_the_highest_acknowledged_leave_the_flight_at_once() {
        let mut flight = flight();
        let news = flight.on_report(
            ms(30),
            &[told(4, true, Ecn::Ect1), told(5, false, Ecn::NotEct), told(6, true, Ecn::Ce)],
            RTT,
        );
        assert_eq!((flight.bytes, news.acked, news.acked_marked), (3_000, 7_000, 1_000));
        assert_eq!((news.delivered, news.marked, news.lost), (2, 1, 0));
        assert_eq!((news.latest_marked, news.newest.map(|n| n.0)), (Some(ms(6)), Some(ms(6))));
    }

    #[test]
    fn a_packet_is_lost_a_reordering_window_after_a_later_one_was_acknowledged_and_once() {
        let mut flight = flight();
        flight.on_report(ms(30), &[told(1, true, Ecn::Ect1)], RTT);
        assert_eq!(flight.on_report(ms(59), &[], RTT).lost, 0);
        let news = flight.on_report(ms(60), &[], RTT);
        assert_eq!((news.lost, news.latest_lost), (1, Some(ms(0))));
        assert_eq!(flight.on_report(ms(90), &[], RTT).lost, 0);
    }

    #[test]
    fn a_lost_packet_that_comes_late_makes_the_window_as_long_as_it_was_late() {
        let mut flight = flight();
        flight.on_report(ms(30), &[told(1, true, Ecn::Ect1)], RTT);
        flight.on_report(ms(60), &[], RTT);
        let news = flight.on_report(ms(80), &[told(0, true, Ecn::Ect1), told(3, true, Ecn::Ect1)], RTT);
        assert_eq!((news.delivered, flight.reordering), (2, Span::millis(50)));
        assert_eq!([flight.on_report(ms(129), &[], RTT).lost, flight.on_report(ms(130), &[], RTT).lost], [0, 1]);
    }

    #[test]
    fn what_is_told_twice_or_was_never_sent_counts_once_or_not_at_all() {
        let mut flight = flight();
        let all: Vec<_> = (0..5).map(|n| told(n, true, Ecn::Ce)).collect();
        assert_eq!(flight.on_report(ms(30), &all, RTT).delivered, 5);
        assert_eq!(flight.on_report(ms(40), &all, RTT), News::default());
        assert_eq!(flight.on_report(ms(40), &[told(77, true, Ecn::Ce)], RTT), News::default());
        assert_eq!(flight.bytes, 5_000);
        flight.clear(ms(50));
        assert_eq!((flight.bytes, flight.on_report(ms(90), &[], RTT).lost), (0, 0));
    }

    #[test]
    fn one_very_late_packet_puts_losses_off_by_a_round_trip_at_most() {
        let mut flight = flight();
        flight.on_report(ms(30), &[told(1, true, Ecn::Ect1)], RTT);
        flight.on_report(ms(60), &[], RTT);
        flight.on_report(ms(1_500), &[told(0, true, Ecn::Ect1), told(3, true, Ecn::Ect1)], RTT);
        assert_eq!([flight.on_report(ms(1_699), &[], RTT).lost, flight.on_report(ms(1_700), &[], RTT).lost], [0, 1]);
    }
}
