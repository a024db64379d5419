use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Bytes, Time};

/// Counters of the packets that have arrived since the last report, in all streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SinceLastReport {
    /// When the last report was sent. Before the first report: when the first packet arrived.
    pub(crate) last: Time,
    pub(crate) packets: u32,
    pub(crate) bytes: Bytes,
    /// When the newest packet arrived.
    pub(crate) at: Time,
    /// Whether the newest packet ends a frame.
    pub(crate) ends: bool,
}

/// Schedules reports that carry no body of the controller. Each arriving packet proposes a time for the next report,
/// and the earliest proposal wins.
pub(crate) struct ReportScheduler<F> {
    when: F,
    since: Option<SinceLastReport>,
    due: Option<Wake>,
}

impl<F: Fn(&SinceLastReport) -> Wake> ReportScheduler<F> {
    /// Creates a scheduler. After each packet, `when` returns the proposed time of the next report.
    pub(crate) const fn new(when: F) -> Self {
        Self { when, since: None, due: None }
    }

    fn count(&mut self, at: Time, size: Bytes, ends: bool) {
        let since = self.since.get_or_insert(SinceLastReport { last: at, ..SinceLastReport::default() });
        *since = SinceLastReport { packets: since.packets + 1, bytes: since.bytes + size, at, ends, ..*since };
        let wanted = (self.when)(since);
        // Keep the earlier time, because a later packet must not delay the report.
        self.due = self.due.filter(|due| due.at <= wanted.at).or(Some(wanted));
    }
}

impl<F: Fn(&SinceLastReport) -> Wake + Send> ReceiverHalf for ReportScheduler<F> {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.count(arrival.at, arrival.size, arrival.edge.last);
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.count(extra.at, extra.size, false);
    }

    fn due(&self) -> Due {
        self.due.map_or(Due::Hold, Due::At)
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        (self.since, self.due) = (Some(SinceLastReport { last: slot.now, ..SinceLastReport::default() }), None);
        Reply::Plain
    }
}
