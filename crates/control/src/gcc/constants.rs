//! Constants of libwebrtc that are not configurable, with their source files.

use steadycast_units::{Rate, Span};

/// The number of packet groups in the regression of the delay (`trendline_estimator.h`).
pub(super) const POINTS: usize = 20;
/// The weight of the previous value in the smoothed delay (`trendline_estimator.cc`).
pub(super) const SMOOTHING: f64 = 0.9;
/// The gain of the slope. The slope, times the number of groups so far (60 at most), times this gain is compared with
/// the threshold (`trendline_estimator.cc`).
pub(super) const GAIN: f64 = 4.0;
/// The initial threshold for overuse (`trendline_estimator.cc`).
pub(super) const THRESHOLD: f64 = 12.5;
/// The gain, per millisecond, with which the threshold follows a slope above it (`trendline_estimator.cc`). The draft's
/// value, 0.01, belongs to its Kalman filter. With a trend line and that value, the threshold would hardly ever
/// decrease again.
pub(super) const K_UP: f64 = 0.0087;
/// The gain, per millisecond, with which the threshold follows a slope below it (`trendline_estimator.cc`; the draft:
/// 0.00018).
pub(super) const K_DOWN: f64 = 0.039;
/// The share of the acknowledged rate to which overuse lowers the rate (`aimd_rate_control.cc`).
pub(super) const BETA: f64 = 0.85;
/// The factor by which the rate grows per second while the capacity is unknown (`aimd_rate_control.cc`).
pub(super) const ETA: f64 = 1.08;
/// The minimum time above the threshold before overuse is signalled (`trendline_estimator.cc`).
pub(super) const OVERUSE: Span = Span::millis(10);
/// Loss-based estimate v1: the maximum loss fraction at which the rate rises (`send_side_bandwidth_estimation.cc`).
pub(super) const LOW_LOSS: f64 = 0.02;
/// Loss-based estimate v1: the minimum loss fraction at which the rate falls (`send_side_bandwidth_estimation.cc`).
pub(super) const HIGH_LOSS: f64 = 0.1;
/// The maximum round-trip time, or time without feedback while sending. If it is exceeded, the rate falls by a fifth
/// per second (`RttBasedBackoff`).
pub(super) const SILENCE: Span = Span::secs(3);
/// The first probe's rate, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const FIRST_PROBE: f64 = 3.0;
/// The second probe's rate, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const SECOND_PROBE: f64 = 6.0;
/// The maximum rate of a probe (`probe_controller.cc`).
pub(super) const MOST_PROBE: Rate = Rate::mbps(5);
/// The queueing time that the pushback tolerates (`rate_control_settings.cc`, `QueueSize`).
pub(super) const QUEUE_TIME: Span = Span::millis(350);
/// The minimum interval between reports. Between this minimum and the maximum, the interval is such that reports of 68
/// bytes take 5 % of the session bandwidth (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MIN: Span = Span::millis(50);
/// The maximum interval between reports while packets arrive (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MAX: Span = Span::millis(250);
