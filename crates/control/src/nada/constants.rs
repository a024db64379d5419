//! Constants of RFC 8698, with the names that the RFC gives them. If a constant has another source, the comment says
//! so.

use steadycast_units::{Rate, Span};

/// LOGWIN: window over which the receive rate, the loss and the marks are measured.
pub(super) const LOG_WINDOW: Span = Span::millis(500);
/// QEPS: queueing delay that ends the ramp-up.
pub(super) const Q_EPS: Span = Span::millis(10);
/// DFILT: delay of the filter. It is added to the round-trip time.
pub(super) const D_FILT: Span = Span::millis(120);
/// QBOUND: queueing delay that a ramp-up is allowed to cause.
pub(super) const Q_BOUND: Span = Span::millis(50);
/// `GAMMA_MAX`: maximum increase per report during the ramp-up, as a share of the receive rate.
pub(super) const GAMMA_MAX: f64 = 0.5;
/// MULTILOSS: after a loss, delays above QTH are reduced for this number of mean loss intervals (section 4.2).
pub(super) const MULTI_LOSS: f64 = 7.0;
/// QTH: delays above this value are reduced for some time after a loss.
pub(super) const Q_TH: Span = Span::millis(50);
/// LAMBDA: how strongly a delay above QTH is reduced.
pub(super) const LAMBDA: f64 = 0.5;
/// PLRREF: loss rate that adds the delay `d_loss` to the signal.
pub(super) const PLR_REF: f64 = 0.01;
/// PMRREF: share of marked packets that adds the delay `d_mark` to the signal.
pub(super) const PMR_REF: f64 = 0.01;
/// ALPHA: weight of a new value in the mean loss rate and in the mean share of marked packets.
pub(super) const ALPHA: f64 = 0.1;
pub(super) const FPS: f64 = 30.0;
/// `BETA_V`: how strongly queued data lowers the rate of the encoder.
pub(super) const BETA_V: f64 = 0.1;
/// `BETA_S`: how strongly queued data raises the rate at which the sender sends.
pub(super) const BETA_S: f64 = 0.1;
/// Maximum of the signal x (ns3-rmcat). In paper mode, x is limited by the 15 bits that it has in the report (section
/// 5.3).
pub(super) const X_MAX: Span = Span::millis(500);
/// Number of packets over which the minimum queueing delay is taken (section 5.1.1).
pub(super) const FILTER: usize = 15;
/// Minimum time without feedback after which the rate is halved. RFC 8698 has no such timeout.
pub(super) const LEAST_TIMEOUT: Span = Span::millis(500);
/// Value of RMAX if neither the parameter `r_max` nor the session's cap limits the rate. In equilibrium, the rate is
/// proportional to RMAX / x. With a larger value, the rate would exceed the usual range of video even if x is at its
/// maximum ([`X_MAX`]).
pub(super) const R_MAX: Rate = Rate::mbps(20);
/// Maximum change of the rate because of queued data, as a share of the reference rate (section 5.2.2).
pub(super) const MOST_SHAPING: f64 = 0.05;
/// An update of the rate is computed from the time since the last update, but from at most this number of report
/// intervals.
pub(super) const MOST_INTERVALS: u64 = 2;
/// Length of a time slot in the window over which the base delay is the minimum (RFC 6817, section 3.4.2).
pub(super) const BASE_SLOT: Span = Span::secs(60);
/// Number of time slots in this window. In RFC 8698, section 5.1.1, the window is tens of minutes long.
pub(super) const BASE_SLOTS: usize = 10;
