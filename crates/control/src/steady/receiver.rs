use super::Config;
use crate::{Arrival, Due, ExtraArrival, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Bytes, Span, Time};

/// Asks for reports at steady times. What they tell of single packets is the session's.
pub(super) struct Receiver {
    config: Config,
    /// When the last report left, or the first packet arrived.
    last: Option<Time>,
    /// Bytes that have arrived since then.
    fresh: u64,
}

impl Receiver {
    pub(super) fn new(config: Config) -> Self {
        Self { config, last: None, fresh: 0 }
    }

    fn count(&mut self, at: Time, size: Bytes) {
        self.last.get_or_insert(at);
        self.fresh = self.fresh.saturating_add(size.get());
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.count(arrival.at, arrival.size);
    }

    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.count(extra.at, extra.size);
    }

    /// After the interval, once so much has arrived that a report is 5 % of it; in any case after the longest interval.
    fn due(&self) -> Due {
        let Some(last) = self.last.filter(|_| self.fresh > 0) else { return Due::Hold };
        let enough = self.fresh as f64 >= self.config.report_bytes;
        let after = if enough { self.config.report_every } else { self.config.report_most };
        Due::At(Wake { at: last + Span::from_secs_f64(after), why: "report interval" })
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        (self.last, self.fresh) = (Some(slot.now), 0);
        Reply::Plain
    }
}
