//! What nobody has a reason to set, of RFC 8698 where nothing else is said, under its names.

use steadycast_units::{Rate, Span};

/// LOGWIN: rate, loss and marks are counted over this.
pub(super) const LOG_WINDOW: Span = Span::millis(500);
/// QEPS: the queueing delay that ends the ramp-up.
pub(super) const Q_EPS: Span = Span::millis(10);
/// DFILT: what the delay filter adds to the round trip.
pub(super) const D_FILT: Span = Span::millis(120);
/// QBOUND: the queue that a ramp-up may build.
pub(super) const Q_BOUND: Span = Span::millis(50);
/// MULTILOSS: loss intervals without a loss until delay is taken at its face again.
pub(super) const MULTI_LOSS: f64 = 7.0;
/// QTH: beside losses a delay above this counts less, the more it is.
pub(super) const Q_TH: Span = Span::millis(50);
/// LAMBDA: how much less a delay above QTH counts.
pub(super) const LAMBDA: f64 = 0.5;
/// PLRREF: the loss that counts as `d_loss`.
pub(super) const PLR_REF: f64 = 0.01;
/// PMRREF: the share of marks that counts as `d_mark`.
pub(super) const PMR_REF: f64 = 0.01;
/// ALPHA: the gain of the means of loss and marks.
pub(super) const ALPHA: f64 = 0.1;
/// FPS: frames per second.
pub(super) const FPS: f64 = 30.0;
/// `BETA_V`: how much a waiting queue lowers the encoder's rate.
pub(super) const BETA_V: f64 = 0.1;
/// `BETA_S`: how much a waiting queue raises the sending rate.
pub(super) const BETA_S: f64 = 0.1;
/// The signal's greatest value (ns3-rmcat); as printed it is what 15 bits hold (5.3).
pub(super) const X_MAX: Span = Span::millis(500);
/// The least counts of the queueing delays of so many packets (5.1.1).
pub(super) const FILTER: usize = 15;
/// Without a report for this, or two intervals and a round trip, the rate is halved; the RFC has no such timer.
pub(super) const SILENCE: Span = Span::millis(500);
/// RMAX where neither the operator nor the media bounds the rate. The law rests at x = XREF · RMAX / r, and x is at
/// most [`X_MAX`]: with a larger RMAX no signal could push the rate below a video's usual range.
pub(super) const R_MAX: Rate = Rate::mbps(20);
/// Most by which the rate-shaping buffer moves either rate, as a share of the reference rate (RFC 8698, 5.2.2).
pub(super) const MOST_SHAPING: f64 = 0.05;
/// A report that came after a gap counts for this many intervals at most.
pub(super) const MOST_INTERVALS: u64 = 2;
/// The base delay is the least of ten slots of this length (RFC 8698, 5.1.1, has tens of minutes; RFC 6817, 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
/// Slots of the base delay's memory.
pub(super) const BASE_SLOTS: usize = 10;
