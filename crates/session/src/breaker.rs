//! The circuit breaker of RFC 8083: what a sender does, whatever its controller, when the network or its receivers give
//! no sign of life.
//!
//! - No report on the stream for 15 s (4.1: three reporting intervals of at least 5 s).
//! - Reports, but the highest sequence number stands still, in 5 of them over at least 5 s, of all receivers (4.2: five
//!   intervals).
//! - More than ten times what TCP would send, in 5 reports over at least 5 s; in a group, of two receivers at least,
//!   and of more than are left behind anyway (4.3: over CB_INTERVAL).
//!
//! The first step is a tenth of the rate (4.3 allows to try that first); when that does not help for as long again, the
//! media pauses: one packet in two seconds goes on, so that whoever comes, or comes back, can report, and the first
//! report ends the pause. Receivers of ours answer such a packet, whatever their half waits for
//! ([`crate::Receiver::answering`]).
//!
//! For a controller that ignores feedback by design (`fixed`), and where the operator has named a floor, the first
//! condition holds only when there have been reports: some receivers never send any, and a constant rate is its
//! operator's decision.
//!
//! Until the one receiver of a session has reported for the first time, the rate is not below [`UNHEARD`]: players
//! without RTCP show pictures worth the name for as long as the first condition allows.

use crate::OperatorControls;
use crate::feedback_filter::BEHIND;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Factory, FeedbackTiming, Layer};
use steadycast_control::{
    Decision, ExtraSent, Leave, Limit, Probe, ReceiverId, Report, SenderHalf, Sent, Setup, Wake, around,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Three reporting intervals of 5 s (RFC 8083, 4.1).
const SILENCE: Span = Span::secs(15);
/// CB_INTERVAL of the other two conditions, in reports.
const REPORTS: u32 = 5;
/// The least time that CB_INTERVAL lasts.
const INTERVAL: Span = Span::secs(5);
/// The time between two packets while the media pauses.
const PROBE: Span = Span::secs(2);
/// The least rate before the first report, which is that of most controllers' first packets: twelve packets of 1200 B
/// in 384 ms, or CIF at a coarse quantizer.
const UNHEARD: Rate = Rate::kbps(300);
/// Receivers that are watched one by one.
const WATCHED: usize = 4_096;

/// Makes the halves of a controller with a circuit breaker.
pub struct CircuitBreaker {
    own: Arc<dyn Factory>,
    orders: OperatorControls,
    provided: bool,
}

impl CircuitBreaker {
    /// Around this controller. The limits of these orders hold as long as the breaker lets them: no floor keeps up a
    /// rate that nobody answers.
    pub fn new(own: Arc<dyn Factory>, orders: OperatorControls) -> Self {
        Self { own, orders, provided: false }
    }

    /// The operator has named a floor, which holds towards who never reports.
    pub fn provided(self, provided: bool) -> Self {
        Self { provided, ..self }
    }
}

impl Layer for CircuitBreaker {
    fn own(&self) -> &dyn Factory {
        &*self.own
    }
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let (orders, deaf) = (self.orders.clone(), self.provided || self.own.terms().feedback == FeedbackTiming::None);
        let unheard = if setup.group { Rate::ZERO } else { UNHEARD.min(setup.cap) };
        let breaker = Breaker::new(self.own.sender(setup), orders, setup.packet, deaf, setup.group);
        Box::new(Breaker { unheard, ..breaker })
    }
}

/// How far the breaker has gone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// A tenth of the rate that there was, since then.
    Cut {
        since: Time,
        rate: Rate,
        why: &'static str,
    },
    /// The media pauses.
    Open {
        why: &'static str,
    },
}

/// One receiver, over the present interval.
struct Watched {
    since: Time,
    reports: u32,
    highest: u64,
    /// The highest number has not grown since then, in so many reports.
    still: (Time, u32),
    expected: u64,
    lost: u64,
    /// By the interval before too much was sent.
    over: bool,
    rtt: Option<Span>,
    /// All that had been sent when the interval began.
    sent: Bytes,
    /// All that had been sent at the last report.
    sent_before: Bytes,
}

struct Breaker {
    half: Box<dyn SenderHalf>,
    orders: OperatorControls,
    packet: Bytes,
    deaf: bool,
    /// The least rate before the first report.
    unheard: Rate,
    /// Whether there can be more than one receiver.
    group: bool,
    state: State,
    began: Option<Time>,
    heard: Option<Time>,
    sent: Bytes,
    watched: BTreeMap<ReceiverId, Watched>,
}

impl Breaker {
    fn new(half: Box<dyn SenderHalf>, orders: OperatorControls, packet: Bytes, deaf: bool, group: bool) -> Self {
        let (state, watched) = (State::Closed, BTreeMap::new());
        let (unheard, sent) = (Rate::ZERO, Bytes::ZERO);
        Self { half, orders, packet, deaf, unheard, group, state, began: None, heard: None, sent, watched }
    }

    /// How many receivers have to show that too much is sent: of a group more than those who are left behind anyway,
    /// and never one alone, whose word would cut the rate of all.
    fn receivers_needed(&self) -> usize {
        match self.watched.len() {
            all if self.group && all > 1 => ((all as f64 * BEHIND) as usize + 1).max(2),
            _ => 1,
        }
    }

    /// The time since which no report has come, although the sender's own clock went on; `None` where none has to come.
    fn silent_since(&self) -> Option<Time> {
        let since = match (self.heard, self.began) {
            (Some(heard), _) => Some(heard),
            (None, began) if !self.deaf => began,
            _ => None,
        };
        since.map(|since| since.max(self.orders.resumed()))
    }

    /// What is decided where the breaker has not tripped.
    fn closed(&self) -> Decision {
        let mut decision = self.half.decision();
        if self.heard.is_none() && decision.target < self.unheard {
            (decision.target, decision.limit) = (self.unheard, Limit::Floor);
            decision.pacing = decision.pacing.max(self.unheard);
        }
        self.orders.bound(decision)
    }

    fn trip_breaker(&mut self, now: Time, why: &'static str) {
        self.state = match self.state {
            State::Closed => State::Cut { since: now, rate: self.closed().pacing.scale(0.1), why },
            State::Cut { .. } | State::Open { .. } => State::Open { why },
        };
        // What comes next is judged by itself.
        for watched in self.watched.values_mut() {
            watched.restart(now, self.sent);
            watched.still = (now, 0);
        }
    }

    /// When silence next counts as another step.
    fn deadline(&self) -> Option<Time> {
        let since = self.silent_since()?;
        match self.state {
            State::Closed => Some(since + SILENCE),
            State::Cut { since: cut, .. } => Some((since + SILENCE).max(cut + SILENCE)),
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
        if self.watched.len() >= WATCHED && !self.watched.contains_key(&report.from) {
            return;
        }
        let (now, sent) = (report.at, self.sent);
        let watched = self.watched.entry(report.from).or_insert_with(|| Watched::new(now, reception.highest, sent));
        watched.expected += reception.expected;
        watched.lost = watched.lost.saturating_add_signed(reception.lost);
        watched.rtt = report.rtt.or(watched.rtt);
        watched.reports += 1;
        let idle = std::mem::replace(&mut watched.sent_before, sent) == sent;
        if reception.highest > watched.highest || idle {
            (watched.highest, watched.still) = (reception.highest.max(watched.highest), (now, 0));
        } else {
            watched.still.1 += 1;
        }
        let due = watched.reports >= REPORTS && now.since(watched.since) >= INTERVAL;
        if due {
            let over = watched.exceeds_tcp(now, sent, self.packet);
            watched.restart(now, sent);
            watched.over = over;
        }
        let over = watched.over;
        let stuck = |w: &Watched| w.still.1 >= REPORTS && now.since(w.still.0) >= INTERVAL;
        if self.watched.values().all(stuck) {
            return self.trip_breaker(now, "nothing arrives any more");
        }
        if due && over && self.watched.values().filter(|w| w.over).count() >= self.receivers_needed() {
            return self.trip_breaker(now, "ten times what TCP would send");
        }
        let moving = self.watched.values().any(|w| w.still.1 == 0);
        match self.state {
            // A pause is over with the first sign of life, a cut when an interval has gone well.
            State::Open { .. } if moving => self.state = State::Closed,
            State::Cut { since, .. } if moving && !over && (due || now.since(since) >= INTERVAL) => {
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

    /// Whether more was sent than ten times TCP's rate, by the simple equation that RFC 8083 recommends:
    /// `X = s / (R · √(2p/3))`.
    fn exceeds_tcp(&self, now: Time, sent: Bytes, packet: Bytes) -> bool {
        let (Some(rtt), true) = (self.rtt.filter(|r| !r.is_zero()), self.expected > 0 && self.lost > 0) else {
            return false;
        };
        let loss = (self.lost as f64 / self.expected as f64).min(1.0);
        let tcp = packet.per(rtt).scale(1.0 / (2.0 * loss / 3.0).sqrt());
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
        self.heard = Some(report.at);
        let silence =
            matches!(self.state, State::Cut { why, .. } | State::Open { why } if why.starts_with("no report"));
        // The first block of a newcomer counts from itself, but it tells that packets arrive.
        let arrives = report.reception.is_none_or(|r| r.expected > 0) || !self.watched.contains_key(&report.from);
        if silence && arrives {
            self.state = State::Closed;
        }
        self.half.on_report(report);
        self.judge_report(report);
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
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
            State::Open { why } => (self.packet.per(PROBE), why, "pause"),
        };
        decision.target = decision.target.min(most);
        decision.pacing = decision.pacing.min(most);
        decision.limit = Limit::Network;
        decision.why.rule = Cow::Owned(format!("circuit breaker, {step}: {why}"));
        decision
    }

    fn probe(&self) -> Option<Probe> {
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

    /// A sender of 1 Mb/s whose receiver reports every second, as `reception` says of the second; `None`: not at all.
    struct World {
        breaker: Breaker,
        second: u64,
        seq: u64,
    }

    impl World {
        fn new(deaf: bool) -> Self {
            let orders = OperatorControls::default();
            let breaker = Breaker::new(Box::new(Steady(Rate::mbps(1))), orders, Bytes::new(1_000), deaf, false);
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

    /// The rate after some seconds towards a receiver that never reports, of a controller that has come to 20 kb/s.
    fn unheard_rate(named: bool, floor: Option<Rate>, seconds: u64) -> Rate {
        let orders = OperatorControls::default();
        orders.limit(floor, None);
        let breaker = Breaker::new(Box::new(Steady(Rate::kbps(20))), orders, Bytes::new(1_000), named, false);
        let mut world = World { breaker: Breaker { unheard: UNHEARD, ..breaker }, second: 0, seq: 0 };
        world.seconds(seconds, |_| None);
        world.rate()
    }

    #[test]
    fn towards_one_who_never_reports_a_useful_rate_holds_for_15_s_and_a_floor_that_was_named_for_good() {
        assert_eq!(unheard_rate(false, None, 14), UNHEARD);
        assert_eq!(unheard_rate(false, None, 20), UNHEARD.scale(0.1));
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

    /// The rate of 1 Mb/s after ten seconds in a group of which some lose nearly everything, over 200 ms.
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
        // At 100 ms and 1000 B, 1 Mb/s is ten times TCP's rate where √(2p/3) is 0.8, which is p = 0.96; at 20 Mb/s it
        // would be a tenth of that. Here 125 packets a second are sent, of which so many are lost.
        let mut world = World::new(false);
        world.seconds(20, |seq| Some((seq, 110)));
        assert_eq!(world.rate(), Rate::mbps(1), "88 % lost");
        world.seconds(8, |seq| Some((seq, 123)));
        assert!(world.rate() <= Rate::kbps(100), "98 % lost: {}", world.rate());
    }
}
