use super::constants::{REPORT_AFTER, REPORT_PACKETS};
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::Time;

/// Asks for reports at SCReAM's times. What they tell of single packets is the session's.
#[derive(Default)]
pub(super) struct Receiver {
    /// Packets since the last report.
    fresh: u32,
    last: Option<Time>,
    due: Option<Wake>,
}

impl Receiver {
    fn count(&mut self, at: Time, marker: bool) {
        self.fresh += 1;
        let last = *self.last.get_or_insert(at);
        if self.due.is_some_and(|due| due.at <= at) {
            return;
        }
        self.due = Some(if marker {
            Wake { at, why: "frame complete" }
        } else if self.fresh >= REPORT_PACKETS {
            Wake { at, why: "packets to acknowledge" }
        } else {
            Wake { at: last + REPORT_AFTER, why: "report interval" }
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
