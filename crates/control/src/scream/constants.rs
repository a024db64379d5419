//! Constants with the names of draft-ietf-ccwg-rfc8298bis-screamv2. A constant with another source says so.

use steadycast_units::{Bytes, Rate, Span};

/// `VIRTUAL_RTT`: at shorter round-trip times, the window grows proportionally more slowly. This is also the minimum
/// interval between reductions.
pub(super) const VIRTUAL_RTT: Span = Span::millis(25);
/// `BETA_LOSS`: a loss multiplies the window by this factor.
pub(super) const BETA_LOSS: f64 = 0.7;
/// `QDELAY_AVG_G`: weight of a new sample in the mean queueing delay.
pub(super) const QDELAY_GAIN: f64 = 0.25;
/// `QDELAY_MIN_MAX_AVG_G`: fraction by which the maximum queueing delay falls per update, and by which the minimum
/// approaches the maximum.
pub(super) const JITTER_EXTREMES_GAIN: f64 = 1.0 / 16.0;
/// `QDELAY_DEV_AVG_G`: weight of a new sample in the mean delay variation.
pub(super) const JITTER_GAIN: f64 = 1.0 / 32.0;
/// `QDELAY_DEV_THRESHOLD`: a delay variation of this or more slows the growth of the window the most.
pub(super) const JITTER_THRESHOLD: Span = Span::millis(10);
/// `REF_WND_OVERHEAD_MIN`: maximum bytes in flight, as a multiple of the window, while the delay variation is at least
/// [`JITTER_THRESHOLD`].
pub(super) const OVERHEAD_MIN: f64 = 1.5;
/// `REF_WND_OVERHEAD_MAX`: maximum bytes in flight, as a multiple of the window, while the delay does not vary.
pub(super) const OVERHEAD_MAX: f64 = 3.0;
/// `PACKET_PACING_HEADROOM`: ratio of the pacing rate to the target rate.
pub(super) const PACING_HEADROOM: f64 = 1.5;
/// `RATE_PACE_MIN`: the pacing rate is computed from a target of at least this rate.
pub(super) const PACE_MIN: Rate = Rate::kbps(50);
/// `RELAXED_PACING_LIMIT_LOW`: if the target is above this fraction of the maximum rate, packets are paced faster.
pub(super) const RELAXED_PACING: f64 = 0.8;
/// `MAX_RELAXED_PACING_FACTOR`: the pacing rate is multiplied by up to this factor near the maximum rate.
pub(super) const RELAXED_PACING_MOST: f64 = 4.0;
/// `PACKET_OVERHEAD`: number of header bytes per packet.
pub(super) const PACKET_OVERHEAD: Bytes = Bytes::new(20);
/// `QDELAY_MIN_AVG_ALPHA`: the minimum queueing delays of the round trips are averaged. This is the weight of a new
/// minimum.
pub(super) const DRIFT_GAIN: f64 = 1.0 / 256.0;
/// Weight of a new round-trip time in the smoothed one, if it is shorter and the source is application-limited
/// (EricssonResearch/scream).
pub(super) const RTT_IDLE_GAIN: f64 = 1.0 / 1024.0;
/// Initial reordering time. A packet counts as lost this long after a later packet was acknowledged
/// (EricssonResearch/scream).
pub(super) const REORDERING: Span = Span::millis(30);
/// The receiver reports after this number of packets (the draft's section on feedback).
pub(super) const REPORT_PACKETS: u32 = 16;
/// Maximum time between two reports while packets arrive.
pub(super) const REPORT_AFTER: Span = Span::millis(40);
/// Minimum no-feedback timeout (EricssonResearch/scream).
pub(super) const LEAST_TIMEOUT: Span = Span::millis(500);
pub(super) const MIN_REF_WND: Bytes = Bytes::new(3_000);
/// `QDELAY_TARGET_HI`: maximum queueing delay target while other flows compete.
pub(super) const QDELAY_TARGET_MOST: Span = Span::millis(400);
/// Duration of a slot. The base delay is the minimum over [`BASE_SLOTS`] slots (RFC 6817, section 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
/// Number of slots over which the base delay is the minimum.
pub(super) const BASE_SLOTS: usize = 10;
