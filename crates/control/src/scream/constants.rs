//! Constants of draft-ietf-ccwg-rfc8298bis-screamv2 under the draft's names; other sources are named.

use steadycast_units::{Bytes, Rate, Span};

/// `VIRTUAL_RTT`: below this round-trip time the window grows proportionally more slowly. It is also the minimum
/// interval between reductions.
pub(super) const VIRTUAL_RTT: Span = Span::millis(25);
/// `BETA_LOSS`: the factor of the window after a loss.
pub(super) const BETA_LOSS: f64 = 0.7;
/// `QDELAY_AVG_G`: the gain of the mean queueing delay.
pub(super) const QDELAY_GAIN: f64 = 0.25;
/// `QDELAY_MIN_MAX_AVG_G`: the gain of the minimum and maximum queueing delay.
pub(super) const JITTER_EXTREMES_GAIN: f64 = 1.0 / 16.0;
/// `QDELAY_DEV_AVG_G`: the gain of the mean variation.
pub(super) const JITTER_GAIN: f64 = 1.0 / 32.0;
/// `QDELAY_DEV_THRESHOLD`: from this delay variation on, the window grows most slowly.
pub(super) const JITTER_THRESHOLD: Span = Span::millis(10);
/// `REF_WND_OVERHEAD_MIN`: the maximum bytes in flight, as a multiple of the window, from [`JITTER_THRESHOLD`] on.
pub(super) const OVERHEAD_MIN: f64 = 1.5;
/// `REF_WND_OVERHEAD_MAX`: the maximum bytes in flight, as a multiple of the window, without delay variation.
pub(super) const OVERHEAD_MAX: f64 = 3.0;
/// `PACKET_PACING_HEADROOM`: the pacing rate, as a multiple of the target.
pub(super) const PACING_HEADROOM: f64 = 1.5;
/// `RATE_PACE_MIN`: the minimum target for the pacing.
pub(super) const PACE_MIN: Rate = Rate::kbps(50);
/// `RELAXED_PACING_LIMIT_LOW`: the share of the cap above which pacing is relaxed.
pub(super) const RELAXED_PACING: f64 = 0.8;
/// `MAX_RELAXED_PACING_FACTOR`: the factor of the pacing rate at the cap.
pub(super) const RELAXED_PACING_MOST: f64 = 4.0;
/// `PACKET_OVERHEAD`: the header bytes per packet.
pub(super) const PACKET_OVERHEAD: Bytes = Bytes::new(20);
/// `QDELAY_MIN_AVG_ALPHA`: the gain of the mean of the round trips' minimum queueing delays.
pub(super) const DRIFT_GAIN: f64 = 1.0 / 256.0;
/// The gain of a falling round-trip time while the source is application-limited (EricssonResearch/scream).
pub(super) const RTT_IDLE_GAIN: f64 = 1.0 / 1024.0;
/// The first reordering time: a packet counts as lost this long after a later one was acknowledged
/// (EricssonResearch/scream).
pub(super) const REORDERING: Span = Span::millis(30);
/// The packets after which the receiver reports (the draft's section on feedback).
pub(super) const REPORT_PACKETS: u32 = 16;
/// The maximum time between reports while packets arrive.
pub(super) const REPORT_AFTER: Span = Span::millis(40);
/// The minimum of the no-feedback timeout (EricssonResearch/scream).
pub(super) const LEAST_TIMEOUT: Span = Span::millis(500);
pub(super) const MIN_REF_WND: Bytes = Bytes::new(3_000);
/// `QDELAY_TARGET_HI`: the maximum target with competing flows.
pub(super) const QDELAY_TARGET_MOST: Span = Span::millis(400);
/// The length of a slot in the base delay's window (RFC 6817, section 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
/// The number of slots in the base delay's window.
pub(super) const BASE_SLOTS: usize = 10;
