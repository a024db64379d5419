use steadycast_units::Span;

/// Round-trip time that a receiver assumes before the sender announces one. The paper gives no value.
pub(super) const INITIAL_RTT: Span = Span::millis(500);
/// Queueing delay that ends the start phase. The paper has no start phase.
pub(super) const RAMP_DELAY: Span = Span::millis(20);
/// With `agg = "quantile"`, this share of the receivers' rates is ignored, beginning with the lowest rate. The paper
/// does not have this rule.
pub(super) const AGG_SHARE: f64 = 0.02;
/// Maximum relative difference between two reported rates at which one report suppresses the other (ASMP, 3.8).
pub(super) const SIMILARITY: f64 = 0.02;
/// Minimum interval between reports after the start phase (ASMP, 5.4.1).
pub(super) const LEAST_INTERVAL: Span = Span::secs(1);
/// Window over which the long mean of the delay is computed. In the paper, it is the whole session (ASMP, 3.7).
pub(super) const LONG_MEAN: Span = Span::secs(60);
