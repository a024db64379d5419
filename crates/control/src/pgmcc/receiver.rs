use super::message::{Back, Forward, Purpose};
use super::{BACKOFF, Config};
use crate::asmp::suppress;
use crate::entry::{Setup, Values};
use crate::tfrc::echo;
use crate::{Arrival, Body, Due, Overheard, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake};
use steadycast_units::{Chance, PeerTime, Span, Time};

/// More missing packets in one gap than this change the filter no further: it is at 1 by then.
const LONGEST_GAP: u64 = 8_192;

/// The sender still asks after this: the answer got lost.
const ASK_AGAIN: Span = Span::millis(500);

/// Receivers for whose number reports of missing packets are spread, as RFC 4654's N.
const CROWD: u32 = 10_000;

/// The newest packet.
#[derive(Clone, Copy, Debug)]
struct Lead {
    seq: u64,
    sent: PeerTime,
    at: Time,
}

/// The receiving half.
pub(super) struct Receiver {
    config: Config,
    id: ReceiverId,
    group: bool,
    chance: Chance,
    lead: Option<Lead>,
    /// Bit i: packet lead − i has come.
    bitmap: u32,
    loss: f64,
    acker: bool,
    /// The report that is wanted next, and what for.
    due: Option<(Wake, Purpose)>,
    /// The sender asks for reports: the answer was drawn, or given at this time.
    asked: Option<Time>,
    /// A packet is missing; it is told then, unless somebody else is heard who loses as much.
    nak: Option<Time>,
    /// The last confirmation of another's report.
    confirmed: Option<u8>,
}

impl Receiver {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        Self {
            config: Config::new(values),
            id: setup.id,
            group: setup.group,
            chance: setup.chance.clone(),
            lead: None,
            bitmap: 0,
            loss: 0.0,
            acker: false,
            due: None,
            asked: None,
            nak: None,
            confirmed: None,
        }
    }

    /// Others are heard in this group, so that one report serves for many.
    fn suppresses(&self) -> bool {
        self.group && !self.config.nak_backoff.is_zero()
    }

    /// A packet is missing.
    fn miss(&mut self, now: Time) {
        if !self.suppresses() {
            self.due = Some((Wake { at: now, why: "a packet is missing" }, Purpose::Report));
        } else if self.nak.is_none() {
            self.nak = Some(now + suppress::timer(self.config.nak_backoff, None, CROWD, &mut self.chance));
        }
    }

    /// Another's report was heard, or confirmed: it serves for this one, unless more is lost here.
    fn heard(&mut self, loss: f64) {
        if self.loss <= loss {
            self.nak = None;
        }
    }

    /// Counts a packet, and those missing before it.
    ///
    /// ```text
    ///  p := (1 − a) p + a x        x = 0: received, 1: missing
    /// ```
    ///
    /// Source: draft-ietf-rmt-bb-pgmcc. True when packets are missing.
    fn count(&mut self, missing: u64) -> bool {
        let a = self.config.a_loss;
        for _ in 0..missing.min(LONGEST_GAP) {
            self.loss += a * (1.0 - self.loss);
        }
        self.loss -= a * self.loss;
        missing > 0
    }

    fn back(&self, purpose: Purpose, now: Time) -> Option<Back> {
        let lead = self.lead?;
        Some(Back {
            purpose,
            lead: lead.seq as u32,
            bitmap: if purpose == Purpose::Ack { self.bitmap } else { 0 },
            loss: self.loss,
            echo: echo(lead.sent).plus(now.since(lead.at)),
        })
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let now = arrival.at;
        let mut gap = false;
        match self.lead {
            Some(lead) if arrival.seq <= lead.seq => {
                // It was counted as missing when the gap showed.
                let back = lead.seq - arrival.seq;
                self.bitmap |= if back < 32 { 1 << back } else { 0 };
            }
            lead => {
                let ahead = lead.map_or(1, |lead| arrival.seq - lead.seq);
                self.bitmap = if ahead < 32 { self.bitmap << ahead } else { 0 } | 1;
                // A mark is a loss that did not happen.
                gap = self.count(ahead - 1 + u64::from(arrival.ecn.is_ce()));
                self.lead = Some(Lead { seq: arrival.seq, sent: arrival.sent, at: now });
            }
        }
        let Some(forward) = Forward::read(arrival.notice) else { return };
        self.acker = forward.acker == Some(self.id);
        if let Some(heard) = forward.heard.filter(|heard| self.confirmed != Some(heard.count)) {
            self.confirmed = Some(heard.count);
            self.heard(heard.loss);
        }
        if !forward.report_now {
            self.asked = None;
            if matches!(self.due, Some((_, Purpose::Report))) {
                // Somebody else was first.
                self.due = None;
            }
        }
        if self.acker {
            self.nak = None;
            self.due = Some((Wake { at: now, why: "acknowledgment" }, Purpose::Ack));
        } else if gap {
            self.miss(now);
        } else if forward.report_now && self.due.is_none() && self.asked.is_none_or(|at| now.since(at) >= ASK_AGAIN) {
            let wait = if self.group { BACKOFF } else { Span::ZERO };
            let at = now + self.chance.span_between(Span::ZERO, wait);
            self.due = Some((Wake { at, why: "the sender has asked" }, Purpose::Report));
            self.asked = Some(at);
        }
    }

    fn on_overheard(&mut self, heard: &Overheard<'_>) {
        let Some(back) = Back::read(heard.body).filter(|back| back.purpose == Purpose::Report) else { return };
        self.heard(back.loss);
        // An answer to the sender's question, or a report that serves as one.
        if self.asked.is_some() {
            self.due = self.due.filter(|(_, purpose)| *purpose != Purpose::Report);
        }
    }

    fn due(&self) -> Due {
        let nak = self.nak.map(|at| Wake { at, why: "a packet is missing" });
        let soonest = self.due.map(|(wake, _)| wake).into_iter().chain(nak).min_by_key(|wake| wake.at);
        soonest.map_or(Due::Hold, Due::At)
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let purpose = match self.due.take_if(|(wake, _)| wake.at <= slot.now) {
            Some((_, purpose)) => purpose,
            None if self.nak.is_some_and(|at| at <= slot.now) => Purpose::Report,
            None => return Reply::Suppress,
        };
        // Either way the sender has this receiver's loss now.
        self.nak = None;
        self.back(purpose, slot.now).map_or(Reply::Suppress, |back| Reply::Body(back.body()))
    }

    fn on_renamed(&mut self, id: ReceiverId) {
        self.id = id;
    }

    fn leave(&mut self, now: Time) -> Option<Body> {
        self.back(Purpose::Leave, now).map(|back| back.body())
    }

    fn view(&self) -> View {
        let state = if self.acker { "acker" } else { "member" };
        View { rate: None, loss: (self.loss > 0.0).then_some(self.loss), rtt: None, state: Some(state) }
    }
}
