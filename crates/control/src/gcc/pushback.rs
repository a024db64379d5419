//! Reduces the encoder's rate while more bytes are in flight than the congestion window allows (libwebrtc,
//! `congestion_window_pushback_controller.cc`).

use super::constants::QUEUE_TIME;
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span};

/// Number of reports for which the longest round-trip time is stored.
const REPORTS: usize = 32;
/// Minimum window. It equals two packets of 1500 bytes.
const LEAST: Bytes = Bytes::new(3_000);
/// Lower limit of the reduced rate.
const FLOOR: Rate = Rate::kbps(30);

#[derive(Clone, Debug)]
pub(super) struct CongestionWindowPushback {
    rtts: VecDeque<Span>,
    window: Option<Bytes>,
    share: f64,
}

impl CongestionWindowPushback {
    pub(super) fn new() -> Self {
        Self { rtts: VecDeque::new(), window: None, share: 1.0 }
    }

    /// Updates the window W. `longest` is the age of the oldest packet in the report.
    ///
    /// X is `target`. R_min is the minimum of `longest` in the last 32 reports.
    ///
    /// ```text
    ///  W = max( 3000, (W + X (R_min + 350 ms)) / 2 )
    /// ```
    pub(super) fn on_report(&mut self, longest: Span, target: Rate) {
        self.rtts.push_back(longest);
        if self.rtts.len() > REPORTS {
            self.rtts.pop_front();
        }
        let rtt = self.rtts.iter().min().copied().unwrap_or_default();
        let fits = target.over(rtt + QUEUE_TIME);
        // Average with the old window, so that a single outlier does not stop the encoder.
        let fits = self.window.map_or(fits, |old| Bytes::new((old + fits).get() / 2));
        self.window = Some(fits.max(LEAST));
    }

    pub(super) fn step(&mut self, outstanding: Bytes) {
        let Some(window) = self.window else { return };
        let fill = outstanding.as_f64() / window.as_f64();
        self.share = match fill {
            fill if fill > 1.5 => self.share * 0.9,
            fill if fill > 1.0 => self.share * 0.95,
            // The network is almost empty, so restore the full rate at once.
            fill if fill < 0.1 => 1.0,
            _ => (self.share * 1.05).min(1.0),
        };
        self.share = self.share.max(1e-3);
    }

    pub(super) fn apply(&self, target: Rate) -> Rate {
        target.scale(self.share).max(target.min(FLOOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_what_the_target_carries_in_the_least_round_trip_and_the_queue_time() {
        let mut pushback = CongestionWindowPushback::new();
        pushback.on_report(Span::millis(150), Rate::mbps(1));
        assert_eq!(pushback.window, Some(Bytes::new(62_500)));
        pushback.on_report(Span::millis(50), Rate::mbps(1));
        assert_eq!(pushback.window, Some(Bytes::new(56_250)));
        (0..20).for_each(|_| pushback.on_report(Span::millis(50), Rate::kbps(10)));
        assert_eq!(pushback.window, Some(LEAST));
    }

    #[test]
    fn the_share_falls_faster_the_fuller_the_window_and_is_whole_again_when_it_is_empty() {
        let mut pushback = CongestionWindowPushback::new();
        pushback.on_report(Span::millis(50), Rate::mbps(1));
        let mut step = |bytes: u64| {
            pushback.step(Bytes::new(bytes));
            (pushback.share * 1e6).round() / 1e6
        };
        assert_eq!([step(80_000), step(60_000), step(40_000)], [0.9, 0.855, 0.897_75]);
        assert_eq!([step(80_000), step(1_000)], [0.807_975, 1.0]);
        (0..200).for_each(|_| pushback.step(Bytes::new(80_000)));
        assert_eq!(pushback.apply(Rate::mbps(1)), Rate::kbps(30));
        assert_eq!(pushback.apply(Rate::kbps(20)), Rate::kbps(20));
    }
}
