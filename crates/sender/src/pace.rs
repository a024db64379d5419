use steadycast_units::{Bytes, Rate, Span, Time};

/// Computes when the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The maximum lateness for which the pacer catches up.
    credit: Span,
    /// When the last packet was due, and its size.
    last: Option<(Time, Bytes)>,
}

impl Pace {
    /// Creates a pacer. After a late wake-up it catches up for at most `credit` at the pacing rate.
    pub const fn new(credit: Span) -> Self {
        Self { credit, last: None }
    }

    /// Returns when the next packet may be sent.
    pub fn due(&self, pacing: Rate) -> Time {
        // A change of the rate applies to the current gap as well.
        self.last.map_or(Time::ZERO, |(at, size)| at + size.at(pacing))
    }

    /// Records that no packet waited until `now`; the pacer does not catch up for this.
    pub fn resume(&mut self, now: Time, pacing: Rate) {
        if let Some((at, size)) = &mut self.last
            && *at + size.at(pacing) < now
        {
            (*at, *size) = (now, Bytes::ZERO);
        }
    }

    /// Charges a packet sent at the rate `pacing`.
    pub fn sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        // A late wake-up must not lower the rate; the credit bounds the burst after it.
        self.last = Some((self.due(pacing).max(now.before(self.credit)), size));
    }

    /// Charges bytes that were sent too early; the next packet waits for them.
    pub fn charge_early(&mut self, bytes: Bytes) {
        if let Some((_, size)) = &mut self.last {
            *size += bytes;
        }
    }
}
