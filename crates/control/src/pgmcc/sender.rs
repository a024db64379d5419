use super::message::{Confirmation, Purpose, ReceiverReport, SenderNotice};
use super::{Config, DUP_THRESHOLD, ELECT_AFTER, RTO_MIN};
use crate::entry::{Setup, Values};
use crate::equation::{LossRate, rank};
use crate::fields::ABSURD_RTT;
use crate::{
    Check, Decision, Departing, Leave, Limit, Notice, ReceiverId, Report, SenderHalf, Sent, Wake, Why, Window,
};
use std::collections::{BTreeMap, VecDeque};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The retransmission timeout before the first measurement.
const FIRST_RTO: Span = Span::secs(3);
/// The maximum retransmission timeout (RFC 6298).
const MOST_RTO: Span = Span::secs(60);
const MOST_RTTS: usize = 4_096;
const SMOOTHING: Span = Span::secs(1);
/// The maximum window in packets.
const MOST_WINDOW: f64 = 65_536.0;

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    seq: u64,
    /// Number of later packets that were acknowledged.
    overtaken: u32,
}

#[derive(Clone, Copy, Debug)]
struct Acker {
    id: ReceiverId,
    rtt: Span,
    loss: f64,
}

/// TCP's round-trip time estimate (RFC 6298).
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Span,
    deviation: Span,
}

#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    packet: Bytes,
    floor: Rate,
    cap: Rate,
    /// The congestion window W, in packets.
    window: f64,
    /// Packets that are neither acknowledged nor lost, in sending order.
    out: VecDeque<SentPacket>,
    highest: Option<u64>,
    /// The highest packet that was sent before the last window reduction. A loss of this or an earlier packet does not
    /// reduce the window again.
    cut_at: Option<u64>,
    /// The newest packet that filled the window when the packet was sent.
    filled: Option<u64>,
    /// Whether the window is frozen until a packet after `cut_at` is acknowledged.
    frozen: bool,
    acker: Option<Acker>,
    rtts: BTreeMap<ReceiverId, Span>,
    rtt: Option<RoundTrip>,
    doublings: u32,
    timeouts: u32,
    timer: Option<Time>,
    smoothed: Rate,
    smoothed_at: Time,
    lossy: bool,
    /// Whether the sender confirms reports. A confirmation suppresses the reports of other receivers.
    confirms: bool,
    /// The latest confirmation of a report.
    confirmed: Option<Confirmation>,
    /// Whether a packet has carried this confirmation to the receivers.
    confirmation_sent: bool,
    /// The run-time check that the packets in flight fit the window. It allows for losses that are not yet detected.
    within: Check,
    rule: &'static str,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        Self {
            confirms: setup.group && !values.span("nak_backoff").is_zero(),
            confirmation_sent: true,
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
        // Double the timeout for each expiry in a row (RFC 6298, sections 2.3 and 5.5).
        let base = self.rtt.map_or(FIRST_RTO, |r| r.smoothed + r.deviation * 4).max(RTO_MIN);
        (base * (1 << self.doublings.min(8))).min(MOST_RTO)
    }

    /// Returns how long the sender waits for an acknowledgment before it sends a packet without one.
    ///
    /// Without an acker, this time is at most [`FIRST_RTO`]. Packets must keep arriving for an acker to be elected, and
    /// a long back-off would delay the election.
    fn timeout(&self) -> Span {
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

    /// Updates the round-trip time of a receiver, and returns it. A new sample has weight 1/8.
    fn rtt_of(&mut self, id: ReceiverId, sample: Span) -> Span {
        let rtt = self.rtts.get(&id).map_or(sample, |old| old.scale(0.875) + sample.scale(0.125));
        // Reports are not authenticated, so a forger could fill the table. Limit its size.
        if self.rtts.len() < MOST_RTTS || self.rtts.contains_key(&id) {
            self.rtts.insert(id, rtt);
        }
        rtt
    }

    /// Returns a receiver's rank, or 0 if it has no loss. The receiver with the highest rank limits the rate.
    fn rank(&self, rtt: Span, loss: f64) -> f64 {
        match LossRate::new(loss) {
            None => 0.0,
            Some(p) if self.config.sqrt => rtt.as_secs_f64() * p.get().sqrt(),
            Some(p) => rank(rtt, p),
        }
    }

    /// Elects the acker after a report from `id`. Returns whether the acker has changed.
    ///
    /// ```text
    ///  j takes over from i  ⇔  M_j > M_i / c,   M = R √p (1 + 9 p (1 + 32 p²))
    /// ```
    ///
    /// Source: draft-ietf-rmt-bb-pgmcc.
    fn elect(&mut self, id: ReceiverId, rtt: Span, loss: f64) -> bool {
        match self.acker {
            // Do not switch after a report of the acker itself. Only update its values.
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
                // Forget the packets in flight, because there was no acker to acknowledge them.
                self.out.clear();
                self.timer = None;
            }
        }
        self.acker = Some(Acker { id, rtt, loss });
        self.rtt = Some(RoundTrip { smoothed: rtt, deviation: rtt / 2 });
        // The time-outs of the acker before say nothing about the new one.
        (self.doublings, self.timeouts) = (0, 0);
        true
    }

    /// Removes acknowledged and lost packets from `out`. Grows or reduces the window.
    fn acknowledge(&mut self, back: &ReceiverReport, now: Time) {
        let near = self.highest.unwrap_or_default();
        // Use only the low 16 bits of `lead`. A receiver that joined late has counted fewer wraps of the sequence
        // number, so its upper bits are wrong.
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
        for packet in self.out.iter_mut().rev() {
            if come(packet.seq) {
                later += 1;
            } else {
                packet.overtaken = packet.overtaken.saturating_add(later);
            }
        }
        self.out.retain(|f| !come(f.seq));
        let acked = before - self.out.len();
        let lost = self.out.iter().filter(|f| f.overtaken >= DUP_THRESHOLD).map(|f| f.seq).max();
        self.out.retain(|f| f.overtaken < DUP_THRESHOLD);
        if acked > 0 || lost.is_some() {
            (self.doublings, self.timeouts) = (0, 0);
            self.timer = (!self.out.is_empty()).then(|| now + self.rto());
        }
        // Do not grow the window while the application limits the rate. The path has not proved that it carries more
        // (RFC 7661).
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
            // Reduce once per loss event, as TCP does. Losses of packets that were sent before the reduction belong to
            // the same event.
            self.window = (self.window / 2.0).max(1.0);
            (self.cut_at, self.frozen, self.lossy) = (self.highest, true, true);
            self.rule = "loss: halved";
        }
    }

    /// Confirms a report in the next packet. If several reports wait for confirmation, the largest loss is confirmed.
    fn confirm(&mut self, loss: f64) {
        self.confirmed = Some(match self.confirmed {
            Some(last) if !self.confirmation_sent => Confirmation { loss: last.loss.max(loss), ..last },
            old => Confirmation { count: old.map_or(0, |last| last.count.wrapping_add(1)), loss },
        });
        self.confirmation_sent = false;
    }

    /// Updates the encoder's rate W s / R. W is the window, s is the packet size, and R is the round-trip time.
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
        self.out.push_back(SentPacket { seq: sent.seq, overtaken: 0 });
        self.within.see(self.out.len() as f64 <= self.window + f64::from(DUP_THRESHOLD));
        self.highest = self.highest.max(Some(sent.seq));
        if self.out.len() as f64 + 1.0 > self.window {
            self.filled = Some(sent.seq);
        }
        if self.timer.is_none() {
            self.timer = Some(sent.at + self.timeout());
        }
        // A session with a minimum rate sends even without acknowledgments. Limit the length of `out`.
        if self.out.len() > MOST_WINDOW as usize {
            self.out.pop_front();
        }
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let Some(back) = report.body.and_then(ReceiverReport::read) else { return };
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
            // Forget the packets in flight, because no acker is left to acknowledge them.
            self.out.clear();
            self.timer = None;
            self.rule = "the acker has left";
        }
    }

    /// Handles the retransmission timeout: the acker has not acknowledged in time.
    fn on_timer(&mut self, now: Time) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        self.out.clear();
        self.window = 1.0;
        (self.cut_at, self.frozen) = (self.highest, false);
        self.timer = None;
        // Count the timeouts in a row. Several of them mean that the acker is gone.
        self.timeouts = self.timeouts.saturating_add(1);
        self.doublings = (self.doublings + 1).min(8);
        self.rule = "time-out";
        if self.timeouts >= ELECT_AFTER {
            self.acker = None;
        }
        // Reduce the encoder's rate, too: the window now allows only one packet per timeout.
        self.smoothed = self.smoothed.min(self.packet.per(self.rto()));
        self.smoothed_at = now;
    }

    fn wake(&self) -> Option<Wake> {
        self.timer.map(|at| Wake { at, why: "time-out" })
    }

    fn decision(&self) -> Decision {
        // Until a round-trip time is measured, pace at the session's maximum rate. Only the window limits the sender
        // then.
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
        self.confirmation_sent = true;
        let (acker, report_now) = (self.acker.map(|acker| acker.id), self.acker.is_none());
        SenderNotice { acker, report_now, confirmed: self.confirmed }.notice()
    }
}
