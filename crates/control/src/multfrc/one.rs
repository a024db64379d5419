//! A single TFRC connection that sends at n times the rate of the throughput equation. The loss event rate is computed
//! only from marked packets. One packet in n is marked.

use super::law::Law;
use crate::entry::{Setup, Values};
use crate::tfrc::{self, CountedPackets, FeedbackReport, Mark, Settings, rtt_notice};
use crate::{Check, Decision, Departing, Notice, ReceiverHalf, Report, SenderHalf, Sent, Wake};
use std::borrow::Cow;
use steadycast_units::Time;

/// Identifier of the RTP header extension element. Its content is the round-trip time in 24 bits ([`rtt_notice`]),
/// followed by the [`Mark`].
pub(super) const EXTENSION: u8 = 3;

pub(super) struct Sender {
    tfrc: tfrc::Sender,
    law: Law,
    /// One plus the sum of 1/n over all sent packets, minus the number of marked packets. n is the number of
    /// connections. If the credit is at least 1, the next packet is marked.
    credit: f64,
    vseq: u16,
    /// Number of marked packets, and the sum of 1/n over all sent packets. The check `honest` compares the two.
    marked: (u64, f64),
    honest: Check,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let law = Law::new(values);
        let mut tfrc = tfrc::Sender::new(setup, &Settings::of_profile(values));
        tfrc.set_connections(law.n);
        // Begin with a credit of 1, so that the first packet is marked.
        Self { tfrc, law, credit: 1.0, vseq: u16::MAX, marked: (0, 0.0), honest: Check::new(&super::MARKED) }
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.tfrc.on_sent(sent);
        self.law.on_sent(sent.at, sent.size.as_f64(), self.tfrc.decision().target);
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let Some(feedback) = report.body.and_then(FeedbackReport::read) else { return };
        if let Some(sample) = self.tfrc.on_feedback(&feedback, report.at, report.from) {
            self.law.on_sample(sample);
        }
    }

    fn on_timer(&mut self, now: Time) {
        self.tfrc.on_timer(now);
        if self.law.on_timer(now) {
            self.tfrc.set_connections(self.law.n);
        }
    }

    fn wake(&self) -> Option<Wake> {
        let period = self.law.wake().map(|at| Wake { at, why: "number of connections" });
        [self.tfrc.wake(), period].into_iter().flatten().min_by_key(|w| w.at)
    }

    fn decision(&self) -> Decision {
        let mut decision = self.tfrc.decision();
        decision.why.rule = with_n(self.law.n, &decision.why.rule);
        decision
    }

    fn checks(&self) -> &[Check] {
        std::slice::from_ref(&self.honest)
    }

    fn notice(&mut self, _: &Departing) -> Notice {
        let n = self.law.n;
        let marked = self.credit >= 1.0;
        if marked {
            self.vseq = self.vseq.wrapping_add(1);
            self.credit -= 1.0;
        }
        self.credit += 1.0 / n;
        self.marked.0 += u64::from(marked);
        self.marked.1 += 1.0 / n;
        // Allow for rounding errors.
        self.honest.see(n >= 1.0 && (self.marked.0 as f64 - self.marked.1).abs() <= 1.0 + 1e-6);
        let mut bytes = [0; 8];
        let (rtt, mark) = bytes.split_at_mut(3);
        rtt.copy_from_slice(&rtt_notice(self.tfrc.round_trip()));
        mark.copy_from_slice(&Mark { marked, vseq: self.vseq, connections: n }.write());
        Notice::new(EXTENSION, &bytes)
    }
}

/// Puts n in front of a rule. Whole numbers are treated separately, because this runs for each packet and formatting a
/// float is slow.
pub(super) fn with_n(n: f64, rule: &str) -> Cow<'static, str> {
    let whole = n as u32;
    Cow::Owned(if f64::from(whole) == n { format!("n = {whole}.00: {rule}") } else { format!("n = {n:.2}: {rule}") })
}

/// Creates a TFRC receiver that counts losses only among marked packets.
pub(super) fn receiver(setup: &Setup, values: &Values) -> Box<dyn ReceiverHalf> {
    Box::new(tfrc::Receiver::new(setup, &Settings::of_profile(values), CountedPackets::Marked))
}
