//! The circuit breaker of RFC 8083. It reduces the rate, independently of the controller, if one of these conditions
//! holds:
//!
//! - RTCP timeout (section 4.1): no report has arrived for three reporting intervals of 5 s.
//! - Media timeout (section 4.2): in 5 reports over at least 5 s, the highest sequence number does not grow at any
//!   receiver.
//! - Congestion (section 4.3): in 5 reports over at least 5 s, the rate exceeds ten times TCP's rate. In a group, this
//!   must be true for at least two receivers and for more than 2 % of all receivers.
//!
//! At first the rate is reduced to a tenth. If a condition holds again at this rate, the media pauses until a report
//! shows arrivals. During the pause one packet is sent every two seconds, so that receivers report
//! ([`crate::Receiver::answering`]).
//!
//! If the controller ignores feedback (`fixed`) or the operator has set a floor, the RTCP timeout applies only after a
//! first report. Until the first report in a unicast session, the rate is at least [`MIN_UNREPORTED_RATE`].

use crate::OperatorControls;
use crate::feedback_filter::LEFT_BEHIND_SHARE;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Factory, FeedbackTiming, Layer};
use steadycast_control::{
    Decision, ExtraSent, Leave, Limit, Probe, ReceiverId, Report, SenderHalf, Sent, Setup, Wake, around,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The RTCP timeout: three reporting intervals of 5 s (RFC 8083, section 4.1).
const RTCP_TIMEOUT: Span = Span::secs(15);
/// The length of a circuit-breaker interval, in reports (RFC 8083, sections 4.2 and 4.3).
const CB_INTERVAL_REPORTS: u32 = 5;
/// The minimum length of a circuit-breaker interval.
const MIN_CB_INTERVAL: Span = Span::secs(5);
const PAUSED_PACKET_INTERVAL: Span = Span::secs(2);
/// The minimum rate before the first report. It is the rate of CIF video with a coarse quantizer.
const MIN_UNREPORTED_RATE: Rate = Rate::kbps(300);
const MAX_WATCHED: usize = 4_096;

/// A layer that adds the circuit breaker to a controller.
pub struct CircuitBreaker {
    own: Arc<dyn Factory>,
    orders: OperatorControls,
    provided: bool,
}

impl CircuitBreaker {
    /// Wraps the controller `own` and applies the limits of `orders`. A breaker that has tripped can go below the
    /// floor.
    pub fn new(own: Arc<dyn Factory>, orders: OperatorControls) -> Self {
        Self { own, orders, provided: false }
    }

    /// Sets whether a floor is configured. If it is, the RTCP timeout does not apply to receivers that never report.
    pub fn provided(self, provided: bool) -> Self {
        Self { provided, ..self }
    }
}

impl Layer for CircuitBreaker {
    fn own(&self) -> &dyn Factory {
        &*self.own
    }
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let (orders, ignores_feedback) =
            (self.orders.clone(), self.provided || self.own.terms().feedback == FeedbackTiming::None);
        let min_unreported = if setup.group { Rate::ZERO } else { MIN_UNREPORTED_RATE.min(setup.cap) };
        let breaker = Breaker::new(self.own.sender(setup), orders, setup.packet, ignores_feedback, setup.group);
        Box::new(Breaker { min_unreported, ..breaker })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// The rate is reduced to `rate`, a tenth of the rate at the time `since`.
    Cut {
        since: Time,
        rate: Rate,
        why: &'static str,
    },
    /// The media is paused.
    Open {
        why: &'static str,
    },
}

struct Watched {
    since: Time,
    reports: u32,
    highest: u64,
    /// When a report last showed progress, and the number of reports since then. A report shows progress if the highest
    /// sequence number has grown, or if nothing was sent since the previous report.
    still: (Time, u32),
    expected: u64,
    lost: u64,
    /// Whether the rate exceeded ten times TCP's rate in the previous interval.
    over: bool,
    rtt: Option<Span>,
    /// Bytes sent in total before this interval.
    sent: Bytes,
    /// Bytes sent in total before the last report.
    sent_before: Bytes,
}

struct Breaker {
    half: Box<dyn SenderHalf>,
    orders: OperatorControls,
    packet: Bytes,
    ignores_feedback: bool,
    /// The minimum rate before the first report.
    min_unreported: Rate,
    group: bool,
    state: State,
    began: Option<Time>,
    last_report: Option<Time>,
    sent: Bytes,
    watched: BTreeMap<ReceiverId, Watched>,
}

impl Breaker {
    fn new(
        half: Box<dyn SenderHalf>,
        orders: OperatorControls,
        packet: Bytes,
        ignores_feedback: bool,
        group: bool,
    ) -> Self {
        let (state, watched) = (State::Closed, BTreeMap::new());
        let (min_unreported, sent) = (Rate::ZERO, Bytes::ZERO);
        Self {
            half,
            orders,
            packet,
            ignores_feedback,
            min_unreported,
            group,
            state,
            began: None,
            last_report: None,
            sent,
            watched,
        }
    }

    /// Returns how many receivers must show that the rate is too high. In a group, a single receiver can't reduce the
    /// rate.
    fn receivers_needed(&self) -> usize {
        match self.watched.len() {
            all if self.group && all > 1 => ((all as f64 * LEFT_BEHIND_SHARE) as usize + 1).max(2),
            _ => 1,
        }
    }

    /// Returns when the wait for the next report began, or `None` if no report is required. If the clock has stood
    /// still since then, returns when it started again.
    fn silent_since(&self) -> Option<Time> {
        // After a first report, further reports are required even if the controller ignores feedback.
        let since = match (self.last_report, self.began) {
            (Some(heard), _) => Some(heard),
            (None, began) if !self.ignores_feedback => began,
            _ => None,
        };
        since.map(|since| since.max(self.orders.resumed()))
    }

    fn closed(&self) -> Decision {
        let mut decision = self.half.decision();
        if self.last_report.is_none() && decision.target < self.min_unreported {
            (decision.target, decision.limit) = (self.min_unreported, Limit::Floor);
            decision.pacing = decision.pacing.max(self.min_unreported);
        }
        self.orders.bound(decision)
    }

    fn trip_breaker(&mut self, now: Time, why: &'static str) {
        self.state = match self.state {
            State::Closed => State::Cut { since: now, rate: self.closed().pacing.scale(0.1), why },
            State::Cut { .. } | State::Open { .. } => State::Open { why },
        };
        // Start new intervals, so that they measure only the reduced rate.
        for watched in self.watched.values_mut() {
            watched.restart(now, self.sent);
            watched.still = (now, 0);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let since = self.silent_since()?;
        match self.state {
            State::Closed => Some(since + RTCP_TIMEOUT),
            // Pause the media only after another RTCP timeout at the reduced rate.
            State::Cut { since: cut, .. } => Some((since + RTCP_TIMEOUT).max(cut + RTCP_TIMEOUT)),
            State::Open { .. } => None,
        }
    }

    fn check_silence(&mut self, now: Time) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.trip_breaker(now, "no report for 15 s");
        }
    }

    fn judge_report(&mut self, report: &Report<'_>) {
        let Some(reception) = report.reception else { return };
        // Limit the table's size, so that forged SSRCs cannot exhaust the memory.
        if self.watched.len() >= MAX_WATCHED && !self.watched.contains_key(&report.from) {
            return;
        }
        let (now, sent) = (report.at, self.sent);
        let watched = self.watched.entry(report.from).or_insert_with(|| Watched::new(now, reception.highest, sent));
        watched.expected += reception.expected;
        // Add a signed number, because duplicates can make the losses in a report block negative (RFC 3550, section
        // 6.4.1).
        watched.lost = watched.lost.saturating_add_signed(reception.lost);
        watched.rtt = report.rtt.or(watched.rtt);
        watched.reports += 1;
        // If nothing was sent since the last report, it is no fault that the highest sequence number has not grown.
        let idle = std::mem::replace(&mut watched.sent_before, sent) == sent;
        if reception.highest > watched.highest || idle {
            (watched.highest, watched.still) = (reception.highest.max(watched.highest), (now, 0));
        } else {
            watched.still.1 += 1;
        }
        let due = watched.reports >= CB_INTERVAL_REPORTS && now.since(watched.since) >= MIN_CB_INTERVAL;
        if due {
            let over = watched.exceeds_tcp(now, sent, self.packet);
            watched.restart(now, sent);
            watched.over = over;
        }
        let over = watched.over;
        let stuck = |w: &Watched| w.still.1 >= CB_INTERVAL_REPORTS && now.since(w.still.0) >= MIN_CB_INTERVAL;
        // Trip only if no receiver makes progress. As long as packets arrive at any receiver, the path to the group
        // works.
        if self.watched.values().all(stuck) {
            return self.trip_breaker(now, "nothing arrives any more");
        }
        if due && over && self.watched.values().filter(|w| w.over).count() >= self.receivers_needed() {
            return self.trip_breaker(now, "ten times what TCP would send");
        }
        let moving = self.watched.values().any(|w| w.still.1 == 0);
        match self.state {
            // End a pause when packets arrive. End a reduction after an interval in which the rate was not too high.
            State::Open { .. } if moving => self.state = State::Closed,
            State::Cut { since, .. } if moving && !over && (due || now.since(since) >= MIN_CB_INTERVAL) => {
                self.state = State::Closed;
            }
            _ => {}
        }
    }
}

impl Watched {
    fn new(now: Time, highest: u64, sent: Bytes) -> Self {
        let still = (now, 0);
        let (expected, lost, over) = (0, 0, false);
        Self { since: now, reports: 0, highest, still, expected, lost, over, rtt: None, sent, sent_before: sent }
    }

    fn restart(&mut self, now: Time, sent: Bytes) {
        (self.since, self.reports, self.expected, self.lost, self.sent) = (now, 0, 0, 0, sent);
        self.over = false;
    }

    /// Returns whether the rate exceeds ten times TCP's rate, by the simple equation of RFC 8083: `X = s / (R ·
    /// √(2p/3))`.
    fn exceeds_tcp(&self, now: Time, sent: Bytes, packet: Bytes) -> bool {
        let (Some(rtt), true) = (self.rtt.filter(|r| !r.is_zero()), self.expected > 0 && self.lost > 0) else {
            return false;
        };
        let loss = (self.lost as f64 / self.expected as f64).min(1.0);
        let tcp = packet.per(rtt).scale(1.0 / (2.0 * loss / 3.0).sqrt());
        // The factor of ten is in RFC 8083, section 4.3.
        sent.saturating_sub(self.sent).per(now.since(self.since)) > tcp.scale(10.0)
    }
}

impl SenderHalf for Breaker {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.began.get_or_insert(sent.at);
        self.sent += sent.size;
        self.half.on_sent(sent);
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.began.get_or_insert(sent.at);
        self.sent += sent.size;
        self.half.on_extra_sent(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        self.last_report = Some(report.at);
        let silence =
            matches!(self.state, State::Cut { why, .. } | State::Open { why } if why.starts_with("no report"));
        // The first report block of a new receiver has `expected = 0`, but shows an arrival nevertheless.
        let arrives = report.reception.is_none_or(|r| r.expected > 0) || !self.watched.contains_key(&report.from);
        if silence && arrives {
            self.state = State::Closed;
        }
        self.half.on_report(report);
        self.judge_report(report);
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        // Remove the receiver. Otherwise it would look like a receiver at which nothing arrives.
        self.watched.remove(&receiver);
        self.half.on_leave(at, receiver, how);
    }

    fn on_timer(&mut self, now: Time) {
        self.check_silence(now);
        if self.half.wake().is_some_and(|wake| wake.at <= now) {
            self.half.on_timer(now);
        }
    }

    fn wake(&self) -> Option<Wake> {
        let own = self.deadline().map(|at| Wake { at, why: "circuit breaker" });
        own.into_iter().chain(self.half.wake()).min_by_key(|wake| wake.at)
    }

    fn decision(&self) -> Decision {
        let mut decision = self.closed();
        let (most, why, step) = match self.state {
            State::Closed => return decision,
            State::Cut { rate, why, .. } => (rate, why, "a tenth"),
            State::Open { why } => (self.packet.per(PAUSED_PACKET_INTERVAL), why, "pause"),
        };
        decision.target = decision.target.min(most);
        decision.pacing = decision.pacing.min(most);
        decision.limit = Limit::Network;
        decision.why.rule = Cow::Owned(format!("circuit breaker, {step}: {why}"));
        decision
    }

    fn probe(&self) -> Option<Probe> {
        // Suppress probes while the rate is reduced, because a probe would exceed it.
        self.half.probe().filter(|_| matches!(self.state, State::Closed)).and_then(|probe| self.orders.pass(probe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_control::{Reception, Why};

    struct Steady(Rate);

    impl SenderHalf for Steady {
        fn on_sent(&mut self, _: &Sent) {}
        fn on_report(&mut self, _: &Report<'_>) {}
        fn decision(&self) -> Decision {
            let (target, why) = (self.0, Why::rule("steady"));
            Decision { target, pacing: target, window: None, limit: Limit::Cap, why }
        }
    }

    /// A sender at 1 Mb/s with a receiver that reports every second. The function `reception` returns the values of the
    /// report, or `None` if the receiver does not report.
    struct World {
        breaker: Breaker,
        second: u64,
        seq: u64,
    }

    impl World {
        fn new(ignores_feedback: bool) -> Self {
            let orders = OperatorControls::default();
            let breaker =
                Breaker::new(Box::new(Steady(Rate::mbps(1))), orders, Bytes::new(1_000), ignores_feedback, false);
            Self { breaker, second: 0, seq: 0 }
        }

        fn seconds(&mut self, count: u64, mut reception: impl FnMut(u64) -> Option<(u64, i64)>) {
            for _ in 0..count {
                let now = Time::ZERO + Span::secs(self.second);
                let packets = self.breaker.decision().pacing.over(Span::secs(1)).get() / 1_000;
                let before = self.seq;
                for _ in 0..packets.max(1) {
                    let sent = Sent {
                        at: now,
                        left: now,
                        seq: self.seq,
                        size: Bytes::new(1_000),
                        data_limited: false,
                        number: 0,
                    };
                    self.breaker.on_sent(&sent);
                    self.seq += 1;
                }
                self.breaker.on_timer(now);
                if let Some((highest, lost)) = reception(self.seq) {
                    let reception =
                        Reception { expected: self.seq - before, lost, fraction: 0.0, highest, jitter: Span::ZERO };
                    let (from, rtt) = (ReceiverId(1), Some(Span::millis(100)));
                    let report =
                        Report { at: now, from, rtt, reception: Some(reception), body: None, members: 1, packets: &[] };
                    self.breaker.on_report(&report);
                }
                self.second += 1;
            }
        }

        fn rate(&self) -> Rate {
            self.breaker.decision().pacing
        }
    }

    #[test]
    fn silence_cuts_to_a_tenth_after_15_s_and_pauses_after_30_and_a_report_ends_it() {
        let mut world = World::new(false);
        world.seconds(10, |seq| Some((seq, 0)));
        world.seconds(14, |_| None);
        assert_eq!(world.rate(), Rate::mbps(1));
        world.seconds(2, |_| None);
        assert_eq!(world.rate(), Rate::kbps(100));
        world.seconds(12, |_| None);
        assert_eq!(world.rate(), Rate::kbps(100));
        world.seconds(4, |_| None);
        assert_eq!(world.rate(), Rate::kbps(4), "one packet of 1000 B in 2 s");
        assert!(world.breaker.decision().why.rule.contains("no report for 15 s"));
        world.seconds(1, |seq| Some((seq, 0)));
        assert_eq!(world.rate(), Rate::mbps(1));
    }

    #[test]
    fn the_operators_floor_and_cap_hold_while_somebody_answers() {
        let mut world = World::new(false);
        world.seconds(3, |seq| Some((seq, 0)));
        world.breaker.orders.limit(None, Some(Rate::kbps(600)));
        assert_eq!((world.rate(), world.breaker.decision().limit), (Rate::kbps(600), Limit::Cap));
        world.breaker.orders.limit(Some(Rate::kbps(1_500)), Some(Rate::mbps(9)));
        assert_eq!((world.rate(), world.breaker.decision().limit), (Rate::kbps(1_500), Limit::Floor));
        world.seconds(16, |_| None);
        assert_eq!(world.rate(), Rate::kbps(150));
        world.seconds(16, |_| None);
        assert_eq!(world.rate(), Rate::kbps(4));
    }

    #[test]
    fn a_deaf_controller_needs_no_reports_until_there_have_been_some() {
        let mut world = World::new(true);
        world.seconds(60, |_| None);
        assert_eq!(world.rate(), Rate::mbps(1));
        world.seconds(1, |seq| Some((seq, 0)));
        world.seconds(40, |_| None);
        assert_eq!(world.rate(), Rate::kbps(4));
    }

    /// Returns the rate after `seconds` to a receiver that never reports. The controller has reduced its own rate to
    /// 20 kb/s.
    fn unheard_rate(named: bool, floor: Option<Rate>, seconds: u64) -> Rate {
        let orders = OperatorControls::default();
        orders.limit(floor, None);
        let breaker = Breaker::new(Box::new(Steady(Rate::kbps(20))), orders, Bytes::new(1_000), named, false);
        let mut world =
            World { breaker: Breaker { min_unreported: MIN_UNREPORTED_RATE, ..breaker }, second: 0, seq: 0 };
        world.seconds(seconds, |_| None);
        world.rate()
    }

    #[test]
    fn towards_one_who_never_reports_a_useful_rate_holds_for_15_s_and_a_floor_that_was_named_for_good() {
        assert_eq!(unheard_rate(false, None, 14), MIN_UNREPORTED_RATE);
        assert_eq!(unheard_rate(false, None, 20), MIN_UNREPORTED_RATE.scale(0.1));
        let floor = Rate::kbps(800);
        assert_eq!(unheard_rate(true, Some(floor), 14), floor);
        assert_eq!(unheard_rate(true, Some(floor), 600), floor);
        assert_eq!(unheard_rate(false, Some(floor), 600), Rate::kbps(4), "a floor that nobody named");
    }

    #[test]
    fn reports_that_show_no_progress_cut_the_rate_and_then_pause_it() {
        let mut world = World::new(false);
        world.seconds(5, |seq| Some((seq, 0)));
        let stuck = world.seq;
        world.seconds(4, |_| Some((stuck, 0)));
        assert_eq!(world.rate(), Rate::mbps(1));
        world.seconds(4, |_| Some((stuck, 0)));
        assert_eq!(world.rate(), Rate::kbps(100));
        world.seconds(8, |_| Some((stuck, 0)));
        assert_eq!(world.rate(), Rate::kbps(4));
        world.seconds(2, |seq| Some((seq, 0)));
        assert_eq!(world.rate(), Rate::mbps(1));
    }

    /// Returns the rate after ten seconds in a group with an RTT of 200 ms. The rate is 1 Mb/s at first. `losing` of
    /// the receivers lose nearly all packets.
    fn after_losses(receivers: u32, losing: u32) -> Rate {
        let (orders, packet) = (OperatorControls::default(), Bytes::new(1_000));
        let mut breaker = Breaker::new(Box::new(Steady(Rate::mbps(1))), orders, packet, false, true);
        let mut seq = 0;
        for second in 0..10 {
            let at = Time::ZERO + Span::secs(second);
            for _ in 0..125 {
                breaker.on_sent(&Sent { at, left: at, seq, size: packet, data_limited: false, number: 0 });
                seq += 1;
            }
            for n in 0..receivers {
                let (lost, rtt) = (if n < losing { 124 } else { 0 }, Some(Span::millis(200)));
                let reception = Reception { expected: 125, lost, fraction: 0.0, highest: seq, jitter: Span::ZERO };
                let (from, reception, members) = (ReceiverId(n), Some(reception), receivers);
                breaker.on_report(&Report { at, from, rtt, reception, body: None, members, packets: &[] });
            }
        }
        breaker.decision().pacing
    }

    #[test]
    fn of_a_group_more_receivers_have_to_show_an_excess_than_are_left_behind_anyway() {
        for (receivers, losing, trips) in
            [(1, 1, true), (10, 1, false), (10, 2, true), (200, 1, false), (200, 4, false), (200, 5, true)]
        {
            let rate = after_losses(receivers, losing);
            assert_eq!(rate, if trips { Rate::kbps(100) } else { Rate::mbps(1) }, "{losing} of {receivers}");
        }
    }

    #[test]
    fn ten_times_tcps_rate_trips_it_and_five_times_does_not() {
        // 125 packets of 1000 B per second are a rate of 1 Mb/s. With an RTT of 100 ms, this is ten times TCP's rate if
        // √(2p/3) is 0.8. This requires that 96 % of the packets are lost.
        let mut world = World::new(false);
        world.seconds(20, |seq| Some((seq, 110)));
        assert_eq!(world.rate(), Rate::mbps(1), "88 % lost");
        world.seconds(8, |seq| Some((seq, 123)));
        assert!(world.rate() <= Rate::kbps(100), "98 % lost: {}", world.rate());
    }
}
