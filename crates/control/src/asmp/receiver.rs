use super::Config;
use super::constants::{LEAST_INTERVAL, RAMP_DELAY, SIMILARITY};
use super::delay::{Indicator, State};
use super::loss::Losses;
use super::message::{Claim, read_announcement, read_rate};
use super::rtt::RoundTrip;
use super::suppress::{RTCP_SHARE, Rounds, timer};
use crate::entry::{Setup, Values};
use crate::equation::{LossRate, loss_for, throughput_full};
use crate::loss::{LossHistory, LossSettings, ReceivedPacket};
use crate::meter::Meter;
use crate::{
    Announcement, Arrival, Check, Due, ExtraArrival, Overheard, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake,
};
use std::sync::Arc;
use steadycast_units::{Bytes, Chance, OneWay, Rate, Span, Time};

/// Number of reports after which a receiver assumes a round-trip time if none is announced. The receiver also waits for
/// at least this number of [`LEAST_INTERVAL`]s.
const ASSUMED_RTT_REPORTS: u32 = 2;
/// While the round-trip time is unknown, this number of first reports is never suppressed.
const NO_RTT_REPORTS: u32 = 8;
/// The start phase ends once the send rate has not risen for this number of reports and for this time. In that case,
/// another receiver limits the rate.
const STALLED: (u32, Span) = (4, Span::secs(2));
/// Long window over which the receive rate is measured. It averages frames of different sizes. The receive rate is the
/// higher of the rates in both windows.
const LONG: Span = Span::secs(1);
/// Short window over which the receive rate is measured. It follows a rising rate.
const SHORT: Span = Span::millis(250);
/// Interval between reports in the start phase, as long as the round-trip time is unknown.
const START_INTERVAL: Span = Span::millis(100);
/// A missing packet counts as lost once its number is lower than the newest number by this difference.
const REORDER: u64 = 128;
/// Size of a report in bytes. It contains IP, UDP, RR, SDES and APP.
const REPORT_SIZE: f64 = 112.0;
/// Share of RTCP's bandwidth that receivers may use for reports (RFC 3550, section 6.3.1).
const RECEIVERS_SHARE: f64 = 0.75;

#[derive(Clone, Copy, Debug)]
enum NextReport {
    /// Compute the rate and send a report when RTCP's timer expires.
    Rtcp,
    /// Compute the rate and send a report at this time.
    Own(Time),
    /// Compute the rate at this time. The report may be sent later in the suppression round, or not at all.
    Round(Time),
    /// Send a report at `fire`, unless another receiver's report suppresses it. The suppression round ends at `until`.
    Fire { fire: Time, until: Time },
}

#[derive(Clone, Copy, Debug)]
struct Ramp {
    seen: Rate,
    reports: u32,
    since: Option<Time>,
}

/// The receiver part of `asmp`. It computes the rate of a TCP connection on this path, and smooths this rate (ASMP,
/// 3.3–3.8).
pub(super) struct Receiver {
    config: Arc<Config>,
    id: ReceiverId,
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    /// RTCP bandwidth that receivers may use, in bytes per second.
    rtcp: f64,
    group: bool,
    chance: Chance,

    rtt: RoundTrip,
    indicator: Indicator,
    losses: Losses,
    events: Option<Box<LossHistory>>,
    /// Number of packets that were marked CE since the last report. They count as lost (RFC 6679).
    marked: u64,
    ever_lost: bool,
    announced: Option<Rate>,
    received: Bytes,
    meter: Meter,
    most_received: Option<Rate>,
    since: Option<Time>,
    first: Option<Time>,
    /// Number of packets expected and lost since a report was last sent. They are already included in `losses`.
    counted: (u64, i64),
    /// Number of packets expected and lost up to the last report, if `losses` does not include them yet. They are kept
    /// here because the session resets its own counters when a report is sent.
    carried: (u64, i64),
    reports: u32,
    ramp: Option<Ramp>,
    claim: Option<Claim>,
    next: NextReport,
    rounds: Rounds,
    /// Checks, in repaired mode only, that no report after the start phase raises the rate by more than one packet per
    /// round trip.
    steps: Check,
}

impl Receiver {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let config = values.read(Config::new);
        Self {
            id: setup.id,
            packet: setup.packet,
            floor: setup.floor.min(setup.cap),
            cap: setup.cap,
            rtcp: setup.session_bandwidth.as_bytes_per_s() * RTCP_SHARE * RECEIVERS_SHARE,
            group: setup.group,
            chance: setup.chance.clone(),
            rtt: RoundTrip::new(&config),
            indicator: Indicator::new(&config),
            losses: Losses::default(),
            events: config.loss_events.then(|| {
                // A discount of 1.0 disables history discounting (RFC 5348, section 5.5). With discounting, a stream
                // with a smooth rate would get more than its fair share of a drop-tail queue.
                Box::new(LossHistory::new(LossSettings { discount: 1.0, reorder: REORDER, ..LossSettings::default() }))
            }),
            marked: 0,
            ever_lost: false,
            announced: None,
            received: Bytes::ZERO,
            meter: Meter::default(),
            most_received: None,
            since: None,
            first: None,
            counted: (0, 0),
            carried: (0, 0),
            reports: 0,
            ramp: config.ramp.then_some(Ramp { seen: Rate::ZERO, reports: 0, since: None }),
            claim: None,
            next: NextReport::Rtcp,
            rounds: Rounds::default(),
            steps: Check::new(&super::STEP),
            config,
        }
    }

    /// Returns the number of packets expected and the number lost since the last call. The counters in `slot` begin at
    /// the last report that was sent.
    fn counts_since_last_slot(&mut self, slot: &Slot) -> (u64, i64) {
        let (expected, lost) = if slot.expected < self.counted.0 { (0, 0) } else { self.counted };
        let carried = std::mem::take(&mut self.carried);
        self.counted = (slot.expected, slot.lost);
        (slot.expected - expected + carried.0, slot.lost.saturating_sub(lost).saturating_add(carried.1))
    }

    /// Returns two receive rates. The first is the rate since the last call. The second is the higher of the rates over
    /// [`LONG`] and [`SHORT`]. Returns `None` if nothing has arrived.
    fn receive_rate(&mut self, now: Time) -> Option<(Rate, Rate)> {
        let received = std::mem::take(&mut self.received);
        let since = self.since.replace(now)?;
        if received == Bytes::ZERO {
            return None;
        }
        let latest = received.per(now.since(since).max(Span::millis(1)));
        let lately = [SHORT, LONG].into_iter().filter_map(|over| self.meter.rate(now, over)).max().unwrap_or(latest);
        self.most_received = self.most_received.max(Some(lately));
        Some((latest, lately))
    }

    /// Computes a new report. Returns `None` if nothing has arrived, or if the receiver still waits for a round-trip
    /// time.
    fn compute(&mut self, slot: &Slot) -> Option<Claim> {
        self.reports = self.reports.saturating_add(1);
        let (expected, lost) = self.counts_since_last_slot(slot);
        let (latest, x_recv) = self.receive_rate(slot.now)?;
        let (state, queue) = self.indicator.judge();
        let rtt = self.rtt.step(slot.now, self.indicator.drift());
        // Count a negative loss as 0. Duplicates can make it negative (RFC 3550, section 6.4.1).
        let lost = u64::try_from(lost).unwrap_or(0) + std::mem::take(&mut self.marked);
        self.count_losses(expected, lost, x_recv, rtt);
        let waited = self.first.map_or(Span::ZERO, |first| slot.now.since(first));
        let few = if self.rtt.is_told() { NO_RTT_REPORTS } else { ASSUMED_RTT_REPORTS };
        let patient = self.reports <= few || waited < LEAST_INTERVAL * u64::from(ASSUMED_RTT_REPORTS);
        let waits = self.config.repaired && !self.rtt.is_known() && patient;
        // If report intervals last several seconds, report nothing yet. A rate from the first moments would be used for
        // too long.
        if waits && (self.ramp.is_none() && self.claim.is_none() || slot.interval > LEAST_INTERVAL) {
            return None;
        }
        let old = self.claim.map_or_else(|| self.first_rate(x_recv), |claim| claim.rate);
        // The start phase needs no round-trip time. After the start phase, the rate does not rise as long as the
        // round-trip time is unknown.
        let (rate, clamped) = match self.ramped(old, lost > 0, state, queue, x_recv.max(latest), slot.now) {
            Ok(rate) => (rate, false),
            Err(old) if waits => (if lost > 0 { old.min(x_recv) } else { old }, false),
            Err(old) => self.smoothed(old, lost > 0, state, x_recv, rtt),
        };
        Some(Claim {
            rate: rate.clamp(self.floor, self.cap),
            loss: self.loss().map_or(0.0, |l| l.get()),
            rtt,
            state,
            clamped,
            has_rtt: self.rtt.is_known(),
            start: self.ramp.is_some(),
        })
    }

    fn loss(&self) -> Option<LossRate> {
        self.events.as_ref().map_or_else(|| self.losses.rate(), |events| events.rate())
    }

    fn first_rate(&self, x_recv: Rate) -> Rate {
        // In paper mode, all receivers start at the same rate (ASMP, 5.4.1).
        let rate = if self.config.repaired { self.announced.unwrap_or(x_recv) } else { self.config.initial_rate };
        rate.clamp(self.floor, self.cap)
    }

    /// Adds the losses of a report interval. The first losses occur because the start phase has doubled the rate too
    /// often. So they are limited to the losses of a TCP connection that sends at the receive rate (RFC 5348, section
    /// 6.3.1).
    fn count_losses(&mut self, expected: u64, lost: u64, x_recv: Rate, rtt: Span) {
        let mut counted = lost;
        if lost > 0 && !self.ever_lost && self.config.ramp {
            let steady = loss_for(x_recv, self.packet, rtt).get();
            counted = counted.min((steady * expected as f64) as u64 + 1);
        }
        self.ever_lost |= lost > 0;
        self.losses.push(expected, counted);
    }

    /// Returns `Ok` with the next rate if the start phase continues. Returns `Err` with the rate to continue from if
    /// the start phase has ended.
    fn ramped(
        &mut self,
        old: Rate,
        lost: bool,
        state: State,
        queue: Span,
        x_recv: Rate,
        now: Time,
    ) -> Result<Rate, Rate> {
        let Some(ramp) = &mut self.ramp else { return Err(old) };
        if lost || state == State::Congested || queue > RAMP_DELAY {
            self.ramp = None;
            // Continue from the receive rate, because the last doubling exceeded the capacity of the path.
            return Err(old.min(x_recv));
        }
        let sent = self.announced.unwrap_or(x_recv);
        let since = *ramp.since.get_or_insert(now);
        if sent > ramp.seen.scale(1.01) {
            *ramp = Ramp { seen: sent, reports: 0, since: Some(now) };
        } else {
            ramp.reports += 1;
        }
        if old >= self.cap || (ramp.reports >= STALLED.0 && now.since(since) >= STALLED.1) {
            self.ramp = None;
            return Err(old);
        }
        Ok(old.max(old.scale(2.0).min(x_recv.scale(2.0))))
    }

    /// Computes the next rate. Also returns whether the rate was limited because of the send rate.
    ///
    /// ```text
    ///  loss since the last report:  r_inst = min( X(P, t_RTT, l, 4 t_RTT, 1),  r + P/t_RTT )     eq. 12
    ///  no loss:                     r_inst = r + P/t_RTT                                          eq. 13
    ///                               r      = γ r_inst + (1 − γ) r                                 eq. 14
    ///                               r      ≤ max(min(r_tx, 2 X_recv), X_recv) + P/t_RTT
    /// ```
    ///
    /// The limit r + P/t_RTT in the first line, and the whole last line, are used only in repaired mode. If losses are
    /// counted as loss events, the first line is used for every report.
    fn smoothed(&self, old: Rate, lost: bool, state: State, x_recv: Rate, rtt: Span) -> (Rate, bool) {
        let config = &self.config;
        let step = self.packet.per(rtt);
        let mut inst = old + step;
        if let (true, Some(l)) = (lost || self.events.is_some(), self.loss()) {
            let fair = throughput_full(self.packet, rtt, l, rtt * 4, 1.0);
            inst = if config.repaired { fair.min(inst) } else { fair };
        }
        let mut gamma = match state {
            State::Congested => config.gamma_congested,
            State::Unloaded => config.gamma_unloaded,
        };
        // A gain of 0.2, as in the paper, would apply only a fifth of a decrease.
        if inst < old {
            gamma = config.gamma_down.unwrap_or(gamma);
        }
        let rate = inst.scale(gamma) + old.scale(1.0 - gamma);
        // Allow more than the receive rate if the announced rate is higher. A source with coarse rate steps sends less
        // than its announced rate. If the limit were near the receive rate, such a source would never reach its next
        // step.
        let most = self.announced.map_or(x_recv, |sent| sent.min(x_recv.scale(2.0)).max(x_recv)) + step;
        if config.repaired && rate > most { (most, true) } else { (rate, false) }
    }

    /// Whether a report of the rate `other` suppresses a report of the rate `own` (ASMP, 3.8). The sender uses the
    /// lowest reported rate, which suppression can make too high by `SIMILARITY` at most.
    fn says_the_same(own: Rate, other: Rate) -> bool {
        let (own, other) = (own.as_bps_f64(), other.as_bps_f64());
        (other - own).abs() <= SIMILARITY * own
    }

    fn after_report(&mut self, slot: &Slot) -> NextReport {
        let fast = f64::from(slot.members) * REPORT_SIZE / self.rtcp;
        let apart = if self.rtt.is_known() { self.rtt.get() * 2 } else { START_INTERVAL };
        let fast = Span::from_secs_f64(fast).max(apart);
        let spaced = self.config.spaced && self.rtt.is_known();
        let least = if spaced { self.rtt.get() } else { LEAST_INTERVAL };
        // After the start phase, too, report frequently until the round-trip time is known. This shortens the wait for
        // the sender's announcement.
        let starting = self.ramp.is_some() || (self.config.ramp && !self.rtt.is_known());
        let own = match self.claim {
            Some(_) if starting && fast < slot.interval.max(least) => fast,
            Some(_) if slot.interval < least => least,
            // Before the first rate is reported, use RTCP's timer. Waiting for `least` would delay the sender's
            // announcement of the round-trip time.
            _ => return NextReport::Rtcp,
        };
        NextReport::Own(slot.now + own.scale(self.chance.between(0.5, 1.5)))
    }

    fn reply(&mut self) -> Reply {
        // Restart these counters, because the session restarts its own counters when a report is sent.
        self.counted = (0, 0);
        self.rtt.on_report();
        self.claim.map_or(Reply::Plain, |claim| Reply::Body(claim.body()))
    }
}

impl ReceiverHalf for Receiver {
    fn on_renamed(&mut self, id: ReceiverId) {
        self.id = id;
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.received += extra.size;
        self.meter.add(extra.size, extra.at, LONG);
    }

    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.since.get_or_insert(arrival.at);
        self.first.get_or_insert(arrival.at);
        self.received += arrival.size;
        self.meter.add(arrival.size, arrival.at, LONG);
        if let Some(rate) = read_rate(arrival.notice) {
            self.announced = Some(rate);
        }
        self.marked += u64::from(arrival.ecn.is_ce());
        if let Some(events) = &mut self.events {
            let rtt = self.rtt.get();
            let received = ReceivedPacket { seq: arrival.seq, at: arrival.at, ce: arrival.ecn.is_ce(), rtt };
            let rate = self.most_received.or(self.announced).unwrap_or(self.config.initial_rate);
            let packet = self.packet;
            events.on_packet(&received, || 1.0 / loss_for(rate, packet, rtt).get());
        }
        let one_way = OneWay::between(arrival.sent, arrival.at);
        self.rtt.on_packet(one_way);
        if arrival.edge.first {
            // In paper mode, delays are measured from the time at which the frame was sampled (ASMP, 3.4).
            let sampled = (!self.config.repaired).then(|| OneWay::between(arrival.sampled, arrival.at));
            self.indicator.on_frame(sampled.unwrap_or(one_way), arrival.at);
        }
    }

    fn on_overheard(&mut self, heard: &Overheard<'_>) {
        let (NextReport::Fire { until, .. }, Some(own)) = (self.next, self.claim) else { return };
        let Some(other) = Claim::read(heard.body) else { return };
        if Self::says_the_same(own.rate, other.rate) {
            self.next = NextReport::Round(until);
        }
    }

    fn on_announce(&mut self, announced: &Announcement<'_>) {
        let Some((rate, rtt)) = read_announcement(announced.body, self.id) else { return };
        self.announced = Some(rate);
        self.rtt.on_announced(rtt, announced.at);
    }

    fn due(&self) -> Due {
        match self.next {
            NextReport::Rtcp => Due::Rtcp,
            NextReport::Own(at) => Due::At(Wake { at, why: "report interval" }),
            NextReport::Round(at) => Due::At(Wake { at, why: "next round" }),
            NextReport::Fire { fire, .. } => Due::At(Wake { at: fire, why: "suppression timer" }),
        }
    }

    /// The results of `due` and `wake` change only when this receiver sends a report, or overhears another receiver's
    /// report.
    fn is_patient(&self) -> bool {
        true
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        if let NextReport::Fire { until, .. } = self.next {
            self.next = NextReport::Round(until.max(slot.now));
            // The session resets its counters when a report is sent. So keep in `carried` what `losses` does not
            // include yet.
            self.carried = self.counts_since_last_slot(slot);
            return self.reply();
        }
        let computed = self.compute(slot);
        if let (true, Some(new), Some(old)) = (self.config.repaired, computed, self.claim)
            && !new.start
        {
            let most = old.rate.as_bps_f64() + self.packet.as_f64() * 8.0 / new.rtt.as_secs_f64();
            self.steps.see(new.rate.as_bps_f64() <= most + 8.0);
        }
        let news = computed.is_some();
        self.claim = computed.or(self.claim);
        // Do not suppress the first reports while the round-trip time is unknown. The sender announces it only to
        // receivers that have sent a report.
        let needs_rtt = self.config.ramp && !self.rtt.is_known() && self.reports <= NO_RTT_REPORTS;
        if self.group && self.config.suppress && slot.interval > self.config.t_suspend && !needs_rtt {
            let round = self.rounds.next(self.config.t_random, slot.interval, slot.rtcp_share);
            let until = slot.now + round;
            if news {
                let wait = timer(round, slot.members, &mut self.chance);
                self.next = NextReport::Fire { fire: slot.now + wait, until };
                return Reply::Suppress;
            }
            // There is no rate to report. Reports at RTCP's own times suffice to remain a member of the session.
            self.next = NextReport::Rtcp;
        } else {
            self.next = self.after_report(slot);
        }
        if news {
            self.reply()
        } else {
            self.counted = (0, 0);
            self.rtt.on_report();
            Reply::Plain
        }
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.steps)
    }

    fn acceptable(&self) -> Option<Rate> {
        self.claim.filter(|claim| claim.has_rtt)?;
        let rtt = self.rtt.get();
        Some(self.loss().map_or(Rate::MAX, |l| throughput_full(self.packet, rtt, l, rtt * 4, 1.0)))
    }

    fn view(&self) -> View {
        let state = match (self.ramp, self.claim) {
            (Some(_), _) => "start",
            (None, Some(Claim { state: State::Congested, .. })) => "congested",
            _ => "unloaded",
        };
        View {
            rate: self.claim.map(|claim| claim.rate),
            loss: self.claim.map(|claim| claim.loss),
            rtt: Some(self.rtt.get()),
            state: Some(state),
        }
    }
}
