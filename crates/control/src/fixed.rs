//! `fixed`: a constant rate. This controller is also the template for new controllers.

use crate::entry::{Controller, FeedbackTiming, Receivers, params};
use crate::{Arrival, Decision, Limit, ReceiverHalf, Reply, Report, SenderHalf, Sent, Slot, Why};
use steadycast_units::{Rate, Span};

/// Registry entry of `fixed`. Other entries take the fields that they do not set from this one.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "fixed",
    about: "a constant rate; feedback is ignored",
    when: "as a baseline, and for a source whose rate is known to fit",
    source: "plain RTP (RFC 3550)",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::None,
    slowest_feedback: Span::MAX,
    needs: |_| &[],
    standard_reports: true,
    repeats: false,
    own_rate: false,
    answers_marks: false,
    extension: 0,
    app: *b"NONE",
    colour: "#ff7f0e",
    dashes: &[],
    params: PARAMS,
    promises: &[],
    sender: |setup, values| {
        Box::new(Constant { rate: values.rate("rate").unwrap_or(setup.cap).min(setup.cap), rule: "constant rate" })
    },
    receiver: |_, _| Box::new(Silent),
};

params! { const {
    rate rate: "the constant sending rate; if not set, the source and the session's cap alone limit the rate",
        "-", [Rate::ZERO; 2], [Rate::bps(1), Rate::mbps(1_000_000)];
} }

pub(crate) struct Constant {
    pub(crate) rate: Rate,
    pub(crate) rule: &'static str,
}

impl SenderHalf for Constant {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_report(&mut self, _: &Report<'_>) {}

    fn decision(&self) -> Decision {
        Decision { target: self.rate, pacing: self.rate, window: None, limit: Limit::Cap, why: Why::rule(self.rule) }
    }
}

/// A receiver part that adds nothing to RTCP's reports.
pub(crate) struct Silent;

impl ReceiverHalf for Silent {
    fn on_arrival(&mut self, _: &Arrival<'_>) {}

    fn is_patient(&self) -> bool {
        true
    }

    fn report(&mut self, _: &Slot) -> Reply {
        Reply::Plain
    }
}
