use steadycast_units::Span;

/// The differences between the draft and its authors' code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Profile {
    /// `QDELAY_TARGET_LO`: the minimum of the queueing delay target.
    pub(super) qdelay_target: Span,
    /// `BETA_ECN`: the factor by which a mark without L4S multiplies the window.
    pub(super) beta_ecn: f64,
    /// `MUL_INCREASE_FACTOR`: the share of itself by which the window grows per round trip.
    pub(super) mul_increase: f64,
    /// `REDUCE_JITTER`: whether growth always slows down with delay variation. The second value is whether the
    /// variation covers every packet or only the newest of each report, and the third is the maximum of the variation
    /// in seconds.
    pub(super) reduce_jitter: bool,
    pub(super) every_packet: bool,
    pub(super) jitter_most: f64,
    /// `BYTES_IN_FLIGHT_HEAD_ROOM`: the maximum window, as a multiple of the maximum bytes in flight.
    pub(super) head_room: f64,
    /// `POST_CONGESTION_DELAY_RTTS`: the time after congestion, in round trips, until the window grows at its full rate
    /// again. The second value is whether a reduction by delay counts as congestion.
    pub(super) post_congestion: f64,
    pub(super) delay_congests: bool,
    /// The minimum interval between two reductions, in seconds. If `VIRTUAL_RTT` is longer, it is used instead.
    pub(super) cut_interval: f64,
    /// Reductions by delay are divided by the ratio of the round-trip time to the interval between reductions. This is
    /// true if the division is applied twice.
    pub(super) divided_twice: bool,
    /// The ratio of the target to the receive rate below which reductions by delay and L4S marks are quartered.
    pub(super) spare_below: f64,
    /// The mean loss rate up to which losses only reduce the window if the queue exceeds a quarter of the target.
    pub(super) loss_ignored: f64,
    /// Whether the round-trip time is smoothed twice, once per round trip. The second value, in seconds, is added to
    /// the round-trip time when the rate is computed.
    pub(super) rtt_twice: bool,
    pub(super) rtt_more: f64,
    /// The number of round trips over whose minima the bias of the queueing delay is computed.
    pub(super) bias_rounds: u32,
    /// The divisor that lowers the target below the window's rate.
    pub(super) rate_divisor: f64,
    /// `RATE_ADJUST_GAIN`: the gain with which a queued frame lowers the target. The second value is the queueing time,
    /// in frame periods, that has no effect.
    pub(super) rate_adjust_gain: f64,
    pub(super) queue_goal: f64,
    /// `FRAME_SIZE_DEV_ALPHA`: the gain of the mean excess of frames over their nominal size.
    pub(super) frame_size_gain: f64,
}

/// The values of draft-ietf-ccwg-rfc8298bis-screamv2.
pub(super) const DRAFT: Profile = Profile {
    qdelay_target: Span::millis(60),
    beta_ecn: 0.8,
    mul_increase: 0.02,
    reduce_jitter: false,
    every_packet: false,
    jitter_most: f64::INFINITY,
    head_room: 1.5,
    post_congestion: 100.0,
    delay_congests: false,
    cut_interval: 0.0,
    divided_twice: false,
    spare_below: 0.0,
    loss_ignored: 0.0,
    rtt_twice: false,
    rtt_more: 0.0,
    bias_rounds: u32::MAX,
    rate_divisor: 1.2,
    rate_adjust_gain: 1.0 / 16.0,
    queue_goal: 0.25,
    frame_size_gain: 1.0 / 64.0,
};

/// The defaults of EricssonResearch/scream, `ScreamV2Tx.cpp`. Its rate divisor also scales the adjustment by queued
/// frames.
pub(super) const CODE: Profile = Profile {
    qdelay_target: Span::millis(100),
    beta_ecn: 0.9,
    mul_increase: 0.05,
    reduce_jitter: true,
    every_packet: true,
    jitter_most: 0.02,
    head_room: 2.0,
    post_congestion: 200.0,
    delay_congests: true,
    cut_interval: 0.03,
    divided_twice: true,
    spare_below: 0.8,
    loss_ignored: 0.01,
    rtt_twice: true,
    rtt_more: 0.001,
    bias_rounds: 100,
    rate_divisor: 1.1,
    rate_adjust_gain: 1.1 / 40.0,
    queue_goal: 0.5,
    frame_size_gain: 0.0,
};
