use super::message::{Back, Forward, Heard, Purpose};
use super::{Config, ELECT_AFTER, RTO_MIN};
use crate::entry::{Setup, Values};
use crate::equation::{LossRate, rank};
use crate::fields::ABSURD_RTT;
use crate::{
    Check, Decision, Departing, Leave, Limit, Notice, ReceiverId, Report, SenderHalf, Sent, Wake, Why, Window,
};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The time-out before there is a round-trip time, and the longest one (RFC 6298).
const FIRST_RTO: Span = Span::secs(3);
const MOST_RTO: Span = Span::secs(60);
/// Receivers whose round-trip times are kept.
const REMEMBERED: usize = 4_096;
/// Over which the encoder's rate is smoothed.
const SMOOTHING: Span = Span::secs(1);
/// Window that no network needs.
const MOST_WINDOW: f64 = 65_536.0;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct Flying {
    seq: u64,
    /// Later packets that were acknowledged.
    overtaken: u32,
}

#[derive(Clone, Copy, Debug)]
struct Acker {
    id: ReceiverId,
    rtt: Span,
    loss: f64,
}

/// TCP's estimate of the round-trip time (RFC 6298).
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Span,
    deviation: Span,
}

/// The sending half.
#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    /// W.
    window: f64,
    /// Packets sent and neither acknowledged nor lost, in order.
    out: VecDeque<Flying>,
    highest: Option<u64>,
    /// What was sent until the last cut; losses among it are no reason for another one.
    cut_at: Option<u64>,
    /// The newest packet that closed the window when it left: up to there the window is used.
    filled: Option<u64>,
    /// No feedback for a packet after `cut_at` yet: the window stays.
    frozen: bool,
    acker: Option<Acker>,
    rtts: BTreeMap<ReceiverId, Span>,
    rtt: Option<RoundTrip>,
    doublings: u32,
    timeouts: u32,
    timer: Option<Time>,
    /// The encoder's rate, and when it was last brought up to date.
    smoothed: Rate,
    smoothed_at: Time,
    lossy: bool,
    /// Reports are confirmed, for others to be silent; the last confirmation, and whether a packet has taken it along.
    confirms: bool,
    heard: Option<Heard>,
    told: bool,
    /// No packet leaves that the window has no room for, but for those that may be lost without anybody knowing yet.
    within: Check,
    rule: &'static str,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        Self {
            confirms: setup.group && !values.span("nak_backoff").is_zero(),
            told: true,
            config: Config::new(values),
            packet: setup.packet,
            floor: setup.floor.min(setup.cap),
            cap: setup.cap,
            window: 1.0,
            smoothed: setup.packet.per(FIRST_RTO),
            within: Check::new(&super::WITHIN),
            rule: "one packet until there is an acker",
            ..Self::default()
        }
    }

    fn rto(&self) -> Span {
        let base = self.rtt.map_or(FIRST_RTO, |r| r.smoothed + r.deviation * 4).max(RTO_MIN);
        (base * (1 << self.doublings.min(8))).min(MOST_RTO)
    }

    /// When the time-out comes. Without an acker it is no longer than at the start, whatever rate it stands for: a
    /// newcomer has to hear a packet to report.
    fn patience(&self) -> Span {
        if self.acker.is_some() { self.rto() } else { self.rto().min(FIRST_RTO) }
    }

    fn measure(&mut self, sample: Span) {
        self.rtt = Some(match self.rtt {
            None => RoundTrip { smoothed: sample, deviation: sample / 2 },
            Some(old) => {
                let off = old.smoothed.max(sample).saturating_sub(old.smoothed.min(sample));
                RoundTrip {
                    smoothed: old.smoothed.scale(0.875) + sample.scale(0.125),
                    deviation: old.deviation.scale(0.75) + off.scale(0.25),
                }
            }
        });
    }

    /// A receiver's own round-trip time, smoothed by an eighth.
    fn rtt_of(&mut self, id: ReceiverId, sample: Span) -> Span {
        let rtt = self.rtts.get(&id).map_or(sample, |old| old.scale(0.875) + sample.scale(0.125));
        if self.rtts.len() < REMEMBERED || self.rtts.contains_key(&id) {
            self.rtts.insert(id, rtt);
        }
        rtt
    }

    /// How bad a receiver is; 0 without loss.
    fn rank(&self, rtt: Span, loss: f64) -> f64 {
        match LossRate::new(loss) {
            None => 0.0,
            Some(p) if self.config.sqrt => rtt.as_secs_f64() * p.get().sqrt(),
            Some(p) => rank(rtt, p),
        }
    }

    /// The acker after a report from `id`. True when it has changed.
    ///
    /// ```text
    ///  j takes over from i  ⇔  M_j > M_i / c,   M = R √p (1 + 9 p (1 + 32 p²))
    /// ```
    ///
    /// Source: draft-ietf-rmt-bb-pgmcc.
    fn elect(&mut self, id: ReceiverId, rtt: Span, loss: f64) -> bool {
        match self.acker {
            Some(acker) if acker.id == id => {
                self.acker = Some(Acker { id, rtt, loss });
                return false;
            }
            Some(acker)
                if self.rank(rtt, loss) * self.config.c_switch <= self.rank(acker.rtt, acker.loss) || loss <= 0.0 =>
            {
                return false;
            }
            Some(_) => {}
            None => {
                // Nobody was to acknowledge what is in flight.
                self.out.clear();
                self.timer = None;
            }
        }
        self.acker = Some(Acker { id, rtt, loss });
        self.rtt = Some(RoundTrip { smoothed: rtt, deviation: rtt / 2 });
        true
    }

    /// Takes what an acknowledgment says off the packets in flight, and grows or cuts the window.
    fn acknowledge(&mut self, back: &Back, now: Time) {
        let near = self.highest.unwrap_or_default();
        // Who has joined after the 16-bit number on the wire began anew counts fewer rounds of it: only that number is
        // common.
        let lead = near.saturating_add_signed(i64::from((back.lead as u16).wrapping_sub(near as u16) as i16));
        if lead > near {
            return;
        }
        if self.frozen && self.cut_at.is_none_or(|cut| lead > cut) {
            self.frozen = false;
        }
        let come = |seq: u64| seq == lead || (seq < lead && lead - seq < 32 && back.bitmap >> (lead - seq) & 1 == 1);
        let before = self.out.len();
        let mut later = 0;
        // From the newest on, so that each knows how many later ones were acknowledged just now.
        for flying in self.out.iter_mut().rev() {
            if come(flying.seq) {
                later += 1;
            } else {
                flying.overtaken = flying.overtaken.saturating_add(later);
            }
        }
        self.out.retain(|f| !come(f.seq));
        let acked = before - self.out.len();
        let dupthresh = self.config.dupthresh;
        let lost = self.out.iter().filter(|f| f.overtaken >= dupthresh).map(|f| f.seq).max();
        self.out.retain(|f| f.overtaken < dupthresh);
        if acked > 0 || lost.is_some() {
            (self.doublings, self.timeouts) = (0, 0);
            self.timer = (!self.out.is_empty()).then(|| now + self.rto());
        }
        let used = !self.config.only_used || self.filled.is_some_and(|seq| lead <= seq);
        if !self.frozen && used {
            for _ in 0..acked {
                self.window += if self.window < self.config.ssthresh { 1.0 } else { 1.0 / self.window };
            }
            self.window = self.window.min(MOST_WINDOW);
            if acked > 0 {
                self.rule = if self.window <= self.config.ssthresh { "slow start" } else { "a packet per round trip" };
            }
        }
        if lost.is_some_and(|seq| self.cut_at.is_none_or(|cut| seq > cut)) {
            self.window = (self.window / 2.0).max(1.0);
            (self.cut_at, self.frozen, self.lossy) = (self.highest, true, true);
            self.rule = "loss: halved";
        }
    }

    /// The next packet tells the group of a report; of several, of the one with the largest loss.
    fn confirm(&mut self, loss: f64) {
        self.heard = Some(match self.heard {
            Some(heard) if !self.told => Heard { loss: heard.loss.max(loss), ..heard },
            old => Heard { count: old.map_or(0, |heard| heard.count.wrapping_add(1)), loss },
        });
        self.told = false;
    }

    /// W s / R, smoothed over a second.
    fn smooth(&mut self, now: Time) {
        let Some(rtt) = self.rtt else { return };
        let rate = self.packet.per(rtt.smoothed.max(Span::millis(1))).scale(self.window);
        let old = libm::exp(-now.since(self.smoothed_at).ratio(SMOOTHING));
        self.smoothed = self.smoothed.scale(old) + rate.scale(1.0 - old);
        self.smoothed_at = now;
    }

    fn bounded(&self, rate: Rate) -> Rate {
        rate.max(self.floor).min(self.cap)
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.out.push_back(Flying { seq: sent.seq, overtaken: 0 });
        self.within.see(self.out.len() as f64 <= self.window + f64::from(self.config.dupthresh));
        self.highest = self.highest.max(Some(sent.seq));
        if self.out.len() as f64 + 1.0 > self.window {
            self.filled = Some(sent.seq);
        }
        if self.timer.is_none() {
            self.timer = Some(sent.at + self.patience());
        }
        // A floor that keeps packets coming without any acknowledgment must not fill the memory.
        if self.out.len() > MOST_WINDOW as usize {
            self.out.pop_front();
        }
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let Some(back) = report.body.and_then(Back::read) else { return };
        let (now, id) = (report.at, report.from);
        if back.purpose == Purpose::Leave {
            return self.on_leave(now, id, Leave::Bye);
        }
        let sample = now.since(back.echo.own(now));
        if self.highest.is_none() || sample > ABSURD_RTT {
            return;
        }
        let rtt = self.rtt_of(id, sample.max(Span::micros(1)));
        self.elect(id, rtt, back.loss);
        if back.purpose == Purpose::Report && self.confirms {
            self.confirm(back.loss);
        }
        if back.purpose == Purpose::Ack {
            if self.acker.is_some_and(|acker| acker.id == id) {
                self.measure(sample);
            }
            self.acknowledge(&back, now);
        }
        self.smooth(now);
    }

    fn on_leave(&mut self, _: Time, receiver: ReceiverId, _: Leave) {
        self.rtts.remove(&receiver);
        if self.acker.is_some_and(|acker| acker.id == receiver) {
            self.acker = None;
            // Nobody will acknowledge these.
            self.out.clear();
            self.timer = None;
            self.rule = "the acker has left";
        }
    }

    /// The acker is silent: TCP's time-out.
    fn on_timer(&mut self, now: Time) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        self.out.clear();
        self.window = 1.0;
        (self.cut_at, self.frozen) = (self.highest, false);
        self.timer = None;
        self.timeouts = self.timeouts.saturating_add(1);
        self.doublings = (self.doublings + 1).min(8);
        self.rule = "time-out";
        if self.timeouts >= ELECT_AFTER {
            self.acker = None;
        }
        self.smoothed = self.smoothed.min(self.packet.per(self.rto()));
        self.smoothed_at = now;
    }

    fn wake(&self) -> Option<Wake> {
        self.timer.map(|at| Wake { at, why: "time-out" })
    }

    fn decision(&self) -> Decision {
        let pacing = self.rtt.map_or(self.cap, |rtt| {
            self.packet.per(rtt.smoothed.max(Span::millis(1))).scale(self.window * self.config.pacing)
        });
        Decision {
            target: self.bounded(self.smoothed),
            pacing: self.bounded(pacing),
            window: Some(Window::Packets((self.window as u32).saturating_sub(self.out.len() as u32))),
            limit: Limit::between(self.smoothed, self.floor, self.cap, !self.lossy && self.smoothed > self.floor),
            why: Why {
                loss: self.acker.map(|acker| acker.loss),
                rtt: self.rtt.map(|rtt| rtt.smoothed),
                by: self.acker.map(|acker| acker.id),
                ..Why::rule(self.rule)
            },
        }
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.within)
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        self.told = true;
        let (acker, report_now) = (self.acker.map(|acker| acker.id), self.acker.is_none());
        Forward { acker, report_now, heard: self.heard }.notice()
    }
}
