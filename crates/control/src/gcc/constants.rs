//! What nobody has a reason to set: libwebrtc's values, with the file that has them.

use steadycast_units::Span;

/// The slope of the delay is taken over so many groups of packets (`trendline_estimator.h`).
pub(super) const POINTS: usize = 20;
/// The weight of the old smoothed delay (`trendline_estimator.cc`).
pub(super) const SMOOTHING: f64 = 0.9;
/// The slope, times the groups so far (60 at most), is multiplied with this before it meets the threshold
/// (`trendline_estimator.cc`).
pub(super) const GAIN: f64 = 4.0;
/// The threshold at first (`trendline_estimator.cc`).
pub(super) const THRESHOLD: f64 = 12.5;
/// How long the slope has to be above the threshold (`trendline_estimator.cc`).
pub(super) const OVERUSE: Span = Span::millis(10);
/// v1: up to this fraction of lost packets the rate rises (`send_side_bandwidth_estimation.cc`).
pub(super) const LOW_LOSS: f64 = 0.02;
/// v1: above this fraction of lost packets the rate falls (`send_side_bandwidth_estimation.cc`).
pub(super) const HIGH_LOSS: f64 = 0.1;
/// A round trip, or a silence while sending, that is longer takes a fifth off the rate in each second
/// (`RttBasedBackoff`).
pub(super) const SILENCE: Span = Span::secs(3);
/// The first probe's rate, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const FIRST_PROBE: f64 = 3.0;
/// The second probe's rate, as a multiple of the start rate (`probe_controller.cc`).
pub(super) const SECOND_PROBE: f64 = 6.0;
/// The pushback lets this time in queues be (`rate_control_settings.cc`, `QueueSize`).
pub(super) const QUEUE_TIME: Span = Span::millis(350);
/// The least time between reports; in between 68 bytes at 5 % of the session bandwidth decide
/// (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MIN: Span = Span::millis(50);
/// The longest time between reports while packets come (`transport_sequence_number_feedback_generator.cc`).
pub(super) const FEEDBACK_MAX: Span = Span::millis(250);
