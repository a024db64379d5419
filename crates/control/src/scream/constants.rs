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
/// The receiver reports after this many packets (the draft's section on feedback).
pub(super) const REPORT_PACKETS: u32 = 16;
/// It also reports, with a packet at all, after this; and at each frame's last packet.
pub(super) const REPORT_AFTER: Span = Span::millis(40);
/// Without feedback for this, or four round trips, the window is halved and what is in flight is forgotten
/// (EricssonResearch/scream).
pub(super) const SILENCE: Span = Span::millis(500);
/// `MIN_REF_WND`: the least window.
pub(super) const MIN_REF_WND: Bytes = Bytes::new(3_000);
/// `QDELAY_TARGET_HI`: how far competing flows can raise the target.
pub(super) const QDELAY_TARGET_MOST: Span = Span::millis(400);
/// The base delay is the least of so many slots of this length (RFC 6817, 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
pub(super) const BASE_SLOTS: usize = 10;
