use crate::entry::Values;
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Span, Time};

/// Asks for reports at SCReAM's times. What they tell of single packets is the session's.
pub(super) struct Receiver {
    /// A report is due after this many packets ...
    packets: u32,
    /// ... or this long after the last one.
    after: Span,
    /// Packets since the last report.
    fresh: u32,
    last: Option<Time>,
    due: Option<Wake>,
}

impl Receiver {
    pub(super) fn new(values: &Values) -> Self {
        let (packets, after) = (values.number("report_packets") as u32, values.span("report_after"));
        Self { packets, after, fresh: 0, last: None, due: None }
    }

    fn count(&mut self, at: Time, marker: bool) {
        self.fresh += 1;
        let last = *self.last.get_or_insert(at);
        if self.due.is_some_and(|due| due.at <= at) {
            return;
        }
        self.due = Some(if marker {
            Wake { at, why: "frame complete" }
        } else if self.fresh >= self.packets {
            Wake { at, why: "packets to acknowledge" }
        } else {
            Wake { at: last + self.after, why: "report interval" }
        });
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.count(arrival.at, arrival.edge.last);
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.count(extra.at, false);
    }

    fn due(&self) -> Due {
        self.due.map_or(Due::Hold, Due::At)
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        (self.fresh, self.due, self.last) = (0, None, Some(slot.now));
        Reply::Plain
    }
}
