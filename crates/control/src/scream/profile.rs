use steadycast_units::Span;

/// The differences between the draft and its authors' code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Profile {
    /// `QDELAY_TARGET_LO`: the minimum queueing delay target.
    pub(super) qdelay_target: Span,
    /// `BETA_ECN`: the factor of the window after a classic mark.
    pub(super) beta_ecn: f64,
    /// `MUL_INCREASE_FACTOR`: the window's growth per round trip, as a share of itself.
    pub(super) mul_increase: f64,
    /// `REDUCE_JITTER`: whether growth slows down with delay variation.
    pub(super) reduce_jitter: bool,
    /// Whether the delay variation is measured from every packet; otherwise from the newest packet of each report.
    pub(super) every_packet: bool,
    /// The cap on the delay variation, in seconds. A larger variation slows growth no further.
    pub(super) jitter_most: f64,
    /// `BYTES_IN_FLIGHT_HEAD_ROOM`: the maximum window, as a multiple of the maximum bytes in flight.
    pub(super) head_room: f64,
    /// `POST_CONGESTION_DELAY_RTTS`: the round trips after congestion until growth is at its full rate.
    pub(super) post_congestion: f64,
    /// Whether a reduction by delay counts as congestion in `post_congestion`.
    pub(super) delay_congests: bool,
    /// The minimum interval between reductions, in seconds, if longer than `VIRTUAL_RTT`.
    pub(super) cut_interval: f64,
    /// Whether a reduction by delay is divided twice by the number of reductions per round trip.
    pub(super) divided_twice: bool,
    /// Below this ratio of the target to the receive rate, reductions by delay and L4S marks are quartered.
    pub(super) spare_below: f64,
    /// Up to this mean loss rate, losses reduce the window only if the queue exceeds a quarter of the target.
    pub(super) loss_ignored: f64,
    /// Whether the round-trip time is smoothed twice.
    pub(super) rtt_twice: bool,
    /// The time added to the round-trip time when the rate is computed, in seconds.
    pub(super) rtt_more: f64,
    /// The round trips over whose minima the bias of the queueing delay is computed.
    pub(super) bias_rounds: u32,
    /// The divisor of the target.
    pub(super) rate_divisor: f64,
    /// `RATE_ADJUST_GAIN`: the gain with which queued frames lower the target.
    pub(super) rate_adjust_gain: f64,
    /// The queueing time, in frame periods, up to which queued frames do not lower the target.
    pub(super) queue_goal: f64,
    /// `FRAME_SIZE_DEV_ALPHA`: the gain of the frames' mean excess over their nominal size.
    pub(super) frame_size_gain: f64,
}

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

/// The defaults of EricssonResearch/scream, `ScreamV2Tx.cpp`.
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
    // ScreamV2Tx.cpp multiplies the divisor 1.1 by 1 + adjust, and its gain is 1/40. Here adjust is added to the
    // divisor.
    rate_adjust_gain: 1.1 / 40.0,
    queue_goal: 0.5,
    frame_size_gain: 0.0,
};
