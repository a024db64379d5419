use steadycast_units::Span;

/// The assumed round-trip time before the sender announces one; the paper gives none.
pub(super) const INITIAL_RTT: Span = Span::millis(500);
/// The queueing delay that ends the start phase. The paper has no start phase.
pub(super) const RAMP_DELAY: Span = Span::millis(20);
/// The share of the lowest rates that `agg = "quantile"` ignores; not in the paper.
pub(super) const AGG_SHARE: f64 = 0.02;
/// The maximum relative difference of rates at which a report suppresses another (ASMP, 3.8).
pub(super) const SIMILARITY: f64 = 0.02;
/// The minimum report interval after the start phase (ASMP, 5.4.1).
pub(super) const LEAST_INTERVAL: Span = Span::secs(1);
/// The window of the long mean delay; the paper has the whole session (ASMP, 3.7).
pub(super) const LONG_MEAN: Span = Span::secs(60);
