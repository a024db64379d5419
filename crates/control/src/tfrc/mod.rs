//! `tfrc`: TCP-friendly rate control for one receiver (RFC 5348).
//!
//! The receiver reports the loss event rate p and the receive rate X_recv once per round trip. The sender uses the rate
//! that a TCP connection would have, but at most twice X_recv.

mod message;
mod receiver;
mod sender;

use crate::Promise;
use crate::entry::{Controller, FeedbackTiming, Receivers, Values, params};
use crate::loss::LossSettings;
pub(crate) use message::{FeedbackReport, Mark, REPORT_BYTES, echo, read_rtt_notice, rtt_notice};
pub(crate) use receiver::{CountedPackets, Receiver};
pub(crate) use sender::Sender;
use steadycast_units::Span;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "tfrc",
    about: "TCP-friendly rate control (TFRC): TCP's throughput equation at the measured loss event rate",
    when: "for one receiver if a queue as long as a TCP makes it is acceptable, and for receivers of other programs",
    source: "RFC 5348",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    extension: message::EXTENSION,
    answers_marks: true,
    app: *b"TFRC",
    colour: "#1f77b4",
    params: PARAMS,
    promises: &[&TWICE],
    sender: |setup, values| Box::new(Sender::new(setup, &Settings::new(values))),
    receiver: |setup, values| Box::new(Receiver::new(setup, &Settings::new(values), CountedPackets::All)),
    ..crate::fixed::CONTROLLER
};

const TWICE: Promise = Promise {
    id: "tfrc.at-most-twice",
    about: "after the first loss, the rate is at most twice the arriving rate, or the minimum rate (RFC 5348, 4.3)",
};

params! {
    /// The configuration of `tfrc`, computed from its parameters.
    pub(crate) Settings(values) {
        let choice profile:
            "rfc5348: the RFC's constants; ns2: those of ns-2, also for each parameter below that has its default \
             value, and after the first loss the rate rises by at most one packet per round trip in each round trip",
            "RFC 5348; ns-2.35 defaults", ["rfc5348"; 2], &["rfc5348", "ns2"];
        let number discount_threshold:
            "the minimum factor by which older loss intervals are discounted while the current one is long; with 1 \
             there is no discounting (with profile = ns2: 0.5)",
            "Steadycast; RFC 5348, 5.5: 0.25; its predecessor and ns-2: 0.5", [RFC.discount, NS2.discount], [0.05, 1.0];
        switch damping:
            "oscillation damping: whether the rate is reduced while the round-trip time R is above its mean, by the \
             factor mean(√R) / √R",
            "RFC 5348, 4.5", [true; 2];
        let span start_delay:
            "the queueing delay that ends slow start as a loss event would; with 0, only a loss ends slow start \
             (with profile = ns2: 0)",
            "Steadycast; RFC 9406 has 4 to 16 ms", [START_DELAY, Span::ZERO], [Span::ZERO, Span::secs(10)];
    } {
        profile: Profile = if profile == "ns2" { NS2 } else { RFC },
        // If a parameter has its default value, the value of the profile replaces the parameter.
        loss: LossSettings = LossSettings {
            discount: if discount_threshold == RFC.discount { profile.discount } else { discount_threshold },
            ndupack: profile.ndupack,
            ..LossSettings::default()
        },
        start_delay: Span = if profile.gentle && start_delay == START_DELAY { Span::ZERO } else { start_delay },
    }
}

impl Settings {
    /// Returns TFRC's settings for a controller that builds on TFRC. If `values` lacks a parameter, this
    /// parameter has TFRC's default.
    pub(crate) fn of_profile(values: &Values) -> Self {
        Self::new(&values.of(PARAMS))
    }
}

/// t_mbi: maximum time between two packets (RFC 5348, section 4.3).
const T_MBI: Span = Span::secs(64);

/// Default of `start_delay` in `Mode::Repaired`. The ten packets with which a TCP begins cause at most this queueing
/// delay on a link of 6 Mb/s or more.
const START_DELAY: Span = Span::millis(20);

/// The constants that the parameter `profile` selects.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    /// Minimum factor by which older loss intervals are discounted (RFC 5348, section 5.5).
    discount: f64,
    /// NDUPACK: number of later packets after which a missing packet counts as lost (RFC 5348, section 5.1).
    ndupack: u32,
    /// Weight of the old value in the smoothed round-trip time. It is q in RFC 5348, section 4.3, and q2 for damping in
    /// section 4.5.
    q: f64,
    /// No-feedback timeout, in round trips (RFC 5348, section 4.3, step 3).
    nofeedback: f64,
    /// Interval between the receiver's reports, in round trips (RFC 5348, section 6.2).
    report: f64,
    /// Whether the equation uses the retransmission timeout of a TCP with ticks of 0.1 s. Otherwise it uses four round
    /// trips (RFC 5348, section 3.1).
    tcp_rto: bool,
    /// Whether increases are limited as in ns-2, and only the latest X_recv is used.
    gentle: bool,
}

/// The constants of RFC 5348, but without history discounting. With discounting, a smooth stream takes more than twice
/// the rate of a TCP flow at a drop-tail queue.
const RFC: Profile =
    Profile { discount: 1.0, ndupack: 3, q: 0.9, nofeedback: 4.0, report: 1.0, tcp_rto: false, gentle: false };
/// The defaults of ns-2.35.
const NS2: Profile =
    Profile { discount: 0.5, ndupack: 1, q: 0.95, nofeedback: 2.0, report: 1.5, tcp_rto: true, gentle: true };
