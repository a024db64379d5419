//! Computes how the delay varies between groups of packets that were sent together (libwebrtc,
//! `inter_arrival_delta.cc`).

use steadycast_units::{Offset, PeerTime, Span, Time};

/// Maximum time between the first and the last packet of a group, when they were sent.
const GROUP: Span = Span::millis(5);
/// Maximum time between two arrivals within a burst. The packets of a burst waited in a queue together, so they form
/// one group.
const BURST: Span = Span::millis(5);
/// The first and the last arrival of a burst are less than this time apart.
const LONGEST_BURST: Span = Span::millis(100);
/// The receiver's clock has jumped if the time between two arrivals exceeds the time between the reports on them by at
/// least this value.
const JUMP: Span = Span::secs(3);
/// Number of successive reordered groups after which the state is discarded.
const REORDERED: u32 = 3;

/// Intervals between the last packets of two groups. `sent` is the interval between their send times. `arrived` is the
/// interval between their arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) sent: Span,
    pub(super) arrived: Offset,
}

impl Delta {
    /// Returns the increase of the one-way delay, in milliseconds.
    pub(super) fn variation(&self) -> f64 {
        (self.arrived.as_secs_f64() - self.sent.as_secs_f64()) * 1e3
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Time,
    last_sent: Time,
    first_arrival: PeerTime,
    last_arrival: PeerTime,
    /// When the feedback on the last packet arrived.
    reported: Time,
}

impl Group {
    fn of(sent: Time, arrived: PeerTime, reported: Time) -> Self {
        Self { first_sent: sent, last_sent: sent, first_arrival: arrived, last_arrival: arrived, reported }
    }

    fn holds(&self, sent: Time, arrived: PeerTime) -> bool {
        sent.since(self.first_sent) <= GROUP || self.is_burst_with(sent, arrived)
    }

    fn is_burst_with(&self, sent: Time, arrived: PeerTime) -> bool {
        let apart = arrived.since(self.last_arrival).as_nanos();
        let sent_apart = sent.since(self.last_sent).as_offset().as_nanos();
        let lasts = arrived.since(self.first_arrival).as_nanos();
        sent_apart == 0
            || (apart < sent_apart
                && apart <= BURST.as_offset().as_nanos()
                && lasts < LONGEST_BURST.as_offset().as_nanos())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InterArrival {
    current: Option<Group>,
    before: Option<Group>,
    reordered: u32,
}

impl InterArrival {
    /// Adds a packet. `reported` is when the feedback on it arrived. Packets have to be added in the order of arrival.
    ///
    /// If the packet begins a new group, returns the intervals between the two groups before the new group.
    pub(super) fn take(&mut self, sent: Time, arrived: PeerTime, reported: Time) -> Option<Delta> {
        let Some(current) = &mut self.current else {
            self.current = Some(Group::of(sent, arrived, reported));
            return None;
        };
        // Skip a reordered packet, because the interval between sent packets would be negative.
        if sent < current.first_sent {
            return None;
        }
        if current.holds(sent, arrived) {
            current.last_sent = current.last_sent.max(sent);
            (current.last_arrival, current.reported) = (arrived, reported);
            return None;
        }
        let done = *current;
        let delta = self.before.map(|before| {
            let delta = Delta {
                sent: done.last_sent.since(before.last_sent),
                arrived: done.last_arrival.since(before.last_arrival),
            };
            (delta, done.reported.since(before.reported).as_offset())
        });
        if let Some((delta, here)) = delta {
            if delta.arrived.as_nanos().saturating_sub(here.as_nanos()) >= JUMP.as_offset().as_nanos() {
                *self = Self::default();
                return None;
            }
            // A reordered group has a negative interval. If several groups in succession have one, the receiver's clock
            // was reset.
            if delta.arrived < Offset::ZERO {
                self.reordered += 1;
                if self.reordered >= REORDERED {
                    *self = Self::default();
                }
                return None;
            }
            self.reordered = 0;
        }
        self.before = Some(done);
        self.current = Some(Group::of(sent, arrived, reported));
        delta.map(|(delta, _)| delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds packets. Each has the times of departure and arrival in milliseconds. Feedback on a packet arrives 100 ms
    /// after its departure.
    fn feed(groups: &mut InterArrival, packets: &[(u64, i64)]) -> Vec<(u64, i64)> {
        let each = packets.iter().filter_map(|(sent, arrived)| {
            let reported = Time::ZERO + Span::millis(*sent + 100);
            groups.take(Time::ZERO + Span::millis(*sent), PeerTime::from_nanos(arrived * 1_000_000), reported)
        });
        each.map(|d| (d.sent.as_nanos() / 1_000_000, d.arrived.as_nanos() / 1_000_000)).collect()
    }

    #[test]
    fn what_left_within_five_milliseconds_is_a_group_and_differences_are_of_last_packets() {
        let mut groups = InterArrival::default();
        let packets = [(0, 50), (3, 60), (5, 70), (33, 90), (36, 100), (66, 140), (100, 150)];
        // The packets sent at 0, 3 and 5 ms form the first group. The packets sent at 33 and 36 ms form the second
        // group, and the packet sent at 66 ms forms the third. The group that begins at 100 ms is not complete.
        assert_eq!(feed(&mut groups, &packets), [(31, 30), (30, 40)]);
    }

    #[test]
    fn what_waited_for_the_same_thing_is_a_group_though_it_left_apart() {
        let mut groups = InterArrival::default();
        // The path was blocked until 200 ms. Then all packets arrived together.
        let packets = [(0, 50), (20, 70), (40, 200), (60, 202), (80, 204), (100, 206), (130, 260), (160, 290)];
        assert_eq!(feed(&mut groups, &packets), [(20, 20), (80, 136), (30, 54)]);
    }

    #[test]
    fn packets_from_before_the_group_are_left_out() {
        let mut groups = InterArrival::default();
        assert_eq!(feed(&mut groups, &[(20, 50), (10, 55), (40, 70), (60, 90)]), [(20, 20)]);
    }

    #[test]
    fn a_jump_of_the_other_clock_begins_anew_in_either_direction() {
        let mut ahead = InterArrival::default();
        assert_eq!(feed(&mut ahead, &[(0, 0), (20, 20), (40, 40)]), [(20, 20)]);
        // On the receiver's clock, the group sent at 60 ms arrives half a minute late. So no difference is computed
        // across the jump.
        assert_eq!(feed(&mut ahead, &[(60, 30_060), (80, 30_080), (100, 30_100), (120, 30_120)]), [(20, 20)]);
        let mut back = InterArrival::default();
        feed(&mut back, &[(30_000, 30_000), (30_020, 30_020)]);
        let packets: Vec<_> = (2..12).map(|i| (30_000 + 20 * i, 20 * i as i64)).collect();
        let reported = feed(&mut back, &packets);
        assert!(!reported.is_empty() && reported.iter().all(|d| *d == (20, 20)), "{reported:?}");
    }
}
