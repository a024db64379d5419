use super::message::{Purpose, ReceiverReport, SenderNotice};
use super::{BACKOFF, Config};
use crate::asmp::suppress;
use crate::entry::{Setup, Values};
use crate::tfrc::echo;
use crate::{Arrival, Body, Due, Overheard, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake};
use steadycast_units::{Chance, PeerTime, Span, Time};

/// Maximum number of missing packets that are counted for one gap. After that many, the smoothed loss rate is
/// practically 1 with the default weight of a packet (`a_loss`).
const LONGEST_GAP: u64 = 8_192;

/// Time after which the receiver answers a repeated request for reports again.
const ASK_AGAIN: Span = Span::millis(500);

/// The assumed group size in the suppression timer of reports: N in RFC 4654.
const CROWD: u32 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Lead {
    seq: u64,
    sent: PeerTime,
    at: Time,
}

pub(super) struct Receiver {
    config: Config,
    id: ReceiverId,
    group: bool,
    chance: Chance,
    lead: Option<Lead>,
    /// Bit i is set if packet lead − i has arrived.
    bitmap: u32,
    loss: f64,
    acker: bool,
    due: Option<(Wake, Purpose)>,
    /// Time for which this receiver scheduled its last answer to the sender's request for reports.
    asked: Option<Time>,
    /// When this receiver will report a missing packet, unless another receiver first reports the same or a higher loss
    /// rate.
    nak: Option<Time>,
    /// The `count` of the last confirmation in the sender's packets.
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

    /// Returns whether reports of other receivers can suppress a report of this receiver.
    fn suppresses(&self) -> bool {
        self.group && !self.config.nak_backoff.is_zero()
    }

    fn miss(&mut self, now: Time) {
        if !self.suppresses() {
            self.due = Some((Wake { at: now, why: "a packet is missing" }, Purpose::Report));
        } else if self.nak.is_none() {
            self.nak = Some(now + suppress::timer(self.config.nak_backoff, CROWD, &mut self.chance));
        }
    }

    /// Cancels the pending report of a missing packet. `loss` is the loss rate that another receiver has reported. If
    /// `loss` is lower than the loss rate here, the report stays pending.
    fn suppress_by(&mut self, loss: f64) {
        // The pending report would announce the loss rate here. Another report with the same or a higher rate replaces
        // it.
        if self.loss <= loss {
            self.nak = None;
        }
    }

    /// Adds a received packet, and the `missing` packets before it, to the smoothed loss rate.
    ///
    /// ```text
    ///  p := (1 − a) p + a x        x = 0: received, 1: missing
    /// ```
    ///
    /// Source: draft-ietf-rmt-bb-pgmcc. Returns whether any packets are missing.
    fn count(&mut self, missing: u64) -> bool {
        let a = self.config.a_loss;
        // A forged sequence number could make the gap huge. Limit the number of iterations.
        for _ in 0..missing.min(LONGEST_GAP) {
            self.loss += a * (1.0 - self.loss);
        }
        self.loss -= a * self.loss;
        missing > 0
    }

    fn back(&self, purpose: Purpose, now: Time) -> Option<ReceiverReport> {
        let lead = self.lead?;
        Some(ReceiverReport {
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
                // Only set the late packet's bit in the bitmap. The packet was already counted as missing when the gap
                // appeared.
                let back = lead.seq - arrival.seq;
                self.bitmap |= if back < 32 { 1 << back } else { 0 };
            }
            lead => {
                let ahead = lead.map_or(1, |lead| arrival.seq - lead.seq);
                self.bitmap = if ahead < 32 { self.bitmap << ahead } else { 0 } | 1;
                // Count a congestion mark as a loss.
                gap = self.count(ahead - 1 + u64::from(arrival.ecn.is_ce()));
                self.lead = Some(Lead { seq: arrival.seq, sent: arrival.sent, at: now });
            }
        }
        let Some(forward) = SenderNotice::read(arrival.notice) else { return };
        self.acker = forward.acker == Some(self.id);
        if let Some(new) = forward.confirmed.filter(|new| self.confirmed != Some(new.count)) {
            self.confirmed = Some(new.count);
            self.suppress_by(new.loss);
        }
        if !forward.report_now {
            self.asked = None;
            if matches!(self.due, Some((_, Purpose::Report))) {
                // Cancel the answer, because another receiver has already answered.
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
        let Some(back) = ReceiverReport::read(heard.body).filter(|back| back.purpose == Purpose::Report) else {
            return;
        };
        self.suppress_by(back.loss);
        // If the sender has requested reports, the other receiver's report has answered the request.
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
        // Cancel the pending report of a missing packet, because the report that is sent now also carries the loss
        // rate.
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
