use super::constants::{FEEDBACK_MAX, FEEDBACK_MIN};
use crate::entry::Setup;
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Bytes, Span, Time};

/// A report's IP size, and the share of the session bandwidth that reports may take
/// (libwebrtc, `transport_sequence_number_feedback_generator.cc`).
const REPORT: Bytes = Bytes::new(68);
const SHARE: f64 = 0.05;

/// The receiving half: asks for a report after the first packet, and then at its interval while packets come. What
/// the report says of packets is the session's.
pub(super) struct Receiver {
    interval: Span,
    last: Option<Time>,
    due: Option<Time>,
}

impl Receiver {
    pub(super) fn new(setup: &Setup) -> Self {
        let interval = REPORT.at(setup.session_bandwidth.scale(SHARE)).min(FEEDBACK_MAX).max(FEEDBACK_MIN);
        Self { interval, last: None, due: None }
    }

    fn heard(&mut self, at: Time) {
        let last = self.last.unwrap_or(at);
        self.due.get_or_insert((last + self.interval).max(at));
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.heard(arrival.at);
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.heard(extra.at);
    }

    fn due(&self) -> Due {
        self.due.map_or(Due::Hold, |at| Due::At(Wake { at, why: "feedback interval" }))
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        (self.last, self.due) = (Some(slot.now), None);
        Reply::Plain
    }
}
