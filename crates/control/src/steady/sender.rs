//! The part of the controller at the sender. It runs the control laws whenever feedback about packets arrives.

use super::law::Law;
use super::{Config, FEEDBACK_TIMEOUT_MIN, FEEDBACK_TIMEOUT_RTTS};
use crate::entry::Setup;
use crate::no_feedback_timer::NoFeedbackTimer;
use crate::{
    Check, Decision, ExtraSent, MediaQueue, PacketReport, Probe, ReceiverId, Report, SenderHalf, Sent, Wake, Why,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The no-feedback timeout until the round-trip time is known, in seconds (RFC 5348, section 4.2).
const INITIAL_FEEDBACK_TIMEOUT: f64 = 2.0;
/// Rate at which the packets of a train are sent. It is so high that they leave back to back.
const TRAIN_SEND_RATE: Rate = Rate::mbps(1_000);

pub(super) struct Sender {
    law: Law,
    no_feedback: NoFeedbackTimer,
    by: Option<ReceiverId>,
}

impl Sender {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        Self { law: Law::new(setup, config), no_feedback: NoFeedbackTimer::default(), by: None }
    }

    /// Records a sent packet. `left` is its send time. `at` is the current time, which may be later.
    fn sent(&mut self, at: Time, left: Time, number: u64, size: u64) {
        let pacing = self.law.config.frames.then(|| self.law.pacing());
        // Take the rate without its variation: with the varied rate, the TCP has less than 0.7 of its fair share in 74
        // instead of 48 of 540 runs (validation/scenarios/constant-frames.toml).
        self.law.on_sent(left, number, size, pacing, self.law.rate);
        // Scale the timeout with the round-trip time (RFC 8083).
        let rounds = self.law.rtt().map_or(INITIAL_FEEDBACK_TIMEOUT, |rtt| FEEDBACK_TIMEOUT_RTTS * rtt.as_secs_f64());
        let timeout = FEEDBACK_TIMEOUT_MIN.max(rounds);
        self.no_feedback.on_sent(at, Span::from_secs_f64(timeout));
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent(sent.at, sent.left, sent.number, sent.size.get());
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.sent(sent.at, sent.left, sent.number, sent.size.get());
    }

    fn on_queue(&mut self, _: &MediaQueue) {
        self.law.set_frames();
    }

    fn on_unknown(&mut self, packets: &[PacketReport]) {
        packets.iter().for_each(|packet| self.law.signals.on_unknown(packet.number));
    }

    fn on_report(&mut self, report: &Report<'_>) {
        if self.law.on_feedback(report.at, report.rtt, report.packets) {
            self.no_feedback.on_feedback(report.at);
            self.by = Some(report.from);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.no_feedback.has_expired(now) {
            self.law.on_feedback_timeout();
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.no_feedback.wake()
    }

    fn decision(&self) -> Decision {
        let rate = self.law.source_rate();
        let pacing = if self.law.config.frames { self.law.pacing() * rate } else { rate };
        Decision {
            target: Rate::from_bps_f64(rate),
            pacing: Rate::from_bps_f64(pacing),
            window: None,
            limit: self.law.limit(),
            why: Why { loss: self.law.loss(), rtt: self.law.rtt(), by: self.by, ..Why::rule(self.law.rule) },
        }
    }

    fn probe(&self) -> Option<Probe> {
        let (id, packets) = self.law.train()?;
        Some(Probe { id, rate: TRAIN_SEND_RATE, packets, bytes: Bytes::ZERO, within: true })
    }

    fn checks(&self) -> &[Check] {
        &self.law.checks
    }
}
