//! What nobody has a reason to set.

use steadycast_units::Span;

/// The round-trip time until the sender has announced one; the paper has none.
pub(super) const INITIAL_RTT: Span = Span::millis(500);
/// The queueing delay that ends the start phase; the paper has no such phase.
pub(super) const RAMP_DELAY: Span = Span::millis(20);
/// The share of the lowest rates that `agg = "quantile"` skips; not in the paper.
pub(super) const AGG_SHARE: f64 = 0.02;
/// The time between two reports at least, the start phase apart (ASMP, 5.4.1); the sender assumes it for silence and
/// ageing.
pub(super) const LEAST_INTERVAL: Span = Span::secs(1);
/// The long mean of the delay reaches this far back; as printed, to the start (ASMP, 3.7).
pub(super) const LONG_MEAN: Span = Span::secs(60);
