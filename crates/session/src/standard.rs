//! Support for receivers that only send standard reports (RFC 3550).
//!
//! A controller has a sender part and a receiver part. Normally the receiver part runs at the receiver. A receiver that
//! only sends standard reports does not have this part, so the sender runs it too. The sender reconstructs when each
//! packet arrived and passes these arrivals to the receiver part. The reconstruction uses report blocks, RTTs and
//! departure times.
//!
//! A reply of the receiver part is valid for three report intervals ([`REPLY_LIFETIME`]). If the controller sets
//! `Controller::repeats`, its sender part gets the same reply again every second.
//!
//! Four rules shorten the start and limit its overshoot. They do not apply to a controller that ignores feedback
//! (`fixed`).
//! - The first report raises the rate to TFRC's initial rate (RFC 5348). It raises the rate by at most the factor
//!   [`MAX_START_LEAD`].
//! - The first losses are reconstructed as consecutive packets, so that the controller sees one sign of congestion
//!   only.
//! - After a report interval with a queue and high loss, the rate is at most 1.02 times the arrival rate
//!   ([`RiseLimit`]).
//! - After the first loss, each report interval is split into parts of about one second ([`Interval`]). The receiver
//!   part gets the arrivals of one part at a time and replies after each part.
//!
//! Some controllers need more than report blocks (`Controller::standard_reports` is false). [`FALLBACK`] replaces them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use steadycast_control::registry::{Chosen, FALLBACK, Factory, FeedbackTiming, Layer};
use steadycast_control::{
    Announcement, Body, Decision, Departing, FrameEdge, Leave, Limit, Mode, Notice, Probe, ReceiverId, Reception,
    Reply, Report, SenderHalf, Sent, Setup, Wake, Why, around,
};
use steadycast_remote::{Departures, SHADOWS, SentMedia, Shadow};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};

/// Wraps a controller so that it can serve receivers that only send standard reports.
pub struct StandardReports {
    own: Arc<dyn Factory>,
    /// Whether the controller can work with standard reports alone.
    able: bool,
    /// [`FALLBACK`] replaces the controller when a receiver has sent this number of standard reports. With 0, the first
    /// report is enough.
    bare_reports_allowed: u32,
}

impl StandardReports {
    /// Wraps the controller `own`. `able` indicates whether this controller can work with standard reports alone.
    pub fn new(own: Arc<dyn Factory>, able: bool) -> Self {
        Self { own, able, bare_reports_allowed: 0 }
    }

    /// Accepts a few standard reports before the fallback is used, because per-packet feedback may follow.
    #[must_use]
    pub fn expecting_packets(self) -> Self {
        Self { bare_reports_allowed: BARE_REPORTS_ALLOWED, ..self }
    }
}

impl Layer for StandardReports {
    fn own(&self) -> &dyn Factory {
        &*self.own
    }
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let bare_reports_allowed = if setup.group { BARE_REPORTS_ALLOWED } else { self.bare_reports_allowed };
        Box::new(Standard { bare_reports_allowed, ..Standard::new(Arc::clone(&self.own), self.able, setup.clone()) })
    }
}

/// A receiver that only sends standard reports.
struct Receiver {
    shadow: Shadow,
    highest: u64,
    heard: Time,
    rtt: Option<Span>,
    /// The minimum RTT so far.
    least: Option<Span>,
    /// The last reply of the controller's receiver part, and the time at which the reply was made or last repeated.
    reply: Option<(Body, Time)>,
    lossless: bool,
    /// The header extension that all packets get in the next [`Receiver::replay`]. If it is `None`, each packet keeps
    /// the extension with which it was sent.
    notice: Option<Notice>,
    limit: RiseLimit,
    /// The factor by which this receiver's first report raises the controller's start rate. It is at least 1.
    lead: f64,
}

/// Receivers ordered by a value.
struct Ranked<K> {
    of: BTreeMap<ReceiverId, K>,
    by: BTreeSet<(K, ReceiverId)>,
}

impl<K: Ord + Copy> Ranked<K> {
    const fn new() -> Self {
        Self { of: BTreeMap::new(), by: BTreeSet::new() }
    }

    fn set(&mut self, id: ReceiverId, value: Option<K>) {
        let old = match value {
            Some(value) => self.of.insert(id, value),
            None => self.of.remove(&id),
        };
        if let Some(old) = old {
            self.by.remove(&(old, id));
        }
        self.by.extend(value.map(|value| (value, id)));
    }

    fn least(&self) -> Option<(K, ReceiverId)> {
        self.by.first().copied()
    }

    /// Returns the receivers whose value is at most `most`, sorted by id.
    fn up_to(&self, most: K) -> Vec<ReceiverId> {
        let mut ids: Vec<_> = self.by.iter().take_while(|(value, _)| *value <= most).map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }
}

/// Loss fraction above which a path with a queue is considered full.
const CONGESTION_LOSS: f64 = 0.01;
/// The maximum rate, as a multiple of the arrival rate. At 2 Mb/s with a report every 5 s, a factor of 1.02 causes
/// 0.03 % loss. A factor of 1.05 causes 0.3 % loss, and a factor of 1.15 causes 2.6 %.
const RISE: f64 = 1.02;
/// Number of recent report intervals from which the highest arrival rate is taken. With several intervals, a short
/// outage does not limit the rate.
const REMEMBERED_INTERVALS: usize = 8;
/// Fraction of the rate limit that a report interval must have sent. Intervals that sent less are ignored.
const USED_SHARE: f64 = 0.7;
/// Minimum time over which an arrival rate is measured. A minimum is needed because the first report often follows the
/// first packet within milliseconds.
const MIN_INTERVAL: Span = Span::secs(1);

/// Packets per RTT that TFRC sends at the start (RFC 5348, section 4.2).
const START_PACKETS_PER_RTT: f64 = 4.0;
/// Maximum factor by which the controller's start rate is raised.
const MAX_START_LEAD: f64 = 2.0;

/// How far an RTT may exceed the minimum RTT before it is a sign of queueing. The player may cause a smaller excess.
const RTT_UNCERTAINTY: Span = Span::millis(30);

/// How long a reply of the controller's receiver part is valid: three report intervals of 5 s.
const REPLY_LIFETIME: Span = Span::secs(15);
/// The report interval that a controller's receiver part uses when it runs at the receiver.
const OWN_REPORT_INTERVAL: Span = Span::secs(1);
const REPEAT_INTERVAL: Span = Span::secs(1);

/// Maximum number of sent packets that are remembered. It exceeds the number of packets sent between two reports.
const MAX_DEPARTURES: usize = 1 << 16;
/// Number of standard reports after which a receiver is known to send only standard reports. The first one or two
/// reports of a Steadycast receiver may also lack the controller's own body.
const BARE_REPORTS_ALLOWED: u32 = 3;
/// A receiver is assumed to have received the first packet if its report arrives within this time after that packet.
const EARLY_REPORT_TIME: Span = Span::secs(10);

struct Standard {
    factory: Arc<dyn Factory>,
    able: bool,
    fallen: bool,
    /// The initial rate of [`FALLBACK`]. It is zero until the fallback has replaced the controller.
    begin: Rate,
    setup: Setup,
    half: Box<dyn SenderHalf>,
    /// [`FALLBACK`] replaces the controller when a receiver has sent this number of standard reports. With 0, the first
    /// report is enough.
    bare_reports_allowed: u32,
    /// Receivers that have sent reports in the controller's own format.
    ours: BTreeSet<ReceiverId>,
    /// Receivers that send standard reports. The values are the number of reports and the highest sequence number in
    /// the first report.
    bare: BTreeMap<ReceiverId, (u32, u64)>,
    receivers: BTreeMap<ReceiverId, Receiver>,
    /// For each receiver: the next time at which its receiver part must run or its last reply must be repeated.
    calls: Ranked<Time>,
    limits: Ranked<Rate>,
    left: Departures,
}

impl Standard {
    fn new(factory: Arc<dyn Factory>, able: bool, setup: Setup) -> Self {
        Self {
            half: factory.sender(&setup),
            factory,
            able,
            bare_reports_allowed: 0,
            fallen: false,
            begin: Rate::ZERO,
            setup,
            ours: BTreeSet::new(),
            bare: BTreeMap::new(),
            receivers: BTreeMap::new(),
            calls: Ranked::new(),
            limits: Ranked::new(),
            left: Departures::new(MAX_DEPARTURES),
        }
    }

    /// Replaces the controller by [`FALLBACK`].
    fn fall_back(&mut self) {
        let Ok(fallback) = Chosen::shared(FALLBACK.name, Mode::Repaired, &[]) else { return };
        self.factory = fallback;
        self.half = self.factory.sender(&self.setup);
        self.begin = self.half.decision().pacing;
        self.fallen = true;
        // Remove the receiver parts, because they belong to the previous controller.
        self.receivers.clear();
        (self.calls, self.limits) = (Ranked::new(), Ranked::new());
        self.left.forget_notices();
    }

    /// Returns the factor by which the start rate is raised: the minimum `lead` of all receivers. The factor is 1 after
    /// a loss, or if any receiver has sent reports in the controller's own format.
    fn start_lead(&self) -> f64 {
        let all = self.receivers.values().map(|r| if r.lossless { r.lead } else { 1.0 });
        if self.ours.is_empty() { all.reduce(f64::min).unwrap_or(1.0) } else { 1.0 }
    }

    fn rank_receiver(&mut self, id: ReceiverId) {
        let receiver = self.receivers.get(&id);
        let call = |r: &Receiver| r.shadow.half.wake().map(|w| w.at).into_iter().chain(r.repeat(&self.factory)).min();
        self.calls.set(id, receiver.and_then(call));
        self.limits.set(id, receiver.and_then(|r| r.limit.rate));
    }

    fn forget_receiver(&mut self, id: ReceiverId) {
        self.bare.remove(&id);
        if self.receivers.remove(&id).is_some() {
            self.rank_receiver(id);
        }
    }

    fn announce_to_shadows(&mut self, now: Time) -> Option<Body> {
        let body = self.half.announce(now)?;
        for receiver in self.receivers.values_mut() {
            receiver.shadow.half.on_announce(&Announcement { at: now, body: &body });
        }
        for id in self.receivers.keys().copied().collect::<Vec<_>>() {
            self.rank_receiver(id);
        }
        Some(body)
    }

    fn on_standard_report(&mut self, report: &Report<'_>) {
        let Some(reception) = report.reception else { return self.half.on_report(report) };
        // Reporters are not authenticated. Limit the number of receivers for which a receiver part runs here.
        if self.bare.len() >= SHADOWS && !self.bare.contains_key(&report.from) {
            return self.half.on_report(report);
        }
        let seen = self.bare.entry(report.from).or_insert((0, reception.highest));
        seen.0 += 1;
        let (count, highest) = *seen;
        if !self.able && !self.fallen {
            if count < self.bare_reports_allowed {
                return self.half.on_report(report);
            }
            self.fall_back();
        }
        // Assume that a receiver which reports this early has received the first packet.
        let first = self.left.first().filter(|first| report.at.since(first.at) < EARLY_REPORT_TIME);
        let (early, heard) = (first.is_some(), first.map_or(report.at, |first| first.at));
        let highest = first.filter(|_| count == 1).map_or(highest, |first| first.seq.saturating_sub(1));
        if !self.receivers.contains_key(&report.from) {
            let setup = Setup { id: report.from, group: false, ..self.setup.clone() };
            let shadow = Shadow::new(self.factory.receiver(&setup));
            self.receivers.insert(report.from, Receiver::new(shadow, highest, heard, report.rtt));
        }
        let reply = self.play_back(report, reception);
        let Some(receiver) = self.receivers.get_mut(&report.from) else { return };
        match reply {
            Reply::Body(body) => {
                self.half.on_report(&Report { body: Some(&body), ..*report });
                receiver.reply = Some((body, report.at));
            }
            Reply::Plain => self.half.on_report(report),
            Reply::Suppress => {}
        }
        if let (1, true, Some(rtt)) = (count, early, report.rtt) {
            let start = self.setup.packet.per(rtt).scale(START_PACKETS_PER_RTT);
            // After a fallback, `asked` may be as low as the previous controller's rate. Therefore `most` may also be
            // based on twice the fallback's initial rate `begin`.
            let asked = self.half.decision().pacing;
            let most = asked.max(self.begin.scale(2.0)).scale(MAX_START_LEAD);
            receiver.lead = start.min(most).ratio(asked).max(1.0);
        }
        self.rank_receiver(report.from);
    }

    /// Passes arrivals to the receiver part, and returns its reply. The arrivals are those of the packets that the
    /// receiver expected since its previous report. Their times are reconstructed from the report.
    fn play_back(&mut self, report: &Report<'_>, reception: Reception) -> Reply {
        let Some(receiver) = self.receivers.get_mut(&report.from) else { return Reply::Suppress };
        if report.rtt.is_some() {
            // Pass the RTT to the sender part first, because the receiver part uses the sender part's RTT.
            self.half.on_report(&Report { reception: None, ..*report });
        }
        receiver.least = receiver.least.into_iter().chain(report.rtt).min();
        let all = Interval::of(receiver, report, reception.highest, reception.lost.max(0) as u64);
        let mut reply = Reply::Plain;
        for part in 0..all.parts {
            let (now, interval) = (receiver.replay(&all, part, report, &self.left), all.lasted / all.parts);
            if part + 1 < all.parts {
                // Pass the reply on now, because it may change the header extension of the next part's packets.
                if let (_, Reply::Body(body)) = receiver.shadow.report(now, report.members + 1, interval) {
                    let partly = Report { body: Some(&body), rtt: None, reception: None, ..*report };
                    self.half.on_report(&partly);
                }
                let size = self.setup.packet;
                let edge = FrameEdge { first: true, last: false };
                receiver.notice =
                    Some(self.half.notice(&Departing { at: report.at, seq: reception.highest, size, edge }));
                continue;
            }
            if let Some(body) = self.half.announce(report.at) {
                // In a real session, the last packets would carry this announcement to the receiver part.
                receiver.shadow.half.on_announce(&Announcement { at: report.at, body: &body });
            }
            reply = receiver.shadow.report(now, report.members + 1, interval).1;
        }
        receiver.lossless &= all.lost == 0;
        if self.factory.terms().feedback != FeedbackTiming::None {
            let queue = all.rtt.1 > receiver.least.unwrap_or_default();
            receiver.limit.add(&all, queue, self.setup.packet);
        }
        (receiver.highest, receiver.heard) = (receiver.highest.max(reception.highest), report.at);
        receiver.rtt = report.rtt.or(receiver.rtt);
        reply
    }
}

impl Receiver {
    /// Creates a receiver. Its counts begin after the sequence number `highest` and at the time `heard`.
    fn new(shadow: Shadow, highest: u64, heard: Time, rtt: Option<Span>) -> Self {
        Self {
            shadow,
            highest,
            heard,
            rtt,
            least: None,
            reply: None,
            lossless: true,
            notice: None,
            limit: RiseLimit::default(),
            lead: 1.0,
        }
    }

    fn repeat(&self, factory: &Arc<dyn Factory>) -> Option<Time> {
        let (_, at) = self.reply.as_ref().filter(|_| factory.terms().repeats)?;
        Some(*at + REPEAT_INTERVAL).filter(|at| at.since(self.heard) <= REPLY_LIFETIME)
    }

    /// Passes the arrivals of one part of an interval to the receiver part. Returns the time at which this part ends.
    fn replay(&mut self, all: &Interval, part: u64, report: &Report<'_>, left: &Departures) -> Time {
        let share = |parts: u64| all.expected * parts / all.parts;
        let instead = self.notice.take();
        for n in share(part)..share(part + 1) {
            let (seq, lost) = (self.highest + 1 + n, all.loses(n, self.lossless));
            self.shadow.count(seq, !lost);
            if let Some(packet) = left.by_seq(seq).filter(|_| !lost) {
                let notice = instead.unwrap_or(packet.notice);
                let at = (packet.at + all.delay(n)).min(report.at);
                // Report blocks contain no ECN marks, so assume that no packet was marked.
                self.shadow.arrive(at, &SentMedia { notice, ..*packet }, Ecn::NotEct);
            }
        }
        // The last part ends with the report. Any other part ends with the last packet of the part, because parts have
        // equal numbers of packets and not equal durations.
        if part + 1 == all.parts { report.at } else { self.shadow.until.max(all.from) }
    }
}

/// The rate limit that follows from one receiver's reports. It is [`RISE`] times the highest arrival rate in the last
/// [`REMEMBERED_INTERVALS`] intervals. Only intervals that filled the path or sent at least [`USED_SHARE`] of the limit
/// are used. Before there is a limit, all intervals are used.
///
/// The limit bounds how far the rate can exceed the path's capacity before the next report.
#[derive(Default)]
struct RiseLimit {
    /// The limit. It is `None` until the path has been full for the first time.
    rate: Option<Rate>,
    /// Whether an interval has shown high loss and a queue.
    was_full: bool,
    /// The arrival rates of the last intervals that are used for the limit.
    arrived: VecDeque<Rate>,
    /// The next three fields are sums over the reports since the last interval that was long enough.
    lasted: Span,
    expected: u64,
    lost: u64,
}

impl RiseLimit {
    /// Updates the limit with the interval between two reports. `queue` indicates whether the RTT at the end of the
    /// interval shows a queue.
    fn add(&mut self, interval: &Interval, queue: bool, packet: Bytes) {
        self.lasted += interval.lasted;
        self.expected += interval.expected;
        self.lost += interval.lost;
        // Merge an interval with the next interval if it is too short or has no new packets.
        if self.lasted < MIN_INTERVAL || interval.expected == 0 {
            return;
        }
        let rate = |packets: u64| Bytes::new(packets * packet.get()).per(self.lasted);
        let (sent, arrived) = (rate(self.expected), rate(self.expected - self.lost));
        let is_full = queue && self.lost as f64 > CONGESTION_LOSS * self.expected as f64;
        self.was_full |= is_full;
        (self.lasted, self.expected, self.lost) = (Span::ZERO, 0, 0);
        // If the source sent little, its arrival rate does not show the path's capacity. Ignore the interval.
        if !is_full && self.rate.is_some_and(|limit| sent < limit.scale(USED_SHARE)) {
            return;
        }
        if self.arrived.len() == REMEMBERED_INTERVALS {
            self.arrived.pop_front();
        }
        self.arrived.push_back(arrived);
        self.rate = self.arrived.iter().max().filter(|_| self.was_full).map(|most| most.scale(RISE));
    }
}

/// The time between two reports of a receiver. It is divided into parts of about [`OWN_REPORT_INTERVAL`]. The receiver
/// part replies to each part.
///
/// Before the first loss, the interval has only one part. With more parts, the receiver part would reply several times
/// with the same arrival rate, which would end the controller's start phase.
struct Interval {
    from: Time,
    lasted: Span,
    parts: u64,
    expected: u64,
    lost: u64,
    /// The RTTs at the beginning and at the end of the interval. [`RTT_UNCERTAINTY`] is subtracted, but the result is
    /// at least the minimum RTT.
    rtt: (Span, Span),
}

impl Interval {
    fn of(receiver: &Receiver, report: &Report<'_>, highest: u64, lost: u64) -> Self {
        let expected = highest.saturating_sub(receiver.highest);
        let lasted = report.at.since(receiver.heard);
        let parts = if receiver.lossless {
            1
        } else {
            (lasted.as_nanos() / OWN_REPORT_INTERVAL.as_nanos()).clamp(1, MAX_PARTS)
        };
        let least = receiver.least.unwrap_or_default();
        let rtt = |one: Option<Span>, other: Option<Span>| {
            one.or(other).map_or(least, |rtt| least.max(rtt.saturating_sub(RTT_UNCERTAINTY)))
        };
        // If only one RTT is known, use it for both ends.
        let rtt = (rtt(receiver.rtt, report.rtt), rtt(report.rtt, receiver.rtt));
        Self { from: receiver.heard, lasted, parts, expected, lost: lost.min(expected), rtt }
    }

    /// Returns whether packet `n` is treated as lost. Usually the losses are spread evenly over the interval. If
    /// `first` is set, the lost packets are consecutive and the last packet arrives, so that they are one sign of
    /// congestion.
    fn loses(&self, n: u64, first: bool) -> bool {
        if first {
            return n + 1 < self.expected && n + 1 + self.lost >= self.expected;
        }
        (n + 1) * self.lost / self.expected > n * self.lost / self.expected
    }

    /// Returns the delay of packet `n`. It is interpolated linearly between the RTTs at both ends of the interval.
    fn delay(&self, n: u64) -> Span {
        let share = (n + 1) as f64 / self.expected as f64;
        self.rtt.0.scale(1.0 - share) + self.rtt.1.scale(share)
    }
}

const MAX_PARTS: u64 = 10;

impl SenderHalf for Standard {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.left.sent(sent);
        self.half.on_sent(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        // A controller that reads per-packet feedback does not need its receiver part here.
        let own = report.body.is_some() || !report.packets.is_empty();
        if own && !self.fallen {
            if self.ours.len() < SHADOWS {
                self.ours.insert(report.from);
            }
            self.forget_receiver(report.from);
            return self.half.on_report(report);
        }
        if self.ours.contains(&report.from) && !self.fallen {
            return self.half.on_report(report);
        }
        // Drop the body, because the fallback cannot read bodies of the previous controller.
        self.on_standard_report(&Report { body: None, ..*report });
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        self.ours.remove(&receiver);
        self.forget_receiver(receiver);
        self.half.on_leave(at, receiver, how);
    }

    fn on_timer(&mut self, now: Time) {
        let due = self.calls.up_to(now);
        for id in &due {
            if let Some(Receiver { shadow, .. }) = self.receivers.get_mut(id)
                && shadow.half.wake().is_some_and(|wake| wake.at <= now)
            {
                shadow.half.on_timer(now);
            }
        }
        let members = self.receivers.len() as u32;
        for id in due {
            let Some(receiver) = self.receivers.get_mut(&id) else { continue };
            if receiver.repeat(&self.factory).is_some_and(|at| at <= now)
                && let Some((body, at)) = &mut receiver.reply
            {
                *at = now;
                // The repeated reply contains no new measurement, so leave the RTT and the reception out.
                let report =
                    Report { at: now, from: id, rtt: None, reception: None, body: Some(body), members, packets: &[] };
                self.half.on_report(&report);
            }
            self.rank_receiver(id);
        }
        if self.half.wake().is_some_and(|wake| wake.at <= now) {
            self.half.on_timer(now);
        }
    }

    fn wake(&self) -> Option<Wake> {
        let shadow = self.calls.least().map(|(at, id)| {
            let own = self.receivers.get(&id).and_then(|r| r.shadow.half.wake()).filter(|wake| wake.at == at);
            own.unwrap_or(Wake { at, why: "a slow receiver" })
        });
        self.half.wake().into_iter().chain(shadow).min_by_key(|wake| wake.at)
    }

    fn decision(&self) -> Decision {
        let mut decision = self.half.decision();
        if decision.limit == Limit::Start {
            let lead = self.start_lead();
            decision.target = decision.target.scale(lead).min(self.setup.cap);
            decision.pacing = decision.pacing.scale(lead).min(self.setup.cap);
        }
        if let Some((limit, by)) = self.limits.least().filter(|(limit, _)| *limit < decision.pacing) {
            let most = limit.max(self.setup.floor).min(decision.pacing);
            decision.target = decision.target.min(most);
            decision.pacing = most;
            decision.limit = if limit <= self.setup.floor { Limit::Floor } else { Limit::Network };
            decision.why = Why { by: Some(by), ..Why::rule("just above the rate that arrived") };
        }
        if self.fallen {
            let rule = format!("standard reports alone, so {}: {}", FALLBACK.name, decision.why.rule);
            decision.why.rule = Cow::Owned(rule);
        }
        decision
    }

    fn probe(&self) -> Option<Probe> {
        self.half.probe().filter(|_| !self.fallen)
    }

    fn notice(&mut self, packet: &Departing) -> Notice {
        let notice = self.half.notice(packet);
        self.left.noticed(packet, notice);
        // Another controller was announced to the receiver, so the receiver would misread the fallback's header
        // extensions.
        if self.fallen { Notice::NONE } else { notice }
    }

    fn announce(&mut self, now: Time) -> Option<Body> {
        let body = self.announce_to_shadows(now)?;
        if self.fallen { None } else { Some(body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_control::Reception;
    use steadycast_units::Seed;

    /// Sends standard reports of one receiver. Returns the number of the report with which [`FALLBACK`] replaces the
    /// controller. Returns nine if none of eight reports has this effect.
    fn bare_reports(served: &StandardReports) -> u64 {
        let setup = Setup {
            packet: Bytes::new(1_000),
            mode: Mode::Repaired,
            floor: Rate::kbps(50),
            cap: Rate::mbps(2),
            capped: true,
            pictures: None,
            session_bandwidth: Rate::mbps(2),
            group: false,
            id: ReceiverId(1),
            chance: Seed(1).part("half"),
            ecn: Ecn::NotEct,
            probes: true,
        };
        let mut half = served.sender(&setup);
        let at = |n: u64| Time::ZERO + Span::millis(100 * n);
        (1..9)
            .find(|n| {
                half.on_sent(&Sent {
                    at: at(*n),
                    left: at(*n),
                    number: *n,
                    seq: *n,
                    size: setup.packet,
                    data_limited: false,
                });
                let reception =
                    Some(Reception { expected: 1, lost: 0, fraction: 0.0, highest: *n, jitter: Span::ZERO });
                let (from, rtt) = (ReceiverId(2), Some(Span::millis(40)));
                half.on_report(&Report { at: at(*n), from, rtt, reception, body: None, members: 1, packets: &[] });
                half.decision().why.rule.starts_with("standard reports alone")
            })
            .unwrap_or(9)
    }

    #[test]
    fn the_receiver_whose_path_is_full_is_named_as_the_limit() {
        let asmp = Chosen::shared("asmp", Mode::Repaired, &[]).unwrap_or_else(|e| panic!("{e}"));
        let setup = Setup { group: true, ..Setup::unicast(Rate::kbps(50), Rate::mbps(2), Seed(1).part("half")) };
        let mut half = Standard::new(asmp, true, setup.clone());
        let at = |ms: u64| Time::ZERO + Span::millis(ms);
        for n in 0..100 {
            half.on_sent(&Sent {
                at: at(10 * n),
                left: at(10 * n),
                number: n,
                seq: n,
                size: setup.packet,
                data_limited: false,
            });
        }
        for from in [7, 8] {
            let reception = Some(Reception { expected: 100, lost: 0, fraction: 0.0, highest: 99, jitter: Span::ZERO });
            let (from, rtt) = (ReceiverId(from), Some(Span::millis(40)));
            half.on_report(&Report { at: at(1_000), from, rtt, reception, body: None, members: 2, packets: &[] });
        }
        for (limit, pacing, limited) in
            [(Rate::kbps(60), Rate::kbps(60), Limit::Network), (Rate::kbps(20), Rate::kbps(50), Limit::Floor)]
        {
            half.receivers.entry(ReceiverId(7)).and_modify(|receiver| receiver.limit.rate = Some(limit));
            half.rank_receiver(ReceiverId(7));
            let decision = half.decision();
            assert_eq!(decision.why.by, Some(ReceiverId(7)), "{decision:?}");
            assert_eq!((decision.pacing, decision.limit), (pacing, limited), "{decision:?}");
        }
    }

    #[test]
    fn the_rate_is_limited_once_losses_and_a_queue_have_shown_a_full_path() {
        let second = |sent: u64, lost: u64| Interval {
            from: Time::ZERO,
            lasted: Span::secs(1),
            parts: 1,
            expected: sent,
            lost,
            rtt: (Span::millis(40), Span::millis(40)),
        };
        let packet = Bytes::new(1_250); // 100 packets in a second are 1 Mb/s
        let mut limit = RiseLimit::default();
        let mut after = |interval: &Interval, queue: bool| {
            limit.add(interval, queue, packet);
            limit.rate.map(|rate| rate.as_bps() / 1_000)
        };
        assert_eq!(after(&Interval { lasted: Span::millis(50), ..second(2, 1) }, true), None, "no rate yet");
        assert_eq!(after(&second(100, 20), false), None, "losses by chance");
        assert_eq!(after(&second(150, 0), true), None, "a queue without losses");
        // Of 200 packets in a second, 190 arrive, which is 1900 kb/s. The limit is 1.02 times this rate.
        assert_eq!(after(&second(200, 10), true), Some(1_938));
        for _ in 0..2 * REMEMBERED_INTERVALS {
            assert_eq!(after(&second(20, 0), false), Some(1_938), "a source with little to send");
            assert_eq!(after(&second(0, 0), false), Some(1_938), "a report without packets is no interval");
        }
        for _ in 0..REMEMBERED_INTERVALS - 1 {
            assert_eq!(after(&second(150, 100), true), Some(1_938), "an outage of some intervals");
        }
        assert_eq!(after(&second(150, 100), true), Some(510), "a path that has become slower");
        assert_eq!(after(&second(51, 0), false), Some(520), "2 % more");
    }

    #[test]
    fn who_was_asked_for_packet_reports_may_begin_with_two_bare_ones() {
        let tfrc = || Chosen::shared("tfrc", Mode::Repaired, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), false)), 1);
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), false).expecting_packets()), 3);
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), true).expecting_packets()), 9);
    }
}
