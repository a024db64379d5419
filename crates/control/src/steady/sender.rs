use super::Config;
use super::constants::*;
use super::law::Law;
use super::law_input::RateRelation;
use super::signals::RttSource;
use crate::entry::Setup;
use crate::silence::Silence;
use crate::{
    Check, Decision, ExtraSent, MediaQueue, PacketReport, Probe, ReceiverId, Report, SenderHalf, Sent, Wake, Why,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The sending half that decides by reports of single packets.
pub(super) struct Sender {
    law: Law,
    silence: Silence,
    by: Option<ReceiverId>,
}

impl Sender {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        Self { law: Law::new(setup, config), silence: Silence::default(), by: None }
    }

    /// A packet has left at the time `left`; now is `at`.
    fn sent(&mut self, at: Time, left: Time, number: u64, size: u64) {
        let pacing = self.law.config.frames.then(|| self.law.pacing());
        self.law.on_sent(left, number, size, pacing, self.law.rate);
        // Nobody knows the round trip before the first report (RFC 5348, 4.2).
        let rounds = self.law.rtt().map_or(A_WHILE, |rtt| f64::from(SEVERAL) * rtt.as_secs_f64());
        let patience = SILENCE.max(rounds);
        self.silence.on_sent(at, Span::from_secs_f64(patience));
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
        if self.law.on_feedback(report.at, RttSource::Measured(report.rtt), report.packets, RateRelation::UNICAST) {
            self.silence.on_heard();
            self.by = Some(report.from);
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.silence.is_over(now) {
            self.law.on_feedback_timeout();
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.silence.wake()
    }

    fn decision(&self) -> Decision {
        let rate = self.law.rate;
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
        Some(Probe { id, rate: AT_ONCE, packets, bytes: Bytes::ZERO, within: true })
    }

    fn checks(&self) -> &[Check] {
        &self.law.checks
    }
}
