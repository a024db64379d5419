//! `lda-plus` (LDA+): at each RTCP report, the rate increases by an amount that is proportional to the unused share of
//! the bottleneck.
//!
//! Receivers send standard reports, and the bottleneck's rate, which they measure with packet pairs. The sender
//! computes a rate for each receiver and sends at the lowest of them. `docs/controllers/lda-plus.md` has the equations
//! and the differences from the paper.

use crate::entry::{Controller, FeedbackTiming, Mode, Receivers, Setup, Values, params};
use crate::equation::{LossRate, throughput_full};
use crate::fields::{ABSURD_BYTES_PER_S, amount, single, words};
use crate::{
    Arrival, Body, Decision, Departing, Leave, Limit, Need, Notice, ReceiverHalf, ReceiverId, Reply, Report,
    SenderHalf, Sent, Slot, View, Wake, Why, Window,
};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Bytes, PeerTime, Rate, Span, Time};

pub(crate) const CONTROLLER: Controller = Controller {
    name: "lda-plus",
    about: "at each RTCP report, the rate rises in proportion to the unused share of the bottleneck, or falls by the \
            square root of the loss",
    when: "beside TCP Reno on a link with a drop-tail queue of 300 ms",
    source: "Sisalem, Wolisz: LDA+ (2000)",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Periodic,
    // If the user does not set this parameter, packet pairs measure the rate of the bottleneck. This needs arrival
    // times.
    needs: |values| if values.rate("bottleneck").is_none() { &[Need::ArrivalTimes] } else { &[] },
    standard_reports: true,
    extension: EXTENSION,
    app: *b"LDAP",
    colour: "#e377c2",
    params: PARAMS,
    sender: |setup, values| Box::new(Sender::new(setup, values)),
    receiver: |_, _| Box::new(Receiver::default()),
    ..crate::fixed::CONTROLLER
};

params! { const {
    rate start: "the sending rate until the first report arrives",
        "Steadycast; ASMP's paper starts at 150 kb/s", [Rate::kbps(150); 2], RATES;
    rate bottleneck: "the known rate of the bottleneck; if not set, receivers measure it with packet pairs",
        "Steadycast", [Rate::ZERO; 2], [Rate::kbps(1), Rate::mbps(1_000_000)];
} }

const RATES: [Rate; 2] = [Rate::bps(1), Rate::mbps(1_000)];

/// Identifier of LDA+'s RTP header extension element. The element has one byte of data.
const EXTENSION: u8 = 8;
/// Value of this byte on the second packet of a pair. On all other packets, it is 0.
const SECOND: u8 = 1;
/// Subtype of the APP packet that carries the bottleneck's rate (bytes per second, f32).
const ESTIMATE: u8 = 1;
/// A packet pair is sent once per this number of packets. LDA+ does not specify this number.
const PAIR_INTERVAL: u64 = 16;
const MEDIAN_PAIRS: usize = 21;
/// First value of the additive increase. After a loss, the increase begins at this value again (LDA+: 10 kb/s).
const FIRST_STEP: Rate = Rate::kbps(10);
const MOST_RECEIVERS: usize = 16_384;
/// A receiver that sends no report for this number of report intervals is removed. Each receiver has its own report
/// interval.
const MEMBER_TIMEOUT_INTERVALS: u64 = 5;
/// Round-trip time that is assumed before the first measurement.
const FIRST_RTT: Span = Span::millis(500);
/// The rule that lowers the rate if no receiver reports.
const SILENCE: &str = "no reports: halved";
/// If no report arrives for this time, the rate is halved. This is repeated after each further period without reports.
const NO_REPORT_TIMEOUT: Span = Span::secs(20);

#[derive(Clone, Copy, Debug)]
struct Member {
    rate: Rate,
    /// Additive increase `A_add` (see [`Sender::risen`]).
    step: Rate,
    bottleneck: Option<Rate>,
    rtt: Option<Span>,
    heard: Time,
    interval: Span,
}

#[derive(Default)]
struct Sender {
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    bottleneck: Option<Rate>,
    /// Whether the throughput equation may raise the rate after a loss. The LDA+ paper says so, so this is set in paper
    /// mode.
    rise_on_loss: bool,
    members: BTreeMap<ReceiverId, Member>,
    rate: Rate,
    sent: u64,
    halve_at: Option<Time>,
    rule: &'static str,
    loss: Option<f64>,
    by: Option<ReceiverId>,
}

impl Sender {
    fn new(setup: &Setup, values: &Values) -> Self {
        let floor = setup.floor.min(setup.cap);
        Self {
            packet: setup.packet,
            floor,
            cap: setup.cap,
            bottleneck: values.rate("bottleneck"),
            rise_on_loss: values.mode() == Mode::Paper,
            rate: values.rate("start").unwrap_or(floor).max(floor).min(setup.cap),
            rule: "start",
            ..Self::default()
        }
    }

    /// Increases the rate of a receiver whose report has no loss. `interval` is the time since its last report.
    ///
    /// ```text
    ///  A_add := (2 − r/b) A_add      A_exp = (1 − e^−(1 − r/b)) r
    ///
    ///           M   T/τ + 1
    ///  A_tcp =  ─ · ───────          r := r + min(A_add, A_exp, A_tcp)
    ///           2      τ
    /// ```
    ///
    /// `r` is the rate, `b` is the rate of the bottleneck, and `τ` is the round-trip time. `T` is the report interval,
    /// and `M` is the packet size. Source: LDA+.
    fn risen(&self, member: &mut Member, interval: Span) -> &'static str {
        let r = member.rate;
        let tau = member.rtt.unwrap_or(FIRST_RTT).max(Span::millis(1));
        // The window of a TCP connection grows by one packet per round trip. During the interval, this is a growth by
        // 1, 2 … T/τ packets. The mean is (T/τ + 1) / 2 packets.
        let tcp = self.packet.per(tau).scale(0.5 * (interval.ratio(tau) + 1.0));
        let Some(b) = self.bottleneck.or(member.bottleneck) else {
            member.rate = (r + tcp.min(member.step)).min(self.cap);
            return "no loss, bottleneck unknown: one step";
        };
        let left = 1.0 - r.ratio(b.max(Rate::bps(1)));
        // Do not let A_add fall below its first value. If r is above b, the factor could otherwise reduce A_add to zero
        // for good.
        member.step = member.step.scale((1.0 + left).clamp(0.0, 2.0)).min(b).max(FIRST_STEP);
        let exponential = r.scale((1.0 - libm::exp(-left)).max(0.0));
        let least = member.step.min(exponential).min(tcp);
        member.rate = (r + least).min(self.cap);
        if least == tcp {
            "no loss: as TCP would rise"
        } else if least == exponential {
            "no loss: near the bottleneck"
        } else {
            "no loss: additive increase"
        }
    }

    /// Reduces the rate after a loss, where `l` is the fraction of lost packets.
    ///
    /// ```text
    ///                    ___
    ///  r := max( r (1 − ╲╱ l ),  X_full(τ, l) ),  A_add := its initial value
    /// ```
    fn fallen(&self, member: &mut Member, loss: LossRate) -> &'static str {
        let tau = member.rtt.unwrap_or(FIRST_RTT);
        let equation = throughput_full(self.packet, tau, loss, tau * 4, 1.0);
        let equation = if self.rise_on_loss { equation } else { equation.min(member.rate) };
        let root = member.rate.scale(1.0 - loss.get().sqrt());
        member.step = FIRST_STEP;
        member.rate = root.max(equation).max(self.floor).min(self.cap);
        if root >= equation { "loss: less by its root" } else { "loss: throughput equation" }
    }

    fn settle(&mut self) {
        let least = self.members.iter().min_by_key(|(id, m)| (m.rate, **id)).map(|(id, m)| (*id, m.rate));
        if let Some((id, rate)) = least {
            (self.rate, self.by) = (rate, Some(id));
        }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent += 1;
        self.halve_at.get_or_insert(sent.at + NO_REPORT_TIMEOUT);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let now = report.at;
        let Some(reception) = report.reception else { return };
        // Limit the size of the table, because reports are not authenticated.
        if !self.members.contains_key(&report.from) && self.members.len() >= MOST_RECEIVERS {
            return;
        }
        let fresh = Member {
            rate: self.rate,
            step: FIRST_STEP,
            bottleneck: None,
            rtt: None,
            heard: now,
            interval: Span::secs(5),
        };
        let known = self.members.get(&report.from).copied();
        let mut member = known.unwrap_or(fresh);
        member.bottleneck = report.body.and_then(read).or(member.bottleneck);
        member.rtt = report.rtt.or(member.rtt);
        let interval = now.since(member.heard);
        member.heard = now;
        // After the first report, only store when it arrived. The next report then has an interval.
        if known.is_some() && reception.expected > 0 {
            member.interval = interval.max(Span::millis(1));
            let loss = LossRate::new(reception.lost.max(0) as f64 / reception.expected as f64);
            let (before, rule) = (
                member.rate,
                match loss {
                    Some(loss) => self.fallen(&mut member, loss),
                    None => self.risen(&mut member, interval),
                },
            );
            // Limit the increase, because the rate of a receiver that does not limit the stream must not grow far
            // beyond the send rate.
            if member.rate > before {
                member.rate = member.rate.min(self.rate.scale(2.0)).max(before);
            }
            (self.rule, self.loss) = (rule, loss.map(LossRate::get));
        }
        self.members.insert(report.from, member);
        self.members.retain(|_, m| now.since(m.heard) <= m.interval.max(Span::secs(1)) * MEMBER_TIMEOUT_INTERVALS);
        self.settle();
        self.halve_at = Some(now + NO_REPORT_TIMEOUT);
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId, how: Leave) {
        let known = self.members.remove(&receiver).is_some();
        self.settle();
        if how == Leave::Bye && known && self.members.is_empty() {
            // The last receiver has left, so no report can arrive any more. Halve the rate now.
            self.halve_at = Some(at);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.halve_at.is_some_and(|at| at <= now) {
            self.rate = self.rate.scale(0.5).max(self.floor);
            self.members.clear();
            self.rule = SILENCE;
            self.halve_at = Some(now + NO_REPORT_TIMEOUT);
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.halve_at.map(|at| Wake { at, why: "no reports" })
    }

    fn decision(&self) -> Decision {
        // The second packet of a pair is sent without a delay. To compensate for this, pace all other packets more
        // slowly.
        let pair = self.sent > 0 && self.sent.is_multiple_of(PAIR_INTERVAL);
        let others = (PAIR_INTERVAL - 1) as f64 / PAIR_INTERVAL as f64;
        Decision {
            target: self.rate,
            pacing: if pair { Rate::MAX } else { self.rate.scale(others).max(Rate::bps(1)) },
            // The pacing rate differs between the packets of a pair, so the session has to read it after each packet.
            window: Some(Window::UNLIMITED),
            // Without reports, the missing reports limit the rate, not the start phase.
            limit: Limit::between(
                self.rate,
                self.floor,
                self.cap,
                self.members.is_empty() && self.rate > self.floor && self.rule != SILENCE,
            ),
            why: Why {
                loss: self.loss,
                rtt: self.by.and_then(|id| self.members.get(&id)).and_then(|m| m.rtt),
                by: self.by,
                ..Why::rule(self.rule)
            },
        }
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        let pair = self.sent > 0 && self.sent.is_multiple_of(PAIR_INTERVAL);
        Notice::new(EXTENSION, &[if pair { SECOND } else { 0 }])
    }
}

fn read(body: &Body) -> Option<Rate> {
    let [estimate] = words(&body.bytes).filter(|_| body.subtype == ESTIMATE && body.bytes.len() == 4)?;
    let estimate = amount(estimate).filter(|estimate| *estimate <= f64::from(ABSURD_BYTES_PER_S))?;
    Some(Rate::from_bytes_per_s(estimate)).filter(|rate| *rate > Rate::ZERO)
}

#[derive(Debug, Default)]
struct Receiver {
    last: Option<(u64, PeerTime, Time)>,
    pairs: VecDeque<Rate>,
    loss: Option<f64>,
}

impl Receiver {
    /// Returns the median rate of the latest packet pairs.
    fn estimate(&self) -> Option<Rate> {
        let mut sorted: Vec<Rate> = self.pairs.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let now = (arrival.seq, arrival.sent, arrival.at);
        if let Some((seq, sent, at)) = self.last
            && arrival.notice == [SECOND]
            && arrival.seq.checked_sub(1) == Some(seq)
        {
            let (left, came) = (arrival.sent.since(sent).later(), arrival.at.since(at));
            // Skip a pair if its packets were sent apart, because the source caused the delay. Skip a pair whose
            // packets arrive at the same time, because it measures nothing.
            if !came.is_zero() && left * 2 <= came {
                self.pairs.push_back(arrival.size.per(came));
                if self.pairs.len() > MEDIAN_PAIRS {
                    self.pairs.pop_front();
                }
            }
        }
        if self.last.is_none_or(|(seq, ..)| arrival.seq > seq) {
            self.last = Some(now);
        }
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        self.loss = (slot.expected > 0).then(|| slot.lost.max(0) as f64 / slot.expected as f64);
        let Some(estimate) = self.estimate() else { return Reply::Plain };
        Reply::Body(Body::of_words(ESTIMATE, [single(estimate.as_bytes_per_s())]))
    }

    fn view(&self) -> View {
        View { rate: self.estimate(), loss: self.loss, rtt: None, state: None }
    }
}
