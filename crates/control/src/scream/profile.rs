use steadycast_units::Span;

/// All in which the draft and its authors' code differ here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Profile {
    /// `QDELAY_TARGET_LO`.
    pub(super) qdelay_target: Span,
    /// `BETA_ECN`.
    pub(super) beta_ecn: f64,
    /// `MUL_INCREASE_FACTOR`.
    pub(super) mul_increase: f64,
    /// `REDUCE_JITTER`, whether set or not; over every packet's delay, not only each report's newest; and the most that
    /// the variation counts, in seconds.
    pub(super) reduce_jitter: bool,
    pub(super) every_packet: bool,
    pub(super) jitter_most: f64,
    /// `BYTES_IN_FLIGHT_HEAD_ROOM`: how many times the most bytes in flight the window can have.
    pub(super) head_room: f64,
    /// `POST_CONGESTION_DELAY_RTTS`: round trips after congestion until the window grows by its whole share again; and
    /// whether a cut by delay is congestion.
    pub(super) post_congestion: f64,
    pub(super) delay_congests: bool,
    /// The least time between two cuts, where `virtual_rtt` is shorter, in seconds.
    pub(super) cut_interval: f64,
    /// A cut by delay is divided twice by the round trip over the time between cuts.
    pub(super) divided_twice: bool,
    /// A target below this share of what arrives makes cuts by delay and L4S marks a quarter.
    pub(super) spare_below: f64,
    /// A mean loss up to which losses cut only with a queue above a quarter of the target.
    pub(super) loss_ignored: f64,
    /// The round-trip time is a mean of its mean, once per round trip; and the rate's is this much longer, in seconds.
    pub(super) rtt_twice: bool,
    pub(super) rtt_more: f64,
    /// The delay is counted from a mean of its minima over this many round trips.
    pub(super) bias_rounds: u32,
    /// The target is this much below what the window carries.
    pub(super) rate_divisor: f64,
    /// `RATE_ADJUST_GAIN`: the gain by which a waiting frame lowers the target; and how long it may wait, in frame
    /// periods, without.
    pub(super) rate_adjust_gain: f64,
    pub(super) queue_goal: f64,
    /// `FRAME_SIZE_DEV_ALPHA`: the gain of the mean by which frames exceed their nominal size.
    pub(super) frame_size_gain: f64,
}

/// draft-ietf-ccwg-rfc8298bis-screamv2.
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

/// EricssonResearch/scream, `ScreamV2Tx.cpp`, with its defaults. Its divisor is a factor of the adjustment, too.
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
