use super::Config;
use super::constants::*;
use super::message::{ReceiverReport, SenderNotice};
use super::signals::INITIAL_RTT;
use crate::entry::Setup;
use crate::fields::ABSURD_RTT;
use crate::silence::Silence;
use crate::{
    Check, Decision, Departing, ExtraSent, Leave, Limit, MediaQueue, Notice, ReceiverId, Report, SenderHalf, Sent,
    Wake, Why,
};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Rate, Span, Time};

/// Receivers in the table. With more of them only one that asks for less is let in.
const MOST_RECEIVERS: usize = 1 << 17;

#[derive(Clone, Copy, Debug)]
struct Entry {
    claim: ReceiverReport,
    /// It waits to be told its round-trip time.
    waits: bool,
    rtt: Option<Span>,
}

/// The sending half that follows one receiver, until another one asks for less.
#[derive(Default)]
pub(super) struct ReceiverDrivenSender {
    config: Config,
    floor: f64,
    cap: f64,
    rate: f64,
    table: BTreeMap<ReceiverId, Entry>,
    limiting: Option<ReceiverId>,
    to_tell: VecDeque<ReceiverId>,
    silence: Silence,
    silences: u32,
    /// The receiver that limits the rate took another one's place, and the rate has not come up to what it asks for.
    rises: bool,
    /// When the rate was set last.
    set_at: Option<Time>,
    frames: bool,
    rule: &'static str,
    /// After a receiver has asked for less, no more is sent.
    heeded: Check,
}

impl ReceiverDrivenSender {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        let cap = setup.cap.as_bps_f64();
        let floor = setup.floor.as_bps_f64().min(cap);
        Self {
            floor,
            cap,
            rate: config.start.clamp(floor, cap),
            rises: true,
            rule: "start: first packets",
            heeded: Check::new(&super::HEEDED),
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
            // Those that something holds down come first. The next one says what it wants once it knows that it counts;
            // until then the rate stays.
            let turn = |(id, entry): &(&ReceiverId, &Entry)| (entry.claim.free, entry.claim.rate, **id);
            self.count_on(self.table.iter().min_by_key(turn).map(|(id, _)| *id), true);
        }
    }

    /// Takes the rate of the receiver that limits it; where that took another one's place, the rate comes up to it as
    /// in a start.
    fn follow(&mut self, now: Time) {
        let Some(entry) = self.limiting.and_then(|id| self.table.get(&id)) else { return };
        let dt = self.set_at.map_or(0.0, |at| now.since(at).as_secs_f64().min(CUT_SCALE));
        let most =
            (self.rate * libm::pow(START_UP, dt / self.rtt().max(2.0 * self.config.report_every))).max(self.floor);
        let wanted = entry.claim.rate.as_bps_f64();
        self.rule = entry.claim.rule;
        self.rises &= wanted > most;
        let rate = if self.rises { most } else { wanted };
        self.rate = rate.max(LEAST).clamp(self.floor, self.cap);
        self.set_at = Some(now);
    }

    /// From now on this receiver limits the rate; `rises`: and what it asked for may be old.
    fn count_on(&mut self, id: Option<ReceiverId>, rises: bool) {
        (self.limiting, self.rises, self.silences) = (id, rises, 0);
    }

    /// Whether this receiver asks for less than is sent. Each one says so by itself once it does, so that what it said
    /// before is of no account.
    fn objects(&self, claim: &ReceiverReport) -> bool {
        !claim.free && claim.rate.as_bps_f64() < SIMILAR * self.rate
    }

    fn sent(&mut self, at: Time) {
        let patience = SILENCE.max(f64::from(SEVERAL) * self.rtt());
        // The first reports of a group are spread over some time.
        let patience = if self.limiting.is_none() { 2.0 * patience } else { patience };
        self.silence.on_sent(at, Span::from_secs_f64(patience));
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
        let Some(claim) = report.body.and_then(ReceiverReport::read) else { return };
        let full = self.table.len() >= MOST_RECEIVERS && !self.table.contains_key(&id);
        if full && claim.rate.as_bps_f64() >= self.rate {
            return;
        }
        let rtt = Some(now.since(claim.echo.own(now))).filter(|rtt| !rtt.is_zero() && *rtt < ABSURD_RTT);
        let before = self.table.get(&id).copied();
        let waits = before.is_some_and(|before| before.waits);
        if rtt.is_some() && !waits {
            self.to_tell.push_back(id);
        }
        let rtt = rtt.or(before.and_then(|before| before.rtt));
        self.table.insert(id, Entry { claim, waits: waits || rtt.is_some(), rtt });
        if self.limiting != Some(id) && (self.limiting.is_none() || self.objects(&claim)) {
            self.count_on(Some(id), self.limiting.is_none());
        }
        if self.limiting == Some(id) {
            self.silence.on_heard();
            self.silences = 0;
            self.follow(now);
        }
        if !claim.free {
            let most = claim.rate.as_bps_f64().max(LEAST).clamp(self.floor, self.cap);
            self.heeded.see(SIMILAR * self.rate <= most * (1.0 + f64::from(f32::EPSILON)));
        }
    }

    fn on_leave(&mut self, _: Time, receiver: ReceiverId, _: Leave) {
        self.forget(receiver);
    }

    fn on_timer(&mut self, now: Time) {
        if !self.silence.is_over(now) {
            return;
        }
        self.rate = (self.rate / 2.0).max(self.floor);
        (self.rule, self.set_at, self.rises) = ("no feedback: halved", Some(now), true);
        self.silences += 1;
        if self.silences >= SEVERAL
            && let Some(id) = self.limiting
        {
            self.silences = 0;
            self.forget(id);
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.silence.wake()
    }

    fn decision(&self) -> Decision {
        let counts = self.limiting.and_then(|id| Some((id, self.table.get(&id)?)));
        let start = counts.is_none_or(|(_, entry)| entry.claim.start);
        let pacing = if self.frames { self.config.pacing * self.rate } else { self.rate };
        Decision {
            target: Rate::from_bps_f64(self.rate),
            pacing: Rate::from_bps_f64(pacing),
            window: None,
            limit: Limit::between(self.rate, self.floor, self.cap, start),
            why: Why {
                loss: counts.map(|(_, entry)| entry.claim.loss),
                rtt: counts.and_then(|(_, entry)| entry.rtt),
                by: counts.map(|(id, _)| id),
                ..Why::rule(self.rule)
            },
        }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        let mut told = None;
        while let (None, Some(id)) = (told, self.to_tell.pop_front()) {
            if let Some(entry) = self.table.get_mut(&id) {
                entry.waits = false;
                told = entry.rtt.map(|rtt| (id, rtt));
            }
        }
        let rate = Rate::from_bps_f64(self.rate);
        SenderNotice { rate, frames: self.frames, limiting: self.limiting, told }.notice()
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.heeded)
    }
}
