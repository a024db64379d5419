//! Computes the delay-based estimate of the rate (libwebrtc, `delay_based_bwe.cc`).

use super::aimd::Aimd;
use super::inter_arrival::InterArrival;
use super::trendline::{BandwidthUsage, Trendline};
use super::{Config, Received};
use steadycast_units::{Rate, Span, Time};

/// After this time without feedback, the state of the delay is discarded.
const STREAM_TIMEOUT: Span = Span::secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The new rate. It is `None` if the rate was not updated.
    pub(super) rate: Option<Rate>,
    /// Whether a probe determined the rate.
    pub(super) probe: bool,
    pub(super) recovered: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DelayBased {
    groups: InterArrival,
    trendline: Trendline,
    aimd: Aimd,
    heard: Option<Time>,
}

impl DelayBased {
    pub(super) fn new(config: &Config) -> Self {
        Self { trendline: Trendline::new(), aimd: Aimd::new(config), ..Self::default() }
    }

    pub(super) fn rate(&self) -> Rate {
        self.aimd.rate
    }

    pub(super) fn usage(&self) -> BandwidthUsage {
        self.trendline.usage
    }

    pub(super) fn on_rtt(&mut self, rtt: Span) {
        self.aimd.on_rtt(rtt);
    }

    /// Processes a report. `packets` are in the order of arrival. `probe` is the result of a probe, if there is one.
    pub(super) fn update(
        &mut self,
        now: Time,
        packets: &[Received],
        acknowledged: Option<Rate>,
        probe: Option<Rate>,
    ) -> Outcome {
        if packets.is_empty() {
            return Outcome::default();
        }
        // After a long time without feedback, discard the delays measured so far, because the path may have changed
        // (libwebrtc).
        if self.heard.replace(now).is_some_and(|at| now.since(at) > STREAM_TIMEOUT) {
            (self.groups, self.trendline) = (InterArrival::default(), Trendline::new());
        }
        let mut recovered = false;
        for packet in packets {
            let before = self.usage();
            if let Some(delta) = self.groups.take(packet.sent, packet.arrived, now) {
                self.trendline.update(&delta, packet.arrived);
            }
            // Underuse has ended without overuse. This means that a queue has drained.
            recovered |= before == BandwidthUsage::Under && self.usage() == BandwidthUsage::Normal;
        }
        if self.usage() == BandwidthUsage::Over {
            return Outcome { rate: self.reduce(now, acknowledged), probe: false, recovered: false };
        }
        match probe {
            Some(rate) => self.aimd.set(rate, now),
            None => self.aimd.update(self.usage(), acknowledged, now),
        }
        Outcome { rate: Some(self.aimd.rate), probe: probe.is_some(), recovered }
    }

    fn reduce(&mut self, now: Time, acknowledged: Option<Rate>) -> Option<Rate> {
        if !self.aimd.may_reduce(now, acknowledged) {
            return None;
        }
        match acknowledged {
            Some(_) => self.aimd.update(BandwidthUsage::Over, acknowledged, now),
            // If the acknowledged rate is unknown, halve the rate.
            None => self.aimd.set(self.aimd.rate.scale(0.5), now),
        }
        Some(self.aimd.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::{Bytes, PeerTime};

    /// Delivers a packet every 10 ms, and a report on each packet. The delay grows by `later` ms from packet to packet.
    fn run(half: &mut DelayBased, ms: std::ops::Range<u64>, later: f64, acknowledged: Option<Rate>) -> Rate {
        let mut way = 50.0;
        for at in ms.step_by(10) {
            way += later;
            let sent = Time::ZERO + Span::millis(at);
            let arrived = PeerTime::from_nanos(sent.as_nanos() as i64 + (way * 1e6) as i64);
            let packet = Received { sent, arrived, size: Bytes::new(1_000), probe: None };
            half.update(sent + Span::from_secs_f64(way * 1e-3), &[packet], acknowledged, None);
        }
        half.rate()
    }

    fn half() -> DelayBased {
        DelayBased::new(&super::super::tests::config())
    }

    #[test]
    fn a_growing_delay_lowers_the_rate_below_what_comes_through() {
        let mut half = half();
        let before = run(&mut half, 0..1_000, 0.0, Some(Rate::kbps(300)));
        assert!(before > Rate::kbps(300));
        assert_eq!(run(&mut half, 1_000..1_400, 3.0, Some(Rate::kbps(280))), Rate::kbps(233));
    }

    #[test]
    fn with_nothing_known_of_what_comes_through_overuse_halves_the_rate_once_per_round_trip() {
        let mut half = half();
        run(&mut half, 0..400, 0.0, None);
        let before = half.rate();
        let after = run(&mut half, 400..900, 3.0, None);
        let halvings = (before.ratio(after)).log2_floor();
        assert!((1..=3).contains(&halvings), "{before} {after}");
    }

    #[test]
    fn two_seconds_without_feedback_forget_the_trend() {
        let mut half = half();
        run(&mut half, 0..600, 3.0, Some(Rate::kbps(280)));
        assert_eq!(half.usage(), BandwidthUsage::Over);
        run(&mut half, 3_000..3_050, 0.0, Some(Rate::kbps(280)));
        assert_eq!(half.usage(), BandwidthUsage::Normal);
    }

    trait Halvings {
        fn log2_floor(self) -> u32;
    }

    impl Halvings for f64 {
        fn log2_floor(self) -> u32 {
            (1..20).take_while(|n| self >= f64::from(1u32 << n) * 0.99).count() as u32
        }
    }
}
