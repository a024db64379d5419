//! Constants from libwebrtc. Each comment says which source file the value is from.

use steadycast_units::{Rate, Span};

/// Number of packet groups in the regression of the delay (`trendline_estimator.h`).
pub(super) const POINTS: usize = 20;
/// Weight of the old value when the delay is smoothed (`trendline_estimator.cc`).
pub(super) const SMOOTHING: f64 = 0.9;
/// Gain of the slope that is compared with the threshold. The slope is multiplied by this gain and by the number of
/// groups so far, 60 at most (`trendline_estimator.cc`).
pub(super) const GAIN: f64 = 4.0;
/// Initial threshold for the detection of overuse (`trendline_estimator.cc`).
pub(super) const THRESHOLD: f64 = 12.5;
/// Gain per ms with which the threshold rises towards a larger slope (`trendline_estimator.cc`). It is 0.01 in
/// draft-ietf-rmcat-gcc-02.
pub(super) const K_UP: f64 = 0.0087;
/// Gain per ms with which the threshold falls towards a smaller slope (`trendline_estimator.cc`). It is 0.00018 in
/// draft-ietf-rmcat-gcc-02, where the threshold hardly falls.
pub(super) const K_DOWN: f64 = 0.039;
/// At overuse, the rate is reduced to this share of the acknowledged rate (`aimd_rate_control.cc`).
pub(super) const BETA: f64 = 0.85;
/// Factor by which the rate grows per second while the capacity is unknown (`aimd_rate_control.cc`).
pub(super) const ETA: f64 = 1.08;
/// Minimum time for which the slope has to exceed the threshold until overuse is detected (`trendline_estimator.cc`).
pub(super) const OVERUSE: Span = Span::millis(10);
/// Highest fraction of lost packets at which the rate rises (v1, `send_side_bandwidth_estimation.cc`).
pub(super) const LOW_LOSS: f64 = 0.02;
/// Fraction of lost packets above which the rate falls (v1, `send_side_bandwidth_estimation.cc`).
pub(super) const HIGH_LOSS: f64 = 0.1;
/// If the round-trip time plus the time without feedback exceeds this, the rate falls by a fifth per second
/// (`RttBasedBackoff`).
pub(super) const SILENCE: Span = Span::secs(3);
/// Rate of the first probe, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const FIRST_PROBE: f64 = 3.0;
/// Rate of the second probe, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const SECOND_PROBE: f64 = 6.0;
/// Maximum rate of a probe (`probe_controller.cc`).
pub(super) const MOST_PROBE: Rate = Rate::mbps(5);
/// Queueing delay that the window of `CongestionWindowPushback` allows (`rate_control_settings.cc`, `QueueSize`).
pub(super) const QUEUE_TIME: Span = Span::millis(350);
/// Minimum interval between reports (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MIN: Span = Span::millis(50);
/// Maximum interval between reports while packets arrive (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MAX: Span = Span::millis(250);
