use steadycast_units::{Bytes, Rate, Span, Time};

/// Computes when the next packet may be sent, from the pacing rate and the packets that were sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The maximum lateness of a wake-up for which the pacer catches up.
    credit: Span,
    /// The time at which the last packet was due, and its size.
    last: Option<(Time, Bytes)>,
}

impl Pace {
    /// Creates a pacer that sends its first packet without delay. After a late wake-up, packets of up to `credit` at
    /// the pacing rate may follow without a gap.
    pub const fn new(credit: Span) -> Self {
        Self { credit, last: None }
    }

    /// Returns when the next packet may be sent.
    pub fn due(&self, pacing: Rate) -> Time {
        // The present pacing rate is used, so that a change of the rate applies to the current gap as well.
        self.last.map_or(Time::ZERO, |(at, size)| at + size.at(pacing))
    }

    /// Records that no packet has waited until `now`. The pacer does not catch up for this time.
    pub fn resume(&mut self, now: Time, pacing: Rate) {
        if let Some((at, size)) = &mut self.last
            && *at + size.at(pacing) < now
        {
            (*at, *size) = (now, Bytes::ZERO);
        }
    }

    /// Charges a packet of `size` that was sent at the rate `pacing`.
    pub fn sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        // The due time, not the wake-up time, is the reference: a late wake-up must not lower the rate. The credit
        // bounds the burst that follows one.
        self.last = Some((self.due(pacing).max(now.before(self.credit)), size));
    }

    /// Charges bytes that were sent earlier than the pacing rate permits. The next packet then waits for these bytes as
    /// well.
    pub fn charge_early(&mut self, bytes: Bytes) {
        if let Some((_, size)) = &mut self.last {
            *size += bytes;
        }
    }
}
