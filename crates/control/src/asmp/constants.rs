//! What nobody has a reason to set, and the rules in which the printed form and the repaired one differ.

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

/// The rules in which the modes differ. `docs/controllers/asmp.md` has the reasons.
#[derive(Debug)]
pub(super) struct Rules {
    /// A rate rises by at most P/RTT per report with loss, too (ASMP, eq. 13, where the text promises it).
    pub(super) clamp_increase: bool,
    /// A rate is at most P/RTT above what is sent or received.
    pub(super) recv_clamp: bool,
    /// The state is congested when both means of the delay are equal: eq. 18 prints so, its text (3.7) does not.
    pub(super) ci_equal_is_congested: bool,
    /// The long mean of the delay reaches this far back; zero: to the start (ASMP, 3.7).
    pub(super) ci_long_window: Span,
    /// The delay is counted from the sampling of a frame (ASMP, 3.4) and not from its sending.
    pub(super) ci_sampled: bool,
    /// The drift between the clocks is taken out of the delay.
    pub(super) drift: bool,
    /// The one-way delay's change is added to the round-trip time, which eq. 6 to 10 multiply with it.
    pub(super) additive: bool,
    /// A new receiver's rate is what is sent now, and not `initial_rate` (ASMP, 5.4.1).
    pub(super) init_announced: bool,
    /// A rate more than 2 % above a receiver's own never suppresses it.
    pub(super) suppress_by_lower: bool,
    /// Silence lowers the rate; the paper has no such timer.
    pub(super) no_feedback: bool,
}

/// The default.
pub(super) const REPAIRED: Rules = Rules {
    clamp_increase: true,
    recv_clamp: true,
    ci_equal_is_congested: false,
    ci_long_window: Span::secs(60),
    ci_sampled: false,
    drift: true,
    additive: true,
    init_announced: true,
    suppress_by_lower: true,
    no_feedback: true,
};

/// As printed.
pub(super) const PAPER: Rules = Rules {
    clamp_increase: false,
    recv_clamp: false,
    ci_equal_is_congested: true,
    ci_long_window: Span::ZERO,
    ci_sampled: true,
    drift: false,
    additive: false,
    init_announced: false,
    suppress_by_lower: false,
    no_feedback: false,
};
