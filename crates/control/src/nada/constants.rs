//! Constants of RFC 8698 under the RFC's names; other sources are named.

use steadycast_units::{Rate, Span};

/// LOGWIN: the window of the receive rate, the loss and the marks.
pub(super) const LOG_WINDOW: Span = Span::millis(500);
/// QEPS: the queueing delay that ends the ramp-up.
pub(super) const Q_EPS: Span = Span::millis(10);
/// DFILT: the delay of the filter, which is added to the round-trip time.
pub(super) const D_FILT: Span = Span::millis(120);
/// QBOUND: the queueing delay that a ramp-up may build up.
pub(super) const Q_BOUND: Span = Span::millis(50);
/// `GAMMA_MAX`: the maximum ramp-up per report, as a share of the receive rate.
pub(super) const GAMMA_MAX: f64 = 0.5;
/// MULTILOSS: after a loss, delays above QTH are reduced for this number of mean loss intervals (section 4.2).
pub(super) const MULTI_LOSS: f64 = 7.0;
/// QTH: after a loss, delays above this value are reduced.
pub(super) const Q_TH: Span = Span::millis(50);
/// LAMBDA: how strongly a delay above QTH is reduced.
pub(super) const LAMBDA: f64 = 0.5;
/// PLRREF: the loss rate that adds the delay `d_loss`.
pub(super) const PLR_REF: f64 = 0.01;
/// PMRREF: the share of marked packets that adds the delay `d_mark`.
pub(super) const PMR_REF: f64 = 0.01;
/// ALPHA: the gain of the mean loss rate and mean share of marks.
pub(super) const ALPHA: f64 = 0.1;
pub(super) const FPS: f64 = 30.0;
/// `BETA_V`: the weight with which queued data lowers the encoder's rate.
pub(super) const BETA_V: f64 = 0.1;
/// `BETA_S`: the weight with which queued data raises the send rate.
pub(super) const BETA_S: f64 = 0.1;
/// The maximum signal x (ns3-rmcat). In paper mode, the 15 bits of the report limit x (section 5.3).
pub(super) const X_MAX: Span = Span::millis(500);
/// The number of packets over which the minimum queueing delay is taken (section 5.1.1).
pub(super) const FILTER: usize = 15;
/// The minimum of the no-feedback timeout. RFC 8698 has no such timeout.
pub(super) const LEAST_TIMEOUT: Span = Span::millis(500);
/// RMAX if nothing limits the rate. In equilibrium, the rate is proportional to RMAX / x. With a larger RMAX, the rate
/// would exceed a video's usual range even at the maximum of x ([`X_MAX`]).
pub(super) const R_MAX: Rate = Rate::mbps(20);
/// The maximum change by the rate-shaping buffer, as a share of the reference rate (section 5.2.2).
pub(super) const MOST_SHAPING: f64 = 0.05;
/// The maximum step of an update, in report intervals. A longer time since the last update counts as this time.
pub(super) const MOST_INTERVALS: u64 = 2;
/// The length of a slot in the base delay's window (RFC 6817, section 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
/// The number of slots. RFC 8698, section 5.1.1, has a window of tens of minutes.
pub(super) const BASE_SLOTS: usize = 10;
