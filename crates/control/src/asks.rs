use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Bytes, Time};

/// What has come since the last report, of all streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fresh {
    /// When that report left; before the first one, when the first packet came.
    pub(crate) last: Time,
    pub(crate) packets: u32,
    pub(crate) bytes: Bytes,
    /// When the newest packet came, and whether its frame ends with it.
    pub(crate) at: Time,
    pub(crate) ends: bool,
}

/// Asks for a report at the earliest time that any packet since the last one gives it. What reports tell of single
/// packets is the session's.
pub(crate) struct Asks<F> {
    when: F,
    fresh: Option<Fresh>,
    due: Option<Wake>,
}

impl<F: Fn(&Fresh) -> Wake> Asks<F> {
    /// `when`: the time that a packet gives.
    pub(crate) const fn new(when: F) -> Self {
        Self { when, fresh: None, due: None }
    }

    fn count(&mut self, at: Time, size: Bytes, ends: bool) {
        let fresh = self.fresh.get_or_insert(Fresh { last: at, ..Fresh::default() });
        *fresh = Fresh { packets: fresh.packets + 1, bytes: fresh.bytes + size, at, ends, ..*fresh };
        let wanted = (self.when)(fresh);
        self.due = self.due.filter(|due| due.at <= wanted.at).or(Some(wanted));
    }
}

impl<F: Fn(&Fresh) -> Wake + Send> ReceiverHalf for Asks<F> {
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
        (self.fresh, self.due) = (Some(Fresh { last: slot.now, ..Fresh::default() }), None);
        Reply::Plain
    }
}
