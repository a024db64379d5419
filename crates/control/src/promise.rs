//! Promises: what controllers, and the session around them, say of themselves, and what is checked in every run.

/// A promise. It is described once, where whoever keeps it is described: in
/// [`Controller::promises`](crate::Controller::promises), or in [`SESSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its name: whose it is, and what is promised in a few words.
    pub id: &'static str,
    /// What is promised, in one sentence without a full stop.
    pub about: &'static str,
}

/// RTCP's part of the session bandwidth.
pub const RTCP_SHARE: Promise = Promise {
    id: "rtcp.share",
    about: "RTCP on a timer takes at most 6 % of the session bandwidth: the 5 % of RFC 3550, 6.2, and a point to \
            spare in a window \
            of half a minute",
};
/// Repair and parity are part of the rate.
pub const REPAIR_WITHIN_RATE: Promise = Promise {
    id: "repair.within-rate",
    about: "the media, its repair, parity and padding together leave no faster than the pacing rate",
};
/// What was repaired stays lost to the controller.
pub const REPAIR_NOT_COUNTED: Promise = Promise {
    id: "repair.never-feeds-loss",
    about: "the receiver half is shown as many packets of the media as the report's counters have: a \
            repaired one stays lost to it",
};
/// Losses are losses, whatever repair brings.
pub const LOSSES_COUNT: Promise = Promise {
    id: "repair.losses-still-count",
    about: "what the session counts as received is what came of the media itself, without what was repaired",
};
/// What leaves fits through the path.
pub const WITHIN_MTU: Promise = Promise {
    id: "packets.within-mtu",
    about: "no packet of a session's ends, of RTP or of RTCP, is larger than the MTU of its path",
};

/// The promises of the session, whichever controller runs in it.
pub const SESSION: &[&Promise] = &[&RTCP_SHARE, &REPAIR_WITHIN_RATE, &REPAIR_NOT_COUNTED, &LOSSES_COUNT, &WITHIN_MTU];

/// A promise, and how it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is promised.
    pub promise: &'static Promise,
    /// How often it was looked at.
    pub checked: u64,
    /// How often it did not hold.
    pub broken: u64,
}

impl Check {
    /// A promise that has not been looked at.
    pub const fn new(promise: &'static Promise) -> Self {
        Self { promise, checked: 0, broken: 0 }
    }

    /// Looks at it once.
    pub fn see(&mut self, holds: bool) {
        self.checked += 1;
        self.broken += u64::from(!holds);
    }

    /// Adds what others have seen to `all`, by name.
    pub fn gather(all: &mut Vec<Self>, more: &[Self]) {
        for check in more {
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
    /// Of no promise: a half begins with it, and names its own.
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
