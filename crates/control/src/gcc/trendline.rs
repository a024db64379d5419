//! Detects overuse by the slope of the smoothed delay (libwebrtc, `trendline_estimator.cc`).

use super::constants::{GAIN, K_DOWN, K_UP, OVERUSE, POINTS, SMOOTHING, THRESHOLD};
use super::inter_arrival::Delta;
use std::collections::VecDeque;
use steadycast_units::PeerTime;

const MOST_DELTAS: u32 = 60;
/// If the slope exceeds the threshold by more than this, the threshold is not adapted.
const OUTLIER: f64 = 15.0;
/// An update of the threshold is computed from the time since the last update, but from at most this time, in
/// milliseconds.
const LONGEST_STEP: f64 = 100.0;
const LEAST: f64 = 6.0;
const MOST: f64 = 600.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BandwidthUsage {
    #[default]
    Normal,
    /// The queue grows.
    Over,
    /// The queue drains.
    Under,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Trendline {
    deltas: u32,
    first: Option<PeerTime>,
    accumulated: f64,
    smoothed: f64,
    /// Points of the regression. A point is the arrival time in milliseconds since the first arrival, and the smoothed
    /// delay at that time.
    points: VecDeque<(f64, f64)>,
    trend: f64,
    threshold: f64,
    adapted: Option<PeerTime>,
    /// For how long the slope has been above the threshold, in milliseconds and in packet groups.
    over: Option<(f64, u32)>,
    pub(super) usage: BandwidthUsage,
}

impl Trendline {
    pub(super) fn new() -> Self {
        Self { threshold: THRESHOLD, ..Self::default() }
    }

    /// Adds the change of the delay between two packet groups. `arrived` is the arrival time of the first packet after
    /// these groups.
    pub(super) fn update(&mut self, delta: &Delta, arrived: PeerTime) {
        let first = *self.first.get_or_insert(arrived);
        // Limit the number to prevent an overflow. Numbers above `MOST_DELTAS` make no difference.
        self.deltas = (self.deltas + 1).min(1_000);
        self.accumulated += delta.variation();
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.accumulated;
        self.points.push_back((arrived.since(first).as_secs_f64() * 1e3, self.smoothed));
        if self.points.len() > POINTS {
            self.points.pop_front();
        }
        let full = self.points.len() == POINTS;
        // Keep the old slope if no regression is possible, as libwebrtc does.
        let trend = full.then(|| slope(&self.points)).flatten().unwrap_or(self.trend);
        self.detect(trend, delta.sent.as_millis_f64(), arrived);
    }

    fn detect(&mut self, trend: f64, sent: f64, now: PeerTime) {
        if self.deltas < 2 {
            self.usage = BandwidthUsage::Normal;
            return;
        }
        let modified = f64::from(self.deltas.min(MOST_DELTAS)) * trend * GAIN;
        if modified > self.threshold {
            // The overuse began at some time within the first interval, so count half of that interval.
            let (time, groups) = self.over.map_or((sent / 2.0, 1), |(time, groups)| (time + sent, groups + 1));
            self.over = Some((time, groups));
            // A single group, or a slope that decreases, does not count as overuse.
            if time > OVERUSE.as_millis_f64() && groups > 1 && trend >= self.trend {
                self.over = Some((0.0, 0));
                self.usage = BandwidthUsage::Over;
            }
        } else {
            self.over = None;
            self.usage = if modified < -self.threshold { BandwidthUsage::Under } else { BandwidthUsage::Normal };
        }
        self.trend = trend;
        self.adapt(modified, now);
    }

    fn adapt(&mut self, modified: f64, now: PeerTime) {
        let since = self.adapted.replace(now).map_or(0.0, |at| now.since(at).as_secs_f64() * 1e3);
        self.threshold = adapted(self.threshold, modified, since, [K_UP, K_DOWN]);
    }
}

/// Adapts the threshold γ to the slope m after Δt milliseconds. Returns the new threshold.
///
/// ```text
///  γ += k (|m| − γ) min(Δt, 100 ms),   k = k_up where |m| ≥ γ, else k_down
/// ```
fn adapted(threshold: f64, modified: f64, since: f64, [k_up, k_down]: [f64; 2]) -> f64 {
    let beyond = modified.abs() - threshold;
    // Ignore an outlier, because a route change must not make the detector less sensitive (draft-ietf-rmcat-gcc-02,
    // section 5.4).
    if beyond > OUTLIER {
        return threshold;
    }
    let k = if beyond < 0.0 { k_down } else { k_up };
    (threshold + k * beyond * since.clamp(0.0, LONGEST_STEP)).clamp(LEAST, MOST)
}

/// Returns the slope of the least-squares line. Returns `None` if all points have the same time.
fn slope(points: &VecDeque<(f64, f64)>) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let (x, y) = (x / n, y / n);
    let (above, below) = points
        .iter()
        .fold((0.0, 0.0), |(above, below), (px, py)| (above + (px - x) * (py - y), below + (px - x) * (px - x)));
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::{Offset, Span};

    fn ms(ms: i64) -> PeerTime {
        PeerTime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_threshold_follows_slowly_upwards_quickly_downwards_and_outliers_not_at_all() {
        let mut line = Trendline::new();
        line.adapt(20.0, ms(0));
        let mut at = 0;
        let mut step = |modified, dt| {
            at += dt;
            line.adapt(modified, ms(at));
            (line.threshold * 1e4).round() / 1e4
        };
        assert_eq!(step(20.0, 50), 15.7625);
        assert_eq!(step(20.0, 50), 17.6058);
        // The first value lowers the threshold to its minimum. The second value exceeds it by more than the limit for
        // outliers.
        assert_eq!(step(5.0, 100), 6.0);
        assert_eq!(step(40.0, 50), 6.0);
    }

    #[test]
    fn with_the_drafts_constants_the_threshold_would_hardly_come_back() {
        let after_two_seconds = |gains| (0..20).fold(100.0, |threshold, _| adapted(threshold, 2.0, 100.0, gains));
        let (draft, stock) = (after_two_seconds([0.01, 0.000_18]), after_two_seconds([K_UP, K_DOWN]));
        assert!(draft > 70.0 && stock == LEAST, "{draft} {stock}");
    }

    /// Returns the number of groups until overuse is detected. Groups are 20 ms apart, and the delay grows by `growth`
    /// ms from group to group. Smoothing makes the slope smaller than this growth.
    fn groups_until_over(growth: f64) -> Option<u32> {
        let mut line = Trendline::new();
        let step = Span::millis(20);
        let mut at = PeerTime::from_nanos(0);
        (1..400).find(|_| {
            let arrived = Offset::from_secs_f64(0.020 + growth * 1e-3);
            at = PeerTime::from_nanos(at.as_nanos() + arrived.as_nanos());
            line.update(&Delta { sent: step, arrived }, at);
            line.usage == BandwidthUsage::Over
        })
    }

    #[test]
    fn overuse_needs_twenty_points_and_a_slope_above_the_threshold_for_ten_milliseconds() {
        // The delay grows by 10 ms in 20 ms. Overuse is detected one group after there are twenty points, because a
        // single group above the threshold does not count.
        let soon = groups_until_over(10.0);
        assert!(soon.is_some_and(|n| (21..=22).contains(&n)), "{soon:?}");
        // With a slope of 0.01 and sixty groups, the value is 2.4, which is below the minimum threshold.
        assert_eq!(groups_until_over(0.2), None);
        // With a slope of 0.1, the value exceeds the threshold after more groups.
        let later = groups_until_over(2.0);
        assert!(later.is_some_and(|n| (20..=45).contains(&n)), "{later:?}");
    }

    #[test]
    fn the_slope_is_over_arrival_times_and_points_at_one_time_have_none() {
        let points: VecDeque<_> = (0..20).map(|i| (f64::from(i) * 10.0, f64::from(i) * 2.5 + 7.0)).collect();
        assert!((slope(&points).unwrap() - 0.25).abs() < 1e-12);
        assert_eq!(slope(&(0..20).map(|i| (3.0, f64::from(i))).collect()), None);
        // These are the slopes at which the first threshold is reached: 12.5 / (4 · 20) and 12.5 / (4 · 60).
        assert!((12.5 / (4.0 * 20.0) - 0.156_25f64).abs() < 1e-9 && (12.5 / (4.0 * 60.0) - 0.0521f64).abs() < 1e-4);
    }

    #[test]
    fn a_draining_queue_is_underuse_and_a_level_one_is_neither() {
        let mut line = Trendline::new();
        let mut at = 0;
        let mut feed = |line: &mut Trendline, n: usize, gap: i64| {
            for _ in 0..n {
                at += gap;
                line.update(&Delta { sent: Span::millis(20), arrived: Offset::nanos(gap * 1_000_000) }, ms(at));
            }
            line.usage
        };
        assert_eq!(feed(&mut line, 40, 20), BandwidthUsage::Normal);
        assert_eq!(feed(&mut line, 10, 35), BandwidthUsage::Over);
        assert_eq!(feed(&mut line, 30, 10), BandwidthUsage::Under);
        assert_eq!(feed(&mut line, 60, 20), BandwidthUsage::Normal);
    }
}
