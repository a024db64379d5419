use super::Config;
use super::constants::*;
use super::delay::UP;
use super::law::{Law, Mode};
use super::law_input::RateRelation;
use super::message::{ReceiverReport, SenderNotice};
use super::signals::RttSource;
use crate::asmp::suppress;
use crate::entry::Setup;
use crate::half::{PacketArrival, PacketReport, Stream};
use crate::{Arrival, Check, Due, ExtraArrival, Limit, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake};
use steadycast_units::{Chance, PeerTime, Rate, Span, Stamp, Time};

/// Where the sender's clock begins for the law: late enough that nothing lies before it.
const BEGIN: f64 = 2.0 * PATH_KEPT as f64;
/// Packets missing in a row that are counted as lost; more of them are another stream.
const MOST_MISSING: u64 = 1_000;

/// The receiving half that runs the law itself, on what arrives (`docs/controllers/steady.md`, "Groups").
pub(super) struct Receiver {
    config: Config,
    id: ReceiverId,
    group: bool,
    floor: Rate,
    cap: Rate,
    chance: Chance,
    law: Law,
    /// The sender's clock at the first packet, the last packet's number and when it left.
    begin: Option<PeerTime>,
    last: Option<(u64, Time)>,
    /// What the law has not been told of yet.
    pending: Vec<PacketReport>,
    /// The law's last time.
    told_at: Time,
    forward: Option<SenderNotice>,
    /// The round-trip time that the sender told last.
    rtt: Option<Span>,
    newest: Option<(PeerTime, Time)>,
    fresh: u64,
    stepped: Option<Time>,
    /// The law has something new to say.
    news: bool,
    /// When to say that what is sent is too much.
    urgent: Option<Time>,
    reported: Option<Time>,
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
            told_at: Time::ZERO,
            forward: None,
            rtt: None,
            newest: None,
            fresh: 0,
            stepped: None,
            news: false,
            urgent: None,
            reported: None,
            members: None,
            config,
        }
    }

    /// Whether what is sent is what this receiver asks for.
    fn limits(&self) -> bool {
        !self.group || self.forward.is_some_and(|forward| forward.limiting == Some(self.id))
    }

    /// When a packet left, on the law's clock, which goes as the sender's does. It goes on where that jumps, or where
    /// the numbers do.
    fn left(&mut self, number: u64, sent: PeerTime) -> Time {
        let begin = *self.begin.get_or_insert(sent);
        let since = BEGIN + sent.since(begin).as_secs_f64();
        let Some((last, at)) = self.last else { return Time::ZERO + Span::from_secs_f64(since.max(0.0)) };
        if (since - at.as_secs_f64()).abs() < LATELY && number.saturating_add(MOST_MISSING) > last {
            return Time::ZERO + Span::from_secs_f64(since);
        }
        let at = at.max(self.told_at);
        let gone = at.as_nanos().saturating_sub(Span::from_secs_f64(BEGIN).as_nanos());
        let begin = sent.as_nanos().saturating_sub(i64::try_from(gone).unwrap_or(i64::MAX));
        (self.begin, self.last) = (Some(PeerTime::from_nanos(begin)), None);
        self.law.signals.restart();
        self.pending.clear();
        at
    }

    /// Whether this receiver has nothing against more than it asks for: its law grows, or is held down by what arrives
    /// alone.
    fn is_free(&self) -> bool {
        let law = &self.law;
        !self.limits()
            && match law.mode {
                Mode::Start => true,
                Mode::Delay => law.rule == UP,
                Mode::Compete => {
                    let received = law.signals.received(law.signals.rtt().max(RECEIVED_SPAN));
                    received.is_some_and(|received| law.rate > A_BIT_MORE * received)
                }
            }
    }

    /// Tells the law of a packet that left, and of those before it that have not come.
    fn note(&mut self, number: u64, left: Time, size: u64) {
        let rate = self.forward.map_or(0.0, |forward| forward.rate.as_bps_f64());
        let frames = self.forward.is_some_and(|forward| forward.frames);
        let pacing = frames.then_some(self.law.config.pacing);
        if let Some((last, at)) = self.last {
            if number <= last {
                self.law.signals.on_late(left, number, size);
                return;
            }
            let missing = number - last - 1;
            let apart = left.since(at);
            for n in (1..=missing).take_while(|_| missing <= MOST_MISSING) {
                let at = at + apart.scale(n as f64 / (missing + 1) as f64);
                self.law.on_sent(at, last + n, size, pacing, rate);
            }
        }
        self.law.on_sent(left, number, size, pacing, rate);
        self.last = Some((number, left));
    }

    fn step(&mut self, now: Time) {
        let Some((_, left)) = self.last else { return };
        // As the sender would hear of it.
        let at = (left + Span::from_secs_f64(self.law.signals.rtt())).max(self.told_at);
        let sent = self.forward.map_or(Rate::MAX, |forward| forward.rate).as_bps_f64();
        let limits = self.limits();
        let place = RateRelation { is_limiting: limits, is_upper_bound: limits || SIMILAR * sent <= self.law.rate };
        let pending = std::mem::take(&mut self.pending);
        self.news |= self.law.on_feedback(at, RttSource::FromSender(self.rtt), &pending, place);
        (self.told_at, self.stepped, self.fresh) = (at, Some(now), 0);
        self.pending = pending;
        self.pending.clear();
        self.hurry(now, limits, sent);
    }

    /// Whether the sender has to hear of this receiver before RTCP's time: nobody limits the rate, or it is too high.
    /// Some time later, drawn, unless somebody else brings it down before.
    fn hurry(&mut self, now: Time, limits: bool, sent: f64) {
        let nobody = self.forward.is_none_or(|forward| forward.limiting.is_none());
        if limits || !(nobody || self.law.rate < SIMILAR * sent && !self.is_free()) {
            self.urgent = None;
            return;
        }
        if self.urgent.is_some() {
            return;
        }
        let round = match self.members {
            Some(members) => {
                // A round trip for each power of e of members.
                Span::from_secs_f64(self.law.signals.rtt() * libm::log(f64::from(members.max(2)) / 2.0))
            }
            None => Span::from_secs_f64(0.5 * SILENCE),
        };
        let wait = suppress::timer(round, None, self.members.unwrap_or(CROWD), &mut self.chance);
        let again = self.reported.map_or(now, |at| at + Span::from_secs_f64(self.law.signals.rtt()));
        self.urgent = Some((now + wait).max(again));
    }

    fn claim(&self, now: Time) -> Option<ReceiverReport> {
        let (sent, arrived) = self.newest?;
        let law = &self.law;
        Some(ReceiverReport {
            rate: Rate::from_bps_f64(law.rate).clamp(self.floor, self.cap),
            loss: law.loss().unwrap_or(0.0),
            queue: Span::from_secs_f64(law.signals.low(law.delay.span)),
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
        if let Some(forward) = SenderNotice::read(arrival.notice) {
            self.forward = Some(forward);
            if let Some((_, rtt)) = forward.told.filter(|(id, rtt)| *id == self.id && !rtt.is_zero()) {
                self.rtt = Some(rtt);
            }
        }
        let left = self.left(arrival.seq, arrival.sent);
        self.note(arrival.seq, left, arrival.size.get());
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
        self.fresh = self.fresh.saturating_add(arrival.size.get());
        let since = *self.stepped.get_or_insert(arrival.at);
        if arrival.at.since(since) >= self.config.report_after(self.fresh as f64, REPORT_COSTS) {
            self.step(arrival.at);
        }
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.law.signals.on_extra(extra.size.get());
        self.fresh = self.fresh.saturating_add(extra.size.get());
    }

    /// The one that limits the rate: whenever its law has heard. Others: where what is sent is too much, and in RTCP's
    /// own time.
    fn due(&self) -> Due {
        if let Some(at) = self.urgent {
            return Due::At(Wake { at, why: "what is sent is too much" });
        }
        match (self.limits(), self.news, self.stepped) {
            (true, true, Some(at)) => Due::At(Wake { at, why: "report interval" }),
            (true, ..) => Due::Hold,
            _ => Due::Rtcp,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        self.members = Some(slot.members);
        (self.news, self.urgent, self.reported) = (false, None, Some(slot.now));
        self.claim(slot.now).map_or(Reply::Plain, |claim| Reply::Body(claim.body()))
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
