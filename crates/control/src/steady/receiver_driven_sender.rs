//! The sending half for receivers that run the law. It follows the limiting receiver, which is the one that asks for
//! the lowest rate.

use super::message::{OBJECTION_SHARE, ReceiverReport, SenderNotice};
use super::signals::INITIAL_RTT;
use super::{Config, FEEDBACK_TIMEOUT_MIN, FEEDBACK_TIMEOUT_RTTS, RATE_MIN};
use crate::entry::Setup;
use crate::fields::ABSURD_RTT;
use crate::no_feedback_timer::NoFeedbackTimer;
use crate::{
    Check, Decision, Departing, ExtraSent, Leave, Limit, MediaQueue, Notice, ReceiverId, Report, SenderHalf, Sent,
    Wake, Why,
};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Rate, Span, Time};

/// Growth factor of the rate per round trip while it rises to the rate of a new limiting receiver. START has the same
/// factor.
const RISE_GROWTH: f64 = 1.35;
/// At one report, the rate grows by at most this time's growth, in seconds.
const RISE_TIME_MAX: f64 = 0.2;
/// A limiting receiver that is silent for this many halvings in a row has left.
const LIMITING_RECEIVER_HALVINGS: u32 = 4;
/// The maximum number of receivers in the table. If the table is full, only a receiver that asks for less than the sent
/// rate is added.
const MAX_RECEIVERS: usize = 1 << 17;

#[derive(Clone, Copy, Debug)]
struct Entry {
    report: ReceiverReport,
    /// Whether this receiver's round-trip time is still to be sent in a notice.
    is_rtt_pending: bool,
    rtt: Option<Span>,
}

/// The sending half that follows one receiver until another one asks for less.
#[derive(Default)]
pub(super) struct ReceiverDrivenSender {
    config: Config,
    floor: f64,
    cap: f64,
    rate: f64,
    table: BTreeMap<ReceiverId, Entry>,
    limiting: Option<ReceiverId>,
    pending_rtts: VecDeque<ReceiverId>,
    no_feedback: NoFeedbackTimer,
    halvings: u32,
    /// Whether the rate still rises to that of the limiting receiver, which has replaced one that left.
    rises: bool,
    /// The time at which the rate was last set.
    set_at: Option<Time>,
    frames: bool,
    rule: &'static str,
    /// The promise that the sent rate is at most the rate that the receivers have asked for.
    promise: Check,
}

impl ReceiverDrivenSender {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        let (floor, cap) = setup.rate_limits();
        Self {
            floor,
            cap,
            rate: config.start.clamp(floor, cap),
            rises: true,
            rule: "start: first packets",
            promise: Check::new(&super::HEEDED),
            config,
            ..Self::default()
        }
    }

    fn rtt(&self) -> f64 {
        let entry = self.limiting.and_then(|id| self.table.get(&id));
        entry.and_then(|entry| entry.rtt).map_or(INITIAL_RTT, Span::as_secs_f64)
    }

    fn forget(&mut self, id: ReceiverId) {
        self.table.remove(&id);
        if self.limiting == Some(id) {
            // A receiver whose path limits it is preferred, then the one with the lowest rate. Its last report may be
            // old, so the rate is kept until it reports as the limiting receiver.
            let turn = |(id, entry): &(&ReceiverId, &Entry)| (entry.report.free, entry.report.rate, **id);
            self.set_limiting(self.table.iter().min_by_key(turn).map(|(id, _)| *id), true);
        }
    }

    /// Takes the rate of the limiting receiver. If that receiver has replaced another one, the rate grows towards its
    /// rate as in START.
    fn follow(&mut self, now: Time) {
        let Some(entry) = self.limiting.and_then(|id| self.table.get(&id)) else { return };
        let dt = self.set_at.map_or(0.0, |at| now.since(at).as_secs_f64().min(RISE_TIME_MAX));
        let most =
            (self.rate * libm::pow(RISE_GROWTH, dt / self.rtt().max(2.0 * self.config.report_every))).max(self.floor);
        let wanted = entry.report.rate.as_bps_f64();
        self.rule = entry.report.rule;
        self.rises &= wanted > most;
        let rate = if self.rises { most } else { wanted };
        self.rate = rate.max(RATE_MIN).clamp(self.floor, self.cap);
        self.set_at = Some(now);
    }

    /// Makes this the limiting receiver. If `rises` is true, the rate grows towards its rate, because its last report
    /// may be old.
    fn set_limiting(&mut self, id: Option<ReceiverId>, rises: bool) {
        (self.limiting, self.rises, self.halvings) = (id, rises, 0);
    }

    /// Whether this receiver asks for less than is sent. Every receiver reports this by itself, so older reports need
    /// not be compared again when the rate changes.
    fn objects(&self, message: &ReceiverReport) -> bool {
        !message.free && message.rate.as_bps_f64() < OBJECTION_SHARE * self.rate
    }

    fn sent(&mut self, at: Time) {
        let timeout = FEEDBACK_TIMEOUT_MIN.max(FEEDBACK_TIMEOUT_RTTS * self.rtt());
        // The first reports of a group are delayed by random timers.
        let timeout = if self.limiting.is_none() { 2.0 * timeout } else { timeout };
        self.no_feedback.on_sent(at, Span::from_secs_f64(timeout));
    }
}

impl SenderHalf for ReceiverDrivenSender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent(sent.at);
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.sent(sent.at);
    }

    fn on_queue(&mut self, _: &MediaQueue) {
        self.frames = true;
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let (now, id) = (report.at, report.from);
        let Some(message) = report.body.and_then(ReceiverReport::read) else { return };
        let full = self.table.len() >= MAX_RECEIVERS && !self.table.contains_key(&id);
        // Even if the table is full, a receiver that asks for a lower rate is added, because the sender must follow it.
        if full && message.rate.as_bps_f64() >= self.rate {
            return;
        }
        let rtt = Some(now.since(message.echo.own(now))).filter(|rtt| !rtt.is_zero() && *rtt < ABSURD_RTT);
        let before = self.table.get(&id).copied();
        let is_pending = before.is_some_and(|before| before.is_rtt_pending);
        if rtt.is_some() && !is_pending {
            self.pending_rtts.push_back(id);
        }
        let rtt = rtt.or(before.and_then(|before| before.rtt));
        self.table.insert(id, Entry { report: message, is_rtt_pending: is_pending || rtt.is_some(), rtt });
        if self.limiting != Some(id) && (self.limiting.is_none() || self.objects(&message)) {
            self.set_limiting(Some(id), self.limiting.is_none());
        }
        if self.limiting == Some(id) {
            self.no_feedback.on_feedback();
            self.halvings = 0;
            self.follow(now);
        }
        if !message.free {
            let most = message.rate.as_bps_f64().max(RATE_MIN).clamp(self.floor, self.cap);
            self.promise.see(OBJECTION_SHARE * self.rate <= most * (1.0 + f64::from(f32::EPSILON)));
        }
    }

    fn on_leave(&mut self, _: Time, receiver: ReceiverId, _: Leave) {
        self.forget(receiver);
    }

    fn on_timer(&mut self, now: Time) {
        if !self.no_feedback.has_expired(now) {
            return;
        }
        self.rate = (self.rate / 2.0).max(self.floor);
        (self.rule, self.set_at, self.rises) = ("no feedback: halved", Some(now), true);
        self.halvings += 1;
        if self.halvings >= LIMITING_RECEIVER_HALVINGS
            && let Some(id) = self.limiting
        {
            self.halvings = 0;
            self.forget(id);
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.no_feedback.wake()
    }

    fn decision(&self) -> Decision {
        let counts = self.limiting.and_then(|id| Some((id, self.table.get(&id)?)));
        let start = counts.is_none_or(|(_, entry)| entry.report.start);
        let pacing = if self.frames { self.config.pacing * self.rate } else { self.rate };
        Decision {
            target: Rate::from_bps_f64(self.rate),
            pacing: Rate::from_bps_f64(pacing),
            window: None,
            limit: Limit::between(self.rate, self.floor, self.cap, start),
            why: Why {
                loss: counts.map(|(_, entry)| entry.report.loss),
                rtt: counts.and_then(|(_, entry)| entry.rtt),
                by: counts.map(|(id, _)| id),
                ..Why::rule(self.rule)
            },
        }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        let mut measured_rtt = None;
        while let (None, Some(id)) = (measured_rtt, self.pending_rtts.pop_front()) {
            if let Some(entry) = self.table.get_mut(&id) {
                entry.is_rtt_pending = false;
                measured_rtt = entry.rtt.map(|rtt| (id, rtt));
            }
        }
        let rate = Rate::from_bps_f64(self.rate);
        SenderNotice { rate, frames: self.frames, limiting: self.limiting, measured_rtt }.notice()
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.promise)
    }
}
