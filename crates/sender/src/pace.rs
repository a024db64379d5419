use steadycast_units::{Bytes, Rate, Span, Time};

/// Computes when the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// If a packet is sent late, the pacer catches up for at most this time.
    credit: Span,
    /// The time at which the last packet was due, and the packet's size.
    last: Option<(Time, Bytes)>,
}

impl Pace {
    /// Creates a pacer. After a late wake-up, it catches up with a burst. The burst makes up for a delay of at most
    /// `credit`.
    pub const fn new(credit: Span) -> Self {
        Self { credit, last: None }
    }

    /// Returns when the next packet may be sent.
    pub fn due(&self, pacing: Rate) -> Time {
        // Compute the gap at the present rate, so that a change of the rate also changes the gap after the last packet.
        self.last.map_or(Time::ZERO, |(at, size)| at + size.at(pacing))
    }

    /// Records that the queue was empty until `now`. The pacer does not catch up for this time.
    pub fn resume(&mut self, now: Time, pacing: Rate) {
        if let Some((at, size)) = &mut self.last
            && *at + size.at(pacing) < now
        {
            (*at, *size) = (now, Bytes::ZERO);
        }
    }

    /// Adds a packet that was sent at the rate `pacing`. The next packet must wait for the transmission time of this
    /// packet.
    pub fn sent(&mut self, now: Time, size: Bytes, pacing: Rate) {
        // Start from the time at which the packet was due, so that late wake-ups do not lower the rate. The credit
        // limits the burst after a late wake-up.
        self.last = Some((self.due(pacing).max(now.before(self.credit)), size));
    }

    /// Adds bytes that were sent earlier than the pacing rate allows. The next packet waits for them.
    pub fn charge_early(&mut self, bytes: Bytes) {
        if let Some((_, size)) = &mut self.last {
            *size += bytes;
        }
    }
}
