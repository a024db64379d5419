//! The receiving half that runs the law on its own arrivals (`docs/controllers/steady-groups.md`).

use super::Config;
use super::delay::UP;
use super::law::{Law, Mode};
use super::law_input::RateRelation;
use super::message::{OBJECTION_SHARE, ReceiverReport, SenderNotice};
use super::signals::{BASE_RTT_WINDOW, RECEIVED_SPAN_MIN, RttSource};
use crate::asmp::suppress;
use crate::entry::Setup;
use crate::half::{PacketArrival, PacketReport, Stream};
use crate::{Arrival, Check, Due, ExtraArrival, Limit, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake};
use steadycast_units::{Chance, PeerTime, Rate, Span, Stamp, Time};

/// The time of the first packet on the law's clock, in seconds. It is so late that no window of the law reaches back
/// before 0.
const CLOCK_START: f64 = 2.0 * BASE_RTT_WINDOW as f64;
/// If the sender's clock differs from the last packet's time by more than this, in seconds, the clock was set.
const CLOCK_JUMP_MIN: f64 = 10.0;
/// In COMPETE, only the sent rate limits the law if the law asks for more than this many times the rate of arrival.
const FREE_RECEIVED_MULTIPLE_MIN: f64 = 1.1;
/// The longest random delay of a receiver's first early report, in seconds.
const FIRST_REPORT_SPREAD: f64 = 0.25;
/// The assumed number of receivers of a group until it is known.
const INITIAL_GROUP_SIZE: u32 = 10_000;
/// The size of a receiver's report, relative to the report of single packets that `report_bytes` assumes.
const REPORT_COST: f64 = 1.4;
/// The largest gap in packet numbers that counts as lost packets. A larger gap shows another stream.
const MAX_MISSING: u64 = 1_000;

/// The receiving half that runs the law.
pub(super) struct Receiver {
    config: Config,
    id: ReceiverId,
    group: bool,
    floor: Rate,
    cap: Rate,
    chance: Chance,
    law: Law,
    /// The time of the sender's clock at the first packet. Then the last packet's number, and its send time on the
    /// law's clock.
    begin: Option<PeerTime>,
    last: Option<(u64, Time)>,
    /// Arrivals that the law has not taken yet.
    pending: Vec<PacketReport>,
    /// The time of the law's last update, on the law's clock.
    updated_at: Time,
    notice: Option<SenderNotice>,
    /// The round-trip time that the sender measured last.
    rtt: Option<Span>,
    /// The newest packet: its send time on the sender's clock, and its arrival time.
    newest: Option<(PeerTime, Time)>,
    bytes_since_update: u64,
    last_update: Option<Time>,
    /// The law has a new rate to report.
    has_new_rate: bool,
    /// The time of an early report, which is sent because the sent rate is too high.
    early_report_at: Option<Time>,
    last_report: Option<Time>,
    members: Option<u32>,
}

impl Receiver {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        Self {
            id: setup.id,
            group: setup.group,
            floor: setup.floor.min(setup.cap),
            cap: setup.cap,
            chance: setup.chance.clone(),
            law: Law::new(setup, config),
            begin: None,
            last: None,
            pending: Vec::new(),
            updated_at: Time::ZERO,
            notice: None,
            rtt: None,
            newest: None,
            bytes_since_update: 0,
            last_update: None,
            has_new_rate: false,
            early_report_at: None,
            last_report: None,
            members: None,
            config,
        }
    }

    /// Whether this is the limiting receiver, whose rate is sent.
    fn is_limiting(&self) -> bool {
        !self.group || self.notice.is_some_and(|notice| notice.limiting == Some(self.id))
    }

    /// Returns the send time of a packet on the law's clock. The law's clock is the sender's clock plus an offset, and
    /// continues without a jump if the sender's clock or the packet numbers jump.
    fn send_time(&mut self, number: u64, sent: PeerTime) -> Time {
        let begin = *self.begin.get_or_insert(sent);
        let since = CLOCK_START + sent.since(begin).as_secs_f64();
        let Some((last, at)) = self.last else { return Time::ZERO + Span::from_secs_f64(since.max(0.0)) };
        if (since - at.as_secs_f64()).abs() < CLOCK_JUMP_MIN && number.saturating_add(MAX_MISSING) > last {
            return Time::ZERO + Span::from_secs_f64(since);
        }
        // The law's clock stops during the jump, so that none of the law's windows contains a gap.
        let at = at.max(self.updated_at);
        let gone = at.as_nanos().saturating_sub(Span::from_secs_f64(CLOCK_START).as_nanos());
        let begin = sent.as_nanos().saturating_sub(i64::try_from(gone).unwrap_or(i64::MAX));
        (self.begin, self.last) = (Some(PeerTime::from_nanos(begin)), None);
        self.law.signals.restart();
        self.pending.clear();
        at
    }

    /// Whether only the sent rate limits the law's rate. Either the law grows, or its rate is much higher than what
    /// arrives.
    fn is_free(&self) -> bool {
        let law = &self.law;
        !self.is_limiting()
            && match law.mode {
                Mode::Start => true,
                Mode::Delay => law.rule == UP,
                Mode::Compete => {
                    let received = law.signals.received(law.signals.rtt().max(RECEIVED_SPAN_MIN));
                    received.is_some_and(|received| law.rate > FREE_RECEIVED_MULTIPLE_MIN * received)
                }
            }
    }

    /// Records a sent packet in the law, and the missing packets before it. A receiver only knows the numbers of
    /// missing packets, so they get interpolated send times.
    fn record_sent(&mut self, number: u64, left: Time, size: u64) {
        let rate = self.notice.map_or(0.0, |notice| notice.rate.as_bps_f64());
        let frames = self.notice.is_some_and(|notice| notice.frames);
        let pacing = frames.then_some(self.law.config.pacing);
        if let Some((last, at)) = self.last {
            if number <= last {
                self.law.signals.on_late_arrival(left, number, size);
                return;
            }
            let missing = number - last - 1;
            let apart = left.since(at);
            for n in (1..=missing).take_while(|_| missing <= MAX_MISSING) {
                let at = at + apart.scale(n as f64 / (missing + 1) as f64);
                self.law.on_sent(at, last + n, size, pacing, rate);
            }
        }
        self.law.on_sent(left, number, size, pacing, rate);
        self.last = Some((number, left));
    }

    /// Lets the law take the pending arrivals.
    fn update_law(&mut self, now: Time) {
        let Some((_, left)) = self.last else { return };
        // The law counts time as the sender does, so this is the time at which a report would reach the sender.
        let at = (left + Span::from_secs_f64(self.law.signals.rtt())).max(self.updated_at);
        let sent = self.notice.map_or(Rate::MAX, |notice| notice.rate).as_bps_f64();
        let is_limiting = self.is_limiting();
        let relation =
            RateRelation { is_limiting, is_upper_bound: is_limiting || OBJECTION_SHARE * sent <= self.law.rate };
        let pending = std::mem::take(&mut self.pending);
        self.has_new_rate |= self.law.on_feedback(at, RttSource::FromSender(self.rtt), &pending, relation);
        (self.updated_at, self.last_update, self.bytes_since_update) = (at, Some(now), 0);
        self.pending = pending;
        self.pending.clear();
        self.schedule_early_report(now, is_limiting, sent);
    }

    /// Schedules an early report if the sender needs one before RTCP's timer expires: no receiver limits the rate, or
    /// the rate is too high. The report waits a random time, so that the first one suppresses those of other receivers.
    fn schedule_early_report(&mut self, now: Time, is_limiting: bool, sent: f64) {
        let has_no_limit = self.notice.is_none_or(|notice| notice.limiting.is_none());
        if is_limiting || !(has_no_limit || self.law.rate < OBJECTION_SHARE * sent && !self.is_free()) {
            self.early_report_at = None;
            return;
        }
        if self.early_report_at.is_some() {
            return;
        }
        let round = match self.members {
            Some(members) => {
                // A round trip per factor e of the group's size keeps the expected number of reports constant (ASMP).
                Span::from_secs_f64(self.law.signals.rtt() * libm::log(f64::from(members.max(2)) / 2.0))
            }
            None => Span::from_secs_f64(FIRST_REPORT_SPREAD),
        };
        let wait = suppress::timer(round, self.members.unwrap_or(INITIAL_GROUP_SIZE), &mut self.chance);
        // There is at most one early report per round trip, because the sender's response to the last report takes that
        // long.
        let again = self.last_report.map_or(now, |at| at + Span::from_secs_f64(self.law.signals.rtt()));
        self.early_report_at = Some((now + wait).max(again));
    }

    fn build_report(&self, now: Time) -> Option<ReceiverReport> {
        let (sent, arrived) = self.newest?;
        let law = &self.law;
        Some(ReceiverReport {
            rate: Rate::from_bps_f64(law.rate).clamp(self.floor, self.cap),
            loss: law.loss().unwrap_or(0.0),
            queue: Span::from_secs_f64(law.signals.low(law.delay.low_span)),
            rtt: Span::from_secs_f64(law.signals.rtt()),
            echo: Stamp::of(Time::from_nanos(sent.as_nanos().max(0) as u64)).plus(now.since(arrived)),
            rule: law.rule,
            free: self.is_free(),
            start: law.limit() == Limit::Start,
            has_rtt: self.rtt.is_some(),
        })
    }
}

impl ReceiverHalf for Receiver {
    fn on_renamed(&mut self, id: ReceiverId) {
        self.id = id;
    }

    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        if let Some(notice) = SenderNotice::read(arrival.notice) {
            self.notice = Some(notice);
            // A notice has the round-trip time of a single receiver of the group.
            if let Some((_, rtt)) = notice.measured_rtt.filter(|(id, rtt)| *id == self.id && !rtt.is_zero()) {
                self.rtt = Some(rtt);
            }
        }
        let left = self.send_time(arrival.seq, arrival.sent);
        self.record_sent(arrival.seq, left, arrival.size.get());
        let at = PeerTime::from_nanos(i64::try_from(arrival.at.as_nanos()).unwrap_or(i64::MAX));
        self.pending.push(PacketReport {
            number: arrival.seq,
            sent: left,
            size: arrival.size,
            stream: Stream::Media,
            arrived: Some(PacketArrival { at: Some(at), ecn: Some(arrival.ecn) }),
        });
        if self.newest.is_none_or(|(sent, _)| sent < arrival.sent) {
            self.newest = Some((arrival.sent, arrival.at));
        }
        self.bytes_since_update = self.bytes_since_update.saturating_add(arrival.size.get());
        let since = *self.last_update.get_or_insert(arrival.at);
        if arrival.at.since(since) >= self.config.report_after(self.bytes_since_update as f64, REPORT_COST) {
            self.update_law(arrival.at);
        }
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.law.signals.on_extra(extra.size.get());
        self.bytes_since_update = self.bytes_since_update.saturating_add(extra.size.get());
    }

    /// Returns when to report. The limiting receiver reports after each update of its law. Others report early if the
    /// sent rate is too high, else at RTCP's times.
    fn due(&self) -> Due {
        if let Some(at) = self.early_report_at {
            return Due::At(Wake { at, why: "what is sent is too much" });
        }
        match (self.is_limiting(), self.has_new_rate, self.last_update) {
            (true, true, Some(at)) => Due::At(Wake { at, why: "report interval" }),
            (true, ..) => Due::Hold,
            _ => Due::Rtcp,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        self.members = Some(slot.members);
        (self.has_new_rate, self.early_report_at, self.last_report) = (false, None, Some(slot.now));
        self.build_report(slot.now).map_or(Reply::Plain, |report| Reply::Body(report.body()))
    }

    fn checks(&self) -> &[Check] {
        &self.law.checks
    }

    fn view(&self) -> View {
        View {
            rate: Some(Rate::from_bps_f64(self.law.rate)),
            loss: self.law.loss(),
            rtt: self.law.rtt(),
            state: Some(match self.law.mode {
                Mode::Start => "start",
                Mode::Delay => "delay",
                Mode::Compete => "compete",
            }),
        }
    }
}
