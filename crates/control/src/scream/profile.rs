use steadycast_units::Span;

/// The rules and values in which the draft differs from its authors' code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Profile {
    /// `QDELAY_TARGET_LO`: minimum queueing delay target.
    pub(super) qdelay_target: Span,
    /// `BETA_ECN`: a classic ECN mark multiplies the window by this factor.
    pub(super) beta_ecn: f64,
    /// `MUL_INCREASE_FACTOR`: relative growth of the window per round trip.
    pub(super) mul_increase: f64,
    /// `REDUCE_JITTER`: whether the window grows more slowly while the delay varies.
    pub(super) reduce_jitter: bool,
    /// Whether the delay variation is measured from every packet. Otherwise it is measured from the newest packet of
    /// each report.
    pub(super) every_packet: bool,
    /// Upper limit of the delay variation, in seconds. A larger variation slows the growth no further.
    pub(super) jitter_most: f64,
    /// `BYTES_IN_FLIGHT_HEAD_ROOM`: the window grows to at most this multiple of the maximum bytes in flight.
    pub(super) head_room: f64,
    /// `POST_CONGESTION_DELAY_RTTS`: number of round trips after congestion until the window grows at its full rate.
    pub(super) post_congestion: f64,
    /// Whether a reduction because of delay counts as congestion, too, and restarts `post_congestion`.
    pub(super) delay_congests: bool,
    /// Minimum interval between reductions, in seconds. Ignored if it is shorter than `VIRTUAL_RTT`.
    pub(super) cut_interval: f64,
    /// Whether a reduction because of delay is divided twice by the number of reductions per round trip.
    pub(super) divided_twice: bool,
    /// If the ratio of the target to the receive rate is below this, reductions because of delay or L4S marks are
    /// quartered.
    pub(super) spare_below: f64,
    /// At mean loss rates below this, losses reduce the window only if the queueing delay exceeds a quarter of the
    /// target.
    pub(super) loss_ignored: f64,
    /// Whether the round-trip time is smoothed twice.
    pub(super) rtt_twice: bool,
    /// Time in seconds that is added to the round-trip time when the rate is computed.
    pub(super) rtt_more: f64,
    /// Number of round trips after which the bias of the queueing delay is updated.
    pub(super) bias_rounds: u32,
    /// The target rate is divided by this number.
    pub(super) rate_divisor: f64,
    /// `RATE_ADJUST_GAIN`: how strongly frames in the pacer's queue lower the target.
    pub(super) rate_adjust_gain: f64,
    /// Queueing time in frame periods. Frames that have waited no longer than this do not lower the target.
    pub(super) queue_goal: f64,
    /// `FRAME_SIZE_DEV_ALPHA`: the relative excess of frames over their nominal size is averaged. This is the weight of
    /// a new frame.
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
    // ScreamV2Tx.cpp multiplies the divisor 1.1 by 1 + adjust, with a gain of 1/40. Here adjust is added to the
    // divisor, so scale the gain by 1.1.
    rate_adjust_gain: 1.1 / 40.0,
    queue_goal: 0.5,
    frame_size_gain: 0.0,
};
