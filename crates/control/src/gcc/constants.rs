//! Constants of libwebrtc, with their source files.

use steadycast_units::{Rate, Span};

/// The packet groups in the regression of the delay (`trendline_estimator.h`).
pub(super) const POINTS: usize = 20;
/// The weight of the old smoothed delay (`trendline_estimator.cc`).
pub(super) const SMOOTHING: f64 = 0.9;
/// Slope × groups so far (60 at most) × this gain is compared with the threshold (`trendline_estimator.cc`).
pub(super) const GAIN: f64 = 4.0;
/// The initial threshold for overuse (`trendline_estimator.cc`).
pub(super) const THRESHOLD: f64 = 12.5;
/// The gain per ms with which the threshold rises to a larger slope (`trendline_estimator.cc`).
/// In draft-ietf-rmcat-gcc-02 it is 0.01.
pub(super) const K_UP: f64 = 0.0087;
/// The gain per ms with which the threshold falls to a smaller slope (`trendline_estimator.cc`).
/// In draft-ietf-rmcat-gcc-02 it is 0.00018, so the threshold hardly falls.
pub(super) const K_DOWN: f64 = 0.039;
/// Overuse lowers the rate to this share of the acknowledged rate (`aimd_rate_control.cc`).
pub(super) const BETA: f64 = 0.85;
/// The growth per second while the capacity is unknown (`aimd_rate_control.cc`).
pub(super) const ETA: f64 = 1.08;
/// The minimum time above the threshold before overuse (`trendline_estimator.cc`).
pub(super) const OVERUSE: Span = Span::millis(10);
/// The maximum loss fraction at which the rate rises (v1, `send_side_bandwidth_estimation.cc`).
pub(super) const LOW_LOSS: f64 = 0.02;
/// The minimum loss fraction at which the rate falls (v1, `send_side_bandwidth_estimation.cc`).
pub(super) const HIGH_LOSS: f64 = 0.1;
/// Above this round-trip time, or time without feedback, the rate falls by a fifth per second (`RttBasedBackoff`).
pub(super) const SILENCE: Span = Span::secs(3);
/// The first probe, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const FIRST_PROBE: f64 = 3.0;
/// The second probe, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const SECOND_PROBE: f64 = 6.0;
/// The maximum probe rate (`probe_controller.cc`).
pub(super) const MOST_PROBE: Rate = Rate::mbps(5);
/// The queueing time for which the window of `CongestionWindowPushback` has room (`rate_control_settings.cc`,
/// `QueueSize`).
pub(super) const QUEUE_TIME: Span = Span::millis(350);
/// The minimum report interval (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MIN: Span = Span::millis(50);
/// The maximum report interval while packets arrive (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MAX: Span = Span::millis(250);
