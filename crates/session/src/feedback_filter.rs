//! Plausibility checks on feedback, as a layer between the session and the sender part of a controller. They prevent a
//! single receiver from keeping a group's rate low:
//!
//! - Plausibility: a report is ignored if it refers to packets that were not sent, or contains more losses than
//!   packets.
//! - Spacing: a report within 2 ms of the receiver's previous report is ignored, unless it is per-packet feedback.
//! - Evidence: a receiver is excluded if its report more than halves the target rate, and the new target rate is less
//!   than half of the send rate, although its report block shows almost no loss. While the media need less than the
//!   target rate, the receivers' rates differ widely, so the send rate counts as well.
//! - Floor: a receiver is excluded if it keeps a group at the lower limit of the rate for 5 s.
//! - Quantile: a receiver is excluded if it limits the rate for 5 s out of 30 s. Its conditions must also be twice as
//!   bad as the conditions of the worst receiver that is still served. This rule excludes at most 2 % of a group.
//! - Operator: receivers that the operator excludes are ignored.
//!
//! An exclusion by one of the rules ends after a minute. A session's only receiver is never excluded.
//! [`crate::SenderSettings::gated`] limits floods of reports.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use steadycast_control::registry::{Factory, Layer};
use steadycast_control::{Decision, Leave, Limit, Probe, ReceiverId, Report, SenderHalf, Sent, Setup, around};
use steadycast_units::{Bytes, Rate, Span, Time};

/// An operator's exclusions and rate limits.
#[derive(Clone, Debug, Default)]
pub struct OperatorControls(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    aside: BTreeMap<u32, (&'static str, Option<Time>)>,
    floor: Option<Rate>,
    cap: Option<Rate>,
    resumed: Time,
}

const BY_ORDER: &str = "by order";

impl OperatorControls {
    fn locked(&self) -> MutexGuard<'_, Inner> {
        // Use the data even if another thread has panicked, because that must not end the session.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes a receiver. Its reports are ignored.
    pub fn exclude(&self, ssrc: u32) {
        self.locked().aside.insert(ssrc, (BY_ORDER, None));
    }

    /// Admits all excluded receivers.
    pub fn admit_all(&self) {
        self.locked().aside.clear();
    }

    /// Sets the lower and the upper limit of the rate. A limit that is `None` stays as it is.
    pub fn limit(&self, floor: Option<Rate>, cap: Option<Rate>) {
        let mut inner = self.locked();
        (inner.floor, inner.cap) = (floor.or(inner.floor), cap.or(inner.cap));
    }

    /// Records that the clock stood still until `now`, for example because the machine was suspended. Reports that are
    /// missing for this reason are not a fault.
    pub fn on_clock_gap(&self, now: Time) {
        let mut inner = self.locked();
        inner.resumed = inner.resumed.max(now);
    }

    /// Returns when the clock last started again after standing still, or zero if it has not stood still.
    pub(crate) fn resumed(&self) -> Time {
        self.locked().resumed
    }

    /// Returns the lower limit of the rate, or `None` if there is none.
    pub fn floor(&self) -> Option<Rate> {
        self.locked().floor
    }

    /// Returns `probe`, or `None` if its rate is above the upper limit.
    pub(crate) fn pass(&self, probe: Probe) -> Option<Probe> {
        let cap = self.locked().cap;
        cap.is_none_or(|cap| probe.rate <= cap).then_some(probe)
    }

    pub(crate) fn bound(&self, mut decision: Decision) -> Decision {
        let (floor, cap) = {
            let inner = self.locked();
            (inner.floor, inner.cap)
        };
        if let Some(floor) = floor.filter(|floor| decision.target < *floor) {
            (decision.target, decision.pacing, decision.limit) = (floor, decision.pacing.max(floor), Limit::Floor);
        }
        // Apply the upper limit last, so that it takes precedence if the lower limit is above it.
        if let Some(cap) = cap.filter(|cap| decision.pacing > *cap) {
            (decision.target, decision.pacing, decision.limit) = (decision.target.min(cap), cap, Limit::Cap);
        }
        decision
    }

    /// Returns the SSRCs of the excluded receivers, each with the reason.
    pub fn aside(&self) -> Vec<(u32, &'static str)> {
        self.locked().aside.iter().map(|(ssrc, (why, _))| (*ssrc, *why)).collect()
    }
}

/// A layer that adds the plausibility checks to a controller.
pub struct FeedbackDefence {
    own: Arc<dyn Factory>,
    orders: OperatorControls,
}

impl FeedbackDefence {
    /// Adds the checks to the controller `own`.
    pub fn new(own: Arc<dyn Factory>, orders: OperatorControls) -> Self {
        Self { own, orders }
    }
}

impl Layer for FeedbackDefence {
    fn own(&self) -> &dyn Factory {
        &*self.own
    }
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        Box::new(FeedbackFilter::new(self.own.sender(setup), self.orders.clone(), setup.group))
    }
}

/// Minimum time between two reports of a receiver. A report that arrives earlier is ignored.
const MIN_REPORT_SPACING: Span = Span::millis(2);
/// The time for which a receiver may limit a group's rate or keep it at its lower limit, before it is excluded.
const LIMITING_TIME: Span = Span::secs(5);
const EXCLUSION_TIME: Span = Span::secs(60);
/// The send rate is measured over this time, or up to twice as long.
const SEND_RATE_WINDOW: Span = Span::secs(1);
/// A report block with a lower loss than this does not justify halving the rate.
const SUPPORTING_LOSS: f64 = 0.01;
/// Maximum number of receivers in the table. It is also the maximum number of excluded receivers.
const MAX_RECEIVERS: usize = 16_384;
/// Maximum share of a group that the quantile rule may exclude.
pub(crate) const LEFT_BEHIND_SHARE: f64 = 0.02;
const LIMITING_WINDOW: Span = Span::secs(30);
/// The quantile rule excludes a receiver only if its conditions are worse by this factor. They are compared with the
/// worst receiver that is still served.
const LEFT_BEHIND_FACTOR: f64 = 2.0;
const LEFT_BEHIND: &str = "it is among the slowest 2 %, and half as fast as the others";

struct Known {
    heard: Time,
    /// The highest recent loss fraction. It decays by a tenth with each report.
    fraction: f64,
    /// The mean loss fraction over about eight reports.
    loss: f64,
    rtt: Option<Span>,
    /// The time for which this receiver has limited the group's rate in the present window.
    limited: Span,
}

impl Known {
    /// Returns R·√p, where R is the RTT and p is the loss rate. It is proportional to the inverse of the rate in the
    /// square-root formula, so a higher value means worse conditions.
    fn hardship(&self) -> f64 {
        self.rtt.unwrap_or(Span::millis(100)).as_secs_f64() * self.loss.sqrt()
    }
}

/// Measures the send rate over the present window and the one before.
#[derive(Default)]
struct SendRate {
    /// When the earlier and the present window began, and the bytes that were sent in each.
    windows: Option<[(Time, Bytes); 2]>,
}

impl SendRate {
    fn add(&mut self, at: Time, size: Bytes) {
        let windows = self.windows.get_or_insert([(at, Bytes::ZERO); 2]);
        if at.since(windows[1].0) >= SEND_RATE_WINDOW {
            *windows = [windows[1], (at, Bytes::ZERO)];
        }
        windows[1].1 += size;
    }

    /// Returns the send rate, or `None` if it is unknown because nothing was sent before `now`.
    fn rate(&self, now: Time) -> Option<Rate> {
        let [earlier, present] = self.windows?;
        let duration = now.since(earlier.0);
        (!duration.is_zero()).then(|| (earlier.1 + present.1).per(duration))
    }
}

struct FeedbackFilter {
    half: Box<dyn SenderHalf>,
    orders: OperatorControls,
    group: bool,
    known: BTreeMap<ReceiverId, Known>,
    newest: u64,
    send_rate: SendRate,
    /// The receiver that keeps the group at the lower limit of the rate, and the time at which it began to do so.
    at_floor: Option<(ReceiverId, Time)>,
    judged: Time,
    window: Time,
}

impl FeedbackFilter {
    fn new(half: Box<dyn SenderHalf>, orders: OperatorControls, group: bool) -> Self {
        let (known, judged, window) = (BTreeMap::new(), Time::ZERO, Time::ZERO);
        Self { half, orders, group, known, newest: 0, send_rate: SendRate::default(), at_floor: None, judged, window }
    }

    /// Returns whether a receiver is not excluded. Removes its exclusion if the exclusion has expired.
    fn accepts_receiver(&mut self, now: Time, from: ReceiverId) -> bool {
        let mut orders = self.orders.locked();
        match orders.aside.get(&from.0) {
            Some((_, Some(until))) if *until <= now => {
                orders.aside.remove(&from.0);
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    fn exclude_receiver(&mut self, now: Time, who: ReceiverId, why: &'static str) {
        let mut orders = self.orders.locked();
        if orders.aside.len() >= MAX_RECEIVERS {
            // The table is full, possibly because of forged SSRCs. Remove an exclusion that has an end. Keep the
            // operator's exclusions, which have none.
            let room = orders.aside.iter().find(|(_, (_, until))| until.is_some()).map(|(ssrc, _)| *ssrc);
            room.and_then(|ssrc| orders.aside.remove(&ssrc));
        }
        // Let the exclusion expire, because the path to the receiver may recover.
        orders.aside.insert(who.0, (why, Some(now + EXCLUSION_TIME)));
        drop(orders);
        self.at_floor = None;
        self.known.remove(&who);
        // Remove the receiver from the controller. Otherwise its last report would continue to limit the rate.
        self.half.on_leave(now, who, Leave::Silent);
    }

    /// Applies the quantile rule to the receiver `by`, which limits the rate. Excludes it if its conditions are much
    /// worse than the conditions of the others.
    fn leave_behind(&mut self, report: &Report<'_>, by: ReceiverId) {
        let now = report.at;
        // Limit the time to 1 s, because it is not known which receiver limits the rate while reports are missing.
        let lasted = now.since(std::mem::replace(&mut self.judged, now)).min(Span::secs(1));
        if now.since(self.window) >= LIMITING_WINDOW {
            self.window = now;
            self.known.values_mut().for_each(|k| k.limited = Span::ZERO);
        }
        let Some(known) = self.known.get_mut(&by) else { return };
        known.limited += lasted;
        if known.limited < LIMITING_TIME {
            return;
        }
        known.limited = Span::ZERO;
        let own = known.hardship();
        let behind = self.orders.locked().aside.values().filter(|(why, _)| *why == LEFT_BEHIND).count();
        let most = (f64::from(report.members) * LEFT_BEHIND_SHARE) as usize;
        let Some(more) = most.checked_sub(behind).filter(|more| *more > 0) else { return };
        // `all` begins with the worst conditions, and `more` receivers can still be excluded. So `all[more]` is the
        // worst receiver that would remain.
        let mut all: Vec<f64> = self.known.values().map(Known::hardship).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        if all.get(more).is_some_and(|served| own >= served * LEFT_BEHIND_FACTOR && own > 0.0) {
            self.exclude_receiver(now, by, LEFT_BEHIND);
        }
    }

    fn is_plausible(&self, report: &Report<'_>) -> bool {
        report.reception.is_none_or(|r| {
            let sent = r.highest <= self.newest.saturating_add(1);
            sent && r.lost <= i64::try_from(r.expected).unwrap_or(i64::MAX).saturating_add(1 << 16) && r.fraction <= 1.0
        })
    }

    /// Excludes the receiver that limits the rate if the rule about evidence, about the floor or about the quantile
    /// applies. The module documentation describes these rules. `before` is the target rate before the report.
    ///
    /// The last receiver is never excluded, because the session would end without reports.
    fn judge_report(&mut self, report: &Report<'_>, before: Rate) {
        if !self.group || self.known.len() < 2 {
            return;
        }
        let (now, decision) = (report.at, self.half.decision());
        // If the receiver has not sent a report block, no measurement contradicts the rate that it requests. Assume a
        // loss of 1, so that the rule about evidence does not apply.
        let fraction = self.known.get(&report.from).map_or(1.0, |k| k.fraction);
        let mine = decision.why.by == Some(report.from);
        let used = self.send_rate.rate(now).map_or(before, |sent| sent.min(before));
        if mine && decision.target < used.scale(0.5) && fraction < SUPPORTING_LOSS {
            return self.exclude_receiver(
                now,
                report.from,
                "its report block does not bear out the rate that it asks for",
            );
        }
        self.at_floor = match (decision.limit, decision.why.by, self.at_floor) {
            // Start the time again if a different receiver keeps the group at the lower limit.
            (Limit::Floor, Some(by), Some((who, since))) if by == who => Some((who, since)),
            (Limit::Floor, Some(by), _) => Some((by, now)),
            _ => None,
        };
        if let Some((who, since)) = self.at_floor
            && now.since(since) >= LIMITING_TIME
        {
            return self.exclude_receiver(now, who, "it can't keep up with the floor");
        }
        if let (Limit::Network | Limit::Floor, Some(by)) = (decision.limit, decision.why.by) {
            self.leave_behind(report, by);
        }
    }
}

impl SenderHalf for FeedbackFilter {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.newest = self.newest.max(sent.seq);
        self.send_rate.add(sent.at, sent.size);
        self.half.on_sent(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if !self.accepts_receiver(report.at, report.from) {
            if self.known.remove(&report.from).is_some() {
                self.half.on_leave(report.at, report.from, Leave::Silent);
            }
            return;
        }
        if !self.is_plausible(report) {
            return;
        }
        if self.known.len() >= MAX_RECEIVERS && !self.known.contains_key(&report.from) {
            self.known.pop_first();
        }
        let fraction = report.reception.map_or(0.0, |r| r.fraction);
        let known = self.known.entry(report.from);
        let soon = matches!(&known, Entry::Occupied(k) if report.at.since(k.get().heard) < MIN_REPORT_SPACING);
        // Accept per-packet feedback at any time, because it may be split into several reports.
        if soon && report.packets.is_empty() {
            return;
        }
        let fresh = Known { heard: report.at, fraction, loss: fraction, rtt: report.rtt, limited: Span::ZERO };
        let known = known.or_insert(fresh);
        // Let the fraction fall slowly, because the controller may still react to an earlier loss.
        (known.heard, known.fraction) = (report.at, fraction.max(known.fraction * 0.9));
        // Use a mean, because a single bad report must not make a receiver the slowest.
        known.loss += (fraction - known.loss) / 8.0;
        known.rtt = report.rtt.or(known.rtt);
        let before = self.half.decision().target;
        self.half.on_report(report);
        self.judge_report(report, before);
    }

    fn decision(&self) -> Decision {
        self.half.decision()
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        self.known.remove(&receiver);
        self.half.on_leave(at, receiver, how);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_control::{Body, Reception, Why};
    use steadycast_units::Seed;

    /// A controller whose rate is the lowest rate that a receiver requests. The first byte of a report's body is the
    /// requested rate in units of 10 kb/s.
    #[derive(Default)]
    struct Least(BTreeMap<ReceiverId, u8>);

    impl SenderHalf for Least {
        fn on_sent(&mut self, _: &Sent) {}
        fn on_report(&mut self, report: &Report<'_>) {
            if let Some(rate) = report.body.and_then(|b| b.bytes.first()) {
                self.0.insert(report.from, *rate);
            }
        }
        fn on_leave(&mut self, _: Time, receiver: ReceiverId, _: Leave) {
            self.0.remove(&receiver);
        }
        fn decision(&self) -> Decision {
            let least = self.0.iter().min_by_key(|(_, rate)| **rate);
            let rate = least.map_or(100, |(_, rate)| *rate).max(5);
            let target = Rate::kbps(10 * u64::from(rate));
            let limit = if rate == 5 { Limit::Floor } else { Limit::Network };
            let why = Why { by: least.map(|(id, _)| *id), ..Why::rule("least") };
            Decision { target, pacing: target, window: None, limit, why }
        }
    }

    struct World(FeedbackFilter, OperatorControls, u64);

    impl World {
        fn new() -> Self {
            let orders = OperatorControls::default();
            let mut filter = FeedbackFilter::new(Box::new(Least::default()), orders.clone(), true);
            filter.newest = 1_000;
            Self(filter, orders, 0)
        }

        /// Simulates one second. Sixteen receivers request 1 Mb/s. `liar` is the request and the loss fraction of
        /// another receiver, or `None` if this receiver does not report.
        fn second(&mut self, liar: Option<(u8, f64)>) -> Rate {
            for n in 0..17 {
                let at = Time::ZERO + Span::millis(self.2 * 1_000 + n * 10);
                let (rate, fraction) = match liar {
                    Some(said) if n == 16 => said,
                    None if n == 16 => continue,
                    _ => (100, 0.0),
                };
                let body = Body { subtype: 1, bytes: vec![rate] };
                let reception = Reception {
                    expected: 10,
                    lost: (fraction * 10.0) as i64,
                    fraction,
                    highest: 900,
                    jitter: Span::ZERO,
                };
                let from = ReceiverId(n as u32);
                let (reception, body) = (Some(reception), Some(&body));
                self.0.on_report(&Report { at, from, rtt: None, reception, body, members: 17, packets: &[] });
            }
            self.2 += 1;
            self.0.decision().target
        }
    }

    #[test]
    fn a_liar_whose_report_block_shows_no_loss_costs_nothing() {
        let mut world = World::new();
        world.second(None);
        assert_eq!(world.second(Some((1, 0.0))), Rate::mbps(1));
        assert_eq!(world.1.aside(), [(16, "its report block does not bear out the rate that it asks for")]);
    }

    #[test]
    fn a_receiver_without_loss_is_excluded_only_if_its_report_halves_what_is_sent() {
        for sent in [40, 200, 1_000, 3_000] {
            for request in [6, 9, 12, 45, 55, 100] {
                let mut world = World::new();
                for n in 0..4_200 / 20 {
                    let (at, size) = (Time::ZERO + Span::millis(n * 20), Bytes::new(sent * 20 / 8));
                    world.0.on_sent(&Sent { at, left: at, seq: 1_000 + n, size, data_limited: true, number: 0 });
                }
                world.2 = 3;
                world.second(None);
                world.second(Some((request, 0.0)));
                let used = sent.min(1_000) / 2;
                assert_eq!(world.1.aside().is_empty(), u64::from(request) * 10 >= used, "{request}0 of {sent} kb/s");
            }
        }
    }

    #[test]
    fn whoever_holds_the_group_at_the_floor_is_set_aside_after_5_s_and_heard_again_after_a_minute() {
        let mut world = World::new();
        world.second(None);
        let rates: Vec<Rate> = (0..70).map(|_| world.second(Some((1, 0.5)))).collect();
        let held = rates.iter().take_while(|r| **r == Rate::kbps(50)).count();
        assert_eq!(held, 5);
        let free = rates[held..].iter().take_while(|r| **r == Rate::mbps(1)).count();
        assert!((58..=62).contains(&free), "{free} s without it");
        // This receiver is slow, but its rate is above the lower limit, so it is still served. With the lower limit,
        // the operator decides which receivers are served.
        let mut world = World::new();
        assert_eq!((0..20).map(|_| world.second(Some((20, 0.2)))).min(), Some(Rate::kbps(200)));
    }

    #[test]
    fn in_a_session_that_is_no_group_nobody_is_set_aside() {
        for (rate, fraction) in [(1, 0.0), (1, 0.5)] {
            let mut world = World::new();
            world.0.group = false;
            world.second(None);
            assert_eq!((0..20).map(|_| world.second(Some((rate, fraction)))).max(), Some(Rate::kbps(50)));
            assert!(world.1.aside().is_empty());
        }
    }

    #[test]
    fn the_operators_orders_hold_until_they_are_taken_back() {
        let mut world = World::new();
        assert_eq!(world.second(Some((20, 0.2))), Rate::kbps(200));
        world.1.exclude(16);
        assert_eq!((0..100).map(|_| world.second(Some((20, 0.2)))).min(), Some(Rate::mbps(1)));
        world.1.admit_all();
        assert_eq!(world.second(Some((20, 0.2))), Rate::kbps(200));
    }

    #[test]
    fn what_cannot_be_true_is_not_heard() {
        let mut world = World::new();
        world.second(None);
        let reception = Reception { expected: 1, lost: 0, fraction: 0.5, highest: 5_000, jitter: Span::ZERO };
        let (body, at) = (Body { subtype: 1, bytes: vec![1] }, Time::ZERO + Span::secs(5));
        let from = ReceiverId(3);
        let report =
            Report { at, from, rtt: None, reception: Some(reception), body: Some(&body), members: 16, packets: &[] };
        world.0.on_report(&report);
        assert_eq!(world.0.decision().target, Rate::mbps(1), "it names a packet that was not sent");
    }

    /// Simulates a group. Its first `slow` receivers lose more packets and request a lower rate than the others.
    /// Returns the rate at the end, and how many receivers the quantile rule has excluded.
    fn group(size: u64, slow: u64, seconds: u64, seed: u64) -> (Rate, usize) {
        let mut world = World::new();
        let mut chance = Seed(seed).part("losses");
        for second in 0..seconds {
            for n in 0..size {
                let at = Time::ZERO + Span::millis(second * 1_000) + Span::micros(n * 1_000_000 / size);
                // Losses of equal receivers differ by chance. They are about three in 300 packets.
                let lost = if n < slow { 60 } else { chance.bits32() % 7 };
                let fraction = f64::from(lost) / 300.0;
                let rate = if n < slow { 20 } else { 100 - (lost as u8) * 3 };
                let body = Body { subtype: 1, bytes: vec![rate] };
                let (highest, jitter) = (900, Span::ZERO);
                let reception = Reception { expected: 300, lost: i64::from(lost), fraction, highest, jitter };
                let (from, rtt) = (ReceiverId(n as u32 + 1), Some(Span::millis(40)));
                let members = size as u32;
                let (reception, body) = (Some(reception), Some(&body));
                world.0.on_report(&Report { at, from, rtt, reception, body, members, packets: &[] });
            }
        }
        let behind = world.1.aside().iter().filter(|(_, why)| *why == LEFT_BEHIND).count();
        (world.0.decision().target, behind)
    }

    #[test]
    fn the_slowest_two_per_cent_are_left_behind_and_no_more() {
        for seed in 0..2 {
            let (rate, behind) = group(100, 2, 25, seed);
            assert_eq!(behind, 2);
            assert!((Rate::kbps(800)..=Rate::kbps(950)).contains(&rate), "{rate}");
            // The quantile rule may exclude two of 100 receivers, so the third slow receiver limits the group. In a
            // group of 40 receivers, the rule may exclude none.
            assert_eq!(group(100, 3, 25, seed).0, Rate::kbps(200));
            assert_eq!(group(40, 1, 25, seed), (Rate::kbps(200), 0));
            // In a group of equal receivers, no receiver is excluded.
            assert_eq!(group(100, 0, 25, seed).1, 0);
        }
    }

    #[test]
    fn whatever_is_reported_the_tables_are_bounded_and_the_only_receiver_is_heard() {
        let mut chance = Seed(7).part("operations");
        let mut world = World::new();
        let (mut now, mut sent) = (Time::ZERO, 1_000);
        for _ in 0..10_000 {
            now += Span::micros(u64::from(chance.bits32() % 20_000));
            let from = ReceiverId(chance.bits32() % if chance.bits32().is_multiple_of(2) { 50 } else { 400 });
            match chance.bits32() % 40 {
                0 => world.0.on_leave(now, from, Leave::Silent),
                1 => world.0.on_timer(now),
                2..6 => {
                    sent += 1;
                    world.0.on_sent(&Sent {
                        at: now,
                        left: now,
                        seq: sent,
                        size: Bytes::new(1_000),
                        data_limited: false,
                        number: 0,
                    });
                }
                _ => {
                    let fraction = f64::from(chance.bits32() % 256) / 256.0 * f64::from(chance.bits32() % 2);
                    let (expected, highest) = (u64::from(chance.bits32() % 300), sent + u64::from(chance.bits32() % 3));
                    let lost = i64::from(chance.bits32() as i32) >> (chance.bits32() % 32);
                    let reception = Reception { expected, lost, fraction, highest, jitter: Span::ZERO };
                    let body = Body { subtype: 1, bytes: vec![chance.bits32() as u8] };
                    let rtt = (!chance.bits32().is_multiple_of(3)).then(|| Span::nanos(u64::from(chance.bits32())));
                    let (reception, body) = (Some(reception), Some(&body));
                    world.0.on_report(&Report { at: now, from, rtt, reception, body, members: 5_000, packets: &[] });
                }
            }
            let rate = world.0.decision().target;
            assert!((Rate::kbps(50)..=Rate::kbps(2_550)).contains(&rate), "{rate}");
        }
        let behind = world.1.aside().iter().filter(|(_, why)| *why == LEFT_BEHIND).count();
        assert!(behind <= 100, "{behind}");
        for n in 0..40_000 {
            let reception = Reception { expected: 1, lost: 0, fraction: 0.0, highest: 900, jitter: Span::ZERO };
            let (from, reception) = (ReceiverId(n + 1_000), Some(reception));
            world.0.on_report(&Report {
                at: now,
                from,
                rtt: None,
                reception,
                body: None,
                members: 5_000,
                packets: &[],
            });
            world.0.exclude_receiver(now + Span::millis(n.into()), ReceiverId(n + 100_000), LEFT_BEHIND);
            assert!(world.0.known.len() <= MAX_RECEIVERS);
        }
        let aside = world.1.aside().len();
        assert!((10_000..=MAX_RECEIVERS).contains(&aside), "{aside}");
        let mut alone = World::new();
        for n in 0..200 {
            let at = Time::ZERO + Span::millis(n * 100);
            let body = Body { subtype: 1, bytes: vec![if n < 10 { 100 } else { 1 }] };
            let report = Report {
                at,
                from: ReceiverId(1),
                rtt: None,
                reception: None,
                body: Some(&body),
                members: 1,
                packets: &[],
            };
            alone.0.on_report(&report);
        }
        assert_eq!((alone.0.decision().target, alone.1.aside().len()), (Rate::kbps(50), 0));
    }
}
