//! What nobody has a reason to set, of draft-ietf-ccwg-rfc8298bis-screamv2 where nothing else is said, under its names.

use steadycast_units::{Bytes, Rate, Span};

/// `QDELAY_AVG_G`: the gain of the queueing delay's mean.
pub(super) const QDELAY_GAIN: f64 = 0.25;
/// `QDELAY_MIN_MAX_AVG_G`: the gain of the least and the greatest queueing delay, whose difference is the variation.
pub(super) const JITTER_EXTREMES_GAIN: f64 = 1.0 / 16.0;
/// `QDELAY_DEV_AVG_G`: the gain of the mean variation.
pub(super) const JITTER_GAIN: f64 = 1.0 / 32.0;
/// `QDELAY_DEV_THRESHOLD`: the variation of delay at which growth is least.
pub(super) const JITTER_THRESHOLD: Span = Span::millis(10);
/// `REF_WND_OVERHEAD_MIN`: bytes in flight may exceed the window by this factor where the delay varies.
pub(super) const OVERHEAD_MIN: f64 = 1.5;
/// `REF_WND_OVERHEAD_MAX`: they may by this one where it does not.
pub(super) const OVERHEAD_MAX: f64 = 3.0;
/// `PACKET_PACING_HEADROOM`: packets leave at this many times the target.
pub(super) const PACING_HEADROOM: f64 = 1.5;
/// `RATE_PACE_MIN`: pacing assumes this target at least.
pub(super) const PACE_MIN: Rate = Rate::kbps(50);
/// `RELAXED_PACING_LIMIT_LOW`: from this share of the cap on packets leave faster still.
pub(super) const RELAXED_PACING: f64 = 0.8;
/// `MAX_RELAXED_PACING_FACTOR`: packets leave this many times faster at the cap.
pub(super) const RELAXED_PACING_MOST: f64 = 4.0;
/// `PACKET_OVERHEAD`: bytes per packet that the target leaves free.
pub(super) const PACKET_OVERHEAD: Bytes = Bytes::new(20);
/// `QDELAY_MIN_AVG_ALPHA`: the gain of the mean of a round trip's least queueing delay; above a quarter of the target
/// the queue is drained.
pub(super) const DRIFT_GAIN: f64 = 1.0 / 256.0;
/// The gain of the round-trip time while it falls and the source limits the rate (EricssonResearch/scream).
pub(super) const RTT_IDLE_GAIN: f64 = 1.0 / 1024.0;
/// A packet is lost this long after a later one was acknowledged; a late packet makes it as long as it was late
/// (EricssonResearch/scream).
pub(super) const REORDERING: Span = Span::millis(30);
/// `LOSS_RATE_THRESHOLD_POLICER`: the mean loss above which a policer is assumed.
pub(super) const POLICER_LOSS: f64 = 0.1;
/// `BETA_LOSS_POLICER`: what a policer leaves of the window.
pub(super) const POLICER_LEAVES: f64 = 0.9;
/// `ACKED_BITRATE_MARGIN`: a target below this share of what arrives is low.
pub(super) const SPARE_BELOW: f64 = 0.8;
/// `BACKOFF_SCALE_LOW_TARGET_RATE`: the share of a cut that is made while the target is low.
pub(super) const SPARE_BY: f64 = 0.25;
/// The receiver reports after this many packets (the draft's section on feedback).
pub(super) const REPORT_PACKETS: u32 = 16;
/// It also reports, with a packet at all, after this; and at each frame's last packet.
pub(super) const REPORT_AFTER: Span = Span::millis(40);
/// Without feedback for this, or four round trips, the window is halved and what is in flight is forgotten
/// (EricssonResearch/scream).
pub(super) const SILENCE: Span = Span::millis(500);
/// `MIN_REF_WND`: the least window.
pub(super) const MIN_REF_WND: Bytes = Bytes::new(3_000);
/// The reference code's least window, in packets.
pub(super) const CODE_MIN_REF_WND_PACKETS: f64 = 2.0;
/// The reference code's least time between two cuts.
pub(super) const CODE_CUT_INTERVAL: Span = Span::millis(30);

/// The constants in which the draft and the reference code differ.
#[derive(Debug)]
pub(super) struct Profile {
    /// `QDELAY_TARGET_LO`.
    pub(super) qdelay_target: Span,
    /// `QDELAY_TARGET_HI`: how far competing flows can raise it.
    pub(super) qdelay_target_max: Span,
    /// `BYTES_IN_FLIGHT_HEAD_ROOM`: how many times the most bytes in flight the window can have.
    pub(super) head_room: f64,
    /// `BETA_ECN`.
    pub(super) beta_ecn: f64,
    /// `POST_CONGESTION_DELAY_RTTS`: round trips after congestion until the window grows by its whole share again.
    pub(super) post_congestion: f64,
    /// `MUL_INCREASE_FACTOR`.
    pub(super) mul_increase: f64,
    /// `l4s_alpha` at first.
    pub(super) alpha_start: f64,
    /// The target is this much below what the window carries.
    pub(super) rate_divisor: f64,
    /// `RATE_ADJUST_GAIN`: the gain by which a waiting frame lowers the target.
    pub(super) rate_adjust_gain: f64,
    /// How long a frame may wait, in frame periods, without lowering the target.
    pub(super) queue_goal: f64,
    /// `FRAME_SIZE_DEV_ALPHA`: the gain of the mean by which frames exceed their nominal size.
    pub(super) frame_size_gain: f64,
    /// The base delay is the least of slots of this length (RFC 6817, 3.4.2).
    pub(super) base_slot: Span,
    /// How many slots (RFC 6817, 3.4.2).
    pub(super) base_slots: usize,
    /// `LOSS_RATE_THRESHOLD`: a mean loss up to which losses cut only with a queue above a quarter of the target; 0:
    /// all cut.
    pub(super) loss_ignored: f64,
}

/// draft-ietf-ccwg-rfc8298bis-screamv2.
pub(super) const DRAFT: Profile = Profile {
    qdelay_target: Span::millis(60),
    qdelay_target_max: Span::millis(400),
    head_room: 1.5,
    beta_ecn: 0.8,
    post_congestion: 100.0,
    mul_increase: 0.02,
    alpha_start: 0.0,
    rate_divisor: 1.2,
    rate_adjust_gain: 1.0 / 16.0,
    queue_goal: 0.25,
    frame_size_gain: 1.0 / 64.0,
    base_slot: Span::secs(60),
    base_slots: 10,
    loss_ignored: 0.0,
};

/// `EricssonResearch/scream`, `ScreamV2Tx.cpp`.
pub(super) const CODE: Profile = Profile {
    qdelay_target: Span::millis(100),
    qdelay_target_max: Span::millis(300),
    head_room: 2.0,
    beta_ecn: 0.9,
    post_congestion: 200.0,
    mul_increase: 0.05,
    alpha_start: 0.1,
    rate_divisor: 1.1,
    rate_adjust_gain: 1.0 / 40.0,
    queue_goal: 0.5,
    frame_size_gain: 0.0,
    base_slot: Span::secs(10),
    base_slots: 50,
    loss_ignored: 0.01,
};
