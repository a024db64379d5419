//! Constants that can't be configured.

use steadycast_units::Span;

/// The assumed round-trip time before the sender has announced one. The paper gives no value.
pub(super) const INITIAL_RTT: Span = Span::millis(500);
/// The queueing delay that ends the start phase. The paper has no start phase.
pub(super) const RAMP_DELAY: Span = Span::millis(20);
/// The share of the lowest rates that `agg = "quantile"` ignores. It is not in the paper.
pub(super) const AGG_SHARE: f64 = 0.02;
/// If two receivers' rates differ by at most this share, the report of one receiver suppresses that of the other (ASMP,
/// 3.8).
pub(super) const SIMILARITY: f64 = 0.02;
/// The minimum interval between two reports outside the start phase (ASMP, 5.4.1). The sender uses it in its timeouts.
pub(super) const LEAST_INTERVAL: Span = Span::secs(1);
/// The window of the long mean delay. The paper's mean covers the whole session (ASMP, 3.7).
pub(super) const LONG_MEAN: Span = Span::secs(60);
