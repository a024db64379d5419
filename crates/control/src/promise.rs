//! Promises about controllers and sessions. Every run checks whether they hold.

/// A promise of a controller ([`Controller::promises`](crate::Controller::promises)) or the session ([`SESSION`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The identifier: the name of the component, a full stop, and a few words.
    pub id: &'static str,
    /// The promise, as a sentence without a full stop.
    pub about: &'static str,
}

/// Promises that RTCP stays within its share of the session bandwidth.
pub const RTCP_SHARE: Promise = Promise {
    id: "rtcp.share",
    about: "timed RTCP uses at most 6 % of the session bandwidth in half a minute: the 5 % of RFC 3550, 6.2, and a \
            margin of one point",
};
/// Promises that repair packets and parity are sent within the pacing rate.
pub const REPAIR_WITHIN_RATE: Promise = Promise {
    id: "repair.within-rate",
    about: "media, retransmissions, parity and padding together are sent no faster than the pacing rate, or than a \
            probe's rate during the probe",
};
/// Promises that a repaired packet still counts as lost for the controller.
pub const REPAIR_NOT_COUNTED: Promise = Promise {
    id: "repair.never-feeds-loss",
    about: "the controller's receiver half gets as many media packets as RTCP's counters have, so a packet that was \
            repaired still counts as lost",
};
/// Promises that a repaired packet does not count as received in the session's counters.
pub const LOSSES_COUNT: Promise = Promise {
    id: "repair.losses-still-count",
    about: "the session's count of received packets has only media packets that arrived, without repaired ones",
};
/// Promises that all packets fit into the path's MTU.
pub const WITHIN_MTU: Promise = Promise {
    id: "packets.within-mtu",
    about: "no RTP or RTCP packet of a session is larger than the MTU of its path",
};

/// The promises of the session. They must hold with every controller.
pub const SESSION: &[&Promise] = &[&RTCP_SHARE, &REPAIR_WITHIN_RATE, &REPAIR_NOT_COUNTED, &LOSSES_COUNT, &WITHIN_MTU];

/// The result of checking a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The promise that is checked.
    pub promise: &'static Promise,
    /// How often the promise was checked.
    pub checked: u64,
    /// How many of these checks failed.
    pub broken: u64,
}

impl Check {
    /// Creates a result with zero checks.
    pub const fn new(promise: &'static Promise) -> Self {
        Self { promise, checked: 0, broken: 0 }
    }

    /// Records one check.
    pub fn see(&mut self, holds: bool) {
        self.checked += 1;
        self.broken += u64::from(!holds);
    }

    /// Adds the results in `more` to those in `all`. Results for the same promise are summed.
    pub fn gather(all: &mut Vec<Self>, more: &[Self]) {
        for check in more {
            // Compare identifiers, because every controller has its own copy of a promise.
            match all.iter_mut().find(|known| known.promise.id == check.promise.id) {
                Some(known) => {
                    known.checked += check.checked;
                    known.broken += check.broken;
                }
                None => all.push(*check),
            }
        }
    }
}

impl Default for Check {
    /// Returns a placeholder with an empty promise. The controller replaces it by its own check.
    fn default() -> Self {
        Self::new(&Promise { id: "", about: "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_counted_and_added_to_others_of_its_name() {
        let (mut one, mut two) = (Check::new(&RTCP_SHARE), Check::new(&LOSSES_COUNT));
        one.see(true);
        one.see(false);
        two.see(true);
        let mut all = vec![one];
        Check::gather(&mut all, &[two, one]);
        let told: Vec<_> = all.iter().map(|c| (c.promise.id, c.checked, c.broken)).collect();
        assert_eq!(told, [("rtcp.share", 4, 2), ("repair.losses-still-count", 1, 0)]);
    }
}
