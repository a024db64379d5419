//! Receivers that send nothing but standard reports: the sender runs the receiver half itself, on what their reports
//! say.
//!
//! A report block tells how many packets were expected and lost since the last one, and the sender measures the round
//! trip. With its own record of what left when, that is enough to play the arrivals back to a receiver half as they may
//! have been: the losses spread evenly (which makes as many loss events of them as there can be), the delay of each
//! packet between the two round trips that were measured at the interval's ends. What the half then reports goes to the
//! sender half as if it had come from the receiver.
//!
//! Feedback is slow then: RFC 3550 asks for a report every 5 s, half as often again to twice as often. What a
//! receiver's half has said stands for three such intervals. Until then it is repeated every second where a rate is
//! what was said (the registry's `repeats`), so that the sender half, which may be used to several reports a second,
//! does not take the receiver for gone. After that the controller's own rule for silence holds, and the circuit
//! breaker's.
//!
//! A start phase that doubles the rate at each report overshoots for seconds, too. So it is to be over soon: the first
//! report brings the round trip, and what TFRC would start with then (four packets per round trip, RFC 5348) is reached
//! at once, as far as that is no more than twice what the half asks for, or would ask for had the session begun at its
//! own first rate. The first losses are played back as one sign of congestion, which to a half of our own they would
//! have been. And what a report has shown to be too much (1 % lost) is a ceiling from then on, a tenth below what
//! arrived, that rises by 1 % with each report without such a loss. What the half does once a second is done for each
//! second that a report stands for.
//!
//! A round trip is one sample in some seconds, taken by a player that does other things as well: 30 ms above the least
//! of them count as no queue.
//!
//! A controller whose reports say what no report block holds (the registry's `standard_reports`) can't be served so.
//! From the first such receiver on, [`FALLBACK`] takes its place for the whole session, and the decisions say so.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steadycast_control::registry::{Chosen, FALLBACK, Factory, Layer};
use steadycast_control::{
    Announcement, Body, Decision, Departing, FrameEdge, Leave, Limit, Mode, Notice, Probe, ReceiverId, Reception,
    Reply, Report, SenderHalf, Sent, Setup, Wake, Why, around,
};
use steadycast_remote::{Departures, SHADOWS, SentMedia, Shadow};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};

/// Makes the halves of a controller, and lets it serve receivers that send standard reports alone.
pub struct StandardReports {
    own: Arc<dyn Factory>,
    /// Whether the controller itself can be run on standard reports.
    able: bool,
    /// Reports without more than a block that a receiver may begin with, before the controller is given up for it.
    patience: u32,
}

impl StandardReports {
    /// Around this controller.
    pub fn new(own: Arc<dyn Factory>, able: bool) -> Self {
        Self { own, able, patience: 0 }
    }

    /// Receivers were asked for reports of single packets: a standard one may begin with regular reports all the same.
    #[must_use]
    pub fn expecting_packets(self) -> Self {
        Self { patience: BARE, ..self }
    }
}

impl Layer for StandardReports {
    fn own(&self) -> &dyn Factory {
        &*self.own
    }
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let patience = if setup.group { BARE } else { self.patience };
        Box::new(Standard { patience, ..Standard::new(Arc::clone(&self.own), self.able, setup.clone()) })
    }
}

/// A receiver that sends standard reports alone.
struct Receiver {
    shadow: Shadow,
    highest: u64,
    heard: Time,
    rtt: Option<Span>,
    /// The least round trip.
    least: Option<Span>,
    /// What the half said last, and when it was said, or repeated, last.
    said: Option<(Body, Time)>,
    /// Nothing has been lost yet.
    lossless: bool,
    /// What the packets of the next part carry instead of what they carried.
    notice: Option<Notice>,
    /// What this receiver has shown to be too much; nothing before its first loss.
    ceiling: Option<Rate>,
    /// The last report lowered it.
    cut: bool,
    /// By how much a start phase may run ahead of the half.
    lead: f64,
}

/// Receivers by a value of theirs: the least is known at once, however many they are.
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

    /// Whose value is no more than this, by their names.
    fn up_to(&self, most: K) -> Vec<ReceiverId> {
        let mut ids: Vec<_> = self.by.iter().take_while(|(value, _)| *value <= most).map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }
}

/// A loss fraction above this in one report shows that the rate was too high.
const TOO_MUCH: f64 = 0.01;
/// The share of the rate that arrived then which is allowed afterwards.
const BELOW: f64 = 0.9;
/// The factor by which that grows with each report without such a loss.
const MORE: f64 = 1.01;

/// Packets per round trip at which TFRC starts (RFC 5348, 4.2).
const START: f64 = 4.0;
/// The largest multiple of the rate that a half asks for that its start may have.
const MOST_LEAD: f64 = 2.0;

/// A round trip that is measured once in some seconds holds what kept the player from answering: up to this much above
/// the least one it tells of no queue.
const UNSURE: Span = Span::millis(30);

/// How long what a receiver's half has said stands.
const STANDS: Span = Span::secs(15);
/// How often it is repeated meanwhile.
const REPEATED: Span = Span::secs(1);

/// Packets of which it is remembered when they left: more than leave between two reports.
const REMEMBERED: usize = 1 << 16;
/// In a group a receiver of our own may begin with reports that say nothing yet: no controller is given up for one or
/// two.
const BARE: u32 = 3;
/// A receiver that reports within this time of the first packet has been there since then.
const EARLY: Span = Span::secs(10);

struct Standard {
    factory: Arc<dyn Factory>,
    able: bool,
    fallen: bool,
    /// The rate at which [`FALLBACK`] would have begun, once it has taken over.
    begin: Rate,
    setup: Setup,
    half: Box<dyn SenderHalf>,
    /// Bare reports of a receiver before the controller is given up for it.
    patience: u32,
    /// Those who have sent the controller's own reports.
    ours: BTreeSet<ReceiverId>,
    /// Those who have not, and how many reports of theirs came.
    bare: BTreeMap<ReceiverId, (u32, u64)>,
    receivers: BTreeMap<ReceiverId, Receiver>,
    /// When the half of each is to be called, or what it said to be repeated.
    calls: Ranked<Time>,
    ceilings: Ranked<Rate>,
    left: Departures,
}

impl Standard {
    fn new(factory: Arc<dyn Factory>, able: bool, setup: Setup) -> Self {
        Self {
            half: factory.sender(&setup),
            factory,
            able,
            patience: 0,
            fallen: false,
            begin: Rate::ZERO,
            setup,
            ours: BTreeSet::new(),
            bare: BTreeMap::new(),
            receivers: BTreeMap::new(),
            calls: Ranked::new(),
            ceilings: Ranked::new(),
            left: Departures::new(REMEMBERED),
        }
    }

    /// [`FALLBACK`] takes over: whoever is there is served by what its report blocks say.
    fn fall_back(&mut self) {
        let Ok(fallback) = Chosen::shared(FALLBACK.name, Mode::Repaired, &[]) else { return };
        self.factory = fallback;
        self.half = self.factory.sender(&self.setup);
        self.begin = self.half.decision().pacing;
        self.fallen = true;
        self.receivers.clear();
        (self.calls, self.ceilings) = (Ranked::new(), Ranked::new());
        self.left.forget_notices();
    }

    /// By how much the start phase runs ahead of what the halves say: as much as suits all, and not at all once one has
    /// lost something or reports by itself.
    fn start_lead(&self) -> f64 {
        let all = self.receivers.values().map(|r| if r.lossless { r.lead } else { 1.0 });
        if self.ours.is_empty() { all.reduce(f64::min).unwrap_or(1.0) } else { 1.0 }
    }

    /// Keeps in order who is next, after a receiver's half has changed or gone.
    fn rank_receiver(&mut self, id: ReceiverId) {
        let receiver = self.receivers.get(&id);
        let call = |r: &Receiver| r.shadow.half.wake().map(|w| w.at).into_iter().chain(r.repeat(&self.factory)).min();
        self.calls.set(id, receiver.and_then(call));
        self.ceilings.set(id, receiver.and_then(|r| r.ceiling));
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

    fn on_bare(&mut self, report: &Report<'_>) {
        let Some(reception) = report.reception else { return self.half.on_report(report) };
        if self.bare.len() >= SHADOWS && !self.bare.contains_key(&report.from) {
            return self.half.on_report(report);
        }
        let seen = self.bare.entry(report.from).or_insert((0, reception.highest));
        seen.0 += 1;
        let (count, highest) = *seen;
        if !self.able && !self.fallen {
            if count < self.patience {
                return self.half.on_report(report);
            }
            self.fall_back();
        }
        let first = self.left.first().filter(|first| report.at.since(first.at) < EARLY);
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
                receiver.said = Some((body, report.at));
            }
            Reply::Plain => self.half.on_report(report),
            Reply::Suppress => {}
        }
        if let (1, true, Some(rtt)) = (count, early, report.rtt) {
            let start = self.setup.packet.per(rtt).scale(START);
            // Another controller's first rate may be far below the fallback's, which the first report would have
            // doubled.
            let asked = self.half.decision().pacing;
            let most = asked.max(self.begin.scale(2.0)).scale(MOST_LEAD);
            receiver.lead = start.min(most).ratio(asked).max(1.0);
        }
        self.rank_receiver(report.from);
    }

    /// Plays back to a receiver's half what its report tells of; what the half says to it.
    fn play_back(&mut self, report: &Report<'_>, reception: Reception) -> Reply {
        let Some(receiver) = self.receivers.get_mut(&report.from) else { return Reply::Suppress };
        if report.rtt.is_some() {
            // What a half says rests on the round trip that the sender announces: it has to know this one before.
            self.half.on_report(&Report { reception: None, ..*report });
        }
        receiver.least = receiver.least.into_iter().chain(report.rtt).min();
        let all = Interval::of(receiver, report, reception.highest, reception.lost.max(0) as u64);
        let mut reply = Reply::Plain;
        for part in 0..all.parts {
            let (now, interval) = (receiver.replay(&all, part, report, &self.left), all.lasted / all.parts);
            if part + 1 < all.parts {
                // What it says of a part moves the sender half, whose next notice is what the next part's packets
                // carry.
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
                // The round trip that this report brings was that of the interval's last packets: as on the air, an
                // announcement has come with them, and the report answers it.
                receiver.shadow.half.on_announce(&Announcement { at: report.at, body: &body });
            }
            reply = receiver.shadow.report(now, report.members + 1, interval).1;
        }
        receiver.set_ceiling(&all, self.setup.packet);
        (receiver.highest, receiver.heard) = (receiver.highest.max(reception.highest), report.at);
        receiver.rtt = report.rtt.or(receiver.rtt);
        reply
    }
}

impl Receiver {
    /// A receiver of which nothing up to `highest` counts, and nothing before `heard`.
    fn new(shadow: Shadow, highest: u64, heard: Time, rtt: Option<Span>) -> Self {
        Self {
            shadow,
            highest,
            heard,
            rtt,
            least: None,
            said: None,
            lossless: true,
            notice: None,
            ceiling: None,
            cut: false,
            lead: 1.0,
        }
    }

    /// An interval has been played back: too much loss sets the ceiling, and anything less lifts it.
    fn set_ceiling(&mut self, all: &Interval, packet: Bytes) {
        self.lossless &= all.lost == 0;
        // The interval after a cut began before it: what was lost then says nothing of the new rate.
        let too_much = all.too_much();
        if too_much && !self.cut {
            self.ceiling = Some(all.arrived(packet).scale(BELOW));
        } else if !too_much {
            self.ceiling = self.ceiling.map(|rate| rate.scale(MORE));
        }
        self.cut = too_much && !self.cut;
    }

    /// When what was said is to be repeated.
    fn repeat(&self, factory: &Arc<dyn Factory>) -> Option<Time> {
        let (_, at) = self.said.as_ref().filter(|_| factory.terms().repeats)?;
        Some(*at + REPEATED).filter(|at| at.since(self.heard) <= STANDS)
    }

    /// Plays back the arrivals of one part of an interval; returns when it is over.
    fn replay(&mut self, all: &Interval, part: u64, report: &Report<'_>, left: &Departures) -> Time {
        let share = |parts: u64| all.expected * parts / all.parts;
        let instead = self.notice.take();
        for n in share(part)..share(part + 1) {
            let (seq, lost) = (self.highest + 1 + n, all.loses(n, self.lossless));
            self.shadow.count(seq, !lost);
            if let Some(packet) = left.by_seq(seq).filter(|_| !lost) {
                let notice = instead.unwrap_or(packet.notice);
                let at = (packet.at + all.delay(n)).min(report.at);
                self.shadow.arrive(at, &SentMedia { notice, ..*packet }, Ecn::NotEct);
            }
        }
        // A part is over with its last packet; parts are of packets, not of time, since the rate may have changed on
        // the way.
        if part + 1 == all.parts { report.at } else { self.shadow.until.max(all.from) }
    }
}

/// What lies between two reports of one receiver. A half of our own reports about once a second: it is asked so often,
/// too, so that its memory, which counts reports, is as long as it would be; but not before the first loss, since a
/// start phase ends when several reports show no growth, and the rate can't have grown between two of these.
struct Interval {
    from: Time,
    lasted: Span,
    parts: u64,
    expected: u64,
    lost: u64,
    /// Round trips at its beginning and at its end, as far as they tell of queues.
    rtt: (Span, Span),
}

impl Interval {
    fn of(receiver: &Receiver, report: &Report<'_>, highest: u64, lost: u64) -> Self {
        let expected = highest.saturating_sub(receiver.highest);
        let lasted = report.at.since(receiver.heard);
        let parts = if receiver.lossless { 1 } else { (lasted.as_nanos() / REPEATED.as_nanos()).clamp(1, MOST_PARTS) };
        let least = receiver.least.unwrap_or_default();
        let rtt = |one: Option<Span>, other: Option<Span>| {
            one.or(other).map_or(least, |rtt| least.max(rtt.saturating_sub(UNSURE)))
        };
        let rtt = (rtt(receiver.rtt, report.rtt), rtt(report.rtt, receiver.rtt));
        Self { from: receiver.heard, lasted, parts, expected, lost: lost.min(expected), rtt }
    }

    /// Whether its packet number `n` is one of those lost. They are spread evenly: loss `k` falls where its share of
    /// the packets is full. The first losses come together before the last packet, which did arrive: a half of our own
    /// would have ended its start phase a round trip after the first of them, so that they are one sign of congestion.
    fn loses(&self, n: u64, first: bool) -> bool {
        if first {
            return n + 1 < self.expected && n + 1 + self.lost >= self.expected;
        }
        (n + 1) * self.lost / self.expected > n * self.lost / self.expected
    }

    /// Whether it shows that the rate was too high. Reports are seconds apart, and a rate that is too high stays so for
    /// as long: what one of them has shown to be too much is approached again only slowly.
    fn too_much(&self) -> bool {
        self.lost as f64 > TOO_MUCH * self.expected as f64
    }

    /// The rate that arrived.
    fn arrived(&self, packet: Bytes) -> Rate {
        Bytes::new((self.expected - self.lost) * packet.get()).per(self.lasted.max(Span::millis(1)))
    }

    /// The delay of its packet number `n`, between the two round trips.
    fn delay(&self, n: u64) -> Span {
        let share = (n + 1) as f64 / self.expected as f64;
        self.rtt.0.scale(1.0 - share) + self.rtt.1.scale(share)
    }
}

/// Parts of one interval at the most.
const MOST_PARTS: u64 = 10;

impl SenderHalf for Standard {
    around!(half);

    fn on_sent(&mut self, sent: &Sent) {
        self.left.sent(sent);
        self.half.on_sent(sent);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        // Who tells of single packets says what a controller needs that reads them, though it has no body.
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
        // After a fall-back what others say in their own way is not understood; their report blocks are.
        self.on_bare(&Report { body: None, ..*report });
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
                && let Some((body, at)) = &mut receiver.said
            {
                *at = now;
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
        if let Some((ceiling, by)) = self.ceilings.least().filter(|(ceiling, _)| *ceiling < decision.pacing) {
            let most = ceiling.max(self.setup.floor).min(decision.pacing);
            decision.target = decision.target.min(most);
            decision.pacing = most;
            decision.limit = if ceiling <= self.setup.floor { Limit::Floor } else { Limit::Network };
            // Who has lowered the rate answers for it.
            decision.why = Why { by: Some(by), ..Why::rule("below what was too much a report ago") };
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
        // Another controller's notice would be misread by receivers of the one that was announced.
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

    /// How many bare reports of one receiver it takes until [`FALLBACK`] serves it, up to nine.
    fn bare_reports(served: &StandardReports) -> u64 {
        let setup = Setup {
            packet: Bytes::new(1_000),
            mode: Mode::Repaired,
            floor: Rate::kbps(50),
            cap: Rate::mbps(2),
            pictures: None,
            session_bandwidth: Rate::mbps(2),
            group: false,
            id: ReceiverId(1),
            chance: Seed(1).part("half"),
            ecn: Ecn::NotEct,
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
    fn who_has_shown_that_a_rate_was_too_much_is_named_as_who_limits_it() {
        let asmp = Chosen::shared("asmp", Mode::Repaired, &[]).unwrap_or_else(|e| panic!("{e}"));
        let setup = Setup { group: true, ..Setup::unicast(Rate::kbps(50), Rate::mbps(2), Seed(1).part("half")) };
        let mut half = StandardReports::new(asmp, true).sender(&setup);
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
        // One of two loses most of it: by the other the rate would be another one's affair.
        for (from, lost) in [(7, 95), (8, 0)] {
            let fraction = lost as f64 / 100.0;
            let reception = Some(Reception { expected: 100, lost, fraction, highest: 99, jitter: Span::ZERO });
            let (from, rtt) = (ReceiverId(from), Some(Span::millis(40)));
            half.on_report(&Report { at: at(1_000), from, rtt, reception, body: None, members: 2, packets: &[] });
        }
        let decision = half.decision();
        assert_eq!(decision.why.by, Some(ReceiverId(7)), "{decision:?}");
        assert_eq!((decision.pacing, decision.limit), (Rate::kbps(50), Limit::Floor), "{decision:?}");
    }

    #[test]
    fn who_was_asked_for_packet_reports_may_begin_with_two_bare_ones() {
        let tfrc = || Chosen::shared("tfrc", Mode::Repaired, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), false)), 1);
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), false).expecting_packets()), 3);
        assert_eq!(bare_reports(&StandardReports::new(tfrc(), true).expecting_packets()), 9);
    }
}
