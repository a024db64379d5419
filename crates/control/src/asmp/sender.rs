use super::Config;
use super::constants::LEAST_INTERVAL;
use super::message::{Claim, MOST_ANNOUNCED, announcement, rate_notice};
use super::suppress::RTCP_SHARE;
use crate::entry::{Setup, Values};
use crate::{Body, Check, Decision, Departing, Leave, Limit, Notice, ReceiverId, Report, SenderHalf, Sent, Wake, Why};
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Rate, Span, Time};

/// A receiver that sends no report for this number of report intervals is removed (RFC 3550, section 6.3.5).
const MEMBER_TIMEOUT_INTERVALS: u64 = 5;
/// If no receiver sends a report for this number of report intervals, the rate is halved.
const NO_REPORT_INTERVALS: u64 = 4;
/// Maximum number of receivers in the table. If the table is full, a new receiver replaces the receiver with the oldest
/// report.
const MOST_RECEIVERS: usize = 1 << 17;
const REPORT_SIZE: f64 = 112.0;

#[derive(Clone, Copy, Debug)]
struct Entry {
    heard: Time,
    claim: Option<(Claim, Time)>,
    rtt: Option<Span>,
    /// Position in the queue of receivers that wait for an announcement of their round-trip time.
    waits: Option<AnnounceOrder>,
    was_announced: bool,
}

/// Sort key of the queue of receivers that wait for an announcement. Receivers that have never had an announcement come
/// first. Receivers that have waited longer precede others.
type AnnounceOrder = (bool, Time);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Basis {
    #[default]
    Nothing,
    Receiver(ReceiverId),
    Held,
    Silence,
    /// The last receiver has left the session with a BYE.
    Deserted,
}

/// The sender part of `asmp`. It sends at `r_tx`, which is the lowest rate that a live receiver reports (ASMP, equation
/// 1).
#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    floor: Rate,
    cap: Rate,
    /// RTCP bandwidth that receivers may use, in bytes per second.
    rtcp: f64,
    table: BTreeMap<ReceiverId, Entry>,
    by_rate: BTreeSet<(Rate, ReceiverId)>,
    by_age: BTreeSet<(Time, ReceiverId)>,
    /// Receivers whose round-trip time has to be announced, in the order of announcement.
    to_announce: BTreeSet<(AnnounceOrder, ReceiverId)>,
    rate: Rate,
    basis: Basis,
    members: u32,
    gap: Span,
    highest: u64,
    /// When the last report confirmed an arrival. Before the first such report: when the first packet was sent.
    last_progress: Option<Time>,
    halve_at: Option<Time>,
    /// Checks that the rate is the lowest of the receivers' rates. The check reads all N receivers, so it runs only at
    /// every Nth report.
    least: Check,
    unchecked: usize,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let config = Config::new(values);
        let floor = setup.floor.min(setup.cap);
        Self {
            floor,
            cap: setup.cap,
            // Receivers may use three quarters of RTCP's bandwidth (RFC 3550, section 6.2).
            rtcp: setup.session_bandwidth.as_bytes_per_s() * RTCP_SHARE * 0.75,
            rate: config.initial_rate.clamp(floor, setup.cap),
            least: Check::new(&super::LEAST),
            config,
            ..Self::default()
        }
    }

    /// Returns the estimated interval between two reports of a receiver. It follows from RTCP's share of 5 %. If the
    /// measured interval is longer, returns the measured interval.
    fn interval(&self) -> Span {
        let by_rule = Span::from_secs_f64(f64::from(self.members) * REPORT_SIZE / self.rtcp);
        by_rule.min(Span::secs(3600)).max(self.gap).max(LEAST_INTERVAL)
    }

    fn forget_receiver(&mut self, id: ReceiverId) {
        let Some(entry) = self.table.remove(&id) else { return };
        self.by_age.remove(&(entry.heard, id));
        if let Some((claim, _)) = entry.claim {
            self.by_rate.remove(&(claim.rate, id));
        }
        if let Some(place) = entry.waits {
            self.to_announce.remove(&(place, id));
        }
    }

    /// Returns the lowest rate, and the receiver that reports it. With `agg = "quantile"`, skips a small share of the
    /// rates, beginning with the lowest.
    fn limiting(&self) -> Option<(Rate, ReceiverId)> {
        let skip = self.config.skip.map_or(0, |share| (share * self.by_rate.len() as f64 + 0.5) as usize);
        self.by_rate.iter().nth(skip).copied()
    }

    fn settle_rate(&mut self, now: Time) {
        if let Some((rate, id)) = self.limiting() {
            self.rate = rate.clamp(self.floor, self.cap);
            self.basis = Basis::Receiver(id);
            self.halve_at = None;
        } else {
            if let Basis::Receiver(_) = self.basis {
                self.basis = Basis::Held;
            }
            self.start_no_report_timer(now);
        }
    }

    /// Starts the no-report timer, which halves the rate. Does nothing while a receiver reports a rate.
    fn start_no_report_timer(&mut self, now: Time) {
        // In paper mode, there is no such timer.
        if !self.config.repaired || self.limiting().is_some() || self.halve_at.is_some() {
            return;
        }
        let quiet_since = *self.last_progress.get_or_insert(now);
        self.halve_at = Some((quiet_since + self.interval() * NO_REPORT_INTERVALS).max(now));
    }

    fn check_least(&mut self, now: Time) {
        self.unchecked += 1;
        if self.config.skip.is_some() || self.unchecked < self.table.len() {
            return;
        }
        self.unchecked = 0;
        let life = self.interval() * MEMBER_TIMEOUT_INTERVALS;
        let live = self.table.values().filter(|entry| entry.heard + life > now);
        if let Some(least) = live.filter_map(|entry| entry.claim).map(|(claim, _)| claim.rate).min() {
            self.least.see(self.rate == least.clamp(self.floor, self.cap));
        }
    }

    fn expire_receivers(&mut self, now: Time) {
        let life = self.interval() * MEMBER_TIMEOUT_INTERVALS;
        while let Some((heard, id)) = self.by_age.first().copied() {
            if heard + life > now {
                break;
            }
            self.forget_receiver(id);
        }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        if self.last_progress.is_none() {
            self.start_no_report_timer(sent.at);
        }
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let (now, id) = (report.at, report.from);
        self.members = report.members;
        let claim = report.body.and_then(Claim::read);
        let progress = report.reception.is_some_and(|r| r.highest > self.highest);
        if let Some(reception) = report.reception {
            self.highest = self.highest.max(reception.highest);
        }
        if progress || claim.is_some() {
            self.last_progress = Some(now);
            // The report confirms that packets arrive, so restart the timer.
            if self.halve_at.take().is_some() {
                self.start_no_report_timer(now);
            }
        }
        if claim.is_none() && report.rtt.is_none() {
            return;
        }
        // Limit the size of the table, because reports from the network may have any SSRC.
        let full = self.table.len() >= MOST_RECEIVERS && !self.table.contains_key(&id);
        if let (true, Some((_, oldest))) = (full, self.by_age.first().copied()) {
            self.forget_receiver(oldest);
        }
        let entry = self.table.entry(id).or_insert(Entry {
            heard: now,
            claim: None,
            rtt: None,
            waits: None,
            was_announced: false,
        });
        if let Some(rtt) = report.rtt {
            // Keep an earlier position in the queue, so that frequent reports do not delay the announcement.
            entry.rtt = Some(rtt);
            let place = *entry.waits.get_or_insert((entry.was_announced, now));
            self.to_announce.insert((place, id));
        }
        // Update the age only with a new rate, so that an old rate expires even if other reports arrive.
        if claim.is_some() || entry.claim.is_none() {
            self.by_age.remove(&(entry.heard, id));
            entry.heard = now;
            self.by_age.insert((now, id));
        }
        if let Some(claim) = claim {
            if let Some((old, at)) = entry.claim.replace((claim, now)) {
                self.by_rate.remove(&(old.rate, id));
                let gap = now.since(at);
                // Smooth the interval with a weight of 1/8 (as in RFC 6298), because RTCP randomizes it.
                self.gap = if self.gap.is_zero() { gap } else { self.gap.scale(0.875) + gap / 8 };
            }
            self.by_rate.insert((claim.rate, id));
        }
        self.expire_receivers(now);
        self.settle_rate(now);
        self.check_least(now);
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        self.forget_receiver(receiver);
        self.settle_rate(at);
        if how == Leave::Bye && self.config.repaired && self.table.is_empty() && self.basis == Basis::Held {
            // The last receiver has left, so reduce the rate at once and do not wait for reports.
            self.basis = Basis::Deserted;
            self.halve_at = Some(at);
        }
    }

    fn on_timer(&mut self, now: Time) {
        self.expire_receivers(now);
        self.settle_rate(now);
        if self.halve_at.is_some_and(|at| at <= now) {
            self.rate = self.rate.scale(0.5).max(self.floor);
            if self.basis != Basis::Deserted {
                self.basis = Basis::Silence;
            }
            self.halve_at = Some(now + self.interval());
        }
    }

    fn wake(&self) -> Option<Wake> {
        let oldest = self.by_age.first().map(|(heard, _)| Wake {
            at: *heard + self.interval() * MEMBER_TIMEOUT_INTERVALS,
            why: "a receiver's silence",
        });
        // If the rate is at the floor, it can't be halved, so no timer is needed.
        let silence = self.halve_at.filter(|_| self.rate > self.floor);
        let silence = silence.map(|at| Wake { at, why: "everybody's silence" });
        [oldest, silence].into_iter().flatten().min_by_key(|wake| wake.at)
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.least)
    }

    fn decision(&self) -> Decision {
        let claim = match self.basis {
            Basis::Receiver(id) => self.table.get(&id).and_then(|entry| entry.claim).map(|(claim, _)| (id, claim)),
            _ => None,
        };
        let rule = match self.basis {
            Basis::Nothing => "initial rate",
            Basis::Receiver(_) => "least of the receivers' rates",
            Basis::Held => "no receiver left: held",
            Basis::Silence => "silence: halved",
            Basis::Deserted => "no receiver left",
        };
        let limit = match (self.basis, claim) {
            (Basis::Nothing, _) => Limit::Start,
            (_, Some((_, claim))) if claim.rate >= self.cap => Limit::Cap,
            (_, Some((_, claim))) if claim.rate <= self.floor => Limit::Floor,
            (_, Some((_, claim))) if claim.start => Limit::Start,
            _ if self.rate <= self.floor => Limit::Floor,
            // Without receivers, the rate of the path is unknown, as it is at the start.
            (Basis::Deserted, _) => Limit::Start,
            _ => Limit::Network,
        };
        let why = Why {
            loss: claim.map(|(_, claim)| claim.loss),
            rtt: claim.map(|(_, claim)| claim.rtt),
            by: claim.map(|(id, _)| id),
            ..Why::rule(rule)
        };
        Decision { target: self.rate, pacing: self.rate, window: None, limit, why }
    }

    fn notice(&mut self, packet: &Departing) -> Notice {
        if packet.edge.first { rate_notice(self.rate) } else { Notice::NONE }
    }

    fn announce(&mut self, _: Time) -> Option<Body> {
        let mut rtts = Vec::with_capacity(self.to_announce.len().min(MOST_ANNOUNCED));
        while rtts.len() < MOST_ANNOUNCED {
            let Some((_, id)) = self.to_announce.pop_first() else { break };
            if let Some(entry) = self.table.get_mut(&id) {
                (entry.waits, entry.was_announced) = (None, true);
                rtts.extend(entry.rtt.map(|rtt| (id, rtt)));
            }
        }
        Some(announcement(self.rate, &rtts))
    }
}
